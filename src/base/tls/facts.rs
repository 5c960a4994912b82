//! Reads certificates: what stands in one, and whether an uploaded set can serve this
//! machine. Every no says what would work. Never keeps anything.

use std::net::IpAddr;

use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use super::files::MAX_FILE_BYTES;

/// What people want to know of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateDetails {
    /// Its common name, or its whole subject where it has none.
    pub subject: String,
    pub issuer: String,
    /// Host names and addresses it speaks for.
    pub names: Vec<String>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// SHA-256 of the certificate, as `9F:2C:…`.
    pub fingerprint: String,
    /// It may sign others.
    pub authority: bool,
}

/// SHA-256 of a certificate as 32 pairs of capitals with colons between them.
pub fn fingerprint(certificate: &[u8]) -> String {
    let digest = Sha256::digest(certificate);
    let pairs: Vec<String> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    pairs.join(":")
}

/// What stands in a certificate. `tls.certificate-unreadable` for bytes that are none.
pub fn facts(certificate: &[u8]) -> Result<CertificateDetails, Refusal> {
    let read = read(certificate)?;
    let when = |seconds: i64| Timestamp::from_millis(seconds.saturating_mul(1000));
    Ok(CertificateDetails {
        subject: name_of(read.subject()),
        issuer: name_of(read.issuer()),
        names: names_of(&read),
        not_before: when(read.validity().not_before.timestamp()),
        not_after: when(read.validity().not_after.timestamp()),
        fingerprint: fingerprint(certificate),
        authority: read.is_ca(),
    })
}

fn read(certificate: &[u8]) -> Result<X509Certificate<'_>, Refusal> {
    match X509Certificate::from_der(certificate) {
        Ok((_, read)) => Ok(read),
        Err(_) => Err(unreadable()),
    }
}

pub(super) fn unreadable() -> Refusal {
    refusals::tls_certificate_unreadable().at("/certificate")
}

fn name_of(name: &x509_parser::x509::X509Name<'_>) -> String {
    name.iter_common_name()
        .next()
        .and_then(|part| part.as_str().ok())
        .map_or_else(|| name.to_string(), ToOwned::to_owned)
}

fn names_of(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(found)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    general_names(&found.value.general_names)
}

/// Host names and addresses among the alternative names; other sorts are left out.
pub(super) fn general_names(names: &[GeneralName<'_>]) -> Vec<String> {
    let shown = names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => address(bytes).map(|a| a.to_string()),
        _ => None,
    });
    shown.collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(four));
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// Whether one of a certificate's names speaks for `host`: the same, or `*.lab` for `gpu.lab`.
pub fn covers(names: &[String], host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let parent = host.split_once('.').map(|(_, parent)| parent);
    names.iter().any(|name| {
        *name == host
            || name
                .strip_prefix("*.")
                .is_some_and(|rest| parent == Some(rest))
    })
}

/// A key with its chain, ready to serve.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) key: PrivateKeyDer<'static>,
    pub(super) chain: Vec<CertificateDer<'static>>,
}

/// Every certificate of a PEM text, in its order; none where there is none.
pub(super) fn chain(pem: &str) -> Result<Vec<CertificateDer<'static>>, Refusal> {
    if pem.len() > MAX_FILE_BYTES {
        return Err(refusals::tls_certificate_too_large(MAX_FILE_BYTES >> 10).at("/certificate"));
    }
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| unreadable())
}

/// The private key of a PEM text.
pub(super) fn key(pem: &str) -> Result<PrivateKeyDer<'static>, Refusal> {
    if pem.contains("ENCRYPTED") {
        return Err(refusals::tls_key_encrypted().at("/key"));
    }
    PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|_| refusals::tls_key_unreadable().at("/key"))
}

/// Puts key and chain together for the handshake. `tls.key-mismatch` where they do not belong together.
pub(super) fn certified(pair: &Pair) -> Result<CertifiedKey, Refusal> {
    let signer = rustls::crypto::ring::sign::any_supported_type(&pair.key)
        .map_err(|_| refusals::tls_key_unsupported().at("/key"))?;
    let certified = CertifiedKey::new(pair.chain.clone(), signer);
    match certified.keys_match() {
        Ok(()) => Ok(certified),
        Err(_) => Err(refusals::tls_key_mismatch().at("/key")),
    }
}

