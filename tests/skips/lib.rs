//! Says aloud that a test could not run here, and why. A dev-dependency of every room; never part
//! of the product, and never a way to pass: a test calls it only after it has found out what this
//! host lacks, and returns.
//!
//! `cargo test` hides what passing tests print, so the line also goes to the file named by
//! `FARDEL_SKIPS` when that is set. `.ci/run` sets it and compares the names with `.ci/skips.txt`:
//! a test that falls silent on a machine which could run it fails the gate.

use std::fs::OpenOptions;
use std::io::Write;

/// Reports `skipped: NAME: reason`; the caller returns right after.
///
/// `name` is the test's own name without its module (`a_pause_stops_the_clock`), unique in the
/// whole repository because the committed list holds names only. `reason` is one line that a person
/// can act on ("needs cgroup v2; this host mounts v1"). Line breaks in it become spaces.
pub fn skip(name: &str, reason: &str) {
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = format!("skipped: {name}: {reason}\n");
    print!("{line}");
    let Some(path) = std::env::var_os("FARDEL_SKIPS") else {
        return;
    };
    // One short write to a file opened for appending is not torn apart by other test threads.
    let noted = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = noted {
        panic!(
            "{name} was skipped, but {} cannot be written: {error}",
            path.display()
        );
    }
}
