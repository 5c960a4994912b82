//! Strangers who ask for an account, and which domains let them.

use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// One request for an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SignUp)]
pub struct SignUpView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    /// Name of the domain.
    pub domain: String,
    /// The name that they want to sign in by.
    pub name: String,
    pub full_name: String,
    pub email: String,
    /// What they say about themselves.
    pub note: String,
    /// Address that they asked from.
    pub source: String,
    /// A user has that name or that address already.
    pub is_taken: bool,
    #[schema(value_type = String, format = DateTime)]
    pub asked_at: Timestamp,
    /// Null while it waits.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub declined_at: Option<Timestamp>,
    /// Name of the user who declined it.
    pub declined_by: Option<String>,
}

/// Under which name an account is made, and until when.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = SignUpApproval)]
#[serde(default, deny_unknown_fields)]
pub struct SignUpApprovalBody {
    /// Left out: the one that they asked for.
    pub name: Option<String>,
    /// When the account of a guest ends; left out: it has no end.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
}

/// Who may ask for an account of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SignUpRule)]
pub struct SignUpRuleView {
    pub domain: String,
    /// `*`, or hosts such as `@lab.example, @cs.lab.example`; null: no stranger may ask.
    pub addresses: Option<String>,
}

/// Who may ask from now on.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[schema(as = NewSignUpRule)]
#[serde(default, deny_unknown_fields)]
pub struct SignUpRuleBody {
    /// Name or id of the domain; left out: the caller's own.
    pub domain: Option<String>,
    /// `*`, or hosts such as `@lab.example`; null or empty: no stranger may ask.
    pub addresses: Option<String>,
}
