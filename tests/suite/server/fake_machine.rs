//! A machine that pretends to run what it is told: it reports every container at once, ends those whose
//! command says so, and answers streams with fixed words. Starts no process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use base::link::NodeEnd;
use base::link::streams::{
    AppFile, BoxFuture, ByteStream, ExecRequest, LogChunk, LogStream, Streams, TermInput,
    TermOutput, TermStream, WindowSize,
};
use base::observe::Clock;
use bytes::Bytes;
use rules::egress::{EgressEnd, EgressOutcome, EgressReport, EgressRow};
use rules::messages::{
    Assignment, ContainerStatus, ContainerUsage, ExitRecord, NodeReport, ReportedState, Want,
};
use rules::names::{BootId, ContainerName, NodeId, SessionId};
use rules::refusal::Refusal;
use rules::refusals::port_unreachable;
use rules::resources::{Capacity, Device, DeviceShare};
use rules::start_up::StartUp;
use rules::units::{CpuShare, Timestamp};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};

/// What the machine has for sessions.
pub(crate) const CORES: u32 = 4;
pub(crate) const GIBIBYTES: u64 = 8;

pub(crate) struct FakeMachine {
    node: NodeId,
    boot: BootId,
    sights: BTreeMap<ContainerName, ReportedState>,
    devices: Vec<Device>,
    /// Whether it offers its own programs.
    host_environment: bool,
    /// What each container is held to.
    grants: BTreeMap<ContainerName, Vec<DeviceShare>>,
    /// One connection of each container to each of its targets.
    egress: Vec<EgressReport>,
    /// What each container was to start with, by the name of its session.
    start_ups: StartUps,
    /// Wakes it up to tell what containers use, which it tells from then on.
    asked: Arc<Notify>,
    is_measured: bool,
}

/// What a machine was told that sessions start with, for who looks at it from outside.
pub(crate) type StartUps = Arc<Mutex<BTreeMap<String, StartUp>>>;

impl FakeMachine {
    pub(crate) fn new(node: NodeId, devices: Vec<Device>) -> Self {
        Self {
            devices,
            host_environment: true,
            grants: BTreeMap::new(),
            egress: Vec::new(),
            start_ups: StartUps::default(),
            asked: Arc::default(),
            is_measured: false,
            node,
            boot: BootId(uuid::Uuid::from_u128(7)),
            sights: BTreeMap::new(),
        }
    }

    pub(crate) fn start_ups(&self) -> StartUps {
        Arc::clone(&self.start_ups)
    }

    /// What asks it for a report of what containers use.
    pub(crate) fn asked(&self) -> Arc<Notify> {
        Arc::clone(&self.asked)
    }

    /// The same machine, that keeps its own programs to itself.
    pub(crate) fn without_programs(mut self) -> Self {
        self.host_environment = false;
        self
    }

    /// Reports, then follows assignments until the server is gone; reports in between where it is asked to.
    pub(crate) async fn run(mut self, link: NodeEnd, clock: Clock) {
        link.send(self.report(0, clock.now()));
        let mut assigned = link.assigned();
        let asked = self.asked();
        let mut generation = 0;
        loop {
            tokio::select! {
                assignment = assigned.next() => {
                    let Some(assignment) = assignment else {
                        return;
                    };
                    self.follow(&assignment, clock.now());
                    generation = assignment.generation;
                }
                () = asked.notified() => self.is_measured = true,
            }
            link.send(self.report(generation, clock.now()));
        }
    }

