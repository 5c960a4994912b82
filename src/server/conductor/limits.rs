//! Stops what has run past a limit that its owner set. Run time is counted on a clock that nobody can
//! set: a session neither expires early nor late because the time of day was put right.

use std::collections::BTreeMap;
use std::time::Duration;

use rules::names::ContainerName;
use rules::placement;
use rules::session::{Phase, Wish};
use rules::units::Timestamp;
use rules::world::World;

use crate::conductor::turn::Turn;

/// Since when each limited session runs, on the steady clock. Empty after a restart; then the rows'
/// times are believed once, for there is nothing better.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    since: BTreeMap<ContainerName, Duration>,
    /// Until the first limit of those that run; None where none has one.
    pub(crate) next: Option<Duration>,
}

/// Turns the wish of every overdue session to stop, with the limit as the reason. `steady` is the
/// time since any fixed moment of this process.
pub(crate) fn limits(turn: &mut Turn, watch: &mut Stopwatch, steady: Duration) {
    let now = turn.now;
    let mut limited = World::default();
    let mut running = BTreeMap::new();
    let mut next: Option<Duration> = None;
    for session in &turn.world.sessions {
        let (Some(started), Some((deadline, _))) = (session.started_at, session.deadline()) else {
            continue;
        };
        if session.phase != Phase::Running || session.wish != Wish::Run {
            continue;
        }
        let name = session.container();
        let since = watch.since.get(&name).copied().unwrap_or_else(|| {
            (ZERO + steady).saturating_sub(Duration::from_millis(now.millis_since(started)))
        });
        running.insert(name, since);
        let ran = (ZERO + steady).saturating_sub(since);
        let limit = Duration::from_millis(deadline.millis_since(started));
        if let Some(left) = limit.checked_sub(ran) {
            next = next.into_iter().chain([left]).min();
        }
        let mut session = session.clone();
        let ran = i64::try_from(ran.as_millis()).unwrap_or(i64::MAX);
        session.started_at = Some(Timestamp::from_millis(now.as_millis().saturating_sub(ran)));
        limited.sessions.push(session);
    }
    watch.since = running;
    watch.next = next;
    for (id, _, reason) in placement::overdue(&limited, now) {
        turn.change(id, "limits", |session| {
            session.stop(Wish::Stop, reason, now)
        });
    }
}

/// The watch shows this when the process starts: longer than any session may run.
const ZERO: Duration = Duration::from_secs(20 * 366 * 86_400);
