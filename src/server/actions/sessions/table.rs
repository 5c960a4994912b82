//! The table of sessions as the console shows it: pages with counts, replicas of a launch as one row, why each
//! waiting session waits, and the same rows as a file. The REST API pages by cursors, in `sessions`.

use api::sessions::SessionView;
use rules::names::SessionId;
use rules::permissions::{Permission, Reach, own, reach};
use rules::placement::Explanation;
use rules::refusals;
use rules::session::{Session, SessionState};

use super::view::NameCache;
use super::{MAX_PAGE_ITEMS, explained_all, find};
use crate::access::Caller;
use crate::actions::{allowed, query};
pub use crate::catalog::session_table::{ReplicaAmounts, ReplicaEnds};
use crate::catalog::session_table::{TableOrder, TableSort};
use crate::{Failure, Server};

/// Waiting sessions of one page that are explained, with one walk of the queue for all. Higher: more of a long page is
/// said in the list. Lower: a page of 500 rows costs less.
const MAX_ROWS_EXPLAINED: usize = 50;
/// Rows of a file of comma-separated values.
const MAX_EXPORTED: u32 = 10_000;

/// What a page of the table is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableQuery {
    /// Query language; empty for everything.
    pub q: String,
    /// `name`, `created_at`, `ended_at`, `cpu`, `memory` or `gpu`, `-` before it for the reverse; empty: what runs,
    /// what waits, what ended, each newest first.
    pub sort: String,
    /// `mine`, or all that the caller may see.
    pub scope: String,
    /// Replicas of one launch that stand alike are one row.
    pub grouped: bool,
    pub offset: u64,
    /// 1 to 500.
    pub limit: u32,
}

/// One row: a session, and how many replicas it stands for.
#[derive(Debug, Clone, PartialEq)]
pub struct TableItem {
    /// The first of them.
    pub session: SessionView,
    /// 1 for a session of its own.
    pub replicas: u64,
    /// How replicas that ended did; empty for a session of its own, and for what is alive.
    pub ends: Vec<ReplicaEnds>,
    /// What they were given together; none for a session of its own.
    pub amounts: Option<ReplicaAmounts>,
    /// Why it waits; none for what does not wait, and beyond the first 50 of a page that do.
    pub why: Option<Explanation>,
}

/// One page of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct TablePage {
    pub items: Vec<TableItem>,
    /// Rows of all pages, counted up to 10,000.
    pub rows: u64,
    /// Sessions that these rows stand for.
    pub sessions: u64,
}

/// One page of the sessions that the caller may see.
///
/// Errors: what cannot be read in the query, the order or the scope. O(page), a count in an index of at most 10,000
/// rows, a visit of each replica that rows of the page stand for, and some explanations; O(sessions) where a text filters.
/// Asked again while no row changes it reads the sessions of the page, and those replicas, alone.
pub async fn table(
    server: &Server,
    caller: &Caller,
    wanted: &TableQuery,
) -> Result<TablePage, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let filter = query::parse(&wanted.q)?;
    let reach = reach_of(caller, &wanted.scope)?;
    let (sort, descending) = sort_of(&wanted.sort)?;
    if !(1..=MAX_PAGE_ITEMS).contains(&wanted.limit) {
        return Err(refusals::limit_out_of_range(MAX_PAGE_ITEMS)
            .at("/limit")
            .into());
    }
    // The replicas of one launch, asked for by name, are shown each.
    let grouped = wanted.grouped && sort == TableSort::Standing && filter.replicas.is_empty();
    let order = TableOrder {
        sort,
        descending,
        grouped,
        offset: wanted.offset,
        limit: wanted.limit,
    };
    let (caller, now) = (caller.clone(), server.clock().now());
    let snapshot = server.snapshot().await?;
    let shared = server.clone();
    server
        .catalog()
        .read("show the table of sessions", move |view| {
            let snapshots = shared.snapshots();
            let (rows, count) = snapshots.table_page(view, &reach, &filter, &order)?;
            let mut names = NameCache::new(view)?;
            let mut items = Vec::new();
            let mut waiting = Vec::new();
            for (id, replicas) in rows {
                let Some(row) = view.session(id)? else {
                    continue;
                };
                let ends = match (replicas, row.state()) {
                    (2.., SessionState::Ended) => view.table_row_ends(&reach, &filter, id)?,
                    _ => Vec::new(),
                };
                let amounts = match replicas {
                    2.. => Some(view.table_row_amounts(&reach, &filter, id)?),
                    _ => None,
                };
                items.push(TableItem {
                    session: names.show(&row)?,
                    replicas,
                    ends,
                    amounts,
                    why: None,
                });
                if row.state() == SessionState::Pending && waiting.len() < MAX_ROWS_EXPLAINED {
                    waiting.push((items.len() - 1, row));
                }
            }
            let (places, waiting): (Vec<usize>, Vec<Session>) = waiting.into_iter().unzip();
            let told = explained_all(&snapshot, &waiting, &caller, now);
            for (place, why) in places.into_iter().zip(told) {
                items[place].why = Some(why);
            }
            Ok(TablePage {
                items,
                rows: count.rows,
                sessions: count.sessions,
            })
        })
        .await
}

