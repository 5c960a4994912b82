//! What the server costs and bears: idle, under people who click, under scripts that submit, at its
//! start, and on a user's first visit.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::figures::{milliseconds, ms, quantile, round};
use super::process::{memory, processor_time, pss_kib, rss_kib};
use super::subject::{BenchServer, PASSWORD, cookie_of};
use super::wire::{BenchAddress, Connection};

/// Sessions that sit there while idleness is measured.
const SITTING: usize = 10;
/// Users in whose names scripts submit, and how much each of them: a user may have 1,000 sessions waiting.
const SUBMITTERS: usize = 24;
const MAX_SUBMITS_OF_A_USER: usize = 1_000;
/// Connections of submitting scripts.
const SCRIPTS: usize = 64;
const USERS: usize = 50;
/// People look at a page for 2 to 6 seconds before the next click.
const THINK: (u64, u64) = (2_000, 6_000);

/// What a client thread measured.
fn ended<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("a client panicked")))
}

/// Memory and processor of a server with nothing to do, then with sessions that do nothing.
pub(super) fn idle(window: Duration) -> io::Result<Value> {
    let (subject, _) = BenchServer::fresh("idle")?;
    std::thread::sleep(Duration::from_secs(3));
    let empty = idle_for(subject.pid(), window);
    let mut local = subject.local()?;
    let body = json!({
        "kind": "batch", "image": "host", "command": ["sleep", "3600"], "replicas": SITTING,
        "resources": {"cpu": 0.05, "memory": 32 << 20, "shm": 1 << 20},
    });
    let made = local
        .post("/api/v1/sessions", &body)?
        .good("launch")?
        .json();
    for session in made["items"].as_array().into_iter().flatten() {
        let id = session["id"].as_str().unwrap_or_default();
        local.get(&format!("/api/v1/sessions/{id}?wait=running&patience=60"))?;
    }
    std::thread::sleep(Duration::from_secs(3));
    let sitting = idle_for(subject.pid(), window);
    let shims: Vec<u64> = subject.shims().into_iter().filter_map(pss_kib).collect();
    let rss: Vec<u64> = subject.shims().into_iter().filter_map(rss_kib).collect();
    Ok(json!({
        "empty": empty,
        "with_sessions": {"sessions": SITTING, "server": sitting, "shim_pss_kib": shims, "shim_rss_kib": rss},
    }))
}

fn idle_for(pid: u32, window: Duration) -> Value {
    let (before, began) = (processor_time(pid), Instant::now());
    std::thread::sleep(window);
    let used = processor_time(pid).saturating_sub(before);
    json!({
        "seconds": round(began.elapsed().as_secs_f64()),
        "cpu_percent_of_a_core": percent(used, began.elapsed()),
        "memory": memory(pid),
    })
}

fn percent(used: Duration, of: Duration) -> f64 {
    (used.as_secs_f64() / of.as_secs_f64() * 100_000.0).round() / 1000.0
}

/// Submits that are answered only after they are on disk, from many connections and from one.
pub(super) fn submits(window: Duration) -> io::Result<Value> {
    let many = submit_from(SCRIPTS, window)?;
    let one = submit_from(1, window)?;
    Ok(json!({
        "what": "POST /api/v1/sessions over the local socket, of several users, each its own session that may start in a year; answered after the commit is on disk",
        "many": many,
        "one_by_one": one,
    }))
}

/// A start so far away that nothing of it happens while something else is measured.
fn next_year() -> String {
    (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(365 * 24)).to_string()
}

