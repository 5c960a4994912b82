//! The whole server behind its doors, in memory, with a machine that only pretends: what routes answer
//! to whom, what wrong requests get, and that page, API and command line do the same things.

mod apps;
mod audit;
mod bad_input;
mod callers;
mod command_line;
mod courses;
mod crowd;
mod decisions;
mod directory;
mod edges;
pub(crate) mod fake_machine;
mod folder_files;
mod forgotten;
mod gpus;
mod hand_over;
mod journal_api;
mod journeys;
mod lan;
mod leases;
mod limits;
mod machine_api;
mod notice_mail;
pub(crate) mod older_state;
mod openapi;
mod protocol;
mod reach;
mod reservations;
mod roles;
mod service;
mod ssh;
mod statements;
mod support;
pub(crate) mod the_box;
mod three_doors;
mod twin_worlds;
mod upkeep;