    fn follow(&mut self, assignment: &Assignment, now: Timestamp) {
        let wanted: Vec<ContainerName> = assignment.containers.iter().map(|c| c.name).collect();
        self.sights.retain(|name, _| wanted.contains(name));
        let connected = assignment.containers.iter().filter_map(|order| {
            let egress = order.egress.as_ref()?;
            let ends = egress.open_targets().map(|target| EgressEnd {
                number: 1,
                host: target.name().unwrap_or_default(),
                port: target.port,
                sent: 10,
                received: 20,
                began_at: now,
                ended_at: now,
            });
            let rows = egress.open_targets().map(|target| EgressRow {
                host: target.name().unwrap_or_default(),
                port: target.port,
                outcome: EgressOutcome::Opened,
                count: 1,
                sent: 10,
                received: 20,
                last_at: now,
            });
            Some(EgressReport {
                container: order.name,
                rows: rows.collect(),
                ends: ends.collect(),
            })
        });
        self.egress = connected.collect();
        for order in &assignment.containers {
            self.grants.insert(order.name, order.devices.clone());
            if !self.sights.contains_key(&order.name) {
                let mut known = self.start_ups.lock().expect("no test panicked with it");
                known.insert(order.hostname.clone(), order.start_up.clone());
            }
            let sight = self
                .sights
                .entry(order.name)
                .or_insert(ReportedState::Running {
                    since: now,
                    paused: false,
                });
            if sight.is_over() {
                continue;
            }
            let own_end = match order.command.as_slice() {
                [word, code] if word == "exit" => code.parse().ok(),
                _ => None,
            };
            match (order.want, own_end) {
                (Want::Kill, _) => *sight = ended(137, now),
                (Want::Stop, _) => *sight = ended(143, now),
                (Want::Run, Some(code)) => *sight = ended(code, now),
                (want, _) => {
                    *sight = ReportedState::Running {
                        since: now,
                        paused: want == Want::Pause,
                    }
                }
            }
        }
    }

    fn report(&self, generation: u64, now: Timestamp) -> NodeReport {
        NodeReport {
            node: self.node,
            name: "box".into(),
            boot: self.boot,
            generation,
            state: None,
            at: now,
            capacity: Capacity {
                cpu: CpuShare(CORES * 100),
                memory: rules::units::Bytes::gib(GIBIBYTES),
                devices: self.devices.clone(),
                others: Vec::new(),
            },
            host_environment: self.host_environment,
            containers: self
                .sights
                .iter()
                .map(|(name, state)| ContainerStatus {
                    name: *name,
                    state: state.clone(),
                    usage: (self.is_measured && !state.is_over()).then(|| ContainerUsage {
                        cpu_microseconds: 0,
                        memory: rules::units::Bytes::mib(100),
                        processes: 2,
                        waited: None,
                        devices: Vec::new(),
                    }),
                    devices: self.grants.get(name).cloned().unwrap_or_default(),
                    ran: None,
                })
                .collect(),
            problems: Vec::new(),
            device_uses: Vec::new(),
            partition_failures: Vec::new(),
            egress: self.egress.clone(),
            start_up_failures: Vec::new(),
            stuck_mounts: Vec::new(),
            incidents: Vec::new(),
        }
    }
}

fn ended(exit_code: i32, now: Timestamp) -> ReportedState {
    ReportedState::Ended(ExitRecord {
        exit_code,
        started_at: Some(now),
        ended_at: now,
        out_of_memory: false,
        peak_memory: None,
    })
}

/// What every container of the fake machine wrote.
pub(crate) const LOG: &str = "line one\nline two\n";

/// Streams that answer with fixed words and remember what was asked of them.
#[derive(Default, Clone)]
pub(crate) struct FakeStreams {
    pub(crate) execs: Arc<Mutex<Vec<ExecRequest>>>,
    /// Sessions whose logs were to go, in the order in which it was told.
    pub(crate) forgotten: Arc<Mutex<Vec<SessionId>>>,
    /// Real servers behind ports inside, of every container.
    pub(crate) apps: Arc<Mutex<BTreeMap<u16, SocketAddr>>>,
    /// The code with which programs in the background end at once; None: they go on.
    pub(crate) ends: Arc<Mutex<Option<i32>>>,
    /// The files in every container that describe apps.
    pub(crate) files: Arc<Mutex<Vec<AppFile>>>,
}

impl Streams for FakeStreams {
    /// Says `ready`, then gives back what is typed until the input ends; ends with 0.
    fn attach(&self, _: ContainerName, _: Option<WindowSize>) -> BoxFuture<TermStream> {
        Box::pin(async { Ok(echo("ready\n", 0)) })
    }

