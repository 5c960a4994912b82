//! The real product killed at random moments: `kill -9` of the server, of supervisors, of both,
//! while a client keeps a list of what was acknowledged. Nothing acknowledged may be lost, nothing
//! may be left behind. `FARDEL_KILLS` says how often (6 without it), `FARDEL_SEED` repeats a run as
//! far as chance is ours.

mod client;
pub(crate) mod http;
mod inner_door;
pub(crate) mod installation;
mod manners;
mod older_release;
mod own_disk;
mod owners;
mod random;
mod reunion;
mod supervisors;
mod together;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use client::{Client, Ledger, is_stop, open};
use installation::Installation;
use random::Random;

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Longer than a killed process takes to leave on a loaded machine.
const PROCESS_END: Duration = Duration::from_secs(10);

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_left_whoever_is_killed() {
    let name = "nothing_acknowledged_is_lost_and_nothing_is_left_whoever_is_killed";
    let kills = number_from("FARDEL_KILLS").unwrap_or(6);
    let mut tally = Tally::default();
    let ran = live_through(name, kills, |installation, random, ledger| {
        match random.below(4) {
            0 | 1 => tally.server += kill_server(installation, random),
            2 => tally.shims += kill_shims(installation, random, ledger, 1),
            _ => {
                // Both: the server is gone before it can hear of its supervisors' end.
                installation.kill();
                tally.server += 1;
                tally.shims += kill_shims(installation, random, ledger, 2);
                installation.start();
            }
        }
    });
    if ran {
        println!("{tally:?}: nothing lost, nothing left");
    }
}

/// Lets a client work while `event` happens `events` times, then looks whether anything acknowledged was
/// lost and whether anything is left. False after saying why containers cannot run here.
fn live_through(
    name: &str,
    events: u64,
    mut event: impl FnMut(&mut Installation, &mut Random, &Mutex<Ledger>),
) -> bool {
    let Some(mut installation) = Installation::found(name) else {
        return false;
    };
    let seed = number_from("FARDEL_SEED").unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        u64::from(since.subsec_nanos()) + since.as_secs()
    });
    println!("FARDEL_SEED={seed}, {events} events");
    let mark = format!("mark{seed}");
    let mut random = Random::new(seed);
    let ledger = Mutex::new(Ledger::default());
    let enough = AtomicBool::new(false);
    installation.start();
    std::thread::scope(|scope| {
        let client = Client {
            socket: installation.socket(),
            ledger: &ledger,
            enough: &enough,
            random: Random::new(seed ^ 0xc11e),
            mark: mark.clone(),
            count: 0,
        };
        let at_work = scope.spawn(|| client.work());
        let _bell = Bell(&enough);
        for _ in 0..events {
            std::thread::sleep(Duration::from_millis(30) + random.millis(500));
            event(&mut installation, &mut random, &ledger);
            if at_work.is_finished() {
                break;
            }
            check_rows(&installation, &ledger);
        }
        enough.store(true, Ordering::Relaxed);
        at_work
            .join()
            .expect("the client did not meet anything it cannot explain");
    });
    finish(&mut installation, &ledger);
    let rows = check_rows(&installation, &ledger);
    check_ends(&rows, &ledger);
    assert_eq!(installation.namespaces_held(), Vec::<String>::new());
    let ended = installation.term();
    assert!(ended.success(), "SIGTERM: {ended}");
    // A process that was killed, or said its last word, needs a moment on a loaded machine.
    let _ = wait_until(PROCESS_END, || installation.leftovers(&mark).is_empty());
    assert_eq!(installation.leftovers(&mark), Vec::<String>::new());
    let said = installation.said();
    assert!(!said.contains("panicked"), "a server panicked:\n{said}");
    let ledger = open(&ledger);
    println!(
        "{} sessions, {} acknowledged, {} connections broken",
        ledger.sessions.len(),
        ledger.acknowledged,
        ledger.broken,
    );
    true
}

/// Rung at the end of a run, also of one that failed: the client would go on for ever.
struct Bell<'a>(&'a AtomicBool);

impl Drop for Bell<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Tally {
    server: usize,
    shims: usize,
}

fn kill_server(installation: &mut Installation, random: &mut Random) -> usize {
    installation.kill();
    // Sometimes long enough for sessions to end while nobody watches.
    if random.below(3) == 0 {
        std::thread::sleep(random.millis(900));
    }
    installation.start();
    1
}

fn kill_shims(
    installation: &Installation,
    random: &mut Random,
    ledger: &Mutex<Ledger>,
    most: usize,
) -> usize {
    let mut shims = installation.shims();
    let mut killed = 0;
    while killed < most && !shims.is_empty() {
        let (container, pid) = shims.remove(random.below(shims.len()));
        open(ledger).bereft.insert(session_of(&container));
        // SAFETY: seen a moment ago to be a supervisor of this installation.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        killed += 1;
    }
    killed
}

/// The id of the session whose container has this name: an id without dashes, a dash and a number.
fn session_of(container: &str) -> String {
    let digits = container.split('-').next().unwrap_or(container);
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    [
        part(0, 8),
        part(8, 12),
        part(12, 16),
        part(16, 20),
        part(20, 32),
    ]
    .join("-")
}

