//! One read of the live rows for each revision, shared by every page and every answer that shows them: the
//! cluster, the names of owners, what was said and measured of devices. Permissions are not applied here:
//! `actions` give each caller their part. Never writes.

pub(crate) mod likely_starts;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rules::findings::{InvariantFinding, findings};
use rules::messages::{DeviceUse, PartitionFailure};
use rules::names::{NodeId, SessionId, TenantName, UserId, UserName};
use rules::permissions::Reach;
use rules::placement::{self, ExpectedStart, Explanation, QueueForecast, RequestDraft};
use rules::session::{Session, SessionState};
use rules::tenancy::{ProjectId, Scope};
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;

use crate::Failure;
use crate::catalog::events::EventRow;
use crate::catalog::journal::FoundEvents;
use crate::catalog::listing::SessionFilter;
use crate::catalog::nodes::DeviceRow;
use crate::catalog::occasions::Occasions;
use crate::catalog::session_table::{TableCount, TableOrder};
use crate::catalog::{Catalog, ReadTransaction};
use likely_starts::{LikelyForecast, LikelyStarts};

/// Milliseconds for which an explanation stays as it is while no row changes, at least. Longer: the time that a session
/// still has to wait moves in jumps. Shorter: every open page explains the whole queue again.
const EXPLAINED_FOR: u64 = 1_000;
/// The same at most, for a long queue: a millisecond for each session that waits, so that walks of the queue take the same
/// part of a core however long it is. Longer: larger jumps. Shorter: pages of a queue of 10,000 walk it every second.
const MAX_EXPLAINED_FOR: u64 = 10_000;
/// Milliseconds for which a count of what ended within a day stays as it is while no row changes. Longer: what ended a day
/// ago counts for longer. Shorter: open pages count a day of a long history again and again.
const COUNTED_FOR: u64 = 10_000;
/// Explanations that are kept of one snapshot. Higher: more memory, some 2 KiB for each. Lower: where many users look at
/// long queues, one session is explained several times a second.
const MAX_EXPLANATIONS_KEPT: usize = 2_000;
/// Requests that are about to be launched whose explanations are kept of one snapshot. Higher: more memory, some 2 KiB for
/// each, and 100 bytes for each node. Lower: where many users fill in the form, a long queue is walked again for each look.
const MAX_DRAFTS_KEPT: usize = 64;
/// Readers whose newest events and counts are kept. Higher: more memory, some 4 KiB for each. Lower: pages of more users
/// search the journal.
const MAX_READERS_KEPT: usize = 256;
/// Pages of the table of sessions that are kept of one revision, and as many of the journal. Higher: more memory, some 12 KiB
/// for the longest page. Lower: more of those who look at different pages have them read and counted again.
const MAX_PAGES_KEPT: usize = 64;
/// Longest words by which such a page is kept: the reach of the reader and everything asked for. Higher: more memory where
/// addresses are long. Lower: pages of who reaches many projects are read for each look.
const MAX_ASKED_BYTES: usize = 8 << 10;
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
    launches: Arc<BTreeMap<SessionId, SessionId>>,
    findings: OnceLock<Vec<InvariantFinding>>,
    counts: OnceLock<Vec<(Scope, LiveCounts)>>,
    mark: OnceLock<u64>,
    waiting: OnceLock<u64>,
    /// How many sessions within a reach ended within the day before a moment, and how many of them not well.
    ended: Mutex<BTreeMap<Reach, EndedCounts>>,
    /// Shared by all snapshots of a server.
    likely: Arc<LikelyForecast>,
    queue: Mutex<Option<Arc<WaitingQueue>>>,
    explained: Mutex<BTreeMap<SessionId, (Timestamp, Explanation)>>,
    /// Explanations of requests that are about to be launched, by all that is asked for.
    drafts: Mutex<BTreeMap<String, (Timestamp, Explanation)>>,
}

/// When sessions were counted that ended, how many did, and how many of them not well.
type EndedCounts = (Timestamp, (u64, u64));

/// How many live sessions stand in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LiveCounts {
    pub(crate) pending: u64,
    pub(crate) scheduled: u64,
    pub(crate) preparing: u64,
    pub(crate) running: u64,
    pub(crate) stopping: u64,
}

impl LiveCounts {
    pub(crate) fn live(&self) -> u64 {
        self.pending + self.scheduled + self.preparing + self.running + self.stopping
    }

