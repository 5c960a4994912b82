//! Idle rules: when a session is idle, and what then happens; what a rule would have done; and how a session stands.

use rules::idleness::{IdleAction, IdleLevel, IdleMatch, IdleRule, IdleThresholds};
use rules::names::SessionId;
use rules::object::Object;
use rules::session::SessionKind;
use rules::units::{CpuShare, GpuShare, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::values::{IdleActionShape, IdleLevelShape, IdleMatchShape, KindShape};

/// What a session must be below to be idle; null or left out: it is not looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = IdleThresholds)]
#[serde(default, deny_unknown_fields)]
pub struct IdleThresholdsBody {
    /// Load in per cent of its share of GPUs. A session without a GPU is never below it.
    #[schema(minimum = 1, maximum = 100)]
    pub gpu_percent: Option<u32>,
    /// Cores in use.
    #[schema(value_type = Option<f64>)]
    pub cpu: Option<CpuShare>,
    /// Terminals, commands and ports that are open.
    #[schema(minimum = 1, maximum = 10_000)]
    pub terminals: Option<u32>,
    /// Times that somebody typed into a terminal, in a minute.
    #[schema(minimum = 1, maximum = 10_000)]
    pub keys: Option<u32>,
}

impl From<IdleThresholds> for IdleThresholdsBody {
    fn from(below: IdleThresholds) -> Self {
        Self {
            gpu_percent: below.gpu_percent,
            cpu: below.cpu,
            terminals: below.terminals,
            keys: below.keys,
        }
    }
}

impl From<IdleThresholdsBody> for IdleThresholds {
    fn from(below: IdleThresholdsBody) -> Self {
        Self {
            gpu_percent: below.gpu_percent,
            cpu: below.cpu,
            terminals: below.terminals,
            keys: below.keys,
        }
    }
}

/// One idle rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = IdleRule)]
pub struct IdleRuleView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    pub name: String,
    #[schema(value_type = IdleLevelShape)]
    pub level: IdleLevel,
    /// Name of the domain, `DOMAIN/PROJECT` for a project; empty for the site.
    pub subject: String,
    /// Null: sessions of both kinds.
    #[schema(value_type = Option<KindShape>)]
    pub kind: Option<SessionKind>,
    /// `KEY` or `KEY=VALUE`: sessions with this label are let off; empty: none are.
    pub exempt: String,
    pub below: IdleThresholdsBody,
    #[schema(value_type = IdleMatchShape)]
    pub of: IdleMatch,
    /// How long it must be below, the warnings included.
    pub window_seconds: u64,
    /// Time after a start in which nothing counts.
    pub grace_seconds: u64,
    #[schema(value_type = IdleActionShape)]
    pub action: IdleAction,
    /// How long one Keep puts the end off.
    pub extend_seconds: u64,
    /// How often it may be kept in a row.
    pub extend_times: u32,
    /// Version, and ETag.
    pub generation: u64,
}

impl IdleRuleView {
    /// The rule that it says.
    pub fn rule(&self) -> IdleRule {
        IdleRule {
            below: self.below.into(),
            of: self.of,
            window_seconds: self.window_seconds,
            grace_seconds: self.grace_seconds,
            action: self.action,
            extend_seconds: self.extend_seconds,
            extend_times: self.extend_times,
        }
    }
}

/// What is left out: of the whole site, both kinds, all thresholds, an hour after ten minutes of grace, stop, kept three
/// times for an hour each.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = NewIdleRule)]
#[serde(deny_unknown_fields)]
pub struct NewIdleRuleBody {
    /// A dry run needs none; with the name of a rule that there is, it tries a change of that rule.
    #[serde(default)]
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: String,
    #[serde(default = "site")]
    #[schema(value_type = IdleLevelShape)]
    pub level: IdleLevel,
    /// Name or id of the domain or project; left out for the site.
    #[serde(default)]
    pub subject: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<KindShape>)]
    pub kind: Option<SessionKind>,
    #[serde(default)]
    pub exempt: String,
    #[serde(default, deserialize_with = "rules::object::read")]
    pub below: IdleThresholdsBody,
    #[serde(default = "all")]
    #[schema(value_type = IdleMatchShape)]
    pub of: IdleMatch,
    #[serde(default = "an_hour")]
    #[schema(minimum = 1200, maximum = 259200)]
    pub window_seconds: u64,
    #[serde(default = "ten_minutes")]
    #[schema(maximum = 86400)]
    pub grace_seconds: u64,
    #[serde(default = "stop")]
    #[schema(value_type = IdleActionShape)]
    pub action: IdleAction,
    #[serde(default = "an_hour")]
    pub extend_seconds: u64,
    #[serde(default = "thrice")]
    #[schema(maximum = 20)]
    pub extend_times: u32,
}

