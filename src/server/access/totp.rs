//! Codes of time (RFC 6238 over RFC 4226: HMAC-SHA-1, steps of 30 seconds, 6 digits), as authenticator apps make
//! them, and recovery codes. Reads no clock and no row.

use api::secret::SecretText;
use ring::hmac;
use rules::units::Timestamp;
use subtle::ConstantTimeEq as _;

use super::secret::{self, CODE_LETTERS, draw_code, plain_code};

/// Bytes of a secret: as many as SHA-1 gives (RFC 4226, section 4).
pub(super) const SECRET_BYTES: usize = 20;
/// Seconds of a time step; every app assumes them.
const STEP_SECONDS: u64 = 30;
const DIGITS: u32 = 6;
/// Steps before and after the present one whose codes are taken too. More: a code that somebody saw is good for
/// longer, and each guess hits more often. Fewer: a phone whose clock is half a minute off signs nobody in.
const STEPS_AROUND: u64 = 1;
/// Recovery codes that a user has at once.
pub(crate) const RECOVERY_CODES: usize = 10;
/// Letters of base32 (RFC 4648).
const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// The step that lies around `now`.
fn step_at(now: Timestamp) -> u64 {
    u64::try_from(now.as_millis()).unwrap_or(0) / 1000 / STEP_SECONDS
}

/// The code of one step, as RFC 4226 cuts it from the digest.
fn code_of(secret: &[u8], step: u64, digits: u32) -> u32 {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let digest = hmac::sign(&key, &step.to_be_bytes());
    let digest = digest.as_ref();
    let at = usize::from(digest[digest.len() - 1] & 0x0f);
    let cut = [
        digest[at] & 0x7f,
        digest[at + 1],
        digest[at + 2],
        digest[at + 3],
    ];
    u32::from_be_bytes(cut) % 10_u32.pow(digits)
}

/// The newest step around `now` whose code this is; None where it is none's. Costs the same whichever it is.
pub(super) fn step_of(secret: &[u8], code: u32, now: Timestamp) -> Option<u64> {
    let here = step_at(now);
    let mut found = None;
    for step in here.saturating_sub(STEPS_AROUND)..=here.saturating_add(STEPS_AROUND) {
        if bool::from(code_of(secret, step, DIGITS).ct_eq(&code)) {
            found = Some(step);
        }
    }
    found
}

/// What a user typed in the field of the code.
pub(super) enum TypedCode {
    /// Six digits.
    Time(u32),
    /// The hash of a recovery code.
    Recovery([u8; 32]),
}

impl TypedCode {
    /// Blanks and hyphens do not count, nor does the size of letters; None for what can be neither.
    pub(super) fn parse(typed: &str) -> Option<Self> {
        let plain = plain_code(typed);
        if plain.len() == DIGITS as usize && plain.bytes().all(|byte| byte.is_ascii_digit()) {
            return plain.parse().ok().map(Self::Time);
        }
        (plain.len() == CODE_LETTERS).then(|| Self::Recovery(recovery_hash(&plain)))
    }
}

fn recovery_hash(plain: &str) -> [u8; 32] {
    secret::hash(&SecretText::from(plain))
}

/// New recovery codes, 80 bits each, and what is kept of them.
pub(crate) fn draw_recovery_codes() -> (Vec<String>, Vec<[u8; 32]>) {
    let codes = (0..RECOVERY_CODES).map(|_| {
        let code = draw_code();
        let hash = recovery_hash(&plain_code(&code));
        (code, hash)
    });
    codes.unzip()
}

/// A secret as people type it into an app: base32 without padding.
pub(super) fn base32(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(5) * 8);
    let (mut bits, mut held) = (0_u32, 0_u32);
    for byte in bytes {
        bits = (bits << 8) | u32::from(*byte);
        held += 8;
        while held >= 5 {
            held -= 5;
            text.push(char::from(LETTERS[(bits >> held & 31) as usize]));
        }
        bits &= (1 << held) - 1;
    }
    if held > 0 {
        text.push(char::from(LETTERS[(bits << (5 - held) & 31) as usize]));
    }
    text
}

