//! Budgets: GPU-hours that a project or a user may use in a time. Pure; whole numbers only. A hard budget is encumbered
//! when a session is launched: its GPUs times its time limit are reserved, with a time for start and stop, and what is
//! not used is free again at the end. So a hard budget is not exceeded, and nothing that runs is cut off. A start or a stop
//! that takes longer than was set aside is charged, too; a start after which the run has no room left ends.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::messages::PREEMPTION_GRACE_SECONDS;
use crate::names::{BudgetId, UserId};
use crate::refusal::Refusal;
use crate::refusals;
use crate::session::{Lifecycle, Session};
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
/// Seconds for which a start may have lasted unseen by the ledger, which is looked at more often. Higher: a clock that was set
/// forward during a start reserves more. Lower: a long start reserves less than its run.
const UNSEEN_SECONDS: u64 = 600;
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
    /// A user; the domain is their home.
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
    /// A live session holds or asks for GPUs without a time limit.
    pub is_unlimited: bool,
}

impl Budget {
    /// Whether the use of a session of that domain, project and owner counts.
    pub fn counts(&self, domain: DomainId, in_project: ProjectId, owner: UserId) -> bool {
        match self.subject {
            BudgetSubject::Project { project, .. } => project == in_project,
            BudgetSubject::User { user, .. } => {
                user == owner && self.only_in().is_none_or(|only| only == domain)
            }
        }
    }

    /// The only domain whose projects count: administrators of a domain bound its users there alone. None: all of them.
    pub fn only_in(&self) -> Option<DomainId> {
        match self.subject {
            BudgetSubject::User { domain, .. } if !self.is_of_site => Some(domain),
            BudgetSubject::User { .. } | BudgetSubject::Project { .. } => None,
        }
    }

    /// What neither is used nor reserved.
    pub fn rest(&self, state: BudgetState) -> u64 {
        let taken = state.used.saturating_add(state.reserved);
        match state.is_unlimited && self.is_hard {
            true => 0,
            false => self.amount.in_ledger().saturating_sub(taken),
        }
    }

