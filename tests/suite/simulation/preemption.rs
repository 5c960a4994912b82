//! Preemption in the simulation, by the rules alone: users launch sessions of several priorities, some of which yield;
//! those that are preempted end within their grace and wait again. Planted faults show that a broken promise is seen: a
//! session that preempts back, one that is stopped for nothing, and one that never said that it yields.

use std::collections::{BTreeMap, BTreeSet};

use rules::fair_share::QueueOrder;
use rules::names::{BootId, NodeId, ResourceGroupId, SessionId, SessionName, TenantName, UserId};
use rules::placement::{Decision, MAX_PREEMPTIONS, Preemption, SETTLED_SECONDS, decide, preempt};
use rules::policy::PreemptionMode;
use rules::resource_group::{GroupPlan, ResourceGroup};
use rules::resources::{Capacity, Demand, Device};
use rules::session::{
    Outcome, Session, SessionEnvironment, SessionKind, SessionSpec, SessionState,
};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rules::workload::precedence::{MAX_PRIORITY, Precedence};
use rules::world::{ClusterSnapshot, NodeRecord};

use super::random::Random;
use super::rule_seeds;

const SEEDS: u64 = 12;
const MINUTES: u64 = 600;
const NODES: u32 = 2;
const GPUS: u32 = 4;
/// Sessions that wait at once; more users than that go away.
const QUEUED: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PreemptionFault {
    /// A session that was preempted is believed to be the most urgent of all: it preempts back.
    Back,
    /// One more is stopped than has to be.
    OneMore,
    /// All sessions are believed to yield.
    Untold,
}

/// One world, and the promise that was broken in it.
struct PreemptionRun {
    random: Random,
    planted: Option<PreemptionFault>,
    world: ClusterSnapshot,
    minute: u64,
    next: u128,
    /// How many minutes a session runs until it ends by itself.
    runs: BTreeMap<SessionId, u64>,
    /// Who was preempted by whom.
    preempted: BTreeSet<(SessionId, SessionId)>,
    launched: usize,
    ended: usize,
    broken: Option<String>,
}

fn node(number: u32) -> NodeRecord {
    NodeRecord {
        id: NodeId(uuid::Uuid::from_u128(u128::from(number))),
        name: format!("node-{number}"),
        boot: BootId(uuid::Uuid::nil()),
        capacity: Capacity {
            cpu: CpuShare(1_600),
            memory: Bytes::gib(64),
            devices: (0..GPUS)
                .map(|index| Device {
                    memory: Bytes::gib(80),
                    uuid: format!("device-{number}-{index}"),
                    ..Device::new(index, "device")
                })
                .collect(),
            others: Vec::new(),
        },
        host_environment: true,
        seen_at: Timestamp::default(),
        generation: 0,
        schedulable: true,
        note: String::new(),
        cordoned: BTreeSet::new(),
        problems: Vec::new(),
    }
}

impl PreemptionRun {
    fn new(seed: u64, planted: Option<PreemptionFault>) -> Self {
        let name = TenantName::parse("default").expect("letters");
        let founding = ResourceGroup {
            preemption: PreemptionMode::Priority,
            ..ResourceGroup::new(ResourceGroupId::DEFAULT, name)
        };
        let mut world = ClusterSnapshot {
            nodes: (0..NODES).map(node).collect(),
            groups: GroupPlan {
                groups: vec![founding],
                ..GroupPlan::default()
            },
            ..ClusterSnapshot::default()
        };
        // The order does not hang on who got a place last: what is asked of a world without some sessions agrees.
        world.policy.order = QueueOrder::Fifo;
        Self {
            random: Random::new(seed),
            planted,
            world,
            minute: 0,
            next: 100,
            runs: BTreeMap::new(),
            preempted: BTreeSet::new(),
            launched: 0,
            ended: 0,
            broken: None,
        }
    }

    fn now(&self) -> Timestamp {
        let minutes = 10_000 + self.minute as i64;
        Timestamp::from_millis(minutes * 60_000)
    }

