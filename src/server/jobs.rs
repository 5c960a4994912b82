//! Long work of the server: one runner, and a file for each kind with its own work alone. What is asked for
//! is checked and written by `actions`; the rows of operations are the queue.

pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod commit;
pub(crate) mod directory;
pub(crate) mod folder_copies;
pub(crate) mod folder_limits;
pub(crate) mod folder_shares;
pub(crate) mod folder_snapshots;
pub(crate) mod folders;
pub(crate) mod gpu_self_test;
pub(crate) mod import;
pub(crate) mod mail;
mod outcome;
pub(crate) mod registry_pull;
pub(crate) mod runner;
pub(crate) mod storage;
pub(crate) mod volumes;
