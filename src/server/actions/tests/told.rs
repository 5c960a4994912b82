//! What users are told without asking: notices of their own sessions, events, maintenance, and what needs an
//! administrator's attention.

use std::sync::Arc;

use api::sessions::LaunchRequest;
use rules::names::UserId;
use rules::tenancy::Scope;
use rules::users::Role;

use super::caller_of;
use crate::actions::attention::{self, AttentionItem};
use crate::actions::journal::{self, JournalQuery};
use crate::actions::notices::{self, NoticeKind};
use crate::actions::{gpus, nodes, sessions};
use crate::catalog::Lane;
use crate::catalog::events::NewEvent;
use crate::{Failure, Server};

fn happened(server: &Server, owner: Option<UserId>, topic: &str, object: &str, code: &str) {
    let (topic, object, code) = (topic.to_owned(), object.to_owned(), code.to_owned());
    server
        .catalog()
        .write_now(Lane::Requests, "note", move |rows| {
            rows.note(NewEvent {
                actor: "node",
                topic: &topic,
                object: &object,
                scope: Scope {
                    owner,
                    ..Scope::SITE
                },
                code: &code,
                before: "",
                after: "",
            })
        })
        .unwrap();
}

#[tokio::test]
async fn a_user_is_told_that_a_session_of_theirs_made_way() {
    let server = Server::for_tests();
    let mina = caller_of(&server, "mina", Role::User);
    let owner = Some(mina.subject.user);
    let code = rules::codes::SESSION_PREEMPTED;
    happened(&server, owner, "sessions", "x", code);
    let told = notices::list(&server, &mina).await.unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].unread && told[0].about == NoticeKind::Preempted);
}

#[tokio::test]
async fn notices_are_of_own_sessions_and_stay_read_once_they_were() {
    let server = Server::for_tests();
    let (mina, jae) = (
        caller_of(&server, "mina", Role::User),
        caller_of(&server, "jae", Role::User),
    );
    let owner = Some(mina.subject.user);
    happened(&server, owner, "sessions", "x", "session.running");
    happened(&server, owner, "sessions", "x", "session.scheduled");
    happened(
        &server,
        Some(jae.subject.user),
        "sessions",
        "y",
        "session.running",
    );
    assert_eq!(notices::unread(&server, &mina), 1);
    let told = notices::list(&server, &mina).await.unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].unread && told[0].about == NoticeKind::Started);
    notices::mark_read(&server, &mina).await.unwrap();
    assert_eq!(notices::unread(&server, &mina), 0);
    assert_eq!(notices::unread(&server, &jae), 1, "each reads their own");
    happened(&server, owner, "sessions", "x", rules::codes::SESSION_ENDED);
    let told = notices::list(&server, &mina).await.unwrap();
    let unread: Vec<bool> = told.iter().map(|notice| notice.unread).collect();
    assert_eq!(unread, [true, false], "newest first");
    for _ in 0..150 {
        happened(&server, owner, "sessions", "x", "session.running");
    }
    assert_eq!(
        notices::unread(&server, &mina),
        u64::from(notices::MAX_COUNTED)
    );
    assert_eq!(notices::list(&server, &mina).await.unwrap().len(), 50);
}

#[tokio::test]
async fn what_a_user_did_themselves_just_now_is_told_but_never_unread() {
    let server = Server::for_tests();
    let (boss, mina) = (
        caller_of(&server, "boss", Role::Administrator),
        caller_of(&server, "mina", Role::User),
    );
    let launch = async |name: &str| {
        let request = LaunchRequest {
            name: Some(name.into()),
            ..LaunchRequest::default()
        };
        let launched = sessions::launch(&server, &mina, request, None).await;
        launched.unwrap().sessions[0].id.to_string()
    };
    let owner = Some(mina.subject.user);
    let id = launch("mine").await;
    happened(&server, owner, "sessions", &id, "session.running");
    assert_eq!(notices::unread(&server, &mina), 0, "an own start");
    let told = notices::list(&server, &mina).await.unwrap();
    assert_eq!((told.len(), told[0].unread), (1, false));
    // A failure right after the launch is news.
    happened(&server, owner, "sessions", &id, rules::codes::SESSION_ENDED);
    assert_eq!(notices::unread(&server, &mina), 1, "a failure");
    notices::mark_read(&server, &mina).await.unwrap();

    let cancelled = launch("cancelled").await;
    sessions::stop(&server, &mina, &cancelled, false)
        .await
        .unwrap();
    assert_eq!(notices::unread(&server, &mina), 0, "an own stop");
    let told = notices::list(&server, &mina).await.unwrap();
    assert_eq!(told[0].about, NoticeKind::Cancelled, "it never ran");
    let taken = launch("taken").await;
    sessions::stop(&server, &boss, &taken, false).await.unwrap();
    assert_eq!(notices::unread(&server, &mina), 1, "somebody else's stop");
}

