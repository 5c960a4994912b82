//! Gives waiting sessions a place. Decides nothing itself: `rules::placement` does.

use rules::placement::Decision;
use rules::units::Timestamp;
use rules::world::World;

use crate::conductor::turn::Turn;

/// Carries out what `decide` answers for this world; decisions about rows that moved on are
/// dropped.
pub(crate) fn schedule(turn: &mut Turn, decide: &dyn Fn(&World, Timestamp) -> Vec<Decision>) {
    let now = turn.now;
    for decision in decide(&turn.world, now) {
        match decision {
            Decision::Place {
                session,
                seen,
                node,
                devices,
                because,
            } => turn.change(session, "scheduler", |s| {
                let fresh = s.generation == seen;
                if fresh {
                    s.place(node, devices, because, now);
                }
                fresh
            }),
            Decision::End {
                session,
                seen,
                outcome,
                because,
            } => turn.change(session, "scheduler", |s| {
                let fresh = s.generation == seen;
                if fresh {
                    s.reason = Some(because);
                    s.end(outcome, None, now);
                }
                fresh
            }),
        }
    }
}
