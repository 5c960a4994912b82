//! Imports of images, one after another on a thread of their own: reads the archive into the store,
//! then writes rows and the end of the operation in one commit. A crash anywhere leaves an open row,
//! and the next start does all of it again; layers that are there already cost only the reading.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use api::operations::OperationState;
use rules::image::{CatalogImage, parse_reference};
use rules::names::{ImageId, OperationId};
use rules::refusal::{Refusal, RefusalKind};
use rules::refusals;
use rules::units::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::images::archive::Archive;
use store::images::digest::Sha256Digest;
use store::images::record::ImageRecord;
use store::images::{ArchiveImport, ImageStore, ImportStage, ImportStatus, ImportedImage};
use uuid::Uuid;

use super::lazy_stores::{LazyStores, image_failure, upload_failure};
use crate::catalog::events::NewEvent;
use crate::catalog::jobs::OperationRow;
use crate::catalog::{Catalog, Lane, Rows};
use crate::{Failure, ServerFault};

/// The kind of these operations.
pub(crate) const KIND: &str = "image.import";

/// What one import works on, as its row keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Input {
    pub(crate) source: ImportOrigin,
    /// What users shall call it; None: as the archive says.
    pub(crate) reference: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ImportOrigin {
    /// An upload of this user.
    Upload { id: Uuid, owner: String },
    /// A file or directory on this machine; root said so.
    Path(PathBuf),
}

/// How far an import is; lives in memory only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImportProgress {
    /// One English word or two.
    pub(crate) step: String,
    pub(crate) done: u64,
    pub(crate) total: u64,
}

/// The thread that imports. Dropping it breaks an import under way off; its row stays open, and the
/// next start begins it again.
pub(crate) struct Imports {
    bench: Arc<ImportShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What thread and askers share.
#[derive(Default)]
struct ImportShared {
    state: Mutex<ImportQueue>,
    rung: Condvar,
}

#[derive(Default)]
struct ImportQueue {
    closing: bool,
    /// Look into the rows: something may be open.
    due: bool,
    current: Option<(OperationId, Arc<AtomicBool>)>,
    seen: BTreeMap<OperationId, ImportProgress>,
}

impl Imports {
    /// An idle one. The thread begins with the first `ring`.
    pub(crate) fn idle() -> Self {
        Self {
            bench: Arc::default(),
            thread: Mutex::default(),
        }
    }

    /// Wakes the thread: a row was written, or the server has just started.
    pub(crate) fn ring(
        &self,
        catalog: &Catalog,
        lazy_stores: &Arc<LazyStores>,
        data: &std::path::Path,
    ) -> Result<(), Failure> {
        self.bench.locked().due = true;
        self.bench.rung.notify_one();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let worker = ImportWorker {
                bench: Arc::clone(&self.bench),
                catalog: catalog.clone(),
                lazy_stores: Arc::clone(lazy_stores),
                data: data.to_owned(),
            };
            let started = std::thread::Builder::new()
                .name("imports".to_owned())
                .spawn(move || worker.work())
                .map_err(|error| ServerFault::new("start the thread that imports", error))?;
            *thread = Some(started);
        }
        Ok(())
    }

    /// How far this one is; None where it is not being worked on.
    pub(crate) fn seen(&self, id: OperationId) -> Option<ImportProgress> {
        self.bench.locked().seen.get(&id).cloned()
    }

    /// Breaks this one off, where it is the one under way.
    pub(crate) fn break_off(&self, id: OperationId) {
        if let Some((current, cancelled)) = &self.bench.locked().current
            && *current == id
        {
            cancelled.store(true, Ordering::Release);
        }
        self.bench.rung.notify_one();
    }
}

impl Drop for Imports {
    fn drop(&mut self) {
        let mut state = self.bench.locked();
        state.closing = true;
        if let Some((_, cancelled)) = &state.current {
            cancelled.store(true, Ordering::Release);
        }
        drop(state);
        self.bench.rung.notify_one();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread that imports ended in a panic");
        }
    }
}

