//! The supervisor of one container, as a process of its own: makes the container, keeps its
//! terminal and log, answers on a socket, and writes down how it ended. One thread, one poll loop.
//!
//! Lives through every end of the server. Never reads the environment, never starts a thread,
//! never speaks to the catalog or the network.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rules::container_network;
use rules::egress::SessionEgress;
use rules::start_up;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use super::cgroup::{ControlGroup, Hierarchies};
use super::claim;
use super::container::{self, ContainerConsole, ScriptStart};
use super::container_user::{self, ContainerUser};
use super::descriptors::receive_descriptor;
use super::devices;
use super::dotfiles::{self, FileOwner};
use super::exec::{self, ExecProgram, News};
use super::fork_server;
use super::host_environment::HostDigest;
use super::identity::ProcessIdentity;
use super::launch::{LaunchFile, RunRecord};
use super::loader;
use super::logs::LogWriter;
use super::order::{ContainerSpec, ExecOrder, RuntimeExit, RuntimePhase, StartUpEnd, UserOrder};
use super::own_folders;
use super::proc_files::{self, ProcFiles};
use super::process_limits;
use super::rootfs::{self, RootStage};
use super::seccomp::answers::{self, Pace, VirtualSysinfo};
use super::seccomp::{Revealing, SeccompFilter};
use super::spec::{self, PreparedRoot};
use super::terminal::{ProgramStream, ReadOutcome, Scrollback};
use super::user_namespace::UserNamespace;
use super::wire::{self, FrameKind, PROTOCOL, ShimReply, ShimRequest};
use crate::gpu::FileUse;
use crate::network;
use crate::relay::{RelayConnection, RelayRequest};

/// Streams (programs of their own, and attached clients) that one shim serves together; the next is
/// refused as busy. More: each costs memory in every shim. Fewer: twenty people watching one terminal.
const MAX_STREAMS: usize = 32;

/// Programs of one container that go on without a client. More: each takes one of the places of streams, and memory for
/// its last output, as long as it runs. Fewer: a session has fewer apps.
const MAX_BACKGROUND: usize = 8;

/// What an SSH client in a container of several is told of the others: nothing stands between them that could pass itself
/// off as one, and their keys are new with each server. Never said of a longer name, which is a host outside.
const NEIGHBOURS: &str = "Host main1 sub? sub??\n    StrictHostKeyChecking no\n    UserKnownHostsFile /dev/null\n    LogLevel ERROR\n";

/// Connections that have not said what they want, or wait for a short answer; the next waits in the
/// socket's queue until one has said it or is let go. Streams take none of these places, so a client that
/// wants a stop or a kill always finds one.
const MAX_NEWCOMERS: usize = 32;

/// How long a connection may take to say what it wants. A server says it at once.
const FIRST_WORDS: Duration = Duration::from_secs(1);

/// Subscriptions together; with one more the oldest is let go. There is one server, and for a moment
/// the one before it.
const MAX_SUBSCRIBERS: usize = 4;

/// Output of a pipe that waits for a slow client before it is let go; it can come back and replay.
const WAITING_OUTPUT: usize = 1024 * 1024;

/// Output of a terminal that is on its way to one client; what follows stays in the scrollback, and what leaves the
/// scrollback is skipped. More: what a client sees is older, above all after Ctrl-C. Less: more turns of the loop.
const MAX_TERMINAL_AHEAD: usize = 8 * 1024;

/// How long a client of a terminal may take nothing while output waits for it. Longer: a client that hangs keeps one
/// of the places. Shorter: a page on a machine that sleeps for a moment must come back.
const MAX_STALL: Duration = Duration::from_secs(60);

/// The number of our own control sequence (OSC) that tells a terminal how many bytes were skipped; terminals that do
/// not know it show nothing.
const SKIPPED_SEQUENCE: u32 = 7300;

/// What stops a program when it is typed: Ctrl-C, Ctrl-Z, Ctrl-\\.
const STOPPING_KEYS: [u8; 3] = [0x03, 0x1a, 0x1c];

/// How long the last words may take to reach clients after the container's end.
const FAREWELL: Duration = Duration::from_secs(2);

/// How often the files that tell the limits are rewritten. Shorter costs every session wake-ups;
/// longer shows people old numbers.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Output of a program that may wait for its client before the program is made to wait.
const ENOUGH_OUTPUT: usize = 256 * 1024;

/// Input that may wait for a program before its client is made to wait.
const ENOUGH_INPUT: usize = 64 * 1024;

/// Grace of a shim that is itself told to end, as at the machine's shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

pub(super) const DEFAULT_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

type ShimError = Box<dyn std::error::Error>;

/// Runs `fardel shim`: the fork server on standard input, and in its forks the shims themselves.
pub fn main(arguments: &[OsString]) -> ExitCode {
    fork_server::main(arguments, supervise)
}

/// Supervises the container described in `directory`; `server` is the first subscription.
fn supervise(directory: &Path, server: UnixStream) {
    // Held until the end: a later server sees by it that this shim lives.
    let Ok(Some(_claim)) = claim::take(directory, &server) else {
        return;
    };
    let launch = match LaunchFile::read(directory) {
        Ok(launch) => launch,
        // Without an order there is nowhere to write to; the closed socket tells the server.
        Err(_) => return,
    };
    let path = launch.log_directory.join("shim.log");
    let before = fs::metadata(&path).map_or(0, |found| found.len());
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path);
    if let Ok(log) = log {
        let _ = tracing::subscriber::set_global_default(journal::Journal::new(log));
    }
    let mut shim = match Shim::new(directory, launch, server) {
        Ok(shim) => shim,
        Err(error) => {
            tracing::error!("the shim could not begin: {error}");
            return;
        }
    };
    match shim.begin() {
        Ok(()) => {
            // What made the container is not needed to watch it.
            super::program_memory::give_back();
            shim.watch();
        }
        Err(error) => {
            let reason =
                journal::with_first_fault(&shim.launch.log_directory, before, chain(&*error));
            tracing::error!("could not start: {reason}");
            shim.end(RuntimeExit {
                code: 125,
                signal: None,
                oom_killed: false,
                peak_memory: None,
                reason: Some(reason),
                started_at: None,
                ended_at: now(),
            });
        }
    }
    shim.farewell();
}

struct Shim {
    directory: PathBuf,
    launch: LaunchFile,
    standing: RuntimePhase,
    signals: OwnedFd,
    listener: UnixListener,
    clients: Vec<ShimClient>,
    background: Vec<BackgroundProgram>,
    /// How many programs in the background there ever were.
    numbered: u32,
    group: ControlGroup,
    scrollback: Scrollback,
    log: LogWriter,
    line: Option<ProgramStream>,
    first: Option<FirstProcessHandle>,
    kill_at: Option<Instant>,
    next_look: Instant,
    /// Kept for programs that join later.
    ground: Option<PreparedRoot>,
    revealing: Revealing,
    /// Where the first process leaves the filter's listener.
    handover: Option<UnixStream>,
    /// Where it says how the start-up script ended.
    script_report: Option<OwnedFd>,
    /// Listeners of every filter in this container.
    questions: Vec<Option<OwnedFd>>,
    pace: Pace,
    measure: VirtualSysinfo,
    proc_files: Option<ProcFiles>,
    /// Children that ended before their process number was known here.
    unclaimed: Vec<(i32, i32)>,
}

/// One more program inside, belonging to the client that asked for it.
struct RunningProgram {
    /// Until it runs.
    news: Option<OwnedFd>,
    pid: Option<i32>,
    status: Option<i32>,
    /// None for a terminal, whose one line is `output`.
    input: Option<ProgramStream>,
    output: Option<ProgramStream>,
    errors: Option<ProgramStream>,
    input_over: bool,
}

/// A program inside that goes on without a client. Its client is the shim itself, at the other end of a pair.
struct BackgroundProgram {
    number: u32,
    name: String,
    stream: UnixStream,
    received: Vec<u8>,
    recent: Scrollback,
    /// Whether it is known that it runs, or that it does not.
    is_decided: bool,
    is_over: bool,
}

/// What may be ready.
#[derive(Clone, Copy)]
enum ReadySource {
    Signals,
    Listener,
    Line,
    Handover,
    Script,
    Question(usize),
    Client(usize),
    News(usize),
    Program(usize),
    Background(usize),
}

