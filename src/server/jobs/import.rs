//! The import of an image: reads the archive, or what was pushed or pulled, into the store, then writes its rows. A
//! crash anywhere leaves an open row, and the next start does all of it again; layers that are there already cost only
//! the reading.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

use rules::image::{CatalogImage, MAX_IMPORTED_IMAGES, parse_reference};
use rules::image_limits::ImageLimits;
use rules::names::ImageId;
use rules::refusal::{Refusal, RefusalKind};
use rules::refusals;
use rules::units::{Bytes, Timestamp};
use serde_json::{Value, json};
use store::images::archive::Archive;
use store::images::config::own_architecture;
use store::images::digest::Sha256Digest;
use store::images::environment::{BundleCheck, CheckedBundle};
use store::images::record::ImageRecord;
use store::images::{ArchiveImport, ImportStage, ImportStatus, ImportedImage};
use store::registry::RegistryStore;
use store::registry::manifest::{self, MAX_MANIFEST_BYTES, ManifestOrIndex, NamedBlob};

use super::outcome::{JobFailure, JobProgress, JobResult};
use super::registry_pull;
use super::runner::{JobKind, RunningJob};
use crate::actions::images::environments::{may_follow, trusted};
use crate::appliance::lazy_stores::{LazyStores, image_failure, upload_failure};
use crate::appliance::unnamed_images::forget_unnamed;
use crate::appliance::unused_blobs::forget_unused_blobs;
use crate::catalog::environments::{EnvironmentImageRow, EnvironmentRow, EnvironmentTexts};
use crate::catalog::events::NewEvent;
use crate::catalog::job_kinds::{BundleChoice, IMAGE_IMPORT, ImportInput, ImportOrigin};
use crate::catalog::jobs::OperationRow;
use crate::catalog::manifests::{BlobRow, ManifestRow};
use crate::catalog::{Catalog, Rows};
use crate::{Failure, ServerFault, WeakServer};

/// Imports that run at once. More: they unpack against each other on one disk. Fewer: there is none.
const AT_ONCE: usize = 1;

/// What an import works with. Keeps no server open, so that dropping the server ends it.
pub(crate) struct ImportJobs {
    pub(crate) catalog: Catalog,
    pub(crate) lazy_stores: Arc<LazyStores>,
    pub(crate) data: PathBuf,
    /// For its settings.
    pub(crate) server: WeakServer,
}

/// What came in.
struct ImportedArchive {
    images: Vec<ImportedImage>,
    /// Of the only image, where it came through the registry.
    manifest: Option<ManifestRow>,
    /// What it says of itself, where it is one of an environment.
    bundle: Option<CheckedBundle>,
}

/// An archive ready to be read.
struct OpenedArchive {
    archive: Archive,
    name: Option<String>,
    manifest: Option<ManifestRow>,
}

impl JobKind for ImportJobs {
    fn name(&self) -> &'static str {
        IMAGE_IMPORT
    }

    fn thread(&self) -> &'static str {
        "imports"
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    fn run(&self, job: &RunningJob<'_>) -> Result<JobResult, JobFailure> {
        let input = input(job.row)?;
        let imported = self.import(job, &input)?;
        let user = job.row.user;
        Ok(Box::new(move |rows| {
            let actor = rows
                .user_name(user)?
                .map_or_else(|| "server".to_owned(), |name| name.to_string());
            write(rows, &imported, input.reference.as_deref(), &actor)
        }))
    }

    fn cancelled(&self) -> Refusal {
        refusals::image_import_cancelled()
    }

    /// An upload that can never be imported goes at once; one that failed for want of room stays, so
    /// that it can be tried again.
    fn discard(&self, row: &OperationRow, refusal: &Refusal) {
        let useless = matches!(
            refusal.kind,
            RefusalKind::Invalid | RefusalKind::TooLarge | RefusalKind::Malformed
        ) || refusal.code == rules::codes::IMAGE_CANCELLED;
        let Ok(ImportInput {
            source: ImportOrigin::Upload { id, owner },
            ..
        }) = input(row)
        else {
            return;
        };
        if useless
            && let Ok(uploads) = self.lazy_stores.uploads(&self.data)
            && let Err(error) = uploads.remove(id, &owner)
            && error.code() != Some(rules::codes::UPLOAD_NOT_FOUND)
        {
            tracing::warn!(%error, "an unusable upload was not removed");
        }
    }

    /// The upload is of no use any more, nor is an image that lost its last name to this one. A crash before
    /// this leaves the upload to its own expiry, and the image to the next start.
    fn tidy(&self, row: &OperationRow) {
        let forgotten = self
            .lazy_stores
            .images(&self.data)
            .and_then(|images| forget_unnamed(&self.catalog, &images));
        if let Err(failure) = forgotten {
            tracing::warn!(error = %base::observe::chain(&failure), "images without a name stay");
        }
        let registry = self.lazy_stores.known_registry(&self.data);
        let swept = registry.and_then(|known| match known {
            Some(registry) => forget_unused_blobs(&self.catalog, &registry),
            None => Ok(()),
        });
        if let Err(failure) = swept {
            tracing::warn!(error = %base::observe::chain(&failure), "unused blobs stay");
        }
        if let Ok(ImportInput {
            source: ImportOrigin::Upload { id, owner },
            ..
        }) = input(row)
            && let Ok(uploads) = self.lazy_stores.uploads(&self.data)
            && let Err(error) = uploads.remove(id, &owner)
        {
            tracing::warn!(%error, "an imported upload was not removed");
        }
    }
}

