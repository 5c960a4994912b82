//! The registry of this site: what clients of containers push and pull, and images of other registries that are pulled into
//! ours. A blob is given to who may have an image that names it, or who pushed it; a digest alone gives nothing. An image
//! appears with its manifest, by the same import as an archive.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use bytes::Bytes;
use rules::names::UploadId;
use rules::permissions::reach;
use rules::registry::{
    ImageTag, RemoteImage, allowed_registries, check_repository, is_digest, repository_of,
};
use store::images::config::own_architecture;
use store::images::digest::Sha256Digest;
use store::registry::manifest::{
    MAX_MANIFEST_BYTES, ManifestOrIndex, NamedBlob, own_media_type, read, read_or_list,
};
use store::registry::{RegistryStore, UploadOwner};
use uuid::Uuid;

use super::uploads::blocking;
use super::*;
use crate::access::lease;
use crate::catalog::manifests::ManifestRow;

/// Longest wait between two looks how a push stands, where no commit comes.
const LOOK: Duration = Duration::from_secs(1);

/// A manifest as it was pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredManifest {
    pub digest: String,
    pub media_type: String,
    pub body: Vec<u8>,
}

/// A blob, open from its beginning.
#[derive(Debug)]
pub struct BlobDownload {
    pub file: File,
    pub bytes: u64,
}

/// Whether the caller may use the registry at all. Errors: `denied`.
pub fn enter(caller: &Caller) -> Result<(), Failure> {
    allowed(caller, Permission::ImagesRead)
}

/// The manifest of an image, or one that the caller pushed by its digest lately. Errors: `registry.name-invalid`;
/// `registry.manifest-unknown`, also for an image that the caller does not reach and for one that came from an archive.
pub async fn manifest(
    server: &Server,
    caller: &Caller,
    repository: &str,
    which: &ImageTag,
) -> Result<StoredManifest, Failure> {
    allowed(caller, Permission::ImagesRead)?;
    let found = server.catalog().read_now("look for a manifest", |view| {
        for image in images_of(view, caller, repository)? {
            match which {
                ImageTag::Tag(tag) if repository_of(&image.reference).1 != tag => {}
                ImageTag::Tag(_) => {
                    return Ok(view.manifest_of(image.id)?.map(FoundManifest::Whole));
                }
                ImageTag::Digest(digest) => {
                    let row = view.manifest_of(image.id)?;
                    if let Some(row) = row.filter(|row| row.digest == *digest) {
                        return Ok(Some(FoundManifest::Whole(row)));
                    }
                    if let Some(media_type) = view.listed_manifest(image.id, digest)? {
                        return Ok(Some(FoundManifest::Listed(media_type)));
                    }
                }
            }
        }
        Ok(None)
    })?;
    match found {
        Some(FoundManifest::Whole(row)) => Ok(StoredManifest {
            digest: row.digest,
            media_type: row.media_type,
            body: row.body,
        }),
        Some(FoundManifest::Listed(media_type)) => {
            let digest = parsed(which.text())?;
            let named = digest.to_string();
            let body = blocking(server, move |server| {
                stored_document(&*server.registry()?, &digest)
            });
            Ok(StoredManifest {
                digest: named,
                media_type,
                body: body.await?,
            })
        }
        None => pushed_manifest(server, caller, which).await,
    }
}

/// A manifest that the caller pushed by its digest lately, and that no image has yet. Errors: `registry.manifest-unknown`.
async fn pushed_manifest(
    server: &Server,
    caller: &Caller,
    which: &ImageTag,
) -> Result<StoredManifest, Failure> {
    let may_hold = allowed(caller, Permission::ImagesWrite).is_ok();
    let ImageTag::Digest(digest) = which else {
        return Err(refusals::registry_manifest_unknown().into());
    };
    let (parsed, user) = (parsed(digest)?, caller.subject.user.0);
    let found = blocking(server, move |server| {
        let registry = server.registry()?;
        if !may_hold || !registry.is_held(user, &parsed) {
            return Ok(None);
        }
        stored_document(&registry, &parsed).map(Some)
    });
    let body = found.await?;
    // What else the caller pushed under such a digest is a blob.
    let media_type = body.as_deref().and_then(own_media_type);
    match (body, media_type) {
        (Some(body), Some(media_type)) => Ok(StoredManifest {
            digest: digest.clone(),
            media_type,
            body,
        }),
        _ => Err(refusals::registry_manifest_unknown().into()),
    }
}

