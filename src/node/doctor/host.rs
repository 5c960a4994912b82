//! Checks that read what the kernel tells about itself and the disk of the state. They look below a
//! root that tests can plant faults in; none of them changes anything.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rules::doctor::DoctorCheck;

use super::existing;

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
        const ID: &str = "state-owner";
        let shown = self.data.display();
        match fs::metadata(self.data) {
            Err(_) => DoctorCheck::ok(ID, format!("{shown} does not exist yet.")),
            Ok(meta) if meta.uid() != nix::unistd::geteuid().as_raw() => DoctorCheck::fail(
                ID,
                format!(
                    "{shown} belongs to user {}, not to the one who runs this.",
                    meta.uid()
                ),
                format!(
                    "Run as that user, or: chown -R root:root {shown} (ends nothing, changes no contents)."
                ),
            ),
            Ok(meta) if meta.mode() & 0o022 != 0 => DoctorCheck::fail(
                ID,
                format!(
                    "{shown} can be written by others (mode {:o}).",
                    meta.mode() & 0o7777
                ),
                format!("chmod 0750 {shown}"),
            ),
            Ok(meta) if meta.mode() & 0o007 != 0 => DoctorCheck::warn(
                ID,
                format!(
                    "{shown} can be read by every user of this machine (mode {:o}).",
                    meta.mode() & 0o7777
                ),
                format!("chmod 0750 {shown}"),
            ),
            Ok(_) => DoctorCheck::ok(ID, format!("{shown} is closed to others.")),
        }
    }

    fn file_system(&self) -> DoctorCheck {
        match nix::sys::statfs::statfs(existing(self.data)) {
            Ok(found) => file_system_of(found.filesystem_type().0, self.data),
            Err(error) => DoctorCheck::warn(
                "state-disk",
                format!(
                    "The file system of {} is not known ({}).",
                    self.data.display(),
                    error.desc()
                ),
                "Put FARDEL_DATA on a local disk.",
            ),
        }
    }

    fn inodes(&self) -> DoctorCheck {
        const ID: &str = "inodes";
        let Ok(found) = nix::sys::statvfs::statvfs(existing(self.data)) else {
            return DoctorCheck::warn(
                ID,
                "How many files the disk can still hold is not known.",
                "Put FARDEL_DATA on a local disk.",
            );
        };
        let (all, free) = (found.files(), found.files_available());
        // File systems that make them as needed say 0.
        if all == 0 || free * 20 > all {
            return DoctorCheck::ok(ID, "The disk has room for more files.");
        }
        DoctorCheck::warn(
            ID,
            format!("The disk has room for only {free} more files."),
            "Remove unused images, or move the state to a file system with more inodes.",
        )
    }

    /// Options of the mount that holds the state.
    fn mount_options(&self) -> DoctorCheck {
        const ID: &str = "state-mount";
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
            return DoctorCheck::fail(
                ID,
                format!("{at} is mounted read-only; nothing can be written."),
                format!("Look for disk errors (dmesg), then: mount -o remount,rw {at}"),
            );
        }
        if has("noexec") {
            return DoctorCheck::fail(
                ID,
                format!("{at} is mounted noexec; no program of an image can start."),
                format!("Remove noexec from /etc/fstab, then: mount -o remount,exec {at}"),
            );
        }
        DoctorCheck::ok(ID, format!("{at} is mounted for writing and running."))
    }

    fn disk_faults(&self) -> DoctorCheck {
        const ID: &str = "disk-faults";
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
            return DoctorCheck::ok(ID, "No file system has recorded a fault.");
        }
        DoctorCheck::fail(
            ID,
            format!("Faults were recorded on {}.", broken.join(", ")),
            "Save what matters (fardel backup), then check the disk: smartctl -a, and fsck while it is not mounted.",
        )
    }

    fn catalog(&self) -> PathBuf {
        self.data.join("catalog.sqlite")
    }

    fn catalog_file(&self) -> DoctorCheck {
        const ID: &str = "catalog";
        let path = self.catalog();
        let head = fs::File::open(&path).and_then(|mut file| {
            let mut head = [0u8; 100];
            std::io::Read::read_exact(&mut file, &mut head)?;
            Ok((head, file.metadata()?.len()))
        });
        let fix = "Restore the newest backup (fardel backup restore), or the copy beside it: fardel upgrade rollback.";
        match head {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                DoctorCheck::ok(ID, "There is no catalog yet.")
            }
            Err(error) => DoctorCheck::fail(
                ID,
                format!("{} cannot be read ({error}).", path.display()),
                fix,
            ),
            Ok((head, length)) => {
                let page = match u16::from_be_bytes([head[16], head[17]]) {
                    1 => 65_536,
                    size => u64::from(size),
                };
                let whole =
                    head.starts_with(b"SQLite format 3\0") && page >= 512 && length % page == 0;
                if whole {
                    DoctorCheck::ok(
                        ID,
                        format!("The catalog has {}.", rules::units::Bytes(length)),
                    )
                } else {
                    DoctorCheck::fail(
                        ID,
                        format!("{} is cut or is not a catalog.", path.display()),
                        fix,
                    )
                }
            }
        }
    }

    fn catalog_log(&self) -> DoctorCheck {
        const ID: &str = "catalog-log";
        let length =
            fs::metadata(self.data.join("catalog.sqlite-wal")).map_or(0, |meta| meta.len());
        if length <= MAX_LOG_BYTES {
            return DoctorCheck::ok(ID, "The catalog's log is short.");
        }
        DoctorCheck::warn(
            ID,
            format!(
                "The catalog's log has grown to {}.",
                rules::units::Bytes(length)
            ),
            "Start the server again (systemctl restart fardel); sessions go on, and the log is written back.",
        )
    }

    /// A clock that was set back makes new rows older than old ones.
    fn clock_and_state(&self) -> DoctorCheck {
        const ID: &str = "clock-and-state";
        let newest = ["catalog.sqlite", "catalog.sqlite-wal"]
            .iter()
            .filter_map(|name| fs::metadata(self.data.join(name)).ok())
            .map(|meta| meta.mtime())
            .max();
        match newest {
            Some(newest) if newest > self.now + FUTURE_SECONDS => DoctorCheck::fail(
                ID,
                format!(
                    "The state was last written {} hours in the future: the clock was set back.",
                    (newest - self.now) / 3600
                ),
                "Set the clock right before work goes on: timedatectl set-time 'YYYY-MM-DD hh:mm:ss'.",
            ),
            Some(_) => DoctorCheck::ok(ID, "The clock is not behind the state."),
            None => DoctorCheck::ok(ID, "There is no state yet to compare the clock with."),
        }
    }

    fn time_sync(&self) -> DoctorCheck {
        const ID: &str = "time-sync";
        // A time service leaves a trace; without one, none runs.
        let traces = [
            "run/systemd/timesync/synchronized",
            "run/chrony/chronyd.pid",
            "run/chrony",
            "run/ntpd.pid",
        ];
        if traces.iter().any(|trace| self.root.join(trace).exists()) {
            return DoctorCheck::ok(ID, "The clock is kept by the network.");
        }
        DoctorCheck::warn(
            ID,
            "Nothing keeps the clock; it will drift by seconds a week.",
            "Name a time server of your network: /etc/systemd/timesyncd.conf, or install chrony. Without one, set it now and then.",
        )
    }

    fn open_files(&self) -> DoctorCheck {
        const ID: &str = "open-files";
        let text = self.text("proc/sys/fs/file-nr").unwrap_or_default();
        let mut numbers = text
            .split_whitespace()
            .filter_map(|word| word.parse::<u64>().ok());
        let (open, most) = (
            numbers.next().unwrap_or(0),
            numbers.nth(1).unwrap_or(u64::MAX),
        );
        if open < most / 100 * CROWDED_PERCENT {
            return DoctorCheck::ok(ID, format!("{open} files are open on the machine."));
        }
        DoctorCheck::warn(
            ID,
            format!("{open} of {most} files that the machine may open are open."),
            "sysctl -w fs.file-max=2097152",
        )
    }

    fn processes(&self) -> DoctorCheck {
        const ID: &str = "process-numbers";
        match self.number("proc/sys/kernel/pid_max") {
            Some(most) if most < 65_536 => DoctorCheck::warn(
                ID,
                format!("The machine has {most} process numbers for all sessions together."),
                "sysctl -w kernel.pid_max=4194304",
            ),
            Some(most) => DoctorCheck::ok(ID, format!("The machine has {most} process numbers.")),
            None => DoctorCheck::warn(
                ID,
                "How many processes there may be is not known.",
                "Mount /proc.",
            ),
        }
    }

    fn watches(&self) -> DoctorCheck {
        const ID: &str = "file-watches";
        match self.number("proc/sys/fs/inotify/max_user_instances") {
            Some(most) if most < 512 => DoctorCheck::warn(
                ID,
                format!(
                    "One user may watch files {most} times; editors in many sessions need more."
                ),
                "sysctl -w fs.inotify.max_user_instances=8192 fs.inotify.max_user_watches=1048576",
            ),
            _ => DoctorCheck::ok(ID, "Editors in many sessions can watch their files."),
        }
    }

    fn namespaces(&self) -> DoctorCheck {
        const ID: &str = "namespace-count";
        match self.number("proc/sys/user/max_user_namespaces") {
            Some(most) if most < 1000 => DoctorCheck::warn(
                ID,
                format!("The machine allows {most} user namespaces; every session needs one."),
                "sysctl -w user.max_user_namespaces=15000",
            ),
            _ => DoctorCheck::ok(ID, "There are namespaces for many sessions."),
        }
    }

    fn overcommit(&self) -> DoctorCheck {
        const ID: &str = "overcommit";
        match self.number("proc/sys/vm/overcommit_memory") {
            Some(2) => DoctorCheck::warn(
                ID,
                "The kernel refuses memory before it is used up (vm.overcommit_memory=2); large programs fail early.",
                "sysctl -w vm.overcommit_memory=0",
            ),
            _ => DoctorCheck::ok(ID, "Memory is refused only when it is used up."),
        }
    }

    fn swap(&self) -> DoctorCheck {
        const ID: &str = "swap";
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
            return DoctorCheck::warn(
                ID,
                format!(
                    "{} of {} of swap are in use; the machine has too little memory.",
                    rules::units::Bytes(used << 10),
                    rules::units::Bytes(all << 10)
                ),
                "Give sessions less in all (setting memory), or add memory.",
            );
        }
        DoctorCheck::ok(
            ID,
            if all == 0 {
                "No swap.".to_owned()
            } else {
                format!("{} of swap.", rules::units::Bytes(all << 10))
            },
        )
    }

    fn memory_pressure(&self) -> DoctorCheck {
        const ID: &str = "memory-pressure";
        let share = self.text("proc/pressure/memory").and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("full"))?;
            line.split_whitespace()
                .find_map(|word| word.strip_prefix("avg60=")?.parse::<f64>().ok())
        });
        match share {
            None => DoctorCheck::ok(ID, "This kernel does not measure pressure."),
            Some(share) if share > 10.0 => DoctorCheck::warn(
                ID,
                format!("For {share:.0} % of the last minute everything waited for memory."),
                "Give sessions less in all (setting memory), or stop one: fardel ps.",
            ),
            Some(_) => DoctorCheck::ok(ID, "Nothing waits for memory."),
        }
    }

    fn killed_for_memory(&self) -> DoctorCheck {
        const ID: &str = "killed-for-memory";
        let killed = self
            .text("proc/vmstat")
            .and_then(|text| {
                text.lines()
                    .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok())
            })
            .unwrap_or(0);
        let said = match killed {
            0 => "No process was killed for memory since the machine started.".to_owned(),
            1 => "One process was killed for memory since the machine started, sessions at their limits among them.".to_owned(),
            n => format!("{n} processes were killed for memory since the machine started, sessions at their limits among them."),
        };
        DoctorCheck::ok(ID, said)
    }

    fn randomness(&self) -> DoctorCheck {
        const ID: &str = "randomness";
        match self.number("proc/sys/kernel/random/entropy_avail") {
            Some(bits) if bits < 128 => DoctorCheck::warn(
                ID,
                format!(
                    "The kernel has gathered only {bits} bits of randomness; keys wait for more."
                ),
                "Wait a minute after the start, or install rng-tools.",
            ),
            _ => DoctorCheck::ok(ID, "There is randomness for keys."),
        }
    }

    fn host_name(&self) -> DoctorCheck {
        const ID: &str = "host-name";
        let name = self.text("proc/sys/kernel/hostname").unwrap_or_default();
        match name.trim() {
            "" | "localhost" | "(none)" => DoctorCheck::warn(
                ID,
                "The machine has no name of its own; pages and certificate show localhost.",
                "hostnamectl set-hostname NAME",
            ),
            name => DoctorCheck::ok(ID, format!("The machine is called {name}.")),
        }
    }

    fn address(&self) -> DoctorCheck {
        const ID: &str = "address";
        let cards = crate::host_network::interfaces(self.root);
        let addresses: Vec<&str> = cards
            .iter()
            .flat_map(|card| &card.addresses)
            .map(String::as_str)
            .collect();
        if addresses.is_empty() {
            return DoctorCheck::warn(
                ID,
                "No network interface has an address; only this machine reaches the pages.",
                "Plug in a cable, or set one: fardel console network set CARD --address 10.1.4.20/24",
            );
        }
        DoctorCheck::ok(ID, format!("It has {}.", addresses.join(", ")))
    }

    /// Ids that sessions use must belong to no account of the machine.
    fn ids(&self) -> DoctorCheck {
        const ID: &str = "session-ids";
        let ours = crate::session_ids();
        let text = self.text("etc/passwd").unwrap_or_default();
        let inside = text.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let id: u64 = fields.nth(1)?.parse().ok()?;
            ours.contains(&id).then(|| format!("{name} ({id})"))
        });
        match inside {
            Some(who) => DoctorCheck::fail(
                ID,
                format!(
                    "The account {who} has an id that sessions use; a session could own its files."
                ),
                "Give that account another id: usermod -u.",
            ),
            None => DoctorCheck::ok(
                ID,
                format!(
                    "Ids {} to {} belong to sessions alone.",
                    ours.start,
                    ours.end - 1
                ),
            ),
        }
    }

    fn holder(&self) -> DoctorCheck {
        const ID: &str = "holder";
        if !self.root.join("run/systemd/system").exists() {
            return DoctorCheck::ok(
                ID,
                "There is no systemd; sessions hang on the server's own groups.",
            );
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
            return DoctorCheck::ok(ID, "fardel is not installed as a service here.");
        }
        let group = "sys/fs/cgroup/fardel.slice/fardel-sessions.service";
        if self.root.join(group).exists()
            || !self.root.join("sys/fs/cgroup/cgroup.controllers").exists()
        {
            return DoctorCheck::ok(ID, "The group that holds sessions is there.");
        }
        DoctorCheck::warn(
            ID,
            "The service that holds the sessions' group does not run; sessions started now end with the server's service.",
            "systemctl start fardel-sessions (it starts once no session of an earlier one is left).",
        )
    }

    fn restart_wanted(&self) -> DoctorCheck {
        const ID: &str = "restart-wanted";
        if self.root.join("run/reboot-required").exists()
            || self.root.join("var/run/reboot-required").exists()
        {
            return DoctorCheck::warn(
                ID,
                "The system was updated and wants to be started again.",
                "When it suits: fardel ps, then systemctl reboot.",
            );
        }
        DoctorCheck::ok(ID, "The system does not want to be started again.")
    }
}

/// Whether a file system of that kind may hold the state.
fn file_system_of(magic: i64, data: &Path) -> DoctorCheck {
    const ID: &str = "state-disk";
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
        return DoctorCheck::fail(
            ID,
            format!("{shown} lies on {far}; locks and overlays of the state do not work there."),
            "Put FARDEL_DATA on a local disk (ext4, XFS or btrfs). Folders of users may lie on a network disk, the state may not.",
        );
    }
    if magic == 0x0102_1994 || magic == 0x8584_58f6 {
        return DoctorCheck::warn(
            ID,
            format!("{shown} lies in memory; a restart of the machine forgets everything."),
            "Put FARDEL_DATA on a disk.",
        );
    }
    DoctorCheck::ok(ID, format!("{shown} lies on a local disk."))
}

#[cfg(test)]
mod tests;
