//! Events as they are listed and streamed. Never says who may read one; the actions do.

use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Event)]
pub struct EventView {
    /// Place in the journal.
    pub sequence: u64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// A user's name, or the part of the server that did it.
    pub actor: String,
    /// `sessions`, `images`, `users`, `nodes`, `operations`.
    pub topic: String,
    /// Id of the thing.
    pub object: String,
    /// Stable, dotted, such as `session.running`.
    pub code: String,
    /// State before, in a word; empty where there was none.
    pub before: String,
    /// State after, or the reason for it in a sentence.
    pub after: String,
}
