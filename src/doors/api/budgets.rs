//! Budgets over REST.

use api::budgets::{BudgetPatchBody, NewBudgetBody};
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use server::actions::budgets;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let known = budgets::list(&api.server, &caller).await?;
    responses::all(&headers, known)
}

pub(super) async fn create(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewBudgetBody>,
) -> ApiResult {
    let made = budgets::create(&api.server, &caller, sent.value, sent.key).await?;
    let location = format!("/api/v1/budgets/{}", made.value.id);
    let tag = format!("\"{}\"", made.value.generation);
    let response = responses::made(&made.value, &location)?;
    let response = responses::with_header(response, "etag", &tag);
    Ok(responses::replayed(response, made.replayed))
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let found = budgets::get(&api.server, &caller, &id).await?;
    responses::one(&headers, &found, found.generation)
}

pub(super) async fn change(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<BudgetPatchBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let changed = budgets::change(&api.server, &caller, &id, sent.value, seen).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn remove(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    budgets::remove(&api.server, &caller, &id).await?;
    responses::nothing()
}
