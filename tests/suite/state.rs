//! The real product over a state that is not what it should be: an older copy of the catalog, a damaged one,
//! a disk that fails, and a record that the machine cannot write. It says so by code, ends nothing, and goes
//! on when it is put right.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use base::observe::Clock;
use serde_json::{Value, json};

use crate::crash::http::{self, Answer};
use crate::crash::installation::Installation;
use crate::crowd::{PASSWORD, ask, free_address};
use crate::programs::install;
use crate::steady::cookie;

/// Longer than anything here takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

fn launch(of: &Installation, name: &str) -> Answer {
    let body = json!({
        "name": name,
        "kind": "batch",
        "image": "host",
        "command": ["sleep", "100000"],
        "resources": {"cpu": 0.1, "memory": 64 << 20, "shm": 1 << 20},
    });
    http::call(&of.socket(), "POST", "/api/v1/sessions", None, Some(&body)).expect("an answer")
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < end, "not within {TIMEOUT:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn state_of(of: &Installation, name: &str) -> String {
    let rows = of.sessions().expect("an answer");
    let row = rows.iter().find(|row| row["name"] == name);
    row.map_or_else(String::new, |row| {
        row["state"].as_str().unwrap_or_default().to_owned()
    })
}

/// Ends every session and waits for the last of their supervisors.
fn end_all(of: &Installation) {
    for row in of.sessions().expect("an answer") {
        let id = row["id"].as_str().unwrap_or_default();
        let path = format!("/api/v1/sessions/{id}/kill");
        let _ = http::call(&of.socket(), "POST", &path, None, None);
    }
    until("all ended", || of.shims().is_empty());
}

/// The codes of what readiness finds wrong, and its status.
fn ready(of: &Installation) -> (u16, Vec<String>) {
    let answer = of.get("/readyz").expect("an answer");
    let checks = answer.json()["checks"].clone();
    let wrong = checks.as_array().into_iter().flatten();
    let wrong = wrong.filter(|check| check["ok"] == false && check["minor"] == false);
    let code = |check: &Value| check["code"].as_str().unwrap_or_default().to_owned();
    (answer.status, wrong.map(code).collect())
}

fn copy_catalog(from: &Path, to: &Path) {
    for name in ["catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm"] {
        let _ = fs::remove_file(to.join(name));
        if from.join(name).exists() {
            fs::copy(from.join(name), to.join(name)).expect("a copy");
        }
    }
}

#[test]
fn an_older_catalog_ends_nothing_until_root_accepts_it() {
    let test = "an_older_catalog_ends_nothing_until_root_accepts_it";
    let Some(mut of) = Installation::found(test) else {
        return;
    };
    of.start();
    assert!(launch(&of, "first").is_good());
    until("the first runs", || state_of(&of, "first") == "running");
    assert!(of.term().success());
    let old = tempfile::tempdir().expect("a directory");
    copy_catalog(&of.data(), old.path());
    of.start();
    assert!(launch(&of, "second").is_good());
    until("the second runs", || state_of(&of, "second") == "running");
    assert!(of.term().success());
    copy_catalog(old.path(), &of.data());
    of.start();
    until("readiness names it", || {
        ready(&of) == (503, vec!["state.quarantined".to_owned()])
    });
    let refused = launch(&of, "third");
    assert_eq!(
        (refused.status, refused.json()["code"].clone()),
        (503, json!("state.quarantined"))
    );
    let shown = of.command(&["state", "show"]).output().expect("it runs");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("fardel state accept"), "{shown}");
    let findings = of.get("/api/v1/findings").expect("an answer").json();
    assert!(
        findings.to_string().contains("state.quarantined"),
        "{findings}"
    );
    // The server that served an older copy without a word killed the second within a second.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(of.shims().len(), 2, "a container was ended");
    let accepted = of.command(&["state", "accept"]).output().expect("it runs");
    assert!(accepted.status.success(), "{accepted:?}");
    until("readiness is well again", || ready(&of).0 == 200);
    until("what the catalog does not know is ended", || {
        of.shims().len() == 1
    });
    assert_eq!(state_of(&of, "first"), "running");
    assert!(launch(&of, "third").is_good());
    until("the third runs", || state_of(&of, "third") == "running");
    let again = of.command(&["state", "accept"]).output().expect("it runs");
    assert!(
        String::from_utf8_lossy(&again.stderr).contains("state.nothing-to-accept"),
        "{again:?}"
    );
}

