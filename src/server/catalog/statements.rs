//! Rows of closed months: the lines of use as they were frozen, what the server signed of them, use that was found late,
//! and prices. Closed months are written once and never changed. What a line says is `rules::statement`'s.

use base::observe::random;
use rules::audit::{AuditHash, NO_HASH, hex};
use rules::names::UserId;
use rules::permissions::Reach;
use rules::refusals;
use rules::statement::{
    FrozenUse, HourPrices, STATEMENT_FORM, StatementBreak, StatementHead, StatementLine,
    StatementPart, chained, check_sums, lines_of,
};
use rules::tenancy::{DomainId, ProjectId};
use rusqlite::{OptionalExtension as _, Row};
use uuid::Uuid;

use super::audit::sha256;
use super::ledger::{UsageWindow, sum_row};
use super::reach::{SESSION, condition};
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// One closed month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClosedMonthRow {
    pub(crate) head: StatementHead,
    /// Byte for byte.
    pub(crate) statement: String,
    pub(crate) signature: Vec<u8>,
}

/// A month that is to be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MonthToClose {
    pub(crate) month: String,
    pub(crate) hours: UsageWindow,
    pub(crate) time_zone: String,
    pub(crate) installation: Uuid,
}

/// The use that a month freezes of its hours, as a read summed it, and what tells whether some was added since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SummedMonth {
    hours: UsageWindow,
    /// With that of all earlier hours, where no month is closed yet.
    used: Vec<FrozenUse>,
    mark: UsageMark,
}

/// How many sums some hours have, their milliseconds of sessions and their starts: use of an hour becomes only more, and
/// nothing is used without one of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct UsageMark {
    rows: i64,
    session: i64,
    starts: i64,
}

/// The prices that hold from the next close on, with their version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PriceSetting {
    pub(crate) prices: HourPrices,
    pub(crate) generation: u64,
}

/// A closed month as it is kept. It may have been changed since: nothing of it is believed before its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KeptMonth {
    from: i64,
    until: i64,
    statement: String,
    signature: Vec<u8>,
}

/// One line as it is kept, with the places that it is found by.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KeptLine {
    position: u64,
    domain: Option<Uuid>,
    project: Option<Uuid>,
    owner: Option<Uuid>,
    statement: String,
    digest: AuditHash,
}

/// Name, statement and signature.
fn signed_row(row: &Row<'_>) -> rusqlite::Result<(String, String, Vec<u8>)> {
    Ok((
        row.get("month")?,
        row.get("statement")?,
        row.get("signature")?,
    ))
}

/// A statement that was changed behind our backs may be no statement any more: a refusal says how to find out.
fn closed(
    (month, statement, signature): (String, String, Vec<u8>),
) -> Result<ClosedMonthRow, Failure> {
    let head = serde_json::from_str(&statement).map_err(|_| refusals::month_unreadable(&month))?;
    Ok(ClosedMonthRow {
        head,
        statement,
        signature,
    })
}

fn kept_month(row: &Row<'_>) -> rusqlite::Result<KeptMonth> {
    Ok(KeptMonth {
        from: row.get("from_hour")?,
        until: row.get("until_hour")?,
        statement: row.get("statement")?,
        signature: row.get("signature")?,
    })
}

fn kept_line(row: &Row<'_>) -> rusqlite::Result<KeptLine> {
    Ok(KeptLine {
        position: value::unsigned(row, "position")?,
        domain: value::id_or_none(row, "domain")?,
        project: value::id_or_none(row, "project")?,
        owner: value::id_or_none(row, "owner")?,
        statement: row.get("statement")?,
        digest: row.get("digest")?,
    })
}

fn frozen(part: StatementPart) -> impl Fn(&Row<'_>) -> rusqlite::Result<FrozenUse> {
    move |row| {
        Ok(FrozenUse {
            part,
            domain: row.get("domain_name")?,
            domain_id: DomainId(value::id(row, "domain")?),
            project: row.get("project_name")?,
            project_id: ProjectId(value::id(row, "project")?),
            user: row.get("user_name")?,
            user_id: UserId(value::id(row, "owner")?),
            used: sum_row(row)?,
        })
    }
}

