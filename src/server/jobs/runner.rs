//! Runs long work, a bounded number of jobs of each kind at once, each on a thread. The rows of operations are
//! the queue: what a crash leaves open begins again or ends with its reason, as its kind says. Knows no kind's
//! own work, and decides nothing about callers.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use api::operations::OperationState;
use base::observe::chain;
use rules::names::OperationId;
use rules::refusal::Refusal;
use rules::refusals;
use tokio::sync::{oneshot, watch};

use super::outcome::{JobFailure, JobProgress, JobResult, PANICKED};
use crate::access::Caller;
use crate::catalog::jobs::OperationRow;
use crate::catalog::{Catalog, Lane, Rows};
use crate::{Failure, ServerFault};

#[cfg(test)]
mod tests;

/// The own work of one kind of job that rows keep.
pub(crate) trait JobKind: Send + Sync {
    /// As the rows of its jobs say.
    fn name(&self) -> &'static str;

    /// The name of its threads, at most 15 letters.
    fn thread(&self) -> &'static str;

    /// How many of its jobs run at once; at least 1.
    fn at_once(&self) -> usize;

    /// Works until the job is done, and gives what to write. Anything that it does before that may be done
    /// twice: a crash begins it again.
    fn run(&self, job: &RunningJob<'_>) -> Result<JobResult, JobFailure>;

    /// What the row of a cancelled job says. A run that ends with this code was stopped: it was cancelled, or
    /// the server stops.
    fn cancelled(&self) -> Refusal;

    /// Why a job of an earlier server cannot go on; None where it begins again.
    fn interrupted(&self) -> Option<Refusal> {
        None
    }

    /// How far a job is that waits.
    fn waiting(&self) -> Option<JobProgress> {
        None
    }

    /// Removes what lies outside the catalog, before a job ends for this reason without success.
    fn discard(&self, _row: &OperationRow, _refusal: &Refusal) {}

    /// Undoes rows of a job that ends without success, in the same commit.
    fn give_up(&self, _rows: &Rows<'_>, _job: OperationId) -> Result<(), Failure> {
        Ok(())
    }

    /// Removes what lies outside the catalog and is of no use after a success.
    fn tidy(&self, _row: &OperationRow) {}
}

/// A kind of job that no row keeps: after a crash nothing of it is open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnrecordedKind {
    pub(crate) name: &'static str,
    /// The name of its threads, at most 15 letters.
    pub(crate) thread: &'static str,
    /// How many of its jobs run at once.
    pub(crate) at_once: usize,
}

/// A job under way, as its kind sees it.
pub(crate) struct RunningJob<'a> {
    pub(crate) row: &'a OperationRow,
    /// Who asked for it, while the server lives that was asked.
    pub(crate) caller: Option<&'a Caller>,
    stop: &'a AtomicBool,
    shared: &'a RunnerShared,
}

impl RunningJob<'_> {
    /// Says how far it is.
    pub(crate) fn report(&self, progress: JobProgress) {
        if let Some(entry) = self.shared.locked().jobs.get_mut(&self.row.id) {
            entry.progress = Some(progress);
        }
    }

    /// Raised when it was cancelled or the server stops.
    pub(crate) fn stop(&self) -> &AtomicBool {
        self.stop
    }

    /// Whether it was cancelled or the server stops.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Whether the server stops.
    pub(crate) fn is_closing(&self) -> bool {
        *self.shared.closing.borrow()
    }

    /// Ends when the server stops.
    pub(crate) async fn closing(&self) {
        let mut closing = self.shared.closing.subscribe();
        let _ = closing.wait_for(|closing| *closing).await;
    }
}

/// The runner of one server. Dropping it stops the jobs under way and waits for their threads; their rows stay
/// open for the next server.
pub(crate) struct JobRunner {
    shared: Arc<RunnerShared>,
}

