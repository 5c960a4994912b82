//! SSH into sessions beside OpenSSH's server: bytes of one stream each way, and what many open connections take. The client
//! on both sides is OpenSSH's own, with the cipher that it agrees on by itself.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base::figures::{quantile, ratio, round};
use serde_json::{Value, json};

use super::exchange::noise;
use super::member::Member;
use super::process::{processes_below, pss_kib, rss_kib};
use super::subject::{BenchServer, ScratchDirectory};
use super::tiny::{installed, output};
use super::unpacked;

const SETTINGS: &[(&str, &str)] = &[("FARDEL_LISTEN_SSH", "127.0.0.1:28422")];
const PORT: u16 = 28_422;
/// Connections that stay open, and how many of them one user may have.
const CONNECTIONS: usize = 200;
const OF_USER: usize = 32;
const SESSION: &str = "bench";
/// Processors of the session that bytes go through: as many as its one command can use, since sshd's command has no limit. With
/// a tenth of one `head` alone writes no more than 190 MB a second.
const STREAM_CPU: f64 = 1.0;
/// Those of a session in which connections only stand.
const IDLE_CPU: f64 = 0.05;
const START_TIMEOUT: Duration = Duration::from_secs(20);
const SETTLING: Duration = Duration::from_secs(3);

/// Where a client connects to.
struct SshTarget<'a> {
    port: u16,
    user: &'a str,
    key: &'a Path,
    /// The one cipher that is offered; None for the client's own list.
    cipher: Option<&'a str>,
}

impl SshTarget<'_> {
    fn client(&self) -> Command {
        self.saying("ERROR")
    }

    /// A client that says so much of what it does.
    fn saying(&self, level: &str) -> Command {
        let mut command = Command::new("ssh");
        command
            .args(["-F", "/dev/null", "-p", &self.port.to_string(), "-i"])
            .arg(self.key)
            // The server was started by this program a moment ago.
            .args(["-o", "StrictHostKeyChecking=no"])
            .args(["-o", "UserKnownHostsFile=/dev/null"])
            .args(["-o", &format!("LogLevel={level}"), "-o", "BatchMode=yes"])
            .args(["-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none"])
            .args(self.cipher.iter().flat_map(|cipher| ["-c", *cipher]))
            .arg(format!("{}@127.0.0.1", self.user))
            .stderr(Stdio::inherit());
        command
    }

    /// The cipher that both sides agree on; None where the client does not say.
    fn cipher(&self) -> io::Result<Option<String>> {
        let mut client = self.saying("DEBUG1");
        let told = client.arg("true").stderr(Stdio::piped()).output()?;
        Ok(cipher(&String::from_utf8_lossy(&told.stderr)))
    }

    /// Sends so many bytes into a program there; bytes a second, in millions.
    fn sent(&self, bytes: u64, piece: &[u8]) -> io::Result<f64> {
        let began = Instant::now();
        let mut child = self
            .client()
            .arg("cat > /dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        if let Some(mut to) = child.stdin.take() {
            let mut left = bytes;
            while left > 0 {
                let now = left.min(piece.len() as u64);
                to.write_all(&piece[..now as usize])?;
                left -= now;
            }
        }
        ended(&mut child)?;
        Ok(bytes as f64 / began.elapsed().as_secs_f64() / 1_000_000.0)
    }

    /// Takes so many bytes of a program there.
    fn taken(&self, bytes: u64) -> io::Result<f64> {
        let began = Instant::now();
        let mut child = self
            .client()
            .arg(format!("head -c {bytes} /dev/zero"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut count = 0;
        if let Some(mut from) = child.stdout.take() {
            let mut buffer = vec![0; 256 << 10];
            loop {
                match from.read(&mut buffer)? {
                    0 => break,
                    read => count += read as u64,
                }
            }
        }
        ended(&mut child)?;
        match count == bytes {
            true => Ok(bytes as f64 / began.elapsed().as_secs_f64() / 1_000_000.0),
            false => Err(io::Error::other(format!("{count} bytes came by SSH"))),
        }
    }

    /// A connection that only stands there.
    fn open(&self) -> io::Result<OpenConnection> {
        let child = self
            .client()
            .args(["-N"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(OpenConnection(child))
    }
}

/// What a client says that it agreed on for what comes to it.
fn cipher(said: &str) -> Option<String> {
    let (_, rest) = said.split_once("kex: server->client cipher: ")?;
    rest.split_whitespace().next().map(str::to_owned)
}

fn ended(child: &mut Child) -> io::Result<()> {
    let status = child.wait()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("ssh ended with {status}"))),
    }
}

