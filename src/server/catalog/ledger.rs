//! The usage ledger: what each session holds from one change to the next, and the sums of it by hour, project and owner.
//! Amounts and their sums change in one commit, so the sums are exact whatever dies. Time is that of the machine since
//! its start: setting a clock changes no sum.

use base::observe::{Uptime, chain};
use rules::metering::{self, Allocated, UsageSum};
use rules::names::{SessionId, UserId};
use rules::permissions::Reach;
use rules::session::Session;
use rules::tenancy::{DomainId, ProjectId};
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};

use super::reader::ReadTransaction;
use super::value;
use super::writer::{Lane, Rows};
use super::{Catalog, reach};
use crate::Failure;

/// One open row of `allocation`.
struct OpenAllocation {
    session: SessionId,
    number: u32,
    owner: UserId,
    domain: DomainId,
    project: ProjectId,
    amounts: Allocated,
    counted: u64,
    hour: i64,
    /// When the present start of the session got its place.
    placed: u64,
}

const OPEN: &str =
    "select session, number, owner, domain, project, gpu, cpu, memory, counted, hour, placed
     from allocation
     where is_open";

fn open_row(row: &Row<'_>) -> rusqlite::Result<OpenAllocation> {
    Ok(OpenAllocation {
        session: SessionId(value::id(row, "session")?),
        number: row.get("number")?,
        owner: UserId(value::id(row, "owner")?),
        domain: DomainId(value::id(row, "domain")?),
        project: ProjectId(value::id(row, "project")?),
        amounts: Allocated {
            gpu: value::unsigned(row, "gpu")?,
            cpu: value::unsigned(row, "cpu")?,
            memory: value::unsigned(row, "memory")?,
        },
        counted: value::unsigned(row, "counted")?,
        hour: row.get("hour")?,
        placed: value::unsigned(row, "placed")?,
    })
}

/// Whose use a row of sums is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UsageOf {
    pub(crate) domain: DomainId,
    pub(crate) project: ProjectId,
    pub(crate) owner: UserId,
}

impl UsageOf {
    fn session(session: &Session) -> Self {
        Self {
            domain: session.domain,
            project: session.project,
            owner: session.owner,
        }
    }
}

/// The sums of one owner in one project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LedgerSum {
    pub(crate) domain: String,
    pub(crate) project: String,
    pub(crate) owner: UserId,
    pub(crate) user: String,
    pub(crate) sum: UsageSum,
}

/// Which use is asked for: hours since 1970 UTC, the last one left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UsageWindow {
    pub(crate) from: i64,
    pub(crate) until: i64,
}

const SUMS: &str = "sum(usage.session) as session, sum(usage.gpu) as gpu, sum(usage.cpu) as cpu,
     sum(usage.memory) as memory, sum(usage.starts) as starts, sum(usage.waited) as waited";

const ALL_SUMS: &str = "coalesce(sum(session), 0) as session, coalesce(sum(gpu), 0) as gpu,
     coalesce(sum(cpu), 0) as cpu, coalesce(sum(memory), 0) as memory,
     coalesce(sum(starts), 0) as starts, coalesce(sum(waited), 0) as waited";

pub(super) fn sum_row(row: &Row<'_>) -> rusqlite::Result<UsageSum> {
    Ok(UsageSum {
        session: value::unsigned(row, "session")?,
        gpu: value::unsigned(row, "gpu")?,
        cpu: value::unsigned(row, "cpu")?,
        memory: value::unsigned(row, "memory")?,
        starts: value::unsigned(row, "starts")?,
        waited: value::unsigned(row, "waited")?,
    })
}

