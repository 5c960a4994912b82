//! Settings over REST: how they stand, one changed, set back to its default or undone, each also as a dry run.

use api::settings::SettingBody;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use server::actions::settings::{self, SettingWrite};
use server::actions::system;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::{JsonBody, QueryParameters};
use super::responses::{self, ApiResult};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChangeOptions {
    dry_run: bool,
}

impl ChangeOptions {
    fn mode(&self) -> SettingWrite {
        match self.dry_run {
            true => SettingWrite::Dry,
            false => SettingWrite::Real,
        }
    }
}

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, settings::views(&api.server, &caller).await?)
}

pub(super) async fn get(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(key): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let setting = settings::get(&api.server, &caller, &key).await?;
    responses::whole(&headers, &setting)
}

pub(super) async fn set(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(key): Path<String>,
    QueryParameters(options): QueryParameters<ChangeOptions>,
    sent: JsonBody<SettingBody>,
) -> ApiResult {
    let (typed, mode) = (sent.value.typed(), options.mode());
    let changed = settings::change(&api.server, &caller, &key, &typed, mode).await?;
    responses::plain(StatusCode::OK, &changed)
}

pub(super) async fn unset(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(key): Path<String>,
    QueryParameters(options): QueryParameters<ChangeOptions>,
) -> ApiResult {
    let changed = settings::change(&api.server, &caller, &key, "", options.mode()).await?;
    responses::plain(StatusCode::OK, &changed)
}

pub(super) async fn undo(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(key): Path<String>,
    QueryParameters(options): QueryParameters<ChangeOptions>,
) -> ApiResult {
    let changed = settings::undo(&api.server, &caller, &key, options.mode()).await?;
    responses::plain(StatusCode::OK, &changed)
}

/// Asks the directory and the identity provider.
pub(super) async fn try_sources(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let tried = settings::try_sign_in_sources(&api.server, &caller).await?;
    responses::whole(&headers, &tried)
}

/// Reads the settings again; a reading with a fault changes nothing.
pub(super) async fn reload(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let done = system::reload_settings(&api.server, &caller).await?;
    responses::whole(&headers, &done)
}
