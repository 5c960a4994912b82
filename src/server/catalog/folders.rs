//! Rows of folders. Decides nothing; who may do what with one, `rules::folder` says.

use std::collections::{BTreeMap, BTreeSet};

use rules::folder::{
    Folder, FolderKind, FolderName, FolderOwner, FolderState, FolderUse, MountAccess, OwnLimit,
};
use rules::names::{FolderId, UserId, VolumeId};
use rules::permissions::Reach;
use rules::tenancy::{DomainId, ProjectId, TenantState};
use rules::units::{Bytes, Timestamp};
use rusqlite::{OptionalExtension as _, Params, Row};

use super::reach::{ReachedTable, condition};
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// One folder, and the name of its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderRecord {
    pub(crate) folder: Folder,
    pub(crate) owner_name: String,
    /// None: it lies on the box's own disk.
    pub(crate) volume_name: Option<String>,
}

const FOLDER: ReachedTable = ReachedTable {
    owner: "owner",
    has_domain: false,
    project: Some("project"),
};

/// Whose a row is; the table says that it has one owner.
pub(super) fn owner(row: &Row<'_>, user: &str, project: &str) -> rusqlite::Result<FolderOwner> {
    match value::id_or_none(row, user)? {
        Some(user) => Ok(FolderOwner::User(UserId(user))),
        None => Ok(FolderOwner::Project(ProjectId(value::id(row, project)?))),
    }
}

/// The columns of a user and of a project, one of them null.
pub(super) fn columns(owner: FolderOwner) -> (Option<[u8; 16]>, Option<[u8; 16]>) {
    let user = owner.user().map(|user| *user.0.as_bytes());
    let project = owner.project().map(|project| *project.0.as_bytes());
    (user, project)
}

/// The condition that a row of the table is an owner's; its one value is their id.
fn of_owner(owner: FolderOwner) -> &'static str {
    match owner {
        FolderOwner::User(_) => "owner = ?1",
        FolderOwner::Project(_) => "project = ?1",
    }
}

fn folder_row(row: &Row<'_>) -> rusqlite::Result<FolderRecord> {
    let counted_at = value::time_or_none(row, "counted_at")?;
    let bytes = value::unsigned_or_none(row, "bytes")?;
    let entries = value::unsigned_or_none(row, "entries")?;
    Ok(FolderRecord {
        folder: Folder {
            id: FolderId(value::id(row, "id")?),
            owner: owner(row, "owner", "project")?,
            domain: DomainId(value::id(row, "domain")?),
            members: value::word(row, "members", MountAccess::parse)?,
            is_closed: value::word_or_none(row, "project_state", TenantState::parse)?
                == Some(TenantState::Archived),
            is_cloneable: row.get("cloneable")?,
            name: value::word(row, "name", |text| FolderName::parse(text).ok())?,
            kind: value::word(row, "kind", FolderKind::parse)?,
            state: value::word(row, "state", FolderState::parse)?,
            volume: value::id_or_none(row, "volume")?.map(VolumeId),
            created_at: value::time(row, "created_at")?,
            used_at: value::time_or_none(row, "used_at")?,
            trashed_at: value::time_or_none(row, "trashed_at")?,
            counted: match (counted_at, bytes, entries) {
                (Some(at), Some(bytes), Some(entries)) => Some(FolderUse { bytes, entries, at }),
                _ => None,
            },
            own_limit: match value::unsigned_or_none(row, "own_limit")? {
                Some(bytes) => Some(OwnLimit {
                    bytes: Bytes(bytes),
                    is_on_top: row.get("limit_on_top")?,
                }),
                None => None,
            },
            generation: value::unsigned(row, "generation")?,
        },
        owner_name: row.get("owner_name")?,
        volume_name: row.get("volume_name")?,
    })
}

