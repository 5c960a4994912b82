//! What a user may do with reservations: administrators of the site book them for projects, users and maintenance. Users
//! who see the project or user see its reservations.

use std::collections::BTreeMap;

use api::reservations::{
    NewReservationBody, ReservationPatchBody, ReservationTimeView, ReservationView,
};
use jiff::tz::TimeZone;
use rules::names::{ReservationId, TenantName};
use rules::object::Object;
use rules::permissions::{Permission, may, reach};
use rules::placement::reservable;
use rules::refusal::Refusal;
use rules::refusals;
use rules::reservation::{
    BeforeReservation, ReservationAmount, ReservationHolder, ReservationState, ReservationTime,
    check, times,
};
use rules::tenancy::{DomainId, Scope};
use rules::units::Timestamp;

use super::accounts::find as find_user;
use super::tenancy::find_project;
use super::{IdempotencyKey, Once, allowed, once, own_key, somewhere};
use crate::access::Caller;
use crate::catalog::events::NewEvent;
use crate::catalog::reservations::ReservationRecord;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

/// Times to come of all reservations. Higher: each pass of the controller reads them all. Lower: a site with many
/// courses cannot book a term.
const MAX_RESERVED_TIMES: usize = 2_000;
/// Reservations that are remembered once nothing is left of them. Higher: whoever books and cancels in a loop fills the
/// catalog with more. Lower: the list forgets sooner what was.
const MAX_ENDED: usize = 500;

/// The reservations of whatever the caller reaches, and those for maintenance: those that are now or to come first, by
/// their begin.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<ReservationView>, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    server.catalog().read_now("list reservations", |view| {
        let mut all: Vec<ReservationView> = seen(view, caller)?.iter().filter_map(show).collect();
        all.sort_by_key(|one| (!one.state.counts(), one.from, one.id));
        Ok(all)
    })
}

/// One of `list`, by id or name. Errors: `reservation.not-found`, `reservation.ambiguous`.
pub async fn get(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<ReservationView, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    server.catalog().read_now("show a reservation", |view| {
        let found = find(view, caller, which)?;
        shown(&found)
    })
}

/// True for those who may book.
pub fn may_write(caller: &Caller) -> bool {
    may_change(caller).is_ok()
}

/// Books a reservation for a project, a user or maintenance.
///
/// Errors: `reservation.name-invalid`, `reservation.name-taken`, `reservation.holder`, `reservation.too-many`; those of
/// its times and of `rules::reservation::check`, above all `reservation.conflict`; `project.not-found`,
/// `user.not-found`, `role.administrator-needed`, `role.permission-missing`.
pub async fn book(
    server: &Server,
    caller: &Caller,
    asked: NewReservationBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<ReservationView>, Failure> {
    may_change(caller)?;
    let key = own_key(caller, key)?;
    let name = name_of(&asked.name)?;
    let zone = zone_of(caller, asked.time_zone.as_deref())?;
    let spans = times(&asked.from, &asked.to, &zone, asked.repeats.unwrap_or(1))?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "book a reservation", move |rows| {
            once(rows, key.as_ref(), || {
                let (holder, domain) = holder_of(rows, &caller, &asked)?;
                let record = ReservationRecord {
                    id: ReservationId::make(rows.now, base::observe::random()),
                    name,
                    holder,
                    domain,
                    amount: asked.resources.into(),
                    before: asked.before.unwrap_or(BeforeReservation::Drain),
                    time_zone: name_of_zone(&zone),
                    generation: 1,
                    domain_name: None,
                    project_name: None,
                    user_name: None,
                    times: Vec::new(),
                };
                refuse_taken(rows, &record)?;
                refuse_occupied(rows, &record, &spans)?;
                rows.insert_reservation(&record)?;
                rows.put_reservation_times(record.id, &spans)?;
                rows.forget_ended_reservations(MAX_ENDED)?;
                let after = told(record.amount, &spans);
                note(rows, &caller, &record, "reservation.booked", "", &after)?;
                again(rows, record.id)
            })
        })
        .await
}

