//! The origins of apps: leads browsers and programs into a port of a session. Checks each request against the origin that
//! it came to, takes a ticket of the console for a cookie, and passes on what is not ours. Never learns which machine
//! answers, and decides nothing about who may enter.

mod carry;
mod cookies;
mod headers;
pub mod listeners;
mod passes;
mod refused;
mod visits;

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use base::link::streams::Streams;
use futures_util::FutureExt as _;
use rules::app::{is_path, query_value};
use rules::app_origin::{
    AppRequest, OWN_PATHS, app_of_host, console_host, cookie_value, entry_cookie,
};
use rules::app_port::AppPort;
use rules::refusals;
use rules::units::Timestamp;
use server::Server;
use server::access::{self, APP_COOKIE_SECONDS, AppPass, Via};
use server::routes;
use tower::ServiceExt as _;

use super::admission;
use super::listener::ServesApps;
use super::origin;
use super::peer::{Encrypted, OwnPort, Peer};
use super::problem::{ProblemResponse, RefusalReader};
use cookies::AppCookies;
use passes::KnownPasses;
use refused::refusal_page;
use visits::{AppVisit, AppVisits};

/// A cookie that works for less than this is renewed when a page is opened with it.
const COOKIE_RENEWED_BELOW: u64 = APP_COOKIE_SECONDS / 2;

/// What every request has.
struct AppDoor {
    server: Server,
    streams: Arc<dyn Streams>,
    visits: Arc<AppVisits>,
    cookies: AppCookies,
    passes: KnownPasses,
}

impl ServesApps for AppDoor {
    fn serve(self: Arc<Self>, request: Request) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        Box::pin(async move {
            let served = AssertUnwindSafe(serve(&self, request)).catch_unwind().await;
            served.unwrap_or_else(|_| {
                tracing::error!("a request to an app panicked");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            })
        })
    }
}

/// Where a request arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AppAddress {
    /// Such as `https://box:8444`.
    origin: String,
    /// `https://box:7860`
    console: String,
    port: u16,
    /// The app that its name names; None where apps have ports.
    app: Option<String>,
    is_encrypted: bool,
    source: IpAddr,
}

impl AppAddress {
    /// Whether what a port leads to is what the address names.
    fn names(&self, at: &AppPort) -> bool {
        let named = self.app.as_ref();
        at.port == self.port && named.is_none_or(|app| *app == at.app.to_string())
    }
}

/// Answers at the origins of apps, whichever port a request came to.
pub fn router(server: Server, streams: Arc<dyn Streams>) -> Router {
    open(server, streams).1
}

/// Answers on every port that is for apps; the router does the same for requests that come to a port of others.
pub(crate) fn open(server: Server, streams: Arc<dyn Streams>) -> (Arc<dyn ServesApps>, Router) {
    let kept = routes::app_cookies(&server).unwrap_or_else(|failure| {
        tracing::warn!(error = %failure, "cookies of apps are known only when they are set again");
        Vec::new()
    });
    let door = Arc::new(AppDoor {
        server,
        streams,
        visits: Arc::default(),
        cookies: AppCookies::kept(kept),
        passes: KnownPasses::default(),
    });
    let router = Router::new()
        .fallback(serve_by_router)
        .with_state(Arc::clone(&door));
    let apps: Arc<dyn ServesApps> = door;
    (apps, router)
}

async fn serve_by_router(State(door): State<Arc<AppDoor>>, request: Request) -> Response {
    door.serve(request).await
}

async fn serve(door: &AppDoor, request: Request) -> Response {
    let id = request_id(door.server.clock().now());
    let reader = RefusalReader::of(request.headers());
    let is_get = request.method() == Method::GET;
    let address = match address(&door.server, &request) {
        Ok(address) => address,
        Err(problem) => return refusal_page(&problem, &reader, &id, None),
    };
    let source = address.source;
    let answered = access::as_request(source, &id, answer(door, &address, request)).await;
    answered.unwrap_or_else(|problem| {
        let console = is_get.then(|| open_page(&address, None));
        refusal_page(&problem, &reader, &id, console.as_deref())
    })
}

/// An id that sorts by time. The kernel is not asked for its random part: a page of an app asks for hundreds of things.
fn request_id(now: Timestamp) -> String {
    let millis = u64::try_from(now.as_millis()).unwrap_or_default();
    let id = uuid::Builder::from_unix_timestamp_millis(millis, &rand::random());
    id.into_uuid().to_string()
}

