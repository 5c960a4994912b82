//! Rows of snapshots of folders, and of the schedules that make them. Decides nothing; which one is due and which gives way,
//! `rules::folder_snapshot` says.

use rules::folder::FolderOwner;
use rules::folder_snapshot::{FolderSnapshot, SnapshotOrigin, SnapshotSchedule, SnapshotState};
use rules::names::{FolderId, UserId};
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Params, Row};

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// The schedule of one folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SnapshotScheduleRecord {
    pub(crate) folder: FolderId,
    /// Who set it.
    pub(crate) user: UserId,
    pub(crate) schedule: SnapshotSchedule,
    /// When a snapshot was begun last.
    pub(crate) tried_at: Option<Timestamp>,
}

fn snapshot_row(row: &Row<'_>) -> rusqlite::Result<FolderSnapshot> {
    Ok(FolderSnapshot {
        folder: FolderId(value::id(row, "folder")?),
        number: row.get("number")?,
        origin: value::word(row, "origin", SnapshotOrigin::parse)?,
        state: value::word(row, "state", SnapshotState::parse)?,
        is_frozen: row.get("is_frozen")?,
        created_at: value::time(row, "created_at")?,
        created_by: row.get("created_by")?,
        bytes: value::unsigned_or_none(row, "bytes")?,
        entries: value::unsigned_or_none(row, "entries")?,
    })
}

fn schedule_row(row: &Row<'_>) -> rusqlite::Result<SnapshotScheduleRecord> {
    Ok(SnapshotScheduleRecord {
        folder: FolderId(value::id(row, "folder")?),
        user: UserId(value::id(row, "user")?),
        schedule: SnapshotSchedule {
            hourly: row.get("hourly")?,
            daily: row.get("daily")?,
            weekly: row.get("weekly")?,
        },
        tried_at: value::time_or_none(row, "tried_at")?,
    })
}

impl ReadTransaction<'_> {
    fn snapshots_where(
        &self,
        condition: &str,
        values: impl Params,
    ) -> Result<Vec<FolderSnapshot>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select *
             from folder_snapshot
             where {condition}
             order by folder, number desc"
        ))?;
        let rows = statement.query_map(values, snapshot_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The snapshots of a folder, newest first, those on their way included. Costs one range of the table.
    pub(crate) fn folder_snapshots(
        &self,
        folder: FolderId,
    ) -> Result<Vec<FolderSnapshot>, Failure> {
        self.snapshots_where("folder = ?1", [folder.0.as_bytes()])
    }

    /// One snapshot. Costs one look by key.
    pub(crate) fn folder_snapshot(
        &self,
        folder: FolderId,
        number: u32,
    ) -> Result<Option<FolderSnapshot>, Failure> {
        let key = (folder.0.as_bytes(), number);
        let found = self.snapshots_where("folder = ?1 and number = ?2", key)?;
        Ok(found.into_iter().next())
    }

    /// The snapshots of all folders of an owner, but of those on volumes, where no limit is held. Costs a range of the table for
    /// each folder.
    pub(crate) fn snapshots_of_owner(
        &self,
        owner: FolderOwner,
    ) -> Result<Vec<FolderSnapshot>, Failure> {
        let of_owner = match owner {
            FolderOwner::User(_) => "owner = ?1",
            FolderOwner::Project(_) => "project = ?1",
        };
        self.snapshots_where(
            &format!("folder in (select id from folder where {of_owner} and volume is null)"),
            [owner.id().as_bytes()],
        )
    }

    /// The snapshots whose files have to go. Costs one range of an index.
    pub(crate) fn snapshots_to_remove(&self) -> Result<Vec<FolderSnapshot>, Failure> {
        self.snapshots_where("state = 'removing'", [])
    }

    /// The schedule of a folder; None where none was set.
    pub(crate) fn snapshot_schedule(
        &self,
        folder: FolderId,
    ) -> Result<Option<SnapshotScheduleRecord>, Failure> {
        Ok(self
            .connection
            .prepare_cached("select * from folder_snapshot_schedule where folder = ?1")?
            .query_row([folder.0.as_bytes()], schedule_row)
            .optional()?)
    }

    /// All schedules, by folder. O(schedules).
    pub(crate) fn snapshot_schedules(&self) -> Result<Vec<SnapshotScheduleRecord>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached("select * from folder_snapshot_schedule order by folder")?;
        let rows = statement.query_map([], schedule_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl Rows<'_> {
    /// Writes a snapshot that is to be made, and gives its number.
    pub(crate) fn begin_snapshot(
        &self,
        folder: FolderId,
        origin: SnapshotOrigin,
        created_by: &str,
    ) -> Result<u32, Failure> {
        let number = self
            .connection
            .prepare_cached(
                "insert into folder_snapshot (folder, number, origin, state, created_at, created_by)
                 select ?1, coalesce(max(number), 0) + 1, ?2, 'making', ?3, ?4
                 from folder_snapshot
                 where folder = ?1
                 returning number",
            )?
            .query_row(
                (
                    folder.0.as_bytes(),
                    origin.word(),
                    self.now.as_millis(),
                    created_by,
                ),
                |row| row.get(0),
            )?;
        Ok(number)
    }

    /// Keeps that all files of a snapshot are there.
    pub(crate) fn end_snapshot(&self, made: &FolderSnapshot) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update folder_snapshot
                 set state = 'ready', is_frozen = ?3, bytes = ?4, entries = ?5
                 where folder = ?1 and number = ?2 and state = 'making'",
            )?
            .execute((
                made.folder.0.as_bytes(),
                made.number,
                made.is_frozen,
                value::signed(made.bytes.unwrap_or(0)),
                value::signed(made.entries.unwrap_or(0)),
            ))?;
        Ok(())
    }

    /// Keeps that the files of a snapshot have to go. It is listed no more, and gives nothing more.
    pub(crate) fn drop_snapshot(&self, folder: FolderId, number: u32) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update folder_snapshot set state = 'removing' where folder = ?1 and number = ?2",
            )?
            .execute((folder.0.as_bytes(), number))?;
        Ok(())
    }

    pub(crate) fn forget_snapshot(&self, folder: FolderId, number: u32) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from folder_snapshot where folder = ?1 and number = ?2")?
            .execute((folder.0.as_bytes(), number))?;
        Ok(())
    }

    /// Sets the schedule of a folder in the place of the one that is there.
    pub(crate) fn put_snapshot_schedule(
        &self,
        folder: FolderId,
        user: UserId,
        schedule: SnapshotSchedule,
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into folder_snapshot_schedule (folder, user, hourly, daily, weekly)
                 values (?1, ?2, ?3, ?4, ?5)
                 on conflict (folder) do update
                 set user = ?2, hourly = ?3, daily = ?4, weekly = ?5, tried_at = null",
            )?
            .execute((
                folder.0.as_bytes(),
                user.0.as_bytes(),
                schedule.hourly,
                schedule.daily,
                schedule.weekly,
            ))?;
        Ok(())
    }

    pub(crate) fn forget_snapshot_schedule(&self, folder: FolderId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from folder_snapshot_schedule where folder = ?1")?
            .execute([folder.0.as_bytes()])?;
        Ok(())
    }

    /// Keeps that a snapshot of a schedule was begun, or could not be.
    pub(crate) fn note_snapshot_try(&self, folder: FolderId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update folder_snapshot_schedule set tried_at = ?2 where folder = ?1")?
            .execute((folder.0.as_bytes(), self.now.as_millis()))?;
        Ok(())
    }
}
