//! One thing of the box that was looked at, and whether it is well. Looks at nothing itself.

use rules::findings::InvariantFinding;
use rules::notice::Notice;
use rules::refusal::Refusal;
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

impl DiagnosticCheck {
    /// A notice as a check that is well or not; its hint is shown either way.
    pub(super) fn of(notice: Notice, ok: bool, minor: bool) -> Self {
        let Notice { code, text, hint } = notice;
        Self {
            code: code.to_owned(),
            ok,
            minor,
            text,
            hint,
        }
    }
}

/// A trouble of the state, in which new work is refused.
impl From<Refusal> for DiagnosticCheck {
    fn from(trouble: Refusal) -> Self {
        Self {
            code: trouble.code,
            ok: false,
            minor: false,
            text: trouble.text,
            hint: trouble.hint,
        }
    }
}

impl From<DiagnosticCheck> for InvariantFinding {
    fn from(check: DiagnosticCheck) -> Self {
        Self {
            code: check.code,
            text: format!("{} {}", check.text, check.hint),
        }
    }
}
