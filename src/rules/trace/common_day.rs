//! The common trace: a day of a site with 24 cards on three machines. A course of eighty begins at nine, one user has
//! queued four hundred jobs half an hour before, and eleven others work through the day. Every number is drawn from a seed in
//! whole numbers, so that the same seed gives the same bytes on each machine.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::{TraceJob, TraceUser, WorkloadTrace};
use crate::fair_share::{FairLeaf, QueueOrder};
use crate::names::{BootId, NodeId, ResourceGroupId, UserId};
use crate::policy::{BackfillMode, SharePolicy};
use crate::resources::{Capacity, Demand, Device};
use crate::tenancy::{DomainId, ProjectId};
use crate::units::{Bytes, CpuShare, GpuShare, Timestamp};
use crate::world::{ClusterSnapshot, NodeRecord};

/// The seed of the figures that stand in the design.
pub const COMMON_SEED: u64 = 20_261_122;
const HOUR: u64 = 3_600;
const NODES: u32 = 3;
const CARDS: u32 = 8;
/// Hundredths of cards that there are.
pub const COMMON_CARDS: u64 = 100 * NODES as u64 * CARDS as u64;
/// The hours of the day whose use is told.
pub const WORKING_HOURS: (u64, u64) = (9 * HOUR, 19 * HOUR);
const STUDENTS: usize = 80;
const SWEEP_JOBS: u64 = 400;
const LABS: usize = 11;
const LAB_JOBS: u64 = 1_520;
/// Card-hours of all jobs together, of 576 that the day has.
const CARD_HOURS: u64 = 532;
/// Amounts of the eleven, in hundredths of a card, and how many of a hundred jobs ask for that.
const SIZES: [(u32, u64); 8] = [
    (10, 12),
    (20, 10),
    (25, 8),
    (50, 20),
    (100, 34),
    (200, 10),
    (400, 4),
    (800, 2),
];

/// Which part of the trace a user belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceClass {
    Student,
    /// The one with four hundred jobs.
    Sweep,
    Lab,
}

/// The part of the common trace that a user of it belongs to.
pub fn class(user: usize) -> TraceClass {
    match user {
        user if user < STUDENTS => TraceClass::Student,
        STUDENTS => TraceClass::Sweep,
        _ => TraceClass::Lab,
    }
}

/// The jobs of a seed: 2,000, the earliest first. Times count from midnight.
pub fn common_trace(seed: u64) -> WorkloadTrace {
    let mut numbers = SeededNumbers(seed);
    let mut jobs = Vec::new();
    for user in 0..STUDENTS {
        let submit = 9 * HOUR + numbers.below(300);
        let run = 2 * HOUR + numbers.below(HOUR + 1);
        jobs.push(job(submit, user, 15, 3 * HOUR, run));
    }
    for _ in 0..SWEEP_JOBS {
        let run = 600 + numbers.below(601);
        jobs.push(job(8 * HOUR + HOUR / 2, STUDENTS, 100, HOUR / 2, run));
    }
    let wanted = CARD_HOURS * HOUR * 100 - card_seconds(&jobs);
    let mut others: Vec<(TraceJob, u64)> = (0..LAB_JOBS).map(|_| lab_job(&mut numbers)).collect();
    let drawn: u64 = others
        .iter()
        .map(|(job, _)| u64::from(job.demand.gpu.0) * job.run)
        .sum();
    for (job, slack) in &mut others {
        job.run = (job.run * wanted / drawn.max(1)).max(1);
        // Users ask for more than they need, and in steps of five minutes.
        job.limit = Some((job.run * *slack).div_ceil(10 * 300) * 300);
    }
    jobs.extend(others.into_iter().map(|(job, _)| job));
    jobs.sort_by_key(|job| job.submit);
    WorkloadTrace {
        users: users(),
        jobs,
    }
}

/// Hundredths of cards times seconds that the jobs hold.
fn card_seconds(jobs: &[TraceJob]) -> u64 {
    let held = jobs
        .iter()
        .map(|job| u64::from(job.demand.gpu.0) * job.held());
    held.sum()
}

/// A job of one of the eleven, two thirds of them in the working hours, before its run time is scaled; and by how many
/// tenths its limit is more than that.
fn lab_job(numbers: &mut SeededNumbers) -> (TraceJob, u64) {
    let user = STUDENTS + 1 + numbers.below(LABS as u64) as usize;
    let submit = if numbers.below(3) < 2 {
        9 * HOUR + numbers.below(10 * HOUR)
    } else {
        let outside = numbers.below(14 * HOUR);
        match outside < 9 * HOUR {
            true => outside,
            false => outside + 10 * HOUR,
        }
    };
    let mut drawn = numbers.below(100);
    let mut cards = 100;
    for (size, part) in SIZES {
        if drawn < part {
            cards = size;
            break;
        }
        drawn -= part;
    }
    // As many of one minute as of two, of four, and so on to an hour.
    let shortest = 60_u64 << numbers.below(7);
    let run = shortest + numbers.below(shortest);
    let slack = 12 + numbers.below(29);
    (job(submit, user, cards, 0, run), slack)
}

fn job(submit: u64, user: usize, cards: u32, limit: u64, run: u64) -> TraceJob {
    TraceJob {
        submit,
        user,
        demand: Demand {
            cpu: CpuShare(10),
            memory: Bytes::gib(1),
            shm: Bytes::ZERO,
            disk: None,
            gpu: GpuShare(cards),
            gpu_memory: None,
            mig: None,
        },
        group: ResourceGroupId::DEFAULT,
        limit: (limit > 0).then_some(limit),
        run,
    }
}

fn users() -> Vec<TraceUser> {
    let names = (1..=STUDENTS)
        .map(|number| format!("student-{number:02}"))
        .chain(["sweep".to_owned()])
        .chain((1..=LABS).map(|number| format!("lab-{number:02}")));
    names
        .enumerate()
        .map(|(number, name)| TraceUser {
            name,
            leaf: FairLeaf {
                domain: DomainId::DEFAULT,
                project: ProjectId::DEFAULT,
                user: UserId(Uuid::from_u128(1 + number as u128)),
            },
        })
        .collect()
}

/// The three machines with nothing on them, under these rules.
pub fn common_cluster(order: QueueOrder, backfill: BackfillMode) -> ClusterSnapshot {
    let nodes = (1..=NODES).map(|number| NodeRecord {
        id: NodeId(Uuid::from_u128(u128::from(number))),
        name: format!("n{number}"),
        boot: BootId(Uuid::nil()),
        capacity: Capacity {
            cpu: CpuShare(25_600),
            memory: Bytes::gib(2_048),
            devices: (0..CARDS)
                .map(|index| Device {
                    memory: Bytes::gib(80),
                    uuid: format!("card-{number}-{index}"),
                    ..Device::new(index, "card")
                })
                .collect(),
            others: Vec::new(),
        },
        host_environment: true,
        seen_at: Timestamp::default(),
        generation: 0,
        schedulable: true,
        note: String::new(),
        cordoned: BTreeSet::new(),
        problems: Vec::new(),
    });
    ClusterSnapshot {
        nodes: nodes.collect(),
        policy: SharePolicy {
            order,
            backfill,
            ..SharePolicy::default()
        },
        ..ClusterSnapshot::default()
    }
}

/// Numbers of a seed (splitmix64): the same on each machine and in each language.
struct SeededNumbers(u64);

impl SeededNumbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 33) % bound.max(1)
    }
}
