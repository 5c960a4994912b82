//! What users, projects and domains used over a time, from the ledger: of those whose sessions the caller may see.

use std::collections::BTreeMap;

use api::usage::{Usage, UsageDay, UsageGrouping, UsageItem};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use rules::metering::{self, UsageSum};
use rules::names::UserId;
use rules::permissions::{Permission, reach};
use rules::refusal::Refusal;
use rules::refusals;
use rules::tenancy::Scope;
use rules::units::Timestamp;
use rules::users::User;

use super::allowed;
use crate::access::Caller;
use crate::catalog::ledger::{LedgerSum, UsageWindow};
use crate::{Failure, Server, ServerFault};

/// Days that one answer covers. Higher: an answer reads more rows of the ledger than a page waits for.
const MAX_DAYS: u64 = 400;
const DAY_MILLIS: u64 = 86_400_000;
/// Users of an answer whose GPU time is compared with what was measured, those who held most. Higher: one answer reads more
/// hours of the history. Lower: a large site does not see who leaves GPUs idle.
const MAX_MEASURED: usize = 100;

/// Which time is asked for, as typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageTime {
    /// `2026-11`, by the caller's time zone; empty: the present month, or the time between the next two.
    pub month: String,
    /// RFC 3339, or a date by the caller's time zone; counted from the beginning of its hour.
    pub from: String,
    /// The end, which is left out; empty: the present.
    pub until: String,
}

/// A month by a time zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsageMonth(Date);

impl UsageMonth {
    /// The month that a moment is in.
    pub fn of(at: Timestamp, zone: &str) -> Self {
        Self(zoned(at, zone).date().first_of_month())
    }

    /// Reads `2026-11`; None for anything else, and beyond the years 1970 to 9998.
    pub fn parse(text: &str) -> Option<Self> {
        let (year, month) = text.split_once('-')?;
        let well = year.len() == 4 && month.len() == 2;
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if !well || !digits(year) || !digits(month) {
            return None;
        }
        let year: i16 = year.parse().ok()?;
        let date = Date::new(year, month.parse().ok()?, 1).ok()?;
        (1970..9999).contains(&year).then_some(Self(date))
    }

    #[must_use]
    pub fn previous(self) -> Self {
        let last = self.0.yesterday().unwrap_or(self.0);
        Self(last.first_of_month())
    }

    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.last_of_month().tomorrow().unwrap_or(self.0))
    }

    /// The moment in which it begins.
    pub(super) fn begins(self, zone: &str) -> Timestamp {
        begins(self.0, zone)
    }
}

impl std::fmt::Display for UsageMonth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}", self.0.year(), self.0.month())
    }
}

/// The moment in which the week begins that is so many weeks before the present one: Monday, by a time zone.
pub(super) fn week_begins(now: Timestamp, zone: &str, weeks_back: i64) -> Timestamp {
    let today = zoned(now, zone).date();
    let days = i64::from(today.weekday().to_monday_zero_offset()) + 7 * weeks_back;
    let monday = today.checked_sub(jiff::Span::new().days(days));
    begins(monday.unwrap_or(today), zone)
}

/// The name of a zone as its database writes it; None for what is none.
pub(super) fn known_zone(zone: &str) -> Option<String> {
    let found = TimeZone::get(zone).ok().filter(|_| !zone.is_empty())?;
    Some(found.iana_name().unwrap_or(zone).to_owned())
}

fn place(zone: &str) -> TimeZone {
    TimeZone::get(zone).unwrap_or(TimeZone::UTC)
}

fn zoned(at: Timestamp, zone: &str) -> jiff::Zoned {
    let at = jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or_default();
    at.to_zoned(place(zone))
}

fn begins(day: Date, zone: &str) -> Timestamp {
    let at = day.to_zoned(place(zone)).map(|at| at.timestamp());
    Timestamp::from_millis(at.map_or(0, |at| at.as_millisecond()))
}

/// What was used in a time, summed as asked; sessions that run now count up to some minutes ago.
///
/// Errors: `usage.month-invalid`, `usage.time-invalid`, `usage.too-long`, at their fields.
pub async fn usage(
    server: &Server,
    caller: &Caller,
    asked: &UsageTime,
    by: UsageGrouping,
) -> Result<Usage, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let now = server.clock().now();
    let (from, until) = window(asked, &caller.time_zone, now)?;
    let hours = UsageWindow {
        from: metering::hour_of(from),
        until: metering::hour_of(Timestamp::from_millis(until.as_millis() - 1)) + 1,
    };
    let reach = reach(&caller.subject, Permission::SessionsRead).or_own(&caller.subject);
    let (rows, hourly) = server
        .catalog()
        .read("sum up usage", move |view| {
            Ok((
                view.usage(&reach, hours)?,
                view.usage_by_hour(&reach, hours)?,
            ))
        })
        .await?;
    let busy = match by {
        UsageGrouping::User => busy(server, caller, &rows, hours).await?,
        UsageGrouping::Project | UsageGrouping::Domain | UsageGrouping::Member => BTreeMap::new(),
    };
    let total = rows
        .iter()
        .fold(UsageSum::default(), |sum, row| sum.plus(row.sum));
    Ok(Usage {
        from,
        until: until.min(now.max(from)),
        by,
        total: total.into(),
        items: grouped(rows, by, &busy),
        days: by_day(&hourly, &caller.time_zone),
    })
}

