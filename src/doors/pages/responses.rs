//! Answers as browsers get them: pages, fragments, redirects, refusals and faults, each with its policy.
//! Never decides what is in them.

use askama::Template;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use rules::refusal::{Refusal, RefusalKind};
use server::Failure;

use super::form_faults::{self, RefusedForm};
use super::layout::{Nav, PageLayout};
use super::problem::{BareProblemPage, ProblemPage};
use super::request_context::RequestContext;
use super::{PagesContext, guest};
use crate::doors::origin;
use crate::doors::text::codes;
use crate::doors::text::visible::visible;

/// Lists whose entries have addresses below them, by the first part of the address.
const LISTS: [&str; 14] = [
    "announcements",
    "budgets",
    "courses",
    "folders",
    "groups",
    "idle-rules",
    "images",
    "policies",
    "presets",
    "projects",
    "queue",
    "reservations",
    "sessions",
    "users",
];

/// A whole page or fragment with that status. No cache on the way may keep it.
pub fn html(visit: &RequestContext, status: StatusCode, body: String) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::VARY,
        HeaderValue::from_static("HX-Request, Cookie, Accept-Language"),
    );
    headers.insert(
        header::CONTENT_LANGUAGE,
        HeaderValue::from_static(visit.text.language.code()),
    );
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        origin::content_policy(&visit.nonce),
    );
    (status, headers, visible(body)).into_response()
}

/// A rendered template, with the faults of the form that was refused, if one was; a fault in a template is ours and says so.
pub fn page(
    console: &PagesContext,
    visit: &RequestContext,
    status: StatusCode,
    template: &impl Template,
) -> Response {
    match template.render() {
        Ok(body) => {
            let marked = |form: &RefusedForm| {
                form_faults::marked(&body, form).unwrap_or_else(|| form_faults::above(&body, form))
            };
            let marked = visit.refused.as_ref().map(marked);
            html(visit, status, marked.unwrap_or(body))
        }
        Err(error) => {
            tracing::error!(%error, path = visit.address(), "a page was not rendered");
            fault_page(console, visit, None)
        }
    }
}

/// Go there and look: what every accepted form answers.
pub fn see(place: &str) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(header::LOCATION, header_value(place));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// The same with a word for the next page to say.
pub fn see_with(place: &str, notice: &str, name: &str) -> Response {
    let mark = if place.contains('?') { '&' } else { '?' };
    see(&format!(
        "{place}{mark}notice={notice}&of={}",
        encoded(name)
    ))
}

/// The same at one part of that page, which says the word itself.
pub fn see_part_with(place: &str, part: &str, notice: &str, name: &str) -> Response {
    see(&format!(
        "{place}?notice={notice}&of={}#{part}",
        encoded(name)
    ))
}

/// A place on this console that a form named; `/` for anything that leads elsewhere.
pub fn own_place(place: &str) -> &str {
    let inside = place.starts_with('/')
        && !place.starts_with("//")
        && !place.contains('\\')
        && place.chars().all(|c| !c.is_control());
    if inside { place } else { "/" }
}

fn header_value(text: &str) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("/"))
}

/// Text as part of an address.
pub fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Why an answer is none: the code of its refusal, or its status where no code is known. None for a success.
pub(super) fn refused_code(response: &Response) -> Option<String> {
    if !response.status().is_client_error() {
        return None;
    }
    let known = response.extensions().get::<RefusedCode>();
    Some(match known {
        Some(RefusedCode(code)) => code.clone(),
        None => format!("http.{}", response.status().as_u16()),
    })
}

/// The code of the refusal that a page tells.
#[derive(Debug, Clone)]
struct RefusedCode(String);

/// The status a browser gets for a refusal.
pub fn status(refusal: &Refusal) -> StatusCode {
    crate::doors::problem::status(refusal.kind)
}

/// The page for something that was not done: what it was, who can help, what to quote.
pub fn failure(
    console: &PagesContext,
    visit: &RequestContext,
    frame: Option<PageLayout>,
    failure: &Failure,
) -> Response {
    match failure {
        Failure::Refusal(refusal) => refused(console, visit, frame, refusal),
        Failure::Fault(fault) => {
            tracing::error!(error = %base_chain(fault), path = visit.address(), "a page failed");
            fault_page(console, visit, frame)
        }
    }
}

/// A fault with everything behind it, in one line.
fn base_chain(fault: &server::ServerFault) -> String {
    let mut told = fault.to_string();
    let mut cause = std::error::Error::source(fault);
    while let Some(error) = cause {
        told.push_str(": ");
        told.push_str(&error.to_string());
        cause = error.source();
    }
    told
}

