//! Machines of the simulation: fake nodes that take the product's own steps, with an agent that dies,
//! a link that loses, doubles and delays, and containers whose behaviour is random.

use std::collections::{BTreeMap, BTreeSet};

use rules::housekeeping::{self, ReconcileStep};
use rules::incident::{EnforcementAction, MemoryIncident};
use rules::messages::{Assignment, ContainerOrder, ContainerStatus, NodeReport, ReportedState};
use rules::names::{BootId, ContainerName, IncidentId, NodeId};
use rules::resources::{Capacity, Device, DeviceShare};
use rules::session::SessionKind;
use rules::units::{Bytes, CpuShare, Timestamp};
use server::simulation::fake_node::{ContainerPlan, FakeNode, Life, SimulatedMoment};

use super::faults::Fault;
use super::random::Random;

/// One machine and its link. Times are on the steady clock.
pub(super) struct Machine {
    pub fake_node: FakeNode,
    /// Its agent is dead until then: containers go on, nobody tends them, nothing is said.
    pub agent_back_at: Timestamp,
    /// Nothing passes the link until then, either way.
    pub link_back_at: Timestamp,
    /// How often each container was started here, ever.
    pub starts: BTreeMap<ContainerName, u32>,
    last_report: Option<NodeReport>,
    /// What was said of a container's shares last, and whose were forgotten; for planted faults.
    said: BTreeMap<ContainerName, Vec<DeviceShare>>,
    forgetful: BTreeSet<ContainerName>,
    /// The assignment that its last agent had obeyed when it died; for planted faults.
    forgotten: Option<u64>,
    reported_at: Timestamp,
    /// What its agent knows of containers that hold more than they were granted. It is written down: the
    /// next agent goes on there, but for the time that passed.
    cases: BTreeMap<ContainerName, Case>,
    /// Every answer that was ever given here.
    pub answered: BTreeMap<IncidentId, MemoryIncident>,
    thieves: u8,
    random: Random,
}

/// A container that holds more than it was granted, or did.
#[derive(Default)]
struct Case {
    since: Option<Timestamp>,
    told: Vec<MemoryIncident>,
    /// For `Fault::IncidentToldOnce`: how many of them were in some report.
    said: usize,
}

impl Case {
    fn last(&self) -> Option<EnforcementAction> {
        self.told.last().map(|incident| incident.answer)
    }
}

/// Seconds from the beginning of an offence to each answer.
const WARNED_AFTER: u64 = 2;
const FROZEN_AFTER: u64 = 4;
const STOPPED_AFTER: u64 = 14;

/// From which second on, and until which, a container holds more than it was granted; by its number, so
/// that no die is thrown for it. One in `thieves` of those with a device does; some let go once they are
/// warned.
fn offence(order: &ContainerOrder, thieves: u8) -> Option<(u64, u64)> {
    let number = order.name.session.0.as_u128();
    let thieves = u128::from(thieves);
    let thief = !order.devices.is_empty() && number.is_multiple_of(thieves);
    let lets_go = !(number / thieves).is_multiple_of(4);
    thief.then_some((1, if lets_go { 4 } else { u64::MAX }))
}

impl Machine {
    pub(super) fn new(number: u64, now: Timestamp, random: &mut Random, thieves: u8) -> Self {
        let mut random = random.split();
        let id = NodeId::make(now, random.bytes());
        let boot = BootId::make(now, random.bytes());
        let devices = if random.chance(60) {
            random.between(1, 3)
        } else {
            0
        };
        let capacity = Capacity {
            cpu: CpuShare(100 * random.between(2, 6) as u32),
            memory: Bytes::gib(random.between(4, 16)),
            devices: (0..devices as u32)
                .map(|index| Device {
                    memory: Bytes::gib(80),
                    uuid: format!("paper-{index}"),
                    ..Device::new(index, "paper")
                })
                .collect(),
            others: Vec::new(),
        };
        Self {
            fake_node: FakeNode::new(id, &format!("box-{number}"), boot, capacity),
            agent_back_at: now,
            link_back_at: now,
            starts: BTreeMap::new(),
            last_report: None,
            said: BTreeMap::new(),
            forgetful: BTreeSet::new(),
            forgotten: None,
            reported_at: now,
            cases: BTreeMap::new(),
            answered: BTreeMap::new(),
            thieves,
            random,
        }
    }

