//! Runs what must not be broken off to its end, also when the request that asked for it is gone. Never
//! decides what that is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rules::names::UserId;
use tokio::sync::Semaphore;

/// Acts that run at once; the next waits, and may still be given up. Higher: a flood of requests whose
/// clients went away holds more memory. Lower: a class that acts at once waits.
const MAX_ACTS: usize = 256;
/// Acts of one user that run at once; the next of theirs waits, and takes no place of others meanwhile. Higher:
/// fewer users take all places together. Lower: a script that acts in parallel waits.
const MAX_ACTS_PER_USER: usize = 32;

/// What was begun and has not ended.
#[derive(Debug)]
pub struct Acts {
    room: Arc<Semaphore>,
    /// The own room of each user who acts or waits.
    own: Mutex<BTreeMap<UserId, Arc<Semaphore>>>,
}

impl Default for Acts {
    fn default() -> Self {
        Self {
            room: Arc::new(Semaphore::new(MAX_ACTS)),
            own: Mutex::default(),
        }
    }
}

impl Acts {
    /// Runs `act` of `user` to its end and gives what it gave. Given up before there was room for it, it never
    /// begins; given up later, it goes on. Panics where the act panics. Costs a visit of each user who acts.
    pub async fn complete<T: Send + 'static>(
        &self,
        user: UserId,
        act: impl Future<Output = T> + Send + 'static,
    ) -> T {
        // The own room first: who waits there holds no place of all.
        let places = (
            self.room_of(user).acquire_owned().await,
            Arc::clone(&self.room).acquire_owned().await,
        );
        let running = tokio::spawn(async move {
            // They are given back when the act has ended, however it did.
            let _places = places;
            act.await
        });
        match running.await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The process leaves, and who waits here with it.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// The room of one user. A room without acts and waiters is dropped.
    fn room_of(&self, user: UserId) -> Arc<Semaphore> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.retain(|_, room| Arc::strong_count(room) > 1);
        let room = own
            .entry(user)
            .or_insert_with(|| Arc::new(Semaphore::new(MAX_ACTS_PER_USER)));
        Arc::clone(room)
    }

    /// Waits until everything that was begun has ended.
    pub async fn ended(&self) {
        let all = u32::try_from(MAX_ACTS).unwrap_or(u32::MAX);
        // It is never closed.
        let _ = self.room.acquire_many(all).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    fn user(number: usize) -> UserId {
        UserId(uuid::Uuid::from_u128(number as u128))
    }

    /// Begins so many acts that wait for the gate, of whom `of` says; each caller gives up at once.
    async fn begin(acts: &Acts, many: usize, of: impl Fn(usize) -> UserId, gate: &Gate) {
        for number in 0..many {
            let gate = gate.clone();
            let act = acts.complete(of(number), async move {
                gate.begun.fetch_add(1, Ordering::SeqCst);
                let _ = gate.open.acquire().await;
                gate.done.fetch_add(1, Ordering::SeqCst);
            });
            let given_up = tokio::time::timeout(Duration::ZERO, act).await;
            assert!(given_up.is_err(), "the gate is shut");
        }
        // What was given leave runs until it waits.
        tokio::task::yield_now().await;
    }

    #[derive(Clone)]
    struct Gate {
        begun: Arc<AtomicUsize>,
        done: Arc<AtomicUsize>,
        open: Arc<Semaphore>,
    }

    impl Gate {
        fn shut() -> Self {
            Self {
                begun: Arc::default(),
                done: Arc::default(),
                open: Arc::new(Semaphore::new(0)),
            }
        }

        fn begun(&self) -> usize {
            self.begun.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn acts_go_on_without_their_callers_and_so_many_at_once() {
        let (acts, gate) = (Acts::default(), Gate::shut());
        begin(&acts, MAX_ACTS + 1, user, &gate).await;
        gate.open.add_permits(1);
        acts.ended().await;
        let done = gate.done.load(Ordering::SeqCst);
        assert_eq!((gate.begun(), done), (MAX_ACTS, MAX_ACTS));
    }

    #[tokio::test]
    async fn one_user_has_a_share_of_the_places_and_others_theirs() {
        let (acts, gate) = (Acts::default(), Gate::shut());
        begin(&acts, MAX_ACTS, |_| user(1), &gate).await;
        assert_eq!(gate.begun(), MAX_ACTS_PER_USER);
        begin(&acts, 1, |_| user(2), &gate).await;
        assert_eq!(gate.begun(), MAX_ACTS_PER_USER + 1);
        gate.open.add_permits(1);
        acts.ended().await;
        // Whose acts have ended is forgotten.
        drop(acts.room_of(user(3)));
        assert_eq!(acts.own.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_panic_of_an_act_is_its_callers_and_leaves_room() {
        let acts = Arc::new(Acts::default());
        let caller = tokio::spawn({
            let acts = Arc::clone(&acts);
            async move { acts.complete(user(1), async { panic!("planted") }).await }
        });
        let caller: Result<(), _> = caller.await;
        assert!(caller.expect_err("it panicked").is_panic());
        acts.ended().await;
        assert_eq!(acts.complete(user(1), async { 7 }).await, 7);
    }
}
