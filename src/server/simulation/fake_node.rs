//! A fake node: keeps an assignment, takes the steps that `rules::housekeeping` names,
//! and reports what it sees. Its containers are notes with times on them. How long things take, and
//! what goes wrong, is written on each container when it is made (`ContainerPlan`).
//!
//! Never reads a clock or random numbers. What survives what is modelled after the real machine: the ledger
//! (assignment) and a record for each container lie on disk; processes survive the death of the
//! agent that started them, but not a reboot.

use rules::housekeeping::{self, ReconcileStep};
use rules::messages::{
    Assignment, ContainerOrder, ContainerStatus, ExitRecord, NodeReport, ReportedState,
    STOP_GRACE_SECONDS,
};
use rules::names::{BootId, ContainerName, NodeId};
use rules::reason::Reason;
use rules::reasons;
use rules::resources::either;
use rules::resources::{Capacity, DeviceShare};
use rules::units::Timestamp;

/// One moment, twice: what the machine's clock shows, and what no setting of a clock can move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimulatedMoment {
    pub wall: Timestamp,
    /// Counts on evenly; its zero means nothing.
    pub steady: Timestamp,
}

impl SimulatedMoment {
    /// A moment on a machine whose clock is right.
    pub fn plain(at: Timestamp) -> Self {
        Self {
            wall: at,
            steady: at,
        }
    }
}

/// How one container will behave. Times are seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerPlan {
    /// From the order to the first process.
    pub prepare: u64,
    /// It cannot be made at all; said when `prepare` is over.
    pub refuse: bool,
    /// From the first process to its end by itself; None never ends.
    pub run: Option<u64>,
    pub exit_code: i32,
    /// From TERM to the end; past the grace it is killed.
    pub stop: u64,
    /// From KILL to the end.
    pub kill: u64,
    /// From being told to hold less of a device to doing so: memory is given back when its program frees
    /// it.
    pub give_back: u64,
}

impl Default for ContainerPlan {
    /// Takes a second to start and to stop, runs until it is stopped.
    fn default() -> Self {
        Self {
            prepare: 1,
            refuse: false,
            run: None,
            exit_code: 0,
            stop: 1,
            kill: 0,
            give_back: 0,
        }
    }
}

/// One start of one container, from the order until it is forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub order: ContainerOrder,
    pub plan: ContainerPlan,
    pub life: Life,
    /// The shares of devices it is held to at this moment. What it is told to give back, it gives back
    /// when `ContainerPlan::give_back` is over.
    pub held: Vec<DeviceShare>,
    /// Since when it is to give something back; steady time.
    pub giving_since: Option<Timestamp>,
    /// False once the process that looks after it is gone: no process will write its exit record.
    pub supervised: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Life {
    Preparing {
        since: SimulatedMoment,
    },
    Running {
        since: SimulatedMoment,
        paused: bool,
    },
    Stopping {
        since: SimulatedMoment,
        /// Its first process' start; None where there never was one.
        started: Option<SimulatedMoment>,
        /// Steady time.
        gone_at: Timestamp,
        /// What will stand in the exit record.
        exit_code: i32,
    },
    /// No process of it lives.
    Over(ReportedState),
}

impl Container {
    /// True while a process of it may live, so that it uses what it was given.
    pub fn lives(&self) -> bool {
        !matches!(self.life, Life::Over(_))
    }
}

/// The machine.
#[derive(Debug, Clone)]
pub struct FakeNode {
    pub id: NodeId,
    pub name: String,
    pub boot: BootId,
    pub capacity: Capacity,
    pub problems: Vec<Reason>,
    /// The newest assignment it took in; on disk.
    pub ledger: Option<Assignment>,
    /// In the order they were made. At most one of a name, unless something is wrong.
    pub containers: Vec<Container>,
}

impl FakeNode {
    pub fn new(id: NodeId, name: &str, boot: BootId, capacity: Capacity) -> Self {
        Self {
            id,
            name: name.to_owned(),
            boot,
            capacity,
            problems: Vec::new(),
            ledger: None,
            containers: Vec::new(),
        }
    }

    /// Keeps an assignment, unless it is no newer than the one it has or is another machine's.
    /// Returns whether it was taken.
    pub fn take(&mut self, assignment: Assignment) -> bool {
        let have = self.ledger.as_ref().map_or(0, |a| a.generation);
        let state = self.ledger.as_ref().and_then(|a| a.state);
        let ours = assignment.accepted || state.is_none() || state == assignment.state;
        let newer = ours && assignment.node == self.id && assignment.generation > have;
        if newer {
            self.ledger = Some(assignment);
        }
        newer
    }

    /// Lets time pass: what containers do by themselves until `now` happens. Needs no agent.
    pub fn advance(&mut self, now: SimulatedMoment) {
        for container in &mut self.containers {
            container.advance(now);
        }
    }

