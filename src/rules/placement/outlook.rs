//! When a waiting session starts, in words: the start that the forecast knows, or why it knows none. Each case has a
//! sentence of its own, and page, preview, API and CLI show the same one.

use serde::{Deserialize, Serialize};

use super::feasibility::{closed, could};
use super::forecast::QueueForecast;
use crate::blocker::PlacementBlocker;
use crate::codes;
use crate::notices;
use crate::reason::Reason;
use crate::reasons;
use crate::session::{Session, SessionEnvironment};
use crate::units::Timestamp;
use crate::world::ClusterSnapshot;

/// When a waiting session would start. `None` everywhere means unknown, and pages say so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eta {
    pub p50_seconds: u64,
    pub p90_seconds: u64,
    /// What the estimate rests on, one English sentence.
    pub basis: String,
    /// The same as a point in time, which does not move while the reader looks.
    #[serde(default)]
    pub at: Timestamp,
}

/// What is said of a start: the sentence, and the time where it is known.
pub(super) type Outlook = (Reason, Option<Eta>);

/// The outlook of one that is held, or waits for a time, a window or another session.
pub(super) fn gated(
    world: &ClusterSnapshot,
    session: &Session,
    blocker: &PlacementBlocker,
    now: Timestamp,
) -> Outlook {
    let scheduled = |at: Timestamp| -> Outlook {
        let basis = notices::explain_scheduled().text;
        (reasons::start_scheduled(at), Some(eta(at, now, basis)))
    };
    let shut = || -> Outlook { (reasons::start_after_window(), None) };
    match (blocker.code.as_str(), session.spec.start_at) {
        // Its time may lie in a window that does not take it.
        (codes::START_LATER, Some(start)) if world.groups.is_shut(session, start) => {
            let opens = world.groups.opens(session, start);
            opens.map_or_else(shut, scheduled)
        }
        (codes::START_LATER, Some(start)) => scheduled(start),
        (codes::SESSION_HELD, _) => (reasons::start_on_release(), None),
        (codes::WINDOW_CLOSED | codes::WINDOW_NEVER, _) => {
            let opens = world.groups.opens(session, now);
            opens.map_or_else(shut, scheduled)
        }
        (codes::GROUP_NOT_ALLOWED, _) => (reasons::start_after_access(), None),
        _ => (reasons::start_after_dependency(), None),
    }
}

/// The outlook of one that waits for room, because of these blockers.
pub(super) fn waiting(
    world: &ClusterSnapshot,
    known: &QueueForecast,
    session: &Session,
    blockers: &[PlacementBlocker],
    now: Timestamp,
) -> Outlook {
    if let Some(start) = known.starts.get(&session.id)
        && let Some(after) = start.after
    {
        let (reason, basis) = match world.session(after) {
            // One that only joined the queue then ends nothing.
            Some(ends) if ends.spec.start_at != Some(start.at) => {
                // A restart in its place moved the start that was told before.
                let because = ends.reason.as_ref();
                let reason = match because.is_some_and(|r| r.code == codes::PLACEMENT_KEPT) {
                    true => reasons::start_expected_again(start.at, &ends.name),
                    false => reasons::start_expected(start.at, &ends.name),
                };
                (reason, notices::explain_limit_reached(&ends.name).text)
            }
            _ => (
                reasons::start_expected_other(start.at),
                notices::explain_limits_reached().text,
            ),
        };
        return (reason, Some(eta(start.at, now, basis)));
    }
    let own = |blocker: &PlacementBlocker| blocker.code == codes::GPU_QUOTA;
    let group = world.groups.of_session(session.id);
    let reach = known.reach(group);
    let unknown = match () {
        () if blockers.iter().any(own) => reasons::start_own_first(),
        () if !some_node(world, session, now) => reasons::start_no_node(),
        () if !some_open(world, session, now) => reasons::start_cordoned(),
        () if reach.by_priority => reasons::start_by_priority(),
        () if !reach.complete => match world.groups.next_change(group, now) {
            Some(at) => reasons::start_window_changes(at),
            None => reasons::start_too_long(),
        },
        () if reach.some_limit => reasons::start_too_few_limits(),
        () => reasons::start_no_limits(),
    };
    (unknown, None)
}

/// Whether a node that takes new sessions could hold it, were it empty.
fn some_node(world: &ClusterSnapshot, session: &Session, now: Timestamp) -> bool {
    let host = session.spec.environment == SessionEnvironment::Host;
    let group = world.groups.of_session(session.id);
    let mut open = world
        .nodes
        .iter()
        .filter(|node| world.groups.of_node(node.id) == group && closed(node, now).is_none());
    open.any(|node| could(node, &session.spec.demand, host))
}

/// The same without devices that take no new sessions.
fn some_open(world: &ClusterSnapshot, session: &Session, now: Timestamp) -> bool {
    if world.nodes.iter().all(|node| node.cordoned.is_empty()) {
        return true;
    }
    let mut open = ClusterSnapshot {
        nodes: world.nodes.clone(),
        groups: world.groups.clone(),
        ..ClusterSnapshot::default()
    };
    for node in &mut open.nodes {
        let cordoned = &node.cordoned;
        let devices = &mut node.capacity.devices;
        devices.retain(|device| !cordoned.contains(&device.uuid));
    }
    some_node(&open, session, now)
}

fn eta(at: Timestamp, now: Timestamp, basis: String) -> Eta {
    let seconds = at.seconds_since(now);
    Eta {
        p50_seconds: seconds,
        p90_seconds: seconds,
        basis,
        at,
    }
}
