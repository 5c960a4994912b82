//! What is wrong with this world: the invariants of the catalog. The simulation asserts that the
//! list is empty after every step; the diagnostics page shows it.

use serde::{Deserialize, Serialize};

use crate::devices::WHOLE;
use crate::notice::Notice;
use crate::notices;
use crate::session::SessionState;
use crate::world::ClusterSnapshot;

/// One broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvariantFinding {
    pub code: String,
    /// One English sentence with the names in it.
    pub text: String,
}

impl From<Notice> for InvariantFinding {
    fn from(notice: Notice) -> Self {
        let Notice { code, text, hint } = notice;
        Self {
            code: code.to_owned(),
            text: match hint.is_empty() {
                true => text,
                false => format!("{text} {hint}"),
            },
        }
    }
}

/// Lists every broken invariant; empty for a sound world. Costs one visit a session.
pub fn findings(world: &ClusterSnapshot) -> Vec<InvariantFinding> {
    let mut found = Vec::new();
    let mut say = |notice: Notice| found.push(InvariantFinding::from(notice));
    let mut names = std::collections::BTreeSet::new();
    for s in &world.sessions {
        if !names.insert((s.owner, s.name.as_str())) {
            say(notices::session_name_twice(&s.name));
        }
        if s.state() == SessionState::Ended {
            say(notices::session_ended_live(&s.name));
        }
        if s.incarnation == 0 || s.generation == 0 {
            say(notices::session_zero(&s.name));
        }
    }
    for (id, used) in world.used() {
        let Some(node) = world.node(id) else {
            say(notices::node_unknown(id));
            continue;
        };
        let cpu_room = world.cpu_room(node);
        if used.cpu > cpu_room {
            say(notices::cpu_overcommitted(&node.name, used.cpu, cpu_room));
        }
        if used.memory > node.capacity.memory {
            say(notices::memory_overcommitted(
                &node.name,
                used.memory,
                node.capacity.memory,
            ));
        }
        for (index, held) in &used.devices {
            let device = node.capacity.devices.iter().find(|d| d.index == *index);
            let memory = device.map_or(held.memory, |d| d.memory);
            if held.share > WHOLE || held.memory > memory {
                say(notices::device_overcommitted(
                    index,
                    &node.name,
                    held.share,
                    held.memory,
                    memory,
                ));
            }
        }
    }
    let mut taken = std::collections::BTreeSet::new();
    for s in &world.sessions {
        for container in s.live_containers() {
            for part in container.devices.iter().filter(|d| d.part.is_some()) {
                if !taken.insert((container.node, part.index, part.part)) {
                    say(notices::device_part_twice(&s.name));
                }
            }
        }
    }
    found
}