fn submit_from(connections: usize, window: Duration) -> io::Result<Value> {
    let (subject, _) = BenchServer::fresh("submit")?;
    let body = json!({
        "kind": "batch", "image": "host", "command": ["true"], "start_at": next_year(),
    });
    let address = subject.address();
    let submitters = submitters(&subject)?;
    let before = processor_time(subject.pid());
    let began = Instant::now();
    let until = began + window;
    let samples: Vec<io::Result<Vec<f64>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|number| {
                let (address, submitters, body) = (&address, &submitters, &body);
                scope.spawn(move || submit_until(address, submitters, number, body, until))
            })
            .collect();
        threads.into_iter().map(ended).collect()
    });
    let took = began.elapsed();
    let used = processor_time(subject.pid()).saturating_sub(before);
    let samples = samples
        .into_iter()
        .collect::<io::Result<Vec<_>>>()?
        .concat();
    let count = subject.local()?.get("/api/v1/sessions?limit=1")?.json()["estimated_total"].clone();
    let mut spans = milliseconds(&samples);
    if let Some(all) = spans.as_object_mut() {
        // Tens of thousands of spans say no more than their quantiles.
        all.remove("samples");
    }
    Ok(json!({
        "connections": connections,
        "seconds": round(took.as_secs_f64()),
        "accepted": samples.len(),
        "rows_afterwards": count,
        "per_second": round(samples.len() as f64 / took.as_secs_f64()),
        "server_cpu_percent_of_a_core": percent(used, took),
        "answer": spans,
    }))
}

/// Submits as one user after the other, from the given one on, each up to what one user may have waiting; ends
/// early without another user.
fn submit_until(
    address: &BenchAddress,
    submitters: &[Submitter],
    first: usize,
    body: &Value,
    until: Instant,
) -> io::Result<Vec<f64>> {
    let mut samples = Vec::new();
    for number in 0..submitters.len() {
        let submitter = &submitters[(first + number) % submitters.len()];
        let bearer = format!("Bearer {}", submitter.token);
        let mut connection = Connection::open(address, &[("authorization", &bearer)])?;
        while submitter.submits.fetch_add(1, Ordering::Relaxed) < MAX_SUBMITS_OF_A_USER {
            let began = Instant::now();
            if began >= until {
                return Ok(samples);
            }
            connection.post("/api/v1/sessions", body)?.good("submit")?;
            samples.push(ms(began.elapsed()));
        }
    }
    Ok(samples)
}

/// A user in whose name scripts submit.
struct Submitter {
    token: String,
    submits: AtomicUsize,
}

/// Makes the users in whose names scripts submit.
fn submitters(subject: &BenchServer) -> io::Result<Vec<Submitter>> {
    subject.cookie()?;
    let mut local = subject.local()?;
    let origin = "http://127.0.0.1";
    let browser = [("origin", origin), ("sec-fetch-site", "same-origin")];
    let mut submitters = Vec::new();
    for number in 0..SUBMITTERS {
        let name = format!("submitter-{number}");
        let user = json!({"name": name, "password": PASSWORD});
        local.post("/api/v1/users", &user)?.good("make a user")?;
        let form = format!("name={name}&password={PASSWORD}");
        let answer = subject.tcp(&browser)?.form("/login", &form)?;
        let cookie = cookie_of(&answer)
            .ok_or_else(|| io::Error::other(format!("no sign-in: {}", answer.head)))?;
        let token = json!({"name": "bench", "scopes": ["sessions:write"]});
        let made = subject
            .tcp(&[browser[0], browser[1], ("cookie", &cookie)])?
            .post("/api/v1/me/tokens", &token)?
            .good("make a token")?
            .json();
        let secret = made["secret"].as_str();
        let secret = secret.ok_or_else(|| io::Error::other("no token in the answer"))?;
        submitters.push(Submitter {
            token: secret.to_owned(),
            submits: AtomicUsize::new(0),
        });
    }
    Ok(submitters)
}

/// Fifty people who look at pages, each for a few seconds, and scripts' requests among them.
pub(super) fn clicking(window: Duration) -> io::Result<Value> {
    let (subject, _) = BenchServer::fresh("click")?;
    let cookie = subject.cookie()?;
    let pages = seen_pages(&subject)?;
    std::thread::sleep(Duration::from_secs(1));
    clicked(&subject, &cookie, &pages, window)
}