/// Where a manifest was found.
enum FoundManifest {
    /// An image came with it.
    Whole(ManifestRow),
    /// The index of an image names it; this is its media type.
    Listed(String),
}

/// A manifest that the registry keeps.
fn stored_document(registry: &RegistryStore, digest: &Sha256Digest) -> Result<Vec<u8>, Failure> {
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

/// A blob of a repository. Errors: `registry.name-invalid`; `registry.blob-unknown`, also for one that only images name that
/// the caller does not reach.
pub async fn blob(
    server: &Server,
    caller: &Caller,
    repository: &str,
    digest: &str,
) -> Result<BlobDownload, Failure> {
    allowed(caller, Permission::ImagesRead)?;
    let is_named = names_blob(server, caller, repository, digest)?;
    let digest = parsed(digest)?;
    let may_hold = allowed(caller, Permission::ImagesWrite).is_ok();
    let user = caller.subject.user.0;
    let found = blocking(server, move |server| {
        let registry = server.registry()?;
        match is_named || (may_hold && registry.is_held(user, &digest)) {
            true => registry.blob(&digest).map_err(upload_failure),
            false => Ok(None),
        }
    })
    .await?;
    let found = found.ok_or_else(refusals::registry_blob_unknown)?;
    Ok(BlobDownload {
        file: found.file,
        bytes: found.bytes,
    })
}

/// Removes the image of a tag, or, by digest, every image of the repository that came with this manifest, as images are
/// removed elsewhere.
///
/// Errors: `denied`, `registry.name-invalid`; `registry.manifest-unknown`, also for an image from an archive and for a
/// manifest that only an index names; `image.in-use` while live sessions start from one of them, and then all stay.
pub async fn remove_manifest(
    server: &Server,
    caller: &Caller,
    repository: &str,
    which: &ImageTag,
) -> Result<(), Failure> {
    let who = writer(caller, repository)?;
    let (caller, which) = (caller.clone(), which.clone());
    server
        .catalog()
        .write(
            Lane::Requests,
            "remove images of a repository",
            move |rows| {
                let mut has_removed = false;
                for image in images_of(rows, &caller, &who.repository)? {
                    let manifest = rows.manifest_of(image.id)?;
                    let is_meant = manifest.is_some_and(|manifest| match &which {
                        ImageTag::Tag(tag) => repository_of(&image.reference).1 == tag,
                        ImageTag::Digest(digest) => manifest.digest == *digest,
                    });
                    if is_meant && image.is_kept_by(&caller.subject) {
                        remove_unused(rows, &image, caller.name.as_str())?;
                        has_removed = true;
                    }
                }
                match has_removed {
                    true => Ok(()),
                    false => Err(refusals::registry_manifest_unknown().into()),
                }
            },
        )
        .await?;
    free(server).await;
    Ok(())
}

/// The tags of a repository that can be pulled, in the order of their letters. Errors: `registry.name-invalid`;
/// `registry.manifest-unknown` where there is none that the caller reaches.
pub async fn tags(
    server: &Server,
    caller: &Caller,
    repository: &str,
) -> Result<Vec<String>, Failure> {
    allowed(caller, Permission::ImagesRead)?;
    let tags = server.catalog().read_now("list tags", |view| {
        let mut tags = BTreeSet::new();
        for image in images_of(view, caller, repository)? {
            if view.manifest_of(image.id)?.is_some() {
                tags.insert(repository_of(&image.reference).1.to_owned());
            }
        }
        Ok(tags)
    })?;
    match tags.is_empty() {
        true => Err(refusals::registry_manifest_unknown().into()),
        false => Ok(tags.into_iter().collect()),
    }
}

/// All repositories that the caller reaches, in the order of their letters. Errors: `registry.catalog-denied` for who may not
/// write images.
pub async fn repositories(server: &Server, caller: &Caller) -> Result<Vec<String>, Failure> {
    if allowed(caller, Permission::ImagesWrite).is_err() {
        return Err(refusals::registry_catalog_denied().into());
    }
    let reach = reach(&caller.subject, Permission::ImagesRead);
    let images = server
        .catalog()
        .read_now("list repositories", |view| view.pullable_images(&reach))?;
    let names = images.iter().map(|image| repository_of(&image.reference).0);
    let names: BTreeSet<String> = names.map(str::to_owned).collect();
    Ok(names.into_iter().collect())
}

/// Begins an upload of a blob. Errors: `denied`, `registry.name-invalid`, `registry.uploads-full`, `disk.full`.
pub async fn begin_upload(
    server: &Server,
    caller: &Caller,
    repository: &str,
) -> Result<UploadId, Failure> {
    let who = writer(caller, repository)?;
    refuse_unwell(server)?;
    let now = server.clock().now();
    blocking(server, move |server| {
        let begun = server.registry()?.begin(&who, now);
        begun.map(UploadId).map_err(upload_failure)
    })
    .await
}

/// Takes a blob of another repository into this one; false where the caller may not have it there, or it is not kept.
///
/// Errors: `denied`, `registry.name-invalid`.
pub async fn mount(
    server: &Server,
    caller: &Caller,
    repository: &str,
    from: &str,
    digest: &str,
) -> Result<bool, Failure> {
    let who = writer(caller, repository)?;
    if check_repository(from).is_err() || !is_digest(digest) {
        return Ok(false);
    }
    let is_named = names_blob(server, caller, from, digest)?;
    let digest = parsed(digest)?;
    blocking(server, move |server| {
        let registry = server.registry()?;
        let may = is_named || registry.is_held(who.owner, &digest);
        match may {
            true => registry.hold(who.owner, &digest).map_err(upload_failure),
            false => Ok(false),
        }
    })
    .await
}

/// Appends a piece to an upload, at `offset` or at its end; gives how far it is then. On disk once `upload_offset` told of it.
///
/// Errors: `registry.upload-unknown`, also for another user's; `registry.upload-range`, `registry.blob-too-large`,
/// `upload.busy`, `disk.full`.
pub async fn append(
    server: &Server,
    caller: &Caller,
    repository: &str,
    id: UploadId,
    offset: Option<u64>,
    piece: Bytes,
) -> Result<u64, Failure> {
    let who = writer(caller, repository)?;
    blocking(server, move |server| {
        let appended = server.registry()?.append(id.0, &who, offset, &piece);
        appended.map_err(upload_failure)
    })
    .await
}

/// How far an upload is. Errors: `registry.upload-unknown`, also for another user's.
pub async fn upload_offset(
    server: &Server,
    caller: &Caller,
    repository: &str,
    id: UploadId,
) -> Result<u64, Failure> {
    let who = writer(caller, repository)?;
    blocking(server, move |server| {
        let offset = server.registry()?.offset(id.0, &who);
        offset.map_err(upload_failure)
    })
    .await
}

/// Ends an upload: its bytes become a blob. Errors: `registry.digest-mismatch`, `registry.name-invalid`,
/// `registry.upload-unknown`, `upload.busy`.
pub async fn finish_upload(
    server: &Server,
    caller: &Caller,
    repository: &str,
    id: UploadId,
    digest: &str,
) -> Result<(), Failure> {
    let who = writer(caller, repository)?;
    let digest = parsed(digest)?;
    blocking(server, move |server| {
        let finished = server.registry()?.finish(id.0, &who, &digest);
        finished.map(drop).map_err(upload_failure)
    })
    .await
}

/// Calls an upload off. Errors: `registry.upload-unknown`, `upload.busy`.
pub async fn cancel_upload(
    server: &Server,
    caller: &Caller,
    repository: &str,
    id: UploadId,
) -> Result<(), Failure> {
    let who = writer(caller, repository)?;
    blocking(server, move |server| {
        let cancelled = server.registry()?.cancel(id.0, &who);
        cancelled.map_err(upload_failure)
    })
    .await
}

/// Makes an image of a manifest and of blobs that were pushed before; gives the digest of the manifest. Of an index, the
/// image for this kind of machine. A manifest that is pushed by its digest is kept for an index. Ends when the image can be
/// used. Where the client leaves meanwhile, the import goes on.
///
/// Errors: `denied`, `registry.name-invalid`, `registry.manifest-invalid`, also for an index without a tag,
/// `registry.manifest-blob`, `registry.digest-mismatch`, `registry.image-too-large`, `image.too-many-layers`, `image.limit`,
/// `disk.full`, `operation.too-many`, and what an import refuses of an image.
pub async fn push_manifest(
    server: &Server,
    caller: &Caller,
    repository: &str,
    which: &ImageTag,
    media_type: &str,
    body: Bytes,
) -> Result<String, Failure> {
    let who = writer(caller, repository)?;
    refuse_unwell(server)?;
    let document = read_or_list(&body, media_type, own_architecture())?;
    let media_type = document.media_type().to_owned();
    let push = ManifestPush {
        caller: caller.clone(),
        owner: who.owner,
        repository: who.repository,
    };
    let owner = who.owner;
    let tag = match which {
        ImageTag::Tag(tag) => tag,
        ImageTag::Digest(declared) => {
            let ManifestOrIndex::Manifest(pushed) = document else {
                return Err(
                    refusals::registry_manifest_invalid("it is pushed without a tag").into(),
                );
            };
            let (declared, real) = (parsed(declared)?, Sha256Digest::of(&body));
            if declared != real {
                return Err(refusals::registry_digest_mismatch(&real, &declared).into());
            }
            let kept = blocking(server, move |server| {
                push.take(server, &pushed.blobs)?;
                server.registry()?.put(owner, &body).map_err(upload_failure)
            });
            return Ok(kept.await?.to_string());
        }
    };
    let reference = parse_reference(&format!("{repository}:{tag}"))?;
    let digest = blocking(server, move |server| {
        let registry = server.registry()?;
        match &document {
            ManifestOrIndex::Manifest(pushed) => push.take(server, &pushed.blobs)?,
            ManifestOrIndex::Index { entries, .. } => {
                for entry in entries {
                    push.take(server, std::slice::from_ref(&entry.manifest))?;
                    let listed = stored_document(&registry, &entry.manifest.digest)?;
                    push.take(server, &read(&listed, &entry.media_type)?.blobs)?;
                }
            }
        }
        server.image_store()?.can_unpack().map_err(image_failure)?;
        registry.put(owner, &body).map_err(upload_failure)
    })
    .await?;
    let digest = digest.to_string();
    let input = ImportInput {
        source: ImportOrigin::Pushed {
            owner,
            manifest: digest.clone(),
            media_type,
        },
        file: reference.clone(),
        reference: Some(reference),
        bundle: None,
    };
    let begun = begin(server, caller, input, None).await?;
    over(server, caller, begun.value.id).await?;
    Ok(digest)
}

/// Who pushes a manifest, and where.
struct ManifestPush {
    caller: Caller,
    owner: Uuid,
    repository: String,
}

impl ManifestPush {
    /// Has the caller hold the blobs that a manifest names. Refuses `registry.manifest-blob` for one that they did not push
    /// and that no image of the repository names; `registry.manifest-invalid` for one of another length.
    fn take(&self, server: &Server, blobs: &[NamedBlob]) -> Result<(), Failure> {
        let registry = server.registry()?;
        for blob in blobs {
            let digest = &blob.digest;
            let missing = || Failure::from(refusals::registry_manifest_blob(digest));
            let named = digest.to_string();
            let may = registry.is_held(self.owner, digest)
                || names_blob(server, &self.caller, &self.repository, &named)?;
            // Held longer, so that it stays until the rows name it.
            if !may || !registry.hold(self.owner, digest).map_err(upload_failure)? {
                return Err(missing());
            }
            let stored = registry.blob(digest).map_err(upload_failure)?;
            let stored = stored.ok_or_else(missing)?;
            if stored.bytes != blob.bytes {
                return Err(refusals::registry_manifest_invalid("a size is wrong").into());
            }
        }
        Ok(())
    }
}

/// Waits until an import is over. Errors: why it failed; why the caller may not go on.
async fn over(server: &Server, caller: &Caller, id: OperationId) -> Result<(), Failure> {
    let mut lease = lease(server, caller);
    let mut revision = server.catalog().revision();
    loop {
        revision.borrow_and_update();
        let row = server
            .catalog()
            .read_now("look how a push stands", |view| view.operation(id))?;
        let row = row.ok_or_else(|| ServerFault::new("wait for an import", "its row is gone"))?;
        if !row.state.is_open() {
            return match row.refusal {
                Some(refusal) => Err(refusal.into()),
                None => Ok(()),
            };
        }
        tokio::select! {
            biased;
            refusal = &mut lease => return Err(refusal.into()),
            changed = tokio::time::timeout(LOOK, revision.changed()) => {
                if let Ok(Err(_)) = changed {
                    return Err(refusals::server_stopping().into());
                }
            }
        }
    }
}

/// Begins to pull an image of another registry and gives its operation, whose result names the image. At most once for the
/// same key; a second pull of the same image gives the operation of the first while that is open.
///
/// Errors: `denied`, `registry.image-invalid`, `registry.not-allowed`, `image.reference-invalid`, `registry.name-invalid`,
/// `image.limit`, `image.needs-root`, `operation.too-many`, `idempotency.key-reused`.
pub async fn pull(
    server: &Server,
    caller: &Caller,
    image: &str,
    reference: Option<String>,
    key: Option<IdempotencyKey>,
) -> Result<Once<OperationView>, Failure> {
    allowed(caller, Permission::ImagesWrite)?;
    let key = own_key(caller, key)?;
    if let Some(before) = answered_before(server, key.as_ref()).await? {
        return Ok(before);
    }
    refuse_unwell(server)?;
    let image = RemoteImage::parse(image)?;
    let settings = server.settings();
    let setting = settings.registries.as_deref().unwrap_or_default();
    let allowed_hosts = allowed_registries(setting).unwrap_or_default();
    if !allowed_hosts.iter().any(|one| one.host == image.host) {
        return Err(refusals::registry_not_allowed().at("/image").into());
    }
    let reference = reference
        .filter(|text| !text.trim().is_empty())
        .unwrap_or_else(|| image.own_reference());
    let reference = parse_reference(&reference).map_err(|refusal| refusal.at("/reference"))?;
    // A name that the registry cannot give again would be one for ever.
    check_repository(repository_of(&reference).0).map_err(|refusal| refusal.at("/reference"))?;
    let source = ImportOrigin::Registry {
        owner: caller.subject.user.0,
        image: image.text(),
    };
    let file = look_at(server, source.clone()).await?;
    let input = ImportInput {
        source,
        reference: Some(reference),
        file,
        bundle: None,
    };
    begin(server, caller, input, key).await
}

/// The hosts that images may be pulled from, as the settings say. Errors: `denied`.
pub fn hosts(server: &Server, caller: &Caller) -> Result<Vec<String>, Failure> {
    allowed(caller, Permission::ImagesWrite)?;
    let settings = server.settings();
    let setting = settings.registries.as_deref().unwrap_or_default();
    let hosts = allowed_registries(setting).unwrap_or_default();
    Ok(hosts.into_iter().map(|one| one.host).collect())
}

/// Whether the registry can give an image. Errors: as `get`.
pub async fn can_give(server: &Server, caller: &Caller, which: &str) -> Result<bool, Failure> {
    let image = get(server, caller, which).await?;
    let found = server
        .catalog()
        .read_now("look for a manifest", |view| view.manifest_of(image.id))?;
    Ok(found.is_some())
}

/// Who pushes into a repository.
fn writer(caller: &Caller, repository: &str) -> Result<UploadOwner, Failure> {
    allowed(caller, Permission::ImagesWrite)?;
    check_repository(repository)?;
    Ok(UploadOwner {
        owner: caller.subject.user.0,
        repository: repository.to_owned(),
    })
}

/// Images of a repository that the caller reaches.
fn images_of(
    view: &ReadTransaction<'_>,
    caller: &Caller,
    repository: &str,
) -> Result<Vec<CatalogImage>, Failure> {
    check_repository(repository)?;
    let reach = reach(&caller.subject, Permission::ImagesRead);
    view.images_of_repository(&reach, repository)
}

/// Whether an image of the repository that the caller reaches names a blob.
fn names_blob(
    server: &Server,
    caller: &Caller,
    repository: &str,
    digest: &str,
) -> Result<bool, Failure> {
    server.catalog().read_now("look for a blob", |view| {
        for image in images_of(view, caller, repository)? {
            if view.image_has_blob(image.id, digest)? {
                return Ok(true);
            }
        }
        Ok(false)
    })
}

fn parsed(digest: &str) -> Result<Sha256Digest, Failure> {
    let digest = Sha256Digest::parse(digest);
    Ok(digest.ok_or_else(refusals::registry_name_invalid)?)
}
