//! How far the audit log was handed over: of each place outside the newest row that it has, and how many rows were forgotten
//! before it had them; an event says when that was noticed. Hands nothing over.

use rules::hand_over::AuditTarget;
use rules::tenancy::Scope;
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};

use super::events::NewEvent;
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// The event of rows that a place will never have.
const ROWS_LOST: &str = "audit.rows-lost";

/// How far one place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DeliveryRow {
    /// The newest row that it has; 0 before the first.
    pub(crate) delivered: u64,
    /// Rows that were forgotten before it had them, as far as that was counted.
    pub(crate) lost: u64,
    /// When it took the last ones; None while it has none.
    pub(crate) at: Option<Timestamp>,
}

impl ReadTransaction<'_> {
    /// How far a place is; None for one that never had a row. Costs one look by key.
    pub(crate) fn delivery(&self, target: AuditTarget) -> Result<Option<DeliveryRow>, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select delivered, lost, delivered_at
                 from audit_target
                 where target = ?1",
            )?
            .query_row([target.word()], delivery_row)
            .optional()?)
    }

    /// When it was last noticed that a place will never have some rows; None for one that has all, and where the event is
    /// forgotten. Costs a look at the events of things that are called as the place is.
    pub(crate) fn rows_lost_at(&self, target: AuditTarget) -> Result<Option<Timestamp>, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select at
                 from event
                 where object = ?1
                 and code = ?2
                 order by sequence desc
                 limit 1",
            )?
            .query_row((target.word(), ROWS_LOST), |row| value::time(row, "at"))
            .optional()?)
    }
}

impl Rows<'_> {
    /// Notes that a place is to have every row after one, so that what is forgotten from now on is counted. One that is known
    /// stays as it is.
    pub(crate) fn begin_delivery(&self, target: AuditTarget, after: u64) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into audit_target (target, delivered, lost)
                 values (?1, ?2, 0)
                 on conflict (target) do nothing",
            )?
            .execute((target.word(), value::signed(after)))?;
        Ok(())
    }

    /// Notes that a place has every row up to one, but for `lost` ones, which it will never have.
    pub(crate) fn record_delivery(
        &self,
        target: AuditTarget,
        delivered: u64,
        lost: u64,
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into audit_target (target, delivered, lost, delivered_at)
                 values (?1, ?2, ?3, ?4)
                 on conflict (target) do update
                 set delivered = excluded.delivered,
                     lost = lost + excluded.lost,
                     delivered_at = excluded.delivered_at",
            )?
            .execute((
                target.word(),
                value::signed(delivered),
                value::signed(lost),
                self.now.as_millis(),
            ))?;
        if lost == 0 {
            return Ok(());
        }
        // No act: it would be a row of the log of itself.
        self.note_alone(NewEvent {
            actor: "server",
            topic: "system",
            object: target.word(),
            scope: Scope::SITE,
            code: ROWS_LOST,
            before: "",
            after: &lost.to_string(),
        })
    }
}

fn delivery_row(row: &Row<'_>) -> rusqlite::Result<DeliveryRow> {
    Ok(DeliveryRow {
        delivered: value::unsigned(row, "delivered")?,
        lost: value::unsigned(row, "lost")?,
        at: value::time_or_none(row, "delivered_at")?,
    })
}
