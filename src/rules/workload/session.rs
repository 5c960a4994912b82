//! The session as the catalog keeps it, and the moves that are legal.
//! Never decides where a session goes (`placement`) nor what a report means (`progress`).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::container::{ContainerProgress, MAIN, SessionContainer};
use super::mount::FolderMount;
use super::outcome::Outcome;
use super::precedence::Precedence;
use super::remarks::Remarks;
use super::spec::SessionSpec;
use super::state::{DesiredState, EndedSession, LastPlace, Lifecycle, PlacedSession, SessionState};
use crate::app_launch::LaunchedApps;
use crate::codes;
use crate::egress::SessionEgress;
use crate::incident::{EnforcementAction, MemoryIncident, StuckMount};
use crate::names::{ContainerName, NodeId, SessionId, SessionName, UserId, UserName};
use crate::process_limits::ProcessLimits;
use crate::reason::Reason;
use crate::reasons;
use crate::resources::{DeviceShare, in_parts};
use crate::start_up::{SessionStartUp, StartUpFailure};
use crate::tenancy::{DomainId, ProjectId, Scope};
use crate::units::Timestamp;

/// One session, as the catalog keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub id: SessionId,
    pub name: SessionName,
    pub owner: UserId,
    #[serde(default)]
    pub domain: DomainId,
    #[serde(default)]
    pub project: ProjectId,
    #[serde(flatten)]
    pub remarks: Remarks,
    /// How urgent it is, and whether it makes way for more urgent ones.
    #[serde(default)]
    pub precedence: Precedence,
    pub spec: SessionSpec,
    /// Folders of its owner that are shown inside, by place.
    #[serde(default)]
    pub mounts: Vec<FolderMount>,
    /// What it reaches outside, by the policy of its launch; nothing where it is None.
    #[serde(default)]
    pub egress: Option<SessionEgress>,
    /// What it has of its owner's start-up.
    #[serde(default)]
    pub start_up: SessionStartUp,
    /// Commands in it may run as root of its own user namespace where its own user is another one.
    #[serde(default)]
    pub sudo: bool,
    /// What its processes may have more than is usual.
    #[serde(default)]
    pub ulimits: ProcessLimits,
    /// Apps that are started once it runs.
    #[serde(default)]
    pub apps: LaunchedApps,
    /// Where it stands, and the containers it has there.
    pub lifecycle: Lifecycle,
    pub desired: DesiredState,
    /// The owner wants it frozen.
    pub paused: bool,
    /// After it ended: start it once more.
    pub restart: bool,
    /// Timed backfill gave it its place, its last one, or more there, before a session that waited longer. A restart gives
    /// that up.
    #[serde(default)]
    pub backfilled: bool,
    /// How often it was stopped for a session of higher priority.
    #[serde(default)]
    pub preempted_count: u32,
    /// Who holds it: it waits until it is released. None for all that have a place.
    #[serde(default)]
    pub held_by: Option<UserName>,
    /// Which start this is; 1 is the first.
    pub incarnation: u32,
    /// Raised by every write to the row; writers compare it first.
    pub generation: u64,
    /// The only device that it may have a share of, by the device's own name; None: any. A card's self-test
    /// sets it, and then a cordon does not keep it away.
    #[serde(default)]
    pub device_affinity: Option<String>,
    /// It ended, and its command, variables and labels are no longer kept: its owner has ended sessions with
    /// many bytes of them. Such a one never begins again.
    #[serde(default)]
    pub document_gone: bool,
    pub created_at: Timestamp,
    /// Since when it waits in the queue, or last did: its creation, its latest restart, or the end of a hold after it.
    pub queued_at: Timestamp,
    /// Milliseconds that it waited in the queue before `queued_at`, for the same start: before it was put on hold.
    #[serde(default)]
    pub queued_before: u64,
    /// Why it waits, why it ended: the latest word on it.
    pub reason: Option<Reason>,
    /// What its machine's watchdog answered to its present start, oldest first: each once, and of many
    /// the latest.
    #[serde(default)]
    pub incidents: Vec<MemoryIncident>,
}

/// What became of one container, and so of its session; conditional on the generation of the session's row
/// that it was decided from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionChange {
    pub session: SessionId,
    /// Which container of the session.
    pub container: u32,
    pub seen: u64,
    pub to: Transition,
    /// None leaves the reason as it is.
    pub reason: Option<Reason>,
}

