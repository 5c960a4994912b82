//! What is kept for those who wait in front, so that later ones may pass them without taking
//! anything they could get. Of a machine on which an earlier session could ever be, one that passes gets no
//! device that they could have, and only so much processor time and memory that all of them who could be
//! there together would still have theirs.
//!
//! Run-time limits are not looked at: a session may end long before its limit, and one that had passed
//! because of that limit would then stand in the way. Where an administrator takes that into account, `backfill` lets
//! more of them pass.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::feasibility::{could, could_use, slice_memory};
use super::node_state::{CoAllocation, NodeState, NodeTotals};
use crate::devices::WHOLE;
use crate::names::UserId;
use crate::resources::{Demand, DeviceShare};
use crate::session::{Session, SessionEnvironment};
use crate::units::{Bytes, CpuShare, GpuShare};

/// Different sizes that may wait in front while a session behind them is still looked at. More: a pass over a
/// queue in which every request differs takes longer. Fewer: such a queue lets fewer pass.
pub(super) const MAX_SIZES: usize = 128;

/// Sessions of one size that wait in front.
pub(super) struct WaitingGroup<'w> {
    pub(super) demand: Demand,
    pub(super) host: bool,
    pub(super) count: u32,
    /// The one of them that is nearest to its turn.
    pub(super) first: &'w Session,
}

impl WaitingGroup<'_> {
    /// Whether one of them could be on the machine if it were empty, in so much of its processor time and memory.
    fn could_be_in(&self, spot: &NodeState<'_>, room: (CpuShare, Bytes)) -> bool {
        self.demand.cpu <= room.0
            && self.demand.memory <= room.1
            && could(spot.node, &self.demand, self.host)
    }

    /// What all of them want.
    fn together(&self) -> CoAllocation {
        let count = u64::from(self.count);
        CoAllocation {
            // What part of a device's time a partition has is known only once it is given: none is the
            // safe side.
            share: u64::from(self.demand.gpu.0) * count,
            cpu: u64::from(self.demand.cpu.0) * count,
            memory: self.demand.memory.0.saturating_mul(count),
        }
    }
}

/// Everybody in front who waits for room; empty as long as everybody found a place.
#[derive(Default)]
pub(super) struct Reservations<'w> {
    /// In the order of the queue.
    pub(super) sizes: Vec<WaitingGroup<'w>>,
    known: BTreeMap<(Demand, bool), usize>,
    /// Hundredths of devices that each person waits for.
    pub(super) owed: BTreeMap<UserId, u32>,
    /// Changes whenever more could be asked of some machine by those who want devices.
    pub(super) version: u32,
}

impl<'w> Reservations<'w> {
    pub(super) fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// An earlier session that wants no more in any respect has found no place: then this one finds none. Costs
    /// one comparison a size.
    pub(super) fn is_vain(&self, demand: &Demand, host: bool) -> bool {
        self.known.contains_key(&(*demand, host))
            || self.sizes.iter().any(|size| {
                let its = &size.demand;
                (its.gpu, its.gpu_memory, its.mig) == (demand.gpu, demand.gpu_memory, demand.mig)
                    && its.cpu <= demand.cpu
                    && its.memory <= demand.memory
                    && (host || !size.host)
            })
    }

    /// Notes one more who waits, and for how much of devices. True where none of that size did.
    pub(super) fn add(&mut self, session: &'w Session, asked: GpuShare) -> bool {
        let demand = session.spec.demand;
        let host = session.spec.environment == SessionEnvironment::Host;
        *self.owed.entry(session.owner).or_default() += asked.0;
        let new = !self.known.contains_key(&(demand, host));
        let at = *self.known.entry((demand, host)).or_insert_with(|| {
            self.sizes.push(WaitingGroup {
                demand,
                host,
                count: 0,
                first: session,
            });
            self.sizes.len() - 1
        });
        self.sizes[at].count += 1;
        if demand.wants_device() {
            self.version += 1;
        }
        new
    }

    /// Which of the sizes that wait a session has; None where none of that size does.
    pub(super) fn size_of(&self, demand: &Demand, host: bool) -> Option<usize> {
        self.known.get(&(*demand, host)).copied()
    }

