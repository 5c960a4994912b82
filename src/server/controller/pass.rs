//! One pass of the controller, before it is written: a world, and what its steps changed in it.
//! Passes work on this value alone; its maker writes all of it in one commit, or nothing.

use std::collections::{BTreeMap, BTreeSet};

use rules::continuity::Claim;
use rules::messages::{Assignment, PartitionSpec};
use rules::names::{NodeId, SessionId};
use rules::placement;
use rules::reasons;
use rules::reservation::ReservationTime;
use rules::session::{Session, SessionContainer, SessionState};
use rules::tenancy::Scope;
use rules::units::Timestamp;
use rules::world::{ClusterSnapshot, NodeRecord};
use uuid::Uuid;

use crate::catalog::budgets::BeyondBudgets;
use crate::catalog::controller_pass::{Happening, PassChanges, PassSnapshot};
use crate::catalog::reservations::ReservationChange;

/// A world under way. The rows as they were read stay known, so that the commit can refuse to
/// overwrite what another writer wrote meanwhile.
pub(crate) struct ControllerPass {
    pub(crate) now: Timestamp,
    pub(crate) world: ClusterSnapshot,
    /// What each node was told last; absent for a node that was never told anything.
    pub(crate) assigned: BTreeMap<NodeId, Assignment>,
    pub(crate) digests: BTreeMap<rules::names::ImageId, String>,
    simulated_partitions: BTreeMap<String, Vec<rules::devices::MigPart>>,
    /// How real devices are to be cut.
    pub(crate) partition_specs: BTreeMap<NodeId, Vec<PartitionSpec>>,
    pub(crate) beyond_budgets: BeyondBudgets,
    /// Drawn when the catalog was founded.
    pub(crate) state: Uuid,
    /// Root said that this catalog leads the machine, also if it followed another.
    pub(crate) is_accepted: bool,
    /// Machines that are taken over in this pass.
    pub(crate) accepting: BTreeSet<NodeId>,
    sessions: BTreeMap<SessionId, Session>,
    nodes: BTreeSet<NodeId>,
    assignments: BTreeSet<NodeId>,
    happened: Vec<Happening>,
    reservations: Vec<ReservationChange>,
}

impl ControllerPass {
    pub(crate) fn new(sight: PassSnapshot, now: Timestamp) -> Self {
        Self {
            now,
            world: sight.world,
            assigned: sight.assigned,
            digests: sight.digests,
            simulated_partitions: sight.simulated_partitions,
            partition_specs: sight.partition_specs,
            beyond_budgets: sight.beyond_budgets,
            state: sight.state,
            is_accepted: sight.accepted,
            accepting: BTreeSet::new(),
            sessions: BTreeMap::new(),
            nodes: BTreeSet::new(),
            assignments: BTreeSet::new(),
            happened: Vec::new(),
            reservations: Vec::new(),
        }
    }

    /// Changes one live session and notes that its row must be written, where `change` says that it
    /// changed anything. `actor` is the step. A session that ends leaves the world at once and
    /// stands among the ended, so that a later step of the same pass gives its place away and
    /// starts what waited for it. One that is restarted keeps its place where it can, unless it made way for another or was
    /// idle.
    pub(crate) fn change(
        &mut self,
        id: SessionId,
        actor: &'static str,
        change: impl FnOnce(&mut Session) -> bool,
    ) {
        let Some(at) = self.world.sessions.iter().position(|s| s.id == id) else {
            return;
        };
        let session = &mut self.world.sessions[at];
        let makes_way = session.is_preempted() || session.is_idle_requeued();
        let last = match session.restart && !makes_way {
            true => session.containers().to_vec(),
            false => Vec::new(),
        };
        let (before, incarnation) = (session.state(), session.incarnation);
        let waits = !session.is_confirmed();
        let held = session.held_by.is_some();
        let preempted = session.preempted_count;
        let because = session.reason.clone();
        let failed = session.start_up.failed;
        let stuck = session.stuck_mounts();
        let answered = session.incidents.last().map(|incident| incident.id);
        if !change(session) {
            return;
        }
        let code = if session.incarnation != incarnation {
            rules::codes::SESSION_RESTARTED.to_owned()
        } else if session.preempted_count != preempted {
            rules::codes::SESSION_PREEMPTED.to_owned()
        } else if session.state() != before {
            format!("session.{}", session.state().word())
        } else if session.held_by.is_some() && !held {
            rules::codes::SESSION_HELD.to_owned()
        } else if let Some(incident) = session.incidents.last()
            && answered != Some(incident.id)
        {
            let answer = incident.answer;
            format!("session.{}-{}", answer.subject(), answer.word())
        } else if session.start_up.failed != failed {
            rules::codes::SESSION_START_UP_FAILED.to_owned()
        } else if session.stuck_mounts() > stuck {
            rules::codes::SESSION_FOLDER_STUCK.to_owned()
        } else if session.stuck_mounts() < stuck {
            "session.folder-detached".to_owned()
        } else if waits && session.is_confirmed() {
            "session.share-confirmed".to_owned()
        } else {
            "session.changed".to_owned()
        };
        // Why it has its place is told once, not at each step after. An end tells its reason: by that it is known how it went.
        let ends = session.state() == SessionState::Ended;
        let is_told = !ends && session.state() != before && session.reason == because;
        let after = session
            .reason
            .as_ref()
            .filter(|_| !is_told)
            .map_or(session.state().word(), |reason| reason.text.as_str());
        self.happened.push(Happening {
            session: id,
            actor,
            code,
            before: before.word().to_owned(),
            after: after.to_owned(),
        });
        let restarted = session.incarnation != incarnation && session.is_pending();
        self.sessions.insert(id, session.clone());
        if session.state() == SessionState::Ended {
            self.world.ended.insert(id, session.outcome());
            self.world.sessions.remove(at);
        } else if restarted {
            self.keep_place(id, &last);
        }
    }

