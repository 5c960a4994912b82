//! Leads byte streams into containers: terminal, command, log, port. Turns the shim's frames into
//! the link's words; decides nothing about who may enter.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

use base::link::streams::{
    AppFile, BoxFuture, ByteStream, ContainerProcess, ExecGuest, ExecRequest, LayerRequest,
    LogStream, SessionLayerStream, Streams, TermInput, TermOutput, TermStream, WindowSize,
};
use base::observe::chain;
use bytes::{Buf, Bytes, BytesMut};
use rules::container_network;
use rules::inner_door;
use rules::names::{ContainerName, SessionId};
use rules::refusal::Refusal;
use rules::refusals;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};

use followers::{LogRead, LogReaders};
use openings::Openings;

use crate::runtime::wire::{self, FrameKind, WireError};
use crate::runtime::{
    self, ContainerStream, ExecOrder, GuestProgram, Runtime, RuntimeFault, RuntimePhase,
    TerminalSize,
};

pub(crate) mod followers;
mod layers;
pub(crate) mod openings;

/// Messages between a door and a stream. More: a slow reader holds megabytes. Fewer: a fast writer
/// waits for every screen.
const QUEUE: usize = 64;

/// Messages of output between a stream and a door, of at most 64 KiB each, mostly 4. More: what a slow reader sees is
/// older, above all after Ctrl-C. Fewer: a fast writer waits for every one.
const MAX_OUTPUT_WAITING: usize = 2;

/// How much of a shim's frames is read at a time.
const PIECE: usize = wire::MAX_PAYLOAD_BYTES;

/// A payload of fewer bytes is copied, so that what waits for a slow reader takes about the memory that it says.
const WORTH_KEEPING: usize = PIECE / 4;

/// Where a container of a session of several is reached by the others over SSH.
const SSH_PORT: u16 = 22;

/// Connections from inside that no door has taken yet. More: they wait where nothing is done for them. Fewer: a
/// program that connects to all others at once waits for a turn of the door.
const MAX_ACCEPTED: usize = 8;

/// Rest after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The way into this machine's containers.
pub(crate) struct Dial {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) followers: LogReaders,
    pub(crate) openings: Arc<Openings>,
    pub(crate) layer_reads: LayerReads,
}

/// Whose turn it is to have its layer read.
#[derive(Clone)]
pub(crate) struct LayerReads(Arc<Semaphore>);

impl Default for LayerReads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(layers::MAX_READ_LAYERS)))
    }
}

impl Streams for Dial {
    fn attach(&self, container: ContainerName, size: Option<WindowSize>) -> BoxFuture<TermStream> {
        self.open(container, move |runtime, name| {
            runtime.attach(name, size.map(terminal))
        })
    }

    fn exec(&self, container: ContainerName, request: ExecRequest) -> BoxFuture<TermStream> {
        let argv = match (request.guest, request.argv.is_empty()) {
            // A supervisor of an older version runs the image's own program, where it has one.
            (Some(ExecGuest::Files), _) => vec!["sftp-server".to_owned()],
            (None, true) => vec!["/bin/sh".to_owned()],
            (None, false) => request.argv,
        };
        let order = ExecOrder {
            command: argv,
            environment: request.env,
            directory: request.cwd,
            user: request.user,
            terminal: request.tty.map(terminal),
            guest: request.guest.map(|ExecGuest::Files| GuestProgram::Files),
            background: request.background,
        };
        self.open(container, move |runtime, name| runtime.exec(name, &order))
    }

    fn logs(&self, container: ContainerName, since: u64, follow: bool) -> BoxFuture<LogStream> {
        let runtime = Arc::clone(&self.runtime);
        let followers = self.followers.clone();
        Box::pin(async move {
            let name = inner(container)?;
            let log = runtime.log(&name);
            let look = move |from| {
                // Asked before reading: what was written before the end is then read before we stop.
                let over = runtime.sight(&name).is_none_or(|sight| {
                    matches!(
                        sight.standing,
                        RuntimePhase::Ended(_) | RuntimePhase::Lost { .. }
                    )
                });
                let piece = log.read(from, followers::PIECE).map_err(|error| {
                    tracing::warn!(container = %name, error = %chain(&error), "its log cannot be read");
                });
                LogRead {
                    piece: piece.ok(),
                    over,
                }
            };
            let (stream, reading) = followers.follow(since, follow, look);
            // Owned by the stream: it ends when the door drops its end or the log is over.
            tokio::spawn(reading);
            Ok(stream)
        })
    }

