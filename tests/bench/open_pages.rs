//! What pages cost while they are open: their streams under many launches, with nothing to do, and over a long
//! history. Reads the streams and throws them away; never renders.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::figures::{milliseconds, ms, round};
use super::process::processor_time;
use super::subject::BenchServer;
use super::wire::Connection;

/// Pages that are open while sessions are launched.
const OPEN: usize = 50;
/// Overviews that are open while nothing happens.
const IDLE: usize = 500;
/// Ended sessions of a long history.
const HISTORY: usize = 10_000;
/// Administrators who have the pages open, as many each.
const READERS: usize = 10;
/// Between two page loads that are measured.
const LOOK: Duration = Duration::from_millis(50);
/// The catalog and the streams are quiet this long after the last change.
const SETTLING: Duration = Duration::from_secs(4);
const PASSWORD: &str = "correct-horse-battery-staple-9";

/// Pages under ten launches a second, idle overviews, and pages over a long history with one launch a second.
pub(super) fn open_pages(window: Duration) -> io::Result<Value> {
    let busy = {
        let (subject, _) = BenchServer::fresh("open-busy")?;
        watched(&subject, OPEN, Duration::from_millis(100), window)?
    };
    let idle = {
        let (subject, _) = BenchServer::fresh("open-idle")?;
        idle(&subject, window)?
    };
    let history = {
        let (subject, _) = BenchServer::fresh("open-history")?;
        write_history(&subject)?;
        watched(&subject, OPEN, Duration::from_secs(1), window)?
    };
    Ok(json!({
        "what": "GET of /, /sessions and /queue by one browser, while streams of these pages are open",
        "ten_launches_a_second": busy,
        "idle_overviews": idle,
        "long_history_one_launch_a_second": history,
    }))
}

/// Cookies of several administrators.
fn readers(subject: &BenchServer) -> io::Result<Vec<String>> {
    let mut all = vec![subject.cookie()?];
    let mut local = subject.local()?;
    for number in 1..READERS {
        let name = format!("reader-{number}");
        let user = json!({"name": name, "password": PASSWORD, "role": "administrator"});
        local.post("/api/v1/users", &user)?.good("make a user")?;
        let origin = [
            ("origin", "http://127.0.0.1"),
            ("sec-fetch-site", "same-origin"),
        ];
        let form = format!("name={name}&password={PASSWORD}");
        let answer = subject.tcp(&origin)?.form("/login", &form)?;
        let cookie = answer
            .header("set-cookie")
            .and_then(|set| set.split(';').next())
            .ok_or_else(|| io::Error::other(format!("no sign-in: {}", answer.head)))?;
        all.push(cookie.to_owned());
    }
    Ok(all)
}

/// Opens streams of these pages in turn, each reader's as many.
fn open(
    subject: &BenchServer,
    cookies: &[String],
    pages: &[&str],
    count: usize,
) -> io::Result<Vec<TcpStream>> {
    (0..count)
        .map(|number| {
            let mut stream = TcpStream::connect(subject.listen())?;
            let cookie = &cookies[number % cookies.len()];
            let page = pages[number / cookies.len() % pages.len()];
            write!(
                stream,
                "GET {page} HTTP/1.1\r\nhost: 127.0.0.1\r\ncookie: {cookie}\r\n\r\n"
            )?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        })
        .collect()
}

