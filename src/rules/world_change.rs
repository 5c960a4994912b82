//! What changed from one world to the next, as the decision log keeps it. Commands, variables and remarks of sessions stay
//! out: no decision reads them. Decides nothing; `placement` does.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::fair_share::FairShares;
use crate::names::{NodeId, SessionId, UserId};
use crate::policy::SharePolicy;
use crate::quota::{Allowance, ScopedPolicy};
use crate::reservation::ReservationTime;
use crate::resource_group::GroupPlan;
use crate::session::{Outcome, Session};
use crate::units::Timestamp;
use crate::workload::remarks::Remarks;
use crate::world::{ClusterSnapshot, NodeRecord};

/// What has to be done to a world to have the next one; to an empty one, all of it. What is absent is as before.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorldChange {
    pub revision: u64,
    /// New ones, and those that differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<Session>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<SessionId>,
    /// All of them in their order, where new ones do not follow those that stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<Vec<SessionId>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<NodeRecord>>,
    /// When each node was last heard, in their order, where nothing else of nodes changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<BTreeMap<SessionId, Option<Outcome>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<SharePolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Vec<ScopedPolicy>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowances: Option<Vec<Allowance>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<Vec<ReservationTime>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair: Option<FairShares>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub served: Option<BTreeMap<UserId, Timestamp>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<BTreeMap<NodeId, u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupPlan>,
}

impl WorldChange {
    /// From one world to the next. Costs one comparison a session and a node.
    pub fn between(before: &ClusterSnapshot, after: &ClusterSnapshot) -> Self {
        let known = |id: SessionId| before.sessions.place(id).map(|at| &before.sessions[at]);
        let is_there = |id: SessionId| after.sessions.place(id).is_some();
        let ids = |world: &ClusterSnapshot| -> Vec<SessionId> {
            world.sessions.iter().map(|session| session.id).collect()
        };
        let (old, new) = (ids(before), ids(after));
        let stays = old.iter().filter(|id| is_there(**id));
        let added = new.iter().filter(|id| known(**id).is_none());
        let is_in_order = stays.chain(added).eq(new.iter());
        let differs =
            |session: &&Session| known(session.id).is_none_or(|old| !reads_alike(old, session));
        let is_heard_alone = is_same_but_for_age(&before.nodes, &after.nodes);
        let is_quiet = before.nodes == after.nodes;
        Self {
            revision: after.revision,
            sessions: after.sessions.iter().filter(differs).map(bare).collect(),
            gone: old.iter().copied().filter(|id| !is_there(*id)).collect(),
            order: (!is_in_order).then_some(new),
            nodes: (!is_heard_alone).then(|| after.nodes.clone()),
            seen: match is_heard_alone && !is_quiet {
                true => after.nodes.iter().map(|node| node.seen_at).collect(),
                false => Vec::new(),
            },
            ended: changed(&before.ended, &after.ended),
            policy: changed(&before.policy, &after.policy),
            limits: changed(&before.limits, &after.limits),
            allowances: changed(&before.allowances, &after.allowances),
            reservations: changed(&before.reservations, &after.reservations),
            fair: changed(&before.fair, &after.fair),
            served: changed(&before.served, &after.served),
            turns: changed(&before.turns, &after.turns),
            groups: changed(&before.groups, &after.groups),
        }
    }

    /// Copies of the sessions that changed, as the world after has them: with what no decision reads. With these in place of
    /// its own, a change leads to that world itself.
    pub fn sessions_of(&self, after: &ClusterSnapshot) -> Vec<Session> {
        let whole = |session: &Session| after.session(session.id).cloned();
        self.sessions.iter().filter_map(whole).collect()
    }

    /// Makes the next world of the one before.
    pub fn apply(self, world: &mut ClusterSnapshot) {
        world.revision = self.revision;
        let gone: BTreeSet<SessionId> = self.gone.into_iter().collect();
        let named: Vec<SessionId> = self.sessions.iter().map(|session| session.id).collect();
        let mut newer: BTreeMap<SessionId, Session> = self
            .sessions
            .into_iter()
            .map(|session| (session.id, session))
            .collect();
        let mut sessions = std::mem::take(&mut world.sessions).into_vec();
        sessions.retain(|session| !gone.contains(&session.id));
        for session in &mut sessions {
            if let Some(other) = newer.remove(&session.id) {
                *session = other;
            }
        }
        sessions.extend(named.iter().filter_map(|id| newer.remove(id)));
        if let Some(order) = self.order {
            let places: BTreeMap<SessionId, usize> = order
                .into_iter()
                .enumerate()
                .map(|(at, id)| (id, at))
                .collect();
            sessions.sort_by_key(|session| places.get(&session.id).copied());
        }
        world.sessions = sessions.into();
        match self.nodes {
            Some(nodes) => world.nodes = nodes,
            None => {
                for (node, at) in world.nodes.iter_mut().zip(self.seen) {
                    node.seen_at = at;
                }
            }
        }
        put(&mut world.ended, self.ended);
        put(&mut world.policy, self.policy);
        put(&mut world.limits, self.limits);
        put(&mut world.allowances, self.allowances);
        put(&mut world.reservations, self.reservations);
        put(&mut world.fair, self.fair);
        put(&mut world.served, self.served);
        put(&mut world.turns, self.turns);
        put(&mut world.groups, self.groups);
    }
}

/// What a decision may read of a session.
fn bare(session: &Session) -> Session {
    let mut bare = session.clone();
    bare.spec.command = Vec::new();
    bare.spec.env = BTreeMap::new();
    bare.remarks = Remarks::default();
    bare
}

