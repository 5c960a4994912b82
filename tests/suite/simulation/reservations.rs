//! Reservations in the simulation, by the rules alone: users who launch and leave, bookings that are taken or refused,
//! a server that is away for a while, clocks that are set. Planted faults show that a broken promise is seen.

use std::collections::BTreeMap;

use rules::names::{BootId, NodeId, ReservationId, SessionId, SessionName, UserId};
use rules::placement::{Decision, ReservationStep, decide, reserve};
use rules::reservation::{
    BeforeReservation, ReservationAmount, ReservationHolder, ReservationState, ReservationTime,
    WARNING_SECONDS, check,
};
use rules::resources::{Capacity, Demand, Device};
use rules::session::{
    DesiredState, Outcome, Session, SessionEnvironment, SessionKind, SessionSpec,
};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rules::world::{ClusterSnapshot, NodeRecord};

use super::random::Random;
use super::rule_seeds;

const SEEDS: u64 = 40;
const MINUTES: u64 = 600;
const GPUS: u32 = 4;
const NODE: NodeId = NodeId(uuid::Uuid::from_u128(7));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Planted {
    /// Places are given as if nothing was reserved.
    Stranger,
    /// Bookings are not checked.
    Overbooked,
    /// A warning is forgotten.
    Lost,
    /// A reservation is warned again once a clock was set back.
    Doubled,
    /// When owners were warned is forgotten.
    Hasty,
    /// What was cancelled keeps its devices.
    Stuck,
    /// Devices are chosen once, whatever becomes of them.
    Fixed,
}

/// One world on a clock that nobody sets, and the promise that was broken in it.
struct Play {
    random: Random,
    planted: Option<Planted>,
    /// Devices are cordoned and come back.
    is_worn: bool,
    world: ClusterSnapshot,
    /// What the server's clock says beyond the minute.
    offset: i64,
    minute: u64,
    next: u128,
    /// How often each session was told of each reservation.
    warned: BTreeMap<(ReservationId, SessionId), u32>,
    told_at: BTreeMap<(ReservationId, SessionId), Timestamp>,
    /// How often a session made way, and a member had a device.
    stopped: u32,
    members: u32,
    broken: Option<&'static str>,
}

