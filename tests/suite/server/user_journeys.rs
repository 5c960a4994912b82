//! Journeys of people through a whole server, walked as one each: J6, waiting is explained, and J15, an auditor's day. By clocks
//! of the tests, so that what was told can be held to what came. J7 is in `reservations`, J3 in `journeys`.

use axum::body::Body;
use base::observe::Clock;
use rules::permissions::Permission;
use rules::units::Timestamp;
use serde_json::{Value, json};

use super::audit::{authority, verified};
use super::the_box::{As, PASSWORD, TheBox};

fn batch(name: &str, gpu: u32, seconds: u64) -> Value {
    json!({
        "name": name, "kind": "batch", "command": ["sleep"], "max_runtime_seconds": seconds,
        "resources": {"cpu": 0.1, "memory": 67_108_864, "gpu": gpu},
    })
}

/// Why a session is where it is, as its owner reads it.
async fn why(the_box: &TheBox, who: &As, name: &str) -> Value {
    let path = format!("/api/v1/sessions/{name}/why");
    let answer = the_box.get(who, &path).await;
    assert_eq!(answer.status, 200, "{}", answer.short());
    answer.json()
}

/// Ends a session now: its machine says something new, also after the clock was moved.
async fn kill(the_box: &TheBox, who: &As, name: &str) {
    let path = format!("/api/v1/sessions/{name}/kill");
    let killed = the_box.post(who, &path, json!({})).await;
    assert!(killed.status.is_success(), "{}", killed.short());
    the_box.until(who, name, "ended").await;
}

/// J6: in a full box who waits reads what is missing, their place in the queue and when they start at the latest, has a page
/// that says it, and starts by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j6_who_waits_reads_what_is_missing_their_place_and_a_time_that_is_kept() {
    let devices = node::gpu::simulated::devices("H100:2").expect("a good text");
    let clock = Clock::set_by_hand(Clock::system().now());
    let the_box = TheBox::by_clock(clock.clone(), &[], devices).await;
    let (mina, jae) = (&the_box.mina, &the_box.jae);
    let began = clock.now();
    the_box.launch(mina, batch("long", 1, 3_600)).await;
    the_box.until(mina, "long", "running").await;
    the_box.launch(mina, batch("short", 1, 600)).await;
    the_box.until(mina, "short", "running").await;
    the_box.launch(jae, batch("first", 1, 300)).await;
    // Of two launches in one moment either may stand before the other.
    clock.set(began.plus_seconds(1));
    the_box.launch(jae, batch("second", 2, 300)).await;

    let own = browser(&the_box, "jae").await;
    // One GPU is free when the short one is over, both when the long one is.
    for (name, position, seconds) in [("first", 1, 600), ("second", 2, 3_600)] {
        let told = why(&the_box, jae, name).await;
        assert_eq!(told["verdict"], "wait", "{told}");
        assert_eq!(told["queue_position"], position, "{told}");
        let text = told["blockers"][0]["text"].as_str();
        assert!(text.is_some_and(|text| !text.is_empty()), "{told}");
        let blockers = told["blockers"].to_string();
        assert!(
            blockers.contains("gpu") || blockers.contains("GPU"),
            "{told}"
        );
        let at = told["eta"]["at"].as_str().expect("a time is told");
        let at = Timestamp::parse(at).expect("a time");
        let after = at.seconds_since(began);
        // The sessions that hold them began in the same moment.
        assert!(
            (seconds..seconds + 60).contains(&after),
            "{name} after {after} s: {told}"
        );
        // Of whose sessions it waits for it reads no name.
        assert!(!told.to_string().contains("mina"), "{told}");
        let session = the_box.get(jae, &format!("/api/v1/sessions/{name}")).await;
        let id = session.json()["id"].as_str().expect("an id").to_owned();
        let page = the_box.get(&own, &format!("/queue/{id}")).await;
        let page = String::from_utf8(page.bytes).expect("text");
        let sentence = told["sentence"].as_str().expect("a sentence");
        assert!(!sentence.is_empty(), "{told}");
        assert!(page.contains(name), "the page is of another one");
    }

    // The short one ends at its limit, and the first starts then, as it was told.
    clock.set(began.plus_seconds(600));
    kill(&the_box, mina, "short").await;
    the_box.until(mina, "short", "ended").await;
    the_box.until(jae, "first", "running").await;
    let told = why(&the_box, jae, "second").await;
    assert_eq!(told["queue_position"], 1, "{told}");
}

