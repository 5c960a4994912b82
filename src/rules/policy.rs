//! The administrator's rules for shares of devices and for the queue. Pure; hands nothing out.

use serde::{Deserialize, Serialize};

use crate::devices::WHOLE;
use crate::fair_share::QueueOrder;
use crate::refusal::Refusal;
use crate::refusals;
use crate::resources::Demand;
use crate::units::GpuShare;

/// How sessions are spread over devices and machines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spreading {
    /// The fullest place that still holds it, so that whole devices stay whole.
    #[default]
    Pack,
    /// The emptiest place, so that neighbours are few.
    Spread,
    /// The node that got a session longest ago; on it as `Pack`.
    RoundRobin,
}

impl Spreading {
    pub const ALL: [Self; 3] = [Self::Pack, Self::Spread, Self::RoundRobin];

    /// As settings and addresses write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pack => "pack",
            Self::Spread => "spread",
            Self::RoundRobin => "roundrobin",
        }
    }

    /// The choice of a word; None for what is none.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }
}

/// Which sessions may start before one that waits for room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackfillMode {
    /// Those that take nothing it could get, by no time limit.
    #[default]
    Strict,
    /// Also those whose time limit leaves the first one that waits its latest start.
    Timed,
}

impl BackfillMode {
    pub const ALL: [Self; 2] = [Self::Strict, Self::Timed];

    /// As settings and addresses write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Timed => "timed",
        }
    }

    /// The mode of a word; None for what is none.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == word)
    }

    /// Whether time limits are not looked at.
    fn is_strict(&self) -> bool {
        matches!(self, Self::Strict)
    }
}

/// Whether a session may be stopped for another that waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PreemptionMode {
    /// None is.
    #[default]
    Off,
    /// For one of higher priority, where its own launch said so.
    Priority,
}

impl PreemptionMode {
    pub const ALL: [Self; 2] = [Self::Off, Self::Priority];

    /// As rows and addresses write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Priority => "priority",
        }
    }

    /// The mode of a word; None for what is none.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.word() == word)
    }
}

/// The administrator's rules for shares of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharePolicy {
    /// How many units one whole device counts as: 1 says `0.35`, 5 says `1.75` for the same.
    pub units: u32,
    /// The smallest share that may be asked for.
    pub least: GpuShare,
    /// Shares below one device are multiples of this.
    pub step: GpuShare,
    pub spreading: Spreading,
    /// The most that one user holds at once; None: no limit.
    pub each: Option<GpuShare>,
    /// In which order waiting sessions are looked at.
    #[serde(default)]
    pub order: QueueOrder,
    /// Who may start before one that waits. The settings know nothing of it: the catalog's rule of the queue says it.
    #[serde(default, skip_serializing_if = "BackfillMode::is_strict")]
    pub backfill: BackfillMode,
}

impl Default for SharePolicy {
    /// Every hundredth, packed, without a limit, users in turns.
    fn default() -> Self {
        Self {
            units: 1,
            least: GpuShare(1),
            step: GpuShare(1),
            spreading: Spreading::Pack,
            each: None,
            order: QueueOrder::Turns,
            backfill: BackfillMode::Strict,
        }
    }
}

impl SharePolicy {
    /// Refuses shares that the administrator does not give, even if they are free.
    pub fn check(&self, demand: &Demand) -> Result<(), Refusal> {
        let share = demand.gpu;
        if share == GpuShare::ZERO {
            return Ok(());
        }
        let least = self.least;
        if share < least {
            return Err(refusals::gpu_below_floor(least).at("/resources/gpu"));
        }
        let step = self.step.0.max(1);
        let part = share.0 % WHOLE.0;
        if !part.is_multiple_of(step) {
            let (below, above) = (share.0 - part % step, share.0 - part % step + step);
            let nearest: Vec<String> = [below, above]
                .into_iter()
                .filter(|n| *n >= self.least.0)
                .map(|n| GpuShare(n).to_string())
                .collect();
            return Err(refusals::gpu_off_step(
                self.step,
                nearest.join(" or "),
                nearest.join(", "),
            )
            .at("/resources/gpu"));
        }
        if let Some(each) = self.each
            && share > each
        {
            return Err(refusals::gpu_over_quota(each).at("/resources/gpu"));
        }
        Ok(())
    }

    /// A share in the administrator's units, as a decimal text: 0.35 of a device is `1.75` of 5.
    pub fn in_units(&self, share: GpuShare) -> String {
        GpuShare(share.0.saturating_mul(self.units.max(1))).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(gpu: &str) -> Demand {
        Demand {
            gpu: GpuShare::parse(gpu).expect("a share"),
            ..Demand::default()
        }
    }

    #[test]
    fn floor_step_and_quota_name_what_would_work() {
        let policy = SharePolicy {
            least: GpuShare(10),
            step: GpuShare(5),
            each: Some(GpuShare(150)),
            ..SharePolicy::default()
        };
        for (gpu, code, works) in [
            ("0.05", "gpu.below-floor", "0.1 or more"),
            ("0.12", "gpu.off-step", "0.1 or 0.15"),
            ("1.6", "gpu.over-quota", "1.5"),
        ] {
            let refusal = policy.check(&demand(gpu)).expect_err(gpu);
            assert_eq!(refusal.code, code);
            assert!(refusal.hint.contains(works), "{}", refusal.hint);
        }
        for gpu in ["0", "0.1", "0.35", "1", "1.5"] {
            assert_eq!(policy.check(&demand(gpu)), Ok(()), "{gpu}");
        }
    }

    #[test]
    fn a_device_counts_as_many_units_as_the_administrator_says() {
        let five = SharePolicy {
            units: 5,
            ..SharePolicy::default()
        };
        assert_eq!(five.in_units(GpuShare(35)), "1.75");
        assert_eq!(SharePolicy::default().in_units(GpuShare(35)), "0.35");
    }
}
