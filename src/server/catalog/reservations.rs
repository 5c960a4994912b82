//! Rows of reservations and their times. Decides nothing: `rules::reservation` says what may be booked, and
//! `rules::placement` which devices are chosen.

use std::collections::BTreeMap;

use rules::budget::GpuHours;
use rules::names::{ReservationId, SessionId, TenantName, UserId};
use rules::permissions::Reach;
use rules::refusals;
use rules::reservation::{
    BeforeReservation, ReservationAmount, ReservationHolder, ReservationState, ReservationTime,
};
use rules::reservation_quota::{QUOTA_SECONDS, ReservedUse};
use rules::tenancy::{DomainId, ProjectId, Scope};
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Params, Row};

use super::Catalog;
use super::events::NewEvent;
use super::reach::{ReachedTable, condition};
use super::reader::ReadTransaction;
use super::value;
use super::writer::{Lane, Rows};
use crate::Failure;

/// The code of the event that a session stands where a reservation begins soon; the word of the index `event_told`.
pub(crate) const WARNED: &str = "session.reservation-warned";

/// The codes of the events that a request was decided; words of the index `event_told`.
pub(crate) const APPROVED: &str = "reservation.approved";
pub(crate) const REFUSED: &str = "reservation.refused";
pub(crate) const EXPIRED: &str = "reservation.expired";

/// The actor of steps that a pass takes.
const ACTOR: &str = "reservations";
/// Something of a row of `reservation` is left: it is asked for, is to come, or lasts.
const IS_OPEN: &str = "exists (
    select 1
    from reservation_time
    where reservation_time.reservation = reservation.id
    and reservation_time.state in ('asked', 'booked', 'warned', 'active')
)";

/// One reservation with its times, and the names of whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReservationRecord {
    pub(crate) id: ReservationId,
    pub(crate) name: TenantName,
    pub(crate) holder: ReservationHolder,
    /// Of the project, or home of the user; None for maintenance.
    pub(crate) domain: Option<DomainId>,
    pub(crate) amount: ReservationAmount,
    pub(crate) before: BeforeReservation,
    /// IANA name of the zone in which its weeks keep their time of day.
    pub(crate) time_zone: String,
    /// Weeks that begin on a day off were left out.
    pub(crate) skips_holidays: bool,
    /// The lead who booked or asked; None: an administrator booked.
    pub(crate) asked_by: Option<UserId>,
    /// When it was asked for; None: it was booked at once.
    pub(crate) asked_at: Option<Timestamp>,
    /// What the administrator said who decided.
    pub(crate) reason: String,
    pub(crate) generation: u64,
    pub(crate) asker_name: Option<String>,
    pub(crate) domain_name: Option<String>,
    pub(crate) project_name: Option<String>,
    pub(crate) user_name: Option<String>,
    /// In the order of time; never empty.
    pub(crate) times: Vec<ReservationTime>,
}

impl ReservationRecord {
    /// Where it belongs.
    pub(crate) fn scope(&self) -> Scope {
        let (user, project) = parts_of(self.holder);
        Scope {
            domain: self.domain,
            project,
            owner: user,
        }
    }

    /// The time that is next or now; the last one where none is left.
    pub(crate) fn current(&self) -> Option<&ReservationTime> {
        let mut times = self.times.iter();
        let next = times.find(|time| time.state.is_open());
        next.or(self.times.last())
    }

    /// True while it waits for an administrator.
    pub(crate) fn is_request(&self) -> bool {
        let mut times = self.times.iter();
        times.any(|time| time.state == ReservationState::Asked)
    }

    /// Whom the events of a decision tell.
    fn told_scope(&self) -> Scope {
        Scope {
            owner: self.asked_by,
            ..self.scope()
        }
    }
}

/// A request as administrators are told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AskedReservationRow {
    pub(crate) name: TenantName,
    pub(crate) asked_at: Timestamp,
    /// `DOMAIN/NAME` of the project that it is for.
    pub(crate) project: String,
}

