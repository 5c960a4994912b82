//! When so much of the machines is kept for one user or project, or for maintenance: whether it can be booked, and
//! what state it is in. Never looks at a world: which devices are kept, `placement` chooses. Never reads a clock.

use serde::{Deserialize, Serialize};

use crate::names::{ReservationId, SessionId, UserId};
use crate::refusal::Refusal;
use crate::refusals;
use crate::session::Session;
use crate::tenancy::ProjectId;
use crate::units::{Bytes, CpuShare, GpuShare, Timestamp, quoted};

/// Seconds before its begin at which devices are chosen and sessions there are warned.
pub const WARNING_SECONDS: u64 = 900;
/// Seconds before the begin of one that fits in, from which on only what ends before starts on its devices.
pub const FIT_SECONDS: u64 = 86_400;
/// Seconds without a session of its members after which the rest is given back.
pub const UNUSED_SECONDS: u64 = 1_200;
/// Seconds in which a session that is to end in time comes from its place to its start, where its limit begins to count.
pub const START_SECONDS: u64 = 120;
/// Weeks in a row that one booking may ask for.
pub const MAX_REPEATS: u32 = 60;
/// Seconds of one time.
pub const MAX_LENGTH_SECONDS: u64 = 14 * 86_400;
/// How far ahead a booking may reach.
pub const MAX_AHEAD_SECONDS: u64 = 2 * 366 * 86_400;

const WEEK_DAYS: i64 = 7;

/// How far one time of a reservation is. The clock moves it forward only: one that was set back takes nothing back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReservationState {
    /// It waits for an administrator, and keeps nothing.
    Asked,
    Booked,
    /// Its devices are chosen, and the sessions there are told.
    Warned,
    /// Its devices are its members' only.
    Active,
    Over,
    Cancelled,
    /// No member used it, so the rest was released.
    Released,
    /// An administrator did not grant it.
    Refused,
    /// Its begin came before an administrator decided.
    Expired,
}

impl ReservationState {
    pub const ALL: [Self; 9] = [
        Self::Asked,
        Self::Booked,
        Self::Warned,
        Self::Active,
        Self::Over,
        Self::Cancelled,
        Self::Released,
        Self::Refused,
        Self::Expired,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Booked => "booked",
            Self::Warned => "warned",
            Self::Active => "active",
            Self::Over => "over",
            Self::Cancelled => "cancelled",
            Self::Released => "released",
            Self::Refused => "refused",
            Self::Expired => "expired",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// True while it takes room from others, now or later.
    pub fn counts(self) -> bool {
        matches!(self, Self::Booked | Self::Warned | Self::Active)
    }

    /// True while something can still become of it: it takes room, or waits for an administrator.
    pub fn is_open(self) -> bool {
        self == Self::Asked || self.counts()
    }
}

/// Whose a reservation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReservationHolder {
    User(UserId),
    Project(ProjectId),
    /// No holder: no session runs there meanwhile.
    Maintenance,
}

impl ReservationHolder {
    /// True where that session is one of its members'.
    pub fn admits(self, session: &Session) -> bool {
        match self {
            Self::User(user) => session.owner == user,
            Self::Project(project) => session.project == project,
            Self::Maintenance => false,
        }
    }
}

/// What becomes of others on its devices before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BeforeReservation {
    /// They start as ever until the warning, and are stopped at its begin.
    Drain,
    /// From a day before only those start there that end in time.
    Fit,
}

impl BeforeReservation {
    pub const ALL: [Self; 2] = [Self::Drain, Self::Fit];

    pub fn word(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Fit => "fit",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|before| before.word() == word)
    }
}

/// How much is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationAmount {
    /// Whole devices: a multiple of one.
    pub gpu: GpuShare,
    pub cpu: CpuShare,
    pub memory: Bytes,
}

impl ReservationAmount {
    fn plus(self, other: Self) -> Self {
        Self {
            gpu: GpuShare(self.gpu.0.saturating_add(other.gpu.0)),
            cpu: CpuShare(self.cpu.0.saturating_add(other.cpu.0)),
            memory: Bytes(self.memory.0.saturating_add(other.memory.0)),
        }
    }

    fn less(self, other: Self) -> Self {
        Self {
            gpu: self.gpu.saturating_sub(other.gpu),
            cpu: self.cpu.saturating_sub(other.cpu),
            memory: self.memory.saturating_sub(other.memory),
        }
    }

    /// `gpu=2 cpu=4 memory=8 GiB`, for events.
    pub fn told(self) -> String {
        format!("gpu={} cpu={} memory={}", self.gpu, self.cpu, self.memory)
    }

