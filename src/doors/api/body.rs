//! Reads what was sent: JSON bodies and queries, each wrong one refused with the field it is about.
//! Never judges meaning; that is the action's.

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Uri, header};
use bytes::Bytes;
use rules::object::Object;
use rules::refusal::{FieldError, Refusal};
use rules::refusals;
use serde::de::DeserializeOwned;
use server::actions::IdempotencyKey;
use sha2::{Digest, Sha256};

use super::ApiContext;
use super::authentication::prove_again;
use super::middleware::too_large;
use crate::doors::problem::ProblemResponse;

/// A JSON body and what belongs to acting on it once.
pub(super) struct JsonBody<T> {
    pub(super) value: T,
    /// None where the client sent no `Idempotency-Key`.
    pub(super) key: Option<IdempotencyKey>,
}

impl<T: DeserializeOwned> FromRequest<ApiContext> for JsonBody<T> {
    type Rejection = ProblemResponse;

    async fn from_request(request: Request, api: &ApiContext) -> Result<Self, ProblemResponse> {
        let (parts, body) = request.into_parts();
        must_be_json(&parts.headers)?;
        let request = Request::from_parts(parts.clone(), body);
        let bytes = Bytes::from_request(request, api)
            .await
            .map_err(|_| too_large())?;
        prove_again(api, &parts).await?;
        let value = match parts.method == Method::PUT {
            true => read_whole(&bytes)?,
            false => read(&bytes)?,
        };
        let key = key(&parts.method, &parts.uri, &parts.headers, &bytes);
        Ok(Self { value, key })
    }
}

fn must_be_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or("application/json");
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if matches!(kind, "application/json" | "application/merge-patch+json") {
        return Ok(());
    }
    Err(refusals::body_not_json())
}

/// Reads JSON; an empty body counts as `{}`.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    read_whole(bytes)
}

/// Reads JSON that has to be there. A PUT resets what it leaves out, and a body that was lost on the way would reset all.
fn read_whole<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let Object(value) = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        // A text that stops in the middle is no JSON. Of a null in the place of a word the reader says the
        // same, and there the text is well formed.
        match serde_json::from_slice::<serde::de::IgnoredAny>(bytes) {
            Err(broken) => malformed(&broken),
            Ok(_) => unfit(error.inner(), pointer(error.path())),
        }
    })?;
    reader.end().map_err(|error| malformed(&error))?;
    Ok(value)
}

/// What the reader says, without the place. What the client wrote may be long; the sentence should not be.
fn said(error: &serde_json::Error) -> String {
    let mut said = error.to_string();
    if let Some(at) = said.rfind(" at line ") {
        said.truncate(at);
    }
    said.trim_end_matches('.').chars().take(300).collect()
}

fn malformed(error: &serde_json::Error) -> Refusal {
    let (said, line, column) = (said(error), error.line(), error.column());
    refusals::body_malformed(&said, line, column)
}

fn unfit(error: &serde_json::Error, pointer: String) -> Refusal {
    let said = said(error);
    let mut refusal = refusals::body_invalid(&said);
    refusal.fields.push(FieldError {
        pointer,
        code: rules::codes::BODY_INVALID.to_owned(),
        text: said,
    });
    refusal
}

/// The path of a field as a JSON pointer.
fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    path.iter()
        .map(|segment| match segment {
            Segment::Seq { index } => format!("/{index}"),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                format!("/{}", key.replace('~', "~0").replace('/', "~1"))
            }
            Segment::Unknown => "/?".to_owned(),
        })
        .collect()
}

/// The key under which this request acts once, where the client gave one.
pub(super) fn key(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
) -> Option<IdempotencyKey> {
    let given = headers.get("idempotency-key")?;
    Some(IdempotencyKey {
        // What is not text is given on as something the action refuses.
        key: given.to_str().unwrap_or_default().to_owned(),
        route: format!("{method} {}", uri.path()),
        body_digest: Sha256::digest(body).into(),
    })
}

/// A query, with our words where it is wrong.
pub(super) struct QueryParameters<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParameters<T> {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemResponse> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => {
                let said: String = rejection.body_text().chars().take(300).collect();
                Err(refusals::query_malformed(&said).into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::sessions::LaunchRequest;

    #[test]
    fn every_wrong_body_says_where_it_is_wrong() {
        for (body, code, pointer) in [
            ("{\"image\": \"host\"", "body.malformed", None),
            ("[1, 2", "body.malformed", None),
            ("{} {}", "body.malformed", None),
            ("\u{0}", "body.malformed", None),
            // Valid JSON, though it is no object: the fields in their order are no body.
            ("[]", "body.invalid", Some("")),
            ("[null, \"batch\"]", "body.invalid", Some("")),
            ("null", "body.invalid", Some("")),
            (
                "{\"resources\": [1, 2]}",
                "body.invalid",
                Some("/resources"),
            ),
            ("{\"kind\": null}", "body.invalid", Some("/kind")),
            ("{\"image\": 7}", "body.invalid", Some("/image")),
            ("{\"imag\": \"host\"}", "body.invalid", Some("/imag")),
            (
                "{\"resources\": {\"memory\": -1}}",
                "body.invalid",
                Some("/resources/memory"),
            ),
            (
                "{\"resources\": {\"cpu\": 0.351}}",
                "body.invalid",
                Some("/resources/cpu"),
            ),
            (
                "{\"command\": [\"a\", 3]}",
                "body.invalid",
                Some("/command/1"),
            ),
            ("{\"replicas\": 1.5}", "body.invalid", Some("/replicas")),
            ("{\"replicas\": -1}", "body.invalid", Some("/replicas")),
            (
                "{\"start_at\": \"noon\"}",
                "body.invalid",
                Some("/start_at"),
            ),
        ] {
            let refusal = read::<LaunchRequest>(body.as_bytes()).expect_err(body);
            assert_eq!(refusal.code, code, "{body}");
            let found = refusal.fields.first().map(|f| f.pointer.as_str());
            assert_eq!(found, pointer, "{body}");
        }
        assert!(read::<LaunchRequest>(b"").is_ok());
        let lost = read_whole::<LaunchRequest>(b"").expect_err("no body");
        assert_eq!(lost.code, "body.malformed");
        let refusal =
            read::<LaunchRequest>(b"{\"resources\": {\"mig\": \"\"}}").expect_err("no profile");
        assert!(refusal.text.ends_with("profile."), "{}", refusal.text);
        assert!(!refusal.text.ends_with(".."), "{}", refusal.text);
    }
}
