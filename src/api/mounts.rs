//! Folders at places inside sessions: as a launch asks for them, and as a session has them.

use rules::folder::{FolderMount, FolderName, MAX_MOUNTS, MountAccess, RequestedMount};
use rules::names::FolderId;
use rules::refusal::Refusal;
use rules::refusals;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::values::MountAccessShape;

/// A folder that a new session mounts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = NewMount)]
#[serde(deny_unknown_fields)]
pub struct NewMountBody {
    /// Name or id of a folder of the caller's, OWNER/NAME or id of one that is shared with them; `home` is the home folder, and made where there is none.
    pub folder: String,
    /// What of the folder, as a path from its top; left out: all of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subpath: String,
    /// Absolute path inside, below that of no other mount; left out: `/home/work` for the home folder, `/folders/NAME`
    /// for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// `ro` or `rw`; left out: `rw`. A folder that is shared read-only is mounted read-only.
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
    /// Read-only until the session starts again, since the folders that count on its limit took more than that.
    #[serde(default)]
    pub over_limit: bool,
    /// The session has it without having asked: the home of its owner, or one of their folders whose names begin with a dot.
    /// Its place is below `/home/work`, or below the home of the image's user instead.
    #[serde(default)]
    pub by_itself: bool,
    /// The folder's owner took it out of the session: nothing of it is there any more.
    #[serde(default)]
    pub detached: bool,
    /// It was taken out and is still there: the machine could not unmount it yet, and tries again.
    #[serde(default)]
    pub stuck: bool,
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
            over_limit: self.over_limit,
            by_itself: self.by_itself,
            mapped: None,
            detached: self.detached,
            stuck: Vec::new(),
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
            access: MountAccess::of(mount.is_read_only()),
            over_limit: mount.over_limit,
            by_itself: mount.by_itself,
            detached: mount.detached,
            stuck: !mount.stuck.is_empty(),
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
