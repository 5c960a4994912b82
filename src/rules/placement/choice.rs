//! Which devices of one machine a demand gets. Whole ones are taken from the smallest group of linked
//! devices that holds them all, so that large groups stay whole; a fraction goes to the fullest device
//! that still holds it (or, where the administrator says so, to the emptiest). Which node has its turn is no matter here.

use super::feasibility::slice_memory;
use super::node_state::NodeState;
use crate::devices::{Health, MigPart, WHOLE};
use crate::policy::Spreading;
use crate::resources::{Demand, Device, DeviceShare};
use crate::units::{Bytes, GpuShare};
use crate::world::{ClusterSnapshot, NodeRecord};

/// Takes new slices, as far as the device itself goes.
pub(super) fn takes_new(node: &NodeRecord, device: &Device) -> bool {
    !matches!(device.health, Health::Failing { .. }) && !node.cordoned.contains(&device.uuid)
}

/// How much is free of a device: its share and its memory; nothing where it takes nothing new.
pub(super) fn left(spot: &NodeState<'_>, at: usize) -> (GpuShare, Bytes) {
    let device = &spot.node.capacity.devices[at];
    if device.is_partitioned() || spot.reserved[at] || !takes_new(spot.node, device) {
        return (GpuShare::ZERO, Bytes::ZERO);
    }
    let held = &spot.devices[at];
    (
        WHOLE.saturating_sub(held.share),
        device.memory.saturating_sub(held.memory),
    )
}

/// The same for a session that may have nothing that an earlier one waits for.
pub(super) fn left_over(spot: &NodeState<'_>, at: usize) -> (GpuShare, Bytes) {
    if spot.shut[at] {
        return (GpuShare::ZERO, Bytes::ZERO);
    }
    left(spot, at)
}

/// How badly a machine suits a demand for devices, where they would be packed: whether they would lie
/// apart, what would be left of the device that gives the fraction, how many devices are empty; for
/// spreading the last two the other way round; for turns the first alone. None where it does not fit.
pub(super) fn rank(world: &ClusterSnapshot, spot: &NodeState<'_>, demand: &Demand) -> Option<u64> {
    let given = choose(world, spot, demand)?;
    let empty = (0..spot.devices.len())
        .filter(|at| left(spot, *at).0 == WHOLE)
        .count();
    let rest = given
        .iter()
        .find(|d| d.part.is_none() && d.share < WHOLE)
        .and_then(|part| {
            let devices = &spot.node.capacity.devices;
            let at = devices.iter().position(|d| d.index == part.index)?;
            Some(left(spot, at).0.saturating_sub(part.share).0)
        });
    let apart = u64::from(!together(spot.node, &given)) << 32;
    let (rest, empty) = (u64::from(rest.unwrap_or_default()), empty as u64);
    Some(match world.spreading(spot.node.id) {
        Spreading::Pack => apart | rest << 16 | empty,
        Spreading::Spread => {
            apart | (u64::from(WHOLE.0) - rest) << 16 | (0xffff - empty.min(0xffff))
        }
        Spreading::RoundRobin => apart,
    })
}

/// Whether devices can reach each other without crossing the machine's memory, or at least hang on one
/// socket.
fn together(node: &NodeRecord, given: &[DeviceShare]) -> bool {
    let groups: Vec<(Option<u32>, Option<u32>)> = given
        .iter()
        .filter_map(|part| node.capacity.devices.iter().find(|d| d.index == part.index))
        .map(|d| (d.link, d.numa))
        .collect();
    groups.windows(2).all(|pair| {
        let ((link_a, numa_a), (link_b, numa_b)) = (pair[0], pair[1]);
        (link_a.is_some() && link_a == link_b) || numa_a == numa_b
    })
}

