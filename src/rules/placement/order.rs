//! In which order waiting sessions are looked at, and what holds one back besides room.

use crate::placement::Blocker;
use crate::session::{Outcome, Phase, Reason, Session};
use crate::units::Timestamp;
use crate::world::World;

/// What stands between a waiting session and a look for room.
pub(super) enum Gate {
    Open,
    Held(Blocker),
    Never(Reason),
}

/// Waiting sessions, first come first. Ids are time-ordered and break ties.
pub(super) fn waiting(world: &World) -> Vec<&Session> {
    let mut waiting: Vec<&Session> = world
        .sessions
        .iter()
        .filter(|s| s.phase == Phase::Pending)
        .collect();
    waiting.sort_by_key(|s| (s.queued_at, s.id));
    waiting
}

pub(super) fn gate(world: &World, session: &Session, now: Timestamp) -> Gate {
    for id in &session.order.depends_on {
        if let Some(other) = world.session(*id) {
            return Gate::Held(Blocker {
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
                return Gate::Never(
                    Reason::new(
                        "dependency.failed",
                        format!("A session it depends on ended as {word}."),
                    )
                    .with("session", id)
                    .with("outcome", word),
                );
            }
            None => {
                return Gate::Never(
                    Reason::new(
                        "dependency.missing",
                        "A session it depends on no longer exists.",
                    )
                    .with("session", id),
                );
            }
        }
    }
    if let Some(start) = session.order.start_at
        && start > now
    {
        return Gate::Held(Blocker {
            code: "start.later".into(),
            text: format!("It is set to start at {start}."),
            params: [("at".to_owned(), start.to_string())].into(),
            ends_with: None,
        });
    }
    Gate::Open
}
