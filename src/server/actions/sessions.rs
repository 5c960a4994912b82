//! What a user may do with sessions: launch, look, stop, change. Writes what is desired only; passes of the
//! controller make them so.

use api::events::EventView;
use api::page::ListPage;
use api::sessions::{ConnectionView, ListQuery, SessionView};
use rules::blockers;
use rules::names::{ContainerName, SessionId, SessionName};
use rules::notices;
use rules::permissions::{Permission, own, reach};
use rules::placement::{self, Explanation};
use rules::reasons;
use rules::refusal::Refusal;
use rules::refusals;
use rules::session::{Session, SessionKind, SessionState};
use rules::tenancy::Scope;
use rules::units::Timestamp;
use rules::workload::container::index_of;
use rules::world::ClusterSnapshot;

use super::{allowed, budgets, cursor, query};
use crate::access::{Caller, repeated};
use crate::catalog::ReadTransaction;
use crate::catalog::listing::ListOrder;
use crate::snapshot::Snapshot;
use crate::{Failure, Server};

mod change;
mod commit;
pub(super) mod find;
mod launch;
pub(super) mod overview;
mod queue;
pub mod table;
#[cfg(test)]
mod tests;
pub(super) mod view;

pub(crate) use change::extend_row;
pub use change::{
    delete, hold, pause, preview_change, release, rename, resize, restart, resume, set_labels,
    set_priority, set_time_limit, stop, stop_saying,
};
pub use commit::{commit, preview_commit};
pub(crate) use launch::{
    LaunchForMembers, USUAL_LIMITS, effective_limits, limits_of_user, project_of_launch,
};
pub use launch::{
    Launched, duplicate, has_networks, holds_disks, launch, offers_sudo, preview, usual_disk,
};
pub use overview::{
    HeldSlice, MenuCounts, NodeOverview, Overview, OwnUsage, StateCounts, menu_counts, overview,
    samples,
};
pub(super) use queue::cause_word;
pub use queue::{
    MAX_QUEUE_EXPORTED, PlannedSession, QUEUE_PAGE, QueueFilter, QueueView, WaitingLaunch,
    next_in_place, queue, queue_mark, queue_page, queue_table, wait_word,
};

use find::{find, find_of_owner, find_to_enter};
use view::NameCache;

const MAX_PAGE_ITEMS: u32 = 500;
const USUAL_PAGE: u32 = 50;
/// Events of one session that are shown.
const MAX_EVENTS: u32 = 500;

/// One page of sessions the caller may see.
pub async fn list(
    server: &Server,
    caller: &Caller,
    wanted: &ListQuery,
) -> Result<ListPage<SessionView>, Failure> {
    page_of(server, caller, wanted, true).await
}

/// The same without a total, which would cost a visit of every session that fits: `estimated_total` is the
/// number of items.
pub async fn list_uncounted(
    server: &Server,
    caller: &Caller,
    wanted: &ListQuery,
) -> Result<ListPage<SessionView>, Failure> {
    page_of(server, caller, wanted, false).await
}

/// Running sessions that the caller may see, newest first, at most 500. Reads no row of its own.
pub async fn running(server: &Server, caller: &Caller) -> Result<Vec<SessionView>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let snapshot = server.snapshot().await?;
    let (world, reach) = (
        &snapshot.world,
        reach(&caller.subject, Permission::SessionsRead),
    );
    Ok(world
        .sessions
        .iter()
        .rev()
        .filter(|row| row.state() == SessionState::Running)
        .filter(|row| reach.covers(&row.scope()))
        .take(MAX_PAGE_ITEMS as usize)
        .filter_map(|row| {
            let owner = snapshot.names.get(&row.owner)?.clone();
            let project = snapshot.projects.get(&row.project)?.clone();
            let (nodes, policy) = (&world.nodes, world.policy);
            let group = view::group_name(&world.groups, row.id);
            Some(view::session(row, owner, (project, group), nodes, policy))
        })
        .collect())
}

async fn page_of(
    server: &Server,
    caller: &Caller,
    wanted: &ListQuery,
    counted: bool,
) -> Result<ListPage<SessionView>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let filter = query::parse(&wanted.q)?;
    let (key, descending) = query::sort(wanted.sort.as_deref())?;
    let limit = wanted.limit.unwrap_or(USUAL_PAGE);
    if !(1..=MAX_PAGE_ITEMS).contains(&limit) {
        return Err(refusals::limit_out_of_range(MAX_PAGE_ITEMS)
            .at("/limit")
            .into());
    }
    let reach = match wanted.scope.as_deref() {
        Some("mine") => own(&caller.subject),
        None | Some("" | "all") => reach(&caller.subject, Permission::SessionsRead),
        Some(_) => {
            return Err(refusals::session_scope_unknown().at("/scope").into());
        }
    };
    let bound = format!(
        "{}|{:?}|{}|{}",
        caller.subject.user,
        wanted.sort.as_deref().unwrap_or_default(),
        !reach.is_everything(),
        wanted.q
    );
    let signing = server.catalog().founding().cursor_key;
    let after = match wanted.cursor.as_deref() {
        None | Some("") => None,
        Some(text) => Some(cursor::read(&signing, &bound, text)?),
    };
    server
        .catalog()
        .read("list sessions", move |view| {
            // One row more than the page tells whether another page follows.
            let order = ListOrder {
                key,
                descending,
                after,
                limit: limit + 1,
            };
            let mut rows = view.list_sessions(&reach, &filter, &order)?;
            let more = rows.len() > limit as usize;
            rows.truncate(limit as usize);
            let next_cursor = rows
                .last()
                .filter(|_| more)
                .map(|last| cursor::write(&signing, &bound, &(key.of(last), last.id)));
            let estimated_total = match counted {
                true => view.count_sessions(&reach, &filter)?,
                false => rows.len() as u64,
            };
            let mut names = NameCache::new(view)?;
            let items = rows
                .iter()
                .map(|row| names.show(row))
                .collect::<Result<_, _>>()?;
            Ok(ListPage {
                items,
                next_cursor,
                estimated_total,
            })
        })
        .await
}

