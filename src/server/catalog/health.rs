//! What is wrong with the state at this moment, by stable codes: damaged pages, a disk that fails, a record
//! the machine cannot write, a machine that obeyed another catalog. Noted where it is met, told to
//! readiness, pages and requests for new work. Never mends anything.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rules::codes;
use rules::reason::Reason;
use rules::refusal::Refusal;
use rules::refusals;

use crate::Failure;

/// Readiness tries the disk at most this often. Shorter: a stranger who asks without end makes the disk
/// busy. Longer: a monitor hears of a dead disk later.
const DISK_PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// The pages of the catalog are looked through when a server starts and this often after it. Shorter: a
/// large catalog is read for nothing. Longer: damage that no read meets stays unknown.
pub(crate) const PAGE_CHECK_INTERVAL: Duration = Duration::from_secs(6 * 3600);

pub(crate) const DAMAGED: &str = codes::STATE_DAMAGED;
pub(crate) const DISK: &str = codes::STATE_DISK;
/// Codes that end as soon as something was written again.
pub(super) const ENDED_BY_A_WRITE: [&str; 3] = [DISK, codes::DISK_READ_ONLY, codes::DISK_FULL];
/// In front of what a machine says of its own record.
const OF_THE_MACHINE: &str = codes::family::NODE_RECORD;

/// Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub(crate) struct CatalogHealth(Arc<Mutex<CatalogFaults>>);

#[derive(Default)]
struct CatalogFaults {
    /// By code; at most one of each.
    troubles: BTreeMap<String, Refusal>,
    tried: Option<Instant>,
}

impl CatalogHealth {
    fn known(&self) -> MutexGuard<'_, CatalogFaults> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is wrong now, by code; empty while all is well.
    pub(crate) fn troubles(&self) -> Vec<Refusal> {
        self.known().troubles.values().cloned().collect()
    }

    /// What is wrong and ends by nothing that a request does: new work is refused with it.
    pub(crate) fn standing_in_the_way(&self) -> Option<Refusal> {
        let troubles = self.troubles();
        let mut stand = troubles
            .into_iter()
            .filter(|trouble| !ENDED_BY_A_WRITE.contains(&trouble.code.as_str()));
        stand.next()
    }

    /// Notes what a result says about the state, and gives it back.
    pub(super) fn heed<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(Failure::Refusal(refusal)) = &result
            && (refusal.code == DAMAGED || ENDED_BY_A_WRITE.contains(&refusal.code.as_str()))
        {
            self.note(refusal.clone());
        }
        result
    }

    /// Notes one trouble; logged when it is new.
    pub(crate) fn note(&self, trouble: Refusal) {
        let new = self
            .known()
            .troubles
            .insert(trouble.code.clone(), trouble.clone())
            .is_none();
        if new {
            tracing::error!(code = trouble.code, "{} {}", trouble.text, trouble.hint);
        }
    }

    /// Something was written durably.
    pub(super) fn wrote(&self) {
        self.over(|code| ENDED_BY_A_WRITE.contains(&code));
    }

    /// Takes over what the machine says of its own record; what it no longer says is over.
    pub(crate) fn heard(&self, problems: &[Reason]) {
        let told = |code: &str| problems.iter().any(|problem| problem.code == code);
        self.over(|code| code.starts_with(OF_THE_MACHINE) && !told(code));
        for problem in problems {
            if problem.code.starts_with(OF_THE_MACHINE) {
                let mut refusal = refusals::node_record_reported(&problem.text);
                refusal.code.clone_from(&problem.code);
                self.note(refusal);
            }
        }
    }

    /// Sets or ends the quarantine.
    pub(crate) fn quarantine(&self, trouble: Option<Refusal>) {
        match trouble {
            Some(trouble) => self.note(trouble),
            None => self.over(|code| code == rules::continuity::QUARANTINED),
        }
    }

    pub(super) fn over(&self, ended: impl Fn(&str) -> bool) {
        self.known().troubles.retain(|code, _| {
            let over = ended(code);
            if over {
                tracing::info!(code, "this trouble of the state is over");
            }
            !over
        });
    }

    /// True at most once every `DISK_PROBE_INTERVAL`.
    pub(super) fn may_try(&self) -> bool {
        let mut known = self.known();
        let due = known
            .tried
            .is_none_or(|at| at.elapsed() >= DISK_PROBE_INTERVAL);
        if due {
            known.tried = Some(Instant::now());
        }
        due
    }
}

/// Pages of the catalog do not say what they should.
pub(super) fn damaged(what: &dyn std::fmt::Display) -> Refusal {
    refusals::state_damaged(what)
}

/// The disk of the state answers with errors.
pub(super) fn disk(what: &dyn std::fmt::Display) -> Refusal {
    refusals::state_disk(what).retry_after(30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_tried_once_in_five_seconds() {
        let health = CatalogHealth::default();
        assert!(health.may_try() && !health.may_try());
        for (seconds, due) in [(1, false), (5, true)] {
            health.known().tried = Instant::now().checked_sub(Duration::from_secs(seconds));
            assert_eq!(health.may_try(), due, "{seconds}");
        }
    }
}
