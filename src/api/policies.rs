//! Policies: named sets of limits, and what they are attached to.

use rules::egress::EgressPolicy;
use rules::object::Object;
use rules::quota::{EffectiveLimit, LimitKey, PolicyLevel, PolicyLimits};
use rules::refusal::Refusal;
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::values::PolicyLevelShape;

/// One policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Policy)]
pub struct PolicyView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    pub name: String,
    pub limits: LimitsBody,
    #[serde(default)]
    #[schema(required = true)]
    pub egress: EgressBody,
    /// Launches under it may ask for sudo.
    #[serde(default)]
    #[schema(required = true)]
    pub sudo: bool,
    /// Sessions under it have no inner door. One policy that says so is enough.
    #[serde(default)]
    #[schema(required = true)]
    pub no_inner_door: bool,
    /// Sessions under it have no home folder and no dot-folders by themselves.
    #[serde(default)]
    #[schema(required = true)]
    pub no_home: bool,
    /// Sessions under it say how long they run at most.
    #[serde(default)]
    #[schema(required = true)]
    pub require_limit: bool,
    /// What it is attached to, the widest first.
    pub uses: Vec<PolicyUseView>,
    /// Version, and ETag.
    pub generation: u64,
}

/// One place that a policy is attached to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PolicyUse)]
pub struct PolicyUseView {
    #[schema(value_type = PolicyLevelShape)]
    pub level: PolicyLevel,
    /// Null for the site.
    #[schema(value_type = Option<String>, format = Uuid)]
    pub id: Option<Uuid>,
    /// Name of the domain or the user, `DOMAIN/PROJECT` for a project and its members; empty for the site.
    pub name: String,
}

/// Limits; null or left out: the policy says nothing of that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Limits)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsBody {
    /// Sessions that wait at once; a launch beyond it is refused.
    pub waiting: Option<u64>,
    /// Bytes of commands and variables of sessions that wait.
    pub waiting_bytes: Option<u64>,
    /// Sessions that have a place at once; what is beyond it waits, here and in the next three.
    pub sessions: Option<u64>,
    /// GPUs that they hold, at most two decimals.
    #[schema(value_type = Option<f64>, minimum = 0)]
    pub gpu: Option<GpuShare>,
    /// Cores.
    #[schema(value_type = Option<f64>, minimum = 0)]
    pub cpu: Option<CpuShare>,
    /// Bytes.
    #[schema(value_type = Option<u64>)]
    pub memory: Option<Bytes>,
    /// Of one session; a larger one is refused, here and in the next four.
    #[schema(value_type = Option<f64>, minimum = 0)]
    pub gpu_each: Option<GpuShare>,
    /// Cores.
    #[schema(value_type = Option<f64>, minimum = 0)]
    pub cpu_each: Option<CpuShare>,
    /// Bytes.
    #[schema(value_type = Option<u64>)]
    pub memory_each: Option<Bytes>,
    /// Bytes that it writes outside its folders, at least 64 MiB; one that names no limit gets this one.
    #[schema(value_type = Option<u64>, minimum = 67108864)]
    pub disk_each: Option<Bytes>,
    /// How long a session runs; one that names no limit gets this one.
    #[schema(minimum = 1)]
    pub runtime_seconds: Option<u64>,
    /// The highest priority that a session is launched with; where no policy says one, 10.
    #[schema(minimum = 0, maximum = 100)]
    pub priority: Option<u64>,
    /// Browsers that each user is signed in with at once.
    #[schema(minimum = 1)]
    pub sign_ins: Option<u64>,
    /// Bytes of all folders of each user, at least 32 MiB; where no policy says any, 50 GiB.
    #[schema(value_type = Option<u64>, minimum = 33554432)]
    pub folder_bytes: Option<Bytes>,
    /// Images that each user keeps of sessions; where no policy says any, 32.
    #[schema(maximum = 1_000)]
    pub images: Option<u64>,
}

/// What a policy says of networks; empty lists: nothing. Of the policies that hold for a session the narrowest that says
/// something counts, alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Egress)]
#[serde(default, deny_unknown_fields)]
pub struct EgressBody {
    /// Networks that a launch may choose: `none`, `list`, `proxy`. The first is that of a launch that names none.
    #[schema(max_items = 3)]
    pub networks: Vec<String>,
    /// `NAME:PORT`, `*.NAME:PORT`, `ADDRESS:PORT`, `NETWORK/BITS:PORT` or `NAME=ADDRESS:PORT`; an IPv6 address in brackets.
    #[schema(max_items = 64)]
    pub targets: Vec<String>,
}

impl EgressBody {
    /// What a policy says, checked; None for nothing. Errors: `egress.network-unknown`, `egress.target-invalid`,
    /// `egress.too-many`.
    pub fn read(&self) -> Result<Option<EgressPolicy>, Refusal> {
        EgressPolicy::read(&self.networks, &self.targets)
    }
}

