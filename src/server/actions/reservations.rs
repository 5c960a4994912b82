//! What a user may do with reservations: administrators of the site book them for projects, users and maintenance. Leads
//! book for their own project within its quota, and so do administrators of its domain; what is beyond is a request, which
//! keeps nothing until an administrator of the site grants it. Users who see the project or user see its reservations.

use std::collections::BTreeMap;

use api::reservations::{
    NewReservationBody, ReservationPatchBody, ReservationQuotaView, ReservationTimeView,
    ReservationView,
};
use jiff::tz::TimeZone;
use rules::budget::GpuHours;
use rules::holiday::CalendarDay;
use rules::names::{ReservationId, TenantName};
use rules::object::Object;
use rules::permissions::{Extent, Permission, may, reach};
use rules::placement::{part_of_device, reservable};
use rules::refusal::Refusal;
use rules::refusals;
use rules::reservation::{
    BeforeReservation, ReservationAmount, ReservationHolder, ReservationState, ReservationTime,
    check, times,
};
use rules::reservation_quota::{self, QUOTA_DAYS};
use rules::session::{DesiredState, Session};
use rules::tenancy::{DomainId, Project, ProjectId, Scope, TenantState};
use rules::units::Timestamp;
use rules::users::User;

use super::accounts::find as find_user;
use super::tenancy::find_project;
use super::{IdempotencyKey, Once, allowed, holidays, once, own_key, somewhere};
use crate::access::Caller;
use crate::catalog::events::NewEvent;
use crate::catalog::reservations::{APPROVED, AskedReservationRow, REFUSED, ReservationRecord};
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server};

/// Times to come of all reservations. Higher: each pass of the controller reads them all. Lower: a site with many
/// courses cannot book a term.
const MAX_RESERVED_TIMES: usize = 2_000;
const WEEK_SECONDS: u64 = 7 * 86_400;
/// Reservations that are remembered once nothing is left of them. Higher: who books and cancels in a loop fills the
/// catalog with more. Lower: the list forgets sooner what was.
const MAX_ENDED: usize = 500;
/// Times of one project to come, booked and asked for, up to which its leads book and ask. Higher: the leads of a few
/// projects fill the site's calendar, and administrators read long lists. Lower: a project with several weekly courses
/// cannot book a term.
const MAX_TIMES_OF_PROJECT: usize = 240;
/// Times of all reservations to come up to which leads book at once; then they ask. Higher: leads of a few projects leave
/// administrators no room, who cannot even reserve for maintenance. Lower: a site with many courses asks for each.
const MAX_TIMES_OF_LEADS: usize = 1_000;
/// Requests of the site that wait for an administrator. Higher: the bell and the list read all of them. Lower: a site with
/// many courses cannot ask for a term.
const MAX_REQUESTS: usize = 500;
/// Of those, requests for one project. Higher: the leads of a few projects take all of them from the site. Lower: a project
/// with many courses cannot ask for a term.
const MAX_REQUESTS_OF_PROJECT: usize = 50;
/// Quotas that a lead of many projects reads beside the form. Higher: each page sums up more bookings. Lower: a lead of a
/// few projects looks them up on their pages.
const MAX_QUOTAS_LISTED: usize = 10;

/// A reservation, and what the caller may do with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedReservation {
    pub reservation: ReservationView,
    /// Administrators of the site: they change it, and grant or refuse a request.
    pub decides: bool,
    /// Leads too: something is left of it to cancel.
    pub cancels: bool,
    /// The caller asked for it, and no administrator decided yet.
    pub withdraws: bool,
}

/// The quota of a project, and whether the caller sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedQuota {
    /// Its name; of several, with the domain in front.
    pub project: String,
    pub quota: ReservationQuotaView,
    pub may_set: bool,
}

/// The reservations that the caller reaches, and those for maintenance: requests first, then those that are now or
/// to come, by their begin.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<ReservationView>, Failure> {
    let all = listed(server, caller).await?.into_iter();
    Ok(all.map(|one| one.reservation).collect())
}

/// The same, each with what the caller may do.
pub async fn listed(server: &Server, caller: &Caller) -> Result<Vec<ListedReservation>, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    server.catalog().read_now("list reservations", |view| {
        let records = seen(view, caller)?;
        let mut all: Vec<ListedReservation> = records
            .iter()
            .filter_map(|record| with_rights(caller, record))
            .collect();
        let rank = |state: ReservationState| match state {
            ReservationState::Asked => 0,
            state if state.counts() => 1,
            _ => 2,
        };
        all.sort_by_key(|one| {
            let one = &one.reservation;
            (rank(one.state), one.from, one.id)
        });
        Ok(all)
    })
}

