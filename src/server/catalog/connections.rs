//! Rows of what sessions connect to outside: one for each host and how it came out, of each session at most 64, and an event
//! for each connection that ended. Decides nothing; a machine counted them, and what it says again takes the place of what it
//! said before.

use rules::egress::{EgressOutcome, EgressReport, EgressRow};
use rules::messages::NodeReport;
use rules::names::{SessionId, UserId};
use rules::tenancy::{DomainId, ProjectId, Scope};
use rules::units::Timestamp;
use rusqlite::OptionalExtension as _;

use super::events::NewEvent;
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use super::{Catalog, Lane};
use crate::Failure;

/// Rows of one session. Higher: a session that tries many hosts fills the catalog and the journal. Lower: its page knows fewer
/// hosts.
const MAX_CONNECTIONS: u64 = 64;

/// Of these, rows of what was refused. Higher: refused tries leave less room for hosts that were reached.
const MAX_REFUSED: u64 = 32;

/// Ends of connections of one session that are events. Higher: a program that connects again and again fills the journal.
/// Lower: of more connections only the counts of their host are known.
const MAX_TOLD_ENDS: u64 = 1_000;

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionRow {
    pub(crate) incarnation: u32,
    pub(crate) row: EgressRow,
    pub(crate) first_at: Timestamp,
}

impl Catalog {
    /// Has what a report counted of connections written, where it is new: hosts and ends at once, counts every few seconds.
    /// Lost with the server; the next report says it again.
    pub(crate) fn record_connections(&self, report: &NodeReport) {
        let told = self.0.heard.note_connections(report);
        if told.is_empty() {
            return;
        }
        self.write_later(Lane::Loops, "record connections", move |rows| {
            told.iter().try_for_each(|one| rows.put_connections(one))
        });
    }
}

