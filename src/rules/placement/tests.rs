//! Placement by small worlds written as text: `node a cpu 2 mem 4g | kim 1 1g | …`.

mod agreement;
mod fair;
mod groups;
mod growth;
mod likely;
mod passing;
mod preempt;
mod reserved;
mod restarts;
mod timed;
mod turns;

use std::collections::BTreeMap;

use super::*;
use crate::names::{BootId, SessionName, UserId};
use crate::quota::{
    Allowance, LimitKey, LimitUsage, PolicyLevel, PolicyLimits, ScopedPolicy, TenantLevel,
};
use crate::resources::{Capacity, Device};
use crate::session::{Session, SessionKind, SessionSpec};
use crate::tenancy::{DomainId, ProjectId};
use crate::units::{Bytes, CpuShare, GpuShare};
use crate::workload::precedence::Precedence;
use crate::world::NodeRecord;

fn demand(cpu: &str, memory: &str, gpu: &str) -> Demand {
    Demand {
        cpu: CpuShare::parse(cpu).unwrap(),
        memory: Bytes::parse(memory).unwrap(),
        shm: Bytes::ZERO,
        disk: None,
        gpu: GpuShare::parse(gpu).unwrap(),
        gpu_memory: None,
        mig: None,
    }
}

/// What somebody thinks of launching.
fn draft(cpu: &str) -> RequestDraft {
    RequestDraft {
        kind: SessionKind::Batch,
        environment: SessionEnvironment::Host,
        demand: demand(cpu, "1g", "0"),
        start_at: None,
        depends_on: Vec::new(),
        precedence: Precedence::default(),
        replicas: 1,
        max_runtime_seconds: None,
        owner: None,
        domain: DomainId::DEFAULT,
        project: ProjectId::DEFAULT,
        group: ResourceGroupId::DEFAULT,
    }
}

/// Whether the machines of the founding group, were they empty, could ever hold this.
fn possible(
    world: &ClusterSnapshot,
    demand: &Demand,
    environment: &SessionEnvironment,
) -> Result<(), crate::refusal::Refusal> {
    super::possible(world, ResourceGroupId::DEFAULT, demand, environment)
}

/// One of two projects of the first domain, or one of another.
fn belonging(numbers: &mut Numbers, session: &mut Session) {
    match numbers.below(3) {
        0 => {}
        1 => session.project = ProjectId(uuid::Uuid::from_u128(71)),
        _ => {
            session.project = ProjectId(uuid::Uuid::from_u128(72));
            session.domain = DomainId(uuid::Uuid::from_u128(70));
        }
    }
}

/// Policies of some of the site, the domains, the projects and the users, each with some limits; none in half of all
/// worlds.
fn limits(numbers: &mut Numbers) -> Vec<ScopedPolicy> {
    let mut all = Vec::new();
    if numbers.below(2) == 0 {
        return all;
    }
    let id = |number: u128| Some(uuid::Uuid::from_u128(number));
    for (level, subject) in [
        (PolicyLevel::Site, None),
        (PolicyLevel::Domain, Some(DomainId::DEFAULT.0)),
        (PolicyLevel::Domain, id(70)),
        (PolicyLevel::Project, Some(ProjectId::DEFAULT.0)),
        (PolicyLevel::Project, id(71)),
        (PolicyLevel::Member, Some(ProjectId::DEFAULT.0)),
        (PolicyLevel::Member, id(71)),
        (PolicyLevel::User, id(1)),
        (PolicyLevel::User, id(2)),
    ] {
        if numbers.below(2) == 0 {
            continue;
        }
        let mut limits = PolicyLimits::default();
        for (key, most) in [
            (LimitKey::Sessions, 5),
            (LimitKey::Gpu, 300),
            (LimitKey::Cpu, 4_000),
            (LimitKey::Memory, 64),
        ] {
            let value = u64::from(numbers.below(most));
            let value = match key {
                LimitKey::Memory => value << 30,
                _ => value,
            };
            limits.set(key, (numbers.below(3) == 0).then_some(value));
        }
        all.push(ScopedPolicy {
            level,
            subject,
            whose: "whose".into(),
            name: "policy".into(),
            limits,
        });
    }
    all
}

/// Allowances for some of those whom policies bound; none in half of all worlds.
fn allowances(numbers: &mut Numbers) -> Vec<Allowance> {
    let mut all = Vec::new();
    if numbers.below(2) == 0 {
        return all;
    }
    for (level, subject) in [
        (TenantLevel::Domain, DomainId::DEFAULT.0),
        (TenantLevel::Project, ProjectId::DEFAULT.0),
        (TenantLevel::User, uuid::Uuid::from_u128(1)),
        (TenantLevel::User, uuid::Uuid::from_u128(2)),
    ] {
        if numbers.below(2) == 0 {
            continue;
        }
        let mut limits = PolicyLimits::default();
        limits.set(LimitKey::Sessions, Some(u64::from(numbers.below(6))));
        limits.set(LimitKey::Gpu, Some(u64::from(numbers.below(400))));
        all.push(Allowance {
            level,
            subject,
            limits,
            until: Timestamp::from_millis(i64::MAX),
        });
    }
    all
}

