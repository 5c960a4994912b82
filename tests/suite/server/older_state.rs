//! A catalog that the version before wrote, with users, sessions that run, wait and are over, an image and a
//! history: whether this version answers for it as that one did, and whether the way back is open.
//!
//! `tests/fixtures/schema-NNNN` holds `catalog.sqlite` of that schema, made by the server of that time with
//! containers and then stopped, its `seal.key`, and in `answers.json` what it answered before. An answer may
//! have gained fields since, and fields may have other names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Body;
use base::observe::Clock;
use base::settings::{Settings, SettingsLayer};
use http_body_util::BodyExt;
use rules::units::Timestamp;
use serde_json::Value;
use server::Server;
use tower::ServiceExt;

use super::fake_machine::FakeStreams;
use super::the_box::{As, TheBox};

/// The version of the catalog below `tests/fixtures`.
pub(crate) const SCHEMA: u32 = 9;

pub(crate) fn fixture() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join(format!("tests/fixtures/schema-{SCHEMA:04}"))
}

/// The state as that version left it, in a directory of its own.
fn state() -> tempfile::TempDir {
    let data = tempfile::tempdir().expect("a directory");
    for name in ["catalog.sqlite", "seal.key"] {
        std::fs::copy(fixture().join(name), data.path().join(name)).expect("a copy");
    }
    data
}

/// Seconds after the answers were given; tokens of that day are good, and the machine is not silent yet.
fn now() -> Timestamp {
    Timestamp::parse("2026-11-23T11:03:18Z").expect("a time")
}

fn open(data: &Path) -> Server {
    let layer = SettingsLayer {
        data: Some(data.to_owned()),
        ..SettingsLayer::default()
    };
    let settings = Settings::read(layer, |_| None).expect("valid settings");
    Server::start(settings, Clock::set_by_hand(now())).expect("the older state opens")
}

/// Fields that were called otherwise then.
const FIELDS: [(&str, &str); 3] = [
    ("wish", "desired"),
    ("longest_run_seconds", "max_runtime_seconds"),
    ("person", "user"),
];
/// Beginnings of words in values that were called otherwise then, and under which field they stand.
const VALUES: [(&str, &str, &str); 4] = [
    ("topic", "people", "users"),
    ("scopes", "people:", "users:"),
    ("code", "person.", "user."),
    ("code", "session.longest-run", "session.max-runtime"),
];

/// What the scheduler of today forecasts for a waiting session, whatever was recorded: its number, and when it starts.
const FORECASTS: [&str; 2] = ["queue_position", "eta"];

/// What was said then under `field`, in the words of today.
pub(crate) fn in_todays_words(field: &str, said: &Value) -> Value {
    match said {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !FORECASTS.contains(&name.as_str()))
            .map(|(name, value)| {
                let today = FIELDS.iter().find(|(then, _)| then == name);
                let today = today.map_or(name.as_str(), |(_, today)| today);
                (today.to_owned(), in_todays_words(name, value))
            })
            .collect(),
        Value::Array(items) => {
            let items = items.iter().map(|item| in_todays_words(field, item));
            items.collect()
        }
        Value::String(text) => {
            let other = VALUES
                .iter()
                .filter(|(under, _, _)| *under == field)
                .find_map(|(_, then, today)| Some(format!("{today}{}", text.strip_prefix(then)?)));
            Value::String(other.unwrap_or_else(|| text.clone()))
        }
        other => other.clone(),
    }
}

/// Where `now` lacks something of `before` or says it differently.
pub(crate) fn differs(before: &Value, now: &Value, at: &str) -> Vec<String> {
    match (before, now) {
        (Value::Object(before), Value::Object(now)) => before
            .iter()
            .flat_map(|(name, value)| {
                let missing = Value::String("(missing)".to_owned());
                differs(
                    value,
                    now.get(name).unwrap_or(&missing),
                    &format!("{at}/{name}"),
                )
            })
            .collect(),
        (Value::Array(before), Value::Array(now)) if before.len() == now.len() => before
            .iter()
            .zip(now)
            .enumerate()
            .flat_map(|(number, (before, now))| differs(before, now, &format!("{at}/{number}")))
            .collect(),
        (before, now) if before == now => Vec::new(),
        (before, now) => vec![format!("{at}: {before} is {now}")],
    }
}

