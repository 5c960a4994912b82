//! What a user may know of the nodes, and maintenance: an administrator lets a node take no new sessions, with a message
//! that everyone whose session waits for it reads. What runs there goes on.

use std::collections::BTreeMap;

use api::nodes::{MachineFacts, MaintenanceBody, NodeDetail, NodeState, NodeView};
use rules::names::NodeId;
use rules::permissions::Permission;
use rules::refusals;
use rules::resources::{Device, Used};
use rules::session::{Session, TextField, plain, text};
use rules::units::Timestamp;
use rules::world::{ClusterSnapshot, NodeRecord};

use super::{allowed, resource_groups};
use crate::access::Caller;
use crate::catalog::Lane;
use crate::catalog::events::NewEvent;
use crate::diagnostics::DiagnosticsRequest;
use crate::{Failure, Server};

const MAX_MESSAGE_LENGTH: usize = 256;

/// A node that takes no new sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInMaintenance {
    pub name: String,
    /// Why, in the administrator's words; empty where nothing was said.
    pub message: String,
}

/// Every node, by name, with what it has and what sessions of all users hold of it.
///
/// Errors: `denied` without `sessions:read`.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<NodeView>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let (snapshot, now) = (server.snapshot().await?, server.clock().now());
    let used = snapshot.world.used();
    let groups = resource_groups::of_nodes(server, caller).await?;
    let mut all: Vec<NodeView> = snapshot
        .world
        .nodes
        .iter()
        .map(|node| NodeView {
            group: groups.get(&node.id).cloned(),
            ..view(&snapshot.world, node, &used, now)
        })
        .collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

/// One node, by name, and what its kernel says of it.
///
/// Errors: as `facts`.
pub async fn get(server: &Server, caller: &Caller, name: &str) -> Result<NodeDetail, Failure> {
    let facts = facts(server, caller, name).await?;
    let (facts_at, facts) = facts.unzip();
    Ok(NodeDetail {
        node: shown(server, caller, name).await?,
        facts,
        facts_at,
    })
}

async fn shown(server: &Server, caller: &Caller, name: &str) -> Result<NodeView, Failure> {
    let (snapshot, now) = (server.snapshot().await?, server.clock().now());
    let mut nodes = snapshot.world.nodes.iter();
    let node = nodes
        .find(|node| node.name == name)
        .ok_or_else(refusals::node_not_found)?;
    // A token of the system alone learns of no group.
    let mut groups = match allowed(caller, Permission::SessionsRead) {
        Ok(()) => resource_groups::of_nodes(server, caller).await?,
        Err(_) => BTreeMap::new(),
    };
    Ok(NodeView {
        group: groups.remove(&node.id),
        ..view(&snapshot.world, node, &snapshot.world.used(), now)
    })
}

fn view(
    world: &ClusterSnapshot,
    node: &NodeRecord,
    used: &BTreeMap<NodeId, Used>,
    now: Timestamp,
) -> NodeView {
    let held = used.get(&node.id).cloned().unwrap_or_default();
    let devices = &node.capacity.devices;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let cordoned = |device: &&Device| node.cordoned.contains(&device.uuid);
    let here = |session: &&Session| session.live_on(node.id).next().is_some();
    NodeView {
        name: node.name.clone(),
        id: node.id,
        group: None,
        state: match (node.is_silent(now), node.schedulable) {
            (true, _) => NodeState::Silent,
            (false, false) => NodeState::Maintenance,
            (false, true) => NodeState::Ready,
        },
        maintenance: !node.schedulable,
        message: node.note.clone(),
        seen_at: node.seen_at,
        host_environment: node.host_environment,
        problems: node.problems.clone(),
        cpu: node.capacity.cpu,
        cpu_room: world.cpu_room(node),
        cpu_used: held.cpu,
        memory: node.capacity.memory,
        memory_used: held.memory,
        gpus: count(devices.len()),
        gpus_cordoned: count(devices.iter().filter(cordoned).count()),
        simulated: devices.iter().any(|device| device.simulated),
        sessions: count(world.sessions.iter().filter(here).count()),
    }
}

