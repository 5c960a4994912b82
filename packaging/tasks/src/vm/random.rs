//! Chance that can be repeated: the same seed gives the same numbers. Not for secrets.

use std::time::Duration;

/// A stream of numbers (splitmix64).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below a number that is not zero.
    pub(super) fn below(&mut self, number: u64) -> u64 {
        self.next() % number
    }

    pub(super) fn up_to(&mut self, longest: Duration) -> Duration {
        let millis = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.below(millis.max(1)))
    }

    /// One of several; none of nothing.
    pub(super) fn pick<'a, T>(&mut self, several: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(several.len())
            .ok()
            .filter(|count| *count > 0)?;
        several.get(usize::try_from(self.below(count)).ok()?)
    }
}
