//! One container of a session: where it is, what it has of devices there, and how far it is.
//! All of a session's begin together, with equal parts of what it asked for.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::outcome::Outcome;
use crate::names::NodeId;
use crate::resources::DeviceShare;
use crate::units::Timestamp;

/// The place of the main container among those of its session.
pub const MAIN: u32 = 0;

/// `main1`, `sub1`, `sub2` …: what the container of that place is called within its session; its host name, too, where the
/// session has several.
pub fn role(index: u32) -> String {
    match index {
        MAIN => "main1".to_owned(),
        index => format!("sub{index}"),
    }
}

/// The place of the container that is called so; None for a text that names none.
pub fn index_of(text: &str) -> Option<u32> {
    let index = match text {
        "main1" => MAIN,
        text => text.strip_prefix("sub")?.parse().ok()?,
    };
    // One spelling each.
    (role(index) == text).then_some(index)
}

/// One container of a session's present start, or of its last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionContainer {
    /// Its place among the containers of its session: `MAIN`, then 1, 2 …
    pub index: u32,
    pub node: NodeId,
    pub devices: Vec<DeviceShare>,
    /// What its node may still hold it to, until the node reported that it holds it to `devices`; empty
    /// once it has.
    pub pending_devices: Vec<DeviceShare>,
    pub state: ContainerProgress,
}

/// How far a container is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContainerProgress {
    /// It has a place; the node has not answered yet.
    Scheduled,
    /// The node is making it.
    Preparing,
    Running {
        started_at: Timestamp,
    },
    Ended {
        /// None where it never ran.
        started_at: Option<Timestamp>,
        /// None where it is unknown.
        exit_code: Option<i32>,
        outcome: Outcome,
    },
}

impl ContainerProgress {
    pub const WORDS: [&str; 4] = ["scheduled", "preparing", "running", "ended"];

    /// The word used in tables.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Scheduled => Self::WORDS[0],
            Self::Preparing => Self::WORDS[1],
            Self::Running { .. } => Self::WORDS[2],
            Self::Ended { .. } => Self::WORDS[3],
        }
    }

    /// The state that a word and its data tell; None where they contradict each other.
    pub fn parse(
        word: &str,
        started_at: Option<Timestamp>,
        exit_code: Option<i32>,
        outcome: Option<Outcome>,
    ) -> Option<Self> {
        match word {
            "scheduled" => Some(Self::Scheduled),
            "preparing" => Some(Self::Preparing),
            "running" => started_at.map(|started_at| Self::Running { started_at }),
            "ended" => Some(Self::Ended {
                started_at,
                exit_code,
                outcome: outcome?,
            }),
            _ => None,
        }
    }

    /// When its first process began; None before.
    pub fn started_at(&self) -> Option<Timestamp> {
        match self {
            Self::Scheduled | Self::Preparing => None,
            Self::Running { started_at } => Some(*started_at),
            Self::Ended { started_at, .. } => *started_at,
        }
    }
}

impl SessionContainer {
    /// A container that just got its place.
    pub fn scheduled(index: u32, node: NodeId, devices: Vec<DeviceShare>) -> Self {
        Self {
            index,
            node,
            devices,
            pending_devices: Vec::new(),
            state: ContainerProgress::Scheduled,
        }
    }

    /// `main1`, `sub1`, `sub2` …: what people call it within its session.
    pub fn role(&self) -> String {
        role(self.index)
    }

    /// True once no process of it lives any more: then nothing of its node is held for it.
    pub fn is_over(&self) -> bool {
        matches!(self.state, ContainerProgress::Ended { .. })
    }

    /// How it ended, and its exit code where one is known; None while it may live.
    pub fn ended_with(&self) -> Option<(Outcome, Option<i32>)> {
        match self.state {
            ContainerProgress::Ended {
                outcome, exit_code, ..
            } => Some((outcome, exit_code)),
            ContainerProgress::Scheduled
            | ContainerProgress::Preparing
            | ContainerProgress::Running { .. } => None,
        }
    }

    /// Whether its end is the end of its session. The main container decides however it ends; another one does
    /// where it failed. What is stopped decides nothing: a decision was made before.
    pub fn decides(&self) -> bool {
        match self.ended_with() {
            Some((Outcome::Failed | Outcome::Refused | Outcome::Lost, _)) => true,
            Some((Outcome::Succeeded, _)) => self.index == MAIN,
            Some((Outcome::Stopped, _)) | None => false,
        }
    }

    /// What is kept for it on devices: its grant, or the larger of old and new while a change of it has
    /// not been confirmed.
    pub fn holds(&self) -> Cow<'_, [DeviceShare]> {
        if self.pending_devices.is_empty() {
            self.devices.as_slice().into()
        } else {
            crate::resources::either(&self.devices, &self.pending_devices).into()
        }
    }

    /// Changes its grant while it runs. What it had stays kept until its node confirms the new one.
    pub fn regrant(&mut self, devices: Vec<DeviceShare>) {
        if devices != self.devices {
            self.pending_devices = self.holds().into_owned();
            self.devices = devices;
        }
    }

    /// Ends it, with this code where one is known. Its node and devices stay written as history.
    pub fn end(&mut self, started_at: Option<Timestamp>, exit_code: Option<i32>, outcome: Outcome) {
        self.state = ContainerProgress::Ended {
            started_at: started_at.or(self.state.started_at()),
            exit_code,
            outcome,
        };
        self.pending_devices = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_back_from_its_word_and_a_contradiction_is_not() {
        let at = Some(Timestamp::from_millis(5));
        for state in [
            ContainerProgress::Scheduled,
            ContainerProgress::Preparing,
            ContainerProgress::Running {
                started_at: Timestamp::from_millis(5),
            },
            ContainerProgress::Ended {
                started_at: at,
                exit_code: Some(3),
                outcome: Outcome::Failed,
            },
        ] {
            let failed = Some(Outcome::Failed);
            let read = ContainerProgress::parse(state.word(), state.started_at(), Some(3), failed);
            assert_eq!(read.as_ref(), Some(&state));
        }
        assert_eq!(ContainerProgress::parse("running", None, None, None), None);
        assert_eq!(ContainerProgress::parse("paused", at, None, None), None);
        assert_eq!(ContainerProgress::parse("ended", at, None, None), None);
    }

    #[test]
    fn containers_are_called_by_their_role() {
        let of = |index| {
            SessionContainer::scheduled(index, NodeId(uuid::Uuid::nil()), Vec::new()).role()
        };
        assert_eq!([of(0), of(1), of(19)], ["main1", "sub1", "sub19"]);
    }
}