struct RunnerShared {
    catalog: Catalog,
    kinds: Vec<Arc<dyn JobKind>>,
    state: Mutex<RunnerState>,
    closing: watch::Sender<bool>,
    /// Threads that work.
    working: watch::Sender<usize>,
}

#[derive(Default)]
struct RunnerState {
    closing: bool,
    workers: BTreeMap<&'static str, KindWorkers>,
    jobs: BTreeMap<OperationId, JobEntry>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct KindWorkers {
    count: usize,
    /// Rows may have come since the last look.
    due: bool,
}

/// What is known of a job beside its row.
struct JobEntry {
    place: JobPlace,
    caller: Option<Caller>,
    progress: Option<JobProgress>,
}

enum JobPlace {
    /// Its row was written here, or is about to be.
    Waiting,
    /// A thread has it; raising the flag stops it.
    Claimed(Arc<AtomicBool>),
    /// Its end could not be written, or the server stops. The next `wake` looks at its row again.
    SetAside,
}

/// A job that this thread alone works on.
struct ClaimedJob {
    row: OperationRow,
    caller: Option<Caller>,
    stop: Arc<AtomicBool>,
    /// It was asked for here, and is not left from an earlier server.
    from_here: bool,
}

/// The place of a thread among those of its kind; dropping it gives the place back.
struct WorkerPlace {
    shared: Arc<RunnerShared>,
    kind: &'static str,
    given_back: bool,
}

impl WorkerPlace {
    fn new(shared: &Arc<RunnerShared>, state: &mut RunnerState, kind: &'static str) -> Self {
        state.workers.entry(kind).or_default().count += 1;
        shared.working.send_modify(|count| *count += 1);
        Self {
            shared: Arc::clone(shared),
            kind,
            given_back: false,
        }
    }

    /// Gives the place back unless rows may have come meanwhile; false where they may.
    fn leave(&mut self, only_if_idle: bool) -> bool {
        let mut state = self.shared.locked();
        let workers = state.workers.entry(self.kind).or_default();
        if only_if_idle && workers.due {
            return false;
        }
        workers.count -= 1;
        self.given_back = true;
        drop(state);
        self.shared.working.send_modify(|count| *count -= 1);
        true
    }
}

impl Drop for WorkerPlace {
    fn drop(&mut self) {
        if !self.given_back {
            self.leave(false);
        }
    }
}

impl JobRunner {
    /// A runner of these kinds. Threads begin with the first `wake`.
    pub(crate) fn new(catalog: Catalog, kinds: Vec<Arc<dyn JobKind>>) -> Self {
        Self {
            shared: Arc::new(RunnerShared {
                catalog,
                kinds,
                state: Mutex::default(),
                closing: watch::Sender::new(false),
                working: watch::Sender::new(0),
            }),
        }
    }

    /// Announces a job of this caller before its row is written, so that no look takes the row for one of an
    /// earlier server. `wake` after the commit begins it; `forget` where none came.
    pub(crate) fn expect(&self, row: &OperationRow, caller: &Caller) {
        let kind = self.shared.kind(&row.kind);
        let entry = JobEntry {
            place: JobPlace::Waiting,
            caller: Some(caller.clone()),
            progress: kind.and_then(|kind| kind.waiting()),
        };
        self.shared.locked().jobs.insert(row.id, entry);
    }

    /// Takes `expect` back: the row was not written.
    pub(crate) fn forget(&self, id: OperationId) {
        self.shared.locked().jobs.remove(&id);
    }

    /// Looks for open rows of this kind on a thread: one was written, or the server has just started.
    ///
    /// Errors: a fault where no thread can be started; the row stays open.
    pub(crate) fn wake(&self, kind: &str) -> Result<(), Failure> {
        let Some(kind) = self.shared.kind(kind) else {
            return Ok(());
        };
        let mut state = self.shared.locked();
        let set_aside = |entry: &JobEntry| matches!(entry.place, JobPlace::SetAside);
        state.jobs.retain(|_, entry| !set_aside(entry));
        state.workers.entry(kind.name()).or_default().due = true;
        self.shared.add_worker(&mut state, &kind)
    }

