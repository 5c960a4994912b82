//! Words about accelerators and slices of them: what a hundredth of a card is, their health, their partitions,
//! and who holds sessions to their parts. Pure; discovers nothing and hands nothing out.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::refusals;
use crate::units::{Bytes, GpuShare};

/// A whole device, in hundredths.
pub const WHOLE: GpuShare = GpuShare(100);

/// Memory that a program's context takes of its slice before the program has any: driver state, kernels,
/// stacks. Measured: 518 MiB on an H200 with driver 580.159; published for others: a few hundred MiB. Higher: small
/// slices are refused that would work. Lower: a slice is given in which nothing starts.
pub const CONTEXT_OVERHEAD: Bytes = Bytes::mib(512);
/// The driver gives memory in blocks of this size.
pub const DRIVER_BLOCK: Bytes = Bytes::mib(2);

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
            refusals::gpu_profile_invalid(&shown).at("/resources/mig")
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

#[cfg(test)]
mod tests {
    use super::*;

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
