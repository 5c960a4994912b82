//! Rows of what the folders of users and projects take and may take. Decides nothing; `rules::storage` says what is near a limit.

use rules::folder::FolderOwner;
use rules::names::UserId;
use rules::permissions::Reach;
use rules::storage::{StorageLevel, StorageUse};
use rules::tenancy::{DomainId, ProjectId};
use rules::units::{Bytes, Timestamp};
use rusqlite::{OptionalExtension as _, Row};

use super::folders::owner;
use super::reach::{ReachedTable, condition};
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// What the folders of one owner take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerStorage {
    pub(crate) owner: FolderOwner,
    pub(crate) owner_name: String,
    pub(crate) domain: DomainId,
    /// The sum of what was counted last of each folder without a limit of its own.
    pub(crate) counted: Bytes,
    /// What was seen of all of them together; None before the first look.
    pub(crate) taken: Option<StorageUse>,
}

/// All folders of one owner, and what is known of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnedFolders {
    pub(crate) owner: FolderOwner,
    pub(crate) domain: DomainId,
    /// The sum of what was counted last of each folder without a limit of its own.
    pub(crate) counted: Bytes,
    pub(crate) before: Option<StorageWarning>,
}

/// A limit that is near.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StorageWarning {
    pub(crate) taken: StorageUse,
    pub(crate) level: StorageLevel,
    /// Since when it is so near or nearer.
    pub(crate) since: Timestamp,
}

const FOLDERS: ReachedTable = ReachedTable {
    owner: "folder.owner",
    has_domain: false,
    project: Some("folder.project"),
};

fn taken(row: &Row<'_>) -> rusqlite::Result<Option<StorageUse>> {
    let used = value::unsigned_or_none(row, "used")?;
    let limit = value::unsigned_or_none(row, "max_bytes")?;
    let at = value::time_or_none(row, "at")?;
    Ok(match (used, limit, at) {
        (Some(used), Some(limit), Some(at)) => Some(StorageUse {
            used: Bytes(used),
            limit: Bytes(limit),
            at,
        }),
        _ => None,
    })
}

fn warning(row: &Row<'_>) -> rusqlite::Result<StorageWarning> {
    Ok(StorageWarning {
        taken: StorageUse {
            used: Bytes(value::unsigned(row, "used")?),
            limit: Bytes(value::unsigned(row, "max_bytes")?),
            at: value::time(row, "at")?,
        },
        level: value::word(row, "level", StorageLevel::parse)?,
        since: value::time(row, "level_since")?,
    })
}

