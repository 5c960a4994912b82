//! One HTTP/1.1 connection to an app. It has no task of its own where a request has no body: the task that reads the answer
//! moves it on, so no other is woken on the way, and the head of a short answer leaves together with its body. Never asks
//! who may use it, and never opens one.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

use super::{HttpFuture, StreamedBody};
use crate::link::streams::ByteStream;

/// Bytes of the longest head of an answer.
const MAX_HEAD: usize = 64 << 10;
/// How often a connection that goes on at once is moved on before others have their turn. Higher: an app that sends much
/// holds up all others. Lower: a request wakes its own task.
const MAX_TURNS: usize = 8;

/// The answer to a request; the request itself where nothing of it was sent.
pub type AppAnswer = Result<Response<Incoming>, Box<TrySendError<Request<StreamedBody>>>>;

/// A connection to an app.
pub struct AppUpstream {
    sender: SendRequest<StreamedBody>,
    mover: UpstreamMover,
}

impl AppUpstream {
    /// Speaks HTTP over a stream; nothing is sent yet.
    pub fn over(stream: ByteStream) -> HttpFuture<hyper::Result<Self>> {
        Box::pin(async move {
            let (sender, connection) = builder().handshake(TokioIo::new(stream)).await?;
            let bell = Arc::new(UpstreamBell::default());
            let waker = Waker::from(Arc::clone(&bell));
            let mover = UpstreamMover {
                connection: Some(Box::new(connection)),
                bell,
                waker,
            };
            Ok(Self { sender, mover })
        })
    }

    /// Sends a request that asks for another protocol over a stream of its own.
    pub fn change(
        stream: ByteStream,
        request: Request<StreamedBody>,
    ) -> HttpFuture<hyper::Result<Response<Incoming>>> {
        Box::pin(async move {
            let (mut sender, connection) = builder().handshake(TokioIo::new(stream)).await?;
            // Owned by the connection: it ends when that is dropped or closed.
            tokio::spawn(async move {
                if let Err(error) = connection.with_upgrades().await {
                    tracing::debug!(%error, "a connection to an app broke");
                }
            });
            sender.send_request(request).await
        })
    }

    /// Sends a request and moves on until the head of its answer is there.
    pub async fn ask(&mut self, request: Request<StreamedBody>) -> AppAnswer {
        let mut answer = pin!(self.begin(request));
        let mover = &mut self.mover;
        poll_fn(|context| mover.poll(context, |heard| answer.as_mut().poll(heard))).await
    }

    /// Sends a request. Its answer comes as the connection is moved on elsewhere: by `until_ready`.
    pub fn begin(
        &mut self,
        request: Request<StreamedBody>,
    ) -> impl Future<Output = AppAnswer> + Send + use<> {
        let answer = self.sender.try_send_request(request);
        async move { answer.await.map_err(Box::new) }
    }

    /// Moves on until it can take another request; false where it has ended.
    pub async fn until_ready(&mut self) -> bool {
        let Self { sender, mover } = self;
        poll_fn(|context| {
            mover.poll(context, |_| match (sender.is_closed(), sender.is_ready()) {
                (true, _) => Poll::Ready(false),
                (false, true) => Poll::Ready(true),
                (false, false) => Poll::Pending,
            })
        })
        .await
    }

    /// Moves on until a piece of an answer is there that came by it.
    pub fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
        answer: &mut Incoming,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        self.mover
            .poll(context, |heard| Pin::new(&mut *answer).poll_frame(heard))
    }

    /// Whether it can take another request.
    pub fn is_ready(&self) -> bool {
        self.mover.connection.is_some() && self.sender.is_ready()
    }

    /// Looks at one that rests: false where the app has closed it, or sends what was not asked for.
    pub fn rests(&mut self) -> bool {
        self.mover.move_on();
        self.is_ready()
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.max_buf_size(MAX_HEAD);
    builder
}

/// What moves a connection on.
struct UpstreamMover {
    /// None once it has ended.
    connection: Option<Box<Connection<TokioIo<ByteStream>, StreamedBody>>>,
    bell: Arc<UpstreamBell>,
    /// Rings the bell.
    waker: Waker,
}

impl UpstreamMover {
    /// Looks, and moves on between two looks, until something is found or the app is waited for.
    fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        mut look: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        for _ in 0..MAX_TURNS {
            // What rings from here on is heard below, so no task is to be woken for it.
            drop(self.bell.task.take());
            let _ = self.bell.has_rung.swap(false, Ordering::SeqCst);
            // A look may ask for more: the connection hears of it in the same turn.
            let found = look(&mut Context::from_waker(&self.waker));
            if found.is_ready() {
                return found;
            }
            self.move_on();
            let found = look(&mut Context::from_waker(&self.waker));
            if found.is_ready() {
                return found;
            }
            self.bell.task.register(context.waker());
            // It may have rung before the task was known to it.
            if !self.bell.has_rung.load(Ordering::SeqCst) {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads and writes what can be read and written now. Once it has ended all that waits for it hears so.
    fn move_on(&mut self) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let moved = Pin::new(&mut **connection).poll(&mut Context::from_waker(&self.waker));
        let Poll::Ready(ended) = moved else {
            return;
        };
        self.connection = None;
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection to an app broke");
        }
    }
}

