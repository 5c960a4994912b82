//! Rows of folders that are shared. Decides nothing; what a share gives to whom, `rules::folder_rights` says.

use rules::folder::Folder;
use rules::folder_rights::{FolderRight, FolderShare, ShareTarget, effective_right};
use rules::names::{FolderId, FolderShareId, TenantName, UserId, UserName};
use rules::permissions::Subject;
use rules::reasons;
use rules::session::Session;
use rules::tenancy::ProjectId;
use rules::units::Timestamp;
use rusqlite::{Params, Row};

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// One share, and the names of its ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderShareRecord {
    pub(crate) share: FolderShare,
    /// None for one with a project.
    pub(crate) user_name: Option<UserName>,
    /// None for one with a user.
    pub(crate) project_name: Option<TenantName>,
    /// Who made it, or changed it last.
    pub(crate) created_by: String,
}

fn share_row(row: &Row<'_>) -> rusqlite::Result<FolderShareRecord> {
    let user = value::id_or_none(row, "user")?.map(UserId);
    let project = value::id_or_none(row, "project")?.map(ProjectId);
    let with = match (user, project) {
        (Some(user), _) => ShareTarget::User(user),
        (None, Some(project)) => ShareTarget::Project(project),
        // A check of the table keeps this from being.
        (None, None) => return Err(rusqlite::Error::QueryReturnedNoRows),
    };
    Ok(FolderShareRecord {
        share: FolderShare {
            id: FolderShareId(value::id(row, "id")?),
            folder: FolderId(value::id(row, "folder")?),
            with,
            right: value::word(row, "access", FolderRight::parse)?,
            accepted_at: value::time_or_none(row, "accepted_at")?,
            created_at: value::time(row, "created_at")?,
            ends_at: value::time_or_none(row, "ends_at")?,
        },
        user_name: value::word_or_none(row, "user_name", |text| UserName::parse(text).ok())?,
        project_name: value::word_or_none(row, "project_name", |text| {
            TenantName::parse(text).ok()
        })?,
        created_by: row.get("created_by")?,
    })
}

impl ReadTransaction<'_> {
    fn folder_shares_where(
        &self,
        condition: &str,
        values: impl Params,
    ) -> Result<Vec<FolderShareRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select share.*, user.name as user_name, project.name as project_name
             from (select * from folder_share where {condition}) as share
             left join user on user.id = share.user
             left join project on project.id = share.project
             order by share.created_at, share.id"
        ))?;
        let rows = statement.query_map(values, share_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The shares of a folder, those that have ended included, oldest first. Costs one range of an index.
    pub(crate) fn folder_shares(
        &self,
        folder: FolderId,
    ) -> Result<Vec<FolderShareRecord>, Failure> {
        self.folder_shares_where("folder = ?1", [folder.0.as_bytes()])
    }

    /// The shares with a user alone, offered ones included, oldest first. Costs one range of an index.
    pub(crate) fn folder_shares_with(
        &self,
        user: UserId,
    ) -> Result<Vec<FolderShareRecord>, Failure> {
        self.folder_shares_where("user = ?1", [user.0.as_bytes()])
    }

    /// The shares with a project, oldest first. Costs one range of an index.
    pub(crate) fn folder_shares_with_project(
        &self,
        project: ProjectId,
    ) -> Result<Vec<FolderShareRecord>, Failure> {
        self.folder_shares_where("project = ?1", [project.0.as_bytes()])
    }

    /// Shares whose time is over, those that ended first before others; at most `most`. Costs a look into an index.
    pub(crate) fn ended_folder_shares(
        &self,
        now: Timestamp,
        most: usize,
    ) -> Result<Vec<FolderShareRecord>, Failure> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.folder_shares_where(
            "ends_at <= ?1 order by ends_at limit ?2",
            (now.as_millis(), most),
        )
    }

    /// The shares that are for a subject, alone or as a member of a project; offered and ended ones included. Costs one range
    /// of an index for the subject and for each of their grants.
    pub(crate) fn folder_shares_for(&self, subject: &Subject) -> Result<Vec<FolderShare>, Failure> {
        let mut all = self.folder_shares_with(subject.user)?;
        for grant in &subject.grants {
            if let rules::grants::GrantScope::Project(project) = grant.scope {
                all.extend(self.folder_shares_with_project(project)?);
            }
        }
        let all = all.into_iter().map(|record| record.share);
        Ok(all.filter(|share| share.is_for(subject)).collect())
    }

    pub(crate) fn folder_share(
        &self,
        id: FolderShareId,
    ) -> Result<Option<FolderShareRecord>, Failure> {
        let found = self.folder_shares_where("id = ?1", [id.0.as_bytes()])?;
        Ok(found.into_iter().next())
    }

    /// The right of a user to the files of a folder, which no token narrows here; None where they have none. Costs the row of
    /// the user and one range of an index; nothing for the owner.
    pub(crate) fn right_to_files(
        &self,
        user: UserId,
        folder: &Folder,
        now: Timestamp,
    ) -> Result<Option<FolderRight>, Failure> {
        if folder.owner == user.into() {
            return Ok(Some(FolderRight::Rwd));
        }
        let Some(found) = self.user(user)? else {
            return Ok(None);
        };
        let subject = Subject {
            user,
            grants: found.grants_at(now),
            domain: found.domain,
            scopes: None,
        };
        let known = self.folder_shares(folder.id)?.into_iter();
        let shares: Vec<FolderShare> = known.map(|record| record.share).collect();
        let right = effective_right(&subject, folder, &shares, now);
        Ok(right.and_then(|right| right.files))
    }
}

