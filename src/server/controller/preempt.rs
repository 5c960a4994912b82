//! Stops sessions that make way for one of higher priority; once they are over they wait in the queue again. Decides
//! nothing itself: `rules::placement::preempt` does.

use std::time::Duration;

use rules::placement;
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;

use crate::controller::pass::ControllerPass;

/// Stops the sessions that make way, with the longer grace of preemption. Comes after places were given: for one that
/// found room no session is stopped. One whose hard budget has no room for its whole run once more is spared: it could not
/// be queued again.
pub(crate) fn preempt(pass: &mut ControllerPass) {
    let now = pass.now;
    let spared = std::mem::take(&mut pass.beyond_budgets.requeued);
    for step in placement::preempt(&pass.world, &spared, now) {
        pass.change(step.victim, "scheduler", |session| {
            session.generation == step.seen && session.preempt(now)
        });
    }
}

/// Until one that yields has run for long enough; None where that changes nothing.
pub(crate) fn until_due(world: &ClusterSnapshot, now: Timestamp) -> Option<Duration> {
    let at = placement::next_settled(world, now)?;
    Some(Duration::from_millis(at.millis_since(now)))
}
