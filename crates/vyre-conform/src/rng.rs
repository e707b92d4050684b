/// SplitMix64: the same numbers from the same seed on every platform and in every release.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        // One step first, so that neighbouring seeds start far apart.
        let mut rng = Rng(seed ^ 0x6A09_E667_F3BC_C908);
        rng.bits();
        rng
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Less than `limit`, which is at least 1.
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(limit)) >> 32) as u32
    }

    /// From `low` to `high`, both included.
    pub(crate) fn range(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    /// True `part` times out of `whole`.
    pub(crate) fn chance(&mut self, part: u32, whole: u32) -> bool {
        self.below(whole) < part
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize].clone()
    }

    /// A position, drawn in proportion to the weights, of which at least one is not zero.
    pub(crate) fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut left = self.below(weights.iter().sum());
        weights
            .iter()
            .position(|&weight| {
                let here = left < weight;
                left = left.wrapping_sub(weight);
                here
            })
            .unwrap_or(0)
    }
}
