//! Carries one request into an app and its answer back, each as it comes: nothing is held back, and no body has a limit.
//! A request without a body and its answer take no task but the one that serves the browser. A request that changes the
//! protocol becomes bytes both ways. All of it ends when its visit does.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Request, StatusCode, Uri, header};
use axum::response::Response;
use base::http::upstream::AppUpstream;
use base::http::{self, StreamedBody};
use base::link::streams::ByteStream;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use rules::app_origin::may_change_to;
use rules::refusal::Refusal;
use rules::refusals;
use server::{Server, routes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::headers::{ToApp, from_app};
use super::visits::{AppRoute, AppVisit, MAX_OPEN};
use super::{AppAddress, AppDoor};
use crate::doors::problem::ProblemResponse;

/// Bytes that are carried in one piece where the protocol has changed.
const PIECE: usize = 16 << 10;
/// How long one side may go on after the other has ended. Longer: sides that hang take the app's places. Shorter: the last
/// words of a slow program are lost.
const HALF_OPEN: Duration = Duration::from_secs(30);

/// Ready once the visit is over, with why.
type VisitEnd = Pin<Box<dyn Future<Output = Refusal> + Send>>;

/// Carries a request that was checked.
///
/// Errors: `app.connections-many`, `app.unreachable`, `app.answer-broken`, `app.leads-away`, and why the visit ended.
pub(super) async fn carry(
    door: &AppDoor,
    address: &AppAddress,
    visit: &Arc<AppVisit>,
    (mut parts, body): (Parts, Body),
    has_token: bool,
) -> Result<Response, ProblemResponse> {
    let route = &visit.route;
    let place = Arc::clone(&route.places).try_acquire_owned();
    let place = place.map_err(|_| refusals::app_connections_many(MAX_OPEN).retry_after(1))?;
    let browser = parts.extensions.remove::<OnUpgrade>();
    let upgrade = parts.headers.get(header::UPGRADE).cloned();
    // One that may not be changed to is an ordinary request.
    let upgrade =
        upgrade.filter(|protocol| browser.is_some() && protocol.to_str().is_ok_and(may_change_to));
    let to_app = ToApp {
        address,
        inner_port: route.inner_port,
        user: visit.caller.name.as_str(),
        has_token,
        upgrade: upgrade.as_ref(),
    };
    let of_another = |name: &str| {
        // Names separate cookies by themselves.
        address.app.is_none() && door.cookies.is_of_another(address.port, name)
    };
    let mut request = Request::new(match body.is_end_stream() {
        true => http::empty(),
        false => StreamedBody::new(body.map_err(Into::into)),
    });
    *request.headers_mut() = to_app.headers(&parts.headers, of_another);
    *request.method_mut() = parts.method;
    *request.uri_mut() = match parts.uri.path_and_query() {
        Some(path) => Uri::from(path.clone()),
        None => Uri::from_static("/"),
    };
    let mut over: VisitEnd = {
        let visit = Arc::clone(visit);
        Box::pin(async move { visit.over().await })
    };
    let (answer, upstream) = tokio::select! {
        biased;
        refusal = over.as_mut() => return Err(refusal.into()),
        answered = send(door, visit, request, upgrade.is_some()) => answered?,
    };
    let (mut said, body) = answer.into_parts();
    let (mut headers, cookies) = from_app(&said.headers, address, route.inner_port)?;
    if address.app.is_none() {
        let new = door.cookies.note(address.port, cookies);
        keep_cookies(door, address.port, new).await;
    }
    let body = if said.status == StatusCode::SWITCHING_PROTOCOLS {
        let app = said.extensions.remove::<OnUpgrade>();
        let (Some(browser), Some(app), Some(protocol)) = (browser, app, upgrade) else {
            return Err(refusals::app_answer_broken("it changed the protocol by itself").into());
        };
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        let other = said.headers.remove(header::UPGRADE);
        let asked = protocol.as_bytes();
        if other.is_some_and(|other| !other.as_bytes().eq_ignore_ascii_case(asked)) {
            return Err(refusals::app_answer_broken("it changed to another protocol").into());
        }
        let is_websocket = asked.eq_ignore_ascii_case(b"websocket");
        headers.insert(header::UPGRADE, protocol);
        let both = BothWays {
            server: door.server.clone(),
            visit: Arc::clone(visit),
            is_websocket,
            _place: place,
        };
        // Owned by its connections: it ends with either, or with the visit.
        tokio::spawn(both.carry(browser, app));
        Body::empty()
    } else {
        let mut carried = CarriedBody {
            body,
            upstream,
            route: Arc::clone(route),
            over: Some(over),
            _place: place,
        };
        if carried.body.is_end_stream() {
            carried.release();
        }
        Body::new(carried)
    };
    let mut response = Response::new(body);
    *response.status_mut() = said.status;
    *response.headers_mut() = headers;
    Ok(response)
}

async fn keep_cookies(door: &AppDoor, port: u16, new: Vec<String>) {
    if new.is_empty() {
        return;
    }
    if let Err(failure) = routes::keep_app_cookies(&door.server, port, new).await {
        tracing::warn!(port, error = %failure, "cookies of an app were not kept");
    }
}

/// Sends a request by a connection that waits for one, or by a new one. Gives the connection, too, where the answer has to
/// move it on.
async fn send(
    door: &AppDoor,
    visit: &Arc<AppVisit>,
    mut request: Request<StreamedBody>,
    is_upgrade: bool,
) -> Result<(Response<Incoming>, Option<AppUpstream>), ProblemResponse> {
    let route = &visit.route;
    if is_upgrade {
        let changed = AppUpstream::change(dial(door, route).await?, request).await;
        return Ok((changed.map_err(|error| broken(&error))?, None));
    }
    let mut waiting = route.waiting();
    loop {
        let was_used = waiting.is_some();
        let mut upstream = match waiting.take() {
            Some(upstream) => upstream,
            None => {
                let opened = AppUpstream::over(dial(door, route).await?).await;
                opened.map_err(|error| broken(&error))?
            }
        };
        let (answered, upstream) = if request.body().is_end_stream() {
            (upstream.ask(request).await, Some(upstream))
        } else {
            // The app takes the body at its own pace, whether the browser reads the answer or not.
            let answer = upstream.begin(request);
            // Owned by the connection: it ends with it, with the request, or with the visit.
            tokio::spawn(move_on(Arc::clone(visit), upstream));
            (answer.await, None)
        };
        match answered {
            Ok(answer) => return Ok((answer, upstream)),
            Err(mut error) => match error.take_message() {
                // The app closed it meanwhile; nothing of the request was sent.
                Some(unsent) if was_used => request = unsent,
                _ => return Err(broken(&error.into_error())),
            },
        }
    }
}

/// A stream to where the app listens.
async fn dial(door: &AppDoor, route: &AppRoute) -> Result<ByteStream, ProblemResponse> {
    let port = route.inner_port;
    let dialled = door.streams.dial(route.container, port).await;
    dialled.map_err(|_| refusals::app_unreachable(port).into())
}

/// Moves a connection on until its request and the answer are over, and keeps it for the next one.
async fn move_on(visit: Arc<AppVisit>, mut upstream: AppUpstream) {
    let is_ready = tokio::select! {
        is_ready = upstream.until_ready() => is_ready,
        _ = visit.over() => false,
    };
    if is_ready {
        visit.route.keep(upstream);
    }
}

fn broken(error: &hyper::Error) -> ProblemResponse {
    let refusal = refusals::app_answer_broken(error);
    ProblemResponse::with_status(refusal, StatusCode::BAD_GATEWAY)
}

/// An answer on its way to a browser, which breaks off when the visit is over.
struct CarriedBody {
    body: Incoming,
    /// The connection that it comes by, until all of it came. None where a task of its own moves that on.
    upstream: Option<AppUpstream>,
    route: Arc<AppRoute>,
    over: Option<VisitEnd>,
    _place: OwnedSemaphorePermit,
}

impl CarriedBody {
    /// Keeps the connection for the next request, where it can take one.
    fn release(&mut self) {
        if let Some(upstream) = self.upstream.take()
            && upstream.is_ready()
        {
            self.route.keep(upstream);
        }
    }
}

impl hyper::body::Body for CarriedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let Some(over) = &mut this.over else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(refusal) = over.as_mut().poll(context) {
            this.over = None;
            this.upstream = None;
            return Poll::Ready(Some(Err(axum::Error::new(refusal))));
        }
        let frame = match &mut this.upstream {
            Some(upstream) => ready!(upstream.poll_frame(context, &mut this.body)),
            None => ready!(Pin::new(&mut this.body).poll_frame(context)),
        };
        match frame {
            Some(Ok(frame)) => {
                let is_trailer = frame.is_trailers();
                if is_trailer || this.body.is_end_stream() {
                    this.release();
                }
                // Trailers are headers that nothing here has read.
                Poll::Ready((!is_trailer).then_some(Ok(frame)))
            }
            Some(Err(error)) => {
                this.upstream = None;
                Poll::Ready(Some(Err(axum::Error::new(error))))
            }
            None => {
                this.release();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that speaks another protocol now.
struct BothWays {
    server: Server,
    visit: Arc<AppVisit>,
    is_websocket: bool,
    _place: OwnedSemaphorePermit,
}

impl BothWays {
    async fn carry(self, browser: OnUpgrade, app: OnUpgrade) {
        let (browser, app) = match tokio::try_join!(browser, app) {
            Ok(both) => both,
            Err(error) => return tracing::debug!(%error, "a protocol was not changed"),
        };
        let (mut from_browser, mut to_browser) = tokio::io::split(TokioIo::new(browser));
        let (mut from_app, mut to_app) = tokio::io::split(TokioIo::new(app));
        let up = async {
            let mut frames = ClientFrames::default();
            let mut piece = vec![0; PIECE];
            loop {
                let count = match from_browser.read(&mut piece).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => count,
                };
                if !self.is_websocket || frames.bring_data(&piece[..count]) {
                    self.visit.note_activity(&self.server);
                }
                let sent = to_app.write_all(&piece[..count]).await;
                if sent.is_err() || to_app.flush().await.is_err() {
                    break;
                }
            }
            let _ = to_app.shutdown().await;
        };
        let down = async {
            let _ = tokio::io::copy(&mut from_app, &mut to_browser).await;
            let _ = to_browser.shutdown().await;
        };
        let both = async {
            let (mut up, mut down) = (pin!(up), pin!(down));
            tokio::select! {
                () = up.as_mut() => drop(timeout(HALF_OPEN, down).await),
                () = down.as_mut() => drop(timeout(HALF_OPEN, up).await),
            }
        };
        tokio::select! {
            () = both => {}
            refusal = self.visit.over() => tracing::debug!(code = refusal.code, "a socket of an app was closed"),
        }
    }
}

/// Where a stream of WebSocket frames stands. What a user does sends data; what keeps a connection open does not.
#[derive(Debug, Default)]
struct ClientFrames {
    /// The head of the next frame, as far as it came.
    head: Vec<u8>,
    /// Bytes of the present frame that are still to come.
    rest: u64,
}

impl ClientFrames {
    /// Whether a frame with data begins in these bytes.
    fn bring_data(&mut self, mut bytes: &[u8]) -> bool {
        let mut brings = false;
        while let Some((first, others)) = bytes.split_first() {
            if self.rest > 0 {
                let here = usize::try_from(self.rest)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                self.rest -= here as u64;
                bytes = &bytes[here..];
                continue;
            }
            self.head.push(*first);
            bytes = others;
            if let Some((is_data, length)) = frame(&self.head) {
                brings |= is_data;
                self.rest = length;
                self.head.clear();
            }
        }
        brings
    }
}

/// Whether a frame carries data, and how much follows its head; None for a head that is not whole.
///
/// Rule: RFC 6455 section 5.2.
fn frame(head: &[u8]) -> Option<(bool, u64)> {
    let (first, second) = (*head.first()?, *head.get(1)?);
    let short = second & 0x7f;
    let wide = match short {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    if head.len() < 2 + wide + mask {
        return None;
    }
    let length = match wide {
        0 => u64::from(short),
        _ => head[2..2 + wide]
            .iter()
            .fold(0, |sum, byte| (sum << 8) | u64::from(*byte)),
    };
    Some((first & 0x0f < 8, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A masked frame of a client.
    fn sent(opcode: u8, length: usize) -> Vec<u8> {
        let mut bytes = vec![0x80 | opcode];
        match length {
            0..126 => bytes.push(0x80 | length as u8),
            _ => {
                bytes.push(0x80 | 126);
                bytes.extend((length as u16).to_be_bytes());
            }
        }
        bytes.extend([1, 2, 3, 4]);
        // What lies in it looks like the head of a frame with data.
        bytes.extend(vec![0x81; length]);
        bytes
    }

    #[test]
    fn pings_are_no_activity_and_data_is() {
        let (text, ping, pong) = (1, 9, 10);
        for piece in [1, 3, 1000] {
            let mut frames = ClientFrames::default();
            let mut heard = |bytes: Vec<u8>| {
                let brought: Vec<bool> = bytes
                    .chunks(piece)
                    .map(|bytes| frames.bring_data(bytes))
                    .collect();
                brought.contains(&true)
            };
            assert!(!heard(sent(ping, 4)));
            assert!(!heard(sent(pong, 0)));
            assert!(heard(sent(text, 5)));
            assert!(!heard(sent(ping, 125)));
            assert!(heard(sent(text, 300)));
            assert!(heard([sent(pong, 7), sent(text, 0)].concat()));
        }
    }
}
