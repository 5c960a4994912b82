//! Makes, enters, watches and ends containers on this machine: an order goes in, sights come out.
//!
//! Face: `Runtime::{open, adopt, start, sights, silent, changes, stop, kill, pause, resume, set_cpu,
//! set_memory, usage, exec, attach, log, dial, forget, findings}`; `shim::main` and `hold::main`
//! for the two roles that other processes of ours play. Everything is synchronous; streams are
//! sockets that callers may make asynchronous.
//!
//! The server's side holds no container: each has a shim process that lives through every end of
//! the server. What is known here is rebuilt from the shims by `adopt`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::link::streams::ContainerProcess;
use rules::units::Bytes;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use store::quota::ScopePlace;

use crate::network;
use crate::scopes;

use cgroup::{CgroupError, ControlGroup, Hierarchies};
use clearing::Clearing;
use fork_server::ForkServer;
use host_environment::{HostDigest, HostError};
use launch::{LaunchFile, RunRecord};
use scratch::Scratches;
use wire::{PROTOCOL, ShimReply, ShimRequest};

pub use committing::LayerFault;
pub(crate) use committing::LayerSink;
pub use launch::ContainerStream;
pub use logs::{LogPiece, LogReader};
pub use order::{
    ContainerSpec, ContainerState, ExecOrder, GuestProgram, IdRange, MountOrder, NetworkOrder,
    RootOrder, RuntimeExit, RuntimeName, RuntimePhase, RuntimeUsage, StartUpEnd, TerminalSize,
    UserOrder,
};
pub use rootfs::HostGround;
pub use unnamed::Unnamed;

mod adoption;
mod app_files;
mod cgroup;
mod claim;
mod clearing;
mod committing;
mod container;
mod container_user;
mod descriptors;
mod detachment;
mod devices;
mod dotfiles;
mod ending;
mod exec;
pub mod files;
pub mod findings;
mod fork_server;
pub mod hold;
mod host_environment;
mod identity;
mod launch;
mod loader;
mod logs;
mod mounts;
mod order;
mod own_folders;
mod proc_files;
mod process_limits;
mod processes;
pub mod program_memory;
mod programs;
mod rootfs;
pub mod run_directory;
mod scratch;
mod seccomp;
pub mod shim;
mod spec;
mod supervision;
mod terminal;
mod unnamed;
mod user_namespace;
pub mod wire;

/// How long shims whose containers are over may take to leave. They give slow clients two seconds.
const LEAVING: Duration = Duration::from_secs(4);

/// How long a container may take to be over after its time before it is ended without its shim. Longer:
/// a caller waits for a session that its supervisor does not end. Shorter: one with much memory to give
/// back is ended twice.
const ENDING: Duration = Duration::from_secs(5);
/// How long a folder may take to leave a container. Longer: the others of the machine wait with it. Shorter: one that a busy
/// machine takes out slowly counts as still there until the next look.
const DETACHING: Duration = Duration::from_secs(5);

/// Where the runtime keeps things.
#[derive(Clone, Debug)]
pub struct RuntimePaths {
    /// Lasts: logs, sessions' own layers, the host environment's skeleton.
    pub data: PathBuf,
    /// Ends with the machine: sockets and records of running containers.
    pub run: PathBuf,
    /// The program started as `PROGRAM shim`; usually this very binary.
    pub shim_binary: PathBuf,
}

/// Something of ours that did not work.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeFault {
    #[error("could not {what} {path}")]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("could not {what}")]
    System {
        what: &'static str,
        source: io::Error,
    },
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("there is no container {0}")]
    Unknown(RuntimeName),
    #[error("container {0} exists already")]
    Exists(RuntimeName),
    #[error("container {0} is not running")]
    NotRunning(RuntimeName),
    #[error("container {0} has not ended")]
    StillThere(RuntimeName),
    #[error("what container {0} wrote is being removed")]
    Clearing(RuntimeName),
    #[error("this machine cannot run containers: {}", .0.what)]
    CannotRun(findings::HostFinding),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Busy(String),
}

/// The containers of this machine.
pub struct Runtime {
    shared: Arc<RuntimeState>,
}

