//! Sorts the queue by fair share: whoever used least for their weight comes first, domain by domain, project by
//! project, user by user. Each session that is taken is charged at once, so a user's hundred sessions do not come out
//! together.

use crate::quota::TenantLevel;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use uuid::Uuid;

use crate::fair_share::{FairLeaf, QueueOrder, WholeCluster};
use crate::metering::Allocated;
use crate::names::{SessionId, UserId};
use crate::session::Session;
use crate::tenancy::{DomainId, ProjectId};
use crate::units::Timestamp;
use crate::world::{ClusterSnapshot, whole_cluster};

/// How much the past counts, in hundredths; the rest is what is held now. Higher: who used much yesterday waits though
/// they hold nothing. Lower: the shares of those who always wait leave their weights (`design`: 0.8 keeps them within a
/// point).
const PAST: u64 = 80;
/// Use of siblings is told in millionths.
const WHOLE: u64 = 1_000_000;
const HOUR_MILLIS: u64 = 3_600_000;
/// Finer than a millionth, so that weights up to a thousand tell values apart.
const FINE: u64 = 1 << 20;

/// What is known of a domain, a project, or a user in a project.
#[derive(Debug, Clone, Copy, Default)]
struct FairNode {
    held: Allocated,
    /// Its part of its siblings' use, in millionths.
    past: u64,
    weight: u64,
}

/// The tree as it stands.
#[derive(Clone)]
pub(in crate::placement) struct FairTree {
    /// How much the past counts, in hundredths.
    past: u64,
    whole: WholeCluster,
    weights: BTreeMap<(TenantLevel, Uuid), u64>,
    domains: BTreeMap<DomainId, FairNode>,
    projects: BTreeMap<(DomainId, ProjectId), FairNode>,
    users: BTreeMap<FairLeaf, FairNode>,
}

/// The value of a node, then since when its next session waits, and that session.
type FairKey = Reverse<(u64, Timestamp, SessionId)>;

impl FairTree {
    /// The tree by which that order goes; None where it goes by no shares. Costs as `new`.
    pub(in crate::placement) fn of(world: &ClusterSnapshot, order: QueueOrder) -> Option<Self> {
        order.goes_by_share().then(|| Self::new(world).by(order))
    }

    /// The same tree for another order.
    pub(in crate::placement) fn by(self, order: QueueOrder) -> Self {
        let past = match order {
            QueueOrder::Drf => 0,
            QueueOrder::Turns | QueueOrder::Fifo | QueueOrder::Lifo | QueueOrder::Fair => PAST,
        };
        Self { past, ..self }
    }

    /// As fair share has it. Costs one visit a live session and a user of the past.
    pub(in crate::placement) fn new(world: &ClusterSnapshot) -> Self {
        let weights = world.fair.weights.iter();
        let mut tree = Self {
            past: PAST,
            whole: whole_cluster(&world.nodes),
            weights: weights
                .map(|(level, id, weight)| ((*level, *id), u64::from((*weight).max(1))))
                .collect(),
            domains: BTreeMap::new(),
            projects: BTreeMap::new(),
            users: BTreeMap::new(),
        };
        tree.take_past(&world.fair.past);
        for session in &world.sessions {
            if session.state().holds_resources() {
                tree.hold(session);
            }
        }
        tree
    }

    fn weight(&self, level: TenantLevel, id: Uuid) -> u64 {
        self.weights.get(&(level, id)).copied().unwrap_or(1)
    }

    fn take_past(&mut self, past: &[(FairLeaf, u64)]) {
        let mut domains: BTreeMap<DomainId, u64> = BTreeMap::new();
        let mut projects: BTreeMap<(DomainId, ProjectId), u64> = BTreeMap::new();
        for (leaf, used) in past {
            *domains.entry(leaf.domain).or_default() += used;
            *projects.entry((leaf.domain, leaf.project)).or_default() += used;
        }
        let all: u64 = domains.values().sum();
        let part = |used: u64, all: u64| {
            let part = u128::from(used) * u128::from(WHOLE) / u128::from(all.max(1));
            u64::try_from(part).unwrap_or(WHOLE)
        };
        for (domain, used) in &domains {
            self.domain(*domain).past = part(*used, all);
        }
        for ((domain, project), used) in &projects {
            self.project(*domain, *project).past = part(*used, domains[domain]);
        }
        for (leaf, used) in past {
            self.user(*leaf).past = part(*used, projects[&(leaf.domain, leaf.project)]);
        }
    }

    fn domain(&mut self, id: DomainId) -> &mut FairNode {
        let weight = self.weight(TenantLevel::Domain, id.0);
        self.domains.entry(id).or_insert(FairNode {
            weight,
            ..FairNode::default()
        })
    }

