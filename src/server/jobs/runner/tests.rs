//! The runner with kinds that do as they are told: order, bounds, cancel and crash in each state of a job.

use std::collections::BTreeSet;
use std::sync::Condvar;
use std::time::{Duration, Instant};

use rules::units::Timestamp;
use serde_json::json;

use super::*;
use crate::Server;
use crate::access::local_root;

const AGAIN: &str = "test.again";
const ONCE: &str = "test.once";
/// What a job writes beside its end, to be seen or to be undone.
const MARK: &str = "test.mark";
/// How often something is looked for that a thread does.
const LOOK: Duration = Duration::from_millis(5);
/// How long it may take on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A kind whose jobs do what their input says: `succeed`, `refuse`, `fault`, `panic`, `spoil`, or `wait` until
/// they are let go.
struct Scripted {
    name: &'static str,
    at_once: usize,
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Default)]
struct Stage {
    begun: Vec<String>,
    running: BTreeSet<String>,
    most: usize,
    let_go: BTreeSet<String>,
    discarded: Vec<String>,
    tidied: usize,
    /// The next end that is not a success cannot be written.
    no_end: bool,
    /// The next `discard` panics.
    falls: bool,
}

fn label(row: &OperationRow) -> String {
    row.input["label"].as_str().unwrap_or_default().to_owned()
}

impl Scripted {
    fn new(name: &'static str, at_once: usize) -> Arc<Self> {
        Arc::new(Self {
            name,
            at_once,
            stage: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn let_go(&self, label: &str) {
        self.stage().let_go.insert(label.to_owned());
        self.changed.notify_all();
    }

    fn wait(&self, job: &RunningJob<'_>) -> Result<(), JobFailure> {
        let label = label(job.row);
        let mut stage = self.stage();
        stage.running.insert(label.clone());
        stage.most = stage.most.max(stage.running.len());
        while !stage.let_go.contains(&label) && !job.is_stopped() {
            stage = self.changed.wait_timeout(stage, LOOK).unwrap().0;
        }
        stage.running.remove(&label);
        match stage.let_go.contains(&label) {
            true => Ok(()),
            false => Err(self.cancelled().into()),
        }
    }
}

impl JobKind for Scripted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn thread(&self) -> &'static str {
        "scripted"
    }

    fn at_once(&self) -> usize {
        self.at_once
    }

    fn run(&self, job: &RunningJob<'_>) -> Result<JobResult, JobFailure> {
        self.stage().begun.push(label(job.row));
        job.report(JobProgress {
            step: "acting".to_owned(),
            done: 1,
            total: 2,
        });
        let act = job.row.input["act"].as_str().unwrap_or_default().to_owned();
        match act.as_str() {
            "refuse" => return Err(refusals::operation_not_found().into()),
            "fault" => return Err(ServerFault::new("act", "as told").into()),
            "panic" => panic!("as told"),
            "wait" => self.wait(job)?,
            _ => {}
        }
        let mark = mark(job.row);
        Ok(Box::new(move |rows| {
            rows.insert_operation(&mark, "server")?;
            match act.as_str() {
                "spoil" => Err(refusals::operation_over().into()),
                _ => Ok(json!({"done": true})),
            }
        }))
    }

    fn cancelled(&self) -> Refusal {
        refusals::gpu_test_cancelled()
    }

    fn interrupted(&self) -> Option<Refusal> {
        (self.name == ONCE).then(refusals::gpu_test_interrupted)
    }

    fn waiting(&self) -> Option<JobProgress> {
        Some(JobProgress {
            step: "waiting".to_owned(),
            done: 0,
            total: 2,
        })
    }

    fn discard(&self, row: &OperationRow, _: &Refusal) {
        self.stage().discarded.push(label(row));
        let falls = std::mem::take(&mut self.stage().falls);
        assert!(!falls, "as told");
    }

    fn give_up(&self, rows: &Rows<'_>, job: OperationId) -> Result<(), Failure> {
        let row = rows.operation(job)?.expect("it is being ended");
        rows.insert_operation(&mark(&row), "server")?;
        match std::mem::take(&mut self.stage().no_end) {
            true => Err(ServerFault::new("give up", "as told").into()),
            false => Ok(()),
        }
    }

    fn tidy(&self, _: &OperationRow) {
        self.stage().tidied += 1;
    }
}

fn mark(row: &OperationRow) -> OperationRow {
    let input = json!({"label": label(row)});
    OperationRow::asked(row.created_at, MARK, row.user, input)
}

/// A catalog in memory with a runner over it, which can die and come again.
struct Bench {
    server: Server,
    again: Arc<Scripted>,
    once: Arc<Scripted>,
    runner: Option<JobRunner>,
    asked: i64,
}

impl Bench {
    fn new(at_once: usize) -> Self {
        let mut bench = Self {
            server: Server::for_tests(),
            again: Scripted::new(AGAIN, at_once),
            once: Scripted::new(ONCE, at_once),
            runner: None,
            asked: 0,
        };
        bench.start();
        bench
    }

