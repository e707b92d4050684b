//! Seeded random numbers, the same everywhere.

/// SplitMix64: small, seeded, the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Numbers that have nothing in common with those of other seeds, be they neighbours: states that are a step apart are the same
    /// numbers, one later.
    #[allow(dead_code, reason = "not every test that shares this file needs it")]
    pub(crate) fn seeded(seed: u64) -> Random {
        Random(Random(seed).word())
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normal, by Box and Muller.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}