/// How far the container is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transition {
    Preparing,
    Running {
        started_at: Timestamp,
    },
    Ended {
        outcome: Outcome,
        exit_code: Option<i32>,
        /// None where it is as known before.
        started_at: Option<Timestamp>,
        ended_at: Timestamp,
    },
}

/// Incidents that a session remembers of each subject. At least as many as a machine says again of one
/// container, so that none is taken for new twice.
const MAX_INCIDENTS: usize = 16;

impl Session {
    /// A session as its launch leaves it: wanted, waiting, in its first incarnation.
    pub fn launched(
        id: SessionId,
        name: SessionName,
        owner: UserId,
        spec: SessionSpec,
        at: Timestamp,
    ) -> Self {
        Self {
            id,
            name,
            owner,
            domain: DomainId::DEFAULT,
            project: ProjectId::DEFAULT,
            remarks: Remarks::default(),
            precedence: Precedence::default(),
            spec,
            mounts: Vec::new(),
            egress: None,
            start_up: SessionStartUp::default(),
            sudo: false,
            ulimits: ProcessLimits::USUAL,
            apps: LaunchedApps::default(),
            lifecycle: Lifecycle::Pending,
            desired: DesiredState::Run,
            paused: false,
            restart: false,
            backfilled: false,
            preempted_count: 0,
            held_by: None,
            incarnation: 1,
            generation: 1,
            device_affinity: None,
            document_gone: false,
            created_at: at,
            queued_at: at,
            queued_before: 0,
            reason: None,
            incidents: Vec::new(),
        }
    }

    /// Whose it is.
    pub fn scope(&self) -> Scope {
        Scope {
            domain: Some(self.domain),
            project: Some(self.project),
            owner: Some(self.owner),
        }
    }

    /// The name of its main container.
    pub fn container(&self) -> ContainerName {
        self.container_name(MAIN)
    }

    /// The name of one of its containers, in its present incarnation.
    pub fn container_name(&self, index: u32) -> ContainerName {
        ContainerName {
            session: self.id,
            incarnation: self.incarnation,
            index,
        }
    }

    pub fn state(&self) -> SessionState {
        self.lifecycle.state()
    }

    /// Whether it waits. Reads nothing of its containers, as a pass over all sessions must not.
    pub fn is_pending(&self) -> bool {
        matches!(self.lifecycle, Lifecycle::Pending)
    }

    pub fn is_live(&self) -> bool {
        !matches!(self.lifecycle, Lifecycle::Ended(_))
    }

    /// The containers of its present start, or its last; the main one first, empty before it got a place.
    pub fn containers(&self) -> &[SessionContainer] {
        self.lifecycle.containers()
    }

    /// Its containers that may live, on any node: what they have is taken. Empty without a place, and once it
    /// is over.
    pub fn live_containers(&self) -> impl Iterator<Item = &SessionContainer> {
        let placed: &[SessionContainer] = match &self.lifecycle {
            Lifecycle::Placed(placed) => &placed.containers,
            Lifecycle::Pending | Lifecycle::Ended(_) => &[],
        };
        placed.iter().filter(|container| !container.is_over())
    }

    /// Those of them on one node.
    pub fn live_on(&self, node: NodeId) -> impl Iterator<Item = &SessionContainer> {
        let live = self.live_containers();
        live.filter(move |container| container.node == node)
    }

    /// What is kept of one node's devices for its containers there; empty where none of them may live.
    pub fn held_on(&self, node: NodeId) -> Vec<DeviceShare> {
        let here = self.live_on(node);
        here.flat_map(|container| container.holds().into_owned())
            .collect()
    }

    /// Whether its nodes hold all of its containers to their present grants.
    pub fn is_confirmed(&self) -> bool {
        let mut live = self.live_containers();
        live.all(|container| container.pending_devices.is_empty())
    }

    fn main(&self) -> Option<&SessionContainer> {
        self.containers().first()
    }

    /// The node of its main container; None before it got a place.
    pub fn node(&self) -> Option<NodeId> {
        self.main().map(|container| container.node)
    }

    /// Whether a container of it is, or was, on this node.
    pub fn is_on(&self, node: NodeId) -> bool {
        self.containers().iter().any(|c| c.node == node)
    }

