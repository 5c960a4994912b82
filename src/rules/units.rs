//! Quantities with their units in the type: bytes, hundredths of a core, hundredths of a device,
//! points in time. Text and JSON forms live here so that page, API and CLI read them alike.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::refusals;

/// A number of bytes.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    pub const ZERO: Self = Self(0);

    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// Reads `512m`, `4g`, `1.5GiB`, `1073741824`; units are binary (`m` = MiB), as containers use.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let wrong = || refusals::size_invalid(quoted(text));
        let lower = text.trim().to_ascii_lowercase();
        let split = lower
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(lower.len());
        let (number, unit) = lower.split_at(split);
        let shift = match unit.trim() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(wrong()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || whole.len() > 18 || fraction.len() > 6 {
            return Err(wrong());
        }
        let whole: u128 = whole.parse().map_err(|_| wrong())?;
        let scale = 10u128.pow(fraction.len() as u32);
        let part: u128 = if fraction.is_empty() {
            0
        } else {
            fraction.parse().map_err(|_| wrong())?
        };
        let bytes = ((whole * scale + part) << shift) / scale;
        u64::try_from(bytes).map(Self).map_err(|_| wrong())
    }

    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl std::ops::Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self::ZERO, |a, b| a + b)
    }
}

impl fmt::Display for Bytes {
    /// `512 MiB`, `1.5 GiB`; at most one decimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut unit = 0;
        let mut value = self.0 as f64;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let rounded = (value * 10.0).round() / 10.0;
        if rounded.fract() == 0.0 {
            write!(f, "{rounded:.0} {}", UNITS[unit])
        } else {
            write!(f, "{rounded:.1} {}", UNITS[unit])
        }
    }
}

/// What was typed as refusals show it: in quotes, shortened, with nothing hidden.
pub fn quoted(text: &str) -> String {
    let mut short: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().count() > 40 {
        short.push('…');
    }
    format!("\"{short}\"")
}

macro_rules! hundredths {
    ($(#[$doc:meta])* $name:ident, $invalid:ident, $noun:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            pub const ZERO: Self = Self(0);

            /// Reads a decimal with at most two places, such as `0.35` or `2`.
            pub fn parse(text: &str) -> Result<Self, Refusal> {
                let wrong = || refusals::$invalid(quoted(text));
                let text = text.trim();
                let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
                if whole.is_empty() || whole.len() > 7 || fraction.len() > 2
                    || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit())
                {
                    return Err(wrong());
                }
                let whole: u32 = whole.parse().map_err(|_| wrong())?;
                let part: u32 = format!("{fraction:0<2}").parse().map_err(|_| wrong())?;
                Ok(Self(whole * 100 + part))
            }

            /// As a floating number, for pictures only; never for a decision.
            pub fn as_f64(self) -> f64 {
                f64::from(self.0) / 100.0
            }

            pub fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl std::ops::Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self::ZERO, |a, b| a + b)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match (self.0 / 100, self.0 % 100) {
                    (whole, 0) => write!(f, "{whole}"),
                    (whole, part) if part % 10 == 0 => write!(f, "{whole}.{}", part / 10),
                    (whole, part) => write!(f, "{whole}.{part:02}"),
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                if self.0 % 100 == 0 {
                    to.serialize_u32(self.0 / 100)
                } else {
                    to.serialize_f64(self.as_f64())
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            /// A JSON number (or text) whose shortest decimal form has at most two places.
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                struct Visit;
                impl serde::de::Visitor<'_> for Visit {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!("a number of ", $noun, " with at most two decimals"))
                    }
                    fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<$name, E> {
                        $name::parse(&v.to_string()).map_err(E::custom)
                    }
                    fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<$name, E> {
                        $name::parse(&v.to_string()).map_err(E::custom)
                    }
                    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<$name, E> {
                        $name::parse(&v.to_string()).map_err(E::custom)
                    }
                    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<$name, E> {
                        $name::parse(v).map_err(E::custom)
                    }
                }
                from.deserialize_any(Visit)
            }
        }
    };
}

hundredths!(
    /// Processor time in whole hundredths of a core (100 = one core).
    CpuShare, cpu_invalid, "cores"
);
impl CpuShare {
    /// `1 core`, `0.5 cores`, as English sentences say it.
    pub fn cores(self) -> String {
        let word = if self == Self(100) { "core" } else { "cores" };
        format!("{self} {word}")
    }
}

hundredths!(
    /// A share of one device in whole hundredths (100 = the whole device).
    GpuShare, gpu_invalid, "devices"
);

/// A point in time, milliseconds since 1970 UTC. JSON form: RFC 3339 with milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }

    pub fn plus_seconds(self, seconds: u64) -> Self {
        Self(
            self.0.saturating_add(
                i64::try_from(seconds)
                    .unwrap_or(i64::MAX / 1000)
                    .saturating_mul(1000),
            ),
        )
    }

    /// Whole seconds from `earlier` to here; zero where `earlier` is later.
    pub fn seconds_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0) / 1000).unwrap_or(0)
    }

    /// Milliseconds from `earlier` to here; zero where `earlier` is later.
    pub fn millis_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    /// Reads RFC 3339, such as `2026-11-21T18:00:00+09:00`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        text.trim()
            .parse::<jiff::Timestamp>()
            .map(|t| Self(t.as_millisecond()))
            .map_err(|_| refusals::time_invalid(quoted(text)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "1970-01-01T00:00:00.000Z"),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_containers_read_them() {
        for (text, bytes) in [
            ("256m", 256 << 20),
            ("1.5g", 3 << 29),
            ("4096", 4096),
            ("2 GiB", 2 << 30),
        ] {
            assert_eq!(Bytes::parse(text), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "m", "-1", "1e9", "12x", "99999999999999999999", "1.2.3"] {
            assert!(Bytes::parse(text).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn a_share_has_at_most_two_decimals() {
        assert_eq!(CpuShare::parse("0.5"), Ok(CpuShare(50)));
        assert_eq!(
            CpuShare::parse("2.25").map(|s| s.to_string()),
            Ok("2.25".into())
        );
        for text in ["0.351", "-1", "1e3", "", ".", "NaN", "99999999"] {
            assert!(CpuShare::parse(text).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn one_core_is_one_core() {
        for (share, words) in [(100, "1 core"), (50, "0.5 cores"), (200, "2 cores")] {
            assert_eq!(CpuShare(share).cores(), words);
        }
    }

    /// Promise (Queue and scheduler): A device share is a whole number of hundredths; the smallest is 0.01.
    #[test]
    fn every_hundredth_survives_json() {
        for n in 0..=300 {
            let share = GpuShare(n);
            assert_eq!(GpuShare::parse(&share.to_string()), Ok(share));
            let number: f64 = share.as_f64();
            assert_eq!(GpuShare::parse(&number.to_string()), Ok(share));
        }
    }

    #[test]
    fn time_survives_its_text() {
        let time = Timestamp::from_millis(1_763_726_400_123);
        assert_eq!(Timestamp::parse(&time.to_string()), Ok(time));
        assert_eq!(
            Timestamp::from_millis(0).to_string(),
            "1970-01-01T00:00:00.000Z"
        );
    }
}
