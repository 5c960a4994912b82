//! Stops what has run past a limit that its owner set. Run time is counted on clocks that cannot be set:
//! between two looks on this process' own, and from the start on by the machine that the session runs on. A
//! session neither expires early nor late because the time of day was put right, or because the server was
//! restarted meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use rules::messages::{NodeReport, ReportedState};
use rules::names::ContainerName;
use rules::placement;
use rules::session::{DesiredState, SessionState};
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;

use crate::controller::pass::ControllerPass;

/// Since when each limited session runs, on the steady clock. Empty after a restart: then no session is stopped
/// before their machine has said how long they have run.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch {
    since: BTreeMap<ContainerName, Duration>,
    /// Until the first limit of those that run; None where none has one.
    pub(crate) next: Option<Duration>,
}

impl Stopwatch {
    /// Takes in how long a machine's sessions have run. What is told late makes them look younger than they
    /// are, so the earliest start that was ever told counts.
    pub(crate) fn hear(&mut self, pass: &ControllerPass, report: &NodeReport, steady: Duration) {
        for sight in &report.containers {
            if !matches!(sight.state, ReportedState::Running { .. }) {
                continue;
            }
            let known = self.since.get(&sight.name).copied();
            let ran = match (sight.ran, known) {
                (Some(ran), _) => ran,
                (None, Some(_)) => continue,
                // A machine of an older version does not say. The row's time is believed, once.
                (None, None) => {
                    let row = pass.world.session(sight.name.session);
                    let Some(started) = row.and_then(|session| session.started_at()) else {
                        continue;
                    };
                    pass.now.millis_since(started)
                }
            };
            let since = (ZERO + steady).saturating_sub(Duration::from_millis(ran));
            let earliest = known.map_or(since, |known| known.min(since));
            self.since.insert(sight.name, earliest);
        }
    }
}

/// Asks every overdue session to stop, with the limit as the reason. `steady` is the
/// time since any fixed moment of this process.
pub(crate) fn limits(pass: &mut ControllerPass, watch: &mut Stopwatch, steady: Duration) {
    let now = pass.now;
    let mut limited = ClusterSnapshot::default();
    let mut running = BTreeMap::new();
    let mut next: Option<Duration> = None;
    for session in &pass.world.sessions {
        let (Some(started), Some((deadline, _))) = (session.started_at(), session.deadline())
        else {
            continue;
        };
        if session.state() != SessionState::Running || session.desired != DesiredState::Run {
            continue;
        }
        let name = session.container();
        let Some(since) = watch.since.get(&name).copied() else {
            continue;
        };
        running.insert(name, since);
        let ran = (ZERO + steady).saturating_sub(since);
        let limit = Duration::from_millis(deadline.millis_since(started));
        if let Some(left) = limit.checked_sub(ran) {
            next = next.into_iter().chain([left]).min();
        }
        let mut session = session.clone();
        let ran = i64::try_from(ran.as_millis()).unwrap_or(i64::MAX);
        session.run_since(Timestamp::from_millis(now.as_millis().saturating_sub(ran)));
        limited.sessions.push(session);
    }
    watch.since = running;
    watch.next = next;
    for (id, _, reason) in placement::overdue(&limited, now) {
        pass.change(id, "limits", |session| {
            session.stop(DesiredState::Stop, reason, now)
        });
    }
}

/// The watch shows this when the process starts: longer than any session may run.
const ZERO: Duration = Duration::from_secs(20 * 366 * 86_400);
