//! Files on their way into folders by tus 1.0.0: creation, termination, checksum, expiration. The bytes of a piece go to disk
//! as they come; what came of one that breaks off is kept.
//!
//! Source of the rules: the protocol's own text, version 1.0.0 (2016-03-25).

use std::collections::BTreeMap;

use api::folders::FolderUploadView;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use futures_util::StreamExt as _;
use rules::folder_rights::FolderVerb;
use rules::names::UploadId;
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use server::Failure;
use server::actions::folders::files;
use server::actions::folders::uploads::{self, FolderPiece, NewFolderFile};

use super::ApiContext;
use super::authentication::ApiCaller;
use super::folder_files::http_date;
use super::responses::{self, ApiResult, with_header};
use super::uploads::{number, tus, version};
use crate::doors::problem::ProblemResponse;

/// Bytes on their way to disk at once. Higher: more memory an upload. Lower: more calls.
const PIECE: usize = 1 << 20;
/// What tus answers to a piece that does not have its checksum.
const CHECKSUM_MISMATCH: u16 = 460;

/// What folders know of the protocol.
pub(super) async fn options() -> Response {
    let response = StatusCode::NO_CONTENT.into_response();
    let response = with_header(response, "tus-version", "1.0.0");
    let extensions = "creation,termination,checksum,expiration";
    let response = with_header(response, "tus-extension", extensions);
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
) -> ApiResult {
    version(&headers)?;
    let size = number(&headers, "upload-length").ok_or_else(refusals::upload_length_missing)?;
    let said = metadata(&headers)?;
    let word = |name: &str| said.get(name).cloned().unwrap_or_default();
    let modified = said.get("mtime").and_then(|text| text.parse().ok());
    let asked = NewFolderFile {
        directory: word("path"),
        name: word("filename"),
        bytes: Some(size),
        overwrite: ["true", "1"].contains(&word("overwrite").as_str()),
        modified_at: modified.map(Timestamp::from_millis),
    };
    let upload = uploads::create(&api.server, &caller, &id, asked).await?;
    let place = format!("/api/v1/folders/{}/uploads/{}", upload.folder, upload.id);
    let response = responses::made(&upload, &place)?;
    Ok(tus(told(response, &upload)))
}

pub(super) async fn head(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, upload)): Path<(String, String)>,
    headers: HeaderMap,
) -> ApiResult {
    version(&headers)?;
    let upload = uploads::head(&api.server, &caller, &id, known(&upload)?).await?;
    let response = StatusCode::OK.into_response();
    let response = match upload.size {
        Some(size) => with_header(response, "upload-length", &size.to_string()),
        None => response,
    };
    let response = with_header(response, "cache-control", "no-store");
    Ok(tus(told(response, &upload)))
}

pub(super) async fn append(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, upload)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult {
    version(&headers)?;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if text(header::CONTENT_TYPE.as_str()) != Some("application/offset+octet-stream") {
        let refusal = refusals::upload_content_type();
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(ProblemResponse::with_status(refusal, status));
    }
    let offset = number(&headers, "upload-offset").ok_or_else(refusals::upload_offset_missing)?;
    let (upload, checksum) = (known(&upload)?, text("upload-checksum"));
    let piece = uploads::append(&api.server, &caller, &id, upload, offset, checksum).await?;
    let lease = files::lease(&api.server, &caller, piece.folder(), FolderVerb::Write);
    let upload = take(piece, lease, body).await?;
    Ok(tus(told(StatusCode::NO_CONTENT.into_response(), &upload)))
}

/// Takes a body as it comes. When it breaks off, or its sender may go on no longer, what came before is on disk.
async fn take(
    mut piece: FolderPiece,
    mut lease: server::access::Lease,
    body: Body,
) -> Result<FolderUploadView, ProblemResponse> {
    let mut coming = body.into_data_stream();
    let mut buffer = BytesMut::new();
    let is_whole = loop {
        let bytes = tokio::select! {
            biased;
            refusal = &mut lease => {
                // What came is told to the next request for it.
                let _ = piece.finish(false).await;
                return Err(refusal.into());
            }
            bytes = coming.next() => bytes,
        };
        match bytes {
            Some(Ok(bytes)) => buffer.extend_from_slice(&bytes),
            Some(Err(_)) => break false,
            None => break true,
        }
        if buffer.len() >= PIECE {
            piece.write(buffer.split().freeze()).await?;
        }
    };
    if !buffer.is_empty() {
        piece.write(buffer.freeze()).await?;
    }
    let upload = piece.finish(is_whole).await.map_err(refused)?;
    match is_whole {
        true => Ok(upload),
        false => Err(refusals::upload_cut_off().into()),
    }
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

/// What is no id names nothing.
fn known(id: &str) -> Result<UploadId, Refusal> {
    id.parse().map_err(|_| refusals::upload_unknown())
}

/// How far it is, and until when it is kept.
fn told(response: Response, upload: &FolderUploadView) -> Response {
    let response = with_header(response, "upload-offset", &upload.offset.to_string());
    with_header(response, "upload-expires", &http_date(upload.expires_at))
}

#[cfg(test)]
mod tests {
    use super::*;

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
