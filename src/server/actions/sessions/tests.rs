//! What users may do with sessions, on a catalog in memory where the files do not matter.

use std::collections::BTreeMap;

use api::sessions::{LaunchRequest, Resize};
use rules::names::UserName;
use rules::placement::Verdict;
use rules::reason::Reason;
use rules::refusal::RefusalKind;
use rules::session::{DesiredState, Outcome};
use rules::units::{Bytes, CpuShare, GpuShare, Timestamp};
use rules::users::Role;

use super::*;
use crate::access::{Via, new_user};
use crate::actions::IdempotencyKey;
use crate::catalog::Lane;

mod inside;
mod policies;
mod several;
mod tables;
mod validation;

/// A server with one machine of four cores and 8 GiB.
fn server() -> Server {
    let server = Server::for_tests();
    server.put_test_node("fardel-01");
    server
}

fn bytes(memory: Bytes) -> Resize {
    Resize {
        memory: Some(memory),
        ..Resize::default()
    }
}

fn cores(hundredths: u32) -> Resize {
    Resize {
        cpu: Some(CpuShare(hundredths)),
        ..Resize::default()
    }
}

fn user(server: &Server, name: &str, role: Role) -> Caller {
    let user = new_user(UserName::parse(name).unwrap(), role, server.clock().now());
    let written = user.clone();
    server
        .catalog()
        .write_now(Lane::Requests, "a user", move |rows| {
            rows.insert_user(&written, "!")
        })
        .unwrap();
    Caller {
        subject: rules::permissions::Subject {
            domain: rules::tenancy::DomainId::DEFAULT,
            user: user.id,
            grants: user.grants_at(server.clock().now()),
            scopes: None,
        },
        name: user.name,
        language: String::new(),
        theme: "system".into(),
        time_zone: String::new(),
        via: Via::LocalRoot,
        must_change_password: false,
        second_factor_due: None,
        source: None,
        request: String::new(),
    }
}

fn named(name: &str) -> LaunchRequest {
    LaunchRequest {
        name: Some(name.into()),
        ..LaunchRequest::default()
    }
}

async fn one(
    server: &Server,
    caller: &Caller,
    request: LaunchRequest,
) -> Result<SessionView, Failure> {
    let mut launched = launch(server, caller, request, None).await?;
    assert_eq!(launched.sessions.len(), 1);
    Ok(launched.sessions.remove(0))
}

fn refusal<T>(result: Result<T, Failure>) -> rules::refusal::Refusal {
    match result {
        Ok(_) => panic!("it was done"),
        Err(Failure::Refusal(refusal)) => refusal,
        Err(Failure::Fault(fault)) => panic!("{}", base::observe::chain(&fault)),
    }
}

fn code<T>(result: Result<T, Failure>) -> String {
    refusal(result).code
}

/// Gives a session its place, runs it, and ends it with this exit code where one is given.
fn carry_out(server: &Server, id: SessionId, exit: Option<i32>) {
    let node = server.node();
    server
        .catalog()
        .write_now(Lane::Loops, "carry out", move |rows| {
            let now = rows.now;
            let because = Reason::from_parts("placement.room".into(), "Room.".into());
            rows.change_session(id, None, "test", None, |s| {
                s.place(node, vec![], because, now);
                true
            })?;
            rows.change_session(id, None, "test", None, |s| {
                s.run_since(now);
                true
            })?;
            if let Some(exit) = exit {
                rows.change_session(id, None, "test", None, |s| {
                    let outcome = if exit == 0 {
                        Outcome::Succeeded
                    } else {
                        Outcome::Failed
                    };
                    s.end(outcome, Some(exit), now);
                    true
                })?;
            }
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn a_launch_is_a_row_and_an_event_and_can_be_found_by_name_id_and_prefix() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let session = one(&server, &mina, named("vit")).await.unwrap();
    assert_eq!(
        (session.state, session.generation),
        (SessionState::Pending, 1)
    );
    let id = session.id.to_string();
    for text in ["vit", &id, &id[..12]] {
        assert_eq!(get(&server, &mina, text).await.unwrap(), session, "{text}");
    }
    let events = events(&server, &mina, "vit").await.unwrap();
    let codes: Vec<&str> = events.iter().map(|e| e.code.as_str()).collect();
    assert_eq!(codes, ["session.accepted"]);
    let made_up = one(&server, &mina, LaunchRequest::default()).await.unwrap();
    assert!(
        made_up.name.as_str().starts_with("host-"),
        "{}",
        made_up.name
    );
}

#[tokio::test]
async fn why_a_session_has_its_place_is_told_once() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let session = one(&server, &mina, named("vit")).await.unwrap();
    carry_out(&server, session.id, None);
    let events = events(&server, &mina, "vit").await.unwrap();
    let told = events.iter().filter(|event| event.after == "Room.");
    assert_eq!(told.count(), 1, "{events:?}");
}

/// Who stopped it stands in the end, too, not only where it began to stop: an end without its reason looks like a fault.
#[tokio::test]
async fn the_end_of_a_stopped_session_tells_why() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let session = one(&server, &mina, named("vit")).await.unwrap();
    carry_out(&server, session.id, None);
    stop(&server, &mina, "vit", false).await.unwrap();
    let id = session.id;
    server
        .catalog()
        .write_now(Lane::Loops, "end", move |rows| {
            let now = rows.now;
            rows.change_session(id, None, "test", None, |s| {
                s.end(Outcome::Stopped, None, now);
                true
            })?;
            Ok(())
        })
        .unwrap();
    let events = events(&server, &mina, &id.to_string()).await.unwrap();
    let end = events
        .iter()
        .find(|event| event.code == rules::codes::SESSION_ENDED);
    assert_eq!(
        end.map(|event| event.after.as_str()),
        Some("It was stopped by mina.")
    );
}

#[tokio::test]
async fn who_takes_a_place_next_is_named_to_those_who_may_see_them() {
    let server = server();
    let [mina, jae] = ["mina", "jae"].map(|name| user(&server, name, Role::User));
    let boss = user(&server, "boss", Role::Administrator);
    let big = |name: &str| {
        let mut request = named(name);
        request.resources.cpu = Some(CpuShare(300));
        request
    };
    let runs = one(&server, &mina, big("runs")).await.unwrap();
    carry_out(&server, runs.id, None);
    one(&server, &jae, big("waits")).await.unwrap();
    let next = async |caller: &Caller, ending: Vec<SessionId>| {
        let next = next_in_place(&server, caller, ending).await.unwrap();
        next.map(|(name, owner)| format!("{name} of {owner}"))
    };
    let named = next(&boss, vec![runs.id]).await;
    assert_eq!(named.as_deref(), Some("waits of jae"));
    assert_eq!(next(&boss, Vec::new()).await, None, "there is no room now");
    assert_eq!(next(&mina, vec![runs.id]).await, None, "not hers to see");
}

