//! Streams into a session: terminal, commands, log, ports. Carries bytes between a WebSocket and the
//! link; never learns which machine answers.

use std::pin::pin;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use base::link::streams::{ByteStream, ExecRequest, LogStream, TermInput, TermOutput, TermStream};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{self, SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use rules::idleness::IdleAction;
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::SessionState;
use serde::Deserialize;
use serde_json::{Value, json};
use server::access::{Caller, InUse, Lease, lease};
use server::actions::break_glass::lease_into;
use server::actions::idle_rules::{IdleWarnings, Inside};
use server::actions::sessions::{self, EntryTicket};
use server::routes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Duration, MissedTickBehavior, interval};

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::QueryParameters;
use super::followers::held;
use super::responses::ApiResult;
use crate::doors::problem::ProblemResponse;
use crate::doors::text::{Language, Text};

/// Terminals: binary messages, first byte the channel.
pub(super) const TERMINAL: &str = "v1.term";
/// Ports: binary messages as they are; an empty one ends that direction.
pub(super) const PORT: &str = "v1.tcp";

const INPUT: u8 = 0;
const OUTPUT: u8 = 1;
const CONTROL: u8 = 2;
const ERRORS: u8 = 3;

/// Keeps connections through proxies and finds dead ones. Lower wakes phones; higher than a minute
/// and some proxies cut a quiet terminal.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long the other side of a stream that ended may take to close. Longer: a client that hangs keeps
/// its connection. Shorter: one on a busy machine misses the end.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long a client may take to hear that its leave has ended. Longer: a caller whose token was revoked
/// keeps the connection, though nothing flows on it any more.
const DISMISSAL: Duration = Duration::from_secs(1);
/// Output on its way to a client that tells how much it has drawn. More: what is drawn after Ctrl-C is older. Less: the
/// round trip to a far client is felt as slow output.
const MAX_UNDRAWN_BYTES: u64 = 16 << 10;
/// Largest message a client may send: a paste.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Longest command line or environment of one exec, all together.
const MAX_EXEC_BYTES: usize = 256 << 10;

type UpgradeResult = Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

pub(super) async fn attach(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    QueryParameters(pairs): QueryParameters<Vec<(String, String)>>,
    upgrade: UpgradeResult,
) -> ApiResult {
    let ticket = sessions::enter(&api.server, &caller, &id).await?;
    let ticket = ticket.within(container(&pairs))?;
    let upgrade = socket(upgrade, TERMINAL)?;
    let size = size(&pairs)?;
    let stream = api.streams.attach(ticket.container, size).await?;
    let lease = lease_into(&api.server, &caller, ticket.session);
    let inside = Inside::of(&api.server, ticket.container);
    Ok(terminal(
        &api,
        &caller,
        upgrade,
        (stream, lease),
        (inside, size.is_some()),
    ))
}

pub(super) async fn exec(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    QueryParameters(pairs): QueryParameters<Vec<(String, String)>>,
    upgrade: UpgradeResult,
) -> ApiResult {
    let ticket = sessions::enter(&api.server, &caller, &id).await?;
    let ticket = ticket.within(container(&pairs))?;
    let request = exec_request(&pairs)?;
    let upgrade = socket(upgrade, TERMINAL)?;
    let has_screen = request.tty.is_some();
    let stream = api.streams.exec(ticket.container, request).await?;
    let lease = lease_into(&api.server, &caller, ticket.session);
    let inside = Inside::of(&api.server, ticket.container);
    Ok(terminal(
        &api,
        &caller,
        upgrade,
        (stream, lease),
        (inside, has_screen),
    ))
}

pub(super) async fn port(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, port)): Path<(String, String)>,
    QueryParameters(pairs): QueryParameters<Vec<(String, String)>>,
    upgrade: UpgradeResult,
) -> ApiResult {
    let ticket = sessions::enter(&api.server, &caller, &id).await?;
    let ticket = ticket.within(container(&pairs))?;
    let port: u16 = port
        .parse()
        .ok()
        .filter(|p| *p > 0)
        .ok_or_else(refusals::port_invalid)?;
    let upgrade = socket(upgrade, PORT)?;
    let stream = api.streams.dial(ticket.container, port).await?;
    let lease = lease_into(&api.server, &caller, ticket.session);
    let inside = Inside::of(&api.server, ticket.container);
    let (server, container) = (api.server.clone(), ticket.container);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let over = routes::has_ended(&server, container);
        tunnel(socket, stream, lease, over).await;
        drop(inside);
    }))
}

