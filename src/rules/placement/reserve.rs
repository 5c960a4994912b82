//! Which devices reservations get, before places are given: it chooses them, again where one can no longer be had, and
//! names who must leave. Whether a reservation is booked, warned or active is `rules::reservation`'s to say.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::choice::takes_new;
use super::feasibility::closed;
use super::reserved::{is_credited, is_on};
use crate::names::{NodeId, ResourceGroupId, SessionId};
use crate::reservation::{
    FIT_SECONDS, ReservationAmount, ReservationHolder, ReservationState, ReservationTime,
    ReservedPart,
};
use crate::resources::Device;
use crate::session::{DesiredState, Session, SessionKind};
use crate::units::{Bytes, CpuShare, GpuShare, Timestamp};
use crate::world::{ClusterSnapshot, NodeRecord};

/// One session that stands where a reservation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Displaced {
    pub session: SessionId,
    pub seen: u64,
    /// It waits in the queue again: what runs by itself can run once more.
    pub requeue: bool,
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
/// is to be written. Must be written before places are given, in the same commit. Costs one comparison for each
/// reservation that is not due within a day, and some visits of all sessions for each that is.
pub fn reserve(world: &ClusterSnapshot, now: Timestamp) -> Vec<ReservationStep> {
    let is_near = |time: &&ReservationTime| {
        !time.parts.is_empty() || now.plus_seconds(FIT_SECONDS) >= time.from
    };
    let mut times: Vec<ReservationTime> =
        world.reservations.iter().filter(is_near).cloned().collect();
    let mut steps = Vec::new();
    for at in 0..times.len() {
        let before = times[at].clone();
        let mut time = before.clone();
        if time.chooses(now) {
            choose_devices(world, &times, &mut time, now);
            choose_room(world, &times, &mut time, now);
        }
        let in_use = time.state == ReservationState::Active && is_in_use(world, &time, now);
        let to = time.advance(in_use, now);
        let displaced = match time.state {
            ReservationState::Warned if to.is_some() => {
                let crowd = crowd(world, &times, &time, |_| true);
                time.told = crowd.iter().copied().collect();
                displaced(world, &time, &crowd)
            }
            ReservationState::Active => {
                // Who has a time limit could have come after the warning.
                let knows = |session: &Session| {
                    session.spec.limit().is_some() || time.told.contains(&session.id)
                };
                let crowd = crowd(world, &times, &time, knows);
                displaced(world, &time, &crowd)
            }
            _ => Vec::new(),
        };
        times[at].clone_from(&time);
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
    for node in nodes.iter().filter(|node| node.schedulable) {
        let devices = node.capacity.devices.iter();
        let devices = devices.filter(|device| is_reservable(node, device)).count();
        let shares = u32::try_from(devices)
            .unwrap_or(u32::MAX)
            .saturating_mul(100);
        all.gpu = GpuShare(all.gpu.0.saturating_add(shares));
        all.cpu = CpuShare(all.cpu.0.saturating_add(node.capacity.cpu.0));
        all.memory = Bytes(all.memory.0.saturating_add(node.capacity.memory.0));
    }
    all
}

/// One device that can be reserved, with the processor time and memory that come with one where least do: its part of its
/// machine. Machines without devices give none: what they have is no device's. Costs one visit a device.
pub fn part_of_device(nodes: &[NodeRecord]) -> ReservationAmount {
    let mut least: Option<(CpuShare, Bytes)> = None;
    for node in nodes.iter().filter(|node| node.schedulable) {
        let devices = &node.capacity.devices;
        if !devices.iter().any(|device| is_reservable(node, device)) {
            continue;
        }
        let count = u32::try_from(devices.len()).unwrap_or(u32::MAX);
        let cpu = CpuShare(node.capacity.cpu.0 / count);
        let memory = Bytes(node.capacity.memory.0 / u64::from(count));
        least = Some(match least {
            Some((least_cpu, least_memory)) => (least_cpu.min(cpu), least_memory.min(memory)),
            None => (cpu, memory),
        });
    }
    let (cpu, memory) = least.unwrap_or_default();
    ReservationAmount {
        gpu: GpuShare(100),
        cpu,
        memory,
    }
}

/// A whole device with a name of its own that takes sessions; none that is cut into partitions.
fn is_reservable(node: &NodeRecord, device: &Device) -> bool {
    !device.uuid.is_empty() && !device.is_partitioned() && takes_new(node, device)
}

/// Whether reservations may have something of a machine: it takes sessions, and is in the founding resource group.
fn is_open(world: &ClusterSnapshot, node: &NodeRecord, now: Timestamp) -> bool {
    world.groups.of_node(node.id) == ResourceGroupId::DEFAULT && closed(node, now).is_none()
}

/// Whether a device that was chosen can be had: its machine takes sessions, and so does it.
fn is_there(world: &ClusterSnapshot, node: NodeId, uuid: &str, now: Timestamp) -> bool {
    world.node(node).is_some_and(|node| {
        let mut devices = node.capacity.devices.iter();
        is_open(world, node, now)
            && devices.any(|device| device.uuid == uuid && is_reservable(node, device))
    })
}

/// Whether a session that runs is over by its own limit when a reservation begins: nobody has to stop it then.
fn ends_in_time(session: &Session, time: &ReservationTime) -> bool {
    let deadline = session.deadline();
    time.state != ReservationState::Active && deadline.is_some_and(|(at, _)| at <= time.from)
}

/// Sessions of others on the devices of a reservation that are wanted still and do not end in time, and those of the
/// crowd, in the order of the world.
fn displaced(
    world: &ClusterSnapshot,
    time: &ReservationTime,
    crowd: &BTreeSet<SessionId>,
) -> Vec<Displaced> {
    let others = world.sessions.iter();
    let others = others.filter(|session| {
        let other = session.desired == DesiredState::Run && !time.holder.admits(session);
        let is_in_the_way = || holds_kept(world, session, time) && !ends_in_time(session, time);
        other && (crowd.contains(&session.id) || is_in_the_way())
    });
    others
        .map(|session| Displaced {
            session: session.id,
            seen: session.generation,
            requeue: session.spec.kind == SessionKind::Batch,
        })
        .collect()
}

/// Sessions of others that leave too little processor time or memory for a reservation, among those that may be asked:
/// first those that have a time limit, then the youngest, until enough is free. Never members of one beside it.
/// Costs one visit a session for each machine of the reservation.
fn crowd(
    world: &ClusterSnapshot,
    times: &[ReservationTime],
    time: &ReservationTime,
    may_ask: impl Fn(&Session) -> bool,
) -> BTreeSet<SessionId> {
    let begins = time.state != ReservationState::Active;
    let beside: Vec<&ReservationTime> = times
        .iter()
        .filter(|other| {
            let same = other.id == time.id && other.number == time.number;
            let meets = other.from < time.to && time.from < other.to;
            // Those that begin later ask for theirs when they begin.
            let counts = begins || other.state == ReservationState::Active;
            !same && meets && counts && other.state.counts() && !other.parts.is_empty()
        })
        .collect();
    let mut crowd = BTreeSet::new();
    for part in &time.parts {
        let Some(node) = world.node(part.node) else {
            continue;
        };
        let (mut cpu, mut memory) = still_kept(world, node, time, part);
        if (cpu, memory) == (0, 0) {
            continue;
        }
        for other in &beside {
            for part in other.parts.iter().filter(|part| part.node == node.id) {
                let (its_cpu, its_memory) = still_kept(world, node, other, part);
                (cpu, memory) = (cpu + its_cpu, memory + its_memory);
            }
        }
        let mut leaving = Vec::new();
        for session in &world.sessions {
            let count = session.live_on(node.id).count() as u64;
            if count == 0 || session.desired != DesiredState::Run {
                continue;
            }
            let demand = session.spec.of_each();
            let own = (u64::from(demand.cpu.0) * count, demand.memory.0 * count);
            let is_other = !time.holder.admits(session);
            let leaves = holds_kept(world, session, time) || ends_in_time(session, time);
            if is_other && leaves {
                continue;
            }
            (cpu, memory) = (cpu + own.0, memory + own.1);
            let mut members = std::iter::once(time).chain(beside.iter().copied());
            if !members.any(|one| one.holder.admits(session)) && may_ask(session) {
                leaving.push((session, own));
            }
        }
        leaving.sort_by_key(|(session, _)| {
            let unbounded = session.spec.limit().is_none();
            let started = session
                .started_at()
                .unwrap_or(Timestamp::from_millis(i64::MAX));
            // Once it lasts, who came for the time before it ends first.
            let ends = session.deadline().filter(|_| !begins).map(|(at, _)| at);
            (unbounded, ends, Reverse(started), Reverse(session.id))
        });
        let capacity = (u64::from(world.cpu_room(node).0), node.capacity.memory.0);
        for (session, own) in leaving {
            if cpu <= capacity.0 && memory <= capacity.1 {
                break;
            }
            (cpu, memory) = (cpu.saturating_sub(own.0), memory.saturating_sub(own.1));
            crowd.insert(session.id);
        }
    }
    crowd
}

/// Processor time and memory of a part that its members do not have yet.
fn still_kept(
    world: &ClusterSnapshot,
    node: &NodeRecord,
    time: &ReservationTime,
    part: &ReservedPart,
) -> (u64, u64) {
    let (mut cpu, mut memory) = (u64::from(part.cpu.0), part.memory.0);
    for session in world.sessions.iter().filter(|one| time.holder.admits(one)) {
        for container in session.live_on(node.id) {
            if is_credited(time, part, node, session, &container.holds()) {
                let demand = session.spec.of_each();
                cpu = cpu.saturating_sub(u64::from(demand.cpu.0));
                memory = memory.saturating_sub(demand.memory.0);
            }
        }
    }
    (cpu, memory)
}

/// Whether a member of a reservation has a session on what it keeps, or waits for room. Costs one visit a session.
fn is_in_use(world: &ClusterSnapshot, time: &ReservationTime, now: Timestamp) -> bool {
    let has_room = time.amount.cpu > CpuShare::ZERO || time.amount.memory > Bytes::ZERO;
    let mut own = world.sessions.iter().filter(|one| time.holder.admits(one));
    own.any(|session| {
        let is_due = session.spec.start_at.is_none_or(|at| at <= now);
        let is_free = session.held_by.is_none() && session.spec.depends_on.is_empty();
        let waits = session.is_pending() && is_free && is_due;
        let is_in = || {
            time.parts
                .iter()
                .any(|part| session.live_on(part.node).count() > 0)
        };
        waits || holds_kept(world, session, time) || (has_room && is_in())
    })
}

/// Whether a session holds a device that the reservation keeps.
fn holds_kept(world: &ClusterSnapshot, session: &Session, time: &ReservationTime) -> bool {
    time.parts.iter().any(|part| {
        let node = world.node(part.node);
        node.is_some_and(|node| is_on(node, part, &session.held_on(part.node)))
    })
}

/// Devices that are free for a reservation, the best first: those with the fewest sessions of others, among equals those
/// where the least work would be lost, then those that another one has at another time; none that another one keeps at
/// the same time. Costs one visit a session and a device.
fn candidates<'w>(
    world: &'w ClusterSnapshot,
    times: &[ReservationTime],
    time: &ReservationTime,
    now: Timestamp,
) -> Vec<(usize, &'w NodeRecord, &'w Device)> {
    let same = |other: &ReservationTime| other.id == time.id && other.number == time.number;
    let meets = |other: &ReservationTime| other.from < time.to && time.from < other.to;
    let mut taken = BTreeSet::new();
    let mut elsewhere = BTreeSet::new();
    for other in times
        .iter()
        .filter(|other| !same(other) && other.state.counts())
    {
        for part in &other.parts {
            let devices = part.devices.iter().map(|uuid| (part.node, uuid.as_str()));
            match meets(other) {
                true => taken.extend(devices),
                false => elsewhere.extend(devices),
            }
        }
    }
    for part in &time.parts {
        taken.extend(part.devices.iter().map(|uuid| (part.node, uuid.as_str())));
    }
    let mut costs: BTreeMap<(NodeId, u32), (usize, u64)> = BTreeMap::new();
    for session in world.sessions.iter().filter(|one| !time.holder.admits(one)) {
        let ran = session.started_at().map_or(0, |at| now.millis_since(at));
        for container in session.live_containers() {
            for share in container.holds().iter() {
                let (count, lost) = costs.entry((container.node, share.index)).or_default();
                *count += 1;
                *lost += ran;
            }
        }
    }
    let mut free = Vec::new();
    for node in world.nodes.iter().filter(|node| is_open(world, node, now)) {
        for device in &node.capacity.devices {
            let key = (node.id, device.uuid.as_str());
            if taken.contains(&key) || !is_reservable(node, device) {
                continue;
            }
            let cost = costs.get(&(node.id, device.index)).copied();
            let (count, lost) = cost.unwrap_or_default();
            let is_alone = !elsewhere.contains(&key);
            free.push(((count, lost, is_alone, node.id, device.index), node, device));
        }
    }
    free.sort_by_key(|(key, _, _)| *key);
    let free = free.into_iter();
    free.map(|(key, node, device)| (key.0, node, device))
        .collect()
}

