//! The common trace under Debian's own Slurm and under our scheduler, with the same figures of both; a figure of ours that is
//! behind and not known to be fails. No stage of the gate: it takes Slurm some 25 minutes until the last job of the day is
//! over.

use std::fs;

use crate::failure::Failure;
use crate::program::{self, Program};
use crate::trace_day;

/// Runs one day in namespaces of its own.
const DAY: &str = "packaging/tasks/src/slurm/day.sh";
/// Orders of the queue: of ours, and for Slurm first in first out and Fair Tree.
const MODES: [&str; 2] = ["fifo", "fair"];

/// `cargo ci slurm [fifo|fair]`, on the release build; both without a word.
pub(crate) fn command(words: &[&str]) -> Result<(), Failure> {
    let wanted = match words {
        [] => None,
        [mode] if MODES.contains(mode) => Some(*mode),
        _ => return Err(Failure::new("usage: cargo ci slurm [fifo|fair]")),
    };
    if !program::is_root() {
        return Err(Failure::new("only root makes the namespaces of a day"));
    }
    let binary = program::built("release")?;
    let place = program::target_directory()?.join("slurm");
    fs::create_dir_all(&place)
        .map_err(|error| Failure::new(format!("{} cannot be made: {error}", place.display())))?;
    let jobs = place.join("jobs.tsv");
    let bench = || Program::named(&binary).words("bench trace");
    bench().argument("--write-jobs").argument(&jobs).run()?;
    let mut worse = Vec::new();
    for mode in MODES {
        if wanted.is_some_and(|wanted| wanted != mode) {
            continue;
        }
        let starts = place.join(format!("starts-{mode}.tsv"));
        Program::named("nice")
            .words("-n 10 sh")
            .argument(DAY)
            .argument(&jobs)
            .argument(&starts)
            .argument(mode)
            .run()?;
        bench().argument("--starts").argument(&starts).run()?;
        bench().argument("--order").argument(mode).run()?;
        let slurms = bench().words("-o json --starts").argument(&starts).output();
        let slurms = trace_day::run_of(&slurms?)?;
        let ours = trace_day::played(&binary, mode, None)?;
        // The other order is played whether or not this one is behind.
        worse.extend(trace_day::beside_slurm(mode, &ours, &slurms).err());
    }
    match worse.is_empty() {
        true => Ok(()),
        false => {
            let told: Vec<String> = worse.iter().map(ToString::to_string).collect();
            Err(Failure::new(told.join("; ")))
        }
    }
}
