//! The self-test of a card: through the server, with the product's own program on the fake driver, in places
//! that stand for the two sessions. What a container adds is shown in `session.rs`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::link::streams::{
    BoxFuture, ByteStream, ExecRequest, LogStream, Streams, TermOutput, TermStream, WindowSize,
};
use rules::devices::{Health, Hold};
use rules::names::ContainerName;
use rules::refusal::Refusal;
use rules::resources::Device;
use rules::units::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::rig::{MIB, Rig, works};
use crate::server::the_box::TheBox;

const CARD: u64 = 8192 * MIB;

/// One container that stands for a session.
struct Place {
    rig: Rig,
    folder: tempfile::TempDir,
    main: Option<Child>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(main) = &mut self.main {
            let _ = main.kill();
            let _ = main.wait();
        }
    }
}

/// Runs the program where a container would: each of them in a place of its own, over one card.
#[derive(Clone)]
struct Programs {
    places: Arc<Mutex<BTreeMap<ContainerName, Place>>>,
    /// The driver itself instead of our library: nothing holds the limit.
    bare: bool,
}

impl Programs {
    fn new(bare: bool) -> Self {
        Self {
            places: Arc::default(),
            bare,
        }
    }

    /// The command in its place, with the library of that place.
    fn command(&self, container: ContainerName, request: &ExecRequest) -> Command {
        let mut places = self.places.lock().expect("no test panics with it");
        let others = places.values().next().map(|place| &place.rig);
        // Twice as much for whoever tries things as for the neighbour.
        let watched = request.argv[1] == "status";
        let share = if watched { 19 } else { 38 };
        let limit = CARD * share / 100;
        let rig = match others {
            Some(other) => Rig::beside(other, limit),
            None => Rig::with(1, CARD, limit),
        };
        let place = places.entry(container).or_insert_with(|| Place {
            rig,
            folder: tempfile::tempdir().expect("a directory"),
            main: None,
        });
        let library = match self.bare {
            true => place.rig.place.join("libcuda.so.1"),
            false => place.rig.hook(),
        };
        let make = |words: &[String]| {
            let mut command = Command::new(works().folder.join("gpu_test"));
            command
                .env_clear()
                .env("TMPDIR", place.folder.path())
                .env("FARDEL_CUDA", &library)
                .args(words.iter().map(|word| match word.as_str() {
                    "libcuda.so.1" => library.clone(),
                    "/usr/lib/fardel/gpu/libcuda.so.1" => place.rig.place.join("libcuda.so.1"),
                    other => PathBuf::from(other),
                }))
                .stdin(Stdio::null());
            command
        };
        if watched && place.main.is_none() {
            let main = make(&["neighbour".to_owned()])
                .stdout(Stdio::null())
                .spawn();
            place.main = Some(main.expect("the program was compiled"));
        }
        let mut command = make(&request.argv[1..]);
        for (name, value) in &request.env {
            let value = match value.as_str() {
                "/usr/lib/fardel/gpu/libcuda.so.1" => place.rig.place.join("libcuda.so.1"),
                other => PathBuf::from(other),
            };
            command.env(name, value);
        }
        command
    }
}

impl Streams for Programs {
    fn attach(&self, _: ContainerName, _: Option<WindowSize>) -> BoxFuture<TermStream> {
        Box::pin(async { Err(nobody()) })
    }

    fn exec(&self, container: ContainerName, request: ExecRequest) -> BoxFuture<TermStream> {
        assert_eq!(request.argv[0], "/usr/lib/fardel/gpu/test");
        let here = self.clone();
        Box::pin(async move {
            let (input, _typed) = mpsc::channel(1);
            let (words, output) = mpsc::channel(16);
            tokio::task::spawn_blocking(move || {
                let (said, code) = if request.argv[1] == "fence" {
                    // There is no fence here; the one of a container is shown there.
                    ("control refused\ncards 0\n".to_owned(), 0)
                } else {
                    let output = here.command(container, &request).output();
                    let output = output.expect("the program was compiled");
                    let both = [output.stdout, output.stderr].concat();
                    (
                        String::from_utf8_lossy(&both).into_owned(),
                        output.status.code().unwrap_or(128),
                    )
                };
                let _ = words.blocking_send(TermOutput::Stdout(said.into()));
                let _ = words.blocking_send(TermOutput::Exit(code));
            });
            Ok(TermStream { input, output })
        })
    }

