//! Weekly windows of a resource group: by day and by night its queue may be served by another rule, and take other
//! sessions. Says what holds at a moment. Never reads a clock or a table of time zones: the caller brings both.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fair_share::QueueOrder;
use crate::holiday::CalendarDay;
use crate::policy::BackfillMode;
use crate::refusal::Refusal;
use crate::refusals;
use crate::session::{Session, SessionKind};
use crate::units::{Timestamp, quoted};

/// Windows of one group. Higher: each pass asks more of them for each session that waits. Lower: three for each day of a week
/// do not go in.
pub const MAX_GROUP_WINDOWS: usize = 21;
/// Characters of one window as people write it. Higher: a page shows lines too long to read. Lower: a window that says all
/// that it can say does not fit.
pub const MAX_WINDOW_LENGTH: usize = 120;
/// Days in which an opening is looked for: a week, and the day on which it begins.
const AHEAD_DAYS: i64 = 8;
const DAY_MINUTES: i64 = 1_440;
const WEEK_MINUTES: i64 = 7 * DAY_MINUTES;
const MINUTE_MILLIS: i64 = 60_000;
/// Changes of a zone's offset that are known: two a year for a century and more.
const ZONE_CHANGES: usize = 256;
/// 1 January 2025, in seconds: the offsets of a zone are told from then on.
const FIRST_SECOND: i64 = 1_735_689_600;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeekDay {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

impl WeekDay {
    pub const ALL: [Self; 7] = [
        Self::Mon,
        Self::Tue,
        Self::Wed,
        Self::Thu,
        Self::Fri,
        Self::Sat,
        Self::Sun,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Mon => "mon",
            Self::Tue => "tue",
            Self::Wed => "wed",
            Self::Thu => "thu",
            Self::Fri => "fri",
            Self::Sat => "sat",
            Self::Sun => "sun",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|day| day.word() == word)
    }

    /// From 0, Monday.
    fn number(self) -> usize {
        self as usize
    }
}

/// Whether a window begins on days off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnHolidays {
    /// As on every other day.
    #[default]
    Yes,
    No,
    /// On no other day.
    Only,
}

impl OnHolidays {
    pub const ALL: [Self; 3] = [Self::Yes, Self::No, Self::Only];

    pub fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Only => "only",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    fn admits(self, is_holiday: bool) -> bool {
        match self {
            Self::Yes => true,
            Self::No => !is_holiday,
            Self::Only => is_holiday,
        }
    }

    fn is_usual(&self) -> bool {
        *self == Self::Yes
    }
}

/// One window: the days on which it begins, its times of day, and what holds meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupWindow {
    pub days: BTreeSet<WeekDay>,
    /// Minute of the day at which it begins.
    pub from: u16,
    /// Minute of the day at which it ends, 1440 at most; on the day after where that is not later than `from`.
    pub to: u16,
    /// In which order the queue is served; None: as the group says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<QueueOrder>,
    /// Who may start before one that waits; None: as the group says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backfill: Option<BackfillMode>,
    /// Kinds of sessions that start meanwhile; None: all, empty: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<SessionKind>>,
    /// Only sessions with a time limit of no more start meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_seconds: Option<u64>,
    /// Whether it begins on days off.
    #[serde(default, skip_serializing_if = "OnHolidays::is_usual")]
    pub holidays: OnHolidays,
}

impl GroupWindow {
    /// Whether a session may start while it lasts.
    pub fn takes(&self, session: &Session) -> bool {
        let kinds = self.kinds.as_ref();
        let kind_is_taken = kinds.is_none_or(|kinds| kinds.contains(&session.spec.kind));
        let limit = session.spec.limit().map(|(seconds, _)| seconds);
        let is_short = |most: u64| limit.is_some_and(|seconds| seconds <= most);
        kind_is_taken && self.max_runtime_seconds.is_none_or(is_short)
    }

    /// Minutes that it lasts: a day at most.
    fn length(&self) -> i64 {
        match (i64::from(self.to) - i64::from(self.from)).rem_euclid(DAY_MINUTES) {
            0 => DAY_MINUTES,
            minutes => minutes,
        }
    }

    /// Minutes of the week at which it begins.
    fn begins(&self) -> impl Iterator<Item = i64> {
        let from = i64::from(self.from);
        let days = self.days.iter();
        days.map(move |day| day.number() as i64 * DAY_MINUTES + from)
    }

