//! The envelope of a backup: a readable header, then chunks that each carry a tag, so that a cut, a
//! changed or a swapped byte anywhere is found. Knows nothing of what is inside.
//!
//! Line one is `fardel backup 1`, line two the header as JSON. Then follow chunks of 64 KiB, the last
//! one shorter, each sealed with ChaCha20-Poly1305. The key comes from the passphrase by argon2id over
//! a salt drawn for this file alone, the nonce is the chunk's number and a mark on the last, and what
//! every tag also covers is the digest of the two lines. Since the header tells the length, a file
//! that was cut is known before anything is decrypted.

use std::io::{self, BufRead as _, Read, Write};

use argon2::{Algorithm, Argon2, Params, Version};
use base::observe::random;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use crate::ServerFault;

const FORMAT: u32 = 1;
const FIRST_WORDS: &str = "fardel backup ";
const CHUNK: usize = 64 * 1024;
const TAG: usize = 16;
/// Longest line of the header; a longer one is none of ours.
const MAX_LINE_LENGTH: u64 = 4096;
/// What deriving the key costs: KiB and passes. Higher: guessing a passphrase costs more, and so does
/// each backup (0.3 s on a slow core). A file that asks for more than `MAX_CHUNK_BYTES` is none of ours.
const COST: (u32, u32) = if cfg!(test) { (64, 1) } else { (64 * 1024, 3) };
const MAX_CHUNK_BYTES: (u32, u32) = (512 * 1024, 16);

/// What may be read of a backup without its passphrase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealHeader {
    pub made_at: Timestamp,
    /// Version of the program that made it.
    pub program: String,
    /// Version of the catalog's schema inside.
    pub catalog_version: u32,
    /// The installation it was made on.
    #[serde(alias = "box_id")]
    pub installation_id: Uuid,
    /// Bytes inside, before encryption.
    pub length: u64,
    salt: String,
    memory_kib: u32,
    passes: u32,
    /// Tells a wrong passphrase from a damaged file.
    check: String,
}

/// What opens a backup. Never printed.
#[derive(Clone)]
pub struct Passphrase(String);

impl std::fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passphrase")
    }
}

impl Passphrase {
    /// At least twelve characters; a line break at the end is none of them.
    pub fn new(text: &str) -> Result<Self, Refusal> {
        let text = text.trim_end_matches(['\r', '\n']);
        if text.chars().count() < 12 {
            return Err(refusals::backup_passphrase_short());
        }
        Ok(Self(text.to_owned()))
    }

    /// The first line of a file that only its owner may read.
    pub fn read(path: &std::path::Path) -> Result<Self, Refusal> {
        use std::os::unix::fs::PermissionsExt as _;
        let unreadable = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => refusals::backup_passphrase_file_gone(path.display()),
            _ => refusals::backup_passphrase_unreadable(path.display(), &error),
        };
        let mode = std::fs::metadata(path)
            .map_err(unreadable)?
            .permissions()
            .mode();
        if mode & 0o077 != 0 {
            return Err(refusals::backup_passphrase_open(
                path.display(),
                format_args!("{:o}", mode & 0o777),
            ));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::new(text.lines().next().unwrap_or_default())
    }
}

/// What the caller knows of a backup that is about to be written.
pub(super) struct About {
    pub(super) made_at: Timestamp,
    pub(super) catalog_version: u32,
    pub(super) installation_id: Uuid,
    pub(super) length: u64,
}

struct BackupKeys {
    key: LessSafeKey,
    check: [u8; 32],
}

fn keys(passphrase: &Passphrase, salt: &[u8], cost: (u32, u32)) -> Result<BackupKeys, ServerFault> {
    let params = Params::new(cost.0, cost.1, 1, Some(64))
        .map_err(|error| ServerFault::new("choose what a key costs", error.to_string()))?;
    let mut bytes = [0; 64];
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(passphrase.0.as_bytes(), salt, &mut bytes)
        .map_err(|error| ServerFault::new("derive a key", error.to_string()))?;
    let key = UnboundKey::new(&CHACHA20_POLY1305, &bytes[..32])
        .map_err(|error| ServerFault::new("make a key", error.to_string()))?;
    // The second half is hashed once more, so that nothing of argon2's output stands in the file.
    let check = Sha256::digest(&bytes[32..]).into();
    Ok(BackupKeys {
        key: LessSafeKey::new(key),
        check,
    })
}

