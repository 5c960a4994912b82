//! One page of the table of sessions: in which order, replicas of a launch as one row or each, and how many rows
//! there are in all. Filters are those of `listing`; nothing here decides who may see what.

use rules::names::SessionId;
use rules::permissions::Reach;
use rules::session::Outcome;
use rusqlite::types::Value;

use super::listing::{SessionFilter, filter_clause};
use super::reader::ReadTransaction;
use super::value;
use crate::Failure;

/// Where a session stands in the usual order. Written as in the index `session_standing`, or SQLite would not use it.
const STANDING: &str = "case state when 'ended' then 0 when 'pending' then 1 else 2 end";
/// A name without its number, as the index has it.
const BASE: &str = "rtrim(name, '0123456789')";
/// The launch that a session belongs to, as the index has it.
const LAUNCH: &str = "coalesce(launch, id)";
/// Rows that a total counts. Higher: a page of a long history costs more. Lower: the total of a shorter one is only a
/// lower bound.
const MAX_COUNTED: u32 = 10_000;

/// By what the table is sorted; the id breaks ties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableSort {
    /// What runs, what waits, what ended, each newest first.
    Standing,
    Name,
    Created,
    Ended,
    Cpu,
    Memory,
    Gpu,
}

impl TableSort {
    fn column(self) -> &'static str {
        match self {
            Self::Standing => STANDING,
            Self::Name => "lower(name)",
            Self::Created => "created_at",
            Self::Ended => "coalesce(ended_at, 0)",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Gpu => "gpu",
        }
    }
}

/// Which rows of the table, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableOrder {
    pub(crate) sort: TableSort,
    pub(crate) descending: bool,
    /// Replicas of one launch that stand alike are one row. Only in the usual order.
    pub(crate) grouped: bool,
    pub(crate) offset: u64,
    pub(crate) limit: u32,
}

/// Replicas of one launch that ended alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaEnds {
    pub outcome: Outcome,
    /// False where they never ran.
    pub ran: bool,
    pub count: u64,
}

/// How many rows the table has, and how many sessions they are. Counted up to 10,000 rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TableCount {
    pub(crate) rows: u64,
    pub(crate) sessions: u64,
}

