//! Turns an order and the prepared ground into the OCI specification of one container. Pure: same
//! input, same text; never looks at the machine. No hooks, no control group mount, always an
//! absolute control group path.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::cgroup::cpu_quota;
use super::findings::OPEN_FILES;
use super::order::ContainerSpec;
use super::process_limits::GrantedLimits;

#[cfg(test)]
mod tests;

/// What a container's processes may hold; ten, all of them only over the session's own id range.
pub(super) const CAPABILITIES: [(&str, u32); 10] = [
    ("CAP_CHOWN", 0),
    ("CAP_DAC_OVERRIDE", 1),
    ("CAP_FOWNER", 3),
    ("CAP_FSETID", 4),
    ("CAP_KILL", 5),
    ("CAP_SETGID", 6),
    ("CAP_SETUID", 7),
    ("CAP_SETPCAP", 8),
    ("CAP_NET_BIND_SERVICE", 10),
    ("CAP_SYS_CHROOT", 18),
];

/// Character devices every container may use: null zero full random urandom tty ptmx.
/// (major, minor); the terminals of `/dev/pts` (major 136) come beside them.
pub(super) const DEVICES: [(u32, u32); 7] =
    [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)];

/// Terminals of `/dev/pts`.
pub(super) const TERMINAL_MAJOR: u32 = 136;

/// Terminals one session may have at once; at the edge `openpty` answers ENOSPC. The machine has 3072 for
/// everybody. Higher: a few sessions take them all. Lower: the many shells of one user.
const MAX_TERMINALS: u32 = 256;

/// What tells of the machine and not of the session: a directory is empty inside, a file has no bytes.
const MASKED: [&str; 26] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/diskstats",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/mdstat",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/swaps",
    "/proc/sys/kernel/random/boot_id",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/block",
    "/sys/class/block",
    "/sys/dev/block",
    "/sys/devices/virtual/block",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/kernel/debug",
    "/sys/kernel/security",
    "/sys/kernel/tracing",
];

/// How readily the kernel's memory killer takes a session's process before one of ours.
pub(super) const OOM_SCORE: i32 = 200;

/// What was prepared before the specification is written.
#[derive(Clone, Debug)]
pub(super) struct PreparedRoot {
    pub root: PathBuf,
    /// Absolute path below each control group hierarchy.
    pub cgroup_path: String,
    /// A namespace file with the session's id range.
    pub user_namespace: PathBuf,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: String,
    pub directory: String,
    /// Complete; PATH and HOME are never missing or empty (libcontainer would ask the name service).
    pub environment: Vec<(String, String)>,
    /// Nodes of granted devices and their places inside.
    pub devices: Vec<(PathBuf, String)>,
    /// Files and directories shown inside: from, at, read-only.
    pub binds: Vec<(PathBuf, String, bool)>,
    /// Directories of the machine's disks below `/sys/devices`.
    pub disks: Vec<String>,
    /// A namespace file with clocks that begin at zero. Nothing where the kernel cannot give the
    /// container clocks of its own.
    pub time_namespace: Option<PathBuf>,
    /// The present hard limit of open files, which only a stronger process could raise.
    pub open_files_hard_limit: u64,
    pub limits: GrantedLimits,
}

impl PreparedRoot {
    /// Open files a process inside may have.
    pub(super) fn open_files(&self) -> u64 {
        OPEN_FILES.min(self.open_files_hard_limit)
    }
}

/// A name the kernel and every resolver take: letters, digits and hyphens, at most 63; `session`
/// when nothing is left of the wanted one.
pub(super) fn plain_hostname(wanted: &str) -> String {
    let plain: String = wanted
        .chars()
        .map(|each| {
            if each.is_ascii_alphanumeric() {
                each
            } else {
                '-'
            }
        })
        .take(63)
        .collect();
    let plain = plain.trim_matches('-');
    if plain.is_empty() {
        "session".to_owned()
    } else {
        plain.to_owned()
    }
}

