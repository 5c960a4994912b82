//! Reservations over REST.

use api::reservations::{NewReservationBody, ReservationPatchBody};
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use server::actions::reservations;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let known = reservations::list(&api.server, &caller).await?;
    responses::all(&headers, known)
}

pub(super) async fn book(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewReservationBody>,
) -> ApiResult {
    let made = reservations::book(&api.server, &caller, sent.value, sent.key).await?;
    let location = format!("/api/v1/reservations/{}", made.value.id);
    let response = responses::made_version(&made.value, &location, made.value.generation)?;
    Ok(responses::replayed(response, made.replayed))
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let found = reservations::get(&api.server, &caller, &id).await?;
    responses::one(&headers, &found, found.generation)
}

pub(super) async fn change(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<ReservationPatchBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let changed = reservations::change(&api.server, &caller, &id, sent.value, seen).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn cancel(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    reservations::cancel(&api.server, &caller, &id).await?;
    responses::nothing()
}
