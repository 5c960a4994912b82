//! The server dies with twenty sessions and an open terminal; the next one finds everything as it
//! was. Times are printed, not judged: that is for `fardel bench`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Message, WebSocket};

use super::installation::Installation;
use super::{TIMEOUT, http, session_of, wait_until};

const SESSIONS: usize = 20;
const OUTPUT: u8 = 1;

#[test]
fn twenty_sessions_and_a_terminal_survive_the_server() {
    let name = "twenty_sessions_and_a_terminal_survive_the_server";
    let Some(mut installation) = Installation::found(name) else {
        return;
    };
    installation.start();
    for number in 0..SESSIONS {
        launch(
            &installation,
            &format!("keeps-{number}"),
            "batch",
            &["sleep", "5000"],
        );
    }
    let shell = launch(&installation, "shell", "interactive", &["sh"]);
    wait_for_running(&installation, SESSIONS + 1);
    let mut terminal = attach(&installation, &shell);
    terminal
        .send(Message::binary(b"\0echo scroll$((40+2))\n".to_vec()))
        .expect("typing works");
    read_until(&mut terminal, "scroll42");
    let ends = launch(
        &installation,
        "ends",
        "batch",
        &["sh", "-c", "sleep 2; exit 7"],
    );
    wait_for_running(&installation, SESSIONS + 2);
    let before = standing(&installation);
    let shims = installation.shims();
    assert_eq!(shims.len(), SESSIONS + 2);

    installation.kill();
    assert!(
        hears_the_end(&mut terminal),
        "the terminal's connection ends with the server"
    );
    wait_until(TIMEOUT, || installation.shims().len() == SESSIONS + 1)
        .expect("one session ends while no server runs, the others do not");
    let answers = installation.start();
    let adopted_in = Instant::now();
    let after = standing(&installation);
    println!(
        "{} sessions adopted: first answer {} ms after the new server's start, list {} ms later",
        SESSIONS + 1,
        answers.as_millis(),
        adopted_in.elapsed().as_millis()
    );
    let kept: Vec<_> = before.iter().filter(|row| row.0 != ends).cloned().collect();
    let alive: Vec<_> = after.iter().filter(|row| row.0 != ends).cloned().collect();
    assert_eq!(alive, kept, "every session is the same process as before");
    let mut same = shims.clone();
    same.retain(|(container, _)| session_of(container) != ends);
    assert_eq!(
        installation.shims(),
        same,
        "every supervisor is the same process as before"
    );

    let mut terminal = attach(&installation, &shell);
    read_until(&mut terminal, "scroll42");
    terminal
        .send(Message::binary(b"\0echo again$((1+1))\n".to_vec()))
        .expect("typing works");
    read_until(&mut terminal, "again2");
    let mut over = Value::Null;
    wait_until(TIMEOUT, || {
        over = show(&installation, &ends);
        over["state"] == "ended"
    })
    .expect("what ended meanwhile is seen");
    assert_eq!(
        (&over["outcome"], &over["exit_code"]),
        (&json!("failed"), &json!(7)),
        "{over}"
    );

    for (id, _, _) in &kept {
        let path = format!("/api/v1/sessions/{id}/stop");
        let answer =
            http::call(&installation.socket(), "POST", &path, None, None).expect("an answer");
        assert!(answer.is_good(), "{}", answer.json());
    }
    wait_until(TIMEOUT, || {
        installation
            .sessions()
            .expect("an answer")
            .iter()
            .all(|row| row["state"] == "ended")
    })
    .expect("adopted sessions can be stopped");
    let lost: Vec<Value> = installation
        .sessions()
        .expect("an answer")
        .into_iter()
        .filter(|row| row["outcome"] == "lost")
        .collect();
    assert!(lost.is_empty(), "{lost:#?}");
}

#[test]
fn a_server_that_is_told_to_leave_ends_no_session() {
    let name = "a_server_that_is_told_to_leave_ends_no_session";
    let Some(mut installation) = Installation::found(name) else {
        return;
    };
    installation.start();
    let id = launch(&installation, "keeps", "batch", &["sleep", "5000"]);
    wait_for_running(&installation, 1);
    let shims = installation.shims();
    let before = standing(&installation);
    let status = installation.term();
    assert!(status.success(), "{status}");
    assert_eq!(installation.shims(), shims);
    installation.start();
    assert_eq!(standing(&installation), before);
    let path = format!("/api/v1/sessions/{id}/kill");
    let answer = http::call(&installation.socket(), "POST", &path, None, None).expect("an answer");
    assert!(answer.is_good(), "{}", answer.json());
    wait_until(TIMEOUT, || show(&installation, &id)["state"] == "ended").expect("it can be ended");
}

