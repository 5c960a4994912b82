//! Makes keys, certificates and requests. Decides how long they are good and what stands in them; writes
//! no file and reads no clock.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SerialNumber, date_time_ymd,
};
use rules::units::Timestamp;
use rustls::pki_types::CertificateDer;

use super::names::HostNames;
use super::{TlsError, fault};
use crate::observe::random;

const DAY: u64 = 86_400;
/// Seconds that the authority is good: twenty years, longer than the machine.
const AUTHORITY_AFTER: u64 = 20 * 365 * DAY;
/// Seconds before now from which certificates are good, because clocks of clients may be slow and this
/// machine's may be put right later.
const BEFORE: u64 = 400 * DAY;
/// Seconds after now until which a certificate is good. With `BEFORE` 820 days in all: Apple's systems
/// refuse a server's certificate of more than 825.
const AFTER: u64 = 420 * DAY;

/// What `files` keeps: a key and the certificates that speak for it, as PEM, key first.
pub(super) struct KeyAndChain {
    pub(super) key_pem: String,
    pub(super) chain_pem: String,
}

impl KeyAndChain {
    pub(super) fn text(&self) -> String {
        format!("{}{}", self.key_pem, self.chain_pem)
    }
}

/// Makes a certificate good from `before` seconds before `at` until `after` seconds after it.
fn good(params: &mut CertificateParams, at: Timestamp, before: u64, after: u64) {
    let seconds = u64::try_from(at.as_millis() / 1000).unwrap_or(0);
    let start = date_time_ymd(1970, 1, 1);
    params.not_before = start + Duration::from_secs(seconds.saturating_sub(before));
    params.not_after = start + Duration::from_secs(seconds + after);
}

/// A serial number that no other certificate of the same name has: browsers refuse a second one.
fn serial() -> SerialNumber {
    let mut bytes = random::<16>();
    bytes[0] &= 0x7f;
    SerialNumber::from_slice(&bytes)
}

/// A new authority. Its name ends in four letters of chance, so that a box that was founded again is
/// not mistaken for its former self.
pub(super) fn authority(host: &str, at: Timestamp) -> Result<KeyAndChain, TlsError> {
    let failed = || fault::<rcgen::Error>("make a certificate authority");
    let key = KeyPair::generate().map_err(failed())?;
    let mut params = CertificateParams::default();
    good(&mut params, at, 2 * BEFORE, AUTHORITY_AFTER);
    let mark: String = random::<2>().iter().map(|b| format!("{b:02X}")).collect();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("fardel {host} {mark}"));
    params
        .distinguished_name
        .push(DnType::OrganizationName, "fardel");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params.serial_number = Some(serial());
    let made = params.self_signed(&key).map_err(failed())?;
    Ok(KeyAndChain {
        key_pem: key.serialize_pem(),
        chain_pem: made.pem(),
    })
}

/// A certificate for this machine's names, signed by the authority whose file is `authority_pem`.
pub(super) fn own(
    authority_key_pem: &str,
    authority: &CertificateDer<'_>,
    authority_pem: &str,
    names: &HostNames,
    at: Timestamp,
) -> Result<KeyAndChain, TlsError> {
    let failed = || fault::<rcgen::Error>("make this machine's certificate");
    let signer = KeyPair::from_pem(authority_key_pem).map_err(failed())?;
    let issuer = Issuer::from_ca_cert_der(authority, signer).map_err(failed())?;
    let key = KeyPair::generate().map_err(failed())?;
    let mut params = CertificateParams::new(names.all()).map_err(failed())?;
    good(&mut params, at, BEFORE, AFTER);
    params
        .distinguished_name
        .push(DnType::CommonName, common_name(&names.host));
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.serial_number = Some(serial());
    let made = params.signed_by(&key, &issuer).map_err(failed())?;
    // The authority goes along, so that a client that meets this machine first can show whom to trust.
    Ok(KeyAndChain {
        key_pem: key.serialize_pem(),
        chain_pem: format!("{}{authority_pem}", made.pem()),
    })
}

/// A request for a certificate from another authority, and the key that stays here.
pub(super) fn request(names: &[String], organisation: &str) -> Result<KeyAndChain, TlsError> {
    let failed = || fault::<rcgen::Error>("make a request for a certificate");
    let key = KeyPair::generate().map_err(failed())?;
    let mut params = CertificateParams::new(names.to_vec()).map_err(failed())?;
    let first = names.first().map(String::as_str).unwrap_or_default();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name(first));
    if !organisation.is_empty() {
        params
            .distinguished_name
            .push(DnType::OrganizationName, organisation);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let made = params.serialize_request(&key).map_err(failed())?;
    Ok(KeyAndChain {
        key_pem: key.serialize_pem(),
        chain_pem: made.pem().map_err(failed())?,
    })
}

/// X.520 allows a common name 64 characters; the whole name stands among the alternative names.
fn common_name(name: &str) -> &str {
    name.get(..64).unwrap_or(name)
}
