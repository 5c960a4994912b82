//! A state of the version before, with live sessions and a terminal, is opened by this server: no container ends, the
//! rows and the history read the same, and the kept copy leads back.
//!
//! The catalog is the one in `tests/fixtures/schema-NNNN`, which the server of that version wrote. Its live
//! sessions get real containers here: the machine's record names them in the form of that version, so this
//! build starts them at first and must adopt them later.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::installation::Installation;
use super::reunion::{attach, read_until};
use super::{TIMEOUT, http, session_of, wait_until};
use crate::server::older_state::{SCHEMA, differs, fixture, in_todays_words};

/// The state and the machine of the catalog, as its `box` row has them, and the newest assignment that it says
/// the machine took in.
const STATE: &str = "01a20812-a8b9-7a14-aaef-96313229eab2";
const NODE: &str = "01a20812-a8b9-7dff-af7d-500b5d1b92ed";
const GENERATION: u64 = 11;

/// Days that ended sessions are kept here: those of the catalog are as old as the catalog.
const KEEP_DAYS: &str = "3650";

/// What the server of that version answered to its administrator.
struct Recorded {
    answers: BTreeMap<String, Value>,
}

impl Recorded {
    fn read() -> Self {
        let recorded = fs::read(fixture().join("answers.json")).expect("the answers");
        let mut recorded: Value = serde_json::from_slice(&recorded).expect("JSON");
        let all = recorded["answers"].take();
        let answers = all.as_array().expect("answers").iter();
        let answers = answers.filter(|answer| answer["as"] == "ada");
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        Self {
            answers: answers
                .map(|answer| (text(&answer["path"]), in_todays_words("", &answer["body"])))
                .collect(),
        }
    }

    /// Sessions by id, all but those that wait: what they wait for may have come since.
    fn sessions(&self) -> BTreeMap<String, Value> {
        let items = self.answers["/api/v1/sessions?sort=name"]["items"].as_array();
        let items = items.expect("sessions").iter();
        let items = items.filter(|row| row["state"] != "pending");
        items
            .map(|row| (row["id"].as_str().expect("an id").to_owned(), row.clone()))
            .collect()
    }

    fn live(&self) -> Vec<Value> {
        let all = self.sessions().into_values();
        all.filter(|row| row["state"] == "running").collect()
    }
}

fn container(row: &Value) -> String {
    let id = row["id"].as_str().expect("an id").replace('-', "");
    format!("{id}-{}", row["incarnation"])
}

/// The machine's record as the version before wrote it: no mounts, no networks, names without an index.
fn node_record(recorded: &Recorded) -> Value {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("the boot");
    let live = recorded.live();
    let orders = live.iter().map(|row| {
        json!({
            "name": container(row), "hostname": row["name"], "kind": row["kind"],
            "root": {"from": "host"}, "command": row["command"], "env": row["env"],
            "demand": row["resources"], "devices": [],
            "want": if row["paused"] == true { "pause" } else { "run" },
        })
    });
    let places = live.iter().enumerate().map(|(slot, row)| {
        let place = json!({"slot": slot, "boot": boot.trim()});
        (container(row), place)
    });
    json!({
        "node": NODE, "state": STATE,
        "assignment": {
            "node": NODE, "generation": GENERATION, "containers": orders.collect::<Vec<_>>(),
            "cuts": [], "state": STATE,
        },
        "places": places.collect::<Map<_, _>>(),
    })
}

/// Makes the data directory what it was when the server of that version stopped: its catalog and its machine's
/// record. What lies there beside is left.
fn put_older_state(installation: &Installation, recorded: &Recorded) {
    let data = installation.data();
    for entry in fs::read_dir(&data).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("catalog.") {
            fs::remove_file(entry.path()).expect("the newer catalog can be removed");
        }
    }
    let mut directory = fs::DirBuilder::new();
    directory.recursive(true).mode(0o700);
    directory.create(&data).expect("a data directory");
    for name in ["catalog.sqlite", "seal.key"] {
        fs::copy(fixture().join(name), data.join(name)).expect("a copy");
    }
    let record = node_record(recorded).to_string();
    fs::write(data.join("node.json"), record).expect("the machine's record");
}

/// The supervisor and the first process of every living container, by its name.
fn processes(installation: &Installation) -> BTreeMap<String, (i32, i64)> {
    let first = |name: &str| {
        let path = installation.run().join("c").join(name).join("run.json");
        let record: Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        record["first"]["pid"].as_i64()
    };
    let shims = installation.shims().into_iter();
    shims
        .filter_map(|(name, shim)| {
            let first = first(&name)?;
            Some((name, (shim, first)))
        })
        .collect()
}

/// Where rows and history are said differently than the version before said them. The machine has another
/// name here.
fn other_answers(installation: &Installation, recorded: &Recorded) -> Vec<String> {
    let mut wrong = Vec::new();
    for (id, mut before) in recorded.sessions() {
        let now = show(installation, &id);
        if !now["node"].is_string() {
            wrong.push(format!("{id} has no node: {now}"));
        }
        before["node"] = now["node"].clone();
        wrong.extend(differs(&before, &now, &id));
        let path = format!("/api/v1/sessions/{id}/events");
        let now = installation.get(&path).expect("an answer").json();
        wrong.extend(differs(&recorded.answers[&path], &now, &path));
    }
    wrong
}

