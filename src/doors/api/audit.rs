//! The audit log over REST: acts page by page, an export as JSON lines, and signed checkpoints.

use api::audit::{AuditExportQuery, AuditQuery};
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use futures_util::stream;
use server::access::lease;
use server::actions::audit::{self, AuditExport};

use super::ApiContext;
use super::authentication::ApiCaller;
use super::body::QueryParameters;
use super::responses::{self, ApiResult};
use crate::doors::{csv, download};

/// The media type of JSON lines.
pub(super) const KIND: &str = "application/jsonl";

/// A page of JSON, or where the client asks for it a file of all that the search finds, at most 10,000 acts.
pub(super) async fn list(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
    QueryParameters(query): QueryParameters<AuditQuery>,
) -> ApiResult {
    if responses::wants_csv(&headers) {
        let found = audit::table(&api.server, &caller, &query).await?;
        return responses::table("audit.csv", csv::acts(&found.page));
    }
    let page = audit::list(&api.server, &caller, &query).await?;
    let response = responses::whole(&headers, &page)?;
    Ok(responses::linked(
        response,
        "/api/v1/audit",
        &raw.unwrap_or_default(),
        page.next_cursor.as_deref(),
    ))
}

pub(super) async fn export(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    QueryParameters(query): QueryParameters<AuditExportQuery>,
) -> ApiResult {
    let begun = audit::export(&api.server, &caller, &query).await?;
    let lines = stream::unfold(Some(begun), |export| async move {
        let mut export: AuditExport = export?;
        match export.part().await {
            Ok(None) => None,
            Ok(Some(text)) => Some((Ok(text), Some(export))),
            Err(failure) => {
                let error = &failure as &dyn std::error::Error;
                tracing::error!(error, "an export of the audit log broke off");
                Some((Err(std::io::Error::other("it broke off")), None))
            }
        }
    });
    let lease = lease(&api.server, &caller);
    Ok(download::pieces("audit.jsonl", KIND, lines, lease))
}

pub(super) async fn checkpoints(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let kept = audit::checkpoints(&api.server, &caller).await?;
    responses::all(&headers, kept)
}

/// How far the log was handed over to places outside.
pub(super) async fn targets(
    State(api): State<ApiContext>,
    ApiCaller(caller): ApiCaller,
    headers: HeaderMap,
) -> ApiResult {
    let targets = audit::targets(&api.server, &caller).await?;
    responses::all(&headers, targets)
}

pub(super) async fn sign(State(api): State<ApiContext>, ApiCaller(caller): ApiCaller) -> ApiResult {
    let made = audit::sign(&api.server, &caller).await?;
    responses::plain(axum::http::StatusCode::CREATED, &made)
}
