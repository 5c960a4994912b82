//! Resource groups: each has a queue and machines of its own, and limits count all of them.

use super::agreement::{NOW, generated, pass};
use super::*;
use crate::calendar::{GroupCalendar, GroupWindow};
use crate::fair_share::QueueOrder;
use crate::names::TenantName;
use crate::placement::forecast;
use crate::policy::BackfillMode;
use crate::resource_group::{CpuOvercommit, GroupAccess, GroupPlan, ResourceGroup};
use crate::resources::DeviceShare;

/// Worlds that are generated.
const WORLDS: u32 = 600;
const LAB: ResourceGroupId = ResourceGroupId(uuid::Uuid::from_u128(u128::MAX));

pub(super) fn group(id: ResourceGroupId, name: &str) -> ResourceGroup {
    ResourceGroup::new(id, TenantName::parse(name).unwrap())
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
        ..GroupPlan::default()
    }
}

/// Three in four have an order or a mode of their own in one of the groups.
fn set_own_rules(plan: &mut GroupPlan, round: u32) {
    let own = &mut plan.groups[(round % 2) as usize];
    own.order = match (round / 6) % 4 {
        0 => None,
        1 => Some(QueueOrder::Fifo),
        2 => Some(QueueOrder::Lifo),
        _ => Some(QueueOrder::Turns),
    };
    own.backfill = match (round / 24) % 3 {
        0 => None,
        1 => Some(BackfillMode::Timed),
        _ => Some(BackfillMode::Strict),
    };
}

