//! A reservation over REST on a whole server with simulated devices: a stranger waits for its end, and has the device
//! once it is cancelled.

use std::time::{Duration, Instant};

use axum::body::Body;
use serde_json::json;

use super::roles::seconds_ahead;
use super::the_box::TheBox;

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