/// The sessions of a filter in the order of the table, each replica for itself, at most 10,000.
///
/// Errors: as `table`.
pub async fn export(
    server: &Server,
    caller: &Caller,
    wanted: &TableQuery,
) -> Result<Vec<SessionView>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let filter = query::parse(&wanted.q)?;
    let reach = reach_of(caller, &wanted.scope)?;
    let (sort, descending) = sort_of(&wanted.sort)?;
    let order = TableOrder {
        sort,
        descending,
        grouped: false,
        offset: 0,
        limit: MAX_EXPORTED,
    };
    server
        .catalog()
        .read("export the table of sessions", move |view| {
            let mut names = NameCache::new(view)?;
            let rows = view.table_rows(&reach, &filter, &order)?;
            let mut sessions = Vec::with_capacity(rows.len());
            for (id, _) in rows {
                if let Some(row) = view.session(id)? {
                    sessions.push(names.show(&row)?);
                }
            }
            Ok(sessions)
        })
        .await
}

/// The sessions of one row of the table: the session alone, or with `all` the replicas of its launch that stand as
/// it does, at most 500.
///
/// Errors: `session.not-found`, also for what the caller may not see.
pub async fn members(
    server: &Server,
    caller: &Caller,
    id: &str,
    all: bool,
) -> Result<Vec<SessionView>, Failure> {
    let reach = reach(&caller.subject, Permission::SessionsRead);
    server.catalog().read_now("show replicas", |view| {
        let first = find::find(view, caller, Permission::SessionsRead, id)?;
        let ids: Vec<SessionId> = match all {
            true => view.table_row_members(&reach, first.id, MAX_PAGE_ITEMS)?,
            false => vec![first.id],
        };
        let mut names = NameCache::new(view)?;
        let mut sessions = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(row) = view.session(id)? {
                sessions.push(names.show(&row)?);
            }
        }
        Ok(sessions)
    })
}

fn reach_of(caller: &Caller, scope: &str) -> Result<Reach, Failure> {
    match scope {
        "mine" => Ok(own(&caller.subject)),
        "" | "all" => Ok(reach(&caller.subject, Permission::SessionsRead)),
        _ => Err(refusals::session_scope_unknown().at("/scope").into()),
    }
}

fn sort_of(text: &str) -> Result<(TableSort, bool), Failure> {
    let (key, descending) = match text.strip_prefix('-') {
        Some(key) => (key, true),
        None => (text, false),
    };
    let sort = match key {
        "" => TableSort::Standing,
        "name" => TableSort::Name,
        "created_at" => TableSort::Created,
        "ended_at" => TableSort::Ended,
        "cpu" => TableSort::Cpu,
        "memory" => TableSort::Memory,
        "gpu" => TableSort::Gpu,
        _ => return Err(refusals::sort_unknown().at("/sort").into()),
    };
    Ok((sort, descending))
}
