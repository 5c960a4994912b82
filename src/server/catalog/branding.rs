//! The row that says how the site looks. Decides nothing; `rules::branding` does.

use rusqlite::{OptionalExtension as _, Row};

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// How the site looks; the default is as the product does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BrandingRow {
    pub(crate) name: String,
    /// A PNG file.
    pub(crate) logo: Option<Vec<u8>>,
    pub(crate) hue: Option<u8>,
    pub(crate) footer: String,
    pub(crate) footer_ko: String,
    pub(crate) sign_in: String,
    pub(crate) sign_in_ko: String,
    /// 0 where it was never changed.
    pub(crate) generation: u64,
}

impl ReadTransaction<'_> {
    /// Costs a look by key, and the bytes of the logo.
    pub(crate) fn branding(&self) -> Result<BrandingRow, Failure> {
        let found = self
            .connection
            .prepare_cached(
                "select name, logo, hue, footer, footer_ko, sign_in, sign_in_ko, generation
                 from branding
                 where id = 1",
            )?
            .query_row([], branding_row)
            .optional()?;
        Ok(found.unwrap_or_default())
    }
}

impl Rows<'_> {
    /// Writes all of it, the generation too.
    pub(crate) fn put_branding(&self, row: &BrandingRow) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "insert into branding
                     (id, name, logo, hue, footer, footer_ko, sign_in, sign_in_ko, generation)
                 values (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                 on conflict (id) do update
                 set name = excluded.name,
                     logo = excluded.logo,
                     hue = excluded.hue,
                     footer = excluded.footer,
                     footer_ko = excluded.footer_ko,
                     sign_in = excluded.sign_in,
                     sign_in_ko = excluded.sign_in_ko,
                     generation = excluded.generation",
            )?
            .execute((
                &row.name,
                &row.logo,
                row.hue,
                &row.footer,
                &row.footer_ko,
                &row.sign_in,
                &row.sign_in_ko,
                value::signed(row.generation),
            ))?;
        Ok(())
    }
}

fn branding_row(row: &Row<'_>) -> rusqlite::Result<BrandingRow> {
    Ok(BrandingRow {
        name: row.get("name")?,
        logo: row.get("logo")?,
        hue: row.get("hue")?,
        footer: row.get("footer")?,
        footer_ko: row.get("footer_ko")?,
        sign_in: row.get("sign_in")?,
        sign_in_ko: row.get("sign_in_ko")?,
        generation: value::unsigned(row, "generation")?,
    })
}
