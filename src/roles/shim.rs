//! `fardel shim DIRECTORY`: supervises one container. Started by a node, never by a person.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs until the container has ended.
pub fn run(arguments: &[OsString]) -> ExitCode {
    node::runtime::shim::main(arguments)
}
