//! `/login/saml` leads a browser to the identity provider of SAML, which posts its answer to `/login/saml/return`: the one
//! post that another site may send. It takes the answer in and signs nobody in; `/login/saml/finish` does, for the browser
//! that began and has its cookie.

use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Form, Router};
use rules::refusals;
use serde::Deserialize;
use server::access::{self, SamlPost};

use super::authentication::{OptionalPageCaller, PagePeer};
use super::provider::{self, BeginQuery};
use super::request_context::RequestContext;
use super::{PagesContext, responses};
use crate::doors::peer::Encrypted;

/// Where a browser is led on, which a page of ours says alone.
const FINISH: &str = "/login/saml/finish";

pub(super) fn router() -> Router<PagesContext> {
    Router::new()
        .route("/login/saml", get(begin))
        .route(access::SAML_RETURN, post(take))
        .route(FINISH, get(finish))
        .route(access::SAML_METADATA, get(metadata))
}

/// Whether a request may come from another site: the answer of a provider alone. What it proves is signed, and it acts for
/// no signed-in user.
pub(super) fn is_answer(method: &Method, path: &str) -> bool {
    *method == Method::POST && path == access::SAML_RETURN
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
    match access::begin_by_saml(&console.server, peer.address(), &next, again) {
        Ok(start) => provider::led(&visit, &start),
        Err(failure) => provider::refused(&console, &visit, next, &failure),
    }
}

async fn take(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PagePeer(peer): PagePeer,
    Form(posted): Form<SamlPost>,
) -> Response {
    let taken = access::take_saml_response(&console.server, posted, peer.address()).await;
    match taken {
        Ok(state) => responses::see(&format!("{FINISH}?state={}", responses::encoded(&state))),
        Err(failure) => provider::refused(&console, &visit, "/".to_owned(), &failure),
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FinishQuery {
    state: String,
}

async fn finish(
    State(console): State<PagesContext>,
    visit: RequestContext,
    PagePeer(peer): PagePeer,
    encrypted: Option<Extension<Encrypted>>,
    headers: HeaderMap,
    Query(asked): Query<FinishQuery>,
) -> Response {
    let encrypted = encrypted.map(|Extension(encrypted)| encrypted);
    let (from, browser) = provider::returning(&headers, encrypted, peer.address());
    let finished = access::finish_by_saml(&console.server, &asked.state, browser, from).await;
    provider::ended(&console, &visit, finished)
}

/// What this site says of itself to the provider.
async fn metadata(State(console): State<PagesContext>, visit: RequestContext) -> Response {
    let Some(text) = access::saml_metadata(&console.server) else {
        return responses::refused(&console, &visit, None, &refusals::provider_none());
    };
    let kind = HeaderValue::from_static("application/samlmetadata+xml");
    let mut response = (StatusCode::OK, text).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
