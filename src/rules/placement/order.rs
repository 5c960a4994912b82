//! In which order waiting sessions are looked at, and what holds one back besides room.
//!
//! Users take turns: each user's first waiting session comes before any user's second. Among first ones it
//! counts since when each is its owner's first, so that no later session passes the head of the queue,
//! and a user who just got a place stands behind all who wait. So a user with one session waits for at
//! most one of each other person, however many they queued. An administrator may choose another order instead: by
//! fair share, by dominant shares, by time, or the newest first; for a resource group by itself too. In each of them
//! sessions of a higher priority come before all of a lower one; users take turns within each priority, so that what one
//! queues at a low priority costs none of their other turns.

pub(super) mod fair_share;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::blocker::PlacementBlocker;
use crate::blockers;
use crate::fair_share::QueueOrder;
use crate::names::{ResourceGroupId, SessionId, UserId, UserName};
use crate::reason::Reason;
use crate::reasons;
use crate::session::{Outcome, Session};
use crate::units::Timestamp;
use crate::world::ClusterSnapshot;
use fair_share::FairTree;

/// What stands between a waiting session and a look for room.
pub(super) enum QueueGate<'w> {
    Open,
    Held(QueueHold<'w>),
    Never(Reason),
}

/// For what a session waits before it may look for room. A pass asks it of each session, and says it of none.
pub(super) enum QueueHold<'w> {
    Dependency(&'w Session),
    /// Until its resource group takes sessions of its owner again.
    Group,
    /// Until this user or another releases it.
    User(&'w UserName),
    Start(Timestamp),
    /// Until a window of its resource group takes such sessions, seen from that moment.
    Window(&'w ClusterSnapshot, &'w Session, Timestamp),
}

impl QueueHold<'_> {
    /// The same in words.
    pub(super) fn blocker(&self) -> PlacementBlocker {
        match self {
            Self::Dependency(other) => blockers::dependency_waiting(&other.name).until(other.id),
            Self::Group => blockers::group_denied(),
            Self::User(user) => blockers::session_held(user),
            Self::Start(at) => blockers::start_later(*at),
            Self::Window(world, session, now) => match world.groups.opens(session, *now) {
                Some(at) => blockers::window_closed(at),
                None => blockers::window_never(),
            },
        }
    }
}

/// Of whom turns are counted: a user's sessions of one priority.
type TurnKey = (UserId, u32);

/// One person's turns at one priority.
#[derive(Debug, Clone, Copy, Default)]
struct UserTurns {
    /// Sessions of theirs that wait for nothing but room.
    waiting: u32,
    /// Since when the first of them is the first.
    since: Option<Timestamp>,
    /// When a session of theirs last got a place.
    served: Timestamp,
}

/// The priority, round, since when its owner's first one is that, when it was queued, and its id, which is time-ordered
/// and breaks ties. Whole, so that sorting never looks at a session.
type QueueKey = (Reverse<u32>, u32, Timestamp, Timestamp, SessionId);

/// A session that waits for its turn.
struct KeyedSession<'w> {
    key: QueueKey,
    session: &'w Session,
    /// It waits for something else than room.
    held: bool,
}

/// Waiting sessions in the order in which they are looked at, one resource group after the other; each person's own
/// first come first. Costs sorting them twice.
pub(super) fn waiting(world: &ClusterSnapshot, now: Timestamp) -> Vec<&Session> {
    let waiting = WaitingByGroup::new(world, now);
    let groups = waiting.groups();
    groups.flat_map(|group| waiting.sorted(group)).collect()
}

/// All that wait, by resource group, in the order in which they were queued, and what the orders of all groups ask. A
/// session stands in front of those of its own group alone; fair share and the time when a user last got a place are those of
/// the whole site.
pub(super) struct WaitingByGroup<'w> {
    world: &'w ClusterSnapshot,
    now: Timestamp,
    groups: BTreeMap<ResourceGroupId, Vec<&'w Session>>,
    /// Where users take turns in some group: when those who wait last got a place.
    served: BTreeMap<UserId, Timestamp>,
    /// Where users take turns in some group and one of those who wait depends on another: all that live.
    live: BTreeSet<SessionId>,
    /// Where some group's queue goes by shares.
    fair: Option<FairTree>,
}

