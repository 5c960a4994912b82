//! Own copies of folders over REST, and folders that are given to another owner.

use api::folders::{NewFolderCopyBody, NewFolderTransferBody};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use server::actions::folders::{copies, transfers};

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn copy(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<NewFolderCopyBody>,
) -> ApiResult {
    let begun = copies::create(&api.server, &caller, &id, sent.value, sent.key).await?;
    let operation = begun.value;
    let response =
        responses::accepted(&operation, &format!("/api/v1/operations/{}", operation.id))?;
    Ok(responses::replayed(response, begun.replayed))
}

pub(super) async fn offer(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<NewFolderTransferBody>,
) -> ApiResult {
    let offer = transfers::offer(&api.server, &caller, &id, sent.value).await?;
    responses::plain(StatusCode::CREATED, &offer)
}

pub(super) async fn withdraw(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    transfers::withdraw(&api.server, &caller, &id).await?;
    responses::nothing()
}

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let offered = transfers::list(&api.server, &caller).await?;
    responses::all(&headers, offered)
}

pub(super) async fn accept(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let operation = transfers::accept(&api.server, &caller, &id).await?;
    responses::accepted(&operation, &format!("/api/v1/operations/{}", operation.id))
}

pub(super) async fn decline(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    transfers::decline(&api.server, &caller, &id).await?;
    responses::nothing()
}
