//! Who may pass somebody that waits: never anybody who takes what those in front could get, whatever ends
//! when; and so everybody gets their turn, however many small ones come after.

use super::*;
use crate::fair_share::QueueOrder;
use crate::policy::BackfillMode;

/// Sessions on machines and in the queue, of every sort.
pub(super) fn crowded(numbers: &mut Numbers) -> ClusterSnapshot {
    let mut world = machines(numbers);
    for node in &mut world.nodes {
        // Tight in each respect, now and then.
        node.capacity.cpu = CpuShare(200 + 100 * numbers.below(30));
        node.capacity.memory = Bytes::gib(u64::from(8 + numbers.below(40)));
    }
    world.policy.each = None;
    for n in 0..50_u32 {
        add(&mut world, numbers, n);
    }
    world
}

fn any(numbers: &mut Numbers) -> Demand {
    let mut demand = request(numbers);
    if numbers.below(3) == 0 {
        demand = super::demand("1", "1g", "0");
    }
    demand.cpu = CpuShare(25 + numbers.below(500));
    demand.memory = Bytes::mib(u64::from(64 + numbers.below(6000)));
    demand
}

fn add(world: &mut ClusterSnapshot, numbers: &mut Numbers, n: u32) {
    let request = any(numbers);
    if request.check().is_err() || possible(world, &request, &SessionEnvironment::Host).is_err() {
        return;
    }
    let mut session = super::world(&format!("s{n} 1 1g 0")).sessions.remove(0);
    session.id = SessionId(uuid::Uuid::from_u128(u128::from(1000 + n)));
    session.owner = UserId(uuid::Uuid::from_u128(u128::from(n)));
    session.spec.demand = request;
    session.queued_at = Timestamp::from_millis(i64::from(n));
    world.sessions.push(session);
}

pub(super) const NOW: Timestamp = Timestamp::from_millis(1000);

/// One pass; the ids of those who got a place.
pub(super) fn pass(world: &mut ClusterSnapshot) -> Vec<SessionId> {
    let mut placed = Vec::new();
    for decision in decide(world, NOW) {
        if let Decision::Place {
            session,
            node,
            devices,
            because,
            ..
        } = decision
        {
            let row = world.sessions.iter_mut().find(|s| s.id == session).unwrap();
            row.place(node, devices, because, NOW);
            row.run_since(NOW);
            placed.push(session);
        }
    }
    let broken = crate::findings::findings(world);
    assert!(broken.is_empty(), "{broken:?}");
    placed
}

/// Whether somebody who waits would have a place on one machine if nobody else waited.
pub(super) fn fits_on(world: &ClusterSnapshot, node: NodeId, waiting: &Session) -> bool {
    let mut alone = world.clone();
    alone.nodes.retain(|n| n.id == node);
    alone.sessions.retain(|s| s.state().holds_resources());
    alone.sessions.push(waiting.clone());
    !decide(&alone, NOW).is_empty()
}

/// Promise (Queue and scheduler): Strict backfill uses no resource that an earlier session could use, whichever
/// session ends. The first session in the queue starts as if no session had come after it, and every session
/// becomes the first. With timed backfill the first one starts no later than the time limits of what ran before say.
#[test]
fn whoever_passes_takes_nothing_that_anybody_in_front_could_get() {
    let (mut passed, mut compared) = (0, 0);
    for seed in 0..400 {
        let mut numbers = Numbers(seed);
        let mut world = crowded(&mut numbers);
        for round in 0..4 {
            let placed = pass(&mut world);
            let waiting: Vec<Session> = order::waiting(&world, NOW).into_iter().cloned().collect();
            for front in &waiting {
                let behind: Vec<&Session> = placed
                    .iter()
                    .filter_map(|id| world.session(*id))
                    .filter(|s| (s.queued_at, s.id) > (front.queued_at, front.id))
                    .collect();
                passed += behind.len();
                let mut nodes: Vec<NodeId> = behind.iter().filter_map(|s| s.node()).collect();
                nodes.dedup();
                for _ in 0..3 {
                    // Any of those who run may end.
                    let mut with = world.clone();
                    let stays = |s: &Session| behind.iter().any(|b| b.id == s.id);
                    with.sessions.retain(|s| stays(s) || numbers.below(2) == 0);
                    let mut without = with.clone();
                    without.sessions.retain(|s| !stays(s));
                    for node in &nodes {
                        compared += 1;
                        assert_eq!(
                            fits_on(&with, *node, front),
                            fits_on(&without, *node, front),
                            "seed {seed}, round {round}: {:?} is delayed by {behind:?}",
                            front.spec.demand,
                        );
                    }
                }
            }
            world
                .sessions
                .retain(|s| s.state() == SessionState::Pending || numbers.below(3) > 0);
        }
    }
    // There was something to see.
    assert!(passed > 1000 && compared > 1000, "{passed}, {compared}");
}

