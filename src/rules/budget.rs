//! Budgets: GPU-hours that a project or a user may use in a time. Pure; whole numbers only. A hard budget is encumbered
//! when a session is launched: its GPUs times its maximum runtime are reserved, with a time for start and stop, and what is
//! not used is free again at the end. So a hard budget is not exceeded, and nothing that runs is cut off. A start or a stop
//! that takes longer than was set aside is charged, too.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::{BudgetId, UserId};
use crate::refusal::Refusal;
use crate::refusals;
use crate::session::Session;
use crate::tenancy::{DomainId, ProjectId, Scope};
use crate::units::Timestamp;

/// Percents of a budget at which its readers are warned.
pub const BUDGET_WARNINGS: [u64; 2] = [80, 95];
/// Seconds that a session may hold its GPUs beside its run: while it is prepared, and while it stops. Higher: short runs
/// reserve much more than they use. Lower: a slow start or stop uses more than was reserved.
pub const BEYOND_RUN_SECONDS: u64 = 120;
/// Seconds that stay reserved for the stop of a session whose start took longer than was set aside. Higher: others wait for
/// room that is free. Lower: a stop uses what was given to others.
const STOP_SECONDS: u64 = 30;
/// Hundredths of a GPU × milliseconds in one hundredth of a GPU-hour.
const HUNDREDTH: u64 = 3_600_000;
/// Hundredths of GPU-hours that a budget may have: ten thousand GPUs for ten years. Higher: sums in milliseconds do not
/// fit. Lower: a large site cannot write its year.
pub const MAX_BUDGET_HUNDREDTHS: u64 = 100_000_000_000;

/// GPU-hours in hundredths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuHours(pub u64);

impl GpuHours {
    /// Reads `120`, `120.5` or `120.50`; None for anything else, and for more than a budget may have.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 2 {
            return None;
        }
        let tenth = if part.len() == 1 { 10 } else { 1 };
        let part = part.parse::<u64>().ok()? * tenth;
        let all = whole.parse::<u64>().ok()?.checked_mul(100)?;
        let all = all.checked_add(part)?;
        (all <= MAX_BUDGET_HUNDREDTHS).then_some(Self(all))
    }

    /// Of a sum of the ledger, rounded up: a budget never looks less used than it is.
    pub fn used(gpu: u64) -> Self {
        Self(gpu.div_ceil(HUNDREDTH))
    }

    /// Of a sum of the ledger, rounded down: what is left never looks more than it is.
    pub fn whole(gpu: u64) -> Self {
        Self(gpu / HUNDREDTH)
    }

    /// As the ledger counts: hundredths of a GPU × milliseconds.
    pub fn in_ledger(self) -> u64 {
        self.0.saturating_mul(HUNDREDTH)
    }
}

impl fmt::Display for GpuHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

/// Whose use a budget bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BudgetSubject {
    Project {
        domain: DomainId,
        project: ProjectId,
    },
    /// A user in all their projects; the domain is their home.
    User { domain: DomainId, user: UserId },
}

impl BudgetSubject {
    /// Whose the budget is.
    pub fn scope(self) -> Scope {
        match self {
            Self::Project { domain, project } => Scope {
                project: Some(project),
                ..Scope::domain(domain)
            },
            Self::User { domain, user } => Scope {
                owner: Some(user),
                ..Scope::domain(domain)
            },
        }
    }

    /// Whether the use of a session of that project and owner counts.
    pub fn counts(self, in_project: ProjectId, owner: UserId) -> bool {
        match self {
            Self::Project { project, .. } => project == in_project,
            Self::User { user, .. } => user == owner,
        }
    }
}

/// One budget. Its subject and its time never change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    pub id: BudgetId,
    pub subject: BudgetSubject,
    pub amount: GpuHours,
    pub from: Timestamp,
    /// The end, which is left out.
    pub until: Timestamp,
    /// Refuses launches that do not fit; a soft one warns alone.
    pub is_hard: bool,
    /// An administrator of the site gave it: those of the domain leave it as it is.
    pub is_of_site: bool,
    /// The highest percentage that was warned of.
    pub warned: u64,
    pub generation: u64,
}

/// What is used and reserved of a budget, as the ledger counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetState {
    pub used: u64,
    /// What the live sessions of its subject may still use.
    pub reserved: u64,
    /// A live session holds or asks for GPUs without a maximum runtime.
    pub is_unlimited: bool,
}