/// One of `list`, by id or name. Errors: `reservation.not-found`, `reservation.ambiguous`.
pub async fn get(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<ReservationView, Failure> {
    Ok(get_listed(server, caller, which).await?.reservation)
}

/// One of `listed`. Errors: `reservation.not-found`, `reservation.ambiguous`.
pub async fn get_listed(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<ListedReservation, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    server.catalog().read_now("show a reservation", |view| {
        let found = find(view, caller, which)?;
        let listed = with_rights(caller, &found);
        listed.ok_or_else(|| refusals::reservation_not_found().into())
    })
}

fn with_rights(caller: &Caller, record: &ReservationRecord) -> Option<ListedReservation> {
    let reservation = show(record)?;
    let is_request = record.is_request();
    Some(ListedReservation {
        decides: may_grant(caller),
        cancels: reservation.state.counts() && may_cancel(caller, record).is_ok(),
        withdraws: is_request && record.asked_by == Some(caller.subject.user),
        reservation,
    })
}

/// True for those who may book, or ask for it, somewhere.
pub fn may_write(caller: &Caller) -> bool {
    somewhere(caller, Permission::ProjectsWrite).is_ok()
}

/// True for those who decide: administrators of the site.
pub fn may_grant(caller: &Caller) -> bool {
    may_decide(caller).is_ok()
}

/// Hours before its start up to which a lead books without asking; 0: until the start.
pub fn notice_hours(server: &Server) -> u32 {
    server.settings().reservation_notice_hours
}

/// So many of the requests that the caller decides and that were asked for after that moment, the first first. Costs one
/// visit a request, and nothing for those who decide none.
pub(super) fn open_requests(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    after: Timestamp,
    limit: u32,
) -> Result<Vec<AskedReservationRow>, Failure> {
    if !may_grant(caller) {
        return Ok(Vec::new());
    }
    let reach = reach(&caller.subject, Permission::ProjectsWrite);
    view.asked_reservations(&reach, after, limit)
}

/// Books a reservation for a project, a user or maintenance. For a lead what is beyond the quota of the project, or begins
/// within the site's notice, is a request: its state is `asked`, and it keeps nothing.
///
/// Errors: `reservation.name-invalid`, `reservation.name-taken`, `reservation.holder`, `reservation.too-many`,
/// `reservation.too-many-of-project`, `reservation.too-many-requests…`; those of its times and of `rules::reservation::check`, above all
/// `reservation.conflict`; `project.not-found`, `project.archived`, `user.not-found`, `role.administrator-needed`,
/// `role.permission-missing`.
pub async fn book(
    server: &Server,
    caller: &Caller,
    asked: NewReservationBody,
    key: Option<IdempotencyKey>,
) -> Result<Once<ReservationView>, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let key = own_key(caller, key)?;
    let booking = Booking::read(server, caller, asked)?;
    let caller = caller.clone();
    server
        .catalog()
        .write(Lane::Requests, "book a reservation", move |rows| {
            once(rows, key.as_ref(), || booked(rows, &caller, booking))
        })
        .await
}

/// A booking whose times are read.
pub(super) struct Booking {
    asked: NewReservationBody,
    name: TenantName,
    zone: TimeZone,
    spans: Vec<(Timestamp, Timestamp)>,
    /// Hours before its start up to which a lead books without asking.
    notice: u32,
}

impl Booking {
    /// Errors: `reservation.name-invalid`, `time-zone.unknown`, those of the times.
    pub(super) fn read(
        server: &Server,
        caller: &Caller,
        asked: NewReservationBody,
    ) -> Result<Self, Failure> {
        let name = name_of(&asked.name)?;
        let zone = zone_of(caller, asked.time_zone.as_deref())?;
        let spans = times(&asked.from, &asked.to, &zone, asked.repeats.unwrap_or(1))?;
        Ok(Self {
            asked,
            name,
            zone,
            spans,
            notice: notice_hours(server),
        })
    }
}

