//! How secrets are drawn, kept and compared: at random, as a hash, in constant time.

use api::secret::SecretText;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Thirty-two random bytes as base64url behind a readable prefix.
pub(crate) fn draw(prefix: &str) -> SecretText {
    let bytes: [u8; 32] = base::observe::random();
    SecretText::new(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

/// What is stored instead of a secret. Right for random secrets only; passwords go through argon2.
pub(crate) fn hash(secret: &SecretText) -> [u8; 32] {
    Sha256::digest(secret.reveal().as_bytes()).into()
}

/// Compares two hashes without telling by time where they differ.
pub(crate) fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.ct_eq(other).into()
}