    /// Gives back what is typed until the input ends; `exit N` ends with N at once, `absent` is refused.
    fn exec(&self, _: ContainerName, request: ExecRequest) -> BoxFuture<TermStream> {
        self.execs
            .lock()
            .expect("no test panics with it")
            .push(request.clone());
        let ends = *self.ends.lock().expect("no test panics with it");
        Box::pin(async move {
            if let (Some(code), Some(_)) = (ends, &request.background) {
                let (input, _) = mpsc::channel(1);
                let (words, output) = mpsc::channel(4);
                let line = TermOutput::Stderr("no such module\n".into());
                words.send(line).await.expect("the channel has room");
                let end = TermOutput::Exit(code);
                words.send(end).await.expect("the channel has room");
                return Ok(TermStream { input, output });
            }
            match request.argv.as_slice() {
                [word, code] if word == "exit" => {
                    let (input, _) = mpsc::channel(1);
                    let (words, output) = mpsc::channel(4);
                    let code = code.parse().unwrap_or(1);
                    for piece in [
                        TermOutput::Stdout("out\n".into()),
                        TermOutput::Stderr("err\n".into()),
                        TermOutput::Exit(code),
                    ] {
                        words.send(piece).await.expect("the channel has room");
                    }
                    Ok(TermStream { input, output })
                }
                [word] if word == "absent" => Err(Refusal::from_parts(
                    rules::refusal::RefusalKind::Conflict,
                    "container.not-running".into(),
                    "It does not run.".into(),
                    String::new(),
                )),
                _ => Ok(echo("", 0)),
            }
        })
    }

    fn logs(&self, _: ContainerName, since: u64, _: bool) -> BoxFuture<LogStream> {
        Box::pin(async move {
            let (words, output) = mpsc::channel(4);
            let from = usize::try_from(since).unwrap_or(0).min(LOG.len());
            if from < LOG.len() {
                let chunk = LogChunk {
                    offset: since,
                    bytes: Bytes::from_static(&LOG.as_bytes()[from..]),
                };
                words.send(chunk).await.expect("the channel has room");
            }
            Ok(LogStream { output })
        })
    }

    fn app_files(&self, _: ContainerName) -> BoxFuture<Vec<AppFile>> {
        let files = self.files.lock().expect("no test panics with it").clone();
        Box::pin(async { Ok(files) })
    }

    /// Gives back every byte, where no real server was put there.
    fn dial(&self, _: ContainerName, port: u16) -> BoxFuture<ByteStream> {
        let apps = self.apps.lock().expect("no test panics with it");
        let app = apps.get(&port).copied();
        Box::pin(async move {
            if let Some(app) = app {
                let stream = TcpStream::connect(app).await.map_err(port_unreachable)?;
                return Ok(Box::new(stream) as ByteStream);
            }
            if port == 1 {
                return Err(Refusal::from_parts(
                    rules::refusal::RefusalKind::Conflict,
                    "port.closed".into(),
                    "Nobody listens there.".into(),
                    String::new(),
                ));
            }
            let (ours, theirs) = tokio::io::duplex(1024);
            tokio::spawn(async move {
                let (mut read, mut write) = tokio::io::split(ours);
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
            Ok(Box::new(theirs) as ByteStream)
        })
    }

    fn forget_logs(&self, sessions: Vec<SessionId>) -> BoxFuture<()> {
        let forgotten = Arc::clone(&self.forgotten);
        Box::pin(async move {
            forgotten
                .lock()
                .expect("no test panics with it")
                .extend(sessions);
            Ok(())
        })
    }
}

fn echo(greeting: &'static str, code: i32) -> TermStream {
    let (input, mut typed) = mpsc::channel(16);
    let (words, output) = mpsc::channel(16);
    tokio::spawn(async move {
        if !greeting.is_empty() {
            let _ = words.send(TermOutput::Stdout(greeting.into())).await;
        }
        while let Some(piece) = typed.recv().await {
            let sent = match piece {
                TermInput::Bytes(bytes) => words.send(TermOutput::Stdout(bytes)).await,
                TermInput::Resize((columns, rows)) => {
                    let text = format!("size {columns}x{rows}\n");
                    words.send(TermOutput::Stdout(text.into())).await
                }
                TermInput::CloseInput => break,
                TermInput::Signal(number) => {
                    let text = format!("signal {number}\n");
                    words.send(TermOutput::Stdout(text.into())).await
                }
            };
            if sent.is_err() {
                return;
            }
        }
        let _ = words.send(TermOutput::Exit(code)).await;
    });
    TermStream { input, output }
}