/// Books inside a write. Errors: those of `book`.
pub(super) fn booked(
    rows: &Rows<'_>,
    caller: &Caller,
    booking: Booking,
) -> Result<ReservationView, Failure> {
    let Booking {
        asked,
        name,
        zone,
        spans,
        notice,
    } = booking;
    let (holder, domain) = holder_of(rows, caller, &asked)?;
    let mut record = ReservationRecord {
        id: ReservationId::make(rows.now, base::observe::random()),
        name,
        holder,
        domain,
        amount: asked.resources.into(),
        before: asked.before.unwrap_or(BeforeReservation::Drain),
        time_zone: name_of_zone(&zone),
        skips_holidays: asked.skip_holidays,
        asked_by: None,
        asked_at: None,
        reason: String::new(),
        generation: 1,
        asker_name: None,
        domain_name: None,
        project_name: None,
        user_name: None,
        times: Vec::new(),
    };
    refuse_taken(rows, &record)?;
    let spans = without_holidays(rows, &record, &zone, spans)?;
    refuse_occupied(rows, &record, &spans)?;
    let state = state_of_new(rows, caller, &record, &spans, notice)?;
    let code = match state {
        ReservationState::Asked => "reservation.asked",
        _ => "reservation.booked",
    };
    if !may_grant(caller) {
        record.asked_by = Some(caller.subject.user);
    }
    if state == ReservationState::Asked {
        record.asked_at = Some(rows.now);
    }
    rows.insert_reservation(&record)?;
    rows.put_reservation_times(record.id, &spans, state)?;
    rows.forget_ended_reservations(MAX_ENDED)?;
    let after = told(record.amount, &spans);
    note(rows, caller, &record, code, "", &after)?;
    again(rows, record.id)
}