/// Proves too: `whoever_passes_takes_nothing_that_anybody_in_front_could_get`
#[test]
fn the_first_in_the_queue_starts_as_if_nobody_had_come_after_it() {
    let mut waited = 0;
    for seed in 0..400 {
        let mut numbers = Numbers(seed);
        let mut with = crowded(&mut numbers);
        pass(&mut with);
        let Some(first) = order::waiting(&with, NOW).first().map(|s| s.id) else {
            continue;
        };
        let mut without = with.clone();
        without
            .sessions
            .retain(|s| s.id == first || s.state() != SessionState::Pending);
        // Those who ran before end in some order; those who pass never do.
        let mut running: Vec<SessionId> = with
            .sessions
            .iter()
            .filter(|s| s.state() == SessionState::Running)
            .map(|s| s.id)
            .collect();
        let mut n = 100;
        while !running.is_empty() {
            let ends = running.swap_remove(numbers.below(running.len() as u32) as usize);
            with.sessions.retain(|s| s.id != ends);
            without.sessions.retain(|s| s.id != ends);
            for _ in 0..3 {
                add(&mut with, &mut numbers, n);
                n += 1;
            }
            let (a, b) = (pass(&mut with), pass(&mut without));
            assert_eq!(
                a.contains(&first),
                b.contains(&first),
                "seed {seed}: somebody who came later delays the first"
            );
            if a.contains(&first) {
                break;
            }
            waited += 1;
        }
    }
    assert!(waited > 300, "{waited}");
}

/// Proves too: `whoever_passes_takes_nothing_that_anybody_in_front_could_get`
#[test]
fn a_large_one_gets_its_turn_while_small_ones_stream_in() {
    // Nothing runs longer than this many rounds.
    const MAX_RUN: u32 = 5;
    for (large, small) in [
        (("1", "1g", "4"), ("1", "1g", "0.2")),
        (("60", "1g", "0"), ("1", "1g", "0")),
        (("1", "500g", "0"), ("1", "9g", "0")),
        (("40", "1g", "2"), ("3", "1g", "0")),
        (("8", "1g", "1"), ("5", "1g", "0.1")),
    ] {
        let mut numbers = Numbers(7);
        let mut world = super::world("node a 64 512g 4 | node b 32 256g 4");
        let mut left: BTreeMap<SessionId, u32> = BTreeMap::new();
        let mut n: u32 = 0;
        // Who is the first in the queue, and for how many rounds.
        let (mut first, mut rounds_first) = (None, 0);
        let mut larges = 0;
        for _ in 0..80 {
            for _ in 0..8 {
                n += 1;
                let (cpu, memory, gpu) = if n.is_multiple_of(40) { large } else { small };
                let mut session = super::world(&format!("s{n} {cpu} {memory} {gpu}"))
                    .sessions
                    .remove(0);
                session.id = SessionId(uuid::Uuid::from_u128(u128::from(1000 + n)));
                session.queued_at = Timestamp::from_millis(i64::from(n));
                world.sessions.push(session);
            }
            for id in pass(&mut world) {
                left.insert(id, 1 + numbers.below(MAX_RUN));
                let n = id.0.as_u128() - 1000;
                larges += u32::from(n.is_multiple_of(40));
            }
            let now_first = order::waiting(&world, NOW).first().map(|s| s.id);
            rounds_first = if now_first == first {
                rounds_first + 1
            } else {
                0
            };
            first = now_first;
            assert!(
                first.is_none() || rounds_first <= MAX_RUN,
                "{large:?} is passed by {small:?} without end"
            );
            for rounds in left.values_mut() {
                *rounds -= 1;
            }
            world.sessions.retain(|s| left.get(&s.id) != Some(&0));
            left.retain(|_, rounds| *rounds > 0);
        }
        assert!(larges > 5, "{large:?} came {larges} times only");
    }
}

#[test]
fn what_waits_behind_so_many_sizes_is_not_looked_at() {
    for (sizes, placed) in [(127, 2), (128, 1)] {
        let mut text = "node a 4 400g 0 | node b 1 400g 0 | hog 4 1g 0".to_owned();
        for size in 1..=sizes {
            text.push_str(&format!(" | f{size} 2 {size}g 0"));
        }
        // It would take nothing that those in front could ever have.
        let mut world = super::world(&format!("{text} | small 1 1g 0"));
        let small = world.sessions.last().unwrap().id;
        let got = pass(&mut world);
        assert_eq!(got.len(), placed, "{sizes}");
        assert_eq!(got.contains(&small), placed == 2, "{sizes}");
    }
}