#[tokio::test]
async fn replicas_come_all_or_none() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    one(&server, &mina, named("job-3")).await.unwrap();
    let many = LaunchRequest {
        replicas: 5,
        ..named("job")
    };
    assert_eq!(
        code(launch(&server, &mina, many.clone(), None).await),
        "session.name-taken"
    );
    assert_eq!(
        code(preview(&server, &mina, many.clone()).await),
        "session.name-taken"
    );
    let all = async || {
        list(&server, &mina, &ListQuery::default())
            .await
            .unwrap()
            .items
            .len()
    };
    assert_eq!(all().await, 1);
    stop(&server, &mina, "job-3", false).await.unwrap();
    let launched = launch(&server, &mina, many, None).await.unwrap();
    let names: Vec<String> = launched
        .sessions
        .iter()
        .map(|s| s.name.to_string())
        .collect();
    assert_eq!(names, ["job-1", "job-2", "job-3", "job-4", "job-5"]);
    assert_eq!(all().await, 6);
}

#[tokio::test]
async fn the_same_key_acts_once_and_another_body_is_refused() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let jae = user(&server, "jae", Role::User);
    let key = |digest: u8| IdempotencyKey {
        key: "k1".into(),
        route: "POST /api/v1/sessions".into(),
        body_digest: [digest; 32],
    };
    let first = launch(&server, &mina, named("a"), Some(key(1)))
        .await
        .unwrap();
    let again = launch(&server, &mina, named("a"), Some(key(1)))
        .await
        .unwrap();
    assert!(!first.replayed && again.replayed);
    assert_eq!(first.sessions, again.sessions);
    let reused = refusal(launch(&server, &mina, named("b"), Some(key(2))).await);
    assert_eq!(
        (reused.kind, reused.code.as_str()),
        (RefusalKind::Invalid, "idempotency.key-reused")
    );
    // Keys are everybody's own.
    assert!(
        !launch(&server, &jae, named("a"), Some(key(2)))
            .await
            .unwrap()
            .replayed
    );
    // A day later the key is free.
    server
        .clock()
        .set(server.clock().now().plus_seconds(86_401));
    assert_eq!(
        code(launch(&server, &mina, named("a"), Some(key(1))).await),
        "session.name-taken"
    );
}

#[tokio::test]
async fn bad_input_is_refused_by_field_and_nothing_is_left_behind() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let long = "x".repeat(1 << 20);
    let with = |change: &dyn Fn(&mut LaunchRequest)| {
        let mut request = named("ok");
        change(&mut request);
        request
    };
    let cases: Vec<(LaunchRequest, RefusalKind, &str)> = vec![
        (
            with(&|r| r.image = "nothing:here".into()),
            RefusalKind::Invalid,
            "image.not-found",
        ),
        (
            with(&|r| r.image = "../etc".into()),
            RefusalKind::Invalid,
            "image.reference-invalid",
        ),
        (
            with(&|r| r.image = long.clone()),
            RefusalKind::Invalid,
            "image.too-long",
        ),
        (
            with(&|r| r.image = "a\0b".into()),
            RefusalKind::Invalid,
            "image.nul",
        ),
        (
            with(&|r| r.name = Some("../x".into())),
            RefusalKind::Invalid,
            "session.name-invalid",
        ),
        (
            with(&|r| r.name = Some("a\0".into())),
            RefusalKind::Invalid,
            "session.name-invalid",
        ),
        (
            with(&|r| r.name = Some("\u{202e}abc".into())),
            RefusalKind::Invalid,
            "session.name-invalid",
        ),
        (
            with(&|r| r.name = Some(long.clone())),
            RefusalKind::Invalid,
            "session.name-invalid",
        ),
        (
            with(&|r| r.replicas = 0),
            RefusalKind::Invalid,
            "replicas.out-of-range",
        ),
        (
            with(&|r| r.replicas = 10_000),
            RefusalKind::Invalid,
            "replicas.out-of-range",
        ),
        (
            with(&|r| {
                r.replicas = 500;
                r.name = Some("x".repeat(62));
            }),
            RefusalKind::Invalid,
            "session.name-invalid",
        ),
        (
            with(&|r| r.resources.memory = Some(Bytes(0))),
            RefusalKind::Invalid,
            "memory.too-small",
        ),
        (
            with(&|r| r.resources.memory = Some(Bytes(1_000_000_000_000))),
            RefusalKind::Capacity,
            "memory.too-large",
        ),
        (
            with(&|r| r.resources.cpu = Some(CpuShare(0))),
            RefusalKind::Invalid,
            "cpu.too-small",
        ),
        (
            with(&|r| r.resources.cpu = Some(CpuShare(99_900))),
            RefusalKind::Capacity,
            "cpu.too-large",
        ),
        (
            with(&|r| r.resources.gpu = Some(GpuShare(50))),
            RefusalKind::Capacity,
            "gpu.none",
        ),
        (
            with(&|r| r.resources.shm = Some(Bytes::gib(5))),
            RefusalKind::Invalid,
            "shm.too-large",
        ),
        (
            with(&|r| r.kind = SessionKind::Batch),
            RefusalKind::Invalid,
            "command.missing",
        ),
        (
            with(&|r| r.command = vec!["".into()]),
            RefusalKind::Invalid,
            "command.empty",
        ),
        (
            with(&|r| r.command = vec!["a\0".into()]),
            RefusalKind::Invalid,
            "command.nul",
        ),
        (
            with(&|r| r.command = vec![long.clone()]),
            RefusalKind::Invalid,
            "command.too-long",
        ),
        (
            with(&|r| r.command = vec!["x".repeat(100_000); 4]),
            RefusalKind::TooLarge,
            "session.too-large",
        ),
        (
            with(&|r| drop(r.env.insert("A=B".into(), "".into()))),
            RefusalKind::Invalid,
            "env.name-invalid",
        ),
        (
            with(&|r| drop(r.env.insert("A".into(), "\0".into()))),
            RefusalKind::Invalid,
            "env.nul",
        ),
        (
            with(&|r| drop(r.labels.insert("a".into(), "\u{202e}".into()))),
            RefusalKind::Invalid,
            "label.hidden-characters",
        ),
        (
            with(&|r| drop(r.labels.insert("a".into(), long.clone()))),
            RefusalKind::Invalid,
            "label.too-long",
        ),
        (
            with(&|r| r.depends_on = vec!["ok".into()]),
            RefusalKind::Invalid,
            "dependency.cycle",
        ),
        (
            with(&|r| r.depends_on = vec!["nobody".into()]),
            RefusalKind::Invalid,
            "dependency.not-found",
        ),
        (
            with(&|r| r.depends_on = vec!["a".into(); 99]),
            RefusalKind::Invalid,
            "dependency.too-many",
        ),
        (
            with(&|r| r.timeout_seconds = Some(5)),
            RefusalKind::Invalid,
            "timeout.batch-only",
        ),
        (
            with(&|r| r.max_runtime_seconds = Some(0)),
            RefusalKind::Invalid,
            "seconds.out-of-range",
        ),
        (
            with(&|r| r.start_at = Some(Timestamp::from_millis(i64::MAX))),
            RefusalKind::Invalid,
            "start-at.too-far",
        ),
    ];
    for (request, kind, wanted) in cases {
        let refused = refusal(launch(&server, &mina, request.clone(), None).await);
        assert_eq!((refused.kind, refused.code.as_str()), (kind, wanted));
        assert!(
            refused.pointer.is_some() || kind == RefusalKind::TooLarge,
            "{refused:?}"
        );
        // A preview refuses the same, but for what it may call impossible in its answer.
        assert_eq!(code(preview(&server, &mina, request).await), wanted);
    }
    let page = list(&server, &mina, &ListQuery::default()).await.unwrap();
    assert_eq!(page.items, []);
}