/// The container's process 1, seen from here.
struct FirstProcessHandle {
    identity: ProcessIdentity,
    started_at: u64,
}

struct ShimClient {
    stream: UnixStream,
    received: Vec<u8>,
    waiting: Vec<u8>,
    role: PeerRole,
    gone: bool,
    since: Instant,
    /// Frames sent so far.
    sent: u64,
    /// How much of the terminal's output it was sent; None where it follows no terminal.
    follows: Option<u64>,
    /// When it last took something.
    taken: Instant,
    program: Option<Box<RunningProgram>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PeerRole {
    New,
    Subscriber,
    Attached,
    /// Has a program of its own inside.
    Program,
    /// Sees what the program in the background of this number writes.
    Watching(u32),
    /// Answered; goes when its answer is out.
    Served,
}

impl Shim {
    fn new(directory: &Path, launch: LaunchFile, server: UnixStream) -> Result<Self, ShimError> {
        // SAFETY: plain system calls on this process alone; a refused priority is no fault (needs CAP_SYS_RESOURCE).
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
        let _ = fs::write("/proc/self/oom_score_adj", "-999");
        let signals =
            signal_descriptor(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
        let group = Hierarchies::detect()?.at(launch.group.clone());
        let listener = listen(directory)?;
        let mut shim = Self {
            directory: directory.to_owned(),
            standing: RuntimePhase::Preparing,
            signals,
            listener,
            clients: vec![],
            background: vec![],
            numbered: 0,
            group,
            scrollback: Scrollback::default(),
            log: LogWriter::open(&launch.log_directory)?,
            line: None,
            first: None,
            kill_at: None,
            next_look: Instant::now() + POLL_INTERVAL,
            ground: None,
            revealing: Revealing::available(),
            handover: None,
            script_report: None,
            questions: vec![],
            pace: Pace::new(Instant::now()),
            measure: VirtualSysinfo {
                processors: proc_files::processors(launch.order.cpu_hundredths),
                first: HostDigest::of(launch.order.name.as_str().as_bytes()) as usize % 4096,
                memory_limit: launch.order.memory_bytes,
                memory_used: 0,
                processes: 1,
                uptime_seconds: 0,
            },
            proc_files: None,
            unclaimed: vec![],
            launch,
        };
        shim.write_run_record()?;
        let mut server = ShimClient::new(server)?;
        server.role = PeerRole::Subscriber;
        server.send_json(FrameKind::Event, &shim.event());
        shim.clients.push(server);
        Ok(shim)
    }

    /// Where the relay of this installation has its socket.
    fn run_directory(&self) -> Option<File> {
        // `RUN/c/NAME`
        let run = self.directory.parent()?.parent()?;
        File::open(run).ok()
    }

    /// The network namespace of the container in which the switch of the session's network is; None where this one joins no
    /// other. An error where that container is gone.
    fn hub(&self, order: &ContainerSpec) -> Result<Option<File>, ShimError> {
        let mut hubs = order.networks.iter().filter_map(|each| each.hub.as_ref());
        let Some((hub, all)) = hubs.next().zip(self.directory.parent()) else {
            return Ok(None);
        };
        let gone = || "the main container of the session is gone";
        let first = RunRecord::read(&all.join(hub.as_str()))?
            .first
            .ok_or_else(gone)?;
        let namespace = File::open(format!("/proc/{}/ns/net", first.pid))?;
        // Checked after opening: what is open is this process's, not that of a later owner of its number.
        first.open()?.ok_or_else(gone)?;
        Ok(Some(namespace))
    }

    fn write_run_record(&self) -> io::Result<()> {
        let record = RunRecord {
            protocol: PROTOCOL,
            shim: ProcessIdentity::of(rustix::process::getpid().as_raw_nonzero().get())?,
            first: self.first.as_ref().map(|first| first.identity.clone()),
            started_at: self.first.as_ref().map(|first| first.started_at),
        };
        record.write(&self.directory)
    }

    /// Makes the container and lets its command run.
    fn begin(&mut self) -> Result<(), ShimError> {
        let mut order = self.launch.order.clone();
        order.hostname = spec::plain_hostname(&order.hostname);
        // Opened while its path is still in sight.
        let relay = order.egress.as_ref().and_then(|_| self.run_directory());
        let hub = self.hub(&order)?;
        let limits = process_limits::raise(&order.ulimits);
        let ids = UserNamespace::make(order.ids, limits.memlock)?;
        let mut ours = vec![
            self.directory.as_path(),
            &self.launch.own_directory,
            &self.launch.log_directory,
        ];
        ours.extend(order.root.layers.iter().map(PathBuf::as_path));
        ours.extend(order.mounts.iter().map(|mount| mount.from.as_path()));
        ours.extend(order.files.iter().map(|file| file.from.as_path()));
        let stage = RootStage::enter(&ours)?;
        rootfs::mount_root(
            &stage,
            &order,
            self.launch.host.as_ref(),
            &self.launch.own_directory,
            ids.as_fd(),
        )?;
        let (ground, home) = self.ground(&stage, &mut order, &ids)?;
        self.write_dotfiles(&order, &ground, home.as_deref());
        fs::write(
            self.directory.join("config.json"),
            spec::specification(&order, &ground).to_string(),
        )?;
        let state = self.directory.join("lc");
        fs::create_dir_all(&state)?;

        self.announce(RuntimePhase::Starting);
        let revealing = self.revealing;
        let (listener_near, listener_far) = UnixStream::pair()?;
        let script = self.script(&order)?;
        let words = (&order.command[..], &ground.environment[..]);
        let filter = (SeccompFilter::compile(revealing), revealing);
        let mut created = if order.terminal.is_some() {
            let (socket, listener) = console_socket(&self.directory)?;
            let created = container::create(
                order.name.as_str(),
                &state,
                &self.directory,
                ContainerConsole::Terminal(&socket),
                words,
                filter,
                (listener_far.as_raw_fd(), script.as_ref()),
            )?;
            let (connection, _) = listener.accept()?;
            self.line = Some(ProgramStream::new(
                receive_descriptor(connection.as_fd())?,
                true,
            )?);
            fs::remove_file(socket)?;
            created
        } else {
            let (read, write) = io::pipe()?;
            let input = OwnedFd::from(File::open("/dev/null")?);
            let errors = OwnedFd::from(write.try_clone()?);
            self.line = Some(ProgramStream::new(read.into(), false)?);
            container::create(
                order.name.as_str(),
                &state,
                &self.directory,
                ContainerConsole::Pipes {
                    input,
                    output: write.into(),
                    errors,
                },
                words,
                filter,
                (listener_far.as_raw_fd(), script.as_ref()),
            )?
        };
        drop((listener_far, script));
        self.handover = (revealing == Revealing::ToShim).then_some(listener_near);
        self.ground = Some(ground);
        // libcontainer gives its caller the container's own standing with the memory killer.
        let _ = fs::write("/proc/self/oom_score_adj", "0");
        let _ = fs::write("/proc/self/oom_score_adj", "-999");
        let identity = ProcessIdentity::of(created.pid)?;
        network::raise_loopback(created.pid)?;
        // Before the command runs: it finds the names of the others and its own address.
        join(&order, hub.as_ref(), created.pid).map_err(|error| {
            format!("the private network of the session cannot be made: {error}")
        })?;
        if let (Some(egress), Some(relay)) = (order.egress.clone(), relay) {
            // Before the command runs: its first connection finds a listener. Where that fails, the node asks again.
            let opened = hand_over(&relay, &order, egress, &identity);
            if let Err(error) = opened {
                tracing::warn!("the session's network is not open yet: {error}");
            }
        }
        if let Some(group) = self.group.unified_directory() {
            // Between create and start nothing of the container has run yet.
            devices::fence(&group, &order.devices)
                .map_err(|error| format!("the device fence cannot be attached: {error}"))?;
        }
        if let (Some(line), Some(size)) = (&self.line, order.terminal) {
            line.resize(size);
        }
        let started_at = now();
        let pid = identity.pid;
        self.first = Some(FirstProcessHandle {
            identity,
            started_at,
        });
        // Before the command runs: a record without a first process proves that it never did. And before
        // any client is told: a client that hears that it runs may rely on its record.
        self.write_run_record()?;
        created.start()?;
        let kept = [
            &*self.directory,
            &self.launch.own_directory,
            &self.launch.log_directory,
        ];
        // The command runs by now: a mount that stays must not end it.
        if let Err(error) = stage.leave_mounts(&kept) {
            tracing::warn!("mounts of the machine stay with this session: {error}");
        }
        self.announce(RuntimePhase::Running {
            since: started_at,
            pid,
            paused: false,
        });
        Ok(())
    }

    /// Puts the owner's files into the home, and says in the log which are not there. `mounted`: the home folder on the
    /// stage.
    fn write_dotfiles(
        &mut self,
        order: &ContainerSpec,
        ground: &PreparedRoot,
        mounted: Option<&Path>,
    ) {
        let owner = FileOwner {
            uid: order.ids.user(ground.uid),
            gid: order.ids.group(ground.gid),
        };
        let (home, files) = (&ground.home, &order.start_up.files);
        let told = match mounted {
            Some(mounted) => dotfiles::write_mounted(mounted, home, files, &order.mounts),
            None => dotfiles::write(&ground.root, home, files, &order.mounts, owner),
        };
        self.tell(&told);
    }

    /// Says sentences in the log of the session.
    fn tell(&mut self, told: &[String]) {
        for told in told {
            let line = format!("fardel: {told}\r\n");
            self.scrollback.add(line.as_bytes());
            if let Err(error) = self.log.append(line.as_bytes()) {
                tracing::warn!("output is not logged: {error}");
            }
        }
    }

    /// The script that runs before the command, where there is one; how it ends is heard from now on.
    fn script(&mut self, order: &ContainerSpec) -> io::Result<Option<ScriptStart>> {
        let Some(script) = &order.start_up.script else {
            return Ok(None);
        };
        let text = start_up::runnable(&script.text);
        let (heard, report) = io::pipe()?;
        rustix::fs::fcntl_setfl(&heard, rustix::fs::OFlags::NONBLOCK)?;
        self.script_report = Some(heard.into());
        Ok(Some(ScriptStart {
            script: container::sealed_file("start-up", text.as_bytes())?,
            report: report.into(),
            seconds: start_up::SCRIPT_SECONDS,
            ends_session: script.ends_session,
        }))
    }

    /// Takes how the script ended, and writes down where it failed.
    fn hear_script(&mut self) {
        let Some(heard) = &self.script_report else {
            return;
        };
        let mut bytes = [0; 4];
        let code = match rustix::io::read(heard, &mut bytes) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            Ok(4) => i32::from_le_bytes(bytes),
            // It ended without a word, as the container did.
            Ok(_) | Err(_) => 0,
        };
        self.script_report = None;
        if code == 0 {
            return;
        }
        let script = self.launch.order.start_up.script.as_ref();
        let end = StartUpEnd {
            exit_code: Some(code).filter(|code| *code >= 0),
            ends_session: script.is_some_and(|script| script.ends_session),
        };
        if let Err(error) = end.write(&self.directory) {
            tracing::error!("the end of the start-up script could not be written down: {error}");
        }
    }

