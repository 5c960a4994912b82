//! Workload traces: jobs with their arrival, amounts, time limit and run time. `common_day` makes the one that other schedulers
//! are compared on, `play` runs one through the scheduler in virtual time, `figures` says what came of it. Same trace in,
//! same starts out; nothing here reads a clock.

pub mod common_day;
pub mod figures;
pub mod play;

use crate::fair_share::FairLeaf;
use crate::names::ResourceGroupId;
use crate::resources::Demand;

/// Users and their jobs, the earliest job first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkloadTrace {
    /// `TraceJob::user` is an index of this.
    pub users: Vec<TraceUser>,
    pub jobs: Vec<TraceJob>,
}

/// Whose jobs they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceUser {
    pub name: String,
    pub leaf: FairLeaf,
}

/// One job. Times are seconds since the trace begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceJob {
    pub submit: u64,
    pub user: usize,
    pub demand: Demand,
    pub group: ResourceGroupId,
    /// Seconds that it may run; None without a limit.
    pub limit: Option<u64>,
    /// Seconds that it runs.
    pub run: u64,
}

impl TraceJob {
    /// Seconds that it has its place: its limit ends it where it would run longer.
    pub fn held(&self) -> u64 {
        self.limit.map_or(self.run, |limit| self.run.min(limit))
    }
}

#[cfg(test)]
mod tests;