    /// The devices of its main container.
    pub fn devices(&self) -> &[DeviceShare] {
        self.main().map_or(&[], |container| &container.devices)
    }

    /// What the node of its main container may still hold it to; empty where it has confirmed `devices`.
    pub fn pending_devices(&self) -> &[DeviceShare] {
        self.main()
            .map_or(&[], |container| &container.pending_devices)
    }

    pub fn scheduled_at(&self) -> Option<Timestamp> {
        match &self.lifecycle {
            Lifecycle::Pending => None,
            Lifecycle::Placed(placed) => Some(placed.scheduled_at),
            Lifecycle::Ended(end) => end.last.as_ref().map(|last| last.scheduled_at),
        }
    }

    /// Milliseconds that it waited in the queue for its latest place, without the time on hold; None while it has none.
    pub fn waited_millis(&self) -> Option<u64> {
        let placed = self.scheduled_at()?;
        Some(self.queued_before + placed.millis_since(self.queued_at))
    }

    /// When its main container started.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.main()?.state.started_at()
    }

    pub fn stopping_at(&self) -> Option<Timestamp> {
        match &self.lifecycle {
            Lifecycle::Pending => None,
            Lifecycle::Placed(placed) => placed.stopping_at,
            Lifecycle::Ended(end) => end.stopping_at,
        }
    }

    fn ending(&self) -> Option<&EndedSession> {
        match &self.lifecycle {
            Lifecycle::Pending | Lifecycle::Placed(_) => None,
            Lifecycle::Ended(end) => Some(end),
        }
    }

    pub fn ended_at(&self) -> Option<Timestamp> {
        self.ending().map(|end| end.ended_at)
    }

    pub fn outcome(&self) -> Option<Outcome> {
        self.ending().map(|end| end.outcome)
    }

    /// 0–255, signals as 128 + number; only once ended with a known end.
    pub fn exit_code(&self) -> Option<i32> {
        self.ending()?.exit_code
    }

    /// When it must be over by the limits its owner set; None without a limit or before its start.
    pub fn deadline(&self) -> Option<(Timestamp, &'static str)> {
        let started = self.started_at()?;
        let (seconds, code) = self.spec.limit()?;
        Some((started.plus_seconds(seconds), code))
    }

    /// What is kept for its main container on devices: its grant, or the larger of old and new while a
    /// change of it has not been confirmed.
    pub fn holds(&self) -> Cow<'_, [DeviceShare]> {
        self.main()
            .map_or(Cow::Borrowed(&[]), SessionContainer::holds)
    }

    /// The answer that ended one of its containers, where its machine stopped it for what it held.
    pub fn stopped_by_watchdog(&self, container: &SessionContainer) -> Option<&MemoryIncident> {
        let name = self.container_name(container.index);
        self.incidents
            .iter()
            .find(|each| each.container == name && each.answer == EnforcementAction::Stopped)
    }
}

impl Session {
    /// Sets the desired state: what has no place yet ends at once, what has one starts to stop. A second
    /// call with a stronger one only strengthens it. One that makes way, and is not to be queued again any more, gets the
    /// new reason. Returns whether anything changed.
    pub fn stop(&mut self, desired: DesiredState, because: Reason, now: Timestamp) -> bool {
        if self.state() == SessionState::Ended || desired == DesiredState::Run {
            return false;
        }
        let ends_for_good = self.is_preempted() && !self.restart;
        if ends_for_good {
            self.reason = Some(because.clone());
        }
        if self.desired == DesiredState::Kill || self.desired == desired {
            return ends_for_good;
        }
        // It may be stopping already, because of a container that ended.
        if self.desired == DesiredState::Run && self.state() != SessionState::Stopping {
            self.reason = Some(because);
        }
        self.desired = desired;
        self.paused = false;
        match &mut self.lifecycle {
            Lifecycle::Placed(placed) => {
                placed.stopping_at.get_or_insert(now);
            }
            Lifecycle::Pending | Lifecycle::Ended(_) => self.end(Outcome::Stopped, None, now),
        }
        true
    }

    /// Makes way for a session of higher priority: it is stopped, and waits in the queue again once it is over. Returns
    /// whether anything changed; nothing does for one that is to end already.
    pub fn preempt(&mut self, now: Timestamp) -> bool {
        let is_stopped = self.stop(DesiredState::Stop, reasons::session_preempted(), now);
        if is_stopped {
            self.restart = true;
            self.preempted_count += 1;
        }
        is_stopped
    }

