//! Files on their way into folders by tus 1.0.0: creation, also with the first piece, termination, checksum, expiration. The
//! bytes of a piece go to disk as they come; what came of one that breaks off is kept.
//!
//! Source of the rules: the protocol's own text, version 1.0.0 (2016-03-25).

use std::collections::BTreeMap;

use api::folder_browsing::WrittenFolderTextView;
use api::folders::FolderUploadView;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rules::folder_path::FolderPath;
use rules::folder_rights::FolderVerb;
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use server::Failure;
use server::access::{Caller, Lease};
use server::actions::folders::files;
use server::actions::folders::uploads::{self, FileVersion, FolderPiece, NewFolderFile};

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::QueryParameters;
use super::folder_browsing;
use super::folder_files::FolderFileQuery;
use super::responses::{self, ApiResult, with_header};
use super::uploads::{
    abilities, is_piece, known, number, piece_offset, standing, told, tus, version,
};
use crate::doors::body::BodyPieces;
use crate::doors::problem::ProblemResponse;

/// Bytes on their way to disk at once. Higher: more memory an upload. Lower: more calls.
const PIECE: usize = 1 << 20;
/// Bytes of a file that one request brings whole. Higher: more is sent again after a lost connection. Lower: more files go by
/// tus.
const MAX_PUT_BYTES: u64 = 64 << 20;
/// What tus answers to a piece that does not have its checksum.
const CHECKSUM_MISMATCH: u16 = 460;

/// What folders know of the protocol.
pub(super) async fn options() -> Response {
    let response = abilities("creation,creation-with-upload,termination,checksum,expiration");
    let most = uploads::MAX_UPLOADED_BYTES.to_string();
    let response = with_header(response, "tus-max-size", &most);
    tus(with_header(
        response,
        "tus-checksum-algorithm",
        "sha256,crc32",
    ))
}

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let all = uploads::list(&api.server, &caller, &id).await?;
    responses::all(&headers, all)
}

pub(super) async fn create(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult {
    version(&headers)?;
    let size = number(&headers, "upload-length").ok_or_else(refusals::upload_length_missing)?;
    let has_piece = is_piece(&headers);
    if has_piece && number(&headers, "content-length").is_some_and(|bytes| bytes > size) {
        return Err(refusals::upload_longer_than_declared(size).into());
    }
    let said = metadata(&headers)?;
    let word = |name: &str| said.get(name).cloned().unwrap_or_default();
    let modified = said.get("mtime").and_then(|text| text.parse().ok());
    let asked = NewFolderFile {
        directory: word("path"),
        name: word("filename"),
        bytes: Some(size),
        overwrite: ["true", "1"].contains(&word("overwrite").as_str()),
        version: None,
        modified_at: modified.map(Timestamp::from_millis),
    };
    let mut upload = uploads::create(&api.server, &caller, &id, asked).await?;
    // An empty file is in its place already.
    if has_piece && size > 0 {
        upload = match first_piece(&api, &caller, &upload, &headers, body).await {
            Ok(upload) => upload,
            Err(problem) => {
                // Its sender was never told where it is.
                let which = upload.folder.to_string();
                let _ = uploads::abort(&api.server, &caller, &which, upload.id).await;
                return Err(problem);
            }
        };
    }
    let place = format!("/api/v1/folders/{}/uploads/{}", upload.folder, upload.id);
    let response = responses::made(&upload, &place)?;
    Ok(tus(told(response, upload.offset, upload.expires_at)))
}

/// Takes what the request brings that began a file.
async fn first_piece(
    api: &ApiContext,
    caller: &Caller,
    upload: &FolderUploadView,
    headers: &HeaderMap,
    body: Body,
) -> Result<FolderUploadView, ProblemResponse> {
    let (folder, checksum) = (upload.folder, checksum(headers));
    let which = folder.to_string();
    let piece = uploads::append(&api.server, caller, &which, upload.id, 0, checksum).await?;
    let lease = files::lease(&api.server, caller, folder, FolderVerb::Write);
    take(piece, lease, body).await
}

fn checksum(headers: &HeaderMap) -> Option<&str> {
    headers
        .get("upload-checksum")
        .and_then(|value| value.to_str().ok())
}

pub(super) async fn head(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, upload)): Path<(String, String)>,
    headers: HeaderMap,
) -> ApiResult {
    version(&headers)?;
    let upload = uploads::head(&api.server, &caller, &id, known(&upload)?).await?;
    Ok(standing(upload.size, upload.offset, upload.expires_at))
}

