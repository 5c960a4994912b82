//! What a user may do with images: look at them, import them, remove them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use api::operations::OperationView;
use rules::image::{CatalogImage, MAX_IMPORTED_IMAGES, parse_reference};
use rules::image_limits::ImageLimits;
use rules::names::{ImageId, OperationId, UploadId};
use rules::permissions::{Permission, Subject, may};
use rules::refusals;
use rules::tenancy::Scope;
use serde::{Deserialize, Serialize};
use store::images::archive::Archive;

use super::operations::show;
use super::system::refuse_unwell;
use super::{IdempotencyKey, Once, allowed, once, own_key};
use crate::access::{Caller, Via};
use crate::appliance::lazy_stores::{image_failure, upload_failure};
use crate::appliance::unnamed_images::forget_unnamed_between_imports;
use crate::appliance::unused_blobs::forget_unused_blobs;
use crate::catalog::events::NewEvent;
use crate::catalog::job_kinds::{IMAGE_IMPORT, ImportInput, ImportOrigin};
use crate::catalog::jobs::OperationRow;
use crate::catalog::request_key::RequestKey;
use crate::catalog::{Lane, ReadTransaction, Rows};
use crate::{Failure, Server, ServerFault};

pub mod environments;
pub mod registry;
#[cfg(test)]
mod tests;
pub mod uploads;

/// Where an archive comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImportSource {
    /// A complete upload of the caller.
    Upload(UploadId),
    /// A file or directory on the server's machine; for root on that machine only.
    Path(PathBuf),
}

/// Imports that may wait. More is a loop in a script.
const MAX_OPEN: usize = 64;

/// Every image that the caller sees, by reference. `host`, the machine's own programs, is none.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<CatalogImage>, Failure> {
    allowed(caller, Permission::ImagesRead)?;
    let reach = rules::permissions::reach(&caller.subject, Permission::ImagesRead);
    let mut images = server
        .catalog()
        .read_now("list images", |view| view.images(&reach))?;
    images.retain(|image| image.is_seen_by(&caller.subject));
    Ok(images)
}

/// How many live sessions that the caller may see start from each image, by reference; `host` is among them.
pub async fn used(server: &Server, caller: &Caller) -> Result<BTreeMap<String, u64>, Failure> {
    allowed(caller, Permission::SessionsRead)?;
    let reach = rules::permissions::reach(&caller.subject, Permission::SessionsRead);
    server
        .catalog()
        .read_now("count the users of images", |view| view.images_used(&reach))
}

/// One image, by id or reference. Errors: `image.not-found`, also for one of a domain that the caller does not
/// reach.
pub async fn get(server: &Server, caller: &Caller, which: &str) -> Result<CatalogImage, Failure> {
    allowed(caller, Permission::ImagesRead)?;
    server
        .catalog()
        .read_now("show an image", |view| find(view, &caller.subject, which))
}

/// Begins an import and gives its operation, whose result names the images. A second import of the
/// same upload gives the operation of the first.
///
/// Errors: `image.reference-invalid`, `upload.not-found`, `upload.incomplete`, `image.path-denied`,
/// `image.archive-missing`, `image.limit`, `image.needs-root` where this server cannot unpack at all, `disk.full`.
pub async fn import(
    server: &Server,
    caller: &Caller,
    source: ImportSource,
    reference: Option<String>,
) -> Result<OperationView, Failure> {
    let begun = import_once(server, caller, source, reference, None).await?;
    Ok(begun.value)
}