struct OpenConnection(Child);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Bytes each way in turns, then open connections to one server after the other.
pub(super) fn ssh(bytes: u64, rounds: usize) -> io::Result<Value> {
    if !installed("ssh") || !installed("ssh-keygen") {
        return Err(io::Error::other("OpenSSH's client is not installed"));
    }
    let place = ScratchDirectory::new("ssh")?;
    let (subject, _) = BenchServer::with("ssh-server", SETTINGS)?;
    let first = Member::first(&subject)?;
    let key = made_key(&place, "first")?;
    enter(&subject, &first, &key, STREAM_CPU)?;
    let ours = SshTarget {
        port: PORT,
        user: SESSION,
        key: &key,
        cipher: None,
    };
    let peer = OpenSshServer::start(&place, &key)?;
    let theirs = peer.as_ref().map(|peer| SshTarget {
        port: peer.port,
        user: "root",
        key: &key,
        cipher: None,
    });
    let cipher = ours.cipher()?;
    let peer_cipher = theirs
        .as_ref()
        .map(SshTarget::cipher)
        .transpose()?
        .flatten();
    // Ours by the peer's cipher, where it is another.
    let alike = peer_cipher
        .as_deref()
        .filter(|peer| cipher.as_deref() != Some(*peer));
    let alike = alike.map(|peer| SshTarget {
        cipher: Some(peer),
        ..ours
    });
    let piece = noise(1 << 20);
    let (mut sent, mut taken) = (Vec::new(), Vec::new());
    let (mut peer_sent, mut peer_taken) = (Vec::new(), Vec::new());
    let (mut sent_alike, mut taken_alike) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        sent.push(ours.sent(bytes, &piece)?);
        taken.push(ours.taken(bytes)?);
        if let Some(theirs) = &theirs {
            peer_sent.push(theirs.sent(bytes, &piece)?);
            peer_taken.push(theirs.taken(bytes)?);
        }
        if let Some(alike) = &alike {
            sent_alike.push(alike.sent(bytes, &piece)?);
            taken_alike.push(alike.taken(bytes)?);
        }
    }
    let connections = many(&subject, &place, &ours)?;
    let beside = match (&peer, &theirs) {
        (Some(peer), Some(theirs)) => Some(peer.many(theirs)?),
        _ => None,
    };
    let times = |ours: &[f64], theirs: &[f64]| ratio(quantile(ours, 0.5), quantile(theirs, 0.5));
    Ok(json!({
        "what": "`ssh HOST 'cat > /dev/null'` and `ssh HOST 'head -c N /dev/zero'` over loopback, into a session and to OpenSSH's server on this machine, in turns, the handshake included; then connections that only stand there",
        "bytes": bytes,
        "sshd": peer.as_ref().map(|peer| &peer.version),
        "cipher": cipher,
        "sshd_cipher": peer_cipher,
        "in": rates(&sent),
        "out": rates(&taken),
        "sshd_in": rates(&peer_sent),
        "sshd_out": rates(&peer_taken),
        "in_ratio_to_sshd": times(&sent, &peer_sent),
        "out_ratio_to_sshd": times(&taken, &peer_taken),
        "by_cipher_of_sshd": alike.map(|_| json!({
            "in": rates(&sent_alike),
            "out": rates(&taken_alike),
            "in_ratio_to_sshd": times(&sent_alike, &peer_sent),
            "out_ratio_to_sshd": times(&taken_alike, &peer_taken),
        })),
        "open": connections,
        "sshd_open": beside,
    }))
}

fn rates(samples: &[f64]) -> Value {
    let all: Vec<f64> = samples.iter().copied().map(round).collect();
    json!({"unit": "MB/s", "median": quantile(samples, 0.5).map(round), "samples": all})
}

fn made_key(place: &ScratchDirectory, name: &str) -> io::Result<std::path::PathBuf> {
    let file = place.path().join(name);
    let mut keygen = Command::new("ssh-keygen");
    keygen
        .args(["-q", "-N", "", "-t", "ed25519", "-C", name, "-f"])
        .arg(&file);
    output(&mut keygen)?;
    Ok(file)
}

/// Gives a user that key and a session of so many processors to connect to.
fn enter(subject: &BenchServer, member: &Member, key: &Path, cpu: f64) -> io::Result<()> {
    let line = fs::read_to_string(key.with_extension("pub"))?;
    member
        .local(subject)?
        .post("/api/v1/me/ssh-keys", &json!({"public_key": line}))?
        .good("add a key")?;
    let body = json!({
        "name": SESSION, "image": "host", "command": ["sleep", "86400"],
        "resources": {"cpu": cpu, "memory": 128 << 20, "shm": 1 << 20},
    });
    let id = member.launch(subject, &body)?;
    member.until(subject, &id, "running")
}

