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
pub(crate) struct Stopwatch(BTreeMap<ContainerName, Duration>);

/// Turns the wish of every overdue session to stop, with the limit as the reason. `steady` is the
/// time since any fixed moment of this process.
pub(crate) fn limits(turn: &mut Turn, watch: &mut Stopwatch, steady: Duration) {
    let now = turn.now;
    let mut limited = World::default();
    let mut running = BTreeMap::new();
    for session in &turn.world.sessions {
        let (Some(started), Some(_)) = (session.started_at, session.deadline()) else {
            continue;
        };
        if session.phase != Phase::Running || session.wish != Wish::Run {
            continue;
        }
        let name = session.container();
        let since = watch.0.get(&name).copied().unwrap_or_else(|| {
            (ZERO + steady).saturating_sub(Duration::from_millis(now.millis_since(started)))
        });
        running.insert(name, since);
        let ran = (ZERO + steady).saturating_sub(since);
        let mut session = session.clone();
        let ran = i64::try_from(ran.as_millis()).unwrap_or(i64::MAX);
        session.started_at = Some(Timestamp::from_millis(now.as_millis().saturating_sub(ran)));
        limited.sessions.push(session);
    }
    watch.0 = running;
    for (id, _, reason) in placement::overdue(&limited, now) {
        turn.change(id, "limits", |session| {
            session.stop(Wish::Stop, reason, now)
        });
    }
}

/// The watch shows this when the process starts: longer than any session may run.
const ZERO: Duration = Duration::from_secs(20 * 366 * 86_400);
