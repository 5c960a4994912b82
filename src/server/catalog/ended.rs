//! Retention of ended sessions by size. Beyond a number of bytes per user the oldest lose their launch document
//! (command, variables, labels); beyond a number of rows the oldest are removed. Both happen in the commit that
//! ends a session, so that no loop outruns them. Never touches a live row, nor removes an ended one that a live one waits for.

use rules::names::{SessionId, UserId};
use rusqlite::Connection;

use super::events::NewEvent;
use super::writer::Rows;
use super::{sessions, value};
use crate::Failure;

/// Bytes of commands, variables and labels, as they lie in their rows, that the ended sessions of one user keep
/// together. Higher: a loop of long launches takes more of the disk. Lower: fewer of last week's
/// sessions can be started again.
const MAX_ENDED_BYTES: u64 = 64 << 20;
/// Ended sessions of one user that are kept. Higher: a loop of short sessions takes more of the disk. Lower: a
/// month of sweeps is not seen whole.
const MAX_ENDED: u64 = 50_000;
/// Rows that go, or lose their launch document, in one commit. Higher: an upgraded catalog far past its bounds
/// keeps every other write waiting. Lower: what live sessions wait for is looked up more often.
const MAX_REMOVED: u64 = 200;
/// Who did it, in the journal.
const ACTOR: &str = "retention";

impl Rows<'_> {
    /// Keeps both bounds of what `owner`'s ended sessions keep, now that one more of theirs ended. Where a catalog of
    /// an earlier version is past them, at most 200 go with each that ends. Costs a look at one row, a visit of
    /// each session that goes, and once in 200 of those one of each live session.
    pub(super) fn bound_ended(&self, owner: UserId) -> Result<(), Failure> {
        let (bytes, rows) = kept(self.connection, owner)?;
        if let Some(beyond) = bytes.checked_sub(MAX_ENDED_BYTES).filter(|more| *more > 0) {
            self.forget_documents(owner, beyond)?;
        }
        if rows > MAX_ENDED {
            self.remove_oldest(owner, MAX_REMOVED)?;
        }
        Ok(())
    }

    /// Takes their commands, variables and labels from the oldest, until `bytes` have gone. History, outcome and
    /// log stay.
    fn forget_documents(&self, owner: UserId, bytes: u64) -> Result<(), Failure> {
        let mut oldest = self.connection.prepare_cached(
            "select id, domain, project, owner,
                    octet_length(command) + octet_length(env) + octet_length(labels) as bytes
             from session
             where owner = ?1 and state = 'ended' and document_gone = 0
             order by ended_at",
        )?;
        let mut found = oldest.query([owner.0.as_bytes()])?;
        let (mut gone, mut freed) = (Vec::new(), 0);
        while freed < bytes && gone.len() < MAX_REMOVED as usize {
            let Some(row) = found.next()? else { break };
            freed += value::unsigned(row, "bytes")?;
            gone.push((SessionId(value::id(row, "id")?), sessions::scope(row)?));
        }
        drop(found);
        for (id, scope) in gone {
            self.connection
                .prepare_cached(
                    "update session
                     set command = '[]', env = '{}', labels = '{}', document_gone = 1,
                         generation = generation + 1
                     where id = ?1",
                )?
                .execute([id.0.as_bytes()])?;
            self.note_alone(NewEvent {
                actor: ACTOR,
                topic: "sessions",
                object: &id.to_string(),
                scope,
                code: "session.document-forgotten",
                before: "ended",
                after: "ended",
            })?;
        }
        Ok(())
    }

    /// Removes so many of the oldest; fewer, where live sessions wait for them.
    fn remove_oldest(&self, owner: UserId, most: u64) -> Result<(), Failure> {
        let gone: Vec<SessionId> = self
            .connection
            .prepare_cached(
                "select id
                 from session
                 where owner = ?1
                 and state = 'ended'
                 and lower(hex(id)) not in (
                     select replace(needed.value, '-', '')
                     from session as live, json_each(live.depends_on) as needed
                     where live.state <> 'ended'
                     and live.depends_on <> '[]'
                 )
                 order by document_gone desc, ended_at
                 limit ?2",
            )?
            .query_map((owner.0.as_bytes(), value::signed(most)), |row| {
                Ok(SessionId(value::id(row, "id")?))
            })?
            .collect::<Result<_, _>>()?;
        for id in gone {
            self.delete_session(id, ACTOR)?;
        }
        Ok(())
    }
}

/// Bytes of launch documents, and rows, that a user's ended sessions keep.
fn kept(connection: &Connection, owner: UserId) -> rusqlite::Result<(u64, u64)> {
    connection
        .prepare_cached("select ended_bytes, ended_rows from user where id = ?1")?
        .query_row([owner.0.as_bytes()], |row| {
            Ok((
                value::unsigned(row, "ended_bytes")?,
                value::unsigned(row, "ended_rows")?,
            ))
        })
}
