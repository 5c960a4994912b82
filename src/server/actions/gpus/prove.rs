//! The self-test of a card: two ordinary sessions bound to it, in which the program that every slice comes
//! with tries all there is to try, one thing after the other. What it says is judged by `rules::self_test`, signed
//! by the box's authority and kept. One test at a time; none survives its server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use api::gpus::{Gpu, SelfTestReport, TestRequest};
use api::operations::OperationState;
use api::operations::OperationView;
use api::sessions::{LaunchRequest, Resources};
use base::link::streams::{ExecRequest, Streams, TermOutput};
use rules::devices::Health;
use rules::names::{ContainerName, OperationId, SessionId};
use rules::permissions::Permission;
use rules::reasons;
use rules::refusal::Refusal;
use rules::refusals;
use rules::resources::DeviceShare;
use rules::self_test::{self, PATHS, PROCESSES, Statement, TestFinding, WAYS};
use rules::session::{SessionKind, SessionState};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use serde_json::json;

use crate::access::Caller;
use crate::actions::allowed;
use crate::actions::images;
use crate::actions::operations::show;
use crate::actions::sessions;
use crate::actions::system::refuse_unwell;
use crate::appliance::imports::ImportProgress;
use crate::catalog::Lane;
use crate::catalog::events::NewEvent;
use crate::catalog::jobs::OperationRow;
use crate::catalog::self_tests::SelfTestRow;
use crate::{Failure, Server, ServerFault};

/// The kind of these operations.
pub const KIND: &str = "gpu.test";
/// Where every session with a slice finds the program.
const PROGRAM: &str = "/usr/lib/fardel/gpu/test";
/// The real driver beside it: what our library stands in front of.
const REAL: &str = "/usr/lib/fardel/gpu/libcuda.so.1";
const LIBRARY: &str = "libcuda.so.1";
/// On the sessions of a test; the value is the operation.
const LABEL: &str = "gpu-test";

/// How long both sessions may take to run.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// One step. Filling a large slice of a slow card in small pieces takes seconds.
const STEP: Duration = Duration::from_secs(60);
/// How long both compute for the comparison of their shares.
const COMPUTING_SECONDS: u64 = 8;
/// Launches of one sample, and samples each without our library and with it.
const LAUNCHES: u32 = 512;
const SAMPLES: usize = 5;
/// How long a session that took too much is watched for an enforcement action. The watchdog's last one comes
/// after about fourteen seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Pieces of a slice in which memory is taken on a way to the driver.
const PIECES: u64 = 16;
/// Pieces that are asked for: a quarter more than the slice, which the test's other slice has room for.
const ASKED: u64 = 20;
const LOOK: Duration = Duration::from_millis(200);
/// No session of a test outlives this, even without its server.
const MAX_RUN_SECONDS: u64 = 1800;

/// What the tests of this server share with those who ask about them.
#[derive(Default)]
pub struct SelfTests {
    streams: OnceLock<Arc<dyn Streams>>,
    state: Mutex<SelfTestQueue>,
    rung: tokio::sync::Notify,
}

#[derive(Default)]
struct SelfTestQueue {
    waiting: VecDeque<Task>,
    seen: BTreeMap<OperationId, ImportProgress>,
    cancelled: BTreeSet<OperationId>,
}

struct Task {
    operation: OperationId,
    caller: Caller,
    device: String,
    image: String,
}

impl SelfTests {
    pub(crate) fn bring(&self, streams: Arc<dyn Streams>) {
        // A second one would be a second start of the same server, which does not happen.
        let _ = self.streams.set(streams);
    }

    /// How far this one is; None where it is none of ours.
    pub(crate) fn seen(&self, id: OperationId) -> Option<ImportProgress> {
        self.locked().seen.get(&id).cloned()
    }

    pub(crate) fn break_off(&self, id: OperationId) {
        let mut state = self.locked();
        if state.seen.contains_key(&id) {
            state.cancelled.insert(id);
        }
    }

