//! The controller's own loop, awake on its signals, against a fake node behind a real link.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base::link::{self, NodeEnd};
use rules::names::{BootId, NodeId, SessionName};
use rules::reason::Reason;
use rules::resources::{Capacity, Demand};
use rules::session::{DesiredState, SessionEnvironment, SessionKind, SessionSpec, SessionState};
use rules::units::{Bytes, CpuShare};

use super::fake_node::{ContainerPlan, FakeNode};
use super::*;

fn session(owner: UserId, name: &str, at: Timestamp) -> Session {
    Session::launched(
        SessionId::make(at, base::observe::random()),
        SessionName::parse(name).unwrap(),
        owner,
        SessionSpec {
            kind: SessionKind::Interactive,
            environment: SessionEnvironment::Host,
            command: Vec::new(),
            env: BTreeMap::new(),
            demand: Demand::default(),
            timeout_seconds: None,
            max_runtime_seconds: None,
            start_at: None,
            depends_on: Vec::new(),
            containers: 1,
        },
        at,
    )
}

/// A machine behind the link: tends its containers a hundred times a second, and says what is new.
async fn machine(end: NodeEnd, mut node: FakeNode) {
    let mut assigned = end.assigned();
    let mut said = None;
    loop {
        if let Ok(Some(assignment)) =
            tokio::time::timeout(Duration::from_millis(10), assigned.next()).await
        {
            node.take(Arc::unwrap_or_clone(assignment));
        }
        let now = SimulatedMoment::plain(Clock::system().now());
        node.tend(now, &mut |_| ContainerPlan {
            prepare: 0,
            stop: 0,
            ..ContainerPlan::default()
        });
        node.advance(now);
        let sights = Some((node.sights(), node.report(now).generation));
        if sights != said {
            said = sights;
            end.send(node.report(now));
        }
    }
}

async fn until(simulation: &Simulation, id: SessionId, phase: SessionState) {
    let began = Instant::now();
    loop {
        let row = simulation.session(id).unwrap().unwrap();
        if row.state() == phase {
            return;
        }
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "it stays {row:?}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_launch_reaches_a_container_on_signals_alone_and_an_idle_loop_writes_nothing() {
    let clock = Clock::system();
    let settings = Settings::read(SettingsLayer::default(), |_| None).unwrap();
    let simulation = Simulation {
        server: Server::in_memory(settings, clock.clone()).unwrap(),
        controller: Controller::default(),
        idle: IdleJudge::default(),
        accepted: false,
    };
    let commits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&commits);
    simulation.before_commits(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Fate::Live
    });
    let owner = simulation.user("kim", clock.now()).unwrap();
    let (server_end, node_end) = link::local();
    let id = NodeId::make(clock.now(), [1; 10]);
    let node = FakeNode::new(
        id,
        "box",
        BootId::make(clock.now(), [2; 10]),
        Capacity {
            cpu: CpuShare(400),
            memory: Bytes::gib(8),
            devices: Vec::new(),
            others: Vec::new(),
        },
    );
    let machine = tokio::spawn(machine(node_end, node));
    let loops = tokio::spawn(crate::conduct(
        simulation.server(),
        crate::links::Links::to(id, server_end),
    ));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = commits.load(Ordering::Relaxed);

    let kim = session(owner, "kim", clock.now());
    simulation.submit(&kim, "key").unwrap();
    until(&simulation, kim.id, SessionState::Running).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let launched = commits.load(Ordering::Relaxed) - before;
    assert!(
        launched <= 5,
        "a launch took {launched} commits: the launch, its place and list, and at most three reports"
    );

    simulation
        .edit(kim.id, |s| {
            let because = Reason::from_parts("session.stopped".into(), "Kim stopped it.".into());
            s.stop(DesiredState::Stop, because, Clock::system().now())
        })
        .unwrap();
    until(&simulation, kim.id, SessionState::Ended).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let quiet = commits.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(commits.load(Ordering::Relaxed), quiet, "an idle loop wrote");
    loops.abort();
    machine.abort();
}
