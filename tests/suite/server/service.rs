//! The real binary under a service manager: it says when it serves and when it leaves, and keeps its
//! setup code out of the journal.

use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longer: the suite hangs when the server does. Shorter: a loaded machine fails for nothing.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A server that a test started; gone with the test.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        // It may have left already, and then there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn next(manager: &UnixDatagram) -> String {
    let mut buffer = [0; 128];
    let count = manager
        .recv(&mut buffer)
        .expect("the server says how it stands");
    String::from_utf8_lossy(&buffer[..count]).into_owned()
}

#[test]
fn a_service_says_when_it_serves_and_leaves_and_never_its_setup_code() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let socket = folder.path().join("manager");
    let manager = UnixDatagram::bind(&socket).expect("a socket");
    manager.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let address = TcpListener::bind("127.0.0.1:0")
        .and_then(|taken| taken.local_addr())
        .expect("a free port");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fardel"));
    command
        .arg("serve")
        .env_clear()
        .env("FARDEL_CONFIG", "/nonexistent")
        .env("FARDEL_DATA", folder.path().join("data"))
        .env("FARDEL_RUN", folder.path().join("run"))
        .env("FARDEL_POOL_SIZE", "none")
        .env("FARDEL_SESSION_DISK", "none")
        .env("FARDEL_LISTEN", address.to_string())
        .env("NOTIFY_SOCKET", &socket)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut served = Served(command.spawn().expect("the binary starts"));
    assert_eq!(next(&manager), "READY=1");
    std::net::TcpStream::connect(address).expect("ready means that it listens");
    let pid = nix::unistd::Pid::from_raw(served.0.id().try_into().expect("a process number"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it is ours");
    assert_eq!(next(&manager), "STOPPING=1");
    let mut said = String::new();
    let mut out = served.0.stdout.take().expect("piped");
    out.read_to_string(&mut said).expect("text");
    assert!(said.contains("fardel setup-link"), "{said}");
    assert!(!said.contains("code="), "{said}");
}
