//! One read of the live rows for each revision, shared by every page and every answer that shows them: the
//! cluster, the names of owners, what was said and measured of devices. Permissions are not applied here:
//! `actions` give each caller their part. Never writes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rules::findings::{InvariantFinding, findings};
use rules::messages::{DeviceUse, PartitionFailure};
use rules::names::{NodeId, SessionId, TenantName, UserId, UserName};
use rules::permissions::Reach;
use rules::placement::explain::LikelyOutlook;
use rules::placement::{self, Explanation, LikelyStart, QueueForecast};
use rules::run_history::RunHistory;
use rules::session::Session;
use rules::tenancy::ProjectId;
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;

use crate::Failure;
use crate::catalog::events::EventRow;
use crate::catalog::nodes::DeviceRow;
use crate::catalog::{Catalog, ReadTransaction};

/// Milliseconds for which an explanation stays as it is while no row changes. Longer: the time that a session
/// still has to wait moves in jumps. Shorter: every open page explains the whole queue again.
const EXPLAINED_FOR: u64 = 1_000;
/// Milliseconds for which likely starts stay as they are, whatever changes. Longer: a new session is told of its start
/// late. Shorter: a long queue, which takes two walks of some tenths of a second, is walked more often.
const LIKELY_FOR: u64 = 60_000;
/// Milliseconds for which what ended is not read again.
const HISTORY_FOR: u64 = 300_000;
/// Explanations that are kept of one snapshot. Higher: more memory, some 2 KiB for each. Lower: where many users look at
/// long queues, one session is explained several times a second.
const MAX_EXPLANATIONS_KEPT: usize = 2_000;
/// Readers whose newest events are kept. Higher: more memory, some 4 KiB for each. Lower: pages of more users
/// search the journal.
const MAX_READERS_KEPT: usize = 256;
/// Events of the journal that are looked through for what is new to a reader. Beyond, the newest are read again.
const MAX_EVENTS_BEHIND: u64 = 1_000;

/// Everything live, as of one moment.
pub(crate) struct Snapshot {
    pub(crate) world: ClusterSnapshot,
    /// Names of the owners of live sessions.
    pub(crate) names: BTreeMap<UserId, UserName>,
    /// Names of the projects of live sessions.
    pub(crate) projects: BTreeMap<ProjectId, TenantName>,
    pub(crate) devices: DeviceFacts,
    /// The launch of each live session that was launched together with others.
    launches: BTreeMap<SessionId, SessionId>,
    findings: OnceLock<Vec<InvariantFinding>>,
    /// Shared by all snapshots of a server.
    likely: Arc<LikelyForecast>,
    queue: Mutex<Option<(Timestamp, Arc<WaitingQueue>)>>,
    explained: Mutex<BTreeMap<SessionId, (Timestamp, Explanation)>>,
}

/// All that wait, as every page and answer shows them.
#[derive(Debug)]
pub(crate) struct WaitingQueue {
    pub(crate) forecast: QueueForecast,
    /// Up to a minute old.
    likely: Arc<LikelyStarts>,
    /// Places in `world.sessions`, in the order of the forecast.
    pub(crate) order: Vec<usize>,
    /// The same by launch, each where its first one stands.
    pub(crate) groups: Vec<WaitingGroup>,
}

/// Likely starts, which outlast a snapshot: they are guesses for a minute.
#[derive(Debug, Default)]
pub(crate) struct LikelyForecast {
    history: Mutex<Option<(Timestamp, Arc<RunHistory>)>>,
    starts: Mutex<Option<(Timestamp, Arc<LikelyStarts>)>>,
    /// Held by whoever makes them.
    making: Mutex<()>,
}

/// The likely starts of one moment.
#[derive(Debug, Default)]
pub(crate) struct LikelyStarts {
    starts: BTreeMap<SessionId, LikelyStart>,
    /// Ended sessions that they rest on.
    runs: u64,
}

impl LikelyStarts {
    fn of(&self, session: SessionId, now: Timestamp) -> Option<LikelyOutlook> {
        let start = self.starts.get(&session)?;
        Some(LikelyOutlook::of(*start, self.runs, now))
    }
}

impl LikelyForecast {
    /// Whether what ended has to be read again.
    fn is_history_due(&self, now: Timestamp) -> bool {
        let known = locked(&self.history);
        known
            .as_ref()
            .is_none_or(|(at, _)| is_old(*at, now, HISTORY_FOR))
    }

    fn remember(&self, history: RunHistory, now: Timestamp) {
        *locked(&self.history) = Some((now, Arc::new(history)));
    }