impl From<Option<&EgressPolicy>> for EgressBody {
    fn from(policy: Option<&EgressPolicy>) -> Self {
        let Some(policy) = policy else {
            return Self::default();
        };
        let networks = policy.networks.iter();
        Self {
            networks: networks.map(|mode| mode.word().to_owned()).collect(),
            targets: policy.targets.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<PolicyLimits> for LimitsBody {
    fn from(limits: PolicyLimits) -> Self {
        let hundredths = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Self {
            waiting: limits.waiting,
            waiting_bytes: limits.waiting_bytes,
            sessions: limits.sessions,
            gpu: limits.gpu.map(hundredths).map(GpuShare),
            cpu: limits.cpu.map(hundredths).map(CpuShare),
            memory: limits.memory.map(Bytes),
            gpu_each: limits.gpu_each.map(hundredths).map(GpuShare),
            cpu_each: limits.cpu_each.map(hundredths).map(CpuShare),
            memory_each: limits.memory_each.map(Bytes),
            disk_each: limits.disk_each.map(Bytes),
            runtime_seconds: limits.runtime_seconds,
            priority: limits.priority,
            sign_ins: limits.sign_ins,
            folder_bytes: limits.folder_bytes.map(Bytes),
            images: limits.images,
        }
    }
}

impl From<LimitsBody> for PolicyLimits {
    fn from(limits: LimitsBody) -> Self {
        Self {
            waiting: limits.waiting,
            waiting_bytes: limits.waiting_bytes,
            sessions: limits.sessions,
            gpu: limits.gpu.map(|share| u64::from(share.0)),
            cpu: limits.cpu.map(|share| u64::from(share.0)),
            memory: limits.memory.map(|bytes| bytes.0),
            gpu_each: limits.gpu_each.map(|share| u64::from(share.0)),
            cpu_each: limits.cpu_each.map(|share| u64::from(share.0)),
            memory_each: limits.memory_each.map(|bytes| bytes.0),
            disk_each: limits.disk_each.map(|bytes| bytes.0),
            runtime_seconds: limits.runtime_seconds,
            priority: limits.priority,
            sign_ins: limits.sign_ins,
            folder_bytes: limits.folder_bytes.map(|bytes| bytes.0),
            images: limits.images,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = NewPolicy)]
#[serde(deny_unknown_fields)]
pub struct NewPolicyBody {
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: String,
    #[serde(default, deserialize_with = "rules::object::read")]
    pub limits: LimitsBody,
    #[serde(default, deserialize_with = "rules::object::read")]
    pub egress: EgressBody,
    /// Let launches under it ask for sudo.
    #[serde(default)]
    pub sudo: bool,
    /// Close the inner doors of sessions under it.
    #[serde(default)]
    pub no_inner_door: bool,
    /// Let sessions under it have no home folder and no dot-folders by themselves.
    #[serde(default)]
    pub no_home: bool,
    /// Refuse sessions under it that name no time limit.
    #[serde(default)]
    pub require_limit: bool,
}

/// What is left out stays; `limits` and `egress` are replaced as a whole.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = PolicyPatch)]
#[serde(deny_unknown_fields)]
pub struct PolicyPatchBody {
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: Option<String>,
    #[schema(value_type = Option<LimitsBody>)]
    pub limits: Option<Object<LimitsBody>>,
    #[schema(value_type = Option<EgressBody>)]
    pub egress: Option<Object<EgressBody>>,
    pub sudo: Option<bool>,
    pub no_inner_door: Option<bool>,
    pub no_home: Option<bool>,
    pub require_limit: Option<bool>,
}

/// What a policy is attached to, or detached from.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = NewPolicyUse)]
#[serde(deny_unknown_fields)]
pub struct PolicyUseBody {
    #[schema(value_type = PolicyLevelShape)]
    pub level: PolicyLevel,
    /// Name or id of the domain, project or user, for members that of their project; left out for the site.
    #[serde(default)]
    pub subject: Option<String>,
}

/// Who would have more than a changed policy allows; nothing of theirs would end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = PolicyPreview)]
pub struct PolicyPreviewView {
    /// By the places that the policy is attached to, 100 at most.
    pub items: Vec<OverLimitView>,
    /// How many more there are.
    pub more: u64,
}

/// One sum that is beyond a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = OverLimit)]
pub struct OverLimitView {
    #[schema(value_type = PolicyLevelShape)]
    pub level: PolicyLevel,
    /// Name of the domain or the user, `DOMAIN/PROJECT` for a project and its members; empty for the site.
    pub name: String,
    /// Whose sum it is; null for that of all members of a domain or a project.
    pub user: Option<String>,
    /// The limit's name in a policy.
    pub key: String,
    /// In the unit of the key, GPUs and cores in hundredths.
    pub used: u64,
    pub limit: u64,
    /// The same with units.
    pub used_text: String,
    pub limit_text: String,
}

/// The limit that holds, and the rule that it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = EffectiveLimit)]
pub struct EffectiveLimitView {
    /// Its name in a policy; `gpu_hours`: a budget, which counts what is reserved as used.
    pub key: String,
    /// In the unit of the key, GPUs, cores and GPU-hours in hundredths.
    pub limit: u64,
    pub used: u64,
    /// 0 where more is in use than may be.
    pub left: u64,
    /// The same with units.
    pub limit_text: String,
    pub used_text: String,
    #[schema(value_type = PolicyLevelShape)]
    pub level: PolicyLevel,
    /// Name of the policy; empty where none says anything and the built-in limit holds.
    pub policy: String,
    /// When the allowance ends that raised it, or the budget; null for what the policy says itself.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
    /// What holds again when the allowance ends; null where none raised it.
    #[serde(default)]
    pub usual: Option<u64>,
}

impl From<EffectiveLimit> for EffectiveLimitView {
    fn from(limit: EffectiveLimit) -> Self {
        let key: LimitKey = limit.key;
        Self {
            key: key.word().to_owned(),
            limit: limit.value,
            used: limit.used,
            left: limit.left,
            limit_text: key.told(limit.value),
            used_text: key.told(limit.used),
            level: limit.level,
            policy: limit.policy,
            until: limit.until,
            usual: limit.usual,
        }
    }
}
