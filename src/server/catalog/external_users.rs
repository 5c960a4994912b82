//! Rows of users whose password a directory checks. What their entry proves is `access`'s.

use rules::names::UserId;
use rules::units::Timestamp;
use rules::users::{User, UserSource};
use rusqlite::OptionalExtension as _;

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// Whose an entry of a directory is.
pub(crate) enum EntryOwner {
    User(Box<User>),
    /// An account that was removed here.
    Removed,
}

impl EntryOwner {
    /// None where it was removed.
    pub(crate) fn user(self) -> Option<User> {
        match self {
            Self::User(user) => Some(*user),
            Self::Removed => None,
        }
    }
}

impl ReadTransaction<'_> {
    /// Whose an entry is; None where it was never seen.
    pub(crate) fn owner_of_entry(
        &self,
        source: UserSource,
        subject: &str,
    ) -> Result<Option<EntryOwner>, Failure> {
        let found = self
            .connection
            .prepare_cached("select user from external_user where way = ?1 and subject = ?2")?
            .query_row((source.word(), subject), |row| {
                Ok(UserId(value::id(row, "user")?))
            })
            .optional()?;
        let Some(id) = found else {
            return Ok(None);
        };
        Ok(Some(match self.user(id)? {
            Some(user) => EntryOwner::User(Box::new(user)),
            None => EntryOwner::Removed,
        }))
    }

    /// By what name the entry of a user was found last; None for a user who has none.
    pub(crate) fn asked_of(&self, user: UserId) -> Result<Option<String>, Failure> {
        let asked = self
            .connection
            .prepare_cached("select asked from external_user where user = ?1")?
            .query_row([user.0.as_bytes()], |row| row.get(0))
            .optional()?;
        Ok(asked)
    }

    /// Whether a directory admitted a user, or was looked at for them, at a moment or later.
    pub(crate) fn was_checked_since(
        &self,
        user: UserId,
        since: Timestamp,
    ) -> Result<bool, Failure> {
        let checked = self
            .connection
            .prepare_cached("select 1 from external_user where user = ?1 and checked_at >= ?2")?
            .exists((user.0.as_bytes(), since.as_millis()))?;
        Ok(checked)
    }

    /// Users of a directory who are not suspended, with the names that find their entries and the entries' identifiers, who
    /// was looked at longest ago first; at most `most`.
    pub(crate) fn external_users(
        &self,
        source: UserSource,
        most: u32,
    ) -> Result<Vec<(UserId, String, String)>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select user.id, external_user.asked, external_user.subject
             from external_user
             join user on user.id = external_user.user
             where external_user.way = ?1 and user.suspended = 0 and user.removed_at is null
             order by external_user.checked_at, user.id
             limit ?2",
        )?;
        let rows = statement.query_map((source.word(), most), |row| {
            Ok((
                UserId(value::id(row, "id")?),
                row.get("asked")?,
                row.get("subject")?,
            ))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl Rows<'_> {
    /// Notes which entry of a directory a user is, and that it admitted them now.
    pub(crate) fn put_external_user(
        &self,
        user: UserId,
        source: UserSource,
        (subject, asked): (&str, &str),
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into external_user (user, way, subject, asked, checked_at)
                 values (?1, ?2, ?3, ?4, ?5)
                 on conflict (user)
                 do update set way = excluded.way, subject = excluded.subject,
                               asked = excluded.asked, checked_at = excluded.checked_at",
            )?
            .execute((
                user.0.as_bytes(),
                source.word(),
                subject,
                asked,
                self.now.as_millis(),
            ))?;
        Ok(())
    }

    /// Notes that a user is still in the directory.
    pub(crate) fn touch_external_user(&self, user: UserId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update external_user set checked_at = ?2 where user = ?1")?
            .execute((user.0.as_bytes(), self.now.as_millis()))?;
        Ok(())
    }
}
