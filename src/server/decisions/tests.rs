//! Turns that are written and decided again: over restarts, over the hour, and where a log was changed.

use std::collections::{BTreeMap, BTreeSet};

use rules::fair_share::QueueOrder;
use rules::names::{BootId, NodeId, SessionId, SessionName, UserId};
use rules::resources::{Capacity, Demand, Device};
use rules::session::{Outcome, Session, SessionEnvironment, SessionKind, SessionSpec};
use rules::units::{Bytes, CpuShare, GpuShare};
use rules::world::NodeRecord;
use uuid::Uuid;

use super::*;
use crate::code;

const SECRET: &str = "a-secret-of-one-user-alone";

/// A small generator.
struct TurnNumbers(u64);

impl TurnNumbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

fn at(minute: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000).plus_seconds(60 * minute)
}

fn node(number: u64) -> NodeRecord {
    NodeRecord {
        id: NodeId(Uuid::from_u128(u128::from(number))),
        name: format!("node-{number}"),
        boot: BootId(Uuid::nil()),
        capacity: Capacity {
            cpu: CpuShare(1_600),
            memory: Bytes::gib(64),
            devices: (0..4)
                .map(|index| Device {
                    memory: Bytes::gib(80),
                    uuid: format!("device-{number}-{index}"),
                    ..Device::new(index, "device")
                })
                .collect(),
            others: Vec::new(),
        },
        host_environment: true,
        seen_at: at(0),
        generation: 0,
        schedulable: true,
        note: String::new(),
        cordoned: BTreeSet::new(),
        problems: Vec::new(),
    }
}

fn session(numbers: &mut TurnNumbers, number: u64, now: Timestamp) -> Session {
    let limit = (numbers.below(2) == 0).then(|| 60 * (1 + numbers.below(90)));
    let spec = SessionSpec {
        kind: SessionKind::Batch,
        environment: SessionEnvironment::Host,
        command: vec!["train".into(), SECRET.into()],
        env: BTreeMap::from([("TOKEN".to_owned(), SECRET.to_owned())]),
        demand: Demand {
            cpu: CpuShare(100 + 50 * numbers.below(6) as u32),
            memory: Bytes::gib(1 + numbers.below(8)),
            gpu: GpuShare([0, 15, 35, 50, 100, 200][numbers.below(6) as usize]),
            ..Demand::default()
        },
        timeout_seconds: None,
        max_runtime_seconds: limit,
        start_at: None,
        depends_on: Vec::new(),
        containers: 1,
    };
    let id = SessionId(Uuid::from_u128(u128::from(1_000 + number)));
    let owner = UserId(Uuid::from_u128(u128::from(1 + numbers.below(5))));
    let name = SessionName::parse(&format!("s{number}")).unwrap();
    Session::launched(id, name, owner, spec, now)
}

/// Plays a queue and writes each turn that decided something, for so long and by a new process every so many minutes. Gives the
/// numbers.
fn play(data: &Path, seed: u64, end: u64, minutes: u64) -> Vec<u64> {
    let directory = data.join(DIRECTORY);
    let mut numbers = TurnNumbers(seed);
    let mut world = ClusterSnapshot {
        nodes: vec![node(1), node(2)],
        ..ClusterSnapshot::default()
    };
    world.policy.order = QueueOrder::ALL[seed as usize % QueueOrder::ALL.len()];
    let mut writer = DecisionWriter::open(&directory).unwrap();
    let mut written = Vec::new();
    for minute in 0..end {
        let now = at(minute);
        if minute % minutes == minutes - 1 {
            writer = DecisionWriter::open(&directory).unwrap();
        }
        for node in &mut world.nodes {
            node.seen_at = now;
        }
        for _ in 0..numbers.below(3) {
            let number = minute * 4 + numbers.below(4);
            let session = session(&mut numbers, number, now);
            if world.sessions.iter().all(|one| one.id != session.id) {
                world.sessions.push(session);
            }
        }
        world
            .sessions
            .retain(|one| one.is_pending() || numbers.below(30) > 0);
        world.revision += 1;
        let decisions = placement::decide(&world, now);
        if decisions.is_empty() {
            continue;
        }
        let turn = DecidedTurn {
            world: world.clone(),
            now,
            decisions: decisions.clone(),
        };
        written.push(writer.write(turn).unwrap());
        for decision in decisions {
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
            let row = world.sessions.iter_mut().find(|one| one.id == session);
            let row = row.unwrap();
            row.place(node, devices, because, now);
            row.generation += 1;
            world.served.insert(row.owner, now);
            if numbers.below(5) == 0 {
                row.end(Outcome::Succeeded, Some(0), now);
                world.ended.insert(session, Some(Outcome::Succeeded));
            }
        }
        world.sessions.retain(Session::is_live);
    }
    written
}

