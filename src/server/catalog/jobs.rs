//! Rows of long work: forward only, each step safe to run twice, so that a server that starts again
//! simply goes on with what is open. How far one is lives in memory; how it ended lives here.

use api::operations::OperationState;
use rules::names::{OperationId, UserId};
use rules::permissions::Reach;
use rules::refusal::Refusal;
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};
use serde_json::Value;

use super::events::NewEvent;
use super::reach::{OPERATION, condition};
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// One piece of long work.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OperationRow {
    pub(crate) id: OperationId,
    /// `image.import`.
    pub(crate) kind: String,
    pub(crate) user: UserId,
    pub(crate) state: OperationState,
    /// What it works on, as its kind reads it.
    pub(crate) input: Value,
    /// The owner wants it to end.
    pub(crate) cancel: bool,
    pub(crate) result: Option<Value>,
    pub(crate) refusal: Option<Refusal>,
    pub(crate) created_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) generation: u64,
}

impl OperationRow {
    /// One that was asked for now; nothing of it is done yet.
    pub(crate) fn asked(now: Timestamp, kind: &str, user: UserId, input: Value) -> Self {
        Self {
            id: OperationId::make(now, base::observe::random()),
            kind: kind.to_owned(),
            user,
            state: OperationState::Pending,
            input,
            cancel: false,
            result: None,
            refusal: None,
            created_at: now,
            ended_at: None,
            generation: 1,
        }
    }
}

const COLUMNS: &str =
    "id, kind, user, state, input, cancel, result, refusal, created_at, ended_at, generation";

fn from_row(row: &Row<'_>) -> rusqlite::Result<OperationRow> {
    Ok(OperationRow {
        id: OperationId(value::id(row, "id")?),
        kind: row.get("kind")?,
        user: UserId(value::id(row, "user")?),
        state: value::word(row, "state", OperationState::parse)?,
        input: value::json(row, "input")?,
        cancel: row.get("cancel")?,
        result: value::json_or_none(row, "result")?,
        refusal: value::json_or_none(row, "refusal")?,
        created_at: value::time(row, "created_at")?,
        ended_at: value::time_or_none(row, "ended_at")?,
        generation: value::unsigned(row, "generation")?,
    })
}

impl ReadTransaction<'_> {
    /// One operation that a caller may see.
    pub(crate) fn operation_within(
        &self,
        reach: &Reach,
        id: OperationId,
    ) -> Result<Option<OperationRow>, Failure> {
        let (reached, value) = condition(reach, OPERATION, "?2");
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {COLUMNS} from operation where id = ?1 and {reached}"
            ))?
            .query_row((id.0.as_bytes(), value), from_row)
            .optional()?)
    }

    pub(crate) fn operation(&self, id: OperationId) -> Result<Option<OperationRow>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!("select {COLUMNS} from operation where id = ?1"))?
            .query_row([id.0.as_bytes()], from_row)
            .optional()?)
    }

    /// The newest operations, newest first.
    pub(crate) fn operations(
        &self,
        reach: &Reach,
        most: u32,
    ) -> Result<Vec<OperationRow>, Failure> {
        let (reached, value) = condition(reach, OPERATION, "?1");
        let mut statement = self.connection.prepare_cached(&format!(
            "select {COLUMNS}
             from operation
             where {reached}
             order by created_at desc, id desc
             limit ?2"
        ))?;
        let rows = statement.query_map((value, most), from_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Operations that are not over, oldest first.
    pub(crate) fn open_operations(&self) -> Result<Vec<OperationRow>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {COLUMNS}
             from operation
             where state in ('pending', 'running')
             order by created_at, id"
        ))?;
        let rows = statement.query_map([], from_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl Rows<'_> {
    pub(crate) fn insert_operation(&self, row: &OperationRow, actor: &str) -> Result<(), Failure> {
        self.connection
            .prepare_cached(&format!(
                "insert into operation ({COLUMNS})
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)"
            ))?
            .execute((
                row.id.0.as_bytes(),
                &row.kind,
                row.user.0.as_bytes(),
                row.state.word(),
                value::text(&row.input),
                row.cancel,
                row.result.as_ref().map(value::text),
                row.refusal.as_ref().map(value::text),
                row.created_at.as_millis(),
                row.ended_at.map(Timestamp::as_millis),
                value::signed(row.generation),
            ))?;
        self.note_operation(row, actor, "operation.accepted")
    }

    /// Marks a pending operation as under way; one that is already is left as it is.
    pub(crate) fn begin_operation(&self, id: OperationId) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update operation
                 set state = 'running', generation = generation + 1
                 where id = ?1 and state = 'pending'",
            )?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }

    /// Notes that its owner wants it to end. False where it is over.
    pub(crate) fn cancel_operation(&self, id: OperationId) -> Result<bool, Failure> {
        let asked = self
            .connection
            .prepare_cached(
                "update operation
                 set cancel = 1, generation = generation + 1
                 where id = ?1 and state in ('pending', 'running')",
            )?
            .execute([id.0.as_bytes()])?;
        Ok(asked == 1)
    }

    /// Writes how an operation ended. False where it had ended before: nothing was written.
    pub(crate) fn end_operation(
        &self,
        id: OperationId,
        state: OperationState,
        result: Option<&Value>,
        refusal: Option<&Refusal>,
    ) -> Result<bool, Failure> {
        let ended = self
            .connection
            .prepare_cached(
                "update operation
                 set state = ?2, result = ?3, refusal = ?4, ended_at = ?5,
                     generation = generation + 1
                 where id = ?1 and state in ('pending', 'running')",
            )?
            .execute((
                id.0.as_bytes(),
                state.word(),
                result.map(value::text),
                refusal.map(value::text),
                self.now.as_millis(),
            ))?;
        if ended == 0 {
            return Ok(false);
        }
        if let Some(row) = self.operation(id)? {
            let code = format!("operation.{}", state.word());
            self.note_operation(&row, "server", &code)?;
        }
        Ok(true)
    }

    fn note_operation(&self, row: &OperationRow, actor: &str, code: &str) -> Result<(), Failure> {
        self.note(NewEvent {
            actor,
            topic: "operations",
            object: &row.id.to_string(),
            scope: rules::tenancy::Scope::user(row.user),
            code,
            before: "",
            after: row
                .refusal
                .as_ref()
                .map_or(row.kind.as_str(), |refusal| refusal.text.as_str()),
        })
    }
}