/// What of these limits more is held of than they allow; empty where none is.
fn beyond(world: &ClusterSnapshot) -> Vec<String> {
    let mut broken = Vec::new();
    let holds = |s: &&Session| s.state().holds_resources();
    for policy in &world.limits {
        let mut sums: BTreeMap<Option<UserId>, (LimitUsage, uuid::Uuid)> = BTreeMap::new();
        for session in world.sessions.iter().filter(holds) {
            let (own, each) = match policy.level {
                PolicyLevel::Site => (true, Some(session.owner)),
                PolicyLevel::Domain => (policy.subject == Some(session.domain.0), None),
                PolicyLevel::Project => (policy.subject == Some(session.project.0), None),
                PolicyLevel::Member => (
                    policy.subject == Some(session.project.0),
                    Some(session.owner),
                ),
                PolicyLevel::User => (policy.subject == Some(session.owner.0), None),
            };
            if own {
                let shares = session.devices().iter().map(|d| u64::from(d.share.0));
                let whose = match policy.level {
                    PolicyLevel::Domain => session.domain.0,
                    PolicyLevel::Project => session.project.0,
                    PolicyLevel::Site | PolicyLevel::Member | PolicyLevel::User => session.owner.0,
                };
                let (sum, _) = sums.entry(each).or_insert((LimitUsage::default(), whose));
                *sum = sum.plus(LimitUsage {
                    sessions: 1,
                    gpu: shares.sum(),
                    cpu: u64::from(session.spec.demand.cpu.0),
                    memory: session.spec.demand.memory.0,
                    ..LimitUsage::default()
                });
            }
        }
        for (sum, whose) in sums.values() {
            for key in LimitKey::ALL {
                let raised = world.allowances.iter().filter(|one| {
                    one.subject == *whose && one.level == TenantLevel::that_raises(policy.level)
                });
                let raised = raised.filter_map(|one| one.limits.get(key)).max();
                let limit = policy.limits.get(key);
                let limit = limit.map(|limit| limit.max(raised.unwrap_or(0)));
                if limit.is_some_and(|limit| sum.get(key) > limit) {
                    broken.push(format!("{key:?}: {sum:?} of {policy:?}"));
                }
            }
        }
    }
    broken
}

/// A list that changes forgets where its sessions stood, and a clone that does not change keeps what it knew.
#[test]
fn a_live_session_is_found_in_whatever_order_the_list_stands() {
    let mut world = world("node a 16 64g 4 | kim 1 1g 1 | lee 1 1g 1 | jo 1 1g 1");
    let before = world.clone();
    let ids: Vec<SessionId> = world.sessions.iter().map(|session| session.id).collect();
    let places = |world: &ClusterSnapshot| -> Vec<Option<usize>> {
        ids.iter().map(|id| world.sessions.place(*id)).collect()
    };
    assert_eq!(places(&world), [Some(0), Some(1), Some(2)]);
    world.sessions.reverse();
    assert_eq!(places(&world), [Some(2), Some(1), Some(0)]);
    world.sessions.retain(|session| session.id != ids[1]);
    assert_eq!(places(&world), [Some(1), None, Some(0)]);
    for id in &ids {
        let found = world.session(*id).map(|session| session.id);
        assert_eq!(found, (*id != ids[1]).then_some(*id));
    }
    assert_eq!(places(&before), [Some(0), Some(1), Some(2)]);
}

/// A pass over what holds room visits nothing that waits, and sees each change.
#[test]
fn those_that_hold_room_are_known_and_followed() {
    let mut world = world("node a 16 64g 4 | kim 1 1g 1 | lee 1 1g 1 | jo 1 1g 1");
    let now = Timestamp::from_millis(1000);
    assert_eq!(world.sessions.holding().count(), 0);
    let placed = agreement::pass(&mut world, now);
    assert_eq!(placed.len(), 3);
    assert_eq!(world.sessions.holding().count(), 3);
    world.sessions.remove(1);
    let holding: Vec<SessionId> = world.sessions.holding().map(|one| one.id).collect();
    let left: Vec<SessionId> = world.sessions.iter().map(|one| one.id).collect();
    assert_eq!(holding, left);
}

