//! The files of folders over REST: pages of a directory, one file or a part of it, a directory as an archive, and what an owner
//! makes, moves and removes. What users wrote is never shown by a browser as a page of this console.

use api::folders::{
    FolderChecksumView, FolderEntryQuery, FolderMoveBody, FolderRemovalBody, FolderSelectionBody,
    NewFolderDirectoryBody, RemovedEntriesBody,
};
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use rules::folder_rights::FolderVerb;
use rules::refusals;
use rules::units::Timestamp;
use serde::Deserialize;
use server::access::Caller;
use server::actions::folders::files::{self, FileDownload};
use server::actions::folders::selection;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::{JsonBody, QueryParameters};
use super::responses::{self, ApiResult, with_header};
use crate::doors::download;
use crate::doors::problem::ProblemResponse;

/// What a browser may do with a file of a user: nothing but keep it, or show an image of it in a page of ours.
const SANDBOX: &str = "default-src 'none'; sandbox";

/// Which file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FolderFileQuery {
    pub(super) path: String,
    /// True: the checksum of a file instead of its bytes.
    sha256: bool,
}

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
    QueryParameters(query): QueryParameters<FolderEntryQuery>,
) -> ApiResult {
    let found = files::list(&api.server, &caller, &id, &query).await?;
    let path = format!("/api/v1/folders/{}/entries", found.folder.id);
    let raw = raw.unwrap_or_default();
    responses::page(&headers, &path, &raw, &found.page)
}

/// The bytes of one file: all, or those of one range. Several ranges at once are answered with all of it.
pub(super) async fn read(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    QueryParameters(query): QueryParameters<FolderFileQuery>,
) -> ApiResult {
    let file = files::open(&api.server, &caller, &id, &query.path).await?;
    if query.sha256 {
        let sha256 = files::checksum(&api.server, &caller, &file).await?;
        let (size, etag) = (file.size, format!("\"{}\"", file.tag));
        let checksum = FolderChecksumView { sha256, size, etag };
        return responses::plain(StatusCode::OK, &checksum);
    }
    answer(&api, &caller, &headers, file)
}

/// A file that is open, or the part of it that is asked for.
pub(super) fn answer(
    api: &ApiContext,
    caller: &Caller,
    headers: &HeaderMap,
    file: FileDownload,
) -> ApiResult {
    let tag = format!("\"{}\"", file.tag);
    if is_known(headers, &tag) {
        let response = StatusCode::NOT_MODIFIED.into_response();
        return Ok(with_header(response, "etag", &tag));
    }
    let (status, from, length) = match range_of(headers, &file, &tag) {
        None => (StatusCode::OK, 0, file.size),
        Some(Some((from, length))) => (StatusCode::PARTIAL_CONTENT, from, length),
        Some(None) => {
            let refusal = refusals::folder_range(file.size);
            let status = StatusCode::RANGE_NOT_SATISFIABLE;
            let response = ProblemResponse::with_status(refusal, status).into_response();
            let all = format!("bytes */{}", file.size);
            return Ok(with_header(response, "content-range", &all));
        }
    };
    let folder = file.folder;
    let pieces = stream::unfold(file.pieces(from, length), |mut pieces| async move {
        let piece = pieces.next().await?;
        Some((piece, pieces))
    });
    let body = download::leased(
        pieces,
        files::lease(&api.server, caller, folder, FolderVerb::Read),
    );
    let response = kept((status, body).into_response(), &file.name, file.kind);
    let response = with_header(response, "etag", &tag);
    let response = with_header(response, "last-modified", &http_date(file.modified_at));
    let response = with_header(response, "accept-ranges", "bytes");
    let response = with_header(response, "content-length", &length.to_string());
    Ok(match status {
        StatusCode::PARTIAL_CONTENT => {
            let part = format!("bytes {from}-{}/{}", from + length - 1, file.size);
            with_header(response, "content-range", &part)
        }
        _ => response,
    })
}

