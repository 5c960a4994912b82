//! What users used over a time: sums of the ledger. Decides nothing.

use rules::metering::UsageSum;
use rules::units::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// By what use is summed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum UsageGrouping {
    /// Each user, in all projects.
    #[default]
    User,
    Project,
    Domain,
    /// Each user in each project.
    Member,
}

impl UsageGrouping {
    pub const ALL: [Self; 4] = [Self::User, Self::Project, Self::Domain, Self::Member];

    /// The grouping of a word; none for what is none.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    /// As an address writes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
            Self::Domain => "domain",
            Self::Member => "member",
        }
    }
}

/// What was held over a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    /// The end, which is left out; the present where that is earlier.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    pub by: UsageGrouping,
    /// The sum of all items.
    pub total: UsageAmounts,
    /// Most GPU time first, then most core time, then by name.
    pub items: Vec<UsageItem>,
    /// The sums of each day, by the caller's time zone; days without use are left out.
    pub days: Vec<UsageDay>,
}

/// What a user, a project or a domain used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageItem {
    /// Empty where items are not of one domain.
    pub domain: String,
    /// Empty where items are not of one project.
    pub project: String,
    /// Empty where items are not of one user.
    pub user: String,
    pub used: UsageAmounts,
    /// Which part of the GPU time was busy, 0 to 1, by the hours that were measured in the last two months; null where none was,
    /// where items are not of one user, and for users of whom the caller does not see all sessions.
    #[serde(default)]
    pub gpu_busy: Option<f64>,
}

/// What was used on a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageDay {
    /// Such as `2026-11-25`.
    #[schema(format = Date)]
    pub day: String,
    pub used: UsageAmounts,
}

/// Amounts times the seconds for which sessions held them, counted from the moment in which a session gets its place
/// until it is over. Exact: the amounts of all items add up to the total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageAmounts {
    /// A share of 0.5 for an hour is 1,800.
    pub gpu_seconds: f64,
    /// Two cores for an hour are 7,200.
    pub cpu_seconds: f64,
    /// MiB of memory times seconds.
    pub memory_mib_seconds: f64,
    pub session_seconds: f64,
    /// Sessions that got a place.
    pub starts: u64,
    /// Seconds that they waited for it, together.
    pub waited_seconds: f64,
}

impl From<UsageSum> for UsageAmounts {
    fn from(sum: UsageSum) -> Self {
        // Hundredths times milliseconds, and milliseconds: at most five decimals, exact up to 2^53 of them.
        let hundredths = |value: u64| value as f64 / 100_000.0;
        let millis = |value: u64| value as f64 / 1_000.0;
        Self {
            gpu_seconds: hundredths(sum.gpu),
            cpu_seconds: hundredths(sum.cpu),
            memory_mib_seconds: millis(sum.memory),
            session_seconds: millis(sum.session),
            starts: sum.starts,
            waited_seconds: millis(sum.waited),
        }
    }
}
