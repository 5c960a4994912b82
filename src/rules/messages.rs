//! The two messages between server and node: a complete `Assignment` down, a complete `NodeReport`
//! up. Complete means: lost, doubled, late and reordered messages stop being cases. Nothing here
//! could be answered only by a local Linux machine; a foreign engine may be the other party.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::devices::MigProfile;
use crate::egress::{EgressReport, SessionEgress};
use crate::incident::{MemoryIncident, StuckMount};
use crate::names::{BootId, ContainerName, FolderId, NodeId};
use crate::process_limits::ProcessLimits;
use crate::reason::Reason;
use crate::resources::{Capacity, Demand, DeviceShare};
use crate::session::SessionKind;
use crate::start_up::{StartUp, StartUpFailure};
use crate::units::{Bytes, Timestamp};
use crate::volume::MappedUser;

/// All that one node should have, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    pub node: NodeId,
    /// Grows with every change; a node refuses one older than it has.
    pub generation: u64,
    /// In no particular order; empty means: end everything.
    pub containers: Vec<ContainerOrder>,
    /// Devices that are to be cut in a certain way, now and after every restart; the others are as they are.
    #[serde(default, alias = "cuts")]
    pub partitions: Vec<PartitionSpec>,
    /// The state whose list this is; None from servers of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Uuid>,
    /// Root accepted that this state leads the machine, whichever it obeyed before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accepted: bool,
}

/// A device that is to be cut into these hardware partitions, as soon as nothing runs on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionSpec {
    /// The device's number as its machine reports it.
    pub device: String,
    /// Empty: whole.
    pub profiles: Vec<MigProfile>,
}

/// One container that should exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerOrder {
    pub name: ContainerName,
    /// The host name inside: the session's name, or the container's own where the session has several.
    pub hostname: String,
    pub kind: SessionKind,
    pub root: RootFileSystem,
    /// Program and arguments; empty means what the root file system runs by itself.
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub demand: Demand,
    pub devices: Vec<DeviceShare>,
    /// Folders that are shown inside, by place; none lies below another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountSpec>,
    /// Networks that it joins beside its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<NetworkSpec>,
    /// What it reaches outside; nothing where it is None.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<SessionEgress>,
    /// Commands in it may run as root of its own user namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sudo: bool,
    /// What its processes may have more than is usual.
    #[serde(default, skip_serializing_if = "ProcessLimits::is_usual")]
    pub ulimits: ProcessLimits,
    pub want: Want,
    /// Seconds between TERM and KILL, where they are not the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_grace_seconds: Option<u64>,
    /// What its owner has sessions start with. The catalog's own list never has it: it is filled in on the way to the
    /// node, until the node took a list with it. The node keeps it until its command ran.
    #[serde(default, skip_serializing_if = "StartUp::is_empty")]
    pub start_up: StartUp,
}

impl ContainerOrder {
    /// Seconds between TERM and KILL.
    pub fn stop_grace(&self) -> u64 {
        self.stop_grace_seconds.unwrap_or(STOP_GRACE_SECONDS)
    }
}

/// A folder at a place inside a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountSpec {
    pub folder: FolderId,
    /// What of the folder, without a leading slash; empty: all of it.
    pub subpath: String,
    /// Absolute path inside.
    pub at: String,
    pub read_only: bool,
    /// It is the home of the session's owner, or below it: the home of the container's user stands for `/home/work`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_itself: bool,
    /// The user of its volume, where that has no id-mapped mounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapped: Option<MappedUser>,
    /// It is not mounted any more: a container that runs with it is to lose it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
}

/// A network that joins the containers of one session, which are on one node. Each has the address and the name that its
/// place among them gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSpec {
    /// What it is called on every node that has a part of it.
    pub name: String,
    /// How many containers it joins.
    #[serde(default)]
    pub members: u32,
}

/// What the container starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "from")]
pub enum RootFileSystem {
    /// The machine's own programs.
    Host,
    /// The image of this configuration digest.
    Image { digest: String },
}

/// What a container should be doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Want {
    Run,
    Pause,
    /// End it with grace, and keep its exit record until it leaves the assignment.
    Stop,
    /// End it at once, and keep its exit record until it leaves the assignment.
    Kill,
}

/// Seconds between TERM and KILL when a session is stopped.
pub const STOP_GRACE_SECONDS: u64 = 10;

/// The same when it makes way for a session of higher priority: it did not ask for its end, and has state to save. Higher:
/// the other one waits for longer. Lower: large states are lost.
pub const PREEMPTION_GRACE_SECONDS: u64 = 120;