    /// What the specification is written from, and the home folder on the stage. What is mounted stands in the order
    /// afterwards.
    fn ground(
        &mut self,
        stage: &RootStage,
        order: &mut ContainerSpec,
        ids: &UserNamespace,
    ) -> Result<(PreparedRoot, Option<PathBuf>), ShimError> {
        let root = stage.root();
        let mut user = self.default_user(&root, order)?;
        let directory = order.directory.as_deref();
        let told = own_folders::settle(&mut order.mounts, &mut user, directory);
        self.tell(&told);
        let order = &*order;
        let shown_own = own_folders::show(stage, &order.mounts, &user.home, ids.as_fd())?;
        self.tell(&shown_own.told);
        let is_home = |(_, at, _): &(PathBuf, String, bool)| *at == user.home;
        let has_home = shown_own.binds.iter().any(is_home);
        let directory = match &order.directory {
            Some(directory) => directory.clone(),
            None if has_home || rootfs::directory_inside(&root, &user.home) => user.home.clone(),
            None => "/".to_owned(),
        };
        let reached = order.egress.as_ref().map(SessionEgress::hosts);
        let members = order.networks.first().map(|network| network.members);
        // In a network its own name is its address there, so that others reach what it says of itself.
        let (own, others) = match members {
            Some(members) => (String::new(), container_network::hosts(members)),
            None => (format!(" {}", order.hostname), String::new()),
        };
        let hosts = format!(
            "127.0.0.1\tlocalhost{own}\n::1\tlocalhost ip6-localhost ip6-loopback\n{others}{0}",
            reached.unwrap_or_default()
        );
        let hostname = format!("{}\n", order.hostname);
        for (name, text) in [
            ("hosts", &hosts),
            ("hostname", &hostname),
            ("resolv.conf", &String::new()),
        ] {
            let file = stage.write_file(&format!("files/{name}"), text)?;
            stage.show_file(&file, &format!("/etc/{name}"), FileUse::Read)?;
        }
        if members.is_some() {
            let file = stage.write_file("files/ssh_config", NEIGHBOURS)?;
            // Where the image has no settings of clients, every client looks at these. An empty file stays in an image that
            // was made from such a session.
            let own = rootfs::read_inside(&root, "/etc/ssh/ssh_config", 1);
            let is_bare = own.is_none_or(|text| text.is_empty());
            let at = match is_bare {
                true => "/etc/ssh/ssh_config",
                false => "/etc/ssh/ssh_config.d/fardel.conf",
            };
            stage.show_file(&file, at, FileUse::Read)?;
        }
        let (in_proc, files): (Vec<_>, Vec<_>) = order
            .files
            .iter()
            .partition(|file| file.at.starts_with("/proc/"));
        for file in files {
            if !stage.show_file(&file.from, &file.at, file.for_what)? {
                return Err(format!(
                    "{} cannot be shown inside: the image has something else there",
                    file.at
                )
                .into());
            }
        }
        for (from, at) in loader::copies(&stage.root(), &order.files)? {
            stage.show_file(&from, &at, FileUse::Run)?;
        }
        loader::list(&stage.root(), &order.files)?;
        let nodes = stage.nodes(&order.devices)?;
        // What is in /proc has a place once the container's own is mounted, by a user who may not go
        // where the host keeps the file. Where the kernel shows no such file, there is none to cover.
        let mut binds = Vec::new();
        for (number, file) in in_proc.into_iter().enumerate() {
            if Path::new(&file.at).is_file() {
                let text = fs::read_to_string(&file.from)?;
                let copy = stage.write_file(&format!("files/proc-{number}"), &text)?;
                binds.push((copy, file.at.clone(), true));
            }
        }
        binds.extend(shown_own.binds);
        for (number, mount) in order.mounts.iter().enumerate() {
            if mount.by_itself {
                continue;
            }
            if stage.leads_elsewhere(&mount.at)? {
                return Err(format!(
                    "no folder is mounted at {}: a link is in this path of the image",
                    mount.at
                )
                .into());
            }
            let shown = stage.show_mount(&format!("m{number}"), mount, ids.as_fd())?;
            binds.push((shown, mount.at.clone(), mount.read_only));
        }
        let (files, shown) = ProcFiles::lay(
            &stage.path("proc"),
            self.measure.processors,
            order.memory_bytes,
        )?;
        self.proc_files = Some(files);
        binds.extend(shown.into_iter().map(|(from, at)| (from, at, true)));
        let ground = PreparedRoot {
            root,
            devices: nodes
                .into_iter()
                .zip(&order.devices)
                .map(|(node, device)| (node, device.at.clone()))
                .collect(),
            cgroup_path: self.group.path().to_owned(),
            user_namespace: PathBuf::from(format!("/proc/self/fd/{}", ids.as_fd().as_raw_fd())),
            uid: user.uid,
            gid: user.gid,
            groups: user.groups.clone(),
            home: user.home.clone(),
            directory,
            environment: environment(order, &user),
            binds,
            disks: proc_files::disk_directories(),
            time_namespace: ids
                .clocks()
                .map(|clocks| PathBuf::from(format!("/proc/self/fd/{}", clocks.as_raw_fd()))),
            open_files_hard_limit: rustix::process::getrlimit(rustix::process::Resource::Nofile)
                .maximum
                .unwrap_or(u64::MAX),
            limits: process_limits::raise(&order.ulimits),
        };
        Ok((ground, shown_own.home))
    }

