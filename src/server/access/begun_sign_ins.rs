//! Sign-ins that a browser began and that an identity provider has not sent back yet: kept in memory by the hash of their
//! state, for some minutes, bounded for each network, and for the browser that began them. Never says who a user is.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rules::names::UserId;
use rules::units::Timestamp;
use uuid::Uuid;

use super::secret::same;

/// Sign-ins that were begun and have not come back, of all browsers. The oldest of the network that
/// began most goes first.
const MAX_BEGUN: usize = 4_096;
/// The same of one address. Fewer: a class behind one address is told that its sign-ins are over.
pub(super) const MAX_BEGUN_OF_ADDRESS: usize = 128;
/// Seconds from the beginning to the return. Shorter: who looks for their phone at the provider begins again.
pub(super) const BEGUN_SECONDS: u64 = 600;
/// Letters of the place that a user wanted to go to.
const MAX_NEXT: usize = 2_000;

/// One of them; `of` is what its protocol keeps.
pub(super) struct BegunSignIn<T> {
    /// Hash of the cookie of the browser that began.
    pub browser: [u8; 32],
    pub network: Vec<u8>,
    pub next: String,
    pub at: Timestamp,
    /// Who is signed in and proves anew who they are.
    pub again: Option<(Uuid, UserId)>,
    pub of: T,
}

/// All of one protocol, by the hash of their state.
pub(super) struct BegunSignIns<T>(Mutex<HashMap<[u8; 32], BegunSignIn<T>>>);

impl<T> Default for BegunSignIns<T> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<T> BegunSignIns<T> {
    fn locked(&self) -> MutexGuard<'_, HashMap<[u8; 32], BegunSignIn<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self, state: [u8; 32], begun: BegunSignIn<T>) {
        let mut all = self.locked();
        let now = begun.at;
        all.retain(|_, other| now.seconds_since(other.at) < BEGUN_SECONDS);
        let here = all.values().filter(|other| other.network == begun.network);
        let crowded = here.count() >= MAX_BEGUN_OF_ADDRESS;
        if crowded || all.len() >= MAX_BEGUN {
            let full = match crowded {
                true => begun.network.clone(),
                false => fullest_network(&all).unwrap_or_default(),
            };
            let oldest = all
                .iter()
                .filter(|(_, other)| other.network == full)
                .min_by_key(|(_, other)| other.at)
                .map(|(state, _)| *state);
            if let Some(oldest) = oldest {
                all.remove(&oldest);
            }
        }
        all.insert(state, begun);
    }

    /// What was begun by this browser under this state; a second return finds nothing.
    pub(super) fn take(
        &self,
        state: &[u8; 32],
        browser: &[u8; 32],
        now: Timestamp,
    ) -> Option<BegunSignIn<T>> {
        let mut all = self.locked();
        let begun = all.get(state)?;
        if !same(&begun.browser, browser) {
            return None;
        }
        let begun = all.remove(state)?;
        (now.seconds_since(begun.at) < BEGUN_SECONDS).then_some(begun)
    }

    /// What is asked of one that is not over, whichever browser began it; None where there is none.
    pub(super) fn with<R>(
        &self,
        state: &[u8; 32],
        now: Timestamp,
        ask: impl FnOnce(&BegunSignIn<T>) -> R,
    ) -> Option<R> {
        let all = self.locked();
        let begun = all.get(state)?;
        (now.seconds_since(begun.at) < BEGUN_SECONDS).then(|| ask(begun))
    }

    /// Puts what came back for one that is not over under a state of its own, so that the old state finds nothing; false
    /// where there is none.
    pub(super) fn answer(
        &self,
        state: &[u8; 32],
        answered: [u8; 32],
        now: Timestamp,
        of: T,
    ) -> bool {
        let mut all = self.locked();
        let Some(begun) = all.remove(state) else {
            return false;
        };
        let in_time = now.seconds_since(begun.at) < BEGUN_SECONDS;
        if in_time {
            all.insert(answered, BegunSignIn { of, ..begun });
        }
        in_time
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.locked().len()
    }
}

/// The place that a user wanted to go to, as it is kept.
pub(super) fn kept_next(next: &str) -> String {
    next.chars().take(MAX_NEXT).collect()
}

/// The network that began most: what it makes room for costs no other network a sign-in.
fn fullest_network<T>(all: &HashMap<[u8; 32], BegunSignIn<T>>) -> Option<Vec<u8>> {
    let mut counts: HashMap<&[u8], usize> = HashMap::new();
    for begun in all.values() {
        *counts.entry(&begun.network).or_default() += 1;
    }
    let fullest = counts.into_iter().max_by_key(|(_, count)| *count);
    fullest.map(|(network, _)| network.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where all room is taken, the network that took most of it makes room, and not whoever came first.
    #[test]
    fn the_network_that_began_most_makes_room() {
        let sign_ins = BegunSignIns::default();
        let state = |number: usize| {
            let mut state = [0; 32];
            state[..8].copy_from_slice(&number.to_be_bytes());
            state
        };
        let begin = |number: usize, network: usize| {
            let begun = BegunSignIn {
                browser: [0; 32],
                network: network.to_be_bytes().to_vec(),
                next: String::new(),
                at: Timestamp::from_millis(i64::try_from(number).unwrap()),
                again: None,
                of: (),
            };
            sign_ins.begin(state(number), begun);
        };
        begin(0, 0);
        for number in 1..MAX_BEGUN {
            // A hundred of one network, and at most 64 of each other one.
            begin(number, if number <= 100 { 1 } else { 2 + number / 64 });
        }
        begin(MAX_BEGUN, usize::MAX);
        assert_eq!(sign_ins.count(), MAX_BEGUN);
        let kept = sign_ins.locked();
        assert!(kept.contains_key(&state(0)));
        assert!(!kept.contains_key(&state(1)));
    }
}