    /// As `add` for one more of a size that waits.
    pub(super) fn add_again(&mut self, owner: UserId, size: usize, asked: GpuShare) {
        *self.owed.entry(owner).or_default() += asked.0;
        self.sizes[size].count += 1;
        if self.sizes[size].demand.wants_device() {
            self.version += 1;
        }
    }

    /// Whether all who wait in front and could be on this machine would still have processor time and memory
    /// there beside what runs and this demand, whichever of them come or end.
    pub(super) fn leaves_room(&self, spot: &NodeState<'_>, demand: &Demand) -> bool {
        let (cpu, memory) = self.left(spot);
        demand.cpu <= cpu && demand.memory <= memory
    }

    /// Processor time and memory of a machine that are free and not kept: beside what reservations keep there for their
    /// members, and once those are over. Who has no room beside a reservation waits for its end, and needs none before.
    pub(super) fn left(&self, spot: &NodeState<'_>) -> (CpuShare, Bytes) {
        if self.is_empty() {
            return spot.free();
        }
        let all = (spot.cpu_room, spot.node.capacity.memory);
        let later = self.left_of(spot, all);
        let most = spot.node.capacity.cpu;
        if spot.kept_back == (CpuShare::ZERO, Bytes::ZERO) {
            return (later.0.min(most), later.1);
        }
        let now = self.left_of(spot, spot.unreserved());
        (now.0.min(later.0).min(most), now.1.min(later.1))
    }

    /// Processor time and memory by which a session that runs there with `had` may grow, so that all who wait in front and
    /// could be there beside it still have theirs, whichever of them come or end. Who has no room beside what it has waits
    /// for its end, and loses nothing by its growth. Costs sorting the sizes that wait.
    pub(super) fn left_beside(&self, spot: &NodeState<'_>, had: &Demand) -> (CpuShare, Bytes) {
        let all = (spot.cpu_room, spot.node.capacity.memory);
        let later = self.left_beside_of(spot, had, all);
        let now = self.left_beside_of(spot, had, spot.unreserved());
        (now.0.min(later.0), now.1.min(later.1))
    }

    /// The same of so much of the machine.
    fn left_beside_of(
        &self,
        spot: &NodeState<'_>,
        had: &Demand,
        room: (CpuShare, Bytes),
    ) -> (CpuShare, Bytes) {
        let rest = (
            room.0.saturating_sub(had.cpu),
            room.1.saturating_sub(had.memory),
        );
        let (held_cpu, held_memory) = spot.without_devices();
        let (mut cpu, mut memory) = (u64::from(held_cpu.0), held_memory.0);
        let mut with_devices = spot.beside.clone();
        let could_come = |size: &&WaitingGroup<'_>| size.could_be_in(spot, rest);
        for size in self.sizes.iter().filter(could_come) {
            let wanted = size.together();
            if size.demand.wants_device() {
                with_devices.push(wanted);
            } else {
                cpu = cpu.saturating_add(wanted.cpu);
                memory = memory.saturating_add(wanted.memory);
            }
        }
        let devices = spot.node.capacity.devices.len() as u64 * 100;
        cpu = cpu.saturating_add(most(devices, &mut with_devices, |one| one.cpu));
        memory = memory.saturating_add(most(devices, &mut with_devices, |one| one.memory));
        let cpu = u64::from(room.0.0).saturating_sub(cpu);
        (
            CpuShare(u32::try_from(cpu).unwrap_or(u32::MAX)),
            Bytes(room.1.0.saturating_sub(memory)),
        )
    }

    /// Whether one who waits in front could have a part of that device beside the part that a session has there. Who needs
    /// all of it waits for the end of that session.
    pub(super) fn waits_beside(
        &self,
        spot: &NodeState<'_>,
        device: usize,
        had: &DeviceShare,
    ) -> bool {
        self.sizes.iter().any(|size| {
            let part = GpuShare(size.demand.gpu.0 % 100);
            let its = &spot.node.capacity.devices[device];
            let Some(memory) = slice_memory(its, &size.demand, part) else {
                return false;
            };
            size.demand.mig.is_none()
                && part > GpuShare::ZERO
                && part <= WHOLE.saturating_sub(had.share)
                && (its.memory == Bytes::ZERO || memory <= its.memory.saturating_sub(had.memory))
                && could(spot.node, &size.demand, size.host)
        })
    }