    fn dial(&self, container: ContainerName, port: u16) -> BoxFuture<ByteStream> {
        let (runtime, openings) = (Arc::clone(&self.runtime), Arc::clone(&self.openings));
        Box::pin(async move {
            let name = inner(container)?;
            let turn = openings.turn(container).await;
            let dialled = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                runtime.dial(&name, port)
            });
            let dialled = dialled.await;
            let socket = dialled
                .map_err(refusals::port_unreachable)?
                .map_err(|fault| refusals::port_not_answering(port, chain(&fault)))?;
            let failed = |e: std::io::Error| refusals::port_unreachable(e);
            socket.set_nonblocking(true).map_err(failed)?;
            let socket = tokio::net::TcpStream::from_std(socket).map_err(failed)?;
            // What is sent in two pieces does not wait for the first one to be acknowledged.
            let _ = socket.set_nodelay(true);
            Ok(Box::new(socket) as ByteStream)
        })
    }

    fn processes(&self, container: ContainerName) -> BoxFuture<Vec<ContainerProcess>> {
        let runtime = Arc::clone(&self.runtime);
        Box::pin(async move {
            let name = inner(container)?;
            let looked = tokio::task::spawn_blocking(move || runtime.processes(&name));
            let looked = looked.await.map_err(refusals::container_unreachable)?;
            looked.map_err(|fault| refusals::container_unreachable(chain(&fault)))
        })
    }

    fn listening(&self, container: ContainerName) -> BoxFuture<Vec<u16>> {
        self.look(container, |runtime, name| runtime.listening(name))
    }

    fn neighbours(&self, container: ContainerName) -> BoxFuture<mpsc::Receiver<ByteStream>> {
        let address = SocketAddrV4::new(container_network::address(container.index), SSH_PORT);
        self.listen(container, address)
    }

    fn inner_door(&self, container: ContainerName) -> BoxFuture<mpsc::Receiver<ByteStream>> {
        self.listen(container, inner_door::ADDRESS)
    }

    fn programs(&self, container: ContainerName, wanted: Vec<String>) -> BoxFuture<Vec<String>> {
        self.look(container, |runtime, name| runtime.programs(name, wanted))
    }

    fn app_files(&self, container: ContainerName) -> BoxFuture<Vec<AppFile>> {
        let looked = self.look(container, |runtime, name| runtime.app_files(name));
        Box::pin(async move {
            let files = looked.await?.into_iter();
            Ok(files.map(|(name, text)| AppFile { name, text }).collect())
        })
    }

    fn layer(
        &self,
        container: ContainerName,
        request: LayerRequest,
    ) -> BoxFuture<SessionLayerStream> {
        let runtime = Arc::clone(&self.runtime);
        let reads = Arc::clone(&self.layer_reads.0);
        Box::pin(async move {
            let name = inner(container)?;
            let turn = reads.acquire_owned().await;
            let turn = turn.map_err(refusals::container_unreachable)?;
            layers::read(runtime, name, request, turn)
        })
    }

    fn forget_logs(&self, sessions: Vec<SessionId>) -> BoxFuture<()> {
        let runtime = Arc::clone(&self.runtime);
        Box::pin(async move {
            let forgotten = tokio::task::spawn_blocking(move || {
                let gone: BTreeSet<SessionId> = sessions.into_iter().collect();
                for name in runtime.logs()? {
                    let of = name.as_str().parse::<ContainerName>();
                    if of.is_ok_and(|of| gone.contains(&of.session)) {
                        runtime.forget_log(&name)?;
                    }
                }
                Ok::<(), RuntimeFault>(())
            });
            let forgotten = forgotten.await.map_err(refusals::log_kept)?;
            forgotten.map_err(|fault| refusals::log_not_forgotten(chain(&fault)))
        })
    }
}

