//! One page of the table of sessions: in which order, replicas of a launch as one row or each, and how many rows
//! there are in all. Filters are those of `listing`; nothing here decides who may see what.

use rules::names::SessionId;
use rules::permissions::Reach;
use rules::session::{Outcome, SessionState};
use rules::units::{Bytes, CpuShare, GpuShare};
use rusqlite::Row;
use rusqlite::types::Value;

use super::listing::{SessionFilter, filter_clause};
use super::reader::ReadTransaction;
use super::value;
use crate::Failure;

/// Where a session stands in the usual order. Written as in the index `session_standing`, or SQLite would not use it.
const STANDING: &str = "case state when 'ended' then 0 when 'pending' then 1 else 2 end";

/// What `STANDING` gives for a session in a state.
fn standing(state: SessionState) -> u8 {
    match state {
        SessionState::Ended => 0,
        SessionState::Pending => 1,
        SessionState::Scheduled
        | SessionState::Preparing
        | SessionState::Running
        | SessionState::Stopping => 2,
    }
}

/// A name without its number, as the index has it.
const BASE: &str = "rtrim(name, '0123456789')";
/// The launch that a session belongs to, as the index has it.
const LAUNCH: &str = "coalesce(launch, id)";
/// Rows that a total counts. Higher: a page of a long history costs more. Lower: the total of a shorter one is only a
/// lower bound.
const MAX_COUNTED: u32 = 10_000;
/// Sessions that are found first and sorted then, where all of them may stand at the end of the index of the order. Higher:
/// more are read for a page of few. Lower: to find one in so many, more of a long history is read in that order.
const FEW: u64 = 1_000;

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

/// What replicas of one launch that stand alike were given together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaAmounts {
    pub cpu: CpuShare,
    pub memory: Bytes,
    pub gpu: GpuShare,
    /// Each of them has the same.
    pub are_equal: bool,
}

/// How many rows the table has, and how many sessions they are. Counted up to 10,000 rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TableCount {
    pub(crate) rows: u64,
    pub(crate) sessions: u64,
}

