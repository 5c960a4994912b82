//! Sights → the complete report of this machine. Pure; the runtime's words become the link's words
//! here and nowhere else.

use rules::messages::{
    Answer, Assignment, ContainerSight, ExitRecord, Incident, SightState, Usage, Waited,
};
use rules::names::{BootId, ContainerName, IncidentId};
use rules::resources::DeviceShare;
use rules::session::Reason;
use rules::units::{Bytes, Timestamp};
use std::collections::BTreeMap;

use crate::assignment::Place;
use crate::gpu::watchdog;
use crate::runtime;
use crate::watch;

/// What the machine knows of containers besides the runtime's own sights.
pub(crate) struct Known<'a> {
    pub(crate) boot: BootId,
    pub(crate) assignment: Option<&'a Assignment>,
    pub(crate) places: &'a dyn Fn(ContainerName) -> Option<Place>,
    /// Those that could not be made, and why.
    pub(crate) refused: &'a BTreeMap<ContainerName, Reason>,
    /// The shares of devices that those which run are held to.
    pub(crate) grants: &'a BTreeMap<ContainerName, Vec<DeviceShare>>,
    /// Those told to end, and since when.
    pub(crate) stopping: &'a BTreeMap<ContainerName, Timestamp>,
}

/// Every container that exists, was refused, or was lost with an earlier boot, in the order of
/// their names. What steps are decided from.
pub(crate) fn sights(
    seen: &[runtime::ContainerSight],
    usage: &BTreeMap<ContainerName, Usage>,
    known: &Known<'_>,
) -> Vec<ContainerSight> {
    let mut all: BTreeMap<ContainerName, ContainerSight> = BTreeMap::new();
    for sight in seen {
        let Ok(name) = sight.name.as_str().parse::<ContainerName>() else {
            continue;
        };
        let mut state = state(&sight.standing);
        if let (SightState::Running { .. }, Some(since)) = (&state, known.stopping.get(&name)) {
            state = SightState::Stopping { since: *since };
        }
        all.insert(
            name,
            ContainerSight {
                name,
                state,
                usage: usage.get(&name).copied(),
                devices: known.grants.get(&name).cloned().unwrap_or_default(),
            },
        );
    }
    for (name, reason) in known.refused {
        let state = SightState::Refused {
            reason: reason.clone(),
        };
        all.entry(*name).or_insert(ContainerSight {
            name: *name,
            state,
            usage: None,
            devices: Vec::new(),
        });
    }
    for name in assigned(known) {
        let lost = (known.places)(name).is_some_and(|place| place.boot != known.boot);
        if lost && !all.contains_key(&name) {
            let reason = Reason::new(
                "session.machine-restarted",
                "The machine restarted while it ran.",
            );
            all.insert(
                name,
                ContainerSight {
                    name,
                    state: SightState::Lost { reason },
                    usage: None,
                    devices: Vec::new(),
                },
            );
        }
    }
    all.into_values().collect()
}

/// The same, with everything of the assignment that is not made yet: what a report says.
pub(crate) fn complete(mut sights: Vec<ContainerSight>, known: &Known<'_>) -> Vec<ContainerSight> {
    let there: std::collections::BTreeSet<ContainerName> = sights.iter().map(|s| s.name).collect();
    sights.extend(
        assigned(known)
            .filter(|name| !there.contains(name))
            .map(|name| ContainerSight {
                name,
                state: SightState::Preparing {
                    step: "waiting for its turn".into(),
                },
                usage: None,
                devices: Vec::new(),
            }),
    );
    sights
}

fn assigned<'a>(known: &Known<'a>) -> impl Iterator<Item = ContainerName> + use<'a> {
    known
        .assignment
        .map_or(&[][..], |a| &a.containers)
        .iter()
        .map(|order| order.name)
}

fn state(standing: &runtime::Standing) -> SightState {
    match standing {
        runtime::Standing::Preparing => SightState::Preparing {
            step: "mounting its file system".into(),
        },
        runtime::Standing::Starting => SightState::Preparing {
            step: "starting its first process".into(),
        },
        runtime::Standing::Running { since, paused, .. } => SightState::Running {
            since: time(*since),
            paused: *paused,
        },
        runtime::Standing::Ended(exit) => match (exit.started_at, &exit.reason) {
            (None, Some(reason)) => SightState::Refused {
                reason: Reason::new("session.not-started", reason.clone()),
            },
            _ => SightState::Ended(ExitRecord {
                exit_code: exit.code,
                started_at: exit.started_at.map(time),
                ended_at: time(exit.ended_at),
                out_of_memory: exit.oom_killed,
                peak_memory: None,
            }),
        },
        runtime::Standing::Lost { why } => SightState::Lost {
            reason: Reason::new("session.supervisor-lost", why.clone()),
        },
    }
}

/// What the watchdog answered, in the link's words; None for a container that is no session's.
pub(crate) fn incident(told: &watch::Incident) -> Option<Incident> {
    Some(Incident {
        id: IncidentId(told.id),
        at: told.at,
        container: told.container.as_str().parse().ok()?,
        device: format!("GPU-{}", uuid::Uuid::from_bytes(told.device)),
        answer: match told.answer {
            watchdog::Answer::Warn => Answer::Warned,
            watchdog::Answer::Freeze => Answer::Frozen,
            watchdog::Answer::Stop => Answer::Stopped,
            watchdog::Answer::Clear => Answer::Cleared,
        },
        held: Bytes(told.held),
        limit: Bytes(told.limit),
    })
}

pub(crate) fn usage(usage: &runtime::Usage) -> Usage {
    Usage {
        cpu_microseconds: usage.cpu_microseconds,
        memory: Bytes(usage.memory_bytes),
        processes: usage.pids,
        waited: usage
            .waited_microseconds
            .map(|(cpu_microseconds, memory_microseconds)| Waited {
                cpu_microseconds,
                memory_microseconds,
            }),
    }
}

fn time(millis: u64) -> Timestamp {
    Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}
