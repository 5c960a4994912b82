//! Checks that read what the kernel tells about itself and the disk of the state. They look below a
//! root that tests can plant faults in; none of them changes anything.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rules::checks;
use rules::doctor::DoctorCheck;

use super::existing;
use crate::relay::Relay;

/// Files that may be open on the whole machine, in parts of a hundred, before it is said.
const CROWDED_PERCENT: u64 = 80;
/// A full catalog writes its log back every few thousand pages; one this large never got around to it.
const MAX_LOG_BYTES: u64 = 256 << 20;
/// Seconds that a file may be newer than the clock: two machines that share a disk differ by less.
const FUTURE_SECONDS: i64 = 300;

/// Where to look.
pub struct Host<'a> {
    /// `/`, or a planted one.
    pub root: &'a Path,
    /// Directory of the state, as settings name it.
    pub data: &'a Path,
    /// Now, in seconds since 1970.
    pub now: i64,
}

impl Host<'_> {
    /// Every check of this file.
    pub fn all(&self) -> Vec<DoctorCheck> {
        vec![
            self.owner(),
            self.file_system(),
            self.inodes(),
            self.mount_options(),
            self.disk_faults(),
            self.catalog_file(),
            self.catalog_log(),
            self.clock_and_state(),
            self.time_sync(),
            self.open_files(),
            self.processes(),
            self.watches(),
            self.namespaces(),
            self.overcommit(),
            self.swap(),
            self.memory_pressure(),
            self.killed_for_memory(),
            self.randomness(),
            self.host_name(),
            self.address(),
            self.ids(),
            self.holder(),
            self.relay(),
            self.restart_wanted(),
        ]
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.split_whitespace().next()?.parse().ok()
    }

    fn owner(&self) -> DoctorCheck {
        let shown = self.data.display();
        match fs::metadata(self.data) {
            Err(_) => checks::state_owner_new(shown),
            Ok(meta) if meta.uid() != nix::unistd::geteuid().as_raw() => {
                checks::state_owner_other(shown, meta.uid())
            }
            Ok(meta) if meta.mode() & 0o022 != 0 => {
                checks::state_owner_writable(shown, format!("{:o}", meta.mode() & 0o7777))
            }
            Ok(meta) if meta.mode() & 0o007 != 0 => {
                checks::state_owner_readable(shown, format!("{:o}", meta.mode() & 0o7777))
            }
            Ok(_) => checks::state_owner_well(shown),
        }
    }

    fn file_system(&self) -> DoctorCheck {
        match nix::sys::statfs::statfs(existing(self.data)) {
            Ok(found) => file_system_of(found.filesystem_type().0, self.data),
            Err(error) => checks::state_disk_unknown(self.data.display(), error.desc()),
        }
    }

    fn inodes(&self) -> DoctorCheck {
        let Ok(found) = nix::sys::statvfs::statvfs(existing(self.data)) else {
            return checks::inodes_unknown();
        };
        let (all, free) = (found.files(), found.files_available());
        // File systems that make them as needed say 0.
        if all == 0 || free * 20 > all {
            return checks::inodes_well();
        }
        checks::inodes_few(free)
    }

    /// Options of the mount that holds the state.
    fn mount_options(&self) -> DoctorCheck {
        let mounts = self.text("proc/self/mounts").unwrap_or_default();
        let options = mounts
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ').skip(1);
                let (at, _, options) = (words.next()?, words.next()?, words.next()?);
                self.data.starts_with(at).then_some((at, options))
            })
            .max_by_key(|(at, _)| at.len());
        let has =
            |wanted: &str| options.is_some_and(|(_, all)| all.split(',').any(|one| one == wanted));
        let at = options.map_or("/", |(at, _)| at);
        if has("ro") {
            return checks::state_mount_read_only(at);
        }
        if has("noexec") {
            return checks::state_mount_noexec(at);
        }
        checks::state_mount_well(at)
    }

    fn disk_faults(&self) -> DoctorCheck {
        let broken: Vec<String> = fs::read_dir(self.root.join("sys/fs/ext4"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|disk| {
                let count: u64 = fs::read_to_string(disk.path().join("errors_count"))
                    .ok()?
                    .trim()
                    .parse()
                    .ok()?;
                (count > 0).then(|| format!("{} ({count})", disk.file_name().to_string_lossy()))
            })
            .collect();
        if broken.is_empty() {
            return checks::disk_faults_none();
        }
        checks::disk_faults_recorded(broken.join(", "))
    }

    fn catalog(&self) -> PathBuf {
        self.data.join("catalog.sqlite")
    }

    fn catalog_file(&self) -> DoctorCheck {
        let path = self.catalog();
        let head = fs::File::open(&path).and_then(|mut file| {
            let mut head = [0u8; 100];
            std::io::Read::read_exact(&mut file, &mut head)?;
            Ok((head, file.metadata()?.len()))
        });
        match head {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => checks::catalog_new(),
            Err(error) => checks::catalog_unreadable(path.display(), error),
            Ok((head, length)) => {
                let page = match u16::from_be_bytes([head[16], head[17]]) {
                    1 => 65_536,
                    size => u64::from(size),
                };
                let whole =
                    head.starts_with(b"SQLite format 3\0") && page >= 512 && length % page == 0;
                if whole {
                    checks::catalog_well(rules::units::Bytes(length))
                } else {
                    checks::catalog_cut(path.display())
                }
            }
        }
    }

    fn catalog_log(&self) -> DoctorCheck {
        let length =
            fs::metadata(self.data.join("catalog.sqlite-wal")).map_or(0, |meta| meta.len());
        if length <= MAX_LOG_BYTES {
            return checks::catalog_log_well();
        }
        checks::catalog_log_long(rules::units::Bytes(length))
    }

    /// A clock that was set back makes new rows older than old ones.
    fn clock_and_state(&self) -> DoctorCheck {
        let newest = ["catalog.sqlite", "catalog.sqlite-wal"]
            .iter()
            .filter_map(|name| fs::metadata(self.data.join(name)).ok())
            .map(|meta| meta.mtime())
            .max();
        match newest {
            Some(newest) if newest > self.now + FUTURE_SECONDS => {
                checks::clock_and_state_behind((newest - self.now) / 3600)
            }
            Some(_) => checks::clock_and_state_well(),
            None => checks::clock_and_state_new(),
        }
    }

    fn time_sync(&self) -> DoctorCheck {
        // A time service leaves a trace; without one, none runs.
        let traces = [
            "run/systemd/timesync/synchronized",
            "run/chrony/chronyd.pid",
            "run/chrony",
            "run/ntpd.pid",
        ];
        if traces.iter().any(|trace| self.root.join(trace).exists()) {
            return checks::time_sync_well();
        }
        checks::time_sync_none()
    }

    fn open_files(&self) -> DoctorCheck {
        let text = self.text("proc/sys/fs/file-nr").unwrap_or_default();
        let mut numbers = text
            .split_whitespace()
            .filter_map(|word| word.parse::<u64>().ok());
        let (open, most) = (
            numbers.next().unwrap_or(0),
            numbers.nth(1).unwrap_or(u64::MAX),
        );
        if open < most / 100 * CROWDED_PERCENT {
            return checks::open_files_well(open);
        }
        checks::open_files_many(open, most)
    }

    fn processes(&self) -> DoctorCheck {
        match self.number("proc/sys/kernel/pid_max") {
            Some(most) if most < 65_536 => checks::process_numbers_few(most),
            Some(most) => checks::process_numbers_well(most),
            None => checks::process_numbers_unknown(),
        }
    }

    fn watches(&self) -> DoctorCheck {
        match self.number("proc/sys/fs/inotify/max_user_instances") {
            Some(most) if most < 512 => checks::file_watches_few(most),
            _ => checks::file_watches_well(),
        }
    }

    fn namespaces(&self) -> DoctorCheck {
        match self.number("proc/sys/user/max_user_namespaces") {
            Some(most) if most < 1000 => checks::namespace_count_few(most),
            _ => checks::namespace_count_well(),
        }
    }

    fn overcommit(&self) -> DoctorCheck {
        match self.number("proc/sys/vm/overcommit_memory") {
            Some(2) => checks::overcommit_strict(),
            _ => checks::overcommit_well(),
        }
    }

    fn swap(&self) -> DoctorCheck {
        let text = self.text("proc/meminfo").unwrap_or_default();
        let read = |name: &str| {
            text.lines()
                .find_map(|line| {
                    line.strip_prefix(name)?
                        .split_whitespace()
                        .next()?
                        .parse::<u64>()
                        .ok()
                })
                .unwrap_or(0)
        };
        let (all, free) = (read("SwapTotal:"), read("SwapFree:"));
        let used = all.saturating_sub(free);
        if all > 0 && used > all / 2 {
            return checks::swap_used(
                rules::units::Bytes(used << 10),
                rules::units::Bytes(all << 10),
            );
        }
        match all {
            0 => checks::swap_none(),
            all => checks::swap_well(rules::units::Bytes(all << 10)),
        }
    }

    fn memory_pressure(&self) -> DoctorCheck {
        let share = self.text("proc/pressure/memory").and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("full"))?;
            line.split_whitespace()
                .find_map(|word| word.strip_prefix("avg60=")?.parse::<f64>().ok())
        });
        match share {
            None => checks::memory_pressure_unknown(),
            Some(share) if share > 10.0 => checks::memory_pressure_high(format!("{share:.0}")),
            Some(_) => checks::memory_pressure_well(),
        }
    }

    fn killed_for_memory(&self) -> DoctorCheck {
        let killed = self
            .text("proc/vmstat")
            .and_then(|text| {
                text.lines()
                    .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok())
            })
            .unwrap_or(0);
        match killed {
            0 => checks::killed_for_memory_none(),
            1 => checks::killed_for_memory_one(),
            n => checks::killed_for_memory_some(n),
        }
    }

    fn randomness(&self) -> DoctorCheck {
        match self.number("proc/sys/kernel/random/entropy_avail") {
            Some(bits) if bits < 128 => checks::randomness_little(bits),
            _ => checks::randomness_well(),
        }
    }

    fn host_name(&self) -> DoctorCheck {
        let name = self.text("proc/sys/kernel/hostname").unwrap_or_default();
        match name.trim() {
            "" | "localhost" | "(none)" => checks::host_name_none(),
            name => checks::host_name_well(name),
        }
    }

    fn address(&self) -> DoctorCheck {
        let cards = crate::host_network::interfaces(self.root);
        let addresses: Vec<&str> = cards
            .iter()
            .flat_map(|card| &card.addresses)
            .map(String::as_str)
            .collect();
        if addresses.is_empty() {
            return checks::address_none();
        }
        checks::address_well(addresses.join(", "))
    }

    /// Ids that sessions use must belong to no account of the machine.
    fn ids(&self) -> DoctorCheck {
        let ours = crate::session_ids();
        let text = self.text("etc/passwd").unwrap_or_default();
        let inside = text.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let id: u64 = fields.nth(1)?.parse().ok()?;
            ours.contains(&id).then(|| format!("{name} ({id})"))
        });
        match inside {
            Some(who) => checks::session_ids_taken(who),
            None => checks::session_ids_well(ours.start, ours.end - 1),
        }
    }

    fn holder(&self) -> DoctorCheck {
        if !self.root.join("run/systemd/system").exists() {
            return checks::holder_without_systemd();
        }
        if !self
            .root
            .join("usr/lib/systemd/system/fardel-sessions.service")
            .exists()
            && !self
                .root
                .join("etc/systemd/system/fardel-sessions.service")
                .exists()
        {
            return checks::holder_not_installed();
        }
        let group = "sys/fs/cgroup/fardel.slice/fardel-sessions.service";
        if self.root.join(group).exists()
            || !self.root.join("sys/fs/cgroup/cgroup.controllers").exists()
        {
            return checks::holder_well();
        }
        checks::holder_missing()
    }

    fn relay(&self) -> DoctorCheck {
        let run = self.root.join("run/fardel");
        if Relay::answers(&run) {
            return checks::relay_well();
        }
        let unit = "systemd/system/fardel-relay.service";
        let mut places = ["usr/lib", "lib", "etc"].into_iter();
        let is_installed = places.any(|place| self.root.join(place).join(unit).exists());
        let is_managed = is_installed && self.root.join("run/systemd/system").exists();
        match is_managed || Relay::has_socket(&run) {
            true => checks::relay_missing(),
            false => checks::relay_idle(),
        }
    }

    fn restart_wanted(&self) -> DoctorCheck {
        if self.root.join("run/reboot-required").exists()
            || self.root.join("var/run/reboot-required").exists()
        {
            return checks::restart_due();
        }
        checks::restart_not_wanted()
    }
}

/// Whether a file system of that kind may hold the state.
fn file_system_of(magic: i64, data: &Path) -> DoctorCheck {
    let shown = data.display();
    let far = match magic {
        0x6969 => Some("NFS"),
        0xff53_4d42 | 0xfe53_4d42 => Some("a Windows share"),
        0x0102_1997 => Some("9p"),
        0x6573_5546 => Some("FUSE"),
        0x00c3_6400 => Some("CephFS"),
        0x0bd0_0bd0 => Some("Lustre"),
        _ => None,
    };
    if let Some(far) = far {
        return checks::state_disk_remote(shown, far);
    }
    if magic == 0x0102_1994 || magic == 0x8584_58f6 {
        return checks::state_disk_memory(shown);
    }
    checks::state_disk_well(shown)
}

#[cfg(test)]
mod tests;
