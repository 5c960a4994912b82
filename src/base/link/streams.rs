//! Byte streams across the link: a session's terminal, a command in it, its log, one of its ports.
//! The node implements `Streams`; doors hold it as a trait object and never learn which machine
//! answers.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use rules::commit::LayerSurvey;
use rules::names::{ContainerName, SessionId};
use rules::refusal::Refusal;
use rules::refusals;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};

/// An answer that comes later.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send>>;

/// Opens streams into containers. Every call refuses with `container.not-running` where there is
/// nothing to enter.
pub trait Streams: Send + Sync {
    /// The main process: what it wrote lately (at most 256 KiB) first, then everything live.
    /// Several may be attached at once; all see the same, all may type.
    fn attach(&self, container: ContainerName, size: Option<(u16, u16)>) -> BoxFuture<TermStream>;

    /// A new process inside, with the container's own limits and filters.
    fn exec(&self, container: ContainerName, request: ExecRequest) -> BoxFuture<TermStream>;

    /// What the main process wrote, from byte `since`; kept after the end. With `follow` the stream
    /// stays open until the container is over.
    fn logs(&self, container: ContainerName, since: u64, follow: bool) -> BoxFuture<LogStream>;

    /// A connection to a TCP port that something inside listens on, loopback included.
    fn dial(&self, container: ContainerName, port: u16) -> BoxFuture<ByteStream>;

    /// The processes inside that live, the largest memory first, at most 200. A node that cannot look gives none.
    fn processes(&self, _container: ContainerName) -> BoxFuture<Vec<ContainerProcess>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// The TCP ports inside that `dial` reaches, by number, at most 64. A node that cannot look gives none.
    fn listening(&self, _container: ContainerName) -> BoxFuture<Vec<u16>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Connections that other containers of its session open to the SSH port of its address in their private network, one
    /// after the other. Dropping the receiver closes the port. A node that joins no containers refuses.
    fn neighbours(&self, _container: ContainerName) -> BoxFuture<mpsc::Receiver<ByteStream>> {
        Box::pin(async { Err(refusals::container_not_running()) })
    }

    /// Connections that programs inside open to the inner door, one after the other. Dropping the receiver closes it. A node
    /// without containers of its own refuses.
    fn inner_door(&self, _container: ContainerName) -> BoxFuture<mpsc::Receiver<ByteStream>> {
        Box::pin(async { Err(refusals::container_not_running()) })
    }

    /// Those of these programs that the container's own path finds. A node that cannot look gives all.
    fn programs(&self, _container: ContainerName, wanted: Vec<String>) -> BoxFuture<Vec<String>> {
        Box::pin(async { Ok(wanted) })
    }

    /// The files inside that describe apps: at most 64 KiB of all of them. A node that cannot look gives none.
    fn app_files(&self, _container: ContainerName) -> BoxFuture<Vec<AppFile>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// What a container wrote above its image: first what is in it, then its bytes as an uncompressed archive in the form of
    /// OCI layers. Its processes stand still while bytes come; dropping the stream lets them go on. A node that cannot read
    /// it refuses `commit.not-possible-there`.
    fn layer(
        &self,
        _container: ContainerName,
        _request: LayerRequest,
    ) -> BoxFuture<SessionLayerStream> {
        Box::pin(async { Err(refusals::commit_not_possible_there()) })
    }

    /// Removes what the containers of these sessions wrote, all of their starts; fine where there is nothing.
    /// Costs one look at the names of all logs. A node without logs does nothing.
    fn forget_logs(&self, _sessions: Vec<SessionId>) -> BoxFuture<()> {
        Box::pin(async { Ok(()) })
    }
}

/// What of a container's own layer is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerRequest {
    /// Paths inside, absolute, that are left out with all below them.
    pub exclude: Vec<String>,
    /// Bytes of all files together; more are refused.
    pub most_bytes: u64,
    /// Nothing but what is in it is wanted: nothing stands still.
    pub look_only: bool,
}

/// A container's own layer on its way. Dropping it ends the reading.
#[derive(Debug)]
pub struct SessionLayerStream {
    pub output: mpsc::Receiver<LayerOutput>,
    /// Ends, never with a value, once nothing is read any more and the processes go on.
    pub over: oneshot::Receiver<()>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerOutput {
    /// What is in it; comes once, before all bytes.
    Found(LayerSurvey),
    Bytes(Bytes),
    /// All of it came; nothing follows.
    End,
    /// It broke; nothing follows.
    Refused(Refusal),
}

/// A file in a container that describes apps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppFile {
    pub name: String,
    pub text: String,
}

/// Columns and rows of a terminal.
pub type WindowSize = (u16, u16);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRequest {
    /// Program and arguments; empty means a shell.
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: Option<String>,
    /// Name or `uid[:gid]` inside; None means the session's own user.
    pub user: Option<String>,
    /// A terminal of this size; None means three pipes.
    pub tty: Option<WindowSize>,
    /// A program that every node brings along, in the place of `argv`.
    pub guest: Option<ExecGuest>,
    /// Under this name it goes on when its client has gone; while it runs, another request of the name joins it.
    pub background: Option<String>,
}

/// A program of ours that runs inside, whatever the image has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecGuest {
    /// Serves the session's files over SFTP on its standard input and output.
    Files,
}

/// A running process' ends. Dropping the input closes it; dropping both detaches.
#[derive(Debug)]
pub struct TermStream {
    pub input: mpsc::Sender<TermInput>,
    pub output: mpsc::Receiver<TermOutput>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TermInput {
    Bytes(Bytes),
    Resize(WindowSize),
    /// End of input; the process goes on.
    CloseInput,
    /// This signal for the process and what it started in the foreground; the main process takes none.
    Signal(i32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TermOutput {
    Stdout(Bytes),
    Stderr(Bytes),
    /// The process ended with this code; nothing follows.
    Exit(i32),
    /// The stream broke; nothing follows. The text says why.
    Gone(String),
}

/// One process of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerProcess {
    /// Its number inside.
    pub pid: u32,
    /// As the kernel names it: the program's name, at most 15 bytes.
    pub name: String,
    /// The kernel's letter: R runs, S and D wait, T is stopped, Z is over.
    pub state: char,
    pub cpu_millis: u64,
    pub memory_bytes: u64,
}

/// A log as it is read; closes at its end.
#[derive(Debug)]
pub struct LogStream {
    pub output: mpsc::Receiver<LogChunk>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogChunk {
    /// Where the first of these bytes stands in the whole log, rotated parts counted.
    pub offset: u64,
    pub bytes: Bytes,
}

/// A two-way byte stream.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}
pub type ByteStream = Box<dyn Duplex>;