    fn logs(&self, _: ContainerName, _: u64, _: bool) -> BoxFuture<LogStream> {
        Box::pin(async { Err(nobody()) })
    }

    fn dial(&self, _: ContainerName, _: u16) -> BoxFuture<ByteStream> {
        Box::pin(async { Err(nobody()) })
    }
}

fn nobody() -> Refusal {
    Refusal::from_parts(
        rules::refusal::RefusalKind::Conflict,
        "container.not-running".into(),
        "It does not run.".into(),
        String::new(),
    )
}

fn card() -> Device {
    Device {
        memory: Bytes(CARD),
        sms: 100,
        uuid: "GPU-under-test".into(),
        driver: "999.99.01".into(),
        hold: Hold::Hook,
        health: Health::Well,
        ..Device::new(0, "made up")
    }
}

async fn a_box(programs: &Programs) -> TheBox {
    let the_box = TheBox::with(&[], vec![card()]).await;
    the_box.server.bring_streams(Arc::new(programs.clone()));
    tokio::spawn(server::keep_house(&the_box.server));
    the_box
}

async fn gpu(the_box: &TheBox) -> Value {
    the_box.get(&the_box.mina, "/api/v1/gpus/0").await.json()
}

/// Begins a test and waits for its end. Answers for the watchdog: whoever takes too much is ended.
async fn tested(the_box: &TheBox) -> Value {
    let begun = the_box
        .post(&the_box.admin, "/api/v1/gpus/0/test", json!({}))
        .await;
    assert_eq!(begun.short(), "202");
    let path = format!(
        "/api/v1/operations/{}",
        begun.json()["id"].as_str().expect("an id")
    );
    let again = the_box
        .post(&the_box.admin, "/api/v1/gpus/0/test", json!({}))
        .await;
    assert_eq!(again.short(), "409 gpu.test-running");
    for _ in 0..1200 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = the_box.get(&the_box.admin, &path).await.json();
        if !["pending", "running"].contains(&now["state"].as_str().expect("a state")) {
            return now;
        }
        if now["step"] == "trespass" {
            let all = the_box.get(&the_box.admin, "/api/v1/sessions").await.json();
            for session in all["items"].as_array().expect("a list") {
                if session["name"]
                    .as_str()
                    .is_some_and(|name| name.contains("wait"))
                {
                    let id = session["id"].as_str().expect("an id");
                    the_box
                        .post(
                            &the_box.admin,
                            &format!("/api/v1/sessions/{id}/kill"),
                            json!({}),
                        )
                        .await;
                }
            }
        }
    }
    panic!("the test has no end");
}

fn failed(report: &Value) -> Vec<String> {
    let all = report["result"]["findings"].as_array().expect("a list");
    let failed = all.iter().filter(|finding| finding["verdict"] != "held");
    let mut names: Vec<String> = failed
        .map(|finding| finding["code"].as_str().expect("a code").to_owned())
        .collect();
    names.dedup();
    names
}