    fn start(&mut self) {
        let kinds: Vec<Arc<dyn JobKind>> = vec![
            Arc::clone(&self.again) as Arc<dyn JobKind>,
            Arc::clone(&self.once) as Arc<dyn JobKind>,
        ];
        self.runner = Some(JobRunner::new(self.server.catalog().clone(), kinds));
    }

    fn runner(&self) -> &JobRunner {
        self.runner.as_ref().expect("it was started")
    }

    /// Writes the row of a job as an action does, and does not begin it.
    fn row(&mut self, kind: &str, label: &str, act: &str) -> OperationId {
        self.asked += 1;
        let root = local_root(&self.server);
        let at = Timestamp::from_millis(self.asked);
        let input = json!({"label": label, "act": act});
        let row = OperationRow::asked(at, kind, root.subject.user, input);
        let id = row.id;
        self.runner().expect(&row, &root);
        let catalog = self.server.catalog();
        catalog
            .write_now(Lane::Requests, "ask", move |rows| {
                rows.insert_operation(&row, "root")
            })
            .unwrap();
        id
    }

    fn ask(&mut self, kind: &str, label: &str, act: &str) -> OperationId {
        let id = self.row(kind, label, act);
        self.runner().wake(kind).unwrap();
        id
    }

    /// Cancels as an action does.
    fn cancel(&self, id: OperationId) -> bool {
        let catalog = self.server.catalog();
        let open = catalog
            .write_now(Lane::Requests, "cancel", move |rows| {
                rows.cancel_operation(id)
            })
            .unwrap();
        self.runner().cancel(id).unwrap();
        open
    }

    fn seen(&self, id: OperationId) -> OperationRow {
        let catalog = self.server.catalog();
        let row = catalog.read_now("look", |view| view.operation(id)).unwrap();
        row.expect("it was asked for")
    }

    /// The state of a job and the code of its refusal.
    fn end(&self, id: OperationId) -> (OperationState, String) {
        until("it ends", || !self.seen(id).state.is_open());
        let row = self.seen(id);
        let code = row.refusal.map(|refusal| refusal.code).unwrap_or_default();
        (row.state, code)
    }

    /// What jobs wrote beside their ends.
    fn marks(&self) -> Vec<String> {
        let catalog = self.server.catalog();
        let open = catalog.read_now("look", |view| view.open_operations());
        let marks = open.unwrap().into_iter().filter(|row| row.kind == MARK);
        marks.map(|row| label(&row)).collect()
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "{what}: never");
        std::thread::sleep(LOOK);
    }
}

fn ended(state: OperationState, code: &str) -> (OperationState, String) {
    (state, code.to_owned())
}

