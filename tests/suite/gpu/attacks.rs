//! Everything that somebody inside may try against their slice, row by row, in real containers: what a
//! hook can hold is held; what no library can hold is caught by the watchdog, and answered; and
//! whoever is beside it notices nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base::observe::Clock;
use node::enforcer::{Beyond, DeviceId, Enforcer, Grants, MemoryGrant, WatchIncident};
use node::gpu::inject::Pages;
use node::gpu::limits::{NotHeld, Offers, Walls};
use node::gpu::watchdog::{ProcessMemory, Truth, WatchdogAction};
use node::runtime::{ContainerSpec, MountOrder, RuntimeName, RuntimePhase};

use super::rig::{MIB, PLACE, state};
use super::session::{Machine, VERSION, slice_of};
use super::views::{KERNEL, READER, python};

const LIMIT: u64 = 64 * MIB;
const HELD: &str = "got 67108864 code 2";
/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(90);

/// Reads memory through ctypes, as notebooks do.
const CTYPES: &str = "
import ctypes
c = ctypes.CDLL('libcuda.so.1')
x, p, got = ctypes.c_void_p(), ctypes.c_void_p(), 0
assert (c.cuInit(0), c.cuCtxCreate_v2(ctypes.byref(x), 0, 0)) == (0, 0)
while True:
    code = c.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(4 << 20))
    if code or got >= 256 << 20:
        break
    got += 4 << 20
print('got', got, 'code', code)
";

#[test]
fn every_attack_that_a_hook_can_hold_is_held_inside_a_session() {
    const NAME: &str = "every_attack_that_a_hook_can_hold_is_held_inside_a_session";
    let Some(machine) = Machine::make(NAME) else {
        return;
    };
    let (injection, _pages) = machine.slice("one", LIMIT);
    let peer = "CUDA_DEVICE_MEMORY_SHARED_CACHE=/tmp/mine CUDA_DEVICE_MEMORY_LIMIT=0 \
                CUDA_DEVICE_MEMORY_LIMIT_0=64g CUDA_DEVICE_SM_LIMIT=0 \
                GPU_CORE_UTILIZATION_POLICY=DISABLE LD_PRELOAD=";
    let everything = "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=all \
                      CUDA_VISIBLE_DEVICES=0,1,2,3 NVIDIA_MIG_CONFIG_DEVICES=all";
    let opened = "/opt/ways opened libcuda.so.1";
    let mut rows: Vec<(String, String)> = vec![
        ("linked".into(), "/opt/linked".into()),
        (
            "emptied environment, linked".into(),
            "env -i /opt/linked".into(),
        ),
        ("emptied environment".into(), format!("env -i {opened}")),
        (
            "variables of another product".into(),
            format!("env {peer} {opened}"),
        ),
        (
            "every device asked for".into(),
            format!("env {everything} {opened}"),
        ),
        (
            "without the version".into(),
            "/opt/ways opened libcuda.so".into(),
        ),
        (
            "the exact version".into(),
            format!("/opt/ways opened libcuda.so.{VERSION}"),
        ),
        (
            "the usual place by its path".into(),
            "/opt/ways opened /usr/lib/x86_64-linux-gnu/libcuda.so.1".into(),
        ),
        (
            "the other usual place, named first".into(),
            format!("env LD_LIBRARY_PATH=/usr/lib64 {opened}"),
        ),
        (
            "our own library, loaded twice".into(),
            format!("env LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libcuda.so.1 {opened}"),
        ),
        ("ctypes".into(), format!("python3 -c \"{CTYPES}\"")),
    ];
    for way in super::loading::WAYS {
        rows.push((way.to_owned(), format!("/opt/ways {way} libcuda.so.1")));
    }
    let script: String = rows
        .iter()
        .map(|(name, command)| format!("echo 'row {name}'\n({command}) 2>&1\n"))
        .collect();
    let (_, said) = machine.said(&format!("{script}ls /dev | tr '\\n' ' '\n"), &injection);
    let mut answers: BTreeMap<&str, &str> = BTreeMap::new();
    for row in said.split("row ").skip(1) {
        let (name, answer) = row.split_once('\n').expect("a line for itself");
        answers.insert(name, answer);
    }
    for (name, _) in &rows {
        let answer = answers.get(name.as_str()).copied().unwrap_or("nothing");
        assert!(answer.contains(HELD), "{name}: {answer}\n{said}");
    }
    // Whatever the environment asks for, there is the one card and nothing else.
    assert!(
        said.contains("nvidia0") && !said.contains("nvidia1"),
        "{said}"
    );
    assert_eq!(machine.rig.truth(0), 0);
}