fn nonce(number: u64, last: bool) -> Nonce {
    let mut bytes = [0; 12];
    bytes[3..11].copy_from_slice(&number.to_be_bytes());
    bytes[11] = u8::from(last);
    Nonce::assume_unique_for_key(bytes)
}

/// Chunks that `length` bytes make; an empty backup still has one, which carries the last mark.
fn chunks(length: u64) -> u64 {
    length.div_ceil(CHUNK as u64).max(1)
}

/// Writes the envelope. Nothing is a backup before `finish`.
pub(super) struct Sealer<W> {
    to: W,
    keys: BackupKeys,
    covered: [u8; 32],
    number: u64,
    left: u64,
    waiting: Vec<u8>,
}

impl<W: Write> Sealer<W> {
    pub(super) fn begin(
        mut to: W,
        passphrase: &Passphrase,
        about: About,
    ) -> Result<Self, ServerFault> {
        let salt: [u8; 16] = random();
        let keys = keys(passphrase, &salt, COST)?;
        let header = SealHeader {
            made_at: about.made_at,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            catalog_version: about.catalog_version,
            installation_id: about.installation_id,
            length: about.length,
            salt: STANDARD.encode(salt),
            memory_kib: COST.0,
            passes: COST.1,
            check: STANDARD.encode(keys.check),
        };
        let header = serde_json::to_string(&header)
            .map_err(|error| ServerFault::new("write a header", error))?;
        let lines = format!("{FIRST_WORDS}{FORMAT}\n{header}\n");
        to.write_all(lines.as_bytes())
            .map_err(|error| ServerFault::new("write a header", error))?;
        Ok(Self {
            to,
            keys,
            covered: Sha256::digest(lines.as_bytes()).into(),
            number: 0,
            left: about.length,
            waiting: Vec::with_capacity(CHUNK + TAG),
        })
    }

    fn seal(&mut self, last: bool) -> io::Result<()> {
        let nonce = nonce(self.number, last);
        let mut chunk = std::mem::take(&mut self.waiting);
        self.keys
            .key
            .seal_in_place_append_tag(nonce, Aad::from(self.covered), &mut chunk)
            .map_err(|_| io::Error::other("a chunk could not be sealed"))?;
        self.to.write_all(&chunk)?;
        chunk.clear();
        self.waiting = chunk;
        self.number += 1;
        Ok(())
    }

    /// Ends the envelope and gives what it was written to.
    ///
    /// Errors: of the disk; and where fewer bytes came than the header tells.
    pub(super) fn finish(mut self) -> io::Result<W> {
        if self.left != 0 {
            return Err(io::Error::other("what was backed up changed its size"));
        }
        self.seal(true)?;
        Ok(self.to)
    }
}

impl<W: Write> Write for Sealer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            return Err(io::Error::other("what was backed up changed its size"));
        }
        // A full chunk is sealed only when more follows, so that the last one carries its mark.
        if self.waiting.len() == CHUNK && !bytes.is_empty() {
            self.seal(false)?;
        }
        let taken = bytes.len().min(CHUNK - self.waiting.len());
        self.waiting.extend_from_slice(&bytes[..taken]);
        self.left -= taken as u64;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads the envelope. What it gives was checked byte for byte.
pub(super) struct Opener<R> {
    from: io::BufReader<R>,
    keys: BackupKeys,
    covered: [u8; 32],
    number: u64,
    left: u64,
    open: Vec<u8>,
    at: usize,
}