    fn default_user(&self, root: &Path, order: &ContainerSpec) -> Result<ContainerUser, ShimError> {
        let wanted = match &order.user {
            UserOrder::Named(name) => name.as_str(),
            UserOrder::Usual if order.root.host_environment => "work",
            UserOrder::Usual => "0",
        };
        self.named_user(root, wanted)
    }

    fn named_user(&self, root: &Path, wanted: &str) -> Result<ContainerUser, ShimError> {
        let passwd = rootfs::read_inside(root, "/etc/passwd", 1 << 20).unwrap_or_default();
        let group = rootfs::read_inside(root, "/etc/group", 1 << 20).unwrap_or_default();
        Ok(container_user::find(
            wanted,
            &passwd,
            &group,
            self.launch.order.ids.size,
        )?)
    }

    /// Serves until the container has ended.
    fn watch(&mut self) {
        let mut buffer = vec![0u8; wire::MAX_PAYLOAD_BYTES];
        self.next_look = Instant::now() + POLL_INTERVAL;
        loop {
            for ready in self.wait() {
                match ready {
                    ReadySource::Signals => {
                        if let Some(status) = self.reap() {
                            let record = self.exit_record(status);
                            self.hear_script();
                            self.drain(&mut buffer);
                            self.end(record);
                            return;
                        }
                    }
                    ReadySource::Listener => self.accept(),
                    ReadySource::Line => drop(self.hear(&mut buffer)),
                    ReadySource::Handover => self.take_over_listener(),
                    ReadySource::Script => self.hear_script(),
                    ReadySource::Question(number) => self.answer_question(number),
                    ReadySource::Client(number) => self.serve(number, &mut buffer),
                    ReadySource::News(number) => self.take_news(number),
                    ReadySource::Program(number) => self.clients[number].pass_on(&mut buffer),
                    ReadySource::Background(place) => self.hear_background(place, &mut buffer),
                }
            }
            self.questions.retain(Option::is_some);
            self.background.retain(|program| !program.is_over);
            for client in &mut self.clients {
                client.conclude(&mut buffer);
            }
            self.clients.retain(|client| {
                let silent = client.role == PeerRole::New && client.since.elapsed() > FIRST_WORDS;
                let served = client.role == PeerRole::Served && client.waiting.is_empty();
                !(client.gone || silent || served || client.stalls())
            });
            if !self.clients.iter().any(|client| {
                client
                    .program
                    .as_ref()
                    .is_some_and(|program| program.news.is_some())
            }) {
                self.unclaimed.clear();
            }
            self.on_time();
        }
    }

    /// What is due by the clock: the forced end, and a look at the container's use.
    fn on_time(&mut self) {
        let now = Instant::now();
        if self.kill_at.is_some_and(|when| when <= now) {
            self.kill_at = None;
            self.signal(libc::SIGKILL);
        }
        if self.next_look <= now {
            self.next_look = now + POLL_INTERVAL;
            self.look();
        }
    }

    /// Reads what the container uses, for the files and answers that tell it.
    fn look(&mut self) {
        let (Ok(usage), Some(first)) = (self.group.usage(), &self.first) else {
            return;
        };
        let hundredths = self
            .group
            .cpu_hundredths()
            .unwrap_or(self.launch.order.cpu_hundredths);
        let uptime_seconds = now().saturating_sub(first.started_at) / 1000;
        self.measure = VirtualSysinfo {
            processors: proc_files::processors(hundredths),
            memory_limit: usage.memory_limit,
            memory_used: usage.memory_bytes,
            processes: usage.pids,
            uptime_seconds,
            ..self.measure
        };
        if let Some(files) = &mut self.proc_files {
            if let Err(error) = files.refresh(&usage, self.measure.processors, uptime_seconds) {
                tracing::warn!("the files that tell the limits are old: {error}");
            }
        }
    }

    fn wait(&self) -> Vec<ReadySource> {
        let when = self
            .kill_at
            .map_or(self.next_look, |kill| kill.min(self.next_look));
        let newcomers = self.newcomers();
        let now = Instant::now();
        // A newcomer that says nothing rings no bell.
        let when = match newcomers {
            0 => when,
            _ => when.min(now + FIRST_WORDS),
        };
        let paced = self.pace.wait(now);
        let left = when.saturating_duration_since(now) + Duration::from_millis(1);
        let left = paced.map_or(left, |wait| left.min(wait + Duration::from_millis(1)));
        let timeout = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut sources = vec![ReadySource::Signals];
        let mut watched = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let mut watch = |source: ReadySource, descriptor, flags: PollFlags| {
            if !flags.is_empty() {
                sources.push(source);
                watched.push(PollFd::from_borrowed_fd(descriptor, flags));
            }
        };
        let listening = |line: &ProgramStream| {
            if line.wants_to_write() {
                PollFlags::IN | PollFlags::OUT
            } else {
                PollFlags::IN
            }
        };
        if newcomers < MAX_NEWCOMERS {
            watch(ReadySource::Listener, self.listener.as_fd(), PollFlags::IN);
        }
        if let Some(line) = &self.line {
            watch(ReadySource::Line, line.as_fd(), listening(line));
        }
        if let Some(handover) = &self.handover {
            watch(ReadySource::Handover, handover.as_fd(), PollFlags::IN);
        }
        if let Some(heard) = &self.script_report {
            watch(ReadySource::Script, heard.as_fd(), PollFlags::IN);
        }
        for (number, questions) in self.questions.iter().enumerate() {
            if let (Some(questions), None) = (questions, paced) {
                watch(
                    ReadySource::Question(number),
                    questions.as_fd(),
                    PollFlags::IN,
                );
            }
        }
        for (place, program) in self.background.iter().enumerate() {
            let source = ReadySource::Background(place);
            watch(source, program.stream.as_fd(), PollFlags::IN);
        }
        for (number, client) in self.clients.iter().enumerate() {
            let mut flags = PollFlags::empty();
            if client.takes_input() {
                flags |= PollFlags::IN;
            }
            if !client.waiting.is_empty() {
                flags |= PollFlags::OUT;
            }
            watch(ReadySource::Client(number), client.stream.as_fd(), flags);
            let Some(program) = &client.program else {
                continue;
            };
            if let Some(news) = &program.news {
                watch(ReadySource::News(number), news.as_fd(), PollFlags::IN);
                continue;
            }
            if client.waiting.len() < ENOUGH_OUTPUT {
                for line in [&program.output, &program.errors].into_iter().flatten() {
                    watch(ReadySource::Program(number), line.as_fd(), listening(line));
                }
            }
            if let Some(line) = program.input.as_ref().filter(|line| line.wants_to_write()) {
                watch(ReadySource::Program(number), line.as_fd(), PollFlags::OUT);
            }
        }
        if poll(&mut watched, Some(&timeout)).is_err() {
            return Vec::new();
        }
        sources
            .into_iter()
            .zip(&watched)
            .filter(|(_, poll)| !poll.revents().is_empty())
            .map(|(source, _)| source)
            .collect()
    }

    /// Takes the filter's listener from the container's first process.
    fn take_over_listener(&mut self) {
        let Some(handover) = self.handover.take() else {
            return;
        };
        match receive_descriptor(handover.as_fd()) {
            Ok(listener) => self.questions.push(Some(listener)),
            Err(error) => {
                tracing::warn!("calls for the size of the machine cannot be answered: {error}")
            }
        }
    }

    fn answer_question(&mut self, number: usize) {
        let measure = self.measure;
        let Some(listener) = &self.questions[number] else {
            return;
        };
        let begun = answers::processor_time();
        // A listener whose last process is gone has nothing but a hang-up to tell, for ever: asked
        // for a question it answers as if one had just been withdrawn.
        let mut watched = [PollFd::new(listener, PollFlags::IN)];
        let asked = poll(&mut watched, Some(&Timespec::default())).is_ok()
            && watched[0].revents().contains(PollFlags::IN);
        if !asked || answers::answer_one(listener, || measure).is_err() {
            self.questions[number] = None;
        }
        let took = answers::processor_time().saturating_sub(begun);
        self.pace.answered(Instant::now(), took);
    }