    /// Whether it holds at that local minute, counted from 1970.
    fn holds(&self, local: i64, offsets: &ZoneOffsets) -> bool {
        let (minute, length) = (minute_of_week(local), self.length());
        let passed = self
            .begins()
            .map(|begin| (minute - begin).rem_euclid(WEEK_MINUTES));
        let mut lasting = passed.filter(|passed| *passed < length);
        lasting.any(|passed| {
            let day = CalendarDay((local - passed).div_euclid(DAY_MINUTES));
            self.holidays.admits(offsets.is_holiday(day))
        })
    }

    /// Whether both may hold at once: never those that begin on one day, one where it is off and one where it is not.
    fn overlaps(&self, other: &Self) -> bool {
        let is_parted = self.holidays != OnHolidays::Yes
            && other.holidays != OnHolidays::Yes
            && self.holidays != other.holidays;
        let lasts =
            |minutes: i64, window: &Self| minutes.rem_euclid(WEEK_MINUTES) < window.length();
        self.begins().any(|one| {
            other.begins().any(|two| {
                let is_one_day = one.div_euclid(DAY_MINUTES) == two.div_euclid(DAY_MINUTES);
                !(is_parted && is_one_day) && (lasts(two - one, self) || lasts(one - two, other))
            })
        })
    }

    /// Reads `mon-fri 18:00-08:00 kinds=batch order=fifo backfill=timed limit=8h holidays=no`: days, times, and what holds.
    ///
    /// Errors: `group.window-invalid`.
    pub fn parse(line: &str) -> Result<Self, Refusal> {
        let wrong = || refusals::group_window_invalid(quoted(line));
        if line.chars().count() > MAX_WINDOW_LENGTH {
            return Err(wrong());
        }
        let mut words = line.split_whitespace();
        let days = words.next().and_then(read_days).ok_or_else(wrong)?;
        let times = words.next().and_then(|times| times.split_once('-'));
        let (from, to) = times.ok_or_else(wrong)?;
        let mut window = Self {
            days,
            from: minute_of(from).ok_or_else(wrong)?,
            to: minute_of(to).ok_or_else(wrong)?,
            order: None,
            backfill: None,
            kinds: None,
            max_runtime_seconds: None,
            holidays: OnHolidays::Yes,
        };
        for word in words {
            let (what, value) = word.split_once('=').ok_or_else(wrong)?;
            match what {
                "order" => window.order = Some(QueueOrder::parse(value).ok_or_else(wrong)?),
                "backfill" => {
                    window.backfill = Some(BackfillMode::parse(value).ok_or_else(wrong)?);
                }
                "kinds" => window.kinds = Some(read_kinds(value).ok_or_else(wrong)?),
                "limit" => {
                    window.max_runtime_seconds = Some(read_seconds(value).ok_or_else(wrong)?);
                }
                "holidays" => window.holidays = OnHolidays::parse(value).ok_or_else(wrong)?,
                _ => return Err(wrong()),
            }
        }
        window.checked()
    }

    /// The same with its kinds in order. Errors: `group.window-invalid` where it has no day, a time that no day has, or a
    /// limit of nothing or of more seconds than a time has.
    pub fn checked(mut self) -> Result<Self, Refusal> {
        let (from, to) = (i64::from(self.from), i64::from(self.to));
        let is_wrong = self.days.is_empty()
            || from >= DAY_MINUTES
            || to > DAY_MINUTES
            || self
                .max_runtime_seconds
                .is_some_and(|seconds| seconds == 0 || i64::try_from(seconds).is_err());
        if is_wrong {
            return Err(refusals::group_window_invalid(quoted(&self.to_string())));
        }
        if let Some(kinds) = &mut self.kinds {
            let all = [SessionKind::Interactive, SessionKind::Batch];
            *kinds = all
                .into_iter()
                .filter(|kind| kinds.contains(kind))
                .collect();
        }
        Ok(self)
    }
}

/// As `parse` reads it.
impl fmt::Display for GroupWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = (time_of(self.from), time_of(self.to));
        write!(f, "{} {}-{}", days_told(&self.days), times.0, times.1)?;
        if let Some(kinds) = &self.kinds {
            let words: Vec<&str> = kinds.iter().map(|kind| kind_word(*kind)).collect();
            let told = match words.is_empty() {
                true => "none".to_owned(),
                false => words.join(","),
            };
            write!(f, " kinds={told}")?;
        }
        if let Some(order) = self.order {
            write!(f, " order={}", order.word())?;
        }
        if let Some(backfill) = self.backfill {
            write!(f, " backfill={}", backfill.word())?;
        }
        match self.max_runtime_seconds {
            None => {}
            Some(seconds) if seconds % 3_600 == 0 => write!(f, " limit={}h", seconds / 3_600)?,
            Some(seconds) if seconds % 60 == 0 => write!(f, " limit={}m", seconds / 60)?,
            Some(seconds) => write!(f, " limit={seconds}s")?,
        }
        match self.holidays {
            OnHolidays::Yes => Ok(()),
            other => write!(f, " holidays={}", other.word()),
        }
    }
}

