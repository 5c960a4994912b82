//! Which tests took longest, from libtest's own output with the time before each line. Libtest names a
//! test when it ends; which one began when follows from its order: it starts tests by name, and the next
//! one when one ends. Never decides whether anything passed.

use std::collections::{BTreeMap, VecDeque};

/// Tests that end with one of these words were run; an ignored one was not.
const RAN: [&str; 2] = ["ok", "FAILED"];

/// How many stages, and how many tests, are listed as the slowest.
const SLOWEST: usize = 10;

/// Prints the slowest first, at most [`SLOWEST`] of them; nothing when there are none.
pub(crate) fn print(what: &str, timed: &mut [(String, f64)]) {
    if timed.is_empty() {
        return;
    }
    timed.sort_by(|one, other| other.1.total_cmp(&one.1));
    println!("\nslowest {what:<46} wall s");
    for (name, seconds) in timed.iter().take(SLOWEST) {
        println!("{seconds:>8.1}  {name}");
    }
}

/// Seconds of each test that ran, in the order in which they ended; `stamped` has seconds since any
/// moment and a blank before each line. Exact where as many tests run at once as this machine has
/// processors, or `RUST_TEST_THREADS` says; a test that does not fit into the order is left out.
pub(crate) fn tests(stamped: &str) -> Vec<(String, f64)> {
    let at_once = std::env::var("RUST_TEST_THREADS")
        .ok()
        .and_then(|number| number.parse().ok())
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1);
    runs(stamped)
        .iter()
        .flat_map(|run| timed(run, at_once))
        .collect()
}

/// One test binary's run.
struct Run<'a> {
    begun: f64,
    /// When each test ended, in that order; and whether it ran.
    ended: Vec<(f64, &'a str, bool)>,
}

fn runs(stamped: &str) -> Vec<Run<'_>> {
    let mut runs: Vec<Run> = Vec::new();
    for line in stamped.lines() {
        let Some((stamp, line)) = line.split_once(' ') else {
            continue;
        };
        let Ok(at) = stamp.parse() else {
            continue;
        };
        if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            runs.push(Run {
                begun: at,
                ended: Vec::new(),
            });
        } else if let Some((name, verdict)) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.split_once(" ... "))
            && let Some(run) = runs.last_mut()
        {
            run.ended.push((at, name, RAN.contains(&verdict)));
        }
    }
    runs
}

fn timed(run: &Run, at_once: usize) -> Vec<(String, f64)> {
    let mut names: Vec<&str> = run.ended.iter().map(|(_, name, _)| *name).collect();
    names.sort_unstable();
    let mut waiting = VecDeque::from(names);
    let mut running: BTreeMap<&str, f64> = waiting
        .drain(..at_once.min(waiting.len()))
        .map(|name| (name, run.begun))
        .collect();
    let mut found = Vec::new();
    for (at, name, ran) in &run.ended {
        if let Some(begun) = running.remove(name)
            && *ran
        {
            found.push(((*name).to_owned(), at - begun));
        }
        if let Some(next) = waiting.pop_front() {
            running.insert(next, *at);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
100.0      Running unittests src/lib.rs
101.0 running 4 tests
101.5 test a::first ... ignored, needs a card
104.0 test b::second ... ok
109.0 test c::third ... ok
110.0 test d::fourth ... FAILED
110.0 test result: FAILED. 2 passed; 1 failed
111.0 running 1 test
113.0 test only ... ok
";

    #[test]
    fn with_two_at_once_each_begins_when_another_ends() {
        let runs = runs(OUTPUT);
        let told: Vec<_> = runs.iter().flat_map(|run| timed(run, 2)).collect();
        let wanted = [
            ("b::second", 3.0),
            ("c::third", 7.5),
            ("d::fourth", 6.0),
            ("only", 2.0),
        ];
        assert_eq!(
            told,
            wanted.map(|(name, seconds)| (name.to_owned(), seconds))
        );
    }

    #[test]
    fn one_after_the_other_takes_what_lies_between_two_lines() {
        let runs = runs(OUTPUT);
        let told: Vec<_> = timed(&runs[0], 1)
            .into_iter()
            .map(|(_, seconds)| seconds)
            .collect();
        assert_eq!(told, [2.5, 5.0, 1.0]);
    }

    #[test]
    fn lines_without_a_time_and_output_without_tests_say_nothing() {
        assert!(tests("cargo says this\ntest a ... ok\n1.0 test b ... ok\n").is_empty());
    }
}