    /// Looks at everybody's devices, as the real watchdog does.
    fn watch(&mut self, now: SimulatedMoment) {
        let there: BTreeSet<ContainerName> = self
            .fake_node
            .containers
            .iter()
            .map(|c| c.order.name)
            .collect();
        self.cases.retain(|name, _| there.contains(name));
        let mut steps = Vec::new();
        for container in &self.fake_node.containers {
            let Life::Running { since, .. } = &container.life else {
                continue;
            };
            let Some((from, until)) = offence(&container.order, self.thieves) else {
                continue;
            };
            let name = container.order.name;
            let case = self.cases.entry(name).or_default();
            let ran = now.steady.seconds_since(since.steady);
            // What stands still lets go of nothing.
            let frozen = case.last() >= Some(EnforcementAction::Frozen)
                && case.last() != Some(EnforcementAction::Cleared);
            if !(from..until).contains(&ran) && !frozen {
                let warned = case.last() == Some(EnforcementAction::Warned);
                case.since = None;
                if warned {
                    steps.push((name, EnforcementAction::Cleared));
                }
                continue;
            }
            let over = now
                .steady
                .seconds_since(*case.since.get_or_insert(now.steady));
            let (after, answer) = match case.last() {
                None | Some(EnforcementAction::Cleared) => {
                    (WARNED_AFTER, EnforcementAction::Warned)
                }
                Some(EnforcementAction::Warned) => (FROZEN_AFTER, EnforcementAction::Frozen),
                Some(EnforcementAction::Frozen) => (STOPPED_AFTER, EnforcementAction::Stopped),
                Some(
                    EnforcementAction::Stopped
                    | EnforcementAction::Paused
                    | EnforcementAction::Resumed,
                ) => continue,
            };
            if over >= after {
                steps.push((name, answer));
            }
        }
        for (name, answer) in steps {
            let number = self.answered.len() as u64;
            let mut random = [0; 10];
            random[..8].copy_from_slice(&number.to_be_bytes());
            random[8] = self.fake_node.name.bytes().last().unwrap_or(0);
            let incident = MemoryIncident {
                id: IncidentId::make(now.wall, random),
                at: now.wall,
                container: name,
                device: "paper".into(),
                answer,
                held: Bytes::gib(2),
                limit: Bytes::gib(1),
            };
            self.answered.insert(incident.id, incident.clone());
            self.cases.entry(name).or_default().told.push(incident);
            let step = match answer {
                EnforcementAction::Frozen => ReconcileStep::Pause(name),
                EnforcementAction::Stopped => ReconcileStep::Kill(name),
                EnforcementAction::Warned
                | EnforcementAction::Cleared
                | EnforcementAction::Paused
                | EnforcementAction::Resumed => continue,
            };
            self.fake_node
                .perform(step, now, &mut |order| plan(order, &mut self.random));
        }
    }

    fn is_frozen(&self, name: ContainerName) -> bool {
        let last = self.cases.get(&name).and_then(Case::last);
        last == Some(EnforcementAction::Frozen)
    }

    /// A container that was frozen for what it holds, and goes on all the same, whatever the agent
    /// remembers of it.
    pub(super) fn let_go(&self) -> Option<ContainerName> {
        let goes_on = |life: &Life| matches!(life, Life::Running { paused: false, .. });
        // Nobody here gives back what they hold once they stand still.
        let was = |name, answer| {
            let mut told = self.answered.values();
            told.any(|incident| incident.container == name && incident.answer == answer)
        };
        let frozen =
            |name| was(name, EnforcementAction::Frozen) && !was(name, EnforcementAction::Stopped);
        self.fake_node
            .containers
            .iter()
            .find(|c| goes_on(&c.life) && frozen(c.order.name))
            .map(|c| c.order.name)
    }

    /// What the agent tells of a container that is there.
    pub(super) fn told(&self, name: ContainerName) -> &[MemoryIncident] {
        self.cases.get(&name).map_or(&[], |case| &case.told)
    }

    pub(super) fn agent_lives(&self, now: SimulatedMoment) -> bool {
        now.steady >= self.agent_back_at
    }

    pub(super) fn linked(&self, now: SimulatedMoment) -> bool {
        self.agent_lives(now) && now.steady >= self.link_back_at
    }

    /// Takes an assignment in, as the real node does, or as it would with the planted fault.
    pub(super) fn take(&mut self, assignment: Assignment, fault: Option<Fault>) {
        if fault == Some(Fault::StaleAssignmentTaken) && assignment.node == self.fake_node.id {
            self.fake_node.ledger = Some(assignment);
        } else {
            self.fake_node.take(assignment);
        }
    }

    /// One round of the agent.
    pub(super) fn tend(&mut self, now: SimulatedMoment, fault: Option<Fault>) {
        self.fake_node.sweep(now);
        let steps = match (&self.fake_node.ledger, fault) {
            (Some(ledger), Some(Fault::StartRepeatedWhileStarting)) => {
                let mut sights = self.fake_node.sights();
                sights.retain(|s| !matches!(s.state, ReportedState::Preparing { .. }));
                housekeeping::steps(ledger, &sights)
            }
            _ => self.fake_node.steps(),
        };
        let held: BTreeSet<ContainerName> = self
            .cases
            .keys()
            .copied()
            .filter(|name| self.is_frozen(*name))
            .collect();
        let Self {
            fake_node,
            starts,
            random,
            ..
        } = self;
        for step in steps {
            // As the real machine: what its watchdog froze stands still, whatever is wanted.
            if let ReconcileStep::Resume(name) = &step
                && held.contains(name)
                && fault != Some(Fault::FrozenLetGo)
            {
                continue;
            }
            if let ReconcileStep::Start(order) = &step {
                *starts.entry(order.name).or_default() += 1;
            }
            fake_node.perform(step, now, &mut |order| plan(order, random));
        }
        self.watch(now);
    }

