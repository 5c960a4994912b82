//! What reservations keep of machines: which devices, who may have them, and who must leave when one begins. Whether
//! it is booked, warned or active is `rules::reservation`'s to say.

use std::cmp::Reverse;

use super::choice::takes_new;
use super::node_state::NodeState;
use crate::names::{NodeId, SessionId};
use crate::reservation::{ReservationAmount, ReservationState, ReservationTime, ReservedPart};
use crate::session::{DesiredState, Session, SessionKind};
use crate::units::{Bytes, CpuShare, GpuShare, Timestamp};
use crate::world::{ClusterSnapshot, NodeRecord};

/// What one reservation keeps of one machine, and how much of it its members have.
#[derive(Clone)]
struct KeptPart<'w> {
    time: &'w ReservationTime,
    part: &'w ReservedPart,
    spot: usize,
    cpu: CpuShare,
    memory: Bytes,
}

impl KeptPart<'_> {
    /// Processor time and memory that are still kept.
    fn rest(&self) -> (CpuShare, Bytes) {
        (
            self.part.cpu.saturating_sub(self.cpu),
            self.part.memory.saturating_sub(self.memory),
        )
    }
}

/// Everything that is kept while places are given away; empty without a reservation that has chosen.
#[derive(Clone)]
pub(super) struct ReservedRoom<'w> {
    parts: Vec<KeptPart<'w>>,
    now: Timestamp,
}

impl<'w> ReservedRoom<'w> {
    /// Costs one visit a reservation and a machine.
    pub(super) fn new(world: &'w ClusterSnapshot, now: Timestamp) -> Self {
        let times = world.reservations.iter().filter(|one| one.state.counts());
        let parts = times.flat_map(|time| time.parts.iter().map(move |part| (time, part)));
        let parts = parts.filter_map(|(time, part)| {
            let spot = world.nodes.iter().position(|node| node.id == part.node)?;
            Some(KeptPart {
                time,
                part,
                spot,
                cpu: CpuShare::ZERO,
                memory: Bytes::ZERO,
            })
        });
        Self {
            parts: parts.collect(),
            now,
        }
    }

