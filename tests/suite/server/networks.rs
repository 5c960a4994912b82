//! A network from a policy to a session's connections, through the whole server: who chooses it, who reads what it connected to.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::the_box::TheBox;

/// Longer than it takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_of_a_policy_is_chosen_reported_and_shown_to_its_owner_alone() {
    let the_box = TheBox::open().await;
    let plain = json!({"image": "host"});
    let listed = json!({"image": "host", "network": "list"});
    let refused = the_box
        .post(&the_box.mina, "/api/v1/sessions", listed)
        .await;
    assert_eq!(refused.status, 403, "{}", refused.json());
    assert_eq!(refused.json()["code"], "egress.not-allowed");
    let policy = json!({
        "name": "plant",
        "egress": {"networks": ["list"], "targets": ["db=10.1.2.3:5432"]}
    });
    let policies = "/api/v1/policies";
    let denied = the_box.post(&the_box.mina, policies, policy.clone()).await;
    assert_eq!(denied.status, 403, "{}", denied.json());
    let made = the_box.post(&the_box.admin, policies, policy).await;
    assert_eq!(made.status, 201, "{}", made.json());
    let to = json!({"level": "user", "subject": "mina"}).to_string();
    let place = "/api/v1/policies/plant/uses";
    let attached = the_box.with_body(&the_box.admin, "PUT", place, to).await;
    assert!(attached.status.is_success(), "{}", attached.json());

    let session = the_box.launch(&the_box.mina, plain).await;
    assert_eq!(session["network"], "list", "{session}");
    assert_eq!(session["targets"], json!(["db=10.1.2.3:5432"]));
    let id = session["id"].as_str().expect("an id");
    the_box.until(&the_box.mina, id, "running").await;
    let path = format!("/api/v1/sessions/{id}/connections");
    let until = Instant::now() + TIMEOUT;
    let row = loop {
        let told = the_box.get(&the_box.mina, &path).await.json();
        if let Some(row) = told["items"].as_array().and_then(|rows| rows.first()) {
            break row.clone();
        }
        assert!(Instant::now() < until, "{told}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let figures = |name: &str| row[name].clone();
    assert_eq!(figures("host"), "db");
    assert_eq!(figures("port"), 5432);
    assert_eq!(figures("outcome"), "opened");
    assert_eq!(
        [figures("sent"), figures("received")],
        [json!(10), json!(20)]
    );
    let events = format!("/api/v1/sessions/{id}/events");
    let events = the_box.get(&the_box.mina, &events).await.json();
    let all = events["items"].as_array().cloned().unwrap_or_default();
    let is_told =
        |event: &Value| event["code"] == "session.connected" && event["after"] == "db:5432";
    assert_eq!(
        all.iter().filter(|event| is_told(event)).count(),
        1,
        "{events}"
    );
    let hidden = the_box.get(&the_box.jae, &path).await;
    assert_eq!(hidden.status, 404, "{}", hidden.json());
    let none = the_box
        .get(&the_box.jae, "/api/v1/sessions/none/connections")
        .await;
    assert_eq!(none.json()["code"], hidden.json()["code"]);
}
