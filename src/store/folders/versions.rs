//! Which version of a file of a folder a new one takes the place of: what it has to be, and that two writers who mean the same
//! one do not both get it. Writes nothing.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rules::folder_path::FolderPath;
use rules::names::FolderId;
use rules::refusals;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};

use super::beneath::FolderTop;
use super::failure::{FolderError, fault, named};
use super::files;

/// Which file a new one takes the place of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TextVersion {
    /// None: nothing has this name yet.
    New,
    /// The one with this tag.
    Known(String),
    /// Any that is there.
    Any,
}

/// A file that was written, as the file system tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenText {
    /// As of `FolderFile`.
    pub tag: String,
    pub modified_at: Timestamp,
}

/// Files that are replaced right now: of two writers that saw one version, the second is refused.
#[derive(Debug, Default)]
pub(super) struct TextsUnderWay(Mutex<BTreeSet<(FolderId, FolderPath)>>);

impl TextsUnderWay {
    /// Errors: `folder.file-stale` where another one writes it.
    pub(super) fn enter(
        &self,
        id: FolderId,
        path: &FolderPath,
    ) -> Result<TextTurn<'_>, FolderError> {
        let of = (id, path.clone());
        match self.all().insert(of.clone()) {
            true => Ok(TextTurn { all: self, of }),
            false => Err(refusals::folder_file_stale(named(path)).into()),
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeSet<(FolderId, FolderPath)>> {
        // Changed in one step each.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them; it ends when this is dropped.
pub(super) struct TextTurn<'a> {
    all: &'a TextsUnderWay,
    of: (FolderId, FolderPath),
}

impl Drop for TextTurn<'_> {
    fn drop(&mut self) {
        self.all.all().remove(&self.of);
    }
}

/// What a file that is replaced hands to the new one.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileOwner {
    pub(super) mode: u32,
    pub(super) user: u32,
    pub(super) group: u32,
    /// Bytes of what is replaced.
    pub(super) size: u64,
}

/// Refuses where the file is not the version that is meant.
///
/// Errors: `folder.file-stale`; as `write_text`.
pub(super) fn check_version(
    top: &FolderTop,
    path: &FolderPath,
    version: &TextVersion,
) -> Result<(), FolderError> {
    owner_of(top, path, version).map(|_| ())
}

/// Whose the file is that is replaced, where it is the version that is meant; None for a new one.
pub(super) fn owner_of(
    top: &FolderTop,
    path: &FolderPath,
    version: &TextVersion,
) -> Result<Option<FileOwner>, FolderError> {
    let known = match version {
        TextVersion::New => return Ok(None),
        TextVersion::Known(tag) => Some(tag),
        TextVersion::Any => None,
    };
    let old = files::open(top, path)?;
    if known.is_some_and(|tag| *tag != old.tag) {
        return Err(refusals::folder_file_stale(named(path)).into());
    }
    let seen = old.file.metadata();
    let seen = seen.map_err(fault("look at a text of a folder"))?;
    Ok(Some(FileOwner {
        mode: seen.permissions().mode() & 0o777,
        user: seen.uid(),
        group: seen.gid(),
        size: seen.len(),
    }))
}
