//! The checks themselves, in the order a person would mend things.

use std::path::{Path, PathBuf};

use base::settings::Settings;
use nix::errno::Errno;

use rules::checks;
use rules::doctor::{CheckState, DoctorCheck};
use rules::names::VolumeId;
use store::volumes::VolumeShelf;

use super::{existing, gpu, kernel_probe, ports};
use crate::runtime::findings::{ENOUGH_OPEN_FILES, OPEN_FILES};

/// Least kernel: the oldest one that any supported distribution still brings.
const MIN_KERNEL: (u32, u32) = (5, 15);
/// Below this, one image import fills the disk.
const MIN_FREE: u64 = 5 << 30;
/// Below this, a few imports fill the disk.
const COMFORTABLE_FREE: u64 = 30 << 30;
/// A clock before this is wrong: the program did not exist yet. 2026-01-01.
const PROGRAM_EXISTS: u64 = 1_767_225_600;
/// Capability number of CAP_SYS_ADMIN in the kernel's masks.
const CAP_SYS_ADMIN: u32 = 21;

/// Every check, made now.
pub fn all(settings: &Settings) -> Vec<DoctorCheck> {
    let mut checks = vec![root(), kernel(), architecture()];
    checks.extend(cgroups());
    checks.push(user_namespaces());
    checks.push(overlay(settings));
    checks.extend(machine(settings));
    checks.push(seccomp());
    checks.push(open_files());
    checks.push(disk(settings));
    checks.push(state(settings));
    checks.push(folder_limits(settings));
    checks.push(volumes(settings));
    checks.push(run_directory(settings));
    checks.push(ports::console(settings));
    checks.extend(ports::others(settings));
    checks.push(clock());
    checks.push(size());
    checks.push(gpus(settings));
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
        return checks::root_well();
    }
    if is_root() {
        return checks::root_without_capability();
    }
    checks::root_missing()
}

fn kernel() -> DoctorCheck {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|n| n.parse::<u32>().ok());
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if (major, minor) >= MIN_KERNEL {
        return checks::kernel_well(release);
    }
    checks::kernel_old(release)
}

fn architecture() -> DoctorCheck {
    match std::env::consts::ARCH {
        "x86_64" => checks::architecture_well(),
        other => checks::architecture_other(other),
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
        return vec![checks::cgroup_missing()];
    }
    let mut checks = vec![if mode == "v2" {
        checks::cgroup_unified()
    } else {
        checks::cgroup_legacy()
    }];
    let missing: Vec<&str> = WANTED
        .into_iter()
        .filter(|wanted| !offered.iter().any(|o| o == wanted))
        .collect();
    checks.push(if missing.is_empty() {
        checks::controllers_well(WANTED.join(", "))
    } else if missing.contains(&"memory") {
        checks::controllers_without_memory(missing.join(", "))
    } else {
        checks::controllers_missing(missing.join(", "))
    });
    let writable = if mode == "v2" {
        PathBuf::from("/sys/fs/cgroup")
    } else {
        PathBuf::from("/sys/fs/cgroup/memory")
    };
    checks.push(
        match nix::unistd::access(&writable, nix::unistd::AccessFlags::W_OK) {
            Ok(()) => checks::cgroup_write_well(),
            Err(error) => checks::cgroup_write_refused(writable.display(), error.desc()),
        },
    );
    checks
}

fn user_namespaces() -> DoctorCheck {
    match kernel_probe::user_namespace() {
        Ok(()) => checks::user_namespaces_well(),
        Err(errno @ (Errno::ENOSPC | Errno::EUSERS)) => {
            checks::user_namespaces_used_up(errno.desc())
        }
        Err(errno @ Errno::EPERM) => checks::user_namespaces_denied(errno.desc()),
        Err(errno) => checks::user_namespaces_unsupported(errno.desc()),
    }
}

