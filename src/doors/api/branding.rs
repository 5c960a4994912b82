//! How the site looks, over REST. The logo itself is a page's: `/branding/logo`.

use api::branding::BrandingPatchBody;
use axum::extract::State;
use axum::http::HeaderMap;
use server::actions::branding;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let found = branding::get(&api.server, &caller).await?;
    responses::one(&headers, &found, found.generation)
}

pub(super) async fn change(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    sent: JsonBody<BrandingPatchBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let changed = branding::change(&api.server, &caller, sent.value, seen).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn reset(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let seen = responses::if_match(&headers)?;
    let reset = branding::reset(&api.server, &caller, seen).await?;
    responses::changed(&reset, reset.generation)
}
