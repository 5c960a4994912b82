//! Public keys as proofs: reads the line of a user's `.pub` file, and finds the user again whose key signed. What a key
//! proves leads into sessions and nowhere else. Never checks a signature: the SSH server did.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use rules::names::SshKeyId;
use rules::permissions::Permission;
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Timestamp;
use rules::users::User;
use sha2::{Digest as _, Sha256};

use super::{Caller, TOUCH_SECONDS, Via, caller, from_own_network, repeated, suspended, told};
use crate::catalog::Lane;
use crate::catalog::ssh_keys::SshKeyRow;
use crate::{Failure, Server};

/// Bits of the shortest RSA key. Lower: keys that a state can factor. Higher: keys of old computers are refused.
const MIN_RSA_BITS: u32 = 3072;
/// Bits of the longest. Higher: a check of one takes a processor for longer, and before it is proven whose it is.
const MAX_RSA_BITS: u32 = 8192;
/// Characters of a line that are read. The longest key that is taken has 1,400.
const MAX_LINE_LENGTH: usize = 16_384;
/// Bytes of what a hardware key is bound to, usually `ssh:`.
const MAX_APPLICATION_BYTES: usize = 256;
/// Beginnings of the kinds that programs know and this server does not take.
const OTHER_KINDS: [&str; 4] = ["ssh-", "ecdsa-", "sk-", "x509v3-"];

/// A public key of a kind that is taken, with what stands beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SshPublicKey {
    /// As SSH calls it.
    pub(crate) kind: &'static str,
    pub(crate) bits: u32,
    /// As it is sent: of each key one spelling alone.
    pub(crate) blob: Vec<u8>,
    pub(crate) comment: String,
}

impl SshPublicKey {
    /// Reads one line as `ssh-keygen` writes it: kind, key, and a comment that may be left out.
    ///
    /// Errors: `ssh-key.private`, `ssh-key.too-long`, `ssh-key.unknown-kind`, `ssh-key.unreadable`, `ssh-key.rsa-short`,
    /// `ssh-key.rsa-long`.
    pub(crate) fn parse(line: &str) -> Result<Self, Refusal> {
        let line = line.trim();
        if line.contains("PRIVATE KEY") {
            return Err(refusals::ssh_key_private());
        }
        if line.len() > MAX_LINE_LENGTH {
            return Err(refusals::ssh_key_too_long(MAX_LINE_LENGTH));
        }
        if line.lines().count() != 1 {
            return Err(refusals::ssh_key_unreadable());
        }
        let (named, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let rest = rest.trim_start();
        let (text, comment) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
        let blob = STANDARD
            .decode(text)
            .or_else(|_| STANDARD_NO_PAD.decode(text))
            .map_err(|_| refusals::ssh_key_unreadable())?;
        let (kind, bits) = Self::read(named, &blob)?;
        Ok(Self {
            kind,
            bits,
            blob,
            comment: comment.trim().to_owned(),
        })
    }

    /// What kind of key it is, and how strong.
    fn read(named: &str, blob: &[u8]) -> Result<(&'static str, u32), Refusal> {
        let unreadable = refusals::ssh_key_unreadable;
        let mut rest = blob;
        let kind = string(&mut rest).ok_or_else(unreadable)?;
        if kind != named.as_bytes() {
            return Err(unreadable());
        }
        let key = match named {
            "ssh-ed25519" => ed25519(&mut rest).map(|()| ("ssh-ed25519", 256)),
            "sk-ssh-ed25519@openssh.com" => ed25519(&mut rest)
                .and_then(|()| application(&mut rest))
                .map(|()| ("sk-ssh-ed25519@openssh.com", 256)),
            "ecdsa-sha2-nistp256" => {
                point(&mut rest, b"nistp256", 65).map(|()| ("ecdsa-sha2-nistp256", 256))
            }
            "ecdsa-sha2-nistp384" => {
                point(&mut rest, b"nistp384", 97).map(|()| ("ecdsa-sha2-nistp384", 384))
            }
            "ecdsa-sha2-nistp521" => {
                point(&mut rest, b"nistp521", 133).map(|()| ("ecdsa-sha2-nistp521", 521))
            }
            "sk-ecdsa-sha2-nistp256@openssh.com" => point(&mut rest, b"nistp256", 65)
                .and_then(|()| application(&mut rest))
                .map(|()| ("sk-ecdsa-sha2-nistp256@openssh.com", 256)),
            "ssh-rsa" => {
                let bits = rsa(&mut rest).ok_or_else(unreadable)?;
                if bits < MIN_RSA_BITS {
                    return Err(refusals::ssh_key_rsa_short(bits, MIN_RSA_BITS));
                }
                if bits > MAX_RSA_BITS {
                    return Err(refusals::ssh_key_rsa_long(bits, MAX_RSA_BITS));
                }
                Some(("ssh-rsa", bits))
            }
            _ if OTHER_KINDS.iter().any(|kind| named.starts_with(kind)) => {
                return Err(refusals::ssh_key_unknown_kind());
            }
            _ => None,
        };
        // Nothing may stand behind it: the same key would have two spellings.
        key.filter(|_| rest.is_empty()).ok_or_else(unreadable)
    }

    pub(crate) fn digest(&self) -> [u8; 32] {
        digest(&self.blob)
    }
}

/// How a public key is found: the SHA-256 of it as it is sent.
fn digest(blob: &[u8]) -> [u8; 32] {
    Sha256::digest(blob).into()
}

/// What people compare, as `ssh-keygen -l` writes it.
pub(crate) fn fingerprint(digest: &[u8; 32]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(digest))
}

