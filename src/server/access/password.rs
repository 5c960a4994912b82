//! Passwords: what is good enough, how one is hashed (argon2id) and checked. At most two are computed
//! at once, so that a storm of sign-ins does not eat the machine's memory.

use api::secret::SecretText;
use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use rules::refusal::Refusal;
use rules::refusals;
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;

use crate::{Failure, Server, ServerFault};

/// What one hash costs: memory in KiB, passes, lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Costs(u32, u32, u32);

/// Higher: sign-in storms cost more memory and time. Lower: guessing is cheaper.
const COSTS: Costs = Costs(19 * 1024, 2, 1);
/// Hashes computed at once: together 38 MiB, and one of two cores stays free.
const MAX_CONCURRENT: usize = 2;
/// Hashes that may wait. Each takes some 30 ms, so the last of these waits about four seconds. Fewer: a class
/// that signs in at once is told to come back.
const MAX_WAITING: usize = 256;

const MAX_LENGTH: usize = 1024;

/// Passwords that everybody tries first; only those long enough to pass otherwise.
const COMMON: &str = include_str!("common_passwords.txt");

/// Computes hashes, a few at once.
pub(crate) struct Hasher {
    costs: Costs,
    at_once: Semaphore,
    waiting: Semaphore,
}

impl Default for Hasher {
    fn default() -> Self {
        Self {
            costs: COSTS,
            at_once: Semaphore::new(MAX_CONCURRENT),
            waiting: Semaphore::new(MAX_WAITING),
        }
    }
}

impl Hasher {
    /// A hasher whose hashes cost next to nothing, for tests of everything but hashing.
    #[cfg(test)]
    pub(crate) fn cheap() -> Self {
        Self {
            costs: Costs(64, 1, 1),
            ..Self::default()
        }
    }

    /// Hashes a new password with fresh salt.
    pub(crate) async fn hash(&self, password: &SecretText) -> Result<String, Failure> {
        let (password, costs) = (password.clone(), self.costs);
        self.compute(move || {
            let stored = Stored {
                costs,
                salt: base::observe::random::<16>().to_vec(),
                hash: Vec::new(),
            };
            let hash = stored.digest(&password)?;
            Ok(Stored { hash, ..stored }.to_text())
        })
        .await
    }

    /// Says whether `password` is the one stored. Without a stored one it costs the same and says no.
    pub(crate) async fn check(
        &self,
        password: &SecretText,
        stored: Option<String>,
    ) -> Result<PasswordCheck, Failure> {
        let (password, costs) = (password.clone(), self.costs);
        self.compute(move || {
            let known = stored.as_deref().and_then(Stored::parse);
            let Some(known) = known else {
                Stored {
                    costs,
                    salt: vec![0; 16],
                    hash: Vec::new(),
                }
                .digest(&password)?;
                return Ok(PasswordCheck::Wrong);
            };
            let same: bool = known.digest(&password)?.ct_eq(&known.hash).into();
            Ok(match same {
                false => PasswordCheck::Wrong,
                true if known.costs == costs => PasswordCheck::Right,
                true => PasswordCheck::RightButOld,
            })
        })
        .await
    }

    async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let Ok(_waiting) = self.waiting.try_acquire() else {
            return Err(refusals::sign_in_busy().retry_after(2).into());
        };
        let _turn = self
            .at_once
            .acquire()
            .await
            .map_err(|closed| ServerFault::new("hash a password", closed))?;
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|ended| ServerFault::new("hash a password", ended))?
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PasswordCheck {
    Wrong,
    Right,
    /// Right, but hashed with other costs than today's: hash it again.
    RightButOld,
}

/// A stored password in its usual text form, `$argon2id$v=19$m=…,t=…,p=…$salt$hash`.
struct Stored {
    costs: Costs,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

impl Stored {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('$');
        let head = (parts.next()?, parts.next()?, parts.next()?);
        if head != ("", "argon2id", "v=19") {
            return None;
        }
        let mut costs = parts.next()?.split(',');
        let mut cost = |name: &str| -> Option<u32> {
            costs
                .next()?
                .strip_prefix(name)?
                .strip_prefix('=')?
                .parse()
                .ok()
        };
        let (memory, passes, lanes) = (cost("m")?, cost("t")?, cost("p")?);
        let salt = STANDARD_NO_PAD.decode(parts.next()?).ok()?;
        let hash = STANDARD_NO_PAD.decode(parts.next()?).ok()?;
        (hash.len() == 32).then_some(Self {
            costs: Costs(memory, passes, lanes),
            salt,
            hash,
        })
    }