/// Where a request arrived, by the connection and the host that it names.
///
/// Errors: `app.not-opened` for a host with another port than the connection's.
fn address(server: &Server, request: &Request) -> Result<AppAddress, ProblemResponse> {
    let misdirected = || {
        let refusal = refusals::app_not_opened();
        ProblemResponse::with_status(refusal, StatusCode::MISDIRECTED_REQUEST)
    };
    let extensions = request.extensions();
    let OwnPort(own) = *extensions.get::<OwnPort>().ok_or_else(misdirected)?;
    let is_encrypted = extensions.get::<Encrypted>().is_some();
    let (scheme, usual) = if is_encrypted {
        ("https", 443)
    } else {
        ("http", 80)
    };
    let host = named_host(request).ok_or_else(misdirected)?;
    let name = host.host().to_ascii_lowercase();
    let (settings, source) = (server.settings(), peer(request).address());
    let called = host.port_u16().unwrap_or(usual);
    if let Some(below) = settings.apps_name.as_deref()
        && is_below(&name, below)
    {
        let (app, port) = app_of_host(&name, below).ok_or_else(misdirected)?;
        return Ok(AppAddress {
            origin: with_port(scheme, &name, called, usual),
            console: with_port(scheme, console_host(below), called, usual),
            port,
            app: Some(app.to_owned()),
            is_encrypted,
            source,
        });
    }
    if called != own {
        return Err(misdirected());
    }
    Ok(AppAddress {
        origin: with_port(scheme, &name, own, usual),
        console: with_port(scheme, &name, settings.listen.port(), usual),
        port: own,
        app: None,
        is_encrypted,
        source,
    })
}

fn named_host(request: &Request) -> Option<Authority> {
    let host = request.headers().get(header::HOST)?.to_str().ok()?;
    host.parse().ok()
}

/// Whether a host is one of those that apps have.
fn is_below(host: &str, below: &str) -> bool {
    host.strip_suffix(below)
        .is_some_and(|label| label.ends_with('.'))
}

/// What leads requests to apps by their hosts.
#[derive(Clone)]
pub struct ByName {
    pub server: Server,
    pub apps: Router,
}

/// Middleware: leads requests that name the host of an app to the apps, and all others on.
pub async fn by_name(State(names): State<ByName>, request: Request, next: Next) -> Response {
    let settings = names.server.settings();
    let host = named_host(&request).map(|host| host.host().to_ascii_lowercase());
    let is_app = match (&settings.apps_name, host) {
        (Some(below), Some(host)) => is_below(&host, below),
        _ => false,
    };
    drop(settings);
    match is_app {
        true => names.apps.oneshot(request).await.into_response(),
        false => next.run(request).await,
    }
}

fn with_port(scheme: &str, host: &str, port: u16, usual: u16) -> String {
    match port == usual {
        true => format!("{scheme}://{host}"),
        false => format!("{scheme}://{host}:{port}"),
    }
}

fn peer(request: &Request) -> Peer {
    let nowhere = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
    let known = request.extensions().get::<Peer>().copied();
    known.unwrap_or(Peer::Tcp(nowhere))
}

async fn answer(
    door: &AppDoor,
    address: &AppAddress,
    request: Request,
) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let token = token(&parts.headers).map(str::to_owned);
    let asked = asked(&parts, address, token.is_some());
    asked.check(&address.origin)?;
    let is_navigation = asked.is_navigation();
    if let Some(own) = parts.uri.path().strip_prefix(OWN_PATHS) {
        return match own {
            "enter" if is_navigation => enter(door, address, &parts).await,
            "enter" => Err(refusals::app_origin_foreign().into()),
            _ => Err(refusals::app_not_opened().into()),
        };
    }
    let proven = prove(door, address, &parts.headers, token.as_deref()).await?;
    let open = match &proven {
        Some(pass) => visit(door, address, pass).await?,
        None => None,
    };
    let (Some(proven), Some(visit)) = (proven, open) else {
        return match is_navigation {
            true => Ok(to_console(address, &parts)),
            false => Err(refusals::app_entry_needed().into()),
        };
    };
    admission::proven(&parts.extensions, visit.caller.subject.user);
    if is_navigation || !parts.method.is_safe() {
        visit.note_activity(&door.server);
    }
    let has_token = token.is_some();
    let mut response = carry::carry(door, address, &visit, (parts, body), has_token).await?;
    let left = proven.ends_at.seconds_since(door.server.clock().now());
    let is_renewed = is_navigation && !has_token && left < COOKIE_RENEWED_BELOW;
    if is_renewed && let Some(cookie) = set_cookie(door, address, &proven) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// What a request says of where it comes from.
fn asked<'a>(parts: &'a Parts, address: &AppAddress, has_token: bool) -> AppRequest<'a> {
    let headers = &parts.headers;
    let said = |name: &str| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or("unreadable"))
    };
    AppRequest {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        is_upgrade: headers.contains_key(header::UPGRADE),
        origin: said("origin"),
        referer: said("referer"),
        site: said("sec-fetch-site"),
        mode: said("sec-fetch-mode"),
        destination: said("sec-fetch-dest"),
        // At a name of its own an app may have one: our own paths are then refused to it by their ticket.
        is_worker_script: address.app.is_none() && headers.contains_key("service-worker"),
        has_token,
    }
}