/// One session, by id, name, or a prefix of the id that only one session has. A name means the live
/// session of that name, else the newest one that ended; the caller's own before others'.
///
/// Errors: `session.not-found`, also for what the caller may not see; `session.ambiguous`.
pub async fn get(server: &Server, caller: &Caller, id: &str) -> Result<SessionView, Failure> {
    server.catalog().read_now("show a session", |view| {
        let row = find(view, caller, Permission::SessionsRead, id)?;
        NameCache::new(view)?.show(&row)
    })
}

/// Why a session is where it is: what it waits for, or where it went and why.
pub async fn why(server: &Server, caller: &Caller, id: &str) -> Result<Explanation, Failure> {
    let (caller, id, now) = (caller.clone(), id.to_owned(), server.clock().now());
    let snapshot = server.snapshot().await?;
    server
        .catalog()
        .read("explain a session", move |view| {
            let row = find(view, &caller, Permission::SessionsRead, &id)?;
            explained(view, &snapshot, &row, &caller, now)
        })
        .await
}

/// What a session connects to outside, and what was refused, the latest first; at most 64 rows.
///
/// Errors: those of `get`.
pub async fn connections(
    server: &Server,
    caller: &Caller,
    id: &str,
) -> Result<Vec<ConnectionView>, Failure> {
    server.catalog().read_now("show connections", |view| {
        let row = find(view, caller, Permission::SessionsRead, id)?;
        connections_of(view, &row)
    })
}

/// The same of a session that was found.
pub(super) fn connections_of(
    view: &ReadTransaction<'_>,
    row: &Session,
) -> Result<Vec<ConnectionView>, Failure> {
    let rows = view.connections_of(row.id)?.into_iter();
    let shown = rows.map(|one| ConnectionView {
        incarnation: one.incarnation,
        host: one.row.host,
        port: one.row.port,
        outcome: one.row.outcome.word().to_owned(),
        count: one.row.count,
        sent: one.row.sent,
        received: one.row.received,
        first_at: one.first_at,
        last_at: one.row.last_at,
    });
    Ok(shown.collect())
}

/// Why a session is where it is, and what it takes of budgets, as the caller may read it.
pub(super) fn explained(
    view: &ReadTransaction<'_>,
    snapshot: &Snapshot,
    row: &Session,
    caller: &Caller,
    now: Timestamp,
) -> Result<Explanation, Failure> {
    let world = &snapshot.world;
    // Of the snapshot's moment, so that it is explained by the sessions beside it.
    let mut explained = match world.session(row.id) {
        Some(live) => snapshot.explain(live, now),
        None => placement::explain_session(world, row, now),
    };
    if row.state() != SessionState::Ended {
        let (whose, wanted) = ((row.project, row.owner), (&row.spec, 1));
        let budgets = budgets::checks(view, caller, whose, wanted, Some(row.id), now)?;
        explained.checks.extend(budgets);
    }
    Ok(discreet(explained, world, caller))
}

/// The same for several, in their order, with one walk of the queue.
fn explained_all(
    snapshot: &Snapshot,
    rows: &[Session],
    caller: &Caller,
    now: Timestamp,
) -> Vec<Explanation> {
    let world = &snapshot.world;
    let live: Vec<&Session> = rows
        .iter()
        .map(|row| world.session(row.id).unwrap_or(row))
        .collect();
    let told = snapshot.explain_all(&live, now).into_iter();
    told.map(|told| discreet(told, world, caller)).collect()
}

/// What happened to a session, oldest first; the newest 500.
pub async fn events(server: &Server, caller: &Caller, id: &str) -> Result<Vec<EventView>, Failure> {
    server.catalog().read_now("show a history", |view| {
        let row = find(view, caller, Permission::SessionsRead, id)?;
        history(view, &row)
    })
}

/// The newest events of a session, oldest first.
pub(super) fn history(
    view: &ReadTransaction<'_>,
    row: &Session,
) -> Result<Vec<EventView>, Failure> {
    let rows = view.events_of(&row.id.to_string(), MAX_EVENTS)?;
    Ok(rows.into_iter().map(view::event).collect())
}