impl Dial {
    /// Looks into a container, or opens something there, in its own turn: one whose files or ports keep us waiting holds
    /// its own turns alone.
    fn look<T: Send + 'static>(
        &self,
        container: ContainerName,
        work: impl FnOnce(&Runtime, &runtime::RuntimeName) -> Result<T, RuntimeFault> + Send + 'static,
    ) -> BoxFuture<T> {
        let (runtime, openings) = (Arc::clone(&self.runtime), Arc::clone(&self.openings));
        Box::pin(async move {
            let name = inner(container)?;
            let turn = openings.turn(container).await;
            let looked = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                work(&runtime, &name)
            });
            let looked = looked.await.map_err(refusals::container_unreachable)?;
            looked.map_err(|fault| refusals::container_unreachable(chain(&fault)))
        })
    }

    /// Takes connections at an address inside a container for as long as the receiver is kept.
    fn listen(
        &self,
        container: ContainerName,
        address: SocketAddrV4,
    ) -> BoxFuture<mpsc::Receiver<ByteStream>> {
        let opened = self.look(container, move |runtime, name| {
            runtime.listen(name, address)
        });
        Box::pin(async move {
            let opened = opened.await?;
            let failed = |e: std::io::Error| refusals::container_unreachable(e);
            opened.set_nonblocking(true).map_err(failed)?;
            let listener = TcpListener::from_std(opened).map_err(failed)?;
            let (accepted, incoming) = mpsc::channel(MAX_ACCEPTED);
            // Owned by the receiver: it ends when the door drops it.
            tokio::spawn(accept(listener, accepted));
            Ok(incoming)
        })
    }

    fn open(
        &self,
        container: ContainerName,
        open: impl FnOnce(&Runtime, &runtime::RuntimeName) -> Result<ContainerStream, RuntimeFault>
        + Send
        + 'static,
    ) -> BoxFuture<TermStream> {
        let (runtime, openings) = (Arc::clone(&self.runtime), Arc::clone(&self.openings));
        Box::pin(async move {
            let name = inner(container)?;
            let turn = openings.turn(container).await;
            let opened = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                open(&runtime, &name)
            });
            let opened = opened.await;
            let stream = opened
                .map_err(refusals::container_unreachable)?
                .map_err(|fault| match fault {
                    RuntimeFault::Unknown(_) | RuntimeFault::NotRunning(_) => {
                        refusals::container_not_running()
                    }
                    RuntimeFault::Refused(why) => refusals::exec_refused(why),
                    RuntimeFault::Busy(why) => refusals::exec_too_many(&why).retry_after(5),
                    other => refusals::container_not_enterable(chain(&other)),
                })?;
            let (socket, ahead) = stream.into_parts();
            let failed = |e: std::io::Error| refusals::container_unreachable(e);
            socket.set_nonblocking(true).map_err(failed)?;
            let socket = UnixStream::from_std(socket).map_err(failed)?;
            let (input, typed) = mpsc::channel(QUEUE);
            let (shown, output) = mpsc::channel(MAX_OUTPUT_WAITING);
            // Owned by the stream: it ends when the door drops its ends or the shim hangs up.
            tokio::spawn(carry(socket, ahead, typed, shown));
            Ok(TermStream { input, output })
        })
    }
}

fn inner(name: ContainerName) -> Result<runtime::RuntimeName, Refusal> {
    runtime::RuntimeName::parse(&name.to_string()).map_err(refusals::container_name_refused)
}

