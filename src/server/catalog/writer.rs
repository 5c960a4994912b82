//! The one writer: drains what waits, runs each request, of several each in a savepoint of its own, inside one
//! transaction, commits once, answers all, and tells the new revision. Never holds a transaction
//! across anything but SQL.

use std::collections::VecDeque;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use base::observe::{Clock, Uptime};
use rules::refusals;
use rules::units::Timestamp;
use rusqlite::Connection;
use rusqlite::backup::Backup;
use tokio::sync::watch;

use super::health::{self, CatalogHealth};
use super::node_cache::NodeCache;
use super::origin::{ActRecorder, RequestOrigin};
use super::reader::ReadTransaction;
use super::reserve::Reserve;
use super::sealing::Seal;
use super::{disk_full, disk_read_only};
use crate::{Failure, ServerFault};

/// Who waits for the answer. Users go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Requests,
    Loops,
}

/// Requests of users that may wait. Higher: a flood costs memory before it is refused. Lower: a
/// class of students that clicks together is told to come back.
const MAX_QUEUED_REQUESTS: usize = 4096;
/// Requests of loops that may wait; each loop has at most a few.
const MAX_QUEUED_PASSES: usize = 256;
/// Requests of users in one commit. Higher: the first of them waits for the last. Lower: more
/// syncs to disk under load.
const MAX_GROUP_COMMIT: usize = 256;
/// Requests of loops in one commit, whatever users do: loops are never starved, and users never
/// wait behind more than these.
const LOOPS_IN_ONE_COMMIT: usize = 2;

/// What happens at a commit of a rehearsal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtCommit {
    Commit,
    /// The server dies before the commit: nothing is kept, no request is acknowledged.
    DieBefore,
    /// The server dies right after the commit: everything is kept, no request is acknowledged.
    DieAfter,
}

/// The rows inside one request's savepoint: all reads of `ReadTransaction`, and the writes.
pub(crate) struct Rows<'c> {
    view: ReadTransaction<'c>,
    pub(crate) now: Timestamp,
    /// How long the machine has run at `now`.
    pub(crate) uptime: Uptime,
    pub(super) acts: ActRecorder,
}

impl<'c> Deref for Rows<'c> {
    type Target = ReadTransaction<'c>;
    fn deref(&self) -> &ReadTransaction<'c> {
        &self.view
    }
}

/// Why a whole transaction is gone; every request in it hears so.
#[derive(Debug, Clone)]
enum Loss {
    Full,
    ReadOnly,
    Damaged(String),
    Disk(String),
    Died,
    Fault(String),
}

impl Loss {
    fn of(error: &rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::Full,
            Some(rusqlite::ErrorCode::ReadOnly) => Self::ReadOnly,
            Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
                Self::Damaged(error.to_string())
            }
            Some(rusqlite::ErrorCode::SystemIoFailure | rusqlite::ErrorCode::CannotOpen) => {
                Self::Disk(error.to_string())
            }
            _ => Self::Fault(error.to_string()),
        }
    }

    fn failure(&self, what: &'static str) -> Failure {
        match self {
            Self::Full => disk_full().into(),
            Self::ReadOnly => disk_read_only().into(),
            Self::Damaged(text) => health::damaged(text).into(),
            Self::Disk(text) => health::disk(text).into(),
            Self::Died => ServerFault::new(what, "the server died at the commit").into(),
            Self::Fault(text) => {
                ServerFault::new(what, format!("the commit failed: {text}")).into()
            }
        }
    }
}

/// One named piece of work that waits for its turn.
pub(super) struct WriteRequest {
    what: &'static str,
    /// Whose request it is part of.
    origin: Option<Arc<RequestOrigin>>,
    work: Box<dyn WriteWork>,
}

