//! Control groups: which kind this machine has, where ours lie, what a container uses, live limit
//! changes, freezing, killing, removing. Creating a container's group is libcontainer's part.
//!
//! Layout below each hierarchy: `/fardel/BOX/sessions/NAME` for containers, `/fardel/BOX/shims`
//! for shims, so that no process stands above another's group and none of ours in the server's. On
//! version 2, where a holder owns a part of the tree (`hold`), that part takes the place of `/fardel`.
//! Never touches a group outside.
//!
//! Statistics and limits go through cgroups-rs; what it lacks (OOM counts, `cgroup.kill`, plain
//! removal) is read and written here in a few lines.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cgroups_rs::cpu::CpuController;
use cgroups_rs::freezer::FreezerController;
use cgroups_rs::memory::MemController;
use cgroups_rs::pid::PidController;

use super::order::{RuntimeName, RuntimeUsage};

/// One scheduling period of the processor limit. The kernel's own default; shorter costs more
/// switches, longer makes a throttled terminal feel frozen.
const PERIOD_MICROSECONDS: u64 = 100_000;

/// How long a group may take to empty after its processes were killed. Longer only under a hung
/// device; then the group is left and named in the fault.
const EMPTYING: Duration = Duration::from_secs(5);

/// What kind of control groups the machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hierarchies {
    /// One directory per controller, by controller name; also hybrid machines.
    Separate {
        controllers: BTreeMap<String, PathBuf>,
        /// Where a service manager follows the processes of its units, and nothing is limited.
        tracking: Vec<PathBuf>,
    },
    /// Everything below one directory.
    Unified {
        root: PathBuf,
        /// The part of it that is ours, with a slash before and none behind.
        ours: &'static str,
    },
}

/// The controller of memory that is no memory of the machine's own: of its GPUs.
const DEVICE_MEMORY: &str = "dmem";

/// Our part of every hierarchy, made by ourselves.
const OWN: &str = "/fardel";

/// The part that the holder's unit owns on version 2; see `packaging/systemd`.
const HELD: &str = "/fardel.slice/fardel-sessions.service";

/// A step on control groups that did not work.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("this machine has no mounted control groups")]
    Absent,
    #[error("could not {what} {path}")]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("could not {what}: {source}")]
    Controller {
        what: &'static str,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{wanted} bytes is less than the {used} bytes in use now")]
    BelowUse { wanted: u64, used: u64 },
    #[error("processes in {path} do not end")]
    NotEmpty { path: PathBuf },
}

impl Hierarchies {
    /// Looks at this machine's mounts.
    pub(super) fn detect() -> Result<Self, CgroupError> {
        let path = PathBuf::from("/proc/self/mountinfo");
        let mounts = fs::read_to_string(&path).map_err(|source| CgroupError::File {
            what: "read",
            path,
            source,
        })?;
        let mut found = Self::from_mounts(&mounts).ok_or(CgroupError::Absent)?;
        if let Self::Unified { root, ours } = &mut found
            && is_held(&root.join(HELD.trim_start_matches('/')))
        {
            *ours = HELD;
        }
        Ok(found)
    }

    fn from_mounts(mounts: &str) -> Option<Self> {
        const CONTROLLERS: [&str; 8] = [
            "cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "pids", "blkio",
        ];
        let mut controllers = BTreeMap::new();
        let mut tracking = Vec::new();
        let mut unified = None;
        for line in mounts.lines() {
            let (left, right) = line.split_once(" - ")?;
            let place = left.split(' ').nth(4)?;
            let mut right = right.split(' ');
            match right.next()? {
                "cgroup2" if place == "/sys/fs/cgroup" => unified = Some(PathBuf::from(place)),
                "cgroup2" => tracking.push(PathBuf::from(place)),
                "cgroup" => {
                    for option in right.nth(1)?.split(',') {
                        if CONTROLLERS.contains(&option) {
                            controllers.insert(option.to_owned(), PathBuf::from(place));
                        }
                        if option == "name=systemd" {
                            tracking.push(PathBuf::from(place));
                        }
                    }
                }
                _ => {}
            }
        }
        match unified {
            Some(root) => Some(Self::Unified { root, ours: OWN }),
            None if controllers.contains_key("memory") => Some(Self::Separate {
                controllers,
                tracking,
            }),
            None => None,
        }
    }