/// What an app reads from the picture. `issuer` and `account` are names by the rules of names, which need no escape
/// but the blank.
pub(super) fn address(secret: &[u8], issuer: &str, account: &str) -> String {
    let [issuer, account] = [issuer, account].map(escaped);
    let key = base32(secret);
    format!("otpauth://totp/{issuer}:{account}?secret={key}&issuer={issuer}")
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// The code that an app shows at `now`.
#[cfg(test)]
pub(crate) fn shown_at(secret: &[u8], now: Timestamp) -> String {
    format!("{:06}", code_of(secret, step_at(now), DIGITS))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const SECRET: &[u8] = b"12345678901234567890";

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis((seconds * 1000) as i64)
    }

    #[test]
    fn codes_are_those_of_rfc_6238_and_rfc_4226() {
        let vectors = [
            (59, 94_287_082),
            (1_111_111_109, 7_081_804),
            (1_111_111_111, 14_050_471),
            (1_234_567_890, 89_005_924),
            (2_000_000_000, 69_279_037),
            (20_000_000_000, 65_353_130),
        ];
        for (seconds, code) in vectors {
            assert_eq!(code_of(SECRET, step_at(at(seconds)), 8), code, "{seconds}");
        }
        let counted: Vec<u32> = (0..10).map(|step| code_of(SECRET, step, 6)).collect();
        assert_eq!(
            counted,
            [
                755_224, 287_082, 359_152, 969_429, 338_314, 254_676, 287_922, 162_583, 399_871,
                520_489
            ]
        );
    }

    #[test]
    fn a_code_is_good_one_step_before_and_after_its_own_and_no_longer() {
        let code = code_of(SECRET, 1000, 6);
        let steps = |seconds: u64| step_of(SECRET, code, at(seconds));
        assert_eq!(steps(998 * 30 + 29), None);
        for seconds in [999 * 30, 1000 * 30, 1001 * 30 + 29] {
            assert_eq!(steps(seconds), Some(1000), "{seconds}");
        }
        assert_eq!(steps(1002 * 30), None);
        assert_eq!(step_of(SECRET, (code + 1) % 1_000_000, at(30_000)), None);
    }

    #[test]
    fn what_is_typed_is_read_with_blanks_hyphens_and_in_any_size() {
        let time = |text| matches!(TypedCode::parse(text), Some(TypedCode::Time(12345)));
        assert!(time("012345") && time(" 012 345 ") && time("012-345"));
        let (codes, hashes) = draw_recovery_codes();
        assert_eq!((codes.len(), hashes.len()), (10, 10));
        for typed in [codes[3].clone(), codes[3].to_lowercase().replace('-', " ")] {
            let Some(TypedCode::Recovery(hash)) = TypedCode::parse(&typed) else {
                panic!("{typed} was not read");
            };
            assert_eq!(hash, hashes[3]);
        }
        for other in [
            "",
            "12345",
            "1234567",
            "０１２３４５",
            "a2345b",
            "0123456789",
        ] {
            assert!(TypedCode::parse(other).is_none(), "{other}");
        }
    }

    #[test]
    fn base32_is_that_of_rfc_4648() {
        let vectors = [
            ("", ""),
            ("f", "MY"),
            ("fo", "MZXQ"),
            ("foo", "MZXW6"),
            ("foob", "MZXW6YQ"),
            ("fooba", "MZXW6YTB"),
            ("foobar", "MZXW6YTBOI"),
        ];
        for (plain, text) in vectors {
            assert_eq!(base32(plain.as_bytes()), text);
        }
        assert_eq!(
            address(SECRET, "gpu box", "mina"),
            "otpauth://totp/gpu%20box:mina?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=gpu%20box"
        );
    }

    #[test]
    fn another_program_makes_the_same_codes() {
        let secret: [u8; SECRET_BYTES] = base::observe::random();
        let seconds = 1_800_000_000;
        let told = Command::new("oathtool")
            .args(["--totp", "--base32", "--now", "@1800000000"])
            .arg(base32(&secret))
            .output();
        let Ok(told) = told else {
            skips::skip(
                "another_program_makes_the_same_codes",
                "oathtool is not installed",
            );
            return;
        };
        assert!(told.status.success(), "{told:?}");
        let told = String::from_utf8(told.stdout).unwrap();
        let code = code_of(&secret, step_at(at(seconds)), 6);
        assert_eq!(told.trim(), format!("{code:06}"));
    }
}