struct RuntimeState {
    places: RuntimePaths,
    instance_id: String,
    hierarchies: Option<Hierarchies>,
    findings: Vec<findings::HostFinding>,
    entries: Mutex<BTreeMap<RuntimeName, ContainerEntry>>,
    host: Mutex<Option<HostGround>>,
    /// Held for as long as a start takes. Taken before the entries, never while they are held.
    fork_server: Mutex<ForkServer>,
    /// Takes what containers wrote once they are forgotten.
    clearing: Clearing,
    /// Disks of containers that are held to a size.
    scratches: Scratches,
    /// Containers that are held still to be read for an image. Taken before the entries, never while they are held.
    readings: Mutex<committing::Readings>,
    /// What is being done beside others, so that nothing is done twice at the same time.
    errands: Mutex<BTreeSet<(RuntimeName, &'static str)>>,
    /// How often those were begun that never came to run.
    begun: Mutex<BTreeMap<RuntimeName, u32>>,
    /// Told, with the entries, whenever some shim spoke.
    spoken: Condvar,
    /// Rung for callers when a standing changes.
    bell: OwnedFd,
    /// Rung for the watching thread when the set of shims changes.
    watch: OwnedFd,
}

/// What is known of one container.
struct ContainerEntry {
    standing: RuntimePhase,
    /// The subscription; absent once the shim is gone, and while a living one cannot be asked.
    shim: Option<Arc<UnixStream>>,
    received: Vec<u8>,
    /// Exactly the process that supervises it, once that is known.
    process: Option<Arc<OwnedFd>>,
    /// The number of the fork server that was asked for it; 0 where that matters no more.
    fork_server: u64,
    /// Its shim has spoken to this server.
    heard: bool,
    /// Its shim left something unanswered for too long.
    silent: bool,
    /// When it is to be looked after.
    due: Option<Instant>,
    /// By when its shim has to have made it; None until a thread counts the time.
    born_by: Option<Instant>,
    /// When it is ended without its shim.
    force_at: Option<Instant>,
    /// A thread is finding out how it ended.
    closing: bool,
}

/// Milliseconds that a container's first process has lived, on a clock that cannot be set; None once it is
/// gone. Costs two small reads.
pub(crate) fn ran_millis(pid: i32) -> Option<u64> {
    identity::age_millis(pid)
}

impl Runtime {
    /// Opens the runtime and looks at what the machine can do. Succeeds also where no container
    /// could run: `findings` say why and `start` refuses. Touches no container; see `adopt`.
    pub fn open(places: RuntimePaths) -> Result<Self, RuntimeFault> {
        for path in [
            places.data.join("containers"),
            places.data.join("logs"),
            places.run.join("c"),
        ] {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path)
                .map_err(file("create", &path))?;
        }
        let data = places
            .data
            .canonicalize()
            .map_err(file("find", &places.data))?;
        // A shim keeps the mount that its directory lies on by comparing paths: a link would hide it.
        let run = places
            .run
            .canonicalize()
            .map_err(file("find", &places.run))?;
        let trash = data.join("trash");
        let clearing = Clearing::begin(&trash).map_err(file("open", &trash))?;
        let scratches = Scratches::of(&data);
        let mut digest = HostDigest::new();
        digest.add(data.as_os_str().as_encoded_bytes());
        let instance_id = format!("{:08x}", digest.0 & 0xffff_ffff);
        let hierarchies = Hierarchies::detect().ok();
        let findings = findings::look(&data, hierarchies.as_ref(), &instance_id);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = || {
            eventfd(0, flags).map_err(|error| RuntimeFault::System {
                what: "make a bell",
                source: error.into(),
            })
        };
        let shared = Arc::new(RuntimeState {
            places: RuntimePaths {
                data,
                run,
                ..places
            },
            instance_id,
            hierarchies,
            findings,
            entries: Mutex::default(),
            host: Mutex::default(),
            fork_server: Mutex::default(),
            clearing,
            scratches,
            readings: Mutex::default(),
            errands: Mutex::default(),
            begun: Mutex::default(),
            spoken: Condvar::new(),
            bell: bell()?,
            watch: bell()?,
        });
        let watched = Arc::downgrade(&shared);
        let bell = shared
            .watch
            .try_clone()
            .map_err(|source| RuntimeFault::System {
                what: "share a bell",
                source,
            })?;
        std::thread::Builder::new()
            .name("containers".to_owned())
            .spawn(move || supervision::watch(&watched, &bell))
            .map_err(|source| RuntimeFault::System {
                what: "start the watching thread",
                source,
            })?;
        Ok(Self { shared })
    }

    /// What this machine lacks, worst first; empty when everything works.
    pub fn findings(&self) -> &[findings::HostFinding] {
        &self.shared.findings
    }

    /// What a runtime at `data` would find lacking, without opening one; for `doctor`. Leaves no
    /// control group behind. `data` must exist.
    pub fn look(data: &Path) -> Vec<findings::HostFinding> {
        let instance_id = format!("look-{}", std::process::id());
        let hierarchies = Hierarchies::detect().ok();
        let found = findings::look(data, hierarchies.as_ref(), &instance_id);
        if let Some(hierarchies) = &hierarchies {
            for made in hierarchies.whole_instance(&instance_id).directories() {
                // What was not made cannot be removed; what was is empty.
                let _ = fs::remove_dir(&made);
            }
        }
        found
    }

