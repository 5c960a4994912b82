//! `/setup`: the one-time code makes the first administrator.

use askama::Template;
use axum::Form;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use rules::refusal::Refusal;
use serde::Deserialize;
use server::access::SignInFrom;
use server::actions::installation;
use server::{Failure, access};

use super::authentication::{self, OptionalPageCaller, PagePeer};
use super::components::{self, Alert, FormFieldError};
use super::form_faults::RefusedForm;
use super::layout::{Attribute, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, guest, responses, wizard};
use crate::doors::origin;
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
    /// A field was refused: it has the focus.
    pub refused: bool,
}

impl SetupPage {
    /// The focus for the first empty field of a form that was not refused.
    fn focus(&self, field: &str) -> Attribute {
        let first = match (self.code.is_empty(), self.name.is_empty()) {
            (true, _) => "code",
            (false, true) => "name",
            (false, false) => "password",
        };
        Attribute::focus(!self.refused && field == first)
    }
}

/// What a form comes back with.
#[derive(Default)]
struct Outcome {
    code: String,
    name: String,
    closed: bool,
    alert: Option<Alert>,
    faults: Vec<FormFieldError>,
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
    let outcome = Outcome {
        code: asked.code,
        closed,
        alert,
        ..Outcome::default()
    };
    form(&console, &visit, status, outcome)
}

fn form(
    console: &PagesContext,
    visit: &RequestContext,
    status: StatusCode,
    outcome: Outcome,
) -> Response {
    let refused = !outcome.faults.is_empty();
    let visit = &match refused {
        true => visit.refusing(RefusedForm::with_faults("/setup", outcome.faults)),
        false => visit.clone(),
    };
    let page = SetupPage {
        t: visit.text,
        f: guest(console, visit),
        code: outcome.code,
        name: outcome.name,
        shortest: MIN_PASSWORD,
        closed: outcome.closed,
        alert: outcome.alert,
        refused,
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

/// What can be said of the fields before anything is tried, all of it at once.
fn seen(t: Text, typed: &SetupForm) -> Vec<FormFieldError> {
    let mut faults = Vec::new();
    let mut tell = |field: &str, message: String| faults.push(FormFieldError::new(field, message));
    if typed.code.trim().is_empty() {
        tell("code", t.setup_code_missing().to_owned());
    }
    if typed.name.trim().is_empty() {
        tell("name", t.login_name_missing().to_owned());
    }
    if typed.password.chars().count() < MIN_PASSWORD {
        tell("password", t.setup_password_short().to_owned());
    }
    if typed.password != typed.again {
        tell("again", t.setup_differ().to_owned());
    }
    faults
}

/// The field that a refusal is about; none for one that is about the whole form.
fn field(refusal: &Refusal) -> Option<&'static str> {
    match refusal.code.split(['.', '-']).next()? {
        "password" => Some("password"),
        "user" => Some("name"),
        _ => None,
    }
}

/// `POST /setup`
pub async fn submit(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PagePeer(peer): PagePeer,
    headers: HeaderMap,
    Form(typed): Form<SetupForm>,
) -> Response {
    let t = visit.text;
    let faults = seen(t, &typed);
    // A machine that is set up says so, whatever was typed.
    if !faults.is_empty() && access::setup_open(&console.server) {
        let outcome = Outcome {
            code: typed.code,
            name: typed.name,
            faults,
            ..Outcome::default()
        };
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return form(&console, &visit, status, outcome);
    }
    let from = SignInFrom {
        agent: origin::agent(&headers),
        ..peer.address().into()
    };
    let made = access::set_up(
        &console.server,
        &typed.code,
        typed.name.trim(),
        typed.password,
        from,
    )
    .await;
    let refusal = match made {
        Ok(signed_in) => {
            // Without its record the wizard is only not taken up again.
            if let Err(failure) = installation::begin(&console.server) {
                tracing::warn!(error = %failure, "the progress of the wizard could not be saved");
            }
            let response = responses::see("/setup/time");
            return authentication::with_sign_in(&console, &visit, response, &signed_in);
        }
        Err(Failure::Refusal(refusal)) => refusal,
        Err(fault) => return responses::failure(&console, &visit, None, &fault),
    };
    let closed = matches!(
        refusal.code.as_str(),
        rules::codes::SETUP_DONE | rules::codes::SETUP_CODE_EXPIRED
    );
    let mut outcome = Outcome {
        code: typed.code,
        name: typed.name,
        closed,
        ..Outcome::default()
    };
    match refusal.code.as_str() {
        rules::codes::SETUP_DONE => outcome.alert = Some(Alert::warning(t.setup_done())),
        rules::codes::SETUP_CODE_EXPIRED => {
            outcome.alert = Some(Alert::warning(t.setup_expired()));
        }
        rules::codes::SETUP_CODE_WRONG => {
            outcome.faults = vec![FormFieldError::new("code", t.setup_wrong())];
        }
        _ => {
            let said = codes::refusal(t, &refusal);
            match field(&refusal) {
                Some(field) => outcome.faults = vec![FormFieldError::new(field, said)],
                None => outcome.alert = Some(Alert::bad(said)),
            }
        }
    }
    form(&console, &visit, responses::status(&refusal), outcome)
}
