//! The chain of the audit log: what one row states, how rows hang together, and where an export is broken. A row's
//! digest covers its statement, its hash the hash before it and the digest; so a row may be shown as its digest alone
//! and the chain is whole. Never computes SHA-256 or a signature itself: the caller brings both.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::names::UserId;
use crate::refusal::Refusal;
use crate::refusals;
use crate::tenancy::{DomainId, ProjectId};
use crate::units::Timestamp;

/// A SHA-256.
pub type AuditHash = [u8; 32];

/// What stands in front of the first row.
pub const NO_HASH: AuditHash = [0; 32];

/// The form of exports; another number is another form.
pub const EXPORT_FORM: u32 = 1;

/// One act, as its row states it. Written once, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditStatement {
    /// Place in the chain, from 1 without a gap.
    pub sequence: u64,
    pub at: Timestamp,
    /// A user's name, or the part of the server that acted.
    pub actor: String,
    pub actor_id: Option<UserId>,
    /// By what the actor proved who they are: `browser`, `token`, `socket`; `none` where nothing was proven.
    pub via: String,
    /// The sign-in or the token.
    pub credential: Option<Uuid>,
    /// Where the request came from; empty for acts of the server.
    pub address: String,
    /// Stable, dotted, such as `session.stopping`.
    pub act: String,
    /// What sort of thing the object is, such as `sessions`.
    pub topic: String,
    /// Id of the thing.
    pub object: String,
    /// Whose the thing is.
    pub owner: Option<UserId>,
    pub domain: Option<DomainId>,
    pub project: Option<ProjectId>,
    pub before: String,
    pub after: String,
    /// The code of the refusal, where the act was refused.
    pub reason: String,
    /// Id of the request; empty for acts of the server.
    pub request: String,
    /// Sixteen random bytes in hexadecimal, so that a statement cannot be guessed from its digest.
    pub salt: String,
}

impl AuditStatement {
    /// As JSON of one form: keys in the order of their letters, no blanks, control characters escaped as short as JSON
    /// allows. Costs its length.
    pub fn canonical(&self) -> String {
        let id = |id: Option<Uuid>| id.map(|id| id.to_string());
        let at = self.at.to_string();
        let (actor_id, credential) = (id(self.actor_id.map(|id| id.0)), id(self.credential));
        let (domain, owner) = (
            id(self.domain.map(|id| id.0)),
            id(self.owner.map(|id| id.0)),
        );
        let project = id(self.project.map(|id| id.0));
        let mut out = String::with_capacity(640);
        for (key, value) in [
            ("act", Some(self.act.as_str())),
            ("actor", Some(self.actor.as_str())),
            ("actor_id", actor_id.as_deref()),
            ("address", Some(self.address.as_str())),
            ("after", Some(self.after.as_str())),
            ("at", Some(at.as_str())),
            ("before", Some(self.before.as_str())),
            ("credential", credential.as_deref()),
            ("domain", domain.as_deref()),
            ("object", Some(self.object.as_str())),
            ("owner", owner.as_deref()),
            ("project", project.as_deref()),
            ("reason", Some(self.reason.as_str())),
            ("request", Some(self.request.as_str())),
            ("salt", Some(self.salt.as_str())),
        ] {
            out.push(if out.is_empty() { '{' } else { ',' });
            quote(&mut out, key);
            out.push(':');
            match value {
                Some(text) => quote(&mut out, text),
                None => out.push_str("null"),
            }
        }
        let _ = write!(out, ",\"sequence\":{}", self.sequence);
        for (key, value) in [("topic", &self.topic), ("via", &self.via)] {
            out.push(',');
            quote(&mut out, key);
            out.push(':');
            quote(&mut out, value);
        }
        out.push('}');
        out
    }
}

pub(crate) fn quote(out: &mut String, text: &str) {
    out.push('"');
    let mut plain = text;
    let is_escaped = |letter: char| letter < ' ' || matches!(letter, '"' | '\\');
    // What needs no escape, which is nearly everything, goes over as one piece.
    while let Some(at) = plain.find(is_escaped) {
        out.push_str(&plain[..at]);
        let letter = plain.as_bytes()[at];
        match letter {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            8 => out.push_str("\\b"),
            12 => out.push_str("\\f"),
            control => {
                let _ = write!(out, "\\u{control:04x}");
            }
        }
        plain = &plain[at + 1..];
    }
    out.push_str(plain);
    out.push('"');
}