fn input(row: &OperationRow) -> Result<ImportInput, ServerFault> {
    serde_json::from_value(row.input.clone())
        .map_err(|error| ServerFault::new("read what to import", error))
}

impl ImportJobs {
    fn import(
        &self,
        job: &RunningJob<'_>,
        input: &ImportInput,
    ) -> Result<ImportedArchive, Failure> {
        let images = self.lazy_stores.images(&self.data)?;
        let OpenedArchive {
            archive,
            name,
            manifest,
        } = self.open(job, input)?;
        let bundle = match input.bundle {
            Some(choice) => Some(self.checked(job, &archive, choice)?),
            None => None,
        };
        let imported = images.import(
            ArchiveImport {
                archive,
                name: name.as_deref(),
                now: self.catalog.clock().now(),
                cancelled: Some(job.stop()),
            },
            &mut |progress| job.report(shown(progress)),
        );
        if manifest.is_some() {
            self.drop_layout(job);
        }
        let imported = imported.map_err(image_failure)?;
        if let Some(reference) = &input.reference
            && imported.len() > 1
        {
            forget_unnamed(&self.catalog, &images)?;
            return Err(refusals::image_several(imported.len(), reference)
                .at("/reference")
                .into());
        }
        if let Some(bundle) = &bundle {
            // The file may have changed since it was checked; what came in then is none of the bundle's.
            let named = bundle.manifest.images.iter().map(|image| &image.digest);
            let named: BTreeSet<String> = named.cloned().collect();
            let came: BTreeSet<String> = imported
                .iter()
                .map(|image| image.record.id.to_string())
                .collect();
            if named != came {
                forget_unnamed(&self.catalog, &images)?;
                return Err(refusals::environment_images_differ().into());
            }
        }
        Ok(ImportedArchive {
            images: imported,
            manifest,
            bundle,
        })
    }

    /// Reads a bundle whole before anything of it is unpacked.
    fn checked(
        &self,
        job: &RunningJob<'_>,
        archive: &Archive,
        choice: BundleChoice,
    ) -> Result<CheckedBundle, Failure> {
        let Archive::File(file) = archive else {
            return Err(refusals::environment_not_a_bundle().into());
        };
        let server = self.server.upgrade();
        let settings = server.map(|server| server.settings());
        let settings =
            settings.ok_or_else(|| ServerFault::new("check a bundle", "the server ends"))?;
        let check = BundleCheck {
            file,
            trusted: &trusted(&settings)?,
            accept_unsigned: choice.accept_unsigned,
            cancelled: job.stop(),
        };
        let checked = check.run(&mut |done, total| {
            job.report(JobProgress {
                step: "checking the bundle".to_owned(),
                done,
                total,
            });
        });
        let bundle = checked.map_err(image_failure)?;
        self.catalog.read_now("look for environments", |view| {
            may_follow(view, &bundle.manifest, &bundle.digest, choice.allow_older)
        })?;
        Ok(bundle)
    }

