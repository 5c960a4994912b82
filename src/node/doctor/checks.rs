//! The checks themselves, in the order a person would mend things.

use std::path::{Path, PathBuf};

use base::settings::Settings;
use nix::errno::Errno;

use rules::doctor::DoctorCheck;

use super::{existing, gpu, kernel_probe, ports};

/// Least kernel: the oldest one that any supported distribution still brings.
const MIN_KERNEL: (u32, u32) = (5, 15);
/// Below this, one image import fills the disk.
const MIN_FREE: u64 = 5 << 30;
/// Below this, a few imports fill the disk.
const COMFORTABLE_FREE: u64 = 30 << 30;
/// A clock before this is wrong: the program did not exist yet. 2026-01-01.
const PROGRAM_EXISTS: u64 = 1_767_225_600;
/// Capability number of CAP_SYS_RESOURCE and CAP_SYS_ADMIN in the kernel's masks.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;

/// Every check, made now.
pub fn all(settings: &Settings) -> Vec<DoctorCheck> {
    let mut checks = vec![root(), kernel(), architecture()];
    checks.extend(cgroups());
    checks.push(user_namespaces());
    checks.push(overlay(settings));
    checks.extend(machine(settings));
    checks.push(seccomp());
    checks.push(capability_to_raise());
    checks.push(disk(settings));
    checks.push(state(settings));
    checks.push(run_directory(settings));
    checks.push(ports::console(settings));
    checks.extend(ports::others(settings));
    checks.push(clock());
    checks.push(size());
    checks.push(gpu::cards(&settings.driver_root));
    checks.push(gpu::accelerators(Path::new("/")));
    checks
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn effective(capability: u32) -> bool {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let mask = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        })
        .is_some_and(|mask| mask & (1 << capability) != 0)
}

fn root() -> DoctorCheck {
    if is_root() && effective(CAP_SYS_ADMIN) {
        return DoctorCheck::ok("root", "This runs as root.");
    }
    if is_root() {
        return DoctorCheck::fail(
            "root",
            "This runs as root, but without CAP_SYS_ADMIN: a container around it took it away.",
            "Run on the machine itself, or give the container CAP_SYS_ADMIN (--privileged).",
        );
    }
    DoctorCheck::fail(
        "root",
        "This does not run as root; sessions need namespaces, mounts and control groups of the machine.",
        "sudo fardel doctor, and start the server as root. Pages and API work without.",
    )
}

fn kernel() -> DoctorCheck {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|n| n.parse::<u32>().ok());
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if (major, minor) >= MIN_KERNEL {
        return DoctorCheck::ok("kernel", format!("Linux {release}."));
    }
    DoctorCheck::fail(
        "kernel",
        format!("Linux {release} is older than 5.15."),
        "Install a newer kernel: Debian 12, Ubuntu 22.04 and RHEL 9.4 bring one; \
         on older Ubuntu: apt install linux-generic-hwe-20.04.",
    )
}

fn architecture() -> DoctorCheck {
    match std::env::consts::ARCH {
        "x86_64" => DoctorCheck::ok("architecture", "x86-64."),
        other => DoctorCheck::fail(
            "architecture",
            format!("{other} is not supported."),
            "Use a machine with an x86-64 processor.",
        ),
    }
}

/// The file system types mounted below /sys/fs/cgroup, with what is mounted where.
fn cgroup_mounts() -> Vec<(String, String, String)> {
    std::fs::read_to_string("/proc/self/mounts")
        .unwrap_or_default()
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (at, kind, options) = (words.next()?, words.next()?, words.next()?);
            kind.starts_with("cgroup")
                .then(|| (at.to_owned(), kind.to_owned(), options.to_owned()))
        })
        .collect()
}

