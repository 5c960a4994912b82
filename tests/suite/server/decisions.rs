//! The decision log of a server on disk: what its scheduler decided is decided again by the program alone, from the files.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::the_box::TheBox;

/// What `fardel rehearse decision` says of a state: exit code, output, error.
async fn say(data: &Path, words: &'static [&'static str]) -> (Option<i32>, String, String) {
    let data = data.to_owned();
    tokio::task::spawn_blocking(move || {
        let output = Command::new(env!("CARGO_BIN_EXE_fardel"))
            .args(["rehearse", "decision"])
            .args(words)
            .arg("--data")
            .arg(&data)
            .env_clear()
            .env("FARDEL_CONFIG", "/nonexistent")
            .env("HOME", &data)
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_decided_is_decided_again_from_its_files() {
    let the_box = TheBox::on_disk().await;
    let body = json!({
        "name": "own", "command": ["sleep"], "kind": "batch", "env": {"TOKEN": "hush-hush"},
    });
    let session = the_box.launch(&the_box.mina, body).await;
    let id = session["id"].as_str().expect("an id").to_owned();
    the_box.until(&the_box.mina, &id, "running").await;
    let data = the_box.server.settings().data.clone();
    // A thread of its own writes the log.
    let end = Instant::now() + Duration::from_secs(20);
    let listed = loop {
        let (code, out, err) = say(&data, &["-o", "json"]).await;
        assert_eq!(code, Some(0), "{err}");
        let listed: Value = serde_json::from_str(&out).expect("JSON");
        let items = listed["items"].as_array().expect("a list").clone();
        if !items.is_empty() {
            break items;
        }
        assert!(Instant::now() < end, "no decision was written");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(
        (&listed[0]["number"], &listed[0]["placed"]),
        (&json!(1), &json!(1))
    );
    let (code, out, err) = say(&data, &["1"]).await;
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("to the same bytes"), "{out}");
    assert!(out.contains(&id) && !out.contains("hush-hush"), "{out}");
    let (code, _, err) = say(&data, &["4711"]).await;
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("rehearse.decision-unknown"), "{err}");
}