    /// Likely starts of those who wait, made at most once a minute: who comes meanwhile has none yet. Costs two forecasts;
    /// none where nothing that ended is known.
    fn starts(&self, world: &ClusterSnapshot, now: Timestamp) -> Arc<LikelyStarts> {
        let history = locked(&self.history)
            .as_ref()
            .map(|(_, known)| Arc::clone(known));
        let Some(history) = history.filter(|known| known.runs() > 0) else {
            return Arc::default();
        };
        let known = locked(&self.starts).clone();
        let is_fresh = known
            .as_ref()
            .is_some_and(|(at, _)| !is_old(*at, now, LIKELY_FOR));
        // Who comes while they are made takes the last ones.
        let turn = self.making.try_lock();
        if is_fresh || turn.is_err() {
            return known.map(|(_, starts)| starts).unwrap_or_default();
        }
        let made = Arc::new(LikelyStarts {
            starts: placement::likely_starts(world, &history, now),
            runs: history.runs() as u64,
        });
        *locked(&self.starts) = Some((now, Arc::clone(&made)));
        made
    }
}

/// Whether something of that moment is older than so many milliseconds, or of a clock that was set back.
fn is_old(at: Timestamp, now: Timestamp, most: u64) -> bool {
    at > now || now.millis_since(at) >= most
}

/// Copies of one launch that wait, as places in `world.sessions`.
#[derive(Debug)]
pub(crate) struct WaitingGroup {
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) replicas: usize,
}

/// What is known of devices beside what their nodes report.
pub(crate) struct DeviceFacts {
    /// What administrators said of them.
    pub(crate) marks: Vec<DeviceRow>,
    pub(crate) uses: BTreeMap<NodeId, Vec<DeviceUse>>,
    pub(crate) partition_failures: BTreeMap<NodeId, Vec<PartitionFailure>>,
    /// The newest self-test of a real device under its driver: whether it passed, and when.
    pub(crate) self_tests: BTreeMap<String, (bool, Timestamp)>,
}

impl DeviceFacts {
    /// Costs a look-up for each real device.
    pub(crate) fn read(
        view: &ReadTransaction<'_>,
        world: &ClusterSnapshot,
    ) -> Result<Self, Failure> {
        let mut self_tests = BTreeMap::new();
        for device in world.nodes.iter().flat_map(|node| &node.capacity.devices) {
            if !device.simulated
                && let Some(report) = view.self_test_with(&device.uuid, &device.driver)?
            {
                self_tests.insert(device.uuid.clone(), report);
            }
        }
        let nodes = || world.nodes.iter().map(|node| node.id);
        Ok(Self {
            marks: view.devices()?,
            uses: nodes().map(|id| (id, view.device_uses(id))).collect(),
            partition_failures: nodes()
                .map(|id| (id, view.partition_failures(id)))
                .collect(),
            self_tests,
        })
    }
}

/// Names of the owners of live sessions. Costs a look-up for each.
pub(crate) fn names_of_owners(
    view: &ReadTransaction<'_>,
    world: &ClusterSnapshot,
) -> Result<BTreeMap<UserId, UserName>, Failure> {
    let owners: BTreeSet<UserId> = world.sessions.iter().map(|session| session.owner).collect();
    let mut names = BTreeMap::new();
    for owner in owners {
        if let Some(name) = view.user_name(owner)? {
            names.insert(owner, name);
        }
    }
    Ok(names)
}

/// Names of the projects of live sessions. Costs a look-up for each.
fn names_of_projects(
    view: &ReadTransaction<'_>,
    world: &ClusterSnapshot,
) -> Result<BTreeMap<ProjectId, TenantName>, Failure> {
    let sessions = world.sessions.iter();
    let ids: BTreeSet<ProjectId> = sessions.map(|session| session.project).collect();
    let mut names = BTreeMap::new();
    for id in ids {
        if let Some(project) = view.project(id)? {
            names.insert(id, project.name);
        }
    }
    Ok(names)
}

impl Snapshot {
    /// Everything live as of the moment of `view`, not shared yet.
    pub(crate) fn read(view: &ReadTransaction<'_>) -> Result<Self, Failure> {
        let world = view.world()?;
        Ok(Self {
            names: names_of_owners(view, &world)?,
            projects: names_of_projects(view, &world)?,
            devices: DeviceFacts::read(view, &world)?,
            launches: view.launches()?,
            world,
            findings: OnceLock::new(),
            likely: Arc::default(),
            queue: Mutex::default(),
            explained: Mutex::default(),
        })
    }

