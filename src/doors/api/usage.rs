//! What was used over a time, over REST: as JSON, or as comma-separated values where the client asks for them.

use api::usage::UsageGrouping;
use axum::extract::State;
use axum::http::HeaderMap;
use rules::refusals;
use serde::Deserialize;
use server::actions::usage::{self, UsageTime};

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::QueryParameters;
use super::responses::{self, ApiResult};
use crate::doors::csv;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct UsageQuery {
    month: String,
    from: String,
    until: String,
    by: String,
}

pub(super) async fn show(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    QueryParameters(query): QueryParameters<UsageQuery>,
) -> ApiResult {
    let by = match query.by.as_str() {
        "" => UsageGrouping::default(),
        word => UsageGrouping::parse(word)
            .ok_or_else(|| refusals::usage_grouping_unknown().at("/by"))?,
    };
    let time = UsageTime {
        month: query.month,
        from: query.from,
        until: query.until,
    };
    let used = usage::usage(&api.server, &caller, &time, by).await?;
    if responses::wants_csv(&headers) {
        return responses::table(&csv::usage_name(&used), csv::usage(&used));
    }
    responses::whole(&headers, &used)
}