#[test]
fn the_oldest_jobs_run_first_and_no_more_at_once_than_their_kind_may() {
    let mut bench = Bench::new(2);
    let names = ["a", "b", "c", "d", "e"];
    let jobs: Vec<_> = names
        .iter()
        .map(|name| bench.ask(AGAIN, name, "wait"))
        .collect();
    for (at, (name, job)) in names.iter().zip(&jobs).enumerate() {
        let running = names[at..].len().min(2);
        until("as many run as may", || {
            bench.again.stage().running.len() == running
        });
        assert!(bench.again.stage().running.contains(*name));
        bench.again.let_go(name);
        assert_eq!(bench.end(*job), ended(OperationState::Succeeded, ""));
    }
    let stage = bench.again.stage();
    assert_eq!(stage.most, 2);
    // Two that begin together may do so in either order.
    let mut begun = stage.begun.clone();
    begun[..2].sort();
    assert_eq!(begun, names);
    assert_eq!(stage.discarded, Vec::<String>::new());
}

#[test]
fn a_queue_of_one_kind_holds_up_no_other_kind() {
    let mut bench = Bench::new(1);
    for name in ["a", "b", "c"] {
        bench.ask(AGAIN, name, "wait");
    }
    let other = bench.ask(ONCE, "other", "succeed");
    assert_eq!(bench.end(other), ended(OperationState::Succeeded, ""));
    until("the first runs", || bench.again.stage().running.len() == 1);
    assert_eq!(bench.again.stage().begun, ["a"]);
}

#[test]
fn each_end_is_written_with_its_reason_and_nothing_half_applied_stays() {
    let mut bench = Bench::new(1);
    for (act, state, code) in [
        ("succeed", OperationState::Succeeded, ""),
        ("refuse", OperationState::Failed, "operation.not-found"),
        ("fault", OperationState::Failed, "server.fault"),
        ("panic", OperationState::Failed, "server.fault"),
        // Its rows are refused, so its own mark goes and that of giving up stays.
        ("spoil", OperationState::Failed, "operation.over"),
    ] {
        let job = bench.ask(AGAIN, act, act);
        assert_eq!(bench.end(job), ended(state, code), "{act}");
        assert_eq!(bench.runner().progress(job), None, "{act}");
    }
    assert_eq!(
        bench.marks(),
        ["succeed", "refuse", "fault", "panic", "spoil"]
    );
    until("what is of no use goes", || bench.again.stage().tidied == 1);
    assert_eq!(
        bench.again.stage().discarded,
        ["refuse", "fault", "panic", "spoil"]
    );
}

#[test]
fn a_panic_around_a_run_gives_the_job_back() {
    let mut bench = Bench::new(1);
    bench.again.stage().falls = true;
    let first = bench.ask(AGAIN, "first", "refuse");
    until("it falls", || bench.again.stage().discarded.len() == 1);
    // Its thread is gone, and the next job has the place.
    for label in ["second", "third"] {
        let next = bench.ask(AGAIN, label, "succeed");
        assert_eq!(bench.end(next), ended(OperationState::Succeeded, ""));
    }
    // Each of them woke the runner, so the first was taken again.
    assert_eq!(
        bench.end(first),
        ended(OperationState::Failed, "operation.not-found")
    );
}

#[test]
fn progress_is_told_while_a_job_waits_and_runs() {
    let mut bench = Bench::new(1);
    let step = |bench: &Bench, job| bench.runner().progress(job).map(|told| told.step);
    let first = bench.ask(ONCE, "first", "wait");
    let second = bench.ask(ONCE, "second", "wait");
    until("the first runs", || {
        step(&bench, first).as_deref() == Some("acting")
    });
    assert_eq!(step(&bench, second).as_deref(), Some("waiting"));
    bench.once.let_go("first");
    bench.end(first);
    assert_eq!(step(&bench, first), None);
    until("the second runs", || {
        step(&bench, second).as_deref() == Some("acting")
    });
    bench.once.let_go("second");
    bench.end(second);
}