    /// How far this one is; None where it is not being worked on.
    pub(crate) fn progress(&self, id: OperationId) -> Option<JobProgress> {
        let state = self.shared.locked();
        state.jobs.get(&id).and_then(|entry| entry.progress.clone())
    }

    /// Stops a job whose row says that it is cancelled: one that waits is over when this returns, one that
    /// runs ends soon. Writes to the catalog; not for a thread that serves requests.
    pub(crate) fn cancel(&self, id: OperationId) -> Result<(), Failure> {
        let shared = &self.shared;
        let row = shared
            .catalog
            .read_now("look for a job to cancel", |view| view.operation(id))?;
        let Some(row) = row.filter(|row| row.state.is_open()) else {
            return Ok(());
        };
        let Some(kind) = shared.kind(&row.kind) else {
            return Ok(());
        };
        let claimed = {
            let mut state = shared.locked();
            if let Some(JobPlace::Claimed(stop)) = state.jobs.get(&id).map(|entry| &entry.place) {
                stop.store(true, Ordering::Release);
                return Ok(());
            }
            state.claim(row)
        };
        let ended = shared.end(
            &kind,
            &claimed.row,
            OperationState::Cancelled,
            kind.cancelled(),
        );
        shared.release(id, ended.is_ok());
        ended
    }

    /// Runs work of a kind that no row keeps, on a thread. None where as many run as may; else what the work
    /// gives.
    ///
    /// Errors: a fault where no thread can be started or the server stops.
    pub(crate) fn run_unrecorded<T: Send + 'static>(
        &self,
        kind: UnrecordedKind,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<Option<oneshot::Receiver<Result<T, Failure>>>, Failure> {
        let shared = &self.shared;
        let mut state = shared.locked();
        if state.closing {
            return Err(ServerFault::new(kind.name, "the server stops").into());
        }
        let count = state.workers.get(kind.name).map_or(0, |kind| kind.count);
        if count >= kind.at_once {
            return Ok(None);
        }
        let (send, answer) = oneshot::channel();
        let body = move |place: WorkerPlace| {
            let done = catch_unwind(AssertUnwindSafe(work));
            let done = done.unwrap_or_else(|_| Err(ServerFault::new(kind.name, PANICKED).into()));
            // First the place: a caller that has the answer may ask for the next one.
            drop(place);
            // The caller may have gone away; the work is done all the same.
            let _ = send.send(done);
        };
        shared.start_thread(&mut state, kind.name, kind.thread, body)?;
        Ok(Some(answer))
    }

    /// Stops all jobs and ends when their threads have; rows stay open for the next server.
    pub(crate) async fn stop(&self) {
        self.shared.close();
        let mut working = self.shared.working.subscribe();
        let _ = working.wait_for(|count| *count == 0).await;
    }
}

impl Drop for JobRunner {
    fn drop(&mut self) {
        self.shared.close();
        let threads = std::mem::take(&mut self.shared.locked().threads);
        // A job that held the server last drops it on its own thread.
        let here = std::thread::current().id();
        for thread in threads.into_iter().filter(|t| t.thread().id() != here) {
            if thread.join().is_err() {
                tracing::error!("a thread of jobs ended in a panic");
            }
        }
    }
}

impl RunnerState {
    /// Takes a job for this thread alone.
    fn claim(&mut self, row: OperationRow) -> ClaimedJob {
        let stop = Arc::new(AtomicBool::new(row.cancel));
        let entry = self.jobs.entry(row.id);
        let mut from_here = true;
        let entry = entry.or_insert_with(|| {
            from_here = false;
            JobEntry {
                place: JobPlace::Waiting,
                caller: None,
                progress: None,
            }
        });
        entry.place = JobPlace::Claimed(Arc::clone(&stop));
        ClaimedJob {
            caller: entry.caller.clone(),
            row,
            stop,
            from_here,
        }
    }
}

impl RunnerShared {
    fn locked(&self) -> MutexGuard<'_, RunnerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kind(&self, name: &str) -> Option<Arc<dyn JobKind>> {
        self.kinds.iter().find(|kind| kind.name() == name).cloned()
    }

