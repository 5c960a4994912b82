//! Timed backfill: who may start before the first sessions that wait, and that the first one starts no later for it.

use super::agreement::{NOW, generated, pass};
use super::*;
use crate::codes;
use crate::fair_share::QueueOrder;
use crate::policy::BackfillMode;
use crate::reservation::START_SECONDS;
use crate::resources::DeviceShare;

/// Seconds after which the session that runs reaches its limit.
const HOUR: u64 = 3_600;

/// The session runs since now on that machine, on these devices with that share of each, for an hour where it has no
/// limit of its own.
fn run(world: &mut ClusterSnapshot, at: usize, node: usize, devices: &[u32], share: u32) {
    let node = world.nodes[node].id;
    let shares = devices.iter().map(|index| DeviceShare {
        index: *index,
        share: GpuShare(share),
        memory: Bytes::gib(u64::from(share) * 80 / 100),
        part: None,
        simulated: false,
    });
    let because = crate::reason::Reason::from_parts("placement.room".into(), "Room.".into());
    let session = &mut world.sessions[at];
    session.place(node, shares.collect(), because, NOW);
    session.run_since(NOW);
    session.spec.max_runtime_seconds = Some(HOUR);
}

/// The world of a text with timed backfill, as of now.
fn timed(text: &str) -> ClusterSnapshot {
    let mut world = world(text);
    world.policy.backfill = BackfillMode::Timed;
    for node in &mut world.nodes {
        node.seen_at = NOW;
    }
    world
}

/// Who gets a place, by their numbers in the world.
fn placed(world: &ClusterSnapshot) -> Vec<usize> {
    let places = decide(world, NOW).into_iter().filter_map(|decision| {
        let Decision::Place { session, .. } = decision else {
            return None;
        };
        world.sessions.iter().position(|one| one.id == session)
    });
    let mut places: Vec<usize> = places.collect();
    places.sort_unstable();
    places
}

fn codes_of(world: &ClusterSnapshot, at: usize) -> Vec<String> {
    let told = explain_session(world, &world.sessions[at], NOW);
    told.blockers.into_iter().map(|one| one.code).collect()
}

/// What runs, what the first one waits for, and what comes after it: devices, shares of one, cores, memory.
const KINDS: [(&str, &[u32], u32); 4] = [
    (
        "node a 16 64g 2 | busy 1 1g 1 | front 1 1g 2 | behind 1 1g 1",
        &[0],
        100,
    ),
    (
        "node a 16 64g 1 | busy 1 1g 0.5 | front 1 1g 1 | behind 1 1g 0.5",
        &[0],
        50,
    ),
    (
        "node a 16 64g 0 | busy 8 1g 0 | front 16 1g 0 | behind 8 1g 0",
        &[],
        0,
    ),
    (
        "node a 16 64g 0 | busy 1 32g 0 | front 1 64g 0 | behind 1 32g 0",
        &[],
        0,
    ),
];

/// Proves too: `whoever_passes_takes_nothing_that_anybody_in_front_could_get`
#[test]
fn a_session_that_is_over_in_time_passes_and_a_longer_one_does_not() {
    for (text, devices, share) in KINDS {
        let mut world = timed(text);
        run(&mut world, 0, 0, devices, share);
        assert_eq!(placed(&world), Vec::<usize>::new(), "no limit: {text}");
        world.sessions[2].spec.max_runtime_seconds = Some(HOUR - START_SECONDS);
        assert_eq!(placed(&world), [2], "{text}");
        world.policy.backfill = BackfillMode::Strict;
        assert_eq!(placed(&world), Vec::<usize>::new(), "strict: {text}");
        world.policy.backfill = BackfillMode::Timed;
        world.sessions[2].spec.max_runtime_seconds = Some(HOUR - START_SECONDS + 1);
        assert_eq!(placed(&world), Vec::<usize>::new(), "too long: {text}");
    }
}