/// Hands over each connection until no door takes any.
async fn accept(listener: TcpListener, accepted: mpsc::Sender<ByteStream>) {
    loop {
        let taken = tokio::select! {
            taken = listener.accept() => taken,
            () = accepted.closed() => return,
        };
        match taken {
            Ok((stream, _)) => {
                // A line that waits for more is slower, and carries all the same.
                let _ = stream.set_nodelay(true);
                if accepted.send(Box::new(stream)).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "a connection from inside a container could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn terminal((columns, rows): WindowSize) -> TerminalSize {
    TerminalSize { columns, rows }
}

/// Carries frames both ways until the program ended, the shim hung up or no client listens any more. The two
/// directions do not wait for each other: Ctrl-C arrives while output waits for its reader.
async fn carry(
    socket: UnixStream,
    ahead: Vec<u8>,
    typed: mpsc::Receiver<TermInput>,
    shown: mpsc::Sender<TermOutput>,
) {
    let (from, to) = socket.into_split();
    let closed = shown.clone();
    tokio::select! {
        () = carry_output(from, ahead, shown) => {}
        () = carry_input(to, typed) => {}
        // The client has gone: nothing more to carry, whatever the program does.
        () = closed.closed() => {}
    }
}

/// Takes the first whole frame off the front; nothing when it is not complete yet.
fn take(received: &mut BytesMut) -> Result<Option<(FrameKind, Bytes)>, WireError> {
    let Some((kind, payload)) = wire::first(received)? else {
        return Ok(None);
    };
    let length = payload.len();
    if length < WORTH_KEEPING {
        let copy = Bytes::copy_from_slice(payload);
        received.advance(wire::HEAD + length);
        return Ok(Some((kind, copy)));
    }
    received.advance(wire::HEAD);
    Ok(Some((kind, received.split_to(length).freeze())))
}

/// Writes a payload as frames, without copying it.
async fn say(to: &mut OwnedWriteHalf, kind: FrameKind, payload: &[u8]) -> std::io::Result<()> {
    let mut rest = payload;
    loop {
        let (now, later) = rest.split_at(rest.len().min(wire::MAX_PAYLOAD_BYTES));
        let head = wire::head(kind, now.len());
        to.write_all_buf(&mut Buf::chain(&head[..], now)).await?;
        if later.is_empty() {
            return Ok(());
        }
        rest = later;
    }
}

/// Passes on what is shown, up to the last word.
async fn carry_output(mut from: OwnedReadHalf, ahead: Vec<u8>, shown: mpsc::Sender<TermOutput>) {
    let mut received = BytesMut::from(&ahead[..]);
    let gone = loop {
        loop {
            let (said, last) = match take(&mut received) {
                Ok(Some((kind, payload))) => match kind {
                    FrameKind::Output => (TermOutput::Stdout(payload), false),
                    FrameKind::Errors => (TermOutput::Stderr(payload), false),
                    FrameKind::Exit => {
                        let code = wire::number_of(&payload).unwrap_or(1);
                        (TermOutput::Exit(code), true)
                    }
                    _ => continue,
                },
                Ok(None) => break,
                Err(error) => (TermOutput::Gone(error.to_string()), true),
            };
            if shown.send(said).await.is_err() || last {
                return;
            }
        }
        received.reserve(PIECE);
        match from.read_buf(&mut received).await {
            Ok(0) => break "The supervisor of the session closed the stream.".to_owned(),
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    let _ = shown.send(TermOutput::Gone(gone)).await;
}

/// Passes on what is typed; never ends, for the output decides when a stream is over.
async fn carry_input(mut to: OwnedWriteHalf, mut typed: mpsc::Receiver<TermInput>) {
    while let Some(input) = typed.recv().await {
        let said = match input {
            TermInput::Bytes(bytes) => say(&mut to, FrameKind::Input, &bytes).await,
            TermInput::Resize(size) => {
                let size = wire::size_bytes(terminal(size));
                say(&mut to, FrameKind::Resize, &size).await
            }
            TermInput::CloseInput => say(&mut to, FrameKind::InputEnd, b"").await,
            TermInput::Signal(number) => {
                say(&mut to, FrameKind::Signal, &number.to_le_bytes()).await
            }
        };
        if said.is_err() {
            break;
        }
    }
    // Dropping the half would close it, and the shim would take that for the client's end.
    let _open = to;
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::RuntimePaths;

    /// What is typed reaches the shim while a reader takes none of the output that waits for it.
    #[tokio::test]
    async fn what_is_typed_arrives_while_output_waits_for_its_reader() {
        let (ours, shims) = UnixStream::pair().expect("a pair");
        let (input, typed) = mpsc::channel(QUEUE);
        let (shown, mut output) = mpsc::channel(MAX_OUTPUT_WAITING);
        let carried = tokio::spawn(carry(ours, Vec::new(), typed, shown));
        let (mut from, mut to) = shims.into_split();
        let flood = tokio::spawn(async move {
            let mut frame = Vec::new();
            wire::put(&mut frame, FrameKind::Output, &[b'y'; 16 << 10]);
            while to.write_all(&frame).await.is_ok() {}
        });
        // Until nothing more goes in: every place for output is taken.
        while output.len() < MAX_OUTPUT_WAITING {
            tokio::task::yield_now().await;
        }
        let stop = TermInput::Bytes(Bytes::from_static(b"\x03"));
        input.send(stop).await.expect("carried");
        let mut frame = [0; 6];
        tokio::time::timeout(
            std::time::Duration::from_secs(20),
            from.read_exact(&mut frame),
        )
        .await
        .expect("Ctrl-C waits behind the output")
        .expect("read");
        assert_eq!((frame[4], frame[5]), (FrameKind::Input as u8, 3));
        assert!(output.recv().await.is_some());
        drop(output);
        carried.await.expect("ended");
        flood.abort();
    }

    #[tokio::test]
    async fn the_logs_of_deleted_sessions_go_and_no_others() {
        let folder = tempfile::tempdir().expect("a directory");
        let places = RuntimePaths {
            data: folder.path().join("data"),
            run: folder.path().join("run"),
            shim_binary: "/proc/self/exe".into(),
        };
        let runtime = Runtime::open(places).expect("it opens on every machine");
        let dial = Dial {
            runtime: Arc::new(runtime),
            followers: LogReaders::default(),
            openings: Arc::default(),
            layer_reads: LayerReads::default(),
        };
        let sessions: Vec<SessionId> = (1..=3)
            .map(|number| SessionId(uuid::Uuid::from_u128(number)))
            .collect();
        let log = |session: usize, incarnation: u32| {
            let name = ContainerName {
                session: sessions[session],
                incarnation,
                index: 0,
            };
            folder.path().join("data/logs").join(name.to_string())
        };
        for (session, incarnation) in [(0, 1), (0, 2), (1, 1)] {
            std::fs::create_dir(log(session, incarnation)).expect("made");
            let line = log(session, incarnation).join("console-00000000000000000000.log");
            std::fs::write(line, "secret\n").expect("written");
        }
        let gone = vec![sessions[0], sessions[2]];
        dial.forget_logs(gone.clone()).await.expect("forgotten");
        assert!(!log(0, 1).exists() && !log(0, 2).exists());
        assert!(log(1, 1).exists(), "it was not deleted");
        dial.forget_logs(gone).await.expect("told again");
        dial.runtime.retire();
    }
}
