//! A day of fair share through a whole server: three users who always wait, weighted 1, 2 and 3, get what their weights say by
//! the ledger; a newcomer has the next free place. By the rules alone it is tested in every run.

use std::collections::BTreeMap;

use api::fair_share::{FairSharePatchBody, FairWeightBody};
use api::usage::UsageGrouping;
use rules::fair_share::QueueOrder;
use rules::names::{BootId, NodeId, SessionId, SessionName, UserId};
use rules::permissions::Subject;
use rules::placement::decide;
use rules::quota::TenantLevel;
use rules::resources::{Capacity, Demand, Device};
use rules::session::{Session, SessionEnvironment, SessionKind, SessionSpec};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rules::users::Role;
use server::access::Caller;
use server::actions::fair_share;
use server::actions::usage::{UsageTime, usage};
use server::simulation::Simulation;
use server::simulation::fake_node::{ContainerPlan, FakeNode, SimulatedMoment};

use super::random::Random;
use super::run::caller;

/// Seconds between two passes.
const STEP: u64 = 60;
const DAY: u64 = 86_400;
const GPUS: u32 = 24;
/// Sessions of each user that wait at any time.
const QUEUED: usize = 6;
/// The beginning of an hour.
const START: i64 = 1_790_002_800_000;
/// A point is a hundredth of all that was used.
const POINT: f64 = 0.01;

struct WholeDay {
    random: Random,
    simulation: Simulation,
    node: FakeNode,
    second: u64,
    launches: u128,
}

fn node() -> FakeNode {
    let capacity = Capacity {
        cpu: CpuShare(9_600),
        memory: Bytes::gib(512),
        devices: (0..GPUS)
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

impl WholeDay {
    fn now(&self) -> SimulatedMoment {
        SimulatedMoment::plain(Timestamp::from_millis(START).plus_seconds(self.second))
    }

    fn user(&self, name: &str) -> Caller {
        let at = Timestamp::from_millis(START);
        caller(self.simulation.user(name, at).expect("a user"), name)
    }

    /// Launches until so many of this user's sessions wait.
    fn queue(&mut self, owner: UserId, wanted: usize) {
        let world = self.simulation.world().expect("a world");
        let waits = |one: &&Session| one.owner == owner && one.is_pending();
        let now = self.now().wall;
        for _ in world.sessions.iter().filter(waits).count()..wanted {
            self.launches += 1;
            let spec = SessionSpec {
                kind: SessionKind::Batch,
                environment: SessionEnvironment::Host,
                command: vec!["true".into()],
                env: BTreeMap::new(),
                demand: Demand {
                    cpu: CpuShare(100),
                    memory: Bytes::gib(1),
                    gpu: GpuShare(100),
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
            let session = Session::launched(id, name, owner, spec, now);
            let key = format!("key-{}", self.launches);
            self.simulation.submit(&session, &key).expect("a launch");
        }
    }

    /// One pass of the server; gives whose sessions got a place in it.
    async fn pass(&mut self) -> Vec<UserId> {
        let now = self.now();
        self.simulation.set_clock(now);
        let random = &mut self.random;
        self.node.advance(now);
        self.node.tend(now, &mut |_| ContainerPlan {
            run: Some(random.between(600, 3_600)),
            ..ContainerPlan::default()
        });
        let before = self.simulation.world().expect("a world");
        let prepared = self
            .simulation
            .prepare(now, &[self.node.report(now)], &decide)
            .expect("a pass");
        for assignment in self.simulation.commit(prepared, now).expect("a commit") {
            self.node.take(assignment);
        }
        if self.second.is_multiple_of(300) {
            self.simulation.meter().expect("a meter");
            let noted = self.simulation.refresh_standing().await;
            noted.expect("the use of the past");
        }
        let after = self.simulation.world().expect("a world");
        let waited = |one: &&Session| before.session(one.id).is_some_and(Session::is_pending);
        let placed = after.sessions.iter().filter(|one| !one.is_pending());
        let started = placed.filter(waited).map(|one| one.owner).collect();
        self.second += STEP;
        started
    }
}

/// Proves too: `weights_hold_over_a_day_and_a_newcomer_is_next`
#[tokio::test]
#[ignore = "1,440 passes of a whole server; `cargo ci nightly` runs it"]
async fn weights_hold_over_a_day_of_a_whole_server() {
    let simulation = Simulation::open(Timestamp::from_millis(START)).expect("a server");
    let mut day = WholeDay {
        random: Random::new(3),
        simulation,
        node: node(),
        second: 0,
        launches: 0,
    };
    let root = day.user("admin");
    let admin = Caller {
        subject: Subject {
            grants: Role::Administrator.grants(),
            ..root.subject.clone()
        },
        ..root
    };
    let fair = FairSharePatchBody {
        order: Some(QueueOrder::Fair),
        ..FairSharePatchBody::default()
    };
    let changed = fair_share::change(day.simulation.server(), &admin, fair, None).await;
    assert_eq!(changed.expect("an order").order, QueueOrder::Fair);
    let mut users = Vec::new();
    for (name, weight) in [("kim", 1), ("lee", 2), ("jo", 3)] {
        users.push(day.user(name).subject.user);
        let weight = FairWeightBody {
            level: TenantLevel::User,
            subject: name.to_owned(),
            weight,
        };
        let weighed = fair_share::weigh(day.simulation.server(), &admin, weight).await;
        weighed.expect("a weight");
    }
    while day.second < DAY {
        for user in &users {
            day.queue(*user, QUEUED);
        }
        day.pass().await;
    }
    day.simulation.meter().expect("a meter");
    let time = UsageTime {
        month: String::new(),
        from: Timestamp::from_millis(START).to_string(),
        until: day.now().wall.to_string(),
    };
    let used = usage(day.simulation.server(), &admin, &time, UsageGrouping::User).await;
    let used = used.expect("the ledger");
    let all = used.total.gpu_seconds;
    // No place stood empty for long: each is given again within a pass.
    assert!(all > 0.9 * f64::from(GPUS) * DAY as f64, "{all}");
    for (name, expected) in [("kim", 1.0 / 6.0), ("lee", 2.0 / 6.0), ("jo", 3.0 / 6.0)] {
        let own = used.items.iter().find(|item| item.user == name);
        let share = own.expect("its sum").used.gpu_seconds / all;
        println!("{name}: {share:.4}");
        assert!((share - expected).abs() <= POINT, "{name} has {share}");
    }

    let newcomer = day.user("new").subject.user;
    day.queue(newcomer, 20);
    let started = loop {
        for user in &users {
            day.queue(*user, QUEUED);
        }
        let started = day.pass().await;
        if !started.is_empty() {
            break started;
        }
    };
    assert!(started.contains(&newcomer), "{started:?}");
}
