//! Room kept for a full disk: blocks set aside behind the end of the catalog and for SQLite's log, so
//! that wishes to stop and reports of ends are still written when nothing else can be.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

/// Blocks behind the end of the catalog, bytes. Higher: dead space. Lower: fewer stops on a full disk;
/// each takes about half a kilobyte.
const BEHIND: u64 = 4 << 20;
/// Blocks for the log. SQLite brings the log home at 4 MiB; the rest is margin.
pub(super) const LOG: u64 = 8 << 20;

/// Holds the blocks. A file system that cannot set any aside only loses the reserve.
pub(super) struct Reserve {
    /// Opened before SQLite opens the catalog and closed after: closing any descriptor of a file drops
    /// all of the process' locks on it.
    catalog: File,
}

impl Reserve {
    /// Takes the catalog's file over, not yet open in SQLite.
    pub(super) fn new(catalog: File) -> Self {
        Self { catalog }
    }

    /// Sets blocks aside for the log of the catalog at `path`. SQLite holds no locks on that file, so
    /// it may be opened beside it.
    pub(super) fn take_log(&self, path: &Path) {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        let taken = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&log)
            .and_then(|file| {
                fallocate(&file, FallocateFlags::KEEP_SIZE, 0, LOG).map_err(Into::into)
            });
        if let Err(error) = taken {
            tracing::warn!(%error, log = %log.display(), "no disk space could be reserved");
        }
    }

    /// Sets blocks aside behind the end of the catalog again: SQLite gives them back whenever it
    /// brings the log home. Costs a look at the file; run after every commit.
    pub(super) fn keep(&self) {
        let Ok(found) = self.catalog.metadata() else {
            return;
        };
        let behind = (found.blocks() * 512).saturating_sub(found.len());
        if behind < BEHIND / 2 {
            // A full disk is what the reserve is for; everything else shows at the next write.
            let _ = fallocate(
                &self.catalog,
                FallocateFlags::KEEP_SIZE,
                found.len(),
                BEHIND,
            );
        }
    }
}