/// What a pass of the controller changed of one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReservationChange {
    /// The state that was read.
    pub(crate) was: ReservationState,
    pub(crate) time: ReservationTime,
    /// Sessions that are told of it, and whose they are.
    pub(crate) warned: Vec<(SessionId, Scope)>,
}

const RESERVATION: ReachedTable = ReachedTable {
    owner: "user",
    has_domain: true,
    project: Some("project"),
};

fn parts_of(holder: ReservationHolder) -> (Option<UserId>, Option<ProjectId>) {
    match holder {
        ReservationHolder::User(user) => (Some(user), None),
        ReservationHolder::Project(project) => (None, Some(project)),
        ReservationHolder::Maintenance => (None, None),
    }
}

fn holder(row: &Row<'_>) -> rusqlite::Result<ReservationHolder> {
    let user = value::id_or_none(row, "user")?.map(UserId);
    let project = value::id_or_none(row, "project")?.map(ProjectId);
    Ok(match (user, project) {
        (Some(user), _) => ReservationHolder::User(user),
        (None, Some(project)) => ReservationHolder::Project(project),
        (None, None) => ReservationHolder::Maintenance,
    })
}

fn reservation_row(row: &Row<'_>) -> rusqlite::Result<ReservationRecord> {
    Ok(ReservationRecord {
        id: ReservationId(value::id(row, "id")?),
        name: value::word(row, "name", |text| TenantName::parse(text).ok())?,
        holder: holder(row)?,
        domain: value::id_or_none(row, "domain")?.map(DomainId),
        amount: value::json(row, "amount")?,
        before: value::word(row, "before", BeforeReservation::parse)?,
        time_zone: row.get("time_zone")?,
        skips_holidays: row.get("skips_holidays")?,
        asked_by: value::id_or_none(row, "asked_by")?.map(UserId),
        asked_at: value::time_or_none(row, "asked_at")?,
        reason: row.get("reason")?,
        generation: value::unsigned(row, "generation")?,
        asker_name: row.get("asker_name")?,
        domain_name: row.get("domain_name")?,
        project_name: row.get("project_name")?,
        user_name: row.get("user_name")?,
        times: Vec::new(),
    })
}

fn time_row(row: &Row<'_>) -> rusqlite::Result<ReservationTime> {
    Ok(ReservationTime {
        id: ReservationId(value::id(row, "reservation")?),
        number: row.get("number")?,
        holder: holder(row)?,
        amount: value::json(row, "amount")?,
        from: value::time(row, "from_at")?,
        to: value::time(row, "to_at")?,
        before: value::word(row, "before", BeforeReservation::parse)?,
        state: value::word(row, "state", ReservationState::parse)?,
        parts: value::json(row, "parts")?,
        warned_at: value::time_or_none(row, "warned_at")?,
        told: value::json(row, "told")?,
        unused_since: value::time_or_none(row, "unused_since")?,
    })
}

/// Columns of a time, and of its reservation what a time says too.
const TIME: &str = "reservation_time.*, reservation.user as user, reservation.project as project,
                    reservation.amount as amount, reservation.before as before
             from reservation_time
             join reservation on reservation.id = reservation_time.reservation";