/// A place in the queue.
pub(super) struct QueuePlace<'w> {
    pub(super) session: &'w Session,
    /// How many of its owner's sessions of the same priority stand in front of it; 0 where users take no turns.
    pub(super) round: u32,
}

/// The queue with its numbers.
pub(super) struct NumberedQueue<'w> {
    /// First those that wait for room, in order: they are numbered from 1. Then those that are held, wait for a
    /// time or for another session: they have no number.
    pub(super) places: Vec<QueuePlace<'w>>,
    pub(super) numbered: usize,
    /// Users with a session that is numbered.
    pub(super) users: usize,
}

impl<'w> WaitingByGroup<'w> {
    /// Costs one visit a session.
    pub(super) fn new(world: &'w ClusterSnapshot, now: Timestamp) -> Self {
        let mut waiting: Vec<&Session> = world.sessions.iter().filter(|s| s.is_pending()).collect();
        waiting.sort_by_key(|s| (s.queued_at, s.id));
        let depends_on = |session: &&Session| !session.spec.depends_on.is_empty();
        let some_depend = waiting.iter().any(depends_on);
        let mut groups: BTreeMap<ResourceGroupId, Vec<&Session>> = BTreeMap::new();
        if world.groups.is_empty() {
            groups.insert(ResourceGroupId::DEFAULT, waiting);
        } else {
            for session in waiting {
                let group = world.groups.of_session(session.id);
                groups.entry(group).or_default().push(session);
            }
        }
        let order_of = |group: &ResourceGroupId| world.order(*group, now);
        let takes_turns = groups
            .keys()
            .map(order_of)
            .any(|order| order == QueueOrder::Turns);
        let by_share = groups.keys().map(order_of).any(QueueOrder::goes_by_share);
        let live = match takes_turns && some_depend {
            true => world.sessions.iter().map(|s| s.id).collect(),
            false => BTreeSet::new(),
        };
        let served = match takes_turns {
            true => served_of(world, groups.values().flatten().copied()),
            false => BTreeMap::new(),
        };
        Self {
            world,
            now,
            groups,
            served,
            live,
            fair: by_share.then(|| FairTree::new(world)),
        }
    }

    /// Groups in which a session waits, the founding one first.
    pub(super) fn groups(&self) -> impl Iterator<Item = ResourceGroupId> {
        self.groups.keys().copied()
    }

