//! Why a connection to a machine outside failed: a sentence of the catalogue, with the system's own words behind it.
//! Opens no connection, and decides nothing about a next try.

use std::io::{Error, ErrorKind};

use rules::reason::Reason;
use rules::reasons;

use crate::observe::chain;

/// What an administrator can mend, with the error as it came.
pub fn told(error: &Error) -> Reason {
    let own = chain(error);
    match error.kind() {
        ErrorKind::ConnectionRefused => reasons::connection_refused(own),
        ErrorKind::TimedOut => reasons::connection_timed_out(),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            reasons::connection_unreachable(own)
        }
        ErrorKind::BrokenPipe
        | ErrorKind::ConnectionAborted
        | ErrorKind::ConnectionReset
        | ErrorKind::UnexpectedEof => reasons::connection_broken_off(own),
        _ => match of_tls(error) {
            Some(rustls::Error::InvalidCertificate(_)) => reasons::connection_untrusted(own),
            Some(_) => reasons::connection_unreadable(own),
            None => reasons::connection_system(own),
        },
    }
}

/// What TLS said, which comes inside an error of the stream.
fn of_tls(error: &Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

#[cfg(test)]
mod tests {
    use rules::codes;

    use super::*;

    #[test]
    fn a_failed_connection_has_a_code_and_keeps_its_own_words() {
        let untrusted = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let no_tls = rustls::Error::HandshakeNotComplete;
        for (error, code) in [
            (
                Error::from(ErrorKind::ConnectionRefused),
                codes::CONNECTION_REFUSED,
            ),
            (
                Error::from(ErrorKind::NetworkUnreachable),
                codes::CONNECTION_UNREACHABLE,
            ),
            (
                Error::from(ErrorKind::ConnectionReset),
                codes::CONNECTION_BROKEN_OFF,
            ),
            (
                Error::new(ErrorKind::InvalidData, untrusted),
                codes::CONNECTION_UNTRUSTED,
            ),
            (
                Error::new(ErrorKind::InvalidData, no_tls),
                codes::CONNECTION_UNREADABLE,
            ),
            (
                Error::from(ErrorKind::StorageFull),
                codes::CONNECTION_SYSTEM,
            ),
        ] {
            let reason = told(&error);
            assert_eq!(reason.code, code);
            assert!(reason.text.ends_with(&error.to_string()), "{reason:?}");
        }
        let late = told(&ErrorKind::TimedOut.into());
        assert_eq!(late, reasons::connection_timed_out());
    }
}
