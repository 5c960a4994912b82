//! What a process costs, as the kernel counts it. Read from outside; the process does nothing for it.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

/// Processor time of all threads of a process so far, to the nanosecond; zero when it is gone.
pub(super) fn processor_time(pid: u32) -> Duration {
    let nanoseconds = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum();
    Duration::from_nanos(nanoseconds)
}

/// A line of `smaps_rollup` in KiB; None where the kernel does not say.
fn kib(pid: u32, key: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim_start_matches(':')
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

pub(super) fn rss_kib(pid: u32) -> Option<u64> {
    kib(pid, "Rss")
}

pub(super) fn pss_kib(pid: u32) -> Option<u64> {
    kib(pid, "Pss")
}

/// Memory of a process in KiB: resident, its fair share, what is only its own.
pub(super) fn memory(pid: u32) -> Value {
    json!({
        "rss_kib": rss_kib(pid),
        "pss_kib": pss_kib(pid),
        "anonymous_kib": kib(pid, "Anonymous"),
    })
}