#[test]
fn the_body_of_a_launch_takes_no_unknown_fields() {
    let read = |text: &str| serde_json::from_str::<LaunchRequest>(text);
    assert_eq!(read("{}").unwrap(), LaunchRequest::default());
    let full = read(r#"{"name":"a","kind":"batch","command":["true"],"resources":{"cpu":0.5,"memory":268435456}}"#)
        .unwrap();
    assert_eq!(full.resources.cpu, Some(CpuShare(50)));
    for bad in [
        r#"{"nmae":"a"}"#,
        r#"{"resources":{"cpu":0.123}}"#,
        r#"{"replicas":-1}"#,
        r#"{"resources":{"memory":-1}}"#,
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}

/// Proves too: `every_act_asks_for_its_capability_first`
#[tokio::test]
async fn others_sessions_do_not_exist_for_a_user() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let jae = user(&server, "jae", Role::User);
    let boss = user(&server, "boss", Role::Administrator);
    let session = one(&server, &mina, named("secret")).await.unwrap();
    let id = session.id.to_string();
    for text in ["secret", &id, &id[..12]] {
        for result in [
            code(get(&server, &jae, text).await),
            code(stop(&server, &jae, text, true).await),
            code(restart(&server, &jae, text).await),
            code(rename(&server, &jae, text, "mine", None).await),
            code(set_labels(&server, &jae, text, BTreeMap::new(), None).await),
            code(resize(&server, &jae, text, cores(1), None).await),
            code(pause(&server, &jae, text).await),
            code(resume(&server, &jae, text).await),
            code(delete(&server, &jae, text).await),
            code(duplicate(&server, &jae, text).await),
            code(why(&server, &jae, text).await),
            code(events(&server, &jae, text).await),
            code(enter(&server, &jae, text).await),
            code(read_logs(&server, &jae, text).await),
        ] {
            assert_eq!(result, "session.not-found", "{text}");
        }
    }
    assert_eq!(get(&server, &boss, "secret").await.unwrap().id, session.id);
    let seen = |page: ListPage<SessionView>| page.items.len();
    let all = ListQuery::default();
    let mine = ListQuery {
        scope: Some("mine".into()),
        ..ListQuery::default()
    };
    assert_eq!(seen(list(&server, &jae, &all).await.unwrap()), 0);
    assert_eq!(seen(list(&server, &boss, &all).await.unwrap()), 1);
    assert_eq!(seen(list(&server, &boss, &mine).await.unwrap()), 0);
    assert_eq!(
        code(
            launch(
                &server,
                &jae,
                LaunchRequest {
                    depends_on: vec![id],
                    ..LaunchRequest::default()
                },
                None
            )
            .await
        ),
        "dependency.not-found"
    );
}

/// Proves too: `every_act_asks_for_its_capability_first`
#[tokio::test]
async fn a_token_does_only_what_its_scopes_say() {
    let server = server();
    let mut robot = user(&server, "robot", Role::Administrator);
    one(&server, &robot, named("a")).await.unwrap();
    robot.subject.scopes = Some(vec![Permission::SessionsRead]);
    assert!(get(&server, &robot, "a").await.is_ok());
    for result in [
        code(launch(&server, &robot, named("b"), None).await),
        code(preview(&server, &robot, named("b")).await),
        code(stop(&server, &robot, "a", false).await),
        code(enter(&server, &robot, "a").await),
    ] {
        assert_eq!(result, "token.scope-missing");
    }
    robot.subject.scopes = Some(vec![]);
    for result in [
        code(get(&server, &robot, "a").await),
        code(list(&server, &robot, &ListQuery::default()).await),
        code(queue(&server, &robot, None).await),
    ] {
        assert_eq!(result, "token.scope-missing");
    }
}

#[tokio::test]
async fn stopping_is_graceful_then_forced_and_harmless_afterwards() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let session = one(&server, &mina, named("a")).await.unwrap();
    carry_out(&server, session.id, None);
    let stopping = stop(&server, &mina, "a", false).await.unwrap();
    assert_eq!(
        (stopping.state, stopping.desired),
        (SessionState::Stopping, DesiredState::Stop)
    );
    assert_eq!(stopping.reason.unwrap().text, "It was stopped by mina.");
    let killed = stop(&server, &mina, "a", true).await.unwrap();
    assert_eq!(killed.desired, DesiredState::Kill);
    let again = stop(&server, &mina, "a", false).await.unwrap();
    assert_eq!(again.generation, killed.generation);
    let waiting = one(&server, &mina, named("b")).await.unwrap();
    let ended = stop(&server, &mina, &waiting.id.to_string(), false)
        .await
        .unwrap();
    assert_eq!(
        (ended.state, ended.outcome),
        (SessionState::Ended, Some(Outcome::Stopped))
    );
}

#[tokio::test]
async fn a_restart_is_the_next_incarnation_and_a_stop_calls_it_off() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let session = one(&server, &mina, named("a")).await.unwrap();
    carry_out(&server, session.id, Some(3));
    let again = restart(&server, &mina, "a").await.unwrap();
    assert_eq!((again.state, again.incarnation), (SessionState::Pending, 2));
    assert_eq!((again.exit_code, again.outcome), (None, None));
    carry_out(&server, session.id, None);
    restart(&server, &mina, "a").await.unwrap();
    let row = |server: &Server| {
        server
            .catalog()
            .read_now("row", |view| view.session(session.id))
            .unwrap()
            .unwrap()
    };
    assert!(row(&server).restart && row(&server).state() == SessionState::Stopping);
    stop(&server, &mina, "a", false).await.unwrap();
    assert!(!row(&server).restart);
}

#[tokio::test]
async fn launches_go_on_as_soon_as_the_key_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let settings = base::settings::Settings {
        data: folder.path().to_path_buf(),
        ..(*Server::for_tests().settings()).clone()
    };
    let server = Server::start(settings, base::observe::Clock::system()).unwrap();
    server.put_test_node("fardel-01");
    let root = crate::access::local_root(&server);
    let key = folder.path().join("seal.key");
    let own = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    // It is missed though no request asks for the state's health.
    let looking = tokio::spawn(crate::keep_looking(server.clone()));
    let missed = async {
        while server.catalog().health().troubles().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let in_time = tokio::time::timeout(std::time::Duration::from_secs(60), missed).await;
    in_time.expect("it looks for the key when it starts");
    looking.abort();
    let launched = one(&server, &root, named("a")).await;
    assert_eq!(code(launched), "state.key-missing");
    std::fs::write(&key, own).unwrap();
    one(&server, &root, named("a")).await.unwrap();
    assert!(server.catalog().health().troubles().is_empty());
}

#[tokio::test]
async fn a_queue_without_end_is_refused_by_name() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    server.catalog().note_live(50_000);
    let full = refusal(launch(&server, &mina, named("a"), None).await);
    assert_eq!(
        (full.kind, full.code.as_str()),
        (RefusalKind::TooOften, "queue.full")
    );
    server.catalog().note_live(49_999);
    one(&server, &mina, named("a")).await.unwrap();
}

