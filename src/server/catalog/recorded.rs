//! Sessions that are over, as far as a rehearsal of the queue goes by them: whose, how much, since when they waited and how
//! long they had their place. Reads only.

use rules::devices::MigProfile;
use rules::fair_share::FairLeaf;
use rules::names::{ResourceGroupId, SessionId, UserId};
use rules::resources::Demand;
use rules::tenancy::{DomainId, ProjectId};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rusqlite::{OptionalExtension as _, Row};

use super::reader::ReadTransaction;
use super::value;
use crate::Failure;

/// One session that had a place and is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedSession {
    pub(crate) leaf: FairLeaf,
    pub(crate) demand: Demand,
    pub(crate) group: ResourceGroupId,
    /// Seconds that it was allowed to run; None without a limit.
    pub(crate) limit: Option<u64>,
    pub(crate) queued_at: Timestamp,
    /// Milliseconds that it waited before, for the same start.
    pub(crate) queued_before: u64,
    /// Its start time, or the end of the last session that it depends on; None where it waited for neither.
    pub(crate) ready_at: Option<Timestamp>,
    pub(crate) scheduled_at: Timestamp,
    pub(crate) ended_at: Timestamp,
}

impl RecordedSession {
    /// Since when it waited for a place and for nothing else.
    pub(crate) fn waited_since(&self) -> Timestamp {
        let before = i64::try_from(self.queued_before).unwrap_or(i64::MAX);
        let queued = self.queued_at.as_millis().saturating_sub(before);
        let since = Timestamp::from_millis(queued).max(self.ready_at.unwrap_or_default());
        // A clock that was set back is no wait.
        since.min(self.scheduled_at)
    }
}

/// A session, and those that it depends on.
fn recorded(row: &Row<'_>) -> rusqlite::Result<(RecordedSession, Vec<SessionId>)> {
    let is_batch = value::word(row, "kind", |word| Some(word == "batch"))?;
    let timeout = value::unsigned_or_none(row, "timeout_seconds")?.filter(|_| is_batch);
    let max_runtime = value::unsigned_or_none(row, "max_runtime_seconds")?;
    let session = RecordedSession {
        leaf: FairLeaf {
            domain: DomainId(value::id(row, "domain")?),
            project: ProjectId(value::id(row, "project")?),
            user: UserId(value::id(row, "owner")?),
        },
        demand: Demand {
            cpu: CpuShare(row.get("cpu")?),
            memory: Bytes(value::unsigned(row, "memory")?),
            shm: Bytes(value::unsigned(row, "shm")?),
            // Of no matter for the queue.
            disk: None,
            gpu: GpuShare(row.get("gpu")?),
            gpu_memory: value::unsigned_or_none(row, "gpu_memory")?.map(Bytes),
            mig: value::word_or_none(row, "mig", |word| MigProfile::parse(word).ok())?,
        },
        group: value::id_or_none(row, "resource_group")?
            .map_or(ResourceGroupId::DEFAULT, ResourceGroupId),
        limit: [timeout, max_runtime].into_iter().flatten().min(),
        queued_at: value::time(row, "queued_at")?,
        queued_before: value::unsigned(row, "queued_before")?,
        ready_at: value::time_or_none(row, "start_at")?,
        scheduled_at: value::time(row, "scheduled_at")?,
        ended_at: value::time(row, "ended_at")?,
    };
    Ok((session, value::json(row, "depends_on")?))
}

impl ReadTransaction<'_> {
    /// Sessions that had a place and ended in that time, the earliest end first, `limit` of them at most; those that were
    /// bound to one device are left out. Costs a visit to each that ended in it, up to that many, and
    /// to each that one of them depends on.
    pub(crate) fn recorded_sessions(
        &self,
        from: Timestamp,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<RecordedSession>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select owner, domain, project, kind, cpu, memory, shm, gpu, gpu_memory, mig,
                    timeout_seconds, max_runtime_seconds, resource_group, queued_at, queued_before,
                    start_at, depends_on, scheduled_at, ended_at
             from session
             where state = 'ended' and ended_at >= ?1 and ended_at < ?2
                 and scheduled_at is not null and device_affinity is null
             order by ended_at
             limit ?3",
        )?;
        let rows = statement.query_map(
            (
                from.as_millis(),
                until.as_millis(),
                value::signed(limit as u64),
            ),
            recorded,
        )?;
        let mut end = self
            .connection
            .prepare_cached("select ended_at from session where id = ?1 and state = 'ended'")?;
        let mut all = Vec::new();
        for row in rows {
            let (mut session, depends_on) = row?;
            for id in depends_on {
                let ended = end
                    .query_row([id.0.as_bytes()], |row| value::time(row, "ended_at"))
                    .optional()?;
                session.ready_at = session.ready_at.max(ended);
            }
            all.push(session);
        }
        Ok(all)
    }
}
