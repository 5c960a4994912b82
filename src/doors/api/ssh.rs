//! SSH over REST: the public keys of who asks, and for every caller how the server is reached and known.

use api::ssh::NewSshKeyBody;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use rules::names::SshKeyId;
use rules::refusals;
use server::actions::users::ssh_keys;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let keys = ssh_keys::list(&api.server, &caller).await?;
    responses::all(&headers, keys)
}

pub(super) async fn add(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewSshKeyBody>,
) -> ApiResult {
    let key = ssh_keys::add(&api.server, &caller, sent.value).await?;
    let location = format!("/api/v1/me/ssh-keys/{}", key.id);
    responses::made(&key, &location)
}

pub(super) async fn remove(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let id = id
        .parse::<SshKeyId>()
        .map_err(|_| refusals::ssh_key_not_found())?;
    ssh_keys::remove(&api.server, &caller, id).await?;
    responses::nothing()
}

/// Needs no sign-in: users compare before they trust.
pub(super) async fn server(State(api): State<ApiContext>) -> ApiResult {
    let shown = ssh_keys::ssh_server(&api.server).await?;
    responses::plain(StatusCode::OK, &shown)
}
