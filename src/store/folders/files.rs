//! Single files and directories of a folder: opens one to be read, makes, moves and removes. What is removed is out of the
//! way at once, however large; `FolderStore::empty_removed` gives its room back.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rules::folder_path::FolderPath;
use rules::refusals;
use rules::units::Timestamp;
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use uuid::Uuid;

use super::beneath::{FolderTop, give, sync};
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
        tag: format!(
            "{:x}-{:x}-{:x}.{:x}-{:x}.{:x}",
            stat.st_ino,
            stat.st_size,
            stat.st_mtime,
            stat.st_mtime_nsec,
            stat.st_ctime,
            stat.st_ctime_nsec
        ),
        image: image(&begin[..read]),
        file,
    })
}

/// The sorts of images that no browser takes for anything else, by how they begin. What may hold script is not among them.
fn image(begin: &[u8]) -> Option<&'static str> {
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
    let made = top.directory(path)?;
    give(parent.as_fd(), made.as_fd(), true).map_err(fault(doing))?;
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

/// Takes a file, a directory with all below it, or a link away: one rename into `removed`.
pub(super) fn remove(
    top: &FolderTop,
    path: &FolderPath,
    removed: &Path,
) -> Result<(), FolderError> {
    let doing = "remove a file of a folder";
    let parent = top.directory(&path.parent())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let into = rustix::fs::openat(CWD, removed, flags, Mode::empty());
    let into = into.map_err(|error| fault(doing)(error.into()))?;
    let name = Uuid::now_v7().simple().to_string();
    match rustix::fs::renameat(&parent, path.name(), &into, name.as_str()) {
        // On a full disk there may be no room for one more name, and what is to go is what fills it.
        Err(Errno::NOSPC | Errno::DQUOT) => {
            let flags = rustix::fs::AtFlags::empty();
            rustix::fs::unlinkat(&parent, path.name(), flags).map_err(failed(doing, path))?;
        }
        taken => taken.map_err(failed(doing, path))?,
    }
    sync(parent.as_fd()).map_err(fault(doing))
}

/// Gives the room of everything back that was removed into a directory, and says of what stays why, in the log alone.
pub(super) fn empty(removed: &Path) -> io::Result<()> {
    let all = match fs::read_dir(removed) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        all => all?,
    };
    for entry in all.flatten() {
        let path = entry.path();
        match crate::trees::remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "a removed file stays on the disk");
            }
            _ => {}
        }
    }
    Ok(())
}
