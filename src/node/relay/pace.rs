//! How fast one session's bytes and connections pass. Holds nothing back for another session.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Bytes a second of all connections of one session, both ways together: a network card of 1 Gbit/s.
const BYTES_EACH_SECOND: u64 = 125_000_000;

/// Connections a second of one session. What comes faster waits.
const TURNS_EACH_SECOND: u64 = 100;

/// What may pass at once before it has to wait.
const BURST: Duration = Duration::from_millis(200);

/// When the next byte, and the next connection, of a session may pass.
#[derive(Debug, Default)]
pub(super) struct ConnectionPace {
    bytes: Mutex<Option<Instant>>,
    turns: Mutex<Option<Instant>>,
}

impl ConnectionPace {
    /// Waits until a connection may be taken.
    pub(super) async fn turn(&self) {
        wait(
            &self.turns,
            Duration::from_nanos(1_000_000_000 / TURNS_EACH_SECOND),
        )
        .await;
    }

    /// Waits until so many bytes may pass.
    pub(super) async fn bytes(&self, count: usize) {
        let nanos = (count as u64).saturating_mul(1_000_000_000) / BYTES_EACH_SECOND;
        wait(&self.bytes, Duration::from_nanos(nanos)).await;
    }
}

async fn wait(next: &Mutex<Option<Instant>>, takes: Duration) {
    let now = Instant::now();
    let from = {
        let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
        let from = next.map_or(now, |next| next.max(now));
        *next = Some(from + takes);
        from
    };
    if from > now + BURST {
        tokio::time::sleep_until(from).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenth of a second's bytes pass at once; what is more than the burst waits its time.
    #[tokio::test]
    async fn bytes_beyond_the_burst_wait() {
        let pace = ConnectionPace::default();
        let part = usize::try_from(BYTES_EACH_SECOND / 10).expect("it fits");
        let begun = Instant::now();
        for _ in 0..3 {
            pace.bytes(part).await;
        }
        assert!(
            begun.elapsed() < Duration::from_millis(150),
            "{:?}",
            begun.elapsed()
        );
        pace.bytes(part).await;
        pace.bytes(part).await;
        assert!(
            begun.elapsed() >= Duration::from_millis(300),
            "{:?}",
            begun.elapsed()
        );
    }
}
