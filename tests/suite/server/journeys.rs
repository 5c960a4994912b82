//! Journeys whose parts are tested elsewhere, walked as one: J3, a class of eighty by CSV. Every run walks it with a few
//! students; the nightly with eighty.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use axum::body::Body;
use rules::permissions::Permission;
use serde_json::{Value, json};

use super::roles::days_ahead;
use super::the_box::{Answer, As, PASSWORD, TheBox};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9));
const COURSE: &str = "/api/v1/courses/deep";
const STUDENTS: usize = 9;
/// How students are called before their numbers.
const STUDENT: &str = "학생";
/// Goals of the journey.
const IMPORTED: Duration = Duration::from_secs(10);
const RUNNING: Duration = Duration::from_secs(60);
/// Students who sign in: each costs a password hash.
const WALKED: usize = 3;

/// How many students the class has: `FARDEL_STUDENTS` says, else few.
fn students() -> usize {
    let text = std::env::var("FARDEL_STUDENTS").ok();
    text.map_or(STUDENTS, |text| text.parse().expect("a whole number"))
}

async fn sent(the_box: &TheBox, query: &str, roster: &[u8]) -> Answer {
    let request = TheBox::request(&the_box.admin, "POST", &format!("/api/v1/rosters?{query}"))
        .header("content-type", "text/csv")
        .body(Body::from(roster.to_vec()));
    the_box.send(request.expect("a request")).await
}

/// The roster as Korean spreadsheets write it, in CP949: of letters that are not ASCII it has those of `STUDENT` alone.
fn in_cp949(roster: &str) -> Vec<u8> {
    let parts: Vec<&[u8]> = roster.split(STUDENT).map(str::as_bytes).collect();
    assert!(parts.iter().all(|part| part.is_ascii()));
    parts.join(&[0xc7, 0xd0, 0xbb, 0xfd][..])
}

/// Plans a roster and gives the plan with its digest.
async fn planned(the_box: &TheBox, roster: &[u8]) -> (Value, String) {
    let answer = sent(the_box, "dry_run=true", roster).await;
    assert_eq!(answer.status, 200, "{}", answer.short());
    let plan = answer.json();
    let digest = plan["digest"].as_str().unwrap_or_default().to_owned();
    (plan, digest)
}

/// Accounts and where they are members, as the administrator reads them.
async fn state(the_box: &TheBox) -> Vec<Value> {
    let mut told = Vec::new();
    for path in ["/api/v1/users", "/api/v1/projects/deep/members"] {
        let answer = the_box.get(&the_box.admin, path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.short());
        told.push(answer.json()["items"].clone());
    }
    told
}

async fn made(the_box: &TheBox, who: &As, path: &str, body: Value) {
    let answer = the_box.post(who, path, body).await;
    assert!(answer.status.is_success(), "{path}: {}", answer.short());
}

/// The student's first sign-in with their slip, and a token with their own password.
async fn begun(the_box: &TheBox, slip: &Value) -> As {
    let name = slip["name"].as_str().expect("a name");
    let password = slip["password"].as_str().expect("a password");
    let server = &the_box.server;
    let signed_in = server::access::sign_in(server, name, password, HERE).await;
    let student = signed_in.expect("the slip is right").caller;
    assert!(student.must_change_password, "{name}");
    server::actions::users::change_password(server, &student, password, PASSWORD)
        .await
        .expect("a password of their own");
    the_box.token(name, &Permission::ALL, None).await
}