    /// Takes ended children; gives the wait status of the container's first process when it is one of them.
    fn reap(&mut self) -> Option<i32> {
        let mut block = [0u8; 128];
        while let Ok(count) = rustix::io::read(&self.signals, &mut block) {
            if count < 128 {
                break;
            }
            let number = u32::from_ne_bytes([block[0], block[1], block[2], block[3]]).cast_signed();
            if number != libc::SIGCHLD {
                self.stop(SHUTDOWN_GRACE);
            }
        }
        let mut ended = None;
        loop {
            let mut status = 0;
            // SAFETY: the status outlives the call.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
            if pid <= 0 {
                return ended;
            }
            if self
                .first
                .as_ref()
                .is_some_and(|first| first.identity.pid == pid)
            {
                ended = Some(status);
            } else if let Some(program) = self
                .clients
                .iter_mut()
                .filter_map(|client| client.program.as_mut())
                .find(|program| program.pid == Some(pid))
            {
                program.status = Some(status);
            } else {
                self.unclaimed.push((pid, status));
            }
        }
    }

    fn exit_record(&self, status: i32) -> RuntimeExit {
        let (code, signal) = if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            (128 + signal, Some(signal))
        } else {
            let code = libc::WEXITSTATUS(status);
            (code, (129..=192).contains(&code).then(|| code - 128))
        };
        let oom_killed = code == 128 + libc::SIGKILL && self.group.oom_kills() > 0;
        let reason = oom_killed.then(|| {
            let limit = self
                .group
                .usage()
                .map_or(self.launch.order.memory_bytes, |usage| usage.memory_limit);
            format!("memory limit {} reached", binary_size(limit))
        });
        let started_at = self.first.as_ref().map(|first| first.started_at);
        RuntimeExit {
            code,
            signal,
            oom_killed,
            peak_memory: self.group.peak_memory(),
            reason,
            started_at,
            ended_at: now(),
        }
    }

    fn drain(&mut self, buffer: &mut [u8]) {
        // Everything inside is dead, so the pipe ends; a bound all the same for what was in flight.
        for _ in 0..4096 {
            if self.line.is_none() || !self.hear(buffer) {
                return;
            }
        }
    }

    /// Passes on output; false when there is none now.
    fn hear(&mut self, buffer: &mut [u8]) -> bool {
        let Some(line) = &mut self.line else {
            return false;
        };
        line.flush();
        match line.hear(buffer) {
            ReadOutcome::Bytes(count) => {
                let bytes = &buffer[..count];
                self.scrollback.add(bytes);
                if let Err(error) = self.log.append(bytes) {
                    tracing::warn!("output is not logged: {error}");
                }
                for client in self
                    .clients
                    .iter_mut()
                    .filter(|client| client.role == PeerRole::Attached)
                {
                    match client.follows {
                        Some(_) => client.catch_up(&self.scrollback),
                        None => client.send(FrameKind::Output, bytes),
                    }
                }
                true
            }
            ReadOutcome::Nothing => false,
            ReadOutcome::End => {
                // A terminal may be opened again by a program that outlives its shell; a pipe may not.
                self.line = None;
                false
            }
        }
    }

    fn accept(&mut self) {
        while self.newcomers() < MAX_NEWCOMERS {
            let Ok((stream, _)) = self.listener.accept() else {
                return;
            };
            // Only root may speak to a shim; the socket's mode says so too, but modes can be changed.
            let root =
                rustix::net::sockopt::socket_peercred(&stream).is_ok_and(|peer| peer.uid.is_root());
            if root && let Ok(client) = ShimClient::new(stream) {
                self.clients.push(client);
            }
        }
    }

    fn newcomers(&self) -> usize {
        let new = |client: &&ShimClient| client.role == PeerRole::New && !client.gone;
        self.clients.iter().filter(new).count()
    }

    /// Clients with a stream, and those whose ended program's last output waits for them.
    fn streams(&self) -> usize {
        let counts = |client: &&ShimClient| match client.role {
            PeerRole::Attached | PeerRole::Program | PeerRole::Watching(_) => !client.gone,
            PeerRole::Served => !client.gone && !client.waiting.is_empty(),
            PeerRole::New | PeerRole::Subscriber => false,
        };
        self.clients.iter().filter(counts).count()
    }

    fn serve(&mut self, number: usize, buffer: &mut [u8]) {
        self.clients[number].flush();
        self.clients[number].catch_up(&self.scrollback);
        let Some(count) = self.clients[number].receive(buffer) else {
            return;
        };
        // Frames are taken where they were read; only the beginning of one waits for its rest.
        let mut received = mem::take(&mut self.clients[number].received);
        let began = !received.is_empty();
        if began {
            received.extend_from_slice(&buffer[..count]);
        }
        let mut rest = if began {
            &received[..]
        } else {
            &buffer[..count]
        };
        loop {
            match wire::first(rest) {
                Ok(Some((kind, payload))) => {
                    self.answer(number, kind, payload);
                    rest = &rest[wire::HEAD + payload.len()..];
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!("a client speaks nonsense: {error}");
                    self.clients[number].gone = true;
                    return;
                }
            }
        }
        let left = rest.len();
        if began {
            received.drain(..received.len() - left);
        } else {
            received.extend_from_slice(&buffer[count - left..count]);
        }
        self.clients[number].received = received;
    }

    fn answer(&mut self, number: usize, kind: FrameKind, payload: &[u8]) {
        match (self.clients[number].role, kind) {
            (PeerRole::New, FrameKind::Request) => {
                let reply = match serde_json::from_slice(payload) {
                    Ok(request) => self.request(number, request),
                    Err(error) => ShimReply::Refused {
                        why: format!("not a request: {error}"),
                    },
                };
                let client = &mut self.clients[number];
                if client.role == PeerRole::New {
                    client.role = PeerRole::Served;
                    client.send_json(FrameKind::Reply, &reply);
                }
            }
            (PeerRole::Attached, FrameKind::Input) => {
                if let Some(line) = self.line.as_mut().filter(|line| line.is_terminal) {
                    line.say(payload);
                }
                if payload.iter().any(|key| STOPPING_KEYS.contains(key)) {
                    self.clients[number].skip_to_newest(&self.scrollback);
                }
            }
            (PeerRole::Program, _) => self.clients[number].direct(kind, payload),
            (PeerRole::Attached, FrameKind::Resize) => {
                if let (Some(line), Some(size)) = (&self.line, wire::size_of(payload)) {
                    line.resize(size);
                }
            }
            _ => {}
        }
    }

    /// Carries out a request; one that opens a stream changes the client's role and answers itself.
    fn request(&mut self, number: usize, request: ShimRequest) -> ShimReply {
        match request {
            ShimRequest::Attach { .. } | ShimRequest::Exec(_) if self.streams() >= MAX_STREAMS => {
                return ShimReply::Busy {
                    why: "The session serves as many programs and terminals as it can".to_owned(),
                };
            }
            ShimRequest::Subscribe => {
                if let RuntimePhase::Running { paused, .. } = &mut self.standing {
                    *paused = self.group.frozen();
                }
                let subscribed =
                    |client: &&mut ShimClient| client.role == PeerRole::Subscriber && !client.gone;
                let mut subscribers = self.clients.iter_mut().filter(subscribed);
                let oldest = subscribers.next();
                if let Some(oldest) = oldest
                    && subscribers.count() + 1 >= MAX_SUBSCRIBERS
                {
                    oldest.gone = true;
                }
                let event = self.event();
                let client = &mut self.clients[number];
                client.role = PeerRole::Subscriber;
                client.send_json(FrameKind::Event, &event);
            }
            ShimRequest::Attach { size } => {
                if let (Some(line), Some(size)) = (&self.line, size) {
                    line.resize(size);
                }
                let client = &mut self.clients[number];
                client.role = PeerRole::Attached;
                client.send_json(FrameKind::Reply, &ShimReply::Done);
                if self.launch.order.terminal.is_some() {
                    client.follow(&self.scrollback);
                } else if self.scrollback.end() > 0 {
                    client.send(FrameKind::Output, &self.scrollback.replay());
                }
            }
            ShimRequest::Stop { grace_milliseconds } => {
                self.stop(Duration::from_millis(grace_milliseconds))
            }
            ShimRequest::Kill => self.signal(libc::SIGKILL),
            ShimRequest::Exec(order) => {
                let begun = match &order.background {
                    Some(name) => self.watch_background(number, name, &order),
                    None => self.exec(number, &order),
                };
                if let Err(error) = begun {
                    return ShimReply::Refused {
                        why: chain(&*error),
                    };
                }
            }
        }
        ShimReply::Done
    }