/// Promise (GPUs): The self-test of a GPU runs two ordinary sessions. It tests memory on nine allocation paths,
/// ten ways to reach the driver, the device fence, the cost of a launch, shares of device time, a session over
/// its limit and its neighbour. It judges by measurements alone, and finds a limit that does not hold; the
/// report is signed by the server's certificate authority and stored (fake driver).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_self_test_holds_a_slice_to_its_word_and_signs_what_it_found() {
    let programs = Programs::new(false);
    let the_box = a_box(&programs).await;
    assert_eq!(gpu(&the_box).await["self_test"], "untested");
    let none = the_box
        .get(&the_box.mina, "/api/v1/gpus/0/self-test-report")
        .await;
    assert_eq!(none.short(), "404 gpu.not-tested");
    let ended = tested(&the_box).await;
    assert_eq!(ended["state"], "succeeded", "{ended}");
    let report = the_box
        .get(&the_box.mina, "/api/v1/gpus/0/self-test-report")
        .await
        .json();
    let findings = report["result"]["findings"].as_array().expect("a list");
    assert_eq!(findings.len(), 34, "{report:#}");
    // Nobody gives turns here, so that both get the same time: that is found. What a launch costs is
    // measured elsewhere, on a quiet machine.
    let failed: Vec<String> = failed(&report)
        .into_iter()
        .filter(|code| code != "launch")
        .collect();
    assert_eq!(failed, ["share"], "{report:#}");
    assert_eq!(gpu(&the_box).await["self_test"], "failed");
    // The signature is the authority's, over these very bytes.
    let statement: Value =
        serde_json::from_str(report["statement"].as_str().expect("a text")).expect("JSON");
    assert_eq!(statement, report["result"]);
    let good = signed(&report, report["statement"].as_str().expect("a text"));
    let changed = report["statement"]
        .as_str()
        .expect("a text")
        .replace("FAILED", "held");
    assert!(good && !signed(&report, &format!("{changed} ")));
    // Both of its sessions are over.
    let all = the_box
        .get(&the_box.admin, "/api/v1/sessions?q=state:running")
        .await
        .json();
    assert_eq!(all["items"], json!([]));
}

/// Whether openssl finds the signature good.
fn signed(report: &Value, statement: &str) -> bool {
    use base64::Engine as _;
    let folder = tempfile::tempdir().expect("a directory");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    };
    let authority = file(
        "authority.pem",
        report["authority"].as_str().expect("a text").as_bytes(),
    );
    let signature = base64::engine::general_purpose::STANDARD
        .decode(report["signature"].as_str().expect("a text"))
        .expect("base64");
    let (signature, statement) = (
        file("signature", &signature),
        file("statement", statement.as_bytes()),
    );
    let key = Command::new("openssl")
        .args(["x509", "-pubkey", "-noout", "-in"])
        .arg(authority)
        .output()
        .expect("openssl runs");
    let key = file("key.pem", &key.stdout);
    let checked = Command::new("openssl")
        .args(["dgst", "-sha256", "-verify"])
        .arg(key)
        .arg("-signature")
        .arg(signature)
        .arg(statement)
        .output()
        .expect("openssl runs");
    checked.status.success()
}

