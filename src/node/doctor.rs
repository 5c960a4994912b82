//! What `fardel doctor` finds of this machine: kernel, control groups, disk, ports and GPUs. Changes nothing
//! that stays, and needs no server; what the catalog tells is `server::offline_inspection`'s.

pub mod checks;
mod gpu;
pub mod host;
pub mod kernel_probe;
pub mod ports;

use std::path::Path;

/// The nearest directory of `path` that exists.
pub fn existing(path: &Path) -> &Path {
    path.ancestors()
        .find(|p| p.is_dir())
        .unwrap_or(Path::new("/"))
}
