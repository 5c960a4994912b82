//! Moves rows towards what users want: hears nodes, ends what is overdue, gives places, says what
//! each node should have. Reads all, decides, writes all of it in one commit or nothing of it, and
//! only then speaks to a node.
//!
//! Passes take no input but the rows, the reports and the time, may run twice, and never retry by
//! themselves; `driver` calls them again.

mod accept;
mod apply_report;
mod assign;
mod budgets;
pub(crate) mod driver;
pub(crate) mod idleness;
mod limits;
pub(crate) mod logs;
mod pass;
mod preempt;
mod reserve;
mod retention;
mod schedule;
mod start_up;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rules::continuity::{self, Continuity, Memory};
use rules::messages::{Assignment, NodeReport};
use rules::names::NodeId;
use rules::placement::Decision;
use rules::refusal::Refusal;
use rules::session::SessionState;
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;

use crate::catalog::controller_pass::PassSnapshot;
use crate::controller::limits::Stopwatch;
pub(crate) use crate::controller::pass::ControllerPass;

/// An assignment that a node shows no sign of having taken in is sent again after this long.
const SEND_AGAIN: Duration = Duration::from_secs(5);

/// A choice of places, as `rules::placement::decide` makes it.
pub(crate) type Decide<'a> = &'a dyn Fn(&ClusterSnapshot, Timestamp) -> Vec<Decision>;

/// What the controller remembers from pass to pass. A fresh one does as well: it believes the rows'
/// times, and says everything once more.
#[derive(Debug, Default)]
pub(crate) struct Controller {
    watch: Stopwatch,
    /// The generation last sent to a node, and when, on the steady clock.
    sent: BTreeMap<NodeId, (u64, Duration)>,
    /// How each machine that was heard of stands to the catalog. No machine is led before it was heard.
    continuity: BTreeMap<NodeId, Continuity>,
}

impl Controller {
    /// Runs every step over what was read; writes nothing. `steady` is the time since any fixed
    /// moment of this process, on a clock that cannot be set.
    ///
    /// The order matters: a report may free room, a limit or a reservation may take that back, and what got a
    /// place stands on a list in the same commit, so a scheduled session is never one that no node
    /// will hear of.
    pub(crate) fn run_pass<R: std::ops::Deref<Target = NodeReport>>(
        &mut self,
        sight: PassSnapshot,
        reports: &[R],
        now: Timestamp,
        steady: Duration,
        decide: Decide<'_>,
    ) -> ControllerPass {
        let mut pass = ControllerPass::new(sight, now);
        for report in reports {
            let memory = Memory {
                state: report.state,
                generation: report.generation,
            };
            let mut found = continuity::judge(pass.claim(report.node), memory);
            if !found.continues() && pass.is_accepted {
                accept::accept(&mut pass, report, found);
                found = Continuity::Continues;
            }
            // What this process was told before stands: a report that was long on its way is no other record.
            let late = matches!(found, Continuity::Carried { .. })
                && self.continuity.get(&report.node) == Some(&Continuity::Continues);
            if late {
                found = Continuity::Continues;
            }
            self.continuity.insert(report.node, found);
            if !found.continues() {
                continue;
            }
            apply_report::apply_report(&mut pass, report);
            self.watch.hear(&pass, report, steady);
        }
        if self.quarantine().is_some() {
            return pass;
        }
        limits::limits(&mut pass, &mut self.watch, steady);
        budgets::hold_and_stop(&mut pass);
        reserve::reserve(&mut pass);
        if self.may_place(&pass) {
            schedule::schedule(&mut pass, decide);
            preempt::preempt(&mut pass);
        }
        assign::assign(&mut pass, |node| self.leads(node));
        for node in &pass.accepting {
            if let Some(assignment) = pass.assigned.get_mut(node) {
                assignment.accepted = true;
            }
        }
        pass
    }

    fn leads(&self, node: NodeId) -> bool {
        self.continuity.get(&node).is_some_and(|c| c.continues())
    }

    /// False while a machine that may take sessions is not known to belong to this catalog: what is placed
    /// there could run a second time.
    fn may_place(&self, pass: &ControllerPass) -> bool {
        let unsure =
            |node: &rules::world::NodeRecord| !self.leads(node.id) && !node.is_silent(pass.now);
        self.quarantine().is_none() && !pass.world.nodes.iter().any(unsure)
    }

    /// Why a machine is not led; None where all that were heard of are.
    pub(crate) fn quarantine(&self) -> Option<Refusal> {
        self.continuity.values().find_map(|found| found.refusal())
    }

    /// The machines that are not led, because their last report does not continue this catalog.
    pub(crate) fn quarantined(&self) -> BTreeSet<NodeId> {
        let found = self.continuity.iter();
        let left = found.filter(|(_, found)| !found.continues());
        left.map(|(node, _)| *node).collect()
    }

    /// Until the first moment at which time alone changes something in the world as this pass left
    /// it: a start time, a window or a limit. None where nothing waits for time.
    pub(crate) fn until_due(&self, pass: &ControllerPass) -> Option<Duration> {
        let starts = pass
            .world
            .sessions
            .iter()
            .filter(|s| s.state() == SessionState::Pending)
            .filter_map(|s| s.spec.start_at.filter(|at| *at > pass.now))
            .map(|at| Duration::from_millis(at.millis_since(pass.now)));
        // Its owner's next session gets a place then, whatever became of this one.
        let counted = schedule::starting(&pass.world, pass.now).map(|(_, left)| left);
        let reserved = reserve::until_due(&pass.world, pass.now);
        let settled = preempt::until_due(&pass.world, pass.now);
        let groups = pass.world.groups.groups.iter();
        let windows = groups
            .filter_map(|group| pass.world.groups.next_change(group.id, pass.now))
            .map(|at| Duration::from_millis(at.millis_since(pass.now)));
        starts
            .chain(counted)
            .chain(windows)
            .chain(self.watch.next)
            .chain(reserved)
            .chain(settled)
            .min()
    }

    /// The assignments to put on links now that this pass is written: new ones, and those that a
    /// node has not taken in. Empty where every node has what it should.
    pub(crate) fn due_assignments(
        &mut self,
        pass: &ControllerPass,
        steady: Duration,
    ) -> Vec<Assignment> {
        let mut send = Vec::new();
        for (node, assignment) in &pass.assigned {
            if !self.leads(*node) {
                continue;
            }
            let taken = pass.world.node(*node).map_or(0, |n| n.generation);
            let due = match self.sent.get(node) {
                Some((generation, at)) if *generation == assignment.generation => {
                    taken < *generation && steady.saturating_sub(*at) >= SEND_AGAIN
                }
                // A restart sends nothing that the node is known to have.
                _ => taken != assignment.generation,
            };
            if due {
                self.sent.insert(*node, (assignment.generation, steady));
                send.push(assignment.clone());
            }
        }
        send
    }
}

#[cfg(test)]
mod tests;
