//! Days off over REST.

use api::holidays::HolidaysBody;
use axum::extract::State;
use axum::http::HeaderMap;
use server::actions::holidays;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, holidays::list(&api.server, &caller).await?)
}

pub(super) async fn set(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    sent: JsonBody<HolidaysBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let changed = holidays::set(&api.server, &caller, sent.value, seen).await?;
    responses::changed(&changed, changed.generation)
}
