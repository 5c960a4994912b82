//! Folders over REST.

use api::folders::{FolderAdoptionBody, FolderLimitBody, FolderPatchBody, NewFolderBody};
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use server::actions::folders::{self, adoption, limits};

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let known = folders::list(&api.server, &caller).await?;
    responses::all(&headers, known)
}

pub(super) async fn create(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewFolderBody>,
) -> ApiResult {
    let made = folders::create(&api.server, &caller, sent.value, sent.key).await?;
    let location = format!("/api/v1/folders/{}", made.value.id);
    let response = responses::made_version(&made.value, &location, made.value.generation)?;
    Ok(responses::replayed(response, made.replayed))
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let found = folders::get(&api.server, &caller, &id).await?;
    responses::one(&headers, &found, found.generation)
}

pub(super) async fn change(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<FolderPatchBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let changed = folders::change(&api.server, &caller, &id, sent.value, seen).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn limit(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<FolderLimitBody>,
) -> ApiResult {
    let changed = limits::set(&api.server, &caller, &id, sent.value).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn trash(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let changed = folders::trash(&api.server, &caller, &id).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn restore(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let changed = folders::restore(&api.server, &caller, &id).await?;
    responses::changed(&changed, changed.generation)
}

/// Has a folder in the trash removed for good.
pub(super) async fn purge(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let changed = folders::purge(&api.server, &caller, &id).await?;
    responses::changed(&changed, changed.generation)
}

/// Makes a directory that belongs to no folder one of a user.
pub(super) async fn adopt(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<FolderAdoptionBody>,
) -> ApiResult {
    let adopted = adoption::adopt(&api.server, &caller, &id, sent.value).await?;
    responses::changed(&adopted, adopted.generation)
}
