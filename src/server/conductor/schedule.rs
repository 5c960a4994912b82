//! Gives waiting sessions a place. Decides nothing itself: `rules::placement` does.

use rules::placement::Decision;

use crate::conductor::Decide;
use crate::conductor::turn::ControllerPass;

/// Carries out what `decide` answers for this world, and asks again as long as sessions ended: what
/// depended on them can be decided now. Decisions about rows that moved on are dropped.
pub(crate) fn schedule(turn: &mut ControllerPass, decide: Decide<'_>) {
    loop {
        let decisions = decide(&turn.world, turn.now);
        let live = turn.world.sessions.len();
        for decision in decisions {
            carry_out(turn, decision);
        }
        if turn.world.sessions.len() == live {
            return;
        }
    }
}

fn carry_out(turn: &mut ControllerPass, decision: Decision) {
    let now = turn.now;
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
