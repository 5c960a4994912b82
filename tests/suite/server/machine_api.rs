//! Over REST: settings changed, undone and only checked; maintenance of a node; a history as a file.

use serde_json::{Value, json};

use super::journal_api::file;
use super::the_box::{As, TheBox};

/// Puts a value, and gives status, code and body.
async fn put(the_box: &TheBox, who: &As, path: &str, value: Value) -> (String, Value) {
    let path = format!("/api/v1/settings/{path}");
    let body = json!({"value": value}).to_string();
    let answer = the_box.with_body(who, "PUT", &path, body).await;
    (answer.short(), answer.json())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setting_is_checked_set_undone_and_reset_and_the_file_is_as_before() {
    let the_box = TheBox::open().await;
    let admin = &the_box.admin;
    let path = the_box.folder.path().join("fardel.toml");
    let text = || std::fs::read_to_string(&path).expect("the settings file");
    let before = "# mine\nbackup_keep = 3 # three\n";
    std::fs::write(&path, before).expect("written");
    let read = the_box
        .post(admin, "/api/v1/settings/reload", json!({}))
        .await;
    assert_eq!(read.json()["changed"], json!(["backup_keep"]));

    let (short, would) = put(&the_box, admin, "backup_keep?dry_run=true", json!(9)).await;
    assert_eq!(short, "200");
    let expected = json!({
        "key": "backup_keep", "before": 3, "after": 9, "needs_restart": false, "dry_run": true,
    });
    assert_eq!(would, expected);
    assert_eq!(text(), before, "nothing is written");
    for query in ["", "?dry_run=true"] {
        for (key, value, code) in [
            ("backup_keep", json!(0), "422 setting.invalid"),
            ("backup_keep", json!("many"), "422 setting.value-no-count"),
            ("gpu_least", json!("2 devices"), "422 gpu.invalid"),
            ("listen", json!("0.0.0.0:1"), "409 setting.file-only"),
            ("nothing", json!(1), "422 setting.unknown"),
        ] {
            let (short, body) = put(&the_box, admin, &format!("{key}{query}"), value).await;
            let family = code.split_once('.').expect("a family").0;
            assert!(short.starts_with(family), "{key}{query}: {short}, {body}");
        }
    }
    let (short, _) = put(&the_box, &the_box.mina, "backup_keep", json!(9)).await;
    assert_eq!(short, "403 role.administrator-needed");
    assert_eq!(text(), before, "nor for a value that does not fit");

    let (short, done) = put(&the_box, admin, "backup_keep", json!("9")).await;
    assert_eq!((short.as_str(), &done["dry_run"]), ("200", &json!(false)));
    assert_eq!(text(), "# mine\nbackup_keep = 9 # three\n");
    assert_eq!(the_box.server.settings().backup_keep, 9);
    let shown = the_box.get(admin, "/api/v1/settings/backup_keep").await;
    let shown = shown.json();
    assert_eq!(
        (&shown["value"], &shown["undo"], &shown["may_change"]),
        (&json!(9), &json!({"value": 3}), &json!(true))
    );
    let listed = the_box.get(admin, "/api/v1/settings").await.json();
    let mut listed = listed["items"].as_array().expect("a list").iter();
    assert!(listed.any(|setting| *setting == shown));

    let undo = "/api/v1/settings/backup_keep/undo";
    let would = the_box
        .post(admin, &format!("{undo}?dry_run=true"), json!({}))
        .await;
    assert_eq!(would.json()["after"], 3);
    assert_eq!(the_box.server.settings().backup_keep, 9, "only checked");
    assert_eq!(the_box.post(admin, undo, json!({})).await.status, 200);
    assert_eq!(text(), before, "as it was, to the byte");

    let delete = "/api/v1/settings/backup_keep";
    let reset = the_box.with_body(admin, "DELETE", delete, "").await.json();
    assert_eq!(reset["before"], 3);
    assert_eq!(text(), "# mine\n");
    let (_, later) = put(&the_box, admin, "gpu_units", json!(10)).await;
    assert_eq!(
        (&later["after"], &later["needs_restart"]),
        (&json!(10), &json!(true))
    );
    let shown = the_box.get(admin, "/api/v1/settings/gpu_units").await;
    assert_eq!(shown.json()["waiting"]["value"], 10);
    let last = the_box
        .post(admin, "/api/v1/settings/gpu_units/undo", json!({}))
        .await;
    assert_eq!((last.status.as_u16(), text().as_str()), (200, "# mine\n"));
    let nothing = the_box
        .post(admin, "/api/v1/settings/keep_days/undo", json!({}))
        .await;
    assert_eq!(nothing.short(), "409 setting.nothing-to-undo");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_in_maintenance_holds_launches_back_until_it_is_over() {
    let the_box = TheBox::open().await;
    let nodes = the_box.get(&the_box.mina, "/api/v1/nodes").await.json();
    let node = &nodes["items"][0];
    let name = node["name"].as_str().expect("a name");
    assert_eq!(
        (&node["state"], &node["maintenance"], node["cpu"].as_f64()),
        (&json!("ready"), &json!(false), Some(4.0))
    );
    let path = format!("/api/v1/nodes/{name}");
    let maintenance = format!("{path}/maintenance");
    let begin = json!({"maintenance": true, "message": "new fans"});
    let denied = the_box
        .post(&the_box.mina, &maintenance, begin.clone())
        .await;
    assert_eq!(denied.short(), "403 role.administrator-needed");
    let closed = the_box.post(&the_box.admin, &maintenance, begin).await;
    assert_eq!(closed.json()["state"], "maintenance", "{}", closed.short());
    let seen = the_box.get(&the_box.mina, "/api/v1/nodes").await.json();
    assert_eq!(seen["items"][0]["message"], "new fans");

    let order = json!({"name": "waits", "kind": "batch", "command": ["sleep"]});
    the_box.launch(&the_box.mina, order).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let waits = the_box.get(&the_box.mina, "/api/v1/sessions/waits").await;
    let waits = waits.json();
    assert_eq!(
        (&waits["state"], &waits["waited_seconds"]),
        (&json!("pending"), &Value::Null)
    );
    let end = json!({"maintenance": false});
    let open = the_box.post(&the_box.admin, &maintenance, end).await.json();
    assert_eq!(
        (&open["state"], &open["message"]),
        (&json!("ready"), &json!(""))
    );
    let runs = the_box.until(&the_box.mina, "waits", "running").await;
    assert!(runs["waited_seconds"].is_u64(), "{runs}");

    let shown = the_box.get(&the_box.admin, &path).await.json();
    assert_eq!(shown["node"]["name"], name);
    assert_eq!(shown["node"]["sessions"], 1);
    for (who, path, body, short) in [
        (
            &the_box.admin,
            "/api/v1/nodes/nobody/maintenance",
            json!({"maintenance": true}),
            "404 node.not-found",
        ),
        (
            &the_box.admin,
            maintenance.as_str(),
            json!({"maintenance": true, "message": "a\u{202e}b"}),
            "422 note.hidden-characters",
        ),
        (
            &the_box.admin,
            maintenance.as_str(),
            json!({"message": "why"}),
            "422 body.invalid",
        ),
    ] {
        assert_eq!(the_box.post(who, path, body).await.short(), short);
    }
    let unseen = the_box.get(&the_box.mina, &path).await;
    assert_eq!(unseen.short(), "403 role.administrator-needed");
    let unknown = the_box.get(&the_box.admin, "/api/v1/nodes/nobody").await;
    assert_eq!(unknown.short(), "404 node.not-found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_is_json_unless_comma_separated_values_are_asked_for() {
    let the_box = TheBox::open().await;
    let path = "/api/v1/history?range=hour";
    let history = the_box.get(&the_box.mina, path).await;
    assert_eq!(history.json()["of"], "site");
    let table = file(&the_box, &the_box.mina, path).await;
    assert_eq!(table.header("content-type"), "text/csv; charset=utf-8");
    assert_eq!(
        table.header("content-disposition"),
        "attachment; filename=\"site-hour.csv\""
    );
    let text = String::from_utf8(table.bytes).expect("text");
    assert!(text.starts_with("time,cpu_allocated_cores,"), "{text}");
}
