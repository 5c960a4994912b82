//! Sessions: what is asked for, what is answered, and what is changed. A field of a session stands here
//! once for the server, the pages, the API, its document and the CLI, beside where it comes from and where it goes.
//! Checks nothing; the actions do.

use std::collections::BTreeMap;

use rules::devices::MigProfile;
use rules::egress::NetworkMode;
use rules::names::{SessionId, SessionName, TenantName, UserId, UserName};
use rules::object::Object;
use rules::placement::Explanation;
use rules::reason::Reason;
use rules::resources::Demand;
use rules::session::{DesiredState, Outcome, Session, SessionKind, SessionState};
use rules::start_up::StartUpChoice;
use rules::tenancy::{DomainId, ProjectId, Scope};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rules::workload::precedence::{Precedence, USUAL_PRIORITY};
use rules::workload::remarks::Remarks;
use rules::workload::validate::{RequestedLaunch, RequestedResize};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::mounts::{MountView, NewMountBody};
use crate::values::{
    DesiredStateShape, ExplanationShape, KindShape, NetworkModeShape, OutcomeShape, ReasonShape,
    ResourcesShape, StateShape,
};

/// Whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Owner {
    #[schema(value_type = String, format = Uuid)]
    pub id: UserId,
    #[schema(value_type = String)]
    pub name: UserName,
}

/// The project of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionProject {
    #[schema(value_type = String, format = Uuid)]
    pub id: ProjectId,
    /// Unique in its domain.
    #[schema(value_type = String)]
    pub name: TenantName,
}

impl Default for SessionProject {
    /// The one of answers that were kept by a version without projects.
    fn default() -> Self {
        Self {
            id: ProjectId::DEFAULT,
            name: TenantName::first_project(),
        }
    }
}

/// A share of one device as a session has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Grant)]
pub struct GrantView {
    pub index: u32,
    /// The device's own name; empty where its machine no longer reports it.
    pub uuid: String,
    pub model: String,
    #[schema(value_type = f64)]
    pub share: GpuShare,
    /// The same in the administrator's units.
    pub units: String,
    #[schema(value_type = u64)]
    pub memory: Bytes,
    /// Multiprocessors whose time the share is worth, of `sms_total`; 0 where unknown.
    pub sms: u32,
    pub sms_total: u32,
    /// The partition, where one was given.
    #[schema(value_type = Option<String>)]
    pub profile: Option<MigProfile>,
    /// Its node has confirmed that it holds the session to this.
    pub confirmed: bool,
    /// The device does not exist, and the session has none.
    pub simulated: bool,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Session)]
