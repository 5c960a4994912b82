//! Resource groups in the simulation, by the rules alone: users launch in two groups, sessions end, nodes go from one group
//! to the other, which has an order of its own and starts nothing by night. Four planted faults show that broken promises are
//! seen: a place on a node of another group, a session that waits because of one of another group, a group that goes by the
//! order of the site, and one that starts sessions while its window is shut.

use std::collections::{BTreeMap, BTreeSet};

use rules::calendar::{GroupCalendar, GroupWindow};
use rules::fair_share::QueueOrder;
use rules::names::{BootId, NodeId, ResourceGroupId, SessionId, SessionName, TenantName, UserId};
use rules::placement::{Decision, decide};
use rules::resource_group::{GroupPlan, ResourceGroup};
use rules::resources::{Capacity, Demand, Device};
use rules::session::{Session, SessionEnvironment, SessionKind, SessionSpec, SessionState};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rules::world::{ClusterSnapshot, NodeRecord};

use super::random::Random;

const SEEDS: u64 = 12;
const MINUTES: u64 = 400;
const NODES: u32 = 4;
const GPUS: u32 = 2;
/// Sessions that wait at once; more users than that go away.
const QUEUED: usize = 20;
const LAB: ResourceGroupId = ResourceGroupId(uuid::Uuid::from_u128(u128::MAX));
const GROUPS: [ResourceGroupId; 2] = [ResourceGroupId::DEFAULT, LAB];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupFault {
    /// Every node takes sessions of every group.
    AnyNode,
    /// Sessions of the second group wait as long as one of the first one does.
    HeldByOthers,
    /// A group's own order is not looked at.
    SiteOrder,
    /// Windows are not looked at.
    NoWindows,
}

/// One world, and the promise that was broken in it.
struct GroupRun {
    random: Random,
    planted: Option<GroupFault>,
    world: ClusterSnapshot,
    minute: u64,
    next: u128,
    /// When sessions end by themselves.
    ends: BTreeMap<SessionId, u64>,
    placed: [u32; 2],
    moved: u32,
    /// Minutes in which a session of one group started while one of the other waited.
    apart: u32,
    broken: Option<String>,
}

fn node(number: u32) -> NodeRecord {
    NodeRecord {
        id: NodeId(uuid::Uuid::from_u128(u128::from(number))),
        name: format!("node-{number}"),
        boot: BootId(uuid::Uuid::nil()),
        capacity: Capacity {
            cpu: CpuShare(800),
            memory: Bytes::gib(32),
            devices: (0..GPUS)
                .map(|index| Device {
                    memory: Bytes::gib(80),
                    uuid: format!("device-{number}-{index}"),
                    ..Device::new(index, "device")
                })
                .collect(),
            others: Vec::new(),
        },
        host_environment: true,
        seen_at: Timestamp::default(),
        generation: 0,
        schedulable: true,
        note: String::new(),
        cordoned: BTreeSet::new(),
        problems: Vec::new(),
    }
}

fn group(id: ResourceGroupId, name: &str) -> ResourceGroup {
    ResourceGroup::new(id, TenantName::parse(name).expect("letters"))
}

impl GroupRun {
    fn new(seed: u64, planted: Option<GroupFault>) -> Self {
        let nodes: Vec<NodeRecord> = (0..NODES).map(node).collect();
        let lab = ResourceGroup {
            order: Some(QueueOrder::Lifo),
            calendar: GroupCalendar {
                windows: vec![
                    GroupWindow::parse("daily 00:00-03:00 kinds=none").expect("a window"),
                ],
                ..GroupCalendar::default()
            },
            ..group(LAB, "lab")
        };
        let groups = GroupPlan {
            groups: vec![group(ResourceGroupId::DEFAULT, "default"), lab],
            nodes: [(nodes[0].id, LAB)].into(),
            ..GroupPlan::default()
        };
        Self {
            random: Random::new(seed),
            planted,
            world: ClusterSnapshot {
                nodes,
                groups,
                ..ClusterSnapshot::default()
            },
            minute: 0,
            next: 100,
            ends: BTreeMap::new(),
            placed: [0; 2],
            moved: 0,
            apart: 0,
            broken: None,
        }
    }