    /// Short name of this installation in control groups; differs between data directories.
    pub fn instance_id(&self) -> &str {
        &self.shared.instance_id
    }

    /// Finds the containers of an earlier server: asks living shims, reads the ends of dead ones, kills what
    /// has lost its supervisor. Gives the sights of all of them, within two seconds however many shims do
    /// not answer: see `silent`.
    pub fn adopt(&self) -> Result<Vec<ContainerState>, RuntimeFault> {
        self.shared.adopt()?;
        Ok(self.sights())
    }

    /// Starts a container: writes its launch and starts its shim, then returns. What becomes of it
    /// is seen by `sights`; a container that cannot be made ends with code 125 and a reason.
    pub fn start(&self, order: &ContainerSpec) -> Result<(), RuntimeFault> {
        let shared = &self.shared;
        if let Some(finding) = shared
            .findings
            .iter()
            .find(|finding| finding.prevents_containers)
        {
            return Err(RuntimeFault::CannotRun(finding.clone()));
        }
        // Starts come one after another. The entries are free meanwhile: what forks supervisors may take ten
        // seconds to be there, and everything else goes on.
        let mut fork_server = shared.fork_server();
        let directory = shared.directory(&order.name);
        if shared.entries().contains_key(&order.name) || directory.exists() {
            return Err(RuntimeFault::Exists(order.name.clone()));
        }
        let host = if order.root.host_environment {
            Some(shared.host_ground()?)
        } else {
            None
        };
        let launch = LaunchFile {
            protocol: PROTOCOL,
            order: order.clone(),
            group: shared.group(&order.name)?.path().to_owned(),
            own_directory: shared.own_directory(&order.name),
            log_directory: shared.log_directory(&order.name),
            host,
        };
        let asked = shared.prepare(&launch, &directory).and_then(|()| {
            let group = shared.hierarchies()?.shims(&shared.instance_id);
            let binary = &shared.places.shim_binary;
            let spawned = fork_server.spawn(binary, &group, &directory);
            spawned.map_err(file("start", binary))
        });
        if asked.is_err() {
            // No fork server was asked for it and no record names it, so nothing of it may stay: it is tried
            // again under the same name.
            if let Err(error) = shared.remove_scratch(&order.name) {
                tracing::warn!(container = %order.name, %error, "its disk stays");
            }
            for path in [&directory, &launch.own_directory] {
                let _ = fs::remove_dir_all(path);
            }
        }
        let (shim, number) = asked?;
        shim.set_nonblocking(true)
            .map_err(|source| RuntimeFault::System {
                what: "prepare a socket",
                source,
            })?;
        let mut entry = ContainerEntry::waiting(RuntimePhase::Preparing);
        entry.shim = Some(Arc::new(shim));
        entry.fork_server = number;
        entry.due = Some(Instant::now() + supervision::FIRST_WORD);
        shared.entries().insert(order.name.clone(), entry);
        drop(fork_server);
        shared.look_again();
        Ok(())
    }

    /// Every known container, by name.
    pub fn sights(&self) -> Vec<ContainerState> {
        self.shared
            .entries()
            .iter()
            .map(|(name, entry)| ContainerState {
                name: name.clone(),
                standing: entry.standing.clone(),
            })
            .collect()
    }

    /// One container; nothing when it is unknown.
    pub fn sight(&self, name: &RuntimeName) -> Option<ContainerState> {
        self.shared.entries().get(name).map(|entry| ContainerState {
            name: name.clone(),
            standing: entry.standing.clone(),
        })
    }

