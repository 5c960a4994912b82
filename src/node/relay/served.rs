//! One session as its connections know it: what it may open, its places, its pace and what is counted of it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base::observe::Clock;
use rules::egress::{EgressOutcome, SessionEgress};
use tokio::sync::Semaphore;

use super::counts::{CountedRow, Counts};
use super::pace::Pace;

/// Connections of one session at once. More: one session takes the descriptors and the memory of all. Fewer: a program with
/// many workers waits.
const MAX_CONNECTIONS: usize = 128;

/// One session, as its connections know it.
#[derive(Debug)]
pub(super) struct ServedSession {
    pub(super) egress: SessionEgress,
    pub(super) pace: Pace,
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
            pace: Pace::default(),
            counts: Counts::default(),
            places: Semaphore::new(MAX_CONNECTIONS),
            all,
            clock: Clock::system(),
            lives: AtomicBool::new(true),
        }
    }

    /// Counts one connection.
    pub(super) fn count(&self, host: &str, port: u16, outcome: EgressOutcome) -> Arc<CountedRow> {
        self.counts.count(host, port, outcome, self.clock.now())
    }
}
