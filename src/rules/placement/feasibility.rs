//! What a machine or a device can hold at all, whatever is free now: whether it takes sessions, and whether a
//! demand would fit it empty.

use super::node_state::NodeState;
use crate::blocker::PlacementBlocker;
use crate::blockers;
use crate::devices::CONTEXT_OVERHEAD;
use crate::resources::{Demand, Device};
use crate::units::{Bytes, GpuShare, Timestamp};
use crate::world::NodeRecord;

/// Why a node takes no session now; None when it does.
pub(super) fn closed(node: &NodeRecord, now: Timestamp) -> Option<PlacementBlocker> {
    if node.is_silent(now) {
        let seconds = now.seconds_since(node.seen_at);
        return Some(blockers::node_silent(&node.name, seconds));
    }
    if !node.schedulable {
        return Some(match node.note.as_str() {
            "" => blockers::node_cordoned(&node.name),
            note => blockers::node_maintenance(&node.name, note),
        });
    }
    let mut problems = node.problems.iter();
    // In the words of the node.
    let problem = problems.find(|p| p.code.starts_with(crate::codes::family::NODE_REFUSES))?;
    Some(PlacementBlocker::new(&problem.code, &problem.text).with("node", &node.name))
}

/// Whether a machine could hold a demand if it were empty.
pub(super) fn could(node: &NodeRecord, demand: &Demand, host: bool) -> bool {
    (!host || node.host_environment)
        && node.capacity.cpu >= demand.cpu
        && node.capacity.memory >= demand.memory
        && holds_when_empty(node, demand)
}

/// Whether the devices of a machine hold a demand while no other session has any of them. A cordon and a
/// device's health pass, so they do not count.
pub(super) fn holds_when_empty(node: &NodeRecord, demand: &Demand) -> bool {
    if !demand.wants_device() {
        return true;
    }
    let devices = &node.capacity.devices;
    if let Some(profile) = demand.mig {
        return devices
            .iter()
            .any(|d| d.mig.iter().any(|part| part.profile == profile));
    }
    let (whole, part) = ((demand.gpu.0 / 100) as usize, GpuShare(demand.gpu.0 % 100));
    let unpartitioned = devices.iter().filter(|d| !d.is_partitioned());
    let sliceable = unpartitioned
        .clone()
        .filter(|d| slice_memory(d, demand, part).is_some())
        .count();
    let needed = whole + usize::from(part > GpuShare::ZERO);
    unpartitioned.count() >= needed && (part == GpuShare::ZERO || sliceable > 0)
}

/// Whether a demand could have this very device, or a part of it.
pub(super) fn could_use(spot: &NodeState<'_>, at: usize, demand: &Demand) -> bool {
    let device = &spot.node.capacity.devices[at];
    match demand.mig {
        Some(profile) => device.mig.iter().any(|part| part.profile == profile),
        None if device.is_partitioned() => false,
        None => {
            let part = GpuShare(demand.gpu.0 % 100);
            demand.gpu.0 >= 100
                || (demand.gpu.0 > 0 && slice_memory(device, demand, part).is_some())
        }
    }
}

/// Memory of a fraction of this device; None where the device can never give that.
pub(super) fn slice_memory(device: &Device, demand: &Demand, part: GpuShare) -> Option<Bytes> {
    let memory = demand.gpu_memory.unwrap_or_else(|| device.memory_of(part));
    // A machine of an older version does not say how much memory a device has.
    let known = device.memory > Bytes::ZERO;
    (!known || (memory >= CONTEXT_OVERHEAD && memory <= device.memory)).then_some(memory)
}