/// A token of ours in `Authorization`; what else stands there is the app's.
fn token(headers: &HeaderMap) -> Option<&str> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = given.split_once(' ')?;
    let token = token.trim();
    let is_ours = scheme.eq_ignore_ascii_case("bearer") && token.starts_with(access::TOKEN_PREFIX);
    is_ours.then_some(token)
}

/// Whose request it is, as its cookie or token says; None where there is none that is worth anything.
///
/// Errors: `token.invalid`, `token.expired`, `user.suspended`, `sign-in.address-refused`, `app.not-opened`.
async fn prove(
    door: &AppDoor,
    address: &AppAddress,
    headers: &HeaderMap,
    token: Option<&str>,
) -> Result<Option<AppPass>, ProblemResponse> {
    if let Some(token) = token {
        let caller = access::by_token(&door.server, token, address.source).await?;
        let caller = caller.ok_or_else(refusals::token_invalid)?;
        let at = routes::app_at(&door.server, address.port)?;
        let at = at.filter(|at| address.names(at));
        let session = at.and_then(|at| at.session);
        let session = session.ok_or_else(refusals::app_not_opened)?;
        return Ok(Some(AppPass {
            user: caller.subject.user,
            via: caller.via,
            session,
            port: address.port,
            ends_at: door.server.clock().now().plus_seconds(APP_COOKIE_SECONDS),
        }));
    }
    let name = entry_cookie(address.port, address.is_encrypted);
    // A cookie that scripts set may hold any letter.
    let lines = headers.get_all(header::COOKIE).iter();
    let lines: Vec<_> = lines
        .map(|line| String::from_utf8_lossy(line.as_bytes()))
        .collect();
    let cookie = lines.iter().find_map(|line| cookie_value(line, &name));
    let read = |cookie: &str| access::read_app_cookie(&door.server, cookie);
    let now = door.server.clock().now();
    let pass = cookie.and_then(|cookie| door.passes.of(cookie, now, read));
    Ok(pass.filter(|pass| pass.port == address.port))
}

/// The visit that a pass belongs to, begun where there is none; None where its sign-in has ended, or the port leads elsewhere
/// now.
///
/// Errors: `app.not-opened`, `app.session-not-running`, `sign-in.address-refused`, those of `sessions::enter`.
async fn visit(
    door: &AppDoor,
    address: &AppAddress,
    pass: &AppPass,
) -> Result<Option<Arc<AppVisit>>, ProblemResponse> {
    let known = door.visits.known(pass, address.source);
    if let Some(known) = known.filter(|known| address.names(&known.at)) {
        return Ok(Some(known));
    }
    let caller = access::by_app_pass(&door.server, pass, address.source).await?;
    let at = routes::app_at(&door.server, address.port)?;
    let at = at.filter(|at| at.session == Some(pass.session) && address.names(at));
    let (Some(caller), Some(at)) = (caller, at) else {
        return Ok(None);
    };
    let container = server::actions::apps::enter(&door.server, &caller, &at).await?;
    door.cookies.visited(&at);
    let begun = door.visits.begin(&door.server, pass, caller, at, container);
    Ok(Some(begun))
}

/// Trades a ticket for the cookie of this port, and goes on to the app.
async fn enter(
    door: &AppDoor,
    address: &AppAddress,
    parts: &Parts,
) -> Result<Response, ProblemResponse> {
    let pairs: Vec<(String, String)> =
        Query::try_from_uri(&parts.uri).map_or_else(|_| Vec::new(), |all| all.0);
    let value = |name: &str| {
        let found = pairs.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    };
    let ticket = value("ticket").unwrap_or_default();
    let pass = access::take_app_ticket(&door.server, ticket);
    let pass = pass.filter(|pass| pass.port == address.port);
    let pass = pass.ok_or_else(refusals::app_ticket_invalid)?;
    beside_sign_in(door, address, parts, &pass).await?;
    let at = routes::app_at(&door.server, address.port)?;
    let at = at.filter(|at| at.session == Some(pass.session) && address.names(at));
    let at = at.ok_or_else(refusals::app_not_opened)?;
    let cookie = set_cookie(door, address, &pass).ok_or_else(refusals::app_ticket_invalid)?;
    let to = value("to").filter(|to| is_path(to)).unwrap_or("/");
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/"));
    let known = prove(door, address, &parts.headers, None).await?;
    let mut response = StatusCode::SEE_OTHER.into_response();
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, to);
    headers.append(header::SET_COOKIE, cookie);
    refused::own_headers(headers);
    if is_cleared(&at, known.as_ref(), &pass) {
        let cleared = HeaderValue::from_static("\"cache\", \"storage\"");
        headers.insert("clear-site-data", cleared);
    }
    Ok(response)
}