/// Memory of the fake device as the host's own driver would tell it.
struct FakeTruth(state::Hold);

impl Truth for FakeTruth {
    fn held(&self) -> Option<Vec<ProcessMemory>> {
        let rows = self.0.state.row.iter().enumerate();
        let held = rows.filter_map(|(at, row)| {
            let bytes = row.bytes[0].load(SeqCst);
            // As the real one: a process is listed once it has a context.
            let listed = row.pid.load(SeqCst) != 0 && row.contexts.load(SeqCst) != 0;
            (listed && bytes > 0).then_some(())?;
            Some(ProcessMemory {
                pid: self.0.holder(at)?,
                device: state::uuid(0),
                bytes,
            })
        });
        Some(held.collect())
    }
}

/// A machine with nothing beside our library.
struct NoWalls;

impl Walls for NoWalls {
    fn offers(&self, _: &DeviceId) -> Offers {
        Offers::default()
    }

    fn ask_driver(&self, _: &DeviceId, _: &Path, _: Option<u64>) -> Result<(), NotHeld> {
        unreachable!("nothing of the kind is offered")
    }
}

/// Slices by container, with the folders of their pages.
#[derive(Default)]
struct Slices(Mutex<BTreeMap<RuntimeName, (PathBuf, u64)>>);

impl Slices {
    fn put(&self, name: &RuntimeName, place: PathBuf, limit: u64) {
        let mut all = self.0.lock().expect("no test dies here");
        all.insert(name.clone(), (place, limit));
    }

    fn pages(&self, container: &RuntimeName) -> Option<Pages> {
        let (place, limit) = self
            .0
            .lock()
            .expect("no test dies here")
            .get(container)?
            .clone();
        Pages::make(&place, &[slice_of(limit)]).ok()
    }
}

impl Grants for Slices {
    fn granted(&self) -> Vec<MemoryGrant> {
        let all = self.0.lock().expect("no test dies here").clone();
        all.into_iter()
            .map(|(container, (_, limit))| {
                let pages = self.pages(&container);
                let sum = pages.and_then(|pages| Some(pages.account().ok()?.sum(0)));
                MemoryGrant {
                    charged: sum.map(|sum| sum.total),
                    contexts: sum.map_or(0, |sum| sum.made),
                    container,
                    device: state::uuid(0),
                    limit,
                }
            })
            .collect()
    }

    fn set_overhead(&self, container: &RuntimeName, _: &DeviceId, beyond: Beyond) {
        if let Some(pages) = self.pages(container) {
            pages.control().device[0].saw(beyond.bytes, beyond.contexts);
        }
    }
}

/// A machine whose watchdog looks.
struct Guarded {
    machine: Machine,
    slices: Arc<Slices>,
    watch: Enforcer,
    runtime: Arc<node::runtime::Runtime>,
}

impl Guarded {
    fn make(test: &str) -> Option<Self> {
        let machine = Machine::make(test)?;
        let slices = Arc::new(Slices::default());
        let runtime = Arc::clone(&machine.ground.runtime);
        let watch = Self::watch(&machine, &slices);
        Some(Self {
            machine,
            slices,
            watch,
            runtime,
        })
    }

    fn watch(machine: &Machine, slices: &Arc<Slices>) -> Enforcer {
        let path = machine.rig.place.join("state");
        let truth = state::Hold::open(&path.to_string_lossy()).expect("the state was made");
        Enforcer::new(
            Arc::new(FakeTruth(truth)),
            Arc::new(NoWalls),
            Arc::clone(slices) as Arc<dyn Grants>,
            Arc::clone(&machine.ground.runtime),
            Clock::system(),
            &machine.rig.place.join("watchdog.json"),
            || {},
        )
    }

