//! What goes with a session that somebody deletes: its log, also where the server dies in between, and no page
//! that is opened meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rules::names::SessionId;
use serde_json::json;

use super::the_box::{As, TheBox};

/// Visits while sessions are made and deleted. Fewer: what fails in one of twenty may not fail here.
const VISITS: usize = 120;

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

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_opens_while_sessions_are_made_and_deleted() {
    let the_box = TheBox::on_disk().await;
    let visited = AtomicUsize::new(0);
    let goes_on = || visited.load(Ordering::Relaxed) < VISITS;
    // One fills the machine, so that the next one waits.
    let filling = json!({
        "name": "fills", "command": ["sleep"], "kind": "batch",
        "resources": {"cpu": 3.5, "memory": 67_108_864},
    });
    let filling = the_box.launch(&the_box.mina, filling).await["id"].clone();
    let filling = filling.as_str().expect("an id");
    the_box.until(&the_box.mina, filling, "running").await;
    let work = async {
        let mut round = 0;
        while goes_on() {
            round += 1;
            let short = json!({
                "name": format!("short-{round}"), "command": ["exit", "0"], "kind": "batch",
                "resources": {"cpu": 0.1, "memory": 67_108_864},
            });
            let waits = json!({
                "name": format!("waits-{round}"), "command": ["sleep"], "kind": "batch",
                "resources": {"cpu": 2, "memory": 67_108_864},
            });
            for (body, is_killed) in [(short, false), (waits, true)] {
                let id = the_box.launch(&the_box.mina, body).await["id"].clone();
                let path = format!("/api/v1/sessions/{}", id.as_str().expect("an id"));
                if is_killed {
                    let kill = format!("{path}/kill");
                    let killed = the_box.post(&the_box.mina, &kill, json!({})).await;
                    assert!(killed.status.is_success(), "{}", killed.short());
                }
                let id = id.as_str().expect("an id");
                the_box.until(&the_box.mina, id, "ended").await;
                let gone = the_box.with_body(&the_box.mina, "DELETE", &path, "");
                let gone = gone.await;
                assert_eq!(gone.status, 204, "{}", gone.short());
            }
        }
    };
    let visits = async |who: &As, path: &str| {
        while goes_on() {
            let answer = the_box.get(who, path).await;
            let said = String::from_utf8_lossy(&answer.bytes);
            assert_eq!(answer.status, 200, "{path}: {said}");
            visited.fetch_add(1, Ordering::Relaxed);
        }
    };
    tokio::join!(
        work,
        visits(&the_box.browser, "/"),
        visits(&the_box.browser, "/"),
        visits(&the_box.admin, "/api/v1/overview"),
    );
}