/// Whether a browser forgets what an app before left in it at a port. Cookies stay: they are those of the console, too. A
/// cookie for another session may be from the time of the app before.
fn is_cleared(at: &AppPort, known: Option<&AppPass>, pass: &AppPass) -> bool {
    let is_same = |known: &AppPass| known.user == pass.user && known.session == pass.session;
    at.passed_at.is_some() && !known.is_some_and(is_same)
}

/// Refuses a ticket in another browser than the one that it was made for. All ports of this host get the console's cookie:
/// a browser that sends another sign-in's, or none, was led here.
async fn beside_sign_in(
    door: &AppDoor,
    address: &AppAddress,
    parts: &Parts,
    pass: &AppPass,
) -> Result<(), ProblemResponse> {
    let cookie = origin::cookie(&parts.headers, &parts.extensions);
    let beside = match cookie {
        Some(cookie) => access::by_cookie(&door.server, cookie, address.source).await?,
        None => None,
    };
    let is_same = match (pass.via, beside) {
        (Via::Browser { .. }, Some(beside)) => beside.via == pass.via,
        // At a name of its own the browser sends no cookie of the console's.
        (Via::Browser { .. }, None) => address.app.is_some(),
        // A program made it, for a browser of the same user or for one that is not signed in.
        (_, beside) => beside.is_none_or(|beside| beside.subject.user == pass.user),
    };
    match is_same {
        true => Ok(()),
        false => Err(refusals::app_ticket_invalid().into()),
    }
}

fn set_cookie(door: &AppDoor, address: &AppAddress, pass: &AppPass) -> Option<HeaderValue> {
    let value = access::app_cookie(&door.server, pass)?;
    let name = entry_cookie(address.port, address.is_encrypted);
    let secure = if address.is_encrypted { "; Secure" } else { "" };
    let text = format!(
        "{name}={value}; Path=/; Max-Age={APP_COOKIE_SECONDS}; HttpOnly; SameSite=Lax{secure}"
    );
    HeaderValue::try_from(text).ok()
}

/// Where the console opens what a port leads to; `to` is the path that it then shows.
fn open_page(address: &AppAddress, to: Option<&str>) -> String {
    let page = format!("{}/apps/{}", address.console, address.port);
    match to.filter(|to| is_path(to) && *to != "/") {
        Some(to) => format!("{page}?to={}", query_value(to)),
        None => page,
    }
}

/// Leads a browser without a cookie to the console, which leads it back when it is signed in.
fn to_console(address: &AppAddress, parts: &Parts) -> Response {
    let to = parts.uri.path_and_query().map(|to| to.as_str());
    let page = HeaderValue::try_from(open_page(address, to));
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(page) = page {
        response.headers_mut().insert(header::LOCATION, page);
    }
    refused::own_headers(response.headers_mut());
    response
}

#[cfg(test)]
mod tests {
    use rules::app::AppChoice;
    use rules::names::{SessionId, TokenId, UserId};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_an_app_before_left_at_a_port_is_cleared() {
        let start = Timestamp::from_millis(0);
        let at = |passed_at| AppPort {
            port: 8444,
            owner: UserId(Uuid::nil()),
            app: AppChoice::Port(8888),
            session: Some(SessionId(Uuid::from_u128(2))),
            inner_port: 8888,
            opened_at: start,
            used_at: start,
            passed_at,
        };
        let pass = |user: u128, session: u128| AppPass {
            user: UserId(Uuid::from_u128(user)),
            via: Via::Token {
                id: TokenId(Uuid::nil()),
            },
            session: SessionId(Uuid::from_u128(session)),
            port: 8444,
            ends_at: start,
        };
        let own = pass(1, 2);
        for (passed_at, known, expected) in [
            (None, None, false),
            (Some(start), None, true),
            (Some(start), Some(pass(1, 2)), false),
            (Some(start), Some(pass(2, 2)), true),
            // Of the app that had the port before.
            (Some(start), Some(pass(1, 1)), true),
        ] {
            let found = is_cleared(&at(passed_at), known.as_ref(), &own);
            assert_eq!(found, expected, "{passed_at:?} {known:?}");
        }
    }

    #[test]
    fn ids_of_requests_sort_by_time_and_none_comes_twice() {
        let at = |millis| request_id(Timestamp::from_millis(millis));
        let ids = [at(1), at(2), at(1 << 40)];
        assert!(ids.is_sorted(), "{ids:?}");
        assert_ne!(at(5), at(5));
        let read = Uuid::parse_str(&ids[0]).expect("an id");
        assert_eq!(read.get_version_num(), 7);
    }
}
