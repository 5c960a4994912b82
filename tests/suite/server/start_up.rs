//! What the sessions of a user start with, from the routes to the machine: each session of one's own gets it, no other does, and
//! no answer has the value of a variable.

use serde_json::json;

use super::the_box::{As, TheBox};

const SECRET: &str = "hunter2-of-a-user";

async fn put(the_box: &TheBox, who: &As, path: &str, body: serde_json::Value) {
    let path = format!("/api/v1/me/{path}");
    let answer = the_box.with_body(who, "PUT", &path, body.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.short());
}

/// Promise (Isolation and access): The variables of a user reach the user's own sessions and nothing else: no answer, no
/// file of the catalog and no session that another user launched has a value of them.
#[tokio::test]
async fn the_machine_gets_what_a_session_starts_with_and_no_answer_tells_it() {
    let the_box = TheBox::on_disk().await;
    let mina = &the_box.mina;
    let file = json!({"path": "~/.config/tool/rc", "mode": "644", "content": "color = on"});
    put(&the_box, mina, "dotfiles", file).await;
    let script = json!({"script": "echo begun", "ends_session": true});
    put(&the_box, mina, "startup-script", script).await;
    let variable = json!({"name": "KEY", "value": SECRET});
    put(&the_box, mina, "variables", variable).await;

    the_box.launch(mina, json!({"name": "own"})).await;
    let bare = json!({"name": "bare", "without_start_up": true});
    the_box.launch(mina, bare).await;
    let lesson = json!({"name": "lesson", "owner": "mina"});
    the_box.launch(&the_box.admin, lesson).await;
    for name in ["own", "bare", "lesson"] {
        the_box.until(mina, name, "running").await;
    }
    let told = the_box.start_ups.lock().expect("whole").clone();
    let own = &told["own"];
    assert_eq!(own.variables["KEY"], SECRET);
    let files: Vec<(&str, u32)> = own
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.mode))
        .collect();
    assert_eq!(files, [(".config/tool/rc", 0o644)]);
    assert!(
        own.script
            .as_ref()
            .is_some_and(|script| script.ends_session)
    );
    assert!(told["bare"].is_empty() && told["lesson"].is_empty());

    let paths = [
        "me/dotfiles",
        "me/dotfiles/.config%2Ftool%2Frc",
        "me/startup-script",
        "me/variables",
        "sessions",
        "sessions/own",
        "events/search",
        "me",
    ];
    for who in [mina, &the_box.jae, &the_box.admin] {
        for path in paths {
            let answer = the_box.get(who, &format!("/api/v1/{path}")).await;
            let text = String::from_utf8_lossy(&answer.bytes);
            assert!(!text.contains(SECRET), "{path}");
            assert!(who == mina || !text.contains("color = on"), "{path}");
        }
    }
    let file = the_box
        .get(mina, "/api/v1/me/dotfiles/.config%2Ftool%2Frc")
        .await;
    assert_eq!(file.json()["content"], "color = on");
    // Nor does a file of the catalog.
    let data = the_box.folder.path().join("data");
    for entry in std::fs::read_dir(data).expect("a directory").flatten() {
        if entry.path().is_file() {
            let bytes = std::fs::read(entry.path()).expect("read");
            let held = bytes
                .windows(SECRET.len())
                .any(|part| part == SECRET.as_bytes());
            assert!(!held, "{}", entry.path().display());
        }
    }

    let refused = json!({"name": "LD_PRELOAD", "value": SECRET}).to_string();
    let answer = the_box
        .with_body(mina, "PUT", "/api/v1/me/variables", refused)
        .await;
    assert_eq!(answer.short(), "422 variable.name-reserved");
    assert!(!String::from_utf8_lossy(&answer.bytes).contains(SECRET));
    let path = "/api/v1/me/variables/KEY";
    assert_eq!(
        the_box
            .with_body(&the_box.jae, "DELETE", path, "")
            .await
            .status,
        404
    );
    assert_eq!(
        the_box.with_body(mina, "DELETE", path, "").await.status,
        204
    );
}
