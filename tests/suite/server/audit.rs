//! The audit log over REST and on the command line: every acting route leaves a row, an export verifies without the server,
//! and that of a domain says nothing of another.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use fardel::doors::api::openapi::{Needs, ROUTES};
use rules::permissions::Permission;
use serde_json::{Value, json};

use super::roles::{Things, ask};
use super::the_box::{As, PASSWORD, TheBox};

/// Acts of the whole site, newest first.
async fn acts(the_box: &TheBox) -> Vec<Value> {
    let answer = the_box.get(&the_box.admin, "/api/v1/audit?limit=500").await;
    assert_eq!(answer.status, 200, "{}", answer.short());
    answer.json()["items"].as_array().expect("a list").clone()
}

fn number(act: &Value) -> u64 {
    act["sequence"].as_u64().expect("a number")
}

/// Routes that may answer with success and change no row: they only look, or what they were asked for is so already. Bytes
/// of an upload are no thing before they are imported.
const WITHOUT_A_CHANGE: &[&str] = &[
    "readNotices",
    "tryIdleRule",
    "drawSetupLink",
    "duplicateSession",
    "createUpload",
    "createFolderUpload",
    "suspendUser",
    "suspendRoster",
    "changeUser",
    "putMember",
    "releaseSession",
    "resumeSession",
    "reloadSettings",
    "trySignInSources",
    "setFourEyes",
];

