//! How far the outputs of notices looked through the journal, which users its newest events concern, and what an output
//! lost. Sends nothing; who may read what, the notices of each user say.

use rules::names::UserId;
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};

use super::allowances::LIMIT_DECLINED;
use super::break_glass::{FOLDER_OPENED, SESSION_OPENED};
use super::budgets::WARNED;
use super::reader::ReadTransaction;
use super::users::SIGNED_IN_ELSEWHERE;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// What notices leave the console by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoticeOutput {
    Mail,
}

impl NoticeOutput {
    fn word(self) -> &'static str {
        match self {
            Self::Mail => "mail",
        }
    }
}

/// How far one output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct OutputProgress {
    /// The newest event that it looked at, and when it happened.
    pub(crate) seen: u64,
    pub(crate) seen_at: Timestamp,
    /// Notices that never arrived, and when the last of them was given up.
    pub(crate) lost: u64,
    pub(crate) lost_at: Option<Timestamp>,
    pub(crate) sent_at: Option<Timestamp>,
}

/// Whom the events behind one concern.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ToldReaders {
    /// Owners of what happened, each once.
    pub(crate) owners: Vec<UserId>,
    /// Something happened that those who look after a project or a domain are told of.
    pub(crate) concerns_leads: bool,
    /// A node went into maintenance: owners of live sessions are told.
    pub(crate) concerns_live: bool,
    /// A folder was shared: users who are asked first are told.
    pub(crate) concerns_asked: bool,
    /// The newest event that was looked at, and when it happened.
    pub(crate) seen: u64,
    pub(crate) seen_at: Timestamp,
    /// There are more behind it.
    pub(crate) is_part: bool,
}

/// A piece of the journal in its own order, so that what it costs does not grow with the journal.
const BEHIND: &str = "select sequence, at, owner, code
     from event
     where sequence > ?1
     order by sequence
     limit ?2";

/// Owners of running sessions that their time limit ends before a moment; the index holds none but sessions with a limit.
const ENDING_OWNERS: &str = "select distinct owner
     from session indexed by session_limited
     where state = 'running'
     and max_runtime_seconds is not null
     and started_at is not null
     and started_at + max_runtime_seconds * 1000 <= ?1";

/// Codes of the events of which their owner is told, as in the index `event_told`.
const TOLD_OWNER: [&str; 16] = [
    "session.running",
    rules::codes::SESSION_ENDED,
    "session.gpu-warned",
    "session.idle-warned",
    rules::codes::SESSION_IDLE,
    "session.reservation-warned",
    "reservation.approved",
    "reservation.refused",
    "reservation.expired",
    "session.course-warned",
    "course.message",
    rules::codes::SESSION_PREEMPTED,
    SESSION_OPENED,
    FOLDER_OPENED,
    SIGNED_IN_ELSEWHERE,
    LIMIT_DECLINED,
];
/// Codes of the events by which something waits for a decision.
const ASKED: [&str; 4] = [
    "reservation.asked",
    "user.asked",
    "user.limit-asked",
    "approval.asked",
];
const MAINTENANCE_BEGAN: &str = "node.maintenance-began";
const SHARED: &str = "folder.shared";

