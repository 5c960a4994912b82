//! Policies over REST on a whole server: one that forbids what runs ends nothing, and an allowance that ends does neither.

use base::observe::Clock;
use serde_json::{Value, json};

use super::the_box::{As, TheBox};

fn batch(name: &str, cpu: f64) -> Value {
    json!({
        "name": name, "kind": "batch", "command": ["sleep"],
        "resources": {"cpu": cpu, "memory": 67_108_864},
    })
}

/// The machine says something new where it is told something new: after the clock was moved, a session of another user ends.
async fn nudge(the_box: &TheBox, number: u32) {
    let path = format!("/api/v1/sessions/nudge-{number}/kill");
    let killed = the_box.post(&the_box.jae, &path, json!({})).await;
    assert!(killed.status.is_success(), "{}", killed.short());
    let name = format!("nudge-{number}");
    the_box.until(&the_box.jae, &name, "ended").await;
}

async fn state(the_box: &TheBox, who: &As, name: &str) -> String {
    let path = format!("/api/v1/sessions/{name}");
    let session = the_box.get(who, &path).await.json();
    session["state"].as_str().unwrap_or_default().to_owned()
}

/// Code of the first thing that a session waits for.
async fn waits_for(the_box: &TheBox, who: &As, name: &str) -> String {
    let path = format!("/api/v1/sessions/{name}/why");
    let why = the_box.get(who, &path).await.json();
    let code = why["blockers"][0]["code"].as_str();
    code.unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_forbids_what_runs_ends_nothing_and_admits_no_more_of_it() {
    let clock = Clock::set_by_hand(Clock::system().now());
    let the_box = TheBox::by_clock(clock.clone(), &[], Vec::new()).await;
    let (admin, mina) = (&the_box.admin, &the_box.mina);
    for number in 0..3 {
        let name = format!("nudge-{number}");
        the_box.launch(&the_box.jae, batch(&name, 0.1)).await;
        the_box.until(&the_box.jae, &name, "running").await;
    }
    the_box.launch(mina, batch("works", 2.0)).await;
    the_box.until(mina, "works", "running").await;

    // Of each of these it has more than is allowed from now on.
    let limits = json!({"cpu_each": 0.5, "cpu": 0.5, "sessions": 1, "runtime_seconds": 60});
    let policy = json!({"name": "tight", "limits": limits});
    let made = the_box.post(admin, "/api/v1/policies", policy).await;
    assert_eq!(made.status, 201, "{}", made.short());
    let holds_for = json!({"level": "user", "subject": "mina"}).to_string();
    let uses = "/api/v1/policies/tight/uses";
    let attached = the_box.with_body(admin, "PUT", uses, holds_for).await;
    assert_eq!(attached.status, 200, "{}", attached.short());

    let larger = the_box.post(mina, "/api/v1/sessions", batch("larger", 2.0));
    let larger = larger.await.short();
    assert!(larger.ends_with("limit.each"), "{larger}");
    the_box.launch(mina, batch("next", 0.5)).await;
    clock.set(clock.now().plus_seconds(120));
    nudge(&the_box, 0).await;
    assert_eq!(state(&the_box, mina, "works").await, "running");
    assert_eq!(state(&the_box, mina, "next").await, "pending");
    let code = waits_for(&the_box, mina, "next").await;
    assert!(code.starts_with("limit"), "{code}");

    // For a time there is room; what started in it goes on when that is over.
    let raised = json!({
        "level": "user", "subject": "mina", "limits": {"cpu": 4, "sessions": 4},
        "until": clock.now().plus_seconds(30).to_string(),
    });
    let raised = the_box.post(admin, "/api/v1/allowances", raised).await;
    assert_eq!(raised.status, 201, "{}", raised.short());
    the_box.until(mina, "next", "running").await;
    clock.set(clock.now().plus_seconds(40));
    nudge(&the_box, 1).await;
    the_box.launch(mina, batch("late", 0.1)).await;
    nudge(&the_box, 2).await;
    for name in ["works", "next"] {
        assert_eq!(state(&the_box, mina, name).await, "running", "{name}");
    }
    assert_eq!(state(&the_box, mina, "late").await, "pending");

    // The policy gone, it has its place.
    let detach = format!("{uses}?level=user&subject=mina");
    let detached = the_box.with_body(admin, "DELETE", &detach, "").await;
    assert!(detached.status.is_success(), "{}", detached.short());
    the_box.until(mina, "late", "running").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_asks_for_a_time_limit_and_tells_before_who_would_be_over() {
    let the_box = TheBox::open().await;
    let (admin, mina) = (&the_box.admin, &the_box.mina);
    the_box.launch(mina, batch("works", 0.5)).await;
    the_box.until(mina, "works", "running").await;
    let patch = async |query: &str, body: Value| {
        let path = format!("/api/v1/policies/default{query}");
        let request = TheBox::request(admin, "PATCH", &path)
            .header("content-type", "application/merge-patch+json")
            .header("if-match", "*")
            .body(axum::body::Body::from(body.to_string()))
            .expect("a request");
        the_box.send(request).await
    };
    let before = the_box.get(admin, "/api/v1/policies/default").await.json();
    let over = patch("?dry_run=true", json!({"limits": {"cpu": 0.25}})).await;
    assert_eq!(over.status, 200, "{}", over.short());
    let over = over.json();
    assert_eq!(over["more"], 0);
    assert_eq!(over["items"][0]["user"], "mina");
    assert_eq!(over["items"][0]["key"], "cpu");
    assert_eq!(over["items"][0]["used"], 50);
    assert_eq!(over["items"][0]["limit"], 25);
    let after = the_box.get(admin, "/api/v1/policies/default").await.json();
    assert_eq!(before, after, "nothing was saved");

    let changed = patch("", json!({"require_limit": true})).await;
    assert_eq!(changed.status, 200, "{}", changed.short());
    let refused = the_box.post(mina, "/api/v1/sessions", batch("free", 0.1));
    assert_eq!(refused.await.short(), "422 limit.needed");
    let mut limited = batch("limited", 0.1);
    limited["max_runtime_seconds"] = json!(600);
    the_box.launch(mina, limited).await;
    the_box.until(mina, "limited", "running").await;
    assert_eq!(state(&the_box, mina, "works").await, "running");
}
