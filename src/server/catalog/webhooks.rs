//! Rows of webhooks: addresses outside that are told of events, and how far each is. A signature needs the secret itself, so
//! it is sealed, not hashed. Sends nothing.

use api::secret::SecretText;
use rules::names::WebhookId;
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};

use super::events::{EventRow, from_row};
use super::reader::ReadTransaction;
use super::sealing::SealedRow;
use super::value;
use super::writer::Rows;
use crate::{Failure, ServerFault};

/// One webhook without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebhookRow {
    pub(crate) id: WebhookId,
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) kinds: Vec<String>,
    pub(crate) active: bool,
    pub(crate) created_at: Timestamp,
    pub(crate) generation: u64,
    /// The newest event that it was told of, or that it is not told of.
    pub(crate) seen: u64,
    /// Events that it was never told of, and when the last of them was given up.
    pub(crate) lost: u64,
    pub(crate) lost_at: Option<Timestamp>,
    pub(crate) delivered_at: Option<Timestamp>,
}

const WEBHOOK: &str =
    "id, name, address, kinds, active, created_at, generation, seen, lost, lost_at, delivered_at";

/// A piece of the journal in its own order.
const BEHIND: &str = "select sequence, at, actor, topic, object, owner, code, before, after
     from event
     where sequence > ?1
     order by sequence
     limit ?2";

impl ReadTransaction<'_> {
    /// All webhooks, by their names; there are a few.
    pub(crate) fn webhooks(&self) -> Result<Vec<WebhookRow>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {WEBHOOK}
             from webhook
             order by name"
        ))?;
        let rows = statement.query_map([], webhook_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub(crate) fn webhook(&self, id: WebhookId) -> Result<Option<WebhookRow>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {WEBHOOK}
                 from webhook
                 where id = ?1"
            ))?
            .query_row([id.0.as_bytes()], webhook_row)
            .optional()?)
    }

    /// What signs the requests of a webhook. Errors: a fault where it is not what was sealed.
    pub(crate) fn webhook_secret(&self, id: WebhookId) -> Result<Option<SecretText>, Failure> {
        let sealed: Option<String> = self
            .connection
            .prepare_cached("select secret from webhook where id = ?1")?
            .query_row([id.0.as_bytes()], |row| row.get("secret"))
            .optional()?;
        let Some(sealed) = sealed else {
            return Ok(None);
        };
        let secret = self
            .seal
            .open(&SealedRow::Webhook(id.0.as_bytes()), &sealed)
            .map_err(|broken| ServerFault::new("read the secret of a webhook", broken))?;
        Ok(Some(SecretText::new(secret)))
    }

    /// Events behind one, oldest first, at most `most`. Costs a visit of each.
    pub(crate) fn events_behind(&self, seen: u64, most: u32) -> Result<Vec<EventRow>, Failure> {
        let mut statement = self.connection.prepare_cached(BEHIND)?;
        let rows = statement.query_map((value::signed(seen), most), from_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl Rows<'_> {
    pub(crate) fn insert_webhook(
        &self,
        row: &WebhookRow,
        secret: &SecretText,
    ) -> Result<(), Failure> {
        let sealed = self
            .seal
            .shut(&SealedRow::Webhook(row.id.0.as_bytes()), secret.reveal());
        self.connection
            .prepare_cached(
                "insert into webhook
                     (id, name, address, kinds, secret, active, created_at, generation, seen, lost)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0)",
            )?
            .execute((
                row.id.0.as_bytes(),
                &row.name,
                &row.address,
                value::text(&row.kinds),
                sealed,
                row.active,
                row.created_at.as_millis(),
                value::signed(row.generation),
                value::signed(row.seen),
            ))?;
        Ok(())
    }

    /// Writes what a user may change, and from which event on it is told; raises the generation.
    pub(crate) fn put_webhook(&self, row: &WebhookRow) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update webhook
                 set address = ?2, kinds = ?3, active = ?4, seen = ?5, generation = generation + 1
                 where id = ?1",
            )?
            .execute((
                row.id.0.as_bytes(),
                &row.address,
                value::text(&row.kinds),
                row.active,
                value::signed(row.seen),
            ))?;
        Ok(())
    }

    pub(crate) fn forget_webhook(&self, id: WebhookId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from webhook where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }

    /// Notes how far a webhook is, never back: one that was switched on meanwhile is told from then on.
    pub(crate) fn record_webhook(&self, id: WebhookId, seen: u64) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update webhook set seen = max(seen, ?2) where id = ?1")?
            .execute((id.0.as_bytes(), value::signed(seen)))?;
        Ok(())
    }

    /// Notes that a webhook took what it was told.
    pub(crate) fn note_webhook_delivered(&self, id: WebhookId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("update webhook set delivered_at = ?2 where id = ?1")?
            .execute((id.0.as_bytes(), self.now.as_millis()))?;
        Ok(())
    }

    /// Counts events that a webhook is never told of.
    pub(crate) fn count_lost_of_webhook(&self, id: WebhookId, lost: u64) -> Result<(), Failure> {
        if lost == 0 {
            return Ok(());
        }
        self.connection
            .prepare_cached(
                "update webhook
                 set lost = lost + ?2,
                     lost_at = ?3
                 where id = ?1",
            )?
            .execute((id.0.as_bytes(), value::signed(lost), self.now.as_millis()))?;
        Ok(())
    }
}

fn webhook_row(row: &Row<'_>) -> rusqlite::Result<WebhookRow> {
    Ok(WebhookRow {
        id: WebhookId(value::id(row, "id")?),
        name: row.get("name")?,
        address: row.get("address")?,
        kinds: value::json(row, "kinds")?,
        active: row.get("active")?,
        created_at: value::time(row, "created_at")?,
        generation: value::unsigned(row, "generation")?,
        seen: value::unsigned(row, "seen")?,
        lost: value::unsigned(row, "lost")?,
        lost_at: value::time_or_none(row, "lost_at")?,
        delivered_at: value::time_or_none(row, "delivered_at")?,
    })
}