pub struct SessionView {
    #[schema(value_type = String, format = Uuid)]
    pub id: SessionId,
    /// Letters, digits and hyphens; unique among the live sessions of its owner.
    #[schema(value_type = String)]
    pub name: SessionName,
    pub owner: Owner,
    /// Id of the domain that its project belongs to.
    #[serde(default)]
    #[schema(value_type = String, format = Uuid)]
    pub domain: DomainId,
    #[serde(default)]
    pub project: SessionProject,
    /// Name of its resource group; null while the site has only one.
    #[serde(default)]
    #[schema(value_type = Option<String>, required = true)]
    pub group: Option<TenantName>,
    #[schema(value_type = StateShape)]
    pub state: SessionState,
    #[schema(value_type = DesiredStateShape)]
    #[serde(alias = "wish")]
    pub desired: DesiredState,
    #[schema(value_type = KindShape)]
    pub kind: SessionKind,
    /// `host`, or the reference of an image.
    pub image: String,
    /// Program and arguments; empty: what the image runs by itself.
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Folders that it mounts, by place.
    #[serde(default)]
    #[schema(required = true)]
    pub mounts: Vec<MountView>,
    /// What it reaches outside.
    #[serde(default)]
    #[schema(value_type = NetworkModeShape, required = true)]
    pub network: NetworkMode,
    /// The targets of its network, as its policy listed them at its launch.
    #[serde(default)]
    #[schema(required = true)]
    pub targets: Vec<String>,
    /// It starts with its owner's dotfiles and start-up script.
    #[serde(default)]
    #[schema(required = true)]
    pub start_up: bool,
    /// It has its owner's variables too, so only its owner enters it.
    #[serde(default)]
    #[schema(required = true)]
    pub own_variables: bool,
    /// Commands in it may run as root of its own user namespace where its own user is another one.
    #[serde(default)]
    #[schema(required = true)]
    pub sudo: bool,
    /// What its processes may have more than is usual, as `memlock=unlimited,stack=64m`; empty: nothing.
    #[serde(default)]
    #[schema(required = true)]
    pub ulimits: String,
    /// Apps that its launch named, as `jupyter,board:6006,8501`; empty: none.
    #[serde(default)]
    #[schema(required = true)]
    pub apps: String,
    pub labels: BTreeMap<String, String>,
    /// What it is for, as its launch said; null where nothing was said.
    #[serde(default)]
    #[schema(required = true)]
    pub description: Option<String>,
    /// Of each of its containers.
    #[schema(value_type = ResourcesShape)]
    pub resources: Demand,
    /// How many containers it has, on one node: `main1`, `sub1`, `sub2` and so on.
    #[serde(default = "one")]
    #[schema(required = true)]
    pub containers: u32,
    pub timeout_seconds: Option<u64>,
    #[serde(alias = "longest_run_seconds")]
    pub max_runtime_seconds: Option<u64>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start_at: Option<Timestamp>,
    #[schema(value_type = Vec<String>)]
    pub depends_on: Vec<SessionId>,
    /// How urgent it is, 0 to 100.
    #[serde(default = "usual_priority")]
    #[schema(required = true)]
    pub priority: u32,
    /// It may be stopped for a session of higher priority, where its resource group has preemption.
    #[serde(default)]
    #[schema(required = true)]
    pub yields: bool,
    /// How often it was stopped for one.
    #[serde(default)]
    #[schema(required = true)]
    pub preempted_count: u32,
    /// False where it ended and its command, variables and labels are no longer kept: its owner's ended sessions
    /// keep 64 MiB of them.
    #[serde(default = "kept")]
    #[schema(required = true)]
    pub document_kept: bool,
    pub paused: bool,
    /// Who put it on hold while it waits; null where it is not held.
    #[serde(default)]
    #[schema(value_type = Option<String>, required = true)]
    pub held_by: Option<UserName>,
    /// Which start this is; 1 is the first.
    pub incarnation: u32,
    /// Name of the machine it is, or was, on.
    pub node: Option<String>,
    pub devices: Vec<GrantView>,
    /// Devices here do not exist: the session gets no device, even with a share.
    #[serde(default)]
    #[schema(required = true)]
    pub simulated: bool,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub scheduled_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// Whole seconds that it waited in the queue for its latest place, without the time on hold; null while it has none.
    #[serde(default)]
    pub waited_seconds: Option<u64>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    #[schema(value_type = Option<OutcomeShape>)]
    pub outcome: Option<Outcome>,
    /// 0 to 255, a signal as 128 and its number; only once it ended with a known end.
    pub exit_code: Option<i32>,
    #[schema(value_type = Option<ReasonShape>)]
    pub reason: Option<Reason>,
    /// Version of the session, and its ETag.
    pub generation: u64,
}

/// What a session's answer says that is not in its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSurroundings {
    pub owner: UserName,
    pub project: TenantName,
    /// Name of its resource group, where there are several.
    pub group: Option<TenantName>,
    /// Name of the machine it is, or was, on.
    pub node: Option<String>,
    pub devices: Vec<GrantView>,
    /// Devices here do not exist.
    pub simulated: bool,
}