fn overlay(settings: &Settings) -> DoctorCheck {
    let folder = existing(&settings.data);
    match kernel_probe::overlay(folder) {
        Ok(()) => checks::overlay_well(folder.display()),
        Err(Errno::EPERM | Errno::EACCES) if !is_root() => checks::overlay_needs_root(),
        Err(Errno::ENODEV) => checks::overlay_unsupported(),
        Err(Errno::EINVAL) => checks::overlay_file_system(folder.display()),
        Err(errno) => checks::overlay_refused(folder.display(), errno.desc()),
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
        checks.push(checks::id_mapped_mounts_well(folder));
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
        let said = crate::runtime::findings::sentence(&finding.what);
        let state = match finding.prevents_containers {
            true => CheckState::Fail,
            false => CheckState::Warn,
        };
        checks.push(DoctorCheck::from_parts(id, state, said, finding.remedy));
    }
    checks
}

fn seccomp() -> DoctorCheck {
    match kernel_probe::seccomp() {
        Ok(()) => checks::seccomp_well(),
        Err(errno) => checks::seccomp_unsupported(errno.desc()),
    }
}

/// What sessions get: simulated GPUs stand for those of the machine.
fn gpus(settings: &Settings) -> DoctorCheck {
    match &settings.simulate_gpus {
        Some(simulated) => checks::gpu_simulated(simulated),
        None => gpu::cards(&settings.driver_root),
    }
}

/// A session gets the hard limit of the process that starts it, which nothing raises.
fn open_files() -> DoctorCheck {
    let (_, most) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .unwrap_or((0, 0));
    open_files_of(most)
}

fn open_files_of(most: u64) -> DoctorCheck {
    match most >= ENOUGH_OPEN_FILES {
        true => checks::limits_well(most.min(OPEN_FILES)),
        false => checks::limits_low(most, ENOUGH_OPEN_FILES),
    }
}

fn disk(settings: &Settings) -> DoctorCheck {
    let folder = existing(&settings.data);
    let Ok(stat) = nix::sys::statvfs::statvfs(folder) else {
        return checks::disk_unknown(folder.display());
    };
    let free = stat.blocks_available().saturating_mul(stat.fragment_size());
    let shown = rules::units::Bytes(free);
    if free < MIN_FREE {
        checks::disk_full(shown, folder.display())
    } else if free < COMFORTABLE_FREE {
        checks::disk_nearly_full(shown, folder.display())
    } else {
        checks::disk_well(shown, folder.display())
    }
}

/// Whether the kernel can hold folders to their limits. Tries nothing out: a server that runs holds them already.
fn folder_limits(settings: &Settings) -> DoctorCheck {
    let is_native = crate::scopes::is_native(existing(&settings.data));
    let pool = crate::scopes::pool_room(&settings.data);
    if let (false, true, Some((size, free))) = (is_native, is_root(), pool) {
        // It would have grown before, had the disk let it.
        return match free {
            Some(free) if free.0 < size.0 / 10 => checks::folder_limits_pool_short(size, free),
            _ => checks::folder_limits_pool(size),
        };
    }
    match (crate::scopes::missing(), is_root()) {
        (_, true) if is_native => checks::folder_limits_native(),
        (missing, _) if !missing.is_empty() => checks::folder_limits_counted(missing.join(", ")),
        (_, true) => checks::folder_limits_held(),
        (_, false) => checks::folder_limits_need_root(),
    }
}

/// Whether the volumes that folders lie on are there. Costs five seconds for each that does not answer.
fn volumes(settings: &Settings) -> DoctorCheck {
    let shelf = VolumeShelf::of(&settings.data);
    let all = shelf.all().unwrap_or_default();
    let is_gone = |id: &&VolumeId| shelf.look(**id).state.refuse_reading().is_err();
    let gone = all.iter().filter(is_gone);
    let gone: Vec<String> = gone
        .map(|id| match shelf.path(*id) {
            Ok(path) => path.display().to_string(),
            Err(_) => id.to_string(),
        })
        .collect();
    match gone.is_empty() {
        true => checks::volumes_well(all.len()),
        false => checks::volumes_gone(gone.join(", ")),
    }
}

