//! Notices that the two directions of a channel wait for each other. `russh` has one line for all channels of a connection:
//! behind a program that does not read, it stands still, and with it the client's word that it took output. A program that
//! waits for this word reads nothing, so neither would ever go on. Ends nothing: it tells.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// How long both directions may wait without one piece. Longer: a user looks at a command that says nothing. Shorter: a
/// command is ended whose output is read page by page.
const STANDSTILL: Duration = Duration::from_secs(60);

/// How the two directions of one channel get on.
#[derive(Default)]
pub(super) struct BothWays {
    pieces: AtomicU64,
    inward: AtomicBool,
    outward: AtomicBool,
}

impl BothWays {
    /// Does one step towards the program.
    pub(super) async fn inward<T>(&self, step: impl Future<Output = T>) -> T {
        self.step(&self.inward, step).await
    }

    /// Does one step towards the client.
    pub(super) async fn outward<T>(&self, step: impl Future<Output = T>) -> T {
        self.step(&self.outward, step).await
    }

    async fn step<T>(&self, waits: &AtomicBool, step: impl Future<Output = T>) -> T {
        waits.store(true, Ordering::Relaxed);
        let done = step.await;
        waits.store(false, Ordering::Relaxed);
        self.pieces.fetch_add(1, Ordering::Relaxed);
        done
    }

    /// Ready once both have waited for too long.
    pub(super) async fn stand_still(&self) {
        self.stand_still_for(STANDSTILL).await;
    }

    async fn stand_still_for(&self, time: Duration) {
        loop {
            let before = self.pieces.load(Ordering::Relaxed);
            sleep(time).await;
            let both = self.inward.load(Ordering::Relaxed) && self.outward.load(Ordering::Relaxed);
            if both && self.pieces.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::timeout;

    use super::*;

    const TIME: Duration = Duration::from_millis(20);
    /// Longer than anything here takes on a loaded machine; only a hang reaches it.
    const HANG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn it_tells_when_both_directions_wait_and_not_when_one_does() {
        let ways = BothWays::default();
        tokio::select! {
            () = ways.inward(pending()) => unreachable!("it waits for ever"),
            () = ways.stand_still_for(TIME) => panic!("one direction waits alone"),
            () = sleep(10 * TIME) => {}
        }
        let told = async {
            tokio::select! {
                () = ways.inward(pending()) => unreachable!("it waits for ever"),
                () = ways.outward(pending()) => unreachable!("it waits for ever"),
                () = ways.stand_still_for(TIME) => {}
            }
        };
        timeout(HANG, told).await.expect("both wait");
    }
}
