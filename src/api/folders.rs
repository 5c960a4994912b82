//! Folders: directories that outlive sessions, and the places at which sessions mount them.

use rules::folder::{
    Folder, FolderKind, FolderMount, FolderName, FolderState, MAX_MOUNTS, MountAccess,
    RequestedMount,
};
use rules::names::FolderId;
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sessions::Owner;
use crate::values::{FolderKindShape, FolderStateShape, MountAccessShape};

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

/// A folder that a new session mounts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = NewMount)]
#[serde(deny_unknown_fields)]
pub struct NewMountBody {
    /// Name or id of a folder of the caller's; `home` is the home folder, and made where there is none.
    pub folder: String,
    /// What of the folder, as a path from its top; left out: all of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subpath: String,
    /// Absolute path inside; left out: `/home/work` for the home folder, `/folders/NAME` for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// `ro` or `rw`; left out: `rw`.
    #[serde(default, skip_serializing_if = "is_usual")]
    #[schema(value_type = MountAccessShape)]
    pub access: MountAccess,
}

fn is_usual(access: &MountAccess) -> bool {
    *access == MountAccess::default()
}

impl From<NewMountBody> for RequestedMount {
    fn from(asked: NewMountBody) -> Self {
        Self {
            folder: asked.folder,
            subpath: asked.subpath,
            at: asked.at,
            read_only: asked.access.is_read_only(),
        }
    }
}

impl From<RequestedMount> for NewMountBody {
    fn from(asked: RequestedMount) -> Self {
        Self {
            folder: asked.folder,
            subpath: asked.subpath,
            at: asked.at,
            access: MountAccess::of(asked.read_only),
        }
    }
}

impl std::fmt::Display for NewMountBody {
    /// As `RequestedMount::parse` reads it; a path below a folder is said with the place, which stands after it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.folder)?;
        if let Some(at) = &self.at {
            match self.subpath.strip_prefix('/').unwrap_or(&self.subpath) {
                "" => write!(f, ":{at}")?,
                subpath => write!(f, ":/{subpath}:{at}")?,
            }
        }
        match self.access {
            MountAccess::Ro => f.write_str(":ro"),
            MountAccess::Rw => Ok(()),
        }
    }
}

/// A folder at a place inside a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Mount)]
pub struct MountView {
    #[schema(value_type = String, format = Uuid)]
    pub folder: FolderId,
    /// What the folder was called at the launch.
    #[schema(value_type = String)]
    pub name: FolderName,
    /// What of the folder, without a leading slash; empty: all of it.
    pub subpath: String,
    /// Absolute path inside.
    pub at: String,
    #[schema(value_type = MountAccessShape)]
    pub access: MountAccess,
}

impl std::fmt::Display for MountView {
    /// As a launch would ask for it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mount = FolderMount {
            folder: self.folder,
            name: self.name.clone(),
            subpath: self.subpath.clone(),
            at: self.at.clone(),
            read_only: self.access.is_read_only(),
        };
        std::fmt::Display::fmt(&mount, f)
    }
}

impl From<&FolderMount> for MountView {
    fn from(mount: &FolderMount) -> Self {
        Self {
            folder: mount.folder,
            name: mount.name.clone(),
            subpath: mount.subpath.clone(),
            at: mount.at.clone(),
            access: MountAccess::of(mount.read_only),
        }
    }
}

impl From<&FolderMount> for NewMountBody {
    /// Asks for the same once more, by name.
    fn from(mount: &FolderMount) -> Self {
        Self {
            folder: mount.name.to_string(),
            subpath: match mount.subpath.as_str() {
                "" => String::new(),
                subpath => format!("/{subpath}"),
            },
            at: Some(mount.at.clone()),
            access: MountAccess::of(mount.read_only),
        }
    }
}

/// The mounts that a launch asks for, as `rules` has them.
///
/// Errors: `mount.too-many`.
pub fn requested(mounts: &[NewMountBody]) -> Result<Vec<RequestedMount>, Refusal> {
    if mounts.len() > MAX_MOUNTS {
        return Err(refusals::mount_too_many(MAX_MOUNTS).at("/mounts"));
    }
    Ok(mounts.iter().cloned().map(RequestedMount::from).collect())
}
