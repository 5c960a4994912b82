//! When waiting sessions likely start, made beside the pages and never by one: who looks at the queue takes what was made
//! last, and has it made again. Decides nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rules::names::SessionId;
use rules::placement::explain::LikelyOutlook;
use rules::placement::{self, LikelyStart};
use rules::run_history::RunHistory;
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;
use tokio::sync::{Notify, oneshot};

use crate::{Failure, Server, ServerFault};

/// Between two walks, and as long as the last one took. Longer: a new session is told of its start late. Shorter: a long
/// queue keeps a core busy.
const BETWEEN_WALKS: Duration = Duration::from_secs(60);
/// Milliseconds for which likely starts are told. Longer: the first one who looks after a quiet hour is told of a queue that is
/// gone. Shorter: none is told while a long queue is walked.
const TOLD_FOR: u64 = 180_000;
/// Milliseconds for which what ended is not read again.
const HISTORY_FOR: u64 = 300_000;
/// How much nicer a walk is than the threads that answer.
const NICER: i32 = 15;
/// What is under way, for a fault of ours.
const WORK: &str = "guess likely starts";

/// The newest likely starts of a server.
#[derive(Debug, Default)]
pub(crate) struct LikelyForecast {
    newest: Mutex<Option<(Timestamp, Arc<LikelyStarts>)>>,
    looked: Notify,
}

/// The likely starts of one moment.
#[derive(Debug, Default)]
pub(crate) struct LikelyStarts(BTreeMap<SessionId, LikelyStart>);

impl LikelyStarts {
    /// In words of now; None where too little is known.
    pub(crate) fn of(&self, session: SessionId, now: Timestamp) -> Option<LikelyOutlook> {
        let start = self.0.get(&session)?;
        Some(LikelyOutlook::of(*start, now))
    }
}

impl LikelyForecast {
    /// The last that were made, none where they are too old; and has new ones made. Costs nothing.
    pub(crate) fn newest(&self, now: Timestamp) -> Arc<LikelyStarts> {
        self.looked.notify_one();
        let newest = self.locked();
        let told = newest
            .as_ref()
            .filter(|(at, _)| !is_old(*at, now, TOLD_FOR));
        told.map(|(_, starts)| Arc::clone(starts))
            .unwrap_or_default()
    }

    fn locked(&self) -> MutexGuard<'_, Option<(Timestamp, Arc<LikelyStarts>)>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether something of that moment is older than so many milliseconds, or of a clock that was set back.
fn is_old(at: Timestamp, now: Timestamp, most: u64) -> bool {
    at > now || now.millis_since(at) >= most
}

/// Makes likely starts while users look at the queue, one walk after the other. Runs until it is dropped; a walk that fails
/// is logged, and the next look makes another.
pub(crate) async fn keep(server: Server) {
    let mut history = None;
    loop {
        server.snapshots().likely.looked.notified().await;
        let begun = tokio::time::Instant::now();
        if let Err(failure) = make(&server, &mut history).await {
            let error = base::observe::chain(&failure);
            tracing::warn!(%error, "likely starts were not made");
        }
        tokio::time::sleep(BETWEEN_WALKS.max(begun.elapsed())).await;
    }
}

/// Makes the likely starts of now. `history`: what ended, and when that was read. Costs a thread of its own, which may take
/// seconds where the queue is long.
///
/// Errors: those of the catalog, and where the thread cannot start or panics.
pub(crate) async fn make(
    server: &Server,
    history: &mut Option<(Timestamp, Arc<RunHistory>)>,
) -> Result<(), Failure> {
    let now = server.clock().now();
    if history
        .as_ref()
        .is_none_or(|(at, _)| is_old(*at, now, HISTORY_FOR))
    {
        let read = server
            .catalog()
            .read("read what runs took", move |view| view.run_history(now));
        *history = Some((now, Arc::new(read.await?)));
    }
    let Some((_, known)) = history.as_ref() else {
        return Ok(());
    };
    let world = server.snapshot().await?.world.clone();
    let starts = walked(world, Arc::clone(known), now).await?;
    *server.snapshots().likely.locked() = Some((now, Arc::new(LikelyStarts(starts))));
    Ok(())
}

/// A thread of its own: those of the runtime run before sessions, and cannot be nicer for a while. Where nothing waits, it
/// costs nothing.
async fn walked(
    world: ClusterSnapshot,
    history: Arc<RunHistory>,
    now: Timestamp,
) -> Result<BTreeMap<SessionId, LikelyStart>, Failure> {
    if !world.sessions.iter().any(|session| session.is_pending()) {
        return Ok(BTreeMap::new());
    }
    let (told, answer) = oneshot::channel();
    let begun = thread::Builder::new()
        .name("likely-starts".to_owned())
        .spawn(move || {
            let _ = rustix::process::nice(NICER);
            // The server may be gone.
            let _ = told.send(placement::likely_starts(&world, &history, now));
        });
    begun.map_err(|error| ServerFault::new(WORK, error))?;
    let starts = answer
        .await
        .map_err(|ended| ServerFault::new(WORK, ended))?;
    Ok(starts)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn likely_starts_are_told_for_some_minutes_and_no_longer() {
        let forecast = LikelyForecast::default();
        let (id, at) = (SessionId(Uuid::from_u128(7)), Timestamp::from_millis(1_000));
        let told = |seconds: u64| {
            let now = at.plus_seconds(seconds);
            forecast.newest(now).of(id, now)
        };
        assert_eq!(told(0), None, "none is made by who looks");
        let start = LikelyStart {
            at: at.plus_seconds(90),
            late: None,
        };
        let starts = LikelyStarts(BTreeMap::from([(id, start)]));
        *forecast.locked() = Some((at, Arc::new(starts)));
        assert_eq!(told(30).map(|likely| likely.seconds), Some(60));
        // What did not come about is not told as of the past.
        assert_eq!(told(100).map(|likely| likely.seconds), Some(0));
        assert_eq!(told(180), None);
    }
}
