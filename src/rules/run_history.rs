//! What ended sessions teach about those that run and wait: which part of their time limits users needed, and who came a
//! day or a week before. Forecasts read it; decisions never do, so that nothing that was promised rests on it.

use std::collections::{BTreeMap, VecDeque};

use uuid::Uuid;

use crate::names::{ResourceGroupId, UserId};
use crate::resources::Demand;
use crate::session::SessionEnvironment;
use crate::tenancy::{DomainId, ProjectId};
use crate::units::Timestamp;

/// Newest runs of each user that count. More: what they run today moves the forecast late. Fewer: one odd run moves it.
pub const REMEMBERED_RUNS: usize = 32;
/// Runs of a user below which their sessions are taken to need their whole limit.
const MIN_RUNS: usize = 5;
/// Of a hundred runs so many are over by the late guess.
const LATE_PERCENT: usize = 85;
/// A whole limit; parts of it are told in thousandths.
const WHOLE: u64 = 1_000;

/// Which end of a session is guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunGuess {
    /// The mean of runs like it: what many sessions hold together comes to that.
    Mean,
    /// What most runs like it need no longer than.
    Late,
}

/// A session that came before, as one like it is expected again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedArrival {
    /// When it is expected.
    pub at: Timestamp,
    pub owner: UserId,
    pub domain: DomainId,
    pub project: ProjectId,
    pub group: ResourceGroupId,
    pub demand: Demand,
    pub environment: SessionEnvironment,
    pub priority: u32,
    /// Seconds that it may run; where it had no limit, those that it ran.
    pub limit: u64,
}

/// Runs that are over, by user, and arrivals that are expected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunHistory {
    /// Parts of their limits that the newest runs took, in thousandths, the oldest first; of each user in each domain, so
    /// that forecasts of one domain tell nothing of another.
    parts: BTreeMap<(DomainId, UserId), VecDeque<u64>>,
    /// In the order in which they are expected.
    arrivals: Vec<ExpectedArrival>,
}

impl RunHistory {
    /// Notes a run that ended, newer than all that were noted of that user. One without a limit teaches nothing.
    pub fn note(&mut self, whose: (DomainId, UserId), limit: u64, ran: u64) {
        if limit == 0 {
            return;
        }
        let known = self.parts.entry(whose).or_default();
        if known.len() >= REMEMBERED_RUNS {
            known.pop_front();
        }
        known.push_back((ran.saturating_mul(WHOLE) / limit).min(WHOLE));
    }

    /// Sets what is expected to come.
    pub fn expect(&mut self, mut arrivals: Vec<ExpectedArrival>) {
        arrivals.sort_by_key(|one| (one.at, one.owner));
        self.arrivals = arrivals;
    }

    /// What is expected after that moment.
    pub fn arrivals_after(&self, now: Timestamp) -> &[ExpectedArrival] {
        let begin = self.arrivals.partition_point(|one| one.at <= now);
        &self.arrivals[begin..]
    }

    /// Whether so many runs of some user of that domain are known that they count.
    pub fn knows(&self, domain: DomainId) -> bool {
        let first = (domain, UserId(Uuid::nil()));
        let behind = self.parts.range(first..);
        let mut own = behind.take_while(|((of, _), _)| *of == domain);
        own.any(|(_, known)| known.len() >= MIN_RUNS)
    }

