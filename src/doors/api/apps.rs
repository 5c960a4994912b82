//! Apps of a session over REST.

use api::apps::NewAppShareBody;
use axum::extract::{Path, State};
use axum::http::uri::Authority;
use axum::http::{Extensions, HeaderMap, StatusCode, header};
use server::actions::apps::{self, shares};

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};
use crate::doors::peer::Encrypted;

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let known = apps::list(&api.server, &*api.streams, &caller, &id).await?;
    responses::all(&headers, known)
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, app)): Path<(String, String)>,
) -> ApiResult {
    let found = apps::get(&api.server, &*api.streams, &caller, &id, &app).await?;
    responses::plain(StatusCode::OK, &found)
}

pub(super) async fn open(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, app)): Path<(String, String)>,
    headers: HeaderMap,
    extensions: Extensions,
) -> ApiResult {
    let (scheme, host, port) = called(&headers, &extensions);
    let called = (scheme, host.as_str(), port);
    let (server, streams) = (&api.server, &api.streams);
    let opened = apps::open_at(server, streams, &caller, (&id, &app), called).await?;
    responses::plain(StatusCode::OK, &opened)
}

pub(super) async fn list_shares(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, app)): Path<(String, String)>,
    headers: HeaderMap,
) -> ApiResult {
    let known = shares::list(&api.server, &caller, &id, &app).await?;
    responses::all(&headers, known)
}

pub(super) async fn share(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, app)): Path<(String, String)>,
    sent: JsonBody<NewAppShareBody>,
) -> ApiResult {
    let made = shares::create(&api.server, &caller, &id, &app, sent.value).await?;
    let location = format!("/api/v1/sessions/{id}/apps/{app}/shares/{}", made.id);
    responses::made(&made, &location)
}

pub(super) async fn unshare(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path((id, app, share)): Path<(String, String, String)>,
) -> ApiResult {
    shares::remove(&api.server, &caller, &id, &app, &share).await?;
    responses::nothing()
}

/// Scheme, host and port by which the client calls this server.
fn called(headers: &HeaderMap, extensions: &Extensions) -> (&'static str, String, Option<u16>) {
    let scheme = match extensions.get::<Encrypted>() {
        Some(Encrypted) => "https",
        None => "http",
    };
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    match host.and_then(|host| host.parse::<Authority>().ok()) {
        Some(host) => (scheme, host.host().to_owned(), host.port_u16()),
        None => (scheme, "localhost".to_owned(), None),
    }
}
