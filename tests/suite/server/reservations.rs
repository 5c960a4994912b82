//! Reservations over REST on a whole server with simulated devices: a stranger waits for the end of one, and has the device
//! once it is cancelled; a lead books within the quota of the project and asks an administrator for more; twelve devices are
//! warned of, drained when the lecture begins, and given back.

use std::time::{Duration, Instant};

use axum::body::Body;
use base::observe::Clock;
use rules::units::Timestamp;
use serde_json::{Value, json};

use super::roles::seconds_ahead;
use super::the_box::{As, TheBox};

/// Proves too: `reserved_devices_are_their_members_alone`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_waits_for_a_reserved_gpu_and_has_it_once_that_is_cancelled() {
    let devices = node::gpu::simulated::devices("H100:1").expect("a good text");
    let the_box = TheBox::with(&[], devices).await;
    let path = "/api/v1/reservations/lecture";
    let booked = json!({
        "name": "lecture", "maintenance": true, "resources": {"gpu": 1},
        "from": seconds_ahead(300), "to": seconds_ahead(3_900), "time_zone": "UTC",
    });
    let denied = the_box.post(&the_box.mina, "/api/v1/reservations", booked.clone());
    assert_eq!(denied.await.short(), "403 role.administrator-needed");
    let made = the_box.post(&the_box.admin, "/api/v1/reservations", booked);
    assert_eq!(made.await.status, 201);
    let end = Instant::now() + Duration::from_secs(20);
    while the_box.get(&the_box.mina, path).await.json()["state"] != "warned" {
        assert!(Instant::now() < end, "no device was chosen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let body = json!({
        "name": "waits", "kind": "batch", "command": ["sleep"],
        "resources": {"cpu": 0.1, "memory": 67_108_864, "gpu": 1},
    });
    the_box.launch(&the_box.mina, body).await;
    let why = the_box
        .get(&the_box.mina, "/api/v1/sessions/waits/why")
        .await;
    let why = why.json();
    assert_eq!(why["blockers"][0]["code"], "reservation.room", "{why}");
    assert!(!why.to_string().contains("lecture"), "{why}");
    let cancel = TheBox::request(&the_box.admin, "DELETE", path).body(Body::empty());
    let cancelled = the_box.send(cancel.expect("a request")).await;
    assert_eq!(cancelled.status, 204);
    the_box.until(&the_box.mina, "waits", "running").await;
}

/// So many hours of one GPU for the project vision, in so many days.
fn asked(the_box: &TheBox, name: &str, days: u64, hours: u64) -> Value {
    let from = the_box.server.clock().now().plus_seconds(days * 86_400);
    json!({
        "name": name, "project": "vision", "resources": {"gpu": 1},
        "from": from.to_string(), "to": from.plus_seconds(hours * 3_600).to_string(),
    })
}