    /// A counter that becomes readable when any container changes; reading it silences it.
    /// An event descriptor: poll it, or make it asynchronous.
    pub fn changes(&self) -> BorrowedFd<'_> {
        self.shared.bell.as_fd()
    }

    /// Rings for those that wait for a change: there is something to be told.
    pub fn ring(&self) {
        ring(&self.shared.bell);
    }

    /// Waits until a container changes or patience ends, and silences the bell; true when one did.
    pub fn wait_for_change(&self, patience: Duration) -> bool {
        let mut watched = [PollFd::new(&self.shared.bell, PollFlags::IN)];
        let patience = rustix::time::Timespec {
            tv_sec: patience.as_secs().cast_signed(),
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        let rung = poll(&mut watched, Some(&patience)).is_ok_and(|count| count > 0);
        silence(&self.shared.bell);
        rung
    }

    /// Asks the command to end, and ends it after the grace. The shim counts the time, so this
    /// survives the server; where the shim does not answer, the node does both. Returns at once.
    pub fn stop(&self, name: &RuntimeName, grace: Duration) -> Result<(), RuntimeFault> {
        let grace_milliseconds = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.ask(
            name,
            "stop",
            ShimRequest::Stop { grace_milliseconds },
            grace,
        )
    }

    /// Ends the command now, by its shim; without it where that does not answer within two seconds, or has
    /// not ended it within five. Returns at once.
    pub fn kill(&self, name: &RuntimeName) -> Result<(), RuntimeFault> {
        self.ask(name, "kill", ShimRequest::Kill, Duration::ZERO)
    }

    /// Living containers whose shim does not answer, by name.
    pub fn silent(&self) -> Vec<RuntimeName> {
        self.shared
            .entries()
            .iter()
            .filter(|(_, entry)| entry.silent && !entry.is_over())
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// The root of the machine's control groups; None where they are of version 1.
    pub fn groups(&self) -> Option<&Path> {
        self.shared.hierarchies.as_ref()?.root()
    }

    /// The directory of a container's control group; None where they are of version 1, or it has none yet.
    pub fn group_of(&self, name: &RuntimeName) -> Option<PathBuf> {
        let directory = self.shared.group(name).ok()?.unified_directory()?;
        directory.is_dir().then_some(directory)
    }

    /// The directory that containers write below: their own layers are on its disk.
    pub fn written_to(&self) -> PathBuf {
        self.shared.places.data.join("containers")
    }

    /// The processes of a container that live. Costs two small files for each. Errors: where it is unknown.
    pub fn processes(&self, name: &RuntimeName) -> Result<Vec<ContainerProcess>, RuntimeFault> {
        Ok(processes::named(&self.shared.group(name)?.processes()))
    }

    /// Has what containers write lie in the pool of these scopes from now on, where they have one.
    pub(crate) fn bring_pool(&self, scopes: Arc<scopes::NodeScopes>) {
        self.shared.scratches.bring_pool(scopes);
    }

    /// Where a container's own layers are.
    pub fn own_files(&self, name: &RuntimeName) -> PathBuf {
        self.shared.own_directory(name)
    }

    /// The file that what a container writes outside its folders lies in; None where it has no disk of its own.
    pub fn scratch_image(&self, name: &RuntimeName) -> Option<PathBuf> {
        let image = self.shared.scratch(name).image();
        image.is_file().then_some(image)
    }

    /// Directories outside its own layers that a container may write to, each once, but for those on volumes. Costs one small
    /// read; none where that cannot be read.
    pub fn writable_folders(&self, name: &RuntimeName) -> BTreeSet<PathBuf> {
        let launch = LaunchFile::read(&self.shared.directory(name));
        let mounts = launch.map_or_else(|_| Vec::new(), |launch| launch.order.mounts);
        let is_meant = |mount: &MountOrder| !(mount.read_only || mount.on_volume || mount.away);
        let written = mounts.into_iter().filter(is_meant);
        written.map(|mount| mount.from).collect()
    }

    /// What a container's processes keep of the disk of `written_to` by files without a name. Errors: where the
    /// disk or the machine's control groups cannot be looked at. Costs a look at each open file.
    pub fn unnamed(&self, name: &RuntimeName) -> Result<Unnamed, RuntimeFault> {
        let processes = self.shared.group(name)?.processes();
        let disk = self.written_to();
        unnamed::measure(&processes, &disk, unnamed::MAX_LOOKS).map_err(file("look at", &disk))
    }

    /// Bytes that disks took from a container's control group, its ended processes included; 0 where control
    /// groups do not count them (version 1). They are counted up to half a minute late. Costs one small read.
    pub fn flushed(&self, name: &RuntimeName) -> u64 {
        let group = self.shared.group(name);
        group.map_or(0, |group| group.flushed())
    }

    /// Bytes that a container's processes gave to any disk since they began, ended ones included once their
    /// parent waited for them; 0 where the kernel does not say. Costs one small read a process.
    pub fn written(&self, name: &RuntimeName) -> u64 {
        let Ok(group) = self.shared.group(name) else {
            return 0;
        };
        let told = group.processes().into_iter().filter_map(|pid| {
            let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("write_bytes:"))?;
            line.trim().parse::<u64>().ok()
        });
        told.fold(0, u64::saturating_add)
    }

    /// Stops every process of a running container where it stands.
    pub fn pause(&self, name: &RuntimeName) -> Result<(), RuntimeFault> {
        self.running(name)?;
        let mut readings = self.shared.readings();
        if let Some(stays) = readings.get_mut(name) {
            *stays = true;
        }
        self.shared.group(name)?.freeze()?;
        drop(readings);
        self.shared.mark_paused(name, true);
        Ok(())
    }

    /// Whether its processes stand still at this moment: a paused container that is told to end goes on.
    pub fn stands_still(&self, name: &RuntimeName) -> bool {
        let group = self.shared.group(name);
        group.is_ok_and(|group| group.frozen())
    }

    /// Lets a paused container go on; one that is being read for an image once that is over.
    pub fn resume(&self, name: &RuntimeName) -> Result<(), RuntimeFault> {
        self.running(name)?;
        let mut readings = self.shared.readings();
        match readings.get_mut(name) {
            Some(stays) => *stays = false,
            None => self.shared.group(name)?.thaw()?,
        }
        drop(readings);
        self.shared.mark_paused(name, false);
        Ok(())
    }

    /// Changes the processor limit of a running container, in hundredths of a core.
    pub fn set_cpu(&self, name: &RuntimeName, hundredths: u32) -> Result<(), RuntimeFault> {
        self.change(name, |group| group.set_cpu(hundredths))
    }

    /// Changes the memory limit of a running container; refused below what is in use.
    pub fn set_memory(&self, name: &RuntimeName, bytes: u64) -> Result<(), RuntimeFault> {
        self.change(name, |group| group.set_memory(bytes))
    }

    fn change(
        &self,
        name: &RuntimeName,
        act: impl FnOnce(&ControlGroup) -> Result<(), CgroupError>,
    ) -> Result<(), RuntimeFault> {
        self.running(name)?;
        let group = self.shared.group(name)?;
        act(&group).map_err(|error| {
            // It may have ended meanwhile; its groups are gone before everybody has heard of it.
            if group.exists() {
                error.into()
            } else {
                RuntimeFault::NotRunning(name.clone())
            }
        })
    }

    /// What a running container uses now. About ten small reads.
    pub fn usage(&self, name: &RuntimeName) -> Result<RuntimeUsage, RuntimeFault> {
        self.running(name)?;
        Ok(self.shared.group(name)?.usage()?)
    }

    /// The container that a process of this machine stands in, by its control group; None for every
    /// other process, and once it is gone. One small read.
    pub fn container_of(&self, pid: u32) -> Option<RuntimeName> {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        Hierarchies::session_in(&text, &self.shared.instance_id)
    }

    /// Runs one more program inside; gives its input and output. Ends with an exit frame.
    pub fn exec(
        &self,
        name: &RuntimeName,
        order: &ExecOrder,
    ) -> Result<ContainerStream, RuntimeFault> {
        self.open_stream(name, &ShimRequest::Exec(order.clone()))
    }

    /// The container's own terminal or output: up to 256 KiB of recent output, then live. Input
    /// and sizes go back where it has a terminal. Ends with an exit frame.
    pub fn attach(
        &self,
        name: &RuntimeName,
        size: Option<TerminalSize>,
    ) -> Result<ContainerStream, RuntimeFault> {
        self.open_stream(name, &ShimRequest::Attach { size })
    }

    /// Everything the container wrote, during its life and until `forget_log`.
    pub fn log(&self, name: &RuntimeName) -> LogReader {
        LogReader::new(self.shared.log_directory(name))
    }

    /// Connects to a port inside, also where the program listens on 127.0.0.1 only.
    pub fn dial(&self, name: &RuntimeName, port: u16) -> Result<TcpStream, RuntimeFault> {
        let what = "connect into the container";
        let namespace = self.open_of_first(name, "ns/net", what)?;
        network::dial(&namespace, port).map_err(|source| RuntimeFault::System { what, source })
    }

    /// Listens at an address inside.
    pub(crate) fn listen(
        &self,
        name: &RuntimeName,
        address: SocketAddrV4,
    ) -> Result<TcpListener, RuntimeFault> {
        let what = "listen in the container";
        let namespace = self.open_of_first(name, "ns/net", what)?;
        let listeners = network::listen(&namespace, &[address]);
        let mut listeners = listeners.map_err(|source| RuntimeFault::System { what, source })?;
        listeners
            .pop()
            .ok_or_else(|| RuntimeFault::NotRunning(name.clone()))
    }

    /// The network namespace and a handle to the first process of a running container, for the relay.
    pub(crate) fn relay_descriptors(
        &self,
        name: &RuntimeName,
    ) -> Result<[OwnedFd; 2], RuntimeFault> {
        let what = "look for the container's network";
        let fault = |source| RuntimeFault::System { what, source };
        let namespace = self.open_of_first(name, "ns/net", what)?;
        let record = RunRecord::read(&self.shared.directory(name)).map_err(fault)?;
        let first = record.first.as_ref().map(|first| first.open());
        let process = first.transpose().map_err(fault)?.flatten();
        let process = process.ok_or_else(|| RuntimeFault::NotRunning(name.clone()))?;
        Ok([namespace.into(), process])
    }

    /// The ports inside that `dial` reaches, at most 64, by number.
    pub fn listening(&self, name: &RuntimeName) -> Result<Vec<u16>, RuntimeFault> {
        let what = "look for ports in the container";
        let namespace = self.open_of_first(name, "ns/net", what)?;
        let found = network::listening(&namespace);
        let found = found.map_err(|source| RuntimeFault::System { what, source })?;
        Ok(found.into_iter().collect())
    }

    /// Those of these programs that the container's own path finds, links followed inside. Costs one look for each directory
    /// of the path and each program, of both some at most.
    pub fn programs(
        &self,
        name: &RuntimeName,
        wanted: Vec<String>,
    ) -> Result<Vec<String>, RuntimeFault> {
        let what = "look for programs in the container";
        let root = self.open_of_first(name, "root", what)?;
        let launch = LaunchFile::read(&self.shared.directory(name));
        let launch = launch.map_err(|source| RuntimeFault::System { what, source })?;
        let path = launch.order.environment.iter();
        let path = path
            .rev()
            .find(|(known, value)| known == "PATH" && !value.is_empty());
        let path = path.map_or(shim::DEFAULT_PATH, |(_, value)| value.as_str());
        Ok(programs::found(root.as_fd(), path, wanted))
    }

    /// The files inside that describe apps, by name, with their text: 64 KiB of all of them at most.
    pub fn app_files(&self, name: &RuntimeName) -> Result<Vec<(String, String)>, RuntimeFault> {
        let root = self.open_of_first(name, "root", "look for files in the container")?;
        Ok(app_files::read(root.as_fd()))
    }

    /// Takes what is mounted of a folder out of a running container, wherever it is there. `directory`: the folder's own, by its
    /// name, which no other has. Fine where nothing of it is mounted. What a process has open stays open to it. Costs a thread,
    /// which is waited for for a while.
    pub fn detach(&self, name: &RuntimeName, directory: &str) -> Result<(), RuntimeFault> {
        const WHAT: &str = "take a folder out of the container";
        let fault = |source| RuntimeFault::System { what: WHAT, source };
        let namespace = self.open_of_first(name, "ns/mnt", WHAT)?;
        let key = (name.clone(), "detach");
        if !self.shared.errands().insert(key.clone()) {
            // An earlier one still waits for a file server.
            return Err(fault(io::ErrorKind::ResourceBusy.into()));
        }
        let (tell, told) = std::sync::mpsc::channel();
        let (shared, directory) = (Arc::clone(&self.shared), directory.to_owned());
        // It goes into the container, and no other of this process.
        let begun = std::thread::Builder::new()
            .name("detach".to_owned())
            .spawn(move || {
                let ended = detachment::detach(&namespace, &directory);
                shared.errands().remove(&key);
                // It is not heard where it took too long.
                let _ = tell.send(ended);
            });
        if let Err(error) = begun {
            self.shared.errands().remove(&(name.clone(), "detach"));
            return Err(fault(error));
        }
        let ended = told.recv_timeout(DETACHING);
        let ended = ended.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        ended.map_err(fault)
    }

    /// Opens what belongs to the first process of a running container, below its directory of `/proc`.
    fn open_of_first(
        &self,
        name: &RuntimeName,
        below: &str,
        what: &'static str,
    ) -> Result<File, RuntimeFault> {
        self.running(name)?;
        let fault = |source| RuntimeFault::System { what, source };
        let record = RunRecord::read(&self.shared.directory(name)).map_err(fault)?;
        let first = record
            .first
            .ok_or_else(|| RuntimeFault::NotRunning(name.clone()))?;
        let opened = File::open(format!("/proc/{}/{below}", first.pid)).map_err(fault)?;
        // Checked after opening: what is open is this process's, not that of a later owner of its number.
        first
            .open()
            .map_err(fault)?
            .ok_or_else(|| RuntimeFault::NotRunning(name.clone()))?;
        Ok(opened)
    }

    /// Removes what is left of a container that is over: its own layers, records and control
    /// group. Its log stays. Fine for a container that is not known. Does not wait for the disk: the layers are
    /// put aside at once, and removed by a thread of their own. Errors: `StillThere` before its end, `Clearing`
    /// until what cannot be put aside is removed.
    pub fn forget(&self, name: &RuntimeName) -> Result<(), RuntimeFault> {
        let shared = &self.shared;
        if shared
            .entries()
            .get(name)
            .is_some_and(|entry| entry.shim.is_some() || entry.closing || !entry.is_over())
        {
            return Err(RuntimeFault::StillThere(name.clone()));
        }
        if shared.hierarchies.is_some() {
            let group = shared.group(name)?;
            group.kill_all()?;
            group.remove()?;
        }
        if let Ok(record) = RunRecord::read(&shared.directory(name)) {
            // One that an earlier server heard the last word of may still stand there, stopped.
            record.shim.signal(libc::SIGKILL);
        }
        shared.clear(name)?;
        shared.entries().remove(name);
        shared.begun().remove(name);
        Ok(())
    }

    /// Whose logs there are, in no particular order; of containers that are forgotten too.
    pub fn logs(&self) -> Result<Vec<RuntimeName>, RuntimeFault> {
        names_below(&self.shared.places.data.join("logs"))
    }

    /// Removes the log of a container.
    pub fn forget_log(&self, name: &RuntimeName) -> Result<(), RuntimeFault> {
        let path = self.shared.log_directory(name);
        let thrown = self.shared.clearing.throw(&path);
        thrown.map_err(file("remove", &path))?;
        Ok(())
    }

    /// Removes what this installation keeps in the machine's control groups; for a machine that
    /// stops being one. Leaves everything when a container still lives.
    pub fn retire(&self) {
        if let Some(hierarchies) = &self.shared.hierarchies {
            self.shared.fork_server().end();
            // A shim that has said its last word is about to leave, and so is the fork server.
            let shims = hierarchies.shims(&self.shared.instance_id);
            let until = Instant::now() + LEAVING;
            while !shims.processes().is_empty() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            if let Err(error) = hierarchies
                .whole_instance(&self.shared.instance_id)
                .remove_if_empty()
            {
                tracing::debug!("control groups of this installation remain: {error}");
            }
        }
    }

    fn running(&self, name: &RuntimeName) -> Result<(), RuntimeFault> {
        match self.sight(name).map(|sight| sight.standing) {
            Some(RuntimePhase::Running { .. }) => Ok(()),
            Some(_) => Err(RuntimeFault::NotRunning(name.clone())),
            None => Err(RuntimeFault::Unknown(name.clone())),
        }
    }

    /// Scripts that failed in containers that are not forgotten. Costs a look at one file a container.
    pub fn start_up_failures(&self) -> Vec<(RuntimeName, StartUpEnd)> {
        let names: Vec<RuntimeName> = self.shared.entries().keys().cloned().collect();
        let ends = names.into_iter();
        ends.filter_map(|name| {
            let end = StartUpEnd::read(&self.shared.directory(&name)).ok()?;
            Some((name, end))
        })
        .collect()
    }

    /// Has a request brought to the shim, and ends the container without it where it is not over in time.
    fn ask(
        &self,
        name: &RuntimeName,
        what: &'static str,
        request: ShimRequest,
        grace: Duration,
    ) -> Result<(), RuntimeFault> {
        self.living(name)?;
        let by = Instant::now().checked_add(grace.saturating_add(ENDING));
        if let (Some(entry), Some(by)) = (self.shared.entries().get_mut(name), by) {
            entry.force_by(by);
        }
        // The thread that watches the clock hears of the new time.
        ring(&self.shared.watch);
        self.shared.beside(name, what, move |shared, name| {
            shared.deliver(name, &request)
        });
        Ok(())
    }

    fn open_stream(
        &self,
        name: &RuntimeName,
        request: &ShimRequest,
    ) -> Result<ContainerStream, RuntimeFault> {
        self.living(name)?;
        match launch::open_stream(&self.shared.directory(name), request) {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(ShimReply::Busy { why })) => Err(RuntimeFault::Busy(why)),
            Ok(Err(ShimReply::Refused { why })) => Err(RuntimeFault::Refused(why)),
            Ok(Err(ShimReply::Done)) => {
                Err(RuntimeFault::Refused("it does not say why".to_owned()))
            }
            Err(source) => Err(RuntimeFault::System {
                what: "speak to the container's supervisor",
                source,
            }),
        }
    }

    /// A container that is not over.
    fn living(&self, name: &RuntimeName) -> Result<(), RuntimeFault> {
        match self.sight(name).map(|sight| sight.standing) {
            Some(RuntimePhase::Ended(_) | RuntimePhase::Lost { .. }) => {
                Err(RuntimeFault::NotRunning(name.clone()))
            }
            Some(_) => Ok(()),
            None => Err(RuntimeFault::Unknown(name.clone())),
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // The watching thread sees that the runtime has no holder any more. Containers go on.
        ring(&self.shared.watch);
    }
}