#[test]
fn a_catalog_alone_on_another_machine_runs_nothing_a_second_time() {
    let test = "a_catalog_alone_on_another_machine_runs_nothing_a_second_time";
    let Some(mut here) = Installation::found(test) else {
        return;
    };
    let Some(mut there) = Installation::found(test) else {
        return;
    };
    here.start();
    assert!(launch(&here, "runs").is_good());
    until("it runs", || state_of(&here, "runs") == "running");
    assert!(here.term().success());
    fs::create_dir_all(there.data()).expect("a directory");
    copy_catalog(&here.data(), &there.data());
    there.start();
    until("readiness names it", || {
        ready(&there).1 == ["state.quarantined".to_owned()]
    });
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(there.shims(), []);
    let accepted = there
        .command(&["state", "accept"])
        .output()
        .expect("it runs");
    assert!(accepted.status.success(), "{accepted:?}");
    until("it ended as lost", || state_of(&there, "runs") == "ended");
    assert_eq!(there.shims(), []);
    assert!(launch(&there, "new").is_good());
    until("new work runs", || state_of(&there, "new") == "running");
}

#[test]
fn a_disk_that_is_full_for_a_moment_ends_no_session() {
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    let test = "a_disk_that_is_full_for_a_moment_ends_no_session";
    let Some(mut of) = Installation::found(test) else {
        return;
    };
    of.start();
    let containers = of.run().join("c");
    fs::create_dir_all(&containers).expect("a directory");
    let none = None::<&str>;
    let size = Some("size=1m,mode=0700");
    if let Err(error) = mount(none, &containers, Some("tmpfs"), MsFlags::empty(), size) {
        skips::skip(test, &format!("nothing can be mounted: {error}"));
        return;
    }
    let filler = containers.join("filler");
    let _ = fs::write(&filler, vec![7; 2 << 20]);
    let met = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        assert!(launch(&of, "waits").is_good());
        until("it was tried", || of.said().contains("it is tried again"));
        assert_ne!(state_of(&of, "waits"), "ended");
        fs::remove_file(&filler).expect("it is there");
        until("it runs", || state_of(&of, "waits") == "running");
    }));
    end_all(&of);
    let _ = umount2(&containers, MntFlags::MNT_DETACH);
    if let Err(panic) = met {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn a_record_that_cannot_be_written_is_named_and_new_work_refused() {
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    let test = "a_record_that_cannot_be_written_is_named_and_new_work_refused";
    let Some(mut of) = Installation::found(test) else {
        return;
    };
    of.start();
    assert!(launch(&of, "first").is_good());
    until("the first runs", || state_of(&of, "first") == "running");
    let record = of.data().join("node.json");
    // Nothing can be renamed over a mount, whoever tries.
    let none = None::<&str>;
    if let Err(error) = mount(Some(&record), &record, none, MsFlags::MS_BIND, none) {
        skips::skip(test, &format!("nothing can be mounted: {error}"));
        return;
    }
    let met = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        assert!(launch(&of, "second").is_good());
        until("readiness names it", || {
            ready(&of) == (503, vec!["node.record-unwritable".to_owned()])
        });
        let refused = launch(&of, "third");
        assert_eq!(
            (refused.status, refused.json()["code"].clone()),
            (503, json!("node.record-unwritable"))
        );
    }));
    umount2(&record, MntFlags::MNT_DETACH).expect("it can be unmounted");
    if let Err(panic) = met {
        std::panic::resume_unwind(panic);
    }
    until("the second runs", || state_of(&of, "second") == "running");
    until("readiness is well again", || ready(&of).0 == 200);
}

/// Has the next servers listen at this address, for browsers.
fn listen(of: &mut Installation) -> SocketAddr {
    let console = free_address();
    let address = console.to_string().into();
    of.settings.push(("FARDEL_LISTEN", address));
    console
}

/// Makes an administrator and gives the cookie of their browser.
fn administrator(of: &Installation, console: SocketAddr) -> String {
    let body = json!({"name": "ada", "role": "administrator", "password": PASSWORD});
    let made = ask(&of.socket(), None, "POST", "/api/v1/users", Some(&body));
    let (status, answer) = made.expect("an answer");
    assert!((200..300).contains(&status), "{status} {answer}");
    cookie(console, "ada")
}

/// The overview in a browser: its status and its text.
fn overview(console: SocketAddr, cookie: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(console).expect("it listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let head = format!("GET / HTTP/1.0\r\nhost: {console}\r\ncookie: {cookie}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("taken");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("an answer");
    let text = String::from_utf8_lossy(&all).into_owned();
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.unwrap_or(0), text)
}

/// Status and code of a refusal.
fn refusal(answer: &Answer) -> (u16, Value) {
    (answer.status, answer.json()["code"].clone())
}

