//! Rows of announcements. Decides nothing; who reads which, `rules::announcement` says.

use rules::announcement::{Announcement, AnnouncementLevel};
use rules::names::AnnouncementId;
use rules::tenancy::DomainId;
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// Days for which one that is over is kept. Longer: the list is long. Shorter: the list does not say what was announced last.
const KEPT_DAYS: i64 = 30;

/// One announcement, and the name of its domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnnouncementRecord {
    pub(crate) announcement: Announcement,
    /// None for the whole site.
    pub(crate) domain_name: Option<String>,
}

const ANNOUNCEMENT: &str =
    "announcement.id, announcement.domain, level, text, text_ko, begins_at, ends_at,
    before_sign_in, announcement.generation, domain.name as domain_name";

fn announcement_row(row: &Row<'_>) -> rusqlite::Result<AnnouncementRecord> {
    Ok(AnnouncementRecord {
        announcement: Announcement {
            id: AnnouncementId(value::id(row, "id")?),
            domain: value::id_or_none(row, "domain")?.map(DomainId),
            level: value::word(row, "level", AnnouncementLevel::parse)?,
            text: row.get("text")?,
            text_ko: row.get("text_ko")?,
            from: value::time(row, "begins_at")?,
            until: value::time_or_none(row, "ends_at")?,
            before_sign_in: row.get("before_sign_in")?,
            generation: value::unsigned(row, "generation")?,
        },
        domain_name: row.get("domain_name")?,
    })
}

impl ReadTransaction<'_> {
    /// All announcements, also those to come and those that are over, the latest beginning first.
    pub(crate) fn announcements(&self) -> Result<Vec<AnnouncementRecord>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {ANNOUNCEMENT}
             from announcement
             left join domain on domain.id = announcement.domain
             order by begins_at desc, announcement.id desc"
        ))?;
        let rows = statement.query_map([], announcement_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub(crate) fn announcement(
        &self,
        id: AnnouncementId,
    ) -> Result<Option<AnnouncementRecord>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select {ANNOUNCEMENT}
                 from announcement
                 left join domain on domain.id = announcement.domain
                 where announcement.id = ?1"
            ))?
            .query_row([id.0.as_bytes()], announcement_row)
            .optional()?)
    }
}

impl Rows<'_> {
    pub(crate) fn insert_announcement(&self, one: &Announcement) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into announcement
                     (id, domain, level, text, text_ko, begins_at, ends_at, before_sign_in,
                      generation)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute((
                one.id.0.as_bytes(),
                one.domain.map(|id| *id.0.as_bytes()),
                one.level.word(),
                &one.text,
                &one.text_ko,
                one.from.as_millis(),
                one.until.map(Timestamp::as_millis),
                one.before_sign_in,
                value::signed(one.generation),
            ))?;
        Ok(())
    }

    /// Writes all but the domain; raises the generation.
    pub(crate) fn put_announcement(&self, one: &Announcement) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update announcement
                 set level = ?2, text = ?3, text_ko = ?4, begins_at = ?5, ends_at = ?6,
                     before_sign_in = ?7, generation = generation + 1
                 where id = ?1",
            )?
            .execute((
                one.id.0.as_bytes(),
                one.level.word(),
                &one.text,
                &one.text_ko,
                one.from.as_millis(),
                one.until.map(Timestamp::as_millis),
                one.before_sign_in,
            ))?;
        Ok(())
    }

    pub(crate) fn forget_announcement(&self, id: AnnouncementId) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from announcement where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(())
    }

    /// Drops announcements that were over 30 days ago; gives how many.
    pub(super) fn forget_old_announcements(&self) -> Result<usize, Failure> {
        let before = self.now.as_millis() - KEPT_DAYS * 86_400_000;
        Ok(self
            .connection
            .prepare_cached("delete from announcement where ends_at < ?1")?
            .execute([before])?)
    }
}
