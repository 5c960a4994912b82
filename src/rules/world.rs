//! The world: everything a decision may look at, read from the catalog in one transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::fair_share::{FairShares, QueueOrder, WholeCluster};
use crate::names::{BootId, NodeId, ResourceGroupId, SessionId, UserId};
use crate::policy::{BackfillMode, SharePolicy, Spreading};
use crate::quota::{Allowance, ScopedPolicy};
use crate::reason::Reason;
use crate::reservation::ReservationTime;
use crate::resource_group::GroupPlan;
use crate::resources::{Capacity, Used};
use crate::session::{Outcome, Session};
use crate::units::{CpuShare, Timestamp};

/// Sessions that are not over, what their dependencies came to, and the machines.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterSnapshot {
    /// The catalog's revision this was read at.
    pub revision: u64,
    /// Live sessions only, oldest first.
    pub sessions: SharedSessions,
    /// Outcome of every ended session that a live one depends on.
    pub ended: BTreeMap<SessionId, Option<Outcome>>,
    pub nodes: Vec<NodeRecord>,
    /// The administrator's rules for shares of devices.
    #[serde(default)]
    pub policy: SharePolicy,
    /// Policies that bound sums of what has a place, at most one of each subject.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<ScopedPolicy>,
    /// What raises them for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowances: Vec<Allowance>,
    /// Times of reservations that are warned of or active, and the next that are booked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<ReservationTime>,
    /// What fair share goes by; empty for every other order.
    #[serde(default)]
    pub fair: FairShares,
    /// When a session of each user last got a place; absent where none ever did.
    #[serde(default)]
    pub served: BTreeMap<UserId, Timestamp>,
    /// When each node last got a session, as a number that rises with each; absent where none ever did, and empty where no
    /// nodes take turns.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub turns: BTreeMap<NodeId, u64>,
    /// Which node and which session is in which resource group; empty for a site without groups.
    #[serde(default, skip_serializing_if = "GroupPlan::is_empty")]
    pub groups: GroupPlan,
}

/// The live sessions of one moment. Clones share one list; whoever changes a list that is shared gets an own one
/// first, which costs a copy of every session. Empty by default; written and read as a plain list.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(from = "Vec<Session>")]
pub struct SharedSessions(Arc<SessionList>);

/// The list, and where each session stands in it.
#[derive(Default)]
struct SessionList {
    sessions: Vec<Session>,
    /// By id; made when a place is first asked for, forgotten with each change.
    places: OnceLock<Vec<(SessionId, usize)>>,
    /// Where those stand that hold room; made and forgotten alike.
    holding: OnceLock<Vec<usize>>,
}

impl Clone for SessionList {
    fn clone(&self) -> Self {
        Self::from(self.sessions.clone())
    }
}

impl PartialEq for SessionList {
    fn eq(&self, other: &Self) -> bool {
        self.sessions == other.sessions
    }
}

impl From<Vec<Session>> for SessionList {
    fn from(sessions: Vec<Session>) -> Self {
        Self {
            sessions,
            places: OnceLock::new(),
            holding: OnceLock::new(),
        }
    }
}

impl SharedSessions {
    /// The list itself: taken where nobody shares it, copied otherwise.
    pub fn into_vec(self) -> Vec<Session> {
        Arc::unwrap_or_clone(self.0).sessions
    }

    /// Where a session stands in the list. Costs a binary search; the first call after a change sorts the ids, most of
    /// which are in order already.
    pub fn place(&self, id: SessionId) -> Option<usize> {
        let places = self.0.places.get_or_init(|| {
            let sessions = self.0.sessions.iter().enumerate();
            let mut places: Vec<(SessionId, usize)> =
                sessions.map(|(at, session)| (session.id, at)).collect();
            places.sort_unstable();
            places
        });
        let at = places.partition_point(|(known, _)| *known < id);
        let (known, place) = places.get(at)?;
        (*known == id).then_some(*place)
    }

    /// Sessions with a container that may live, in the order of the list: all that hold room. The first call after a change
    /// costs a visit of each session; the others cost nothing for those that wait.
    pub fn holding(&self) -> impl Iterator<Item = &Session> {
        let places = self.0.holding.get_or_init(|| {
            let sessions = self.0.sessions.iter().enumerate();
            let holding = sessions.filter(|(_, one)| one.live_containers().next().is_some());
            holding.map(|(at, _)| at).collect()
        });
        places.iter().map(|at| &self.0.sessions[*at])
    }
}

impl fmt::Debug for SharedSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0.sessions).finish()
    }
}

impl Serialize for SharedSessions {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.sessions.as_slice().serialize(serializer)
    }
}

impl From<Vec<Session>> for SharedSessions {
    fn from(sessions: Vec<Session>) -> Self {
        Self(Arc::new(sessions.into()))
    }
}

impl FromIterator<Session> for SharedSessions {
    fn from_iter<I: IntoIterator<Item = Session>>(sessions: I) -> Self {
        Vec::from_iter(sessions).into()
    }
}

