//! Looks of administrators into what is another user's, over REST: opened with a reason, listed, ended.

use api::break_glass::BreakGlassBody;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use server::actions::break_glass;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

const PATH: &str = "/api/v1/break-glass";

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, break_glass::list(&api.server, &caller).await?)
}

pub(super) async fn session(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<BreakGlassBody>,
) -> ApiResult {
    let opened = break_glass::enter_session(&api.server, &caller, &id, sent.value).await?;
    responses::made(&opened, PATH)
}

pub(super) async fn folder(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<BreakGlassBody>,
) -> ApiResult {
    let opened = break_glass::read_folder(&api.server, &caller, &id, sent.value).await?;
    responses::made(&opened, PATH)
}

pub(super) async fn end(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    break_glass::end(&api.server, &caller, &id).await?;
    responses::nothing()
}
