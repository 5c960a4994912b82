//! Two servers at one place: a state and a run directory have one server each, whichever file somebody
//! removed, and what runs for one state is never touched by another's.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::installation::Installation;
use super::{TIMEOUT, http, wait_until};

/// Starts a second server, which must refuse; gives what it says.
fn refused(installation: &Installation, settings: &[(&str, &std::path::Path)]) -> String {
    let mut child = installation
        .command(&["serve"])
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let until = Instant::now() + TIMEOUT;
    while child.try_wait().expect("it can be waited for").is_none() {
        if Instant::now() > until {
            child.kill().expect("it can be killed");
            panic!("it serves, though it must not");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("it has ended");
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn launch(installation: &Installation) -> String {
    let body = json!({
        "name": "keeps", "kind": "batch", "image": "host", "command": ["sleep", "5000"],
        "resources": {"cpu": 0.05, "memory": 64 << 20, "shm": 1 << 20},
    });
    let path = "/api/v1/sessions";
    let answer = http::call(&installation.socket(), "POST", path, None, Some(&body));
    let answer = answer.expect("an answer");
    assert!(answer.is_good(), "{}", answer.json());
    answer.json()["id"].as_str().expect("an id").to_owned()
}

fn show(installation: &Installation, id: &str) -> Value {
    let answer = installation.get(&format!("/api/v1/sessions/{id}"));
    answer.expect("an answer").json()
}

#[test]
fn a_run_directory_is_one_states_and_a_second_server_touches_nothing_in_it() {
    let name = "a_run_directory_is_one_states_and_a_second_server_touches_nothing_in_it";
    let Some(mut installation) = Installation::found(name) else {
        return;
    };
    installation.start();
    let id = launch(&installation);
    wait_until(TIMEOUT, || show(&installation, &id)["state"] == "running").expect("it runs");
    let shims = installation.shims();
    let other = tempfile::tempdir().expect("a directory");
    let elsewhere = [("FARDEL_DATA", other.path())];
    let data = installation.data().display().to_string();
    let said = refused(&installation, &elsewhere);
    assert!(
        said.contains("(run.owned)") && said.contains(&data),
        "{said}"
    );
    // Nor while no server lives: its sessions do.
    installation.kill();
    let said = refused(&installation, &elsewhere);
    assert!(
        said.contains("(run.owned)") && said.contains(&data),
        "{said}"
    );
    installation.start();
    assert_eq!(installation.shims(), shims, "nobody touched them");
    assert_eq!(show(&installation, &id)["state"], "running");
}

#[test]
fn a_state_has_one_server_also_when_its_lock_file_is_removed() {
    let name = "a_state_has_one_server_also_when_its_lock_file_is_removed";
    let Some(mut installation) = Installation::found(name) else {
        return;
    };
    installation.start();
    fs::remove_file(installation.data().join("catalog.lock")).expect("it was there");
    let run = tempfile::tempdir().expect("a directory");
    let said = refused(&installation, &[("FARDEL_RUN", run.path())]);
    assert!(said.contains("(server.already-running)"), "{said}");
}
