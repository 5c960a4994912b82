//! Volumes over REST.

use api::volumes::{NewVolumeBody, VolumePatchBody};
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use server::actions::volumes;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, volumes::list(&api.server, &caller).await?)
}

pub(super) async fn create(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewVolumeBody>,
) -> ApiResult {
    let made = volumes::create(&api.server, &caller, sent.value, sent.key).await?;
    let location = format!("/api/v1/volumes/{}", made.value.id);
    let response = responses::made_version(&made.value, &location, made.value.generation)?;
    Ok(responses::replayed(response, made.replayed))
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let found = volumes::get(&api.server, &caller, &id).await?;
    responses::one(&headers, &found, found.generation)
}

pub(super) async fn change(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<VolumePatchBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let changed = volumes::change(&api.server, &caller, &id, sent.value, seen).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn remove(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    volumes::remove(&api.server, &caller, &id).await?;
    responses::nothing()
}
