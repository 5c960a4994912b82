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
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use rules::names::UploadId;
use rules::refusal::Refusal;
use rules::refusals;
use server::access::{Caller, lease};
use server::actions::images::uploads;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::folder_files::http_date;
use super::responses::{self, ApiResult, with_header};
use crate::doors::problem::ProblemResponse;

const VERSION: &str = "1.0.0";
/// One piece on its way to disk. Higher: more memory an upload. Lower: more flushes of the disk.
const PIECE: usize = 4 << 20;

/// What this server knows of the protocol.
pub(super) async fn options() -> Response {
    let response = StatusCode::NO_CONTENT.into_response();
    let response = with_header(response, "tus-version", VERSION);
    let extensions = "creation,termination,expiration";
    tus(with_header(response, "tus-extension", extensions))
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
    Ok(tus(expires(response, &upload)))
}

pub(super) async fn head(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    version(&headers)?;
    let upload = uploads::head(&api.server, &caller, known(&id)?).await?;
    let response = StatusCode::OK.into_response();
    let response = with_header(response, "upload-length", &upload.size.to_string());
    let response = with_header(response, "cache-control", "no-store");
    Ok(tus(expires(progress(response, &upload), &upload)))
}

pub(super) async fn append(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult {
    version(&headers)?;
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    if kind != Some("application/offset+octet-stream") {
        let refusal = refusals::upload_content_type();
        return Err(ProblemResponse::with_status(
            refusal,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ));
    }
    let offset = number(&headers, "upload-offset").ok_or_else(refusals::upload_offset_missing)?;
    let upload = take(&api, &caller, known(&id)?, offset, body).await?;
    let response = StatusCode::NO_CONTENT.into_response();
    Ok(tus(expires(progress(response, &upload), &upload)))
}

/// Takes a body in pieces. When it breaks off, what came before is on disk.
async fn take(
    api: &ApiContext,
    caller: &Caller,
    id: UploadId,
    offset: u64,
    body: Body,
) -> Result<UploadView, ProblemResponse> {
    let mut lease = lease(&api.server, caller);
    let mut pieces = body.into_data_stream();
    let mut buffer = BytesMut::new();
    let mut at = offset;
    let mut latest = None;
    let broken = loop {
        let piece = tokio::select! {
            biased;
            refusal = &mut lease => return Err(refusal.into()),
            piece = pieces.next() => piece,
        };
        match piece {
            Some(Ok(bytes)) => {
                buffer.extend_from_slice(&bytes);
                if buffer.len() >= PIECE {
                    let upload = keep(api, caller, id, at, buffer.split().freeze()).await?;
                    at = upload.offset;
                    latest = Some(upload);
                }
            }
            Some(Err(_)) => break true,
            None => break false,
        }
    };
    if !buffer.is_empty() || latest.is_none() {
        latest = Some(keep(api, caller, id, at, buffer.freeze()).await?);
    }
    match latest {
        Some(upload) if !broken => Ok(upload),
        _ => Err(ProblemResponse::from(refusals::upload_cut_off())),
    }
}

async fn keep(
    api: &ApiContext,
    caller: &Caller,
    id: UploadId,
    at: u64,
    piece: Bytes,
) -> Result<UploadView, ProblemResponse> {
    Ok(uploads::append(&api.server, caller, id, at, piece).await?)
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
fn known(id: &str) -> Result<UploadId, Refusal> {
    id.parse().map_err(|_| refusals::upload_unknown())
}

pub(super) fn tus(response: Response) -> Response {
    with_header(response, "tus-resumable", VERSION)
}

fn progress(response: Response, upload: &UploadView) -> Response {
    with_header(response, "upload-offset", &upload.offset.to_string())
}

fn expires(response: Response, upload: &UploadView) -> Response {
    with_header(response, "upload-expires", &http_date(upload.expires_at))
}

#[cfg(test)]
mod tests {
    use rules::units::Timestamp;

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
