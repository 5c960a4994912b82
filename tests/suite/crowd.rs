//! One machine and its worst users at once: somebody whose sessions try every trick, a stranger with silent
//! connections, and beside them a person who launches, types and ends. Nothing of that person's may die or
//! wait for ever, and the server stays small. `FARDEL_CROWD_WITHOUT=flood,silent` leaves tricks out,
//! `FARDEL_CROWD_ROUNDS` says how often the person works, `FARDEL_CROWD_STRICT=1` holds the times to three
//! times those of the idle machine or to what no person notices, `FARDEL_PROGRAM` drives another binary.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rules::units::Timestamp;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{self, WebSocket};

use crate::crash::installation::Installation;

/// Longer than one act takes beside the crowd; only a machine that is stopped reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a stranger may take to open silent connections.
const CONNECTING: Duration = Duration::from_secs(20);
const ROUNDS: usize = 8;
/// What the server may hold, in KiB.
const MAX_MEMORY_KIB: u64 = 200 << 10;
/// Times an act may take beside the crowd, of what it takes alone.
const SLOWER: u32 = 3;
/// Times below this are held to nothing: no person notices them, and one turn of the kernel's scheduler for
/// another process is more than three times the 2 ms of a look at an idle machine.
const UNNOTICED: Duration = Duration::from_millis(20);
pub(crate) const PASSWORD: &str = "correct-horse-battery-7";
const TRICKS: [&str; 6] = ["tree", "execs", "inotify", "flood", "followers", "silent"];

/// 25,000 directories in each other.
const TREE: &str = "chdir '/tmp'; for (1..25000) { mkdir 'd'; chdir 'd' or last } sleep 100000";
/// Ends by itself as soon as it is asked to.
const OBEYS: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
/// Programs that one user tries to hold open in one session, and those that it takes.
const TRIED: usize = 60;
const TAKEN: usize = 32;
/// Longer than a loaded machine takes, and less than the old way took.
const SOON: Duration = Duration::from_secs(20);
/// Every inotify instance that is to be had.
const INOTIFY: &str = "for (1..100000) { last if syscall(253) < 0 } sleep 100000";

/// Somebody with a token.
#[derive(Clone)]
pub(crate) struct Account {
    socket: PathBuf,
    token: String,
}