#[tokio::test]
async fn a_restart_is_refused_while_another_has_the_name() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let old = one(&server, &mina, named("a")).await.unwrap();
    carry_out(&server, old.id, Some(1));
    one(&server, &mina, named("a")).await.unwrap();
    let id = old.id.to_string();
    assert_eq!(
        code(restart(&server, &mina, &id).await),
        "session.name-taken"
    );
    assert_eq!(
        get(&server, &mina, &id).await.unwrap().state,
        SessionState::Ended,
        "a refused restart leaves the session as it was"
    );
}

#[tokio::test]
async fn a_stale_change_is_refused_and_a_name_can_be_free_again() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let session = one(&server, &mina, named("a")).await.unwrap();
    one(&server, &mina, named("b")).await.unwrap();
    let renamed = rename(&server, &mina, "a", "c", Some(session.generation))
        .await
        .unwrap();
    assert_eq!(renamed.name.as_str(), "c");
    let stale = refusal(rename(&server, &mina, "c", "d", Some(session.generation)).await);
    assert_eq!(
        (stale.kind, stale.code.as_str()),
        (RefusalKind::Stale, "session.stale")
    );
    assert_eq!(
        code(rename(&server, &mina, "c", "b", None).await),
        "session.name-taken"
    );
    assert_eq!(
        code(rename(&server, &mina, "c", "..", None).await),
        "session.name-invalid"
    );
    assert_eq!(
        get(&server, &mina, "c").await.unwrap().generation,
        renamed.generation
    );
    let labels = BTreeMap::from([("team".to_owned(), "vision".to_owned())]);
    let labelled = set_labels(&server, &mina, "c", labels.clone(), None)
        .await
        .unwrap();
    assert_eq!(labelled.labels, labels);
}

#[tokio::test]
async fn a_resize_holds_to_what_the_machine_has_left() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let session = one(&server, &mina, named("a")).await.unwrap();
    let other = one(&server, &mina, named("b")).await.unwrap();
    carry_out(&server, session.id, None);
    carry_out(&server, other.id, None);
    let grown = resize(
        &server,
        &mina,
        "a",
        Resize {
            memory: Some(Bytes::gib(7)),
            ..cores(300)
        },
        None,
    )
    .await
    .unwrap();
    assert_eq!(grown.resources.cpu, CpuShare(300));
    let full = refusal(resize(&server, &mina, "a", cores(301), None).await);
    assert_eq!(full.code, "resize.no-room");
    assert!(full.hint.contains("3 cores and 7 GiB"), "{}", full.hint);
    assert_eq!(
        code(resize(&server, &mina, "a", cores(900), None).await),
        "cpu.too-large"
    );
    assert_eq!(
        code(resize(&server, &mina, "a", bytes(Bytes(1)), None).await),
        "memory.too-small"
    );
    carry_out(&server, other.id, Some(0));
    assert_eq!(
        code(resize(&server, &mina, "b", bytes(Bytes::gib(2)), None).await),
        "session.ended"
    );
}

#[tokio::test]
async fn a_growth_takes_nothing_that_is_kept_for_the_queue() {
    let server = server();
    let (mina, jo) = (
        user(&server, "mina", Role::User),
        user(&server, "jo", Role::User),
    );
    for name in ["a", "b"] {
        let session = one(&server, &mina, named(name)).await.unwrap();
        carry_out(&server, session.id, None);
    }
    let mut front = named("front");
    front.resources.cpu = Some(CpuShare(300));
    let front = one(&server, &jo, front).await.unwrap();
    let kept = refusal(resize(&server, &mina, "a", cores(150), None).await);
    assert_eq!(
        (kept.kind, kept.code.as_str()),
        (RefusalKind::Capacity, "resize.kept")
    );
    assert!(
        kept.text.contains("the first session in the queue"),
        "{kept}"
    );
    assert!(kept.hint.contains("At most 1 core and "), "{}", kept.hint);
    let told = kept.to_string();
    assert!(!told.contains("front"), "not whose: {told}");
    assert!(!told.contains("jo"), "not whose: {told}");
    let before = get(&server, &mina, "a").await.unwrap();
    assert_eq!(before.resources.cpu, CpuShare(100), "nothing was changed");
    let smaller = resize(&server, &mina, "b", cores(50), None).await.unwrap();
    assert_eq!(smaller.resources.cpu, CpuShare(50));
    stop(&server, &jo, &front.id.to_string(), false)
        .await
        .unwrap();
    let grown = resize(&server, &mina, "a", cores(150), None).await.unwrap();
    assert_eq!(grown.resources.cpu, CpuShare(150));
}

/// A time limit that let a session grow before the first one in the queue stays, as one that let it start does.
#[tokio::test]
async fn what_is_over_in_time_grows_and_keeps_its_limit() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let limited = |name: &str, seconds| LaunchRequest {
        max_runtime_seconds: Some(seconds),
        ..named(name)
    };
    for (name, seconds) in [("long", 900), ("short", 600)] {
        let session = one(&server, &mina, limited(name, seconds)).await.unwrap();
        carry_out(&server, session.id, None);
    }
    let mut front = named("front");
    front.resources.cpu = Some(CpuShare(300));
    one(&server, &mina, front).await.unwrap();
    // Once short is over the front has its room beside what long has now.
    let kept = refusal(resize(&server, &mina, "long", cores(150), None).await);
    assert_eq!(kept.code, "resize.kept");
    assert!(kept.text.contains("starts within 10 min"), "{kept}");
    assert!(kept.hint.contains("time limit"), "{}", kept.hint);
    let grown = resize(&server, &mina, "short", cores(150), None)
        .await
        .unwrap();
    assert_eq!(grown.resources.cpu, CpuShare(150));
    let row = server
        .catalog()
        .read_now("look at a session", move |view| view.session(grown.id))
        .unwrap();
    assert!(row.unwrap().backfilled, "its time limit is not extended");
}

#[tokio::test]
async fn only_a_running_session_can_be_paused() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let session = one(&server, &mina, named("a")).await.unwrap();
    assert_eq!(
        code(pause(&server, &mina, "a").await),
        "session.not-running"
    );
    carry_out(&server, session.id, None);
    assert!(pause(&server, &mina, "a").await.unwrap().paused);
    assert!(!resume(&server, &mina, "a").await.unwrap().paused);
}

#[tokio::test]
async fn only_an_ended_session_nobody_waits_for_can_be_deleted() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let first = one(&server, &mina, named("first")).await.unwrap();
    assert_eq!(code(delete(&server, &mina, "first").await), "session.live");
    let second = LaunchRequest {
        depends_on: vec!["first".into(), first.id.to_string()],
        ..named("second")
    };
    let second = one(&server, &mina, second).await.unwrap();
    assert_eq!(second.depends_on, [first.id]);
    carry_out(&server, first.id, Some(0));
    assert_eq!(
        code(delete(&server, &mina, "first").await),
        "session.depended-on"
    );
    stop(&server, &mina, "second", false).await.unwrap();
    delete(&server, &mina, "first").await.unwrap();
    assert_eq!(
        code(get(&server, &mina, "first").await),
        "session.not-found"
    );
    let third = LaunchRequest {
        depends_on: vec!["second".into()],
        ..named("third")
    };
    assert_eq!(
        code(launch(&server, &mina, third, None).await),
        "dependency.failed"
    );
}

