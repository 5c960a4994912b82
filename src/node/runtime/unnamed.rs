//! What the processes of a session keep of a disk by files that have no name any more and are open in some table
//! of descriptors. A walk of the session's tree finds none of them, and space that was reserved without being
//! written is in no count of bytes either. Only looks, and believes the kernel alone. Never reads a list of
//! mappings: a process may hold the lock of its own for as long as it likes, and the reader waits with it.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Statx, StatxFlags};

/// Descriptors and threads of one session that are looked at. More: a session that opens as many as it
/// may keeps the thread busy for longer than a second. Fewer: more of them are called uncounted.
pub(super) const MAX_LOOKS: u64 = 200_000;

/// Bytes of nameless files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unnamed {
    /// Of the blocks that are given to them, each file once.
    pub bytes: u64,
    /// False where there may be more: too many to be looked at, or on their way through a socket.
    pub whole: bool,
}

/// Measures the nameless files of `processes` on the disk of `disk`, looking at no more than `most` descriptors
/// and threads. A process that ends meanwhile has none. Costs one or two microseconds each. Errors:
/// where the disk itself cannot be looked at.
pub(super) fn measure(processes: &[i32], disk: &Path, most: u64) -> io::Result<Unnamed> {
    let mut look = UnnamedScan {
        disk: Disk::of(disk)?,
        seen: BTreeSet::new(),
        left: most,
        found: Unnamed {
            bytes: 0,
            whole: true,
        },
    };
    for process in processes {
        if !look.another() {
            break;
        }
        look.at_process(*process);
    }
    Ok(look.found)
}

/// What tells one disk from another through every mount of it: an overlay tells of the disk below it.
#[derive(PartialEq, Eq)]
struct Disk {
    blocks: u64,
    block_size: u64,
}

impl Disk {
    fn of(path: &Path) -> io::Result<Self> {
        let found = rustix::fs::statvfs(path)?;
        Ok(Self {
            blocks: found.f_blocks,
            block_size: found.f_frsize,
        })
    }
}

struct UnnamedScan {
    disk: Disk,
    /// Device and inode of what was counted.
    seen: BTreeSet<(u32, u32, u64)>,
    left: u64,
    found: Unnamed,
}

impl UnnamedScan {
    /// False once as much was looked at as is allowed.
    fn another(&mut self) -> bool {
        let left = self.left.checked_sub(1);
        self.found.whole &= left.is_some();
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    fn at_process(&mut self, process: i32) {
        self.at_table(&format!("/proc/{process}"));
        for thread in numbers(&format!("/proc/{process}/task")) {
            if !self.another() {
                return;
            }
            if thread != process && !shares_table(process, thread) {
                self.at_table(&format!("/proc/{process}/task/{thread}"));
            }
        }
    }

    /// Looks at each open file of one table of descriptors.
    fn at_table(&mut self, of: &str) {
        let place = format!("{of}/fd");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(folder) = rustix::fs::openat(CWD, &place, flags, Mode::empty()) else {
            return;
        };
        let Ok(names) = Dir::read_from(&folder) else {
            return;
        };
        for entry in names.flatten() {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if !self.another() {
                return;
            }
            let Ok(stat) = stat(&folder, name) else {
                continue;
            };
            let name = name.to_string_lossy();
            match kind(&stat) {
                FileType::RegularFile => self.count(&stat, &format!("{place}/{name}")),
                FileType::Socket if carries_files(&format!("{of}/fdinfo/{name}")) => {
                    self.found.whole = false;
                }
                _ => {}
            }
        }
    }

    /// Counts a file without a name that lies on the disk.
    fn count(&mut self, stat: &Statx, path: &str) {
        let which = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        let nameless = stat.stx_nlink == 0 && stat.stx_blocks > 0;
        if nameless
            && !self.seen.contains(&which)
            && Disk::of(Path::new(path)).is_ok_and(|disk| disk == self.disk)
        {
            self.seen.insert(which);
            let bytes = stat.stx_blocks.saturating_mul(512);
            self.found.bytes = self.found.bytes.saturating_add(bytes);
        }
    }
}

/// What the kernel knows of an open file without asking any other machine.
fn stat<P: rustix::path::Arg>(
    folder: impl std::os::fd::AsFd,
    path: P,
) -> Result<Statx, rustix::io::Errno> {
    let flags = AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(folder, path, flags, StatxFlags::BASIC_STATS)
}

fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// The entries of a directory that are numbers.
fn numbers(folder: &str) -> Vec<i32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    named.collect()
}

/// Whether two threads have one table of descriptors; false where the kernel does not say.
fn shares_table(one: i32, other: i32) -> bool {
    const FILES: i32 = 2;
    // SAFETY: compares two processes by number; no memory is involved.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, FILES, 0, 0) == 0 }
}

/// Whether files are on their way through a socket, where nothing can look at them.
fn carries_files(about: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(about) else {
        return false;
    };
    let carried = text.lines().find_map(|line| line.strip_prefix("scm_fds:"));
    carried.is_some_and(|count| count.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    const BYTES: u64 = 1 << 20;

    /// A file of so many bytes that has no name.
    fn nameless(folder: &Path) -> File {
        let mut file = tempfile::tempfile_in(folder).expect("made");
        file.write_all(&vec![7; BYTES as usize]).expect("written");
        file.sync_all().expect("on the disk");
        file
    }

    fn own(folder: &Path, most: u64) -> Unnamed {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        measure(&[pid], folder, most).expect("looked at")
    }

    /// Other tests of this process have files of their own: what is looked for is a difference of mebibytes.
    fn grown(folder: &Path, before: Unnamed) -> u64 {
        let now = own(folder, MAX_LOOKS).bytes + BYTES / 2;
        now.saturating_sub(before.bytes) / BYTES
    }

    #[test]
    fn a_file_without_a_name_is_counted_once_wherever_it_is_open() {
        let folder = tempfile::tempdir().expect("a directory");
        let folder = folder.path();
        let before = own(folder, MAX_LOOKS);
        let file = nameless(folder);
        let _twice = file.try_clone().expect("again");
        let mut named = File::create(folder.join("named")).expect("made");
        named.write_all(&vec![7; BYTES as usize]).expect("written");
        assert_eq!(grown(folder, before), 1, "the one without a name");
        // In the table of one thread alone.
        let (ready, go_on) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_FILES).expect("its own table");
                let _hidden = nameless(folder);
                ready.wait();
                go_on.wait();
            });
            ready.wait();
            let found = grown(folder, before);
            go_on.wait();
            assert_eq!(found, 2);
        });
        assert!(!own(folder, 3).whole, "it has more than three descriptors");
    }

    #[test]
    fn files_on_their_way_through_a_socket_are_called_uncounted() {
        use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
        let (near, far) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let file = File::open("/dev/null").expect("there");
        let place = format!("/proc/self/fdinfo/{}", far.as_raw_fd());
        assert!(!carries_files(&place));
        let sent = [file.as_raw_fd()];
        let with = [ControlMessage::ScmRights(&sent)];
        let text = [io::IoSlice::new(b"x")];
        sendmsg::<()>(near.as_raw_fd(), &text, &with, MsgFlags::empty(), None).expect("sent");
        let told = std::fs::read_to_string(&place).expect("readable");
        // Kernels before 5.10 do not say.
        assert_eq!(carries_files(&place), told.contains("scm_fds"));
    }
}