impl NewIdleRuleBody {
    /// The rule that it says.
    pub fn rule(&self) -> IdleRule {
        IdleRule {
            below: self.below.into(),
            of: self.of,
            window_seconds: self.window_seconds,
            grace_seconds: self.grace_seconds,
            action: self.action,
            extend_seconds: self.extend_seconds,
            extend_times: self.extend_times,
        }
    }
}

fn site() -> IdleLevel {
    IdleLevel::Site
}

fn all() -> IdleMatch {
    IdleMatch::All
}

fn stop() -> IdleAction {
    IdleAction::Stop
}

fn an_hour() -> u64 {
    3_600
}

fn ten_minutes() -> u64 {
    600
}

fn thrice() -> u32 {
    3
}

/// A merge patch: what is left out stays; `below` is replaced as a whole. Its level and subject stay.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = IdleRulePatch)]
#[serde(deny_unknown_fields)]
pub struct IdleRulePatchBody {
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: Option<String>,
    /// A null: both kinds.
    #[serde(default, deserialize_with = "crate::sessions::present")]
    #[schema(value_type = Option<KindShape>)]
    pub kind: Option<Option<SessionKind>>,
    pub exempt: Option<String>,
    #[schema(value_type = Option<IdleThresholdsBody>)]
    pub below: Option<Object<IdleThresholdsBody>>,
    #[schema(value_type = Option<IdleMatchShape>)]
    pub of: Option<IdleMatch>,
    #[schema(minimum = 1200, maximum = 259200)]
    pub window_seconds: Option<u64>,
    #[schema(maximum = 86400)]
    pub grace_seconds: Option<u64>,
    #[schema(value_type = Option<IdleActionShape>)]
    pub action: Option<IdleAction>,
    pub extend_seconds: Option<u64>,
    #[schema(maximum = 20)]
    pub extend_times: Option<u32>,
}

/// What a rule would have done over the samples that are kept, had nobody kept a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = IdleDryRun)]
pub struct IdleDryRunView {
    /// Sessions that it would have judged.
    pub sessions: u64,
    /// Times that it would have acted.
    pub ended: u64,
    /// GPU-hours from there to the end of the session, or to its newest sample.
    pub gpu_hours: f64,
    /// Of those, how many were above the thresholds again within the hour.
    pub busy_again: u64,
    /// Those that would have freed most, at most 50.
    pub examples: Vec<IdleDryEndView>,
}

/// One session that a rule would have ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = IdleDryEnd)]
pub struct IdleDryEndView {
    #[schema(value_type = String, format = Uuid)]
    pub session: SessionId,
    pub name: String,
    pub owner: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    #[schema(value_type = f64)]
    pub gpu: GpuShare,
    pub gpu_hours: f64,
    pub busy_again: bool,
}

/// A session that a rule is about to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SessionIdle)]
pub struct SessionIdleView {
    /// Name of the rule.
    pub rule: String,
    #[schema(value_type = IdleActionShape)]
    pub action: IdleAction,
    /// Warnings that were given: 0, 1 or 2.
    pub warnings: u32,
    /// When it acts, were the session left alone; null where it was just kept, or it acted.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ends_at: Option<Timestamp>,
    pub kept: u32,
    pub keeps_left: u32,
    /// How long one Keep puts the end off.
    pub extend_seconds: u64,
}
