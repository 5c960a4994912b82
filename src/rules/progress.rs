//! Row × report → what became of a session. What a report means for it; silence means nothing at all.

use crate::codes;
use crate::messages::{Assignment, ContainerStatus, NodeReport, ReportedState};
use crate::reason::Reason;
use crate::reasons;
use crate::session::{
    ContainerProgress, DesiredState, Outcome, Session, SessionChange, SessionContainer,
    SessionState, Transition,
};
use crate::units::Timestamp;
use crate::workload::container::MAIN;

/// What one complete report of a node changes about the containers that a session has there; empty where
/// nothing.
///
/// A node reports every container of the assignment it has taken in, also those it is only about to
/// make. So absence means something only in a report of exactly the `current` assignment; in any
/// other report it means that the node has not heard of the container yet.
pub fn advance(
    session: &Session,
    report: &NodeReport,
    current: Option<&Assignment>,
    now: Timestamp,
) -> Vec<SessionChange> {
    if !session.state().holds_resources() {
        return Vec::new();
    }
    let here = session
        .containers()
        .iter()
        .filter(|container| container.node == report.node && !container.is_over());
    here.filter_map(|container| {
        let name = session.container_name(container.index);
        if let Some(status) = report.containers.iter().find(|c| c.name == name) {
            return seen(session, container, status, now);
        }
        let named = current.is_some_and(|a| {
            a.generation == report.generation && a.containers.iter().any(|o| o.name == name)
        });
        named.then(|| {
            let gone = reasons::session_container_gone();
            end(session, container, Outcome::Lost, None, now, gone)
        })
    })
    .collect()
}

/// The containers of a session, by index, of which a report confirms that they are held to their present
/// grants, and that were not confirmed before; empty where there are none.
///
/// Only a report of exactly the assignment that carries the grant counts, and only what the machine says
/// it holds the container to: an older report may show the same shares by chance.
pub fn confirmed(session: &Session, report: &NodeReport, current: Option<&Assignment>) -> Vec<u32> {
    let Some(current) = current.filter(|a| a.generation == report.generation) else {
        return Vec::new();
    };
    let pending = session
        .containers()
        .iter()
        .filter(|container| !container.pending_devices.is_empty());
    pending
        .filter(|container| {
            let name = session.container_name(container.index);
            let told = current
                .containers
                .iter()
                .any(|o| o.name == name && o.devices == container.devices);
            let held = report
                .containers
                .iter()
                .any(|c| c.name == name && c.devices == container.devices);
            container.node == report.node && told && held
        })
        .map(|container| container.index)
        .collect()
}

fn seen(
    session: &Session,
    container: &SessionContainer,
    status: &ContainerStatus,
    now: Timestamp,
) -> Option<SessionChange> {
    let change = |to: Transition| SessionChange {
        session: session.id,
        container: container.index,
        seen: session.generation,
        to,
        reason: None,
    };
    let ends = |outcome, reason| end(session, container, outcome, None, now, reason);
    let wanted = session.state() != SessionState::Stopping;
    match &status.state {
        ReportedState::Preparing { fetching, .. } => (wanted
            && container.state == ContainerProgress::Scheduled
            && session.desired == DesiredState::Run)
            .then(|| SessionChange {
                reason: fetching.then(reasons::session_fetching_image),
                ..change(Transition::Preparing)
            }),
        ReportedState::Running { since, .. } => match container.state {
            ContainerProgress::Scheduled | ContainerProgress::Preparing if wanted => {
                Some(change(Transition::Running { started_at: *since }))
            }
            _ => None,
        },
        ReportedState::Stopping { .. } => None,
        ReportedState::Ended(exit) => {
            let (outcome, reason) = ending(session, container, exit.exit_code, exit.out_of_memory);
            Some(SessionChange {
                reason: Some(reason),
                ..change(Transition::Ended {
                    outcome,
                    exit_code: Some(exit.exit_code),
                    started_at: exit.started_at,
                    ended_at: exit.ended_at,
                })
            })
        }
        ReportedState::Lost { reason } => Some(ends(Outcome::Lost, reason.clone())),
        // Nothing was started because it was not wanted any more: that is a stop, not a refusal.
        ReportedState::Refused { reason } if session.desired != DesiredState::Run => {
            let told = session.reason.clone().unwrap_or_else(|| reason.clone());
            Some(ends(Outcome::Stopped, told))
        }
        ReportedState::Refused { reason } => Some(ends(Outcome::Refused, reason.clone())),
    }
}

/// The outcome and its reason for a known exit code of one container.
fn ending(
    session: &Session,
    container: &SessionContainer,
    code: i32,
    out_of_memory: bool,
) -> (Outcome, Reason) {
    let limit = session.spec.of_each().memory;
    if out_of_memory && code != 0 {
        return (Outcome::Failed, reasons::session_out_of_memory(limit));
    }
    // It was killed, with any exit code.
    if session.desired == DesiredState::Run
        && let Some(incident) = session.stopped_by_watchdog(container)
    {
        return (Outcome::Failed, incident.reason());
    }
    if session.desired != DesiredState::Run || session.state() == SessionState::Stopping {
        // The reason that was written with the desired state (a limit, a person) says more than the code.
        return match &session.reason {
            Some(reason) if reason.code == codes::SESSION_TIMEOUT => {
                (Outcome::Failed, reason.clone())
            }
            Some(reason) if reason.code.starts_with(codes::family::SESSION) => {
                (Outcome::Stopped, reason.clone())
            }
            _ => (Outcome::Stopped, reasons::session_stopped()),
        };
    }
    // Its command never ran.
    if let Some(reason) = &session.reason
        && reason.code == codes::SESSION_START_UP_ENDED
        && session.start_up.failed == Some(session.incarnation)
    {
        return (Outcome::Failed, reason.clone());
    }
    match code {
        // The whole session ends with it: its owner has to know which one it was.
        1.. if container.index != MAIN => {
            let reason = reasons::session_container_ended(container.role(), code);
            (Outcome::Failed, reason)
        }
        0 => (Outcome::Succeeded, reasons::session_succeeded()),
        129..=192 => {
            let signal = code - 128;
            (Outcome::Failed, reasons::session_signal(signal))
        }
        _ => (Outcome::Failed, reasons::session_exit_code(code)),
    }
}

fn end(
    session: &Session,
    container: &SessionContainer,
    outcome: Outcome,
    exit_code: Option<i32>,
    at: Timestamp,
    reason: Reason,
) -> SessionChange {
    SessionChange {
        session: session.id,
        container: container.index,
        seen: session.generation,
        to: Transition::Ended {
            outcome,
            exit_code,
            started_at: None,
            ended_at: at,
        },
        reason: Some(reason),
    }
}
