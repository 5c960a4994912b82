//! Which programs a container has: looked for along its own path, below its own root. Only looks; runs nothing, and reads
//! no file.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};

/// Directories of a path that are looked in. More: a container makes one look cost as much as it likes.
const MAX_DIRECTORIES: usize = 32;
/// Programs that are looked for at once.
const MAX_PROGRAMS: usize = 64;

/// Those of `wanted` that are executable files in a directory of `path`, or by their own absolute path.
pub(super) fn found(root: BorrowedFd<'_>, path: &str, wanted: Vec<String>) -> Vec<String> {
    let directories = path
        .split(':')
        .filter(|directory| directory.starts_with('/'));
    let directories: Vec<&str> = directories.take(MAX_DIRECTORIES).collect();
    let has = |program: &String| match program.split_once('/') {
        None if program.is_empty() => false,
        None => directories
            .iter()
            .any(|directory| is_program(root, &format!("{directory}/{program}"))),
        Some(("", _)) => is_program(root, program),
        Some(_) => false,
    };
    wanted.into_iter().take(MAX_PROGRAMS).filter(has).collect()
}

/// Whether a path leads to an executable file, links followed below the root.
fn is_program(root: BorrowedFd<'_>, path: &str) -> bool {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let opened: rustix::io::Result<OwnedFd> = openat2(
        root,
        path.trim_start_matches('/'),
        flags,
        Mode::empty(),
        resolve,
    );
    let Ok(stat) = opened.and_then(fstat) else {
        return false;
    };
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_mode & 0o111 != 0
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn programs_are_found_below_the_root_and_nowhere_else() {
        let outside = tempfile::tempdir().expect("a directory");
        let root = outside.path().join("root");
        fs::create_dir_all(root.join("opt/bin")).expect("made");
        for (name, mode) in [
            ("root/opt/bin/run", 0o755),
            ("root/opt/bin/text", 0o644),
            ("out", 0o755),
        ] {
            let path = outside.path().join(name);
            fs::write(&path, "").expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        }
        symlink("/opt/bin/run", root.join("opt/bin/inside")).expect("a link");
        symlink("../../../out", root.join("opt/bin/up")).expect("a link");
        symlink(outside.path().join("out"), root.join("opt/bin/away")).expect("a link");
        let wanted = [
            "run",
            "text",
            "inside",
            "up",
            "away",
            "none",
            "",
            "../bin/run",
            "bin/run",
            "/opt/bin/run",
        ];
        let wanted = wanted.map(str::to_owned).to_vec();
        let opened = File::open(&root).expect("opened");
        let has = found(opened.as_fd(), "relative:/none:/opt/bin", wanted);
        assert_eq!(has, ["run", "inside", "/opt/bin/run"]);
    }
}
