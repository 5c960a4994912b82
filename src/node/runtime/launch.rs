//! The server's side of a shim: what is written for it, and how it is spoken to. The files of one container lie in
//! `RUN/c/NAME/{launch.json, run.json, start-up.json, exit.json, shim.sock, …}`.
//!
//! Who is adopted, and who is lost, is decided in `adoption`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, socket};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::identity::ProcessIdentity;
use super::order::{ContainerSpec, RuntimeExit, StartUpEnd};
use super::rootfs::HostGround;
use super::wire::{self, FrameKind, ShimFrame, ShimReply, ShimRequest};

/// How long a shim may take to answer what opens a stream. It answers in microseconds; this only bounds
/// a hung one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a shim may take to answer a stop or a kill before the node does it alone. Longer: a session
/// whose supervisor is stopped outlives its end by that. Shorter: on a busy machine a container is ended
/// over the head of a supervisor that would have written down its true code.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(2);

/// Everything a shim is told, in `launch.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LaunchFile {
    pub protocol: u32,
    pub order: ContainerSpec,
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

impl LaunchFile {
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

impl RuntimeExit {
    /// Reads the end of a container; an error when it has none.
    pub fn read(directory: &Path) -> io::Result<Self> {
        read_json(&directory.join("exit.json"))
    }

    /// Writes the end, to last.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        write_json(directory, "exit.json", self, Lasting::Yes)
    }
}

impl StartUpEnd {
    /// Reads how the script of a container failed; an error where it did not.
    pub fn read(directory: &Path) -> io::Result<Self> {
        read_json(&directory.join("start-up.json"))
    }

    /// Writes it for servers.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        write_json(directory, "start-up.json", self, Lasting::No)
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

/// What a record says; None where there is none, or none that can be understood. An error where it could not
/// look, for want of memory or descriptors: nothing may be concluded from that.
pub(super) fn if_written<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    use io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};
    match read {
        Ok(record) => Ok(Some(record)),
        Err(error) if matches!(error.kind(), NotFound | InvalidData | UnexpectedEof) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file so that a reader sees the old one or the new one, whole.
fn write_json<T: Serialize>(
    directory: &Path,
    name: &str,
    value: &T,
    lasting: Lasting,
) -> io::Result<()> {
    // A shim and the node may write the same end at once: each has a draft of its own.
    let beside = directory.join(format!("{name}.{}.new", std::process::id()));
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

/// Why a living shim's socket did not lead to it.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotSubscribed {
    #[error("another process answers on its socket")]
    Stranger,
    #[error("the queue of its socket is full")]
    Crowded,
    #[error("its supervisor does not answer")]
    Silent(#[from] io::Error),
}

/// Subscribes to the shim that wrote `record` in `directory` and lives. Waits for nothing, neither for room in
/// its queue nor for its first event. The stream does not block.
pub(super) fn subscribe(directory: &Path, record: &RunRecord) -> Result<UnixStream, NotSubscribed> {
    let mut stream = match connect(directory, SocketTimeout::None) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(NotSubscribed::Crowded);
        }
        connected => connected?,
    };
    let peer = rustix::net::sockopt::socket_peercred(&stream).map_err(io::Error::from)?;
    if peer.pid.as_raw_nonzero().get() != record.shim.pid {
        return Err(NotSubscribed::Stranger);
    }
    send(&mut stream, &ShimRequest::Subscribe)?;
    Ok(stream)
}

/// Asks the shim of `directory` for something that has a plain answer. Takes two seconds at most.
pub(super) fn ask(directory: &Path, request: &ShimRequest) -> io::Result<ShimReply> {
    let mut stream = ContainerStream {
        socket: connect(directory, SocketTimeout::For(CONTROL_TIMEOUT))?,
        received: Vec::new(),
    };
    send(&mut stream.socket, request)?;
    stream.reply()
}