impl ReadTransaction<'_> {
    /// Whether a session has a place, a row of the ledger is open, or a budget may have to be warned of: its last session
    /// may have ended since.
    fn is_metered(&self, now: Timestamp) -> Result<bool, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select exists (select 1 from allocation where is_open)
                     or exists (select 1 from session where state not in ('pending', 'ended'))
                     or exists (select 1 from budget where began <= ?1 and ends > ?1 and warned < 95)",
            )?
            .query_row([now.as_millis()], |row| row.get(0))?)
    }

    /// What each owner used in each project that the reach allows, by domain, project and user. Costs one visit a row
    /// of the window: an hour, a project and an owner.
    pub(crate) fn usage(
        &self,
        reach: &Reach,
        window: UsageWindow,
    ) -> Result<Vec<LedgerSum>, Failure> {
        let (condition, bound) = reach::condition(reach, reach::SESSION, "?3");
        let mut statement = self.connection.prepare_cached(&format!(
            "with used as (
                 select domain, project, owner, {SUMS}
                 from usage
                 where hour >= ?1 and hour < ?2 and {condition}
                 group by project, owner
             )
             select domain.name as domain_name, project.name as project_name, \"user\".name as user_name, used.*
             from used
             join domain on domain.id = used.domain
             join project on project.id = used.project
             join \"user\" on \"user\".id = used.owner
             order by domain.name, project.name, \"user\".name"
        ))?;
        let rows = statement.query_map((window.from, window.until, bound), |row| {
            Ok(LedgerSum {
                domain: row.get("domain_name")?,
                project: row.get("project_name")?,
                owner: UserId(value::id(row, "owner")?),
                user: row.get("user_name")?,
                sum: sum_row(row)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The sums of all that the reach allows by hour; hours without use are left out.
    pub(crate) fn usage_by_hour(
        &self,
        reach: &Reach,
        window: UsageWindow,
    ) -> Result<Vec<(i64, UsageSum)>, Failure> {
        let (condition, bound) = reach::condition(reach, reach::SESSION, "?3");
        let mut statement = self.connection.prepare_cached(&format!(
            "select hour, {SUMS}
             from usage
             where hour >= ?1 and hour < ?2 and {condition}
             group by hour
             order by hour"
        ))?;
        let rows = statement.query_map((window.from, window.until, bound), |row| {
            Ok((row.get("hour")?, sum_row(row)?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

/// What the two tables of the ledger say of all time, up to a moment. They are equal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LedgerTotals {
    pub used: UsageSum,
    /// Without starts and waits, which only `used` has.
    pub allocated: UsageSum,
}

impl ReadTransaction<'_> {
    /// Sums both tables. Costs a visit to every row: for rehearsals and tests.
    pub(crate) fn ledger_totals(&self, uptime: Uptime) -> Result<LedgerTotals, Failure> {
        let (last, ledger) = self.ledger_clock()?;
        let now = ledger.saturating_add(uptime.since(last));
        let mut totals = LedgerTotals {
            used: self.connection.query_row(
                &format!("select {ALL_SUMS} from usage"),
                [],
                sum_row,
            )?,
            ..LedgerTotals::default()
        };
        let mut statement = self
            .connection
            .prepare_cached("select gpu, cpu, memory, began, counted, is_open from allocation")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let amounts = Allocated {
                gpu: value::unsigned(row, "gpu")?,
                cpu: value::unsigned(row, "cpu")?,
                memory: value::unsigned(row, "memory")?,
            };
            let (began, counted) = (
                value::unsigned(row, "began")?,
                value::unsigned(row, "counted")?,
            );
            let end = if row.get("is_open")? { now } else { counted };
            let held = |from: u64| UsageSum::held(amounts, end.saturating_sub(from));
            totals.allocated = totals.allocated.plus(held(began));
            totals.used = totals.used.plus(held(counted));
        }
        Ok(totals)
    }

    /// The ledger's clock, and when it was read.
    pub(super) fn ledger_clock(&self) -> Result<(Uptime, u64), Failure> {
        Ok(self
            .connection
            .prepare_cached("select boot, uptime, ledger from ledger_clock where id = 1")?
            .query_row([], |row| {
                let last = Uptime {
                    boot: value::id(row, "boot")?,
                    millis: value::unsigned(row, "uptime")?,
                };
                Ok((last, value::unsigned(row, "ledger")?))
            })?)
    }
}

impl Catalog {
    /// Counts what all sessions hold up to now into the sums. Costs one read where none has a place and no
    /// budget holds of which may be warned.
    pub(crate) async fn meter(&self, now: Timestamp) -> Result<(), Failure> {
        let due = self.read_now("look for sessions to meter", |view| view.is_metered(now))?;
        if due {
            self.write(Lane::Loops, "meter sessions", |rows| rows.meter())
                .await?;
        }
        Ok(())
    }
}

impl Rows<'_> {
    /// Notes that the amounts of a session may have changed. Costs two writes where they did, else nothing.
    pub(super) fn book(&self, before: Option<&Session>, after: &Session) -> Result<(), Failure> {
        let had = before.and_then(Allocated::of);
        let has = Allocated::of(after);
        let moved = before.is_some_and(|before| before.scope() != after.scope());
        // A start that keeps the place of the last one is another.
        let again = before.is_some_and(|before| before.incarnation != after.incarnation);
        if had == has && !moved && !again {
            return Ok(());
        }
        let ledger = self.ledger_time()?;
        let placed = match had {
            Some(_) => self.close_allocation(after.id, ledger)?,
            None => None,
        };
        if let Some(amounts) = has {
            let of = UsageOf::session(after);
            let placed = placed.filter(|_| !again).unwrap_or(ledger);
            self.open_allocation(after.id, of, amounts, (ledger, placed))?;
            if had.is_none() {
                let got = UsageSum {
                    starts: 1,
                    waited: self.now.millis_since(after.queued_at),
                    ..UsageSum::default()
                };
                self.add_usage(metering::hour_of(self.now), of, got)?;
            }
        }
        Ok(())
    }

    /// Counts all that is held up to now. What a catalog of an older version, a copy or a repair left without a row, or
    /// with one too many, is put right. Costs one write a session with a place.
    pub(crate) fn meter(&self) -> Result<usize, Failure> {
        let ledger = self.ledger_time()?;
        let live = self.live_sessions()?;
        let mut open: std::collections::BTreeMap<SessionId, OpenAllocation> = self
            .connection
            .prepare_cached(OPEN)?
            .query_map([], open_row)?
            .map(|row| row.map(|row| (row.session, row)))
            .collect::<Result<_, _>>()?;
        let counted = open.len();
        for session in &live {
            let known = open.remove(&session.id);
            match (known, Allocated::of(session)) {
                (Some(row), Some(amounts)) if row.amounts == amounts => {
                    self.count(&row, ledger)?;
                }
                (known, has) => {
                    let placed = match known {
                        Some(_) => self.close_allocation(session.id, ledger)?,
                        None => None,
                    };
                    if let Some(amounts) = has {
                        let of = UsageOf::session(session);
                        let times = (ledger, placed.unwrap_or(ledger));
                        self.open_allocation(session.id, of, amounts, times)?;
                    }
                }
            }
        }
        for session in open.into_keys() {
            self.close_allocation(session, ledger)?;
        }
        // What was counted stands, also where nobody can be warned of it.
        if let Err(failure) = self.warn_of_budgets() {
            tracing::error!(error = %chain(&failure), "budgets were not looked at for warnings");
        }
        Ok(counted)
    }

    /// Takes time that passes before the next commit as not passed: for a copy that is taken up later.
    pub(super) fn stop_ledger(&self) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update ledger_clock set boot = zeroblob(16) where id = 1")?
            .execute([])?;
        Ok(())
    }

    /// The ledger's clock, moved on by what passed since it was last read in this start of the machine.
    pub(crate) fn ledger_time(&self) -> Result<u64, Failure> {
        let (last, ledger) = self.ledger_clock()?;
        let now = ledger.saturating_add(self.uptime.since(last));
        if now != ledger || self.uptime.boot != last.boot {
            self.connection
                .prepare_cached(
                    "update ledger_clock set boot = ?1, uptime = ?2, ledger = ?3 where id = 1",
                )?
                .execute((
                    self.uptime.boot.as_bytes(),
                    value::signed(self.uptime.millis),
                    value::signed(now),
                ))?;
        }
        Ok(now)
    }

    /// Opens a row of what a session holds from `ledger` on; `placed`: when its present start got its place.
    fn open_allocation(
        &self,
        session: SessionId,
        of: UsageOf,
        amounts: Allocated,
        (ledger, placed): (u64, u64),
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into allocation
                     (session, number, owner, domain, project, gpu, cpu, memory, began, counted, hour, is_open,
                      placed)
                 values (
                     ?1,
                     (select coalesce(max(number), 0) + 1 from allocation where session = ?1),
                     ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, 1, ?10
                 )",
            )?
            .execute((
                session.0.as_bytes(),
                of.owner.0.as_bytes(),
                of.domain.0.as_bytes(),
                of.project.0.as_bytes(),
                value::signed(amounts.gpu),
                value::signed(amounts.cpu),
                value::signed(amounts.memory),
                value::signed(ledger),
                metering::hour_of(self.now),
                value::signed(placed),
            ))?;
        Ok(())
    }

    /// Counts and closes the open row of a session; gives when that start of it got its place.
    fn close_allocation(&self, session: SessionId, ledger: u64) -> Result<Option<u64>, Failure> {
        let row = self
            .connection
            .prepare_cached(&format!("{OPEN} and session = ?1"))?
            .query_row([session.0.as_bytes()], open_row)
            .optional()?;
        // Placed before there was a ledger.
        let Some(row) = row else { return Ok(None) };
        self.count(&row, ledger)?;
        self.connection
            .prepare_cached(
                "update allocation set is_open = 0, closed_at = ?2 where session = ?1 and is_open",
            )?
            .execute((session.0.as_bytes(), self.now.as_millis()))?;
        Ok(Some(row.placed))
    }

    /// Adds what passed since a row was last counted to the sums, and moves the row there.
    fn count(&self, row: &OpenAllocation, ledger: u64) -> Result<(), Failure> {
        let passed = ledger.saturating_sub(row.counted);
        if passed == 0 {
            return Ok(());
        }
        let of = UsageOf {
            domain: row.domain,
            project: row.project,
            owner: row.owner,
        };
        let parts = metering::by_hour(self.now, passed, row.hour);
        for (hour, millis) in &parts {
            self.add_usage(*hour, of, UsageSum::held(row.amounts, *millis))?;
        }
        let hour = parts.first().map_or(row.hour, |(hour, _)| *hour);
        self.connection
            .prepare_cached(
                "update allocation set counted = ?3, hour = ?4 where session = ?1 and number = ?2",
            )?
            .execute((
                row.session.0.as_bytes(),
                row.number,
                value::signed(ledger),
                hour,
            ))?;
        Ok(())
    }

    /// Adds to the sums; what falls into a closed month is noted for the next one as well.
    pub(super) fn add_usage(&self, hour: i64, of: UsageOf, sum: UsageSum) -> Result<(), Failure> {
        self.add_late_usage(hour, of, sum)?;
        self.connection
            .prepare_cached(
                "insert into usage
                     (hour, domain, project, owner, session, gpu, cpu, memory, starts, waited)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
                 on conflict (hour, project, owner) do update
                 set session = session + excluded.session,
                     gpu = gpu + excluded.gpu,
                     cpu = cpu + excluded.cpu,
                     memory = memory + excluded.memory,
                     starts = starts + excluded.starts,
                     waited = waited + excluded.waited",
            )?
            .execute((
                hour,
                of.domain.0.as_bytes(),
                of.project.0.as_bytes(),
                of.owner.0.as_bytes(),
                value::signed(sum.session),
                value::signed(sum.gpu),
                value::signed(sum.cpu),
                value::signed(sum.memory),
                value::signed(sum.starts),
                value::signed(sum.waited),
            ))?;
        Ok(())
    }

    /// Keeps what was found of an hour after its month was closed, for the month that is closed next. Costs a look at the
    /// newest closed month, else nothing.
    fn add_late_usage(&self, hour: i64, of: UsageOf, sum: UsageSum) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into late_usage
                     (project, owner, domain, session, gpu, cpu, memory, starts, waited)
                 select ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10
                 where ?1 < (select until_hour from closed_month order by month desc limit 1)
                 on conflict (project, owner) do update
                 set session = session + excluded.session,
                     gpu = gpu + excluded.gpu,
                     cpu = cpu + excluded.cpu,
                     memory = memory + excluded.memory,
                     starts = starts + excluded.starts,
                     waited = waited + excluded.waited",
            )?
            .execute((
                hour,
                of.project.0.as_bytes(),
                of.owner.0.as_bytes(),
                of.domain.0.as_bytes(),
                value::signed(sum.session),
                value::signed(sum.gpu),
                value::signed(sum.cpu),
                value::signed(sum.memory),
                value::signed(sum.starts),
                value::signed(sum.waited),
            ))?;
        Ok(())
    }

    /// Removes closed rows of `allocation` that are older; the sums stay. Gives how many went.
    pub(super) fn forget_allocations(
        &self,
        before: Timestamp,
        most: u32,
    ) -> Result<usize, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "delete from allocation
                 where (session, number) in (
                     select session, number
                     from allocation
                     where not is_open and closed_at < ?1
                     limit ?2
                 )",
            )?
            .execute((before.as_millis(), most))?)
    }
}
