//! Where the files of one folder are while they are worked on, and whether more of them fits within the limit of its owner's
//! folders. Never looks at the room of the machine's disk, and never decides who may.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rules::codes::DISK_FULL;
use rules::refusals;
use rules::storage::{StorageLevel, level};

use super::beneath::FolderTop;
use super::counted::FolderCount;
use super::failure::{FolderError, fault};
use super::{DATA, REMOVED, SNAPSHOTS, STAGING};
use crate::quota::{ScopeKeeper, ScopeLease, ScopePlace};
use crate::volumes::OpenVolume;

/// Where a folder is. While this is held, its scope stays mounted.
#[derive(Debug)]
pub(super) struct FoundFolder {
    /// The folder's own directory, behind the link that leads to it.
    pub(super) own: PathBuf,
    /// The scope that it lies in.
    pub(super) scope: Option<(ScopePlace, ScopeLease)>,
    /// Where the pool is that the scope lies in.
    pub(super) pool: Option<PathBuf>,
    /// The volume that it lies on: `own` leads through it.
    pub(super) volume: Option<OpenVolume>,
    pub(super) keeper: Arc<dyn ScopeKeeper>,
    /// What it counts on, where nothing but a count stands for the limit.
    pub(super) count: Option<FolderCount>,
}

impl FoundFolder {
    /// The directory that sessions mount.
    pub(super) fn data(&self) -> PathBuf {
        self.own.join(DATA)
    }

    /// Where files that are uploaded lie until they are whole: on the file system of the others.
    pub(super) fn staging(&self) -> PathBuf {
        self.own.join(STAGING)
    }

    /// Where what was removed lies, on the same one.
    pub(super) fn removed(&self) -> PathBuf {
        self.own.join(REMOVED)
    }

    /// Where earlier states of its files lie, each in a directory that its number names.
    pub(super) fn snapshots(&self) -> PathBuf {
        self.own.join(SNAPSHOTS)
    }

    /// What tells how much room there is for more files of it: `folders`, but for one on a volume or in a pool.
    pub(super) fn disk<'a>(&'a self, folders: &'a Path) -> &'a Path {
        match (&self.volume, &self.pool) {
            (Some(_), _) => &self.own,
            (None, Some(pool)) => pool,
            (None, None) => folders,
        }
    }

    /// Opens the directory that sessions mount. What is open keeps the scope mounted by itself.
    ///
    /// Errors: `folder.entry-not-found` where there is none.
    pub(super) fn top(&self) -> Result<FolderTop, FolderError> {
        FolderTop::open(&self.data())
    }

    /// Refuses so many bytes more where the owner's folders may not take them. The kernel holds sessions to that by itself, but
    /// not every server: root may go beyond the quota of a disk. Costs one look at the file system.
    ///
    /// Errors: `quota.exceeded`.
    pub(super) fn refuse_beyond_limit(&self, bytes: u64) -> Result<(), FolderError> {
        self.refuse_beyond_limit_of(&self.own, bytes)
    }

    /// The same of what counts in one of its directories: earlier states of its files may have a limit of their own.
    pub(super) fn refuse_beyond_limit_of(
        &self,
        place: &Path,
        bytes: u64,
    ) -> Result<(), FolderError> {
        if let (None, Some(count)) = (&self.scope, &self.count) {
            // Earlier states on a volume share their blocks, and no count has them.
            if self.volume.is_some() && place != self.own.as_path() {
                return Ok(());
            }
            return count.limit.refuse_beyond(bytes);
        }
        match self.room_of(place)? {
            Some(room) if room < bytes => {
                // A pool that is short may tell the same of each scope.
                if let Some(pool) = &self.pool {
                    refuse_full_pool(pool, bytes)?;
                }
                Err(self
                    .exceeded(false)
                    .unwrap_or_else(|| refusals::disk_full().into()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Bytes that the owner's folders may still take; None where they lie in no scope. Costs one look at the file system.
    pub(super) fn room(&self) -> Result<Option<u64>, FolderError> {
        self.room_of(&self.own)
    }

    fn room_of(&self, place: &Path) -> Result<Option<u64>, FolderError> {
        if self.scope.is_none() {
            return Ok(None);
        }
        // Within a scope the kernel tells of the room that its limit leaves.
        let stat = rustix::fs::statvfs(place);
        let stat = stat.map_err(|error| fault("look at the room of a folder")(error.into()))?;
        Ok(Some(stat.f_bavail.saturating_mul(stat.f_frsize)))
    }

    /// Keeps that so many bytes more were written: no count knows them yet.
    pub(super) fn note_written(&self, bytes: u64) {
        if let Some(count) = &self.count {
            count.limit.add(count.folder, bytes);
        }
    }

    /// What there was no room for: in a full scope that is no fault of the machine's disk.
    pub(super) fn told(&self, error: FolderError) -> FolderError {
        let is_full = error.code() == Some(DISK_FULL);
        if !is_full {
            return error;
        }
        match (self.exceeded(true), &self.pool) {
            (Some(exceeded), _) => exceeded,
            (None, Some(_)) => refusals::pool_full().into(),
            (None, None) => error,
        }
    }

    /// What the owner's folders take of their limit; None where they are in no scope, or, where that is asked, not full.
    fn exceeded(&self, is_full: bool) -> Option<FolderError> {
        let (scope, _) = self.scope.as_ref()?;
        let taken = self.keeper.measure(scope).ok()??;
        let has_bytes = level(taken.used, taken.limit) != StorageLevel::Full;
        let has_names = taken.max_files == 0 || taken.files < taken.max_files;
        if is_full && has_bytes && has_names {
            return None;
        }
        Some(refusals::quota_exceeded(taken.used, taken.limit).into())
    }
}

/// Refuses more bytes than a pool has free: all of it may be taken, since nothing but folders lies there.
///
/// Errors: `pool.full`.
pub(super) fn refuse_full_pool(pool: &Path, bytes: u64) -> Result<(), FolderError> {
    let stat = rustix::fs::statvfs(pool);
    let stat = stat.map_err(|error| fault("look at the room of the pool")(error.into()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    match free < bytes.max(1) {
        true => Err(refusals::pool_full().into()),
        false => Ok(()),
    }
}