impl SessionView {
    /// The answer of a row.
    pub fn of(row: &Session, around: SessionSurroundings) -> Self {
        Self {
            id: row.id,
            name: row.name.clone(),
            owner: Owner {
                id: row.owner,
                name: around.owner,
            },
            domain: row.domain,
            project: SessionProject {
                id: row.project,
                name: around.project,
            },
            group: around.group,
            state: row.state(),
            desired: row.desired,
            kind: row.spec.kind,
            image: row.spec.environment.word().to_owned(),
            command: row.spec.command.clone(),
            env: row.spec.env.clone(),
            mounts: row.mounts.iter().map(MountView::from).collect(),
            network: row
                .egress
                .as_ref()
                .map_or(NetworkMode::None, |one| one.mode),
            targets: {
                let targets = row.egress.iter().flat_map(|one| one.open_targets());
                targets.map(ToString::to_string).collect()
            },
            start_up: row.start_up.choice != StartUpChoice::Nothing,
            own_variables: row.start_up.choice == StartUpChoice::Variables,
            sudo: row.sudo,
            ulimits: row.ulimits.to_string(),
            apps: row.apps.to_string(),
            labels: row.remarks.labels.clone(),
            description: row.remarks.description.clone(),
            resources: row.spec.of_each(),
            containers: row.spec.containers,
            timeout_seconds: row.spec.timeout_seconds,
            max_runtime_seconds: row.spec.max_runtime_seconds,
            start_at: row.spec.start_at,
            depends_on: row.spec.depends_on.clone(),
            priority: row.precedence.priority,
            yields: row.precedence.yields,
            preempted_count: row.preempted_count,
            document_kept: !row.document_gone,
            paused: row.paused,
            held_by: row.held_by.clone(),
            incarnation: row.incarnation,
            node: around.node,
            devices: around.devices,
            simulated: around.simulated,
            created_at: row.created_at,
            scheduled_at: row.scheduled_at(),
            started_at: row.started_at(),
            waited_seconds: row.waited_millis().map(|millis| millis / 1000),
            ended_at: row.ended_at(),
            outcome: row.outcome(),
            exit_code: row.exit_code(),
            reason: row.reason.clone(),
            generation: row.generation,
        }
    }
}

/// Connections of a session to one host that came out the same, together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SessionConnection)]
pub struct ConnectionView {
    /// Which start of the session.
    pub incarnation: u32,
    /// A name or an address; `?` for what was none.
    pub host: String,
    pub port: u16,
    /// `opened`, `not-listed`, `address-refused`, `unresolved`, `unreachable` or `too-many`.
    pub outcome: String,
    pub count: u64,
    /// Bytes that the session sent.
    pub sent: u64,
    pub received: u64,
    #[schema(value_type = String, format = DateTime)]
    pub first_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub last_at: Timestamp,
}

/// What answers kept before there was such a field say.
fn kept() -> bool {
    true
}

/// The same of the priority.
fn usual_priority() -> u32 {
    USUAL_PRIORITY
}

