//! Checks signatures that `Keeper::sign` made, with nothing but the certificate of the authority. Keeps no file and asks no
//! server.

use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rules::refusal::Refusal;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::facts;

/// The public key of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningAuthority(Vec<u8>);

impl SigningAuthority {
    /// Reads the first certificate of a PEM text.
    ///
    /// Errors: `tls.certificate-…` for a text without one.
    pub fn read(pem: &str) -> Result<Self, Refusal> {
        let chain = facts::chain(pem)?;
        let first = chain.first().ok_or_else(facts::unreadable)?;
        let (_, read) = X509Certificate::from_der(first).map_err(|_| facts::unreadable())?;
        Ok(Self(read.public_key().subject_public_key.data.to_vec()))
    }

    /// True where the authority signed exactly this.
    pub fn signed(&self, what: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.0)
            .verify(what, signature)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Clock;
    use crate::tls::keeper::Keeper;
    use crate::tls::names::HostNames;

    #[test]
    fn what_the_authority_signed_is_told_from_all_else() {
        let keeper = || {
            let folder = tempfile::tempdir().expect("a folder");
            Keeper::open(
                &folder.path().join("tls"),
                Clock::system(),
                HostNames::of_this_machine(),
            )
            .expect("certificates")
        };
        let (own, other) = (keeper(), keeper());
        let signature = own.sign(b"a statement").expect("signed");
        let authority = SigningAuthority::read(&own.authority().pem).expect("a certificate");
        assert!(authority.signed(b"a statement", &signature));
        assert!(!authority.signed(b"a statemenT", &signature));
        let mut bent = signature.clone();
        bent[10] ^= 1;
        assert!(!authority.signed(b"a statement", &bent));
        let stranger = SigningAuthority::read(&other.authority().pem).expect("a certificate");
        assert!(!stranger.signed(b"a statement", &signature));
        assert!(SigningAuthority::read("nothing").is_err());
    }
}
