//! One machine while places are given away: what is given of it, and what waits in front of it. Decides nothing.

use std::cell::Cell;

use crate::devices::MigProfile;
use crate::resources::DeviceAllocation;
use crate::units::{Bytes, CpuShare};
use crate::world::NodeRecord;

/// One machine while places are given away.
#[derive(Clone)]
pub(super) struct NodeState<'w> {
    pub(super) node: &'w NodeRecord,
    /// What sessions together may hold of its processor time; a single one no more than it has.
    pub(super) cpu_room: CpuShare,
    pub(super) cpu: CpuShare,
    pub(super) memory: Bytes,
    /// What is given of each device, in the order of the machine's list.
    pub(super) devices: Vec<DeviceAllocation>,
    /// Devices that an earlier session waits for, in the order of the machine's list.
    pub(super) shut: Vec<bool>,
    /// Devices that a reservation keeps for its members, in the order of the machine's list.
    pub(super) reserved: Vec<bool>,
    /// Processor time and memory that reservations keep here, as far as their members do not have it yet.
    pub(super) kept_back: (CpuShare, Bytes),
    /// Sizes of partitions that an earlier session waits for.
    pub(super) shut_parts: Vec<MigProfile>,
    /// What everybody who has devices here has beside them.
    pub(super) beside: Vec<CoAllocation>,
    /// What `Reservations` counted here last: with all of the machine, and without what reservations keep.
    pub(super) most: Cell<[Option<NodeTotals>; 2]>,
    /// Its resource group is the one whose queue is looked at.
    pub(super) inside: bool,
    /// It takes new sessions, of whichever group.
    pub(super) takes_new: bool,
    /// It takes new sessions at all.
    pub(super) open: bool,
    pub(super) version: u32,
    /// When it last got a session, as a number that rises with each; 0: never. Read where nodes take turns.
    pub(super) turn: u64,
}

impl NodeState<'_> {
    /// Processor time and memory of those here who have no device.
    pub(super) fn without_devices(&self) -> (CpuShare, Bytes) {
        let cpu: u64 = self.beside.iter().map(|one| one.cpu).sum();
        let memory: u64 = self.beside.iter().map(|one| one.memory).sum();
        (
            self.cpu
                .saturating_sub(CpuShare(u32::try_from(cpu).unwrap_or(u32::MAX))),
            self.memory.saturating_sub(Bytes(memory)),
        )
    }

    /// What one session may have here.
    pub(super) fn free(&self) -> (CpuShare, Bytes) {
        let (cpu, memory) = self.left();
        (cpu.min(self.node.capacity.cpu), memory)
    }

    /// What sessions together may have here still.
    pub(super) fn left(&self) -> (CpuShare, Bytes) {
        let (cpu, memory) = self.unreserved();
        (
            cpu.saturating_sub(self.cpu),
            memory.saturating_sub(self.memory),
        )
    }

    /// All processor time and memory but what reservations keep.
    pub(super) fn unreserved(&self) -> (CpuShare, Bytes) {
        let memory = self.node.capacity.memory;
        (
            self.cpu_room.saturating_sub(self.kept_back.0),
            memory.saturating_sub(self.kept_back.1),
        )
    }
}

/// What a session or a group of equal ones has, or wants, beside so much of devices.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CoAllocation {
    /// Hundredths of devices.
    pub(super) share: u64,
    pub(super) cpu: u64,
    pub(super) memory: u64,
}

/// What was counted of a machine: for which versions of the machine and of what is kept, and in how much of it.
#[derive(Clone, Copy)]
pub(super) struct NodeTotals {
    pub(super) key: (u32, u32, (CpuShare, Bytes)),
    /// Processor time and memory.
    pub(super) most: (u64, u64),
}
