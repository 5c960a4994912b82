//! Running code in a session over REST.

use api::code_runs::CodeRunRequest;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use server::actions::code_runs;

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::JsonBody;
use super::responses::{self, ApiResult};

pub(super) async fn execute(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    sent: JsonBody<CodeRunRequest>,
) -> ApiResult {
    let (server, streams) = (&api.server, &*api.streams);
    let run = code_runs::execute(server, streams, &caller, &id, sent.value).await?;
    responses::plain(StatusCode::OK, &run)
}
