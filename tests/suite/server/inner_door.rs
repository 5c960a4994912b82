//! The inner door as programs of sessions meet it: what a session gets of itself, that nothing else is there, and the bounds of
//! what it may send. The sockets inside are held by the test, so that no container is needed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base::link::streams::{
    BoxFuture, ByteStream, ExecRequest, LogStream, Streams, TermStream, WindowSize,
};
use fardel::doors;
use fardel::doors::api::openapi::ROUTES;
use rules::inner_door::InnerAct;
use rules::names::ContainerName;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::the_box::{As, TheBox};

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const HANG: Duration = Duration::from_secs(60);
/// Connections that one container may have.
const MAX_OF_CONTAINER: usize = 64;

/// The inner doors that are open, by container.
#[derive(Default, Clone)]
struct DoorStreams {
    doors: Arc<Mutex<BTreeMap<ContainerName, mpsc::Sender<ByteStream>>>>,
}

impl Streams for DoorStreams {
    fn attach(&self, _: ContainerName, _: Option<WindowSize>) -> BoxFuture<TermStream> {
        unreachable!("a door attaches to nothing")
    }

    fn exec(&self, _: ContainerName, _: ExecRequest) -> BoxFuture<TermStream> {
        unreachable!("a door starts nothing")
    }

    fn logs(&self, _: ContainerName, _: u64, _: bool) -> BoxFuture<LogStream> {
        unreachable!("a door reads no log")
    }

    fn dial(&self, _: ContainerName, _: u16) -> BoxFuture<ByteStream> {
        unreachable!("a door opens nothing")
    }

    fn inner_door(&self, container: ContainerName) -> BoxFuture<mpsc::Receiver<ByteStream>> {
        let (accepted, incoming) = mpsc::channel(8);
        let mut doors = self.doors.lock().expect("no test panicked with it");
        doors.insert(container, accepted);
        Box::pin(async { Ok(incoming) })
    }
}

struct DoorRig {
    the_box: TheBox,
    streams: DoorStreams,
    _leave: watch::Sender<bool>,
}

/// An answer: its status and its body.
type Said = (u16, Value);

fn read(all: &[u8]) -> Said {
    let text = String::from_utf8_lossy(all).into_owned();
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    let body = text.split("\r\n\r\n").nth(1).unwrap_or_default();
    let body = serde_json::from_str(body).unwrap_or(Value::Null);
    (status.unwrap_or(0), body)
}

fn path(container: ContainerName) -> String {
    format!("/api/v1/sessions/{}", container.session)
}

impl DoorRig {
    async fn open() -> Self {
        let (the_box, streams) = (TheBox::open().await, DoorStreams::default());
        let (leave, leaving) = watch::channel(false);
        let (server, shared) = (the_box.server.clone(), Arc::new(streams.clone()));
        tokio::spawn(doors::inner_door::serve(server, shared, leaving));
        Self {
            the_box,
            streams,
            _leave: leave,
        }
    }

    /// Launches a session, and gives its container once its door is open.
    async fn launch(&self, who: &As, name: &str) -> ContainerName {
        let body = json!({"name": name, "max_runtime_seconds": 600, "env": {"KEY": "hidden"}});
        let session = self.the_box.launch(who, body).await;
        let id = session["id"].as_str().expect("an id");
        self.the_box.until(who, id, "running").await;
        let container = ContainerName {
            session: id.parse().expect("an id"),
            incarnation: 1,
            index: 0,
        };
        self.waits(container, true).await;
        container
    }

    fn door(&self, container: ContainerName) -> Option<mpsc::Sender<ByteStream>> {
        let doors = self.streams.doors.lock().expect("no test panicked with it");
        let door = doors.get(&container).cloned();
        door.filter(|door| !door.is_closed())
    }

