//! Domains, projects, members and roles: requests and answers.

use rules::grants::GrantRole;
use rules::tenancy::{DomainId, ProjectId, TenantState};
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::sessions::Owner;
use crate::values::{GrantRoleShape, TenantStateShape};

/// One domain: an organisation with users and projects of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Domain)]
pub struct DomainView {
    #[schema(value_type = String, format = Uuid)]
    pub id: DomainId,
    pub name: String,
    /// What people read; empty: the name.
    pub title: String,
    /// Accounts at home there.
    pub users: u64,
    /// Version, and ETag.
    pub generation: u64,
}

/// One project of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Project)]
pub struct ProjectView {
    #[schema(value_type = String, format = Uuid)]
    pub id: ProjectId,
    /// Name of its domain.
    pub domain: String,
    pub name: String,
    /// What people read; empty: the name.
    pub title: String,
    #[schema(value_type = TenantStateShape)]
    pub state: TenantState,
    pub members: u64,
    /// Sessions that are not over.
    pub live_sessions: u64,
    /// The caller's own role in it; null where they have none.
    #[schema(value_type = Option<GrantRoleShape>)]
    pub role: Option<GrantRole>,
    /// Whether the caller may change it and its members.
    pub writable: bool,
    /// Version, and ETag.
    pub generation: u64,
}

/// One member of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Member)]
pub struct MemberView {
    pub user: Owner,
    #[schema(value_type = GrantRoleShape)]
    pub role: GrantRole,
    /// Null: until they are removed.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
}

/// One role of a user on a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RoleGrant)]
pub struct GrantView {
    #[schema(value_type = GrantRoleShape)]
    pub role: GrantRole,
    /// `site`, `domain` or `project`.
    pub scope: String,
    /// Name of the domain, also of the project's; null for the site.
    pub domain: Option<String>,
    /// Name of the project.
    pub project: Option<String>,
    /// Null: until it is taken away.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = NewDomain)]
#[serde(deny_unknown_fields)]
pub struct NewDomainBody {
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: String,
    #[serde(default)]
    #[schema(max_length = 100)]
    pub title: String,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = DomainPatch)]
#[serde(deny_unknown_fields)]
pub struct DomainPatchBody {
    #[schema(max_length = 100)]
    pub title: String,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = NewProject)]
#[serde(deny_unknown_fields)]
pub struct NewProjectBody {
    /// Name of the domain; left out: the caller's own.
    #[serde(default)]
    pub domain: Option<String>,
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}$")]
    pub name: String,
    #[serde(default)]
    #[schema(max_length = 100)]
    pub title: String,
}

/// What is left out stays.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = ProjectPatch)]
#[serde(deny_unknown_fields, default)]
pub struct ProjectPatchBody {
    #[schema(max_length = 100)]
    pub title: Option<String>,
    #[schema(value_type = Option<TenantStateShape>)]
    pub state: Option<TenantState>,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = NewMember)]
#[serde(deny_unknown_fields)]
pub struct MemberBody {
    #[schema(value_type = GrantRoleShape)]
    pub role: GrantRole,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
}

/// A role on a domain or on the whole site.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = NewGrant)]
#[serde(deny_unknown_fields)]
pub struct GrantBody {
    #[schema(value_type = GrantRoleShape)]
    pub role: GrantRole,
    /// Name of the domain; left out: the whole site.
    #[serde(default)]
    pub domain: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
}
