//! Assignment × sights → steps on a node. The node's half of the reconciler; pure, so that the
//! simulation's nodes and the real one take the same steps.

use crate::messages::{Assignment, ContainerOrder, ContainerStatus, ReportedState, Want};
use crate::names::ContainerName;

/// One thing a node does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReconcileStep {
    /// Make the container and start it.
    Start(ContainerOrder),
    /// Bring live limits in line with the order.
    Adjust(ContainerOrder),
    Pause(ContainerName),
    Resume(ContainerName),
    /// TERM, then KILL after the grace.
    Stop(ContainerName),
    Kill(ContainerName),
    /// No longer on the assignment and over: drop its record and its resources.
    Forget(ContainerName),
}

/// Lists what brings this machine in line with its assignment; empty when it is. Running it twice
/// gives the same steps until the sights change.
///
/// A container that is not on the assignment is killed, and forgotten once it is over. A container
/// that is over is never started again: a restart is another incarnation. Starts come last: what a
/// list takes from one container it may give to another, and the taking must come first.
pub fn steps(assignment: &Assignment, sights: &[ContainerStatus]) -> Vec<ReconcileStep> {
    let mut steps = Vec::new();
    let mut starts = Vec::new();
    for sight in sights {
        let wanted = assignment.containers.iter().any(|o| o.name == sight.name);
        match (wanted, sight.state.is_over()) {
            (true, _) => {}
            (false, true) => steps.push(ReconcileStep::Forget(sight.name)),
            (false, false) => steps.push(ReconcileStep::Kill(sight.name)),
        }
    }
    for order in &assignment.containers {
        let sight = sights.iter().find(|s| s.name == order.name);
        match (sight.map(|s| &s.state), order.want) {
            (None, Want::Run | Want::Pause) => starts.push(ReconcileStep::Start(order.clone())),
            // Never started and no longer wanted: the report says so by its absence, and the
            // refusal to start is made here as a record.
            (None, Want::Stop | Want::Kill) => steps.push(ReconcileStep::Stop(order.name)),
            (Some(state), _) if state.is_over() => {}
            (Some(state), want) => {
                // Limits first: what it gave back may be given to another.
                if !matches!(state, ReportedState::Preparing { .. }) {
                    steps.push(ReconcileStep::Adjust(order.clone()));
                }
                match (state, want) {
                    (_, Want::Kill) => steps.push(ReconcileStep::Kill(order.name)),
                    (ReportedState::Stopping { .. }, _) => {}
                    (_, Want::Stop) => steps.push(ReconcileStep::Stop(order.name)),
                    (ReportedState::Running { paused: false, .. }, Want::Pause) => {
                        steps.push(ReconcileStep::Pause(order.name));
                    }
                    (ReportedState::Running { paused: true, .. }, Want::Run) => {
                        steps.push(ReconcileStep::Resume(order.name));
                    }
                    _ => {}
                }
            }
        }
    }
    steps.append(&mut starts);
    steps
}
