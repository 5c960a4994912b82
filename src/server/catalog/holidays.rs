//! Rows of calendars with days off. Decides nothing; what a list may say, `rules::holiday` says.

use rules::holiday::Holidays;
use rules::tenancy::DomainId;
use rusqlite::OptionalExtension as _;

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// Days off of one calendar; the default is an empty one that was never changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct HolidayCalendar {
    pub(crate) days: Holidays,
    /// 0 where it was never changed.
    pub(crate) generation: u64,
}

/// As rows have it: the whole site is empty.
fn key(domain: Option<DomainId>) -> Vec<u8> {
    domain.map_or_else(Vec::new, |domain| domain.0.as_bytes().to_vec())
}

impl ReadTransaction<'_> {
    /// Days off of a domain, or of the whole site; a domain has those of the site beside its own. Costs a look by key.
    pub(crate) fn holidays(&self, domain: Option<DomainId>) -> Result<HolidayCalendar, Failure> {
        let found = self
            .connection
            .prepare_cached("select days, generation from holiday_calendar where domain = ?1")?
            .query_row([key(domain)], |row| {
                Ok(HolidayCalendar {
                    days: value::json(row, "days")?,
                    generation: value::unsigned(row, "generation")?,
                })
            })
            .optional()?;
        Ok(found.unwrap_or_default())
    }
}

impl Rows<'_> {
    /// Writes all days of a calendar; raises its generation.
    pub(crate) fn put_holidays(
        &self,
        domain: Option<DomainId>,
        days: &Holidays,
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into holiday_calendar (domain, days, generation)
                 values (?1, ?2, 1)
                 on conflict (domain) do update
                 set days = ?2, generation = generation + 1",
            )?
            .execute((key(domain), value::text(days)))?;
        Ok(())
    }
}
