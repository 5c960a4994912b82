//! Bounds on what users' acts give and keep, each met at its edge. What a field of a request may hold is
//! asked for over HTTP, in `tests/suite/server/limits.rs`.

use api::sessions::LaunchRequest;
use rules::image::MAX_IMPORTED_IMAGES;
use rules::names::{UserId, UserName};
use rules::refusal::RefusalKind;
use rules::tenancy::DomainId;
use rules::units::Timestamp;

use super::domains::image_row;
use super::*;
use crate::access::local_root;
use crate::catalog::events::NewEvent;
use crate::catalog::jobs::OperationRow;
use crate::catalog::{Lane, Rows};

/// Asks for so many pieces of long work of a kind that is never begun.
fn asked_for(server: &Server, many: usize) -> Vec<OperationId> {
    let user = local_root(server).subject.user;
    let begun = server.clock().now();
    let rows: Vec<OperationRow> = (0..many)
        .map(|number| {
            let at = begun.plus_seconds(number as u64);
            OperationRow::asked(at, "test", user, serde_json::Value::Null)
        })
        .collect();
    let ids = rows.iter().map(|row| row.id).collect();
    server
        .catalog()
        .write_now(Lane::Requests, "ask", move |all| {
            rows.iter()
                .try_for_each(|row| all.insert_operation(row, "test"))
        })
        .unwrap();
    ids
}

#[tokio::test]
async fn a_list_of_operations_has_the_newest_two_hundred() {
    let server = Server::for_tests();
    let root = local_root(&server);
    let mut ids = asked_for(&server, 201);
    let listed = operations::list(&server, &root).await.unwrap();
    let listed: Vec<OperationId> = listed.into_iter().map(|each| each.id).collect();
    ids.reverse();
    assert_eq!(listed, ids[..200]);
}

