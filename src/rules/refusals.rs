//! One constructor for each refusal of the catalogue, with the values that its sentences name. Made of
//! `messages.toml` at build, under the names of its entries. Never decides anything.

use std::fmt::Display;

use crate::refusal::{Refusal, RefusalKind};

include!(concat!(env!("OUT_DIR"), "/refusals.rs"));
