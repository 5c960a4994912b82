//! Rows of links that sign a user in once; one of each user at most. Keeps hashes only, decides nothing.

use rules::names::UserId;
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// A link that was made and not used yet; it may be over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SignInLinkRecord {
    /// Whom it signs in.
    pub(crate) user: UserId,
    pub(crate) maker: UserId,
    /// Name of the maker.
    pub(crate) actor: String,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Timestamp,
}

const SIGN_IN_LINK: &str = "user, maker, actor, created_at, expires_at";

fn sign_in_link_row(row: &Row<'_>) -> rusqlite::Result<SignInLinkRecord> {
    Ok(SignInLinkRecord {
        user: UserId(value::id(row, "user")?),
        maker: UserId(value::id(row, "maker")?),
        actor: row.get("actor")?,
        created_at: value::time(row, "created_at")?,
        expires_at: value::time(row, "expires_at")?,
    })
}

impl ReadTransaction<'_> {
    /// The link whose code has this hash, whether it is over or not.
    pub(crate) fn sign_in_link_by_hash(
        &self,
        hash: &[u8; 32],
    ) -> Result<Option<SignInLinkRecord>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {SIGN_IN_LINK} from sign_in_link where hash = ?1"
            ))?
            .query_row([hash], sign_in_link_row)
            .optional()?)
    }

    /// The link of a user that can be used at `now`.
    pub(crate) fn sign_in_link(
        &self,
        user: UserId,
        now: Timestamp,
    ) -> Result<Option<SignInLinkRecord>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {SIGN_IN_LINK} from sign_in_link where user = ?1 and expires_at > ?2"
            ))?
            .query_row((user.0.as_bytes(), now.as_millis()), sign_in_link_row)
            .optional()?)
    }
}

impl Rows<'_> {
    /// Keeps a link; the one that its user had before is of no use any more.
    pub(crate) fn put_sign_in_link(
        &self,
        link: &SignInLinkRecord,
        hash: &[u8; 32],
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into sign_in_link (user, hash, maker, actor, created_at, expires_at)
                 values (?1, ?2, ?3, ?4, ?5, ?6)
                 on conflict (user) do update
                 set hash = ?2, maker = ?3, actor = ?4, created_at = ?5, expires_at = ?6",
            )?
            .execute((
                link.user.0.as_bytes(),
                hash,
                link.maker.0.as_bytes(),
                &link.actor,
                link.created_at.as_millis(),
                link.expires_at.as_millis(),
            ))?;
        Ok(())
    }

    /// Takes the link of this hash, once; false where there is none any more.
    pub(crate) fn use_sign_in_link(&self, hash: &[u8; 32]) -> Result<bool, Failure> {
        let taken = self
            .connection
            .prepare_cached("delete from sign_in_link where hash = ?1")?
            .execute([hash])?;
        Ok(taken == 1)
    }

    /// Ends the link of a user.
    pub(crate) fn forget_sign_in_link(&self, user: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from sign_in_link where user = ?1")?
            .execute([user.0.as_bytes()])?;
        Ok(())
    }

    /// Ends the link of a user, and those that they made for others.
    pub(crate) fn forget_sign_in_links(&self, user: UserId) -> Result<(), Failure> {
        self.forget_sign_in_link(user)?;
        self.connection
            .prepare_cached("delete from sign_in_link where maker = ?1")?
            .execute([user.0.as_bytes()])?;
        Ok(())
    }

    /// Drops links that are over; gives how many.
    pub(super) fn forget_ended_sign_in_links(&self) -> Result<usize, Failure> {
        Ok(self
            .connection
            .prepare_cached("delete from sign_in_link where expires_at <= ?1")?
            .execute([self.now.as_millis()])?)
    }
}