/// What a new session is to be. Everything has a default; `{}` is a shell on the machine's own
/// programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LaunchRequest {
    /// Left out: made from the image and some letters.
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default = "interactive")]
    #[schema(value_type = KindShape)]
    pub kind: SessionKind,
    /// `host`, or the reference or id of an image.
    #[serde(default = "host")]
    pub image: String,
    /// Program and arguments; empty: what the image runs by itself.
    #[serde(default)]
    pub command: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Folders of the caller's that it mounts; not where it is launched for another user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 8)]
    pub mounts: Vec<NewMountBody>,
    /// What it reaches outside, `none`, `list` or `proxy`, of the networks that its policy allows; left out: the first of them,
    /// `none` without a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(none|list|proxy)$")]
    pub network: Option<String>,
    /// It starts without the dotfiles, the start-up script and the variables of its owner, as one that is launched for
    /// another user always does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_start_up: bool,
    /// It starts without the home of its owner and without their folders whose names begin with a dot, which each session of
    /// a user has otherwise. One that is launched for another user never has them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_home: bool,
    /// Let commands in it run as root of its own user namespace, where a policy allows that and its own user is another one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sudo: bool,
    /// What its processes may have more than is usual, such as `memlock=unlimited,stack=64m`; `default`: nothing; left out: what
    /// its image recommends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        pattern = "^(default|(memlock=(unlimited|-1|default)|stack=([1-9][0-9]{0,2}m|default))(,(memlock=(unlimited|-1|default)|stack=([1-9][0-9]{0,2}m|default))){0,3})$"
    )]
    pub ulimits: Option<String>,
    /// Apps that are started once it runs, and ports that are opened, as `jupyter,board:6006,8501`, 8 at most, each once: by
    /// name, by name with the port where it listens, or a port alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        pattern = "^([a-z]([a-z0-9-]{0,30}[a-z0-9])?(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?|[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])(,([a-z]([a-z0-9-]{0,30}[a-z0-9])?(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?|[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])){0,7}$"
    )]
    pub apps: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What it is for, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 500, format = "plain-text")]
    pub description: Option<String>,
    /// Name of a preset of the project, whose amounts hold where none are given here. Its name becomes the label
    /// `preset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Id or name of a reservation: the session starts with it, on what it keeps. Its name becomes the label
    /// `reservation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// Name or id of the resource group whose nodes it runs on; left out: the first that its owner may use, `default`
    /// first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How urgent it is: a higher one comes first in the queue of its resource group. Left out: 10, or less where a policy
    /// allows less. More than 10 needs a policy that allows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 100)]
    pub priority: Option<u32>,
    /// It may be stopped for a session of higher priority, where its resource group has preemption, and is queued again
    /// then. For batch sessions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub yields: bool,
    /// Of each of its containers.
    #[serde(default, deserialize_with = "rules::object::read")]
    pub resources: Resources,
    /// Containers of each session, all on one node and started together. They reach one another as `main1`, `sub1`, `sub2`
    /// and so on, and each runs the command; no other session reaches them.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[schema(minimum = 1, maximum = 20)]
    pub containers: u32,
    // The aliases: a launch with a key that the version before took is repeated to this one.
    #[serde(default = "one", alias = "copies")]
    #[schema(minimum = 1, maximum = 500)]
    pub replicas: u32,
    #[serde(default)]
    #[schema(minimum = 1)]
    pub timeout_seconds: Option<u64>,
    #[serde(default, alias = "longest_run_seconds")]
    #[schema(minimum = 1)]
    pub max_runtime_seconds: Option<u64>,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start_at: Option<Timestamp>,
    /// Ids or names of sessions that have to end well first.
    #[serde(default)]
    pub depends_on: Vec<String>,
    /// Id, name or `DOMAIN/NAME` of the project it runs in; left out: the caller's first.
    #[serde(default)]
    pub project: Option<String>,
    /// Id or name of the member of the project whose session it is; left out: the caller. For those who may change
    /// the project's sessions.
    #[serde(default)]
    pub owner: Option<String>,
    /// The only device that it may have a share of. Not for requests from outside: a card's self-test sets it.
    #[serde(skip)]
    pub device_affinity: Option<String>,
}

fn interactive() -> SessionKind {
    SessionKind::Interactive
}

fn host() -> String {
    "host".to_owned()
}

