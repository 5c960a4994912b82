//! The audit log at its size: what ten million rows cost. Ignored; `cargo ci shows` runs it and verifies the export.

use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use base::observe::Clock;
use base::settings::{Settings, SettingsLayer};
use rules::grants::GrantRole;
use rules::permissions::{Permission, Subject, reach};
use rules::tenancy::Scope;
use rules::units::Timestamp;
use rules::users::Role;

use crate::Server;
use crate::access::{Caller, local_root};
use crate::catalog::audit::{ActingUser, AuditFilter, NewAct};
use crate::catalog::tests::audit::{domain, fill, told_by, user};

const ROWS: u64 = 10_000_000;

/// A server with so many rows and nothing else, the newest of now.
fn server_of(folder: &Path, rows: u64) -> Server {
    let settings = || {
        let layer = SettingsLayer {
            data: Some(folder.join("data")),
            run: Some(folder.join("run")),
            ..SettingsLayer::default()
        };
        Settings::read(layer, |_| None).unwrap()
    };
    let data = settings().data.clone();
    let server = Server::start(settings(), Clock::system()).unwrap();
    let end = server.clock().now().as_millis();
    drop(server);
    fill(&data, rows, end);
    Server::start(settings(), Clock::system()).unwrap()
}

/// Indexes take rows 64 at once; a search finds a row before and after.
#[tokio::test]
async fn acts_are_found_before_an_index_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_of(folder.path(), 1_000);
    let boss = local_root(&server).subject;
    let everything = reach(&boss, Permission::AuditRead);
    let data = folder.path().join("data");
    let counted = |condition: &str| told_by(&data, "count(*)", condition);
    let begun = counted("true");
    for more in 0..130 {
        let (actor, object) = (user(7), format!("thing-{}", more % 2));
        let by = ActingUser::Known {
            user: actor,
            name: "user-7",
            domain: domain(3),
        };
        let recorded = move |rows: &crate::catalog::Rows<'_>| {
            rows.record(NewAct {
                actor: by,
                act: "session.accepted",
                topic: "sessions",
                object: &object,
                scope: Scope {
                    owner: Some(actor),
                    domain: Some(domain(3)),
                    project: None,
                },
                before: "",
                after: "pending",
                reason: "",
            })
        };
        let lane = crate::catalog::Lane::Requests;
        let written = server.catalog().write(lane, "record an act", recorded);
        written.await.unwrap();
        let rows = counted("true");
        assert_eq!(rows, begun + more + 1);
        assert!(counted("in_index = 0") < 64, "after {more}");
        let half = AuditFilter {
            objects: vec!["thing-1".into()],
            ..AuditFilter::default()
        };
        let own = AuditFilter {
            actors: Some(vec![user(7)]),
            ..AuditFilter::default()
        };
        let newest = Timestamp::from_millis(told_by(&data, "max(at)", "true").cast_signed());
        let late = AuditFilter {
            since: Some(newest),
            ..AuditFilter::default()
        };
        let id = user(7).0.simple();
        for (filter, condition) in [
            (AuditFilter::default(), "true".to_owned()),
            (half, "object = 'thing-1'".to_owned()),
            (own, format!("actor = x'{id}'")),
            (late, format!("at >= {}", newest.as_millis())),
        ] {
            let (found, edges) = server
                .catalog()
                .read_now("search", |view| {
                    let found = view.search_acts(&everything, &filter, None, (0, 5_000))?;
                    Ok((found, view.acts_between(filter.since, None)?))
                })
                .unwrap();
            assert_eq!(found.count, counted(&condition), "{condition} after {more}");
            assert!(
                found
                    .rows
                    .is_sorted_by_key(|row| std::cmp::Reverse((row.at, row.sequence)))
            );
            assert_eq!(
                edges.unwrap().1,
                counted("true"),
                "{condition} after {more}"
            );
        }
    }
}

/// Goal: of ten million rows, a user's month within 30 s, a domain's page too, and a whole export that verifies.
/// The export and the certificate stay in a directory whose path is printed, for `fardel audit verify`.
#[tokio::test]
#[ignore = "writes ten gigabytes; `cargo ci shows` runs it"]
async fn ten_million_acts_are_searched_and_exported() {
    let folder = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let server = server_of(folder.path(), ROWS);
    let end = server.clock().now().as_millis();
    println!("{ROWS} rows written in {:?}", began.elapsed());
    let mut boss = local_root(&server).subject;
    let chief = Subject {
        grants: vec![rules::grants::Grant {
            role: GrantRole::Auditor,
            scope: rules::grants::GrantScope::Domain(domain(3)),
        }],
        ..boss.clone()
    };
    let own = Subject {
        user: user(7),
        grants: Role::User.grants(),
        ..boss.clone()
    };
    boss.scopes = None;
    let month = AuditFilter {
        since: Some(Timestamp::from_millis(end - 400 * 86_400_000)),
        until: Some(Timestamp::from_millis(end - 370 * 86_400_000)),
        ..AuditFilter::default()
    };
    let of_user = AuditFilter {
        actors: Some(vec![user(7)]),
        ..month.clone()
    };
    let of_act = AuditFilter {
        act: "sign-in.failed".into(),
        ..AuditFilter::default()
    };
    for (name, subject, filter) in [
        ("a user's month", &boss, &of_user),
        ("a month of the site", &boss, &month),
        ("a month of a domain", &chief, &month),
        ("a user's month of a domain", &chief, &of_user),
        ("the newest of a domain", &chief, &AuditFilter::default()),
        ("own acts", &own, &AuditFilter::default()),
        ("an act that no row has", &boss, &of_act),
    ] {
        let reach = reach(subject, Permission::AuditRead);
        let began = Instant::now();
        let found = server
            .catalog()
            .read_now("search", |view| {
                view.search_acts(&reach, filter, None, (0, 50))
            })
            .unwrap();
        let took = began.elapsed();
        println!("{name}: {} found in {took:?}", found.count);
        assert!(took.as_secs() < 30, "{name}");
    }
    let caller = Caller {
        subject: chief,
        ..local_root(&server)
    };
    let out = tempfile::tempdir().unwrap().keep();
    let pem = server.certificates().unwrap().authority().pem;
    std::fs::write(out.join("fardel.pem"), pem).unwrap();
    let mut file = std::io::BufWriter::new(std::fs::File::create(out.join("audit.jsonl")).unwrap());
    let began = Instant::now();
    let wanted = api::audit::AuditExportQuery::default();
    let mut export = super::export(&server, &caller, &wanted).await.unwrap();
    let mut bytes = 0;
    while let Some(text) = export.part().await.unwrap() {
        bytes += text.len();
        file.write_all(text.as_bytes()).unwrap();
    }
    println!(
        "{bytes} bytes exported to {} in {:?}",
        out.display(),
        began.elapsed()
    );
    let wanted = api::audit::AuditExportQuery {
        user: String::new(),
        since: month.since,
        until: month.until,
    };
    let began = Instant::now();
    let mut export = super::export(&server, &caller, &wanted).await.unwrap();
    let mut rows = 0;
    while let Some(text) = export.part().await.unwrap() {
        rows += text.lines().count() as u64;
    }
    let took = began.elapsed();
    println!("a month of a domain, {rows} lines, exported in {took:?}");
    assert!(rows > ROWS / 30, "{rows}");
    assert!(took.as_secs() < 30, "{took:?}");
}
