//! Peers whose packages would start a service where they are installed: nginx and OpenSSH's server. `.ci/run` unpacks them
//! below `FARDEL_PEERS`; an installed one serves too. Starts nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What an unpacked program finds its libraries by.
const LIBRARIES: &str = "lib/x86_64-linux-gnu";

fn peers() -> Option<PathBuf> {
    std::env::var_os("FARDEL_PEERS").map(PathBuf::from)
}

/// A server program of that name; None where it is neither unpacked nor installed.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    let folders = peers().into_iter().chain([PathBuf::from("/usr")]);
    let places = folders.map(|folder| folder.join("sbin").join(name));
    places.into_iter().find(|file| file.is_file())
}

/// How that program is started.
pub(super) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some(peers) = peers() {
        command.env("LD_LIBRARY_PATH", peers.join(LIBRARIES));
    }
    command
}