    /// Makes the group of all sessions of a box (version 2; on version 1 libcontainer's way has no race):
    /// supervisors that start at once would each find it missing, and all but one fail to make it. Also hands
    /// `dmem` down to it where the kernel has that, which neither libcontainer nor a service manager does.
    pub(super) fn make_room(&self, instance_id: &str) -> Result<(), CgroupError> {
        let Self::Unified { root, ours } = self else {
            return Ok(());
        };
        let path = root
            .join(ours.trim_start_matches('/'))
            .join(instance_id)
            .join("sessions");
        fs::create_dir_all(&path).map_err(|source| CgroupError::File {
            what: "create",
            path: path.clone(),
            source,
        })?;
        let mut above: Vec<&Path> = path.ancestors().take_while(|part| *part != root).collect();
        above.push(root);
        for part in above.into_iter().rev() {
            let has = fs::read_to_string(part.join("cgroup.controllers"))
                .is_ok_and(|text| text.split_whitespace().any(|each| each == DEVICE_MEMORY));
            // No session fails for it: the code that sets the limit finds that there is none, and says so.
            if has
                && let Err(error) = write(
                    &part.join("cgroup.subtree_control"),
                    &format!("+{DEVICE_MEMORY}"),
                )
            {
                tracing::debug!("device memory is not limited below: {error}");
            }
        }
        Ok(())
    }

    /// The one directory that everything lies below; None on version 1.
    pub(super) fn root(&self) -> Option<&Path> {
        match self {
            Self::Separate { .. } => None,
            Self::Unified { root, .. } => Some(root),
        }
    }

    /// Whether everything lies below one directory (version 2).
    pub(super) fn unified(&self) -> bool {
        matches!(self, Self::Unified { .. })
    }

    /// Whether the machine can limit this. On version 2 device fences and freezing need no controller.
    pub(super) fn has(&self, controller: &str) -> bool {
        match self {
            Self::Separate { controllers, .. } => controllers.contains_key(controller),
            Self::Unified { root, .. } => {
                matches!(controller, "devices" | "freezer")
                    || fs::read_to_string(root.join("cgroup.controllers"))
                        .is_ok_and(|text| text.split_whitespace().any(|each| each == controller))
            }
        }
    }

    /// The groups of one container: where they are, else where they would be made. They may lie
    /// elsewhere than new ones when the holder came or went since.
    pub(super) fn session(&self, instance_id: &str, name: &RuntimeName) -> ControlGroup {
        let below = |ours: &str| self.at(format!("{ours}/{instance_id}/sessions/{name}"));
        let usual = below(self.ours());
        if self.unified() && !usual.exists() {
            if let Some(other) = [OWN, HELD]
                .map(below)
                .into_iter()
                .find(ControlGroup::exists)
            {
                return other;
            }
        }
        usual
    }

    /// The container of a box whose group stands in the text of a process's `/proc/PID/cgroup`; None
    /// where none does.
    pub(super) fn session_in(text: &str, instance_id: &str) -> Option<RuntimeName> {
        let above = format!("/{instance_id}/sessions/");
        text.lines().find_map(|line| {
            let (_, below) = line.split_once(&above)?;
            RuntimeName::parse(below.split('/').next()?).ok()
        })
    }

    /// The group of the supervising processes.
    pub(super) fn shims(&self, instance_id: &str) -> ControlGroup {
        self.at(format!("{}/{instance_id}/shims", self.ours()))
    }

    /// All of one box, for removal when it is empty.
    pub(super) fn whole_instance(&self, instance_id: &str) -> ControlGroup {
        self.at(format!("{}/{instance_id}", self.ours()))
    }

