//! Acts of administrators that wait until another one approves them.

use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// How an act stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalState {
    Waiting,
    /// It was approved and done.
    Done,
    Declined,
    /// Its time ended before another administrator decided.
    Expired,
}

impl ApprovalState {
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Declined => "declined",
            Self::Expired => "expired",
        }
    }
}

/// One act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Approval)]
pub struct ApprovalView {
    #[schema(value_type = String, format = Uuid)]
    pub id: Uuid,
    /// `policy-change`, `role-grant`, `setting-change` and so on.
    pub act: String,
    /// Name of what is changed.
    pub object: String,
    /// All that was asked for, as JSON.
    pub detail: String,
    /// Name of the administrator who asked.
    pub asker: String,
    #[schema(value_type = String, format = DateTime)]
    pub asked_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    pub state: ApprovalState,
    /// Name of the administrator who decided.
    pub decided_by: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub decided_at: Option<Timestamp>,
    /// The reader may approve or decline it.
    pub decidable: bool,
}

/// Whether such acts wait at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FourEyes)]
#[serde(deny_unknown_fields)]
pub struct FourEyesBody {
    pub on: bool,
}
