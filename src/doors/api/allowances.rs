//! Allowances over REST.

use api::allowances::{LimitRequestDeclineBody, NewAllowanceBody, NewLimitRequestBody};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use rules::names::AllowanceId;
use server::actions::allowances::{self, requests as asked};

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

pub(super) async fn requests(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, asked::list(&api.server, &caller).await?)
}

pub(super) async fn decline(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(user): Path<String>,
    sent: JsonBody<LimitRequestDeclineBody>,
) -> ApiResult {
    asked::decline(&api.server, &caller, &user, sent.value).await?;
    responses::nothing()
}

pub(super) async fn own_request(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::whole(&headers, &asked::own(&api.server, &caller).await?)
}

pub(super) async fn ask(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewLimitRequestBody>,
) -> ApiResult {
    let request = asked::ask(&api.server, &caller, sent.value).await?;
    responses::plain(StatusCode::OK, &request)
}

pub(super) async fn withdraw(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
) -> ApiResult {
    asked::withdraw(&api.server, &caller).await?;
    responses::nothing()
}