pub(super) async fn archive(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    QueryParameters(words): QueryParameters<Vec<(String, String)>>,
) -> ApiResult {
    let (mut paths, mut format) = (Vec::new(), String::new());
    for (name, word) in words {
        match name.as_str() {
            // Once for each directory and file.
            "path" => paths.push(word),
            "format" => format = word,
            _ => {}
        }
    }
    let made = files::archive(&api.server, &caller, &id, paths, &format).await?;
    let (folder, name, kind) = (made.folder, made.name.clone(), made.kind);
    let pieces = stream::unfold(made, |mut made| async move {
        let piece = made.next().await?;
        Some((piece, made))
    });
    let body = download::leased(
        pieces,
        files::lease(&api.server, &caller, folder, FolderVerb::Read),
    );
    Ok(kept((StatusCode::OK, body).into_response(), &name, kind))
}

pub(super) async fn make_directory(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<NewFolderDirectoryBody>,
) -> ApiResult {
    let made = files::make_directory(&api.server, &caller, &id, sent.value).await?;
    responses::plain(StatusCode::CREATED, &made)
}

pub(super) async fn move_entry(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<FolderMoveBody>,
) -> ApiResult {
    let moved = files::move_entry(&api.server, &caller, &id, sent.value).await?;
    responses::plain(StatusCode::OK, &moved)
}

pub(super) async fn move_entries(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<FolderSelectionBody>,
) -> ApiResult {
    let FolderSelectionBody { paths, to } = sent.value;
    selection::move_into(&api.server, &caller, &id, paths, to).await?;
    responses::nothing()
}

pub(super) async fn copy_entries(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<FolderSelectionBody>,
) -> ApiResult {
    let FolderSelectionBody { paths, to } = sent.value;
    selection::copy_into(&api.server, &caller, &id, paths, to).await?;
    responses::nothing()
}

pub(super) async fn remove(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<FolderRemovalBody>,
) -> ApiResult {
    files::remove(&api.server, &caller, &id, sent.value).await?;
    responses::nothing()
}

pub(super) async fn list_removed(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let (_, removed) = files::removed(&api.server, &caller, &id).await?;
    responses::all(&headers, removed)
}

pub(super) async fn restore_removed(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<RemovedEntriesBody>,
) -> ApiResult {
    files::restore_removed(&api.server, &caller, &id, sent.value).await?;
    responses::nothing()
}

pub(super) async fn purge_removed(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<RemovedEntriesBody>,
) -> ApiResult {
    files::purge_removed(&api.server, &caller, &id, sent.value).await?;
    responses::nothing()
}

pub(super) async fn empty_trash(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    files::empty_trash(&api.server, &caller, &id).await?;
    responses::nothing()
}

/// A file of a user on its way to be kept.
fn kept(response: Response, name: &str, kind: &str) -> Response {
    let response = with_header(response, "content-type", kind);
    let response = with_header(response, "content-disposition", &download::kept_as(name));
    let response = with_header(response, "x-content-type-options", "nosniff");
    let response = with_header(response, "content-security-policy", SANDBOX);
    with_header(response, "cross-origin-resource-policy", "same-origin")
}

/// Whether the client has this version.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

/// Begin and length of the range that is asked for; None: all of the file. `Some(None)`: nothing of it lies in the file.
fn range_of(headers: &HeaderMap, file: &FileDownload, tag: &str) -> Option<Option<(u64, u64)>> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let asked = text(header::RANGE)?;
    // Of another version than the client has the beginning of, the rest is of no use. A date tells no two versions of one
    // second apart, and a program may set it back.
    match text(header::IF_RANGE) {
        Some(version) if version != tag => None,
        _ => download::parsed_range(asked, file.size),
    }
}

/// A time as HTTP headers write it.
pub(super) fn http_date(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.as_millis())
        .map(|t| t.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
        .unwrap_or_default()
}
