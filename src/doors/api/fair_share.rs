//! The order of the queue, and fair share, over REST.

use api::fair_share::{FairSharePatchBody, FairWeightBody};
use axum::extract::State;
use axum::http::HeaderMap;
use rules::fair_share::QueueOrder;
use rules::policy::BackfillMode;
use rules::refusals;
use serde::Deserialize;
use server::actions::fair_share;
use server::actions::rehearsal::{self, TriedRules};
use server::actions::usage::UsageTime;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::{JsonBody, QueryParameters};
use super::responses::{self, ApiResult};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RehearsalQuery {
    month: String,
    from: String,
    until: String,
    order: String,
    backfill: String,
    half_life_hours: String,
}

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

/// What the sessions of a time would have waited under other rules; nothing is changed.
pub(super) async fn rehearse(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    QueryParameters(query): QueryParameters<RehearsalQuery>,
) -> ApiResult {
    let unknown = |field: &str| refusals::rehearsal_rule_unknown().at(field);
    let order = match query.order.as_str() {
        "" => None,
        word => Some(QueueOrder::parse(word).ok_or_else(|| unknown("/order"))?),
    };
    let backfill = match query.backfill.as_str() {
        "" => None,
        word => Some(BackfillMode::parse(word).ok_or_else(|| unknown("/backfill"))?),
    };
    let time = UsageTime {
        month: query.month,
        from: query.from,
        until: query.until,
    };
    // What is no number is refused as zero is.
    let half_life_hours = match query.half_life_hours.as_str() {
        "" => None,
        word => Some(word.parse().unwrap_or(0)),
    };
    let tried = TriedRules {
        order,
        backfill,
        half_life_hours,
    };
    let found = rehearsal::rehearse(&api.server, &caller, &time, tried).await?;
    responses::whole(&headers, &found)
}
