//! Snapshots of folders: earlier states of their files, the schedule that makes them, and what is taken back out of one.

use rules::folder_snapshot::{FolderSnapshot, SnapshotOrigin, SnapshotSchedule, SnapshotState};
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::values::{SnapshotOriginShape, SnapshotStateShape};

/// One snapshot of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FolderSnapshot)]
pub struct FolderSnapshotView {
    /// Counts up from 1 in each folder.
    pub number: u32,
    /// `hand`: a user asked for it, and it stays until a user removes it. The others are of the schedule, and give way.
    #[schema(value_type = SnapshotOriginShape)]
    pub origin: SnapshotOrigin,
    #[schema(value_type = SnapshotStateShape)]
    pub state: SnapshotState,
    /// While it was made no session could write, and no file was changed from outside: it is the folder of one moment. Else each
    /// file is whole, and the files are of different moments.
    pub frozen: bool,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Who made it, or set the schedule.
    pub created_by: String,
    /// Bytes that its files would take by themselves; null until it is ready. What the folder still has lies on the disk once.
    pub bytes: Option<u64>,
    /// Files, directories and links; null until it is ready.
    pub entries: Option<u64>,
}

impl From<FolderSnapshot> for FolderSnapshotView {
    fn from(snapshot: FolderSnapshot) -> Self {
        Self {
            number: snapshot.number,
            origin: snapshot.origin,
            state: snapshot.state,
            frozen: snapshot.is_frozen,
            created_at: snapshot.created_at,
            created_by: snapshot.created_by,
            bytes: snapshot.bytes,
            entries: snapshot.entries,
        }
    }
}

/// How many scheduled snapshots are kept; 0: none is made, and those that are there stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FolderSnapshotSchedule)]
pub struct FolderSnapshotScheduleView {
    pub hourly: u32,
    pub daily: u32,
    /// Weeks begin on Monday, 00:00 UTC.
    pub weekly: u32,
}

impl From<SnapshotSchedule> for FolderSnapshotScheduleView {
    fn from(schedule: SnapshotSchedule) -> Self {
        Self {
            hourly: schedule.hourly,
            daily: schedule.daily,
            weekly: schedule.weekly,
        }
    }
}

/// How many scheduled snapshots are to be kept.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[schema(as = NewFolderSnapshotSchedule)]
#[serde(default, deny_unknown_fields)]
pub struct FolderSnapshotScheduleBody {
    #[schema(maximum = 48)]
    pub hourly: u32,
    #[schema(maximum = 31)]
    pub daily: u32,
    /// Weeks begin on Monday, 00:00 UTC.
    #[schema(maximum = 52)]
    pub weekly: u32,
}

impl From<FolderSnapshotScheduleBody> for SnapshotSchedule {
    fn from(body: FolderSnapshotScheduleBody) -> Self {
        Self {
            hourly: body.hourly,
            daily: body.daily,
            weekly: body.weekly,
        }
    }
}

/// The snapshots of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FolderSnapshots)]
pub struct FolderSnapshotsView {
    /// Newest first.
    pub items: Vec<FolderSnapshotView>,
    pub schedule: FolderSnapshotScheduleView,
    /// False where the file system of the folder cannot share blocks: then none can be made.
    pub offered: bool,
    /// Bytes that all snapshots of the owner's folders take by themselves; where `limit` is null, those of this folder.
    pub used: u64,
    /// What they may, half of what the owner's folders may take; null on a volume, where no limit is held, and to those whom
    /// the folder is shared with.
    pub limit: Option<u64>,
}

/// A new folder with what lies in a snapshot.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = NewFolderFromSnapshot)]
#[serde(deny_unknown_fields)]
pub struct NewFolderFromSnapshotBody {
    /// As of a new folder.
    pub name: String,
    /// As of a new folder.
    #[serde(default)]
    pub project: Option<String>,
    /// A file or a directory of the snapshot; left out: all of it.
    #[serde(default)]
    pub path: String,
}

/// What of a snapshot is put back into its folder.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = FolderSnapshotRestore)]
#[serde(deny_unknown_fields)]
pub struct FolderSnapshotRestoreBody {
    /// A file, a directory or a link of the snapshot.
    pub path: String,
    /// Where it is to be, its name included; left out: where it was.
    #[serde(default)]
    pub to: Option<String>,
    /// True: what stands there goes into the trash of the folder. False: then nothing is done.
    #[serde(default)]
    pub replace: bool,
}
