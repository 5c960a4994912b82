//! Who makes way for a session of higher priority, and who does not.

use std::collections::BTreeSet;

use super::groups::group;
use super::*;
use crate::codes;
use crate::policy::PreemptionMode;
use crate::reason::Reason;
use crate::resource_group::GroupPlan;
use crate::resources::DeviceShare;

const NOW: Timestamp = Timestamp::from_millis(100_000_000);

/// The world of a text whose only resource group has preemption.
fn preempting(text: &str) -> ClusterSnapshot {
    let mut world = world(text);
    let mut founding = group(ResourceGroupId::DEFAULT, "default");
    founding.preemption = PreemptionMode::Priority;
    world.groups = GroupPlan {
        groups: vec![founding],
        ..GroupPlan::default()
    };
    for node in &mut world.nodes {
        node.seen_at = NOW;
    }
    world
}

/// That session runs for so many minutes on what it asks for of that device, and yields.
fn runs(world: &mut ClusterSnapshot, at: usize, device: u32, minutes: i64, priority: u32) {
    let node = world.nodes[0].id;
    let since = Timestamp::from_millis(NOW.as_millis() - minutes * 60_000);
    let because = Reason::from_parts("placement.room".into(), "Room.".into());
    let session = &mut world.sessions[at];
    let share = session.spec.demand.gpu;
    let part = DeviceShare {
        index: device,
        share,
        memory: Bytes::gib(u64::from(share.0) * 80 / 100),
        part: None,
        simulated: false,
    };
    session.place(node, vec![part], because, since);
    session.run_since(since);
    session.precedence = Precedence {
        priority,
        yields: true,
    };
}

fn waits(world: &mut ClusterSnapshot, at: usize, priority: u32) {
    world.sessions[at].precedence.priority = priority;
}

fn victims(world: &ClusterSnapshot) -> Vec<String> {
    victims_but(world, &BTreeSet::new())
}

fn victims_but(world: &ClusterSnapshot, spared: &BTreeSet<SessionId>) -> Vec<String> {
    let name = |step: &Preemption| world.session(step.victim).unwrap().name.to_string();
    preempt(world, spared, NOW).iter().map(name).collect()
}

/// Three that run on a device each, and one that waits for so many devices.
fn three(wanted: &str) -> ClusterSnapshot {
    let text = format!("node a 16 64g 3|low 1 1g 1|short 1 1g 1|long 1 1g 1|urgent 1 1g {wanted}");
    let mut world = preempting(&text);
    runs(&mut world, 0, 0, 500, 0);
    runs(&mut world, 1, 1, 20, 5);
    runs(&mut world, 2, 2, 60, 5);
    waits(&mut world, 3, 50);
    world
}

/// Proves too: `who_is_preempted_said_so_is_needed_and_waits_again`
#[test]
fn the_lowest_priority_makes_way_first_and_among_equals_who_ran_for_the_shortest_time() {
    assert_eq!(victims(&three("1")), ["low"]);
    assert_eq!(victims(&three("2")), ["low", "short"]);
    assert_eq!(victims(&three("3")), ["low", "short", "long"]);
    assert!(victims(&three("4")).is_empty(), "no node could hold it");
}

/// Proves too: `who_is_preempted_said_so_is_needed_and_waits_again`
#[test]
fn a_session_makes_way_only_where_it_said_so_and_may() {
    type Change = fn(&mut ClusterSnapshot);
    let cases: [(&str, Change); 8] = [
        ("none yields", |world| {
            for session in &mut world.sessions {
                session.precedence.yields = false;
            }
        }),
        ("an interactive one runs", |world| {
            for session in &mut world.sessions {
                session.spec.kind = SessionKind::Interactive;
            }
        }),
        ("it began lately", |world| {
            for at in 0..3 {
                runs(world, at, at as u32, 9, 0);
            }
        }),
        ("it made way often", |world| {
            for session in &mut world.sessions {
                session.preempted_count = MAX_PREEMPTIONS;
            }
        }),
        ("their time limits end them within the grace", |world| {
            for session in &mut world.sessions {
                let ran = session.started_at().map(|at| NOW.seconds_since(at));
                session.spec.max_runtime_seconds = ran.map(|ran| ran + 60);
            }
        }),
        ("none is below", |world| waits(world, 3, 0)),
        ("it waits for a time", |world| {
            world.sessions[3].spec.start_at = Some(NOW.plus_seconds(60));
        }),
        ("the group has no preemption", |world| {
            world.groups.groups[0].preemption = PreemptionMode::Off;
        }),
    ];
    for (why, change) in cases {
        let mut world = three("1");
        change(&mut world);
        assert!(victims(&world).is_empty(), "{why}");
    }
}

