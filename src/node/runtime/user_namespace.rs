//! A user namespace with a session's id range, and clocks that begin at zero, made by a process that
//! ends at once. Whose namespace it is decides whose allowances the kernel charges: see
//! [`UserNamespace`].

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use super::order::IdRange;

/// A namespace that could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum NamespaceError {
    #[error("could not {what}")]
    Step {
        what: &'static str,
        source: io::Error,
    },
    #[error(
        "the id range {base}+{size} is not usable: it needs at least 65536 ids and may not include the machine's own first 65536"
    )]
    BadRange { base: u32, size: u32 },
}

fn step(what: &'static str) -> impl FnOnce(io::Error) -> NamespaceError {
    move |source| NamespaceError::Step { what, source }
}

/// A user namespace with a session's range, and clocks that begin at zero.
///
/// It belongs to the session's own first id, not to root. The kernel counts a namespace's inotify
/// instances and watches, message queues, pending signals and locked memory against the user that made it
/// too: made by root, all sessions and the machine's root share one allowance.
#[derive(Debug)]
pub(super) struct UserNamespace {
    handle: OwnedFd,
    /// Nothing where the kernel cannot give a container clocks of its own.
    clocks: Option<OwnedFd>,
}

/// Bytes of POSIX message queues that one session may have: what Linux gives every user. At the edge
/// `mq_open` answers EMFILE. Higher: the kernel's memory, though it is charged to the session. Lower: programs
/// that count on ten queues of the default size.
const MESSAGE_QUEUE_BYTES: u64 = 819_200;

const MAKE: &str = "make a user namespace";
const CLOCKS: &str = "give the session clocks of its own";

/// Keeps capabilities while the user changes (`SECBIT_NO_SETUID_FIXUP`).
const KEEP_CAPABILITIES: libc::c_ulong = 1 << 2;

impl UserNamespace {
    /// Makes a namespace with this range, whose processes lock `memlock` bytes together at most; None: as many as this one
    /// may. Costs a fork and two words with it.
    pub(super) fn make(ids: IdRange, memlock: Option<u64>) -> Result<Self, NamespaceError> {
        if ids.base < 65_536 || ids.size < 65_536 || ids.base.checked_add(ids.size).is_none() {
            return Err(NamespaceError::BadRange {
                base: ids.base,
                size: ids.size,
            });
        }
        let fault = |source| step(MAKE)(source);
        let (near, far) = match UnixStream::pair() {
            Ok(pair) => pair,
            Err(error) => return Err(fault(error)),
        };
        let offsets = clock_offsets();
        // SAFETY: without a new stack and shared memory this is a fork; the child makes system calls only.
        let holder = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 };
        if holder == 0 {
            hold(
                ids.base,
                memlock,
                &offsets,
                (near.as_raw_fd(), far.as_raw_fd()),
            );
        }
        if holder < 0 {
            return Err(fault(io::Error::last_os_error()));
        }
        drop(far);
        // What is open stays when the holder ends.
        let made = Self::lead(holder, near, ids);
        end(holder);
        made
    }

    /// Leads the holder through its steps.
    fn lead(holder: i32, mut socket: UnixStream, ids: IdRange) -> Result<Self, NamespaceError> {
        let heard = |socket: &mut UnixStream| {
            let mut answer = [0; 4];
            socket.read_exact(&mut answer)?;
            match i32::from_ne_bytes(answer) {
                0 => Ok(()),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        };
        let of_holder = format!("/proc/{holder}");
        let (users, groups) = ids.maps();
        let handle = heard(&mut socket)
            .and_then(|()| fs::write(format!("{of_holder}/uid_map"), &users))
            .and_then(|()| fs::write(format!("{of_holder}/gid_map"), &groups))
            .and_then(|()| File::open(format!("{of_holder}/ns/user")))
            .map_err(step(MAKE))?;
        let mut clocks = None;
        if time_namespaces() {
            // By the session's own root: the service may not set any clock.
            let made = socket
                .write_all(b"c")
                .and_then(|()| heard(&mut socket))
                .and_then(|()| File::open(format!("{of_holder}/ns/time_for_children")))
                .map_err(step(CLOCKS))?;
            clocks = Some(made.into());
        }
        Ok(Self {
            handle: handle.into(),
            clocks,
        })
    }

    /// The namespace of clocks that begin at zero.
    pub(super) fn clocks(&self) -> Option<BorrowedFd<'_>> {
        self.clocks.as_ref().map(AsFd::as_fd)
    }
}

