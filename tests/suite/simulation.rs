//! The world simulation: real rules, real SQLite, every pass of the controller; machines, links,
//! disks, clocks and people are played by random numbers. A seed that fails is printed and replays to the
//! letter.

mod faults;
mod launches;
mod nodes;
mod random;
mod run;
mod scale;

use std::time::Instant;

use faults::Fault;
use run::{Tally, play, play_among};

/// Seeds tried in every run of the tests: 50 fixed ones, the ones that failed once, 10 fresh ones.
const FIXED: u64 = 50;
const FAILED_ONCE: &[u64] = &[55, 68, 341, 308_391_756, 795_150_022, 856_249_025];
/// The same among more thieves than usual: one in how many, and the seed. In the first a server that died
/// twice believed a clock that had been set meanwhile, and ended a session before its limit.
const FAILED_AMONG: &[(u8, u64)] = &[(2, 19)];
const FRESH: usize = 10;
/// A planted fault that needs more seeds than this is not found.
const SEEDS_TO_FIND: u64 = 60;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a seed is a whole number"))
}

/// `FARDEL_SEED=17` plays one seed, `FARDEL_SEEDS=1000` so many fixed ones.
fn chosen() -> Vec<u64> {
    if let Some(seed) = number("FARDEL_SEED") {
        return vec![seed];
    }
    let fixed = number("FARDEL_SEEDS").unwrap_or(FIXED);
    let fresh = (0..FRESH).map(|_| random::fresh_seed());
    (0..fixed)
        .chain(FAILED_ONCE.iter().copied())
        .chain(fresh)
        .collect()
}

/// Promise (Sessions survive failures): Any process may die at any time. No acknowledged launch is lost, no
/// session starts twice, and nothing is left behind (simulated).
#[test]
fn seeds() {
    let seeds = chosen();
    let began = Instant::now();
    let mut tally = Tally::default();
    for seed in &seeds {
        match play(*seed, None) {
            Ok(one) => tally += one,
            Err(broken) => panic!("{broken}"),
        }
    }
    for (thieves, seed) in FAILED_AMONG {
        match play_among(*thieves, *seed, None) {
            Ok(one) => tally += one,
            Err(broken) => panic!("among one thief in {thieves}: {broken}"),
        }
    }
    println!(
        "{} seeds ({:?} fresh) in {:.1} s: {tally:?}",
        seeds.len(),
        &seeds[seeds.len().saturating_sub(FRESH)..],
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
