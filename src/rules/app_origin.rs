//! The origin of an app: which requests of browsers may reach it, and what of a request and of an answer passes between a
//! browser and a container. An app is a program of strangers: it is neither to learn nor to set anything of ours, and no
//! page of another origin is to act in it. Ports of one host separate neither cookies nor "site", so both are checked here.

use std::borrow::Cow;

use crate::refusal::Refusal;
use crate::refusals;

/// What names of our own cookies begin with, behind the prefixes that browsers know.
const OURS: &str = "fardel";
/// Prefixes by which browsers hold a cookie to one host, longest first.
const COOKIE_PREFIXES: [&str; 5] = ["__Host-Http-", "__Http-", "__Host-", "__Secure-", ""];
/// What begins a path that we answer ourselves on the origin of an app.
pub const OWN_PATHS: &str = "/.fardel/";

/// Headers of an answer that would reach beyond its own app, or outlive it.
pub const WITHHELD_OF_ANSWER: [&str; 11] = [
    "service-worker-allowed",
    "clear-site-data",
    "strict-transport-security",
    "public-key-pins",
    "alt-svc",
    "nel",
    "report-to",
    "reporting-endpoints",
    "proxy-authenticate",
    "proxy-connection",
    "keep-alive",
];

/// Headers of a request that say who asks and how; only our own word of it reaches a container.
const WITHHELD_OF_REQUEST: [&str; 6] = [
    "forwarded",
    "x-real-ip",
    "proxy-authorization",
    "proxy-connection",
    "keep-alive",
    "te",
];
/// What more of them begin with.
const WITHHELD_BEGINNINGS: [&str; 2] = ["x-forwarded-", "x-fardel-"];
/// Protocols that carry requests of their own, which would pass by every check here.
const CARRIERS: [&str; 4] = ["h2", "http", "spdy", "tls"];

/// Whether a header of a request, by its name in lower case, says who asks and how. Frameworks read `_` as `-`.
pub fn is_withheld_of_request(name: &str) -> bool {
    // Few names have one, and each request asks for all of its own.
    let name = match name.contains('_') {
        true => Cow::Owned(name.replace('_', "-")),
        false => Cow::Borrowed(name),
    };
    WITHHELD_OF_REQUEST.contains(&&*name)
        || WITHHELD_BEGINNINGS
            .iter()
            .any(|begin| name.starts_with(begin))
}

/// Whether a request may change to this protocol: to one, and to none that carries requests.
pub fn may_change_to(protocol: &str) -> bool {
    let protocol = protocol.to_ascii_lowercase();
    let is_one = !protocol.is_empty() && !protocol.contains([',', ' ', '\t']);
    is_one && !CARRIERS.iter().any(|carrier| protocol.starts_with(carrier))
}

/// What a request says of where it comes from.
#[derive(Debug, Clone, Copy, Default)]
pub struct AppRequest<'a> {
    pub method: &'a str,
    pub path: &'a str,
    /// It asks for another protocol, such as WebSocket.
    pub is_upgrade: bool,
    pub origin: Option<&'a str>,
    pub referer: Option<&'a str>,
    /// `Sec-Fetch-Site`, and so on.
    pub site: Option<&'a str>,
    pub mode: Option<&'a str>,
    pub destination: Option<&'a str>,
    /// `Service-Worker: script`: a browser fetches a script to install it.
    pub is_worker_script: bool,
    /// A token of ours in `Authorization`, which no page can send to another origin.
    pub has_token: bool,
}

impl AppRequest<'_> {
    fn is_safe(&self) -> bool {
        matches!(self.method, "GET" | "HEAD" | "OPTIONS") && !self.is_upgrade
    }

    /// Whether a user goes to a page in a tab; not a frame, not a script.
    pub fn is_navigation(&self) -> bool {
        let is_document = match (self.mode, self.destination) {
            (Some(mode), Some(destination)) => mode == "navigate" && destination == "document",
            // Where the address is not trusted browsers say neither.
            (None, None) => self.site.is_none(),
            _ => false,
        };
        self.method == "GET" && !self.is_upgrade && is_document
    }

    /// Whether it may reach the app whose origin is `own`, such as `https://box:8444`.
    ///
    /// Errors: `app.origin-foreign`, `app.worker-at-root`.
    pub fn check(&self, own: &str) -> Result<(), Refusal> {
        let foreign = || Err(refusals::app_origin_foreign());
        // One asks for a tunnel, the other for its own secrets. No app needs either.
        if matches!(self.method, "CONNECT" | "TRACE") {
            return foreign();
        }
        if self.is_worker_script && parent(self.path) == "/" {
            return Err(refusals::app_worker_at_root());
        }
        if self.origin.is_some_and(|origin| !same_origin(origin, own)) {
            return foreign();
        }
        if self.has_token {
            return Ok(());
        }
        if !self.is_safe() {
            let is_own_page =
                self.origin.is_some() && self.site.is_none_or(|it| it == "same-origin");
            return if is_own_page { Ok(()) } else { foreign() };
        }
        let may = match (self.site, self.referer) {
            (Some("same-origin" | "none"), _) => true,
            (Some(_), _) => self.is_navigation(),
            (None, Some(referer)) => is_below(referer, own),
            (None, None) => true,
        };
        if may { Ok(()) } else { foreign() }
    }
}