impl ReadTransaction<'_> {
    /// What the folders of each owner in reach take, by their name; those in the trash count. O(folders).
    pub(crate) fn storage(&self, reach: &Reach) -> Result<Vec<OwnerStorage>, Failure> {
        let (reached, value) = condition(reach, FOLDERS, "?1");
        let mut statement = self.connection.prepare_cached(&format!(
            "select folder.owner, folder.project,
                 coalesce(user.name, project.name) as owner_name,
                 coalesce(user.domain, project.domain) as domain,
                 sum(case when folder.volume is null and folder.own_limit is null
                     then coalesce(folder.bytes, 0) else 0 end) as counted,
                 storage.used, storage.max_bytes, storage.at
             from folder
             left join user on user.id = folder.owner
             left join project on project.id = folder.project
             left join storage on storage.owner = coalesce(folder.owner, folder.project)
             where {reached}
             group by folder.owner, folder.project
             order by owner_name"
        ))?;
        let rows = statement.query_map([value], |row| {
            Ok(OwnerStorage {
                owner: owner(row, "owner", "project")?,
                owner_name: row.get("owner_name")?,
                domain: DomainId(value::id(row, "domain")?),
                counted: Bytes(value::unsigned(row, "counted")?),
                taken: taken(row)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// All owners of folders, of those in the trash, too. O(folders).
    pub(crate) fn folder_owners(&self) -> Result<Vec<OwnedFolders>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select folder.owner, folder.project,
                 coalesce(user.domain, project.domain) as domain,
                 sum(case when folder.volume is null and folder.own_limit is null
                     then coalesce(folder.bytes, 0) else 0 end) as counted
             from folder
             left join user on user.id = folder.owner
             left join project on project.id = folder.project
             group by folder.owner, folder.project",
        )?;
        let rows = statement.query_map([], |row| {
            Ok(OwnedFolders {
                owner: owner(row, "owner", "project")?,
                domain: DomainId(value::id(row, "domain")?),
                counted: Bytes(value::unsigned(row, "counted")?),
                before: None,
            })
        })?;
        let mut all: Vec<OwnedFolders> = rows.collect::<Result<_, _>>()?;
        for one in &mut all {
            one.before = self.storage_of(one.owner)?;
        }
        Ok(all)
    }

    /// The users whose limit came near since a moment, or nearer. Costs one range of an index.
    pub(crate) fn warned_of_storage(
        &self,
        since: Timestamp,
    ) -> Result<Vec<(UserId, StorageWarning)>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select owner, used, max_bytes, at, level, level_since
             from storage
             where level <> 'free' and level_since >= ?1
             and exists (select 1 from user where user.id = storage.owner)",
        )?;
        let rows = statement.query_map([since.as_millis()], |row| {
            Ok((UserId(value::id(row, "owner")?), warning(row)?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The leads of projects whose limit came near since a moment, or nearer. Costs one range of an index.
    pub(crate) fn leads_warned_of_storage(
        &self,
        since: Timestamp,
    ) -> Result<Vec<(UserId, ProjectId, StorageWarning)>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select membership.user as lead, storage.owner, used, max_bytes, at, level, level_since
             from storage
             join membership on membership.project = storage.owner and membership.role = 'lead'
             where level <> 'free' and level_since >= ?1",
        )?;
        let rows = statement.query_map([since.as_millis()], |row| {
            let project = ProjectId(value::id(row, "owner")?);
            Ok((UserId(value::id(row, "lead")?), project, warning(row)?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// How near the limit of one owner is, where it is known. Costs one look into an index.
    pub(crate) fn storage_of(
        &self,
        owner: impl Into<FolderOwner>,
    ) -> Result<Option<StorageWarning>, Failure> {
        let owner = owner.into().id();
        let found = self
            .connection
            .prepare_cached(
                "select used, max_bytes, at, level, level_since
                 from storage
                 where owner = ?1",
            )?
            .query_row([owner.as_bytes()], warning)
            .optional()?;
        Ok(found)
    }
}

impl Rows<'_> {
    /// Writes what the folders of an owner take. Since when a level holds stays while it gets no nearer; else it is `now`, when
    /// the owner can be told of it, and not when the folders were seen, which may be long ago.
    pub(crate) fn put_storage(
        &self,
        owner: FolderOwner,
        taken: &StorageUse,
        level: StorageLevel,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let before = self.storage_of(owner)?;
        let since = match before {
            Some(before) if before.level >= level => before.since,
            _ => now,
        };
        self.connection
            .prepare_cached(
                "insert into storage (owner, used, max_bytes, at, level, level_since)
                 values (?1, ?2, ?3, ?4, ?5, ?6)
                 on conflict (owner) do update
                 set used = excluded.used, max_bytes = excluded.max_bytes, at = excluded.at,
                     level = excluded.level, level_since = excluded.level_since",
            )?
            .execute((
                owner.id().as_bytes(),
                value::signed(taken.used.0),
                value::signed(taken.limit.0),
                taken.at.as_millis(),
                level.word(),
                since.as_millis(),
            ))?;
        Ok(())
    }

    /// Forgets what the folders of owners took who have none any more.
    pub(crate) fn forget_storage(&self) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "delete from storage
                 where not exists
                     (select 1 from folder where folder.owner = storage.owner or folder.project = storage.owner)",
            )?
            .execute([])?;
        Ok(())
    }
}