/// How a session's clocks differ from the machine's, as the kernel reads it.
fn clock_offsets() -> String {
    let mut text = String::new();
    for (name, clock) in [
        ("monotonic", rustix::time::ClockId::Monotonic),
        ("boottime", rustix::time::ClockId::Boottime),
    ] {
        let now = rustix::time::clock_gettime(clock);
        text.push_str(&format!("{name} -{} 0\n", now.tv_sec));
    }
    text
}

/// What the holder of a user namespace does; never returns. Makes system calls only: in a process of
/// several threads nothing else may follow a fork.
fn hold(owner: u32, memlock: Option<u64>, offsets: &str, (near, far): (RawFd, RawFd)) -> ! {
    // SAFETY: plain system calls on this process alone, with arguments that outlive them. Ends with the
    // process that made it, by its closed socket or by a signal, or by being killed.
    unsafe {
        libc::syscall(libc::SYS_close, near);
        let queues = libc::rlimit {
            rlim_cur: MESSAGE_QUEUE_BYTES,
            rlim_max: MESSAGE_QUEUE_BYTES,
        };
        // The namespace inherits both as bounds; processes are counted by the control group.
        let processes = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        libc::syscall(
            libc::SYS_setrlimit,
            libc::RLIMIT_NPROC,
            &raw const processes,
        );
        if let Some(bytes) = memlock {
            let locked = libc::rlimit {
                rlim_cur: bytes,
                rlim_max: bytes,
            };
            // The control group counts what is locked; where it cannot be raised, the usual bound stays.
            libc::syscall(libc::SYS_setrlimit, libc::RLIMIT_MEMLOCK, &raw const locked);
        }
        let owner = libc::c_ulong::from(owner);
        let made = libc::syscall(
            libc::SYS_setrlimit,
            libc::RLIMIT_MSGQUEUE,
            &raw const queues,
        ) == 0
            && libc::syscall(
                libc::SYS_prctl,
                libc::PR_SET_SECUREBITS,
                KEEP_CAPABILITIES,
                0,
                0,
                0,
            ) == 0
            && libc::syscall(libc::SYS_setresgid, owner, owner, owner) == 0
            && libc::syscall(libc::SYS_setresuid, owner, owner, owner) == 0
            && libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER) == 0;
        tell(far, made);
        // Cleared by the change of user, and its own files in /proc are root's until then.
        libc::syscall(
            libc::SYS_prctl,
            libc::PR_SET_PDEATHSIG,
            libc::SIGKILL,
            0,
            0,
            0,
        );
        libc::syscall(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
        let mut word = 0u8;
        while libc::syscall(libc::SYS_read, far, &raw mut word, 1) == 1 {
            let done = libc::syscall(libc::SYS_unshare, libc::CLONE_NEWTIME) == 0 && {
                let file = libc::syscall(
                    libc::SYS_openat,
                    libc::AT_FDCWD,
                    c"/proc/self/timens_offsets".as_ptr(),
                    libc::O_WRONLY | libc::O_CLOEXEC,
                    0,
                );
                file >= 0
                    && libc::syscall(libc::SYS_write, file, offsets.as_ptr(), offsets.len()) >= 0
            };
            tell(far, done);
        }
        libc::syscall(libc::SYS_exit_group, 0);
    }
    unreachable!("the process has ended")
}

/// Says how a step ended: zero, or the number of the error just made.
///
/// # Safety
/// `to` is an open descriptor of this process.
unsafe fn tell(to: RawFd, done: bool) {
    // SAFETY: reads the calling thread's own error number; the bytes outlive the call.
    unsafe {
        let errno = if done { 0 } else { *libc::__errno_location() };
        libc::syscall(libc::SYS_write, to, &raw const errno, size_of_val(&errno));
    }
}

impl AsFd for UserNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

fn end(holder: i32) {
    // SAFETY: exactly the child made above, not yet waited for, so the number is still its.
    unsafe {
        libc::kill(holder, libc::SIGKILL);
        libc::waitpid(holder, std::ptr::null_mut(), 0);
    }
}

/// Whether a container can have clocks of its own.
pub(super) fn time_namespaces() -> bool {
    std::path::Path::new("/proc/self/ns/time").exists()
}
