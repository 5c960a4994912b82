//! `fardel audit verify`: follows an export of the audit log row by row and names the first row that is not as it was
//! written. Needs the file and the certificate of the authority, and no server.

use std::borrow::Cow;
use std::io::BufRead;

use base::tls::signature::SigningAuthority;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rules::audit::{AuditCheckpoint, AuditHash, ChainVerifier, EXPORT_FORM, hash_of_hex};
use rules::refusal::Refusal;
use rules::refusals;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// Longest line that is read; no statement comes near.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// What a good export holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct VerifiedExport {
    pub(super) installation: Uuid,
    /// The first row, and the last; of an empty export the last is in front of the first.
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) rows: u64,
    /// Rows of which the statement is there.
    pub(super) statements: u64,
    pub(super) checkpoints: u64,
    /// When its end was signed.
    pub(super) signed_at: rules::units::Timestamp,
}

#[derive(Deserialize)]
struct ExportHead {
    audit: u32,
    installation: Uuid,
    first: u64,
    previous: String,
}

/// A row or a checkpoint.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportLine<'a> {
    sequence: Option<u64>,
    #[serde(borrow)]
    statement: Option<Cow<'a, str>>,
    #[serde(borrow)]
    digest: Option<Cow<'a, str>>,
    #[serde(borrow)]
    hash: Option<Cow<'a, str>>,
    #[serde(borrow)]
    checkpoint: Option<Cow<'a, str>>,
    #[serde(borrow)]
    signature: Option<Cow<'a, str>>,
}

/// The number of a row as its statement says it.
#[derive(Deserialize)]
struct StatedNumber {
    sequence: u64,
}

/// True where a statement that the server wrote has this number; seen without reading all of it as JSON. Inside of a value
/// a quotation mark stands behind a backslash, so the words are found nowhere else.
fn says(statement: &str, sequence: u64) -> bool {
    statement
        .rsplit_once(",\"sequence\":")
        .and_then(|(_, rest)| rest.split_once(','))
        .is_some_and(|(number, _)| number == sequence.to_string())
}

fn sha256(bytes: &[u8]) -> AuditHash {
    Sha256::digest(bytes).into()
}

