//! The audit log through the actions that doors call: which acts have a row, and who reads which.

use std::net::{IpAddr, Ipv4Addr};

use api::announcements::NewAnnouncementBody;
use rules::grants::GrantRole;
use rules::hand_over::AuditTarget;
use rules::users::Role;

use super::super::{announcements, system, tenancy, users};
use super::*;
use crate::access::directory::tests::{TestEntries, asking, by, directory, entry_of};
use crate::access::{self, set_up, setup_link, sign_in};
use crate::code;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const GOOD: &str = "correct horse battery";

/// A site with two domains: boss administers the site, mina and lee are members of the project vision, which lead leads;
/// chief administers `biology`, auditor audits it, and abe is its user; watch audits the domain `default`.
struct Site {
    server: Server,
    callers: Vec<Caller>,
}

impl Site {
    async fn open() -> Self {
        let server = Server::for_tests();
        let setup = setup_link(&server).unwrap();
        let boss = set_up(&server, &setup, "boss", GOOD, HERE).await.unwrap();
        let mut site = Self {
            server,
            callers: vec![boss.caller],
        };
        let (server, boss) = (site.server.clone(), site.callers[0].clone());
        tenancy::create_domain(&server, &boss, "biology", "", None)
            .await
            .unwrap();
        tenancy::create_project(&server, &boss, None, "vision", "", None)
            .await
            .unwrap();
        for (name, domain, grant, member) in [
            ("mina", None, None, Some(GrantRole::Member)),
            ("lee", None, None, Some(GrantRole::Member)),
            ("lead", None, None, Some(GrantRole::Lead)),
            (
                "chief",
                Some("biology"),
                Some(GrantRole::Administrator),
                None,
            ),
            ("auditor", Some("biology"), Some(GrantRole::Auditor), None),
            ("abe", Some("biology"), None, None),
            ("watch", Some("default"), Some(GrantRole::Auditor), None),
        ] {
            users::create_once(&server, &boss, name, Role::User, GOOD, domain, None)
                .await
                .unwrap();
            if let Some(role) = grant {
                tenancy::grant(&server, &boss, name, role, domain, None)
                    .await
                    .unwrap();
            }
            if let Some(role) = member {
                tenancy::put_member(&server, &boss, "vision", name, role, None)
                    .await
                    .unwrap();
            }
            let signed_in = sign_in(&server, name, GOOD, HERE).await.unwrap();
            site.callers.push(signed_in.caller);
        }
        site
    }

    fn caller(&self, name: &str) -> &Caller {
        let mut all = self.callers.iter();
        all.find(|caller| caller.name.as_str() == name).unwrap()
    }

    async fn read(&self, name: &str, wanted: AuditQuery) -> Vec<AuditEntryView> {
        let wanted = AuditQuery {
            limit: Some(500),
            ..wanted
        };
        let page = list(&self.server, self.caller(name), &wanted).await;
        page.unwrap().items
    }

    async fn all(&self, name: &str) -> Vec<AuditEntryView> {
        self.read(name, AuditQuery::default()).await
    }
}

fn of_act(act: &str) -> AuditQuery {
    AuditQuery {
        act: act.to_owned(),
        ..AuditQuery::default()
    }
}