async fn browser(the_box: &TheBox, name: &str) -> As {
    let here = std::net::IpAddr::from([192, 0, 2, 9]);
    let signed_in = server::access::sign_in(&the_box.server, name, PASSWORD, here).await;
    As::Cookie(signed_in.expect("a sign-in").cookie)
}

/// Names a session as only this user does in this month.
async fn acted(the_box: &TheBox, who: &As, name: &str) -> String {
    let body = json!({"name": name, "kind": "batch", "command": ["sleep"]});
    let session = the_box.launch(who, body).await;
    session["id"].as_str().expect("an id").to_owned()
}

/// J15: "show everything that jae did in March; prove that no row was edited": an auditor of the site exports a user's month
/// without an administrator, it holds their acts of that month alone, verifies without the server, and no edit passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j15_an_auditor_shows_a_users_march_and_proves_that_no_row_was_edited() {
    let at = |text: &str| Timestamp::parse(text).expect("a time");
    let clock = Clock::set_by_hand(at("2027-02-20T10:00:00Z"));
    let the_box = TheBox::by_clock(clock.clone(), &[], Vec::new()).await;
    let (mina, jae) = (&the_box.mina, &the_box.jae);
    let body = json!({"name": "audra", "password": PASSWORD});
    let made = the_box.post(&the_box.admin, "/api/v1/users", body).await;
    assert_eq!(made.status, 201, "{}", made.short());
    let grant = TheBox::request(&the_box.admin, "PUT", "/api/v1/users/audra/grants")
        .header("content-type", "application/json")
        .header("if-match", "*")
        .body(Body::from(
            json!({"role": "auditor", "domain": null}).to_string(),
        ));
    let set = the_box.send(grant.expect("a request")).await;
    assert_eq!(set.status, 200, "{}", set.short());
    let auditor = the_box.token("audra", &Permission::ALL, None).await;

    let february = acted(&the_box, jae, "in-february").await;
    clock.set(at("2027-03-01T00:00:01Z"));
    let march = acted(&the_box, jae, "in-march").await;
    let other = acted(&the_box, mina, "of-mina").await;
    clock.set(at("2027-03-31T23:59:59Z"));
    let late = acted(&the_box, jae, "late-in-march").await;
    clock.set(at("2027-04-02T10:00:00Z"));
    let april = acted(&the_box, jae, "in-april").await;

    let denied = the_box.get(jae, "/api/v1/audit/export?user=mina").await;
    assert_eq!(denied.status.as_u16(), 403, "{}", denied.short());
    let path =
        "/api/v1/audit/export?user=jae&since=2027-03-01T00:00:00Z&until=2027-04-01T00:00:00Z";
    let answer = the_box.get(&auditor, path).await;
    assert_eq!(answer.status, 200, "{}", answer.short());
    let text = String::from_utf8(answer.bytes).expect("text");
    for id in [&march, &late] {
        assert!(text.contains(id.as_str()), "an act is not there:\n{text}");
    }
    for id in [&february, &other, &april] {
        assert!(
            !text.contains(id.as_str()),
            "{id} is of no jae or no March:\n{text}"
        );
    }
    let told: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("\"statement\""))
        .collect();
    assert!(told.len() >= 2, "{text}");
    for line in &told {
        assert!(line.contains("\\\"actor\\\":\\\"jae\\\""), "{line}");
    }
    assert!(
        text.contains("\"digest\""),
        "what mina did stands as a digest:\n{text}"
    );

    let key = authority(&the_box).await;
    let folder = the_box.folder.path();
    let (code, said) = verified(folder, &text, &key);
    assert_eq!(code, 0, "{said}");
    let edits = [
        text.replacen(&march, &other, 1),
        text.replacen(&format!("{}\n", told[0]), "", 1),
        text.replacen("session.accepted", "session.stopping", 1),
    ];
    for edited in edits {
        assert_ne!(edited, text, "nothing was edited");
        let (code, said) = verified(folder, &edited, &key);
        assert_eq!(code, 1, "{said}");
    }
}
