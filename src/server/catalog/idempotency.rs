//! Answers that were already given: the same key from the same principal on the same route gets the
//! first answer again for 24 hours, and never acts twice.

use rules::names::UserId;
use rules::refusal::Refusal;
use rusqlite::OptionalExtension as _;

use super::writer::Rows;
use crate::Failure;

/// Hours that an answer is remembered.
const KEPT_HOURS: u64 = 24;

/// What names one request of one principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) principal: UserId,
    pub(crate) route: String,
    pub(crate) key: String,
    pub(crate) digest: [u8; 32],
}

impl Rows<'_> {
    /// The first answer to this key, as JSON; None where there was none yet.
    ///
    /// Errors: `idempotency.key-reused` where the first request had another body.
    pub(crate) fn answered(&self, key: &Key) -> Result<Option<String>, Failure> {
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
                    self.forgotten_before(),
                ),
                |row| Ok((row.get::<_, [u8; 32]>(0)?, row.get::<_, String>(1)?)),
            )
            .optional()?;
        match found {
            None => Ok(None),
            Some((digest, answer)) if digest == key.digest => Ok(Some(answer)),
            Some(_) => Err(Refusal::invalid(
                "idempotency.key-reused",
                "This Idempotency-Key was used before with another request.",
            )
            .hint("Use a new key for a new request.")
            .into()),
        }
    }

    /// Remembers the answer to this key.
    pub(crate) fn remember_answer(&self, key: &Key, answer: &str) -> Result<(), Failure> {
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
                key.digest,
                answer,
                self.now.as_millis(),
            ))?;
        Ok(())
    }

    /// Forgets answers that are too old; gives how many.
    pub(crate) fn forget_answers(&self) -> Result<usize, Failure> {
        Ok(self
            .connection
            .prepare_cached("delete from idempotency where created_at <= ?1")?
            .execute([self.forgotten_before()])?)
    }

    fn forgotten_before(&self) -> i64 {
        self.now.as_millis() - (KEPT_HOURS * 3_600_000) as i64
    }
}
