//! The self-test of a card: two ordinary sessions bound to it, in which the program that every slice comes
//! with tries all there is to try, one thing after the other. What it says is judged by `rules::self_test`, signed
//! by the box's authority and kept. None survives its server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::gpus::Gpu;
use api::sessions::{LaunchRequest, Resources};
use base::link::streams::{ExecRequest, Streams, TermOutput, TermStream};
use rules::names::{ContainerName, OperationId, SessionId};
use rules::reasons;
use rules::refusal::Refusal;
use rules::refusals;
use rules::resources::DeviceShare;
use rules::self_test::{self, PATHS, PROCESSES, Statement, TestFinding, WAYS};
use rules::session::{SessionKind, SessionState};
use rules::units::{Bytes, CpuShare, Timestamp};
use serde_json::json;

use super::outcome::{JobFailure, JobProgress, JobResult};
use super::runner::{JobKind, RunningJob};
use crate::access::Caller;
use crate::actions::gpus;
use crate::actions::gpus::prove::testable;
use crate::actions::sessions;
use crate::catalog::Rows;
use crate::catalog::events::NewEvent;
use crate::catalog::job_kinds::GPU_TEST;
use crate::catalog::self_tests::SelfTestRow;
use crate::{Failure, Server, ServerFault, WeakServer};

#[cfg(test)]
mod tests;

/// Self-tests that run at once. More: each measures the others' load. Fewer: there is none.
const AT_ONCE: usize = 1;
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
const LAUNCHES: u32 = 4096;
const SAMPLES: usize = 7;
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

/// What is tried one after the other, for the bar that shows how far it is.
const STEPS: u64 = (PATHS.len() * PROCESSES.len() + WAYS.len() + 6) as u64;

/// The self-tests of one server.
pub(crate) struct SelfTestJobs(pub(crate) WeakServer);

impl JobKind for SelfTestJobs {
    fn name(&self) -> &'static str {
        GPU_TEST
    }

    fn thread(&self) -> &'static str {
        "gpu-self-test"
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    fn run(&self, job: &RunningJob<'_>) -> Result<JobResult, JobFailure> {
        let server = self.0.upgrade().ok_or(JobFailure::Interrupted)?;
        let caller = job
            .caller
            .ok_or_else(|| ServerFault::new("begin a self-test", "its caller is not known"))?;
        // Its own, so that it ends with its thread and never with requests under way.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| ServerFault::new("begin a self-test", error))?;
        let statement = runtime.block_on(async {
            tokio::select! {
                biased;
                () = job.closing() => Err(JobFailure::Interrupted),
                statement = through(&server, job, caller) => Ok(statement?),
            }
        });
        // Programs of a test that was broken off may still be opening.
        runtime.shutdown_background();
        signed(&server, job.row.id, caller, statement?).map_err(JobFailure::from)
    }

    fn cancelled(&self) -> Refusal {
        refusals::gpu_test_cancelled()
    }

    /// What an earlier server's test had found is lost.
    fn interrupted(&self) -> Option<Refusal> {
        Some(refusals::gpu_test_interrupted())
    }

    fn waiting(&self) -> Option<JobProgress> {
        Some(JobProgress {
            step: "waiting".to_owned(),
            done: 0,
            total: STEPS,
        })
    }

    fn give_up(&self, rows: &Rows<'_>, job: OperationId) -> Result<(), Failure> {
        end_sessions(rows, job)
    }
}

async fn through(
    server: &Server,
    job: &RunningJob<'_>,
    caller: &Caller,
) -> Result<Statement, Failure> {
    Trial::new(server, job, caller).await?.through().await
}

/// Signs what was found; gives what writes it.
fn signed(
    server: &Server,
    job: OperationId,
    caller: &Caller,
    statement: Statement,
) -> Result<JobResult, Failure> {
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
    let actor = caller.name.clone();
    Ok(Box::new(move |rows| {
        end_sessions(rows, job)?;
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
        Ok(json!({
            "device": report.device,
            "report": report.id,
            "passed": report.passed,
            "failed": statement.failed(),
        }))
    }))
}

/// Ends the sessions of a test; they end with any result of it.
fn end_sessions(rows: &Rows<'_>, job: OperationId) -> Result<(), Failure> {
    let label = job.to_string();
    for session in &rows.live_sessions()? {
        if session.remarks.labels.get(LABEL) == Some(&label) {
            end(rows, session.id)?;
        }
    }
    Ok(())
}

