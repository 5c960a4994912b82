//! Streams outlive no right: terminals, ports, logs, journals, pages, waits and uploads end soon after the
//! token, the sign-in, the account or the role that opened them has ended, and say why.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Request;
use futures_util::{SinkExt, StreamExt};
use http_body_util::BodyExt;
use rules::permissions::Permission;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use tower::ServiceExt;

use super::the_box::{As, PASSWORD, TheBox, open_socket};

/// What is promised.
const SOON: Duration = Duration::from_secs(2);

/// An answer whose body goes on.
struct Open {
    body: Body,
    heard: String,
}

impl Open {
    async fn of(router: &Router, request: Request<Body>) -> Self {
        let response = router.clone().oneshot(request).await.expect("an answer");
        assert_eq!(response.status(), 200);
        Self {
            body: response.into_body(),
            heard: String::new(),
        }
    }

    async fn get(the_box: &TheBox, who: &As, path: &str) -> Self {
        let request = TheBox::request(who, "GET", path)
            .body(Body::empty())
            .expect("a request");
        Self::of(&the_box.router, request).await
    }

    /// It is open yet.
    async fn goes_on(&mut self) {
        while let Ok(piece) =
            tokio::time::timeout(Duration::from_millis(1500), self.body.frame()).await
        {
            let piece = piece.expect("it ended by itself").expect("it broke off");
            if let Ok(bytes) = piece.into_data() {
                self.heard.push_str(&String::from_utf8_lossy(&bytes));
            }
            if self.heard.len() > 200_000 {
                return;
            }
        }
    }

    /// Reads to the end, which comes soon; true where it was broken off.
    async fn ends(&mut self) -> bool {
        let all = async {
            while let Some(piece) = self.body.frame().await {
                let Ok(piece) = piece else {
                    return true;
                };
                if let Ok(bytes) = piece.into_data() {
                    self.heard.push_str(&String::from_utf8_lossy(&bytes));
                }
            }
            false
        };
        tokio::time::timeout(SOON, all)
            .await
            .expect("it goes on without a right")
    }
}

pub(super) async fn socket(
    address: std::net::SocketAddr,
    who: &As,
    path: &str,
    protocol: &str,
) -> tokio_tungstenite::WebSocketStream<tokio::net::TcpStream> {
    let opened = open_socket(address, who, path, protocol).await;
    opened.expect("opened").0
}

/// What a socket says until it is closed, and the reason of its close.
async fn last_words(
    mut socket: tokio_tungstenite::WebSocketStream<tokio::net::TcpStream>,
) -> (String, String) {
    let all = async {
        let (mut said, mut reason) = (String::new(), String::new());
        while let Some(Ok(message)) = socket.next().await {
            match message {
                Message::Binary(bytes) => said.push_str(&String::from_utf8_lossy(&bytes)),
                Message::Close(Some(frame)) => reason = frame.reason.to_string(),
                _ => {}
            }
        }
        (said, reason)
    };
    tokio::time::timeout(SOON, all)
        .await
        .expect("it goes on without a right")
}

