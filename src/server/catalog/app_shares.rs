//! Rows of apps that are shared. Decides nothing; whom one opens for, `rules::app_share` says.

use rules::app::AppChoice;
use rules::app_share::AppShare;
use rules::names::{AppShareId, SessionId, UserId, UserName};
use rusqlite::Row;

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// One share, and the name of its user; None for one with a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AppShareRecord {
    pub(crate) share: AppShare,
    pub(crate) user_name: Option<UserName>,
}

fn share_row(row: &Row<'_>) -> rusqlite::Result<AppShareRecord> {
    Ok(AppShareRecord {
        share: AppShare {
            id: AppShareId(value::id(row, "id")?),
            session: SessionId(value::id(row, "session")?),
            app: value::word(row, "app", |text| AppChoice::parse(text).ok())?,
            user: value::id_or_none(row, "user")?.map(UserId),
            created_at: value::time(row, "created_at")?,
            ends_at: value::time(row, "ends_at")?,
        },
        user_name: value::word_or_none(row, "user_name", |text| UserName::parse(text).ok())?,
    })
}

impl ReadTransaction<'_> {
    /// The shares of one app of a session, those that have ended included, oldest first. Costs one range of an index.
    pub(crate) fn app_shares(
        &self,
        session: SessionId,
        app: &AppChoice,
    ) -> Result<Vec<AppShareRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select app_share.*, user.name as user_name
             from app_share
             left join user on user.id = app_share.user
             where app_share.session = ?1 and app_share.app = ?2
             order by app_share.created_at, app_share.id",
        )?;
        let rows = statement.query_map((session.0.as_bytes(), app.to_string()), share_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl Rows<'_> {
    pub(crate) fn insert_app_share(&self, share: &AppShare) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into app_share (id, session, app, user, created_at, ends_at)
                 values (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute((
                share.id.0.as_bytes(),
                share.session.0.as_bytes(),
                share.app.to_string(),
                share.user.map(|id| *id.0.as_bytes()),
                share.created_at.as_millis(),
                share.ends_at.as_millis(),
            ))?;
        Ok(())
    }

    pub(crate) fn forget_app_share(&self, id: AppShareId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from app_share where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }
}
