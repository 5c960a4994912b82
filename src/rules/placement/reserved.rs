//! What reservations keep of machines while places are given: which devices, who may have them, and how much of it goes
//! before the queue. Which devices a reservation gets, `reserve` says.

use super::node_state::NodeState;
use crate::names::NodeId;
use crate::reservation::{ReservationState, ReservationTime, ReservedPart};
use crate::resources::{Demand, DeviceShare};
use crate::session::Session;
use crate::units::{Bytes, CpuShare, Timestamp};
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

    /// Processor time and memory that members may take before the queue still: what is kept, and no less than the part
    /// of the machine that the kept devices are of its devices.
    fn before_queue(&self, node: &NodeRecord) -> (CpuShare, Bytes) {
        let all = node.capacity.devices.len().max(1) as u64;
        let own = self.part.devices.len() as u64;
        let cpu = u64::from(node.capacity.cpu.0) * own / all;
        let cpu = CpuShare(u32::try_from(cpu).unwrap_or(u32::MAX));
        let memory = Bytes(node.capacity.memory.0 / all * own);
        (
            self.part.cpu.max(cpu).saturating_sub(self.cpu),
            self.part.memory.max(memory).saturating_sub(self.memory),
        )
    }
}

/// Whether a session with these devices of a machine is one for which the reservation keeps room there: a member's, on
/// a kept device, or without a device and begun since the warning. Others of the holder have their room by the queue.
pub(super) fn is_credited(
    time: &ReservationTime,
    part: &ReservedPart,
    node: &NodeRecord,
    session: &Session,
    devices: &[DeviceShare],
) -> bool {
    let since = || {
        let begin = time.warned_at.unwrap_or(time.from);
        devices.is_empty() && session.started_at().is_none_or(|at| at >= begin)
    };
    time.holder.admits(session) && (is_on(node, part, devices) || since())
}

/// Whether one of these devices of a machine is kept.
pub(super) fn is_on(node: &NodeRecord, part: &ReservedPart, devices: &[DeviceShare]) -> bool {
    node.capacity.devices.iter().any(|device| {
        part.devices.contains(&device.uuid) && devices.iter().any(|one| one.index == device.index)
    })
}

