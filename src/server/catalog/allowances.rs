//! Rows of allowances: limits of a domain, a project or a user that are raised for a while. Decides nothing;
//! `rules::quota` does.

use rules::names::{AllowanceId, UserId};
use rules::quota::{Allowance, PolicyLimits, TenantLevel};
use rules::tenancy::Scope;
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Catalog;
use super::events::NewEvent;
use super::policies::PolicySubjects;
use super::reader::ReadTransaction;
use super::value;
use super::writer::{Lane, Rows};
use crate::Failure;

/// One allowance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AllowanceRecord {
    pub(crate) id: AllowanceId,
    pub(crate) allowance: Allowance,
    /// Name of the domain or the user, `DOMAIN/PROJECT` for a project.
    pub(crate) whose: String,
    pub(crate) reason: String,
    /// Name of the user who made it.
    pub(crate) actor: String,
    pub(crate) created_at: Timestamp,
}

/// What a user asks for: that limits of theirs are raised for so many days.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitRequestRecord {
    pub(crate) limits: PolicyLimits,
    pub(crate) days: u32,
    pub(crate) reason: String,
    pub(crate) asked_at: Timestamp,
}

/// A user who asks for higher limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitAsker {
    pub(crate) name: String,
    /// They cannot sign in: nobody waits for the answer.
    pub(crate) suspended: bool,
    pub(crate) request: LimitRequestRecord,
}

/// The code of the event that it was declined; the word of the index `event_told`.
pub(crate) const LIMIT_DECLINED: &str = "user.limit-declined";

/// Columns and joins of a whole row.
const WHOLE: &str = "allowance.id, subject_kind, subject, allowance.limits, ends_at, reason, actor,
                     allowance.created_at,
                     coalesce(
                         domain.name,
                         home.name || '/' || project.name,
                         \"user\".name,
                         ''
                     ) as whose
             from allowance
             left join domain on subject_kind = 'domain' and domain.id = subject
             left join project on subject_kind = 'project' and project.id = subject
             left join domain as home on home.id = project.domain
             left join \"user\" on subject_kind = 'user' and \"user\".id = subject";

fn allowance_row(row: &Row<'_>) -> rusqlite::Result<Allowance> {
    Ok(Allowance {
        level: value::word(row, "subject_kind", TenantLevel::parse)?,
        subject: value::id(row, "subject")?,
        limits: value::json(row, "limits")?,
        until: value::time(row, "ends_at")?,
    })
}

fn whole_row(row: &Row<'_>) -> rusqlite::Result<AllowanceRecord> {
    Ok(AllowanceRecord {
        id: AllowanceId(value::id(row, "id")?),
        allowance: allowance_row(row)?,
        whose: row.get("whose")?,
        reason: row.get("reason")?,
        actor: row.get("actor")?,
        created_at: value::time(row, "created_at")?,
    })
}

