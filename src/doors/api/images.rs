//! Images over REST, how they come in, and the operations that bring them.

use api::images::{ImagePullBody, ImportBody, NewImageLimitsBody};
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use rules::names::OperationId;
use rules::refusal::Refusal;
use rules::refusals;
use server::actions::images::{self, ImportSource, registry};
use server::actions::operations;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let images = images::list(&api.server, &caller).await?;
    responses::all(&headers, images)
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let image = images::get(&api.server, &caller, &id).await?;
    responses::one(&headers, &image, image.generation)
}

pub(super) async fn remove(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    images::remove(&api.server, &caller, &id).await?;
    responses::nothing()
}

pub(super) async fn share(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let image = images::share(&api.server, &caller, &id, true).await?;
    responses::changed(&image, image.generation)
}

pub(super) async fn unshare(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let image = images::share(&api.server, &caller, &id, false).await?;
    responses::changed(&image, image.generation)
}

pub(super) async fn set_limits(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<NewImageLimitsBody>,
) -> ApiResult {
    let limits = sent.value.limits()?;
    let image = images::set_limits(&api.server, &caller, &id, limits).await?;
    responses::changed(&image, image.generation)
}

pub(super) async fn import(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<ImportBody>,
) -> ApiResult {
    let ImportBody {
        upload,
        path,
        reference,
    } = sent.value;
    let source = match (upload, path) {
        (Some(upload), None) => ImportSource::Upload(upload),
        (None, Some(path)) => ImportSource::Path(path),
        _ => {
            return Err(refusals::import_source().at("/upload").into());
        }
    };
    let begun = images::import_once(&api.server, &caller, source, reference, sent.key).await?;
    let operation = begun.value;
    let response =
        responses::accepted(&operation, &format!("/api/v1/operations/{}", operation.id))?;
    Ok(responses::replayed(response, begun.replayed))
}

pub(super) async fn pull(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<ImagePullBody>,
) -> ApiResult {
    let ImagePullBody { image, reference } = sent.value;
    let begun = registry::pull(&api.server, &caller, &image, reference, sent.key).await?;
    let operation = begun.value;
    let response =
        responses::accepted(&operation, &format!("/api/v1/operations/{}", operation.id))?;
    Ok(responses::replayed(response, begun.replayed))
}

pub(super) async fn list_operations(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let operations = operations::list(&api.server, &caller).await?;
    responses::all(&headers, operations)
}

pub(super) async fn get_operation(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let id = operation(&id)?;
    let operation = operations::get(&api.server, &caller, id).await?;
    // Progress moves without a new version of the row, so the tag is of the whole body.
    responses::whole(&headers, &operation)
}

pub(super) async fn cancel_operation(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let id = operation(&id)?;
    let operation = operations::cancel(&api.server, &caller, id).await?;
    responses::changed(&operation, operation.generation)
}

/// What is no id names nothing.
fn operation(id: &str) -> Result<OperationId, Refusal> {
    id.parse()
        .map_err(|_| refusals::operation_not_found_by_id())
}
