//! The inner door of each running session: plain HTTP at one address of its own loopback, by which its programs ask the server
//! about their session and nothing else. No secret is asked for: the socket tells which container speaks. Opens no port of
//! this machine, and serves no page.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::page::ListPage;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base::link::streams::{ByteStream, Streams};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rules::inner_door::{ADDRESS, InnerAct, is_own_host};
use rules::names::{ContainerName, SessionId};
use rules::refusals;
use serde::Serialize;
use server::actions::{idle_rules, inner_door, sessions};
use server::{Server, access, events};
use tokio::sync::{Mutex as FairMutex, Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::problem::{self, ProblemResponse};
use super::text::Language;

/// Connections of one container. Higher: one session takes more of this machine's memory. Lower: a program with many workers
/// waits.
const MAX_OF_CONTAINER: usize = 64;
/// Connections of all containers, at most 32 KiB each. Higher: that much more memory.
const MAX_CONNECTIONS: usize = 2_048;
/// Connections of one container that are few: it gets these also while more than half of all are taken.
const FEW_CONNECTIONS: usize = 4;
/// Bytes of the head of a request. There is nothing to say in a body, so none is read.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// How long a head may take, and a connection rest between two requests.
const REST: Duration = Duration::from_secs(30);
/// How long a connection may live, so that answers which no program reads hold no place for ever.
const MAX_LIFE: Duration = Duration::from_secs(300);
/// Rest after each connection to a container. Longer: a program that opens one for each request begins it later. Shorter: one
/// that opens and drops them without end takes more of a processor that no limit of the session counts.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// Between two requests of one session, all of its containers together. Shorter: a loop in a session takes more of a
/// processor that no limit of the session counts. Longer: programs with many workers wait.
const PACE: Duration = Duration::from_millis(20);
/// Between two of them that act. Shorter: a loop in a session takes more turns of the catalog's writer, which all users share.
/// Longer: a program that keeps its session right after another one waits.
const ACT_PACE: Duration = Duration::from_secs(1);
/// Rest between two looks at which sessions run. Longer: a session that has begun waits for its door. Shorter: rows are read
/// more often while many change.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Rest after a door that could not be opened, at first and at most; it doubles each time.
const OPEN_PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(60)];

/// What each door has.
struct InnerDoors {
    server: Server,
    streams: Arc<dyn Streams>,
    places: Semaphore,
    paces: Mutex<BTreeMap<SessionId, Arc<SessionPace>>>,
}

/// One container's door.
struct OpenDoor {
    all: Arc<InnerDoors>,
    container: ContainerName,
    places: Semaphore,
    pace: Arc<SessionPace>,
}

/// When requests of a session have their turns.
struct SessionPace {
    requests: RequestPace,
    /// Of these, those that act.
    acts: RequestPace,
}

/// When the next request has its turn. They wait in one line; one that is given up leaves no gap in it.
struct RequestPace {
    next: FairMutex<Instant>,
    pause: Duration,
}

impl RequestPace {
    fn of(pause: Duration) -> Self {
        Self {
            next: FairMutex::new(Instant::now()),
            pause,
        }
    }

    async fn turn(&self) {
        let mut next = self.next.lock().await;
        sleep_until(*next).await;
        *next = Instant::now() + self.pause;
    }
}

impl InnerDoors {
    /// The pace of a session, one for all of its containers.
    fn pace(&self, session: SessionId) -> Arc<SessionPace> {
        let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that no door has any more are forgotten.
        paces.retain(|known, pace| *known == session || Arc::strong_count(pace) > 1);
        let begun = || SessionPace {
            requests: RequestPace::of(PACE),
            acts: RequestPace::of(ACT_PACE),
        };
        let pace = paces.entry(session);
        Arc::clone(pace.or_insert_with(|| Arc::new(begun())))
    }
}

/// Keeps a door in every running session whose policies do not close it, until `leaving`.
pub async fn serve(server: Server, streams: Arc<dyn Streams>, mut leaving: watch::Receiver<bool>) {
    let mut revision = events::revision(&server);
    let all = Arc::new(InnerDoors {
        server,
        streams,
        places: Semaphore::new(MAX_CONNECTIONS),
        paces: Mutex::default(),
    });
    // Dropped with this, and every connection with it.
    let mut serving = JoinSet::new();
    let mut open: BTreeMap<ContainerName, AbortHandle> = BTreeMap::new();
    loop {
        revision.borrow_and_update();
        match access::inner_doors(&all.server) {
            Ok(wanted) => keep_to(&wanted, &mut open, |container| {
                serving.spawn(serve_container(Arc::clone(&all), container))
            }),
            Err(failure) => {
                let code = ProblemResponse::from(failure).refusal.code;
                tracing::info!(code, "sessions were not looked for to open their doors");
            }
        }
        while serving.try_join_next().is_some() {}
        tokio::select! {
            changed = revision.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            _ = leaving.wait_for(|leave| *leave) => return,
        }
        tokio::select! {
            () = sleep(LOOK_PAUSE) => {}
            _ = leaving.wait_for(|leave| *leave) => return,
        }
    }
}