/// Reads an export to its end. Costs two digests for each row.
///
/// Errors: `audit.broken-at` with the first row that is broken; `audit.signature-wrong`, `audit.unsigned`,
/// `audit.export-unreadable`.
pub(super) fn verify(
    mut export: impl BufRead,
    authority: &SigningAuthority,
) -> Result<VerifiedExport, Refusal> {
    let (mut number, mut line) = (0, Vec::new());
    let mut next = |line: &mut Vec<u8>| -> Result<bool, Refusal> {
        number += 1;
        line.clear();
        let mut bounded = std::io::Read::take(&mut export, MAX_LINE_BYTES);
        let read = bounded.read_until(b'\n', line);
        let read = read.map_err(|error| refusals::audit_export_unreadable(number, &error))?;
        Ok(read > 0)
    };
    if !next(&mut line)? {
        return Err(refusals::audit_export_unreadable(1, "it is empty"));
    }
    let head: ExportHead = serde_json::from_slice(&line)
        .map_err(|error| refusals::audit_export_unreadable(1, &error))?;
    let previous = hash_of_hex(&head.previous);
    let (Some(previous), EXPORT_FORM) = (previous, head.audit) else {
        let error = "it is of another form";
        return Err(refusals::audit_export_unreadable(1, error));
    };
    let mut chain = ChainVerifier::new(head.first, previous);
    let mut found = VerifiedExport {
        installation: head.installation,
        first: head.first,
        last: head.first.saturating_sub(1),
        rows: 0,
        statements: 0,
        checkpoints: 0,
        signed_at: rules::units::Timestamp::default(),
    };
    let mut at = 1;
    while next(&mut line)? {
        at += 1;
        let unreadable = |error: &str| refusals::audit_export_unreadable(at, error);
        let read: ExportLine<'_> =
            serde_json::from_slice(&line).map_err(|error| unreadable(&error.to_string()))?;
        match (read.sequence, read.checkpoint) {
            (Some(sequence), None) => {
                let hash = read.hash.as_deref().and_then(hash_of_hex);
                let hash = hash.ok_or_else(|| unreadable("it has no hash"))?;
                let digest = match (&read.statement, read.digest.as_deref()) {
                    (Some(statement), None) => {
                        found.statements += 1;
                        sha256(statement.as_bytes())
                    }
                    (None, Some(digest)) => {
                        hash_of_hex(digest).ok_or_else(|| unreadable("it has no digest"))?
                    }
                    _ => return Err(unreadable("a row has a statement or a digest")),
                };
                chain
                    .row(sequence, &digest, &hash, sha256)
                    .map_err(rules::audit::AuditBreak::refusal)?;
                if let Some(statement) = &read.statement
                    && !says(statement, sequence)
                {
                    let stated: StatedNumber = serde_json::from_str(statement)
                        .map_err(|error| unreadable(&error.to_string()))?;
                    if stated.sequence != sequence {
                        return Err(refusals::audit_row_out_of_place(sequence));
                    }
                }
                (found.rows, found.last) = (found.rows + 1, sequence);
            }
            (None, Some(text)) => {
                let told: AuditCheckpoint =
                    serde_json::from_str(&text).map_err(|error| unreadable(&error.to_string()))?;
                let signature = read.signature.as_deref().unwrap_or_default();
                let signature = STANDARD.decode(signature).unwrap_or_default();
                let own = told.installation == head.installation;
                if !own || !authority.signed(text.as_bytes(), &signature) {
                    return Err(refusals::audit_signature_wrong(told.sequence));
                }
                let hash = hash_of_hex(&told.hash).ok_or_else(|| unreadable("it has no hash"))?;
                chain
                    .checkpoint(told.sequence, &hash)
                    .map_err(rules::audit::AuditBreak::refusal)?;
                (found.checkpoints, found.signed_at) = (found.checkpoints + 1, told.at);
            }
            _ => return Err(unreadable("it is neither a row nor a checkpoint")),
        }
    }
    match chain.signed_up_to() {
        Some(_) => Ok(found),
        None => Err(refusals::audit_unsigned()),
    }
}

#[cfg(test)]
mod tests {
    use base::observe::Clock;
    use base::tls::keeper::Keeper;
    use base::tls::names::HostNames;
    use rules::audit::{NO_HASH, hex, linked};
    use rules::units::Timestamp;

    use super::*;

    /// Ten rows, every second one a statement, with a checkpoint behind the fifth and one at the end.
    fn export(keeper: &Keeper) -> Vec<String> {
        let installation = Uuid::from_u128(5);
        let mut lines = vec![format!(
            "{{\"audit\":1,\"installation\":\"{installation}\",\"first\":1,\"previous\":\"{}\"}}",
            hex(&NO_HASH)
        )];
        let mut hash = NO_HASH;
        for sequence in 1..=10 {
            let statement = format!("{{\"act\":\"a\",\"sequence\":{sequence}}}");
            let digest = sha256(statement.as_bytes());
            hash = linked(&hash, &digest, sha256);
            let told = match sequence % 2 {
                0 => format!("\"digest\":\"{}\"", hex(&digest)),
                _ => format!("\"statement\":{}", serde_json::json!(statement)),
            };
            let row = format!(
                "{{\"sequence\":{sequence},{told},\"hash\":\"{}\"}}",
                hex(&hash)
            );
            lines.push(row);
            if sequence % 5 == 0 {
                let at = Timestamp::from_millis(1_800_000_000_000);
                let text = AuditCheckpoint::new(installation, sequence, &hash, at).statement();
                let signature = STANDARD.encode(keeper.sign(text.as_bytes()).expect("signed"));
                let checkpoint = serde_json::json!({"checkpoint": text, "signature": signature});
                lines.push(checkpoint.to_string());
            }
        }
        lines
    }