/// `daily`, `mon`, `mon,wed` or `mon-fri`; a range may go over the end of the week.
fn read_days(text: &str) -> Option<BTreeSet<WeekDay>> {
    if text == "daily" {
        return Some(WeekDay::ALL.into());
    }
    let mut days = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (WeekDay::parse(first)?, WeekDay::parse(last)?);
        let count = (last.number() + 7 - first.number()) % 7;
        let all = WeekDay::ALL.into_iter().cycle().skip(first.number());
        days.extend(all.take(count + 1));
    }
    Some(days)
}

fn days_told(days: &BTreeSet<WeekDay>) -> String {
    if days.len() == WeekDay::ALL.len() {
        return "daily".to_owned();
    }
    let mut parts: Vec<String> = Vec::new();
    let days: Vec<WeekDay> = days.iter().copied().collect();
    for run in days.chunk_by(|one, next| one.number() + 1 == next.number()) {
        parts.push(match run {
            [only] => only.word().to_owned(),
            [first, .., last] => format!("{}-{}", first.word(), last.word()),
            [] => continue,
        });
    }
    parts.join(",")
}

/// The minute of the day of `18:30`; `24:00` is the end of the day.
pub fn minute_of(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |digits: &str| {
        let is_plain = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit());
        is_plain.then(|| digits.parse::<u16>().ok()).flatten()
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let minute = hours * 60 + minutes;
    (minutes < 60 && i64::from(minute) <= DAY_MINUTES).then_some(minute)
}

/// As `minute_of` reads it.
pub fn time_of(minute: u16) -> String {
    format!("{:02}:{:02}", minute / 60, minute % 60)
}

fn kind_word(kind: SessionKind) -> &'static str {
    match kind {
        SessionKind::Interactive => "interactive",
        SessionKind::Batch => "batch",
    }
}

/// `none`, or kinds with commas between.
fn read_kinds(text: &str) -> Option<Vec<SessionKind>> {
    if text == "none" {
        return Some(Vec::new());
    }
    let kind = |word: &str| match word {
        "interactive" => Some(SessionKind::Interactive),
        "batch" => Some(SessionKind::Batch),
        _ => None,
    };
    text.split(',').map(kind).collect()
}

/// `8h`, `90m`, `600s`, `2d`.
fn read_seconds(text: &str) -> Option<u64> {
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let number: u64 = text[..text.len() - 1].parse().ok()?;
    number.checked_mul(unit)
}

/// The windows of one group, and the zone in which their times are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupCalendar {
    /// IANA name.
    pub zone: String,
    pub windows: Vec<GroupWindow>,
}

impl Default for GroupCalendar {
    fn default() -> Self {
        Self {
            zone: "UTC".to_owned(),
            windows: Vec::new(),
        }
    }
}

impl GroupCalendar {
    /// Errors: `group.windows-too-many`, `group.window-overlap`.
    pub fn checked(zone: String, windows: Vec<GroupWindow>) -> Result<Self, Refusal> {
        if windows.len() > MAX_GROUP_WINDOWS {
            return Err(refusals::group_windows_too_many(MAX_GROUP_WINDOWS));
        }
        for (number, window) in windows.iter().enumerate() {
            if let Some(other) = windows[..number]
                .iter()
                .find(|other| other.overlaps(window))
            {
                let (one, other) = (quoted(&window.to_string()), quoted(&other.to_string()));
                return Err(refusals::group_window_overlap(one, other));
            }
        }
        Ok(Self { zone, windows })
    }
}

/// How far a time zone is from UTC, when that changes, and which days are off where the windows are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ZoneOffsets {
    /// Seconds east of UTC before the first change.
    pub first: i32,
    /// From when on which other one holds, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub later: Vec<(Timestamp, i32)>,
    /// Days off.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub holidays: BTreeSet<CalendarDay>,
}

/// Without a table: UTC, and no day off.
pub static UTC: ZoneOffsets = ZoneOffsets {
    first: 0,
    later: Vec::new(),
    holidays: BTreeSet::new(),
};

