//! The journal as people search it: events by what they are of, by whom, and when; and what a user was told of their
//! own sessions. Each read visits a bounded part of the journal.

use rules::names::{ResourceGroupId, SessionId, UserId};
use rules::permissions::Reach;
use rules::reason::Reason;
use rules::session::Outcome;
use rules::tenancy::ProjectId;
use rules::units::Timestamp;
use rusqlite::OptionalExtension as _;
use rusqlite::types::Value;

use super::events::{EventRow, from_row, heard};
use super::reach::{SESSION, condition};
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// Whether a user did themselves, within a minute before, what an event tells: they launched what started, or stopped
/// what ended. A start out of the queue, later, and a failure are news.
macro_rules! own_act {
    () => {
        "(event.code = 'session.ended' and event.actor = (select name from user where id = ?1)
          or exists (select 1
                     from event act
                     where act.object = event.object
                     and act.sequence < event.sequence
                     and act.at >= event.at - 60000
                     and act.actor = (select name from user where id = ?1)
                     and (event.code = 'session.running'
                          and act.code in ('session.accepted', 'session.restarted', 'session.restarting',
                                           'session.released')
                          or event.code = 'session.ended' and act.code = 'session.stopping')))"
    };
}

/// Whether an event is one of which its owner is told: the words of the index `event_told`.
macro_rules! told_event {
    () => {
        "code in ('session.running', 'session.ended', 'session.gpu-warned', 'session.idle-warned',
                  'session.idle', 'session.reservation-warned', 'reservation.approved',
                  'reservation.refused', 'reservation.expired', 'session.course-warned',
                  'course.message', 'session.preempted', 'session.break-glass',
                  'folder.break-glass', 'user.signed-in-elsewhere',
                  'user.limit-declined')"
    };
}

/// Events of which a user is told, newest first.
const NOTICES: &str = concat!(
    "select sequence, at, actor, topic, object, owner, code, before, after, ",
    own_act!(),
    " as own
     from event
     where owner = ?1
     and ",
    told_event!(),
    "
     order by sequence desc
     limit ?2"
);
const UNREAD: &str = concat!(
    "select count(*)
     from (select 1
           from event
           where owner = ?1
           and sequence > ?2
           and ",
    told_event!(),
    "
           and not ",
    own_act!(),
    "
           limit ?3)"
);
/// Messages of teachers of one project among the newest notices of a user.
const MESSAGES: &str = concat!(
    "select count(*) as n
     from (select code, object, at
           from event
           where owner = ?1
           and ",
    told_event!(),
    "
           order by sequence desc
           limit ?4)
     where code = 'course.message'
     and object in (select name from course where project = ?2)
     and at > ?3"
);
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

/// Nodes in maintenance that concern a user: containers of theirs are there, or a session of theirs waits. The events
/// tell since when, with which message last, and by whom.
const MAINTENANCE: &str =
    "select node.name, node.note, node.resource_group, began.at as since, last.sequence as told,
            coalesce(last.actor = (select name from user where id = ?1), 0) as own,
            (select count(distinct session.id)
             from container indexed by container_node
             join session on session.id = container.session
             where container.node = node.id
             and container.state <> 'ended'
             and session.owner = ?1) as running,
            (select count(*)
             from session indexed by session_waiting
             where owner = ?1
             and state = 'pending') as waiting
     from node
     left join event last on last.sequence = (
         select max(sequence)
         from event
         where object = node.name
         and code = 'node.maintenance-began')
     left join event began on began.sequence = (
         select min(sequence)
         from event
         where object = node.name
         and code = 'node.maintenance-began'
         and sequence > coalesce((
             select max(sequence)
             from event
             where object = node.name
             and code = 'node.maintenance-ended'), 0))
     where node.schedulable = 0
     and (running > 0 or waiting > 0)
     order by node.name";

/// Sessions whose names have a word. The index is named, for SQLite would visit the rows in the order of their ids.
const NAMED: &str = "select id
     from session indexed by session_name
     where instr(lower(name), ?1) > 0";

/// Events that a count counts. Higher: a page of a long journal costs more. Lower: more of it stands behind "older".
const MAX_COUNTED: u32 = 10_000;

/// Which events are wanted; empty text asks for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EventFilter {
    /// A topic, or the beginning of a code.
    pub(crate) kind: String,
    /// Ids of things; None: of everything.
    pub(crate) objects: Option<Vec<String>>,
    /// Who did it, or whose account it is about.
    pub(crate) user: String,
    /// Ids of the accounts that have or had that name.
    pub(crate) accounts: Vec<UserId>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
    /// Words that stand somewhere in an event, in small letters; all of them. With each the ids of the sessions whose
    /// names have it.
    pub(crate) words: Vec<(String, Vec<String>)>,
}

/// Which part of what a filter finds is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalPart {
    /// Older than this one; None: from the newest on.
    pub(crate) before: Option<u64>,
    /// Events that are looked at, found or not.
    pub(crate) span: u64,
    /// Found events before the part.
    pub(crate) offset: u64,
    pub(crate) limit: u32,
}

