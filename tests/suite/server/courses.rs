//! A class over REST on a whole server with simulated devices: a roster makes the accounts, a teacher starts a session for
//! each of them in one request, and the end of the course stops what is theirs.

use std::time::{Duration, Instant};

use axum::body::Body;
use serde_json::{Value, json};

use super::roles::days_ahead;
use super::the_box::{As, TheBox};

const COURSE: &str = "/api/v1/courses/deep";
const STUDENTS: usize = 19;

/// Waits until each member of the course stands so, and gives them.
async fn all_stand(the_box: &TheBox, teacher: &As, state: &str) -> Vec<Value> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let path = format!("{COURSE}/members");
        let members = the_box.get(teacher, &path).await.json();
        let members = members["items"].as_array().expect("a list").clone();
        if members.iter().all(|one| one["state"] == state) {
            return members;
        }
        assert!(Instant::now() < end, "not all are {state}: {members:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_class_starts_in_one_request_and_ends_with_its_course() {
    let devices = node::gpu::simulated::devices("H100:2").expect("a good text");
    let the_box = TheBox::with(&[], devices).await;
    let (admin, teacher, jae) = (&the_box.admin, &the_box.mina, &the_box.jae);
    let made = the_box.post(admin, "/api/v1/projects", json!({"name": "vision"}));
    assert_eq!(made.await.status, 201);
    for (user, role) in [("mina", "lead"), ("jae", "member")] {
        let path = format!("/api/v1/projects/vision/members/{user}");
        let body = json!({"role": role}).to_string();
        let member = the_box.with_body(admin, "PUT", &path, body).await;
        assert_eq!(member.status, 200, "{}", member.short());
    }
    let rows: Vec<String> = (1..=STUDENTS)
        .map(|number| format!("s{number:02},vision\n"))
        .collect();
    let roster = async |query: &str| {
        let path = format!("/api/v1/rosters?{query}");
        let request = TheBox::request(admin, "POST", &path)
            .header("content-type", "text/csv")
            .body(Body::from(format!("name,project\n{}", rows.concat())));
        let answer = the_box.send(request.expect("a request")).await;
        assert!(answer.status.is_success(), "{}", answer.short());
        answer.json()
    };
    let plan = roster("dry_run=true").await;
    let digest = plan["digest"].as_str().expect("a digest");
    roster(&format!("digest={digest}")).await;

    let tiny = json!({
        "name": "tiny", "project": "vision",
        "resources": {"cpu": 0.05, "memory": 67_108_864, "gpu": 0.1},
    });
    let tiny = the_box.post(teacher, "/api/v1/presets", tiny).await;
    assert_eq!(tiny.status, 201, "{}", tiny.short());
    let course = json!({
        "name": "deep", "project": "vision", "preset": "tiny", "max_runtime_seconds": 7_200,
        "from": days_ahead(0), "to": days_ahead(90),
    });
    let course = the_box.post(teacher, "/api/v1/courses", course).await;
    assert_eq!(course.status, 201, "{}", course.short());
    let hidden = the_box.get(jae, COURSE).await;
    assert_eq!(hidden.short(), "404 course.not-found", "a draft");
    let state = async |state: &str| {
        let body = json!({"state": state}).to_string();
        let request = TheBox::request(teacher, "PATCH", COURSE)
            .header("content-type", "application/merge-patch+json")
            .header("if-match", "*")
            .body(Body::from(body));
        the_box.send(request.expect("a request")).await
    };
    let opened = state("open").await;
    assert_eq!(opened.json()["state"], "running", "{}", opened.short());
    assert_eq!(the_box.get(jae, COURSE).await.status, 200);

    let start = format!("{COURSE}/start");
    let denied = the_box.post(jae, &start, json!({})).await;
    assert_eq!(denied.short(), "403 role.administrator-needed");
    let told = the_box.post(teacher, &start, json!({"dry_run": true}));
    assert_eq!(told.await.json()["done"], STUDENTS + 1);
    let began = Instant::now();
    let started = the_box.post(teacher, &start, json!({})).await;
    assert_eq!(started.status, 200, "{}", started.short());
    let started = started.json();
    assert_eq!(started["done"], STUDENTS + 1, "{started}");
    assert_eq!(started["refused"], json!([]));
    let members = all_stand(&the_box, teacher, "running").await;
    assert_eq!(members.len(), STUDENTS + 1);
    assert!(began.elapsed() < Duration::from_secs(60));
    let own = the_box.get(jae, "/api/v1/sessions").await.json();
    let own = own["items"].as_array().expect("a list").clone();
    assert_eq!(own.len(), 1, "a student sees their own session alone");
    assert_eq!(own[0]["owner"]["name"], "jae");
    assert_eq!(own[0]["max_runtime_seconds"], 7_200);

    let file = TheBox::request(teacher, "GET", &format!("{COURSE}/attendance"))
        .header("accept", "text/csv")
        .body(Body::empty());
    let file = the_box.send(file.expect("a request")).await;
    let text = String::from_utf8_lossy(&file.bytes).into_owned();
    assert!(
        text.starts_with("user,sessions,first,last,seconds\r\n"),
        "{text}"
    );
    assert_eq!(text.lines().count(), STUDENTS + 2, "{text}");
    assert!(text.contains("\r\njae,1,"), "{text}");

    let closed = state("closed").await;
    assert_eq!(closed.json()["state"], "closed", "{}", closed.short());
    all_stand(&the_box, teacher, "ended").await;
    let launch = json!({"project": "vision", "kind": "batch", "command": ["sleep"]});
    let late = the_box.post(jae, "/api/v1/sessions", launch.clone()).await;
    assert_eq!(late.short(), "409 course.term-over");
    let own = the_box.post(teacher, "/api/v1/sessions", launch).await;
    assert_eq!(own.status, 201, "the teacher's go on: {}", own.short());
}
