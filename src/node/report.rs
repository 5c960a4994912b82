//! Sights → the complete report of this machine. Pure; the runtime's words become the link's words
//! here and nowhere else.

use rules::devices::Health;
use rules::incident::{EnforcementAction, MemoryIncident};
use rules::messages::{
    Assignment, ContainerStatus, ContainerUsage, ExitRecord, ReportedState, Waited,
};
use rules::names::{BootId, ContainerName, IncidentId};
use rules::reason::Reason;
use rules::reasons;
use rules::resources::{Device, DeviceShare};
use rules::units::{Bytes, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

use crate::assignment::IdBlock;
use crate::enforcer;
use crate::gpu::watchdog;
use crate::runtime;

/// What the machine knows of containers besides the runtime's own sights.
pub(crate) struct ReportInputs<'a> {
    pub(crate) boot: BootId,
    pub(crate) assignment: Option<&'a Assignment>,
    pub(crate) places: &'a dyn Fn(ContainerName) -> Option<IdBlock>,
    /// Those that could not be made, and why.
    pub(crate) refused: &'a BTreeMap<ContainerName, Reason>,
    /// Those whose image is on its way from the server.
    pub(crate) fetching: &'a BTreeSet<ContainerName>,
    /// The shares of devices that those which run are held to.
    pub(crate) grants: &'a BTreeMap<ContainerName, Vec<DeviceShare>>,
    /// Those told to end, and since when.
    pub(crate) stopping: &'a BTreeMap<ContainerName, Timestamp>,
}

/// Every container that exists, was refused, or was lost with an earlier boot, in the order of
/// their names. What steps are decided from.
pub(crate) fn sights(
    seen: &[runtime::ContainerState],
    usage: &BTreeMap<ContainerName, ContainerUsage>,
    known: &ReportInputs<'_>,
) -> Vec<ContainerStatus> {
    let mut all: BTreeMap<ContainerName, ContainerStatus> = BTreeMap::new();
    for sight in seen {
        let Ok(name) = sight.name.as_str().parse::<ContainerName>() else {
            continue;
        };
        let mut state = state(&sight.standing);
        if let (ReportedState::Running { .. }, Some(since)) = (&state, known.stopping.get(&name)) {
            state = ReportedState::Stopping { since: *since };
        }
        all.insert(
            name,
            ContainerStatus {
                name,
                state,
                usage: usage.get(&name).cloned(),
                devices: known.grants.get(&name).cloned().unwrap_or_default(),
                ran: match &sight.standing {
                    runtime::RuntimePhase::Running { pid, .. } => runtime::ran_millis(*pid),
                    _ => None,
                },
            },
        );
    }
    for (name, reason) in known.refused {
        let state = ReportedState::Refused {
            reason: reason.clone(),
        };
        all.entry(*name).or_insert(ContainerStatus {
            name: *name,
            state,
            usage: None,
            devices: Vec::new(),
            ran: None,
        });
    }
    for name in assigned(known) {
        let lost = (known.places)(name).is_some_and(|place| place.boot != known.boot);
        if lost && !all.contains_key(&name) {
            let reason = reasons::session_machine_restarted();
            all.insert(
                name,
                ContainerStatus {
                    name,
                    state: ReportedState::Lost { reason },
                    usage: None,
                    devices: Vec::new(),
                    ran: None,
                },
            );
        }
    }
    all.into_values().collect()
}

/// The same, with everything of the assignment that is not made yet: what a report says.
pub(crate) fn complete(
    mut sights: Vec<ContainerStatus>,
    known: &ReportInputs<'_>,
) -> Vec<ContainerStatus> {
    let there: BTreeSet<ContainerName> = sights.iter().map(|s| s.name).collect();
    sights.extend(
        assigned(known)
            .filter(|name| !there.contains(name))
            .map(|name| {
                let fetching = known.fetching.contains(&name);
                let step = match fetching {
                    true => "fetching its image",
                    false => "waiting for its turn",
                };
                ContainerStatus {
                    name,
                    state: ReportedState::Preparing {
                        step: step.into(),
                        fetching,
                    },
                    usage: None,
                    devices: Vec::new(),
                    ran: None,
                }
            }),
    );
    sights
}

fn assigned<'a>(known: &ReportInputs<'a>) -> impl Iterator<Item = ContainerName> + use<'a> {
    known
        .assignment
        .map_or(&[][..], |a| &a.containers)
        .iter()
        .map(|order| order.name)
}

fn state(standing: &runtime::RuntimePhase) -> ReportedState {
    match standing {
        runtime::RuntimePhase::Preparing => ReportedState::Preparing {
            step: "mounting its file system".into(),
            fetching: false,
        },
        runtime::RuntimePhase::Starting => ReportedState::Preparing {
            step: "starting its first process".into(),
            fetching: false,
        },
        runtime::RuntimePhase::Running { since, paused, .. } => ReportedState::Running {
            since: time(*since),
            paused: *paused,
        },
        runtime::RuntimePhase::Ended(exit) => match (exit.started_at, &exit.reason) {
            (None, Some(reason)) => ReportedState::Refused {
                reason: reasons::session_not_started_because(reason),
            },
            _ => ReportedState::Ended(ExitRecord {
                exit_code: exit.code,
                started_at: exit.started_at.map(time),
                ended_at: time(exit.ended_at),
                out_of_memory: exit.oom_killed,
                peak_memory: None,
            }),
        },
        runtime::RuntimePhase::Lost { why } => ReportedState::Lost {
            reason: reasons::session_supervisor_lost(why),
        },
    }
}

