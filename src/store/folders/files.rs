//! Single files and directories of a folder: opens one to be read, makes and moves.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rules::folder_path::FolderPath;
use rules::refusals;
use rules::units::Timestamp;
use rustix::fs::{FileType, Mode, RenameFlags, Stat};
use rustix::io::Errno;

use super::beneath::{FolderTop, directory_in, give, sync};
use super::failure::{FolderError, failed, fault, named};
use super::listing::changed_at;

/// An ordinary file of a folder, open.
#[derive(Debug)]
pub struct FolderFile {
    pub file: File,
    pub size: u64,
    pub modified_at: Timestamp,
    /// Differs once the file is another one or has other contents, as the file system tells.
    pub tag: String,
    /// The media type of an image that a page may show; None for all else.
    pub image: Option<&'static str>,
}

pub(super) fn open(top: &FolderTop, path: &FolderPath) -> Result<FolderFile, FolderError> {
    if path.is_top() {
        return Err(refusals::folder_entry_not_file(named(path)).into());
    }
    let doing = "open a file of a folder";
    let opened = top.file(path)?;
    let stat = rustix::fs::fstat(&opened).map_err(failed(doing, path))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(refusals::folder_entry_not_file(named(path)).into());
    }
    let file = File::from(opened);
    let mut begin = [0; 12];
    let read = file.read_at(&mut begin, 0).map_err(fault(doing))?;
    Ok(FolderFile {
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified_at: changed_at(&stat),
        tag: tag_of(&stat),
        image: image(&begin[..read]),
        file,
    })
}

/// What differs once a file is another one or has other contents.
pub(super) fn tag_of(stat: &Stat) -> String {
    format!(
        "{:x}-{:x}-{:x}.{:x}-{:x}.{:x}",
        stat.st_ino,
        stat.st_size,
        stat.st_mtime,
        stat.st_mtime_nsec,
        stat.st_ctime,
        stat.st_ctime_nsec
    )
}

