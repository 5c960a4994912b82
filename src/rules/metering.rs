//! What a session holds, and how time becomes use: the arithmetic of the usage ledger. Whole numbers only, so that sums
//! are exact and in every order the same.

use serde::{Deserialize, Serialize};

use crate::session::{Session, SessionState};
use crate::units::Timestamp;

const HOUR: i64 = 3_600_000;
/// Hours over which time that was counted late is spread; what is older falls into the earliest of them. Higher: a
/// server that was down for a year writes more rows at its start. Lower: a long pause piles up in one hour.
const MAX_HOURS: usize = 24 * 62;

/// Amounts that a session holds while it has a place. Zero for what waits and for what is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocated {
    /// Hundredths of devices; where a share shrinks, the larger one until its node confirmed the smaller.
    pub gpu: u64,
    /// Hundredths of a core.
    pub cpu: u64,
    /// MiB, rounded up.
    pub memory: u64,
}

impl Allocated {
    /// What a session holds now; None without a place.
    pub fn of(session: &Session) -> Option<Self> {
        if matches!(session.state(), SessionState::Pending | SessionState::Ended) {
            return None;
        }
        let demand = session.spec.of_each();
        let held = session
            .live_containers()
            .fold((0, 0), |(count, gpu), container| {
                let devices = container.holds();
                let shares: u64 = devices.iter().map(|one| u64::from(one.share.0)).sum();
                (count + 1, gpu + shares)
            });
        Some(Self {
            gpu: held.1,
            cpu: u64::from(demand.cpu.0) * held.0,
            memory: demand.memory.0.div_ceil(1 << 20) * held.0,
        })
    }
}

/// A sum of use: amounts times the milliseconds for which they were held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageSum {
    /// Milliseconds of sessions with a place.
    pub session: u64,
    /// Hundredths of a device × milliseconds.
    pub gpu: u64,
    /// Hundredths of a core × milliseconds.
    pub cpu: u64,
    /// MiB × milliseconds.
    pub memory: u64,
    /// Sessions that got a place.
    pub starts: u64,
    /// Milliseconds that they waited for it.
    pub waited: u64,
}

impl UsageSum {
    /// What holding amounts for so many milliseconds comes to.
    pub fn held(amounts: Allocated, millis: u64) -> Self {
        let times = |amount: u64| amount.saturating_mul(millis);
        Self {
            session: millis,
            gpu: times(amounts.gpu),
            cpu: times(amounts.cpu),
            memory: times(amounts.memory),
            starts: 0,
            waited: 0,
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            session: self.session.saturating_add(other.session),
            gpu: self.gpu.saturating_add(other.gpu),
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
            starts: self.starts.saturating_add(other.starts),
            waited: self.waited.saturating_add(other.waited),
        }
    }
}

/// The hour of a time of day, counted since 1970 UTC.
pub fn hour_of(at: Timestamp) -> i64 {
    at.as_millis().div_euclid(HOUR)
}

/// Spreads time that ended at `until` over the hours in which it passed, newest first; their sum is `millis`. An hour
/// before `earliest` gets none: where the clock was set back, all falls into `earliest`.
pub fn by_hour(until: Timestamp, millis: u64, earliest: i64) -> Vec<(i64, u64)> {
    let mut hour = hour_of(until);
    let mut room = u64::try_from(until.as_millis().rem_euclid(HOUR)).unwrap_or(0);
    let mut left = millis;
    let mut parts = Vec::new();
    while left > 0 {
        let last = hour <= earliest || parts.len() + 1 >= MAX_HOURS;
        let part = if last { left } else { left.min(room) };
        if part > 0 {
            parts.push((hour.max(earliest), part));
        }
        left -= part;
        hour -= 1;
        room = HOUR.unsigned_abs();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: i64, millis: i64) -> Timestamp {
        Timestamp::from_millis(hour * HOUR + millis)
    }

    #[test]
    fn time_falls_into_the_hours_in_which_it_passed() {
        assert_eq!(by_hour(at(10, 500), 200, 0), [(10, 200)]);
        assert_eq!(by_hour(at(10, 500), 700, 0), [(10, 500), (9, 200)]);
        assert_eq!(
            by_hour(at(10, 0), 2 * 3_600_000 + 7, 0),
            [(9, 3_600_000), (8, 3_600_000), (7, 7)]
        );
        assert_eq!(by_hour(at(10, 500), 0, 0), []);
    }

    #[test]
    fn a_clock_that_was_set_back_changes_no_sum_and_no_earlier_hour() {
        assert_eq!(by_hour(at(3, 100), 900, 10), [(10, 900)]);
        assert_eq!(by_hour(at(10, 100), 900, 10), [(10, 900)]);
        assert_eq!(by_hour(at(11, 100), 900, 10), [(11, 100), (10, 800)]);
    }

    #[test]
    fn however_long_it_was_the_sum_is_kept() {
        for millis in [1, HOUR.unsigned_abs(), 86_400_000, 40 * 365 * 86_400_000] {
            for until in [at(500_000, 1), at(500_000, HOUR - 1), at(-3, 17)] {
                let parts = by_hour(until, millis, i64::MIN);
                assert_eq!(parts.iter().map(|(_, part)| part).sum::<u64>(), millis);
                assert!(parts.len() <= MAX_HOURS);
            }
        }
    }
}
