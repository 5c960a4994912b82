//! `fardel relay RUN`: carries what sessions say to the outside, across restarts of the server.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs until it is ended.
pub fn run(arguments: &[OsString]) -> ExitCode {
    node::relay::main(arguments)
}