    fn open(&self, job: &RunningJob<'_>, input: &ImportInput) -> Result<OpenedArchive, Failure> {
        let (archive, file_name) = match &input.source {
            ImportOrigin::Upload { id, owner } => {
                let uploads = self.lazy_stores.uploads(&self.data)?;
                let upload = uploads.complete(*id, owner, None).map_err(upload_failure)?;
                (Archive::File(upload.file), upload.declared.file_name)
            }
            ImportOrigin::Path(path) => (
                Archive::at(path).map_err(image_failure)?,
                path.file_name()
                    .map(|name| name.to_string_lossy().into_owned())
                    .unwrap_or_default(),
            ),
            ImportOrigin::Pushed {
                owner: _,
                manifest,
                media_type,
            } => return self.open_manifest(job, input, manifest, media_type),
            ImportOrigin::Registry { owner, image } => {
                let server = self.server.upgrade();
                let settings = server.map(|server| server.settings());
                let settings =
                    settings.ok_or_else(|| ServerFault::new("pull an image", "the server ends"))?;
                let registry = self.lazy_stores.registry(&self.data)?;
                let pulled = registry_pull::pull(job, &registry, &settings, *owner, image)?;
                let (manifest, media_type) = (pulled.digest.to_string(), pulled.media_type);
                return self.open_manifest(job, input, &manifest, &media_type);
            }
        };
        let name = input.reference.clone().or_else(|| stem(&file_name));
        Ok(OpenedArchive {
            archive,
            name,
            manifest: None,
        })
    }

    /// The image of a manifest whose blobs lie in the registry.
    fn open_manifest(
        &self,
        job: &RunningJob<'_>,
        input: &ImportInput,
        digest: &str,
        media_type: &str,
    ) -> Result<OpenedArchive, Failure> {
        let gone = || Failure::from(refusals::registry_manifest_unknown());
        let registry = self.lazy_stores.registry(&self.data)?;
        let digest = Sha256Digest::parse(digest).ok_or_else(gone)?;
        let body = document(&registry, &digest)?;
        let mut blobs = Vec::new();
        let mut ours = None;
        match manifest::read_or_list(&body, media_type, own_architecture())? {
            ManifestOrIndex::Manifest(pushed) => {
                ours = Some((digest.clone(), body.len() as u64, pushed));
            }
            ManifestOrIndex::Index { entries, .. } => {
                for entry in entries {
                    let listed = document(&registry, &entry.manifest.digest)?;
                    let pushed = manifest::read(&listed, &entry.media_type)?;
                    blobs.push(BlobRow {
                        media_type: Some(pushed.media_type.clone()),
                        ..blob_row(&entry.manifest)
                    });
                    blobs.extend(pushed.blobs.iter().map(blob_row));
                    if entry.is_ours && ours.is_none() {
                        ours = Some((entry.manifest.digest, listed.len() as u64, pushed));
                    }
                }
            }
        }
        let (image, image_bytes, pushed) = ours.ok_or_else(gone)?;
        blobs.extend(pushed.blobs.iter().map(blob_row));
        let named: Vec<Sha256Digest> = pushed.blobs.into_iter().map(|b| b.digest).collect();
        let place = registry
            .layout(job.row.id.0, &image, image_bytes, &named)
            .map_err(upload_failure);
        let archive = match place {
            Ok(Some(place)) => Archive::at(&place).map_err(image_failure),
            Ok(None) => Err(gone()),
            Err(failure) => Err(failure),
        };
        let archive = match archive {
            Ok(archive) => archive,
            Err(failure) => {
                self.drop_layout(job);
                return Err(failure);
            }
        };
        Ok(OpenedArchive {
            archive,
            name: input.reference.clone(),
            manifest: Some(ManifestRow {
                digest: digest.to_string(),
                media_type: media_type.to_owned(),
                body,
                blobs,
            }),
        })
    }

    fn drop_layout(&self, job: &RunningJob<'_>) {
        let registry = self.lazy_stores.registry(&self.data);
        let dropped = registry
            .and_then(|registry| registry.drop_layout(job.row.id.0).map_err(upload_failure));
        if let Err(failure) = dropped {
            tracing::warn!(error = %base::observe::chain(&failure), "a layout was not removed");
        }
    }
}

/// A manifest or an index that the registry keeps.
fn document(registry: &RegistryStore, digest: &Sha256Digest) -> Result<Vec<u8>, Failure> {
    let stored = registry.blob(digest).map_err(upload_failure)?;
    let stored = stored.ok_or_else(refusals::registry_manifest_unknown)?;
    let mut body = Vec::new();
    stored
        .file
        .take(MAX_MANIFEST_BYTES as u64)
        .read_to_end(&mut body)
        .map_err(|error| ServerFault::new("read a manifest", error))?;
    Ok(body)
}