    /// Starts a container with a slice of its own, and has it looked after.
    fn start(
        &self,
        name: &str,
        script: &str,
        change: impl FnOnce(&mut ContainerSpec),
    ) -> RuntimeName {
        let (injection, _pages) = self.machine.slice(name, LIMIT);
        let mut order = self.machine.order(script, &injection);
        change(&mut order);
        self.slices
            .put(&order.name, self.machine.place(name), LIMIT);
        let name = self.machine.ground.start(&order);
        self.machine.ground.running(&name);
        self.watch.wake().expect("a thread can be started");
        name
    }

    fn incidents(&self, container: &RuntimeName) -> Vec<WatchIncident> {
        let mut all = self.watch.incidents();
        all.retain(|incident| incident.container == *container);
        all
    }

    /// What the driver says that a container holds.
    fn holds(&self, container: &RuntimeName) -> u64 {
        let path = self.machine.rig.place.join("state");
        let truth = FakeTruth(state::Hold::open(&path.to_string_lossy()).expect("it was made"));
        let held = truth.held().expect("the fake driver answers");
        held.iter()
            .filter(|each| self.runtime.container_of(each.pid).as_ref() == Some(container))
            .map(|each| each.bytes)
            .sum()
    }
}

fn until<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Rows that no library can hold, each with what a tenant runs. All take more than their 64 MiB.
fn beyond_any_hook() -> Vec<(&'static str, String)> {
    let real = format!("{PLACE}/libcuda.so.1");
    let opened = "/opt/ways opened libcuda.so.1 hold";
    vec![
        (
            "the real driver by its path",
            format!("/opt/ways opened {real} hold"),
        ),
        (
            "an own copy of the driver",
            format!("cp {real} /tmp/mine.so && /opt/ways deepbind /tmp/mine.so hold"),
        ),
        (
            "the real driver loaded before",
            format!("env LD_PRELOAD={real} {opened}"),
        ),
        (
            "a private copy loaded before",
            format!("cp {real} /tmp/mine.so && env LD_PRELOAD=/tmp/mine.so {opened}"),
        ),
        (
            "the real driver's folder named first",
            format!("env LD_LIBRARY_PATH={PLACE} {opened}"),
        ),
        (
            "a private copy's folder named first",
            format!("cp {real} /tmp/libcuda.so.1 && env LD_LIBRARY_PATH=/tmp {opened}"),
        ),
        (
            "its own page overwritten",
            // All slots, but not the head that lets new processes in.
            format!(
                "/opt/ways opened libcuda.so.1 hold & sleep 1; \
                 dd if=/dev/zero of={PLACE}/account bs=64 seek=1 count=8767 conv=notrunc; \
                 /opt/ways opened libcuda.so.1 hold"
            ),
        ),
        (
            "a static program on the device itself",
            format!("/opt/unlinked ask {PLACE}/state {}", 200 * MIB),
        ),
    ]
}