/// Kinds of the notices of a caller, newest first.
async fn told(the_box: &TheBox, who: &As) -> Vec<String> {
    let notices = the_box.get(who, "/api/v1/me/notices").await.json();
    let all = notices["items"].as_array().expect("a list").iter();
    all.map(|notice| notice["kind"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lead_books_within_the_quota_and_an_administrator_decides_on_more() {
    let devices = node::gpu::simulated::devices("H100:2").expect("a good text");
    let the_box = TheBox::with(&[], devices).await;
    let (admin, mina, jae) = (&the_box.admin, &the_box.mina, &the_box.jae);
    for (project, lead) in [("vision", "mina"), ("labs", "jae")] {
        let made = the_box.post(admin, "/api/v1/projects", json!({"name": project}));
        assert_eq!(made.await.status, 201);
        let path = format!("/api/v1/projects/{project}/members/{lead}");
        let body = json!({"role": "lead"}).to_string();
        let member = the_box.with_body(admin, "PUT", &path, body).await;
        assert_eq!(member.status, 200, "{}", member.short());
    }
    let quota = "/api/v1/projects/vision/reservation-quota";
    let two = json!({"gpu_hours": "2"}).to_string();
    let denied = the_box.with_body(mina, "PUT", quota, two.clone()).await;
    assert_eq!(denied.short(), "403 role.administrator-needed");
    let hidden = the_box.with_body(jae, "PUT", quota, two.clone()).await;
    assert_eq!(hidden.short(), "404 project.not-found");
    let set = the_box.with_body(admin, "PUT", quota, two).await;
    assert_eq!(set.status, 200, "{}", set.short());
    assert_eq!(set.json()["left"], "2.00");
    assert_eq!(set.json()["notice_hours"], 24, "what ships");

    let all = "/api/v1/reservations";
    let within = the_box.post(mina, all, asked(&the_box, "lab", 2, 1)).await;
    assert_eq!(within.status, 201, "{}", within.short());
    assert_eq!(within.json()["state"], "booked");
    assert_eq!(the_box.get(mina, quota).await.json()["left"], "1.00");
    let beyond = the_box.post(mina, all, asked(&the_box, "exam", 3, 2)).await;
    assert_eq!(beyond.status, 201, "{}", beyond.short());
    assert_eq!(beyond.json()["state"], "asked");
    assert_eq!(told(&the_box, admin).await, ["reservation-asked"]);

    // The lead of another project learns of neither.
    let hidden = the_box.post(jae, all, asked(&the_box, "other", 3, 1)).await;
    assert_eq!(hidden.short(), "404 project.not-found");
    let exam = beyond.json()["id"].as_str().unwrap_or_default().to_owned();
    let approve = format!("{all}/{exam}/approve");
    let approve = approve.as_str();
    let by_name = "/api/v1/reservations/exam/approve";
    let withdraw = "/api/v1/reservations/exam/withdraw";
    for path in [approve, by_name, withdraw] {
        let hidden = the_box.post(jae, path, json!({})).await;
        assert_eq!(hidden.short(), "404 reservation.not-found", "{path}");
    }
    let denied = the_box.post(mina, approve, json!({})).await;
    assert_eq!(denied.short(), "403 role.administrator-needed");
    let named = the_box.post(admin, by_name, json!({})).await;
    assert_eq!(named.short(), "409 reservation.by-id");

    // It blocks no session, and is granted where it is free by then.
    let mut fans = asked(&the_box, "fans", 3, 2);
    fans["project"] = Value::Null;
    fans["maintenance"] = true.into();
    fans["resources"] = json!({"gpu": 2});
    let taken = the_box.post(admin, all, fans).await;
    assert_eq!(taken.status, 201, "{}", taken.short());
    let conflict = the_box.post(admin, approve, json!({})).await;
    assert_eq!(conflict.short(), "409 reservation.conflict");
    let cancel = TheBox::request(admin, "DELETE", "/api/v1/reservations/fans").body(Body::empty());
    let cancelled = the_box.send(cancel.expect("a request")).await;
    assert_eq!(cancelled.status, 204);
    let granted = the_box.post(admin, approve, json!({"reason": "Good luck."}));
    let granted = granted.await;
    assert_eq!(granted.status, 200, "{}", granted.short());
    assert_eq!(granted.json()["state"], "booked");
    assert_eq!(told(&the_box, mina).await, ["reservation-approved"]);
    assert_eq!(told(&the_box, admin).await, Vec::<String>::new());

    // What is withdrawn is decided; one whose begin comes first expires.
    let third = the_box
        .post(mina, all, asked(&the_box, "third", 4, 1))
        .await;
    assert_eq!(third.json()["state"], "asked");
    let third = "/api/v1/reservations/third";
    let withdraw = format!("{third}/withdraw");
    let theirs = the_box.post(admin, &withdraw, json!({})).await;
    assert_eq!(theirs.short(), "403 reservation.not-asker");
    let gone = the_box.post(mina, &withdraw, json!({})).await;
    assert_eq!(gone.json()["state"], "cancelled");
    let refuse = format!("{third}/refuse");
    let late = the_box.post(admin, &refuse, json!({"reason": "Full."}));
    assert_eq!(late.await.short(), "409 reservation.decided");
    let mut soon = asked(&the_box, "soon", 0, 1);
    let begins = the_box.server.clock().now().plus_seconds(3);
    soon["from"] = begins.to_string().into();
    let soon = the_box.post(mina, all, soon).await;
    assert_eq!(soon.status, 201, "{}", soon.short());
    let end = Instant::now() + Duration::from_secs(30);
    while the_box.get(mina, "/api/v1/reservations/soon").await.json()["state"] != "expired" {
        assert!(Instant::now() < end, "it waits still");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(told(&the_box, mina).await[0], "reservation-expired");
}

/// A machine says something new where it is told something new: after the clock was moved, one of these ends.
async fn nudge(the_box: &TheBox, number: u32) {
    let path = format!("/api/v1/sessions/nudge-{number}/kill");
    let killed = the_box.post(&the_box.jae, &path, json!({})).await;
    assert!(killed.status.is_success(), "{}", killed.short());
    let name = format!("nudge-{number}");
    the_box.until(&the_box.jae, &name, "ended").await;
}

/// How many of jae's twelve sessions are in that state.
async fn in_state(the_box: &TheBox, state: &str) -> usize {
    let mut count = 0;
    for number in 0..12 {
        let path = format!("/api/v1/sessions/work-{number}");
        let session = the_box.get(&the_box.jae, &path).await.json();
        count += usize::from(session["state"] == state);
    }
    count
}

async fn until_all_are(the_box: &TheBox, state: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let count = in_state(the_box, state).await;
        if count == 12 {
            return;
        }
        assert!(Instant::now() < end, "{count} of 12 are {state}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Proves too: `reserved_devices_are_their_members_alone`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j7_a_lead_books_twelve_devices_whose_sessions_are_warned_and_drained() {
    let devices = node::gpu::simulated::devices("H100:12").expect("a good text");
    let clock = Clock::set_by_hand(Clock::system().now());
    let the_box = TheBox::by_clock(clock.clone(), &[], devices).await;
    let (admin, mina, jae) = (&the_box.admin, &the_box.mina, &the_box.jae);
    let made = the_box.post(admin, "/api/v1/projects", json!({"name": "vision"}));
    assert_eq!(made.await.status, 201);
    let lead = json!({"role": "lead"}).to_string();
    let path = "/api/v1/projects/vision/members/mina";
    assert_eq!(
        the_box.with_body(admin, "PUT", path, lead).await.status,
        200
    );
    let quota = json!({"gpu_hours": "12"}).to_string();
    let path = "/api/v1/projects/vision/reservation-quota";
    let set = the_box.with_body(admin, "PUT", path, quota).await;
    assert_eq!(set.status, 200, "{}", set.short());

    // A day and an hour ahead: a lead books that without asking.
    let began = clock.now();
    let from = began.plus_seconds(25 * 3_600);
    let before = |seconds: i64| Timestamp::from_millis(from.as_millis() - seconds * 1_000);
    let lecture = json!({
        "name": "lecture", "project": "vision", "resources": {"gpu": 12},
        "from": from.to_string(), "to": from.plus_seconds(3_600).to_string(), "time_zone": "UTC",
    });
    let booked = the_box.post(mina, "/api/v1/reservations", lecture).await;
    assert_eq!(booked.status, 201, "{}", booked.short());
    let booked = booked.json();
    assert_eq!(booked["state"], "booked", "a lead is no administrator");

    let resources = |gpu: u32| json!({"cpu": 0.1, "memory": 67_108_864, "gpu": gpu});
    let batch = |name: &str, resources: Value| json!({"name": name, "kind": "batch", "command": ["sleep"], "resources": resources});
    for number in 0..12 {
        let body = batch(&format!("work-{number}"), resources(1));
        the_box.launch(jae, body).await;
    }
    for number in 0..4 {
        let small = json!({"cpu": 0.1, "memory": 67_108_864});
        let body = batch(&format!("nudge-{number}"), small);
        the_box.launch(jae, body).await;
        let name = format!("nudge-{number}");
        the_box.until(jae, &name, "running").await;
    }
    until_all_are(&the_box, "running").await;

    let state = async || {
        let path = "/api/v1/reservations/lecture";
        let one = the_box.get(mina, path).await.json();
        one["state"].as_str().unwrap_or_default().to_owned()
    };
    clock.set(before(901));
    nudge(&the_box, 0).await;
    assert_eq!(state().await, "booked", "15 minutes and a second before");
    clock.set(before(900));
    nudge(&the_box, 1).await;
    let end = Instant::now() + Duration::from_secs(20);
    while state().await != "warned" {
        assert!(Instant::now() < end, "no owner was warned");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let kinds = told(&the_box, jae).await;
    let warned = kinds.iter().filter(|kind| kind.contains("reservation"));
    assert_eq!(warned.count(), 12, "{kinds:?}");
    clock.set(before(1));
    nudge(&the_box, 2).await;
    assert_eq!(in_state(&the_box, "running").await, 12, "a second before");

    clock.set(from);
    nudge(&the_box, 3).await;
    until_all_are(&the_box, "pending").await;
    assert_eq!(state().await, "active");
    for number in [0, 11] {
        let path = format!("/api/v1/sessions/work-{number}/why");
        let why = the_box.get(jae, &path).await.json();
        let blockers = why["blockers"].as_array().expect("a list");
        let is_reserved = |one: &serde_json::Value| one["code"] == "reservation.room";
        assert!(blockers.iter().any(is_reserved), "{why}");
        assert!(!why.to_string().contains("lecture"), "{why}");
    }
    // The class has all of them, and what it gives back is the strangers' again.
    let mut class = batch("class", resources(12));
    class["project"] = "vision".into();
    the_box.launch(mina, class).await;
    the_box.until(mina, "class", "running").await;
    assert_eq!(in_state(&the_box, "pending").await, 12);
    let killed = the_box.post(mina, "/api/v1/sessions/class/kill", json!({}));
    assert!(killed.await.status.is_success());
    the_box.until(mina, "class", "ended").await;
    let cancel = TheBox::request(mina, "DELETE", "/api/v1/reservations/lecture");
    let cancelled = the_box
        .send(cancel.body(Body::empty()).expect("a request"))
        .await;
    assert_eq!(cancelled.status, 204);
    until_all_are(&the_box, "running").await;
}
