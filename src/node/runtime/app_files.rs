//! What the files of a container say of its apps. They are found below its own root and no link leads to another one; what
//! stands in them is for others to judge.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};

/// Where they lie, and what their names end with: ours first, then those of services of images made for Backend.AI.
const FOLDERS: [(&str, &str); 2] = [
    ("etc/fardel/apps.d", ".toml"),
    ("etc/backend.ai/service-defs", ".json"),
];
/// Names that are looked at. More: a folder makes one look cost as much as it likes.
const MAX_NAMES: usize = 1_000;
/// Files that are read, and bytes of all of them.
const MAX_APP_FILES: usize = 32;
const MAX_APP_FILE_BYTES: u64 = 64 << 10;

/// The files by name, with their text. What is no file, no text or too long is left out.
pub(super) fn read(root: BorrowedFd<'_>) -> Vec<(String, String)> {
    let mut left = MAX_APP_FILE_BYTES;
    let mut all = Vec::new();
    for (folder, ending) in FOLDERS {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let Some(folder) = open(root, folder, flags, ResolveFlags::IN_ROOT) else {
            continue;
        };
        for name in names(&folder, ending).take(MAX_APP_FILES - all.len()) {
            if let Some(text) = text(folder.as_fd(), &name, left) {
                left -= text.len() as u64;
                all.push((name, text));
            }
        }
    }
    all
}

/// The names in a folder with that ending, sorted.
fn names(folder: &OwnedFd, ending: &str) -> impl Iterator<Item = String> + use<> {
    let known = Dir::read_from(folder).into_iter().flatten();
    let mut names: Vec<String> = known
        .take(MAX_NAMES)
        .filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned))
        .filter(|name| name.ends_with(ending))
        .collect();
    names.sort();
    names.into_iter()
}

fn text(folder: BorrowedFd<'_>, name: &str, left: u64) -> Option<String> {
    // A pipe without a writer is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = open(folder, name, flags, resolve)?;
    let stat = fstat(&file).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut text = String::new();
    let read = File::from(file).take(left + 1).read_to_string(&mut text);
    (read.ok()? as u64 <= left).then_some(text)
}

/// Opens below a directory, on its own file system alone: another one could keep us waiting.
fn open(
    below: BorrowedFd<'_>,
    path: &str,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Option<OwnedFd> {
    let resolve = resolve | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    openat2(below, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn seen(root: &std::path::Path) -> Vec<(String, usize)> {
        let opened = File::open(root).expect("opened");
        let files = read(opened.as_fd()).into_iter();
        files.map(|(name, text)| (name, text.len())).collect()
    }

    #[test]
    fn files_of_apps_are_read_below_the_root_and_nowhere_else() {
        let outside = tempfile::tempdir().expect("a directory");
        let root = outside.path().join("root");
        fs::create_dir_all(root.join("opt/apps")).expect("made");
        assert!(seen(&root).is_empty(), "no folder");
        fs::write(outside.path().join("secret"), "secret").expect("written");
        let folder = root.join("opt/apps");
        fs::write(folder.join("b.toml"), "bb").expect("written");
        fs::write(folder.join("a.toml"), "a").expect("written");
        fs::write(folder.join("c.txt"), "c").expect("written");
        fs::write(folder.join("d.toml"), [0xff]).expect("written");
        fs::create_dir(folder.join("e.toml")).expect("made");
        symlink("../../../secret", folder.join("f.toml")).expect("a link");
        symlink(outside.path().join("secret"), folder.join("g.toml")).expect("a link");
        symlink("a.toml", folder.join("h.toml")).expect("a link");
        // The folder may be a link, which leads below the root.
        fs::create_dir_all(root.join("etc/fardel")).expect("made");
        symlink("/opt/apps", root.join("etc/fardel/apps.d")).expect("a link");
        assert_eq!(seen(&root), [("a.toml".into(), 1), ("b.toml".into(), 2)]);
    }

    #[test]
    fn files_of_services_are_read_behind_ours() {
        let root = tempfile::tempdir().expect("a directory");
        for (folder, _) in FOLDERS {
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).expect("made");
            fs::write(folder.join("z.toml"), "ours").expect("written");
            fs::write(folder.join("a.json"), "{}").expect("written");
        }
        assert_eq!(
            seen(root.path()),
            [("z.toml".into(), 4), ("a.json".into(), 2)]
        );
    }

    #[test]
    fn so_much_is_read_of_the_files_of_apps() {
        let root = tempfile::tempdir().expect("a directory");
        let folder = root.path().join(FOLDERS[0].0);
        fs::create_dir_all(&folder).expect("made");
        for number in 0..MAX_APP_FILES + 3 {
            fs::write(folder.join(format!("{number:03}.toml")), "x").expect("written");
        }
        assert_eq!(seen(root.path()).len(), MAX_APP_FILES);
        let much = "x".repeat(64 << 10);
        fs::write(folder.join("000.toml"), &much[..much.len() - 2]).expect("written");
        fs::write(folder.join("001.toml"), "xxx").expect("written");
        let names: Vec<_> = seen(root.path()).into_iter().map(|seen| seen.0).collect();
        assert_eq!(names, ["000.toml", "002.toml", "003.toml"]);
    }
}
