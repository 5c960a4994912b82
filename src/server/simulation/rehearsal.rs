//! Plays a script of machines and users against the real rules and a catalog in memory, and tells second by
//! second what the server decides. `fardel rehearse` and the scenarios of the tests are played by it.
//!
//! Never opens the machine's own state, and never starts a container.

mod options;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rules::devices::{MigPart, MigProfile};
use rules::findings::findings;
use rules::messages::{Assignment, ContainerOrder, NodeReport};
use rules::names::{BootId, NodeId, ResourceGroupId, SessionId, SessionName, UserId};
use rules::placement::{self, explain_session};
use rules::policy::{BackfillMode, SharePolicy, Spreading};
use rules::reasons;
use rules::refusal::Refusal;
use rules::refusals;
use rules::resources::{Capacity, Demand, Device};
use rules::session::{DesiredState, Session, SessionEnvironment, SessionKind, SessionState};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rules::workload::precedence::Precedence;
use rules::workload::remarks::Remarks;
use rules::workload::validate::{RequestedLaunch, RequestedResize};
use rules::world::ClusterSnapshot;

use crate::Failure;
use crate::simulation::Simulation;
use crate::simulation::fake_node::{ContainerPlan, FakeNode, SimulatedMoment};
use options::{CommandOptions, whole};

/// The commands of a script, for the help text and for mistyped ones.
pub const COMMANDS: &str = "\
rules [least SHARE] [step SHARE] [each SHARE] [spreading pack|spread|roundrobin]
       [backfill strict|timed]
node NAME cpu CORES mem SIZE [gpus N] [card SIZE] [sockets N] [mig PROFILE,…] [prepare SECONDS]
       [stop SECONDS]        `mig` partitions the last of its devices
submit NAME [GPU] [cpu CORES] [mem SIZE] [gpu SHARE] [gpu-mem SIZE] [mig PROFILE] [batch SECONDS]
       [exit CODE] [after NAME,…] [at SECONDS] [timeout SECONDS] [longest SECONDS]
       [by USER]             the user who owns it; kim where none is named
resize NAME GPU
stop NAME · kill NAME · restart NAME · pause NAME · resume NAME
tick [SECONDS]        time passes, machines work and report, the server decides
silent NODE [SECONDS] nothing passes its link (until `heard NODE` without a number)
heard NODE            its link works again
reboot NODE           its power goes and comes back
crash                 the server dies and starts again; only its rows are left
show                  machines and sessions
why NAME              the scheduler's own answer
# …                   a remark";

/// Plays one script and gives what there is to read: every command after `> `, then what it led
/// to. The same script always gives the same text.
///
/// Errors: `rehearse.script` with the line that cannot be read; a fault where the catalog itself
/// fails.
pub fn play(script: &str) -> Result<String, Failure> {
    let mut stage = RehearsalStage::new()?;
    for (number, line) in script.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            stage.say(line);
            continue;
        }
        stage.say(&format!("> {line}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        stage.command(&words).map_err(|failure| match failure {
            Failure::Refusal(refusal) => Failure::Refusal(Refusal {
                text: format!("Line {}: {}", number + 1, refusal.text),
                ..refusal
            }),
            fault @ Failure::Fault(_) => fault,
        })?;
    }
    Ok(stage.text)
}

/// A machine on the stage, and its link.
struct StageNode {
    fake_node: FakeNode,
    /// Second at which its link works again; None while it works.
    silent_until: Option<u64>,
    inbox: Option<Assignment>,
    plan: ContainerPlan,
}

struct RehearsalStage {
    server: Simulation,
    /// Users by name. Whose session it is, where a script does not say: kim.
    users: BTreeMap<String, UserId>,
    machines: Vec<StageNode>,
    /// How the containers of a session behave, by its name.
    runs: BTreeMap<String, (Option<u64>, i32)>,
    ids: BTreeMap<String, SessionId>,
    start: Timestamp,
    second: u64,
    boots: u8,
    text: String,
}

fn wrong(text: impl Into<String>) -> Failure {
    refusals::rehearse_script(text.into()).into()
}

impl RehearsalStage {
    fn new() -> Result<Self, Failure> {
        // A Monday at nine, in 2027.
        let start = Timestamp::from_millis(1_799_053_200_000);
        let server = Simulation::open(start)?;
        Ok(Self {
            server,
            users: BTreeMap::new(),
            machines: Vec::new(),
            runs: BTreeMap::new(),
            ids: BTreeMap::new(),
            start,
            second: 0,
            boots: 0,
            text: String::new(),
        })
    }