/// Rings when a connection can go on. It stays the same while requests of many tasks use the connection, one after the other.
#[derive(Default)]
struct UpstreamBell {
    has_rung: AtomicBool,
    /// The task that waits; None while it looks, and while the connection rests.
    task: AtomicWaker,
}

impl Wake for UpstreamBell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Ordering::SeqCst);
        self.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::super::{HttpFault, empty};
    use super::*;

    /// A connection, and the app's end of it.
    async fn connected() -> (AppUpstream, DuplexStream) {
        let (ours, app) = duplex(64 << 10);
        let upstream = AppUpstream::over(Box::new(ours)).await;
        (upstream.expect("it speaks"), app)
    }

    fn request(path: &str) -> Request<StreamedBody> {
        let request = Request::get(path).header("host", "localhost:1");
        request.body(empty()).expect("a request")
    }

    /// The head of the next request as the app reads it.
    async fn heard(app: &mut DuplexStream) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(app.read_u8().await.expect("it goes on"));
        }
        String::from_utf8(head).expect("text")
    }

    /// The next piece of an answer; None at its end.
    async fn piece(upstream: &mut AppUpstream, answer: &mut Incoming) -> Option<Bytes> {
        let frame = poll_fn(|context| upstream.poll_frame(context, answer)).await;
        frame.map(|frame| frame.expect("whole").into_data().expect("data"))
    }

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Woken(std::sync::atomic::AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn requests_follow_one_another_on_a_connection() {
        let (mut upstream, mut app) = connected().await;
        let served = tokio::spawn(async move {
            for (path, answer) in [
                ("/length", "content-length: 2\r\n\r\nhi"),
                (
                    "/chunks",
                    "transfer-encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n",
                ),
                ("/empty", "content-length: 0\r\n\r\n"),
            ] {
                let head = heard(&mut app).await;
                assert!(
                    head.starts_with(&format!("GET {path} HTTP/1.1\r\n")),
                    "{head}"
                );
                let answer = format!("HTTP/1.1 200 OK\r\n{answer}");
                app.write_all(answer.as_bytes()).await.expect("taken");
            }
            app
        });
        for (path, expected) in [("/length", "hi"), ("/chunks", "hi"), ("/empty", "")] {
            let answered = upstream.ask(request(path)).await.expect("an answer");
            let mut answer = answered.into_body();
            let mut all = Vec::new();
            while let Some(piece) = piece(&mut upstream, &mut answer).await {
                all.extend_from_slice(&piece);
            }
            assert_eq!(all, expected.as_bytes(), "{path}");
            assert!(upstream.is_ready(), "{path}");
        }
        drop(served.await.expect("served"));
        assert!(!upstream.rests(), "the app has closed it");
    }

    #[tokio::test]
    async fn an_app_that_answers_wakes_the_task_that_asks_and_none_before() {
        let (mut upstream, mut app) = connected().await;
        for path in ["/one", "/two"] {
            let (before, asks) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
            let answered = {
                let mut answer = pin!(upstream.ask(request(path)));
                for woken in [&before, &asks] {
                    let waker = Waker::from(Arc::clone(woken));
                    let polled = answer.as_mut().poll(&mut Context::from_waker(&waker));
                    assert!(polled.is_pending(), "{path}");
                }
                heard(&mut app).await;
                let text = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
                app.write_all(text.as_bytes()).await.expect("taken");
                let woken = |woken: &Woken| woken.0.load(Ordering::SeqCst);
                assert_eq!((woken(&before), woken(&asks)), (0, 1), "{path}");
                answer.await.expect("an answer")
            };
            let mut answer = answered.into_body();
            // Head and body came together: nothing is waited for.
            let mut context = Context::from_waker(Waker::noop());
            let polled = upstream.poll_frame(&mut context, &mut answer);
            assert!(matches!(polled, Poll::Ready(Some(Ok(_)))), "{path}");
            assert!(answer.is_end_stream() && upstream.is_ready(), "{path}");
        }
    }

    #[tokio::test]
    async fn a_request_that_was_not_sent_comes_back() {
        let (mut upstream, app) = connected().await;
        drop(app);
        let mut refused = upstream.ask(request("/x")).await.expect_err("closed");
        let unsent = refused.take_message().expect("nothing of it was sent");
        assert_eq!(unsent.uri(), "/x");
        let (mut upstream, mut app) = connected().await;
        let closes = tokio::spawn(async move {
            heard(&mut app).await;
        });
        let mut refused = upstream.ask(request("/x")).await.expect_err("closed");
        assert!(refused.take_message().is_none(), "it was sent");
        assert!(!upstream.is_ready());
        closes.await.expect("closed");
    }

    #[tokio::test]
    async fn an_answer_comes_while_its_request_is_still_sent() {
        let (mut upstream, mut app) = connected().await;
        let never = futures_util::stream::pending::<Result<Frame<Bytes>, HttpFault>>();
        let body = StreamedBody::new(StreamBody::new(never));
        let request = Request::post("/").header("host", "localhost:1").body(body);
        let asked = upstream.begin(request.expect("a request"));
        let moved = tokio::spawn(async move { upstream.until_ready().await });
        heard(&mut app).await;
        let text = "HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n";
        app.write_all(text.as_bytes()).await.expect("taken");
        let answer = asked.await.expect("an answer");
        assert_eq!(answer.status(), 413);
        drop(app);
        assert!(!moved.await.expect("it ended"), "the app has closed it");
    }
}
