//! Where shims come from: one process of ours with one thread and an empty environment, which
//! forks a shim for each container and is otherwise asleep. Shims then share the pages that a
//! static program must relocate at its start (1.8 MB each otherwise, measured), and a start costs
//! a fork instead of an exec.
//!
//! It stands in the shims' own control group, and its shims with it: a service manager that ends the
//! server's unit finds none of them there.
//!
//! Holds nothing: it ends with the server that started it, and its shims go on. A server that
//! finds it gone starts another.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, IoSlice, Read as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, socketpair,
};

use super::cgroup::{ControlGroup, Hierarchies};
use super::descriptors::receive_with_descriptor;
use super::identity::ProcessIdentity;
use super::rootfs;

/// How long a fork server may take to be forked. It takes some ten milliseconds. Longer: one that is stopped on
/// its way holds up every start by that. Shorter: on a busy machine sessions are refused for nothing.
const STARTING: Duration = Duration::from_secs(5);

/// The server's handle to its fork server.
#[derive(Debug, Default)]
pub(super) struct ForkServer {
    running: Option<ForkServerProcess>,
    /// How many there were; the number of the one that runs.
    count: u64,
}

#[derive(Debug)]
struct ForkServerProcess {
    socket: OwnedFd,
    /// Known unless it did not come to say it.
    process: Option<ProcessIdentity>,
}

impl ForkServer {
    /// Starts a shim for the launch written in `directory`, in the control group `group`; gives its
    /// first subscription, and the number of the fork server that was asked.
    pub(super) fn spawn(
        &mut self,
        binary: &Path,
        group: &ControlGroup,
        directory: &Path,
    ) -> io::Result<(UnixStream, u64)> {
        let (near, far) = UnixStream::pair()?;
        if let Some(running) = &self.running {
            if ask(&running.socket, directory, &far).is_ok() {
                return Ok((near, self.count));
            }
        }
        let running = begin(binary, group).or_else(|error| {
            tracing::warn!(%error, "what forks supervisors did not start; tried once more");
            begin(binary, group)
        })?;
        ask(&running.socket, directory, &far)?;
        // The old one, if there was one, is gone already, or ends with its socket.
        self.running = Some(running);
        self.count += 1;
        Ok((near, self.count))
    }

    /// Ends the fork server of this number, which does not do what it is asked; what it was asked and has
    /// not begun hangs up. Nothing where another runs by now.
    pub(super) fn give_up(&mut self, number: u64) {
        if number == self.count
            && let Some(running) = self.running.take()
            && let Some(process) = &running.process
        {
            process.signal(libc::SIGKILL);
        }
    }

    /// Ends the fork server; its shims go on.
    pub(super) fn end(&mut self) {
        self.running = None;
    }
}

fn begin(binary: &Path, group: &ControlGroup) -> io::Result<ForkServerProcess> {
    let (near, far) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?;
    let mut child = Command::new(binary)
        .args(["shim", group.path()])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(far))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let until = Instant::now() + STARTING;
    // It leaves when it has forked the fork server.
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            None => {
                child.kill()?;
                child.wait()?;
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    };
    if !status.success() {
        let mut said = String::new();
        if let Some(mut errors) = child.stderr.take() {
            errors.read_to_string(&mut said)?;
        }
        return Err(io::Error::other(format!(
            "{} does not start: {status}: {}",
            binary.display(),
            said.trim()
        )));
    }
    // Said by the process that forked it, before it left.
    let mut number = [0u8; 4];
    let process = recv(near.as_raw_fd(), &mut number, MsgFlags::MSG_DONTWAIT)
        .ok()
        .filter(|count| *count == number.len())
        .and_then(|_| ProcessIdentity::of(i32::from_ne_bytes(number)).ok());
    Ok(ForkServerProcess {
        socket: near,
        process,
    })
}

