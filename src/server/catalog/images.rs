//! Rows of imported images. The bytes are `store`'s; a row says that they are whole and what users
//! call them.

use std::collections::BTreeMap;

use rules::image::CatalogImage;
use rules::image_limits::ImageLimits;
use rules::names::{ImageId, UserId};
use rules::permissions::Reach;
use rules::tenancy::DomainId;
use rules::units::Bytes;
use rusqlite::{OptionalExtension as _, Row};

use super::reach::{IMAGE, SESSION, condition};
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

pub(super) const COLUMNS: &str = "id, reference, digest, size, architecture, created_at, imported_at, labels, \
    entrypoint, command, env, user, working_directory, stop_signal, generation, domain, owner, shared, limits";

pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<CatalogImage> {
    let labels: BTreeMap<String, String> = value::json(row, "labels")?;
    let limits: Option<ImageLimits> = value::json_or_none(row, "limits")?;
    Ok(CatalogImage {
        id: ImageId(value::id(row, "id")?),
        reference: row.get("reference")?,
        digest: row.get("digest")?,
        size: Bytes(value::unsigned(row, "size")?),
        architecture: row.get("architecture")?,
        created_at: value::time(row, "created_at")?,
        imported_at: value::time(row, "imported_at")?,
        limits: limits.unwrap_or_else(|| ImageLimits::of_labels(&labels)),
        limits_set: limits.is_some(),
        labels,
        entrypoint: value::json(row, "entrypoint")?,
        command: value::json(row, "command")?,
        env: value::json(row, "env")?,
        user: row.get("user")?,
        working_directory: row.get("working_directory")?,
        stop_signal: row.get("stop_signal")?,
        generation: value::unsigned(row, "generation")?,
        domain: DomainId(value::id(row, "domain")?),
        owner: value::id_or_none(row, "owner")?.map(UserId),
        shared: row.get("shared")?,
    })
}

impl ReadTransaction<'_> {
    pub(crate) fn image(&self, id: ImageId) -> Result<Option<CatalogImage>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!("select {COLUMNS} from image where id = ?1"))?
            .query_row([id.0.as_bytes()], from_row)
            .optional()?)
    }

    pub(crate) fn image_called(&self, reference: &str) -> Result<Option<CatalogImage>, Failure> {
        Ok(self
            .connection
            .prepare_cached(&format!("select {COLUMNS} from image where reference = ?1"))?
            .query_row([reference], from_row)
            .optional()?)
    }

    /// Images, by reference.
    pub(crate) fn images(&self, reach: &Reach) -> Result<Vec<CatalogImage>, Failure> {
        let (reached, value) = condition(reach, IMAGE, "?1");
        let mut statement = self.connection.prepare_cached(&format!(
            "select {COLUMNS} from image where {reached} order by reference"
        ))?;
        let rows = statement.query_map([value], from_row)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Digests of the images of all domains: what the store must keep. Shown to no caller.
    pub(crate) fn image_digests(&self) -> Result<Vec<String>, Failure> {
        let mut statement = self.connection.prepare_cached("select digest from image")?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// How many live sessions in reach start from each image, by the reference they asked for. O(live sessions).
    pub(crate) fn images_used(&self, reach: &Reach) -> Result<BTreeMap<String, u64>, Failure> {
        let (reached, value) = condition(reach, SESSION, "?1");
        let mut statement = self.connection.prepare_cached(&format!(
            "select image_reference, count(*) as n
             from session
             where state <> 'ended' and {reached}
             group by image_reference"
        ))?;
        let rows = statement.query_map([value], |row| {
            Ok((row.get("image_reference")?, value::unsigned(row, "n")?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// How many images this user made of sessions.
    pub(crate) fn images_of(&self, owner: UserId) -> Result<u64, Failure> {
        Ok(self
            .connection
            .prepare_cached("select count(*) as n from image where owner = ?1")?
            .query_row([owner.0.as_bytes()], |row| value::unsigned(row, "n"))?)
    }

    /// How many images were imported, pushed or pulled: those of no user. O(images).
    pub(crate) fn imported_images(&self) -> Result<u64, Failure> {
        Ok(self
            .connection
            .prepare_cached("select count(*) as n from image where owner is null")?
            .query_row([], |row| value::unsigned(row, "n"))?)
    }

    /// How many live sessions start from this image.
    pub(crate) fn image_users(&self, id: ImageId) -> Result<u32, Failure> {
        Ok(self
            .connection
            .prepare_cached("select count(*) from session where state <> 'ended' and image = ?1")?
            .query_row([id.0.as_bytes()], |row| row.get(0))?)
    }
}

impl Rows<'_> {
    /// Gives an image another reference.
    pub(crate) fn rename_image(&self, id: ImageId, reference: &str) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update image
                 set reference = ?2, generation = generation + 1
                 where id = ?1",
            )?
            .execute((id.0.as_bytes(), reference))?;
        Ok(())
    }

    /// Writes a new image, whose reference is free.
    pub(crate) fn insert_image(&self, image: &CatalogImage) -> Result<(), Failure> {
        self.connection
            .prepare_cached(&format!(
                "insert into image ({COLUMNS})
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,
                         ?16, ?17, ?18, ?19)"
            ))?
            .execute(rusqlite::params![
                image.id.0.as_bytes(),
                &image.reference,
                &image.digest,
                value::signed(image.size.0),
                &image.architecture,
                image.created_at.as_millis(),
                image.imported_at.as_millis(),
                value::text(&image.labels),
                value::text(&image.entrypoint),
                value::text(&image.command),
                value::text(&image.env),
                &image.user,
                &image.working_directory,
                &image.stop_signal,
                value::signed(image.generation),
                image.domain.0.as_bytes(),
                image.owner.as_ref().map(|owner| owner.0.as_bytes()),
                image.shared,
                image.limits_set.then(|| value::text(&image.limits)),
            ])?;
        Ok(())
    }

    /// Has the users of its domain see an image, or its owner alone.
    pub(crate) fn share_image(&self, id: ImageId, shared: bool) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update image
                 set shared = ?2, generation = generation + 1
                 where id = ?1",
            )?
            .execute((id.0.as_bytes(), shared))?;
        Ok(())
    }

    /// Keeps the limits that an administrator gives an image; None: those of its labels hold again.
    pub(crate) fn put_image_limits(
        &self,
        id: ImageId,
        limits: Option<&ImageLimits>,
    ) -> Result<(), Failure> {
        self.connection
            .prepare_cached(
                "update image
                 set limits = ?2, generation = generation + 1
                 where id = ?1",
            )?
            .execute((id.0.as_bytes(), limits.map(value::text)))?;
        Ok(())
    }

    /// Removes the row of an image; false where there was none.
    pub(crate) fn remove_image(&self, id: ImageId) -> Result<bool, Failure> {
        let gone = self
            .connection
            .prepare_cached("delete from image where id = ?1")?
            .execute([id.0.as_bytes()])?;
        Ok(gone == 1)
    }
}
