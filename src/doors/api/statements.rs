//! Closed months, their statements and prices over REST.

use api::statements::{NewClosedMonthBody, NewPricesBody, StatementQuery};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use server::actions::statements;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::{JsonBody, QueryParameters};
use super::responses::{self, ApiResult};
use crate::doors::csv;

/// As JSON, which verifies without this server, or as comma-separated values where the client asks for them.
pub(super) async fn show(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    QueryParameters(query): QueryParameters<StatementQuery>,
) -> ApiResult {
    let found = statements::statement(&api.server, &caller, &query).await?;
    if responses::wants_csv(&headers) {
        return responses::table(&csv::statement_name(&found), csv::statement(&found));
    }
    responses::whole(&headers, &found)
}

pub(super) async fn months(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let closed = statements::months(&api.server, &caller).await?;
    responses::all(&headers, closed)
}

pub(super) async fn close(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewClosedMonthBody>,
) -> ApiResult {
    let closed = statements::close(&api.server, &caller, &sent.value).await?;
    responses::plain(StatusCode::CREATED, &closed)
}

pub(super) async fn check(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let checked = statements::check(&api.server, &caller).await?;
    responses::all(&headers, checked)
}

pub(super) async fn prices(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let prices = statements::prices(&api.server, &caller).await?;
    responses::one(&headers, &prices, prices.generation)
}

pub(super) async fn set_prices(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    sent: JsonBody<NewPricesBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let prices = statements::set_prices(&api.server, &caller, &sent.value, seen).await?;
    responses::changed(&prices, prices.generation)
}
