//! Headers on their way between a browser and a container: what of a request reaches an app, and what of its answer goes
//! back. `rules::app_origin` says which; here they are read and written.

use axum::http::header::{self, HeaderName};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue};
use rules::app_origin::{
    AppLocation, WITHHELD_OF_ANSWER, inner_address, is_withheld_of_request, location,
    passed_cookies, passed_set_cookie,
};
use rules::refusal::Refusal;
use rules::refusals;

use super::AppAddress;

/// Headers that belong to one connection, besides those that it names itself.
const OF_CONNECTION: [&str; 5] = [
    "connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Who asks, for the app.
pub(super) struct ToApp<'a> {
    pub(super) address: &'a AppAddress,
    /// Where the app listens in its session.
    pub(super) inner_port: u16,
    pub(super) user: &'a str,
    /// A token of ours proved the request: it stays here.
    pub(super) has_token: bool,
    /// The protocol that it changes to.
    pub(super) upgrade: Option<&'a HeaderValue>,
}

impl ToApp<'_> {
    /// The headers of a request as the app gets them. `is_of_another` names cookies of other apps.
    pub(super) fn headers(
        &self,
        said: &HeaderMap,
        is_of_another: impl Fn(&str) -> bool,
    ) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(said.len() + 8);
        let of_connection = OfConnection::of(said);
        for (name, value) in said {
            let is_ours = *name == header::HOST
                || *name == header::COOKIE
                || (*name == header::AUTHORIZATION && self.has_token)
                || is_withheld_of_request(name.as_str())
                || of_connection.has(name);
            if !is_ours {
                headers.append(name.clone(), value.clone());
            }
        }
        let port = self.inner_port;
        for name in [header::ORIGIN, header::REFERER] {
            let Some(value) = headers.get(&name).and_then(|value| value.to_str().ok()) else {
                continue;
            };
            let own = inner_address(value, &self.address.origin, port);
            let is_console = inner_address(value, &self.address.console, port).is_some();
            match own.and_then(|own| HeaderValue::try_from(own).ok()) {
                Some(own) => drop(headers.insert(name, own)),
                // Which session its user looked at is no matter of the app.
                None if is_console => drop(headers.remove(name)),
                None => {}
            }
        }
        // A cookie that scripts set may hold any letter.
        let lines = said.get_all(header::COOKIE).iter();
        let lines: Vec<_> = lines
            .map(|line| String::from_utf8_lossy(line.as_bytes()))
            .collect();
        let cookies = passed_cookies(&lines.join("; "), is_of_another);
        let (scheme, host) = self
            .address
            .origin
            .split_once("://")
            .unwrap_or(("https", ""));
        let usual = if self.address.is_encrypted { 443 } else { 80 };
        let called = host.parse::<Authority>().ok();
        let called = called.and_then(|host| host.port_u16()).unwrap_or(usual);
        let own = [
            (header::HOST, Some(format!("localhost:{port}"))),
            (header::COOKIE, cookies),
            (
                named_header("x-forwarded-for"),
                Some(self.address.source.to_string()),
            ),
            (named_header("x-forwarded-host"), Some(host.to_owned())),
            (named_header("x-forwarded-port"), Some(called.to_string())),
            (named_header("x-forwarded-proto"), Some(scheme.to_owned())),
            (named_header("x-fardel-user"), Some(self.user.to_owned())),
        ];
        for (name, value) in own {
            if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
                headers.insert(name, value);
            }
        }
        if let Some(upgrade) = self.upgrade {
            headers.insert(header::UPGRADE, upgrade.clone());
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        }
        headers
    }
}

fn named_header(name: &'static str) -> HeaderName {
    HeaderName::from_static(name)
}