/// The time that is meant: a month, or from one time until another.
pub(super) fn window(
    asked: &UsageTime,
    zone: &str,
    now: Timestamp,
) -> Result<(Timestamp, Timestamp), Refusal> {
    if asked.from.is_empty() && asked.until.is_empty() {
        let month = match asked.month.as_str() {
            "" => UsageMonth::of(now, zone),
            text => UsageMonth::parse(text)
                .ok_or_else(|| refusals::usage_month_invalid().at("/month"))?,
        };
        return Ok((month.begins(zone), month.next().begins(zone)));
    }
    let read = |text: &str, field: &str| {
        let day = || text.parse::<Date>().ok().map(|day| begins(day, zone));
        Timestamp::parse(text)
            .ok()
            .or_else(day)
            .ok_or_else(|| refusals::usage_time_invalid().at(field))
    };
    let from = read(&asked.from, "/from")?;
    let until = match asked.until.as_str() {
        "" => now,
        text => read(text, "/until")?,
    };
    if until <= from {
        return Err(refusals::usage_time_invalid().at("/until"));
    }
    if until.millis_since(from) > MAX_DAYS * DAY_MILLIS {
        return Err(refusals::usage_too_long(MAX_DAYS).at("/from"));
    }
    Ok((from, until))
}

/// Which part of their GPU time was busy, by the names of the users: of those all of whose sessions the caller may see, as far as
/// hours of the history tell it. O(hours) for each of at most 100 users.
async fn busy(
    server: &Server,
    caller: &Caller,
    rows: &[LedgerSum],
    hours: UsageWindow,
) -> Result<BTreeMap<String, f64>, Failure> {
    let mut held: BTreeMap<UserId, u64> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.sum.gpu > 0) {
        *held.entry(row.owner).or_default() += row.sum.gpu;
    }
    let mut most: Vec<(u64, UserId)> = held.into_iter().map(|(user, gpu)| (gpu, user)).collect();
    if most.is_empty() {
        return Ok(BTreeMap::new());
    }
    most.sort_unstable_by(|one, other| other.cmp(one));
    most.truncate(MAX_MEASURED);
    let reach = reach(&caller.subject, Permission::SessionsRead).or_own(&caller.subject);
    let own = caller.subject.user;
    let users = server
        .catalog()
        .read("show who used", move |view| {
            let mut users = Vec::new();
            for (_, id) in most {
                let seen = view
                    .user(id)?
                    .filter(|user| id == own || reach.covers(&at_home(user)));
                users.extend(seen.map(|user| (id, user.name.to_string())));
            }
            Ok(users)
        })
        .await?;
    let catalog = server.catalog().clone();
    let seconds = (hours.from * 3_600, hours.until * 3_600);
    let read = tokio::task::spawn_blocking(move || {
        let samples = catalog.samples();
        let mut parts = BTreeMap::new();
        for (id, name) in users {
            if let Some((held, busy)) = samples.busy_of_user(id, seconds)?
                && held > 0.0
            {
                parts.insert(name, (busy / held).clamp(0.0, 1.0));
            }
        }
        Ok::<_, Failure>(parts)
    });
    read.await
        .map_err(|ended| ServerFault::new("read the history", ended))?
}

/// All that a user did, in whichever project: theirs, and their domain's.
pub(super) fn at_home(user: &User) -> Scope {
    Scope {
        domain: Some(user.domain),
        ..Scope::user(user.id)
    }
}

fn grouped(
    rows: Vec<LedgerSum>,
    by: UsageGrouping,
    busy: &BTreeMap<String, f64>,
) -> Vec<UsageItem> {
    let mut sums: BTreeMap<(String, String, String), UsageSum> = BTreeMap::new();
    for row in rows {
        let key = match by {
            UsageGrouping::User => (String::new(), String::new(), row.user),
            UsageGrouping::Project => (row.domain, row.project, String::new()),
            UsageGrouping::Domain => (row.domain, String::new(), String::new()),
            UsageGrouping::Member => (row.domain, row.project, row.user),
        };
        let sum = sums.entry(key).or_default();
        *sum = sum.plus(row.sum);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse((sum.gpu, sum.cpu)));
    sums.into_iter()
        .map(|((domain, project, user), sum)| UsageItem {
            gpu_busy: busy.get(&user).copied(),
            domain,
            project,
            user,
            used: sum.into(),
        })
        .collect()
}

fn by_day(hourly: &[(i64, UsageSum)], zone: &str) -> Vec<UsageDay> {
    let mut days: BTreeMap<Date, UsageSum> = BTreeMap::new();
    for (hour, sum) in hourly {
        let at = Timestamp::from_millis(hour.saturating_mul(3_600_000));
        let day = days.entry(zoned(at, zone).date()).or_default();
        *day = day.plus(*sum);
    }
    days.into_iter()
        .map(|(day, sum)| UsageDay {
            day: day.to_string(),
            used: sum.into(),
        })
        .collect()
}

#[cfg(test)]
mod tests;
