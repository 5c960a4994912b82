//! One constructor for each notice of the catalogue, with the values that its sentence names. Made of
//! `messages.toml` at build, under the names of its entries. Never decides anything.

use std::fmt::Display;

use crate::notice::Notice;

include!(concat!(env!("OUT_DIR"), "/notices.rs"));
