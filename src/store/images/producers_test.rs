//! Compares imports with what the producers' own tools say, file by file. Needs root, overlayfs and
//! the tools; prints what is missing and returns where they are not there.

use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};

/// Mounts overlayfs read-only.
pub(super) fn mount_overlay(at: &Path, options: &str) {
    try_mount(at, options).expect("overlayfs mounts what the store says");
}

fn try_mount(at: &Path, options: &str) -> Result<(), rustix::io::Errno> {
    let options = std::ffi::CString::new(options).expect("paths without zero");
    rustix::mount::mount(
        "overlay",
        at,
        "overlay",
        MountFlags::RDONLY,
        options.as_c_str(),
    )
}

pub(super) fn unmount(at: &Path) {
    rustix::mount::unmount(at, UnmountFlags::DETACH).expect("what was mounted can be unmounted");
}

/// Whether overlayfs can be mounted here; says why a test is skipped when not.
pub(super) fn can_mount(test: &str) -> bool {
    let (at, one, two) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let options = format!("lowerdir={}:{}", one.path().display(), two.path().display());
    match try_mount(at.path(), &options) {
        Ok(()) => {
            unmount(at.path());
            true
        }
        Err(error) => {
            skips::skip(test, &format!("overlayfs cannot be mounted: {error}"));
            false
        }
    }
}
