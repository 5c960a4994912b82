//! By shares alone a session that needs half a machine waits until the small ones of all others leave so much free, and its
//! owner falls back meanwhile. After two and a half hours it is due: it comes before all that are not, one of each user who holds no
//! large one now. So nobody gets more than one such place beyond their share.

use std::collections::BTreeSet;

use crate::names::{ResourceGroupId, UserId};
use crate::session::Session;
use crate::units::{GpuShare, Timestamp};
use crate::world::ClusterSnapshot;

/// Seconds after which a large session is due. Longer: it waits longer. Shorter: shares matter less.
const DUE_SECONDS: u64 = 9_000;

/// How much a session asks for at least that may be due: half of the devices of the group's largest machine, and more than
/// one. Costs one visit a machine.
pub(in crate::placement) fn large(world: &ClusterSnapshot, group: ResourceGroupId) -> GpuShare {
    let nodes = world.nodes.iter();
    let inside = nodes.filter(|node| world.groups.of_node(node.id) == group);
    let most = inside.map(|node| node.capacity.devices.len()).max();
    let half = u32::try_from(most.unwrap_or_default()).map_or(u32::MAX, |most| most * 50);
    GpuShare(half.max(200))
}

/// Users who hold a large session now. Costs one visit a session.
pub(in crate::placement) fn holders(world: &ClusterSnapshot, large: GpuShare) -> BTreeSet<UserId> {
    let held = world.sessions.iter();
    let held = held.filter(|one| one.state().holds_resources() && is_large(one, large));
    held.map(|one| one.owner).collect()
}

pub(in crate::placement) fn is_large(session: &Session, large: GpuShare) -> bool {
    session.spec.demand.gpu >= large
}

/// The same sessions with those first that are due, the one that waits for the longest before the others.
pub(in crate::placement) fn first<'w>(
    all: Vec<&'w Session>,
    large: GpuShare,
    mut holders: BTreeSet<UserId>,
    now: Timestamp,
) -> Vec<&'w Session> {
    let since = |session: &Session| {
        let start = session.spec.start_at.unwrap_or_default();
        session.queued_at.max(start)
    };
    let is_due = |session: &&Session| {
        is_large(session, large) && now.seconds_since(since(session)) >= DUE_SECONDS
    };
    let mut due: Vec<&Session> = all.iter().copied().filter(is_due).collect();
    if due.is_empty() {
        return all;
    }
    due.sort_by_key(|session| (since(session), session.id));
    due.retain(|session| holders.insert(session.owner));
    let first: BTreeSet<_> = due.iter().map(|session| session.id).collect();
    let rest = all
        .into_iter()
        .filter(|session| !first.contains(&session.id));
    due.extend(rest);
    due
}