/// Some of the journal, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FoundEvents {
    pub(crate) events: Vec<EventRow>,
    /// How many the filter finds in the span, counted up to 10,000.
    pub(crate) count: u64,
    /// Down to which sequence was looked; None once the beginning was reached.
    pub(crate) before: Option<u64>,
}

/// One notice: the event, and what became of its session by now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToldEventRow {
    pub(crate) event: EventRow,
    /// The user did it themselves, just before.
    pub(crate) own: bool,
    /// None once the session was deleted.
    pub(crate) session: Option<ToldSessionRow>,
}

/// What a notice says of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToldSessionRow {
    pub(crate) name: String,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) reason: Option<Reason>,
    /// None where it never ran.
    pub(crate) started_at: Option<Timestamp>,
}

/// A session of a user's that its time limit ends soon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitedSessionRow {
    pub(crate) id: SessionId,
    pub(crate) name: String,
    pub(crate) ends_at: Timestamp,
}

/// A node in maintenance that concerns a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MaintenanceRow {
    pub(crate) node: String,
    pub(crate) group: ResourceGroupId,
    pub(crate) message: String,
    /// Since when, and the sequence of the event that told the message; None where the journal no longer has it.
    pub(crate) since: Option<Timestamp>,
    pub(crate) told: Option<u64>,
    /// The user told it themselves.
    pub(crate) own: bool,
    /// The user's sessions on the node, and those that wait.
    pub(crate) running: u64,
    pub(crate) waiting: u64,
}