#[tokio::test]
async fn sixty_four_imports_may_wait() {
    let test = "sixty_four_imports_may_wait";
    let folder = tempfile::tempdir().unwrap();
    let settings = base::settings::Settings {
        data: folder.path().to_path_buf(),
        ..(*Server::for_tests().settings()).clone()
    };
    let server = Server::start(settings, base::observe::Clock::system()).unwrap();
    if let Err(refusal) = server.image_store().unwrap().can_unpack() {
        skips::skip(test, &refusal.to_string());
        return;
    }
    let root = local_root(&server);
    let path = folder.path().join("x.tar");
    std::fs::write(&path, "no archive").unwrap();
    asked_for(&server, 63);
    let import = || {
        let source = images::ImportSource::Path(path.clone());
        images::import(&server, &root, source, None)
    };
    // The last that is taken; it ends soon, for it is no archive.
    import().await.unwrap();
    asked_for(&server, 1);
    let refused = match import().await {
        Err(Failure::Refusal(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (refused.code.as_str(), refused.kind),
        ("operation.too-many", RefusalKind::TooOften)
    );
    assert!(refused.retry_after_seconds.is_some());
}

#[tokio::test]
async fn a_server_keeps_so_many_imported_images() {
    let folder = tempfile::tempdir().unwrap();
    let settings = base::settings::Settings {
        data: folder.path().to_path_buf(),
        ..(*Server::for_tests().settings()).clone()
    };
    let server = Server::start(settings, base::observe::Clock::system()).unwrap();
    if let Err(refusal) = server.image_store().unwrap().can_unpack() {
        skips::skip(
            "a_server_keeps_so_many_imported_images",
            &refusal.to_string(),
        );
        return;
    }
    let root = local_root(&server);
    let path = folder.path().join("x.tar");
    std::fs::write(&path, "no archive").unwrap();
    let now = server.clock().now();
    let add = |mut numbers: std::ops::Range<u64>| {
        let insert = move |rows: &Rows<'_>| {
            numbers.try_for_each(|number| {
                let reference = format!("kept/{number}:1");
                rows.insert_image(&image_row(now, &reference, DomainId::DEFAULT, None))
            })
        };
        let catalog = server.catalog();
        catalog
            .write_now(Lane::Requests, "insert images", insert)
            .unwrap();
    };
    let import = |reference: &str| {
        let source = images::ImportSource::Path(path.clone());
        images::import(&server, &root, source, Some(reference.to_owned()))
    };
    add(0..MAX_IMPORTED_IMAGES - 1);
    // The last that is taken; it ends soon, for it is no archive.
    import("new:1").await.unwrap();
    add(MAX_IMPORTED_IMAGES - 1..MAX_IMPORTED_IMAGES);
    let refused = match import("new:1").await {
        Err(Failure::Refusal(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (refused.code.as_str(), refused.kind),
        ("image.limit", RefusalKind::Capacity)
    );
    // A name that is known moves, which takes no room.
    import("kept/0:1").await.unwrap();
}

#[tokio::test]
async fn a_history_has_the_newest_five_hundred_events() {
    let server = Server::for_tests();
    let root = local_root(&server);
    let request = LaunchRequest::default();
    let launched = sessions::launch(&server, &root, request, None)
        .await
        .unwrap();
    let id = launched.sessions[0].id.to_string();
    let object = id.clone();
    server
        .catalog()
        .write_now(Lane::Requests, "note", move |rows| {
            (0..500).try_for_each(|number| {
                rows.note(NewEvent {
                    actor: "test",
                    topic: "sessions",
                    object: &object,
                    scope: rules::tenancy::Scope::SITE,
                    code: "test",
                    before: "",
                    after: &number.to_string(),
                })
            })
        })
        .unwrap();
    let events = sessions::events(&server, &root, &id).await.unwrap();
    let codes: Vec<&str> = events.iter().map(|event| event.code.as_str()).collect();
    assert_eq!(codes, vec!["test"; 500], "the launch is the oldest of 501");
}

#[tokio::test]
async fn a_queue_explains_the_first_two_hundred() {
    let server = Server::for_tests();
    let root = local_root(&server);
    let request = LaunchRequest {
        replicas: 201,
        start_at: Some(Timestamp::from_millis(1_900_000_000_000)),
        ..LaunchRequest::default()
    };
    let launched = sessions::launch(&server, &root, request, None)
        .await
        .unwrap();
    assert_eq!(launched.sessions.len(), 201);
    let queue = sessions::queue(&server, &root, None).await.unwrap();
    assert_eq!((queue.items.len(), queue.estimated_total), (200, 201));
    assert!(queue.items.iter().all(|one| !one.why.blockers.is_empty()));
    let cursor = queue.next_cursor.expect("one more");
    let rest = sessions::queue(&server, &root, Some(&cursor))
        .await
        .unwrap();
    assert_eq!((rest.items.len(), rest.next_cursor), (1, None));
    let all = queue.items.iter().chain(&rest.items);
    let all: std::collections::BTreeSet<_> = all.map(|one| one.session.id).collect();
    assert_eq!(all.len(), 201, "each once");
}

#[tokio::test]
async fn what_one_user_has_waiting_is_bounded_in_bytes() {
    let server = Server::for_tests();
    let caller = |id: u128, name: &str| Caller {
        subject: Subject {
            domain: rules::tenancy::DomainId::DEFAULT,
            user: UserId(Uuid::from_u128(id)),
            grants: Role::User.grants(),
            scopes: None,
        },
        name: UserName::parse(name).unwrap(),
        ..local_root(&server)
    };
    let (kim, lee) = (caller(1, "kim"), caller(2, "lee"));
    for user in [&kim, &lee] {
        let (id, name, at) = (
            user.subject.user,
            user.name.to_string(),
            server.clock().now(),
        );
        server
            .catalog()
            .write_now(Lane::Requests, "a user", move |rows| {
                rows.stand_in_user(id, &name, at)
            })
            .unwrap();
    }
    let long = |name: &str, replicas: u32| LaunchRequest {
        name: Some(name.to_owned()),
        // With its quotes and its brackets a quarter of a mebibyte less a bit.
        command: vec!["x".repeat(130_000), "x".repeat(130_000)],
        replicas,
        ..LaunchRequest::default()
    };
    let code =
        async |caller: &Caller, request| match sessions::launch(&server, caller, request, None)
            .await
        {
            Ok(launched) => launched.sessions.len().to_string(),
            Err(Failure::Refusal(refusal)) => format!("{:?} {}", refusal.kind, refusal.code),
            Err(Failure::Fault(fault)) => panic!("{}", base::observe::chain(&fault)),
        };
    let refused = "TooOften queue.own-too-large";
    assert_eq!(code(&kim, long("all", 500)).await, refused);
    assert_eq!(code(&kim, long("many", 64)).await, "64");
    assert_eq!(code(&kim, long("one-more", 1)).await, refused);
    let short = LaunchRequest::default();
    assert_eq!(code(&kim, short).await, "1", "a short one fits");
    assert_eq!(code(&lee, long("others", 64)).await, "64");
    let first = sessions::get(&server, &kim, "many-1").await.unwrap().id;
    server
        .catalog()
        .write_now(Lane::Loops, "end it", move |rows| {
            let now = rows.now;
            rows.change_session(first, None, "test", None, |session| {
                session.end(rules::session::Outcome::Stopped, None, now);
                true
            })
        })
        .unwrap();
    assert_eq!(code(&kim, long("one-more", 1)).await, "1");
}

#[tokio::test]
async fn a_loop_of_long_launches_and_stops_keeps_the_catalog_small() {
    /// Launch documents of ended sessions as they lie in their rows, and those of the waiting ones sealed: a
    /// third more than was sent. The rest is a few kilobytes a session.
    const MAX_FILE_BYTES: u64 = (64 << 20) + 4 * (16 << 20) / 3 + (8 << 20);
    /// What SQLite leaves of its log when it was brought home.
    const MAX_LOG_BYTES: u64 = 8 << 20;
    let folder = tempfile::tempdir().unwrap();
    let settings = base::settings::Settings {
        data: folder.path().to_path_buf(),
        ..(*Server::for_tests().settings()).clone()
    };
    let server = Server::start(settings, base::observe::Clock::system()).unwrap();
    let root = local_root(&server);
    let mut first = None;
    for round in 0..8 {
        let request = LaunchRequest {
            name: Some(format!("loop-{round}")),
            env: [("A", "x".repeat(130_000)), ("B", "x".repeat(130_000))]
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            replicas: 64,
            ..LaunchRequest::default()
        };
        let launched = sessions::launch(&server, &root, request, None).await;
        let mut stops = tokio::task::JoinSet::new();
        for session in launched.unwrap().sessions {
            first.get_or_insert(session.id);
            let (server, root) = (server.clone(), root.clone());
            stops.spawn(async move {
                sessions::stop(&server, &root, &session.id.to_string(), true).await
            });
        }
        for ended in stops.join_all().await {
            assert_eq!(ended.unwrap().state, rules::session::SessionState::Ended);
        }
    }
    // A small commit, before which SQLite has brought its log home.
    sessions::launch(&server, &root, LaunchRequest::default(), None)
        .await
        .unwrap();
    let size = |name: &str| folder.path().join(name).metadata().unwrap().len();
    let (file, log) = (size("catalog.sqlite"), size("catalog.sqlite-wal"));
    assert!(file <= MAX_FILE_BYTES, "the file has {file} bytes");
    assert!(log <= MAX_LOG_BYTES, "its log has {log} bytes");
    // The oldest is still there, and says what it lost; it never begins again.
    let id = first.expect("launched above").to_string();
    let oldest = sessions::get(&server, &root, &id).await.unwrap();
    assert!(!oldest.document_kept && oldest.env.is_empty() && oldest.outcome.is_some());
    let code = |refused: Failure| match refused {
        Failure::Refusal(refusal) => refusal.code,
        Failure::Fault(fault) => panic!("{}", base::observe::chain(&fault)),
    };
    let labels = [("a".to_owned(), "b".to_owned())].into();
    let refused = [
        sessions::restart(&server, &root, &id).await.map(drop),
        sessions::duplicate(&server, &root, &id).await.map(drop),
        sessions::set_labels(&server, &root, &id, labels, None)
            .await
            .map(drop),
    ];
    for each in refused {
        assert_eq!(code(each.unwrap_err()), "session.document-gone");
    }
}
