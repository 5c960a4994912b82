//! `/palette`: what `Ctrl K` finds. Links only, in the order of use: places, sessions, chapters of the manual.

use std::fmt::Write as _;

use api::sessions::ListQuery;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use server::actions::sessions;

use super::authentication::PageCaller;
use super::components::{escaped, icon};
use super::request_context::RequestContext;
use super::{PagesContext, docs, presenter, responses};

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct PaletteQuery {
    q: String,
}

/// Sessions shown at once. More than a screen is not read.
const MAX_RESULTS: u32 = 8;

/// `GET /palette?q=`: list items.
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Query(asked): Query<PaletteQuery>,
) -> Response {
    let t = visit.text;
    let q = asked.q.trim().to_lowercase();
    let mut out = String::new();
    let mut item = |href: &str, sign: &str, name: &str, note: &str| {
        let _ = write!(
            out,
            "<li><a href=\"{}\">{}{}<span class=\"m\">{}</span></a></li>",
            escaped(href),
            icon(sign),
            escaped(name),
            escaped(note)
        );
    };
    let places = [
        ("/sessions/new", "plus", t.launch_title()),
        ("/", "layout-dashboard", t.nav_overview()),
        ("/sessions", "square-terminal", t.nav_sessions()),
        ("/queue", "list-ordered", t.nav_queue()),
        ("/images", "package", t.nav_images()),
        ("/me", "user", t.nav_me()),
        ("/docs", "book-open", t.nav_docs()),
        ("/api/docs", "code-xml", t.nav_api()),
    ];
    for (href, sign, name) in places {
        if name.to_lowercase().contains(&q) {
            item(href, sign, name, "");
        }
    }
    // A half-typed query may be none yet; then nothing is found, which is true.
    let wanted = ListQuery {
        q: q.clone(),
        limit: Some(MAX_RESULTS),
        ..ListQuery::default()
    };
    if let Ok(page) = sessions::list(&console.server, &caller, &wanted).await {
        for session in page.items {
            let (_, state) = presenter::state(t, &session);
            item(
                &format!("/sessions/{}", session.id),
                "square-terminal",
                session.name.as_str(),
                state,
            );
        }
    }
    for hit in docs::hits(t, &q) {
        item(&hit.href, "book-open", &hit.title, &hit.text);
    }
    responses::html(&visit, StatusCode::OK, out)
}