/// An upgrade that speaks `protocol`, or the refusal of a request that is none.
fn socket(
    upgrade: UpgradeResult,
    protocol: &'static str,
) -> Result<WebSocketUpgrade, ProblemResponse> {
    match upgrade {
        Ok(upgrade) => Ok(upgrade
            .protocols([protocol])
            .max_message_size(MAX_MESSAGE_BYTES)),
        Err(_) => {
            let refusal = refusals::websocket_needed(protocol);
            Err(ProblemResponse::with_status(
                refusal,
                StatusCode::UPGRADE_REQUIRED,
            ))
        }
    }
}

/// The container that is asked for; None: the main one.
fn container(pairs: &[(String, String)]) -> Option<&str> {
    let mut named = pairs.iter().filter(|(name, _)| name == "container");
    named.next().map(|(_, value)| value.as_str())
}

fn size(pairs: &[(String, String)]) -> Result<Option<(u16, u16)>, Refusal> {
    let number = |wanted: &str| {
        pairs
            .iter()
            .find(|(name, _)| name == wanted)
            .map(|(_, value)| {
                value
                    .parse::<u16>()
                    .ok()
                    .filter(|n| *n > 0)
                    .ok_or_else(|| refusals::terminal_size().at(format!("/{wanted}")))
            })
            .transpose()
    };
    Ok(number("cols")?.zip(number("rows")?))
}

fn exec_request(pairs: &[(String, String)]) -> Result<ExecRequest, Refusal> {
    let mut request = ExecRequest {
        argv: Vec::new(),
        env: Vec::new(),
        cwd: None,
        user: None,
        tty: size(pairs)?,
        guest: None,
        background: None,
    };
    let mut total = 0;
    for (name, value) in pairs {
        total += value.len();
        rules::session::text(
            rules::session::TextField::Exec,
            &format!("/{name}"),
            value,
            MAX_EXEC_BYTES,
        )?;
        match name.as_str() {
            "command" => request.argv.push(value.clone()),
            "env" => {
                let (key, value) = value
                    .split_once('=')
                    .filter(|(k, _)| !k.is_empty())
                    .ok_or_else(|| refusals::env_not_an_assignment().at("/env"))?;
                request.env.push((key.to_owned(), value.to_owned()));
            }
            "cwd" => request.cwd = Some(value.clone()),
            "user" => request.user = Some(value.clone()),
            "cols" | "rows" | "container" => {}
            _ => {
                return Err(refusals::query_unknown().at(format!("/{name}")));
            }
        }
    }
    if total > MAX_EXEC_BYTES {
        return Err(refusals::exec_too_large());
    }
    if request.argv.first().is_some_and(String::is_empty) {
        return Err(refusals::exec_command_empty().at("/command"));
    }
    Ok(request)
}

fn terminal(
    api: &ApiContext,
    caller: &Caller,
    upgrade: WebSocketUpgrade,
    (stream, lease): (TermStream, Lease),
    (inside, has_screen): (Inside, bool),
) -> Response {
    let in_use = InUse::of(&api.server, caller);
    let user = TerminalUser {
        in_use,
        inside,
        warned_in: has_screen
            .then(|| Text::new(Language::from_code(&caller.language).unwrap_or_default())),
    };
    upgrade.on_upgrade(move |socket| pump(socket, stream, lease, user))
}

/// Who sits at a terminal.
struct TerminalUser {
    in_use: InUse,
    inside: Inside,
    /// The language of warnings; None where output goes to a program, which would take them for its own.
    warned_in: Option<Text>,
}

