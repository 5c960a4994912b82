//! `fardel rehearse FILE…`: reads scripts and prints what the rehearsal of each led to. `fardel rehearse decision`: has a
//! decision of the log decided again. What support sends in as a script replays here; plays nothing itself. `fardel
//! rehearse history` asks a server and is the client's.

use std::path::Path;
use std::process::ExitCode;

use base::observe::chain;
use rules::placement::Decision;
use rules::refusals;
use serde_json::json;
use server::Failure;
use server::decisions::{self, LoggedDecision, ReplayedDecision};
use server::simulation::rehearsal::{COMMANDS, play};

use crate::doors::cli::args::{Format, Global};
use crate::doors::cli::refused::refused_with;

/// Decisions that are listed.
const LISTED: usize = 20;

/// Plays each of the files (`-` is standard input) and prints what it led to. Exit code 0; 2 where
/// nothing was named or a script cannot be read; 1 for a fault of ours.
pub fn main(files: Vec<String>) -> ExitCode {
    if files.is_empty() || files.iter().any(|f| f == "--help" || f == "-h") {
        println!(
            "Usage: fardel rehearse FILE…\n       fardel rehearse history …\n       fardel rehearse decision [NUMBER]\n\nA script has one command a line:\n\n{COMMANDS}"
        );
        return ExitCode::from(if files.is_empty() { USAGE } else { 0 });
    }
    for file in files {
        let script = if file == "-" {
            std::io::read_to_string(std::io::stdin())
        } else {
            std::fs::read_to_string(&file)
        };
        let script = match script {
            Ok(script) => script,
            Err(error) => {
                eprintln!("error: {file} cannot be read: {error}.");
                return ExitCode::from(USAGE);
            }
        };
        match play(&script) {
            Ok(text) => print!("{text}"),
            Err(Failure::Refusal(refusal)) => {
                eprintln!("error: {file}: {refusal}");
                return ExitCode::from(USAGE);
            }
            Err(fault) => {
                eprintln!("error: {file}: {}", chain(&fault));
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// Wrong usage, as every command says it.
const USAGE: u8 = 2;

/// Lists the newest decisions in the log of this state, or has one decided again. Exit code 0; 1 where it is decided
/// otherwise or the log says nothing of it.
pub(super) fn decision(data: &Path, number: Option<u64>, global: &Global) -> ExitCode {
    let done = match number {
        None => decisions::newest(data, LISTED).map(|all| (listed(&all, global), true)),
        Some(number) => {
            let found = decisions::replay(data, number);
            found.map(|found| (replayed(&found, global), found.same))
        }
    };
    match done {
        Ok((text, is_same)) => {
            print!("{text}");
            ExitCode::from(u8::from(!is_same))
        }
        Err(failure) => {
            let refusal = match failure {
                Failure::Refusal(refusal) => refusal,
                fault => refusals::rehearse_decision_damaged(data.display(), chain(&fault)),
            };
            refused_with(global, &refusal, 1)
        }
    }
}

fn is_json(global: &Global) -> bool {
    matches!(global.output, Format::Json | Format::Jsonl)
}

fn listed(all: &[LoggedDecision], global: &Global) -> String {
    if is_json(global) {
        return format!("{:#}\n", json!({"items": all}));
    }
    let rows = all.iter().map(|one| {
        format!(
            "{:>10}  {}  {:>6}  {:>5}  {:>8}\n",
            one.number, one.at, one.placed, one.ended, one.left_out
        )
    });
    let head = format!(
        "{:>10}  {:<24}  {:>6}  {:>5}  {:>8}\n",
        "NUMBER", "TIME", "PLACED", "ENDED", "LEFT OUT"
    );
    std::iter::once(head).chain(rows).collect()
}

fn replayed(found: &ReplayedDecision, global: &Global) -> String {
    if is_json(global) {
        return format!("{:#}\n", json!(found));
    }
    let (number, at) = (found.number, found.at);
    if !found.same {
        return format!(
            "Decision {number} of {at} is another one by the rules of this program.\nrecorded: {}\nnow:      {}\n",
            found.recorded, found.replayed
        );
    }
    let decisions: Vec<Decision> = serde_json::from_str(&found.recorded).unwrap_or_default();
    let rows = decisions.iter().map(|one| {
        let (session, because) = match one {
            Decision::Place {
                session, because, ..
            }
            | Decision::End {
                session, because, ..
            } => (session, because),
        };
        format!("{session}  {}\n", because.text)
    });
    let head = format!("Decision {number} of {at}: decided again to the same bytes.\n");
    std::iter::once(head).chain(rows).collect()
}
