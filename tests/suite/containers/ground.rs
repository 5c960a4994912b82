//! What the container tests stand on: an installation of their own in a temporary directory, orders
//! in the host environment, and waiting with an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use node::runtime::wire::FrameKind;
use node::runtime::{
    ContainerSpec, ContainerStream, IdRange, RootOrder, Runtime, RuntimeExit, RuntimeName,
    RuntimePaths, RuntimePhase, UserOrder,
};
use tempfile::TempDir;

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Id ranges and names must differ between tests that run at the same time.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// One installation of the runtime; everything it left is removed at the end.
pub(crate) struct Ground {
    pub runtime: Arc<Runtime>,
    pub directory: TempDir,
}

impl Ground {
    /// An installation, or nothing after saying why containers cannot run here.
    pub(crate) fn lay(test: &str) -> Option<Self> {
        Self::lay_in(test, &std::env::temp_dir())
    }

    /// The same in a directory of one's own below this one.
    pub(crate) fn lay_in(test: &str, below: &std::path::Path) -> Option<Self> {
        let directory = tempfile::tempdir_in(below).expect("a temporary directory");
        let runtime = open(&directory);
        if let Some(finding) = runtime
            .findings()
            .iter()
            .find(|finding| finding.prevents_containers)
        {
            skips::skip(test, &finding.what);
            return None;
        }
        Some(Self { runtime, directory })
    }

    /// The server dies: its sockets close and nobody is told anything. What stands in its place
    /// knows no container yet.
    pub(crate) fn crash(&mut self) {
        self.runtime = open(&self.directory);
    }

    /// A new server finds what the dead one left.
    pub(crate) fn reopen(&mut self) {
        self.runtime
            .adopt()
            .expect("the containers of the earlier server");
    }

    /// An order for `command` in the host environment as root inside.
    pub(crate) fn order(&self, command: &[&str]) -> ContainerSpec {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        ContainerSpec {
            name: RuntimeName::parse(&format!("t{number}.1")).expect("a plain name"),
            root: RootOrder {
                layers: vec![],
                host_environment: true,
            },
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            environment: vec![],
            directory: None,
            user: UserOrder::Named("root".to_owned()),
            hostname: "box".to_owned(),
            terminal: None,
            cpu_hundredths: 100,
            memory_bytes: 256 << 20,
            shm_bytes: 64 << 20,
            disk_bytes: None,
            pids: 256,
            ids: IdRange {
                base: 100_000 + number * 65_536,
                size: 65_536,
                mapped: None,
            },
            stop_signal: 15,
            mounts: vec![],
            networks: vec![],
            egress: None,
            sudo: false,
            ulimits: rules::process_limits::ProcessLimits::USUAL,
            devices: vec![],
            files: vec![],
            start_up: rules::start_up::StartUp::default(),
        }
    }

    pub(crate) fn shell(&self, script: &str) -> ContainerSpec {
        self.order(&["sh", "-c", script])
    }

    pub(crate) fn start(&self, order: &ContainerSpec) -> RuntimeName {
        self.runtime.start(order).expect("the start is accepted");
        order.name.clone()
    }

    pub(crate) fn standing(&self, name: &RuntimeName) -> RuntimePhase {
        self.runtime
            .sight(name)
            .expect("a known container")
            .standing
    }

    /// Waits until `ready` gives something for the container's standing.
    pub(crate) fn wait<T>(
        &self,
        name: &RuntimeName,
        ready: impl Fn(&RuntimePhase) -> Option<T>,
    ) -> T {
        let until = Instant::now() + TIMEOUT;
        loop {
            let standing = self.standing(name);
            if let Some(value) = ready(&standing) {
                return value;
            }
            assert!(
                Instant::now() < until,
                "{name} is still {standing:?}\n{}",
                self.diagnosis(name)
            );
            self.runtime.wait_for_change(Duration::from_millis(500));
        }
    }

