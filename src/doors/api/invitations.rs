//! Invitations to projects over REST.

use api::invitations::{InvitationCodeBody, NewInvitationBody};
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use server::actions::invitations;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(
        &headers,
        invitations::list(&api.server, &caller, &id).await?,
    )
}

pub(super) async fn create(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<NewInvitationBody>,
) -> ApiResult {
    let made = invitations::create(&api.server, &caller, &id, sent.value).await?;
    let location = format!("/api/v1/projects/{id}/invitations");
    let response = responses::made(&made, &location)?;
    Ok(responses::with_header(
        response,
        "cache-control",
        "no-store",
    ))
}

pub(super) async fn revoke(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, invitation)): Path<(String, String)>,
) -> ApiResult {
    invitations::revoke(&api.server, &caller, &id, &invitation).await?;
    responses::nothing()
}

pub(super) async fn accept(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    sent: JsonBody<InvitationCodeBody>,
) -> ApiResult {
    let member = invitations::accept(&api.server, &caller, &sent.value.code).await?;
    responses::whole(&headers, &member)
}