impl Account {
    /// What proves this account in a header.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        self.try_ask(method, path, body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    pub(crate) fn try_ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> std::io::Result<(u16, Value)> {
        ask(&self.socket, Some(&self.token), method, path, body)
    }

    fn launch(&self, name: &str, command: &[&str], cpu: f64) -> (u16, Value) {
        let body = json!({
            "name": name, "kind": "batch", "image": "host", "command": command,
            "resources": {"cpu": cpu, "memory": 64 << 20, "shm": 1 << 20},
        });
        self.ask("POST", "/api/v1/sessions", Some(&body))
    }

    fn launched(&self, name: &str, command: &[&str], cpu: f64) -> String {
        let (status, answer) = self.launch(name, command, cpu);
        assert!((200..300).contains(&status), "{name}: {status} {answer}");
        answer["id"].as_str().expect("an id").to_owned()
    }

    fn wait(&self, id: &str, state: &str) {
        let end = Instant::now() + TIMEOUT;
        loop {
            let (_, row) = self.ask("GET", &format!("/api/v1/sessions/{id}"), None);
            if row["state"] == state {
                return;
            }
            assert!(Instant::now() < end, "{id} is not {state}: {row}");
            assert_ne!(row["state"], "ended", "{id} ended: {row}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A program inside a session, with its streams.
    fn exec(&self, id: &str, words: &[&str]) -> tungstenite::Result<WebSocket<UnixStream>> {
        let stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let query: Vec<String> = words.iter().map(|word| format!("command={word}")).collect();
        let address = format!("ws://box/api/v1/sessions/{id}/exec?{}", query.join("&"));
        let mut request = address.into_client_request()?;
        let headers = request.headers_mut();
        headers.insert(
            "sec-websocket-protocol",
            "v1.term".parse().expect("a header"),
        );
        let bearer = format!("Bearer {}", self.token);
        headers.insert("authorization", bearer.parse().expect("a header"));
        match tungstenite::client(request, stream) {
            Ok((socket, _)) => Ok(socket),
            Err(tungstenite::HandshakeError::Failure(error)) => Err(error),
            Err(tungstenite::HandshakeError::Interrupted(_)) => {
                Err(tungstenite::Error::AlreadyClosed)
            }
        }
    }

    /// Launches a session with the whole of a GPU, which ends by itself after so many seconds.
    fn takes_a_gpu(&self, name: &str, max_runtime_seconds: Option<u64>) -> String {
        let body = json!({
            "name": name, "kind": "interactive", "image": "host", "command": ["sh", "-c", OBEYS],
            "resources": {"cpu": 0.1, "memory": 64 << 20, "shm": 1 << 20, "gpu": 1},
            "max_runtime_seconds": max_runtime_seconds,
        });
        let (status, answer) = self.ask("POST", "/api/v1/sessions", Some(&body));
        assert!((200..300).contains(&status), "{name}: {status} {answer}");
        answer["id"].as_str().expect("an id").to_owned()
    }

    /// As many programs as a session takes, held open.
    fn holds_open(&self, id: &str) -> Vec<WebSocket<UnixStream>> {
        let mut held = Vec::new();
        for _ in 0..TRIED {
            match self.exec(id, &["sleep", "100000"]) {
                Ok(socket) => held.push(socket),
                Err(tungstenite::Error::Http(refused)) => {
                    assert_eq!(refused.status(), 503, "{} are held", held.len());
                }
                Err(error) => panic!("neither a program nor refused: {error}"),
            }
        }
        assert_eq!(held.len(), TAKEN);
        held
    }

    /// What a session says of itself once it has ended.
    fn ended(&self, id: &str) -> Value {
        let end = Instant::now() + TIMEOUT;
        loop {
            let (_, row) = self.ask("GET", &format!("/api/v1/sessions/{id}"), None);
            if row["state"] == "ended" {
                return row;
            }
            assert!(Instant::now() < end, "{id} does not end: {row}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Has a word said inside a session and waits until it is heard.
    fn types(&self, id: &str) {
        let mut socket = self.exec(id, &["echo", "heard"]).expect("it enters");
        loop {
            let message = socket.read().expect("it is answered");
            let heard = message.into_data().windows(5).any(|part| part == b"heard");
            if heard {
                return;
            }
        }
    }

    /// One person's work: each act by name with the time it took.
    fn works(&self, round: usize, times: &mut BTreeMap<&'static str, Vec<Duration>>) {
        let mut timed = |what, act: &mut dyn FnMut()| {
            let began = Instant::now();
            act();
            times.entry(what).or_default().push(began.elapsed());
        };
        let mut id = String::new();
        timed("launch", &mut || {
            id = self.launched(&format!("work-{round}"), &["sleep", "100000"], 0.1);
            self.wait(&id, "running");
        });
        timed("type", &mut || self.types(&id));
        timed("look", &mut || {
            let (status, _) = self.ask("GET", "/api/v1/sessions?limit=50", None);
            assert_eq!(status, 200);
        });
        timed("kill", &mut || {
            let (status, answer) = self.ask("POST", &format!("/api/v1/sessions/{id}/kill"), None);
            assert!((200..300).contains(&status), "kill: {status} {answer}");
            let end = Instant::now() + TIMEOUT;
            while self.ask("GET", &format!("/api/v1/sessions/{id}"), None).1["state"] != "ended" {
                assert!(Instant::now() < end, "{id} does not end");
                std::thread::sleep(Duration::from_millis(20));
            }
        });
    }
}

/// One request over the local socket; as root where there is no token.
pub(crate) fn ask(
    socket: &Path,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> std::io::Result<(u16, Value)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let bearer = token.map_or(String::new(), |token| {
        format!("authorization: Bearer {token}\r\n")
    });
    let kind = match body.is_empty() {
        true => "",
        false => "content-type: application/json\r\n",
    };
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nhost: box\r\n{bearer}{kind}content-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes())?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all)?;
    let text = String::from_utf8_lossy(&all);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or(std::io::ErrorKind::UnexpectedEof)?;
    Ok((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

pub(crate) fn user(socket: &Path, name: &str) -> Account {
    let body = json!({"name": name, "password": PASSWORD});
    let made = ask(socket, None, "POST", "/api/v1/users", Some(&body)).expect("an answer");
    assert!((200..300).contains(&made.0), "{name}: {made:?}");
    let signed = ask(socket, None, "POST", "/api/v1/sign-in", Some(&body)).expect("an answer");
    let token = signed.1["secret"].as_str();
    Account {
        socket: socket.to_owned(),
        token: token
            .unwrap_or_else(|| panic!("{name}: {signed:?}"))
            .to_owned(),
    }
}

/// An address where nobody listens at this moment.
pub(crate) fn free_address() -> SocketAddr {
    let taken = TcpListener::bind("127.0.0.1:0").expect("an address");
    taken.local_addr().expect("its number")
}

/// The niceness of each thread of a process, by the thread's name.
fn niceness(pid: impl std::fmt::Display) -> Vec<(String, i32)> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let threads = threads.flatten().flatten().filter_map(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        let nice = rest.split_whitespace().nth(16)?.parse().ok()?;
        Some((name.to_owned(), nice))
    });
    threads.collect()
}

pub(crate) fn memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// Connections that a stranger may hold: as many as a port scanner's, and no more than this process can.
fn silent() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let own = line.and_then(|line| line.split_whitespace().nth(3)?.parse::<usize>().ok());
    own.map_or(400, |own| (own / 2).min(5000))
}

/// The time of each act that `percent` of its times do not pass.
fn quantiles(
    times: &BTreeMap<&'static str, Vec<Duration>>,
    percent: usize,
) -> BTreeMap<&'static str, Duration> {
    let at = |all: &Vec<Duration>| {
        let mut all = all.clone();
        all.sort();
        all[(all.len() * percent).div_ceil(100) - 1]
    };
    times.iter().map(|(what, all)| (*what, at(all))).collect()
}

/// What one hostile person and one stranger hold while the other works.
#[derive(Default)]
struct Held {
    sockets: Vec<WebSocket<UnixStream>>,
    followers: Vec<UnixStream>,
    strangers: Vec<TcpStream>,
}

impl Held {
    fn begin(console: SocketAddr, mallory: &Account, with: impl Fn(&str) -> bool) -> Self {
        let mut held = Self::default();
        if with("tree") {
            mallory.launched("tree", &["perl", "-e", TREE], 0.5);
        }
        if with("inotify") {
            mallory.launched("inotify", &["perl", "-e", INOTIFY], 0.1);
        }
        let base = mallory.launched("base", &["sleep", "100000"], 0.1);
        mallory.wait(&base, "running");
        if with("execs") {
            // What is refused is refused: the crowd takes what it gets.
            let sleeps = |_| mallory.exec(&base, &["sleep", "100000"]).ok();
            held.sockets = (0..62).filter_map(sleeps).collect();
        }
        if with("followers") {
            let path = format!("/api/v1/sessions/{base}/logs?follow=true");
            let follow = |_| {
                let mut stream = UnixStream::connect(&mallory.socket).ok()?;
                let token = &mallory.token;
                let head = format!(
                    "GET {path} HTTP/1.1\r\nhost: box\r\nauthorization: Bearer {token}\r\n\r\n"
                );
                stream.write_all(head.as_bytes()).ok()?;
                Some(stream)
            };
            held.followers = (0..100).filter_map(follow).collect();
        }
        if with("silent") {
            // A full queue of connections takes a second to be tried again.
            let (patience, end) = (Duration::from_secs(2), Instant::now() + CONNECTING);
            while held.strangers.len() < silent() && Instant::now() < end {
                let connected = TcpStream::connect_timeout(&console, patience);
                held.strangers.extend(connected.ok());
            }
        }
        held
    }
}

/// Promise (Isolation and access): One hostile user, one unauthenticated client and 5,000 connections end no
/// session, and the server uses no more than 200 MiB. Latencies are printed; `cargo ci nightly` limits them to
/// three times those of an idle server.
#[test]
fn nobody_stops_the_box() {
    let Some(mut of) = Installation::found("nobody_stops_the_box") else {
        return;
    };
    of.program = std::env::var_os("FARDEL_PROGRAM").map(PathBuf::from);
    let without = std::env::var("FARDEL_CROWD_WITHOUT").unwrap_or_default();
    let without: Vec<&str> = without.split(',').filter(|word| !word.is_empty()).collect();
    for word in &without {
        assert!(TRICKS.contains(word), "{word} is none of {TRICKS:?}");
    }
    let with = |trick: &str| !without.contains(&trick);
    let rounds = std::env::var("FARDEL_CROWD_ROUNDS").ok();
    let rounds = rounds.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let console = free_address();
    of.settings
        .push(("FARDEL_LISTEN", console.to_string().into()));
    of.start();
    let socket = of.socket();
    let (mina, mallory) = (user(&socket, "mina"), user(&socket, "mallory"));
    let steady = mina.launched("steady", &["sleep", "100000"], 0.1);
    mina.wait(&steady, "running");
    let mut idle = BTreeMap::new();
    for round in 0..rounds {
        mina.works(round, &mut idle);
    }
    let pid = of.server_pid().expect("a server");
    // Threads that answer have priority over sessions; the shims do not inherit it.
    let threads = niceness(pid);
    let answering = |name: &str| name == "serve";
    let preferred = |(name, nice): &(String, i32)| !answering(name) || *nice == -5;
    assert!(threads.iter().all(preferred), "{threads:?}");
    assert!(
        threads.iter().any(|(name, _)| answering(name)),
        "{threads:?}"
    );
    for (name, shim) in of.shims() {
        let threads = niceness(shim);
        assert!(!threads.is_empty(), "{name} has no shim");
        assert!(threads.iter().all(|(_, nice)| *nice == 0), "{threads:?}");
    }
    let mut memory = 0;
    let mut beside = BTreeMap::new();
    let enough = AtomicBool::new(false);
    let held = Held::begin(console, &mallory, with);
    std::thread::scope(|scope| {
        if with("flood") {
            scope.spawn(|| {
                for number in 0..1000 {
                    if enough.load(Ordering::Relaxed) {
                        return;
                    }
                    let body = json!({
                        "name": format!("flood-{number}"), "kind": "batch", "image": "host",
                        "command": ["true"],
                        "resources": {"cpu": 0.1, "memory": 64 << 20, "shm": 1 << 20},
                    });
                    // Refused or not: it goes on.
                    let _ = mallory.try_ask("POST", "/api/v1/sessions", Some(&body));
                }
            });
        }
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..rounds {
                mina.works(round + rounds, &mut beside);
                memory = memory.max(memory_kib(pid));
            }
        }));
        enough.store(true, Ordering::Relaxed);
        if let Err(panic) = worked {
            std::panic::resume_unwind(panic);
        }
    });
    let (alone, crowded) = (quantiles(&idle, 99), quantiles(&beside, 99));
    let (usually_alone, usually) = (quantiles(&idle, 50), quantiles(&beside, 50));
    println!(
        "{} execs, {} followers, {} silent connections; server {} MiB",
        held.sockets.len(),
        held.followers.len(),
        held.strangers.len(),
        memory >> 10
    );
    for (what, time) in &crowded {
        println!(
            "{what:8} p99 {time:?} beside the crowd, {:?} alone; median {:?}, {:?} alone",
            alone[what], usually[what], usually_alone[what]
        );
    }
    mina.wait(&steady, "running");
    mina.types(&steady);
    drop(held);
    assert_eq!(of.server_pid(), Some(pid));
    let said = of.said();
    assert!(!said.contains("panicked"), "the server panicked:\n{said}");
    assert!(
        memory > 0 && memory <= MAX_MEMORY_KIB,
        "the server holds {memory} KiB"
    );
    if std::env::var_os("FARDEL_CROWD_STRICT").is_some() {
        for (what, time) in &crowded {
            let most = (alone[what] * SLOWER).max(UNNOTICED);
            assert!(
                *time <= most,
                "{what}: {time:?} beside the crowd, {:?} alone",
                alone[what]
            );
        }
    }
    end_all(&of);
}