/// Promise (GPUs): A session that holds more device memory than its limit is warned within two seconds, then
/// frozen, then stopped; its neighbour keeps its slice. This holds for every way around the hooks: the real
/// driver by its path, an own copy of it, either of them loaded before the hook or found first, an overwritten
/// page of its own, a static program on the device itself. No session is warned without a fresh measurement, or
/// because its limit was lowered (fake driver).
#[test]
fn whoever_gets_past_the_hooks_is_warned_frozen_and_stopped_and_their_neighbour_is_not() {
    const NAME: &str =
        "whoever_gets_past_the_hooks_is_warned_frozen_and_stopped_and_their_neighbour_is_not";
    let Some(guarded) = Guarded::make(NAME) else {
        return;
    };
    assert!(!guarded.watch.is_awake(), "nobody has a share yet");
    let neighbour = guarded.start("neighbour", "/opt/ways opened libcuda.so.1 hold", |_| {});
    until("the neighbour holds its slice", || {
        (guarded.holds(&neighbour) == LIMIT).then_some(())
    });
    assert!(guarded.watch.is_awake());
    let rows: Vec<(&str, RuntimeName)> = beyond_any_hook()
        .into_iter()
        .enumerate()
        .map(|(at, (row, script))| (row, guarded.start(&format!("row{at}"), &script, |_| {})))
        .collect();
    // Each row: when it was first seen over its limit, and when it was first warned.
    let mut over: BTreeMap<&str, Instant> = BTreeMap::new();
    let mut warned: BTreeMap<&str, Duration> = BTreeMap::new();
    let mut stood_still: BTreeMap<&str, bool> = BTreeMap::new();
    until("every row is answered to the end", || {
        for (row, name) in &rows {
            if guarded.holds(name) > LIMIT + LIMIT / 50 {
                over.entry(row).or_insert_with(Instant::now);
            }
            let incidents = guarded.incidents(name);
            if let (Some(since), false) = (over.get(row), incidents.is_empty()) {
                warned.entry(row).or_insert_with(|| since.elapsed());
            }
            let frozen = incidents
                .last()
                .is_some_and(|last| last.answer == WatchdogAction::Freeze);
            if frozen && guarded.watch.holds(name) {
                let still = matches!(
                    guarded.machine.ground.standing(name),
                    RuntimePhase::Running { paused: true, .. }
                );
                *stood_still.entry(row).or_default() |= still;
            }
        }
        let ended = |(_, name): &(&str, RuntimeName)| {
            matches!(
                guarded.machine.ground.standing(name),
                RuntimePhase::Ended(_)
            )
        };
        rows.iter().all(ended).then_some(())
    });
    for (row, name) in &rows {
        let incidents = guarded.incidents(name);
        let answers: Vec<WatchdogAction> = incidents.iter().map(|each| each.answer).collect();
        assert_eq!(
            answers,
            [
                WatchdogAction::Warn,
                WatchdogAction::Freeze,
                WatchdogAction::Stop
            ],
            "{row}: {incidents:?}"
        );
        assert!(
            incidents
                .iter()
                .all(|each| each.held > LIMIT && each.limit == LIMIT),
            "{row}: {incidents:?}"
        );
        let after = warned[row];
        println!("{row}: warned after {} ms", after.as_millis());
        // Two seconds, and as much as a busy machine may be late.
        assert!(
            after < Duration::from_millis(2000 + 1500),
            "{row}: {after:?}"
        );
        assert!(
            stood_still.get(row) == Some(&true),
            "{row} was not seen frozen"
        );
        let RuntimePhase::Ended(record) = guarded.machine.ground.standing(name) else {
            panic!("{row} has not ended");
        };
        assert_eq!(record.code, 137, "{row}: {record:?}");
        guarded.slices.0.lock().expect("alive").remove(name);
    }
    // The neighbour had all of its slice all the while, and nobody spoke to it.
    assert_eq!(guarded.incidents(&neighbour), []);
    assert_eq!(guarded.holds(&neighbour), LIMIT);
    let standing = guarded.machine.ground.standing(&neighbour);
    assert!(
        matches!(standing, RuntimePhase::Running { paused: false, .. }),
        "{standing:?}"
    );
    guarded.runtime.kill(&neighbour).expect("it runs");
    guarded.machine.ground.ended(&neighbour);
    guarded.slices.0.lock().expect("alive").clear();
    until("the watchdog sleeps", || {
        (!guarded.watch.is_awake()).then_some(())
    });
}

