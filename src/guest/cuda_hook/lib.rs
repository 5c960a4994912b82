//! The parts of the hook that need no driver, as an ordinary package, so that `cargo test` runs their
//! tests. What is mounted in containers is built from `hook.rs` beside this file; nothing depends on
//! this package.
#![cfg_attr(not(test), no_std)]

#[cfg(test)]
mod gate_model;
pub mod kernel;
pub mod ledger;
pub mod process;
pub mod region;
