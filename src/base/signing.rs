//! Ed25519 keys of environment bundles: the key that signs one, and the keys that a box trusts. Reads texts, never files,
//! and decides nothing about who is trusted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

/// Before a key that signs, in its file.
const SECRET_WORD: &str = "fardel-environment-key";
/// Most keys that a box trusts. Higher: a longer look at each bundle. Lower: sites with many suppliers need two boxes.
pub const MAX_TRUSTED_KEYS: usize = 64;
/// Bytes of the file of trusted keys.
pub const MAX_KEY_FILE_BYTES: u64 = 64 << 10;

/// A public key, 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyingKey([u8; 32]);

impl VerifyingKey {
    /// Reads it as base64.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// As base64.
    pub fn text(&self) -> String {
        STANDARD.encode(self.0)
    }

    /// Whether this key signed these bytes.
    pub fn has_signed(&self, bytes: &[u8], signature: &[u8; 64]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, self.0);
        key.verify(bytes, signature).is_ok()
    }
}

/// A key that a box trusts, with the name that people know its owner by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedKey {
    pub name: String,
    pub key: VerifyingKey,
}

/// Reads a list of trusted keys: a name and a key on each line, `#` before a remark. None where a line is none of these,
/// or where there are more than `MAX_TRUSTED_KEYS`.
pub fn trusted_keys(text: &str) -> Option<Vec<TrustedKey>> {
    let mut keys = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, key) = line.split_once(char::is_whitespace)?;
        let is_plain = name.len() <= 64 && name.chars().all(|c| c.is_ascii_graphic());
        if !is_plain || keys.len() == MAX_TRUSTED_KEYS {
            return None;
        }
        keys.push(TrustedKey {
            name: name.to_owned(),
            key: VerifyingKey::parse(key.trim())?,
        });
    }
    Some(keys)
}

/// Reads a line that `SigningKey::signature_line` wrote. None for any other text.
pub fn read_signature_line(line: &[u8]) -> Option<(VerifyingKey, [u8; 64])> {
    let (key, signature) = std::str::from_utf8(line).ok()?.trim().split_once(' ')?;
    let signature = STANDARD.decode(signature).ok()?;
    Some((VerifyingKey::parse(key)?, signature.try_into().ok()?))
}

/// A key that signs.
pub struct SigningKey(Ed25519KeyPair);

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey {}", self.public().text())
    }
}

impl SigningKey {
    /// Draws a key and gives the text of its file. None where the machine has no random numbers.
    pub fn draw() -> Option<String> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).ok()?;
        Some(format!("{SECRET_WORD} {}\n", STANDARD.encode(seed)))
    }

    /// Reads the text of such a file.
    pub fn parse(text: &str) -> Option<Self> {
        let (word, seed) = text.trim().split_once(' ')?;
        let seed = STANDARD.decode(seed.trim()).ok()?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).ok()?;
        (word == SECRET_WORD).then_some(Self(pair))
    }

    /// The half that others trust.
    pub fn public(&self) -> VerifyingKey {
        let bytes = self.0.public_key().as_ref();
        VerifyingKey(bytes.try_into().expect("an Ed25519 key has 32 bytes"))
    }

    /// What stands beside signed bytes: the public key and the signature in base64, on a line.
    pub fn signature_line(&self, bytes: &[u8]) -> String {
        let signature = STANDARD.encode(self.sign(bytes));
        format!("{} {signature}\n", self.public().text())
    }

    /// Signs these bytes; the same bytes get the same signature.
    pub fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        let signature = self.0.sign(bytes);
        let bytes = signature.as_ref();
        bytes.try_into().expect("an Ed25519 signature has 64 bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_key_signs_and_its_public_half_tells() {
        let key = SigningKey::parse(&SigningKey::draw().unwrap()).unwrap();
        let signature = key.sign(b"bytes");
        assert!(key.public().has_signed(b"bytes", &signature));
        assert!(!key.public().has_signed(b"other", &signature));
        let line = key.signature_line(b"bytes");
        let read = read_signature_line(line.as_bytes());
        assert_eq!(read, Some((key.public(), signature)));
        let other = SigningKey::parse(&SigningKey::draw().unwrap()).unwrap();
        assert!(!other.public().has_signed(b"bytes", &signature));
        let list = format!("# ours\n\nlab {}\n", key.public().text());
        let trusted = trusted_keys(&list).unwrap();
        assert_eq!((trusted.len(), trusted[0].key), (1, key.public()));
    }

    #[test]
    fn what_is_no_key_is_none() {
        for text in ["", "lab", "fardel-environment-key AAAA", "x AAAA"] {
            assert!(SigningKey::parse(text).is_none(), "{text}");
        }
        for text in ["lab", "lab AAAA", "two words AAAA"] {
            assert!(trusted_keys(text).is_none(), "{text}");
        }
        let line = format!("k {}\n", STANDARD.encode([1; 32]));
        assert!(trusted_keys(&line.repeat(MAX_TRUSTED_KEYS)).is_some());
        assert!(trusted_keys(&line.repeat(MAX_TRUSTED_KEYS + 1)).is_none());
    }
}
