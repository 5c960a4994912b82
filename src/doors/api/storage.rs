//! What folders take and may take, over REST.

use axum::extract::State;
use axum::http::HeaderMap;
use server::actions::storage;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let known = storage::list(&api.server, &caller).await?;
    responses::all(&headers, known)
}