    /// Broken invariants; empty for sound rows. Looked for once.
    pub(crate) fn findings(&self) -> &[InvariantFinding] {
        self.findings.get_or_init(|| findings(&self.world))
    }

    /// Why `session` is where it is. Costs about one scheduling pass for one that waits, once a second for all
    /// who ask; call it where blocking work is allowed.
    pub(crate) fn explain(&self, session: &Session, now: Timestamp) -> Explanation {
        let mut told = self.explain_all(&[session], now);
        told.pop()
            .unwrap_or_else(|| placement::explain_session(&self.world, session, now))
    }

    /// The same for several, in their order, with one walk of the queue for those that nobody asked for within the last
    /// second.
    pub(crate) fn explain_all(&self, sessions: &[&Session], now: Timestamp) -> Vec<Explanation> {
        let kept = |session: &Session| {
            let explained = locked(&self.explained);
            let (at, explanation) = explained.get(&session.id)?;
            let fresh = *at <= now && now.millis_since(*at) < EXPLAINED_FOR;
            fresh.then(|| explanation.clone())
        };
        let mut told: Vec<Option<Explanation>> = sessions.iter().map(|s| kept(s)).collect();
        let missing: Vec<&Session> = sessions
            .iter()
            .zip(&told)
            .filter_map(|(session, told)| told.is_none().then_some(*session))
            .collect();
        if !missing.is_empty() {
            let queue = self.queue(now);
            let mut fresh =
                placement::explain_queue(&self.world, &queue.forecast, &missing, now).into_iter();
            for (session, told) in sessions.iter().zip(&mut told) {
                if told.is_none() {
                    *told = fresh.next();
                    if let Some(explanation) = told.as_mut()
                        && explanation.queue_position.is_some()
                    {
                        explanation.likely = queue.likely.of(session.id, now);
                    }
                    let explanation = told.iter().cloned();
                    for explanation in explanation {
                        keep(&mut locked(&self.explained), session.id, (now, explanation));
                    }
                }
            }
        }
        told.into_iter().flatten().collect()
    }

    /// The queue with its forecast. Costs about one scheduling pass and one for each end that is counted, once a
    /// second for all who ask; call it where blocking work is allowed.
    pub(crate) fn queue(&self, now: Timestamp) -> Arc<WaitingQueue> {
        // Held meanwhile: who comes takes the same.
        let mut queue = locked(&self.queue);
        if let Some((at, known)) = queue.as_ref()
            && *at <= now
            && now.millis_since(*at) < EXPLAINED_FOR
        {
            return Arc::clone(known);
        }
        let read = Arc::new(self.read_queue(now));
        *queue = Some((now, Arc::clone(&read)));
        read
    }

    fn read_queue(&self, now: Timestamp) -> WaitingQueue {
        let likely = self.likely.starts(&self.world, now);
        WaitingQueue::read(&self.world, &self.launches, likely, now)
    }
}

impl WaitingQueue {
    fn read(
        world: &ClusterSnapshot,
        launches: &BTreeMap<SessionId, SessionId>,
        likely: Arc<LikelyStarts>,
        now: Timestamp,
    ) -> Self {
        let forecast = placement::forecast(world, now);
        let places = world.sessions.iter().enumerate();
        let places: HashMap<SessionId, usize> = places.map(|(at, s)| (s.id, at)).collect();
        let order: Vec<usize> = forecast
            .order
            .iter()
            .filter_map(|id| places.get(id).copied())
            .collect();
        let mut groups: Vec<WaitingGroup> = Vec::new();
        let mut known: HashMap<(UserId, Timestamp, SessionId, &str, bool), usize> = HashMap::new();
        for at in &order {
            let session = &world.sessions[*at];
            // Copies are of one launch, queued in one moment, under one name with a number behind it.
            let name = session.name.as_str();
            let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let stem = stem
                .strip_suffix('-')
                .filter(|stem| stem.len() + 1 < name.len());
            let held = session.held_by.is_some();
            let launch = launches.get(&session.id).copied().unwrap_or(session.id);
            let stem = stem.unwrap_or(name);
            let key = (session.owner, session.queued_at, launch, stem, held);
            let found = *known.entry(key).or_insert(groups.len());
            match groups.get_mut(found) {
                Some(group) if world.sessions[group.first].spec.demand == session.spec.demand => {
                    group.replicas += 1;
                    group.last = *at;
                }
                _ => groups.push(WaitingGroup {
                    first: *at,
                    last: *at,
                    replicas: 1,
                }),
            }
        }
        Self {
            forecast,
            likely,
            order,
            groups,
        }
    }
}

