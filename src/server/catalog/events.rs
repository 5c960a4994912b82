//! Event rows: what happened, in order, for ever. Written in the same transaction as the change
//! itself; never changed afterwards. The sequence is the journal that streams resume by.

use rules::names::{SessionId, UserId};
use rules::permissions::Reach;
use rules::tenancy::{Project, Scope};
use rules::units::Timestamp;
use rules::users::User;
use serde::{Deserialize, Serialize};

use super::audit::{ActingUser, NewAct};
use super::reach::{EVENT, condition};
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventRow {
    pub(crate) sequence: u64,
    pub(crate) at: Timestamp,
    /// A user's name, or `scheduler`, `node` and the like.
    pub(crate) actor: String,
    /// `sessions`, `images`, `users`, `nodes`, `operations`, `system`.
    pub(crate) topic: String,
    /// The id of the thing.
    pub(crate) object: String,
    /// Whose the thing is; None for things of the box.
    pub(crate) owner: Option<UserId>,
    /// Stable, dotted, such as `session.running`.
    pub(crate) code: String,
    /// Short words on the state before and after; empty where there was none.
    pub(crate) before: String,
    pub(crate) after: String,
}

/// One thing to be noted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewEvent<'a> {
    pub(crate) actor: &'a str,
    pub(crate) topic: &'a str,
    pub(crate) object: &'a str,
    /// Whose the thing is. Without a domain it is its owner's.
    pub(crate) scope: Scope,
    pub(crate) code: &'a str,
    pub(crate) before: &'a str,
    pub(crate) after: &'a str,
}

impl Rows<'_> {
    /// Appends the event of an act, and its row of the audit log.
    pub(crate) fn note(&self, note: NewEvent<'_>) -> Result<(), Failure> {
        self.record(NewAct {
            actor: ActingUser::Named(note.actor),
            act: note.code,
            topic: note.topic,
            object: note.object,
            scope: note.scope,
            before: note.before,
            after: note.after,
            reason: "",
        })?;
        self.note_alone(note)
    }

    /// The event of an act on a user.
    pub(crate) fn note_user(
        &self,
        actor: &str,
        user: &User,
        code: &str,
        before: &str,
        after: &str,
    ) -> Result<(), Failure> {
        self.note(NewEvent {
            actor,
            topic: "users",
            object: &user.id.to_string(),
            scope: Scope::domain(user.domain),
            code,
            before,
            after,
        })
    }

    /// The event of an act on a project.
    pub(crate) fn note_project(
        &self,
        actor: &str,
        project: &Project,
        code: &str,
        before: &str,
        after: &str,
    ) -> Result<(), Failure> {
        self.note(NewEvent {
            actor,
            topic: "projects",
            object: &project.id.to_string(),
            scope: project.scope(),
            code,
            before,
            after,
        })
    }

    /// Appends one event that is no act: it follows from rows.
    pub(crate) fn note_alone(&self, note: NewEvent<'_>) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into event
                     (at, actor, topic, object, owner, code, before, after, domain, project)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8,
                         coalesce(?9, (select domain from user where id = ?5)), ?10)",
            )?
            .execute((
                self.now.as_millis(),
                note.actor,
                note.topic,
                note.object,
                note.scope.owner.map(|id| *id.0.as_bytes()),
                note.code,
                note.before,
                note.after,
                note.scope.domain.map(|id| *id.0.as_bytes()),
                note.scope.project.map(|id| *id.0.as_bytes()),
            ))?;
        Ok(())
    }
}

const COLUMNS: &str = "sequence, at, actor, topic, object, owner, code, before, after";

pub(super) fn from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<EventRow> {
    Ok(EventRow {
        sequence: value::unsigned(row, "sequence")?,
        at: value::time(row, "at")?,
        actor: row.get("actor")?,
        topic: row.get("topic")?,
        object: row.get("object")?,
        owner: value::id_or_none(row, "owner")?.map(UserId),
        code: row.get("code")?,
        before: row.get("before")?,
        after: row.get("after")?,
    })
}