/// The page for a refusal.
pub fn refused(
    console: &PagesContext,
    visit: &RequestContext,
    frame: Option<PageLayout>,
    refusal: &Refusal,
) -> Response {
    let t = visit.text;
    let mut detail = codes::refusal(t, refusal);
    let (icon, title) = match refusal.kind {
        RefusalKind::Denied if refusal.code == rules::codes::ROLE_ADMINISTRATOR_NEEDED => {
            // Which permission it was helps nobody who reads a page.
            detail = t.problem_administrators_lead().to_owned();
            ("ban", t.problem_administrators())
        }
        RefusalKind::NotFound if refusal.code == rules::codes::PATH_UNKNOWN => {
            detail = match frame {
                Some(_) => t.problem_address_lead().to_owned(),
                None => t.problem_address_lead_out().to_owned(),
            };
            ("search", t.problem_address())
        }
        RefusalKind::Denied if refusal.code == rules::codes::ORIGIN_FOREIGN => {
            ("ban", t.problem_origin())
        }
        RefusalKind::Denied | RefusalKind::Unauthenticated => ("ban", t.problem_forbidden()),
        RefusalKind::NotFound => ("search", t.problem_missing()),
        RefusalKind::Conflict | RefusalKind::Stale => ("rotate-ccw", t.problem_conflict()),
        _ => ("triangle-alert", t.problem_refused()),
    };
    let mut response = problem(
        console,
        visit,
        frame,
        status(refusal),
        icon,
        title,
        detail,
        &refusal.code,
    );
    let code = RefusedCode(refusal.code.clone());
    response.extensions_mut().insert(code);
    response
}

/// The page for an address that takes forms only; `Allow` is set by the router.
pub fn no_page(
    console: &PagesContext,
    visit: &RequestContext,
    frame: Option<PageLayout>,
) -> Response {
    let t = visit.text;
    problem(
        console,
        visit,
        frame,
        StatusCode::METHOD_NOT_ALLOWED,
        "rotate-ccw",
        t.problem_method(),
        t.problem_method_lead().to_owned(),
        rules::codes::METHOD_NOT_ALLOWED,
    )
}

fn fault_page(
    console: &PagesContext,
    visit: &RequestContext,
    frame: Option<PageLayout>,
) -> Response {
    let t = visit.text;
    problem(
        console,
        visit,
        frame,
        StatusCode::INTERNAL_SERVER_ERROR,
        "triangle-alert",
        t.problem_fault(),
        t.problem_fault_lead().to_owned(),
        "fault.internal",
    )
}

#[allow(
    clippy::too_many_arguments,
    reason = "the parts of one page, from the three functions above"
)]
fn problem(
    console: &PagesContext,
    visit: &RequestContext,
    frame: Option<PageLayout>,
    status: StatusCode,
    icon: &'static str,
    title: &str,
    detail: String,
    code: &str,
) -> Response {
    let t = visit.text;
    let request = visit.request.clone();
    let rendered = match frame {
        Some(f) => ProblemPage {
            t,
            f: PageLayout {
                here: Nav::Nowhere,
                live: None,
                ..f
            },
            status: status.as_u16(),
            icon,
            title: title.to_owned(),
            detail,
            hint: None,
            code: code.to_owned(),
            request,
            back: list_of(status, visit.address()),
        }
        .render(),
        None => BareProblemPage {
            t,
            f: guest(console, visit),
            status: status.as_u16(),
            icon,
            title: title.to_owned(),
            detail,
            hint: None,
            code: code.to_owned(),
            request,
        }
        .render(),
    };
    // A template that fails here would fail for ever; a plain sentence is better than a loop.
    html(
        visit,
        status,
        rendered.unwrap_or_else(|_| format!("{} {code}", status.as_u16())),
    )
}

/// The list behind an address of one of its entries, which a form above that list may have sent; None for what the state
/// of the entry has not refused.
fn list_of(status: StatusCode, address: &str) -> Option<String> {
    let (first, rest) = address.strip_prefix('/')?.split_once('/')?;
    let is_refused = status == StatusCode::CONFLICT && !rest.is_empty();
    (is_refused && LISTS.contains(&first)).then(|| format!("/{first}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_state_of_an_entry_refuses_leads_back_to_its_list() {
        for (status, address, list) in [
            (StatusCode::CONFLICT, "/folders/1/trash", Some("/folders")),
            (StatusCode::CONFLICT, "/folders", None),
            (StatusCode::CONFLICT, "/system/power", None),
            (StatusCode::NOT_FOUND, "/folders/1/trash", None),
        ] {
            assert_eq!(list_of(status, address).as_deref(), list, "{address}");
        }
    }

    #[test]
    fn a_form_leads_nowhere_else() {
        for (given, kept) in [
            ("/sessions?q=a", "/sessions?q=a"),
            ("//evil", "/"),
            ("https://evil", "/"),
            ("/\\evil", "/"),
            ("", "/"),
            ("/a\r\nSet-Cookie: x", "/"),
        ] {
            assert_eq!(own_place(given), kept, "{given:?}");
        }
    }
}
