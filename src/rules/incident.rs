//! What happens to a container that takes more of a device's memory or of the disk than it may, and what was done
//! about it. Decides nothing: the node enforces.

use serde::{Deserialize, Serialize};

use crate::names::{ContainerName, IncidentId};
use crate::reason::Reason;
use crate::units::{Bytes, Timestamp};

/// A container held more of a device's memory than it was granted, or filled its machine's disk; or no longer
/// does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryIncident {
    pub id: IncidentId,
    pub at: Timestamp,
    pub container: ContainerName,
    /// The device's number as its machine reports it; of the disk `disk`, or `files` where it runs out of
    /// names before it runs out of bytes.
    pub device: String,
    pub answer: EnforcementAction,
    /// As the driver or the disk counted it, not as the container reports it.
    pub held: Bytes,
    /// What it was granted; of the disk, what is left for everybody.
    pub limit: Bytes,
}

/// What was done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnforcementAction {
    Warned,
    /// All its processes stand still. Only the machine itself lets them go on.
    Frozen,
    /// All its processes were killed.
    Stopped,
    /// It holds no more than it may again.
    Cleared,
    /// All its processes stand still, for the disk's sake. Only the machine itself lets them go on.
    Paused,
    /// There is room on the disk again.
    Resumed,
}

impl EnforcementAction {
    pub const ALL: [Self; 6] = [
        Self::Warned,
        Self::Frozen,
        Self::Stopped,
        Self::Cleared,
        Self::Paused,
        Self::Resumed,
    ];

    /// The word used in codes and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Warned => "warned",
            Self::Frozen => "frozen",
            Self::Stopped => "stopped",
            Self::Cleared => "cleared",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
        }
    }

    /// What it is about: the first word of codes.
    pub fn subject(self) -> &'static str {
        match self {
            Self::Warned | Self::Frozen | Self::Stopped | Self::Cleared => "gpu",
            Self::Paused | Self::Resumed => "disk",
        }
    }
}

impl MemoryIncident {
    /// What people read: in a session's reason, in its events.
    pub fn reason(&self) -> Reason {
        let (held, limit) = (self.held, self.limit);
        let text = match self.answer {
            EnforcementAction::Warned => format!(
                "It holds {held} of GPU memory where it was granted {limit}. It is frozen and then stopped unless it lets go."
            ),
            EnforcementAction::Frozen => format!(
                "It was frozen: it holds {held} of GPU memory where it was granted {limit}, and did not let go."
            ),
            EnforcementAction::Stopped => format!(
                "It was stopped: it held {held} of GPU memory where it was granted {limit}."
            ),
            EnforcementAction::Cleared => {
                format!("It holds no more GPU memory than the {limit} it was granted again.")
            }
            EnforcementAction::Paused if self.device == "files" => format!(
                "It was paused: it makes files, and the machine's disk has room for few more. It goes on by itself once there is room; what it wrote, {held}, goes when it is stopped."
            ),
            EnforcementAction::Paused => format!(
                "It was paused: it writes, and the machine's disk has {limit} left. It goes on by itself once there is room; what it wrote, {held}, goes when it is stopped."
            ),
            EnforcementAction::Resumed => {
                format!("It goes on: the machine's disk has {limit} of room again.")
            }
        };
        let code = match (self.answer, self.device.as_str()) {
            (EnforcementAction::Paused, "files") => "disk.files-paused".to_owned(),
            (EnforcementAction::Paused | EnforcementAction::Resumed, _) => {
                format!("disk.{}", self.answer.word())
            }
            (answer, _) => format!("gpu.over-limit-{}", answer.word()),
        };
        Reason::new(code, text)
            .with("held", held)
            .with("limit", limit)
    }
}