fn show(installation: &Installation, id: &str) -> Value {
    let answer = installation.get(&format!("/api/v1/sessions/{id}"));
    answer.expect("an answer").json()
}

/// A session is launched and comes to its end: the machine is led, and passes do their work.
fn takes_new_work(installation: &Installation, name: &str) {
    let body =
        json!({"name": name, "kind": "batch", "image": "host", "command": ["sh", "-c", "exit 5"]});
    let path = "/api/v1/sessions";
    let answer = http::call(&installation.socket(), "POST", path, None, Some(&body));
    let answer = answer.expect("an answer");
    assert!(answer.is_good(), "{}", answer.json());
    let id = answer.json()["id"].as_str().expect("an id").to_owned();
    let mut row = Value::Null;
    wait_until(TIMEOUT, || {
        row = show(installation, &id);
        row["state"] == "ended"
    })
    .unwrap_or_else(|()| panic!("new work is not done: {row}"));
    assert_eq!(row["exit_code"], 5, "{row}");
    // Its supervisor goes with it.
    wait_until(TIMEOUT, || {
        !processes(installation)
            .keys()
            .any(|name| session_of(name) == id)
    })
    .expect("its supervisor leaves");
}

#[test]
fn live_sessions_of_the_version_before_are_adopted_and_the_way_back_is_open() {
    let name = "live_sessions_of_the_version_before_are_adopted_and_the_way_back_is_open";
    let Some(mut installation) = Installation::found(name) else {
        return;
    };
    installation
        .settings
        .push(("FARDEL_KEEP_DAYS", PathBuf::from(KEEP_DAYS)));
    let recorded = Recorded::read();
    let live = recorded.live();
    let shell = live.iter().find(|row| row["kind"] == "interactive");
    let shell = shell.expect("a shell")["id"].as_str().expect("an id");
    assert!(live.len() > 3, "three sessions and a shell: {live:?}");

    // The containers come to life.
    put_older_state(&installation, &recorded);
    installation.start();
    wait_until(TIMEOUT, || processes(&installation).len() == live.len())
        .unwrap_or_else(|()| panic!("not all run: {:?}", processes(&installation)));
    let frozen = live.iter().find(|row| row["paused"] == true);
    let frozen = container(frozen.expect("a paused one"));
    let is_frozen = |installation: &Installation| {
        let state = installation.freezer(&frozen);
        state.is_none_or(|state| state == "FROZEN")
    };
    wait_until(TIMEOUT, || is_frozen(&installation)).expect("the paused one is frozen");
    let mut terminal = attach(&installation, shell);
    terminal
        .send(Message::binary(
            b"\0mine=7; echo scroll$((40+2))\n".to_vec(),
        ))
        .expect("typing works");
    read_until(&mut terminal, "scroll42");
    let before = processes(&installation);

    // The server stops; what it left is the state of the version before.
    assert!(installation.term().success());
    drop(terminal);
    assert_eq!(processes(&installation), before, "a stop ends no container");
    put_older_state(&installation, &recorded);

    // This version opens it.
    installation.start();
    takes_new_work(&installation, "new-work");
    assert_eq!(
        processes(&installation),
        before,
        "an upgrade ends no container"
    );
    assert!(is_frozen(&installation), "the paused one is still frozen");
    assert_eq!(
        other_answers(&installation, &recorded),
        Vec::<String>::new()
    );
    let mut terminal = attach(&installation, shell);
    read_until(&mut terminal, "scroll42");
    terminal
        .send(Message::binary(b"\0echo same$((mine*6))\n".to_vec()))
        .expect("typing works");
    read_until(&mut terminal, "same42");

    // The way back.
    assert!(installation.term().success());
    drop(terminal);
    let catalog = installation.data().join("catalog.sqlite");
    let kept = installation
        .data()
        .join(format!("catalog.sqlite.version-{SCHEMA}"));
    let copied = fs::read(&kept).expect("a copy was kept");
    let back = installation.command(&["upgrade", "rollback"]).output();
    let back = back.expect("the command runs");
    let said = String::from_utf8_lossy(&back.stdout);
    assert!(back.status.success(), "{back:?}");
    assert!(
        said.contains(&format!("version {SCHEMA} is in force")),
        "{said}"
    );
    let restored = fs::read(&catalog).expect("the catalog");
    assert!(restored == copied, "what is in force is the kept copy");
    assert_eq!(
        processes(&installation),
        before,
        "the way back ends no container"
    );

    // Upwards once more, from the copy.
    installation.start();
    takes_new_work(&installation, "new-work");
    assert_eq!(
        processes(&installation),
        before,
        "nor does the next upgrade"
    );
    assert_eq!(
        other_answers(&installation, &recorded),
        Vec::<String>::new()
    );

    // What was adopted can be ended.
    for row in &live {
        let path = format!(
            "/api/v1/sessions/{}/kill",
            row["id"].as_str().expect("an id")
        );
        let answer = http::call(&installation.socket(), "POST", &path, None, None);
        let answer = answer.expect("an answer");
        assert!(answer.is_good(), "{}", answer.json());
    }
    wait_until(TIMEOUT, || processes(&installation).is_empty()).expect("all of them end");
}