/// Ends every session and waits until nothing of them is left on the disk: what they wrote is cleared by
/// the server, as it must be, and not by this test.
pub(crate) fn end_all(of: &Installation) {
    let end = Instant::now() + TIMEOUT;
    let left = || {
        let kept = std::fs::read_dir(of.data().join("containers"));
        of.shims().len() + kept.into_iter().flatten().flatten().count()
    };
    loop {
        for row in of.sessions().expect("an answer") {
            if row["state"] != "ended" {
                let id = row["id"].as_str().unwrap_or_default();
                let path = format!("/api/v1/sessions/{id}/kill");
                let _ = ask(&of.socket(), None, "POST", &path, None);
            }
        }
        if left() == 0 {
            return;
        }
        assert!(Instant::now() < end, "{} remain: {:?}", left(), of.shims());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// An installation with one GPU that does not exist, or nothing after saying why containers cannot run here.
fn with_a_gpu(test: &str) -> Option<Installation> {
    let mut of = Installation::found(test)?;
    of.settings.push(("FARDEL_SIMULATE_GPUS", "H100:1".into()));
    of.start();
    Some(of)
}

#[test]
fn programs_held_open_keep_no_time_limit_waiting_and_no_gpu() {
    // Longer than the programs take to begin on a loaded machine.
    const LIMIT: u64 = 8;
    let test = "programs_held_open_keep_no_time_limit_waiting_and_no_gpu";
    let Some(of) = with_a_gpu(test) else {
        return;
    };
    let mallory = user(&of.socket(), "mallory");
    let limited = mallory.takes_a_gpu("limited", Some(LIMIT));
    mallory.wait(&limited, "running");
    let held = mallory.holds_open(&limited);
    let next = mallory.takes_a_gpu("next", None);
    let row = mallory.ended(&limited);
    assert_eq!(row["reason"]["code"], "session.max-runtime", "{row}");
    let at = |field: &str| {
        let text = row[field].as_str().unwrap_or_default();
        Timestamp::parse(text).expect("a time")
    };
    let ran = at("ended_at").seconds_since(at("started_at"));
    assert!(ran < LIMIT + SOON.as_secs(), "it ran for {ran} s");
    // What it had is free: the next one has it.
    mallory.wait(&next, "running");
    drop(held);
    end_all(&of);
}

#[test]
fn programs_held_open_keep_no_drain_waiting_and_no_gpu() {
    let test = "programs_held_open_keep_no_drain_waiting_and_no_gpu";
    let Some(of) = with_a_gpu(test) else {
        return;
    };
    let socket = of.socket();
    let mallory = user(&socket, "mallory");
    let drained = mallory.takes_a_gpu("drained", None);
    mallory.wait(&drained, "running");
    let held = mallory.holds_open(&drained);
    let next = mallory.takes_a_gpu("next", None);
    let begin = Instant::now();
    let path = "/api/v1/gpus/0/drain";
    let answer = ask(&socket, None, "POST", path, Some(&json!({})));
    let (status, answer) = answer.expect("an answer");
    assert_eq!((status, &answer["ends"]), (200, &json!(["drained"])));
    let row = mallory.ended(&drained);
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert_eq!(row["reason"]["code"], "session.device-drained", "{row}");
    // What it had is free: the next one has it as soon as the GPU takes sessions again.
    let path = "/api/v1/gpus/0/uncordon";
    let (status, answer) = ask(&socket, None, "POST", path, None).expect("an answer");
    assert_eq!(status, 200, "{answer}");
    mallory.wait(&next, "running");
    drop(held);
    end_all(&of);
}