/// Every answer of the version before that this one does not give. Nothing passes over the rows meanwhile.
async fn other_answers(data: &Path) -> Vec<String> {
    let server = open(data);
    let router = fardel::doors::api::router(server.clone(), Arc::new(FakeStreams::default()));
    let recorded = std::fs::read(fixture().join("answers.json")).expect("the answers");
    let recorded: Value = serde_json::from_slice(&recorded).expect("JSON");
    let mut wrong = Vec::new();
    for answer in recorded["answers"].as_array().expect("answers") {
        let (name, path) = (&answer["as"], answer["path"].as_str().expect("a path"));
        let token = recorded["tokens"][name.as_str().expect("a name")].as_str();
        let caller = As::Token(token.expect("a token").to_owned());
        let request = TheBox::request(&caller, "GET", path);
        let request = request.body(Body::empty()).expect("a request");
        let response = router.clone().oneshot(request).await.expect("an answer");
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a body");
        let body = serde_json::from_slice(&bytes.to_bytes()).expect("JSON");
        let at = format!("{path} as {name}");
        wrong.extend(differs(&answer["status"], &status.into(), &at));
        let before = in_todays_words("", &answer["body"]);
        wrong.extend(differs(&before, &body, &at));
    }
    wrong
}

#[tokio::test]
async fn a_state_of_the_version_before_reads_the_same_and_the_way_back_is_open() {
    let state = state();
    let data = state.path();
    assert_eq!(other_answers(data).await, Vec::<String>::new());
    let standing = server::upgrade::standing(data).expect("a standing");
    assert!(standing.version > Some(SCHEMA), "{standing:?}");

    let back = server::upgrade::rollback(data, now()).expect("the way back");
    assert_eq!((back.from, back.to), (standing.known, SCHEMA));
    assert_eq!(back.lost, Some(Vec::new()), "nothing happened since");
    let standing = server::upgrade::standing(data).expect("a standing");
    assert_eq!(standing.version, Some(SCHEMA));

    // Upwards once more: what came back is whole.
    assert_eq!(other_answers(data).await, Vec::<String>::new());
}

/// Documents that stay as they were written: answers for repeated requests, the assignment that a node keeps.
#[test]
fn documents_of_the_version_before_are_read() {
    let recorded = std::fs::read(fixture().join("answers.json")).expect("the answers");
    let recorded: Value = serde_json::from_slice(&recorded).expect("JSON");
    let answers = recorded["answers"].as_array().expect("answers").iter();
    let session = answers
        .filter_map(|answer| answer["body"]["items"].as_array())
        .flatten()
        .find(|item| item["longest_run_seconds"] == 86_400)
        .expect("a session with a time limit");
    assert_eq!(session["wish"], "run");
    let read: api::sessions::SessionView =
        serde_json::from_value(session.clone()).expect("a session");
    assert_eq!(read.desired, rules::session::DesiredState::Run);
    assert_eq!(read.max_runtime_seconds, Some(86_400));

    let assignment = serde_json::json!({
        "node": "01a20812-a8b9-7dff-af7d-500b5d1b92ed", "generation": 7, "containers": [],
        "cuts": [{"device": "GPU-1", "profiles": ["1g.10gb"]}],
    });
    let read: rules::messages::Assignment =
        serde_json::from_value(assignment).expect("an assignment");
    assert_eq!(read.partitions.len(), 1, "{read:?}");
}

#[tokio::test]
async fn a_state_of_the_version_before_takes_new_work() {
    let state = state();
    let server = open(state.path());
    let root = server::access::local_root(&server);
    let request = serde_json::json!({"kind": "batch", "command": ["true"]});
    let request = serde_json::from_value(request).expect("a request");
    let launched = server::actions::sessions::launch(&server, &root, request, None).await;
    assert_eq!(launched.expect("it is taken").sessions.len(), 1);
}
