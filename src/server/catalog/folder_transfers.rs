//! Rows of folders that are offered to another owner. Decides nothing; who may offer and who may take one,
//! `rules::folder_rights` says.

use rules::folder::FolderOwner;
use rules::names::FolderId;
use rules::units::Timestamp;
use rusqlite::{Params, Row};

use super::folders::{columns, owner};
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// One offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FolderTransferRecord {
    pub(crate) folder: FolderId,
    pub(crate) to: FolderOwner,
    pub(crate) to_name: String,
    pub(crate) created_at: Timestamp,
    /// Who offers it.
    pub(crate) created_by: String,
}

fn transfer_row(row: &Row<'_>) -> rusqlite::Result<FolderTransferRecord> {
    Ok(FolderTransferRecord {
        folder: FolderId(value::id(row, "folder")?),
        to: owner(row, "user", "project")?,
        to_name: row.get("to_name")?,
        created_at: value::time(row, "created_at")?,
        created_by: row.get("created_by")?,
    })
}

impl ReadTransaction<'_> {
    fn folder_transfers_where(
        &self,
        condition: &str,
        values: impl Params,
    ) -> Result<Vec<FolderTransferRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select transfer.*, coalesce(user.name, project.name) as to_name
             from (select * from folder_transfer where {condition}) as transfer
             left join user on user.id = transfer.user
             left join project on project.id = transfer.project
             order by transfer.created_at, transfer.folder"
        ))?;
        let rows = statement.query_map(values, transfer_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The offer of a folder; None where it is offered to no other owner. Costs one look by key.
    pub(crate) fn folder_transfer(
        &self,
        folder: FolderId,
    ) -> Result<Option<FolderTransferRecord>, Failure> {
        let found = self.folder_transfers_where("folder = ?1", [folder.0.as_bytes()])?;
        Ok(found.into_iter().next())
    }

    /// The folders that are offered to an owner, oldest offer first. Costs one range of an index.
    pub(crate) fn folder_transfers_to(
        &self,
        owner: FolderOwner,
    ) -> Result<Vec<FolderTransferRecord>, Failure> {
        let condition = match owner {
            FolderOwner::User(_) => "user = ?1",
            FolderOwner::Project(_) => "project = ?1",
        };
        self.folder_transfers_where(condition, [owner.id().as_bytes()])
    }
}

impl Rows<'_> {
    /// Offers a folder to another owner, in the place of an offer of it that is there.
    pub(crate) fn put_folder_transfer(
        &self,
        folder: FolderId,
        to: FolderOwner,
        created_by: &str,
    ) -> Result<(), Failure> {
        let (user, project) = columns(to);
        self.connection
            .prepare_cached(
                "insert into folder_transfer (folder, user, project, created_at, created_by)
                 values (?1, ?2, ?3, ?4, ?5)
                 on conflict (folder) do update
                 set user = ?2, project = ?3, created_at = ?4, created_by = ?5",
            )?
            .execute((
                folder.0.as_bytes(),
                user,
                project,
                self.now.as_millis(),
                created_by,
            ))?;
        Ok(())
    }

    pub(crate) fn forget_folder_transfer(&self, folder: FolderId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from folder_transfer where folder = ?1")?
            .execute([folder.0.as_bytes()])?;
        Ok(())
    }
}
