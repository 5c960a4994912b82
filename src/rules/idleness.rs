//! When a session is idle, who must be told before it ends, and what then happens. The same samples give the same
//! answer in a dry run and in earnest. Never reads a clock: time counts as it was measured, so that a clock that is
//! set, a restart and a gap only ever put an end off.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::messages::BusyTime;
use crate::names::IdleRuleId;
use crate::refusal::Refusal;
use crate::refusals;
use crate::session::{Session, SessionKind};
use crate::units::{CpuShare, Timestamp};

/// Seconds before the end at which the two warnings are given. Longer: a window must be longer too. Shorter: who is
/// at lunch finds the session gone.
pub const WARNINGS: [u64; 2] = [900, 300];
/// Shortest and longest seconds below the thresholds. Shorter: there is no time for two warnings. Longer: samples of
/// minutes are gone before they are judged.
pub const WINDOW_SECONDS: std::ops::RangeInclusive<u64> = 1_200..=259_200;
/// Longest seconds after a start in which nothing counts.
pub const MAX_GRACE_SECONDS: u64 = 86_400;
/// Shortest and longest seconds that one *Keep* puts the end off.
pub const EXTEND_SECONDS: std::ops::RangeInclusive<u64> = 1_200..=86_400;
/// How often one may be kept in a row.
pub const MAX_EXTENSIONS: u32 = 20;

/// Terminals, or times that somebody typed in a minute, that a threshold can name: more than any session has.
pub const MAX_THRESHOLD: u32 = 10_000;
/// Characters of a label that exempts.
pub const MAX_EXEMPT_LENGTH: usize = 256;

/// Milliseconds after which a sample says nothing of now.
pub const STALE_MILLIS: u64 = 150_000;

/// Longest milliseconds between two samples that follow each other: they come once a minute.
const MAX_STEP: u64 = 150_000;
/// How far the time of day may be off what the steady clock says between two samples.
const MAX_DRIFT: u64 = 5_000;
/// Unmeasured milliseconds in a row after which the idle time starts over. Longer: work that nobody measured may be
/// forgotten. Shorter: each upgrade of the server lets idle sessions off.
const MAX_UNMEASURED: u64 = 900_000;
/// How much quiet time a crash may lose without taking a warning back.
const SLACK: u64 = 120_000;

/// What is done with a session that is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdleAction {
    /// Its owner is told, and it runs on.
    Notice,
    Stop,
    Pause,
    /// It is stopped, and waits in the queue behind all others.
    Requeue,
}

impl IdleAction {
    pub const ALL: [Self; 4] = [Self::Notice, Self::Stop, Self::Pause, Self::Requeue];

    pub fn word(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Stop => "stop",
            Self::Pause => "pause",
            Self::Requeue => "requeue",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.word() == word)
    }
}

/// Whether all measures or any of them must be below their thresholds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdleMatch {
    All,
    Any,
}

impl IdleMatch {
    pub const ALL: [Self; 2] = [Self::All, Self::Any];

    pub fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Any => "any",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }
}

/// Whose sessions a rule judges, the widest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdleLevel {
    Site,
    Domain,
    Project,
}

impl IdleLevel {
    pub const ALL: [Self; 3] = [Self::Site, Self::Domain, Self::Project];

    pub fn word(self) -> &'static str {
        match self {
            Self::Site => "site",
            Self::Domain => "domain",
            Self::Project => "project",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.word() == word)
    }
}

/// What a session must be below to be idle; None is not looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IdleThresholds {
    /// Per cent of its shares of devices. Only a session with a device is ever below it.
    pub gpu_percent: Option<u32>,
    /// Cores.
    pub cpu: Option<CpuShare>,
    /// Terminals, commands and ports that are open at once.
    pub terminals: Option<u32>,
    /// Times that somebody typed into a terminal, a minute.
    pub keys: Option<u32>,
}

/// When a session is idle, and what then happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleRule {
    pub below: IdleThresholds,
    pub of: IdleMatch,
    pub window_seconds: u64,
    pub grace_seconds: u64,
    pub action: IdleAction,
    /// How long one *Keep* puts the end off, and how often that may be in a row.
    pub extend_seconds: u64,
    pub extend_times: u32,
}

