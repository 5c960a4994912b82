//! Allowances over REST.

use api::allowances::NewAllowanceBody;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use rules::names::AllowanceId;
use server::actions::allowances;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, allowances::list(&api.server, &caller).await?)
}

pub(super) async fn create(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewAllowanceBody>,
) -> ApiResult {
    let made = allowances::create(&api.server, &caller, sent.value).await?;
    let location = format!("/api/v1/allowances/{}", made.id);
    responses::made(&made, &location)
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let id = id.parse::<AllowanceId>()?;
    let found = allowances::get(&api.server, &caller, id).await?;
    responses::whole(&headers, &found)
}

pub(super) async fn remove(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let id = id.parse::<AllowanceId>()?;
    allowances::remove(&api.server, &caller, id).await?;
    responses::nothing()
}
