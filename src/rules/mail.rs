//! Where the mail server of a site is, and how the connection to it is protected. Pure; `server::mail` speaks to it.

use crate::directory::host_and_port;

/// A mail server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailServer {
    /// A name or an address, an IPv6 one without its brackets.
    pub host: String,
    pub port: u16,
}

impl MailServer {
    /// Reads `HOST` or `HOST:PORT`; without a port it is the usual one of the security. None for everything else.
    pub fn parse(text: &str, security: MailSecurity) -> Option<Self> {
        let (host, port) = host_and_port(text.trim())?;
        Some(Self {
            host,
            port: port.unwrap_or(security.usual_port()),
        })
    }
}

/// How the connection to a mail server is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailSecurity {
    /// TLS begins before anything is said of a mail; a server without it gets none.
    StartTls,
    /// TLS from the first byte.
    Tls,
    /// Nothing is encrypted.
    Plain,
}

impl MailSecurity {
    pub const ALL: [Self; 3] = [Self::StartTls, Self::Tls, Self::Plain];

    /// The word in settings: `starttls`, `tls`, `none`.
    pub fn word(self) -> &'static str {
        match self {
            Self::StartTls => "starttls",
            Self::Tls => "tls",
            Self::Plain => "none",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|security| security.word() == word)
    }

    fn usual_port(self) -> u16 {
        match self {
            Self::StartTls => 587,
            Self::Tls => 465,
            Self::Plain => 25,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_server_has_the_usual_port_of_its_security() {
        let read = |text: &str, security| {
            MailServer::parse(text, security).map(|server| (server.host, server.port))
        };
        let at = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(
            read("10.1.0.7", MailSecurity::StartTls),
            at("10.1.0.7", 587)
        );
        assert_eq!(read(" mail.lab ", MailSecurity::Tls), at("mail.lab", 465));
        assert_eq!(read("[::1]", MailSecurity::Plain), at("::1", 25));
        assert_eq!(
            read("mail.lab:2525", MailSecurity::Plain),
            at("mail.lab", 2525)
        );
        for bad in ["", "a b", "smtp://a", "a:0", "a:x", "a\r\nb"] {
            assert_eq!(read(bad, MailSecurity::Plain), None, "{bad:?}");
        }
        for security in MailSecurity::ALL {
            assert_eq!(MailSecurity::parse(security.word()), Some(security));
        }
        assert_eq!(MailSecurity::parse("ssl"), None);
    }
}