impl Deref for SharedSessions {
    type Target = Vec<Session>;

    fn deref(&self) -> &Vec<Session> {
        &self.0.sessions
    }
}

impl DerefMut for SharedSessions {
    fn deref_mut(&mut self) -> &mut Vec<Session> {
        let list = Arc::make_mut(&mut self.0);
        list.places = OnceLock::new();
        list.holding = OnceLock::new();
        &mut list.sessions
    }
}

impl<'s> IntoIterator for &'s SharedSessions {
    type Item = &'s Session;
    type IntoIter = slice::Iter<'s, Session>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'s> IntoIterator for &'s mut SharedSessions {
    type Item = &'s mut Session;
    type IntoIter = slice::IterMut<'s, Session>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

/// What all nodes have together.
pub fn whole_cluster(nodes: &[NodeRecord]) -> WholeCluster {
    let mut whole = WholeCluster::default();
    for node in nodes {
        whole.gpu += 100 * node.capacity.devices.len() as u64;
        whole.cpu += u64::from(node.capacity.cpu.0);
        whole.memory += node.capacity.memory.0 >> 20;
    }
    whole
}

/// One machine as the catalog knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    pub id: NodeId,
    pub name: String,
    pub boot: BootId,
    pub capacity: Capacity,
    pub host_environment: bool,
    /// Last report, server's clock.
    pub seen_at: Timestamp,
    /// Newest assignment that the node said it took in.
    pub generation: u64,
    /// No new session goes here while false.
    pub schedulable: bool,
    /// Why not, in an administrator's words; empty where nothing was said.
    #[serde(default)]
    pub note: String,
    /// Names of devices that take nothing new; what runs on them goes on.
    #[serde(default)]
    pub cordoned: BTreeSet<String>,
    pub problems: Vec<Reason>,
}

/// Silence after which a node gets no new sessions. Its sessions are kept: silence is age, not an end.
pub const SILENT_AFTER_SECONDS: u64 = 30;

impl ClusterSnapshot {
    pub fn node(&self, id: NodeId) -> Option<&NodeRecord> {
        self.nodes.iter().find(|n| n.id == id)
    }

    /// How sessions are spread on a node: as its resource group says, else as the settings do.
    pub fn spreading(&self, node: NodeId) -> Spreading {
        self.groups.spreading(node).unwrap_or(self.policy.spreading)
    }

    /// Whether some nodes take turns.
    pub fn takes_turns(&self) -> bool {
        let turns = Some(Spreading::RoundRobin);
        self.policy.spreading == Spreading::RoundRobin
            || self
                .groups
                .groups
                .iter()
                .any(|group| group.spreading == turns)
    }

    /// The turn of the node that got a session last; 0 where none ever did. O(nodes).
    pub fn last_turn(&self) -> u64 {
        self.turns.values().copied().max().unwrap_or_default()
    }

    /// Notes that a node got a session, where nodes take turns. O(nodes).
    pub fn note_turn(&mut self, node: NodeId) {
        if self.takes_turns() {
            let turn = self.last_turn() + 1;
            self.turns.insert(node, turn);
        }
    }

    /// In which order the queue of a resource group is served: as its window says, else as the group does, else as the site
    /// does.
    pub fn order(&self, group: ResourceGroupId, now: Timestamp) -> QueueOrder {
        let by_window = self.groups.window(group, now);
        let by_window = by_window.and_then(|window| window.order);
        let own = || self.groups.group(group).and_then(|group| group.order);
        by_window.or_else(own).unwrap_or(self.policy.order)
    }

    /// Who may start before one that waits in a resource group: as its window says, else as the group does, else as the site
    /// does.
    pub fn backfill(&self, group: ResourceGroupId, now: Timestamp) -> BackfillMode {
        let by_window = self.groups.window(group, now);
        let by_window = by_window.and_then(|window| window.backfill);
        let own = || self.groups.group(group).and_then(|group| group.backfill);
        by_window.or_else(own).unwrap_or(self.policy.backfill)
    }

    /// How many cores sessions together may hold of a node: more than it has where its resource group says so.
    pub fn cpu_room(&self, node: &NodeRecord) -> CpuShare {
        self.groups.cpu_overcommit(node.id).of(node.capacity.cpu)
    }

    /// A live session. Costs a binary search.
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(self.sessions.place(id)?)
    }

    /// What sessions hold on each node, in any state, as long as a container may live.
    /// Costs one visit a session that holds room.
    pub fn used(&self) -> BTreeMap<NodeId, Used> {
        let mut used: BTreeMap<NodeId, Used> =
            self.nodes.iter().map(|n| (n.id, Used::default())).collect();
        for session in self.sessions.holding() {
            for container in session.live_containers() {
                used.entry(container.node)
                    .or_default()
                    .add(&session.spec.of_each(), &container.holds());
            }
        }
        used
    }
}

impl NodeRecord {
    pub fn is_silent(&self, now: Timestamp) -> bool {
        now.seconds_since(self.seen_at) > SILENT_AFTER_SECONDS
    }
}
