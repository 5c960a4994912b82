//! The caller's second factor over REST, and taking that of a user away. Secrets go out once and are never logged.

use api::second_factor::{SecondFactorConfirmBody, SecondFactorCredentialsBody};
use api::secret::SecretText;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;
use server::actions::users::second_factor;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};
use crate::doors::problem::ProblemResponse;

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let factor = second_factor::show(&api.server, &caller).await?;
    responses::whole(&headers, &factor)
}

pub(super) async fn begin(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<SecondFactorCredentialsBody>,
) -> ApiResult {
    let SecondFactorCredentialsBody { password, code } = sent.value;
    let code = code.as_ref().map(SecretText::reveal);
    let offer = second_factor::begin(&api.server, &caller, password, code).await?;
    secret(&offer)
}

pub(super) async fn confirm(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<SecondFactorConfirmBody>,
) -> ApiResult {
    let SecondFactorConfirmBody { ticket, code } = sent.value;
    let (ticket, code) = (ticket.reveal(), code.reveal());
    let codes = second_factor::confirm(&api.server, &caller, ticket, code).await?;
    secret(&codes)
}

pub(super) async fn renew_recovery_codes(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<SecondFactorCredentialsBody>,
) -> ApiResult {
    let SecondFactorCredentialsBody { password, code } = sent.value;
    let code = code.as_ref().map(SecretText::reveal);
    let codes = second_factor::renew_recovery_codes(&api.server, &caller, password, code).await?;
    secret(&codes)
}

pub(super) async fn turn_off(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<SecondFactorCredentialsBody>,
) -> ApiResult {
    let SecondFactorCredentialsBody { password, code } = sent.value;
    let code = code.as_ref().map(SecretText::reveal);
    second_factor::turn_off(&api.server, &caller, password, code).await?;
    responses::nothing()
}

pub(super) async fn reset(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let user = second_factor::reset(&api.server, &caller, &id).await?;
    responses::changed(&user, user.generation)
}

/// An answer that nobody keeps.
fn secret(body: &impl Serialize) -> Result<Response, ProblemResponse> {
    let response = responses::plain(StatusCode::OK, body)?;
    Ok(responses::with_header(
        response,
        "cache-control",
        "no-store",
    ))
}
