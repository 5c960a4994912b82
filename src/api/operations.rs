//! Long work: what it is, how far it is, how it ended. Never runs any.

use rules::names::{OperationId, UserId};
use rules::refusal::Refusal;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One piece of long work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Operation)]
pub struct OperationView {
    #[schema(value_type = String, format = Uuid)]
    pub id: OperationId,
    /// `image.import`.
    pub kind: String,
    /// The file it works on; empty where there is none.
    #[serde(default)]
    pub file: String,
    #[schema(value_type = String, format = Uuid)]
    pub user: UserId,
    /// `pending`, `running`, `succeeded`, `failed` or `cancelled`.
    #[schema(value_type = String)]
    pub state: OperationState,
    /// What it is doing.
    pub step: String,
    /// Bytes read, of `total`.
    pub done: u64,
    pub total: u64,
    pub cancelable: bool,
    /// What it gave, once it succeeded.
    #[schema(value_type = serde_json::Value)]
    pub result: Option<serde_json::Value>,
    /// Why it did not, once it failed: code, text and hint.
    #[schema(value_type = serde_json::Value)]
    pub refusal: Option<Refusal>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    pub generation: u64,
}

/// Where long work stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OperationState {
    Pending,
    Running,
    Succeeded,
    Failed,
    Cancelled,
}

impl OperationState {
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        [
            Self::Pending,
            Self::Running,
            Self::Succeeded,
            Self::Failed,
            Self::Cancelled,
        ]
        .into_iter()
        .find(|state| state.word() == word)
    }

    /// Whether it still waits or runs.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}