impl Rows<'_> {
    /// Writes a share, over the one of the same id.
    pub(crate) fn put_folder_share(
        &self,
        share: &FolderShare,
        created_by: &str,
    ) -> Result<(), Failure> {
        let (user, project) = match share.with {
            ShareTarget::User(user) => (Some(*user.0.as_bytes()), None),
            ShareTarget::Project(project) => (None, Some(*project.0.as_bytes())),
        };
        self.connection
            .prepare_cached(
                "insert into folder_share
                     (id, folder, user, project, access, accepted_at, created_at, created_by, ends_at)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                 on conflict (id) do update
                 set access = ?5, accepted_at = ?6, created_by = ?8, ends_at = ?9",
            )?
            .execute((
                share.id.0.as_bytes(),
                share.folder.0.as_bytes(),
                user,
                project,
                share.right.word(),
                share.accepted_at.map(Timestamp::as_millis),
                share.created_at.as_millis(),
                created_by,
                share.ends_at.map(Timestamp::as_millis),
            ))?;
        Ok(())
    }

    pub(crate) fn forget_folder_share(&self, id: FolderShareId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from folder_share where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }

    /// Takes every share of a folder back.
    pub(crate) fn forget_shares_of_folder(&self, folder: FolderId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from folder_share where folder = ?1")?
            .execute([folder.0.as_bytes()])?;
        Ok(())
    }

    /// Takes the shares back that are with a user who is gone, and those of their folders: what lies in the trash then is
    /// not brought back by users whom it was shared with. Offers to them and of theirs go, too; one
    /// that was taken keeps the name of its folder at its new owner until its operation ends.
    pub(super) fn forget_folder_shares_of(&self, user: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "delete from folder_share
                 where user = ?1 or folder in (select id from folder where owner = ?1)",
            )?
            .execute([user.0.as_bytes()])?;
        self.connection
            .prepare_cached(
                "delete from folder_transfer
                 where user = ?1
                     or folder in (select id from folder where owner = ?1 and state <> 'transferring')",
            )?
            .execute([user.0.as_bytes()])?;
        Ok(())
    }

    /// Holds a session that is to start once more to what its owner may do with folders now: without a right to one it does
    /// not start again; one that they may only read it mounts read-only then. Costs a row by key and `right_to_files` for each
    /// mount.
    pub(super) fn hold_restart(&self, session: &mut Session) -> Result<(), Failure> {
        let owner = session.owner;
        let mut lost = None;
        for mount in session.mounts.iter_mut().filter(|mount| !mount.detached) {
            let Some(found) = self.folder(mount.folder)? else {
                continue;
            };
            match self.right_to_files(owner, &found.folder, self.now)? {
                Some(right) => mount.read_only |= right == FolderRight::Ro,
                None => lost = Some(found.folder.name),
            }
        }
        if let Some(name) = lost {
            session.restart = false;
            session.reason = Some(reasons::session_folder_right_ended(&name));
        }
        Ok(())
    }
}
