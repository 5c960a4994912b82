//! In which order waiting sessions are looked at, and what holds one back besides room.
//!
//! Users take turns: each user's first waiting session comes before any user's second. Among first ones it
//! counts since when each is its owner's first, so that no later session passes the head of the queue,
//! and a user who just got a place stands behind all who wait. So a user with one session waits for at
//! most one of each other person, however many they queued.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{SessionId, UserId};
use crate::placement::PlacementBlocker;
use crate::reason::Reason;
use crate::reasons;
use crate::session::{Outcome, Session, SessionState};
use crate::units::Timestamp;
use crate::world::ClusterSnapshot;

/// What stands between a waiting session and a look for room.
pub(super) enum QueueGate {
    Open,
    Held(PlacementBlocker),
    Never(Reason),
}

/// One person's turns.
#[derive(Debug, Clone, Copy, Default)]
struct UserTurns {
    /// Sessions of theirs that wait for nothing but room.
    waiting: u32,
    /// Since when the first of them is the first.
    since: Option<Timestamp>,
}

/// Round, since when its owner's first one is that, when it was queued, and its id, which is time-ordered and
/// breaks ties.
type QueueKey = (u32, Timestamp, Timestamp, SessionId);

/// Waiting sessions in the order in which they are looked at; each person's own first come first. Costs
/// sorting them twice.
pub(super) fn waiting(world: &ClusterSnapshot, now: Timestamp) -> Vec<&Session> {
    let mut keyed = keyed(world, now).0;
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, session)| session).collect()
}

/// How many would be looked at before a session that `owner` queues now.
pub(super) fn before_new(world: &ClusterSnapshot, owner: UserId, now: Timestamp) -> u32 {
    let (keyed, turns) = keyed(world, now);
    let own = turns.get(&owner).copied().unwrap_or_default();
    let since = own.since.unwrap_or(now);
    let new: QueueKey = (own.waiting, since, now, SessionId(uuid::Uuid::max()));
    keyed.iter().filter(|(key, _)| *key < new).count() as u32
}

/// How many of its owner's sessions stand in front of a waiting one, where others wait too: then turns
/// matter.
pub(super) fn own_in_front(world: &ClusterSnapshot, session: &Session, now: Timestamp) -> u32 {
    let (keyed, turns) = keyed(world, now);
    if turns.values().filter(|turns| turns.waiting > 0).count() < 2 {
        return 0;
    }
    let found = keyed.iter().find(|(_, other)| other.id == session.id);
    found.map_or(0, |(key, _)| key.0)
}

fn keyed(
    world: &ClusterSnapshot,
    now: Timestamp,
) -> (Vec<(QueueKey, &Session)>, BTreeMap<UserId, UserTurns>) {
    let mut waiting: Vec<&Session> = world
        .sessions
        .iter()
        .filter(|s| s.state() == SessionState::Pending)
        .collect();
    waiting.sort_by_key(|s| (s.queued_at, s.id));
    let mut served = world.served.clone();
    for session in &world.sessions {
        if let Some(at) = session.scheduled_at() {
            let last = served.entry(session.owner).or_insert(at);
            *last = at.max(*last);
        }
    }
    let live: BTreeSet<SessionId> = if waiting.iter().any(|s| !s.spec.depends_on.is_empty()) {
        world.sessions.iter().map(|s| s.id).collect()
    } else {
        BTreeSet::new()
    };
    let mut users: BTreeMap<UserId, UserTurns> = BTreeMap::new();
    let keyed = waiting.into_iter().map(|session| {
        let turns = users.entry(session.owner).or_default();
        let round = turns.waiting;
        let start = session.spec.start_at.unwrap_or_default();
        let last = served.get(&session.owner).copied().unwrap_or_default();
        let since = session.queued_at.max(start.min(now)).max(last);
        // What waits for a time or for another session takes no turn of its owner's, nor does what is about to end
        // because another session ended badly.
        let well = Some(&Some(Outcome::Succeeded));
        let mut others = session.spec.depends_on.iter();
        let held = start > now || others.any(|id| live.contains(id) || world.ended.get(id) != well);
        let since = if held {
            turns.since.unwrap_or(since)
        } else {
            turns.waiting += 1;
            *turns.since.get_or_insert(since)
        };
        ((round, since, session.queued_at, session.id), session)
    });
    (keyed.collect(), users)
}

pub(super) fn gate(world: &ClusterSnapshot, session: &Session, now: Timestamp) -> QueueGate {
    for id in &session.spec.depends_on {
        if let Some(other) = world.session(*id) {
            return QueueGate::Held(PlacementBlocker {
                code: "dependency.waiting".into(),
                text: format!("It starts after {} has ended well.", other.name),
                params: [("session".to_owned(), other.name.to_string())].into(),
                ends_with: Some(other.id),
            });
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
    if let Some(start) = session.spec.start_at
        && start > now
    {
        return QueueGate::Held(PlacementBlocker {
            code: "start.later".into(),
            text: format!("It is set to start at {start}."),
            params: [("at".to_owned(), start.to_string())].into(),
            ends_with: None,
        });
    }
    QueueGate::Open
}
