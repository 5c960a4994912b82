//! Earlier states of a folder's files: each a tree of its own that shares its blocks with the folder, where the file system can
//! do that. Whether it can is tried with two files, never told from its name. No session sees one, and none is written to
//! once it is there. Knows no row: callers say which number a snapshot has, and when it goes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rules::folder_path::FolderPath;
use rules::names::FolderId;
use rules::refusals;
use rustix::fs::{CWD, Mode, OFlags, ioctl_ficlone, openat};
use rustix::io::Errno;

use super::beneath::FolderTop;
use super::copying::{CopyWatch, TreeCopy};
use super::failure::{FolderError, fault};
use super::files::{self, FolderFile};
use super::found::FoundFolder;
use super::listing::{self, EntryPage, EntryQuery, FolderEntry};
use super::{FolderStore, make, open_to_all};
use crate::trees;

const DOING: &str = "make a snapshot of a folder";
/// File systems whose answer is kept. Higher: more memory. Lower: they are asked again, at the cost of one written block.
const MAX_KNOWN: usize = 1024;
/// What one name is counted with beside its blocks, which are shared: about its inode. Higher: folders of many small files have
/// fewer snapshots. Lower: names alone fill the disk within the limit.
const NAME: u64 = 512;
/// Bytes of the file that is tried: more than a file system keeps beside the name.
const TRIED: usize = 64 << 10;

/// Whether files share blocks, by the number of their file system.
#[derive(Debug, Default)]
pub(super) struct KnownSharing(Mutex<BTreeMap<u64, bool>>);

/// What a snapshot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotSize {
    /// What its files would take by themselves, their names included.
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
}

impl FolderStore {
    /// Whether snapshots of a folder can be made where it lies. Costs two files without a name at the first look at a file
    /// system, and a look by number later.
    pub fn shares_blocks(&self, id: FolderId) -> Result<bool, FolderError> {
        let found = self.place_of(id)?;
        let top = File::from(found.top()?.directory(&FolderPath::default())?);
        let device = top.metadata().map_err(fault(DOING))?.dev();
        // A map is whole after every step.
        let known = self.sharing.0.lock();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        if let Some(shares) = known.get(&device) {
            return Ok(*shares);
        }
        drop(known);
        let shares = shares_blocks(&found.own).map_err(|error| found.told(fault(DOING)(error)))?;
        let known = self.sharing.0.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(device, shares);
        Ok(shares)
    }

    /// Whether files share blocks on the disk of the data directory, outside of all scopes.
    pub fn shares_blocks_here(&self) -> io::Result<bool> {
        shares_blocks(&self.folders)
    }

    /// Keeps the files of a folder as they are now; what a run before left of this number goes first. Each file is whole, and
    /// the tree is of one moment where no session writes. O(names).
    ///
    /// Errors: `folder.snapshot-unavailable` where blocks cannot be shared; as `copy`.
    pub fn take_snapshot(
        &self,
        id: FolderId,
        number: u32,
        watch: &mut CopyWatch<'_>,
    ) -> Result<SnapshotSize, FolderError> {
        let found = self.place_of(id)?;
        let told = |error| found.told(fault(DOING)(error));
        // Asked now: another disk may be mounted since.
        if !shares_blocks(&found.own).map_err(told)? {
            return Err(refusals::folder_snapshot_unavailable().into());
        }
        let (all, place) = (found.snapshots(), snapshot(&found, number));
        make(&all).map_err(told)?;
        if let Some((scope, _)) = &found.scope {
            found.keeper.count_apart(scope, &all).map_err(told)?;
        }
        trees::remove(&place).map_err(fault(DOING))?;
        make(&place).map_err(told)?;
        let mut copy = TreeCopy::new(&found, found.disk(&self.folders), watch).sharing(&all);
        copy.tree(&found.data(), &place)?;
        let size = SnapshotSize {
            bytes: copy.done.saturating_add(copy.names.saturating_mul(NAME)),
            entries: copy.names,
        };
        for changed in [all.as_path(), found.own.as_path()] {
            let kept = File::open(changed).and_then(|open| open.sync_all());
            kept.map_err(told)?;
        }
        Ok(size)
    }

    /// Removes a snapshot with all its files, at once; fine where there is none. O(names).
    pub fn remove_snapshot(&self, id: FolderId, number: u32) -> io::Result<()> {
        match self.find(id)? {
            Some(found) => trees::remove(&snapshot(&found, number)),
            None => Ok(()),
        }
    }

    /// One page of a directory of a snapshot.
    ///
    /// Errors: as `list`.
    pub fn list_snapshot(
        &self,
        id: FolderId,
        number: u32,
        path: &FolderPath,
        query: &EntryQuery,
    ) -> Result<EntryPage, FolderError> {
        listing::list(&self.snapshot_top(id, number)?, path, query, &self.listings)
    }

    /// What a path of a snapshot leads to; of a link itself.
    ///
    /// Errors: as `list`.
    pub fn snapshot_entry(
        &self,
        id: FolderId,
        number: u32,
        path: &FolderPath,
    ) -> Result<FolderEntry, FolderError> {
        listing::entry(&self.snapshot_top(id, number)?, path)
    }

    /// Opens an ordinary file of a snapshot to be read.
    ///
    /// Errors: as `file`.
    pub fn snapshot_file(
        &self,
        id: FolderId,
        number: u32,
        path: &FolderPath,
    ) -> Result<FolderFile, FolderError> {
        files::open(&self.snapshot_top(id, number)?, path)
    }

    /// Fills a folder that is there with a directory or a file of a snapshot of another one, as `copy` does.
    ///
    /// Errors: as `copy`; `folder.entry-not-found`, `folder.entry-link`.
    pub fn copy_snapshot(
        &self,
        (from, number): (FolderId, u32),
        path: &FolderPath,
        to: FolderId,
        watch: &mut CopyWatch<'_>,
    ) -> Result<(), FolderError> {
        // Held to the end: its scope stays mounted.
        let source = self.place_of(from)?;
        let top = FolderTop::open(&snapshot(&source, number))?;
        let target = self.place_of(to)?;
        let data = target.data();
        // What a copy left that was broken off.
        trees::remove(&data).map_err(fault(DOING))?;
        make(&data).map_err(|error| target.told(fault(DOING)(error)))?;
        open_to_all(&data).map_err(fault(DOING))?;
        TreeCopy::new(&target, target.disk(&self.folders), watch).part(&top, path, &data)
    }

    fn snapshot_top(&self, id: FolderId, number: u32) -> Result<FolderTop, FolderError> {
        // What is open keeps the scope mounted by itself.
        FolderTop::open(&snapshot(&self.place_of(id)?, number))
    }
}

fn snapshot(found: &FoundFolder, number: u32) -> PathBuf {
    found.snapshots().join(number.to_string())
}

/// Whether a file may share the blocks of another one below a directory: tried with two that have no name.
fn shares_blocks(place: &Path) -> io::Result<bool> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let open = || openat(CWD, place, flags, Mode::RUSR | Mode::WUSR);
    let from = match open() {
        // A file system without files that have no name shares no blocks, either.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => return Ok(false),
        opened => File::from(opened?),
    };
    let to = File::from(open()?);
    from.write_all_at(&vec![1; TRIED], 0)?;
    match ioctl_ficlone(&to, &from) {
        Ok(()) => Ok(true),
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::ROFS)) => Err(error.into()),
        Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests;
