//! The processes of one session as the kernel names them: number inside, name, state, processor time and memory. Only
//! looks. Never reads a command line: that waits for a lock which the process may hold for as long as it likes.

use std::fs;

use base::link::streams::ContainerProcess;

/// Processes of one session that are named. More: a page of thousands of rows. Fewer: a large build is cut.
const MAX_PROCESSES: usize = 200;

/// Ticks of a second in `/proc/PID/stat`: the kernel's USER_HZ, 100 on every architecture we build for.
const TICKS: u64 = 100;

/// Names those of `pids` that live, the largest memory first, at most 200. Costs two small files for each.
pub(super) fn named(pids: &[i32]) -> Vec<ContainerProcess> {
    let mut all: Vec<ContainerProcess> = pids.iter().filter_map(|pid| look(*pid)).collect();
    all.sort_by_key(|process| (std::cmp::Reverse(process.memory_bytes), process.pid));
    all.truncate(MAX_PROCESSES);
    all
}

fn look(pid: i32) -> Option<ContainerProcess> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    process(&read("stat")?, &read("status")?)
}

/// A process from its two files; None where one of them is not as the kernel writes it.
fn process(stat: &str, status: &str) -> Option<ContainerProcess> {
    // The name stands in parentheses and may hold anything; count from its end.
    let (begin, rest) = stat.rsplit_once(") ")?;
    let (_, name) = begin.split_once('(')?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let line = |wanted: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(wanted))?;
        Some(line.trim())
    };
    let memory = line("VmRSS:").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    Some(ContainerProcess {
        pid: line("NSpid:")?
            .split_whitespace()
            .next_back()?
            .parse()
            .ok()?,
        name: name.to_owned(),
        state: fields.first()?.chars().next()?,
        cpu_millis: (ticks(11)? + ticks(12)?) * 1000 / TICKS,
        // A process that is over has none.
        memory_bytes: memory.unwrap_or(0) * 1024,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_holds() {
        let stat = "4711 (a ) R (b) S 1 2 3 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 99 0 0\n";
        let status =
            "Name:\ta ) R (b\nState:\tS (sleeping)\nNSpid:\t4711\t12\nVmRSS:\t    2048 kB\n";
        let read = process(stat, status).expect("well formed");
        let wanted = ContainerProcess {
            pid: 12,
            name: "a ) R (b".to_owned(),
            state: 'S',
            cpu_millis: 3000,
            memory_bytes: 2 << 20,
        };
        assert_eq!(read, wanted);
        assert!(process("nonsense", status).is_none());
        assert!(process(stat, "Name:\tx\n").is_none());
    }

    #[test]
    fn this_process_is_found_and_one_that_is_gone_is_left_out() {
        let own = std::process::id().cast_signed();
        let found = named(&[own, i32::MAX]);
        assert_eq!(found.len(), 1);
        assert!(found[0].memory_bytes > 0 && !found[0].name.is_empty());
    }

    #[test]
    fn no_more_than_two_hundred_are_named() {
        let own = std::process::id().cast_signed();
        assert_eq!(named(&vec![own; 300]).len(), MAX_PROCESSES);
    }
}