    /// Waits until a door is open, or closed.
    async fn waits(&self, container: ContainerName, is_open: bool) {
        let begin = Instant::now();
        while self.door(container).is_some() != is_open {
            assert!(begin.elapsed() < HANG, "its door stays as it is");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A connection that a program inside has opened.
    async fn connect(&self, container: ContainerName) -> DuplexStream {
        let (near, far) = tokio::io::duplex(256 << 10);
        let door = self.door(container).expect("it is open");
        let far: ByteStream = Box::new(far);
        assert!(door.send(far).await.is_ok(), "it is open");
        near
    }

    /// What is answered to these bytes.
    async fn speak(&self, container: ContainerName, bytes: &[u8]) -> Said {
        let mut near = self.connect(container).await;
        // One that has heard enough reads no further.
        let _ = near.write_all(bytes).await;
        let mut all = Vec::new();
        let reading = near.read_to_end(&mut all);
        let _ = timeout(HANG, reading).await.expect("in time");
        read(&all)
    }

    async fn ask(&self, container: ContainerName, method: &str, path: &str) -> Said {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.127.0.1:4280\r\nConnection: close\r\n\r\n"
        );
        self.speak(container, head.as_bytes()).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_sees_itself_and_no_route_of_the_api() {
    let rig = DoorRig::open().await;
    // An administrator's: no role comes along.
    let (train, other) = (
        rig.launch(&rig.the_box.admin, "train").await,
        rig.launch(&rig.the_box.admin, "other").await,
    );
    for container in [train, other] {
        let (status, told) = rig.ask(container, "GET", "/session").await;
        assert_eq!(status, 200, "{told}");
        assert_eq!(told["session"]["id"], container.session.to_string());
        assert_eq!(told["session"]["owner"]["name"], "ada");
        assert!(told["ends_at"].is_string(), "{told}");
        // Nothing of its machine, and no variable.
        let path = path(container);
        let shown = rig.the_box.get(&rig.the_box.admin, &path).await.json();
        for field in ["node", "reason"] {
            assert!(!shown[field].is_null(), "{field} {shown}");
            assert!(told["session"][field].is_null(), "{field} {told}");
        }
        assert_eq!(shown["env"]["KEY"], "hidden");
        assert_eq!(told["session"]["env"], json!({}));
    }
    let (status, samples) = rig.ask(train, "GET", "/session/metrics").await;
    assert_eq!((status, &samples["items"]), (200, &json!([])));
    let (status, refused) = rig.ask(train, "POST", "/session/keep").await;
    assert_eq!(
        (status, &refused["code"]),
        (409, &json!("session.not-warned"))
    );

    // Each act by its own method alone, and of the API nothing.
    for act in InnerAct::ALL {
        let wrong = if act.method() == "GET" { "POST" } else { "GET" };
        for method in [wrong, "PUT", "DELETE", "PATCH"] {
            let (status, refused) = rig.ask(train, method, act.path()).await;
            assert_eq!(status, 405, "{method} {} {refused}", act.path());
        }
    }
    for route in ROUTES {
        let path = route.path.replace(['{', '}'], "");
        let (status, refused) = rig.ask(train, route.method, &path).await;
        assert_eq!(status, 404, "{} {path}: {refused}", route.method);
        // An answer to HEAD has no body.
        let code = refused["code"].as_str();
        let is_right = code.is_none_or(|code| code == "inner-door.path-unknown");
        assert!(is_right, "{} {path}: {refused}", route.method);
    }

    let (status, ending) = rig.ask(train, "POST", "/session/end").await;
    let state = ending["session"]["state"].as_str().unwrap_or_default();
    // The machine of this test is quick.
    assert!(
        status == 200 && ["stopping", "ended"].contains(&state),
        "{ending}"
    );
    rig.waits(train, false).await;
    let (status, _) = rig.ask(other, "GET", "/session").await;
    assert_eq!(status, 200, "the other one goes on");
    let audit = rig
        .the_box
        .get(&rig.the_box.admin, "/api/v1/audit?limit=100")
        .await;
    let audit = audit.json();
    let own = |act: &&Value| {
        let of_sessions = act["act"]
            .as_str()
            .is_some_and(|act| act.starts_with("session."));
        of_sessions && act["via"] == "session"
    };
    let acts = audit["items"].as_array().expect("rows").iter().filter(own);
    let acts: Vec<&Value> = acts.collect();
    assert!(acts.iter().any(|act| act["actor"] == "ada"), "{audit}");
    let credential = json!(train.session.to_string());
    assert!(
        acts.iter().all(|act| act["credential"] == credential),
        "{acts:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_session_sends_is_bounded_and_a_suspended_owner_ends_it() {
    let rig = DoorRig::open().await;
    let train = rig.launch(&rig.the_box.mina, "train").await;
    let other = rig.launch(&rig.the_box.mina, "other").await;
    let long = "x".repeat(20 << 10);
    for (bytes, status) in [
        (
            "GET /session HTTP/1.1\r\nConnection: close\r\n\r\n".to_owned(),
            403,
        ),
        (
            "GET /session HTTP/1.0\r\nHost: 127.127.0.1:4280\r\n\r\n".to_owned(),
            200,
        ),
        (
            format!("GET /session HTTP/1.1\r\nX-Long: {long}\r\n\r\n"),
            431,
        ),
        ("\u{16}\u{3}\u{1}\u{2}hello\r\n\r\n".to_owned(), 400),
        ("GET  HTTP/9\r\n\r\n".to_owned(), 400),
    ] {
        let (found, body) = rig.speak(train, bytes.as_bytes()).await;
        let shown: String = bytes.chars().take(60).collect();
        assert_eq!(found, status, "{shown:?} {body}");
    }
    // As many as it may have say nothing; the next is closed at once, and another session is served.
    let mut silent = Vec::new();
    for _ in 0..MAX_OF_CONTAINER {
        silent.push(rig.connect(train).await);
    }
    let begin = Instant::now();
    while rig.ask(train, "GET", "/session").await.0 == 200 {
        assert!(begin.elapsed() < HANG, "it has more places than it may");
    }
    assert_eq!(rig.ask(other, "GET", "/session").await.0, 200);
    drop(silent);
    let begin = Instant::now();
    while rig.ask(train, "GET", "/session").await.0 != 200 {
        assert!(begin.elapsed() < HANG, "its places do not come back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    let path = "/api/v1/users/mina/suspend";
    let suspended = rig
        .the_box
        .post(&rig.the_box.admin, path, json!({"suspended": true}))
        .await;
    assert!(suspended.status.is_success(), "{}", suspended.short());
    let begin = Instant::now();
    while let Some(_door) = rig.door(train) {
        let (status, refused) = rig.ask(train, "GET", "/session").await;
        if status != 0 {
            assert_eq!(status, 401, "{refused}");
            break;
        }
        assert!(begin.elapsed() < HANG, "it is served");
    }
}
