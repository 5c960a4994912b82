//! Reservations over REST.

use api::reservations::{
    NewReservationBody, ReservationApprovalBody, ReservationPatchBody, ReservationQuotaBody,
    ReservationRefusalBody,
};
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

pub(super) async fn approve(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<ReservationApprovalBody>,
) -> ApiResult {
    let why = sent.value.reason.unwrap_or_default();
    let booked = reservations::approve(&api.server, &caller, &id, &why).await?;
    responses::changed(&booked, booked.generation)
}

pub(super) async fn refuse(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<ReservationRefusalBody>,
) -> ApiResult {
    let refused = reservations::refuse(&api.server, &caller, &id, &sent.value.reason).await?;
    responses::changed(&refused, refused.generation)
}

pub(super) async fn withdraw(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    let withdrawn = reservations::withdraw(&api.server, &caller, &id).await?;
    responses::changed(&withdrawn, withdrawn.generation)
}

pub(super) async fn quota(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let quota = reservations::quota(&api.server, &caller, &id).await?;
    responses::whole(&headers, &quota)
}

pub(super) async fn set_quota(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<ReservationQuotaBody>,
) -> ApiResult {
    let typed = &sent.value.gpu_hours;
    let quota = reservations::set_quota(&api.server, &caller, &id, typed).await?;
    responses::whole(&headers, &quota)
}