#[test]
fn a_limit_of_a_project_holds_for_all_of_its_members_and_says_so() {
    let mut world = world("node a 16 64g 4 | kim 1 1g 1 | lee 1 1g 1 | jo 1 1g 1");
    let project = ProjectId(uuid::Uuid::from_u128(71));
    for (number, session) in world.sessions.iter_mut().enumerate() {
        session.owner = UserId(uuid::Uuid::from_u128(1 + number as u128));
        if number < 2 {
            session.project = project;
        }
    }
    let mut limits = PolicyLimits::default();
    limits.set(LimitKey::Gpu, Some(150));
    world.limits = vec![ScopedPolicy {
        level: PolicyLevel::Project,
        subject: Some(project.0),
        whose: "vision".into(),
        name: "small".into(),
        limits,
    }];
    let now = Timestamp::from_millis(1000);
    let placed: Vec<SessionId> = decide(&world, now)
        .into_iter()
        .filter_map(|decision| match decision {
            Decision::Place { session, .. } => Some(session),
            Decision::End { .. } => None,
        })
        .collect();
    assert_eq!(placed, [world.sessions[0].id, world.sessions[2].id]);
    let why = explain_session(&world, &world.sessions[1], now);
    assert_eq!(why.verdict, Verdict::Wait);
    assert_eq!(why.blockers[0].code, "limit.project");
    assert_eq!(
        why.sentence,
        "It needs 1 GPU; sessions of the project vision hold 1 GPU of at most 1.5 GPU (policy small)."
    );
}

#[test]
fn a_limit_of_each_member_holds_for_each_in_that_project_alone() {
    let mut world = world(
        "node a 16 64g 8 | kim 1 1g 1 | kim2 1 1g 1 | kim3 1 1g 1 | lee 1 1g 1 | lee2 1 1g 1",
    );
    let project = ProjectId(uuid::Uuid::from_u128(71));
    for (number, session) in world.sessions.iter_mut().enumerate() {
        // The third of kim's is in another project.
        session.owner = UserId(uuid::Uuid::from_u128(if number < 3 { 1 } else { 2 }));
        if number != 2 {
            session.project = project;
        }
    }
    let mut limits = PolicyLimits::default();
    limits.set(LimitKey::Sessions, Some(1));
    world.limits = vec![ScopedPolicy {
        level: PolicyLevel::Member,
        subject: Some(project.0),
        whose: "vision".into(),
        name: "students".into(),
        limits,
    }];
    let now = Timestamp::from_millis(1000);
    let mut placed: Vec<SessionId> = decide(&world, now)
        .into_iter()
        .filter_map(|decision| match decision {
            Decision::Place { session, .. } => Some(session),
            Decision::End { .. } => None,
        })
        .collect();
    placed.sort_unstable();
    let mut expected = [0, 2, 3].map(|number: usize| world.sessions[number].id);
    expected.sort_unstable();
    assert_eq!(placed, expected);
    let why = explain_session(&world, &world.sessions[4], now);
    assert_eq!(why.verdict, Verdict::Wait);
    assert_eq!(why.blockers[0].code, "limit.member");
    assert_eq!(
        why.sentence,
        "1 of at most 1 sessions for each member of the project vision run (policy students)."
    );
}

