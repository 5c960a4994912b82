//! Checks signatures by the keys of certificates that an administrator named: RSA and P-256 with SHA-256, nothing else. The
//! certificates carry keys and no more: who issued them and until when they are good is asked nowhere here.

use ring::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use rules::refusal::Refusal;
use rules::units::Timestamp;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::facts;

/// Keys of one file that are looked at: a provider that changes its key has two.
const MAX_PINNED_KEYS: usize = 4;
/// Names of the two kinds of keys in certificates (RFC 3279, RFC 5480).
const RSA: &str = "1.2.840.113549.1.1.1";
const CURVE: &str = "1.2.840.10045.2.1";
/// Bytes of an uncompressed point of P-256.
const POINT_BYTES: usize = 65;

/// By what a signature says that it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinnedAlgorithm {
    RsaSha256,
    /// Both numbers one behind the other, 32 bytes each.
    EcdsaSha256,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PinnedKey {
    algorithm: PinnedAlgorithm,
    bytes: Vec<u8>,
}

/// The keys of a file of certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedKeys {
    keys: Vec<PinnedKey>,
    /// When the last of the certificates ends.
    pub ends_at: Timestamp,
}

impl PinnedKeys {
    /// Reads the certificates of a PEM text, at most four; those with keys of other kinds are left out.
    ///
    /// Errors: `tls.certificate-…` for a text without one that is of use.
    pub fn read(pem: &str) -> Result<Self, Refusal> {
        let mut read = Self {
            keys: Vec::new(),
            ends_at: Timestamp::default(),
        };
        for certificate in facts::chain(pem)?.iter().take(MAX_PINNED_KEYS) {
            let found = X509Certificate::from_der(certificate);
            let (_, found) = found.map_err(|_| facts::unreadable())?;
            let key = found.public_key();
            let bytes = key.subject_public_key.data.to_vec();
            let algorithm = match key.algorithm.algorithm.to_id_string().as_str() {
                RSA => PinnedAlgorithm::RsaSha256,
                CURVE if bytes.len() == POINT_BYTES => PinnedAlgorithm::EcdsaSha256,
                _ => continue,
            };
            read.keys.push(PinnedKey { algorithm, bytes });
            let seconds = found.validity().not_after.timestamp();
            let ends_at = Timestamp::from_millis(seconds.saturating_mul(1000));
            read.ends_at = read.ends_at.max(ends_at);
        }
        match read.keys.is_empty() {
            true => Err(facts::unreadable()),
            false => Ok(read),
        }
    }

    /// True where one of the keys signed exactly this. An RSA key of fewer than 2,048 bits signs nothing.
    pub fn signed(&self, algorithm: PinnedAlgorithm, what: &[u8], signature: &[u8]) -> bool {
        let made = |key: &&PinnedKey| key.algorithm == algorithm;
        self.keys.iter().filter(made).any(|key| {
            let checked = match algorithm {
                PinnedAlgorithm::RsaSha256 => {
                    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &key.bytes)
                        .verify(what, signature)
                }
                PinnedAlgorithm::EcdsaSha256 => {
                    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &key.bytes)
                        .verify(what, signature)
                }
            };
            checked.is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Clock;
    use crate::tls::keeper::Keeper;
    use crate::tls::names::HostNames;

    #[test]
    fn keys_are_read_from_certificates_and_sign_nothing_that_they_did_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = HostNames::of_this_machine();
        let keeper = Keeper::open(&folder.path().join("tls"), Clock::system(), names);
        let keeper = keeper.expect("certificates");
        let pem = keeper.authority().pem;
        let pinned = PinnedKeys::read(&pem).expect("a certificate");
        assert_eq!(pinned.keys.len(), 1);
        assert!(pinned.ends_at > Clock::system().now());
        for algorithm in [PinnedAlgorithm::RsaSha256, PinnedAlgorithm::EcdsaSha256] {
            assert!(!pinned.signed(algorithm, b"a statement", &[0; 64]));
        }
        let many = PinnedKeys::read(&pem.repeat(MAX_PINNED_KEYS + 1)).expect("certificates");
        assert_eq!(many.keys.len(), MAX_PINNED_KEYS);
        assert!(PinnedKeys::read("nothing").is_err());
    }
}
