//! What the API promises of HTTP: entity tags, preconditions, idempotency keys, cursors, the journal,
//! long polls, uploads that resume, and streams over WebSockets.

use axum::body::Body;
use futures_util::{SinkExt, StreamExt};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio_tungstenite::tungstenite::Message;
use tower::ServiceExt;

use super::fake_machine::LOG;
use super::the_box::{Answer, As, TheBox, open_socket};

fn batch(command: &[&str]) -> Value {
    json!({"kind": "batch", "command": command})
}

fn id(session: &Value) -> String {
    session["id"].as_str().expect("an id").to_owned()
}

async fn with(
    the_box: &TheBox,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut request = TheBox::request(&the_box.mina, method, path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request
        .body(Body::from(body.to_owned()))
        .expect("a request");
    the_box.send(request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_lives_and_its_code_stays() {
    let the_box = TheBox::open().await;
    let made = the_box.launch(&the_box.mina, batch(&["exit", "7"])).await;
    let ended = the_box.until(&the_box.mina, &id(&made), "ended").await;
    assert_eq!(ended["exit_code"], 7);
    assert_eq!(ended["outcome"], "failed");
    let log = the_box
        .get(
            &the_box.mina,
            &format!("/api/v1/sessions/{}/logs", id(&made)),
        )
        .await;
    assert_eq!(log.bytes, LOG.as_bytes());
    let rest = the_box
        .get(
            &the_box.mina,
            &format!("/api/v1/sessions/{}/logs?since=9", id(&made)),
        )
        .await;
    assert_eq!(rest.bytes, &LOG.as_bytes()[9..]);
    let path = format!("/api/v1/sessions/{}", id(&made));
    assert_eq!(with(&the_box, "DELETE", &path, &[], "").await.status, 204);
    assert_eq!(
        the_box.get(&the_box.mina, &path).await.short(),
        "404 session.not-found"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unchanged_session_is_not_sent_again_and_a_stale_change_is_refused() {
    let the_box = TheBox::open().await;
    let made = the_box.launch(&the_box.mina, batch(&["sleep"])).await;
    the_box.until(&the_box.mina, &id(&made), "running").await;
    let path = format!("/api/v1/sessions/{}", id(&made));
    let first = the_box.get(&the_box.mina, &path).await;
    let tag = first.header("etag").to_owned();
    assert_eq!(tag, format!("\"{}\"", first.json()["generation"]));
    let again = with(&the_box, "GET", &path, &[("if-none-match", &tag)], "").await;
    assert_eq!((again.status.as_u16(), again.bytes.len()), (304, 0));

    let patch = [
        ("content-type", "application/merge-patch+json"),
        ("if-match", &*tag),
    ];
    let renamed = with(&the_box, "PATCH", &path, &patch, "{\"name\":\"second\"}").await;
    assert_eq!(renamed.status, 200);
    assert_ne!(renamed.header("etag"), tag);
    let stale = with(&the_box, "PATCH", &path, &patch, "{\"name\":\"third\"}").await;
    assert_eq!(stale.status, 412, "{}", stale.json());
    assert!(stale.json()["hint"].as_str().is_some_and(|h| !h.is_empty()));
    assert_eq!(
        the_box.get(&the_box.mina, &path).await.json()["name"],
        "second"
    );
    let odd = [("if-match", "yesterday")];
    assert_eq!(
        with(&the_box, "PATCH", &path, &odd, "{\"name\":\"x\"}")
            .await
            .short(),
        "412 if-match.unknown"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_are_merged_and_a_null_removes() {
    let the_box = TheBox::open().await;
    let mut body = batch(&["sleep"]);
    body["labels"] = json!({"a": "1", "b": "2"});
    let made = the_box.launch(&the_box.mina, body).await;
    let path = format!("/api/v1/sessions/{}", id(&made));
    let change = "{\"labels\": {\"a\": null, \"c\": \"3\"}}";
    let patched = with(&the_box, "PATCH", &path, &[], change).await;
    assert_eq!(patched.json()["labels"], json!({"b": "2", "c": "3"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_changed_only_from_a_version() {
    let the_box = TheBox::open().await;
    let patch = |tag: Option<String>| {
        let mut request = TheBox::request(&the_box.admin, "PATCH", "/api/v1/users/jae")
            .header("content-type", "application/merge-patch+json");
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        the_box.send(
            request
                .body(Body::from("{\"role\":\"administrator\"}"))
                .expect("a request"),
        )
    };
    assert_eq!(patch(None).await.short(), "428 if-match.missing");
    let tag = the_box
        .get(&the_box.admin, "/api/v1/users/jae")
        .await
        .header("etag")
        .to_owned();
    assert_eq!(patch(Some(tag.clone())).await.status, 200);
    assert_eq!(patch(Some(tag)).await.status, 412);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_key_launches_once_and_another_body_is_refused() {
    let the_box = TheBox::open().await;
    let key = [
        ("idempotency-key", "k-1"),
        ("content-type", "application/json"),
    ];
    let body = batch(&["exit", "0"]).to_string();
    let first = with(&the_box, "POST", "/api/v1/sessions", &key, &body).await;
    let second = with(&the_box, "POST", "/api/v1/sessions", &key, &body).await;
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 201));
    assert_eq!(first.json()["id"], second.json()["id"]);
    assert_eq!(
        (
            first.header("idempotency-replayed"),
            second.header("idempotency-replayed")
        ),
        ("", "true")
    );
    let other = batch(&["exit", "1"]).to_string();
    let reused = with(&the_box, "POST", "/api/v1/sessions", &key, &other).await;
    assert!(
        reused.short().ends_with("idempotency.key-reused"),
        "{}",
        reused.short()
    );
    // The key is the caller's own: another person's request is another request.
    let theirs = TheBox::request(&the_box.jae, "POST", "/api/v1/sessions")
        .header("idempotency-key", "k-1")
        .body(Body::from(body))
        .expect("a request");
    assert_ne!(the_box.send(theirs).await.json()["id"], first.json()["id"]);
    assert_eq!(
        the_box.get(&the_box.mina, "/api/v1/sessions").await.json()["estimated_total"],
        1
    );
}

/// Acts of every sort under one key: the second answer is the first, and nothing was done twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_post_that_acts_does_so_once_a_key() {
    let the_box = TheBox::open().await;
    let made = the_box.launch(&the_box.mina, json!({"name": "work"})).await;
    the_box.until(&the_box.mina, &id(&made), "running").await;
    let post = |key: &'static str, path: &str, body: &str| {
        let request = TheBox::request(&the_box.mina, "POST", path)
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .body(Body::from(body.to_owned()))
            .expect("a request");
        the_box.send(request)
    };
    let events = async || {
        let path = format!("/api/v1/sessions/{}/events", id(&made));
        let seen = the_box.get(&the_box.mina, &path).await.json();
        seen["items"].as_array().map_or(0, Vec::len)
    };
    let pause = "/api/v1/sessions/work/pause";
    let first = post("p", pause, "").await;
    assert_eq!(first.status, 200, "{}", first.json());
    let resumed = post("r", "/api/v1/sessions/work/resume", "").await;
    assert_eq!(resumed.status, 200);
    let before = events().await;
    let again = post("p", pause, "").await;
    assert_eq!(again.status, 200);
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(again.header("etag"), first.header("etag"));
    assert_eq!(again.header("content-type"), first.header("content-type"));
    assert_eq!(again.json(), first.json());
    assert_eq!(events().await, before, "it acted again");
    for (path, body) in [
        ("/api/v1/sessions/work/pause", "{\"a\":1}"),
        ("/api/v1/sessions/work/pause?x=1", ""),
    ] {
        let other = post("p", path, body).await;
        assert_eq!(other.short(), "422 idempotency.key-reused", "{path} {body}");
    }
    // A refusal leaves the key free.
    let refused = post("s", "/api/v1/sessions/nobody/stop", "{}").await;
    assert_eq!(refused.status, 404);
    let refused = post("s", "/api/v1/sessions/nobody/stop", "{\"force\":true}").await;
    assert_ne!(refused.short(), "422 idempotency.key-reused");
    // A secret is shown once; the key makes no second token.
    let token = json!({"name": "night", "scopes": ["me"]}).to_string();
    let first = post("t", "/api/v1/me/tokens", &token).await;
    assert_eq!(first.status, 201);
    let again = post("t", "/api/v1/me/tokens", &token).await;
    assert_eq!(again.short(), "409 idempotency.secret-shown");
    let tokens = the_box.get(&the_box.mina, "/api/v1/me/tokens").await.json();
    let named = tokens["items"].as_array().expect("a list").iter();
    assert_eq!(named.filter(|token| token["name"] == "night").count(), 1);
    // So is the key of a second factor.
    let proof = json!({"password": super::the_box::PASSWORD}).to_string();
    let first = post("f", "/api/v1/me/second-factor", &proof).await;
    assert_eq!(first.status, 200, "{}", first.json());
    let again = post("f", "/api/v1/me/second-factor", &proof).await;
    assert_eq!(again.short(), "409 idempotency.secret-shown");
    // Repeated in vain it would say that the old password is wrong.
    let change = json!({"old": super::the_box::PASSWORD, "new": "another-good-one-9"}).to_string();
    for _ in 0..2 {
        assert_eq!(post("w", "/api/v1/me/password", &change).await.status, 204);
    }
    let odd = post("", pause, "").await;
    assert_eq!(odd.short(), "400 idempotency.key-invalid");
    let odd = post("", "/api/v1/sessions?dry_run=true", "{}").await;
    assert_eq!(odd.short(), "400 idempotency.key-invalid");
}

/// HMAC with SHA-256, of a key of at most 64 bytes.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = Sha256::new()
        .chain_update(block.map(|byte| byte ^ 0x36))
        .chain_update(message)
        .finalize();
    Sha256::new()
        .chain_update(block.map(|byte| byte ^ 0x5c))
        .chain_update(inner)
        .finalize()
        .into()
}

/// A signed request is its user's, at the address as it stood on the wire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_an_access_key_signed_is_answered_as_its_users() {
    let the_box = TheBox::open().await;
    let wanted = json!({"name": "nightly", "scopes": ["me"]});
    let made = the_box.post(&the_box.mina, "/api/v1/me/keys", wanted).await;
    assert_eq!(made.status, 201, "{}", made.short());
    let made = made.json();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let (key, secret) = (text(&made["key"]["key"]), text(&made["secret"]));
    let date = the_box.server.clock().now().to_string();
    let day = date[..10].replace('-', "");
    let ask = async |signed: &str, path: &str| {
        let said = [
            "GET",
            signed,
            &date,
            "host:box:7860",
            "content-type:text/plain",
            "x-backendai-version:v9.20250722",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ]
        .join("\n");
        let of_day = hmac(secret.as_bytes(), day.as_bytes());
        let of_host = hmac(&of_day, b"box:7860");
        let signature = hmac(&of_host, said.as_bytes());
        let signature: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
        let given = format!("BackendAI signMethod=HMAC-SHA256, credential={key}:{signature}");
        let request = TheBox::request(&As::Nobody, "GET", path)
            .header("date", &date)
            .header("content-type", "text/plain")
            .header("x-backendai-version", "v9.20250722")
            .header("authorization", given)
            .body(Body::empty())
            .expect("a request");
        the_box.send(request).await
    };
    let path = "/api/v1/me?fields=name";
    let own = ask(path, path).await;
    assert_eq!(own.status, 200, "{}", own.short());
    assert_eq!(own.json()["name"], "mina");
    let wrong = "401 key.signature-wrong";
    assert_eq!(ask("/me?fields=name", path).await.short(), wrong);
    assert_eq!(ask("/api/v1/me", path).await.short(), wrong);
    // No more than its scopes say.
    let path = "/api/v1/sessions";
    assert_eq!(ask(path, path).await.short(), "403 token.scope-missing");
    // The secret is in no answer but the first.
    let keys = the_box.get(&the_box.mina, "/api/v1/me/keys").await;
    assert!(!String::from_utf8_lossy(&keys.bytes).contains(&secret));
    let id = text(&made["key"]["id"]);
    let path = format!("/api/v1/me/keys/{id}");
    let gone = with(&the_box, "DELETE", &path, &[], "").await;
    assert_eq!(gone.status, 204);
    let path = "/api/v1/me";
    assert_eq!(ask(path, path).await.short(), wrong);
}

/// An upload is declared in headers: they belong to what a key was used for, as a body does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_good_for_one_declaration_of_an_upload() {
    let the_box = TheBox::open().await;
    let declare = |length: &'static str| {
        let request = TheBox::request(&the_box.admin, "POST", "/api/v1/uploads")
            .header("tus-resumable", "1.0.0")
            .header("idempotency-key", "u")
            .header("upload-length", length)
            .body(Body::empty())
            .expect("a request");
        the_box.send(request)
    };
    let first = declare("10").await;
    assert_eq!(first.status, 201, "{}", first.json());
    let again = declare("10").await;
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(again.json(), first.json());
    assert_eq!(declare("11").await.short(), "422 idempotency.key-reused");
}

/// The client goes away as soon as its act is written down, and asks again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_act_under_a_key_ends_without_its_client_and_is_not_done_again() {
    let the_box = TheBox::open().await;
    let request = || {
        let token = json!({"name": "night", "scopes": ["me"]}).to_string();
        TheBox::request(&the_box.mina, "POST", "/api/v1/me/tokens")
            .header("content-type", "application/json")
            .header("idempotency-key", "again")
            .body(Body::from(token))
            .expect("a request")
    };
    let made = async || {
        let tokens = the_box.get(&the_box.mina, "/api/v1/me/tokens").await.json();
        let named = tokens["items"].as_array().expect("a list").iter();
        named.filter(|token| token["name"] == "night").count()
    };
    let mut first = Box::pin(the_box.router.clone().oneshot(request()));
    'written: for _ in 0..20 {
        let answered = std::future::poll_fn(|context| {
            std::task::Poll::Ready(first.as_mut().poll(context).is_ready())
        });
        if answered.await {
            break;
        }
        // What was begun may be written down before it is asked for again.
        for _ in 0..100 {
            if made().await > 0 {
                break 'written;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
    drop(first);
    let again = loop {
        let answer = the_box.send(request()).await;
        if answer.short() != "409 idempotency.under-way" {
            break answer;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert_eq!(again.short(), "409 idempotency.secret-shown");
    assert_eq!(made().await, 1, "it acted again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_session_is_on_one_page_and_on_one_only() {
    let the_box = TheBox::open().await;
    let mut body = batch(&["sleep"]);
    body["replicas"] = json!(23);
    body["name"] = json!("many");
    let made = the_box.launch(&the_box.mina, body).await;
    assert_eq!(made["items"].as_array().map(Vec::len), Some(23));
    let mut path = "/api/v1/sessions?limit=5&sort=name&q=many".to_owned();
    let mut seen = Vec::new();
    let mut pages = 0;
    loop {
        let page = the_box.get(&the_box.mina, &path).await;
        let body = page.json();
        seen.extend(body["items"].as_array().expect("items").iter().map(id));
        pages += 1;
        if body["next_cursor"].is_null() {
            assert_eq!(page.header("link"), "");
            break;
        }
        let link = page.header("link").to_owned();
        let (next, rel) = link.split_once('>').expect("a link");
        assert_eq!(rel, "; rel=\"next\"");
        path = next.trim_start_matches('<').to_owned();
        assert!(
            path.contains("limit=5") && path.contains("sort=name"),
            "{path}"
        );
    }
    seen.sort();
    seen.dedup();
    assert_eq!((pages, seen.len()), (5, 23));
    // A cursor is good for its own list only.
    let page = the_box
        .get(&the_box.mina, "/api/v1/sessions?limit=5")
        .await
        .json();
    let cursor = page["next_cursor"].as_str().expect("more").to_owned();
    for wrong in [
        format!("?sort=name&limit=5&cursor={cursor}"),
        "?cursor=abc".to_owned(),
    ] {
        let answer = the_box
            .get(&the_box.mina, &format!("/api/v1/sessions{wrong}"))
            .await;
        assert_eq!(
            answer.status.as_u16() / 100,
            4,
            "{wrong}: {}",
            answer.short()
        );
    }
    let theirs = the_box
        .get(
            &the_box.jae,
            &format!("/api/v1/sessions?limit=5&cursor={cursor}"),
        )
        .await;
    assert_eq!(
        theirs.status.as_u16() / 100,
        4,
        "somebody else's cursor was taken"
    );
}

/// Reads events from a stream until `wanted` data lines came.
async fn events(
    the_box: &TheBox,
    who: &As,
    after: Option<u64>,
    wanted: usize,
) -> Vec<(String, Value)> {
    let mut request = TheBox::request(who, "GET", "/api/v1/events");
    if let Some(after) = after {
        request = request.header("last-event-id", after.to_string());
    }
    let request = request.body(Body::empty()).expect("a request");
    let response = the_box
        .router
        .clone()
        .oneshot(request)
        .await
        .expect("an answer");
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    let mut text = String::new();
    let mut found = Vec::new();
    while found.len() < wanted {
        let frame = tokio::time::timeout(std::time::Duration::from_secs(10), body.frame())
            .await
            .expect("events come")
            .expect("the stream goes on")
            .expect("a frame");
        text.push_str(std::str::from_utf8(frame.data_ref().expect("data")).expect("text"));
        while let Some(end) = text.find("\n\n") {
            let block: String = text.drain(..end + 2).collect();
            let field = |name: &str| {
                block
                    .lines()
                    .find_map(|l| l.strip_prefix(name))
                    .map(str::to_owned)
            };
            if let Some(data) = field("data: ") {
                let data = serde_json::from_str(&data).expect("JSON");
                found.push((field("event: ").unwrap_or_default(), data));
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_journal_goes_on_after_the_last_number_and_resets_where_it_cannot() {
    let the_box = TheBox::open().await;
    let made = the_box.launch(&the_box.mina, batch(&["exit", "0"])).await;
    the_box.until(&the_box.mina, &id(&made), "ended").await;
    let history = format!("/api/v1/sessions/{}/events", id(&made));
    let history = the_box.get(&the_box.mina, &history).await.json();
    let before = history["items"][0]["sequence"].as_u64().expect("a number") - 1;
    let first = events(&the_box, &the_box.mina, Some(before), 2).await;
    assert_eq!(first[0].0, "change");
    assert_eq!(first[0].1["object"], made["id"]);
    let last = first[1].1["sequence"].as_u64().expect("a number");
    let next = events(&the_box, &the_box.mina, Some(last), 1).await;
    assert!(next[0].1["sequence"].as_u64().expect("a number") > last);
    // What happens to mina's sessions is not for jae, whose own come later.
    let theirs = the_box.launch(&the_box.jae, batch(&["exit", "0"])).await;
    let heard = events(&the_box, &the_box.jae, Some(before), 1).await;
    assert_eq!(heard[0].1["object"], theirs["id"]);
    let lost = events(&the_box, &the_box.mina, Some(u64::MAX / 4), 1).await;
    assert_eq!(lost[0].0, "reset");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_goes_on_where_it_was_cut_off() {
    let the_box = TheBox::open().await;
    let who = &the_box.admin;
    let tus = |method: &str, path: &str| {
        TheBox::request(who, method, path).header("tus-resumable", "1.0.0")
    };
    let request = tus("POST", "/api/v1/uploads")
        .header("upload-length", "10")
        .header("upload-metadata", "filename aS50YXI=")
        .body(Body::empty())
        .expect("a request");
    let made = the_box.send(request).await;
    assert_eq!(made.status, 201, "{}", made.json());
    let place = made.header("location").to_owned();
    assert!(made.header("upload-expires").ends_with("GMT"));
    // A connection that breaks after four bytes.
    let pieces = futures_util::stream::iter([
        Ok(bytes::Bytes::from_static(b"0123")),
        Err(std::io::Error::other("the cable was pulled")),
    ]);
    let request = tus("PATCH", &place)
        .header("upload-offset", "0")
        .header("content-type", "application/offset+octet-stream")
        .body(Body::from_stream(pieces))
        .expect("a request");
    assert_eq!(the_box.send(request).await.short(), "400 upload.cut-off");
    let head = the_box
        .send(tus("HEAD", &place).body(Body::empty()).expect("a request"))
        .await;
    assert_eq!(
        (head.header("upload-offset"), head.header("upload-length")),
        ("4", "10")
    );
    for (offset, words, expected) in [
        ("0", "xxxx", "409 upload.wrong-offset"),
        ("9", "x", "409 upload.wrong-offset"),
        ("4", "456789", "204"),
    ] {
        let request = tus("PATCH", &place)
            .header("upload-offset", offset)
            .header("content-type", "application/offset+octet-stream")
            .body(Body::from(words))
            .expect("a request");
        let answer = the_box.send(request).await;
        assert_eq!(answer.short(), expected, "at {offset}");
    }
    let without = TheBox::request(who, "HEAD", &place)
        .body(Body::empty())
        .expect("a request");
    assert_eq!(the_box.send(without).await.status, 412);
    let gone = the_box
        .send(
            tus("DELETE", &place)
                .body(Body::empty())
                .expect("a request"),
        )
        .await;
    assert_eq!(gone.status, 204);
    let head = the_box
        .send(tus("HEAD", &place).body(Body::empty()).expect("a request"))
        .await;
    assert_eq!(head.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_and_a_port_are_carried_over_sockets() {
    let the_box = TheBox::open().await;
    let made = the_box.launch(&the_box.mina, json!({"name": "work"})).await;
    the_box.until(&the_box.mina, &id(&made), "running").await;
    let (address, _) = the_box.serve().await;
    let open = |path: &'static str, protocol: &'static str| {
        open_socket(address, &the_box.mina, path, protocol)
    };
    let (mut terminal, response) = open("/api/v1/sessions/work/attach?cols=80&rows=24", "v1.term")
        .await
        .expect("opened");
    assert_eq!(response.headers()["sec-websocket-protocol"], "v1.term");
    let say = |bytes: &'static [u8]| Message::Binary(bytes.into());
    terminal.send(say(b"\0typed\n")).await.expect("sent");
    terminal
        .send(say(b"\x02{\"resize\":[120,40]}"))
        .await
        .expect("sent");
    terminal
        .send(say(b"\x02{\"close_input\":true}"))
        .await
        .expect("sent");
    let mut heard = Vec::new();
    while let Some(Ok(message)) = terminal.next().await {
        if let Message::Binary(bytes) = message {
            heard.push(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    assert_eq!(
        heard,
        [
            "\u{1}ready\n",
            "\u{1}typed\n",
            "\u{1}size 120x40\n",
            "\u{2}{\"exit\":0}"
        ]
    );

    let (mut exec, _) = open(
        "/api/v1/sessions/work/exec?command=exit&command=9",
        "v1.term",
    )
    .await
    .expect("opened");
    let mut heard = Vec::new();
    while let Some(Ok(message)) = exec.next().await {
        if let Message::Binary(bytes) = message {
            heard.push(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    assert_eq!(heard, ["\u{1}out\n", "\u{3}err\n", "\u{2}{\"exit\":9}"]);

    let (mut port, _) = open("/api/v1/sessions/work/ports/8080", "v1.tcp")
        .await
        .expect("opened");
    port.send(say(b"ping")).await.expect("sent");
    let echoed = port.next().await.expect("an answer").expect("a message");
    assert_eq!(echoed, say(b"ping"));

    for (path, status) in [
        ("/api/v1/sessions/work/exec?command=absent", 409),
        ("/api/v1/sessions/work/ports/1", 409),
        ("/api/v1/sessions/work/ports/70000", 422),
        ("/api/v1/sessions/nobody/attach", 404),
    ] {
        match open(path, "v1.term").await {
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => {
                assert_eq!(response.status(), status, "{path}");
            }
            other => panic!("{path} was opened: {:?}", other.map(|_| ())),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_probes_say_what_monitors_need() {
    let the_box = TheBox::open().await;
    assert_eq!(the_box.get(&As::Nobody, "/healthz").await.bytes, b"ok\n");
    let ready = the_box.get(&As::Nobody, "/readyz").await;
    assert_eq!(ready.status, 200);
    assert!(
        ready.json()["checks"]
            .as_array()
            .is_some_and(|c| c.len() >= 3)
    );
    assert_eq!(
        the_box.get(&As::Nobody, "/version").await.json()["name"],
        "fardel"
    );
    the_box.launch(&the_box.mina, batch(&["sleep"])).await;
    assert_eq!(
        the_box.get(&As::Nobody, "/metrics").await.status,
        401,
        "figures are not for everybody"
    );
    // Behind a proxy on the same machine every client comes from loopback.
    let loopback: [std::net::IpAddr; 2] = [
        std::net::Ipv4Addr::LOCALHOST.into(),
        std::net::Ipv6Addr::LOCALHOST.into(),
    ];
    for address in loopback {
        let request = TheBox::request(&As::Nobody, "GET", "/metrics")
            .extension(fardel::doors::peer::Peer::Tcp((address, 4000).into()))
            .body(Body::empty())
            .expect("a request");
        assert_eq!(the_box.send(request).await.status, 401, "{address}");
    }
    let figures = the_box.get(&As::Root, "/metrics").await;
    let text = String::from_utf8(figures.bytes.clone()).expect("text");
    assert!(
        figures
            .header("content-type")
            .starts_with("application/openmetrics-text")
    );
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert!(
        text.contains("fardel_machine_cores{machine=\"box\"} 4"),
        "{text}"
    );
    let narrow = the_box
        .token("ada", &[rules::permissions::Permission::Me], None)
        .await;
    assert_eq!(the_box.get(&narrow, "/metrics").await.status, 403);
}

#[tokio::test]
async fn every_answer_names_its_request() {
    let the_box = TheBox::open().await;
    let first = the_box.get(&the_box.mina, "/api/v1/sessions").await;
    let second = the_box.get(&the_box.mina, "/api/v1/nothing").await;
    assert_eq!(second.short(), "404 path.unknown");
    assert_eq!(second.json()["request_id"], second.header("x-request-id"));
    assert!(!first.header("x-request-id").is_empty());
    assert_ne!(first.header("x-request-id"), second.header("x-request-id"));
    let own = with(
        &the_box,
        "GET",
        "/api/v1/sessions",
        &[("x-request-id", "trace-12345")],
        "",
    )
    .await;
    assert_eq!(own.header("x-request-id"), "trace-12345");
    let hostile = with(
        &the_box,
        "GET",
        "/api/v1/sessions",
        &[("x-request-id", "a b\"<script>")],
        "",
    )
    .await;
    assert_ne!(hostile.header("x-request-id"), "a b\"<script>");
}