    fn locked(&self) -> MutexGuard<'_, SelfTestQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins the self-test of a card and gives its operation, whose end names the report.
///
/// Errors: `gpu.test-simulated`, `gpu.test-cut`, `gpu.test-silent`, `gpu.test-no-room` with how much is
/// missing, `gpu.test-no-environment` where its machine offers none and none was named, `image.not-found`,
/// `gpu.test-running` while another one runs, `gpu.test-unable` where this server has no way into sessions.
pub async fn test(
    server: &Server,
    caller: &Caller,
    id: &str,
    request: TestRequest,
) -> Result<OperationView, Failure> {
    allowed(caller, Permission::SystemWrite)?;
    refuse_unwell(server)?;
    if server.self_tests().streams.get().is_none() {
        return Err(refusals::gpu_test_unable().into());
    }
    let gpu = super::get(server, caller, id).await?;
    if server
        .catalog()
        .read("look for tests under way", |view| view.open_operations())
        .await?
        .iter()
        .any(|row| row.kind == KIND)
    {
        return Err(already().into());
    }
    testable(server, &gpu)?;
    let image = environment(server, caller, &gpu, request).await?;
    let input = json!({"device": gpu.id, "image": image});
    let row = OperationRow::asked(server.clock().now(), KIND, caller.subject.user, input);
    let (id, actor) = (row.id, caller.name.clone());
    let written = row.clone();
    // Before the row is there: it must not be taken for one of an earlier server.
    server.self_tests().locked().seen.insert(
        id,
        ImportProgress {
            step: "waiting".to_owned(),
            done: 0,
            total: STEPS,
        },
    );
    let begun = server
        .catalog()
        .write(Lane::Requests, "begin a self-test", move |rows| {
            if rows
                .open_operations()?
                .iter()
                .any(|other| other.kind == KIND)
            {
                return Err(already().into());
            }
            rows.insert_operation(&written, actor.as_str())
        })
        .await;
    let mut state = server.self_tests().locked();
    if let Err(failure) = begun {
        state.seen.remove(&id);
        return Err(failure);
    }
    state.waiting.push_back(Task {
        operation: id,
        caller: caller.clone(),
        device: gpu.id,
        image,
    });
    drop(state);
    server.self_tests().rung.notify_one();
    Ok(show(server, row))
}

/// The test of a card that is under way; None where there is none.
///
/// Errors: `gpu.not-found`.
pub async fn running(
    server: &Server,
    caller: &Caller,
    id: &str,
) -> Result<Option<OperationView>, Failure> {
    let gpu = super::get(server, caller, id).await?;
    let open = server
        .catalog()
        .read("look for a test under way", move |view| {
            view.open_operations()
        })
        .await?;
    let its = open
        .into_iter()
        .find(|row| row.kind == KIND && row.input["device"] == gpu.id.as_str());
    Ok(its.map(|row| show(server, row)))
}

/// The newest report of a card, made with any driver.
///
/// Errors: `gpu.not-found`, `gpu.not-tested`.
pub async fn report(server: &Server, caller: &Caller, id: &str) -> Result<SelfTestReport, Failure> {
    let gpu = super::get(server, caller, id).await?;
    let device = gpu.id.clone();
    let row = server
        .catalog()
        .read("show a report", move |view| view.newest_self_test(&device))
        .await?;
    let Some(row) = row else {
        return Err(match gpu.simulated {
            true => refusals::gpu_simulated_not_tested(),
            false => refusals::gpu_not_tested(gpu.index),
        }
        .into());
    };
    let authority = server.certificates()?.authority();
    Ok(SelfTestReport {
        id: row.id,
        result: serde_json::from_str(&row.statement)
            .map_err(|error| ServerFault::new("read a report", error))?,
        statement: row.statement,
        signature: base64(&row.signature),
        authority: authority.pem,
        fingerprint: authority.fingerprint,
    })
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// What the sessions of a test of this card could start from: `host` where its machine offers its own
/// programs, then the images that are here; empty where there is nothing.
pub async fn environments(
    server: &Server,
    caller: &Caller,
    gpu: &Gpu,
) -> Result<Vec<String>, Failure> {
    let node = gpu.node;
    let nodes = server
        .catalog()
        .read("look at a card's machine", |view| view.nodes())
        .await?;
    let host = nodes
        .iter()
        .any(|row| row.id == node && row.host_environment);
    let images = images::list(server, caller).await?;
    Ok(host
        .then(|| "host".to_owned())
        .into_iter()
        .chain(images.into_iter().map(|image| image.reference))
        .collect())
}

/// Why no test of this card can start from anything that is here.
pub fn no_environment(gpu: &Gpu) -> Refusal {
    let (node, index) = (&gpu.node_name, gpu.index);
    refusals::gpu_test_no_environment(node, index).at("/image")
}

/// What a test starts from, as it was asked for.
async fn environment(
    server: &Server,
    caller: &Caller,
    gpu: &Gpu,
    request: TestRequest,
) -> Result<String, Failure> {
    let typed = request.image.as_deref().map_or("", str::trim);
    let host = environments(server, caller, gpu)
        .await?
        .first()
        .is_some_and(|first| first == "host");
    match typed {
        "" | "host" if host => Ok("host".to_owned()),
        "" | "host" => Err(no_environment(gpu).into()),
        typed => Ok(images::get(server, caller, typed).await?.reference),
    }
}

/// The shares that the two sessions get; a refusal where the card cannot be tested now.
fn testable(server: &Server, gpu: &Gpu) -> Result<(GpuShare, GpuShare), Refusal> {
    if gpu.simulated {
        return Err(refusals::gpu_test_simulated());
    }
    if !gpu.partitions.is_empty() {
        return Err(refusals::gpu_test_partitioned());
    }
    if !gpu.answers || matches!(gpu.health, Health::Failing { .. }) {
        return Err(refusals::gpu_test_silent());
    }
    let device = rules::resources::Device {
        memory: gpu.memory,
        ..rules::resources::Device::new(gpu.index, gpu.model.clone())
    };
    let policy = server.settings().share_policy();
    let Some((larger, smaller)) = self_test::shares(&device, &policy) else {
        return Err(refusals::gpu_test_too_small(gpu.memory));
    };
    let wanted = GpuShare(larger.0 + smaller.0);
    let left = rules::devices::WHOLE.saturating_sub(gpu.share_used);
    if wanted > left {
        return Err(refusals::gpu_test_no_room(wanted, left));
    }
    Ok((larger, smaller))
}

/// What is tried one after the other, for the bar that shows how far it is.
const STEPS: u64 = (PATHS.len() * PROCESSES.len() + WAYS.len() + 6) as u64;

/// Does what `test` began. Runs until it is dropped; at most one a server.
pub(crate) async fn keep_proving(server: Server) {
    if let Err(failure) = forget_interrupted(&server).await {
        tracing::error!(error = %base::observe::chain(&failure), "tests of an earlier server stay open");
    }
    loop {
        let task = server.self_tests().locked().waiting.pop_front();
        let Some(task) = task else {
            server.self_tests().rung.notified().await;
            continue;
        };
        let id = task.operation;
        if let Err(failure) = prove(&server, &task).await {
            tracing::error!(operation = %id, error = %base::observe::chain(&failure), "a self-test is stuck");
        }
        let mut state = server.self_tests().locked();
        state.seen.remove(&id);
        state.cancelled.remove(&id);
    }
}

/// Tests that an earlier server had begun are over: what they had found is lost, and their sessions end.
async fn forget_interrupted(server: &Server) -> Result<(), Failure> {
    let own = server.clone();
    server
        .catalog()
        .write(Lane::Loops, "end tests of an earlier server", move |rows| {
            let known = rows.open_operations()?;
            for row in known.iter().filter(|row| row.kind == KIND) {
                if own.self_tests().seen(row.id).is_some() {
                    continue;
                }
                let refusal = refusals::gpu_test_interrupted();
                rows.end_operation(row.id, OperationState::Failed, None, Some(&refusal))?;
                let label = row.id.to_string();
                for session in rows.live_sessions()? {
                    if session.labels.get(LABEL) == Some(&label) {
                        end(rows, session.id)?;
                    }
                }
            }
            Ok(())
        })
        .await
}

fn end(rows: &crate::catalog::Rows<'_>, session: SessionId) -> Result<(), Failure> {
    let because = reasons::session_test_over();
    rows.change_session(
        session,
        None,
        "server",
        Some(rules::codes::SESSION_TEST_OVER),
        |row| row.stop(rules::session::DesiredState::Kill, because, rows.now),
    )?;
    Ok(())
}

/// Takes one test to its end: rows of what it found, or why it could not be done.
async fn prove(server: &Server, task: &Task) -> Result<(), Failure> {
    let id = task.operation;
    server
        .catalog()
        .write(Lane::Loops, "begin a self-test", move |rows| {
            rows.begin_operation(id)
        })
        .await?;
    let tried = Trial::new(server, task).await;
    let done = match tried {
        Ok(trial) => trial.through().await,
        Err(failure) => Err(failure),
    };
    // Its sessions end with any result.
    let label = id.to_string();
    server
        .catalog()
        .write(Lane::Loops, "end the sessions of a test", move |rows| {
            for session in rows.live_sessions()? {
                if session.labels.get(LABEL) == Some(&label) {
                    end(rows, session.id)?;
                }
            }
            Ok(())
        })
        .await?;
    match done {
        Ok(statement) => keep(server, task, statement).await,
        Err(failure) => {
            let (state, refusal) = match failure {
                Failure::Refusal(refusal) if refusal.code == rules::codes::GPU_TEST_CANCELLED => {
                    (OperationState::Cancelled, refusal)
                }
                Failure::Refusal(refusal) => (OperationState::Failed, refusal),
                Failure::Fault(fault) => {
                    tracing::error!(operation = %id, error = %base::observe::chain(&fault), "self-test");
                    let refusal = refusals::server_job_failed();
                    (OperationState::Failed, refusal)
                }
            };
            server
                .catalog()
                .write(Lane::Loops, "end a self-test", move |rows| {
                    rows.end_operation(id, state, None, Some(&refusal))
                })
                .await?;
            Ok(())
        }
    }
}

/// Signs what was found, and writes it with the end of the operation in one commit.
async fn keep(server: &Server, task: &Task, statement: Statement) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(&statement)
        .map_err(|error| ServerFault::new("write a statement", error))?;
    let signature = server
        .certificates()?
        .sign(text.as_bytes())
        .map_err(crate::appliance::lazy_stores::tls_failure)?;
    let report = SelfTestRow {
        id: uuid::Uuid::from_bytes(base::observe::random()),
        device: statement.device.clone(),
        driver: statement.driver.clone(),
        at: statement.ended_at,
        passed: statement.passed,
        statement: text,
        signature,
    };
    let (id, actor) = (task.operation, task.caller.name.clone());
    server
        .catalog()
        .write(Lane::Loops, "keep what a self-test found", move |rows| {
            rows.insert_self_test(&report)?;
            let word = if report.passed { "passed" } else { "failed" };
            rows.note(NewEvent {
                actor: actor.as_str(),
                topic: "gpus",
                object: &report.device,
                scope: rules::tenancy::Scope::SITE,
                code: "gpu.tested",
                before: "",
                after: &format!("{word}, driver {}", report.driver),
            })?;
            let result = json!({
                "device": report.device,
                "report": report.id,
                "passed": report.passed,
                "failed": statement.failed(),
            });
            rows.end_operation(id, OperationState::Succeeded, Some(&result), None)
        })
        .await?;
    Ok(())
}

/// A test under way: both of its sessions run.
struct Trial<'a> {
    server: &'a Server,
    task: &'a Task,
    streams: Arc<dyn Streams>,
    gpu: Gpu,
    /// Tries everything; has twice the other's share.
    prober: TestSession,
    neighbour: TestSession,
    began_at: Timestamp,
}