impl RuntimeState {
    /// Makes the directories of a container and writes its launch; starts nothing.
    fn prepare(&self, launch: &LaunchFile, directory: &Path) -> Result<(), RuntimeFault> {
        for path in [directory, &launch.own_directory, &launch.log_directory] {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path)
                .map_err(file("create", path))?;
        }
        if let Some(limit) = launch.order.disk_bytes {
            let scratch = self.scratch(&launch.order.name);
            let opened = self.scratches.open(&scratch, Bytes(limit));
            opened.map_err(file("make the disk of a session in", scratch.directory()))?;
        }
        launch
            .write(directory)
            .map_err(file("write the launch in", directory))?;
        self.hierarchies()?.make_room(&self.instance_id)?;
        Ok(())
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<RuntimeName, ContainerEntry>> {
        // Entries are replaced whole; a panic elsewhere cannot leave one half changed.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fork_server(&self) -> MutexGuard<'_, ForkServer> {
        self.fork_server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn errands(&self) -> MutexGuard<'_, BTreeSet<(RuntimeName, &'static str)>> {
        self.errands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begun(&self) -> MutexGuard<'_, BTreeMap<RuntimeName, u32>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn directory(&self, name: &RuntimeName) -> PathBuf {
        self.places.run.join("c").join(name.as_str())
    }

