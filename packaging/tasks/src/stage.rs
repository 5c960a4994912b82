//! Runs one stage after the other, times each, and says at the end which failed and which were slow. A
//! failed stage does not stop the ones behind it: one run tells everything.

use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use crate::failure::Failure;
use crate::{budgets, slowest};

/// The stage that all others of a release need.
pub(crate) const BUILD: &str = "release build";

/// What a stage over its budget of CPU seconds means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Budget {
    /// A line in the log: the same work costs another machine other seconds.
    Told,
    /// A failure: this machine is the one that the budgets were set on.
    Held,
}

struct Outcome {
    name: &'static str,
    wall_seconds: f64,
    cpu_seconds: f64,
    failure: Option<Failure>,
}

/// The gate while it is being passed.
pub(crate) struct Gate {
    outcomes: Vec<Outcome>,
    /// Words of which one stands in the name of each stage that runs; none: all of them run.
    wanted: Vec<String>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self::of(&[])
    }

    /// Of the stages only those in whose name one of these words stands, and the build that they need.
    pub(crate) fn of(wanted: &[&str]) -> Self {
        Self {
            outcomes: Vec::new(),
            wanted: wanted.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    fn wants(&self, name: &str) -> bool {
        name == BUILD
            || self.wanted.is_empty()
            || self.wanted.iter().any(|word| name.contains(word))
    }

    /// Runs one stage and keeps its outcome, its wall time and the CPU time of its children.
    pub(crate) fn stage(&mut self, name: &'static str, run: impl FnOnce() -> Result<(), Failure>) {
        if !self.wants(name) {
            return;
        }
        println!("\n── {name}");
        let (begun, cpu_before) = (Instant::now(), children_cpu_seconds());
        let failure = run().err();
        if let Some(failure) = &failure {
            println!("{name} failed: {failure}");
        }
        self.outcomes.push(Outcome {
            name,
            wall_seconds: begun.elapsed().as_secs_f64(),
            cpu_seconds: children_cpu_seconds() - cpu_before,
            failure,
        });
    }

    /// Prints the table of stages, the slowest stages and tests, and what went over
    /// `.ci/budgets.toml`; answers whether every stage passed.
    pub(crate) fn close(mut self, budget: Budget) -> ExitCode {
        for word in std::mem::take(&mut self.wanted) {
            let ran = self
                .outcomes
                .iter()
                .any(|outcome| outcome.name.contains(&word));
            if !ran {
                let failure = Failure::new(format!("no stage has {word:?} in its name"));
                self.outcomes.push(Outcome {
                    name: "stages that are wanted",
                    wall_seconds: 0.0,
                    cpu_seconds: 0.0,
                    failure: Some(failure),
                });
            }
        }
        println!("\n{:<28} {:>8} {:>8}", "stage", "wall s", "CPU s");
        for outcome in &self.outcomes {
            let verdict = if outcome.failure.is_some() {
                "  FAILED"
            } else {
                ""
            };
            let Outcome {
                name,
                wall_seconds,
                cpu_seconds,
                ..
            } = outcome;
            println!("{name:<28} {wall_seconds:>8.1} {cpu_seconds:>8.1}{verdict}");
        }
        self.print_slowest();
        if let Some(failure) = self.judge(budget) {
            self.outcomes.push(Outcome {
                name: "CPU seconds",
                wall_seconds: 0.0,
                cpu_seconds: 0.0,
                failure: Some(failure),
            });
        }
        let failed: Vec<&Outcome> = self
            .outcomes
            .iter()
            .filter(|outcome| outcome.failure.is_some())
            .collect();
        for outcome in &failed {
            if let Some(failure) = &outcome.failure {
                println!("\n{} failed: {failure}", outcome.name);
            }
        }
        if failed.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    /// Prints each stage over its budget; a failure when budgets are held, or cannot be read.
    fn judge(&self, budget: Budget) -> Option<Failure> {
        let spent: Vec<(&str, f64)> = self
            .outcomes
            .iter()
            .map(|outcome| (outcome.name, outcome.cpu_seconds))
            .collect();
        let over = match budgets::over(&spent) {
            Ok(over) if over.is_empty() => return None,
            Ok(over) => over,
            Err(failure) => return Some(failure),
        };
        println!("\nover budget:");
        for sentence in &over {
            println!("  {sentence}");
        }
        (budget == Budget::Held).then(|| Failure::new(over.join("; ")))
    }

    fn print_slowest(&self) {
        let mut stages: Vec<(String, f64)> = self
            .outcomes
            .iter()
            .map(|outcome| (outcome.name.to_owned(), outcome.wall_seconds))
            .collect();
        slowest::print("stages", &mut stages);
        if let Some(file) = std::env::var_os("FARDEL_TIMES") {
            match fs::read_to_string(&file) {
                Ok(stamped) => slowest::print("tests of cargo test", &mut slowest::tests(&stamped)),
                Err(error) => println!("{}: {error}", file.to_string_lossy()),
            }
        }
    }
}

/// CPU seconds of all children that were waited for; zero where /proc does not tell.
pub(crate) fn children_cpu_seconds() -> f64 {
    cpu_seconds("/proc/self/stat", &[16, 17])
}

/// Adds fields of a process's `stat` file, in seconds; zero when there is no such process.
pub(crate) fn cpu_seconds(stat: &str, fields: &[usize]) -> f64 {
    /// The kernel counts these fields in hundredths on every architecture we build for.
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = fs::read_to_string(stat).unwrap_or_default();
    // The command's name may hold blanks; the fields begin behind its closing bracket with field 3.
    let behind: Vec<&str> = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    fields
        .iter()
        .filter_map(|number| behind.get(number - 3)?.parse::<f64>().ok())
        .sum::<f64>()
        / TICKS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beyond any budget.
    const LONG: f64 = 1e9;

    #[test]
    fn a_stage_over_its_budget_is_told_by_day_and_held_to_it_at_night() {
        // The budgets are named from the root of the tree.
        crate::enter_root().unwrap();
        let gate = |cpu_seconds| Gate {
            wanted: Vec::new(),
            outcomes: vec![Outcome {
                name: "clippy",
                wall_seconds: 1.0,
                cpu_seconds,
                failure: None,
            }],
        };
        assert!(gate(LONG).judge(Budget::Told).is_none());
        let held = gate(LONG).judge(Budget::Held).unwrap();
        assert!(
            held.0.starts_with("clippy took 1000000000 CPU seconds"),
            "{held}"
        );
        assert!(gate(0.0).judge(Budget::Held).is_none());
    }
}
