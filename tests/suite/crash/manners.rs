//! Starts that cannot be: each is one clear sentence with a way out and exit code 1, never a panic,
//! and never at the cost of a server that runs.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A start that does not end in this time is one that succeeded, which no test here wants.
const TIMEOUT: Duration = Duration::from_secs(30);

fn serve(place: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fardel"));
    command
        .arg("serve")
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", place.path())
        .env("FARDEL_CONFIG", place.path().join("none.toml"))
        .env("FARDEL_DATA", place.path().join("data"))
        .env("FARDEL_RUN", place.path().join("run"))
        .env("FARDEL_POOL_SIZE", "none")
        .env("FARDEL_SESSION_DISK", "none")
        .env("FARDEL_LISTEN", "127.0.0.1:0")
        .stdin(Stdio::null());
    command
}

/// What a start that must fail says; checks what every refusal has in common.
fn refusal(mut command: Command) -> String {
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let until = Instant::now() + TIMEOUT;
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        if Instant::now() > until {
            child.kill().expect("it can be killed");
            panic!("it serves, though it must not");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut said = String::new();
    child
        .stderr
        .take()
        .expect("piped")
        .read_to_string(&mut said)
        .expect("it speaks UTF-8");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: "), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    assert!(said.lines().count() >= 2, "no way out is told: {said}");
    said
}

/// Runs a server until it listens on its own socket, then `meanwhile`; ends it by SIGTERM.
fn with_server(place: &TempDir, meanwhile: impl FnOnce()) {
    let mut child = serve(place)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let socket = place.path().join("run/fardel.sock");
    let answers = || {
        super::http::call(&socket, "GET", "/api/v1/sessions?limit=1", None, None)
            .is_ok_and(|answer| answer.is_good())
    };
    let up = super::wait_until(TIMEOUT, answers);
    if up.is_ok() {
        meanwhile();
    }
    let still = answers();
    // SAFETY: the child has not been waited for, so the number is still its own.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
    let status = child.wait().expect("it ends");
    assert!(
        up.is_ok() && still && status.success(),
        "the first server: {up:?} {still} {status}"
    );
}

#[test]
fn a_second_server_on_the_same_state_is_refused_and_the_first_goes_on() {
    let place = tempfile::tempdir().expect("a temporary directory");
    with_server(&place, || {
        let mut second = serve(&place);
        second.env("FARDEL_RUN", place.path().join("other"));
        let said = refusal(second);
        assert!(said.contains("data"), "{said}");
        // The same runtime directory as well: the first one's socket must survive the attempt.
        refusal(serve(&place));
    });
}

#[test]
fn a_taken_port_is_named_with_one_that_would_work() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let mut command = serve(&place);
    command.env("FARDEL_LISTEN", address.to_string());
    let said = refusal(command);
    assert!(
        said.contains(&address.to_string()) && said.contains("--listen"),
        "{said}"
    );
    assert!(!place.path().join("data").exists(), "the state was touched");
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let place = tempfile::tempdir().expect("a temporary directory");
    let file = place.path().join("file");
    fs::write(&file, "in the way").expect("a file");
    for (variable, path) in [
        ("FARDEL_DATA", file.join("below")),
        ("FARDEL_RUN", file.join("below")),
        ("FARDEL_DATA", "/proc/fardel-data".into()),
        ("FARDEL_RUN", "/proc/fardel-run".into()),
    ] {
        let mut command = serve(&place);
        command.env(variable, &path);
        let said = refusal(command);
        assert!(
            said.contains(&path.display().to_string()) && said.contains(variable),
            "{said}"
        );
    }
}

#[test]
fn state_of_a_newer_version_is_left_alone() {
    let place = tempfile::tempdir().expect("a temporary directory");
    with_server(&place, || {});
    let catalog = place.path().join("data/catalog.sqlite");
    for beside in ["catalog.sqlite-wal", "catalog.sqlite-shm"] {
        assert!(
            !place.path().join("data").join(beside).exists(),
            "a clean end leaves one file"
        );
    }
    // SQLite keeps `user_version` in bytes 60 to 63 of the file, highest first.
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&catalog)
        .expect("the catalog");
    file.seek(SeekFrom::Start(60)).expect("a place in the file");
    file.write_all(&9999u32.to_be_bytes()).expect("a write");
    drop(file);
    let before = fs::read(&catalog).expect("the catalog");
    let said = refusal(serve(&place));
    assert!(said.contains("newer") || said.contains("9999"), "{said}");
    assert!(
        fs::read(&catalog).expect("the catalog") == before,
        "the catalog was changed"
    );
}
