//! A week of sessions in three projects of two domains, whose server dies, whose reports are lost, whose sessions are resized
//! and whose clock is set by two years: what `usage` says of it, at each level and for each stretch of it, against what was
//! held at each moment, told from the rows.

use std::collections::BTreeMap;

use api::sessions::Resize;
use api::usage::{Usage, UsageAmounts, UsageGrouping};
use rules::names::{BootId, NodeId, SessionId, SessionName};
use rules::permissions::Subject;
use rules::placement::decide;
use rules::resources::{Capacity, Demand, Device};
use rules::session::{Session, SessionEnvironment, SessionKind, SessionSpec, SessionState};
use rules::tenancy::{DomainId, ProjectId};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rules::users::Role;
use server::access::Caller;
use server::actions::sessions as actions;
use server::actions::tenancy::{create_domain, create_project};
use server::actions::usage::{UsageTime, usage};
use server::simulation::Simulation;
use server::simulation::fake_node::{ContainerPlan, FakeNode, SimulatedMoment};

use super::random::Random;
use super::run::caller;

/// Each costs seconds.
const SEEDS: u64 = 1;
/// Seconds between two passes.
const STEP: u64 = 1_800;
const WEEK: u64 = 7 * 86_400;
/// Seconds by which all have ended.
const OVER: u64 = WEEK + 2 * 86_400;
const START: i64 = 1_790_000_000_000;
const DAY: i64 = 86_400_000;
/// By what the clock is set: two years on, back, two years back, and right again. Each at its step.
const SET: [(u64, i64); 4] = [
    (90, 2 * 365 * DAY),
    (130, 0),
    (180, -2 * 365 * DAY),
    (230, 0),
];
/// Steps at whose commit the server dies.
const DEATHS: [u64; 3] = [60, 150, 260];
/// The server says no more than this of one time.
const DAYS_OF_ANSWER: i64 = 390;

/// Hundredths of devices, hundredths of cores, MiB and sessions, each times milliseconds.
type Held = [u64; 4];

/// Domain, project, user.
type Place = (String, String, String);

fn plus(sum: &mut Held, more: Held) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more;
    }
}

/// The whole numbers that an answer was made of.
fn exact(used: &UsageAmounts) -> Held {
    let whole = |value: f64, times: f64| (value * times).round() as u64;
    [
        whole(used.gpu_seconds, 100_000.0),
        whole(used.cpu_seconds, 100_000.0),
        whole(used.memory_mib_seconds, 1_000.0),
        whole(used.session_seconds, 1_000.0),
    ]
}

fn rate(session: &Session) -> Held {
    let demand = &session.spec.demand;
    let containers = session.live_containers();
    let shares = containers.flat_map(|container| container.holds().into_owned());
    [
        shares.map(|share| u64::from(share.share.0)).sum(),
        u64::from(demand.cpu.0),
        demand.memory.0.div_ceil(1 << 20),
        1,
    ]
}

fn node() -> FakeNode {
    let capacity = Capacity {
        cpu: CpuShare(1_600),
        memory: Bytes::gib(64),
        devices: (0..4)
            .map(|index| Device {
                memory: Bytes::gib(80),
                uuid: format!("device-{index}"),
                ..Device::new(index, "device")
            })
            .collect(),
        others: Vec::new(),
    };
    let (id, boot) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2));
    FakeNode::new(NodeId(id), "box", BootId(boot), capacity)
}

/// Where sessions belong.
struct Home {
    domain: DomainId,
    project: ProjectId,
    place: (&'static str, &'static str),
}

struct LedgerWeek {
    random: Random,
    simulation: Simulation,
    admin: Caller,
    users: Vec<Caller>,
    homes: Vec<Home>,
    node: FakeNode,
    step: u64,
    set_by: i64,
    launches: u128,
    /// What sessions hold since the last step.
    rates: BTreeMap<Place, Held>,
    sums: BTreeMap<Place, Held>,
}