/// J3: the preview names each fault, the mended file is applied in ten seconds in either encoding, undone without a trace,
/// and applied again; all students run within a minute of one request, and each sees what is theirs alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j3_a_class_comes_in_by_csv_and_all_of_it_runs() {
    let count = students();
    let devices = node::gpu::simulated::devices("H100:16").expect("a good text");
    let the_box = TheBox::with(&[], devices).await;
    let (admin, teacher) = (&the_box.admin, &the_box.mina);
    made(&the_box, admin, "/api/v1/projects", json!({"name": "deep"})).await;
    let path = "/api/v1/projects/deep/members/mina";
    let lead = json!({"role": "lead"}).to_string();
    let set = the_box.with_body(admin, "PUT", path, lead).await;
    assert_eq!(set.status, 200, "{}", set.short());

    let row =
        |number: usize| format!("s{number:03},{STUDENT} {number},s{number}@school.example,deep");
    let head = "name,full_name,email,project".to_owned();
    let good: Vec<String> = std::iter::once(head).chain((1..=count).map(row)).collect();
    let mut bad = good.clone();
    bad[2] = format!("Student 2,{STUDENT} 2,,deep");
    bad[5] = row(1);
    bad[9] = format!("s009,{STUDENT} 9,no-address,deep");
    let before = state(&the_box).await;
    let bad = bad.join("\n").into_bytes();
    let (plan, digest) = planned(&the_box, &bad).await;
    let faulty: Vec<u64> = plan["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .filter(|row| row["action"] == "fault")
        .filter_map(|row| row["line"].as_u64())
        .collect();
    assert_eq!(faulty, [3, 6, 10]);
    let refused = sent(&the_box, &format!("digest={digest}"), &bad).await;
    assert!(
        refused.short().ends_with("roster.faulty"),
        "{}",
        refused.short()
    );
    assert_eq!(
        state(&the_box).await,
        before,
        "a bad row is never half-applied"
    );

    let roster = good.join("\n");
    let mut slips = Vec::new();
    // In CP949 first, then in UTF-8.
    for (is_kept, roster) in [(false, in_cp949(&roster)), (true, roster.into_bytes())] {
        let (_, digest) = planned(&the_box, &roster).await;
        let began = Instant::now();
        let applied = sent(&the_box, &format!("digest={digest}"), &roster).await;
        assert_eq!(applied.status, 201, "{}", applied.short());
        // A debug build hashes passwords far more slowly than what is served.
        let took = began.elapsed();
        println!("{count} accounts are made in {took:?}");
        assert!(cfg!(debug_assertions) || took <= IMPORTED, "{took:?}");
        let first = the_box.get(admin, "/api/v1/users/s001").await.json();
        assert_eq!(first["full_name"], format!("{STUDENT} 1"));
        let applied = applied.json();
        slips = applied["slips"].as_array().expect("slips").clone();
        assert_eq!(slips.len(), count);
        if !is_kept {
            let id = applied["id"].as_str().expect("an id");
            let undo = format!("/api/v1/rosters/{id}/undo");
            made(&the_box, admin, &undo, json!({})).await;
            assert_eq!(state(&the_box).await, before, "undone without a trace");
        }
    }

    let tiny = json!({
        "name": "tiny", "project": "deep",
        "resources": {"cpu": 0.04, "memory": 67_108_864, "gpu": 0.14},
    });
    made(&the_box, teacher, "/api/v1/presets", tiny).await;
    let course = json!({
        "name": "deep", "project": "deep", "preset": "tiny", "max_runtime_seconds": 7_200,
        "from": days_ahead(0), "to": days_ahead(90),
    });
    made(&the_box, teacher, "/api/v1/courses", course).await;
    let open = TheBox::request(teacher, "PATCH", COURSE)
        .header("content-type", "application/merge-patch+json")
        .header("if-match", "*")
        .body(Body::from(json!({"state": "open"}).to_string()));
    let opened = the_box.send(open.expect("a request")).await;
    assert_eq!(opened.status, 200, "{}", opened.short());
    let began = Instant::now();
    let start = format!("{COURSE}/start");
    let started = the_box.post(teacher, &start, json!({})).await.json();
    assert_eq!(started["done"], count, "{started}");
    loop {
        let members = the_box.get(teacher, &format!("{COURSE}/members")).await;
        let members = members.json();
        let members = members["items"].as_array().expect("a list").clone();
        if members.iter().all(|one| one["state"] == "running") {
            assert_eq!(members.len(), count);
            break;
        }
        assert!(began.elapsed() <= RUNNING, "not all run: {members:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{count} students run after {:?}", began.elapsed());

    let mut seen = BTreeSet::new();
    for (at, slip) in slips.iter().take(WALKED).enumerate() {
        let student = begun(&the_box, slip).await;
        let folder = json!({"name": format!("own-{at}")});
        made(&the_box, &student, "/api/v1/folders", folder).await;
        for (path, field) in [("/api/v1/sessions", "id"), ("/api/v1/folders", "name")] {
            let own = the_box.get(&student, path).await.json();
            let own = own["items"].as_array().expect("a list").clone();
            assert_eq!(own.len(), 1, "{path} of {}: {own:?}", slip["name"]);
            assert!(seen.insert(own[0][field].to_string()), "{path}: {own:?}");
        }
    }
    assert_eq!(seen.len(), 2 * WALKED);
}
