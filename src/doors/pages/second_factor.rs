//! `/me/second-factor`: the caller's second factor is set up, replaced and turned off; and the question before that of
//! a user is taken away. Secrets stand in the answer to the form that made them, and nowhere else.

use api::second_factor::{RecoveryCodes, SecondFactorOffer};
use askama::Template;
use axum::Router;
use axum::extract::{Form, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use rules::refusals;
use serde::Deserialize;
use server::access::{self, Caller};
use server::actions::users::second_factor;
use server::{Failure, Server};

use super::authentication::PageCaller;
use super::components::Alert;
use super::dialog::{self, DialogForm};
use super::form_faults::RefusedForm;
use super::layout::{AnnouncementBanner, Nav, PageLayout};
use super::request_context::RequestContext;
use super::responses::encoded;
use super::users::{PATH as USERS, failed, question};
use super::{PagesContext, components, layout, qr, responses};
use crate::doors::text::{Text, codes};

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/second_factor.html")]
pub struct SecondFactorPage {
    pub t: Text,
    pub f: PageLayout,
    pub alert: Option<Alert>,
    /// Name for the browser's own list of passwords.
    pub user: String,
    pub enabled: bool,
    /// The site demands one: it is replaced and not turned off.
    pub required: bool,
    pub since: String,
    pub left: String,
    /// A second factor that waits for its first code.
    pub offer: Option<OfferedKey>,
    /// New recovery codes, shown this once.
    pub codes: Vec<String>,
    /// Where a user who has no password proves at the identity provider who they are.
    pub again: Option<&'static str>,
}

pub struct OfferedKey {
    /// In groups of four.
    pub key: String,
    pub picture: String,
    pub ticket: String,
    pub until: String,
}

const PATH: &str = "/me/second-factor";
const CONFIRM: &str = "/me/second-factor/confirm";

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/me/second-factor", get(show).post(change))
        .route("/me/second-factor/confirm", post(confirm))
        .route("/users/{id}/second-factor", get(ask_reset).post(reset))
}

/// The banner for a user of whom the site demands a second factor from a time to come.
pub(super) fn demanded(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
) -> Option<AnnouncementBanner> {
    let due = caller.second_factor_due?;
    let key = format!("second-factor-{}", due.as_millis());
    let now = console.server.clock().now();
    (due > now).then(|| AnnouncementBanner {
        key,
        is_warning: true,
        seconds_left: None,
        text: visit.text.factor_demanded(visit.clock.date(due)),
        link: None,
    })
}

/// What the page shows beside the state.
#[derive(Default)]
struct Shown {
    alert: Option<Alert>,
    offer: Option<SecondFactorOffer>,
    codes: Vec<String>,
}

async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    answer(&console, &visit, &caller, StatusCode::OK, Shown::default()).await
}

async fn answer(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    status: StatusCode,
    shown: Shown,
) -> Response {
    let f = layout(console, visit, caller, Nav::Me);
    let known = match second_factor::show(&console.server, caller).await {
        Ok(known) => known,
        Err(failure) => return responses::failure(console, visit, Some(f), &failure),
    };
    let page = SecondFactorPage {
        t: visit.text,
        f,
        alert: shown.alert.or_else(|| {
            let now = console.server.clock().now();
            let first = caller.must_set_up_second_factor(now) && !known.enabled;
            first.then(|| Alert::warning(visit.text.factor_first_needed()))
        }),
        user: caller.name.to_string(),
        enabled: known.enabled,
        required: console.server.settings().requires_second_factor(),
        since: known
            .since
            .map_or_else(String::new, |since| visit.clock.date(since)),
        left: known.recovery_codes.to_string(),
        offer: shown.offer.map(|offer| OfferedKey {
            key: grouped(&offer.key),
            picture: qr::picture(&offer.address),
            ticket: offer.ticket,
            until: visit.clock.minute(offer.ends_at),
        }),
        codes: shown.codes,
        again: again(&console.server, caller),
    };
    responses::page(console, visit, status, &page)
}

/// Where the caller signs in once more; None for one with a password.
fn again(server: &Server, caller: &Caller) -> Option<&'static str> {
    if access::is_of_provider(server, caller) {
        return Some("/login/provider?again=1");
    }
    access::is_of_saml(server, caller).then_some("/login/saml?again=1")
}

