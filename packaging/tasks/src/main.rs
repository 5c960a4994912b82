//! `cargo ci`: what the gate runs. Holds the stages; `.ci/run` only calls them.
fn main() {}