    /// The report of this moment, where there is something new to say or it is time again.
    pub(super) fn report(
        &mut self,
        now: SimulatedMoment,
        fault: Option<Fault>,
    ) -> Option<NodeReport> {
        let mut report = self.fake_node.report(now);
        if fault == Some(Fault::ObeyedForgotten) && self.forgotten == Some(report.generation) {
            report.generation = 0;
        }
        for case in self.cases.values_mut() {
            let from = match fault {
                Some(Fault::IncidentToldOnce) => std::mem::replace(&mut case.said, case.told.len()),
                _ => 0,
            };
            report.incidents.extend_from_slice(&case.told[from..]);
        }
        for sight in &mut report.containers {
            let told = self
                .fake_node
                .containers
                .iter()
                .find(|c| c.order.name == sight.name);
            match (fault, told) {
                (Some(Fault::ConfirmedBeforeDone), Some(told)) => {
                    sight.devices.clone_from(&told.order.devices);
                }
                (Some(Fault::ConfirmedOnlyOnce), _) => {
                    let said = self.said.insert(sight.name, sight.devices.clone());
                    if said.as_ref() == Some(&sight.devices) {
                        sight.devices.clear();
                    }
                }
                (Some(Fault::GrantsForgotten), _) if self.forgetful.contains(&sight.name) => {
                    sight.devices.clear();
                }
                _ => {}
            }
        }
        let untimed = |report: &NodeReport| -> Vec<ContainerStatus> {
            let mut sights = report.containers.clone();
            sights.iter_mut().for_each(|sight| sight.ran = None);
            sights
        };
        let news = self.last_report.as_ref().is_none_or(|last| {
            untimed(last) != untimed(&report)
                || last.generation != report.generation
                || last.boot != report.boot
                || last.incidents != report.incidents
        });
        if !news && now.steady.seconds_since(self.reported_at) < 5 {
            return None;
        }
        self.reported_at = now.steady;
        self.last_report = Some(report.clone());
        Some(report)
    }

    /// The agent dies and stays away for `seconds`; what it was making may stay half-made.
    pub(super) fn kill_agent(&mut self, now: SimulatedMoment, seconds: u64, fault: Option<Fault>) {
        self.agent_back_at = now.steady.plus_seconds(seconds);
        self.last_report = None;
        if fault == Some(Fault::WatchForgotten) {
            self.cases.clear();
        }
        for case in self.cases.values_mut() {
            case.since = None;
        }
        self.forgotten = self.fake_node.ledger.as_ref().map(|a| a.generation);
        self.forgetful = self
            .fake_node
            .containers
            .iter()
            .map(|c| c.order.name)
            .collect();
        for container in &mut self.fake_node.containers {
            if matches!(container.life, Life::Preparing { .. }) && self.random.chance(50) {
                container.supervised = false;
            }
        }
    }

    /// Power off and on: nothing lives, and the agent comes back later.
    pub(super) fn reboot(&mut self, now: SimulatedMoment, seconds: u64) {
        let boot = BootId::make(now.wall, self.random.bytes());
        self.fake_node.reboot(boot);
        self.cases.clear();
        self.agent_back_at = now.steady.plus_seconds(seconds);
        self.last_report = None;
    }

    /// Kills the process that looks after one container that lives, where one does.
    pub(super) fn kill_supervisor(&mut self) -> Option<ContainerName> {
        let living: Vec<usize> = (0..self.fake_node.containers.len())
            .filter(|at| self.fake_node.containers[*at].lives())
            .collect();
        if living.is_empty() {
            return None;
        }
        let at = *self.random.pick(&living);
        let container = &mut self.fake_node.containers[at];
        container.supervised = false;
        Some(container.order.name)
    }
}

/// How a container will behave: mostly well, sometimes slowly, sometimes badly.
fn plan(order: &ContainerOrder, random: &mut Random) -> ContainerPlan {
    let slow = random.chance(20);
    ContainerPlan {
        prepare: if slow {
            random.between(5, 20)
        } else {
            random.between(0, 3)
        },
        refuse: random.chance(5),
        run: match order.kind {
            SessionKind::Batch => Some(random.between(0, 40)),
            SessionKind::Interactive => random.chance(15).then(|| random.between(0, 60)),
        },
        exit_code: if random.chance(75) {
            0
        } else {
            random.between(1, 255) as i32
        },
        stop: if random.chance(20) {
            random.between(5, 60)
        } else {
            random.between(0, 2)
        },
        kill: if random.chance(10) {
            random.between(2, 6)
        } else {
            0
        },
        give_back: if random.chance(50) {
            random.between(1, 8)
        } else {
            0
        },
    }
}