impl LedgerWeek {
    async fn new(seed: u64) -> Self {
        let start = Timestamp::from_millis(START);
        let simulation = Simulation::open(start).expect("a catalog in memory opens");
        let user = |name: &str| caller(simulation.user(name, start).expect("a user"), name);
        let root = user("admin");
        let admin = Caller {
            subject: Subject {
                grants: Role::Administrator.grants(),
                ..root.subject.clone()
            },
            ..root
        };
        let users = ["kim", "lee", "jo"].map(user).into();
        let server = simulation.server();
        let made = create_domain(server, &admin, "biology", "", None).await;
        let biology = made.expect("a domain").value.id;
        let mut homes = vec![Home {
            domain: DomainId::DEFAULT,
            project: ProjectId::DEFAULT,
            place: ("default", "default"),
        }];
        for (domain, id, project) in [
            ("default", DomainId::DEFAULT, "vision"),
            ("biology", biology, "cells"),
        ] {
            let made = create_project(server, &admin, Some(domain), project, "", None).await;
            homes.push(Home {
                domain: id,
                project: made.expect("a project").value.id,
                place: (domain, project),
            });
        }
        Self {
            random: Random::new(seed),
            simulation,
            admin,
            users,
            homes,
            node: node(),
            step: 0,
            set_by: 0,
            launches: 0,
            rates: BTreeMap::new(),
            sums: BTreeMap::new(),
        }
    }

    fn second(&self) -> u64 {
        self.step * STEP
    }

    fn now(&self) -> SimulatedMoment {
        let steady = Timestamp::from_millis(START).plus_seconds(self.second());
        SimulatedMoment {
            wall: Timestamp::from_millis(steady.as_millis() + self.set_by),
            steady,
        }
    }

    fn launch(&mut self, now: Timestamp) {
        self.launches += 1;
        let spec = SessionSpec {
            kind: SessionKind::Batch,
            environment: SessionEnvironment::Host,
            command: vec!["true".into()],
            env: BTreeMap::new(),
            demand: Demand {
                cpu: CpuShare(*self.random.pick(&[50, 100, 175, 400])),
                memory: Bytes::mib(self.random.between(100, 9_000)),
                gpu: GpuShare(*self.random.pick(&[0, 0, 15, 35, 100, 200])),
                ..Demand::default()
            },
            timeout_seconds: None,
            max_runtime_seconds: None,
            start_at: None,
            depends_on: Vec::new(),
            containers: 1,
        };
        let id = SessionId(uuid::Uuid::from_u128(1_000 + self.launches));
        let name = SessionName::parse(&format!("s{}", self.launches)).expect("letters");
        let owner = self.random.pick(&self.users).subject.user;
        let home = self.random.pick(&self.homes);
        let mut session = Session::launched(id, name, owner, spec, now);
        (session.domain, session.project) = (home.domain, home.project);
        let key = format!("key-{}", self.launches);
        self.simulation.submit(&session, &key).expect("a launch");
    }

    /// Another amount of cores and memory for one that runs; one that is refused stays as it is.
    async fn resize(&mut self) {
        let world = self.simulation.world().expect("a world");
        let running = |one: &&Session| one.state() == SessionState::Running;
        let running: Vec<SessionId> = world
            .sessions
            .iter()
            .filter(running)
            .map(|one| one.id)
            .collect();
        if running.is_empty() {
            return;
        }
        let id = self.random.pick(&running).to_string();
        let wanted = Resize {
            cpu: Some(CpuShare(self.random.between(20, 500) as u32)),
            memory: Some(Bytes::mib(self.random.between(64, 12_000))),
            ..Resize::default()
        };
        let server = self.simulation.server();
        let _ = actions::resize(server, &self.admin, &id, wanted, None).await;
    }

    /// What is held from now until the next step.
    fn look(&mut self) {
        let world = self.simulation.world().expect("a world");
        self.rates.clear();
        let placed = |one: &&Session| one.state().holds_resources();
        for session in world.sessions.iter().filter(placed) {
            let home = self
                .homes
                .iter()
                .find(|home| home.project == session.project);
            let (domain, project) = home.expect("a project").place;
            let user = self
                .users
                .iter()
                .find(|user| user.subject.user == session.owner);
            let user = user.expect("a user").name.to_string();
            let place = (domain.to_owned(), project.to_owned(), user);
            plus(self.rates.entry(place).or_default(), rate(session));
        }
    }

