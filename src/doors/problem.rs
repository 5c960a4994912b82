//! Refusals and faults as `application/problem+json` (RFC 9457): the status of each sort, the stable
//! code, what would work, and the id of the request. Pages put the same parts into words of their own.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rules::refusal::{Refusal, RefusalKind};
use rules::refusals;
use serde_json::{Value, json};
use server::Failure;

use super::text::Language;

/// Why a request was not done, on its way to become an answer. `middleware` writes the body, since only
/// there the id of the request and the language are known.
#[derive(Debug, Clone)]
pub struct ProblemResponse {
    pub refusal: Refusal,
    pub status: StatusCode,
}

impl ProblemResponse {
    pub fn with_status(refusal: Refusal, status: StatusCode) -> Self {
        Self { refusal, status }
    }
}

impl From<Refusal> for ProblemResponse {
    fn from(refusal: Refusal) -> Self {
        let status = status(refusal.kind);
        Self { refusal, status }
    }
}

impl From<Failure> for ProblemResponse {
    /// A fault is logged here with every cause; the user gets the id of the request only.
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refusal(refusal) => refusal.into(),
            Failure::Fault(fault) => {
                tracing::error!(error = &fault as &dyn std::error::Error, "a request failed");
                let refusal = refusals::server_fault_nothing_changed();
                Self::with_status(refusal, StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// What a request says of its reader: all that is kept of its headers for a refusal.
#[derive(Debug, Clone)]
pub struct RefusalReader {
    kinds: Option<HeaderValue>,
    languages: Option<HeaderValue>,
}

impl RefusalReader {
    pub fn of(headers: &HeaderMap) -> Self {
        Self {
            kinds: headers.get(header::ACCEPT).cloned(),
            languages: headers.get(header::ACCEPT_LANGUAGE).cloned(),
        }
    }

    /// English where it names none of ours.
    pub fn language(&self) -> Language {
        let languages = self.languages.as_ref();
        let languages = languages.and_then(|value| value.to_str().ok());
        languages.map_or(Language::English, Language::accepted)
    }

    /// Whether it shows pages to a user.
    pub fn is_browser(&self) -> bool {
        let kinds = self.kinds.as_ref();
        let kinds = kinds.and_then(|value| value.to_str().ok());
        kinds.is_some_and(|kinds| kinds.contains("text/html"))
    }
}

/// What a request is to change: its method and its path. None for one that only reads, a preview too.
pub fn act(request: &Request) -> Option<String> {
    let (method, uri) = (request.method(), request.uri());
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
        || uri.path().ends_with("/preview")
        || uri
            .query()
            .is_some_and(|query| query.contains("dry_run=true"));
    (!reads).then(|| format!("{method} {}", uri.path()))
}

/// The HTTP status of a sort of refusal. What never fits any machine is the request's meaning (422),
/// like other things that are readable and impossible.
pub fn status(kind: RefusalKind) -> StatusCode {
    match kind {
        RefusalKind::Malformed => StatusCode::BAD_REQUEST,
        RefusalKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        RefusalKind::Denied => StatusCode::FORBIDDEN,
        RefusalKind::NotFound => StatusCode::NOT_FOUND,
        RefusalKind::Conflict => StatusCode::CONFLICT,
        RefusalKind::Stale => StatusCode::PRECONDITION_FAILED,
        RefusalKind::Invalid | RefusalKind::Capacity => StatusCode::UNPROCESSABLE_ENTITY,
        RefusalKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        RefusalKind::TooOften => StatusCode::TOO_MANY_REQUESTS,
        RefusalKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        RefusalKind::FailedDependency => StatusCode::FAILED_DEPENDENCY,
    }
}

/// A few words for the sort of problem, in the reader's language.
pub fn title(kind: RefusalKind, language: Language) -> &'static str {
    let (english, korean) = match kind {
        RefusalKind::Malformed => ("The request cannot be read", "요청을 읽을 수 없습니다"),
        RefusalKind::Unauthenticated => ("Sign in first", "먼저 로그인하세요"),
        RefusalKind::Denied => ("Not allowed", "허용되지 않습니다"),
        RefusalKind::NotFound => ("Not found", "찾을 수 없습니다"),
        RefusalKind::Conflict => ("Not possible now", "지금은 할 수 없습니다"),
        RefusalKind::Stale => ("Changed in the meantime", "그 사이에 바뀌었습니다"),
        RefusalKind::Invalid => ("Not possible as asked", "요청대로 할 수 없습니다"),
        RefusalKind::Capacity => ("No room", "자리가 없습니다"),
        RefusalKind::TooLarge => ("Too large", "너무 큽니다"),
        RefusalKind::TooOften => ("Too often", "너무 자주 요청했습니다"),
        RefusalKind::Unavailable => ("Not available now", "지금은 사용할 수 없습니다"),
        RefusalKind::FailedDependency => ("Another server failed", "다른 서버가 응답하지 않습니다"),
    };
    match language {
        Language::English => english,
        Language::Korean => korean,
    }
}

/// The word of a sort, for programs that choose by it: `not-found`, `capacity`, …
fn word(kind: RefusalKind) -> Value {
    serde_json::to_value(kind).unwrap_or(Value::Null)
}

/// The body of a problem.
pub fn document(problem: &ProblemResponse, request_id: &str, language: Language) -> Value {
    let ProblemResponse { refusal, status } = problem;
    let page = refusal.code.replace('.', "-");
    let mut body = json!({
        "type": format!("/docs/errors/{page}"),
        "title": title(refusal.kind, language),
        "status": status.as_u16(),
        "detail": refusal.text,
        "code": refusal.code,
        "kind": word(refusal.kind),
        "request_id": request_id,
        "help": format!("/docs/errors/{page}"),
    });
    if !refusal.hint.is_empty() {
        body["hint"] = refusal.hint.clone().into();
    }
    let mut fields: Vec<Value> = Vec::new();
    if let Some(pointer) = &refusal.pointer {
        fields.push(json!({"pointer": pointer, "code": refusal.code, "text": refusal.text}));
    }
    for field in &refusal.fields {
        fields.push(json!({"pointer": field.pointer, "code": field.code, "text": field.text}));
    }
    if !fields.is_empty() {
        body["errors"] = Value::Array(fields);
    }
    if let Some(seconds) = refusal.retry_after_seconds {
        body["retry_after"] = seconds.into();
    }
    body
}

/// A whole answer for a problem, with the headers that belong to it.
pub fn answer(problem: &ProblemResponse, request_id: &str, language: Language) -> Response {
    let body = document(problem, request_id, language).to_string();
    let mut response = (problem.status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::CONTENT_LANGUAGE,
        HeaderValue::from_static(language.code()),
    );
    let retry = problem.refusal.retry_after_seconds;
    if let Some(seconds) =
        retry.or((problem.status == StatusCode::SERVICE_UNAVAILABLE).then_some(5))
    {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if problem.status == StatusCode::UNAUTHORIZED {
        headers.insert(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static("Bearer realm=\"fardel\""),
        );
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_code_its_hint_and_its_field() {
        let refusal = Refusal::from_parts(
            rules::refusal::RefusalKind::Invalid,
            "memory.too-small".into(),
            "Too little.".into(),
            "Use 256m.".into(),
        )
        .at("/resources/memory")
        .retry_after(7);
        let body = document(&refusal.into(), "r-1", Language::English);
        assert_eq!(body["status"], 422);
        assert_eq!(body["code"], "memory.too-small");
        assert_eq!(body["kind"], "invalid");
        assert_eq!(body["type"], "/docs/errors/memory-too-small");
        assert_eq!(body["hint"], "Use 256m.");
        assert_eq!(body["errors"][0]["pointer"], "/resources/memory");
        assert_eq!(body["retry_after"], 7);
        assert_eq!(body["request_id"], "r-1");
    }
}
