//! What a user may do with days off: administrators of the site write those of the site and of domains, administrators of a
//! domain those of their own; every user reads those of the site and of their domain.

use api::holidays::{HolidayCalendarView, HolidayView, HolidaysBody};
use rules::holiday::{self, Holidays};
use rules::permissions::{Permission, Subject, may};
use rules::refusal::Refusal;
use rules::refusals;
use rules::tenancy::{Domain, DomainId, Scope};

use super::allowed;
use super::tenancy::find_domain;
use crate::access::Caller;
use crate::catalog::events::NewEvent;
use crate::catalog::holidays::HolidayCalendar;
use crate::catalog::{Lane, ReadTransaction};
use crate::{Failure, Server};

/// The calendar of the site, then those of the domains that the caller reaches, by name; none of a domain while the site has
/// one. O(domains).
///
/// Errors: `denied` without `me`.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<HolidayCalendarView>, Failure> {
    allowed(caller, Permission::Me)?;
    let subject = &caller.subject;
    server.catalog().read_now("list holidays", |view| {
        let mut all = vec![show(subject, None, &view.holidays(None)?)];
        let domains = view.domains()?;
        if domains.len() > 1 {
            let reached = domains.iter().filter(|one| subject.reaches(one.id));
            for domain in reached {
                let calendar = view.holidays(Some(domain.id))?;
                all.push(show(subject, Some(domain), &calendar));
            }
        }
        Ok(all)
    })
}

/// Gives a calendar exactly the days of a list. Windows of resource groups follow at once; reservations that are booked stay.
///
/// Errors: `holiday.list-too-large`, `holiday.row-invalid`, `holiday.too-many`, `holiday.stale`, `domain.not-found`,
/// `role.administrator-needed`. Nothing is half-applied: one wrong line refuses the list.
pub async fn set(
    server: &Server,
    caller: &Caller,
    wanted: HolidaysBody,
    if_match: Option<u64>,
) -> Result<HolidayCalendarView, Failure> {
    allowed(caller, Permission::Me)?;
    let named = wanted.domain.as_deref().map(str::trim);
    let named = named.filter(|name| !name.is_empty()).map(str::to_owned);
    if named.is_none() {
        may_change(&caller.subject, None)?;
    }
    let days = holiday::read_list(&wanted.list)?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "set holidays", move |rows| {
            let subject = &caller.subject;
            let domain = named
                .map(|name| {
                    find_domain(rows, subject, &name).map_err(|failure| failure.at("/domain"))
                })
                .transpose()?;
            let id = domain.as_ref().map(|domain| domain.id);
            may_change(subject, id)?;
            let before = rows.holidays(id)?;
            if if_match.is_some_and(|seen| seen != before.generation) {
                return Err(refusals::holiday_stale(before.generation).into());
            }
            if days == before.days {
                return Ok(show(subject, domain.as_ref(), &before));
            }
            rows.put_holidays(id, &days)?;
            let after = HolidayCalendar {
                days,
                generation: before.generation + 1,
            };
            rows.note(NewEvent {
                actor: caller.name.as_str(),
                topic: "system",
                object: domain
                    .as_ref()
                    .map_or("site", |domain| domain.name.as_str()),
                scope: id.map_or(Scope::SITE, Scope::domain),
                code: "holiday.changed",
                before: &counted(&before.days),
                after: &counted(&after.days),
            })?;
            Ok(show(subject, domain.as_ref(), &after))
        })
        .await
}

/// Days off of the site and of a domain together.
pub(super) fn both(
    view: &ReadTransaction<'_>,
    domain: Option<DomainId>,
) -> Result<Holidays, Failure> {
    let mut days = view.holidays(None)?.days;
    if domain.is_some() {
        days.extend(view.holidays(domain)?.days);
    }
    Ok(days)
}

/// Days off of the site and of the caller's own domain together, for a page that shows a week.
///
/// Errors: `denied` without `me`.
pub async fn own(server: &Server, caller: &Caller) -> Result<Holidays, Failure> {
    allowed(caller, Permission::Me)?;
    let domain = Some(caller.subject.domain);
    let read = |view: &ReadTransaction<'_>| both(view, domain);
    server.catalog().read_now("read holidays", read)
}

fn may_change(subject: &Subject, domain: Option<DomainId>) -> Result<(), Refusal> {
    match domain {
        None => may(subject, Permission::SystemWrite, &Scope::SITE),
        Some(domain) => may(subject, Permission::UsersWrite, &Scope::domain(domain)),
    }
}

fn show(
    subject: &Subject,
    domain: Option<&Domain>,
    calendar: &HolidayCalendar,
) -> HolidayCalendarView {
    let day = |(day, name): (&holiday::CalendarDay, &String)| HolidayView {
        day: day.to_string(),
        name: name.clone(),
    };
    HolidayCalendarView {
        domain: domain.map(|domain| domain.name.to_string()),
        days: calendar.days.iter().map(day).collect(),
        may_change: may_change(subject, domain.map(|domain| domain.id)).is_ok(),
        generation: calendar.generation,
    }
}

/// `12 2026-01-01/2026-12-25`: how many, the first and the last; for events.
fn counted(days: &Holidays) -> String {
    match (days.first_key_value(), days.last_key_value()) {
        (Some((first, _)), Some((last, _))) => format!("{} {first}/{last}", days.len()),
        _ => "0".to_owned(),
    }
}

#[cfg(test)]
mod tests;
