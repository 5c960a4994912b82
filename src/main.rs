//! Starts as whatever the arguments say. Decides nothing else.

use std::process::ExitCode;

use fardel::roles::client::{self, Engines};

fn main() -> ExitCode {
    let engines = Engines {
        serve: |_| missing("serve"),
        rehearse: |_| missing("rehearse"),
        bench: |_| missing("bench"),
    };
    client::main(std::env::args_os().collect(), &engines)
}

/// This build has the word, but not yet the engine behind it.
fn missing(word: &str) -> ExitCode {
    eprintln!("error: this build has no engine for `fardel {word}`.");
    ExitCode::FAILURE
}