/// As `import`, and at most once for the same key; a repetition gives the operation as it is now.
///
/// Errors: as `import`; `idempotency.key-reused`.
pub async fn import_once(
    server: &Server,
    caller: &Caller,
    source: ImportSource,
    reference: Option<String>,
    key: Option<IdempotencyKey>,
) -> Result<Once<OperationView>, Failure> {
    allowed(caller, Permission::ImagesWrite)?;
    let key = own_key(caller, key)?;
    // Its upload is gone once an import is over, so this comes before any look at it.
    if let Some(before) = answered_before(server, key.as_ref()).await? {
        return Ok(before);
    }
    refuse_unwell(server)?;
    let reference = reference
        .filter(|text| !text.trim().is_empty())
        .map(|text| parse_reference(&text).map_err(|refusal| refusal.at("/reference")))
        .transpose()?;
    let source = origin(caller, source)?;
    let file = look_at(server, source.clone()).await?;
    let input = ImportInput {
        source,
        reference,
        file,
        bundle: None,
    };
    begin(server, caller, input, key).await
}

/// Where the job finds an archive. Errors: `image.path-denied`, `image.path-relative`.
fn origin(caller: &Caller, source: ImportSource) -> Result<ImportOrigin, Failure> {
    let owner = caller.subject.user.to_string();
    Ok(match source {
        ImportSource::Upload(id) => ImportOrigin::Upload { id: id.0, owner },
        ImportSource::Path(path) => {
            if caller.via != Via::LocalRoot {
                return Err(refusals::image_path_denied().at("/path").into());
            }
            if !path.is_absolute() {
                return Err(refusals::image_path_relative().at("/path").into());
            }
            ImportOrigin::Path(path)
        }
    })
}

/// The operation that was begun by this key before, as it is now.
async fn answered_before(
    server: &Server,
    key: Option<&RequestKey>,
) -> Result<Option<Once<OperationView>>, Failure> {
    let Some(key) = key.cloned() else {
        return Ok(None);
    };
    let before = server
        .catalog()
        .write(Lane::Requests, "look for an answer", move |rows| {
            let Some(first) = rows.answered(&key, rows.now)? else {
                return Ok(None);
            };
            let id: OperationId = serde_json::from_str(&first)
                .map_err(|error| ServerFault::new("read the first answer", error))?;
            rows.operation(id)
        })
        .await?;
    Ok(before.map(|row| Once {
        value: show(server, row),
        replayed: true,
    }))
}

/// Writes the operation of an import and has it begin; an open one of the same source is given instead.
async fn begin(
    server: &Server,
    caller: &Caller,
    input: ImportInput,
    key: Option<RequestKey>,
) -> Result<Once<OperationView>, Failure> {
    let kept = serde_json::to_value(&input)
        .map_err(|error| ServerFault::new("keep what to import", error))?;
    let row = OperationRow::asked(
        server.clock().now(),
        IMAGE_IMPORT,
        caller.subject.user,
        kept,
    );
    let actor = caller.name.clone();
    let begun = server
        .catalog()
        .write(Lane::Requests, "begin an import", move |rows| {
            let begun = once(rows, key.as_ref(), || {
                let open = rows.open_operations()?;
                let is_same = |other: &&OperationRow| match &input.source {
                    // An archive of images is checked otherwise than a bundle of an environment.
                    ImportOrigin::Upload { .. } => ["source", "bundle"]
                        .iter()
                        .all(|part| other.input.get(part) == row.input.get(part)),
                    ImportOrigin::Registry { .. } => other.input == row.input,
                    ImportOrigin::Path(_) | ImportOrigin::Pushed { .. } => false,
                };
                if let Some(same) = open.iter().find(is_same) {
                    return Ok(same.id);
                }
                if open.len() >= MAX_OPEN {
                    return Err(refusals::operation_too_many(open.len())
                        .retry_after(60)
                        .into());
                }
                // Else all of it would come and be unpacked first.
                let is_new = match &input.reference {
                    Some(reference) => rows.image_called(reference)?.is_none(),
                    None => false,
                };
                if is_new && rows.imported_images()? >= MAX_IMPORTED_IMAGES {
                    return Err(refusals::image_limit(MAX_IMPORTED_IMAGES).into());
                }
                rows.insert_operation(&row, actor.as_str())?;
                Ok(row.id)
            })?;
            let row = rows
                .operation(begun.value)?
                .ok_or_else(|| ServerFault::new("begin an import", "its row is gone"))?;
            Ok(Once {
                value: row,
                replayed: begun.replayed,
            })
        })
        .await?;
    server.jobs().wake(IMAGE_IMPORT)?;
    Ok(Once {
        value: show(server, begun.value),
        replayed: begun.replayed,
    })
}