impl ReadTransaction<'_> {
    fn folders_where(
        &self,
        condition: &str,
        values: impl Params,
    ) -> Result<Vec<FolderRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select folder.*, coalesce(user.domain, project.domain) as domain,
                 coalesce(user.name, project.name) as owner_name, project.state as project_state,
                 volume.name as volume_name
             from (select * from folder where {condition}) as folder
             left join user on user.id = folder.owner
             left join project on project.id = folder.project
             left join volume on volume.id = folder.volume
             order by owner_name, folder.trashed_at is not null, folder.name, folder.id"
        ))?;
        let rows = statement.query_map(values, folder_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The folders in reach, by owner and name, those in the trash last. O(folders).
    pub(crate) fn folders(&self, reach: &Reach) -> Result<Vec<FolderRecord>, Failure> {
        let (reached, value) = condition(reach, FOLDER, "?1");
        self.folders_where(&reached, [value])
    }

    /// The folders of one owner, those in the trash included. Costs one range of an index.
    pub(crate) fn folders_of(
        &self,
        owner: impl Into<FolderOwner>,
    ) -> Result<Vec<FolderRecord>, Failure> {
        let owner = owner.into();
        self.folders_where(of_owner(owner), [owner.id().as_bytes()])
    }

    pub(crate) fn folder(&self, id: FolderId) -> Result<Option<FolderRecord>, Failure> {
        let found = self.folders_where("id = ?1", [id.0.as_bytes()])?;
        Ok(found.into_iter().next())
    }

    /// The folder of that name that an owner has outside the trash. Costs one look into an index.
    pub(crate) fn kept_folder(
        &self,
        owner: impl Into<FolderOwner>,
        name: &str,
    ) -> Result<Option<FolderRecord>, Failure> {
        let owner = owner.into();
        let of_owner = of_owner(owner);
        let found = self.folders_where(
            &format!("{of_owner} and name = ?2 and trashed_at is null"),
            (owner.id().as_bytes(), name),
        )?;
        Ok(found.into_iter().next())
    }

    /// Whether there is a row of that folder, in any state.
    pub(crate) fn knows_folder(&self, id: FolderId) -> Result<bool, Failure> {
        let found = self
            .connection
            .prepare_cached("select 1 from folder where id = ?1")?
            .query_row([id.0.as_bytes()], |_| Ok(()))
            .optional()?;
        Ok(found.is_some())
    }

    /// Every folder with its state. O(folders).
    pub(crate) fn folder_states(&self) -> Result<BTreeMap<FolderId, FolderState>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached("select id, state from folder")?;
        let rows = statement.query_map([], |row| {
            let state = value::word(row, "state", FolderState::parse)?;
            Ok((FolderId(value::id(row, "id")?), state))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The folders that lie on a volume and are not being made, moved or removed. O(folders).
    pub(crate) fn folders_on(&self, volume: VolumeId) -> Result<Vec<FolderId>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select id
             from folder
             where volume = ?1 and state in (?2, ?3)
             order by id",
        )?;
        let [ready, trashed] = [FolderState::Ready, FolderState::Trashed].map(FolderState::word);
        let rows = statement.query_map((volume.0.as_bytes(), ready, trashed), |row| {
            Ok(FolderId(value::id(row, "id")?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The folders that take most, as they were counted last. O(folders).
    pub(crate) fn biggest_folders(&self, most: u32) -> Result<Vec<(FolderId, u64)>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select id, bytes
             from folder
             where bytes is not null
             order by bytes desc, id
             limit ?1",
        )?;
        let rows = statement.query_map([most], |row| {
            Ok((
                FolderId(value::id(row, "id")?),
                value::unsigned(row, "bytes")?,
            ))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The folders on the box's own disk that have a limit of their own. O(folders).
    pub(crate) fn own_limits(&self) -> Result<Vec<Folder>, Failure> {
        let all = self.folders_where("own_limit is not null and volume is null", ())?;
        Ok(all.into_iter().map(|found| found.folder).collect())
    }

    /// The owners of folders that are on their way: what such an owner's folders take and may take does not fit together
    /// meanwhile. O(folders).
    pub(crate) fn owners_of_moving(&self) -> Result<BTreeSet<FolderOwner>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select distinct owner, project
             from folder
             where state = 'transferring'",
        )?;
        let rows = statement.query_map([], |row| owner(row, "owner", "project"))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// What an owner's folders with limits of their own have of the owner's limit together. Costs one range of an index.
    pub(crate) fn set_aside(&self, owner: FolderOwner) -> Result<Bytes, Failure> {
        let of_owner = of_owner(owner);
        let mut statement = self.connection.prepare_cached(&format!(
            "select coalesce(sum(own_limit), 0) as bytes
             from folder
             where {of_owner} and own_limit is not null and limit_on_top = 0"
        ))?;
        let bytes =
            statement.query_row([owner.id().as_bytes()], |row| value::unsigned(row, "bytes"))?;
        Ok(Bytes(bytes))
    }

    /// The folders that have to go: those being removed, and those in the trash since before `since`.
    pub(crate) fn folders_to_purge(&self, since: Timestamp) -> Result<Vec<FolderRecord>, Failure> {
        self.folders_where(
            "trashed_at is not null and (trashed_at <= ?1 or state = 'purging')",
            [since.as_millis()],
        )
    }

    /// The folders whose use is not known as it is now: never counted, launched with since, or mounted by a session that
    /// is not over. Costs one visit of each folder and each live session.
    pub(crate) fn folders_to_count(&self) -> Result<BTreeSet<FolderId>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select id
             from folder
             where state = 'ready' and (counted_at is null or used_at >= counted_at)",
        )?;
        let rows = statement.query_map([], |row| Ok(FolderId(value::id(row, 0)?)))?;
        let mut all: BTreeSet<FolderId> = rows.collect::<Result<_, _>>()?;
        for session in self.live_sessions()?.iter() {
            all.extend(session.mounts.iter().map(|mount| mount.folder));
        }
        Ok(all)
    }
}

impl Rows<'_> {
    pub(crate) fn insert_folder(&self, folder: &Folder) -> Result<(), Failure> {
        let (owner, project) = columns(folder.owner);
        self.connection
            .prepare_cached(
                "insert into folder
                     (id, owner, project, members, name, kind, state, created_at, generation, volume,
                      own_limit, limit_on_top, cloneable)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            )?
            .execute((
                folder.id.0.as_bytes(),
                owner,
                project,
                folder.members.word(),
                folder.name.as_str(),
                folder.kind.word(),
                folder.state.word(),
                folder.created_at.as_millis(),
                value::signed(folder.generation),
                folder.volume.map(|volume| *volume.0.as_bytes()),
                folder.own_limit.map(|limit| value::signed(limit.bytes.0)),
                folder.own_limit.is_some_and(|limit| limit.is_on_top),
                folder.is_cloneable,
            ))?;
        Ok(())
    }

    /// Writes owner, name, state and own limit, what members may and who makes copies; raises the generation.
    pub(crate) fn put_folder(&self, folder: &Folder) -> Result<(), Failure> {
        let (owner, project) = columns(folder.owner);
        self.connection
            .prepare_cached(
                "update folder
                 set name = ?2, state = ?3, trashed_at = ?4, owner = ?5, project = ?6, members = ?7,
                     own_limit = ?8, limit_on_top = ?9, cloneable = ?10,
                     generation = generation + 1
                 where id = ?1",
            )?
            .execute((
                folder.id.0.as_bytes(),
                folder.name.as_str(),
                folder.state.word(),
                folder.trashed_at.map(Timestamp::as_millis),
                owner,
                project,
                folder.members.word(),
                folder.own_limit.map(|limit| value::signed(limit.bytes.0)),
                folder.own_limit.is_some_and(|limit| limit.is_on_top),
                folder.is_cloneable,
            ))?;
        Ok(())
    }

    /// Keeps that a session was launched that mounts it, or that its files were changed from outside.
    pub(crate) fn note_folder_use(&self, id: FolderId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update folder set used_at = ?2 where id = ?1")?
            .execute((id.0.as_bytes(), self.now.as_millis()))?;
        Ok(())
    }

    /// Keeps what a folder takes of the disk; its generation stays.
    pub(crate) fn note_folder_size(&self, id: FolderId, counted: FolderUse) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update folder
                 set counted_at = ?2, bytes = ?3, entries = ?4
                 where id = ?1",
            )?
            .execute((
                id.0.as_bytes(),
                counted.at.as_millis(),
                value::signed(counted.bytes),
                value::signed(counted.entries),
            ))?;
        Ok(())
    }

    /// Moves the folders of a user who is gone into the trash.
    pub(super) fn trash_folders_of(&self, owner: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update folder
                 set state = 'trashed', trashed_at = ?2, generation = generation + 1
                 where owner = ?1 and state = 'ready'",
            )?
            .execute((owner.0.as_bytes(), self.now.as_millis()))?;
        Ok(())
    }

    /// Lets each folder in the trash lie there for its whole time from now on. A catalog that is restored does not know
    /// which of them came back since it was copied, and its copy holds none of their files.
    pub(super) fn keep_trash(&self) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update folder set trashed_at = ?1 where state = 'trashed'")?
            .execute([self.now.as_millis()])?;
        Ok(())
    }

    pub(crate) fn forget_folder(&self, id: FolderId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from folder where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }
}