/// Opens the doors of these containers, and closes all others with their connections.
fn keep_to(
    wanted: &BTreeSet<ContainerName>,
    open: &mut BTreeMap<ContainerName, AbortHandle>,
    mut begin: impl FnMut(ContainerName) -> AbortHandle,
) {
    open.retain(|container, task| {
        let stays = wanted.contains(container) && !task.is_finished();
        if !stays {
            task.abort();
        }
        stays
    });
    for container in wanted {
        open.entry(*container).or_insert_with(|| begin(*container));
    }
}

/// Serves one container until its door is closed. Its connections end with this.
async fn serve_container(all: Arc<InnerDoors>, container: ContainerName) {
    let [mut pause, longest] = OPEN_PAUSES;
    let mut incoming = loop {
        match all.streams.inner_door(container).await {
            Ok(incoming) => break incoming,
            Err(refusal) => {
                // A program inside may have the port: then it is the one that answers.
                tracing::debug!(%container, code = refusal.code, "it has no inner door");
                sleep(pause).await;
                pause = (pause * 2).min(longest);
            }
        }
    };
    let door = Arc::new(OpenDoor {
        pace: all.pace(container.session),
        all,
        container,
        places: Semaphore::new(MAX_OF_CONTAINER),
    });
    let mut connections = JoinSet::new();
    while let Some(stream) = incoming.recv().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(connection(Arc::clone(&door), stream));
        sleep(ACCEPT_PAUSE).await;
    }
}

impl OpenDoor {
    /// Whether it has more than few connections while more than half of all places are taken.
    fn takes_too_much(&self) -> bool {
        let own = MAX_OF_CONTAINER.saturating_sub(self.places.available_permits());
        own >= FEW_CONNECTIONS && self.all.places.available_permits() < MAX_CONNECTIONS / 2
    }
}

