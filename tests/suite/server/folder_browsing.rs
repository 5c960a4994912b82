//! The browser of a folder over the routes: what is found, counted, copied and edited among files that sessions may have made
//! as hostile as they please; and what no page shows of them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use axum::body::Body;
use serde_json::{Value, json};

use super::the_box::{Answer, TheBox};

/// A folder of mina's: its address, and where its files lie.
async fn folder(the_box: &TheBox) -> (String, PathBuf) {
    let made = the_box.post(&the_box.mina, "/api/v1/folders", json!({"name": "data"}));
    let made = made.await;
    assert_eq!(made.status, 201, "{}", made.short());
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    let place = the_box.server.settings().data.join("folders");
    let place = place.join(&id[id.len() - 2..]).join(&id).join("data");
    (format!("/api/v1/folders/{id}"), place)
}

async fn get(the_box: &TheBox, path: &str) -> Answer {
    let request = TheBox::request(&the_box.mina, "GET", path);
    the_box
        .send(request.body(Body::empty()).expect("a request"))
        .await
}

async fn put(the_box: &TheBox, path: &str, version: Option<&str>, body: Value) -> Answer {
    let mut request = TheBox::request(&the_box.mina, "PUT", path);
    request = request.header("content-type", "application/json");
    if let Some(version) = version {
        request = request.header("if-match", version);
    }
    let request = request.body(Body::from(body.to_string()));
    the_box.send(request.expect("a request")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_names_are_found_counted_and_led_nowhere() {
    let the_box = TheBox::open().await;
    let (folder, place) = folder(&the_box).await;
    let long = "n".repeat(255);
    fs::create_dir_all(place.join("deep/er")).expect("made");
    fs::write(place.join("deep/er").join(&long), "x").expect("written");
    let odd = OsStr::from_bytes(b"n\xff\n<script>");
    fs::write(place.join("deep").join(odd), "x").expect("written");
    symlink("/", place.join("nroot")).expect("a link");
    let made = std::process::Command::new("mkfifo")
        .arg(place.join("npipe"))
        .status();
    assert!(made.expect("a program of the system").success());
    let sparse = fs::File::create(place.join("nlarge")).expect("made");
    sparse.set_len(1 << 30).expect("sparse");
    let found = get(&the_box, &format!("{folder}/search?q=N")).await;
    assert_eq!(found.status, 200, "{}", found.short());
    let found = found.json();
    let paths: Vec<&str> = found["items"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["path"].as_str())
        .collect();
    let deep = format!("deep/er/{long}");
    let expected = [
        deep.as_str(),
        "deep/n%FF%0A<script>",
        "nlarge",
        "npipe",
        "nroot",
    ];
    assert_eq!(paths, expected);
    assert_eq!(
        (&found["stopped"], &found["whole"]),
        (&Value::Null, &json!(true))
    );
    let usage = get(&the_box, &format!("{folder}/usage")).await.json();
    assert_eq!(usage["items"][0]["path"], "deep");
    assert_eq!(
        (&usage["files"], &usage["whole"]),
        (&json!(3), &json!(true))
    );
    let sparse = usage["files_bytes"].as_u64().expect("a number");
    assert!(sparse < 1 << 20, "what it takes of the disk, not {sparse}");
    for (path, expected) in [
        ("search?path=nroot", "422 folder.entry-link"),
        ("search?path=nroot/etc&q=passwd", "422 folder.entry-link"),
        ("search?path=../..", "422 folder.path-invalid"),
        ("search?path=none", "404 folder.entry-not-found"),
        ("search?limit=501", "422 limit.out-of-range"),
        ("search?cursor=x", "422 cursor.invalid"),
        ("usage?path=nroot", "422 folder.entry-link"),
        ("usage?path=none", "404 folder.entry-not-found"),
        ("text?path=npipe", "422 folder.entry-not-file"),
        ("text?path=nroot", "422 folder.entry-link"),
        ("text?path=nlarge", "422 folder.text-too-large"),
        ("text?path=deep", "422 folder.entry-not-file"),
        ("text?path=none", "404 folder.entry-not-found"),
        ("entries?sort=colour", "422 sort.unknown"),
    ] {
        let answer = get(&the_box, &format!("{folder}/{path}")).await;
        assert_eq!(answer.short(), expected, "{path}");
    }
    for (from, to, expected) in [
        ("nroot/etc", "x", "422 folder.entry-link"),
        ("deep", "nroot/tmp/x", "422 folder.entry-link"),
        ("npipe", "x", "422 folder.entry-not-file"),
        ("deep", "nlarge", "409 folder.entry-exists"),
        ("none", "x", "404 folder.entry-not-found"),
        ("deep", "a%0Ab", "422 folder.new-name-invalid"),
    ] {
        let path = format!("{folder}/copy");
        let body = json!({"from": from, "to": to});
        let answer = the_box.post(&the_box.mina, &path, body).await;
        assert_eq!(answer.short(), expected, "{from} {to}");
    }
    let path = format!("{folder}/copy");
    let body = json!({"from": "deep", "to": "copy"});
    let copied = the_box.post(&the_box.mina, &path, body).await;
    assert_eq!(copied.status, 201, "{}", copied.short());
    assert!(place.join("copy").join(odd).is_file());
    assert!(place.join("copy/er").join(&long).is_file());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_over_rest_needs_the_version_that_was_read() {
    let the_box = TheBox::open().await;
    let (folder, place) = folder(&the_box).await;
    let path = format!("{folder}/text");
    let body = |text: &str| json!({"path": "notes.md", "text": text});
    let made = the_box.post(&the_box.mina, &path, body("one\n")).await;
    assert_eq!(made.status, 201, "{}", made.short());
    let again = the_box.post(&the_box.mina, &path, body("two\n")).await;
    assert_eq!(again.short(), "409 folder.entry-exists");
    let read = get(&the_box, &format!("{path}?path=notes.md")).await;
    let tag = read.header("etag").to_owned();
    assert_eq!(read.json()["etag"], json!(tag));
    let file = get(&the_box, &format!("{folder}/files?path=notes.md")).await;
    assert_eq!(file.header("etag"), tag, "the same of the bytes");
    let bare = put(&the_box, &path, None, body("two\n")).await;
    assert_eq!(bare.short(), "428 if-match.missing");
    let odd = put(&the_box, &path, Some("3"), body("two\n")).await;
    assert_eq!(odd.short(), "412 if-match.unknown");
    fs::write(place.join("notes.md"), "of a session\n").expect("written");
    let stale = put(&the_box, &path, Some(&tag), body("two\n")).await;
    assert_eq!(stale.short(), "412 folder.file-stale");
    let kept = fs::read_to_string(place.join("notes.md")).expect("there");
    assert_eq!(kept, "of a session\n");
    let read = get(&the_box, &format!("{path}?path=notes.md")).await;
    let tag = read.header("etag").to_owned();
    let written = put(&the_box, &path, Some(&tag), body("two\n")).await;
    assert_eq!(written.status, 200, "{}", written.short());
    assert_ne!(written.header("etag"), tag);
    let any = put(&the_box, &path, Some("*"), body("\u{ac00}\n")).await;
    assert_eq!(any.status, 200, "{}", any.short());
    let large = put(&the_box, &path, Some("*"), body(&"\u{1}".repeat(1 << 20))).await;
    assert_eq!(large.status, 200, "{}", large.short());
    let larger = put(&the_box, &path, Some("*"), body(&"x".repeat((1 << 20) + 1)));
    assert_eq!(larger.await.short(), "422 folder.text-too-large");
    let nul = put(&the_box, &path, Some("*"), body("a\0b")).await;
    assert_eq!(nul.short(), "422 folder.not-text");
    // A key is no bound of its own, and the answer that is kept under it holds no text of a user.
    let sent = json!({"path": "keyed.txt", "text": "\n".repeat(1 << 20)}).to_string();
    let keyed = || {
        let request = TheBox::request(&the_box.mina, "POST", &path)
            .header("content-type", "application/json")
            .header("idempotency-key", "a-large-text");
        request.body(Body::from(sent.clone())).expect("a request")
    };
    let first = the_box.send(keyed()).await;
    assert_eq!(first.status, 201, "{}", first.short());
    assert_eq!(first.json()["text"], Value::Null);
    let again = the_box.send(keyed()).await;
    assert_eq!((again.status, again.json()), (first.status, first.json()));
}
