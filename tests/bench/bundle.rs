//! The OCI bundle for bare `runc run`: the tiny image's files with the namespaces, mounts, limits,
//! capabilities and masks that our own containers get, and a filter of system calls as long as
//! docker's. What runc 1.1 cannot do (a time namespace) is left out, which is in its favour.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

/// Where container tools of the distribution keep the usual list of permitted system calls.
const USUAL_FILTER: &str = "/usr/share/containers/seccomp.json";
/// An id range of its own, away from those of sessions.
const FIRST_ID: u32 = 1 << 29;
const CAPABILITIES: [&str; 10] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
];

/// Writes `config.json` into `bundle`; true where it has a filter of system calls.
pub(super) fn write(bundle: &Path, root: &Path, group: &str, command: &[&str]) -> io::Result<bool> {
    let filter = usual_filter();
    let filtered = filter.is_some();
    let mut linux = json!({
        "namespaces": [
            {"type": "user"}, {"type": "pid"}, {"type": "network"}, {"type": "ipc"},
            {"type": "uts"}, {"type": "mount"}, {"type": "cgroup"},
        ],
        "uidMappings": [{"containerID": 0, "hostID": FIRST_ID, "size": 65536}],
        "gidMappings": [{"containerID": 0, "hostID": FIRST_ID, "size": 65536}],
        "cgroupsPath": group,
        "resources": {
            "devices": [
                {"allow": false, "access": "rwm"},
                {"allow": true, "type": "c", "major": 1, "minor": 3, "access": "rwm"},
                {"allow": true, "type": "c", "major": 1, "minor": 5, "access": "rwm"},
                {"allow": true, "type": "c", "major": 1, "minor": 9, "access": "rwm"},
            ],
            "memory": {"limit": 268_435_456u64, "swap": 268_435_456u64},
            "cpu": {"quota": 100_000, "period": 100_000, "shares": 1024},
            "pids": {"limit": 4096},
        },
        "maskedPaths": [
            "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys",
            "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list",
            "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
        ],
        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
    });
    if let Some(filter) = filter {
        linux["seccomp"] = filter;
    }
    let open_files = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .map_or(1024, |(_, hard)| hard.min(1_048_576));
    let config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": {"uid": 0, "gid": 0},
            "args": command,
            "env": ["PATH=/bin", "HOME=/root"],
            "cwd": "/",
            "capabilities": {
                "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES,
            },
            "rlimits": [
                {"type": "RLIMIT_NOFILE", "soft": open_files, "hard": open_files},
                {"type": "RLIMIT_CORE", "soft": 0, "hard": 0},
            ],
            "noNewPrivileges": true,
            "oomScoreAdj": 200,
        },
        "root": {"path": root, "readonly": false},
        "hostname": "bench",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]},
            {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": ["nosuid", "noexec", "nodev"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
        ],
        "linux": linux,
    });
    fs::create_dir_all(bundle)?;
    fs::write(bundle.join("config.json"), config.to_string())?;
    Ok(filtered)
}

/// Whether a rule's condition holds on this kind of machine without any capability.
fn for_everybody_here(includes: &Value) -> bool {
    includes.as_object().is_none_or(|conditions| {
        conditions.iter().all(|(name, value)| {
            name == "arches"
                && value
                    .as_array()
                    .is_some_and(|arches| arches.iter().any(|arch| arch == "amd64"))
        })
    })
}

/// The calls that the distribution's list permits to everybody, as the runtime wants them; None
/// where there is no list.
fn usual_filter() -> Option<Value> {
    let list: Value = serde_json::from_slice(&fs::read(USUAL_FILTER).ok()?).ok()?;
    let permitted: Vec<Value> = list["syscalls"]
        .as_array()?
        .iter()
        .filter(|rule| rule["action"] == "SCMP_ACT_ALLOW")
        .filter(|rule| rule["args"].as_array().is_none_or(Vec::is_empty))
        .filter(|rule| for_everybody_here(&rule["includes"]))
        .map(|rule| json!({"names": rule["names"], "action": "SCMP_ACT_ALLOW"}))
        .collect();
    Some(json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": permitted,
    }))
}
