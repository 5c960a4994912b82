//! Requests of strangers for accounts over REST. A stranger asks on the page `/sign-up` alone.

use api::sign_ups::{SignUpApprovalBody, SignUpRuleBody};
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use server::actions::sign_ups;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, sign_ups::list(&api.server, &caller).await?)
}

pub(super) async fn approve(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<SignUpApprovalBody>,
) -> ApiResult {
    sign_ups::approve(&api.server, &caller, &id, sent.value).await?;
    responses::nothing()
}

pub(super) async fn decline(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    sign_ups::decline(&api.server, &caller, &id).await?;
    responses::nothing()
}

pub(super) async fn reopen(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    sign_ups::reopen(&api.server, &caller, &id).await?;
    responses::nothing()
}

pub(super) async fn rules(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, sign_ups::rules(&api.server, &caller).await?)
}

pub(super) async fn set_rule(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    sent: JsonBody<SignUpRuleBody>,
) -> ApiResult {
    let rule = sign_ups::set_rule(&api.server, &caller, sent.value).await?;
    responses::whole(&headers, &rule)
}