    /// True where all of it is there in so much.
    pub fn fits(self, room: Self) -> bool {
        self.gpu <= room.gpu && self.cpu <= room.cpu && self.memory <= room.memory
    }
}

/// What is kept of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedPart {
    pub node: crate::names::NodeId,
    /// By their own names.
    pub devices: Vec<String>,
    pub cpu: CpuShare,
    pub memory: Bytes,
}

/// One time of a reservation: a weekly one has as many as it repeats.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationTime {
    pub id: ReservationId,
    /// From 1, in the order of time.
    pub number: u32,
    pub holder: ReservationHolder,
    pub amount: ReservationAmount,
    pub from: Timestamp,
    pub to: Timestamp,
    pub before: BeforeReservation,
    pub state: ReservationState,
    /// What was chosen; empty before.
    pub parts: Vec<ReservedPart>,
    /// When owners of sessions there were warned.
    pub warned_at: Option<Timestamp>,
    /// Who was told then that they make way for its cores and memory: nobody else is stopped for those.
    #[serde(default)]
    pub told: Vec<SessionId>,
    /// Since when it is active and no member has a session there.
    pub unused_since: Option<Timestamp>,
}

impl ReservationTime {
    /// Seconds before its begin from which on its devices are chosen.
    pub fn ahead(&self) -> u64 {
        match self.before {
            BeforeReservation::Drain => WARNING_SECONDS,
            BeforeReservation::Fit => FIT_SECONDS,
        }
    }

    /// True where its devices are to be chosen by now, and again where one can no longer be had.
    pub fn chooses(&self, now: Timestamp) -> bool {
        self.state.counts() && now < self.to && now.plus_seconds(self.ahead()) >= self.from
    }

    /// True where that session is a member's while it lasts: it starts before the queue on what is kept.
    pub fn leads(&self, session: &Session) -> bool {
        self.state == ReservationState::Active && self.holder.admits(session)
    }

    /// True where that session may start on what is kept: a member's, or one that ends before it begins. Only those
    /// that it `leads` pass the queue.
    pub fn lets_in(&self, session: &Session, now: Timestamp) -> bool {
        let ends_before = || {
            let limit = session.spec.limit();
            let ends = |seconds: u64| now.plus_seconds(seconds.saturating_add(START_SECONDS));
            limit.is_some_and(|(seconds, _)| ends(seconds) <= self.from)
        };
        self.holder.admits(session) || (self.state != ReservationState::Active && ends_before())
    }

    /// Takes one step forward, as far as the time says, and gives the new state; None where it stays. A step is
    /// never skipped, so that a server that was away warns before it stops anybody, and once. One whose devices could not be
    /// chosen yet is not warned of. `in_use`: a member has a
    /// session on what is kept.
    pub fn advance(&mut self, in_use: bool, now: Timestamp) -> Option<ReservationState> {
        if self.state == ReservationState::Active {
            match in_use {
                true => self.unused_since = None,
                false => {
                    self.unused_since.get_or_insert(now);
                }
            }
        }
        let unused = self
            .unused_since
            .is_some_and(|since| now.seconds_since(since) >= UNUSED_SECONDS);
        // Owners who are warned late, by a server that was away, have 15 minutes too.
        let is_warned = self
            .warned_at
            .is_none_or(|at| at.plus_seconds(WARNING_SECONDS) <= now);
        let next = match self.state {
            ReservationState::Asked if now >= self.from => ReservationState::Expired,
            ReservationState::Booked | ReservationState::Warned | ReservationState::Active
                if now >= self.to =>
            {
                ReservationState::Over
            }
            ReservationState::Booked
                if !self.parts.is_empty() && now.plus_seconds(WARNING_SECONDS) >= self.from =>
            {
                ReservationState::Warned
            }
            ReservationState::Warned if now >= self.from && is_warned => ReservationState::Active,
            ReservationState::Active if unused && self.holder != ReservationHolder::Maintenance => {
                ReservationState::Released
            }
            _ => return None,
        };
        self.state = next;
        if next == ReservationState::Warned {
            self.warned_at = Some(now);
        }
        if !next.counts() {
            self.parts.clear();
            self.told.clear();
        }
        Some(next)
    }
}