    fn own_directory(&self, name: &RuntimeName) -> PathBuf {
        self.places.data.join("containers").join(name.as_str())
    }

    fn scratch(&self, name: &RuntimeName) -> ScopePlace {
        self.scratches.place(name.as_str())
    }

    /// Removes the disk of a container, where it has one of its own; its own directory stays, empty.
    fn remove_scratch(&self, name: &RuntimeName) -> io::Result<()> {
        let scratch = self.scratch(name);
        scopes::close_scratch(&scratch)?;
        self.scratches.throw(&scratch);
        store::trees::remove(scratch.directory())
    }

    fn log_directory(&self, name: &RuntimeName) -> PathBuf {
        self.places.data.join("logs").join(name.as_str())
    }

    fn group(&self, name: &RuntimeName) -> Result<ControlGroup, RuntimeFault> {
        Ok(self.hierarchies()?.session(&self.instance_id, name))
    }

    fn hierarchies(&self) -> Result<&Hierarchies, CgroupError> {
        self.hierarchies.as_ref().ok_or(CgroupError::Absent)
    }

    fn host_ground(&self) -> Result<HostGround, RuntimeFault> {
        let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ground) = &*host {
            return Ok(ground.clone());
        }
        let ground = host_environment::prepare(&self.places.data)?;
        *host = Some(ground.clone());
        Ok(ground)
    }

    fn mark_paused(&self, name: &RuntimeName, now: bool) {
        if let Some(ContainerEntry {
            standing: RuntimePhase::Running { paused, .. },
            ..
        }) = self.entries().get_mut(name)
        {
            *paused = now;
        }
        ring(&self.bell);
    }

    /// Takes away what a container wrote, which is removed in another thread, and our own records of it. Costs
    /// one rename, and a few removals. Errors: `Clearing` where that thread has to remove it where it lies.
    fn clear(&self, name: &RuntimeName) -> Result<(), RuntimeFault> {
        let (own, records) = (self.own_directory(name), self.directory(name));
        let scratch = self.scratch(name);
        scopes::close_scratch(&scratch).map_err(file("unmount", &own))?;
        self.scratches.throw(&scratch);
        // Removing a large file takes a while too.
        let image = scratch.directory();
        let thrown = self.clearing.throw(image).map_err(file("remove", image))?;
        if !thrown {
            return Err(RuntimeFault::Clearing(name.clone()));
        }
        let thrown = self.clearing.throw(&own);
        if !thrown.map_err(file("remove", &own))? {
            return Err(RuntimeFault::Clearing(name.clone()));
        }
        store::trees::remove(&records).map_err(file("remove", &records))
    }

    /// Removes what is there of a container whose command never ran: a few directories of our own.
    fn clear_unbegun(&self, name: &RuntimeName) -> Result<(), RuntimeFault> {
        let own = self.own_directory(name);
        self.remove_scratch(name).map_err(file("remove", &own))?;
        for path in [own, self.directory(name)] {
            store::trees::remove(&path).map_err(file("remove", &path))?;
        }
        Ok(())
    }

    fn look_again(&self) {
        ring(&self.watch);
        ring(&self.bell);
    }
}

fn ring(bell: &OwnedFd) {
    // A full counter is already ringing.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

fn silence(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0u8; 8]);
}

fn names_below(path: &Path) -> Result<Vec<RuntimeName>, RuntimeFault> {
    let entries = fs::read_dir(path).map_err(file("list", path))?;
    Ok(entries
        .flatten()
        .filter_map(|entry| RuntimeName::parse(entry.file_name().to_str()?).ok())
        .collect())
}

fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RuntimeFault {
    let path = path.to_owned();
    move |source| RuntimeFault::File { what, path, source }
}