    fn to_text(&self) -> String {
        let Costs(memory, passes, lanes) = self.costs;
        format!(
            "$argon2id$v=19$m={memory},t={passes},p={lanes}${}${}",
            STANDARD_NO_PAD.encode(&self.salt),
            STANDARD_NO_PAD.encode(&self.hash),
        )
    }

    fn digest(&self, password: &SecretText) -> Result<Vec<u8>, Failure> {
        let fault = |error: argon2::Error| ServerFault::new("hash a password", error.to_string());
        let Costs(memory, passes, lanes) = self.costs;
        let params = Params::new(memory, passes, lanes, Some(32)).map_err(fault)?;
        let mut hash = vec![0; 32];
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(password.reveal().as_bytes(), &self.salt, &mut hash)
            .map_err(fault)?;
        Ok(hash)
    }
}

/// What the site asks of a new password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PasswordRules {
    /// Fewest characters.
    length: u32,
    /// Kinds of characters.
    classes: u32,
    /// Last passwords that are refused.
    pub(crate) history: u32,
}

impl PasswordRules {
    pub(crate) fn of(server: &Server) -> Self {
        let settings = server.settings();
        Self {
            length: settings.password_length,
            classes: settings.password_classes,
            history: settings.password_history,
        }
    }
}

/// How many kinds of characters there are: small letters, capitals, digits, and all others. Letters without a size,
/// such as those of Korean, are others.
fn classes(text: &str) -> u32 {
    let kinds = [
        char::is_lowercase as fn(char) -> bool,
        char::is_uppercase,
        char::is_numeric,
        |letter| !letter.is_lowercase() && !letter.is_uppercase() && !letter.is_numeric(),
    ];
    kinds
        .into_iter()
        .map(|kind| u32::from(text.chars().any(kind)))
        .sum()
}

/// Refuses a password that was one of the user's last ones, the present one among them. Costs a hash for each.
pub(crate) async fn check_unused(
    server: &Server,
    password: &SecretText,
    stored: &[String],
    pointer: &str,
) -> Result<(), Failure> {
    let most = PasswordRules::of(server).history;
    for one in stored.iter().take(most as usize) {
        let checked = server.hasher().check(password, Some(one.clone())).await?;
        if checked != PasswordCheck::Wrong {
            return Err(refusals::password_used(most).at(pointer).into());
        }
    }
    Ok(())
}