#[test]
fn the_answer_names_the_time_limit_that_would_do() {
    for (text, devices, share) in KINDS {
        let mut world = timed(text);
        run(&mut world, 0, 0, devices, share);
        let told = explain_session(&world, &world.sessions[2], NOW);
        let said = told.blockers.last().expect("it waits");
        assert_eq!(said.code, codes::QUEUE_BACKFILL, "{text}: {told:?}");
        assert_eq!(said.params["minutes"], "58");
        assert_eq!(told.backfill_minutes(), Some(58));
        assert!(!codes_of(&world, 1).contains(&said.code), "front: {text}");
        world.sessions[2].spec.max_runtime_seconds = Some(58 * 60);
        let told = explain_session(&world, &world.sessions[2], NOW);
        assert_eq!(told.verdict, Verdict::Now, "{text}: {told:?}");
        let because = told.reason.expect("it has a place");
        assert_eq!(because.code, codes::PLACEMENT_BACKFILL);
        assert_eq!(because.params["at"], NOW.plus_seconds(HOUR).to_string());
        world.policy.backfill = BackfillMode::Strict;
        let strict = codes_of(&world, 2);
        assert!(!strict.contains(&codes::QUEUE_BACKFILL.to_owned()));
    }
}

#[test]
fn a_longer_one_passes_where_the_first_one_has_room_all_the_same() {
    // Two of four devices are free for an hour, and all four then: three for front, one for another.
    let text = "node a 16 64g 4 | busy 1 1g 2 | front 1 1g 3 | long 1 1g 1 | other 1 1g 1";
    let mut world = timed(text);
    run(&mut world, 0, 0, &[0, 1], 100);
    assert_eq!(placed(&world), Vec::<usize>::new(), "no limit");
    world.sessions[2].spec.max_runtime_seconds = Some(10 * HOUR);
    world.sessions[3].spec.max_runtime_seconds = Some(10 * HOUR);
    assert_eq!(placed(&world), [2]);
    world.sessions[3].spec.max_runtime_seconds = Some(60);
    assert_eq!(placed(&world), [2, 3]);
}

#[test]
fn a_longer_one_passes_on_a_machine_that_the_first_one_does_not_wait_for() {
    let text =
        "node a 16 64g 2 | node b 16 64g 2 | busy 1 1g 1 | hog 1 1g 1 | front 1 1g 2 | long 1 1g 1";
    let mut world = timed(text);
    run(&mut world, 0, 0, &[0], 100);
    run(&mut world, 1, 1, &[0], 100);
    world.sessions[1].spec.max_runtime_seconds = None;
    assert_eq!(placed(&world), Vec::<usize>::new(), "no limit");
    world.sessions[3].spec.max_runtime_seconds = Some(10 * HOUR);
    assert_eq!(placed(&world), [3]);
    let place = decide(&world, NOW).remove(0);
    let on = world.nodes[1].id;
    assert!(matches!(place, Decision::Place { node, .. } if node == on));
}

#[test]
fn the_next_one_that_waits_has_a_machine_of_its_own_kept_for_it() {
    let text = "node a 16 64g 2 | node b 16 64g 2 | busy 1 1g 1 | hog 1 1g 1 | front 2 2g 2 | next 1 1g 2 | long 1 1g 1";
    let mut world = timed(text);
    run(&mut world, 0, 0, &[0], 100);
    run(&mut world, 1, 1, &[0], 100);
    world.sessions[1].spec.max_runtime_seconds = Some(2 * HOUR);
    world.sessions[4].spec.max_runtime_seconds = Some(10 * HOUR);
    assert_eq!(placed(&world), Vec::<usize>::new());
    // It would be over before the one or the other.
    let told = explain_session(&world, &world.sessions[4], NOW);
    assert_eq!(told.backfill_minutes(), Some(118), "{told:?}");
    world.sessions[4].spec.max_runtime_seconds = Some(2 * HOUR - START_SECONDS);
    let place = decide(&world, NOW).remove(0);
    let on = world.nodes[1].id;
    assert!(matches!(place, Decision::Place { node, .. } if node == on));
    world.sessions[4].spec.max_runtime_seconds = Some(2 * HOUR - START_SECONDS + 1);
    assert_eq!(placed(&world), Vec::<usize>::new());
    // One more of the first one's size has no machine of its own.
    world.sessions[3].spec.demand = world.sessions[2].spec.demand;
    assert_eq!(placed(&world), [4]);
}