/// Refuses at once what the import would refuse first: nothing there, not complete, no privileges. Gives the name of
/// the file.
async fn look_at(server: &Server, source: ImportOrigin) -> Result<String, Failure> {
    let server = server.clone();
    tokio::task::spawn_blocking(move || {
        let file = match &source {
            ImportOrigin::Upload { id, owner } => {
                let status = server
                    .uploads()?
                    .status(*id, owner)
                    .map_err(upload_failure)?;
                if status.offset != status.declared.bytes {
                    return Err(refusals::upload_incomplete_for_import(
                        status.offset,
                        status.declared.bytes,
                    )
                    .into());
                }
                status.declared.file_name
            }
            ImportOrigin::Path(path) => {
                drop(Archive::at(path).map_err(image_failure)?);
                let name = path.file_name().unwrap_or_default();
                name.to_string_lossy().into_owned()
            }
            ImportOrigin::Pushed { .. } => String::new(),
            ImportOrigin::Registry { image, .. } => image.clone(),
        };
        server.image_store()?.can_unpack().map_err(image_failure)?;
        Ok(file)
    })
    .await
    .map_err(|ended| ServerFault::new("look at an archive", ended))?
}

/// Removes an image; its layers go where no other image needs them. Who made one of a session removes it too.
///
/// Errors: `image.in-use` while live sessions start from it.
pub async fn remove(
    server: &Server,
    caller: &Caller,
    which: &str,
) -> Result<CatalogImage, Failure> {
    let (actor, which) = (caller.name.clone(), which.to_owned());
    let caller = caller.clone();
    let removed = server
        .catalog()
        .write(Lane::Requests, "remove an image", move |rows| {
            let image = find_to_keep(rows, &caller, &which)?;
            remove_unused(rows, &image, actor.as_str())?;
            Ok(image)
        })
        .await?;
    free(server).await;
    Ok(removed)
}

/// Removes the row of an image. Refuses `image.in-use`.
fn remove_unused(rows: &Rows<'_>, image: &CatalogImage, actor: &str) -> Result<(), Failure> {
    let users = rows.image_users(image.id)?;
    if users > 0 {
        return Err(refusals::image_in_use(users, &image.reference).into());
    }
    rows.remove_image(image.id)?;
    rows.note(NewEvent {
        actor,
        topic: "images",
        object: &image.id.to_string(),
        scope: image.scope(),
        code: "image.removed",
        before: &image.reference,
        after: "",
    })
}

/// Gives back the bytes that no row needs any more.
async fn free(server: &Server) {
    let server = server.clone();
    let freed = tokio::task::spawn_blocking(move || {
        forget_unnamed_between_imports(server.catalog(), &*server.image_store()?)?;
        match server.known_registry()? {
            Some(registry) => forget_unused_blobs(server.catalog(), &registry),
            None => Ok(()),
        }
    })
    .await;
    match freed {
        Ok(Ok(())) => {}
        // The row is gone, so it cannot be used; the next import or start frees the bytes.
        Ok(Err(failure)) => {
            tracing::warn!(error = %base::observe::chain(&failure), "layers were not freed");
        }
        Err(ended) => tracing::warn!(error = %ended, "layers were not freed"),
    }
}