/// `node NAME CPU MEMORY DEVICES` and `NAME CPU MEMORY GPU`, parted by `|`.
fn world(text: &str) -> ClusterSnapshot {
    let mut world = ClusterSnapshot::default();
    for (n, line) in text.split('|').enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words[0] == "node" {
            world.nodes.push(NodeRecord {
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
                    others: Vec::new(),
                },
                host_environment: true,
                seen_at: Timestamp::from_millis(0),
                generation: 0,
                schedulable: true,
                note: String::new(),
                cordoned: Default::default(),
                problems: Vec::new(),
            });
        } else {
            let spec = SessionSpec {
                kind: SessionKind::Batch,
                environment: SessionEnvironment::Host,
                command: vec!["true".into()],
                env: BTreeMap::new(),
                demand: demand(words[1], words[2], words[3]),
                timeout_seconds: None,
                max_runtime_seconds: None,
                start_at: None,
                depends_on: Vec::new(),
                containers: 1,
            };
            world.sessions.push(Session::launched(
                SessionId(uuid::Uuid::from_u128(100 + n as u128)),
                SessionName::parse(words[0]).unwrap(),
                UserId(uuid::Uuid::nil()),
                spec,
                Timestamp::from_millis(n as i64),
            ));
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

/// Proves too: `every_hundredth_survives_json`
#[test]
fn a_fraction_goes_to_the_fullest_device_that_holds_it() {
    check(
        "node a 8 64g 2 | kim 1 1g 0.50 | lee 1 1g 0.30 | jo 1 1g 1",
        "kim a/0:0.5 | lee a/0:0.3 | jo a/1:1",
    );
}

/// Where sessions go that come one after the other and end at once, by the names of their nodes.
fn in_turns(text: &str, rounds: u128) -> Vec<String> {
    let mut world = world(text);
    world.policy.spreading = crate::policy::Spreading::RoundRobin;
    let asked = world.sessions.clone().into_vec();
    let mut went = Vec::new();
    for round in 0..rounds {
        let fresh = asked.iter().cloned().map(|mut session| {
            session.id = SessionId(uuid::Uuid::from_u128(session.id.0.as_u128() + 1000 * round));
            session
        });
        world.sessions = fresh.collect();
        for decision in decide(&world, Timestamp::from_millis(1000)) {
            let Decision::Place { node, .. } = decision else {
                panic!("{decision:?}");
            };
            went.push(world.node(node).unwrap().name.clone());
            world.note_turn(node);
        }
    }
    went
}

#[test]
fn nodes_take_turns_also_over_sessions_that_are_long_over() {
    let nodes = "node a 8 64g 0 | node b 8 64g 0 | node c 8 64g 0";
    let one = in_turns(&format!("{nodes} | kim 1 1g 0"), 5);
    assert_eq!(one, ["a", "b", "c", "a", "b"]);
    let two = in_turns(&format!("{nodes} | kim 1 1g 0 | lee 1 1g 0"), 3);
    assert_eq!(two, ["a", "b", "c", "a", "b", "c"]);
    // b has no room for it, and loses no turn by that.
    let large = "node a 8 64g 1 | node b 2 64g 1 | node c 8 64g 1 | kim 4 1g 0.5";
    assert_eq!(in_turns(large, 4), ["a", "c", "a", "c"]);
}

#[test]
fn nobody_overtakes_one_that_waits_for_the_same() {
    for (text, expected) in [
        (
            "node a 2 8g 0 | kim 1.5 1g 0 | lee 1 1g 0 | jo 0.5 1g 0",
            "kim a | lee waits | jo waits",
        ),
        (
            "node a 8 64g 1 | kim 1 1g 0.6 | lee 1 1g 0.5 | jo 1 1g 0.1",
            "kim a/0:0.6 | lee waits | jo waits",
        ),
    ] {
        check(text, expected);
    }
}

#[test]
fn whoever_wants_nothing_that_is_waited_for_starts() {
    for (text, expected) in [
        (
            "node a 8 64g 1 | kim 1 1g 1 | lee 1 1g 0.5 | jo 1 1g 0",
            "kim a/0:1 | lee waits | jo a",
        ),
        // lee and ann take kim's place one after the other, so their cores are kept once, not twice.
        (
            "node a 4 64g 1 | kim 2 1g 1 | lee 2 1g 1 | ann 2 1g 1 | jo 2 1g 0",
            "kim a/0:1 | lee waits | ann waits | jo a",
        ),
        // lee needs one core more than kim gives back.
        (
            "node a 4 64g 1 | kim 2 1g 1 | lee 3 1g 1 | jo 2 1g 0 | ann 1 1g 0",
            "kim a/0:1 | lee waits | jo waits | ann waits",
        ),
        // Two halves may come for the one that kim has.
        (
            "node a 4 64g 1 | kim 1 1g 1 | lee 1.5 1g 0.5 | ann 1.5 1g 0.5 | jo 1.5 1g 0 | ed 1 1g 0",
            "kim a/0:1 | lee waits | ann waits | jo waits | ed waits",
        ),
        // b could never hold lee.
        (
            "node a 4 8g 0 | node b 2 8g 0 | kim 3 1g 0 | lee 4 1g 0 | jo 2 1g 0 | ann 1 1g 0",
            "kim a | lee waits | jo b | ann waits",
        ),
    ] {
        check(text, expected);
    }
}

#[test]
fn a_device_that_cannot_give_what_is_waited_for_is_given_to_others() {
    let mut world = world(
        "node a 8 64g 2 | kim 1 1g 0.99 | lee 1 1g 0.5 | jo 1 1g 0.5 | ann 1 1g 1 | ed 1 1g 0.2",
    );
    world.nodes[0].capacity.devices[1].memory = Bytes::gib(24);
    let on_the_large_one = |s: &mut Session| s.spec.demand.gpu_memory = Some(Bytes::gib(30));
    on_the_large_one(&mut world.sessions[0]);
    on_the_large_one(&mut world.sessions[1]);
    let decisions = decide(&world, Timestamp::from_millis(1000));
    let given: Vec<(u128, u32)> = decisions
        .iter()
        .filter_map(|d| match d {
            Decision::Place {
                session, devices, ..
            } => Some((session.0.as_u128() - 100, devices[0].index)),
            Decision::End { .. } => None,
        })
        .collect();
    // lee waits for the large card, jo has half of the small one; ann waits for a whole one, and ed behind her.
    assert_eq!(given, [(1, 0), (3, 1)]);
    let why = explain_session(&world, &world.sessions[4], Timestamp::from_millis(1000));
    assert_eq!(why.blockers[0].code, "queue.behind");
}

#[test]
fn a_smaller_request_has_as_many_whole_devices_as_a_node_has_empty() {
    for (text, offered) in [
        ("node a 16 64g 4 | kim 1 1g 0.25 | jo 1 1g 4", "3"),
        (
            "node a 16 64g 4 | kim 1 1g 1 | lee 1 1g 0.5 | jo 1 1g 4",
            "2",
        ),
        (
            "node a 16 64g 4 | kim 1 1g 2 | lee 1 1g 0.5 | jo 1 1g 2",
            "1",
        ),
        (
            "node a 16 64g 2 | kim 1 1g 0.6 | lee 1 1g 0.7 | jo 1 1g 2",
            "0.4",
        ),
    ] {
        let world = world(text);
        let last = world.sessions.last().unwrap();
        let why = explain_session(&world, last, Timestamp::from_millis(1000));
        let offers: Vec<String> = why
            .alternatives
            .iter()
            .map(|other| other.demand.gpu.to_string())
            .collect();
        assert_eq!(offers, [offered], "{text}");
    }
}

/// kim has the device, lee waits for it with half a core more than kim gives back.
#[test]
fn an_offer_of_less_than_is_free_says_for_whom_the_rest_is_reserved() {
    let now = Timestamp::from_millis(1000);
    for (asked, offered, because) in [
        // No room even without lee: the offer alone would contradict the three free cores.
        (350, 250, Some("queue.rest-kept")),
        // Room but for lee: a blocker says so, and once is enough.
        (300, 250, None),
    ] {
        let mut world = world("node a 4 64g 1 | kim 1 1g 1 | lee 1.5 1g 1 | jo 1 1g 0");
        world.sessions[2].spec.demand.cpu = CpuShare(asked);
        let jo = explain_session(&world, &world.sessions[2], now);
        let offer = &jo.alternatives[0];
        assert_eq!(offer.demand.cpu, CpuShare(offered), "{asked}");
        let told = offer.because.as_ref();
        assert_eq!(told.map(|why| why.code.as_str()), because, "{asked}");
        let kept = jo.blockers.iter().any(|why| why.code == "queue.kept");
        assert_ne!(kept, told.is_some(), "said once: {jo:?}");
        if let Some(why) = told {
            assert_eq!(why.ends_with, Some(world.sessions[1].id));
            assert!(why.text.contains("lee"), "{}", why.text);
        }
    }
    let alone = world("node a 4 64g 0 | kim 1 1g 0 | jo 3.5 1g 0");
    let jo = explain_session(&alone, &alone.sessions[1], now);
    assert_eq!(
        jo.alternatives[0].because, None,
        "all that is free is offered"
    );
}

#[test]
fn an_offer_is_all_that_is_free_to_the_hundredth() {
    for (text, free) in [
        ("node a 2 64g 0 | kim 1.3 1g 0 | jo 2 1g 0", "0.7"),
        ("node a 2 64g 0 | kim 0.01 1g 0 | jo 2 1g 0", "1.99"),
    ] {
        let world = world(text);
        let jo = explain_session(&world, &world.sessions[1], Timestamp::from_millis(1000));
        let offered: Vec<CpuShare> = jo.alternatives.iter().map(|one| one.demand.cpu).collect();
        assert_eq!(offered, [CpuShare::parse(free).unwrap()], "{text}");
    }
}

#[test]
fn what_is_kept_is_said() {
    let world = world(
        "node a 4 64g 1 | kim 1 1g 1 | lee 1.5 1g 0.5 | ann 1.5 1g 0.5 | jo 1.5 1g 0 | ed 1.5 1g 0.2",
    );
    let now = Timestamp::from_millis(1000);
    let why = |at: usize| explain_session(&world, &world.sessions[at], now);
    let jo = why(3);
    assert_eq!(
        (jo.verdict, jo.sentence.as_str()),
        (
            Verdict::Wait,
            "The free resources are reserved for lee, which is before it in the queue."
        )
    );
    assert_eq!(jo.blockers[0].code, "queue.kept");
    assert_eq!(jo.blockers[0].ends_with, Some(world.sessions[1].id));
    // Three of the three cores that are free would be kept for lee and ann; one more is the machine's.
    assert_eq!(jo.alternatives[0].demand.cpu, CpuShare(100));
    let lee = why(1);
    assert!(lee.blockers.iter().all(|b| !b.code.starts_with("queue.")));
    assert_eq!(why(4).blockers[0].code, "queue.behind");
    // jo waits for processor time now, and so does whoever comes after.
    assert_eq!(
        explain_draft(&world, &draft("1"), now).verdict,
        Verdict::Wait
    );
}

#[test]
fn an_estimate_counts_those_in_front() {
    let mut world = world("node a 8 64g 1 | kim 1 1g 1 | lee 1 1g 1 | jo 1 1g 0.5");
    let now = Timestamp::from_millis(1000);
    let limit = |s: &mut Session, seconds: u64| s.spec.timeout_seconds = Some(seconds);
    limit(&mut world.sessions[0], 60);
    let eta = |world: &ClusterSnapshot, at: usize| {
        let told = explain_session(world, &world.sessions[at], now);
        told.eta.map(|eta| eta.p50_seconds)
    };
    assert_eq!(eta(&world, 1), Some(60));
    assert_eq!(eta(&world, 2), None, "nobody knows when lee ends");
    limit(&mut world.sessions[1], 30);
    assert_eq!(eta(&world, 2), Some(90));
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
    let order = world.sessions[0].spec.clone();
    let asked = |world: &ClusterSnapshot| {
        possible(world, &order.demand, &order.environment).map_err(|r| r.code)
    };
    let problem = Reason::new("node.refuses.no-root", "fardel does not run as root.");
    world.nodes[0].problems.push(problem.clone());
    assert_eq!(asked(&world), Ok(()));
    world.nodes[1].problems.push(problem);
    assert_eq!(asked(&world), Err("node.refuses.no-root".into()));
}

#[test]
fn a_stopped_waiting_session_ends() {
    let mut world = world("node a 8 8g 0 | kim 1 1g 0");
    world.sessions[0].desired = DesiredState::Stop;
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
    world.sessions[0].spec.depends_on = vec![gone];
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
fn what_is_scarcest_is_said_first() {
    for (busy, wanted, expected) in [
        ("2 1g 1", demand("3", "1g", "1"), ["gpu.short", "cpu.short"]),
        (
            "3 1g 0.2",
            demand("4", "1g", "0.9"),
            ["cpu.short", "gpu.short"],
        ),
    ] {
        let world = world(&format!("node a 4 64g 1 | busy {busy}"));
        let draft = RequestDraft {
            demand: wanted,
            ..draft("1")
        };
        let told = explain_draft(&world, &draft, Timestamp::from_millis(1000));
        let codes: Vec<&str> = told.blockers.iter().map(|one| one.code.as_str()).collect();
        assert_eq!(codes, expected, "{busy}");
        assert_eq!(told.sentence, told.blockers[0].text);
    }
}

#[test]
fn the_preview_says_what_the_scheduler_does() {
    let busy = world("node a 2 4g 0 | kim 1 1g 0 | lee 1 1g 0");
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

/// Proves too: `every_answer_about_the_queue_is_the_same_answer`
#[test]
fn preview_and_scheduler_never_disagree() {
    // A small fixed generator: the same 2,000 worlds on every run.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |n: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for round in 0..2000 {
        let mut text = format!("node a {} {}g {}", 1 + random(8), 1 + random(16), random(3));
        if random(2) == 0 {
            text += &format!(" | node b {} {}g 1", 1 + random(8), 1 + random(16));
        }
        for n in 0..random(8) {
            text += &format!(
                " | s{n} {}.{} {}g 0.{}",
                random(4),
                1 + random(9),
                1 + random(6),
                random(10)
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
                possible(&world, &session.spec.demand, &session.spec.environment).is_err();
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
                let because = crate::reason::Reason::new("test", "Placed.");
                row.place(node, devices, because, Timestamp::from_millis(1000));
            }
        }
        assert_eq!(
            crate::findings::findings(&after),
            Vec::new(),
            "round {round}: {text}"
        );
    }
}

/// Numbers that look like chance and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).unwrap() % most.max(1)
    }
}

