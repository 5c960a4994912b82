//! Resource groups: each has a queue and machines of its own, and limits count all of them.

use super::agreement::{NOW, generated, pass};
use super::*;
use crate::fair_share::QueueOrder;
use crate::names::TenantName;
use crate::placement::forecast;
use crate::policy::{BackfillMode, PreemptionMode};
use crate::resource_group::{GroupAccess, GroupKinds, GroupPlan, ResourceGroup};

/// Worlds that are generated.
const WORLDS: u32 = 600;
const LAB: ResourceGroupId = ResourceGroupId(uuid::Uuid::from_u128(u128::MAX));

pub(super) fn group(id: ResourceGroupId, name: &str) -> ResourceGroup {
    ResourceGroup {
        id,
        name: TenantName::parse(name).unwrap(),
        title: String::new(),
        access: None,
        kinds: GroupKinds::ALL,
        spreading: None,
        preemption: PreemptionMode::Off,
        generation: 1,
    }
}

/// Every other machine and every other session is in a second group.
fn split(world: &ClusterSnapshot) -> GroupPlan {
    let nodes = world.nodes.iter().skip(1).step_by(2);
    let sessions = world.sessions.iter().step_by(2);
    GroupPlan {
        groups: vec![
            group(ResourceGroupId::DEFAULT, "default"),
            group(LAB, "lab"),
        ],
        nodes: nodes.map(|node| (node.id, LAB)).collect(),
        sessions: sessions.map(|session| (session.id, LAB)).collect(),
    }
}

/// The machines of one group, what stands on them, and who waits in it, as a site without groups.
fn alone(world: &ClusterSnapshot, group: ResourceGroupId) -> ClusterSnapshot {
    let plan = &world.groups;
    let mut alone = ClusterSnapshot {
        served: order::served(world),
        groups: GroupPlan::default(),
        ..world.clone()
    };
    alone.nodes.retain(|node| plan.of_node(node.id) == group);
    alone.sessions.retain(|session| match session.node() {
        Some(node) => plan.of_node(node) == group,
        None => plan.of_session(session.id) == group,
    });
    alone
}

fn session_of(decision: &Decision) -> SessionId {
    match decision {
        Decision::Place { session, .. } | Decision::End { session, .. } => *session,
    }
}

/// No limits and no dependencies, which join groups; one in three orders of the queue, with each mode of backfill.
fn unjoined(round: u32) -> ClusterSnapshot {
    let mut numbers = Numbers(u64::from(round));
    let mut world = generated(&mut numbers);
    world.limits.clear();
    world.allowances.clear();
    world.policy.each = None;
    world.policy.order = match round % 3 {
        0 => QueueOrder::Turns,
        1 => QueueOrder::Fifo,
        _ => QueueOrder::Lifo,
    };
    world.policy.backfill = match (round / 3) % 2 {
        0 => BackfillMode::Timed,
        _ => BackfillMode::Strict,
    };
    for session in &mut world.sessions {
        session.spec.depends_on.clear();
    }
    world
}

/// Promise (Queue and scheduler): Sessions of one resource group hold back no session of another: each group is
/// served as a site of its own with its nodes and sessions.
#[test]
fn each_group_is_served_as_if_there_were_no_other() {
    let (mut placed, mut waited) = (0, 0);
    for round in 0..WORLDS {
        let mut world = unjoined(round);
        if round % 4 == 0 {
            // Some stand on machines that went to another group since.
            pass(&mut world, NOW);
        }
        world.groups = split(&world);
        let decisions = decide(&world, NOW);
        for group in [ResourceGroupId::DEFAULT, LAB] {
            let alone = alone(&world, group);
            let is_own = |one: &&Decision| world.groups.of_session(session_of(one)) == group;
            let own: Vec<Decision> = decisions.iter().filter(is_own).cloned().collect();
            assert_eq!(own, decide(&alone, NOW), "world {round}, {group}");
            placed += own.len();
            for session in alone.sessions.iter().filter(|one| one.is_pending()) {
                let mut told = explain_session(&world, session, NOW);
                let mut expected = explain_session(&alone, session, NOW);
                waited += usize::from(told.verdict == Verdict::Wait);
                if world.policy.order == QueueOrder::Turns {
                    // A user who gets a place anywhere has had their turn in the next pass.
                    for one in [&mut told, &mut expected] {
                        (one.eta, one.outlook) = (None, None);
                    }
                }
                assert_eq!(told, expected, "world {round}, {group}, {}", session.name);
            }
        }
    }
    assert!(placed > 300 && waited > 300, "too tame: {placed} {waited}");
}