/// Gives a reservation as many devices as it is to have and there are, and another one for each that can no longer be
/// had. Once it was warned of, only devices without sessions of others are added: nobody there was told.
fn choose_devices(
    world: &ClusterSnapshot,
    times: &[ReservationTime],
    time: &mut ReservationTime,
    now: Timestamp,
) {
    let wanted = (time.amount.gpu.0 / 100) as usize;
    let held = time
        .parts
        .iter()
        .map(|part| part.devices.len())
        .sum::<usize>();
    // Maintenance is of its devices, also while they take no sessions.
    let is_listed = |node: NodeId, uuid: &str| {
        let node = world.node(node);
        node.is_some_and(|node| node.capacity.devices.iter().any(|one| one.uuid == uuid))
    };
    let mut broken: Vec<(NodeId, String)> = Vec::new();
    for part in &time.parts {
        for uuid in &part.devices {
            let stays = match time.holder {
                ReservationHolder::Maintenance => is_listed(part.node, uuid),
                ReservationHolder::User(_) | ReservationHolder::Project(_) => {
                    is_there(world, part.node, uuid, now)
                }
            };
            if !stays {
                broken.push((part.node, uuid.clone()));
            }
        }
    }
    let missing = wanted.saturating_sub(held);
    if missing == 0 && broken.is_empty() {
        return;
    }
    let mut free = candidates(world, times, time, now);
    if time.state != ReservationState::Booked {
        free.retain(|(count, _, _)| *count == 0);
    }
    let replaced = missing + broken.len();
    for (at, (_, node, device)) in free.into_iter().take(replaced).enumerate() {
        if at >= missing
            && let Some((lost_on, lost)) = broken.pop()
            && let Some(part) = time.parts.iter_mut().find(|part| part.node == lost_on)
        {
            part.devices.retain(|uuid| *uuid != lost);
        }
        part_of(time, node.id).devices.push(device.uuid.clone());
    }
    tidy(time);
}

