//! Starts as whatever the arguments say. Decides nothing else.

use std::ffi::OsString;
use std::process::ExitCode;

use fardel::doors::bench;
use fardel::roles::client::{self, Engines};
use fardel::roles::{hold, rehearsal, relay, server, shim};

fn main() -> ExitCode {
    // Before any parsing: a shim starts with every container and must be light.
    let mut words: Vec<OsString> = std::env::args_os().collect();
    match words.get(1).and_then(|word| word.to_str()) {
        Some("shim") => return shim::run(&words[2..]),
        Some("hold") => return hold::run(&words[2..]),
        Some("relay") => return relay::run(&words[2..]),
        _ => {}
    }
    // A fresh checkout serves by `cargo run` alone.
    if words.len() == 1 {
        words.push("serve".into());
    }
    let engines = Engines {
        serve: server::main,
        rehearse: rehearsal::main,
        bench: bench::main,
    };
    client::main(words, &engines)
}
