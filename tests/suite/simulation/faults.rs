//! Faults to plant: each is a wrong idea somebody could build in good faith. They live in the
//! simulation's own wrappers around passes, links and machines; the product has no switch for them.

use rules::messages::{ExitRecord, NodeReport, ReportedState};
use rules::names::IncidentId;
use rules::placement::{self, Decision};
use rules::session::{Session, SessionState};
use rules::units::Timestamp;
use rules::world::ClusterSnapshot;

/// What is wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A node that says nothing is taken for one that has nothing.
    SilenceReadAsAbsence,
    /// A session counts as over as soon as its node says that it is stopping it.
    EndedWhileItLives,
    /// The share of a session that is still stopping is given away.
    ShareFreedWhileStopping,
    /// A node starts again what is on its list and not running yet.
    StartRepeatedWhileStarting,
    /// A dead container's session stays "running".
    DeadLeftRunning,
    /// A node believes the assignment that came last, not the newest.
    StaleAssignmentTaken,
    /// The assignment is sent, and then the commit fails.
    SentBeforeCommit,
    /// A launch that is tried again after a lost answer is taken for a new one.
    ReplayDoubled,
    /// A restart keeps the number of the start before it.
    IncarnationReused,
    /// An assignment is put on the link once, and taken for delivered.
    SaidOnlyOnce,
    /// Run time is counted on the clock that people set.
    LimitsByTheWall,
    /// The time for which sessions hold their amounts is counted on the clock that people set.
    UseByTheWall,
    /// A server that was started anew goes by the time of day, for how long a session has run.
    RestartBelievesTheWall,
    /// What a resize takes from a session is given away before its machine has confirmed it.
    ShareFreedUnconfirmed,
    /// A machine confirms what it was told, not what it holds its containers to.
    ConfirmedBeforeDone,
    /// A machine says once what it holds a container to, and takes that for heard.
    ConfirmedOnlyOnce,
    /// A machine whose agent died no longer knows what it holds its containers to.
    GrantsForgotten,
    /// A container that was frozen for holding more than it was granted goes on, because its owner wants
    /// it to run.
    FrozenLetGo,
    /// A machine whose agent died no longer knows whom it warned and froze.
    WatchForgotten,
    /// What the watchdog answered is said once, and taken for heard.
    IncidentToldOnce,
    /// An answer gets its number from whoever hears it, each time anew.
    IncidentNumberedByItsHearer,
    /// Whoever fits now starts now, whoever waits in front.
    PassesWhateverFits,
    /// A running session grows into what is free, whichever session waits in front.
    GrowsIntoWhatIsFree,
    /// Who comes first is served first, whosever it is.
    TurnsIgnored,
    /// A catalog that is older than what a machine obeyed leads it all the same.
    QuarantineIgnored,
    /// A machine whose agent died says that it obeyed nothing yet, until the next assignment.
    ObeyedForgotten,
}

impl Fault {
    pub(super) const ALL: [Self; 26] = [
        Self::SilenceReadAsAbsence,
        Self::EndedWhileItLives,
        Self::ShareFreedWhileStopping,
        Self::StartRepeatedWhileStarting,
        Self::DeadLeftRunning,
        Self::StaleAssignmentTaken,
        Self::SentBeforeCommit,
        Self::ReplayDoubled,
        Self::IncarnationReused,
        Self::SaidOnlyOnce,
        Self::LimitsByTheWall,
        Self::UseByTheWall,
        Self::RestartBelievesTheWall,
        Self::ShareFreedUnconfirmed,
        Self::ConfirmedBeforeDone,
        Self::ConfirmedOnlyOnce,
        Self::GrantsForgotten,
        Self::FrozenLetGo,
        Self::WatchForgotten,
        Self::IncidentToldOnce,
        Self::IncidentNumberedByItsHearer,
        Self::PassesWhateverFits,
        Self::GrowsIntoWhatIsFree,
        Self::TurnsIgnored,
        Self::QuarantineIgnored,
        Self::ObeyedForgotten,
    ];
}

impl Fault {
    /// Words of the promise that has to find it, where it has one of its own.
    pub(super) fn promise(self) -> Option<&'static str> {
        match self {
            Self::PassesWhateverFits => Some("takes what it could get"),
            Self::GrowsIntoWhatIsFree => Some("grows and takes what"),
            Self::UseByTheWall => Some("the ledger says"),
            Self::TurnsIgnored => Some("second that gets a place while"),
            Self::QuarantineIgnored => Some("because an older catalog is served"),
            Self::ObeyedForgotten => Some("though the last report of it is new"),
            _ => None,
        }
    }
}

