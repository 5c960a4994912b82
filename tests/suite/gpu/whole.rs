//! The whole product with a card that is made of files: found by its own helper, given in slices over the
//! API, held in real containers, resized while they run, and held by the next server after a `kill -9`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::rig::{MIB, Rig, state, works};
use super::views::Holder;
use crate::crash::http;
use crate::crash::installation::Installation;
use crate::programs::install;

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(90);
const VERSION: &str = "999.99.01";
const CARD: u64 = 8192 * MIB;

struct Whole {
    installation: Installation,
    _root: tempfile::TempDir,
    /// The driver's state on the host's side; in a container the same place is the container's own.
    rig: Rig,
}

/// Lays a driver with one card into `root`; its libraries work on the state in `place`.
fn lay(root: &Path, place: &Path) {
    let file = |path: &str, bytes: &[u8]| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("made");
        install(&path, bytes);
    };
    let told = format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {VERSION}  made up\n");
    file("proc/driver/nvidia/version", told.as_bytes());
    let devices = "Character devices:\n195 nvidia\n509 nvidia-uvm\n";
    file("proc/devices", devices.as_bytes());
    let number = uuid::Uuid::from_bytes(state::uuid(0));
    let told = format!("Model: Fake\nGPU UUID: GPU-{number}\nDevice Minor: 0\n");
    file(
        "proc/driver/nvidia/gpus/0000:41:00.0/information",
        told.as_bytes(),
    );
    for (from, to) in [
        (place.join("libcuda.so.1"), "x86_64-linux-gnu/libcuda"),
        (
            place.join("libnvidia-ml.so.1"),
            "x86_64-linux-gnu/libnvidia-ml",
        ),
    ] {
        let bytes = fs::read(from).expect("the rig has them");
        file(&format!("usr/lib/{to}.so.{VERSION}"), &bytes);
    }
    // The two programs that a container is given of the driver are ours.
    for (program, name) in [
        ("conformance", "nvidia-smi"),
        ("visitor", "nvidia-debugdump"),
    ] {
        let bytes = fs::read(works().folder.join(program)).expect("it was compiled");
        file(&format!("usr/bin/{name}"), &bytes);
    }
}

/// Not a test: lays a driver with a card where the browser's journeys find it, and says where its state lies,
/// which whoever asked for it removes.
#[test]
#[ignore = "lays files for the browser suite, at FARDEL_CARD_OUT"]
fn a_card_of_files_is_laid() {
    let out = std::env::var_os("FARDEL_CARD_OUT").expect("where to lay it");
    let (out, rig) = (PathBuf::from(out), Rig::with(1, CARD, CARD));
    lay(&out.join("root"), &rig.place);
    fs::write(out.join("place"), rig.place.as_os_str().as_encoded_bytes()).expect("written");
    // Its state outlives this process.
    std::mem::forget(rig);
}

