//! Starts the built server beside whatever else runs here, asks it over HTTP, and ends it. Uses its
//! own state, runtime directory and port, all removed at the end.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::budgets;
use crate::failure::Failure;
use crate::program::Program;

/// Longer: the gate hangs when the server does. Shorter: a loaded machine fails for nothing.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Measures from the start of the process to the first 200, best of three, and holds it to the
/// budget; the best, because a loaded machine can only make it slower.
pub(crate) fn answers(binary: &Path) -> Result<(), Failure> {
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let begun = Instant::now();
        let server = Server::start(binary)?;
        server.wait_for("/healthz", begun)?;
        best = best.min(begun.elapsed());
        server.end()?;
    }
    println!("first 200 after {} ms", best.as_millis());
    budgets::check_number("first_answer_ms", best.as_millis())
}

/// A running server with a state of its own.
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
    address: SocketAddr,
}

/// Status line, headers and body, body as it came over the wire.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }
}

impl Server {
    pub(crate) fn start(binary: &Path) -> Result<Self, Failure> {
        Self::start_by(Program::named(binary), None)
    }

    /// Starts the server that a package put into another root.
    pub(crate) fn start_inside(root: &Path) -> Result<Self, Failure> {
        // In mounts of its own: the server asks /proc which boot this is, and nothing may stay mounted.
        let proc = root.join("proc");
        let program = Program::named("unshare")
            .argument(format!("--mount-proc={}", proc.display()))
            .words("chroot")
            .argument(root)
            .words("/usr/bin/fardel")
            // The installed settings open these on every network, and the gate's machine is not ours.
            .variable("FARDEL_LISTEN_HTTP", "127.0.0.1:0")
            .variable("FARDEL_LISTEN_APPS", "127.0.0.1:0")
            .variable("FARDEL_LISTEN_SSH", "127.0.0.1:0");
        Self::start_by(program, Some(Path::new("/var/lib/fardel")))
    }

    /// `state` is where its data go; otherwise below the folder that is removed at the end.
    fn start_by(program: Program, state: Option<&Path>) -> Result<Self, Failure> {
        let fault = |error: std::io::Error| Failure::new(format!("the server: {error}"));
        // Asked for and given back: another program could take it in between, and then the start
        // fails loudly.
        let address = TcpListener::bind("127.0.0.1:0")
            .and_then(|taken| taken.local_addr())
            .map_err(fault)?;
        let folder = std::env::temp_dir().join(format!("fardel-gate-{}", address.port()));
        fs::create_dir_all(&folder).map_err(fault)?;
        let log = fs::File::create(folder.join("log")).map_err(fault)?;
        let data = state.map_or_else(|| folder.join("data"), Path::to_path_buf);
        let run = state.map_or_else(|| folder.join("run"), |_| "/run/fardel".into());
        // Those of a package are its own; else never the machine's.
        let program = match state {
            Some(_) => program,
            None => program.variable("FARDEL_CONFIG", folder.join("fardel.toml")),
        };
        let mut command = program
            .words("serve")
            .variable("FARDEL_DATA", data)
            .variable("FARDEL_RUN", run)
            .variable("FARDEL_LISTEN", address.to_string())
            .into_command();
        let child = command
            .stdout(log.try_clone().map_err(fault)?)
            .stderr(log)
            .spawn()
            .map_err(fault)?;
        Ok(Self {
            child,
            folder,
            address,
        })
    }

    /// Asks until it answers 200, or says what the log says.
    pub(crate) fn wait_for(&self, path: &str, begun: Instant) -> Result<Answer, Failure> {
        loop {
            if let Ok(answer) = self.get(path, "identity")
                && answer.status == 200
            {
                return Ok(answer);
            }
            if begun.elapsed() > TIMEOUT {
                let log = self.log();
                return Err(Failure::new(format!(
                    "no 200 from {path}; its log says:\n{log}"
                )));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its local socket, over which root needs no token.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("run/fardel.sock")
    }

    /// The directory that its socket lies in.
    pub(crate) fn run_directory(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// What it wrote so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Its resident memory in the kernel's words, such as `27000 kB`.
    pub(crate) fn memory(&self) -> Result<String, Failure> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.map_err(|error| Failure::new(format!("the server: {error}")))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        Ok(line.unwrap_or_default().trim().to_owned())
    }

    /// One GET on a connection of its own.
    pub(crate) fn get(&self, path: &str, encoding: &str) -> std::io::Result<Answer> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        write!(
            stream,
            "GET {path} HTTP/1.0\r\nHost: {}\r\nAccept-Encoding: {encoding}\r\nAccept: text/html, */*\r\n\r\n",
            self.address,
        )?;
        let mut whole = Vec::new();
        stream.read_to_end(&mut whole)?;
        let end = whole
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .ok_or_else(|| std::io::Error::other("no end of headers"))?;
        let headers = String::from_utf8_lossy(&whole[..end]).into_owned();
        let status = headers
            .split_whitespace()
            .nth(1)
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| std::io::Error::other("no status"))?;
        Ok(Answer {
            status,
            headers,
            body: whole[end + 4..].to_vec(),
        })
    }

    /// Asks it to end and waits; fails when it does not end with 0.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        Program::named("kill")
            .words("-TERM")
            .argument(self.child.id().to_string())
            .run()?;
        let begun = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => {
                    return Err(Failure::new(format!(
                        "after SIGTERM the server ended with {status}"
                    )));
                }
                Ok(None) if begun.elapsed() < TIMEOUT => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(None) => return Err(Failure::new("the server does not end on SIGTERM")),
                Err(error) => return Err(Failure::new(format!("the server: {error}"))),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // Ours, and still there: nothing else would end it.
            if let Err(error) = self.child.kill().and_then(|()| self.child.wait().map(drop)) {
                println!("server {} stays behind: {error}", self.child.id());
            }
        }
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            println!("{} stays behind: {error}", self.folder.display());
        }
    }
}
