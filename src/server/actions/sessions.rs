//! What a person may do with sessions: launch, look, stop, change. Writes wishes only; passes of the
//! controller make them so.

use api::events::EventView;
use api::page::ListPage;
use api::sessions::{ListQuery, SessionView, WaitingView};
use rules::names::{ContainerName, SessionId, SessionName};
use rules::permissions::{Permission, may};
use rules::placement::{self, Explanation};
use rules::refusal::Refusal;
use rules::session::{SessionKind, SessionState};
use rules::world::ClusterSnapshot;

use super::{allowed, cursor, query};
use crate::access::Caller;
use crate::catalog::listing::ListOrder;
use crate::{Failure, Server};

mod change;
mod find;
mod launch;
mod overview;
#[cfg(test)]
mod tests;
mod view;

pub use change::{delete, pause, rename, resize, restart, resume, set_labels, stop};
pub use launch::{Launched, duplicate, launch, preview};
pub use overview::{HeldSlice, NodeOverview, Overview, OwnUsage, StateCounts, overview, samples};

use find::find;
use view::NameCache;

const MAX_PAGE_ITEMS: u32 = 500;
const USUAL_PAGE: u32 = 50;
/// Waiting sessions that a queue explains. Each costs about one scheduling pass.
const MAX_EXPLAINED: usize = 200;
/// Events of one session that are shown.
const MAX_EVENTS: u32 = 500;

/// One page of sessions the caller may see.
pub async fn list(
    server: &Server,
    caller: &Caller,
    wanted: &ListQuery,
) -> Result<ListPage<SessionView>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let mut filter = query::parse(&wanted.q)?;
    let (key, descending) = query::sort(wanted.sort.as_deref())?;
    let limit = wanted.limit.unwrap_or(USUAL_PAGE);
    if !(1..=MAX_PAGE_ITEMS).contains(&limit) {
        return Err(Refusal::invalid(
            "limit.out-of-range",
            format!("A page has 1 to {MAX_PAGE_ITEMS} items."),
        )
        .at("/limit")
        .into());
    }
    let only_own = match wanted.scope.as_deref() {
        Some("mine") => true,
        None | Some("" | "all") => !sees_all(caller),
        Some(_) => {
            return Err(Refusal::invalid("scope.unknown", "There is no such scope.")
                .at("/scope")
                .hint("mine or all would work.")
                .into());
        }
    };
    filter.owner = only_own.then_some(caller.subject.user);
    let bound = format!(
        "{}|{:?}|{}|{}",
        caller.subject.user,
        wanted.sort.as_deref().unwrap_or_default(),
        only_own,
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
            let mut rows = view.list_sessions(&filter, &order)?;
            let more = rows.len() > limit as usize;
            rows.truncate(limit as usize);
            let next_cursor = rows
                .last()
                .filter(|_| more)
                .map(|last| cursor::write(&signing, &bound, &(key.of(last), last.id)));
            let estimated_total = view.count_sessions(&filter)?;
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
    server
        .catalog()
        .read("explain a session", move |view| {
            let row = find(view, &caller, Permission::SessionsRead, &id)?;
            let world = view.world()?;
            let explained = placement::explain_session(&world, &row, now);
            Ok(discreet(explained, &world, &caller))
        })
        .await
}

/// Everything that waits and that the caller may see, in the order of the queue, each with why. At
/// most 200; positions count everybody's.
pub async fn queue(server: &Server, caller: &Caller) -> Result<Vec<WaitingView>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let (caller, now) = (caller.clone(), server.clock().now());
    server
        .catalog()
        .read("show the queue", move |view| {
            let world = view.world()?;
            let mut waiting = placement::queue(&world, now);
            waiting.retain(|s| sees_all(&caller) || s.owner == caller.subject.user);
            let mut names = NameCache::new(view)?;
            waiting
                .into_iter()
                .take(MAX_EXPLAINED)
                .map(|row| {
                    let explained = placement::explain_session(&world, row, now);
                    Ok(WaitingView {
                        session: names.show(row)?,
                        why: discreet(explained, &world, &caller),
                    })
                })
                .collect()
        })
        .await
}

/// What happened to a session, oldest first; the newest 500.
pub async fn events(server: &Server, caller: &Caller, id: &str) -> Result<Vec<EventView>, Failure> {
    server.catalog().read_now("show a history", |view| {
        let row = find(view, caller, Permission::SessionsRead, id)?;
        let rows = view.events_of(&row.id.to_string(), MAX_EVENTS)?;
        Ok(rows.into_iter().map(view::event).collect())
    })
}

/// Leave to enter a session: its container, and what it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryTicket {
    pub container: ContainerName,
    pub session: SessionId,
    pub name: SessionName,
    pub kind: SessionKind,
    pub state: SessionState,
}

/// Checks that the caller may enter a session: its terminal, commands in it, its ports. The state is
/// given, not checked: the node refuses what is not running.
pub async fn enter(server: &Server, caller: &Caller, id: &str) -> Result<EntryTicket, Failure> {
    ticket(server, caller, Permission::SessionsEnter, id)
}

/// Checks that the caller may read a session's log, which stays after its end.
pub async fn read_logs(server: &Server, caller: &Caller, id: &str) -> Result<EntryTicket, Failure> {
    ticket(server, caller, Permission::SessionsRead, id)
}

fn ticket(
    server: &Server,
    caller: &Caller,
    verb: Permission,
    id: &str,
) -> Result<EntryTicket, Failure> {
    server.catalog().read_now("enter a session", |view| {
        let row = find(view, caller, verb, id)?;
        Ok(EntryTicket {
            container: row.container(),
            session: row.id,
            name: row.name,
            kind: row.order.kind,
            state: row.phase,
        })
    })
}

/// Whether the caller may see sessions of everybody.
pub(super) fn sees_all(caller: &Caller) -> bool {
    let somebody_else = rules::names::UserId(uuid::Uuid::max());
    may(
        &caller.subject,
        Permission::SessionsRead,
        Some(somebody_else),
    )
    .is_ok()
}

/// An explanation as the caller may read it: sessions of others lose their names.
fn discreet(mut explained: Explanation, world: &ClusterSnapshot, caller: &Caller) -> Explanation {
    if sees_all(caller) {
        return explained;
    }
    let own = |id: SessionId| {
        world
            .session(id)
            .is_some_and(|session| session.owner == caller.subject.user)
    };
    for blocker in &mut explained.blockers {
        if blocker.ends_with.is_some_and(|id| !own(id)) {
            let before = std::mem::take(&mut blocker.text);
            let (code, text) = match blocker.code.as_str() {
                "queue.behind" => (
                    "queue.behind-other",
                    "A session of another user is in front of it and waits for room.",
                ),
                "queue.kept" => (
                    "queue.kept-other",
                    "The free resources are reserved for an earlier session of another user.",
                ),
                _ => (
                    "dependency.waiting-other",
                    "It waits for a session of another user.",
                ),
            };
            blocker.code = code.to_owned();
            blocker.text = text.to_owned();
            if explained.sentence == before {
                explained.sentence.clone_from(&blocker.text);
            }
            blocker.params.remove("session");
            blocker.ends_with = None;
        }
    }
    if let Some(eta) = &mut explained.eta {
        eta.basis = "Sessions in its way end at their own limits by then.".to_owned();
    }
    explained
}
