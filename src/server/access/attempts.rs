//! Failed sign-ins. Each guess waits longer than the one before; no guesses lock another user out.
//! What is counted, and kept in memory only:
//!
//! - a name from one address: after some failures each further try waits, at most half a minute;
//! - a name from a browser that signed in by it and its present password before (`KnownBrowser`), and the own password
//!   asked for again: apart from everybody else's, at most a quarter of an hour;
//! - codes of a second factor: by their user alone, wherever they come from, at most a quarter of an hour, and for a
//!   day. Only who knows the password can try one. A browser that is signed in, or gave a code of this second factor
//!   before, has a count of its own, so that who knows the password keeps its user out of nothing;
//! - a name from anywhere, and an address for any name or code: tries are slowed, never refused.
//!
//! Root on this machine does not sign in, and a right setup code is never asked to wait.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rules::names::UserId;
use rules::refusals;
use rules::units::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::secret::same;
use crate::catalog::Lane;
use crate::catalog::events::NewEvent;
use crate::{Failure, Server};

/// Failures that cost nothing: users mistype. Each further one doubles the wait, from one second.
const FREE: u32 = 5;
/// Longest wait of a name from an address that is no known browser's. Higher: a user behind the same
/// proxy is kept out by a neighbour. Lower: an address may guess more often.
const MAX_WAIT_SECONDS: u64 = 30;
/// Longest wait of a browser that signed in by this name before, which failures of others do not touch.
const MAX_OWN_WAIT_SECONDS: u64 = 15 * 60;
/// Failures of a name from anywhere after which its tries are slowed.
const FREE_OF_NAME: u32 = 20;
/// Failures from an address after which its tries are slowed: a class may sit behind one.
const FREE_OF_ADDRESS: u32 = 50;
/// How long a slowed try is held before its password is looked at.
const SLOWED: Duration = Duration::from_secs(1);
/// Tries that are held at once; more are told to come back.
const MAX_SLOWED: usize = 64;
/// Quiet seconds after which failures are no longer counted.
const FORGIVEN_AFTER_SECONDS: u64 = 3600;
/// The same of wrong codes of a second factor. Shorter: who knows many passwords rests between guesses and has the
/// free ones again each time.
const CODES_FORGIVEN_AFTER_SECONDS: u64 = 86_400;
/// Counts kept at once, some 100 bytes each; the one that rested longest goes first. Each costs the caller that makes
/// it the time of a password's check.
const MAX_COUNTS: usize = 10_000;
/// Longest name that is counted as typed; no longer one exists.
const MAX_NAME_LENGTH: usize = 80;

/// What is counted, hashed, because users type passwords into the wrong field.
type AttemptKey = [u8; 32];

#[derive(Debug, Clone, Copy)]
struct AttemptCount {
    failures: u32,
    failed_at: Timestamp,
    /// Tries before that are refused.
    free_at: Timestamp,
    /// Whose name it is about, so that an administrator can lift it.
    name: AttemptKey,
    of: CountOf,
}

/// Who can make a count. Beyond the bound, unauthenticated ones are dropped first: a flood of invented names must not make
/// the guesses at somebody's codes forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CountOf {
    Unauthenticated,
    /// Only who gave the right password of a user.
    ProvenUser,
}

/// The counts of one server.
pub(crate) struct AttemptCounts {
    rows: Mutex<HashMap<AttemptKey, AttemptCount>>,
    slowed: Arc<Semaphore>,
}

impl Default for AttemptCounts {
    fn default() -> Self {
        Self {
            rows: Mutex::default(),
            slowed: Arc::new(Semaphore::new(MAX_SLOWED)),
        }
    }
}

impl AttemptCounts {
    fn locked(&self) -> MutexGuard<'_, HashMap<AttemptKey, AttemptCount>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failures(&self, subject: &AttemptKey, now: Timestamp) -> u32 {
        let rows = self.locked();
        rows.get(subject)
            .filter(|row| !row.forgiven(now))
            .map_or(0, |row| row.failures)
    }

    /// Counts a failure before it happened, so that many tries at once are as slow as one after the other;
    /// Err: until when the next try waits.
    fn begin(
        &self,
        (subject, of): (AttemptKey, CountOf),
        name: AttemptKey,
        longest: u64,
        now: Timestamp,
    ) -> Result<u32, Timestamp> {
        let mut rows = self.locked();
        if rows.len() >= MAX_COUNTS && !rows.contains_key(&subject) {
            let oldest = rows.iter().min_by_key(|(_, row)| (row.of, row.failed_at));
            if let Some(oldest) = oldest.map(|(subject, _)| *subject) {
                rows.remove(&oldest);
            }
        }
        let row = rows.entry(subject).or_insert(AttemptCount {
            failures: 0,
            failed_at: now,
            free_at: now,
            name,
            of,
        });
        if row.forgiven(now) {
            row.failures = 0;
        }
        if row.free_at > now {
            return Err(row.free_at);
        }
        row.failures += 1;
        row.failed_at = now;
        row.free_at = now.plus_seconds(wait(row.failures, longest));
        Ok(row.failures)
    }

    /// Takes one failure back that was none.
    fn undo(&self, subject: &AttemptKey) {
        let mut rows = self.locked();
        if let Some(row) = rows.get_mut(subject) {
            row.failures = row.failures.saturating_sub(1);
            row.free_at = row.failed_at;
        }
    }

    fn forget(&self, subject: &AttemptKey) {
        self.locked().remove(subject);
    }
}