#[tokio::test]
async fn each_reader_sees_the_acts_of_their_reach() {
    let site = Site::open().await;
    let all = site.all("boss").await;
    let numbers: Vec<u64> = all.iter().map(|act| act.sequence).collect();
    let expected: Vec<u64> = (1..=all.len() as u64).rev().collect();
    assert_eq!(numbers, expected, "each once, newest first, without a gap");
    for name in ["mina", "abe"] {
        let own = site.all(name).await;
        assert!(own.iter().all(|act| act.actor == name), "{own:?}");
        assert_eq!(own.len(), 1, "{own:?}");
        assert!(!sees_others(site.caller(name)));
        let refused = export(
            &site.server,
            site.caller(name),
            &AuditExportQuery::default(),
        )
        .await;
        assert_eq!(code(refused), "audit.export-own");
        assert_eq!(
            code(checkpoints(&site.server, site.caller(name)).await),
            "audit.export-own"
        );
    }
    let led = site.all("lead").await;
    assert!(
        led.iter()
            .all(|act| act.actor == "lead" || act.project.as_deref() == Some("vision"))
    );
    assert!(led.iter().any(|act| act.act == "project.member-set"));
    for name in ["chief", "auditor"] {
        let of_domain = site.all(name).await;
        assert!(of_domain.len() > 5);
        for act in &of_domain {
            assert_eq!(act.domain.as_deref(), Some("biology"), "{act:?}");
        }
    }
    // What is of the site is read by those of the site alone, also where a user of a domain did it.
    let body = serde_json::json!({"text": "The power goes off at six."});
    let body: NewAnnouncementBody = serde_json::from_value(body).unwrap();
    announcements::create(&site.server, site.caller("boss"), body, None)
        .await
        .unwrap();
    let announced = of_act("announcement");
    assert_eq!(site.read("boss", announced.clone()).await.len(), 1);
    assert!(site.read("watch", announced.clone()).await.is_empty());
    assert!(site.read("chief", announced).await.is_empty());
    let watched = site.all("watch").await;
    assert!(watched.iter().any(|act| act.actor == "boss"));
    for act in &watched {
        assert_eq!(act.domain.as_deref(), Some("default"), "{act:?}");
    }
    // By a word that is no reader's business nothing is found, nor told.
    let user = AuditQuery {
        user: "mina".to_owned(),
        ..AuditQuery::default()
    };
    assert!(site.read("chief", user.clone()).await.is_empty());
    assert_eq!(site.read("boss", user).await.len(), 1);
    let mut narrow = site.caller("boss").clone();
    narrow.subject.scopes = Some(vec![Permission::SystemRead]);
    let refused = list(&site.server, &narrow, &AuditQuery::default()).await;
    assert_eq!(code(refused), "token.scope-missing");
    let refused = export(&site.server, &narrow, &AuditExportQuery::default()).await;
    assert_eq!(code(refused), "token.scope-missing");
    assert_eq!(
        code(sign(&site.server, &narrow).await),
        "token.scope-missing"
    );
}