/// Carries a terminal both ways until one side ends. The two directions do not wait for each other: a
/// program that does not read must not keep its output back.
async fn pump(socket: WebSocket, stream: TermStream, lease: Lease, user: TerminalUser) {
    let TerminalUser {
        mut in_use,
        inside,
        warned_in,
    } = user;
    let mut warnings = inside.warnings();
    let (mut to, mut from) = socket.split();
    let TermStream { input, mut output } = stream;
    let (draws, mut drawn) = watch::channel(None::<u64>);
    let typed = async {
        while let Some(Ok(message)) = from.next().await {
            let sent = match message {
                Message::Binary(bytes) => match drawn_in(&bytes) {
                    Some(count) => {
                        draws.send_replace(Some(count));
                        continue;
                    }
                    None => typed_in(&bytes),
                },
                Message::Text(text) => control_in(text.as_bytes()),
                Message::Close(_) => return,
                Message::Ping(_) | Message::Pong(_) => None,
            };
            let Some(sent) = sent else {
                continue;
            };
            in_use.note();
            inside.typed();
            if input.send(sent).await.is_err() {
                // The process is over; its last words still go out.
                std::future::pending::<()>().await;
            }
        }
    };
    let shown = async {
        let mut ping = interval(PING_INTERVAL);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sent = 0;
        loop {
            let next = async {
                room(&mut drawn, sent).await;
                output.recv().await
            };
            let message = tokio::select! {
                out = next => out,
                line = warned(&mut warnings, warned_in) => Some(TermOutput::Stdout(line)),
                _ = ping.tick() => {
                    if to.send(Message::Ping(Bytes::new())).await.is_err() {
                        return;
                    }
                    continue;
                }
            };
            if let Some(TermOutput::Stdout(bytes) | TermOutput::Stderr(bytes)) = &message {
                sent += bytes.len() as u64;
            }
            if show(&mut to, message).await.is_break() {
                return;
            }
        }
    };
    let dismissed = tokio::select! {
        () = typed => return,
        () = shown => None,
        refusal = lease => Some(refusal),
    };
    if let Some(refusal) = dismissed {
        let why = control(&json!({"gone": refusal.text, "code": refusal.code}));
        dismiss(to, from, Some(why), &refusal).await;
        return;
    }
    // The other side may still be answering our ping. With no reader left for that answer its
    // connection breaks, and what it has not read yet, the exit code above all, is lost to it.
    let heard_out = async { while let Some(Ok(_)) = from.next().await {} };
    let _ = tokio::time::timeout(FAREWELL, heard_out).await;
}

/// Waits for the next warning of the session, in the language of who sits there; for ever where there is none.
async fn warned(warnings: &mut IdleWarnings, language: Option<Text>) -> Bytes {
    let Some(t) = language else {
        return std::future::pending().await;
    };
    let (action, minutes) = warnings.next().await;
    warning(t, action, minutes)
}

/// A line of its own on the screen: the program under it draws itself again when it wants.
fn warning(t: Text, action: IdleAction, minutes: u64) -> Bytes {
    let words = match action {
        IdleAction::Notice => t.idle_terminal_notice().to_owned(),
        IdleAction::Stop => t.idle_terminal_stop(minutes),
        IdleAction::Pause => t.idle_terminal_pause(minutes),
        IdleAction::Requeue => t.idle_terminal_requeue(minutes),
    };
    format!("\r\n\x1b[7m fardel: {words} \x1b[0m\r\n").into()
}

/// Waits until a client that tells how much it has drawn has room for more; at once for every other client.
async fn room(drawn: &mut watch::Receiver<Option<u64>>, sent: u64) {
    let full = |drawn: &Option<u64>| {
        drawn.is_some_and(|drawn| sent.saturating_sub(drawn) >= MAX_UNDRAWN_BYTES)
    };
    // Without its sender the client is gone, and the other direction ends the stream.
    let _ = drawn.wait_for(|drawn| !full(drawn)).await;
}

/// Closes a stream whose caller may go on no longer, saying why.
async fn dismiss(
    mut to: SplitSink<WebSocket, Message>,
    mut from: SplitStream<WebSocket>,
    words: Option<Message>,
    refusal: &Refusal,
) {
    let farewell = async {
        if let Some(words) = words
            && to.send(words).await.is_err()
        {
            return;
        }
        let close = CloseFrame {
            code: axum::extract::ws::close_code::POLICY,
            reason: refusal.code.clone().into(),
        };
        if to.send(Message::Close(Some(close))).await.is_ok() {
            while let Some(Ok(_)) = from.next().await {}
        }
    };
    // A client that does not read is disconnected.
    let _ = tokio::time::timeout(DISMISSAL, farewell).await;
}

