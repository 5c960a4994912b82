//! Apps of a session over REST.

use axum::extract::{Path, State};
use axum::http::{Extensions, HeaderMap, StatusCode, header};
use server::actions::apps;

use super::ApiContext;
use super::authentication::ApiCaller;
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
    let origin = origin(&headers, &extensions);
    let opened = apps::open_at(&api.server, &api.streams, &caller, &id, &app, &origin).await?;
    responses::plain(StatusCode::OK, &opened)
}

/// Scheme and host by which the client calls this server, without the port.
fn origin(headers: &HeaderMap, extensions: &Extensions) -> String {
    let scheme = match extensions.get::<Encrypted>() {
        Some(Encrypted) => "https",
        None => "http",
    };
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let host = host.and_then(|host| host.parse::<axum::http::uri::Authority>().ok());
    let host = host.map_or_else(|| "localhost".to_owned(), |host| host.host().to_owned());
    format!("{scheme}://{host}")
}
