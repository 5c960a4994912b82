//! World → what each node should have. Never says "start this"; always "this is all there is".

use std::collections::BTreeMap;

use crate::container_network;
use crate::messages::{ContainerOrder, MountSpec, PREEMPTION_GRACE_SECONDS, RootFileSystem, Want};
use crate::names::{ImageId, NodeId, UserId};
use crate::session::{DesiredState, Session, SessionContainer, SessionEnvironment, SessionState};
use crate::start_up::StartUp;
use crate::workload::mount::FolderMount;
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
    let all = world.sessions.iter();
    let mut placed: Vec<(&SessionContainer, &Session)> = all
        .flat_map(|session| session.live_containers().map(move |each| (each, session)))
        .collect();
    placed.sort_by_key(|(_, session)| session.scheduled_at());
    let mut own: BTreeMap<(NodeId, UserId), usize> = BTreeMap::new();
    let mut turns: Vec<_> = placed
        .into_iter()
        .map(|(container, session)| {
            let starts = matches!(
                session.state(),
                SessionState::Scheduled | SessionState::Preparing
            );
            let turn = starts.then(|| {
                let own = own.entry((container.node, session.owner)).or_default();
                *own += 1;
                *own
            });
            (turn, container, session)
        })
        .collect();
    turns.sort_by_key(|(turn, ..)| *turn);
    for (_, container, session) in turns {
        if let Some(order) = order(session, container, &digest) {
            lists.entry(container.node).or_default().push(order);
        }
    }
    lists
}

fn mount(mount: &FolderMount) -> MountSpec {
    MountSpec {
        folder: mount.folder,
        subpath: mount.subpath.clone(),
        at: mount.at.clone(),
        read_only: mount.is_read_only(),
        by_itself: mount.by_itself,
        mapped: mount.mapped,
        detached: mount.detached,
    }
}

fn order(
    session: &Session,
    container: &SessionContainer,
    digest: &impl Fn(ImageId) -> Option<String>,
) -> Option<ContainerOrder> {
    let root = match &session.spec.environment {
        SessionEnvironment::Host => RootFileSystem::Host,
        SessionEnvironment::Image { id, .. } => RootFileSystem::Image {
            digest: digest(*id)?,
        },
    };
    Some(ContainerOrder {
        name: session.container_name(container.index),
        hostname: match container_network::is_several(session) {
            true => container.role(),
            false => session.name.as_str().to_ascii_lowercase(),
        },
        kind: session.spec.kind,
        root,
        command: session.spec.command.clone(),
        env: {
            let mut env = container_network::variables(session, container);
            // What its launch says stands above.
            env.extend(session.spec.env.clone());
            env
        },
        demand: session.spec.of_each(),
        devices: container.devices.clone(),
        mounts: session.mounts.iter().map(mount).collect(),
        networks: container_network::network(session).into_iter().collect(),
        egress: session.egress.clone(),
        sudo: session.sudo,
        ulimits: session.ulimits,
        want: match (session.desired, session.state()) {
            (DesiredState::Kill, _) => Want::Kill,
            (DesiredState::Stop, _) | (_, SessionState::Stopping) => Want::Stop,
            (DesiredState::Run, _) if session.paused => Want::Pause,
            (DesiredState::Run, _) => Want::Run,
        },
        stop_grace_seconds: session.is_preempted().then_some(PREEMPTION_GRACE_SECONDS),
        start_up: StartUp::default(),
    })
}
