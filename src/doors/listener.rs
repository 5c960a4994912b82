//! Serves the network: TLS in front of the console and of the origins of apps, and plain HTTP that only shows the way to
//! the console. Never reads what a request asks for.

mod bodies;
mod connections;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base::http::{self, AnswersRequests, HttpFault, HttpFuture, HttpLife, StreamedBody};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use rules::names::UserId;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use crate::doors::admission::{Admission, Admits};
use crate::doors::host;
use crate::doors::peer::{Encrypted, OwnPort, Peer};
use crate::doors::problem::{self, ProblemResponse, RefusalReader};
use crate::doors::text::{Text, codes};
use bodies::{Bodies, BodyAccount, MeteredBody};
use connections::{ConnectionHandle, Connections, CountedConnection};

/// The longest piece in which an answer is handed to HTTP/2, which takes each whole, however little of it the
/// client's window has room for.
const PIECE: usize = 16 << 10;
/// The longest last piece. Once it is handed over the request counts as answered, and what a client keeps its
/// window shut for is held until the connection ends.
const LAST_PIECE: usize = 1 << 10;

/// What answers at the origins of apps. No router leads there: each request of such a port is for one place.
pub(crate) trait ServesApps: Send + Sync {
    fn serve(
        self: Arc<Self>,
        request: Request<Body>,
    ) -> Pin<Box<dyn Future<Output = Response> + Send>>;
}

/// What a port is for.
#[derive(Clone)]
pub(crate) enum Purpose {
    /// Pages and the API.
    Console(Router),
    /// Users' own apps.
    Apps(Arc<dyn ServesApps>),
    /// The way to the console at this port, and nothing else.
    Way { to: u16 },
}

/// What all ports share.
#[derive(Clone)]
pub(crate) struct PortLimits {
    pub(crate) connections: Arc<Connections>,
    pub(crate) bodies: Arc<Bodies>,
}

impl PortLimits {
    pub(crate) fn new() -> Self {
        Self {
            connections: Connections::new(),
            bodies: Arc::default(),
        }
    }
}

/// Serves one port until `leaving`, then lets answers under way go out. With `tls` a client that speaks plain
/// HTTP is shown the way to HTTPS on the same port.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    purpose: Purpose,
    limits: PortLimits,
    mut leaving: watch::Receiver<bool>,
) {
    let own = listener.local_addr().map_or(0, |address| address.port());
    let acceptor = tls.map(TlsAcceptor::from);
    // Nothing is ever sent: it is closed when the last connection has let go of it.
    let (open, mut closed) = mpsc::channel::<Infallible>(1);
    loop {
        let Some(permit) = limits.connections.room().await else {
            break;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = leaving.wait_for(|leave| *leave) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, or the other side has gone: neither is over sooner by haste.
                tracing::debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        // Keystrokes are small; waiting to fill a packet makes a terminal feel far away.
        let _ = stream.set_nodelay(true);
        let here = stream
            .local_addr()
            .map_or(peer.ip(), |address| address.ip());
        let seated = limits.connections.enter(stream, peer, permit);
        let caller = ConnectionPeer {
            line: seated.line(),
            bodies: Arc::clone(&limits.bodies),
            peer,
            here,
            own,
            purpose: purpose.clone(),
            encrypted: false,
            upgraded: Arc::default(),
        };
        let (acceptor, leaving, open) = (acceptor.clone(), leaving.clone(), open.clone());
        tokio::spawn(async move {
            receive(seated, acceptor, caller, leaving).await;
            drop(open);
        });
    }
    drop(listener);
    drop(open);
    let _ = closed.recv().await;
}

/// The other end of one connection, and what it is served.
struct ConnectionPeer {
    line: ConnectionHandle,
    bodies: Arc<Bodies>,
    peer: SocketAddr,
    /// The address of this machine that was called.
    here: IpAddr,
    /// The port of this machine that was called.
    own: u16,
    purpose: Purpose,
    encrypted: bool,
    /// Set once the connection carries something else than requests.
    upgraded: Arc<AtomicBool>,
}

async fn receive(
    seated: CountedConnection,
    acceptor: Option<TlsAcceptor>,
    mut caller: ConnectionPeer,
    leaving: watch::Receiver<bool>,
) {
    let Some(acceptor) = acceptor else {
        return speak(seated, caller, leaving).await;
    };
    /// The first byte of a TLS connection: a record of a handshake.
    const HANDSHAKE: u8 = 0x16;
    let mut first = [0u8; 1];
    // Silence here and below ends when the book of connections closes the socket.
    match seated.stream().peek(&mut first).await {
        Ok(1) if first[0] == HANDSHAKE => {}
        Ok(1) => {
            caller.purpose = Purpose::Way { to: caller.own };
            return speak(seated, caller, leaving).await;
        }
        _ => return,
    }
    caller.line.further();
    let peer = caller.peer;
    match acceptor.accept(seated).await {
        Ok(stream) => {
            caller.line.further();
            caller.encrypted = true;
            speak(stream, caller, leaving).await;
        }
        // A client that does not trust this machine yet ends the handshake; that is normal.
        Err(error) => tracing::debug!(%peer, %error, "TLS handshake failed"),
    }
}

/// Answers the requests of one connection.
async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    caller: ConnectionPeer,
    leaving: watch::Receiver<bool>,
) {
    let peer = caller.peer;
    let life = HttpLife {
        upgraded: Arc::clone(&caller.upgraded),
        end: caller.line.end(),
        leaving,
    };
    if let Err(error) = http::serve(Box::new(stream), Arc::new(caller), life).await {
        tracing::debug!(%peer, %error, "a connection broke");
    }
}