    /// Keeps everything from everybody.
    pub(super) fn shut(&self, spots: &mut [NodeState<'w>]) {
        for kept in &self.parts {
            let spot = &mut spots[kept.spot];
            mark(spot, kept.part);
            self.count(spot);
        }
    }

    /// Machines on which something is kept that this session may have, each once.
    pub(super) fn spots(&self, session: &Session) -> Vec<usize> {
        let mut spots: Vec<usize> = self
            .parts
            .iter()
            .filter(|kept| kept.time.lets_in(session, self.now))
            .map(|kept| kept.spot)
            .collect();
        spots.sort_unstable();
        spots.dedup();
        spots
    }

    /// A machine as that session sees it: what is kept for it stands open, also where an earlier session waits for
    /// such a device, and all else is shut.
    pub(super) fn opened(&self, spot: &NodeState<'w>, session: &Session) -> NodeState<'w> {
        let mut own = spot.clone();
        own.kept_back = (CpuShare::ZERO, Bytes::ZERO);
        own.shut_parts.clear();
        let node = spot.node.id;
        let here = || self.parts.iter().filter(move |kept| kept.part.node == node);
        let mut is_let_in = vec![false; own.reserved.len()];
        for kept in here().filter(|kept| kept.time.lets_in(session, self.now)) {
            for (at, device) in spot.node.capacity.devices.iter().enumerate() {
                is_let_in[at] |= kept.part.devices.contains(&device.uuid);
            }
        }
        // Another one keeps it too, a day later: then both must let it in.
        for kept in here() {
            if kept.time.lets_in(session, self.now) {
                continue;
            }
            let (cpu, memory) = kept.rest();
            own.kept_back = (own.kept_back.0 + cpu, own.kept_back.1 + memory);
            for (at, device) in spot.node.capacity.devices.iter().enumerate() {
                is_let_in[at] &= !kept.part.devices.contains(&device.uuid);
            }
        }
        for (at, is_let_in) in is_let_in.into_iter().enumerate() {
            own.shut[at] = !is_let_in;
            own.reserved[at] = !is_let_in;
        }
        own
    }

    /// When the last of those ends that keep anything of a machine; None where none does.
    pub(super) fn until(&self, node: NodeId) -> Option<Timestamp> {
        let here = self.parts.iter().filter(|kept| kept.part.node == node);
        here.map(|kept| kept.time.to).max()
    }

    /// Notes that a session has a place there.
    pub(super) fn hold(&mut self, spot: &mut NodeState<'w>, session: &Session) {
        self.note(spot, session, |kept, demand| {
            kept.cpu = kept.cpu + demand.0;
            kept.memory = kept.memory + demand.1;
        });
    }

    /// Notes that it has it no more.
    pub(super) fn let_go(&mut self, spot: &mut NodeState<'w>, session: &Session) {
        self.note(spot, session, |kept, demand| {
            kept.cpu = kept.cpu.saturating_sub(demand.0);
            kept.memory = kept.memory.saturating_sub(demand.1);
        });
    }

    fn note(
        &mut self,
        spot: &mut NodeState<'w>,
        session: &Session,
        change: impl Fn(&mut KeptPart<'w>, (CpuShare, Bytes)),
    ) {
        if self.parts.is_empty() {
            return;
        }
        let demand = (session.spec.demand.cpu, session.spec.demand.memory);
        let node = spot.node.id;
        let mut own = self.parts.iter_mut();
        let own = own.find(|kept| kept.part.node == node && kept.time.holder.admits(session));
        if let Some(kept) = own {
            change(kept, demand);
            self.count(spot);
        }
    }

    /// Sums what is still kept of a machine.
    fn count(&self, spot: &mut NodeState<'w>) {
        let mut sum = (CpuShare::ZERO, Bytes::ZERO);
        for kept in &self.parts {
            if kept.part.node == spot.node.id {
                let (cpu, memory) = kept.rest();
                sum = (sum.0 + cpu, sum.1 + memory);
            }
        }
        spot.kept_back = sum;
    }
}

fn mark(spot: &mut NodeState<'_>, part: &ReservedPart) {
    for (at, device) in spot.node.capacity.devices.iter().enumerate() {
        if part.devices.contains(&device.uuid) {
            spot.reserved[at] = true;
        }
    }
}

/// One session that stands where a reservation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Displaced {
    pub session: SessionId,
    pub seen: u64,
    /// It waits in the queue again: what runs by itself can run once more.
    pub requeue: bool,
}

/// Sessions of others on the devices of a reservation that are wanted still, in the order of the world.
fn displaced(world: &ClusterSnapshot, time: &ReservationTime) -> Vec<Displaced> {
    let others = world.sessions.iter();
    let others = others.filter(|session| {
        let other = session.desired == DesiredState::Run && !time.holder.admits(session);
        other && is_on(world, session, time)
    });
    others
        .map(|session| Displaced {
            session: session.id,
            seen: session.generation,
            requeue: session.spec.kind == SessionKind::Batch,
        })
        .collect()
}

/// Whether a member of a reservation has a session on what it keeps. Costs one visit a session.
fn is_in_use(world: &ClusterSnapshot, time: &ReservationTime) -> bool {
    let mut own = world.sessions.iter();
    own.any(|session| {
        time.holder.admits(session)
            && (is_on(world, session, time)
                || time.amount.gpu == GpuShare::ZERO
                    && time.parts.iter().any(|part| session.is_on(part.node)))
    })
}

/// Whether a session holds a device that the reservation keeps.
fn is_on(world: &ClusterSnapshot, session: &Session, time: &ReservationTime) -> bool {
    time.parts.iter().any(|part| {
        let Some(node) = world.node(part.node) else {
            return false;
        };
        let held = session.held_on(part.node);
        let mut devices = node.capacity.devices.iter();
        devices.any(|device| {
            part.devices.contains(&device.uuid) && held.iter().any(|one| one.index == device.index)
        })
    })
}

/// What a pass changes of one time of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationStep {
    /// As it is from now on.
    pub time: ReservationTime,
    /// The state that it came to in this step; None where it stays.
    pub to: Option<ReservationState>,
    /// Sessions of others that are there: to be told where it came to be warned, to be stopped where it is active.
    pub displaced: Vec<Displaced>,
}

/// Chooses devices, takes each reservation a step forward and names who must be told or stopped; empty where nothing
/// is to be written. Must be written before places are given, in the same commit. Costs a copy of the machines where
/// there is a reservation, and one visit a session for each that has chosen.
pub fn reserve(world: &ClusterSnapshot, now: Timestamp) -> Vec<ReservationStep> {
    if world.reservations.is_empty() {
        return Vec::new();
    }
    let mut world = world.clone();
    let mut steps = Vec::new();
    for at in 0..world.reservations.len() {
        let before = world.reservations[at].clone();
        let mut time = before.clone();
        if time.chooses(now) {
            time.parts = choose_reserved(&world, &time, now).unwrap_or_default();
        }
        let in_use = is_in_use(&world, &time);
        let to = time.advance(in_use, now);
        let told = to == Some(ReservationState::Warned) || time.state == ReservationState::Active;
        let displaced = match told {
            true => displaced(&world, &time),
            false => Vec::new(),
        };
        world.reservations[at].clone_from(&time);
        if time != before || !displaced.is_empty() {
            steps.push(ReservationStep {
                time,
                to,
                displaced,
            });
        }
    }
    steps
}

/// What can be reserved: whole devices that take sessions, and all processor time and memory of the machines that do.
/// Costs one visit a device.
pub fn reservable(nodes: &[NodeRecord]) -> ReservationAmount {
    let mut all = ReservationAmount::default();
    for node in nodes {
        let takes =
            |device: &&crate::resources::Device| !device.uuid.is_empty() && takes_new(node, device);
        let devices = node.capacity.devices.iter().filter(takes).count();
        let shares = u32::try_from(devices)
            .unwrap_or(u32::MAX)
            .saturating_mul(100);
        all.gpu = GpuShare(all.gpu.0.saturating_add(shares));
        all.cpu = CpuShare(all.cpu.0.saturating_add(node.capacity.cpu.0));
        all.memory = Bytes(all.memory.0.saturating_add(node.capacity.memory.0));
    }
    all
}

/// What a reservation is to keep: the devices with the fewest sessions of others, among equals those where the least
/// work would be lost, none that another one keeps at the same time; processor time and memory on the machines of
/// those devices first. None where it cannot have all of it. Costs one visit a session for each device.
fn choose_reserved(
    world: &ClusterSnapshot,
    time: &ReservationTime,
    now: Timestamp,
) -> Option<Vec<ReservedPart>> {
    let meets = |other: &&ReservationTime| {
        let same = other.id == time.id && other.number == time.number;
        !same && other.state.counts() && other.from < time.to && time.from < other.to
    };
    let taken: Vec<&ReservedPart> = world
        .reservations
        .iter()
        .filter(meets)
        .flat_map(|other| &other.parts)
        .collect();
    let mut free = Vec::new();
    for node in &world.nodes {
        for device in &node.capacity.devices {
            let is_taken = taken
                .iter()
                .any(|part| part.node == node.id && part.devices.contains(&device.uuid));
            if is_taken || device.uuid.is_empty() || !takes_new(node, device) {
                continue;
            }
            let (count, lost) = cost(world, time, node, device.index, now);
            free.push(((count, lost, node.id, device.index), node, &device.uuid));
        }
    }
    free.sort_by_key(|(key, _, _)| *key);
    let count = (time.amount.gpu.0 / 100) as usize;
    if free.len() < count {
        return None;
    }
    let mut parts: Vec<ReservedPart> = Vec::new();
    for (_, node, device) in &free[..count] {
        match parts.iter_mut().find(|part| part.node == node.id) {
            Some(part) => part.devices.push((*device).clone()),
            None => parts.push(ReservedPart {
                node: node.id,
                devices: vec![(*device).clone()],
                cpu: CpuShare::ZERO,
                memory: Bytes::ZERO,
            }),
        }
    }
    let (mut cpu, mut memory) = (time.amount.cpu, time.amount.memory);
    let mut order: Vec<&NodeRecord> = world.nodes.iter().collect();
    order.sort_by_key(|node| {
        let own = parts.iter().find(|part| part.node == node.id);
        (Reverse(own.map_or(0, |part| part.devices.len())), node.id)
    });
    for node in order {
        let others = taken.iter().filter(|part| part.node == node.id);
        let (mut room_cpu, mut room_memory) = (node.capacity.cpu, node.capacity.memory);
        for part in others {
            room_cpu = room_cpu.saturating_sub(part.cpu);
            room_memory = room_memory.saturating_sub(part.memory);
        }
        let (own_cpu, own_memory) = (cpu.min(room_cpu), memory.min(room_memory));
        if own_cpu == CpuShare::ZERO && own_memory == Bytes::ZERO {
            continue;
        }
        cpu = cpu.saturating_sub(own_cpu);
        memory = memory.saturating_sub(own_memory);
        match parts.iter_mut().find(|part| part.node == node.id) {
            Some(part) => (part.cpu, part.memory) = (own_cpu, own_memory),
            None => parts.push(ReservedPart {
                node: node.id,
                devices: Vec::new(),
                cpu: own_cpu,
                memory: own_memory,
            }),
        }
    }
    (cpu == CpuShare::ZERO && memory == Bytes::ZERO).then_some(parts)
}

/// Sessions of others on a device, and the milliseconds that they have run.
fn cost(
    world: &ClusterSnapshot,
    time: &ReservationTime,
    node: &NodeRecord,
    device: u32,
    now: Timestamp,
) -> (usize, u64) {
    let others = world.sessions.iter().filter(|session| {
        !time.holder.admits(session)
            && session
                .held_on(node.id)
                .iter()
                .any(|one| one.index == device)
    });
    others.fold((0, 0), |(count, lost), session| {
        let ran = session.started_at().map_or(0, |at| now.millis_since(at));
        (count + 1, lost + ran)
    })
}