/// A world with machines of every sort and nobody in it.
fn machines(numbers: &mut Numbers) -> ClusterSnapshot {
    let mut world = ClusterSnapshot {
        policy: crate::policy::SharePolicy {
            spreading: match numbers.below(2) {
                0 => crate::policy::Spreading::Pack,
                _ => crate::policy::Spreading::Spread,
            },
            each: (numbers.below(2) == 0).then(|| GpuShare(100 + numbers.below(300))),
            ..crate::policy::SharePolicy::default()
        },
        ..ClusterSnapshot::default()
    };
    for n in 0..=numbers.below(3) {
        let mut node = super::tests::world("node a 64 512g 0").nodes.remove(0);
        node.id = NodeId(uuid::Uuid::from_u128(u128::from(n)));
        node.name = format!("node-{n}");
        for index in 0..=numbers.below(7) {
            let partitioned = numbers.below(8) == 0;
            node.capacity.devices.push(Device {
                memory: Bytes::gib(16 << numbers.below(3)),
                sms: 132,
                uuid: format!("{n}-{index}"),
                numa: Some(index / 4),
                link: (numbers.below(2) == 0).then_some(index / 2),
                mig: if partitioned { halved() } else { Vec::new() },
                ..Device::new(index, "test")
            });
        }
        world.nodes.push(node);
    }
    world
}

