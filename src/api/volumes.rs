//! Volumes: mounted file systems that folders lie on.

use rules::names::VolumeId;
use rules::storage::StorageEnforcement;
use rules::units::Timestamp;
use rules::volume::VolumeState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::values::{StorageEnforcementShape, VolumeStateShape};

/// One volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Volume)]
pub struct VolumeView {
    #[schema(value_type = String, format = Uuid)]
    pub id: VolumeId,
    /// No other volume has it; `default` is the box's own disk, which is not listed.
    pub name: String,
    /// The directory that it is mounted on; null for those who do not see the whole site.
    pub path: Option<String>,
    /// `UID:GID` of the file system that user 1000 of a session is there; null: ids are mapped by the mounts of sessions, and
    /// for those who do not see the whole site.
    #[serde(default)]
    pub mapped_user: Option<String>,
    /// What is read of it is kept on the server's own disk. False: no version does that yet.
    #[serde(default)]
    pub cached: bool,
    /// What each folder that is made there may take by itself, in bytes; null: no limit.
    #[serde(default)]
    pub folder_limit: Option<u64>,
    /// `absent`: nothing is mounted there, or another file system; `hung`: it does not answer.
    #[schema(value_type = VolumeStateShape)]
    pub state: VolumeState,
    /// When it was so.
    #[schema(value_type = String, format = DateTime)]
    pub seen_at: Timestamp,
    /// How limits of folders are held there: `counted` means that they are not.
    #[schema(value_type = StorageEnforcementShape)]
    pub enforcement: StorageEnforcement,
    /// Bytes of the whole file system; null where it could not be asked.
    pub total: Option<u64>,
    /// Bytes that are taken.
    pub used: Option<u64>,
    /// Bytes that may still be written.
    pub free: Option<u64>,
    /// Domains whose users make folders there; with none and no project: all users.
    pub domains: Vec<String>,
    /// Projects whose members do, as DOMAIN/PROJECT.
    pub projects: Vec<String>,
    /// Folders on it, those in the trash included.
    pub folders: u64,
    /// Version, and ETag.
    pub generation: u64,
}

/// A file system that is mounted, and empty or a volume already.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewVolume)]
#[serde(deny_unknown_fields)]
pub struct NewVolumeBody {
    /// Letters of a user name; not `default`.
    pub name: String,
    /// The directory that it is mounted on, by its whole path.
    pub path: String,
    /// For a file system without id-mapped mounts, such as NFS: `UID` or `UID:GID` that user 1000 of each session is there, from
    /// 1000 to 999999999. It stays.
    #[serde(default)]
    #[schema(pattern = "^[1-9][0-9]{3,8}(:[1-9][0-9]{3,8})?$")]
    pub mapped_user: Option<String>,
    /// Refused where it is true: the name is kept for a read cache on the server's own disk.
    #[serde(default)]
    pub cached: bool,
    /// Bytes that each folder which is made there may take by itself; 0, and left out: no limit.
    #[serde(default)]
    pub folder_limit: Option<u64>,
    /// Names or ids of the domains whose users make folders there; with none and no project: all users.
    #[serde(default)]
    pub domains: Vec<String>,
    /// Names, as DOMAIN/PROJECT, or ids of projects whose members do.
    #[serde(default)]
    pub projects: Vec<String>,
}

/// A merge patch: what is left out stays.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = VolumePatch)]
#[serde(deny_unknown_fields)]
pub struct VolumePatchBody {
    pub name: Option<String>,
    /// Where the same file system is mounted now.
    pub path: Option<String>,
    /// As of a new volume.
    pub cached: Option<bool>,
    /// As of a new volume; folders that are there keep theirs.
    pub folder_limit: Option<u64>,
    pub domains: Option<Vec<String>>,
    pub projects: Option<Vec<String>>,
}
