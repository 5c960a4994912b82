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
    for (code, after) in [
        ("session.connected", "db:5432"),
        (
            "session.connection-ended",
            "db:5432 sent=10 received=20 seconds=0",
        ),
    ] {
        let is_told = |event: &&Value| event["code"] == code && event["after"] == after;
        assert_eq!(all.iter().filter(is_told).count(), 1, "{code}: {events}");
    }
    let hidden = the_box.get(&the_box.jae, &path).await;
    assert_eq!(hidden.status, 404, "{}", hidden.json());
    let none = the_box
        .get(&the_box.jae, "/api/v1/sessions/none/connections")
        .await;
    assert_eq!(none.json()["code"], hidden.json()["code"]);
}

/// Attached to a domain, to a project in it and to a user, each in turn holds for what is launched; taken away again, the
/// wider one does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn networks_come_from_the_narrowest_policy_of_user_project_and_domain() {
    let the_box = TheBox::open().await;
    let (admin, mina) = (&the_box.admin, &the_box.mina);
    let plain = || json!({"image": "host"});
    let first = the_box.launch(mina, plain()).await;
    assert_eq!(
        (&first["network"], &first["targets"]),
        (&json!("none"), &json!([]))
    );
    let of = |value: &Value| value.as_str().expect("a word").to_owned();
    let levels = [
        ("domain", of(&first["domain"]), "db=10.1.0.1:5432"),
        ("project", of(&first["project"]["id"]), "db=10.1.0.2:5432"),
        ("user", "mina".to_owned(), "db=10.1.0.3:5432"),
    ];
    for (level, subject, target) in &levels {
        let policy = json!({"name": level, "egress": {"networks": ["list"], "targets": [target]}});
        let made = the_box.post(admin, "/api/v1/policies", policy).await;
        assert_eq!(made.status, 201, "{level}: {}", made.short());
        let place = format!("/api/v1/policies/{level}/uses");
        let to = json!({"level": level, "subject": subject}).to_string();
        let attached = the_box.with_body(admin, "PUT", &place, to).await;
        assert!(
            attached.status.is_success(),
            "{level}: {}",
            attached.short()
        );
        let session = the_box.launch(mina, plain()).await;
        let has = (&session["network"], &session["targets"]);
        assert_eq!(has, (&json!("list"), &json!([target])), "{level}");
    }
    let other = the_box.launch(&the_box.jae, plain()).await;
    assert_ne!(other["targets"], json!([levels[2].2]), "it is mina's alone");
    for (at, wider) in [(2, Some(levels[1].2)), (1, Some(levels[0].2)), (0, None)] {
        let (level, subject, _) = &levels[at];
        let place = format!("/api/v1/policies/{level}/uses?level={level}&subject={subject}");
        let gone = the_box.with_body(admin, "DELETE", &place, "").await;
        assert!(gone.status.is_success(), "{level}: {}", gone.short());
        let session = the_box.launch(mina, plain()).await;
        let targets = wider.map_or_else(|| json!([]), |target| json!([target]));
        assert_eq!(session["targets"], targets, "without that of the {level}");
    }
}