impl ReadTransaction<'_> {
    /// The first session of each row, and how many it stands for. Reads the index where nothing but the reach and states
    /// filter: rows before `offset` cost about a microsecond each. Each order has an index of its own.
    pub(crate) fn table_rows(
        &self,
        reach: &Reach,
        filter: &SessionFilter,
        order: &TableOrder,
    ) -> Result<Vec<(SessionId, u64)>, Failure> {
        if filter.reads_all(reach) && order.offset == 0 && order.limit >= MAX_COUNTED {
            let rows = self.rows_found_first(reach, filter, order)?;
            let sessions: u64 = rows.iter().map(|(_, replicas)| replicas).sum();
            // Of more than that the first in the order may be among those that were not looked at.
            if sessions < MAX_COUNTED.into() {
                return Ok(rows);
            }
        }
        let (clauses, values) = match order.sort {
            TableSort::Standing => in_standing(reach, filter),
            _ => filter.sql(reach),
        };
        let filtered = filter_clause(&clauses);
        self.rows_from(&format!("session {filtered}"), values, order)
    }

    /// The same of a filter that lets few through, at most 10,000: they are found first and sorted then. Costs no more than
    /// a visit of each session as it lies in the table.
    fn rows_found_first(
        &self,
        reach: &Reach,
        filter: &SessionFilter,
        order: &TableOrder,
    ) -> Result<Vec<(SessionId, u64)>, Failure> {
        let (clauses, values) = in_standing(reach, filter);
        let index = match filter.reads_all(reach) {
            true => "not indexed",
            false => "",
        };
        let found = format!(
            "(select id, name, owner, cpu, memory, gpu, state, created_at, ended_at, launch
              from session {index}
              {}
              limit {MAX_COUNTED})",
            filter_clause(&clauses)
        );
        self.rows_from(&found, values, order)
    }

    fn rows_from(
        &self,
        sessions: &str,
        mut values: Vec<Value>,
        order: &TableOrder,
    ) -> Result<Vec<(SessionId, u64)>, Failure> {
        values.push(Value::Integer(order.limit.into()));
        values.push(Value::Integer(
            i64::try_from(order.offset).unwrap_or(i64::MAX),
        ));
        let direction = if order.descending { "desc" } else { "asc" };
        let grouped = order.grouped && order.sort == TableSort::Standing;
        let query = match (grouped, order.sort) {
            (true, _) => format!(
                "select min(id) as first, count(*) as n
                 from {sessions}
                 group by {STANDING}, created_at, owner, {BASE}, {LAUNCH}
                 order by {STANDING} desc, created_at desc, owner desc, {BASE} desc, {LAUNCH} desc
                 limit ? offset ?"
            ),
            (false, TableSort::Standing) => format!(
                "select id as first, 1 as n
                 from {sessions}
                 order by {STANDING} desc, created_at desc, owner desc, {BASE} desc, {LAUNCH} desc, id desc
                 limit ? offset ?"
            ),
            (false, sort) => format!(
                "select id as first, 1 as n
                 from {sessions}
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
    /// visit of each session, O(sessions), some 0.4 microseconds each, serves page and count; both end at 10,000 rows, and
    /// where so many have the text the visits begin once more, in the order of the page.
    pub(crate) fn table_page(
        &self,
        reach: &Reach,
        filter: &SessionFilter,
        order: &TableOrder,
    ) -> Result<(Vec<(SessionId, u64)>, TableCount), Failure> {
        let end = order.offset.saturating_add(order.limit.into());
        if !filter.looks_at_text() || end > MAX_COUNTED.into() {
            let count = self.table_count(reach, filter, order.grouped)?;
            let narrows = !reach.is_everything() || *filter != SessionFilter::default();
            let is_rare = narrows && order.sort != TableSort::Standing && count.sessions <= FEW;
            let rows = match is_rare {
                true => self.rows_found_first(reach, filter, order)?,
                false => self.table_rows(reach, filter, order)?,
            };
            return Ok((rows, count));
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
        let (clauses, mut values) = in_standing(reach, filter);
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

    /// What the replicas of a row of the table that begins with `first`, as far as the filter finds them, were given together.
    /// Costs a visit of each.
    pub(crate) fn table_row_amounts(
        &self,
        reach: &Reach,
        filter: &SessionFilter,
        first: SessionId,
    ) -> Result<ReplicaAmounts, Failure> {
        let (mut clauses, mut values) = SessionFilter {
            replicas: vec![first],
            ..filter.clone()
        }
        .sql(reach);
        // One that was renamed is a row of its own.
        clauses.push(format!(
            "({STANDING}, created_at, owner, {BASE})
                 = (select {STANDING}, created_at, owner, {BASE} from session where id = ?)"
        ));
        values.push(Value::Blob(first.0.as_bytes().to_vec()));
        let share = |row: &Row<'_>, name: &str| -> rusqlite::Result<u32> {
            let sum = value::unsigned(row, name)?;
            Ok(u32::try_from(sum).unwrap_or(u32::MAX))
        };
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select coalesce(sum(cpu), 0) as all_cpu,
                        coalesce(sum(memory), 0) as all_memory,
                        coalesce(sum(gpu), 0) as all_gpu,
                        count(distinct concat_ws(' ', cpu, memory, gpu, mig)) as sizes
                 from session
                 {}",
                filter_clause(&clauses)
            ))?
            .query_row(rusqlite::params_from_iter(values), |row| {
                Ok(ReplicaAmounts {
                    cpu: CpuShare(share(row, "all_cpu")?),
                    memory: Bytes(value::unsigned(row, "all_memory")?),
                    gpu: GpuShare(share(row, "all_gpu")?),
                    are_equal: value::unsigned(row, "sizes")? <= 1,
                })
            })?)
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

/// The conditions of a filter for a walk of the index `session_standing`, and their values: where it lets states through,
/// only that part of the index is walked, and where those are all that stand there no row is read.
fn in_standing(reach: &Reach, filter: &SessionFilter) -> (Vec<String>, Vec<Value>) {
    let places = filter.states.iter().map(|state| standing(*state));
    let (Some(low), Some(high)) = (places.clone().min(), places.max()) else {
        return filter.sql(reach);
    };
    let mut there = SessionState::ALL.into_iter();
    let is_whole = there
        .all(|state| !(low..=high).contains(&standing(state)) || filter.states.contains(&state));
    let (mut clauses, values) = match is_whole {
        true => SessionFilter {
            states: Vec::new(),
            ..filter.clone()
        }
        .sql(reach),
        false => filter.sql(reach),
    };
    clauses.push(format!("{STANDING} between {low} and {high}"));
    (clauses, values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Server;

    /// Everybody's sessions.
    fn everything() -> Reach {
        rules::permissions::reach(
            &rules::permissions::Subject {
                user: crate::catalog::users::ROOT,
                grants: rules::users::Role::Administrator.grants(),
                domain: rules::tenancy::DomainId::DEFAULT,
                scopes: None,
            },
            rules::permissions::Permission::SystemRead,
        )
    }

    /// More sessions of a text than are looked at as they lie, two of another, and two that run.
    fn many(rows: &crate::catalog::Rows<'_>) -> Result<(), Failure> {
        rows.connection.execute(
            "insert into user (id, name, language, theme, time_zone, suspended, password, created_at, generation)
             values (unhex(format('%032d', 7)), 'abe', '', '', '', 0, '', 0, 1)",
            [],
        )?;
        rows.connection.execute(
            "with recursive numbers(number) as (
                 select 1 union all select number + 1 from numbers where number < 10050
             ), named(number, name, ended) as (
                 select number,
                        case when number in (3, 10049) then 'rare'
                             when number in (5, 9001) then 'live-' || number
                             else 'many' end,
                        number not in (5, 9001)
                 from numbers
             )
             insert into session (id, name, owner, labels, kind, image_reference, command, env, cpu, memory,
                                  shm, gpu, depends_on, state, desired, paused, restart, incarnation,
                                  generation, created_at, queued_at, ended_at, outcome)
             select unhex(format('%032d', number)), name, unhex(format('%032d', 7)), '{}', 'batch', 'host', '[]', '{}',
                    number % 7, 0, 0, 0, '[]', iif(ended, 'ended', 'running'), 'run', 0, 0, 1,
                    1, number, number, iif(ended, number, null), iif(ended, 'succeeded', null)
             from named",
            [],
        )?;
        Ok(())
    }

    /// What is found first and sorted then is what the index of the order gives, also where more are found than are
    /// looked at.
    #[test]
    fn a_page_begins_with_the_first_in_its_order_however_many_a_text_finds() {
        let server = Server::for_tests();
        let written = server
            .catalog()
            .write_now(crate::catalog::Lane::Requests, "sessions", many);
        written.unwrap();
        for (word, states, sort, first, found) in [
            (
                "many",
                vec![],
                TableSort::Standing,
                [0x10050, 0x10048],
                10_000,
            ),
            ("many", vec![], TableSort::Cpu, [0x10044, 0x10037], 10_000),
            ("rare", vec![], TableSort::Standing, [0x10049, 0x3], 2),
            ("rare", vec![], TableSort::Created, [0x10049, 0x3], 2),
            (
                "",
                vec![SessionState::Running],
                TableSort::Cpu,
                [0x9001, 0x5],
                2,
            ),
        ] {
            let filter = SessionFilter {
                states,
                words: word.split_whitespace().map(str::to_owned).collect(),
                ..SessionFilter::default()
            };
            let order = TableOrder {
                sort,
                descending: true,
                grouped: sort == TableSort::Standing,
                offset: 0,
                limit: 50,
            };
            let read = server.catalog().read_now("a page", |view| {
                view.table_page(&everything(), &filter, &order)
            });
            let (rows, count) = read.unwrap();
            let ids: Vec<u128> = rows.iter().map(|(id, _)| id.0.as_u128()).collect();
            assert_eq!(
                (&ids[..2], count.sessions),
                (&first[..], found),
                "{word} {sort:?}"
            );
        }
    }

    fn plan(view: &ReadTransaction<'_>, query: &str) -> String {
        let query = format!("explain query plan {query}");
        let mut plan = view.connection.prepare(&query).unwrap();
        let mut rows = plan.raw_query();
        let mut said: Vec<String> = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            said.push(row.get("detail").unwrap());
        }
        said.join("; ")
    }

    /// A page must not grow with the sessions that it does not show.
    #[test]
    fn every_order_walks_an_index_of_its_own_and_states_only_their_part_of_it() {
        let server = Server::for_tests();
        let read = server.catalog().read_now("explain", |view| {
            for (sort, index) in [
                (TableSort::Name, "session_name"),
                (TableSort::Created, "session_created"),
                (TableSort::Ended, "session_ended_at"),
                (TableSort::Cpu, "session_cpu"),
                (TableSort::Memory, "session_memory"),
                (TableSort::Gpu, "session_gpu"),
            ] {
                let column = sort.column();
                let query = format!(
                    "select id from session where ? is null order by {column} desc, id desc limit 50"
                );
                let said = plan(view, &query);
                assert!(said.contains(index) && !said.contains("TEMP"), "{said}");
            }
            for (states, whole) in [
                (vec![SessionState::Ended], true),
                (vec![SessionState::Pending], true),
                (vec![SessionState::Running], false),
                (vec![SessionState::Ended, SessionState::Running], false),
            ] {
                let filter = SessionFilter {
                    states: states.clone(),
                    ..SessionFilter::default()
                };
                let (clauses, _) = in_standing(&everything(), &filter);
                let filtered = filter_clause(&clauses);
                assert_eq!(!filtered.contains("state = ?"), whole, "{states:?}");
                let said = plan(
                    view,
                    &format!(
                        "select min(id), count(*) from session {filtered}
                         group by {STANDING}, created_at, owner, {BASE}, {LAUNCH}
                         order by {STANDING} desc, created_at desc, owner desc, {BASE} desc, {LAUNCH} desc
                         limit 50"
                    ),
                );
                let walks = said.contains("SEARCH session USING");
                let walks = walks && said.contains("session_standing") && !said.contains("TEMP");
                assert!(walks, "{states:?}: {said}");
            }
            Ok(())
        });
        read.unwrap();
    }
}