    /// Gives a session that is restarted the place that it had until now, before a step looks for another's. One whose
    /// place takes no new sessions stays in the queue.
    fn keep_place(&mut self, id: SessionId, last: &[SessionContainer]) {
        let Some(session) = self.world.session(id) else {
            return;
        };
        let node = last.first().and_then(|main| self.world.node(main.node));
        let blocked = placement::restart_blocker(&self.world, session, last, self.now);
        if let (Some(node), None) = (node, blocked) {
            let because = reasons::placement_kept(&node.name);
            let now = self.now;
            self.change(id, "scheduler", |session| {
                session.place_again(last, because, now);
                true
            });
        }
    }

    /// Takes in what a node says about itself. Hearing from it is no change worth a write; anything
    /// else it reports again is.
    pub(crate) fn heard(&mut self, mut node: NodeRecord) {
        // A simulated device is cut here and nowhere else; its machine knows nothing of it.
        for device in node.capacity.devices.iter_mut().filter(|d| d.simulated) {
            if let Some(parts) = self.simulated_partitions.get(&device.uuid) {
                device.mig.clone_from(parts);
            }
        }
        match self.world.nodes.iter_mut().find(|n| n.id == node.id) {
            Some(known) => {
                let aged = NodeRecord {
                    seen_at: known.seen_at,
                    schedulable: known.schedulable,
                    note: known.note.clone(),
                    cordoned: known.cordoned.clone(),
                    ..node
                };
                let same = aged == *known;
                *known = NodeRecord {
                    seen_at: self.now,
                    ..aged
                };
                if !same {
                    self.nodes.insert(known.id);
                }
            }
            None => {
                self.nodes.insert(node.id);
                self.world.nodes.push(node);
            }
        }
    }

    /// What this catalog says it told a machine.
    pub(crate) fn claim(&self, node: NodeId) -> Claim {
        Claim {
            state: self.state,
            told: self.assigned.get(&node).map_or(0, |a| a.generation),
            confirmed: self.world.node(node).map_or(0, |n| n.generation),
        }
    }

    /// Takes a step with a time of a reservation, and notes who is told. One that keeps nothing any more leaves the
    /// world, so that a later step of the same pass gives its devices away.
    pub(crate) fn step(&mut self, time: ReservationTime, warned: Vec<(SessionId, Scope)>) {
        let mut all = self.world.reservations.iter();
        let is_same = |row: &ReservationTime| row.id == time.id && row.number == time.number;
        let Some(at) = all.position(is_same) else {
            return;
        };
        let row = &mut self.world.reservations[at];
        if *row == time && warned.is_empty() {
            return;
        }
        let was = std::mem::replace(row, time.clone()).state;
        if !time.state.counts() {
            self.world.reservations.remove(at);
        }
        self.reservations
            .push(ReservationChange { was, time, warned });
    }

    /// Replaces what a node should have.
    pub(crate) fn assign(&mut self, assignment: Assignment) {
        self.assignments.insert(assignment.node);
        self.assigned.insert(assignment.node, assignment);
    }

    /// Everything to be written; None where the steps changed nothing.
    ///
    /// Each session carries the generation it was read with; writing raises it.
    pub(crate) fn writes(&self) -> Option<PassChanges> {
        let is_same = self.sessions.is_empty()
            && self.nodes.is_empty()
            && self.assignments.is_empty()
            && self.reservations.is_empty();
        if is_same {
            return None;
        }
        let of = |id: &NodeId| self.world.node(*id).cloned();
        Some(PassChanges {
            sessions: self.sessions.values().cloned().collect(),
            nodes: self.nodes.iter().filter_map(of).collect(),
            assignments: self
                .assignments
                .iter()
                .filter_map(|id| self.assigned.get(id).cloned())
                .collect(),
            happened: self.happened.clone(),
            reservations: self.reservations.clone(),
        })
    }
}