#[test]
fn what_the_watchdog_answered_holds_when_its_server_is_replaced() {
    const NAME: &str = "what_the_watchdog_answered_holds_when_its_server_is_replaced";
    let Some(mut guarded) = Guarded::make(NAME) else {
        return;
    };
    let script = format!("/opt/ways opened {PLACE}/libcuda.so.1 hold");
    let thief = guarded.start("thief", &script, |_| {});
    let paused = |guarded: &Guarded| {
        let standing = guarded.machine.ground.standing(&thief);
        matches!(standing, RuntimePhase::Running { paused: true, .. })
    };
    until("it stands still", || paused(&guarded).then_some(()));
    let before = guarded.incidents(&thief);
    let answers = |incidents: &[WatchIncident]| -> Vec<WatchdogAction> {
        incidents.iter().map(|each| each.answer).collect()
    };
    assert_eq!(
        answers(&before),
        [WatchdogAction::Warn, WatchdogAction::Freeze]
    );
    // Its owner wants it to run, and the next server is asked before its watchdog has looked.
    guarded.watch = Guarded::watch(&guarded.machine, &guarded.slices);
    assert!(guarded.watch.holds(&thief), "nobody else lets it go on");
    assert_eq!(guarded.incidents(&thief), before, "the same, by their ids");
    // Somebody did all the same: it stands still again, and is not warned anew.
    guarded.runtime.resume(&thief).expect("it is paused");
    guarded.watch.wake().expect("a thread can be started");
    until("it stands still again", || paused(&guarded).then_some(()));
    assert_eq!(guarded.incidents(&thief), before);
    // Its administrator gives it what it holds, and it may go on.
    let held = guarded.holds(&thief);
    guarded
        .slices
        .put(&thief, guarded.machine.place("thief"), held);
    until("it may go on", || {
        (!guarded.watch.holds(&thief)).then_some(())
    });
    let all = guarded.incidents(&thief);
    assert_eq!(
        answers(&all),
        [
            WatchdogAction::Warn,
            WatchdogAction::Freeze,
            WatchdogAction::Clear
        ],
        "{all:?}"
    );
    guarded.runtime.kill(&thief).expect("it is there");
    guarded.machine.ground.ended(&thief);
}

#[test]
fn memory_that_the_page_does_not_know_of_is_charged_within_a_second() {
    const NAME: &str = "memory_that_the_page_does_not_know_of_is_charged_within_a_second";
    let Some(guarded) = Guarded::make(NAME) else {
        return;
    };
    // Forty past the hooks, which is no offence; then everything that the hooks still grant.
    let script = format!(
        "/opt/unlinked ask {PLACE}/state {} & sleep 3; /opt/ways opened libcuda.so.1 hold",
        40 * MIB
    );
    let name = guarded.start("one", &script, |_| {});
    let overhead = || {
        let pages = guarded.slices.pages(&name).expect("it has a slice");
        pages.control().device[0].mem_overhead.load(SeqCst)
    };
    until("the overhead is written", || {
        (overhead() == 40 * MIB).then_some(())
    });
    until("the hook grants the rest", || {
        guarded
            .machine
            .ground
            .log(&name)
            .contains("got")
            .then_some(())
    });
    let said = guarded.machine.ground.log(&name);
    assert!(said.contains(&format!("got {} code 2", 24 * MIB)), "{said}");
    assert_eq!(guarded.holds(&name), LIMIT);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(guarded.incidents(&name), []);
    assert_eq!(overhead(), 40 * MIB);
    guarded.runtime.kill(&name).expect("it runs");
    guarded.machine.ground.ended(&name);
}

/// A program that has a context of 40 MiB and then takes all that it is given of its 64, while so much is kept
/// for the context: what it was given, what it holds, and what the watchdog answered.
fn fills_its_slice_at_once(test: &str, room: u64) -> Option<(String, u64, Vec<WatchdogAction>)> {
    let guarded = Guarded::make(test)?;
    let path = guarded.machine.rig.place.join("state");
    let hold = state::Hold::open(&path.to_string_lossy()).expect("the state was made");
    hold.state.context.store(40 * MIB, SeqCst);
    let place = guarded.machine.place("one");
    // Made here, before anybody inside can read it.
    let (injection, pages) = guarded.machine.slice("one", LIMIT);
    pages.control().device[0].context_room.store(room, SeqCst);
    let order = guarded
        .machine
        .order("/opt/ways opened libcuda.so.1 hold", &injection);
    guarded.slices.put(&order.name, place, LIMIT);
    let name = guarded.machine.ground.start(&order);
    guarded.watch.wake().expect("a thread can be started");
    let said = until("it is told that there is no more", || {
        let said = guarded.machine.ground.log(&name);
        said.contains("got").then_some(said)
    });
    let held = guarded.holds(&name);
    std::thread::sleep(Duration::from_secs(5));
    let answers = guarded.incidents(&name);
    guarded.runtime.kill(&name).expect("it is there");
    guarded.machine.ground.ended(&name);
    let answers = answers.iter().map(|each| each.answer).collect();
    Some((said, held, answers))
}