/// Leave to enter a session: its container, the main one unless another is asked for, and what it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryTicket {
    pub container: ContainerName,
    /// How many it has.
    pub containers: u32,
    pub session: SessionId,
    pub name: SessionName,
    pub kind: SessionKind,
    pub state: SessionState,
}

impl EntryTicket {
    /// The same for the container that is called so, `main1` or `sub1`; for the same one where none is named.
    ///
    /// Errors: `container.not-found`.
    pub fn within(mut self, container: Option<&str>) -> Result<Self, Refusal> {
        if let Some(name) = container {
            let unknown = || refusals::container_unknown(&self.name, name).at("/container");
            let index = index_of(name).filter(|index| *index < self.containers);
            self.container.index = index.ok_or_else(unknown)?;
        }
        Ok(self)
    }
}

/// Checks that the caller may enter a session: its terminal, commands in it, its ports. The state is
/// given, not checked: the node refuses what is not running.
pub async fn enter(server: &Server, caller: &Caller, id: &str) -> Result<EntryTicket, Failure> {
    let now = server.clock().now();
    let (ticket, scope) = server.catalog().read_now("enter a session", |view| {
        Ok(entry(find_to_enter(view, caller, id, now)?))
    })?;
    repeated::entered(server, caller, ticket.session.to_string(), scope);
    Ok(ticket)
}

/// As `enter`, of a session as SSH names it: `SESSION`, or `OWNER+SESSION` for one of another user; behind it, where one is
/// meant that is not the main one, a dot and the name of the container.
pub async fn enter_by_name(
    server: &Server,
    caller: &Caller,
    text: &str,
) -> Result<EntryTicket, Failure> {
    let (text, container) = with_container(text);
    let Some((owner, name)) = text.split_once('+') else {
        return Ok(enter(server, caller, text).await?.within(container)?);
    };
    let now = server.clock().now();
    let (ticket, scope) = server.catalog().read_now("enter a session", |view| {
        let row = find_of_owner(view, caller, (owner, name), now)?;
        Ok(entry(row))
    })?;
    repeated::entered(server, caller, ticket.session.to_string(), scope);
    Ok(ticket.within(container)?)
}

/// `SESSION.sub1` as the two names that it is. The name of a session has no dot; that of a user may.
fn with_container(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once('.') {
        Some((session, name)) if index_of(name).is_some() => (session, Some(name)),
        _ => (text, None),
    }
}

/// Checks that the caller may read a session's log, which stays after its end. Who reads that of another has a row of the
/// audit log.
pub async fn read_logs(server: &Server, caller: &Caller, id: &str) -> Result<EntryTicket, Failure> {
    let (ticket, scope) = server.catalog().read_now("read a log", |view| {
        Ok(entry(find(view, caller, Permission::SessionsRead, id)?))
    })?;
    if scope.owner != Some(caller.subject.user) {
        repeated::read_log(server, caller, ticket.session.to_string(), scope);
    }
    Ok(ticket)
}

fn entry(row: Session) -> (EntryTicket, Scope) {
    let scope = row.scope();
    let ticket = EntryTicket {
        container: row.container(),
        containers: row.spec.containers,
        session: row.id,
        state: row.state(),
        name: row.name,
        kind: row.spec.kind,
    };
    (ticket, scope)
}

/// An explanation as the caller may read it: sessions of others lose their names.
fn discreet(mut explained: Explanation, world: &ClusterSnapshot, caller: &Caller) -> Explanation {
    let reach = reach(&caller.subject, Permission::SessionsRead).or_own(&caller.subject);
    if reach.is_everything() {
        return explained;
    }
    let own = |id: SessionId| {
        let session = world.session(id);
        session.is_some_and(|session| reach.covers(&session.scope()))
    };
    let reserved = explained.alternatives.iter_mut();
    let reserved = reserved.filter_map(|other| other.because.as_mut());
    for blocker in explained.blockers.iter_mut().chain(reserved) {
        if blocker.ends_with.is_some_and(|id| !own(id)) {
            let before = std::mem::take(&mut blocker.text);
            *blocker = match blocker.code.as_str() {
                rules::codes::QUEUE_BEHIND => blockers::queue_behind_other(),
                rules::codes::QUEUE_KEPT => blockers::queue_kept_other(),
                rules::codes::QUEUE_REST_KEPT => blockers::queue_rest_kept_other(),
                _ => blockers::dependency_waiting_other(),
            };
            if explained.sentence == before {
                explained.sentence.clone_from(&blocker.text);
            }
        }
    }
    if let (Some(eta), Some(outlook)) = (&mut explained.eta, &mut explained.outlook) {
        let unnamed = match outlook.code.as_str() {
            rules::codes::START_EXPECTED => Some(reasons::start_expected_other(eta.at)),
            rules::codes::START_EXPECTED_AGAIN => Some(reasons::start_expected_again_other(eta.at)),
            _ => None,
        };
        if let Some(unnamed) = unnamed {
            eta.basis = notices::explain_limits_reached().text;
            *outlook = unnamed;
        }
    }
    explained
}