    fn of(&self, group: ResourceGroupId) -> Vec<&'w Session> {
        self.groups.get(&group).cloned().unwrap_or_default()
    }

    /// Those of one group in the order in which they are looked at.
    pub(super) fn sorted(&self, group: ResourceGroupId) -> Vec<&'w Session> {
        if self.world.order(group, self.now) != QueueOrder::Turns {
            return self.ordered(group, self.of(group));
        }
        let mut keyed = self.keyed(self.of(group)).0;
        keyed.sort_unstable_by_key(|one| one.key);
        keyed.into_iter().map(|one| one.session).collect()
    }

    /// The queue of one group as it is once `new`, all of one owner and equal, are launched in it now. `behind_all`: the
    /// new ones belong to no user, and are the last. Costs sorting all that wait in it.
    pub(super) fn numbered(
        &self,
        group: ResourceGroupId,
        new: &'w [Session],
        behind_all: bool,
    ) -> NumberedQueue<'w> {
        let (world, now) = (self.world, self.now);
        if world.order(group, now) != QueueOrder::Turns {
            return self.numbered_in_order(group, new, behind_all);
        }
        let (mut keyed, turns) = self.keyed(self.of(group));
        let taken = turns.iter().filter(|(_, turns)| turns.waiting > 0);
        let mut owners: BTreeSet<UserId> = taken.map(|((owner, _), _)| *owner).collect();
        if let Some(first) = new.first() {
            let own = turns.get(&turn_key(first)).copied().unwrap_or_default();
            let since = own.since.unwrap_or(now);
            let begin = match behind_all {
                true => u32::MAX - new.len() as u32,
                false => own.waiting,
            };
            if !behind_all {
                owners.insert(first.owner);
            }
            let held = |session| !matches!(gate(world, session, now), QueueGate::Open);
            let (priority, rounds) = (Reverse(first.precedence.priority), begin..);
            keyed.extend(rounds.zip(new).map(|(round, session)| KeyedSession {
                key: (priority, round, since, now, session.id),
                session,
                held: held(session),
            }));
        }
        keyed.sort_unstable_by_key(|one| one.key);
        let (held, open): (Vec<_>, Vec<_>) = keyed.into_iter().partition(|one| one.held);
        let place = |one: KeyedSession<'w>| QueuePlace {
            session: one.session,
            round: one.key.1,
        };
        let mut places: Vec<QueuePlace<'w>> = open.into_iter().map(place).collect();
        let mut held: Vec<QueuePlace<'w>> = held.into_iter().map(place).collect();
        held.sort_by_key(|place| (place.session.spec.start_at, place.session.queued_at));
        let numbered = places.len();
        places.extend(held);
        NumberedQueue {
            places,
            numbered,
            users: owners.len(),
        }
    }

    /// These of one group in the order that the administrator chose; what waits for something else than room comes last.
    /// Turns are another function's.
    fn ordered(&self, group: ResourceGroupId, waiting: Vec<&'w Session>) -> Vec<&'w Session> {
        let (world, now) = (self.world, self.now);
        let (mut open, held): (Vec<&Session>, Vec<&Session>) = waiting
            .into_iter()
            .partition(|session| matches!(gate(world, session, now), QueueGate::Open));
        match world.order(group, now) {
            QueueOrder::Lifo => open.reverse(),
            order @ (QueueOrder::Drf | QueueOrder::Fair) => {
                // Without a tree none waits yet but the equal ones of one launch.
                if let Some(fair) = &self.fair {
                    open = fair.clone().by(order).sorted(open);
                }
            }
            QueueOrder::Turns | QueueOrder::Fifo => {}
        }
        // Among equals the order stays.
        open.sort_by_key(|session| Reverse(session.precedence.priority));
        open.extend(held);
        open
    }

    fn numbered_in_order(
        &self,
        group: ResourceGroupId,
        new: &'w [Session],
        behind_all: bool,
    ) -> NumberedQueue<'w> {
        let (world, now) = (self.world, self.now);
        let mut waiting = self.of(group);
        if !behind_all {
            waiting.extend(new);
        }
        let mut all = self.ordered(group, waiting);
        if behind_all {
            let held = |session: &&Session| !matches!(gate(world, session, now), QueueGate::Open);
            let end = all.iter().position(held).unwrap_or(all.len());
            all.splice(end..end, new);
        }
        let open = |session: &&Session| matches!(gate(world, session, now), QueueGate::Open);
        let (places, mut held): (Vec<&Session>, Vec<&Session>) = all.into_iter().partition(open);
        held.sort_by_key(|session| (session.spec.start_at, session.queued_at));
        let owners: BTreeSet<UserId> = places.iter().map(|session| session.owner).collect();
        let numbered = places.len();
        let place = |session| QueuePlace { session, round: 0 };
        NumberedQueue {
            places: places.into_iter().chain(held).map(place).collect(),
            numbered,
            users: owners.len(),
        }
    }

    fn keyed(
        &self,
        waiting: Vec<&'w Session>,
    ) -> (Vec<KeyedSession<'w>>, BTreeMap<TurnKey, UserTurns>) {
        let (world, now) = (self.world, self.now);
        let mut users: BTreeMap<TurnKey, UserTurns> = BTreeMap::new();
        let keyed = waiting.into_iter().map(|session| {
            let turns = users.entry(turn_key(session)).or_insert_with(|| UserTurns {
                served: self.served.get(&session.owner).copied().unwrap_or_default(),
                ..UserTurns::default()
            });
            let round = turns.waiting;
            let start = session.spec.start_at.unwrap_or_default();
            let since = session.queued_at.max(start.min(now)).max(turns.served);
            // What is held, waits for a time or for another session takes no turn of its owner's, nor does what is about
            // to end because another session ended badly.
            let well = Some(&Some(Outcome::Succeeded));
            let mut others = session.spec.depends_on.iter();
            let held = session.held_by.is_some()
                || start > now
                || !world.groups.admits(session)
                || world.groups.is_shut(session, now)
                || others.any(|id| self.live.contains(id) || world.ended.get(id) != well);
            let since = if held {
                turns.since.unwrap_or(since)
            } else {
                turns.waiting += 1;
                *turns.since.get_or_insert(since)
            };
            let priority = Reverse(session.precedence.priority);
            KeyedSession {
                key: (priority, round, since, session.queued_at, session.id),
                session,
                held,
            }
        });
        (keyed.collect(), users)
    }
}

