//! How a session and each of its containers end, in a word. Never decides which it is (`progress`).

use serde::{Deserialize, Serialize};

/// How a session or one of its containers ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Its command ended with 0.
    Succeeded,
    /// Its command ended with another code, by a signal, or by a limit.
    Failed,
    /// Its owner, or an administrator, stopped it.
    Stopped,
    /// It never got a container: impossible, or what it depended on failed.
    Refused,
    /// Its container is gone and its end is unknown (power cut, killed supervisor).
    Lost,
}

impl Outcome {
    pub fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Refused => "refused",
            Self::Lost => "lost",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        [
            Self::Succeeded,
            Self::Failed,
            Self::Stopped,
            Self::Refused,
            Self::Lost,
        ]
        .into_iter()
        .find(|o| o.word() == word)
    }
}
