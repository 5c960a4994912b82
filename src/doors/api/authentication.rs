//! Who calls the API: a token in `Authorization`, the cookie of a browser on our own page, or root on
//! the local socket. Never says what they may do.

use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use rules::refusal::Refusal;
use server::access::{self, Caller};

use super::ApiContext;
use super::middleware::RequestId;
use crate::doors::admission;
use crate::doors::origin;
use crate::doors::peer::Peer;
use crate::doors::problem::ProblemResponse;

/// The proven caller of a request.
pub(super) struct ApiCaller(pub(super) Caller);

impl FromRequestParts<ApiContext> for ApiCaller {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        api: &ApiContext,
    ) -> Result<Self, ProblemResponse> {
        let peer = peer(parts);
        let mut caller = prove(api, parts, peer).await?;
        admission::proven(&parts.extensions, caller.subject.user);
        caller.request = parts
            .extensions
            .get::<RequestId>()
            .map(|id| id.0.clone())
            .unwrap_or_default();
        Ok(Self(caller))
    }
}

/// The other end of the connection. Unknown means somewhere else.
pub(super) struct ApiPeer(pub(super) Peer);

impl<S: Send + Sync> FromRequestParts<S> for ApiPeer {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        _: &S,
    ) -> Result<Self, std::convert::Infallible> {
        Ok(Self(peer(parts)))
    }
}

fn peer(parts: &Parts) -> Peer {
    let nowhere = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
    parts
        .extensions
        .get::<Peer>()
        .copied()
        .unwrap_or(Peer::Tcp(nowhere))
}

async fn prove(api: &ApiContext, parts: &Parts, peer: Peer) -> Result<Caller, ProblemResponse> {
    if let Some(given) = parts.headers.get(header::AUTHORIZATION) {
        let token = given
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim());
        let caller = match token {
            Some(token) => access::by_token(&api.server, token, peer.address()).await?,
            None => None,
        };
        return caller.ok_or_else(|| {
            Refusal::unauthenticated(
                "token.invalid",
                "This token is unknown, expired or revoked.",
            )
            .hint("Sign in again with `fardel login`, or make a new token.")
            .into()
        });
    }
    if let Some(cookie) = origin::cookie(&parts.headers, &parts.extensions) {
        origin::check(&parts.method, &parts.headers)?;
        if let Some(caller) = access::by_cookie(&api.server, cookie).await? {
            return Ok(caller);
        }
    }
    if peer == (Peer::Local { trusted: true }) {
        return Ok(access::local_root(&api.server));
    }
    Err(
        Refusal::unauthenticated("sign-in.needed", "This request is not signed in.")
            .hint("Send a token (Authorization: Bearer …), or sign in with `fardel login`.")
            .into(),
    )
}
