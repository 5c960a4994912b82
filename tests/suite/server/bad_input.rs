//! What wrong requests get: the right status, a stable code, a sentence that says what would work, and
//! nothing half done. One table for the API, and the same mistakes at the command line.

use axum::body::Body;
use serde_json::{Value, json};

use super::the_box::{As, TheBox};

/// What a launch with one wrong field gets.
fn launches() -> Vec<(&'static str, Value, &'static str)> {
    let long = "x".repeat(1_000_000);
    let resources = |words: Value| json!({"resources": words});
    vec![
        (
            "an unknown image",
            json!({"image": "no-such:1"}),
            "422 image.not-found",
        ),
        (
            "an image that is no reference",
            json!({"image": "../../etc"}),
            "422 image.reference-invalid",
        ),
        (
            "no memory",
            resources(json!({"memory": 0})),
            "422 memory.too-small",
        ),
        (
            "negative memory",
            resources(json!({"memory": -1})),
            "422 body.invalid",
        ),
        (
            "10^12 GB of memory",
            resources(json!({"memory": 1_000_000_000_000_000_000_000_f64})),
            "422 body.invalid",
        ),
        (
            "10^12 bytes of memory",
            resources(json!({"memory": 1_000_000_000_000_u64})),
            "422 memory.too-large",
        ),
        (
            "no processor",
            resources(json!({"cpu": 0})),
            "422 cpu.too-small",
        ),
        (
            "a negative processor",
            resources(json!({"cpu": -1})),
            "422 body.invalid",
        ),
        (
            "a thousandth of a core",
            resources(json!({"cpu": 0.001})),
            "422 body.invalid",
        ),
        (
            "more cores than the machine",
            resources(json!({"cpu": 64})),
            "422 cpu.too-large",
        ),
        (
            "a device where there is none",
            resources(json!({"gpu": 1})),
            "422 gpu.none",
        ),
        (
            "shm beyond memory",
            resources(json!({"memory": 67_108_864, "shm": 134_217_728})),
            "422 shm.too-large",
        ),
        (
            "10,000 replicas",
            json!({"replicas": 10_000}),
            "422 replicas.out-of-range",
        ),
        (
            "no copy",
            json!({"replicas": 0}),
            "422 replicas.out-of-range",
        ),
        (
            "replicas as a word",
            json!({"replicas": "two"}),
            "422 body.invalid",
        ),
        (
            "a name with NUL",
            json!({"name": "a\0b"}),
            "422 session.name-invalid",
        ),
        (
            "a name that climbs",
            json!({"name": "../x"}),
            "422 session.name-invalid",
        ),
        (
            "a name of a megabyte",
            json!({"name": long[..900_000]}),
            "422 session.name-invalid",
        ),
        (
            "a name that reads backwards",
            json!({"name": "\u{202e}abc"}),
            "422 session.name-invalid",
        ),
        (
            "a command with NUL",
            json!({"command": ["a\0"]}),
            "422 command.nul",
        ),
        (
            "a command without a program",
            json!({"command": [""]}),
            "422 command.empty",
        ),
        (
            "a batch without a command",
            json!({"kind": "batch"}),
            "422 command.missing",
        ),
        (
            "a command of 900 kB",
            json!({"command": [long[..900_000]]}),
            "422 command.too-long",
        ),
        (
            "a variable without a name",
            json!({"env": {"": "x"}}),
            "422 env.name-invalid",
        ),
        (
            "a variable with NUL",
            json!({"env": {"A": "\0"}}),
            "422 env.nul",
        ),
        (
            "a label that hides",
            json!({"labels": {"a": "x\u{202e}y"}}),
            "422 label.hidden-characters",
        ),
        (
            "a description of two lines",
            json!({"description": "a\nb"}),
            "422 remark.hidden-characters",
        ),
        (
            "a label without a name",
            json!({"labels": {"": "x"}}),
            "422 label.empty",
        ),
        (
            "a label of 900 kB",
            json!({"labels": {"a": long[..900_000]}}),
            "422 label.too-long",
        ),
        (
            "no time at all",
            json!({"kind": "batch", "command": ["x"], "timeout_seconds": 0}),
            "422 seconds.out-of-range",
        ),
        (
            "a time that is none",
            json!({"start_at": "noon"}),
            "422 body.invalid",
        ),
        (
            "an unknown dependency",
            json!({"depends_on": ["nobody"]}),
            "422 dependency.not-found",
        ),
        (
            "a kind that is none",
            json!({"kind": "daemon"}),
            "422 body.invalid",
        ),
        (
            "an unknown field",
            json!({"colour": "red"}),
            "422 body.invalid",
        ),
        (
            "a list instead of an object",
            json!([1, 2]),
            "422 body.invalid",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_launch_is_refused_with_a_code_and_a_way_out_and_leaves_nothing() {
    let the_box = TheBox::open().await;
    let mut wrong = Vec::new();
    for (what, body, expected) in launches() {
        for path in ["/api/v1/sessions", "/api/v1/sessions?dry_run=true"] {
            let answer = the_box.post(&the_box.mina, path, body.clone()).await;
            if answer.short() != expected {
                wrong.push(format!(
                    "{what} at {path}: {} instead of {expected}",
                    answer.short()
                ));
                continue;
            }
            let problem = answer.json();
            let said = problem["detail"].as_str().unwrap_or_default();
            let way_out = problem["hint"].as_str().unwrap_or_default();
            if said.len() < 10 || said.len() > 600 {
                wrong.push(format!(
                    "{what}: says {:?}",
                    said.chars().take(80).collect::<String>()
                ));
            }
            if way_out.is_empty() && problem["errors"].as_array().is_none_or(Vec::is_empty) {
                wrong.push(format!("{what}: neither a hint nor a field"));
            }
            assert_eq!(answer.header("content-type"), "application/problem+json");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let left = the_box.get(&the_box.admin, "/api/v1/sessions").await.json();
    assert_eq!(left["estimated_total"], 0, "something was half done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_cannot_be_read_is_refused_before_anything_happens() {
    let the_box = TheBox::open().await;
    let large = format!("{{\"name\": \"{}\"}}", "x".repeat(2_000_000));
    for (what, body, expected) in [
        (
            "truncated",
            "{\"image\": \"ho".to_owned(),
            "400 body.malformed",
        ),
        ("no JSON", "image=host".to_owned(), "400 body.malformed"),
        ("two values", "{} {}".to_owned(), "400 body.malformed"),
        ("two megabytes", large, "413 body.too-large"),
        (
            "nested 10,000 deep",
            format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)),
            "400 body.malformed",
        ),
    ] {
        let answer = the_box
            .with_body(&the_box.mina, "POST", "/api/v1/sessions", body)
            .await;
        let short = answer.short();
        // A body that nests too deep is wrong by type before it is wrong by depth.
        assert!(
            short == expected || (what.starts_with("nested") && short == "422 body.invalid"),
            "{what}: {short}"
        );
    }
    let request = TheBox::request(&the_box.mina, "POST", "/api/v1/sessions")
        .header("content-type", "text/plain")
        .body(Body::from("{}"))
        .expect("a request");
    assert_eq!(the_box.send(request).await.short(), "400 body.not-json");
    let request = TheBox::request(&the_box.mina, "POST", "/api/v1/sessions")
        .header("content-type", "application/json")
        .body(Body::from(vec![0xff, 0xfe, b'{']))
        .expect("a request");
    assert_eq!(the_box.send(request).await.short(), "400 body.malformed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_questions_and_wrong_changes_are_refused() {
    let the_box = TheBox::open().await;
    let made = the_box
        .launch(
            &the_box.mina,
            json!({"name": "first", "kind": "batch", "command": ["sleep"]}),
        )
        .await;
    the_box
        .launch(
            &the_box.mina,
            json!({"name": "second", "kind": "batch", "command": ["sleep"]}),
        )
        .await;
    let id = made["id"].as_str().expect("an id");
    let mut wrong = Vec::new();
    for (method, path, body, expected) in [
        (
            "POST",
            "/api/v1/sessions",
            json!({"name": "first", "kind": "batch", "command": ["x"]}),
            "409 session.name-taken",
        ),
        (
            "GET",
            "/api/v1/sessions?limit=0",
            Value::Null,
            "422 limit.out-of-range",
        ),
        (
            "GET",
            "/api/v1/sessions?limit=many",
            Value::Null,
            "400 query.malformed",
        ),
        (
            "GET",
            "/api/v1/sessions?q=colour:red",
            Value::Null,
            "422 query.word-unknown",
        ),
        (
            "GET",
            "/api/v1/sessions?q=state:sleepy",
            Value::Null,
            "422 query.state-unknown",
        ),
        (
            "GET",
            "/api/v1/sessions?sort=colour",
            Value::Null,
            "422 sort.unknown",
        ),
        (
            "GET",
            "/api/v1/sessions/..%2f..%2fetc",
            Value::Null,
            "404 session.not-found",
        ),
        (
            "GET",
            "/api/v1/sessions/%00",
            Value::Null,
            "404 session.not-found",
        ),
        (
            "GET",
            "/api/v1/sessions/first?wait=sleepy",
            Value::Null,
            "422 wait.unknown",
        ),
        (
            "PATCH",
            "/api/v1/sessions/first",
            json!({"name": "second"}),
            "409 session.name-taken",
        ),
        (
            "PATCH",
            "/api/v1/sessions/first",
            json!({"name": "a b"}),
            "422 session.name-invalid",
        ),
        (
            "PATCH",
            "/api/v1/sessions/first",
            json!({"state": "ended"}),
            "422 body.invalid",
        ),
        (
            "PATCH",
            "/api/v1/sessions/first",
            json!({"name": "x", "resources": {"cpu": 1}}),
            "422 patch.too-much",
        ),
        (
            "PATCH",
            "/api/v1/sessions/first",
            json!({"name": "x", "labels": {"": "y"}}),
            "422 label.empty",
        ),
        (
            "PATCH",
            "/api/v1/sessions/first",
            json!({"resources": {"memory": 1}}),
            "422 memory.too-small",
        ),
        (
            "DELETE",
            "/api/v1/sessions/first",
            Value::Null,
            "409 session.live",
        ),
        (
            "PUT",
            "/api/v1/sessions/first",
            json!({}),
            "405 method.not-allowed",
        ),
        ("PUT", "/api/v1/me/mail", Value::Null, "400 body.malformed"),
        (
            "GET",
            "/api/v1/sessions/first/attach",
            Value::Null,
            "426 websocket.needed",
        ),
        (
            "GET",
            "/api/v1/events?topics=colours",
            Value::Null,
            "422 topic.unknown",
        ),
        (
            "GET",
            "/api/v1/operations/x",
            Value::Null,
            "404 operation.not-found",
        ),
    ] {
        let answer = if body.is_null() {
            let request = TheBox::request(&the_box.mina, method, path)
                .body(Body::empty())
                .expect("a request");
            the_box.send(request).await
        } else {
            the_box
                .with_body(&the_box.mina, method, path, body.to_string())
                .await
        };
        if answer.short() != expected {
            wrong.push(format!(
                "{method} {path} {body}: {} instead of {expected}",
                answer.short()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let session = the_box
        .get(&the_box.mina, &format!("/api/v1/sessions/{id}"))
        .await
        .json();
    assert_eq!(session["name"], "first");
    assert_eq!(session["labels"], json!({}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_users_passwords_tokens_and_imports_are_refused() {
    let the_box = TheBox::open().await;
    let mut wrong = Vec::new();
    for (path, body, expected) in [
        (
            "/api/v1/users",
            json!({"name": "Mina Park", "password": "long-enough-for-all-7"}),
            "422 user.name-invalid",
        ),
        (
            "/api/v1/users",
            json!({"name": "server", "password": "long-enough-for-all-7"}),
            "422 user.name-reserved",
        ),
        (
            "/api/v1/users",
            json!({"name": "mina", "password": "long-enough-for-all-7"}),
            "409 user.name-taken",
        ),
        (
            "/api/v1/users",
            json!({"name": "new", "password": "short"}),
            "422 password.too-short",
        ),
        (
            "/api/v1/users",
            json!({"name": "new", "password": "password1234"}),
            "422 password.too-common",
        ),
        (
            "/api/v1/users",
            json!({"name": "new", "role": "king", "password": "long-enough-for-all-7"}),
            "422 body.invalid",
        ),
        (
            "/api/v1/users/nobody/password",
            json!({"password": "long-enough-for-all-7"}),
            "404 user.not-found",
        ),
        (
            "/api/v1/me/tokens",
            json!({"name": "t", "scopes": ["everything"]}),
            "422 scope.unknown",
        ),
        (
            "/api/v1/me/tokens",
            json!({"name": "", "scopes": ["me"]}),
            "422 token.name-missing",
        ),
        (
            "/api/v1/me/tokens",
            json!({"name": "t", "scopes": ["me"], "expires_at": "2001-01-01T00:00:00Z"}),
            "422 expires-at.past",
        ),
        (
            "/api/v1/environments/import",
            json!({}),
            "422 import.source",
        ),
        (
            "/api/v1/environments/import",
            json!({"upload": "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f"}),
            "404 upload.not-found",
        ),
        ("/api/v1/images/import", json!({}), "422 import.source"),
        (
            "/api/v1/images/import",
            json!({"upload": "x"}),
            "422 body.invalid",
        ),
        (
            "/api/v1/images/import",
            json!({"upload": "019a0c2e-7d1a-7c3e-9f10-2b6f6c1d2e3f"}),
            "404 upload.not-found",
        ),
        (
            "/api/v1/images/import",
            json!({"path": "/etc/shadow"}),
            "403 image.path-denied",
        ),
        (
            "/api/v1/sign-in",
            json!({"name": "ada", "password": "wrong-password-1"}),
            "401 sign-in.wrong",
        ),
        (
            "/api/v1/sign-in",
            json!({"name": "nobody", "password": "wrong-password-1"}),
            "401 sign-in.wrong",
        ),
    ] {
        let answer = the_box.post(&the_box.admin, path, body.clone()).await;
        if answer.short() != expected {
            wrong.push(format!(
                "{path} {body}: {} instead of {expected}",
                answer.short()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let secret = the_box
        .post(
            &As::Nobody,
            "/api/v1/sign-in",
            json!({"name": "ada", "password": super::the_box::PASSWORD}),
        )
        .await;
    assert_eq!(secret.status, 201);
    let token = As::Token(
        secret.json()["secret"]
            .as_str()
            .expect("a secret")
            .to_owned(),
    );
    assert_eq!(
        the_box.get(&token, "/api/v1/me").await.json()["name"],
        "ada"
    );
}

/// Wrong passwords make a name wait from this address, and the answer says until when.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guessing_passwords_is_stopped() {
    let the_box = TheBox::open().await;
    let guess = json!({"name": "mina", "password": "wrong-password-1"});
    let mut wrong = 0;
    let locked = loop {
        let answer = the_box
            .post(&As::Nobody, "/api/v1/sign-in", guess.clone())
            .await;
        if answer.short() != "401 sign-in.wrong" {
            break answer;
        }
        wrong += 1;
        assert!(wrong <= 10, "guessing goes on");
    };
    assert_eq!(locked.short(), "429 sign-in.locked");
    assert!(
        wrong >= 5,
        "a user who mistypes is locked out after {wrong}"
    );
    let seconds: u64 = locked
        .header("retry-after")
        .parse()
        .expect("a number of seconds");
    assert!((1..=30).contains(&seconds), "{seconds}");
}