/// The headers of an answer as a browser gets them, and the names of the cookies that it sets.
///
/// Errors: `app.leads-away`.
pub(super) fn from_app(
    said: &HeaderMap,
    address: &AppAddress,
    inner_port: u16,
) -> Result<(HeaderMap, Vec<String>), Refusal> {
    let mut headers = HeaderMap::with_capacity(said.len() + 2);
    let mut cookies = Vec::new();
    let of_connection = OfConnection::of(said);
    for (name, value) in said {
        if WITHHELD_OF_ANSWER.contains(&name.as_str()) || of_connection.has(name) {
            continue;
        }
        if *name == header::SET_COOKIE {
            let text = std::str::from_utf8(value.as_bytes()).ok();
            let passed = text.and_then(|text| passed_set_cookie(text, address.is_encrypted));
            let passed = passed.and_then(|(cookie, text)| {
                let value = HeaderValue::try_from(text).ok()?;
                Some((cookie, value))
            });
            if let Some((cookie, value)) = passed {
                cookies.push(cookie);
                headers.append(header::SET_COOKIE, value);
            }
        } else if *name == header::LOCATION {
            let text = String::from_utf8_lossy(value.as_bytes());
            match location(&text, &address.origin, &address.console, inner_port) {
                AppLocation::Passed => drop(headers.insert(header::LOCATION, value.clone())),
                AppLocation::Own(path) => {
                    let path = HeaderValue::try_from(path).ok();
                    let path = path.unwrap_or(HeaderValue::from_static("/"));
                    headers.insert(header::LOCATION, path);
                }
                AppLocation::Refused => return Err(refusals::app_leads_away()),
            }
        } else {
            headers.append(name.clone(), value.clone());
        }
    }
    // Besides what the app says of it: browsers hold to both.
    headers.append(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("frame-ancestors 'self'"),
    );
    // No page that opened this one, of another app of the same host, holds on to it.
    headers
        .entry("cross-origin-opener-policy")
        .or_insert(HeaderValue::from_static("same-origin-allow-popups"));
    Ok((headers, cookies))
}

/// The headers of one message that belong to its connection.
struct OfConnection {
    /// Those that `Connection` names.
    named: Vec<HeaderName>,
    /// Its body comes in chunks: a length beside them is not what the next one may go by.
    is_chunked: bool,
}

impl OfConnection {
    fn of(said: &HeaderMap) -> Self {
        let lines = said.get_all(header::CONNECTION).iter();
        let lines = lines.filter_map(|line| line.to_str().ok());
        let names = lines.flat_map(|line| line.split(','));
        Self {
            named: names
                .filter_map(|name| HeaderName::try_from(name.trim()).ok())
                .collect(),
            is_chunked: said.contains_key(header::TRANSFER_ENCODING),
        }
    }

