//! `/login`, its second step, and `/logout`.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::{Extension, Form};
use rules::refusal::Refusal;
use serde::Deserialize;
use server::access::{SignInFrom, SignInStep};
use server::{Failure, Server, access};

use super::authentication::{self, OptionalPageCaller, PageCaller, PagePeer};
use super::components::{self, Alert, FormFieldError};
use super::form_faults::RefusedForm;
use super::layout::{Attribute, PageLayout};
use super::request_context::RequestContext;
use super::{PagesContext, guest, responses, sign_ups};
use crate::doors::origin;
use crate::doors::peer::Encrypted;
use crate::doors::text::{Text, codes};

/// The link of sign-in pages to a provider.
pub struct ProviderLink {
    pub name: String,
    pub href: String,
}

impl ProviderLink {
    /// Empty where no provider is set. Asks no provider, so that a dead one keeps no page back.
    pub(super) fn to(server: &Server, next: &str) -> Vec<Self> {
        let doors = [
            ("/login/provider", access::provider_name(server)),
            ("/login/saml", access::saml_name(server)),
        ];
        let next = responses::encoded(next);
        doors
            .into_iter()
            .filter_map(|(door, name)| {
                let href = format!("{door}?next={next}");
                name.map(|name| Self { name, href })
            })
            .collect()
    }
}

#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/login.html")]
pub struct LoginPage {
    pub t: Text,
    pub f: PageLayout,
    pub name: String,
    /// Where the user wanted to go.
    pub next: String,
    pub alert: Option<Alert>,
    /// A field was refused: it has the focus.
    pub refused: bool,
    /// Users of a directory sign in here too.
    pub directory: bool,
    /// Some domain lets strangers ask for an account.
    pub signs_up: bool,
    pub providers: Vec<ProviderLink>,
}

