//! How answers are built: entity tags, lists with the link to their next page, things that were made.

use api::page::ListPage;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rules::refusal::Refusal;
use rules::refusals;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::doors::problem::ProblemResponse;
use crate::doors::{csv, download};

/// What a handler gives.
pub(super) type ApiResult = Result<Response, ProblemResponse>;

/// One resource with its version as the entity tag; 304 where the client has that version.
pub(super) fn one<T: Serialize>(headers: &HeaderMap, body: &T, generation: u64) -> ApiResult {
    tagged(headers, body, format!("\"{generation}\""))
}

/// A body without a version of its own; its tag is a digest of what it says.
pub(super) fn whole<T: Serialize>(headers: &HeaderMap, body: &T) -> ApiResult {
    let text = written(body)?;
    let tag = digest(&text);
    finished(headers, text, &tag)
}

/// One resource with a version of its own; `tag` has its quotes.
pub(super) fn versioned<T: Serialize>(headers: &HeaderMap, body: &T, tag: &str) -> ApiResult {
    finished(headers, written(body)?, tag)
}

/// The entity tag of a text without a version.
pub(super) fn digest(text: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let tag: String = digest[..12].iter().map(|b| format!("{b:02x}")).collect();
    format!("\"{tag}\"")
}

/// A changed resource.
pub(super) fn changed<T: Serialize>(body: &T, generation: u64) -> ApiResult {
    tagged(&HeaderMap::new(), body, format!("\"{generation}\""))
}

/// A list that has no pages, in the form of one that has.
pub(super) fn all<T: Serialize>(headers: &HeaderMap, items: Vec<T>) -> ApiResult {
    let page = ListPage {
        estimated_total: items.len() as u64,
        items,
        next_cursor: None,
    };
    whole(headers, &page)
}

/// One page of a list, with the address of the next one. `query` is what the client asked.
pub(super) fn page<T: Serialize>(
    headers: &HeaderMap,
    path: &str,
    query: &str,
    page: &ListPage<T>,
) -> ApiResult {
    let response = whole(headers, page)?;
    Ok(linked(response, path, query, page.next_cursor.as_deref()))
}

/// A page with the address of the next one, where there is one. `query` is what the client asked.
pub(super) fn linked(
    mut response: Response,
    path: &str,
    query: &str,
    cursor: Option<&str>,
) -> Response {
    let Some(cursor) = cursor else {
        return response;
    };
    let kept = query
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.starts_with("cursor="))
        .map(|pair| format!("{pair}&"))
        .collect::<String>();
    let link = format!("<{path}?{kept}cursor={cursor}>; rel=\"next\"");
    if let Ok(link) = HeaderValue::from_str(&link) {
        response.headers_mut().insert(header::LINK, link);
    }
    response
}

/// Whether the client asks for comma-separated values rather than JSON: `Accept` names them first.
pub(super) fn wants_csv(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|kind| kind.split(';').next().unwrap_or_default().trim())
        .find(|kind| matches!(*kind, "text/csv" | "application/json"))
        .is_some_and(|kind| kind == "text/csv")
}

/// A file of comma-separated values, in the place of a body of JSON.
pub(super) fn table(name: &str, text: String) -> ApiResult {
    let file = download::bytes(name, csv::KIND, text.into_bytes());
    Ok(with_header(file, "vary", "accept"))
}

/// Something new, and where it is.
pub(super) fn made<T: Serialize>(body: &T, location: &str) -> ApiResult {
    let mut response = json(StatusCode::CREATED, written(body)?);
    place(&mut response, location);
    Ok(response)
}

/// Something new with a version, and where it is.
pub(super) fn made_version<T: Serialize>(body: &T, location: &str, generation: u64) -> ApiResult {
    let response = made(body, location)?;
    Ok(with_header(response, "etag", &format!("\"{generation}\"")))
}

/// Work that goes on, and where to look at it.
pub(super) fn accepted<T: Serialize>(body: &T, location: &str) -> ApiResult {
    let mut response = json(StatusCode::ACCEPTED, written(body)?);
    place(&mut response, location);
    Ok(response)
}

/// A plain JSON body.
pub(super) fn plain<T: Serialize>(status: StatusCode, body: &T) -> ApiResult {
    Ok(json(status, written(body)?))
}

pub(super) fn nothing() -> ApiResult {
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The version in `If-Match`; None where there is none, or `*`.
pub(super) fn if_match(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    let Some(given) = headers.get(header::IF_MATCH) else {
        return Ok(None);
    };
    let text = given.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    text.strip_prefix('"')
        .and_then(|t| t.strip_suffix('"'))
        .and_then(|t| t.parse().ok())
        .map(Some)
        .ok_or_else(refusals::if_match_unknown)
}

/// The version in `If-Match`, which must be there: the change could overwrite one that the client has not seen.
pub(super) fn must_match(headers: &HeaderMap) -> Result<Option<u64>, ProblemResponse> {
    if headers.contains_key(header::IF_MATCH) {
        return Ok(if_match(headers)?);
    }
    let refusal = refusals::if_match_missing();
    Err(ProblemResponse::with_status(
        refusal,
        StatusCode::PRECONDITION_REQUIRED,
    ))
}

pub(super) fn with_header(mut response: Response, name: &'static str, value: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(value) {
        response
            .headers_mut()
            .insert(HeaderName::from_static(name), value);
    }
    response
}

/// Marks an answer that was given before to the same Idempotency-Key.
pub(super) fn replayed(response: Response, replayed: bool) -> Response {
    if replayed {
        with_header(response, "idempotency-replayed", "true")
    } else {
        response
    }
}

fn place(response: &mut Response, location: &str) {
    if let Ok(value) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, value);
    }
}

fn tagged<T: Serialize>(headers: &HeaderMap, body: &T, tag: String) -> ApiResult {
    finished(headers, written(body)?, &tag)
}

/// A body of JSON that is written already, with its entity tag; 304 where the client has it.
pub(super) fn finished(headers: &HeaderMap, text: impl Into<Body>, tag: &str) -> ApiResult {
    let known = headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .any(|v| {
            let v = v.trim();
            v == "*" || v.strip_prefix("W/").unwrap_or(v) == tag
        });
    let response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        json(StatusCode::OK, text)
    };
    Ok(with_header(response, "etag", tag))
}

fn json(status: StatusCode, text: impl Into<Body>) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (status, kind, text.into()).into_response()
}

fn written<T: Serialize>(body: &T) -> Result<String, ProblemResponse> {
    serde_json::to_string(body).map_err(|source| {
        tracing::error!(
            error = &source as &dyn std::error::Error,
            "an answer cannot be written"
        );
        ProblemResponse::with_status(
            refusals::server_answer_not_json(),
            StatusCode::INTERNAL_SERVER_ERROR,
        )
    })
}
