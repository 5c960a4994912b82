//! Rows of administrators who look into what is another user's. Decides nothing; `rules::break_glass` does.

use api::break_glass::BreakGlassKind;
use rules::names::{BreakGlassId, UserId};
use rules::permissions::Reach;
use rules::tenancy::{DomainId, Scope};
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};
use uuid::Uuid;

use super::Catalog;
use super::events::NewEvent;
use super::reader::ReadTransaction;
use super::value;
use super::writer::{Lane, Rows};
use crate::Failure;

/// Rows that are kept; of more the oldest that are over go. Higher: an owner reads of more of them. Lower: less room.
const MAX_KEPT: u32 = 2_000;
/// An administrator looks into a session, and its owner is told.
pub(crate) const SESSION_OPENED: &str = "session.break-glass";
/// The same of a folder.
pub(crate) const FOLDER_OPENED: &str = "folder.break-glass";

/// One look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BreakGlassRecord {
    pub(crate) id: BreakGlassId,
    pub(crate) actor: UserId,
    pub(crate) actor_name: String,
    /// None for a folder of a project.
    pub(crate) owner: Option<UserId>,
    pub(crate) owner_name: String,
    pub(crate) kind: BreakGlassKind,
    pub(crate) object: Uuid,
    pub(crate) name: String,
    pub(crate) domain: DomainId,
    pub(crate) reason: String,
    pub(crate) began_at: Timestamp,
    pub(crate) ends_at: Timestamp,
    /// None while it is open.
    pub(crate) ended_at: Option<Timestamp>,
}

impl BreakGlassRecord {
    /// Whose it is: its owner's, in their domain.
    pub(crate) fn scope(&self) -> Scope {
        Scope {
            domain: Some(self.domain),
            project: None,
            owner: self.owner,
        }
    }

    /// What its events are about: the id of a session, the name of a folder.
    fn told_object(&self) -> (&'static str, String) {
        match self.kind {
            BreakGlassKind::Session => ("sessions", self.object.to_string()),
            BreakGlassKind::Folder => ("system", self.name.clone()),
        }
    }
}

const WHOLE: &str = "id, actor, actor_name, owner, owner_name, kind, object, name, domain, reason,
                     began_at, ends_at, ended_at";

fn record(row: &Row<'_>) -> rusqlite::Result<BreakGlassRecord> {
    Ok(BreakGlassRecord {
        id: BreakGlassId(value::id(row, "id")?),
        actor: UserId(value::id(row, "actor")?),
        actor_name: row.get("actor_name")?,
        owner: value::id_or_none(row, "owner")?.map(UserId),
        owner_name: row.get("owner_name")?,
        kind: value::word(row, "kind", BreakGlassKind::parse)?,
        object: value::id(row, "object")?,
        name: row.get("name")?,
        domain: DomainId(value::id(row, "domain")?),
        reason: row.get("reason")?,
        began_at: value::time(row, "began_at")?,
        ends_at: value::time(row, "ends_at")?,
        ended_at: value::time_or_none(row, "ended_at")?,
    })
}

impl ReadTransaction<'_> {
    /// The look of a user into a session or a folder that is open. Costs a step of an index.
    pub(crate) fn open_break_glass(
        &self,
        actor: UserId,
        object: Uuid,
    ) -> Result<Option<BreakGlassRecord>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {WHOLE} from break_glass
                 where actor = ?1 and object = ?2 and ended_at is null"
            ))?
            .query_row((actor.0.as_bytes(), object.as_bytes()), record)
            .optional()?)
    }

    /// How many looks of a user are open.
    pub(crate) fn open_break_glass_of(&self, actor: UserId) -> Result<u64, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select count(*) as n from break_glass where actor = ?1 and ended_at is null",
            )?
            .query_row([actor.0.as_bytes()], |row| value::unsigned(row, "n"))?)
    }

    pub(crate) fn break_glass(
        &self,
        id: BreakGlassId,
    ) -> Result<Option<BreakGlassRecord>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!("select {WHOLE} from break_glass where id = ?1"))?
            .query_row([id.0.as_bytes()], record)
            .optional()?)
    }

    /// Those that a reach covers, and those of `actor`, the newest first, at most `most`. Costs a visit of each that is
    /// kept.
    pub(crate) fn break_glass_within(
        &self,
        reach: &Reach,
        actor: UserId,
        most: usize,
    ) -> Result<Vec<BreakGlassRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {WHOLE} from break_glass order by began_at desc, id desc"
        ))?;
        let rows = statement.query_map([], record)?;
        let mut found = Vec::new();
        for row in rows {
            let row = row?;
            if row.actor == actor || reach.covers(&row.scope()) {
                found.push(row);
            }
            if found.len() == most {
                break;
            }
        }
        Ok(found)
    }
}

impl Rows<'_> {
    /// Opens a look, told to its owner; forgets the oldest that are over where too many are kept.
    pub(crate) fn insert_break_glass(&self, row: &BreakGlassRecord) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into break_glass
                     (id, actor, actor_name, owner, owner_name, kind, object, name, domain, reason,
                      began_at, ends_at)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?
            .execute((
                row.id.0.as_bytes(),
                row.actor.0.as_bytes(),
                &row.actor_name,
                row.owner.map(|owner| *owner.0.as_bytes()),
                &row.owner_name,
                row.kind.word(),
                row.object.as_bytes(),
                &row.name,
                row.domain.0.as_bytes(),
                &row.reason,
                row.began_at.as_millis(),
                row.ends_at.as_millis(),
            ))?;
        self.connection
            .prepare_cached(
                "delete from break_glass
                 where ended_at is not null
                 and id in (
                     select id
                     from break_glass
                     order by began_at desc, id desc
                     limit -1 offset ?1
                 )",
            )?
            .execute([MAX_KEPT])?;
        Ok(())
    }

    /// Ends a look and writes it down.
    pub(crate) fn end_break_glass(&self, row: &BreakGlassRecord, by: &str) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update break_glass set ended_at = ?2 where id = ?1")?
            .execute((row.id.0.as_bytes(), self.now.as_millis()))?;
        let (topic, object) = row.told_object();
        let code = match row.kind {
            BreakGlassKind::Session => "session.break-glass-ended",
            BreakGlassKind::Folder => "folder.break-glass-ended",
        };
        self.note(NewEvent {
            actor: by,
            topic,
            object: &object,
            scope: row.scope(),
            code,
            before: &row.actor_name,
            after: "",
        })
    }
}

impl Catalog {
    /// Ends the looks whose time is over. Costs a step of an index where none is.
    pub(crate) async fn end_break_glass(&self, now: Timestamp) -> Result<(), Failure> {
        let due = self.read_now("look for ends of break-glass", |view| {
            Ok(view
                .connection
                .prepare_cached(
                    "select 1 from break_glass where ended_at is null and ends_at <= ?1",
                )?
                .exists([now.as_millis()])?)
        })?;
        if !due {
            return Ok(());
        }
        self.write(Lane::Loops, "end break-glass", move |rows| {
            let over: Vec<BreakGlassRecord> = {
                let mut statement = rows.connection.prepare_cached(&format!(
                    "select {WHOLE} from break_glass where ended_at is null and ends_at <= ?1"
                ))?;
                let found = statement.query_map([now.as_millis()], record)?;
                found.collect::<Result<_, _>>()?
            };
            for row in over {
                rows.end_break_glass(&row, "system")?;
            }
            Ok(())
        })
        .await
    }
}
