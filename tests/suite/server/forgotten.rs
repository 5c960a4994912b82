//! What goes with a session that somebody deletes: its log, also where the server dies in between.

use std::sync::Arc;
use std::time::Duration;

use rules::names::SessionId;
use serde_json::json;

use super::the_box::TheBox;

/// Waits until the machine was told of so many sessions; gives them in order.
async fn told(the_box: &TheBox, many: usize) -> Vec<SessionId> {
    for _ in 0..1000 {
        let told = the_box.streams.forgotten.lock().expect("whole").clone();
        if told.len() >= many {
            return told;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the machine was not told");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_sessions_log_is_forgotten_also_after_a_restart() {
    let the_box = TheBox::open().await;
    let mut sessions = Vec::new();
    for name in ["one", "two", "three"] {
        let body = json!({ "name": name, "command": ["exit", "0"], "kind": "batch" });
        let id = the_box.launch(&the_box.mina, body).await["id"].clone();
        let id = id.as_str().expect("an id").to_owned();
        the_box.until(&the_box.mina, &id, "ended").await;
        sessions.push(id);
    }
    let delete = async |id: &String| {
        let path = format!("/api/v1/sessions/{id}");
        let answer = the_box.with_body(&the_box.mina, "DELETE", &path, "").await;
        assert_eq!(answer.status, 204, "{}", answer.short());
    };
    let ids: Vec<SessionId> = sessions
        .iter()
        .map(|id| id.parse().expect("an id"))
        .collect();
    // Nobody tells yet, as if the server had died right after it.
    delete(&sessions[0]).await;
    let tell = || {
        let streams = Arc::new(the_box.streams.clone());
        tokio::spawn(server::forget_logs(&the_box.server, streams))
    };
    let telling = tell();
    assert_eq!(told(&the_box, 1).await, ids[..1]);
    delete(&sessions[1]).await;
    assert_eq!(told(&the_box, 2).await, ids[..2]);
    telling.abort();
    the_box.streams.forgotten.lock().expect("whole").clear();
    // The next server tells all of it again, and of nothing that still has a row.
    let telling = tell();
    assert_eq!(told(&the_box, 2).await, ids[..2]);
    telling.abort();
}