impl IdleRule {
    /// Refuses a rule without conditions, or one that every session meets: the first of `faults`.
    ///
    /// Errors: `idle-rule.empty`, `idle-rule.threshold`, `idle-rule.window`, `idle-rule.grace`, `idle-rule.extend`.
    pub fn check(&self) -> Result<(), Refusal> {
        match self.faults().into_iter().next() {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    /// Everything that `check` refuses, each at its field.
    pub fn faults(&self) -> Vec<Refusal> {
        let IdleThresholds {
            gpu_percent,
            cpu,
            terminals,
            keys,
        } = self.below;
        let mut faults = Vec::new();
        if gpu_percent.is_none() && cpu.is_none() && terminals.is_none() && keys.is_none() {
            faults.push(refusals::idle_rule_empty().at("/below"));
        }
        if gpu_percent.is_some_and(|percent| !(1..=100).contains(&percent)) {
            faults.push(refusals::idle_rule_threshold(MAX_THRESHOLD).at("/below/gpu_percent"));
        }
        if cpu == Some(CpuShare(0)) {
            faults.push(refusals::idle_rule_threshold(MAX_THRESHOLD).at("/below/cpu"));
        }
        for (count, field) in [(terminals, "/below/terminals"), (keys, "/below/keys")] {
            if count.is_some_and(|count| !(1..=MAX_THRESHOLD).contains(&count)) {
                faults.push(refusals::idle_rule_threshold(MAX_THRESHOLD).at(field));
            }
        }
        if !WINDOW_SECONDS.contains(&self.window_seconds) {
            let (least, most) = (WINDOW_SECONDS.start() / 60, WINDOW_SECONDS.end() / 3_600);
            faults.push(refusals::idle_rule_window(least, most).at("/window_seconds"));
        }
        if self.grace_seconds > MAX_GRACE_SECONDS {
            let refusal = refusals::idle_rule_grace(MAX_GRACE_SECONDS / 3_600);
            faults.push(refusal.at("/grace_seconds"));
        }
        if self.extend_times > MAX_EXTENSIONS {
            let refusal = refusals::idle_rule_extensions(MAX_EXTENSIONS);
            faults.push(refusal.at("/extend_times"));
        }
        let is_kept = self.extend_times > 0 && !EXTEND_SECONDS.contains(&self.extend_seconds);
        if is_kept || self.extend_seconds > *EXTEND_SECONDS.end() {
            let (least, most) = (EXTEND_SECONDS.start() / 60, EXTEND_SECONDS.end() / 3_600);
            faults.push(refusals::idle_rule_extend(least, most).at("/extend_seconds"));
        }
        faults
    }

    /// Quiet milliseconds after which it acts on a session that nobody keeps.
    fn window(&self) -> u64 {
        self.window_seconds * 1000
    }

    /// Seconds of samples that judge a session that was told this, with the grace before them.
    pub fn reads_seconds(&self, told: &IdleTold) -> u64 {
        told.target(self) / 1000 + self.grace_seconds
    }
}

/// A rule, and whose sessions it judges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopedIdleRule {
    pub id: IdleRuleId,
    pub level: IdleLevel,
    /// The domain or the project; None for the site.
    pub subject: Option<uuid::Uuid>,
    /// None: of both kinds.
    pub kind: Option<SessionKind>,
    /// `KEY` or `KEY=VALUE`: sessions with this label are let off; empty: none are.
    pub exempt: String,
    pub rule: IdleRule,
    pub generation: u64,
}

impl ScopedIdleRule {
    /// True where that session is of its scope and kind.
    pub fn covers(&self, session: &Session) -> bool {
        let within = match self.level {
            IdleLevel::Site => true,
            IdleLevel::Domain => self.subject == Some(session.domain.0),
            IdleLevel::Project => self.subject == Some(session.project.0),
        };
        let of_kind = self.kind.is_none_or(|kind| kind == session.spec.kind);
        within && of_kind
    }

    fn lets_off(&self, session: &Session) -> bool {
        match self.exempt.split_once('=') {
            None if self.exempt.is_empty() => false,
            None => session.remarks.labels.contains_key(&self.exempt),
            Some((key, value)) => {
                let label = session.remarks.labels.get(key);
                label.is_some_and(|label| label == value)
            }
        }
    }
}

/// The rule that judges a session: the closest, then the one for its kind, then the oldest. None where none covers it,
/// or where that one lets it off: a wider rule does not step in.
pub fn closest<'r>(rules: &'r [ScopedIdleRule], session: &Session) -> Option<&'r ScopedIdleRule> {
    let covering = rules.iter().filter(|rule| rule.covers(session));
    covering
        .max_by_key(|rule| (rule.level, rule.kind.is_some(), Reverse(rule.id)))
        .filter(|rule| !rule.lets_off(session))
}