#[tokio::test]
async fn pages_of_a_list_neither_lose_nor_repeat_and_cursors_are_bound() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    for n in 0..23 {
        server.clock().set(server.clock().now().plus_seconds(n % 3));
        one(&server, &mina, named(&format!("s{n}"))).await.unwrap();
    }
    for sort in [
        "-created_at",
        "created_at",
        "name",
        "-name",
        "started_at",
        "-ended_at",
    ] {
        let mut query = ListQuery {
            sort: Some(sort.into()),
            limit: Some(5),
            ..ListQuery::default()
        };
        let mut seen = std::collections::BTreeSet::new();
        let mut pages = 0;
        loop {
            let page = list(&server, &mina, &query).await.unwrap();
            assert_eq!(page.estimated_total, 23);
            pages += 1;
            for item in page.items {
                assert!(seen.insert(item.id), "{sort} repeats {}", item.name);
            }
            match page.next_cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => break,
            }
        }
        assert_eq!((seen.len(), pages), (23, 5), "{sort}");
        if let Some(cursor) = &query.cursor {
            for other in [
                ListQuery {
                    q: "s1".into(),
                    ..query.clone()
                },
                ListQuery {
                    sort: None,
                    ..query.clone()
                },
                ListQuery {
                    cursor: Some(format!("{cursor}A")),
                    ..query.clone()
                },
            ] {
                if other != query {
                    assert_eq!(code(list(&server, &mina, &other).await), "cursor.invalid");
                }
            }
        }
    }
    let limit = ListQuery {
        limit: Some(0),
        ..ListQuery::default()
    };
    assert_eq!(
        code(list(&server, &mina, &limit).await),
        "limit.out-of-range"
    );
}

#[tokio::test]
async fn a_query_narrows_a_list() {
    let server = server();
    let mina = user(&server, "mina", Role::Administrator);
    let jae = user(&server, "jae", Role::User);
    let mut labelled = named("vit-1");
    labelled.labels.insert("team".into(), "vision".into());
    let vit = one(&server, &mina, labelled).await.unwrap();
    let mut batch = named("train");
    batch.kind = SessionKind::Batch;
    batch.command = vec!["python3".into(), "Digits.py".into()];
    one(&server, &jae, batch).await.unwrap();
    carry_out(&server, vit.id, None);
    for (q, wanted) in [
        ("", vec!["train", "vit-1"]),
        ("state:running", vec!["vit-1"]),
        ("state:running state:pending", vec!["train", "vit-1"]),
        ("state:live", vec!["train", "vit-1"]),
        ("state:ended", vec![]),
        ("owner:jae", vec!["train"]),
        ("kind:batch", vec!["train"]),
        ("name:vi", vec!["vit-1"]),
        ("image:host", vec!["train", "vit-1"]),
        ("label:team=vision", vec!["vit-1"]),
        ("label:team", vec!["vit-1"]),
        ("label:team=audio", vec![]),
        ("digits", vec!["train"]),
        ("digits owner:mina", vec![]),
        ("%", vec![]),
    ] {
        let query = ListQuery {
            q: q.into(),
            sort: Some("name".into()),
            ..ListQuery::default()
        };
        let page = list(&server, &mina, &query).await.unwrap();
        let names: Vec<&str> = page.items.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, wanted, "{q}");
    }
}

/// Proves too: `every_answer_about_the_queue_is_the_same_answer`
#[tokio::test]
async fn preview_queue_and_why_agree_and_are_discreet() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let jae = user(&server, "jae", Role::User);
    let big = |name: &str| {
        let mut request = named(name);
        request.resources.cpu = Some(CpuShare(300));
        request
    };
    let fits = preview(&server, &mina, big("confidential")).await.unwrap();
    assert_eq!(fits.verdict, Verdict::Now);
    let first = one(&server, &mina, big("running")).await.unwrap();
    carry_out(&server, first.id, None);
    one(&server, &mina, big("confidential")).await.unwrap();
    server.clock().set(server.clock().now().plus_seconds(1));
    one(&server, &jae, big("later")).await.unwrap();
    let queue_of_jae = queue(&server, &jae, None).await.unwrap().items;
    let (session, explained) = (&queue_of_jae[0].session, &queue_of_jae[0].why);
    assert_eq!((queue_of_jae.len(), session.name.as_str()), (1, "later"));
    assert_eq!(explained.queue_position, Some(2));
    assert_eq!(*explained, why(&server, &jae, "later").await.unwrap());
    let told = serde_json::to_string(explained).unwrap();
    assert!(!told.contains("confidential"), "{told}");
    assert!(
        explained.sentence.contains("another user"),
        "{}",
        explained.sentence
    );
    let to_its_owner = queue(&server, &mina, None).await.unwrap().items;
    assert_eq!(to_its_owner[0].session.name.as_str(), "confidential");
}

#[tokio::test]
async fn a_duplicate_launches_the_same_under_a_free_name() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let mut request = named("vit-2");
    request.env.insert("A".into(), "b".into());
    request.resources.cpu = Some(CpuShare(50));
    one(&server, &mina, request).await.unwrap();
    let again = duplicate(&server, &mina, "vit-2").await.unwrap();
    assert_eq!(again.name.as_deref(), Some("vit-3"));
    let session = one(&server, &mina, again).await.unwrap();
    assert_eq!(session.env["A"], "b");
    assert_eq!(session.resources.cpu, CpuShare(50));
    carry_out(&server, session.id, Some(0));
    let third = duplicate(&server, &mina, "vit-2").await.unwrap();
    assert_eq!(
        third.name.as_deref(),
        Some("vit-4"),
        "no name of the history is repeated"
    );
}

#[tokio::test]
async fn an_overview_shows_others_work_as_room_without_names() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let jae = user(&server, "jae", Role::User);
    let boss = user(&server, "boss", Role::Administrator);
    let hers = one(&server, &mina, named("confidential")).await.unwrap();
    carry_out(&server, hers.id, None);
    let his = one(&server, &jae, named("his")).await.unwrap();
    carry_out(&server, his.id, Some(3));
    let to_jae = overview(&server, &jae).await.unwrap();
    let text = serde_json::to_string(&to_jae).unwrap();
    assert!(
        !text.contains("confidential") && !text.contains("mina"),
        "{text}"
    );
    let machine = &to_jae.machines[0];
    assert_eq!((machine.cpu_used, machine.slices.len()), (CpuShare(100), 1));
    assert_eq!(
        (
            to_jae.counts.running,
            to_jae.counts.ended,
            to_jae.counts.failed
        ),
        (0, 1, 1)
    );
    assert_eq!(to_jae.own, OwnUsage::default());
    let to_boss = overview(&server, &boss).await.unwrap();
    assert_eq!(
        to_boss.machines[0].slices[0].name.as_deref(),
        Some("confidential")
    );
    assert_eq!(to_boss.counts.running, 1);
    // What a plain user is told of the whole: how many hold what is given, not how many are theirs.
    assert_eq!((to_jae.holding, to_boss.holding), (1, 1));
    assert_eq!(to_boss.findings, []);
    let own = overview(&server, &mina).await.unwrap().own;
    assert_eq!((own.live, own.running, own.memory), (1, 1, Bytes::gib(1)));
}

