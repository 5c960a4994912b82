//! One constructor for each reason to wait of the catalogue, with the values that its sentence names. Made of
//! `messages.toml` at build, under the names of its entries. Never decides anything.

use std::fmt::Display;

use crate::blocker::PlacementBlocker;

include!(concat!(env!("OUT_DIR"), "/blockers.rs"));