#[test]
fn a_program_that_fills_its_slice_at_once_is_never_called_to_account_for_its_context() {
    const NAME: &str =
        "a_program_that_fills_its_slice_at_once_is_never_called_to_account_for_its_context";
    let Some((said, held, answers)) = fills_its_slice_at_once(NAME, 50 * MIB) else {
        return;
    };
    // Less was kept at first, and once the driver had told what the context takes, all the rest was given.
    assert!(said.contains(&format!("got {} code 2", 24 * MIB)), "{said}");
    assert_eq!(held, LIMIT);
    assert_eq!(answers, []);
    // Without that room the same honest program passes its limit by its context, and is frozen for it.
    let (said, held, answers) = fills_its_slice_at_once(NAME, 0).expect("it ran before");
    assert!(said.contains(HELD), "{said}");
    assert_eq!(held, LIMIT + 40 * MIB);
    assert_eq!(answers, [WatchdogAction::Warn, WatchdogAction::Freeze]);
}

#[test]
fn an_image_with_a_driver_of_its_own_is_held_where_images_keep_one() {
    const NAME: &str = "an_image_with_a_driver_of_its_own_is_held_where_images_keep_one";
    let Some(machine) = Machine::make(NAME) else {
        return;
    };
    let (injection, _pages) = machine.slice("one", LIMIT);
    let driver = std::fs::read(super::rig::works().folder.join("fake_cuda.so")).expect("compiled");
    // As images for newer CUDA than the host's driver bring it, and name it in their environment.
    let layer = machine.ground.directory.path().join("image");
    let compat = layer.join("opt/cuda-99/compat");
    std::fs::create_dir_all(&compat).expect("made");
    std::fs::write(compat.join("libcuda.so.998.1"), &driver).expect("written");
    std::os::unix::fs::symlink("libcuda.so.998.1", compat.join("libcuda.so.1")).expect("a link");
    std::os::unix::fs::symlink("cuda-99", layer.join("opt/cuda")).expect("a link");
    let mut order = machine.order(
        "/opt/ways opened libcuda.so.1; /opt/ways opened /opt/cuda/compat/libcuda.so.1; \
         /opt/ways opened libcuda.so.998.1; ls -l /opt/cuda/compat; \
         ldconfig -p | grep -e libcuda -e libnvidia-ml; rm /etc/ld.so.cache; ldconfig; echo again; \
         ldconfig -p | grep libcuda.so.1",
        &injection,
    );
    order.root.layers.push(layer);
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    order.environment = vec![
        variable("LD_LIBRARY_PATH", "/opt/cuda/compat"),
        variable("NVIDIA_VISIBLE_DEVICES", "all"),
        variable("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
    ];
    let (_, said) = machine.ground.run(&order);
    assert_eq!(said.matches(HELD).count(), 3, "{said}");
    // Triton looks for this line.
    let (listed, again) = said.split_once("again\n").expect("both were listed");
    let usual = "/usr/lib/x86_64-linux-gnu";
    for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        let line = format!("{name} (libc6,x86-64) => {usual}/{name}\n");
        assert_eq!(listed.matches(&line).count(), 1, "{said}");
    }
    assert!(again.contains("libcuda.so.1"), "{said}");
}

#[test]
fn tools_inside_read_that_they_are_to_make_no_device_nodes() {
    const NAME: &str = "tools_inside_read_that_they_are_to_make_no_device_nodes";
    let Some(machine) = Machine::make(NAME) else {
        return;
    };
    let (mut injection, _pages) = machine.slice("one", LIMIT);
    let params = injection
        .files
        .iter()
        .position(|file| file.at == "/proc/driver/nvidia/params")
        .expect("the driver has parameters");
    // Without the vendor's module the kernel shows no such file: others of its own stand for it. Neither is in
    // libcontainer's list of what may be mounted below /proc, which holds for mounts of proc itself alone.
    let mut places = vec!["/proc/filesystems", "/proc/tty/drivers"];
    if std::path::Path::new(&injection.files[params].at).exists() {
        places = vec!["/proc/driver/nvidia/params"];
    }
    for shown in places {
        injection.files[params].at = shown.to_owned();
        let script = format!("cat {shown}; (echo x > {shown}) 2>&1; echo ends");
        let (code, said) = machine.said(&script, &injection);
        assert_eq!(code, 0, "{said}");
        let wanted = "DeviceFileMode: 438\nModifyDeviceFiles: 0\n";
        assert!(said.starts_with(wanted), "{shown}: {said}");
        let refused = ["ead-only file system", "ermission denied"];
        assert!(refused.iter().any(|why| said.contains(why)), "{said}");
    }
}

