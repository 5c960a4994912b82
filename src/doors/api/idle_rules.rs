//! Idle rules over REST: the rules, what one would have done, and keeping a session.

use api::idle_rules::{IdleRulePatchBody, NewIdleRuleBody};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use server::actions::idle_rules;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, idle_rules::list(&api.server, &caller).await?)
}

pub(super) async fn create(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewIdleRuleBody>,
) -> ApiResult {
    let made = idle_rules::create(&api.server, &caller, sent.value).await?;
    let location = format!("/api/v1/idle-rules/{}", made.id);
    responses::made_version(&made, &location, made.generation)
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let found = idle_rules::get(&api.server, &caller, &id).await?;
    responses::one(&headers, &found, found.generation)
}

pub(super) async fn change(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<IdleRulePatchBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let changed = idle_rules::change(&api.server, &caller, &id, sent.value, seen).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn remove(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    idle_rules::remove(&api.server, &caller, &id).await?;
    responses::nothing()
}

pub(super) async fn try_out(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewIdleRuleBody>,
) -> ApiResult {
    let run = idle_rules::try_out(&api.server, &caller, sent.value).await?;
    responses::plain(StatusCode::OK, &run)
}

pub(super) async fn keep(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let kept = idle_rules::keep(&api.server, &caller, &id).await?;
    responses::plain(StatusCode::OK, &kept)
}
