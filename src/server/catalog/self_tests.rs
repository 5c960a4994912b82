//! What self-tests of cards found, as they were signed. Rows are never changed, and stay when the card is
//! gone.

use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};
use uuid::Uuid;

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// One test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SelfTestRow {
    pub(crate) id: Uuid,
    /// The card's own name for itself.
    pub(crate) device: String,
    /// Version of the driver.
    pub(crate) driver: String,
    pub(crate) at: Timestamp,
    pub(crate) passed: bool,
    /// JSON, byte for byte what was signed.
    pub(crate) statement: String,
    pub(crate) signature: Vec<u8>,
}

const COLUMNS: &str = "id, device, driver, at, passed, statement, signature";

fn from_row(row: &Row<'_>) -> rusqlite::Result<SelfTestRow> {
    Ok(SelfTestRow {
        id: value::id(row, "id")?,
        device: row.get("device")?,
        driver: row.get("driver")?,
        at: value::time(row, "at")?,
        passed: row.get("passed")?,
        statement: row.get("statement")?,
        signature: row.get("signature")?,
    })
}

impl ReadTransaction<'_> {
    /// The newest test of a card with any driver; None where there was none.
    pub(crate) fn newest_self_test(&self, device: &str) -> Result<Option<SelfTestRow>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {COLUMNS}
                 from self_test_report
                 where device = ?1
                 order by at desc, id desc
                 limit 1"
            ))?
            .query_row([device], from_row)
            .optional()?)
    }

    /// Whether the newest test of a card with this driver passed, and when; None where there was none.
    pub(crate) fn self_test_with(
        &self,
        device: &str,
        driver: &str,
    ) -> Result<Option<(bool, Timestamp)>, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select passed, at
                 from self_test_report
                 where device = ?1 and driver = ?2
                 order by at desc, id desc
                 limit 1",
            )?
            .query_row([device, driver], |row| {
                Ok((row.get(0)?, value::time(row, 1)?))
            })
            .optional()?)
    }
}

impl Rows<'_> {
    pub(crate) fn insert_self_test(&self, row: &SelfTestRow) -> Result<(), Failure> {
        self.connection
            .prepare_cached(&format!(
                "insert into self_test_report ({COLUMNS})
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
            ))?
            .execute((
                row.id.as_bytes(),
                &row.device,
                &row.driver,
                row.at.as_millis(),
                row.passed,
                &row.statement,
                &row.signature,
            ))?;
        Ok(())
    }
}