#[test]
fn a_job_is_cancelled_while_it_waits_or_runs_and_not_when_it_is_over() {
    for kind in [AGAIN, ONCE] {
        let mut bench = Bench::new(1);
        let scripted = if kind == AGAIN {
            Arc::clone(&bench.again)
        } else {
            Arc::clone(&bench.once)
        };
        let cancelled = ended(OperationState::Cancelled, "gpu.test-cancelled");
        let running = bench.ask(kind, "running", "wait");
        let waiting = bench.ask(kind, "waiting", "wait");
        until("it runs", || scripted.stage().running.contains("running"));
        assert!(bench.cancel(waiting));
        // Over at once, although its turn never came.
        assert!(!bench.seen(waiting).state.is_open());
        assert_eq!(bench.end(waiting), cancelled);
        assert!(bench.cancel(running));
        assert_eq!(bench.end(running), cancelled);
        let done = bench.ask(kind, "done", "succeed");
        assert_eq!(bench.end(done), ended(OperationState::Succeeded, ""));
        assert!(!bench.cancel(done));
        assert_eq!(bench.end(done), ended(OperationState::Succeeded, ""));
        assert_eq!(scripted.stage().begun, ["running", "done"]);
        assert_eq!(scripted.stage().discarded, ["waiting", "running"]);
    }
}

#[test]
fn what_a_crash_leaves_open_begins_again_or_ends_with_its_reason() {
    let mut bench = Bench::new(1);
    let mut left = Vec::new();
    for kind in [AGAIN, ONCE] {
        let done = bench.ask(kind, "done", "succeed");
        bench.end(done);
        let running = bench.ask(kind, "running", "wait");
        let waiting = bench.ask(kind, "waiting", "succeed");
        let unwanted = bench.row(kind, "unwanted", "succeed");
        left.push((done, running, waiting, unwanted));
    }
    until("both run", || {
        bench.again.stage().running.len() == 1 && bench.once.stage().running.len() == 1
    });
    // The runner dies between the commit that cancels and the end.
    let catalog = bench.server.catalog().clone();
    for (.., unwanted) in left.clone() {
        catalog
            .write_now(Lane::Requests, "cancel", move |rows| {
                rows.cancel_operation(unwanted)
            })
            .unwrap();
    }
    bench.runner = None;
    for (done, running, waiting, unwanted) in &left {
        assert!(!bench.seen(*done).state.is_open());
        assert_eq!(bench.seen(*running).state, OperationState::Running);
        assert_eq!(bench.seen(*waiting).state, OperationState::Pending);
        assert_eq!(bench.seen(*unwanted).state, OperationState::Pending);
    }
    assert_eq!(bench.marks(), ["done", "done"]);

    bench.again.let_go("running");
    bench.start();
    for kind in [AGAIN, ONCE] {
        bench.runner().wake(kind).unwrap();
    }
    let succeeded = ended(OperationState::Succeeded, "");
    let interrupted = ended(OperationState::Failed, "gpu.test-interrupted");
    let cancelled = ended(OperationState::Cancelled, "gpu.test-cancelled");
    for ((done, running, waiting, unwanted), open) in
        left.iter().zip([succeeded.clone(), interrupted])
    {
        assert_eq!(bench.end(*done), succeeded);
        assert_eq!(bench.end(*running), open);
        assert_eq!(bench.end(*waiting), open);
        assert_eq!(bench.end(*unwanted), cancelled);
    }
    assert_eq!(
        bench.again.stage().begun,
        ["done", "running", "running", "waiting"]
    );
    assert_eq!(bench.once.stage().begun, ["done", "running"]);
    let mut marks = bench.marks();
    marks.sort();
    assert_eq!(
        marks,
        [
            "done", "done", "running", "running", "unwanted", "unwanted", "waiting", "waiting"
        ],
        "once each"
    );
}