    /// Waits until the command runs; gives its first process.
    pub(crate) fn running(&self, name: &RuntimeName) -> i32 {
        self.wait(name, |standing| match standing {
            RuntimePhase::Running { pid, .. } => Some(Ok(*pid)),
            RuntimePhase::Ended(record) => Some(Err(record.clone())),
            _ => None,
        })
        .unwrap_or_else(|record| {
            panic!(
                "{name} ended instead of running: {record:?}\n{}",
                self.diagnosis(name)
            )
        })
    }

    pub(crate) fn ended(&self, name: &RuntimeName) -> RuntimeExit {
        self.wait(name, |standing| match standing {
            RuntimePhase::Ended(record) => Some(record.clone()),
            RuntimePhase::Lost { why } => panic!("{name} was lost: {why}"),
            _ => None,
        })
    }

    /// Runs to the end; gives the record and everything that was written.
    pub(crate) fn run(&self, order: &ContainerSpec) -> (RuntimeExit, String) {
        let name = self.start(order);
        let record = self.ended(&name);
        let text = self.log(&name);
        assert!(
            record.started_at.is_some(),
            "{name} never started: {record:?}\n{}",
            self.diagnosis(&name)
        );
        (record, text)
    }

    /// What a script answers inside, trimmed; it must succeed.
    pub(crate) fn answer(&self, script: &str) -> String {
        let (record, text) = self.run(&self.shell(script));
        assert_eq!(record.code, 0, "{script}: {text}");
        text.trim().to_owned()
    }

    pub(crate) fn log(&self, name: &RuntimeName) -> String {
        String::from_utf8_lossy(
            &self
                .runtime
                .log(name)
                .read(0, 1 << 20)
                .expect("a log")
                .bytes,
        )
        .into_owned()
    }

    /// The process that supervises a container.
    pub(crate) fn shim_of(&self, name: &RuntimeName) -> i32 {
        let record = self
            .directory
            .path()
            .join("run/c")
            .join(name.as_str())
            .join("run.json");
        let text = std::fs::read(record).expect("a record");
        let record: serde_json::Value = serde_json::from_slice(&text).expect("json");
        record["shim"]["pid"].as_i64().expect("a number") as i32
    }

    fn diagnosis(&self, name: &RuntimeName) -> String {
        let path = self
            .directory
            .path()
            .join("data/logs")
            .join(name.as_str())
            .join("shim.log");
        std::fs::read_to_string(path).unwrap_or_default()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for sight in self.runtime.sights() {
            if !matches!(
                sight.standing,
                RuntimePhase::Ended(_) | RuntimePhase::Lost { .. }
            ) {
                let _ = self.runtime.kill(&sight.name);
            }
        }
        let until = Instant::now() + Duration::from_secs(10);
        for sight in self.runtime.sights() {
            while self.runtime.forget(&sight.name).is_err() && Instant::now() < until {
                self.runtime.wait_for_change(Duration::from_millis(20));
            }
        }
        self.runtime.retire();
    }
}

fn open(directory: &TempDir) -> Arc<Runtime> {
    let runtime = Runtime::open(RuntimePaths {
        data: directory.path().join("data"),
        run: directory.path().join("run"),
        shim_binary: env!("CARGO_BIN_EXE_fardel").into(),
    });
    Arc::new(runtime.expect("the runtime opens on every machine"))
}

/// Everything a stream says until its program ends: output, errors, exit code.
pub(crate) fn hear(stream: &mut ContainerStream) -> (String, String, Option<i32>) {
    let (mut output, mut errors, mut code) = (Vec::new(), Vec::new(), None);
    while let Some(frame) = stream.next().expect("the stream stays whole") {
        match frame.kind {
            FrameKind::Output => output.extend(frame.payload),
            FrameKind::Errors => errors.extend(frame.payload),
            FrameKind::Exit => code = node::runtime::wire::number_of(&frame.payload),
            other => panic!("a stream never says {other:?}"),
        }
    }
    (
        String::from_utf8_lossy(&output).into_owned(),
        String::from_utf8_lossy(&errors).into_owned(),
        code,
    )
}