/// Which parts let a session in, and whether it leads there: equal for equal standing.
pub(super) type Standing = Vec<(usize, bool)>;

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

    /// Nothing is kept for anybody.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Where a session may have what is kept; empty for most. Costs one visit a part.
    pub(super) fn standing(&self, session: &Session) -> Standing {
        let parts = self.parts.iter().enumerate();
        let own = parts.filter(|(_, kept)| kept.time.lets_in(session, self.now));
        own.map(|(at, kept)| (at, kept.time.leads(session)))
            .collect()
    }

    /// Whether the session is of a member of one of them.
    pub(super) fn has_member(&self, session: &Session) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|kept| kept.time.holder.admits(session))
    }

    /// Machines of these parts, each once.
    pub(super) fn spots(&self, standing: &[(usize, bool)]) -> Vec<usize> {
        let mut spots: Vec<usize> = standing
            .iter()
            .map(|(at, _)| self.parts[*at].spot)
            .collect();
        spots.sort_unstable();
        spots.dedup();
        spots
    }

    /// A machine as that session sees it: what is kept for it stands open, and all else is shut. A device that an
    /// earlier session waits for stays shut but for members while their reservation lasts.
    pub(super) fn opened(&self, spot: &NodeState<'w>, session: &Session) -> NodeState<'w> {
        let mut own = spot.clone();
        let node = spot.node.id;
        let here = || self.parts.iter().filter(move |kept| kept.part.node == node);
        let leads_here = here().any(|kept| kept.time.leads(session));
        let count = own.reserved.len();
        let (mut leads, mut let_in) = (vec![false; count], vec![false; count]);
        for kept in here().filter(|kept| kept.time.lets_in(session, self.now)) {
            for (at, device) in spot.node.capacity.devices.iter().enumerate() {
                if kept.part.devices.contains(&device.uuid) {
                    let_in[at] = true;
                    leads[at] |= kept.time.leads(session);
                }
            }
        }
        // Another one keeps it too, a day later: then both must let it in. Members of one that lasts stay in theirs until
        // the next one was warned of: nobody would tell who begins after that.
        // A member's own room stands open where the reservation counts them as one who is in it: else others would be
        // stopped for it though it is taken.
        let opens = |kept: &KeptPart<'w>| {
            let holds_it = || {
                let mut live = session.live_on(node);
                live.any(|one| is_credited(kept.time, kept.part, spot.node, session, &one.holds()))
            };
            let counts = || match session.is_pending() {
                true => {
                    session.spec.demand.wants_device()
                        || kept.time.state != ReservationState::Booked
                }
                false => holds_it(),
            };
            kept.time.lets_in(session, self.now) && (!kept.time.holder.admits(session) || counts())
        };
        let of_others = |kept: &&KeptPart<'w>| {
            let is_active = kept.time.state == ReservationState::Active;
            let is_own = kept.time.holder.admits(session);
            !opens(kept) && (is_active || !leads_here || is_own)
        };
        own.kept_back = most_at_once(&here().filter(of_others).collect::<Vec<_>>());
        for kept in here() {
            if kept.time.lets_in(session, self.now) {
                continue;
            }
            let is_due = matches!(
                kept.time.state,
                ReservationState::Warned | ReservationState::Active
            );
            for (at, device) in spot.node.capacity.devices.iter().enumerate() {
                if kept.part.devices.contains(&device.uuid) && (is_due || !leads[at]) {
                    let_in[at] = false;
                }
            }
        }
        for (at, is_let_in) in let_in.into_iter().enumerate() {
            own.shut[at] = !is_let_in || (spot.shut[at] && !leads[at]);
            own.reserved[at] = !is_let_in;
        }
        own
    }

    /// Whether processor time and memory of a session are within what members may take before the queue on a machine.
    pub(super) fn covers(&self, spot: &NodeState<'w>, session: &Session) -> bool {
        let node = spot.node;
        let own = self.parts.iter().filter(|kept| kept.part.node == node.id);
        let own = own.filter(|kept| kept.time.leads(session));
        let mut sum = (CpuShare::ZERO, Bytes::ZERO);
        for kept in own {
            let (cpu, memory) = kept.before_queue(node);
            sum = (sum.0 + cpu, sum.1 + memory);
        }
        let demand = &session.spec.demand;
        demand.cpu <= sum.0 && demand.memory <= sum.1
    }

    /// When the last of those ends that keep anything of a machine; None where none does.
    pub(super) fn until(&self, node: NodeId) -> Option<Timestamp> {
        let here = self.parts.iter().filter(|kept| kept.part.node == node);
        here.map(|kept| kept.time.to).max()
    }

    /// Notes that a session has a place there, with these devices.
    pub(super) fn hold(
        &mut self,
        spot: &mut NodeState<'w>,
        session: &Session,
        demand: &Demand,
        devices: &[DeviceShare],
    ) {
        let demand = (demand.cpu, demand.memory);
        self.note(spot, session, devices, |kept| {
            kept.cpu = kept.cpu + demand.0;
            kept.memory = kept.memory + demand.1;
        });
    }

    /// Notes that it has it no more.
    pub(super) fn let_go(
        &mut self,
        spot: &mut NodeState<'w>,
        session: &Session,
        demand: &Demand,
        devices: &[DeviceShare],
    ) {
        let demand = (demand.cpu, demand.memory);
        self.note(spot, session, devices, |kept| {
            kept.cpu = kept.cpu.saturating_sub(demand.0);
            kept.memory = kept.memory.saturating_sub(demand.1);
        });
    }

    fn note(
        &mut self,
        spot: &mut NodeState<'w>,
        session: &Session,
        devices: &[DeviceShare],
        change: impl Fn(&mut KeptPart<'w>),
    ) {
        if self.parts.is_empty() {
            return;
        }
        let node = spot.node;
        let mut own = self.parts.iter_mut();
        let own = own.find(|kept| {
            kept.part.node == node.id && is_credited(kept.time, kept.part, node, session, devices)
        });
        if let Some(kept) = own {
            change(kept);
            self.count(spot);
        }
    }

    /// Sums what is still kept of a machine.
    fn count(&self, spot: &mut NodeState<'w>) {
        let node = spot.node.id;
        let here = self.parts.iter().filter(|kept| kept.part.node == node);
        spot.kept_back = most_at_once(&here.collect::<Vec<_>>());
    }
}

/// The most that is still kept at one instant: one reservation after another keeps the same cores.
fn most_at_once(parts: &[&KeptPart<'_>]) -> (CpuShare, Bytes) {
    let mut most = (CpuShare::ZERO, Bytes::ZERO);
    for begin in parts.iter().map(|kept| kept.time.from) {
        let mut sum = (CpuShare::ZERO, Bytes::ZERO);
        for kept in parts {
            if kept.time.from <= begin && begin < kept.time.to {
                let (cpu, memory) = kept.rest();
                sum = (sum.0 + cpu, sum.1 + memory);
            }
        }
        most = (most.0.max(sum.0), most.1.max(sum.1));
    }
    most
}

fn mark(spot: &mut NodeState<'_>, part: &ReservedPart) {
    for (at, device) in spot.node.capacity.devices.iter().enumerate() {
        if part.devices.contains(&device.uuid) {
            spot.reserved[at] = true;
        }
    }
}
