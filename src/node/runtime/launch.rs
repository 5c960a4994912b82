//! The server's side of a shim: what is written for it, how it is started, how a later server
//! finds it again, and when it is declared lost. The files of one container lie in
//! `RUN/c/NAME/{launch.json, run.json, exit.json, shim.sock, …}`.
//!
//! Adoption: a written end is final; else a start that was never begun is forgotten (`claim`); else
//! a shim that answers is adopted; else the container is lost and its control group is killed. Never reports a container as running on a guess.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::identity::ProcessIdentity;
use super::order::{ContainerOrder, ExitRecord};
use super::rootfs::HostGround;
use super::wire::{self, Frame, Kind, PROTOCOL, Reply, Request};

/// How long a shim may take to answer a request. It answers in microseconds; this only bounds a hung one.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// Everything a shim is told, in `launch.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Launch {
    pub protocol: u32,
    pub order: ContainerOrder,
    /// Path of the container's control group below each hierarchy.
    pub group: String,
    /// The session's own layers on disk.
    pub own_directory: PathBuf,
    pub log_directory: PathBuf,
    pub host: Option<HostGround>,
}

/// Who supervises and who runs, in `run.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunRecord {
    pub protocol: u32,
    pub shim: ProcessIdentity,
    /// The container's first process, once it exists.
    pub first: Option<ProcessIdentity>,
    pub started_at: Option<u64>,
}

impl Launch {
    /// Reads what the server wrote.
    pub(super) fn read(directory: &Path) -> io::Result<Self> {
        read_json(&directory.join("launch.json"))
    }

    /// Writes it for the shim.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        write_json(directory, "launch.json", self, Lasting::No)
    }
}

impl RunRecord {
    /// Reads what the shim wrote.
    pub(super) fn read(directory: &Path) -> io::Result<Self> {
        read_json(&directory.join("run.json"))
    }

    /// Writes it for later servers.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        write_json(directory, "run.json", self, Lasting::No)
    }
}

impl ExitRecord {
    /// Reads the end of a container; an error when it has none.
    pub fn read(directory: &Path) -> io::Result<Self> {
        read_json(&directory.join("exit.json"))
    }

    /// Writes the end, to last.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        write_json(directory, "exit.json", self, Lasting::Yes)
    }
}

#[derive(PartialEq, Eq)]
enum Lasting {
    Yes,
    No,
}

fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// Writes a file so that a reader sees the old one or the new one, whole.
fn write_json<T: Serialize>(
    directory: &Path,
    name: &str,
    value: &T,
    lasting: Lasting,
) -> io::Result<()> {
    let beside = directory.join(format!("{name}.new"));
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&beside)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    if lasting == Lasting::Yes {
        file.sync_all()?;
    }
    fs::rename(beside, directory.join(name))?;
    if lasting == Lasting::Yes {
        File::open(directory)?.sync_all()?;
    }
    Ok(())
}

/// Why a container without a written end could not be adopted.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotAdopted {
    #[error("it left no record")]
    NoRecord(#[source] io::Error),
    #[error("its supervisor is gone")]
    Gone,
    #[error("its supervisor speaks protocol {0}, this server {PROTOCOL}")]
    Protocol(u32),
    #[error("its supervisor does not answer")]
    Silent(#[source] io::Error),
}

/// Subscribes to the shim of `directory` when it lives and is the one that wrote the record.
pub(super) fn adopt(directory: &Path) -> Result<UnixStream, NotAdopted> {
    let record = RunRecord::read(directory).map_err(NotAdopted::NoRecord)?;
    if record.protocol > PROTOCOL || record.protocol + 1 < PROTOCOL {
        return Err(NotAdopted::Protocol(record.protocol));
    }
    // Held while connecting, so that the number cannot pass to another process in between.
    let _held = record.shim.open().ok_or(NotAdopted::Gone)?;
    let mut stream = connect(directory).map_err(NotAdopted::Silent)?;
    let peer = rustix::net::sockopt::socket_peercred(&stream)
        .map_err(|error| NotAdopted::Silent(error.into()))?;
    if peer.pid.as_raw_nonzero().get() != record.shim.pid {
        return Err(NotAdopted::Gone);
    }
    send(&mut stream, &Request::Subscribe).map_err(NotAdopted::Silent)?;
    Ok(stream)
}

/// Asks the shim of `directory` for something that has a plain answer.
pub(super) fn ask(directory: &Path, request: &Request) -> io::Result<Reply> {
    let mut stream = ContainerStream {
        socket: connect(directory)?,
        received: Vec::new(),
    };
    send(&mut stream.socket, request)?;
    stream.reply()
}

/// Opens a stream (attach or exec) on the shim of `directory`.
pub(super) fn open_stream(
    directory: &Path,
    request: &Request,
) -> io::Result<Result<ContainerStream, String>> {
    let mut stream = ContainerStream {
        socket: connect(directory)?,
        received: Vec::new(),
    };
    send(&mut stream.socket, request)?;
    match stream.reply()? {
        Reply::Done => {
            stream.socket.set_read_timeout(None)?;
            Ok(Ok(stream))
        }
        Reply::Refused { why } => Ok(Err(why)),
    }
}

fn connect(directory: &Path) -> io::Result<UnixStream> {
    // A socket address holds about a hundred bytes; the directory is reached through a descriptor.
    let held = File::open(directory)?;
    let stream = UnixStream::connect(format!("/proc/self/fd/{}/shim.sock", held.as_raw_fd()))?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    stream.set_write_timeout(Some(ANSWER_PATIENCE))?;
    Ok(stream)
}

fn send(stream: &mut UnixStream, request: &Request) -> io::Result<()> {
    let mut bytes = Vec::new();
    wire::put_json(&mut bytes, Kind::Request, request);
    stream.write_all(&bytes)
}

/// A running program's input and output, framed as `wire` says. Blocking; callers that wait on
/// many take it apart.
#[derive(Debug)]
pub struct ContainerStream {
    socket: UnixStream,
    received: Vec<u8>,
}

impl ContainerStream {
    /// The socket and what was read ahead from it.
    pub fn into_parts(self) -> (UnixStream, Vec<u8>) {
        (self.socket, self.received)
    }

    /// The next frame; nothing when the shim closed the stream.
    pub fn next(&mut self) -> io::Result<Option<Frame>> {
        let mut buffer = [0u8; 16 * 1024];
        loop {
            if let Some(frame) = wire::take(&mut self.received).map_err(io::Error::other)? {
                return Ok(Some(frame));
            }
            match self.socket.read(&mut buffer)? {
                0 => return Ok(None),
                count => self.received.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// Sends one frame.
    pub fn send(&mut self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::new();
        wire::put(&mut bytes, kind, payload);
        self.socket.write_all(&bytes)
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let frame = self.next()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if frame.kind != Kind::Reply {
            return Err(io::Error::other("the shim answered with something else"));
        }
        Ok(serde_json::from_slice(&frame.payload)?)
    }
}