/// Launches what is looked at, and gives the pages and API answers that are.
pub(super) fn seen_pages(subject: &BenchServer) -> io::Result<Vec<String>> {
    let mut local = subject.local()?;
    for (number, command) in [["true", ""], ["sleep", "3600"], ["false", ""]]
        .iter()
        .enumerate()
    {
        let words: Vec<&str> = command
            .iter()
            .copied()
            .filter(|word| !word.is_empty())
            .collect();
        let body = json!({
            "name": format!("seen-{number}"), "kind": "batch", "image": "host", "command": words,
            "resources": {"cpu": 0.1, "memory": 32 << 20, "shm": 1 << 20},
        });
        local.post("/api/v1/sessions", &body)?.good("launch")?;
    }
    let later = json!({
        "kind": "batch", "image": "host", "command": ["true"], "replicas": 40,
        "start_at": next_year(),
    });
    local.post("/api/v1/sessions", &later)?.good("launch")?;
    let row = local
        .get("/api/v1/sessions/seen-1?wait=running&patience=20")?
        .json();
    let id = row["id"].as_str().unwrap_or_default();
    Ok(vec![
        "/".to_owned(),
        "/sessions".to_owned(),
        format!("/sessions/{id}"),
        "/sessions/new".to_owned(),
        "/queue".to_owned(),
        "/images".to_owned(),
        "/api/v1/sessions".to_owned(),
        format!("/api/v1/sessions/{id}"),
        "/api/v1/queue".to_owned(),
        "/".to_owned(),
    ])
}

/// Fifty people who look at these pages, one after the other.
pub(super) fn clicked(
    subject: &BenchServer,
    cookie: &str,
    pages: &[String],
    window: Duration,
) -> io::Result<Value> {
    let before = processor_time(subject.pid());
    let began = Instant::now();
    let until = began + window;
    let listen = BenchAddress::Tcp(subject.listen());
    let seen: Vec<io::Result<Vec<(usize, u16, f64)>>> = std::thread::scope(|scope| {
        let users: Vec<_> = (0..USERS)
            .map(|user| {
                let listen = &listen;
                scope.spawn(move || click_until(listen, cookie, pages, user, until))
            })
            .collect();
        users.into_iter().map(ended).collect()
    });
    let took = began.elapsed();
    let used = processor_time(subject.pid()).saturating_sub(before);
    let seen = seen.into_iter().collect::<io::Result<Vec<_>>>()?.concat();
    let spans = |wanted: &dyn Fn(usize) -> bool| -> Vec<f64> {
        seen.iter()
            .filter(|(page, ..)| wanted(*page))
            .map(|(.., ms)| *ms)
            .collect()
    };
    let unhappy: Vec<String> = seen
        .iter()
        .filter(|(_, status, _)| *status != 200)
        .map(|(page, status, _)| format!("{} {status}", pages[*page]))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    Ok(json!({
        "what": format!("{USERS} users, each a page or an API answer every {} to {} s, signed in, over TCP", THINK.0 / 1000, THINK.1 / 1000),
        "seconds": round(took.as_secs_f64()),
        "clicks": seen.len(),
        "server_cpu_percent_of_a_core": percent(used, took),
        "cpu_ms_each": round(ms(used) / seen.len().max(1) as f64),
        "pages": milliseconds(&spans(&|page| !pages[page].starts_with("/api"))),
        "api": milliseconds(&spans(&|page| pages[page].starts_with("/api"))),
        "other_than_200": unhappy,
        "memory_afterwards": memory(subject.pid()),
    }))
}

fn click_until(
    listen: &BenchAddress,
    cookie: &str,
    pages: &[String],
    user: usize,
    until: Instant,
) -> io::Result<Vec<(usize, u16, f64)>> {
    let mut browser = Connection::open(
        listen,
        &[
            ("cookie", cookie),
            ("accept-encoding", "br, gzip"),
            (
                "accept-language",
                if user.is_multiple_of(3) { "ko" } else { "en" },
            ),
        ],
    )?;
    let mut seen = Vec::new();
    // People neither begin together nor click in step: a small generator for each.
    let mut state = user as u64 * 0x9e37_79b9 + 1;
    let mut think = |least: u64, most: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis(least + (state >> 33) % (most - least))
    };
    let mut wait = think(0, THINK.1);
    let mut page = user;
    while Instant::now() + wait < until {
        std::thread::sleep(wait);
        page = (page + 1) % pages.len();
        let began = Instant::now();
        let answer = browser.get(&pages[page])?;
        seen.push((page, answer.status, ms(began.elapsed())));
        wait = think(THINK.0, THINK.1);
    }
    Ok(seen)
}

