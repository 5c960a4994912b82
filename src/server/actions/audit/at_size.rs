//! The audit log at its size: what ten million rows cost. Ignored; run by hand.

use std::io::Write as _;
use std::time::Instant;

use base::observe::Clock;
use base::settings::{Settings, SettingsLayer};
use rules::grants::GrantRole;
use rules::permissions::{Permission, Subject, reach};
use rules::units::Timestamp;
use rules::users::Role;

use crate::Server;
use crate::access::{Caller, local_root};
use crate::catalog::audit::AuditFilter;
use crate::catalog::tests::audit::{domain, fill, user};

const ROWS: u64 = 10_000_000;

/// Goal: of ten million rows, a user's month within 30 s, a domain's page too, and a whole export that verifies.
/// The export and the certificate stay in a directory whose path is printed, for `fardel audit verify`.
#[tokio::test]
#[ignore = "writes ten gigabytes; run by hand"]
async fn ten_million_acts_are_searched_and_exported() {
    let folder = tempfile::tempdir().unwrap();
    let layer = SettingsLayer {
        data: Some(folder.path().join("data")),
        run: Some(folder.path().join("run")),
        ..SettingsLayer::default()
    };
    let settings = Settings::read(layer, |_| None).unwrap();
    let data = settings.data.clone();
    let server = Server::start(settings, Clock::system()).unwrap();
    let end = server.clock().now().as_millis();
    drop(server);
    let began = Instant::now();
    fill(&data, ROWS, end);
    println!("{ROWS} rows written in {:?}", began.elapsed());

    let layer = SettingsLayer {
        data: Some(data),
        run: Some(folder.path().join("run")),
        ..SettingsLayer::default()
    };
    let settings = Settings::read(layer, |_| None).unwrap();
    let server = Server::start(settings, Clock::system()).unwrap();
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
}
