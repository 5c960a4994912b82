//! Accelerators and slices of them: what a hundredth of a card is, which requests can never be right,
//! and the administrator's rules for shares. Pure; discovers nothing and hands nothing out.

pub mod cut;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::resources::{Demand, Device, DeviceShare};
use crate::units::{Bytes, GpuShare};

/// A whole device, in hundredths.
pub const WHOLE: GpuShare = GpuShare(100);

/// Memory that a program's context takes of its slice before the program has any: driver state, kernels,
/// stacks. Taken from published figures ("a few hundred MiB"), not yet measured on hardware. Higher: small
/// slices are refused that would work. Lower: a slice is given in which nothing starts.
pub const CONTEXT_OVERHEAD: Bytes = Bytes::mib(512);

/// A fraction beside whole devices counts in tenths: a sliver beside a whole card is a slip of the finger,
/// and work spread over both goes at the pace of the sliver.
const BESIDE_WHOLE: u32 = 10;

/// The known health of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum Health {
    /// It was not asked yet, or does not answer.
    #[default]
    Unknown,
    Well,
    /// It works, and something about it is worth a look.
    Worn {
        text: String,
    },
    /// It takes nothing new.
    Failing {
        text: String,
    },
}

impl Health {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Well => "well",
            Self::Worn { .. } => "worn",
            Self::Failing { .. } => "failing",
        }
    }
}

/// Who holds sessions to their parts of a device's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hold {
    /// No backend: it is simulated, or its machine does not say.
    #[default]
    Nobody,
    /// Our library inside, and the watchdog behind it.
    Hook,
    /// The kernel as well, by control group.
    HookAndKernel,
    /// The driver as well, by control group.
    HookAndDriver,
    /// The card itself.
    Hardware,
}

/// One size of a hardware partition, such as `3g.40gb` or `1g.10gb+me`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MigProfile {
    /// Compute slices, 1 to 7.
    pub compute: u8,
    pub gigabytes: u16,
    /// With the media engines.
    pub media: bool,
}

impl MigProfile {
    /// Reads the maker's own word for it.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let read = || {
            let text = text.trim();
            let (body, media) = match text.strip_suffix("+me") {
                Some(body) => (body, true),
                None => (text, false),
            };
            let (compute, memory) = body.strip_suffix("gb")?.split_once("g.")?;
            let number = |text: &str| {
                let digits = text.len() <= 3 && text.bytes().all(|b| b.is_ascii_digit());
                digits.then(|| text.parse::<u16>().ok()).flatten()
            };
            let compute = u8::try_from(number(compute)?).ok()?;
            let gigabytes = number(memory)?;
            ((1..=7).contains(&compute) && gigabytes > 0).then_some(Self {
                compute,
                gigabytes,
                media,
            })
        };
        read().ok_or_else(|| {
            let shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
            Refusal::invalid(
                "gpu.profile-invalid",
                format!("\"{shown}\" is not a MIG profile."),
            )
            .with("typed", &shown)
            .at("/resources/mig")
            .hint("1g.10gb or 3g.40gb would work, where a device is cut that way.")
        })
    }
}

impl fmt::Display for MigProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let media = if self.media { "+me" } else { "" };
        write!(f, "{}g.{}gb{media}", self.compute, self.gigabytes)
    }
}

impl Serialize for MigProfile {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MigProfile {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).map_err(|refusal| serde::de::Error::custom(refusal.text))
    }
}

/// One partition that a device is cut into. Its place in the device's list is its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigPart {
    pub uuid: String,
    pub profile: MigProfile,
    pub memory: Bytes,
    pub sms: u32,
}

impl Device {
    /// Memory of a share of it, rounded down: shares that sum to a device sum to no more than its memory.
    pub fn memory_of(&self, share: GpuShare) -> Bytes {
        let hundredths = u128::from(share.0.min(WHOLE.0));
        let bytes = u128::from(self.memory.0) * hundredths / 100;
        Bytes(u64::try_from(bytes).unwrap_or(self.memory.0))
    }

    /// Multiprocessors whose time a share is worth, rounded down; 0 where their number is unknown.
    pub fn sms_of(&self, share: GpuShare) -> u32 {
        let part = u64::from(self.sms) * u64::from(share.0.min(WHOLE.0)) / 100;
        u32::try_from(part).unwrap_or(self.sms)
    }

    /// Cut into partitions, so that no slice of its time is given.
    pub fn is_cut(&self) -> bool {
        !self.mig.is_empty()
    }

