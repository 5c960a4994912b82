//! What a guest is started with: its hardware, its disk, its script. Starts nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::qemu_kernel::Kernel;
use super::root::Root;
use crate::failure::Failure;

/// What a guest runs on.
pub(super) enum Hardware {
    /// A kernel that is a process of this machine.
    UserMode,
    /// The same, in another network than this machine's.
    Wired(Cable),
    Emulated(Emulated),
}

/// Where a guest has its network.
pub(super) struct Cable {
    /// A process in whose network its kernel is started.
    pub(super) network_of: u32,
    /// What its kernel is told besides.
    pub(super) words: Vec<String>,
}

/// The machine that is computed.
pub(super) struct Emulated {
    pub(super) kernel: Kernel,
    pub(super) processors: u32,
    /// Whether it begins in UEFI, which then starts the kernel; else the kernel is started at once.
    pub(super) firmware: bool,
}

impl Emulated {
    /// With the kernel found or made.
    pub(super) fn ready(processors: u32, firmware: bool) -> Result<Self, Failure> {
        Ok(Self {
            kernel: Kernel::ready()?,
            processors,
            firmware,
        })
    }
}

/// What a guest is started with.
pub(super) struct Order<'a> {
    pub(super) root: &'a Root,
    pub(super) hardware: Hardware,
    /// The disk that is kept between boots; none: one of its own, thrown away.
    pub(super) disk: Option<PathBuf>,
    pub(super) memory_mib: u64,
    /// What it writes to a disk that is thrown away, where that is more than logs.
    pub(super) written_mib: u64,
    /// A second disk, which it cannot write to.
    pub(super) stick: Option<PathBuf>,
    /// Folders of the host that it sees read-only: name below `/mnt`, path.
    pub(super) shares: Vec<(String, PathBuf)>,
    pub(super) script: String,
    /// What lies beside the script: name, text.
    pub(super) files: Vec<(&'static str, &'static str)>,
    pub(super) arguments: Vec<String>,
    /// How long it may neither say nor do anything.
    pub(super) patience: Duration,
    /// How long it may take in all, however busy.
    pub(super) limit: Duration,
}

impl<'a> Order<'a> {
    /// One GiB, a disk that is thrown away, two minutes of silence, half an hour in all.
    pub(super) fn new(root: &'a Root, script: &str) -> Self {
        Self {
            root,
            hardware: Hardware::UserMode,
            disk: None,
            memory_mib: 1024,
            written_mib: 0,
            stick: None,
            shares: Vec::new(),
            script: script.to_owned(),
            files: Vec::new(),
            arguments: Vec::new(),
            patience: Duration::from_secs(120),
            limit: Duration::from_secs(30 * 60),
        }
    }
}

/// The kernel's command line is split at blanks and our word at colons.
pub(super) fn mount_word(name: &str, path: &Path) -> Result<String, Failure> {
    let path = path
        .canonicalize()
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    let path = path.to_string_lossy();
    let plain =
        |text: &str| !text.contains(|letter: char| letter.is_whitespace() || ",:".contains(letter));
    if !plain(name) || !plain(&path) || name.is_empty() || name.contains('/') {
        return Err(Failure::new(format!(
            "{name}={path}: a share's name and path have no blank, comma or colon"
        )));
    }
    Ok(format!("bed.mount={name}:ro:{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_the_kernels_command_line_cannot_carry_is_refused() {
        assert!(mount_word("deb", Path::new("/")).is_ok_and(|word| word == "bed.mount=deb:ro:/"));
        assert!(mount_word("a b", Path::new("/")).is_err());
        assert!(mount_word("a/b", Path::new("/")).is_err());
        assert!(mount_word("", Path::new("/")).is_err());
        assert!(mount_word("deb", Path::new("/no/such/folder")).is_err());
    }
}