fn halved() -> Vec<crate::devices::MigPart> {
    ["1g.5gb", "1g.5gb"]
        .map(|word| crate::devices::MigPart {
            uuid: String::new(),
            profile: crate::devices::MigProfile::parse(word).unwrap(),
            memory: Bytes::gib(5),
            sms: 16,
        })
        .to_vec()
}

fn request(numbers: &mut Numbers) -> Demand {
    let share = match numbers.below(6) {
        0 => 100,
        1 => 200,
        2 => 150,
        _ => 1 + numbers.below(99),
    };
    let apart = share % 100 != 0 && numbers.below(4) == 0;
    let partitioned = numbers.below(10) == 0;
    Demand {
        gpu: if partitioned {
            GpuShare::ZERO
        } else {
            GpuShare(share)
        },
        gpu_memory: (apart && !partitioned).then(|| Bytes::gib(u64::from(1 + numbers.below(20)))),
        mig: partitioned.then(|| crate::devices::MigProfile::parse("1g.5gb").unwrap()),
        ..demand("1", "1g", "0")
    }
}

/// Promise (GPUs): The shares of a GPU never sum to more than the GPU. No user holds more than the
/// administrator's limit, and every session gets its turn.
#[test]
fn never_over_a_card_never_over_the_quota_and_everybody_gets_their_turn() {
    for seed in 0..300 {
        let mut numbers = Numbers(seed);
        let mut world = machines(&mut numbers);
        for n in 0..40_u32 {
            let request = request(&mut numbers);
            if request.check().is_err()
                || possible(&world, &request, &SessionEnvironment::Host).is_err()
            {
                continue;
            }
            let mut session = super::tests::world(&format!("s{n} 1 1g 0"))
                .sessions
                .remove(0);
            session.id = SessionId(uuid::Uuid::from_u128(u128::from(1000 + n)));
            session.owner = UserId(uuid::Uuid::from_u128(u128::from(numbers.below(3))));
            belonging(&mut numbers, &mut session);
            session.spec.demand = request;
            session.queued_at = Timestamp::from_millis(i64::from(n));
            world.sessions.push(session);
        }
        world.limits = limits(&mut numbers);
        world.allowances = allowances(&mut numbers);
        let now = Timestamp::from_millis(1000);
        // What no ending could mend is refused at its launch.
        let possible = |session: &Session| {
            let mut alone = ClusterSnapshot {
                sessions: vec![session.clone()].into(),
                ..world.clone()
            };
            !agreement::pass(&mut alone, now).is_empty()
        };
        let launched: Vec<Session> = world
            .sessions
            .iter()
            .filter(|s| possible(s))
            .cloned()
            .collect();
        world.sessions = launched.into();
        let mut rounds = 0;
        while !world.sessions.is_empty() {
            rounds += 1;
            assert!(rounds < 200, "seed {seed}: somebody never gets a turn");
            let first = order::waiting(&world, now).first().map(|s| s.id);
            let decisions = decide(&world, now);
            if let Some(first) = first {
                let told = explain_session(&world, world.session(first).unwrap(), now);
                let placed = decisions
                    .iter()
                    .any(|d| matches!(d, Decision::Place { session, .. } if *session == first));
                assert_eq!(
                    told.verdict == Verdict::Now,
                    placed,
                    "seed {seed}: {told:?}"
                );
            }
            for decision in decisions {
                if let Decision::Place {
                    session,
                    node,
                    devices,
                    because,
                    ..
                } = decision
                {
                    let row = world.sessions.iter_mut().find(|s| s.id == session).unwrap();
                    let given: u32 = devices
                        .iter()
                        .filter(|d| d.part.is_none())
                        .map(|d| d.share.0)
                        .sum();
                    assert_eq!(
                        given, row.spec.demand.gpu.0,
                        "seed {seed}: not what was asked"
                    );
                    row.place(node, devices, because, now);
                    row.run_since(now);
                }
            }
            let broken = crate::findings::findings(&world);
            assert!(broken.is_empty(), "seed {seed}: {broken:?}");
            assert_eq!(beyond(&world), Vec::<String>::new(), "seed {seed}");
            if let Some(each) = world.policy.each {
                let mut held: BTreeMap<UserId, u32> = BTreeMap::new();
                for s in world
                    .sessions
                    .iter()
                    .filter(|s| s.state().holds_resources())
                {
                    let shares = s.devices().iter().map(|d| d.share.0);
                    *held.entry(s.owner).or_default() += shares.sum::<u32>();
                }
                assert!(
                    held.values().all(|h| *h <= each.0),
                    "seed {seed}: {held:?} of {each}"
                );
            }
            // Some of what runs is resized, and some ends.
            for at in 0..world.sessions.len() {
                if world.sessions[at].state() != SessionState::Running || numbers.below(3) > 0 {
                    continue;
                }
                let wanted = Demand {
                    gpu: GpuShare(1 + numbers.below(99)),
                    gpu_memory: None,
                    ..world.sessions[at].spec.demand
                };
                let free = world.policy.each.is_none() && world.limits.is_empty();
                if free && let Ok(devices) = regrant(&world, &world.sessions[at], &wanted) {
                    world.sessions[at].spec.demand = wanted;
                    world.sessions[at].regrant(devices);
                    let broken = crate::findings::findings(&world);
                    assert!(broken.is_empty(), "seed {seed}: a resize: {broken:?}");
                }
            }
            for session in &mut world.sessions {
                session.confirm_devices();
            }
            world
                .sessions
                .retain(|s| s.state() == SessionState::Pending || numbers.below(2) == 0);
        }
    }
}