/// Each decision stays in the log with what it was made of, and is made again from there to the same bytes.
#[test]
fn every_decision_of_the_log_is_decided_again_to_the_same_bytes() {
    for seed in 0..5 {
        let place = tempfile::tempdir().unwrap();
        // Short chains and long ones.
        let written = play(place.path(), seed, 90, 6 * (seed + 1));
        assert!(written.len() >= 10, "seed {seed}: {} turns", written.len());
        assert_eq!(written, Vec::from_iter(1..=written.len() as u64));
        for number in &written {
            let found = replay(place.path(), *number).unwrap();
            assert!(found.same, "seed {seed}: {found:?}");
            assert!(found.recorded.len() > 2, "{found:?}");
        }
        let newest = newest(place.path(), 10).unwrap();
        assert_eq!(newest.len(), 10);
        assert_eq!(newest.last().map(|one| one.number), written.last().copied());
        assert!(newest.iter().all(|one| one.placed + one.ended > 0));
        let beyond = written.len() as u64 + 1;
        assert_eq!(
            code(replay(place.path(), beyond)),
            "rehearse.decision-unknown"
        );
    }
}

#[test]
fn the_log_holds_a_whole_world_an_hour_and_no_value_of_a_variable() {
    let place = tempfile::tempdir().unwrap();
    play(place.path(), 1, 150, u64::MAX);
    let mut wholes: Vec<Timestamp> = Vec::new();
    let mut last = Timestamp::default();
    for path in frames::files(&place.path().join(DIRECTORY)).unwrap() {
        let mut reader = FrameReader::open(&path).unwrap();
        while let Some(frame) = reader.next().unwrap() {
            let frame = ReadFrame::parse(frame.text().unwrap()).unwrap();
            assert!(!frame.body.contains(SECRET));
            last = frame.head.at;
            if frame.head.is_whole {
                wholes.push(last);
            }
        }
    }
    wholes.push(last);
    let mut apart = wholes.windows(2).map(|two| two[1].seconds_since(two[0]));
    // The turn after the hour is the one that has it.
    assert!(
        apart.all(|seconds| seconds < WHOLE_AFTER_SECONDS + 1_800),
        "{wholes:?}"
    );
    assert!((3..6).contains(&wholes.len()), "{wholes:?}");
}

#[test]
fn a_log_that_was_changed_and_rules_that_decide_otherwise_are_seen() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join(DIRECTORY);
    let mut numbers = TurnNumbers(3);
    let mut world = ClusterSnapshot {
        nodes: vec![node(1)],
        ..ClusterSnapshot::default()
    };
    for number in 0..8 {
        world.sessions.push(session(&mut numbers, number, at(0)));
    }
    let mut decisions = placement::decide(&world, at(0));
    assert!(decisions.len() > 1);
    decisions.reverse();
    let mut writer = DecisionWriter::open(&directory).unwrap();
    let turn = DecidedTurn {
        world,
        now: at(0),
        decisions,
    };
    writer.write(turn).unwrap();
    let found = replay(place.path(), 1).unwrap();
    assert!(!found.same, "as if the rules were others");
    assert_ne!(found.recorded, found.replayed);

    let file = frames::files(&directory).unwrap().remove(0);
    let good = std::fs::read(&file).unwrap();
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 0x10;
    std::fs::write(&file, bad).unwrap();
    assert_eq!(code(replay(place.path(), 1)), "rehearse.decision-damaged");
    // A text that was written otherwise has another hash.
    std::fs::write(&file, good).unwrap();
    let frame = FrameReader::open(&file).unwrap().next().unwrap().unwrap();
    let text = String::from_utf8(frame.text().unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    let mut ring = FrameRing::open(&directory).unwrap();
    let other = text.replacen("\"revision\":0", "\"revision\":7", 1);
    assert_ne!(other, text);
    ring.push(1, other.as_bytes()).unwrap();
    assert_eq!(code(replay(place.path(), 1)), "rehearse.decision-damaged");
}

