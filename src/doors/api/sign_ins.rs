//! Browsers that are signed in, over REST: those of the caller, and those of a user; and the link by which a user signs
//! in once.

use api::users::NewSignInLinkBody;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use rules::refusals;
use server::actions::users::{self, sign_in_link};
use uuid::Uuid;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};
use crate::doors::problem::ProblemResponse;

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let sign_ins = users::sign_ins(&api.server, &caller).await?;
    responses::all(&headers, sign_ins)
}

pub(super) async fn end(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    users::end_sign_in(&api.server, &caller, read(&id)?).await?;
    responses::nothing()
}

pub(super) async fn list_of(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(user): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let sign_ins = users::sign_ins_of(&api.server, &caller, &user).await?;
    responses::all(&headers, sign_ins)
}

pub(super) async fn end_of(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((user, id)): Path<(String, String)>,
) -> ApiResult {
    users::end_sign_in_of(&api.server, &caller, &user, read(&id)?).await?;
    responses::nothing()
}

pub(super) async fn show_link(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(user): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let link = sign_in_link::show(&api.server, &caller, &user).await?;
    responses::whole(&headers, &link)
}

pub(super) async fn make_link(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(user): Path<String>,
    sent: JsonBody<NewSignInLinkBody>,
) -> ApiResult {
    let minutes = sent.value.valid_minutes;
    let made = sign_in_link::make(&api.server, &caller, &user, minutes).await?;
    let location = format!("/api/v1/users/{user}/sign-in-link");
    let response = responses::made(&made, &location)?;
    Ok(responses::with_header(
        response,
        "cache-control",
        "no-store",
    ))
}

pub(super) async fn revoke_link(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(user): Path<String>,
) -> ApiResult {
    sign_in_link::revoke(&api.server, &caller, &user).await?;
    responses::nothing()
}

/// What is no id is of no sign-in.
fn read(id: &str) -> Result<Uuid, ProblemResponse> {
    Uuid::parse_str(id).map_err(|_| refusals::sign_in_not_found().into())
}
