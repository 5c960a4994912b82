//! One thing of the box that was looked at, and whether it is well. Looks at nothing itself.

use serde::{Deserialize, Serialize};

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiagnosticCheck {
    /// `catalog.writes`, `disk.room`, `machine.answers`, `setup.done`, and what is wrong with the state:
    /// `state.damaged`, `state.disk`, `state.quarantined`, `node.record-unwritable`.
    pub code: String,
    pub ok: bool,
    /// The server can do its work while this is not ok.
    pub minor: bool,
    /// One English sentence.
    pub text: String,
    /// What would help; empty where all is well.
    pub hint: String,
}