/// The next string of a key, with its length before it.
fn string<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (length, behind) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (text, behind) = behind.split_at_checked(length)?;
    *rest = behind;
    Some(text)
}

fn ed25519(rest: &mut &[u8]) -> Option<()> {
    string(rest).filter(|key| key.len() == 32).map(drop)
}

/// A point of this curve, uncompressed, as programs write it.
fn point(rest: &mut &[u8], curve: &[u8], bytes: usize) -> Option<()> {
    string(rest).filter(|named| *named == curve)?;
    string(rest)
        .filter(|point| point.len() == bytes && point.first() == Some(&4))
        .map(drop)
}

fn application(rest: &mut &[u8]) -> Option<()> {
    string(rest)
        .filter(|text| text.len() <= MAX_APPLICATION_BYTES && std::str::from_utf8(text).is_ok())
        .map(drop)
}

/// Bits of the modulus; None where it or the exponent is none.
fn rsa(rest: &mut &[u8]) -> Option<u32> {
    let exponent = number(string(rest)?)?;
    let modulus = number(string(rest)?)?;
    let odd = |number: &[u8]| number.last().is_some_and(|byte| byte % 2 == 1);
    // The packages that check signatures take no longer exponent.
    if !odd(exponent) || exponent.len() > 4 || exponent == [1] || !odd(modulus) {
        return None;
    }
    let first = modulus.first()?.leading_zeros();
    u32::try_from(modulus.len() * 8).ok()?.checked_sub(first)
}

/// A number above zero in its one spelling, without the zero that only says that it is positive.
fn number(bytes: &[u8]) -> Option<&[u8]> {
    match bytes {
        [0, second, ..] if *second >= 0x80 => bytes.get(1..),
        [first, ..] if (1..0x80).contains(first) => Some(bytes),
        _ => None,
    }
}

/// Whether a user has this public key: only then is it worth a signature.
pub async fn is_ssh_key_known(server: &Server, blob: &[u8]) -> Result<bool, Failure> {
    let digest = digest(blob);
    server.catalog().read_now("find an SSH key", |view| {
        Ok(view.ssh_key_by_digest(&digest)?.is_some())
    })
}