/// The nodes that take no new sessions, for everyone who launches. Empty while all do.
///
/// Errors: `denied` without `sessions:read`.
pub async fn in_maintenance(
    server: &Server,
    caller: &Caller,
) -> Result<Vec<NodeInMaintenance>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let snapshot = server.snapshot().await?;
    let closed = snapshot.world.nodes.iter().filter(|node| !node.schedulable);
    Ok(closed
        .map(|node| NodeInMaintenance {
            name: node.name.clone(),
            message: node.note.clone(),
        })
        .collect())
}

/// The same without waiting, for the surroundings of a page; empty for callers who may not know.
pub fn closed_now(server: &Server, caller: &Caller) -> Vec<NodeInMaintenance> {
    if allowed(caller, Permission::SessionsRead).is_err() {
        return Vec::new();
    }
    if !server.occasions().closed_nodes {
        return Vec::new();
    }
    let nodes = server
        .catalog()
        .read_now("look for maintenance", |view| view.closed_nodes());
    // The page says the same where it matters; its surroundings are no reason to refuse it.
    let nodes = nodes.unwrap_or_default().into_iter();
    nodes
        .map(|(name, message)| NodeInMaintenance { name, message })
        .collect()
}

/// As `set_maintenance`, and gives the node as it is then.
///
/// Errors: as `set_maintenance`.
pub async fn maintain(
    server: &Server,
    caller: &Caller,
    name: &str,
    wanted: &MaintenanceBody,
) -> Result<NodeView, Failure> {
    set_maintenance(server, caller, name, wanted.maintenance, &wanted.message).await?;
    shown(server, caller, name).await
}

/// Lets a node take no new sessions, with a message, or take them again. Saying it again changes the message.
///
/// Errors: `denied` without `system:write`, `node.not-found`, `note.…` for a message that cannot be shown.
pub async fn set_maintenance(
    server: &Server,
    caller: &Caller,
    name: &str,
    closed: bool,
    message: &str,
) -> Result<(), Failure> {
    allowed(caller, Permission::SystemWrite)?;
    let message = message.trim();
    text(TextField::Note, "/message", message, MAX_MESSAGE_LENGTH)?;
    plain(TextField::Note, "/message", message)?;
    let message = match closed {
        true => message.to_owned(),
        false => String::new(),
    };
    let (actor, name) = (caller.name.to_string(), name.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "set maintenance", move |rows| {
            let nodes = rows.nodes()?;
            let node = nodes
                .iter()
                .find(|node| node.name == name)
                .ok_or_else(refusals::node_not_found)?;
            if node.schedulable != closed && node.note == message {
                return Ok(());
            }
            rows.close_node(node.id, closed, &message)?;
            rows.note(NewEvent {
                actor: &actor,
                topic: "nodes",
                object: &node.name,
                scope: rules::tenancy::Scope::SITE,
                code: match closed {
                    true => "node.maintenance-began",
                    false => "node.maintenance-ended",
                },
                before: "",
                after: &message,
            })
        })
        .await
}

/// What the kernel says of a node, and when it was asked; None for a node that this server cannot ask.
///
/// Errors: `denied` without `system:read`, `node.not-found`, `diagnostics.unavailable`.
pub async fn facts(
    server: &Server,
    caller: &Caller,
    name: &str,
) -> Result<Option<(Timestamp, MachineFacts)>, Failure> {
    allowed(caller, Permission::SystemRead)?;
    let snapshot = server.snapshot().await?;
    let mut nodes = snapshot.world.nodes.iter();
    let node: NodeId = nodes
        .find(|node| node.name == name)
        .map(|node| node.id)
        .ok_or_else(refusals::node_not_found)?;
    if node != server.node() {
        return Ok(None);
    }
    let now = server.clock().now();
    let said = server.diagnostics().ask(DiagnosticsRequest::Machine, now);
    match said.await {
        None => Ok(None),
        Some(Err(why)) => Err(refusals::diagnostics_unavailable(why).into()),
        Some(Ok(bytes)) => {
            let facts = serde_json::from_slice(&bytes)
                .map_err(|error| crate::ServerFault::new("read the facts of a node", error))?;
            Ok(Some((now, facts)))
        }
    }
}