fn cgroups() -> Vec<DoctorCheck> {
    const WANTED: [&str; 4] = ["cpu", "memory", "pids", "cpuset"];
    let mounts = cgroup_mounts();
    let unified = mounts
        .iter()
        .find(|(at, kind, _)| kind == "cgroup2" && at == "/sys/fs/cgroup");
    let (mode, offered): (&str, Vec<String>) = if unified.is_some() {
        let list = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
        ("v2", list.split_whitespace().map(str::to_owned).collect())
    } else {
        let mut offered = Vec::new();
        for (_, _, options) in mounts.iter().filter(|(_, kind, _)| kind == "cgroup") {
            offered.extend(options.split(',').map(str::to_owned));
        }
        ("v1", offered)
    };
    if mounts.is_empty() {
        return vec![DoctorCheck::fail(
            "cgroup",
            "No control groups are mounted, so no limit can be held.",
            "mount -t cgroup2 none /sys/fs/cgroup, or start the machine with systemd.",
        )];
    }
    let mut checks = vec![if mode == "v2" {
        DoctorCheck::ok("cgroup", "Control groups version 2.")
    } else {
        DoctorCheck::warn(
            "cgroup",
            "Control groups version 1: limits hold, but pressure is not measured and devices are fenced the old way.",
            "Start the kernel with systemd.unified_cgroup_hierarchy=1 (not needed for work).",
        )
    }];
    let missing: Vec<&str> = WANTED
        .into_iter()
        .filter(|wanted| !offered.iter().any(|o| o == wanted))
        .collect();
    checks.push(if missing.is_empty() {
        DoctorCheck::ok("controllers", format!("{} are there.", WANTED.join(", ")))
    } else if missing.contains(&"memory") {
        DoctorCheck::fail(
            "controllers",
            format!(
                "Missing: {}; memory limits cannot be held.",
                missing.join(", ")
            ),
            "Start the kernel with cgroup_enable=memory swapaccount=1.",
        )
    } else {
        DoctorCheck::warn(
            "controllers",
            format!(
                "Missing: {}; these limits are not held.",
                missing.join(", ")
            ),
            "Enable them in the parent's cgroup.subtree_control, or mount them (version 1).",
        )
    });
    let writable = if mode == "v2" {
        PathBuf::from("/sys/fs/cgroup")
    } else {
        PathBuf::from("/sys/fs/cgroup/memory")
    };
    checks.push(
        match nix::unistd::access(&writable, nix::unistd::AccessFlags::W_OK) {
            Ok(()) => DoctorCheck::ok("cgroup-write", "Control groups can be made."),
            Err(error) => DoctorCheck::fail(
                "cgroup-write",
                format!(
                    "{} cannot be written ({}).",
                    writable.display(),
                    error.desc()
                ),
                "Run as root on the machine itself; in a container, mount /sys/fs/cgroup writable.",
            ),
        },
    );
    checks
}

fn user_namespaces() -> DoctorCheck {
    match kernel_probe::user_namespace() {
        Ok(()) => DoctorCheck::ok("user-namespaces", "User namespaces can be made."),
        Err(errno) => {
            let fix = match errno {
                Errno::ENOSPC | Errno::EUSERS => "sysctl -w user.max_user_namespaces=15000",
                Errno::EPERM => {
                    "sysctl -w kernel.unprivileged_userns_clone=1; on Ubuntu 24.04 also \
                     kernel.apparmor_restrict_unprivileged_userns=0. In a container, its seccomp \
                     profile must allow unshare."
                }
                _ => "Use a kernel built with CONFIG_USER_NS.",
            };
            DoctorCheck::fail(
                "user-namespaces",
                format!("No user namespace can be made ({}).", errno.desc()),
                fix,
            )
        }
    }
}

fn overlay(settings: &Settings) -> DoctorCheck {
    let folder = existing(&settings.data);
    match kernel_probe::overlay(folder) {
        Ok(()) => DoctorCheck::ok(
            "overlay",
            format!("Overlays can be mounted on {}.", folder.display()),
        ),
        Err(Errno::EPERM | Errno::EACCES) if !is_root() => DoctorCheck::fail(
            "overlay",
            "Only root can try whether overlays can be mounted.",
            "sudo fardel doctor",
        ),
        Err(Errno::ENODEV) => DoctorCheck::fail(
            "overlay",
            "This kernel has no overlay file system.",
            "modprobe overlay, and add overlay to /etc/modules-load.d/overlay.conf.",
        ),
        Err(Errno::EINVAL) => DoctorCheck::fail(
            "overlay",
            format!(
                "{} cannot carry an overlay: its file system lacks what overlays need.",
                folder.display()
            ),
            "Put FARDEL_DATA on ext4, XFS (ftype=1) or btrfs; not on NFS, FAT or another overlay.",
        ),
        Err(errno) => DoctorCheck::fail(
            "overlay",
            format!(
                "No overlay can be mounted on {} ({}).",
                folder.display(),
                errno.desc()
            ),
            "Put FARDEL_DATA on a local disk that root may write, and allow mounts here.",
        ),
    }
}