/// A site whose only group is the founding one decides and explains as one without groups.
#[test]
fn one_group_changes_nothing() {
    for round in 0..WORLDS {
        let world = generated(&mut Numbers(u64::from(round)));
        let mut grouped = world.clone();
        grouped.groups.groups = vec![group(ResourceGroupId::DEFAULT, "default")];
        assert_eq!(decide(&world, NOW), decide(&grouped, NOW), "world {round}");
        let (before, after) = (forecast(&world, NOW), forecast(&grouped, NOW));
        assert_eq!(before.order, after.order, "world {round}");
        assert_eq!(before.starts, after.starts, "world {round}");
        for session in &world.sessions {
            let told = explain_session(&world, session, NOW);
            assert_eq!(
                told,
                explain_session(&grouped, session, NOW),
                "world {round}"
            );
        }
    }
}

#[test]
fn a_session_waits_for_its_own_group_though_another_has_room() {
    let mut world = world("node a 4 8g 0|node b 4 8g 0|kim 4 1g 0|lee 4 1g 0|jo 1 1g 0");
    world.groups = GroupPlan {
        groups: vec![
            group(ResourceGroupId::DEFAULT, "default"),
            group(LAB, "lab"),
        ],
        nodes: [(world.nodes[1].id, LAB)].into(),
        sessions: [(world.sessions[2].id, LAB)].into(),
    };
    let now = Timestamp::from_millis(1000);
    let decisions = decide(&world, now);
    let started: Vec<SessionId> = decisions.iter().map(session_of).collect();
    assert_eq!(started, [world.sessions[0].id, world.sessions[2].id]);
    let told = explain_session(&world, &world.sessions[1], now);
    assert_eq!(
        (told.verdict, told.queue_position),
        (Verdict::Wait, Some(2))
    );
    let rooms: Vec<&str> = told.rooms.iter().map(|room| room.name.as_str()).collect();
    assert_eq!(rooms, ["a"]);
    let draft = RequestDraft {
        group: LAB,
        ..draft("3")
    };
    assert_eq!(
        explain_draft(&world, &draft, now).node.as_deref(),
        Some("b")
    );
}

#[test]
fn a_limit_of_a_user_counts_all_groups() {
    let mut world = world("node a 4 8g 1|node b 4 8g 1|kim 1 1g 1|lee 1 1g 1");
    world.policy.each = Some(GpuShare(100));
    world.groups = GroupPlan {
        groups: vec![
            group(ResourceGroupId::DEFAULT, "default"),
            group(LAB, "lab"),
        ],
        nodes: [(world.nodes[1].id, LAB)].into(),
        sessions: [(world.sessions[1].id, LAB)].into(),
    };
    let now = Timestamp::from_millis(1000);
    let decisions = decide(&world, now);
    assert_eq!(decisions.len(), 1);
    let other = &world.sessions[1];
    assert_eq!(session_of(&decisions[0]), world.sessions[0].id);
    let told = explain_session(&world, other, now);
    assert_eq!(told.verdict, Verdict::Wait);
    assert_eq!(told.blockers[0].code, crate::codes::GPU_QUOTA);
}

#[test]
fn who_may_no_longer_use_a_group_waits_and_holds_nobody_back() {
    let mut world = world("node a 4 8g 0|kim 4 1g 0|lee 4 1g 0");
    let mut founding = group(ResourceGroupId::DEFAULT, "default");
    let owner = UserId(uuid::Uuid::from_u128(7));
    world.sessions[1].owner = owner;
    founding.access = Some(GroupAccess {
        users: [owner].into(),
        ..GroupAccess::default()
    });
    world.groups.groups = vec![founding];
    let now = Timestamp::from_millis(1000);
    let decisions = decide(&world, now);
    assert_eq!(decisions.len(), 1);
    assert_eq!(session_of(&decisions[0]), world.sessions[1].id);
    let told = explain_session(&world, &world.sessions[0], now);
    assert_eq!(told.blockers[0].code, crate::codes::GROUP_NOT_ALLOWED);
    assert_eq!(told.queue_position, None);
}

#[test]
fn what_runs_on_a_node_that_went_to_another_group_may_have_as_much_as_that_node_has() {
    let mut world = world("node a 1 8g 0|node b 4 8g 0|kim 2 1g 0|lee 1 1g 0");
    let node = world.nodes[1].id;
    world.groups = GroupPlan {
        groups: vec![
            group(ResourceGroupId::DEFAULT, "default"),
            group(LAB, "lab"),
        ],
        nodes: [(node, LAB)].into(),
        ..GroupPlan::default()
    };
    let because = crate::reasons::placement_kept("b");
    world.sessions[0].place(node, Vec::new(), because, Timestamp::from_millis(1000));
    let bounds = |at: usize| world.groups.that_bounds(&world.sessions[at]);
    assert_eq!([bounds(0), bounds(1)], [LAB, ResourceGroupId::DEFAULT]);
    let spec = &world.sessions[0].spec;
    assert!(super::super::possible(&world, bounds(0), &spec.demand, &spec.environment).is_ok());
    assert!(super::super::possible(&world, bounds(1), &spec.demand, &spec.environment).is_err());
}