#[test]
fn the_next_one_that_waits_has_room_kept_after_the_first_one_on_its_machine() {
    let text = "node a 16 64g 2 | node b 16 64g 2 | busy 1 1g 1 | hog 1 1g 1 | front 2 2g 2 | next 1 1g 2 | long 1 1g 1";
    let mut world = timed(text);
    run(&mut world, 0, 0, &[0], 100);
    run(&mut world, 1, 1, &[0], 100);
    world.sessions[1].spec.max_runtime_seconds = Some(10 * HOUR);
    world.sessions[4].spec.max_runtime_seconds = Some(20 * HOUR);
    // The first one has its machine to no end known, so the other machine is kept for the next one.
    assert_eq!(placed(&world), Vec::<usize>::new());
    world.sessions[2].spec.max_runtime_seconds = Some(HOUR);
    let place = decide(&world, NOW).remove(0);
    let on = world.nodes[1].id;
    assert!(matches!(place, Decision::Place { node, .. } if node == on));
    // Where the other machine is free earlier than after the first one, it is kept.
    world.sessions[1].spec.max_runtime_seconds = Some(2 * HOUR);
    assert_eq!(placed(&world), Vec::<usize>::new());
}

#[test]
fn a_fraction_goes_to_the_device_on_which_least_is_lost() {
    let text = "node a 16 64g 3 | slow 1 1g 0.5 | busy 1 1g 0.6 | hog 1 1g 1 | front 1 1g 2 | behind 1 1g 0.4";
    let mut world = timed(text);
    run(&mut world, 0, 0, &[0], 50);
    run(&mut world, 1, 0, &[1], 60);
    run(&mut world, 2, 0, &[2], 100);
    world.sessions[0].spec.max_runtime_seconds = Some(10 * HOUR);
    world.sessions[2].spec.max_runtime_seconds = Some(2 * HOUR);
    // The second device is filled; it is free for less time; the front could not have it.
    for (limit, expected) in [(HOUR / 2, 1), (HOUR * 3 / 2, 0), (5 * HOUR, 0)] {
        world.sessions[4].spec.max_runtime_seconds = Some(limit);
        let places = decide(&world, NOW);
        let [Decision::Place { devices, .. }] = &places[..] else {
            panic!("{limit} s: {places:?}");
        };
        assert_eq!(devices[0].index, expected, "{limit} s");
    }
    world.policy.spreading = crate::policy::Spreading::Spread;
    world.sessions[4].spec.max_runtime_seconds = Some(HOUR / 2);
    let places = decide(&world, NOW);
    assert!(matches!(&places[..], [Decision::Place { devices, .. }] if devices[0].index == 0));
}

#[test]
fn so_many_have_a_machine_kept_for_them_and_no_more() {
    const KEPT: usize = 5;
    for count in [KEPT, KEPT + 1] {
        let mut parts = Vec::new();
        parts.extend((0..count).map(|at| format!("node n{at} 16 64g 2")));
        parts.extend((0..count).map(|at| format!("busy{at} 1 1g 1")));
        // A larger one than one that waits already has no machine of its own.
        parts.extend(
            (1..=count)
                .rev()
                .map(|size| format!("front{size} {size} {size}g 2")),
        );
        parts.push("long 1 1g 1".to_owned());
        let mut world = timed(&parts.join(" | "));
        for at in 0..count {
            run(&mut world, at, at, &[0], 100);
            world.sessions[at].spec.max_runtime_seconds = Some((at as u64 + 1) * HOUR);
        }
        world.sessions[2 * count].spec.max_runtime_seconds = Some(100 * HOUR);
        let expected = if count == KEPT {
            vec![]
        } else {
            vec![2 * count]
        };
        assert_eq!(placed(&world), expected, "{count} that wait");
    }
}

#[test]
fn the_first_one_keeps_its_machine_while_what_it_waits_for_is_being_stopped() {
    let text = "node a 16 64g 2 | node b 16 64g 2 | busy 1 1g 1 | hog 1 1g 2 | front 1 1g 2 | behind 1 1g 1";
    let mut world = timed(text);
    run(&mut world, 0, 0, &[0], 100);
    run(&mut world, 1, 1, &[0, 1], 100);
    world.sessions[1].spec.max_runtime_seconds = Some(10 * HOUR);
    world.sessions[3].spec.max_runtime_seconds = Some(2 * HOUR);
    assert_eq!(placed(&world), Vec::<usize>::new());
    let because = reasons::session_restarted();
    assert!(world.sessions[0].stop(DesiredState::Stop, because, NOW));
    assert_eq!(placed(&world), Vec::<usize>::new(), "it is being stopped");
    world.sessions[3].spec.max_runtime_seconds = Some(HOUR / 2);
    assert_eq!(placed(&world), Vec::<usize>::new(), "front starts at once");
    // One that starts again in its place has it for its whole limit once more.
    world.sessions[0].restart = true;
    assert_eq!(placed(&world), [3]);
    world.sessions[3].spec.max_runtime_seconds = Some(2 * HOUR);
    assert_eq!(placed(&world), Vec::<usize>::new(), "it restarts");
}

