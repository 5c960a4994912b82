//! The audit log on its way out of a whole server: to a syslog receiver, to an address of HTTP and into a file, in order and
//! with nothing missing, though the receivers are down for a while, the file is rotated and the server starts again.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use base::observe::Clock;
use base::settings::{SettingsLayer, SettingsSources};
use fardel::doors;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use server::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tower::ServiceExt;

use super::fake_machine::FakeStreams;
use super::the_box::{As, TheBox};

/// Longer than all pauses after failures together, on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The numbers of the rows that a receiver has read, as they came.
type Arrived = Arc<Mutex<Vec<u64>>>;

/// A server that hands over.
struct Running {
    router: Router,
    house: JoinHandle<()>,
}

impl Running {
    /// Starts one on a state, as soon as the one before has let go of it.
    async fn start(folder: &Path) -> Self {
        let data = folder.join("data");
        let file = folder.join("fardel.toml").display().to_string();
        let layer = SettingsLayer {
            data: Some(data.clone()),
            ..SettingsLayer::default()
        };
        let sources = SettingsSources::new(layer, move |name| {
            (name == "FARDEL_CONFIG").then(|| file.clone())
        });
        let began = Instant::now();
        let server = loop {
            let reading = sources.read().expect("valid settings");
            match Server::start(reading, Clock::system()) {
                Ok(server) => break server,
                Err(failure) => assert!(began.elapsed() < TIMEOUT, "{failure:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let house = tokio::spawn(server::keep_house(&server));
        let router = doors::router(server, Arc::new(FakeStreams::default()));
        Self { router, house }
    }

    fn stop(self) {
        self.house.abort();
    }

    async fn ask(&self, method: &str, path: &str, body: Body) -> (u16, Vec<u8>) {
        let request = TheBox::request(&As::Root, method, path)
            .header("content-type", "application/json")
            .body(body)
            .expect("a request");
        let router = self.router.clone();
        let response = router.oneshot(request).await.expect("the router answers");
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a whole body");
        (status, body.to_bytes().to_vec())
    }

    async fn json(&self, path: &str) -> Value {
        let (status, bytes) = self.ask("GET", path, Body::empty()).await;
        assert_eq!(status, 200, "{path}");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// Makes projects, each an act.
    async fn act(&self, names: std::ops::Range<u32>) {
        for number in names {
            let body = json!({"domain": "default", "name": format!("p-{number}")});
            let body = Body::from(body.to_string());
            let (status, answer) = self.ask("POST", "/api/v1/projects", body).await;
            assert_eq!(status, 201, "{}", String::from_utf8_lossy(&answer));
        }
    }

    /// The number of the newest row.
    async fn newest(&self) -> u64 {
        let page = self.json("/api/v1/audit?limit=1").await;
        page["items"][0]["sequence"].as_u64().expect("a number")
    }
}

fn sequence(statement: &str) -> u64 {
    let told: Value = serde_json::from_str(statement).expect("a row is JSON");
    told["sequence"].as_u64().expect("a number")
}

/// Reads frames up to their end; nothing of a connection that breaks.
async fn read_syslog(mut stream: TcpStream, arrived: &Arrived) {
    let mut text = String::new();
    if stream.read_to_string(&mut text).await.is_err() {
        return;
    }
    let mut rest = text.as_str();
    while let Some((length, behind)) = rest.split_once(' ') {
        let length = length.parse().expect("a length in front of a message");
        let (message, next) = behind.split_at(length);
        let (_, statement) = message.split_once('\u{feff}').expect("a text");
        arrived.lock().expect("whole").push(sequence(statement));
        rest = next;
    }
}

/// Reads one request and takes it.
async fn read_post(mut stream: TcpStream, arrived: &Arrived) {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let body = loop {
        match stream.read(&mut piece).await {
            Ok(count) if count > 0 => bytes.extend_from_slice(&piece[..count]),
            _ => return,
        }
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.parse::<usize>().ok())?
        });
        if body.len() >= length.expect("a length") {
            break body.to_owned();
        }
    };
    let numbers: Vec<u64> = body.lines().map(sequence).collect();
    arrived.lock().expect("whole").extend(numbers);
    let _ = stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        .await;
}

/// Listens at an address; a connection of another test may hold its port for a while.
async fn listen(address: SocketAddr) -> TcpListener {
    let began = Instant::now();
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(error) => assert!(began.elapsed() < TIMEOUT, "{address}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Both receivers, until they are aborted; a connection that is being read goes with them.
async fn receive(addresses: [SocketAddr; 2], arrived: [Arrived; 2]) -> JoinHandle<()> {
    let [syslog, http] = [listen(addresses[0]).await, listen(addresses[1]).await];
    tokio::spawn(async move {
        tokio::join!(
            async {
                while let Ok((stream, _)) = syslog.accept().await {
                    read_syslog(stream, &arrived[0]).await;
                }
            },
            async {
                while let Ok((stream, _)) = http.accept().await {
                    read_post(stream, &arrived[1]).await;
                }
            },
        );
    })
}

async fn free_address() -> SocketAddr {
    let probe = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    probe.local_addr().expect("bound")
}

/// The numbers in files; a line that is being written is none yet.
fn lines(files: &[PathBuf]) -> Vec<u64> {
    files
        .iter()
        .flat_map(|file| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            whole.lines().map(sequence).collect::<Vec<u64>>()
        })
        .collect()
}

/// Waits until a place has every row up to one.
async fn until(what: &str, newest: u64, numbers: impl Fn() -> Vec<u64>) {
    let began = Instant::now();
    while numbers().last().is_none_or(|last| *last < newest) {
        assert!(began.elapsed() < TIMEOUT, "{what}: {:?}", numbers().last());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// In order, none missing; a batch may come twice, where its receiver had it and the server did not hear so.
fn is_whole(what: &str, mut numbers: Vec<u64>, newest: u64) {
    let mut seen = 0;
    numbers.retain(|number| *number <= newest);
    numbers.retain(|number| {
        assert!(*number <= seen + 1, "{what}: {number} after {seen}");
        let is_new = *number == seen + 1;
        seen = seen.max(*number);
        is_new
    });
    let all: Vec<u64> = (1..=newest).collect();
    assert_eq!(numbers, all, "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_acts_reach_every_place_past_dead_receivers_and_a_new_server() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("data")).expect("made");
    let addresses = [free_address().await, free_address().await];
    let file = folder.path().join("audit.jsonl");
    let rotated = folder.path().join("audit.jsonl.1");
    let settings = format!(
        "audit_to_syslog = \"tcp://{}\"\naudit_to_http = \"http://{}/audit\"\naudit_to_file = \"{}\"\n",
        addresses[0],
        addresses[1],
        file.display()
    );
    std::fs::write(folder.path().join("fardel.toml"), settings).expect("written");
    let arrived = [Arrived::default(), Arrived::default()];
    let names = ["syslog", "http"];
    let receivers = receive(addresses, arrived.clone()).await;
    let server = Running::start(folder.path()).await;
    server.act(0..40).await;
    let newest = server.newest().await;
    for (name, arrived) in names.iter().zip(&arrived) {
        until(name, newest, || arrived.lock().expect("whole").clone()).await;
    }
    until("file", newest, || lines(std::slice::from_ref(&file))).await;
    receivers.abort();
    let _ = receivers.await;
    std::fs::rename(&file, &rotated).expect("rotated");
    server.act(40..70).await;
    server.stop();
    let server = Running::start(folder.path()).await;
    server.act(70..100).await;
    let newest = server.newest().await;
    assert!(newest >= 100, "only {newest} rows");
    let files = [rotated.clone(), file.clone()];
    until("file", newest, || lines(&files)).await;
    // They are dead still, and it is said.
    let began = Instant::now();
    loop {
        let targets = server.json("/api/v1/audit/targets").await;
        let targets = targets["items"].as_array().expect("a list").clone();
        assert_eq!(targets.len(), 3);
        let down = targets.iter().filter(|target| target["problem"] != "");
        if down.count() == 2 {
            break;
        }
        assert!(began.elapsed() < TIMEOUT, "{targets:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let findings = server.json("/api/v1/findings").await.to_string();
    assert_eq!(findings.matches("audit.target-down").count(), 2);
    let receivers = receive(addresses, arrived.clone()).await;
    for (name, arrived) in names.iter().zip(&arrived) {
        until(name, newest, || arrived.lock().expect("whole").clone()).await;
        is_whole(name, arrived.lock().expect("whole").clone(), newest);
    }
    is_whole("file", lines(&files), newest);
    let began = Instant::now();
    loop {
        let targets = server.json("/api/v1/audit/targets").await;
        let targets = targets["items"].as_array().expect("a list").clone();
        let well = targets.iter().filter(|target| {
            let (waiting, lost) = (&target["waiting"], &target["lost"]);
            target["problem"] == "" && waiting == 0 && lost == 0 && target["delivered"] == newest
        });
        if well.count() == 3 {
            break;
        }
        assert!(began.elapsed() < TIMEOUT, "{targets:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (status, metrics) = server.ask("GET", "/metrics", Body::empty()).await;
    assert_eq!(status, 200);
    let metrics = String::from_utf8_lossy(&metrics);
    for figure in [
        "fardel_audit_target_takes{target=\"syslog\"} 1",
        "fardel_audit_target_rows_waiting{target=\"http\"} 0",
        "fardel_audit_target_rows_lost{target=\"file\"} 0",
    ] {
        assert!(metrics.contains(figure), "{figure}: {metrics}");
    }
    receivers.abort();
    server.stop();
}