fn state(settings: &Settings) -> DoctorCheck {
    let catalog = settings.data.join("catalog.sqlite");
    if !settings.data.exists() {
        let above = existing(&settings.data);
        let writable = nix::unistd::access(above, nix::unistd::AccessFlags::W_OK).is_ok();
        return if writable {
            checks::state_new(settings.data.display())
        } else {
            checks::state_cannot_be_made(settings.data.display(), above.display())
        };
    }
    if nix::unistd::access(&settings.data, nix::unistd::AccessFlags::W_OK).is_err() {
        return checks::state_not_writable(settings.data.display());
    }
    if std::os::unix::net::UnixStream::connect(settings.socket()).is_ok() {
        return checks::state_in_use(settings.data.display());
    }
    match std::fs::read(&catalog) {
        Ok(bytes) => {
            // Bytes 60 to 63 of an SQLite file are the version its program gave it.
            let version = bytes
                .get(60..64)
                .and_then(|b| <[u8; 4]>::try_from(b).ok())
                .map_or(0, u32::from_be_bytes);
            checks::state_earlier(
                settings.data.display(),
                version,
                rules::units::Bytes(bytes.len() as u64),
            )
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            checks::state_empty(settings.data.display())
        }
        Err(error) => checks::state_unreadable(catalog.display(), error),
    }
}

fn run_directory(settings: &Settings) -> DoctorCheck {
    /// A socket's path has room for 107 bytes in the kernel.
    const MAX_SOCKET_PATH_LENGTH: usize = 107;
    let socket = settings.socket();
    let length = socket.as_os_str().len();
    if length > MAX_SOCKET_PATH_LENGTH {
        return checks::run_directory_too_long(socket.display(), length, MAX_SOCKET_PATH_LENGTH);
    }
    let folder = existing(&settings.run);
    match nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK) {
        Ok(()) => checks::run_directory_well(settings.run.display()),
        Err(error) => checks::run_directory_not_writable(folder.display(), error.desc()),
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
        return checks::clock_past(shown);
    }
    checks::clock_well(shown)
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
    let cores = match cores {
        1 => "1 core".to_owned(),
        cores => format!("{cores} cores"),
    };
    let memory = rules::units::Bytes(total);
    if total < 2 << 30 {
        return checks::machine_small(cores, memory);
    }
    checks::machine_well(cores, memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The node says the same of itself from the same number (`node.lacks.few-open-files`).
    #[test]
    fn the_open_file_check_tells_the_limit_that_sessions_get() {
        for (limit, state, told) in [
            (20_000, CheckState::Warn, "20000"),
            (ENOUGH_OPEN_FILES - 1, CheckState::Warn, "65535"),
            (ENOUGH_OPEN_FILES, CheckState::Ok, "65536"),
            (u64::MAX, CheckState::Ok, "1048576"),
        ] {
            let check = open_files_of(limit);
            assert_eq!((check.id, check.state), ("limits", state), "{limit}");
            assert!(check.found.contains(told), "{}", check.found);
            let names_the_limit = check.fix.contains("LimitNOFILE");
            assert_eq!(names_the_limit, state == CheckState::Warn, "{}", check.fix);
        }
    }

    #[test]
    fn simulated_gpus_are_told_instead_of_none() {
        let mut settings = Settings::read(Default::default(), |_| None).expect("defaults");
        settings.driver_root = PathBuf::from("/nonexistent");
        assert!(gpus(&settings).found.contains("No GPU") || gpus(&settings).found.contains("bus"));
        settings.simulate_gpus = Some("H100:8".to_owned());
        let check = gpus(&settings);
        assert_eq!((check.id, check.state), ("gpu", CheckState::Ok));
        assert!(check.found.contains("simulated: H100:8"), "{}", check.found);
    }
}