/// Has all users of its domain see an image that was made of a session, which its owner alone decides, or its owner alone
/// again. Sessions that run from it stay.
///
/// Errors: `image.not-found`, `image.not-of-session` for an imported one, `image.owner-only`.
pub async fn share(
    server: &Server,
    caller: &Caller,
    which: &str,
    shared: bool,
) -> Result<CatalogImage, Failure> {
    let (actor, which, caller) = (caller.name.clone(), which.to_owned(), caller.clone());
    server
        .catalog()
        .write(Lane::Requests, "share an image", move |rows| {
            let mut image = find_to_keep(rows, &caller, &which)?;
            if image.owner.is_none() {
                return Err(refusals::image_not_of_session(&image.reference).into());
            }
            if image.shared == shared {
                return Ok(image);
            }
            // Else an administrator could start from what is another's alone.
            if shared && image.owner != Some(caller.subject.user) {
                return Err(refusals::image_owner_only(&image.reference).into());
            }
            rows.share_image(image.id, shared)?;
            let word = |shared: bool| if shared { "shared" } else { "private" };
            rows.note(NewEvent {
                actor: actor.as_str(),
                topic: "images",
                object: &image.id.to_string(),
                scope: image.scope(),
                code: if shared {
                    "image.shared"
                } else {
                    "image.unshared"
                },
                before: word(image.shared),
                after: word(shared),
            })?;
            image.shared = shared;
            image.generation += 1;
            Ok(image)
        })
        .await
}

/// Gives an image limits in the place of those of its labels; None: its labels say them again. They hold for what is launched
/// or changed from now on.
///
/// Errors: `image.not-found`, `image.limits-crossed`.
pub async fn set_limits(
    server: &Server,
    caller: &Caller,
    which: &str,
    limits: Option<ImageLimits>,
) -> Result<CatalogImage, Failure> {
    allowed(caller, Permission::ImagesWrite)?;
    let limits = limits.map(ImageLimits::checked).transpose()?;
    let (actor, which, caller) = (caller.name.clone(), which.to_owned(), caller.clone());
    server
        .catalog()
        .write(Lane::Requests, "limit an image", move |rows| {
            // Its owner may remove it, and lifts no limit of the administrators.
            let of_domain = |image: &CatalogImage| {
                let scope = Scope::domain(image.domain);
                may(&caller.subject, Permission::ImagesWrite, &scope).is_ok()
            };
            let found = named(rows, &which)?.filter(of_domain);
            let before = found.ok_or_else(refusals::image_not_found)?;
            let mut image = before.clone();
            image.limits_set = limits.is_some();
            image.limits = limits.unwrap_or_else(|| ImageLimits::of_labels(&image.labels));
            if image == before {
                return Ok(image);
            }
            rows.put_image_limits(image.id, limits.as_ref())?;
            rows.note(NewEvent {
                actor: actor.as_str(),
                topic: "images",
                object: &image.id.to_string(),
                scope: image.scope(),
                code: "image.limited",
                before: &before.limits.figures(),
                after: &image.limits.figures(),
            })?;
            image.generation += 1;
            Ok(image)
        })
        .await
}

/// The image that is meant, for a caller who may remove it. Who may write no image at all is told so, whether there is one
/// or not.
fn find_to_keep(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    which: &str,
) -> Result<CatalogImage, Failure> {
    let found = named(view, which)?.filter(|image| image.is_kept_by(&caller.subject));
    if found.is_none() {
        allowed(caller, Permission::ImagesWrite)?;
    }
    Ok(found.ok_or_else(refusals::image_not_found)?)
}

/// The image that is meant, where the subject sees it.
fn find(
    view: &ReadTransaction<'_>,
    subject: &Subject,
    which: &str,
) -> Result<CatalogImage, Failure> {
    let seen = named(view, which)?.filter(|image| image.is_seen_by(subject));
    Ok(seen.ok_or_else(refusals::image_not_found)?)
}

/// The image of that id or reference. Asks no permission.
fn named(view: &ReadTransaction<'_>, which: &str) -> Result<Option<CatalogImage>, Failure> {
    match which.parse::<ImageId>() {
        Ok(id) => view.image(id),
        Err(_) => match parse_reference(which) {
            Ok(reference) => view.image_called(&reference),
            Err(_) => Ok(None),
        },
    }
}