    fn launch(&mut self) {
        self.next += 1;
        let spec = SessionSpec {
            kind: SessionKind::Batch,
            environment: SessionEnvironment::Host,
            command: vec!["true".into()],
            env: BTreeMap::new(),
            demand: Demand {
                cpu: CpuShare(100 * self.random.between(1, 4) as u32),
                memory: Bytes::gib(self.random.between(1, 12)),
                gpu: GpuShare(*self.random.pick(&[0, 25, 50, 100, 100, 200, 400])),
                ..Demand::default()
            },
            timeout_seconds: None,
            max_runtime_seconds: None,
            start_at: None,
            depends_on: Vec::new(),
            containers: 1,
        };
        let id = SessionId(uuid::Uuid::from_u128(self.next));
        let owner = UserId(uuid::Uuid::from_u128(u128::from(self.random.between(1, 4))));
        let name = SessionName::parse(&format!("s{}", self.next)).expect("letters");
        let mut session = Session::launched(id, name, owner, spec, self.now());
        session.precedence = Precedence {
            priority: *self.random.pick(&[0, 5, 10, 10, 10, 50]),
            yields: self.random.chance(70),
        };
        self.world.sessions.push(session);
        self.runs.insert(id, self.random.between(5, 90));
        self.launched += 1;
    }

    fn breaks(&mut self, promise: String) {
        self.broken.get_or_insert(promise);
    }

    /// Who makes way as the scheduler says, or as it would with the planted fault.
    fn decided(&self, now: Timestamp) -> Vec<Preemption> {
        let mut seen = self.world.clone();
        match self.planted {
            Some(PreemptionFault::Back) => {
                let waiting = seen.sessions.iter_mut().filter(|one| one.is_pending());
                for session in waiting.filter(|one| one.preempted_count > 0) {
                    session.precedence.priority = MAX_PRIORITY;
                }
            }
            Some(PreemptionFault::Untold) => {
                for session in &mut seen.sessions {
                    session.precedence.yields = true;
                }
            }
            Some(PreemptionFault::OneMore) | None => {}
        }
        let mut steps = preempt(&seen, &BTreeSet::new(), now);
        if self.planted == Some(PreemptionFault::OneMore)
            && let Some(first) = steps.first().copied()
        {
            let named = |id: SessionId| steps.iter().any(|step| step.victim == id);
            let priority = self.of(first.by).precedence.priority;
            let mut others = self.world.sessions.iter();
            let other = others.find(|one| {
                let is_below = one.precedence.yields && one.precedence.priority < priority;
                is_below && !named(one.id) && self.may_end(one, now)
            });
            if let Some(other) = other {
                steps.insert(
                    1,
                    Preemption {
                        victim: other.id,
                        seen: other.generation,
                        by: first.by,
                    },
                );
            }
        }
        steps
    }

    fn of(&self, id: SessionId) -> &Session {
        self.world.session(id).expect("a live session")
    }

    fn may_end(&self, session: &Session, now: Timestamp) -> bool {
        let ran = session.started_at().map_or(0, |at| now.seconds_since(at));
        session.state() == SessionState::Running
            && ran >= SETTLED_SECONDS
            && session.preempted_count < MAX_PREEMPTIONS
    }

    /// Whether that session gets a place once these are over, and those that end already.
    fn starts_without(
        &self,
        session: SessionId,
        gone: &BTreeSet<SessionId>,
        now: Timestamp,
    ) -> bool {
        let mut left = self.world.clone();
        left.sessions
            .retain(|one| !gone.contains(&one.id) && one.state() != SessionState::Stopping);
        decide(&left, now).iter().any(
            |decision| matches!(decision, Decision::Place { session: one, .. } if *one == session),
        )
    }

    /// Whether the second one made way for the first, or for one that did, and so on.
    fn made_way(&self, first: SessionId, second: SessionId) -> bool {
        let mut reached = BTreeSet::from([second]);
        loop {
            let known = reached.len();
            let edges = self.preempted.iter();
            let next: Vec<SessionId> = edges
                .filter(|(victim, _)| reached.contains(victim))
                .map(|(_, by)| *by)
                .collect();
            reached.extend(next);
            if reached.contains(&first) {
                return true;
            }
            if reached.len() == known {
                return false;
            }
        }
    }

    /// Holds what was decided to the promises.
    fn judge(&mut self, steps: &[Preemption], now: Timestamp) {
        let mut before: BTreeSet<SessionId> = BTreeSet::new();
        let mut waiting: Vec<SessionId> = Vec::new();
        for step in steps {
            if !waiting.contains(&step.by) {
                waiting.push(step.by);
            }
        }
        for by in waiting {
            let own: BTreeSet<SessionId> = steps
                .iter()
                .filter(|step| step.by == by)
                .map(|step| step.victim)
                .collect();
            for victim in &own {
                let (one, other) = (self.of(*victim), self.of(by));
                let name = one.name.clone();
                let is_told = one.precedence.yields && one.spec.kind == SessionKind::Batch;
                let is_below = one.precedence.priority < other.precedence.priority;
                let may_end = self.may_end(one, now);
                if self.made_way(*victim, by) {
                    self.breaks(format!("{name} makes way for one that made way for it"));
                }
                if !is_told {
                    self.breaks(format!("{name} makes way and never said so"));
                }
                if !is_below || !may_end {
                    self.breaks(format!(
                        "{name} makes way too early, too often or for no higher one"
                    ));
                }
                let mut without: BTreeSet<SessionId> = before.union(&own).copied().collect();
                without.remove(victim);
                if self.starts_without(by, &without, now) {
                    self.breaks(format!("{name} makes way for nothing"));
                }
            }
            before.extend(&own);
            if !self.starts_without(by, &before, now) {
                self.breaks(format!("sessions make way for {by}, and it does not start"));
            }
            self.preempted
                .extend(own.iter().map(|victim| (*victim, by)));
        }
    }