/// Every acting route leaves a row of the audit log, done or refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acting_route_leaves_a_row_done_or_refused() {
    let the_box = TheBox::open().await;
    let mut wrong = Vec::new();
    let mut asked = 0;
    for route in ROUTES
        .iter()
        .filter(|route| route.method != "GET" && route.method != "HEAD")
    {
        let body = json!({"name": "own", "command": ["sleep"], "kind": "batch"});
        let session = the_box.launch(&the_box.mina, body).await;
        let session = session["id"].as_str().expect("an id").to_owned();
        if route.operation == "restartSession" {
            // One that has not begun is only begun.
            the_box.until(&the_box.mina, &session, "running").await;
        }
        let things = Things {
            session: &session,
            project: "default",
            user: "jae",
            folder: "no-such-folder",
        };
        // A user has room for fifty kinds of refusals in a minute; an export writes down what was counted and makes room.
        export(&the_box, &the_box.admin).await;
        let before = acts(&the_box).await;
        let newest = before.first().map_or(0, number);
        let (status, code) = ask(&the_box, &the_box.admin, route, &things).await;
        let now = acts(&the_box).await;
        let new: Vec<&Value> = now.iter().filter(|act| number(act) > newest).collect();
        let told: Vec<String> = new
            .iter()
            .map(|act| format!("{} {}", act["act"], act["reason"]))
            .collect();
        let may_change_nothing =
            WITHOUT_A_CHANGE.contains(&route.operation) || route.method == "OPTIONS";
        // Before sign-in there is nobody to write down; a failed sign-in is one.
        let of_nobody = matches!(route.needs, Needs::Nothing) && route.operation != "signIn";
        let right = match status {
            200..400 if may_change_nothing => new.iter().all(|act| act["reason"] == ""),
            200..400 => !new.is_empty() && new.iter().all(|act| act["reason"] == ""),
            400..500 if of_nobody => new.is_empty(),
            400..500 => new.iter().any(|act| act["reason"] == code.as_str()),
            // Nothing was wrong with the request: this server makes no backups.
            _ => status == 503,
        };
        if !right {
            wrong.push(format!(
                "{} {}: {status} {code}: {told:?}",
                route.operation, route.path
            ));
        }
        asked += 1;
        let kill = format!("/api/v1/sessions/{session}/kill");
        let _ = the_box.post(&the_box.admin, &kill, json!({})).await;
        let gone = the_box
            .get(&the_box.admin, &format!("/api/v1/sessions/{session}"))
            .await;
        if gone.status == 200 {
            the_box.until(&the_box.admin, &session, "ended").await;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(asked > 50, "only {asked} routes act");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_launch_has_exactly_one_row_and_it_says_by_what_and_from_where() {
    let the_box = TheBox::open().await;
    let newest = number(&acts(&the_box).await[0]);
    let body = json!({"name": "own", "command": ["sleep"], "kind": "batch"});
    let session = the_box.launch(&the_box.mina, body).await;
    let id = session["id"].as_str().expect("an id");
    the_box.until(&the_box.mina, id, "running").await;
    let all = acts(&the_box).await;
    let new: Vec<&Value> = all.iter().filter(|act| number(act) > newest).collect();
    assert_eq!(new.len(), 1, "{new:?}");
    let row = new[0];
    assert_eq!(
        (&row["act"], &row["actor"], &row["via"], &row["address"]),
        (
            &json!("session.accepted"),
            &json!("mina"),
            &json!("token"),
            &json!("192.0.2.9")
        )
    );
    assert_eq!(
        (&row["object"], &row["project"]),
        (&json!(id), &json!("default"))
    );
    assert!(!row["request"].as_str().expect("a text").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_the_log_of_another_has_a_row_and_its_owner_has_none() {
    let the_box = TheBox::open().await;
    let body = json!({"name": "own", "command": ["sleep"], "kind": "batch"});
    let session = the_box.launch(&the_box.mina, body).await;
    let id = session["id"].as_str().expect("an id");
    the_box.until(&the_box.mina, id, "running").await;
    let path = format!("/api/v1/sessions/{id}/logs");
    for who in [&the_box.mina, &the_box.admin, &the_box.admin] {
        let answer = the_box.get(who, &path).await;
        assert_eq!(answer.status, 200, "{}", answer.short());
    }
    let all = acts(&the_box).await;
    let read: Vec<&Value> = all
        .iter()
        .filter(|act| act["act"] == "session.log-read")
        .collect();
    assert_eq!(read.len(), 1, "{read:?}");
    assert_eq!(
        (&read[0]["actor"], &read[0]["object"]),
        (&json!("ada"), &json!(id))
    );
}

/// What `fardel audit verify` says of a text, with no server near it: exit code, and its output or its error.
pub(super) fn verified(folder: &Path, export: &str, key: &str) -> (i32, String) {
    let (file, pem) = (folder.join("export.jsonl"), folder.join("key.pem"));
    std::fs::write(&file, export).expect("written");
    std::fs::write(&pem, key).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_fardel"))
        .args(["audit", "verify"])
        .arg(&file)
        .arg("--key")
        .arg(&pem)
        .env_clear()
        .env("HOME", folder)
        .env("FARDEL_RUN", folder.join("nowhere"))
        .output()
        .expect("the binary of this build starts");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

async fn export(the_box: &TheBox, who: &As) -> String {
    let answer = the_box.get(who, "/api/v1/audit/export").await;
    assert_eq!(answer.status, 200, "{}", answer.short());
    assert_eq!(answer.header("content-type"), "application/jsonl");
    String::from_utf8(answer.bytes).expect("text")
}

pub(super) async fn authority(the_box: &TheBox) -> String {
    let trust = the_box.get(&As::Nobody, "/api/v1/trust").await.json();
    trust["pem"].as_str().expect("a certificate").to_owned()
}

async fn made(the_box: &TheBox, path: &str, body: Value) {
    let answer = the_box.post(&the_box.admin, path, body).await;
    assert!(answer.status.is_success(), "{path}: {}", answer.short());
}

/// The export of a domain's auditor says nothing of another domain and verifies by itself.
///
/// Proves too: `tests/suite/server/twin_worlds.rs`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_of_a_domain_verifies_alone_and_every_edit_of_it_is_located() {
    let the_box = TheBox::open().await;
    made(&the_box, "/api/v1/domains", json!({"name": "biology"})).await;
    for (name, domain) in [
        ("auditor", "biology"),
        ("abe", "biology"),
        ("zanzibar", "default"),
    ] {
        let body = json!({"name": name, "password": PASSWORD, "domain": domain});
        made(&the_box, "/api/v1/users", body).await;
    }
    let path = "/api/v1/users/auditor/grants";
    let body = json!({"role": "auditor", "domain": "biology"}).to_string();
    let set = the_box.with_body(&the_box.admin, "PUT", path, body).await;
    assert_eq!(set.status, 200, "{}", set.short());
    let auditor = the_box.token("auditor", &Permission::ALL, None).await;
    the_box.token("abe", &Permission::ALL, None).await;
    the_box.token("zanzibar", &Permission::ALL, None).await;
    let signed = the_box
        .post(&the_box.admin, "/api/v1/audit/checkpoints", json!({}))
        .await;
    assert_eq!(signed.status, 201, "{}", signed.short());
    the_box.token("abe", &Permission::ALL, None).await;

    let key = authority(&the_box).await;
    let folder = the_box.folder.path();
    let text = export(&the_box, &auditor).await;
    let (code, said) = verified(folder, &text, &key);
    assert_eq!(code, 0, "{said}");
    assert!(
        !text.contains("zanzibar") && !text.contains("mina"),
        "{text}"
    );
    let lines: Vec<&str> = text.lines().collect();
    let statements = lines
        .iter()
        .filter(|line| line.contains("\"statement\""))
        .count();
    let digests = lines
        .iter()
        .filter(|line| line.contains("\"digest\""))
        .count();
    assert!(statements >= 5 && digests >= 5, "{statements} {digests}");
    let checkpoints = lines
        .iter()
        .filter(|line| line.contains("\"checkpoint\""))
        .count();
    assert_eq!(checkpoints, 2, "the kept one, and the end");
    let whole = export(&the_box, &the_box.admin).await;
    assert!(!whole.contains("\"digest\"") && whole.contains("zanzibar"));
    assert_eq!(verified(folder, &whole, &key).0, 0);
    // Of one user's acts it verifies as well, and an act that is left out is missed.
    let path = "/api/v1/audit/export?user=abe";
    let of_abe = the_box.get(&the_box.admin, path).await;
    let of_abe = String::from_utf8(of_abe.bytes).expect("text");
    assert_eq!(verified(folder, &of_abe, &key).0, 0, "{of_abe}");
    assert!(!of_abe.contains("zanzibar") && !of_abe.contains("\\\"actor\\\":\\\"auditor\\\""));
    let told = |line: &&str| line.contains("\"statement\"");
    assert!(of_abe.lines().filter(told).count() >= 2, "{of_abe}");
    let first = of_abe.lines().find(told).expect("an act of abe");
    let without = of_abe.replacen(&format!("{first}\n"), "", 1);
    assert_ne!(verified(folder, &without, &key).0, 0);

    // One edit of each sort, told with its place.
    let row = |line: &&str| line.starts_with("{\"sequence\"");
    let at = lines
        .iter()
        .position(|line| row(line) && line.contains("\"statement\""));
    let at = at.expect("a statement");
    let sequence: Value = serde_json::from_str(lines[at]).expect("JSON");
    let place = format!("row {}", sequence["sequence"]);
    let edited = |edit: &dyn Fn(&mut Vec<String>)| {
        let mut edited: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        edit(&mut edited);
        verified(folder, &edited.join("\n"), &key)
    };
    let broken = [
        edited(&|lines| lines[at] = lines[at].replacen("\\\"via\\\":\\\"", "\\\"via\\\":\\\"x", 1)),
        edited(&|lines| {
            lines.remove(at);
        }),
        edited(&|lines| lines.swap(at, at + 1)),
        edited(&|lines| lines.insert(at, lines[at].clone())),
    ];
    for (code, said) in broken {
        assert_eq!(code, 1, "{said}");
        assert!(
            said.contains("audit.broken-at") && said.contains(&place),
            "{place}: {said}"
        );
    }
    let (code, said) = edited(&|lines| lines.truncate(lines.len() - 2));
    assert_eq!(code, 1);
    assert!(said.contains("audit.unsigned"), "{said}");
    let other = TheBox::open().await;
    let (code, said) = verified(folder, &text, &authority(&other).await);
    assert_eq!(code, 1);
    assert!(said.contains("audit.signature-wrong"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_lists_exports_and_signs() {
    let the_box = TheBox::open().await;
    the_box.serve().await;
    let folder = the_box.folder.path().to_owned();
    let say = |line: &'static str| {
        let folder = folder.clone();
        async move {
            tokio::task::spawn_blocking(move || {
                let output = Command::new(env!("CARGO_BIN_EXE_fardel"))
                    .args(line.split(' '))
                    .current_dir(&folder)
                    .env_clear()
                    .env("FARDEL_RUN", &folder)
                    .env("FARDEL_CONFIG", "/nonexistent")
                    .env("HOME", &folder)
                    .env("LANG", "C")
                    .output()
                    .expect("the binary of this build starts");
                let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                (
                    output.status.code(),
                    text(output.stdout),
                    text(output.stderr),
                )
            })
            .await
            .expect("the thread ends")
        }
    };
    let (code, out, err) = say("audit ls --act user.added -o json").await;
    assert_eq!(code, Some(0), "{err}");
    let listed: Value = serde_json::from_str(&out).expect("JSON");
    let names: BTreeSet<&str> = listed["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|act| act["act"].as_str().expect("a text"))
        .collect();
    assert_eq!(names, BTreeSet::from(["user.added"]));
    let (code, out, err) = say("audit ls -n 3").await;
    assert_eq!((code, out.lines().count()), (Some(0), 4), "{out}{err}");
    let (code, _, err) = say("audit sign").await;
    assert_eq!(code, Some(0), "{err}");
    let (code, out, _) = say("audit checkpoints").await;
    assert_eq!((code, out.lines().count()), (Some(0), 2), "{out}");
    let (code, _, err) = say("audit export all.jsonl").await;
    assert_eq!(code, Some(0), "{err}");
    let (code, _, err) = say("audit export all.jsonl").await;
    assert!(code == Some(5) || code == Some(2), "{code:?} {err}");
    assert!(err.contains("audit.export-exists"), "{err}");
    let (code, pem, _) = say("trust").await;
    assert_eq!(code, Some(0));
    std::fs::write(folder.join("fardel.pem"), pem).expect("written");
    let (code, out, err) = say("audit verify all.jsonl --key fardel.pem").await;
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("the export is whole"), "{out}");
}