/// Refuses a password that is too short, too long, too plain, too common, or the user's own name.
pub(crate) fn check_new(
    rules: PasswordRules,
    password: &SecretText,
    name: &str,
    pointer: &str,
) -> Result<(), Refusal> {
    let text = password.reveal();
    let characters = text.chars().count();
    if characters < rules.length as usize {
        return Err(refusals::password_too_short(rules.length).at(pointer));
    }
    if classes(text) < rules.classes {
        return Err(refusals::password_too_plain(rules.classes).at(pointer));
    }
    if text.len() > MAX_LENGTH {
        return Err(refusals::password_too_long(MAX_LENGTH).at(pointer));
    }
    if text.contains('\0') {
        return Err(refusals::password_nul().at(pointer));
    }
    let lower = text.to_lowercase();
    let mut letters: Vec<char> = lower.chars().collect();
    letters.sort_unstable();
    letters.dedup();
    let too_plain = letters.len() < 4
        || lower.trim_end_matches(|c: char| c.is_ascii_digit() || c.is_ascii_punctuation()) == name
        || COMMON.lines().any(|common| common == lower);
    if too_plain {
        return Err(refusals::password_too_common().at(pointer));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_password_survives_its_text() {
        let text = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        assert_eq!(
            Stored::parse(text).map(|stored| stored.to_text()),
            Some(text.to_owned())
        );
        for broken in ["", "!", "$argon2i$v=19$m=1,t=1,p=1$AA$AA", &text[..40]] {
            assert!(Stored::parse(broken).is_none(), "{broken}");
        }
    }

    /// A hash of "correct horse battery" that another implementation of argon2id made, with other
    /// costs than ours.
    const FOREIGN: &str = "$argon2id$v=19$m=1024,t=2,p=2$c2FsdHNhbHRzYWx0c2FsdA$mn3XPgj0CbEwW76thPIB6ZXETK7E2PdA7VcZE6LmhzU";

    #[tokio::test]
    async fn a_hash_of_another_implementation_is_understood_and_counts_as_old() {
        let hasher = Hasher::default();
        let right = SecretText::from("correct horse battery");
        let stored = Some(FOREIGN.to_owned());
        assert_eq!(
            hasher.check(&right, stored.clone()).await.unwrap(),
            PasswordCheck::RightButOld
        );
        let wrong = SecretText::from("correct horse batterz");
        assert_eq!(
            hasher.check(&wrong, stored).await.unwrap(),
            PasswordCheck::Wrong
        );
    }

    #[tokio::test]
    async fn a_new_hash_is_current_and_salted() {
        let hasher = Hasher::default();
        let password = SecretText::from("correct horse battery");
        let (one, two) = (
            hasher.hash(&password).await.unwrap(),
            hasher.hash(&password).await.unwrap(),
        );
        assert_ne!(one, two);
        assert_eq!(
            hasher.check(&password, Some(one)).await.unwrap(),
            PasswordCheck::Right
        );
        assert_eq!(
            hasher.check(&password, None).await.unwrap(),
            PasswordCheck::Wrong
        );
    }

    const USUAL: PasswordRules = PasswordRules {
        length: 10,
        classes: 0,
        history: 0,
    };

    #[test]
    fn kinds_of_characters_are_counted_in_any_script() {
        for (text, kinds) in [
            ("correcthorse", 1),
            ("correct horse", 2),
            ("Correct horse 9", 4),
            ("물고기가 하늘을", 1),
            ("물고기9", 2),
        ] {
            assert_eq!(classes(text), kinds, "{text}");
        }
        let strict = PasswordRules {
            length: 12,
            classes: 3,
            ..USUAL
        };
        let code = |text: &str| {
            let checked = check_new(strict, &SecretText::from(text), "mina", "/password");
            checked.map_or_else(|refusal| refusal.code, |()| "fine".to_owned())
        };
        assert_eq!(code("Ab3 defghij"), "password.too-short");
        assert_eq!(code("correct horse battery"), "password.too-plain");
        assert_eq!(code("correct horse 9"), "fine");
    }

    #[test]
    fn weak_passwords_are_refused_by_name() {
        let code = |text: &str| {
            check_new(USUAL, &SecretText::from(text), "mina", "/password")
                .map(|()| "fine".to_owned())
                .unwrap_or_else(|refusal| refusal.code)
        };
        assert_eq!(code("short"), "password.too-short");
        assert_eq!(code("password123"), "password.too-common");
        assert_eq!(code("aaaaaaaaaaaa"), "password.too-common");
        assert_eq!(code("mina12345678"), "password.too-common");
        assert_eq!(code(&"x y z w".repeat(200)), "password.too-long");
        assert_eq!(code("correct horse battery"), "fine");
        assert_eq!(code("물고기가 하늘을 난다"), "fine");
    }

    #[tokio::test]
    async fn two_are_checked_at_once_and_256_wait() {
        let hasher = std::sync::Arc::new(Hasher::cheap());
        let both = hasher.at_once.acquire_many(2).await.unwrap();
        assert_eq!(hasher.at_once.available_permits(), 0, "two, and no third");
        let password = SecretText::from("correct horse battery");
        let waiting: Vec<_> = (0..256)
            .map(|_| {
                let (hasher, password) = (hasher.clone(), password.clone());
                tokio::spawn(async move { hasher.check(&password, None).await })
            })
            .collect();
        while hasher.waiting.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let Err(Failure::Refusal(refusal)) = hasher.check(&password, None).await else {
            panic!("it was taken");
        };
        assert_eq!(
            (refusal.code.as_str(), refusal.kind),
            ("sign-in.busy", rules::refusal::RefusalKind::TooOften)
        );
        drop(both);
        for check in waiting {
            assert_eq!(check.await.unwrap().unwrap(), PasswordCheck::Wrong);
        }
        hasher.check(&password, None).await.unwrap();
    }
}
