//! Text that must not be seen: passwords, tokens, cookies, codes. Has no text form of its own and
//! compares in constant time.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// A secret in memory. Never printed, logged or serialised by accident: `Debug` shows nothing.
#[derive(Clone)]
pub struct SecretText(String);

impl SecretText {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Thirty-two random bytes as base64url behind a readable prefix.
    pub(crate) fn draw(prefix: &str) -> Self {
        let bytes: [u8; 32] = base::observe::random();
        Self(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// The text itself, to show it once to its owner or to hand it to a browser.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is stored instead of it. Right for random secrets only; passwords go through argon2.
    pub(crate) fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl From<&str> for SecretText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl<'de> serde::Deserialize<'de> for SecretText {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self)
    }
}

/// Compares two hashes without telling by time where they differ.
pub(crate) fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.ct_eq(other).into()
}
