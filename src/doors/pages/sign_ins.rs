//! Browsers that are signed in, as lists of `/me` and of a user's page show them, and the buttons that end them.

use api::users::SignInView;
use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::post;
use rules::refusals;
use rules::units::Timestamp;
use server::Failure;
use server::actions::users;
use uuid::Uuid;

use super::authentication::PageCaller;
use super::layout::Nav;
use super::request_context::RequestContext;
use super::responses::encoded;
use super::users::{PATH as USERS, failed};
use super::{PagesContext, layout, responses};

/// A browser that is signed in.
pub struct SignInRow {
    pub source: String,
    /// `Firefox, Windows`, or empty.
    pub browser: String,
    pub since: String,
    pub used: String,
    pub own: bool,
    /// Where the form that ends it goes; empty for the browser that looks.
    pub end: String,
}

/// The rows of a list; `path` is of whose sign-ins they are.
pub(super) fn rows(
    visit: &RequestContext,
    path: &str,
    sign_ins: &[SignInView],
    now: Timestamp,
) -> Vec<SignInRow> {
    let row = |one: &SignInView| SignInRow {
        source: one.source.clone(),
        browser: one.browser.clone(),
        since: visit.clock.date(one.created_at),
        used: visit.clock.ago(one.used_at, now),
        own: one.current,
        end: match one.current {
            true => String::new(),
            false => format!("{path}/sign-ins/{}/end", one.id),
        },
    };
    sign_ins.iter().map(row).collect()
}

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/me/sign-ins/{sign_in}/end", post(end))
        .route("/users/{id}/sign-ins/{sign_in}/end", post(end_of))
}

async fn end(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let ended = match Uuid::parse_str(&id) {
        Ok(id) => users::end_sign_in(&console.server, &caller, id).await,
        Err(_) => Err(refusals::sign_in_not_found().into()),
    };
    match ended {
        Ok(()) => responses::see("/me?notice=sign-in-ended"),
        Err(failure) => {
            let f = layout(&console, &visit, &caller, Nav::Me);
            responses::failure(&console, &visit, Some(f), &failure)
        }
    }
}

async fn end_of(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path((user, id)): Path<(String, String)>,
) -> Response {
    let ended: Result<(), Failure> = match Uuid::parse_str(&id) {
        Ok(id) => users::end_sign_in_of(&console.server, &caller, &user, id).await,
        Err(_) => Err(refusals::sign_in_not_found().into()),
    };
    match ended {
        Ok(()) => {
            let place = format!("{USERS}/{}", encoded(&user));
            responses::see_with(&place, "sign-in-ended", "")
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
