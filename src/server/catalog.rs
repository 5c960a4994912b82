//! The only place that knows SQL. Keeps rows true across crashes: one writer, group commit, and an
//! answer only after the commit. Decides nothing; callers bring decisions of `rules`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use base::observe::Clock;
use rules::messages::ReportedState;
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use tokio::sync::{Semaphore, broadcast, oneshot, watch};

use crate::{Failure, ServerFault};

pub(crate) mod acceptance;
pub(crate) mod access_keys;
pub(crate) mod allowances;
pub(crate) mod announcements;
pub(crate) mod app_ports;
pub(crate) mod app_shares;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod audit_targets;
pub(crate) mod branding;
pub(crate) mod break_glass;
pub(crate) mod budgets;
pub(crate) mod connections;
mod containers;
pub(crate) mod controller_pass;
pub(crate) mod copy;
pub(crate) mod courses;
mod ended;
pub(crate) mod environments;
pub(crate) mod events;
pub(crate) mod external_users;
pub(crate) mod fair_share;
mod files;
pub(crate) mod folder_shares;
pub(crate) mod folder_snapshots;
pub(crate) mod folder_transfers;
pub(crate) mod folders;
pub(crate) mod health;
pub(crate) mod holders;
pub(crate) mod holidays;
pub(crate) mod idempotency;
pub(crate) mod idle_rules;
pub(crate) mod images;
pub(crate) mod invitations;
pub(crate) mod job_kinds;
pub(crate) mod jobs;
pub(crate) mod journal;
pub(crate) mod ledger;
pub(crate) mod listing;
mod live;
pub(crate) mod mail;
pub(crate) mod manifests;
mod migrate;
mod node_cache;
pub(crate) mod nodes;
pub(crate) mod occasions;
mod open;
pub(crate) mod origin;
pub(crate) mod outputs;
pub(crate) mod policies;
pub(crate) mod presets;
mod reach;
mod reader;
pub(crate) mod recorded;
pub(crate) mod request_key;
pub(crate) mod reservations;
mod reserve;
pub(crate) mod resource_groups;
pub(crate) mod rosters;
mod run_history;
pub(crate) mod samples;
pub(crate) mod sealing;
pub(crate) mod second_factors;
pub(crate) mod self_tests;
pub(crate) mod session_table;
pub(crate) mod sessions;
pub(crate) mod sign_in_links;
pub(crate) mod sign_ups;
pub(crate) mod ssh_keys;
pub(crate) mod start_up;
mod state_checks;
pub(crate) mod statements;
pub(crate) mod storage;
pub(crate) mod tenancy;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod users;
mod value;
pub(crate) mod volumes;
pub(crate) mod webhooks;
pub(crate) mod writer;

pub(crate) use open::Founding;
pub(crate) use reader::ReadTransaction;
pub(crate) use writer::{AtCommit, Lane, Rows};

/// Where the rows live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CatalogPlace {
    /// In memory, for tests and rehearsals: same statements, same commits, gone afterwards. Writes
    /// run on the caller's own thread, so that a seed replays to the letter.
    Memory,
    /// `catalog.sqlite` in this directory.
    Directory(PathBuf),
}

/// The catalog. Cheap to clone; the last clone dropped closes the files.
#[derive(Clone)]
pub(crate) struct Catalog(Arc<CatalogInner>);

struct CatalogInner {
    /// Closed before the writer, which brings the log home as the last one.
    reads: reader::Pool,
    writes: WriterMode,
    /// The writer's connection, which is the writer's to close.
    written_by: Weak<Mutex<rusqlite::Connection>>,
    /// Turns for long reads. They leave readers free for single rows, which are read on the
    /// runtime's own threads and must not wait behind a whole world.
    long_reads: Semaphore,
    revision: watch::Receiver<u64>,
    /// Rises when measurements changed: of what sessions use, of what devices do.
    measured: watch::Sender<u64>,
    /// Live sessions when the controller last looked.
    live: AtomicUsize,
    heard: node_cache::NodeCache,
    health: health::CatalogHealth,
    /// Where the files lie; None in memory.
    data: Option<PathBuf>,
    samples: Arc<samples::Samples>,
    /// Sessions that were just warned of being idle.
    idle_news: broadcast::Sender<rules::names::SessionId>,
    clock: Clock,
    founding: Founding,
    seal: sealing::Seal,
    /// Held until everything above is closed: a second server is refused by it.
    _lock: Option<files::StateLock>,
}

/// The rows of a catalog in memory as they were at one moment.
pub(crate) struct RowsCopy(rusqlite::Connection);

