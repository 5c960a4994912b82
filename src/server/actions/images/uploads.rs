//! Resumable uploads of the caller: declare, send pieces at offsets, ask how far it is, call it off.

use api::images::UploadView;
use bytes::Bytes;
use rules::names::UploadId;
use rules::permissions::Permission;
use rules::refusals;
use rules::session::plain;
use store::images::digest::Sha256Digest;
use store::uploads::{Declared, UploadStatus};

use super::*;

/// A row as the API says it.
fn view(status: UploadStatus) -> UploadView {
    UploadView {
        id: UploadId(status.id),
        name: status.declared.file_name,
        size: status.declared.bytes,
        offset: status.offset,
        created_at: status.begun_at,
        expires_at: status.expires_at,
    }
}

/// Declares an upload of exactly `size` bytes.
///
/// Errors: `upload.empty`, `upload.too-large`, `upload.too-many`, `upload.name-too-long`,
/// `upload.hidden-characters`, `digest.invalid`, `disk.full`.
pub async fn create(
    server: &Server,
    caller: &Caller,
    size: u64,
    name: &str,
    digest: Option<&str>,
) -> Result<UploadView, Failure> {
    allowed(caller, Permission::ImagesWrite)?;
    plain(rules::session::TextField::Upload, "/name", name)?;
    let digest = digest
        .map(|text| {
            Sha256Digest::parse(text).ok_or_else(|| refusals::digest_invalid().at("/digest"))
        })
        .transpose()?;
    let declared = Declared {
        owner: caller.subject.user.to_string(),
        file_name: name.to_owned(),
        bytes: size,
        digest,
    };
    let now = server.clock().now();
    blocking(server, move |server| {
        let uploads = server.uploads()?;
        uploads.expire(now).map_err(upload_failure)?;
        let status = uploads.create(declared, now);
        status.map(view).map_err(upload_failure)
    })
    .await
}

/// Appends a piece at `offset` and gives how far the upload is then. On disk once `head` told of it, and when it is whole.
///
/// Errors: `upload.wrong-offset`, `upload.busy`, `upload.too-large`, `upload.not-found`, `disk.full`.
pub async fn append(
    server: &Server,
    caller: &Caller,
    id: UploadId,
    offset: u64,
    piece: Bytes,
) -> Result<UploadView, Failure> {
    allowed(caller, Permission::ImagesWrite)?;
    let owner = caller.subject.user.to_string();
    blocking(server, move |server| {
        let mut from: &[u8] = &piece;
        let status = server.uploads()?.append(id.0, &owner, offset, &mut from);
        status.map(view).map_err(upload_failure)
    })
    .await
}

/// How far an upload is. Errors: `upload.not-found`, also for another user's.
pub async fn head(server: &Server, caller: &Caller, id: UploadId) -> Result<UploadView, Failure> {
    allowed(caller, Permission::ImagesWrite)?;
    let owner = caller.subject.user.to_string();
    blocking(server, move |server| {
        let status = server.uploads()?.status(id.0, &owner);
        status.map(view).map_err(upload_failure)
    })
    .await
}

/// The caller's uploads under way, oldest first.
pub async fn list(server: &Server, caller: &Caller) -> Result<Vec<UploadView>, Failure> {
    allowed(caller, Permission::ImagesWrite)?;
    let owner = caller.subject.user.to_string();
    blocking(server, move |server| {
        let mut all = server.uploads()?.list().map_err(upload_failure)?;
        all.retain(|status| status.declared.owner == owner);
        Ok(all.into_iter().map(view).collect())
    })
    .await
}

/// Calls an upload off and forgets its bytes. Errors: `upload.not-found`, `upload.busy`.
pub async fn abort(server: &Server, caller: &Caller, id: UploadId) -> Result<(), Failure> {
    allowed(caller, Permission::ImagesWrite)?;
    let owner = caller.subject.user.to_string();
    blocking(server, move |server| {
        server
            .uploads()?
            .remove(id.0, &owner)
            .map_err(upload_failure)
    })
    .await
}

pub(super) async fn blocking<T: Send + 'static>(
    server: &Server,
    work: impl FnOnce(&Server) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let server = server.clone();
    tokio::task::spawn_blocking(move || work(&server))
        .await
        .map_err(|ended| ServerFault::new("keep an upload", ended))?
}
