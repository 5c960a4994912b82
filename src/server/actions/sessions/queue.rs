//! The queue as a caller may see it: who waits and why, replicas of one launch together, and a plan of what ends and
//! starts when. Everything is of one snapshot and one forecast. Changes nothing.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use api::page::ListPage;
use api::sessions::{SessionView, WaitingView};
use rules::codes;
use rules::fair_share::QueueOrder;
use rules::names::{ResourceGroupId, SessionId, SessionName};
use rules::permissions::{Permission, Reach, reach};
use rules::placement::explain::{Explanation, QueueCauses, Verdict, WaitCause};
use rules::placement::{self, Decision};
use rules::policy::BackfillMode;
use rules::refusals;
use rules::session::{Outcome, Session, SessionState};
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;

use super::{discreet, view};
use crate::access::Caller;
use crate::actions::allowed;
use crate::snapshot::{Snapshot, WaitingGroup};
use crate::{Failure, Server, ServerFault};

/// Waiting sessions that one page of the queue explains. Higher: one request walks and writes more. Lower: a client
/// asks more often for a long queue.
const MAX_EXPLAINED: usize = 200;
/// Launches on one page of the console's queue, each with all of its replicas that wait. Higher: a longer page and a
/// larger stream. Lower: more pages.
pub const QUEUE_PAGE: usize = 20;
/// Sessions in the plan that run, those that end first. Higher: a longer page.
const MAX_PLANNED_ENDS: usize = 8;
/// Sessions in the plan that wait, those that start first.
const MAX_PLANNED_STARTS: usize = 12;
/// Launches in a file of comma-separated values.
pub const MAX_QUEUE_EXPORTED: usize = 500;

/// Which launches of the queue are wanted. Empty text asks for all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueFilter {
    /// Words that stand in name, owner or image, all of them; `name:` and `owner:` look there.
    pub q: String,
    /// Why they wait, as `wait_word` says it.
    pub why: String,
}

/// One page of the queue.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueView {
    pub launches: Vec<WaitingLaunch>,
    /// Launches on all pages, of those that the filter lets through.
    pub of: usize,
    /// The page that is shown, from 1: the last one where a later one was asked for.
    pub page: usize,
    /// Sessions that wait and that the caller may see, filtered or not.
    pub sessions: usize,
    /// Sessions of others that wait, which the caller may not see.
    pub others: usize,
    pub plan: Vec<PlannedSession>,
    /// Sessions that run, or whose start is known, and that the plan leaves out.
    pub unplanned: usize,
    /// In which order the queue is served.
    pub order: QueueOrder,
    /// Who may start before one that waits.
    pub backfill: BackfillMode,
    /// Some of those that the filter lets through wait in a resource group with another rule.
    pub own_rules: bool,
}

/// The replicas of one launch that wait.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingLaunch {
    /// The one that is nearest to its start, with why it waits.
    pub first: WaitingView,
    /// The last of them; None where only one waits.
    pub last: Option<SessionName>,
    pub replicas: usize,
}

/// When a session runs, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedSession {
    pub id: SessionId,
    pub name: SessionName,
    pub owner: String,
    /// It runs already.
    pub runs: bool,
    pub from: Timestamp,
    /// When it reaches its time limit; None without one.
    pub until: Option<Timestamp>,
    /// The session whose end makes room for it, where the caller may see that.
    pub after: Option<SessionName>,
}

/// Everything that waits and that the caller may see, in the order of the queue, each with why; positions count
/// everybody's. 200 a page; `cursor` is that of the page before.
///
/// Errors: `cursor.invalid`.
pub async fn queue(
    server: &Server,
    caller: &Caller,
    cursor: Option<&str>,
) -> Result<ListPage<WaitingView>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let begin: usize = match cursor {
        None | Some("") => 0,
        Some(text) => text
            .parse()
            .map_err(|_| refusals::cursor_invalid().at("/cursor"))?,
    };
    let (caller, now) = (caller.clone(), server.clock().now());
    let snapshot = server.snapshot().await?;
    read_of_queue(is_short(&snapshot), move || {
        let reach = reach(&caller.subject, Permission::SessionsRead);
        let queue = snapshot.queue(now);
        let waiting = queue.order.iter().map(|at| &snapshot.world.sessions[*at]);
        let seen: Vec<&Session> = waiting.filter(|s| reach.covers(&s.scope())).collect();
        let end = seen.len().min(begin.saturating_add(MAX_EXPLAINED));
        let shown = &seen[begin.min(end)..end];
        ListPage {
            items: explained(&snapshot, &caller, shown, now)
                .into_iter()
                .flatten()
                .collect(),
            next_cursor: (end < seen.len()).then(|| end.to_string()),
            estimated_total: seen.len() as u64,
        }
    })
    .await
}

/// The first page of the queue and those behind it for people, from 1, with the plan: 20 launches each, unfiltered.
pub async fn queue_page(
    server: &Server,
    caller: &Caller,
    page: usize,
) -> Result<QueueView, Failure> {
    queue_table(server, caller, QueueFilter::default(), page, QUEUE_PAGE).await
}