    fn ours(&self) -> &'static str {
        match self {
            Self::Separate { .. } => OWN,
            Self::Unified { ours, .. } => ours,
        }
    }

    /// The group of this path below each hierarchy.
    pub(super) fn at(&self, path: String) -> ControlGroup {
        ControlGroup {
            hierarchies: self.clone(),
            path,
        }
    }
}

/// One group in every hierarchy; it may or may not exist.
#[derive(Clone, Debug)]
pub(super) struct ControlGroup {
    hierarchies: Hierarchies,
    /// Absolute, as the specification of a container wants it.
    path: String,
}

impl ControlGroup {
    /// The path below each hierarchy; always absolute (a relative one would select a service manager).
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The directory of one controller; nothing when the machine lacks it.
    pub(super) fn directory(&self, controller: &str) -> Option<PathBuf> {
        let below = self.path.trim_start_matches('/');
        match &self.hierarchies {
            Hierarchies::Unified { root, .. } => Some(root.join(below)),
            Hierarchies::Separate { controllers, .. } => {
                controllers.get(controller).map(|root| root.join(below))
            }
        }
    }

    /// Every distinct directory of this group, existing or not.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        let below = self.path.trim_start_matches('/');
        let mut all: Vec<PathBuf> = match &self.hierarchies {
            Hierarchies::Unified { root, .. } => vec![root.join(below)],
            Hierarchies::Separate { controllers, .. } => {
                controllers.values().map(|root| root.join(below)).collect()
            }
        };
        all.dedup();
        all
    }

    fn v2(&self) -> bool {
        self.hierarchies.unified()
    }

    fn required(&self, controller: &'static str) -> Result<PathBuf, CgroupError> {
        self.directory(controller)
            .filter(|path| path.is_dir())
            .ok_or_else(|| CgroupError::File {
                what: "find the control group",
                path: PathBuf::from(&self.path),
                source: io::ErrorKind::NotFound.into(),
            })
    }

    /// Whether the kernel has it.
    pub(super) fn exists(&self) -> bool {
        self.directories().iter().any(|path| path.is_dir())
    }

    /// Puts a process of ours into this group, making it where needed.
    ///
    /// Not in the hierarchy of processor sets on version 1, where a new group has no processor and
    /// takes no process. Where a manager only follows its units' processes, failing costs no limit: then
    /// the process stays with the unit that started it.
    pub(super) fn enter(&self, pid: i32) -> Result<(), CgroupError> {
        let cpuset = if self.v2() {
            None
        } else {
            self.directory("cpuset")
        };
        for path in self.directories() {
            if Some(&path) != cpuset.as_ref() {
                make_and_join(&path, pid)?;
            }
        }
        for path in self.followed() {
            if let Err(error) = make_and_join(&path, pid) {
                tracing::debug!("a process stays where its unit is followed: {error}");
            }
        }
        Ok(())
    }

    /// Its directories where processes are only followed.
    fn followed(&self) -> Vec<PathBuf> {
        let below = self.path.trim_start_matches('/');
        match &self.hierarchies {
            Hierarchies::Unified { .. } => Vec::new(),
            Hierarchies::Separate { tracking, .. } => {
                tracking.iter().map(|root| root.join(below)).collect()
            }
        }
    }

    /// Hands every controller that this group has on to the groups below it. Nothing to do on
    /// version 1.
    pub(super) fn pass_on_controllers(&self) -> Result<(), CgroupError> {
        let Some(path) = self.unified_directory() else {
            return Ok(());
        };
        for controller in read(&path.join("cgroup.controllers"))?.split_whitespace() {
            write(
                &path.join("cgroup.subtree_control"),
                &format!("+{controller}"),
            )?;
        }
        Ok(())
    }

    /// Puts a process into the existing group of a container, in every hierarchy that has it.
    pub(super) fn join_existing(&self, pid: i32) -> Result<(), CgroupError> {
        let mut joined = false;
        for path in self.directories().into_iter().filter(|path| path.is_dir()) {
            join(&path, pid)?;
            joined = true;
        }
        if joined {
            Ok(())
        } else {
            Err(CgroupError::Absent)
        }
    }

    /// What the container uses now. About ten small reads.
    pub(super) fn usage(&self) -> Result<RuntimeUsage, CgroupError> {
        let memory = self.required("memory")?;
        let stat = read(&memory.join("memory.stat"))?;
        let (current, limit, inactive) = if self.v2() {
            ("memory.current", "memory.max", "inactive_file")
        } else {
            (
                "memory.usage_in_bytes",
                "memory.limit_in_bytes",
                "total_inactive_file",
            )
        };
        let droppable = field(&stat, inactive).unwrap_or(0);
        let cpu_microseconds = if self.v2() {
            field(
                &read(&self.required("cpu")?.join("cpu.stat"))?,
                "usage_usec",
            )
            .unwrap_or(0)
        } else {
            number(&self.required("cpuacct")?.join("cpuacct.usage"))? / 1000
        };
        let pids = self
            .required("pids")
            .ok()
            .and_then(|path| PidController::new(path, self.v2()).get_pid_current().ok())
            .unwrap_or(0);
        Ok(RuntimeUsage {
            cpu_microseconds,
            memory_bytes: number(&memory.join(current))?.saturating_sub(droppable),
            memory_limit: number(&memory.join(limit)).unwrap_or(u64::MAX),
            pids,
            waited_microseconds: self.waited_microseconds(),
        })
    }

    /// How long something inside waited for a processor and for memory; nothing on version 1 and where
    /// the kernel does not measure pressure.
    fn waited_microseconds(&self) -> Option<(u64, u64)> {
        let directory = self.unified_directory()?;
        let total = |file: &str| some_total(&fs::read_to_string(directory.join(file)).ok()?);
        Some((total("cpu.pressure")?, total("memory.pressure")?))
    }

    /// Changes the processor limit of a running container.
    pub(super) fn set_cpu(&self, hundredths: u32) -> Result<(), CgroupError> {
        let (quota, period) = cpu_quota(hundredths);
        let path = self.required("cpu")?;
        if self.v2() {
            return write(&path.join("cpu.max"), &format!("{quota} {period}"));
        }
        CpuController::new(path, false)
            .set_cfs_quota_and_period(Some(quota), Some(period))
            .map_err(|source| CgroupError::Controller {
                what: "change the processor limit",
                source: source.into(),
            })
    }

    /// Changes the memory limit of a running container. Refused when more is in use: version 1
    /// refuses by itself, version 2 would kill.
    pub(super) fn set_memory(&self, bytes: u64) -> Result<(), CgroupError> {
        let used = self.usage()?.memory_bytes;
        if bytes < used {
            return Err(CgroupError::BelowUse {
                wanted: bytes,
                used,
            });
        }
        let path = self.required("memory")?;
        if self.v2() {
            write(&path.join("memory.swap.max"), "0").ok();
            return write(&path.join("memory.max"), &bytes.to_string());
        }
        let limit = i64::try_from(bytes).unwrap_or(i64::MAX);
        let memory = MemController::new(path.clone(), false);
        let change = |what: &'static str, done: cgroups_rs::error::Result<()>| {
            done.map_err(|source| CgroupError::Controller {
                what,
                source: source.into(),
            })
        };
        // Memory plus swap may never be below memory: the order depends on the direction.
        let swap_counted = path.join("memory.memsw.limit_in_bytes").exists();
        let growing = bytes > number(&path.join("memory.limit_in_bytes"))?;
        if swap_counted && growing {
            change(
                "change the limit of memory and swap",
                memory.set_memswap_limit(limit),
            )?;
        }
        change("change the memory limit", memory.set_limit(limit))?;
        if swap_counted && !growing {
            change(
                "change the limit of memory and swap",
                memory.set_memswap_limit(limit),
            )?;
        }
        Ok(())
    }

    /// Stops every process where it stands.
    pub(super) fn freeze(&self) -> Result<(), CgroupError> {
        let path = self.required("freezer")?;
        if self.v2() {
            return write(&path.join("cgroup.freeze"), "1");
        }
        FreezerController::new(path, false)
            .freeze()
            .map_err(|source| CgroupError::Controller {
                what: "freeze the container",
                source: source.into(),
            })
    }

    /// Lets every process go on.
    pub(super) fn thaw(&self) -> Result<(), CgroupError> {
        let path = self.required("freezer")?;
        if self.v2() {
            return write(&path.join("cgroup.freeze"), "0");
        }
        FreezerController::new(path, false)
            .thaw()
            .map_err(|source| CgroupError::Controller {
                what: "thaw the container",
                source: source.into(),
            })
    }

    /// Whether the processes inside stand still.
    pub(super) fn frozen(&self) -> bool {
        let Some(path) = self.directory("freezer") else {
            return false;
        };
        let (file, thawed) = if self.v2() {
            ("cgroup.freeze", "0")
        } else {
            ("freezer.state", "THAWED")
        };
        fs::read_to_string(path.join(file)).is_ok_and(|text| text.trim() != thawed)
    }

    /// Whether all processes inside have come to stand still after `freeze`.
    pub(super) fn stands(&self) -> bool {
        let Some(path) = self.directory("freezer") else {
            return false;
        };
        let (file, stands) = match self.v2() {
            true => ("cgroup.events", "frozen 1"),
            false => ("freezer.state", "FROZEN"),
        };
        fs::read_to_string(path.join(file))
            .is_ok_and(|text| text.lines().any(|line| line.trim() == stands))
    }

    /// The present processor limit in hundredths of a core; nothing when there is none.
    pub(super) fn cpu_hundredths(&self) -> Option<u32> {
        let path = self.directory("cpu")?;
        let (quota, period) = if self.v2() {
            let text = fs::read_to_string(path.join("cpu.max")).ok()?;
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?)
        } else {
            let number = |file: &str| {
                fs::read_to_string(path.join(file))
                    .ok()?
                    .trim()
                    .parse::<u64>()
                    .ok()
            };
            (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
        };
        u32::try_from(quota * 100 / period.max(1)).ok()
    }

    /// The one directory on version 2; nothing on version 1.
    pub(super) fn unified_directory(&self) -> Option<PathBuf> {
        self.v2().then(|| self.directory("memory")).flatten()
    }

    /// Bytes that disks took from it since it was made; zero on version 1, which counts no cached writes.
    pub(super) fn flushed(&self) -> u64 {
        let Some(path) = self.unified_directory() else {
            return 0;
        };
        let text = fs::read_to_string(path.join("io.stat")).unwrap_or_default();
        written_bytes(&text)
    }

    /// How many processes the memory limit killed; zero when it cannot be read any more.
    pub(super) fn oom_kills(&self) -> u64 {
        let Some(path) = self.directory("memory") else {
            return 0;
        };
        let file = if self.v2() {
            "memory.events"
        } else {
            "memory.oom_control"
        };
        fs::read_to_string(path.join(file))
            .ok()
            .and_then(|text| field(&text, "oom_kill"))
            .unwrap_or(0)
    }

    /// The most memory ever in use at once, page cache included; nothing where the kernel does not say.
    pub(super) fn peak_memory(&self) -> Option<u64> {
        let file = if self.v2() {
            "memory.peak"
        } else {
            "memory.max_usage_in_bytes"
        };
        fs::read_to_string(self.directory("memory")?.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// Numbers of the processes inside, as seen from the host.
    pub(super) fn processes(&self) -> Vec<i32> {
        let Some(path) = self.directory("pids").or_else(|| self.directory("memory")) else {
            return Vec::new();
        };
        let groups = groups_below(&path);
        let texts = groups
            .iter()
            .filter_map(|group| fs::read_to_string(group.join("cgroup.procs")).ok());
        texts
            .flat_map(|text| {
                let pids = text.lines().filter_map(|line| line.parse::<i32>().ok());
                pids.collect::<Vec<_>>()
            })
            .collect()
    }

    /// Kills everything inside and waits until it is gone. Does nothing when the group is absent.
    pub(super) fn kill_all(&self) -> Result<(), CgroupError> {
        let until = Instant::now() + EMPTYING;
        if self.v2()
            && let Some(path) = self.directory("memory").filter(|path| path.is_dir())
        {
            write(&path.join("cgroup.kill"), "1")?;
        }
        loop {
            let inside = self.processes();
            if inside.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(CgroupError::NotEmpty {
                    path: PathBuf::from(&self.path),
                });
            }
            // Frozen first: a process that forks faster than we kill would win otherwise. The
            // kernel lets a frozen process die on SIGKILL only after thawing on version 1.
            self.freeze().ok();
            for pid in self.processes() {
                // SAFETY: no memory is involved; the pid was read from our own frozen group, so it cannot have been reused.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            self.thaw().ok();
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Removes the group and everything below it unless a process is inside.
    pub(super) fn remove_if_empty(&self) -> Result<(), CgroupError> {
        for path in self.directories().into_iter().chain(self.followed()) {
            remove_tree(&path).map_err(|source| CgroupError::File {
                what: "remove",
                path,
                source,
            })?;
        }
        Ok(())
    }

    /// Removes the group and everything below it. Fine when it is gone already.
    pub(super) fn remove(&self) -> Result<(), CgroupError> {
        let until = Instant::now() + EMPTYING;
        for path in self.directories() {
            while let Err(source) = remove_tree(&path) {
                let busy = source.raw_os_error() == Some(libc::EBUSY);
                if !busy || Instant::now() > until {
                    return Err(CgroupError::File {
                        what: "remove",
                        path,
                        source,
                    });
                }
                // The last process has ended but the kernel has not yet let go of it.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }
}

/// Quota and period in microseconds for hundredths of a core; the kernel's smallest quota is 1 ms.
pub(super) fn cpu_quota(hundredths: u32) -> (i64, u64) {
    let quota = u64::from(hundredths) * PERIOD_MICROSECONDS / 100;
    (
        i64::try_from(quota.max(1000)).expect("a quota of this many cores fits"),
        PERIOD_MICROSECONDS,
    )
}

/// Whether a holder's unit owns this part and has made room: it stands in a leaf itself, and the
/// controllers are passed on.
fn is_held(part: &Path) -> bool {
    let text = |file: &str| fs::read_to_string(part.join(file)).unwrap_or_default();
    part.join("cgroup.procs").exists()
        && text("cgroup.procs").trim().is_empty()
        && ["memory", "pids"].iter().all(|wanted| {
            text("cgroup.controllers")
                .split_whitespace()
                .any(|each| each == *wanted)
        })
}

fn make_and_join(path: &Path, pid: i32) -> Result<(), CgroupError> {
    fs::create_dir_all(path).map_err(|source| CgroupError::File {
        what: "create",
        path: path.to_owned(),
        source,
    })?;
    join(path, pid)
}

fn join(path: &Path, pid: i32) -> Result<(), CgroupError> {
    write(&path.join("cgroup.procs"), &pid.to_string())
}

/// A group and every group below it, each after the one it lies in. By a list and not by recursion: a user who
/// may make groups may nest them.
fn groups_below(path: &Path) -> Vec<PathBuf> {
    let mut all = vec![path.to_owned()];
    let mut seen = 0;
    while let Some(next) = all.get(seen) {
        let below = fs::read_dir(next).into_iter().flatten().flatten();
        let below: Vec<PathBuf> = below
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        all.extend(below);
        seen += 1;
    }
    all
}

fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(_) => {}
    }
    for group in groups_below(path).iter().rev() {
        match fs::remove_dir(group) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, CgroupError> {
    fs::read_to_string(path).map_err(|source| CgroupError::File {
        what: "read",
        path: path.to_owned(),
        source,
    })
}

fn write(path: &Path, text: &str) -> Result<(), CgroupError> {
    fs::write(path, text).map_err(|source| CgroupError::File {
        what: "write",
        path: path.to_owned(),
        source,
    })
}

fn number(path: &Path) -> Result<u64, CgroupError> {
    let text = read(path)?;
    // "max" means no limit.
    Ok(text.trim().parse().unwrap_or(u64::MAX))
}

/// What was written to all disks together, of a file as `io.stat`.
fn written_bytes(told: &str) -> u64 {
    let words = told.split_whitespace();
    let written = words.filter_map(|word| word.strip_prefix("wbytes=")?.parse::<u64>().ok());
    written.fold(0, u64::saturating_add)
}

/// The time in which some process waited, of a pressure file: microseconds since the group was made.
fn some_total(pressure: &str) -> Option<u64> {
    pressure
        .lines()
        .find_map(|line| line.strip_prefix("some "))?
        .split(' ')
        .find_map(|word| word.strip_prefix("total="))?
        .parse()
        .ok()
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        line.strip_prefix(name)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEPARATE: &str = "\
31 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
32 31 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 31 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
34 31 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

    #[test]
    fn pressure_is_the_time_in_which_some_process_waited() {
        let file = "\
some avg10=59.03 avg60=25.55 avg300=6.36 total=20073973
full avg10=0.00 avg60=0.00 avg300=0.00 total=7
";
        assert_eq!(some_total(file), Some(20_073_973));
        // A kernel that was told not to measure shows an empty file or none.
        assert_eq!(some_total(""), None);
        assert_eq!(some_total("full avg10=0.00 total=7\n"), None);
        let told = "8:0 rbytes=1 wbytes=4096 rios=1 wios=1\n259:0 rbytes=0 wbytes=8 rios=0\n";
        assert_eq!(written_bytes(told), 4104);
        assert_eq!(written_bytes("8:0 \n"), 0);
    }

    #[test]
    fn a_hybrid_machine_counts_as_separate_hierarchies() {
        let found = Hierarchies::from_mounts(SEPARATE).expect("memory is there");
        let name = RuntimeName::parse("s-1").expect("plain");
        let group = found.session("b0", &name);
        assert_eq!(group.path(), "/fardel/b0/sessions/s-1");
        assert_eq!(
            group.directory("cpuacct"),
            Some("/sys/fs/cgroup/cpu,cpuacct/fardel/b0/sessions/s-1".into())
        );
        assert_eq!(group.directory("pids"), None);
        let shims = found.shims("b0");
        assert_eq!(
            shims.followed(),
            [PathBuf::from("/sys/fs/cgroup/unified/fardel/b0/shims")]
        );
        assert!(!shims.directories().contains(&shims.followed()[0]));
    }

    #[test]
    fn one_mount_at_the_usual_place_is_version_two() {
        let found =
            Hierarchies::from_mounts("30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
                .expect("unified");
        assert!(found.unified());
        assert_eq!(found.shims("b0").path(), "/fardel/b0/shims");
        assert_eq!(
            Hierarchies::from_mounts("30 24 0:26 / / rw - ext4 /dev/vda rw\n"),
            None
        );
    }

    #[test]
    fn a_process_is_told_to_be_a_containers_by_its_group_only() {
        let text = "5:pids:/fardel/b0/sessions/s-1\n3:cpu,cpuacct:/\n0::/system.slice/x.service\n";
        let found = |text| Hierarchies::session_in(text, "b0").map(String::from);
        assert_eq!(found(text).as_deref(), Some("s-1"));
        let held = "0::/fardel.slice/fardel-sessions.service/b0/sessions/s-1/deeper\n";
        assert_eq!(found(held).as_deref(), Some("s-1"));
        assert_eq!(found("0::/fardel/b1/sessions/s-1\n"), None, "another box's");
        assert_eq!(found("0::/fardel/b0/shims\n"), None);
        assert_eq!(found("0::/fardel/b0/sessions/\n"), None);
        assert_eq!(found(""), None);
    }

    #[test]
    fn a_controller_that_the_kernel_leaves_out_is_missed_on_version_two() {
        let root = tempfile::tempdir().expect("a directory");
        fs::write(root.path().join("cgroup.controllers"), "cpu io pids\n").expect("written");
        let found = Hierarchies::Unified {
            root: root.path().to_owned(),
            ours: OWN,
        };
        assert!(found.has("pids") && found.has("devices") && found.has("freezer"));
        assert!(!found.has("memory"), "as with cgroup_disable=memory");
        let separate = Hierarchies::from_mounts(SEPARATE).expect("memory is there");
        assert!(separate.has("memory") && !separate.has("pids"));
    }

    #[test]
    fn device_memory_is_handed_down_to_the_sessions_where_the_kernel_has_it() {
        let root = tempfile::tempdir().expect("a directory");
        let parts = ["", "fardel", "fardel/b0", "fardel/b0/sessions"];
        let found = Hierarchies::Unified {
            root: root.path().to_owned(),
            ours: OWN,
        };
        let told =
            |part: &str| fs::read_to_string(root.path().join(part).join("cgroup.subtree_control"));
        found.make_room("b0").expect("it is made");
        for part in parts {
            assert!(told(part).is_err(), "nothing is asked of a kernel without");
        }
        for part in parts {
            let path = root.path().join(part).join("cgroup.controllers");
            fs::write(path, "cpu memory dmem pids\n").expect("written");
        }
        found.make_room("b0").expect("it is there");
        for part in parts {
            assert_eq!(told(part).expect("written"), "+dmem", "{part}");
        }
        // Where one of them is not handed it, a session starts all the same.
        fs::remove_file(root.path().join("fardel/cgroup.subtree_control")).expect("removed");
        fs::create_dir(root.path().join("fardel/cgroup.subtree_control")).expect("in its place");
        found.make_room("b0").expect("sessions start all the same");
    }

    #[test]
    fn a_part_is_held_when_its_holder_has_made_room() {
        let part = tempfile::tempdir().expect("a directory");
        let put = |file: &str, text: &str| {
            fs::write(part.path().join(file), text).expect("written");
        };
        assert!(!is_held(part.path()), "nothing is there");
        put("cgroup.controllers", "cpu io memory pids\n");
        put("cgroup.procs", "17\n");
        assert!(!is_held(part.path()), "the holder still stands in it");
        put("cgroup.procs", "");
        assert!(is_held(part.path()));
        put("cgroup.controllers", "cpu\n");
        assert!(!is_held(part.path()), "it would hold no session's memory");
    }

    #[test]
    fn nested_groups_are_found_and_removed_however_they_nest() {
        let root = tempfile::tempdir().expect("a directory");
        let top = root.path().join("session");
        let mut deepest = top.clone();
        for _ in 0..500 {
            deepest.push("g");
        }
        fs::create_dir_all(&deepest).expect("made");
        fs::create_dir(top.join("beside")).expect("made");
        let all = groups_below(&top);
        assert_eq!(all.len(), 502);
        assert_eq!((&all[0], all.last()), (&top, Some(&deepest)));
        std::thread::scope(|scope| {
            let small = std::thread::Builder::new().stack_size(64 << 10);
            let work = || remove_tree(&top).expect("removed");
            small.spawn_scoped(scope, work).expect("started");
        });
        assert!(!top.exists());
        remove_tree(&top).expect("it is gone already");
    }

    #[test]
    fn a_share_of_a_core_becomes_a_quota() {
        assert_eq!(cpu_quota(50), (50_000, 100_000));
        assert_eq!(cpu_quota(200), (200_000, 100_000));
        assert_eq!(cpu_quota(0), (1000, 100_000));
    }
}
