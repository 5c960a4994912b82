//! How long a launch takes, one after the other and many at once.
//!
//! Measured from outside: the client's clock just before the first byte of the request until the clock that the container's own first command
//! prints (`date +%s%N`, the same program from the same image everywhere). HTTP, the durable commit,
//! the decision, the overlay and the supervisor are inside that span. The other spans are kept too.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::subject::BenchServer;
use super::tiny::Tiny;
use super::wire::Connection;
use base::figures::{milliseconds, ms, quantile, ratio, round};

const IMAGE: &str = "bench-tiny:1";
/// Requests of one burst travel on this many connections.
const CONNECTIONS: usize = 8;
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(180);

/// Nanoseconds since 1970, as `date` prints them.
pub fn clock() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos())
}

/// Milliseconds from `began` to what a container printed.
pub fn span(began: u128, printed: &str) -> Option<f64> {
    let at: u128 = printed.trim().parse().ok()?;
    let nanoseconds = at.checked_sub(began)?;
    Some(Duration::from_nanos(u64::try_from(nanoseconds).ok()?).as_secs_f64() * 1000.0)
}

/// Imports the tiny image over the local socket.
pub fn import(local: &mut Connection, archive: &Path) -> io::Result<Duration> {
    let began = Instant::now();
    let body = json!({"path": archive});
    let started = local
        .post("/api/v1/images/import", &body)?
        .good("import")?
        .json();
    let id = started["id"].as_str().unwrap_or_default().to_owned();
    loop {
        let now = local
            .get(&format!("/api/v1/operations/{id}"))?
            .good("operation")?
            .json();
        match now["state"].as_str() {
            Some("succeeded") => return Ok(began.elapsed()),
            Some("failed" | "cancelled") => {
                return Err(io::Error::other(format!("the import failed: {now}")));
            }
            _ if began.elapsed() > LAUNCH_TIMEOUT => {
                return Err(io::Error::other("the import does not end"));
            }
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// What launches one after the other took.
#[derive(Default)]
pub struct LaunchSamples {
    pub process: Vec<f64>,
    pub answer: Vec<f64>,
    pub end: Vec<f64>,
}

impl LaunchSamples {
    /// Their figure, for users and programs.
    pub fn figure(&self) -> Value {
        let tail = ratio(quantile(&self.process, 0.99), quantile(&self.process, 0.5));
        json!({
            "what": "one session after the other: batch, 1 core, 256 MiB, `date +%s%N` from a tiny image",
            "request_to_process": milliseconds(&self.process),
            "request_to_answer": milliseconds(&self.answer),
            "request_to_end_seen": milliseconds(&self.end),
            "p99_ratio_to_own_p50": tail,
        })
    }
}

/// `count` sessions of `tiny`, one after the other. `beside` runs after each, so that what it measures meets
/// the same load; its number is 0 for the first, which only warms caches and is not counted.
pub fn sequential(
    tiny: &Tiny,
    count: usize,
    beside: &mut dyn FnMut(usize) -> io::Result<()>,
) -> io::Result<LaunchSamples> {
    let (subject, _) = BenchServer::fresh("launch")?;
    let mut local = subject.local()?;
    import(&mut local, &tiny.archive())?;
    let mut all = in_turns(&mut local, &[usual()], count, beside)?;
    Ok(all.pop().unwrap_or_default())
}

/// The request of a session that is launched one after the other: the tiny image and its clock.
pub fn usual() -> Value {
    json!({
        "kind": "batch", "image": IMAGE, "command": ["date", "+%s%N"],
        "resources": {"cpu": 1, "memory": 256 << 20},
    })
}

/// `count` sessions of each of these requests, in turns, so that all of them meet the same load; samples by request.
/// Their command prints `date +%s%N`. `beside` as of `sequential`, after each turn.
pub fn in_turns(
    local: &mut Connection,
    requests: &[Value],
    count: usize,
    beside: &mut dyn FnMut(usize) -> io::Result<()>,
) -> io::Result<Vec<LaunchSamples>> {
    let mut all: Vec<LaunchSamples> = requests.iter().map(|_| LaunchSamples::default()).collect();
    for number in 0..=count {
        for (request, samples) in requests.iter().zip(&mut all) {
            let ours = launch_one(local, request)?;
            if number > 0 {
                samples.process.push(ours.process);
                samples.answer.push(ours.answer);
                samples.end.push(ours.end);
            }
        }
        beside(number)?;
    }
    Ok(all)
}

struct Spans {
    process: f64,
    answer: f64,
    end: f64,
}

fn launch_one(local: &mut Connection, body: &Value) -> io::Result<Spans> {
    let (at, began) = (clock(), Instant::now());
    let session = local.post("/api/v1/sessions", body)?.good("launch")?.json();
    let answer = began.elapsed();
    let id = session["id"].as_str().unwrap_or_default().to_owned();
    let over = local
        .get(&format!("/api/v1/sessions/{id}?wait=ended&patience=60"))?
        .good("wait")?
        .json();
    let end = began.elapsed();
    let log = local
        .get(&format!("/api/v1/sessions/{id}/logs"))?
        .good("log")?;
    let printed = String::from_utf8_lossy(&log.body).into_owned();
    let process = span(at, &printed)
        .ok_or_else(|| io::Error::other(format!("no clock in {printed:?}; the session: {over}")))?;
    Ok(Spans {
        process,
        answer: ms(answer),
        end: ms(end),
    })
}

/// Hundredths of a core that each of `count` sessions has which are alive together.
pub fn hundredths(count: usize) -> usize {
    (200 / count.max(1)).clamp(1, 100)
}

/// The figure of sessions asked for together.
pub fn burst(count: usize, spans: &[f64]) -> Value {
    let last = quantile(spans, 1.0);
    json!({
        "what": format!("{count} at once, each {} cores, 32 MiB: from the first request to the last process that runs", hundredths(count) as f64 / 100.0),
        "all_running_ms": last.map(round),
        "per_second": last.map(|all| round(count as f64 / all * 1000.0)),
        "request_to_process": milliseconds(spans),
    })
}

/// `count` sessions asked for together, all of them alive together: milliseconds from the first request to
/// each one's process.
pub fn at_once(count: usize, tiny: &Tiny) -> io::Result<Vec<f64>> {
    let hundredths = hundredths(count);
    let (subject, _) = BenchServer::fresh("burst")?;
    let mut local = subject.local()?;
    import(&mut local, &tiny.archive())?;
    launch_one(&mut local, &usual())?;
    let body = json!({
        "kind": "batch", "image": IMAGE,
        "command": ["sh", "-c", "date +%s%N; exec sleep 600"],
        "resources": {"cpu": hundredths as f64 / 100.0, "memory": 32 << 20, "shm": 1 << 20},
    });
    let connections: Vec<Connection> = (0..CONNECTIONS)
        .map(|_| subject.local())
        .collect::<io::Result<_>>()?;
    let at = clock();
    let asked: Vec<io::Result<Vec<String>>> = std::thread::scope(|scope| {
        let body = &body;
        let asking: Vec<_> = connections
            .into_iter()
            .enumerate()
            .map(|(number, mut connection)| {
                scope.spawn(move || {
                    (number..count)
                        .step_by(CONNECTIONS)
                        .map(|_| {
                            let made = connection.post("/api/v1/sessions", body)?.good("launch")?;
                            Ok(made.json()["id"].as_str().unwrap_or_default().to_owned())
                        })
                        .collect()
                })
            })
            .collect();
        asking
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a client panicked")))
            })
            .collect()
    });
    let mut spans = Vec::new();
    let until = Instant::now() + LAUNCH_TIMEOUT;
    for id in asked.into_iter().collect::<io::Result<Vec<_>>>()?.concat() {
        // Waits for the row first, so that asking for logs does not disturb what is measured.
        local.get(&format!("/api/v1/sessions/{id}?wait=running&patience=60"))?;
        loop {
            let log = local
                .get(&format!("/api/v1/sessions/{id}/logs"))?
                .good("log")?;
            if let Some(span) = span(at, &String::from_utf8_lossy(&log.body)) {
                spans.push(span);
                break;
            }
            if Instant::now() > until {
                return Err(io::Error::other(format!("session {id} does not run")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(spans)
}
