//! Devices, what holds a part of them, and what an administrator asks of them. Decides nothing.

use rules::devices::{Health, Hold, MigProfile};
use rules::messages::DeviceUse;
use rules::names::{NodeId, SessionId};
use rules::policy::SharePolicy;
use rules::reason::Reason;
use rules::self_test::{SelfTestStatus, Statement};
use rules::session::SessionState;
use rules::units::{Bytes, GpuShare, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::sessions::Owner;
use crate::values::{
    GpuDoingShape, GpuHealthShape, ReasonShape, SelfTestStatementShape, SharePolicyShape,
    StateShape,
};

/// All devices there are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Gpus {
    pub items: Vec<Gpu>,
    /// Accelerators of other families; sessions cannot have them.
    #[serde(default)]
    #[schema(required = true)]
    pub others: Vec<Others>,
    #[schema(value_type = SharePolicyShape)]
    pub policy: SharePolicy,
    /// About what a program's context takes of its slice, bytes.
    #[schema(value_type = u64)]
    pub context_overhead: Bytes,
    /// At least one of them does not exist.
    pub simulated: bool,
}

/// Accelerators of one family that a machine has and sessions cannot have: discovery tested, never run on
/// hardware.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OtherAccelerators)]
pub struct Others {
    #[schema(value_type = String, format = Uuid)]
    pub node: NodeId,
    pub node_name: String,
    pub family: String,
    pub number: u32,
}

/// One device with all that holds a part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Gpu {
    /// Its own name for itself.
    pub id: String,
    pub index: u32,
    #[schema(value_type = String, format = Uuid)]
    pub node: NodeId,
    pub node_name: String,
    pub model: String,
    #[schema(value_type = u64)]
    pub memory: Bytes,
    /// Multiprocessors; 0 where unknown.
    pub sms: u32,
    pub numa: Option<u32>,
    /// Devices of one number are linked to each other.
    pub link: Option<u32>,
    #[schema(value_type = GpuHealthShape)]
    pub health: Health,
    /// Version of the driver that runs it; empty where unknown, and for simulated ones.
    pub driver: String,
    /// What enforces the sessions' limits of its memory: `nobody`, `hook`, `hook-and-kernel`,
    /// `hook-and-driver` or `hardware`.
    #[schema(value_type = String)]
    pub hold: Hold,
    /// Whether this driver has passed the card's self-test: `none` where there is nothing to test,
    /// `untested`, `passed` or `failed`.
    #[schema(value_type = String)]
    pub self_test: SelfTestStatus,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub self_tested_at: Option<Timestamp>,
    /// Its node answers.
    pub answers: bool,
    pub simulated: bool,
    pub cordoned: bool,
    /// What the administrator said with the cordon; empty where nothing was said.
    pub note: String,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub changed_at: Option<Timestamp>,
    pub changed_by: Option<String>,
    #[schema(value_type = f64)]
    pub share_used: GpuShare,
    #[schema(value_type = u64)]
    pub memory_used: Bytes,
    /// The largest share that a new session could get of it now; 0 where it takes no new sessions.
    #[schema(value_type = f64)]
    pub share_free: GpuShare,
    #[schema(value_type = u64)]
    pub memory_free: Bytes,
    /// The least share in which a program starts.
    #[schema(value_type = Option<f64>)]
    pub least: Option<GpuShare>,
    /// What it is doing, for all processes, also those of no session; null where unknown, or its machine does
    /// not answer.
    #[schema(value_type = Option<GpuDoingShape>)]
    pub doing: Option<DeviceUse>,
    pub partitions: Vec<Partition>,
    /// The profiles it can be cut into; empty where it cannot be cut.
    #[serde(default)]
    #[schema(value_type = Vec<String>, required = true)]
    pub profiles: Vec<MigProfile>,
    /// How it is to be cut, until it is; it takes nothing new so long.
    #[serde(default)]
    pub planned: Option<PlannedPartitions>,
    /// Oldest first.
    pub slices: Vec<GpuSlice>,
}

/// A cut that an administrator wants and that is not made yet; the device takes no new sessions until then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedPartitions {
    /// Empty: whole.
    #[schema(value_type = Vec<String>)]
    pub profiles: Vec<MigProfile>,
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Why its machine could not cut it so when it last tried; null while nothing is wrong.
    #[serde(default)]
    #[schema(value_type = Option<ReasonShape>)]
    pub trouble: Option<Reason>,
    /// What is typed on the device's machine instead; empty for a simulated device.
    pub commands: Vec<String>,
}

