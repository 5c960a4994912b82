//! The look at real cards that comes again and again, with a made-up root and the fake library: what is
//! told of the cards while their driver hangs, dies, loses one, is replaced under the server, or is not
//! there at all.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use node::gpu::limits::{self, LimitTarget, NotHeld, Wall};
use node::gpu::monitor::{DeviceMonitor, MonitorConfig, MonitorStatus};
use node::gpu::probe::{ProbeTimeouts, number_of};
use node::gpu::watchdog::Truth as _;
use rules::devices::{Health, Hold};
use rules::names::BootId;
use rules::units::Bytes;

use super::rig::{MIB, Rig, state};
use super::views::Holder;

/// A machine with a driver and cards, as far as files and the fake library tell.
struct Machine {
    rig: Rig,
    root: tempfile::TempDir,
    ground: MonitorConfig,
}

impl Machine {
    fn with(cards: usize) -> Self {
        let rig = Rig::with(cards, 8192 * MIB, 4096 * MIB);
        let root = tempfile::tempdir().expect("a directory");
        let ground = MonitorConfig {
            pace: Duration::from_millis(100),
            reopened: Duration::from_secs(1),
            patience: ProbeTimeouts {
                first: Duration::from_secs(20),
                later: Duration::from_millis(800),
            },
            ..MonitorConfig::new(
                root.path(),
                &root.path().join("data"),
                BootId(uuid::Uuid::from_u128(1)),
            )
        };
        let machine = Self { rig, root, ground };
        machine.file(
            "proc/devices",
            "Character devices:\n195 nvidia\n509 nvidia-uvm\n",
        );
        (0..cards).for_each(|at| machine.list(at));
        machine.load("580.10");
        machine
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("made");
        fs::write(path, text).expect("written");
    }

    /// Loads a driver of this version, whose libraries are there.
    fn load(&self, version: &str) {
        let folder = self.root.path().join("usr/lib64");
        fs::create_dir_all(&folder).expect("made");
        for name in ["libcuda", "libnvidia-ml"] {
            let from = self.rig.place.join(format!("{name}.so.1"));
            let to = folder.join(format!("{name}.so.{version}"));
            fs::copy(from, to).expect("it was compiled");
        }
        self.say(&format!(
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  made up\n"
        ));
    }

    fn say(&self, version: &str) {
        self.file("proc/driver/nvidia/version", version);
    }

    fn place(at: usize) -> String {
        format!("proc/driver/nvidia/gpus/0000:{:02x}:00.0", 0x41 + at)
    }

    fn list(&self, at: usize) {
        let uuid = state::uuid(at);
        let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let uuid = format!(
            "GPU-{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        );
        assert_eq!(number_of(&uuid), Some(state::uuid(at)));
        self.file(
            &format!("{}/information", Self::place(at)),
            &format!(
                "Model: \t\t fardel fake device\nGPU UUID: \t {uuid}\nDevice Minor: \t {at}\n"
            ),
        );
    }

    fn unlist(&self, at: usize) {
        fs::remove_dir_all(self.root.path().join(Self::place(at))).expect("it was listed");
    }

    fn monitor(&self) -> Arc<DeviceMonitor> {
        DeviceMonitor::open(self.ground.clone())
    }
}

fn words(seen: &MonitorStatus) -> Vec<&'static str> {
    seen.devices
        .iter()
        .map(|device| device.health.word())
        .collect()
}

fn codes(seen: &MonitorStatus) -> Vec<&str> {
    seen.problems
        .iter()
        .map(|problem| problem.code.as_str())
        .collect()
}