fn blob_row(blob: &NamedBlob) -> BlobRow {
    BlobRow {
        digest: blob.digest.to_string(),
        bytes: blob.bytes,
        media_type: None,
    }
}

/// Writes the rows of what was imported, and gives what the operation says of them.
fn write(
    rows: &Rows<'_>,
    imported: &ImportedArchive,
    reference: Option<&str>,
    actor: &str,
) -> Result<Value, Failure> {
    let mut results = Vec::new();
    let mut of_environment = Vec::new();
    for image in &imported.images {
        let named = match &imported.bundle {
            Some(bundle) => named_by(bundle, &image.record),
            None => references(&image.record, reference),
        };
        for reference in named {
            let id = keep(rows, &image.record, &reference, actor)?;
            of_environment.push((id, reference.clone()));
            if let Some(manifest) = &imported.manifest {
                rows.put_manifest(id, manifest)?;
            }
            results.push(json!({
                "id": id,
                "reference": reference,
                "digest": image.record.id,
                "known": image.known,
                "new_bytes": image.new_bytes,
                "warnings": image.record.warnings,
            }));
        }
    }
    let Some(bundle) = &imported.bundle else {
        return Ok(json!({ "images": results }));
    };
    let manifest = &bundle.manifest;
    let mut images = Vec::new();
    for (image, reference) in of_environment {
        let planned = manifest
            .images
            .iter()
            .find(|one| one.reference == reference);
        images.push(EnvironmentImageRow {
            image,
            recommended: planned
                .map(|one| one.recommended.clone())
                .unwrap_or_default(),
        });
    }
    let row = EnvironmentRow {
        name: manifest.name.clone(),
        version: manifest.version.clone(),
        about: manifest.about.clone(),
        digest: bundle.digest.to_string(),
        signer: bundle.signer.clone(),
        imported_at: rows.now,
    };
    let texts = EnvironmentTexts {
        sbom: bundle.sbom.clone(),
        licences: bundle.licences.clone(),
    };
    rows.put_environment(&row, &texts, &images)?;
    // Who vouched for it stays in the log when the version is removed.
    let signed = match &row.signer {
        Some(signer) => format!("signed by {signer}"),
        None => "unsigned".to_owned(),
    };
    let what = format!("{} {} {signed}", row.name, row.version);
    rows.note(NewEvent {
        actor,
        topic: "images",
        object: &row.name,
        scope: rules::tenancy::Scope::domain(rules::tenancy::DomainId::DEFAULT),
        code: "environment.imported",
        before: "",
        after: &what,
    })?;
    Ok(json!({
        "environment": { "name": row.name, "version": row.version, "signer": row.signer },
        "images": results,
    }))
}

/// What a bundle calls this image.
fn named_by(bundle: &CheckedBundle, record: &ImageRecord) -> Vec<String> {
    let digest = record.id.to_string();
    let images = bundle.manifest.images.iter();
    images
        .filter(|image| image.digest == digest)
        .map(|image| image.reference.clone())
        .collect()
}