/// Revokes the token of `who`, with another one of the same person.
async fn revoke(the_box: &TheBox, other: &As) {
    let tokens = the_box.get(other, "/api/v1/me/tokens").await.json();
    let oldest = tokens["items"].as_array().expect("a list").last().cloned();
    let id = oldest.expect("a token")["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let gone = the_box
        .with_body(other, "DELETE", &format!("/api/v1/me/tokens/{id}"), "")
        .await;
    assert_eq!(gone.status, 204);
}

/// Promise (Isolation and access): A stream ends within two seconds after its permission is withdrawn, and
/// states the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_a_token_opened_ends_when_it_is_revoked() {
    let the_box = TheBox::open().await;
    let who = the_box.mina.clone();
    let work = the_box.launch(&who, json!({"name": "work"})).await;
    let id = work["id"].as_str().expect("an id");
    the_box.until(&who, id, "running").await;
    let later = json!({"name": "later", "start_at": "2031-01-01T00:00:00Z"});
    the_box.launch(&who, later).await;
    // Later than the token that opens the streams, which is therefore the last of the list.
    tokio::time::sleep(Duration::from_millis(5)).await;
    let other = the_box.token("mina", &Permission::ALL, None).await;

    let (address, _) = the_box.serve().await;
    let terminal = socket(
        address,
        &who,
        "/api/v1/sessions/work/attach?cols=80&rows=24",
        "v1.term",
    )
    .await;
    let mut port = socket(address, &who, "/api/v1/sessions/work/ports/8080", "v1.tcp").await;
    port.send(Message::Binary("ping".into()))
        .await
        .expect("sent");
    let mut journal = Open::get(&the_box, &who, "/api/v1/events").await;
    let mut log = Open::get(&the_box, &who, "/api/v1/sessions/later/logs?follow=1").await;
    journal.goes_on().await;
    let wait = TheBox::request(
        &who,
        "GET",
        "/api/v1/sessions/later?wait=ended&patience=600",
    )
    .body(Body::empty())
    .expect("a request");
    let waiting = {
        let router = the_box.router.clone();
        tokio::spawn(async move { router.oneshot(wait).await.expect("an answer").status() })
    };
    tokio::time::sleep(Duration::from_millis(300)).await;

    revoke(&the_box, &other).await;
    let began = Instant::now();
    let (said, reason) = last_words(terminal).await;
    assert_eq!(reason, "token.revoked");
    assert!(said.contains("\"gone\""), "{said}");
    assert_eq!(last_words(port).await.1, "token.revoked");
    assert!(!journal.ends().await);
    assert!(journal.heard.contains("event: end"), "{}", journal.heard);
    assert!(journal.heard.contains("token.revoked"), "{}", journal.heard);
    assert!(log.ends().await, "a log that was cut off looks whole");
    let status = tokio::time::timeout(SOON, waiting).await;
    assert_eq!(status.expect("it waits on").expect("no panic"), 401);
    eprintln!("all ended {:?} after the revocation", began.elapsed());
}

/// How a right ends, by what it was proven with, and what the streams say then.
const ENDS: [(&str, &str, &str); 5] = [
    ("suspension", "token", "user.suspended"),
    ("suspension", "browser", "sign-in.ended"),
    ("change of role", "token", "role.changed"),
    ("change of role", "browser", "role.changed"),
    ("sign-out", "browser", "sign-in.ended"),
];

async fn sign_out(the_box: &TheBox, browser: &As) {
    let As::Cookie(cookie) = browser else {
        panic!("a browser has a cookie");
    };
    let here: std::net::IpAddr = std::net::Ipv4Addr::LOCALHOST.into();
    let caller = server::access::by_cookie(&the_box.server, cookie, here).await;
    let caller = caller.expect("read").expect("signed in");
    server::access::sign_out(&the_box.server, &caller)
        .await
        .expect("signed out");
}

async fn set_role(the_box: &TheBox, name: &str, role: &str) {
    let path = format!("/api/v1/users/{name}");
    let request = TheBox::request(&As::Root, "PATCH", &path)
        .header("content-type", "application/merge-patch+json")
        .header("if-match", "*")
        .body(Body::from(json!({"role": role}).to_string()))
        .expect("a request");
    assert_eq!(the_box.send(request).await.status, 200);
}

/// Terminals, ports, logs, journals and live pages, for each way in which a right ends.
///
/// Proves too: `everything_that_a_token_opened_ends_when_it_is_revoked`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_open_ends_at_suspension_sign_out_and_change_of_role() {
    for (way, by, code) in ENDS {
        let the_box = TheBox::open().await;
        set_role(&the_box, "jae", "administrator").await;
        // It proves the role that the account has by now.
        let token = the_box.token("jae", &Permission::ALL, None).await;
        let here: std::net::IpAddr = std::net::Ipv4Addr::LOCALHOST.into();
        let signed_in = server::access::sign_in(&the_box.server, "jae", PASSWORD, here)
            .await
            .expect("the password is right");
        let browser = As::Cookie(signed_in.cookie);
        let who = match by {
            "token" => &token,
            _ => &browser,
        };
        the_box.launch(&token, json!({"name": "work"})).await;
        the_box.until(&token, "work", "running").await;
        let later = json!({"name": "later", "start_at": "2031-01-01T00:00:00Z"});
        the_box.launch(&token, later).await;

        let (address, _) = the_box.serve().await;
        let path = "/api/v1/sessions/work/attach?cols=80&rows=24";
        let terminal = socket(address, who, path, "v1.term").await;
        let path = "/api/v1/sessions/work/ports/8080";
        let mut port = socket(address, who, path, "v1.tcp").await;
        port.send(Message::Binary("ping".into()))
            .await
            .expect("sent");
        let mut streams = vec!["/api/v1/events"];
        if by == "browser" {
            streams.extend(["/live", "/sessions/live", "/notices/live"]);
        }
        let mut open = Vec::new();
        for path in streams {
            open.push((path, Open::get(&the_box, who, path).await));
        }
        let mut log = Open::get(&the_box, who, "/api/v1/sessions/later/logs?follow=1").await;
        open[0].1.goes_on().await;

        let began = Instant::now();
        match way {
            "suspension" => {
                let path = "/api/v1/users/jae/suspend";
                let body = json!({"suspended": true});
                let done = the_box.post(&As::Root, path, body).await;
                assert!(done.status.is_success(), "{}", done.short());
            }
            "change of role" => set_role(&the_box, "jae", "user").await,
            _ => sign_out(&the_box, &browser).await,
        }
        for (name, socket) in [("terminal", terminal), ("port", port)] {
            let reason = last_words(socket).await.1;
            assert_eq!(reason, code, "{name} at {way} by {by}");
        }
        for (path, stream) in &mut open {
            stream.ends().await;
            let said = &stream.heard;
            assert!(said.contains("event: end"), "{path} at {way}: {said}");
            assert!(said.contains(code), "{path} at {way} by {by}: {said}");
        }
        assert!(log.ends().await, "a log that was cut off looks whole");
        let passed = began.elapsed();
        assert!(passed <= SOON, "{way} by {by} took {passed:?}");
    }
}