#[tokio::test]
async fn a_machine_without_sessions_is_idle_and_not_unknown() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let busy = async || {
        let seen = overview(&server, &mina).await.unwrap();
        let machine = &seen.machines[0];
        (machine.cpu_busy, machine.memory_busy)
    };
    let over = one(&server, &mina, named("over")).await.unwrap();
    carry_out(&server, over.id, Some(0));
    let (cpu, memory) = busy().await;
    assert_eq!((cpu, memory), (Some(0.0), Some(Bytes::ZERO)));
    assert!(cpu.is_some_and(f64::is_sign_positive), "no minus before it");
    let runs = one(&server, &mina, named("runs")).await.unwrap();
    carry_out(&server, runs.id, None);
    assert_eq!(busy().await, (None, None), "nothing was measured yet");
}

#[tokio::test]
async fn a_history_of_another_user_is_for_those_who_see_their_sessions() {
    use crate::actions::history::{history, recent, users};
    use api::history::HistoryRange;
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let jae = user(&server, "jae", Role::User);
    let boss = user(&server, "boss", Role::Administrator);
    let session = one(&server, &mina, named("a")).await.unwrap();
    carry_out(&server, session.id, None);
    crate::history::keep_one(&server).await.unwrap();
    let day = HistoryRange::Day;
    for (caller, of) in [
        (&mina, "me"),
        (&mina, "user:mina"),
        (&boss, "user:mina"),
        (&jae, "site"),
        (&jae, ""),
    ] {
        let seen = history(&server, caller, of, day).await.unwrap();
        assert_eq!(seen.points.len(), 1, "{of}");
        assert_eq!(seen.points[0].cpu_allocated, 1.0, "{of}");
        assert_eq!(seen.points[0].memory_allocated, 1024.0 * 1024.0 * 1024.0);
    }
    let own = history(&server, &jae, "me", day).await.unwrap();
    assert_eq!(
        (own.of.as_str(), own.points[0].cpu_allocated),
        ("user:jae", 0.0)
    );
    for (of, refusal) in [
        ("user:mina", "user.not-found"),
        ("user:nobody", "user.not-found"),
        ("gpu:9", "gpu.not-found"),
        ("card", "history.unknown-subject"),
    ] {
        assert_eq!(code(history(&server, &jae, of, day).await), refusal, "{of}");
    }
    assert_eq!(users(&server, &jae).await.unwrap(), ["jae"]);
    assert_eq!(users(&server, &boss).await.unwrap(), ["boss", "mina"]);
    assert_eq!(recent(&server, &jae).await.unwrap().cpu.len(), 1);
}

#[tokio::test]
async fn a_list_of_histories_has_a_hundred_users() {
    let server = server();
    let boss = user(&server, "boss", Role::Administrator);
    for number in 0..105 {
        let owner = user(&server, &format!("user{number}"), Role::User);
        one(&server, &owner, named("a")).await.unwrap();
    }
    let all = crate::actions::history::users(&server, &boss)
        .await
        .unwrap();
    assert_eq!((all.len(), all[0].as_str()), (100, "boss"));
}

#[tokio::test]
async fn samples_are_rates_of_the_limit() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let jae = user(&server, "jae", Role::User);
    let session = one(&server, &mina, named("a")).await.unwrap();
    let container = enter(&server, &mina, "a").await.unwrap().container;
    let start = server.clock().now();
    for tick in [0, 1, 2, 3_u64] {
        let usage = rules::messages::ContainerUsage {
            cpu_microseconds: tick * 1_000_000,
            memory: Bytes::mib(256),
            processes: 3,
            waited: (tick != 1).then_some(rules::messages::Waited {
                cpu_microseconds: tick * 300_000,
                memory_microseconds: 0,
            }),
            devices: Vec::new(),
        };
        server.catalog().samples().record(
            server.node(),
            (start.plus_seconds(tick * 2), server.clock().uptime()),
            &[(container, usage)],
        );
    }
    let all = samples(&server, &mina, "a", None).await.unwrap();
    assert_eq!(all.len(), 3);
    assert_eq!((all[1].cpu, all[1].cpu_percent_of_limit), (0.5, 50.0));
    assert_eq!(all[1].memory_percent_of_limit, 25.0);
    // Without both ends nothing is said about the time between.
    assert_eq!(
        (all[0].cpu_waiting_percent, all[1].cpu_waiting_percent),
        (None, None)
    );
    assert_eq!(all[2].cpu_waiting_percent, Some(15.0));
    assert_eq!(all[2].memory_waiting_percent, Some(0.0));
    assert_eq!(
        code(samples(&server, &jae, &session.id.to_string(), None).await),
        "session.not-found"
    );
}

/// Proves too: `one_session_waits_for_one_of_each_other_however_many_they_queued`
#[tokio::test]
async fn one_user_has_a_thousand_waiting_sessions_and_others_have_theirs() {
    let server = server();
    let kim = user(&server, "kim", Role::User);
    let lee = user(&server, "lee", Role::User);
    let replicas = |replicas| LaunchRequest {
        replicas,
        ..LaunchRequest::default()
    };
    let first = launch(&server, &kim, named("first"), None).await.unwrap();
    carry_out(&server, first.sessions[0].id, Some(0));
    for _ in 0..2 {
        let half = launch::MAX_WAITING / 2;
        launch(&server, &kim, replicas(half), None).await.unwrap();
    }
    let refused = refusal(launch(&server, &kim, replicas(1), None).await);
    assert_eq!(
        (refused.code.as_str(), refused.kind),
        ("queue.own-full", RefusalKind::TooOften)
    );
    assert!(refused.retry_after_seconds.is_some());
    assert_eq!(
        code(restart(&server, &kim, "first").await),
        "queue.own-full"
    );
    launch(&server, &lee, replicas(1), None).await.unwrap();
    // Whoever got a place makes room for one more.
    let any = server
        .catalog()
        .read_now("look", |view| view.world())
        .unwrap();
    let waits = any.sessions.iter().find(|s| s.owner == kim.subject.user);
    carry_out(&server, waits.unwrap().id, None);
    launch(&server, &kim, replicas(1), None).await.unwrap();
}

#[tokio::test]
async fn a_place_is_remembered_when_its_session_is_over_and_gone() {
    let server = server();
    let kim = user(&server, "kim", Role::User);
    let first = one(&server, &kim, named("first")).await.unwrap();
    let served = || {
        let world = server.catalog().read_now("look", |view| view.world());
        world.unwrap().served.get(&kim.subject.user).copied()
    };
    assert_eq!(served(), None);
    carry_out(&server, first.id, Some(0));
    delete(&server, &kim, "first").await.unwrap();
    assert_eq!(served(), Some(server.clock().now()));
}