impl AttemptCount {
    fn forgiven(&self, now: Timestamp) -> bool {
        let quiet = match self.of {
            CountOf::Unauthenticated => FORGIVEN_AFTER_SECONDS,
            CountOf::ProvenUser => CODES_FORGIVEN_AFTER_SECONDS,
        };
        now.seconds_since(self.failed_at.max(self.free_at)) >= quiet
    }
}

/// Seconds until the next try after so many failures.
fn wait(failures: u32, longest: u64) -> u64 {
    match failures.checked_sub(FREE + 1) {
        None => 0,
        Some(more) => (1_u64 << more.min(32)).min(longest),
    }
}

/// One try, and what it counts against.
pub(super) struct Attempt<'s> {
    server: &'s Server,
    /// Refused while this has to wait.
    own: AttemptKey,
    longest: u64,
    /// Slowed by these; empty for a known browser.
    shared: Vec<(AttemptKey, u32)>,
    name: AttemptKey,
    /// What has to wait, in words; None for codes of a second factor.
    what: Option<String>,
    /// Who the journal says it was about.
    known: Option<UserId>,
}

impl<'s> Attempt<'s> {
    /// A sign-in by a name, which may have been `typed` in other words, such as an address; `device` where their browser
    /// did so before.
    pub(super) fn of(
        server: &'s Server,
        (name, typed): (&str, &str),
        known: Option<UserId>,
        source: IpAddr,
        device: Option<KnownBrowser>,
    ) -> Self {
        let cut = |text: &str| text.chars().take(MAX_NAME_LENGTH).collect::<String>();
        let (short, typed) = (cut(name), cut(typed));
        let address = network(source);
        let own = match device {
            Some(device) => subject("device", &device.id, &device.user),
            None => subject("pair", short.as_bytes(), &address),
        };
        let name = subject("name", short.as_bytes(), &[]);
        Self {
            server,
            own,
            longest: if device.is_some() {
                MAX_OWN_WAIT_SECONDS
            } else {
                MAX_WAIT_SECONDS
            },
            shared: if device.is_some() {
                Vec::new()
            } else {
                vec![
                    (name, FREE_OF_NAME),
                    (subject("address", &address, &[]), FREE_OF_ADDRESS),
                ]
            },
            name,
            // The caller typed an address and is not told whose it is.
            what: Some(format!("Sign-in for {}", typed.escape_debug())),
            known,
        }
    }

    /// A signed-in user is asked for their password again, by this sign-in, or by any token of theirs.
    pub(super) fn of_own(server: &'s Server, name: &str, user: UserId, by: &[u8; 16]) -> Self {
        Self {
            server,
            own: subject("own", by, user.0.as_bytes()),
            longest: MAX_OWN_WAIT_SECONDS,
            shared: Vec::new(),
            name: subject("name", name.as_bytes(), &[]),
            what: Some(format!("Sign-in for {}", name.escape_debug())),
            known: Some(user),
        }
    }

    /// A code of a user's second factor, wherever it comes from; `browser` is one that proved this factor before.
    pub(super) fn of_code(
        server: &'s Server,
        name: &str,
        user: UserId,
        source: Option<IpAddr>,
        browser: Option<[u8; 16]>,
    ) -> Self {
        let address = |source| (subject("address", &network(source), &[]), FREE_OF_ADDRESS);
        Self {
            server,
            own: match browser {
                Some(browser) => subject("own code", &browser, user.0.as_bytes()),
                None => subject("code", user.0.as_bytes(), &[]),
            },
            longest: MAX_OWN_WAIT_SECONDS,
            shared: source.map(address).into_iter().collect(),
            name: subject("name", name.as_bytes(), &[]),
            what: None,
            known: Some(user),
        }
    }

