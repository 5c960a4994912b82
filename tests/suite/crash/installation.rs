//! One installation of the product in a temporary directory: its server started, killed and asked,
//! its supervisors found, and at the end everything it could have left behind.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use node::runtime::{Runtime, RuntimePaths};
use serde_json::Value;
use tempfile::TempDir;

use super::http::{self, Answer};

/// Longer than a start takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Installation {
    directory: TempDir,
    server: Option<Child>,
    /// Settings beside the usual ones, by the names of their variables.
    pub(crate) settings: Vec<(&'static str, PathBuf)>,
    /// Another binary than the one that was built for the tests.
    pub(crate) program: Option<PathBuf>,
}

impl Installation {
    /// An installation whose server is not started yet, or nothing after saying why containers
    /// cannot run here.
    pub(crate) fn found(test: &str) -> Option<Self> {
        let made = Self {
            directory: tempfile::Builder::new()
                .prefix("fardel-crash-")
                .tempdir()
                .expect("a temporary directory"),
            server: None,
            settings: Vec::new(),
            program: None,
        };
        let runtime = made.runtime();
        let finding = runtime.findings().iter().find(|f| f.prevents_containers);
        if let Some(finding) = finding {
            skips::skip(test, &finding.what);
            return None;
        }
        Some(made)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.run().join("fardel.sock")
    }

    /// The runtime as the server would open it; looks, touches nothing.
    fn runtime(&self) -> Runtime {
        Runtime::open(RuntimePaths {
            data: self.data(),
            run: self.run(),
            shim_binary: PathBuf::from(env!("CARGO_BIN_EXE_fardel")),
        })
        .expect("the runtime opens")
    }

    /// Its short name in control groups.
    pub(crate) fn instance_id(&self) -> String {
        self.runtime().instance_id().to_owned()
    }