impl ReadTransaction<'_> {
    fn reservations_where(
        &self,
        condition: &str,
        values: impl Params + Clone,
    ) -> Result<Vec<ReservationRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select reservation.*, domain.name as domain_name, project.name as project_name,
                    user.name as user_name, asker.name as asker_name
             from (select * from reservation where {condition}) as reservation
             left join domain on domain.id = reservation.domain
             left join project on project.id = reservation.project
             left join user on user.id = reservation.user
             left join user as asker on asker.id = reservation.asked_by
             order by reservation.name"
        ))?;
        let rows = statement.query_map(values.clone(), reservation_row)?;
        let mut all: Vec<ReservationRecord> = rows.collect::<Result<_, _>>()?;
        let mut statement = self.connection.prepare_cached(&format!(
            "select {TIME}
             where reservation_time.reservation in (select id from reservation where {condition})
             order by reservation_time.reservation, reservation_time.number"
        ))?;
        let rows = statement.query_map(values, time_row)?;
        let mut times: BTreeMap<ReservationId, Vec<ReservationTime>> = BTreeMap::new();
        for time in rows {
            let time = time?;
            times.entry(time.id).or_default().push(time);
        }
        for one in &mut all {
            one.times = times.remove(&one.id).unwrap_or_default();
        }
        Ok(all)
    }

    /// The reservations in reach, and those for maintenance, which concern everybody, by name. Costs one range of an
    /// index each.
    pub(crate) fn reservations(&self, reach: &Reach) -> Result<Vec<ReservationRecord>, Failure> {
        let (reached, value) = condition(reach, RESERVATION, "?1");
        self.reservations_where(
            &format!("user is null and project is null or {reached}"),
            [value],
        )
    }

    /// Those of them with that id or name. Costs one step of an index.
    pub(crate) fn reservations_called(
        &self,
        reach: &Reach,
        which: &str,
    ) -> Result<Vec<ReservationRecord>, Failure> {
        let (reached, value) = condition(reach, RESERVATION, "?1");
        let id = which.parse::<ReservationId>().ok();
        let id = id.map_or_else(Vec::new, |id| id.0.as_bytes().to_vec());
        self.reservations_where(
            &format!("(user is null and project is null or {reached}) and (name = ?2 or id = ?3)"),
            (value, which, id),
        )
    }

    /// Sessions of a holder that wait for a time to start, and that time. Costs one visit a live session.
    pub(crate) fn waiting_for_start(
        &self,
        holder: ReservationHolder,
    ) -> Result<Vec<(SessionId, Timestamp)>, Failure> {
        let (user, project) = parts_of(holder);
        let mut statement = self.connection.prepare_cached(
            "select id, start_at
             from session
             where state <> 'ended'
             and state = 'pending'
             and start_at is not null
             and (project = ?1 or owner = ?2)",
        )?;
        let (project, user) = (
            project.map(|id| *id.0.as_bytes()),
            user.map(|id| *id.0.as_bytes()),
        );
        let rows = statement.query_map((project, user), |row| {
            Ok((
                SessionId(value::id(row, "id")?),
                value::time(row, "start_at")?,
            ))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// So many of the requests in reach that wait for an administrator and were asked for after that moment, the first first.
    /// Costs one visit a request.
    pub(crate) fn asked_reservations(
        &self,
        reach: &Reach,
        after: Timestamp,
        limit: u32,
    ) -> Result<Vec<AskedReservationRow>, Failure> {
        let (reached, value) = condition(reach, RESERVATION, "?1");
        let mut statement = self.connection.prepare_cached(&format!(
            "select asked.name, asked.asked_at, domain.name as domain_name,
                    project.name as project_name
             from (
                 select *
                 from reservation
                 where {reached}
                 and asked_at > ?2
                 and id in (
                     select reservation from reservation_time where state = 'asked' and number = 1
                 )
             ) as asked
             join domain on domain.id = asked.domain
             join project on project.id = asked.project
             order by asked.asked_at, asked.id
             limit ?3"
        ))?;
        let rows = statement.query_map((value, after.as_millis(), limit), |row| {
            let domain: String = row.get("domain_name")?;
            let project: String = row.get("project_name")?;
            Ok(AskedReservationRow {
                name: value::word(row, "name", |text| TenantName::parse(text).ok())?,
                asked_at: value::time_or_none(row, "asked_at")?.unwrap_or_default(),
                project: format!("{domain}/{project}"),
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// How many requests wait for an administrator. Costs one visit a request.
    pub(crate) fn count_asked_reservations(&self) -> Result<usize, Failure> {
        let count: i64 = self
            .connection
            .prepare_cached(
                "select count(*)
                 from reservation_time
                 where state = 'asked'
                 and number = 1",
            )?
            .query_row([], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Requests for one project. Costs one range of an index.
    pub(crate) fn count_asked_of_project(&self, project: ProjectId) -> Result<usize, Failure> {
        let count: i64 = self
            .connection
            .prepare_cached(
                "select count(*)
                 from reservation
                 join reservation_time on reservation_time.reservation = reservation.id
                 where reservation.project = ?1
                 and reservation_time.state = 'asked'
                 and reservation_time.number = 1",
            )?
            .query_row([project.0.as_bytes()], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Requests whose begin is past, so many of them: where the first of their times has begun. Costs one range of an index.
    fn late_requests(&self, now: Timestamp) -> Result<Vec<ReservationRecord>, Failure> {
        self.reservations_where(
            &format!(
                "id in (
                     select reservation
                     from reservation_time
                     where state = 'asked'
                     and number = 1
                     and from_at <= ?1
                     order by from_at, reservation
                     limit {MAX_EXPIRED_AT_ONCE}
                 )"
            ),
            [now.as_millis()],
        )
    }

    /// What the leads of a project book without asking, in GPU-hours in any 30 days.
    pub(crate) fn reservation_quota(&self, project: ProjectId) -> Result<GpuHours, Failure> {
        let found = self
            .connection
            .prepare_cached("select reservation_quota from project where id = ?1")?
            .query_row([project.0.as_bytes()], |row| {
                value::unsigned(row, "reservation_quota")
            })
            .optional()?;
        Ok(GpuHours(found.unwrap_or_default()))
    }

    /// What counts against the quota of a project from 30 days before `now` on: what was or is booked, also by administrators.
    /// One that was cancelled counts where its devices were chosen and others were warned. Costs one range of an index.
    pub(crate) fn reserved_uses(
        &self,
        project: ProjectId,
        now: Timestamp,
    ) -> Result<Vec<ReservedUse>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select reservation_time.from_at, reservation_time.to_at, reservation.amount
             from reservation
             join reservation_time on reservation_time.reservation = reservation.id
             where reservation.project = ?1
             and reservation_time.from_at > ?2
             and (reservation_time.state in ('booked', 'warned', 'active', 'over', 'released')
                  or reservation_time.state = 'cancelled'
                  and reservation_time.warned_at is not null)",
        )?;
        let since = quota_begin(now).as_millis();
        let rows = statement.query_map((project.0.as_bytes(), since), |row| {
            let amount: ReservationAmount = value::json(row, "amount")?;
            Ok(ReservedUse {
                from: value::time(row, "from_at")?,
                to: value::time(row, "to_at")?,
                gpu: amount.gpu,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Times of a project to come, asked for or booked. Costs one range of an index.
    pub(crate) fn open_times_of_project(&self, project: ProjectId) -> Result<usize, Failure> {
        let count: i64 = self
            .connection
            .prepare_cached(
                "select count(*)
                 from reservation
                 join reservation_time on reservation_time.reservation = reservation.id
                 where reservation.project = ?1
                 and reservation_time.state in ('asked', 'booked', 'warned', 'active')",
            )?
            .query_row([project.0.as_bytes()], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// How many reservations a user has of their own that are still to come or last.
    pub(crate) fn reservations_of(&self, user: UserId) -> Result<u64, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select count(*) as n from reservation where user = ?1 and {IS_OPEN}"
            ))?
            .query_row([user.0.as_bytes()], |row| value::unsigned(row, "n"))?)
    }

    /// Those for a user of which something is left. Costs one range of an index.
    pub(crate) fn open_reservations_of(
        &self,
        user: UserId,
    ) -> Result<Vec<ReservationRecord>, Failure> {
        self.reservations_where(&format!("user = ?1 and {IS_OPEN}"), [user.0.as_bytes()])
    }

    /// Those of a project of which something is left. Costs one range of an index.
    pub(crate) fn reservations_of_project(
        &self,
        project: ProjectId,
    ) -> Result<Vec<ReservationRecord>, Failure> {
        self.reservations_where(
            &format!("project = ?1 and {IS_OPEN}"),
            [project.0.as_bytes()],
        )
    }

    pub(crate) fn reservation(
        &self,
        id: ReservationId,
    ) -> Result<Option<ReservationRecord>, Failure> {
        let found = self.reservations_where("id = ?1", [id.0.as_bytes()])?;
        Ok(found.into_iter().next())
    }

    /// Whether another reservation of the same holder, of which something is left, has the name.
    pub(crate) fn reservation_name_taken(&self, row: &ReservationRecord) -> Result<bool, Failure> {
        let (user, project) = parts_of(row.holder);
        let id = project.map(|id| id.0).or(user.map(|id| id.0));
        let key = id.map_or_else(Vec::new, |id| id.as_bytes().to_vec());
        let found = self
            .connection
            .prepare_cached(
                "select 1
                 from reservation
                 where name = ?2
                 and coalesce(project, user, x'') = ?1
                 and id <> ?3
                 and exists (
                     select 1
                     from reservation_time
                     where reservation_time.reservation = reservation.id
                     and reservation_time.state in ('asked', 'booked', 'warned', 'active')
                 )",
            )?
            .query_row((key, row.name.as_str(), row.id.0.as_bytes()), |_| Ok(()))
            .optional()?;
        Ok(found.is_some())
    }

    /// The times that take room now or later, by begin. Costs one range of an index.
    pub(crate) fn live_reservations(&self) -> Result<Vec<ReservationTime>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {TIME}
             where reservation_time.state in ('booked', 'warned', 'active')
             order by reservation_time.from_at, reservation_time.reservation, reservation_time.number"
        ))?;
        let rows = statement.query_map([], time_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl ReadTransaction<'_> {
    /// How many times take room now or later. Costs one range of an index.
    pub(crate) fn count_live_reservations(&self) -> Result<usize, Failure> {
        let count: i64 = self
            .connection
            .prepare_cached(
                "select count(*)
                 from reservation_time
                 where state in ('booked', 'warned', 'active')",
            )?
            .query_row([], |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }
}

/// Times that are booked and not warned of yet which one pass looks at, the next ones first. Higher: each pass reads more
/// of next year. Lower: of more that begin on one day the last are chosen later.
const MAX_NEAR_TIMES: usize = 256;

impl ReadTransaction<'_> {
    /// Those of the live times that a pass looks at, by begin: all that are warned of or active, and the next ones. Costs
    /// two ranges of an index, whatever is booked.
    pub(crate) fn near_reservations(&self) -> Result<Vec<ReservationTime>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {TIME} where reservation_time.state in ('warned', 'active')"
        ))?;
        let rows = statement.query_map([], time_row)?;
        let mut near: Vec<ReservationTime> = rows.collect::<Result<_, _>>()?;
        let mut statement = self.connection.prepare_cached(&format!(
            "select {TIME}
             where reservation_time.state in ('booked', 'warned', 'active')
             and reservation_time.state = 'booked'
             order by reservation_time.from_at
             limit {MAX_NEAR_TIMES}"
        ))?;
        let rows = statement.query_map([], time_row)?;
        for time in rows {
            near.push(time?);
        }
        near.sort_by_key(|time| (time.from, time.id, time.number));
        Ok(near)
    }
}

/// The moment from which on what began counts against a quota.
fn quota_begin(now: Timestamp) -> Timestamp {
    let millis = i64::try_from(QUOTA_SECONDS * 1000).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(millis))
}

/// Requests that one pass ends, those that began first. Higher: people wait behind its commit where hundreds begin
/// together. Lower: their leads learn a pass later that they expired.
pub(crate) const MAX_EXPIRED_AT_ONCE: usize = 100;

impl Catalog {
    /// Ends requests whose begin is past, so many at once, and tells who asked; its commit starts the pass that ends the
    /// next. Costs one step of an index where none is.
    pub(crate) async fn expire_requests(&self, now: Timestamp) -> Result<(), Failure> {
        let due = self.read_now("look for late requests", |view| {
            Ok(view
                .connection
                .prepare_cached(
                    "select 1
                     from reservation_time
                     where state = 'asked'
                     and number = 1
                     and from_at <= ?1",
                )?
                .exists([now.as_millis()])?)
        })?;
        if !due {
            return Ok(());
        }
        self.write(Lane::Loops, "end late requests", move |rows| {
            for row in rows.late_requests(now)? {
                rows.settle_request(row.id, ReservationState::Expired, "")?;
                rows.note_request(ACTOR, &row, EXPIRED, "")?;
            }
            Ok(())
        })
        .await
    }
}

impl Rows<'_> {
    /// Writes a reservation without its times.
    pub(crate) fn insert_reservation(&self, row: &ReservationRecord) -> Result<(), Failure> {
        let (user, project) = parts_of(row.holder);
        self.connection
            .prepare_cached(
                "insert into reservation
                     (id, name, user, project, domain, amount, before, generation, time_zone,
                      asked_by, asked_at, reason, skips_holidays)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            )?
            .execute((
                row.id.0.as_bytes(),
                row.name.as_str(),
                user.map(|id| *id.0.as_bytes()),
                project.map(|id| *id.0.as_bytes()),
                row.domain.map(|id| *id.0.as_bytes()),
                value::text(&row.amount),
                row.before.word(),
                value::signed(row.generation),
                row.time_zone.as_str(),
                row.asked_by.map(|id| *id.0.as_bytes()),
                row.asked_at.map(Timestamp::as_millis),
                row.reason.as_str(),
                row.skips_holidays,
            ))?;
        Ok(())
    }

    /// Writes name, amount, zone and what is before it; raises the generation.
    pub(crate) fn put_reservation(&self, row: &ReservationRecord) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update reservation
                 set name = ?2, amount = ?3, before = ?4, time_zone = ?5, skips_holidays = ?6,
                     generation = generation + 1
                 where id = ?1",
            )?
            .execute((
                row.id.0.as_bytes(),
                row.name.as_str(),
                value::text(&row.amount),
                row.before.word(),
                row.time_zone.as_str(),
                row.skips_holidays,
            ))?;
        Ok(())
    }

    /// Gives one for a user to another user of the same domain; raises the generation. What began unused begins to be so now.
    pub(crate) fn put_reservation_user(
        &self,
        id: ReservationId,
        user: UserId,
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update reservation
                 set user = ?2, generation = generation + 1
                 where id = ?1 and user is not null",
            )?
            .execute((id.0.as_bytes(), user.0.as_bytes()))?;
        self.connection
            .prepare_cached(
                "update reservation_time set unused_since = null where reservation = ?1",
            )?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }

    /// Writes these times in place of those that are only booked, none of them chosen; what was or is now stays. They are
    /// booked, or asked for.
    pub(crate) fn put_reservation_times(
        &self,
        id: ReservationId,
        times: &[(Timestamp, Timestamp)],
        state: ReservationState,
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "delete from reservation_time where reservation = ?1 and state = 'booked'",
            )?
            .execute([id.0.as_bytes()])?;
        let last: u32 = self
            .connection
            .prepare_cached(
                "select coalesce(max(number), 0) from reservation_time where reservation = ?1",
            )?
            .query_row([id.0.as_bytes()], |row| row.get(0))?;
        let mut statement = self.connection.prepare_cached(
            "insert into reservation_time (reservation, number, from_at, to_at, state, parts)
             values (?1, ?2, ?3, ?4, ?5, '[]')",
        )?;
        for (number, (from, to)) in (last + 1..).zip(times) {
            statement.execute((
                id.0.as_bytes(),
                number,
                from.as_millis(),
                to.as_millis(),
                state.word(),
            ))?;
        }
        Ok(())
    }

    /// Writes what the leads of a project book without asking.
    pub(crate) fn put_reservation_quota(
        &self,
        project: ProjectId,
        quota: GpuHours,
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update project set reservation_quota = ?2 where id = ?1")?
            .execute((project.0.as_bytes(), value::signed(quota.0)))?;
        Ok(())
    }

    /// Ends a request: all its times are booked, or of its weeks only the next is remembered in another state.
    pub(crate) fn settle_request(
        &self,
        id: ReservationId,
        state: ReservationState,
        reason: &str,
    ) -> Result<(), Failure> {
        if state != ReservationState::Booked {
            self.connection
                .prepare_cached(
                    "delete from reservation_time
                     where reservation = ?1
                     and state = 'asked'
                     and number > (
                         select min(number)
                         from reservation_time
                         where reservation = ?1 and state = 'asked'
                     )",
                )?
                .execute([id.0.as_bytes()])?;
        }
        self.connection
            .prepare_cached(
                "update reservation_time
                 set state = ?2
                 where reservation = ?1 and state = 'asked'",
            )?
            .execute((id.0.as_bytes(), state.word()))?;
        self.connection
            .prepare_cached(
                "update reservation set reason = ?2, generation = generation + 1 where id = ?1",
            )?
            .execute((id.0.as_bytes(), reason))?;
        Ok(())
    }

    /// Notes what became of a request, and tells the lead who asked.
    pub(crate) fn note_request(
        &self,
        actor: &str,
        row: &ReservationRecord,
        code: &str,
        after: &str,
    ) -> Result<(), Failure> {
        self.note(NewEvent {
            actor,
            topic: "system",
            object: row.name.as_str(),
            scope: row.told_scope(),
            code,
            before: "",
            after,
        })
    }

    /// Gives back what a reservation keeps, now and later: of its weeks to come only the next is remembered. Gives how
    /// many times it had left.
    pub(crate) fn cancel_reservation(&self, id: ReservationId) -> Result<usize, Failure> {
        let cancelled = self
            .connection
            .prepare_cached(
                "update reservation_time
                 set state = 'cancelled', parts = '[]', told = '[]'
                 where reservation = ?1
                 and (
                     state in ('warned', 'active')
                     or number = (
                         select min(number)
                         from reservation_time
                         where reservation = ?1 and state in ('asked', 'booked', 'warned', 'active')
                     )
                 )",
            )?
            .execute([id.0.as_bytes()])?;
        let later = self
            .connection
            .prepare_cached(
                "delete from reservation_time
                 where reservation = ?1 and state in ('asked', 'booked')",
            )?
            .execute([id.0.as_bytes()])?;
        let cancelled = cancelled + later;
        if cancelled > 0 {
            self.connection
                .prepare_cached("update reservation set generation = generation + 1 where id = ?1")?
                .execute([id.0.as_bytes()])?;
        }
        Ok(cancelled)
    }

    /// Takes out those of which nothing is left but for so many, and for those that a quota counts: first requests that
    /// were never decided, then the oldest of the project or user with the most, so that a loop forgets nothing of others. Costs
    /// one visit a reservation, and sorting those that are over.
    pub(crate) fn forget_ended_reservations(&self, but: usize) -> Result<(), Failure> {
        let but = i64::try_from(but).unwrap_or(i64::MAX);
        self.connection
            .prepare_cached(
                "delete from reservation
                 where id in (
                     select id
                     from (
                         select id, is_undecided,
                                row_number() over (
                                    partition by holder, is_undecided
                                    order by id desc
                                ) as place
                         from (
                             -- A request that was decided has another generation once it is cancelled.
                             select id, coalesce(project, user, x'') as holder,
                                    asked_at is not null and generation = 2 and exists (
                                        select 1
                                        from reservation_time
                                        where reservation_time.reservation = reservation.id
                                        and reservation_time.state in ('cancelled', 'expired')
                                    ) as is_undecided
                             from reservation
                             where not exists (
                                 select 1
                                 from reservation_time
                                 where reservation_time.reservation = reservation.id
                                 and (reservation_time.state in
                                          ('asked', 'booked', 'warned', 'active')
                                      or reservation_time.warned_at is not null
                                      and reservation_time.from_at > ?2)
                             )
                         )
                     )
                     order by is_undecided, place, id desc
                     limit -1 offset ?1
                 )",
            )?
            .execute((but, quota_begin(self.now).as_millis()))?;
        Ok(())
    }

    /// Takes out the reservations of a user who left.
    pub(super) fn forget_reservations_of(&self, user: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from reservation where user = ?1")?
            .execute([user.0.as_bytes()])?;
        Ok(())
    }

    /// Takes out those whose last time was over before that moment, and before the 30 days that a quota counts; gives how
    /// many.
    pub(super) fn forget_old_reservations(&self, before: Timestamp) -> Result<usize, Failure> {
        let before = before.min(quota_begin(self.now));
        Ok(self
            .connection
            .prepare_cached(
                "delete from reservation
                 where not exists (
                     select 1
                     from reservation_time
                     where reservation_time.reservation = reservation.id
                     and (reservation_time.to_at >= ?1
                          or reservation_time.state in ('asked', 'booked', 'warned', 'active'))
                 )",
            )?
            .execute([before.as_millis()])?)
    }

    /// Writes what a pass changed of a time, and tells it.
    ///
    /// Errors: `controller.moved-on` where a user changed or cancelled it since it was read.
    pub(crate) fn record_reservation(&self, change: &ReservationChange) -> Result<(), Failure> {
        let time = &change.time;
        let written = self
            .connection
            .prepare_cached(
                "update reservation_time
                 set state = ?3, parts = ?4, unused_since = ?5, warned_at = ?11, told = ?12
                 where reservation = ?1
                 and number = ?2
                 and state = ?6
                 and from_at = ?7
                 and to_at = ?8
                 and exists (
                     select 1 from reservation where id = ?1 and amount = ?9 and before = ?10
                 )",
            )?
            .execute((
                time.id.0.as_bytes(),
                time.number,
                time.state.word(),
                value::text(&time.parts),
                time.unused_since.map(Timestamp::as_millis),
                change.was.word(),
                time.from.as_millis(),
                time.to.as_millis(),
                value::text(&time.amount),
                time.before.word(),
                time.warned_at.map(Timestamp::as_millis),
                value::text(&time.told),
            ))?;
        if written == 0 {
            return Err(refusals::controller_moved_on().into());
        }
        let begins = time.from.to_string();
        for (session, scope) in &change.warned {
            self.note(NewEvent {
                actor: ACTOR,
                topic: "sessions",
                object: &session.to_string(),
                scope: *scope,
                code: WARNED,
                before: "",
                after: &begins,
            })?;
        }
        if change.was == time.state {
            return Ok(());
        }
        let Some(record) = self.reservation(time.id)? else {
            return Ok(());
        };
        self.note(NewEvent {
            actor: ACTOR,
            topic: "system",
            object: record.name.as_str(),
            scope: record.scope(),
            code: "reservation.moved",
            before: change.was.word(),
            after: time.state.word(),
        })?;
        let held = time
            .parts
            .iter()
            .map(|part| part.devices.len())
            .sum::<usize>();
        let booked = (time.amount.gpu.0 / 100) as usize;
        if time.state != ReservationState::Active || held >= booked {
            return Ok(());
        }
        // Whose it is learns that some of it could not be had.
        self.note(NewEvent {
            actor: ACTOR,
            topic: "system",
            object: record.name.as_str(),
            scope: record.scope(),
            code: "reservation.short",
            before: &booked.to_string(),
            after: &held.to_string(),
        })
    }
}
