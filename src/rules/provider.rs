//! Providers of OpenID Connect: where they are, and how parameters go into their addresses. Pure; `server::access` asks
//! one.

use std::fmt::Write as _;

use crate::directory::host_and_port;

/// Letters of an address. Longer ones are no addresses of providers.
const LETTERS_OF_ADDRESS: usize = 2_000;

/// An address of HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebAddress {
    pub encrypted: bool,
    /// A name or an address, an IPv6 one without its brackets.
    pub host: String,
    pub port: u16,
    /// Path and query, from the first slash; `/` where there is none.
    pub path: String,
}

impl WebAddress {
    /// Reads `https://HOST`, with a port, a path and a query, or the same with `http`; None for everything else, also
    /// with a user or a fragment in it.
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let (encrypted, usual) = match scheme {
            "https" => (true, 443),
            "http" => (false, 80),
            _ => return None,
        };
        let bad = |c: char| !c.is_ascii_graphic() || "#\"<>\\^`{|}".contains(c);
        if text.len() > LETTERS_OF_ADDRESS || rest.chars().any(bad) {
            return None;
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (place, path) = rest.split_at(end);
        let (host, port) = host_and_port(place)?;
        Some(Self {
            encrypted,
            host,
            port: port.unwrap_or(usual),
            path: match path {
                "" => "/".to_owned(),
                path if path.starts_with('?') => format!("/{path}"),
                path => path.to_owned(),
            },
        })
    }

    /// What the header `Host` says.
    pub fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.encrypted, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// Scheme and authority: `https://id.example.org`.
    pub fn origin(&self) -> String {
        let scheme = if self.encrypted { "https" } else { "http" };
        format!("{scheme}://{}", self.authority())
    }
}

/// Where the configuration of an issuer stands.
pub fn configuration_of(issuer: &str) -> String {
    let issuer = issuer.strip_suffix('/').unwrap_or(issuer);
    format!("{issuer}/.well-known/openid-configuration")
}

/// Parameters as a query or a form has them.
pub fn parameters(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs
        .iter()
        .map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// An address with more parameters.
pub fn with_parameters(address: &str, pairs: &[(&str, &str)]) -> String {
    let mark = if address.contains('?') { '&' } else { '?' };
    format!("{address}{mark}{}", parameters(pairs))
}

/// Letters that mean nothing in an address stay; of all others each byte is written as a number.
pub fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing into a text cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_provider_is_read_and_nothing_else_is() {
        let read = |text| WebAddress::parse(text).map(|found| (found.origin(), found.path));
        let is = |origin: &str, path: &str| Some((origin.to_owned(), path.to_owned()));
        assert_eq!(
            read("https://id.example.org"),
            is("https://id.example.org", "/")
        );
        assert_eq!(
            read("https://id.example.org:443/realms/a?b=c"),
            is("https://id.example.org", "/realms/a?b=c")
        );
        assert_eq!(read("http://[::1]:8080?x"), is("http://[::1]:8080", "/?x"));
        for bad in [
            "",
            "id.example.org",
            "ftp://a",
            "https://",
            "https://a@b/",
            "https://a/#b",
            "https://a b",
            "https://a\r\n/",
            "https://a:0/",
            "https://a:b/",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn parameters_cannot_break_out_of_an_address() {
        assert_eq!(
            with_parameters("https://a/b?c=d", &[("x", "1&y=2 #é")]),
            "https://a/b?c=d&x=1%26y%3D2%20%23%C3%A9"
        );
        assert_eq!(
            configuration_of("https://a/realms/b/"),
            "https://a/realms/b/.well-known/openid-configuration"
        );
    }
}
