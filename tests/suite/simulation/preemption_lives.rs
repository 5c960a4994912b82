//! Preemption through passes of a whole server that dies before commits and after them: a preempted session runs
//! again, never twice at a time, and ends by itself in the end.

use std::collections::BTreeMap;

use rules::names::{BootId, NodeId, SessionId, SessionName, UserId};
use rules::placement::{MAX_PREEMPTIONS, decide};
use rules::policy::PreemptionMode;
use rules::resources::{Capacity, Demand};
use rules::session::{
    Outcome, Session, SessionEnvironment, SessionKind, SessionSpec, SessionState,
};
use rules::units::{Bytes, CpuShare, Timestamp};
use rules::workload::precedence::Precedence;
use server::simulation::Simulation;
use server::simulation::fake_node::{ContainerPlan, FakeNode, SimulatedMoment};

use super::random::Random;

const SEEDS: u64 = 6;
/// Seconds between two passes.
const STEP: u64 = 10;
/// Seconds in which sessions are launched.
const LAUNCHES: u64 = 14_400;
/// Seconds after which all have ended, also those that began again three times.
const OVER: u64 = 200_000;
/// Sessions that wait at once; more users than that go away.
const QUEUED: usize = 6;

fn at(second: u64) -> SimulatedMoment {
    let since = i64::try_from(second).expect("few") * 1000;
    SimulatedMoment::plain(Timestamp::from_millis(1_800_000_000_000 + since))
}

fn launched(random: &mut Random, number: u128, owner: UserId, now: Timestamp) -> Session {
    let spec = SessionSpec {
        kind: SessionKind::Batch,
        environment: SessionEnvironment::Host,
        command: vec!["true".into()],
        env: BTreeMap::new(),
        demand: Demand {
            cpu: CpuShare(*random.pick(&[100, 200, 400])),
            memory: Bytes::gib(1),
            ..Demand::default()
        },
        timeout_seconds: None,
        max_runtime_seconds: None,
        start_at: None,
        depends_on: Vec::new(),
        containers: 1,
    };
    let id = SessionId(uuid::Uuid::from_u128(1_000 + number));
    let name = SessionName::parse(&format!("s{number}")).expect("letters");
    let mut session = Session::launched(id, name, owner, spec, now);
    session.precedence = Precedence {
        priority: *random.pick(&[0, 5, 10, 50]),
        yields: random.chance(80),
    };
    session
}

/// How many sessions were launched, and how often some made way.
fn play(seed: u64) -> (usize, u32) {
    let mut random = Random::new(seed);
    let mut plans = random.split();
    let mut simulation = Simulation::open(at(0).wall).expect("a server");
    simulation
        .set_preemption(PreemptionMode::Priority)
        .expect("preemption");
    let owners = ["kim", "lee"].map(|name| simulation.user(name, at(0).wall).expect("a user"));
    let capacity = Capacity {
        cpu: CpuShare(400),
        memory: Bytes::gib(32),
        devices: Vec::new(),
        others: Vec::new(),
    };
    let (id, boot) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2));
    let mut node = FakeNode::new(NodeId(id), "box", BootId(boot), capacity);
    let mut open: Vec<SessionId> = Vec::new();
    let (mut launches, mut times, mut second) = (0_usize, 0_u32, 0_u64);
    loop {
        second += STEP;
        assert!(second < OVER, "seed {seed}: some session never ends");
        let now = at(second);
        simulation.set_clock(now);
        node.advance(now);
        node.tend(now, &mut |_| ContainerPlan {
            run: Some(plans.between(600, 3_000)),
            stop: plans.between(1, 200),
            kill: 1,
            ..ContainerPlan::default()
        });
        let world = simulation.world().expect("a world");
        let waiting = world.sessions.iter().filter(|one| one.is_pending()).count();
        if second < LAUNCHES && waiting < QUEUED && random.chance(15) {
            let owner = *random.pick(&owners);
            let number = launches as u128;
            let session = launched(&mut random, number, owner, now.wall);
            let id = simulation.submit(&session, &format!("key-{number}"));
            open.push(id.expect("a launch"));
            launches += 1;
        }
        let mut live = Vec::new();
        for id in &open {
            let row = simulation.session(*id).expect("a catalog");
            let row = row.unwrap_or_else(|| panic!("seed {seed}, second {second}: {id} is lost"));
            let told = format!("seed {seed}, second {second}: {row:?}");
            assert!(row.preempted_count <= MAX_PREEMPTIONS, "{told}");
            assert!(row.preempted_count == 0 || row.precedence.yields, "{told}");
            let lives = node.containers.iter().filter(|one| one.lives());
            let own = lives.filter(|one| one.order.name.session == row.id).count();
            assert!(own <= 1, "{told} runs {own} times");
            if row.state() == SessionState::Ended {
                assert_eq!(row.outcome(), Some(Outcome::Succeeded), "{told}");
                times += row.preempted_count;
            } else {
                live.push(*id);
            }
        }
        open = live;
        if second >= LAUNCHES && open.is_empty() {
            return (launches, times);
        }
        let prepared = simulation.prepare(now, &[node.report(now)], &decide);
        let prepared = prepared.expect("a pass");
        if random.chance(4) {
            drop(prepared);
            simulation.crash();
            continue;
        }
        let assignments = simulation.commit(prepared, now).expect("a commit");
        if random.chance(4) {
            simulation.crash();
            continue;
        }
        for assignment in assignments {
            node.take(assignment);
        }
    }
}

/// Proves too: `who_is_preempted_said_so_is_needed_and_waits_again`
#[test]
fn who_is_preempted_runs_again_whichever_server_dies() {
    let (mut launched, mut times) = (0, 0);
    for seed in 0..SEEDS {
        let (sessions, preempted) = play(seed);
        launched += sessions;
        times += preempted;
    }
    println!("{launched} sessions, preempted {times} times");
    assert!(times >= 5, "{launched} sessions, preempted {times} times");
}
