//! The server that is measured: this very program, or the one that was named, on temporary directories, started, asked and at the
//! end taken away with all its sessions.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::wire::{BenchAddress, Connection, MeasuredAnswer};

/// Longer than a start takes on a loaded machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The program that is measured, where it is not this very one.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Names the program that every later server is started from. The first one named counts.
pub fn measure(program: PathBuf) {
    PROGRAM.get_or_init(|| program);
}

/// The program that is measured.
pub fn program() -> &'static Path {
    PROGRAM
        .get()
        .map_or(Path::new("/proc/self/exe"), PathBuf::as_path)
}

/// A directory that is removed at the end. Readable by all: a container's root, which is no user
/// outside, must find its way through.
pub struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    pub fn new(word: &str) -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("fardel-bench-{}-{word}", std::process::id()));
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} remains: {error}", self.0.display());
        }
    }
}

pub struct BenchServer {
    place: ScratchDirectory,
    server: Option<Child>,
    listen: SocketAddr,
    /// Settings beside the usual ones, by the names of their variables.
    more: &'static [(&'static str, &'static str)],
}

impl BenchServer {
    /// A server on fresh directories that answers, and how long it took from its start until then.
    pub fn fresh(word: &str) -> io::Result<(Self, Duration)> {
        Self::with(word, &[])
    }

    /// The same with more settings.
    pub fn with(
        word: &str,
        more: &'static [(&'static str, &'static str)],
    ) -> io::Result<(Self, Duration)> {
        let mut subject = Self {
            place: ScratchDirectory::new(word)?,
            server: None,
            listen: free_port()?,
            more,
        };
        let took = subject.start()?;
        Ok((subject, took))
    }

    /// Other settings from its next start on, in place of those that it was made with.
    pub fn change(&mut self, more: &'static [(&'static str, &'static str)]) {
        self.more = more;
    }

