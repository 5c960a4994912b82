//! World → what each node should have. Never says "start this"; always "this is all there is".

use std::collections::BTreeMap;

use crate::messages::{ContainerOrder, RootFileSystem, Want};
use crate::names::{ImageId, NodeId, UserId};
use crate::session::{DesiredState, Session, SessionEnvironment, SessionState};
use crate::world::ClusterSnapshot;

/// Gives every node of the world its complete list; an empty list for a node that should have nothing.
/// First stands what was started, then what is being started: the first session of each owner, then
/// the second of each, since a node starts only some together and in this order. Of equals the one
/// that got its place first goes first, so that nothing that comes later keeps a session waiting.
///
/// `digest` gives the configuration digest of an image; a session whose image is unknown to it is
/// left out (the controller ends such a session with a reason). Costs O(n log n) over the sessions.
pub fn for_nodes(
    world: &ClusterSnapshot,
    digest: impl Fn(ImageId) -> Option<String>,
) -> BTreeMap<NodeId, Vec<ContainerOrder>> {
    let mut lists: BTreeMap<NodeId, Vec<ContainerOrder>> =
        world.nodes.iter().map(|n| (n.id, Vec::new())).collect();
    let mut placed: Vec<(NodeId, &Session)> = world
        .sessions
        .iter()
        .filter(|s| s.phase.holds_resources())
        .filter_map(|s| Some((s.node?, s)))
        .collect();
    placed.sort_by_key(|(_, session)| session.scheduled_at);
    let mut own: BTreeMap<(NodeId, UserId), usize> = BTreeMap::new();
    let mut turns: Vec<_> = placed
        .into_iter()
        .map(|(node, session)| {
            let starts = matches!(
                session.phase,
                SessionState::Scheduled | SessionState::Preparing
            );
            let turn = starts.then(|| {
                let own = own.entry((node, session.owner)).or_default();
                *own += 1;
                *own
            });
            (turn, node, session)
        })
        .collect();
    turns.sort_by_key(|(turn, ..)| *turn);
    for (_, node, session) in turns {
        if let Some(order) = order(session, &digest) {
            lists.entry(node).or_default().push(order);
        }
    }
    lists
}

fn order(session: &Session, digest: &impl Fn(ImageId) -> Option<String>) -> Option<ContainerOrder> {
    let root = match &session.order.environment {
        SessionEnvironment::Host => RootFileSystem::Host,
        SessionEnvironment::Image { id, .. } => RootFileSystem::Image {
            digest: digest(*id)?,
        },
    };
    Some(ContainerOrder {
        name: session.container(),
        hostname: session.name.as_str().to_ascii_lowercase(),
        kind: session.order.kind,
        root,
        command: session.order.command.clone(),
        env: session.order.env.clone(),
        demand: session.order.demand,
        devices: session.devices.clone(),
        want: match (session.wish, session.phase) {
            (DesiredState::Kill, _) => Want::Kill,
            (DesiredState::Stop, _) | (_, SessionState::Stopping) => Want::Stop,
            (DesiredState::Run, _) if session.paused => Want::Pause,
            (DesiredState::Run, _) => Want::Run,
        },
    })
}
