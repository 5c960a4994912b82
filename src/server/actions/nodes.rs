//! What a user may know of a node, and maintenance: an administrator lets a node take no new sessions, with a message
//! that everyone whose session waits for it reads. What runs there goes on.

use rules::names::NodeId;
use rules::permissions::Permission;
use rules::refusals;
use rules::session::{TextField, plain, text};
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};

use super::allowed;
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

/// What the kernel of a node says of it. Empty lists where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineFacts {
    pub kernel: String,
    pub processor: String,
    /// Seconds since the node started.
    pub up_seconds: u64,
    /// Of the last 1, 5 and 15 minutes.
    pub load: Vec<f64>,
    pub pressure: Vec<MachinePressure>,
    pub disks: Vec<MachineDisk>,
    pub networks: Vec<MachineNetwork>,
    pub heat: Vec<MachineHeat>,
}

/// How long work had to wait for something, in per cent of time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachinePressure {
    /// `cpu`, `memory` or `io`.
    pub of: String,
    /// Some of the work waited, over the last 10, 60 and 300 seconds.
    pub some: Vec<f64>,
    /// All of it waited; empty where the kernel does not say.
    pub full: Vec<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineDisk {
    pub place: String,
    pub device: String,
    pub file_system: String,
    pub bytes: u64,
    pub free: u64,
    /// The state of the server lies on it.
    pub holds_state: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineNetwork {
    pub name: String,
    /// `up`, `down`, `unknown`.
    pub state: String,
    /// Megabits a second; None where the kernel does not say.
    pub megabits: Option<u64>,
    pub received: u64,
    pub sent: u64,
    pub errors: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineHeat {
    pub name: String,
    pub celsius: f64,
    /// From where on the maker calls it too hot; None where unknown.
    pub critical: Option<f64>,
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
    let nodes = server
        .catalog()
        .read_now("look for maintenance", |view| view.closed_nodes());
    // The page says the same where it matters; its surroundings are no reason to refuse it.
    let nodes = nodes.unwrap_or_default().into_iter();
    nodes
        .map(|(name, message)| NodeInMaintenance { name, message })
        .collect()
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
    let message = match closed {
        true => message.trim().to_owned(),
        false => String::new(),
    };
    text(TextField::Note, "/message", &message, MAX_MESSAGE_LENGTH)?;
    plain(TextField::Note, "/message", &message)?;
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