    /// The least share whose memory holds a context; None where not even the whole does.
    pub fn least_share(&self) -> Option<GpuShare> {
        (1..=100)
            .map(GpuShare)
            .find(|share| self.memory_of(*share) >= CONTEXT_OVERHEAD)
    }
}

/// How sessions are spread over devices and machines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spreading {
    /// The fullest place that still holds it, so that whole devices stay whole.
    #[default]
    Pack,
    /// The emptiest place, so that neighbours are few.
    Spread,
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
    /// The most that one person holds at once; None: no limit.
    pub each: Option<GpuShare>,
}

impl Default for SharePolicy {
    /// Every hundredth, packed, without a limit.
    fn default() -> Self {
        Self {
            units: 1,
            least: GpuShare(1),
            step: GpuShare(1),
            spreading: Spreading::Pack,
            each: None,
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
            return Err(Refusal::invalid(
                "gpu.below-floor",
                format!("{least} is the smallest share that is given here."),
            )
            .with("least", least)
            .at("/resources/gpu")
            .hint(format!("{least} or more would work.")));
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
            return Err(Refusal::invalid(
                "gpu.off-step",
                format!("Shares are given in steps of {} here.", self.step),
            )
            .with("step", self.step)
            .with("nearest", nearest.join(", "))
            .at("/resources/gpu")
            .hint(format!("{} would work.", nearest.join(" or "))));
        }
        if let Some(each) = self.each
            && share > each
        {
            return Err(Refusal::invalid(
                "gpu.over-quota",
                format!("One user may hold at most {each} of devices here."),
            )
            .with("limit", each)
            .at("/resources/gpu")
            .hint(format!("{each} would work; an administrator can raise it.")));
        }
        Ok(())
    }

    /// A share in the administrator's units, as a decimal text: 0.35 of a device is `1.75` of 5.
    pub fn in_units(&self, share: GpuShare) -> String {
        GpuShare(share.0.saturating_mul(self.units.max(1))).to_string()
    }
}

/// Refuses what no device of any kind could ever give.
pub fn check(demand: &Demand) -> Result<(), Refusal> {
    if demand.mig.is_some() && demand.gpu > GpuShare::ZERO {
        return Err(Refusal::invalid(
            "gpu.share-and-profile",
            "A session has a share of devices or one MIG partition, not both.",
        )
        .at("/resources/mig")
        .hint("Leave one of the two out."));
    }
    let (whole, part) = (demand.gpu.0 / WHOLE.0, demand.gpu.0 % WHOLE.0);
    if whole > 0 && !part.is_multiple_of(BESIDE_WHOLE) {
        let below = GpuShare(demand.gpu.0 - part % BESIDE_WHOLE);
        let above = GpuShare(below.0 + BESIDE_WHOLE);
        return Err(Refusal::invalid(
            "gpu.not-whole",
            "Beside whole devices a fraction counts in tenths.",
        )
        .with("below", below)
        .with("above", above)
        .at("/resources/gpu")
        .hint(format!("{below} or {above} would work.")));
    }
    if let Some(memory) = demand.gpu_memory {
        if part == 0 {
            let text = if demand.gpu == GpuShare::ZERO {
                "Memory of a device comes with a share of it, and none is asked for."
            } else {
                "Whole devices come with all of their memory."
            };
            return Err(Refusal::invalid("gpu.memory-without-share", text)
                .at("/resources/gpu_memory")
                .hint("Leave it out, or ask for a fraction such as 0.35."));
        }
        if memory < CONTEXT_OVERHEAD {
            return Err(Refusal::invalid(
                "gpu.slice-too-small",
                format!("A slice needs at least {CONTEXT_OVERHEAD}: a program's context alone takes about that."),
            ).with("least", CONTEXT_OVERHEAD)
            .at("/resources/gpu_memory")
            .hint(format!("{CONTEXT_OVERHEAD} or more would work.")));
        }
    }
    Ok(())
}

/// What is given of one device, by everybody together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceAllocation {
    pub share: GpuShare,
    pub memory: Bytes,
    /// Numbers of the partitions that are given.
    #[serde(default)]
    pub parts: std::collections::BTreeSet<u32>,
}

impl DeviceAllocation {
    pub fn add(&mut self, part: &DeviceShare) {
        match part.part {
            Some(number) => {
                self.parts.insert(number);
            }
            None => {
                self.share = self.share + part.share;
                self.memory = self.memory + part.memory;
            }
        }
    }

