//! Browsers that are signed in, over REST: those of the caller, and those of a user.

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use rules::refusals;
use server::actions::users;
use uuid::Uuid;

use super::ApiContext;
use super::authentication::ApiCaller;
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

/// What is no id is of no sign-in.
fn read(id: &str) -> Result<Uuid, ProblemResponse> {
    Uuid::parse_str(id).map_err(|_| refusals::sign_in_not_found().into())
}
