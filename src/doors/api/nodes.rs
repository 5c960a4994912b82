//! Nodes over REST: the list, one with what its kernel says, maintenance.

use api::nodes::MaintenanceBody;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use server::actions::nodes;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, nodes::list(&api.server, &caller).await?)
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let node = nodes::get(&api.server, &caller, &name).await?;
    responses::whole(&headers, &node)
}

pub(super) async fn maintain(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(name): Path<String>,
    sent: JsonBody<MaintenanceBody>,
) -> ApiResult {
    let node = nodes::maintain(&api.server, &caller, &name, &sent.value).await?;
    responses::plain(StatusCode::OK, &node)
}
