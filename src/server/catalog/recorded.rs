//! Sessions that are over, as far as a rehearsal of the queue goes by them: whose, how much, since when they waited and how
//! long they had their place. Reads only.

use rules::devices::MigProfile;
use rules::fair_share::FairLeaf;
use rules::names::{ResourceGroupId, UserId};
use rules::resources::Demand;
use rules::tenancy::{DomainId, ProjectId};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rusqlite::Row;

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
    pub(crate) scheduled_at: Timestamp,
    pub(crate) ended_at: Timestamp,
}

fn recorded(row: &Row<'_>) -> rusqlite::Result<RecordedSession> {
    let is_batch = value::word(row, "kind", |word| Some(word == "batch"))?;
    let timeout = value::unsigned_or_none(row, "timeout_seconds")?.filter(|_| is_batch);
    let max_runtime = value::unsigned_or_none(row, "max_runtime_seconds")?;
    Ok(RecordedSession {
        leaf: FairLeaf {
            domain: DomainId(value::id(row, "domain")?),
            project: ProjectId(value::id(row, "project")?),
            user: UserId(value::id(row, "owner")?),
        },
        demand: Demand {
            cpu: CpuShare(row.get("cpu")?),
            memory: Bytes(value::unsigned(row, "memory")?),
            shm: Bytes(value::unsigned(row, "shm")?),
            gpu: GpuShare(row.get("gpu")?),
            gpu_memory: value::unsigned_or_none(row, "gpu_memory")?.map(Bytes),
            mig: value::word_or_none(row, "mig", |word| MigProfile::parse(word).ok())?,
        },
        group: value::id_or_none(row, "resource_group")?
            .map_or(ResourceGroupId::DEFAULT, ResourceGroupId),
        limit: [timeout, max_runtime].into_iter().flatten().min(),
        queued_at: value::time(row, "queued_at")?,
        queued_before: value::unsigned(row, "queued_before")?,
        scheduled_at: value::time(row, "scheduled_at")?,
        ended_at: value::time(row, "ended_at")?,
    })
}

impl ReadTransaction<'_> {
    /// Sessions that had a place and ended in that time, the earliest end first, `limit` of them at most; those that were
    /// bound to one device are left out. Costs a visit to each that ended in it, up to that many.
    pub(crate) fn recorded_sessions(
        &self,
        from: Timestamp,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<RecordedSession>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select owner, domain, project, kind, cpu, memory, shm, gpu, gpu_memory, mig,
                    timeout_seconds, max_runtime_seconds, resource_group, queued_at, queued_before,
                    scheduled_at, ended_at
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
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
