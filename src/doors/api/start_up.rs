//! What the sessions of who asks start with, over REST: dotfiles, a script, variables.

use api::start_up::{NewDotfileBody, NewStartupScriptBody, NewVariableBody};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use server::actions::users::start_up;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn dotfiles(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, start_up::dotfiles(&api.server, &caller).await?)
}

pub(super) async fn dotfile(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let file = start_up::dotfile(&api.server, &caller, &path).await?;
    responses::whole(&headers, &file)
}

pub(super) async fn put_dotfile(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewDotfileBody>,
) -> ApiResult {
    let kept = start_up::put_dotfile(&api.server, &caller, sent.value).await?;
    responses::plain(StatusCode::OK, &kept)
}

pub(super) async fn remove_dotfile(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(path): Path<String>,
) -> ApiResult {
    start_up::remove_dotfile(&api.server, &caller, &path).await?;
    responses::nothing()
}

pub(super) async fn script(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let script = start_up::script(&api.server, &caller).await?;
    responses::whole(&headers, &script)
}

pub(super) async fn put_script(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewStartupScriptBody>,
) -> ApiResult {
    let kept = start_up::put_script(&api.server, &caller, sent.value).await?;
    responses::plain(StatusCode::OK, &kept)
}

pub(super) async fn remove_script(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
) -> ApiResult {
    start_up::remove_script(&api.server, &caller).await?;
    responses::nothing()
}

pub(super) async fn variables(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, start_up::variables(&api.server, &caller).await?)
}

pub(super) async fn put_variable(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    sent: JsonBody<NewVariableBody>,
) -> ApiResult {
    let kept = start_up::put_variable(&api.server, &caller, sent.value).await?;
    responses::plain(StatusCode::OK, &kept)
}

pub(super) async fn remove_variable(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(name): Path<String>,
) -> ApiResult {
    start_up::remove_variable(&api.server, &caller, &name).await?;
    responses::nothing()
}