/// One session of a test.
struct TestSession {
    session: SessionId,
    container: ContainerName,
    part: DeviceShare,
}

impl<'a> Trial<'a> {
    async fn new(server: &'a Server, task: &'a Task) -> Result<Self, Failure> {
        let streams = server.self_tests().streams.get().cloned().ok_or_else(|| {
            ServerFault::new("look into sessions", "no way into sessions was given")
        })?;
        let began_at = server.clock().now();
        let gpu = super::get(server, &task.caller, &task.device).await?;
        let (larger, smaller) = testable(server, &gpu)?;
        let short: String = task.operation.to_string().chars().rev().take(6).collect();
        let mut both = Vec::new();
        for (word, share) in [("wait", larger), ("neighbour", smaller)] {
            let request = LaunchRequest {
                name: Some(format!("gpu-test-{word}-{short}")),
                kind: SessionKind::Batch,
                image: task.image.clone(),
                command: vec![PROGRAM.to_owned(), word.to_owned()],
                labels: [(LABEL.to_owned(), task.operation.to_string())].into(),
                resources: Resources {
                    cpu: Some(CpuShare(100)),
                    memory: Some(Bytes::gib(1)),
                    gpu: Some(share),
                    ..Resources::default()
                },
                max_runtime_seconds: Some(MAX_RUN_SECONDS),
                device_affinity: Some(gpu.id.clone()),
                ..LaunchRequest::default()
            };
            let launched = sessions::launch(server, &task.caller, request, None).await?;
            both.extend(launched.sessions.first().map(|session| session.id));
        }
        let [prober, neighbour] = both[..] else {
            return Err(ServerFault::new("launch two sessions", "fewer were launched").into());
        };
        let until = Instant::now() + START_TIMEOUT;
        let prober = started(server, task, prober, until).await?;
        let neighbour = started(server, task, neighbour, until).await?;
        Ok(Self {
            server,
            task,
            streams,
            gpu,
            prober,
            neighbour,
            began_at,
        })
    }

