//! Placement by small worlds written as text: `node a cpu 2 mem 4g | kim 1 1g | …`.

use super::*;
use crate::names::{BootId, SessionName, UserId};
use crate::resources::{Capacity, Device};
use crate::session::{Order, Session, SessionKind};
use crate::units::{Bytes, CpuShare, GpuShare};
use crate::world::Node;

fn demand(cpu: &str, memory: &str, gpu: &str) -> Demand {
    Demand {
        cpu: CpuShare::parse(cpu).unwrap(),
        memory: Bytes::parse(memory).unwrap(),
        shm: Bytes::ZERO,
        gpu: GpuShare::parse(gpu).unwrap(),
        gpu_memory: None,
        mig: None,
    }
}

/// `node NAME CPU MEMORY DEVICES` and `NAME CPU MEMORY GPU`, parted by `|`.
fn world(text: &str) -> World {
    let mut world = World::default();
    for (n, line) in text.split('|').enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words[0] == "node" {
            world.nodes.push(Node {
                id: NodeId(uuid::Uuid::from_u128(n as u128)),
                name: words[1].into(),
                boot: BootId(uuid::Uuid::nil()),
                capacity: Capacity {
                    cpu: CpuShare::parse(words[2]).unwrap(),
                    memory: Bytes::parse(words[3]).unwrap(),
                    devices: (0..words[4].parse().unwrap())
                        .map(|index| Device {
                            memory: Bytes::gib(80),
                            uuid: format!("test-{n}-{index}"),
                            ..Device::new(index, "test")
                        })
                        .collect(),
                },
                host_environment: true,
                seen_at: Timestamp::from_millis(0),
                generation: 0,
                schedulable: true,
                cordoned: Default::default(),
                problems: Vec::new(),
            });
        } else {
            world.sessions.push(Session {
                id: SessionId(uuid::Uuid::from_u128(100 + n as u128)),
                name: SessionName::parse(words[0]).unwrap(),
                owner: UserId(uuid::Uuid::nil()),
                labels: BTreeMap::new(),
                order: Order {
                    kind: SessionKind::Batch,
                    environment: Environment::Host,
                    command: vec!["true".into()],
                    env: BTreeMap::new(),
                    demand: demand(words[1], words[2], words[3]),
                    timeout_seconds: None,
                    longest_run_seconds: None,
                    start_at: None,
                    depends_on: Vec::new(),
                },
                phase: Phase::Pending,
                wish: Wish::Run,
                paused: false,
                restart: false,
                incarnation: 1,
                generation: 1,
                node: None,
                devices: Vec::new(),
                unconfirmed: Vec::new(),
                created_at: Timestamp::from_millis(n as i64),
                queued_at: Timestamp::from_millis(n as i64),
                scheduled_at: None,
                started_at: None,
                stopping_at: None,
                ended_at: None,
                outcome: None,
                exit_code: None,
                reason: None,
            });
        }
    }
    world
}

fn check(text: &str, expected: &str) {
    let world = world(text);
    let decisions = decide(&world, Timestamp::from_millis(1000));
    let shown: Vec<String> = world
        .sessions
        .iter()
        .map(|s| {
            decisions
                .iter()
                .find_map(|d| match d {
                    Decision::Place {
                        session,
                        node,
                        devices,
                        ..
                    } if *session == s.id => {
                        let node = &world.node(*node).unwrap().name;
                        let parts: Vec<String> = devices
                            .iter()
                            .map(|d| format!("/{}:{}", d.index, d.share))
                            .collect();
                        Some(format!("{} {}{}", s.name, node, parts.join("")))
                    }
                    Decision::End {
                        session, because, ..
                    } if *session == s.id => Some(format!("{} ends {}", s.name, because.code)),
                    _ => None,
                })
                .unwrap_or_else(|| format!("{} waits", s.name))
        })
        .collect();
    assert_eq!(shown.join(" | "), expected);
}

#[test]
fn a_session_waits_when_no_single_device_has_room() {
    check(
        "node a 8 64g 2 | kim 1 1g 0.60 | lee 1 1g 0.60 | jo 1 1g 0.60",
        "kim a/0:0.6 | lee a/1:0.6 | jo waits",
    );
}

#[test]
fn a_fraction_goes_to_the_fullest_device_that_holds_it() {
    check(
        "node a 8 64g 2 | kim 1 1g 0.50 | lee 1 1g 0.30 | jo 1 1g 1",
        "kim a/0:0.5 | lee a/0:0.3 | jo a/1:1",
    );
}

#[test]
fn nobody_overtakes_one_that_waits_for_room() {
    check(
        "node a 2 8g 0 | kim 1.5 1g 0 | lee 1 1g 0 | jo 0.5 1g 0",
        "kim a | lee waits | jo waits",
    );
}

#[test]
fn memory_is_never_given_twice() {
    check(
        "node a 8 4g 0 | node b 8 3g 0 | kim 1 3g 0 | lee 1 3g 0 | jo 1 2g 0",
        "kim b | lee a | jo waits",
    );
}