/// The shares of devices that this demand gets here; empty where it wants none, None where they are not
/// free.
pub(super) fn choose(
    world: &ClusterSnapshot,
    spot: &NodeState<'_>,
    demand: &Demand,
) -> Option<Vec<DeviceShare>> {
    if !demand.wants_device() {
        return Some(Vec::new());
    }
    if let Some(profile) = demand.mig {
        return partition(spot, profile).map(|part| vec![part]);
    }
    let (whole, part) = ((demand.gpu.0 / 100) as usize, GpuShare(demand.gpu.0 % 100));
    if whole == 0 {
        return fraction(world, spot, demand, part, &[], None).map(|one| vec![one]);
    }
    let devices = &spot.node.capacity.devices;
    let empty: Vec<usize> = (0..devices.len())
        .filter(|at| !devices[*at].is_partitioned() && takes_new(spot.node, &devices[*at]))
        .filter(|at| spot.devices[*at].is_empty() && !spot.shut[*at] && !spot.reserved[*at])
        .collect();
    if empty.len() < whole {
        return None;
    }
    for group in groups(spot.node, &empty) {
        if group.len() < whole {
            continue;
        }
        let mut group = group;
        if part > GpuShare::ZERO {
            // Devices that could never give the fraction go first, so that one that could is left.
            group.sort_by_key(|at| (slice_memory(&devices[*at], demand, part).is_some(), *at));
        }
        let chosen = &group[..whole];
        let mut given: Vec<DeviceShare> = chosen
            .iter()
            .map(|at| DeviceShare {
                index: devices[*at].index,
                share: WHOLE,
                memory: devices[*at].memory,
                part: None,
                simulated: devices[*at].simulated,
            })
            .collect();
        if part > GpuShare::ZERO {
            let near = chosen.first().map(|at| &devices[*at]);
            let Some(rest) = fraction(world, spot, demand, part, chosen, near) else {
                continue;
            };
            given.push(rest);
        }
        return Some(given);
    }
    None
}

/// The fraction of this very device, where it is free; a cordon is no matter, and another session that waits for a
/// cordoned device cannot have it anyway.
pub(super) fn on(spot: &NodeState<'_>, device: &str, demand: &Demand) -> Option<DeviceShare> {
    let devices = &spot.node.capacity.devices;
    let at = devices.iter().position(|its| its.uuid == device)?;
    let (device, held) = (&devices[at], &spot.devices[at]);
    let memory = slice_memory(device, demand, demand.gpu)?;
    let fits = demand.mig.is_none()
        && demand.gpu <= WHOLE.saturating_sub(held.share)
        && memory <= device.memory.saturating_sub(held.memory);
    let kept = spot.reserved[at] || (spot.shut[at] && takes_new(spot.node, device));
    let usable =
        !kept && !device.is_partitioned() && !matches!(device.health, Health::Failing { .. });
    (fits && usable).then_some(DeviceShare {
        index: device.index,
        share: demand.gpu,
        memory,
        part: None,
        simulated: device.simulated,
    })
}

/// Sets of devices to take whole ones from, the best first: linked ones, those of one socket, all of
/// them; of each kind the smallest first.
fn groups<'a>(node: &'a NodeRecord, among: &'a [usize]) -> impl Iterator<Item = Vec<usize>> + 'a {
    // The next kind is looked at only where none of the one before would do.
    type DeviceKey = fn(&Device) -> Option<(u32, u32)>;
    let kinds: [DeviceKey; 3] = [
        |d| Some((d.link?, d.numa?)),
        |d| Some((d.link?, 0)),
        |d| Some((d.numa?, 0)),
    ];
    let devices = &node.capacity.devices;
    let sets = kinds.into_iter().flat_map(move |key| {
        let mut sets: Vec<((u32, u32), Vec<usize>)> = Vec::new();
        for at in among {
            let Some(key) = key(&devices[*at]) else {
                continue;
            };
            match sets.iter_mut().find(|(known, _)| *known == key) {
                Some((_, set)) => set.push(*at),
                None => sets.push((key, vec![*at])),
            }
        }
        sets.sort_by_key(|(_, set)| (set.len(), set.first().copied()));
        sets.into_iter().map(|(_, set)| set)
    });
    sets.chain(std::iter::once_with(|| among.to_vec()))
}

