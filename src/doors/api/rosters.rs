//! Rosters over REST: the file as it is, planned, applied and undone.

use api::users::SuspendBody;
use axum::body::Bytes;
use axum::extract::{FromRequest as _, Path, Request, State};
use axum::http::{HeaderMap, header};
use rules::refusals;
use serde::Deserialize;
use server::actions::rosters;
use server::actions::users::Suspension;

use super::ApiContext;
use super::authentication::{ApiCaller, prove_again};
use super::body::{JsonBody, QueryParameters};
use super::middleware::too_large;
use super::responses::{self, ApiResult};

pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    responses::all(&headers, rosters::list(&api.server, &caller).await?)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RosterQuery {
    project: Option<String>,
    dry_run: bool,
    /// Of the plan that is applied.
    digest: String,
}

pub(super) async fn take(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    QueryParameters(query): QueryParameters<RosterQuery>,
    request: Request,
) -> ApiResult {
    let (parts, body) = request.into_parts();
    let kind = parts.headers.get(header::CONTENT_TYPE);
    let kind = kind
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if !matches!(
        kind.split(';').next().unwrap_or_default().trim(),
        "text/csv" | "application/octet-stream"
    ) {
        return Err(refusals::roster_media_type().into());
    }
    let request = Request::from_parts(parts.clone(), body);
    let bytes = Bytes::from_request(request, &api).await;
    let bytes = bytes.map_err(|_| too_large())?;
    prove_again(&api, &parts).await?;
    let project = query.project.as_deref();
    if query.dry_run {
        let plan = rosters::plan(&api.server, &caller, &bytes, project).await?;
        return responses::whole(&parts.headers, &plan);
    }
    let applied = rosters::apply(&api.server, &caller, &bytes, project, &query.digest).await?;
    let made = responses::made(&applied, "/api/v1/rosters")?;
    Ok(responses::with_header(made, "cache-control", "no-store"))
}

pub(super) async fn undo(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult {
    let roster = rosters::undo(&api.server, &caller, &id).await?;
    responses::whole(&headers, &roster)
}

pub(super) async fn suspend(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    Path(id): Path<String>,
    headers: HeaderMap,
    sent: JsonBody<SuspendBody>,
) -> ApiResult {
    let asked = Suspension::asked(sent.value.suspended, sent.value.stop_sessions)?;
    let done = rosters::suspend(&api.server, &caller, &id, asked).await?;
    responses::whole(&headers, &done)
}
