//! What the browser of a folder does, over REST: searches, counts, copies, and texts with their versions. Decides nothing.

use api::folder_browsing::{
    FolderCopyBody, FolderSearchQuery, FolderUsageQuery, NewFolderTextBody,
};
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use rules::refusals;
use serde::Deserialize;
use server::actions::folders::browsing;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::{JsonBody, QueryParameters};
use super::responses::{self, ApiResult, with_header};
use crate::doors::problem::ProblemResponse;

/// Which file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FolderTextQuery {
    path: String,
}

pub(super) async fn search(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
    QueryParameters(query): QueryParameters<FolderSearchQuery>,
) -> ApiResult {
    let (folder, found) = browsing::search(&api.server, &caller, &id, &query).await?;
    let path = format!("/api/v1/folders/{}/search", folder.id);
    let response = responses::whole(&headers, &found)?;
    let (raw, next) = (raw.unwrap_or_default(), found.next_cursor.as_deref());
    Ok(responses::linked(response, &path, &raw, next))
}

pub(super) async fn usage(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    QueryParameters(query): QueryParameters<FolderUsageQuery>,
) -> ApiResult {
    let (_, usage) = browsing::usage(&api.server, &caller, &id, &query).await?;
    responses::whole(&headers, &usage)
}

pub(super) async fn copy(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<FolderCopyBody>,
) -> ApiResult {
    let copied = browsing::copy(&api.server, &caller, &id, sent.value).await?;
    responses::plain(StatusCode::CREATED, &copied)
}

pub(super) async fn text(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    QueryParameters(query): QueryParameters<FolderTextQuery>,
) -> ApiResult {
    let (_, text) = browsing::text(&api.server, &caller, &id, &query.path).await?;
    responses::versioned(&headers, &text, &text.etag)
}

pub(super) async fn create_text(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<NewFolderTextBody>,
) -> ApiResult {
    let made = browsing::create_text(&api.server, &caller, &id, sent.value).await?;
    let response = responses::plain(StatusCode::CREATED, &made)?;
    Ok(with_header(response, "etag", &made.etag))
}

pub(super) async fn write_text(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<NewFolderTextBody>,
) -> ApiResult {
    let seen = version(&headers)?;
    let written = browsing::write_text(&api.server, &caller, &id, sent.value, seen).await?;
    let response = responses::plain(StatusCode::OK, &written)?;
    Ok(with_header(response, "etag", &written.etag))
}

/// The version in `If-Match`, which must be there; None for `*`.
pub(super) fn version(headers: &HeaderMap) -> Result<Option<String>, ProblemResponse> {
    let Some(given) = headers.get(header::IF_MATCH) else {
        let refusal = refusals::if_match_missing();
        let status = StatusCode::PRECONDITION_REQUIRED;
        return Err(ProblemResponse::with_status(refusal, status));
    };
    let text = given.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let tag = text.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
    let tag = tag.filter(|tag| !tag.is_empty() && !tag.contains('"'));
    Ok(Some(tag.ok_or_else(refusals::if_match_unknown)?.to_owned()))
}
