//! The order of the queue, and fair share: who is served next, and why. Decides nothing.

use rules::fair_share::QueueOrder;
use rules::policy::BackfillMode;
use rules::quota::TenantLevel;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::values::{BackfillModeShape, QueueOrderShape, TenantLevelShape};

/// The order that holds, and what fair share goes by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = FairShare)]
pub struct FairShareView {
    #[schema(value_type = QueueOrderShape)]
    pub order: QueueOrder,
    #[schema(value_type = BackfillModeShape)]
    pub backfill: BackfillMode,
    /// After so many hours use of the past counts half.
    pub half_life_hours: u32,
    /// Version, and ETag.
    pub generation: u64,
    /// Domains, each followed by its projects, each followed by its users; siblings in the order in which they are
    /// served.
    pub items: Vec<FairShareItem>,
}

/// A domain, a project, or a user in a project.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FairShareItem {
    #[schema(value_type = TenantLevelShape)]
    pub level: TenantLevel,
    pub domain: String,
    /// Empty for a domain.
    pub project: String,
    /// Empty for a domain and a project.
    pub user: String,
    pub weight: u64,
    /// The largest part that it holds now of any kind of resource, 0 to 1.
    pub share: f64,
    /// Its part of what its siblings used, 0 to 1; older use counts less.
    pub past: f64,
    /// What siblings are sorted by: the least is served first.
    pub value: f64,
}

/// What is left out stays.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = FairSharePatch)]
#[serde(default, deny_unknown_fields)]
pub struct FairSharePatchBody {
    #[schema(value_type = Option<QueueOrderShape>)]
    pub order: Option<QueueOrder>,
    #[schema(value_type = Option<BackfillModeShape>)]
    pub backfill: Option<BackfillMode>,
    #[schema(minimum = 1, maximum = 8760)]
    pub half_life_hours: Option<u32>,
}

/// How much of what siblings share is a subject's, to theirs.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = FairWeight)]
#[serde(deny_unknown_fields)]
pub struct FairWeightBody {
    #[schema(value_type = TenantLevelShape)]
    pub level: TenantLevel,
    /// Name or id of the domain, project or user.
    pub subject: String,
    /// 1 is the usual one.
    #[schema(minimum = 1, maximum = 1000)]
    pub weight: u32,
}
