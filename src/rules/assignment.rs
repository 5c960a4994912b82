//! World → what each node should have. Never says "start this"; always "this is all there is".

use std::collections::BTreeMap;

use crate::messages::{ContainerOrder, RootFileSystem, Want};
use crate::names::{ImageId, NodeId};
use crate::session::{Environment, Phase, Session, Wish};
use crate::world::World;

/// Gives every node of the world its complete list, oldest session first; an empty list for a node
/// that should have nothing.
///
/// `digest` gives the configuration digest of an image; a session whose image is unknown to it is
/// left out (the conductor ends such a session with a reason). Costs one visit a session.
pub fn for_nodes(
    world: &World,
    digest: impl Fn(ImageId) -> Option<String>,
) -> BTreeMap<NodeId, Vec<ContainerOrder>> {
    let mut lists: BTreeMap<NodeId, Vec<ContainerOrder>> =
        world.nodes.iter().map(|n| (n.id, Vec::new())).collect();
    for session in world.sessions.iter().filter(|s| s.phase.holds_resources()) {
        let (Some(node), Some(order)) = (session.node, order(session, &digest)) else {
            continue;
        };
        lists.entry(node).or_default().push(order);
    }
    lists
}

fn order(session: &Session, digest: &impl Fn(ImageId) -> Option<String>) -> Option<ContainerOrder> {
    let root = match &session.order.environment {
        Environment::Host => RootFileSystem::Host,
        Environment::Image { id, .. } => RootFileSystem::Image {
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
            (Wish::Kill, _) => Want::Kill,
            (Wish::Stop, _) | (_, Phase::Stopping) => Want::Stop,
            (Wish::Run, _) if session.paused => Want::Pause,
            (Wish::Run, _) => Want::Run,
        },
    })
}