    /// Whether it is being stopped for a session of higher priority.
    pub fn is_preempted(&self) -> bool {
        let mut reasons = self.reason.iter();
        self.state() == SessionState::Stopping
            && reasons.any(|reason| reason.code == codes::SESSION_PREEMPTED)
    }

    /// Is stopped because it was idle, and waits in the queue again once it is over, behind all others: time before counts
    /// for no place. Returns whether anything changed; nothing does for one that is to end already.
    pub fn requeue_idle(&mut self, because: Reason, now: Timestamp) -> bool {
        let is_stopped = self.stop(DesiredState::Stop, because, now);
        self.restart |= is_stopped;
        is_stopped
    }

    /// Whether it is being stopped because it was idle, to wait in the queue again.
    pub fn is_idle_requeued(&self) -> bool {
        let mut reasons = self.reason.iter();
        self.restart
            && self.state() == SessionState::Stopping
            && reasons.any(|reason| reason.code == codes::SESSION_IDLE)
    }

    /// Whether it is being stopped, and what it holds is free for others then: a session that its owner restarts keeps its
    /// place.
    pub fn gives_up_place(&self) -> bool {
        let makes_way = self.is_preempted() || self.is_idle_requeued();
        let keeps = self.restart && !self.backfilled && !makes_way;
        self.state() == SessionState::Stopping && !keeps
    }

    /// Keeps a waiting session from starting. Returns whether anything changed; nothing does for one that does not wait.
    pub fn hold(&mut self, by: UserName, now: Timestamp) -> bool {
        if self.state() != SessionState::Pending || self.held_by.is_some() {
            return false;
        }
        self.held_by = Some(by);
        self.queued_before += now.millis_since(self.queued_at);
        true
    }

    /// Queues a held session, behind all who wait now: time on hold counts for no place. Returns whether anything
    /// changed.
    pub fn release(&mut self, now: Timestamp) -> bool {
        let held = self.held_by.take().is_some();
        if held {
            self.queued_at = now;
        }
        held
    }

    /// Takes over what became of one container. Returns false, and changes nothing, where the row was written
    /// since the change was decided or the move is not legal.
    ///
    /// The first container whose end decides (`SessionContainer::decides`) gives the session its reason, its
    /// outcome and its exit code; the others are stopped then, and the session is over when all of them are.
    pub fn apply(&mut self, change: &SessionChange) -> bool {
        let Lifecycle::Placed(placed) = &mut self.lifecycle else {
            return false;
        };
        let decided = placed.containers.iter().any(SessionContainer::decides);
        let mut containers = placed.containers.iter_mut();
        let Some(container) = containers.find(|c| c.index == change.container) else {
            return false;
        };
        let over = matches!(change.to, Transition::Ended { .. });
        let wanted = placed.stopping_at.is_none();
        let legal = match (&container.state, &change.to) {
            (ContainerProgress::Ended { .. }, _) => false,
            (_, Transition::Ended { .. }) => true,
            (ContainerProgress::Scheduled, _) => wanted,
            (ContainerProgress::Preparing, Transition::Running { .. }) => wanted,
            (ContainerProgress::Preparing | ContainerProgress::Running { .. }, _) => false,
        };
        if change.seen != self.generation || !legal {
            return false;
        }
        match &change.to {
            Transition::Preparing => container.state = ContainerProgress::Preparing,
            Transition::Running { started_at } => {
                container.state = ContainerProgress::Running {
                    started_at: *started_at,
                };
                // It waited for its image, and does so no more.
                self.reason
                    .take_if(|reason| reason.code == codes::SESSION_FETCHING_IMAGE);
            }
            Transition::Ended {
                outcome,
                exit_code,
                started_at,
                ..
            } => {
                // It was stopped because of another one, whatever its own end looks like.
                let outcome = if decided { Outcome::Stopped } else { *outcome };
                container.end(*started_at, *exit_code, outcome);
            }
        }
        let decides = container.decides() || (over && container.index == MAIN);
        if change.reason.is_some() && !decided && (decides || !over) {
            self.reason = change.reason.clone();
        }
        if let Transition::Ended { ended_at, .. } = &change.to {
            self.end_of_container(decides, *ended_at);
        }
        true
    }

