//! What forecasts go by, of rows of sessions that ended: which part of their limits the runs of those took whose sessions
//! live, and who came at this time a week or a day before. Decides nothing.

use std::collections::BTreeMap;

use rules::names::{ImageId, ResourceGroupId, UserId};
use rules::resources::Demand;
use rules::run_history::{ExpectedArrival, REMEMBERED_RUNS, RunHistory};
use rules::session::SessionEnvironment;
use rules::tenancy::{DomainId, ProjectId};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rusqlite::Row;

use super::reader::ReadTransaction;
use super::value;
use crate::Failure;

const DAY_MILLIS: i64 = 86_400_000;
/// Sessions of a day that are looked at, those of all domains together. More: reading them takes longer. Fewer: those of a
/// busy day end early.
const MAX_DAY_ROWS: usize = 20_000;
/// Arrivals in a domain on the day a week before from which on they are taken; else those of the last day.
const MIN_ARRIVALS: usize = 20;
/// Rows of a user that are looked at for their runs. More: a user who cancels much costs more.
const MAX_ROWS: usize = 4 * REMEMBERED_RUNS;

impl ReadTransaction<'_> {
    /// What runs took and who is expected, as of that moment. Costs a look at no more than 128 rows for each owner of a
    /// live session, and one at no more than 20,000 sessions of each of two days.
    pub(crate) fn run_history(&self, now: Timestamp) -> Result<RunHistory, Failure> {
        let mut history = RunHistory::default();
        for owner in self.waiting_owners()? {
            let mut runs = self.newest_runs(owner)?;
            runs.reverse();
            for (domain, limit, ran) in runs {
                history.note((domain, owner), limit, ran);
            }
        }
        let (mut arrivals, day_before) = (self.arrivals(now, 7)?, self.arrivals(now, 1)?);
        let mut counts: BTreeMap<DomainId, usize> = BTreeMap::new();
        for one in &arrivals {
            *counts.entry(one.domain).or_default() += 1;
        }
        // By domain: what happens in one decides nothing of another.
        let is_quiet = |one: &ExpectedArrival| {
            let count = counts.get(&one.domain).copied();
            count.unwrap_or_default() < MIN_ARRIVALS
        };
        arrivals.retain(|one| !is_quiet(one));
        arrivals.extend(day_before.into_iter().filter(is_quiet));
        history.expect(arrivals);
        Ok(history)
    }

    fn waiting_owners(&self) -> Result<Vec<UserId>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select distinct owner
             from session
             where state <> 'ended'",
        )?;
        let rows = statement.query_map([], |row| Ok(UserId(value::id(row, "owner")?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Domains, limits and run times of a user's newest ended runs, in seconds, the newest first.
    fn newest_runs(&self, owner: UserId) -> Result<Vec<(DomainId, u64, u64)>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select kind, timeout_seconds, max_runtime_seconds, started_at, ended_at, outcome, domain
             from session
             where owner = ?1
             order by created_at desc
             limit ?2",
        )?;
        let rows = statement.query_map((owner.0.as_bytes(), MAX_ROWS as i64), run)?;
        let mut runs = Vec::new();
        for found in rows {
            if runs.len() == REMEMBERED_RUNS {
                break;
            }
            runs.extend(found?);
        }
        Ok(runs)
    }

    /// Sessions that came within the day which began so many days before that moment, as they are expected again.
    fn arrivals(&self, now: Timestamp, days: i64) -> Result<Vec<ExpectedArrival>, Failure> {
        let since = now.as_millis().saturating_sub(days * DAY_MILLIS);
        let mut statement = self.connection.prepare_cached(
            "select kind, timeout_seconds, max_runtime_seconds, started_at, ended_at, outcome, created_at, owner,
                    domain, project, resource_group, image, image_reference, cpu, memory, shm, gpu, gpu_memory, priority
             from session
             where created_at > ?1
                 and created_at < ?2
                 and mig is null
             order by created_at
             limit ?3",
        )?;
        let until = since.saturating_add(DAY_MILLIS);
        let rows = statement.query_map((since, until, MAX_DAY_ROWS as i64), |row| {
            arrival(row, days)
        })?;
        let mut arrivals = Vec::new();
        for found in rows {
            arrivals.extend(found?);
        }
        Ok(arrivals)
    }
}

/// Its domain, its limit in seconds and those that it ran; None where it has no limit, or did not run to an end of its own.
fn run(row: &Row<'_>) -> rusqlite::Result<Option<(DomainId, u64, u64)>> {
    let outcome: Option<String> = row.get("outcome")?;
    let ended_well = matches!(outcome.as_deref(), Some("succeeded" | "failed" | "stopped"));
    let domain = DomainId(value::id(row, "domain")?);
    let known = limit(row)?.zip(ran(row)?).filter(|_| ended_well);
    Ok(known.map(|(limit, ran)| (domain, limit, ran)))
}

/// The shorter of both limits, as `SessionSpec::limit` has it.
fn limit(row: &Row<'_>) -> rusqlite::Result<Option<u64>> {
    let kind: String = row.get("kind")?;
    let timeout = match kind.as_str() {
        "batch" => value::unsigned_or_none(row, "timeout_seconds")?,
        _ => None,
    };
    let max_runtime = value::unsigned_or_none(row, "max_runtime_seconds")?;
    Ok([timeout, max_runtime].into_iter().flatten().min())
}

fn ran(row: &Row<'_>) -> rusqlite::Result<Option<u64>> {
    let started = value::time_or_none(row, "started_at")?;
    let ended = value::time_or_none(row, "ended_at")?;
    Ok(started
        .zip(ended)
        .map(|(started, ended)| ended.seconds_since(started)))
}

/// None where nothing says how long it would run.
fn arrival(row: &Row<'_>, days: i64) -> rusqlite::Result<Option<ExpectedArrival>> {
    let Some(limit) = limit(row)?.or(ran(row)?) else {
        return Ok(None);
    };
    let came = value::time(row, "created_at")?;
    let group = value::id_or_none(row, "resource_group")?;
    let environment = match value::id_or_none(row, "image")? {
        None => SessionEnvironment::Host,
        Some(id) => SessionEnvironment::Image {
            id: ImageId(id),
            reference: row.get("image_reference")?,
        },
    };
    Ok(Some(ExpectedArrival {
        at: Timestamp::from_millis(came.as_millis().saturating_add(days * DAY_MILLIS)),
        owner: UserId(value::id(row, "owner")?),
        domain: DomainId(value::id(row, "domain")?),
        project: ProjectId(value::id(row, "project")?),
        group: group.map_or(ResourceGroupId::DEFAULT, ResourceGroupId),
        demand: Demand {
            cpu: CpuShare(row.get("cpu")?),
            memory: Bytes(value::unsigned(row, "memory")?),
            shm: Bytes(value::unsigned(row, "shm")?),
            disk: None,
            gpu: GpuShare(row.get("gpu")?),
            gpu_memory: value::unsigned_or_none(row, "gpu_memory")?.map(Bytes),
            mig: None,
        },
        environment,
        priority: row.get("priority")?,
        limit,
    }))
}
