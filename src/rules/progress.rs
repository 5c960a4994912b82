//! Row × sight → the next phase. What a report means for a session; silence means nothing at all.

use crate::messages::{Assignment, ContainerStatus, NodeReport, ReportedState};
use crate::reason::Reason;
use crate::session::{DesiredState, Outcome, PhaseChange, Session, SessionState};
use crate::units::Timestamp;

/// What one complete report of a session's node changes about that session; None where nothing.
///
/// A node reports every container of the assignment it has taken in, also those it is only about to
/// make. So absence means something only in a report of exactly the `current` assignment; in any
/// other report it means that the node has not heard of the container yet.
pub fn advance(
    session: &Session,
    report: &NodeReport,
    current: Option<&Assignment>,
    now: Timestamp,
) -> Option<PhaseChange> {
    if session.node != Some(report.node) || !session.phase.holds_resources() {
        return None;
    }
    if let Some(sight) = report
        .containers
        .iter()
        .find(|c| c.name == session.container())
    {
        return seen(session, sight, now);
    }
    let named = current.is_some_and(|a| {
        a.generation == report.generation
            && a.containers.iter().any(|o| o.name == session.container())
    });
    named.then(|| {
        let gone = Reason::new(
            "session.container-gone",
            "Its container is gone and left no exit record.",
        );
        end(session, Outcome::Lost, None, now, gone)
    })
}

/// Whether a report confirms that a session's container is held to its present grant.
///
/// Only a report of exactly the assignment that carries this grant counts, and only what the machine says
/// it holds the container to: an older report may show the same shares by chance.
pub fn confirms(session: &Session, report: &NodeReport, current: Option<&Assignment>) -> bool {
    if session.pending_devices.is_empty() || session.node != Some(report.node) {
        return false;
    }
    let name = session.container();
    let told = current.is_some_and(|a| {
        a.generation == report.generation
            && a.containers
                .iter()
                .any(|o| o.name == name && o.devices == session.devices)
    });
    told && report
        .containers
        .iter()
        .any(|c| c.name == name && c.devices == session.devices)
}

fn seen(session: &Session, sight: &ContainerStatus, now: Timestamp) -> Option<PhaseChange> {
    let change = |to: SessionState| PhaseChange {
        session: session.id,
        seen: session.generation,
        to,
        started_at: session.started_at,
        ended_at: None,
        outcome: None,
        exit_code: None,
        reason: session.reason.clone(),
    };
    match &sight.state {
        ReportedState::Preparing { .. } => (session.phase == SessionState::Scheduled
            && session.desired == DesiredState::Run)
            .then(|| change(SessionState::Preparing)),
        ReportedState::Running { since, .. } => match session.phase {
            SessionState::Scheduled | SessionState::Preparing => {
                let mut change = change(SessionState::Running);
                change.started_at = Some(*since);
                Some(change)
            }
            _ => None,
        },
        ReportedState::Stopping { .. } => None,
        ReportedState::Ended(exit) => {
            let started_at = exit.started_at.or(session.started_at);
            let (outcome, reason) = ending(session, exit.exit_code, exit.out_of_memory);
            let mut change = end(
                session,
                outcome,
                Some(exit.exit_code),
                exit.ended_at,
                reason,
            );
            change.started_at = started_at;
            Some(change)
        }
        ReportedState::Lost { reason } => {
            Some(end(session, Outcome::Lost, None, now, reason.clone()))
        }
        // Nothing was started because it was not wanted any more: that is a stop, not a refusal.
        ReportedState::Refused { reason } if session.desired != DesiredState::Run => {
            let told = session.reason.clone().unwrap_or_else(|| reason.clone());
            Some(end(session, Outcome::Stopped, None, now, told))
        }
        ReportedState::Refused { reason } => {
            Some(end(session, Outcome::Refused, None, now, reason.clone()))
        }
    }
}

/// The outcome and its reason for a known exit code.
fn ending(session: &Session, code: i32, out_of_memory: bool) -> (Outcome, Reason) {
    let limit = session.spec.demand.memory;
    if out_of_memory && code != 0 {
        return (
            Outcome::Failed,
            Reason::new(
                "session.out-of-memory",
                format!("It was killed at its memory limit of {limit}."),
            )
            .with("limit", limit),
        );
    }
    // It was killed, with any exit code.
    if session.desired == DesiredState::Run
        && let Some(incident) = session.stopped_by_watchdog()
    {
        return (Outcome::Failed, incident.reason());
    }
    if session.desired != DesiredState::Run || session.phase == SessionState::Stopping {
        // The reason that was written with the wish (a limit, a person) says more than the code.
        return match &session.reason {
            Some(reason) if reason.code == "session.timeout" => (Outcome::Failed, reason.clone()),
            Some(reason) if reason.code.starts_with("session.") => {
                (Outcome::Stopped, reason.clone())
            }
            _ => (
                Outcome::Stopped,
                Reason::new("session.stopped", "It was stopped."),
            ),
        };
    }
    match code {
        0 => (
            Outcome::Succeeded,
            Reason::new("session.succeeded", "Its command ended with 0."),
        ),
        129..=192 => {
            let signal = code - 128;
            (
                Outcome::Failed,
                Reason::new(
                    "session.signal",
                    format!("Its command was ended by signal {signal}."),
                )
                .with("signal", signal),
            )
        }
        _ => (
            Outcome::Failed,
            Reason::new(
                "session.exit-code",
                format!("Its command ended with {code}."),
            )
            .with("code", code),
        ),
    }
}

fn end(
    session: &Session,
    outcome: Outcome,
    exit_code: Option<i32>,
    at: Timestamp,
    reason: Reason,
) -> PhaseChange {
    PhaseChange {
        session: session.id,
        seen: session.generation,
        to: SessionState::Ended,
        started_at: session.started_at,
        ended_at: Some(at),
        outcome: Some(outcome),
        exit_code,
        reason: Some(reason),
    }
}
