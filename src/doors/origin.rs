//! Decides whether a request came from our own pages: the defence against other sites, and against users'
//! own apps on other ports, using a user's sign-in. Pages and REST ask the same function.
//! Never looks at who is calling; that is `server::access`.
//!
//! Rule: `design` "two origins". Unsafe methods, WebSocket upgrades and event streams must come from this
//! origin. Browsers say so by `Sec-Fetch-Site` where the address is trusted (HTTPS, or loopback), and by
//! `Origin` always; a program with a token in `Authorization` sends neither and cannot be led astray by a
//! page, because no page can set that header on a request to another origin without asking us first, and we
//! answer no such question.

use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use rules::refusal::Refusal;
use rules::refusals;

use super::peer::Encrypted;

/// Nothing when the request may go on; otherwise why not, with code `origin.foreign`.
///
/// Asks for headers and method alone, so that every door can put its own words around the answer.
pub fn check(method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
    let upgrade =
        value(headers, "upgrade").is_some_and(|kind| kind.eq_ignore_ascii_case("websocket"));
    let stream = value(headers, "accept").is_some_and(|kinds| kinds.contains("text/event-stream"));
    let safe = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    if safe && !upgrade && !stream {
        return Ok(());
    }
    let foreign = || refusals::origin_foreign();
    if let Some(site) = value(headers, "sec-fetch-site")
        && !(site == "same-origin" || (site == "none" && safe && !upgrade))
    {
        return Err(foreign());
    }
    match value(headers, "origin") {
        Some(origin) if ours(origin, headers) => Ok(()),
        Some(_) => Err(foreign()),
        // Browsers leave it out only where nothing can be changed: on a plain GET of the same origin.
        None if safe && !upgrade => Ok(()),
        None if headers.contains_key(header::AUTHORIZATION) => Ok(()),
        None => Err(foreign()),
    }
}

/// Whether an `Origin` names the host the request was sent to. The scheme is not compared: a proxy in front
/// may speak TLS for us, and another site cannot own our host and port under the other scheme.
fn ours(origin: &str, headers: &HeaderMap) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    let Some(host) = value(headers, "host") else {
        return false;
    };
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let plain = |name: &str| name.strip_suffix(port).unwrap_or(name).to_ascii_lowercase();
    plain(authority) == plain(host)
}

/// The console's cookie. Browsers take the first name over TLS only, and not from script: an app at another port of this
/// host has script. The second serves plain HTTP.
pub const COOKIES: [&str; 2] = ["__Host-Http-fardel", "fardel"];

/// The value of the console's cookie; none when it is not sent. Over TLS only the first name counts: other
/// ports of this machine and other hosts of the domain can plant the second.
pub fn cookie<'a>(headers: &'a HeaderMap, connection: &Extensions) -> Option<&'a str> {
    by_name(headers, COOKIES, connection.get())
}

/// The cookie by which a browser is known again at a sign-in, under either name.
pub const DEVICES: [&str; 2] = ["__Host-Http-fardel-device", "fardel-device"];

/// The value of that cookie; none where it is not sent. Over TLS only the first name counts, as for `cookie`.
pub fn device(headers: &HeaderMap, encrypted: Option<Encrypted>) -> Option<&str> {
    by_name(headers, DEVICES, encrypted.as_ref())
}

/// The cookie by which a browser is known when it comes back from an identity provider, under either name.
pub const BEGUN: [&str; 2] = ["__Host-Http-fardel-begun", "fardel-begun"];

/// The value of that cookie; none where it is not sent. Over TLS only the first name counts, as for `cookie`.
pub fn begun(headers: &HeaderMap, encrypted: Option<Encrypted>) -> Option<&str> {
    by_name(headers, BEGUN, encrypted.as_ref())
}

/// What the other end calls itself; empty where it says nothing that can be read.
pub fn agent(headers: &HeaderMap) -> &str {
    let said = headers.get(axum::http::header::USER_AGENT);
    said.and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

fn by_name<'a>(
    headers: &'a HeaderMap,
    [over_tls, plain]: [&str; 2],
    encrypted: Option<&Encrypted>,
) -> Option<&'a str> {
    let wanted = match encrypted {
        Some(Encrypted) => over_tls,
        None => plain,
    };
    headers
        .get_all(header::COOKIE)
        .iter()
        // A cookie that a script of another port sets may hold any letter: it hides no other one.
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b';'))
        .filter_map(|pair| std::str::from_utf8(pair.trim_ascii()).ok())
        .filter_map(|pair| pair.split_once('='))
        .find(|(name, _)| *name == wanted)
        .map(|(_, value)| value)
}

fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The console's policy for one answer. `nonce` allows the style sheets that the terminal makes; nothing
/// else is inline anywhere.
pub fn content_policy(nonce: &str) -> HeaderValue {
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data: blob:; \
         font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).expect("a nonce is base64")
}

/// Middleware: headers that every answer of every door carries. A policy that a page has set stays.
pub async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("same-origin"),
    );
    headers.insert(
        "cross-origin-opener-policy",
        HeaderValue::from_static("same-origin"),
    );
    headers.insert(
        "cross-origin-resource-policy",
        HeaderValue::from_static("same-origin"),
    );
    headers.insert(
        "permissions-policy",
        HeaderValue::from_static("camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    );
    if !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        headers.insert(
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
        );
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One request in a line: method, then headers.
    fn verdict(request: &str) -> bool {
        let mut parts = request.split(" | ");
        let method: Method = parts.next().expect("a method").parse().expect("a method");
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("box:8080"));
        for part in parts {
            let (name, value) = part.split_once(": ").expect("name: value");
            headers.insert(
                axum::http::HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                HeaderValue::from_str(value).expect("a value"),
            );
        }
        check(&method, &headers).is_ok()
    }

    #[test]
    fn over_tls_only_the_cookie_counts_that_nobody_else_can_plant() {
        let plain = Extensions::new();
        let mut tls = Extensions::new();
        tls.insert(Encrypted);
        for (sent, over_tls, over_plain) in [
            (
                "fardel=planted; __Host-Http-fardel=own",
                Some("own"),
                Some("planted"),
            ),
            (
                "__Host-Http-fardel=own; fardel=planted",
                Some("own"),
                Some("planted"),
            ),
            ("fardel=planted", None, Some("planted")),
            ("__Host-Http-fardel=own", Some("own"), None),
            ("__Host-fardel=planted", None, None),
            ("x__Host-Http-fardel=planted; theme=dark", None, None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, HeaderValue::from_static(sent));
            assert_eq!(cookie(&headers, &tls), over_tls, "{sent}");
            assert_eq!(cookie(&headers, &plain), over_plain, "{sent}");
        }
        let mut headers = HeaderMap::new();
        let sent = b"x=\xff; fardel=own; y=\xc3\xa9";
        let sent = HeaderValue::from_bytes(sent).expect("a value");
        headers.insert(header::COOKIE, sent);
        assert_eq!(cookie(&headers, &plain), Some("own"));
    }

    /// Promise (Isolation and access): Only the console's own pages and programs with tokens can change anything. No page of
    /// the console, of another app or of another site acts in an app, and no cookie of ours reaches one.
    #[test]
    fn only_our_own_pages_and_programs_with_tokens_may_change_anything() {
        let table = [
            // Looking is free for everybody; what is seen is another question.
            ("GET", true),
            ("GET | sec-fetch-site: cross-site", true),
            ("GET | origin: http://evil", true),
            // Changing.
            ("POST | origin: http://box:8080", true),
            (
                "POST | origin: http://BOX:8080 | sec-fetch-site: same-origin",
                true,
            ),
            ("POST", false),
            ("POST | cookie: fardel_session=x", false),
            ("POST | authorization: Bearer x", true),
            (
                "POST | authorization: Bearer x | origin: http://evil",
                false,
            ),
            (
                "POST | origin: http://box:8443 | sec-fetch-site: same-site",
                false,
            ),
            ("POST | origin: http://box:8443", false),
            ("POST | origin: null", false),
            ("POST | origin: http://evil", false),
            ("POST | origin: http://box:8080.evil", false),
            (
                "POST | origin: http://box:8080 | sec-fetch-site: cross-site",
                false,
            ),
            (
                "POST | sec-fetch-site: none | origin: http://box:8080",
                false,
            ),
            ("DELETE | origin: http://evil", false),
            ("PATCH | sec-fetch-site: same-origin", false),
            // Sockets and streams follow the rules of changing.
            ("GET | upgrade: websocket | origin: http://box:8080", true),
            ("GET | upgrade: websocket | origin: http://evil", false),
            ("GET | upgrade: websocket", false),
            ("GET | upgrade: websocket | authorization: Bearer x", true),
            (
                "GET | accept: text/event-stream | sec-fetch-site: same-origin",
                true,
            ),
            (
                "GET | accept: text/event-stream | sec-fetch-site: same-site",
                false,
            ),
            (
                "GET | accept: text/html, text/event-stream | origin: http://evil",
                false,
            ),
            ("GET | accept: text/event-stream", true),
        ];
        for (request, expected) in table {
            assert_eq!(verdict(request), expected, "{request}");
        }
    }
}
