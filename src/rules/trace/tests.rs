//! Traces, and what the scheduler makes of them.

use std::collections::BTreeMap;

use super::common_day::{
    COMMON_CARDS, COMMON_SEED, TraceClass, WORKING_HOURS, class, common_cluster, common_trace,
};
use super::figures::{ValueSpread, card_seconds, forecasts, slowdown, slowdowns, waits};
use super::play::{JobStart, PlayForecasts, PlayOptions, PlayedJob, ToldStart, play};
use super::*;
use crate::fair_share::QueueOrder;
use crate::placement::{Decision, decide};
use crate::policy::BackfillMode;
use crate::units::Timestamp;
use crate::world::ClusterSnapshot;

/// Rules under which traces are played here.
const RULES: [(QueueOrder, BackfillMode); 5] = [
    (QueueOrder::Fifo, BackfillMode::Strict),
    (QueueOrder::Fifo, BackfillMode::Timed),
    (QueueOrder::Fair, BackfillMode::Strict),
    (QueueOrder::Fair, BackfillMode::Timed),
    (QueueOrder::Turns, BackfillMode::Timed),
];

fn options() -> PlayOptions<'static> {
    PlayOptions {
        start: Timestamp::from_millis(1_764_028_800_000),
        half_life_hours: 168,
        forecasts: PlayForecasts::None,
    }
}

/// Every eighth job of a seed, for one of the three machines.
fn small_trace(seed: u64) -> WorkloadTrace {
    let mut trace = common_trace(seed);
    let mut number = 0_u32;
    trace.jobs.retain(|_| {
        number += 1;
        number.is_multiple_of(8)
    });
    trace
}

fn played(trace: &WorkloadTrace, (order, backfill): (QueueOrder, BackfillMode)) -> Vec<PlayedJob> {
    let mut world = common_cluster(order, backfill);
    world.nodes.truncate(1);
    play(world, trace, options(), &mut decided)
}