#[test]
fn a_restart_that_moves_the_start_of_the_first_one_is_told_to_it() {
    let mut world = timed("node a 16 64g 2 | busy 1 1g 1 | front 1 1g 2");
    run(&mut world, 0, 0, &[0], 100);
    let told = |world: &ClusterSnapshot| {
        let told = explain_session(world, &world.sessions[1], NOW);
        (told.outlook.unwrap().code, told.eta.unwrap().at)
    };
    let (code, before) = told(&world);
    assert_eq!(code, codes::START_EXPECTED);
    let had = world.sessions[0].containers().to_vec();
    let later = NOW.plus_seconds(60);
    world.sessions[0].place_again(&had, reasons::placement_kept("a"), later);
    world.sessions[0].run_since(later);
    let (code, at) = told(&world);
    assert_eq!(code, codes::START_EXPECTED_AGAIN);
    assert_eq!(at, before.plus_seconds(60));
}

/// Proves too: `a_restart_keeps_the_assignment_and_no_waiting_session_gets_it`
#[test]
fn who_passes_by_time_does_not_keep_the_place_for_another_limit() {
    let mut world = timed("node a 16 64g 2 | busy 1 1g 1 | front 1 1g 2 | behind 1 1g 1");
    run(&mut world, 0, 0, &[0], 100);
    world.sessions[2].spec.max_runtime_seconds = Some(600);
    assert_eq!(pass(&mut world, NOW).len(), 1);
    let code = |world: &ClusterSnapshot, at: usize| {
        let session = &world.sessions[at];
        restart_blocker(world, session, session.containers(), NOW).map(|blocker| blocker.code)
    };
    assert_eq!(code(&world, 0), None);
    assert_eq!(code(&world, 2).as_deref(), Some(codes::QUEUE_BACKFILLED));
    // A place by its turn is its own again.
    let (node, behind) = (world.nodes[0].id, &mut world.sessions[2]);
    let devices = behind.devices().to_vec();
    behind.place(node, devices, reasons::placement_kept("a"), NOW);
    assert_eq!(code(&world, 2), None);
}

#[test]
fn a_slow_start_moves_the_latest_start_of_the_first_one_no_further() {
    let early = Timestamp::from_millis(NOW.as_millis() - 900_000);
    for has_begun in [false, true] {
        let mut world = timed("node a 16 64g 2 | busy 1 1g 1 | front 1 1g 2 | behind 1 1g 1");
        run(&mut world, 0, 0, &[0], 100);
        let (node, busy) = (world.nodes[0].id, &mut world.sessions[0]);
        let devices = busy.devices().to_vec();
        busy.place(node, devices, reasons::placement_kept("a"), early);
        if has_begun {
            busy.run_since(NOW);
        }
        // It got its place fifteen minutes ago, and two minutes of them are its start's.
        world.sessions[2].spec.max_runtime_seconds = Some(HOUR - 900);
        assert_eq!(placed(&world), [2], "{has_begun}");
        world.sessions[2].spec.max_runtime_seconds = Some(HOUR - 900 + 1);
        assert_eq!(placed(&world), Vec::<usize>::new(), "{has_begun}");
    }
}

#[test]
fn nothing_passes_by_time_while_the_start_of_the_first_one_is_unknown() {
    for (text, devices, share) in KINDS {
        let mut world = timed(text);
        run(&mut world, 0, 0, devices, share);
        world.sessions[0].spec.max_runtime_seconds = None;
        world.sessions[2].spec.max_runtime_seconds = Some(60);
        assert_eq!(placed(&world), Vec::<usize>::new(), "{text}");
        assert!(!codes_of(&world, 2).contains(&codes::QUEUE_BACKFILL.to_owned()));
    }
}

