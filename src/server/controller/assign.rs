//! Passes placed sessions into the complete list of each node, under a new generation where the list
//! changed. Never takes a container off a list while its session holds resources.

use std::collections::BTreeMap;

use rules::assignment;
use rules::messages::{Assignment, ContainerOrder, RootFileSystem};
use rules::names::{ContainerName, ImageId, NodeId};
use rules::reasons;
use rules::session::{Outcome, SessionEnvironment, SessionState};

use crate::controller::pass::ControllerPass;

/// Rewrites the assignment of every node that `led` names and whose list changed, and of every such node
/// that says it has taken in a newer one than is stored here (an older catalog was accepted): it would
/// refuse the stored one for ever.
pub(crate) fn assign(pass: &mut ControllerPass, led: impl Fn(NodeId) -> bool) {
    end_without_image(pass);
    let told = told_digests(pass);
    let digest = |id: ImageId| pass.digests.get(&id).or_else(|| told.get(&id)).cloned();
    let lists = assignment::for_nodes(&pass.world, digest);
    for (node, containers) in lists {
        if !led(node) {
            continue;
        }
        let reported = pass.world.node(node).map_or(0, |n| n.generation);
        let stored = pass.assigned.get(&node);
        let generation = stored.map_or(0, |a| a.generation);
        let partitions = pass.partition_specs.get(&node).cloned().unwrap_or_default();
        let same = stored
            .is_some_and(|a| same_list(&a.containers, &containers) && a.partitions == partitions);
        if same && reported <= generation {
            continue;
        }
        pass.assign(Assignment {
            node,
            generation: generation.max(reported) + 1,
            containers,
            partitions,
            state: Some(pass.state),
            accepted: false,
        });
    }
}

/// Whether two lists hold the same orders, in any order: whose turn it is changes whenever a session
/// starts, and that alone is no news for a node.
fn same_list(one: &[ContainerOrder], other: &[ContainerOrder]) -> bool {
    by_name(one) == by_name(other)
}

fn by_name(list: &[ContainerOrder]) -> BTreeMap<ContainerName, &ContainerOrder> {
    list.iter().map(|order| (order.name, order)).collect()
}

/// Digests as nodes were told them. An image whose row is gone still names the bytes of a container
/// that runs from it, and its order must not vanish from the list: the node would kill it.
fn told_digests(pass: &ControllerPass) -> BTreeMap<ImageId, String> {
    let mut told = BTreeMap::new();
    for session in &pass.world.sessions {
        let SessionEnvironment::Image { id, .. } = &session.spec.environment else {
            continue;
        };
        let order = session.live_containers().find_map(|container| {
            let name = session.container_name(container.index);
            let mut orders = pass.assigned.get(&container.node)?.containers.iter();
            orders.find(|order| order.name == name)
        });
        if let Some(RootFileSystem::Image { digest }) = order.map(|o| &o.root) {
            told.insert(*id, digest.clone());
        }
    }
    told
}

/// Ends sessions that got a place but whose image is gone before any node heard of them.
fn end_without_image(pass: &mut ControllerPass) {
    let now = pass.now;
    let told = told_digests(pass);
    let lost: Vec<_> = pass
        .world
        .sessions
        .iter()
        .filter(|s| s.state() == SessionState::Scheduled)
        .filter_map(|s| match &s.spec.environment {
            SessionEnvironment::Image { id, reference } => Some((s, id, reference)),
            SessionEnvironment::Host => None,
        })
        .filter(|(_, id, _)| !pass.digests.contains_key(id) && !told.contains_key(id))
        .map(|(s, _, reference)| {
            let reason = reasons::image_gone(reference);
            (s.id, reason)
        })
        .collect();
    for (id, reason) in lost {
        pass.change(id, "scheduler", |s| {
            s.reason = Some(reason);
            s.end(Outcome::Refused, None, now);
            true
        });
    }
}