trait WriteWork: Send {
    /// Runs it; true where what it wrote is to be kept. What a request changed has a row of the audit log: where the
    /// work named no act, one without a name.
    fn run(&mut self, what: &'static str, rows: &Rows<'_>, changed: &dyn Fn() -> bool) -> bool;
    /// Why SQLite gave the transaction up inside this work.
    fn loss(&self) -> Loss;
    fn answer(self: Box<Self>, what: &'static str, commit: Result<(), Loss>);
}

struct WorkOf<T, F, A> {
    work: Option<F>,
    result: Option<Result<T, Failure>>,
    answer: A,
}

impl<T, F, A> WriteWork for WorkOf<T, F, A>
where
    T: Send,
    F: FnOnce(&Rows<'_>) -> Result<T, Failure> + Send,
    A: FnOnce(Result<T, Failure>) + Send,
{
    fn run(&mut self, what: &'static str, rows: &Rows<'_>, changed: &dyn Fn() -> bool) -> bool {
        let Some(work) = self.work.take() else {
            return false;
        };
        // A broken assertion ends this request, not the writer.
        let audited = || -> Result<T, Failure> {
            let value = work(rows)?;
            if rows.acts.needs_a_row() && changed() {
                rows.record_unnamed(what)?;
            }
            Ok(value)
        };
        let result = catch_unwind(AssertUnwindSafe(audited)).unwrap_or_else(|_| {
            Err(ServerFault::new(what, "it panicked; the log above has the place").into())
        });
        let keep = result.is_ok();
        self.result = Some(result.map_err(|failure| match failure {
            Failure::Fault(fault) => ServerFault::new(what, fault).into(),
            refusal @ Failure::Refusal(_) => refusal,
        }));
        keep
    }

    fn loss(&self) -> Loss {
        match &self.result {
            Some(Err(Failure::Refusal(refusal))) if refusal.code == health::DISK => {
                Loss::Disk(refusal.values.get("what").cloned().unwrap_or_default())
            }
            // Of the disk SQLite gives up for nothing else but being full.
            _ => Loss::Full,
        }
    }

    fn answer(self: Box<Self>, what: &'static str, commit: Result<(), Loss>) {
        let result = match (commit, self.result) {
            (_, Some(Err(failure))) => Err(failure),
            (Ok(()), Some(Ok(value))) => Ok(value),
            (Err(loss), _) => Err(loss.failure(what)),
            (Ok(()), None) => Err(ServerFault::new(what, "it was never run").into()),
        };
        (self.answer)(result);
    }
}

pub(super) fn request<T: Send + 'static>(
    what: &'static str,
    origin: Option<Arc<RequestOrigin>>,
    work: impl FnOnce(&Rows<'_>) -> Result<T, Failure> + Send + 'static,
    answer: impl FnOnce(Result<T, Failure>) + Send + 'static,
) -> WriteRequest {
    WriteRequest {
        what,
        origin,
        work: Box::new(WorkOf {
            work: Some(work),
            result: None,
            answer,
        }),
    }
}

type Ask = Box<dyn FnMut(&'static str) -> AtCommit + Send>;

/// The writing connection and what it takes to commit.
pub(super) struct Engine {
    connection: Arc<Mutex<Connection>>,
    clock: Clock,
    announce: watch::Sender<u64>,
    heard: NodeCache,
    seal: Seal,
    /// None in memory. Dropped after the connection.
    reserve: Option<Reserve>,
    health: CatalogHealth,
    ask: Option<Ask>,
}

impl Engine {
    pub(super) fn new(
        connection: Connection,
        clock: Clock,
        announce: watch::Sender<u64>,
        heard: NodeCache,
        seal: Seal,
        reserve: Option<Reserve>,
        health: CatalogHealth,
    ) -> Self {
        Self {
            connection: Arc::new(Mutex::new(connection)),
            clock,
            announce,
            heard,
            seal,
            reserve,
            health,
            ask: None,
        }
    }

    /// The connection itself, for readers that have no file to open.
    pub(super) fn connection(&self) -> Arc<Mutex<Connection>> {
        Arc::clone(&self.connection)
    }

    pub(super) fn before_commits(&mut self, ask: Ask) {
        self.ask = Some(ask);
    }

    pub(super) fn limit_growth(&mut self, pages: Option<u32>) {
        let connection = locked(&self.connection);
        let most = pages.and_then(|more| {
            let now: u32 = connection
                .query_row("pragma page_count", [], |row| row.get(0))
                .ok()?;
            Some(now.saturating_add(more))
        });
        // 0xfffffffe is SQLite's own most.
        let most = most.unwrap_or(0xffff_fffe);
        if let Err(error) =
            connection.query_row(&format!("pragma max_page_count = {most}"), [], |row| {
                row.get::<_, i64>(0)
            })
        {
            tracing::warn!(%error, "the growth of the catalog could not be limited");
        }
    }

    /// The rows as they are, in a connection of their own. For rehearsals.
    pub(super) fn copy(&self) -> rusqlite::Result<Connection> {
        let mut copy = Connection::open_in_memory()?;
        copied(&locked(&self.connection), &mut copy)?;
        Ok(copy)
    }

    /// Puts rows that were copied in the place of these. For rehearsals.
    pub(super) fn put_back(&mut self, copy: &Connection) -> rusqlite::Result<()> {
        let mut connection = locked(&self.connection);
        copied(copy, &mut connection)?;
        let revision: i64 = connection.query_row(
            "select revision from installation where id = 1",
            [],
            |row| row.get(0),
        )?;
        self.announce
            .send_replace(u64::try_from(revision).unwrap_or(0));
        Ok(())
    }

    /// Runs a batch in one transaction and answers every request of it.
    pub(super) fn run(&mut self, mut batch: Vec<WriteRequest>) {
        let what = batch.first().map_or("nothing", |first| first.what);
        let outcome = {
            let connection = locked(&self.connection);
            let outcome = transact(
                &connection,
                (&self.heard, &self.seal),
                (self.clock.now(), self.clock.uptime()),
                &mut batch,
                || self.ask.as_mut().map_or(AtCommit::Commit, |ask| ask(what)),
            );
            if outcome.is_err()
                && !connection.is_autocommit()
                && let Err(error) = connection.execute_batch("rollback")
            {
                tracing::error!(%error, "a lost transaction could not be rolled back");
            }
            if let Some(reserve) = &self.reserve {
                reserve.keep();
            }
            outcome
        };
        let mut changed = false;
        let answer = match outcome {
            Ok(Committed { revision, heard }) => {
                if let Some(revision) = revision {
                    self.health.wrote();
                    // Seen by who reads next, so that nobody reads rows from before their own act.
                    self.announce.send_if_modified(|told| {
                        *told = revision;
                        false
                    });
                    changed = true;
                }
                if heard { Ok(()) } else { Err(Loss::Died) }
            }
            Err(loss) => {
                if !matches!(loss, Loss::Died) {
                    tracing::error!(?loss, what, "a transaction was lost");
                }
                Err(loss)
            }
        };
        for request in batch {
            request.work.answer(request.what, answer.clone());
        }
        // Who asked hears first: the others wake all at once and take the cores.
        if changed {
            self.announce.send_if_modified(|_| true);
        }
    }
}

fn copied(from: &Connection, to: &mut Connection) -> rusqlite::Result<()> {
    Backup::new(from, to)?.run_to_completion(i32::MAX, std::time::Duration::ZERO, None)
}

struct Committed {
    /// The new revision; None where nothing was changed.
    revision: Option<u64>,
    /// False where the server dies right after.
    heard: bool,
}

fn transact(
    connection: &Connection,
    (heard, seal): (&NodeCache, &Seal),
    (now, uptime): (Timestamp, Uptime),
    batch: &mut [WriteRequest],
    ask: impl FnOnce() -> AtCommit,
) -> Result<Committed, Loss> {
    let sql = |text: &str| {
        connection
            .prepare_cached(text)
            .and_then(|mut statement| statement.execute([]))
            .map(|_| ())
            .map_err(|error| Loss::of(&error))
    };
    sql("begin immediate")?;
    // Within a savepoint SQLite copies each page before its first change; one request alone needs none.
    let is_alone = batch.len() == 1;
    let mut changed = false;
    for request in batch.iter_mut() {
        if !is_alone {
            sql("savepoint request")?;
        }
        let before = connection.total_changes();
        let rows = Rows {
            view: ReadTransaction::new(connection, heard, seal),
            now,
            uptime,
            acts: ActRecorder::of(request.origin.take()),
        };
        let changes = || connection.total_changes() != before;
        let keep = request.work.run(request.what, &rows, &changes);
        if connection.is_autocommit() {
            // SQLite gave the whole transaction up inside the request: the disk is full or broken.
            return Err(request.work.loss());
        }
        if keep {
            changed |= changes();
        } else if !is_alone {
            sql("rollback to request")?;
        }
        if !is_alone {
            sql("release request")?;
        }
    }
    let revision = changed
        .then(|| raise_revision(connection).map_err(|error| Loss::of(&error)))
        .transpose()?;
    match ask() {
        AtCommit::DieBefore => return Err(Loss::Died),
        AtCommit::Commit | AtCommit::DieAfter if revision.is_none() => {
            sql("rollback")?;
            return Ok(Committed {
                revision: None,
                heard: true,
            });
        }
        AtCommit::Commit => {
            sql("commit")?;
        }
        AtCommit::DieAfter => {
            sql("commit")?;
            return Ok(Committed {
                revision,
                heard: false,
            });
        }
    }
    Ok(Committed {
        revision,
        heard: true,
    })
}

fn raise_revision(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached(
            "update installation
             set revision = revision + 1
             where id = 1
             returning revision",
        )?
        .query_row([], |row| row.get::<_, i64>(0))
        .map(|revision| u64::try_from(revision).unwrap_or(0))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Lanes {
    requests: VecDeque<WriteRequest>,
    loops: VecDeque<WriteRequest>,
    closed: bool,
    /// The writer is gone in a panic.
    dead: bool,
}

struct WriteQueue {
    lanes: Mutex<Lanes>,
    rung: Condvar,
}

/// Says it when the writer panics: what waits is refused instead of kept, and the revision ends with the
/// engine, by which the process knows that it must end; see `Catalog::writer_ended`.
struct NeverDeaf(Arc<WriteQueue>);

impl Drop for NeverDeaf {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("the catalog's writer panicked; nothing can be written any more");
            let mut lanes = locked(&self.0.lanes);
            lanes.dead = true;
            lanes.requests.clear();
            lanes.loops.clear();
        }
    }
}

/// The writer's thread. Dropping it lets what waits be written, then ends it.
pub(super) struct Thread {
    queue: Arc<WriteQueue>,
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    pub(super) fn start(mut engine: Engine) -> Result<Self, Failure> {
        let queue = Arc::new(WriteQueue {
            lanes: Mutex::new(Lanes::default()),
            rung: Condvar::new(),
        });
        let served = Arc::clone(&queue);
        let handle = std::thread::Builder::new()
            .name("catalog writer".to_owned())
            .spawn(move || {
                let _never_deaf = NeverDeaf(Arc::clone(&served));
                while let Some(batch) = served.next() {
                    engine.run(batch);
                }
            })
            .map_err(|error| ServerFault::new("start the catalog's writer", error))?;
        Ok(Self {
            queue,
            handle: Some(handle),
        })
    }

    pub(super) fn enter(&self, lane: Lane, request: WriteRequest) -> Result<(), Failure> {
        let mut lanes = locked(&self.queue.lanes);
        if lanes.dead {
            return Err(ServerFault::new(request.what, "the catalog's writer is gone").into());
        }
        let (waiting, most) = match lane {
            Lane::Requests => (&mut lanes.requests, MAX_QUEUED_REQUESTS),
            Lane::Loops => (&mut lanes.loops, MAX_QUEUED_PASSES),
        };
        if waiting.len() >= most {
            return Err(refusals::server_busy().retry_after(1).into());
        }
        waiting.push_back(request);
        drop(lanes);
        self.queue.rung.notify_one();
        Ok(())
    }
}

impl WriteQueue {
    /// Waits for work; None once closed and empty.
    fn next(&self) -> Option<Vec<WriteRequest>> {
        let mut lanes = locked(&self.lanes);
        while lanes.requests.is_empty() && lanes.loops.is_empty() {
            if lanes.closed {
                return None;
            }
            lanes = self
                .rung
                .wait(lanes)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let requests = lanes.requests.len().min(MAX_GROUP_COMMIT);
        let loops = lanes.loops.len().min(LOOPS_IN_ONE_COMMIT);
        let mut batch: Vec<WriteRequest> = lanes.requests.drain(..requests).collect();
        batch.extend(lanes.loops.drain(..loops));
        Some(batch)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        locked(&self.queue.lanes).closed = true;
        self.queue.rung.notify_one();
        if let Some(handle) = self.handle.take()
            && handle.thread().id() != std::thread::current().id()
            && handle.join().is_err()
        {
            tracing::error!("the catalog's writer ended in a panic");
        }
    }
}
