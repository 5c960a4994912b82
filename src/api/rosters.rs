//! Rosters: lists of accounts and memberships that are planned, taken in and undone as one.

use rules::grants::GrantRole;
use rules::refusal::Refusal;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::values::GrantRoleShape;

/// What taking a roster in would do. Nothing is changed yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RosterPlan {
    /// Of the rows and of what they would change; names this plan when it is applied.
    pub digest: String,
    pub creates: u32,
    pub joins: u32,
    pub changes: u32,
    pub unchanged: u32,
    /// Rows with faults; a roster is taken in only without any.
    pub faulty: u32,
    pub rows: Vec<RosterRow>,
}

/// One row of a roster, as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RosterRow {
    /// Line of the file; the headings are line 1.
    pub line: u32,
    pub name: String,
    pub full_name: String,
    pub email: String,
    pub project: String,
    #[schema(value_type = GrantRoleShape)]
    pub role: GrantRole,
    /// Name of the policy that the row attaches to the account; empty for none.
    #[serde(default)]
    #[schema(required = true)]
    pub policy: String,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    pub action: RosterAction,
    /// Empty for every other action.
    pub faults: Vec<RosterFault>,
}

/// What a row does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RosterAction {
    /// Makes an account and its membership.
    Create,
    /// Makes an account that is there a member of the project.
    Join,
    /// Changes the name, the address, the role, the end or the policy of a member.
    Change,
    Unchanged,
    /// Something is wrong with the row.
    Fault,
}

impl RosterAction {
    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Join => "join",
            Self::Change => "change",
            Self::Unchanged => "unchanged",
            Self::Fault => "fault",
        }
    }
}

/// What is wrong with a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RosterFault {
    /// `name`, `email`, …; `row` where it is no single cell.
    pub column: String,
    #[schema(value_type = serde_json::Value)]
    pub refusal: Refusal,
}

/// What taking a roster in did.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedRoster {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    pub creates: u32,
    pub joins: u32,
    pub changes: u32,
    pub unchanged: u32,
    /// One for each new account. The passwords are shown this once.
    pub slips: Vec<RosterSlip>,
}

/// What a new user is handed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RosterSlip {
    pub name: String,
    pub full_name: String,
    /// To be changed at the first sign-in.
    pub password: String,
}

/// What suspending the users of a roster did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RosterSuspension {
    /// Accounts that were suspended, or admitted again; those that were so already are left out.
    pub users: u32,
}

/// A roster that was taken in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Roster)]
pub struct RosterView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    /// Name of the user who did.
    pub actor: String,
    #[schema(value_type = String, format = DateTime)]
    pub applied_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub undone_at: Option<Timestamp>,
    pub creates: u32,
    pub joins: u32,
    pub changes: u32,
    /// Accounts that it made and that are not suspended; removed ones count nowhere.
    #[serde(default)]
    #[schema(required = true)]
    pub active: u32,
    /// Accounts that it made and that are suspended.
    #[serde(default)]
    #[schema(required = true)]
    pub suspended: u32,
}
