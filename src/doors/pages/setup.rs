//! `/setup`: the one-time code makes the first administrator.

use askama::Template;
use axum::Form;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use rules::refusals;
use serde::Deserialize;
use server::actions::installation;
use server::{Failure, access};

use super::authentication::{self, OptionalPageCaller, PagePeer};
use super::components::{self, Alert};
use super::layout::PageLayout;
use super::request_context::RequestContext;
use super::{PagesContext, guest, responses, wizard};
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/setup.html")]
pub struct SetupPage {
    pub t: Text,
    pub f: PageLayout,
    pub code: String,
    pub name: String,
    /// The fewest characters a password may have.
    pub shortest: usize,
    /// No form, only the alert: set up already, or the code is too old.
    pub closed: bool,
    pub alert: Option<Alert>,
}

/// The fewest characters of a password; `server::access` refuses shorter ones, this only says it first.
pub const MIN_PASSWORD: usize = 10;

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct SetupQuery {
    code: String,
}

/// `GET /setup`, with the code of the printed link.
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    OptionalPageCaller(caller): OptionalPageCaller,
    Query(asked): Query<SetupQuery>,
) -> Response {
    let closed = !access::setup_open(&console.server);
    if closed
        && let Some(caller) = &caller
        && let Some(place) = wizard::open_place(&console, caller).await
    {
        return responses::see(place);
    }
    let alert = closed.then(|| Alert::warning(visit.text.setup_done()));
    let status = if closed {
        StatusCode::GONE
    } else {
        StatusCode::OK
    };
    form(
        &console,
        &visit,
        status,
        asked.code,
        String::new(),
        closed,
        alert,
    )
}

fn form(
    console: &PagesContext,
    visit: &RequestContext,
    status: StatusCode,
    code: String,
    name: String,
    closed: bool,
    alert: Option<Alert>,
) -> Response {
    let page = SetupPage {
        t: visit.text,
        f: guest(console, visit),
        code,
        name,
        shortest: MIN_PASSWORD,
        closed,
        alert,
    };
    responses::page(console, visit, status, &page)
}

#[derive(Deserialize)]
pub struct SetupForm {
    #[serde(default)]
    code: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    again: String,
}

/// `POST /setup`
pub async fn submit(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PagePeer(peer): PagePeer,
    Form(typed): Form<SetupForm>,
) -> Response {
    let t = visit.text;
    let made = if typed.password == typed.again {
        access::set_up(
            &console.server,
            &typed.code,
            typed.name.trim(),
            typed.password,
            peer.address(),
        )
        .await
    } else {
        Err(refusals::password_differs_on_page(t.setup_differ()).into())
    };
    let refusal = match made {
        Ok(signed_in) => {
            let now = console.server.clock().now();
            // Without its record the wizard is only not taken up again.
            if let Err(failure) = installation::begin(&console.server) {
                tracing::warn!(error = %failure, "the progress of the wizard could not be saved");
            }
            let mut response = responses::see("/setup/time");
            let cookie =
                authentication::sign_in_cookie(&visit, &signed_in.cookie, signed_in.ends_at, now);
            response.headers_mut().append(header::SET_COOKIE, cookie);
            let device = authentication::device_cookie(&visit, &signed_in.device);
            response.headers_mut().append(header::SET_COOKIE, device);
            return response;
        }
        Err(Failure::Refusal(refusal)) => refusal,
        Err(fault) => return responses::failure(&console, &visit, None, &fault),
    };
    let closed = matches!(
        refusal.code.as_str(),
        rules::codes::SETUP_DONE | rules::codes::SETUP_CODE_EXPIRED
    );
    let alert = match refusal.code.as_str() {
        rules::codes::SETUP_DONE => Alert::warning(t.setup_done()),
        rules::codes::SETUP_CODE_EXPIRED => Alert::warning(t.setup_expired()),
        rules::codes::SETUP_CODE_WRONG => Alert::bad(t.setup_wrong()),
        _ => Alert::bad(codes::refusal(t, &refusal)),
    };
    form(
        &console,
        &visit,
        responses::status(&refusal),
        typed.code,
        typed.name,
        closed,
        Some(alert),
    )
}
