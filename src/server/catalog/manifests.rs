//! Rows of manifests: with which bytes an image came through the registry, and which blobs it needs. The bytes of blobs are
//! `store`'s.

use std::collections::BTreeSet;

use rules::image::CatalogImage;
use rules::names::ImageId;
use rules::permissions::Reach;
use rules::registry::repository_of;
use rusqlite::OptionalExtension as _;

use super::images::{COLUMNS, from_row};
use super::reach::{IMAGE, condition};
use super::reader::ReadTransaction;
use super::value;
use super::writer::Rows;
use crate::Failure;

/// The manifest of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestRow {
    /// `sha256:…` of the body.
    pub(crate) digest: String,
    pub(crate) media_type: String,
    pub(crate) body: Vec<u8>,
    /// What it names.
    pub(crate) blobs: Vec<BlobRow>,
}

/// A blob that the manifest of an image names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlobRow {
    pub(crate) digest: String,
    pub(crate) bytes: u64,
    /// Of a manifest that an index names.
    pub(crate) media_type: Option<String>,
}

impl ReadTransaction<'_> {
    /// The manifest of an image, without its blobs; None for one that came from an archive.
    pub(crate) fn manifest_of(&self, image: ImageId) -> Result<Option<ManifestRow>, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select digest, media_type, body
                 from image_manifest
                 where image = ?1",
            )?
            .query_row([image.0.as_bytes()], |row| {
                Ok(ManifestRow {
                    digest: row.get("digest")?,
                    media_type: row.get("media_type")?,
                    body: row.get("body")?,
                    blobs: Vec::new(),
                })
            })
            .optional()?)
    }

    /// The media type of a manifest that the index of this image names; None where it names none of this digest.
    pub(crate) fn listed_manifest(
        &self,
        image: ImageId,
        digest: &str,
    ) -> Result<Option<String>, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select media_type
                 from image_blob
                 where image = ?1 and digest = ?2 and media_type is not null",
            )?
            .query_row((image.0.as_bytes(), digest), |row| row.get(0))
            .optional()?)
    }

    /// Whether the manifest of this image names a blob.
    pub(crate) fn image_has_blob(&self, image: ImageId, digest: &str) -> Result<bool, Failure> {
        Ok(self
            .connection
            .prepare_cached(
                "select exists (select 1 from image_blob where image = ?1 and digest = ?2)",
            )?
            .query_row((image.0.as_bytes(), digest), |row| row.get(0))?)
    }

    /// Images in reach of one repository, by reference; those of an archive too. O(its images).
    pub(crate) fn images_of_repository(
        &self,
        reach: &Reach,
        repository: &str,
    ) -> Result<Vec<CatalogImage>, Failure> {
        let (reached, value) = condition(reach, IMAGE, "?3");
        // A colon stands before the tag, and the letter behind it in the order of bytes is a semicolon.
        let (from, to) = (format!("{repository}:"), format!("{repository};"));
        let mut statement = self.connection.prepare_cached(&format!(
            "select {COLUMNS}
             from image
             where reference >= ?1 and reference < ?2 and {reached}
             order by reference"
        ))?;
        let rows = statement.query_map((from, to, value), from_row)?;
        let mut all: Vec<CatalogImage> = rows.collect::<Result<_, _>>()?;
        all.retain(|image| repository_of(&image.reference).0 == repository);
        Ok(all)
    }

    /// Images in reach that the registry can give, by reference. O(images).
    pub(crate) fn pullable_images(&self, reach: &Reach) -> Result<Vec<CatalogImage>, Failure> {
        let mut all = self.images(reach)?;
        let known = self.manifest_images()?;
        all.retain(|image| known.contains(&image.id));
        Ok(all)
    }

    fn manifest_images(&self) -> Result<BTreeSet<ImageId>, Failure> {
        let mut statement = self
            .connection
            .prepare_cached("select image from image_manifest")?;
        let rows = statement.query_map([], |row| Ok(ImageId(value::id(row, "image")?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Digests of all blobs and manifests that images need: what the registry must keep. Shown to no caller.
    pub(crate) fn needed_blobs(&self) -> Result<BTreeSet<String>, Failure> {
        let mut statement = self.connection.prepare_cached(
            "select digest from image_blob
             union
             select digest from image_manifest",
        )?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

impl Rows<'_> {
    /// Notes with which manifest an image came; what it came with before is forgotten.
    pub(crate) fn put_manifest(&self, image: ImageId, row: &ManifestRow) -> Result<(), Failure> {
        let id = image.0.as_bytes();
        for table in ["image_blob", "image_manifest"] {
            self.connection
                .prepare_cached(&format!("delete from {table} where image = ?1"))?
                .execute([id])?;
        }
        self.connection
            .prepare_cached(
                "insert into image_manifest (image, digest, media_type, body)
                 values (?1, ?2, ?3, ?4)",
            )?
            .execute((id, &row.digest, &row.media_type, &row.body))?;
        for blob in &row.blobs {
            self.connection
                .prepare_cached(
                    "insert or ignore into image_blob (image, digest, bytes, media_type)
                     values (?1, ?2, ?3, ?4)",
                )?
                .execute((
                    id,
                    &blob.digest,
                    value::signed(blob.bytes),
                    &blob.media_type,
                ))?;
        }
        Ok(())
    }
}
