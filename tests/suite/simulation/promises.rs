//! Four promises of the queue at once, by the rules alone: no reserved device to a stranger, no sum beyond a limit, no
//! preemption in a circle, no session that waits for ever. A few seeds in every run, ten thousand at night; each fault is
//! planted and found.

use std::collections::{BTreeMap, BTreeSet};

use rules::fair_share::QueueOrder;
use rules::names::{BootId, NodeId, ReservationId, ResourceGroupId, SessionId, SessionName};
use rules::names::{TenantName, UserId};
use rules::placement::{Decision, decide, preempt, reserve};
use rules::policy::PreemptionMode;
use rules::quota::{PolicyLevel, PolicyLimits, ScopedPolicy};
use rules::reservation::{
    BeforeReservation, ReservationAmount, ReservationHolder, ReservationState, ReservationTime,
    check,
};
use rules::resource_group::{GroupPlan, ResourceGroup};
use rules::resources::{Capacity, Demand, Device};
use rules::session::{
    Outcome, Session, SessionEnvironment, SessionKind, SessionSpec, SessionState,
};
use rules::tenancy::ProjectId;
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rules::workload::precedence::{MAX_PRIORITY, Precedence};
use rules::world::{ClusterSnapshot, NodeRecord};

use super::random::Random;
use super::rule_seeds;

/// Seeds of every run of the tests, two of each sort of day.
const SEEDS: u64 = 6;
/// A planted fault that needs more is not found.
const SEEDS_TO_FIND: u64 = 60;
/// Minutes in which users launch; then everything comes to rest.
const BUSY: u64 = 300;
/// Minutes after which what still waits waits for ever.
const REST: u64 = 1_500;
/// Longest run, minutes.
const RUN: u64 = 30;
/// Sessions that wait at once; more users than that go away.
const QUEUED: usize = 8;
const NODES: u32 = 2;
const GPUS: u32 = 4;
/// Hundredths of a session that needs a whole node.
const LARGE: u32 = 400;
/// Hundredths of GPUs that each user may hold, the first user, and the first project; sessions of that project.
const EACH: u64 = 400;
const FIRST_USER: u64 = 200;
const FIRST_PROJECT: u64 = 500;
const PROJECT_SESSIONS: u64 = 6;

/// What a day is about: promises of one stand in the way of those of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DaySort {
    /// One order by time, and nothing else: each has its turn.
    Plain,
    /// Reservations, limits, any order.
    Reserved,
    /// Priorities, preemption, limits.
    Urgent,
}