    fn keeper() -> (tempfile::TempDir, Keeper, SigningAuthority) {
        let folder = tempfile::tempdir().expect("a folder");
        let names = HostNames::of_this_machine();
        let keeper = Keeper::open(&folder.path().join("tls"), Clock::system(), names);
        let keeper = keeper.expect("certificates");
        let authority = SigningAuthority::read(&keeper.authority().pem).expect("a certificate");
        (folder, keeper, authority)
    }

    fn code(lines: &[String], authority: &SigningAuthority) -> (String, String) {
        let text = lines.join("\n");
        match verify(text.as_bytes(), authority) {
            Ok(_) => ("good".into(), String::new()),
            Err(refusal) => (
                refusal.code,
                refusal.values.get("sequence").cloned().unwrap_or_default(),
            ),
        }
    }

    #[test]
    fn a_whole_export_is_good_and_every_line_that_is_changed_lost_or_moved_is_named() {
        let (_folder, keeper, authority) = keeper();
        let good = export(&keeper);
        let found = verify(good.join("\n").as_bytes(), &authority).expect("good");
        assert_eq!((found.first, found.last, found.rows), (1, 10, 10));
        assert_eq!((found.statements, found.checkpoints), (5, 2));
        for at in 1..good.len() {
            let row = |line: &str| line.contains("\"sequence\":") && !line.contains("checkpoint");
            let mut lost = good.clone();
            let gone = lost.remove(at);
            let number = |line: &str| -> String {
                let (_, rest) = line.split_once("\"sequence\":").expect("a row");
                rest.chars().take_while(char::is_ascii_digit).collect()
            };
            match row(&gone) {
                true => {
                    let expected = ("audit.broken-at".to_owned(), number(&gone));
                    assert_eq!(code(&lost, &authority), expected, "{at}");
                    let mut changed = good.clone();
                    changed[at] = match gone.contains("statement") {
                        true => gone.replace("\\\"act\\\":\\\"a\\\"", "\\\"act\\\":\\\"b\\\""),
                        false => gone.replacen("\"digest\":\"", "\"digest\":\"0", 1),
                    };
                    if !gone.contains("statement") {
                        // Still 64 digits.
                        let (front, back) = changed[at].split_once("\"digest\":\"").expect("one");
                        let digest = format!("{}{}", &back[..64], &back[65..]);
                        changed[at] = format!("{front}\"digest\":\"{digest}");
                    }
                    assert_ne!(changed[at], gone);
                    assert_eq!(code(&changed, &authority), expected, "{at}");
                    let mut twice = good.clone();
                    twice.insert(at, gone);
                    assert_eq!(code(&twice, &authority), expected, "{at}");
                }
                // A lost checkpoint in between says less; without the last one nothing is signed.
                false if at + 1 == good.len() => {
                    assert_eq!(code(&lost, &authority).0, "audit.unsigned");
                }
                false => assert_eq!(code(&lost, &authority).0, "good"),
            }
        }
        // Cut off anywhere.
        for length in 1..good.len() {
            let found = code(&good[..length], &authority).0;
            let signed = good[length - 1].contains("checkpoint");
            assert_eq!(found == "good", signed, "{length}");
        }
    }

    #[test]
    fn a_key_of_another_and_what_is_no_export_are_refused() {
        let (_folder, keeper, authority) = keeper();
        let (_other, _, stranger) = self::keeper();
        let good = export(&keeper);
        assert_eq!(code(&good, &stranger).0, "audit.signature-wrong");
        let mut other_box = good.clone();
        other_box[0] = good[0].replace("05\"", "06\"");
        assert_ne!(other_box[0], good[0]);
        assert_eq!(code(&other_box, &authority).0, "audit.signature-wrong");
        for text in ["", "{}", "[1]", "{\"audit\":2}", "\u{0}"] {
            let found = code(&[text.to_owned()], &authority).0;
            assert_eq!(found, "audit.export-unreadable", "{text}");
        }
        let odd = [good[0].clone(), "{\"sequence\":1}".to_owned()];
        assert_eq!(code(&odd, &authority).0, "audit.export-unreadable");
    }
}
