//! What came of a trace that was played: waits, slowdown, use, and how well forecasts held. Whole numbers, so that two
//! machines print the same; quantiles are values that occurred, by nearest rank.

use super::play::PlayedJob;
use super::{TraceJob, WorkloadTrace};

/// Seconds below which a run counts as this long for its slowdown: else a job of one second that waited a minute has the
/// worst of all.
const MIN_SLOWDOWN_RUN: u64 = 60;

/// Values with their middle and their tail; all zero where there are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValueSpread {
    pub count: u64,
    pub mean: u64,
    pub p50: u64,
    pub p95: u64,
    pub max: u64,
}

impl ValueSpread {
    pub fn of(values: impl IntoIterator<Item = u64>) -> Self {
        let mut sorted: Vec<u64> = values.into_iter().collect();
        sorted.sort_unstable();
        let Some(max) = sorted.last().copied() else {
            return Self::default();
        };
        let count = sorted.len() as u64;
        let sum = sorted
            .iter()
            .fold(0_u64, |sum, one| sum.saturating_add(*one));
        let rank = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100);
            sorted.get(rank.saturating_sub(1)).copied().unwrap_or(max)
        };
        Self {
            count,
            mean: sum / count,
            p50: rank(50),
            p95: rank(95),
            max,
        }
    }
}

/// Seconds that jobs waited, of those that started and are among `wanted`.
pub fn waits(
    trace: &WorkloadTrace,
    played: &[PlayedJob],
    wanted: impl Fn(&TraceJob) -> bool,
) -> ValueSpread {
    of_waits(trace, played, wanted, |_, wait| wait)
}

/// Slowdown in hundredths: wait and run as a multiple of the run, a run of less than a minute counted as one; at least 100.
pub fn slowdown(wait: u64, run: u64) -> u64 {
    let multiple = (wait + run) * 100 / run.max(MIN_SLOWDOWN_RUN);
    multiple.max(100)
}

/// The slowdown of all jobs that started and are among `wanted`, in hundredths.
pub fn slowdowns(
    trace: &WorkloadTrace,
    played: &[PlayedJob],
    wanted: impl Fn(&TraceJob) -> bool,
) -> ValueSpread {
    of_waits(trace, played, wanted, |job, wait| {
        slowdown(wait, job.held())
    })
}

/// What `figure` makes of each job that started and is among `wanted`, and of the seconds that it waited.
fn of_waits(
    trace: &WorkloadTrace,
    played: &[PlayedJob],
    wanted: impl Fn(&TraceJob) -> bool,
    figure: impl Fn(&TraceJob, u64) -> u64,
) -> ValueSpread {
    let all = trace.jobs.iter().zip(played);
    ValueSpread::of(all.filter(|(job, _)| wanted(job)).filter_map(|(job, one)| {
        let start = one.start.as_ref()?;
        Some(figure(job, start.at.saturating_sub(job.submit)))
    }))
}

/// Hundredths of cards times seconds that were held in a window of the trace, by the jobs that are among `wanted`.
pub fn card_seconds(
    trace: &WorkloadTrace,
    played: &[PlayedJob],
    (from, to): (u64, u64),
    wanted: impl Fn(&TraceJob) -> bool,
) -> u64 {
    let all = trace.jobs.iter().zip(played);
    let held = all.filter(|(job, _)| wanted(job)).map(|(job, one)| {
        let Some(start) = &one.start else {
            return 0;
        };
        let end = start.at.saturating_add(job.held());
        let inside = end.min(to).saturating_sub(start.at.max(from));
        u64::from(job.demand.gpu.0) * inside
    });
    held.sum()
}

/// How well forecasts held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForecastRecord {
    /// Starts that were told and came.
    pub count: u64,
    /// The median difference between what was told and what came, in hundredths of the wait that was left when it was told.
    pub error_p50: u64,
    /// Starts that came no later than told at the latest, in hundredths.
    pub kept: u64,
    /// Starts that came before they were told, in hundredths: half of them where nothing is wrong on the whole.
    pub early: u64,
}

/// Judges the first forecast of each job.
pub fn forecasts(played: &[PlayedJob]) -> ForecastRecord {
    let told = played.iter().filter_map(|one| {
        let came = one.start.as_ref()?.at;
        Some((one.told?, came))
    });
    let told: Vec<_> = told.collect();
    let kept = told
        .iter()
        .filter(|(told, came)| *came <= told.late)
        .count();
    let early = told.iter().filter(|(told, came)| *came < told.at).count();
    let errors = told.iter().map(|(told, came)| {
        let left = came.saturating_sub(told.asked).max(1);
        came.abs_diff(told.at) * 100 / left
    });
    let spread = ValueSpread::of(errors);
    ForecastRecord {
        count: spread.count,
        error_p50: spread.p50,
        kept: kept as u64 * 100 / spread.count.max(1),
        early: early as u64 * 100 / spread.count.max(1),
    }
}