/// Proves too: `who_is_preempted_said_so_is_needed_and_waits_again`
#[test]
fn none_makes_way_that_is_not_needed() {
    let text = "node a 16 64g 2|low 1 1g 0.5|stays 1 1g 0.5|middle 1 1g 1|urgent 1 1g 1";
    let mut world = preempting(text);
    runs(&mut world, 0, 0, 30, 0);
    runs(&mut world, 1, 0, 30, 0);
    world.sessions[1].precedence.yields = false;
    runs(&mut world, 2, 1, 30, 1);
    waits(&mut world, 3, 50);
    assert_eq!(victims(&world), ["middle"], "half a device is no use");
}

#[test]
fn who_could_not_be_queued_again_is_spared() {
    let world = three("1");
    let low = BTreeSet::from([world.sessions[0].id]);
    assert_eq!(victims_but(&world, &low), ["short"]);
}

#[test]
fn for_room_that_is_on_its_way_no_second_one_is_stopped() {
    let mut world = three("1");
    let steps = preempt(&world, &BTreeSet::new(), NOW);
    let [step] = &steps[..] else {
        panic!("{steps:?}");
    };
    let victim = world.sessions.iter_mut().find(|one| one.id == step.victim);
    let victim = victim.unwrap();
    assert!(victim.preempt(NOW) && !victim.preempt(NOW), "once");
    assert!(victim.gives_up_place());
    assert!(victims(&world).is_empty());
    let told = explain_session(&world, &world.sessions[3], NOW);
    let first = told.blockers.first().map(|blocker| blocker.code.as_str());
    assert_eq!(first, Some(codes::QUEUE_PREEMPTING), "{told:?}");
    // One that cannot be stopped is waited for no longer.
    for node in &mut world.nodes {
        node.seen_at = NOW.plus_seconds(300);
    }
    let later = preempt(&world, &BTreeSet::new(), NOW.plus_seconds(300));
    assert_eq!(later.len(), 1);
    assert_ne!(later[0].victim, step.victim);
    // A session that its owner restarts keeps its place.
    let mut world = three("1");
    let low = &mut world.sessions[0];
    low.restart = true;
    let because = crate::reasons::session_stopped();
    low.stop(DesiredState::Stop, because, NOW);
    assert!(!low.gives_up_place());
    assert_eq!(victims(&world), ["short"]);
}

#[test]
fn who_made_way_waits_again_as_long_as_before_and_behind_the_other() {
    let mut world = three("1");
    let low = &mut world.sessions[0];
    let waited = low.waited_millis().unwrap();
    low.preempt(NOW);
    let end = NOW.plus_seconds(5);
    low.end(Outcome::Stopped, None, end);
    assert!(low.is_pending() && !low.restart && low.desired == DesiredState::Run);
    assert_eq!((low.incarnation, low.preempted_count), (2, 1));
    assert_eq!(end.millis_since(low.queued_at), waited);
    let names: Vec<String> = queue(&world, end)
        .into_iter()
        .map(|session| session.name.to_string())
        .collect();
    assert_eq!(names, ["urgent", "low"]);
    let placed = decide(&world, end);
    assert_eq!(placed.len(), 1);
    let Decision::Place { session, .. } = &placed[0] else {
        panic!("{placed:?}");
    };
    assert_eq!(*session, world.sessions[3].id);
}

#[test]
fn starts_are_known_of_the_highest_priority_that_waits_alone() {
    let mut world = preempting("node a 16 64g 1|runs 1 1g 1|urgent 1 1g 1|usual 1 1g 1");
    runs(&mut world, 0, 0, 30, 50);
    world.sessions[0].spec.max_runtime_seconds = Some(3_600);
    waits(&mut world, 1, 50);
    waits(&mut world, 2, 10);
    let known = forecast(&world, NOW);
    let start = |at: usize| known.starts.get(&world.sessions[at].id).map(|one| one.at);
    assert_eq!(start(1), Some(NOW.plus_seconds(1_800)));
    assert_eq!(start(2), None);
    let told = explain_session(&world, &world.sessions[2], NOW);
    let outlook = told.outlook.as_ref().map(|reason| reason.code.as_str());
    assert_eq!(outlook, Some(codes::START_BY_PRIORITY));
}

#[test]
fn who_is_next_to_have_run_for_long_enough_is_known() {
    let mut world = three("1");
    assert_eq!(next_settled(&world, NOW), None, "all have");
    runs(&mut world, 1, 1, 4, 5);
    assert_eq!(next_settled(&world, NOW), Some(NOW.plus_seconds(360)));
    world.groups.groups[0].preemption = PreemptionMode::Off;
    assert_eq!(next_settled(&world, NOW), None);
}