#[test]
fn a_damaged_catalog_is_told_by_readiness_api_and_page() {
    let test = "a_damaged_catalog_is_told_by_readiness_api_and_page";
    let Some(mut of) = Installation::found(test) else {
        return;
    };
    let console = listen(&mut of);
    of.start();
    let cookie = administrator(&of, console);
    // Only the rows of sessions hold a command. They wait, so that none of them runs.
    let mark = b"mark-of-damage";
    let body = json!({
        "name": "waits", "kind": "batch", "image": "host", "replicas": 40,
        "command": ["echo", String::from_utf8_lossy(mark)],
        "resources": {"cpu": 0.1, "memory": 64 << 20, "shm": 1 << 20},
        "start_at": Clock::system().now().plus_seconds(86_400),
    });
    let path = "/api/v1/sessions";
    let launched = http::call(&of.socket(), "POST", path, None, Some(&body)).expect("an answer");
    assert!(launched.is_good(), "{}", launched.json());
    assert!(of.term().success());
    let log = of.data().join("catalog.sqlite-wal");
    assert!(!log.exists(), "a clean end leaves one file");
    let catalog = of.data().join("catalog.sqlite");
    let mut bytes = fs::read(&catalog).expect("the catalog");
    let mut hit = 0;
    for page in bytes.chunks_mut(4096).skip(1) {
        if page.windows(mark.len()).any(|part| part == mark) {
            page.fill(0x5a);
            hit += 1;
        }
    }
    assert!(hit > 0, "no page holds a session");
    fs::write(&catalog, bytes).expect("written");
    // It serves all the same, to say so.
    of.start_until(|of| of.get("/readyz").is_ok());
    until("readiness names it", || {
        ready(&of) == (503, vec!["state.damaged".to_owned()])
    });
    let damaged = (503, json!("state.damaged"));
    assert_eq!(refusal(&launch(&of, "new")), damaged);
    for path in ["/api/v1/sessions", "/api/v1/queue", "/api/v1/overview"] {
        let answer = of.get(path).expect("an answer");
        assert_eq!(refusal(&answer), damaged, "{path}");
    }
    let (status, page) = overview(console, &cookie);
    assert_eq!(status, 503, "{page}");
    assert!(page.contains("The catalog is damaged"), "{page}");
}

/// Lets no file of a process grow beyond so many bytes, which it sees as a disk that fails; None: any size.
fn limit_files(pid: u32, bytes: Option<u64>) {
    let limit = libc::rlimit {
        rlim_cur: bytes.unwrap_or(libc::RLIM_INFINITY),
        rlim_max: libc::RLIM_INFINITY,
    };
    let (pid, kept) = (pid.cast_signed(), std::ptr::null_mut());
    // SAFETY: the limit lives longer than the call, and the one before it is not asked for.
    let set = unsafe { libc::prlimit(pid, libc::RLIMIT_FSIZE, &raw const limit, kept) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_disk_that_fails_is_told_by_readiness_api_and_page_until_it_works_again() {
    let test = "a_disk_that_fails_is_told_by_readiness_api_and_page_until_it_works_again";
    let Some(mut of) = Installation::found(test) else {
        return;
    };
    // What grows too far is killed, unless it was told to go on; and its own log must be no file.
    let folder = tempfile::tempdir().expect("a directory");
    let (program, pipe) = (folder.path().join("fardel"), folder.path().join("log"));
    let script = format!(
        "#!/bin/sh\ntrap '' XFSZ\nmkfifo {pipe}\ncat {pipe} &\nexec {binary} \"$@\" >{pipe} 2>&1\n",
        pipe = pipe.display(),
        binary = env!("CARGO_BIN_EXE_fardel"),
    );
    install(&program, script.as_bytes());
    of.program = Some(program);
    let console = listen(&mut of);
    of.start();
    let cookie = administrator(&of, console);
    let told = || {
        let (status, page) = overview(console, &cookie);
        assert_eq!(status, 200, "{page}");
        page.contains("The disk that holds this machine")
    };
    let pid = of.server_pid().expect("a server");
    limit_files(pid, Some(4096));
    let refused = launch(&of, "first");
    assert_eq!(refusal(&refused), (503, json!("state.disk")));
    until("readiness names it", || {
        let (status, codes) = ready(&of);
        status == 503 && codes.contains(&"state.disk".to_owned())
    });
    until("the overview says it", told);
    let listed = of.get("/api/v1/sessions").expect("an answer");
    assert!(listed.is_good(), "what is there is not shown: {listed:?}");
    limit_files(pid, None);
    until("new work is taken", || launch(&of, "second").is_good());
    until("readiness is well again", || ready(&of).0 == 200);
    until("the overview is well again", || !told());
}
