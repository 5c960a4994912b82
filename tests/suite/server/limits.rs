//! Bounds that a caller can reach over HTTP, each asked for at its edge and one beyond: what is still taken,
//! and which status and code the next one gets. The book of bounds in SECURITY.md names these tests.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use axum::body::Body;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::lan::House;
use super::leases::socket;
use super::the_box::{As, TheBox};

/// Longer than any answer takes on a loaded machine; only a hang reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

const LAUNCH: &str = "/api/v1/sessions?dry_run=true";

fn letters(count: usize) -> String {
    "x".repeat(count)
}

/// What a body gets, by what it is about: who sends it, where, at the edge and beyond it.
struct Edge {
    what: &'static str,
    who: As,
    path: &'static str,
    at: Value,
    beyond: Value,
    taken: &'static str,
    refused: &'static str,
}

fn launches(who: &As) -> Vec<Edge> {
    let edge = |what, at, beyond, refused| Edge {
        what,
        who: who.clone(),
        path: LAUNCH,
        at,
        beyond,
        taken: "200",
        refused,
    };
    let words = |count: usize| json!({"command": vec!["x"; count]});
    let sizes = |sizes: &[usize]| {
        let words: Vec<String> = sizes.iter().map(|size| letters(*size)).collect();
        json!({ "command": words })
    };
    let many = |field: &str, count: usize| {
        let named: BTreeMap<String, &str> = (0..count).map(|n| (format!("N{n}"), "")).collect();
        json!({ field: named })
    };
    let one = |field: &str, name: usize, value: usize| {
        let named = BTreeMap::from([(letters(name), letters(value))]);
        json!({ field: named })
    };
    let seconds =
        |field: &str, seconds: u64| json!({"kind": "batch", "command": ["x"], field: seconds});
    let ten_years = 10 * 366 * 86_400;
    vec![
        edge(
            "letters of a name",
            json!({"name": letters(63)}),
            json!({"name": letters(64)}),
            "422 session.name-invalid",
        ),
        edge(
            "letters of a description",
            json!({"description": letters(500)}),
            json!({"description": letters(501)}),
            "422 remark.too-long",
        ),
        edge("words", words(4096), words(4097), "422 command.too-long"),
        edge(
            "bytes of a word",
            sizes(&[128 << 10]),
            sizes(&[(128 << 10) + 1]),
            "422 command.too-long",
        ),
        edge(
            "bytes of an order",
            sizes(&[128 << 10, 128 << 10]),
            sizes(&[128 << 10, 128 << 10, 1]),
            "413 session.too-large",
        ),
        edge(
            "variables",
            many("env", 512),
            many("env", 513),
            "422 env.too-many",
        ),
        edge(
            "bytes of a variable",
            one("env", 1, 128 << 10),
            one("env", 1, (128 << 10) + 1),
            "422 env.too-long",
        ),
        edge(
            "labels",
            many("labels", 64),
            many("labels", 65),
            "422 label.too-many",
        ),
        edge(
            "bytes of a label",
            one("labels", 256, 256),
            one("labels", 256, 257),
            "422 label.too-long",
        ),
        edge(
            "bytes of a label's name",
            one("labels", 256, 0),
            one("labels", 257, 0),
            "422 label.too-long",
        ),
        edge(
            "dependencies",
            json!({"depends_on": vec!["first"; 64]}),
            json!({"depends_on": vec!["first"; 65]}),
            "422 dependency.too-many",
        ),
        edge(
            "replicas",
            json!({"replicas": 500}),
            json!({"replicas": 501}),
            "422 replicas.out-of-range",
        ),
        edge(
            "seconds of a command",
            seconds("timeout_seconds", ten_years),
            seconds("timeout_seconds", ten_years + 1),
            "422 seconds.out-of-range",
        ),
        edge(
            "seconds of a run",
            seconds("max_runtime_seconds", ten_years),
            seconds("max_runtime_seconds", ten_years + 1),
            "422 seconds.out-of-range",
        ),
        Edge {
            taken: "422 image.not-found",
            ..edge(
                "bytes of a reference",
                json!({"image": letters(255)}),
                json!({"image": letters(256)}),
                "422 image.too-long",
            )
        },
    ]
}