/// The device that gives a fraction: not one of `taken`, near `near` where it can be.
fn fraction(
    world: &ClusterSnapshot,
    spot: &NodeState<'_>,
    demand: &Demand,
    part: GpuShare,
    taken: &[usize],
    near: Option<&Device>,
) -> Option<DeviceShare> {
    let devices = &spot.node.capacity.devices;
    let spreading = world.spreading(spot.node.id);
    giving(spot, demand, part)
        .filter(|(at, ..)| !taken.contains(at))
        .min_by_key(|(at, share, _)| {
            let device = &devices[*at];
            let far = near.is_some_and(|near| {
                !(near.link.is_some() && near.link == device.link && near.numa == device.numa)
            });
            let free = match spreading {
                Spreading::Pack | Spreading::RoundRobin => share.0,
                Spreading::Spread => WHOLE.0 - share.0,
            };
            (far, free, *at)
        })
        .map(|(.., given)| given)
}

/// A demand for a fraction on each device that could give it here, in the order of the machine's list; empty for any other
/// demand.
pub(super) fn fractions(spot: &NodeState<'_>, demand: &Demand) -> Vec<DeviceShare> {
    if demand.mig.is_some() || demand.gpu >= WHOLE || demand.gpu == GpuShare::ZERO {
        return Vec::new();
    }
    let all = giving(spot, demand, demand.gpu);
    all.map(|(.., given)| given).collect()
}

/// Devices that could give that fraction: which one, how much of it is free, and what it would give.
fn giving<'s>(
    spot: &'s NodeState<'_>,
    demand: &'s Demand,
    part: GpuShare,
) -> impl Iterator<Item = (usize, GpuShare, DeviceShare)> + 's {
    let devices = &spot.node.capacity.devices;
    (0..devices.len()).filter_map(move |at| {
        let device = &devices[at];
        let memory = slice_memory(device, demand, part)?;
        let (share, room) = left_over(spot, at);
        let fits = share >= part && (room >= memory || device.memory == Bytes::ZERO);
        let given = DeviceShare {
            index: device.index,
            share: part,
            memory,
            part: None,
            simulated: device.simulated,
        };
        fits.then_some((at, share, given))
    })
}

/// What the engines of a partition are of its whole device.
pub(super) fn share_of(device: &Device, part: &MigPart) -> GpuShare {
    let share = (part.sms * 100).checked_div(device.sms);
    GpuShare(share.unwrap_or(u32::from(part.profile.compute) * 100 / 7))
}

/// How much of devices a demand counts for what one person may hold. A partition counts what its engines are
/// of a device, on whichever machine that is most. Costs one visit a partition.
pub(super) fn asked(world: &ClusterSnapshot, demand: &Demand) -> GpuShare {
    let Some(profile) = demand.mig else {
        return demand.gpu;
    };
    let devices = world.nodes.iter().flat_map(|node| &node.capacity.devices);
    let parts = devices.flat_map(|device| device.mig.iter().map(move |part| (device, part)));
    let such = parts.filter(|(_, part)| part.profile == profile);
    let shares = such.map(|(device, part)| share_of(device, part));
    shares.max().unwrap_or_default()
}

fn partition(spot: &NodeState<'_>, profile: crate::devices::MigProfile) -> Option<DeviceShare> {
    if spot.shut_parts.contains(&profile) {
        return None;
    }
    let devices = &spot.node.capacity.devices;
    devices
        .iter()
        .zip(&spot.devices)
        .zip(&spot.reserved)
        .filter(|((device, _), reserved)| !**reserved && takes_new(spot.node, device))
        .find_map(|((device, held), _)| {
            let (number, part) = (0..)
                .zip(&device.mig)
                .find(|(number, part)| part.profile == profile && !held.parts.contains(number))?;
            Some(DeviceShare {
                index: device.index,
                share: share_of(device, part),
                memory: part.memory,
                part: Some(number),
                simulated: device.simulated,
            })
        })
}