#[test]
fn what_no_machine_could_hold_now_holds_nothing_back() {
    let mut world = timed(
        "node a 16 64g 2 | node b 64 64g 0 | busy 1 1g 1 | far 64 1g 0 | front 1 1g 2 | behind 1 1g 1",
    );
    world.nodes[1].schedulable = false;
    run(&mut world, 0, 0, &[0], 100);
    world.sessions[3].spec.max_runtime_seconds = Some(600);
    assert_eq!(placed(&world), [3]);
}

#[test]
fn so_many_sizes_are_looked_for_and_no_more() {
    for (sizes, expected) in [(63, true), (64, false)] {
        let mut text = "node a 16 400g 2 | busy 1 1g 1 | front 1 1g 2".to_owned();
        for size in 1..=sizes {
            // No room in memory, each of a size of its own.
            text.push_str(&format!(" | w{size} 1 {}m 1", 409_000 - size));
        }
        let mut world = timed(&format!("{text} | small 1 1g 1"));
        for session in &mut world.sessions {
            session.spec.max_runtime_seconds = Some(600);
        }
        run(&mut world, 0, 0, &[0], 100);
        let last = world.sessions.len() - 1;
        assert_eq!(placed(&world).contains(&last), expected, "{sizes}");
        world.sessions[last].spec.max_runtime_seconds = None;
        let told = codes_of(&world, last);
        let is_told = told.iter().any(|code| code == codes::QUEUE_BACKFILL);
        assert_eq!(is_told, expected, "{sizes}: {told:?}");
    }
}

/// When a session starts at the latest if no other session comes, found the slow way.
fn latest_start(world: &ClusterSnapshot, waiting: &Session) -> Option<Timestamp> {
    let ends = world.sessions.iter().filter_map(|s| Some(s.deadline()?.0));
    let mut ends: Vec<Timestamp> = ends.collect();
    ends.sort_unstable();
    ends.into_iter().find(|at| {
        let mut alone = world.clone();
        alone.sessions.retain(|session| {
            let is_over = session.deadline().is_some_and(|(end, _)| end <= *at);
            session.state().holds_resources() && !is_over
        });
        alone.sessions.push(waiting.clone());
        !decide(&alone, NOW).is_empty()
    })
}

/// Machines and sessions that wait for nothing but room, half of them with limits of one to five hours.
fn open_world(numbers: &mut Numbers) -> ClusterSnapshot {
    let mut world = generated(numbers);
    world.limits.clear();
    world.allowances.clear();
    world.policy.each = None;
    world.policy.order = QueueOrder::Fifo;
    world.sessions.retain(|session| {
        let spec = &session.spec;
        spec.start_at.is_none() && spec.depends_on.is_empty() && session.held_by.is_none()
    });
    for session in &mut world.sessions {
        let limit = session.spec.timeout_seconds;
        session.spec.timeout_seconds = limit.map(|seconds| seconds * 60);
    }
    world
}

/// Proves too: `whoever_passes_takes_nothing_that_anybody_in_front_could_get`
#[test]
fn the_first_one_starts_no_later_than_it_was_told() {
    let (mut passed, mut strictly) = (0, 0);
    for seed in 0..600 {
        let mut numbers = Numbers(seed);
        let mut world = open_world(&mut numbers);
        while !pass(&mut world, NOW).is_empty() {}
        for (n, mut session) in (0..).zip(open_world(&mut numbers).sessions.into_vec()) {
            session.id = SessionId(uuid::Uuid::from_u128(5_000 + n));
            session.queued_at = NOW;
            world.sessions.push(session);
        }
        let waiting: Vec<Session> = order::waiting(&world, NOW).into_iter().cloned().collect();
        let front = waiting
            .iter()
            .find_map(|session| Some((session, latest_start(&world, session)?)));
        strictly += pass(&mut world.clone(), NOW).len();
        world.policy.backfill = BackfillMode::Timed;
        let placed = pass(&mut world, NOW);
        passed += placed.len();
        let Some((front, told)) = front else {
            continue;
        };
        if placed.contains(&front.id) {
            continue;
        }
        let now = latest_start(&world, front);
        assert!(
            now.is_some_and(|now| now <= told),
            "seed {seed}: {} was told {told}, and is to start at {now:?}",
            front.id
        );
    }
    // There was something to see.
    assert!(passed > strictly + 50, "{passed}, strictly {strictly}");
}
