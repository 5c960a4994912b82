//! Resource groups over REST.

use api::resource_groups::{
    GroupAccessBody, GroupNodesBody, GroupWindowsBody, NewResourceGroupBody, ResourceGroupPatchBody,
};
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use server::actions::resource_groups;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let known = resource_groups::list(&api.server, &caller).await?;
    responses::all(&headers, known)
}

pub(super) async fn create(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewResourceGroupBody>,
) -> ApiResult {
    let made = resource_groups::create(&api.server, &caller, sent.value, sent.key).await?;
    let location = format!("/api/v1/resource-groups/{}", made.value.id);
    let response = responses::made_version(&made.value, &location, made.value.generation)?;
    Ok(responses::replayed(response, made.replayed))
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let found = resource_groups::get(&api.server, &caller, &id).await?;
    responses::one(&headers, &found, found.generation)
}

pub(super) async fn change(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<ResourceGroupPatchBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let changed = resource_groups::change(&api.server, &caller, &id, sent.value, seen).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn set_nodes(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<GroupNodesBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let changed = resource_groups::set_nodes(&api.server, &caller, &id, sent.value, seen).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn set_access(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<GroupAccessBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let changed = resource_groups::set_access(&api.server, &caller, &id, sent.value, seen).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn set_windows(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<GroupWindowsBody>,
) -> ApiResult {
    let changed = resource_groups::set_windows(&api.server, &caller, &id, sent.value).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn remove(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    resource_groups::remove(&api.server, &caller, &id).await?;
    responses::nothing()
}