/// Whose public key it is that was proven by a signature just now; None where no user has it.
///
/// Errors: `ssh-key.expired`, `user.suspended`, `password.change-needed`, `second-factor.set-up-needed`,
/// `sign-in.address-refused`.
pub async fn by_ssh_key(
    server: &Server,
    blob: &[u8],
    source: IpAddr,
) -> Result<Option<Caller>, Failure> {
    let digest = digest(blob);
    let found = server.catalog().read_now("find an SSH key", |view| {
        let Some(found) = view.ssh_key_by_digest(&digest)? else {
            return Ok(None);
        };
        Ok(Some((found, view.second_factor_required_since()?)))
    })?;
    let Some(((key, user), since)) = found else {
        return Ok(None);
    };
    let proven = of_key(server, &key, &user, since, source);
    if let Err(failure) = &proven {
        repeated::sign_in_failed(server, Some(&user), failure);
    }
    proven.map(Some)
}

/// The same user again, for the next thing that they open over a connection where `before` was proven.
///
/// Errors: `ssh-key.revoked` where the key is gone; as `by_ssh_key`.
pub async fn prove_ssh_key_again(server: &Server, before: &Caller) -> Result<Caller, Failure> {
    let (Via::SshKey { id }, Some(source)) = (before.via, before.source) else {
        return Err(refusals::ssh_key_revoked().into());
    };
    let found = server.catalog().read_now("find an SSH key", |view| {
        let Some(found) = view.ssh_key_by_id(id)? else {
            return Ok(None);
        };
        Ok(Some((found, view.second_factor_required_since()?)))
    })?;
    let ((key, user), since) = found.ok_or_else(refusals::ssh_key_revoked)?;
    of_key(server, &key, &user, since, source)
}

fn of_key(
    server: &Server,
    key: &SshKeyRow,
    user: &User,
    since: Option<Timestamp>,
    source: IpAddr,
) -> Result<Caller, Failure> {
    let now = server.clock().now();
    if let Some(end) = key.expires_at
        && end <= now
    {
        return Err(refusals::ssh_key_expired(end).into());
    }
    if user.is_shut_out(now) {
        return Err(suspended().into());
    }
    from_own_network(user, source)?;
    let scopes = vec![Permission::SessionsRead, Permission::SessionsEnter];
    let via = Via::SshKey { id: key.id };
    let caller = caller(user, Some(scopes), via, source, now).with_due(server, user, since);
    if caller.must_change_password {
        return Err(refusals::password_change_needed().into());
    }
    if caller.must_set_up_second_factor(now) {
        return Err(refusals::second_factor_set_up_needed().into());
    }
    note_use(server, key, source, now);
    Ok(told(caller))
}