fn ask(socket: &OwnedFd, directory: &Path, subscription: &UnixStream) -> io::Result<()> {
    let descriptors = [subscription.as_raw_fd()];
    sendmsg::<()>(
        socket.as_raw_fd(),
        &[IoSlice::new(directory.as_os_str().as_bytes())],
        &[ControlMessage::ScmRights(&descriptors)],
        // One that is stopped must not stop us once its queue is full.
        MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
        None,
    )?;
    Ok(())
}

/// Runs the fork server on standard input until the server is gone; `supervise` is what a shim does, and
/// the one argument names the control group for it.
pub(super) fn main(arguments: &[OsString], supervise: fn(&Path, UnixStream)) -> ExitCode {
    let group = arguments.first().and_then(|group| group.to_str());
    let socket = match group
        .map_or(Err(io::ErrorKind::InvalidInput.into()), take_place)
        .and_then(|()| settle())
    {
        Ok(Some(socket)) => socket,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fardel shim is started by the server, which speaks on its input: {error}");
            return ExitCode::from(64);
        }
    };
    while let Ok((directory, subscription)) = receive_with_descriptor(socket.as_fd()) {
        // The shim is at once the child of this process's own parent, which is process 1: no process
        // has to fork twice or to be waited for.
        // SAFETY: without a new stack and shared memory this is a fork; this process has one thread.
        let child = unsafe {
            libc::syscall(
                libc::SYS_clone,
                libc::CLONE_PARENT | libc::SIGCHLD,
                0,
                0,
                0,
                0,
            )
        };
        if child == 0 {
            drop(socket);
            // SAFETY: a plain system call on this process alone.
            unsafe { libc::setsid() };
            let directory = PathBuf::from(OsStr::from_bytes(&directory));
            supervise(&directory, UnixStream::from(subscription));
            return ExitCode::SUCCESS;
        }
        // When the fork failed, the closed subscription tells the server.
    }
    ExitCode::SUCCESS
}

/// Enters the shims' control group, before anything else and only when the server speaks on the
/// input.
fn take_place(group: &str) -> io::Result<()> {
    let input = io::stdin();
    if rustix::net::sockopt::socket_type(&input)? != rustix::net::SocketType::SEQPACKET {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let own = rustix::process::getpid().as_raw_nonzero().get();
    Hierarchies::detect()
        .and_then(|hierarchies| hierarchies.at(group.to_owned()).enter(own))
        .map_err(io::Error::other)
}

/// Leaves the server's family and lets go of everything inherited but the socket on standard
/// input. Nothing in the process that only forks.
fn settle() -> io::Result<Option<OwnedFd>> {
    const SOCKET: RawFd = 3;
    // The socket becomes descriptor 3, whatever was inherited there, so that everything above can
    // be closed without looking.
    // SAFETY: nothing in this fresh process uses descriptor 3 yet, and no other code owns the copy.
    let socket = unsafe {
        if libc::dup3(0, SOCKET, libc::O_CLOEXEC) != SOCKET {
            return Err(io::Error::last_os_error());
        }
        rootfs::own(SOCKET)
    };
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    for standard in 0..3 {
        // SAFETY: the standard descriptors of this process have no other owner in it.
        if unsafe { libc::dup2(null.as_raw_fd(), standard) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    drop(null);
    // SAFETY: nothing in this process uses a descriptor above 3.
    unsafe { libc::syscall(libc::SYS_close_range, 4u32, u32::MAX, 0u32) };
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::chdir("/")?;
    // A thread of the server that comes before sessions may have started this process.
    if rustix::process::getpriority_process(None)? < 0 {
        rustix::process::setpriority_process(None, 0)?;
    }
    // A terminal's interrupt for the server is not meant for sessions.
    rustix::process::setsid()?;
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        0 => Ok(Some(socket)),
        child if child > 0 => {
            rustix::io::write(&socket, &child.to_ne_bytes())?;
            Ok(None)
        }
        _ => Err(io::Error::last_os_error()),
    }
}