/// One page of so many launches of the queue, at most 500, with the plan; a page behind the last one is the last one.
///
/// O(waiting launches), and a walk of the queue at most once a second for all readers.
pub async fn queue_table(
    server: &Server,
    caller: &Caller,
    filter: QueueFilter,
    page: usize,
    limit: usize,
) -> Result<QueueView, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let (caller, now) = (caller.clone(), server.clock().now());
    let snapshot = server.snapshot().await?;
    read_of_queue(is_short(&snapshot), move || {
        let reach = reach(&caller.subject, Permission::SessionsRead);
        let queue = snapshot.queue(now);
        let session = |at: usize| &snapshot.world.sessions[at];
        let mut seen: Vec<&WaitingGroup> = queue
            .groups(&snapshot)
            .iter()
            .filter(|group| reach.covers(&session(group.first).scope()))
            .collect();
        let sessions = seen.iter().map(|group| group.replicas).sum();
        let typed = filter.q.to_lowercase();
        seen.retain(|group| has_words(&snapshot, session(group.first), &typed));
        if !filter.why.is_empty() {
            let mut causes = QueueCauses::new(&snapshot.world, queue.at);
            seen.retain(|group| cause_word(&causes.of(session(group.first))) == filter.why);
        }
        let limit = limit.clamp(1, MAX_QUEUE_EXPORTED);
        let page = page.clamp(1, seen.len().div_ceil(limit).max(1));
        let shown = seen.iter().skip((page - 1) * limit).take(limit);
        let shown: Vec<&WaitingGroup> = shown.copied().collect();
        let firsts: Vec<&Session> = shown.iter().map(|group| session(group.first)).collect();
        let told = explained(&snapshot, &caller, &firsts, now);
        let launches = shown.iter().zip(told).filter_map(|(group, first)| {
            Some(WaitingLaunch {
                first: first?,
                last: (group.replicas > 1).then(|| session(group.last).name.clone()),
                replicas: group.replicas,
            })
        });
        let (plan, unplanned) = plan(&snapshot, &reach, now);
        let world = &snapshot.world;
        let rule = match world.groups.is_single() {
            true => (
                world.order(ResourceGroupId::DEFAULT, now),
                world.backfill(ResourceGroupId::DEFAULT, now),
            ),
            false => (world.policy.order, world.policy.backfill),
        };
        let own_rules = seen.iter().any(|launch| {
            let group = world.groups.of_session(session(launch.first).id);
            (world.order(group, now), world.backfill(group, now)) != rule
        });
        QueueView {
            launches: launches.collect(),
            of: seen.len(),
            page,
            sessions,
            others: queue.order.len() - sessions,
            plan,
            unplanned,
            order: rule.0,
            backfill: rule.1,
            own_rules,
        }
    })
    .await
}

/// Why something waits, in one word: `scheduled` for its time or that of a window, `depends` for other sessions, `held`,
/// `never` where no node is large enough, else `room`.
pub fn wait_word(answer: &Explanation) -> &'static str {
    let code = answer.blockers.first().map_or("", |b| b.code.as_str());
    match (held_word(code), answer.verdict) {
        (None, Verdict::Never) => "never",
        (word, _) => word.unwrap_or("room"),
    }
}

/// The same of a cause.
pub(in crate::actions) fn cause_word(cause: &WaitCause) -> &'static str {
    match cause {
        WaitCause::Never => "never",
        WaitCause::Held(blocker) => held_word(&blocker.code).unwrap_or("room"),
        WaitCause::Room => "room",
    }
}

/// The word of a blocker that is no lack of room.
fn held_word(code: &str) -> Option<&'static str> {
    match code {
        codes::START_LATER | codes::WINDOW_CLOSED | codes::WINDOW_NEVER => Some("scheduled"),
        codes::DEPENDENCY_WAITING | codes::DEPENDENCY_WAITING_OTHER => Some("depends"),
        codes::SESSION_HELD => Some("held"),
        _ => None,
    }
}

/// Whether a waiting session has all words, which are in small letters.
fn has_words(snapshot: &Snapshot, session: &Session, words: &str) -> bool {
    let name = session.name.as_str().to_lowercase();
    let owner = snapshot.names.get(&session.owner);
    let owner = owner.map_or("", |owner| owner.as_str());
    words
        .split_whitespace()
        .all(|word| match word.split_once(':') {
            Some(("name", part)) => name.contains(part),
            Some(("owner", whole)) => owner == whole,
            _ => {
                let image = session.spec.environment.word();
                name.contains(word) || owner.contains(word) || image.to_lowercase().contains(word)
            }
        })
}

/// A number that changes whenever an answer of the scheduler may have changed: what waits, what is given, and what
/// nodes take. Tells nothing else. Costs a visit of each live session once for each snapshot.
pub async fn queue_mark(server: &Server, caller: &Caller) -> Result<u64, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let now = server.clock().now();
    let snapshot = server.snapshot().await?;
    let world = &snapshot.world;
    let mut mark = DefaultHasher::new();
    snapshot.sessions_mark().hash(&mut mark);
    for node in &world.nodes {
        let group = world.groups.of_node(node.id);
        let takes = (
            node.schedulable,
            node.is_silent(now),
            node.problems.len(),
            group,
        );
        (node.id, takes, &node.cordoned, node.capacity.cpu).hash(&mut mark);
    }
    for group in &world.groups.groups {
        let window = world.groups.window(group.id, now);
        let window = window.map(ToString::to_string);
        (group.id, group.generation, window).hash(&mut mark);
    }
    Ok(mark.finish())
}

