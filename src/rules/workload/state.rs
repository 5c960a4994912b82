//! The states of a session's life, what each keeps, and which may follow which.
//! Never decides what a report means (`progress`).

use serde::{Deserialize, Serialize};

use super::container::{ContainerProgress, SessionContainer};
use super::outcome::Outcome;
use crate::units::Timestamp;

/// Where a session stands. The order is the order of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// Accepted; no place yet.
    Pending,
    /// Has a place; the node has not answered yet.
    Scheduled,
    /// The node is making its container.
    Preparing,
    Running,
    /// Told to end; its container may still live and still holds its resources.
    Stopping,
    Ended,
}

impl SessionState {
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Scheduled,
        Self::Preparing,
        Self::Running,
        Self::Stopping,
        Self::Ended,
    ];

    /// The word used in tables, JSON and pages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Scheduled => "scheduled",
            Self::Preparing => "preparing",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Ended => "ended",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.word() == word)
    }

    /// True while a container may exist, so that the resources are held.
    pub fn holds_resources(self) -> bool {
        !matches!(self, Self::Pending | Self::Ended)
    }

    /// True where `to` may follow directly. `Ended → Pending` is a restart.
    pub fn may_become(self, to: Self) -> bool {
        match self {
            Self::Pending => matches!(to, Self::Scheduled | Self::Ended),
            Self::Scheduled => matches!(
                to,
                Self::Preparing | Self::Running | Self::Stopping | Self::Ended
            ),
            Self::Preparing => matches!(to, Self::Running | Self::Stopping | Self::Ended),
            Self::Running => matches!(to, Self::Stopping | Self::Ended),
            Self::Stopping => matches!(to, Self::Ended),
            Self::Ended => matches!(to, Self::Pending),
        }
    }
}

/// What the owner wants of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DesiredState {
    Run,
    /// End it: TERM, then KILL when the grace is over.
    Stop,
    /// End it at once.
    Kill,
}

impl DesiredState {
    pub fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Stop => "stop",
            Self::Kill => "kill",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        [Self::Run, Self::Stop, Self::Kill]
            .into_iter()
            .find(|w| w.word() == word)
    }
}

/// Where a session stands, with what is known in that state and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lifecycle {
    /// Accepted; it has no place, and no container.
    Pending,
    /// It has a place. How far it is, its containers say.
    Placed(PlacedSession),
    Ended(EndedSession),
}

/// What is known of a session that has a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedSession {
    pub scheduled_at: Timestamp,
    /// Since when it is to end; None while it is wanted.
    pub stopping_at: Option<Timestamp>,
    /// The main one first, at least that one.
    pub containers: Vec<SessionContainer>,
}

/// What is known of a session that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedSession {
    pub outcome: Outcome,
    /// 0–255, signals as 128 + number; None where the end is unknown or there was no container.
    pub exit_code: Option<i32>,
    pub ended_at: Timestamp,
    pub stopping_at: Option<Timestamp>,
    /// When it got its place and the containers it had there; None where it never got one.
    pub last: Option<LastPlace>,
}

/// The place that an ended session had: history, nothing is held there any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastPlace {
    pub scheduled_at: Timestamp,
    pub containers: Vec<SessionContainer>,
}

impl Lifecycle {
    /// The state in a word.
    pub fn state(&self) -> SessionState {
        match self {
            Self::Pending => SessionState::Pending,
            Self::Placed(placed) if placed.stopping_at.is_some() => SessionState::Stopping,
            Self::Placed(placed) => combined(&placed.containers),
            Self::Ended(_) => SessionState::Ended,
        }
    }

    /// The containers it has, or had last; the main one first, empty before it got a place.
    pub fn containers(&self) -> &[SessionContainer] {
        match self {
            Self::Pending => &[],
            Self::Placed(placed) => &placed.containers,
            Self::Ended(end) => end.last.as_ref().map_or(&[], |last| &last.containers),
        }
    }
}

/// How far a session is whose containers are so far: it runs once all of them have started.
pub fn combined(containers: &[SessionContainer]) -> SessionState {
    let started = |c: &SessionContainer| {
        matches!(
            c.state,
            ContainerProgress::Running { .. } | ContainerProgress::Ended { .. }
        )
    };
    if containers.iter().all(started) {
        SessionState::Running
    } else if containers
        .iter()
        .all(|c| c.state == ContainerProgress::Scheduled)
    {
        SessionState::Scheduled
    } else {
        SessionState::Preparing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_restart_leaves_the_end() {
        for to in SessionState::ALL {
            assert_eq!(
                SessionState::Ended.may_become(to),
                to == SessionState::Pending
            );
        }
    }

    #[test]
    fn no_state_follows_itself() {
        for state in SessionState::ALL {
            assert!(!state.may_become(state));
        }
    }

    #[test]
    fn a_session_runs_once_all_its_containers_have_started() {
        use ContainerProgress::{Ended, Preparing, Running, Scheduled};
        let at = Timestamp::from_millis(1);
        let running = Running { started_at: at };
        let ended = Ended {
            started_at: Some(at),
            exit_code: Some(0),
            outcome: Outcome::Succeeded,
        };
        for (states, told) in [
            (vec![Scheduled], SessionState::Scheduled),
            (vec![Preparing], SessionState::Preparing),
            (vec![running.clone()], SessionState::Running),
            (vec![Scheduled, Scheduled], SessionState::Scheduled),
            (vec![running.clone(), Scheduled], SessionState::Preparing),
            (vec![Scheduled, Preparing], SessionState::Preparing),
            (
                vec![running.clone(), running.clone()],
                SessionState::Running,
            ),
            (vec![running, ended], SessionState::Running),
        ] {
            let containers: Vec<SessionContainer> = (0..)
                .zip(states)
                .map(|(index, state)| SessionContainer {
                    state,
                    ..SessionContainer::scheduled(
                        index,
                        crate::names::NodeId(uuid::Uuid::nil()),
                        Vec::new(),
                    )
                })
                .collect();
            assert_eq!(combined(&containers), told, "{containers:?}");
        }
    }
}
