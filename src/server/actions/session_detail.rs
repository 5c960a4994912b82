//! All that rows say about one session and what surrounds it, as of one revision: the session, why it is where it
//! is, its history, the machines and the devices. A page that read them one after another would mix moments.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::events::EventView;
use api::gpus::Gpus;
use api::idle_rules::SessionIdleView;
use api::sessions::{ConnectionView, SessionView};
use rules::blocker::PlacementBlocker;
use rules::names::{FolderId, SessionId};
use rules::permissions::{Permission, may};
use rules::placement::{self, Explanation};
use rules::session::Session;

use super::sessions::find::find;
use super::sessions::overview::{self, Overview};
use super::sessions::view::NameCache;
use super::{allowed, gpus, idle_rules, sessions};
use crate::access::Caller;
use crate::catalog::ReadTransaction;
use crate::snapshot::Snapshot;
use crate::{Failure, Server, ServerFault};

/// One session with everything around it that its page shows. What was measured is not among it: no row has
/// that.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionDetail {
    /// The revision of the catalog that all of this is of.
    pub revision: u64,
    pub session: SessionView,
    pub why: Explanation,
    /// The sessions that it starts after, with the names of those that the caller may see.
    pub after: Vec<(SessionId, Option<String>)>,
    /// Why a restart would give up its place; None where it keeps it, and where it has none.
    pub restart: Option<PlacementBlocker>,
    /// Oldest first.
    pub events: Vec<EventView>,
    /// What it connects to outside, the latest first.
    pub connections: Vec<ConnectionView>,
    pub overview: Overview,
    pub gpus: Gpus,
    /// Warnings of being idle that hold now.
    pub idle: Option<SessionIdleView>,
    /// Whose the folders are that a session of the reader's own mounts, where they are not the reader's.
    pub folder_owners: BTreeMap<FolderId, String>,
}

/// How often a page tries the snapshot that all share before it reads one of its own. Higher: a page waits longer
/// under a flood of commits. Lower: many pages that wake together read the whole cluster each.
const SHARED_TRIES: usize = 3;

/// One session, found as by `sessions::get`, with everything around it. Costs one transaction, and the shared
/// snapshot where no commit came meanwhile.
///
/// Errors: those of `sessions::get`.
pub async fn read(server: &Server, caller: &Caller, id: &str) -> Result<SessionDetail, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    for _ in 1..SHARED_TRIES {
        let shared = server.snapshot().await?;
        if let Some(detail) = read_with(server, caller, id, shared, StaleSnapshot::Leave).await? {
            return Ok(detail);
        }
    }
    let shared = server.snapshot().await?;
    read_beside(server, caller, id, shared).await
}

/// What a read does with a shared snapshot that is older than the rows.
#[derive(Clone, Copy, PartialEq)]
enum StaleSnapshot {
    /// Gives nothing, so that the next shared one is tried.
    Leave,
    /// Reads a snapshot of its own in the same transaction.
    ReadOwn,
}

/// As `read`, with a snapshot that may be older than the rows by now.
async fn read_beside(
    server: &Server,
    caller: &Caller,
    id: &str,
    shared: Arc<Snapshot>,
) -> Result<SessionDetail, Failure> {
    let read = read_with(server, caller, id, shared, StaleSnapshot::ReadOwn).await?;
    read.ok_or_else(|| ServerFault::new("show a session", "its snapshot was left").into())
}

/// None only where the snapshot is stale and left.
async fn read_with(
    server: &Server,
    caller: &Caller,
    id: &str,
    shared: Arc<Snapshot>,
    stale: StaleSnapshot,
) -> Result<Option<SessionDetail>, Failure> {
    let (caller, id, now) = (caller.clone(), id.to_owned(), server.clock().now());
    let own = server.clone();
    server
        .catalog()
        .read("show a session and what surrounds it", move |view| {
            let revision = view.revision()?;
            let snapshot = match (shared.world.revision == revision, stale) {
                (true, _) => shared,
                (false, StaleSnapshot::ReadOwn) => Arc::new(Snapshot::read(view)?),
                (false, StaleSnapshot::Leave) => return Ok(None),
            };
            let row = find(view, &caller, Permission::SessionsRead, &id)?;
            let placed = row.state().holds_resources();
            let restart = match placed {
                true => placement::restart_blocker(&snapshot.world, &row, row.containers(), now),
                false => None,
            };
            Ok(Some(SessionDetail {
                revision,
                restart,
                session: NameCache::new(view)?.show(&row)?,
                why: sessions::explained(view, &snapshot, &row, &caller, now)?,
                after: after(view, &caller, &row)?,
                events: sessions::history(view, &row)?,
                connections: sessions::connections_of(view, &row)?,
                overview: overview::summary(&own, view, &snapshot, &caller, now)?,
                gpus: gpus::of(&own, &snapshot, &caller, now),
                idle: idle_rules::state_of(view, &row)?,
                folder_owners: folder_owners(view, &caller, &row)?,
            }))
        })
        .await
}