impl DaySort {
    fn of(seed: u64) -> Self {
        match seed % 3 {
            0 => Self::Plain,
            1 => Self::Reserved,
            _ => Self::Urgent,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlantedFault {
    /// Places are given as if nothing was reserved.
    Stranger,
    /// Places are given as if no policy bounded a sum.
    Unbounded,
    /// A session that was preempted preempts as if it were the most urgent of all.
    Back,
    /// Large sessions are looked at last.
    LargeLast,
    /// Who made way is not looked at again.
    Forgotten,
}

impl PlantedFault {
    const ALL: [Self; 5] = [
        Self::Stranger,
        Self::Unbounded,
        Self::Back,
        Self::LargeLast,
        Self::Forgotten,
    ];

    /// On which days it changes anything.
    fn sort(self) -> DaySort {
        match self {
            Self::Stranger | Self::Unbounded => DaySort::Reserved,
            Self::Back | Self::Forgotten => DaySort::Urgent,
            Self::LargeLast => DaySort::Plain,
        }
    }

    /// Words of the promise that has to find it.
    fn promise(self) -> &'static str {
        match self {
            Self::Stranger => "reserved for others",
            Self::Unbounded => "more than its limit",
            Self::Back => "made way for it",
            Self::LargeLast => "waits for longer",
            Self::Forgotten => "waits for ever",
        }
    }
}

/// What happened, so that a day without anything is seen.
#[derive(Debug, Default, Clone, Copy)]
struct DayTally {
    placed: u64,
    members: u64,
    displaced: u64,
    preempted: u64,
    at_limit: u64,
}

impl DayTally {
    fn plus(self, other: Self) -> Self {
        Self {
            placed: self.placed + other.placed,
            members: self.members + other.members,
            displaced: self.displaced + other.displaced,
            preempted: self.preempted + other.preempted,
            at_limit: self.at_limit + other.at_limit,
        }
    }
}

struct PromiseDay {
    random: Random,
    planted: Option<PlantedFault>,
    sort: DaySort,
    world: ClusterSnapshot,
    minute: u64,
    next: u128,
    /// How many minutes each session runs.
    runs: BTreeMap<SessionId, u64>,
    /// The minute by which each of those that wait has its place, on a plain day.
    due: BTreeMap<SessionId, u64>,
    /// Who made way for whom.
    made_way: BTreeSet<(SessionId, SessionId)>,
    tally: DayTally,
    broken: Option<String>,
}

fn node(number: u32) -> NodeRecord {
    NodeRecord {
        id: NodeId(uuid::Uuid::from_u128(u128::from(number))),
        name: format!("node-{number}"),
        boot: BootId(uuid::Uuid::nil()),
        capacity: Capacity {
            cpu: CpuShare(6_400),
            memory: Bytes::gib(256),
            devices: (0..GPUS)
                .map(|index| Device {
                    memory: Bytes::gib(80),
                    uuid: format!("device-{number}-{index}"),
                    ..Device::new(index, "device")
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
    }
}

fn user(number: u64) -> UserId {
    UserId(uuid::Uuid::from_u128(u128::from(number)))
}

fn project(number: u64) -> ProjectId {
    ProjectId(uuid::Uuid::from_u128(u128::from(1_000 + number)))
}

fn policies() -> Vec<ScopedPolicy> {
    let gpus = |hundredths| PolicyLimits {
        gpu: Some(hundredths),
        ..PolicyLimits::NONE
    };
    let policy = |level, subject, limits| ScopedPolicy {
        level,
        subject,
        whose: String::new(),
        name: "limits".to_owned(),
        limits,
    };
    let both = PolicyLimits {
        sessions: Some(PROJECT_SESSIONS),
        ..gpus(FIRST_PROJECT)
    };
    vec![
        policy(PolicyLevel::Site, None, gpus(EACH)),
        policy(PolicyLevel::User, Some(user(1).0), gpus(FIRST_USER)),
        policy(PolicyLevel::Project, Some(project(1).0), both),
    ]
}

impl PromiseDay {
    fn new(seed: u64, planted: Option<PlantedFault>) -> Self {
        let mut random = Random::new(seed);
        let sort = DaySort::of(seed);
        let mut world = ClusterSnapshot {
            nodes: (0..NODES).map(node).collect(),
            ..ClusterSnapshot::default()
        };
        world.policy.order = match sort {
            DaySort::Plain => QueueOrder::Fifo,
            DaySort::Reserved => *random.pick(&QueueOrder::ALL),
            // Who is preempted by whom hangs on no turn.
            DaySort::Urgent => QueueOrder::Fifo,
        };
        if sort != DaySort::Plain {
            world.limits = policies();
        }
        if sort == DaySort::Urgent {
            let name = TenantName::parse("default").expect("letters");
            let founding = ResourceGroup {
                preemption: PreemptionMode::Priority,
                ..ResourceGroup::new(ResourceGroupId::DEFAULT, name)
            };
            world.groups = GroupPlan {
                groups: vec![founding],
                ..GroupPlan::default()
            };
        }
        Self {
            random,
            planted,
            sort,
            world,
            minute: 0,
            next: 10_000,
            runs: BTreeMap::new(),
            due: BTreeMap::new(),
            made_way: BTreeSet::new(),
            tally: DayTally::default(),
            broken: None,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis((10_000 + self.minute as i64) * 60_000)
    }

    fn id(&mut self) -> uuid::Uuid {
        self.next += 1;
        uuid::Uuid::from_u128(self.next)
    }

    fn breaks(&mut self, promise: String) {
        self.broken.get_or_insert(promise);
    }

    fn launch(&mut self) {
        let (id, now) = (SessionId(self.id()), self.now());
        let owner = self.random.between(1, 5);
        let is_large = |one: &Session| one.is_pending() && one.spec.demand.gpu.0 >= LARGE;
        let shares: &[u32] = match self.sort {
            // One large one waits at a time: a queue of large ones alone would starve none.
            DaySort::Plain if self.world.sessions.iter().any(is_large) => &[25, 50, 100, 200],
            DaySort::Plain => &[25, 50, 100, 100, 200, LARGE],
            // No more than the strictest limit: what is beyond is refused, and does not wait.
            DaySort::Reserved | DaySort::Urgent => &[0, 25, 50, 100, 100, 200],
        };
        let run = self.random.between(5, RUN);
        let spec = SessionSpec {
            kind: SessionKind::Batch,
            environment: SessionEnvironment::Host,
            command: vec!["true".into()],
            env: BTreeMap::new(),
            demand: Demand {
                cpu: CpuShare(100),
                memory: Bytes::gib(1),
                gpu: GpuShare(*self.random.pick(shares)),
                ..Demand::default()
            },
            timeout_seconds: None,
            max_runtime_seconds: self.random.chance(50).then_some(60 * run),
            start_at: None,
            depends_on: Vec::new(),
            containers: 1,
        };
        let name = SessionName::parse(&format!("s{}", self.next)).expect("letters");
        let mut session = Session::launched(id, name, user(owner), spec, now);
        session.project = project(owner % 2);
        if self.sort == DaySort::Urgent {
            session.precedence = Precedence {
                priority: *self.random.pick(&[0, 5, 10, 10, 50]),
                yields: self.random.chance(70),
            };
        }
        if self.sort == DaySort::Plain {
            // The first session starts once all that run are over, and so does each behind it.
            let turns = self.waiting() as u64 + 1;
            self.due.insert(id, self.minute + turns * (RUN + 2));
        }
        self.runs.insert(id, run);
        self.world.sessions.push(session);
    }

    fn waiting(&self) -> usize {
        let sessions = self.world.sessions.iter();
        sessions.filter(|session| session.is_pending()).count()
    }

    fn book(&mut self) {
        let now = self.now();
        let from = now.plus_seconds(60 * self.random.between(5, 120));
        let to = from.plus_seconds(60 * self.random.between(20, 60));
        let amount = ReservationAmount {
            gpu: GpuShare(100 * self.random.between(1, 3) as u32),
            cpu: CpuShare(400),
            memory: Bytes::gib(8),
        };
        let room = ReservationAmount {
            gpu: GpuShare(NODES * GPUS * 100),
            cpu: CpuShare(NODES * 6_400),
            memory: Bytes::gib(u64::from(NODES) * 256),
        };
        if check(amount, &[(from, to)], &self.world.reservations, room, now).is_err() {
            return;
        }
        let holder = match self.random.between(0, 4) {
            0 => ReservationHolder::Maintenance,
            1 => ReservationHolder::Project(project(self.random.between(0, 1))),
            _ => ReservationHolder::User(user(self.random.between(1, 5))),
        };
        let before = *self.random.pick(&BeforeReservation::ALL);
        let id = ReservationId(self.id());
        self.world.reservations.push(ReservationTime {
            id,
            number: 1,
            holder,
            amount,
            from,
            to,
            before,
            state: ReservationState::Booked,
            parts: Vec::new(),
            warned_at: None,
            told: Vec::new(),
            unused_since: None,
        });
    }

    /// Ends what is over, and within two minutes what is being stopped; who was preempted waits again.
    fn end_sessions(&mut self, now: Timestamp) {
        let runs = &self.runs;
        self.world.sessions.retain(|session| {
            let ran = session.started_at().map(|at| now.seconds_since(at) / 60);
            session.state() != SessionState::Running
                || ran.is_none_or(|ran| ran < runs[&session.id])
        });
        for session in &mut self.world.sessions {
            let Some(since) = session.stopping_at() else {
                continue;
            };
            if now.seconds_since(since) >= 120 || self.random.chance(50) {
                session.end(Outcome::Stopped, None, now);
            }
        }
        self.world.sessions.retain(Session::is_live);
    }

    fn step_reservations(&mut self, now: Timestamp) {
        for step in reserve(&self.world, now) {
            let is_active = step.time.state == ReservationState::Active;
            let mut rows = self.world.reservations.iter_mut();
            if let Some(row) = rows.find(|row| row.id == step.time.id) {
                *row = step.time;
            }
            if !is_active {
                continue;
            }
            for other in step.displaced {
                self.tally.displaced += 1;
                let mut all = self.world.sessions.iter_mut();
                if let Some(session) = all.find(|one| one.id == other.session) {
                    session.end(Outcome::Stopped, None, now);
                    if other.requeue {
                        session.begin_again(now);
                    }
                }
            }
            self.world.sessions.retain(Session::is_live);
        }
        self.world.reservations.retain(|time| time.state.counts());
    }

    /// The world as the scheduler sees it, or as it would with the planted fault.
    fn seen(&self, now: Timestamp) -> ClusterSnapshot {
        let mut seen = self.world.clone();
        match self.planted {
            Some(PlantedFault::Stranger) => seen.reservations.clear(),
            Some(PlantedFault::Unbounded) => seen.limits.clear(),
            Some(PlantedFault::LargeLast) => {
                let large = |one: &&mut Session| one.is_pending() && one.spec.demand.gpu.0 >= LARGE;
                for session in seen.sessions.iter_mut().filter(large) {
                    session.queued_at = now;
                }
            }
            Some(PlantedFault::Forgotten) => seen
                .sessions
                .retain(|one| !one.is_pending() || one.preempted_count == 0),
            Some(PlantedFault::Back) | None => {}
        }
        seen
    }

    fn place(&mut self, now: Timestamp) {
        for decision in decide(&self.seen(now), now) {
            let Decision::Place {
                session,
                node,
                devices,
                because,
                ..
            } = decision
            else {
                continue;
            };
            let mut all = self.world.sessions.iter_mut();
            if let Some(row) = all.find(|one| one.id == session) {
                row.place(node, devices, because, now);
                row.run_since(now);
                self.due.remove(&session);
                self.tally.placed += 1;
            }
        }
    }

    fn preempt(&mut self, now: Timestamp) {
        let mut seen = self.seen(now);
        if self.planted == Some(PlantedFault::Back) {
            let back = |one: &&mut Session| one.is_pending() && one.preempted_count > 0;
            for session in seen.sessions.iter_mut().filter(back) {
                session.precedence.priority = MAX_PRIORITY;
            }
        }
        for step in preempt(&seen, &BTreeSet::new(), now) {
            if self.did_make_way(step.by, step.victim) {
                let (victim, by) = (step.victim, step.by);
                self.breaks(format!(
                    "{victim} makes way for {by}, which made way for it"
                ));
            }
            self.made_way.insert((step.victim, step.by));
            self.tally.preempted += 1;
            let mut all = self.world.sessions.iter_mut();
            if let Some(victim) = all.find(|one| one.id == step.victim) {
                victim.preempt(now);
            }
        }
    }

    /// Whether the first one made way for the second, or for one that did, and so on.
    fn did_make_way(&self, first: SessionId, second: SessionId) -> bool {
        let mut reached = BTreeSet::from([first]);
        loop {
            let known = reached.len();
            let steps = self.made_way.iter();
            let next: Vec<SessionId> = steps
                .filter(|(victim, _)| reached.contains(victim))
                .map(|(_, by)| *by)
                .collect();
            reached.extend(next);
            if reached.contains(&second) {
                return true;
            }
            if reached.len() == known {
                return false;
            }
        }
    }

    /// Counted from the rows, without the scheduler's own sums.
    fn look(&mut self) {
        self.no_stranger_has_what_is_reserved();
        if self.sort != DaySort::Plain {
            self.no_sum_is_exceeded();
        }
        let late = self.due.iter().find(|(_, minute)| **minute < self.minute);
        if let Some((id, minute)) = late {
            let promise = format!("{id} waits for longer than until minute {minute}");
            self.breaks(promise);
        }
    }

    fn no_stranger_has_what_is_reserved(&mut self) {
        let mut broken = None;
        let mut members = 0;
        let active = |time: &&ReservationTime| time.state == ReservationState::Active;
        for time in self.world.reservations.iter().filter(active) {
            let kept: BTreeSet<&str> = time
                .parts
                .iter()
                .flat_map(|part| part.devices.iter().map(String::as_str))
                .collect();
            for node in &self.world.nodes {
                let devices = node.capacity.devices.iter();
                let kept: BTreeSet<u32> = devices
                    .filter(|device| kept.contains(device.uuid.as_str()))
                    .map(|device| device.index)
                    .collect();
                for session in &self.world.sessions {
                    let held = session.held_on(node.id);
                    if !held.iter().any(|share| kept.contains(&share.index)) {
                        continue;
                    }
                    match time.holder.admits(session) {
                        true => members += 1,
                        false => broken = Some(session.name.clone()),
                    }
                }
            }
        }
        self.tally.members += members;
        if let Some(name) = broken {
            self.breaks(format!("{name} has a device that is reserved for others"));
        }
    }

    fn no_sum_is_exceeded(&mut self) {
        let mut of_users: BTreeMap<UserId, u64> = BTreeMap::new();
        let (mut of_project, mut sessions) = (0, 0);
        for session in self.world.sessions.iter().filter(|one| !one.is_pending()) {
            let held: u64 = session
                .holds()
                .iter()
                .map(|share| u64::from(share.share.0))
                .sum();
            *of_users.entry(session.owner).or_default() += held;
            if session.project == project(1) {
                of_project += held;
                sessions += 1;
            }
        }
        let first = of_users.get(&user(1)).copied().unwrap_or(0);
        let most = of_users.values().copied().max().unwrap_or(0);
        let sums = [
            ("the first user", first, FIRST_USER),
            ("a user", most, EACH),
            ("the project", of_project, FIRST_PROJECT),
            ("the project, in sessions,", sessions, PROJECT_SESSIONS),
        ];
        for (whose, sum, limit) in sums {
            self.tally.at_limit += u64::from(sum == limit);
            if sum > limit {
                self.breaks(format!(
                    "{whose} holds {sum}, more than its limit of {limit}"
                ));
            }
        }
    }

    /// One minute; gives whether anything is left to do.
    fn tick(&mut self) -> bool {
        self.minute += 1;
        let now = self.now();
        for node in &mut self.world.nodes {
            node.seen_at = now;
        }
        self.end_sessions(now);
        let is_busy = self.minute < BUSY;
        while is_busy && self.waiting() < QUEUED && self.random.chance(40) {
            self.launch();
        }
        if self.sort == DaySort::Reserved {
            if is_busy && self.random.chance(8) {
                self.book();
            }
            if self.random.chance(1) {
                self.world.reservations.pop();
            }
        }
        self.step_reservations(now);
        self.place(now);
        if self.sort == DaySort::Urgent {
            self.preempt(now);
        }
        self.look();
        is_busy || !self.world.sessions.is_empty()
    }

    fn play(mut self) -> Self {
        while self.tick() && self.broken.is_none() {
            if self.minute > BUSY + REST {
                let left = self.waiting();
                self.breaks(format!("one of {left} waits for ever"));
            }
        }
        self
    }
}

/// However users launch, reserve and preempt, no reserved device goes to a stranger, no sum is beyond a limit, no session
/// preempts in a circle, and each has its turn.
///
/// Proves too: `reserved_devices_are_their_members_alone`
#[test]
fn no_stranger_no_sum_no_circle_and_a_turn_for_each() {
    let seeds = rule_seeds(SEEDS);
    let sum = super::on_all_processors(seeds, |seed| {
        let day = PromiseDay::new(seed, None).play();
        assert_eq!(
            day.broken, None,
            "seed {seed}, a {:?} day, minute {}: FARDEL_SEED={seed} replays it",
            day.sort, day.minute
        );
        day.tally
    });
    let all = sum.into_iter().fold(DayTally::default(), DayTally::plus);
    println!("{seeds} seeds: {all:?}");
    let least = [
        all.placed,
        all.members,
        all.displaced,
        all.preempted,
        all.at_limit,
    ];
    let is_alone = super::number("FARDEL_SEED").is_some();
    assert!(is_alone || least.iter().all(|count| *count > 0), "{all:?}");
}

#[test]
fn each_planted_fault_of_the_four_promises_is_found() {
    for planted in PlantedFault::ALL {
        let mut seeds = (0..SEEDS_TO_FIND).filter(|seed| DaySort::of(*seed) == planted.sort());
        let found = seeds.find_map(|seed| {
            let day = PromiseDay::new(seed, Some(planted)).play();
            let promise = day.broken?;
            promise
                .contains(planted.promise())
                .then_some((seed, promise))
        });
        let (seed, promise) = found.unwrap_or_else(|| panic!("no seed shows {planted:?}"));
        println!("{planted:?} found by seed {seed}: {promise}");
    }
}