/// Waits until what was seen is so; nobody waits for a driver meanwhile.
fn until(
    monitor: &DeviceMonitor,
    what: &str,
    so: impl Fn(&MonitorStatus) -> bool,
) -> MonitorStatus {
    let begun = Instant::now();
    loop {
        let asked = Instant::now();
        let seen = monitor.seen();
        assert!(asked.elapsed() < Duration::from_secs(3), "it had to wait");
        if so(&seen) {
            return seen;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{what}: {seen:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn real_cards_are_told_with_what_they_do_and_who_holds_what() {
    let machine = Machine::with(2);
    machine.file("sys/bus/pci/devices/0000:42:00.0/numa_node", "1\n");
    let monitor = machine.monitor();
    // Before the driver is asked, the kernel's list is there, and nothing is given of it.
    assert_eq!(words(&monitor.seen()), ["failing", "failing"]);
    let woken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&woken);
    let count = move |_: &MonitorStatus| {
        counted.fetch_add(1, SeqCst);
        true
    };
    monitor.begin(count).expect("a thread");
    let seen = until(&monitor, "both are well", |seen| {
        words(seen) == ["well", "well"]
    });
    let device = &seen.devices[1];
    assert_eq!((device.index, device.memory), (1, Bytes(8192 * MIB)));
    assert_eq!(
        (device.sms, device.numa, device.link),
        (132, Some(1), Some(0))
    );
    assert!(!device.simulated);
    assert_eq!(codes(&seen), [""; 0]);
    assert_eq!(
        (seen.real[1].minor, seen.real[1].uuid.clone()),
        (1, device.uuid.clone())
    );
    let told = monitor.held().expect("the driver answers");
    assert_eq!(told, []);
    let holder = Holder::of(&machine.rig, 704 * MIB);
    let held = monitor.held().expect("the driver answers");
    let held: Vec<_> = held.iter().filter(|held| held.bytes > 0).collect();
    assert_eq!(
        (held.len(), held[0].pid, held[0].bytes),
        (1, holder.pid(), 704 * MIB)
    );
    let uses = until(&monitor, "memory is in use", |seen| {
        let doing = seen.uses.iter().find(|doing| doing.device == 0);
        doing.is_some_and(|doing| doing.memory == Some(Bytes(704 * MIB)))
    });
    let doing = uses
        .uses
        .iter()
        .find(|doing| doing.device == 1)
        .expect("the other");
    assert_eq!(
        (doing.celsius, doing.milliwatts, doing.busy_percent),
        (Some(41), Some(310_520), Some(97))
    );
    // Figures wake nobody: only the first look said something new.
    let before = woken.load(SeqCst);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!((before, woken.load(SeqCst)), (1, 1));
}

#[test]
fn a_slice_is_held_by_the_best_wall_that_there_is_and_the_card_says_by_which() {
    let mut machine = Machine::with(1);
    let group = machine.root.path().join("groups/session");
    fs::create_dir_all(&group).expect("made");
    machine.ground.groups = Some(machine.root.path().join("groups"));
    let slice = LimitTarget::Slice { bytes: MIB };
    let card = state::uuid(0);
    let held = |monitor: &DeviceMonitor| limits::hold(monitor, &card, &group, slice, &Wall::None);
    // The driver's own call, as its helper says.
    let monitor = machine.monitor();
    monitor.look();
    assert_eq!(monitor.seen().devices[0].hold, Hold::HookAndDriver);
    let (wall, fault) = held(&monitor);
    assert!(fault.is_none(), "{fault:?}");
    assert_eq!(wall, Wall::Driver { bytes: MIB });
    let stands = fs::read_to_string(machine.rig.place.join("limits")).expect("it was set");
    assert_eq!(stands, format!("1 0 {MIB} {}\n", group.display()));
    // A driver that does not answer, and a kernel that lists the card: the kernel holds it, and the failure is
    // said.
    machine.file(
        "groups/dmem.capacity",
        &format!("drm/0000:41:00.0/vram0 {}\n", 8192 * MIB),
    );
    machine.file("groups/session/dmem.max", "");
    monitor.look();
    machine.rig.state.nvml_trouble.store(state::CRASHES, SeqCst);
    let (wall, fault) = held(&monitor);
    assert!(matches!(wall, Wall::Kernel { bytes: MIB, .. }), "{wall:?}");
    assert!(matches!(fault, Some(NotHeld::Driver(_))), "{fault:?}");
    let stands = fs::read_to_string(group.join("dmem.max")).expect("it was set");
    assert!(stands.ends_with(&format!("vram0 {MIB}\n")), "{stands}");
    // Control groups of version 1: our library alone.
    machine.rig.state.nvml_trouble.store(0, SeqCst);
    machine.ground.groups = None;
    let monitor = machine.monitor();
    monitor.look();
    assert_eq!(monitor.seen().devices[0].hold, Hold::Hook);
    assert_eq!(held(&monitor).0, Wall::None);
}

#[test]
fn a_driver_that_hangs_or_dies_makes_cards_unknown_and_nobody_waits_for_it() {
    let machine = Machine::with(1);
    let monitor = machine.monitor();
    monitor.begin(|_| true).expect("a thread");
    let well = until(&monitor, "it is well", |seen| words(seen) == ["well"]);
    for trouble in [
        state::HANGS,
        state::CRASHES,
        state::TALKS_NONSENSE,
        state::REFUSES,
    ] {
        machine.rig.state.nvml_trouble.store(trouble, SeqCst);
        let seen = until(&monitor, "it is unknown", |seen| words(seen) == ["unknown"]);
        assert_eq!(codes(&seen), ["gpu.driver-silent"]);
        // What is known of it stays: sessions go on with their shares.
        let known = |seen: &MonitorStatus| {
            let device = &seen.devices[0];
            (device.memory, device.uuid.clone(), seen.real.clone())
        };
        assert_eq!(known(&seen), known(&well));
        assert_eq!(monitor.held(), None);
        machine.rig.state.nvml_trouble.store(0, SeqCst);
        let seen = until(&monitor, "it is well again", |seen| words(seen) == ["well"]);
        assert_eq!(codes(&seen), [""; 0]);
    }
}

#[test]
fn a_card_that_falls_off_the_bus_fails_and_is_well_when_it_is_back() {
    let machine = Machine::with(2);
    let monitor = machine.monitor();
    monitor.begin(|_| true).expect("a thread");
    until(&monitor, "both are well", |seen| {
        words(seen) == ["well", "well"]
    });
    machine.rig.state.nvml_lost.store(0b01, SeqCst);
    let seen = until(&monitor, "one is lost", |seen| {
        words(seen) == ["failing", "well"]
    });
    let Health::Failing { text } = &seen.devices[0].health else {
        panic!("{seen:?}");
    };
    assert!(text.contains("fallen off the bus"), "{text}");
    assert_eq!(codes(&seen), [""; 0], "the driver itself answers");
    machine.rig.state.nvml_lost.store(0, SeqCst);
    until(&monitor, "both are well", |seen| {
        words(seen) == ["well", "well"]
    });
    // Now it is gone for the kernel as well; its number is kept for it.
    machine.unlist(0);
    let seen = until(&monitor, "one is gone", |seen| {
        words(seen) == ["failing", "well"]
    });
    assert_eq!((seen.devices.len(), seen.devices[1].index), (2, 1));
    // The next server of this start of the machine counts alike, the next start does not.
    drop(monitor);
    let next = machine.monitor().seen();
    assert_eq!(
        (next.devices.len(), next.devices[1].uuid.clone()),
        (2, seen.devices[1].uuid.clone())
    );
    let later = DeviceMonitor::open(MonitorConfig {
        boot: BootId(uuid::Uuid::from_u128(2)),
        ..machine.ground.clone()
    });
    let later = later.seen();
    assert_eq!(
        (later.devices.len(), later.devices[0].uuid.clone()),
        (1, seen.devices[1].uuid.clone())
    );
    machine.list(0);
    let monitor = machine.monitor();
    monitor.begin(|_| true).expect("a thread");
    until(&monitor, "both are well", |seen| {
        words(seen) == ["well", "well"]
    });
}

#[test]
fn a_driver_that_changes_under_the_server_is_a_named_problem() {
    let machine = Machine::with(1);
    let monitor = machine.monitor();
    monitor.begin(|_| true).expect("a thread");
    until(&monitor, "it is well", |seen| words(seen) == ["well"]);
    // Its libraries were upgraded, the kernel's part was not.
    for name in ["libcuda", "libnvidia-ml"] {
        let folder = machine.root.path().join("usr/lib64");
        let (old, new) = (format!("{name}.so.580.10"), format!("{name}.so.585.1"));
        fs::rename(folder.join(old), folder.join(new)).expect("it is there");
    }
    let seen = until(&monitor, "half a driver", |seen| {
        codes(seen) == ["gpu.driver-half"]
    });
    assert_eq!(words(&seen), ["failing"]);
    assert!(
        seen.problems[0].text.contains("580.10"),
        "{}",
        seen.problems[0].text
    );
    assert_eq!(monitor.held(), None);
    // Then the kernel's part as well.
    machine.load("585.1");
    let seen = until(&monitor, "a whole driver", |seen| words(seen) == ["well"]);
    assert_eq!(codes(&seen), ["gpu.driver-replaced"]);
    let text = &seen.problems[0].text;
    assert!(text.contains("580.10") && text.contains("585.1"), "{text}");
    // A driver that says its version in a way that nobody knows.
    machine.say("NVRM version: the newest\n");
    let seen = until(&monitor, "unknown version", |seen| {
        codes(seen) == ["gpu.driver-unknown"]
    });
    assert_eq!(words(&seen), ["failing"]);
    // Unloaded.
    fs::remove_dir_all(machine.root.path().join("proc/driver")).expect("it is there");
    let seen = until(&monitor, "no driver", |seen| {
        codes(seen) == ["gpu.driver-gone"]
    });
    assert_eq!(words(&seen), ["failing"]);
}

#[test]
fn without_a_driver_nobody_looks_and_nothing_is_said_until_one_is_loaded() {
    let machine = Machine::with(1);
    let kept = machine.root.path().join("kept");
    let proc = machine.root.path().join("proc/driver");
    fs::rename(&proc, &kept).expect("it is there");
    let monitor = machine.monitor();
    let (told, ended) = std::sync::mpsc::channel::<()>();
    let never = move |_: &MonitorStatus| told.send(()).is_ok();
    monitor.begin(never).expect("nothing to start");
    // A thread would have it; without one it is gone already.
    assert!(matches!(
        ended.try_recv(),
        Err(std::sync::mpsc::TryRecvError::Disconnected)
    ));
    assert_eq!(monitor.seen(), MonitorStatus::default());
    assert!(
        !machine.root.path().join("data").exists(),
        "something was written"
    );
    assert_eq!(monitor.held(), None);
    fs::rename(&kept, &proc).expect("it is there");
    monitor.begin(|_| true).expect("a thread");
    until(&monitor, "it is well", |seen| words(seen) == ["well"]);
}

/// What `fardel doctor` finds about the cards below this root.
fn doctor(machine: &Machine) -> serde_json::Value {
    let told = std::process::Command::new(env!("CARGO_BIN_EXE_fardel"))
        .env_clear()
        .env("FARDEL_DATA", machine.root.path().join("none"))
        .env("FARDEL_RUN", machine.root.path().join("none/run"))
        .env("FARDEL_LISTEN", "127.0.0.1:0")
        .env("FARDEL_CONFIG", "/nonexistent")
        .env("FARDEL_DRIVER_ROOT", machine.root.path())
        .env("TMPDIR", &machine.rig.place)
        .args(["doctor", "-o", "json"])
        .output()
        .expect("it was built");
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).expect("JSON");
    let checks = told["items"].as_array().expect("a list");
    let gpu = checks.iter().find(|check| check["id"] == "gpu");
    gpu.expect("cards are looked at").clone()
}

#[test]
fn the_doctor_tells_what_the_driver_says_and_what_would_mend_it() {
    let machine = Machine::with(2);
    let well = doctor(&machine);
    assert_eq!(well["state"], "ok", "{well}");
    let found = well["found"].as_str().expect("a sentence");
    assert!(
        found.contains("fardel fake device with 8 GiB, fardel fake"),
        "{found}"
    );
    machine.rig.state.nvml_worn.store(0b10, SeqCst);
    let worn = doctor(&machine);
    assert_eq!(worn["state"], "warn", "{worn}");
    assert!(
        worn["found"]
            .as_str()
            .is_some_and(|text| text.starts_with("GPU 1 (")),
        "{worn}"
    );
    machine.rig.state.nvml_trouble.store(state::CRASHES, SeqCst);
    let silent = doctor(&machine);
    let found = silent["found"].as_str().expect("a sentence");
    assert!(found.contains("dies as it was told"), "{found}");
    assert!(
        silent["fix"]
            .as_str()
            .is_some_and(|text| text.contains("nvidia-smi")),
        "{silent}"
    );
    machine.say("NVRM version: Kernel Module  999.1  without its libraries\n");
    let half = doctor(&machine);
    assert!(
        half["found"]
            .as_str()
            .is_some_and(|text| text.contains("999.1")),
        "{half}"
    );
    let left: Vec<_> = fs::read_dir(&machine.rig.place)
        .expect("our place")
        .flatten()
        .collect();
    assert!(
        !left
            .iter()
            .any(|file| file.file_name().to_string_lossy().contains("doctor"))
    );
}