    /// Ends the session where no container of it lives any more; where one decided, it stops the others.
    fn end_of_container(&mut self, decides: bool, at: Timestamp) {
        let Lifecycle::Placed(placed) = &mut self.lifecycle else {
            return;
        };
        if !placed.containers.iter().all(SessionContainer::is_over) {
            if decides {
                placed.stopping_at.get_or_insert(at);
                self.paused = false;
            }
            return;
        }
        let mut containers = placed.containers.iter();
        let decisive = containers.find(|container| container.decides());
        let main = placed.containers.first();
        let last = decisive.or(main).and_then(SessionContainer::ended_with);
        if let Some((outcome, exit_code)) = last {
            self.end(outcome, exit_code, at);
        }
    }

    /// Notes what its machine's watchdog answered. Returns false, and changes nothing, for what it knows
    /// already and for what is said of another start.
    pub fn note(&mut self, incident: &MemoryIncident) -> bool {
        let known = self.incidents.iter().any(|each| each.id == incident.id);
        let own = |c: &SessionContainer| self.container_name(c.index) == incident.container;
        if known || !self.is_live() || !self.containers().iter().any(own) {
            return false;
        }
        self.incidents.push(incident.clone());
        let subject = incident.answer.subject();
        let all = self.incidents.iter().enumerate();
        let mut same = all
            .filter(|(_, each)| each.answer.subject() == subject)
            .map(|(at, _)| at);
        if let (Some(oldest), true) = (same.next(), same.count() >= MAX_INCIDENTS) {
            self.incidents.remove(oldest);
        }
        // A stop has its own reason.
        if self.desired == DesiredState::Run && self.state() != SessionState::Stopping {
            self.reason = Some(incident.reason());
        }
        true
    }

    /// Keeps that the script of its present start failed. Returns whether that is new.
    pub fn note_start_up(&mut self, failure: &StartUpFailure) -> bool {
        let own = failure.container.incarnation == self.incarnation;
        if !own || !self.is_live() || self.start_up.failed == Some(self.incarnation) {
            return false;
        }
        self.start_up.failed = Some(self.incarnation);
        // A stop has its own reason.
        if self.desired == DesiredState::Run && self.state() != SessionState::Stopping {
            self.reason = Some(failure.reason());
        }
        true
    }

    /// Keeps which containers on a machine still have folders that were taken out of the session, as that machine says it. Returns
    /// whether that is news.
    pub fn note_stuck_mounts(&mut self, node: NodeId, stuck: &[StuckMount]) -> bool {
        if !self.is_live() {
            return false;
        }
        let containers = self.containers().iter();
        let here: Vec<(u32, ContainerName)> = containers
            .filter(|container| container.node == node)
            .map(|container| (container.index, self.container_name(container.index)))
            .collect();
        let mut is_news = false;
        for mount in self.mounts.iter_mut().filter(|mount| mount.detached) {
            let folder = mount.folder;
            let is_stuck =
                |container: ContainerName| stuck.contains(&StuckMount { container, folder });
            let elsewhere = mount.stuck.iter().copied();
            let mut now: Vec<u32> = elsewhere
                .filter(|index| here.iter().all(|(own, _)| own != index))
                .collect();
            let told = here.iter().filter(|(_, name)| is_stuck(*name));
            now.extend(told.map(|(index, _)| *index));
            now.sort_unstable();
            if mount.stuck != now {
                mount.stuck = now;
                is_news = true;
            }
        }
        // A stop has its own reason.
        if is_news && self.desired == DesiredState::Run && self.state() != SessionState::Stopping {
            let kept = self.mounts.iter().find(|mount| !mount.stuck.is_empty());
            let kept = kept.map(|mount| reasons::session_folder_stuck(&mount.name));
            let of_it = |reason: &Reason| reason.code == codes::SESSION_FOLDER_STUCK;
            if kept.is_some() || self.reason.as_ref().is_some_and(of_it) {
                self.reason = kept;
            }
        }
        is_news
    }

    /// How many mounts its containers still have that were taken out.
    pub fn stuck_mounts(&self) -> usize {
        self.mounts.iter().map(|mount| mount.stuck.len()).sum()
    }

    fn placed_containers(&mut self) -> &mut [SessionContainer] {
        match &mut self.lifecycle {
            Lifecycle::Placed(placed) => &mut placed.containers,
            Lifecycle::Pending | Lifecycle::Ended(_) => &mut [],
        }
    }