fn checked(
    month: &str,
    kept: &KeptMonth,
    before: Option<&KeptMonth>,
    lines: &[KeptLine],
    signed: impl Fn(&[u8], &[u8]) -> bool,
) -> Result<(), StatementBreak> {
    let name = || month.to_owned();
    if !signed(kept.statement.as_bytes(), &kept.signature) {
        return Err(StatementBreak::Signature { month: name() });
    }
    let head: StatementHead = serde_json::from_str(&kept.statement)
        .map_err(|_| StatementBreak::Head { month: name() })?;
    let digests: Vec<AuditHash> = lines
        .iter()
        .map(|line| sha256(line.statement.as_bytes()))
        .collect();
    if !head.has_lines(&digests, sha256) {
        return Err(StatementBreak::Lines { month: name() });
    }
    let mut stated = Vec::with_capacity(lines.len());
    for (line, digest) in lines.iter().zip(&digests) {
        let position = line.position;
        let told: StatementLine =
            serde_json::from_str(&line.statement).map_err(|_| StatementBreak::Line { position })?;
        let places = (
            told.domain_id.map(|id| id.0),
            told.project_id.map(|id| id.0),
            told.user_id.map(|id| id.0),
        );
        if told.position != position
            || told.month != head.month
            || places != (line.domain, line.project, line.owner)
            // Readers are told of this one.
            || line.digest != *digest
        {
            return Err(StatementBreak::Line { position });
        }
        stated.push(told);
    }
    check_sums(&stated, &head.prices())?;
    let follows = match before {
        Some(before) => {
            head.previous == hex(&sha256(before.statement.as_bytes())) && head.from == before.until
        }
        None => head.previous == hex(&NO_HASH),
    };
    let stands = head.month == month && (head.from, head.until) == (kept.from, kept.until);
    match follows && stands {
        true => Ok(()),
        false => Err(StatementBreak::Head { month: name() }),
    }
}