/// Changes a reservation from its next time on; its holder stays, and so does a week that was warned of.
///
/// Errors: as `book`; `reservation.not-found`, `reservation.ambiguous`, `reservation.stale`, `reservation.asked-for` for a
/// request; `reservation.begun` for another amount while one of its times is warned of or active, and for another time
/// where none is left that is not.
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
            refuse_request(&before)?;
            let is_booked = |time: &&ReservationTime| time.state == ReservationState::Booked;
            let open = before.times.iter().filter(is_booked);
            let was: Vec<(Timestamp, Timestamp)> = open.map(|time| (time.from, time.to)).collect();
            let own = TimeZone::get(&before.time_zone).unwrap_or(TimeZone::UTC);
            let zone = named.unwrap_or(own);
            let begun = || refusals::reservation_begun(&before.name);
            let spans = changed_spans(&patch, &was, &zone, &before.time_zone, begun)?;
            let moved = spans != was || patch.skip_holidays.is_some();
            let amount: ReservationAmount = match patch.resources {
                Some(Object(resources)) => resources.into(),
                None => before.amount,
            };
            let after = ReservationRecord {
                name: name.unwrap_or_else(|| before.name.clone()),
                amount,
                before: patch.before.unwrap_or(before.before),
                time_zone: name_of_zone(&zone),
                skips_holidays: patch.skip_holidays.unwrap_or(before.skips_holidays),
                ..before.clone()
            };
            // Days that became holidays since take no week away that is booked.
            let spans = match moved {
                true => without_holidays(rows, &after, &zone, spans)?,
                false => spans,
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
                rows.put_reservation_times(after.id, &spans, ReservationState::Booked)?;
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
/// Errors: `reservation.not-found`, `reservation.ambiguous`, `reservation.asked-for` for a request,
/// `role.administrator-needed`, `role.permission-missing`.
pub async fn cancel(server: &Server, caller: &Caller, which: &str) -> Result<(), Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "cancel a reservation", move |rows| {
            let found = find(rows, &caller, &which)?;
            may_cancel(&caller, &found)?;
            refuse_request(&found)?;
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

/// Gives the reservations for a user of which something is left to another user of the domain, inside a write. They keep
/// their machines and times. All of them, or none. Costs one visit of each live session.
///
/// Errors: `reservation.name-taken`, where the other has one of that name; `reservation.sessions-run`: one that lasts, or
/// begins soon, would stop at once what runs of who had it until now.
pub(super) fn hand_over(
    rows: &Rows<'_>,
    caller: &Caller,
    from: &User,
    to: &User,
) -> Result<(), Failure> {
    let runs = |session: &Session| {
        session.owner == from.id
            && session.desired == DesiredState::Run
            && session.state().holds_resources()
    };
    let any_runs = rows.live_sessions()?.iter().any(runs);
    for found in rows.open_reservations_of(from.id)? {
        let is_now = |time: &ReservationTime| {
            matches!(
                time.state,
                ReservationState::Warned | ReservationState::Active
            )
        };
        if any_runs && found.times.iter().any(is_now) {
            return Err(refusals::reservation_sessions_run(&found.name, &from.name).into());
        }
        let after = ReservationRecord {
            holder: ReservationHolder::User(to.id),
            ..found
        };
        if rows.reservation_name_taken(&after)? {
            return Err(refusals::reservation_name_taken(&after.name)
                .at("/to")
                .into());
        }
        rows.put_reservation_user(after.id, to.id)?;
        let (old, new) = (from.name.as_str(), to.name.as_str());
        note(rows, caller, &after, "reservation.handed-over", old, new)?;
    }
    Ok(())
}

/// Grants a request, which is named by its id: it is booked as it was asked for, where that is free still. `why` may be
/// empty.
///
/// Errors: `reservation.not-found`, `reservation.ambiguous`, `reservation.decided`, `reservation.by-id` (the name of a
/// request), `reservation.reason-invalid`; those of
/// `rules::reservation::check`, above all `reservation.conflict` and `reservation.past`; `role.administrator-needed`.
pub async fn approve(
    server: &Server,
    caller: &Caller,
    which: &str,
    why: &str,
) -> Result<ReservationView, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let (caller, which, why) = (caller.clone(), which.to_owned(), why.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "grant a request", move |rows| {
            let found = find_request(rows, &caller, &which)?;
            let why = reservation_quota::reason(&why)?;
            let spans = spans_of(&found.times);
            refuse_occupied(rows, &found, &spans).map_err(nowhere)?;
            rows.settle_request(found.id, ReservationState::Booked, &why)?;
            rows.note_request(caller.name.as_str(), &found, APPROVED, &why)?;
            again(rows, found.id)
        })
        .await
}

/// Refuses a request, which is named by its id, and says why to the lead who asked.
///
/// Errors: `reservation.not-found`, `reservation.ambiguous`, `reservation.decided`, `reservation.by-id`,
/// `reservation.reason-missing`, `reservation.reason-invalid`, `role.administrator-needed`.
pub async fn refuse(
    server: &Server,
    caller: &Caller,
    which: &str,
    why: &str,
) -> Result<ReservationView, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let (caller, which, why) = (caller.clone(), which.to_owned(), why.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "refuse a request", move |rows| {
            let found = find_request(rows, &caller, &which)?;
            let why = reservation_quota::reason(&why)?;
            if why.is_empty() {
                return Err(refusals::reservation_reason_missing().at("/reason").into());
            }
            rows.settle_request(found.id, ReservationState::Refused, &why)?;
            rows.note_request(caller.name.as_str(), &found, REFUSED, &why)?;
            again(rows, found.id)
        })
        .await
}