    /// Ends those that are stopped, within two minutes; each waits again with the time that it had waited.
    fn end_stopped(&mut self, now: Timestamp) {
        let mut told = Vec::new();
        for session in &mut self.world.sessions {
            let Some(since) = session.stopping_at() else {
                continue;
            };
            if now.seconds_since(since) < 120 && self.random.chance(50) {
                continue;
            }
            let (incarnation, waited) = (session.incarnation, session.waited_millis());
            session.end(Outcome::Stopped, None, now);
            let waits = now.millis_since(session.queued_at);
            let is_kept = session.is_pending()
                && session.incarnation == incarnation + 1
                && Some(waits) == waited;
            if !is_kept {
                told.push(format!("{} is lost", session.name));
            }
        }
        for promise in told {
            self.breaks(promise);
        }
    }

    /// One minute: what is over leaves, users launch, the server places and preempts.
    fn tick(&mut self) {
        self.minute += 1;
        let now = self.now();
        for node in &mut self.world.nodes {
            node.seen_at = now;
        }
        let (runs, before) = (&self.runs, self.world.sessions.len());
        self.world.sessions.retain(|session| {
            let ran = session.started_at().map(|at| now.seconds_since(at) / 60);
            session.state() != SessionState::Running
                || ran.is_none_or(|ran| ran < runs[&session.id])
        });
        self.ended += before - self.world.sessions.len();
        self.end_stopped(now);
        let waits = |session: &&Session| session.is_pending();
        while self.world.sessions.iter().filter(waits).count() < QUEUED && self.random.chance(25) {
            self.launch();
        }
        for decision in decide(&self.world, now) {
            if let Decision::Place {
                session,
                node,
                devices,
                because,
                ..
            } = decision
                && let Some(session) = self.world.sessions.iter_mut().find(|s| s.id == session)
            {
                session.place(node, devices, because, now);
                session.run_since(now);
            }
        }
        let steps = self.decided(now);
        self.judge(&steps, now);
        for step in steps {
            let mut all = self.world.sessions.iter_mut();
            if let Some(victim) = all.find(|one| one.id == step.victim) {
                victim.preempt(now);
            }
        }
        if self.world.sessions.len() + self.ended != self.launched {
            self.breaks("a session is lost".to_owned());
        }
    }
}

fn play(seed: u64, planted: Option<PreemptionFault>) -> PreemptionRun {
    let mut play = PreemptionRun::new(seed, planted);
    while play.minute < MINUTES && play.broken.is_none() {
        play.tick();
    }
    play
}

/// Promise (Queue and scheduler): A session is stopped for another only where its launch said that it yields, where the
/// other has a higher priority, and where the other cannot start otherwise; it is queued again and never lost.
#[test]
fn who_is_preempted_said_so_is_needed_and_waits_again() {
    let (mut preempted, mut ended) = (0, 0);
    for seed in 0..rule_seeds(SEEDS) {
        let play = play(seed, None);
        assert_eq!(play.broken, None, "seed {seed}, minute {}", play.minute);
        preempted += play.preempted.len();
        ended += play.ended;
    }
    println!("{preempted} preempted, {ended} ended by themselves");
    assert!(preempted > 20 && ended > 200, "{preempted}, {ended}");
}

#[test]
fn each_planted_fault_of_preemption_is_found() {
    for planted in [
        PreemptionFault::Back,
        PreemptionFault::OneMore,
        PreemptionFault::Untold,
    ] {
        let found = (0..SEEDS).find_map(|seed| {
            let play = play(seed, Some(planted));
            play.broken.map(|promise| (seed, promise))
        });
        let (seed, promise) = found.unwrap_or_else(|| panic!("no seed shows {planted:?}"));
        println!("{planted:?} found by seed {seed}: {promise}");
    }
}