/// Warnings that an open terminal may be behind. Higher: more memory. Lower: a terminal misses one that comes with many.
const IDLE_NEWS: usize = 64;

/// Long reads at once. Higher: single rows wait for a reader. Lower: lists wait for each other.
const LONG_READS: usize = reader::MAX_READERS / 2;

enum WriterMode {
    /// A thread of its own with a queue.
    Thread(writer::Thread),
    /// The caller's thread, one at a time.
    Here(Mutex<writer::Engine>),
}

impl Catalog {
    /// Opens or founds the catalog and brings its schema up to date.
    ///
    /// Errors: refusals for a second server on the same state, a state of a newer version, a
    /// directory that cannot be written, a file that is no catalog; each says the way out.
    pub(crate) fn open(place: &CatalogPlace, clock: Clock) -> Result<Self, Failure> {
        let opened = open::open(place, &clock)?;
        let samples = Arc::new(samples::Samples::open(place)?);
        let (announce, revision) = watch::channel(opened.revision);
        let heard = node_cache::NodeCache::default();
        let health = health::CatalogHealth::default();
        let engine = writer::Engine::new(
            opened.writer,
            clock.clone(),
            announce,
            heard.clone(),
            opened.seal.clone(),
            opened.reserve,
            health.clone(),
        );
        let written_by = Arc::downgrade(&engine.connection());
        let (writes, reads) = match opened.readers {
            open::Readers::Path(path) => (
                WriterMode::Thread(writer::Thread::start(engine)?),
                reader::Pool::files(path),
            ),
            open::Readers::Shared => {
                let connection = engine.connection();
                (
                    WriterMode::Here(Mutex::new(engine)),
                    reader::Pool::shared(connection),
                )
            }
        };
        Ok(Self(Arc::new(CatalogInner {
            writes,
            written_by,
            long_reads: Semaphore::new(LONG_READS),
            reads,
            revision,
            measured: watch::channel(0).0,
            live: AtomicUsize::new(0),
            heard,
            health,
            data: match place {
                CatalogPlace::Memory => None,
                CatalogPlace::Directory(data) => Some(data.clone()),
            },
            samples,
            idle_news: broadcast::channel(IDLE_NEWS).0,
            clock,
            founding: opened.founding,
            seal: opened.seal,
            _lock: opened.lock,
        })))
    }