/// An image with nothing in it but the C library that the test's program needs, as `docker save` writes one.
fn image(folder: &Path) -> PathBuf {
    use sha2::Digest as _;
    let run = |command: &mut Command| {
        let output = command.output().expect("it can be started");
        assert!(output.status.success(), "{command:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (root, tree) = (folder.join("root"), folder.join("tree"));
    fs::create_dir_all(root.join("tmp")).expect("made");
    fs::create_dir_all(&tree).expect("made");
    let told = run(Command::new("ldd").arg(works().folder.join("gpu_test")));
    let mut libraries: Vec<PathBuf> = told
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect();
    // What our library asks for in every image, and the loader where a name space of its own looks for it.
    let beside = libraries.iter().find(|at| at.ends_with("libc.so.6"));
    let beside = beside.expect("a program needs it").clone();
    for name in ["libdl.so.2", "ld-linux-x86-64.so.2"] {
        libraries.push(beside.with_file_name(name));
    }
    for library in libraries {
        let at = root.join(library.strip_prefix("/").expect("an absolute path"));
        fs::create_dir_all(at.parent().expect("below the root")).expect("made");
        fs::copy(library, at).expect("copied");
    }
    let packed = |from: &Path, to: &Path| {
        run(Command::new("tar")
            .arg("-C")
            .arg(from)
            .arg("-cf")
            .arg(to)
            .arg("."));
    };
    let layer = tree.join("layer.tar");
    packed(&root, &layer);
    let hex = |bytes: &[u8]| -> String {
        let digest = sha2::Sha256::digest(bytes);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let layer = hex(&fs::read(&layer).expect("a layer"));
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {"Cmd": ["/nothing"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
    })
    .to_string();
    let name = format!("{}.json", hex(config.as_bytes()));
    fs::write(tree.join(&name), config).expect("written");
    let manifest = json!([{"Config": name, "RepoTags": ["c-library:1"], "Layers": ["layer.tar"]}]);
    fs::write(tree.join("manifest.json"), manifest.to_string()).expect("written");
    let archive = folder.join("image.tar");
    packed(&tree, &archive);
    archive
}

impl Whole {
    /// A server on a machine with one card of 8 GiB.
    fn make(test: &str) -> Option<Self> {
        Self::with(test, CARD, &[])
    }

    /// The same with a card of so many bytes, and more settings by the names of their variables.
    fn with(test: &str, card: u64, more: &[(&'static str, &str)]) -> Option<Self> {
        let mut installation = Installation::found(test)?;
        let rig = Rig::with(1, card, card);
        let root = tempfile::tempdir().expect("a directory");
        lay(root.path(), &rig.place);
        let npu = root.path().join("dev/npu0");
        fs::create_dir_all(npu.parent().expect("below the root")).expect("made");
        nix::sys::stat::mknod(
            &npu,
            nix::sys::stat::SFlag::S_IFCHR,
            nix::sys::stat::Mode::from_bits_truncate(0o600),
            nix::sys::stat::makedev(240, 0),
        )
        .expect("root makes nodes");
        installation.settings = vec![("FARDEL_DRIVER_ROOT", root.path().to_owned())];
        let more = more
            .iter()
            .map(|(name, value)| (*name, PathBuf::from(value)));
        installation.settings.extend(more);
        installation.start();
        let whole = Self {
            installation,
            _root: root,
            rig,
        };
        whole.until("the card", || {
            let gpus = whole.get("/api/v1/gpus");
            let memory = gpus["items"][0]["memory"].as_u64();
            (memory == Some(card)).then_some(())
        });
        Some(whole)
    }

    fn get(&self, path: &str) -> Value {
        self.installation
            .get(path)
            .map_or(Value::Null, |a| a.json())
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = http::call(&self.installation.socket(), method, path, None, Some(body))
            .expect("the server answers");
        assert!(answer.is_good(), "{method} {path}: {}", answer.json());
        answer.json()
    }

    fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(
                begun.elapsed() < TIMEOUT,
                "{what} never came: {} {}",
                self.get("/api/v1/gpus"),
                self.get("/api/v1/sessions")
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Launches a script with so much of the card; gives its path in the API.
    fn launch(&self, name: &str, script: &str, gpu: Option<f64>) -> String {
        let mut body = json!({
            "name": name, "kind": "batch", "image": "host", "command": ["sh", "-c", script],
            "resources": {"cpu": 0.5, "memory": 256 * MIB, "shm": MIB},
        });
        if let Some(gpu) = gpu {
            body["resources"]["gpu"] = gpu.into();
        }
        let made = self.ask("POST", "/api/v1/sessions", &body);
        format!("/api/v1/sessions/{}", made["id"].as_str().expect("an id"))
    }

    /// Waits until an operation has succeeded.
    fn finished(&self, operation: &Value) {
        let id = operation["id"].as_str().expect("an id");
        let begun = Instant::now();
        loop {
            let now = self.get(&format!("/api/v1/operations/{id}"));
            if now["ended_at"].is_string() {
                assert_eq!(now["state"], "succeeded", "{now}");
                return;
            }
            assert!(begun.elapsed() < TIMEOUT * 4, "it never ends: {now}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn log(&self, session: &str) -> String {
        self.installation
            .get(&format!("{session}/logs"))
            .map_or(String::new(), |a| {
                String::from_utf8_lossy(&a.body).into_owned()
            })
    }

    /// Waits until the session itself says so.
    fn says(&self, session: &str, line: &str) {
        self.until(line, || {
            let row = self.get(session);
            assert_ne!(row["state"], "ended", "{row}: {}", self.log(session));
            self.log(session)
                .lines()
                .any(|said| said == line)
                .then_some(())
        });
    }

    fn ended(&self, session: &str) -> Value {
        self.until("its end", || {
            let row = self.get(session);
            (row["state"] == "ended").then_some(row)
        })
    }

    fn resize(&self, session: &str, gpu: f64) {
        let begun = Instant::now();
        self.ask("PATCH", session, &json!({"resources": {"gpu": gpu}}));
        self.until("the confirmation", || {
            let part = &self.get(session)["devices"][0];
            (part["confirmed"] == true && part["share"] == gpu).then_some(())
        });
        println!("{gpu} confirmed after {:?}", begun.elapsed());
    }

    /// The only directory of pages there is.
    fn pages(&self) -> Option<PathBuf> {
        let folder = fs::read_dir(self.installation.run().join("gpu")).ok()?;
        let mut folders = folder.flatten().map(|entry| entry.path());
        folders.find(|path| path.join("control").exists())
    }

    /// When turns were last given, as the control page says.
    fn heartbeat(&self) -> u64 {
        let page = self
            .pages()
            .and_then(|at| fs::read(at.join("control")).ok());
        let page = page.expect("the session has pages");
        u64::from_le_bytes(page[24..32].try_into().expect("eight bytes"))
    }
}

#[test]
fn a_slice_of_a_real_card_is_given_held_resized_and_kept_over_a_killed_server() {
    const NAME: &str = "a_slice_of_a_real_card_is_given_held_resized_and_kept_over_a_killed_server";
    let Some(mut whole) = Whole::make(NAME) else {
        return;
    };
    let (limit, state) = (CARD / 4, whole.rig.place.join("state"));
    let script = format!(
        "nvidia-debugdump driver {} {CARD} && nvidia-smi plain 1 fork {limit} {} && echo exact && \
         ls /dev | grep -c '^nvidia0$' && exec nvidia-debugdump watch",
        state.display(),
        64 * MIB
    );
    let session = whole.launch("slice", &script, Some(0.25));
    whole.says(&session, "exact");
    // A quarter of the time: through the very page that is mounted inside.
    whole.says(&session, "launched in turns");
    let free = |limit: u64| format!("total {limit} free {}", limit.saturating_sub(64 * MIB));
    whole.says(&session, &free(limit));
    whole.resize(&session, 0.5);
    whole.says(&session, &free(CARD / 2));
    whole.resize(&session, 0.1);
    let tenth = whole.get(&session)["devices"][0]["memory"].as_u64();
    let tenth = tenth.expect("so much memory");
    assert!(tenth <= CARD / 10 && tenth > CARD / 10 - MIB);
    whole.says(&session, &free(tenth));
    // Nobody gives turns while there is no server; the pages stay.
    whole.installation.kill();
    let pages = whole.pages().expect("they outlive the server");
    let silent = whole.heartbeat();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(whole.heartbeat(), silent, "nobody is there to say it");
    whole.installation.start();
    whole.until("the heartbeat", || {
        (whole.heartbeat() > silent).then_some(())
    });
    let row = whole.get(&session);
    assert_eq!(
        (&row["state"], &row["incarnation"]),
        (&json!("running"), &json!(1))
    );
    // The next server changes what the first one gave, in the same process inside.
    whole.until("the card", || {
        let gpus = whole.get("/api/v1/gpus");
        (gpus["items"][0]["memory"] == CARD).then_some(())
    });
    whole.resize(&session, 0.75);
    whole.says(&session, &free(CARD / 4 * 3));
    assert_eq!(whole.get(&session)["incarnation"], 1, "it was restarted");
    whole.ask("POST", &format!("{session}/stop"), &json!({}));
    whole.ended(&session);
    whole.until("the end of its pages", || (!pages.exists()).then_some(()));
}

#[test]
fn without_a_hook_a_session_is_refused_by_name_and_no_device_is_inside_any_other() {
    const NAME: &str =
        "without_a_hook_a_session_is_refused_by_name_and_no_device_is_inside_any_other";
    let Some(whole) = Whole::make(NAME) else {
        return;
    };
    // Somebody put a directory where the library belongs.
    let hook = whole.installation.data().join("gpu/libcuda.so.1");
    fs::create_dir_all(hook.join("in the way")).expect("made");
    let refused = whole.launch("refused", "ls /dev; echo it ran", Some(0.25));
    let row = whole.ended(&refused);
    assert_eq!(row["reason"]["code"], "gpu.no-hook", "{row}");
    assert!(!whole.log(&refused).contains("it ran"));
    assert!(whole.pages().is_none(), "something was left");
    // And without a share there is nothing of the card inside.
    let without = whole.launch("without", "ls /dev | tr '\\n' ' '; echo through", None);
    whole.ended(&without);
    let said = whole.log(&without);
    assert!(
        said.contains("through") && !said.contains("nvidia"),
        "{said}"
    );
    // Mended: the next one gets its share.
    fs::remove_dir_all(&hook).expect("it was made");
    let given = whole.launch("given", "ls /dev | tr '\\n' ' '; echo through", Some(0.25));
    whole.ended(&given);
    let said = whole.log(&given);
    assert!(
        said.contains("nvidia0") && said.contains("nvidiactl"),
        "{said}"
    );
}

#[test]
fn a_driver_that_hangs_ends_no_session_and_blocks_no_request() {
    const NAME: &str = "a_driver_that_hangs_ends_no_session_and_blocks_no_request";
    let Some(whole) = Whole::make(NAME) else {
        return;
    };
    use std::sync::atomic::Ordering::SeqCst;
    let health = || whole.get("/api/v1/gpus")["items"][0]["health"]["state"].clone();
    let becomes = |word: &str| whole.until(word, || (health() == word).then_some(()));
    becomes("well");
    let doing = || whole.get("/api/v1/gpus")["items"][0]["doing"].clone();
    whole.until("figures", || (doing()["celsius"] == 40).then_some(()));
    let live = "while :; do echo \"alive $(date +%s)\"; sleep 1; done";
    let session = whole.launch("goes-on", live, Some(0.25));
    whole.until("its words", || {
        whole.log(&session).contains("alive").then_some(())
    });

    whole.rig.state.nvml_trouble.store(state::HANGS, SeqCst);
    let mut slowest = Duration::ZERO;
    whole.until("unknown", || {
        let asked = Instant::now();
        let word = health();
        slowest = slowest.max(asked.elapsed());
        (word == "unknown").then_some(())
    });
    assert!(
        slowest < Duration::from_secs(2),
        "a request took {slowest:?}"
    );
    // A share is given and taken back while nobody knows how the card is.
    let other = whole.launch("begins", "ls /dev | tr '\\n' ' '", Some(0.25));
    whole.ended(&other);
    assert!(
        whole.log(&other).contains("nvidia0"),
        "{}",
        whole.log(&other)
    );
    let words = whole.log(&session).lines().count();
    whole.until("more words", || {
        (whole.log(&session).lines().count() > words).then_some(())
    });
    assert_eq!(whole.get(&session)["incarnation"], 1);
    whole.rig.state.nvml_trouble.store(0, SeqCst);
    becomes("well");

    // Off the bus: what runs goes on as far as it can, and nothing new is given.
    whole.rig.state.nvml_lost.store(1, SeqCst);
    becomes("failing");
    let waits = whole.launch("waits", "true", Some(0.25));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(whole.get(&waits)["state"], "pending");
    assert_eq!(whole.get(&session)["state"], "running");
    for session in [&waits, &session] {
        whole.ask("POST", &format!("{session}/stop"), &json!({}));
        whole.ended(session);
    }
}

/// Puts a process of the host among those of a session, as if it were one of them that the session's own
/// driver knows nothing of.
fn join(pid: u32, session: &str) {
    let id = session.rsplit('/').next().expect("an id");
    let below = format!("/sessions/{}-", id.replace('-', ""));
    let processes = fs::read_dir("/proc").expect("it is mounted").flatten();
    let groups: Vec<String> = processes
        .filter_map(|entry| fs::read_to_string(entry.path().join("cgroup")).ok())
        .find(|text| text.contains(&below))
        .expect("a process of the session")
        .lines()
        .filter(|line| line.contains(&below))
        .map(str::to_owned)
        .collect();
    let joined = groups.iter().any(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
        let tasks = format!("/sys/fs/cgroup/{controllers}{path}/cgroup.procs");
        fs::write(tasks, pid.to_string()).is_ok()
    });
    assert!(joined, "{groups:?}");
}

#[test]
fn what_a_session_does_with_its_share_is_told_from_the_card_to_every_answer() {
    const NAME: &str = "what_a_session_does_with_its_share_is_told_from_the_card_to_every_answer";
    let Some(whole) = Whole::make(NAME) else {
        return;
    };
    use std::sync::atomic::Ordering::SeqCst;
    let state = whole.rig.place.join("state");
    let script = format!(
        "nvidia-debugdump driver {} {CARD} && touch /tmp/work && exec nvidia-debugdump work /tmp/work",
        state.display()
    );
    let session = whole.launch("works", &script, Some(0.25));
    let slice = || whole.get("/api/v1/gpus")["items"][0]["slices"][0].clone();
    let sample = || {
        let all = whole.get(&format!("{session}/metrics"));
        all["items"].as_array().and_then(|all| all.last().cloned())
    };
    let load = |slice: &Value| slice["load_percent"].as_f64();

    // It works without a pause, and has a quarter of the time for it. A short look may find the first burst.
    let busy = whole.until("its load", || {
        let slice = slice();
        let held = (25.0..150.0).contains(&load(&slice)?);
        held.then_some(slice)
    });
    println!("{busy}");
    assert_eq!(busy["idle_since"], Value::Null);
    // The host's driver knows nothing of a card that is made of files inside.
    assert_eq!(busy["memory_in_use"], 0);

    // What the driver counts for a process of it is the session's.
    let holder = Holder::of(&whole.rig, 96 * MIB);
    join(holder.pid(), &session);
    whole.until("the driver's count", || {
        (slice()["memory_in_use"] == 96 * MIB).then_some(())
    });
    let told = whole.until("a sample", || {
        let sample = sample()?;
        (sample["gpu"]["memory"] == 96 * MIB).then_some(sample)
    });
    assert_eq!(told["gpu"]["simulated"], false);
    let percent = told["gpu"]["memory_percent_of_limit"].as_f64();
    assert_eq!(percent, Some(96.0 / 2048.0 * 100.0));
    assert!(told["gpu"]["load_percent"].as_f64().is_some(), "{told}");
    drop(holder);
    whole.until("the end of it", || {
        (slice()["memory_in_use"] == 0).then_some(())
    });

    // While the driver does not answer, the session's own page is what there is.
    whole.rig.state.nvml_trouble.store(state::HANGS, SeqCst);
    whole.until("its own word", || {
        (slice()["memory_in_use"] == 64 * MIB).then_some(())
    });
    assert!(load(&slice()).is_some(), "turns need no driver");
    whole.rig.state.nvml_trouble.store(0, SeqCst);

    // Nothing more to do.
    let stopped = whole
        .installation
        .command(&["exec", "works", "rm", "/tmp/work"])
        .status()
        .expect("it can be started");
    assert!(stopped.success());
    let idle = whole.until("its rest", || {
        let slice = slice();
        (slice["idle_since"].is_string() && load(&slice) == Some(0.0)).then_some(slice)
    });
    println!("{idle}");
    let figures = whole.installation.get("/metrics").expect("figures");
    let figures = String::from_utf8_lossy(&figures.body).into_owned();
    for figure in [
        "load",
        "idle_seconds",
        "memory_in_use_bytes",
        "memory_bytes",
        "share",
    ] {
        let begins = format!("fardel_session_gpu_{figure}{{session=");
        assert!(figures.contains(&begins), "{figure}: {figures}");
    }
    whole.ask("POST", &format!("{session}/stop"), &json!({}));
    whole.ended(&session);

    // Whoever has the card alone takes no turns: what the driver says of the card is its load.
    let alone = whole.launch("alone", "sleep 600", Some(1.0));
    whole.until("the card's load", || {
        let load = load(&slice())?;
        ((load - 97.0).abs() < 1.0).then_some(())
    });
    whole.ask("POST", &format!("{alone}/stop"), &json!({}));
    whole.ended(&alone);
}

#[test]
fn the_self_test_runs_in_two_sessions_of_the_whole_product() {
    const NAME: &str = "the_self_test_runs_in_two_sessions_of_the_whole_product";
    // Nobody offers the machine's own programs here: an image is what both sessions start from.
    let Some(whole) = Whole::with(NAME, CARD, &[("FARDEL_HOST_ENVIRONMENT", "false")]) else {
        return;
    };
    let card = whole.get("/api/v1/gpus")["items"][0]["id"].clone();
    let card = format!("/api/v1/gpus/{}", card.as_str().expect("its own name"));
    assert_eq!(whole.get(&card)["self_test"], "untested");
    let folder = tempfile::tempdir().expect("a directory");
    let archive = json!({"path": image(folder.path())});
    let imported = whole.ask("POST", "/api/v1/images/import", &archive);
    whole.finished(&imported);
    let asked = json!({"image": "c-library:1"});
    let begun = whole.ask("POST", &format!("{card}/test"), &asked);
    whole.finished(&begun);
    let report = whole.get(&format!("{card}/self-test-report"));
    let findings = report["result"]["findings"].as_array().expect("findings");
    println!("{findings:#?}");
    let failed: Vec<&str> = findings
        .iter()
        .filter(|finding| finding["verdict"] == "failed")
        .filter_map(|finding| finding["code"].as_str())
        .collect();
    // Each container has a fake card of its own here, which the host's driver knows nothing of. A launch costs
    // nothing on it, and a busy machine gives its clock no time.
    let unlike_a_card = ["trespass", "share", "launch"];
    assert!(
        failed.iter().all(|code| unlike_a_card.contains(code)),
        "{failed:?}"
    );
    assert!(failed.contains(&"trespass"), "nobody can have seen that");
    assert_eq!(findings.len(), 34);
    assert_eq!(whole.get(&card)["self_test"], "failed");
    // Nothing of it is left.
    whole.until("the end of both sessions", || {
        let sessions = whole.get("/api/v1/sessions");
        let mut all = sessions["items"].as_array().into_iter().flatten();
        all.all(|row| row["state"] == "ended").then_some(())
    });
    whole.until("the end of their pages", || {
        whole.pages().is_none().then_some(())
    });
}

#[test]
fn a_card_is_partitioned_by_its_machine_and_again_after_a_restart() {
    const NAME: &str = "a_card_is_partitioned_by_its_machine_and_again_after_a_restart";
    // Of a kind that people know how to cut.
    let Some(mut whole) = Whole::with(NAME, 80 * 1024 * MIB, &[]) else {
        return;
    };
    let card = |whole: &Whole| whole.get("/api/v1/gpus")["items"][0].clone();
    let sizes = |whole: &Whole| {
        let gpu = card(whole);
        let parts = gpu["partitions"].as_array().cloned().unwrap_or_default();
        let mut sizes: Vec<String> = parts.iter().map(|p| p["profile"].to_string()).collect();
        sizes.sort();
        (gpu["planned"].is_null() && gpu["health"]["state"] == "well").then_some(sizes)
    };
    let partition = |whole: &Whole, profiles: Value| {
        let body = json!({ "profiles": profiles });
        whole.ask("POST", "/api/v1/gpus/0/partitions", &body)
    };
    let wanted = Some(vec!["\"1g.10gb\"".to_owned(), "\"3g.40gb\"".to_owned()]);

    // Another maker's is counted, and nobody is given it.
    let others = &whole.get("/api/v1/gpus")["others"];
    assert_eq!(others[0]["family"], "FuriosaAI Warboy", "{others}");
    assert_eq!(
        (&others[0]["number"], &others[1]),
        (&json!(1), &json!(null))
    );

    // What runs there ends first; nothing is cut below it.
    let session = whole.launch("slice", "sleep 600", Some(0.25));
    whole.until("it runs", || {
        (whole.get(&session)["state"] == "running").then_some(())
    });
    let told = partition(&whole, json!(["1g.10gb", "3g.40gb"]));
    assert_eq!(told["ends"], json!(["slice"]));
    whole.until("the partitions", || (sizes(&whole) == wanted).then_some(()));
    let row = whole.get(&session);
    assert_eq!(
        (&row["state"], &row["incarnation"]),
        (&json!("pending"), &json!(2))
    );

    // A driver forgets partitions with the machine's restart; whoever changes them by hand is as strange.
    let forget = |whole: &Whole| {
        for part in &whole.rig.state.nvml_part[0] {
            part.store(0, SeqCst);
        }
    };
    forget(&whole);
    whole.installation.kill();
    whole.installation.start();
    whole.until("the partitions again", || {
        let mut parts = whole.rig.state.nvml_part[0].iter();
        let stands = parts.any(|part| part.load(SeqCst) != 0);
        (stands && sizes(&whole) == wanted).then_some(())
    });

    // A driver that refuses is told by name, with what to type, and asked again.
    whole.rig.state.nvml_grudges.store(1, SeqCst);
    partition(&whole, json!(["1g.10gb", "2g.20gb"]));
    let planned = whole.until("the refusal", || {
        let planned = card(&whole)["planned"].clone();
        (!planned["trouble"].is_null()).then_some(planned)
    });
    println!("{}", planned["trouble"]);
    assert_eq!(planned["trouble"]["code"], "gpu.partition-failed");
    assert!(
        planned["trouble"]["text"]
            .as_str()
            .is_some_and(|text| text.contains("making a 1g.10gb")),
        "{planned}"
    );
    assert_eq!(card(&whole)["share_free"], 0);
    whole.rig.state.nvml_grudges.store(0, SeqCst);
    let wanted = Some(vec!["\"1g.10gb\"".to_owned(), "\"2g.20gb\"".to_owned()]);
    whole.until("the second try", || (sizes(&whole) == wanted).then_some(()));

    partition(&whole, json!([]));
    whole.until("it is whole", || {
        (sizes(&whole) == Some(Vec::new())).then_some(())
    });
    // What waited for a share of it has one again.
    whole.until("it runs again", || {
        (whole.get(&session)["state"] == "running").then_some(())
    });
}
