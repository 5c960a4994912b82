//! Administrators and owners through the actions that doors call: what opens with a reason, who is told, and what ends it.

use std::net::{IpAddr, Ipv4Addr};

use api::folders::NewFolderBody;
use api::mounts::NewMountBody;
use api::sessions::LaunchRequest;
use base::settings::SettingsLayer;
use rules::names::FolderId;
use rules::users::Role;

use super::super::notices::{self, NoticeKind};
use super::super::{apps, sessions, tenancy, users};
use super::*;
use crate::access::{local_root, set_up, setup_link, sign_in};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";
const WHY: &str = "The job fills the disk of its node.";

/// Boss administers the site, chief the domain of mina and jae.
struct Office {
    /// Kept for as long as the server has its files there.
    _directory: tempfile::TempDir,
    server: Server,
    boss: Caller,
    chief: Caller,
    mina: Caller,
    jae: Caller,
}

async fn office() -> Office {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::for_tests_with(SettingsLayer {
        data: Some(directory.path().to_owned()),
        ..SettingsLayer::default()
    });
    server.put_test_node("one");
    let setup = setup_link(&server).unwrap();
    let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
    let boss = boss.caller;
    for name in ["chief", "mina", "jae"] {
        users::create(&server, &boss, name, Role::User, GOOD)
            .await
            .unwrap();
    }
    let all = GrantRole::Administrator;
    tenancy::grant(&server, &boss, "chief", all, Some("default"), None)
        .await
        .unwrap();
    let chief = sign_in(&server, "chief", GOOD, HERE).await.unwrap().caller;
    let mina = sign_in(&server, "mina", GOOD, HERE).await.unwrap().caller;
    let jae = sign_in(&server, "jae", GOOD, HERE).await.unwrap().caller;
    Office {
        _directory: directory,
        server,
        boss,
        chief,
        mina,
        jae,
    }
}

fn because(reason: &str) -> BreakGlassBody {
    BreakGlassBody {
        reason: reason.to_owned(),
        minutes: None,
    }
}

/// A session of mina's.
async fn launched(office: &Office) -> SessionId {
    let request = LaunchRequest {
        name: Some("work".to_owned()),
        ..LaunchRequest::default()
    };
    let made = sessions::launch(&office.server, &office.mina, request, None).await;
    made.unwrap().sessions.remove(0).id
}

async fn entered(office: &Office, caller: &Caller, session: SessionId) -> String {
    code(sessions::enter(&office.server, caller, &session.to_string()).await)
}

/// What mina is told of administrators.
async fn told(office: &Office) -> Vec<(String, String)> {
    let all = notices::list(&office.server, &office.mina).await.unwrap();
    let told = all.into_iter().filter_map(|notice| match notice.about {
        NoticeKind::BreakGlass { by, reason } => Some((by, reason)),
        _ => None,
    });
    told.collect()
}

/// An administrator enters no session of another user before they typed a reason; its owner is told who it is and why, and it
/// is closed again when they end it.
///
/// Proves too: `every_act_asks_for_its_capability_first`
#[tokio::test]
async fn an_administrator_enters_with_a_reason_that_the_owner_is_told() {
    let office = office().await;
    let Office {
        server,
        boss,
        chief,
        mina,
        jae,
        ..
    } = &office;
    let session = launched(&office).await;
    let id = session.to_string();
    for administrator in [boss, chief] {
        let refused = entered(&office, administrator, session).await;
        assert_eq!(refused, "break-glass.needed");
    }
    assert_eq!(entered(&office, jae, session).await, "session.not-found");
    assert_eq!(entered(&office, mina, session).await, "done");
    assert_eq!(entered(&office, &local_root(server), session).await, "done");

    // What root launched on the machine is no user's.
    let request = LaunchRequest {
        name: Some("machine".to_owned()),
        ..LaunchRequest::default()
    };
    let machine = sessions::launch(server, &local_root(server), request, None).await;
    let machine = machine.unwrap().sessions.remove(0).id;
    assert_eq!(entered(&office, boss, machine).await, "done");
    assert_eq!(entered(&office, jae, machine).await, "session.not-found");

    let open = |caller, reason| enter_session(server, caller, &id, because(reason));
    assert_eq!(code(open(jae, WHY).await), "session.not-found");
    assert_eq!(code(open(mina, WHY).await), "break-glass.own");
    assert_eq!(code(open(boss, "why not").await), "break-glass.reason");
    let too_long = BreakGlassBody {
        minutes: Some(241),
        ..because(WHY)
    };
    let refused = enter_session(server, boss, &id, too_long).await;
    assert_eq!(code(refused), "break-glass.minutes");
    assert!(told(&office).await.is_empty());
    let opened = open(boss, WHY).await.unwrap();
    assert_eq!(
        (opened.kind, opened.owner.as_str(), opened.actor.as_str()),
        (BreakGlassKind::Session, "mina", "boss")
    );
    assert_eq!(entered(&office, boss, session).await, "done");
    assert_eq!(code(open(boss, WHY).await), "break-glass.open");
    // It is open to who gave the reason.
    let refused = entered(&office, chief, session).await;
    assert_eq!(refused, "break-glass.needed");
    assert_eq!(told(&office).await, [("boss".to_owned(), WHY.to_owned())]);
    for (reader, seen) in [(mina, 1), (boss, 1), (chief, 1), (jae, 0)] {
        let all = list(server, reader).await.unwrap();
        assert_eq!(all.len(), seen, "{}", reader.name);
    }
    // Who looks hands it to no others.
    let shared = apps::shares::create(server, boss, &id, "8888", Default::default()).await;
    assert_eq!(code(shared), "app.share-owner-only");

    let look = id_of(&opened);
    let end_it = |caller| end(server, caller, &look);
    assert_eq!(code(end_it(mina).await), "break-glass.not-found");
    let stream = withdrawn(server, boss, session);
    let own = withdrawn(server, mina, session);
    end_it(boss).await.unwrap();
    assert_eq!(code(end_it(boss).await), "break-glass.not-found");
    let refused = entered(&office, boss, session).await;
    assert_eq!(refused, "break-glass.needed");
    let soon = Duration::from_secs(2);
    let why = tokio::time::timeout(soon, stream)
        .await
        .expect("it goes on");
    assert_eq!(why.code, "break-glass.over");
    let goes_on = tokio::time::timeout(Duration::from_millis(100), own).await;
    assert!(goes_on.is_err(), "an own stream ended");
}

