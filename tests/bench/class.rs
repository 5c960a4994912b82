//! A class of a hundred on simulated cards: a roster makes the accounts, one request starts a session for each, and all of
//! them run, in real containers.

use std::io;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::figures::{ms, round};
use super::subject::BenchServer;
use super::wire::Connection;

/// As many cards as can be simulated; eight students share each.
const CARDS: &str = "H100:16";
const CLASS: &str = "/api/v1/courses/deep";
/// Only a class that stands still reaches it.
const CLASS_TIMEOUT: Duration = Duration::from_secs(300);

/// From the request that starts the class until the last of its sessions runs.
pub(super) fn class(students: usize) -> io::Result<Value> {
    let (subject, _) = BenchServer::with("class", &[("FARDEL_SIMULATE_GPUS", CARDS)])?;
    // Sets the server up, as its first administrator does.
    subject.cookie()?;
    let mut local = subject.local()?;
    let project = json!({"name": "deep"});
    local
        .post("/api/v1/projects", &project)?
        .good("make a project")?;
    let took = import(&mut local, students)?;
    let tiny = json!({
        "name": "tiny", "project": "deep",
        "resources": {"cpu": 0.01, "memory": 24 << 20, "shm": 1 << 20, "gpu": 0.12},
    });
    local
        .post("/api/v1/presets", &tiny)?
        .good("make a preset")?;
    let days = |days: i64| {
        (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * days)).to_string()
    };
    let course = json!({
        "name": "deep", "project": "deep", "preset": "tiny", "max_runtime_seconds": 7_200,
        "from": days(0), "to": days(90),
    });
    local
        .post("/api/v1/courses", &course)?
        .good("make a course")?;
    let open = json!({"state": "open"}).to_string();
    let kind = "content-type: application/merge-patch+json\r\nif-match: *\r\n";
    local.send("PATCH", CLASS, kind, &open)?.good("open it")?;
    let began = Instant::now();
    let started = local
        .post(&format!("{CLASS}/start"), &json!({}))?
        .good("start the class")?
        .json();
    let answered = began.elapsed();
    if started["done"] != students {
        return Err(io::Error::other(format!("not all were started: {started}")));
    }
    let running = loop {
        let members = local.get(&format!("{CLASS}/members"))?.good("look")?.json();
        let members = members["items"].as_array().cloned().unwrap_or_default();
        let count = |state: &str| members.iter().filter(|one| one["state"] == state).count();
        if count("running") == students {
            break began.elapsed();
        }
        if count("ended") + count("failed") > 0 || began.elapsed() > CLASS_TIMEOUT {
            return Err(io::Error::other(format!("they do not run: {members:?}")));
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    subject.clear()?;
    Ok(json!({
        "what": format!("{students} sessions of as many users on {CARDS}, simulated, in containers, by one request"),
        "students": students,
        "import_ms": took,
        "answer_ms": round(ms(answered)),
        "all_running_ms": round(ms(running)),
    }))
}

/// Makes the accounts; gives the milliseconds from the plan to the answer.
fn import(local: &mut Connection, students: usize) -> io::Result<f64> {
    let rows: String = (1..=students)
        .map(|number| format!("student-{number:03},deep\n"))
        .collect();
    let roster = format!("name,project\n{rows}");
    let kind = "content-type: text/csv\r\n";
    let plan = local
        .send("POST", "/api/v1/rosters?dry_run=true", kind, &roster)?
        .good("plan the roster")?
        .json();
    let digest = plan["digest"].as_str().unwrap_or_default();
    let began = Instant::now();
    local
        .send(
            "POST",
            &format!("/api/v1/rosters?digest={digest}"),
            kind,
            &roster,
        )?
        .good("apply the roster")?;
    Ok(round(ms(began.elapsed())))
}
