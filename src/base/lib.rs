//! Room 2, plumbing: settings, log, clock, random numbers, encryption, acts that run to their end, what the machine
//! tells of itself, HTTP over streams, and the link between server and node.
//! Decides nothing about sessions; that is `rules`.

pub mod acts;
pub mod addresses;
pub mod app_files;
pub mod connection_fault;
pub mod figures;
pub mod http;
pub mod key_files;
pub mod link;
pub mod observe;
pub mod recipe_files;
pub mod redact;
pub mod service;
pub mod settings;
pub mod signing;
pub mod tls;
