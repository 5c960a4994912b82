//! What fair share goes by: weights of domains, projects and users, and what each used before. Decides nothing:
//! `placement::order` sorts the queue by it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::metering::UsageSum;
use crate::names::UserId;
use crate::quota::TenantLevel;
use crate::tenancy::{DomainId, ProjectId};

/// In which order waiting sessions are looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueOrder {
    /// Each user's first before any user's second.
    #[default]
    Turns,
    /// The one that waits for the longest first.
    Fifo,
    /// The one that was queued last first.
    Lifo,
    /// The one that holds the least dominant share for their weight first; the past does not count.
    Drf,
    /// Whoever used least for their weight first: domains, then projects in them, then users in those.
    Fair,
}

impl QueueOrder {
    pub const ALL: [Self; 5] = [Self::Turns, Self::Fifo, Self::Lifo, Self::Drf, Self::Fair];

    /// As settings and addresses write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::Fifo => "fifo",
            Self::Lifo => "lifo",
            Self::Drf => "drf",
            Self::Fair => "fair",
        }
    }

    /// The order of a word; None for what is none.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.word() == word)
    }

    /// Whether it goes by what users hold for their weight, with or without the past.
    pub fn goes_by_share(self) -> bool {
        match self {
            Self::Drf | Self::Fair => true,
            Self::Turns | Self::Fifo | Self::Lifo => false,
        }
    }
}

/// The largest weight. Higher: one user starves all others for weeks. Lower: a site cannot say what it means.
pub const MAX_WEIGHT: u32 = 1_000;

/// One node of the tree: a domain, a project, or a user in a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FairLeaf {
    pub domain: DomainId,
    pub project: ProjectId,
    pub user: UserId,
}

/// Weights, and the decayed use of the past.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FairShares {
    /// Weights other than 1, of domains, projects and users; a user has the same in each project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<(TenantLevel, Uuid, u32)>,
    /// What each user used in each project, in millionths of the cluster for an hour; decayed with its age.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<(FairLeaf, u64)>,
}

/// What there is to use of each kind, for an hour: an amount's share of it is what use costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WholeCluster {
    /// Hundredths of devices.
    pub gpu: u64,
    /// Hundredths of cores.
    pub cpu: u64,
    /// MiB.
    pub memory: u64,
}

impl WholeCluster {
    /// The dominant share of amounts: the largest part that they are of any kind, in millionths.
    pub fn share(self, gpu: u64, cpu: u64, memory: u64) -> u64 {
        let part =
            |amount: u64, whole: u64| u128::from(amount) * 1_000_000 / u128::from(whole.max(1));
        let largest = part(gpu, self.gpu)
            .max(part(cpu, self.cpu))
            .max(part(memory, self.memory));
        u64::try_from(largest).unwrap_or(u64::MAX)
    }

    /// What a sum of use costs, in millionths of the cluster for an hour.
    pub fn cost(self, sum: UsageSum) -> u64 {
        let hour = |amount: u64| amount / 3_600;
        self.share(hour(sum.gpu), hour(sum.cpu), hour(sum.memory)) / 1_000
    }
}

/// Use of some hours ago as it counts today: half of it for each half-life. Whole numbers, so that two machines agree
/// to the last digit.
pub fn decayed(amount: u64, hours_ago: u64, half_life_hours: u64) -> u64 {
    let half_life = half_life_hours.max(1);
    let halves = hours_ago / half_life;
    if halves >= 63 {
        return 0;
    }
    let whole = amount >> halves;
    // Between two halves the curve is taken as a line; it is at most 6 % above 2^-x.
    let rest = hours_ago % half_life;
    let less = u128::from(whole) * u128::from(rest) / (2 * u128::from(half_life));
    whole - u64::try_from(less).unwrap_or(whole)
}

/// Sums decayed use by leaf: each sum with the hour that it is of.
pub fn standing(
    whole: WholeCluster,
    used: impl IntoIterator<Item = (FairLeaf, i64, UsageSum)>,
    hour: i64,
    half_life_hours: u64,
) -> Vec<(FairLeaf, u64)> {
    let mut past: BTreeMap<FairLeaf, u64> = BTreeMap::new();
    for (leaf, at, sum) in used {
        let ago = u64::try_from(hour.saturating_sub(at)).unwrap_or(0);
        let counts = decayed(whole.cost(sum), ago, half_life_hours);
        let known = past.entry(leaf).or_default();
        *known = known.saturating_add(counts);
    }
    past.retain(|_, used| *used > 0);
    past.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_halves_with_each_half_life() {
        for (hours, expected) in [
            (0, 1_000),
            (168, 500),
            (336, 250),
            (84, 750),
            (200 * 168, 0),
        ] {
            assert_eq!(decayed(1_000, hours, 168), expected, "{hours} h");
        }
        let mut last = u64::MAX;
        for hours in 0..2_000 {
            let now = decayed(1_000_000_000, hours, 168);
            assert!(now <= last, "{hours} h");
            let exact = 1e9 * 0.5_f64.powf(hours as f64 / 168.0);
            assert!(
                (now as f64) < exact * 1.07 + 2.0 && now as f64 + 2.0 > exact,
                "{hours} h"
            );
            last = now;
        }
    }

    #[test]
    fn the_dominant_kind_is_what_use_costs() {
        let whole = WholeCluster {
            gpu: 800,
            cpu: 6_400,
            memory: 1 << 20,
        };
        assert_eq!(whole.share(100, 0, 0), 125_000);
        assert_eq!(whole.share(100, 3_200, 0), 500_000);
        assert_eq!(whole.share(0, 0, 0), 0);
        let hour = UsageSum::held(
            crate::metering::Allocated {
                gpu: 400,
                cpu: 100,
                memory: 1,
            },
            3_600_000,
        );
        assert_eq!(whole.cost(hour), 500_000);
    }
}
