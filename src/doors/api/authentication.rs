//! Who calls the API: a token or a signature in `Authorization`, the cookie of a browser on our own page, or root on
//! the local socket. Never says what they may do.

use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, header};
use rules::permissions::Subject;
use rules::refusals;
use server::access::{self, Caller};

use super::ApiContext;
use super::backend_ai::signing;
use super::request_id::RequestId;
use crate::doors::admission;
use crate::doors::origin;
use crate::doors::peer::Peer;
use crate::doors::problem::ProblemResponse;

/// A request whose body took longer is proven again: meanwhile its token may have been revoked, or its user
/// suspended. Longer: what was revoked acts as long. Shorter: ordinary requests are proven twice.
const PROOF_TIMEOUT: Duration = Duration::from_secs(1);

/// The proven caller of a request.
pub(super) struct ApiCaller(pub(super) Caller);

/// Whose request it is, and since when that is proven.
#[derive(Clone)]
struct Proven {
    subject: Subject,
    at: Instant,
}

/// Proves once more a caller whose body was on its way for long. To be called when all of it is there; does
/// nothing for a request that needs no caller.
///
/// Errors: those of proving; `token.invalid` where the same token or cookie now gives other rights.
pub(super) async fn prove_again(api: &ApiContext, parts: &Parts) -> Result<(), ProblemResponse> {
    let Some(before) = parts.extensions.get::<Proven>() else {
        return Ok(());
    };
    if before.at.elapsed() < PROOF_TIMEOUT {
        return Ok(());
    }
    let caller = prove(api, parts, peer(parts)).await?;
    if caller.subject == before.subject {
        return Ok(());
    }
    Err(refusals::token_changed().into())
}

impl FromRequestParts<ApiContext> for ApiCaller {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        api: &ApiContext,
    ) -> Result<Self, ProblemResponse> {
        let peer = peer(parts);
        let mut caller = prove(api, parts, peer).await?;
        admission::proven(&parts.extensions, caller.subject.user);
        if caller.must_change_password && !is_open(parts.uri.path()) {
            return Err(refusals::password_change_needed().into());
        }
        if caller.must_set_up_second_factor(api.server.clock().now())
            && !sets_up_second_factor(parts.uri.path())
        {
            return Err(refusals::second_factor_set_up_needed().into());
        }
        parts.extensions.insert(Proven {
            subject: caller.subject.clone(),
            at: Instant::now(),
        });
        caller.request = parts
            .extensions
            .get::<RequestId>()
            .map(|id| id.0.clone())
            .unwrap_or_default();
        Ok(Self(caller))
    }
}

/// What is open to a user who has to choose their own password first.
fn is_open(path: &str) -> bool {
    ["/me", "/me/password"].contains(&path.strip_prefix("/api/v1").unwrap_or(path))
}

/// What is open to a user who has to set up a second factor first.
fn sets_up_second_factor(path: &str) -> bool {
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    is_open(path) || ["/me/second-factor", "/me/second-factor/confirm"].contains(&path)
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
    peer_of(&parts.extensions)
}

pub(super) fn peer_of(extensions: &Extensions) -> Peer {
    let nowhere = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
    extensions
        .get::<Peer>()
        .copied()
        .unwrap_or(Peer::Tcp(nowhere))
}

async fn prove(api: &ApiContext, parts: &Parts, peer: Peer) -> Result<Caller, ProblemResponse> {
    if signing::is_signed(&parts.headers) {
        let signed = signing::read(parts).ok_or_else(refusals::key_signature_wrong)?;
        return Ok(access::by_signature(&api.server, &signed, peer.address()).await?);
    }
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
        return caller.ok_or_else(|| refusals::token_invalid().into());
    }
    if let Some(cookie) = origin::cookie(&parts.headers, &parts.extensions) {
        origin::check(&parts.method, &parts.headers)?;
        if let Some(caller) = access::by_cookie(&api.server, cookie, peer.address()).await? {
            return Ok(caller);
        }
    }
    if peer == (Peer::Local { trusted: true }) {
        return Ok(access::local_root(&api.server));
    }
    Err(refusals::sign_in_needed().into())
}
