//! Acts that wait for a second administrator, over REST.

use api::approvals::FourEyesBody;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use server::actions::approvals;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, approvals::list(&api.server, &caller).await?)
}

pub(super) async fn release(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    approvals::release(&api.server, &caller, &id).await?;
    responses::nothing()
}

pub(super) async fn decline(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    approvals::decline(&api.server, &caller, &id).await?;
    responses::nothing()
}

pub(super) async fn four_eyes(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let set = approvals::four_eyes(&api.server, &caller).await?;
    responses::whole(&headers, &set)
}

pub(super) async fn set_four_eyes(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    sent: JsonBody<FourEyesBody>,
) -> ApiResult {
    let set = approvals::set_four_eyes(&api.server, &caller, sent.value).await?;
    responses::whole(&headers, &set)
}