    fn now(&self) -> Timestamp {
        let minutes = 10_000 + self.minute as i64;
        Timestamp::from_millis(minutes * 60_000)
    }

    fn launch(&mut self) {
        self.next += 1;
        let spec = SessionSpec {
            kind: SessionKind::Batch,
            environment: SessionEnvironment::Host,
            command: vec!["true".into()],
            env: BTreeMap::new(),
            demand: Demand {
                cpu: CpuShare(100 * self.random.between(1, 6) as u32),
                memory: Bytes::gib(self.random.between(1, 16)),
                gpu: GpuShare(*self.random.pick(&[0, 25, 50, 100, 200])),
                ..Demand::default()
            },
            timeout_seconds: None,
            max_runtime_seconds: None,
            start_at: None,
            depends_on: Vec::new(),
            containers: 1,
        };
        let id = SessionId(uuid::Uuid::from_u128(self.next));
        let owner = UserId(uuid::Uuid::from_u128(u128::from(self.random.between(1, 4))));
        let name = SessionName::parse(&format!("s{}", self.next)).expect("letters");
        let session = Session::launched(id, name, owner, spec, self.now());
        self.world.sessions.push(session);
        self.ends.insert(id, self.random.between(1, 40));
        if self.random.chance(50) {
            self.world.groups.sessions.insert(id, LAB);
        }
    }

    /// Places as the scheduler chooses them, or as it would with the planted fault.
    fn decided(&self, now: Timestamp) -> Vec<Decision> {
        let mut seen = self.world.clone();
        match self.planted {
            Some(GroupFault::AnyNode) => seen.groups = GroupPlan::default(),
            Some(GroupFault::HeldByOthers) => {
                let waits = |s: &&Session| s.state() == SessionState::Pending;
                let mut waiting = self.world.sessions.iter().filter(waits);
                let of = |s: &Session| self.world.groups.of_session(s.id);
                if waiting.any(|s| of(s) == ResourceGroupId::DEFAULT) {
                    let plan = self.world.groups.clone();
                    seen.sessions.retain(|s| {
                        s.state() != SessionState::Pending || plan.of_session(s.id) != LAB
                    });
                }
            }
            Some(GroupFault::SiteOrder) => {
                for group in &mut seen.groups.groups {
                    group.order = None;
                }
            }
            Some(GroupFault::NoWindows) => {
                for group in &mut seen.groups.groups {
                    group.calendar = GroupCalendar::default();
                }
            }
            None => {}
        }
        decide(&seen, now)
    }

    /// Who would get a place if there were this group alone.
    fn alone(&self, group: ResourceGroupId, now: Timestamp) -> Vec<SessionId> {
        let plan = &self.world.groups;
        let mut alone = self.world.clone();
        for session in &self.world.sessions {
            if let Some(at) = session.scheduled_at() {
                let last = alone.served.entry(session.owner).or_insert(at);
                *last = at.max(*last);
            }
        }
        alone.policy.order = self.world.order(group, now);
        alone.groups = GroupPlan::default();
        alone.nodes.retain(|node| plan.of_node(node.id) == group);
        alone.sessions.retain(|session| match session.node() {
            Some(node) => plan.of_node(node) == group,
            None => plan.of_session(session.id) == group && !plan.is_shut(session, now),
        });
        let decided = decide(&alone, now).into_iter();
        let placed = decided.filter_map(|decision| match decision {
            Decision::Place { session, .. } => Some(session),
            Decision::End { .. } => None,
        });
        placed.collect()
    }

