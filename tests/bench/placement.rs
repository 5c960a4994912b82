//! How long the scheduler thinks in a large house, on one core, and how soon a user who moves the slider of
//! a share has an answer. The first is the rules alone; the second is a server with devices that do not
//! exist.

use std::io;
use std::time::Instant;

use rules::placement::{self, Decision};
use rules::reason::Reason;
use rules::world::ClusterSnapshot;
use serde_json::{Value, json};

use super::cluster::{AT, NODES, WAITING, by_fair_share, by_time, large, overrun};
use super::figures::{milliseconds, ms, round};
use super::subject::BenchServer;

/// Cards of the server that answers previews, and sessions on them.
const CARDS: &str = "H100:8";
const SESSIONS: usize = 9;

/// One pass over all waiting sessions, one decision once all of them run, and one about a session that may
/// pass all the others; users in turns, and by fair share.
pub(super) fn decisions(times: usize) -> io::Result<Value> {
    let mut turns = decided(times, |world| world)?;
    turns["fair_share"] = decided(times, by_fair_share)?;
    turns["timed"] = passed_by_time(times)?;
    Ok(turns)
}

/// One pass with timed backfill behind a session that waits for a whole machine, and one once those that pass run.
fn passed_by_time(times: usize) -> io::Result<Value> {
    let waiting = by_time(large());
    let (mut passes, mut placed) = (Vec::new(), Vec::new());
    for _ in 0..times {
        let began = Instant::now();
        placed = placement::decide(&waiting, AT);
        passes.push(ms(began.elapsed()));
    }
    let count = placed.len();
    if count == 0 {
        return Err(io::Error::other("no session passed by its time limit"));
    }
    let full = settled(waiting, placed)?;
    let mut one = Vec::new();
    for _ in 0..times {
        let began = Instant::now();
        let _ = placement::decide(&full, AT);
        one.push(ms(began.elapsed()));
    }
    Ok(json!({
        "what": format!("rules::placement::decide with timed backfill by fair share, {NODES} machines of 8 devices, {WAITING} waiting of 2,000 users, on one core"),
        "placed": count,
        "pass": milliseconds(&passes),
        "one_more": milliseconds(&one),
    }))
}

fn decided(times: usize, ordered: fn(ClusterSnapshot) -> ClusterSnapshot) -> io::Result<Value> {
    let waiting = ordered(large());
    let mut passes = Vec::new();
    let mut placed = Vec::new();
    for _ in 0..times {
        let began = Instant::now();
        placed = placement::decide(&waiting, AT);
        passes.push(ms(began.elapsed()));
    }
    let count = placed.len();
    let full = settled(waiting, placed)?;
    let mut one = Vec::new();
    for _ in 0..times {
        let began = Instant::now();
        let decided = placement::decide(&full, AT);
        one.push(ms(began.elapsed()));
        if decided.len() != 1 {
            return Err(io::Error::other("the last one found no place"));
        }
    }
    let overrun = ordered(overrun());
    let mut past = Vec::new();
    for _ in 0..times {
        let began = Instant::now();
        let decided = placement::decide(&overrun, AT);
        past.push(ms(began.elapsed()));
        if decided.len() != 1 {
            return Err(io::Error::other("the last one did not pass the others"));
        }
    }
    let each = passes.iter().sum::<f64>() * 1000.0 / (count.max(1) * times.max(1)) as f64;
    Ok(json!({
        "what": format!("rules::placement::decide, {NODES} machines of 8 devices, {WAITING} waiting in thirty sizes, on one core"),
        "placed": count,
        "pass": milliseconds(&passes),
        "microseconds_each": round(each),
        "one_more": milliseconds(&one),
        "one_past_all": milliseconds(&past),
    }))
}

/// The same house after a pass: all that were placed run, and one more like the last of them waits.
fn settled(mut world: ClusterSnapshot, placed: Vec<Decision>) -> io::Result<ClusterSnapshot> {
    for decision in placed {
        let Decision::Place {
            session,
            node,
            devices,
            ..
        } = decision
        else {
            continue;
        };
        if let Some(row) = world.sessions.iter_mut().find(|row| row.id == session) {
            row.place(
                node,
                devices,
                Reason::from_parts("bench".into(), "Placed by the bench.".into()),
                AT,
            );
        }
    }
    let last = world.sessions.last_mut();
    let last = last.ok_or_else(|| io::Error::other("no session was placed"))?;
    last.lifecycle = rules::session::Lifecycle::Pending;
    Ok(world)
}

/// Answers to previews, as the slider of the launch page asks for them.
pub(super) fn previews(times: usize) -> io::Result<Value> {
    let (subject, _) = BenchServer::with("preview", &[("FARDEL_SIMULATE_GPUS", CARDS)])?;
    let mut local = subject.local()?;
    let body = json!({
        "kind": "batch", "image": "host", "command": ["sleep", "3600"], "replicas": SESSIONS,
        "resources": {"cpu": 0.01, "memory": 16 << 20, "shm": 1 << 20, "gpu": 0.35},
    });
    local.post("/api/v1/sessions", &body)?.good("launch")?;
    let mut samples = Vec::new();
    for number in 0..times {
        // Every step of the slider is another share.
        let share = (number % 100 + 1) as f64 / 100.0;
        let body = json!({
            "kind": "batch", "image": "host", "command": ["true"],
            "resources": {"cpu": 0.1, "memory": 32 << 20, "shm": 1 << 20, "gpu": share},
        });
        let began = Instant::now();
        local
            .post("/api/v1/sessions?dry_run=true", &body)?
            .good("preview")?;
        samples.push(ms(began.elapsed()));
    }
    Ok(json!({
        "what": format!("POST /api/v1/sessions?dry_run=true over the local socket, {CARDS} simulated, {SESSIONS} sessions, every share from 0.01 to 1"),
        "answer": milliseconds(&samples),
    }))
}