fn decided(world: &ClusterSnapshot, now: Timestamp) -> Option<Vec<Decision>> {
    Some(decide(world, now))
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_one_another() {
    let trace = common_trace(COMMON_SEED);
    assert_eq!(trace, common_trace(COMMON_SEED));
    assert_ne!(trace.jobs, common_trace(COMMON_SEED + 1).jobs);
    // The same numbers as in any other program that draws them by the same rule.
    let first = &trace.jobs[0];
    let sum: u64 = trace.jobs.iter().map(|job| job.submit + job.run).sum();
    assert_eq!(
        (first.submit, first.user, first.demand.gpu.0, first.run, sum),
        (102, 88, 100, 60, 87_248_017)
    );
}

#[test]
fn the_common_trace_is_what_it_is_said_to_be() {
    for seed in [COMMON_SEED, 1, 2, 3] {
        let trace = common_trace(seed);
        assert_eq!(trace.jobs.len(), 2_000, "{seed}");
        assert!(trace.jobs.is_sorted_by_key(|job| job.submit), "{seed}");
        let of = |wanted: TraceClass| {
            let jobs = trace.jobs.iter();
            jobs.filter(move |job| class(job.user) == wanted)
        };
        assert_eq!(of(TraceClass::Student).count(), 80, "{seed}");
        assert_eq!(of(TraceClass::Sweep).count(), 400, "{seed}");
        assert!(of(TraceClass::Sweep).all(|job| job.submit == 30_600));
        assert!(of(TraceClass::Student).all(|job| (32_400..32_700).contains(&job.submit)));
        let (from, to) = WORKING_HOURS;
        let inside = of(TraceClass::Lab).filter(|job| (from..to).contains(&job.submit));
        let inside = inside.count();
        assert!((960..1_070).contains(&inside), "{seed}: {inside} of 1,520");
        let held: u64 = trace
            .jobs
            .iter()
            .map(|job| u64::from(job.demand.gpu.0) * job.held())
            .sum();
        assert_eq!(held / 360_000, 531, "{seed}: 532 less what rounding takes");
        for job in &trace.jobs {
            assert!(job.limit.is_some_and(|limit| limit >= job.run), "{job:?}");
            assert!(job.submit < 86_400 && job.run > 0, "{job:?}");
            assert!((10..=800).contains(&job.demand.gpu.0), "{job:?}");
            assert!(trace.users.get(job.user).is_some(), "{job:?}");
        }
    }
}

#[test]
fn every_job_starts_no_earlier_than_it_arrives_and_no_card_is_given_twice() {
    for seed in [COMMON_SEED, 7] {
        let trace = small_trace(seed);
        for rules in RULES {
            let context = format!("seed {seed}, {rules:?}");
            let all = played(&trace, rules);
            let mut changes: BTreeMap<(u64, i64), Vec<(u32, i64)>> = BTreeMap::new();
            for (job, one) in trace.jobs.iter().zip(&all) {
                let start = one.start.as_ref();
                let start = start.unwrap_or_else(|| panic!("{context}: {job:?} never started"));
                assert!(start.at >= job.submit, "{context}: {job:?}");
                let given: u32 = start.devices.iter().map(|one| one.share.0).sum();
                assert_eq!(given, job.demand.gpu.0, "{context}: {job:?}");
                let end = start.at + job.held();
                for device in &start.devices {
                    let share = i64::from(device.share.0);
                    // What ends at a moment goes before what starts then.
                    let ends = changes.entry((end, 0)).or_default();
                    ends.push((device.index, -share));
                    let starts = changes.entry((start.at, 1)).or_default();
                    starts.push((device.index, share));
                }
            }
            let mut held: BTreeMap<u32, i64> = BTreeMap::new();
            for ((at, _), changed) in changes {
                for (device, share) in changed {
                    let of_device = held.entry(device).or_default();
                    *of_device += share;
                    assert!(
                        (0..=100).contains(&*of_device),
                        "{context}: {at} s, {device}"
                    );
                }
            }
            assert!(held.values().all(|left| *left == 0), "{context}");
        }
    }
}

#[test]
fn the_same_trace_under_the_same_rules_comes_to_the_same() {
    let trace = small_trace(3);
    for rules in [RULES[1], RULES[3]] {
        assert_eq!(played(&trace, rules), played(&trace, rules), "{rules:?}");
    }
}

#[test]
fn fair_share_lets_a_course_in_before_the_rest_of_a_sweep() {
    let trace = small_trace(COMMON_SEED);
    let students = |job: &TraceJob| class(job.user) == TraceClass::Student;
    let fifo = waits(&trace, &played(&trace, RULES[1]), students);
    let fair = waits(&trace, &played(&trace, RULES[3]), students);
    assert_eq!(fifo.count, fair.count);
    assert!(fair.p50 * 4 < fifo.p50.max(4), "{fair:?}, {fifo:?}");
}

#[test]
fn what_fits_no_machine_never_starts_and_holds_no_end_back() {
    let mut trace = small_trace(5);
    trace.jobs[0].demand.gpu = crate::units::GpuShare(900);
    let all = played(&trace, RULES[0]);
    assert_eq!(all[0].start, None);
    assert!(all[1..].iter().all(|one| one.start.is_some()));
}

#[test]
fn a_scheduler_that_gives_up_is_not_asked_again() {
    let trace = small_trace(2);
    let mut asked = 0;
    let mut scheduler = |world: &ClusterSnapshot, now: Timestamp| {
        asked += 1;
        (asked < 10).then(|| decide(world, now))
    };
    let world = common_cluster(QueueOrder::Fair, BackfillMode::Strict);
    let all = play(world, &trace, options(), &mut scheduler);
    assert_eq!(all.len(), trace.jobs.len());
    assert!(all.iter().any(|one| one.start.is_none()));
    assert_eq!(asked, 10);
}

#[test]
fn forecasts_of_a_settled_queue_are_kept() {
    let trace = small_trace(COMMON_SEED);
    let mut world = common_cluster(QueueOrder::Fifo, BackfillMode::Strict);
    world.nodes.truncate(1);
    let options = PlayOptions {
        forecasts: PlayForecasts::Declared,
        ..options()
    };
    let all = play(world, &trace, options, &mut decided);
    let record = forecasts(&all);
    assert!(record.count > 10, "{record:?}");
    assert!(record.kept >= 80, "{record:?}");
}

/// On a day like the day before they are nearer to the true ones, and most sessions have started by the later time that is
/// told.
///
/// Proves too: `starts_come_when_they_are_expected`
#[test]
fn what_runs_took_tells_starts_better_than_limits_do() {
    let (trace, before) = (small_trace(COMMON_SEED), small_trace(COMMON_SEED + 1));
    let record = |kind| {
        let mut world = common_cluster(QueueOrder::Fair, BackfillMode::Timed);
        world.nodes.truncate(1);
        let options = PlayOptions {
            forecasts: kind,
            ..options()
        };
        forecasts(&play(world, &trace, options, &mut decided))
    };
    let declared = record(PlayForecasts::Declared);
    let likely = record(PlayForecasts::Likely(&before));
    assert!(
        declared.count > 10 && likely.count > 10,
        "{declared:?}, {likely:?}"
    );
    assert!(
        likely.error_p50 < declared.error_p50,
        "{declared:?}, {likely:?}"
    );
    assert!(likely.kept >= 70, "{declared:?}, {likely:?}");
}

#[test]
fn a_record_says_how_far_off_starts_were_and_to_which_side() {
    let one = |told: u64, came: u64| PlayedJob {
        start: Some(JobStart {
            at: came,
            node: None,
            devices: Vec::new(),
        }),
        told: Some(ToldStart {
            asked: 100,
            at: told,
            late: told + 50,
        }),
    };
    let untold = PlayedJob::default();
    // Half of what is left too late, a quarter too early but by the later time, too early beyond it, and true.
    let played = [
        one(250, 200),
        one(250, 300),
        one(200, 300),
        one(400, 400),
        untold,
    ];
    let record = forecasts(&played);
    assert_eq!((record.count, record.early, record.kept), (4, 25, 75));
    assert_eq!(record.error_p50, 25);
}

#[test]
fn figures_count_what_was_held_and_what_was_waited() {
    assert_eq!(slowdown(0, 10), 100);
    assert_eq!(slowdown(60, 60), 200);
    assert_eq!(slowdown(590, 10), 1_000, "a short run counts as a minute");
    let spread = ValueSpread::of(1..=100);
    assert_eq!((spread.p50, spread.p95, spread.max), (50, 95, 100));
    assert_eq!(ValueSpread::of([]), ValueSpread::default());
    let trace = small_trace(1);
    let all = played(&trace, RULES[0]);
    let whole = card_seconds(&trace, &all, (0, u64::MAX), |_| true);
    let asked: u64 = trace
        .jobs
        .iter()
        .map(|job| u64::from(job.demand.gpu.0) * job.held())
        .sum();
    assert_eq!(whole, asked);
    let (from, to) = WORKING_HOURS;
    let busy = card_seconds(&trace, &all, WORKING_HOURS, |_| true);
    assert!(busy <= (to - from) * COMMON_CARDS / 3, "{busy}");
    let slow = slowdowns(&trace, &all, |_| true);
    assert!(slow.p50 >= 100 && slow.count == trace.jobs.len() as u64);
}