/// The times of a booking that repeats weekly at the same time of day, also where the clocks change between.
///
/// `from` and `to` are local in that zone, such as `2026-11-30T09:00`, or have `Z` or an offset: then the weeks after the
/// first keep their time of day in that zone. Errors: `reservation.time-invalid`,
/// `reservation.no-such-time` (clocks are put forward over it), `reservation.end-first`, `reservation.too-long`,
/// `reservation.repeats`.
pub fn times(
    from: &str,
    to: &str,
    zone: &jiff::tz::TimeZone,
    repeats: u32,
) -> Result<Vec<(Timestamp, Timestamp)>, Refusal> {
    if !(1..=MAX_REPEATS).contains(&repeats) {
        return Err(refusals::reservation_repeats(MAX_REPEATS).at("/repeats"));
    }
    let (from, to) = (
        TypedTime::read(from, zone, "/from")?,
        TypedTime::read(to, zone, "/to")?,
    );
    let mut all = Vec::new();
    for week in 0..i64::from(repeats) {
        let from = from.instant(week, zone, "/from")?;
        let to = to.instant(week, zone, "/to")?;
        if to <= from {
            return Err(refusals::reservation_end_first().at("/to"));
        }
        if to.seconds_since(from) > MAX_LENGTH_SECONDS {
            let days = MAX_LENGTH_SECONDS / 86_400;
            return Err(refusals::reservation_too_long(days).at("/to"));
        }
        all.push((from, to));
    }
    Ok(all)
}

/// One moment as it was typed: local in that zone, or with `Z` or an offset.
///
/// Errors: `reservation.time-invalid`, `reservation.no-such-time`, at the field.
pub fn moment(
    typed: &str,
    zone: &jiff::tz::TimeZone,
    field: &'static str,
) -> Result<Timestamp, Refusal> {
    TypedTime::read(typed, zone, field)?.instant(0, zone, field)
}

/// The zone could move the year 0 to where RFC 3339 has no year.
const FIRST_YEAR: i16 = 1970;

/// A time as it was typed.
struct TypedTime {
    local: jiff::civil::DateTime,
    /// The moment itself, where it was typed with its offset.
    exact: Option<Timestamp>,
}

impl TypedTime {
    fn read(text: &str, zone: &jiff::tz::TimeZone, field: &'static str) -> Result<Self, Refusal> {
        let text = text.trim();
        let read = Self::parse(text, zone).filter(|time| time.local.year() >= FIRST_YEAR);
        read.ok_or_else(|| refusals::reservation_time_invalid(quoted(text)).at(field))
    }

    fn parse(text: &str, zone: &jiff::tz::TimeZone) -> Option<Self> {
        // First: a reader of local times passes over an offset.
        if let Ok(exact) = text.parse::<jiff::Timestamp>() {
            return Some(Self {
                local: exact.to_zoned(zone.clone()).datetime(),
                exact: Some(Timestamp::from_millis(exact.as_millisecond())),
            });
        }
        let local = text.parse().ok()?;
        Some(Self { local, exact: None })
    }

    /// The moment so many weeks later.
    fn instant(
        &self,
        week: i64,
        zone: &jiff::tz::TimeZone,
        field: &'static str,
    ) -> Result<Timestamp, Refusal> {
        if let (0, Some(exact)) = (week, self.exact) {
            return Ok(exact);
        }
        let at = self.local;
        let invalid = || refusals::reservation_time_invalid(quoted(&at.to_string())).at(field);
        let days = jiff::Span::new().days(week * WEEK_DAYS);
        let at_week = at.checked_add(days).map_err(|_| invalid())?;
        let moment = zone.to_ambiguous_zoned(at_week);
        if matches!(moment.offset(), jiff::tz::AmbiguousOffset::Gap { .. }) {
            let told = at_week.to_string();
            return Err(refusals::reservation_no_such_time(quoted(&told)).at(field));
        }
        // Of a time that comes twice the first is meant.
        let moment = moment.compatible().map_err(|_| invalid())?;
        Ok(Timestamp::from_millis(moment.timestamp().as_millisecond()))
    }
}