#[tokio::test]
async fn acts_are_found_by_user_act_object_and_time_page_by_page() {
    let site = Site::open().await;
    let members = site.read("boss", of_act("project.member-set")).await;
    assert_eq!(members.len(), 3);
    assert_eq!(site.read("boss", of_act("project")).await.len(), 4);
    assert!(site.read("boss", of_act("proj")).await.is_empty());
    let of_lee = AuditQuery {
        object: "lee".to_owned(),
        ..AuditQuery::default()
    };
    let found = site.read("boss", of_lee).await;
    assert!(found.iter().any(|act| act.act == "user.added"), "{found:?}");
    assert!(found.iter().all(|act| act.act != "project.added"));
    let clock = site.server.clock();
    let before = clock.now();
    clock.set(before.plus_seconds(3600));
    sign_in(&site.server, "lee", GOOD, HERE).await.unwrap();
    let since = |at| AuditQuery {
        since: Some(at),
        ..AuditQuery::default()
    };
    assert_eq!(site.read("boss", since(clock.now())).await.len(), 1);
    let until = AuditQuery {
        until: Some(before),
        ..AuditQuery::default()
    };
    let all = site.all("boss").await;
    assert_eq!(site.read("boss", until).await.len(), all.len() - 1);
    // Pages of seven join to all of it.
    let (mut paged, mut cursor) = (Vec::new(), None);
    loop {
        let wanted = AuditQuery {
            limit: Some(7),
            cursor,
            ..AuditQuery::default()
        };
        let page = list(&site.server, site.caller("boss"), &wanted)
            .await
            .unwrap();
        paged.extend(page.items);
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(paged, all);
    let other = AuditQuery {
        limit: Some(7),
        cursor: Some("x".to_owned()),
        ..AuditQuery::default()
    };
    let refused = list(&site.server, site.caller("boss"), &other).await;
    assert_eq!(code(refused), "cursor.invalid");
}

#[tokio::test]
async fn a_row_says_who_acted_by_what_and_from_where() {
    let site = Site::open().await;
    let server = &site.server;
    let cookie = sign_in(server, "chief", GOOD, HERE).await.unwrap().cookie;
    access::as_request(HERE, "request-1", async {
        let caller = access::by_cookie(server, &cookie, HERE)
            .await
            .unwrap()
            .unwrap();
        let body = serde_json::json!({"text": "Cells divide.", "domain": "biology"});
        let body: NewAnnouncementBody = serde_json::from_value(body).unwrap();
        announcements::create(server, &caller, body, None)
            .await
            .unwrap();
        // Without a name of its own, and nothing that was changed.
        let chosen = serde_json::json!({"language": "ko"});
        let chosen = serde_json::from_value(chosen).unwrap();
        users::set_me(server, &caller, chosen).await.unwrap();
        access::refused(server, "POST /api/v1/users", "role.administrator-needed");
        access::refused(server, "POST /api/v1/users", "role.administrator-needed");
        access::sign_out(server, &caller).await.unwrap();
    })
    .await;
    let acts = site.all("chief").await;
    let told: Vec<(&str, &str, &str, &str, &str)> = acts[..4]
        .iter()
        .map(|act| {
            (
                act.act.as_str(),
                act.actor.as_str(),
                act.via.as_str(),
                act.address.as_str(),
                act.request.as_str(),
            )
        })
        .collect();
    let by = |act| (act, "chief", "browser", "192.0.2.7", "request-1");
    assert_eq!(
        told,
        [
            by("sign-in.ended"),
            by("request.refused"),
            by("server.changed"),
            by("announcement.added")
        ]
    );
    assert_eq!(acts[1].object, "POST /api/v1/users");
    assert_eq!(acts[1].reason, "role.administrator-needed");
    assert_eq!(acts[2].after, "set preferences");
    let credential = acts[3].credential.expect("the sign-in");
    assert!(
        acts[..4]
            .iter()
            .all(|act| act.credential == Some(credential))
    );
    // What repeats is one more row after a minute, of nobody's request, also where one makes it be written.
    let clock = server.clock();
    clock.set(clock.now().plus_seconds(61));
    access::as_request(HERE, "request-3", async {
        access::local_root(server);
        repeated::flush(server, false).await.unwrap();
    })
    .await;
    let more = &site.all("chief").await[0];
    assert_eq!((more.request.as_str(), more.credential), ("", None));
    assert_eq!(
        (more.act.as_str(), more.after.as_str()),
        ("request.refused", "1")
    );
    assert_eq!(
        (more.via.as_str(), more.actor.as_str()),
        ("server", "chief")
    );
}

/// A request that changes rows leaves a row, also where its action names no act; one that is undone leaves none.
#[tokio::test]
async fn an_action_that_forgets_its_act_has_a_row_all_the_same() {
    let site = Site::open().await;
    let server = &site.server;
    let before = site.all("boss").await.len();
    let mina = site.caller("mina").subject.user;
    access::as_request(HERE, "request-2", async {
        let changed = server
            .catalog()
            .write(Lane::Requests, "a planted action", move |rows| {
                rows.put_password(mina, "!", 0)
            });
        changed.await.unwrap();
        let undone: Result<(), Failure> = server
            .catalog()
            .write(Lane::Requests, "a refused action", move |rows| {
                rows.put_password(mina, "?", 0)?;
                Err(refusals::sign_in_wrong().into())
            })
            .await;
        assert!(undone.is_err());
        let nothing = server
            .catalog()
            .write(Lane::Requests, "an action that does nothing", |_| Ok(()));
        nothing.await.unwrap();
    })
    .await;
    let all = site.all("boss").await;
    assert_eq!(all.len(), before + 1);
    let row = &all[0];
    assert_eq!(
        (row.act.as_str(), row.after.as_str(), row.request.as_str()),
        ("server.changed", "a planted action", "request-2")
    );
}

#[tokio::test]
async fn failed_sign_ins_are_rows_of_the_account_and_no_name_that_was_typed_is_kept() {
    let site = Site::open().await;
    let server = &site.server;
    for _ in 0..3 {
        let wrong = sign_in(server, "mina", "wrong password 1", HERE).await;
        assert_eq!(code(wrong), "sign-in.wrong");
    }
    let unknown = sign_in(server, "my.secret.password", "wrong password 1", HERE).await;
    assert_eq!(code(unknown), "sign-in.wrong");
    let own = site.all("mina").await;
    assert_eq!(
        (own[0].act.as_str(), own[0].reason.as_str()),
        ("sign-in.failed", "sign-in.wrong")
    );
    assert_eq!(own.len(), 2, "the first at once, the others later: {own:?}");
    repeated::flush(server, true).await.unwrap();
    let own = site.all("mina").await;
    assert_eq!((own.len(), own[0].after.as_str()), (3, "2"));
    let all = site.all("boss").await;
    let of_nobody: Vec<_> = all.iter().filter(|act| act.actor.is_empty()).collect();
    assert_eq!(of_nobody.len(), 1);
    let text = serde_json::to_string(&all).unwrap();
    assert!(!text.contains("secret") && !text.contains(GOOD), "{text}");
    assert!(
        site.all("chief")
            .await
            .iter()
            .all(|act| act.actor != "mina")
    );
}

/// A directory knows its users however they write their names, and so does the log.
#[tokio::test]
async fn a_failed_sign_in_in_capitals_is_of_its_user_of_a_directory() {
    let entries = TestEntries::default();
    entries.lock().unwrap().push(entry_of("kim", "of kim", &[]));
    let folder = tempfile::tempdir().unwrap();
    let server = asking(folder.path(), directory(&entries).await).await;
    by(&server, "kim", "of kim").await.unwrap();
    assert_eq!(code(by(&server, "KIM", "wrong").await), "sign-in.wrong");
    repeated::flush(&server, true).await.unwrap();
    let root = access::local_root(&server);
    let page = list(&server, &root, &of_act("sign-in.failed")).await;
    let acts = page.unwrap().items.into_iter();
    let actors: Vec<String> = acts.map(|act| act.actor).collect();
    assert_eq!(actors, ["kim"]);
    let again = by(&server, "KIM", "of kim").await.unwrap();
    assert_eq!(again.caller.name.as_str(), "kim");
}

#[tokio::test]
async fn a_sign_in_that_an_administrator_ends_is_one_act() {
    let site = Site::open().await;
    let (server, boss) = (&site.server, site.caller("boss"));
    let open = users::sign_ins_of(server, boss, "lee").await.unwrap();
    let before = site.all("boss").await.len();
    users::end_sign_in_of(server, boss, "lee", open[0].id)
        .await
        .unwrap();
    let all = site.all("boss").await;
    assert_eq!(all.len(), before + 1);
    assert_eq!(
        (all[0].act.as_str(), all[0].actor.as_str()),
        ("sign-in.ended", "boss")
    );
    assert_eq!(all[0].after, open[0].id.to_string());
}

/// What does not arrive outside, and what is lost on the way, is a finding and stands on the overview.
#[tokio::test]
async fn a_dead_place_outside_and_lost_rows_are_findings() {
    let folder = tempfile::tempdir().unwrap();
    let text = "audit_to_file = '/nonexistent/audit.jsonl'\n";
    std::fs::write(folder.path().join("fardel.toml"), text).unwrap();
    let (server, boss) = access::tests::with_settings(folder.path()).await;
    let codes = async || {
        let found = system::findings_of(&server, &boss).await.unwrap();
        let warned = system::warnings(&server, &boss).await.unwrap();
        let found = found.into_iter().map(|finding| finding.code);
        let all = found.chain(warned.into_iter().map(|check| check.code));
        let ours = all.filter(|code| code.starts_with("audit."));
        ours.collect::<Vec<String>>()
    };
    assert!(codes().await.is_empty());
    let target = AuditTarget::File;
    let now = server.clock().now();
    let why = || "no such directory".to_owned();
    assert!(server.hand_over().put_trouble(target, now, why()));
    let later = now.plus_seconds(60);
    assert!(!server.hand_over().put_trouble(target, later, why()));
    server
        .catalog()
        .write_now(Lane::Loops, "lose two rows", move |rows| {
            rows.begin_delivery(target, 0)?;
            rows.record_delivery(target, 3, 2)
        })
        .unwrap();
    let (down, lost) = ("audit.target-down", "audit.target-lost");
    assert_eq!(codes().await, [down, lost, down, lost]);
    let told = targets(&server, &boss).await.unwrap();
    let [told] = told.as_slice() else {
        panic!("one place is set: {told:?}");
    };
    assert_eq!((told.delivered, told.lost), (3, 2));
    assert_eq!(told.problem, why());
    assert_eq!(told.problem_since, Some(now));
}
