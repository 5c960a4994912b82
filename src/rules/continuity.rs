//! Memory of a machine × what the catalog claims → whether they belong together. A machine that obeyed a
//! newer catalog, or another one, and a machine that forgot what this one told it, are not to be led
//! before root has accepted it. Never looks at a session.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::refusal::Refusal;
use crate::refusals;

/// The code under which a machine that is not led is named everywhere.
pub const QUARANTINED: &str = crate::codes::STATE_QUARANTINED;

/// What a machine remembers having obeyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The state whose assignment it has; None before the first, and where an earlier version wrote it.
    pub state: Option<Uuid>,
    /// The newest assignment it took in; 0 before the first.
    pub generation: u64,
}

/// What a catalog says it told a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Drawn when the catalog was founded.
    pub state: Uuid,
    /// The newest assignment it wrote for the machine; 0 where none.
    pub told: u64,
    /// The newest assignment that the machine confirmed to it; 0 where none.
    pub confirmed: u64,
}

/// How the two stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "continuity")]
pub enum Continuity {
    /// The machine goes on where it was.
    Continues,
    /// The machine obeyed what this catalog never wrote: it is an older copy.
    Older { told: u64, obeyed: u64 },
    /// The machine obeyed another state.
    Foreign { state: Uuid, obeyed: Uuid },
    /// The machine never took in what this catalog heard confirmed: the catalog was carried to another
    /// machine, or the machine's record is gone.
    Carried { confirmed: u64, obeyed: u64 },
}

/// Compares a machine's memory with the claim of the catalog that is about to lead it.
///
/// A catalog writes an assignment durably before it sends it, and a machine writes it durably before it
/// confirms it. So what was obeyed is never above what was told, and never below what was confirmed.
pub fn judge(claim: Claim, memory: Memory) -> Continuity {
    match memory.state {
        Some(obeyed) if obeyed != claim.state => Continuity::Foreign {
            state: claim.state,
            obeyed,
        },
        _ if memory.generation > claim.told => Continuity::Older {
            told: claim.told,
            obeyed: memory.generation,
        },
        _ if memory.generation < claim.confirmed => Continuity::Carried {
            confirmed: claim.confirmed,
            obeyed: memory.generation,
        },
        _ => Continuity::Continues,
    }
}

impl Continuity {
    pub fn continues(self) -> bool {
        self == Self::Continues
    }

    /// Why the machine is not led, and what would work; None where it is.
    pub fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Continues => None,
            Self::Older { told, obeyed } => Some(refusals::state_older_catalog(obeyed, told)),
            Self::Foreign { .. } => Some(refusals::state_foreign_catalog()),
            Self::Carried { .. } => Some(refusals::state_carried_catalog()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    fn check(memory: (Option<Uuid>, u64), told: u64, confirmed: u64) -> Continuity {
        let claim = Claim {
            state: OURS,
            told,
            confirmed,
        };
        let (state, generation) = memory;
        judge(claim, Memory { state, generation })
    }

    #[test]
    fn whatever_was_lost_on_the_way_a_machine_and_its_catalog_belong_together() {
        // Before the first list, before it arrived, before it was confirmed, and after.
        for (obeyed, told, confirmed) in [(0, 0, 0), (0, 1, 0), (1, 1, 0), (4, 5, 4), (5, 5, 4)] {
            for state in [None, Some(OURS)] {
                let found = check((state, obeyed), told, confirmed);
                assert!(
                    found.continues(),
                    "{obeyed} of {told}, {confirmed}: {found:?}"
                );
                assert_eq!(found.refusal(), None);
            }
        }
    }

    #[test]
    fn an_older_copy_another_state_and_another_machine_are_told_apart() {
        let older = check((Some(OURS), 9), 5, 5);
        assert_eq!(older, Continuity::Older { told: 5, obeyed: 9 });
        // A machine of an earlier version does not say whose list it has.
        assert_eq!(check((None, 9), 5, 5), older);
        let foreign = check((Some(OTHER), 3), 5, 5);
        assert!(matches!(foreign, Continuity::Foreign { .. }), "{foreign:?}");
        let carried = check((None, 0), 5, 5);
        assert!(matches!(carried, Continuity::Carried { .. }), "{carried:?}");
        for found in [older, foreign, carried] {
            let refusal = found.refusal().expect("it is not led");
            assert_eq!(refusal.code, QUARANTINED);
            assert!(refusal.hint.contains("fardel state accept"), "{refusal}");
            assert!(refusal.hint.contains("are then ended"), "{refusal}");
        }
    }

    /// A damaged catalog is mended while sessions go on: no line that is said of it, in whichever language, leads to a
    /// command that ends some.
    #[test]
    fn nothing_that_is_said_of_a_damaged_catalog_leads_to_what_ends_sessions() {
        const ENDS: [&str; 7] = [
            "state accept",
            "session stop",
            "session delete",
            "kill",
            "drain",
            "--force",
            "rm ",
        ];
        let entries = include_str!("messages.toml").split("\n[");
        let damaged: Vec<&str> = entries
            .filter(|entry| entry.contains("code = \"state.damaged\""))
            .collect();
        assert_eq!(damaged.len(), 2, "{damaged:?}");
        for line in damaged.iter().flat_map(|entry| entry.lines()) {
            assert!(!ENDS.iter().any(|words| line.contains(words)), "{line}");
        }
    }
}
