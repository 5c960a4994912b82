//! `fardel shim`: the fork server of a server's shims, and in its forks the shims themselves. Started by
//! a node, never by a person.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs until the server is gone; in a fork, until its container has ended.
pub fn run(arguments: &[OsString]) -> ExitCode {
    node::runtime::shim::main(arguments)
}
