//! `fardel rehearse FILE…`: reads scripts and prints what the rehearsal of each led to. What support sends in
//! as a script replays here; plays nothing itself. `fardel rehearse history` asks a server and is the client's.

use std::process::ExitCode;

use base::observe::chain;
use server::Failure;
use server::simulation::rehearsal::{COMMANDS, play};

/// Plays each of the files (`-` is standard input) and prints what it led to. Exit code 0; 2 where
/// nothing was named or a script cannot be read; 1 for a fault of ours.
pub fn main(files: Vec<String>) -> ExitCode {
    if files.is_empty() || files.iter().any(|f| f == "--help" || f == "-h") {
        println!(
            "Usage: fardel rehearse FILE…\n       fardel rehearse history …\n\nA script has one command a line:\n\n{COMMANDS}"
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
