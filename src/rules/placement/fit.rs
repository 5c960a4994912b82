//! Where a demand fits, and why not. Devices: the fullest one that still holds the share, so that
//! whole devices stay whole.

use std::collections::BTreeMap;

use crate::names::NodeId;
use crate::placement::{Blocker, free};
use crate::refusal::Refusal;
use crate::resources::{Demand, DeviceShare, Used};
use crate::session::{Environment, Reason};
use crate::units::{GpuShare, Timestamp};
use crate::world::{Node, World};

pub(super) struct Place {
    pub(super) node: NodeId,
    pub(super) devices: Vec<DeviceShare>,
    pub(super) because: Reason,
}

const WHOLE: GpuShare = GpuShare(100);

/// The node with the least memory left after it takes the demand; None where none has room.
pub(super) fn best(
    world: &World,
    used: &BTreeMap<NodeId, Used>,
    demand: &Demand,
    environment: &Environment,
    now: Timestamp,
) -> Option<Place> {
    let nothing = Used::default();
    world
        .nodes
        .iter()
        .filter(|node| usable(node, environment, now).is_none())
        .filter_map(|node| {
            let held = used.get(&node.id).unwrap_or(&nothing);
            let (cpu, memory) = free(node, held);
            if cpu < demand.cpu || memory < demand.memory {
                return None;
            }
            let devices = devices(node, held, demand.gpu)?;
            let left = memory.saturating_sub(demand.memory);
            let because = reason(node, held, &devices, demand);
            Some((
                left,
                Place {
                    node: node.id,
                    devices,
                    because,
                },
            ))
        })
        .min_by_key(|(left, place)| (*left, place.node))
        .map(|(_, place)| place)
}

fn reason(node: &Node, held: &Used, devices: &[DeviceShare], demand: &Demand) -> Reason {
    let (cpu, memory) = free(node, held);
    if let [part] = devices
        && part.share < WHOLE
    {
        return Reason::new(
            "placement.fullest-device",
            format!(
                "{}, device {}: the fullest one that still holds {}.",
                node.name, part.index, part.share
            ),
        )
        .with("node", &node.name)
        .with("device", part.index)
        .with("share", part.share);
    }
    Reason::new(
        "placement.room",
        format!(
            "{} has room: {} of {} cores and {} of {} are free.",
            node.name, cpu, node.capacity.cpu, memory, node.capacity.memory
        ),
    )
    .with("node", &node.name)
    .with("cpu", demand.cpu)
    .with("memory", demand.memory)
}

/// Shares of devices for this demand: one device for a fraction, whole empty ones for a whole
/// number. None where they are not free. Empty for no device.
fn devices(node: &Node, held: &Used, wanted: GpuShare) -> Option<Vec<DeviceShare>> {
    if wanted == GpuShare::ZERO {
        return Some(Vec::new());
    }
    let left =
        |index: u32| WHOLE.saturating_sub(held.devices.get(&index).copied().unwrap_or_default());
    if wanted < WHOLE {
        return node
            .capacity
            .devices
            .iter()
            .filter(|d| left(d.index) >= wanted)
            .min_by_key(|d| (left(d.index), d.index))
            .map(|d| {
                vec![DeviceShare {
                    index: d.index,
                    share: wanted,
                }]
            });
    }
    let whole = (wanted.0 / 100) as usize;
    let empty: Vec<DeviceShare> = node
        .capacity
        .devices
        .iter()
        .filter(|d| left(d.index) == WHOLE)
        .take(whole)
        .map(|d| DeviceShare {
            index: d.index,
            share: WHOLE,
        })
        .collect();
    (wanted.0.is_multiple_of(100) && empty.len() == whole).then_some(empty)
}

/// Why a node takes nobody now; None when it does.
fn usable(node: &Node, environment: &Environment, now: Timestamp) -> Option<Blocker> {
    let say = |code: &str, text: String| {
        Some(Blocker {
            code: code.into(),
            text,
            params: [("node".to_owned(), node.name.clone())].into(),
            ends_with: None,
        })
    };
    if node.is_silent(now) {
        return say(
            "node.silent",
            format!(
                "{} has not answered for {} s.",
                node.name,
                now.seconds_since(node.seen_at)
            ),
        );
    }
    if !node.schedulable {
        return say(
            "node.cordoned",
            format!("{} takes no new sessions.", node.name),
        );
    }
    if let Some(problem) = node
        .problems
        .iter()
        .find(|p| p.code.starts_with("node.refuses"))
    {
        return say(&problem.code, problem.text.clone());
    }
    if *environment == Environment::Host && !node.host_environment {
        return say(
            "environment.host-off",
            format!(
                "{} does not offer its own programs as an environment.",
                node.name
            ),
        );
    }
    None
}

