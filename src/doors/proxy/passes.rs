//! What cookies of apps prove, for those that were read before: a browser sends the same one with each of its requests. Never
//! says whether a pass is still worth anything; its visit does.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rules::units::Timestamp;
use server::access::AppPass;

/// Cookies that are known at once. Higher: memory that browsers choose. Lower: more signatures are checked again.
const MAX_KNOWN: usize = 512;

/// Passes by the cookies that prove them. Only those stand here whose signature was right.
#[derive(Default)]
pub(super) struct KnownPasses(Mutex<HashMap<Box<str>, AppPass>>);

impl KnownPasses {
    /// What a cookie proves at that time, as `read` says where it is not known. `read` limits how long a cookie is.
    pub(super) fn of(
        &self,
        cookie: &str,
        now: Timestamp,
        read: impl FnOnce(&str) -> Option<AppPass>,
    ) -> Option<AppPass> {
        let known = self.locked().get(cookie).cloned();
        if let Some(pass) = known {
            return (pass.ends_at > now).then_some(pass);
        }
        let pass = read(cookie)?;
        let mut all = self.locked();
        if all.len() >= MAX_KNOWN {
            all.clear();
        }
        all.insert(cookie.into(), pass.clone());
        Some(pass)
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<Box<str>, AppPass>> {
        // It is whole after every step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use rules::names::{SessionId, TokenId, UserId};
    use server::access::Via;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_cookie_is_read_once_and_works_until_its_end() {
        let at = Timestamp::from_millis;
        let pass = AppPass {
            user: UserId(Uuid::nil()),
            via: Via::Token {
                id: TokenId(Uuid::nil()),
            },
            session: SessionId(Uuid::nil()),
            port: 8444,
            ends_at: at(10),
        };
        let passes = KnownPasses::default();
        let read = |_: &str| Some(pass.clone());
        assert_eq!(passes.of("forged", at(1), |_| None), None);
        assert_eq!(passes.of("forged", at(1), |_| None), None, "not kept");
        assert_eq!(passes.of("good", at(1), read), Some(pass.clone()));
        assert_eq!(passes.of("good", at(9), |_| None), Some(pass.clone()));
        assert_eq!(passes.of("good", at(10), read), None, "it has ended");
        for number in 0..=MAX_KNOWN {
            passes.of(&number.to_string(), at(1), read);
            assert!(passes.locked().len() <= MAX_KNOWN);
        }
    }
}