#[tokio::test]
async fn who_is_stopped_by_another_reads_why() {
    let server = Server::for_tests();
    let (mina, boss) = (
        caller_of(&server, "mina", Role::User),
        caller_of(&server, "boss", Role::Administrator),
    );
    let request = LaunchRequest {
        name: Some("nb".into()),
        ..LaunchRequest::default()
    };
    let launched = sessions::launch(&server, &mina, request, None).await;
    let id = launched.unwrap().sessions[0].id.to_string();
    let long = "x".repeat(201);
    for wrong in [long.as_str(), "two\nlines", "turned \u{202e}round"] {
        let refused = sessions::stop_saying(&server, &boss, &id, false, wrong).await;
        assert!(matches!(
            refused,
            Err(Failure::Refusal(refusal)) if refusal.code == rules::codes::SESSION_STOP_REASON
        ));
    }
    let why = "The card is needed for the exam.";
    let stopped = sessions::stop_saying(&server, &boss, &id, false, why).await;
    let reason = stopped.unwrap().reason.expect("why it ended");
    assert!(
        reason
            .text
            .contains("who wrote: The card is needed for the exam.")
    );
    assert_eq!(reason.code, rules::codes::SESSION_STOPPED);
}

#[tokio::test]
async fn no_two_notices_of_one_session_contradict_each_other() {
    let server = Server::for_tests();
    let mina = caller_of(&server, "mina", Role::User);
    let request = LaunchRequest {
        name: Some("nb".into()),
        ..LaunchRequest::default()
    };
    let launched = sessions::launch(&server, &mina, request, None).await;
    let id = launched.unwrap().sessions[0].id.to_string();
    let owner = Some(mina.subject.user);
    // It ran and failed; it was launched again, and is stopped while it waits.
    happened(&server, owner, "sessions", &id, "session.running");
    happened(&server, owner, "sessions", &id, rules::codes::SESSION_ENDED);
    let told = async || {
        let all = notices::list(&server, &mina).await.unwrap();
        all.into_iter()
            .map(|notice| notice.about)
            .collect::<Vec<_>>()
    };
    let earlier = NoticeKind::Ended(None, None);
    assert_eq!(told().await, [earlier.clone(), NoticeKind::Started]);
    sessions::stop(&server, &mina, &id, false).await.unwrap();
    // The second end says what became of it; the first one must not say the same of a run that was another.
    assert_eq!(
        told().await,
        [NoticeKind::Cancelled, earlier, NoticeKind::Started]
    );
}