#[test]
fn an_estimate_that_takes_too_many_searches_is_none() {
    for (waiting, known) in [(20, true), (400, false)] {
        let mut text = "node a 100 400g 0".to_owned();
        for number in 0..100 {
            text.push_str(&format!(" | r{number} 1 1g 0"));
        }
        for number in 0..waiting {
            // Each wants less memory than the one before it: no search says anything about the next.
            text.push_str(&format!(" | w{number} 100 {}m 0", 2000 - number));
        }
        let mut world = super::world(&text);
        for (at, session) in (1..).zip(&mut world.sessions) {
            session.spec.max_runtime_seconds = Some(1000 + at);
        }
        assert_eq!(pass(&mut world).len(), 100);
        let last = world.sessions.last().unwrap();
        let why = explain_session(&world, last, NOW);
        assert_eq!(why.eta.is_some(), known, "{waiting}: {}", why.sentence);
        assert!(!why.blockers.is_empty(), "it is explained all the same");
    }
}

/// A machine that a hundred sessions fill, and four hundred of so many users by turns that want all of it. Each has a time
/// limit of its own, and wants less memory than the one before it.
fn long_queue(users: u64) -> ClusterSnapshot {
    let mut text = "node a 100 400g 0".to_owned();
    for number in 0..100 {
        text.push_str(&format!(" | r{number} 1 1g 0"));
    }
    for number in 0..400 {
        text.push_str(&format!(" | w{number} 100 {}m 0", 2000 - number));
    }
    let mut world = super::world(&text);
    for (at, session) in (1..).zip(&mut world.sessions) {
        session.spec.max_runtime_seconds = Some(1000 + at);
        session.owner = UserId(uuid::Uuid::from_u128(u128::from(at % users)));
    }
    assert_eq!(pass(&mut world).len(), 100);
    world
}

#[test]
fn those_in_front_are_told_their_start_where_the_whole_queue_takes_too_long() {
    let mut world = long_queue(1);
    let known = forecast(&world, NOW);
    assert!(!known.complete);
    // The first one needs all that runs to end, and each of them ends before the next one starts.
    let mut starts = vec![1100];
    for number in 1..10 {
        let limit_before = 1000 + 100 + number;
        starts.push(starts[starts.len() - 1] + limit_before);
    }
    let expected: Vec<Timestamp> = starts.into_iter().map(|at| NOW.plus_seconds(at)).collect();
    let told: Vec<Timestamp> = known.order[..10]
        .iter()
        .map(|id| known.starts[id].at)
        .collect();
    assert_eq!(told, expected);
    assert!(!known.starts.contains_key(&known.order[10]));
    // With timed backfill one has a latest start, and by fair share the order is not known beforehand.
    for (order, backfill, told) in [
        (QueueOrder::Fair, BackfillMode::Strict, 0),
        (QueueOrder::Fair, BackfillMode::Timed, 0),
        (QueueOrder::Turns, BackfillMode::Timed, 1),
    ] {
        world.policy.order = order;
        world.policy.backfill = backfill;
        let known = forecast(&world, NOW);
        assert_eq!(known.starts.len(), told, "{order:?} {backfill:?}");
        if let Some(start) = known.starts.get(&known.order[0]) {
            assert_eq!(start.at, NOW.plus_seconds(1100));
        }
    }
    world.policy.backfill = BackfillMode::Strict;
    for order in [QueueOrder::Fifo, QueueOrder::Lifo] {
        world.policy.order = order;
        let known = forecast(&world, NOW);
        assert!(known.starts.contains_key(&known.order[0]), "{order:?}");
    }
}

#[test]
fn behind_one_that_joins_later_no_start_is_known_beforehand() {
    let mut world = long_queue(1);
    // The oldest of those that wait.
    world.sessions[100].spec.start_at = Some(NOW.plus_seconds(500));
    for (order, is_told) in [(QueueOrder::Fifo, false), (QueueOrder::Lifo, true)] {
        world.policy.order = order;
        let known = forecast(&world, NOW);
        assert!(is_told || !known.complete, "{order:?}");
        let first = known.order[0];
        assert_eq!(known.starts.contains_key(&first), is_told, "{order:?}");
    }
}

/// Behind more sizes than are looked at, steps are repeated that count nothing.
#[test]
fn behind_too_many_sizes_a_repeated_walk_says_the_same() {
    for backfill in [BackfillMode::Strict, BackfillMode::Timed] {
        let mut world = long_queue(3);
        world.policy.backfill = backfill;
        let (told, expected, repeated) = super::agreement::walked_twice(&world, NOW);
        assert_eq!(told, expected);
        assert!(repeated > 200, "{repeated} of {}", told.len());
    }
}

#[test]
fn in_turns_only_the_first_of_each_user_is_in_front() {
    let known = forecast(&long_queue(2), NOW);
    assert!(!known.complete);
    for (at, id) in known.order.iter().take(12).enumerate() {
        assert_eq!(known.starts.contains_key(id), at < 2, "{at}");
    }
}