/// The chain up to a row, as the box signs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditCheckpoint {
    pub at: Timestamp,
    /// Of the row, in hexadecimal.
    pub hash: String,
    /// Which box.
    pub installation: Uuid,
    /// The row; 0: none was written yet.
    pub sequence: u64,
}

impl AuditCheckpoint {
    pub fn new(installation: Uuid, sequence: u64, hash: &AuditHash, at: Timestamp) -> Self {
        Self {
            at,
            hash: hex(hash),
            installation,
            sequence,
        }
    }

    /// What is signed, byte for byte.
    pub fn statement(&self) -> String {
        format!(
            "{{\"at\":\"{}\",\"hash\":\"{}\",\"installation\":\"{}\",\"sequence\":{}}}",
            self.at, self.hash, self.installation, self.sequence
        )
    }
}

/// Bytes as pairs of hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    out
}

/// A hash out of 64 small hexadecimal digits; None for anything else.
pub fn hash_of_hex(text: &str) -> Option<AuditHash> {
    let digits: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut hash = NO_HASH;
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = (digit(digits[2 * at])? << 4) | digit(digits[2 * at + 1])?;
    }
    Some(hash)
}

/// The hash of a row: of the hash before it and of its digest. `sha256` is that function.
pub fn linked(
    previous: &AuditHash,
    digest: &AuditHash,
    sha256: impl Fn(&[u8]) -> AuditHash,
) -> AuditHash {
    let mut both = [0; 64];
    both[..32].copy_from_slice(previous);
    both[32..].copy_from_slice(digest);
    sha256(&both)
}

/// Where a chain is broken, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditBreak {
    /// The row is not there; a later one stands in its place.
    Missing { sequence: u64 },
    /// A row stands where it does not belong: it was added, or comes again.
    OutOfPlace { sequence: u64 },
    /// The row, or its hash, is not what was written.
    Changed { sequence: u64 },
    /// The signed hash is another: a row after `good` and up to `sequence` was replaced with all that follow.
    Replaced { good: u64, sequence: u64 },
    /// The rows end before the signed one.
    CutOff { sequence: u64 },
}

impl AuditBreak {
    /// The same as a refusal that names the place.
    pub fn refusal(self) -> Refusal {
        match self {
            Self::Missing { sequence } => refusals::audit_row_missing(sequence),
            Self::OutOfPlace { sequence } => refusals::audit_row_out_of_place(sequence),
            Self::Changed { sequence } => refusals::audit_row_changed(sequence),
            Self::Replaced { good, sequence } => refusals::audit_rows_replaced(good + 1, sequence),
            Self::CutOff { sequence } => refusals::audit_rows_cut_off(sequence),
        }
    }
}

/// Follows the rows of an export, one after the other. Once it named a break its state means nothing any more.
#[derive(Debug, Clone)]
pub struct ChainVerifier {
    next: u64,
    hash: AuditHash,
    /// The newest row that a checkpoint covers.
    good: u64,
    /// Whether the newest row is covered.
    signed: bool,
}

impl ChainVerifier {
    /// At the row `first`; `previous` is the hash before it.
    pub fn new(first: u64, previous: AuditHash) -> Self {
        Self {
            next: first,
            hash: previous,
            good: first.saturating_sub(1),
            signed: false,
        }
    }

    /// Takes the next row. Costs one call of `sha256` on 64 bytes.
    pub fn row(
        &mut self,
        sequence: u64,
        digest: &AuditHash,
        hash: &AuditHash,
        sha256: impl Fn(&[u8]) -> AuditHash,
    ) -> Result<(), AuditBreak> {
        if sequence > self.next {
            return Err(AuditBreak::Missing {
                sequence: self.next,
            });
        }
        if sequence < self.next {
            return Err(AuditBreak::OutOfPlace { sequence });
        }
        let linked = linked(&self.hash, digest, sha256);
        if linked != *hash {
            return Err(AuditBreak::Changed { sequence });
        }
        (self.next, self.hash, self.signed) = (sequence + 1, linked, false);
        Ok(())
    }

    /// Takes a checkpoint whose signature is good. Stands behind its row, or in front of the first one.
    pub fn checkpoint(&mut self, sequence: u64, hash: &AuditHash) -> Result<(), AuditBreak> {
        if sequence >= self.next {
            return Err(AuditBreak::CutOff { sequence });
        }
        if sequence + 1 < self.next {
            return Err(AuditBreak::OutOfPlace { sequence });
        }
        if self.hash != *hash {
            return Err(AuditBreak::Replaced {
                good: self.good,
                sequence,
            });
        }
        (self.good, self.signed) = (sequence, true);
        Ok(())
    }

