//! Secrets of tokens, keys, invitations and sign-in links between the form that made them and the page that shows them:
//! once, and to their maker alone. So a reload of that page makes no second one. Nothing is written down.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::secret::SecretText;
use rules::names::UserId;
use uuid::Uuid;

/// Secrets that wait to be shown. Higher: more of them in memory. Lower: where many users make them in the same
/// minute, the oldest one is never shown and has to be made again.
const MAX_WAITING: usize = 64;
/// How long one waits. A browser follows a redirect at once.
const SHOWN_FOR: Duration = Duration::from_secs(60);

struct WaitingSecret {
    user: UserId,
    made: Uuid,
    secret: SecretText,
    at: Instant,
}

/// The secrets that wait to be shown.
#[derive(Default)]
pub(super) struct MadeSecrets(Mutex<Vec<WaitingSecret>>);

impl MadeSecrets {
    /// Keeps a secret for the next page of its maker; the oldest one goes where there are too many.
    pub(super) fn keep(&self, user: UserId, made: Uuid, secret: SecretText) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|one| one.at.elapsed() < SHOWN_FOR);
        if waiting.len() >= MAX_WAITING {
            waiting.remove(0);
        }
        waiting.push(WaitingSecret {
            user,
            made,
            secret,
            at: Instant::now(),
        });
    }

    /// That secret, once; none for another user, and none the second time.
    pub(super) fn take(&self, user: UserId, made: Uuid) -> Option<SecretText> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|one| one.at.elapsed() < SHOWN_FOR);
        let is_meant = |one: &WaitingSecret| one.user == user && one.made == made;
        let at = waiting.iter().position(is_meant)?;
        Some(waiting.remove(at).secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: usize) -> Uuid {
        Uuid::from_u128(number as u128)
    }

    #[test]
    fn a_secret_is_shown_once_and_to_its_maker() {
        let (mina, jae) = (UserId(Uuid::nil()), UserId(Uuid::max()));
        let made = MadeSecrets::default();
        made.keep(mina, token(1), SecretText::new("s"));
        assert!(made.take(jae, token(1)).is_none());
        assert!(made.take(mina, token(2)).is_none());
        let secret = made.take(mina, token(1));
        assert_eq!(secret.as_ref().map(SecretText::reveal), Some("s"));
        assert!(made.take(mina, token(1)).is_none());
    }

    #[test]
    fn of_too_many_secrets_the_oldest_goes() {
        let mina = UserId(Uuid::nil());
        let made = MadeSecrets::default();
        for number in 0..=MAX_WAITING {
            made.keep(mina, token(number), SecretText::new("s"));
        }
        assert!(made.take(mina, token(0)).is_none());
        assert!(made.take(mina, token(1)).is_some());
        assert!(made.take(mina, token(MAX_WAITING)).is_some());
    }
}