    async fn through(self) -> Result<Statement, Failure> {
        let mut findings: Vec<TestFinding> = Vec::new();
        let before = self.neighbour_looks().await?;
        let slice = self.prober.part.memory;
        for path in PATHS {
            for processes in PROCESSES {
                self.step(findings.len(), &format!("memory {path} × {processes}"))?;
                let count = processes.to_string();
                let said = self.prober(&["measure", path, &count], &[]).await;
                findings.push(self_test::memory(path, processes, slice, &said));
            }
        }
        let piece = (slice.0 / PIECES).to_string();
        let asked = ASKED.to_string();
        for (way, environment) in WAYS {
            self.step(findings.len(), &format!("way {way}"))?;
            let words = ["ways", way, LIBRARY, &piece, &asked];
            let said = self.prober(&words, environment).await;
            findings.push(self_test::way(way, slice, &said));
        }
        self.step(findings.len(), "fence")?;
        let said = self.prober(&["fence"], &[]).await;
        findings.extend(self_test::fence(1, &said));
        self.step(findings.len(), "launch")?;
        let (mut bare, mut hooked) = (Vec::new(), Vec::new());
        let launches = LAUNCHES.to_string();
        for _ in 0..SAMPLES {
            let real = [("FARDEL_CUDA", REAL)];
            bare.push(self.prober(&["launch", &launches], &real).await);
            hooked.push(self.prober(&["launch", &launches], &[]).await);
        }
        findings.push(self_test::launch(&bare, &hooked));
        self.step(findings.len(), "share")?;
        let seconds = COMPUTING_SECONDS.to_string();
        let spin = ["spin", seconds.as_str()];
        let (a, b) = tokio::join!(
            self.exec(&self.prober, &spin, &[]),
            self.exec(&self.neighbour, &spin, &[])
        );
        findings.push(self_test::share(
            (self.prober.part.share, &a),
            (self.neighbour.part.share, &b),
        ));
        self.step(findings.len(), "trespass")?;
        findings.push(self.trespass(slice).await?);
        self.step(findings.len(), "neighbour")?;
        let after = self.exec(&self.neighbour, &["status"], &[]).await;
        findings.push(self_test::neighbour(&before, &after));
        let passed = findings
            .iter()
            .all(|finding| finding.verdict == self_test::TestVerdict::Held);
        Ok(Statement {
            version: 1,
            passed,
            device: self.gpu.id.clone(),
            model: self.gpu.model.clone(),
            memory: self.gpu.memory,
            machine: self.gpu.node_name.clone(),
            driver: self.gpu.driver.clone(),
            fardel: env!("CARGO_PKG_VERSION").to_owned(),
            installation_id: self.server.installation_id().to_string(),
            by: self.task.caller.name.to_string(),
            began_at: self.began_at,
            ended_at: self.server.clock().now(),
            findings,
        })
    }