/// Keeps an explanation; where there are too many, it forgets the others.
fn keep(
    explained: &mut BTreeMap<SessionId, (Timestamp, Explanation)>,
    session: SessionId,
    of: (Timestamp, Explanation),
) {
    if explained.len() >= MAX_EXPLANATIONS_KEPT {
        explained.clear();
    }
    explained.insert(session, of);
}

/// The newest snapshot, and what pages read again and again beside it.
#[derive(Default)]
pub(crate) struct Snapshots {
    /// Held while a snapshot is read: who comes meanwhile waits for it and takes it.
    newest: tokio::sync::Mutex<Option<NewestSnapshot>>,
    likely: Arc<LikelyForecast>,
    /// The newest events each reader may see, of one topic or of all, newest first, and up to which sequence they were
    /// looked for.
    recent: Mutex<BTreeMap<(Reach, Option<&'static str>), NewestEvents>>,
}

/// Up to which sequence events were looked for, and the newest of them.
type NewestEvents = (u64, Vec<EventRow>);

struct NewestSnapshot {
    version: (u64, u64),
    snapshot: Arc<Snapshot>,
}

impl Snapshots {
    /// Everything live as of the newest commit or a later one. The first call after a change reads it; the
    /// others cost nothing.
    ///
    /// Errors: those of the catalog.
    pub(crate) async fn newest(&self, catalog: &Catalog) -> Result<Arc<Snapshot>, Failure> {
        let mut newest = self.newest.lock().await;
        // Taken before the read: what changes meanwhile makes another read necessary.
        let version = catalog.state_version();
        if let Some(known) = newest.as_ref().filter(|known| known.version == version) {
            return Ok(Arc::clone(&known.snapshot));
        }
        let now = catalog.clock().now();
        let likely = Arc::clone(&self.likely);
        let read = catalog.read("take a snapshot", move |view| {
            if likely.is_history_due(now) {
                likely.remember(view.run_history(now)?, now);
            }
            let snapshot = Snapshot::read(view)?;
            Ok(Snapshot { likely, ..snapshot })
        });
        let snapshot = Arc::new(read.await?);
        *newest = Some(NewestSnapshot {
            version,
            snapshot: Arc::clone(&snapshot),
        });
        Ok(snapshot)
    }

    /// The newest `most` events within `reach`, of one topic or of all, newest first; `most` is the same for every call
    /// of a topic.
    pub(crate) fn recent_events(
        &self,
        view: &ReadTransaction<'_>,
        reach: Reach,
        topic: Option<&'static str>,
        most: u32,
    ) -> Result<Vec<EventRow>, Failure> {
        let key = (reach, topic);
        let reach = &key.0;
        let known = locked(&self.recent).get(&key).cloned();
        let newest = view.event_range()?.1;
        let (looked, rows) = match known {
            Some((looked, rows)) if looked == newest => (looked, rows),
            Some((looked, rows)) if looked < newest && newest - looked <= MAX_EVENTS_BEHIND => {
                let (mut fresh, looked) =
                    view.events_after(reach, looked, MAX_EVENTS_BEHIND as u32)?;
                fresh.retain(|event| topic.is_none_or(|topic| event.topic == topic));
                fresh.reverse();
                fresh.extend(rows);
                fresh.truncate(most as usize);
                (looked, fresh)
            }
            _ => (newest, view.events_latest(reach, topic, most)?),
        };
        let mut recent = locked(&self.recent);
        if recent.len() >= MAX_READERS_KEPT && !recent.contains_key(&key) {
            recent.clear();
        }
        recent.insert(key, (looked, rows.clone()));
        Ok(rows)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use rules::names::UserId;

    use super::*;
    use crate::Server;
    use crate::catalog::Lane;
    use crate::catalog::events::NewEvent;

    fn subject(user: UserId, role: rules::users::Role) -> rules::permissions::Subject {
        rules::permissions::Subject {
            user,
            grants: role.grants(),
            domain: rules::tenancy::DomainId::DEFAULT,
            scopes: None,
        }
    }

    fn everything() -> Reach {
        let root = subject(
            crate::catalog::users::ROOT,
            rules::users::Role::Administrator,
        );
        rules::permissions::reach(&root, rules::permissions::Permission::SystemRead)
    }

    fn own(user: UserId) -> Reach {
        rules::permissions::own(&subject(user, rules::users::Role::User))
    }

    fn note(server: &Server, owner: Option<UserId>, code: &str) {
        let code = code.to_owned();
        server
            .catalog()
            .write_now(Lane::Requests, "note", move |rows| {
                rows.note(NewEvent {
                    actor: "test",
                    topic: "sessions",
                    object: "x",
                    scope: rules::tenancy::Scope {
                        owner,
                        ..rules::tenancy::Scope::SITE
                    },
                    code: &code,
                    before: "",
                    after: "",
                })
            })
            .unwrap();
    }

    #[tokio::test]
    async fn a_snapshot_is_read_once_for_each_commit_however_many_ask() {
        let server = Server::for_tests();
        let first = server.snapshot().await.unwrap();
        let all = futures_of(&server).await;
        assert!(all.iter().all(|other| Arc::ptr_eq(&first, other)));
        note(&server, None, "one");
        let all = futures_of(&server).await;
        assert!(
            !Arc::ptr_eq(&first, &all[0]),
            "a commit makes the old one worthless"
        );
        assert!(all.iter().all(|other| Arc::ptr_eq(&all[0], other)));
        assert_eq!(
            all[0].world.revision,
            *server.catalog().revision().borrow(),
            "it is of the newest commit"
        );
        // What is heard of a node stands in no row, yet in the snapshot.
        server
            .catalog()
            .heard(NodeId(uuid::Uuid::nil()), Timestamp::from_millis(1));
        let heard = server.snapshot().await.unwrap();
        assert!(!Arc::ptr_eq(&all[0], &heard));
    }

    async fn futures_of(server: &Server) -> Vec<Arc<Snapshot>> {
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let server = server.clone();
                tokio::spawn(async move { server.snapshot().await.unwrap() })
            })
            .collect();
        let mut all = Vec::new();
        for task in tasks {
            all.push(task.await.unwrap());
        }
        all
    }

