//! People take turns: told from rows and times alone, without the scheduler's own order.

use std::collections::BTreeMap;

use rules::names::{SessionId, UserId};
use rules::resources::Demand;
use rules::session::Session;
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;

use super::{Kept, Run, SimulatedMoment, waits_for_own_starts, waits_for_room};

/// Their owner's first that waits for room, and how many places each other person got meanwhile.
#[derive(Default)]
pub(super) struct Firsts {
    passed: BTreeMap<(SessionId, u32), BTreeMap<UserId, u32>>,
    /// The latest time of day that was ever shown. Behind it the order of times says nothing.
    latest: Timestamp,
}

impl Run {
    /// A session that waits for room as its owner's first lets at most one of each other person pass, among those
    /// that want no less.
    pub(super) fn turns_are_taken(
        &mut self,
        world: &ClusterSnapshot,
        now: SimulatedMoment,
    ) -> Kept {
        let before = std::mem::take(&mut self.firsts.passed);
        if now.wall < self.firsts.latest {
            return Ok(());
        }
        self.firsts.latest = now.wall;
        let placed: Vec<&Session> = world
            .sessions
            .iter()
            .filter(|s| s.state().holds_resources() && self.took_a_place(s))
            .collect();
        for first in firsts(world, now.wall) {
            let key = (first.id, first.incarnation);
            let mut passed = before.get(&key).cloned().unwrap_or_default();
            let served = world.served.get(&first.owner).copied();
            let since = served.unwrap_or_default().max(first.queued_at);
            // Who just got a place begins to wait for the next one.
            if placed.iter().any(|s| s.owner == first.owner) {
                passed.clear();
            } else if before.contains_key(&key) {
                for other in &placed {
                    // Places of one moment have no order: the queue tells who came first by these times.
                    let earlier = other.scheduled_at().is_some_and(|at| at <= since);
                    if earlier || !wants_no_less(&other.spec.demand, &first.spec.demand) {
                        continue;
                    }
                    let places = passed.entry(other.owner).or_default();
                    *places += 1;
                    if *places > 1 {
                        return Err(format!(
                            "{} is its owner's second that gets a place while {} of another waits",
                            other.name, first.name
                        ));
                    }
                }
            }
            self.firsts.passed.insert(key, passed);
        }
        Ok(())
    }
}

/// The first of each owner that waits for nothing but room.
fn firsts(world: &ClusterSnapshot, now: Timestamp) -> Vec<&Session> {
    let mut firsts: BTreeMap<UserId, &Session> = BTreeMap::new();
    let waiting = world.sessions.iter();
    let waits =
        |s: &&Session| waits_for_room(world, s, now) && !waits_for_own_starts(world, s, now);
    for session in waiting.filter(waits) {
        let first = firsts.entry(session.owner).or_insert(session);
        if (session.queued_at, session.id) < (first.queued_at, first.id) {
            *first = session;
        }
    }
    firsts.into_values().collect()
}

/// Where the one fits, the other does.
fn wants_no_less(one: &Demand, other: &Demand) -> bool {
    (one.gpu, one.gpu_memory, one.mig) == (other.gpu, other.gpu_memory, other.mig)
        && one.cpu >= other.cpu
        && one.memory >= other.memory
}
