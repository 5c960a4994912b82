//! Devices over REST: the list with everybody's slices, one device, cordon, drain, cut, self-test. A session's share
//! is changed where its other limits are: `PATCH /sessions/{id}`.

use api::gpus::TestRequest;
use api::gpus::{CordonRequest, DrainRequest, PartitionRequest};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use server::actions::gpus;
use server::actions::gpus::prove;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let all = gpus::list(&api.server, &caller).await?;
    responses::whole(&headers, &all)
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let gpu = gpus::get(&api.server, &caller, &id).await?;
    responses::whole(&headers, &gpu)
}

pub(super) async fn cordon(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<CordonRequest>,
) -> ApiResult {
    let gpu = gpus::cordon(&api.server, &caller, &id, sent.value).await?;
    responses::plain(StatusCode::OK, &gpu)
}

pub(super) async fn uncordon(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let gpu = gpus::uncordon(&api.server, &caller, &id).await?;
    responses::plain(StatusCode::OK, &gpu)
}

pub(super) async fn drain(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<DrainRequest>,
) -> ApiResult {
    let drained = gpus::drain(&api.server, &caller, &id, sent.value).await?;
    responses::plain(StatusCode::OK, &drained)
}

pub(super) async fn partition(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<PartitionRequest>,
) -> ApiResult {
    let partitioned = gpus::partition(&api.server, &caller, &id, sent.value).await?;
    responses::plain(StatusCode::OK, &partitioned)
}

pub(super) async fn test(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<TestRequest>,
) -> ApiResult {
    let operation = prove::test(&api.server, &caller, &id, sent.value).await?;
    responses::accepted(&operation, &format!("/api/v1/operations/{}", operation.id))
}

pub(super) async fn self_test_report(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let report = prove::report(&api.server, &caller, &id).await?;
    responses::whole(&headers, &report)
}
