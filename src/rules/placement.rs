//! Decides which waiting session goes where. Same world in, same answer out.
//! Never reads a clock, a file or the catalog; the caller brings the world and `now`.

use serde::{Deserialize, Serialize};

use crate::codes;
use crate::names::{NodeId, ResourceGroupId, SessionId};
use crate::reason::Reason;
use crate::reasons;
use crate::resources::{Demand, DeviceShare};
use crate::session::{DesiredState, Outcome, SessionEnvironment, SessionState};
use crate::units::Timestamp;
use crate::world::ClusterSnapshot;

mod backfill;
mod bounds;
mod choice;
mod cluster_state;
pub mod explain;
mod feasibility;
mod fit;
pub mod forecast;
mod growth;
mod node_index;
mod node_state;
mod order;
mod outlook;
mod preempt;
mod queue;
mod reservations;
mod reserve;
mod reserved;
mod restart;

pub use explain::{
    Explanation, QueueCauses, RequestDraft, Verdict, WaitCause, explain_draft, explain_queue,
    explain_session,
};
pub use forecast::{ExpectedStart, LikelyStart, QueueForecast, forecast, likely_starts};
pub use growth::GrowthAnswer;
pub use order::fair_share::{FairAccount, accounts as fair_accounts, told as fair_value};
pub use preempt::{MAX_PREEMPTIONS, Preemption, SETTLED_SECONDS, next_settled, preempt};
pub use reserve::{Displaced, ReservationStep, part_of_device, reservable, reserve};

/// What the scheduler wants done with one waiting session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// Give it this place.
    Place {
        session: SessionId,
        seen: u64,
        node: NodeId,
        devices: Vec<DeviceShare>,
        because: Reason,
    },
    /// It can never start (what it depended on failed, its owner no longer wants it).
    End {
        session: SessionId,
        seen: u64,
        outcome: Outcome,
        because: Reason,
    },
}

/// Lists decisions in the order of the queue, at most one per session; empty when nothing can move.
///
/// People take turns (see `queue`), each with their own oldest first.
/// A session that does not fit may be passed only by one that takes nothing it could get: no device that
/// they could have, and no processor time or memory that they would need beside it. So the first in the
/// queue starts as soon as if no session had come after it, and every session becomes the first. Sessions that wait
/// for a time, for a dependency, for one certain device, or because their owner holds all that one person
/// may, hold back no other.
/// With timed backfill a session with a time limit may also start that leaves the first ones that wait, of which each has room
/// kept for it, their latest starts (see `backfill`).
/// Each resource group has a queue of its own: its sessions get places on its machines alone, and hold back no session
/// of another group. The founding group's turn is first; limits of a user, a project or a domain count all groups.
/// Costs one visit a session and a device, for each place about the logarithm of the machines, and one visit a device
/// for each group in which a session waits.
pub fn decide(world: &ClusterSnapshot, now: Timestamp) -> Vec<Decision> {
    let waiting = order::WaitingByGroup::new(world, now);
    let mut line = queue::QueueWalk::new(world, now);
    let mut decisions = Vec::new();
    for group in waiting.groups() {
        line.enter(group);
        for session in waiting.sorted(group) {
            match line.step(session) {
                queue::QueueStep::Place(place) => decisions.push(Decision::Place {
                    session: session.id,
                    seen: session.generation,
                    node: place.node,
                    devices: place.devices,
                    because: place.because,
                }),
                queue::QueueStep::End(outcome, because) => decisions.push(Decision::End {
                    session: session.id,
                    seen: session.generation,
                    outcome,
                    because,
                }),
                queue::QueueStep::Waits => {}
            }
        }
    }
    decisions
}

/// Waiting sessions in the order in which they are looked at, one resource group after the other: each user's first before any user's second, and
/// among first ones the one that is first for the longest. Empty where none waits. Costs sorting them.
pub fn queue(world: &ClusterSnapshot, now: Timestamp) -> Vec<&crate::session::Session> {
    order::waiting(world, now)
}

/// The grant of a running session under another demand: the same devices, its fraction larger or smaller.
///
/// Errors: `resize.other-devices` where other devices would be needed (whole ones come and go with a
/// restart), `resize.no-room` with the most its card could give now.
pub fn regrant(
    world: &ClusterSnapshot,
    session: &crate::session::Session,
    demand: &Demand,
) -> Result<Vec<DeviceShare>, crate::refusal::Refusal> {
    fit::regrant(world, session, demand)
}

/// How much of devices a demand counts for in limits: its share, or the largest that a partition of its profile is.
pub fn asked(world: &ClusterSnapshot, demand: &Demand) -> crate::units::GpuShare {
    choice::asked(world, demand)
}

/// Whether a running session may hold this instead of what it holds, as far as policies bound it, its project and its
/// domain, and as much as one user may hold of devices. What does not grow is not looked at. Costs one visit a session.
///
/// Errors: `limit.held`, `gpu.over-quota`.
pub fn within_limits(
    world: &ClusterSnapshot,
    session: &crate::session::Session,
    demand: &Demand,
) -> Result<(), crate::refusal::Refusal> {
    fit::within_limits(world, session, demand)
}

/// Processor time and memory that a session could have on a machine: all but what others have there, and what reservations
/// keep for others. None where there is no such machine. Costs one visit a session.
pub fn room_for(
    world: &ClusterSnapshot,
    session: &crate::session::Session,
    node: NodeId,
    now: Timestamp,
) -> Option<(crate::units::CpuShare, crate::units::Bytes)> {
    fit::room_for(world, session, node, now)
}

/// What those who wait leave a running session that is to have what `grown` has, with its new shares of the same devices:
/// as little as a start by backfill gets. Costs a walk of the queue.
pub fn growth(
    world: &ClusterSnapshot,
    session: &crate::session::Session,
    grown: &crate::session::Session,
    now: Timestamp,
) -> GrowthAnswer {
    growth::growth(world, session, grown, now)
}

/// What keeps a session from starting again where these containers of it are, or were until now: its node or a device
/// takes no new sessions, or what it had is no longer there. None: a restart keeps its place.
pub fn restart_blocker(
    world: &ClusterSnapshot,
    session: &crate::session::Session,
    containers: &[crate::session::SessionContainer],
    now: Timestamp,
) -> Option<crate::blocker::PlacementBlocker> {
    restart::blocker(world, session, containers, now)
}

/// Says whether some machine of a resource group, were it empty, could ever hold this. Errors name the nearest request
/// that could.
pub fn possible(
    world: &ClusterSnapshot,
    group: ResourceGroupId,
    demand: &Demand,
    environment: &SessionEnvironment,
) -> Result<(), crate::refusal::Refusal> {
    fit::possible(world, group, demand, environment)
}

/// Lists sessions that a limit of their owner ends now, with the code of that limit.
pub fn overdue(world: &ClusterSnapshot, now: Timestamp) -> Vec<(SessionId, u64, Reason)> {
    let mut over = Vec::new();
    for session in &world.sessions {
        if session.state() != SessionState::Running || session.desired != DesiredState::Run {
            continue;
        }
        if let Some((at, code)) = session.deadline()
            && at <= now
        {
            let reason = match code {
                codes::SESSION_TIMEOUT => reasons::session_timeout(),
                _ => reasons::session_max_runtime(),
            };
            over.push((session.id, session.generation, reason));
        }
    }
    over
}

#[cfg(test)]
mod tests;
