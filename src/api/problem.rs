//! Why a request was not done, as every door says it to programs (RFC 9457).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a request was not done (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// Relative address of the manual's page about this code.
    pub r#type: String,
    pub title: String,
    pub status: u16,
    /// What was wrong.
    pub detail: String,
    /// Stable, dotted; never translated.
    pub code: String,
    /// Sort of refusal: malformed, unauthenticated, denied, not-found, conflict, stale, invalid,
    /// capacity, too-large, too-often, unavailable, failed-dependency.
    pub kind: String,
    pub request_id: String,
    pub help: String,
    /// What would work.
    #[serde(default)]
    pub hint: String,
    #[serde(default)]
    pub errors: Vec<FieldProblem>,
    /// Seconds.
    #[serde(default)]
    #[schema(value_type = u64)]
    pub retry_after: Option<u64>,
}

/// One field that was wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldProblem {
    /// JSON pointer into the body.
    pub pointer: String,
    pub code: String,
    pub text: String,
}
