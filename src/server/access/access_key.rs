//! Access keys as proofs: a program that has one signs each request and sends no secret. Behind a key stands a token, so
//! it may, narrows and ends as tokens do. The signature covers no body: what is sent has to be kept by TLS.

use std::net::IpAddr;

use api::secret::SecretText;
use ring::hmac;
use rules::refusals;
use rules::units::Timestamp;

use super::secret::{draw, draw_name};
use super::{Caller, of_token};
use crate::{Failure, Server};

/// Seconds between the date of a signed request and the clock of the server, either way. Higher: a request that was
/// seen on its way can be sent again for longer. Lower: machines whose clocks are off are refused.
const MAX_APART_SECONDS: u64 = 15 * 60;
/// Letters of the name of a key that are looked up.
const MAX_NAME: usize = 64;

/// A request as its client signed it. Doors know where its parts stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRequest {
    /// Names the access key.
    pub key: String,
    /// When it was signed, by the client's clock.
    pub at: Timestamp,
    /// The key of the signature is derived from the secret by these, as the client wrote them: its day, `20261128`, and
    /// the host that it asks.
    pub day: String,
    pub host: String,
    /// What was signed.
    pub text: String,
    pub signature: Vec<u8>,
}

impl SignedRequest {
    /// Whether the holder of this secret signed it. Takes as long for each wrong signature.
    pub fn is_by(&self, secret: &SecretText) -> bool {
        hmac::verify(
            &self.signing_key(secret),
            self.text.as_bytes(),
            &self.signature,
        )
        .is_ok()
    }

    fn signing_key(&self, secret: &SecretText) -> hmac::Key {
        let key = |bytes: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, bytes);
        let of_day = hmac::sign(&key(secret.reveal().as_bytes()), self.day.as_bytes());
        let of_host = hmac::sign(&key(of_day.as_ref()), self.host.as_bytes());
        key(of_host.as_ref())
    }

    /// Signs what it says, as a client does.
    #[cfg(test)]
    pub(crate) fn sign(&mut self, secret: &SecretText) {
        let tag = hmac::sign(&self.signing_key(secret), self.text.as_bytes());
        self.signature = tag.as_ref().to_vec();
    }
}

/// The name and the secret of a new key.
pub(crate) fn new_key() -> (String, SecretText) {
    (draw_name(), draw(""))
}

/// Who signed this request.
///
/// Errors: `key.signature-wrong` (the same whether the key exists or not), `key.clock-skew`, `key.expired`,
/// `user.suspended`; `sign-in.address-refused`, `token.address-refused`.
pub async fn by_signature(
    server: &Server,
    signed: &SignedRequest,
    source: IpAddr,
) -> Result<Caller, Failure> {
    let found = server.catalog().read_now("find an access key", |view| {
        let known = match signed.key.len() <= MAX_NAME {
            true => view.access_key(&signed.key)?,
            false => None,
        };
        let Some((token, secret)) = known else {
            return Ok(None);
        };
        let since = view.second_factor_required_since()?;
        let found = view.token_by_id(token)?;
        Ok(found.map(|(token, user)| (token, user, secret, since)))
    })?;
    // Checked by some secret where there is no such key: an answer takes as long.
    let none = SecretText::new("");
    let right = signed.is_by(found.as_ref().map_or(&none, |(_, _, secret, _)| secret));
    let (token, user, _, since) = found
        .filter(|_| right)
        .ok_or_else(refusals::key_signature_wrong)?;
    let now = server.clock().now();
    let apart = now.millis_since(signed.at).max(signed.at.millis_since(now));
    if apart > MAX_APART_SECONDS * 1000 {
        return Err(refusals::key_clock_skew(MAX_APART_SECONDS / 60).into());
    }
    if let Some(end) = token.expires_at
        && end <= now
    {
        return Err(refusals::key_expired(end).into());
    }
    of_token(server, token, &user, since, source)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the client of another product signed, re-derived independently.
    #[test]
    fn signatures_of_a_known_client_are_right_and_other_bytes_are_not() {
        let secret = SecretText::new("SECRETEXAMPLE");
        let date = "2026-08-23T01:02:03.456789+00:00";
        let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let host = "127.0.0.1:8091";
        let hex = "030d272f6c5744012341ec3cb87ce610ccd92fd086a13726186d88042c14f2e6";
        let signature: Vec<u8> = (0..64)
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect();
        let signed = SignedRequest {
            key: "AKIAEXAMPLE".into(),
            at: Timestamp::parse(date).unwrap(),
            day: "20260823".into(),
            host: host.into(),
            text: format!(
                "GET\n/folders?group=x\n{date}\nhost:{host}\ncontent-type:text/plain\n\
                 x-backendai-version:v9.20250722\n{nothing}"
            ),
            signature,
        };
        assert!(signed.is_by(&secret));
        assert!(!signed.is_by(&SecretText::new("SECRETEXAMPLF")));
        let other = |change: fn(&mut SignedRequest)| {
            let mut other = signed.clone();
            change(&mut other);
            other.is_by(&secret)
        };
        assert!(!other(|signed| signed.text.push(' ')));
        assert!(!other(|signed| signed.day = "20260824".into()));
        assert!(!other(|signed| signed.host.push('0')));
        assert!(!other(|signed| signed.signature[0] ^= 1));
        assert!(!other(|signed| signed.signature.truncate(31)));
        assert!(!other(|signed| signed.signature.clear()));
    }
}