/// Writes at most once a minute, and waits for nothing.
fn note_use(server: &Server, key: &SshKeyRow, source: IpAddr, now: Timestamp) {
    if key
        .used_at
        .is_some_and(|used| now.seconds_since(used) < TOUCH_SECONDS)
    {
        return;
    }
    let id: SshKeyId = key.id;
    server
        .catalog()
        .write_later(Lane::Loops, "note an SSH key's last use", move |rows| {
            rows.touch_ssh_key(id, source)
        });
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A key as it is sent: these strings, one after the other.
    fn blob(parts: &[&[u8]]) -> Vec<u8> {
        let mut all = Vec::new();
        for part in parts {
            all.extend(u32::try_from(part.len()).expect("short").to_be_bytes());
            all.extend_from_slice(part);
        }
        all
    }

    /// The line of a public key of that kind.
    pub(crate) fn line(kind: &str, parts: &[&[u8]], comment: &str) -> String {
        let all = [&[kind.as_bytes()][..], parts].concat();
        format!("{kind} {} {comment}", STANDARD.encode(blob(&all)))
    }

    /// The line of an Ed25519 key that another number makes another one.
    pub(crate) fn some_key(number: u8) -> String {
        line("ssh-ed25519", &[&[number; 32]], "mina@laptop")
    }

    fn rsa_line(bits: usize) -> String {
        // The highest bit of a positive number stands behind a zero.
        let modulus = [&[0, 0x80][..], &vec![1; bits / 8 - 1]].concat();
        line("ssh-rsa", &[&[1, 0, 1], &modulus], "")
    }

    fn code(line: &str) -> String {
        match SshPublicKey::parse(line) {
            Ok(key) => format!("{} {}", key.kind, key.bits),
            Err(refusal) => refusal.code,
        }
    }

    /// A key that `ssh-keygen` made, with the fingerprint that it told.
    #[test]
    fn a_line_of_ssh_keygen_is_read_with_its_fingerprint() {
        let line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDTg9nVawVamEyUdWabCO7rAo3ljLQSoEacdMtCK3hrq  kim @ lab \n";
        let key = SshPublicKey::parse(line).expect("good");
        assert_eq!((key.kind, key.bits), ("ssh-ed25519", 256));
        assert_eq!(key.comment, "kim @ lab");
        let told = "SHA256:NWzrYSgOvAuFvfSw/YsPp1MrDu3JDInpo/A71xW7hG0";
        assert_eq!(fingerprint(&key.digest()), told);
    }

    #[test]
    fn each_kind_that_is_taken_is_known_by_its_name() {
        let p256 = [&[4][..], &[7; 64]].concat();
        let p521 = [&[4][..], &[7; 132]].concat();
        for (line, known) in [
            (some_key(1), "ssh-ed25519 256"),
            (
                line("ecdsa-sha2-nistp256", &[b"nistp256", &p256], ""),
                "ecdsa-sha2-nistp256 256",
            ),
            (
                line("ecdsa-sha2-nistp521", &[b"nistp521", &p521], ""),
                "ecdsa-sha2-nistp521 521",
            ),
            (
                line("sk-ssh-ed25519@openssh.com", &[&[7; 32], b"ssh:"], ""),
                "sk-ssh-ed25519@openssh.com 256",
            ),
            (rsa_line(3072), "ssh-rsa 3072"),
            (rsa_line(8192), "ssh-rsa 8192"),
        ] {
            assert_eq!(code(&line), known, "{line}");
        }
    }

    #[test]
    fn a_key_that_is_too_weak_too_long_or_none_is_refused_by_name() {
        let compressed = [&[2][..], &[7; 32]].concat();
        for (line, refused) in [
            (rsa_line(2048), "ssh-key.rsa-short"),
            (rsa_line(3064), "ssh-key.rsa-short"),
            (rsa_line(8200), "ssh-key.rsa-long"),
            (rsa_line(16_384), "ssh-key.rsa-long"),
            ("x".repeat(MAX_LINE_LENGTH + 1), "ssh-key.too-long"),
            (
                "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA".to_owned(),
                "ssh-key.private",
            ),
            (line("ssh-dss", &[&[1]], ""), "ssh-key.unknown-kind"),
            (
                line("ssh-ed25519-cert-v01@openssh.com", &[&[1; 32]], ""),
                "ssh-key.unknown-kind",
            ),
            (line("ssh-ed25519", &[&[1; 31]], ""), "ssh-key.unreadable"),
            // Another spelling of the same key.
            (
                line("ssh-ed25519", &[&[1; 32], &[]], ""),
                "ssh-key.unreadable",
            ),
            (
                line("ecdsa-sha2-nistp256", &[b"nistp256", &compressed], ""),
                "ssh-key.unreadable",
            ),
            (
                line("ssh-rsa", &[&[0, 1, 0, 1], &[0, 0x80, 1]], ""),
                "ssh-key.unreadable",
            ),
            (
                some_key(1).replacen("ssh-ed25519", "ssh-rsa", 1),
                "ssh-key.unreadable",
            ),
            (
                format!("{}\n{}", some_key(1), some_key(2)),
                "ssh-key.unreadable",
            ),
            ("ssh-ed25519".to_owned(), "ssh-key.unreadable"),
            ("ssh-ed25519 AAAA".to_owned(), "ssh-key.unreadable"),
            ("hello world".to_owned(), "ssh-key.unreadable"),
            (String::new(), "ssh-key.unreadable"),
        ] {
            assert_eq!(code(&line), refused, "{}", &line[..line.len().min(60)]);
        }
    }
}