    /// A return from an identity provider. It is slowed, and never has to wait: nothing in it can be guessed, and whoever
    /// shares an address with its user could fail as often as they like.
    pub(super) fn of_return(server: &'s Server, source: IpAddr) -> Self {
        let address = network(source);
        Self {
            server,
            own: subject("return", &address, &[]),
            longest: 0,
            shared: vec![(subject("address", &address, &[]), FREE_OF_ADDRESS)],
            name: subject("return", &[], &[]),
            what: Some("Sign-in by the identity provider".to_owned()),
            known: None,
        }
    }

    /// A request of a stranger for an account, from one network.
    pub(super) fn of_sign_up(server: &'s Server, source: IpAddr) -> Self {
        Self {
            own: subject("sign-up", &network(source), &[]),
            name: subject("sign-up", &[], &[]),
            what: Some("Sign-up".to_owned()),
            ..Self::of_setup(server, source)
        }
    }

    /// A try of a setup code.
    pub(super) fn of_setup(server: &'s Server, source: IpAddr) -> Self {
        Self {
            server,
            own: subject("setup", &network(source), &[]),
            longest: MAX_WAIT_SECONDS,
            shared: Vec::new(),
            name: subject("setup", &[], &[]),
            what: Some("Setup".to_owned()),
            known: None,
        }
    }

    /// Counts the try as failed until it is `forgiven` or `undone`, and holds it back where many failed.
    ///
    /// Errors: `sign-in.locked` while it has to wait; `sign-in.busy` where too many are held back already.
    /// What it gives is to be kept until the password was looked at, so that few slowed tries are under way.
    pub(super) async fn begin(&self) -> Result<Option<OwnedSemaphorePermit>, Failure> {
        let (counts, now) = (self.server.sign_in_counts(), self.server.clock().now());
        let failures = counts
            .begin((self.own, self.counted()), self.name, self.longest, now)
            .map_err(|until| self.locked(until, now))?;
        if failures == FREE + 1 {
            self.note(now.plus_seconds(wait(failures, self.longest)));
        }
        let many = |(subject, free): &(AttemptKey, u32)| counts.failures(subject, now) > *free;
        let slowed = self.shared.iter().any(many);
        for (subject, _) in &self.shared {
            // It delays no try by itself: no wait is counted for it.
            let _ = counts.begin((*subject, CountOf::Unauthenticated), self.name, 0, now);
        }
        if slowed {
            let Ok(held) = Arc::clone(&counts.slowed).try_acquire_owned() else {
                self.undone();
                return Err(refusals::sign_in_many_in_progress()
                    .retry_after(SLOWED.as_secs() + 1)
                    .into());
            };
            tokio::time::sleep(SLOWED).await;
            return Ok(Some(held));
        }
        Ok(None)
    }

    fn counted(&self) -> CountOf {
        match self.what {
            Some(_) => CountOf::Unauthenticated,
            None => CountOf::ProvenUser,
        }
    }

    /// It was no failure, and no success either.
    pub(super) fn undone(&self) {
        let counts = self.server.sign_in_counts();
        counts.undo(&self.own);
        for (subject, _) in &self.shared {
            counts.undo(subject);
        }
    }

    /// The password was right: its own failures are forgotten. Name and address keep theirs but this one: a
    /// good account must not buy more guesses at others.
    pub(super) fn forgiven(&self) {
        let counts = self.server.sign_in_counts();
        counts.forget(&self.own);
        for (subject, _) in &self.shared {
            counts.undo(subject);
        }
    }

    fn locked(&self, until: Timestamp, now: Timestamp) -> Failure {
        let refusal = match &self.what {
            Some(what) => refusals::sign_in_locked(what, until),
            None => refusals::sign_in_codes_locked(until),
        };
        refusal
            .retry_after(until.millis_since(now).div_ceil(1000).max(1))
            .into()
    }

    /// Tells the journal, once for each run of failures. Of unknown names it tells the log alone:
    /// a stranger invents as many as they like, and what the journal says of users stays for ever.
    fn note(&self, until: Timestamp) {
        let Some(user) = self.known else {
            let name = URL_SAFE_NO_PAD.encode(&self.name[..12]);
            tracing::warn!(
                whose = name,
                "too many failures of an unknown name, or of setup codes"
            );
            return;
        };
        let object = user.to_string();
        let write = move |rows: &crate::catalog::Rows<'_>| {
            rows.note(NewEvent {
                actor: "access",
                topic: "users",
                object: &object,
                scope: rules::tenancy::Scope::SITE,
                code: rules::codes::SIGN_IN_LOCKED,
                before: "",
                after: &until.to_string(),
            })
        };
        self.server
            .catalog()
            .write_later(Lane::Loops, "note failed sign-ins", write);
    }
}