/// A moment on the clock of a machine that cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SteadyMoment {
    /// Which start of the machine it is.
    pub boot: uuid::Uuid,
    pub millis: u64,
}

impl SteadyMoment {
    /// Milliseconds from an earlier moment; None where the machine rebooted in between, or where it is later.
    fn since(self, earlier: Self) -> Option<u64> {
        match self.boot == earlier.boot {
            true => self.millis.checked_sub(earlier.millis),
            false => None,
        }
    }
}

/// What one container used, as it was sampled once a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleSample {
    pub at: Timestamp,
    pub incarnation: u32,
    /// By the machine's clock that cannot be set; None where that is not known.
    pub steady: Option<SteadyMoment>,
    /// Since its start, microseconds.
    pub cpu_microseconds: u64,
    pub worked: Option<BusyTime>,
    /// The most that were open at once since the sample before.
    pub terminals: Option<u32>,
    pub keys: Option<u32>,
}

/// What a step from one sample to the next says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Quiet,
    Busy,
    Unmeasured,
}

/// How long one container has been quiet, by the samples that were taken in so far. Taking one in costs the same
/// however long that is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IdleProgress {
    last: Option<IdleSample>,
    /// Milliseconds since its first sample.
    age: u64,
    /// Milliseconds below the thresholds, since it was last above.
    quiet: u64,
    /// Milliseconds in a row that were not measured.
    unmeasured: u64,
    busy_at: Option<Timestamp>,
}

impl IdleProgress {
    /// The time of the newest sample.
    pub fn at(&self) -> Option<Timestamp> {
        self.last.map(|last| last.at)
    }

    /// Milliseconds for which it has been quiet.
    pub fn quiet(&self) -> u64 {
        self.quiet
    }

    /// When it was last seen above the thresholds.
    pub fn busy_at(&self) -> Option<Timestamp> {
        self.busy_at
    }

    /// Takes in the next sample. One of another start, or from before the last, starts over; so does one between which and
    /// the last a clock was set, for rows of another time may stand between.
    pub fn take(&mut self, rule: &IdleRule, sample: &IdleSample) {
        let Some((last, passed)) = self
            .last
            .and_then(|last| Some((last, passed(&last, sample)?)))
        else {
            *self = Self {
                last: Some(*sample),
                ..Self::default()
            };
            return;
        };
        self.last = Some(*sample);
        let measured = (passed <= MAX_STEP).then_some(passed);
        match seen(&rule.below, rule.of, (&last, sample), measured) {
            Seen::Busy => {
                self.quiet = 0;
                self.unmeasured = 0;
                self.busy_at = Some(sample.at);
            }
            Seen::Quiet => {
                self.unmeasured = 0;
                // A step that began within the grace counts for nothing.
                if self.age >= rule.grace_seconds * 1000 {
                    self.quiet += passed;
                }
            }
            Seen::Unmeasured => {
                self.unmeasured = self.unmeasured.saturating_add(passed);
                if self.unmeasured > MAX_UNMEASURED {
                    self.quiet = 0;
                }
            }
        }
        self.age = self.age.saturating_add(passed);
    }
}

/// Milliseconds from one sample to the next of the same start; None where it does not follow, or where the time of day
/// says something else.
fn passed(last: &IdleSample, sample: &IdleSample) -> Option<u64> {
    let follows = last.incarnation == sample.incarnation && last.at < sample.at;
    let passed = sample.steady?.since(last.steady?)?;
    let wall = sample.at.millis_since(last.at);
    (follows && passed.abs_diff(wall) <= MAX_DRIFT).then_some(passed)
}

