//! An image of a session: how long it takes from the request until it is there, with nothing beside it and while every core
//! of the machine computes. What the session wrote is noise, so that no compression makes less of it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::figures::round;
use serde_json::{Value, json};

use super::guest::{self, FILLED, GuestImage};
use super::member::{BROWSER, Member};
use super::subject::BenchServer;

/// Of what is promised: an image of so many bytes, and no other, is held to its time.
const PROMISED: u64 = 2_000_000_000;
/// Longer than a slow disk takes; only a fault reaches it.
const TIMEOUT: Duration = Duration::from_secs(900);
/// Where the session writes: neither home nor temporary, so it is of the image.
const DIRECTORY: &str = "/data/written";

pub(super) fn commits(bytes: u64) -> io::Result<Value> {
    let (subject, _) = BenchServer::fresh("commit")?;
    let member = Member::first(&subject)?;
    GuestImage::make()?.import(&subject)?;
    let session = filled(&subject, &member, bytes)?;
    let alone = committed(&subject, &member, &session, "bench:1")?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let loaded = loaded(cores, || committed(&subject, &member, &session, "bench:2"))?;
    Ok(json!({
        "what": "the request of an image of a running session until it is there, its base here; then again while each core computes",
        "bytes": bytes,
        "cores": cores,
        "alone_seconds": round(alone.as_secs_f64()),
        "loaded_seconds": round(loaded.as_secs_f64()),
        "promised_seconds": (bytes >= PROMISED).then(|| round(loaded.as_secs_f64())),
    }))
}

/// A running session that has written so many bytes.
fn filled(subject: &BenchServer, member: &Member, bytes: u64) -> io::Result<String> {
    let asked = json!({
        "kind": "batch", "image": guest::IMAGE,
        "command": guest::command(&["fill", DIRECTORY, &bytes.to_string()]),
        "resources": {"cpu": 1, "memory": 512 << 20},
    });
    let id = member.launch(subject, &asked)?;
    member.until(subject, &id, "running")?;
    let until = Instant::now() + TIMEOUT;
    loop {
        let said = member.said(subject, &id)?;
        if said.contains(FILLED) {
            return Ok(id);
        }
        if Instant::now() > until {
            return Err(io::Error::other(format!("it does not write: {said}")));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Makes an image of the session; gives how long that took.
fn committed(
    subject: &BenchServer,
    member: &Member,
    session: &str,
    reference: &str,
) -> io::Result<Duration> {
    // As a browser: a token would need more scopes than others here have.
    let [origin, site] = BROWSER;
    let mut browser = subject.tcp(&[origin, site, ("cookie", &member.cookie)])?;
    let path = format!("/api/v1/sessions/{session}/commit");
    let began = Instant::now();
    let begun = browser
        .post(&path, &json!({"reference": reference}))?
        .good("make an image")?
        .json();
    let id = begun["id"].as_str().unwrap_or_default();
    let path = format!("/api/v1/operations/{id}");
    loop {
        let now = browser.get(&path)?.good("look at it")?.json();
        match now["state"].as_str() {
            Some("succeeded") => return Ok(began.elapsed()),
            Some("failed" | "cancelled") => {
                return Err(io::Error::other(format!("no image: {now}")));
            }
            _ if began.elapsed() > TIMEOUT => {
                return Err(io::Error::other(format!("it takes too long: {now}")));
            }
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Does something while so many threads of this program compute.
fn loaded<T>(threads: usize, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut sum = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
                }
            });
        }
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_computes_beside_the_work_ends_with_it() {
        assert_eq!(loaded(2, || 42), 42);
    }
}
