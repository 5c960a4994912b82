//! Tries things of the kernel in a child process that is thrown away, so that nothing of the trial
//! stays: namespaces, mounts and the processes in them end with it.

use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

/// Runs `attempt` in a child; Err holds the error number it met.
///
/// The child calls nothing but system calls and allocation-free code of nix between fork and exit:
/// `doctor` has one thread when it forks, so that no lock can be held by another.
pub fn tried(attempt: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    // SAFETY: the child only makes system calls and leaves by `_exit`; it never returns into the
    // caller's frames and runs no destructors of the parent's values.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let code = match attempt() {
                Ok(()) => 0,
                Err(errno) => errno as i32,
            };
            // SAFETY: `_exit` ends the child without running handlers that belong to the parent.
            unsafe { nix::libc::_exit(code) }
        }
        ForkResult::Parent { child } => match waitpid(child, None)? {
            WaitStatus::Exited(_, 0) => Ok(()),
            WaitStatus::Exited(_, code) => Err(Errno::from_raw(code)),
            _ => Err(Errno::ECHILD),
        },
    }
}

/// Can a user namespace be made?
pub(super) fn user_namespace() -> Result<(), Errno> {
    tried(|| unshare(CloneFlags::CLONE_NEWUSER))
}

/// Can an overlay be mounted with its upper directory below `folder`? Makes and removes three
/// directories there.
pub(super) fn overlay(folder: &Path) -> Result<(), Errno> {
    let at = folder.join(format!(".doctor-{}", std::process::id()));
    let parts = ["lower", "upper", "work", "merged"].map(|name| at.join(name));
    for part in &parts {
        std::fs::create_dir_all(part)
            .map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(nix::libc::EIO)))?;
    }
    let [lower, upper, work, merged] = &parts;
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let outcome = tried(|| {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
        mount(
            Some("overlay"),
            merged,
            Some("overlay"),
            MsFlags::empty(),
            Some(options.as_str()),
        )
    });
    let _ = std::fs::remove_dir_all(&at);
    outcome
}

/// Is a seccomp filter taken by this kernel? Asks for an action that every kernel with filters knows.
pub(super) fn seccomp() -> Result<(), Errno> {
    const GET_ACTION_AVAIL: nix::libc::c_ulong = 2;
    let action: u32 = nix::libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads four bytes behind a pointer that outlives it, and changes nothing.
    let answer = unsafe {
        nix::libc::syscall(
            nix::libc::SYS_seccomp,
            GET_ACTION_AVAIL,
            0,
            std::ptr::from_ref(&action),
        )
    };
    Errno::result(answer).map(drop)
}
