//! Who looks at a page: the console's cookie, asked of `server::access`. A visitor without one is led to sign in,
//! or to setup while there is no user yet. Never says what they may do.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use rules::units::Timestamp;
use server::access::{self, Caller, NewSignIn};
use server::actions::sessions;

use super::request_context::{MenuCell, PageRequestId, RequestContext};
use super::{PagesContext, responses};
use crate::doors::origin::{self, BEGUN, COOKIES, DEVICES};
use crate::doors::peer::Peer;

/// A signed-in user.
pub struct PageCaller(pub Caller);

impl FromRequestParts<PagesContext> for PageCaller {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        console: &PagesContext,
    ) -> Result<Self, Response> {
        match prove(parts, console).await {
            Ok(Some(caller)) if caller.must_change_password && !is_open(parts.uri.path()) => {
                let visit = RequestContext::in_parts(parts);
                Err(led(&visit, "/me"))
            }
            Ok(Some(caller))
                if !caller.must_change_password
                    && caller.must_set_up_second_factor(console.server.clock().now())
                    && !sets_up_second_factor(parts.uri.path()) =>
            {
                let visit = RequestContext::in_parts(parts);
                Err(led(&visit, "/me/second-factor"))
            }
            Ok(Some(caller)) => {
                // So that the menu's number is of now. A fault shows on the page that reads the same rows.
                let _ = server::actions::attention::recount(&console.server, &caller).await;
                Ok(PageCaller(caller))
            }
            Ok(None) => Err(sign_in_first(parts, console)),
            Err(failure) => {
                let visit = RequestContext::in_parts(parts);
                Err(responses::failure(console, &visit, None, &failure))
            }
        }
    }
}

/// A signed-in user, or none.
pub struct OptionalPageCaller(pub Option<Caller>);

impl FromRequestParts<PagesContext> for OptionalPageCaller {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        console: &PagesContext,
    ) -> Result<Self, std::convert::Infallible> {
        Ok(OptionalPageCaller(
            prove(parts, console).await.ok().flatten(),
        ))
    }
}

/// The address at the other end, for limits on signing in.
pub struct PagePeer(pub Peer);

impl<S: Send + Sync> FromRequestParts<S> for PagePeer {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        _: &S,
    ) -> Result<Self, std::convert::Infallible> {
        Ok(PagePeer(peer(parts)))
    }
}

/// The other end of the connection. Unknown means somewhere else.
fn peer(parts: &Parts) -> Peer {
    let nowhere = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
    let known = parts.extensions.get::<Peer>().copied();
    known.unwrap_or(Peer::Tcp(nowhere))
}

async fn prove(parts: &Parts, console: &PagesContext) -> Result<Option<Caller>, server::Failure> {
    let Some(cookie) = origin::cookie(&parts.headers, &parts.extensions) else {
        return Ok(None);
    };
    let source = peer(parts).address();
    let mut caller = access::by_cookie(&console.server, cookie, source).await?;
    if let Some(caller) = &caller {
        crate::doors::admission::proven(&parts.extensions, caller.subject.user);
    }
    if let Some(caller) = &mut caller
        && caller.time_zone.is_empty()
    {
        // Until a user chooses a zone, theirs is that of the browser, in which the page shows times.
        let zone = RequestContext::in_parts(parts).clock.name().to_owned();
        caller.time_zone = zone;
    }
    if let (Some(caller), Some(id)) = (&mut caller, parts.extensions.get::<PageRequestId>()) {
        caller.request.clone_from(&id.0);
    }
    // A fragment has no menu.
    if let (Some(caller), Some(menu)) = (&caller, parts.extensions.get::<MenuCell>())
        && !parts.headers.contains_key("hx-request")
        && let Ok(counts) = sessions::menu_counts(&console.server, caller).await
    {
        menu.set(counts);
    }
    Ok(caller)
}