/// Gives a reservation its processor time and memory, as much of it as there is: of each machine of its devices in
/// proportion to them, then the rest where there is room, there first. All of it again where a machine can no longer give
/// its part. Stays as it is once it was warned of.
fn choose_room(
    world: &ClusterSnapshot,
    times: &[ReservationTime],
    time: &mut ReservationTime,
    now: Timestamp,
) {
    let may_give = |node: NodeId| {
        let node = world.node(node);
        node.is_some_and(|node| is_open(world, node, now))
    };
    let mut had = (CpuShare::ZERO, Bytes::ZERO);
    for part in time.parts.iter().filter(|part| may_give(part.node)) {
        had = (had.0 + part.cpu, had.1 + part.memory);
    }
    let (mut cpu, mut memory) = (time.amount.cpu, time.amount.memory);
    let is_whole = had.0 >= cpu && had.1 >= memory;
    if is_whole || time.state != ReservationState::Booked {
        return;
    }
    for part in &mut time.parts {
        (part.cpu, part.memory) = (CpuShare::ZERO, Bytes::ZERO);
    }
    let meets = |other: &&ReservationTime| {
        let same = other.id == time.id && other.number == time.number;
        !same && other.state.counts() && other.from < time.to && time.from < other.to
    };
    let taken: Vec<&ReservedPart> = times
        .iter()
        .filter(meets)
        .flat_map(|other| &other.parts)
        .collect();
    let mut order: Vec<(usize, &NodeRecord)> = Vec::new();
    for node in world.nodes.iter().filter(|node| may_give(node.id)) {
        let own = time.parts.iter().find(|part| part.node == node.id);
        order.push((own.map_or(0, |part| part.devices.len()), node));
    }
    order.sort_by_key(|(devices, node)| (Reverse(*devices), node.id));
    let all: usize = order.iter().map(|(devices, _)| devices).sum();
    // With all of it on one machine, who has a device of each would stop strangers on all its other devices.
    for is_shared_out in [true, false] {
        for (devices, node) in &order {
            let most = match is_shared_out {
                true => comes_with(time.amount, *devices, all),
                false => (cpu, memory),
            };
            let part = part_of(time, node.id);
            let mut room_cpu = node.capacity.cpu.saturating_sub(part.cpu);
            let mut room_memory = node.capacity.memory.saturating_sub(part.memory);
            for other in taken.iter().filter(|other| other.node == node.id) {
                room_cpu = room_cpu.saturating_sub(other.cpu);
                room_memory = room_memory.saturating_sub(other.memory);
            }
            let own = (
                cpu.min(most.0).min(room_cpu),
                memory.min(most.1).min(room_memory),
            );
            cpu = cpu.saturating_sub(own.0);
            memory = memory.saturating_sub(own.1);
            part.cpu = part.cpu + own.0;
            part.memory = part.memory + own.1;
        }
    }
    tidy(time);
}