/// What two samples say. Over a gap work still shows in what was summed; rest does not.
fn seen(
    below: &IdleThresholds,
    of: IdleMatch,
    (last, sample): (&IdleSample, &IdleSample),
    measured: Option<u64>,
) -> Seen {
    let cpu = below.cpu.map(|limit| {
        let spent = sample.cpu_microseconds.checked_sub(last.cpu_microseconds)?;
        // In a gap all of it may have been worked in one minute.
        let within = measured.unwrap_or(60_000).max(1);
        Some(spent < u64::from(limit.0) * within * 10)
    });
    let gpu = below.gpu_percent.map(|limit| {
        let (before, after) = last.worked.zip(sample.worked)?;
        let busy = after
            .busy_microseconds
            .checked_sub(before.busy_microseconds)?;
        let granted = after
            .granted_microseconds
            .checked_sub(before.granted_microseconds)
            .filter(|granted| *granted > 0)?;
        Some(u128::from(busy) * 100 < u128::from(limit) * u128::from(granted))
    });
    let count = |limit: Option<u32>, seen: Option<u32>| limit.map(|limit| Some(seen? < limit));
    let terminals = count(below.terminals, sample.terminals);
    let keys = count(below.keys, sample.keys);
    let all: Vec<Option<bool>> = [gpu, cpu, terminals, keys].into_iter().flatten().collect();
    let (some_below, some_above) = (all.contains(&Some(true)), all.contains(&Some(false)));
    let unknown = all.contains(&None);
    let seen = match of {
        IdleMatch::All if some_above => Seen::Busy,
        IdleMatch::All if unknown || !some_below => Seen::Unmeasured,
        IdleMatch::All => Seen::Quiet,
        IdleMatch::Any if some_below => Seen::Quiet,
        IdleMatch::Any if unknown || !some_above => Seen::Unmeasured,
        IdleMatch::Any => Seen::Busy,
    };
    match seen {
        Seen::Quiet if measured.is_none() => Seen::Unmeasured,
        seen => seen,
    }
}

/// How long a session has been quiet: as long as the least quiet of its containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionQuiet {
    pub millis: u64,
    pub busy_at: Option<Timestamp>,
}

impl SessionQuiet {
    /// None without a container.
    pub fn of<'p>(containers: impl Iterator<Item = &'p IdleProgress>) -> Option<Self> {
        containers
            .map(|one| Self {
                millis: one.quiet(),
                busy_at: one.busy_at(),
            })
            .reduce(|a, b| Self {
                millis: a.millis.min(b.millis),
                busy_at: a.busy_at.max(b.busy_at),
            })
    }
}

/// One warning that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleWarning {
    pub at: Timestamp,
    /// Quiet milliseconds at that moment.
    pub quiet: u64,
}

/// What a session was told under a rule since it was last busy. The default: nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IdleTold {
    pub warnings: [Option<IdleWarning>; 2],
    /// How often it was kept, and when last.
    pub kept: u32,
    pub kept_at: Option<Timestamp>,
    /// Quiet milliseconds after which the rule acts on what was kept.
    pub put_off: u64,
    /// The rule acted.
    pub acted: bool,
}

impl IdleTold {
    /// Quiet milliseconds after which the rule acts, where both warnings were given in time.
    fn target(&self, rule: &IdleRule) -> u64 {
        match self.kept {
            0 => rule.window(),
            _ => self.put_off,
        }
    }

    /// Quiet milliseconds at which the rule acts on what has been quiet for so many, were it left alone.
    fn due(&self, rule: &IdleRule, quiet: u64) -> u64 {
        let earliest = match self.warnings {
            [None, _] => quiet + WARNINGS[0] * 1000,
            [Some(first), None] => first.quiet + WARNINGS[0] * 1000,
            [_, Some(second)] => second.quiet + WARNINGS[1] * 1000,
        };
        self.target(rule).max(earliest)
    }

    /// What it was told once it is kept, so many milliseconds after the rule was due: the end is put off by what the
    /// rule allows, and both warnings come again. None where no warning stands, for then nothing is to be put off.
    pub fn keep(&self, rule: &IdleRule, late: u64) -> Option<Self> {
        let [first, second] = self.warnings;
        let newest = second.or(first).filter(|_| !self.acted)?;
        let extend = rule.extend_seconds * 1000;
        Some(Self {
            warnings: [None, None],
            kept: self.kept + 1,
            // The time of a sample, as those of warnings: work is compared with it.
            kept_at: Some(newest.at),
            put_off: self.due(rule, newest.quiet) + late.min(extend) + extend,
            acted: false,
        })
    }
}

/// What is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleStep {
    Wait,
    /// It is busy again: what it was told holds no more.
    Forget,
    /// The first or the second warning.
    Warn(usize),
    Act,
}