/// A policy is not for what runs already: neither a pass nor the next server, which knows the session by its row alone, ends
/// what the policy forbids. What waits under it goes on waiting.
#[test]
fn what_a_policy_forbids_lives_through_the_end_of_the_server() {
    let name = "what_a_policy_forbids_lives_through_the_end_of_the_server";
    let Some(mut installation) = Installation::found(name) else {
        return;
    };
    installation.start();
    let works = launch(&installation, "works", "batch", &["sleep", "5000"]);
    wait_for_running(&installation, 1);
    let (before, shims) = (standing(&installation), installation.shims());
    let limits = json!({"cpu_each": 0.02, "cpu": 0.02, "sessions": 1, "runtime_seconds": 60});
    let body = json!({"name": "tight", "limits": limits});
    let made = send(&installation, "POST", "/api/v1/policies", &body);
    assert!(made.is_good(), "{}", made.json());
    let body = json!({"level": "site"});
    let uses = send(&installation, "PUT", "/api/v1/policies/tight/uses", &body);
    assert!(uses.is_good(), "{}", uses.json());

    let asks = |cpu: f64| {
        let resources = json!({"cpu": cpu, "memory": 64 << 20, "shm": 1 << 20});
        let command = ["sleep", "5000"];
        json!({"kind": "batch", "image": "host", "command": command, "resources": resources})
    };
    let refused = send(&installation, "POST", "/api/v1/sessions", &asks(0.05));
    assert_eq!(refused.json()["code"], "limit.each", "{}", refused.json());
    let waits = send(&installation, "POST", "/api/v1/sessions", &asks(0.02));
    assert!(waits.is_good(), "{}", waits.json());
    let waits = waits.json()["id"].as_str().expect("an id").to_owned();
    for _ in 0..2 {
        installation.kill();
        installation.start();
        // The new server has looked at both once it says what the second one waits for.
        let mut why = Value::Null;
        wait_until(TIMEOUT, || {
            let path = format!("/api/v1/sessions/{waits}/why");
            why = installation.get(&path).expect("an answer").json();
            let code = why["blockers"][0]["code"].as_str();
            code.is_some_and(|code| code.starts_with("limit"))
        })
        .unwrap_or_else(|()| panic!("it waits for no limit: {why}"));
        assert_eq!(show(&installation, &waits)["state"], "pending");
        let mut standing = standing(&installation);
        standing.retain(|(id, ..)| *id == works);
        assert_eq!(standing, before, "it is the same process as before");
        assert_eq!(installation.shims(), shims);
    }
    for id in [&waits, &works] {
        let kill = send(
            &installation,
            "POST",
            &format!("/api/v1/sessions/{id}/kill"),
            &json!({}),
        );
        assert!(kill.is_good(), "{}", kill.json());
        wait_until(TIMEOUT, || show(&installation, id)["state"] == "ended")
            .unwrap_or_else(|()| panic!("{id} does not end"));
    }
}

fn send(installation: &Installation, method: &str, path: &str, body: &Value) -> http::Answer {
    let answer = http::call(&installation.socket(), method, path, None, Some(body));
    answer.expect("an answer")
}

#[test]
fn supervisors_that_do_not_answer_are_named_until_they_answer_or_their_session_ends() {
    let name = "supervisors_that_do_not_answer_are_named_until_they_answer_or_their_session_ends";
    let Some(mut installation) = Installation::found(name) else {
        return;
    };
    installation.start();
    let answers = launch(&installation, "answers", "batch", &["sleep", "5000"]);
    let ends = launch(&installation, "ends", "batch", &["sleep", "5000"]);
    wait_for_running(&installation, 2);
    assert_eq!(silent(&installation), "");
    let shims = installation.shims();
    assert_eq!(shims.len(), 2);
    let signal = |of: &str, number: i32| {
        for (container, pid) in &shims {
            if session_of(container) == of {
                // SAFETY: seen a moment ago to be a supervisor of this installation.
                unsafe { libc::kill(*pid, number) };
            }
        }
    };
    signal(&answers, libc::SIGSTOP);
    signal(&ends, libc::SIGSTOP);
    installation.kill();
    installation.start();
    let told = |what: &str| {
        wait_until(TIMEOUT, || silent(&installation).contains(what)).unwrap_or_else(|()| {
            panic!("{what:?} is not told: {:?}", silent(&installation));
        });
    };
    told("of 2 sessions");
    for id in [&answers, &ends] {
        assert_eq!(show(&installation, id)["state"], "running");
    }
    signal(&answers, libc::SIGCONT);
    told("of 1 sessions");
    let kill = |id: &str| {
        let path = format!("/api/v1/sessions/{id}/kill");
        let answer = http::call(&installation.socket(), "POST", &path, None, None);
        let answer = answer.expect("an answer");
        assert!(answer.is_good(), "{}", answer.json());
        wait_until(TIMEOUT, || show(&installation, id)["state"] == "ended")
            .unwrap_or_else(|()| panic!("{id} does not end"));
    };
    kill(&ends);
    wait_until(TIMEOUT, || silent(&installation).is_empty())
        .unwrap_or_else(|()| panic!("still told: {:?}", silent(&installation)));
    assert_eq!(show(&installation, &answers)["state"], "running");
    kill(&answers);
}

