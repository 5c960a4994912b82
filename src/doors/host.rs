//! Decides which host a request names, exactly one, or why it names none. Links, cookies and the
//! question whether a page is ours all lean on that name. Never asks whether the name is this machine's.
//!
//! Rules: RFC 9112 section 3.2 (one `Host`, 400 otherwise), RFC 9113 section 8.3.1 (`:authority` and
//! `Host` must not differ).

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Uri, Version, header};
use rules::refusal::Refusal;
use rules::refusals;

/// The host that a request names, as its `Host` header says it.
///
/// Errors: `host.missing`, `host.twice`, `host.malformed`, `host.differs`, all 400.
pub fn of(
    version: Version,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Option<HeaderValue>, Refusal> {
    let mut said = headers.get_all(header::HOST).iter();
    let host = said.next();
    if said.next().is_some() {
        return Err(refusals::host_twice());
    }
    let host = host.map(|host| authority(host.as_bytes())).transpose()?;
    let target = match uri.authority() {
        Some(target) => Some(authority(target.as_str().as_bytes())?),
        None => None,
    };
    let named = match (host, target) {
        (Some(host), Some(target)) if !same(&host, &target, uri) => {
            return Err(refusals::host_differs());
        }
        (Some(host), _) => host,
        (None, Some(target)) if version >= Version::HTTP_2 => target,
        // The oldest clients and probes name none, and get what needs none.
        (None, None) if version <= Version::HTTP_10 => return Ok(None),
        (None, _) => {
            return Err(refusals::host_missing());
        }
    };
    Ok(HeaderValue::from_str(named.as_str()).ok())
}

/// A host with or without a port, and nothing else.
fn authority(bytes: &[u8]) -> Result<Authority, Refusal> {
    let malformed = || refusals::host_malformed();
    let found = Authority::try_from(bytes).map_err(|_| malformed())?;
    let text = found.as_str();
    let port = text.strip_prefix(found.host()).unwrap_or("?");
    let port = port.is_empty() || (port.len() > 1 && found.port_u16().is_some());
    if found.host().is_empty() || text.contains('@') || !port {
        return Err(malformed());
    }
    Ok(found)
}

/// Whether both name one place; the scheme's own port may be left out.
fn same(host: &Authority, target: &Authority, uri: &Uri) -> bool {
    let usual = match uri.scheme_str() {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    };
    host.host().eq_ignore_ascii_case(target.host())
        && host.port_u16().or(usual) == target.port_u16().or(usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_one_host_or_is_refused() {
        let table: [(Version, &str, &[&str], &str); 18] = [
            (Version::HTTP_11, "/", &["box:8080"], "box:8080"),
            (Version::HTTP_11, "/", &["[::1]:8080"], "[::1]:8080"),
            (Version::HTTP_11, "/", &["10.0.0.1"], "10.0.0.1"),
            (Version::HTTP_11, "/", &[], "host.missing"),
            (Version::HTTP_10, "/", &[], "none"),
            (Version::HTTP_11, "/", &["box", "box"], "host.twice"),
            (Version::HTTP_11, "/", &["box", "evil"], "host.twice"),
            (Version::HTTP_11, "/", &[""], "host.malformed"),
            (Version::HTTP_11, "/", &["a b"], "host.malformed"),
            (Version::HTTP_11, "/", &["me@box"], "host.malformed"),
            (Version::HTTP_11, "/", &["box/x"], "host.malformed"),
            (Version::HTTP_11, "/", &["box:99999"], "host.malformed"),
            (Version::HTTP_11, "/", &["box:x"], "host.malformed"),
            (Version::HTTP_11, "http://evil/", &["box"], "host.differs"),
            (Version::HTTP_11, "http://box/", &["box:80"], "box:80"),
            (Version::HTTP_2, "https://box:8443/", &[], "box:8443"),
            (Version::HTTP_2, "https://box/", &["evil"], "host.differs"),
            (Version::HTTP_2, "https://BOX/", &["box"], "box"),
        ];
        for (version, uri, hosts, expected) in table {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, HeaderValue::from_str(host).expect("a value"));
            }
            let found = match of(version, &uri.parse().expect("an address"), &headers) {
                Ok(Some(host)) => host.to_str().expect("text").to_owned(),
                Ok(None) => "none".to_owned(),
                Err(refusal) => refusal.code,
            };
            assert_eq!(found, expected, "{version:?} {uri} {hosts:?}");
        }
    }
}