/// Changes a reservation from its next time on; its holder stays, and so does a week that was warned of.
///
/// Errors: as `book`; `reservation.not-found`, `reservation.ambiguous`, `reservation.stale`; `reservation.begun` for
/// another amount while one of its times is warned of or active, and for another time where none is left that is not.
pub async fn change(
    server: &Server,
    caller: &Caller,
    which: &str,
    patch: ReservationPatchBody,
    if_match: Option<u64>,
) -> Result<ReservationView, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let name = patch.name.as_deref().map(name_of).transpose()?;
    let named = match patch.time_zone {
        Some(_) => Some(zone_of(caller, patch.time_zone.as_deref())?),
        None => None,
    };
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "change a reservation", move |rows| {
            let before = find_to_change(rows, &caller, &which)?;
            if if_match.is_some_and(|seen| seen != before.generation) {
                let refusal = refusals::reservation_stale(&before.name, before.generation);
                return Err(refusal.into());
            }
            let is_booked = |time: &&ReservationTime| time.state == ReservationState::Booked;
            let open = before.times.iter().filter(is_booked);
            let was: Vec<(Timestamp, Timestamp)> = open.map(|time| (time.from, time.to)).collect();
            let own = TimeZone::get(&before.time_zone).unwrap_or(TimeZone::UTC);
            let zone = named.unwrap_or(own);
            let begun = || refusals::reservation_begun(&before.name);
            let spans = changed_spans(&patch, &was, &zone, &before.time_zone, begun)?;
            let amount: ReservationAmount = match patch.resources {
                Some(Object(resources)) => resources.into(),
                None => before.amount,
            };
            let after = ReservationRecord {
                name: name.unwrap_or_else(|| before.name.clone()),
                amount,
                before: patch.before.unwrap_or(before.before),
                time_zone: name_of_zone(&zone),
                ..before.clone()
            };
            if after == before && spans == was {
                return shown(&before);
            }
            refuse_taken(rows, &after)?;
            let other = after.amount != before.amount || after.before != before.before;
            let is_now = |time: &ReservationTime| {
                time.state.counts() && time.state != ReservationState::Booked
            };
            if other && (was.is_empty() || before.times.iter().any(is_now)) {
                return Err(begun().into());
            }
            let moves = other || spans != was;
            if moves {
                refuse_occupied(rows, &after, &spans)?;
            }
            rows.put_reservation(&after)?;
            if moves {
                rows.put_reservation_times(after.id, &spans)?;
                let begins = was.iter().enumerate();
                let moved: BTreeMap<Timestamp, Option<Timestamp>> = begins
                    .map(|(at, (from, _))| (*from, spans.get(at).map(|to| to.0)))
                    .collect();
                follow(rows, &caller, &before, &moved)?;
            }
            let (old, new) = match moves {
                true => (told(before.amount, &was), told(after.amount, &spans)),
                false => (before.name.to_string(), after.name.to_string()),
            };
            note(rows, &caller, &after, "reservation.changed", &old, &new)?;
            again(rows, after.id)
        })
        .await
}

/// Cancels what is left of a reservation: the next pass of the controller gives its devices to waiting sessions. Nothing
/// changes where nothing is left.
///
/// Errors: `reservation.not-found`, `reservation.ambiguous`, `role.administrator-needed`, `role.permission-missing`.
pub async fn cancel(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "cancel a reservation", move |rows| {
            let found = find_to_change(rows, &caller, &which)?;
            if rows.cancel_reservation(found.id)? == 0 {
                return Ok(());
            }
            let open = found.times.iter().filter(|time| time.state.counts());
            let gone: BTreeMap<Timestamp, Option<Timestamp>> =
                open.map(|time| (time.from, None)).collect();
            follow(rows, &caller, &found, &gone)?;
            rows.forget_ended_reservations(MAX_ENDED)?;
            let before = told(found.amount, &spans_of(&found.times));
            note(rows, &caller, &found, "reservation.cancelled", &before, "")
        })
        .await
}

/// Gives sessions that wait for a begin of a reservation the begin that it has now, or none: then they wait for room
/// alone. `moved`: from each begin that it had to that of the same week.
fn follow(
    rows: &Rows<'_>,
    caller: &Caller,
    record: &ReservationRecord,
    moved: &BTreeMap<Timestamp, Option<Timestamp>>,
) -> Result<(), Failure> {
    for (id, at) in rows.waiting_for_start(record.holder)? {
        let Some(to) = moved.get(&at).filter(|to| **to != Some(at)) else {
            continue;
        };
        rows.change_session(id, None, caller.name.as_str(), None, |session| {
            let label = session.remarks.labels.get("reservation");
            let is_ours = label.is_some_and(|name| name == record.name.as_str());
            if is_ours {
                session.spec.start_at = *to;
            }
            is_ours
        })?;
    }
    Ok(())
}