impl AnswersRequests for ConnectionPeer {
    fn answer(self: Arc<Self>, request: Request<Incoming>) -> HttpFuture<Response<StreamedBody>> {
        let serving = self.line.request();
        Box::pin(respond(self, request, serving))
    }
}

/// Answers one request of any kind.
async fn respond(
    caller: Arc<ConnectionPeer>,
    request: Request<Incoming>,
    serving: connections::ActiveRequest,
) -> Response<StreamedBody> {
    let head = request.method() == Method::HEAD;
    let stuck = http::stuck();
    let named = host::of(request.version(), request.uri(), request.headers());
    let mut response = match (named, &caller.purpose) {
        (Err(refusal), _) => refused(&refusal.into(), &RefusalReader::of(request.headers())),
        (Ok(_), Purpose::Way { to }) => way(&request, caller.here, *to),
        (Ok(named), Purpose::Console(app)) => {
            let (request, kept) = KeptOfRequest::of(&caller, request, named);
            kept.answered(app.clone().call(request).await.into_response())
        }
        (Ok(named), Purpose::Apps(apps)) => {
            let (request, kept) = KeptOfRequest::of(&caller, request, named);
            kept.answered(Arc::clone(apps).serve(request).await)
        }
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        caller.line.upgraded();
        caller.upgraded.store(true, Ordering::Release);
    }
    if head {
        // HTTP/2 takes a body behind a HEAD for a broken server.
        *response.body_mut() = Body::empty();
    }
    response.map(|body| {
        StreamedBody::new(Answering {
            body,
            stuck,
            rest: Bytes::new(),
            serving,
        })
    })
}

/// What is kept of a request while it is answered.
struct KeptOfRequest {
    account: Arc<BodyAccount>,
    reader: RefusalReader,
}

impl KeptOfRequest {
    /// Makes a request ready for the doors.
    fn of(
        caller: &ConnectionPeer,
        request: Request<Incoming>,
        named: Option<HeaderValue>,
    ) -> (Request<Body>, Self) {
        let account = caller
            .bodies
            .account(connections::counted(caller.peer.ip()));
        let reader = RefusalReader::of(request.headers());
        let mut request =
            request.map(|body| Body::new(MeteredBody::new(body, Arc::clone(&account))));
        dress(&mut request, caller, &account, named);
        (request, Self { account, reader })
    }

    /// What a door answered, where the body was not refused.
    fn answered(&self, response: Response) -> Response {
        match self.account.refused() {
            // What the handler made of a body that broke off is not the reason.
            Some(problem) => refused(&problem, &self.reader),
            None => response,
        }
    }
}

/// Listens for the proof of one request's caller.
struct Ear {
    line: ConnectionHandle,
    account: Arc<BodyAccount>,
}

impl Admits for Ear {
    fn proven(&self, user: UserId) {
        self.line.known(user);
        self.account.proven(user);
    }
}

