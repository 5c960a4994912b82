//! Rows of acts that wait for a second administrator. Decides nothing; `actions::four_eyes` and `actions::approvals` do.

use rules::names::{ApprovalId, UserId};
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// Rows that are kept; of more the oldest go that wait no more. Higher: the list is long. Lower: what was decided is forgotten sooner.
const MAX_KEPT: u32 = 1_000;

/// How a row stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApprovalStep {
    Waiting,
    /// Approved, and being done now.
    Running,
    Done,
    Declined,
}

impl ApprovalStep {
    const ALL: [Self; 4] = [Self::Waiting, Self::Running, Self::Done, Self::Declined];

    fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
            Self::Declined => "declined",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.word() == word)
    }
}

/// One act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApprovalRecord {
    pub(crate) id: ApprovalId,
    pub(crate) asker: UserId,
    pub(crate) asker_name: String,
    /// As JSON.
    pub(crate) act: String,
    pub(crate) word: String,
    pub(crate) object: String,
    pub(crate) asked_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    pub(crate) step: ApprovalStep,
    pub(crate) decided_by: Option<String>,
    pub(crate) decided_at: Option<Timestamp>,
}

const WHOLE: &str = "id, asker, asker_name, act, word, object, asked_at, expires_at, state,
                     decided_by, decided_at";

fn record(row: &Row<'_>) -> rusqlite::Result<ApprovalRecord> {
    Ok(ApprovalRecord {
        id: ApprovalId(value::id(row, "id")?),
        asker: UserId(value::id(row, "asker")?),
        asker_name: row.get("asker_name")?,
        act: row.get("act")?,
        word: row.get("word")?,
        object: row.get("object")?,
        asked_at: value::time(row, "asked_at")?,
        expires_at: value::time(row, "expires_at")?,
        step: value::word(row, "state", ApprovalStep::parse)?,
        decided_by: row.get("decided_by")?,
        decided_at: value::time_or_none(row, "decided_at")?,
    })
}

impl ReadTransaction<'_> {
    /// Whether acts of administrators wait for a second one.
    pub(crate) fn four_eyes(&self) -> Result<bool, Failure> {
        Ok(self
            .connection
            .prepare_cached("select four_eyes from installation where id = 1")?
            .query_row([], |row| row.get(0))?)
    }

    pub(crate) fn approval(&self, id: ApprovalId) -> Result<Option<ApprovalRecord>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!("select {WHOLE} from approval where id = ?1"))?
            .query_row([id.0.as_bytes()], record)
            .optional()?)
    }

    /// The newest `most`, those that wait first.
    pub(crate) fn approvals(&self, most: u32) -> Result<Vec<ApprovalRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {WHOLE}
             from approval
             order by state <> 'waiting', asked_at desc, id desc
             limit ?1"
        ))?;
        let rows = statement.query_map([most], record)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Acts of a user that wait and are not over at `now`. Costs a range of an index.
    pub(crate) fn waiting_approvals(&self, asker: UserId, now: Timestamp) -> Result<u64, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select count(*) as n
                 from approval
                 where state = 'waiting' and asker = ?1 and expires_at > ?2",
            )?
            .query_row((asker.0.as_bytes(), now.as_millis()), |row| {
                value::unsigned(row, "n")
            })?)
    }

    /// How many acts of others wait for a user and are not over at `now`, and when the newest was asked for. Costs a range of
    /// an index.
    pub(crate) fn approvals_waiting_for(
        &self,
        user: UserId,
        now: Timestamp,
    ) -> Result<(u64, Option<Timestamp>), Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select count(*) as n, max(asked_at) as newest
                 from approval
                 where state = 'waiting' and expires_at > ?2 and asker <> ?1",
            )?
            .query_row((user.0.as_bytes(), now.as_millis()), |row| {
                Ok((
                    value::unsigned(row, "n")?,
                    value::time_or_none(row, "newest")?,
                ))
            })?)
    }

    /// The act of a user that stands so and is not over at `now`. Costs a range of an index.
    pub(crate) fn approval_of(
        &self,
        asker: UserId,
        act: &str,
        step: ApprovalStep,
        now: Timestamp,
    ) -> Result<Option<ApprovalRecord>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {WHOLE}
                 from approval
                 where state = ?1 and asker = ?2 and act = ?3 and expires_at > ?4
                 order by asked_at
                 limit 1"
            ))?
            .query_row(
                (step.word(), asker.0.as_bytes(), act, now.as_millis()),
                record,
            )
            .optional()?)
    }
}

impl Rows<'_> {
    pub(crate) fn put_four_eyes(&self, on: bool) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update installation set four_eyes = ?1 where id = 1")?
            .execute([on])?;
        Ok(())
    }

    /// Writes an act that waits; forgets the oldest where too many are kept.
    pub(crate) fn insert_approval(&self, row: &ApprovalRecord) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into approval
                     (id, asker, asker_name, act, word, object, asked_at, expires_at, state)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute((
                row.id.0.as_bytes(),
                row.asker.0.as_bytes(),
                &row.asker_name,
                &row.act,
                &row.word,
                &row.object,
                row.asked_at.as_millis(),
                row.expires_at.as_millis(),
                row.step.word(),
            ))?;
        self.connection
            .prepare_cached(
                "delete from approval
                 where (state in ('done', 'declined') or expires_at <= ?2)
                 and id in (
                     select id
                     from approval
                     order by asked_at desc, id desc
                     limit -1 offset ?1
                 )",
            )?
            .execute((MAX_KEPT, self.now.as_millis()))?;
        Ok(())
    }

    /// Writes how an act stands now, and who decided; None takes a decision back.
    pub(crate) fn move_approval(
        &self,
        id: ApprovalId,
        step: ApprovalStep,
        by: Option<&str>,
    ) -> Result<(), Failure> {
        let at = by.map(|_| self.now.as_millis());
        self.connection
            .prepare_cached(
                "update approval set state = ?2, decided_by = ?3, decided_at = ?4 where id = ?1",
            )?
            .execute((id.0.as_bytes(), step.word(), by, at))?;
        Ok(())
    }
}