/// The machines of one group, what stands on them, and who waits in it, as a site without groups.
fn alone(world: &ClusterSnapshot, group: ResourceGroupId) -> ClusterSnapshot {
    let plan = &world.groups;
    let mut policy = world.policy;
    (policy.order, policy.backfill) = (world.order(group, NOW), world.backfill(group, NOW));
    let mut alone = ClusterSnapshot {
        policy,
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
        set_own_rules(&mut world.groups, round);
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
                if world.order(group, NOW) == QueueOrder::Turns {
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
fn a_group_goes_by_its_own_order_and_the_others_by_that_of_the_site() {
    let mut world = world("node a 1 8g 0|node b 1 8g 0|kim 1 1g 0|lee 1 1g 0|jo 1 1g 0|min 1 1g 0");
    world.policy.order = QueueOrder::Fifo;
    let queued = |number: u64| Timestamp::from_millis(1000 + number as i64);
    for (session, number) in world.sessions.iter_mut().zip(0..) {
        session.queued_at = queued(number);
    }
    let ids: Vec<SessionId> = world.sessions.iter().map(|session| session.id).collect();
    world.groups = split(&world);
    world.groups.groups[1].order = Some(QueueOrder::Lifo);
    let now = Timestamp::from_millis(2000);
    let mut started: Vec<SessionId> = decide(&world, now).iter().map(session_of).collect();
    started.sort_unstable();
    // Those at 1 and 3 are in the founding group, those at 0 and 2 in the other one.
    let mut expected = vec![ids[1], ids[2]];
    expected.sort_unstable();
    assert_eq!(started, expected);
}

/// By night, from 18:00 to 08:00, the first group starts batch sessions alone, the last one first.
fn by_night(world: &mut ClusterSnapshot) {
    let mut founding = group(ResourceGroupId::DEFAULT, "default");
    let night = GroupWindow::parse("daily 18:00-08:00 kinds=batch order=lifo").unwrap();
    founding.calendar = GroupCalendar::checked("UTC".to_owned(), vec![night]).unwrap();
    world.groups.groups = vec![founding];
}

fn hour(hour: i64) -> Timestamp {
    Timestamp::from_millis(hour * 3_600_000)
}

#[test]
fn what_a_window_does_not_take_waits_until_it_opens_and_holds_nobody_back() {
    let mut world = world("node a 4 8g 0|kim 4 1g 0|lee 4 1g 0");
    by_night(&mut world);
    world.sessions[0].spec.kind = SessionKind::Interactive;
    let first = |world: &mut ClusterSnapshot, now: Timestamp| {
        world.nodes[0].seen_at = now;
        let decisions = decide(world, now);
        assert_eq!(decisions.len(), 1);
        session_of(&decisions[0])
    };
    // By day the first one starts, by night the one that is taken.
    assert_eq!(first(&mut world, hour(12)), world.sessions[0].id);
    assert_eq!(first(&mut world, hour(20)), world.sessions[1].id);
    let told = explain_session(&world, &world.sessions[0], hour(20));
    assert_eq!(told.verdict, Verdict::Wait);
    assert_eq!(told.blockers[0].code, crate::codes::WINDOW_CLOSED);
    assert_eq!(told.blockers[0].params["at"], hour(32).to_string());
    assert_eq!(told.eta.map(|eta| eta.at), Some(hour(32)));
    assert_eq!(told.queue_position, None);
    let draft = RequestDraft {
        kind: SessionKind::Interactive,
        ..draft("1")
    };
    let told = explain_draft(&world, &draft, hour(20));
    assert_eq!(told.blockers[0].code, crate::codes::WINDOW_CLOSED);
}

#[test]
fn a_window_has_an_order_of_its_own_and_stops_nobody() {
    let mut world = world("node a 1 8g 0|kim 1 1g 0|lee 1 1g 0");
    world.policy.order = QueueOrder::Fifo;
    by_night(&mut world);
    for (session, number) in world.sessions.iter_mut().zip(0..) {
        session.queued_at = Timestamp::from_millis(number);
    }
    let order = |now| -> Vec<usize> {
        let order = order::waiting(&world, now);
        let place = |one: &&Session| world.sessions.iter().position(|s| s.id == one.id);
        order.iter().filter_map(place).collect()
    };
    assert_eq!((order(hour(12)), order(hour(20))), (vec![0, 1], vec![1, 0]));
    // An interactive session that runs when the night begins goes on.
    world.nodes[0].seen_at = hour(20);
    world.sessions[0].spec.kind = SessionKind::Interactive;
    let because = crate::reasons::placement_kept("a");
    let node = world.nodes[0].id;
    world.sessions[0].place(node, Vec::new(), because, hour(17));
    world.sessions[0].run_since(hour(17));
    assert_eq!(decide(&world, hour(20)), []);
    assert!(super::super::overdue(&world, hour(20)).is_empty());
}

#[test]
fn a_start_time_in_a_window_that_does_not_take_the_session_is_told_for_its_end() {
    let mut world = world("node a 4 8g 0|kim 4 1g 0");
    by_night(&mut world);
    world.nodes[0].seen_at = hour(12);
    world.sessions[0].spec.kind = SessionKind::Interactive;
    world.sessions[0].spec.start_at = Some(hour(20));
    let told = explain_session(&world, &world.sessions[0], hour(12));
    assert_eq!(told.blockers[0].code, crate::codes::START_LATER);
    assert_eq!(told.eta.map(|eta| eta.at), Some(hour(32)));
}

#[test]
fn no_start_is_told_from_the_next_change_of_windows_on() {
    let mut world = world("node a 1 8g 0|kim 1 1g 0|lee 1 1g 0|jo 1 1g 0");
    by_night(&mut world);
    world.nodes[0].seen_at = hour(12);
    for session in &mut world.sessions {
        session.spec.max_runtime_seconds = Some(4 * 3_600);
    }
    let starts = forecast(&world, hour(12)).starts;
    // At 16:00, and at 20:00 another order holds.
    let told: Vec<Timestamp> = starts.values().map(|start| start.at).collect();
    assert_eq!(told, [hour(12), hour(16)]);
    let last = &world.sessions[2];
    let said = explain_session(&world, last, hour(12)).outlook;
    assert_eq!(
        said.map(|said| said.code).as_deref(),
        Some(crate::codes::START_WINDOW_CHANGES)
    );
}

#[test]
fn cores_are_given_as_often_as_the_group_says_and_one_session_gets_no_more_than_its_node_has() {
    let text = "node a 4 64g 0|kim 3 1g 0|lee 3 1g 0|jo 3 1g 0";
    let now = Timestamp::from_millis(1000);
    for (factor, starts, room) in [(100, 1, 400), (150, 2, 600), (225, 3, 900)] {
        let mut world = world(text);
        let mut founding = group(ResourceGroupId::DEFAULT, "default");
        founding.cpu_overcommit = overcommit(factor);
        world.groups.groups = vec![founding];
        assert_eq!(decide(&world, now).len(), starts, "{factor}");
        let told = explain_draft(&world, &draft("5"), now);
        assert_eq!(told.verdict, Verdict::Never, "a node has four cores");
        let told = explain_session(&world, &world.sessions[0], now);
        assert_eq!(told.rooms[0].cpu, CpuShare(room));
        assert_eq!(told.checks[0].limit, CpuShare(room).to_string());
    }
}

fn overcommit(hundredths: u32) -> CpuOvercommit {
    CpuOvercommit::new(hundredths, "/cpu_overcommit").expect("in range")
}

/// Sessions never hold more cores of a node than the factor of its resource group allows, and none of them more than the
/// node has.
#[test]
fn no_pass_gives_more_cores_than_the_factor_of_a_group_says() {
    let mut beyond = 0;
    for round in 0..WORLDS {
        let mut world = generated(&mut Numbers(u64::from(round)));
        world.groups = split(&world);
        world.groups.groups[1].cpu_overcommit = overcommit(150 + 50 * (round % 4));
        pass(&mut world, NOW);
        pass(&mut world, NOW);
        let used = world.used();
        for node in &world.nodes {
            let held = used[&node.id].cpu;
            assert!(held <= world.cpu_room(node), "world {round}, {}", node.name);
            beyond += usize::from(held > node.capacity.cpu);
            let is_here = |session: &&Session| session.node() == Some(node.id);
            for session in world.sessions.iter().filter(is_here) {
                let own = session.spec.demand.cpu;
                assert!(own <= node.capacity.cpu, "world {round}, {}", session.name);
            }
        }
    }
    assert!(beyond > 0, "too tame");
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
        ..GroupPlan::default()
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
        ..GroupPlan::default()
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

/// kim holds in the lab all that one user may, until a time limit there: then kim is in front again, and lee behind.
#[test]
fn an_end_in_another_group_that_frees_a_limit_is_foreseen() {
    let mut world =
        world("node a 4 8g 1|node b 4 8g 1|held 1 1g 1|busy 1 1g 1|kim 1 1g 1|lee 1 1g 1");
    let now = Timestamp::from_millis(1000);
    let user = |number| UserId(uuid::Uuid::from_u128(number));
    world.policy.each = Some(GpuShare(100));
    world.policy.order = QueueOrder::Fifo;
    world.policy.backfill = BackfillMode::Strict;
    let nodes = [world.nodes[1].id, world.nodes[0].id];
    let owned = [(1, 50), (2, 100), (1, 60), (3, 70)];
    for (at, (owner, limit)) in owned.into_iter().enumerate() {
        let session = &mut world.sessions[at];
        session.owner = user(owner);
        session.spec.max_runtime_seconds = Some(limit);
        if let Some(node) = nodes.get(at) {
            let device = DeviceShare {
                index: 0,
                share: GpuShare(100),
                memory: Bytes::gib(80),
                part: None,
                simulated: false,
            };
            let because = crate::reasons::placement_kept("b");
            session.place(*node, vec![device], because, now);
            session.run_since(now);
        }
    }
    world.groups = GroupPlan {
        groups: vec![
            group(ResourceGroupId::DEFAULT, "default"),
            group(LAB, "lab"),
        ],
        nodes: [(nodes[0], LAB)].into(),
        sessions: [(world.sessions[0].id, LAB)].into(),
        ..GroupPlan::default()
    };
    let known = forecast(&world, now);
    let seconds = |at: usize| {
        let start = known.starts.get(&world.sessions[at].id)?;
        Some(start.at.seconds_since(now))
    };
    assert_eq!([seconds(2), seconds(3)], [Some(100), Some(160)]);
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
