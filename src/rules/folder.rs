//! A folder: a directory that outlives sessions. Says what one is and what becomes of it. Who may do what with it,
//! `folder_rights` says.

use serde::{Deserialize, Serialize};

use crate::names::{FolderId, UserId, VolumeId};
use crate::tenancy::{DomainId, Scope};
use crate::units::Timestamp;
pub use crate::workload::mount::{
    FolderMount, FolderName, HOME, MAX_FOLDER_NAME, MAX_MOUNTS, MountAccess, RequestedMount,
    mount_plan,
};

/// Days that a folder lies in the trash. Higher: it takes disk for longer. Lower: a mistake is noticed too late.
pub const TRASH_DAYS: u64 = 30;

/// What a folder is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FolderKind {
    General,
    /// Made by itself, one for each user.
    Home,
}

impl FolderKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::General => "general",
            Self::Home => "home",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::General, Self::Home];
        all.into_iter().find(|kind| kind.word() == word)
    }
}

/// How far a folder is from being gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FolderState {
    Ready,
    /// Nothing of it is removed yet.
    Trashed,
    /// Its files are being removed; there is no way back.
    Purging,
}

impl FolderState {
    pub fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Trashed => "trashed",
            Self::Purging => "purging",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::Ready, Self::Trashed, Self::Purging];
        all.into_iter().find(|state| state.word() == word)
    }
}

/// What a folder took of the disk when it was counted last. No limit stands behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FolderUse {
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
    pub at: Timestamp,
}

/// One folder as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    pub id: FolderId,
    pub owner: UserId,
    /// The home domain of its owner.
    pub domain: DomainId,
    /// No other folder of the owner that is ready has it.
    pub name: FolderName,
    pub kind: FolderKind,
    pub state: FolderState,
    /// None: it lies on the box's own disk.
    pub volume: Option<VolumeId>,
    pub created_at: Timestamp,
    /// When a session was launched that mounts it, or its files were changed from outside, last.
    pub used_at: Option<Timestamp>,
    pub trashed_at: Option<Timestamp>,
    /// None: it was not counted yet.
    pub counted: Option<FolderUse>,
    pub generation: u64,
}

impl Folder {
    /// Whose it is.
    pub fn scope(&self) -> Scope {
        Scope {
            domain: Some(self.domain),
            project: None,
            owner: Some(self.owner),
        }
    }

    /// When its files are removed, while it lies in the trash.
    pub fn purge_at(&self) -> Option<Timestamp> {
        let since = self.trashed_at?;
        Some(since.plus_seconds(TRASH_DAYS * 86_400))
    }
}
