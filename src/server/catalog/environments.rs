//! Rows of environments that came as bundles: what each version says of itself, and which images it brought.

use rules::environment::RecommendedOptions;
use rules::names::ImageId;
use rules::units::Timestamp;
use rusqlite::{OptionalExtension as _, Row};

use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// A version of an environment, without its texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnvironmentRow {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) about: String,
    /// Of the bundle's manifest.
    pub(crate) digest: String,
    /// The trusted key that signed it.
    pub(crate) signer: Option<String>,
    pub(crate) imported_at: Timestamp,
}

/// What goes into a version beside its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnvironmentTexts {
    pub(crate) sbom: String,
    pub(crate) licences: String,
}

/// An image of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnvironmentImageRow {
    pub(crate) image: ImageId,
    pub(crate) recommended: RecommendedOptions,
}

const COLUMNS: &str = "name, version, about, digest, signer, imported_at";
/// One whose images are all removed is none.
const HAS_IMAGES: &str = "exists (
    select 1 from environment_image as i
    where i.name = environment.name and i.version = environment.version)";

fn from_row(row: &Row<'_>) -> rusqlite::Result<EnvironmentRow> {
    Ok(EnvironmentRow {
        name: row.get("name")?,
        version: row.get("version")?,
        about: row.get("about")?,
        digest: row.get("digest")?,
        signer: row.get("signer")?,
        imported_at: value::time(row, "imported_at")?,
    })
}

impl ReadTransaction<'_> {
    /// All versions of all environments that have an image; there are some dozens. Shown to no caller as they are.
    pub(crate) fn environments(&self) -> Result<Vec<EnvironmentRow>, Failure> {
        let mut statement = self.connection.prepare_cached(&format!(
            "select {COLUMNS}
             from environment
             where {HAS_IMAGES}
             order by name, version"
        ))?;
        let rows = statement.query_map([], from_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The list of packages and the licences of a version.
    pub(crate) fn environment_texts(
        &self,
        name: &str,
        version: &str,
    ) -> Result<Option<EnvironmentTexts>, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select sbom, licences
                 from environment
                 where name = ?1 and version = ?2",
            )?
            .query_row((name, version), |row| {
                Ok(EnvironmentTexts {
                    sbom: row.get("sbom")?,
                    licences: row.get("licences")?,
                })
            })
            .optional()?)
    }

    /// The images that a version brought and that are still here.
    pub(crate) fn environment_images(
        &self,
        name: &str,
        version: &str,
    ) -> Result<Vec<EnvironmentImageRow>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select image, recommended
             from environment_image
             where name = ?1 and version = ?2",
        )?;
        let rows = statement.query_map((name, version), |row| {
            Ok(EnvironmentImageRow {
                image: ImageId(value::id(row, "image")?),
                recommended: value::json(row, "recommended")?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// What a session of this image is best started with, as the environment that came last says. Costs one range of an index.
    pub(crate) fn recommended_of_image(
        &self,
        image: ImageId,
    ) -> Result<RecommendedOptions, Failure> {
        let found = self
            .connection
            .prepare_cached(
                "select recommended
                 from environment_image as i
                 join environment as e on e.name = i.name and e.version = i.version
                 where i.image = ?1
                 order by e.imported_at desc, e.version desc
                 limit 1",
            )?
            .query_row([image.0.as_bytes()], |row| value::json(row, "recommended"))
            .optional()?;
        Ok(found.unwrap_or_default())
    }

    /// How many versions of environments have this image.
    pub(crate) fn environments_of_image(&self, image: ImageId) -> Result<u32, Failure> {
        Ok(self
            .connection
            .prepare_cached("select count(*) from environment_image where image = ?1")?
            .query_row([image.0.as_bytes()], |row| row.get(0))?)
    }
}

impl Rows<'_> {
    /// Writes a version with its images in place of what stood there, and forgets those that have none any more.
    pub(crate) fn put_environment(
        &self,
        row: &EnvironmentRow,
        texts: &EnvironmentTexts,
        images: &[EnvironmentImageRow],
    ) -> Result<(), Failure> {
        self.remove_environment(&row.name, &row.version)?;
        self.connection
            .prepare_cached(&format!(
                "insert into environment ({COLUMNS}, sbom, licences)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
            ))?
            .execute(rusqlite::params![
                &row.name,
                &row.version,
                &row.about,
                &row.digest,
                &row.signer,
                row.imported_at.as_millis(),
                &texts.sbom,
                &texts.licences,
            ])?;
        for image in images {
            self.connection
                .prepare_cached(
                    "insert or ignore into environment_image (name, version, image, recommended)
                     values (?1, ?2, ?3, ?4)",
                )?
                .execute((
                    &row.name,
                    &row.version,
                    image.image.0.as_bytes(),
                    value::text(&image.recommended),
                ))?;
        }
        // Versions whose images were removed one by one: no list shows them, and their texts take room.
        self.connection
            .prepare_cached(&format!("delete from environment where not {HAS_IMAGES}"))?
            .execute([])?;
        Ok(())
    }

    /// Forgets a version; its images stay.
    pub(crate) fn remove_environment(&self, name: &str, version: &str) -> Result<(), Failure> {
        self.connection
            .prepare_cached("delete from environment where name = ?1 and version = ?2")?
            .execute((name, version))?;
        Ok(())
    }
}
