//! Snapshots of folders over REST: which there are, their schedule, what lies in one, and what is taken back out of it. Decides
//! nothing.

use api::folder_snapshots::{
    FolderSnapshotRestoreBody, FolderSnapshotScheduleBody, NewFolderFromSnapshotBody,
};
use api::folders::FolderEntryQuery;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use server::actions::folders::snapshots;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::{JsonBody, QueryParameters};
use super::folder_files::{self, FolderFileQuery};
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let (_, known) = snapshots::list(&api.server, &caller, &id).await?;
    responses::whole(&headers, &known)
}

pub(super) async fn create(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let operation = snapshots::create(&api.server, &caller, &id).await?;
    responses::accepted(&operation, &format!("/api/v1/operations/{}", operation.id))
}

pub(super) async fn set_schedule(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<FolderSnapshotScheduleBody>,
) -> ApiResult {
    let set = snapshots::set_schedule(&api.server, &caller, &id, sent.value).await?;
    responses::plain(StatusCode::OK, &set)
}

pub(super) async fn remove(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, number)): Path<(String, String)>,
) -> ApiResult {
    snapshots::remove(&api.server, &caller, &id, read(&number)).await?;
    responses::nothing()
}

pub(super) async fn entries(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, number)): Path<(String, String)>,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
    QueryParameters(query): QueryParameters<FolderEntryQuery>,
) -> ApiResult {
    let number = read(&number);
    let found = snapshots::entries(&api.server, &caller, &id, number, &query).await?;
    let path = format!(
        "/api/v1/folders/{}/snapshots/{number}/entries",
        found.folder.id
    );
    let raw = raw.unwrap_or_default();
    responses::page(&headers, &path, &raw, &found.page)
}

/// The bytes of one file of a snapshot: all, or those of one range.
pub(super) async fn file(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, number)): Path<(String, String)>,
    headers: HeaderMap,
    QueryParameters(query): QueryParameters<FolderFileQuery>,
) -> ApiResult {
    let number = read(&number);
    let file = snapshots::open(&api.server, &caller, &id, number, &query.path).await?;
    folder_files::answer(&api, &caller, &headers, file)
}

pub(super) async fn copy(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, number)): Path<(String, String)>,
    sent: JsonBody<NewFolderFromSnapshotBody>,
) -> ApiResult {
    let (number, key) = (read(&number), sent.key);
    let begun = snapshots::copy(&api.server, &caller, &id, number, sent.value, key).await?;
    let operation = begun.value;
    let response =
        responses::accepted(&operation, &format!("/api/v1/operations/{}", operation.id))?;
    Ok(responses::replayed(response, begun.replayed))
}

pub(super) async fn restore(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, number)): Path<(String, String)>,
    sent: JsonBody<FolderSnapshotRestoreBody>,
) -> ApiResult {
    let number = read(&number);
    let back = snapshots::restore(&api.server, &caller, &id, number, sent.value).await?;
    responses::plain(StatusCode::CREATED, &back)
}

/// No snapshot has the number 0: what is no number is not found.
fn read(number: &str) -> u32 {
    number.parse().unwrap_or(0)
}