    /// Begins one more program for a client; its news decide the answer.
    fn exec(&mut self, number: usize, order: &ExecOrder) -> Result<(), ShimError> {
        let (Some(first), Some(ground)) = (&self.first, &self.ground) else {
            return Err("the session is not running".into());
        };
        if order.command.is_empty() {
            return Err("there is no command".into());
        }
        if self.group.frozen() {
            return Err("the session is paused; resume it first".into());
        }
        let held = first.identity.open()?.ok_or("the session has just ended")?;
        let user = match &order.user {
            Some(name) => self.named_user(&ground.root, name)?,
            None => ContainerUser {
                uid: ground.uid,
                gid: ground.gid,
                groups: ground.groups.clone(),
                home: ground.home.clone(),
            },
        };
        if user.uid == 0 && ground.uid != 0 && !self.launch.order.sudo {
            return Err(
                "this session was launched without sudo, so no command runs as its root".into(),
            );
        }
        let mut environment = ground.environment.clone();
        if order.user.is_some() {
            put_variable(&mut environment, "HOME", &user.home);
        }
        if order.terminal.is_some() {
            put_variable(&mut environment, "TERM", "xterm-256color");
        }
        for (name, value) in &order.environment {
            put_variable(&mut environment, name, value);
        }
        let words = order
            .command
            .iter()
            .chain(order.directory.iter())
            .chain(environment.iter().flat_map(|(name, value)| [name, value]));
        if words.into_iter().any(|word| word.contains('\0')) {
            return Err("a word of the command or environment contains a null byte".into());
        }
        let program = ExecProgram {
            command: order.command.clone(),
            environment,
            directory: order
                .directory
                .clone()
                .unwrap_or_else(|| ground.directory.clone()),
            user,
            terminal: order.terminal,
            open_files: ground.open_files(),
            limits: ground.limits,
            revealing: self.revealing,
            guest: order.guest,
        };
        let starting = exec::begin(held.as_fd(), &self.group, &program)?;
        let client = &mut self.clients[number];
        client.role = PeerRole::Program;
        client.program = Some(Box::new(RunningProgram {
            news: Some(starting.news),
            pid: None,
            status: None,
            input: starting.input,
            output: starting.output,
            errors: starting.errors,
            input_over: false,
        }));
        Ok(())
    }

    /// Lets a client watch the program in the background of this name, which begins where none runs.
    fn watch_background(
        &mut self,
        number: usize,
        name: &str,
        order: &ExecOrder,
    ) -> Result<(), ShimError> {
        let mut running = self.background.iter().filter(|program| !program.is_over);
        if let Some(program) = running.find(|program| program.name == name) {
            let client = &mut self.clients[number];
            client.role = PeerRole::Watching(program.number);
            if program.is_decided {
                client.send_json(FrameKind::Reply, &ShimReply::Done);
                client.send(FrameKind::Output, &program.recent.replay());
            }
            return Ok(());
        }
        if self.background.len() >= MAX_BACKGROUND {
            return Err("the session has as many programs in the background as it can".into());
        }
        let (near, far) = UnixStream::pair()?;
        near.set_nonblocking(true)?;
        self.clients.push(ShimClient::new(far)?);
        let own = self.clients.len() - 1;
        if let Err(error) = self.exec(own, order) {
            self.clients.pop();
            return Err(error);
        }
        if let Some(program) = &mut self.clients[own].program {
            program.input_over = true;
            program.close_input();
        }
        self.numbered += 1;
        self.background.push(BackgroundProgram {
            number: self.numbered,
            name: name.to_owned(),
            stream: near,
            received: Vec::new(),
            recent: Scrollback::default(),
            is_decided: false,
            is_over: false,
        });
        self.clients[number].role = PeerRole::Watching(self.numbered);
        Ok(())
    }

    /// Remembers what a program in the background writes, and passes it on to those who watch.
    fn hear_background(&mut self, place: usize, buffer: &mut [u8]) {
        let program = &mut self.background[place];
        match program.stream.read(buffer) {
            Ok(0) => program.is_over = true,
            Ok(count) => program.received.extend_from_slice(&buffer[..count]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return;
            }
            Err(_) => program.is_over = true,
        }
        let role = PeerRole::Watching(program.number);
        let mut watching: Vec<&mut ShimClient> = self
            .clients
            .iter_mut()
            .filter(|client| client.role == role)
            .collect();
        // Our own frames are well formed.
        while let Ok(Some(frame)) = wire::take(&mut program.received) {
            match frame.kind {
                FrameKind::Reply => program.is_decided = true,
                FrameKind::Output | FrameKind::Errors => program.recent.add(&frame.payload),
                FrameKind::Exit => program.is_over = true,
                _ => continue,
            }
            for client in &mut watching {
                client.send(frame.kind, &frame.payload);
            }
        }
        if program.is_over {
            for client in watching {
                client.role = PeerRole::Served;
            }
        }
    }

    /// Takes the news of a starting program and answers its client when it is decided.
    fn take_news(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let Some(program) = &mut client.program else {
            return;
        };
        while let Some(news) = &program.news {
            match exec::listen(news.as_fd()) {
                News::Nothing => return,
                News::Process(pid) => {
                    program.pid = Some(pid);
                    program.status = self
                        .unclaimed
                        .iter()
                        .find(|(ended, _)| *ended == pid)
                        .map(|(_, status)| *status);
                }
                News::Terminal(descriptor) => {
                    program.output = ProgramStream::new(descriptor, true).ok()
                }
                News::Listener(listener) => self.questions.push(Some(listener)),
                News::Failed(why) => return client.refuse(why),
                News::End if program.pid.is_none() => {
                    return client.refuse("the program's forerunner died".to_owned());
                }
                News::End => {
                    program.news = None;
                    client.send_json(FrameKind::Reply, &ShimReply::Done);
                    return;
                }
            }
        }
    }

    fn stop(&mut self, grace: Duration) {
        self.signal(self.launch.order.stop_signal);
        if self.launch.order.terminal.is_some() {
            // Interactive shells ignore TERM; a closed terminal is what they listen to.
            self.signal(libc::SIGHUP);
        }
        let when = Instant::now() + grace;
        self.kill_at = Some(self.kill_at.map_or(when, |earlier| earlier.min(when)));
    }

    fn signal(&self, signal: i32) {
        if let Some(first) = &self.first {
            first.identity.signal(signal);
            // A process that stands still takes a signal only when it goes on.
            if self.group.frozen() {
                if let Err(error) = self.group.thaw() {
                    tracing::warn!("a paused container does not go on: {error}");
                }
            }
        }
    }

    fn event(&self) -> wire::ShimEvent {
        wire::ShimEvent {
            standing: self.standing.clone(),
            name: Some(self.launch.order.name.clone()),
        }
    }

    fn announce(&mut self, standing: RuntimePhase) {
        self.standing = standing;
        let event = self.event();
        for client in self
            .clients
            .iter_mut()
            .filter(|client| client.role == PeerRole::Subscriber)
        {
            client.send_json(FrameKind::Event, &event);
        }
    }

    /// Writes down the end, tells everybody, and clears away what only a living container needs.
    fn end(&mut self, record: RuntimeExit) {
        if let Err(error) = record.write(&self.directory) {
            tracing::error!("the end could not be written down: {error}");
        }
        let code = record.code;
        self.announce(RuntimePhase::Ended(record));
        for client in self
            .clients
            .iter_mut()
            .filter(|client| client.role == PeerRole::Attached)
        {
            client.take_rest(&self.scrollback);
            client.send(FrameKind::Exit, &code.to_le_bytes());
        }
        if let Err(error) = self.group.kill_all().and_then(|()| self.group.remove()) {
            tracing::warn!("the control group remains: {error}");
        }
    }