fn id_of(look: &BreakGlassView) -> String {
    look.id.to_string()
}

#[tokio::test]
async fn a_look_ends_with_its_time_and_with_the_role() {
    let office = office().await;
    let (server, boss, chief) = (&office.server, &office.boss, &office.chief);
    let session = launched(&office).await;
    let id = session.to_string();
    let short = BreakGlassBody {
        minutes: Some(5),
        ..because(WHY)
    };
    let look = enter_session(server, boss, &id, short).await.unwrap();
    let early = look.began_at.plus_seconds(299);
    server.catalog().end_break_glass(early).await.unwrap();
    assert_eq!(entered(&office, boss, session).await, "done");
    let late = look.began_at.plus_seconds(300);
    // By the clock, and not only once a pass of the controller wrote it down.
    server.clock().set(late);
    let refused = entered(&office, boss, session).await;
    assert_eq!(refused, "break-glass.needed");
    server.catalog().end_break_glass(late).await.unwrap();
    let refused = entered(&office, boss, session).await;
    assert_eq!(refused, "break-glass.needed");
    let all = list(server, boss).await.unwrap();
    assert!(all[0].ended_at.is_some());

    enter_session(server, chief, &id, because(WHY))
        .await
        .unwrap();
    assert_eq!(entered(&office, chief, session).await, "done");
    let role = Some(GrantRole::Administrator);
    tenancy::revoke(server, boss, "chief", role, Some("default"))
        .await
        .unwrap();
    let chief = sign_in(server, "chief", GOOD, HERE).await.unwrap().caller;
    let refused = entered(&office, &chief, session).await;
    assert_eq!(refused, "session.not-found");
}

#[tokio::test]
async fn the_files_of_a_folder_are_read_with_a_reason_and_not_written() {
    let office = office().await;
    let (server, boss, mina, jae) = (&office.server, &office.boss, &office.mina, &office.jae);
    let new = NewFolderBody {
        name: "data".to_owned(),
        ..NewFolderBody::default()
    };
    let made = folders::create(server, mina, new, None).await.unwrap();
    let folder: FolderId = made.value.id.to_string().parse().unwrap();
    let id = folder.to_string();
    let may = |verb| {
        let (now, subject) = (server.clock().now(), boss.subject.clone());
        let asked = server.catalog().read_now("ask", move |view| {
            let found = view.folder(folder)?.expect("a folder");
            folders::permitted(view, &subject, &found.folder, verb, now)
        });
        code(asked)
    };
    assert_eq!(may(FolderVerb::Read), "folder.files-own");
    let open = |caller| read_folder(server, caller, &id, because(WHY));
    assert_eq!(code(open(jae).await), "folder.not-found");
    assert_eq!(code(open(mina).await), "break-glass.own");
    let look = open(boss).await.unwrap();
    assert_eq!(
        (look.kind, look.name.as_str()),
        (BreakGlassKind::Folder, "data")
    );
    assert_eq!(code(open(boss).await), "break-glass.open");
    assert_eq!(may(FolderVerb::Read), "done");
    for verb in [FolderVerb::Write, FolderVerb::Share, FolderVerb::Clone] {
        assert_eq!(may(verb), "folder.files-own", "{verb:?}");
    }
    // A session that mounts it would outlast the look.
    let request = LaunchRequest {
        mounts: vec![NewMountBody {
            folder: id.clone(),
            ..NewMountBody::default()
        }],
        ..LaunchRequest::default()
    };
    let mounted = sessions::launch(server, boss, request, None).await;
    assert_eq!(code(mounted), "folder.unknown");
    assert_eq!(told(&office).await, [("boss".to_owned(), WHY.to_owned())]);
    end(server, boss, &id_of(&look)).await.unwrap();
    assert_eq!(may(FolderVerb::Read), "folder.files-own");
}

#[tokio::test]
async fn one_administrator_looks_into_so_many_things_at_once() {
    let office = office().await;
    let (server, boss) = (&office.server, &office.boss);
    for number in 0..=MAX_OPEN {
        let request = LaunchRequest {
            name: Some(format!("work-{number}")),
            ..LaunchRequest::default()
        };
        let made = sessions::launch(server, &office.mina, request, None).await;
        let id = made.unwrap().sessions.remove(0).id.to_string();
        let opened = code(enter_session(server, boss, &id, because(WHY)).await);
        let expected = match number < MAX_OPEN {
            true => "done",
            false => "break-glass.too-many",
        };
        assert_eq!(opened, expected, "{number}");
    }
}