/// Refuses what cannot be booked: never more at any instant than there is, less what is failing.
///
/// `times` are in order; `room` is what there is. Errors: `reservation.empty`, `reservation.whole-gpus`,
/// `reservation.past`, `reservation.ahead`, `reservation.over-itself`, `reservation.too-large`, and
/// `reservation.conflict` with the nearest later begin at which all times are free. Costs sorting the
/// bookings, and for each of a hundred begins one visit a booking that it meets.
pub fn check(
    amount: ReservationAmount,
    times: &[(Timestamp, Timestamp)],
    booked: &[ReservationTime],
    room: ReservationAmount,
    now: Timestamp,
) -> Result<(), Refusal> {
    if amount == ReservationAmount::default() {
        return Err(refusals::reservation_empty().at("/resources"));
    }
    if !amount.gpu.0.is_multiple_of(100) {
        return Err(refusals::reservation_whole_gpus().at("/resources/gpu"));
    }
    let (Some((first, _)), Some((_, last))) = (times.first(), times.last()) else {
        return Err(refusals::reservation_repeats(MAX_REPEATS).at("/repeats"));
    };
    if *first < now {
        return Err(refusals::reservation_past().at("/from"));
    }
    if last.seconds_since(now) > MAX_AHEAD_SECONDS {
        let days = MAX_AHEAD_SECONDS / 86_400;
        return Err(refusals::reservation_ahead(days).at("/to"));
    }
    if times.windows(2).any(|pair| pair[1].0 < pair[0].1) {
        return Err(refusals::reservation_over_itself().at("/repeats"));
    }
    if !amount.fits(room) {
        return Err(refusals::reservation_too_large().at("/resources"));
    }
    let calendar = Calendar::new(booked);
    if calendar.is_free(amount, times, 0, room) {
        return Ok(());
    }
    Err(match nearest(amount, times, &calendar, room) {
        Some(free) => refusals::reservation_conflict(free).at("/from"),
        None => refusals::reservation_conflict_always().at("/from"),
    })
}

/// Whether there is room at every moment for all that is booked. Costs sorting the begins and ends.
pub fn is_covered(booked: &[ReservationTime], room: ReservationAmount) -> bool {
    let steps = Calendar::new(booked).steps;
    steps.iter().all(|(_, amount)| amount.fits(room))
}

/// What is booked from each moment on at which that changes, in the order of time.
struct Calendar {
    steps: Vec<(Timestamp, ReservationAmount)>,
}

impl Calendar {
    /// Costs sorting the begins and ends.
    fn new(booked: &[ReservationTime]) -> Self {
        let live = booked.iter().filter(|one| one.state.counts());
        let mut edges: Vec<(Timestamp, bool, ReservationAmount)> = live
            .flat_map(|one| [(one.from, true, one.amount), (one.to, false, one.amount)])
            .collect();
        // What ends at a moment is free before what begins then.
        edges.sort_by_key(|(at, begins, _)| (*at, *begins));
        let mut now = ReservationAmount::default();
        let mut steps: Vec<(Timestamp, ReservationAmount)> = Vec::new();
        for (at, begins, amount) in edges {
            now = match begins {
                true => now.plus(amount),
                false => now.less(amount),
            };
            match steps.last_mut() {
                Some((last, sum)) if *last == at => *sum = now,
                _ => steps.push((at, now)),
            }
        }
        Self { steps }
    }

    /// The most that is booked at one instant of a span. Costs one visit a change within it.
    fn most(&self, from: Timestamp, to: Timestamp) -> ReservationAmount {
        let within = self.steps.partition_point(|(at, _)| *at <= from);
        let before = within.checked_sub(1).map(|at| self.steps[at].1);
        let mut most = before.unwrap_or_default();
        for (at, sum) in &self.steps[within..] {
            if *at >= to {
                break;
            }
            most = ReservationAmount {
                gpu: most.gpu.max(sum.gpu),
                cpu: most.cpu.max(sum.cpu),
                memory: most.memory.max(sum.memory),
            };
        }
        most
    }

    fn is_free(
        &self,
        amount: ReservationAmount,
        times: &[(Timestamp, Timestamp)],
        later: u64,
        room: ReservationAmount,
    ) -> bool {
        times.iter().all(|(from, to)| {
            let (from, to) = (put_off(*from, later), put_off(*to, later));
            self.most(from, to).plus(amount).fits(room)
        })
    }
}

/// Begins that are tried for the nearest free one: a calendar in which more are taken says that it knows none.
const TRIED: usize = 100;

/// The first later begin at which all times are free: where nothing ends, nothing becomes free.
fn nearest(
    amount: ReservationAmount,
    times: &[(Timestamp, Timestamp)],
    calendar: &Calendar,
    room: ReservationAmount,
) -> Option<Timestamp> {
    let mut later: Vec<u64> = calendar
        .steps
        .iter()
        .flat_map(|(end, _)| {
            let begins = times.iter().map(|(from, _)| *from);
            begins
                .filter(move |from| from < end)
                .map(move |from| end.millis_since(from))
        })
        .collect();
    later.sort_unstable();
    later.dedup();
    let mut tried = later.into_iter().take(TRIED);
    let free = tried.find(|later| calendar.is_free(amount, times, *later, room))?;
    times.first().map(|(from, _)| put_off(*from, free))
}

fn put_off(at: Timestamp, millis: u64) -> Timestamp {
    let millis = i64::try_from(millis).unwrap_or(i64::MAX);
    Timestamp::from_millis(at.as_millis().saturating_add(millis))
}

#[cfg(test)]
mod tests;