    /// One step; gives whether anything is left to do.
    async fn pass(&mut self) -> bool {
        self.step += 1;
        if let Some((_, by)) = SET.iter().find(|(step, _)| *step == self.step) {
            self.set_by = *by;
        }
        let now = self.now();
        self.simulation.set_clock(now);
        for (place, rate) in &self.rates {
            let held = rate.map(|amount| amount * STEP * 1_000);
            plus(self.sums.entry(place.clone()).or_default(), held);
        }
        self.node.advance(now);
        let random = &mut self.random;
        self.node.tend(now, &mut |_| ContainerPlan {
            run: Some(random.between(600, 60_000)),
            ..ContainerPlan::default()
        });
        let is_busy = self.second() < WEEK;
        if is_busy && self.random.chance(25) {
            self.launch(now.wall);
        }
        if self.random.chance(20) {
            self.resize().await;
        }
        let report = self.node.report(now);
        let heard = match self.random.chance(20) {
            true => Vec::new(),
            false => vec![report],
        };
        let prepared = self.simulation.prepare(now, &heard, &decide);
        let prepared = prepared.expect("a pass");
        if DEATHS.contains(&self.step) {
            drop(prepared);
            self.simulation.crash();
        } else {
            let assignments = self.simulation.commit(prepared, now).expect("a commit");
            for assignment in assignments {
                self.node.take(assignment);
            }
        }
        if self.random.chance(50) {
            self.simulation.meter().expect("a meter");
        }
        self.look();
        is_busy || !self.rates.is_empty()
    }

    /// What the server says of all that time, in pieces that it answers for.
    async fn told(&self, by: UsageGrouping) -> Vec<Usage> {
        let mut told = Vec::new();
        let mut from = START - 3 * 365 * DAY;
        while from < START + 3 * 365 * DAY {
            let until = from + DAYS_OF_ANSWER * DAY;
            let time = UsageTime {
                month: String::new(),
                from: Timestamp::from_millis(from).to_string(),
                until: Timestamp::from_millis(until).to_string(),
            };
            let answer = usage(self.simulation.server(), &self.admin, &time, by).await;
            told.push(answer.expect("an answer"));
            from = until;
        }
        told
    }
}

/// The name of a part at a level: what the level leaves out is empty.
fn at_level(place: &Place, by: UsageGrouping) -> Place {
    let (domain, project, user) = place.clone();
    let none = String::new;
    match by {
        UsageGrouping::User => (none(), none(), user),
        UsageGrouping::Project => (domain, project, none()),
        UsageGrouping::Domain => (domain, none(), none()),
        UsageGrouping::Member => (domain, project, user),
    }
}

#[tokio::test]
async fn a_week_of_deaths_lost_reports_and_set_clocks_adds_up_at_each_level() {
    for seed in 0..SEEDS {
        let mut week = LedgerWeek::new(seed).await;
        while week.pass().await {
            assert!(week.second() < OVER, "seed {seed}: some session never ends");
        }
        week.simulation.meter().expect("a meter");
        let all = week.sums.values().fold(Held::default(), |mut sum, held| {
            plus(&mut sum, *held);
            sum
        });
        assert!(all.iter().all(|amount| *amount > 0), "seed {seed}: {all:?}");
        assert!(week.sums.len() > 6, "seed {seed}: {:?}", week.sums.keys());
        let ledger = week.simulation.ledger().expect("a ledger").used;
        let ledger = [ledger.gpu, ledger.cpu, ledger.memory, ledger.session];
        assert_eq!(ledger, all, "seed {seed}");
        for by in UsageGrouping::ALL {
            let mut expected: BTreeMap<Place, Held> = BTreeMap::new();
            for (place, held) in &week.sums {
                plus(expected.entry(at_level(place, by)).or_default(), *held);
            }
            let mut told: BTreeMap<Place, Held> = BTreeMap::new();
            for answer in week.told(by).await {
                let (mut parts, mut days) = (Held::default(), Held::default());
                for item in &answer.items {
                    let place = (item.domain.clone(), item.project.clone(), item.user.clone());
                    plus(told.entry(place).or_default(), exact(&item.used));
                    plus(&mut parts, exact(&item.used));
                }
                for day in &answer.days {
                    plus(&mut days, exact(&day.used));
                }
                let total = exact(&answer.total);
                assert_eq!(parts, total, "seed {seed}, {by:?}, from {}", answer.from);
                assert_eq!(days, total, "seed {seed}, {by:?}, from {}", answer.from);
            }
            assert_eq!(told, expected, "seed {seed}, {by:?}");
        }
    }
}
