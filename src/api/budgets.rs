//! Budgets: GPU-hours that a project or a user may use in a time.

use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// One budget. GPU-hours are texts with two decimals, such as `120.50`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Budget)]
pub struct BudgetView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    /// Name of the project's domain, or of the user's home.
    pub domain: String,
    /// Name of the project whose use counts; null: it is the budget of a user.
    pub project: Option<String>,
    /// Name of the user whose use counts, in all projects.
    pub user: Option<String>,
    pub gpu_hours: String,
    /// Rounded up.
    pub used: String,
    /// What live sessions may still use: their GPUs times the rest of their time limit.
    pub reserved: String,
    /// What is neither used nor reserved.
    pub left: String,
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    /// The end, not included.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// Launches need a time limit that fits what is left; false: it only warns.
    pub hard: bool,
    /// An administrator of the site set it: those of the domain cannot change it.
    pub of_site: bool,
    /// The percentage of use that was warned of last: 80 or 95; 0: none.
    pub warned_percent: u64,
    /// When it will be used at the rates of the last 7 and 28 days, the earlier of the two; null: not before its end.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub used_earliest: Option<Timestamp>,
    /// The later of the two.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub used_latest: Option<Timestamp>,
    /// Version, and ETag.
    pub generation: u64,
}

/// Either a project or a user is named, and either a month or two times.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewBudget)]
#[serde(deny_unknown_fields)]
pub struct NewBudgetBody {
    /// Id, name or `DOMAIN/NAME`.
    #[serde(default)]
    pub project: Option<String>,
    /// Name or id.
    #[serde(default)]
    pub user: Option<String>,
    pub gpu_hours: String,
    /// Such as `2026-12`, by your time zone.
    #[serde(default)]
    pub month: Option<String>,
    /// RFC 3339, or a date by your time zone.
    #[serde(default)]
    pub from: Option<String>,
    /// The end, not included.
    #[serde(default)]
    pub until: Option<String>,
    #[serde(default)]
    pub hard: bool,
}

/// A merge patch: what is left out stays.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = BudgetPatch)]
#[serde(deny_unknown_fields)]
pub struct BudgetPatchBody {
    pub gpu_hours: Option<String>,
    pub hard: Option<bool>,
}