    /// Says how far it is; a refusal where it was cancelled.
    fn step(&self, done: usize, step: &str) -> Result<(), Refusal> {
        let mut state = self.server.self_tests().locked();
        let id = self.task.operation;
        if state.cancelled.contains(&id) {
            return Err(called_off());
        }
        state.seen.insert(
            id,
            ImportProgress {
                step: step.to_owned(),
                done: done as u64,
                total: STEPS,
            },
        );
        Ok(())
    }

    /// Waits until the neighbour holds its memory and looks at it.
    async fn neighbour_looks(&self) -> Result<String, Failure> {
        let until = Instant::now() + STEP;
        loop {
            let said = self.exec(&self.neighbour, &["status"], &[]).await;
            if said.starts_with("looked") {
                return Ok(said);
            }
            self.step(0, "neighbour")?;
            if Instant::now() > until || ended(self.server, self.neighbour.session).await? {
                return Err(refusals::gpu_test_second_not_begun().into());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn prober(&self, words: &[&str], environment: &[(&str, &str)]) -> String {
        self.exec(&self.prober, words, environment).await
    }

    /// What the program says, in one of the sessions; why it says nothing, where it does not.
    async fn exec(
        &self,
        ground: &TestSession,
        words: &[&str],
        environment: &[(&str, &str)],
    ) -> String {
        let mut said = String::new();
        let done = self.listen(ground, words, environment, &mut said, |_| false);
        match tokio::time::timeout(STEP, done).await {
            Ok(()) => {}
            Err(_) => said.push_str("\nno end after a minute\n"),
        }
        said
    }

    /// Runs the program until it ends or `enough` of it was heard.
    async fn listen(
        &self,
        ground: &TestSession,
        words: &[&str],
        environment: &[(&str, &str)],
        said: &mut String,
        enough: impl Fn(&str) -> bool,
    ) {
        let request = ExecRequest {
            argv: std::iter::once(PROGRAM)
                .chain(words.iter().copied())
                .map(str::to_owned)
                .collect(),
            env: environment
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            cwd: None,
            user: None,
            tty: None,
        };
        let mut opened = match self.streams.exec(ground.container, request).await {
            Ok(stream) => stream,
            Err(refusal) => {
                said.push_str(&refusal.to_string());
                return;
            }
        };
        while let Some(output) = opened.output.recv().await {
            match output {
                TermOutput::Stdout(bytes) | TermOutput::Stderr(bytes) => {
                    said.push_str(&String::from_utf8_lossy(&bytes));
                    if enough(said) {
                        return;
                    }
                }
                TermOutput::Exit(0) => return,
                TermOutput::Exit(code) => {
                    if said.trim().is_empty() {
                        said.push_str(&format!("it ended with {code}"));
                    }
                    return;
                }
                TermOutput::Gone(why) => {
                    said.push_str(&why);
                    return;
                }
            }
        }
    }

    /// Takes memory by the real driver, past our library, and watches what becomes of it.
    async fn trespass(&self, slice: Bytes) -> Result<TestFinding, Failure> {
        let piece = (slice.0 / PIECES).to_string();
        let (asked, kept) = (ASKED.to_string(), ANSWER_TIMEOUT.as_secs().to_string());
        let words = ["ways", "dlopen", REAL, &piece, &asked, &kept];
        let mut said = String::new();
        let taken = self.listen(&self.prober, &words, &[], &mut said, |said| {
            said.lines().any(|line| line.starts_with("got ")) && said.ends_with('\n')
        });
        let _ = tokio::time::timeout(STEP, taken).await;
        let begun = Instant::now();
        while begun.elapsed() < ANSWER_TIMEOUT {
            let row = session(self.server, self.prober.session).await?;
            let after = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            let what = match row {
                None => Some("its session was ended"),
                Some(row) if row.state() != SessionState::Running => Some("its session was ended"),
                Some(row) if row.paused => Some("its session was frozen"),
                Some(row) if !row.incidents.is_empty() => Some("the watchdog answered"),
                Some(_) => None,
            };
            if let Some(what) = what {
                return Ok(self_test::trespass(slice, &said, Some((what, after))));
            }
            // What did not get past the slice needs no answer.
            let finding = self_test::trespass(slice, &said, None);
            if finding.verdict == self_test::TestVerdict::Held {
                return Ok(finding);
            }
            self.step(STEPS as usize - 2, "trespass")?;
            tokio::time::sleep(LOOK).await;
        }
        Ok(self_test::trespass(slice, &said, None))
    }
}

fn already() -> Refusal {
    refusals::gpu_test_running()
}

fn called_off() -> Refusal {
    refusals::gpu_test_cancelled()
}

async fn session(
    server: &Server,
    id: SessionId,
) -> Result<Option<rules::session::Session>, Failure> {
    server
        .catalog()
        .read("look at a test's session", move |view| view.session(id))
        .await
}

async fn ended(server: &Server, id: SessionId) -> Result<bool, Failure> {
    Ok(session(server, id)
        .await?
        .is_none_or(|row| row.state() == SessionState::Ended))
}

/// Waits until a session runs; a refusal with its own reason where it ends before, or has no room.
async fn started(
    server: &Server,
    task: &Task,
    id: SessionId,
    until: Instant,
) -> Result<TestSession, Failure> {
    loop {
        if server
            .self_tests()
            .locked()
            .cancelled
            .contains(&task.operation)
        {
            return Err(called_off().into());
        }
        let row = session(server, id).await?;
        match row {
            Some(row) if row.state() == SessionState::Running => {
                let part = row.devices().first().copied().ok_or_else(|| {
                    ServerFault::new("look at a test's session", "it runs without a share")
                })?;
                return Ok(TestSession {
                    session: id,
                    container: row.container(),
                    part,
                });
            }
            Some(row) if row.state() != SessionState::Ended => {}
            other => {
                let why = other.and_then(|row| row.reason).map(|reason| reason.text);
                return Err(refusals::gpu_test_not_begun(why.unwrap_or_default()).into());
            }
        }
        if Instant::now() > until {
            return Err(refusals::gpu_test_never_placed().into());
        }
        tokio::time::sleep(LOOK).await;
    }
}
