//! Invitations: links by which accounts join a project.

use rules::grants::GrantRole;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::values::GrantRoleShape;

/// An invitation that can be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Invitation)]
pub struct InvitationView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    /// Role in the project.
    #[schema(value_type = GrantRoleShape)]
    pub role: GrantRole,
    /// Null: for any holder of the link.
    pub email: Option<String>,
    pub max_uses: u32,
    pub used: u32,
    /// When a membership that comes of it ends; null: it does not.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub member_until: Option<Timestamp>,
    /// Name of the user who made it.
    pub actor: String,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
}

/// A new invitation with its link, which is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeInvitation {
    pub invitation: InvitationView,
    /// One for each address of the server.
    pub links: Vec<String>,
    /// What the links carry.
    pub code: String,
}

/// What is left out: a member, for any holder of the link, once, within seven days.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[schema(as = NewInvitation)]
#[serde(deny_unknown_fields)]
pub struct NewInvitationBody {
    #[serde(default = "member")]
    #[schema(value_type = GrantRoleShape)]
    pub role: GrantRole,
    /// The invitation is for this address alone, and can be used once.
    #[serde(default)]
    pub email: Option<String>,
    #[serde(default)]
    pub max_uses: Option<u32>,
    /// Within 90 days.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub member_until: Option<Timestamp>,
}

fn member() -> GrantRole {
    GrantRole::Member
}

#[derive(Clone, Deserialize, ToSchema)]
#[schema(as = InvitationCode)]
#[serde(deny_unknown_fields)]
pub struct InvitationCodeBody {
    /// What the link carries.
    pub code: String,
}

/// What the holder of a link is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferView {
    pub domain: String,
    /// Title of the project, or its name.
    pub project: String,
    pub role: GrantRole,
    pub email: Option<String>,
    pub invited_by: String,
    pub expires_at: Timestamp,
}