impl ZoneOffsets {
    /// Of that zone, from 2025 on, without a day off.
    pub fn of(zone: &jiff::tz::TimeZone) -> Self {
        let since = jiff::Timestamp::from_second(FIRST_SECOND).unwrap_or_default();
        let changes = zone.following(since).take(ZONE_CHANGES);
        Self {
            first: zone.to_offset(since).seconds(),
            later: changes
                .map(|change| {
                    let at = Timestamp::from_millis(change.timestamp().as_millisecond());
                    (at, change.offset().seconds())
                })
                .collect(),
            holidays: BTreeSet::new(),
        }
    }

    fn is_holiday(&self, day: CalendarDay) -> bool {
        self.holidays.contains(&day)
    }

    /// Seconds east of UTC at a moment.
    fn at(&self, now: Timestamp) -> i64 {
        let passed = self.later.partition_point(|(at, _)| *at <= now);
        let latest = passed.checked_sub(1).and_then(|last| self.later.get(last));
        i64::from(latest.map_or(self.first, |(_, offset)| *offset))
    }
}

/// Minutes since 1970 in a zone so many seconds east of UTC.
fn local_minute(now: Timestamp, offset: i64) -> i64 {
    (now.as_millis() + offset * 1_000).div_euclid(MINUTE_MILLIS)
}

/// The minute of the week, from Monday 00:00: 1970 began on a Thursday.
fn minute_of_week(local: i64) -> i64 {
    (local + 3 * DAY_MINUTES).rem_euclid(WEEK_MINUTES)
}

/// The window that holds at a moment; None between windows. Costs a comparison a window and a day.
pub fn at<'c>(
    calendar: &'c GroupCalendar,
    offsets: &ZoneOffsets,
    now: Timestamp,
) -> Option<&'c GroupWindow> {
    if calendar.windows.is_empty() {
        return None;
    }
    let local = local_minute(now, offsets.at(now));
    let mut windows = calendar.windows.iter();
    windows.find(|window| window.holds(local, offsets))
}

/// Moments of the next eight days, in order, at which something else may hold: begins and ends of windows in every offset that
/// the zone has until then, and its changes.
fn edges(calendar: &GroupCalendar, offsets: &ZoneOffsets, now: Timestamp) -> Vec<Timestamp> {
    let last = Timestamp::from_millis(
        now.as_millis()
            .saturating_add(AHEAD_DAYS * DAY_MINUTES * MINUTE_MILLIS),
    );
    let inside = |at: Timestamp| at > now && at <= last;
    let changes: Vec<(Timestamp, i32)> = offsets
        .later
        .iter()
        .copied()
        .filter(|(at, _)| inside(*at))
        .collect();
    let mut all: BTreeSet<Timestamp> = changes.iter().map(|(at, _)| *at).collect();
    let mut used: BTreeSet<i64> = changes
        .iter()
        .map(|(_, offset)| i64::from(*offset))
        .collect();
    used.insert(offsets.at(now));
    for offset in used {
        let local = local_minute(now, offset);
        let monday = local - minute_of_week(local);
        for window in &calendar.windows {
            let length = window.length();
            let edges = window.begins().flat_map(|begin| [begin, begin + length]);
            for edge in edges {
                for week in -1..=2 {
                    let local = monday + edge + week * WEEK_MINUTES;
                    let at = local * MINUTE_MILLIS - offset * 1_000;
                    all.extend(Some(Timestamp::from_millis(at)).filter(|at| inside(*at)));
                }
            }
        }
    }
    all.into_iter().collect()
}

/// When something else holds; None where the same holds for a week and longer.
pub fn next_change(
    calendar: &GroupCalendar,
    offsets: &ZoneOffsets,
    now: Timestamp,
) -> Option<Timestamp> {
    if calendar.windows.is_empty() {
        return None;
    }
    let holds = at(calendar, offsets, now);
    let mut edges = edges(calendar, offsets, now).into_iter();
    edges.find(|moment| at(calendar, offsets, *moment) != holds)
}

/// Whether a session may start at a moment, as far as windows say.
pub fn takes(
    calendar: &GroupCalendar,
    offsets: &ZoneOffsets,
    session: &Session,
    now: Timestamp,
) -> bool {
    at(calendar, offsets, now).is_none_or(|window| window.takes(session))
}

/// When a session may start next that may not now; None where it may not within a week.
pub fn opens(
    calendar: &GroupCalendar,
    offsets: &ZoneOffsets,
    session: &Session,
    now: Timestamp,
) -> Option<Timestamp> {
    let mut edges = edges(calendar, offsets, now).into_iter();
    edges.find(|moment| takes(calendar, offsets, session, *moment))
}

#[cfg(test)]
mod tests;