/// Shows a Python's packages inside, where the machine's own Python of that version looks by itself.
fn with_packages(order: &mut ContainerSpec, python: &std::path::Path) {
    let asked = std::process::Command::new(python)
        .args([
            "-c",
            "import sys, sysconfig; print(sysconfig.get_paths()['purelib'], sys.version_info[1])",
        ])
        .output()
        .expect("it can be started");
    let told = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    let (from, version) = told.rsplit_once(' ').expect("two words");
    order.mounts.push(MountOrder {
        from: from.into(),
        subpath: String::new(),
        at: format!("/usr/local/lib/python3.{version}/dist-packages"),
        read_only: true,
        ..MountOrder::default()
    });
    let path = "/usr/sbin:/usr/bin:/sbin:/bin".to_owned();
    order.environment = vec![("PATH".to_owned(), path)];
}

/// Promise (GPUs): Inside a session NVML shows the slice and the session's own processes. Of two sessions on
/// one GPU, neither sees the other's processes (fake driver, through `nvidia-ml-py`).
#[test]
fn inside_a_session_nvml_shows_the_slice_and_nobody_elses_processes() {
    const NAME: &str = "inside_a_session_nvml_shows_the_slice_and_nobody_elses_processes";
    let python = match python() {
        Ok(python) => python,
        Err(reason) => return skips::skip(NAME, &format!("needs nvidia-ml-py: {reason}")),
    };
    let Some(guarded) = Guarded::make(NAME) else {
        return;
    };
    // Both on the one card, each holding all of its slice.
    let hold = "/opt/ways opened libcuda.so.1 hold";
    let neighbour = guarded.start("neighbour", hold, |_| {});
    let script = format!("{hold} & sleep 2; python3 -c \"$READER\" ''; echo $!");
    let name = guarded.start("one", &script, |order| {
        with_packages(order, &python);
        order
            .environment
            .push(("READER".to_owned(), READER.to_owned()));
    });
    until("both hold their slices", || {
        (guarded.holds(&neighbour) == LIMIT && guarded.holds(&name) == LIMIT).then_some(())
    });
    // The first process of a container is ours, the shell is the second, what it started the third.
    let record = guarded.machine.ground.ended(&name);
    let said = guarded.machine.ground.log(&name);
    assert_eq!(record.code, 0, "{said}");
    let own = said.lines().last().unwrap_or_default();
    for wanted in [
        "memory 64 64 0".to_owned(),
        "second 64 64 0".to_owned(),
        format!("processes ({own}, 64)"),
        "persistence 4".to_owned(),
    ] {
        assert!(said.contains(&wanted), "{wanted}: {said}");
    }
    assert_eq!(
        said.matches(&format!("processes ({own}, 64)\n")).count(),
        2,
        "{said}"
    );
    guarded.runtime.kill(&neighbour).expect("it runs");
    guarded.machine.ground.ended(&neighbour);
}

