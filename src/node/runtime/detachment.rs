//! Takes folders out of a running container: unmounts them in its mount namespace, at the places that the kernel names. Goes by
//! no path of the launch, which a session may have moved. Never closes what a process has open.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sched::{CloneFlags, setns, unshare};

/// How often it is looked whether all is gone. Higher: a session that moves directories all the time holds up the others of the
/// machine. Lower: one that moved a directory at the wrong moment keeps its folder until the next look.
pub(super) const ROUNDS: usize = 8;
/// What is read of a list of mounts. Higher: a session with very many costs more memory. Lower: a folder behind them is not found.
const MAX_TABLE: u64 = 4 << 20;

/// Where a list of mounts, as the kernel gives it, says that something in a directory of that name is mounted: the newest first.
/// O(its length).
pub(super) fn places(table: File, directory: &str) -> io::Result<Vec<CString>> {
    let mut text = Vec::new();
    table.take(MAX_TABLE).read_to_end(&mut text)?;
    let mut all = named(&text, directory)?;
    all.reverse();
    Ok(all)
}

/// The same from the text, the oldest first.
fn named(table: &[u8], directory: &str) -> io::Result<Vec<CString>> {
    let mut all = Vec::new();
    for line in table.split(|byte| *byte == b'\n') {
        // Number, its parent, device, what of the file system, where.
        let mut fields = line.split(|byte| *byte == b' ').skip(3);
        let (Some(root), Some(place)) = (fields.next(), fields.next()) else {
            continue;
        };
        let mut parts = root.split(|byte| *byte == b'/');
        if parts.any(|part| part == directory.as_bytes()) {
            all.push(CString::new(plain(place))?);
        }
    }
    Ok(all)
}

/// A path as it is, where the kernel wrote blanks and backslashes as three digits of eight.
fn plain(written: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(written.len());
    let mut rest = written;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        path.push(code.unwrap_or(*first));
        rest = match code {
            Some(_) => after.get(3..).unwrap_or_default(),
            None => after,
        };
    }
    path
}

/// Unmounts places of a mount namespace, now for all that look there. One where nothing is mounted any more is passed over. Costs
/// a thread, which ends inside: no other of this process goes there.
pub(super) fn unmount(namespace: &File, places: &[CString]) -> io::Result<()> {
    std::thread::scope(|scope| {
        let enter = || -> io::Result<()> {
            // Who shares its root directory with other threads may enter no mount namespace.
            unshare(CloneFlags::CLONE_FS)?;
            setns(namespace.as_fd(), CloneFlags::CLONE_NEWNS)?;
            for place in places {
                let flags = MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW;
                match umount2(place.as_c_str(), flags) {
                    Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        };
        let thread = std::thread::Builder::new()
            .name("detach".to_owned())
            .spawn_scoped(scope, enter)?;
        let ended = thread.join();
        ended.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_one_folder_wherever_it_was_moved() {
        let table = b"20 1 0:30 / / rw - overlay overlay rw\n\
            21 20 8:1 /fardel/folders/ab/0a-ab/data /folders/data rw - ext4 /dev/sda1 rw\n\
            22 20 8:1 /fardel/folders/ab/0a-abc/data /folders/other rw - ext4 /dev/sda1 rw\n\
            23 20 8:1 /0a-ab/data/deep /my\\040place rw - ext4 /dev/loop0 rw\n\
            24 20 0:31 / /folders/0a-ab rw - tmpfs tmpfs rw\n\
            25\n";
        let found = named(table, "0a-ab").expect("paths");
        let found: Vec<&[u8]> = found.iter().map(|place| place.as_bytes()).collect();
        assert_eq!(found, [&b"/folders/data"[..], &b"/my place"[..]]);
        assert!(named(b"", "0a-ab").expect("none").is_empty());
    }

    #[test]
    fn what_is_no_code_stays_as_it_is_written() {
        for (written, is) in [
            ("/a", "/a"),
            ("/a\\134b", "/a\\b"),
            ("/a\\01", "/a\\01"),
            ("/a\\999", "/a\\999"),
            ("\\011", "\t"),
        ] {
            assert_eq!(plain(written.as_bytes()), is.as_bytes(), "{written}");
        }
    }
}