impl ImportShared {
    fn locked(&self) -> MutexGuard<'_, ImportQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there may be work; false once it is over.
    fn wait(&self) -> bool {
        let mut state = self.locked();
        while !state.due && !state.closing {
            state = self
                .rung
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.due = false;
        !state.closing
    }
}

struct ImportWorker {
    bench: Arc<ImportShared>,
    catalog: Catalog,
    lazy_stores: Arc<LazyStores>,
    data: PathBuf,
}

impl ImportWorker {
    fn work(&self) {
        while self.bench.wait() {
            loop {
                let open = self
                    .catalog
                    .read_now("look for open imports", |view| view.open_operations());
                let next = match open {
                    Ok(rows) => rows.into_iter().find(|row| row.kind == KIND),
                    Err(failure) => {
                        tracing::error!(error = %base::observe::chain(&failure), "open imports cannot be read");
                        None
                    }
                };
                let Some(row) = next else {
                    break;
                };
                if let Err(failure) = self.run(&row) {
                    // The row is still open; the next ring or start looks at it again.
                    tracing::error!(error = %base::observe::chain(&failure), "an import is stuck");
                    break;
                }
                if self.bench.locked().closing {
                    return;
                }
            }
        }
    }

    /// Takes one import to its end, or leaves its row open where the server is closing.
    fn run(&self, row: &OperationRow) -> Result<(), Failure> {
        let cancelled = Arc::new(AtomicBool::new(row.cancel));
        let id = row.id;
        self.bench.locked().current = Some((id, Arc::clone(&cancelled)));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            self.import(row, &cancelled)
        }))
        .unwrap_or_else(|_| Err(ServerFault::new("import an image", "it panicked").into()));
        let closing = {
            let mut state = self.bench.locked();
            state.current = None;
            state.seen.remove(&id);
            state.closing
        };
        let ended = match done {
            Ok(()) => return Ok(()),
            Err(Failure::Refusal(refusal)) if refusal.code == rules::codes::IMAGE_CANCELLED => {
                if closing {
                    return Ok(());
                }
                (OperationState::Cancelled, refusal)
            }
            Err(Failure::Refusal(refusal)) => (OperationState::Failed, refusal),
            Err(Failure::Fault(fault)) => {
                tracing::error!(operation = %id, error = %base::observe::chain(&fault), "import");
                let refusal = refusals::server_job_failed();
                (OperationState::Failed, refusal)
            }
        };
        self.discard_useless(row, &ended.1);
        self.catalog
            .write_now(Lane::Loops, "end an import", move |rows| {
                rows.end_operation(id, ended.0, None, Some(&ended.1))
            })?;
        Ok(())
    }

    fn import(&self, row: &OperationRow, cancelled: &AtomicBool) -> Result<(), Failure> {
        let input: Input = serde_json::from_value(row.input.clone())
            .map_err(|error| ServerFault::new("read what to import", error))?;
        let id = row.id;
        if cancelled.load(Ordering::Acquire) {
            return Err(refusals::image_import_cancelled().into());
        }
        self.catalog
            .write_now(Lane::Loops, "begin an import", move |rows| {
                rows.begin_operation(id)
            })?;
        let images = self.lazy_stores.images(&self.data)?;
        let (archive, name) = self.open(&input)?;
        let imported = images
            .import(
                ArchiveImport {
                    archive,
                    name: name.as_deref(),
                    now: self.catalog.clock().now(),
                    cancelled: Some(cancelled),
                },
                &mut |progress| {
                    self.bench.locked().seen.insert(id, shown(progress));
                },
            )
            .map_err(image_failure)?;
        if let Some(reference) = &input.reference
            && imported.len() > 1
        {
            self.forget_unnamed(&images)?;
            return Err(refusals::image_several(imported.len(), reference)
                .at("/reference")
                .into());
        }
        self.write(row, &input, imported)?;
        self.forget_unnamed(&images)?;
        if let ImportOrigin::Upload { id, owner } = &input.source {
            let uploads = self.lazy_stores.uploads(&self.data)?;
            // A crash before this line leaves the upload to its own expiry.
            if let Err(error) = uploads.remove(*id, owner) {
                tracing::warn!(%error, "an imported upload was not removed");
            }
        }
        Ok(())
    }

    fn open(&self, input: &Input) -> Result<(Archive, Option<String>), Failure> {
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
        };
        let name = input.reference.clone().or_else(|| stem(&file_name));
        Ok((archive, name))
    }

    /// Writes the rows of what was imported and the end of the operation, in one commit.
    fn write(
        &self,
        row: &OperationRow,
        input: &Input,
        imported: Vec<ImportedImage>,
    ) -> Result<(), Failure> {
        let (operation, user) = (row.id, row.user);
        let reference = input.reference.clone();
        self.catalog
            .write_now(Lane::Loops, "write imported images", move |rows| {
                let actor = rows
                    .user_name(user)?
                    .map_or_else(|| "server".to_owned(), |name| name.to_string());
                let mut results = Vec::new();
                for image in &imported {
                    for reference in references(&image.record, reference.as_deref()) {
                        let id = keep(rows, &image.record, &reference, &actor)?;
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
                let result = json!({ "images": results });
                rows.end_operation(operation, OperationState::Succeeded, Some(&result), None)
            })?;
        Ok(())
    }

    /// Removes images of the store that no row names: what an import left whose rows were never
    /// written, and what lost its last name.
    fn forget_unnamed(&self, images: &ImageStore) -> Result<(), Failure> {
        forget_unnamed(&self.catalog, images)
    }

    /// An upload that can never be imported goes at once; one that failed for want of room stays, so
    /// that it can be tried again.
    fn discard_useless(&self, row: &OperationRow, refusal: &Refusal) {
        let useless = matches!(
            refusal.kind,
            RefusalKind::Invalid | RefusalKind::TooLarge | RefusalKind::Malformed
        ) || refusal.code == rules::codes::IMAGE_CANCELLED;
        let Ok(Input {
            source: ImportOrigin::Upload { id, owner },
            ..
        }) = serde_json::from_value(row.input.clone())
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
}

/// Removes images of the store that no row names.
pub(crate) fn forget_unnamed(catalog: &Catalog, images: &ImageStore) -> Result<(), Failure> {
    let named = catalog.read_now("list images", |view| view.image_digests())?;
    for record in images.list().map_err(image_failure)? {
        if !named.contains(&record.id.to_string()) {
            images.remove(&record.id).map_err(image_failure)?;
        }
    }
    Ok(())
}

/// Makes sure that a row of this reference names this image, and gives its id.
fn keep(
    rows: &Rows<'_>,
    record: &ImageRecord,
    reference: &str,
    actor: &str,
) -> Result<ImageId, Failure> {
    let digest = record.id.to_string();
    if let Some(known) = rows.image_called(reference)? {
        if known.digest == digest {
            return Ok(known.id);
        }
        // The name moves to the new image, as tags do. The old one keeps its row while sessions
        // start from it, under a name that says which it is.
        if rows.image_users(known.id)? == 0 {
            rows.remove_image(known.id)?;
        } else {
            rows.rename_image(known.id, &old_name(&known))?;
        }
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
        imported_at: record.imported_at,
        labels: settings.labels.clone(),
        entrypoint: settings.entrypoint.clone(),
        command: settings.cmd.clone(),
        env: settings.env.clone(),
        user: settings.user.clone(),
        working_directory: settings.working_directory.clone(),
        stop_signal: settings.stop_signal.clone().unwrap_or_default(),
        generation: 1,
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
fn old_name(image: &CatalogImage) -> String {
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

fn shown(progress: ImportStatus) -> ImportProgress {
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
    ImportProgress {
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
