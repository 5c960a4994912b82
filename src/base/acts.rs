//! Runs what must not be broken off to its end, also when the request that asked for it is gone. Never
//! decides what that is.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Acts that run at once; the next waits, and may still be given up. Higher: a flood of requests whose
/// clients went away holds more memory. Lower: a class that acts at once waits.
const MAX_ACTS: usize = 256;

/// What was begun and has not ended.
#[derive(Debug)]
pub struct Acts {
    room: Arc<Semaphore>,
}

impl Default for Acts {
    fn default() -> Self {
        Self {
            room: Arc::new(Semaphore::new(MAX_ACTS)),
        }
    }
}

impl Acts {
    /// Runs `act` to its end and gives what it gave. Given up before there was room for it, it never begins;
    /// given up later, it goes on. Panics where the act panics.
    pub async fn complete<T: Send + 'static>(
        &self,
        act: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let place = Arc::clone(&self.room).acquire_owned().await;
        let running = tokio::spawn(async move {
            // It is given back when the act has ended, however it did.
            let _place = place;
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

    #[tokio::test]
    async fn acts_go_on_without_their_callers_and_so_many_at_once() {
        let acts = Acts::default();
        let (begun, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let gate = Arc::new(Semaphore::new(0));
        for _ in 0..=MAX_ACTS {
            let (begun, done, gate) = (Arc::clone(&begun), Arc::clone(&done), Arc::clone(&gate));
            let act = acts.complete(async move {
                begun.fetch_add(1, Ordering::SeqCst);
                let _ = gate.acquire().await;
                done.fetch_add(1, Ordering::SeqCst);
            });
            let given_up = tokio::time::timeout(Duration::ZERO, act).await;
            assert!(given_up.is_err(), "the gate is shut");
        }
        gate.add_permits(1);
        acts.ended().await;
        let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
        assert_eq!((count(&begun), count(&done)), (MAX_ACTS, MAX_ACTS));
    }

    #[tokio::test]
    async fn a_panic_of_an_act_is_its_callers_and_leaves_room() {
        let acts = Arc::new(Acts::default());
        let caller = tokio::spawn({
            let acts = Arc::clone(&acts);
            async move { acts.complete(async { panic!("planted") }).await }
        });
        let caller: Result<(), _> = caller.await;
        assert!(caller.expect_err("it panicked").is_panic());
        acts.ended().await;
        assert_eq!(acts.complete(async { 7 }).await, 7);
    }
}