/// The reservation that a launch names, among those that the caller sees; one for maintenance only where no other has
/// the name.
///
/// Errors: `reservation.not-found`, `reservation.ambiguous`, `reservation.closed`.
pub(super) fn of_launch(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    which: &str,
) -> Result<(TenantName, ReservationTime), Failure> {
    let mut called = called(view, caller, which)?;
    if called.len() > 1 {
        called.retain(|one| one.holder != ReservationHolder::Maintenance);
    }
    let found = chosen(called, which)?;
    let time = found.current().filter(|time| time.state.counts());
    let time = time.ok_or_else(|| refusals::reservation_closed(&found.name))?;
    Ok((found.name.clone(), time.clone()))
}

fn seen(view: &ReadTransaction<'_>, caller: &Caller) -> Result<Vec<ReservationRecord>, Failure> {
    view.reservations(&reach(&caller.subject, Permission::ProjectsRead))
}

/// The reservation that is meant among those that the caller sees: by name one of which something is left, else the
/// newest.
fn find(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    which: &str,
) -> Result<ReservationRecord, Failure> {
    chosen(called(view, caller, which)?, which)
}

fn called(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    which: &str,
) -> Result<Vec<ReservationRecord>, Failure> {
    let reach = reach(&caller.subject, Permission::ProjectsRead);
    view.reservations_called(&reach, which)
}

fn chosen(found: Vec<ReservationRecord>, which: &str) -> Result<ReservationRecord, Failure> {
    let id = which.parse::<ReservationId>().ok();
    if let Some(one) = found.iter().find(|one| Some(one.id) == id) {
        return Ok(one.clone());
    }
    let is_open = |one: &ReservationRecord| one.times.iter().any(|time| time.state.counts());
    let (open, ended): (Vec<_>, Vec<_>) = found.into_iter().partition(is_open);
    let mut open = open.into_iter();
    match (open.next(), open.next()) {
        (Some(one), None) => Ok(one),
        (Some(one), Some(_)) => Err(refusals::reservation_ambiguous(&one.name).into()),
        (None, _) => {
            let newest = ended.into_iter().max_by_key(|one| one.id);
            Ok(newest.ok_or_else(refusals::reservation_not_found)?)
        }
    }
}

fn find_to_change(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    which: &str,
) -> Result<ReservationRecord, Failure> {
    let found = find(view, caller, which)?;
    may_change(caller)?;
    Ok(found)
}

/// Administrators of the site: a reservation goes before the queue and stops sessions of others, and no quota bounds it
/// yet.
fn may_change(caller: &Caller) -> Result<(), Refusal> {
    may(&caller.subject, Permission::ProjectsWrite, &Scope::SITE)
}

/// The holder of a new reservation, and its domain.
fn holder_of(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    asked: &NewReservationBody,
) -> Result<(ReservationHolder, Option<DomainId>), Failure> {
    fn named(typed: Option<&str>) -> Option<&str> {
        typed.map(str::trim).filter(|name| !name.is_empty())
    }
    let subject = &caller.subject;
    let (project, user) = (asked.project.as_deref(), asked.user.as_deref());
    match (named(project), named(user), asked.maintenance) {
        (Some(project), None, false) => {
            let found = find_project(view, subject, Permission::ProjectsRead, project);
            let found = found.map_err(|failure| failure.at("/project"))?;
            Ok((ReservationHolder::Project(found.id), Some(found.domain)))
        }
        (None, Some(user), false) => {
            let found = find_user(view, subject, Permission::UsersRead, user);
            let found = found.map_err(|failure| failure.at("/user"))?;
            Ok((ReservationHolder::User(found.id), Some(found.domain)))
        }
        (None, None, true) => Ok((ReservationHolder::Maintenance, None)),
        _ => Err(refusals::reservation_holder().at("/project").into()),
    }
}

fn name_of(typed: &str) -> Result<TenantName, Refusal> {
    TenantName::parse(typed.trim()).map_err(|_| refusals::reservation_name_invalid().at("/name"))
}

/// The zone in which times are typed: the named one, else the caller's.
fn zone_of(caller: &Caller, named: Option<&str>) -> Result<TimeZone, Refusal> {
    match named.map(str::trim).filter(|name| !name.is_empty()) {
        Some(name) => {
            TimeZone::get(name).map_err(|_| refusals::time_zone_unknown().at("/time_zone"))
        }
        None => Ok(TimeZone::get(&caller.time_zone).unwrap_or(TimeZone::UTC)),
    }
}

fn name_of_zone(zone: &TimeZone) -> String {
    zone.iana_name().unwrap_or("UTC").to_owned()
}