/// Whether a decision reads the same of both.
fn reads_alike(one: &Session, other: &Session) -> bool {
    one == other || bare(one) == bare(other)
}

fn is_same_but_for_age(before: &[NodeRecord], after: &[NodeRecord]) -> bool {
    let is_same = |(one, other): (&NodeRecord, &NodeRecord)| {
        let aged = NodeRecord {
            seen_at: other.seen_at,
            ..one.clone()
        };
        aged == *other
    };
    before.len() == after.len() && before.iter().zip(after).all(is_same)
}

fn changed<T: Clone + PartialEq>(before: &T, after: &T) -> Option<T> {
    (before != after).then(|| after.clone())
}

fn put<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{BootId, NodeId, SessionName};
    use crate::resources::{Capacity, Demand};
    use crate::session::{SessionEnvironment, SessionKind, SessionSpec};

    fn id(number: u64) -> SessionId {
        SessionId(uuid::Uuid::from_u128(u128::from(number)))
    }

    fn session(number: u64) -> Session {
        let spec = SessionSpec {
            kind: SessionKind::Batch,
            environment: SessionEnvironment::Host,
            command: vec!["train".into(), "secret-word".into()],
            env: BTreeMap::from([("TOKEN".to_owned(), "secret-word".to_owned())]),
            demand: Demand::default(),
            timeout_seconds: None,
            max_runtime_seconds: Some(60),
            start_at: None,
            depends_on: Vec::new(),
            containers: 1,
        };
        let owner = UserId(uuid::Uuid::from_u128(1));
        let name = SessionName::parse("run").expect("letters");
        Session::launched(id(number), name, owner, spec, Timestamp::from_millis(7))
    }

    fn node(number: u64, seen: i64) -> NodeRecord {
        NodeRecord {
            id: NodeId(uuid::Uuid::from_u128(u128::from(number))),
            name: format!("node-{number}"),
            boot: BootId(uuid::Uuid::nil()),
            capacity: Capacity::default(),
            host_environment: true,
            seen_at: Timestamp::from_millis(seen),
            generation: 0,
            schedulable: true,
            note: String::new(),
            cordoned: BTreeSet::new(),
            problems: Vec::new(),
        }
    }

    /// The world as a decision may read it.
    fn stripped(world: &ClusterSnapshot) -> ClusterSnapshot {
        ClusterSnapshot {
            sessions: world.sessions.iter().map(bare).collect(),
            ..world.clone()
        }
    }

    /// A small generator; the seed is printed with what fails.
    fn roll(state: &mut u64, most: u64) -> u64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % most
    }

    #[test]
    fn whatever_changes_the_changes_lead_from_one_world_to_the_next() {
        for seed in 0..50 {
            let mut state = seed;
            let (mut world, mut kept) = (ClusterSnapshot::default(), ClusterSnapshot::default());
            let mut before = ClusterSnapshot::default();
            for step in 1..40_u64 {
                world.revision = step;
                match roll(&mut state, 9) {
                    0 | 1 => world.sessions.push(session(step)),
                    2 => world.sessions.insert(0, session(step)),
                    3 if !world.sessions.is_empty() => {
                        let at = roll(&mut state, world.sessions.len() as u64) as usize;
                        world.sessions.remove(at);
                    }
                    4 if !world.sessions.is_empty() => {
                        let at = roll(&mut state, world.sessions.len() as u64) as usize;
                        world.sessions[at].generation += 1;
                    }
                    5 => world.nodes.push(node(step, 0)),
                    6 => {
                        for node in &mut world.nodes {
                            node.seen_at = Timestamp::from_millis(step as i64);
                        }
                    }
                    7 => {
                        let node = NodeId(uuid::Uuid::from_u128(2));
                        world.turns.insert(node, step);
                    }
                    _ => {
                        let user = UserId(uuid::Uuid::from_u128(1));
                        world
                            .served
                            .insert(user, Timestamp::from_millis(step as i64));
                    }
                }
                let change = WorldChange::between(&before, &world);
                let whole = WorldChange {
                    sessions: change.sessions_of(&world),
                    ..change.clone()
                };
                whole.apply(&mut before);
                assert_eq!(before, world, "seed {seed}, step {step}");
                change.apply(&mut kept);
                assert_eq!(kept, stripped(&world), "seed {seed}, step {step}");
            }
        }
    }

    #[test]
    fn what_stayed_is_not_said_again_and_no_secret_is_said_at_all() {
        let mut world = ClusterSnapshot {
            sessions: vec![session(1), session(2)].into(),
            nodes: vec![node(1, 5)],
            ..ClusterSnapshot::default()
        };
        let first = WorldChange::between(&ClusterSnapshot::default(), &world);
        assert!(!format!("{first:?}").contains("secret-word"));
        assert_eq!(first.sessions.len(), 2);
        let before = world.clone();
        world.sessions[1].generation = 9;
        world.nodes[0].seen_at = Timestamp::from_millis(6);
        let next = WorldChange::between(&before, &world);
        assert_eq!(next.sessions.len(), 1);
        assert_eq!(next.seen, [Timestamp::from_millis(6)]);
        assert_eq!((next.nodes, next.order, next.policy), (None, None, None));
        let before = world.clone();
        world.sessions[0].spec.env.clear();
        let next = WorldChange::between(&before, &world);
        assert_eq!(next.sessions, [], "what no decision reads changed");
    }
}
