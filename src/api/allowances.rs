//! Allowances: limits of a domain, a project or a user that are raised for a while.

use rules::object::Object;
use rules::quota::TenantLevel;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::policies::LimitsBody;
use crate::values::TenantLevelShape;

/// An allowance that holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Allowance)]
pub struct AllowanceView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    #[schema(value_type = TenantLevelShape)]
    pub level: TenantLevel,
    /// Id of the domain, project or user.
    #[schema(value_type = String, format = Uuid)]
    pub subject: Uuid,
    /// Name of the domain or the user, `DOMAIN/PROJECT` for a project.
    pub name: String,
    /// What the limits are raised to; a policy's own value holds where it is higher.
    pub limits: LimitsBody,
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// Empty where nothing was said.
    pub reason: String,
    /// Name of the user who made it.
    pub actor: String,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = NewAllowance)]
#[serde(deny_unknown_fields)]
pub struct NewAllowanceBody {
    #[schema(value_type = TenantLevelShape)]
    pub level: TenantLevel,
    /// Name or id of the domain, project or user.
    pub subject: String,
    /// At least one.
    #[schema(value_type = LimitsBody)]
    pub limits: Object<LimitsBody>,
    /// Within 365 days.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// At most 200 characters.
    #[serde(default)]
    #[schema(max_length = 200)]
    pub reason: String,
}

/// What a user asks for: that limits of theirs are raised for a while.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = LimitRequest)]
pub struct LimitRequestView {
    /// Name of the user.
    pub user: String,
    /// Whether the account is suspended. Such a request can be answered, but nobody waits for it.
    #[serde(default)]
    #[schema(required = true)]
    pub suspended: bool,
    /// What the limits should be raised to.
    pub limits: LimitsBody,
    /// For how many days.
    pub days: u32,
    pub reason: String,
    #[schema(value_type = String, format = DateTime)]
    pub asked_at: Timestamp,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = NewLimitRequest)]
#[serde(deny_unknown_fields)]
pub struct NewLimitRequestBody {
    /// At least one.
    #[schema(value_type = LimitsBody)]
    pub limits: Object<LimitsBody>,
    #[schema(minimum = 1, maximum = 365)]
    pub days: u32,
    /// Why, in at most 200 characters.
    #[schema(min_length = 1, max_length = 200)]
    pub reason: String,
}

#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = LimitRequestDecline)]
#[serde(default, deny_unknown_fields)]
pub struct LimitRequestDeclineBody {
    /// What the user is told, in at most 200 characters; may be empty.
    #[schema(max_length = 200)]
    pub reason: String,
}
