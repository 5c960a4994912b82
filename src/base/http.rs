//! Serves HTTP over byte streams, and asks over them. What the library makes for one sort of stream and body is made here, once
//! for all doors: this room is built for speed, and those of pages are built small. Never reads what a request asks for.

mod strict_lines;
pub mod upstream;

use std::convert::Infallible;
use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::sync::{Notify, watch};

use crate::link::streams::ByteStream;
use strict_lines::StrictLines;

/// Bytes of HTTP/1 that are kept for one connection, so the longest head of a request.
const HTTP1_BUFFER: usize = 64 << 10;
/// Requests that one HTTP/2 connection has under way. Lower: a page with many parts and streams waits.
const HTTP2_STREAMS: u32 = 32;
/// Bytes that a client may send ahead on one HTTP/2 connection, and on one stream of it. Higher: a flood
/// takes as much memory for each connection. Lower: uploads over long lines are slow.
const HTTP2_WINDOW: u32 = 256 << 10;
/// See `HTTP2_WINDOW`.
const HTTP2_STREAM_WINDOW: u32 = 128 << 10;
/// Bytes of answers that wait for one HTTP/2 stream, besides one piece. Higher: who reads nothing of many
/// streams holds more. Lower: downloads take more processor time.
const HTTP2_SEND: usize = 16 << 10;
/// How often a client with streams under way is asked whether it lives.
const HTTP2_ASK: Duration = Duration::from_secs(30);

/// What went wrong on a connection or in a body.
pub type HttpFault = Box<dyn Error + Send + Sync>;

/// A body of any kind, as it comes.
pub type StreamedBody = UnsyncBoxBody<Bytes, HttpFault>;

/// What comes later. The room that makes it also makes the code that it runs.
pub type HttpFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Answers the requests of one connection.
pub trait AnswersRequests: Send + Sync {
    /// Called when the head of a request is there.
    fn answer(self: Arc<Self>, request: Request<Incoming>) -> HttpFuture<Response<StreamedBody>>;
}

/// A body without a byte. It takes no memory.
pub fn empty() -> StreamedBody {
    StreamedBody::new(Empty::<Bytes>::new().map_err(|never: Infallible| match never {}))
}

/// What the end of a connection hangs on, besides its client.
pub struct HttpLife {
    /// Set once it carries something else than requests.
    pub upgraded: Arc<AtomicBool>,
    /// Rung when it should end after the answers under way.
    pub end: Arc<Notify>,
    /// The same for all connections, once it is true.
    pub leaving: watch::Receiver<bool>,
}

/// Serves one connection, HTTP/1.1 or HTTP/2 as the client speaks it, until it ends.
///
/// Errors: what broke it.
pub fn serve(
    stream: ByteStream,
    answering: Arc<dyn AnswersRequests>,
    mut life: HttpLife,
) -> HttpFuture<Result<(), HttpFault>> {
    Box::pin(async move {
        let stream = StrictLines::new(stream, life.upgraded);
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = Arc::clone(&answering).answer(request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let builder = builder();
        let mut connection =
            pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
        let mut told = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => return ended,
                _ = life.leaving.wait_for(|leave| *leave), if !told => {}
                () = life.end.notified(), if !told => {}
            }
            told = true;
            connection.as_mut().graceful_shutdown();
        }
    })
}

fn builder() -> Builder<Separately> {
    let mut builder = Builder::new(Separately);
    builder
        .http1()
        .timer(TokioTimer::new())
        .max_buf_size(HTTP1_BUFFER)
        // The book of connections ends slow heads and rests; a second timer would be set and put away for each request.
        .header_read_timeout(None::<Duration>);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS)
        .initial_connection_window_size(HTTP2_WINDOW)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW)
        .max_send_buf_size(HTTP2_SEND)
        .keep_alive_interval(HTTP2_ASK);
    builder
}

tokio::task_local! {
    /// Ends the stream of HTTP/2 that the running task serves, when it is rung.
    static STUCK: Arc<Notify>;
}

/// What ends the stream of HTTP/2 that the running task serves; None over HTTP/1.
pub fn stuck() -> Option<Arc<Notify>> {
    STUCK.try_with(Arc::clone).ok()
}

/// Runs each stream of HTTP/2 as a task that can be ended alone: a client that does not read one answer must
/// not cost others their connection, which a proxy may share among them.
#[derive(Clone, Copy)]
struct Separately;

impl<F> hyper::rt::Executor<F> for Separately
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let stuck = Arc::new(Notify::new());
        tokio::spawn(STUCK.scope(Arc::clone(&stuck), async move {
            tokio::select! {
                _ = stream => {}
                () = stuck.notified() => tracing::debug!("an answer was not read"),
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    /// Says the path that was asked for.
    struct SaysPath;

    impl AnswersRequests for SaysPath {
        fn answer(
            self: Arc<Self>,
            request: Request<Incoming>,
        ) -> HttpFuture<Response<StreamedBody>> {
            let path = Full::new(Bytes::from(request.uri().path().to_owned()));
            let body = StreamedBody::new(path.map_err(|never| match never {}));
            Box::pin(async move { Response::new(body) })
        }
    }

    /// Sends a request, and gives what came until the answer's end.
    async fn asked(client: &mut DuplexStream, head: &str, end: &str) -> String {
        client.write_all(head.as_bytes()).await.expect("taken");
        let mut said = String::new();
        while !said.ends_with(end) {
            said.push(char::from(client.read_u8().await.expect("it goes on")));
        }
        said
    }

    #[tokio::test]
    async fn a_connection_answers_until_it_is_told_to_end() {
        for is_leaving in [true, false] {
            let (mut client, ours) = duplex(64 << 10);
            let (leave, leaving) = watch::channel(false);
            let end = Arc::new(Notify::new());
            let life = HttpLife {
                upgraded: Arc::default(),
                end: Arc::clone(&end),
                leaving,
            };
            let served = tokio::spawn(serve(Box::new(ours), Arc::new(SaysPath), life));
            for path in ["/one", "/two"] {
                let head = format!("GET {path} HTTP/1.1\r\nhost: box\r\n\r\n");
                let said = asked(&mut client, &head, path).await;
                assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{said}");
            }
            match is_leaving {
                true => leave.send_modify(|leave| *leave = true),
                false => end.notify_one(),
            }
            let ended = served.await.expect("no panic");
            assert!(ended.is_ok(), "{ended:?}");
        }
    }

    #[tokio::test]
    async fn a_bare_lf_in_a_head_is_refused() {
        let (mut client, ours) = duplex(64 << 10);
        let (_leave, leaving) = watch::channel(false);
        let life = HttpLife {
            upgraded: Arc::default(),
            end: Arc::default(),
            leaving,
        };
        tokio::spawn(serve(Box::new(ours), Arc::new(SaysPath), life));
        let head = "GET / HTTP/1.1\nhost: box\r\n\r\n";
        let said = asked(&mut client, head, "\r\n\r\n").await;
        assert!(said.starts_with("HTTP/1.1 400 "), "{said}");
    }
}
