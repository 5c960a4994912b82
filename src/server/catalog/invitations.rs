//! Rows of invitations: links by which accounts join a project. Decides nothing.

use rules::grants::GrantRole;
use rules::names::{EmailAddress, InvitationId, UserId};
use rules::tenancy::ProjectId;
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// One invitation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InvitationRecord {
    pub(crate) id: InvitationId,
    pub(crate) project: ProjectId,
    pub(crate) role: GrantRole,
    /// None: for any holder of the link.
    pub(crate) email: Option<EmailAddress>,
    pub(crate) max_uses: u32,
    pub(crate) used: u32,
    /// When a membership that comes of it ends.
    pub(crate) member_until: Option<Timestamp>,
    pub(crate) owner: UserId,
    pub(crate) actor: String,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Timestamp,
}

const INVITATION: &str =
    "id, project, role, email, max_uses, used, member_until, owner, actor, created_at, expires_at";

fn invitation_row(row: &Row<'_>) -> rusqlite::Result<InvitationRecord> {
    let email: Option<String> = row.get("email")?;
    let email = match email {
        Some(_) => Some(value::word(row, "email", |text| {
            EmailAddress::parse(text).ok()
        })?),
        None => None,
    };
    Ok(InvitationRecord {
        id: InvitationId(value::id(row, "id")?),
        project: ProjectId(value::id(row, "project")?),
        role: value::word(row, "role", GrantRole::parse)?,
        email,
        max_uses: row.get("max_uses")?,
        used: row.get("used")?,
        member_until: value::time_or_none(row, "member_until")?,
        owner: UserId(value::id(row, "owner")?),
        actor: row.get("actor")?,
        created_at: value::time(row, "created_at")?,
        expires_at: value::time(row, "expires_at")?,
    })
}

impl ReadTransaction<'_> {
    /// The invitation whose code has this hash, while it can be used at `now`.
    pub(crate) fn invitation_by_hash(
        &self,
        hash: &[u8; 32],
        now: Timestamp,
    ) -> Result<Option<InvitationRecord>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {INVITATION}
                 from invitation
                 where hash = ?1 and expires_at > ?2 and used < max_uses"
            ))?
            .query_row((hash, now.as_millis()), invitation_row)
            .optional()?)
    }

    /// The invitations of a project that can be used at `now`, newest first.
    pub(crate) fn invitations(
        &self,
        project: ProjectId,
        now: Timestamp,
    ) -> Result<Vec<InvitationRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {INVITATION}
             from invitation
             where project = ?1 and expires_at > ?2 and used < max_uses
             order by created_at desc, id desc"
        ))?;
        let rows = statement.query_map((project.0.as_bytes(), now.as_millis()), invitation_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// How many invitations of a user can be used, or could until they end.
    pub(crate) fn invitations_of(&self, owner: UserId) -> Result<u64, Failure> {
        Ok(self
            .connection
            .prepare_cached("select count(*) as n from invitation where owner = ?1")?
            .query_row([owner.0.as_bytes()], |row| value::unsigned(row, "n"))?)
    }
}

impl Rows<'_> {
    pub(crate) fn insert_invitation(
        &self,
        invitation: &InvitationRecord,
        hash: &[u8; 32],
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into invitation
                     (id, hash, project, role, email, max_uses, used, member_until, owner, actor,
                      created_at, expires_at)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?
            .execute((
                invitation.id.0.as_bytes(),
                hash,
                invitation.project.0.as_bytes(),
                invitation.role.word(),
                invitation.email.as_ref().map(EmailAddress::as_str),
                invitation.max_uses,
                invitation.used,
                invitation.member_until.map(Timestamp::as_millis),
                invitation.owner.0.as_bytes(),
                &invitation.actor,
                invitation.created_at.as_millis(),
                invitation.expires_at.as_millis(),
            ))?;
        Ok(())
    }

    /// Counts one use; the row bounds how many there are.
    pub(crate) fn use_invitation(&self, id: InvitationId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update invitation set used = used + 1 where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }

    pub(crate) fn forget_invitation(&self, id: InvitationId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from invitation where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }

    /// Drops the invitations that a user made.
    pub(crate) fn forget_invitations_of(&self, owner: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from invitation where owner = ?1")?
            .execute([owner.0.as_bytes()])?;
        Ok(())
    }

    /// Drops invitations that ended or were used up; gives how many.
    pub(super) fn forget_ended_invitations(&self) -> Result<usize, Failure> {
        Ok(self
            .connection
            .prepare_cached("delete from invitation where expires_at <= ?1 or used >= max_uses")?
            .execute([self.now.as_millis()])?)
    }
}
