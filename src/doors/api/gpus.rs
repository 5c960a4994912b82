//! Devices over REST: the list with everybody's slices, one device, cordon, drain, cut, self-test. A session's share
//! is changed where its other limits are: `PATCH /sessions/{id}`.

use api::gpus::TestRequest;
use api::gpus::{CordonRequest, CutRequest, DrainRequest};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use server::actions::gpus;
use server::actions::gpus::prove;

use super::ApiContext;
use super::answer::{self, ApiResult};
use super::authentication::ApiCaller;
use super::body::JsonBody;

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let all = gpus::list(&api.server, &caller).await?;
    answer::whole(&headers, &all)
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let gpu = gpus::get(&api.server, &caller, &id).await?;
    answer::whole(&headers, &gpu)
}

pub(super) async fn cordon(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<CordonRequest>,
) -> ApiResult {
    let gpu = gpus::cordon(&api.server, &caller, &id, sent.value).await?;
    answer::plain(StatusCode::OK, &gpu)
}

pub(super) async fn uncordon(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let gpu = gpus::uncordon(&api.server, &caller, &id).await?;
    answer::plain(StatusCode::OK, &gpu)
}

pub(super) async fn drain(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<DrainRequest>,
) -> ApiResult {
    let drained = gpus::drain(&api.server, &caller, &id, sent.value).await?;
    answer::plain(StatusCode::OK, &drained)
}

pub(super) async fn cut(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<CutRequest>,
) -> ApiResult {
    let cut = gpus::cut(&api.server, &caller, &id, sent.value).await?;
    answer::plain(StatusCode::OK, &cut)
}

pub(super) async fn test(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<TestRequest>,
) -> ApiResult {
    let operation = prove::test(&api.server, &caller, &id, sent.value).await?;
    answer::accepted(&operation, &format!("/api/v1/operations/{}", operation.id))
}

pub(super) async fn proof(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let proof = prove::proof(&api.server, &caller, &id).await?;
    answer::whole(&headers, &proof)
}
