//! The caller's notices over REST: the list, and that they were read.

use axum::extract::State;
use axum::http::HeaderMap;
use server::actions::notices;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, notices::views(&api.server, &caller).await?)
}

pub(super) async fn mark_read(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
) -> ApiResult {
    notices::mark_read(&api.server, &caller).await?;
    responses::nothing()
}
