//! The journal as people search it: events by what they are of, by whom, and when; and what a user was told of their
//! own sessions. Each read visits a bounded part of the journal.

use rules::names::{SessionId, UserId};
use rules::permissions::Reach;
use rules::reason::Reason;
use rules::session::Outcome;
use rules::units::Timestamp;
use rusqlite::OptionalExtension as _;

use super::events::{EventRow, from_row, heard};
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// Events of which a user is told, newest first; the words of the code are those of the index `event_told`.
const NOTICES: &str = "select sequence, at, actor, topic, object, owner, code, before, after
     from event
     where owner = ?1
     and code in ('session.running', 'session.ended', 'session.gpu-warned')
     order by sequence desc
     limit ?2";
const UNREAD: &str = "select count(*)
     from (select 1
           from event
           where owner = ?1
           and sequence > ?2
           and code in ('session.running', 'session.ended', 'session.gpu-warned')
           limit ?3)";
/// Running sessions with a time limit, which the index `session_limited` holds.
const ENDING: &str = "select id, name, started_at + max_runtime_seconds * 1000 as ends_at
     from session
     where owner = ?1
     and state = 'running'
     and max_runtime_seconds is not null
     and started_at is not null
     and started_at + max_runtime_seconds * 1000 <= ?2
     order by ends_at
     limit ?3";

/// Which events are wanted; empty text asks for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EventFilter {
    /// A topic, or the beginning of a code.
    pub(crate) kind: String,
    /// Ids of things; None: of everything.
    pub(crate) objects: Option<Vec<String>>,
    pub(crate) actor: String,
    pub(crate) since: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
}

/// Some of the journal, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FoundEvents {
    pub(crate) events: Vec<EventRow>,
    /// Down to which sequence was looked; None once the beginning was reached.
    pub(crate) before: Option<u64>,
}

/// One notice: the event, and what became of its session by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToldEventRow {
    pub(crate) event: EventRow,
    /// None once the session was deleted.
    pub(crate) session: Option<(String, Option<Outcome>, Option<Reason>)>,
}

/// A session of a user's that its time limit ends soon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitedSessionRow {
    pub(crate) id: SessionId,
    pub(crate) name: String,
    pub(crate) ends_at: Timestamp,
}

