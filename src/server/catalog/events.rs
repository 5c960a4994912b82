//! Event rows: what happened, in order, for ever. Written in the same transaction as the change
//! itself; never changed afterwards. The sequence is the journal that streams resume by.

use rules::units::Timestamp;
use serde::{Deserialize, Serialize};

use super::reader::View;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventRow {
    pub(crate) sequence: u64,
    pub(crate) at: Timestamp,
    /// A person's name, or `scheduler`, `node` and the like.
    pub(crate) actor: String,
    /// `sessions`, `images`, `people`, `nodes`, `operations`.
    pub(crate) topic: String,
    /// The id of the thing.
    pub(crate) object: String,
    /// Stable, dotted, such as `session.running`.
    pub(crate) code: String,
    /// Short words on the state before and after; empty where there was none.
    pub(crate) before: String,
    pub(crate) after: String,
}

/// One thing to be noted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Note<'a> {
    pub(crate) actor: &'a str,
    pub(crate) topic: &'a str,
    pub(crate) object: &'a str,
    pub(crate) code: &'a str,
    pub(crate) before: &'a str,
    pub(crate) after: &'a str,
}

impl Rows<'_> {
    /// Appends one event.
    pub(crate) fn note(&self, note: Note<'_>) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into event (at, actor, topic, object, code, before, after)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute((
                self.now.as_millis(),
                note.actor,
                note.topic,
                note.object,
                note.code,
                note.before,
                note.after,
            ))?;
        Ok(())
    }
}

const COLUMNS: &str = "sequence, at, actor, topic, object, code, before, after";

fn from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<EventRow> {
    Ok(EventRow {
        sequence: value::unsigned(row, "sequence")?,
        at: value::time(row, "at")?,
        actor: row.get("actor")?,
        topic: row.get("topic")?,
        object: row.get("object")?,
        code: row.get("code")?,
        before: row.get("before")?,
        after: row.get("after")?,
    })
}

impl View<'_> {
    /// Events after `sequence`, oldest first, at most `most`.
    pub(crate) fn events_after(&self, sequence: u64, most: u32) -> Result<Vec<EventRow>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {COLUMNS}
             from event
             where sequence > ?1
             order by sequence
             limit ?2"
        ))?;
        let rows = statement.query_map((value::signed(sequence), most), from_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The newest events, newest first, at most `most`.
    pub(crate) fn events_latest(&self, most: u32) -> Result<Vec<EventRow>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {COLUMNS}
             from event
             order by sequence desc
             limit ?1"
        ))?;
        let rows = statement.query_map([most], from_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Everything that happened to one thing, oldest first, at most `most` of the newest.
    pub(crate) fn events_of(&self, object: &str, most: u32) -> Result<Vec<EventRow>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {COLUMNS}
             from event
             where object = ?1
             order by sequence desc
             limit ?2"
        ))?;
        let rows = statement.query_map((object, most), from_row)?;
        let mut events: Vec<EventRow> = rows.collect::<Result<_, _>>()?;
        events.reverse();
        Ok(events)
    }

    /// The oldest and the newest sequence kept; (0, 0) while nothing has happened.
    pub(crate) fn event_range(&self) -> Result<(u64, u64), Failure> {
        let range = self
            .connection
            .prepare_cached(
                "select coalesce(min(sequence), 0), coalesce(max(sequence), 0) from event",
            )?
            .query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        Ok((number(range.0), number(range.1)))
    }
}
