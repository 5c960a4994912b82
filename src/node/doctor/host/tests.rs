//! Faults planted below a root of the test's own, and the check that finds each.

use super::*;
use rules::doctor::CheckState;

const NOW: i64 = 1_800_000_000;

struct PlantedHost {
    folder: tempfile::TempDir,
}

impl PlantedHost {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let planted = Self { folder };
        planted.put("proc/self/mounts", "/dev/a / ext4 rw,relatime 0 0\n");
        planted.put("proc/sys/fs/file-nr", "1000\t0\t1000000\n");
        planted.put("proc/sys/kernel/pid_max", "4194304\n");
        planted.put("proc/sys/kernel/hostname", "fardel-01\n");
        planted.put("proc/meminfo", "SwapTotal: 0 kB\nSwapFree: 0 kB\n");
        planted.put("run/systemd/timesync/synchronized", "");
        fs::create_dir_all(planted.data()).unwrap();
        planted.mode(0o750);
        planted
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn mode(&self, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(self.data(), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn check(&self, id: &str) -> DoctorCheck {
        let data = self.data();
        let host = Host {
            root: self.folder.path(),
            data: &data,
            now: NOW,
        };
        host.all()
            .into_iter()
            .find(|check| check.id == id)
            .unwrap_or_else(|| panic!("no check {id}"))
    }

    fn finds(&self, id: &str, state: CheckState, words: &str) {
        let check = self.check(id);
        assert_eq!(check.state, state, "{id}: {}", check.found);
        assert!(check.found.contains(words), "{id}: {}", check.found);
        assert!(!check.fix.is_empty(), "{id} says no way out");
    }
}

#[test]
fn a_sound_machine_is_told_so() {
    let planted = PlantedHost::new();
    let data = planted.data();
    let host = Host {
        root: planted.folder.path(),
        data: &data,
        now: NOW,
    };
    let unwell: Vec<DoctorCheck> = host
        .all()
        .into_iter()
        // The planted machine has no card.
        .filter(|check| check.state != CheckState::Ok && check.id != "address")
        .collect();
    assert_eq!(unwell, []);
}

#[test]
fn every_planted_fault_is_found_and_says_a_way_out() {
    type Plant = fn(&PlantedHost);
    let faults: [(&str, CheckState, &str, Plant); 20] = [
        ("state-owner", CheckState::Fail, "written by others", |p| {
            p.mode(0o777)
        }),
        ("state-owner", CheckState::Warn, "read by every user", |p| {
            p.mode(0o755)
        }),
        ("state-mount", CheckState::Fail, "read-only", |p| {
            p.put("proc/self/mounts", "/dev/a / ext4 ro 0 0\n")
        }),
        ("state-mount", CheckState::Fail, "noexec", |p| {
            let at = p.folder.path().display().to_string();
            p.put(
                "proc/self/mounts",
                &format!("/dev/a / ext4 rw 0 0\n/dev/b {at} ext4 rw,noexec 0 0\n"),
            );
        }),
        ("disk-faults", CheckState::Fail, "sda1 (3)", |p| {
            p.put("sys/fs/ext4/sda1/errors_count", "3\n")
        }),
        ("catalog", CheckState::Fail, "cut or is not", |p| {
            p.put("data/catalog.sqlite", &"x".repeat(4096))
        }),
        ("catalog", CheckState::Fail, "cannot be read", |p| {
            p.put("data/catalog.sqlite", "short")
        }),
        ("catalog-log", CheckState::Warn, "256 MiB", |p| {
            let wal = fs::File::create(p.data().join("catalog.sqlite-wal")).unwrap();
            wal.set_len(MAX_LOG_BYTES + 1).unwrap();
        }),
        ("clock-and-state", CheckState::Fail, "17520 hours", |p| {
            p.put("data/catalog.sqlite", "x");
            let later =
                std::time::UNIX_EPOCH + std::time::Duration::from_secs((NOW + 730 * 86_400) as u64);
            fs::File::options()
                .write(true)
                .open(p.data().join("catalog.sqlite"))
                .unwrap()
                .set_modified(later)
                .unwrap();
        }),
        ("time-sync", CheckState::Warn, "drift", |p| {
            fs::remove_file(p.folder.path().join("run/systemd/timesync/synchronized")).unwrap();
        }),
        ("open-files", CheckState::Warn, "900000 of 1000000", |p| {
            p.put("proc/sys/fs/file-nr", "900000 0 1000000")
        }),
        ("process-numbers", CheckState::Warn, "32768", |p| {
            p.put("proc/sys/kernel/pid_max", "32768")
        }),
        ("file-watches", CheckState::Warn, "128", |p| {
            p.put("proc/sys/fs/inotify/max_user_instances", "128")
        }),
        ("namespace-count", CheckState::Warn, "100", |p| {
            p.put("proc/sys/user/max_user_namespaces", "100")
        }),
        ("overcommit", CheckState::Warn, "overcommit", |p| {
            p.put("proc/sys/vm/overcommit_memory", "2")
        }),
        ("swap", CheckState::Warn, "too little", |p| {
            p.put("proc/meminfo", "SwapTotal: 1000 kB\nSwapFree: 100 kB\n")
        }),
        ("memory-pressure", CheckState::Warn, "33 %", |p| {
            p.put(
                "proc/pressure/memory",
                "some avg10=1 avg60=1\nfull avg10=40.0 avg60=33.3 avg300=1.0 total=1\n",
            )
        }),
        ("randomness", CheckState::Warn, "12 bits", |p| {
            p.put("proc/sys/kernel/random/entropy_avail", "12")
        }),
        ("host-name", CheckState::Warn, "no name", |p| {
            p.put("proc/sys/kernel/hostname", "localhost\n")
        }),
        ("restart-wanted", CheckState::Warn, "updated", |p| {
            p.put("run/reboot-required", "")
        }),
    ];
    for (id, state, words, plant) in faults {
        let planted = PlantedHost::new();
        plant(&planted);
        planted.finds(id, state, words);
    }
    let ours = crate::session_ids().start + 7;
    let planted = PlantedHost::new();
    planted.put(
        "etc/passwd",
        &format!("root:x:0:0::/root:/bin/sh\neve:x:{ours}:100::/home/eve:/bin/sh\n"),
    );
    planted.finds("session-ids", CheckState::Fail, "eve");
    let planted = PlantedHost::new();
    planted.put("run/systemd/system/here", "");
    planted.put("usr/lib/systemd/system/fardel-sessions.service", "");
    planted.put("sys/fs/cgroup/cgroup.controllers", "memory");
    planted.finds("holder", CheckState::Warn, "does not run");
}

#[test]
fn a_disk_far_away_is_refused_and_one_in_memory_told() {
    let data = Path::new("/srv/fardel");
    for (magic, state) in [
        (0x6969, CheckState::Fail),
        (0xff53_4d42, CheckState::Fail),
        (0x6573_5546, CheckState::Fail),
        (0x0102_1994, CheckState::Warn),
        (0xef53, CheckState::Ok),
        (0x5846_5342, CheckState::Ok),
    ] {
        assert_eq!(file_system_of(magic, data).state, state, "{magic:x}");
    }
}
