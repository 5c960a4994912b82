//! What a session is told through its inner door of itself. The rest of its answers are those of sessions.

use rules::units::Timestamp;
use serde::{Deserialize, Serialize};

use crate::idle_rules::SessionIdleView;
use crate::sessions::SessionView;

/// A session as it sees itself from inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InnerSessionView {
    /// Which of its containers asks: `main1`, `sub1` and so on.
    pub container: String,
    /// As the API shows it to its owner, without its machine, the names of devices, the reason of its state and its variables.
    pub session: SessionView,
    /// When its own time limit ends it; null where it has none.
    pub ends_at: Option<Timestamp>,
    /// What an idle rule has warned of; null while none has.
    pub idle: Option<SessionIdleView>,
}