/// What the node says of supervisors that do not answer; empty where it says nothing of them.
fn silent(installation: &Installation) -> String {
    let nodes = installation.get("/api/v1/nodes").expect("an answer").json();
    let problems = nodes["items"][0]["problems"].as_array().cloned();
    let problems = problems.unwrap_or_else(|| panic!("no node: {nodes}"));
    let mut named = problems.iter();
    let named = named.find(|problem| problem["code"] == "node.supervisor-silent");
    named.map_or_else(String::new, |problem| {
        problem["text"].as_str().unwrap_or_default().to_owned()
    })
}

fn launch(installation: &Installation, name: &str, kind: &str, command: &[&str]) -> String {
    let body = json!({
        "name": name, "kind": kind, "image": "host", "command": command,
        "resources": {"cpu": 0.05, "memory": 64 << 20, "shm": 1 << 20},
    });
    let answer = http::call(
        &installation.socket(),
        "POST",
        "/api/v1/sessions",
        None,
        Some(&body),
    )
    .expect("an answer");
    assert!(answer.is_good(), "{}", answer.json());
    answer.json()["id"].as_str().expect("an id").to_owned()
}

fn show(installation: &Installation, id: &str) -> Value {
    let answer = installation.get(&format!("/api/v1/sessions/{id}"));
    answer.expect("an answer").json()
}

fn wait_for_running(installation: &Installation, wanted: usize) {
    let mut rows = Vec::new();
    wait_until(TIMEOUT, || {
        rows = installation.sessions().expect("an answer");
        rows.iter().filter(|row| row["state"] == "running").count() == wanted
    })
    .unwrap_or_else(|()| panic!("{wanted} sessions do not run: {rows:#?}"));
}

/// Id, state and start of every session, by id.
fn standing(installation: &Installation) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut rows: Vec<_> = installation
        .sessions()
        .expect("an answer")
        .iter()
        .map(|row| {
            (
                text(&row["id"]),
                text(&row["state"]),
                text(&row["started_at"]),
            )
        })
        .collect();
    rows.sort();
    rows
}

pub(super) fn attach(installation: &Installation, id: &str) -> WebSocket<UnixStream> {
    let stream = UnixStream::connect(installation.socket()).expect("the socket is open");
    stream
        .set_read_timeout(Some(TIMEOUT))
        .expect("a timeout can be set");
    let mut request = format!("ws://box/api/v1/sessions/{id}/attach?cols=80&rows=24")
        .into_client_request()
        .expect("a request");
    let headers = request.headers_mut();
    headers.insert(
        "sec-websocket-protocol",
        "v1.term".parse().expect("a header"),
    );
    let (socket, _) = tokio_tungstenite::tungstenite::client(request, stream).expect("it attaches");
    socket
}

pub(super) fn read_until<S: Read + Write>(terminal: &mut WebSocket<S>, wanted: &str) {
    let mut seen = String::new();
    let until = Instant::now() + TIMEOUT;
    while !seen.contains(wanted) {
        assert!(Instant::now() < until, "{wanted} was not shown in {seen:?}");
        if let Message::Binary(bytes) = terminal.read().expect("the terminal goes on") {
            if bytes.first() == Some(&OUTPUT) {
                seen.push_str(&String::from_utf8_lossy(&bytes[1..]));
            }
        }
    }
}

/// True once the connection is over, whatever came before.
fn hears_the_end<S: Read + Write>(terminal: &mut WebSocket<S>) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        if terminal.read().is_err() {
            return true;
        }
    }
    false
}