/// Longest name below which apps have names, and longest part of one.
const MAX_APPS_NAME: usize = 180;
const MAX_LABEL: usize = 63;

/// Whether apps can have names below a name, such as `apps.box.lab`: of two parts or more, without a wildcard.
pub fn is_apps_name(name: &str) -> bool {
    let known = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        (1..=MAX_LABEL).contains(&bytes.len())
            && bytes.iter().all(|letter| known(*letter) || *letter == b'-')
            && bytes.first().is_some_and(|letter| known(*letter))
            && bytes.last().is_some_and(|letter| known(*letter))
    };
    let is_address = name
        .bytes()
        .all(|letter| letter.is_ascii_digit() || letter == b'.');
    name.len() <= MAX_APPS_NAME
        && name.contains('.')
        && name.split('.').all(is_label)
        && !is_address
}

/// The host of the app at a port: `jupyter-8444.apps.box.lab`.
pub fn app_host(app: &str, port: u16, below: &str) -> String {
    format!("{app}-{port}.{below}")
}

/// The app and the port that a host below that name leads to; None for every other host.
pub fn app_of_host<'a>(host: &'a str, below: &str) -> Option<(&'a str, u16)> {
    let label = host.strip_suffix(below)?.strip_suffix('.')?;
    let (app, number) = label.rsplit_once('-')?;
    let port: u16 = number.parse().ok()?;
    let is_plain = !app.is_empty() && !label.contains('.') && port.to_string() == number;
    is_plain.then_some((app, port))
}

/// The host of the console where apps have names below a name.
pub fn console_host(below: &str) -> &str {
    below.split_once('.').map_or(below, |(_, console)| console)
}

/// The path of the directory that a path lies in, as a service worker's scope is found.
fn parent(path: &str) -> &str {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    path.rfind('/').map_or("/", |end| &path[..=end])
}

/// Whether two origins are one; the scheme's own port may be left out.
fn same_origin(one: &str, other: &str) -> bool {
    plain_origin(one) == plain_origin(other)
}

fn plain_origin(origin: &str) -> String {
    let origin = origin.to_ascii_lowercase();
    let usual = match origin.split_once("://") {
        Some(("https", _)) => ":443",
        Some(("http", _)) => ":80",
        _ => return origin,
    };
    origin.strip_suffix(usual).unwrap_or(&origin).to_owned()
}

/// Whether an address is of that origin.
fn is_below(address: &str, own: &str) -> bool {
    let Some((scheme, rest)) = address.split_once("://") else {
        return false;
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    same_origin(&format!("{scheme}://{host}"), own)
}

/// An address of our origin as the container knows it; None for one of another origin.
pub fn inner_address(address: &str, own: &str, port: u16) -> Option<String> {
    if !is_below(address, own) {
        return None;
    }
    let (_, rest) = address.split_once("://")?;
    let path = rest
        .find(['/', '?', '#'])
        .map_or("", |begin| &rest[begin..]);
    Some(format!("http://localhost:{port}{path}"))
}

/// Whether a cookie is one of ours, by its name.
pub fn is_own_cookie(name: &str) -> bool {
    let name = name.trim();
    let plain = COOKIE_PREFIXES.iter().find_map(|prefix| {
        let begin = name.get(..prefix.len())?;
        let matches = begin.eq_ignore_ascii_case(prefix);
        matches.then(|| &name[prefix.len()..])
    });
    let plain = plain.unwrap_or(name).to_ascii_lowercase();
    plain
        .strip_prefix(OURS)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_', '.']))
}

/// The name of the cookie by which a browser enters the app at this port.
pub fn entry_cookie(port: u16, is_encrypted: bool) -> String {
    match is_encrypted {
        true => format!("__Host-Http-{OURS}-app-{port}"),
        false => format!("{OURS}-app-{port}"),
    }
}

/// The value of a cookie in a `Cookie` header.
pub fn cookie_value<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = header
        .split(';')
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}