/// Proves too: `everything_that_a_token_opened_ends_when_it_is_revoked`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_under_way_ends_when_its_sender_is_demoted() {
    let the_box = TheBox::open().await;
    the_box.set_role("jae", "administrator").await;
    let tus = |method: &str, path: &str| {
        TheBox::request(&the_box.jae, method, path).header("tus-resumable", "1.0.0")
    };
    let request = tus("POST", "/api/v1/uploads")
        .header("upload-length", "1000")
        .body(Body::empty())
        .expect("a request");
    let place = the_box.send(request).await.header("location").to_owned();
    let (feed, pieces) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(4);
    feed.send(Ok("0123".into())).await.expect("taken");
    let pieces = futures_util::stream::unfold(pieces, |mut pieces| async move {
        Some((pieces.recv().await?, pieces))
    });
    let request = tus("PATCH", &place)
        .header("upload-offset", "0")
        .header("content-type", "application/offset+octet-stream")
        .body(Body::from_stream(pieces))
        .expect("a request");
    let router = the_box.router.clone();
    let sending = tokio::spawn(async move { router.oneshot(request).await.expect("an answer") });
    let mut journal = Open::get(&the_box, &the_box.jae, "/api/v1/events").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    the_box.set_role("jae", "user").await;
    let answer = tokio::time::timeout(SOON, sending).await;
    assert_eq!(
        answer.expect("it is taken on").expect("no panic").status(),
        403
    );
    drop(feed);
    journal.ends().await;
    assert!(journal.heard.contains("role.changed"), "{}", journal.heard);
}

/// Proves too: `everything_that_a_token_opened_ends_when_it_is_revoked`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_ends_with_the_account_and_with_the_time_of_its_token() {
    let the_box = TheBox::open().await;
    let root = As::Root;
    for (way, name) in [("suspend", "mina"), ("remove", "jae")] {
        let who = if name == "mina" {
            &the_box.mina
        } else {
            &the_box.jae
        };
        let mut journal = Open::get(&the_box, who, "/api/v1/events").await;
        journal.goes_on().await;
        let path = format!("/api/v1/users/{name}");
        let status = if way == "suspend" {
            let body = json!({"suspended": true});
            let answer = the_box.post(&root, &format!("{path}/suspend"), body).await;
            answer.status
        } else {
            the_box.with_body(&root, "DELETE", &path, "").await.status
        };
        assert!(status.is_success(), "{way}: {status}");
        journal.ends().await;
        assert!(journal.heard.contains("event: end"), "{}", journal.heard);
    }
    let now = the_box.server.clock().now();
    let end = rules::units::Timestamp::from_millis(now.as_millis() + 2500);
    let short = the_box.token("ada", &Permission::ALL, Some(end)).await;
    let mut journal = Open::get(&the_box, &short, "/api/v1/events").await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    journal.ends().await;
    assert!(journal.heard.contains("token.expired"), "{}", journal.heard);
}