impl Budget {
    /// What neither is used nor reserved.
    pub fn rest(&self, state: BudgetState) -> u64 {
        let taken = state.used.saturating_add(state.reserved);
        match state.is_unlimited && self.is_hard {
            true => 0,
            false => self.amount.in_ledger().saturating_sub(taken),
        }
    }

    /// The highest percentage to warn of that is reached.
    pub fn warning(&self, used: u64) -> u64 {
        let reached = |percent: &&u64| {
            used > 0
                && u128::from(used) * 100
                    >= u128::from(self.amount.in_ledger()) * u128::from(**percent)
        };
        let reached = BUDGET_WARNINGS.iter().rev().find(reached);
        reached.copied().unwrap_or(0)
    }

    /// Refuses an amount that is below what is used or reserved, and a hard budget while sessions without a maximum runtime
    /// are live. Errors: `budget.below-use`, `budget.limit-missing`.
    pub fn check(&self, state: BudgetState) -> Result<(), Refusal> {
        if self.amount.in_ledger() < state.used {
            let used = GpuHours::used(state.used);
            return Err(refusals::budget_below_use(used, self.amount).at("/gpu_hours"));
        }
        if !self.is_hard {
            return Ok(());
        }
        if state.is_unlimited {
            return Err(refusals::budget_limit_missing().at("/hard"));
        }
        let taken = state.used.saturating_add(state.reserved);
        if self.amount.in_ledger() < taken {
            let taken = GpuHours::used(taken);
            return Err(refusals::budget_below_use(taken, self.amount).at("/gpu_hours"));
        }
        Ok(())
    }

    /// Refuses what does not fit the rest of a hard budget. `gpu`: hundredths of all its GPUs together. `whose` names the
    /// subject. `ran_seconds`: what has passed of the run already, and is used.
    ///
    /// Errors: `budget.spent`, `budget.limit-needed`, `budget.too-long`.
    pub fn admit(
        &self,
        whose: &str,
        state: BudgetState,
        gpu: u64,
        limit_seconds: Option<u64>,
        ran_seconds: u64,
    ) -> Result<(), Refusal> {
        if !self.is_hard || gpu == 0 {
            return Ok(());
        }
        let rest = self.rest(state);
        let longest = longest_run(rest, gpu);
        let left = GpuHours::whole(rest);
        if longest == 0 {
            return Err(refusals::budget_spent(whose, left, self.amount));
        }
        let longest = longest.saturating_add(ran_seconds);
        let told = told_seconds(longest);
        let refusal = match limit_seconds {
            None => refusals::budget_limit_needed(whose, left, told),
            Some(seconds) if seconds > longest => refusals::budget_too_long(whose, left, told),
            Some(_) => return Ok(()),
        };
        Err(refusal.at("/max_runtime_seconds"))
    }
}

/// What a session of so many hundredths of GPUs reserves for a run of that length.
pub fn reserved(gpu: u64, limit_seconds: u64) -> u64 {
    let seconds = limit_seconds.saturating_add(BEYOND_RUN_SECONDS);
    gpu.saturating_mul(seconds).saturating_mul(1_000)
}

/// What a live session of so many hundredths of GPUs may still use; None without a maximum runtime. `since`: what it used
/// since it got them. Where its start took longer than was set aside, the rest of its run and its stop stay reserved.
pub fn still_reserved(session: &Session, gpu: u64, since: u64, now: Timestamp) -> Option<u64> {
    if gpu == 0 {
        return Some(0);
    }
    let (limit_seconds, _) = session.spec.limit()?;
    let all = reserved(gpu, limit_seconds);
    if session.restart {
        return Some(all);
    }
    let run_millis = match session.deadline() {
        Some((end, _)) => end.millis_since(now),
        None => limit_seconds.saturating_mul(1_000),
    };
    let left = gpu.saturating_mul(run_millis.saturating_add(STOP_SECONDS * 1_000));
    Some(all.saturating_sub(since).max(left))
}

/// The longest run in seconds that fits the rest; 0 where none does.
pub fn longest_run(rest: u64, gpu: u64) -> u64 {
    (rest / gpu.max(1) / 1_000).saturating_sub(BEYOND_RUN_SECONDS)
}

const DAY: u64 = 86_400_000;