fn node() -> NodeRecord {
    NodeRecord {
        id: NODE,
        name: "node".into(),
        boot: BootId(uuid::Uuid::nil()),
        capacity: Capacity {
            cpu: CpuShare(6_400),
            memory: Bytes::gib(256),
            devices: (0..GPUS)
                .map(|index| Device {
                    memory: Bytes::gib(80),
                    uuid: format!("device-{index}"),
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
        cordoned: Default::default(),
        problems: Vec::new(),
    }
}

fn room() -> ReservationAmount {
    ReservationAmount {
        gpu: GpuShare(GPUS * 100),
        cpu: CpuShare(6_400),
        memory: Bytes::gib(256),
    }
}

impl Play {
    fn new(seed: u64, planted: Option<Planted>) -> Self {
        let world = ClusterSnapshot {
            nodes: vec![node()],
            ..ClusterSnapshot::default()
        };
        Self {
            random: Random::new(seed),
            planted,
            is_worn: false,
            world,
            offset: 0,
            minute: 0,
            next: 100,
            warned: BTreeMap::new(),
            told_at: BTreeMap::new(),
            stopped: 0,
            members: 0,
            broken: None,
        }
    }

    fn worn(mut self) -> Self {
        self.is_worn = true;
        self
    }

    fn now(&self) -> Timestamp {
        let minutes = 10_000 + self.minute as i64 + self.offset;
        Timestamp::from_millis(minutes * 60_000)
    }

    fn id(&mut self) -> uuid::Uuid {
        self.next += 1;
        uuid::Uuid::from_u128(self.next)
    }

    fn user(&mut self) -> UserId {
        UserId(uuid::Uuid::from_u128(u128::from(self.random.between(1, 4))))
    }

    fn launch(&mut self) {
        let (id, owner, now) = (SessionId(self.id()), self.user(), self.now());
        let shares = [25, 50, 100, 100, 200];
        let limit = self
            .random
            .chance(50)
            .then(|| 60 * self.random.between(5, 90));
        let spec = SessionSpec {
            kind: SessionKind::Batch,
            environment: SessionEnvironment::Host,
            command: vec!["true".into()],
            env: BTreeMap::new(),
            demand: Demand {
                cpu: CpuShare(100),
                memory: Bytes::gib(1),
                gpu: GpuShare(*self.random.pick(&shares)),
                ..Demand::default()
            },
            timeout_seconds: None,
            max_runtime_seconds: limit,
            start_at: None,
            depends_on: Vec::new(),
            containers: 1,
        };
        let name = SessionName::parse(&format!("s{}", self.next)).expect("letters");
        let session = Session::launched(id, name, owner, spec, now);
        self.world.sessions.push(session);
    }

    fn book(&mut self) {
        let (now, begin) = (self.now(), self.random.between(5, 120));
        let from = now.plus_seconds(60 * begin);
        let to = from.plus_seconds(60 * self.random.between(20, 90));
        let amount = ReservationAmount {
            gpu: GpuShare(100 * self.random.between(1, 3) as u32),
            cpu: CpuShare(400),
            memory: Bytes::gib(8),
        };
        let booked = check(amount, &[(from, to)], &self.world.reservations, room(), now);
        if booked.is_err() && self.planted != Some(Planted::Overbooked) {
            return;
        }
        let holder = match self.random.chance(20) {
            true => ReservationHolder::Maintenance,
            false => ReservationHolder::User(self.user()),
        };
        let before = *self.random.pick(&BeforeReservation::ALL);
        let id = ReservationId(self.id());
        self.world.reservations.push(ReservationTime {
            id,
            number: 1,
            holder,
            amount,
            from,
            to,
            before,
            state: ReservationState::Booked,
            parts: Vec::new(),
            warned_at: None,
            told: Vec::new(),
            unused_since: None,
        });
    }

    fn cancel(&mut self) {
        let count = self.world.reservations.len() as u64;
        if count == 0 {
            return;
        }
        let at = self.random.between(0, count - 1) as usize;
        if self.planted == Some(Planted::Stuck) {
            // Its row is gone for people, and its devices stay shut.
            let time = self.world.reservations[at].clone();
            self.free_in_one_turn(&time, false);
            return;
        }
        let time = self.world.reservations.remove(at);
        self.free_in_one_turn(&time, true);
    }

    /// Whether a user without a reservation could have the devices of one that was just cancelled.
    fn free_in_one_turn(&mut self, time: &ReservationTime, is_gone: bool) {
        let mut alone = ClusterSnapshot {
            nodes: self.world.nodes.clone(),
            reservations: match is_gone {
                true => Vec::new(),
                false => vec![time.clone()],
            },
            ..ClusterSnapshot::default()
        };
        for node in &mut alone.nodes {
            node.seen_at = self.now();
            node.cordoned.clear();
        }
        if time.parts.is_empty() {
            return;
        }
        let mut guest = Self::new(0, None);
        guest.launch();
        let mut session = guest.world.sessions[0].clone();
        session.owner = UserId(uuid::Uuid::from_u128(99));
        session.spec.demand.gpu = GpuShare(GPUS * 100);
        session.spec.max_runtime_seconds = None;
        alone.sessions.push(session);
        if decide(&alone, self.now()).is_empty() {
            self.break_promise("a cancelled reservation gives its devices back in the next turn");
        }
    }

    fn break_promise(&mut self, promise: &'static str) {
        self.broken.get_or_insert(promise);
    }

    fn end(&mut self, id: SessionId, requeue: bool) {
        let Some(at) = self.world.sessions.iter().position(|s| s.id == id) else {
            return;
        };
        let now = self.now();
        let session = &mut self.world.sessions[at];
        session.end(Outcome::Stopped, None, now);
        if requeue {
            session.begin_again(now);
        } else {
            self.world.sessions.remove(at);
        }
    }

    /// One turn of the server: reservations first, then places.
    fn turn(&mut self) {
        let now = self.now();
        for node in &mut self.world.nodes {
            node.seen_at = now;
        }
        if self.planted == Some(Planted::Hasty) {
            let times = self.world.reservations.iter_mut();
            times.for_each(|time| time.warned_at = None);
        }
        let spare = self.spare();
        for step in reserve(&self.world, now) {
            self.carry_out(step);
        }
        self.look_at_the_worn(&spare);
        let seen = match self.planted {
            Some(Planted::Stranger) => ClusterSnapshot {
                reservations: Vec::new(),
                ..self.world.clone()
            },
            _ => self.world.clone(),
        };
        for decision in decide(&seen, now) {
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
            }
        }
        self.look();
        let over = |time: &ReservationTime| time.state.counts();
        self.world.reservations.retain(over);
    }

    /// Devices that nobody has and nobody keeps.
    fn spare(&self) -> Vec<String> {
        let node = &self.world.nodes[0];
        let is_held = |index: u32| {
            let mut all = self.world.sessions.iter();
            all.any(|session| session.held_on(NODE).iter().any(|one| one.index == index))
        };
        let devices = node.capacity.devices.iter();
        let spare = devices.filter(|device| {
            !node.cordoned.contains(&device.uuid)
                && !is_held(device.index)
                && !self.is_kept(&device.uuid)
        });
        spare.map(|device| device.uuid.clone()).collect()
    }

    fn is_kept(&self, uuid: &str) -> bool {
        let parts = self.world.reservations.iter().flat_map(|time| &time.parts);
        parts.flat_map(|part| &part.devices).any(|one| one == uuid)
    }

    /// `spare`: as it was before the turn.
    fn look_at_the_worn(&mut self, spare: &[String]) {
        let (now, cordoned) = (self.now(), &self.world.nodes[0].cordoned);
        let mut due = self
            .world
            .reservations
            .iter()
            .filter(|time| time.chooses(now))
            // Maintenance stays on its own.
            .filter(|time| time.holder != ReservationHolder::Maintenance);
        let is_worn = due.any(|time| {
            let mut devices = time.parts.iter().flat_map(|part| &part.devices);
            devices.any(|uuid| cordoned.contains(uuid))
        });
        if is_worn && spare.iter().any(|uuid| !self.is_kept(uuid)) {
            self.break_promise("a device that can no longer be had is replaced by one that can");
        }
    }

    fn wear(&mut self) {
        let index = self.random.between(0, u64::from(GPUS) - 1);
        let uuid = format!("device-{index}");
        let cordoned = &mut self.world.nodes[0].cordoned;
        if !cordoned.remove(&uuid) {
            cordoned.insert(uuid);
        }
    }

    fn carry_out(&mut self, mut step: ReservationStep) {
        let id = step.time.id;
        let is_active = step.time.state == ReservationState::Active;
        let mut times = self.world.reservations.iter_mut();
        if let Some(row) = times.find(|row| row.id == id) {
            if self.planted == Some(Planted::Fixed) && !row.parts.is_empty() {
                step.time.parts.clone_from(&row.parts);
            }
            *row = step.time;
        }
        for other in step.displaced {
            if !is_active {
                if self.planted != Some(Planted::Lost) {
                    *self.warned.entry((id, other.session)).or_default() += 1;
                    let now = self.now();
                    self.told_at.insert((id, other.session), now);
                }
                continue;
            }
            self.stopped += 1;
            // Who began after the warning knew, and has a limit.
            let session = self.world.session(other.session);
            let limited = session.is_some_and(|session| session.spec.limit().is_some());
            let told = self.told_at.get(&(id, other.session));
            if told.is_some_and(|at| at.plus_seconds(WARNING_SECONDS) > self.now()) {
                self.break_promise("nobody is stopped sooner than 15 minutes after their warning");
            }
            if !limited && !self.warned.contains_key(&(id, other.session)) {
                self.break_promise("nobody is stopped who was not warned");
            }
            self.end(other.session, other.requeue);
        }
    }

    fn look(&mut self) {
        let mut broken = None;
        for time in &self.world.reservations {
            if time.state != ReservationState::Active {
                continue;
            }
            for session in &self.world.sessions {
                let held = session.held_on(NODE);
                let is_there = self.world.nodes[0].capacity.devices.iter().any(|device| {
                    let mut parts = time.parts.iter();
                    parts.any(|part| part.devices.contains(&device.uuid))
                        && held.iter().any(|share| share.index == device.index)
                });
                if is_there && !time.holder.admits(session) {
                    broken = Some("only members have devices of an active reservation");
                }
                self.members += u32::from(is_there && time.holder.admits(session));
            }
        }
        // Counted by the minute, not by the rule.
        for minute in 0..300 {
            let at = self.now().plus_seconds(60 * minute);
            let times = self
                .world
                .reservations
                .iter()
                .filter(|time| time.state.counts());
            let there = times.filter(|time| time.from <= at && at < time.to);
            let sum: u32 = there.map(|time| time.amount.gpu.0).sum();
            if sum > GPUS * 100 {
                broken = Some("never is more booked than there is");
            }
        }
        if self.warned.values().any(|count| *count > 1) {
            broken = Some("nobody is warned twice of one reservation");
        }
        if let Some(promise) = broken {
            self.break_promise(promise);
        }
    }

    fn set_clock(&mut self) {
        self.offset += self.random.between(0, 60) as i64 - 40;
        if self.planted == Some(Planted::Doubled) {
            for time in &mut self.world.reservations {
                if time.state == ReservationState::Warned {
                    time.state = ReservationState::Booked;
                }
            }
        }
    }

    fn play(mut self) -> Self {
        while self.minute < MINUTES && self.broken.is_none() {
            self.minute += 1;
            if self.random.chance(30) {
                self.launch();
            }
            if self.random.chance(10) {
                self.book();
            }
            if self.random.chance(2) {
                self.cancel();
            }
            if self.random.chance(2) {
                self.set_clock();
            }
            if self.is_worn && self.random.chance(4) {
                self.wear();
            }
            if self.random.chance(2) {
                // The server is away, and everything else goes on.
                self.minute += self.random.between(1, 40);
            }
            let placed = self.world.sessions.iter();
            let placed = placed.filter(|s| !s.is_pending() && s.desired == DesiredState::Run);
            let ids: Vec<SessionId> = placed.map(|session| session.id).collect();
            for id in ids {
                if self.random.chance(3) {
                    self.end(id, false);
                }
            }
            self.turn();
        }
        self
    }
}

/// Promise (Queue and scheduler): A reserved device goes to no other session, never is more booked than there is, and each owner
/// in the way is warned once, 15 minutes before, whatever becomes of server and clock (simulated). What is cancelled is
/// given away in the next pass. Members pass the queue with no more than is reserved.
#[test]
fn reserved_devices_are_their_members_alone() {
    let (mut stopped, mut members, mut warned) = (0, 0, 0);
    for seed in 0..rule_seeds(SEEDS) {
        let end = Play::new(seed, None).play();
        assert_eq!(end.broken, None, "seed {seed}, minute {}", end.minute);
        stopped += end.stopped;
        members += end.members;
        warned += end.warned.len();
    }
    assert!(stopped > 0 && members > 0 && warned > 0, "nothing happened");
}

/// Proves too: `reserved_devices_are_their_members_alone`
#[test]
fn reserved_devices_that_are_gone_are_replaced() {
    let mut members = 0;
    for seed in 0..rule_seeds(SEEDS) {
        let end = Play::new(seed, None).worn().play();
        assert_eq!(end.broken, None, "seed {seed}, minute {}", end.minute);
        members += end.members;
    }
    assert!(members > 0, "nothing happened");
    let found = (0..SEEDS).any(|seed| {
        let end = Play::new(seed, Some(Planted::Fixed)).worn().play();
        end.broken
            .is_some_and(|broken| broken.contains("is replaced"))
    });
    assert!(found, "nobody noticed a device that was chosen once");
}

#[test]
fn every_fault_of_reservations_is_found() {
    for (planted, promise) in [
        (Planted::Stranger, "only members"),
        (Planted::Overbooked, "never is more booked"),
        (Planted::Lost, "not warned"),
        (Planted::Doubled, "warned twice"),
        (Planted::Hasty, "sooner than 15 minutes"),
        (Planted::Stuck, "gives its devices back"),
    ] {
        let found = (0..SEEDS).any(|seed| {
            let end = Play::new(seed, Some(planted)).play();
            end.broken.is_some_and(|broken| broken.contains(promise))
        });
        assert!(found, "nobody noticed {planted:?}");
    }
}