pub(super) async fn append(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, upload)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult {
    let offset = piece_offset(&headers)?;
    let upload = known(&upload)?;
    let checksum = checksum(&headers);
    let piece = uploads::append(&api.server, &caller, &id, upload, offset, checksum).await?;
    let lease = files::lease(&api.server, &caller, piece.folder(), FolderVerb::Write);
    let upload = take(piece, lease, body).await?;
    let response = StatusCode::NO_CONTENT.into_response();
    Ok(tus(told(response, upload.offset, upload.expires_at)))
}

/// Takes a body as it comes. When it breaks off, or its sender may go on no longer, what came before is on disk.
async fn take(
    mut piece: FolderPiece,
    lease: Lease,
    body: Body,
) -> Result<FolderUploadView, ProblemResponse> {
    let mut coming = BodyPieces::of(body, lease, PIECE);
    loop {
        match coming.piece().await {
            Ok(Some(bytes)) if bytes.is_empty() => {}
            Ok(Some(bytes)) => piece.write(bytes).await?,
            Ok(None) => break,
            Err(refusal) => {
                // What came is told to the next request for it.
                let _ = piece.finish(false).await;
                return Err(refusal.into());
            }
        }
    }
    let is_whole = !coming.is_broken();
    let upload = piece.finish(is_whole).await.map_err(refused)?;
    match is_whole {
        true => Ok(upload),
        false => Err(refusals::upload_cut_off().into()),
    }
}

/// `PUT`: a file whole, in the place of the version that `If-Match` names, or of none. It is in its place once all of it
/// came; before that nothing is changed.
pub(super) async fn put(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    QueryParameters(query): QueryParameters<FolderFileQuery>,
    body: Body,
) -> ApiResult {
    uploads::check(&api.server, &caller, &id)?;
    let version = wanted(&headers)?;
    let digest = content_digest(&headers)?;
    let announced = number(&headers, "content-length").unwrap_or(0);
    if announced > MAX_PUT_BYTES {
        return Err(refusals::upload_whole_too_large(MAX_PUT_BYTES >> 20).into());
    }
    let path = FolderPath::parse(&query.path).map_err(|refusal| refusal.at("/path"))?;
    let name = std::str::from_utf8(path.name());
    let asked = NewFolderFile {
        directory: path.parent().to_string(),
        name: name
            .map_err(|_| refusals::folder_new_name_invalid())?
            .to_owned(),
        overwrite: version != FileVersion::New,
        version: Some(version.clone()),
        ..NewFolderFile::default()
    };
    let begun = uploads::create(&api.server, &caller, &id, asked).await?;
    let written = match whole(&api, &caller, &begun, digest.as_deref(), body).await {
        Ok(written) => written,
        Err(problem) => {
            let which = begun.folder.to_string();
            let _ = uploads::abort(&api.server, &caller, &which, begun.id).await;
            return Err(problem);
        }
    };
    let status = match version {
        FileVersion::New => StatusCode::CREATED,
        FileVersion::Known(_) | FileVersion::Any => StatusCode::OK,
    };
    let response = responses::plain(status, &written)?;
    Ok(with_header(response, "etag", &written.etag))
}

/// Takes a body that is all of a file.
async fn whole(
    api: &ApiContext,
    caller: &Caller,
    begun: &FolderUploadView,
    digest: Option<&str>,
    body: Body,
) -> Result<WrittenFolderTextView, ProblemResponse> {
    let which = begun.folder.to_string();
    let mut piece = uploads::append(&api.server, caller, &which, begun.id, 0, digest).await?;
    let lease = files::lease(&api.server, caller, begun.folder, FolderVerb::Write);
    let mut coming = BodyPieces::of(body, lease, PIECE);
    let mut came = 0;
    while let Some(bytes) = coming.piece().await? {
        came += bytes.len() as u64;
        if came > MAX_PUT_BYTES {
            return Err(refusals::upload_whole_too_large(MAX_PUT_BYTES >> 20).into());
        }
        if !bytes.is_empty() {
            piece.write(bytes).await?;
        }
    }
    match coming.is_broken() {
        true => Err(refusals::upload_cut_off().into()),
        false => Ok(piece.place().await?),
    }
}

