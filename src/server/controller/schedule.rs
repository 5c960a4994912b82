//! Gives waiting sessions a place. Decides nothing itself: `rules::placement` does. Only how many sessions of one
//! owner start at once is limited here.

use std::collections::BTreeMap;
use std::time::Duration;

use rules::names::UserId;
use rules::placement::Decision;
use rules::session::SessionState;
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;

use crate::controller::Decide;
use crate::controller::pass::ControllerPass;

/// How long a session counts as being started, from when it got its place; a healthy start takes a tenth of it.
/// Longer: starts that wait for their session's own small share of a processor follow one another, forty of them for a
/// minute. Shorter: on a slow disk a flood of one owner has all places of a node.
const STARTING: Duration = Duration::from_millis(500);

/// Sessions of one owner that may be started together on a node with so many processors: one for every two, and at
/// least one. A node starts one for each processor, so another owner's session finds a free place beside a flood.
fn starts_of_one_owner(processors: usize) -> usize {
    (processors / 2).max(1)
}

/// Carries out what `decide` answers for this world, and asks again as long as sessions ended: what
/// depended on them can be decided now. Decisions about rows that moved on are dropped. So are places for
/// an owner who has as many sessions starting as one owner may: they would hold room that they cannot use
/// yet, and another owner's session would wait for it. The pass after one of them started, or no longer counts
/// as being started, gives the next place.
pub(crate) fn schedule(pass: &mut ControllerPass, decide: Decide<'_>) {
    let nodes = pass.world.nodes.iter();
    let take = nodes.filter(|node| node.schedulable && !node.is_silent(pass.now));
    let processors = take.map(|node| node.capacity.cpu.0 as usize / 100);
    let most = processors.map(starts_of_one_owner).sum();
    loop {
        let decisions = decide(&pass.world, pass.now);
        let live = pass.world.sessions.len();
        let mut starts: BTreeMap<UserId, usize> = BTreeMap::new();
        for (owner, _) in starting(&pass.world, pass.now) {
            *starts.entry(owner).or_default() += 1;
        }
        // Before the first change: each one forgets where sessions stand in the list.
        let owner_of = |decision: &Decision| match decision {
            Decision::Place { session, .. } => pass.world.session(*session).map(|s| s.owner),
            Decision::End { .. } => None,
        };
        let owners: Vec<Option<UserId>> = decisions.iter().map(owner_of).collect();
        for (decision, owner) in decisions.into_iter().zip(owners) {
            if let Some(owner) = owner {
                let own = starts.entry(owner).or_default();
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

/// The sessions that are being started: whose each is, and for how long it still counts. O(live sessions).
pub(crate) fn starting(
    world: &ClusterSnapshot,
    now: Timestamp,
) -> impl Iterator<Item = (UserId, Duration)> {
    world.sessions.iter().filter_map(move |session| {
        let at = session.scheduled_at().filter(|at| *at <= now)?;
        let begins = matches!(
            session.state(),
            SessionState::Scheduled | SessionState::Preparing
        );
        let left = STARTING.checked_sub(Duration::from_millis(now.millis_since(at)))?;
        (begins && !left.is_zero()).then_some((session.owner, left))
    })
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
