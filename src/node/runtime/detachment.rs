//! Takes folders out of a running container: in its mount namespace, at the places that the kernel names. Goes by no path of the
//! launch, which a session may have moved, and through no link. Never closes what a process has open, and never looks into what
//! is mounted: a file server may be away.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use rustix::fs::{CWD, Mode, OFlags, open, openat};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{chdir, fchdir};

/// How often it is looked whether all is gone. Higher: a session that moves directories all the time costs more. Lower: one that
/// moved a directory at the wrong moment keeps its folder until the next look.
const ROUNDS: usize = 8;
/// What is read of a list of mounts. Higher: a session with very many costs more memory. Lower: a folder behind them is not found.
const MAX_TABLE: u64 = 4 << 20;

/// Where something of a folder is mounted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct MountedPlace {
    /// The kernel's number of the mount.
    number: u64,
    at: Vec<u8>,
}

/// Takes everything out of a mount namespace that is mounted of a directory of that name, now for all that look there: unmounts
/// it, or covers it where the kernel keeps it. Enters the namespace with the thread that calls: it does nothing else behind this.
///
/// Errors: `ResourceBusy` where some of it is still there.
pub(super) fn detach(namespace: &File, directory: &str) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Opened before: inside, the session says what /proc is. And by this thread, whose root no process of the session changes.
    let own = open("/proc/thread-self", flags, Mode::empty())?;
    // Who shares its root directory with other threads may enter no mount namespace.
    unshare(CloneFlags::CLONE_FS)?;
    setns(namespace.as_fd(), CloneFlags::CLONE_NEWNS)?;
    let mut kept = BTreeSet::new();
    for _ in 0..ROUNDS {
        let places = places(own.as_fd(), directory)?;
        if places.is_empty() {
            return Ok(());
        }
        // The newest first: what lies on another goes before it.
        for place in places.into_iter().rev() {
            let taken = match kept.contains(&place) {
                true => cover(&place.at),
                false => take(&place.at),
            };
            match taken {
                Ok(()) => {}
                // It moved meanwhile, or it came into the session with what it lies in and goes only with that.
                Err(Errno::INVAL) => {
                    kept.insert(place);
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Where something of a directory of that name is mounted and can be reached, the oldest first. `own`: the directory in /proc of
/// a thread in the namespace.
fn places(own: BorrowedFd<'_>, directory: &str) -> io::Result<Vec<MountedPlace>> {
    let table = openat(
        own,
        "mountinfo",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut text = Vec::new();
    File::from(table).take(MAX_TABLE).read_to_end(&mut text)?;
    Ok(named(&text, directory))
}

/// The same from the text. O(its length × log of its lines).
fn named(table: &[u8], directory: &str) -> Vec<MountedPlace> {
    let lines = || table.split(|byte| *byte == b'\n').filter_map(MountLine::of);
    let on_others: BTreeSet<(u64, &[u8])> = lines().map(|line| (line.on, line.at)).collect();
    let mut all = Vec::new();
    for line in lines() {
        let mut parts = line.root.split(|byte| *byte == b'/');
        let is_of_it = parts.any(|part| part == directory.as_bytes());
        if is_of_it && !on_others.contains(&(line.number, line.at)) {
            all.push(MountedPlace {
                number: line.number,
                at: plain(line.at),
            });
        }
    }
    all
}

/// What a line of the kernel's list says.
struct MountLine<'a> {
    number: u64,
    /// The mount that it lies on.
    on: u64,
    /// What of its file system is mounted.
    root: &'a [u8],
    at: &'a [u8],
}

impl<'a> MountLine<'a> {
    fn of(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let mut number =
            || -> Option<u64> { std::str::from_utf8(fields.next()?).ok()?.parse().ok() };
        let (number, on) = (number()?, number()?);
        // The third is the device.
        let mut rest = fields.skip(1);
        Some(Self {
            number,
            on,
            root: rest.next()?,
            at: rest.next()?,
        })
    }
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

fn take(place: &[u8]) -> rustix::io::Result<()> {
    let name = enter_above(place)?;
    unmount(name, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
}

/// Mounts nothing but an empty directory over a place.
fn cover(place: &[u8]) -> rustix::io::Result<()> {
    let name = enter_above(place)?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let options = Some("mode=0555,size=4k,nr_inodes=2");
    let covered = mount(Some("none"), name, Some("tmpfs"), flags, options);
    covered.map_err(|error| Errno::from_raw_os_error(error as i32))
}

/// Goes to the directory above a place, through no link, and gives the place's name there: a path may be longer than the kernel
/// takes at once.
fn enter_above(place: &[u8]) -> rustix::io::Result<&[u8]> {
    let mut parts = place.split(|byte| *byte == b'/');
    let name = parts.next_back().filter(|name| !name.is_empty());
    let name = name.ok_or(Errno::NOENT)?;
    chdir("/")?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for part in parts.filter(|part| !part.is_empty()) {
        fchdir(openat(CWD, part, flags, Mode::empty())?)?;
    }
    Ok(name)
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
            25\n\
            x 20 8:1 /0a-ab/data /none rw - ext4 /dev/loop0 rw\n";
        let found = named(table, "0a-ab");
        let found: Vec<(u64, &[u8])> = found
            .iter()
            .map(|place| (place.number, place.at.as_slice()))
            .collect();
        assert_eq!(
            found,
            [(21, &b"/folders/data"[..]), (23, &b"/my place"[..])]
        );
        assert!(named(b"", "0a-ab").is_empty());
    }

    #[test]
    fn a_place_that_is_covered_is_none_any_more() {
        let table = b"30 20 8:1 /0a-ab/data /my\\040home/data rw - ext4 /dev/loop0 rw\n\
            31 30 8:1 /1b-cd/data /my\\040home/data/deep rw - ext4 /dev/loop0 rw\n";
        assert_eq!(
            named(table, "0a-ab").len(),
            1,
            "what lies in it covers a part"
        );
        let mut covered = table.to_vec();
        covered.extend(b"32 30 0:40 / /my\\040home/data ro - tmpfs none ro\n");
        assert!(named(&covered, "0a-ab").is_empty());
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