/// Says what is next for a session. Never acts but after both warnings, the second at least ten quiet minutes after
/// the first and five before the act. Keeping it puts all of that off.
pub fn judge(rule: &IdleRule, told: &IdleTold, quiet: SessionQuiet) -> IdleStep {
    let began = rule.window().saturating_sub(WARNINGS[0] * 1000 + SLACK);
    let last = told.warnings.iter().flatten().map(|warning| warning.at);
    let last = last.chain(told.kept_at).max();
    let worked_since = last.is_some_and(|last| quiet.busy_at.is_some_and(|busy| busy > last));
    if *told != IdleTold::default() && (quiet.millis < began || worked_since) {
        return IdleStep::Forget;
    }
    if told.acted {
        return IdleStep::Wait;
    }
    let target = told.target(rule);
    let before = |seconds: u64| target.saturating_sub(seconds * 1000);
    let (due, step) = match told.warnings {
        [None, _] => (before(WARNINGS[0]), IdleStep::Warn(0)),
        [Some(first), None] => {
            let apart = (WARNINGS[0] - WARNINGS[1]) * 1000;
            let due = before(WARNINGS[1]).max(first.quiet + apart);
            (due, IdleStep::Warn(1))
        }
        [Some(_), Some(second)] => {
            let due = target.max(second.quiet + WARNINGS[1] * 1000);
            (due, IdleStep::Act)
        }
    };
    match quiet.millis >= due {
        true => step,
        false => IdleStep::Wait,
    }
}

/// Quiet seconds until the rule acts, were the session left alone from now on.
pub fn seconds_left(rule: &IdleRule, told: &IdleTold, quiet: u64) -> u64 {
    told.due(rule, quiet).saturating_sub(quiet) / 1000
}

/// What a warning says: `stop in 15 min`.
pub fn told(action: IdleAction, minutes: u64) -> String {
    format!("{} in {minutes} min", action.word())
}

/// What `told` said; None for other words.
pub fn read_told(words: &str) -> Option<(IdleAction, u64)> {
    let (action, rest) = words.split_once(" in ")?;
    let minutes = rest.strip_suffix(" min")?.parse().ok()?;
    Some((IdleAction::parse(action)?, minutes))
}

/// What a rule would have done to one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DryEnd {
    pub at: Timestamp,
    /// The newest sample of that start: so long it held its place.
    pub until: Timestamp,
    /// It was above the thresholds again within an hour.
    pub busy_again: bool,
}

/// Runs a rule over the samples of one session, by container, each oldest first, as if nobody had kept it. Gives at
/// most one end for each start of the session, oldest first.
pub fn dry_run(rule: &IdleRule, containers: &[Vec<IdleSample>]) -> Vec<DryEnd> {
    let mut all: Vec<(usize, &IdleSample)> = Vec::new();
    for (index, samples) in containers.iter().enumerate() {
        all.extend(samples.iter().map(|sample| (index, sample)));
    }
    all.sort_by_key(|(index, sample)| (sample.at, *index));
    // When a container of a start was sampled last: later, it is over.
    let mut last: BTreeMap<(usize, u32), Timestamp> = BTreeMap::new();
    for (index, sample) in &all {
        last.insert((*index, sample.incarnation), sample.at);
    }
    let mut ends: Vec<DryEnd> = Vec::new();
    let mut progress = vec![IdleProgress::default(); containers.len()];
    let (mut told, mut incarnation, mut over) = (IdleTold::default(), None, false);
    for (index, sample) in all {
        if incarnation != Some(sample.incarnation) {
            incarnation = Some(sample.incarnation);
            progress.fill(IdleProgress::default());
            (told, over) = (IdleTold::default(), false);
        }
        progress[index].take(rule, sample);
        if over {
            if let Some(end) = ends.last_mut() {
                end.until = sample.at;
                let busy = progress[index].busy_at() == Some(sample.at);
                end.busy_again |= busy && sample.at <= end.at.plus_seconds(3_600);
            }
            continue;
        }
        let is_late = |at: Timestamp| sample.at.millis_since(at) > STALE_MILLIS;
        let live = progress.iter().enumerate().filter(|(index, _)| {
            let last = last.get(&(*index, sample.incarnation));
            last.is_some_and(|last| !is_late(*last))
        });
        let live: Vec<&IdleProgress> = live.map(|(_, one)| one).collect();
        // As the server does, which knows nothing of one that is silent.
        if live.iter().any(|one| one.at().is_none_or(is_late)) {
            continue;
        }
        let Some(quiet) = SessionQuiet::of(live.into_iter()) else {
            continue;
        };
        match judge(rule, &told, quiet) {
            IdleStep::Wait => {}
            IdleStep::Forget => told = IdleTold::default(),
            IdleStep::Warn(number) => {
                told.warnings[number] = Some(IdleWarning {
                    at: sample.at,
                    quiet: quiet.millis,
                });
            }
            IdleStep::Act => {
                over = true;
                ends.push(DryEnd {
                    at: sample.at,
                    until: sample.at,
                    busy_again: false,
                });
            }
        }
    }
    ends
}

#[cfg(test)]
mod tests;