/// All that one node has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    pub node: NodeId,
    pub name: String,
    /// Changes when the machine was restarted: containers of another boot are gone.
    pub boot: BootId,
    /// The newest assignment it has taken in; 0 before the first.
    pub generation: u64,
    /// The state whose assignment that is; None before the first, and from machines of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Uuid>,
    pub at: Timestamp,
    pub capacity: Capacity,
    /// Whether sessions may start from the machine's own programs.
    pub host_environment: bool,
    /// Every container it knows of, running, preparing or ended and not yet forgotten.
    pub containers: Vec<ContainerStatus>,
    /// What is wrong with the node itself (disk full, missing feature); empty when well.
    pub problems: Vec<Reason>,
    /// What its devices are doing, those that say so; in no particular order.
    #[serde(default)]
    pub device_uses: Vec<DeviceUse>,
    /// What its watchdog answered to the containers above, oldest first for each. Said again in every
    /// report until the container is forgotten; known by its id.
    #[serde(default)]
    pub incidents: Vec<MemoryIncident>,
    /// Devices that are not cut as ordered though nothing of ours runs on them, and why.
    #[serde(default, alias = "uncut")]
    pub partition_failures: Vec<PartitionFailure>,
    /// Connections of the containers above to the outside, counted since they began; only of those that have a network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<EgressReport>,
    /// Scripts that failed in the containers above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub start_up_failures: Vec<StartUpFailure>,
    /// Folders that the containers above were to lose and still have. It is tried again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck_mounts: Vec<StuckMount>,
}

/// A device that could not be cut as ordered. It is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionFailure {
    /// The device's number as its machine reports it.
    pub device: String,
    pub reason: Reason,
}

/// What one device is doing now, for all processes, also those of no session. None where unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// The device's index on its node.
    pub device: u32,
    /// Memory in use, the driver's own included.
    pub memory: Option<Bytes>,
    /// Per cent of the time in which something ran.
    pub busy_percent: Option<u32>,
    pub celsius: Option<u32>,
    pub milliwatts: Option<u32>,
}

/// One container as its node sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContainerStatus {
    pub name: ContainerName,
    pub state: ReportedState,
    pub usage: Option<ContainerUsage>,
    /// The shares of devices that the machine holds it to at this moment; empty for none.
    #[serde(default)]
    pub devices: Vec<DeviceShare>,
    /// Milliseconds that it has run when this was reported, on a clock that cannot be set; None where it does
    /// not run, and from machines of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum ReportedState {
    /// Being made; `step` says what is happening.
    Preparing {
        step: String,
        /// Its image is on its way from the server.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fetching: bool,
    },
    Running {
        since: Timestamp,
        paused: bool,
    },
    Stopping {
        since: Timestamp,
    },
    Ended(ExitRecord),
    /// Its supervisor is gone and left no exit record.
    Lost {
        reason: Reason,
    },
    /// It could not be made at all.
    Refused {
        reason: Reason,
    },
}

impl ReportedState {
    /// True once no process of it lives any more.
    pub fn is_over(&self) -> bool {
        matches!(
            self,
            Self::Ended(_) | Self::Lost { .. } | Self::Refused { .. }
        )
    }
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// 0–255; a signal counts as 128 + its number.
    pub exit_code: i32,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    /// The kernel killed a process of it at its memory limit.
    pub out_of_memory: bool,
    /// Highest memory use, bytes; None where the kernel does not say.
    pub peak_memory: Option<Bytes>,
}

/// What a running container uses now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerUsage {
    /// Processor time since its start, microseconds.
    pub cpu_microseconds: u64,
    pub memory: Bytes,
    pub processes: u64,
    /// None where the kernel does not measure it.
    pub waited: Option<Waited>,
    /// What it does with its shares of devices, one entry each; empty where it has none.
    #[serde(default)]
    pub devices: Vec<SliceUse>,
}

/// What a container does with its share of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceUse {
    /// The device's index on its node, and the number of the partition where it has one.
    pub device: u32,
    pub part: Option<u32>,
    /// In use, contexts included; None where unknown.
    pub memory: Option<Bytes>,
    /// None where unknown.
    pub worked: Option<BusyTime>,
    /// Since when the device has had nothing to do for it; None while it works, or where unknown.
    pub idle_since: Option<Timestamp>,
    /// The device does not exist, and all of this is made up.
    pub simulated: bool,
}

/// Time of a device, summed since its node began to count. The two grow together: what the first grew by,
/// divided by what the second did, is the load within the share, also across resizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusyTime {
    /// In which it worked for the container; microseconds.
    pub busy_microseconds: u64,
    /// That the container had a claim to; microseconds.
    pub granted_microseconds: u64,
}

/// How long something in a container had to wait, summed since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// For a processor, its own limit included; microseconds.
    pub cpu_microseconds: u64,
    /// For memory to be freed or read back; microseconds.
    pub memory_microseconds: u64,
}