fn turn_key(session: &Session) -> TurnKey {
    (session.owner, session.precedence.priority)
}

/// When the owners of these last got a place. Of those who wait for nothing it is not asked.
fn served_of<'w>(
    world: &ClusterSnapshot,
    waiting: impl Iterator<Item = &'w Session>,
) -> BTreeMap<UserId, Timestamp> {
    let mut served: BTreeMap<UserId, Timestamp> = BTreeMap::new();
    for session in waiting {
        served.entry(session.owner).or_insert_with(|| {
            let known = world.served.get(&session.owner).copied();
            known.unwrap_or_default()
        });
    }
    for session in &world.sessions {
        if let Some(at) = session.scheduled_at()
            && let Some(known) = served.get_mut(&session.owner)
        {
            *known = at.max(*known);
        }
    }
    served
}

/// When a session of each user last got a place.
pub(super) fn served(world: &ClusterSnapshot) -> BTreeMap<UserId, Timestamp> {
    let mut served = world.served.clone();
    for session in &world.sessions {
        if let Some(at) = session.scheduled_at() {
            let last = served.entry(session.owner).or_insert(at);
            *last = at.max(*last);
        }
    }
    served
}

/// When a session that waits for nothing but a time joins the queue; None for every other one.
pub(super) fn joins_at(
    world: &ClusterSnapshot,
    session: &Session,
    now: Timestamp,
) -> Option<Timestamp> {
    let start = session.spec.start_at.filter(|start| *start > now)?;
    matches!(gate(world, session, start), QueueGate::Open).then_some(start)
}

pub(super) fn gate<'w>(
    world: &'w ClusterSnapshot,
    session: &'w Session,
    now: Timestamp,
) -> QueueGate<'w> {
    for id in &session.spec.depends_on {
        if let Some(other) = world.session(*id) {
            return QueueGate::Held(QueueHold::Dependency(other));
        }
        match world.ended.get(id) {
            Some(Some(Outcome::Succeeded)) => {}
            Some(outcome) => {
                let word = outcome.map_or("unknown", Outcome::word);
                return QueueGate::Never(reasons::dependency_ended_badly(word, id));
            }
            None => {
                return QueueGate::Never(reasons::dependency_missing(id));
            }
        }
    }
    if !world.groups.admits(session) {
        return QueueGate::Held(QueueHold::Group);
    }
    if let Some(user) = &session.held_by {
        return QueueGate::Held(QueueHold::User(user));
    }
    if let Some(start) = session.spec.start_at
        && start > now
    {
        return QueueGate::Held(QueueHold::Start(start));
    }
    if world.groups.is_shut(session, now) {
        return QueueGate::Held(QueueHold::Window(world, session, now));
    }
    QueueGate::Open
}