/// What the runtime itself finds lacking, beyond what the other checks look at with more care.
fn machine(settings: &Settings) -> Vec<DoctorCheck> {
    if !is_root() {
        return Vec::new();
    }
    let found = crate::runtime::Runtime::look(existing(&settings.data));
    let lacks = |code: &str| found.iter().any(|finding| finding.code == code);
    let mut checks = Vec::new();
    if !lacks("no_idmapped_mounts") && !lacks("no_user_namespaces") {
        let folder = existing(&settings.data).display();
        let said = format!("Files on {folder} can be shown to sessions under their own ids.");
        checks.push(DoctorCheck::ok("id-mapped-mounts", said));
    }
    for finding in found {
        let id = match finding.code.as_str() {
            "no_idmapped_mounts" => "id-mapped-mounts",
            "no_time_namespace" => "time-namespaces",
            "missing_controllers" => "fences",
            "cannot_protect_shims" => "shims",
            _ => continue,
        };
        if checks.iter().any(|check: &DoctorCheck| check.id == id) {
            continue;
        }
        let mut said = finding.what;
        if let Some(first) = said.get(..1).map(str::to_uppercase) {
            said.replace_range(..1, &first);
        }
        said.push('.');
        checks.push(if finding.prevents_containers {
            DoctorCheck::fail(id, said, finding.remedy)
        } else {
            DoctorCheck::warn(id, said, finding.remedy)
        });
    }
    checks
}

fn seccomp() -> DoctorCheck {
    match kernel_probe::seccomp() {
        Ok(()) => DoctorCheck::ok("seccomp", "System call filters are there."),
        Err(errno) => DoctorCheck::fail(
            "seccomp",
            format!(
                "This kernel takes no system call filters ({}).",
                errno.desc()
            ),
            "Use a kernel built with CONFIG_SECCOMP_FILTER.",
        ),
    }
}

fn capability_to_raise() -> DoctorCheck {
    if effective(CAP_SYS_RESOURCE) {
        return DoctorCheck::ok("limits", "Resource limits can be raised.");
    }
    let (_, most) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .unwrap_or((0, 0));
    DoctorCheck::warn(
        "limits",
        format!("CAP_SYS_RESOURCE is missing; sessions get at most {most} open files each."),
        "Give the server CAP_SYS_RESOURCE (systemd units have it), or start it with a higher ulimit -n.",
    )
}

fn disk(settings: &Settings) -> DoctorCheck {
    let folder = existing(&settings.data);
    let Ok(stat) = nix::sys::statvfs::statvfs(folder) else {
        return DoctorCheck::warn(
            "disk",
            format!("The free space of {} is not known.", folder.display()),
            "Put FARDEL_DATA on a local disk.",
        );
    };
    let free = stat.blocks_available().saturating_mul(stat.fragment_size());
    let said = format!(
        "{} free on {}.",
        rules::units::Bytes(free),
        folder.display()
    );
    let fix = "Make room, or move the state: FARDEL_DATA=/big/disk/fardel.";
    if free < MIN_FREE {
        DoctorCheck::fail("disk", said, fix)
    } else if free < COMFORTABLE_FREE {
        DoctorCheck::warn("disk", said, fix)
    } else {
        DoctorCheck::ok("disk", said)
    }
}

