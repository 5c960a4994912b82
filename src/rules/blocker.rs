//! What a session waits for: a code for programs, a sentence for people, and the values in it. Never says
//! where it would go: `placement` decides.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::names::SessionId;

/// Why a session has no place yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementBlocker {
    /// `cpu.short`, `memory.short`, `gpu.short`, `gpu.fragmented`, `gpu.memory-short`,
    /// `gpu.no-partition`, `gpu.quota`, `queue.behind`, `queue.kept`, `queue.rest-kept`, `start.later`,
    /// (`queue.behind-other`, `queue.kept-other`, `queue.rest-kept-other`, `dependency.waiting-other` where the
    /// reader may not know whose it is),
    /// `queue.turn`, `dependency.waiting`, `node.none`, `node.silent`, `environment.host-off`,
    /// `reservation.room`, `queue.backfill`, `queue.backfilled`, `group.not-allowed`, `window.closed`, `window.never`,
    /// `queue.preempting`.
    pub code: String,
    /// One English sentence.
    pub text: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
    /// The session whose end would remove the blocker, where one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_with: Option<SessionId>,
}

impl PlacementBlocker {
    pub(crate) fn new(code: &str, text: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            text: text.into(),
            params: BTreeMap::new(),
            ends_with: None,
        }
    }

    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.params.insert(name.to_owned(), value.to_string());
        self
    }

    /// A blocker that the end of this session removes.
    pub(crate) fn until(mut self, session: SessionId) -> Self {
        self.ends_with = Some(session);
        self
    }
}