/// A refusal of the listener itself: a sentence for browsers, a problem document for programs.
fn refused(problem: &ProblemResponse, reader: &RefusalReader) -> Response {
    let language = reader.language();
    let id = uuid::Uuid::now_v7().to_string();
    let mut response = problem::answer(problem, &id, language);
    if reader.is_browser() {
        let said = codes::refusal(Text::new(language), &problem.refusal);
        *response.body_mut() = Body::from(format!("{said}\n"));
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
    }
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", id);
    }
    response
}

/// An answer on its way; until its last piece is handed over the connection is at work.
struct Answering {
    body: Body,
    /// Rung when the client did not take it in time. None over HTTP/1: the kernel closes a socket of which
    /// nothing is taken.
    stuck: Option<Arc<Notify>>,
    /// What the body gave and was not handed over yet.
    rest: Bytes,
    serving: connections::ActiveRequest,
}

/// Takes the next piece off; the last is a copy, which keeps nothing else of the answer in memory.
fn piece(rest: &mut Bytes) -> Bytes {
    match rest.len().saturating_sub(LAST_PIECE) {
        0 => Bytes::copy_from_slice(&std::mem::take(rest)),
        more => rest.split_to(more.min(PIECE)),
    }
}

impl hyper::body::Body for Answering {
    type Data = Bytes;
    type Error = HttpFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpFault>>> {
        let this = &mut *self;
        let Some(stuck) = &this.stuck else {
            let frame = Pin::new(&mut this.body).poll_frame(context);
            return frame.map_err(HttpFault::from);
        };
        if this.rest.is_empty() {
            let frame = match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(end) => return Poll::Ready(end).map_err(HttpFault::from),
                Poll::Pending => {
                    this.serving.taken();
                    return Poll::Pending;
                }
            };
            match frame.into_data() {
                Ok(data) => this.rest = data,
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
        // The next is asked for when this one was taken.
        this.serving.lies_ready(stuck);
        Poll::Ready(Some(Ok(Frame::data(piece(&mut this.rest)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower() + rest);
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

/// Says who asks and how, where doors look for it.
fn dress(
    request: &mut Request<Body>,
    caller: &ConnectionPeer,
    account: &Arc<BodyAccount>,
    named: Option<HeaderValue>,
) {
    // HTTP/2 names the host beside the headers; doors ask the header.
    if let Some(named) = named {
        request.headers_mut().insert(header::HOST, named);
    }
    let extensions = request.extensions_mut();
    extensions.insert(Peer::Tcp(caller.peer));
    extensions.insert(OwnPort(caller.own));
    if caller.encrypted {
        extensions.insert(Encrypted);
    }
    extensions.insert(Admission(Arc::new(Ear {
        line: caller.line.clone(),
        account: Arc::clone(account),
    })));
}

/// Leads to the same place over HTTPS. Only reads are redirected: a client that sent a password has sent it
/// to everybody on the network already, and should see that.
///
/// The answer is not for keeping, and there is no Strict-Transport-Security anywhere: a machine that is
/// founded again has another authority, and its console must stay reachable by clicking on.
fn way(request: &Request<Incoming>, here: IpAddr, to: u16) -> Response {
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<Authority>().ok())
        .filter(|authority| !authority.as_str().contains('@'))
        .map(|authority| authority.host().to_owned())
        .filter(|host| !host.is_empty())
        .unwrap_or_else(|| match here {
            IpAddr::V4(four) => four.to_string(),
            IpAddr::V6(six) => format!("[{six}]"),
        });
    let port = if to == 443 {
        String::new()
    } else {
        format!(":{to}")
    };
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let place = format!("https://{host}{port}{path}");
    let closed = [
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
        (header::CONNECTION, "close"),
    ];
    let looking = matches!(*request.method(), Method::GET | Method::HEAD);
    match HeaderValue::from_str(&place) {
        Ok(location) if looking => {
            let text = format!("This machine speaks HTTPS: {place}\n");
            (
                StatusCode::TEMPORARY_REDIRECT,
                [(header::LOCATION, location)],
                closed,
                text,
            )
                .into_response()
        }
        _ => {
            let text = format!(
                "This machine speaks HTTPS only, at https://{host}{port}/. What was sent here crossed the network unencrypted: if it held a password or a token, change it.\n"
            );
            (StatusCode::FORBIDDEN, closed, text).into_response()
        }
    }
}
