//! Rows of rosters that were taken in: what each changed, so that it can be undone. Decides nothing.

use rules::grants::HeldGrant;
use rules::names::{PolicyId, RosterId, UserId};
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};
use serde::{Deserialize, Serialize};

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// One roster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RosterRecord {
    pub(crate) id: RosterId,
    pub(crate) actor: String,
    pub(crate) owner: UserId,
    pub(crate) applied_at: Timestamp,
    pub(crate) undone_at: Option<Timestamp>,
    pub(crate) changes: Vec<RosterChange>,
}

/// One thing that taking a roster in changed, with what was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "did")]
pub(crate) enum RosterChange {
    Created {
        user: UserId,
    },
    Joined {
        user: UserId,
        member: HeldGrant,
    },
    Changed {
        user: UserId,
        /// Full names before and after.
        full_name: [String; 2],
        email: [Option<String>; 2],
        /// Membership before and after, where it changed.
        member: Option<[HeldGrant; 2]>,
    },
    /// A policy was attached to an account.
    Attached {
        user: UserId,
        /// The one that was there.
        before: Option<PolicyId>,
        after: PolicyId,
        /// The roster made it.
        made: bool,
    },
}

impl RosterChange {
    /// Whose account or membership it is.
    pub(crate) fn user(&self) -> UserId {
        match self {
            Self::Created { user }
            | Self::Joined { user, .. }
            | Self::Changed { user, .. }
            | Self::Attached { user, .. } => *user,
        }
    }
}

/// Rosters that are kept; the oldest goes first. Higher: old ones can be undone, where nobody has begun. Lower: less room.
const MAX_KEPT: u32 = 200;
const ROSTER: &str = "id, actor, owner, applied_at, undone_at, changes";

fn roster_row(row: &Row<'_>) -> rusqlite::Result<RosterRecord> {
    Ok(RosterRecord {
        id: RosterId(value::id(row, "id")?),
        actor: row.get("actor")?,
        owner: UserId(value::id(row, "owner")?),
        applied_at: value::time(row, "applied_at")?,
        undone_at: value::time_or_none(row, "undone_at")?,
        changes: value::json(row, "changes")?,
    })
}

impl ReadTransaction<'_> {
    pub(crate) fn roster(&self, id: RosterId) -> Result<Option<RosterRecord>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!("select {ROSTER} from roster where id = ?1"))?
            .query_row([id.0.as_bytes()], roster_row)
            .optional()?)
    }

    /// The newest `most`, of one user or of everybody.
    pub(crate) fn rosters(
        &self,
        owner: Option<UserId>,
        most: u32,
    ) -> Result<Vec<RosterRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {ROSTER}
             from roster
             where ?1 is null or owner = ?1
             order by applied_at desc, id
             limit ?2"
        ))?;
        let owner = owner.map(|owner| *owner.0.as_bytes());
        let rows = statement.query_map((owner, most), roster_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Whether an account is suspended; None for one that is gone. A look-up by its key.
    pub(crate) fn is_suspended(&self, user: UserId) -> Result<Option<bool>, Failure> {
        Ok(self
            .connection
            .prepare_cached("select suspended from user where id = ?1 and removed_at is null")?
            .query_row([user.0.as_bytes()], |row| row.get(0))
            .optional()?)
    }

    /// True once a user has a sign-in, a token or a session.
    pub(crate) fn has_begun(&self, user: UserId) -> Result<bool, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select exists (select 1 from browser_session where user = ?1)
                 or exists (select 1 from token where user = ?1)
                 or exists (select 1 from session where owner = ?1)",
            )?
            .query_row([user.0.as_bytes()], |row| row.get(0))?)
    }
}

impl Rows<'_> {
    pub(crate) fn insert_roster(&self, roster: &RosterRecord) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into roster (id, actor, owner, applied_at, undone_at, changes)
                 values (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute((
                roster.id.0.as_bytes(),
                &roster.actor,
                roster.owner.0.as_bytes(),
                roster.applied_at.as_millis(),
                roster.undone_at.map(Timestamp::as_millis),
                value::text(&roster.changes),
            ))?;
        self.connection
            .prepare_cached(
                "delete from roster
                 where id in (
                     select id
                     from roster
                     order by applied_at desc, id
                     limit -1 offset ?1
                 )",
            )?
            .execute([MAX_KEPT])?;
        Ok(())
    }

    pub(crate) fn mark_roster_undone(&self, id: RosterId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update roster set undone_at = ?2 where id = ?1")?
            .execute((id.0.as_bytes(), self.now.as_millis()))?;
        Ok(())
    }

    /// Takes out an account that never began, as if it had never been.
    pub(crate) fn erase_user(&self, id: UserId) -> Result<(), Failure> {
        self.forget_grants(id)?;
        self.forget_invitations_of(id)?;
        self.forget_policy_use(rules::quota::PolicyLevel::User, Some(id.0))?;
        self.forget_allowances_of(id.0)?;
        self.connection
            .prepare_cached("delete from user where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }
}