    fn has(&self, name: &HeaderName) -> bool {
        OF_CONNECTION.contains(&name.as_str())
            || self.named.contains(name)
            || (self.is_chunked && *name == header::CONTENT_LENGTH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> AppAddress {
        AppAddress {
            origin: "https://box:8444".to_owned(),
            console: "https://box:7860".to_owned(),
            port: 8444,
            app: None,
            is_encrypted: true,
            source: std::net::Ipv4Addr::new(192, 0, 2, 7).into(),
        }
    }

    fn map(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        headers
    }

    fn text(headers: &HeaderMap, name: &str) -> Vec<String> {
        let values = headers.get_all(name).iter();
        values
            .map(|value| value.to_str().expect("text").to_owned())
            .collect()
    }

    /// Proves too: `only_our_own_pages_and_programs_with_tokens_may_change_anything`
    #[test]
    fn an_app_gets_what_is_not_ours() {
        let said = map(&[
            ("host", "box:8444"),
            ("cookie", "__Host-fardel=secret; a=1"),
            ("cookie", "b=2; __Host-Http-fardel-app-8444=x"),
            ("authorization", "Token of-the-app"),
            ("origin", "https://box:8444"),
            ("referer", "https://box:8444/lab?x"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-fardel-user", "root"),
            ("x_fardel_user", "root"),
            ("content-length", "5"),
            ("transfer-encoding", "chunked"),
            ("forwarded", "for=1.2.3.4"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("accept", "*/*"),
        ]);
        let address = address();
        let to = |has_token, upgrade| ToApp {
            address: &address,
            inner_port: 8888,
            user: "kim",
            has_token,
            upgrade,
        };
        let got = to(false, None).headers(&said, |name| name == "b");
        assert_eq!(text(&got, "host"), ["localhost:8888"]);
        assert_eq!(text(&got, "cookie"), ["a=1"]);
        assert_eq!(text(&got, "authorization"), ["Token of-the-app"]);
        assert_eq!(text(&got, "origin"), ["http://localhost:8888"]);
        assert_eq!(text(&got, "referer"), ["http://localhost:8888/lab?x"]);
        assert_eq!(text(&got, "x-forwarded-for"), ["192.0.2.7"]);
        assert_eq!(text(&got, "x-forwarded-host"), ["box:8444"]);
        assert_eq!(text(&got, "x-forwarded-proto"), ["https"]);
        assert_eq!(text(&got, "x-fardel-user"), ["kim"]);
        assert_eq!(text(&got, "accept"), ["*/*"]);
        for gone in [
            "forwarded",
            "connection",
            "x-hop",
            "te",
            "upgrade",
            "x_fardel_user",
            "content-length",
            "transfer-encoding",
        ] {
            assert!(text(&got, gone).is_empty(), "{gone}");
        }
        assert!(text(&to(true, None).headers(&said, |_| false), "authorization").is_empty());
        let websocket = HeaderValue::from_static("websocket");
        let got = to(false, Some(&websocket)).headers(&said, |_| false);
        assert_eq!(text(&got, "connection"), ["upgrade"]);
        assert_eq!(text(&got, "upgrade"), ["websocket"]);
        // What one cookie holds hides no other one.
        let mut any = HeaderMap::new();
        let line = "a=\u{e9}; __Host-fardel=secret; b=1".as_bytes();
        any.append("cookie", HeaderValue::from_bytes(line).expect("a value"));
        let got = to(false, None).headers(&any, |_| false);
        let line = got["cookie"].as_bytes();
        assert_eq!(line, "a=\u{e9}; b=1".as_bytes());
        let console = map(&[("referer", "https://box:7860/sessions/secret")]);
        assert!(text(&to(false, None).headers(&console, |_| false), "referer").is_empty());
    }

    #[test]
    fn an_answer_reaches_no_further_than_its_own_app() {
        let said = map(&[
            ("set-cookie", "sid=1; Domain=box"),
            ("set-cookie", "__Host-fardel=planted; Path=/; Secure"),
            ("service-worker-allowed", "/"),
            ("clear-site-data", "\"cookies\""),
            ("strict-transport-security", "max-age=1"),
            ("location", "http://localhost:8888/lab"),
            ("content-security-policy", "default-src 'self'"),
            ("access-control-allow-origin", "*"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
        ]);
        let (got, cookies) = from_app(&said, &address(), 8888).expect("passes");
        assert_eq!(cookies, ["sid"]);
        assert_eq!(text(&got, "set-cookie"), ["sid=1; Secure"]);
        assert_eq!(text(&got, "location"), ["/lab"]);
        let policies = ["default-src 'self'", "frame-ancestors 'self'"];
        assert_eq!(text(&got, "content-security-policy"), policies);
        assert_eq!(text(&got, "access-control-allow-origin"), ["*"]);
        for gone in [
            "service-worker-allowed",
            "clear-site-data",
            "strict-transport-security",
        ] {
            assert!(text(&got, gone).is_empty(), "{gone}");
        }
        assert!(text(&got, "transfer-encoding").is_empty());
        assert!(text(&got, "content-length").is_empty());
        let opener = "cross-origin-opener-policy";
        assert_eq!(text(&got, opener), ["same-origin-allow-popups"]);
        let own = map(&[(opener, "same-origin"), ("content-length", "5")]);
        let (got, _) = from_app(&own, &address(), 8888).expect("passes");
        assert_eq!(text(&got, opener), ["same-origin"]);
        assert_eq!(text(&got, "content-length"), ["5"]);
        let away = map(&[("location", "https://box:7860/logout")]);
        let refused = from_app(&away, &address(), 8888).map_err(|refusal| refusal.code);
        assert_eq!(refused, Err("app.leads-away".to_owned()));
    }
}