/// Makes sure that a row of this reference names this image, and gives its id.
fn keep(
    rows: &Rows<'_>,
    record: &ImageRecord,
    reference: &str,
    actor: &str,
) -> Result<ImageId, Failure> {
    let digest = record.id.to_string();
    let mut limits = None;
    if let Some(known) = rows.image_called(reference)? {
        if known.owner.is_some() {
            return Err(refusals::image_reference_of_session(reference).into());
        }
        if known.digest == digest {
            return Ok(known.id);
        }
        // An administrator gave them to the name: a newer image of it does not lift them.
        limits = known.limits_set.then_some(known.limits);
        // The name moves to the new image, as tags do. The old one keeps its row while sessions
        // start from it or an environment has it, under a name that says which it is.
        if rows.image_users(known.id)? == 0 && rows.environments_of_image(known.id)? == 0 {
            rows.remove_image(known.id)?;
        } else {
            rows.rename_image(known.id, &old_name(&known))?;
        }
    }
    if rows.imported_images()? >= MAX_IMPORTED_IMAGES {
        return Err(refusals::image_limit(MAX_IMPORTED_IMAGES).into());
    }
    let settings = &record.settings;
    let image = CatalogImage {
        id: ImageId::make(rows.now, base::observe::random()),
        reference: reference.to_owned(),
        domain: rules::tenancy::DomainId::DEFAULT,
        digest,
        size: Bytes(record.total_bytes),
        architecture: record.architecture.clone(),
        created_at: record
            .created
            .as_deref()
            .and_then(|text| Timestamp::parse(text).ok())
            .unwrap_or(record.imported_at),
        // A second name of an image is as old as its own import.
        imported_at: rows.now,
        limits: limits.unwrap_or_else(|| ImageLimits::of_labels(&settings.labels)),
        limits_set: limits.is_some(),
        labels: settings.labels.clone(),
        entrypoint: settings.entrypoint.clone(),
        command: settings.cmd.clone(),
        env: settings.env.clone(),
        user: settings.user.clone(),
        working_directory: settings.working_directory.clone(),
        stop_signal: settings.stop_signal.clone().unwrap_or_default(),
        generation: 1,
        owner: None,
        shared: true,
    };
    rows.insert_image(&image)?;
    rows.note(NewEvent {
        actor,
        topic: "images",
        object: &image.id.to_string(),
        scope: rules::tenancy::Scope::domain(image.domain),
        code: "image.imported",
        before: "",
        after: reference,
    })?;
    Ok(image.id)
}

/// `python-ml:1.2` → `python-ml:1.2-was-0a1b2c3d4e5f`.
pub(super) fn old_name(image: &CatalogImage) -> String {
    let (path, tag) = image
        .reference
        .rsplit_once(':')
        .unwrap_or((&image.reference, "latest"));
    let was = image.id.0.simple().to_string();
    let tag: String = tag.chars().take(80).collect();
    format!("{path}:{tag}-was-{}", &was[20..])
}

/// What users will call an image: the name they gave, or those of the archive without the parts
/// that mean nothing here, or at least something.
fn references(record: &ImageRecord, given: Option<&str>) -> Vec<String> {
    if let Some(given) = given {
        return vec![given.to_owned()];
    }
    let mut names: Vec<String> = record
        .references
        .iter()
        .map(|name| {
            ["docker.io/library/", "docker.io/", "localhost/"]
                .iter()
                .find_map(|prefix| name.strip_prefix(prefix))
                .unwrap_or(name)
        })
        .filter_map(|name| parse_reference(name).ok())
        .collect();
    names.dedup();
    if names.is_empty() {
        names.push(format!("image-{}:latest", short(&record.id)));
    }
    names
}

fn short(digest: &Sha256Digest) -> &str {
    digest.hex().get(..12).unwrap_or_default()
}

/// The name of an archive's file without its endings, where that can be part of a reference.
fn stem(file_name: &str) -> Option<String> {
    let mut stem = file_name.to_ascii_lowercase();
    while let Some(shorter) = [
        ".gz", ".zst", ".xz", ".bz2", ".tar", ".tgz", ".oci", ".docker",
    ]
    .iter()
    .find_map(|ending| stem.strip_suffix(ending))
    {
        stem = shorter.to_owned();
    }
    let plain: String = stem
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "._-".contains(c) {
                c
            } else {
                '-'
            }
        })
        .take(80)
        .collect();
    let plain = plain.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    parse_reference(plain).is_ok().then(|| plain.to_owned())
}

fn shown(progress: ImportStatus) -> JobProgress {
    let step = match progress.stage {
        ImportStage::Reading => "reading".to_owned(),
        ImportStage::Unpacking => {
            format!("unpacking layer {} of {}", progress.layer, progress.layers)
        }
        ImportStage::Checking => {
            format!("checking layer {} of {}", progress.layer, progress.layers)
        }
        ImportStage::Saving => "saving".to_owned(),
    };
    JobProgress {
        step,
        done: progress.done_bytes,
        total: progress.total_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::stem;

    #[test]
    fn the_name_of_a_file_becomes_a_name_where_it_can() {
        for (file, wanted) in [
            ("python-ml.tar.gz", Some("python-ml")),
            ("My Image (1).tar", Some("my-image--1")),
            ("vit.oci", Some("vit")),
            ("host.tar", None),
            (".tar", None),
            ("../../etc", Some("etc")),
        ] {
            assert_eq!(stem(file).as_deref(), wanted, "{file}");
        }
    }
}