    fn project(&mut self, domain: DomainId, id: ProjectId) -> &mut FairNode {
        let weight = self.weight(TenantLevel::Project, id.0);
        self.projects.entry((domain, id)).or_insert(FairNode {
            weight,
            ..FairNode::default()
        })
    }

    fn user(&mut self, leaf: FairLeaf) -> &mut FairNode {
        let weight = self.weight(TenantLevel::User, leaf.user.0);
        self.users.entry(leaf).or_insert(FairNode {
            weight,
            ..FairNode::default()
        })
    }

    /// The session has a place from now on.
    pub(in crate::placement) fn hold(&mut self, session: &Session) {
        self.change(session, u64::saturating_add);
    }

    /// Adds what is held from one moment to another to what each user used, in millionths of the cluster for an hour.
    /// Costs one visit a user of the tree.
    pub(in crate::placement) fn count_use(&self, used: &mut BTreeMap<FairLeaf, u64>, millis: u64) {
        for (leaf, account) in &self.users {
            let held = &account.held;
            let share = self.whole.share(held.gpu, held.cpu, held.memory);
            let more = u128::from(share) * u128::from(millis) / u128::from(HOUR_MILLIS);
            if more > 0 {
                let known = used.entry(*leaf).or_default();
                *known = known.saturating_add(u64::try_from(more).unwrap_or(u64::MAX));
            }
        }
    }

    /// Users that the tree knows.
    pub(in crate::placement) fn users(&self) -> usize {
        self.users.len()
    }

    /// Goes by this use of the past from now on.
    pub(in crate::placement) fn sum_past(&mut self, used: &BTreeMap<FairLeaf, u64>) {
        let used: Vec<(FairLeaf, u64)> = used.iter().map(|(leaf, used)| (*leaf, *used)).collect();
        self.take_past(&used);
    }

    /// It gives its place back.
    pub(in crate::placement) fn free(&mut self, session: &Session) {
        self.change(session, u64::saturating_sub);
    }

    fn change(&mut self, session: &Session, apply: fn(u64, u64) -> u64) {
        let (leaf, amounts) = (leaf(session), amounts(session));
        let moved = |account: &mut FairNode| {
            let held = &mut account.held;
            held.gpu = apply(held.gpu, amounts.gpu);
            held.cpu = apply(held.cpu, amounts.cpu);
            held.memory = apply(held.memory, amounts.memory);
        };
        moved(self.domain(leaf.domain));
        moved(self.project(leaf.domain, leaf.project));
        moved(self.user(leaf));
    }

    /// `((1 - h) x now + h x past) / weight`; h is 0 by dominant shares alone.
    fn value(&self, account: &FairNode) -> u64 {
        let held = &account.held;
        let now = self.whole.share(held.gpu, held.cpu, held.memory);
        let sum = (100 - self.past) * now.min(u64::from(u32::MAX)) + self.past * account.past;
        sum.saturating_mul(FINE) / account.weight.max(1)
    }

    /// The sessions in their order; each user's own stay in the order given. Costs O(n log n).
    pub(in crate::placement) fn sorted<'w>(
        mut self,
        waiting: impl IntoIterator<Item = &'w Session>,
    ) -> Vec<&'w Session> {
        let mut own: BTreeMap<FairLeaf, VecDeque<&'w Session>> = BTreeMap::new();
        for session in waiting {
            own.entry(leaf(session)).or_default().push_back(session);
        }
        let mut users: BTreeMap<(DomainId, ProjectId), BinaryHeap<(FairKey, UserId)>> =
            BTreeMap::new();
        for (leaf, sessions) in &own {
            let value = {
                let account = *self.user(*leaf);
                self.value(&account)
            };
            let heap = users.entry((leaf.domain, leaf.project)).or_default();
            heap.push((key(value, sessions[0]), leaf.user));
        }
        let mut projects: BTreeMap<DomainId, BinaryHeap<(FairKey, ProjectId)>> = BTreeMap::new();
        for ((domain, project), heap) in &users {
            let account = *self.project(*domain, *project);
            let first = first(heap);
            let value = self.value(&account);
            let heap = projects.entry(*domain).or_default();
            heap.push((Reverse((value, first.1, first.2)), *project));
        }
        let mut domains: BinaryHeap<(FairKey, DomainId)> = BinaryHeap::new();
        for (domain, heap) in &projects {
            let account = *self.domain(*domain);
            let first = first(heap);
            let value = self.value(&account);
            domains.push((Reverse((value, first.1, first.2)), *domain));
        }
        let mut order = Vec::new();
        while let Some((_, domain)) = domains.pop() {
            let Some(heap) = projects.get_mut(&domain) else {
                continue;
            };
            let Some((_, project)) = heap.pop() else {
                continue;
            };
            let Some(members) = users.get_mut(&(domain, project)) else {
                continue;
            };
            let Some((_, user)) = members.pop() else {
                continue;
            };
            let leaf = FairLeaf {
                domain,
                project,
                user,
            };
            if let Some(sessions) = own.get_mut(&leaf)
                && let Some(session) = sessions.pop_front()
            {
                order.push(session);
                self.hold(session);
                if let Some(next) = sessions.front() {
                    members.push((key(self.value(&self.users[&leaf]), next), user));
                }
            }
            if !members.is_empty() {
                let next = first(members);
                let value = self.value(&self.projects[&(domain, project)]);
                heap.push((Reverse((value, next.1, next.2)), project));
            }
            if !heap.is_empty() {
                let next = first(heap);
                let value = self.value(&self.domains[&domain]);
                domains.push((Reverse((value, next.1, next.2)), domain));
            }
        }
        order
    }
}

