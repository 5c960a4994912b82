//! Streams between this terminal and a session: attach, exec, logs, forwarded ports. Puts the
//! terminal back as it was, however the stream ends.

use std::io::{IsTerminal, Read, Write};
use std::time::Duration;

use base::link::streams::ByteStream;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::args::{Attach, Exec, Logs};
use super::client::{HttpClient, MAX_RECONNECT, encoded};
use super::error::{CliError, FAILED, INTERRUPTED, UNREACHABLE};
use super::output::OutputStyle;
use super::{Surroundings, complain, values};

/// What a terminal's WebSocket speaks: binary messages whose first byte is the channel.
pub(super) const PROTOCOL: &str = "v1.term";
const INPUT: u8 = 0;
const OUTPUT: u8 = 1;
const CONTROL: u8 = 2;
const ERRORS: u8 = 3;

/// Ctrl-P, Ctrl-Q: leaves a session running, as users know it from containers.
const DETACH: [u8; 2] = [0x10, 0x11];

/// What goes over an open terminal stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pump {
    /// Send what is typed or piped in.
    pub(super) input: bool,
    /// Raw keyboard, window size, detach keys.
    pub(super) tty: bool,
    /// Open the stream again when the server went away.
    pub(super) reattach: bool,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// The process ended with this code.
    Exit(u8),
    /// The user left; the process goes on.
    Detached,
    /// The connection ended without a word.
    Lost,
}

pub(super) async fn exec(
    client: &HttpClient,
    view: &OutputStyle,
    around: &Surroundings,
    request: Exec,
) -> Result<u8, CliError> {
    let tty = request.tty;
    if tty && !std::io::stdin().is_terminal() && request.interactive {
        return Err(CliError::usage("-t needs a terminal to type in.")
            .hint("Leave -t out when input is piped."));
    }
    let mut parts: Vec<(&str, String)> = Vec::new();
    for word in &request.command {
        parts.push(("command", word.clone()));
    }
    let env = values::pairs(&request.env, Some(around), "env")?;
    for (name, value) in env.as_object().into_iter().flatten() {
        parts.push((
            "env",
            format!("{name}={}", value.as_str().unwrap_or_default()),
        ));
    }
    if let Some(cwd) = &request.workdir {
        parts.push(("cwd", cwd.clone()));
    }
    if let Some(user) = &request.user {
        parts.push(("user", user.clone()));
    }
    if let Some(container) = &request.container.container {
        parts.push(("container", container.clone()));
    }
    if tty {
        let (columns, rows) = window().unwrap_or((80, 24));
        parts.push(("cols", columns.to_string()));
        parts.push(("rows", rows.to_string()));
    }
    // An empty argument is an argument, so the list's own writer of queries does not fit here.
    let query: Vec<String> = parts
        .iter()
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    let path = format!(
        "{}/exec?{}",
        values::path(&request.session.session),
        query.join("&")
    );
    let socket = client.socket(&path, PROTOCOL).await?;
    let pump = Pump {
        input: request.interactive || request.command.is_empty(),
        tty,
        reattach: false,
    };
    match pumped(socket, view, pump).await? {
        Over::Exit(code) => Ok(code),
        Over::Detached => Ok(0),
        Over::Lost => Err(lost()),
    }
}

pub(super) async fn attach(
    client: &HttpClient,
    view: &OutputStyle,
    request: &Attach,
) -> Result<u8, CliError> {
    let id = request.session.session.as_str();
    let container = request.container.container.as_deref();
    let pump = Pump {
        input: !request.no_input,
        tty: std::io::stdin().is_terminal() && !request.no_input,
        reattach: true,
    };
    if pump.tty && view.for_humans() {
        complain("detach with Ctrl-P Ctrl-Q\n");
    }
    match attached(client, view, (id, container), pump).await? {
        Over::Exit(code) => Ok(code),
        Over::Detached => Ok(0),
        Over::Lost => Err(lost()),
    }
}

fn lost() -> CliError {
    CliError::new(
        UNREACHABLE,
        "server.connection-lost",
        "The server closed the connection in the middle of the stream.",
    )
    .hint("The session continues; `fardel attach` connects to it again.")
}