/// Reads what comes until `over`; counts the bytes.
fn drain(streams: &mut [TcpStream], over: &AtomicBool, bytes: &AtomicU64) {
    let mut buffer = [0; 64 << 10];
    while !over.load(Ordering::Relaxed) {
        for stream in streams.iter_mut() {
            while let Ok(read) = stream.read(&mut buffer) {
                if read == 0 {
                    break;
                }
                bytes.fetch_add(read as u64, Ordering::Relaxed);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn percent(used: Duration, of: Duration) -> f64 {
    round(used.as_secs_f64() / of.as_secs_f64() * 100.0)
}

fn idle(subject: &BenchServer, window: Duration) -> io::Result<Value> {
    let cookies = readers(subject)?;
    let mut streams = open(subject, &cookies, &["/live"], IDLE)?;
    let (over, bytes) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| drain(&mut streams, &over, &bytes));
        std::thread::sleep(SETTLING);
        let (before, began) = (processor_time(subject.pid()), Instant::now());
        let already = bytes.load(Ordering::Relaxed);
        std::thread::sleep(window);
        let used = processor_time(subject.pid()).saturating_sub(before);
        let took = began.elapsed();
        over.store(true, Ordering::Relaxed);
        Ok(json!({
            "streams": IDLE,
            "readers": cookies.len(),
            "server_cpu_percent_of_a_core": percent(used, took),
            "bytes_a_second": round((bytes.load(Ordering::Relaxed) - already) as f64 / took.as_secs_f64()),
            "bytes_before": already,
        }))
    })
}

/// The time of page loads while streams are open and a session is launched in each `pause`.
fn watched(
    subject: &BenchServer,
    count: usize,
    pause: Duration,
    window: Duration,
) -> io::Result<Value> {
    let cookies = readers(subject)?;
    let pages = ["/live", "/sessions/live", "/queue/live"];
    let mut streams = open(subject, &cookies, &pages, count)?;
    let (over, bytes) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| drain(&mut streams, &over, &bytes));
        std::thread::sleep(SETTLING);
        let until = Instant::now() + window;
        let launcher = scope.spawn(move || launch_until(subject, pause, until));
        let (before, began) = (processor_time(subject.pid()), Instant::now());
        let loads = load_until(subject, &cookies[0], until);
        let took = began.elapsed();
        let used = processor_time(subject.pid()).saturating_sub(before);
        over.store(true, Ordering::Relaxed);
        let launched = launcher
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the launcher panicked")))?;
        let mut answers = milliseconds(&loads?);
        if let Some(all) = answers.as_object_mut() {
            all.remove("samples");
        }
        Ok(json!({
            "streams": count,
            "readers": cookies.len(),
            "launched": launched,
            "answers": answers,
            "server_cpu_percent_of_a_core": percent(used, took),
            "bytes_a_second": round(bytes.load(Ordering::Relaxed) as f64 / took.as_secs_f64()),
        }))
    })
}

fn launch_until(subject: &BenchServer, pause: Duration, until: Instant) -> io::Result<u64> {
    let mut local = subject.local()?;
    let body = json!({
        "kind": "batch", "image": "host", "command": ["true"],
        "resources": {"cpu": 0.05, "memory": 32 << 20, "shm": 1 << 20},
    });
    let mut launched = 0;
    let mut next = Instant::now();
    while next < until {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        local.post("/api/v1/sessions", &body)?.good("launch")?;
        launched += 1;
        next += pause;
    }
    Ok(launched)
}

fn load_until(subject: &BenchServer, cookie: &str, until: Instant) -> io::Result<Vec<f64>> {
    let mut browser: Connection = subject.tcp(&[("cookie", cookie)])?;
    let mut samples = Vec::new();
    for page in ["/", "/sessions", "/queue"].into_iter().cycle() {
        if Instant::now() >= until {
            break;
        }
        let began = Instant::now();
        browser.get(page)?.good("load a page")?;
        samples.push(ms(began.elapsed()));
        std::thread::sleep(LOOK);
    }
    Ok(samples)
}

/// Sessions that were taken back before they started: rows of a history without containers.
fn write_history(subject: &BenchServer) -> io::Result<()> {
    let mut local = subject.local()?;
    let start = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(365 * 24);
    let replicas = 500;
    let body = json!({
        "kind": "batch", "image": "host", "command": ["true"], "replicas": replicas,
        "start_at": start.to_string(),
    });
    for _ in 0..HISTORY / replicas {
        let made = local
            .post("/api/v1/sessions", &body)?
            .good("launch")?
            .json();
        for session in made["items"].as_array().into_iter().flatten() {
            let id = session["id"].as_str().unwrap_or_default();
            local
                .post(&format!("/api/v1/sessions/{id}/stop"), &json!({}))?
                .good("stop")?;
        }
    }
    Ok(())
}
