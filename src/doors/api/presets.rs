//! Presets over REST.

use api::presets::{NewPresetBody, PresetPatchBody};
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use serde::Deserialize;
use server::actions::presets;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::{JsonBody, QueryParameters};
use super::responses::{self, ApiResult};

#[derive(Deserialize)]
pub(super) struct PresetsQuery {
    project: Option<String>,
}

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    QueryParameters(query): QueryParameters<PresetsQuery>,
    headers: HeaderMap,
) -> ApiResult {
    let known = presets::list(&api.server, &caller, query.project.as_deref()).await?;
    responses::all(&headers, known)
}

pub(super) async fn create(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewPresetBody>,
) -> ApiResult {
    let made = presets::create(&api.server, &caller, sent.value, sent.key).await?;
    let location = format!("/api/v1/presets/{}", made.value.id);
    let response = responses::made_version(&made.value, &location, made.value.generation)?;
    Ok(responses::replayed(response, made.replayed))
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let found = presets::get(&api.server, &caller, &id).await?;
    responses::one(&headers, &found, found.generation)
}

pub(super) async fn change(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<PresetPatchBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let changed = presets::change(&api.server, &caller, &id, sent.value, seen).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn remove(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    presets::remove(&api.server, &caller, &id).await?;
    responses::nothing()
}