/// Reads the two lines in front. `size` is the whole file's.
///
/// Errors: `backup.foreign`, `backup.newer`, `backup.cut`, `backup.damaged`.
pub(super) fn header<R: Read>(
    from: &mut io::BufReader<R>,
    size: u64,
) -> Result<(SealHeader, [u8; 32]), Refusal> {
    let mut line = || -> Option<String> {
        let mut text = Vec::new();
        let read = from
            .by_ref()
            .take(MAX_LINE_LENGTH)
            .read_until(b'\n', &mut text);
        (read.is_ok() && text.ends_with(b"\n"))
            .then(|| String::from_utf8(text).ok())
            .flatten()
    };
    let foreign = || refusals::backup_foreign();
    let first = line().ok_or_else(foreign)?;
    let format: u32 = first
        .strip_prefix(FIRST_WORDS)
        .and_then(|rest| rest.trim_end().parse().ok())
        .ok_or_else(foreign)?;
    if format > FORMAT {
        return Err(newer(&format!(
            "its format is {format}, this program knows {FORMAT}"
        )));
    }
    let second = line().ok_or_else(cut)?;
    let header: SealHeader = serde_json::from_str(&second).map_err(|_| damaged())?;
    if header.memory_kib > MAX_CHUNK_BYTES.0 || header.passes > MAX_CHUNK_BYTES.1 {
        return Err(damaged());
    }
    let front = (first.len() + second.len()) as u64;
    let whole = chunks(header.length)
        .checked_mul(TAG as u64)
        .and_then(|tags| tags.checked_add(header.length)?.checked_add(front))
        .ok_or_else(damaged)?;
    if size < whole {
        return Err(cut());
    }
    if size > whole {
        return Err(damaged());
    }
    let covered = Sha256::digest(format!("{first}{second}").as_bytes()).into();
    Ok((header, covered))
}

impl<R: Read> Opener<R> {
    /// Errors: as `header`, and `backup.wrong-passphrase`.
    pub(super) fn begin(
        from: R,
        size: u64,
        passphrase: &Passphrase,
    ) -> Result<(Self, SealHeader), crate::Failure> {
        let mut from = io::BufReader::with_capacity(CHUNK, from);
        let (header, covered) = header(&mut from, size)?;
        let salt = STANDARD.decode(&header.salt).map_err(|_| damaged())?;
        let check = STANDARD.decode(&header.check).map_err(|_| damaged())?;
        let keys =
            keys(passphrase, &salt, (header.memory_kib, header.passes)).map_err(|_| damaged())?;
        if !bool::from(keys.check.ct_eq(check.as_slice())) {
            return Err(refusals::backup_wrong_passphrase().into());
        }
        let left = header.length;
        let opener = Self {
            from,
            keys,
            covered,
            number: 0,
            left,
            open: Vec::new(),
            at: 0,
        };
        Ok((opener, header))
    }

    fn next(&mut self) -> io::Result<()> {
        let length = usize::try_from(self.left.min(CHUNK as u64)).unwrap_or(CHUNK);
        let last = self.left <= CHUNK as u64;
        self.open.resize(length + TAG, 0);
        self.from
            .read_exact(&mut self.open)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => io::Error::other(cut()),
                _ => error,
            })?;
        let nonce = nonce(self.number, last);
        self.keys
            .key
            .open_in_place(nonce, Aad::from(self.covered), &mut self.open)
            .map_err(|_| io::Error::other(damaged()))?;
        self.open.truncate(length);
        self.at = 0;
        self.number += 1;
        self.left -= length as u64;
        Ok(())
    }
}

impl<R: Read> Read for Opener<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.open.len() {
            if self.left == 0 && self.number > 0 {
                return Ok(0);
            }
            self.next()?;
        }
        let taken = into.len().min(self.open.len() - self.at);
        into[..taken].copy_from_slice(&self.open[self.at..self.at + taken]);
        self.at += taken;
        Ok(taken)
    }
}

pub(super) fn cut() -> Refusal {
    refusals::backup_cut()
}

pub(super) fn damaged() -> Refusal {
    refusals::backup_damaged()
}

pub(super) fn newer(why: &str) -> Refusal {
    refusals::backup_newer(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_in_front_have_their_longest() {
        let about = SealHeader {
            made_at: rules::units::Timestamp::from_millis(0),
            program: String::new(),
            catalog_version: 1,
            installation_id: Uuid::nil(),
            length: 0,
            memory_kib: COST.0,
            passes: COST.1,
            salt: String::new(),
            check: String::new(),
        };
        let about = serde_json::to_string(&about).expect("plain values");
        let padded = |text: &str, size: usize| format!("{text:<0$}\n", size - 1);
        let words = format!("{FIRST_WORDS}{FORMAT}");
        let code = |first: usize, second: usize| {
            let file = padded(&words, first) + &padded(&about, second);
            let size = file.len() as u64 + chunks(0) * TAG as u64;
            let read = header(&mut io::BufReader::new(file.as_bytes()), size);
            read.map_or_else(|refusal| refusal.code, |_| "fine".to_owned())
        };
        assert_eq!(code(4096, 4096), "fine");
        assert_eq!(code(4097, 4096), "backup.foreign");
        assert_eq!(code(4096, 4097), "backup.cut");
    }
}
