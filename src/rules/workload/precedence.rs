//! What a launch says of its turn beside other sessions: how urgent it is, and whether it makes way for more urgent ones.
//! Never says who makes way when: `placement::preempt` does.

use serde::{Deserialize, Serialize};

use super::spec::SessionKind;
use crate::refusal::Refusal;
use crate::refusals;

/// The priority of a launch that names none, and the highest where no policy allows more.
pub const USUAL_PRIORITY: u32 = 10;

/// The highest priority there is. Higher: no user knows what a number means. Lower: a site with many ranks runs out
/// of them.
pub const MAX_PRIORITY: u32 = 100;

/// How urgent a session is, and whether it may be preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Precedence {
    /// 0 to 100; of those that wait in a resource group, the highest comes first.
    pub priority: u32,
    /// Its owner said at launch that it may be stopped for a session of higher priority, and waits again then.
    pub yields: bool,
}

impl Default for Precedence {
    fn default() -> Self {
        Self {
            priority: USUAL_PRIORITY,
            yields: false,
        }
    }
}

impl Precedence {
    /// The same, where it is possible for a session of that kind.
    ///
    /// Errors: `priority.out-of-range`; `yields.batch-only`, for what runs by itself can run once more.
    pub fn checked(self, kind: SessionKind) -> Result<Self, Refusal> {
        if self.priority > MAX_PRIORITY {
            return Err(refusals::priority_out_of_range(MAX_PRIORITY).at("/priority"));
        }
        if self.yields && kind == SessionKind::Interactive {
            return Err(refusals::yields_batch_only().at("/yields"));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_batch_session_yields_and_a_priority_has_a_range() {
        let code = |priority, yields, kind| {
            let asked = Precedence { priority, yields };
            asked.checked(kind).err().map(|refusal| refusal.code)
        };
        assert_eq!(code(MAX_PRIORITY, true, SessionKind::Batch), None);
        assert_eq!(code(0, false, SessionKind::Interactive), None);
        let above = code(MAX_PRIORITY + 1, false, SessionKind::Batch);
        assert_eq!(above.as_deref(), Some("priority.out-of-range"));
        let yields = code(USUAL_PRIORITY, true, SessionKind::Interactive);
        assert_eq!(yields.as_deref(), Some("yields.batch-only"));
    }
}