    /// The newest row that was taken, where a checkpoint covers it; None where none does.
    pub fn signed_up_to(&self) -> Option<u64> {
        self.signed.then_some(self.good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No cryptography: enough to tell apart what these tests tell apart.
    fn mixed(bytes: &[u8]) -> AuditHash {
        let mut out = NO_HASH;
        for (lane, word) in out.chunks_exact_mut(8).enumerate() {
            let mut state = 0xcbf2_9ce4_8422_2325_u64 ^ ((lane as u64) << 40);
            for byte in bytes {
                state = (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
                state ^= state >> 29;
            }
            word.copy_from_slice(&state.to_le_bytes());
        }
        out
    }

    fn statement(sequence: u64) -> AuditStatement {
        AuditStatement {
            sequence,
            at: Timestamp::from_millis(1_800_000_000_000 + sequence as i64),
            actor: "mina".into(),
            actor_id: Some(UserId(Uuid::from_u128(7))),
            via: "token".into(),
            credential: Some(Uuid::from_u128(9)),
            address: "192.0.2.7".into(),
            act: "session.stopping".into(),
            topic: "sessions".into(),
            object: "train".into(),
            owner: None,
            domain: Some(DomainId::DEFAULT),
            project: None,
            before: "running".into(),
            after: "a \"quoted\"\nline\\ \u{1} é 한".into(),
            reason: String::new(),
            request: "r-1".into(),
            salt: "00".repeat(16),
        }
    }

    /// A row of an export: every third one as its statement.
    #[derive(Clone, PartialEq)]
    struct Line {
        sequence: u64,
        statement: Option<String>,
        digest: AuditHash,
        hash: AuditHash,
    }

    struct Exported {
        first: u64,
        previous: AuditHash,
        lines: Vec<Line>,
        end: (u64, AuditHash),
    }

    fn exported(first: u64, count: u64) -> Exported {
        let previous = mixed(&first.to_le_bytes());
        let mut hash = previous;
        let mut lines = Vec::new();
        for sequence in first..first + count {
            let text = statement(sequence).canonical();
            let digest = mixed(text.as_bytes());
            hash = linked(&hash, &digest, mixed);
            lines.push(Line {
                sequence,
                statement: (sequence % 3 == 0).then_some(text),
                digest,
                hash,
            });
        }
        Exported {
            first,
            previous,
            end: (first + count - 1, hash),
            lines,
        }
    }

    fn verified(export: &Exported) -> Result<u64, AuditBreak> {
        let mut chain = ChainVerifier::new(export.first, export.previous);
        for line in &export.lines {
            let digest = match &line.statement {
                Some(text) => mixed(text.as_bytes()),
                None => line.digest,
            };
            chain.row(line.sequence, &digest, &line.hash, mixed)?;
        }
        chain.checkpoint(export.end.0, &export.end.1)?;
        Ok(chain.signed_up_to().expect("covered"))
    }

    #[test]
    fn a_statement_has_one_form() {
        let text = statement(3).canonical();
        assert_eq!(
            text,
            "{\"act\":\"session.stopping\",\"actor\":\"mina\",\
             \"actor_id\":\"00000000-0000-0000-0000-000000000007\",\"address\":\"192.0.2.7\",\
             \"after\":\"a \\\"quoted\\\"\\nline\\\\ \\u0001 é 한\",\"at\":\"2027-01-15T08:00:00.003Z\",\
             \"before\":\"running\",\"credential\":\"00000000-0000-0000-0000-000000000009\",\
             \"domain\":\"00000000-0000-7000-8000-000000000001\",\"object\":\"train\",\"owner\":null,\
             \"project\":null,\"reason\":\"\",\"request\":\"r-1\",\
             \"salt\":\"00000000000000000000000000000000\",\"sequence\":3,\"topic\":\"sessions\",\
             \"via\":\"token\"}"
        );
        let hash = mixed(text.as_bytes());
        assert_eq!(hash_of_hex(&hex(&hash)), Some(hash));
        for odd in [
            "".to_owned(),
            hex(&hash).to_uppercase(),
            format!("{}g", &hex(&hash)[1..]),
        ] {
            assert_eq!(hash_of_hex(&odd), None);
        }
    }

    #[test]
    fn every_single_edit_of_an_export_is_found_and_where() {
        let good = exported(5, 12);
        assert_eq!(verified(&good), Ok(16));
        let edited = |edit: &dyn Fn(&mut Vec<Line>)| {
            let mut lines = good.lines.clone();
            edit(&mut lines);
            assert!(lines != good.lines, "an edit that changes nothing");
            verified(&Exported {
                lines,
                ..exported(5, 12)
            })
        };
        let other = mixed(b"another");
        for at in 0..good.lines.len() {
            let sequence = good.lines[at].sequence;
            // Changed: any letter of the statement, or the digest or the hash.
            let length = good.lines[at].statement.as_ref().map_or(0, String::len);
            for place in (0..length).filter(|place| {
                let text = good.lines[at].statement.as_deref().expect("it has one");
                text.is_char_boundary(*place) && text.is_char_boundary(place + 1)
            }) {
                let found = edited(&|lines| {
                    let text = lines[at].statement.as_mut().expect("it has one");
                    let letter = if &text[place..=place] == "x" {
                        "y"
                    } else {
                        "x"
                    };
                    text.replace_range(place..=place, letter);
                });
                assert_eq!(found, Err(AuditBreak::Changed { sequence }));
            }
            if length == 0 {
                let found = edited(&|lines| lines[at].digest = other);
                assert_eq!(found, Err(AuditBreak::Changed { sequence }));
            }
            let found = edited(&|lines| lines[at].hash = other);
            assert_eq!(found, Err(AuditBreak::Changed { sequence }));
            // Missing: the place of the gap, or the signed end where it was the last.
            let found = edited(&|lines| {
                lines.remove(at);
            });
            let expected = match at + 1 == good.lines.len() {
                true => AuditBreak::CutOff { sequence },
                false => AuditBreak::Missing { sequence },
            };
            assert_eq!(found, Err(expected));
            // Swapped with any other.
            for with in at + 1..good.lines.len() {
                let found = edited(&|lines| lines.swap(at, with));
                assert_eq!(found, Err(AuditBreak::Missing { sequence }));
                // Also where the numbers stay in order.
                let found = edited(&|lines| {
                    lines.swap(at, with);
                    let number = lines[at].sequence;
                    lines[at].sequence = lines[with].sequence;
                    lines[with].sequence = number;
                });
                assert_eq!(found, Err(AuditBreak::Changed { sequence }));
            }
            // Added: the same row again, or a new one with a good hash of its own, those behind it counted on.
            let found = edited(&|lines| lines.insert(at + 1, lines[at].clone()));
            assert_eq!(found, Err(AuditBreak::OutOfPlace { sequence }));
            let found = edited(&|lines| {
                let before = at.checked_sub(1).map_or(good.previous, |at| lines[at].hash);
                lines.insert(
                    at,
                    Line {
                        sequence,
                        statement: None,
                        digest: other,
                        hash: linked(&before, &other, mixed),
                    },
                );
                for line in &mut lines[at + 1..] {
                    line.sequence += 1;
                }
            });
            assert_eq!(
                found,
                Err(AuditBreak::Changed {
                    sequence: sequence + 1
                })
            );
        }
    }

    #[test]
    fn a_chain_that_was_made_anew_differs_from_what_was_signed() {
        let good = exported(1, 9);
        let mut forged = exported(1, 9);
        forged.lines[4].digest = mixed(b"another");
        forged.lines[4].statement = None;
        let mut hash = forged.lines[3].hash;
        for line in &mut forged.lines[4..] {
            hash = linked(&hash, &line.digest, mixed);
            line.hash = hash;
        }
        assert_eq!(
            verified(&forged),
            Err(AuditBreak::Replaced {
                good: 0,
                sequence: 9
            })
        );
        // A checkpoint between narrows it down.
        let mut chain = ChainVerifier::new(1, forged.previous);
        for line in &forged.lines {
            chain
                .row(line.sequence, &line.digest, &line.hash, mixed)
                .expect("consistent in itself");
            if [3, 6].contains(&line.sequence) {
                let signed = &good.lines[line.sequence as usize - 1].hash;
                let found = chain.checkpoint(line.sequence, signed);
                let expected = match line.sequence {
                    3 => Ok(()),
                    _ => Err(AuditBreak::Replaced {
                        good: 3,
                        sequence: 6,
                    }),
                };
                assert_eq!(found, expected);
            }
        }
    }
}
