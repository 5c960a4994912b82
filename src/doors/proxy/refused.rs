//! What the origin of an app says itself: a refusal with its code, as a page for browsers and as a document for programs.
//! Never shows what an app said.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;

use crate::doors::problem::{self, ProblemResponse, RefusalReader};
use crate::doors::text::{Text, codes};

/// A refusal for the browser that asked; `console` is where the app is opened.
pub(super) fn refusal_page(
    problem: &ProblemResponse,
    reader: &RefusalReader,
    id: &str,
    console: Option<&str>,
) -> Response {
    let language = reader.language();
    let mut response = problem::answer(problem, id, language);
    if reader.is_browser() {
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
