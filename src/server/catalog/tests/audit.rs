//! The audit log at its size: what ten million rows cost. Ignored; run by hand.

use std::io::Write as _;
use std::time::Instant;

use base::observe::Clock;
use base::settings::{Settings, SettingsLayer};
use rules::audit::{AuditStatement, linked};
use rules::grants::GrantRole;
use rules::names::UserId;
use rules::permissions::{Permission, Subject, reach};
use rules::tenancy::DomainId;
use rules::units::Timestamp;
use rules::users::Role;
use rusqlite::Connection;
use uuid::Uuid;

use super::super::audit::{AuditFilter, sha256};
use super::super::{files, value};
use crate::Server;

const USERS: u64 = 2_000;
const DOMAINS: u64 = 10;
/// Two years, so that a month is a twenty-fourth.
const SPAN: i64 = 730 * 86_400_000;

fn user(number: u64) -> UserId {
    UserId(Uuid::from_u128(0x7000 + u128::from(number)))
}

fn domain(number: u64) -> DomainId {
    DomainId(Uuid::from_u128(0x9000 + u128::from(number)))
}

/// Writes so many rows in the place of what there is, as the writer would, 100,000 in one commit.
fn fill(connection: &mut Connection, rows: u64, end: i64) {
    connection.execute("delete from audit", []).unwrap();
    let mut hash = rules::audit::NO_HASH;
    let mut sequence = 0;
    while sequence < rows {
        let transaction = connection.transaction().unwrap();
        {
            let mut insert = transaction
                .prepare(
                    "insert into audit
                         (sequence, statement, digest, hash, at, actor, act, object, domain, project)
                     values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                )
                .unwrap();
            for _ in 0..100_000.min(rows - sequence) {
                sequence += 1;
                let who = sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                let (actor, of) = (user(who % USERS), domain(who % DOMAINS));
                let at = end - SPAN + (SPAN as i128 * sequence as i128 / rows as i128) as i64;
                let told = AuditStatement {
                    sequence,
                    at: Timestamp::from_millis(at),
                    actor: format!("user-{}", who % USERS),
                    actor_id: Some(actor),
                    via: "token".into(),
                    credential: Some(Uuid::from_u128(who.into())),
                    address: "192.0.2.9".into(),
                    act: "session.accepted".into(),
                    topic: "sessions".into(),
                    object: Uuid::from_u128(sequence.into()).to_string(),
                    owner: Some(actor),
                    domain: Some(of),
                    project: None,
                    before: String::new(),
                    after: "pending".into(),
                    reason: String::new(),
                    request: Uuid::from_u128(sequence.into()).to_string(),
                    salt: "00112233445566778899aabbccddeeff".into(),
                };
                let text = told.canonical();
                let digest = sha256(text.as_bytes());
                hash = linked(&hash, &digest, sha256);
                insert
                    .execute((
                        value::signed(sequence),
                        text,
                        digest,
                        hash,
                        at,
                        actor.0.as_bytes(),
                        &told.act,
                        &told.object,
                        of.0.as_bytes(),
                        None::<[u8; 16]>,
                    ))
                    .unwrap();
            }
        }
        transaction.commit().unwrap();
    }
}

/// Goal: of ten million rows, a user's month within 30 s, a domain's page too, and a whole export that verifies.
/// `FARDEL_AUDIT_ROWS` sets the number of rows; `FARDEL_AUDIT_OUT` names a directory that gets `audit.jsonl` and `fardel.pem`
/// for `fardel audit verify`.
#[tokio::test]
#[ignore = "writes ten gigabytes; run by hand"]
async fn ten_million_acts_are_searched_and_exported() {
    let rows: u64 = std::env::var("FARDEL_AUDIT_ROWS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10_000_000);
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
    let mut connection = Connection::open(data.join(files::FILE)).unwrap();
    connection
        .execute_batch("pragma synchronous = off; pragma cache_size = -200000;")
        .unwrap();
    fill(&mut connection, rows, end);
    drop(connection);
    println!("{rows} rows written in {:?}", began.elapsed());

    let layer = SettingsLayer {
        data: Some(data),
        run: Some(folder.path().join("run")),
        ..SettingsLayer::default()
    };
    let settings = Settings::read(layer, |_| None).unwrap();
    let server = Server::start(settings, Clock::system()).unwrap();
    let mut boss = crate::access::local_root(&server).subject;
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
    let caller = crate::access::Caller {
        subject: chief,
        ..crate::access::local_root(&server)
    };
    let out = std::env::var("FARDEL_AUDIT_OUT").ok();
    let mut file = out.as_ref().map(|out| {
        let pem = server.certificates().unwrap().authority().pem;
        std::fs::write(format!("{out}/fardel.pem"), pem).unwrap();
        std::io::BufWriter::new(std::fs::File::create(format!("{out}/audit.jsonl")).unwrap())
    });
    let began = Instant::now();
    let wanted = api::audit::AuditExportQuery::default();
    let mut export = crate::actions::audit::export(&server, &caller, &wanted)
        .await
        .unwrap();
    let mut bytes = 0;
    while let Some(text) = export.part().await.unwrap() {
        bytes += text.len();
        if let Some(file) = &mut file {
            file.write_all(text.as_bytes()).unwrap();
        }
    }
    println!("exported {bytes} bytes in {:?}", began.elapsed());
}
