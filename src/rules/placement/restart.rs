//! Whether a session that is restarted keeps its place: nodes, cores, memory and devices. Whoever keeps it gives none of
//! it up in between, so no other session gets it. Never chooses another place: the queue does.

use crate::blocker::PlacementBlocker;
use crate::blockers;
use crate::placement::choice;
use crate::placement::cluster_state::ClusterState;
use crate::placement::feasibility::closed;
use crate::placement::fit;
use crate::resources::{Demand, DeviceShare};
use crate::session::{Session, SessionContainer, SessionEnvironment};
use crate::units::{GpuShare, Timestamp};
use crate::world::{ClusterSnapshot, NodeRecord};

/// What keeps a session from starting again where these containers of it are, or were until now; None: it keeps
/// that place. Costs one visit a session.
pub(super) fn blocker(
    world: &ClusterSnapshot,
    session: &Session,
    containers: &[SessionContainer],
    now: Timestamp,
) -> Option<PlacementBlocker> {
    // Else a session with a short limit would pass the queue, and stay in its place for ever.
    if session.backfilled {
        return Some(blockers::queue_backfilled());
    }
    let demand = &session.spec.demand;
    // What the others hold; its own may be counted or not yet.
    let mut ground = ClusterState::new(world, now);
    if let Some(own) = world.session(session.id) {
        ground.give_back(own);
    }
    if containers.is_empty() || ground.spots.is_empty() {
        return Some(blockers::node_none());
    }
    if ground.past_quota(session.owner, demand) {
        let each = world.policy.each.unwrap_or_default();
        let (held, need) = (ground.owned(session.owner), ground.asked(demand));
        return Some(blockers::gpu_quota(need, held, each));
    }
    if let Some(hit) = ground.past_limit(session, demand) {
        return Some(fit::limited(&hit));
    }
    containers.iter().find_map(|container| {
        let Some(node) = world.node(container.node) else {
            return Some(blockers::node_none());
        };
        let host = session.spec.environment == SessionEnvironment::Host;
        if let Some(blocker) = closed(node, now) {
            return Some(blocker);
        }
        if host && !node.host_environment {
            return Some(blockers::node_host_environment_off(&node.name));
        }
        let (cpu, memory) = ground.free_for(session, ground.spot(node.id)?);
        if cpu < demand.cpu {
            let (need, name) = (demand.cpu.cores(), &node.name);
            return Some(blockers::cpu_short(need, name, cpu, demand.cpu));
        }
        if memory < demand.memory {
            return Some(blockers::memory_short(demand.memory, &node.name, memory));
        }
        let mut parts = container.devices.iter();
        parts.find_map(|part| device(&ground, node, session, &together(containers, node, part)))
    })
}

/// What all of these containers have of the device of one part.
fn together(containers: &[SessionContainer], node: &NodeRecord, part: &DeviceShare) -> DeviceShare {
    let here = containers.iter().filter(|one| one.node == node.id);
    let shares = here.flat_map(|one| &one.devices);
    let mut same = shares.filter(|one| one.index == part.index && one.part == part.part);
    same.next().map_or(*part, |first| {
        same.fold(*first, |all, one| DeviceShare {
            share: all.share + one.share,
            memory: all.memory + one.memory,
            ..all
        })
    })
}

/// The same of one device.
fn device(
    ground: &ClusterState<'_>,
    node: &NodeRecord,
    session: &Session,
    part: &DeviceShare,
) -> Option<PlacementBlocker> {
    let demand: &Demand = &session.spec.demand;
    let devices = &node.capacity.devices;
    let shut = || Some(blockers::gpu_closed(part.index, &node.name));
    let Some(at) = devices.iter().position(|d| d.index == part.index) else {
        return shut();
    };
    let device = &devices[at];
    // A self-test runs on a device that is cordoned for it.
    let bound = session.device_affinity.as_ref() == Some(&device.uuid);
    if !(bound || choice::takes_new(node, device)) || device.simulated != part.simulated {
        return shut();
    }
    let spot = ground.spot(node.id)?;
    if ground.spots[spot].reserved[at] && !ground.is_let_in(session, spot, at) {
        return shut();
    }
    let held = &ground.spots[spot].devices[at];
    match part.part {
        Some(number) => {
            let profile = device.mig.get(number as usize).map(|part| part.profile);
            let same = profile.is_some() && profile == demand.mig;
            (!same || held.parts.contains(&number)).then(|| {
                let wanted = demand.mig.map_or(String::new(), |mig| mig.to_string());
                blockers::gpu_no_partition(wanted, &node.name, 0)
            })
        }
        None if device.is_partitioned() => shut(),
        None => {
            let free = crate::devices::WHOLE.saturating_sub(held.share);
            let room = device.memory.saturating_sub(held.memory);
            let known = device.memory > crate::units::Bytes::ZERO;
            match () {
                () if free < part.share => {
                    let need: GpuShare = part.share;
                    Some(blockers::gpu_short(need, &node.name, free))
                }
                () if known && room < part.memory => {
                    Some(blockers::gpu_memory_short(part.memory, &node.name, room))
                }
                () => None,
            }
        }
    }
}
