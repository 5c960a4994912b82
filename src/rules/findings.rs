//! What is wrong with this world: the invariants of the catalog. The simulation asserts that the
//! list is empty after every step; the diagnostics page shows it.

use serde::{Deserialize, Serialize};

use crate::devices::WHOLE;
use crate::session::SessionState;
use crate::world::ClusterSnapshot;

/// One broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvariantFinding {
    pub code: String,
    /// One English sentence with the names in it.
    pub text: String,
}

/// Lists every broken invariant; empty for a sound world. Costs one visit a session.
pub fn findings(world: &ClusterSnapshot) -> Vec<InvariantFinding> {
    let mut found = Vec::new();
    let mut say = |code: &str, text: String| {
        found.push(InvariantFinding {
            code: code.into(),
            text,
        })
    };
    let mut names = std::collections::BTreeSet::new();
    for s in &world.sessions {
        if !names.insert((s.owner, s.name.as_str())) {
            say(
                "session.name-twice",
                format!("Two live sessions of one owner are called {}.", s.name),
            );
        }
        if s.state() == SessionState::Ended {
            say(
                "session.ended-live",
                format!("{} is over and yet listed as live.", s.name),
            );
        }
        if s.incarnation == 0 || s.generation == 0 {
            say(
                "session.zero",
                format!("{} has incarnation or generation 0.", s.name),
            );
        }
    }
    for (id, used) in world.used() {
        let Some(node) = world.node(id) else {
            say(
                "node.unknown",
                format!("Sessions are placed on {id}, which does not exist."),
            );
            continue;
        };
        if used.cpu > node.capacity.cpu {
            say(
                "cpu.overcommitted",
                format!(
                    "{} gives {} of {} cores.",
                    node.name, used.cpu, node.capacity.cpu
                ),
            );
        }
        if used.memory > node.capacity.memory {
            say(
                "memory.overcommitted",
                format!(
                    "{} gives {} of {}.",
                    node.name, used.memory, node.capacity.memory
                ),
            );
        }
        for (index, held) in &used.devices {
            let device = node.capacity.devices.iter().find(|d| d.index == *index);
            let memory = device.map_or(held.memory, |d| d.memory);
            if held.share > WHOLE || held.memory > memory {
                say(
                    "device.overcommitted",
                    format!(
                        "Device {index} of {} gives {} of itself and {} of {memory}.",
                        node.name, held.share, held.memory
                    ),
                );
            }
        }
    }
    let mut taken = std::collections::BTreeSet::new();
    for s in &world.sessions {
        for container in s.live_containers() {
            for part in container.devices.iter().filter(|d| d.part.is_some()) {
                if !taken.insert((container.node, part.index, part.part)) {
                    say(
                        "device.part-twice",
                        format!("{} has a partition that another session has too.", s.name),
                    );
                }
            }
        }
    }
    found
}