    fn close(&self) {
        let mut state = self.locked();
        state.closing = true;
        // Before the flags: a job that sees its flag raised can tell why.
        self.closing.send_replace(true);
        for entry in state.jobs.values() {
            if let JobPlace::Claimed(stop) = &entry.place {
                stop.store(true, Ordering::Release);
            }
        }
    }

    /// Starts one thread more for this kind, if it has a place left.
    fn add_worker(
        self: &Arc<Self>,
        state: &mut RunnerState,
        kind: &Arc<dyn JobKind>,
    ) -> Result<(), Failure> {
        let count = state.workers.get(kind.name()).map_or(0, |kind| kind.count);
        if state.closing || count >= kind.at_once() {
            return Ok(());
        }
        let (shared, worked) = (Arc::clone(self), Arc::clone(kind));
        let body = move |place| shared.work(&worked, place);
        self.start_thread(state, kind.name(), kind.thread(), body)
    }

    fn start_thread(
        self: &Arc<Self>,
        state: &mut RunnerState,
        kind: &'static str,
        name: &str,
        body: impl FnOnce(WorkerPlace) + Send + 'static,
    ) -> Result<(), Failure> {
        state.threads.retain(|thread| !thread.is_finished());
        // The place is given back by the thread, or below where there is none.
        let mut place = WorkerPlace::new(self, state, kind);
        place.given_back = true;
        let spawned = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                place.given_back = false;
                body(place);
            });
        match spawned {
            Ok(thread) => {
                state.threads.push(thread);
                Ok(())
            }
            Err(error) => {
                state.workers.entry(kind).or_default().count -= 1;
                self.working.send_modify(|count| *count -= 1);
                Err(ServerFault::new("start a thread for a job", error).into())
            }
        }
    }

    /// One thread: takes jobs of its kind until none waits.
    fn work(self: &Arc<Self>, kind: &Arc<dyn JobKind>, mut place: WorkerPlace) {
        loop {
            match self.next(kind.as_ref()) {
                Ok(Some(job)) => {
                    let more = self.add_worker(&mut self.locked(), kind);
                    if let Err(failure) = more {
                        tracing::warn!(error = %chain(&failure), "jobs wait for one another");
                    }
                    self.carry(kind, &job);
                }
                Ok(None) if place.leave(true) => return,
                Ok(None) => {}
                Err(failure) => {
                    // The rows are still open; the next `wake` looks at them again.
                    tracing::error!(error = %chain(&failure), "open jobs cannot be read");
                    return;
                }
            }
        }
    }

    /// The oldest job of a kind that no thread has; None where there is none or the server stops.
    fn next(&self, kind: &dyn JobKind) -> Result<Option<ClaimedJob>, Failure> {
        let mut state = self.locked();
        state.workers.entry(kind.name()).or_default().due = false;
        drop(state);
        let open = self
            .catalog
            .read_now("look for open jobs", |view| view.open_operations())?;
        let mut state = self.locked();
        if state.closing {
            return Ok(None);
        }
        let free = |row: &OperationRow| {
            let place = state.jobs.get(&row.id).map(|entry| &entry.place);
            row.kind == kind.name() && matches!(place, None | Some(JobPlace::Waiting))
        };
        let oldest = open.into_iter().find(free);
        Ok(oldest.map(|row| state.claim(row)))
    }

    /// Takes one job to its end, or leaves its row open where the server stops or nothing can be written.
    fn carry(&self, kind: &Arc<dyn JobKind>, job: &ClaimedJob) {
        let work = || {
            if job.row.cancel {
                self.end(kind, &job.row, OperationState::Cancelled, kind.cancelled())
                    .map(|()| true)
            } else if let (false, Some(refusal)) = (job.from_here, kind.interrupted()) {
                self.end(kind, &job.row, OperationState::Failed, refusal)
                    .map(|()| true)
            } else {
                self.run(kind, job)
            }
        };
        // A panic in what a kind does around its run must give the job back too.
        let over = catch_unwind(AssertUnwindSafe(work))
            .unwrap_or_else(|_| Err(ServerFault::new(kind.name(), PANICKED).into()));
        if let Err(failure) = &over {
            let job = job.row.id;
            tracing::error!(%job, error = %chain(failure), "the end of a job is not written");
        }
        self.release(job.row.id, matches!(over, Ok(true)));
    }

    /// True where the job is over.
    fn run(&self, kind: &Arc<dyn JobKind>, job: &ClaimedJob) -> Result<bool, Failure> {
        let row = &job.row;
        let id = row.id;
        let open = self
            .catalog
            .write_now(Lane::Loops, "begin a job", move |rows| {
                rows.begin_operation(id)
            })?;
        if !open {
            return Ok(true);
        }
        let running = RunningJob {
            row,
            caller: job.caller.as_ref(),
            stop: &job.stop,
            shared: self,
        };
        let done = catch_unwind(AssertUnwindSafe(|| kind.run(&running)))
            .unwrap_or_else(|_| Err(ServerFault::new(kind.name(), PANICKED).into()));
        let kept = match done {
            Ok(result) => self.succeed(id, result),
            Err(JobFailure::Interrupted) => return Ok(false),
            Err(JobFailure::Failed(failure)) => Err(failure),
        };
        let (state, refusal) = match kept {
            Ok(()) => {
                kind.tidy(row);
                return Ok(true);
            }
            Err(Failure::Refusal(refusal)) if refusal.code == kind.cancelled().code => {
                // Where it was cancelled too, its row says so to the next server.
                if running.is_closing() {
                    return Ok(false);
                }
                (OperationState::Cancelled, refusal)
            }
            Err(Failure::Refusal(refusal)) => (OperationState::Failed, refusal),
            Err(Failure::Fault(fault)) => {
                tracing::error!(job = %id, kind = kind.name(), error = %chain(&fault), "a job failed");
                (OperationState::Failed, refusals::server_job_failed())
            }
        };
        self.end(kind, row, state, refusal).map(|()| true)
    }

    /// Writes what a job gave and its end, in one commit.
    fn succeed(&self, id: OperationId, result: JobResult) -> Result<(), Failure> {
        self.forget_progress(id);
        self.catalog
            .write_now(Lane::Loops, "write what a job gave", move |rows| {
                let result = result(rows)?;
                match rows.end_operation(id, OperationState::Succeeded, Some(&result), None)? {
                    true => Ok(()),
                    false => Err(ServerFault::new("end a job", "it was over before").into()),
                }
            })
    }

    /// Ends a job that gave nothing: what it left goes, then its row says why.
    fn end(
        &self,
        kind: &Arc<dyn JobKind>,
        row: &OperationRow,
        state: OperationState,
        refusal: Refusal,
    ) -> Result<(), Failure> {
        let id = row.id;
        kind.discard(row, &refusal);
        self.forget_progress(id);
        let kind = Arc::clone(kind);
        self.catalog
            .write_now(Lane::Loops, "end a job", move |rows| {
                if rows.end_operation(id, state, None, Some(&refusal))? {
                    kind.give_up(rows, id)?;
                }
                Ok(())
            })
    }

    fn forget_progress(&self, id: OperationId) {
        if let Some(entry) = self.locked().jobs.get_mut(&id) {
            entry.progress = None;
        }
    }

    /// Lets go of a job: it is over, or is set aside until the next `wake`.
    fn release(&self, id: OperationId, over: bool) {
        let mut state = self.locked();
        if over {
            state.jobs.remove(&id);
        } else if let Some(entry) = state.jobs.get_mut(&id) {
            entry.progress = None;
            entry.place = JobPlace::SetAside;
        }
    }
}