fn one() -> u32 {
    1
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

impl Default for LaunchRequest {
    /// One interactive session from the machine's own programs.
    fn default() -> Self {
        Self {
            name: None,
            kind: interactive(),
            image: host(),
            command: Vec::new(),
            env: BTreeMap::new(),
            mounts: Vec::new(),
            network: None,
            without_start_up: false,
            without_home: false,
            sudo: false,
            ulimits: None,
            apps: None,
            labels: BTreeMap::new(),
            description: None,
            preset: None,
            reservation: None,
            group: None,
            priority: None,
            yields: false,
            resources: Resources::default(),
            containers: one(),
            replicas: one(),
            timeout_seconds: None,
            max_runtime_seconds: None,
            start_at: None,
            depends_on: Vec::new(),
            project: None,
            owner: None,
            device_affinity: None,
        }
    }
}

impl LaunchRequest {
    /// A launch of which the same is said, and which asks for what is usual.
    pub fn saying(remarks: Remarks) -> Self {
        Self {
            labels: remarks.labels,
            description: remarks.description,
            ..Self::default()
        }
    }
}

impl From<LaunchRequest> for RequestedLaunch {
    fn from(request: LaunchRequest) -> Self {
        Self {
            name: request.name,
            remarks: Remarks {
                labels: request.labels,
                description: request.description,
            },
            precedence: Precedence {
                priority: request.priority.unwrap_or(USUAL_PRIORITY),
                yields: request.yields,
            },
            replicas: request.replicas,
            kind: request.kind,
            image: request.image,
            command: request.command,
            env: request.env,
            demand: request.resources.demand(),
            containers: request.containers,
            typed_gpu: request.resources.gpu,
            timeout_seconds: request.timeout_seconds,
            max_runtime_seconds: request.max_runtime_seconds,
            start_at: request.start_at,
            depends_on: request.depends_on,
        }
    }
}

/// Amounts; what is left out gets its default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = LaunchResources)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Cores, at most two decimals.
    #[serde(default)]
    #[schema(value_type = Option<f64>, minimum = 0.01)]
    pub cpu: Option<CpuShare>,
    /// Bytes.
    #[serde(default)]
    #[schema(value_type = Option<u64>, minimum = 16_777_216)]
    pub memory: Option<Bytes>,
    /// Bytes.
    #[serde(default)]
    #[schema(value_type = Option<u64>)]
    pub shm: Option<Bytes>,
    /// Bytes that the session may write outside its folders; left out: what a policy says, else the site, where limits are held.
    #[serde(default)]
    #[schema(value_type = Option<u64>)]
    pub disk: Option<Bytes>,
    /// Devices, at most two decimals: 0.35, 1, 2.5.
    #[serde(default)]
    #[schema(value_type = Option<f64>, minimum = 0.01)]
    pub gpu: Option<GpuShare>,
    /// Bytes of the fraction, where it is not to be the same part of the card as the share.
    #[serde(default)]
    #[schema(value_type = Option<u64>)]
    pub gpu_memory: Option<Bytes>,
    /// One hardware partition instead of a share: `1g.10gb`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub mig: Option<MigProfile>,
}

impl Resources {
    /// What is asked for, with the defaults where nothing is said.
    pub fn demand(&self) -> Demand {
        self.amounts(None).demand()
    }
}

/// A merge patch. Limits are changed alone.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = SessionPatch)]
#[serde(deny_unknown_fields)]
pub struct SessionPatchBody {
    pub name: Option<String>,
    /// A null removes a label.
    pub labels: Option<BTreeMap<String, Option<String>>>,
    #[schema(value_type = Option<Resize>)]
    pub resources: Option<Object<Resize>>,
    /// Changed alone, of a waiting session; a null removes it.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub max_runtime_seconds: Option<Option<u64>>,
    /// Changed alone, of a waiting session; more than 10 needs a policy that allows it.
    #[schema(minimum = 0, maximum = 100)]
    pub priority: Option<u32>,
}

/// A value that is there, null or not.
pub(crate) fn present<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

/// Amounts a session is to have from now on; what is null stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ResourcesPatch)]
#[serde(default, deny_unknown_fields)]
pub struct Resize {
    #[schema(value_type = Option<f64>)]
    pub cpu: Option<CpuShare>,
    #[schema(value_type = Option<u64>, minimum = 16_777_216)]
    pub memory: Option<Bytes>,
    /// The fraction grows and shrinks on its card; other devices need a restart.
    #[schema(value_type = Option<f64>)]
    pub gpu: Option<GpuShare>,
    /// Memory of the fraction; follows the share where only that is given.
    #[schema(value_type = Option<u64>)]
    pub gpu_memory: Option<Bytes>,
}

impl From<Resize> for RequestedResize {
    fn from(wanted: Resize) -> Self {
        Self {
            cpu: wanted.cpu,
            memory: wanted.memory,
            gpu: wanted.gpu,
            gpu_memory: wanted.gpu_memory,
        }
    }
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = StopRequest)]
#[serde(default, deny_unknown_fields)]
pub struct StopBody {
    /// Kill at once instead of asking first.
    pub force: bool,
}