/// Places as the scheduler chooses them, or as it would with the planted fault.
pub(super) fn decide(
    fault: Option<Fault>,
    world: &ClusterSnapshot,
    now: Timestamp,
) -> Vec<Decision> {
    let mut world = world.clone();
    match fault {
        Some(Fault::ShareFreedWhileStopping) => {
            world
                .sessions
                .retain(|s| s.state() != SessionState::Stopping);
        }
        Some(Fault::ShareFreedUnconfirmed) => {
            for session in &mut world.sessions {
                session.confirm_devices();
            }
        }
        Some(Fault::TurnsIgnored) => {
            let everybody = world.sessions.first().map(|s| s.owner);
            for session in &mut world.sessions {
                session.owner = everybody.unwrap_or(session.owner);
            }
            world.served.clear();
        }
        Some(Fault::PassesWhateverFits) => return whatever_fits(world, now),
        _ => {}
    }
    placement::decide(&world, now)
}

/// Everybody is decided on as if nobody else waited.
fn whatever_fits(mut world: ClusterSnapshot, now: Timestamp) -> Vec<Decision> {
    let mut waiting: Vec<Session> = world.sessions.to_vec();
    waiting.retain(|s| s.state() == SessionState::Pending);
    waiting.sort_by_key(|s| (s.queued_at, s.id));
    world
        .sessions
        .retain(|s| s.state() != SessionState::Pending);
    let mut decisions = Vec::new();
    // Those whom others depend on are there all the while.
    for session in &waiting {
        if session
            .spec
            .depends_on
            .iter()
            .any(|id| waiting.iter().any(|other| other.id == *id))
        {
            continue;
        }
        world.sessions.push(session.clone());
        let decided = placement::decide(&world, now);
        world.sessions.pop();
        for decision in decided {
            if let Decision::Place {
                node,
                devices,
                because,
                ..
            } = &decision
            {
                let mut placed = session.clone();
                placed.place(*node, devices.clone(), because.clone(), now);
                world.sessions.push(placed);
            }
            decisions.push(decision);
        }
    }
    decisions
}

/// A report as the server reads it.
pub(super) fn read(fault: Option<Fault>, mut report: NodeReport) -> NodeReport {
    if fault == Some(Fault::IncidentNumberedByItsHearer) {
        for incident in &mut report.incidents {
            let millis = report.at.as_millis().to_be_bytes();
            let mut heard = [9; 10];
            heard[2..].copy_from_slice(&millis);
            incident.id = IncidentId::make(incident.at, heard);
        }
    }
    for sight in &mut report.containers {
        if fault == Some(Fault::RestartBelievesTheWall) {
            sight.ran = None;
        }
        match (fault, &sight.state) {
            (Some(Fault::EndedWhileItLives), ReportedState::Stopping { .. }) => {
                sight.state = ReportedState::Ended(ExitRecord {
                    exit_code: 143,
                    started_at: None,
                    ended_at: report.at,
                    out_of_memory: false,
                    peak_memory: None,
                });
            }
            (Some(Fault::DeadLeftRunning), state) if state.is_over() => {
                sight.state = ReportedState::Running {
                    since: report.at,
                    paused: false,
                };
            }
            _ => {}
        }
    }
    report
}

/// What `SilenceReadAsAbsence` makes of nodes that it has not heard from.
pub(super) fn invented(world: &ClusterSnapshot, now: Timestamp) -> Vec<NodeReport> {
    world
        .nodes
        .iter()
        .filter(|n| n.is_silent(now))
        .map(|n| NodeReport {
            node: n.id,
            name: n.name.clone(),
            boot: n.boot,
            generation: n.generation,
            state: None,
            at: now,
            capacity: n.capacity.clone(),
            host_environment: n.host_environment,
            containers: Vec::new(),
            problems: Vec::new(),
            device_uses: Vec::new(),
            partition_failures: Vec::new(),
            egress: Vec::new(),
            start_up_failures: Vec::new(),
            stuck_mounts: Vec::new(),
            incidents: Vec::new(),
        })
        .collect()
}