    /// Gives clients a moment to take the last words.
    fn farewell(&mut self) {
        let until = Instant::now() + FAREWELL;
        for client in &mut self.clients {
            let left = until
                .saturating_duration_since(Instant::now())
                .max(Duration::from_millis(1));
            let ready = client
                .stream
                .set_nonblocking(false)
                .and_then(|()| client.stream.set_write_timeout(Some(left)));
            if ready.is_ok() && client.stream.write_all(&client.waiting).is_err() {
                tracing::debug!("a client did not wait for the end");
            }
        }
    }
}

impl RunningProgram {
    /// Closes the program's input when the client said so and everything is written.
    fn close_input(&mut self) {
        if self.input_over
            && self
                .input
                .as_ref()
                .is_some_and(|line| !line.wants_to_write())
        {
            self.input = None;
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        if let (Some(pid), None) = (self.pid, self.status) {
            // SAFETY: no memory is involved. Our own child, not yet waited for, so the number is still its.
            unsafe { libc::kill(pid, libc::SIGHUP) };
        }
    }
}

impl ShimClient {
    /// Whether more may be read: not while a program lets its input wait.
    fn takes_input(&self) -> bool {
        let Some(program) = &self.program else {
            return true;
        };
        let line = program.input.as_ref().or(program.output.as_ref());
        program.news.is_none() && line.is_none_or(|line| line.waiting() < ENOUGH_INPUT)
    }

    fn refuse(&mut self, why: String) {
        self.program = None;
        self.role = PeerRole::Served;
        self.send_json(FrameKind::Reply, &ShimReply::Refused { why });
    }

    /// Takes a frame for the client's own program.
    fn direct(&mut self, kind: FrameKind, payload: &[u8]) {
        let Some(program) = &mut self.program else {
            return;
        };
        match kind {
            FrameKind::Input => {
                let terminal = program.output.as_mut().filter(|line| line.is_terminal);
                if let Some(line) = terminal.or(program.input.as_mut()) {
                    line.say(payload);
                }
            }
            FrameKind::InputEnd => {
                program.input_over = true;
                program.close_input();
            }
            FrameKind::Resize => {
                if let (Some(line), Some(size)) = (&program.output, wire::size_of(payload)) {
                    line.resize(size);
                }
            }
            FrameKind::Signal => {
                let known = wire::number_of(payload).filter(|number| (1..=64).contains(number));
                if let (Some(pid), None, Some(number)) = (program.pid, program.status, known) {
                    // The program leads its session: what it started in the foreground hears it too.
                    // SAFETY: no memory is involved. Our own child, not yet waited for.
                    unsafe { libc::kill(-pid, number) };
                }
            }
            _ => {}
        }
    }

    /// Passes output to the client and waiting input to the program.
    fn pass_on(&mut self, buffer: &mut [u8]) {
        let Some(mut program) = self.program.take() else {
            return;
        };
        if let Some(line) = &mut program.input {
            line.flush();
        }
        program.close_input();
        for (kind, line) in [
            (FrameKind::Output, &mut program.output),
            (FrameKind::Errors, &mut program.errors),
        ] {
            let Some(open) = line else { continue };
            open.flush();
            match open.hear(buffer) {
                ReadOutcome::Bytes(count) => self.send(kind, &buffer[..count]),
                ReadOutcome::Nothing => {}
                ReadOutcome::End => *line = None,
            }
        }
        self.program = Some(program);
    }

    /// Says how the program ended once everything it wrote is on its way.
    fn conclude(&mut self, buffer: &mut [u8]) {
        while self.waiting.len() < ENOUGH_OUTPUT {
            let Some(program) = self
                .program
                .as_ref()
                .filter(|program| program.news.is_none())
            else {
                return;
            };
            let Some(status) = program.status else { return };
            let before = self.sent;
            self.pass_on(buffer);
            if self.sent == before {
                let code = if libc::WIFSIGNALED(status) {
                    128 + libc::WTERMSIG(status)
                } else {
                    libc::WEXITSTATUS(status)
                };
                self.program = None;
                self.role = PeerRole::Served;
                self.send(FrameKind::Exit, &code.to_le_bytes());
                return;
            }
        }
    }

    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            received: Vec::new(),
            waiting: Vec::new(),
            role: PeerRole::New,
            gone: false,
            since: Instant::now(),
            sent: 0,
            follows: None,
            taken: Instant::now(),
            program: None,
        })
    }

    /// Makes it a client of a terminal, from the oldest output that is kept.
    fn follow(&mut self, scrollback: &Scrollback) {
        // Small, so that little old output is on its way when the newest matters.
        let small =
            rustix::net::sockopt::set_socket_send_buffer_size(&self.stream, MAX_TERMINAL_AHEAD);
        if let Err(error) = small {
            tracing::debug!("a client's buffer keeps its size: {error}");
        }
        self.follows = Some(scrollback.start());
        self.catch_up(scrollback);
    }

    /// Sends a client of a terminal what it takes now; nothing to others.
    fn catch_up(&mut self, scrollback: &Scrollback) {
        while self.waiting.len() < MAX_TERMINAL_AHEAD && !self.gone && self.send_next(scrollback) {}
    }

    /// Queues all that is left for a client of a terminal, at most what is remembered.
    fn take_rest(&mut self, scrollback: &Scrollback) {
        while !self.gone && self.send_next(scrollback) {}
    }

    /// Sends the next piece to a client of a terminal; false where there is none.
    fn send_next(&mut self, scrollback: &Scrollback) -> bool {
        let Some(place) = self.follows.filter(|place| *place < scrollback.end()) else {
            return false;
        };
        let piece = scrollback.after(place, MAX_TERMINAL_AHEAD / 2);
        self.follows = Some(piece.end);
        if piece.skipped > 0 {
            self.send(FrameKind::Output, &skipped(piece.skipped));
        }
        self.send(FrameKind::Output, &piece.bytes);
        true
    }

    /// Leaves out what a client of a terminal has not got yet, as a terminal does at Ctrl-C; the last of it stays.
    fn skip_to_newest(&mut self, scrollback: &Scrollback) {
        let newest = scrollback
            .end()
            .saturating_sub(MAX_TERMINAL_AHEAD as u64 / 2);
        if let Some(place) = self.follows.filter(|place| *place < newest) {
            self.send(FrameKind::Output, &skipped(newest - place));
            self.follows = Some(newest);
        }
    }

    /// Whether output has waited for it too long.
    fn stalls(&self) -> bool {
        self.follows.is_some() && !self.waiting.is_empty() && self.taken.elapsed() > MAX_STALL
    }

    fn send(&mut self, kind: FrameKind, payload: &[u8]) {
        if self.waiting.is_empty() && payload.len() <= wire::MAX_PAYLOAD_BYTES {
            self.send_at_once(&wire::head(kind, payload.len()), payload);
        } else {
            wire::put(&mut self.waiting, kind, payload);
        }
        self.sent += 1;
        self.flush();
        if self.waiting.len() > WAITING_OUTPUT {
            self.gone = true;
        }
    }

    /// Sends of one frame what is taken now, where nothing waits before it, and lets the rest wait.
    fn send_at_once(&mut self, head: &[u8], payload: &[u8]) {
        let parts = [IoSlice::new(head), IoSlice::new(payload)];
        let count = match self.stream.write_vectored(&parts) {
            Ok(count) => {
                self.taken = Instant::now();
                count
            }
            // Met again when the rest is sent.
            Err(_) => 0,
        };
        let of_head = count.min(head.len());
        self.waiting.extend_from_slice(&head[of_head..]);
        self.waiting.extend_from_slice(&payload[count - of_head..]);
    }

    fn send_json(&mut self, kind: FrameKind, value: &impl serde::Serialize) {
        wire::put_json(&mut self.waiting, kind, value);
        self.flush();
    }

    fn flush(&mut self) {
        while !self.waiting.is_empty() {
            match self.stream.write(&self.waiting) {
                Ok(count) => {
                    self.waiting.drain(..count);
                    self.taken = Instant::now();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.gone = true;
                    return;
                }
            }
        }
    }

    /// Reads what is there, and says how much; None when there was nothing to read.
    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        match self.stream.read(buffer) {
            Ok(0) => {
                self.gone = true;
                None
            }
            Ok(count) => Some(count),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                None
            }
            Err(_) => {
                self.gone = true;
                None
            }
        }
    }
}

