//! One constructor for each way in which a check of `fardel doctor` comes out, with the values that its
//! sentences name. Made of `messages.toml` at build, under the names of its entries. Never decides anything.

use std::fmt::Display;

use crate::doctor::DoctorCheck;

include!(concat!(env!("OUT_DIR"), "/checks.rs"));