/// `ABCD EFGH …`; apps leave the blanks out.
fn grouped(key: &str) -> String {
    let letters: Vec<char> = key.chars().collect();
    let groups = letters.chunks(4).map(|group| group.iter().collect());
    groups.collect::<Vec<String>>().join(" ")
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ProofForm {
    #[serde(rename = "do")]
    verb: String,
    password: String,
    code: String,
}

/// `POST /me/second-factor`: draws one, turns it off, or makes recovery codes.
async fn change(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(typed): Form<ProofForm>,
) -> Response {
    let (server, code) = (&console.server, Some(typed.code.as_str()));
    let done = match typed.verb.as_str() {
        "off" => match second_factor::turn_off(server, &caller, typed.password, code).await {
            Ok(()) => return responses::see("/me?notice=factor-off"),
            Err(failure) => Err(failure),
        },
        "codes" => second_factor::renew_recovery_codes(server, &caller, typed.password, code)
            .await
            .map(codes_shown),
        "replace" => second_factor::begin(server, &caller, typed.password, code)
            .await
            .map(|offer| Shown {
                offer: Some(offer),
                ..Shown::default()
            }),
        // Nothing that takes a code by mistake.
        _ => Err(refusals::page_unknown().into()),
    };
    match done {
        Ok(shown) => answer(&console, &visit, &caller, StatusCode::OK, shown).await,
        Err(failure) => refused(&console, &visit, &caller, PATH, &failure, None).await,
    }
}

fn codes_shown(made: RecoveryCodes) -> Shown {
    Shown {
        codes: made.codes,
        ..Shown::default()
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FirstCodeForm {
    ticket: String,
    code: String,
}

async fn confirm(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Form(typed): Form<FirstCodeForm>,
) -> Response {
    let server = &console.server;
    let made = second_factor::confirm(server, &caller, &typed.ticket, &typed.code).await;
    match made {
        Ok(made) => answer(&console, &visit, &caller, StatusCode::OK, codes_shown(made)).await,
        Err(failure) => {
            let offer = second_factor::offered(server, &caller, &typed.ticket);
            let offer = offer.ok().flatten();
            refused(&console, &visit, &caller, CONFIRM, &failure, offer).await
        }
    }
}

/// The page again with the fault at its field, or above where the form is gone.
async fn refused(
    console: &PagesContext,
    visit: &RequestContext,
    caller: &Caller,
    action: &str,
    failure: &Failure,
    offer: Option<SecondFactorOffer>,
) -> Response {
    let Failure::Refusal(refusal) = failure else {
        let f = layout(console, visit, caller, Nav::Me);
        return responses::failure(console, visit, Some(f), failure);
    };
    let gone = action == CONFIRM && offer.is_none();
    let (visit, alert) = match gone {
        true => (
            visit.clone(),
            Some(Alert::bad(codes::refusal(visit.text, refusal))),
        ),
        false => (
            visit.refusing(RefusedForm::new(visit.text, action, refusal)),
            None,
        ),
    };
    let shown = Shown {
        alert,
        offer,
        ..Shown::default()
    };
    answer(console, &visit, caller, responses::status(refusal), shown).await
}

/// `GET /users/{id}/second-factor`: what taking it away ends.
async fn ask_reset(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    let t = visit.text;
    let user = match second_factor::resettable(&console.server, &caller, &id).await {
        Ok(user) => user,
        Err(failure) => return failed(&console, &visit, &caller, &failure),
    };
    let title = t.factor_reset_title(user.name.as_str());
    let mut page = question(&console, &visit, &caller, title, t.factor_reset_lead());
    page.back = format!("{USERS}/{}", user.id);
    page.form = Some(DialogForm {
        action: format!("{USERS}/{}/second-factor", user.id),
        fields: Vec::new(),
        icon: "key-round",
        go: t.factor_reset().to_owned(),
        ends: true,
        force: None,
    });
    dialog::answer(&console, &visit, Nav::Users, page)
}

async fn reset(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
    Path(id): Path<String>,
) -> Response {
    match second_factor::reset(&console.server, &caller, &id).await {
        Ok(user) => {
            let place = format!("{USERS}/{}", encoded(user.name.as_str()));
            responses::see_with(&place, "factor-reset", user.name.as_str())
        }
        Err(failure) => failed(&console, &visit, &caller, &failure),
    }
}
