//! What was given and used over time, over REST: as JSON, or as comma-separated values where the client asks for them.

use api::history::HistoryRange;
use axum::extract::State;
use axum::http::HeaderMap;
use rules::refusals;
use serde::Deserialize;
use server::actions::history;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::QueryParameters;
use super::responses::{self, ApiResult};
use crate::doors::csv;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct HistoryQuery {
    of: String,
    range: String,
}

pub(super) async fn show(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    QueryParameters(query): QueryParameters<HistoryQuery>,
) -> ApiResult {
    let range = match query.range.as_str() {
        "" => HistoryRange::default(),
        word => HistoryRange::parse(word)
            .ok_or_else(|| refusals::history_range_unknown().at("/range"))?,
    };
    let history = history::history(&api.server, &caller, &query.of, range).await?;
    if responses::wants_csv(&headers) {
        return responses::table(&csv::history_name(&history), csv::history(&history));
    }
    responses::whole(&headers, &history)
}