    pub fn give_back(&mut self, part: &DeviceShare) {
        match part.part {
            Some(number) => {
                self.parts.remove(&number);
            }
            None => {
                self.share = self.share.saturating_sub(part.share);
                self.memory = self.memory.saturating_sub(part.memory);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.share == GpuShare::ZERO && self.memory == Bytes::ZERO && self.parts.is_empty()
    }
}

/// Two grants of one container together, the larger of the two on each device: what has to be kept for
/// it while its machine may hold it to either.
pub fn either(a: &[DeviceShare], b: &[DeviceShare]) -> Vec<DeviceShare> {
    let mut all = a.to_vec();
    for other in b {
        let same = |d: &&mut DeviceShare| d.index == other.index && d.part == other.part;
        match all.iter_mut().find(same) {
            Some(one) => {
                one.share = one.share.max(other.share);
                one.memory = one.memory.max(other.memory);
            }
            None => all.push(*other),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(gib: u64) -> Device {
        Device {
            memory: Bytes::gib(gib),
            sms: 132,
            ..Device::new(0, "H100")
        }
    }

    fn demand(gpu: &str, memory: Option<Bytes>) -> Demand {
        Demand {
            gpu: GpuShare::parse(gpu).expect("a share"),
            gpu_memory: memory,
            ..Demand::default()
        }
    }

    #[test]
    fn a_share_is_so_much_memory_and_so_many_multiprocessors() {
        let card = card(80);
        assert_eq!(card.memory_of(GpuShare(35)), Bytes::gib(28));
        assert_eq!(card.sms_of(GpuShare(35)), 46);
    }

    #[test]
    fn shares_that_sum_to_a_card_never_sum_to_more_than_its_memory() {
        for bytes in [1, 99, 12_345_678_901, 81_559 << 20, u64::MAX] {
            let card = Device {
                memory: Bytes(bytes),
                ..card(1)
            };
            for cut in 1..100 {
                let sum = card.memory_of(GpuShare(cut)).0 as u128
                    + card.memory_of(GpuShare(100 - cut)).0 as u128;
                assert!(sum <= u128::from(bytes), "{cut} of {bytes}");
            }
        }
    }

    #[test]
    fn a_small_card_gives_no_slice_in_which_nothing_starts() {
        assert_eq!(card(80).least_share(), Some(GpuShare(1)));
        assert_eq!(card(16).least_share(), Some(GpuShare(4)));
        let tiny = Device {
            memory: Bytes::mib(256),
            ..card(1)
        };
        assert_eq!(tiny.least_share(), None);
    }

    #[test]
    fn what_can_never_be_right_is_refused_by_name() {
        for (gpu, memory, code) in [
            ("1.01", None, "gpu.not-whole"),
            ("2.55", None, "gpu.not-whole"),
            ("1", Some(Bytes::gib(4)), "gpu.memory-without-share"),
            ("0", Some(Bytes::gib(4)), "gpu.memory-without-share"),
            ("0.5", Some(Bytes::mib(100)), "gpu.slice-too-small"),
        ] {
            let refusal = check(&demand(gpu, memory)).expect_err(gpu);
            assert_eq!(refusal.code, code, "{gpu}");
            assert!(!refusal.hint.is_empty(), "{gpu} says nothing of what works");
        }
        for gpu in ["0.01", "1", "2.5", "16"] {
            assert_eq!(check(&demand(gpu, None)), Ok(()), "{gpu}");
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
            let refusal = policy.check(&demand(gpu, None)).expect_err(gpu);
            assert_eq!(refusal.code, code);
            assert!(refusal.hint.contains(works), "{}", refusal.hint);
        }
        for gpu in ["0", "0.1", "0.35", "1", "1.5"] {
            assert_eq!(policy.check(&demand(gpu, None)), Ok(()), "{gpu}");
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

    #[test]
    fn profiles_are_read_as_their_maker_writes_them() {
        for text in ["1g.10gb", "3g.40gb", "7g.80gb", "1g.10gb+me"] {
            assert_eq!(
                MigProfile::parse(text).map(|p| p.to_string()),
                Ok(text.into())
            );
        }
        for text in ["", "8g.80gb", "0g.10gb", "1g", "1g.gb", "g.10gb", "1g.-1gb"] {
            assert!(MigProfile::parse(text).is_err(), "{text} was taken");
        }
    }
}
