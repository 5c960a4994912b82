//! Resumable uploads by tus 1.0.0: creation, termination, expiration. What has arrived when a
//! connection breaks is kept; the client asks how far it came and goes on there.
//!
//! Source of the rules: the protocol's own text, version 1.0.0 (2016-03-25).

use api::images::UploadView;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rules::names::UploadId;
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use server::access::{Caller, lease};
use server::actions::images::uploads;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::folder_files::http_date;
use super::responses::{self, ApiResult, with_header};
use crate::doors::body::BodyPieces;
use crate::doors::problem::ProblemResponse;

const VERSION: &str = "1.0.0";
/// One piece on its way to disk. Higher: more memory an upload. Lower: more turns of a thread.
const PIECE: usize = 4 << 20;

/// What this server knows of the protocol.
pub(super) async fn options() -> Response {
    tus(abilities("creation,termination,expiration"))
}

/// An answer that names the version and these extensions.
pub(super) fn abilities(extensions: &'static str) -> Response {
    let response = StatusCode::NO_CONTENT.into_response();
    let response = with_header(response, "tus-version", VERSION);
    with_header(response, "tus-extension", extensions)
}

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let uploads = uploads::list(&api.server, &caller).await?;
    responses::all(&headers, uploads)
}

pub(super) async fn create(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    version(&headers)?;
    let size = number(&headers, "upload-length").ok_or_else(refusals::upload_length_missing)?;
    let name = file_name(&headers)?;
    let upload = uploads::create(&api.server, &caller, size, &name, None).await?;
    let response = responses::made(&upload, &format!("/api/v1/uploads/{}", upload.id))?;
    Ok(tus(expires(response, upload.expires_at)))
}

pub(super) async fn head(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    version(&headers)?;
    let upload = uploads::head(&api.server, &caller, known(&id)?).await?;
    Ok(standing(
        Some(upload.size),
        upload.offset,
        upload.expires_at,
    ))
}

pub(super) async fn append(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult {
    let offset = piece_offset(&headers)?;
    let upload = take(&api, &caller, known(&id)?, offset, body).await?;
    let response = StatusCode::NO_CONTENT.into_response();
    Ok(tus(told(response, upload.offset, upload.expires_at)))
}

/// Takes a body in pieces. When it breaks off, what came before is on disk.
async fn take(
    api: &ApiContext,
    caller: &Caller,
    id: UploadId,
    offset: u64,
    body: Body,
) -> Result<UploadView, ProblemResponse> {
    let mut pieces = BodyPieces::of(body, lease(&api.server, caller), PIECE);
    let mut at = offset;
    let mut has_come = false;
    while let Some(piece) = pieces.piece().await? {
        let upload = uploads::append(&api.server, caller, id, at, piece).await?;
        at = upload.offset;
        has_come = true;
    }
    // An acknowledged offset survives a power cut: to be told of it waits for the disk.
    let upload = uploads::head(&api.server, caller, id).await?;
    match has_come && !pieces.is_broken() {
        true => Ok(upload),
        false => Err(ProblemResponse::from(refusals::upload_cut_off())),
    }
}

pub(super) async fn abort(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    version(&headers)?;
    uploads::abort(&api.server, &caller, known(&id)?).await?;
    Ok(tus(StatusCode::NO_CONTENT.into_response()))
}

pub(super) fn version(headers: &HeaderMap) -> Result<(), ProblemResponse> {
    let given = headers.get("tus-resumable").and_then(|v| v.to_str().ok());
    if given == Some(VERSION) {
        return Ok(());
    }
    let refusal = refusals::upload_version();
    Err(ProblemResponse::with_status(
        refusal,
        StatusCode::PRECONDITION_FAILED,
    ))
}

/// Where a piece begins, of a request that brings one.
pub(super) fn piece_offset(headers: &HeaderMap) -> Result<u64, ProblemResponse> {
    version(headers)?;
    if !is_piece(headers) {
        let refusal = refusals::upload_content_type();
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(ProblemResponse::with_status(refusal, status));
    }
    let offset = number(headers, "upload-offset").ok_or_else(refusals::upload_offset_missing)?;
    Ok(offset)
}

/// Whether the body of a request is a piece of a file.
pub(super) fn is_piece(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.and_then(|kind| kind.to_str().ok()) == Some("application/offset+octet-stream")
}

pub(super) fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// The file's name in `Upload-Metadata`; empty where there is none.
fn file_name(headers: &HeaderMap) -> Result<String, Refusal> {
    let wrong = || refusals::upload_metadata();
    let Some(given) = headers.get("upload-metadata") else {
        return Ok(String::new());
    };
    let given = given.to_str().map_err(|_| wrong())?;
    for pair in given.split(',') {
        let mut words = pair.trim().split(' ');
        if words.next() == Some("filename") {
            let bytes = STANDARD
                .decode(words.next().unwrap_or_default())
                .map_err(|_| wrong())?;
            return String::from_utf8(bytes).map_err(|_| wrong());
        }
    }
    Ok(String::new())
}

/// What is no id names nothing.
pub(super) fn known(id: &str) -> Result<UploadId, Refusal> {
    id.parse().map_err(|_| refusals::upload_unknown())
}

pub(super) fn tus(response: Response) -> Response {
    with_header(response, "tus-resumable", VERSION)
}

/// An upload as it stands: its length where it is known, how far it is, and until when it is kept.
pub(super) fn standing(size: Option<u64>, offset: u64, expires_at: Timestamp) -> Response {
    let response = StatusCode::OK.into_response();
    let response = match size {
        Some(size) => with_header(response, "upload-length", &size.to_string()),
        None => response,
    };
    let response = with_header(response, "cache-control", "no-store");
    tus(told(response, offset, expires_at))
}

/// How far it is, and until when it is kept.
pub(super) fn told(response: Response, offset: u64, expires_at: Timestamp) -> Response {
    let response = with_header(response, "upload-offset", &offset.to_string());
    expires(response, expires_at)
}

fn expires(response: Response, expires_at: Timestamp) -> Response {
    with_header(response, "upload-expires", &http_date(expires_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_is_found_among_other_words() {
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("upload-metadata", text.parse().expect("a header"));
            file_name(&headers)
        };
        assert_eq!(
            read("type aW1n, filename aS50YXI=, x"),
            Ok("i.tar".to_owned())
        );
        assert_eq!(read("x"), Ok(String::new()));
        assert!(read("filename ???").is_err());
    }

    #[test]
    fn dates_are_those_of_http() {
        let at = Timestamp::from_millis(784_111_777_000);
        assert_eq!(http_date(at), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
