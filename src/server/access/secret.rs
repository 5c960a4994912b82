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

/// Letters of codes: none that are mistaken for another when read aloud.
const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// Letters of a code, 5 bits each: not guessed in a life.
pub(super) const CODE_LETTERS: usize = 16;

/// Letters of a name: 100 bits, so that no two are alike.
const NAME_LETTERS: usize = 20;

/// A code that people type: four times four letters, with hyphens between.
pub(super) fn draw_code() -> String {
    let letters: String = base::observe::random::<CODE_LETTERS>()
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte & 31)]))
        .collect();
    let parts = [
        &letters[..4],
        &letters[4..8],
        &letters[8..12],
        &letters[12..],
    ];
    parts.join("-")
}

/// The name of a secret: no secret itself, and no other one has it.
pub(super) fn draw_name() -> String {
    let letters = base::observe::random::<NAME_LETTERS>();
    let letters = letters.map(|byte| char::from(LETTERS[usize::from(byte & 31)]));
    letters.iter().collect()
}

/// A code as it is compared: without hyphens and blanks, in capitals.
pub(super) fn plain_code(typed: &str) -> String {
    typed
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(64)
        .map(|letter| letter.to_ascii_uppercase())
        .collect()
}

/// What is stored instead of a secret. Right for random secrets only; passwords go through argon2.
pub(crate) fn hash(secret: &SecretText) -> [u8; 32] {
    Sha256::digest(secret.reveal().as_bytes()).into()
}

/// Compares two hashes without telling by time where they differ.
pub(crate) fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.ct_eq(other).into()
}