    /// One minute: what is over leaves, nodes change their group, users launch, the server places.
    fn tick(&mut self) {
        self.minute += 1;
        let now = self.now();
        for node in &mut self.world.nodes {
            node.seen_at = now;
        }
        let ends = &self.ends;
        self.world.sessions.retain(|session| {
            let ran = session.started_at().map(|at| now.seconds_since(at) / 60);
            ran.is_none_or(|ran| ran < ends[&session.id])
        });
        if self.random.chance(3) {
            let node = self.random.pick(&self.world.nodes).id;
            match self.world.groups.nodes.remove(&node) {
                Some(_) => {}
                None => {
                    self.world.groups.nodes.insert(node, LAB);
                }
            }
            self.moved += 1;
        }
        let waits = |session: &&Session| session.state() == SessionState::Pending;
        while self.world.sessions.iter().filter(waits).count() < QUEUED && self.random.chance(40) {
            self.launch();
        }
        let expected: BTreeSet<SessionId> = GROUPS
            .into_iter()
            .flat_map(|group| self.alone(group, now))
            .collect();
        let mut placed = BTreeSet::new();
        for decision in self.decided(now) {
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
            let plan = &self.world.groups;
            let (own, other) = (plan.of_session(session), plan.of_node(node));
            if own != other {
                let promise = format!("{session} of {own} is placed on a node of {other}");
                self.broken.get_or_insert(promise);
            }
            self.placed[usize::from(own == LAB)] += 1;
            placed.insert(session);
            let mut sessions = self.world.sessions.iter_mut();
            if let Some(session) = sessions.find(|s| s.id == session) {
                session.place(node, devices, because, now);
                session.run_since(now);
            }
        }
        if self.broken.is_none() && placed != expected {
            let promise = format!("{placed:?} start where {expected:?} would by themselves");
            self.broken = Some(promise);
        }
        let left = self.world.sessions.iter().filter(waits);
        let waiting: BTreeSet<ResourceGroupId> = left
            .map(|session| self.world.groups.of_session(session.id))
            .collect();
        let started = placed.iter();
        let mut started = started.map(|id| self.world.groups.of_session(*id));
        let is_apart = started.any(|group| waiting.iter().any(|other| *other != group));
        self.apart += u32::from(is_apart);
    }
}

fn play(seed: u64, planted: Option<GroupFault>) -> GroupRun {
    let mut play = GroupRun::new(seed, planted);
    while play.minute < MINUTES && play.broken.is_none() {
        play.tick();
    }
    play
}

/// Proves too: `each_group_is_served_as_if_there_were_no_other`
#[test]
fn no_session_gets_a_node_of_another_group_or_waits_for_one() {
    let (mut placed, mut moved, mut apart) = ([0, 0], 0, 0);
    for seed in 0..SEEDS {
        let play = play(seed, None);
        assert_eq!(play.broken, None, "seed {seed}");
        placed = [placed[0] + play.placed[0], placed[1] + play.placed[1]];
        moved += play.moved;
        apart += play.apart;
    }
    println!("{placed:?} placed, {moved} nodes moved, {apart} minutes apart");
    assert!(placed[0] > 200 && placed[1] > 200 && moved > 50 && apart > 100);
}

#[test]
fn a_place_on_a_node_of_another_group_is_found() {
    found(GroupFault::AnyNode, "is placed on a node of");
}

#[test]
fn a_session_that_waits_for_one_of_another_group_is_found() {
    found(GroupFault::HeldByOthers, "would by themselves");
}

#[test]
fn a_group_that_goes_by_the_order_of_the_site_is_found() {
    found(GroupFault::SiteOrder, "would by themselves");
}

#[test]
fn a_group_that_starts_sessions_while_its_window_is_shut_is_found() {
    found(GroupFault::NoWindows, "would by themselves");
}

fn found(fault: GroupFault, words: &str) {
    let found = (0..SEEDS).find_map(|seed| {
        let play = play(seed, Some(fault));
        play.broken.map(|promise| (seed, promise))
    });
    let (seed, promise) = found.expect("no seed shows the planted fault");
    assert!(promise.contains(words), "{promise}");
    println!("found by seed {seed}: {promise}");
}
