//! One session as its connections know it: what it may open, its places, its pace and what is counted of it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base::observe::Clock;
use rules::egress::{EgressOutcome, SessionEgress};
use tokio::sync::Semaphore;

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
    pub(super) egress: SessionEgress,
    pub(super) pace: ConnectionPace,
    pub(super) counts: Counts,
    pub(super) places: Semaphore,
    pub(super) all: Arc<Semaphore>,
    clock: Clock,
    pub(super) lives: AtomicBool,
}

impl ServedSession {
    /// One that lives; `all`: the places of all sessions.
    pub(super) fn of(egress: SessionEgress, all: Arc<Semaphore>) -> Self {
        Self {
            egress,
            pace: ConnectionPace::default(),
            counts: Counts::default(),
            places: Semaphore::new(MAX_CONNECTIONS),
            all,
            clock: Clock::system(),
            lives: AtomicBool::new(true),
        }
    }

    /// Whether it has more than few connections while most places of all sessions are taken. Costs two reads.
    pub(super) fn takes_too_much(&self) -> bool {
        let own = MAX_CONNECTIONS.saturating_sub(self.places.available_permits());
        own >= FEW_CONNECTIONS && self.all.available_permits() < KEPT_PLACES
    }

    /// Counts one connection.
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
