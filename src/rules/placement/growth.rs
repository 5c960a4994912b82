//! Whether a running session may hold more than it has, as far as those are concerned who wait: the question that strict
//! and timed backfill ask of a start. What is free, and what one may hold at all, `fit` says.

use super::order::WaitingByGroup;
use super::queue::QueueWalk;
use crate::resources::DeviceShare;
use crate::session::Session;
use crate::units::{Bytes, CpuShare, Timestamp};
use crate::world::ClusterSnapshot;

/// What those who wait leave a running session that wants more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrowthAnswer {
    /// It takes nothing that they could get.
    Open,
    /// It delays the first of them no more than a start by timed backfill would.
    InTime,
    /// They could get what it would take.
    Kept {
        /// What it may hold in all.
        cpu: CpuShare,
        memory: Bytes,
        /// The device of which it would take too much; None where it is processor time or memory.
        device: Option<u32>,
        /// With timed backfill when the first one starts at the latest; None where that is not known.
        latest: Option<Timestamp>,
    },
    /// They need what is left of a limit that bounds them and this session together.
    Owed,
}

/// See `placement::growth`.
pub(super) fn growth(
    world: &ClusterSnapshot,
    session: &Session,
    grown: &Session,
    now: Timestamp,
) -> GrowthAnswer {
    let Some(node) = session.node() else {
        return GrowthAnswer::Open;
    };
    let group = world.groups.of_node(node);
    let waiting = WaitingByGroup::new(world, now);
    let mut line = QueueWalk::new(world, now);
    line.enter_in_turn(&waiting, group);
    for next in waiting.sorted(group) {
        line.step_noted(next);
    }
    let Some(at) = line.ground.spot(node) else {
        return GrowthAnswer::Open;
    };
    let (had, demand) = (&session.spec.demand, &grown.spec.demand);
    let more = || {
        let grows = |part: &&DeviceShare| {
            let mut old = session.devices().iter();
            !old.any(|old| {
                old.index == part.index && old.share >= part.share && old.memory >= part.memory
            })
        };
        grown.devices().iter().find(grows).map(|part| part.index)
    };
    // Behind so many sizes no session is looked at.
    let (cpu, memory, device) = match line.is_full() {
        true => (had.cpu, had.memory, more()),
        false => {
            let (cpu, memory) = line.ground.unkept_for(session, at);
            let device = line.ground.kept_device(session, grown, at);
            (cpu, memory, device)
        }
    };
    // From here on what it has is not counted.
    line.ground.give_back(session);
    let owes_quota = demand.gpu > had.gpu && line.ground.owes_quota(session.owner, demand);
    let owed = line.ground.past_grown_limit(session, demand, true);
    if owes_quota || owed.is_some() {
        return GrowthAnswer::Owed;
    }
    if line.ground.is_before_queue(grown, at) {
        return GrowthAnswer::Open;
    }
    let is_left = demand.cpu <= cpu && demand.memory <= memory && device.is_none();
    if is_left && line.ground.has_room_to_grow(session, grown, at) {
        return GrowthAnswer::Open;
    }
    if line.lets_grow(session, grown, at) {
        return GrowthAnswer::InTime;
    }
    GrowthAnswer::Kept {
        cpu,
        memory,
        // Else one that waits gets that part of it with the next pass.
        device: if is_left { more() } else { device },
        latest: line.front().map(|(_, latest, _)| latest),
    }
}
