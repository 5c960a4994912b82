//! What is mounted in this process's namespace, and letting go of it. Looks at names only; never
//! touches what lies on a mount.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount of this process's namespace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MountPoint {
    pub at: PathBuf,
    /// `ext4`, `cgroup2`, …
    pub kind: String,
}

/// What is mounted here, in the order of mounting.
pub(super) fn mount_points() -> io::Result<Vec<MountPoint>> {
    Ok(parse_mounts(&fs::read("/proc/self/mountinfo")?))
}

fn parse_mounts(text: &[u8]) -> Vec<MountPoint> {
    let mut found = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let kind = words.iter().position(|word| *word == b"-");
        if let (Some(at), Some(kind)) = (words.get(4), kind.and_then(|at| words.get(at + 1))) {
            found.push(MountPoint {
                at: PathBuf::from(OsString::from_vec(unescaped(at))),
                kind: String::from_utf8_lossy(kind).into_owned(),
            });
        }
    }
    found
}

/// A path as the kernel's lists write it: blanks and backslashes as three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        match after.first_chunk::<3>() {
            Some(digits) if *first == b'\\' => {
                let digit = |at: usize| digits[at].wrapping_sub(b'0') & 7;
                plain.push(digit(0).wrapping_mul(64) | (digit(1) * 8) | digit(2));
                rest = &after[3..];
            }
            _ => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

/// Takes a mount and what is on it out of this namespace; says whether it went. What is gone already is no
/// fault.
pub(super) fn let_go(at: &Path) -> bool {
    let flags = rustix::mount::UnmountFlags::DETACH | rustix::mount::UnmountFlags::NOFOLLOW;
    let gone = rustix::mount::unmount(at, flags);
    if let Err(error) = &gone {
        tracing::debug!(path = %at.display(), %error, "a mount stays with a session");
    }
    gone.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_whatever_its_name() {
        let text = b"36 35 98:0 / / rw,noatime shared:1 - ext4 /dev/root rw\n\
            40 36 0:30 / /media/a\\040stick\\134x rw master:1 - vfat /dev/sdb1 rw\n\
            41 36 0:31 /x /sys/fs/cgroup rw - cgroup2 none rw\n\nrubbish\n";
        let found: Vec<(String, String)> = parse_mounts(text)
            .into_iter()
            .map(|each| (each.at.display().to_string(), each.kind))
            .collect();
        let expected = [
            ("/", "ext4"),
            ("/media/a stick\\x", "vfat"),
            ("/sys/fs/cgroup", "cgroup2"),
        ];
        assert_eq!(
            found,
            expected.map(|(at, kind)| (at.to_owned(), kind.to_owned()))
        );
    }
}