impl ReadTransaction<'_> {
    /// The first session of each row, and how many it stands for. Reads the index where nothing but the reach
    /// filters: rows before `offset` cost about a microsecond each.
    pub(crate) fn table_rows(
        &self,
        reach: &Reach,
        filter: &SessionFilter,
        order: &TableOrder,
    ) -> Result<Vec<(SessionId, u64)>, Failure> {
        let (clauses, mut values) = filter.sql(reach);
        values.push(Value::Integer(order.limit.into()));
        values.push(Value::Integer(
            i64::try_from(order.offset).unwrap_or(i64::MAX),
        ));
        let filtered = filter_clause(&clauses);
        let direction = if order.descending { "desc" } else { "asc" };
        let grouped = order.grouped && order.sort == TableSort::Standing;
        let query = match (grouped, order.sort) {
            (true, _) => format!(
                "select min(id) as first, count(*) as n
                 from session
                 {filtered}
                 group by {STANDING}, created_at, owner, {BASE}, {LAUNCH}
                 order by {STANDING} desc, created_at desc, owner desc, {BASE} desc, {LAUNCH} desc
                 limit ? offset ?"
            ),
            (false, TableSort::Standing) => format!(
                "select id as first, 1 as n
                 from session
                 {filtered}
                 order by {STANDING} desc, created_at desc, owner desc, {BASE} desc, {LAUNCH} desc, id desc
                 limit ? offset ?"
            ),
            (false, sort) => format!(
                "select id as first, 1 as n
                 from session
                 {filtered}
                 order by {column} {direction}, id {direction}
                 limit ? offset ?",
                column = sort.column()
            ),
        };
        let mut statement = self.connection.prepare_cached(&query)?;
        let rows = statement.query_map(rusqlite::params_from_iter(values), |row| {
            Ok((SessionId(value::id(row, 0)?), value::unsigned(row, "n")?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// One page of the table, and how many rows it has in all.
    ///
    /// Where nothing but the reach filters, O(offset + limit) in the index and a count of it. Where a text filters, one
    /// visit of each session, O(sessions), serves page and count; both end at 10,000 rows.
    pub(crate) fn table_page(
        &self,
        reach: &Reach,
        filter: &SessionFilter,
        order: &TableOrder,
    ) -> Result<(Vec<(SessionId, u64)>, TableCount), Failure> {
        let end = order.offset.saturating_add(order.limit.into());
        if !filter.looks_at_text() || end > MAX_COUNTED.into() {
            let count = self.table_count(reach, filter, order.grouped)?;
            return Ok((self.table_rows(reach, filter, order)?, count));
        }
        let all = TableOrder {
            offset: 0,
            limit: MAX_COUNTED,
            ..*order
        };
        let mut rows = self.table_rows(reach, filter, &all)?;
        let count = TableCount {
            rows: rows.len() as u64,
            sessions: rows.iter().map(|(_, replicas)| replicas).sum(),
        };
        rows.truncate(usize::try_from(end).unwrap_or(usize::MAX));
        let skipped = usize::try_from(order.offset).unwrap_or(usize::MAX);
        rows.drain(..skipped.min(rows.len()));
        Ok((rows, count))
    }

    /// How many rows and sessions the table has. Costs a visit of each in the index, and of each row where
    /// something filters; at most 10,000.
    fn table_count(
        &self,
        reach: &Reach,
        filter: &SessionFilter,
        grouped: bool,
    ) -> Result<TableCount, Failure> {
        let (clauses, mut values) = filter.sql(reach);
        values.push(Value::Integer(MAX_COUNTED.into()));
        let filtered = filter_clause(&clauses);
        let rows = match grouped {
            true => format!(
                "select count(*) as n from session {filtered}
                 group by {STANDING}, created_at, owner, {BASE}, {LAUNCH} limit ?"
            ),
            false => format!("select 1 as n from session {filtered} limit ?"),
        };
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select count(*) as rows, coalesce(sum(n), 0) as sessions from ({rows})"
            ))?
            .query_row(rusqlite::params_from_iter(values), |row| {
                Ok(TableCount {
                    rows: value::unsigned(row, "rows")?,
                    sessions: value::unsigned(row, "sessions")?,
                })
            })?)
    }

    /// How the replicas of a row of ended sessions that the filter finds ended, the most frequent end first. Costs a visit of each.
    pub(crate) fn table_row_ends(
        &self,
        reach: &Reach,
        filter: &SessionFilter,
        first: SessionId,
    ) -> Result<Vec<ReplicaEnds>, Failure> {
        let (mut clauses, values) = SessionFilter {
            replicas: vec![first],
            ..filter.clone()
        }
        .sql(reach);
        clauses.push("state = 'ended'".to_owned());
        let mut statement = self.connection.prepare_cached(&format!(
            "select outcome, started_at is not null as ran, count(*) as n
             from session
             {}
             group by outcome, ran
             order by n desc, outcome",
            filter_clause(&clauses)
        ))?;
        let rows = statement.query_map(rusqlite::params_from_iter(values), |row| {
            let outcome: String = row.get("outcome")?;
            Ok(ReplicaEnds {
                // A word of a newer release is no success.
                outcome: Outcome::parse(&outcome).unwrap_or(Outcome::Lost),
                ran: row.get("ran")?,
                count: value::unsigned(row, "n")?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The sessions of a row of the table that begins with `first`: replicas of its launch that stand as it does, at
    /// most `limit`, in the order of their ids.
    pub(crate) fn table_row_members(
        &self,
        reach: &Reach,
        first: SessionId,
        limit: u32,
    ) -> Result<Vec<SessionId>, Failure> {
        let (mut clauses, mut values) = SessionFilter {
            replicas: vec![first],
            ..SessionFilter::default()
        }
        .sql(reach);
        clauses.push(format!(
            "{STANDING} = (select {STANDING} from session where id = ?)"
        ));
        values.push(Value::Blob(first.0.as_bytes().to_vec()));
        values.push(Value::Integer(limit.into()));
        let mut statement = self.connection.prepare_cached(&format!(
            "select id from session {} order by id limit ?",
            filter_clause(&clauses)
        ))?;
        let rows = statement.query_map(rusqlite::params_from_iter(values), |row| {
            Ok(SessionId(value::id(row, 0)?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