    fn say(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn now(&self) -> SimulatedMoment {
        SimulatedMoment::plain(self.start.plus_seconds(self.second))
    }

    fn command(&mut self, words: &[&str]) -> Result<(), Failure> {
        match words {
            ["rules", rest @ ..] => self.rules(rest),
            ["node", name, rest @ ..] => self.node(name, rest),
            ["submit", name, rest @ ..] => self.submit(name, rest),
            ["tick"] => self.tick(1),
            ["tick", seconds] => self.tick(whole("tick", seconds)?),
            ["stop", name] => self.set_desired(name, DesiredState::Stop),
            ["kill", name] => self.set_desired(name, DesiredState::Kill),
            ["resize", name, share] => self.resize(name, share),
            ["restart", name] => self.restart(name),
            ["pause", name] => self.pause(name, true),
            ["resume", name] => self.pause(name, false),
            ["silent", node] => self.silence(node, u64::MAX),
            ["silent", node, seconds] => {
                let until = self.second + whole("silent", seconds)?;
                self.silence(node, until)
            }
            ["heard", node] => self.silence(node, 0),
            ["reboot", node] => {
                let boot = self.boot();
                self.machine(node)?.fake_node.reboot(boot);
                Ok(())
            }
            ["crash"] => {
                self.server.crash();
                Ok(())
            }
            ["show"] => self.show(),
            ["why", name] => self.why(name),
            [word, ..] => Err(wrong(format!("there is no command {word} of this shape."))),
            [] => Ok(()),
        }
    }

    fn boot(&mut self) -> BootId {
        self.boots += 1;
        BootId::make(self.now().wall, [self.boots; 10])
    }

    fn machine(&mut self, name: &str) -> Result<&mut StageNode, Failure> {
        self.machines
            .iter_mut()
            .find(|m| m.fake_node.name == name)
            .ok_or_else(|| wrong(format!("there is no node {name}.")))
    }

    fn session(&self, name: &str) -> Result<Session, Failure> {
        let id = self
            .ids
            .get(name)
            .ok_or_else(|| wrong(format!("there is no session {name}.")))?;
        self.server
            .session(*id)?
            .ok_or_else(|| wrong(format!("the row of {name} is gone.")))
    }

    fn rules(&mut self, words: &[&str]) -> Result<(), Failure> {
        let mut options = CommandOptions::read(words)?;
        let usual = SharePolicy::default();
        let mut share = |name: &str| options.take(name).map(GpuShare::parse).transpose();
        let policy = SharePolicy {
            least: share("least")?.unwrap_or(usual.least),
            step: share("step")?.unwrap_or(usual.step),
            each: share("each")?,
            spreading: match options.take("spreading") {
                None => Spreading::Pack,
                Some(word) => {
                    let other =
                        || wrong(format!("rules: {word} is not pack, spread or roundrobin."));
                    Spreading::parse(word).ok_or_else(other)?
                }
            },
            ..usual
        };
        let backfill = match options.take("backfill") {
            None => None,
            Some(word) => {
                let other = || wrong(format!("rules: {word} is not strict or timed."));
                Some(BackfillMode::parse(word).ok_or_else(other)?)
            }
        };
        options.all_used("rules")?;
        self.server.set_policy(policy);
        match backfill {
            Some(backfill) => self.server.set_backfill(backfill),
            None => Ok(()),
        }
    }

    fn node(&mut self, name: &str, words: &[&str]) -> Result<(), Failure> {
        let mut options = CommandOptions::read(words)?;
        let gpus = options.whole("gpus")?.unwrap_or(0) as u32;
        let card = options.take("card").map(Bytes::parse).transpose()?;
        let sockets = options.whole("sockets")?.unwrap_or(1) as u32;
        let each_socket = gpus.div_ceil(sockets.max(1)).max(1);
        let mut parts = Vec::new();
        for profile in options.take("mig").into_iter().flat_map(|l| l.split(',')) {
            let profile = MigProfile::parse(profile)?;
            parts.push(MigPart {
                uuid: String::new(),
                profile,
                memory: Bytes::gib(u64::from(profile.gigabytes)),
                sms: 16 * u32::from(profile.compute),
            });
        }
        let capacity = Capacity {
            cpu: CpuShare::parse(options.needed("node", "cpu")?)?,
            memory: Bytes::parse(options.needed("node", "mem")?)?,
            devices: (0..gpus)
                .map(|index| Device {
                    memory: card.unwrap_or(Bytes::gib(80)),
                    sms: 132,
                    numa: (sockets > 1).then_some(index / each_socket),
                    link: (sockets > 1).then_some(index / each_socket),
                    mig: if index + 1 == gpus {
                        std::mem::take(&mut parts)
                    } else {
                        Vec::new()
                    },
                    ..Device::new(index, "rehearsed")
                })
                .collect(),
            others: Vec::new(),
        };
        let plan = ContainerPlan {
            prepare: options.whole("prepare")?.unwrap_or(1),
            stop: options.whole("stop")?.unwrap_or(1),
            ..ContainerPlan::default()
        };
        options.all_used("node")?;
        let boot = self.boot();
        let number = self.machines.len() as u8;
        let id = NodeId::make(self.start, [number; 10]);
        self.machines.push(StageNode {
            fake_node: FakeNode::new(id, name, boot, capacity),
            silent_until: None,
            inbox: None,
            plan,
        });
        Ok(())
    }

    fn user(&mut self, name: &str) -> Result<UserId, Failure> {
        if let Some(id) = self.users.get(name) {
            return Ok(*id);
        }
        let id = self.server.user(name, self.start)?;
        self.users.insert(name.to_owned(), id);
        Ok(id)
    }

    fn submit(&mut self, name: &str, words: &[&str]) -> Result<(), Failure> {
        let (gpu, words) = match words {
            [share, rest @ ..] if share.starts_with(|c: char| c.is_ascii_digit()) => {
                (Some(*share), rest)
            }
            all => (None, all),
        };
        let mut options = CommandOptions::read(words)?;
        let now = self.now().wall;
        let owner = self.user(options.take("by").unwrap_or("kim"))?;
        let run = options.whole("batch")?;
        let exit = options.whole("exit")?.unwrap_or(0) as i32;
        let gpu = options.take("gpu").or(gpu).unwrap_or("0");
        let mut depends_on = Vec::new();
        for other in options.take("after").into_iter().flat_map(|l| l.split(',')) {
            depends_on.push(self.session(other)?.id);
        }
        let request = RequestedLaunch {
            name: None,
            remarks: Remarks::default(),
            precedence: Precedence::default(),
            replicas: 1,
            kind: if run.is_some() {
                SessionKind::Batch
            } else {
                SessionKind::Interactive
            },
            image: SessionEnvironment::Host.word().to_owned(),
            command: vec!["work".into()],
            env: BTreeMap::new(),
            demand: Demand {
                cpu: CpuShare::parse(options.take("cpu").unwrap_or("0.1"))?,
                memory: Bytes::parse(options.take("mem").unwrap_or("256m"))?,
                shm: Bytes::ZERO,
                disk: None,
                gpu: GpuShare::parse(gpu)?,
                gpu_memory: options.take("gpu-mem").map(Bytes::parse).transpose()?,
                mig: options.take("mig").map(MigProfile::parse).transpose()?,
            },
            typed_gpu: None,
            timeout_seconds: options.whole("timeout")?,
            max_runtime_seconds: options.whole("longest")?,
            start_at: options.whole("at")?.map(|s| self.start.plus_seconds(s)),
            depends_on: depends_on.iter().map(SessionId::to_string).collect(),
            containers: 1,
        };
        options.all_used("submit")?;
        let world = self.server.world()?;
        let checked = request
            .validate(now)
            .and_then(|launch| {
                let host = SessionEnvironment::Host;
                launch.spec.complete(host, false, depends_on)
            })
            .and_then(|spec| {
                let group = ResourceGroupId::DEFAULT;
                placement::possible(&world, group, &spec.demand, &spec.environment)?;
                Ok(spec)
            });
        let spec = match checked {
            Ok(spec) => spec,
            Err(refusal) => {
                self.say(&format!("  refused: {refusal}"));
                return Ok(());
            }
        };
        let number = self.ids.len() as u8;
        let id = SessionId::make(now, [0, 0, 0, 0, 0, 0, 0, 0, 0, number]);
        let session = Session::launched(id, SessionName::parse(name)?, owner, spec, now);
        match self.server.submit(&session, &format!("submit-{number}")) {
            Ok(id) => {
                self.ids.insert(name.to_owned(), id);
                self.runs.insert(name.to_owned(), (run, exit));
            }
            Err(Failure::Refusal(refusal)) => self.say(&format!("  refused: {refusal}")),
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    fn set_desired(&mut self, name: &str, desired: DesiredState) -> Result<(), Failure> {
        let id = self.session(name)?.id;
        let now = self.now().wall;
        let because = reasons::session_stopped();
        self.server
            .edit(id, move |s| s.stop(desired, because, now))?;
        Ok(())
    }

    /// Another share of the devices that it has, as the action of a user gives it.
    fn resize(&mut self, name: &str, share: &str) -> Result<(), Failure> {
        let row = self.session(name)?;
        let wanted = RequestedResize {
            gpu: Some(GpuShare::parse(share)?),
            ..RequestedResize::default()
        };
        let world = self.server.world()?;
        let granted = wanted.validate(&row).and_then(|demand| {
            let group = world.groups.of_session(row.id);
            placement::possible(&world, group, &demand, &row.spec.environment)?;
            Ok((placement::regrant(&world, &row, &demand)?, demand))
        });
        match granted {
            Ok((devices, demand)) => {
                self.server.edit(row.id, move |s| {
                    s.spec.demand = demand;
                    s.regrant(devices);
                    true
                })?;
            }
            Err(refusal) => self.say(&format!("  refused: {refusal}")),
        }
        Ok(())
    }

    fn restart(&mut self, name: &str) -> Result<(), Failure> {
        let id = self.session(name)?.id;
        let now = self.now().wall;
        self.server.edit(id, move |s| {
            if s.state() == SessionState::Ended {
                s.begin_again(now);
            } else {
                let because = reasons::session_restarted();
                s.restart = true;
                s.stop(DesiredState::Stop, because, now);
            }
            true
        })?;
        Ok(())
    }

    fn pause(&mut self, name: &str, paused: bool) -> Result<(), Failure> {
        let id = self.session(name)?.id;
        self.server.edit(id, move |s| {
            let change = s.paused != paused;
            s.paused = paused;
            change
        })?;
        Ok(())
    }

    fn silence(&mut self, node: &str, until: u64) -> Result<(), Failure> {
        let second = self.second;
        self.machine(node)?.silent_until = (until > second).then_some(until);
        Ok(())
    }

    fn tick(&mut self, seconds: u64) -> Result<(), Failure> {
        for _ in 0..seconds {
            let before = self.rows()?;
            self.second += 1;
            let now = self.now();
            self.server.set_clock(now);
            let reports = self.machines_work(now);
            let prepared = self.server.prepare(now, &reports, &placement::decide)?;
            for assignment in self.server.commit(prepared, now)? {
                let to = self
                    .machines
                    .iter_mut()
                    .find(|m| m.fake_node.id == assignment.node);
                // What is sent into a dead link is lost; the controller sends it again.
                if let Some(machine) = to.filter(|m| m.silent_until.is_none()) {
                    machine.inbox = Some(assignment);
                }
            }
            self.tell_changes(&before)?;
        }
        Ok(())
    }

    fn machines_work(&mut self, now: SimulatedMoment) -> Vec<NodeReport> {
        let second = self.second;
        let runs = &self.runs;
        let mut reports = Vec::new();
        for machine in &mut self.machines {
            if machine.silent_until.is_some_and(|until| until <= second) {
                machine.silent_until = None;
            }
            machine.fake_node.advance(now);
            if let Some(assignment) = machine.inbox.take() {
                machine.fake_node.take(assignment);
            }
            let usual = &machine.plan;
            machine.fake_node.tend(now, &mut |order: &ContainerOrder| {
                let (run, exit_code) = runs.get(&order.hostname).copied().unwrap_or((None, 0));
                ContainerPlan {
                    run,
                    exit_code,
                    ..usual.clone()
                }
            });
            machine.fake_node.advance(now);
            if machine.silent_until.is_none() {
                reports.push(machine.fake_node.report(now));
            }
        }
        reports
    }

    /// Every session of the script by name, in the order of submission.
    fn rows(&self) -> Result<Vec<Session>, Failure> {
        let mut rows = Vec::new();
        for id in self.ids.values() {
            rows.extend(self.server.session(*id)?);
        }
        rows.sort_by_key(|s| (s.created_at, s.id));
        Ok(rows)
    }

    fn tell_changes(&mut self, before: &[Session]) -> Result<(), Failure> {
        let clock = clock(self.second);
        for (old, new) in before.iter().zip(self.rows()?) {
            if (old.state(), old.incarnation) != (new.state(), new.incarnation) {
                let line = format!(
                    "  {clock}  {}: {} → {}{}",
                    new.name,
                    old.state().word(),
                    new.state().word(),
                    because(&new)
                );
                self.say(&line);
            }
        }
        for finding in findings(&self.server.world()?) {
            self.say(&format!(
                "  {clock}  BROKEN {}: {}",
                finding.code, finding.text
            ));
        }
        Ok(())
    }

    fn show(&mut self) -> Result<(), Failure> {
        let world = self.server.world()?;
        let used = world.used();
        let mut text = format!("  at {}\n", clock(self.second));
        for node in &world.nodes {
            let held = used.get(&node.id).cloned().unwrap_or_default();
            let devices: Vec<String> = node
                .capacity
                .devices
                .iter()
                .map(|d| {
                    let held = held.devices.get(&d.index).cloned().unwrap_or_default();
                    match d.mig.len() {
                        0 => format!("device {} {}", d.index, held.share),
                        parts => format!("device {} {}/{parts} parts", d.index, held.parts.len()),
                    }
                })
                .collect();
            let silent = if node.is_silent(self.now().wall) {
                "  silent"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "  {:<10} {}/{} cores  {}/{}  {}{silent}",
                node.name,
                held.cpu,
                node.capacity.cpu,
                held.memory,
                node.capacity.memory,
                devices.join("  "),
            );
        }
        for session in self.rows()? {
            let _ = writeln!(
                text,
                "  {:<10} {:<9} {}",
                session.name.as_str(),
                session.state().word(),
                place(&world, &session)
            );
        }
        let text: Vec<&str> = text.lines().map(str::trim_end).collect();
        self.say(&text.join("\n"));
        Ok(())
    }

    fn why(&mut self, name: &str) -> Result<(), Failure> {
        let session = self.session(name)?;
        let explanation = explain_session(&self.server.world()?, &session, self.now().wall);
        self.say(&format!("  {}", explanation.sentence));
        if let Some(position) = explanation.queue_position {
            self.say(&format!("  place in the queue: {position}"));
        }
        for blocker in explanation.blockers {
            self.say(&format!("  {}: {}", blocker.code, blocker.text));
        }
        if let Some(eta) = explanation.eta {
            self.say(&format!("  in {} s: {}", eta.p50_seconds, eta.basis));
        }
        for alternative in explanation.alternatives {
            self.say(&format!("  or: {}", alternative.text));
        }
        Ok(())
    }
}

fn clock(second: u64) -> String {
    format!("{}:{:02}", second / 60, second % 60)
}

fn because(session: &Session) -> String {
    let mut text = match session.outcome() {
        Some(outcome) => format!(" {}", outcome.word()),
        None => String::new(),
    };
    let said = matches!(
        session.state(),
        SessionState::Scheduled | SessionState::Stopping | SessionState::Ended
    );
    if let Some(reason) = session.reason.as_ref().filter(|_| said) {
        let _ = write!(text, " ({})", reason.text);
    }
    text
}

fn place(world: &ClusterSnapshot, session: &Session) -> String {
    let Some(node) = session.node().and_then(|id| world.node(id)) else {
        return String::new();
    };
    let mut text = node.name.clone();
    for part in session.devices() {
        let _ = write!(text, "  device {} {}", part.index, part.share);
        if let Some(number) = part.part {
            let _ = write!(text, " (partition {number})");
        } else if session.spec.demand.gpu_memory.is_some() {
            let _ = write!(text, " ({})", part.memory);
        }
    }
    if session.incarnation > 1 {
        let _ = write!(text, "  start {}", session.incarnation);
    }
    if let Some(outcome) = session.outcome() {
        let _ = write!(text, "  {}", outcome.word());
    }
    if let Some(code) = session.exit_code() {
        let _ = write!(text, "  exit {code}");
    }
    text
}