    /// Starts the server; gives the time from there to the first answer of 200 over TCP,
    /// or over the local socket where TCP speaks TLS.
    pub fn start(&mut self) -> io::Result<Duration> {
        let said = fs::File::create(self.place.path().join("said"))?;
        let began = Instant::now();
        self.server = Some(
            Command::new(program())
                .arg("serve")
                .env_clear()
                .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
                .env("HOME", self.place.path())
                .env("FARDEL_CONFIG", self.place.path().join("none.toml"))
                .env("FARDEL_DATA", self.place.path().join("data"))
                .env("FARDEL_RUN", self.place.path().join("run"))
                .env("FARDEL_POOL_SIZE", "none")
                .env("FARDEL_SESSION_DISK", "none")
                .env("FARDEL_LISTEN", self.listen.to_string())
                .envs(self.more.iter().copied())
                .stdin(Stdio::null())
                .stdout(said.try_clone()?)
                .stderr(said)
                .spawn()?,
        );
        loop {
            let answers = self
                .plain()
                .and_then(|mut c| c.get("/healthz"))
                .is_ok_and(|answer| answer.status == 200);
            if answers {
                return Ok(began.elapsed());
            }
            if began.elapsed() > START_TIMEOUT {
                return Err(io::Error::other(format!(
                    "the server does not serve:\n{}",
                    self.said()
                )));
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// A connection without TLS.
    fn plain(&self) -> io::Result<Connection> {
        match self.more.contains(&("FARDEL_TLS", "on")) {
            true => self.local(),
            false => self.tcp(&[]),
        }
    }

    /// Ends the server by SIGTERM and waits.
    pub fn leave(&mut self) {
        if let Some(mut child) = self.server.take() {
            let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
            let _ = child.wait();
        }
    }

    /// Unmounts what a server leaves to the one that comes after it: the file systems that hold folders to their limits.
    fn unmount(&self) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        let own: Vec<&Path> = points
            .map(Path::new)
            .filter(|point| point.starts_with(self.place.path()))
            .collect();
        // What lies deeper was mounted later.
        for point in own.into_iter().rev() {
            if let Err(error) = nix::mount::umount2(point, nix::mount::MntFlags::MNT_DETACH) {
                eprintln!("{} stays mounted: {error}", point.display());
            }
        }
    }

    pub fn said(&self) -> String {
        fs::read_to_string(self.place.path().join("said")).unwrap_or_default()
    }

    /// The directory of its state.
    pub fn data(&self) -> PathBuf {
        self.place.path().join("data")
    }

    pub fn pid(&self) -> u32 {
        self.server.as_ref().map_or(0, Child::id)
    }

    pub fn address(&self) -> BenchAddress {
        BenchAddress::Unix(self.place.path().join("run/fardel.sock"))
    }

    /// A connection as root on the box.
    pub fn local(&self) -> io::Result<Connection> {
        Connection::open(&self.address(), &[])
    }

    pub fn tcp(&self, headers: &[(&str, &str)]) -> io::Result<Connection> {
        Connection::open(&BenchAddress::Tcp(self.listen), headers)
    }

    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Process numbers of the living supervisors.
    pub fn shims(&self) -> Vec<u32> {
        let entries = fs::read_dir(self.place.path().join("run/c"));
        let pid = |path: PathBuf| -> Option<u32> {
            let record: Value =
                serde_json::from_slice(&fs::read(path.join("run.json")).ok()?).ok()?;
            let pid = u32::try_from(record["shim"]["pid"].as_u64()?).ok()?;
            fs::metadata(format!("/proc/{pid}")).is_ok().then_some(pid)
        };
        entries
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| pid(entry.path()))
            .collect()
    }

    /// Ends every session and waits until nothing of them is left.
    pub fn clear(&self) -> io::Result<()> {
        let mut local = self.local()?;
        let until = Instant::now() + START_TIMEOUT;
        loop {
            let page = local
                .get("/api/v1/sessions?limit=500")?
                .good("list sessions")?
                .json();
            let live: Vec<&Value> = page["items"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|session| session["state"] != "ended")
                .collect();
            let left = fs::read_dir(self.place.path().join("run/c")).map_or(0, Iterator::count);
            if live.is_empty() && left == 0 {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(io::Error::other(format!("{left} sessions do not end")));
            }
            for session in live.iter().filter(|session| session["desired"] != "kill") {
                let id = session["id"].as_str().unwrap_or_default();
                local.post(&format!("/api/v1/sessions/{id}/kill"), &json!({}))?;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Makes the first administrator with the one-time link; gives the cookie of the browser that did.
    pub fn cookie(&self) -> io::Result<String> {
        // The doors open before the link is printed.
        let until = Instant::now() + Duration::from_secs(2);
        let mut said = self.said();
        while !said.contains("  (once") && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
            said = self.said();
        }
        let code = said
            .split_once("code=")
            .map(|(_, rest)| rest.split_whitespace().next().unwrap_or_default())
            .ok_or_else(|| io::Error::other("no setup link"))?;
        // The wire names the host without its port; the origin must be that very host.
        let origin = "http://127.0.0.1".to_owned();
        let mut browser = self.tcp(&[("origin", &origin), ("sec-fetch-site", "same-origin")])?;
        let form = format!("code={code}&name=bench&password={PASSWORD}&again={PASSWORD}");
        let answer = browser.form("/setup", &form)?;
        cookie_of(&answer).ok_or_else(|| {
            let said = String::from_utf8_lossy(&answer.body).into_owned();
            io::Error::other(format!("setup gave no cookie: {}\n{said}", answer.head))
        })
    }
}

/// Of every account that a bench makes.
pub const PASSWORD: &str = "correct-horse-battery-staple-9";

/// The cookie that an answer sets; None where it sets none.
pub fn cookie_of(answer: &MeasuredAnswer) -> Option<String> {
    let set = answer.header("set-cookie")?;
    set.split(';').next().map(str::to_owned)
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        if self.server.is_some() {
            if let Err(error) = self.clear() {
                eprintln!(
                    "sessions of {} remain: {error}",
                    self.place.path().display()
                );
            }
            self.leave();
        }
        self.unmount();
    }
}

fn free_port() -> io::Result<SocketAddr> {
    std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()
}
