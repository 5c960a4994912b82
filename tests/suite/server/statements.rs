//! Closing a month over REST and on the command line: the statement adds up in JSON and CSV, each reads their own, and a
//! saved one verifies without the server.

use std::path::Path;
use std::process::Command;

use base::observe::Clock;
use serde_json::{Value, json};
use server::actions::usage::UsageMonth;

use super::the_box::{Answer, As, PASSWORD, TheBox};

/// What the binary says: exit code, output, error.
async fn say(folder: &Path, line: &str) -> (Option<i32>, String, String) {
    let (folder, line) = (folder.to_owned(), line.to_owned());
    tokio::task::spawn_blocking(move || {
        let output = Command::new(env!("CARGO_BIN_EXE_fardel"))
            .args(line.split(' '))
            .current_dir(&folder)
            .env_clear()
            .env("FARDEL_RUN", &folder)
            .env("FARDEL_CONFIG", "/nonexistent")
            .env("HOME", &folder)
            .env("LANG", "C")
            .output()
            .expect("the binary of this build starts");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    })
    .await
    .expect("the thread ends")
}

/// The administrator's, signed in now.
async fn browser(the_box: &TheBox) -> As {
    let here = std::net::IpAddr::from([192, 0, 2, 9]);
    let signed_in = server::access::sign_in(&the_box.server, "ada", PASSWORD, here).await;
    As::Cookie(signed_in.expect("a sign-in").cookie)
}

fn text_of(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.bytes).into_owned()
}

/// A session of this user that holds its place for an hour.
async fn an_hour(the_box: &TheBox, who: &As) {
    let body = json!({"command": ["sleep"], "kind": "batch", "resources": {"cpu": 0.5}});
    let session = the_box.launch(who, body).await;
    let id = session["id"].as_str().expect("an id");
    the_box.until(who, id, "running").await;
    let clock = the_box.server.clock();
    clock.set(clock.now().plus_seconds(3_600));
    let _ = the_box
        .post(who, &format!("/api/v1/sessions/{id}/kill"), json!({}))
        .await;
    the_box.until(who, id, "ended").await;
}

async fn statement(the_box: &TheBox, who: &As) -> Value {
    let answer = the_box.get(who, "/api/v1/statements").await;
    assert_eq!(answer.status, 200, "{}", answer.short());
    answer.json()
}

async fn as_csv(the_box: &TheBox, who: &As) -> Vec<Vec<String>> {
    let request = TheBox::request(who, "GET", "/api/v1/statements")
        .header("accept", "text/csv")
        .body(axum::body::Body::empty())
        .expect("a request");
    let answer: Answer = the_box.send(request).await;
    assert_eq!(answer.status, 200, "{}", answer.short());
    let text = String::from_utf8(answer.bytes).expect("text");
    text.lines()
        .map(|line| line.split(',').map(str::to_owned).collect())
        .collect()
}