/// A turn of a small world.
fn a_turn(minute: u64) -> DecidedTurn {
    let mut world = ClusterSnapshot {
        nodes: vec![node(1)],
        ..ClusterSnapshot::default()
    };
    world.nodes[0].seen_at = at(minute);
    let mut numbers = TurnNumbers(minute);
    world
        .sessions
        .push(session(&mut numbers, minute, at(minute)));
    DecidedTurn {
        decisions: placement::decide(&world, at(minute)),
        world,
        now: at(minute),
    }
}

#[test]
fn a_turn_never_waits_for_the_disk_and_one_that_is_left_out_is_counted() {
    let (told, turns) = sync_channel(1);
    let log = DecisionLog {
        told: Some(told),
        left_out: AtomicU64::new(0),
    };
    for minute in 0..4 {
        log.tell(a_turn(minute));
    }
    let received = |turns: &Receiver<ToldTurn>| {
        let (turn, left_out) = turns.try_recv().unwrap();
        (turn.now, left_out)
    };
    assert_eq!(received(&turns), (at(0), 0));
    log.tell(a_turn(4));
    assert_eq!(received(&turns), (at(4), 3));
    log.tell(a_turn(5));
    assert_eq!(received(&turns), (at(5), 0));

    let place = tempfile::tempdir().unwrap();
    let mut writer = DecisionWriter::open(&place.path().join(DIRECTORY)).unwrap();
    writer.left_out = 3;
    writer.write(a_turn(0)).unwrap();
    writer.write(a_turn(1)).unwrap();
    let listed = newest(place.path(), 5).unwrap();
    let counts: Vec<u64> = listed.iter().map(|one| one.left_out).collect();
    assert_eq!(counts, [3, 0]);
}

#[test]
fn a_clock_that_is_set_begins_with_the_whole_world_and_damage_ends_at_the_next_one() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join(DIRECTORY);
    let mut writer = DecisionWriter::open(&directory).unwrap();
    // On, a year ahead, back, and on.
    for minute in [1_000, 1_001, 600_000, 1_002, 1_003] {
        writer.write(a_turn(minute)).unwrap();
    }
    let file = frames::files(&directory).unwrap().remove(0);
    let mut wholes = Vec::new();
    let mut reader = FrameReader::open(&file).unwrap();
    while let Some(frame) = reader.next().unwrap() {
        let frame = ReadFrame::parse(frame.text().unwrap()).unwrap();
        wholes.push(frame.head.is_whole);
    }
    assert_eq!(wholes, [true, false, true, true, false]);
    for number in 1..=5 {
        assert!(replay(place.path(), number).unwrap().same, "{number}");
    }
    // A byte of the first text, behind its length and number.
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[40] ^= 0x10;
    std::fs::write(&file, bytes).unwrap();
    for number in 1..=2 {
        let found = code(replay(place.path(), number));
        assert_eq!(found, "rehearse.decision-damaged", "{number}");
    }
    for number in 3..=5 {
        assert!(replay(place.path(), number).unwrap().same, "{number}");
    }
    assert_eq!(newest(place.path(), 9).unwrap().len(), 4);
}

#[test]
fn turns_are_written_by_a_thread_and_a_state_in_memory_keeps_none() {
    assert!(!DecisionLog::open(None).is_kept());
    let place = tempfile::tempdir().unwrap();
    let log = DecisionLog::open(Some(place.path()));
    assert!(log.is_kept());
    log.tell(a_turn(0));
    drop(log);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while newest(place.path(), 5).unwrap().is_empty() {
        assert!(std::time::Instant::now() < end, "nothing was written");
        thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(replay(place.path(), 1).unwrap().same);
}
