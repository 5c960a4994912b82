//! Serves the network: TLS in front of the console, plain HTTP that only shows the way there, and the
//! second origin, where nothing is served yet. Never reads what a request asks for.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use crate::doors::pages::visit::Encrypted;
use crate::doors::peer::Peer;

/// How long somebody may take to shake hands, and to send the headers of a request.
const PATIENCE: Duration = Duration::from_secs(15);
/// Connections that one port holds at once. Higher: a flood takes the memory of the sessions. Lower: a
/// class of eighty with six tabs each waits.
const MOST_CONNECTIONS: usize = 2048;

/// What a port is for.
#[derive(Clone)]
pub(super) enum Purpose {
    /// Pages and the API.
    Console(Router),
    /// People's own apps: nothing yet.
    Apps,
    /// The way to the console at this port, and nothing else.
    Way { to: u16 },
}

/// Serves one port until `leaving`, then lets answers under way go out. With `tls` whoever speaks plain
/// HTTP is shown the way to HTTPS on the same port.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    purpose: Purpose,
    mut leaving: watch::Receiver<bool>,
) {
    let own = listener.local_addr().map_or(0, |address| address.port());
    let acceptor = tls.map(TlsAcceptor::from);
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else {
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
                tracing::debug!(%error, "a connection was not taken");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (acceptor, purpose, watcher) = (acceptor.clone(), purpose.clone(), graceful.watcher());
        tokio::spawn(async move {
            receive(stream, peer, acceptor, purpose, own, watcher).await;
            drop(place);
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

async fn receive(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    purpose: Purpose,
    own: u16,
    watcher: Watcher,
) {
    // Keystrokes are small; waiting to fill a packet makes a terminal feel far away.
    let _ = stream.set_nodelay(true);
    let here = stream
        .local_addr()
        .map_or(peer.ip(), |address| address.ip());
    let Some(acceptor) = acceptor else {
        return speak(stream, peer, here, purpose, false, watcher).await;
    };
    /// The first byte of a TLS connection: a record of a handshake.
    const HANDSHAKE: u8 = 0x16;
    let mut first = [0u8; 1];
    match tokio::time::timeout(PATIENCE, stream.peek(&mut first)).await {
        Ok(Ok(1)) if first[0] == HANDSHAKE => {}
        Ok(Ok(1)) => {
            return speak(stream, peer, here, Purpose::Way { to: own }, false, watcher).await;
        }
        _ => return,
    }
    match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => speak(stream, peer, here, purpose, true, watcher).await,
        // Whoever does not trust this machine yet ends the handshake; that is no news.
        Ok(Err(error)) => tracing::debug!(%peer, %error, "no handshake"),
        Err(_) => tracing::debug!(%peer, "a handshake took too long"),
    }
}

/// Answers the requests of one connection.
async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    here: IpAddr,
    purpose: Purpose,
    encrypted: bool,
    watcher: Watcher,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let purpose = purpose.clone();
        async move {
            let head = request.method() == Method::HEAD;
            let mut response = match purpose {
                Purpose::Console(mut app) => {
                    let request = dressed(request.map(Body::new), peer, encrypted);
                    app.call(request).await.into_response()
                }
                Purpose::Apps => nothing_served(),
                Purpose::Way { to } => way(&request, here, to),
            };
            if head {
                // HTTP/2 takes a body behind a HEAD for a broken server.
                *response.body_mut() = Body::empty();
            }
            Ok::<Response, Infallible>(response)
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE);
    builder.http2().timer(TokioTimer::new());
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection.into_owned()).await {
        tracing::debug!(%peer, %error, "a connection broke");
    }
}

/// Says who asks and how, where doors look for it.
fn dressed(mut request: Request<Body>, peer: SocketAddr, encrypted: bool) -> Request<Body> {
    request.extensions_mut().insert(Peer::Tcp(peer));
    if encrypted {
        request.extensions_mut().insert(Encrypted);
    }
    // HTTP/2 names the host beside the headers; doors ask the header.
    if !request.headers().contains_key(header::HOST)
        && let Some(authority) = request.uri().authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(header::HOST, host);
    }
    request
}

/// The second origin until apps are served: a no that no page can do anything with.
fn nothing_served() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'; sandbox",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (StatusCode::NOT_FOUND, headers, "No app is served here.\n").into_response()
}

/// Leads to the same place over HTTPS. Nothing but a look is led on: whoever sent a password has sent it
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
