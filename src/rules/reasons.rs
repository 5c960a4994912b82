//! One constructor for each reason of the catalogue, with the values that its sentence names. Made of
//! `messages.toml` at build, under the names of its entries. Never decides anything.

use std::fmt::Display;

use crate::reason::Reason;

include!(concat!(env!("OUT_DIR"), "/reasons.rs"));