/// A `Cookie` header without our own cookies and without those that `is_of_another` names; None where nothing is left.
pub fn passed_cookies(header: &str, is_of_another: impl Fn(&str) -> bool) -> Option<String> {
    let passed: Vec<&str> = header
        .split(';')
        .map(str::trim)
        .filter(|pair| {
            // Without a name it may be read as any other, so it goes.
            let name = pair.split_once('=').map_or("", |(name, _)| name.trim());
            !name.is_empty() && !is_own_cookie(name) && !is_of_another(name)
        })
        .collect();
    (!passed.is_empty()).then(|| passed.join("; "))
}

/// The name and the text of a `Set-Cookie` of an app as a browser gets it: of this host alone, and secret where the
/// connection is. None for a cookie of ours, and for one without a name, which is sent back as any text.
pub fn passed_set_cookie(header: &str, is_encrypted: bool) -> Option<(String, String)> {
    let mut parts = header.split(';').map(str::trim);
    let (name, value) = parts.next()?.split_once('=')?;
    let name = name.trim();
    if name.is_empty() || is_own_cookie(name) {
        return None;
    }
    let mut passed = vec![format!("{name}={}", value.trim())];
    for part in parts {
        let word = part.split('=').next().unwrap_or_default().trim();
        let is_ours = ["domain", "secure"]
            .iter()
            .any(|own| word.eq_ignore_ascii_case(own));
        if !is_ours && !part.is_empty() {
            passed.push(part.to_owned());
        }
    }
    if is_encrypted {
        passed.push("Secure".to_owned());
    }
    Some((name.to_owned(), passed.join("; ")))
}

/// Where an app sends a browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppLocation {
    /// On its own origin, or outside of this host.
    Passed,
    /// To what it takes for itself: this path of its origin.
    Own(String),
    /// To another port of this host: the console, or the app of another user.
    Refused,
}

/// Reads a `Location` as browsers do, backslashes and left-out schemes included. `port` is where the app listens inside,
/// `console` the origin of the console.
pub fn location(address: &str, own: &str, console: &str, port: u16) -> AppLocation {
    let plain: String = address
        .chars()
        .filter(|letter| !letter.is_control() && *letter != ' ')
        .map(|letter| if letter == '\\' { '/' } else { letter })
        .collect();
    let (own_scheme, own_authority) = own.split_once("://").unwrap_or(("https", own));
    let (scheme, rest) = match plain.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), rest),
        _ if plain.starts_with("//") => (own_scheme.to_owned(), plain.as_str()),
        _ => return AppLocation::Passed,
    };
    if scheme != "http" && scheme != "https" {
        return AppLocation::Passed;
    }
    let rest = rest.trim_start_matches('/');
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let (host, at) = host_and_port(authority, &scheme);
    let (own_host, own_port) = host_and_port(own_authority, own_scheme);
    let is_inside = ["localhost", "127.0.0.1", "[::1]", "0.0.0.0"].contains(&host.as_str());
    if is_inside && (at == Some(port) || host != own_host) && !(host == own_host && at == own_port)
    {
        let path = path.split('#').next().unwrap_or_default();
        return match at == Some(port) {
            true => AppLocation::Own(match path.starts_with('/') {
                true => path.to_owned(),
                false => format!("/{path}"),
            }),
            // Another port of the reader's own computer is none of ours.
            false => AppLocation::Passed,
        };
    }
    let (console_scheme, console_authority) = console.split_once("://").unwrap_or(("https", ""));
    let (console_host, _) = host_and_port(console_authority, console_scheme);
    let is_own = host == own_host && at == own_port && scheme == own_scheme;
    match !is_own && (host == own_host || host == console_host) {
        true => AppLocation::Refused,
        false => AppLocation::Passed,
    }
}

fn is_scheme(text: &str) -> bool {
    let known = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
    text.starts_with(|letter: char| letter.is_ascii_alphabetic()) && text.chars().all(known)
}

/// A host without its last dot, and its port.
fn host_and_port(authority: &str, scheme: &str) -> (String, Option<u16>) {
    let bracket = authority.rfind(']').map_or(0, |end| end + 1);
    let (host, port) = match authority[bracket..].split_once(':') {
        Some((rest, port)) => (&authority[..bracket + rest.len()], port.parse().ok()),
        None => (authority, None),
    };
    let usual = match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    (host, port.or(usual))
}

#[cfg(test)]
mod tests;