/// What a list of sessions is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListQuery {
    /// Query language; empty for everything.
    pub q: String,
    /// `created_at`, `started_at`, `ended_at` or `name`, `-` before it for the reverse; None is
    /// newest first.
    pub sort: Option<String>,
    /// 1 to 500; None is 50.
    pub limit: Option<u32>,
    pub cursor: Option<String>,
    /// `mine`, or `all` that the caller may see; None is `all`.
    pub scope: Option<String>,
}

/// One moment of a session's use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Sample)]
pub struct UsageSample {
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Cores used since the sample before.
    pub cpu: f64,
    /// 100 is all the session may use.
    pub cpu_percent_of_limit: f64,
    #[schema(value_type = u64)]
    pub memory: Bytes,
    pub memory_percent_of_limit: f64,
    pub processes: u64,
    /// Of the time since the sample before, the part in which something in it waited for a processor;
    /// its own limit makes it wait too. Null where the kernel does not measure it.
    pub cpu_waiting_percent: Option<f64>,
    /// The same of waiting for memory to be freed or read back.
    pub memory_waiting_percent: Option<f64>,
    /// Null where it has no share of a device, or the load is unknown.
    pub gpu: Option<GpuSample>,
}

/// What a session did with its shares of devices, all of them together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GpuSample {
    /// Per cent of its shares since the sample before; above 100 where it was given what others left. Null
    /// where unknown, as of hardware partitions.
    pub load_percent: Option<f64>,
    /// Bytes in use, contexts included.
    #[schema(value_type = Option<u64>)]
    pub memory: Option<Bytes>,
    pub memory_percent_of_limit: Option<f64>,
    /// The devices do not exist, and this is made up.
    pub simulated: bool,
}

impl SessionView {
    /// Where it stands for questions of permission.
    pub fn scope(&self) -> Scope {
        Scope {
            domain: Some(self.domain),
            project: Some(self.project.id),
            owner: Some(self.owner.id),
        }
    }

    /// Whether its machine paused it, because it fills the disk.
    pub fn stands_still(&self) -> bool {
        let code = self.reason.as_ref().map(|reason| reason.code.as_str());
        self.state == SessionState::Running
            && matches!(
                code,
                Some(rules::codes::DISK_PAUSED | rules::codes::DISK_FILES_PAUSED)
            )
    }
}

/// A waiting session and why it waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Waiting)]
pub struct WaitingView {
    pub session: SessionView,
    #[schema(value_type = ExplanationShape)]
    pub why: Explanation,
}

#[cfg(test)]
mod tests {
    use rules::session::SessionEnvironment;
    use rules::workload::remarks::MAX_REMARK_LENGTH;

    use super::*;

    #[test]
    fn what_is_said_of_a_session_goes_from_its_launch_to_its_answer_and_to_the_next_launch() {
        let now = Timestamp::from_millis(0);
        let request = LaunchRequest {
            labels: [("team".to_owned(), "vision".to_owned())].into(),
            description: Some("a first try".into()),
            ..LaunchRequest::default()
        };
        let launch = RequestedLaunch::from(request.clone()).validate(now);
        let launch = launch.expect("a good launch");
        let spec = launch
            .spec
            .complete(SessionEnvironment::Host, true, Vec::new());
        let mut row = Session::launched(
            SessionId(uuid::Uuid::nil()),
            SessionName::parse("a").expect("a name"),
            UserId(uuid::Uuid::nil()),
            spec.expect("a specification"),
            now,
        );
        row.remarks = launch.remarks;
        let around = SessionSurroundings {
            owner: UserName::parse("mina").expect("a name"),
            project: TenantName::first_project(),
            group: None,
            node: None,
            devices: Vec::new(),
            simulated: false,
        };
        let view = SessionView::of(&row, around);
        assert_eq!(view.labels, request.labels);
        assert_eq!(view.description, request.description);
        let again = LaunchRequest::saying(row.remarks);
        assert_eq!(again.labels, request.labels);
        assert_eq!(again.description, request.description);
    }

    #[test]
    fn the_document_has_the_bound_on_a_description() {
        let schemas = crate::schema::all();
        let field = &schemas["LaunchRequest"]["properties"]["description"];
        assert_eq!(field["maxLength"], MAX_REMARK_LENGTH);
    }
}
