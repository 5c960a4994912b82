//! Shares of a GPU: what a container gets of a device and when it may use it. Never runs code of the
//! vendor's but in a process of its own, which may hang or die.

pub mod accelerators;
pub mod arbiter;
pub mod bench;
pub mod driver;
pub mod hooks;
pub mod inject;
pub mod inventory;
pub mod limits;
pub mod meter;
pub(crate) mod mig_configurator;
pub mod monitor;
mod page_mount;
pub mod probe;
#[path = "../guest/cuda_hook/region.rs"]
pub mod region;
pub mod shares;
pub mod simulated;
pub mod time_slicing;
pub mod watchdog;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A character device of this machine at a place below `/dev` inside. The node is made for the container
/// alone, for everybody in it to read and write; the host's own may be missing, or another's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceOrder {
    pub at: String,
    pub major: u32,
    pub minor: u32,
}

/// A file of the host at a place inside. Links of the image are followed inside only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOrder {
    pub from: PathBuf,
    pub at: String,
    pub for_what: FileUse,
}

/// What a container may do with a file of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileUse {
    Read,
    /// Read it and run it, or load it as a library.
    Run,
    /// Read and write it.
    Write,
}