/// When the rest will be used, at the rates of the last 7 and 28 days: the earlier and the later of the two. None where
/// nothing was used in one of them, and where it would last for more than ten years.
pub fn forecast(
    rest: u64,
    now: Timestamp,
    last_7_days: u64,
    last_28_days: u64,
) -> Option<(Timestamp, Timestamp)> {
    let ends = |used: u64, days: u64| {
        let millis = u128::from(rest) * u128::from(days * DAY) / u128::from(used).max(1);
        let millis = i64::try_from(millis).ok()?;
        let bounded = used > 0 && millis <= 3_660 * DAY.cast_signed();
        bounded.then(|| Timestamp::from_millis(now.as_millis().saturating_add(millis)))
    };
    let (short, long) = (ends(last_7_days, 7)?, ends(last_28_days, 28)?);
    Some((short.min(long), short.max(long)))
}

/// `1h 20m 5s`, to be typed as a maximum runtime; parts that are nothing are left out.
fn told_seconds(seconds: u64) -> String {
    let parts = [
        (seconds / 3_600, "h"),
        (seconds / 60 % 60, "m"),
        (seconds % 60, "s"),
    ];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts
        .map(|(number, unit)| format!("{number}{unit}"))
        .collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes;

    fn budget(amount: u64, is_hard: bool) -> Budget {
        Budget {
            id: BudgetId::make(Timestamp::from_millis(1), [0; 10]),
            subject: BudgetSubject::Project {
                domain: DomainId::DEFAULT,
                project: ProjectId::DEFAULT,
            },
            amount: GpuHours(amount),
            from: Timestamp::from_millis(0),
            until: Timestamp::from_millis(1_000),
            is_hard,
            is_of_site: false,
            warned: 0,
            generation: 1,
        }
    }

    #[test]
    fn gpu_hours_are_read_and_written_in_hundredths() {
        for (text, hundredths) in [("120", 12_000), ("0.5", 50), ("0.05", 5), ("3.25", 325)] {
            assert_eq!(GpuHours::parse(text), Some(GpuHours(hundredths)), "{text}");
        }
        for text in ["", "-1", "0.005", ".5", "1.", "1e3", "99999999999999999999"] {
            assert_eq!(GpuHours::parse(text), None, "{text}");
        }
        assert_eq!(GpuHours(12_005).to_string(), "120.05");
    }

    #[test]
    fn the_longest_run_that_is_named_fits_and_one_second_more_does_not() {
        let budget = budget(1_000, true);
        for gpu in [1, 25, 100, 399, 800] {
            for used in [0, 1, 7_777_777, 3_000_000_000] {
                let state = BudgetState {
                    used,
                    ..BudgetState::default()
                };
                let longest = longest_run(budget.rest(state), gpu);
                let fits = |seconds| budget.admit("vision", state, gpu, Some(seconds), 0).is_ok();
                assert_eq!(fits(longest.max(1)), longest > 0);
                assert!(!fits(longest + 1));
                let all = used + reserved(gpu, longest);
                assert!(longest == 0 || all <= budget.amount.in_ledger());
            }
        }
    }

    #[test]
    fn a_hard_budget_demands_a_limit_and_a_soft_one_refuses_nothing() {
        let state = BudgetState::default();
        let code = |budget: &Budget, state, limit| {
            let refused = budget.admit("vision", state, 100, limit, 0);
            refused.err().map(|refusal| refusal.code)
        };
        let refused = |amount, state, limit, expected| {
            assert_eq!(
                code(&budget(amount, true), state, limit).as_deref(),
                Some(expected)
            );
        };
        refused(100, state, None, codes::BUDGET_LIMIT_NEEDED);
        refused(100, state, Some(3_600), codes::BUDGET_TOO_LONG);
        refused(0, state, Some(1), codes::BUDGET_SPENT);
        assert!(code(&budget(0, false), state, None).is_none());
        let unlimited = BudgetState {
            is_unlimited: true,
            ..state
        };
        refused(100, unlimited, Some(1), codes::BUDGET_SPENT);
    }

    #[test]
    fn what_ran_already_is_not_asked_for_again() {
        // One GPU-hour is left; a session of one GPU ran for two hours.
        let budget = budget(300, true);
        let state = BudgetState {
            used: GpuHours(200).in_ledger(),
            ..BudgetState::default()
        };
        let asked = |limit, ran| budget.admit("vision", state, 100, Some(limit), ran);
        let longest = 3_600 - BEYOND_RUN_SECONDS;
        assert!(asked(7_200 + longest, 7_200).is_ok());
        assert!(asked(7_200 + longest + 1, 7_200).is_err());
        assert!(asked(7_200, 0).is_err());
    }

    #[test]
    fn an_amount_below_what_was_used_is_refused() {
        let state = BudgetState {
            used: GpuHours(50).in_ledger() + 1,
            reserved: GpuHours(20).in_ledger(),
            is_unlimited: false,
        };
        assert!(budget(50, false).check(state).is_err());
        assert!(budget(51, false).check(state).is_ok());
        assert!(
            budget(70, true).check(state).is_err(),
            "reserved counts, too"
        );
        assert!(budget(71, true).check(state).is_ok());
    }

    #[test]
    fn a_forecast_lies_between_the_two_rates() {
        let now = Timestamp::from_millis(0);
        let told = forecast(70, now, 7, 14);
        let day = |days| Timestamp::from_millis(days * DAY.cast_signed());
        assert_eq!(told, Some((day(70), day(140))));
        assert_eq!(forecast(70, now, 0, 14), None);
        assert_eq!(forecast(u64::MAX, now, 1, 1), None);
    }

    #[test]
    fn warnings_come_at_80_and_95_percent() {
        let budget = budget(100, false);
        let at = |hundredths| budget.warning(GpuHours(hundredths).in_ledger());
        assert_eq!(
            [at(79), at(80), at(94), at(95), at(300)],
            [0, 80, 80, 95, 95]
        );
        assert_eq!(budget.warning(GpuHours(80).in_ledger() - 1), 0);
    }

    /// Numbers that look random, the same for each seed.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, end: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % end.max(1)
        }
    }

    /// One session of the play: hundredths of GPUs, its limit, seconds that it held them, and when it ends.
    struct Played {
        gpu: u64,
        limit: u64,
        held: u64,
        ends: u64,
    }

    /// Launches and ends sessions at random; each holds its GPUs for its limit and the time beside it at most. Gives whether
    /// the budget was ever exceeded, and how many launches were admitted. `forgets`: what is reserved is forgotten.
    fn played(seed: u64, forgets: bool) -> (bool, usize) {
        let mut dice = Dice(seed * 2_654_435_761 + 1);
        let budget = budget(500 + dice.below(5_000), true);
        let (mut used, mut admitted, mut exceeded) = (0, 0, false);
        let mut live: Vec<Played> = Vec::new();
        for _ in 0..400 {
            let rest = |one: &Played| {
                let held = one.gpu * one.held * 1_000;
                reserved(one.gpu, one.limit).saturating_sub(held)
            };
            let state = BudgetState {
                used,
                reserved: if forgets {
                    0
                } else {
                    live.iter().map(rest).sum()
                },
                is_unlimited: false,
            };
            let (gpu, limit) = (1 + dice.below(800), 1 + dice.below(20_000));
            if budget.admit("vision", state, gpu, Some(limit), 0).is_ok() {
                admitted += 1;
                let ends = 1 + dice.below(limit + BEYOND_RUN_SECONDS);
                // One in three runs into its limit and is slow to stop.
                let ends = match dice.below(3) {
                    0 => limit + BEYOND_RUN_SECONDS,
                    _ => ends,
                };
                live.push(Played {
                    gpu,
                    limit,
                    held: 0,
                    ends,
                });
            }
            let passed = dice.below(2_000);
            for one in &mut live {
                let held = passed.min(one.ends - one.held);
                one.held += held;
                used += one.gpu * held * 1_000;
            }
            live.retain(|one| one.held < one.ends);
            exceeded |= used > budget.amount.in_ledger();
        }
        (exceeded, admitted)
    }

    #[test]
    fn a_hard_budget_is_never_exceeded_and_a_forgotten_reservation_is_caught() {
        let mut caught = 0;
        for seed in 1..=40 {
            let (exceeded, admitted) = played(seed, false);
            assert!(!exceeded, "seed {seed}");
            assert!(admitted > 0, "seed {seed} admits nothing");
            caught += usize::from(played(seed, true).0);
        }
        assert!(
            caught >= 20,
            "the planted fault shows in {caught} seeds of 40"
        );
    }
}