/// Sends one piece; breaks after the last.
async fn show(
    to: &mut SplitSink<WebSocket, Message>,
    piece: Option<TermOutput>,
) -> std::ops::ControlFlow<()> {
    use axum::extract::ws::close_code;
    use std::ops::ControlFlow::{Break, Continue};
    // Only an end of the program closes normally; after a broken stream the client may come back.
    let (message, end) = match piece {
        Some(TermOutput::Stdout(bytes)) => (framed(OUTPUT, &bytes), None),
        Some(TermOutput::Stderr(bytes)) => (framed(ERRORS, &bytes), None),
        Some(TermOutput::Exit(code)) => {
            let words = control(&json!({"exit": code}));
            (words, Some(close_code::NORMAL))
        }
        Some(TermOutput::Gone(why)) => {
            let words = control(&json!({"gone": why}));
            (words, Some(close_code::AGAIN))
        }
        None => {
            let words = control(&json!({"gone": "The stream ended."}));
            (words, Some(close_code::AGAIN))
        }
    };
    if to.send(message).await.is_err() {
        return Break(());
    }
    let Some(code) = end else {
        return Continue(());
    };
    let close = CloseFrame {
        code,
        reason: "".into(),
    };
    let _ = to.send(Message::Close(Some(close))).await;
    Break(())
}

fn framed(channel: u8, bytes: &[u8]) -> Message {
    let mut message = BytesMut::with_capacity(bytes.len() + 1);
    message.put_u8(channel);
    message.put_slice(bytes);
    Message::Binary(message.freeze())
}

fn control(words: &Value) -> Message {
    framed(CONTROL, words.to_string().as_bytes())
}

fn typed_in(message: &Bytes) -> Option<TermInput> {
    match *message.first()? {
        INPUT => Some(TermInput::Bytes(message.slice(1..))),
        CONTROL => control_in(&message[1..]),
        // Channels that a client does not write to carry nothing.
        _ => None,
    }
}

/// How many bytes of output the client has drawn since the stream began, where a message says so.
fn drawn_in(message: &Bytes) -> Option<u64> {
    #[derive(Deserialize)]
    struct Drawn {
        drawn: u64,
    }
    let text = message.strip_prefix(&[CONTROL])?;
    Some(serde_json::from_slice::<Drawn>(text).ok()?.drawn)
}

fn control_in(text: &[u8]) -> Option<TermInput> {
    #[derive(Deserialize)]
    struct TerminalMessage {
        resize: Option<(u16, u16)>,
        #[serde(default)]
        close_input: bool,
    }
    let words: TerminalMessage = serde_json::from_slice(text).ok()?;
    match words.resize {
        Some((columns, rows)) if columns > 0 && rows > 0 => {
            Some(TermInput::Resize((columns, rows)))
        }
        Some(_) => None,
        None => words.close_input.then_some(TermInput::CloseInput),
    }
}

/// How a client's direction of a tunnel ends.
enum Inwards {
    /// The program hears no more; it may still say something.
    Unheard,
    /// The client closed, broke off or sent what is not taken.
    Gone,
}