#[tokio::test]
async fn a_session_on_hold_has_no_number_and_is_queued_behind_all_by_its_release() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let boss = user(&server, "boss", Role::Administrator);
    let big = |name: &str| {
        let mut request = named(name);
        request.resources.cpu = Some(CpuShare(300));
        request
    };
    let runs = one(&server, &mina, big("runs")).await.unwrap();
    carry_out(&server, runs.id, None);
    for name in ["first", "second", "third"] {
        server.clock().set(server.clock().now().plus_seconds(1));
        one(&server, &mina, big(name)).await.unwrap();
    }
    let held = hold(&server, &boss, "first").await.unwrap();
    assert_eq!(held.held_by.as_ref().map(|by| by.as_str()), Some("boss"));
    let told = why(&server, &mina, "first").await.unwrap();
    assert_eq!(told.queue_position, None);
    assert_eq!(told.blockers[0].code, "session.held");
    assert_eq!(told.outlook.unwrap().code, "start.on-release");
    let names =
        |page: api::page::ListPage<api::sessions::WaitingView>| -> Vec<(String, Option<u32>)> {
            let items = page.items.into_iter();
            items
                .map(|one| (one.session.name.to_string(), one.why.queue_position))
                .collect()
        };
    let order = names(queue(&server, &mina, None).await.unwrap());
    let told = |all: [(&str, Option<u32>); 3]| all.map(|(name, number)| (name.to_owned(), number));
    let expected = told([("second", Some(1)), ("third", Some(2)), ("first", None)]);
    assert_eq!(order, expected);
    server.clock().set(server.clock().now().plus_seconds(1));
    let released = release(&server, &mina, "first").await.unwrap();
    assert_eq!(released.held_by, None);
    let order = names(queue(&server, &mina, None).await.unwrap());
    let expected = told([("second", Some(1)), ("third", Some(2)), ("first", Some(3))]);
    assert_eq!(order, expected, "time on hold counts for no place");
    let refused = refusal(hold(&server, &mina, "runs").await);
    assert_eq!(refused.code, "session.not-waiting");
    let limited = set_time_limit(&server, &mina, "first", Some(3600), None).await;
    assert_eq!(limited.unwrap().max_runtime_seconds, Some(3600));
    let refused = refusal(set_time_limit(&server, &mina, "first", Some(0), None).await);
    assert_eq!(refused.code, "seconds.out-of-range");
    let refused = refusal(set_time_limit(&server, &mina, "runs", Some(60), None).await);
    assert_eq!(refused.code, "session.not-waiting");
}

#[tokio::test]
async fn a_change_of_a_waiting_request_is_answered_before_it_is_saved() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let jae = user(&server, "jae", Role::User);
    let mut request = named("runs");
    request.resources.cpu = Some(CpuShare(300));
    let runs = one(&server, &mina, request.clone()).await.unwrap();
    carry_out(&server, runs.id, None);
    request.name = Some("waits".into());
    one(&server, &mina, request).await.unwrap();
    let asked =
        async |cpu: u32| preview_change(&server, &mina, "waits", cores(cpu), None, None).await;
    assert_eq!(asked(300).await.unwrap().verdict, Verdict::Wait);
    assert_eq!(asked(100).await.unwrap().verdict, Verdict::Now);
    assert!(asked(900).await.is_err(), "no node is that large");
    let waits = get(&server, &mina, "waits").await.unwrap();
    assert_eq!(waits.resources.cpu, CpuShare(300), "nothing was changed");
    let short = preview_change(&server, &mina, "waits", cores(100), Some(Some(0)), None).await;
    assert_eq!(refusal(short).code, "seconds.out-of-range");
    let running = preview_change(&server, &mina, "runs", cores(100), None, None).await;
    assert_eq!(refusal(running).code, "session.not-waiting");
    let foreign =
        preview_change(&server, &jae, &waits.id.to_string(), cores(100), None, None).await;
    assert_eq!(refusal(foreign).code, "session.not-found");
}

#[tokio::test]
async fn copies_of_one_launch_stand_together_and_others_are_counted_without_names() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let jae = user(&server, "jae", Role::User);
    let mut many = named("sweep");
    many.replicas = 30;
    many.resources.cpu = Some(CpuShare(300));
    launch(&server, &mina, many.clone(), None).await.unwrap();
    let page = queue_page(&server, &mina, 1).await.unwrap();
    assert_eq!((page.of, page.sessions, page.others), (1, 30, 0));
    let launched = &page.launches[0];
    assert_eq!(launched.replicas, 30);
    assert_eq!(launched.first.session.name.as_str(), "sweep-1");
    assert_eq!(launched.last.as_ref().unwrap().as_str(), "sweep-30");
    let of_jae = queue_page(&server, &jae, 1).await.unwrap();
    assert_eq!((of_jae.of, of_jae.sessions, of_jae.others), (0, 0, 30));
    assert_eq!(of_jae.plan, []);
    for number in 0..25 {
        one(&server, &jae, named(&format!("job{number}")))
            .await
            .unwrap();
    }
    let last = queue_page(&server, &jae, 9).await.unwrap();
    assert_eq!((last.of, last.page, last.launches.len()), (25, 2, 5));
    let told = preview(&server, &mina, many).await;
    assert_eq!(refusal(told).code, "session.name-taken");
    // The table narrows the same queue; counts of all that wait stay.
    hold(&server, &jae, "job3").await.unwrap();
    let narrowed = async |q: &str, why: &str| {
        let filter = QueueFilter {
            q: q.to_owned(),
            why: why.to_owned(),
        };
        let page = queue_table(&server, &jae, filter, 1, 50).await.unwrap();
        assert_eq!((page.sessions, page.others), (25, 30));
        page.of
    };
    assert_eq!(narrowed("", "").await, 25);
    assert_eq!(narrowed("name:JOB2", "").await, 6);
    assert_eq!(narrowed("owner:jae job7", "").await, 1);
    assert_eq!(narrowed("owner:mina", "").await, 0);
    assert_eq!(narrowed("", "held").await, 1);
    assert_eq!(narrowed("job", "depends").await, 0);
}

#[tokio::test]
async fn a_plan_has_so_many_rows() {
    let server = server();
    let mina = user(&server, "mina", Role::User);
    let limited = |name: &str, cpu: u32| {
        let mut request = named(name);
        request.resources.cpu = Some(CpuShare(cpu));
        request.resources.memory = Some(Bytes::mib(64));
        request.max_runtime_seconds = Some(60);
        request
    };
    for number in 0..10 {
        let session = one(&server, &mina, limited(&format!("runs{number}"), 40)).await;
        carry_out(&server, session.unwrap().id, None);
    }
    for number in 0..20 {
        let request = limited(&format!("waits{number}"), 100);
        one(&server, &mina, request).await.unwrap();
    }
    let plan = queue_page(&server, &mina, 1).await.unwrap().plan;
    let (runs, waits): (Vec<_>, Vec<_>) = plan.iter().partition(|planned| planned.runs);
    assert_eq!((runs.len(), waits.len()), (8, 12));
    let now = server.clock().now();
    assert!(waits.iter().all(|planned| planned.from > now));
    assert!(waits.is_sorted_by_key(|planned| planned.from));
}