impl ReadTransaction<'_> {
    /// All closed months, newest first: twelve a year.
    pub(crate) fn closed_months(&self) -> Result<Vec<ClosedMonthRow>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select month, statement, signature
             from closed_month
             order by month desc",
        )?;
        let rows = statement.query_map([], signed_row)?;
        rows.map(|row| closed(row?)).collect()
    }

    /// The month of this name.
    pub(crate) fn closed_month(&self, month: &str) -> Result<Option<ClosedMonthRow>, Failure> {
        self.connection
            .prepare_cached(
                "select month, statement, signature
                 from closed_month
                 where month = ?1",
            )?
            .query_row([month], signed_row)
            .optional()?
            .map(closed)
            .transpose()
    }

    pub(crate) fn newest_closed_month(&self) -> Result<Option<ClosedMonthRow>, Failure> {
        self.connection
            .prepare_cached(
                "select month, statement, signature
                 from closed_month
                 order by month desc
                 limit 1",
            )?
            .query_row([], signed_row)
            .optional()?
            .map(closed)
            .transpose()
    }

    /// The first hour in which a session had a place; None where none ever had.
    pub(crate) fn first_hour_of_use(&self) -> Result<Option<i64>, Failure> {
        Ok(self
            .connection
            .prepare_cached("select min(hour) from usage")?
            .query_row([], |row| row.get(0))?)
    }

    /// The lines of a month that the reach allows, in their order, each with its text. A total is allowed where all that it
    /// sums is.
    pub(crate) fn statement_lines(
        &self,
        reach: &Reach,
        month: &str,
    ) -> Result<Vec<(StatementLine, String)>, Failure> {
        let (reached, bound) = condition(reach, SESSION, "?2");
        let mut statement = self.connection.prepare_cached(&format!(
            "select statement
             from statement_line
             where month = ?1 and {reached}
             order by position"
        ))?;
        let rows = statement.query_map((month, bound), |row| row.get::<_, String>(0))?;
        rows.map(|text| {
            let text = text?;
            let line: StatementLine =
                serde_json::from_str(&text).map_err(|_| refusals::month_unreadable(month))?;
            Ok((line, text))
        })
        .collect()
    }

    /// The digests of all lines of a month, in their order, as they were kept. Costs a visit to each line, and computes none.
    pub(crate) fn statement_digests(&self, month: &str) -> Result<Vec<AuditHash>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select digest
             from statement_line
             where month = ?1
             order by position",
        )?;
        let rows = statement.query_map([month], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn kept_lines(&self, month: &str) -> Result<Vec<KeptLine>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select position, domain, project, owner, statement, digest
             from statement_line
             where month = ?1
             order by position",
        )?;
        let rows = statement.query_map([month], kept_line)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The names of all closed months, newest first. Reads nothing of them: what was changed behind our backs is named too.
    pub(crate) fn closed_month_names(&self) -> Result<Vec<String>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select month
             from closed_month
             order by month desc",
        )?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Checks one closed month: what was signed, each line against it, that lines add up, and that it follows the month
    /// before it. `signed` says whether a text has this signature. Gives how many lines it has.
    pub(crate) fn check_closed_month(
        &self,
        month: &str,
        signed: impl Fn(&[u8], &[u8]) -> bool,
    ) -> Result<(u64, Result<(), StatementBreak>), Failure> {
        let lines = self.kept_lines(month)?;
        let before = self.kept_month_before(month)?;
        let found = match self.kept_month(month)? {
            Some(kept) => checked(month, &kept, before.as_ref(), &lines, signed),
            None => Err(StatementBreak::Head {
                month: month.to_owned(),
            }),
        };
        Ok((lines.len() as u64, found))
    }

    fn kept_month(&self, month: &str) -> Result<Option<KeptMonth>, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select from_hour, until_hour, statement, signature
                 from closed_month
                 where month = ?1",
            )?
            .query_row([month], kept_month)
            .optional()?)
    }

    fn kept_month_before(&self, month: &str) -> Result<Option<KeptMonth>, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select from_hour, until_hour, statement, signature
                 from closed_month
                 where month < ?1
                 order by month desc
                 limit 1",
            )?
            .query_row([month], kept_month)
            .optional()?)
    }

    pub(crate) fn prices(&self) -> Result<PriceSetting, Failure> {
        Ok(self
            .connection
            .prepare_cached("select currency, gpu, core, gib, generation from price where id = 1")?
            .query_row([], |row| {
                Ok(PriceSetting {
                    prices: HourPrices {
                        currency: row.get("currency")?,
                        gpu: value::unsigned(row, "gpu")?,
                        core: value::unsigned(row, "core")?,
                        gib: value::unsigned(row, "gib")?,
                    },
                    generation: value::unsigned(row, "generation")?,
                })
            })?)
    }

    /// Sums the use that closing a month would freeze of these hours. Costs a visit to each hour of use of the month.
    pub(crate) fn sum_month(&self, hours: UsageWindow) -> Result<SummedMonth, Failure> {
        let mut used = self.use_to_freeze(hours, StatementPart::Use)?;
        let frozen = self.frozen_hours(hours)?;
        if frozen != hours {
            let earlier = UsageWindow {
                from: frozen.from,
                until: hours.from,
            };
            used.extend(self.use_to_freeze(earlier, StatementPart::Late)?);
        }
        Ok(SummedMonth {
            hours,
            used,
            mark: self.usage_mark(frozen)?,
        })
    }

    /// The hours that closing a month of these freezes: in the first month all earlier ones too.
    fn frozen_hours(&self, hours: UsageWindow) -> Result<UsageWindow, Failure> {
        Ok(match self.newest_closed_month()? {
            Some(_) => hours,
            None => UsageWindow {
                from: i64::MIN,
                until: hours.until,
            },
        })
    }

    /// Costs one look at each sum of the hours, a fraction of what sorting them by users and projects costs.
    fn usage_mark(&self, hours: UsageWindow) -> Result<UsageMark, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select count(*), coalesce(sum(session), 0), coalesce(sum(starts), 0)
                 from usage
                 where hour >= ?1 and hour < ?2",
            )?
            .query_row((hours.from, hours.until), |row| {
                Ok(UsageMark {
                    rows: row.get(0)?,
                    session: row.get(1)?,
                    starts: row.get(2)?,
                })
            })?)
    }

    fn use_to_freeze(
        &self,
        hours: UsageWindow,
        part: StatementPart,
    ) -> Result<Vec<FrozenUse>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "with used as (
                 select domain, project, owner, sum(session) as session, sum(gpu) as gpu, sum(cpu) as cpu,
                        sum(memory) as memory, sum(starts) as starts, sum(waited) as waited
                 from usage
                 where hour >= ?1 and hour < ?2
                 group by project, owner
             )
             select coalesce(domain.name, '') as domain_name, coalesce(project.name, '') as project_name,
                    coalesce(\"user\".name, '') as user_name, used.*
             from used
             left join domain on domain.id = used.domain
             left join project on project.id = used.project
             left join \"user\" on \"user\".id = used.owner",
        )?;
        let rows = statement.query_map((hours.from, hours.until), frozen(part))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn late_use(&self) -> Result<Vec<FrozenUse>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select coalesce(domain.name, '') as domain_name, coalesce(project.name, '') as project_name,
                    coalesce(\"user\".name, '') as user_name, late_usage.*
             from late_usage
             left join domain on domain.id = late_usage.domain
             left join project on project.id = late_usage.project
             left join \"user\" on \"user\".id = late_usage.owner",
        )?;
        let rows = statement.query_map([], frozen(StatementPart::Late))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl Rows<'_> {
    /// Freezes a month: its use, what was found late since the last close (in the first month all earlier use), and the
    /// totals; `sign` signs what stands for them. The caller says which month is next. `summed` is what a read made of it
    /// before: it is made again where use was added since. Costs one look at each hour of use of the month, and an insert a
    /// line.
    pub(crate) fn close_month(
        &self,
        closing: &MonthToClose,
        summed: Option<SummedMonth>,
        sign: impl FnOnce(&[u8]) -> Result<Vec<u8>, Failure>,
    ) -> Result<ClosedMonthRow, Failure> {
        let prices = self.prices()?.prices;
        let before = self.newest_closed_month()?;
        let mark = self.usage_mark(self.frozen_hours(closing.hours)?)?;
        let summed = summed.filter(|summed| summed.hours == closing.hours && summed.mark == mark);
        let mut used = match summed {
            Some(summed) => summed.used,
            None => self.sum_month(closing.hours)?.used,
        };
        if before.is_some() {
            used.extend(self.late_use()?);
        }
        let lines = lines_of(&closing.month, used, &prices, random::<16>);
        let texts: Vec<String> = lines.iter().map(StatementLine::canonical).collect();
        let digests: Vec<AuditHash> = texts.iter().map(|text| sha256(text.as_bytes())).collect();
        let previous = match before {
            Some(before) => sha256(before.statement.as_bytes()),
            None => NO_HASH,
        };
        let head = StatementHead {
            closed_at: self.now,
            core_price: prices.core,
            currency: prices.currency,
            from: closing.hours.from,
            gib_price: prices.gib,
            gpu_price: prices.gpu,
            hash: hex(&chained(&digests, sha256)),
            installation: closing.installation,
            lines: digests.len() as u64,
            month: closing.month.clone(),
            previous: hex(&previous),
            statement: STATEMENT_FORM,
            time_zone: closing.time_zone.clone(),
            until: closing.hours.until,
        };
        let statement = head.canonical();
        let signature = sign(statement.as_bytes())?;
        self.connection
            .prepare_cached(
                "insert into closed_month
                     (month, from_hour, until_hour, closed_at, statement, signature)
                 values (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute((
                head.month.as_str(),
                head.from,
                head.until,
                head.closed_at.as_millis(),
                statement.as_str(),
                &signature,
            ))?;
        let mut insert = self.connection.prepare_cached(
            "insert into statement_line (month, position, domain, project, owner, statement, digest)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        for ((line, text), digest) in lines.iter().zip(&texts).zip(&digests) {
            insert.execute((
                head.month.as_str(),
                value::signed(line.position),
                line.domain_id.map(|id| *id.0.as_bytes()),
                line.project_id.map(|id| *id.0.as_bytes()),
                line.user_id.map(|id| *id.0.as_bytes()),
                text.as_str(),
                digest,
            ))?;
        }
        self.connection
            .prepare_cached("delete from late_usage")?
            .execute([])?;
        Ok(ClosedMonthRow {
            head,
            statement,
            signature,
        })
    }

    /// Sets what an hour costs; without a currency there are no prices.
    pub(crate) fn put_prices(&self, prices: &HourPrices) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update price
                 set currency = ?1, gpu = ?2, core = ?3, gib = ?4, generation = generation + 1
                 where id = 1",
            )?
            .execute((
                prices.currency.as_str(),
                value::signed(prices.gpu),
                value::signed(prices.core),
                value::signed(prices.gib),
            ))?;
        Ok(())
    }
}