    fn add(&mut self, state: SessionState) {
        match state {
            SessionState::Pending => self.pending += 1,
            SessionState::Scheduled => self.scheduled += 1,
            SessionState::Preparing => self.preparing += 1,
            SessionState::Running => self.running += 1,
            SessionState::Stopping => self.stopping += 1,
            SessionState::Ended => {}
        }
    }
}

/// All that wait, as every page and answer shows them.
#[derive(Debug)]
pub(crate) struct WaitingQueue {
    /// The moment that the forecast is of, and every explanation by it.
    pub(crate) at: Timestamp,
    pub(crate) forecast: QueueForecast,
    /// Guesses, which are some minutes old at most.
    likely: Arc<LikelyStarts>,
    /// Places in `world.sessions`, in the order of the forecast.
    pub(crate) order: Vec<usize>,
    groups: OnceLock<Vec<WaitingGroup>>,
    starts: OnceLock<Vec<(ExpectedStart, usize)>>,
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
        Self::read_after(view, None)
    }

    /// The same. Where no row changed since `before`, as when a node was only heard of, what follows from rows alone is
    /// taken from there.
    fn read_after(view: &ReadTransaction<'_>, before: Option<&Self>) -> Result<Self, Failure> {
        let world = view.world()?;
        let same = before.filter(|before| before.world.revision == world.revision);
        let (names, projects, launches) = match same {
            Some(same) => (
                same.names.clone(),
                same.projects.clone(),
                Arc::clone(&same.launches),
            ),
            None => (
                names_of_owners(view, &world)?,
                names_of_projects(view, &world)?,
                Arc::new(view.launches()?),
            ),
        };
        let (counts, ended) = match same {
            Some(same) => (same.counts.clone(), locked(&same.ended).clone()),
            None => (OnceLock::new(), BTreeMap::new()),
        };
        let mark = same.map_or_else(OnceLock::new, |same| same.mark.clone());
        Ok(Self {
            names,
            projects,
            devices: DeviceFacts::read(view, &world)?,
            launches,
            world,
            findings: OnceLock::new(),
            counts,
            mark,
            waiting: OnceLock::new(),
            ended: Mutex::new(ended),
            likely: Arc::default(),
            queue: Mutex::default(),
            explained: Mutex::default(),
            drafts: Mutex::default(),
        })
    }

    /// Broken invariants; empty for sound rows. Looked for once.
    pub(crate) fn findings(&self) -> &[InvariantFinding] {
        self.findings.get_or_init(|| findings(&self.world))
    }

    /// How many sessions within `reach` ended within the last day, and how many of them did not end well. Costs a visit of
    /// each in an index, once in some seconds for all who reach as far while no row changes.
    pub(crate) fn ended_lately(
        &self,
        view: &ReadTransaction<'_>,
        reach: &Reach,
        now: Timestamp,
    ) -> Result<(u64, u64), Failure> {
        let known = locked(&self.ended).get(reach).copied();
        if let Some((at, counts)) = known
            && at <= now
            && now.millis_since(at) < COUNTED_FOR
        {
            return Ok(counts);
        }
        let day = Timestamp::from_millis(now.as_millis() - 86_400_000);
        let counts = view.count_ended(reach, day)?;
        // What is newer than this snapshot is not told as its own.
        if view.revision()? == self.world.revision {
            let mut ended = locked(&self.ended);
            if ended.len() >= MAX_READERS_KEPT {
                ended.clear();
            }
            ended.insert(reach.clone(), (now, counts));
        }
        Ok(counts)
    }

    /// Live sessions of each scope: every page counts those that its reader may see. Costs a look at each session once.
    pub(crate) fn counts(&self) -> &[(Scope, LiveCounts)] {
        self.counts.get_or_init(|| {
            let mut counts: Vec<(Scope, LiveCounts)> = Vec::new();
            let mut places: HashMap<Scope, usize> = HashMap::new();
            for session in &self.world.sessions {
                let scope = session.scope();
                let at = *places.entry(scope).or_insert(counts.len());
                if at == counts.len() {
                    counts.push((scope, LiveCounts::default()));
                }
                counts[at].1.add(session.state());
            }
            counts
        })
    }

    /// A number that changes whenever an answer of the scheduler may have changed because of a live session: what waits, and
    /// what is given. Costs a visit of each live session once.
    pub(crate) fn sessions_mark(&self) -> u64 {
        *self.mark.get_or_init(|| {
            let mut mark = DefaultHasher::new();
            for session in &self.world.sessions {
                let waits = session.state() == SessionState::Pending;
                let wanted = &session.spec.demand;
                let demand = (wanted.cpu, wanted.memory, wanted.gpu, wanted.gpu_memory);
                let limit = (session.spec.limit(), &session.held_by, session.started_at());
                let limit = (limit, session.is_preempted());
                (session.id, waits, demand, limit).hash(&mut mark);
                for container in session.live_containers() {
                    container.node.hash(&mut mark);
                    for part in container.holds().iter() {
                        (part.index, part.share, part.memory, part.part).hash(&mut mark);
                    }
                }
            }
            mark.finish()
        })
    }

    /// Milliseconds for which an explanation stays as it is: one for each session that waits, within bounds. Costs a visit of
    /// each live session once.
    fn explained_for(&self) -> u64 {
        let waiting = self.waiting.get_or_init(|| {
            let waiting = self.world.sessions.iter().filter(|one| one.is_pending());
            waiting.count() as u64
        });
        (*waiting).clamp(EXPLAINED_FOR, MAX_EXPLAINED_FOR)
    }

    /// What would become of a request if it were launched now. Costs a walk of the queue, and a forecast with it where it
    /// waits, once a second for all who ask for the same, less often in a long queue; call it where blocking work is allowed.
    pub(crate) fn explain_draft(&self, draft: &RequestDraft, now: Timestamp) -> Explanation {
        let asked = format!("{draft:?}");
        let known = locked(&self.drafts).get(&asked).cloned();
        if let Some((at, explanation)) = known
            && at <= now
            && now.millis_since(at) < self.explained_for()
        {
            return explanation;
        }
        let explanation = placement::explain_draft(&self.world, draft, now);
        let mut drafts = locked(&self.drafts);
        if drafts.len() >= MAX_DRAFTS_KEPT {
            drafts.clear();
        }
        drafts.insert(asked, (now, explanation.clone()));
        explanation
    }

    /// Why `session` is where it is. Costs about one scheduling pass for one that waits, once a second for all
    /// who ask, less often in a long queue; call it where blocking work is allowed.
    pub(crate) fn explain(&self, session: &Session, now: Timestamp) -> Explanation {
        let mut told = self.explain_all(&[session], now);
        told.pop()
            .unwrap_or_else(|| placement::explain_session(&self.world, session, now))
    }

    /// The same for several, in their order, with one walk of the queue for those that were not asked for a moment ago.
    pub(crate) fn explain_all(&self, sessions: &[&Session], now: Timestamp) -> Vec<Explanation> {
        let kept = |session: &Session| {
            let explained = locked(&self.explained);
            let (at, explanation) = explained.get(&session.id)?;
            let fresh = *at <= now && now.millis_since(*at) < self.explained_for();
            fresh.then(|| explanation.clone())
        };
        let mut told: Vec<Option<Explanation>> = sessions.iter().map(|s| kept(s)).collect();
        let missing: Vec<&Session> = sessions
            .iter()
            .zip(&told)
            .filter_map(|(session, told)| told.is_none().then_some(*session))
            .collect();
        if !missing.is_empty() {
            // What does not wait needs no forecast.
            let waits = missing.iter().any(|session| session.is_pending());
            let queue = waits.then(|| self.queue(now));
            let nothing = QueueForecast::default();
            let (known, at) = match &queue {
                Some(queue) => (&queue.forecast, queue.at),
                None => (&nothing, now),
            };
            let fresh = placement::explain_queue(&self.world, known, &missing, at);
            let mut fresh = fresh.into_iter();
            for (session, told) in sessions.iter().zip(&mut told) {
                if told.is_none() {
                    *told = fresh.next();
                    if let (Some(explanation), Some(queue)) = (told.as_mut(), &queue)
                        && explanation.queue_position.is_some()
                    {
                        explanation.likely = queue.likely.of(session.id, at);
                    }
                    let explanation = told.iter().cloned();
                    for explanation in explanation {
                        keep(&mut locked(&self.explained), session.id, (at, explanation));
                    }
                }
            }
        }
        told.into_iter().flatten().collect()
    }

    /// The queue with its forecast. Costs about one scheduling pass and one for each end that is counted, once a
    /// second for all who ask, less often in a long queue; call it where blocking work is allowed.
    pub(crate) fn queue(&self, now: Timestamp) -> Arc<WaitingQueue> {
        // Held meanwhile: who comes takes the same.
        let mut queue = locked(&self.queue);
        if let Some(known) = queue.as_ref()
            && known.at <= now
            && now.millis_since(known.at) < self.explained_for()
        {
            return Arc::clone(known);
        }
        let likely = self.likely.newest(now);
        let read = Arc::new(WaitingQueue::read(&self.world, likely, now));
        *queue = Some(Arc::clone(&read));
        read
    }
}