/// Proves too: `the_self_test_holds_a_slice_to_its_word_and_signs_what_it_found`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_self_test_notices_when_nothing_holds_the_limit() {
    let programs = Programs::new(true);
    let the_box = a_box(&programs).await;
    let ended = tested(&the_box).await;
    assert_eq!(ended["state"], "succeeded", "{ended}");
    assert_eq!(ended["result"]["passed"], false);
    let report = the_box
        .get(&the_box.mina, "/api/v1/gpus/0/self-test-report")
        .await
        .json();
    let failed = failed(&report);
    assert!(
        failed.contains(&"memory".to_owned()) && failed.contains(&"way".to_owned()),
        "{report:#}"
    );
    assert_eq!(gpu(&the_box).await["self_test"], "failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_is_refused_where_it_would_prove_nothing_or_has_no_room_and_can_be_cancelled() {
    let simulated = node::gpu::simulated::devices("H100:1").expect("a good text");
    let the_box = TheBox::with(&[], simulated).await;
    let unable = the_box
        .post(&the_box.admin, "/api/v1/gpus/0/test", json!({}))
        .await;
    assert_eq!(unable.short(), "503 gpu.test-unable");
    let programs = Programs::new(false);
    the_box.server.bring_streams(Arc::new(programs.clone()));
    let refused = the_box
        .post(&the_box.admin, "/api/v1/gpus/0/test", json!({}))
        .await;
    assert_eq!(refused.short(), "409 gpu.test-simulated");
    assert_eq!(gpu(&the_box).await["self_test"], "none");

    let the_box = a_box(&programs).await;
    let order = json!({"kind": "batch", "command": ["sleep"], "name": "large",
        "resources": {"cpu": 0.1, "memory": 67_108_864, "gpu": 0.9}});
    let id = the_box.launch(&the_box.mina, order).await["id"].clone();
    let id = id.as_str().expect("an id");
    the_box.until(&the_box.mina, id, "running").await;
    let full = the_box
        .post(&the_box.admin, "/api/v1/gpus/0/test", json!({}))
        .await;
    assert_eq!(full.short(), "409 gpu.test-no-room");
    let unknown = the_box
        .post(
            &the_box.admin,
            "/api/v1/gpus/0/test",
            json!({"image": "nobody:1"}),
        )
        .await;
    assert_eq!(
        unknown.short(),
        "409 gpu.test-no-room",
        "first what holds longer"
    );
    the_box
        .post(
            &the_box.mina,
            &format!("/api/v1/sessions/{id}/kill"),
            json!({}),
        )
        .await;
    the_box.until(&the_box.mina, id, "ended").await;
    let begun = the_box
        .post(&the_box.admin, "/api/v1/gpus/0/test", json!({}))
        .await
        .json();
    let path = format!(
        "/api/v1/operations/{}",
        begun["id"].as_str().expect("an id")
    );
    the_box
        .post(&the_box.admin, &format!("{path}/cancel"), json!({}))
        .await;
    for _ in 0..600 {
        let now = the_box.get(&the_box.admin, &path).await.json();
        if now["state"] == "cancelled" {
            assert_eq!(gpu(&the_box).await["self_test"], "untested");
            return;
        }
        assert!(
            now["state"] != "succeeded" && now["state"] != "failed",
            "{now}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_needs_something_to_start_from_and_says_what_would_do() {
    let mut the_box = TheBox::with(&[("FARDEL_HOST_ENVIRONMENT", "false")], vec![card()]).await;
    the_box.server.bring_streams(Arc::new(Programs::new(false)));
    // With the pages beside the API.
    the_box.router =
        fardel::doors::router(the_box.server.clone(), Arc::new(the_box.streams.clone()));
    let ask = async |body: Value| {
        the_box
            .post(&the_box.admin, "/api/v1/gpus/0/test", body)
            .await
    };
    for body in [json!({}), json!({"image": "host"}), json!({"image": " "})] {
        let none = ask(body).await;
        assert_eq!(none.short(), "409 gpu.test-no-environment");
        let hint = none.json()["hint"].as_str().expect("a way out").to_owned();
        assert!(hint.contains("fardel gpu test 0 --image NAME"), "{hint}");
    }
    let unknown = ask(json!({"image": "nobody:1"})).await;
    assert_eq!(unknown.short(), "404 image.not-found");
    assert_eq!(
        ask(json!({"picture": "x"})).await.short(),
        "422 body.invalid"
    );
    // The page says it before anybody presses a button, and has none.
    let page = the_box
        .get(&the_box.browser, "/gpus/GPU-under-test/test")
        .await;
    let text = String::from_utf8_lossy(&page.bytes).into_owned();
    assert!(text.contains("--image NAME"), "{text}");
    let button = "action=\"/gpus/GPU-under-test/test\"";
    assert!(!text.contains(button), "{text}");
    // Whoever presses one of an older page is told the same.
    let pressed = TheBox::request(&the_box.browser, "POST", "/gpus/GPU-under-test/test")
        .header("content-type", "application/x-www-form-urlencoded")
        .header("sec-fetch-site", "same-origin")
        .body(axum::body::Body::empty())
        .expect("a request");
    let pressed = the_box.send(pressed).await;
    assert_eq!(pressed.status, 409);
    let text = String::from_utf8_lossy(&pressed.bytes).into_owned();
    assert!(text.contains("gpu.test-no-environment"), "{text}");
}
