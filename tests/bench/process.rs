//! What a process costs, as the kernel counts it. Read from outside; the process does nothing for it.

use std::fs;
use std::io;
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

/// The most that was resident of a process since its start, or since `reset_peak`.
pub(super) fn peak_kib(pid: u32) -> Option<u64> {
    status_kib(pid, "VmHWM:")
}

/// What is resident of a process, counted as `peak_kib` counts.
pub(super) fn resident_kib(pid: u32) -> Option<u64> {
    status_kib(pid, "VmRSS:")
}

fn status_kib(pid: u32, key: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Lets the kernel count the most that is resident of a process from now on.
pub(super) fn reset_peak(pid: u32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
}

/// A process and all that descend from it.
pub(super) fn processes_below(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut looked = 0;
    while let Some(pid) = all.get(looked).copied() {
        looked += 1;
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        all.extend(
            children
                .split_whitespace()
                .filter_map(|word| word.parse::<u32>().ok()),
        );
    }
    all
}

/// Memory of a process in KiB: resident, its fair share, what is only its own.
pub(super) fn memory(pid: u32) -> Value {
    json!({
        "rss_kib": rss_kib(pid),
        "pss_kib": pss_kib(pid),
        "anonymous_kib": kib(pid, "Anonymous"),
    })
}