impl ReadTransaction<'_> {
    /// Events in reach that a filter finds, newest first, at most `most`, of the `span` events before `before`.
    pub(crate) fn search_events(
        &self,
        reach: &Reach,
        filter: &EventFilter,
        before: Option<u64>,
        most: u32,
        span: u64,
    ) -> Result<FoundEvents, Failure> {
        let newest = self.event_range()?.1;
        let top = before.unwrap_or(newest + 1).min(newest + 1);
        let bottom = top.saturating_sub(span);
        let (heard, reached) = heard(reach, "?8");
        let mut statement = self.connection.prepare_cached(&format!(
            "select sequence, at, actor, topic, object, owner, code, before, after
             from event
             where sequence < ?1
             and sequence >= ?2
             and (?3 = '' or topic = ?3 or code = ?3 or code like ?3 || '.%' escape '\\')
             and (?4 = '' or actor = ?4)
             and at >= ?5
             and at <= ?6
             and (?7 is null or object in (select value from json_each(?7)))
             and {heard}
             order by sequence desc
             limit ?9"
        ))?;
        let rows = statement.query_map(
            (
                value::signed(top),
                value::signed(bottom),
                filter.kind.replace(['%', '_', '\\'], ""),
                &filter.actor,
                filter.since.map_or(i64::MIN, |at| at.as_millis()),
                filter.until.map_or(i64::MAX, |at| at.as_millis()),
                filter.objects.as_ref().map(value::text),
                reached,
                most,
            ),
            from_row,
        )?;
        let events: Vec<EventRow> = rows.collect::<Result<_, _>>()?;
        let before = match events.last() {
            Some(last) if events.len() == most as usize => Some(last.sequence),
            _ => (bottom > 1).then_some(bottom),
        };
        Ok(FoundEvents { events, before })
    }

    /// Names of sessions by their ids; those that were deleted are left out. Costs a look-up for each.
    pub(crate) fn session_name(&self, id: SessionId) -> Result<Option<String>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached("select name from session where id = ?1")?;
        Ok(statement
            .query_row([id.0.as_bytes()], |row| row.get(0))
            .optional()?)
    }

    /// What a user was told of their own sessions, newest first, at most `most`.
    pub(crate) fn notices_of(&self, user: UserId, most: u32) -> Result<Vec<ToldEventRow>, Failure> {
        let mut statement = self.connection.prepare_cached(NOTICES)?;
        let rows = statement.query_map((user.0.as_bytes(), most), from_row)?;
        let mut session = self
            .connection
            .prepare_cached("select name, outcome, reason from session where id = ?1")?;
        rows.map(|event| {
            let event = event?;
            let id: Option<SessionId> = event.object.parse().ok();
            let found = match id {
                Some(id) => session
                    .query_row([id.0.as_bytes()], |row| {
                        let outcome: Option<String> = row.get("outcome")?;
                        let outcome = outcome.as_deref().and_then(Outcome::parse);
                        Ok((
                            row.get("name")?,
                            outcome,
                            value::json_or_none(row, "reason")?,
                        ))
                    })
                    .optional()?,
                None => None,
            };
            Ok(ToldEventRow {
                event,
                session: found,
            })
        })
        .collect()
    }

    /// How many notices of a user are newer than what they read, counted up to `most`; with the sequence and the time
    /// up to which they read.
    pub(crate) fn unread_notices(
        &self,
        user: UserId,
        most: u32,
    ) -> Result<(u64, u64, Timestamp), Failure> {
        let mut statement = self
            .connection
            .prepare_cached("select notices_read, notices_read_at from user where id = ?1")?;
        let read = statement
            .query_row([user.0.as_bytes()], |row| {
                Ok((
                    value::unsigned(row, "notices_read")?,
                    value::time(row, "notices_read_at")?,
                ))
            })
            .optional()?;
        let Some((read, at)) = read else {
            // Root on the machine has no account.
            return Ok((0, 0, Timestamp::from_millis(i64::MAX)));
        };
        let count: i64 = self
            .connection
            .prepare_cached(UNREAD)?
            .query_row((user.0.as_bytes(), value::signed(read), most), |row| {
                row.get(0)
            })?;
        Ok((u64::try_from(count).unwrap_or(0), read, at))
    }

    /// A user's running sessions that reach their time limit before `until`, the first to end first, at most `most`.
    pub(crate) fn ending_before(
        &self,
        user: UserId,
        until: Timestamp,
        most: u32,
    ) -> Result<Vec<LimitedSessionRow>, Failure> {
        let mut statement = self.connection.prepare_cached(ENDING)?;
        let owner = user.0.as_bytes();
        let rows = statement.query_map((owner, until.as_millis(), most), |row| {
            Ok(LimitedSessionRow {
                id: SessionId(value::id(row, "id")?),
                name: row.get("name")?,
                ends_at: value::time(row, "ends_at")?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl Rows<'_> {
    /// Notes that a user has read their notices up to now.
    pub(crate) fn read_notices(&self, user: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update user
                 set notices_read = coalesce((select max(sequence) from event), 0),
                     notices_read_at = ?2
                 where id = ?1",
            )?
            .execute((user.0.as_bytes(), self.now.as_millis()))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Server;

    /// Every page counts notices, so what they cost must not grow with the sessions that wait.
    #[test]
    fn notices_are_read_through_indexes_that_hold_nothing_else() {
        let server = Server::for_tests();
        server
            .catalog()
            .read_now("explain", |view| {
                for (query, index) in [
                    (NOTICES, "event_told"),
                    (UNREAD, "event_told"),
                    (ENDING, "session_limited"),
                ] {
                    let mut plan = view
                        .connection
                        .prepare(&format!("explain query plan {query}"))?;
                    let mut rows = plan.raw_query();
                    let mut said: Vec<String> = Vec::new();
                    while let Some(row) = rows.next()? {
                        said.push(row.get("detail")?);
                    }
                    let uses = said.iter().any(|line| line.contains(index));
                    assert!(uses, "{query}\n{said:?}");
                }
                Ok(())
            })
            .unwrap();
    }
}
