//! Notices by mail over REST: what the caller gets, how mail stands, a retry of what was refused, and a trial.

use api::mail::{MailChoicesBody, MailTestBody};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use server::actions::mail;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn choices(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::whole(&headers, &mail::choices(&api.server, &caller).await?)
}

pub(super) async fn choose(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<MailChoicesBody>,
) -> ApiResult {
    let chosen = mail::choose(&api.server, &caller, sent.value).await?;
    responses::plain(StatusCode::OK, &chosen)
}

pub(super) async fn status(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::whole(&headers, &mail::status(&api.server, &caller).await?)
}

pub(super) async fn retry(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
) -> ApiResult {
    let standing = mail::retry(&api.server, &caller).await?;
    responses::plain(StatusCode::OK, &standing)
}

pub(super) async fn test(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<MailTestBody>,
) -> ApiResult {
    let trial = mail::test(&api.server, &caller, sent.value).await?;
    responses::plain(StatusCode::OK, &trial)
}