/// Carries a TCP connection over a WebSocket, each direction on its own, until both have ended or the client
/// is gone: a program that is silent would otherwise keep the connection. Once the one from the session has ended, `over` ends
/// the other, too.
async fn tunnel(
    socket: WebSocket,
    stream: ByteStream,
    lease: Lease,
    over: impl Future<Output = ()>,
) {
    let (mut to, mut from) = socket.split();
    let (mut read, mut write) = tokio::io::split(stream);
    let inwards = async {
        while let Some(Ok(message)) = from.next().await {
            match message {
                Message::Binary(bytes) if bytes.is_empty() => {
                    if write.shutdown().await.is_err() {
                        return Inwards::Unheard;
                    }
                }
                Message::Binary(bytes) => {
                    if write.write_all(&bytes).await.is_err() {
                        return Inwards::Unheard;
                    }
                }
                Message::Close(_) => return Inwards::Gone,
                Message::Text(_) | Message::Ping(_) | Message::Pong(_) => {}
            }
        }
        Inwards::Gone
    };
    let outwards = async {
        let mut buffer = BytesMut::with_capacity(16 << 10);
        loop {
            buffer.reserve(16 << 10);
            match read.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => {
                    // The other side may still be sending to us.
                    let _ = to.send(Message::Binary(Bytes::new())).await;
                    return;
                }
                Ok(_) => {
                    let piece = buffer.split().freeze();
                    if to.send(Message::Binary(piece)).await.is_err() {
                        return;
                    }
                }
            }
        }
    };
    let carried = async {
        let (mut inwards, mut outwards) = (pin!(inwards), pin!(outwards));
        tokio::select! {
            end = &mut inwards => {
                if let Inwards::Unheard = end {
                    outwards.await;
                }
            }
            () = &mut outwards => {
                // Without its session nothing hears what the client may still send.
                tokio::select! {
                    _ = inwards => {}
                    () = over => return true,
                }
            }
        }
        false
    };
    let refusal = tokio::select! {
        is_over = carried => match is_over {
            true => refusals::container_not_running(),
            false => return,
        },
        refusal = lease => refusal,
    };
    dismiss(to, from, None, &refusal).await;
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LogQuery {
    /// First byte wanted.
    since: u64,
    /// `1` or `true`: stay until the session is over.
    follow: Option<String>,
    /// `main1` or `sub1`; the main one when left out.
    container: Option<String>,
}

pub(super) async fn logs(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    QueryParameters(query): QueryParameters<LogQuery>,
) -> ApiResult {
    let ticket = sessions::read_logs(&api.server, &caller, &id).await?;
    let ticket = ticket.within(query.container.as_deref())?;
    let follow = matches!(query.follow.as_deref(), Some("1" | "true" | ""));
    let place = match follow {
        true => Some(api.followers.enter(caller.subject.user)?),
        false => None,
    };
    let waits = ticket.state < SessionState::Running;
    let lease = lease(&api.server, &caller);
    let body = if waits && !follow {
        axum::body::Body::empty()
    } else if waits {
        let waiting = LogTail::Waiting {
            api: api.clone(),
            caller: Box::new(caller),
            id: ticket.session.to_string(),
            since: query.since,
            container: query.container,
        };
        axum::body::Body::from_stream(stream::unfold((waiting, lease), next_piece))
    } else {
        let log = api
            .streams
            .logs(ticket.container, query.since, follow)
            .await?;
        axum::body::Body::from_stream(stream::unfold((LogTail::Open(log), lease), next_piece))
    };
    let kind = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((kind, held(body, place)).into_response())
}

/// A log on its way: the session may not have begun to write.
enum LogTail {
    Waiting {
        api: ApiContext,
        caller: Box<Caller>,
        id: String,
        since: u64,
        container: Option<String>,
    },
    Open(LogStream),
    /// The reader may go on no longer.
    Dismissed,
}

type Piece = Result<Bytes, std::io::Error>;

async fn next_piece((reading, mut lease): (LogTail, Lease)) -> Option<(Piece, (LogTail, Lease))> {
    tokio::select! {
        biased;
        // Broken off, so that it is not taken for the whole log.
        refusal = &mut lease, if !matches!(reading, LogTail::Dismissed) => {
            let broken = std::io::Error::new(std::io::ErrorKind::PermissionDenied, refusal.to_string());
            Some((Err(broken), (LogTail::Dismissed, lease)))
        }
        piece = read_on(reading) => piece.map(|(piece, reading)| (piece, (reading, lease))),
    }
}

async fn read_on(reading: LogTail) -> Option<(Piece, LogTail)> {
    let mut log = match reading {
        LogTail::Open(log) => log,
        LogTail::Waiting {
            api,
            caller,
            id,
            since,
            container,
        } => begin(&api, &caller, &id, (since, container.as_deref())).await?,
        LogTail::Dismissed => return None,
    };
    let chunk = log.output.recv().await?;
    Some((Ok(chunk.bytes), LogTail::Open(log)))
}