/// The sorts of images that no browser takes for anything else, by how they begin. What may hold script is not among them.
pub fn image(begin: &[u8]) -> Option<&'static str> {
    match begin {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

/// Makes one directory in one that is there.
pub(super) fn make_directory(top: &FolderTop, path: &FolderPath) -> Result<(), FolderError> {
    let doing = "make a directory in a folder";
    let parent = top.directory(&path.parent())?;
    rustix::fs::mkdirat(&parent, path.name(), Mode::RWXU).map_err(failed(doing, path))?;
    // By its name there: a session that moves the way to it meanwhile leaves none that is half made.
    let made = directory_in(parent.as_fd(), path.name()).map_err(failed(doing, path))?;
    give(parent.as_fd(), made.as_fd(), true, top.owner()).map_err(fault(doing))?;
    sync(parent.as_fd()).map_err(fault(doing))
}

/// Gives a file, a directory or a link another name or place; never over another one.
pub(super) fn move_entry(
    top: &FolderTop,
    from: &FolderPath,
    to: &FolderPath,
) -> Result<(), FolderError> {
    let doing = "move a file of a folder";
    if to.is_at_or_below(from) && to != from {
        return Err(refusals::folder_move_inside().into());
    }
    let (above, into) = (top.directory(&from.parent())?, top.directory(&to.parent())?);
    let (old, new) = (from.name(), to.name());
    let flags = RenameFlags::NOREPLACE;
    match rustix::fs::renameat_with(&above, old, &into, new, flags) {
        // What lies there is in the way, and not what is to be moved.
        Err(error @ Errno::EXIST) => return Err(failed(doing, to)(error)),
        moved => moved.map_err(failed(doing, from))?,
    }
    sync(into.as_fd()).map_err(fault(doing))?;
    sync(above.as_fd()).map_err(fault(doing))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::{Path, PathBuf};

    use rules::names::FolderId;
    use rustix::fs::CWD;
    use uuid::Uuid;

    use super::*;
    use crate::folders::{FolderStore, mounted_directory};

    const ID: FolderId = FolderId(Uuid::from_u128(0xab));

    fn opened() -> (tempfile::TempDir, FolderStore, PathBuf) {
        let data = tempfile::tempdir().expect("a directory");
        let store = FolderStore::open(data.path()).expect("a store");
        store.create(ID, false, None).expect("made");
        let place = mounted_directory(data.path(), ID);
        (data, store, place)
    }

    fn path(text: &str) -> FolderPath {
        FolderPath::parse(text).expect(text)
    }

    fn code<T>(done: Result<T, FolderError>) -> String {
        match done {
            Ok(_) => "done".to_owned(),
            Err(error) => error.code().unwrap_or("fault").to_owned(),
        }
    }

    #[test]
    fn files_are_made_moved_and_removed_below_the_folder_alone() {
        let (_data, store, place) = opened();
        store.make_directory(ID, &path("a")).expect("made");
        let made = place.join("a").metadata().expect("there");
        assert_eq!(made.permissions().mode() & 0o777, 0o777);
        if rustix::process::geteuid().is_root() {
            assert_eq!((made.uid(), made.gid()), (1000, 1000));
        }
        assert_eq!(
            code(store.make_directory(ID, &path("a"))),
            "folder.entry-exists"
        );
        let missing = code(store.make_directory(ID, &path("x/y")));
        assert_eq!(missing, "folder.entry-not-found");
        fs::write(place.join("a/file"), "text").expect("written");
        assert_eq!(
            code(store.move_entry(ID, &path("a"), &path("a/b"))),
            "folder.move-inside"
        );
        store
            .move_entry(ID, &path("a/file"), &path("b"))
            .expect("moved");
        fs::write(place.join("c"), "other").expect("written");
        let taken = code(store.move_entry(ID, &path("b"), &path("c")));
        assert_eq!(taken, "folder.entry-exists");
        assert_eq!(fs::read_to_string(place.join("c")).expect("there"), "other");
        symlink("/etc", place.join("out")).expect("a link");
        let through = code(store.make_directory(ID, &path("out/x")));
        assert_eq!(through, "folder.entry-link");
        store.remove_for_good(ID, &path("out")).expect("removed");
        assert!(Path::new("/etc").is_dir() && !place.join("out").exists());
        store.remove_for_good(ID, &path("a")).expect("removed");
        assert_eq!(
            code(store.remove_for_good(ID, &path("a"))),
            "folder.entry-not-found"
        );
        assert_eq!(
            code(store.remove_for_good(ID, &path(""))),
            "folder.path-invalid"
        );
        store.empty_removed(ID).expect("emptied");
        let removed = place.with_file_name("trash");
        assert_eq!(fs::read_dir(removed).expect("a directory").count(), 0);
        assert_eq!(
            code(store.make_directory(ID, &path("two%0Alines"))),
            "folder.new-name-invalid"
        );
    }

    #[test]
    fn only_ordinary_files_are_read() {
        let (_data, store, place) = opened();
        fs::create_dir(place.join("d")).expect("made");
        fs::write(place.join("png"), b"\x89PNG\r\n\x1a\nrest").expect("written");
        fs::write(place.join("text"), "text").expect("written");
        symlink("text", place.join("link")).expect("a link");
        let pipe = place.join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        let opened = store.file(ID, &path("png")).expect("a file");
        assert_eq!((opened.size, opened.image), (12, Some("image/png")));
        let opened = store.file(ID, &path("text")).expect("a file");
        assert_eq!(opened.image, None);
        let before = opened.tag;
        fs::write(place.join("text"), "longer").expect("written");
        assert_ne!(store.file(ID, &path("text")).expect("a file").tag, before);
        for (name, expected) in [
            ("d", "folder.entry-not-file"),
            ("", "folder.entry-not-file"),
            ("link", "folder.entry-link"),
            ("none", "folder.entry-not-found"),
            ("pipe", "folder.entry-not-file"),
        ] {
            assert_eq!(code(store.file(ID, &path(name))), expected, "{name}");
        }
    }
}
