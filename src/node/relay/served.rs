//! One session as its connections know it: what it may open, its places, its pace and what is counted of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::observe::Clock;
use rules::egress::{EgressOutcome, SessionEgress};
use rules::units::Timestamp;
use tokio::sync::{Semaphore, watch};

use super::counts::{CountedRow, Counts};
use super::pace::ConnectionPace;

/// Connections of one session at once. More: one session takes the descriptors and the memory of all. Fewer: a program with
/// many workers waits.
const MAX_CONNECTIONS: usize = 128;

/// Places of all sessions that are kept for those with few connections. More: busy sessions are refused sooner. Fewer: some
/// sessions together leave nothing to the others.
const KEPT_PLACES: usize = 512;

/// Connections of one session that are few.
const FEW_CONNECTIONS: usize = 16;

/// One session, as its connections know it.
#[derive(Debug)]
pub(super) struct ServedSession {
    /// What it may open now; a policy may change it while it is served.
    egress: watch::Sender<Arc<SessionEgress>>,
    pub(super) pace: ConnectionPace,
    pub(super) counts: Counts,
    pub(super) places: Semaphore,
    pub(super) all: Arc<Semaphore>,
    clock: Clock,
    pub(super) lives: AtomicBool,
}

/// One connection while it is open. Dropped, it is told as ended, however it ends.
#[derive(Debug)]
pub(super) struct OpenConnection<'s> {
    served: &'s ServedSession,
    pub(super) row: Arc<CountedRow>,
    began_at: Timestamp,
    /// Bytes of this one.
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        let bytes = (
            self.sent.load(Ordering::Relaxed),
            self.received.load(Ordering::Relaxed),
        );
        let times = (self.began_at, self.served.clock.now());
        self.served.counts.end(&self.row, bytes, times);
    }
}

impl ServedSession {
    /// One that lives; `all`: the places of all sessions.
    pub(super) fn of(egress: SessionEgress, all: Arc<Semaphore>) -> Self {
        Self {
            egress: watch::Sender::new(Arc::new(egress)),
            pace: ConnectionPace::default(),
            counts: Counts::default(),
            places: Semaphore::new(MAX_CONNECTIONS),
            all,
            clock: Clock::system(),
            lives: AtomicBool::new(true),
        }
    }

    /// What it may open now.
    pub(super) fn egress(&self) -> Arc<SessionEgress> {
        Arc::clone(&self.egress.borrow())
    }

    /// Gives it another, and has each of its connections judged by it.
    pub(super) fn judge_by(&self, egress: SessionEgress) {
        self.egress.send_if_modified(|known| {
            let is_other = **known != egress;
            if is_other {
                *known = Arc::new(egress);
            }
            is_other
        });
    }

    /// Waits until what it may open admits a connection no more; for ever where it always does.
    pub(super) async fn refuses(&self, is_admitted: impl Fn(&SessionEgress) -> bool) {
        let mut known = self.egress.subscribe();
        loop {
            let now = Arc::clone(&known.borrow_and_update());
            if !is_admitted(&now) {
                return;
            }
            if known.changed().await.is_err() {
                // It is served no more; its connections end with it.
                return;
            }
        }
    }

    /// Whether it has more than few connections while most places of all sessions are taken. Costs two reads.
    pub(super) fn takes_too_much(&self) -> bool {
        let own = MAX_CONNECTIONS.saturating_sub(self.places.available_permits());
        own >= FEW_CONNECTIONS && self.all.available_permits() < KEPT_PLACES
    }

    /// Counts one connection that was opened.
    pub(super) fn begin(&self, host: &str, port: u16) -> OpenConnection<'_> {
        let began_at = self.clock.now();
        let row = self
            .counts
            .count(host, port, EgressOutcome::Opened, began_at);
        OpenConnection {
            served: self,
            row,
            began_at,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }

    /// Counts one connection that was not opened.
    pub(super) fn count(&self, host: &str, port: u16, outcome: EgressOutcome) -> Arc<CountedRow> {
        self.counts.count(host, port, outcome, self.clock.now())
    }
}

#[cfg(test)]
mod tests {
    use rules::egress::NetworkMode;

    use super::*;

    #[test]
    fn the_last_places_are_for_sessions_with_few_connections() {
        let all = Arc::new(Semaphore::new(KEPT_PLACES + FEW_CONNECTIONS));
        let of = || {
            let egress = SessionEgress {
                mode: NetworkMode::Proxy,
                targets: Vec::new(),
                refused: Vec::new(),
            };
            ServedSession::of(egress, Arc::clone(&all))
        };
        let (busy, other) = (of(), of());
        let mut held = Vec::new();
        for _ in 0..FEW_CONNECTIONS {
            assert!(!busy.takes_too_much());
            held.push((busy.places.try_acquire(), all.try_acquire()));
        }
        assert!(!busy.takes_too_much(), "there are places enough");
        held.push((other.places.try_acquire(), all.try_acquire()));
        assert!(busy.takes_too_much());
        assert!(!other.takes_too_much());
    }
}
