//! Fifty people who click on a large site, beside the same on an empty one: 2,000 users, 200 projects and a million events.
//! Python writes the rows while the server is stopped; they are thrown away with it.

use std::io;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::figures::ratio;
use super::kept;
use super::server::{clicked, seen_pages};
use super::subject::BenchServer;

const ROWS: &str = include_str!("site.py");
const USERS: &str = "2000";
const PROJECTS: &str = "200";
const EVENTS: &str = "1000000";
/// Lists that have many rows there and none on an empty site.
const LISTS: [&str; 6] = [
    "/users",
    "/users?q=user-1777",
    "/projects",
    "/events",
    "/usage?by=member",
    "/palette?q=user-17",
];
/// A server that was just started reads what it keeps.
const SETTLING: Duration = Duration::from_secs(5);

/// The same clicks before and after a site was filled, and clicks on its lists.
pub(super) fn large_site(window: Duration) -> io::Result<Value> {
    let (mut subject, _) = BenchServer::fresh("site")?;
    let cookie = subject.cookie()?;
    let pages = seen_pages(&subject)?;
    std::thread::sleep(SETTLING);
    let empty = clicked(&subject, &cookie, &pages, window)?;
    subject.leave();
    fill(&subject)?;
    subject.start()?;
    std::thread::sleep(SETTLING);
    let large = clicked(&subject, &cookie, &pages, window)?;
    let lists = LISTS.map(str::to_owned);
    let lists = clicked(&subject, &cookie, &lists, window / 2)?;
    let p50 = |figure: &Value, of: &str| figure[of]["p50"].as_f64();
    let times = |of: &str| ratio(p50(&large, of), p50(&empty, of));
    let mut figure = json!({
        "what": format!("clicks on an empty site and on one with {USERS} users, {PROJECTS} projects and {EVENTS} events"),
        "page_p50_ratio": times("pages"),
        "api_p50_ratio": times("api"),
        "empty": empty,
        "large": large,
        "lists_of_the_large_one": lists,
    });
    let rows = kept::rows(&figure);
    figure["rows_to_keep"] = json!(rows);
    Ok(figure)
}

/// Writes the rows of a server that does not run.
fn fill(subject: &BenchServer) -> io::Result<()> {
    let output = Command::new("python3")
        .args(["-c", ROWS])
        .arg(subject.data().join("catalog.sqlite"))
        .args([USERS, PROJECTS, EVENTS])
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("no rows were written: {said}")))
}