#[test]
fn an_end_that_cannot_be_written_holds_up_no_other_job_and_is_looked_at_again() {
    let mut bench = Bench::new(1);
    bench.again.stage().no_end = true;
    let stuck = bench.row(AGAIN, "stuck", "refuse");
    let next = bench.ask(AGAIN, "next", "succeed");
    assert_eq!(bench.end(next), ended(OperationState::Succeeded, ""));
    assert_eq!(bench.seen(stuck).state, OperationState::Running);
    assert_eq!(bench.marks(), ["next"]);
    bench.runner().wake(AGAIN).unwrap();
    let failed = ended(OperationState::Failed, "operation.not-found");
    assert_eq!(bench.end(stuck), failed);
    assert_eq!(bench.again.stage().begun, ["stuck", "next", "stuck"]);

    // One that cannot begin again says why instead.
    bench.once.stage().no_end = true;
    let lost = bench.row(ONCE, "lost", "refuse");
    let next = bench.ask(ONCE, "next", "succeed");
    bench.end(next);
    bench.runner().wake(ONCE).unwrap();
    let interrupted = ended(OperationState::Failed, "gpu.test-interrupted");
    assert_eq!(bench.end(lost), interrupted);
    assert_eq!(bench.once.stage().begun, ["lost", "next"]);
}

#[test]
fn a_row_that_was_never_written_leaves_nothing() {
    let bench = Bench::new(1);
    let root = local_root(&bench.server);
    let row = OperationRow::asked(
        Timestamp::from_millis(1),
        ONCE,
        root.subject.user,
        json!({}),
    );
    bench.runner().expect(&row, &root);
    assert!(bench.runner().progress(row.id).is_some());
    bench.runner().forget(row.id);
    assert_eq!(bench.runner().progress(row.id), None);
}

#[tokio::test]
async fn a_runner_that_stops_leaves_rows_open_and_begins_nothing() {
    let mut bench = Bench::new(1);
    let running = bench.ask(AGAIN, "running", "wait");
    let waiting = bench.ask(AGAIN, "waiting", "succeed");
    until("it runs", || bench.again.stage().running.len() == 1);
    bench.runner().stop().await;
    assert_eq!(bench.again.stage().running.len(), 0);
    bench.runner().wake(AGAIN).unwrap();
    let refused = bench.runner().run_unrecorded(ALONE, || Ok(()));
    assert!(matches!(refused, Err(Failure::Fault(_))));
    bench.runner = None;
    assert_eq!(bench.seen(running).state, OperationState::Running);
    assert_eq!(bench.seen(waiting).state, OperationState::Pending);
    assert_eq!(bench.again.stage().begun, ["running"]);
}

const ALONE: UnrecordedKind = UnrecordedKind {
    name: "test.alone",
    thread: "alone",
    at_once: 1,
};

#[tokio::test]
async fn unrecorded_work_is_refused_while_as_many_run_as_may() {
    let bench = Bench::new(1);
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let first = bench
        .runner()
        .run_unrecorded(ALONE, move || {
            wait.recv().expect("it is let go");
            Ok(1)
        })
        .unwrap()
        .expect("the first has its place");
    let second = bench.runner().run_unrecorded(ALONE, || Ok(2)).unwrap();
    assert!(second.is_none());
    go.send(()).unwrap();
    assert_eq!(first.await.unwrap().unwrap(), 1);
    // The place is free as soon as the answer is there, also after a panic.
    let third = bench
        .runner()
        .run_unrecorded(ALONE, || -> Result<u8, Failure> { panic!("as told") })
        .unwrap()
        .expect("the place is free");
    assert!(matches!(third.await.unwrap(), Err(Failure::Fault(_))));
    let fourth = bench.runner().run_unrecorded(ALONE, || Ok(4)).unwrap();
    assert_eq!(
        fourth.expect("the place is free").await.unwrap().unwrap(),
        4
    );
}
