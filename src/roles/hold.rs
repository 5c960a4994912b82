//! `fardel hold [DATA]`: owns the control groups of one installation across restarts of the server.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs until it is ended.
pub fn run(arguments: &[OsString]) -> ExitCode {
    node::runtime::hold::main(arguments)
}
