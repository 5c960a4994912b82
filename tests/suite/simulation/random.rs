//! The simulation's random numbers: one seed in, always the same numbers out (SplitMix64). Never reads the
//! kernel's random source, but for one fresh seed a test run.

/// A stream of rolls.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll() % (high - low + 1)
    }

    /// True `hundredths` times in a hundred.
    pub(super) fn chance(&mut self, hundredths: u64) -> bool {
        self.roll() % 100 < hundredths
    }

    /// One of them; panics on an empty list.
    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = self.roll() % from.len() as u64;
        &from[at as usize]
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.roll() as u8)
    }

    /// Another generator, of which this stream's later rolls tell nothing.
    pub(super) fn split(&mut self) -> Self {
        Self(self.roll())
    }
}

/// A seed nobody has tried.
pub(super) fn fresh_seed() -> u64 {
    u64::from_le_bytes(base::observe::random()) % 1_000_000_000
}
