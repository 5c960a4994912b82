//! `/login/provider` leads a browser to the identity provider, and `/login/return` takes it back. Nothing of the request
//! but its peer and its cookies says where to: the addresses stand in the settings.

use std::net::IpAddr;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use rules::refusal::Refusal;
use serde::Deserialize;
use server::Failure;
use server::access::{
    self, ProviderOutcome, ProviderReturn, ProviderStart, SignInFrom, SignInStep,
};

use super::authentication::{self, OptionalPageCaller, PagePeer};
use super::components::Alert;
use super::login::{LoginCodePage, LoginPage, ProviderLink};
use super::request_context::RequestContext;
use super::{PagesContext, guest, responses, sign_ups};
use crate::doors::origin;
use crate::doors::peer::Encrypted;
use crate::doors::text::codes;

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/login/provider", get(begin))
        .route("/login/return", get(finish))
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct BeginQuery {
    pub next: String,
    /// Not empty: who is signed in proves anew who they are.
    pub again: String,
}

async fn begin(
    State(console): State<PagesContext>,
    visit: RequestContext,
    OptionalPageCaller(caller): OptionalPageCaller,
    PagePeer(peer): PagePeer,
    Query(asked): Query<BeginQuery>,
) -> Response {
    let again = caller.as_ref().filter(|_| !asked.again.is_empty());
    if caller.is_some() && again.is_none() {
        return responses::see(responses::own_place(&asked.next));
    }
    let next = responses::own_place(&asked.next).to_owned();
    let begun = access::begin_by_provider(&console.server, peer.address(), &next, again).await;
    match begun {
        Ok(start) => led(&visit, &start),
        Err(failure) => refused(&console, &visit, next, &failure),
    }
}

/// Leads a browser to a provider, with the cookie by which it is known when it comes back.
pub(super) fn led(visit: &RequestContext, start: &ProviderStart) -> Response {
    let mut response = responses::see(&start.to);
    let cookie = authentication::return_cookie(visit, &start.browser);
    response.headers_mut().append(header::SET_COOKIE, cookie);
    response
}

async fn finish(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PagePeer(peer): PagePeer,
    encrypted: Option<Extension<Encrypted>>,
    headers: HeaderMap,
    Query(returned): Query<ProviderReturn>,
) -> Response {
    let encrypted = encrypted.map(|Extension(encrypted)| encrypted);
    let (from, browser) = returning(&headers, encrypted, peer.address());
    let finished = access::finish_by_provider(&console.server, returned, browser, from).await;
    ended(&console, &visit, finished)
}

/// Where a browser comes back from, and the cookie by which it is known.
pub(super) fn returning(
    headers: &HeaderMap,
    encrypted: Option<Encrypted>,
    source: IpAddr,
) -> (SignInFrom<'_>, Option<&str>) {
    let from = SignInFrom {
        device: origin::device(headers, encrypted),
        agent: origin::agent(headers),
        ..source.into()
    };
    (from, origin::begun(headers, encrypted))
}

/// The answer to a browser that came back, with its cookie taken away.
pub(super) fn ended(
    console: &PagesContext,
    visit: &RequestContext,
    finished: Result<ProviderOutcome, Failure>,
) -> Response {
    let mut response = match finished {
        Ok(ProviderOutcome::ProvenAgain) => responses::see("/me/second-factor"),
        Ok(ProviderOutcome::SignedIn { step, next }) => match step {
            SignInStep::Done(signed_in) => {
                let response = responses::see(responses::own_place(&next));
                authentication::with_sign_in(console, visit, response, &signed_in)
            }
            SignInStep::CodeNeeded(ticket) => {
                let page = LoginCodePage {
                    t: visit.text,
                    f: guest(console, visit),
                    ticket,
                    next,
                    alert: None,
                    refused: false,
                };
                responses::page(console, visit, StatusCode::OK, &page)
            }
        },
        Err(failure) => refused(console, visit, "/".to_owned(), &failure),
    };
    let cookie = authentication::no_return_cookie(visit);
    response.headers_mut().append(header::SET_COOKIE, cookie);
    response
}

/// The sign-in page, with why the provider admitted nobody.
pub(super) fn refused(
    console: &PagesContext,
    visit: &RequestContext,
    next: String,
    failure: &Failure,
) -> Response {
    let refusal = match failure {
        Failure::Refusal(refusal) => refusal,
        Failure::Fault(_) => return responses::failure(console, visit, None, failure),
    };
    let page = LoginPage {
        t: visit.text,
        f: guest(console, visit),
        name: String::new(),
        providers: ProviderLink::to(&console.server, &next),
        next,
        refused: false,
        directory: access::asks_directory(&console.server),
        signs_up: sign_ups::is_open(console),
        alert: Some(alert(visit, refusal)),
    };
    let mut response = responses::page(console, visit, responses::status(refusal), &page);
    if let Some(seconds) = refusal.retry_after_seconds {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn alert(visit: &RequestContext, refusal: &Refusal) -> Alert {
    Alert::bad(codes::refusal(visit.text, refusal))
}