#[tokio::test]
async fn events_are_found_by_kind_object_and_user_and_only_those_one_may_hear() {
    let server = Server::for_tests();
    let (boss, mina) = (
        caller_of(&server, "boss", Role::Administrator),
        caller_of(&server, "mina", Role::User),
    );
    let launched = sessions::launch(
        &server,
        &mina,
        LaunchRequest {
            name: Some("nb".into()),
            ..LaunchRequest::default()
        },
        None,
    )
    .await
    .unwrap();
    let id = launched.sessions[0].id.to_string();
    happened(&server, None, "gpus", "gpu-0", "gpu.cordoned");
    happened(&server, None, "images", "x", "image.imported");
    for number in 0..120 {
        happened(&server, None, "system", &number.to_string(), "backup.made");
    }
    let query = |kind: &str, object: &str, user: &str| JournalQuery {
        kind: kind.into(),
        object: object.into(),
        user: user.into(),
        ..JournalQuery::default()
    };
    let found = async |caller, query| {
        let page = journal::page(&server, caller, query).await.unwrap();
        let codes: Vec<String> = page.items.into_iter().map(|event| event.code).collect();
        codes.join(" ")
    };
    for (caller, kind, object, user, expected) in [
        (&boss, "gpus", "", "", "gpu.cordoned"),
        (&boss, "gpu", "", "", "gpu.cordoned"),
        (&boss, "", "nb", "", "session.accepted"),
        (&boss, "", id.as_str(), "", "session.accepted"),
        (&boss, "session", "", "mina", "session.accepted"),
        (&boss, "session.running", "", "", ""),
        (&mina, "", "", "", "image.imported session.accepted"),
        (&mina, "gpus", "", "", ""),
        (&mina, "%", "", "", "image.imported session.accepted"),
    ] {
        assert_eq!(
            found(caller, query(kind, object, user)).await,
            expected,
            "{} asks for {kind:?} {object:?} {user:?}",
            caller.name
        );
    }
    let first = journal::page(&server, &boss, query("backup", "", ""))
        .await
        .unwrap();
    let newest = first.items[0].object.as_str();
    assert_eq!(
        (first.items.len(), newest, first.count, first.before),
        (50, "119", 120, None)
    );
    let second = journal::page(
        &server,
        &boss,
        JournalQuery {
            offset: 50,
            ..query("backup", "", "")
        },
    )
    .await
    .unwrap();
    assert_eq!(second.items[0].object, "69", "the next page goes on");
    for (caller, words, expected) in [
        (&boss, vec!["CORDONED"], "gpu.cordoned"),
        (&boss, vec!["cordoned", "gpu-0"], "gpu.cordoned"),
        (&boss, vec!["cordoned", "gpu-1"], ""),
        // The name of a session stands in no event.
        (&boss, vec!["nb"], "session.accepted"),
        (&mina, vec!["cordoned"], ""),
        (&mina, vec!["import"], "image.imported"),
    ] {
        let search = JournalQuery {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            ..JournalQuery::default()
        };
        assert_eq!(found(caller, search).await, expected, "{words:?}");
    }
    let older = JournalQuery {
        before: Some(second.items[0].sequence),
        ..query("backup", "", "")
    };
    let older = journal::page(&server, &boss, older).await.unwrap();
    assert_eq!((older.items[0].object.as_str(), older.count), ("68", 69));
    let all = journal::export(&server, &boss, query("backup", "", ""))
        .await
        .unwrap();
    assert_eq!(all.items.len(), 120);
    let mine = journal::page(&server, &mina, query("sessions", "", ""))
        .await
        .unwrap();
    assert_eq!(mine.names[&id], "nb");
}

#[tokio::test]
async fn a_node_in_maintenance_takes_no_session_and_says_why_until_it_is_over() {
    let server = Server::for_tests();
    let (boss, mina) = (
        caller_of(&server, "boss", Role::Administrator),
        caller_of(&server, "mina", Role::User),
    );
    server.put_test_node("alpha");
    let shut = |closed, message| nodes::set_maintenance(&server, &boss, "alpha", closed, message);
    shut(true, " New disks until 18:00. ").await.unwrap();
    let preview = async || {
        let request = LaunchRequest::default();
        sessions::preview(&server, &mina, request).await.unwrap()
    };
    let waits = serde_json::to_string(&preview().await).unwrap();
    assert!(
        waits.contains("alpha is in maintenance and takes no new sessions: New disks until 18:00."),
        "{waits}"
    );
    let told = nodes::in_maintenance(&server, &mina).await.unwrap();
    assert_eq!(told[0].message, "New disks until 18:00.");
    // The node reports again; what an administrator said stays.
    server.put_test_node("alpha");
    assert_eq!(nodes::in_maintenance(&server, &mina).await.unwrap(), told);
    let refused = nodes::set_maintenance(&server, &boss, "beta", true, "").await;
    assert!(refused.is_err());
    let long = "x".repeat(257);
    assert!(shut(true, &long).await.is_err() && shut(true, "a\u{202e}b").await.is_err());

    shut(false, "ignored").await.unwrap();
    assert_eq!(nodes::in_maintenance(&server, &mina).await.unwrap(), []);
    let starts = serde_json::to_string(&preview().await).unwrap();
    assert!(!starts.contains("maintenance"), "{starts}");
    let page = journal::page(
        &server,
        &boss,
        JournalQuery {
            kind: "nodes".into(),
            ..JournalQuery::default()
        },
    )
    .await
    .unwrap();
    let codes: Vec<&str> = page.items.iter().map(|event| event.code.as_str()).collect();
    assert_eq!(codes, ["node.maintenance-ended", "node.maintenance-began"]);
}