/// Takes a request back; only the lead who asked does.
///
/// Errors: `reservation.not-found`, `reservation.ambiguous`, `reservation.decided`, `reservation.not-asker`.
pub async fn withdraw(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<ReservationView, Failure> {
    somewhere(caller, Permission::ProjectsWrite)?;
    let (caller, which) = (caller.clone(), which.to_owned());
    server
        .catalog()
        .write(Lane::Requests, "withdraw a request", move |rows| {
            let found = find(rows, &caller, &which)?;
            if !found.is_request() {
                return Err(refusals::reservation_decided(&found.name).into());
            }
            if found.asked_by != Some(caller.subject.user) {
                return Err(refusals::reservation_not_asker(&found.name).into());
            }
            rows.settle_request(found.id, ReservationState::Cancelled, "")?;
            let before = told(found.amount, &spans_of(&found.times));
            note(rows, &caller, &found, "reservation.withdrawn", &before, "")?;
            again(rows, found.id)
        })
        .await
}

/// What the leads of a project book without asking, and what is left of it now. Errors: `project.not-found`,
/// `project.ambiguous`.
pub async fn quota(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<ReservationQuotaView, Failure> {
    Ok(listed_quota(server, caller, which).await?.quota)
}

/// The same with what the caller may do. Errors: `project.not-found`, `project.ambiguous`.
pub async fn listed_quota(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<ListedQuota, Failure> {
    allowed(caller, Permission::ProjectsRead)?;
    let (now, notice) = (server.clock().now(), notice_hours(server));
    server
        .catalog()
        .read_now("show a reservation quota", |view| {
            let project = find_project(view, &caller.subject, Permission::ProjectsRead, which)?;
            Ok(ListedQuota {
                project: project.name.to_string(),
                may_set: may_grant(caller),
                quota: show_quota(view, project.id, now, notice)?,
            })
        })
}

/// The quotas of the projects for which the caller books and that they cannot set: what a lead reads before booking. Empty
/// for administrators of the site; costs a visit of each project in reach.
pub async fn lead_quotas(server: &Server, caller: &Caller) -> Result<Vec<ListedQuota>, Failure> {
    let reach = reach(&caller.subject, Permission::ProjectsWrite);
    if reach.is_everything() || *reach.extent() == Extent::Nothing {
        return Ok(Vec::new());
    }
    let (now, notice) = (server.clock().now(), notice_hours(server));
    server
        .catalog()
        .read("list reservation quotas", move |view| {
            let rows = view.projects(&reach)?.into_iter();
            let led = rows.filter(|row| row.project.state == TenantState::Active);
            led.take(MAX_QUOTAS_LISTED)
                .map(|row| {
                    Ok(ListedQuota {
                        project: format!("{}/{}", row.domain_name, row.project.name),
                        may_set: false,
                        quota: show_quota(view, row.project.id, now, notice)?,
                    })
                })
                .collect()
        })
        .await
}

/// Why the caller can neither book nor ask for anything now; None where some booking may be taken. Costs a visit of each
/// project in reach, up to the first with room.
pub async fn no_room(server: &Server, caller: &Caller) -> Result<Option<Refusal>, Failure> {
    let reach = reach(&caller.subject, Permission::ProjectsWrite);
    if *reach.extent() == Extent::Nothing {
        return Ok(None);
    }
    server
        .catalog()
        .read("look for room for reservations", move |view| {
            if view.count_live_reservations()? >= MAX_RESERVED_TIMES {
                return Ok(Some(refusals::reservation_too_many(MAX_RESERVED_TIMES)));
            }
            let mut why = None;
            if reach.is_everything() {
                return Ok(why);
            }
            for row in view.projects(&reach)? {
                if row.project.state != TenantState::Active {
                    continue;
                }
                let Some(refusal) = full(view, row.project.id)? else {
                    return Ok(None);
                };
                why = why.or(Some(refusal));
            }
            Ok(why)
        })
        .await
}

/// Why a project gets nothing more from its leads.
fn full(view: &ReadTransaction<'_>, project: ProjectId) -> Result<Option<Refusal>, Failure> {
    if view.open_times_of_project(project)? >= MAX_TIMES_OF_PROJECT {
        let limit = MAX_TIMES_OF_PROJECT;
        return Ok(Some(refusals::reservation_too_many_of_project(limit)));
    }
    // What is within a quota is no request.
    if view.reservation_quota(project)? > GpuHours::default() {
        return Ok(None);
    }
    if view.count_asked_of_project(project)? >= MAX_REQUESTS_OF_PROJECT {
        let limit = MAX_REQUESTS_OF_PROJECT;
        let refusal = refusals::reservation_too_many_requests_of_project(limit);
        return Ok(Some(refusal));
    }
    let is_full = view.count_asked_reservations()? >= MAX_REQUESTS;
    Ok(is_full.then(|| refusals::reservation_too_many_requests(MAX_REQUESTS)))
}

/// Sets what the leads of a project book without asking, in GPU-hours in any 30 days. What is booked stays.
///
/// Errors: `reservation.quota-invalid`, `project.not-found`, `project.ambiguous`, `role.administrator-needed`,
/// `role.permission-missing`.
pub async fn set_quota(
    server: &Server,
    caller: &Caller,
    which: &str,
    typed: &str,
) -> Result<ReservationQuotaView, Failure> {
    let (caller, which, typed) = (caller.clone(), which.to_owned(), typed.trim().to_owned());
    let notice = notice_hours(server);
    server
        .catalog()
        .write(Lane::Requests, "set a reservation quota", move |rows| {
            let project = find_project(rows, &caller.subject, Permission::ProjectsWrite, &which)?;
            may_decide(&caller)?;
            let quota = GpuHours::parse(&typed)
                .ok_or_else(|| refusals::reservation_quota_invalid().at("/gpu_hours"))?;
            let before = rows.reservation_quota(project.id)?;
            if quota != before {
                rows.put_reservation_quota(project.id, quota)?;
                note_quota(rows, &caller, &project, before, quota)?;
            }
            show_quota(rows, project.id, rows.now, notice)
        })
        .await
}

fn note_quota(
    rows: &Rows<'_>,
    caller: &Caller,
    project: &Project,
    before: GpuHours,
    after: GpuHours,
) -> Result<(), Failure> {
    let actor = caller.name.as_str();
    let (before, after) = (before.to_string(), after.to_string());
    rows.note_project(actor, project, "project.quota-set", &before, &after)
}

fn show_quota(
    view: &ReadTransaction<'_>,
    project: ProjectId,
    now: Timestamp,
    notice_hours: u32,
) -> Result<ReservationQuotaView, Failure> {
    let quota = view.reservation_quota(project)?;
    let rest = reservation_quota::rest(quota, &view.reserved_uses(project, now)?, now);
    Ok(ReservationQuotaView {
        gpu_hours: quota.to_string(),
        days: QUOTA_DAYS,
        used: rest.used.to_string(),
        left: rest.left.to_string(),
        notice_hours,
    })
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
/// Errors: `reservation.not-found`, `reservation.ambiguous`, `reservation.asked-for`, `reservation.closed`.
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
    refuse_request(&found)?;
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
    let is_open = |one: &ReservationRecord| one.times.iter().any(|time| time.state.is_open());
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
    may_decide(caller)?;
    Ok(found)
}

/// A request that the caller decides, by its id: until then its lead can withdraw it and ask for something else under its
/// name.
///
/// Errors: `reservation.not-found`, `reservation.ambiguous`, `reservation.decided`, `reservation.by-id`,
/// `role.administrator-needed`.
fn find_request(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    which: &str,
) -> Result<ReservationRecord, Failure> {
    let found = find_to_change(view, caller, which)?;
    if !found.is_request() {
        return Err(refusals::reservation_decided(&found.name).into());
    }
    match which.parse::<ReservationId>() {
        Ok(id) if id == found.id => Ok(found),
        _ => Err(refusals::reservation_by_id(&found.name, found.id).into()),
    }
}

fn refuse_request(record: &ReservationRecord) -> Result<(), Refusal> {
    match record.is_request() {
        true => Err(refusals::reservation_asked(&record.name)),
        false => Ok(()),
    }
}

/// Administrators of the site: a reservation goes before the queue and stops sessions of others, of all domains, since no
/// machine belongs to one. Those of a domain are bounded by what the site gave to its projects.
fn may_decide(caller: &Caller) -> Result<(), Refusal> {
    may(&caller.subject, Permission::ProjectsWrite, &Scope::SITE)
}

/// The same, administrators of its domain and leads of the project that it is for: what is cancelled is free for all.
fn may_cancel(caller: &Caller, record: &ReservationRecord) -> Result<(), Refusal> {
    may(&caller.subject, Permission::ProjectsWrite, &record.scope())
}

/// What becomes of a booking: administrators of the site book at once, others within the quota of the project and so many
/// hours before the start.
///
/// Errors: `reservation.too-many-of-project`, `reservation.too-many-requests`, `reservation.too-many-requests-of-project`.
fn state_of_new(
    rows: &Rows<'_>,
    caller: &Caller,
    record: &ReservationRecord,
    spans: &[(Timestamp, Timestamp)],
    notice: u32,
) -> Result<ReservationState, Failure> {
    let project = match (may_decide(caller), record.holder) {
        (Ok(()), _) => return Ok(ReservationState::Booked),
        (Err(_), ReservationHolder::Project(project)) => project,
        (Err(refusal), _) => return Err(refusal.into()),
    };
    if rows.open_times_of_project(project)? + spans.len() > MAX_TIMES_OF_PROJECT {
        return Err(refusals::reservation_too_many_of_project(MAX_TIMES_OF_PROJECT).into());
    }
    let uses = rows.reserved_uses(project, rows.now)?;
    let part = part_of_device(&rows.founding_nodes()?);
    let quota = rows.reservation_quota(project)?;
    let (amount, before) = (record.amount, record.before);
    let is_within = reservation_quota::is_within(quota, &uses, amount, before, spans, part);
    let leaves_room = rows.count_live_reservations()? + spans.len() <= MAX_TIMES_OF_LEADS;
    let is_early = reservation_quota::gives_notice(spans, notice, rows.now);
    if is_within && is_early && leaves_room {
        return Ok(ReservationState::Booked);
    }
    if rows.count_asked_of_project(project)? >= MAX_REQUESTS_OF_PROJECT {
        let limit = MAX_REQUESTS_OF_PROJECT;
        return Err(refusals::reservation_too_many_requests_of_project(limit).into());
    }
    if rows.count_asked_reservations()? >= MAX_REQUESTS {
        return Err(refusals::reservation_too_many_requests(MAX_REQUESTS).into());
    }
    Ok(ReservationState::Asked)
}

/// The same refusal without the place in a request: what was decided upon was sent by another user.
fn nowhere(failure: Failure) -> Failure {
    match failure {
        Failure::Refusal(mut refusal) => {
            refusal.pointer = None;
            Failure::Refusal(refusal)
        }
        fault @ Failure::Fault(_) => fault,
    }
}

/// The holder of a new reservation, and its domain. Errors: also where the caller may book for neither.
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
            let found = find_project(view, subject, Permission::ProjectsWrite, project);
            let found = found.map_err(|failure| failure.at("/project"))?;
            if found.state == TenantState::Archived {
                let refusal = refusals::project_archived(&found.name);
                return Err(refusal.at("/project").into());
            }
            Ok((ReservationHolder::Project(found.id), Some(found.domain)))
        }
        (None, Some(user), false) => {
            let found = find_user(view, subject, Permission::UsersRead, user);
            let found = found.map_err(|failure| failure.at("/user"))?;
            may_decide(caller)?;
            Ok((ReservationHolder::User(found.id), Some(found.domain)))
        }
        (None, None, true) => {
            may_decide(caller)?;
            Ok((ReservationHolder::Maintenance, None))
        }
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
    let is_same = patch.from.is_none()
        && patch.to.is_none()
        && patch.repeats.is_none()
        && patch.skip_holidays.is_none();
    if is_same && name_of_zone(zone) == own {
        return Ok(was.to_vec());
    }
    let (from, to) = was.first().ok_or_else(begun)?;
    let from = patch.from.clone().unwrap_or_else(|| written(*from, zone));
    let to = patch.to.clone().unwrap_or_else(|| written(*to, zone));
    // Weeks that were left out count on.
    let last = was
        .last()
        .map_or(0, |(last, _)| last.seconds_since(was[0].0));
    let weeks = u32::try_from(1 + (last + WEEK_SECONDS / 2) / WEEK_SECONDS).unwrap_or(u32::MAX);
    times(&from, &to, zone, patch.repeats.unwrap_or(weeks))
}

/// The times that begin on no day off of the site or of the holder's domain, in that zone; all where it skips none.
///
/// Errors: `reservation.holidays` where none is left.
fn without_holidays(
    view: &ReadTransaction<'_>,
    record: &ReservationRecord,
    zone: &TimeZone,
    mut spans: Vec<(Timestamp, Timestamp)>,
) -> Result<Vec<(Timestamp, Timestamp)>, Failure> {
    if !record.skips_holidays {
        return Ok(spans);
    }
    let off = holidays::both(view, record.domain)?;
    spans.retain(|(from, _)| {
        let at = jiff::Timestamp::from_millisecond(from.as_millis()).unwrap_or_default();
        let day = CalendarDay::of(at.to_zoned(zone.clone()).date());
        day.is_none_or(|day| !off.contains_key(&day))
    });
    match spans.is_empty() {
        true => Err(refusals::reservation_holidays().at("/from").into()),
        false => Ok(spans),
    }
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
    let room = reservable(&rows.founding_nodes()?);
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

pub(super) fn again(
    view: &ReadTransaction<'_>,
    id: ReservationId,
) -> Result<ReservationView, Failure> {
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
    Some(ReservationView {
        id: record.id.0,
        name: record.name.clone(),
        project: project_name(record),
        user: record.user_name.clone(),
        asked_by: record.asker_name.clone(),
        reason: Some(record.reason.clone()).filter(|reason| !reason.is_empty()),
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

/// `DOMAIN/NAME` of the project that it is for.
fn project_name(record: &ReservationRecord) -> Option<String> {
    let domain = record.domain_name.as_deref().unwrap_or_default();
    let project = record.project_name.as_deref()?;
    Some(format!("{domain}/{project}"))
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