    /// Of so many milliseconds from `begins` on, those from the start of the budget on; None where they begin after its end.
    pub fn part(&self, begins: Timestamp, millis: u64) -> Option<u64> {
        let before = self.from.millis_since(begins);
        (begins < self.until).then(|| millis.saturating_sub(before))
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

    /// Refuses an amount that is below what is used or reserved, and a hard budget while sessions without a time limit
    /// are live. `before`: what it was; of a change, only what it makes stricter is asked. Errors: `budget.below-use`,
    /// `budget.limit-missing`.
    pub fn check(&self, state: BudgetState, before: Option<&Self>) -> Result<(), Refusal> {
        let falls = before.is_none_or(|before| self.amount < before.amount);
        let hardens = self.is_hard && before.is_none_or(|before| !before.is_hard);
        let pointer = if falls { "/gpu_hours" } else { "/hard" };
        let below = |least: u64| {
            let least = GpuHours::used(least);
            Err(refusals::budget_below_use(least, self.amount).at(pointer))
        };
        if falls && self.amount.in_ledger() < state.used {
            return below(state.used);
        }
        if hardens && state.is_unlimited {
            return Err(refusals::budget_limit_missing().at("/hard"));
        }
        let taken = state.used.saturating_add(state.reserved);
        if self.is_hard && (falls || hardens) && self.amount.in_ledger() < taken {
            return below(taken);
        }
        Ok(())
    }

    /// Refuses what does not fit the rest of a hard budget. `gpu`: hundredths of all its GPUs together. `whose` names the
    /// subject. `beyond`: milliseconds of its GPUs beside its limit, as `beyond_limit` gives them. `begins`: when it begins at
    /// the earliest; what it holds before the budget begins is not asked for.
    ///
    /// Errors: `budget.spent`, `budget.limit-needed`, `budget.too-long`.
    pub fn admit(
        &self,
        whose: &str,
        state: BudgetState,
        gpu: u64,
        limit_seconds: Option<u64>,
        (beyond, begins): (i64, Timestamp),
    ) -> Result<(), Refusal> {
        if !self.is_hard || gpu == 0 || begins >= self.until {
            return Ok(());
        }
        let before = i64::try_from(self.from.millis_since(begins)).unwrap_or(i64::MAX / 4);
        let rest = self.rest(state);
        let longest = longest_run(rest, gpu, beyond.saturating_sub(before));
        let left = GpuHours::whole(rest);
        let (from, until) = (self.from, self.until);
        if longest == 0 {
            let refusal = refusals::budget_spent(whose, from, until, left, self.amount);
            return Err(refusal);
        }
        let told = told_seconds(longest);
        let refusal = match limit_seconds {
            None => refusals::budget_limit_needed(whose, from, until, left, told),
            Some(seconds) if seconds > longest => {
                refusals::budget_too_long(whose, from, until, left, told)
            }
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

/// What a launch may hold its GPUs for beside its limit, in milliseconds.
pub fn beyond_launch() -> i64 {
    millis(BEYOND_RUN_SECONDS)
}

/// What a session that is preempted may hold its GPUs for beside the limit of its next run, in milliseconds: its stop has a
/// longer grace.
pub fn beyond_preemption() -> i64 {
    millis(BEYOND_RUN_SECONDS + PREEMPTION_GRACE_SECONDS + STOP_SECONDS)
}

/// Milliseconds for which a session may hold its GPUs beside its limit, less those for which it has held them: negative
/// once it ran for long. `held`: milliseconds of its present start that the ledger has counted. Where its start took longer
/// than was set aside, its stop is set aside still. Asks no clock that can be set.
pub fn beyond_limit(session: &Session, held: u64) -> i64 {
    let (beyond, stop) = (millis(BEYOND_RUN_SECONDS), millis(STOP_SECONDS));
    let Lifecycle::Placed(placed) = &session.lifecycle else {
        return beyond;
    };
    if session.restart {
        return match session.is_preempted() {
            true => beyond_preemption(),
            false => beyond + stop,
        };
    }
    let held = i64::try_from(held).unwrap_or(i64::MAX / 4);
    let start = session.started_at().map_or(held, |started| {
        let took = started.millis_since(placed.scheduled_at);
        let took = i64::try_from(took).unwrap_or(i64::MAX / 4);
        took.min(held.saturating_add(millis(UNSEEN_SECONDS)))
    });
    beyond.max(start.saturating_add(stop)).saturating_sub(held)
}

/// Whether a session has its GPUs, does not run yet, and took longer for that than was set aside. By the time of day: what it
/// holds is for the ledger to say.
pub fn starts_slowly(session: &Session, now: Timestamp) -> bool {
    let Lifecycle::Placed(placed) = &session.lifecycle else {
        return false;
    };
    let waits = placed.stopping_at.is_none() && session.started_at().is_none();
    let aside = (BEYOND_RUN_SECONDS - STOP_SECONDS) * 1_000;
    waits && now.millis_since(placed.scheduled_at) > aside
}

/// Milliseconds for which a live session may still hold its GPUs; None without a time limit. `held` as for
/// `beyond_limit`.
pub fn still_holds(session: &Session, held: u64) -> Option<u64> {
    let (limit_seconds, _) = session.spec.limit()?;
    let stop = match session.lifecycle {
        Lifecycle::Placed(_) => millis(STOP_SECONDS),
        Lifecycle::Pending | Lifecycle::Ended(_) => 0,
    };
    let never_runs = session.stopping_at().is_some() && session.started_at().is_none();
    if never_runs && !session.restart {
        return u64::try_from(stop).ok();
    }
    let left = millis(limit_seconds).saturating_add(beyond_limit(session, held));
    u64::try_from(left.max(stop)).ok()
}

fn millis(seconds: u64) -> i64 {
    i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX / 4)
}

/// The longest run in seconds that fits the rest; 0 where none does. `beyond` as for `Budget::admit`.
pub fn longest_run(rest: u64, gpu: u64, beyond: i64) -> u64 {
    let held = i64::try_from(rest / gpu.max(1)).unwrap_or(i64::MAX / 4);
    u64::try_from(held.saturating_sub(beyond) / 1_000).unwrap_or(0)
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

/// `1h 20m 5s`, to be typed as a time limit; parts that are nothing are left out.
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

    /// What a launch at the start of the budget gives beside its limit.
    fn asked() -> (i64, Timestamp) {
        (beyond_launch(), Timestamp::from_millis(0))
    }

    #[test]
    fn a_budget_asks_only_for_what_falls_into_it() {
        let hour = Timestamp::from_millis(3_600_000);
        let budget = Budget {
            from: hour,
            until: hour.plus_seconds(86_400),
            ..budget(0, true)
        };
        let state = BudgetState::default();
        let fits = |limit, begins| {
            let beyond = (beyond_launch(), begins);
            budget
                .admit("vision", state, 100, Some(limit), beyond)
                .is_ok()
        };
        let now = Timestamp::from_millis(0);
        let longest = 3_600 - BEYOND_RUN_SECONDS;
        assert!(fits(longest, now) && !fits(longest + 1, now));
        assert!(!fits(1, hour) && fits(longest, budget.until));
        assert_eq!(budget.part(now, 3_600_007), Some(7));
        assert_eq!(budget.part(hour, 7), Some(7));
        assert_eq!(budget.part(budget.until, 7), None);
    }

    #[test]
    fn a_budget_that_a_domain_gave_a_user_counts_its_own_projects_alone() {
        let (home, abroad) = (DomainId::DEFAULT, DomainId(uuid::Uuid::from_u128(7)));
        let user = UserId(uuid::Uuid::from_u128(1));
        let given = |is_of_site| Budget {
            subject: BudgetSubject::User { domain: home, user },
            is_of_site,
            ..budget(100, true)
        };
        let counts = |of: &Budget, domain| of.counts(domain, ProjectId::DEFAULT, user);
        assert!(counts(&given(true), home) && counts(&given(true), abroad));
        assert!(counts(&given(false), home) && !counts(&given(false), abroad));
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
                let longest = longest_run(budget.rest(state), gpu, beyond_launch());
                let fits = |seconds| {
                    let asked = budget.admit("vision", state, gpu, Some(seconds), asked());
                    asked.is_ok()
                };
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
            let refused = budget.admit("vision", state, 100, limit, asked());
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
        let (launch, begins) = asked();
        let asked = |limit, ran: i64| {
            let beyond = (launch - ran * 1_000, begins);
            budget.admit("vision", state, 100, Some(limit), beyond)
        };
        let longest = 3_600 - BEYOND_RUN_SECONDS;
        assert!(asked(7_200 + longest, 7_200).is_ok());
        assert!(asked(7_200 + longest + 1, 7_200).is_err());
        assert!(asked(7_200, 0).is_err());
    }

    fn running(limit: u64, start: u64) -> Session {
        let mut session = waiting(limit);
        let at = Timestamp::from_millis(0);
        let because = crate::reasons::placement_kept("box");
        session.place(
            crate::names::NodeId(uuid::Uuid::nil()),
            Vec::new(),
            because,
            at,
        );
        session.run_since(at.plus_seconds(start));
        session
    }

    fn waiting(limit: u64) -> Session {
        let spec = crate::session::SessionSpec {
            kind: crate::session::SessionKind::Batch,
            environment: crate::session::SessionEnvironment::Host,
            command: vec!["true".to_owned()],
            env: std::collections::BTreeMap::new(),
            demand: crate::resources::Demand::default(),
            timeout_seconds: None,
            max_runtime_seconds: Some(limit),
            start_at: None,
            depends_on: Vec::new(),
            containers: 1,
        };
        let name = crate::names::SessionName::parse("a").expect("a name");
        let id = crate::names::SessionId(uuid::Uuid::nil());
        let owner = UserId(uuid::Uuid::nil());
        Session::launched(id, name, owner, spec, Timestamp::from_millis(0))
    }

    #[test]
    fn a_session_may_still_hold_what_it_has_not_held_yet() {
        let left = |session: &Session, held: u64| {
            let left = still_holds(session, held * 1_000);
            left.map(|millis| millis / 1_000)
        };
        assert_eq!(left(&waiting(3_600), 0), Some(3_720));
        // Its start took ten seconds: the other 110 stay set aside.
        assert_eq!(left(&running(3_600, 10), 3_000), Some(720));
        // Two hundred: its run, and the time to stop.
        assert_eq!(left(&running(3_600, 200), 3_000), Some(830));
        assert_eq!(left(&running(3_600, 10), 5_000), Some(STOP_SECONDS));
        // Its whole run again, after its stop.
        let mut again = running(3_600, 10);
        again.restart = true;
        assert_eq!(left(&again, 3_000), Some(3_750));
        let mut preempted = running(3_600, 10);
        assert!(preempted.preempt(Timestamp::from_millis(3_000_000)));
        assert_eq!(left(&preempted, 3_000), Some(3_870));
        // It never runs: no other has to leave for it.
        let mut refused = waiting(3_600);
        refused.place(
            crate::names::NodeId(uuid::Uuid::nil()),
            Vec::new(),
            crate::reasons::placement_kept("box"),
            Timestamp::from_millis(0),
        );
        assert_eq!(left(&refused, 200), Some(3_630));
        if let Lifecycle::Placed(placed) = &mut refused.lifecycle {
            placed.stopping_at = Some(Timestamp::from_millis(200_000));
        }
        assert_eq!(left(&refused, 200), Some(STOP_SECONDS));
        let unlimited = waiting(3_600);
        let spec = crate::session::SessionSpec {
            max_runtime_seconds: None,
            ..unlimited.spec.clone()
        };
        assert_eq!(left(&Session { spec, ..unlimited }, 0), None);
    }

    #[test]
    fn an_amount_below_what_was_used_is_refused() {
        let state = BudgetState {
            used: GpuHours(50).in_ledger() + 1,
            reserved: GpuHours(20).in_ledger(),
            is_unlimited: false,
        };
        assert!(budget(50, false).check(state, None).is_err());
        assert!(budget(51, false).check(state, None).is_ok());
        assert!(
            budget(70, true).check(state, None).is_err(),
            "reserved counts, too"
        );
        assert!(budget(71, true).check(state, None).is_ok());
    }

    #[test]
    fn an_overrun_budget_can_be_raised_and_made_soft() {
        let state = BudgetState {
            used: GpuHours(101).in_ledger(),
            reserved: GpuHours(20).in_ledger(),
            is_unlimited: true,
        };
        let before = budget(100, true);
        let after = |amount, is_hard| budget(amount, is_hard).check(state, Some(&before));
        assert!(after(100, false).is_ok() && after(105, true).is_ok());
        assert!(after(99, true).is_err() && after(99, false).is_err());
        let soft = budget(100, false);
        assert!(budget(130, true).check(state, Some(&soft)).is_err());
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
            let asked = budget.admit("vision", state, gpu, Some(limit), asked());
            if asked.is_ok() {
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