/// Checks a certificate that this machine is to serve. `wanted`: the names people use for it, of which one
/// has to be covered.
///
/// Errors: see the codes below; nothing is kept.
pub(super) fn check(pair: &Pair, wanted: &[String], now: Timestamp) -> Result<(), Refusal> {
    let Some(first) = pair.chain.first() else {
        return Err(unreadable());
    };
    let own = facts(first)?;
    if own.authority && pair.chain.len() > 1 {
        return Err(order(
            &pair.chain,
            "The first certificate is an authority's.",
        ));
    }
    certified(pair)?;
    if own.not_after <= now {
        return Err(refusals::tls_certificate_expired(own.not_after).at("/certificate"));
    }
    if own.not_before > now {
        return Err(refusals::tls_certificate_not_yet(own.not_before, now).at("/certificate"));
    }
    let usage = read(first)?
        .extended_key_usage()
        .ok()
        .flatten()
        .is_none_or(|usage| usage.value.server_auth || usage.value.any);
    if !usage {
        return Err(refusals::tls_certificate_usage().at("/certificate"));
    }
    if !wanted.iter().any(|name| covers(&own.names, name)) {
        let named = match own.names.as_slice() {
            [] => "no name at all".to_owned(),
            names => names.join(", "),
        };
        return Err(refusals::tls_certificate_name(named, wanted.join(", ")).at("/certificate"));
    }
    let mut below = read(first)?;
    for (place, issuer) in pair.chain.iter().enumerate().skip(1) {
        let above = read(issuer)?;
        if below.issuer() != above.subject()
            || below.verify_signature(Some(above.public_key())).is_err()
        {
            return Err(order(
                &pair.chain,
                &format!(
                    "Certificate {} did not sign certificate {place}.",
                    place + 1
                ),
            ));
        }
        if above.validity().not_after.timestamp() * 1000 <= now.as_millis() {
            return Err(
                refusals::tls_issuer_expired(place + 1, name_of(above.subject()))
                    .at("/certificate"),
            );
        }
        below = above;
    }
    Ok(())
}

/// A chain that is not one, with what is in it.
fn order(chain: &[CertificateDer<'_>], text: &str) -> Refusal {
    let names: Vec<String> = chain
        .iter()
        .map(|c| facts(c).map_or_else(|_| "?".to_owned(), |f| f.subject))
        .collect();
    refusals::tls_chain_order(text, names.join("; ")).at("/certificate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_label() {
        let names = [
            "gpu.lab".to_owned(),
            "*.ai.lab".to_owned(),
            "10.0.0.1".to_owned(),
        ];
        for (host, covered) in [
            ("gpu.lab", true),
            ("GPU.lab", true),
            ("x.ai.lab", true),
            ("ai.lab", false),
            ("x.y.ai.lab", false),
            ("10.0.0.1", true),
            ("10.0.0.2", false),
        ] {
            assert_eq!(covers(&names, host), covered, "{host}");
        }
    }

    #[test]
    fn a_fingerprint_is_read_aloud_in_pairs() {
        assert_eq!(
            fingerprint(b""),
            "E3:B0:C4:42:98:FC:1C:14:9A:FB:F4:C8:99:6F:B9:24:27:AE:41:E4:64:9B:93:4C:A4:95:99:1B:78:52:B8:55"
        );
    }

    #[test]
    fn what_is_no_certificate_says_what_would_work() {
        assert!(chain("hello").expect("no PEM at all").is_empty());
        assert_eq!(
            facts(b"hello").unwrap_err().code,
            "tls.certificate-unreadable"
        );
        let locked =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        assert_eq!(key(locked).unwrap_err().code, "tls.key-encrypted");
        assert_eq!(key("x").unwrap_err().code, "tls.key-unreadable");
        assert_eq!(
            chain(&"x".repeat(MAX_FILE_BYTES + 1)).unwrap_err().code,
            "tls.certificate-too-large"
        );
    }
}