/// Answers the requests of one connection. Where no place is free it is closed at once.
async fn connection(door: Arc<OpenDoor>, stream: ByteStream) {
    let takes_too_much = door.takes_too_much();
    let (Ok(_own), Ok(_of_all)) = (door.places.try_acquire(), door.all.places.try_acquire()) else {
        return;
    };
    if takes_too_much {
        return;
    }
    let answering = Arc::clone(&door);
    let service = service_fn(move |request: Request<Incoming>| {
        let door = Arc::clone(&answering);
        // Nothing is asked for in a body.
        let (head, _) = request.into_parts();
        async move { Ok::<Response, Infallible>(respond(&door, &head).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .max_buf_size(MAX_HEAD_BYTES)
        .header_read_timeout(REST);
    let served = builder.serve_connection(TokioIo::new(stream), service);
    match timeout(MAX_LIFE, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection of an inner door broke"),
        Err(_) => tracing::debug!("a connection of an inner door lived for too long"),
    }
}

async fn respond(door: &OpenDoor, head: &Parts) -> Response {
    door.pace.requests.turn().await;
    let id = uuid::Uuid::now_v7().to_string();
    let language = head
        .headers
        .get(header::ACCEPT_LANGUAGE)
        .and_then(|value| value.to_str().ok())
        .map_or(Language::English, Language::accepted);
    let (method, path) = (&head.method, head.uri.path());
    let source = IpAddr::from(*ADDRESS.ip());
    let answered = async {
        let answered = answer(door, method, path, &head.headers, &id).await;
        if let Err(problem) = &answered
            && *method != Method::GET
            && problem.status.is_client_error()
        {
            access::refused(
                &door.all.server,
                &format!("{method} {path}"),
                &problem.refusal.code,
            );
        }
        answered
    };
    let mut response = match access::as_request(source, &id, answered).await {
        Ok(response) => response,
        Err(problem) => {
            let is_method = problem.status == StatusCode::METHOD_NOT_ALLOWED;
            let mut response = problem::answer(&problem, &id, language);
            if let Some(act) = InnerAct::at(path).filter(|_| is_method) {
                let allowed = HeaderValue::from_static(act.method());
                response.headers_mut().insert(header::ALLOW, allowed);
            }
            response
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert("x-request-id", id);
    }
    response
}

/// Does what a path stands for, as the session of the container.
async fn answer(
    door: &OpenDoor,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    id: &str,
) -> Result<Response, ProblemResponse> {
    refuse_pages(headers)?;
    let act = InnerAct::at(path).ok_or_else(refusals::inner_door_path_unknown)?;
    if method.as_str() != act.method() {
        let refusal = refusals::method_not_allowed();
        return Err(ProblemResponse::with_status(
            refusal,
            StatusCode::METHOD_NOT_ALLOWED,
        ));
    }
    if *method != Method::GET {
        door.pace.acts.turn().await;
    }
    let (server, own) = (&door.all.server, door.container);
    let mut caller = access::by_inner_door(server, own).await?;
    id.clone_into(&mut caller.request);
    let session = own.session.to_string();
    match act {
        InnerAct::Look => json(&inner_door::look(server, &caller, own).await?),
        InnerAct::Samples => {
            let items = inner_door::recent_samples(server, &caller, own).await?;
            json(&ListPage {
                estimated_total: items.len() as u64,
                items,
                next_cursor: None,
            })
        }
        InnerAct::Keep => json(&idle_rules::keep(server, &caller, &session).await?),
        InnerAct::End => {
            sessions::stop(server, &caller, &session, false).await?;
            json(&inner_door::look(server, &caller, own).await?)
        }
    }
}

/// Keeps out what a page in a browser inside has sent, of an app or of a stranger: programs name the address as the host, and
/// no origin.
///
/// Errors: `inner-door.page`.
fn refuse_pages(headers: &HeaderMap) -> Result<(), ProblemResponse> {
    let host = headers
        .get(header::HOST)
        .and_then(|value| value.to_str().ok());
    let is_of_page = headers.contains_key(header::ORIGIN)
        || headers.contains_key("sec-fetch-site")
        || headers.contains_key(header::COOKIE);
    match host.is_some_and(is_own_host) && !is_of_page {
        true => Ok(()),
        false => Err(refusals::inner_door_page().into()),
    }
}

fn json<T: Serialize>(body: &T) -> Result<Response, ProblemResponse> {
    let text = serde_json::to_vec(body).map_err(|source| {
        tracing::error!(
            error = &source as &dyn std::error::Error,
            "an answer cannot be written"
        );
        ProblemResponse::with_status(
            refusals::server_answer_not_json(),
            StatusCode::INTERNAL_SERVER_ERROR,
        )
    })?;
    let kind = [(header::CONTENT_TYPE, "application/json")];
    Ok((StatusCode::OK, kind, Body::from(text)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut all = HeaderMap::new();
        for (name, value) in pairs {
            all.insert(*name, HeaderValue::from_static(value));
        }
        all
    }

    #[test]
    fn a_program_is_let_in_and_a_page_is_not() {
        let own = ("host", "127.127.0.1:4280");
        assert!(refuse_pages(&headers(&[own])).is_ok());
        for foreign in [
            vec![],
            vec![("host", "stranger.example:4280")],
            vec![own, ("origin", "http://127.127.0.1:4280")],
            vec![own, ("origin", "null")],
            vec![own, ("sec-fetch-site", "none")],
            vec![own, ("cookie", "a=b")],
        ] {
            let refused = refuse_pages(&headers(&foreign)).expect_err("a page");
            assert_eq!(refused.refusal.code, "inner-door.page", "{foreign:?}");
            assert_eq!(refused.status, StatusCode::FORBIDDEN);
        }
    }

    #[tokio::test]
    async fn a_door_is_opened_once_and_closed_with_its_session() {
        let container = |number: u128| ContainerName {
            session: SessionId(uuid::Uuid::from_u128(number)),
            incarnation: 1,
            index: 0,
        };
        let (mut tasks, mut open, mut begun) = (JoinSet::new(), BTreeMap::new(), 0);
        for numbers in [[1, 2], [1, 2], [2, 3]] {
            let wanted: BTreeSet<ContainerName> = numbers.into_iter().map(container).collect();
            keep_to(&wanted, &mut open, |_| {
                begun += 1;
                tasks.spawn(std::future::pending::<()>())
            });
            assert!(open.keys().eq(wanted.iter()));
        }
        assert_eq!(begun, 3);
        let ended = tasks.join_next().await.expect("the first one was closed");
        assert!(ended.is_err_and(|end| end.is_cancelled()));
        assert_eq!(tasks.len(), 2);
    }

    #[tokio::test]
    async fn requests_of_one_session_take_turns() {
        let pace = RequestPace::of(PACE);
        let begin = Instant::now();
        for _ in 0..10 {
            pace.turn().await;
        }
        assert!(begin.elapsed() >= PACE * 9, "{:?}", begin.elapsed());
        // What was not used is not saved up.
        sleep(PACE * 5).await;
        let begin = Instant::now();
        for _ in 0..3 {
            pace.turn().await;
        }
        assert!(begin.elapsed() >= PACE * 2, "{:?}", begin.elapsed());
    }

    #[tokio::test]
    async fn a_request_that_is_given_up_keeps_no_turn() {
        let pace = RequestPace::of(PACE);
        for _ in 0..200 {
            let _ = timeout(Duration::ZERO, pace.turn()).await;
        }
        let begin = Instant::now();
        pace.turn().await;
        assert!(begin.elapsed() < PACE * 50, "{:?}", begin.elapsed());
    }
}
