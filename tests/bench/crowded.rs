//! Folders of many files: an archive of a hundred thousand with what it takes of the server's memory, and a directory of a
//! million, which is listed, removed in one step, and given back while a session writes beside it.

use std::io;
use std::time::{Duration, Instant};

use base::figures::{milliseconds, ms, round};
use serde_json::{Value, json};

use super::exchange::Exchange;
use super::guest::{self, GuestImage, STOP};
use super::member::{Member, purged};
use super::process::{peak_kib, reset_peak, resident_kib};
use super::subject::BenchServer;

const FOLDER: &str = "bench";
/// As many as a zip takes.
const ARCHIVED: u64 = 100_000;
const ARCHIVED_BYTES: u64 = 1024;
const MILLION: u64 = 1_000_000;
/// How long the writer runs with nothing beside it.
const QUIET: Duration = Duration::from_secs(10);

fn asked(words: &[&str]) -> Value {
    json!({
        "kind": "batch", "image": guest::IMAGE, "command": guest::command(words),
        "mounts": [{"folder": FOLDER, "at": "/data"}],
        "resources": {"cpu": 1, "memory": 512 << 20},
    })
}

/// Runs a guest to its end; gives what it printed.
fn done(subject: &BenchServer, member: &Member, words: &[&str]) -> io::Result<Value> {
    let id = member.launch(subject, &asked(words))?;
    told(subject, member, &id)
}

/// What a guest printed once it has ended.
fn told(subject: &BenchServer, member: &Member, id: &str) -> io::Result<Value> {
    member.until(subject, id, "ended")?;
    let said = member.said(subject, id)?;
    serde_json::from_str(&said).map_err(|_| io::Error::other(format!("a guest said: {said}")))
}

/// A directory of many small files as zip and as tar; how much the server's memory grew over what it was just before.
pub(super) fn archives(is_quick: bool) -> io::Result<Value> {
    let count = if is_quick { ARCHIVED / 10 } else { ARCHIVED };
    let (subject, _) = BenchServer::fresh("archive")?;
    let member = Member::first(&subject)?;
    let folder = member.folder(&subject, FOLDER)?;
    GuestImage::make()?.import(&subject)?;
    let bytes = ARCHIVED_BYTES.to_string();
    // What runs for the first time brings its own code into memory.
    done(&subject, &member, &["files", "/data/few", "100", &bytes])?;
    done(
        &subject,
        &member,
        &["files", "/data/many", &count.to_string(), &bytes],
    )?;
    let mut figure = json!({
        "what": format!("a directory of {count} files of 1 KiB over loopback to a client that throws it away; memory: VmHWM after less VmRSS before"),
    });
    for format in ["zip", "tar"] {
        let address =
            |path: &str| format!("/api/v1/folders/{folder}/archive?path={path}&format={format}");
        let mut exchange = Exchange::plain(subject.listen())?;
        exchange
            .get(&address("few"), &member.authorization())?
            .with_status(200, "archive")?;
        reset_peak(subject.pid())?;
        let before = resident_kib(subject.pid());
        let began = Instant::now();
        let got = exchange
            .get(&address("many"), &member.authorization())?
            .with_status(200, "archive")?;
        let took = began.elapsed();
        let peak = peak_kib(subject.pid());
        let grown = peak
            .zip(before)
            .map(|(peak, before)| peak.saturating_sub(before));
        figure[format] = json!({
            "seconds": round(took.as_secs_f64()),
            "bytes": got.bytes,
            "rss_before_kib": before,
            "peak_kib": peak,
            "grown_kib": grown,
        });
    }
    Ok(figure)
}

/// A directory of a million files: its first page cold and warm, how soon a removal answers, and how long a session that
/// writes in the same folder waits while the room is given back.
pub(super) fn million(is_quick: bool) -> io::Result<Value> {
    let count = if is_quick { MILLION / 10 } else { MILLION };
    let (mut subject, _) = BenchServer::fresh("million")?;
    let member = Member::first(&subject)?;
    let folder = member.folder(&subject, FOLDER)?;
    GuestImage::make()?.import(&subject)?;
    let made = done(
        &subject,
        &member,
        &["files", "/data/many", &count.to_string(), "0"],
    )?;
    subject.leave();
    let is_dropped = drop_caches();
    subject.start()?;
    let listed = || -> io::Result<f64> {
        let path = format!("/api/v1/folders/{folder}/entries?path=many&limit=200");
        let mut local = member.local(&subject)?;
        let began = Instant::now();
        local.get(&path)?.good("list")?;
        Ok(ms(began.elapsed()))
    };
    let cold = listed()?;
    let warm = (0..20).map(|_| listed()).collect::<io::Result<Vec<_>>>()?;
    let quiet = beside(&subject, &member, &folder, &mut || {
        std::thread::sleep(QUIET);
        Ok(())
    })?;
    let (mut answer, mut purge) = (Duration::ZERO, Duration::ZERO);
    let busy = beside(&subject, &member, &folder, &mut || {
        answer = member.remove(&subject, &folder, "many")?;
        purge = purged(&subject, &folder)?;
        Ok(())
    })?;
    Ok(json!({
        "what": format!("a directory of {count} empty files; the writer is a session that writes 4 KiB each 5 ms into the same folder, and 4 KiB with a sync each 100 ms"),
        "made": made,
        "caches_were_dropped": is_dropped,
        "first_page_cold_ms": round(cold),
        "first_page_warm": milliseconds(&warm),
        "removal_answered_ms": round(ms(answer)),
        "purge_seconds": round(purge.as_secs_f64()),
        "writer_alone": quiet,
        "writer_while_purged": busy,
    }))
}

/// Lets a session write in the folder while something is done; gives how long its writes waited.
fn beside(
    subject: &BenchServer,
    member: &Member,
    folder: &str,
    act: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<Value> {
    let id = member.launch(subject, &asked(&["write", "/data"]))?;
    member.until(subject, &id, "running")?;
    // It has begun to write.
    std::thread::sleep(Duration::from_secs(1));
    let acted = act();
    let stop = json!({"path": STOP});
    member
        .local(subject)?
        .post(&format!("/api/v1/folders/{folder}/mkdir"), &stop)?
        .good("stop the writer")?;
    let waits = told(subject, member, &id)?;
    member.remove(subject, folder, STOP)?;
    acted.map(|()| waits)
}

/// Lets the kernel forget names, inodes and pages that are on the disk; false where it may not be asked to.
fn drop_caches() -> bool {
    nix::unistd::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}
