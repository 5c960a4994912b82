//! SHA-256 digests as image formats write them, and readers that hash what passes through.
//! Never decides what a mismatch means.

use std::fmt;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, written `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Digest(String);

impl Sha256Digest {
    /// Reads `sha256:<64 hex>`; `None` for another algorithm or anything malformed.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_hex(text.strip_prefix("sha256:")?)
    }

    /// Reads 64 lower-case hexadecimal digits.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let right = hex.len() == 64
            && hex
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        right.then(|| Self(hex.to_owned()))
    }

    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::finished(Sha256::new_with_prefix(bytes))
    }

    pub(crate) fn finished(hash: Sha256) -> Self {
        let mut hex = String::with_capacity(64);
        for byte in hash.finalize() {
            hex.push(char::from(b"0123456789abcdef"[usize::from(byte >> 4)]));
            hex.push(char::from(b"0123456789abcdef"[usize::from(byte & 15)]));
        }
        Self(hex)
    }

    /// The 64 hexadecimal digits; also the name of files and directories in the store.
    pub fn hex(&self) -> &str {
        &self.0
    }

    /// The first twelve digits, as people quote digests.
    pub fn short(&self) -> &str {
        &self.0[..12]
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Sha256Digest> for String {
    fn from(digest: Sha256Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Sha256Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("{text:?} is not a sha256 digest"))
    }
}

/// Passes bytes on and keeps their hash and number.
pub(super) struct Hashing<R> {
    inner: R,
    hash: Sha256,
    bytes: u64,
}

impl<R> Hashing<R> {
    pub(super) fn new(inner: R) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
            bytes: 0,
        }
    }

    /// Bytes that have passed so far.
    pub(super) fn passed(&self) -> u64 {
        self.bytes
    }

    /// Counts bytes that pass by another way.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Digest and number of all bytes that passed.
    pub(super) fn finish(&mut self) -> (Sha256Digest, u64) {
        (
            Sha256Digest::finished(std::mem::take(&mut self.hash)),
            self.bytes,
        )
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.hash.update(&buf[..n]);
        self.bytes += n as u64;
        Ok(n)
    }
}