/// One hardware partition of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Partition {
    pub id: String,
    #[schema(value_type = String)]
    pub profile: MigProfile,
    #[schema(value_type = u64)]
    pub memory: Bytes,
    pub sms: u32,
    pub taken: bool,
}

/// What one session holds of a device; without session, name and owner where it is another user's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GpuSlice {
    #[schema(value_type = Option<String>, format = Uuid)]
    pub session: Option<SessionId>,
    pub name: Option<String>,
    pub owner: Option<Owner>,
    pub mine: bool,
    #[schema(value_type = StateShape)]
    pub state: SessionState,
    pub paused: bool,
    #[schema(value_type = f64)]
    pub share: GpuShare,
    #[schema(value_type = u64)]
    pub memory: Bytes,
    pub sms: u32,
    #[schema(value_type = Option<String>)]
    pub profile: Option<MigProfile>,
    /// Its node has confirmed that it holds the session to this; until then the larger of the old and the
    /// new share is kept.
    pub confirmed: bool,
    /// Per cent of the share in which the device worked for it lately; above 100 where it was given what
    /// others left. Null where unknown, as of hardware partitions. Made up for a simulated device, as
    /// are the next two.
    #[serde(default)]
    pub load_percent: Option<f64>,
    /// Bytes in use, contexts included.
    #[serde(default)]
    #[schema(value_type = Option<u64>)]
    pub memory_in_use: Option<Bytes>,
    /// Since when the device has had nothing to do for it; null while it works.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub idle_since: Option<Timestamp>,
}

/// What a drain ended, or would end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Drained {
    pub gpu: Gpu,
    /// Names of the sessions that end.
    pub ends: Vec<String>,
    /// Of these, those that wait for another device.
    pub requeued: Vec<String>,
    /// Nothing was done yet.
    pub dry_run: bool,
}

/// What a cut comes to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Repartitioned {
    pub gpu: Gpu,
    /// The partitions in the order of their places; empty where it is whole again.
    pub partitions: Vec<PlacedPartition>,
    /// Names of the sessions that end.
    pub ends: Vec<String>,
    /// Of these, those that wait for another device.
    pub requeued: Vec<String>,
    /// Nothing was done yet.
    pub dry_run: bool,
}

/// A partition that is to be; start and slices in eighths of the device's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlacedPartition {
    #[schema(value_type = String)]
    pub profile: MigProfile,
    #[schema(value_type = u64)]
    pub memory: Bytes,
    pub sms: u32,
    /// Where it begins and how much it takes, in eighths of the device's memory.
    pub start: u8,
    pub slices: u8,
}

/// How a device is cut.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartitionRequest {
    /// Such as `3g.40gb`; empty: whole again. What it is already cut into takes a plan back.
    #[schema(value_type = Vec<String>)]
    pub profiles: Vec<MigProfile>,
    /// Why; none keeps what was said.
    #[serde(default)]
    #[schema(max_length = 256, format = "plain-text")]
    pub note: Option<String>,
    /// Only say what it would come to.
    #[serde(default)]
    pub dry_run: bool,
}

/// How a device is drained.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DrainRequest {
    /// Why; none keeps the cordon's note.
    #[schema(max_length = 256, format = "plain-text")]
    pub note: Option<String>,
    /// Only say what would end.
    pub dry_run: bool,
}

/// How a device is cordoned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CordonRequest {
    /// Why, in a few words.
    #[schema(max_length = 256, format = "plain-text")]
    pub note: Option<String>,
}

/// How a card is tested.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TestRequest {
    /// The image that both sessions start from, with glibc 2.34 or newer; none: the machine's own programs.
    pub image: Option<String>,
}

/// What a card's self-test found, signed by the server that ran it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SelfTestReport {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    #[schema(value_type = SelfTestStatementShape)]
    pub result: Statement,
    /// Byte for byte what is signed: the result as JSON.
    pub statement: String,
    /// ECDSA over P-256 with SHA-256, in DER, as base64.
    pub signature: String,
    /// The certificate of the server's authority, to check it with; PEM.
    pub authority: String,
    pub fingerprint: String,
}
