//! What was given and used over an hour to a month. Decides nothing.

use rules::names::SessionId;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far back a history goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HistoryRange {
    Hour,
    #[default]
    Day,
    Week,
    Month,
    /// From Monday on, by the caller's time zone.
    ThisWeek,
    /// The week before, Monday to Sunday.
    LastWeek,
}

impl HistoryRange {
    pub const ALL: [Self; 6] = [
        Self::Hour,
        Self::Day,
        Self::Week,
        Self::Month,
        Self::ThisWeek,
        Self::LastWeek,
    ];

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
            Self::ThisWeek => "this-week",
            Self::LastWeek => "last-week",
        }
    }

    /// Its seconds, and the seconds that one point stands for: 84 to 168 points, so that the page stays small.
    pub fn seconds(self) -> (u32, u32) {
        match self {
            Self::Hour => (3_600, 30),
            Self::Day => (86_400, 900),
            Self::Week => (7 * 86_400, 2 * 3_600),
            Self::Month => (31 * 86_400, 6 * 3_600),
            // Hours: a week begins at an hour that is not the same everywhere.
            Self::ThisWeek | Self::LastWeek => (7 * 86_400, 3_600),
        }
    }

    /// How many weeks before the present one it is; None for what ends at the present.
    pub fn weeks_back(self) -> Option<i64> {
        match self {
            Self::Hour | Self::Day | Self::Week | Self::Month => None,
            Self::ThisWeek => Some(0),
            Self::LastWeek => Some(1),
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
    pub from: Timestamp,
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
    /// Sessions that held the device in that time and that the caller may see, most GPU-hours first, no more than 50; empty
    /// for the site and for users. A session counts from its last start.
    #[serde(default)]
    pub holders: Vec<HistoryHolder>,
    /// There are further ones.
    #[serde(default)]
    pub more_holders: bool,
}

/// A session that held a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistoryHolder {
    #[schema(value_type = String, format = Uuid)]
    pub session: SessionId,
    pub name: String,
    pub user: String,
    /// Its share of the device times the hours of the range for which it held it.
    pub gpu_hours: f64,
    /// Of all that it held it, also before the range.
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    /// Null while it holds it.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
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
