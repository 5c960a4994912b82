//! Cursors of lists: where the next page begins, signed, and bound to the order and the filter they
//! were made for. Opaque to clients; a changed one is refused.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rules::refusal::Refusal;
use rules::refusals;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

const SIGNATURE: usize = 16;
/// Longer texts were never ours.
const MAX_CURSOR_LENGTH: usize = 2048;

/// Writes a cursor for `place`, good only together with the same `bound` text.
pub(super) fn write<T: Serialize>(key: &[u8; 32], bound: &str, place: &T) -> String {
    let place = serde_json::to_vec(place).expect("places of lists are plain values");
    let mut bytes = sign(key, bound, &place).to_vec();
    bytes.extend(place);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads a cursor back.
///
/// Errors: `cursor.invalid` for one that was changed, or belongs to another list.
pub(super) fn read<T: DeserializeOwned>(
    key: &[u8; 32],
    bound: &str,
    text: &str,
) -> Result<T, Refusal> {
    let wrong = || refusals::cursor_invalid();
    if text.len() > MAX_CURSOR_LENGTH {
        return Err(wrong());
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
    let (signature, place) = bytes.split_at_checked(SIGNATURE).ok_or_else(wrong)?;
    if !bool::from(sign(key, bound, place).ct_eq(signature)) {
        return Err(wrong());
    }
    serde_json::from_slice(place).map_err(|_| wrong())
}

fn sign(key: &[u8; 32], bound: &str, place: &[u8]) -> [u8; SIGNATURE] {
    let mut message = (bound.len() as u64).to_be_bytes().to_vec();
    message.extend(bound.as_bytes());
    message.extend(place);
    let mut short = [0; SIGNATURE];
    short.copy_from_slice(&keyed_digest(key, &message)[..SIGNATURE]);
    short
}

/// HMAC with SHA-256 (RFC 2104), for keys of 32 bytes.
fn keyed_digest(key: &[u8; 32], message: &[u8]) -> [u8; 32] {
    let padded = |with: u8| {
        let mut block = [with; 64];
        for (place, byte) in block.iter_mut().zip(key) {
            *place ^= byte;
        }
        block
    };
    let inner = Sha256::new()
        .chain_update(padded(0x36))
        .chain_update(message)
        .finalize();
    Sha256::new()
        .chain_update(padded(0x5c))
        .chain_update(inner)
        .finalize()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keyed_digest_is_that_of_the_standard() {
        // RFC 4231 case 1, its 20-byte key filled with zeros as HMAC itself does.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let hex: String = keyed_digest(&key, b"Hi There")
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(
            hex,
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
    }

    #[test]
    fn a_cursor_is_good_for_its_own_list_only() {
        let key = [7; 32];
        let cursor = write(&key, "-created_at|", &(5, "x".to_owned()));
        assert_eq!(
            read::<(i32, String)>(&key, "-created_at|", &cursor),
            Ok((5, "x".to_owned()))
        );
        let refused = |key: &[u8; 32], bound: &str, text: &str| {
            read::<(i32, String)>(key, bound, text).map_err(|r| r.code)
                == Err("cursor.invalid".into())
        };
        assert!(refused(&key, "name|", &cursor));
        assert!(refused(&[8; 32], "-created_at|", &cursor));
        let mut changed = cursor.clone();
        changed.pop();
        for text in ["", "?", &changed, &"A".repeat(4000)] {
            assert!(refused(&key, "-created_at|", text), "{text}");
        }
    }

    #[test]
    fn a_cursor_of_ours_is_read_up_to_its_longest() {
        let key = [7; 32];
        // Two letters of JSON, 16 of the signature, and four for three of all of them.
        for (letters, length, read_back) in [(1518, 2048, true), (1519, 2050, false)] {
            let place = "x".repeat(letters);
            let cursor = write(&key, "", &place);
            assert_eq!(cursor.len(), length);
            let read = read::<String>(&key, "", &cursor);
            assert_eq!(read.is_ok(), read_back, "{length}: {read:?}");
        }
    }
}
