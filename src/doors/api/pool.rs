//! The pool that folders lie in, over REST.

use api::storage::PoolSizeBody;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use server::actions::pool;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::whole(&headers, &pool::get(&api.server, &caller).await?)
}

pub(super) async fn grow(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<PoolSizeBody>,
) -> ApiResult {
    let grown = pool::grow(&api.server, &caller, sent.value).await?;
    responses::plain(StatusCode::OK, &grown)
}
