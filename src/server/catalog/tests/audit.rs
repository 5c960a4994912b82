//! Writes an audit log of any size.

use std::path::Path;

use rules::audit::{AuditStatement, linked};
use rules::names::UserId;
use rules::tenancy::DomainId;
use rules::units::Timestamp;
use rusqlite::Connection;
use uuid::Uuid;

use super::super::audit::{INDEX_BATCH, sha256};
use super::super::{files, value};

const USERS: u64 = 2_000;
const DOMAINS: u64 = 10;
/// Two years, so that a month is a twenty-fourth.
const SPAN: i64 = 730 * 86_400_000;

pub(crate) fn user(number: u64) -> UserId {
    UserId(Uuid::from_u128(0x7000 + u128::from(number)))
}

pub(crate) fn domain(number: u64) -> DomainId {
    DomainId(Uuid::from_u128(0x9000 + u128::from(number)))
}

/// One number of the rows for which a condition holds, read beside the server.
pub(crate) fn told_by(data: &Path, number: &str, condition: &str) -> u64 {
    let connection = Connection::open(data.join(files::FILE)).unwrap();
    let query = format!("select {number} from audit where {condition}");
    let told: i64 = connection.query_row(&query, [], |row| row.get(0)).unwrap();
    told.cast_unsigned()
}

/// Writes so many rows in the place of what there is in a stopped server's data, as the writer would, 100,000 in one
/// commit.
pub(crate) fn fill(data: &Path, rows: u64, end: i64) {
    let mut connection = Connection::open(data.join(files::FILE)).unwrap();
    connection
        .execute_batch("pragma synchronous = off; pragma cache_size = -200000;")
        .unwrap();
    connection.execute("delete from audit", []).unwrap();
    let mut hash = rules::audit::NO_HASH;
    let mut sequence = 0;
    while sequence < rows {
        let transaction = connection.transaction().unwrap();
        {
            let mut insert = transaction
                .prepare(
                    "insert into audit
                         (sequence, statement, digest, hash, at, actor, act, object, domain, project,
                          in_index)
                     values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
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
                        sequence <= rows - rows % INDEX_BATCH,
                    ))
                    .unwrap();
            }
        }
        transaction.commit().unwrap();
    }
}
