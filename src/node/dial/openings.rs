//! How many ways into sessions are opened at once: each holds a thread until the session answers, and a
//! session may take as long as it likes. Never opens one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rules::names::ContainerName;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Ways into one session that are opened at once; the others wait without a thread. Higher: a session that
/// does not answer holds more threads. Lower: a page with many connections opens them slowly.
const MAX_PER_SESSION: usize = 8;
/// Ways into all sessions that are opened at once. The runtime has 512 threads for what blocks: higher, and
/// sign-ins and lists wait for silent sessions; lower, and a class that opens its terminals together does.
const MAX_OPENINGS: usize = 256;

/// Whose turn it is.
pub(crate) struct Openings {
    sessions: Mutex<HashMap<ContainerName, Weak<Semaphore>>>,
    all: Arc<Semaphore>,
}

/// Two places, given back when it is dropped.
pub(super) struct OpeningPermit {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for Openings {
    fn default() -> Self {
        Self {
            sessions: Mutex::default(),
            all: Arc::new(Semaphore::new(MAX_OPENINGS)),
        }
    }
}

impl Openings {
    /// Waits for a place among those of this session, then for one among all. To be kept until the thread that
    /// opens is free again, also where the request is gone.
    pub(super) async fn turn(&self, session: ContainerName) -> OpeningPermit {
        let own = self.own(session).acquire_owned().await;
        let own = own.expect("it is never closed");
        let all = Arc::clone(&self.all).acquire_owned().await;
        OpeningPermit {
            _own: own,
            _all: all.expect("it is never closed"),
        }
    }

    fn own(&self, session: ContainerName) -> Arc<Semaphore> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = sessions.get(&session).and_then(Weak::upgrade) {
            return known;
        }
        // Each turn and each wait keeps its own alive.
        sessions.retain(|_, known| known.strong_count() > 0);
        let own = Arc::new(Semaphore::new(MAX_PER_SESSION));
        sessions.insert(session, Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use rules::names::SessionId;

    use super::*;

    fn session(number: u128) -> ContainerName {
        ContainerName {
            session: SessionId(uuid::Uuid::from_u128(number)),
            incarnation: 1,
            index: 0,
        }
    }

    /// A turn that is there at once.
    fn at_once(openings: &Openings, number: u128) -> Option<OpeningPermit> {
        let turn = pin!(openings.turn(session(number)));
        match turn.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_silent_session_holds_few_threads_and_all_of_them_half() {
        let openings = Openings::default();
        let mut held: Vec<OpeningPermit> = (0..8)
            .map(|_| at_once(&openings, 1).expect("free"))
            .collect();
        assert!(at_once(&openings, 1).is_none(), "a ninth of one session");
        held.pop();
        held.push(at_once(&openings, 1).expect("given back"));
        for number in 2..=32 {
            held.extend((0..8).map(|_| at_once(&openings, number).expect("free")));
        }
        assert_eq!(held.len(), 256);
        assert!(at_once(&openings, 33).is_none(), "one more of another");
        held.clear();
        assert!(at_once(&openings, 33).is_some());
        // What is over is forgotten.
        assert_eq!(openings.sessions.lock().expect("whole").len(), 1);
    }
}