#[test]
fn several_devices_come_from_one_group_and_a_fraction_may_stand_beside_them() {
    let mut world = world("node a 64 512g 8 | kim 1 1g 2.5 | lee 1 1g 2");
    for device in &mut world.nodes[0].capacity.devices {
        device.numa = Some(device.index / 4);
        device.link = Some(device.index / 4);
    }
    // One of socket 0 is taken, so its three are the smallest group that holds two and a half.
    world.nodes[0].cordoned.insert("test-0-0".into());
    let decisions = decide(&world, Timestamp::from_millis(1000));
    let given: Vec<Vec<(u32, u32)>> = decisions
        .iter()
        .filter_map(|d| match d {
            Decision::Place { devices, .. } => {
                Some(devices.iter().map(|d| (d.index, d.share.0)).collect())
            }
            Decision::End { .. } => None,
        })
        .collect();
    assert_eq!(
        given,
        [vec![(1, 100), (2, 100), (3, 50)], vec![(4, 100), (5, 100)]]
    );
}

#[test]
fn what_a_slice_gives_back_stays_kept_until_it_is_confirmed() {
    let mut world = world("node a 8 64g 1 | kim 1 1g 0.80");
    let now = Timestamp::from_millis(1000);
    let Some(Decision::Place {
        node,
        devices,
        because,
        ..
    }) = decide(&world, now).pop()
    else {
        panic!("an empty machine takes it");
    };
    let kim = &mut world.sessions[0];
    kim.place(node, devices, because, now);
    kim.run_since(now);
    let smaller = Demand {
        gpu: GpuShare(20),
        ..kim.spec.demand
    };
    let devices = regrant(&world, &world.sessions[0], &smaller).expect("smaller always fits");
    let kim = &mut world.sessions[0];
    kim.spec.demand = smaller;
    kim.regrant(devices);
    let waiting = super::tests::world("lee 1 1g 0.50").sessions.remove(0);
    world.sessions.push(waiting);
    world.sessions[1].id = SessionId(uuid::Uuid::from_u128(7));
    assert!(decide(&world, now).is_empty(), "given away too early");
    world.sessions[0].confirm_devices();
    assert_eq!(decide(&world, now).len(), 1);
}