/// What fair share knows of a domain, a project, or a user in a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FairAccount {
    pub level: TenantLevel,
    pub domain: DomainId,
    /// None for a domain.
    pub project: Option<ProjectId>,
    /// None for a domain and a project.
    pub user: Option<UserId>,
    pub weight: u64,
    /// The dominant share of the cluster that it holds now, in millionths.
    pub now: u64,
    /// Its part of its siblings' use in the past, in millionths.
    pub past: u64,
    /// What siblings are sorted by, the least first.
    pub value: u64,
}

/// Every account that holds or used something, waits, or has a weight of its own: domains, each followed by its
/// projects, each followed by its users; siblings in the order in which they are served. Costs sorting them.
pub fn accounts(world: &ClusterSnapshot) -> Vec<FairAccount> {
    let mut tree = FairTree::new(world).by(world.policy.order);
    for session in &world.sessions {
        let leaf = leaf(session);
        tree.domain(leaf.domain);
        tree.project(leaf.domain, leaf.project);
        tree.user(leaf);
    }
    let account = |level, domain, project, user, account: &FairNode| {
        let held = &account.held;
        FairAccount {
            level,
            domain,
            project,
            user,
            weight: account.weight,
            now: tree.whole.share(held.gpu, held.cpu, held.memory),
            past: account.past,
            value: tree.value(account),
        }
    };
    let domains = tree.domains.iter();
    let projects = tree.projects.iter();
    let users = tree.users.iter();
    let mut all: Vec<FairAccount> = domains
        .map(|(id, known)| account(TenantLevel::Domain, *id, None, None, known))
        .chain(projects.map(|((domain, id), known)| {
            account(TenantLevel::Project, *domain, Some(*id), None, known)
        }))
        .chain(users.map(|(leaf, known)| {
            let (project, user) = (Some(leaf.project), Some(leaf.user));
            account(TenantLevel::User, leaf.domain, project, user, known)
        }))
        .collect();
    let value = |known: Option<&FairNode>| known.map_or(0, |known| tree.value(known));
    all.sort_by_cached_key(|one| {
        let domain = (value(tree.domains.get(&one.domain)), one.domain);
        let project = one.project.map(|id| {
            let known = tree.projects.get(&(one.domain, id));
            (value(known), id)
        });
        let user = one.user.map(|id| (one.value, id));
        (domain, project, user)
    });
    all
}

/// A value as people read it: 1 is an account of weight 1 that used all and holds all.
pub fn told(value: u64) -> f64 {
    value as f64 / (FINE as f64 * 100.0 * WHOLE as f64)
}

fn key(value: u64, session: &Session) -> FairKey {
    Reverse((value, session.queued_at, session.id))
}

/// What the next of a heap is sorted by.
fn first<T: Ord>(heap: &BinaryHeap<(FairKey, T)>) -> (u64, Timestamp, SessionId) {
    let next = heap.peek().map(|(Reverse(key), _)| *key);
    next.unwrap_or((u64::MAX, Timestamp::default(), SessionId(Uuid::nil())))
}

fn leaf(session: &Session) -> FairLeaf {
    FairLeaf {
        domain: session.domain,
        project: session.project,
        user: session.owner,
    }
}

/// What a session holds, or what it asks for while it waits.
fn amounts(session: &Session) -> Allocated {
    let demand = &session.spec.demand;
    Allocated::of(session).unwrap_or(Allocated {
        gpu: u64::from(demand.gpu.0),
        cpu: u64::from(demand.cpu.0),
        memory: demand.memory.0.div_ceil(1 << 20),
    })
}
