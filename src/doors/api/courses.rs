//! Courses over REST.

use api::courses::{
    CourseExtensionBody, CourseHandOutBody, CourseMessageBody, CoursePatchBody, CourseSlotBody,
    CourseStartBody, CourseStopBody, NewCourseBody,
};
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use server::actions::courses;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};
use crate::doors::csv;

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let known = courses::list(&api.server, &caller).await?;
    responses::all(&headers, known)
}

pub(super) async fn create(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewCourseBody>,
) -> ApiResult {
    let made = courses::create(&api.server, &caller, sent.value, sent.key).await?;
    let location = format!("/api/v1/courses/{}", made.value.id);
    let response = responses::made_version(&made.value, &location, made.value.generation)?;
    Ok(responses::replayed(response, made.replayed))
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let found = courses::get(&api.server, &caller, &id).await?;
    responses::one(&headers, &found, found.generation)
}

pub(super) async fn change(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<CoursePatchBody>,
) -> ApiResult {
    let seen = responses::must_match(&headers)?;
    let changed = courses::change(&api.server, &caller, &id, sent.value, seen).await?;
    responses::changed(&changed, changed.generation)
}

pub(super) async fn remove(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
) -> ApiResult {
    courses::remove(&api.server, &caller, &id).await?;
    responses::nothing()
}

pub(super) async fn timetable(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let known = courses::timetable(&api.server, &caller, &id).await?;
    responses::all(&headers, known)
}

pub(super) async fn book_slot(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<CourseSlotBody>,
) -> ApiResult {
    let booked = courses::book_slot(&api.server, &caller, &id, sent.value, sent.key).await?;
    let location = format!("/api/v1/reservations/{}", booked.value.id);
    let response = responses::made_version(&booked.value, &location, booked.value.generation)?;
    Ok(responses::replayed(response, booked.replayed))
}

pub(super) async fn hand_out(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<CourseHandOutBody>,
) -> ApiResult {
    let made = courses::hand_out(&api.server, &caller, &id, sent.value, sent.key).await?;
    let response = responses::made(&made.value, "/api/v1/folders")?;
    Ok(responses::replayed(response, made.replayed))
}

pub(super) async fn members(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let known = courses::members(&api.server, &caller, &id).await?;
    responses::all(&headers, known)
}

/// As JSON, or as comma-separated values where the client asks for them.
pub(super) async fn attendance(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let rows = courses::attendance(&api.server, &caller, &id).await?;
    if responses::wants_csv(&headers) {
        return responses::table(csv::ATTENDANCE, csv::attendance(&rows));
    }
    responses::all(&headers, rows)
}

pub(super) async fn start(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<CourseStartBody>,
) -> ApiResult {
    let done = courses::start(&api.server, &caller, &id, sent.value, sent.key).await?;
    let response = responses::whole(&headers, &done.value)?;
    Ok(responses::replayed(response, done.replayed))
}

pub(super) async fn stop(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<CourseStopBody>,
) -> ApiResult {
    let done = courses::stop(&api.server, &caller, &id, sent.value, sent.key).await?;
    let response = responses::whole(&headers, &done.value)?;
    Ok(responses::replayed(response, done.replayed))
}

pub(super) async fn extend(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<CourseExtensionBody>,
) -> ApiResult {
    let done = courses::extend(&api.server, &caller, &id, sent.value, sent.key).await?;
    let response = responses::whole(&headers, &done.value)?;
    Ok(responses::replayed(response, done.replayed))
}

pub(super) async fn message(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<CourseMessageBody>,
) -> ApiResult {
    let done = courses::message(&api.server, &caller, &id, sent.value, sent.key).await?;
    let response = responses::whole(&headers, &done.value)?;
    Ok(responses::replayed(response, done.replayed))
}