    #[tokio::test]
    async fn the_newest_events_are_those_of_the_journal_however_often_they_are_read() {
        let server = Server::for_tests();
        let (mina, jae) = (
            UserId(uuid::Uuid::from_u128(1)),
            UserId(uuid::Uuid::from_u128(2)),
        );
        let check = || {
            for reach in [everything(), own(mina)] {
                server
                    .catalog()
                    .read_now("compare", |view| {
                        for topic in [None, Some("sessions"), Some("users")] {
                            let snapshots = server.snapshots();
                            let kept = snapshots.recent_events(view, reach.clone(), topic, 3)?;
                            assert_eq!(kept, view.events_latest(&reach, topic, 3)?);
                        }
                        Ok(())
                    })
                    .unwrap();
            }
        };
        check();
        for round in 0..4 {
            note(&server, Some(mina), &format!("own-{round}"));
            check();
            note(&server, Some(jae), &format!("other-{round}"));
            note(&server, None, &format!("box-{round}"));
            check();
        }
        // Further behind than what is read piece by piece.
        for round in 0..MAX_EVENTS_BEHIND + 5 {
            note(&server, Some(jae), &format!("flood-{round}"));
        }
        note(&server, Some(mina), "after");
        check();
    }

    #[test]
    fn explanations_are_kept_up_to_a_bound() {
        let at = Timestamp::from_millis(1);
        let explanation = Explanation {
            verdict: placement::Verdict::Wait,
            sentence: String::new(),
            eta: None,
            outlook: None,
            likely: None,
            replicas: None,
            node: None,
            devices: Vec::new(),
            reason: None,
            queue_position: None,
            blockers: Vec::new(),
            checks: Vec::new(),
            alternatives: Vec::new(),
            rooms: Vec::new(),
            simulated: false,
        };
        let mut explained = BTreeMap::new();
        for number in 0..MAX_EXPLANATIONS_KEPT as u128 + 2 {
            let session = SessionId(uuid::Uuid::from_u128(number));
            keep(&mut explained, session, (at, explanation.clone()));
            assert!(explained.len() <= MAX_EXPLANATIONS_KEPT);
            assert!(explained.contains_key(&session));
        }
    }

    #[tokio::test]
    async fn newest_events_are_kept_for_so_many_readers() {
        let server = Server::for_tests();
        note(&server, None, "one");
        for reader in 0..MAX_READERS_KEPT as u128 + 2 {
            let reach = own(UserId(uuid::Uuid::from_u128(reader)));
            let read = server.catalog().read_now("read", |view| {
                server.snapshots().recent_events(view, reach, None, 3)
            });
            assert_eq!(read.unwrap(), Vec::new());
            assert!(locked(&server.snapshots().recent).len() <= MAX_READERS_KEPT);
        }
    }
}
