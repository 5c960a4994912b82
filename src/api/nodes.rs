//! Nodes: what each has and has given, maintenance, and what the kernel of a node says of it. Decides nothing.

use rules::names::{NodeId, TenantName};
use rules::reason::Reason;
use rules::units::{Bytes, CpuShare, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::values::ReasonShape;

/// Whether a node takes new sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    Ready,
    /// It takes no new sessions; what runs there goes on.
    Maintenance,
    /// It has not answered for so long that it gets no new sessions.
    Silent,
}

impl NodeState {
    pub fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Maintenance => "maintenance",
            Self::Silent => "silent",
        }
    }
}

/// One node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Node)]
pub struct NodeView {
    pub name: String,
    #[schema(value_type = String, format = Uuid)]
    pub id: NodeId,
    /// Name of its resource group; null while there is only one, and for callers who may not use that one.
    #[serde(default)]
    #[schema(value_type = Option<String>, required = true)]
    pub group: Option<TenantName>,
    /// A silent node may be in maintenance too.
    pub state: NodeState,
    pub maintenance: bool,
    /// Why it is in maintenance, in the administrator's words; empty where nothing was said.
    pub message: String,
    /// When it last reported.
    #[schema(value_type = String, format = DateTime)]
    pub seen_at: Timestamp,
    /// It offers the machine's own programs as the environment `host`.
    pub host_environment: bool,
    #[schema(value_type = Vec<ReasonShape>)]
    pub problems: Vec<Reason>,
    /// Cores for sessions; no session gets more.
    #[schema(value_type = f64)]
    pub cpu: CpuShare,
    /// Cores that sessions together may hold: more than there are where its resource group says so.
    #[serde(default)]
    #[schema(value_type = f64, required = true)]
    pub cpu_room: CpuShare,
    /// Cores that sessions hold.
    #[schema(value_type = f64)]
    pub cpu_used: CpuShare,
    #[schema(value_type = u64)]
    pub memory: Bytes,
    #[schema(value_type = u64)]
    pub memory_used: Bytes,
    pub gpus: u32,
    /// Of these, those that take no new sessions.
    pub gpus_cordoned: u32,
    /// At least one of the GPUs does not exist.
    pub simulated: bool,
    /// Sessions of all users that hold room on it.
    pub sessions: u32,
}

/// One node, and what its kernel says of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeDetail {
    pub node: NodeView,
    /// Null for a node that this server cannot ask.
    pub facts: Option<MachineFacts>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub facts_at: Option<Timestamp>,
}

/// Maintenance of a node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[schema(as = MaintenanceRequest)]
#[serde(deny_unknown_fields)]
pub struct MaintenanceBody {
    /// True: it takes no new sessions. False: it takes them again.
    pub maintenance: bool,
    /// Why, for everyone whose session waits; not kept where the maintenance ends.
    #[serde(default)]
    #[schema(max_length = 256, format = "plain-text")]
    pub message: String,
}

/// What the kernel of a node says of it. Empty lists where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MachinePressure {
    /// `cpu`, `memory` or `io`.
    pub of: String,
    /// Some of the work waited, over the last 10, 60 and 300 seconds.
    pub some: Vec<f64>,
    /// All of it waited; empty where the kernel does not say.
    pub full: Vec<f64>,
}

/// One file system of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
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

/// One network interface of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MachineNetwork {
    pub name: String,
    /// `up`, `down`, `unknown`.
    pub state: String,
    /// Megabits a second; null where the kernel does not say.
    pub megabits: Option<u64>,
    /// Bytes since the node started.
    pub received: u64,
    pub sent: u64,
    pub errors: u64,
}

/// One sensor of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct MachineHeat {
    pub name: String,
    pub celsius: f64,
    /// From where on the maker calls it too hot; null where unknown.
    pub critical: Option<f64>,
}