impl WaitingQueue {
    fn read(world: &ClusterSnapshot, likely: Arc<LikelyStarts>, now: Timestamp) -> Self {
        let forecast = placement::forecast(world, now);
        Self {
            at: now,
            order: forecast.places(),
            forecast,
            likely,
            groups: OnceLock::new(),
            starts: OnceLock::new(),
        }
    }

    /// All that wait by launch, each launch where its first one stands. `snapshot` is the one that the queue is of. Costs a
    /// look at each session once.
    pub(crate) fn groups(&self, snapshot: &Snapshot) -> &[WaitingGroup] {
        self.groups
            .get_or_init(|| self.grouped(&snapshot.world, &snapshot.launches))
    }

    /// Every start that is known, the first one first, with the place of its session in `world.sessions`. Costs a look at
    /// each session once, and nothing where no start is known.
    pub(crate) fn starts(&self, world: &ClusterSnapshot) -> &[(ExpectedStart, usize)] {
        self.starts.get_or_init(|| {
            let known = &self.forecast.starts;
            if known.is_empty() {
                return Vec::new();
            }
            let places = self.order.iter();
            let places = places.filter_map(|at| Some((*known.get(&world.sessions[*at].id)?, *at)));
            let mut starts: Vec<(ExpectedStart, usize)> = places.collect();
            starts.sort_by_key(|(start, _)| start.at);
            starts
        })
    }

