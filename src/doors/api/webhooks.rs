//! Webhooks over REST.

use api::webhooks::{MadeWebhook, NewWebhookBody, WebhookPatchBody};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use server::actions::webhooks;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, webhooks::list(&api.server, &caller).await?)
}

/// The secret goes out once, so nothing of the answer is kept for a repetition.
pub(super) async fn create(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewWebhookBody>,
) -> ApiResult {
    let (webhook, secret) = webhooks::create(&api.server, &caller, sent.value).await?;
    let location = format!("/api/v1/webhooks/{}", webhook.id);
    let body = MadeWebhook {
        webhook,
        secret: secret.reveal().to_owned(),
    };
    let made = responses::made(&body, &location)?;
    Ok(responses::with_header(made, "cache-control", "no-store"))
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let found = webhooks::get(&api.server, &caller, &id).await?;
    responses::one(&headers, &found, found.generation)
}

pub(super) async fn change(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<WebhookPatchBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let changed = webhooks::change(&api.server, &caller, &id, sent.value, seen).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn remove(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    webhooks::remove(&api.server, &caller, &id).await?;
    responses::nothing()
}

pub(super) async fn test(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let trial = webhooks::test(&api.server, &caller, &id).await?;
    responses::plain(StatusCode::OK, &trial)
}