impl ReadTransaction<'_> {
    /// How far an output is; None for one that never looked.
    pub(crate) fn output_progress(
        &self,
        output: NoticeOutput,
    ) -> Result<Option<OutputProgress>, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select seen, seen_at, lost, lost_at, sent_at
                 from output_progress
                 where output = ?1",
            )?
            .query_row([output.word()], progress_row)
            .optional()?)
    }

    /// Whom the events behind `seen` concern, of at most `most` events. Costs a visit of each of these.
    pub(crate) fn told_readers(&self, seen: u64, most: u32) -> Result<ToldReaders, Failure> {
        let mut told = ToldReaders {
            seen,
            ..ToldReaders::default()
        };
        let mut visited = 0;
        let mut statement = self.connection.prepare_cached(BEHIND)?;
        let mut rows = statement.query((value::signed(seen), most))?;
        while let Some(row) = rows.next()? {
            visited += 1;
            told.seen = value::unsigned(row, "sequence")?;
            told.seen_at = value::time(row, "at")?;
            let code: String = row.get("code")?;
            let owner = value::id_or_none(row, "owner")?.map(UserId);
            match code.as_str() {
                WARNED => {
                    told.concerns_leads = true;
                    told.owners.extend(owner);
                }
                MAINTENANCE_BEGAN => told.concerns_live = true,
                SHARED => told.concerns_asked = true,
                code if ASKED.contains(&code) => told.concerns_leads = true,
                code if TOLD_OWNER.contains(&code) => told.owners.extend(owner),
                _ => {}
            }
        }
        told.is_part = visited == most;
        told.owners.sort_unstable();
        told.owners.dedup();
        Ok(told)
    }

    /// Owners of running sessions that their time limit ends before `until`. Costs a visit of each running session with a
    /// limit.
    pub(crate) fn owners_ending_before(&self, until: Timestamp) -> Result<Vec<UserId>, Failure> {
        let mut statement = self.connection.prepare_cached(ENDING_OWNERS)?;
        let rows = statement.query_map([until.as_millis()], owner_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Users to whom a folder was offered since then, who have not answered. Costs a visit of each share.
    pub(crate) fn users_asked_since(&self, since: Timestamp) -> Result<Vec<UserId>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select distinct user as owner
             from folder_share
             where accepted_at is null
             and created_at >= ?1",
        )?;
        let rows = statement.query_map([since.as_millis()], owner_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Owners of sessions that are not over. Costs a visit of each of these.
    pub(crate) fn owners_of_live(&self) -> Result<Vec<UserId>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select distinct owner
             from session
             where state <> 'ended'",
        )?;
        let rows = statement.query_map([], owner_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Users with a role that lets them look after a project, a domain or the site. Costs a visit of each role.
    pub(crate) fn users_with_roles(&self) -> Result<Vec<UserId>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select user as owner
             from role_grant
             where role = 'administrator'
             union
             select user as owner
             from membership
             where role = 'lead'",
        )?;
        let rows = statement.query_map([], owner_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl Rows<'_> {
    /// Notes how far an output looked. One that never did begins there.
    pub(crate) fn put_output_seen(
        &self,
        output: NoticeOutput,
        seen: u64,
        seen_at: Timestamp,
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into output_progress (output, seen, seen_at, lost)
                 values (?1, ?2, ?3, 0)
                 on conflict (output) do update
                 set seen = excluded.seen,
                     seen_at = excluded.seen_at",
            )?
            .execute((output.word(), value::signed(seen), seen_at.as_millis()))?;
        Ok(())
    }

    /// Notes that an output arrived.
    pub(crate) fn note_output_sent(&self, output: NoticeOutput) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update output_progress set sent_at = ?2 where output = ?1")?
            .execute((output.word(), self.now.as_millis()))?;
        Ok(())
    }

    /// Counts notices that will never arrive.
    pub(crate) fn count_lost(&self, output: NoticeOutput, lost: usize) -> Result<(), Failure> {
        if lost == 0 {
            return Ok(());
        }
        self.connection
            .prepare_cached(
                "update output_progress
                 set lost = lost + ?2,
                     lost_at = ?3
                 where output = ?1",
            )?
            .execute((
                output.word(),
                value::signed(lost as u64),
                self.now.as_millis(),
            ))?;
        Ok(())
    }

    /// Forgets an output that is not set any more.
    pub(crate) fn forget_output(&self, output: NoticeOutput) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from output_progress where output = ?1")?
            .execute([output.word()])?;
        Ok(())
    }
}

fn owner_row(row: &Row<'_>) -> rusqlite::Result<UserId> {
    Ok(UserId(value::id(row, "owner")?))
}

fn progress_row(row: &Row<'_>) -> rusqlite::Result<OutputProgress> {
    Ok(OutputProgress {
        seen: value::unsigned(row, "seen")?,
        seen_at: value::time(row, "seen_at")?,
        lost: value::unsigned(row, "lost")?,
        lost_at: value::time_or_none(row, "lost_at")?,
        sent_at: value::time_or_none(row, "sent_at")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Server;

    /// The queries run at every commit of a site with a mail server.
    #[test]
    fn the_journal_is_looked_through_by_its_key_and_limits_by_their_index() {
        let server = Server::for_tests();
        server
            .catalog()
            .read_now("explain", |view| {
                for (query, used) in [(BEHIND, "PRIMARY KEY"), (ENDING_OWNERS, "session_limited")] {
                    let mut plan = view
                        .connection
                        .prepare(&format!("explain query plan {query}"))?;
                    let mut rows = plan.raw_query();
                    let mut said: Vec<String> = Vec::new();
                    while let Some(row) = rows.next()? {
                        said.push(row.get("detail")?);
                    }
                    let uses = said.iter().any(|line| line.contains(used));
                    assert!(uses, "{query}\n{said:?}");
                }
                Ok(())
            })
            .unwrap();
    }
}
