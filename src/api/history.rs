//! What was given and used over an hour to a month. Decides nothing.

use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far back a history goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HistoryRange {
    Hour,
    #[default]
    Day,
    Week,
    Month,
}

impl HistoryRange {
    pub const ALL: [Self; 4] = [Self::Hour, Self::Day, Self::Week, Self::Month];

    /// The range of a word; none for what is none.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|range| range.word() == word)
    }

    /// As an address writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    /// Its seconds, and the seconds that one point stands for: 84 to 124 points, so that the page stays small.
    pub fn seconds(self) -> (u32, u32) {
        match self {
            Self::Hour => (3_600, 30),
            Self::Day => (86_400, 900),
            Self::Week => (7 * 86_400, 2 * 3_600),
            Self::Month => (31 * 86_400, 6 * 3_600),
        }
    }
}

/// What was given and used, of the site, of a device or of a user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// `site`, `gpu:` with the device's own name, or `user:` with the user's.
    pub of: String,
    pub range: HistoryRange,
    /// Seconds that one point stands for.
    pub every: u32,
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// What there is to give now: of the site, or of the device.
    pub cpu: f64,
    pub memory: u64,
    /// Devices.
    pub gpus: u32,
    pub gpu_memory: u64,
    /// At least one of the devices does not exist, and its use is made up.
    pub simulated: bool,
    /// Oldest first. Times at which the server did not run have none.
    pub points: Vec<HistoryPoint>,
}

impl History {
    /// It is that of a device.
    pub fn is_of_device(&self) -> bool {
        self.of.starts_with("gpu:")
    }
}

/// Means over the seconds that one point stands for; null where unknown.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistoryPoint {
    /// When its time begins.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Cores.
    pub cpu_allocated: f64,
    pub cpu_busy: f64,
    /// Bytes.
    pub memory_allocated: f64,
    pub memory_used: f64,
    /// A sum of shares: 1.5 is one device and a half.
    pub gpu_allocated: f64,
    pub gpu_busy: Option<f64>,
    /// Bytes.
    pub gpu_memory_allocated: f64,
    pub gpu_memory_used: Option<f64>,
    pub celsius: Option<f64>,
    pub watts: Option<f64>,
    /// Seconds of its time that were measured: fewer where the server was not running.
    #[serde(default)]
    pub seconds: u32,
}