fn state(settings: &Settings) -> DoctorCheck {
    let catalog = settings.data.join("catalog.sqlite");
    if !settings.data.exists() {
        let above = existing(&settings.data);
        let writable = nix::unistd::access(above, nix::unistd::AccessFlags::W_OK).is_ok();
        return if writable {
            DoctorCheck::ok(
                "state",
                format!(
                    "{} does not exist yet; the server makes it.",
                    settings.data.display()
                ),
            )
        } else {
            DoctorCheck::fail(
                "state",
                format!(
                    "{} cannot be made: {} is not writable.",
                    settings.data.display(),
                    above.display()
                ),
                "Run as root, or choose another place: FARDEL_DATA=$HOME/fardel.",
            )
        };
    }
    if nix::unistd::access(&settings.data, nix::unistd::AccessFlags::W_OK).is_err() {
        return DoctorCheck::fail(
            "state",
            format!("{} cannot be written.", settings.data.display()),
            "Run as the user that owns it, or choose another place: FARDEL_DATA=$HOME/fardel.",
        );
    }
    if std::os::unix::net::UnixStream::connect(settings.socket()).is_ok() {
        let said = format!(
            "{} is in use by the server that runs now.",
            settings.data.display()
        );
        return DoctorCheck::ok("state", said);
    }
    match std::fs::read(&catalog) {
        Ok(bytes) => {
            // Bytes 60 to 63 of an SQLite file are the version its program gave it.
            let version = bytes
                .get(60..64)
                .and_then(|b| <[u8; 4]>::try_from(b).ok())
                .map_or(0, u32::from_be_bytes);
            let said = format!(
                "{} holds the state of an earlier server, version {version}, {}; it is taken over.",
                settings.data.display(),
                rules::units::Bytes(bytes.len() as u64)
            );
            DoctorCheck::ok("state", said)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => DoctorCheck::ok(
            "state",
            format!(
                "{} is writable and holds no state yet.",
                settings.data.display()
            ),
        ),
        Err(error) => DoctorCheck::fail(
            "state",
            format!("{} cannot be read ({error}).", catalog.display()),
            "Run as the user that owns it, or choose another place: FARDEL_DATA=$HOME/fardel.",
        ),
    }
}

fn run_directory(settings: &Settings) -> DoctorCheck {
    /// A socket's path has room for 107 bytes in the kernel.
    const MAX_SOCKET_PATH_LENGTH: usize = 107;
    let socket = settings.socket();
    let length = socket.as_os_str().len();
    if length > MAX_SOCKET_PATH_LENGTH {
        return DoctorCheck::fail(
            "run-directory",
            format!(
                "{} has {length} bytes; a socket's path has at most {MAX_SOCKET_PATH_LENGTH}.",
                socket.display()
            ),
            "Choose a shorter FARDEL_RUN, such as /run/fardel.",
        );
    }
    let folder = existing(&settings.run);
    match nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK) {
        Ok(()) => DoctorCheck::ok(
            "run-directory",
            format!("{} can be used.", settings.run.display()),
        ),
        Err(error) => DoctorCheck::fail(
            "run-directory",
            format!("{} cannot be written ({}).", folder.display(), error.desc()),
            "Run as root, or choose another place: FARDEL_RUN=$HOME/fardel-run.",
        ),
    }
}

fn clock() -> DoctorCheck {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let shown = i64::try_from(now)
        .ok()
        .and_then(|s| jiff::Timestamp::from_second(s).ok())
        .map_or_else(|| now.to_string(), |t| t.to_string());
    if now < PROGRAM_EXISTS {
        return DoctorCheck::fail(
            "clock",
            format!("The clock says {shown}, which is past."),
            "timedatectl set-time 'YYYY-MM-DD hh:mm:ss', then hwclock --systohc.",
        );
    }
    DoctorCheck::ok("clock", format!("It is {shown}."))
}

fn size() -> DoctorCheck {
    let total = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text
                .lines()
                .find_map(|l| l.strip_prefix("MemTotal:"))?
                .to_owned();
            line.split_whitespace().next()?.parse::<u64>().ok()
        })
        .unwrap_or(0)
        << 10;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let word = if cores == 1 { "core" } else { "cores" };
    let said = format!("{cores} {word} and {}.", rules::units::Bytes(total));
    if total < 2 << 30 {
        return DoctorCheck::warn(
            "machine",
            said,
            "Add memory: below 2 GiB few sessions fit beside the server.",
        );
    }
    DoctorCheck::ok("machine", said)
}
