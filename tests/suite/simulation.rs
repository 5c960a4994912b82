//! The world simulation: real rules, real SQLite, every pass of the controller; machines, links,
//! disks, clocks and people are played by random numbers. A seed that fails is printed and replays to the
//! letter.

mod backfill;
mod fair_day;
mod faults;
mod groups;
mod idle;
mod idle_lives;
mod launches;
mod ledger_week;
mod nodes;
mod preemption;
mod preemption_lives;
mod promises;
mod random;
mod reservations;
mod run;
mod scale;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use faults::Fault;
use run::{Tally, play, play_among};

/// Seeds tried in every run of the tests: 50 fixed ones and the ones that failed once. The nightly adds fresh ones: a
/// change is judged by seeds that the change before was judged by.
const FIXED: u64 = 50;
const FAILED_ONCE: &[u64] = &[
    55,
    68,
    341,
    2_014,
    2_326,
    4_448,
    308_391_756,
    678_481_283,
    795_150_022,
    856_249_025,
];
/// The same among more thieves than usual: one in how many, and the seed. In the first a server that died
/// twice believed a clock that had been set meanwhile, and ended a session before its limit.
const FAILED_AMONG: &[(u8, u64)] = &[(2, 19)];
const FRESH: usize = 1_000;
/// A planted fault that needs more seeds than this is not found. Higher: a fault that nothing finds costs more
/// before it is named. Lower: the rarest ones, which one seed in fifty shows, are missed as soon as a longer row
/// moves the moment at which the disk is full, and with it what each seed plays.
const SEEDS_TO_FIND: u64 = 240;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a seed is a whole number"))
}

/// How many seeds a play by the rules alone tries: so few in every run, `FARDEL_RULE_SEEDS` in the nightly.
fn rule_seeds(few: u64) -> u64 {
    number("FARDEL_RULE_SEEDS").unwrap_or(few)
}

/// Plays so many seeds, one on each processor at a time, or `FARDEL_SEED` alone. What fails panics with its seed.
fn on_all_processors<T: Send>(seeds: u64, play: impl Fn(u64) -> T + Sync) -> Vec<T> {
    if let Some(seed) = number("FARDEL_SEED") {
        return vec![play(seed)];
    }
    let next = AtomicU64::new(0);
    let work = || {
        let mut played = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return played;
            }
            played.push(play(seed));
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().map(|worker| {
            let played = worker.join();
            played.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        ended.flatten().collect()
    })
}

/// `FARDEL_SEED=17` plays one seed, `FARDEL_SEEDS=1000` so many fixed ones, those that failed once first; with
/// `FARDEL_SEED_MINUTES` fresh ones before the fixed ones.
fn chosen() -> Vec<u64> {
    if let Some(seed) = number("FARDEL_SEED") {
        return vec![seed];
    }
    let fixed = number("FARDEL_SEEDS").unwrap_or(FIXED);
    let fresh = match number("FARDEL_SEED_MINUTES") {
        Some(_) => FRESH,
        None => 0,
    };
    let fresh = (0..fresh).map(|_| random::fresh_seed());
    let first = FAILED_ONCE.iter().copied().chain(fresh);
    first.chain(0..fixed).collect()
}

/// Plays these seeds, one on each processor at a time; with `FARDEL_SEED_MINUTES` begins none after so many
/// minutes. Returns how many were played, and what they had in sum.
fn play_all(seeds: &[u64]) -> (usize, Tally) {
    let limit = number("FARDEL_SEED_MINUTES").map(|minutes| Duration::from_secs(minutes * 60));
    let (began, next) = (Instant::now(), AtomicUsize::new(0));
    let work = || {
        let (mut played, mut tally) = (0, Tally::default());
        while limit.is_none_or(|limit| began.elapsed() < limit) {
            let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            match play(*seed, None) {
                Ok(one) => tally += one,
                Err(broken) => {
                    next.store(seeds.len(), Ordering::Relaxed);
                    panic!("{broken}");
                }
            }
            played += 1;
        }
        (played, tally)
    };
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        let mut sum = (0, Tally::default());
        for worker in workers {
            let (played, tally) = worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            sum.0 += played;
            sum.1 += tally;
        }
        sum
    })
}

/// Promise (Sessions survive failures): Any process may die at any time. No acknowledged launch is lost, no
/// session starts twice, and nothing is left behind (simulated).
#[test]
fn seeds() {
    let seeds = chosen();
    let began = Instant::now();
    let (played, mut tally) = play_all(&seeds);
    for (thieves, seed) in FAILED_AMONG {
        match play_among(*thieves, *seed, None) {
            Ok(one) => tally += one,
            Err(broken) => panic!("among one thief in {thieves}: {broken}"),
        }
    }
    println!(
        "{played} of {} seeds (first {:?}) in {:.1} s: {tally:?}",
        seeds.len(),
        &seeds[..seeds.len().min(20)],
        began.elapsed().as_secs_f64()
    );
}

/// Proves too: `whoever_passes_takes_nothing_that_anybody_in_front_could_get`
#[test]
fn every_planted_fault_is_found() {
    let mut missed = Vec::new();
    for fault in Fault::ALL {
        let found = |seed| {
            let broken = play(seed, Some(fault)).err()?;
            let named = fault
                .promise()
                .is_none_or(|words| broken.promise.contains(words));
            named.then_some(broken)
        };
        match (0..SEEDS_TO_FIND).find_map(found) {
            Some(broken) => println!(
                "{fault:?}: found by seed {} at second {}: {}",
                broken.seed, broken.second, broken.promise
            ),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "nobody noticed {missed:?}");
}
