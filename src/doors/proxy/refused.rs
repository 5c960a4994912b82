//! What the origin of an app says itself: a refusal with its code, as a page for browsers and as a document for programs.
//! Never shows what an app said.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;

use crate::doors::problem::{self, ProblemResponse};
use crate::doors::text::{Language, Text, codes};

/// A refusal for the browser that asked; `console` is where the app is opened.
pub(super) fn refusal_page(
    problem: &ProblemResponse,
    said: &HeaderMap,
    id: &str,
    console: Option<&str>,
) -> Response {
    let text = |name| said.get(name).and_then(|value| value.to_str().ok());
    let language = text(header::ACCEPT_LANGUAGE).map_or(Language::English, Language::accepted);
    let mut response = problem::answer(problem, id, language);
    if text(header::ACCEPT).is_some_and(|kinds| kinds.contains("text/html")) {
        let t = Text::new(language);
        let sentence = codes::refusal(t, &problem.refusal);
        let mut page = format!("{sentence}\n\n{}\n", problem.refusal.code);
        if let Some(console) = console {
            page.push_str(&format!("{} {console}\n", t.apps_open_from()));
        }
        *response.body_mut() = Body::from(page);
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
    }
    own_headers(response.headers_mut());
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert("x-request-id", id);
    }
    response
}

/// What every answer of ours on the origin of an app carries.
pub(super) fn own_headers(headers: &mut HeaderMap) {
    for (name, value) in [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'; sandbox",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