/// Lifts every wait of a name, when an administrator set a new password.
pub(crate) fn unlock(server: &Server, name: &str) {
    let name = subject("name", name.as_bytes(), &[]);
    server
        .sign_in_counts()
        .locked()
        .retain(|_, row| row.name != name);
}

/// A browser that signed in by a name before, known by a signed cookie. Authenticates no user: it only has failures
/// of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KnownBrowser {
    id: [u8; 16],
    user: [u8; 16],
    /// The second factor that was proven there, by when it was confirmed. Who had the password alone can have made as
    /// many browsers known as they liked: those say nothing about codes.
    factor: Option<Timestamp>,
    /// Digest of what is stored of the password that was right there: a new one is not known there yet.
    password: [u8; 32],
}

impl KnownBrowser {
    /// The device behind this cookie, where the box signed it for this user and their present password, kept as
    /// `stored`, with their present second factor or without any.
    pub(super) fn read(
        server: &Server,
        cookie: &str,
        user: UserId,
        factor: Option<Timestamp>,
        stored: &str,
    ) -> Option<Self> {
        // 86 characters carry 64 bytes; anything else was never ours.
        if cookie.len() != 86 {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(cookie).ok()?;
        let (id, rest) = bytes.split_first_chunk::<16>()?;
        let (whose, signature) = rest.split_first_chunk::<16>()?;
        let signature: [u8; 32] = signature.try_into().ok()?;
        let password: [u8; 32] = Sha256::digest(stored).into();
        let known = |factor| {
            let device = Self {
                id: *id,
                user: *whose,
                factor,
                password,
            };
            (same(&device.signature(server), &signature) && device.user == user.0.into_bytes())
                .then_some(device)
        };
        known(factor).or_else(|| known(None))
    }

    pub(super) fn draw(user: UserId, factor: Option<Timestamp>, stored: &str) -> Self {
        Self {
            id: base::observe::random(),
            user: user.0.into_bytes(),
            factor,
            password: Sha256::digest(stored).into(),
        }
    }

    /// Whether it proved this second factor, or there was none to prove.
    pub(super) fn proved(&self, factor: Option<Timestamp>) -> bool {
        self.factor == factor
    }

    /// What its wrong codes are counted by; None where it proved no second factor.
    pub(super) fn of_codes(&self) -> Option<[u8; 16]> {
        self.factor.map(|_| self.id)
    }

    /// The value of its cookie.
    pub(super) fn cookie(&self, server: &Server) -> String {
        let bytes = [&self.id[..], &self.user, &self.signature(server)].concat();
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The box's key signs cursors too; these words begin like no cursor does.
    fn signature(&self, server: &Server) -> [u8; 32] {
        let key = server.catalog().founding().cursor_key;
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
        let name = &b"sign-in device: "[..];
        let mut message = [name, &self.id, &self.user, &self.password].concat();
        if let Some(since) = self.factor {
            message.extend(since.as_millis().to_be_bytes());
        }
        let mut signature = [0; 32];
        signature.copy_from_slice(ring::hmac::sign(&key, &message).as_ref());
        signature
    }
}

fn subject(kind: &str, first: &[u8], second: &[u8]) -> AttemptKey {
    let mut digest = Sha256::new();
    for part in [kind.as_bytes(), first, second] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

/// What counts as one address: a whole network of IPv6, since everybody has one to choose from.
pub(super) fn network(source: IpAddr) -> Vec<u8> {
    match source.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets()[..8].to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_bounded_and_the_one_that_rested_longest_goes_first() {
        let counts = AttemptCounts::default();
        let now = Timestamp::from_millis(1_000_000);
        let numbered = |n: usize| subject("test", &n.to_be_bytes(), &[]);
        let code = (subject("code", &[], &[]), CountOf::ProvenUser);
        let _ = counts.begin(code, code.0, 900, now);
        for n in 0..MAX_COUNTS + 100 {
            let later = now.plus_seconds(n as u64 / 1000);
            let _ = counts.begin(
                (numbered(n), CountOf::Unauthenticated),
                numbered(n),
                30,
                later,
            );
        }
        let rows = counts.locked();
        assert_eq!(rows.len(), MAX_COUNTS);
        assert!(rows.contains_key(&numbered(MAX_COUNTS + 99)));
        assert!(
            rows.contains_key(&code.0),
            "guesses at a code are forgotten"
        );
    }

    #[test]
    fn waits_double_from_a_second_to_the_longest() {
        let waits: Vec<u64> = (4..14).map(|n| wait(n, MAX_WAIT_SECONDS)).collect();
        assert_eq!(waits, [0, 0, 1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(wait(u32::MAX, MAX_OWN_WAIT_SECONDS), 900);
    }
}
