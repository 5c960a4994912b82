//! `fardel relay`: carries the connections that sessions may open to the outside. One process for all sessions of one
//! installation, in the machine's own network and not in the server: a restart or an upgrade of the server cuts nothing.
//!
//! Its listeners stand inside the sessions' network namespaces, its other ends in the machine's: no interface, route, rule or
//! setting of the machine is made. Reads no catalog, and serves nothing but what `rules::egress` admits.

mod carry;
mod control;
mod counts;
mod http;
mod names;
mod pace;
mod reach;
mod served;
mod session;
mod socks;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rules::egress::{EgressEnd, EgressRow, SessionEgress};

pub(crate) use control::{RelayConnection, RelayRequest};
use session::Sessions;

use crate::program;

/// The relay's socket, below the directory that ends with the machine.
const SOCKET: &str = "relay.sock";
/// Held by the one relay of an installation.
const LOCK: &str = "relay.lock";

/// How long a relay may take to answer after its start. It takes some milliseconds. Longer: starts of sessions wait for one
/// that does not come. Shorter: on a busy machine sessions start without their network.
const STARTING: Duration = Duration::from_secs(3);

/// How long a relay without sessions stays where no service manager started it. Longer: a process is left behind by an
/// installation that is gone. Shorter: one session after the other starts one.
const IDLE: Duration = Duration::from_secs(60);

/// How often it looks whether it is idle.
const LOOK: Duration = Duration::from_secs(5);

/// Runs `fardel relay RUN`: serves the sessions of the installation whose sockets are below RUN, until it is ended.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let [run] = arguments else {
        eprintln!("fardel relay RUN: give the directory of the installation's sockets");
        return ExitCode::from(64);
    };
    match serve(Path::new(run)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fardel relay cannot serve: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(run: &Path) -> io::Result<()> {
    // A terminal's interrupt for the server is not meant for connections of sessions. Refused where it leads its group.
    let _ = rustix::process::setsid();
    let _lock = lock(run)?;
    raise_open_files();
    let listener = listen(run)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let sessions = std::sync::Arc::new(Sessions::new(runtime.handle().clone()));
    let served = std::sync::Arc::clone(&sessions);
    std::thread::Builder::new()
        .name("control".to_owned())
        .spawn(move || control::serve(&listener, &served))?;
    if let Err(error) = base::service::tell(base::service::READY) {
        eprintln!("fardel relay: the service manager did not hear: {error}");
    }
    let is_managed = base::service::has_manager();
    let socket = run.join(SOCKET);
    let left = socket.clone();
    runtime.block_on(async move {
        let mut busy = Instant::now();
        loop {
            tokio::time::sleep(LOOK).await;
            if is_managed || sessions.has_living() {
                busy = Instant::now();
            }
            // Its installation may be gone, and one that begins again has another.
            if (!socket.exists() && !sessions.has_living()) || busy.elapsed() >= IDLE {
                return;
            }
        }
    });
    // The lock is still held: no other relay has put its own there.
    let _ = std::fs::remove_file(left);
    Ok(())
}

/// Held as long as the file is open. Errors: another relay holds it.
fn lock(run: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(run.join(LOCK))?;
    let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&file, operation)?;
    Ok(file)
}

/// Each connection takes two.
fn raise_open_files() {
    let of = rustix::process::Resource::Nofile;
    let mut limit = rustix::process::getrlimit(of);
    limit.current = limit.maximum;
    if let Err(error) = rustix::process::setrlimit(of, limit) {
        eprintln!("fardel relay: the limit of open files stays: {error}");
    }
}

/// The path may be longer than a socket address allows, so it is bound relative to its directory.
fn listen(run: &Path) -> io::Result<UnixListener> {
    let held = File::open(run)?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", held.as_raw_fd());
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(old);
    listener
}

/// The server's handle to the relay of its installation.
#[derive(Debug)]
pub(crate) struct Relay {
    run: PathBuf,
    /// Started as `PROGRAM relay RUN`.
    binary: PathBuf,
    /// The one that this server started; it goes on when the server ends.
    child: Mutex<Option<Child>>,
}

impl Relay {
    /// The relay below `run`; starts none yet.
    pub(crate) fn of(run: PathBuf, binary: PathBuf) -> Self {
        Self {
            run,
            binary,
            child: Mutex::new(None),
        }
    }

    /// Whether a relay answers at the sockets below `run`; for `doctor`.
    pub(crate) fn answers(run: &Path) -> bool {
        counted(run).is_ok()
    }

    /// Whether a relay served below `run` and did not leave by itself.
    pub(crate) fn has_socket(run: &Path) -> bool {
        run.join(SOCKET).exists()
    }

    /// Starts a relay where none answers. Costs one connection where one does, and some milliseconds where none does.
    pub(crate) fn ready(&self) -> io::Result<()> {
        if RelayConnection::open(&self.run).is_ok() {
            return Ok(());
        }
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // One that ended is taken from the list of processes.
        if let Some(before) = child.as_mut() {
            before.try_wait()?;
        }
        *child = Some(program::outliving(&self.binary, "relay", &self.run)?);
        let until = Instant::now() + STARTING;
        while RelayConnection::open(&self.run).is_err() {
            if Instant::now() >= until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Has it serve a container: its network namespace, and a handle to its first process.
    pub(crate) fn open(
        &self,
        name: String,
        egress: SessionEgress,
        descriptors: &[BorrowedFd<'_>; 2],
    ) -> io::Result<()> {
        let relay = RelayConnection::open(&self.run)?;
        let request = RelayRequest::Open { name, egress };
        relay.ask(&request, descriptors).map(drop)
    }

    /// What it serves, and counted, by the names of containers. Errors: no relay answers.
    pub(crate) fn look(&self) -> io::Result<Vec<RelaySight>> {
        counted(&self.run)
    }

    /// Closes the connections of a container, and forgets what was counted.
    pub(crate) fn close(&self, name: String) -> io::Result<()> {
        let relay = RelayConnection::open(&self.run)?;
        relay.ask(&RelayRequest::Close { name }, &[]).map(drop)
    }
}

/// What a relay knows of one container.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct RelaySight {
    pub name: String,
    /// False once its first process has ended.
    pub lives: bool,
    /// What it connected to, and what was refused, the latest first.
    pub rows: Vec<EgressRow>,
    /// Of these, the connections that ended last; a relay of an earlier version says none.
    #[serde(default)]
    pub ends: Vec<EgressEnd>,
}

/// What the relay below `run` serves, and counted. Errors: no relay answers.
pub fn counted(run: &Path) -> io::Result<Vec<RelaySight>> {
    let relay = RelayConnection::open(run)?;
    Ok(relay.ask(&RelayRequest::Look, &[])?.sessions)
}

#[cfg(test)]
mod tests;