    fn grouped(
        &self,
        world: &ClusterSnapshot,
        launches: &BTreeMap<SessionId, SessionId>,
    ) -> Vec<WaitingGroup> {
        let mut groups: Vec<WaitingGroup> = Vec::new();
        let mut known: HashMap<(UserId, Timestamp, SessionId, &str, bool), usize> = HashMap::new();
        for at in &self.order {
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
        groups
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
    pub(crate) likely: Arc<LikelyForecast>,
    /// The newest events each reader may see, of one topic or of all, newest first, and up to which sequence they were
    /// looked for.
    recent: Mutex<BTreeMap<(Reach, Option<&'static str>), NewestEvents>>,
    tables: Mutex<KeptPages<TableRows>>,
    journal: Mutex<KeptPages<FoundEvents>>,
    /// What there are rows of, and the state that it is not older than.
    occasions: Mutex<Option<((u64, u64), Occasions)>>,
}

/// Pages of a list as of one revision, by what was asked for.
#[derive(Default)]
struct KeptPages<T> {
    revision: u64,
    pages: BTreeMap<String, T>,
}

impl<T: Clone> KeptPages<T> {
    /// The page that was read for the same since the last change of a row. A newer revision forgets all.
    fn known(&mut self, revision: u64, asked: &str) -> Option<T> {
        if self.revision < revision {
            self.revision = revision;
            self.pages.clear();
        }
        // A read that began earlier sees an older revision.
        match self.revision == revision {
            true => self.pages.get(asked).cloned(),
            false => None,
        }
    }

    fn keep(&mut self, revision: u64, asked: String, page: &T) {
        if self.revision != revision || asked.len() > MAX_ASKED_BYTES {
            return;
        }
        if self.pages.len() >= MAX_PAGES_KEPT {
            self.pages.clear();
        }
        self.pages.insert(asked, page.clone());
    }
}

/// The first session of each row of a page with how many it stands for, and how many rows there are.
type TableRows = (Vec<(SessionId, u64)>, TableCount);

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
        let before = newest.as_ref().map(|known| Arc::clone(&known.snapshot));
        let likely = Arc::clone(&self.likely);
        let read = catalog.read("take a snapshot", move |view| {
            let read = Snapshot::read_after(view, before.as_deref())?;
            Ok(Snapshot { likely, ..read })
        });
        let snapshot = Arc::new(read.await?);
        *newest = Some(NewestSnapshot {
            version,
            snapshot: Arc::clone(&snapshot),
        });
        Ok(snapshot)
    }

    /// What there is anything of, as of the newest commit or a later one: a page reads for its reader what there may be, and
    /// no more. Read once for each change of a row; where it cannot be read there may be everything.
    pub(crate) fn occasions(&self, catalog: &Catalog) -> Occasions {
        // Taken before the read: what changes meanwhile makes another read necessary.
        let version = catalog.state_version();
        let mut kept = locked(&self.occasions);
        if let Some((of, known)) = *kept
            && of == version
        {
            return known;
        }
        let read = catalog.read_now("look for what readers are told", |view| view.occasions());
        match read {
            Ok(found) => {
                *kept = Some((version, found));
                found
            }
            Err(_) => Occasions::ALL,
        }
    }

    /// One page of the table of sessions, and how many rows it has in all, as `ReadTransaction::table_page` reads them. Who
    /// asks for the same while no row changes is given the same: an open page asks again and again, and counting a long
    /// history costs milliseconds.
    pub(crate) fn table_page(
        &self,
        view: &ReadTransaction<'_>,
        reach: &Reach,
        filter: &SessionFilter,
        order: &TableOrder,
    ) -> Result<TableRows, Failure> {
        let revision = view.revision()?;
        let asked = format!("{reach:?} {filter:?} {order:?}");
        let known = locked(&self.tables).known(revision, &asked);
        if let Some(known) = known {
            return Ok(known);
        }
        let read = view.table_page(reach, filter, order)?;
        locked(&self.tables).keep(revision, asked, &read);
        Ok(read)
    }

    /// One page of a search of the journal, as `search` reads it. Who asks for the same while no row changes is given the
    /// same: a word has the names of all sessions and a long part of the journal looked through, which costs milliseconds.
    /// `asked` tells the reader and everything that they ask for.
    pub(crate) fn journal_page(
        &self,
        view: &ReadTransaction<'_>,
        asked: String,
        search: impl FnOnce() -> Result<FoundEvents, Failure>,
    ) -> Result<FoundEvents, Failure> {
        let revision = view.revision()?;
        let known = locked(&self.journal).known(revision, &asked);
        if let Some(known) = known {
            return Ok(known);
        }
        let read = search()?;
        locked(&self.journal).keep(revision, asked, &read);
        Ok(read)
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
        // What follows from rows alone is not read again.
        assert!(Arc::ptr_eq(&all[0].launches, &heard.launches));
        note(&server, None, "two");
        let changed = server.snapshot().await.unwrap();
        assert!(!Arc::ptr_eq(&changed.launches, &heard.launches));
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
    async fn an_equal_request_is_explained_once_a_second_and_so_many_are_kept() {
        use rules::resources::Demand;
        use rules::session::{SessionEnvironment, SessionKind};
        let server = Server::for_tests();
        server.put_test_node("one");
        let snapshot = server.snapshot().await.unwrap();
        let at = |millis: i64| Timestamp::from_millis(1_000_000 + millis);
        let ask = |replicas: u32, now: Timestamp| {
            let draft = RequestDraft {
                kind: SessionKind::Interactive,
                environment: SessionEnvironment::Host,
                demand: Demand::default(),
                start_at: None,
                depends_on: Vec::new(),
                precedence: rules::workload::precedence::Precedence::default(),
                replicas,
                max_runtime_seconds: None,
                owner: None,
                domain: rules::tenancy::DomainId::DEFAULT,
                project: ProjectId(uuid::Uuid::nil()),
                group: rules::names::ResourceGroupId::DEFAULT,
            };
            let told = snapshot.explain_draft(&draft, now);
            let drafts = locked(&snapshot.drafts);
            let (known, explanation) = &drafts[&format!("{draft:?}")];
            assert_eq!(told, *explanation);
            (*known, drafts.len())
        };
        assert_eq!(ask(1, at(0)), (at(0), 1));
        assert_eq!(ask(1, at(999)), (at(0), 1), "explained a moment ago");
        assert_eq!(ask(2, at(999)), (at(999), 2), "it asks for more");
        assert_eq!(ask(1, at(1_000)), (at(1_000), 2));
        for replicas in 3..3 + MAX_DRAFTS_KEPT as u32 {
            assert!(ask(replicas, at(1_000)).1 <= MAX_DRAFTS_KEPT);
        }
    }

    #[tokio::test]
    async fn a_long_queue_is_explained_less_often() {
        let server = Server::for_tests();
        server.put_test_node("one");
        let snapshot = server.snapshot().await.unwrap();
        assert_eq!(snapshot.explained_for(), EXPLAINED_FOR, "nothing waits");
        let of = |waiting: u64| {
            let read = server.catalog().read_now("take a snapshot", Snapshot::read);
            let snapshot = read.unwrap();
            snapshot.waiting.set(waiting).unwrap();
            snapshot.explained_for()
        };
        assert_eq!([of(999), of(5_000), of(1_000_000)], [1_000, 5_000, 10_000]);
    }

    #[tokio::test]
    async fn what_ended_within_a_day_is_counted_once_in_some_seconds() {
        let server = Server::for_tests();
        let snapshot = server.snapshot().await.unwrap();
        let at = |seconds: u64| Timestamp::from_millis(1_000_000).plus_seconds(seconds);
        let ask = |now: Timestamp| {
            let read = server.catalog().read_now("count", |view| {
                snapshot.ended_lately(view, &everything(), now)
            });
            assert_eq!(read.unwrap(), (0, 0));
            locked(&snapshot.ended)[&everything()].0
        };
        assert_eq!(ask(at(0)), at(0));
        assert_eq!(ask(at(9)), at(0));
        assert_eq!(ask(at(10)), at(10));
        assert_eq!(ask(at(3)), at(3), "the clock was set back");
    }

    #[tokio::test]
    async fn a_page_of_the_table_is_kept_until_a_row_changes_and_no_more_than_so_many() {
        use crate::catalog::session_table::TableSort;
        let server = Server::for_tests();
        note(&server, None, "one");
        let kept = || locked(&server.snapshots().tables).pages.len();
        let ask = |offset: u64| {
            let order = TableOrder {
                sort: TableSort::Standing,
                descending: false,
                grouped: true,
                offset,
                limit: 50,
            };
            let filter = SessionFilter::default();
            let read = server.catalog().read_now("ask", |view| {
                let snapshots = server.snapshots();
                let page = snapshots.table_page(view, &everything(), &filter, &order)?;
                assert_eq!(page, view.table_page(&everything(), &filter, &order)?);
                Ok(())
            });
            read.unwrap();
        };
        ask(0);
        ask(0);
        assert_eq!(kept(), 1);
        ask(50);
        assert_eq!(kept(), 2);
        note(&server, None, "two");
        ask(0);
        assert_eq!(kept(), 1, "those of an older revision are forgotten");
        for page in 0..MAX_PAGES_KEPT as u64 + 2 {
            ask(page * 50);
            assert!(kept() <= MAX_PAGES_KEPT);
        }
    }

    #[tokio::test]
    async fn an_equal_search_of_the_journal_is_made_once_until_a_row_changes_and_so_many_are_kept()
    {
        let server = Server::for_tests();
        note(&server, None, "one");
        let searched = std::cell::Cell::new(0);
        let ask = |asked: String| {
            let read = server.catalog().read_now("search", |view| {
                server.snapshots().journal_page(view, asked, || {
                    searched.set(searched.get() + 1);
                    Ok(FoundEvents {
                        count: searched.get(),
                        ..FoundEvents::default()
                    })
                })
            });
            read.unwrap().count
        };
        let kept = || locked(&server.snapshots().journal).pages.len();
        assert_eq!((ask("a".into()), ask("a".into()), kept()), (1, 1, 1));
        assert_eq!((ask("b".into()), ask("a".into()), kept()), (2, 1, 2));
        note(&server, None, "two");
        assert_eq!((ask("a".into()), kept()), (3, 1), "it may find more now");
        for word in 0..MAX_PAGES_KEPT + 2 {
            ask(word.to_string());
            assert!(kept() <= MAX_PAGES_KEPT);
        }
        let long = "x".repeat(MAX_ASKED_BYTES + 1);
        let first = ask(long.clone());
        assert_eq!(ask(long), first + 1, "too long to be kept");
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