/// Columns of units and milliseconds add up to the last line, and none is lost.
fn adds_up(lines: &[Vec<String>]) {
    let (head, rest) = lines.split_first().expect("a head");
    let (total, items) = rest.split_last().expect("a total");
    assert_eq!(total[0], "total");
    let mut compared = 0;
    for (at, name) in head.iter().enumerate() {
        let is_exact = ["_units", "_milliseconds", "_micros"]
            .iter()
            .any(|end| name.ends_with(end));
        if is_exact || name == "starts" {
            let number = |line: &Vec<String>| line[at].parse::<u64>().expect("a whole number");
            let sum: u64 = items.iter().map(number).sum();
            assert_eq!(sum, number(total), "{name}");
            compared += 1;
        }
    }
    assert_eq!(compared, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_month_is_closed_and_its_statement_adds_up_and_verifies_without_the_server() {
    // The hours that pass here end in the month in which they begin.
    let now = Clock::system().now();
    let day: u64 = now.to_string()[8..10].parse().expect("a day");
    let clock = Clock::set_by_hand(match day > 26 {
        true => now.plus_seconds(7 * 86_400),
        false => now,
    });
    let the_box = TheBox::by_clock(clock.clone(), &[], Vec::new()).await;
    the_box.serve().await;
    let folder = the_box.folder.path().to_owned();
    let began = clock.now();
    let month = began.to_string()[..7].to_owned();
    an_hour(&the_box, &the_box.mina).await;
    an_hour(&the_box, &the_box.jae).await;
    let prices = json!({"currency": "KRW", "gpu_hour": "1500", "core_hour": "20.25"});
    let bare = the_box.with_body(&the_box.admin, "PUT", "/api/v1/prices", prices.to_string());
    assert_eq!(bare.await.short(), "428 if-match.missing");
    let seen = the_box.get(&the_box.admin, "/api/v1/prices").await;
    let put = async |version: &str| {
        let request = TheBox::request(&the_box.admin, "PUT", "/api/v1/prices")
            .header("content-type", "application/json")
            .header("if-match", version)
            .body(axum::body::Body::from(prices.to_string()))
            .expect("a request");
        the_box.send(request).await
    };
    let version = seen.header("etag").to_owned();
    assert_eq!(put(&version).await.status, 200);
    assert_eq!(put(&version).await.short(), "412 price.stale");
    assert_eq!(put("*").await.status, 200);
    let close = format!("month close {month}");
    let (code, _, err) = say(&folder, &close).await;
    assert_ne!(code, Some(0), "{err}");
    assert!(err.contains("month.zone-needed"), "root has no zone: {err}");
    let close = format!("{close} --time-zone UTC");
    let (code, _, err) = say(&folder, &close).await;
    assert_ne!(code, Some(0), "{err}");
    assert!(err.contains("month.not-over"), "{err}");
    clock.set(began.plus_seconds(40 * 86_400));
    let page = text_of(&the_box.get(&browser(&the_box).await, "/statements").await);
    for offered in [
        format!("<option value=\"{month}\" selected>"),
        "name=\"time_zone\"".to_owned(),
    ] {
        assert!(page.contains(&offered), "{offered}: {page}");
    }
    let (code, out, err) = say(&folder, &close).await;
    assert_eq!(
        (code, out),
        (Some(0), format!("{month}  closed\n")),
        "{err}"
    );
    let again = json!({"month": month});
    let again = the_box.post(&the_box.admin, "/api/v1/months", again).await;
    assert_eq!(again.status, 201, "{}", again.short());
    let far = json!({"month": "2999-01"});
    let far = the_box.post(&the_box.admin, "/api/v1/months", far).await;
    assert_eq!(far.short(), "409 month.not-over");

    let all = statement(&the_box, &the_box.admin).await;
    assert_eq!(all["month"], month.as_str());
    assert_eq!(all["currency"], "KRW");
    assert!(
        all["items"]
            .as_array()
            .is_some_and(|items| !items.is_empty())
    );
    assert_eq!(all["total"], all["totals"][2]["used"], "the site's");
    let lines = as_csv(&the_box, &the_box.admin).await;
    adds_up(&lines);
    let own = statement(&the_box, &the_box.mina).await;
    let users: Vec<&Value> = own["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| &item["user"])
        .collect();
    assert!(users.iter().all(|user| **user == "mina"), "{users:?}");
    assert_eq!(own["totals"], json!([]));
    adds_up(&as_csv(&the_box, &the_box.mina).await);

    let (code, out, err) = say(&folder, &format!("statement --month {month} -o json")).await;
    assert_eq!(code, Some(0), "{err}");
    let (good, bent) = (folder.join("good.json"), folder.join("bent.json"));
    std::fs::write(&good, &out).expect("written");
    let other = out.replace("\"user\": \"mina\"", "\"user\": \"mana\"");
    assert_ne!(other, out);
    std::fs::write(&bent, other).expect("written");
    let trust = the_box.get(&As::Nobody, "/api/v1/trust").await.json();
    let pem = trust["pem"].as_str().expect("a certificate");
    std::fs::write(folder.join("key.pem"), pem).expect("written");
    let nowhere = folder.join("nowhere");
    std::fs::create_dir(&nowhere).expect("a directory");
    for (file, expected, words) in [
        (&good, Some(0), "is whole"),
        (&bent, Some(1), "statement.line-changed"),
    ] {
        let line = format!(
            "statement verify {} --key {}",
            file.display(),
            folder.join("key.pem").display()
        );
        let (code, out, err) = say(&nowhere, &line).await;
        assert_eq!(code, expected, "{out}{err}");
        assert!(format!("{out}{err}").contains(words), "{out}{err}");
    }
    let (code, out, err) = say(&folder, "month verify").await;
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains(&month) && out.contains("whole"), "{out}");
    let (code, out, err) = say(&folder, "month ls").await;
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains(&month), "{out}");
    let (code, out, err) = say(&folder, "price ls").await;
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("20.25"), "{out}");

    // A price form that is refused stands below the statement that was chosen, not the newest.
    clock.set(began.plus_seconds(80 * 86_400));
    let newer = UsageMonth::parse(&month).expect("a month").next();
    let newer = json!({"month": newer.to_string()});
    let newer = the_box.post(&the_box.admin, "/api/v1/months", newer).await;
    assert_eq!(newer.status, 201, "{}", newer.short());
    let form = TheBox::request(&browser(&the_box).await, "POST", "/statements/prices")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(axum::body::Body::from(format!(
            "currency=KRW&gpu_hour=much&month={month}"
        )))
        .expect("a request");
    let refused = the_box.send(form).await;
    assert_eq!(refused.status, 422);
    let page = text_of(&refused);
    assert!(
        page.contains(&format!("<span class=\"of\">{month}</span>")),
        "{page}"
    );
}