/// Attaches to the main process of a container of a session, the main one where none is named, over restarts of the
/// server where asked for.
pub(super) async fn attached(
    client: &HttpClient,
    view: &OutputStyle,
    (id, container): (&str, Option<&str>),
    pump: Pump,
) -> Result<Over, CliError> {
    let mut away: Option<std::time::Instant> = None;
    loop {
        let size = pump.tty.then(window).flatten();
        let size = size.map(|(columns, rows)| format!("cols={columns}&rows={rows}"));
        let within = container.map(|name| format!("container={}", encoded(name)));
        let asked: Vec<String> = size.into_iter().chain(within).collect();
        let mark = if asked.is_empty() { "" } else { "?" };
        let path = format!("{}/attach{mark}{}", values::path(id), asked.join("&"));
        match client.socket(&path, PROTOCOL).await {
            Ok(socket) => {
                if away.take().is_some() && pump.tty {
                    // What was on the screen comes again as scrollback.
                    super::print("\x1b[2J\x1b[H");
                }
                let over = pumped(socket, view, pump).await?;
                if over != Over::Lost || !pump.reattach {
                    return Ok(over);
                }
                away = Some(std::time::Instant::now());
                complain("\nthe server went away; waiting for it\n");
            }
            Err(trouble) if trouble.exit == UNREACHABLE => match away {
                Some(since) if since.elapsed() < MAX_RECONNECT => {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
                _ => return Err(trouble),
            },
            // It ended while the server was away.
            Err(trouble)
                if away.is_some() && trouble.code == rules::codes::CONTAINER_NOT_RUNNING =>
            {
                return Ok(Over::Lost);
            }
            Err(trouble) => return Err(trouble),
        }
    }
}

pub(super) async fn interrupted() -> Result<(), CliError> {
    tokio::signal::ctrl_c()
        .await
        .map_err(|e| CliError::new(1, "signal.failed", format!("Ctrl-C cannot be caught: {e}.")))
}

/// Columns and rows of this terminal; None where it does not say.
fn window() -> Option<(u16, u16)> {
    crossterm::terminal::size()
        .ok()
        .filter(|(columns, rows)| *columns > 0 && *rows > 0)
}

/// Raw keyboard for as long as this value lives.
struct RawMode;

impl RawMode {
    fn begin() -> Result<Self, CliError> {
        crossterm::terminal::enable_raw_mode().map_err(|e| {
            CliError::new(
                FAILED,
                "terminal.failed",
                format!("This terminal cannot be used: {e}."),
            )
        })?;
        Ok(Self)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = crossterm::terminal::disable_raw_mode();
    }
}

async fn pumped(
    socket: WebSocketStream<ByteStream>,
    _view: &OutputStyle,
    pump: Pump,
) -> Result<Over, CliError> {
    let raw = pump.tty && std::io::stdin().is_terminal();
    let _raw = if raw { Some(RawMode::begin()?) } else { None };
    let (mut to, mut from) = socket.split();
    let mut resized = listen(SignalKind::window_change())?;
    let mut told_to_end = listen(SignalKind::terminate())?;
    let mut hung_up = listen(SignalKind::hangup())?;
    let mut typing = pump.input;
    let mut keyboard = if typing { Some(keyboard()) } else { None };
    let mut detach = DetachKeys::default();
    loop {
        tokio::select! {
            message = from.next() => match message {
                Some(Ok(Message::Binary(bytes))) => {
                    if let Some(over) = received(&bytes)? {
                        return Ok(over);
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(Over::Lost),
                Some(Ok(_)) => {}
            },
            typed = next_typed(&mut keyboard), if typing => {
                let sent = match typed {
                    None => {
                        typing = false;
                        control(&json!({"close_input": true}))
                    }
                    Some(typed) if raw => {
                        let (bytes, left) = detach.sift(&typed);
                        if left {
                            return Ok(Over::Detached);
                        }
                        channel(INPUT, &bytes)
                    }
                    Some(typed) => channel(INPUT, &typed),
                };
                if to.send(sent).await.is_err() {
                    return Ok(Over::Lost);
                }
            }
            _ = resized.recv(), if pump.tty => {
                if let Some((columns, rows)) = window() {
                    let _ = to.send(control(&json!({"resize": [columns, rows]}))).await;
                }
            }
            _ = told_to_end.recv() => return Ok(Over::Detached),
            _ = hung_up.recv() => return Ok(Over::Detached),
            signal = interrupted(), if !raw => {
                signal?;
                return Ok(Over::Exit(INTERRUPTED));
            }
        }
    }
}

/// Reads standard input on a thread of its own, since a terminal cannot be waited for otherwise. The
/// thread ends with the input or with the process; input that was read and not taken is lost.
fn keyboard() -> mpsc::Receiver<Vec<u8>> {
    let (typed, read) = mpsc::channel(4);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 8192];
        while let Ok(count) = std::io::stdin().lock().read(&mut buffer) {
            if count == 0 || typed.blocking_send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    read
}

async fn next_typed(keyboard: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    keyboard.as_mut()?.recv().await
}

pub(super) fn listen(kind: SignalKind) -> Result<Signal, CliError> {
    signal(kind).map_err(|e| {
        CliError::new(
            FAILED,
            "signal.failed",
            format!("Signals cannot be caught: {e}."),
        )
    })
}

fn channel(number: u8, bytes: &[u8]) -> Message {
    let mut message = BytesMut::with_capacity(bytes.len() + 1);
    message.put_u8(number);
    message.put_slice(bytes);
    Message::Binary(message.freeze())
}

fn control(words: &Value) -> Message {
    channel(CONTROL, words.to_string().as_bytes())
}

/// Writes what came; gives the end where the message was one.
fn received(message: &Bytes) -> Result<Option<Over>, CliError> {
    let Some((&number, bytes)) = message.split_first() else {
        return Ok(None);
    };
    let written = match number {
        OUTPUT => {
            let mut out = std::io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        ERRORS => {
            let mut out = std::io::stderr().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        CONTROL => {
            let words: Value = serde_json::from_slice(bytes).unwrap_or_default();
            if let Some(code) = words["exit"].as_i64() {
                return Ok(Some(Over::Exit(u8::try_from(code).unwrap_or(FAILED))));
            }
            if let Some(why) = words["gone"].as_str() {
                return Err(CliError::new(FAILED, "stream.gone", why));
            }
            Ok(())
        }
        _ => Ok(()),
    };
    match written {
        Ok(()) => Ok(None),
        // The reader of our output is gone, as with `| head`; there is nothing left to write for.
        Err(_) => Ok(Some(Over::Detached)),
    }
}

/// Finds Ctrl-P Ctrl-Q in what is typed, also when the two come apart.
#[derive(Debug, Default)]
struct DetachKeys {
    first_seen: bool,
}

impl DetachKeys {
    /// What to pass on, and whether the user leaves.
    fn sift(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(typed.len() + 1);
        for &byte in typed {
            if self.first_seen {
                self.first_seen = false;
                if byte == DETACH[1] {
                    return (passed, true);
                }
                passed.push(DETACH[0]);
            }
            if byte == DETACH[0] {
                self.first_seen = true;
            } else {
                passed.push(byte);
            }
        }
        (passed, false)
    }
}

pub(super) async fn logs(client: &HttpClient, request: &Logs) -> Result<u8, CliError> {
    let copy = copy_log(
        client,
        (
            request.session.session.as_str(),
            request.container.container.as_deref(),
        ),
        request.since,
        request.follow,
    );
    tokio::select! {
        done = copy => done.map(|()| 0),
        signal = interrupted() => signal.map(|()| INTERRUPTED),
    }
}

/// Copies the log of a container of a session, of the main one where none is named, to standard output. With `follow` it
/// goes on until the session is over, and over restarts of the server.
pub(super) async fn copy_log(
    client: &HttpClient,
    (id, container): (&str, Option<&str>),
    since: u64,
    follow: bool,
) -> Result<(), CliError> {
    let mut position = since;
    let mut away: Option<std::time::Instant> = None;
    loop {
        let follow_word = if follow { "&follow=1" } else { "" };
        let within =
            container.map_or_else(String::new, |name| format!("&container={}", encoded(name)));
        let path = format!(
            "{}/logs?since={position}{follow_word}{within}",
            values::path(id)
        );
        let broken = match client.flow(&path, Vec::new()).await {
            Ok(mut flow) => loop {
                match flow.next().await {
                    Ok(Some(bytes)) => {
                        away = None;
                        position += bytes.len() as u64;
                        let mut out = std::io::stdout().lock();
                        if out.write_all(&bytes).and_then(|()| out.flush()).is_err() {
                            return Ok(());
                        }
                    }
                    Ok(None) => return Ok(()),
                    Err(trouble) => break trouble,
                }
            },
            Err(trouble) => trouble,
        };
        if !follow || broken.exit != UNREACHABLE {
            return Err(broken);
        }
        let since = *away.get_or_insert_with(std::time::Instant::now);
        if since.elapsed() > MAX_RECONNECT {
            return Err(broken);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Listens here and leads every connection to a port inside, until Ctrl-C.
pub(super) async fn forward(
    client: &HttpClient,
    view: &OutputStyle,
    (session, container): (&str, Option<&str>),
    ports: &str,
) -> Result<u8, CliError> {
    let wrong = || {
        CliError::usage(format!("{ports:?} names no ports."))
            .hint("For example: 8888, or 9000:8888 for another local port.")
    };
    let (here, inside) = ports.split_once(':').unwrap_or((ports, ports));
    let here: u16 = here.parse().map_err(|_| wrong())?;
    let inside: u16 = inside.parse().map_err(|_| wrong())?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", here))
        .await
        .map_err(|e| {
            CliError::new(
                FAILED,
                "port.taken",
                format!("Port {here} cannot be opened here: {e}."),
            )
        })?;
    if view.for_humans() {
        let at = listener.local_addr().map_or(here, |a| a.port());
        complain(&format!(
            "127.0.0.1:{at} leads to port {inside} of {session}; Ctrl-C ends it\n"
        ));
    }
    let within = container.map_or_else(String::new, |name| format!("?container={}", encoded(name)));
    let path = format!("{}/ports/{inside}{within}", values::path(session));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            taken = listener.accept() => {
                let Ok((stream, _)) = taken else { continue };
                let (client, path) = (client.clone(), path.clone());
                connections.spawn(async move {
                    if let Err(trouble) = tunnel(&client, &path, stream).await {
                        complain(&trouble.written(false, false));
                    }
                });
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            signal = interrupted() => return signal.map(|()| 0),
        }
    }
}

async fn tunnel(
    client: &HttpClient,
    path: &str,
    mut stream: tokio::net::TcpStream,
) -> Result<(), CliError> {
    let socket = client.socket(path, "v1.tcp").await?;
    let (mut to, mut from) = socket.split();
    let mut buffer = vec![0; 16 << 10];
    let mut sending = true;
    loop {
        tokio::select! {
            read = stream.read(&mut buffer), if sending => match read {
                Ok(0) | Err(_) => {
                    sending = false;
                    // An empty message is the end of this direction.
                    let _ = to.send(Message::Binary(Bytes::new())).await;
                }
                Ok(count) => {
                    if to.send(Message::Binary(Bytes::copy_from_slice(&buffer[..count]))).await.is_err() {
                        return Ok(());
                    }
                }
            },
            message = from.next() => match message {
                Some(Ok(Message::Binary(bytes))) if bytes.is_empty() => {
                    let _ = stream.shutdown().await;
                }
                Some(Ok(Message::Binary(bytes))) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return Ok(());
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(()),
                Some(Ok(_)) => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detach_keys_are_found_together_and_apart() {
        let mut keys = DetachKeys::default();
        assert_eq!(keys.sift(b"ab\x10\x11c"), (b"ab".to_vec(), true));
        let mut keys = DetachKeys::default();
        assert_eq!(keys.sift(b"a\x10"), (b"a".to_vec(), false));
        assert_eq!(keys.sift(b"\x11"), (Vec::new(), true));
        let mut keys = DetachKeys::default();
        assert_eq!(keys.sift(b"\x10x\x10\x10"), (b"\x10x\x10".to_vec(), false));
    }

    #[test]
    fn an_exit_code_ends_the_stream() {
        let message = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
        assert_eq!(
            received(&message(b"\x02{\"exit\":7}")).expect("read"),
            Some(Over::Exit(7))
        );
        assert_eq!(received(&message(b"")).expect("read"), None);
        assert!(received(&message(b"\x02{\"gone\":\"why\"}")).is_err());
    }
}
