//! Certificates over REST: whom to trust, for everybody; what is served and what should be, for
//! administrators. Private keys come in and never go out.

use api::certificates::{CertificateRequestInput, CertificateUpload, ResetRequest};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::json;
use server::actions::certificates;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

/// Needs no sign-in: users compare before they trust.
pub(super) async fn trust(State(api): State<ApiContext>) -> ApiResult {
    let authority = certificates::signing_authority(&api.server).await?;
    responses::plain(StatusCode::OK, &authority)
}

pub(super) async fn show(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let shown = certificates::show(&api.server, &caller).await?;
    responses::whole(&headers, &shown)
}

pub(super) async fn request(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<CertificateRequestInput>,
) -> ApiResult {
    let pem = certificates::request(&api.server, &caller, sent.value).await?;
    responses::plain(StatusCode::OK, &json!({"request": pem}))
}

pub(super) async fn import(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<CertificateUpload>,
) -> ApiResult {
    let shown = certificates::import(&api.server, &caller, sent.value).await?;
    responses::plain(StatusCode::OK, &shown)
}

pub(super) async fn reset(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<ResetRequest>,
) -> ApiResult {
    let shown = certificates::reset(&api.server, &caller, sent.value.to).await?;
    responses::plain(StatusCode::OK, &shown)
}