#[tokio::test]
async fn a_user_leaves_at_once_or_with_time_for_their_sessions() {
    use crate::actions::users::{self, departure};
    use api::users::{DepartingSessions, DepartureBody};
    let server = server();
    let boss = user(&server, "boss", Role::Administrator);
    let (mina, jae) = (
        user(&server, "mina", Role::User),
        user(&server, "jae", Role::User),
    );
    let now = server.clock().now();
    let finish = |seconds: u64| DepartureBody {
        sessions: DepartingSessions::Finish,
        until: Some(now.plus_seconds(seconds)),
    };
    let mut ids = BTreeMap::new();
    for (caller, name) in [(&mina, "runs"), (&mina, "waits"), (&jae, "goes-on")] {
        let session = one(&server, caller, named(name)).await.unwrap();
        if name != "waits" {
            carry_out(&server, session.id, None);
        }
        ids.insert(name, session.id);
    }
    let row = |name: &str| {
        let id = ids[name];
        let read = server
            .catalog()
            .read_now("look", move |view| view.session(id));
        read.unwrap().unwrap()
    };

    for (asked, expected) in [
        (finish(0), "departure.until"),
        (finish(91 * 86_400), "departure.until"),
        (
            DepartureBody {
                until: None,
                ..finish(1)
            },
            "departure.until",
        ),
    ] {
        assert_eq!(
            code(departure::depart(&server, &boss, "mina", asked).await),
            expected
        );
    }
    let stop = DepartureBody::default();
    assert_eq!(
        code(departure::depart(&server, &boss, "boss", stop.clone()).await),
        "user.self"
    );
    assert_eq!(
        code(departure::depart(&server, &jae, "mina", stop.clone()).await),
        "role.administrator-needed"
    );
    let plan = departure::plan(&server, &boss, "mina", stop.clone()).await;
    let plan = plan.unwrap();
    assert_eq!((plan.running, plan.waiting), (1, 1));
    assert!(!users::get(&server, &boss, "mina").await.unwrap().suspended);
    assert_eq!(row("waits").state(), SessionState::Pending);

    assert_eq!(
        departure::depart(&server, &boss, "mina", stop)
            .await
            .unwrap(),
        plan
    );
    assert_eq!(row("runs").state(), SessionState::Stopping);
    assert_eq!(row("waits").state(), SessionState::Ended);
    departure::depart(&server, &boss, "jae", finish(3_600))
        .await
        .unwrap();
    let going = row("goes-on");
    assert_eq!(going.state(), SessionState::Running);
    let (deadline, _) = going.deadline().unwrap();
    let left = deadline.seconds_since(now);
    assert!((3_598..=3_601).contains(&left), "{left}");

    // A start again of what leaves is refused, and one that was asked for before is called off.
    let again = restart(&server, &boss, &ids["goes-on"].to_string()).await;
    assert_eq!(code(again), "session.owner-left");
    let sweep = || async { server.catalog().finish_departures().await.unwrap() };
    sweep().await;
    let there = users::get(&server, &boss, "mina").await.unwrap();
    assert!(there.suspended && there.departs_at.is_some(), "{there:?}");
    let runs = ids["runs"];
    server
        .catalog()
        .write_now(Lane::Loops, "end", move |rows| {
            let at = rows.now;
            rows.change_session(runs, None, "test", None, |s| {
                s.end(Outcome::Stopped, None, at);
                true
            })
            .map(drop)
        })
        .unwrap();
    sweep().await;
    assert_eq!(
        code(users::get(&server, &boss, "mina").await),
        "user.not-found"
    );
    // Long before the day that was named, once the last session is over.
    let going = ids["goes-on"];
    let end = |session: SessionId| {
        server
            .catalog()
            .write_now(Lane::Loops, "end", move |rows| {
                let at = rows.now;
                rows.change_session(session, None, "test", None, |s| {
                    s.end(Outcome::Succeeded, Some(0), at);
                    true
                })
                .map(drop)
            })
            .unwrap();
    };
    let kim = user(&server, "kim", Role::User);
    let restarting = one(&server, &kim, named("restarting")).await.unwrap().id;
    carry_out(&server, restarting, None);
    restart(&server, &kim, &restarting.to_string())
        .await
        .unwrap();
    departure::depart(&server, &boss, "kim", DepartureBody::default())
        .await
        .unwrap();
    let read = server
        .catalog()
        .read_now("look", move |view| view.session(restarting));
    assert!(!read.unwrap().unwrap().restart);
    // The departure of a user is called off by admitting them.
    let back = users::suspend(&server, &boss, "jae", false, None).await;
    assert_eq!(back.unwrap().departs_at, None);
    departure::depart(&server, &boss, "jae", finish(3_600))
        .await
        .unwrap();
    end(going);
    sweep().await;
    assert_eq!(
        code(users::get(&server, &boss, "jae").await),
        "user.not-found"
    );
}

/// A user who is suspended keeps what runs, unless it was asked to stop: then nothing of it starts again by itself.
#[tokio::test]
async fn a_suspension_stops_sessions_where_it_is_asked_to() {
    use crate::actions::users::{self, Suspension};
    let server = server();
    let boss = user(&server, "boss", Role::Administrator);
    let (mina, jae) = (
        user(&server, "mina", Role::User),
        user(&server, "jae", Role::User),
    );
    let mut ids = BTreeMap::new();
    for (caller, name) in [(&mina, "runs"), (&mina, "waits"), (&jae, "goes-on")] {
        let session = one(&server, caller, named(name)).await.unwrap();
        if name != "waits" {
            carry_out(&server, session.id, None);
        }
        ids.insert(name, session.id);
    }
    restart(&server, &mina, &ids["runs"].to_string())
        .await
        .unwrap();
    let row = |name: &str| {
        let id = ids[name];
        let read = server
            .catalog()
            .read_now("look", move |view| view.session(id));
        read.unwrap().unwrap()
    };
    let refused = Suspension::asked(false, true).unwrap_err();
    assert_eq!(
        (refused.code.as_str(), refused.pointer.as_deref()),
        ("suspension.sessions", Some("/stop_sessions"))
    );
    let set = async |by: &Caller, who: &str, asked: Suspension| {
        users::set_suspension(&server, by, who, asked, None).await
    };
    let narrow = Caller {
        subject: rules::permissions::Subject {
            scopes: Some(vec![
                rules::permissions::Permission::UsersRead,
                rules::permissions::Permission::UsersWrite,
            ]),
            ..boss.subject.clone()
        },
        ..boss.clone()
    };
    assert_eq!(
        code(set(&narrow, "mina", Suspension::SessionsStop).await),
        "token.scope-missing"
    );
    assert_eq!(
        code(set(&boss, "boss", Suspension::SessionsStop).await),
        "user.self"
    );
    for who in ["mina", "jae"] {
        let suspended = set(&narrow, who, Suspension::SessionsGoOn).await;
        assert!(suspended.unwrap().suspended);
    }
    assert_eq!(row("waits").state(), SessionState::Pending);

    let suspended = set(&boss, "mina", Suspension::SessionsStop).await;
    assert!(suspended.unwrap().suspended);
    let stopped = row("runs");
    assert_eq!(stopped.state(), SessionState::Stopping);
    assert!(!stopped.restart, "it would start again");
    let waits = row("waits");
    assert_eq!(waits.state(), SessionState::Ended);
    assert_eq!(waits.reason.unwrap().code, "session.owner-suspended");
    assert_eq!(row("goes-on").state(), SessionState::Running);
    let back = set(&boss, "mina", Suspension::Lifted).await;
    assert!(!back.unwrap().suspended);
    assert_eq!(row("waits").state(), SessionState::Ended);
}