/// From starting the program to the first 200, on fresh state and on its own.
pub(super) fn start_up(count: usize) -> io::Result<Value> {
    let mut fresh = Vec::new();
    let mut again = Vec::new();
    for number in 0..count {
        let (mut subject, took) = BenchServer::fresh(&format!("start{number}"))?;
        fresh.push(ms(took));
        subject.leave();
        again.push(ms(subject.start()?));
    }
    Ok(json!({
        "what": "from starting the program to the first answer of 200 over TCP (asked every half millisecond)",
        "fresh_state": milliseconds(&fresh),
        "own_state": milliseconds(&again),
    }))
}

/// Bytes over the wire until the sign-in page stands, with nothing cached.
pub(super) fn first_visit() -> io::Result<Value> {
    let (subject, _) = BenchServer::fresh("visit")?;
    // Until the box is set up, every page leads to the set-up.
    subject.cookie()?;
    let mut browser = subject.tcp(&[("accept-encoding", "br, gzip")])?;
    let mut plain = subject.tcp(&[])?;
    let mut fetched: Vec<Value> = Vec::new();
    let mut total = 0;
    let mut named: Vec<String> = vec!["/login".to_owned()];
    let mut known: BTreeSet<String> = named.iter().cloned().collect();
    let mut fonts = 0;
    while let Some(path) = named.pop() {
        let answer = browser.get(&path)?;
        let bytes = answer.head.len() + answer.body.len();
        total += bytes;
        if path.ends_with(".woff2") {
            fonts += bytes;
        }
        fetched.push(json!({"path": path, "status": answer.status, "bytes": bytes}));
        let kind = answer.header("content-type").unwrap_or_default().to_owned();
        if kind.starts_with("text/html") || kind.starts_with("text/css") {
            let text = String::from_utf8_lossy(&plain.get(&path)?.body).into_owned();
            for next in references(&text) {
                if known.insert(next.clone()) {
                    named.push(next);
                }
            }
        }
    }
    Ok(json!({
        "what": "/login and every style sheet, script, icon and font that it or its style sheets name, as a browser with brotli gets them, headers included; every named font is counted, used or not",
        "bytes": total,
        "of_which_fonts": fonts,
        "files": fetched,
    }))
}

/// Addresses on this server that a page or a style sheet loads by itself.
fn references(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (open, close) in [("href=\"", '"'), ("src=\"", '"'), ("url(", ')')] {
        for piece in text.split(open).skip(1) {
            let path = piece
                .split(close)
                .next()
                .unwrap_or_default()
                .trim_matches(['"', '\'']);
            let file = path.split(['?', '#']).next().unwrap_or_default();
            let loads = [
                ".css",
                ".js",
                ".woff2",
                ".svg",
                ".png",
                ".ico",
                ".webmanifest",
            ];
            if path.starts_with('/') && loads.iter().any(|end| file.ends_with(end)) {
                found.push(path.to_owned());
            }
        }
    }
    found
}

/// Largest of whole numbers in a figure.
pub(super) fn most(figure: &Value) -> Option<f64> {
    let numbers: Vec<f64> = figure
        .as_array()?
        .iter()
        .filter_map(Value::as_f64)
        .collect();
    quantile(&numbers, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_what_a_browser_loads() {
        let page =
            "<link href=\"/assets/a.css?v=1\"><a href=\"/docs\"><script src=\"/x.js\"></script>";
        assert_eq!(references(page), ["/assets/a.css?v=1", "/x.js"]);
        assert_eq!(
            references("@font-face{src:url('/f/a.woff2')}"),
            ["/f/a.woff2"]
        );
    }
}