/// Every acknowledged session is there under its acknowledged name, and nothing else is.
fn check_rows(installation: &Installation, ledger: &Mutex<Ledger>) -> BTreeMap<String, Value> {
    // Taken before the look: what is acknowledged meanwhile may or may not be in it.
    let before: BTreeMap<_, _> = open(ledger).sessions.clone();
    let rows: BTreeMap<String, Value> = installation
        .sessions()
        .expect("the server answers")
        .into_iter()
        .map(|row| (row["id"].as_str().unwrap_or_default().to_owned(), row))
        .collect();
    let after = open(ledger);
    for (id, known) in &before {
        let now = &after.sessions[id];
        match rows.get(id) {
            None => assert!(
                now.deleted || at_work_on(&after, id),
                "{id} ({}) is gone",
                known.name
            ),
            Some(row) => {
                assert!(!known.deleted, "{id} was deleted and is back");
                assert!(
                    !known.stopped || row["desired"] != "run",
                    "the stop of {id} is lost: {row}"
                );
                let bereft = after.bereft.contains(id);
                let may_end = known.code.is_some() || now.stopping || bereft;
                assert!(
                    may_end || row["state"] != "ended",
                    "{id} ended by itself: {row}"
                );
            }
        }
    }
    rows
}

/// True for what the client may be deleting at this moment without having heard the answer.
fn at_work_on(ledger: &Ledger, id: &str) -> bool {
    ledger.sessions.get(id).is_some_and(|s| s.code.is_some())
}

/// Lets everything come to its end: stops what would run for ever, waits for the rest.
fn finish(installation: &mut Installation, ledger: &Mutex<Ledger>) {
    let rows = installation.sessions().expect("the server answers");
    for row in &rows {
        let id = row["id"].as_str().unwrap_or_default();
        let known = open(ledger).sessions.get(id).cloned();
        let known = known.unwrap_or_else(|| panic!("nobody launched {row}"));
        assert_eq!(row["name"], known.name.as_str(), "a name is lost: {row}");
        if row["state"] == "running" {
            assert_eq!(row["paused"], known.paused, "a pause is lost: {row}");
            let container = format!("{}-{}", id.replace('-', ""), row["incarnation"]);
            let wanted = if known.paused { "FROZEN" } else { "THAWED" };
            if installation.freezer(&container).is_some() {
                wait_until(TIMEOUT, || {
                    installation.freezer(&container).is_none_or(|s| s == wanted)
                })
                .unwrap_or_else(|()| panic!("{container} is not {wanted}: {row}"));
            }
        }
        if known.code.is_none() && row["state"] != "ended" {
            let path = format!("/api/v1/sessions/{id}/stop");
            let answer =
                http::call(&installation.socket(), "POST", &path, None, None).expect("an answer");
            assert!(
                answer.is_good() || answer.status == 409,
                "stop: {}",
                answer.json()
            );
            if let Some(known) = open(ledger).sessions.get_mut(id) {
                known.stopping = true;
                known.stopped |= answer.is_good() && is_stop(&answer);
            }
        }
    }
    // One owner's sessions start one after the other: what waits is long after many launches, and shrinks.
    let mut until = Instant::now() + TIMEOUT;
    let mut fewest = usize::MAX;
    loop {
        let rows = installation.sessions().expect("the server answers");
        let live: Vec<&Value> = rows.iter().filter(|row| row["state"] != "ended").collect();
        let left = std::fs::read_dir(installation.run().join("c")).map_or(0, Iterator::count);
        // A session that ended before its container was made leaves the record with the next assignment.
        let blocks = installation.blocks_of_ids();
        if live.is_empty() && left == 0 && blocks.is_empty() {
            return;
        }
        if live.len() < fewest {
            fewest = live.len();
            until = Instant::now() + TIMEOUT;
        }
        assert!(
            Instant::now() < until,
            "{left} containers and the blocks of ids of {blocks:?} remain; these do not end: {live:#?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Codes of what ended by itself, `lost` only where a supervisor was killed.
fn check_ends(rows: &BTreeMap<String, Value>, ledger: &Mutex<Ledger>) {
    let ledger = open(ledger);
    let mut wrong = Vec::new();
    for (id, row) in rows {
        let known = &ledger.sessions[id];
        let bereft = ledger.bereft.contains(id);
        let outcome = row["outcome"].as_str().unwrap_or_default();
        let code = row["exit_code"].as_i64();
        let right = match (known.code, outcome) {
            (_, "lost") => bereft,
            (Some(wanted), "succeeded" | "failed") => code == Some(wanted),
            (None, "stopped") => true,
            // A program that ended in the same moment as the stop came.
            (None, "failed") => bereft && known.stopped,
            _ => false,
        };
        if !right {
            wrong.push(format!("bereft {bereft}, {known:?}: {row}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong ends:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Err where `true_now` did not come true in time.
fn wait_until(patience: Duration, mut true_now: impl FnMut() -> bool) -> Result<(), ()> {
    let until = Instant::now() + patience;
    while !true_now() {
        if Instant::now() > until {
            return Err(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