/// The address of a link of a page, found by what stands in front of it and behind it.
fn link<'p>(page: &'p str, front: &str, behind: &str) -> Option<&'p str> {
    let (before, _) = page.split_once(behind)?;
    let (_, address) = before.rsplit_once(front)?;
    Some(address)
}

/// Journey: the administrator finds who used what last month in three clicks at most, here in two from the overview.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_used_what_last_month_is_within_three_clicks_of_the_overview() {
    // The hours that pass here end in the month in which they begin.
    let now = Clock::system().now();
    let day: u64 = now.to_string()[8..10].parse().expect("a day");
    let clock = Clock::set_by_hand(match day > 26 {
        true => now.plus_seconds(7 * 86_400),
        false => now,
    });
    let the_box = TheBox::by_clock(clock.clone(), &[], Vec::new()).await;
    let month = UsageMonth::parse(&clock.now().to_string()[..7]).expect("a month");
    an_hour(&the_box, &the_box.mina).await;
    an_hour(&the_box, &the_box.jae).await;
    let mut at = clock.now();
    while at.to_string()[..7] == month.to_string() {
        at = at.plus_seconds(86_400);
    }
    clock.set(at);
    let admin = browser(&the_box).await;
    let mut clicks = 0;
    let mut click = async |address: &str| {
        clicks += 1;
        let answer = the_box.get(&admin, &address.replace("&amp;", "&")).await;
        assert_eq!(answer.status, 200, "{address}: {}", answer.short());
        text_of(&answer)
    };
    let overview = text_of(&the_box.get(&admin, "/").await);
    assert!(overview.contains("href=\"/usage\""), "{overview}");
    let usage = click("/usage").await;
    let last = link(&usage, "<a href=\"", "\" rel=\"prev\"").expect("a link back");
    assert!(last.contains(&month.to_string()), "{last}");
    let found = click(last).await;
    for name in ["mina", "jae"] {
        assert!(found.contains(name), "{name}: {found}");
    }
    assert!(clicks <= 3, "{clicks} clicks");
}