impl ReadTransaction<'_> {
    /// Connections of a session, the latest first. Costs one range of the table.
    pub(crate) fn connections_of(&self, id: SessionId) -> Result<Vec<ConnectionRow>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select incarnation, host, port, outcome, count, sent, received, first_at, last_at
             from session_connection
             where session = ?1
             order by last_at desc, host, port, outcome",
        )?;
        let rows = statement.query_map([id.0.as_bytes()], |row| {
            Ok(ConnectionRow {
                incarnation: row.get("incarnation")?,
                row: EgressRow {
                    host: row.get("host")?,
                    port: row.get("port")?,
                    outcome: value::word(row, "outcome", EgressOutcome::parse)?,
                    count: value::unsigned(row, "count")?,
                    sent: value::unsigned(row, "sent")?,
                    received: value::unsigned(row, "received")?,
                    last_at: value::time(row, "last_at")?,
                },
                first_at: value::time(row, "first_at")?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl Rows<'_> {
    /// Writes what a machine counted of one container, and an event for each host that is new. A session that is gone has none;
    /// where there is no room, rows of its earlier starts make some.
    pub(crate) fn put_connections(&self, report: &EgressReport) -> Result<(), Failure> {
        let session = report.container.session;
        let scope = self
            .connection
            .prepare_cached("select owner, domain, project from session where id = ?1")?
            .query_row([session.0.as_bytes()], |row| {
                Ok(Scope {
                    domain: Some(DomainId(value::id(row, "domain")?)),
                    project: Some(ProjectId(value::id(row, "project")?)),
                    owner: Some(UserId(value::id(row, "owner")?)),
                })
            })
            .optional()?;
        let Some(scope) = scope else {
            return Ok(());
        };
        let (mut count, mut refused) = self.count_connections(session)?;
        let mut forgotten = 0;
        // The oldest first: they are in the order of the journal.
        for row in report.rows.iter().rev() {
            if self.update_connection(report, row)? {
                continue;
            }
            let is_refused = row.outcome != EgressOutcome::Opened;
            let is_full = |count: u64, refused: u64| {
                count >= MAX_CONNECTIONS || (is_refused && refused >= MAX_REFUSED)
            };
            if is_full(count, refused) {
                forgotten += self.forget_connections_before(report)?;
                (count, refused) = self.count_connections(session)?;
            }
            if is_full(count, refused) {
                continue;
            }
            self.insert_connection(report, row)?;
            count += 1;
            refused += u64::from(is_refused);
            let code = match row.outcome {
                EgressOutcome::Opened => "session.connected",
                _ => "session.connection-refused",
            };
            let after = match row.outcome {
                EgressOutcome::Opened => format!("{}:{}", row.host, row.port),
                outcome => format!("{}:{} {}", row.host, row.port, outcome.word()),
            };
            self.note_alone(NewEvent {
                actor: "node",
                topic: "sessions",
                object: &session.to_string(),
                scope,
                code,
                before: "",
                after: &after,
            })?;
        }
        if forgotten > 0 {
            self.keep_told_ends(session, forgotten)?;
        }
        self.tell_ends(report, scope)
    }

    /// Adds to a row of a session how many ends were told of rows that are gone: they count against its bound still.
    fn keep_told_ends(&self, session: SessionId, told: u64) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update session_connection
                 set told_ends = told_ends + ?2
                 where session = ?1
                 and (incarnation, container, host, port, outcome) = (
                     select incarnation, container, host, port, outcome from session_connection
                     where session = ?1
                     order by incarnation desc
                     limit 1)",
            )?
            .execute((session.0.as_bytes(), value::signed(told)))?;
        Ok(())
    }

    /// Writes an event for each connection that ended since a report said so last. One whose host has no row has none. Costs
    /// two reads, and one write for each that is new.
    fn tell_ends(&self, report: &EgressReport, scope: Scope) -> Result<(), Failure> {
        let container = report.container;
        if report.ends.is_empty() {
            return Ok(());
        }
        let (last, mut told) = self
            .connection
            .prepare_cached(
                "select coalesce(max(last_end) filter (where container = ?2), 0) as last,
                     coalesce(sum(told_ends), 0) as told
                 from session_connection
                 where session = ?1",
            )?
            .query_row((container.session.0.as_bytes(), container.index), |row| {
                Ok((value::unsigned(row, "last")?, value::unsigned(row, "told")?))
            })?;
        for end in report.ends.iter().filter(|end| end.number > last) {
            if told >= MAX_TOLD_ENDS {
                return Ok(());
            }
            let noted = self
                .connection
                .prepare_cached(
                    "update session_connection
                     set last_end = ?6, told_ends = told_ends + 1
                     where session = ?1 and incarnation = ?2 and container = ?3
                     and host = ?4 and port = ?5 and outcome = ?7",
                )?
                .execute((
                    container.session.0.as_bytes(),
                    container.incarnation,
                    container.index,
                    &end.host,
                    end.port,
                    value::signed(end.number),
                    EgressOutcome::Opened.word(),
                ))?;
            if noted == 0 {
                continue;
            }
            told += 1;
            self.note_alone(NewEvent {
                actor: "node",
                topic: "sessions",
                object: &container.session.to_string(),
                scope,
                code: "session.connection-ended",
                before: "",
                after: &end.told(),
            })?;
        }
        Ok(())
    }

    /// How many rows a session has, and how many of them are of what was refused.
    fn count_connections(&self, session: SessionId) -> Result<(u64, u64), Failure> {
        let counted = self
            .connection
            .prepare_cached(
                "select count(*) as count, count(*) filter (where outcome <> ?2) as refused
                 from session_connection
                 where session = ?1",
            )?
            .query_row(
                (session.0.as_bytes(), EgressOutcome::Opened.word()),
                |row| {
                    let count = value::unsigned(row, "count")?;
                    Ok((count, value::unsigned(row, "refused")?))
                },
            )?;
        Ok(counted)
    }

    /// Removes rows of the starts before this one, and gives how many ends were told of them.
    fn forget_connections_before(&self, report: &EgressReport) -> Result<u64, Failure> {
        let earlier = (
            report.container.session.0.as_bytes(),
            report.container.incarnation,
        );
        let told = self
            .connection
            .prepare_cached(
                "select coalesce(sum(told_ends), 0) as told from session_connection
                 where session = ?1 and incarnation < ?2",
            )?
            .query_row(earlier, |row| value::unsigned(row, "told"))?;
        self.connection
            .prepare_cached(
                "delete from session_connection where session = ?1 and incarnation < ?2",
            )?
            .execute(earlier)?;
        Ok(told)
    }

    /// False where there is no such row. A relay that was restarted counts from zero: what was more stays.
    fn update_connection(&self, report: &EgressReport, row: &EgressRow) -> Result<bool, Failure> {
        let changed = self
            .connection
            .prepare_cached(
                "update session_connection
                 set count = max(count, ?7), sent = max(sent, ?8), received = max(received, ?9),
                     last_at = max(last_at, ?10)
                 where session = ?1 and incarnation = ?2 and container = ?3
                 and host = ?4 and port = ?5 and outcome = ?6",
            )?
            .execute((
                report.container.session.0.as_bytes(),
                report.container.incarnation,
                report.container.index,
                &row.host,
                row.port,
                row.outcome.word(),
                value::signed(row.count),
                value::signed(row.sent),
                value::signed(row.received),
                row.last_at.as_millis(),
            ))?;
        Ok(changed > 0)
    }

    fn insert_connection(&self, report: &EgressReport, row: &EgressRow) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into session_connection
                     (session, incarnation, container, host, port, outcome, count, sent, received,
                      first_at, last_at)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10)",
            )?
            .execute((
                report.container.session.0.as_bytes(),
                report.container.incarnation,
                report.container.index,
                &row.host,
                row.port,
                row.outcome.word(),
                value::signed(row.count),
                value::signed(row.sent),
                value::signed(row.received),
                row.last_at.as_millis(),
            ))?;
        Ok(())
    }
}