/// As `numba_compiles_a_real_kernel_under_a_slice_of_one_gibibyte`, in a container.
#[test]
fn numba_compiles_a_real_kernel_inside_a_session() {
    const NAME: &str = "numba_compiles_a_real_kernel_inside_a_session";
    let Some(python) = std::env::var_os("FARDEL_NUMBA") else {
        return skips::skip(
            NAME,
            "needs FARDEL_NUMBA: a Python with numba-cuda, nvidia-cuda-nvcc, nvidia-cuda-nvrtc, \
             nvidia-cuda-runtime, nvidia-nvjitlink and nvidia-nvvm",
        );
    };
    let Some(machine) = Machine::make(NAME) else {
        return;
    };
    let (injection, _pages) = machine.slice("one", 1024 * MIB);
    let script = "python3 -W ignore -c \"$KERNEL\" 2>&1";
    let mut order = machine.order(script, &injection);
    order.memory_bytes = 2048 * MIB;
    with_packages(&mut order, std::path::Path::new(&python));
    order
        .environment
        .push(("KERNEL".to_owned(), KERNEL.to_owned()));
    order
        .environment
        .push(("HOME".to_owned(), "/tmp".to_owned()));
    let (_, said) = machine.ground.run(&order);
    // Two arrays of 256 KiB leave room for fifteen of 64 MiB.
    let wanted = "compiled True\nsees 1024\nrefused True\nheld 960\n";
    assert!(said.contains(wanted), "{said}");
}

/// A program for musl that opens a library and says how far it comes.
const FOR_MUSL: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
    for (int at = 1; at < count; at++) {
        void *library = dlopen(words[at], RTLD_NOW);
        int (*init)(unsigned) = library ? (int (*)(unsigned)) dlsym(library, "cuInit") : 0;
        if (init) printf("cuInit answers %d\n", init(0));
        else printf("not loaded: %s\n", dlerror());
    }
}
"#;

#[test]
fn a_program_for_musl_or_without_any_loader_has_nothing_of_the_driver() {
    const NAME: &str = "a_program_for_musl_or_without_any_loader_has_nothing_of_the_driver";
    let Some(machine) = Machine::make(NAME) else {
        return;
    };
    let (injection, _pages) = machine.slice("one", LIMIT);
    let places =
        format!("libcuda.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so.1 {PLACE}/libcuda.so.1");
    // A static program brings no loader of its own: with a library that has threads it dies.
    let script: String = places
        .split(' ')
        .map(|place| format!("/opt/unlinked open {place} 2>&1 || echo ended with $?\n"))
        .collect();
    let (_, said) = machine.said(&script, &injection);
    println!("static: {said}");
    assert_eq!(machine.rig.truth(0), 0);
    assert!(!said.contains("cuInit answers 0"), "{said}");

    // `FARDEL_MUSL` names a folder with the packages musl and musl-dev unpacked; else they are installed.
    let root = std::env::var_os("FARDEL_MUSL").map_or_else(|| "/".into(), PathBuf::from);
    let loader = root.join("lib/ld-musl-x86_64.so.1");
    let parts = root.join("usr/lib/x86_64-linux-musl");
    if !loader.exists() || !parts.join("crt1.o").exists() {
        return skips::skip(NAME, "needs the packages musl and musl-dev for half of it");
    }
    let folder = machine.ground.directory.path();
    let source = folder.join("musl.c");
    std::fs::write(&source, FOR_MUSL).expect("written");
    let made = folder.join("for-musl");
    std::fs::copy(&loader, folder.join("libc.so")).expect("it is there");
    let done = std::process::Command::new("cc")
        .args([
            "-nostdinc",
            "-nostdlib",
            "-no-pie",
            "-fno-stack-protector",
            "-isystem",
        ])
        .arg(root.join("usr/include/x86_64-linux-musl"))
        .arg("-Wl,--dynamic-linker=/opt/ld-musl.so")
        .arg("-o")
        .arg(&made)
        .args([parts.join("crt1.o"), parts.join("crti.o"), source])
        // By its usual name: the library itself carries none.
        .arg("-L")
        .arg(folder)
        .arg("-lc")
        .arg(parts.join("crtn.o"))
        .status()
        .expect("a C compiler, which the product's build needs as well");
    assert!(done.success());
    let mut order = machine.order(&format!("/opt/for-musl {places} 2>&1"), &injection);
    for (from, at) in [(&loader, "/opt/ld-musl.so"), (&made, "/opt/for-musl")] {
        order.files.push(node::gpu::FileOrder {
            from: from.clone(),
            at: at.to_owned(),
            for_what: node::gpu::FileUse::Run,
        });
    }
    let (_, said) = machine.ground.run(&order);
    println!("musl: {said}");
    assert_eq!(said.matches("not loaded: ").count(), 3, "{said}");
    assert_eq!(machine.rig.truth(0), 0);
}