/// The names of users and projects whose folders a session of the caller's mounts; none of a session of another user, to
/// whose reader they may be unknown. Costs a row by key for each mount.
fn folder_owners(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    row: &Session,
) -> Result<BTreeMap<FolderId, String>, Failure> {
    let mut owners = BTreeMap::new();
    for mount in row
        .mounts
        .iter()
        .filter(|_| row.owner == caller.subject.user)
    {
        if let Some(found) = view.folder(mount.folder)?
            && found.folder.owner != row.owner.into()
        {
            owners.insert(mount.folder, found.owner_name);
        }
    }
    Ok(owners)
}

/// What a session starts after, by id, and what each is called where the reader may see it.
///
/// O(sessions that it starts after), which a launch bounds.
fn after(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    row: &Session,
) -> Result<Vec<(SessionId, Option<String>)>, Failure> {
    let named = |id: &SessionId| -> Result<_, Failure> {
        let other = view.session(*id)?;
        let shown = other
            .filter(|other| may(&caller.subject, Permission::SessionsRead, &other.scope()).is_ok());
        Ok((*id, shown.map(|other| other.name.to_string())))
    };
    row.spec.depends_on.iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use api::sessions::LaunchRequest;
    use rules::placement::Verdict;
    use rules::session::SessionState;

    use super::*;

    #[tokio::test]
    async fn what_a_page_shows_is_of_one_revision_though_commits_come_between_its_reads() {
        let server = Server::for_tests();
        server.put_test_node("one");
        let root = crate::access::local_root(&server);
        let wanted = LaunchRequest {
            name: Some("a".into()),
            ..LaunchRequest::default()
        };
        sessions::launch(&server, &root, wanted, None)
            .await
            .unwrap();
        let before = read(&server, &root, "a").await.unwrap();
        assert_eq!(before.session.state, SessionState::Pending);
        assert_eq!(before.overview.counts.pending, 1);

        let shared = server.snapshot().await.unwrap();
        sessions::stop(&server, &root, "a", false).await.unwrap();
        server.put_test_node("two");
        let page = read_beside(&server, &root, "a", shared).await.unwrap();
        assert_eq!(page.revision, *server.catalog().revision().borrow());
        assert!(page.revision > before.revision);
        assert_eq!(page.session.state, SessionState::Ended);
        let counts = page.overview.counts;
        assert_eq!((counts.pending, counts.ended), (0, 1));
        assert_eq!(page.overview.machines[0].name, "two");
        assert_eq!(page.why.verdict, Verdict::Settled);
        let reason = page.session.reason.map(|reason| reason.text);
        assert_eq!(Some(page.why.sentence), reason);
        assert!(page.events.len() > before.events.len());
        assert!(page.after.is_empty());
        let newest = page.overview.recent.first().map(|event| event.sequence);
        assert_eq!(page.events.last().map(|event| event.sequence), newest);
    }

    #[tokio::test]
    async fn what_a_session_starts_after_is_told_by_name() {
        let server = Server::for_tests();
        server.put_test_node("one");
        let root = crate::access::local_root(&server);
        for (name, after) in [("first", None), ("second", Some("first"))] {
            let wanted = LaunchRequest {
                name: Some(name.into()),
                depends_on: after.map(str::to_owned).into_iter().collect(),
                ..LaunchRequest::default()
            };
            sessions::launch(&server, &root, wanted, None)
                .await
                .unwrap();
        }
        let first = read(&server, &root, "first").await.unwrap().session;
        let second = read(&server, &root, "second").await.unwrap();
        assert_eq!(second.after, [(first.id, Some("first".to_owned()))]);
    }
}