fn sign_in_first(parts: &Parts, console: &PagesContext) -> Response {
    let visit = RequestContext::in_parts(parts);
    let gate = if access::setup_open(&console.server) {
        "/setup".to_owned()
    } else {
        let back = page_of(parts, &visit.path);
        // Whoever sends a form or has a page open was signed in.
        let ended = visit.fragment || parts.method != Method::GET;
        let why = if ended { "&ended=1" } else { "" };
        format!("/login?next={}{why}", responses::encoded(&back))
    };
    led(&visit, &gate)
}

/// What is open to a user who has to choose their own password first.
fn is_open(path: &str) -> bool {
    ["/me", "/me/password", "/preferences", "/logout"].contains(&path)
}

/// What is open to a user who has to set up a second factor first, and owes no password: that one is chosen before.
fn sets_up_second_factor(path: &str) -> bool {
    let own = ["/me/second-factor", "/me/second-factor/confirm"];
    own.contains(&path) || (is_open(path) && path != "/me") || path == "/me/password"
}

fn led(visit: &RequestContext, gate: &str) -> Response {
    if !visit.fragment {
        return responses::see(gate);
    }
    // A fragment is no place for a form; the whole page goes there.
    let mut headers = HeaderMap::new();
    if let Ok(gate) = HeaderValue::try_from(gate) {
        headers.insert("hx-redirect", gate);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    (StatusCode::UNAUTHORIZED, headers).into_response()
}

/// The page to come back to: the one that was asked for, or the one whose form or fragment it was.
fn page_of(parts: &Parts, path: &str) -> String {
    if path.starts_with("/sessions/new") && parts.method != Method::GET {
        return "/sessions/new?draft=1".to_owned();
    }
    let fragment = parts.headers.contains_key("hx-request");
    if parts.method == Method::GET && !fragment {
        return path.to_owned();
    }
    let header = |name| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let place = header("referer")
        .and_then(|address| address.parse::<Uri>().ok())
        .filter(|address| address.authority().map(|host| host.as_str()) == header("host"))
        .and_then(|address| Some(address.path_and_query()?.to_string()));
    place.unwrap_or_else(|| "/".to_owned())
}

/// The answer with the cookies of a fresh sign-in.
pub(super) fn with_sign_in(
    console: &PagesContext,
    visit: &RequestContext,
    mut response: Response,
    signed_in: &NewSignIn,
) -> Response {
    let now = console.server.clock().now();
    let cookie = sign_in_cookie(visit, &signed_in.cookie, signed_in.ends_at, now);
    let device = device_cookie(visit, &signed_in.device);
    for cookie in [cookie, device] {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// The cookie of a fresh sign-in. Browsers keep it from scripts, from other sites, and
/// over TLS not to other hosts.
fn sign_in_cookie(
    visit: &RequestContext,
    value: &str,
    ends_at: Timestamp,
    now: Timestamp,
) -> HeaderValue {
    let seconds = ends_at.seconds_since(now);
    cookie(visit, COOKIES, value, seconds)
}

/// The cookie by which the browser is known again at the next sign-in. It stays after a sign-out.
fn device_cookie(visit: &RequestContext, value: &str) -> HeaderValue {
    cookie(visit, DEVICES, value, access::DEVICE_SECONDS)
}

/// Seconds that a browser has to come back from an identity provider; the server forgets it as soon.
const RETURN_SECONDS: u64 = 600;

/// The cookie by which a browser is known when it comes back from an identity provider.
pub(super) fn return_cookie(visit: &RequestContext, value: &str) -> HeaderValue {
    cookie(visit, BEGUN, value, RETURN_SECONDS)
}

/// Takes that cookie back.
pub(super) fn no_return_cookie(visit: &RequestContext) -> HeaderValue {
    cookie(visit, BEGUN, "", 0)
}

/// Takes the cookie back.
pub fn no_cookie(visit: &RequestContext) -> HeaderValue {
    cookie(visit, COOKIES, "", 0)
}

fn cookie(visit: &RequestContext, names: [&str; 2], value: &str, seconds: u64) -> HeaderValue {
    let (name, secure) = if visit.secure {
        (names[0], "; Secure")
    } else {
        (names[1], "")
    };
    HeaderValue::try_from(format!(
        "{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"
    ))
    .expect("cookies are base64url and numbers")
}
