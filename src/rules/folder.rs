//! A folder: a directory that outlives sessions. Says what one is and what becomes of it. Who may do what with it,
//! `folder_rights` says.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::names::{FolderId, UserId, VolumeId};
use crate::tenancy::{DomainId, ProjectId, Scope};
use crate::units::{Bytes, Timestamp};
pub use crate::workload::mount::{
    FOLDERS_TARGET, FolderMount, FolderName, HOME, HOME_TARGET, MAX_DOT_FOLDERS, MAX_FOLDER_NAME,
    MAX_MOUNTS, MountAccess, RequestedMount, home_of, is_at_or_below, mount_plan, with_own,
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

/// Whose a folder is, and whose limit it counts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FolderOwner {
    User(UserId),
    /// Its leads do with the folder what a user does with their own; its members what the folder says.
    Project(ProjectId),
}

/// In front of the id of a project, where an owner is written as one word.
const PROJECT_PREFIX: &str = "project-";

impl FolderOwner {
    /// The id of the user or of the project.
    pub fn id(self) -> Uuid {
        match self {
            Self::User(user) => user.0,
            Self::Project(project) => project.0,
        }
    }

    /// None for a project.
    pub fn user(self) -> Option<UserId> {
        match self {
            Self::User(user) => Some(user),
            Self::Project(_) => None,
        }
    }

    /// None for a user.
    pub fn project(self) -> Option<ProjectId> {
        match self {
            Self::User(_) => None,
            Self::Project(project) => Some(project),
        }
    }

    /// Reads what `Display` writes.
    pub fn parse(word: &str) -> Option<Self> {
        match word.strip_prefix(PROJECT_PREFIX) {
            Some(id) => Some(Self::Project(ProjectId(Uuid::try_parse(id).ok()?))),
            None => Some(Self::User(UserId(Uuid::try_parse(word).ok()?))),
        }
    }
}

impl From<UserId> for FolderOwner {
    fn from(user: UserId) -> Self {
        Self::User(user)
    }
}

impl From<ProjectId> for FolderOwner {
    fn from(project: ProjectId) -> Self {
        Self::Project(project)
    }
}

impl fmt::Display for FolderOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => user.fmt(f),
            Self::Project(project) => write!(f, "{PROJECT_PREFIX}{project}"),
        }
    }
}

/// Which limit something counts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScopeOwner {
    /// That of all folders of an owner together.
    Owner(FolderOwner),
    /// That of one folder, which has a limit of its own.
    Folder(FolderId),
}

/// In front of the id of a folder, where a limit is written as one word.
const FOLDER_PREFIX: &str = "folder-";

impl ScopeOwner {
    /// Reads what `Display` writes.
    pub fn parse(word: &str) -> Option<Self> {
        match word.strip_prefix(FOLDER_PREFIX) {
            Some(id) => Some(Self::Folder(FolderId(Uuid::try_parse(id).ok()?))),
            None => FolderOwner::parse(word).map(Self::Owner),
        }
    }
}

impl From<FolderOwner> for ScopeOwner {
    fn from(owner: FolderOwner) -> Self {
        Self::Owner(owner)
    }
}

impl From<UserId> for ScopeOwner {
    fn from(user: UserId) -> Self {
        Self::Owner(user.into())
    }
}

impl From<ProjectId> for ScopeOwner {
    fn from(project: ProjectId) -> Self {
        Self::Owner(project.into())
    }
}

impl From<FolderId> for ScopeOwner {
    fn from(folder: FolderId) -> Self {
        Self::Folder(folder)
    }
}

impl fmt::Display for ScopeOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner(owner) => owner.fmt(f),
            Self::Folder(folder) => write!(f, "{FOLDER_PREFIX}{folder}"),
        }
    }
}

/// How far a folder is from being gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FolderState {
    Ready,
    /// A copy that is not whole yet: none of its files is shown or mounted.
    Copying,
    /// On its way to another owner: its files stand still.
    Transferring,
    /// Nothing of it is removed yet.
    Trashed,
    /// Its files are being removed; there is no way back.
    Purging,
}

impl FolderState {
    pub const ALL: [Self; 5] = [
        Self::Ready,
        Self::Copying,
        Self::Transferring,
        Self::Trashed,
        Self::Purging,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Copying => "copying",
            Self::Transferring => "transferring",
            Self::Trashed => "trashed",
            Self::Purging => "purging",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
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

/// What one folder may take by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnLimit {
    pub bytes: Bytes,
    /// An administrator gave it on top of what the owner's folders may take; else it is a part of that.
    pub is_on_top: bool,
}

/// One folder as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    pub id: FolderId,
    pub owner: FolderOwner,
    /// That of its owner: the home domain of a user.
    pub domain: DomainId,
    /// What members of the project may do with its files that owns it; says nothing where a user owns it.
    pub members: MountAccess,
    /// The project that owns it is archived: what is in it stays as it is.
    pub is_closed: bool,
    /// All who may read its files make own copies of it; else its owner alone.
    pub is_cloneable: bool,
    /// No other folder of the owner that is not in the trash has it.
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
    /// None: it counts on the limit of all folders of its owner.
    pub own_limit: Option<OwnLimit>,
    pub generation: u64,
}

impl Folder {
    /// Whose it is.
    pub fn scope(&self) -> Scope {
        Scope {
            domain: Some(self.domain),
            project: self.owner.project(),
            owner: self.owner.user(),
        }
    }

    /// Which limit it counts on.
    pub fn limited_by(&self) -> ScopeOwner {
        match self.own_limit {
            Some(_) => ScopeOwner::Folder(self.id),
            None => ScopeOwner::Owner(self.owner),
        }
    }

    /// When its files are removed, while it lies in the trash.
    pub fn purge_at(&self) -> Option<Timestamp> {
        let since = self.trashed_at?;
        Some(since.plus_seconds(TRASH_DAYS * 86_400))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for state in FolderState::ALL {
            assert_eq!(FolderState::parse(state.word()), Some(state));
        }
        let id = Uuid::from_u128(7);
        for owner in [
            FolderOwner::User(UserId(id)),
            FolderOwner::Project(ProjectId(id)),
        ] {
            assert_eq!(FolderOwner::parse(&owner.to_string()), Some(owner));
        }
        for word in ["", "project-", "project-x", "kim", "folder-", "folder-x"] {
            assert_eq!(FolderOwner::parse(word), None, "{word}");
            assert_eq!(ScopeOwner::parse(word), None, "{word}");
        }
        for owner in [
            ScopeOwner::from(UserId(id)),
            ScopeOwner::from(ProjectId(id)),
            ScopeOwner::from(FolderId(id)),
        ] {
            assert_eq!(ScopeOwner::parse(&owner.to_string()), Some(owner));
        }
    }
}
