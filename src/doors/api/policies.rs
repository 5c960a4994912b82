//! Policies and effective limits over REST.

use api::policies::{NewPolicyBody, PolicyPatchBody, PolicyUseBody};
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use rules::quota::PolicyLevel;
use serde::Deserialize;
use server::actions::policies;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::{JsonBody, QueryParameters};
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, policies::list(&api.server, &caller).await?)
}

pub(super) async fn create(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewPolicyBody>,
) -> ApiResult {
    let made = policies::create(&api.server, &caller, sent.value).await?;
    let location = format!("/api/v1/policies/{}", made.id);
    responses::made_version(&made, &location, made.generation)
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let policy = policies::get(&api.server, &caller, &id).await?;
    responses::one(&headers, &policy, policy.generation)
}

#[derive(Deserialize)]
pub(super) struct ChangeQuery {
    #[serde(default)]
    dry_run: bool,
}

pub(super) async fn change(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    QueryParameters(query): QueryParameters<ChangeQuery>,
    headers: HeaderMap,
    sent: JsonBody<PolicyPatchBody>,
) -> ApiResult {
    if query.dry_run {
        let over = policies::preview(&api.server, &caller, &id, sent.value).await?;
        return responses::whole(&headers, &over);
    }
    let seen = responses::must_match(&headers)?;
    let policy = policies::change(&api.server, &caller, &id, sent.value, seen).await?;
    responses::changed(&policy, policy.generation)
}

pub(super) async fn remove(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    policies::remove(&api.server, &caller, &id).await?;
    responses::nothing()
}

pub(super) async fn attach(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<PolicyUseBody>,
) -> ApiResult {
    let policy = policies::attach(&api.server, &caller, &id, sent.value).await?;
    responses::whole(&headers, &policy)
}

#[derive(Deserialize)]
pub(super) struct DetachQuery {
    level: Option<String>,
    subject: Option<String>,
}

pub(super) async fn detach(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    QueryParameters(query): QueryParameters<DetachQuery>,
    headers: HeaderMap,
) -> ApiResult {
    let level = query.level.as_deref().and_then(PolicyLevel::parse);
    let policy = policies::detach(&api.server, &caller, &id, level, query.subject).await?;
    responses::whole(&headers, &policy)
}

#[derive(Deserialize)]
pub(super) struct LimitsQuery {
    user: Option<String>,
    project: Option<String>,
}

pub(super) async fn effective(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    QueryParameters(query): QueryParameters<LimitsQuery>,
    headers: HeaderMap,
) -> ApiResult {
    let (user, project) = (query.user.as_deref(), query.project.as_deref());
    let limits = policies::effective(&api.server, &caller, user, project).await?;
    responses::all(&headers, limits)
}