#[test]
fn a_silent_node_gets_nothing() {
    let mut world = world("node a 8 8g 0 | kim 1 1g 0");
    world.nodes[0].seen_at = Timestamp::from_millis(-60_000);
    assert!(decide(&world, Timestamp::from_millis(1000)).is_empty());
    let why = explain_session(&world, &world.sessions[0], Timestamp::from_millis(1000));
    assert_eq!(why.blockers[0].code, "node.silent");
}

#[test]
fn nothing_is_taken_in_where_no_machine_can_run_containers() {
    let mut world = world("node a 8 8g 0 | node b 8 8g 0 | kim 1 1g 0");
    let order = world.sessions[0].order.clone();
    let asked =
        |world: &World| possible(world, &order.demand, &order.environment).map_err(|r| r.code);
    let problem = Reason::new("node.refuses.no-root", "fardel does not run as root.");
    world.nodes[0].problems.push(problem.clone());
    assert_eq!(asked(&world), Ok(()));
    world.nodes[1].problems.push(problem);
    assert_eq!(asked(&world), Err("node.refuses.no-root".into()));
}

#[test]
fn a_stopped_waiting_session_ends() {
    let mut world = world("node a 8 8g 0 | kim 1 1g 0");
    world.sessions[0].wish = Wish::Stop;
    assert!(matches!(
        &decide(&world, Timestamp::from_millis(1))[..],
        [Decision::End {
            outcome: Outcome::Stopped,
            ..
        }]
    ));
}

#[test]
fn a_dependency_that_failed_ends_what_waits_for_it() {
    let mut world = world("node a 8 8g 0 | kim 1 1g 0");
    let gone = SessionId(uuid::Uuid::from_u128(9));
    world.sessions[0].order.depends_on = vec![gone];
    world.ended.insert(gone, Some(Outcome::Failed));
    let decisions = decide(&world, Timestamp::from_millis(1));
    assert!(
        matches!(&decisions[..], [Decision::End { because, .. }] if because.code == "dependency.failed")
    );
    world.ended.insert(gone, Some(Outcome::Succeeded));
    assert!(matches!(
        &decide(&world, Timestamp::from_millis(1))[..],
        [Decision::Place { .. }]
    ));
}

#[test]
fn the_preview_says_what_the_scheduler_does() {
    let busy = world("node a 2 4g 0 | kim 1 1g 0 | lee 1 1g 0");
    let draft = |cpu: &str| Draft {
        environment: Environment::Host,
        demand: demand(cpu, "1g", "0"),
        start_at: None,
        depends_on: Vec::new(),
        copies: 1,
        owner: None,
    };
    let now = Timestamp::from_millis(1000);
    let waits = explain_draft(&busy, &draft("1"), now);
    assert_eq!(
        (waits.verdict, waits.blockers[0].code.as_str()),
        (Verdict::Wait, "cpu.short")
    );
    let idle = world("node a 2 4g 0");
    assert_eq!(explain_draft(&idle, &draft("1"), now).verdict, Verdict::Now);
    let never = explain_draft(&idle, &draft("3"), now);
    assert_eq!(never.verdict, Verdict::Never);
    assert_eq!(never.alternatives[0].demand.cpu, CpuShare(200));
}

#[test]
fn preview_and_scheduler_never_disagree() {
    // A small fixed generator: the same 2,000 worlds on every run.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut dice = move |n: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for round in 0..2000 {
        let mut text = format!("node a {} {}g {}", 1 + dice(8), 1 + dice(16), dice(3));
        if dice(2) == 0 {
            text += &format!(" | node b {} {}g 1", 1 + dice(8), 1 + dice(16));
        }
        for n in 0..dice(8) {
            text += &format!(
                " | s{n} {}.{} {}g 0.{}",
                dice(4),
                1 + dice(9),
                1 + dice(6),
                dice(10)
            );
        }
        let world = world(&text);
        let now = Timestamp::from_millis(1000);
        let decisions = decide(&world, now);
        for session in &world.sessions {
            let placed = decisions
                .iter()
                .any(|d| matches!(d, Decision::Place { session: id, .. } if *id == session.id));
            let why = explain_session(&world, session, now);
            let impossible =
                possible(&world, &session.order.demand, &session.order.environment).is_err();
            assert_eq!(
                placed,
                why.verdict == Verdict::Now,
                "round {round}: {text}: {}: {why:?}",
                session.name
            );
            assert_eq!(
                impossible,
                why.verdict == Verdict::Never,
                "round {round}: {text}"
            );
            if why.verdict == Verdict::Wait {
                assert!(
                    !why.blockers.is_empty(),
                    "round {round}: {text}: waits without a reason"
                );
            }
        }
        let mut after = world.clone();
        for decision in decisions {
            if let Decision::Place {
                session,
                node,
                devices,
                ..
            } = decision
            {
                let row = after.sessions.iter_mut().find(|s| s.id == session).unwrap();
                (row.phase, row.node, row.devices) = (Phase::Scheduled, Some(node), devices);
            }
        }
        assert_eq!(
            crate::findings::findings(&after),
            Vec::new(),
            "round {round}: {text}"
        );
    }
}