    /// The same of so much of the machine.
    fn left_of(&self, spot: &NodeState<'_>, room: (CpuShare, Bytes)) -> (CpuShare, Bytes) {
        let (mut cpu, mut memory) = (u64::from(room.0.0), room.1.0);
        let mut keep = |of_cpu: u64, of_memory: u64| {
            cpu = cpu.saturating_sub(of_cpu);
            memory = memory.saturating_sub(of_memory);
            cpu > 0 && memory > 0
        };
        let (held_cpu, held_memory) = spot.without_devices();
        let (with_cpu, with_memory) = self.most_beside_devices(spot, room);
        let mut some = keep(u64::from(held_cpu.0), held_memory.0) && keep(with_cpu, with_memory);
        for size in self.sizes.iter().filter(|s| !s.demand.wants_device()) {
            if !some {
                break;
            }
            if size.could_be_in(spot, room) {
                let count = u64::from(size.count);
                some = keep(
                    u64::from(size.demand.cpu.0) * count,
                    size.demand.memory.0.saturating_mul(count),
                );
            }
        }
        (
            CpuShare(u32::try_from(cpu).unwrap_or(u32::MAX)),
            Bytes(memory),
        )
    }

    /// The most processor time and memory that those who have devices here and those who wait for some could
    /// have together in so much of the machine: never more of them at once than the devices hold.
    fn most_beside_devices(&self, spot: &NodeState<'_>, room: (CpuShare, Bytes)) -> (u64, u64) {
        let key = (spot.version, self.version, room);
        let mut known = spot.most.get();
        if let Some(counted) = known.iter().flatten().find(|one| one.key == key) {
            return counted.most;
        }
        let devices = spot.node.capacity.devices.len() as u64 * 100;
        let mut all = spot.beside.clone();
        let waiting = self.sizes.iter().filter(|s| s.demand.wants_device());
        let could_come = waiting.filter(|size| size.could_be_in(spot, room));
        all.extend(could_come.map(WaitingGroup::together));
        let most = (
            most(devices, &mut all, |beside| beside.cpu),
            most(devices, &mut all, |beside| beside.memory),
        );
        known.rotate_right(1);
        known[0] = Some(NodeTotals { key, most });
        spot.most.set(known);
        most
    }
}

/// No choice among these, together no more than so many hundredths of devices, has more than this: the
/// dearest for their share are taken first, the last one in part.
fn most(mut room: u64, all: &mut [CoAllocation], of: impl Fn(&CoAllocation) -> u64) -> u64 {
    let dearest_first = |a: &CoAllocation, b: &CoAllocation| -> Ordering {
        let (a, b) = (
            u128::from(of(a)) * u128::from(b.share),
            u128::from(of(b)) * u128::from(a.share),
        );
        b.cmp(&a)
    };
    let mut sum: u64 = 0;
    let (free, mut paid): (Vec<CoAllocation>, Vec<CoAllocation>) =
        all.iter().partition(|one| one.share == 0);
    for one in &free {
        sum = sum.saturating_add(of(one));
    }
    paid.sort_by(dearest_first);
    for one in &paid {
        if one.share <= room {
            room -= one.share;
            sum = sum.saturating_add(of(one));
            continue;
        }
        let part = (u128::from(of(one)) * u128::from(room)).div_ceil(u128::from(one.share));
        return sum.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
    }
    sum
}

/// Whether a session that waits in front, and could be on this machine, waits for something that this demand
/// wants there too: a device, or the processor time and memory that everybody needs.
pub(super) fn competes(spot: &NodeState<'_>, size: &WaitingGroup<'_>, demand: &Demand) -> bool {
    if !could(spot.node, &size.demand, size.host) {
        return false;
    }
    let devices = 0..spot.devices.len();
    let same_profile = |at: usize| match (size.demand.mig, demand.mig) {
        (Some(a), Some(b)) => a == b && could_use(spot, at, demand),
        (None, None) => could_use(spot, at, &size.demand) && could_use(spot, at, demand),
        _ => false,
    };
    let (cpu, memory): (CpuShare, Bytes) = spot.free();
    let short = cpu < size.demand.cpu || memory < size.demand.memory;
    short || (size.demand.wants_device() && devices.into_iter().any(same_profile))
}