/// What a file takes the place of: `If-None-Match: *`, or else `If-Match`, which must be there.
fn wanted(headers: &HeaderMap) -> Result<FileVersion, ProblemResponse> {
    let fresh = headers.get(header::IF_NONE_MATCH);
    if fresh.is_some_and(|value| value.as_bytes().trim_ascii() == b"*") {
        return Ok(FileVersion::New);
    }
    let version = folder_browsing::version(headers)?;
    Ok(version.map_or(FileVersion::Any, FileVersion::Known))
}

/// The SHA-256 of `Content-Digest`, as tus writes it. Rule: RFC 9530, section 2.
fn content_digest(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(given) = headers.get("content-digest") else {
        return Ok(None);
    };
    let text = given.to_str().unwrap_or_default();
    let mut all = text.split(',').map(str::trim);
    let value = all.find_map(|one| one.strip_prefix("sha-256=:")?.strip_suffix(':'));
    let value = value.ok_or_else(refusals::upload_checksum_unknown)?;
    Ok(Some(format!("sha256 {value}")))
}

fn refused(failure: Failure) -> ProblemResponse {
    match failure {
        Failure::Refusal(refusal) if refusal.code == rules::codes::UPLOAD_CHECKSUM_MISMATCH => {
            let status = StatusCode::from_u16(CHECKSUM_MISMATCH);
            ProblemResponse::with_status(refusal, status.unwrap_or(StatusCode::BAD_REQUEST))
        }
        failure => failure.into(),
    }
}

pub(super) async fn abort(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, upload)): Path<(String, String)>,
    headers: HeaderMap,
) -> ApiResult {
    version(&headers)?;
    uploads::abort(&api.server, &caller, &id, known(&upload)?).await?;
    Ok(tus(StatusCode::NO_CONTENT.into_response()))
}

/// The words of `Upload-Metadata`, by their names.
fn metadata(headers: &HeaderMap) -> Result<BTreeMap<String, String>, Refusal> {
    let wrong = || refusals::upload_metadata();
    let mut all = BTreeMap::new();
    let Some(given) = headers.get("upload-metadata") else {
        return Ok(all);
    };
    let given = given.to_str().map_err(|_| wrong())?;
    for pair in given
        .split(',')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
    {
        let (name, value) = pair.split_once(' ').unwrap_or((pair, ""));
        let bytes = STANDARD.decode(value.trim()).map_err(|_| wrong())?;
        let value = String::from_utf8(bytes).map_err(|_| wrong())?;
        all.insert(name.to_owned(), value);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_sha_256_or_none() {
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("content-digest", text.parse().expect("a header"));
            content_digest(&headers)
        };
        let known = Some("sha256 AAAA".to_owned());
        assert_eq!(read("sha-256=:AAAA:"), Ok(known.clone()));
        assert_eq!(read("sha-512=:BBBB:, sha-256=:AAAA:"), Ok(known));
        for other in ["sha-512=:BBBB:", "sha-256=AAAA", "AAAA", ""] {
            let refusal = read(other).expect_err(other);
            assert_eq!(refusal.code, "upload.checksum-unknown", "{other}");
        }
        assert_eq!(content_digest(&HeaderMap::new()), Ok(None));
    }

    #[test]
    fn the_words_of_the_metadata_are_read_by_name() {
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("upload-metadata", text.parse().expect("a header"));
            metadata(&headers)
        };
        let all = read("filename YS50eHQ=, path ZGF0YS9i,overwrite").expect("words");
        assert_eq!(all["filename"], "a.txt");
        assert_eq!(all["path"], "data/b");
        assert_eq!(all["overwrite"], "");
        assert!(read("").expect("none").is_empty());
        assert!(read("filename ???").is_err());
        assert!(read("filename /w==").is_err(), "no text");
    }
}
