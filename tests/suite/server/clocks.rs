//! A clock two years ahead, and then two years behind, on a whole server: what ended by it stays over, and nothing that is to
//! come comes twice. Backups, the ledger and budgets have tests of their own.

use std::time::{Duration, Instant};

use base::observe::Clock;
use rules::units::Timestamp;
use serde_json::{Value, json};

use super::the_box::TheBox;

const TWO_YEARS: u64 = 2 * 366 * 86_400;
/// A pass comes within seconds of a clock that was moved; only a hang reaches this.
const TIMEOUT: Duration = Duration::from_secs(30);

async fn made(the_box: &TheBox, path: &str, body: Value) -> String {
    let answer = the_box.post(&the_box.admin, path, body).await;
    assert!(answer.status.is_success(), "{path}: {}", answer.short());
    answer.json()["id"].as_str().unwrap_or_default().to_owned()
}

/// State of a reservation and of a course, and how many allowances hold.
async fn seen(the_box: &TheBox, reservation: &str, course: &str) -> (String, String, usize) {
    let state = async |path: String| {
        let one = the_box.get(&the_box.admin, &path).await.json();
        one["state"].as_str().unwrap_or_default().to_owned()
    };
    let reserved = state(format!("/api/v1/reservations/{reservation}")).await;
    let taught = state(format!("/api/v1/courses/{course}")).await;
    let allowed = the_box.get(&the_box.admin, "/api/v1/allowances").await;
    let allowed = allowed.json()["items"].as_array().map_or(0, Vec::len);
    (reserved, taught, allowed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_clock_two_years_ahead_ended_no_clock_two_years_behind_brings_back() {
    let clock = Clock::set_by_hand(Clock::system().now());
    let the_box = TheBox::by_clock(clock.clone(), &[], Vec::new()).await;
    let began = clock.now();
    let ahead = |hours: u64| began.plus_seconds(hours * 3_600).to_string();
    made(&the_box, "/api/v1/projects", json!({"name": "vision"})).await;
    let reserved = json!({
        "name": "lecture", "maintenance": true, "resources": {"cpu": 1},
        "from": ahead(25), "to": ahead(26), "time_zone": "UTC",
    });
    let reservation = made(&the_box, "/api/v1/reservations", reserved).await;
    let course = json!({
        "name": "deep", "project": "vision", "from": ahead(48), "to": ahead(480), "time_zone": "UTC",
    });
    let course = made(&the_box, "/api/v1/courses", course).await;
    let open = TheBox::request(&the_box.admin, "PATCH", "/api/v1/courses/deep")
        .header("content-type", "application/merge-patch+json")
        .header("if-match", "*")
        .body(axum::body::Body::from(json!({"state": "open"}).to_string()));
    let opened = the_box.send(open.expect("a request")).await;
    assert_eq!(opened.status, 200, "{}", opened.short());
    let raised = json!({
        "level": "user", "subject": "jae", "limits": {"waiting": 2000}, "until": ahead(1),
    });
    made(&the_box, "/api/v1/allowances", raised).await;
    made(&the_box, "/api/v1/projects", json!({"name": "lab"})).await;
    for (user, end) in [("mina", Some(ahead(1))), ("jae", None)] {
        let path = format!("/api/v1/projects/lab/members/{user}");
        let role = json!({"role": "member", "expires_at": end}).to_string();
        let set = the_box.with_body(&the_box.admin, "PUT", &path, role).await;
        assert_eq!(set.status, 200, "{user}: {}", set.short());
    }
    // A role with an end, and one without.
    let in_lab = async || {
        let lab = "/api/v1/projects/lab";
        let mina = the_box.get(&the_box.mina, lab).await;
        (mina.short(), the_box.get(&the_box.jae, lab).await.short())
    };
    assert_eq!(in_lab().await, ("200".to_owned(), "200".to_owned()));
    let first = seen(&the_box, &reservation, &course).await;
    assert_eq!(first, ("booked".to_owned(), "open".to_owned(), 1));

    clock.set(began.plus_seconds(TWO_YEARS));
    let end = Instant::now() + TIMEOUT;
    let over = loop {
        let now = seen(&the_box, &reservation, &course).await;
        let is_over = ["closed", "archived"].contains(&now.1.as_str());
        if now.0 == "over" && is_over && now.2 == 0 {
            break now;
        }
        assert!(Instant::now() < end, "two years later: {now:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let gone = "404 project.not-found".to_owned();
    assert_eq!(in_lab().await, (gone, "200".to_owned()));

    let behind = began.as_millis() - i64::try_from(TWO_YEARS).expect("seconds") * 1_000;
    clock.set(Timestamp::from_millis(behind));
    // A launch is accepted, and starts a pass by the clock that was set back.
    let body = json!({"name": "later", "kind": "batch", "command": ["sleep"]});
    the_box.launch(&the_box.jae, body).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (reserved, taught, allowed) = seen(&the_box, &reservation, &course).await;
    assert_eq!((&reserved, allowed), (&over.0, 0));
    assert!(
        ["closed", "archived"].contains(&taught.as_str()),
        "{taught}"
    );
    let (_, without_end) = in_lab().await;
    assert_eq!(without_end, "200");
    let users = the_box.get(&the_box.admin, "/api/v1/users").await;
    assert_eq!(users.status, 200, "{}", users.short());
}
