//! Shares of folders over REST, and the folders that others offer the caller.

use api::folders::{FolderDetachmentBody, NewFolderShareBody};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use server::actions::folders::sharing;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let known = sharing::list(&api.server, &caller, &id).await?;
    responses::all(&headers, known)
}

pub(super) async fn create(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<NewFolderShareBody>,
) -> ApiResult {
    let made = sharing::create(&api.server, &caller, &id, sent.value, sent.key).await?;
    let response = responses::plain(StatusCode::CREATED, &made.value)?;
    Ok(responses::replayed(response, made.replayed))
}

pub(super) async fn remove(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, share)): Path<(String, String)>,
) -> ApiResult {
    sharing::remove(&api.server, &caller, &id, &share).await?;
    responses::nothing()
}

pub(super) async fn sessions(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let known = sharing::sessions(&api.server, &caller, &id).await?;
    responses::all(&headers, known)
}

pub(super) async fn detach(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<FolderDetachmentBody>,
) -> ApiResult {
    let changed = sharing::detach(&api.server, &caller, &id, sent.value).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn leave(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    sharing::leave(&api.server, &caller, &id).await?;
    responses::nothing()
}

pub(super) async fn invitations(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let offered = sharing::invitations(&api.server, &caller).await?;
    responses::all(&headers, offered)
}

pub(super) async fn accept(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let folder = sharing::accept(&api.server, &caller, &id).await?;
    responses::changed(&folder, folder.generation)
}

pub(super) async fn decline(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    sharing::decline(&api.server, &caller, &id).await?;
    responses::nothing()
}
