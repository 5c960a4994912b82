//! Passwords of an imported roster between the form that imported it and the page that shows them: for a few minutes,
//! and to the importer alone. So a reload of that page imports nothing again. Nothing is written down.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::rosters::RosterSlip;
use rules::names::UserId;
use uuid::Uuid;

/// Rosters whose passwords can be shown again. Higher: up to five thousand passwords more in memory for each. Lower: of rosters
/// that are imported in the same minutes the first one's are gone after its page was opened once.
const MAX_ROSTERS: usize = 8;
/// Longer: passwords stand longer on a page that was left open. Shorter: a reload while they are printed loses them.
const SHOWN_FOR: Duration = Duration::from_secs(600);

struct WaitingSlips {
    user: UserId,
    roster: Uuid,
    slips: Vec<RosterSlip>,
    at: Instant,
}

/// The passwords that can still be shown.
pub(super) struct MadeSlips {
    waiting: Mutex<Vec<WaitingSlips>>,
    shown_for: Duration,
}

impl Default for MadeSlips {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            shown_for: SHOWN_FOR,
        }
    }
}

impl MadeSlips {
    /// Keeps the passwords for the page of the import; the oldest ones go where there are too many.
    pub(super) fn keep(&self, user: UserId, roster: Uuid, slips: Vec<RosterSlip>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|made| made.at.elapsed() < self.shown_for);
        if waiting.len() >= MAX_ROSTERS {
            waiting.remove(0);
        }
        waiting.push(WaitingSlips {
            user,
            roster,
            slips,
            at: Instant::now(),
        });
    }

    /// The passwords of that import, as often as its page is opened in time; none for another user.
    pub(super) fn of(&self, user: UserId, roster: Uuid) -> Option<Vec<RosterSlip>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|made| made.at.elapsed() < self.shown_for);
        let mut all = waiting.iter();
        let meant = all.find(|made| made.user == user && made.roster == roster)?;
        Some(meant.slips.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slips() -> Vec<RosterSlip> {
        vec![RosterSlip {
            name: "student".into(),
            full_name: String::new(),
            password: "p".into(),
        }]
    }

    #[test]
    fn slips_are_shown_again_to_their_maker_until_their_time_is_over() {
        let (mina, jae) = (UserId(Uuid::nil()), UserId(Uuid::max()));
        let made = MadeSlips::default();
        made.keep(mina, Uuid::nil(), slips());
        for _ in 0..2 {
            assert!(made.of(mina, Uuid::nil()).is_some());
        }
        assert!(made.of(jae, Uuid::nil()).is_none());
        assert!(made.of(mina, Uuid::max()).is_none());
        let over = MadeSlips {
            shown_for: Duration::ZERO,
            ..MadeSlips::default()
        };
        over.keep(mina, Uuid::nil(), slips());
        assert!(over.of(mina, Uuid::nil()).is_none());
    }

    #[test]
    fn of_too_many_rosters_the_oldest_goes() {
        let mina = UserId(Uuid::nil());
        let made = MadeSlips::default();
        for number in 0..=MAX_ROSTERS {
            made.keep(mina, Uuid::from_u128(number as u128), slips());
        }
        assert!(made.of(mina, Uuid::from_u128(0)).is_none());
        assert!(made.of(mina, Uuid::from_u128(1)).is_some());
    }
}