    /// Changes the grant of its main container while it runs. What it had stays kept until its node confirms
    /// the new one.
    pub fn regrant(&mut self, devices: Vec<DeviceShare>) {
        if let Some(main) = self.placed_containers().first_mut() {
            main.regrant(devices);
        }
    }

    /// Its nodes hold its containers to the present grants.
    pub fn confirm_devices(&mut self) {
        for container in self.placed_containers() {
            container.pending_devices.clear();
        }
    }

    /// Its node holds this one of its containers to the present grant.
    pub fn confirm_container(&mut self, index: u32) {
        let mut all = self.placed_containers().iter_mut();
        if let Some(container) = all.find(|container| container.index == index) {
            container.pending_devices.clear();
        }
    }

    /// All its containers run since `at`, where it has a place.
    pub fn run_since(&mut self, at: Timestamp) {
        for container in self.placed_containers() {
            container.state = ContainerProgress::Running { started_at: at };
        }
    }

    /// Gives it a place: all its containers on one node, each with its part of the devices.
    pub fn place(
        &mut self,
        node: NodeId,
        devices: Vec<DeviceShare>,
        because: Reason,
        now: Timestamp,
    ) {
        self.lifecycle = Lifecycle::Placed(PlacedSession {
            scheduled_at: now,
            stopping_at: None,
            containers: in_parts(&devices, self.spec.containers)
                .into_iter()
                .zip(MAIN..)
                .map(|(devices, index)| SessionContainer::scheduled(index, node, devices))
                .collect(),
        });
        self.backfilled = because.code == codes::PLACEMENT_BACKFILL;
        self.reason = Some(because);
    }

    /// Gives it the place of these containers, which were its last: the same nodes and devices, nothing of them begun.
    pub fn place_again(&mut self, last: &[SessionContainer], because: Reason, now: Timestamp) {
        let again =
            |c: &SessionContainer| SessionContainer::scheduled(c.index, c.node, c.devices.clone());
        self.lifecycle = Lifecycle::Placed(PlacedSession {
            scheduled_at: now,
            stopping_at: None,
            containers: last.iter().map(again).collect(),
        });
        self.reason = Some(because);
    }

    /// Ends it. The place stays written as history; nothing is held any more. One that makes way for a reservation or a
    /// session of higher priority, and is to run again, has waited already as long as it did before.
    pub fn end(&mut self, outcome: Outcome, exit_code: Option<i32>, at: Timestamp) {
        let mut reasons = self.reason.iter();
        let makes_way = reasons.any(|reason| {
            reason.code == codes::SESSION_RESERVED || reason.code == codes::SESSION_PREEMPTED
        });
        let waited = self.waited_millis().filter(|_| makes_way).unwrap_or(0);
        let (stopping_at, last) = match std::mem::replace(&mut self.lifecycle, Lifecycle::Pending) {
            Lifecycle::Pending => (None, None),
            Lifecycle::Placed(placed) => {
                let mut containers = placed.containers;
                for container in &mut containers {
                    if !container.is_over() {
                        container.end(None, None, outcome);
                    }
                }
                let last = LastPlace {
                    scheduled_at: placed.scheduled_at,
                    containers,
                };
                (placed.stopping_at, Some(last))
            }
            Lifecycle::Ended(end) => (end.stopping_at, end.last),
        };
        self.lifecycle = Lifecycle::Ended(EndedSession {
            outcome,
            exit_code,
            ended_at: at,
            stopping_at,
            last,
        });
        self.paused = false;
        self.held_by = None;
        for mount in &mut self.mounts {
            mount.stuck.clear();
        }
        if self.restart {
            self.begin_again(at);
            let waited = i64::try_from(waited).unwrap_or(i64::MAX);
            self.queued_at = Timestamp::from_millis(at.as_millis().saturating_sub(waited));
        }
    }

    /// Starts an ended session once more, under the next incarnation.
    pub fn begin_again(&mut self, at: Timestamp) {
        self.lifecycle = Lifecycle::Pending;
        self.desired = DesiredState::Run;
        self.restart = false;
        self.incarnation += 1;
        self.incidents = Vec::new();
        self.queued_at = at;
        self.queued_before = 0;
        self.reason = None;
    }
}
