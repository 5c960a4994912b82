//! Where a server is: a socket of this machine, or an address and a port, encrypted or not. Names are looked up in
//! /etc/hosts only, because a static binary must not ask the host's name service.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::error::{CliError, UNREACHABLE};

/// A server's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerAddress {
    Socket(PathBuf),
    Tcp {
        host: String,
        port: u16,
        secure: bool,
    },
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { secure, .. } => {
                let scheme = if *secure { "https" } else { "http" };
                write!(f, "{scheme}://{}", self.authority())
            }
        }
    }
}

/// The port of a server that was named without one: a workstation's own, and a machine's for everybody.
const PORT: u16 = 7860;
const SECURE_PORT: u16 = 443;

impl ServerAddress {
    /// Reads `https://host:port`, `http://host:port`, `host:port`, `host`, `unix:/path` or `/path`.
    /// Without a scheme it is encrypted, except for this machine itself.
    pub(super) fn parse(text: &str) -> Result<Self, CliError> {
        let wrong = || {
            CliError::usage(format!("{text:?} is not the address of a server."))
                .hint("https://192.0.2.10 or unix:/run/fardel/fardel.sock would work.")
        };
        let text = text.trim();
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Socket(path.trim_start_matches("//").into()));
        }
        if text.starts_with('/') {
            return Ok(Self::Socket(text.into()));
        }
        let (scheme, rest) = match text.split_once("://") {
            Some(("https", rest)) => (Some(true), rest),
            Some(("http", rest)) => (Some(false), rest),
            Some(_) => return Err(wrong()),
            None => (None, text),
        };
        let rest = rest.split('/').next().unwrap_or_default();
        if rest.contains('@') || rest.is_empty() {
            return Err(wrong());
        }
        let (host, port) = if let Some(inner) = rest.strip_prefix('[') {
            let (host, after) = inner.split_once(']').ok_or_else(wrong)?;
            (host, after.strip_prefix(':'))
        } else {
            match rest.rsplit_once(':') {
                Some((host, port)) if !host.contains(':') => (host, Some(port)),
                _ => (rest, None),
            }
        };
        if host.is_empty() {
            return Err(wrong());
        }
        let here = host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let secure = scheme.unwrap_or(!here);
        let port = match port {
            Some(port) => port.parse().map_err(|_| wrong())?,
            None if secure => SECURE_PORT,
            None => PORT,
        };
        Ok(Self::Tcp {
            host: host.to_owned(),
            port,
            secure,
        })
    }

    /// What the `Host` header says.
    pub(super) fn authority(&self) -> String {
        match self {
            Self::Socket(_) => "localhost".to_owned(),
            Self::Tcp { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            Self::Tcp { host, port, .. } => format!("{host}:{port}"),
        }
    }

    /// Whether what crosses to it is encrypted, or never leaves this machine's kernel.
    pub(super) fn is_secure(&self) -> bool {
        matches!(self, Self::Tcp { secure: true, .. })
    }
}

/// Finds the numeric addresses of `host`: itself, localhost, or what `hosts` (normally /etc/hosts)
/// says. Refuses a name that stands in none of them.
pub(super) fn resolve(host: &str, port: u16, hosts: &Path) -> Result<Vec<SocketAddr>, CliError> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let listed = std::fs::read_to_string(hosts).unwrap_or_default();
    let mut found: Vec<SocketAddr> = listed
        .lines()
        .filter_map(|line| {
            let mut words = line.split('#').next()?.split_whitespace();
            let ip: IpAddr = words.next()?.parse().ok()?;
            words
                .any(|name| name.eq_ignore_ascii_case(host))
                .then_some(SocketAddr::new(ip, port))
        })
        .collect();
    if found.is_empty() && host.eq_ignore_ascii_case("localhost") {
        found.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    }
    // A server bound to loopback listens on IPv4 unless told otherwise.
    found.sort_by_key(SocketAddr::is_ipv6);
    if found.is_empty() {
        return Err(CliError::new(
            UNREACHABLE,
            "name.unresolved",
            format!("The name {host} is not known on this machine."),
        )
        .hint(
            "This client asks no name server: give the number (http://192.0.2.10:7860), or add \
             the name to /etc/hosts.",
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, secure: bool) -> ServerAddress {
        ServerAddress::Tcp {
            host: host.into(),
            port,
            secure,
        }
    }

    #[test]
    fn addresses_are_read_as_users_write_them() {
        for (text, address) in [
            ("http://10.0.0.5:8080/", tcp("10.0.0.5", 8080, false)),
            ("10.0.0.5", tcp("10.0.0.5", 443, true)),
            ("box:80", tcp("box", 80, true)),
            ("https://box", tcp("box", 443, true)),
            ("https://[fd00::1]:9/x", tcp("fd00::1", 9, true)),
            ("http://box", tcp("box", 7860, false)),
            ("127.0.0.1", tcp("127.0.0.1", 7860, false)),
            ("localhost:1", tcp("localhost", 1, false)),
            ("http://[::1]:9", tcp("::1", 9, false)),
            ("unix:/a/b", ServerAddress::Socket("/a/b".into())),
            ("unix:///a/b", ServerAddress::Socket("/a/b".into())),
            ("/a/b", ServerAddress::Socket("/a/b".into())),
        ] {
            assert_eq!(ServerAddress::parse(text).expect(text), address, "{text}");
        }
        for text in ["", "http://", "box:port", "https://", "ftp://x", "a@b"] {
            assert!(ServerAddress::parse(text).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn names_come_from_the_hosts_file_only() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let hosts = folder.path().join("hosts");
        std::fs::write(&hosts, "192.0.2.7 gpu-01 gpu # lab\n::1 gpu-01\n").expect("written");
        assert_eq!(
            resolve("GPU-01", 1, &hosts).expect("listed"),
            vec!["192.0.2.7:1".parse().unwrap(), "[::1]:1".parse().unwrap()]
        );
        assert_eq!(
            resolve("localhost", 2, &hosts).expect("always known"),
            vec!["127.0.0.1:2".parse().unwrap()]
        );
        assert_eq!(resolve("lab", 1, &hosts).unwrap_err().exit, UNREACHABLE);
    }
}