/// What open connections of several users take of the server's memory.
fn many(subject: &BenchServer, place: &ScratchDirectory, first: &SshTarget) -> io::Result<Value> {
    let mut keys = Vec::new();
    for number in 0..CONNECTIONS.div_ceil(OF_USER).saturating_sub(1) {
        let name = format!("ssh-{number}");
        let member = Member::another(subject, &name)?;
        let key = made_key(place, &name)?;
        enter(subject, &member, &key, IDLE_CPU)?;
        keys.push(key);
    }
    let others = keys.iter().map(|key| SshTarget {
        port: first.port,
        user: SESSION,
        key,
        cipher: None,
    });
    let targets: Vec<SshTarget> = others.collect();
    std::thread::sleep(SETTLING);
    let before = rss_kib(subject.pid());
    let mut open = Vec::new();
    for number in 0..CONNECTIONS {
        let target = match number / OF_USER {
            0 => first,
            other => &targets[other - 1],
        };
        open.push(target.open()?);
        // As many as shake hands at once wait for one another.
        std::thread::sleep(Duration::from_millis(30));
    }
    std::thread::sleep(SETTLING);
    let after = rss_kib(subject.pid());
    let alive = alive(&mut open);
    Ok(json!({
        "asked": CONNECTIONS,
        "open": alive,
        "rss_before_kib": before,
        "rss_after_kib": after,
        "grown_kib": after.zip(before).map(|(after, before)| after.saturating_sub(before)),
    }))
}

/// How many clients have not ended.
fn alive(open: &mut [OpenConnection]) -> usize {
    open.iter_mut()
        .map(|one| one.0.try_wait())
        .filter(|ended| matches!(ended, Ok(None)))
        .count()
}

/// OpenSSH's own server, in a mount namespace of its own: it wants a user and a directory that its package would make.
struct OpenSshServer {
    process: Child,
    port: u16,
    version: String,
}

impl OpenSshServer {
    /// None where there is none.
    fn start(place: &ScratchDirectory, key: &Path) -> io::Result<Option<Self>> {
        let Some(program) = unpacked::program("sshd") else {
            return Ok(None);
        };
        let at = place.path().join("sshd");
        fs::create_dir_all(&at)?;
        let host_key = made_key(place, "host-key")?;
        fs::copy(key.with_extension("pub"), at.join("authorized"))?;
        let users = fs::read_to_string("/etc/passwd")?;
        fs::write(
            at.join("passwd"),
            format!("sshd:x:64022:65534::/run/sshd:/usr/sbin/nologin\n{users}"),
        )?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        fs::write(
            at.join("config"),
            format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUseDNS no\nPrintMotd no\nMaxStartups 300\n",
                host_key.display(),
                at.join("authorized").display(),
            ),
        )?;
        let version = unpacked::command(&program).arg("-V").output()?;
        let version = String::from_utf8_lossy(&version.stderr).into_owned();
        let version = version.lines().find(|line| line.contains("OpenSSH"));
        let version = version.unwrap_or_default().trim().to_owned();
        let script = "mount --bind \"$1/passwd\" /etc/passwd && mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && exec \"$2\" -D -e -f \"$1/config\"";
        let process = unpacked::command(Path::new("unshare"))
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(&at)
            .arg(&program)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(at.join("said"))?)
            .spawn()?;
        let mut server = Self {
            process,
            port,
            version,
        };
        let until = Instant::now() + START_TIMEOUT;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if server.process.try_wait()?.is_some() || Instant::now() > until {
                let said = fs::read_to_string(at.join("said")).unwrap_or_default();
                return Err(io::Error::other(format!("sshd does not serve: {said}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(server))
    }

    /// What open connections take of its processes' memory.
    fn many(&self, target: &SshTarget) -> io::Result<Value> {
        let all = || -> u64 {
            let processes = processes_below(self.process.id());
            processes.into_iter().filter_map(pss_kib).sum()
        };
        let before = all();
        let mut open = Vec::new();
        for _ in 0..CONNECTIONS {
            open.push(target.open()?);
            std::thread::sleep(Duration::from_millis(30));
        }
        std::thread::sleep(SETTLING);
        let after = all();
        Ok(json!({
            "asked": CONNECTIONS,
            "open": alive(&mut open),
            "pss_before_kib": before,
            "pss_after_kib": after,
            "grown_kib": after.saturating_sub(before),
        }))
    }
}

impl Drop for OpenSshServer {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.process.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cipher_is_the_one_that_the_client_names() {
        let said = "debug1: kex: host key algorithm: ssh-ed25519\r\ndebug1: kex: server->client cipher: aes128-ctr MAC: x\r\n";
        assert_eq!(cipher(said).as_deref(), Some("aes128-ctr"));
        assert_eq!(cipher("debug1: nothing"), None);
    }
}