/// Gives the specification as libcontainer reads it.
pub(super) fn specification(order: &ContainerSpec, ground: &PreparedRoot) -> Value {
    let capabilities: Vec<&str> = CAPABILITIES.iter().map(|(name, _)| *name).collect();
    let environment: Vec<String> = ground
        .environment
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let open_files = ground.open_files();
    let limits: Vec<Value> = [
        ("RLIMIT_NOFILE", Some(open_files)),
        ("RLIMIT_CORE", Some(0)),
        ("RLIMIT_MEMLOCK", ground.limits.memlock),
        ("RLIMIT_STACK", ground.limits.stack),
    ]
    .into_iter()
    .filter_map(|(kind, most)| {
        let most = most?;
        Some(json!({ "type": kind, "soft": most, "hard": most }))
    })
    .collect();
    let (quota, period) = cpu_quota(order.cpu_hundredths);
    let mut process = json!({
        "terminal": order.terminal.is_some(),
        "user": { "uid": ground.uid, "gid": ground.gid, "additionalGids": ground.groups, "umask": 0o022 },
        "args": order.command,
        "env": environment,
        "cwd": ground.directory,
        "capabilities": {
            "bounding": capabilities, "effective": capabilities, "permitted": capabilities,
            "inheritable": [], "ambient": [],
        },
        "rlimits": limits,
        "noNewPrivileges": true,
        "oomScoreAdj": OOM_SCORE,
    });
    if let Some(size) = order.terminal {
        process["consoleSize"] = json!({ "height": size.rows, "width": size.columns });
    }
    let mut specification = json!({
        "ociVersion": "1.2.0",
        "process": process,
        "root": { "path": ground.root, "readonly": false },
        "hostname": order.hostname,
        "mounts": mounts(order, ground),
        "linux": {
            "namespaces": [
                { "type": "user", "path": ground.user_namespace },
                { "type": "pid" }, { "type": "network" }, { "type": "ipc" },
                { "type": "uts" }, { "type": "mount" }, { "type": "cgroup" },
            ],
            "cgroupsPath": ground.cgroup_path,
            "rootfsPropagation": "private",
            "resources": {
                "devices": devices(order),
                "memory": { "limit": order.memory_bytes, "swap": order.memory_bytes },
                "cpu": { "quota": quota, "period": period, "shares": shares(order.cpu_hundredths) },
                "pids": { "limit": order.pids },
            },
            "maskedPaths": MASKED.iter().copied().chain(ground.disks.iter().map(String::as_str)).collect::<Vec<_>>(),
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    });
    if let Some(clocks) = &ground.time_namespace {
        if let Some(namespaces) = specification["linux"]["namespaces"].as_array_mut() {
            namespaces.push(json!({ "type": "time", "path": clocks }));
        }
    }
    specification
}

fn mounts(order: &ContainerSpec, ground: &PreparedRoot) -> Vec<Value> {
    let mut mounts = vec![
        json!({ "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"] }),
        json!({ "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"] }),
        json!({ "destination": "/dev/pts", "type": "devpts", "source": "devpts",
                "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5",
                            format!("max={MAX_TERMINALS}")] }),
        json!({ "destination": "/dev/shm", "type": "tmpfs", "source": "shm",
                "options": ["nosuid", "noexec", "nodev", "mode=1777", format!("size={}", order.shm_bytes)] }),
        json!({ "destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": ["nosuid", "noexec", "nodev"] }),
        json!({ "destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"] }),
    ];
    for (from, at, read_only) in &ground.binds {
        // With what is mounted below it, as in a home.
        let mut options = vec!["rbind", "nosuid", "nodev"];
        if *read_only {
            options.push("ro");
        }
        mounts
            .push(json!({ "destination": at, "type": "bind", "source": from, "options": options }));
    }
    for (node, at) in &ground.devices {
        mounts.push(json!({ "destination": at, "type": "bind", "source": node,
                            "options": ["bind", "nosuid", "noexec"] }));
    }
    mounts
}

fn devices(order: &ContainerSpec) -> Vec<Value> {
    let mut rules = vec![json!({ "allow": false, "access": "rwm" })];
    let granted = order
        .devices
        .iter()
        .map(|device| (device.major, device.minor));
    for (major, minor) in DEVICES.into_iter().chain(granted) {
        rules.push(
            json!({ "allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm" }),
        );
    }
    rules.push(json!({ "allow": true, "type": "c", "major": TERMINAL_MAJOR, "access": "rwm" }));
    rules
}

/// Weight under contention: 1024 for one core, as everybody expects it; the kernel's floor is 2.
fn shares(hundredths: u32) -> u64 {
    (u64::from(hundredths) * 1024 / 100).max(2)
}