/// Opens a stream (attach or exec) on the shim of `directory`; its answer where that is no.
pub(super) fn open_stream(
    directory: &Path,
    request: &ShimRequest,
) -> io::Result<Result<ContainerStream, ShimReply>> {
    let mut stream = ContainerStream {
        socket: connect(directory, SocketTimeout::For(ANSWER_TIMEOUT))?,
        received: Vec::new(),
    };
    send(&mut stream.socket, request)?;
    match stream.reply()? {
        ShimReply::Done => {
            stream.socket.set_read_timeout(None)?;
            Ok(Ok(stream))
        }
        no @ (ShimReply::Refused { .. } | ShimReply::Busy { .. }) => Ok(Err(no)),
    }
}

/// How long connecting to a shim may wait, and then every read and write. A shim that accepts no connection
/// has a full queue at last, where connecting would wait for ever.
#[derive(Clone, Copy)]
enum SocketTimeout {
    /// Not at all: the socket does not block.
    None,
    For(Duration),
}

/// Connects to the shim of `directory`. Errors: `WouldBlock` where its queue is full for as long as `patience`.
fn connect(directory: &Path, patience: SocketTimeout) -> io::Result<UnixStream> {
    // A socket address holds about a hundred bytes; the directory is reached through a descriptor.
    let held = File::open(directory)?;
    let path = format!("/proc/self/fd/{}/shim.sock", held.as_raw_fd());
    let (flags, wait) = match patience {
        SocketTimeout::None => (SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None),
        SocketTimeout::For(wait) => (SockFlag::SOCK_CLOEXEC, Some(wait)),
    };
    let stream = UnixStream::from(socket(AddressFamily::Unix, SockType::Stream, flags, None)?);
    stream.set_read_timeout(wait)?;
    stream.set_write_timeout(wait)?;
    nix::sys::socket::connect(stream.as_raw_fd(), &UnixAddr::new(path.as_str())?)?;
    Ok(stream)
}

fn send(stream: &mut UnixStream, request: &ShimRequest) -> io::Result<()> {
    let mut bytes = Vec::new();
    wire::put_json(&mut bytes, FrameKind::Request, request);
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
    pub fn next(&mut self) -> io::Result<Option<ShimFrame>> {
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
    pub fn send(&mut self, kind: FrameKind, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::new();
        wire::put(&mut bytes, kind, payload);
        self.socket.write_all(&bytes)
    }

    fn reply(&mut self) -> io::Result<ShimReply> {
        let frame = self.next()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if frame.kind != FrameKind::Reply {
            return Err(io::Error::other("the shim answered with something else"));
        }
        Ok(serde_json::from_slice(&frame.payload)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    use nix::sys::socket::{Backlog, bind, listen};

    #[test]
    fn a_supervisor_whose_queue_is_full_is_crowded_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shim.sock");
        let kind = (AddressFamily::Unix, SockType::Stream);
        let flags = SockFlag::SOCK_CLOEXEC;
        let listening = socket(kind.0, kind.1, flags, None).unwrap();
        bind(listening.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&listening, Backlog::new(1).unwrap()).unwrap();
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let record = RunRecord {
            protocol: wire::PROTOCOL,
            shim: ProcessIdentity::of(own).unwrap(),
            first: None,
            started_at: None,
        };
        let began = Instant::now();
        let mut waiting = Vec::new();
        let refused = loop {
            match subscribe(folder.path(), &record) {
                Ok(stream) => waiting.push(stream),
                Err(refused) => break refused,
            }
            assert!(waiting.len() < 100, "the queue takes everybody");
        };
        assert!(matches!(refused, NotSubscribed::Crowded), "{refused}");
        assert!(!waiting.is_empty(), "it takes some");
        assert!(
            began.elapsed() < CONTROL_TIMEOUT / 2,
            "nothing was waited for"
        );
        // One that asks for something waits until there is room.
        let busy = connect(folder.path(), SocketTimeout::For(Duration::from_millis(20)));
        let busy = busy.expect_err("it is full");
        assert_eq!(busy.kind(), io::ErrorKind::WouldBlock);
    }
}