    /// One round of the agent: ends what has no supervisor any more, then takes the steps that
    /// its assignment asks for.
    pub fn tend(
        &mut self,
        now: SimulatedMoment,
        plan: &mut dyn FnMut(&ContainerOrder) -> ContainerPlan,
    ) {
        self.sweep(now);
        for step in self.steps() {
            self.perform(step, now, plan);
        }
    }

    /// Kills what lives without a supervisor: no process would write its exit record.
    pub fn sweep(&mut self, now: SimulatedMoment) {
        for container in self.containers.iter_mut().filter(|c| !c.supervised) {
            container.kill(now);
        }
    }

    /// What the rules say should be done next; empty before the first assignment.
    pub fn steps(&self) -> Vec<ReconcileStep> {
        self.ledger
            .as_ref()
            .map(|a| housekeeping::steps(a, &self.sights()))
            .unwrap_or_default()
    }

    /// Does one step; `plan` is asked how a container that starts here will behave.
    pub fn perform(
        &mut self,
        step: ReconcileStep,
        now: SimulatedMoment,
        plan: &mut dyn FnMut(&ContainerOrder) -> ContainerPlan,
    ) {
        match step {
            ReconcileStep::Start(order) => {
                let plan = plan(&order);
                self.containers.push(Container {
                    held: order.devices.clone(),
                    giving_since: None,
                    order,
                    plan,
                    life: Life::Preparing { since: now },
                    supervised: true,
                });
            }
            ReconcileStep::Adjust(order) => {
                for container in self.named(order.name) {
                    container.order.demand = order.demand;
                    container.regrant(&order.devices, now);
                }
            }
            ReconcileStep::Pause(name) => self.freeze(name, true),
            ReconcileStep::Resume(name) => self.freeze(name, false),
            ReconcileStep::Stop(name) => self.stop(name, now),
            ReconcileStep::Kill(name) => {
                for container in self.named(name) {
                    container.kill(now);
                }
            }
            ReconcileStep::Forget(name) => self.containers.retain(|c| c.order.name != name),
        }
    }

    /// Everything it knows of: one sight a container on the list or on disk.
    pub fn sights(&self) -> Vec<ContainerStatus> {
        self.containers
            .iter()
            .map(|c| ContainerStatus {
                name: c.order.name,
                state: c.sight(),
                usage: None,
                devices: c.held.clone(),
                ran: None,
            })
            .collect()
    }

    /// The complete report of this moment. Containers that are on the ledger and not begun yet are
    /// reported as about to be made, so that absence means gone.
    pub fn report(&self, now: SimulatedMoment) -> NodeReport {
        let mut containers = self.sights();
        for (sight, container) in containers.iter_mut().zip(&self.containers) {
            if let Life::Running { since, .. } = &container.life {
                sight.ran = Some(now.steady.millis_since(since.steady));
            }
        }
        for order in self.ledger.iter().flat_map(|a| &a.containers) {
            if !containers.iter().any(|c| c.name == order.name) {
                containers.push(ContainerStatus {
                    name: order.name,
                    state: ReportedState::Preparing {
                        step: "waiting".into(),
                        fetching: false,
                    },
                    usage: None,
                    devices: Vec::new(),
                    ran: None,
                });
            }
        }
        NodeReport {
            node: self.id,
            name: self.name.clone(),
            boot: self.boot,
            generation: self.ledger.as_ref().map_or(0, |a| a.generation),
            state: self.ledger.as_ref().and_then(|a| a.state),
            at: now.wall,
            capacity: self.capacity.clone(),
            host_environment: true,
            containers,
            problems: self.problems.clone(),
            device_uses: Vec::new(),
            partition_failures: Vec::new(),
            egress: Vec::new(),
            start_up_failures: Vec::new(),
            stuck_mounts: Vec::new(),
            incidents: Vec::new(),
        }
    }

    /// The power goes and comes back: nothing lives, records and ledger are still there.
    pub fn reboot(&mut self, boot: BootId) {
        self.boot = boot;
        for container in &mut self.containers {
            if container.lives() {
                container.life = Life::Over(ReportedState::Lost {
                    reason: reasons::node_rebooted(),
                });
                container.supervised = false;
            }
        }
    }

    fn named(&mut self, name: ContainerName) -> impl Iterator<Item = &mut Container> {
        self.containers
            .iter_mut()
            .filter(move |c| c.order.name == name)
    }

    fn freeze(&mut self, name: ContainerName, freeze: bool) {
        for container in self.named(name) {
            if let Life::Running { paused, .. } = &mut container.life {
                *paused = freeze;
            }
        }
    }