#[test]
fn a_partition_counts_for_what_one_user_may_hold() {
    let mut world = world("node a 8 64g 2 | kim 1 1g 0.9 | lee 1 1g 0 | jo 1 1g 0");
    world.policy.each = Some(GpuShare(100));
    let device = &mut world.nodes[0].capacity.devices[1];
    (device.sms, device.mig) = (132, halved());
    let profile = device.mig[0].profile;
    for at in [1, 2] {
        world.sessions[at].spec.demand.mig = Some(profile);
    }
    let other = UserId(uuid::Uuid::from_u128(7));
    world.sessions[2].owner = other;
    // A partition is 0.12 of its device: too much beside kim's 0.9, and not for somebody else.
    let now = Timestamp::from_millis(1000);
    let placed = decide(&world, now);
    let ids: Vec<SessionId> = placed
        .iter()
        .filter_map(|d| match d {
            Decision::Place { session, .. } => Some(*session),
            Decision::End { .. } => None,
        })
        .collect();
    assert_eq!(ids, [world.sessions[0].id, world.sessions[2].id]);
    let why = explain_session(&world, &world.sessions[1], now);
    assert_eq!(why.blockers[0].code, "gpu.quota");
    assert!(why.sentence.contains("0.12"), "{}", why.sentence);
    world.policy.each = Some(GpuShare(10));
    let demand = world.sessions[1].spec.demand;
    let refused = possible(&world, &demand, &SessionEnvironment::Host).map_err(|r| r.code);
    assert_eq!(refused, Err("gpu.over-quota".into()));
}

#[test]
fn a_session_bound_to_a_device_gets_that_one_or_waits_without_holding_anybody_back() {
    let mut world = world("node a 8 64g 3 | test 1 1g 0.1 | kim 1 1g 0.9 | lee 1 1g 0.5");
    world.sessions[0].device_affinity = Some("test-0-2".into());
    // A cordon keeps others away, not the test.
    world.nodes[0].cordoned.insert("test-0-2".into());
    let places = |world: &ClusterSnapshot| -> Vec<Option<u32>> {
        let decisions = decide(world, Timestamp::from_millis(10));
        let given = |session: &Session| {
            decisions.iter().find_map(|decision| match decision {
                Decision::Place {
                    session: id,
                    devices,
                    ..
                } if *id == session.id => Some(devices[0].index),
                _ => None,
            })
        };
        world.sessions.iter().map(given).collect()
    };
    assert_eq!(places(&world), [Some(2), Some(0), Some(1)]);
    // Somebody has all of it.
    let node = world.nodes[0].id;
    let mut other = world.sessions[2].clone();
    other.id = SessionId(uuid::Uuid::from_u128(999));
    other.spec.demand.gpu = GpuShare(100);
    let whole = DeviceShare {
        index: 2,
        share: GpuShare(100),
        memory: Bytes::gib(80),
        part: None,
        simulated: false,
    };
    other.place(
        node,
        vec![whole],
        Reason::new("test", "A test."),
        Timestamp::from_millis(1),
    );
    world.sessions.push(other);
    assert_eq!(places(&world)[..3], [None, Some(0), Some(1)]);
    let why = explain_session(&world, &world.sessions[0], Timestamp::from_millis(10));
    assert_eq!(why.verdict, Verdict::Wait);
}
