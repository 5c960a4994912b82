//! Gives waiting sessions a place. Decides nothing itself: `rules::placement` does. Only how many of one
//! owner are started at once is looked at here.

use std::collections::BTreeMap;

use rules::assignment::MAX_STARTS_PER_OWNER;
use rules::names::UserId;
use rules::placement::Decision;
use rules::session::SessionState;

use crate::controller::Decide;
use crate::controller::pass::ControllerPass;

/// How long a session counts as being started, from when it got its place; a healthy start takes a
/// tenth of it. Longer: starts that hang keep their owner's other sessions waiting. Shorter: on a slow disk
/// one owner has more of them than their share.
const STARTING_SECONDS: u64 = 2;

/// Carries out what `decide` answers for this world, and asks again as long as sessions ended: what
/// depended on them can be decided now. Decisions about rows that moved on are dropped. So are places for
/// an owner who has as many sessions starting as one owner may: they would hold room that they cannot use
/// yet, and another owner's session would wait for it. The pass after one of them started gives the next place.
pub(crate) fn schedule(pass: &mut ControllerPass, decide: Decide<'_>) {
    let nodes = pass.world.nodes.iter();
    let take = nodes.filter(|node| node.schedulable && !node.is_silent(pass.now));
    let most = take.count() * MAX_STARTS_PER_OWNER;
    loop {
        let decisions = decide(&pass.world, pass.now);
        let live = pass.world.sessions.len();
        let mut starting = starting(pass);
        for decision in decisions {
            if let Decision::Place { session, .. } = &decision
                && let Some(owner) = pass.world.session(*session).map(|s| s.owner)
            {
                let own: &mut usize = starting.entry(owner).or_default();
                if *own >= most {
                    continue;
                }
                *own += 1;
            }
            carry_out(pass, decision);
        }
        if pass.world.sessions.len() == live {
            return;
        }
    }
}

/// How many sessions of each owner are being started.
fn starting(pass: &ControllerPass) -> BTreeMap<UserId, usize> {
    let mut starting = BTreeMap::new();
    for session in &pass.world.sessions {
        let recent = session
            .scheduled_at()
            .is_some_and(|at| at <= pass.now && pass.now.seconds_since(at) < STARTING_SECONDS);
        if recent
            && matches!(
                session.state(),
                SessionState::Scheduled | SessionState::Preparing
            )
        {
            *starting.entry(session.owner).or_default() += 1;
        }
    }
    starting
}

fn carry_out(pass: &mut ControllerPass, decision: Decision) {
    let now = pass.now;
    match decision {
        Decision::Place {
            session,
            seen,
            node,
            devices,
            because,
        } => pass.change(session, "scheduler", |s| {
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
        } => pass.change(session, "scheduler", |s| {
            let fresh = s.generation == seen;
            if fresh {
                s.reason = Some(because);
                s.end(outcome, None, now);
            }
            fresh
        }),
    }
}