/// Everything that keeps the demand from every node; empty where it fits somewhere.
pub(super) fn blockers(
    world: &World,
    used: &BTreeMap<NodeId, Used>,
    demand: &Demand,
    environment: &Environment,
    now: Timestamp,
) -> Vec<Blocker> {
    if world.nodes.is_empty() {
        return vec![Blocker {
            code: "node.none".into(),
            text: "No machine has reported yet.".into(),
            params: BTreeMap::new(),
            ends_with: None,
        }];
    }
    if best(world, used, demand, environment, now).is_some() {
        return Vec::new();
    }
    let nothing = Used::default();
    let mut found = Vec::new();
    for node in &world.nodes {
        if let Some(blocker) = usable(node, environment, now) {
            found.push(blocker);
            continue;
        }
        let held = used.get(&node.id).unwrap_or(&nothing);
        let (cpu, memory) = free(node, held);
        let short = |code: &str, need: String, free: String, text: String| Blocker {
            code: code.into(),
            text,
            params: [
                ("node".to_owned(), node.name.clone()),
                ("need".to_owned(), need),
                ("free".to_owned(), free),
            ]
            .into(),
            ends_with: None,
        };
        if cpu < demand.cpu {
            found.push(short(
                "cpu.short",
                demand.cpu.to_string(),
                cpu.to_string(),
                format!(
                    "It needs {} cores; {} has {} free.",
                    demand.cpu, node.name, cpu
                ),
            ));
        }
        if memory < demand.memory {
            found.push(short(
                "memory.short",
                demand.memory.to_string(),
                memory.to_string(),
                format!(
                    "It needs {} of memory; {} has {} free.",
                    demand.memory, node.name, memory
                ),
            ));
        }
        if devices(node, held, demand.gpu).is_none() {
            let largest = node
                .capacity
                .devices
                .iter()
                .map(|d| {
                    WHOLE.saturating_sub(held.devices.get(&d.index).copied().unwrap_or_default())
                })
                .max()
                .unwrap_or_default();
            let total: GpuShare = node
                .capacity
                .devices
                .iter()
                .map(|d| {
                    WHOLE.saturating_sub(held.devices.get(&d.index).copied().unwrap_or_default())
                })
                .sum();
            let code = if total >= demand.gpu {
                "gpu.fragmented"
            } else {
                "gpu.short"
            };
            found.push(short(
                code,
                demand.gpu.to_string(),
                largest.to_string(),
                format!(
                    "It needs {} of a device; the largest free piece on {} is {}.",
                    demand.gpu, node.name, largest
                ),
            ));
        }
    }
    found
}

/// Refuses what no machine could hold even when empty, naming the largest request that one could.
pub(super) fn possible(
    world: &World,
    demand: &Demand,
    environment: &Environment,
) -> Result<(), Refusal> {
    if world.nodes.is_empty() {
        // Nothing is known yet; the session waits and says so.
        return Ok(());
    }
    if *environment == Environment::Host && !world.nodes.iter().any(|n| n.host_environment) {
        return Err(Refusal::invalid(
            "environment.host-off",
            "No machine offers its own programs as an environment.",
        )
        .at("/image")
        .hint("Choose an imported image."));
    }
    // A machine that cannot run containers at all will not learn it while a session waits.
    let refusing = |n: &Node| {
        n.problems
            .iter()
            .find(|p| p.code.starts_with("node.refuses"))
            .cloned()
    };
    if let Some(Some(problem)) = world.nodes.iter().map(refusing).reduce(|a, b| a.and(b)) {
        return Err(
            Refusal::unavailable(problem.code, "No machine here can run containers.")
                .hint(problem.text),
        );
    }
    if demand.gpu.0 > 100 && !demand.gpu.0.is_multiple_of(100) {
        return Err(Refusal::invalid(
            "gpu.not-whole",
            "More than one device is given in whole devices only.",
        )
        .at("/resources/gpu")
        .hint(format!(
            "{} would work.",
            GpuShare(demand.gpu.0 / 100 * 100)
        )));
    }
    let empty = Used::default();
    let fits = |n: &Node| {
        n.capacity.cpu >= demand.cpu
            && n.capacity.memory >= demand.memory
            && devices(n, &empty, demand.gpu).is_some()
    };
    if world.nodes.iter().any(fits) {
        return Ok(());
    }
    let most_cpu = world
        .nodes
        .iter()
        .map(|n| n.capacity.cpu)
        .max()
        .unwrap_or_default();
    let most_memory = world
        .nodes
        .iter()
        .map(|n| n.capacity.memory)
        .max()
        .unwrap_or_default();
    let most_devices = world
        .nodes
        .iter()
        .map(|n| n.capacity.devices.len())
        .max()
        .unwrap_or_default();
    let (code, pointer, text, hint) = if demand.cpu > most_cpu {
        (
            "cpu.too-large",
            "/resources/cpu",
            format!("No machine here has {} cores.", demand.cpu),
            format!("{most_cpu} is the most one session can have."),
        )
    } else if demand.memory > most_memory {
        (
            "memory.too-large",
            "/resources/memory",
            format!(
                "No machine here has {} of memory for sessions.",
                demand.memory
            ),
            format!("{most_memory} is the most one session can have."),
        )
    } else if most_devices == 0 {
        (
            "gpu.none",
            "/resources/gpu",
            "No machine here has a GPU.".to_owned(),
            "A session without a GPU would start.".to_owned(),
        )
    } else if (demand.gpu.0 as usize).div_ceil(100) > most_devices {
        (
            "gpu.too-large",
            "/resources/gpu",
            format!("No machine here has {} devices.", demand.gpu),
            format!("{most_devices} is the most one session can have."),
        )
    } else {
        (
            "resources.too-large",
            "/resources",
            "No single machine here has all of this together.".to_owned(),
            "Ask for less of one of them.".to_owned(),
        )
    };
    Err(Refusal::capacity(code, text).at(pointer).hint(hint))
}
