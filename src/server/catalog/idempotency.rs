//! Answers that were already given: the same key from the same principal on the same route gets the
//! first answer again for 24 hours, and never acts twice.

use rules::refusals;
use rules::units::Timestamp;
use rusqlite::OptionalExtension as _;

use super::health;
use super::reader::ReadTransaction;
use super::request_key::RequestKey;
use super::sealing::{ADDED, SealedRow};
use super::writer::Rows;
use crate::Failure;

/// Hours that an answer is remembered.
const KEPT_HOURS: u64 = 24;

/// Largest answer that is kept. A larger one of an act that answers in its commit is refused, and the act
/// with it: it could not be given again.
pub(crate) const MAX_ANSWER_BYTES: usize = 4 << 20;
/// Answers of one principal that are kept; the oldest goes first.
const MAX_ANSWERS: u32 = 1_000;
/// Bytes of all answers kept for one principal, as they were given (sealed they take a third more); the
/// oldest goes first. Lower than what a script makes in a day and its repetitions act again; higher and a
/// user fills the catalog.
const MAX_BYTES: usize = 8 << 20;

impl ReadTransaction<'_> {
    /// The first answer to this key, as JSON; None where there was none yet.
    ///
    /// Errors: `idempotency.key-reused` where the first request had another body.
    pub(crate) fn answered(
        &self,
        key: &RequestKey,
        now: Timestamp,
    ) -> Result<Option<String>, Failure> {
        let found = self
            .connection
            .prepare_cached(
                "select digest, answer
                 from idempotency
                 where principal = ?1 and route = ?2 and key = ?3 and created_at > ?4",
            )?
            .query_row(
                (
                    key.principal.0.as_bytes(),
                    &key.route,
                    &key.key,
                    forgotten_before(now),
                ),
                |row| Ok((row.get::<_, [u8; 32]>(0)?, row.get::<_, String>(1)?)),
            )
            .optional()?;
        match found {
            None => Ok(None),
            Some((digest, answer)) if digest == self.seal.mark(&key.digest) => {
                let opened = self.seal.open(&SealedRow::Answer(key), &answer);
                Ok(Some(opened.map_err(|broken| health::damaged(&broken))?))
            }
            Some(_) => Err(refusals::idempotency_key_reused().into()),
        }
    }
}

impl Rows<'_> {
    /// Remembers the answer to this key, and forgets the oldest of its principal where they are too many or
    /// too large together. Costs one visit of each that is kept, without reading them.
    ///
    /// Errors: `idempotency.answer-too-large`.
    pub(crate) fn remember_answer(&self, key: &RequestKey, answer: &str) -> Result<(), Failure> {
        if answer.len() > MAX_ANSWER_BYTES {
            return Err(
                refusals::idempotency_answer_too_large(answer.len(), MAX_ANSWER_BYTES).into(),
            );
        }
        self.connection
            .prepare_cached(
                "insert or replace into idempotency
                     (principal, route, key, digest, answer, created_at)
                 values (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute((
                key.principal.0.as_bytes(),
                &key.route,
                &key.key,
                self.seal.mark(&key.digest),
                self.seal.shut(&SealedRow::Answer(key), answer),
                self.now.as_millis(),
            ))?;
        self.connection
            .prepare_cached(
                "delete from idempotency
                 where principal = ?1 and (route, key) in (
                     select route, key
                     from (
                         select route, key,
                                row_number() over newest as number,
                                sum(octet_length(answer) * 3 / 4 - ?6) over newest as bytes
                         from idempotency
                         where principal = ?1
                         window newest as (
                             order by created_at desc, route, key
                             rows unbounded preceding
                         )
                     )
                     where number > ?2 or bytes > ?3
                 )
                 and not (route = ?4 and key = ?5)",
            )?
            .execute((
                key.principal.0.as_bytes(),
                MAX_ANSWERS,
                MAX_BYTES as i64,
                &key.route,
                &key.key,
                ADDED as i64,
            ))?;
        Ok(())
    }

    /// Forgets answers that are too old; gives how many.
    pub(crate) fn forget_answers(&self) -> Result<usize, Failure> {
        Ok(self
            .connection
            .prepare_cached("delete from idempotency where created_at <= ?1")?
            .execute([forgotten_before(self.now)])?)
    }
}

fn forgotten_before(now: Timestamp) -> i64 {
    now.as_millis() - (KEPT_HOURS * 3_600_000) as i64
}
