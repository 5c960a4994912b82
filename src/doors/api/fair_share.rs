//! The order of the queue, and fair share, over REST.

use api::fair_share::{FairSharePatchBody, FairWeightBody};
use axum::extract::State;
use axum::http::HeaderMap;
use server::actions::fair_share;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn show(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let found = fair_share::show(&api.server, &caller).await?;
    responses::one(&headers, &found, found.generation)
}

pub(super) async fn change(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    sent: JsonBody<FairSharePatchBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let changed = fair_share::change(&api.server, &caller, sent.value, seen).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn weigh(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    sent: JsonBody<FairWeightBody>,
) -> ApiResult {
    let changed = fair_share::weigh(&api.server, &caller, sent.value).await?;
    responses::whole(&headers, &changed)
}
