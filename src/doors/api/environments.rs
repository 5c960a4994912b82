//! Environments that came as bundles over REST: list, show, import, remove.

use api::environments::EnvironmentImportBody;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use rules::refusals;
use server::actions::images::{ImportSource, environments};

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let all = environments::list(&api.server, &caller).await?;
    responses::all(&headers, all)
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(which): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let environment = environments::get(&api.server, &caller, &which).await?;
    responses::whole(&headers, &environment)
}

pub(super) async fn import(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<EnvironmentImportBody>,
) -> ApiResult {
    let body = sent.value;
    let source = match (body.upload, body.path) {
        (Some(upload), None) => ImportSource::Upload(upload),
        (None, Some(path)) => ImportSource::Path(path),
        _ => {
            return Err(refusals::import_source().at("/upload").into());
        }
    };
    let begun = environments::import(
        &api.server,
        &caller,
        source,
        body.accept_unsigned,
        body.allow_older,
        sent.key,
    )
    .await?;
    let operation = begun.value;
    let response =
        responses::accepted(&operation, &format!("/api/v1/operations/{}", operation.id))?;
    Ok(responses::replayed(response, begun.replayed))
}

pub(super) async fn remove(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(which): Path<String>,
) -> ApiResult {
    environments::remove(&api.server, &caller, &which).await?;
    responses::nothing()
}