/// Processor time and memory of an amount that come with so many of all its devices, rounded down.
fn comes_with(amount: ReservationAmount, devices: usize, all: usize) -> (CpuShare, Bytes) {
    let part = |whole: u64| {
        let part = u128::from(whole) * devices as u128 / all.max(1) as u128;
        u64::try_from(part).unwrap_or(u64::MAX)
    };
    let cpu = u32::try_from(part(amount.cpu.0.into())).unwrap_or(u32::MAX);
    (CpuShare(cpu), Bytes(part(amount.memory.0)))
}

/// What is kept of that machine; a part of nothing where it is none yet.
fn part_of(time: &mut ReservationTime, node: NodeId) -> &mut ReservedPart {
    let at = time.parts.iter().position(|part| part.node == node);
    let at = at.unwrap_or_else(|| {
        time.parts.push(ReservedPart {
            node,
            devices: Vec::new(),
            cpu: CpuShare::ZERO,
            memory: Bytes::ZERO,
        });
        time.parts.len() - 1
    });
    &mut time.parts[at]
}

/// Parts of something only, in one order: what is chosen again as before is no change.
fn tidy(time: &mut ReservationTime) {
    time.parts.retain(|part| {
        let room = part.cpu > CpuShare::ZERO || part.memory > Bytes::ZERO;
        room || !part.devices.is_empty()
    });
    time.parts.sort_by_key(|part| part.node);
}