/// Proves too: `everything_that_a_token_opened_ends_when_it_is_revoked`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_and_journals_of_a_browser_end_when_it_signs_out() {
    let the_box = TheBox::open().await;
    let As::Cookie(cookie) = the_box.browser.clone() else {
        panic!("a browser has a cookie");
    };
    let pages = fardel::doors::router(the_box.server.clone(), Arc::new(the_box.streams.clone()));
    let page = |path: &str| {
        TheBox::request(&As::Cookie(cookie.clone()), "GET", path)
            .header("accept", "text/event-stream")
            .body(Body::empty())
            .expect("a request")
    };
    let mut open = Vec::new();
    for path in [
        "/live",
        "/sessions/live",
        "/queue/live",
        "/gpus/live",
        "/images/live",
        "/api/v1/events",
    ] {
        open.push((path, Open::of(&pages, page(path)).await));
    }
    // Another browser of the same person goes on: a changed password ends all but the one that changed it.
    let here: std::net::IpAddr = std::net::Ipv4Addr::LOCALHOST.into();
    let second = server::access::sign_in(&the_box.server, "ada", PASSWORD, here)
        .await
        .expect("the password is right");
    let kept = TheBox::request(&As::Cookie(second.cookie.clone()), "GET", "/api/v1/events")
        .header("accept", "text/event-stream")
        .body(Body::empty())
        .expect("a request");
    let mut kept = Open::of(&pages, kept).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    server::actions::users::change_password(
        &the_box.server,
        &second.caller,
        PASSWORD,
        "another-good-one-9",
    )
    .await
    .expect("changed");
    for (path, stream) in &mut open {
        stream.ends().await;
        assert!(
            stream.heard.contains("event: end"),
            "{path} does not say it"
        );
        assert!(stream.heard.contains("sign-in.ended"), "{path}");
    }
    kept.goes_on().await;
    server::access::sign_out(&the_box.server, &second.caller)
        .await
        .expect("signed out");
    kept.ends().await;
    assert!(kept.heard.contains("sign-in.ended"), "{}", kept.heard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_long_on_its_way_acts_by_no_right_that_ended_meanwhile() {
    let the_box = TheBox::open().await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let other = the_box.token("mina", &Permission::ALL, None).await;
    let (feed, pieces) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(4);
    let pieces = futures_util::stream::unfold(pieces, |mut pieces| async move {
        Some((pieces.recv().await?, pieces))
    });
    let request = TheBox::request(&the_box.mina, "POST", "/api/v1/me/tokens")
        .header("content-type", "application/json")
        .body(Body::from_stream(pieces))
        .expect("a request");
    feed.send(Ok(r#"{"name": "kept","#.into()))
        .await
        .expect("taken");
    let router = the_box.router.clone();
    let sending = tokio::spawn(async move { router.oneshot(request).await.expect("an answer") });
    tokio::time::sleep(Duration::from_millis(300)).await;
    revoke(&the_box, &other).await;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let rest = r#" "scopes": ["sessions:read"]}"#;
    feed.send(Ok(rest.into())).await.expect("taken");
    drop(feed);
    let answer = tokio::time::timeout(SOON, sending).await;
    let status = answer.expect("it is taken on").expect("no panic").status();
    assert_eq!(status, 401);
    let tokens = the_box.get(&other, "/api/v1/me/tokens").await.json();
    let names: Vec<_> = tokens["items"].as_array().expect("a list").iter().collect();
    assert_eq!(names.len(), 1, "{tokens}");
}

/// Requests come from 192.0.2.9 here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_and_a_key_that_are_bound_to_other_networks_open_nothing() {
    let the_box = TheBox::open().await;
    let mina = &the_box.mina;
    let wanted = |networks: &[&str]| json!({"name": "job", "scopes": ["me"], "networks": networks});
    let make = async |networks: &[&str]| {
        let made = the_box.post(mina, "/api/v1/me/tokens", wanted(networks));
        let made = made.await;
        assert_eq!(made.status, 201, "{}", made.short());
        let made = made.json();
        As::Token(made["secret"].as_str().expect("a secret").to_owned())
    };
    let elsewhere = make(&["10.0.0.0/8"]).await;
    let refused = the_box.get(&elsewhere, "/api/v1/me").await;
    assert_eq!(refused.short(), "403 token.address-refused");
    let here = make(&["192.0.2.0/24"]).await;
    assert_eq!(the_box.get(&here, "/api/v1/me").await.status, 200);
    // What it makes is good there alone, too.
    for (networks, answer) in [
        (&[][..], "201"),
        (&["192.0.0.0/16"][..], "422 network.wider"),
    ] {
        let made = the_box
            .post(&here, "/api/v1/me/keys", wanted(networks))
            .await;
        assert!(made.short().starts_with(answer), "{}", made.short());
    }
    let keys = the_box.get(mina, "/api/v1/me/keys").await.json();
    assert_eq!(keys["items"][0]["networks"], json!(["192.0.2.0/24"]));
}