#[tokio::test]
async fn maintenance_is_told_to_users_with_live_sessions_until_it_is_over() {
    let server = Server::for_tests();
    let (boss, mina, jae) = (
        caller_of(&server, "boss", Role::Administrator),
        caller_of(&server, "mina", Role::User),
        caller_of(&server, "jae", Role::User),
    );
    server.put_test_node("alpha");
    for caller in [&boss, &mina] {
        let request = LaunchRequest::default();
        sessions::launch(&server, caller, request, None)
            .await
            .unwrap();
    }
    let shut = |closed, message| nodes::set_maintenance(&server, &boss, "alpha", closed, message);
    let told = async |caller| {
        let mut all = notices::list(&server, caller).await.unwrap();
        all.retain(|notice| matches!(notice.about, NoticeKind::Maintenance(_)));
        all
    };
    assert_eq!(told(&mina).await, []);
    shut(true, "New disks until 18:00.").await.unwrap();
    let first = told(&mina).await;
    let NoticeKind::Maintenance(of) = &first[0].about else {
        panic!("{first:?}");
    };
    assert_eq!(
        (of.message.as_str(), of.running, of.waiting),
        ("New disks until 18:00.", 0, 1)
    );
    assert_eq!(first[0].name.as_deref(), Some("alpha"));
    assert!(first[0].unread && first[0].at.as_millis() > 0, "{first:?}");
    assert_eq!(notices::unread(&server, &mina), 1);
    assert_eq!(told(&jae).await, [], "no session of theirs is alive");
    let own = told(&boss).await;
    assert!(own.len() == 1 && !own[0].unread, "an own act: {own:?}");

    notices::mark_read(&server, &mina).await.unwrap();
    assert!(!told(&mina).await[0].unread, "it stays, but was read");
    assert_eq!(notices::unread(&server, &mina), 0);
    shut(true, "New disks until 20:00.").await.unwrap();
    let changed = told(&mina).await;
    assert!(changed[0].unread, "another message is news");
    assert_eq!(changed[0].at, first[0].at, "it began when it began");
    shut(false, "").await.unwrap();
    assert_eq!(
        (told(&mina).await, notices::unread(&server, &mina)),
        (vec![], 0)
    );
}

#[tokio::test]
async fn everything_that_is_not_well_is_in_one_list_with_one_count() {
    let server = Server::for_tests();
    let (boss, mina) = (
        caller_of(&server, "boss", Role::Administrator),
        caller_of(&server, "mina", Role::User),
    );
    let checks = br#"{"items": [
        {"id": "swap", "state": "warn", "found": "There is swap.", "fix": ""},
        {"id": "kernel", "state": "ok", "found": "Linux 6.12.", "fix": ""},
        {"id": "disk-faults", "state": "fail", "found": "Faults were recorded on sda.", "fix": "Back up first."}
    ]}"#;
    server.bring_diagnostics(Arc::new(|_| Ok(checks.to_vec())));
    assert_eq!(attention::count(&server, &boss), 0, "nobody looked yet");
    server.put_test_node("alpha");
    nodes::set_maintenance(&server, &boss, "alpha", true, "disks")
        .await
        .unwrap();
    let all = attention::attention(&server, &boss).await.unwrap();
    let AttentionItem::Check(first) = &all.items[0] else {
        panic!("what has failed comes first: {all:?}");
    };
    assert_eq!(first.id, "disk-faults");
    assert!(all.items.contains(&AttentionItem::Maintenance {
        name: "alpha".into(),
        note: "disks".into()
    }));
    assert_eq!(all.failed(), 1);
    assert_eq!(all.passed.len(), 1);
    assert_eq!(
        attention::count(&server, &boss),
        all.failed() + all.warnings()
    );
    assert_eq!(attention::count(&server, &mina), 0, "not for plain users");
    assert!(attention::attention(&server, &mina).await.is_err());

    nodes::set_maintenance(&server, &boss, "alpha", false, "")
        .await
        .unwrap();
    let fewer = attention::attention(&server, &boss).await.unwrap();
    assert_eq!(fewer.items.len() + 1, all.items.len());
    assert!(gpus::list(&server, &boss).await.is_ok());
}