    /// Empties the page caches of the files, and closes connections that were not used since the last call. Costs well below a
    /// millisecond, and a read of each page that is wanted again.
    pub(crate) fn give_back_memory(&self) {
        self.0.reads.give_back();
        self.0.samples.give_back();
        if let Some(connection) = self.0.written_by.upgrade() {
            files::shrink(
                &connection
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner),
            );
        }
    }

    /// Runs `work` inside one durable transaction and answers after its commit. An error from `work`
    /// undoes all it wrote, and nothing of others.
    ///
    /// Errors: `work`'s own; `disk.full` and `disk.read-only` as refusals; faults of SQLite.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        lane: Lane,
        what: &'static str,
        work: impl FnOnce(&Rows<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.write_of(lane, what, origin::current(), work).await
    }

    /// As `write`, of the server itself whosever request asks for it.
    pub(crate) async fn write_of_server<T: Send + 'static>(
        &self,
        lane: Lane,
        what: &'static str,
        work: impl FnOnce(&Rows<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        self.write_of(lane, what, None, work).await
    }

    async fn write_of<T: Send + 'static>(
        &self,
        lane: Lane,
        what: &'static str,
        origin: Option<Arc<origin::RequestOrigin>>,
        work: impl FnOnce(&Rows<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (send, answer) = oneshot::channel();
        let request = writer::request(what, origin, work, move |result| {
            // The caller may have gone away; the commit stands all the same.
            let _ = send.send(result);
        });
        self.enter(lane, request)?;
        let answered = answer
            .await
            .map_err(|gone| Failure::Fault(ServerFault::new(what, gone)))?;
        self.0.health.heed(answered)
    }

    /// Queues a write that no caller waits for, such as when a token was last used. Lost with the
    /// server; a failure is logged.
    pub(crate) fn write_later(
        &self,
        lane: Lane,
        what: &'static str,
        work: impl FnOnce(&Rows<'_>) -> Result<(), Failure> + Send + 'static,
    ) {
        self.later(lane, what, None, work);
    }

    fn later(
        &self,
        lane: Lane,
        what: &'static str,
        origin: Option<Arc<origin::RequestOrigin>>,
        work: impl FnOnce(&Rows<'_>) -> Result<(), Failure> + Send + 'static,
    ) {
        let health = self.0.health.clone();
        let request = writer::request(what, origin, work, move |result| {
            if let Err(failure) = health.heed(result) {
                tracing::warn!(what, error = %base::observe::chain(&failure), "not written");
            }
        });
        if let Err(failure) = self.enter(lane, request) {
            tracing::warn!(what, error = %failure, "not written");
        }
    }

    /// Queues the row of an act that no caller waits for, as part of the request of this task and in its lane: rows stand in
    /// the order of what was asked, and a flood finds the room that requests have. Lost with the server; a failure is logged.
    pub(crate) fn record_later(
        &self,
        what: &'static str,
        work: impl FnOnce(&Rows<'_>) -> Result<(), Failure> + Send + 'static,
    ) {
        self.later(Lane::Requests, what, origin::current(), work);
    }

    /// As `write`, but waits on this thread. For passes, which are synchronous.
    pub(crate) fn write_now<T: Send + 'static>(
        &self,
        lane: Lane,
        what: &'static str,
        work: impl FnOnce(&Rows<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (send, answer) = std::sync::mpsc::sync_channel(1);
        let request = writer::request(what, origin::current(), work, move |result| {
            let _ = send.send(result);
        });
        self.enter(lane, request)?;
        let answered = answer
            .recv()
            .map_err(|gone| Failure::Fault(ServerFault::new(what, gone)))?;
        self.0.health.heed(answered)
    }

    fn enter(&self, lane: Lane, request: writer::WriteRequest) -> Result<(), Failure> {
        match &self.0.writes {
            WriterMode::Thread(thread) => thread.enter(lane, request),
            WriterMode::Here(engine) => {
                engine
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .run(vec![request]);
                Ok(())
            }
        }
    }

    /// Reads in one transaction on a thread for blocking work; for lists and whole worlds.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&ReadTransaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let _turn = self
            .0
            .long_reads
            .acquire()
            .await
            .map_err(|closed| Failure::Fault(ServerFault::new(what, closed)))?;
        let catalog = self.clone();
        tokio::task::spawn_blocking(move || catalog.read_now(what, work))
            .await
            .map_err(|ended| Failure::Fault(ServerFault::new(what, ended)))?
    }

    /// Reads in one transaction on this thread; for single rows by key, some 20 µs.
    pub(crate) fn read_now<T>(
        &self,
        what: &'static str,
        work: impl FnOnce(&ReadTransaction<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let read = self.0.reads.with(what, &self.0.heard, &self.0.seal, work);
        self.0.health.heed(read)
    }

    /// Tells the revision of the newest commit that changed anything.
    pub(crate) fn revision(&self) -> watch::Receiver<u64> {
        self.0.revision.clone()
    }

    /// Tells when measurements changed that stand in no row: what sessions use, what devices do. The number
    /// means nothing by itself.
    pub(crate) fn measured(&self) -> watch::Receiver<u64> {
        self.0.measured.subscribe()
    }

    /// What a snapshot of the rows is of: the revision, and the version of what is known of nodes beside the
    /// rows. A snapshot that is read afterwards is of this state or a newer one.
    pub(crate) fn state_version(&self) -> (u64, u64) {
        let known = self.0.heard.version();
        (*self.0.revision.borrow(), known)
    }

    /// Ends when the writer has: in a panic, for else it lives as long as the catalog.
    pub(crate) async fn writer_ended(&self) {
        let mut revision = self.revision();
        while revision.changed().await.is_ok() {}
    }

    /// How many sessions were live when the controller last looked, moments ago; counting them
    /// would cost each launch a visit to all of them.
    pub(crate) fn live_lately(&self) -> usize {
        self.0.live.load(Ordering::Relaxed)
    }

    pub(crate) fn note_live(&self, sessions: usize) {
        self.0.live.store(sessions, Ordering::Relaxed);
    }

    /// The directory of the state; None in memory.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.0.data.as_deref()
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Sets the administrator's rules for shares of devices, as the settings have them.
    pub(crate) fn set_policy(&self, policy: rules::policy::SharePolicy) {
        self.0.heard.set_policy(policy);
    }

    /// The administrator's rules for shares of devices.
    pub(crate) fn policy(&self) -> rules::policy::SharePolicy {
        self.0.heard.policy()
    }

    /// What sessions used.
    pub(crate) fn samples(&self) -> &samples::Samples {
        &self.0.samples
    }

    /// Samples of one container of a session, by its place there, after `since`, oldest first, read on a thread
    /// for blocking work.
    pub(crate) async fn samples_of(
        &self,
        container: (rules::names::SessionId, u32),
        since: Timestamp,
    ) -> Result<Vec<samples::UsageRow>, Failure> {
        let samples = Arc::clone(&self.0.samples);
        tokio::task::spawn_blocking(move || samples.of(container, since))
            .await
            .map_err(|ended| Failure::Fault(ServerFault::new("read samples", ended)))?
    }

    /// The same of the last few minutes, read once for all who ask until the next sample.
    pub(crate) async fn recent_samples_of(
        &self,
        container: (rules::names::SessionId, u32),
        since: Timestamp,
    ) -> Result<Vec<samples::UsageRow>, Failure> {
        let samples = Arc::clone(&self.0.samples);
        tokio::task::spawn_blocking(move || samples.recent(container, since))
            .await
            .map_err(|ended| Failure::Fault(ServerFault::new("read samples", ended)))?
    }

    /// Keeps what a report says about usage, on a thread for blocking work; the caller does not wait for it.
    /// Call it from within the runtime.
    pub(crate) fn record_usage(&self, report: &rules::messages::NodeReport, at: Timestamp) {
        let used: Vec<_> = report
            .containers
            .iter()
            .filter_map(|sight| Some((sight.name, sight.usage.clone()?)))
            .collect();
        let paused = report.containers.iter().filter(|sight| {
            let state = &sight.state;
            matches!(state, ReportedState::Running { paused: true, .. })
        });
        let paused: Vec<_> = paused.map(|sight| sight.name).collect();
        let (catalog, node) = (self.clone(), report.node);
        let at = (at, self.0.clock.uptime());
        tokio::task::spawn_blocking(move || {
            catalog.0.samples.stand_still(paused.into_iter());
            if catalog.0.samples.record(node, at, &used) {
                catalog.0.measured.send_modify(|version| *version += 1);
            }
        });
    }

    /// Says to open terminals that a session was warned of being idle.
    pub(crate) fn tell_idle(&self, session: rules::names::SessionId) {
        // Nobody may be listening.
        let _ = self.0.idle_news.send(session);
    }

    /// Hears of each session that is warned from now on.
    pub(crate) fn idle_news(&self) -> broadcast::Receiver<rules::names::SessionId> {
        self.0.idle_news.subscribe()
    }

    /// What was drawn once when this box was founded.
    pub(crate) fn founding(&self) -> &Founding {
        &self.0.founding
    }

    /// Sets what is asked before each commit: rehearsals and tests let the server die there. Works
    /// in memory only; on files the kill is real.
    pub(crate) fn before_commits(
        &self,
        ask: impl FnMut(&'static str) -> AtCommit + Send + 'static,
    ) {
        if let WriterMode::Here(engine) = &self.0.writes {
            engine
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .before_commits(Box::new(ask));
        }
    }

    /// The rows as they are at this moment. In memory only, for rehearsals; None on files.
    pub(crate) fn copy_rows(&self) -> Result<Option<RowsCopy>, Failure> {
        match &self.0.writes {
            WriterMode::Thread(_) => Ok(None),
            WriterMode::Here(engine) => {
                let engine = engine
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                Ok(Some(RowsCopy(engine.copy()?)))
            }
        }
    }

    /// Puts rows that were copied in the place of these. In memory only; does nothing on files.
    pub(crate) fn put_rows_back(&self, copy: &RowsCopy) -> Result<(), Failure> {
        if let WriterMode::Here(engine) = &self.0.writes {
            engine
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .put_back(&copy.0)?;
            // The same revision may be of other rows now.
            self.0.heard.raise();
        }
        Ok(())
    }

    /// Lets the catalog grow by no more than `pages`; the disk seems full beyond. In memory only;
    /// None lifts the limit.
    pub(crate) fn limit_growth(&self, pages: Option<u32>) {
        if let WriterMode::Here(engine) = &self.0.writes {
            engine
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .limit_growth(pages);
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => disk_full().into(),
            Some(rusqlite::ErrorCode::ReadOnly) => disk_read_only().into(),
            Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
                health::damaged(&error).into()
            }
            _ if is_broken(&error) => health::damaged(&sealing::SealBroken).into(),
            Some(rusqlite::ErrorCode::SystemIoFailure | rusqlite::ErrorCode::CannotOpen) => {
                health::disk(&error).into()
            }
            _ => ServerFault::new("a statement of the catalog", error).into(),
        }
    }
}

/// Whether a sealed value could not be opened.
fn is_broken(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::FromSqlConversionFailure(_, _, source)
        if source.is::<sealing::SealBroken>())
}

/// The disk of the state is full. New work is refused with this everywhere.
pub(crate) fn disk_full() -> Refusal {
    refusals::disk_full().retry_after(30)
}

fn disk_read_only() -> Refusal {
    refusals::disk_read_only()
}