/// The waiting session that would start at once if these ended now, and its owner: the first one of the queue that would get
/// a place. None where none would, or where the caller may not see it. Costs a copy of the live sessions and a walk of the
/// queue.
pub async fn next_in_place(
    server: &Server,
    caller: &Caller,
    ending: Vec<SessionId>,
) -> Result<Option<(SessionName, String)>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let (caller, now) = (caller.clone(), server.clock().now());
    let snapshot = server.snapshot().await?;
    read_of_queue(is_short(&snapshot), move || {
        let sessions = snapshot.world.sessions.iter();
        let kept: Vec<Session> = sessions
            .filter(|session| !ending.contains(&session.id))
            .cloned()
            .collect();
        let mut world = ClusterSnapshot {
            sessions: kept.into(),
            ..snapshot.world.clone()
        };
        let ends = ending.iter().map(|id| (*id, Some(Outcome::Stopped)));
        world.ended.extend(ends);
        let mut decided = placement::decide(&world, now).into_iter();
        let first = decided.find_map(|one| match one {
            Decision::Place { session, .. } => Some(session),
            Decision::End { .. } => None,
        })?;
        let reach = reach(&caller.subject, Permission::SessionsRead);
        let row = world.sessions.iter().find(|one| one.id == first)?;
        let owner = snapshot.names.get(&row.owner)?;
        reach
            .covers(&row.scope())
            .then(|| (row.name.clone(), owner.to_string()))
    })
    .await
}

/// Live sessions up to which a read of the queue is not worth another thread, which costs as much as the read. Higher: a
/// thread that answers is held longer.
const FEW_LIVE: usize = 64;

fn is_short(snapshot: &Snapshot) -> bool {
    snapshot.world.sessions.len() <= FEW_LIVE
}

async fn read_of_queue<T: Send + 'static>(
    is_short: bool,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    if is_short {
        return Ok(read());
    }
    // Explaining a long queue takes long for a thread that answers.
    let read = tokio::task::spawn_blocking(read).await;
    read.map_err(|ended| ServerFault::new("show the queue", ended).into())
}

fn explained(
    snapshot: &Snapshot,
    caller: &Caller,
    sessions: &[&Session],
    now: Timestamp,
) -> Vec<Option<WaitingView>> {
    let world = &snapshot.world;
    let told = snapshot.explain_all(sessions, now);
    sessions
        .iter()
        .zip(told)
        .map(|(row, told)| {
            let owner = snapshot.names.get(&row.owner)?.clone();
            let project = snapshot.projects.get(&row.project)?.clone();
            let (nodes, policy) = (&world.nodes, world.policy);
            let project = (project, view::group_name(&world.groups, row.id));
            let shown: SessionView = view::session(row, owner, project, nodes, policy);
            Some(WaitingView {
                session: shown,
                why: discreet(told, world, caller),
            })
        })
        .collect()
}

/// What runs and ends first, and what starts first; and how many more there are.
fn plan(snapshot: &Snapshot, reach: &Reach, now: Timestamp) -> (Vec<PlannedSession>, usize) {
    let world = &snapshot.world;
    let planned = |row: &Session, runs, from, until, after| {
        Some(PlannedSession {
            id: row.id,
            name: row.name.clone(),
            owner: snapshot.names.get(&row.owner)?.to_string(),
            runs,
            from,
            until,
            after,
        })
    };
    let mut running: Vec<&Session> = world
        .sessions
        .iter()
        .filter(|s| s.state() == SessionState::Running && reach.covers(&s.scope()))
        .collect();
    // Those without an end last.
    running.sort_by_key(|s| {
        let end = s.deadline().map(|(at, _)| at);
        (end.is_none(), end, s.id)
    });
    let mut left = running.len().saturating_sub(MAX_PLANNED_ENDS);
    let running = running.into_iter().take(MAX_PLANNED_ENDS).filter_map(|s| {
        let until = s.deadline().map(|(at, _)| at);
        planned(s, true, s.started_at()?, until, None)
    });
    let queue = snapshot.queue(now);
    let name = |id: SessionId| {
        let session = world.session(id)?;
        reach.covers(&session.scope()).then(|| session.name.clone())
    };
    let starts = queue.starts(world).iter();
    let starts = starts.map(|(start, at)| (*start, &world.sessions[*at]));
    let mut starts = starts.filter(|(_, s)| reach.covers(&s.scope()));
    let first: Vec<_> = starts.by_ref().take(MAX_PLANNED_STARTS).collect();
    left += starts.count();
    let waiting = first.into_iter().filter_map(|(start, s)| {
        let after = start.after.and_then(name);
        planned(s, false, start.at, start.until, after)
    });
    (running.chain(waiting).collect(), left)
}