    /// Seconds that a session of that user runs, of those that its limit allows, given how long it ran already. The whole
    /// limit where too little is known, or where no run took so long. Costs a look at the user's newest runs.
    pub fn expected(
        &self,
        whose: (DomainId, UserId),
        limit: u64,
        ran: u64,
        guess: RunGuess,
    ) -> u64 {
        let Some(known) = self.parts.get(&whose) else {
            return limit;
        };
        if known.len() < MIN_RUNS || limit == 0 {
            return limit;
        }
        let so_far = ran.saturating_mul(WHOLE) / limit;
        let longer = known.iter().copied().filter(|part| *part > so_far);
        let part = match guess {
            RunGuess::Mean => {
                let (count, sum) =
                    longer.fold((0, 0), |(count, sum), part| (count + 1, sum + part));
                if count == 0 {
                    return limit;
                }
                sum / count
            }
            RunGuess::Late => {
                let mut longer: Vec<u64> = longer.collect();
                longer.sort_unstable();
                let rank = longer.len() * LATE_PERCENT / 100;
                longer.get(rank).copied().unwrap_or(WHOLE)
            }
        };
        let seconds = limit.saturating_mul(part).div_ceil(WHOLE);
        seconds.clamp(ran.saturating_add(1).min(limit), limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINA: (DomainId, UserId) = (DomainId::DEFAULT, UserId(Uuid::from_u128(1)));

    fn history(parts: &[u64]) -> RunHistory {
        let mut history = RunHistory::default();
        for part in parts {
            history.note(MINA, 1_000, *part);
        }
        history
    }

    #[test]
    fn a_run_takes_the_part_of_its_limit_that_the_users_last_ones_took() {
        let known = history(&[200, 300, 400, 500, 600]);
        assert_eq!(known.expected(MINA, 3_600, 0, RunGuess::Mean), 1_440);
        assert_eq!(known.expected(MINA, 3_600, 0, RunGuess::Late), 2_160);
        // What ran for so long already is one of the longer ones.
        assert_eq!(known.expected(MINA, 3_600, 1_440, RunGuess::Mean), 1_980);
        let other = (MINA.0, UserId(Uuid::from_u128(2)));
        assert_eq!(known.expected(other, 3_600, 0, RunGuess::Mean), 3_600);
    }

    #[test]
    fn where_little_is_known_the_limit_holds_and_no_guess_is_beyond_it() {
        for guess in [RunGuess::Mean, RunGuess::Late] {
            assert_eq!(history(&[200; 4]).expected(MINA, 60, 0, guess), 60);
            assert_eq!(history(&[200; 9]).expected(MINA, 60, 12, guess), 60);
            assert_eq!(history(&[5_000; 9]).expected(MINA, 60, 0, guess), 60);
            assert_eq!(history(&[0; 9]).expected(MINA, 60, 0, guess), 60);
            for ran in 0..70 {
                let known = history(&[100, 100, 300, 700, 950, 1_000]);
                let told = known.expected(MINA, 60, ran, guess);
                assert!(told <= 60 && told > ran.min(59), "{guess:?}, {ran}: {told}");
            }
        }
    }

    #[test]
    fn only_the_newest_runs_count() {
        let mut known = history(&[900; 100]);
        for _ in 0..REMEMBERED_RUNS {
            known.note(MINA, 100, 10);
        }
        assert_eq!(known.expected(MINA, 1_000, 0, RunGuess::Late), 100);
    }

    #[test]
    fn what_ended_in_another_domain_is_not_known_here() {
        let other = DomainId(Uuid::from_u128(77));
        let known = history(&[200; 5]);
        assert!(known.knows(MINA.0) && !known.knows(other));
        assert!(!history(&[200; 4]).knows(MINA.0));
        let elsewhere = known.expected((other, MINA.1), 60, 0, RunGuess::Mean);
        assert_eq!(elsewhere, 60);
    }

    #[test]
    fn what_is_expected_later_is_told_in_its_order() {
        let mut known = RunHistory::default();
        let arrival = |seconds: u64| ExpectedArrival {
            at: Timestamp::default().plus_seconds(seconds),
            owner: MINA.1,
            domain: MINA.0,
            project: ProjectId::DEFAULT,
            group: ResourceGroupId::DEFAULT,
            demand: Demand::default(),
            environment: SessionEnvironment::Host,
            priority: 10,
            limit: 60,
        };
        known.expect(vec![arrival(30), arrival(10), arrival(20)]);
        let after = known.arrivals_after(Timestamp::default().plus_seconds(10));
        assert_eq!(after, [arrival(20), arrival(30)]);
    }
}