/// Waits until there is a log; None where there will never be one.
async fn begin(
    api: &ApiContext,
    caller: &Caller,
    id: &str,
    (since, container): (u64, Option<&str>),
) -> Option<LogStream> {
    let mut revision = server::events::revision(&api.server);
    loop {
        revision.borrow_and_update();
        let ticket: EntryTicket = sessions::read_logs(&api.server, caller, id).await.ok()?;
        let ticket = ticket.within(container).ok()?;
        if ticket.state >= SessionState::Running {
            match api.streams.logs(ticket.container, since, true).await {
                Ok(log) => return Some(log),
                // It ended without a container, or its log is gone.
                Err(_) => return None,
            }
        }
        revision.changed().await.ok()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(words: &[(&str, &str)]) -> Vec<(String, String)> {
        words
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect()
    }

    #[test]
    fn an_exec_is_read_from_its_query() {
        let request = exec_request(&pairs(&[
            ("command", "sh"),
            ("command", ""),
            ("env", "A=1=2"),
            ("cols", "80"),
            ("rows", "24"),
            ("cwd", "/tmp"),
        ]))
        .expect("valid");
        assert_eq!(request.argv, ["sh", ""]);
        assert_eq!(request.env, [("A".to_owned(), "1=2".to_owned())]);
        assert_eq!(request.tty, Some((80, 24)));
        for wrong in [
            &[("cols", "0"), ("rows", "24")][..],
            &[("env", "A")],
            &[("command", "")],
            &[("command", "a\0b")],
            &[("what", "x")],
        ] {
            assert!(exec_request(&pairs(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_exec_has_its_largest() {
        let half = "x".repeat(128 << 10);
        let value = format!("A={}", &half[2..]);
        let all = [("command", half.as_str()), ("env", value.as_str())];
        assert!(exec_request(&pairs(&all)).is_ok());
        let more = exec_request(&pairs(&[&all[..], &[("cwd", "/")]].concat()));
        let refusal = more.expect_err("a byte more");
        assert_eq!(
            (refusal.code.as_str(), refusal.kind),
            ("exec.too-large", rules::refusal::RefusalKind::TooLarge)
        );
    }

    #[tokio::test]
    async fn output_waits_for_a_client_that_tells_how_much_it_has_drawn() {
        let (draws, mut drawn) = watch::channel(None);
        let soon = Duration::from_millis(50);
        // Clients that tell nothing are never waited for.
        room(&mut drawn, u64::MAX).await;
        draws.send_replace(Some(1000));
        room(&mut drawn, 999 + MAX_UNDRAWN_BYTES).await;
        let full = 1000 + MAX_UNDRAWN_BYTES;
        assert!(
            tokio::time::timeout(soon, room(&mut drawn, full))
                .await
                .is_err()
        );
        draws.send_replace(Some(1001));
        room(&mut drawn, full).await;
        let said = |bytes: &'static [u8]| drawn_in(&Bytes::from_static(bytes));
        assert_eq!(said(b"\x02{\"drawn\":17}"), Some(17));
        for other in [
            &b"\x02{\"resize\":[80,24]}"[..],
            b"\0{\"drawn\":17}",
            b"\x02{\"drawn\":-1}",
            b"",
        ] {
            assert_eq!(said(other), None, "{other:?}");
        }
    }

    #[test]
    fn messages_on_unknown_channels_carry_nothing() {
        let read = |bytes: &'static [u8]| typed_in(&Bytes::from_static(bytes));
        assert_eq!(read(b"\0ls\n"), Some(TermInput::Bytes("ls\n".into())));
        assert_eq!(
            read(b"\x02{\"resize\":[100,40]}"),
            Some(TermInput::Resize((100, 40)))
        );
        assert_eq!(
            read(b"\x02{\"close_input\":true}"),
            Some(TermInput::CloseInput)
        );
        for odd in [
            &b""[..],
            b"\x01x",
            b"\x09x",
            b"\x02{",
            b"\x02{\"resize\":[0,1]}",
        ] {
            assert_eq!(typed_in(&Bytes::copy_from_slice(odd)), None, "{odd:?}");
        }
    }
}