    fn stop(&mut self, name: ContainerName, now: SimulatedMoment) {
        let mut known = false;
        let mut orders = self.ledger.iter().flat_map(|a| &a.containers);
        let order = orders.find(|o| o.name == name);
        let grace = order.map_or(STOP_GRACE_SECONDS, ContainerOrder::stop_grace);
        for container in self.named(name) {
            known = true;
            container.stop(grace, now);
        }
        let order = self
            .ledger
            .iter()
            .flat_map(|a| &a.containers)
            .find(|o| o.name == name);
        if !known && let Some(order) = order {
            let record = Container {
                held: Vec::new(),
                giving_since: None,
                order: order.clone(),
                plan: ContainerPlan::default(),
                life: Life::Over(ReportedState::Refused {
                    reason: never_started(),
                }),
                supervised: false,
            };
            self.containers.push(record);
        }
    }
}

fn never_started() -> Reason {
    reasons::session_stopped_before_start()
}

impl Container {
    /// Takes a new grant: what is more at once, what is less when it is freed.
    fn regrant(&mut self, devices: &[DeviceShare], now: SimulatedMoment) {
        if self.order.devices != devices {
            self.order.devices = devices.to_vec();
            self.giving_since = Some(now.steady);
            self.held = either(&self.held, devices);
        }
        self.settle(now);
    }

    fn settle(&mut self, now: SimulatedMoment) {
        if let Some(since) = self.giving_since
            && now.steady >= since.plus_seconds(self.plan.give_back)
        {
            self.held.clone_from(&self.order.devices);
            self.giving_since = None;
        }
    }

    fn advance(&mut self, now: SimulatedMoment) {
        self.settle(now);
        match self.life.clone() {
            Life::Preparing { since }
                if now.steady >= since.steady.plus_seconds(self.plan.prepare) =>
            {
                self.life = if self.plan.refuse {
                    Life::Over(ReportedState::Refused {
                        reason: reasons::container_cannot_start(),
                    })
                } else {
                    Life::Running {
                        since: now,
                        paused: false,
                    }
                };
            }
            Life::Running {
                since,
                paused: false,
            } => {
                if let Some(run) = self.plan.run
                    && now.steady >= since.steady.plus_seconds(run)
                {
                    self.gone(Some(since), self.plan.exit_code, now);
                }
            }
            Life::Stopping {
                started,
                gone_at,
                exit_code,
                ..
            } if now.steady >= gone_at => self.gone(started, exit_code, now),
            Life::Preparing { .. }
            | Life::Running { .. }
            | Life::Stopping { .. }
            | Life::Over(_) => {}
        }
    }

    fn sight(&self) -> ReportedState {
        match &self.life {
            Life::Preparing { .. } => ReportedState::Preparing {
                step: "starting".into(),
                fetching: false,
            },
            Life::Running { since, paused } => ReportedState::Running {
                since: since.wall,
                paused: *paused,
            },
            Life::Stopping { since, .. } => ReportedState::Stopping { since: since.wall },
            Life::Over(state) => state.clone(),
        }
    }

    fn stop(&mut self, grace: u64, now: SimulatedMoment) {
        let (after, exit_code) = if self.plan.stop <= grace {
            (self.plan.stop, 143)
        } else {
            (grace + self.plan.kill, 137)
        };
        self.end_within(after, exit_code, now);
    }

    fn kill(&mut self, now: SimulatedMoment) {
        self.end_within(self.plan.kill, 137, now);
    }

    /// Makes the end come, at the latest in `seconds`.
    fn end_within(&mut self, seconds: u64, exit_code: i32, now: SimulatedMoment) {
        let at = now.steady.plus_seconds(seconds);
        let started = match &mut self.life {
            Life::Over(_) => return,
            Life::Stopping {
                gone_at,
                exit_code: code,
                ..
            } => {
                if at < *gone_at {
                    *gone_at = at;
                    *code = exit_code;
                }
                return;
            }
            Life::Preparing { .. } => None,
            Life::Running { since, .. } => Some(*since),
        };
        self.life = Life::Stopping {
            since: now,
            started,
            gone_at: at,
            exit_code,
        };
    }

    /// Its last process is gone. Only a supervisor writes down how it ended.
    fn gone(&mut self, started: Option<SimulatedMoment>, exit_code: i32, now: SimulatedMoment) {
        self.life = Life::Over(match (self.supervised, started) {
            (false, _) => ReportedState::Lost {
                reason: reasons::container_supervisor_lost(),
            },
            (true, None) => ReportedState::Refused {
                reason: never_started(),
            },
            (true, Some(started)) => ReportedState::Ended(ExitRecord {
                exit_code,
                started_at: Some(started.wall),
                ended_at: now.wall,
                out_of_memory: false,
                peak_memory: None,
            }),
        });
    }
}
