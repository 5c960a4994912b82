//! Folders: directories that outlive sessions.

use rules::folder::{Folder, FolderKind, FolderName, FolderState};
use rules::names::FolderId;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sessions::Owner;
use crate::values::{FolderKindShape, FolderStateShape};

/// One folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Folder)]
pub struct FolderView {
    #[schema(value_type = String, format = Uuid)]
    pub id: FolderId,
    /// Unique among the folders of its owner that are ready.
    #[schema(value_type = String)]
    pub name: FolderName,
    pub owner: Owner,
    /// `home` is made by the first session of its owner that mounts `home`.
    #[schema(value_type = FolderKindShape)]
    pub kind: FolderKind,
    #[schema(value_type = FolderStateShape)]
    pub state: FolderState,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When a session was launched that mounts it, last.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub used_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub trashed_at: Option<Timestamp>,
    /// When its files are removed, while it lies in the trash.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub purge_at: Option<Timestamp>,
    /// Bytes on the disk when it was counted last; null before that. No limit is held against it.
    pub bytes: Option<u64>,
    /// Files, directories and links when it was counted last.
    pub entries: Option<u64>,
    /// When it was counted last.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub counted_at: Option<Timestamp>,
    /// Version, and ETag.
    pub generation: u64,
}

impl FolderView {
    pub fn new(folder: Folder, owner: Owner) -> Self {
        let purge_at = folder.purge_at();
        Self {
            id: folder.id,
            name: folder.name,
            owner,
            kind: folder.kind,
            state: folder.state,
            created_at: folder.created_at,
            used_at: folder.used_at,
            trashed_at: folder.trashed_at,
            purge_at,
            bytes: folder.counted.map(|counted| counted.bytes),
            entries: folder.counted.map(|counted| counted.entries),
            counted_at: folder.counted.map(|counted| counted.at),
            generation: folder.generation,
        }
    }
}

/// A folder of the caller's own.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewFolder)]
#[serde(deny_unknown_fields)]
pub struct NewFolderBody {
    /// No `/`, no `:`, nothing hidden, no dot or blank at its begin; not `home`.
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: String,
}

/// A merge patch: what is left out stays.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = FolderPatch)]
#[serde(deny_unknown_fields)]
pub struct FolderPatchBody {
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: Option<String>,
}
