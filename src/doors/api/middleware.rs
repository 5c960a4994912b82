//! Middleware of every answer of the API: the id of its request, a body for every problem, no caching.
//! Never decides anything.

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use rules::refusal::Refusal;
use rules::refusals;
use server::access;

use super::ApiContext;
use super::authentication;
use super::request_id::RequestId;
use crate::doors::problem::{self, ProblemResponse};
use crate::doors::text::Language;

/// Middleware: gives every request an id, keeps a client's own where it is harmless, and turns every
/// refusal, also those of the router itself, into a problem document. What it does is written down as part of that
/// request, a refused act too.
pub(super) async fn apply(
    State(api): State<ApiContext>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = request
        .headers()
        .get("x-request-id")
        .and_then(|v| v.to_str().ok())
        .filter(|v| (8..=64).contains(&v.len()))
        .filter(|v| v.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'))
        .map_or_else(|| uuid::Uuid::now_v7().to_string(), str::to_owned);
    let language = request
        .headers()
        .get(header::ACCEPT_LANGUAGE)
        .and_then(|v| v.to_str().ok())
        .map_or(Language::English, Language::accepted);
    request.extensions_mut().insert(RequestId(id.clone()));
    let source = authentication::peer_of(request.extensions()).address();
    let act = problem::act(&request);
    let answered = async {
        let mut response = next.run(request).await;
        let problem = response
            .extensions_mut()
            .remove::<ProblemResponse>()
            .or_else(|| bare(&response));
        if let (Some(act), Some(problem)) = (act, &problem)
            && problem.status.is_client_error()
        {
            access::refused(&api.server, &act, &problem.refusal.code);
        }
        (response, problem)
    };
    let (mut response, problem) = access::as_request(source, &id, answered).await;
    if let Some(problem) = problem {
        let allow = response.headers_mut().remove(header::ALLOW);
        let tag = response.headers_mut().remove(header::ETAG);
        let range = response.headers_mut().remove(header::CONTENT_RANGE);
        response = problem::answer(&problem, &id, language);
        for (name, value) in [
            (header::ALLOW, allow),
            (header::ETAG, tag),
            (header::CONTENT_RANGE, range),
        ] {
            if let Some(value) = value {
                response.headers_mut().insert(name, value);
            }
        }
    }
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert("x-request-id", value);
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        // `no-cache` still allows a client to ask "is it still this?" by its entity tag.
        headers.insert(
            header::CACHE_CONTROL,
            HeaderValue::from_static("private, no-cache"),
        );
    }
    response
}

/// The problem behind an error status that a layer below gave without words.
fn bare(response: &Response) -> Option<ProblemResponse> {
    let status = response.status();
    let worded = response
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .is_some_and(|v| v.starts_with("application/"));
    if worded || !(status.is_client_error() || status.is_server_error()) {
        return None;
    }
    let refusal = match status {
        StatusCode::NOT_FOUND => refusals::path_unknown(),
        StatusCode::METHOD_NOT_ALLOWED => refusals::method_not_allowed(),
        StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        StatusCode::REQUEST_TIMEOUT => refusals::request_timeout(),
        status if status.is_client_error() => refusals::request_malformed(),
        _ => refusals::server_fault(),
    };
    Some(ProblemResponse::with_status(refusal, status))
}

/// The refusal of a body that is too long.
pub(super) fn too_large() -> Refusal {
    refusals::body_too_large()
}