    /// The product with arguments and this installation's places, nothing else of our environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let built = Path::new(env!("CARGO_BIN_EXE_fardel"));
        let mut command = Command::new(self.program.as_deref().unwrap_or(built));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", self.directory.path())
            .env("FARDEL_CONFIG", self.directory.path().join("none.toml"))
            .env("FARDEL_DATA", self.data())
            // A quarter of the disk for each test would be set aside where the kernel can.
            .env("FARDEL_POOL_SIZE", "none")
            .env("FARDEL_SESSION_DISK", "none")
            .env("FARDEL_RUN", self.run())
            .env("FARDEL_LISTEN", "127.0.0.1:0")
            // A home on a machine that holds limits is a file system that outlives the directory of a test.
            .env("FARDEL_HOMES", "false")
            .envs(self.settings.iter().map(|(name, value)| (name, value)));
        command
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("server.log")
    }

    /// What servers wrote so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Starts a server and waits until it answers; gives how long that took.
    pub(crate) fn start(&mut self) -> Duration {
        self.start_until(|of| {
            let listed = of.get("/api/v1/sessions?limit=1");
            listed.is_ok_and(|answer| answer.is_good())
        })
    }

    /// The same where a server may answer that it is not well: waits until this holds.
    pub(crate) fn start_until(&mut self, serves: impl Fn(&Self) -> bool) -> Duration {
        assert!(self.server.is_none(), "one server at a time");
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log())
            .expect("the log opens");
        let errors = log.try_clone().expect("a second handle");
        let began = Instant::now();
        let child = self
            .command(&["serve"])
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .expect("the server starts");
        self.server = Some(child);
        while !serves(self) {
            let ended = self
                .server
                .as_mut()
                .and_then(|c| c.try_wait().ok().flatten());
            assert!(
                ended.is_none() && began.elapsed() < TIMEOUT,
                "the server does not serve ({ended:?}):\n{}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        began.elapsed()
    }

    /// `kill -9`, and waits until the process is gone.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.server.take() {
            child.kill().expect("the server can be killed");
            child.wait().expect("the server ends");
        }
    }

    /// SIGTERM, and how the server left.
    pub(crate) fn term(&mut self) -> ExitStatus {
        let mut child = self.server.take().expect("a running server");
        // SAFETY: the child has not been waited for, so the number is still its own.
        unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
        let until = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = child.try_wait().expect("the server can be waited for") {
                return status;
            }
            if Instant::now() > until {
                child.kill().expect("the server can be killed");
                return ExitStatus::from_raw(libc::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn server_pid(&self) -> Option<u32> {
        self.server.as_ref().map(Child::id)
    }

    pub(crate) fn get(&self, path: &str) -> io::Result<Answer> {
        http::call(&self.socket(), "GET", path, None, None)
    }

    /// Every session there is, in pages.
    pub(crate) fn sessions(&self) -> io::Result<Vec<Value>> {
        let mut all = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = self
                .get(&format!("/api/v1/sessions?limit=500&cursor={cursor}"))?
                .json();
            all.extend(page["items"].as_array().cloned().unwrap_or_default());
            match page["next_cursor"].as_str() {
                Some(next) => next.clone_into(&mut cursor),
                None => return Ok(all),
            }
        }
    }

    /// The living supervisors: container name and process number.
    pub(crate) fn shims(&self) -> Vec<(String, i32)> {
        let Ok(entries) = fs::read_dir(self.run().join("c")) else {
            return Vec::new();
        };
        let mut shims: Vec<(String, i32)> = entries
            .flatten()
            .filter_map(|entry| {
                let record = fs::read(entry.path().join("run.json")).ok()?;
                let record: Value = serde_json::from_slice(&record).ok()?;
                let pid = i32::try_from(record["shim"]["pid"].as_i64()?).ok()?;
                // A number read from a file may belong to somebody else by now.
                let name = entry.file_name().into_string().ok()?;
                self.holds(pid).then_some((name, pid))
            })
            .collect();
        shims.sort();
        shims
    }

    /// True for a process that has something of this installation open.
    fn holds(&self, pid: i32) -> bool {
        let place = self.directory.path();
        fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|open| open.starts_with(place))
    }

    /// What is still there of any container, in words; empty when nothing is. `mark` stands in the
    /// arguments of every program that sessions ran. The server must be gone.
    pub(crate) fn leftovers(&self, mark: &str) -> Vec<String> {
        assert!(self.server.is_none(), "ask after the server is gone");
        let place = self.directory.path().display().to_string();
        let mut left = Vec::new();
        for (pid, words) in processes() {
            if words.contains(mark) || words.contains(&place) || self.holds(pid) {
                left.push(format!("process {pid}: {words}"));
            }
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts can be read");
        left.extend(
            mounts
                .lines()
                .filter(|line| line.contains(&place))
                .map(|line| format!("mount {line}")),
        );
        let runtime = self.runtime();
        for group in groups(runtime.instance_id()) {
            left.push(format!("control group {}", group.display()));
        }
        runtime.retire();
        for below in [self.run().join("c"), self.data().join("containers")] {
            for entry in fs::read_dir(&below).into_iter().flatten().flatten() {
                left.push(format!("directory {}", entry.path().display()));
            }
        }
        let blocks = self.blocks_of_ids();
        left.extend(blocks.iter().map(|name| format!("block of ids of {name}")));
        left
    }

    /// The containers that the node's record keeps a block of ids for.
    pub(crate) fn blocks_of_ids(&self) -> Vec<String> {
        let record = fs::read(self.data().join("node.json")).expect("the node's record");
        let record: Value = serde_json::from_slice(&record).expect("the record is JSON");
        let blocks = record["places"].as_object();
        blocks
            .into_iter()
            .flat_map(|blocks| blocks.keys().cloned())
            .collect()
    }

    /// Namespaces that the running server keeps alive by a descriptor, besides its own.
    pub(crate) fn namespaces_held(&self) -> Vec<String> {
        let Some(pid) = self.server_pid() else {
            return Vec::new();
        };
        fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .map(|target| target.display().to_string())
            .filter(|target| {
                ["mnt:[", "net:[", "user:[", "pid:["]
                    .iter()
                    .any(|kind| target.starts_with(kind))
            })
            .collect()
    }

    /// State of the freezer of a container: `THAWED` or `FROZEN`; None where the host has no freezer
    /// of version 1 or the container no group.
    pub(crate) fn freezer(&self, container: &str) -> Option<String> {
        let group = PathBuf::from("/sys/fs/cgroup/freezer/fardel")
            .join(self.runtime().instance_id())
            .join("sessions")
            .join(container);
        let state = fs::read_to_string(group.join("freezer.state")).ok()?;
        Some(state.trim().to_owned())
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        // A failed test must not leave anything running on the machine.
        self.kill();
        for (_, pid) in self.shims() {
            // SAFETY: checked just above to be a supervisor of this installation.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        let runtime = self.runtime();
        let _ = runtime.adopt();
        for sight in runtime.sights() {
            let _ = runtime.forget(&sight.name);
        }
        runtime.retire();
        // Pages of slices outlive the server.
        let pages = fs::read_dir(self.directory.path().join("run/gpu"));
        for held in pages.into_iter().flatten().flatten() {
            let page = held.path().join("account");
            let _ = nix::mount::umount2(&page, nix::mount::MntFlags::MNT_DETACH);
        }
        if std::thread::panicking() {
            eprintln!("the servers said:\n{}", self.said());
        }
        // The directory's own removal recurses, and sessions leave trees of any depth.
        let _ = store::trees::remove(self.directory.path());
    }
}

/// Every process with its arguments.
fn processes() -> Vec<(i32, String)> {
    let own = std::process::id().cast_signed();
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let words = fs::read(entry.path().join("cmdline")).ok()?;
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            (pid != own).then(|| (pid, words.trim().to_owned()))
        })
        .collect()
}

/// Control groups of sessions of this installation, in every hierarchy.
fn groups(instance_id: &str) -> BTreeSet<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let mut hierarchies: Vec<PathBuf> = fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    hierarchies.push(root.to_owned());
    hierarchies
        .into_iter()
        .map(|hierarchy| hierarchy.join("fardel").join(instance_id).join("sessions"))
        .flat_map(|sessions| fs::read_dir(sessions).into_iter().flatten().flatten())
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}