impl ReadTransaction<'_> {
    /// Events in reach that a filter finds, newest first, and how many there are. O(span): one visit of each event of the
    /// span at most, in the order of the table; only those of the part are read whole.
    pub(crate) fn search_events(
        &self,
        reach: &Reach,
        filter: &EventFilter,
        part: &JournalPart,
    ) -> Result<FoundEvents, Failure> {
        let newest = self.event_range()?.1;
        let top = part.before.unwrap_or(newest + 1).min(newest + 1);
        let bottom = top.saturating_sub(part.span);
        let (clauses, values) = filter.sql(reach);
        let bounded = |low: u64, high: u64, limit: u32| {
            let bounds = [low, high].map(|bound| Value::Integer(value::signed(bound)));
            let limit = Value::Integer(limit.into());
            bounds.into_iter().chain(values.clone()).chain([limit])
        };
        let mut statement = self.connection.prepare_cached(&format!(
            "select sequence from event
             where sequence >= ? and sequence < ? and {clauses}
             order by sequence desc
             limit ?"
        ))?;
        let found: Vec<u64> = statement
            .query_map(
                rusqlite::params_from_iter(bounded(bottom, top, MAX_COUNTED)),
                |row| value::unsigned(row, "sequence"),
            )?
            .collect::<Result<_, _>>()?;
        let before = match found.last() {
            Some(last) if found.len() == MAX_COUNTED as usize => Some(*last),
            _ => (bottom > 1).then_some(bottom),
        };
        let skipped = usize::try_from(part.offset).unwrap_or(usize::MAX);
        let mut shown = found.iter().skip(skipped).take(part.limit as usize);
        let events = match (shown.next(), shown.next_back()) {
            (None, _) => Vec::new(),
            (Some(first), last) => {
                let last = last.unwrap_or(first);
                let mut statement = self.connection.prepare_cached(&format!(
                    "select sequence, at, actor, topic, object, owner, code, before, after
                     from event
                     where sequence >= ? and sequence < ? and {clauses}
                     order by sequence desc
                     limit ?"
                ))?;
                let rows = statement.query_map(
                    rusqlite::params_from_iter(bounded(*last, *first + 1, part.limit)),
                    from_row,
                )?;
                rows.collect::<Result<_, _>>()?
            }
        };
        Ok(FoundEvents {
            events,
            count: found.len() as u64,
            before,
        })
    }

    /// Ids of the newest sessions in reach whose names have a word, at most `most`. O(sessions) in the index of the names.
    pub(crate) fn sessions_named(
        &self,
        reach: &Reach,
        word: &str,
        most: u32,
    ) -> Result<Vec<SessionId>, Failure> {
        let (reached, value) = condition(reach, SESSION, "?2");
        let mut statement = self.connection.prepare_cached(&format!(
            "{NAMED}
             and {reached}
             order by id desc
             limit ?3"
        ))?;
        let rows = statement.query_map((word, value, most), |row| {
            Ok(SessionId(value::id(row, "id")?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
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
        let rows = statement.query_map((user.0.as_bytes(), most), |row| {
            Ok((from_row(row)?, row.get::<_, bool>("own")?))
        })?;
        let mut session = self.connection.prepare_cached(
            "select name, outcome, reason, started_at from session where id = ?1",
        )?;
        rows.map(|event| {
            let (event, own) = event?;
            let id: Option<SessionId> = event.object.parse().ok();
            let found = match id {
                Some(id) => session
                    .query_row([id.0.as_bytes()], |row| {
                        let outcome: Option<String> = row.get("outcome")?;
                        let outcome = outcome.as_deref().and_then(Outcome::parse);
                        Ok(ToldSessionRow {
                            name: row.get("name")?,
                            outcome,
                            reason: value::json_or_none(row, "reason")?,
                            started_at: value::time_or_none(row, "started_at")?,
                        })
                    })
                    .optional()?,
                None => None,
            };
            Ok(ToldEventRow {
                event,
                own,
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

    /// How many messages teachers of a project sent a user since then, among so many of the newest things that the user was
    /// told. Costs a visit of each of these.
    pub(crate) fn messages_since(
        &self,
        user: UserId,
        project: ProjectId,
        (since, looked): (Timestamp, u32),
    ) -> Result<u64, Failure> {
        let (user, project) = (user.0.as_bytes(), project.0.as_bytes());
        Ok(self
            .connection
            .prepare_cached(MESSAGES)?
            .query_row((user, project, since.as_millis(), looked), |row| {
                value::unsigned(row, "n")
            })?)
    }

    /// Nodes in maintenance with sessions of a user's, or for which sessions of theirs may wait. Empty at the cost of one
    /// visit to each node where none is in maintenance.
    pub(crate) fn maintenance_of(&self, user: UserId) -> Result<Vec<MaintenanceRow>, Failure> {
        let mut statement = self.connection.prepare_cached(MAINTENANCE)?;
        let rows = statement.query_map([user.0.as_bytes()], |row| {
            let told: Option<i64> = row.get("told")?;
            Ok(MaintenanceRow {
                node: row.get("name")?,
                group: value::id_or_none(row, "resource_group")?
                    .map_or(ResourceGroupId::DEFAULT, ResourceGroupId),
                message: row.get("note")?,
                since: value::time_or_none(row, "since")?,
                told: told.and_then(|sequence| u64::try_from(sequence).ok()),
                own: row.get("own")?,
                running: value::unsigned(row, "running")?,
                waiting: value::unsigned(row, "waiting")?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
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

impl EventFilter {
    /// Its conditions, and the values for their parameters in order.
    fn sql(&self, reach: &Reach) -> (String, Vec<Value>) {
        let (reached, value) = heard(reach, "?");
        let mut clauses = vec![reached];
        let mut values = vec![value.map_or(Value::Null, |id| Value::Blob(id.to_vec()))];
        let mut add = |clause: &str, value: Value, times: usize| {
            clauses.push(clause.to_owned());
            values.extend(vec![value; times]);
        };
        let kind = self.kind.replace(['%', '_', '\\'], "");
        if !kind.is_empty() {
            let kind = Value::Text(kind);
            add("(topic = ? or code = ? or code like ? || '.%')", kind, 3);
        }
        if let Some(since) = self.since {
            add("at >= ?", Value::Integer(since.as_millis()), 1);
        }
        if let Some(until) = self.until {
            add("at <= ?", Value::Integer(until.as_millis()), 1);
        }
        if let Some(objects) = &self.objects {
            let objects = Value::Text(value::text(objects));
            add("object in (select value from json_each(?))", objects, 1);
        }
        if !self.user.is_empty() {
            // The object of a user's event is their id, that of a token's event is the token's; its owner is the user.
            let texts = self.accounts.iter().map(ToString::to_string);
            let bytes = self.accounts.iter().map(|id| id.0.simple().to_string());
            let accounts: Vec<String> = texts.chain(bytes).collect();
            let accounts = Value::Text(value::text(&accounts));
            clauses.push(
                "(actor = ? or (topic = 'users' \
                 and (object = ? or object in (select value from json_each(?)) \
                 or lower(hex(owner)) in (select value from json_each(?)))))"
                    .to_owned(),
            );
            let name = Value::Text(self.user.clone());
            values.extend([name.clone(), name, accounts.clone(), accounts]);
        }
        for (word, sessions) in &self.words {
            // One text after another: joining and lowering them for each event costs twice as much.
            let texts = ["code", "object", "actor", "before", "after"];
            let each: Vec<String> = texts
                .iter()
                .map(|text| format!("{text} like ? escape '\\'"))
                .collect();
            let pattern = Value::Text(value::containing(word));
            values.extend(vec![pattern; texts.len()]);
            let named = match sessions.is_empty() {
                true => "",
                false => {
                    values.push(Value::Text(value::text(sessions)));
                    " or object in (select value from json_each(?))"
                }
            };
            clauses.push(format!("({}{named})", each.join(" or ")));
        }
        (clauses.join(" and "), values)
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

    /// Every page counts notices, so what they cost must not grow with the sessions that wait; a word that is typed
    /// must not read every session.
    #[test]
    fn notices_and_names_are_read_through_indexes_that_hold_nothing_else() {
        let server = Server::for_tests();
        server
            .catalog()
            .read_now("explain", |view| {
                for (query, index) in [
                    (NOTICES, "event_told"),
                    (UNREAD, "event_told"),
                    (MESSAGES, "event_told"),
                    (ENDING, "session_limited"),
                    (MAINTENANCE, "container_node"),
                    (MAINTENANCE, "session_waiting"),
                    (MAINTENANCE, "event_object"),
                    (NAMED, "COVERING INDEX session_name"),
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