impl ReadTransaction<'_> {
    /// All allowances, the one that ends first first.
    pub(crate) fn allowances(&self) -> Result<Vec<AllowanceRecord>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached(&format!("select {WHOLE} order by ends_at, allowance.id"))?;
        let rows = statement.query_map([], whole_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The allowance with this id.
    pub(crate) fn allowance(&self, id: AllowanceId) -> Result<Option<AllowanceRecord>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!("select {WHOLE} where allowance.id = ?1"))?
            .query_row([id.0.as_bytes()], whole_row)
            .optional()?)
    }

    /// Those of one user themselves, the newest first, at most `most`. Costs a step of an index where there is none.
    pub(crate) fn allowances_to(
        &self,
        user: UserId,
        most: u32,
    ) -> Result<Vec<AllowanceRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {WHOLE}
             where subject_kind = 'user'
             and subject = ?1
             order by allowance.created_at desc
             limit ?2"
        ))?;
        let rows = statement.query_map((user.0.as_bytes(), most), whole_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The users who ask for higher limits, and what for; who asked first stands first. Costs a step of an index where there is
    /// none.
    pub(crate) fn limit_requests(&self) -> Result<Vec<LimitAsker>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select name, suspended, limit_request from user where limit_request is not null",
        )?;
        let rows = statement.query_map([], |row| {
            Ok(LimitAsker {
                name: row.get("name")?,
                suspended: row.get("suspended")?,
                request: value::json(row, "limit_request")?,
            })
        })?;
        let mut all: Vec<LimitAsker> = rows.collect::<Result<_, _>>()?;
        all.sort_by_key(|asker| asker.request.asked_at);
        Ok(all)
    }

    /// What one user asks for.
    pub(crate) fn limit_request(
        &self,
        user: UserId,
    ) -> Result<Option<LimitRequestRecord>, Failure> {
        let found: Option<Option<LimitRequestRecord>> = self
            .connection
            .prepare_cached("select limit_request from user where id = ?1")?
            .query_row([user.0.as_bytes()], |row| {
                value::json_or_none(row, "limit_request")
            })
            .optional()?;
        Ok(found.flatten())
    }

    /// All of them, for the scheduler.
    pub(super) fn allowances_now(&self) -> Result<Vec<Allowance>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached("select subject_kind, subject, limits, ends_at from allowance")?;
        let rows = statement.query_map([], allowance_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Those of these subjects. Costs three steps of an index.
    pub(crate) fn allowances_of(
        &self,
        subjects: &PolicySubjects,
    ) -> Result<Vec<Allowance>, Failure> {
        let any: bool = self
            .connection
            .prepare_cached("select exists (select 1 from allowance)")?
            .query_row([], |row| row.get(0))?;
        if !any {
            return Ok(Vec::new());
        }
        let mut statement = self.connection.prepare_cached(
            "select subject_kind, subject, limits, ends_at
             from allowance
             where (subject_kind, subject)
                 in (values ('domain', ?1), ('project', ?2), ('user', ?3))",
        )?;
        let rows = statement.query_map(
            [
                subjects.domain.0.as_bytes(),
                subjects.project.0.as_bytes(),
                subjects.user.0.as_bytes(),
            ],
            allowance_row,
        )?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl Rows<'_> {
    /// Keeps what a user asks for; None: nothing any more. It makes no version of the account.
    pub(crate) fn put_limit_request(
        &self,
        user: UserId,
        request: Option<&LimitRequestRecord>,
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update user set limit_request = ?2 where id = ?1")?
            .execute((user.0.as_bytes(), request.map(value::text)))?;
        Ok(())
    }

    pub(crate) fn insert_allowance(&self, row: &AllowanceRecord) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into allowance
                     (id, subject_kind, subject, limits, ends_at, reason, actor, created_at)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute((
                row.id.0.as_bytes(),
                row.allowance.level.word(),
                row.allowance.subject.as_bytes(),
                value::text(&row.allowance.limits),
                row.allowance.until.as_millis(),
                &row.reason,
                &row.actor,
                row.created_at.as_millis(),
            ))?;
        Ok(())
    }

    pub(crate) fn forget_allowance(&self, id: AllowanceId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from allowance where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }

    /// Drops those of a user, a project or a domain.
    pub(crate) fn forget_allowances_of(&self, subject: Uuid) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from allowance where subject = ?1")?
            .execute([subject.as_bytes()])?;
        Ok(())
    }

    /// Writes down that an allowance began or ended.
    pub(crate) fn note_allowance(
        &self,
        actor: &str,
        of: &AllowanceRecord,
        code: &str,
        before: &str,
        after: &str,
    ) -> Result<(), Failure> {
        self.note(NewEvent {
            actor,
            topic: "system",
            object: &of.whose,
            scope: Scope::SITE,
            code,
            before,
            after,
        })
    }
}

impl Catalog {
    /// Ends the allowances whose time is over: the limits of before hold again. Costs one read where none is.
    pub(crate) async fn end_allowances(&self, now: Timestamp) -> Result<(), Failure> {
        let due = self.read_now("look for allowances", |view| {
            Ok(view
                .connection
                .prepare_cached("select 1 from allowance where ends_at <= ?1")?
                .exists([now.as_millis()])?)
        })?;
        if !due {
            return Ok(());
        }
        self.write(Lane::Loops, "end allowances", move |rows| {
            for row in rows.allowances()? {
                if row.allowance.until > now {
                    break;
                }
                rows.forget_allowance(row.id)?;
                let told = row.allowance.limits.told();
                rows.note_allowance("system", &row, "allowance.ended", &told, "")?;
            }
            Ok(())
        })
        .await
    }
}