fn end(rows: &Rows<'_>, session: SessionId) -> Result<(), Failure> {
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

/// A test under way: both of its sessions run.
struct Trial<'a> {
    server: &'a Server,
    job: &'a RunningJob<'a>,
    caller: &'a Caller,
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
    async fn new(
        server: &'a Server,
        job: &'a RunningJob<'a>,
        caller: &'a Caller,
    ) -> Result<Self, Failure> {
        let streams = server.streams().ok_or_else(|| {
            ServerFault::new("look into sessions", "no way into sessions was given")
        })?;
        let input = |name: &str| job.row.input[name].as_str().unwrap_or_default();
        let began_at = server.clock().now();
        let gpu = gpus::get(server, caller, input("device")).await?;
        let (larger, smaller) = testable(server, &gpu)?;
        let short: String = job.row.id.to_string().chars().rev().take(6).collect();
        let mut both = Vec::new();
        for (word, share) in [("wait", larger), ("neighbour", smaller)] {
            let request = LaunchRequest {
                name: Some(format!("gpu-test-{word}-{short}")),
                kind: SessionKind::Batch,
                image: input("image").to_owned(),
                command: vec![PROGRAM.to_owned(), word.to_owned()],
                labels: [(LABEL.to_owned(), job.row.id.to_string())].into(),
                resources: Resources {
                    cpu: Some(CpuShare(100)),
                    memory: Some(Bytes::gib(1)),
                    gpu: Some(share),
                    ..Resources::default()
                },
                max_runtime_seconds: Some(MAX_RUN_SECONDS),
                device_affinity: Some(gpu.id.clone()),
                without_start_up: true,
                without_home: true,
                ..LaunchRequest::default()
            };
            let launched = sessions::launch(server, caller, request, None).await?;
            both.extend(launched.sessions.first().map(|session| session.id));
        }
        let [prober, neighbour] = both[..] else {
            return Err(ServerFault::new("launch two sessions", "fewer were launched").into());
        };
        let until = Instant::now() + START_TIMEOUT;
        let prober = started(server, job, prober, until).await?;
        let neighbour = started(server, job, neighbour, until).await?;
        Ok(Self {
            server,
            job,
            caller,
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
            by: self.caller.name.to_string(),
            began_at: self.began_at,
            ended_at: self.server.clock().now(),
            findings,
        })
    }

    /// Says how far it is; a refusal where it was cancelled.
    fn step(&self, done: usize, step: &str) -> Result<(), Refusal> {
        if self.job.is_stopped() {
            return Err(called_off());
        }
        self.job.report(JobProgress {
            step: step.to_owned(),
            done: done as u64,
            total: STEPS,
        });
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
            Ok(_) => {}
            Err(_) => said.push_str("\nno end after a minute\n"),
        }
        said
    }

    /// Runs the program until it ends or `enough` of it was heard: then it goes on as long as the answer is kept.
    async fn listen(
        &self,
        ground: &TestSession,
        words: &[&str],
        environment: &[(&str, &str)],
        said: &mut String,
        enough: impl Fn(&str) -> bool,
    ) -> Option<TermStream> {
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
            guest: None,
            background: None,
        };
        let mut opened = match self.streams.exec(ground.container, request).await {
            Ok(stream) => stream,
            Err(refusal) => {
                said.push_str(&refusal.to_string());
                return None;
            }
        };
        while let Some(output) = opened.output.recv().await {
            match output {
                TermOutput::Stdout(bytes) | TermOutput::Stderr(bytes) => {
                    said.push_str(&String::from_utf8_lossy(&bytes));
                    if enough(said) {
                        return Some(opened);
                    }
                }
                TermOutput::Exit(0) => return None,
                TermOutput::Exit(code) => {
                    if said.trim().is_empty() {
                        said.push_str(&format!("it ended with {code}"));
                    }
                    return None;
                }
                TermOutput::Gone(why) => {
                    said.push_str(&why);
                    return None;
                }
            }
        }
        None
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
        // A program ends with its stream, and would give back what it took.
        let _kept = tokio::time::timeout(STEP, taken).await;
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
    job: &RunningJob<'_>,
    id: SessionId,
    until: Instant,
) -> Result<TestSession, Failure> {
    loop {
        if job.is_stopped() {
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
