//! The inner door of real sessions on a real server: a program inside asks about its own session, keeps to it, and ends it;
//! the door is closed by a policy, lives through a new server, and leads to no other session.

use serde_json::{Value, json};

use super::installation::Installation;
use super::{TIMEOUT, http, wait_until};

/// Speaks to the door as its arguments say: a method, a path, and headers.
const ASKS: &str = r#"
use IO::Socket::INET; $| = 1;
my ($method, $path, @headers) = @ARGV;
my $door = IO::Socket::INET->new(PeerAddr => "127.127.0.1", PeerPort => 4280, Timeout => 5) or do { print "no door\n"; exit 0 };
@headers = ("Host: 127.127.0.1:4280") unless @headers;
print $door join("\r\n", "$method $path HTTP/1.1", @headers, "Content-Length: 0", "Connection: close", "", "");
print while <$door>;
"#;

/// What the door of a container answers: its status, and its body.
fn asks(installation: &Installation, of: &str, container: &str, words: &[&str]) -> (u16, Value) {
    let asked = installation
        .command(&["exec", "--container", container, of, "perl", "-e", ASKS])
        .args(words)
        .output()
        .expect("it can be started");
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    let status = said.split(' ').nth(1).and_then(|word| word.parse().ok());
    let body = said.split("\r\n\r\n").nth(1).unwrap_or_default();
    let read = serde_json::from_str(body).unwrap_or(Value::Null);
    (status.unwrap_or(0), read)
}

fn launch(installation: &Installation, name: &str, containers: u32) -> String {
    let body = json!({
        "name": name, "kind": "batch", "image": "host", "command": ["sleep", "5000"],
        "containers": containers, "max_runtime_seconds": 4_000,
        "resources": {"cpu": 0.05, "memory": 64 << 20, "shm": 1 << 20},
    });
    let socket = installation.socket();
    let made = http::call(&socket, "POST", "/api/v1/sessions", None, Some(&body));
    let made = made.expect("an answer").json();
    let id = made["id"].as_str().expect("an id").to_owned();
    wait_until(TIMEOUT, || show(installation, &id)["state"] == "running")
        .unwrap_or_else(|()| panic!("{}", show(installation, &id)));
    id
}

fn policy(installation: &Installation, words: &[&str]) {
    let done = installation.command(&["policy"]).args(words).output();
    let done = done.expect("it can be started");
    assert!(done.status.success(), "{words:?}: {done:?}");
}

fn show(installation: &Installation, id: &str) -> Value {
    let answer = installation.get(&format!("/api/v1/sessions/{id}"));
    answer.expect("an answer").json()
}

/// Waits until the door of the main container opens, or no longer does.
fn waits_for_door(installation: &Installation, of: &str, opens: bool) {
    let status = || asks(installation, of, "main1", &["GET", "/session"]).0;
    wait_until(TIMEOUT, || (status() == 200) == opens)
        .unwrap_or_else(|()| panic!("{of}: {}\n{}", status(), installation.said()));
}

/// Proves too: `every_act_asks_for_its_capability_first`
#[test]
fn a_session_asks_about_itself_and_about_no_other() {
    let name = "a_session_asks_about_itself_and_about_no_other";
    let Some(mut installation) = Installation::found(name) else {
        return;
    };
    if !std::path::Path::new("/usr/bin/perl").exists() {
        return skips::skip(name, "needs perl on this machine");
    }
    installation.start();
    let pair = launch(&installation, "pair", 2);
    let other = launch(&installation, "other", 1);
    for of in ["pair", "other"] {
        waits_for_door(&installation, of, true);
    }
    let look = |of: &str, container: &str| asks(&installation, of, container, &["GET", "/session"]);
    for (of, id, container) in [
        ("pair", &pair, "main1"),
        ("pair", &pair, "sub1"),
        ("other", &other, "main1"),
    ] {
        wait_until(TIMEOUT, || look(of, container).0 == 200).expect("it opens");
        let (_, told) = look(of, container);
        assert_eq!(told["session"]["id"], json!(id), "{told}");
        assert_eq!(told["session"]["owner"]["name"], "root", "{told}");
        assert_eq!(told["container"], json!(container));
        assert!(
            told["ends_at"].is_string() && told["idle"].is_null(),
            "{told}"
        );
    }
    let (status, samples) = asks(&installation, "pair", "main1", &["GET", "/session/metrics"]);
    assert_eq!(status, 200);
    assert!(samples["items"].is_array(), "{samples}");
    // No rule has warned it, so there is nothing to keep.
    let (status, refused) = asks(&installation, "pair", "main1", &["POST", "/session/keep"]);
    assert_eq!(refused["code"], "session.not-warned", "{status} {refused}");

    // Nothing else is there.
    for (words, code) in [
        (vec!["GET", "/"], "inner-door.path-unknown"),
        (vec!["GET", "/api/v1/me"], "inner-door.path-unknown"),
        (
            vec!["GET", "/session/../api/v1/users"],
            "inner-door.path-unknown",
        ),
        (vec!["GET", "/session/end"], "method.not-allowed"),
        (vec!["POST", "/session"], "method.not-allowed"),
        (
            vec!["POST", "/session/end", "Host: stranger.example"],
            "inner-door.page",
        ),
        (
            vec![
                "POST",
                "/session/end",
                "Host: 127.127.0.1:4280",
                "Origin: null",
            ],
            "inner-door.page",
        ),
    ] {
        let (status, refused) = asks(&installation, "other", "main1", &words);
        assert_eq!(refused["code"], json!(code), "{words:?} {status}");
    }
    assert_eq!(show(&installation, &other)["state"], "running");

    // The next server opens it again; a policy closes it within seconds, for live sessions too.
    installation.kill();
    installation.start();
    waits_for_door(&installation, "pair", true);
    policy(&installation, &["create", "closed", "--no-inner-door"]);
    policy(&installation, &["attach", "closed", "--domain", "default"]);
    waits_for_door(&installation, "pair", false);
    policy(&installation, &["set", "closed", "--inner-door"]);
    waits_for_door(&installation, "pair", true);

    // The end of its own is the last thing that it may do, and stands in the audit log as its own act.
    let (status, ending) = asks(&installation, "pair", "sub1", &["POST", "/session/end"]);
    let ended = &ending["session"]["id"];
    assert_eq!((status, ended), (200, &json!(pair)), "{ending}");
    wait_until(TIMEOUT, || show(&installation, &pair)["state"] == "ended")
        .unwrap_or_else(|()| panic!("{}", show(&installation, &pair)));
    assert_eq!(show(&installation, &other)["state"], "running");
    let audit = installation
        .get("/api/v1/audit?limit=50")
        .expect("an answer");
    let audit = audit.json();
    let acts = audit["items"].as_array().expect("rows");
    let by_itself = acts.iter().any(|act| act["via"] == "session");
    assert!(by_itself, "{audit}");
}
