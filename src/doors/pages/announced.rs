//! What holds now for a reader: the banners above every page, and `/announcements/current`, all of them on one page. Who
//! has not signed in reads what is shown before that.

use api::announcements::AnnouncementView;
use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use rules::announcement::AnnouncementLevel;
use rules::units::Timestamp;
use server::access::Caller;
use server::actions::announcements;

use super::announcements::in_language;
use super::authentication::OptionalPageCaller;
use super::components;
use super::layout::{AnnouncementBanner, Nav, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, guest, layout, responses};
use crate::doors::text::Text;

/// Banners above a page; the others are behind a link. Higher: on a phone the page begins below the screen. Lower: of a
/// day with two warnings one is not seen.
const SHOWN: usize = 3;

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/announced.html")]
pub struct AnnouncedPage {
    pub t: Text,
    pub f: PageLayout,
    pub all: Vec<AnnouncedRow>,
}

/// The same without a menu, before sign-in.
#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/announced_bare.html")]
pub struct BareAnnouncedPage {
    pub t: Text,
    pub f: PageLayout,
    pub all: Vec<AnnouncedRow>,
}

/// One announcement among all.
pub struct AnnouncedRow {
    pub banner: AnnouncementBanner,
    /// From when, and until when where that is known.
    pub when: String,
    /// The reader closed its banner.
    pub is_closed: bool,
}

/// The banners above a page, and how many more hold.
pub(super) struct Banners {
    pub(super) shown: Vec<AnnouncementBanner>,
    pub(super) more: usize,
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new().route("/announcements/current", get(show))
}

/// What holds now for the reader and was not closed by them: warnings first, then the latest beginning.
pub(super) fn banners(
    console: &PagesContext,
    visit: &RequestContext,
    caller: Option<&Caller>,
) -> Banners {
    let all = rows(console, visit, caller).into_iter();
    let open = all.filter(|row| !row.is_closed);
    let mut shown: Vec<AnnouncementBanner> = open.map(|row| row.banner).collect();
    let more = shown.len().saturating_sub(SHOWN);
    shown.truncate(SHOWN);
    Banners { shown, more }
}

fn rows(
    console: &PagesContext,
    visit: &RequestContext,
    caller: Option<&Caller>,
) -> Vec<AnnouncedRow> {
    let now = console.server.clock().now();
    let all = announcements::around(&console.server, caller).into_iter();
    all.map(|one| row(visit, one, now)).collect()
}

fn row(visit: &RequestContext, one: AnnouncementView, now: Timestamp) -> AnnouncedRow {
    let key = key(&one);
    let from = visit.clock.date(one.from);
    AnnouncedRow {
        when: match one.until {
            Some(until) => format!("{from} – {}", visit.clock.date(until)),
            None => visit.text.event_from(from),
        },
        is_closed: visit.closed.split('.').any(|closed| closed == key),
        banner: AnnouncementBanner {
            key,
            is_warning: one.level == AnnouncementLevel::Warning,
            // Rounded up: an open page must not drop it before the next one does.
            seconds_left: one
                .until
                .map(|until| until.millis_since(now).div_ceil(1000)),
            text: in_language(visit.text, one),
            link: None,
        },
    }
}

/// Short, for a cookie. Another version of the text has another key: who closed the one sees the other.
fn key(one: &AnnouncementView) -> String {
    let id = one.id.simple().to_string();
    format!("{}-{}", &id[20..], one.generation)
}

/// `GET /announcements/current`
async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    OptionalPageCaller(caller): OptionalPageCaller,
) -> Response {
    let t = visit.text;
    let all = rows(&console, &visit, caller.as_ref());
    // They stand in the page, and not above it as well.
    let alone = |f: PageLayout| PageLayout {
        announcements: Vec::new(),
        more_announcements: 0,
        ..f
    };
    match caller {
        Some(caller) => {
            let f = alone(layout(&console, &visit, &caller, Nav::Nowhere));
            responses::page(
                &console,
                &visit,
                StatusCode::OK,
                &AnnouncedPage { t, f, all },
            )
        }
        None => {
            let f = alone(guest(&console, &visit));
            let page = BareAnnouncedPage { t, f, all };
            responses::page(&console, &visit, StatusCode::OK, &page)
        }
    }
}
