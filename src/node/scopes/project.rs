//! Scopes by the project quota of a file system, that of the disk where it is switched on or the pool's own: everything below
//! the folders of a scope carries one number, and the kernel counts what has it. Costs nothing while a session writes, and
//! mounts nothing.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use rules::units::Bytes;
use store::quota::ScopePlace;

/// The first number that is given: below it are those that a machine's administrator gives.
pub(super) const FIRST: u32 = 1_000_000_000;

/// Requests of `linux/fs.h` and `linux/quota.h`.
const GET_ATTRIBUTES: libc::Ioctl = 0x801c_581fu32 as libc::Ioctl;
const SET_ATTRIBUTES: libc::Ioctl = 0x401c_5820u32 as libc::Ioctl;
const GET_QUOTA: u32 = 0x80_0007;
const SET_QUOTA: u32 = 0x80_0008;
/// The kind of quota that counts by project.
const PROJECT: u32 = 2;
/// What is made inside has the same number.
const INHERITED: u32 = 0x200;
/// The limits of blocks in an answer, or a request, are meant.
const BLOCK_LIMITS: u32 = 1;
/// The limits of files in a request are meant.
const FILE_LIMITS: u32 = 4;
/// Bytes of a limit in the pool for each file that there may be. Higher: trees of small files meet their end before the limit.
/// Lower: tables of files, which count on no limit, take more of the pool.
const BYTES_FOR_A_FILE: u64 = 16 * 1024;
/// Bytes of one block of a limit.
const QUOTA_BLOCK: u64 = 1024;

/// The kernel's `struct fsxattr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FileAttributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    reserved: [u32; 2],
}

/// The kernel's `struct if_dqblk`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct QuotaState {
    max_blocks: u64,
    soft_blocks: u64,
    bytes: u64,
    max_files: u64,
    soft_files: u64,
    files: u64,
    block_time: u64,
    file_time: u64,
    valid: u32,
}

const _: () = assert!(size_of::<FileAttributes>() == 28);
const _: () = assert!(size_of::<QuotaState>() == 72);

/// Whether the file system that holds a directory counts by project, as its mount says. Costs one read.
pub(super) fn is_on(directory: &Path) -> bool {
    let place = directory.canonicalize();
    let mounts = fs::read_to_string("/proc/self/mountinfo");
    match (place, mounts) {
        (Ok(place), Ok(mounts)) => counts_by_project(&mounts, &place),
        _ => false,
    }
}

fn counts_by_project(mounts: &str, place: &Path) -> bool {
    let mut holds: Option<(usize, bool)> = None;
    for line in mounts.lines() {
        let Some((mount, of)) = line.split_once(" - ") else {
            continue;
        };
        let (at, mut of) = (mount.split(' ').nth(4), of.split(' '));
        let (kind, options) = (of.next(), of.nth(1));
        let (Some(at), Some(kind), Some(options)) = (at, kind, options) else {
            continue;
        };
        let length = at.len();
        if !place.starts_with(at) || holds.is_some_and(|(longest, _)| longest > length) {
            continue;
        }
        let mut words = options.split(',');
        let is_on = words.any(|word| word == "prjquota" || word == "pquota");
        holds = Some((length, is_on && ["ext4", "xfs"].contains(&kind)));
    }
    holds.is_some_and(|(_, is_on)| is_on)
}

/// Gives the folders of a scope, in which nothing lies yet, their number and their limit.
pub(super) fn make(scope: &ScopePlace, project: u32, limit: Bytes) -> io::Result<()> {
    scope.make()?;
    let files = File::open(scope.files())?;
    mark(&files, project)?;
    hold(&files, project, limit)?;
    // Last: a scope with a number has all of this.
    scope.keep_project(project)
}

/// The number of a directory; 0 where it was given none.
pub(super) fn mark_of(directory: &File) -> io::Result<u32> {
    attributes(directory).map(|found| found.project)
}

/// Gives an empty directory, and what is made in it from now on, a number.
pub(super) fn mark(directory: &File, project: u32) -> io::Result<()> {
    let mut attributes = attributes(directory)?;
    attributes.project = project;
    attributes.flags |= INHERITED;
    // SAFETY: as below; the kernel only reads it.
    let set = unsafe { libc::ioctl(directory.as_raw_fd(), SET_ATTRIBUTES, &raw const attributes) };
    done(i64::from(set))
}

fn attributes(directory: &File) -> io::Result<FileAttributes> {
    let mut attributes = FileAttributes::default();
    // SAFETY: the kernel writes into a structure of its own layout, whose size is checked above.
    let read = unsafe { libc::ioctl(directory.as_raw_fd(), GET_ATTRIBUTES, &raw mut attributes) };
    done(i64::from(read)).map(|()| attributes)
}

/// Holds what has that number on a file system to a limit; 0 is none. `within`: any directory of it.
pub(super) fn hold(within: &File, project: u32, limit: Bytes) -> io::Result<()> {
    let mut state = QuotaState {
        max_blocks: limit.0 / QUOTA_BLOCK,
        valid: BLOCK_LIMITS,
        ..QuotaState::default()
    };
    quota(within, SET_QUOTA, project, &mut state)
}

/// The same in the pool, to so many files, too.
pub(super) fn hold_in_pool(within: &File, project: u32, limit: Bytes) -> io::Result<()> {
    let mut state = QuotaState {
        max_blocks: limit.0 / QUOTA_BLOCK,
        max_files: max_files(limit),
        valid: BLOCK_LIMITS | FILE_LIMITS,
        ..QuotaState::default()
    };
    quota(within, SET_QUOTA, project, &mut state)
}

/// Files that there may be within a limit in the pool.
pub(super) fn max_files(limit: Bytes) -> u64 {
    limit.0 / BYTES_FOR_A_FILE
}

/// Used bytes, and files.
pub(super) fn taken(within: &File, project: u32) -> io::Result<(Bytes, u64)> {
    let mut state = QuotaState::default();
    match quota(within, GET_QUOTA, project, &mut state) {
        // Nothing has that number, and it has no limit.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((Bytes::ZERO, 0)),
        told => told.map(|()| (Bytes(state.bytes), state.files)),
    }
}

fn quota(within: &File, request: u32, project: u32, state: &mut QuotaState) -> io::Result<()> {
    let command = (request << 8) | PROJECT;
    // SAFETY: the structure has the kernel's layout, whose size is checked above, and lives through the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_quotactl_fd,
            within.as_raw_fd(),
            command,
            project,
            &raw mut *state,
        )
    };
    done(answer)
}

fn done(answer: i64) -> io::Result<()> {
    match answer {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_below_a_directory_says_whether_it_counts_by_project() {
        let mounts = "\
            20 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n\
            21 20 8:2 / /var/lib/fardel rw - xfs /dev/sda2 rw,attr2,prjquota\n\
            22 20 8:3 / /srv rw - ext4 /dev/sda3 rw,prjquota\n\
            23 22 8:4 / /srv/plain rw - ext4 /dev/sda4 rw,noquota\n\
            24 20 0:30 / /tmp rw - tmpfs tmpfs rw,prjquota\n\nrubbish\n";
        for (place, expected) in [
            ("/", false),
            ("/home", false),
            ("/var/lib/fardel", true),
            ("/var/lib/fardel/folders", true),
            ("/var/lib/fardel2", false),
            ("/srv/data", true),
            ("/srv/plain/data", false),
            ("/tmp", false),
        ] {
            let is_on = counts_by_project(mounts, Path::new(place));
            assert_eq!(is_on, expected, "{place}");
        }
    }
}