fn accounts(the_box: &TheBox) -> Vec<Edge> {
    let user = |name: usize, password: usize| {
        let password = "abcd".repeat(300)[..password].to_owned();
        json!({"name": letters(name), "password": password})
    };
    let token = |name: usize| json!({"name": letters(name), "scopes": ["me"]});
    let note = |size: usize| json!({"note": letters(size)});
    let certificate = |names: usize| {
        let names: Vec<String> = (0..names).map(|n| format!("n{n}.lab")).collect();
        json!({ "names": names })
    };
    let edge = |what, path, at, beyond, taken, refused| Edge {
        what,
        who: the_box.admin.clone(),
        path,
        at,
        beyond,
        taken,
        refused,
    };
    vec![
        edge(
            "letters of a user's name",
            "/api/v1/users",
            user(63, 20),
            user(64, 20),
            "201",
            "422 user.name-invalid",
        ),
        edge(
            "bytes of a password",
            "/api/v1/users",
            user(10, 1024),
            user(11, 1025),
            "201",
            "422 password.too-long",
        ),
        edge(
            "letters of a token's name",
            "/api/v1/me/tokens",
            token(64),
            token(65),
            "201",
            "422 token.too-long",
        ),
        edge(
            "letters of a note",
            "/api/v1/gpus/0/cordon",
            note(256),
            note(257),
            "200",
            "422 note.too-long",
        ),
        edge(
            "names of a certificate",
            "/api/v1/tls/request",
            certificate(50),
            certificate(51),
            "200",
            "422 tls.too-many-names",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_field_is_taken_at_its_bound_and_refused_by_name_beyond_it() {
    let devices = node::gpu::simulated::devices("H100:1").expect("a good text");
    let the_box = TheBox::with(&[], devices).await;
    let first = json!({"name": "first", "kind": "batch", "command": ["sleep"]});
    the_box.launch(&the_box.mina, first).await;
    let mut wrong = Vec::new();
    for edge in launches(&the_box.mina)
        .into_iter()
        .chain(accounts(&the_box))
    {
        for (side, body, expected) in [
            ("at the edge", edge.at, edge.taken),
            ("beyond it", edge.beyond, edge.refused),
        ] {
            let got = the_box.post(&edge.who, edge.path, body).await.short();
            if got != expected {
                wrong.push(format!("{} {side}: {got}, not {expected}", edge.what));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_is_asked_for_within_its_bounds() {
    let the_box = TheBox::open().await;
    let list = |query: String| format!("/api/v1/sessions?{query}");
    let mut wrong = Vec::new();
    for (what, at, beyond, refused) in [
        (
            "letters of a search",
            format!("q={}", letters(1024)),
            format!("q={}", letters(1025)),
            "422 query.too-long",
        ),
        (
            "words of a search",
            format!("q={}", ["x"; 32].join("+")),
            format!("q={}", ["x"; 33].join("+")),
            "422 query.too-many-words",
        ),
        (
            "rows of a page",
            "limit=500".to_owned(),
            "limit=501".to_owned(),
            "422 limit.out-of-range",
        ),
    ] {
        for (query, expected) in [(at, "200"), (beyond, refused)] {
            let got = the_box.get(&the_box.mina, &list(query)).await.short();
            if got != expected {
                wrong.push(format!("{what}: {got}, not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_json_body_has_its_largest() {
    let the_box = TheBox::open().await;
    for path in [LAUNCH, "/api/v1/sessions"] {
        for (size, expected) in [(1 << 20, 200), ((1 << 20) + 1, 413)] {
            // Blanks are JSON.
            let mut body = "{\"kind\":\"batch\",\"command\":[\"sleep\"]}".to_owned();
            body.extend(std::iter::repeat_n(' ', size - body.len()));
            let answer = the_box.with_body(&the_box.mina, "POST", path, body).await;
            let expected = if path == LAUNCH || expected == 413 {
                expected
            } else {
                201
            };
            assert_eq!(answer.status, expected, "{size} bytes at {path}");
            if expected == 413 {
                assert_eq!(answer.short(), "413 body.too-large");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_has_a_hundred_tokens() {
    let the_box = TheBox::open().await;
    let list = the_box.get(&the_box.mina, "/api/v1/me/tokens").await.json();
    let there = list["items"].as_array().expect("a list").len();
    let make = || {
        let body = json!({"name": "one more", "scopes": ["me"]});
        the_box.post(&the_box.mina, "/api/v1/me/tokens", body)
    };
    let mut last = Value::Null;
    for _ in there..100 {
        let answer = make().await;
        assert_eq!(answer.status, 201, "{}", answer.json());
        last = answer.json();
    }
    assert_eq!(make().await.short(), "409 token.too-many");
    let id = last["token"]["id"].as_str().expect("an id");
    let path = format!("/api/v1/me/tokens/{id}");
    let gone = the_box.with_body(&the_box.mina, "DELETE", &path, Body::empty());
    assert!(gone.await.status.is_success());
    assert_eq!(make().await.status, 201, "there is room again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_beyond_its_bound_closes_the_stream() {
    let the_box = TheBox::open().await;
    let body = json!({"name": "work", "kind": "batch", "command": ["sleep"]});
    let made = the_box.launch(&the_box.mina, body).await;
    let id = made["id"].as_str().expect("an id");
    the_box.until(&the_box.mina, id, "running").await;
    let (address, _) = the_box.serve().await;
    let path = "/api/v1/sessions/work/ports/8888";
    for (size, survives) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        let mut stream = socket(address, &the_box.mina, path, "v1.tcp").await;
        stream
            .send(Message::Binary(vec![7; size].into()))
            .await
            .expect("sent");
        let echoed = async {
            let mut count = 0;
            while let Some(Ok(message)) = stream.next().await {
                if let Message::Binary(bytes) = message {
                    count += bytes.len();
                }
                if count >= size {
                    return (count, true);
                }
            }
            (count, false)
        };
        let (count, whole) = tokio::time::timeout(TIMEOUT, echoed)
            .await
            .expect("it neither answers nor ends");
        assert_eq!(whole, survives, "{count} bytes of {size} came back");
        if !survives {
            assert_eq!(count, 0, "a part of what is too large was carried");
        }
    }
}

/// What a server of its own says to a head, up to the end of the connection.
fn said(house: &House, head: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", house.console)).expect("listening");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    // It may answer and close before it has read all of it.
    let _ = stream.write_all(head.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const END_HEADERS_AND_STREAM: u8 = 5;
/// `SETTINGS_MAX_CONCURRENT_STREAMS` and `REFUSED_STREAM` of RFC 9113.
const CONCURRENT_STREAMS: u16 = 3;
const REFUSED: u32 = 7;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).expect("short").to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A request's head, no field of it indexed or compressed (RFC 7541).
fn request(token: &str) -> Vec<u8> {
    let (mut block, bearer) = (Vec::new(), format!("Bearer {token}"));
    for (name, value) in [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "box"),
        (":path", "/api/v1/events"),
        ("authorization", bearer.as_str()),
    ] {
        block.push(0);
        for text in [name, value] {
            block.push(
                u8::try_from(text.len())
                    .ok()
                    .filter(|n| *n < 127)
                    .expect("short"),
            );
            block.extend(text.as_bytes());
        }
    }
    block
}

/// The next frame: kind, stream, payload.
fn next(stream: &mut TcpStream) -> (u8, u32, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).expect("a frame");
    let size = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let of = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    let mut payload = vec![0; size as usize];
    stream.read_exact(&mut payload).expect("a whole frame");
    (head[3], of, payload)
}

#[test]
fn a_head_has_its_longest_and_a_connection_its_streams() {
    let house = House::start(&[], "off");
    let token = house.token();
    let head = |size: usize| {
        let fixed = "GET /healthz HTTP/1.1\r\nHost: box\r\nConnection: close\r\nX-Long: \r\n\r\n";
        fixed.replace(
            "X-Long: ",
            &format!("X-Long: {}", letters(size - fixed.len())),
        )
    };
    let taken = said(&house, &head(63 << 10));
    assert!(taken.starts_with("HTTP/1.1 200"), "{taken}");
    let refused = said(&house, &head(65 << 10));
    assert!(refused.starts_with("HTTP/1.1 431"), "{refused}");

    let mut stream = TcpStream::connect(("127.0.0.1", house.console)).expect("listening");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let mut asked = HTTP2.to_vec();
    asked.extend(frame(SETTINGS, 0, 0, &[]));
    // Each of them hears the journal without end.
    for number in 0..33 {
        let block = request(&token);
        asked.extend(frame(
            HEADERS,
            END_HEADERS_AND_STREAM,
            2 * number + 1,
            &block,
        ));
    }
    stream.write_all(&asked).expect("taken");
    let (mut told, mut answered) = (None, 0);
    loop {
        let (kind, of, payload) = next(&mut stream);
        match kind {
            SETTINGS => {
                let mut all = payload.chunks_exact(6);
                told = told.or(all.find_map(|one| {
                    let name = u16::from_be_bytes([one[0], one[1]]);
                    let value = u32::from_be_bytes([one[2], one[3], one[4], one[5]]);
                    (name == CONCURRENT_STREAMS).then_some(value)
                }));
            }
            HEADERS => answered += 1,
            RESET => {
                let why = u32::from_be_bytes(payload.try_into().expect("a code"));
                assert_eq!((of, why), (65, REFUSED), "the 33rd is refused");
                break;
            }
            _ => {}
        }
    }
    assert_eq!(told, Some(32));
    while answered < 32 {
        let (kind, of, _) = next(&mut stream);
        assert!(kind != RESET, "{of} was refused too");
        answered += u32::from(kind == HEADERS);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_work_is_refused_while_too_little_of_the_disk_is_left() {
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    let test = "new_work_is_refused_while_too_little_of_the_disk_is_left";
    let the_box = TheBox::open().await;
    let data = the_box.folder.path().join("data");
    let body = json!({"kind": "batch", "command": ["sleep"]});
    for (size, expected) in [("63m", "503 disk.full"), ("80m", "201")] {
        let options = format!("size={size},mode=0700");
        let (none, kind) = (None::<&str>, Some("tmpfs"));
        let flags = MsFlags::empty();
        if let Err(error) = mount(none, &data, kind, flags, Some(options.as_str())) {
            skips::skip(test, &format!("nothing can be mounted: {error}"));
            return;
        }
        let got = the_box.post(&the_box.mina, "/api/v1/sessions", body.clone());
        let got = got.await.short();
        umount2(&data, MntFlags::MNT_DETACH).expect("it was mounted");
        assert_eq!(got, expected, "with {size}");
    }
}