/// What a reader hears: what happened to things of their reach, and to images and nodes, which all users may
/// see.
pub(super) fn heard(reach: &Reach, place: &str) -> (String, Option<[u8; 16]>) {
    let (reached, value) = condition(reach, EVENT, place);
    let reached = format!("({reached} or (owner is null and topic in ('images', 'nodes')))");
    (reached, value)
}

impl ReadTransaction<'_> {
    /// Events after `sequence` that a reader hears, oldest first, at most `most`; and up to
    /// which sequence was looked, seen or not.
    pub(crate) fn events_after(
        &self,
        reach: &Reach,
        sequence: u64,
        most: u32,
    ) -> Result<(Vec<EventRow>, u64), Failure> {
        let (heard, value) = heard(reach, "?2");
        let mut statement = self.connection.prepare_cached(&format!(
            "select {COLUMNS}
             from event
             where sequence > ?1
             and {heard}
             order by sequence
             limit ?3"
        ))?;
        let rows = statement.query_map((value::signed(sequence), value, most), from_row)?;
        let events: Vec<EventRow> = rows.collect::<Result<_, _>>()?;
        let looked = if events.len() < most as usize {
            self.event_range()?.1.max(sequence)
        } else {
            events.last().map_or(sequence, |event| event.sequence)
        };
        Ok((events, looked))
    }

    /// Sessions that users deleted after `sequence`, at most `most`; and up to which sequence was looked.
    pub(crate) fn sessions_deleted_after(
        &self,
        sequence: u64,
        most: u32,
    ) -> Result<(Vec<SessionId>, u64), Failure> {
        let mut statement = self.connection.prepare_cached(
            "select sequence, object
             from event
             where sequence > ?1
             and topic = 'sessions'
             and code = 'session.deleted'
             order by sequence
             limit ?2",
        )?;
        let rows = statement.query_map((value::signed(sequence), most), |row| {
            Ok((value::unsigned(row, "sequence")?, row.get("object")?))
        })?;
        let found: Vec<(u64, String)> = rows.collect::<Result<_, _>>()?;
        let looked = match found.last() {
            Some((last, _)) if found.len() == most as usize => *last,
            _ => self.event_range()?.1.max(sequence),
        };
        // Nothing else ever stood there; what cannot be read names no session.
        let gone = found.iter().filter_map(|(_, object)| object.parse().ok());
        Ok((gone.collect(), looked))
    }

    /// The newest events that a reader hears, of one topic or of all, newest first, at most `most`.
    pub(crate) fn events_latest(
        &self,
        reach: &Reach,
        topic: Option<&str>,
        most: u32,
    ) -> Result<Vec<EventRow>, Failure> {
        let (heard, value) = heard(reach, "?1");
        let mut statement = self.connection.prepare_cached(&format!(
            "select {COLUMNS}
             from event
             where {heard}
             and (?3 is null or topic = ?3)
             order by sequence desc
             limit ?2"
        ))?;
        let rows = statement.query_map((value, most, topic), from_row)?;
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

    /// The latest time among the last few hundred events; None while nothing happened. Later than now
    /// after the clock was set back.
    pub(crate) fn latest_event_at(&self) -> Result<Option<Timestamp>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select max(at)
                 from (select at from event order by sequence desc limit 500)",
        )?;
        let latest: Option<i64> = statement.query_row([], |row| row.get(0))?;
        Ok(latest.map(Timestamp::from_millis))
    }

    /// From which sequence on the journal is whole, and the newest; (0, 0) while nothing happened.
    /// What happened to users is kept longer than the rest and does not count for the first.
    pub(crate) fn event_range(&self) -> Result<(u64, u64), Failure> {
        let range = self
            .connection
            .prepare_cached(
                "select coalesce((select min(sequence) from event where topic <> 'users'), 0),
                        coalesce((select max(sequence) from event), 0)",
            )?
            .query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        Ok((number(range.0), number(range.1)))
    }
}
