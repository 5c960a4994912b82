//! What happens to a container that takes more of a device's memory or of the disk than it may, and what was done
//! about it. Decides nothing: the node enforces.

use serde::{Deserialize, Serialize};

use crate::names::{ContainerName, FolderId, IncidentId};
use crate::reason::Reason;
use crate::reasons;
use crate::units::{Bytes, Timestamp};

/// A folder that could not be taken out of a running container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckMount {
    pub container: ContainerName,
    pub folder: FolderId,
}

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
        match self.answer {
            EnforcementAction::Warned => reasons::gpu_over_limit_warned(held, limit),
            EnforcementAction::Frozen => reasons::gpu_over_limit_frozen(held, limit),
            EnforcementAction::Stopped => reasons::gpu_over_limit_stopped(held, limit),
            EnforcementAction::Cleared => reasons::gpu_over_limit_cleared(limit, held),
            EnforcementAction::Paused if self.device == "files" => {
                reasons::disk_files_paused(held, limit)
            }
            EnforcementAction::Paused => reasons::disk_paused(limit, held),
            EnforcementAction::Resumed => reasons::disk_resumed(limit, held),
        }
    }
}
