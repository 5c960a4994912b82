//! The client's side of TLS: whom to trust. A server is believed because its certificate leads to an
//! authority that this machine trusts, or to the one that a person compared and accepted. Never asks
//! any server by itself.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rules::refusals;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::facts::{self, CertificateDetails};
use super::{TlsError, fault, provider};

/// Where distributions keep the authorities that a machine trusts.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// Trusts the authorities in this PEM text, and those of the machine where `and_the_machines`.
///
/// Errors: `tls.authority-unreadable` where the text holds no certificate.
pub fn trusting(pem: Option<&str>, and_the_machines: bool) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = pem {
        let (added, _) = roots.add_parsable_certificates(facts::chain(pem)?);
        if added == 0 {
            return Err(refusals::tls_authority_unreadable().into());
        }
    }
    if and_the_machines {
        let bundle = BUNDLES
            .iter()
            .find_map(|path| std::fs::read(Path::new(path)).ok());
        let listed = bundle.unwrap_or_default();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&listed).flatten());
    }
    let verifier: Arc<dyn ServerCertVerifier> = if roots.is_empty() {
        Arc::new(TrustNone)
    } else {
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
            .build()
            .map_err(fault("prepare to check certificates"))?
    };
    config(verifier)
}

fn config(verifier: Arc<dyn ServerCertVerifier>) -> Result<Arc<ClientConfig>, TlsError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(fault("choose the versions of TLS"))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// A host as the handshake names it: an address, or a name. None where it is neither.
pub fn server_name(host: &str) -> Option<ServerName<'static>> {
    match host.parse::<IpAddr>() {
        Ok(address) => Some(ServerName::IpAddress(address.into())),
        Err(_) => ServerName::try_from(host.to_owned()).ok(),
    }
}

/// Takes down what a server shows, without believing it: for showing the fingerprint to a person. Nothing
/// secret may be sent over such a connection.
#[derive(Debug)]
pub struct CertificateCapture {
    provider: Arc<CryptoProvider>,
    seen: Mutex<Vec<CertificateDer<'static>>>,
}

impl CertificateCapture {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            provider: provider(),
            seen: Mutex::default(),
        })
    }

    /// How to connect for looking.
    pub fn config(self: &Arc<Self>) -> Result<Arc<ClientConfig>, TlsError> {
        config(self.clone())
    }

    /// The authority that the server showed: the last certificate of its chain, as PEM and in words. None
    /// before a handshake.
    pub fn authority(&self) -> Option<(String, CertificateDetails)> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let last = seen.last()?;
        let facts = facts::facts(last).ok()?;
        Some((super::keeper::pem("CERTIFICATE", last), facts))
    }
}

impl ServerCertVerifier for CertificateCapture {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = std::iter::once(end_entity)
            .chain(intermediates)
            .map(|certificate| certificate.clone().into_owned())
            .collect();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Trusts no server: a machine without any list of authorities.
#[derive(Debug)]
struct TrustNone;

impl ServerCertVerifier for TrustNone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Err(rustls::CertificateError::UnknownIssuer.into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::CertificateError::UnknownIssuer.into())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::CertificateError::UnknownIssuer.into())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