/// What people are told where supervisors do not answer; None where all do.
pub(crate) fn silent(names: &[runtime::RuntimeName]) -> Option<Reason> {
    let first = names.first()?;
    let count = names.len();
    Some(reasons::node_supervisor_silent(count, first))
}

/// What the watchdog answered, in the link's words; None for a container that is no session's.
pub(crate) fn incident(told: &enforcer::WatchIncident) -> Option<MemoryIncident> {
    Some(MemoryIncident {
        id: IncidentId(told.id),
        at: told.at,
        container: told.container.as_str().parse().ok()?,
        device: format!("GPU-{}", uuid::Uuid::from_bytes(told.device)),
        answer: match told.answer {
            watchdog::WatchdogAction::Warn => EnforcementAction::Warned,
            watchdog::WatchdogAction::Freeze => EnforcementAction::Frozen,
            watchdog::WatchdogAction::Stop => EnforcementAction::Stopped,
            watchdog::WatchdogAction::Clear => EnforcementAction::Cleared,
        },
        held: Bytes(told.held),
        limit: Bytes(told.limit),
    })
}

pub(crate) fn usage(usage: &runtime::RuntimeUsage) -> ContainerUsage {
    ContainerUsage {
        cpu_microseconds: usage.cpu_microseconds,
        memory: Bytes(usage.memory_bytes),
        processes: usage.pids,
        waited: usage
            .waited_microseconds
            .map(|(cpu_microseconds, memory_microseconds)| Waited {
                cpu_microseconds,
                memory_microseconds,
            }),
        devices: Vec::new(),
    }
}

fn time(millis: u64) -> Timestamp {
    Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}

/// Says on each card that a container has a share of and cannot be held to it, why not. A card with trouble
/// of its own goes on to say that.
pub(crate) fn tell_unheld(
    devices: &mut [Device],
    unheld: &BTreeMap<ContainerName, Reason>,
    assignment: Option<&Assignment>,
) {
    let orders = assignment.into_iter().flat_map(|all| &all.containers);
    for order in orders {
        let Some(reason) = unheld.get(&order.name) else {
            continue;
        };
        for device in devices.iter_mut() {
            let has_some = order.devices.iter().any(|own| own.index == device.index);
            if has_some && matches!(device.health, Health::Well | Health::Unknown) {
                device.health = Health::Worn {
                    text: reason.text.clone(),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rules::messages::{ContainerOrder, RootFileSystem, Want};
    use rules::names::{NodeId, SessionId};
    use rules::resources::Demand;
    use rules::session::SessionKind;
    use rules::units::GpuShare;

    use super::*;

    #[test]
    fn a_card_says_why_somebody_on_it_cannot_be_held_to_their_share() {
        let name = |number| ContainerName {
            session: SessionId(uuid::Uuid::from_u128(number)),
            incarnation: 1,
            index: 0,
        };
        let order = |number, index| ContainerOrder {
            name: name(number),
            hostname: "x".into(),
            kind: SessionKind::Interactive,
            root: RootFileSystem::Host,
            command: Vec::new(),
            env: BTreeMap::new(),
            demand: Demand::default(),
            devices: vec![DeviceShare {
                index,
                share: GpuShare(35),
                memory: Bytes::gib(28),
                part: None,
                simulated: false,
            }],
            mounts: Vec::new(),
            networks: Vec::new(),
            egress: None,
            sudo: false,
            ulimits: rules::process_limits::ProcessLimits::USUAL,
            want: Want::Run,
            stop_grace_seconds: None,
            start_up: rules::start_up::StartUp::default(),
        };
        let assignment = Assignment {
            node: NodeId(uuid::Uuid::from_u128(9)),
            generation: 1,
            containers: vec![order(1, 0), order(2, 1), order(3, 2)],
            partitions: Vec::new(),
            state: None,
            accepted: false,
        };
        let mut devices: Vec<Device> = (0..3).map(|index| Device::new(index, "card")).collect();
        devices[0].health = Health::Well;
        devices[1].health = Health::Well;
        devices[2].health = Health::Failing {
            text: "It fell off.".into(),
        };
        let reason = Reason::from_parts("gpu.page-version".into(), "Of another version.".into());
        let unheld = [(name(1), reason.clone()), (name(3), reason)].into();
        tell_unheld(&mut devices, &unheld, Some(&assignment));
        let health: Vec<&str> = devices.iter().map(|device| device.health.word()).collect();
        assert_eq!(health, ["worn", "well", "failing"]);
        assert!(
            matches!(&devices[0].health, Health::Worn { text } if text == "Of another version.")
        );
    }
}
