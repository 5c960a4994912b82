//! Rows of second factors and of their recovery codes. Secrets are sealed, codes are hashes. What they prove is
//! `access`'s.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use rules::names::UserId;
use rules::units::Timestamp;
use rusqlite::OptionalExtension as _;

use super::reader::ReadTransaction;
use super::sealing::SealedRow;
use super::value;
use super::writer::Rows;
use crate::{Failure, ServerFault};

/// The second factor of one user.
pub(crate) struct SecondFactorRow {
    /// The secret of its codes.
    pub(crate) secret: Vec<u8>,
    pub(crate) confirmed_at: Timestamp,
    /// The last time step whose code was taken.
    pub(crate) used_step: u64,
}

impl ReadTransaction<'_> {
    /// The second factor of a user, with its secret. Errors: a fault where it is not what was sealed.
    pub(crate) fn second_factor(&self, user: UserId) -> Result<Option<SecondFactorRow>, Failure> {
        let found: Option<(String, i64, u64)> = self
            .connection
            .prepare_cached(
                "select secret, confirmed_at, used_step from second_factor where user = ?1",
            )?
            .query_row([user.0.as_bytes()], |row| {
                Ok((row.get(0)?, row.get(1)?, value::unsigned(row, "used_step")?))
            })
            .optional()?;
        let Some((sealed, confirmed_at, used_step)) = found else {
            return Ok(None);
        };
        const READ: &str = "read a second factor";
        let opened = self
            .seal
            .open(&SealedRow::SecondFactor(user.0.as_bytes()), &sealed)
            .map_err(|broken| ServerFault::new(READ, broken))?;
        let secret = STANDARD_NO_PAD
            .decode(opened)
            .map_err(|broken| ServerFault::new(READ, broken))?;
        Ok(Some(SecondFactorRow {
            secret,
            confirmed_at: Timestamp::from_millis(confirmed_at),
            used_step,
        }))
    }

    /// When the second factor of a user was confirmed; None where they have none. Opens no secret.
    pub(crate) fn second_factor_since(&self, user: UserId) -> Result<Option<Timestamp>, Failure> {
        Ok(self
            .connection
            .prepare_cached("select confirmed_at from second_factor where user = ?1")?
            .query_row([user.0.as_bytes()], |row| value::time(row, "confirmed_at"))
            .optional()?)
    }

    /// Since when everybody has to have a second factor, as far as it was noted.
    pub(crate) fn second_factor_required_since(&self) -> Result<Option<Timestamp>, Failure> {
        Ok(self
            .connection
            .prepare_cached("select second_factor_since from installation where id = 1")?
            .query_row([], |row| value::time_or_none(row, "second_factor_since"))?)
    }

    /// How many recovery codes a user has left.
    pub(crate) fn recovery_codes_left(&self, user: UserId) -> Result<u64, Failure> {
        Ok(self
            .connection
            .prepare_cached("select count(*) as left from recovery_code where user = ?1")?
            .query_row([user.0.as_bytes()], |row| value::unsigned(row, "left"))?)
    }

    /// Whether a recovery code of a user has this hash.
    pub(crate) fn has_recovery_code(&self, user: UserId, hash: &[u8; 32]) -> Result<bool, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select exists (select 1 from recovery_code where user = ?1 and hash = ?2)",
            )?
            .query_row((user.0.as_bytes(), hash), |row| row.get(0))?)
    }
}

impl Rows<'_> {
    /// Notes that a second factor is demanded of everybody from now on, or no longer. An earlier time stays, a later one
    /// does not.
    pub(crate) fn require_second_factor(&self, required: bool) -> Result<(), Failure> {
        let now = self.now.as_millis();
        let since = required.then_some(now);
        self.connection
            .prepare_cached(
                "update installation
                 set second_factor_since = ?1
                 where id = 1
                 and ((second_factor_since is null) = (?1 is not null) or second_factor_since > ?2)",
            )?
            .execute((since, now))?;
        Ok(())
    }

    /// Writes a second factor that was confirmed by the code of `step`; the one before it is gone.
    pub(crate) fn put_second_factor(
        &self,
        user: UserId,
        secret: &[u8],
        step: u64,
    ) -> Result<(), Failure> {
        let sealed = self.seal.shut(
            &SealedRow::SecondFactor(user.0.as_bytes()),
            &STANDARD_NO_PAD.encode(secret),
        );
        self.connection
            .prepare_cached(
                "insert into second_factor (user, secret, confirmed_at, used_step)
                 values (?1, ?2, ?3, ?4)
                 on conflict (user) do update
                 set secret = ?2, confirmed_at = ?3, used_step = ?4",
            )?
            .execute((
                user.0.as_bytes(),
                sealed,
                self.now.as_millis(),
                value::signed(step),
            ))?;
        Ok(())
    }

    /// Takes the code of a time step, once; false where this step or a later one was taken, or where it is another
    /// second factor by now than the one of `confirmed_at`.
    pub(crate) fn use_step(
        &self,
        user: UserId,
        confirmed_at: Timestamp,
        step: u64,
    ) -> Result<bool, Failure> {
        let taken = self
            .connection
            .prepare_cached(
                "update second_factor
                 set used_step = ?3
                 where user = ?1 and confirmed_at = ?2 and used_step < ?3",
            )?
            .execute((
                user.0.as_bytes(),
                confirmed_at.as_millis(),
                value::signed(step),
            ))?;
        Ok(taken == 1)
    }

    /// Replaces all recovery codes of a user.
    pub(crate) fn put_recovery_codes(
        &self,
        user: UserId,
        hashes: &[[u8; 32]],
    ) -> Result<(), Failure> {
        self.forget_recovery_codes(user)?;
        for hash in hashes {
            self.connection
                .prepare_cached("insert into recovery_code (user, hash) values (?1, ?2)")?
                .execute((user.0.as_bytes(), hash))?;
        }
        Ok(())
    }

    /// Takes a recovery code, once; false where there is none of this hash.
    pub(crate) fn use_recovery_code(&self, user: UserId, hash: &[u8; 32]) -> Result<bool, Failure> {
        let taken = self
            .connection
            .prepare_cached("delete from recovery_code where user = ?1 and hash = ?2")?
            .execute((user.0.as_bytes(), hash))?;
        Ok(taken == 1)
    }

    /// Takes a user's second factor and its recovery codes away; false where there was none.
    pub(crate) fn forget_second_factor(&self, user: UserId) -> Result<bool, Failure> {
        self.forget_recovery_codes(user)?;
        let gone = self
            .connection
            .prepare_cached("delete from second_factor where user = ?1")?
            .execute([user.0.as_bytes()])?;
        Ok(gone == 1)
    }

    fn forget_recovery_codes(&self, user: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from recovery_code where user = ?1")?
            .execute([user.0.as_bytes()])?;
        Ok(())
    }
}
