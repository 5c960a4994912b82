//! Room 2, plumbing: settings, log, clock, dice and the link between server and node.
//! Decides nothing about sessions; that is `rules`.

pub mod link;
pub mod observe;
pub mod settings;