/// What a terminal shows in the place of output that was skipped: a broken escape sequence ends, colours too.
fn skipped(bytes: u64) -> Vec<u8> {
    let size = binary_size(bytes);
    format!(
        "\x18\x1b[0m\r\n\x1b]{SKIPPED_SEQUENCE};{bytes}\x07\x1b[2m\u{22ef} {size} \u{22ef}\x1b[0m\r\n"
    )
    .into_bytes()
}

/// Lets the relay serve the container until its first process ends.
fn hand_over(
    run: &File,
    order: &ContainerSpec,
    egress: SessionEgress,
    first: &ProcessIdentity,
) -> io::Result<()> {
    let namespace = File::open(format!("/proc/{}/ns/net", first.pid))?;
    let process = first.open()?.ok_or(io::ErrorKind::NotFound)?;
    let name = order.name.to_string();
    let request = RelayRequest::Open { name, egress };
    RelayConnection::below(run)?
        .ask(&request, &[namespace.as_fd(), process.as_fd()])
        .map(drop)
}

/// Makes the private network that this container begins, or joins the one whose switch is in `hub`.
fn join(order: &ContainerSpec, hub: Option<&File>, pid: i32) -> io::Result<()> {
    let Some(network) = order.networks.first() else {
        return Ok(());
    };
    let address = container_network::address(network.place);
    match hub {
        Some(hub) => network::join_switch(hub, pid, network.place, address),
        None => network::make_switch(pid, address),
    }
}

fn environment(order: &ContainerSpec, user: &ContainerUser) -> Vec<(String, String)> {
    let mut all = Vec::new();
    put_variable(&mut all, "PATH", DEFAULT_PATH);
    // Without it shells take input by the byte, and Hangul cannot be typed.
    put_variable(&mut all, "LANG", "C.UTF-8");
    put_variable(&mut all, "HOME", &user.home);
    put_variable(&mut all, "HOSTNAME", &order.hostname);
    if order.terminal.is_some() {
        put_variable(&mut all, "TERM", "xterm-256color");
    }
    for (name, value) in order.egress.iter().flat_map(SessionEgress::variables) {
        put_variable(&mut all, &name, &value);
    }
    // A proxy knows no other container.
    if let (Some(_), Some(network)) = (&order.egress, order.networks.first()) {
        for name in ["NO_PROXY", "no_proxy"] {
            let known = all.iter().find(|(known, _)| known == name);
            let more = container_network::no_proxy(network.members);
            if let Some(value) = known.map(|(_, known)| format!("{known},{more}")) {
                put_variable(&mut all, name, &value);
            }
        }
    }
    for (name, value) in &order.environment {
        put_variable(&mut all, name, value);
    }
    all
}

fn put_variable(all: &mut Vec<(String, String)>, name: &str, value: &str) {
    // libcontainer asks the name service for an empty HOME, which a static program must not do.
    if value.is_empty() && matches!(name, "HOME" | "PATH") {
        return;
    }
    match all.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) => value.clone_into(old),
        None => all.push((name.to_owned(), value.to_owned())),
    }
}

/// Binds the shim's socket. The path may be longer than a socket address allows, so it is bound
/// relative to its directory.
fn listen(directory: &Path) -> io::Result<UnixListener> {
    let held = File::open(directory)?;
    let path = format!("/proc/self/fd/{}/shim.sock", held.as_raw_fd());
    let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(old);
    let listener = listener?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn console_socket(directory: &Path) -> io::Result<(PathBuf, UnixListener)> {
    let held = File::open(directory)?;
    let listener = UnixListener::bind(format!("/proc/self/fd/{}/console.sock", held.as_raw_fd()))?;
    Ok((directory.join("console.sock"), listener))
}

/// Blocks signals and gives a descriptor they can be read from.
fn signal_descriptor(signals: &[RawFd]) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised before use and outlives the calls; the new descriptor is ours alone.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            descriptor => Ok(rootfs::own(descriptor)),
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn binary_size(bytes: u64) -> String {
    const MIB: u64 = 1024 * 1024;
    if bytes.is_multiple_of(1024 * MIB) {
        format!("{} GiB", bytes / (1024 * MIB))
    } else {
        format!("{} MiB", bytes / MIB)
    }
}

/// The error and everything below it, in one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(source) = below {
        let more = source.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        below = source.source();
    }
    text
}

mod journal {
    //! The shim's own log: warnings and errors, ours and libcontainer's, one line each. As light as
    //! possible, because every container pays for it.

    use std::fmt::{self, Write as _};
    use std::fs::File;
    use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
    use std::path::Path;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    pub(super) struct Journal {
        file: File,
    }

    impl Journal {
        pub(super) fn new(file: File) -> Self {
            Self { file }
        }
    }

    impl Subscriber for Journal {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= Level::WARN
        }

        fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
            Some(tracing::level_filters::LevelFilter::WARN)
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut line = LogLine(format!(
                "{} {} {}:",
                super::now(),
                event.metadata().level(),
                event.metadata().target()
            ));
            event.record(&mut line);
            line.0.push('\n');
            // A full disk must not end a container.
            let _ = (&self.file).write_all(line.0.as_bytes());
        }
    }

    /// The journal that is read for a reason; the first fault stands near its beginning.
    const MAX_READ: u64 = 64 * 1024;

    /// Adds the first fault that was logged after `before` bytes to a reason. libcontainer tells its caller
    /// only the outermost words of what went wrong in its children, and logs the rest.
    pub(super) fn with_first_fault(log_directory: &Path, before: u64, reason: String) -> String {
        let mut text = Vec::new();
        let read = File::open(log_directory.join("shim.log")).and_then(|mut file| {
            file.seek(SeekFrom::Start(before))?;
            file.take(MAX_READ).read_to_end(&mut text)
        });
        let text = String::from_utf8_lossy(&text);
        let fault = text.lines().find_map(|line| {
            let (_, told) = line.split_once(" ERROR ")?;
            Some(told.split_once(": ").map_or(told, |(_, told)| told).trim())
        });
        match (read, fault) {
            (Ok(_), Some(fault)) if !reason.contains(fault) => format!("{reason} ({fault})"),
            _ => reason,
        }
    }

    struct LogLine(String);

    impl Visit for LogLine {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            let _ = if field.name() == "message" {
                write!(self.0, " {value:?}")
            } else {
                write!(self.0, " {}={value:?}", field.name())
            };
        }
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn a_reason_names_the_first_fault_of_this_start_only() {
            let folder = tempfile::tempdir().expect("a directory");
            let old = "1 ERROR libcontainer::a: failed to move err=EIO\n";
            let new = "2 WARN x: slow\n3 ERROR libcontainer::process::init: failed to pivot root err=EINVAL\n\
                4 ERROR libcontainer::b: failed to initialize\n";
            std::fs::write(folder.path().join("shim.log"), format!("{old}{new}")).expect("written");
            let told = |before, reason: &str| {
                super::with_first_fault(folder.path(), before, reason.to_owned())
            };
            let said = told(old.len() as u64, "failed syscall");
            assert_eq!(said, "failed syscall (failed to pivot root err=EINVAL)");
            let (all, known) = (
                (old.len() + new.len()) as u64,
                "failed to pivot root err=EINVAL",
            );
            assert_eq!(told(all, "failed syscall"), "failed syscall");
            assert_eq!(told(old.len() as u64, known), known);
            // A fault behind the bound is not looked for.
            let fault = "3 ERROR libcontainer::x: late";
            for (begins, found) in [(64 * 1024 - fault.len(), true), (64 * 1024, false)] {
                let slow = "2 WARN x: slow\n";
                let blanks = " ".repeat(begins - slow.len());
                let journal = format!("{slow}{blanks}{fault}");
                std::fs::write(folder.path().join("shim.log"), journal).expect("written");
                assert_eq!(told(0, "failed").ends_with("(late)"), found, "{begins}");
            }
        }
    }
}