impl LoginPage {
    /// The focus for the first empty field of a form that was not refused.
    fn focus(&self, field: &str) -> Attribute {
        let first = if self.name.is_empty() {
            "name"
        } else {
            "password"
        };
        Attribute::focus(!self.refused && field == first)
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct SignInQuery {
    next: String,
    /// Not empty: the sign-in ended while a page was open.
    ended: String,
}

/// `GET /login`
pub async fn show(
    State(console): State<PagesContext>,
    visit: RequestContext,
    OptionalPageCaller(caller): OptionalPageCaller,
    Query(asked): Query<SignInQuery>,
) -> Response {
    if caller.is_some() {
        return responses::see(responses::own_place(&asked.next));
    }
    if access::setup_open(&console.server) {
        return responses::see("/setup");
    }
    let page = LoginPage {
        t: visit.text,
        f: guest(&console, &visit),
        name: String::new(),
        providers: ProviderLink::to(&console.server, &asked.next),
        next: asked.next,
        refused: false,
        directory: access::asks_directory(&console.server),
        signs_up: sign_ups::is_open(&console),
        alert: (!asked.ended.is_empty()).then(|| {
            Alert::warning(visit.text.login_ended()).detail(visit.text.login_ended_lead())
        }),
    };
    responses::page(&console, &visit, StatusCode::OK, &page)
}

#[derive(Deserialize)]
pub struct SignInForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    next: String,
}

/// `POST /login`
pub async fn submit(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PagePeer(peer): PagePeer,
    encrypted: Option<Extension<Encrypted>>,
    headers: HeaderMap,
    Form(typed): Form<SignInForm>,
) -> Response {
    let t = visit.text;
    let again = |typed: SignInForm, alert, faults: Vec<FormFieldError>, status| {
        let refused = !faults.is_empty();
        let visit = match refused {
            true => visit.refusing(RefusedForm::with_faults("/login", faults)),
            false => visit.clone(),
        };
        let page = LoginPage {
            t,
            f: guest(&console, &visit),
            name: typed.name,
            providers: ProviderLink::to(&console.server, &typed.next),
            next: typed.next,
            alert,
            refused,
            directory: access::asks_directory(&console.server),
            signs_up: sign_ups::is_open(&console),
        };
        responses::page(&console, &visit, status, &page)
    };
    let mut missing = Vec::new();
    if typed.name.trim().is_empty() {
        missing.push(FormFieldError::new("name", t.login_name_missing()));
    }
    if typed.password.is_empty() {
        missing.push(FormFieldError::new("password", t.login_password_missing()));
    }
    if !missing.is_empty() {
        return again(typed, None, missing, StatusCode::UNPROCESSABLE_ENTITY);
    }
    let encrypted = encrypted.map(|Extension(encrypted)| encrypted);
    let from = SignInFrom {
        device: origin::device(&headers, encrypted),
        agent: origin::agent(&headers),
        ..peer.address().into()
    };
    let (name, password) = (typed.name.trim(), typed.password.clone());
    let refusal = match access::begin_sign_in(&console.server, name, password, from).await {
        Ok(SignInStep::CodeNeeded(ticket)) => {
            let page = LoginCodePage {
                t,
                f: guest(&console, &visit),
                ticket,
                next: typed.next,
                alert: None,
                refused: false,
            };
            return responses::page(&console, &visit, StatusCode::OK, &page);
        }
        Ok(SignInStep::Done(signed_in)) => {
            let response = responses::see(responses::own_place(&typed.next));
            return authentication::with_sign_in(&console, &visit, response, &signed_in);
        }
        Err(Failure::Refusal(refusal)) => refusal,
        Err(fault) => return responses::failure(&console, &visit, None, &fault),
    };
    let (alert, faults) = match (refusal.code.as_str(), refusal.retry_after_seconds) {
        (rules::codes::SIGN_IN_WRONG, _) => {
            let wrong = FormFieldError::new("password", t.login_wrong());
            (None, vec![wrong])
        }
        (rules::codes::SIGN_IN_LOCKED, Some(seconds)) => {
            (Some(locked(&console, &visit, seconds)), Vec::new())
        }
        _ => (Some(Alert::bad(codes::refusal(t, &refusal))), Vec::new()),
    };
    let response = again(typed, alert, faults, responses::status(&refusal));
    waiting(response, &refusal)
}

fn locked(console: &PagesContext, visit: &RequestContext, seconds: u64) -> Alert {
    let until = console.server.clock().now().plus_seconds(seconds);
    Alert::warning(visit.text.login_locked(visit.clock.second(until)))
}

/// The answer with the time after which another try is looked at.
fn waiting(mut response: Response, refusal: &Refusal) -> Response {
    if let Some(seconds) = refusal.retry_after_seconds {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// The second step: the password was right, and the account has a second factor.
#[derive(Template)]
#[template(config = "web/askama.toml", path = "pages/login_code.html")]
pub struct LoginCodePage {
    pub t: Text,
    pub f: PageLayout,
    /// Proves the first step for some minutes.
    pub ticket: String,
    pub next: String,
    pub alert: Option<Alert>,
    pub refused: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct CodeForm {
    ticket: String,
    code: String,
    next: String,
}

/// `POST /login/code`
pub async fn submit_code(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PagePeer(peer): PagePeer,
    encrypted: Option<Extension<Encrypted>>,
    headers: HeaderMap,
    Form(typed): Form<CodeForm>,
) -> Response {
    let t = visit.text;
    let from = SignInFrom {
        device: origin::device(&headers, encrypted.map(|Extension(encrypted)| encrypted)),
        agent: origin::agent(&headers),
        ..peer.address().into()
    };
    let signed_in = access::finish_sign_in(&console.server, &typed.ticket, &typed.code, from);
    let refusal = match signed_in.await {
        Ok(signed_in) => {
            let response = responses::see(responses::own_place(&typed.next));
            return authentication::with_sign_in(&console, &visit, response, &signed_in);
        }
        Err(Failure::Refusal(refusal)) => refusal,
        Err(fault) => return responses::failure(&console, &visit, None, &fault),
    };
    let status = responses::status(&refusal);
    let at_code = refusal.pointer.as_deref() == Some("/code");
    let alert = match refusal.retry_after_seconds {
        _ if at_code => None,
        Some(seconds) => Some(locked(&console, &visit, seconds).detail(t.factor_step_locked())),
        None => Some(Alert::bad(codes::refusal(t, &refusal))),
    };
    // Nothing but a new sign-in helps where the first step proves nothing any more.
    if !at_code && refusal.retry_after_seconds.is_none() {
        let page = LoginPage {
            t,
            f: guest(&console, &visit),
            name: String::new(),
            providers: ProviderLink::to(&console.server, &typed.next),
            next: typed.next,
            alert,
            refused: false,
            directory: access::asks_directory(&console.server),
            signs_up: sign_ups::is_open(&console),
        };
        return responses::page(&console, &visit, status, &page);
    }
    let visit = match at_code {
        true => visit.refusing(RefusedForm::new(t, "/login/code", &refusal)),
        false => visit,
    };
    let page = LoginCodePage {
        t,
        f: guest(&console, &visit),
        ticket: typed.ticket,
        next: typed.next,
        alert,
        refused: at_code,
    };
    waiting(responses::page(&console, &visit, status, &page), &refusal)
}

/// `POST /logout`
pub async fn leave(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PageCaller(caller): PageCaller,
) -> Response {
    if let Err(failure) = access::sign_out(&console.server, &caller).await {
        return responses::failure(&console, &visit, None, &failure);
    }
    let mut response = responses::see("/login?notice=out");
    response
        .headers_mut()
        .append(header::SET_COOKIE, authentication::no_cookie(&visit));
    response
}