fn spans_of(times: &[ReservationTime]) -> Vec<(Timestamp, Timestamp)> {
    times.iter().map(|time| (time.from, time.to)).collect()
}

/// The times that a patch asks for, from the next one on; what it leaves out is as before. `own`: the zone until now.
/// Errors: `begun` where none is left to change, and those of `times`.
fn changed_spans(
    patch: &ReservationPatchBody,
    was: &[(Timestamp, Timestamp)],
    zone: &TimeZone,
    own: &str,
    begun: impl Fn() -> Refusal,
) -> Result<Vec<(Timestamp, Timestamp)>, Refusal> {
    let is_same = patch.from.is_none() && patch.to.is_none() && patch.repeats.is_none();
    if is_same && name_of_zone(zone) == own {
        return Ok(was.to_vec());
    }
    let (from, to) = was.first().ok_or_else(begun)?;
    let from = patch.from.clone().unwrap_or_else(|| written(*from, zone));
    let to = patch.to.clone().unwrap_or_else(|| written(*to, zone));
    let weeks = u32::try_from(was.len()).unwrap_or(u32::MAX);
    times(&from, &to, zone, patch.repeats.unwrap_or(weeks))
}

/// A moment as people type it in that zone.
fn written(at: Timestamp, zone: &TimeZone) -> String {
    let at = jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or_default();
    at.to_zoned(zone.clone()).datetime().to_string()
}

/// Refuses what cannot be booked beside the others, and more times than the site takes.
fn refuse_occupied(
    rows: &Rows<'_>,
    record: &ReservationRecord,
    spans: &[(Timestamp, Timestamp)],
) -> Result<(), Failure> {
    let mut booked = rows.live_reservations()?;
    // Its own that are booked are put anew; those that it has now stay.
    booked.retain(|time| time.id != record.id || time.state != ReservationState::Booked);
    if booked.len() + spans.len() > MAX_RESERVED_TIMES {
        return Err(refusals::reservation_too_many(MAX_RESERVED_TIMES).into());
    }
    let room = reservable(&rows.nodes()?);
    Ok(check(record.amount, spans, &booked, room, rows.now)?)
}

fn refuse_taken(rows: &Rows<'_>, record: &ReservationRecord) -> Result<(), Failure> {
    match rows.reservation_name_taken(record)? {
        true => {
            let refusal = refusals::reservation_name_taken(&record.name);
            Err(refusal.at("/name").into())
        }
        false => Ok(()),
    }
}

fn again(view: &ReadTransaction<'_>, id: ReservationId) -> Result<ReservationView, Failure> {
    match view.reservation(id)? {
        Some(found) => shown(&found),
        None => Err(refusals::reservation_not_found().into()),
    }
}

fn shown(record: &ReservationRecord) -> Result<ReservationView, Failure> {
    show(record).ok_or_else(|| refusals::reservation_not_found().into())
}

/// None for one without a time, which no booking makes.
fn show(record: &ReservationRecord) -> Option<ReservationView> {
    let current = record.current()?;
    let time = |time: &ReservationTime| ReservationTimeView {
        number: time.number,
        from: time.from,
        to: time.to,
        state: time.state,
    };
    let domain = record.domain_name.as_deref().unwrap_or_default();
    let project = record.project_name.as_deref();
    Some(ReservationView {
        id: record.id.0,
        name: record.name.clone(),
        project: project.map(|project| format!("{domain}/{project}")),
        user: record.user_name.clone(),
        resources: record.amount.into(),
        before: record.before,
        time_zone: record.time_zone.clone(),
        state: current.state,
        from: current.from,
        to: current.to,
        times: record.times.iter().map(time).collect(),
        generation: record.generation,
    })
}

/// `gpu=2 cpu=4 memory=8 GiB from=… to=… weeks=3`, for events.
fn told(amount: ReservationAmount, spans: &[(Timestamp, Timestamp)]) -> String {
    let Some((from, to)) = spans.first() else {
        return amount.told();
    };
    let weeks = spans.len();
    format!("{} from={from} to={to} weeks={weeks}", amount.told())
}

fn note(
    rows: &Rows<'_>,
    caller: &Caller,
    record: &ReservationRecord,
    code: &str,
    before: &str,
    after: &str,
) -> Result<(), Failure> {
    rows.note(NewEvent {
        actor: caller.name.as_str(),
        topic: "system",
        object: record.name.as_str(),
        scope: record.scope(),
        code,
        before,
        after,
    })
}

#[cfg(test)]
mod tests;
