use super::stats;

/// Compares live timings of a launch with what it took when it was decided for, and tells when it has lastingly become another.
///
/// It has no clock and runs nothing. Single stalls and noise of ten percent never are a change: nearly all of the latest timings have to
/// lie on one side, and their middle far from where it was.
#[derive(Clone, Debug)]
pub struct DriftWatch {
    /// Log time that is compared with; learnt from the first timings where it is not known.
    usual: Option<f64>,
    recent: Vec<f64>,
    /// Timings that are compared.
    window: usize,
    told: bool,
}

/// Timings that have to agree at first; each time that something was measured again it is twice as many.
const WINDOW: usize = 16;
const LARGEST_WINDOW: usize = 1024;
/// A change is at least this much, as a logarithm, ...
const CHANGE: f64 = 0.2;
/// ... and all timings but one of eight lie at least this far on its side.
const SIDE: f64 = 0.1;

impl DriftWatch {
    /// `usual_ns` is what it took when it was decided for, where that was measured in runs like these. `again` is how often it was
    /// measured again already: what changes all the time is asked about less and less.
    pub fn new(usual_ns: Option<u64>, again: u32) -> Self {
        let window = (WINDOW << again.min(8)).min(LARGEST_WINDOW);
        let usual = usual_ns.map(|ns| (ns.max(1) as f64).ln());
        DriftWatch { usual, recent: Vec::new(), window, told: false }
    }

    /// Takes in a live timing. Once, when it has changed: the time relative to what it was, less one.
    pub fn observe(&mut self, ns: u64) -> Option<f64> {
        if self.told {
            return None;
        }
        self.recent.push((ns.max(1) as f64).ln());
        if self.recent.len() < self.window {
            return None;
        }
        let now = stats::median(&mut self.recent.clone());
        let Some(usual) = self.usual else {
            self.usual = Some(now);
            self.recent.clear();
            return None;
        };
        let change = now - usual;
        let beyond = |time: &&f64| (**time - usual) * change.signum() > SIDE;
        let agree = self.recent.iter().filter(beyond).count() * 8 >= self.window * 7;
        self.recent.remove(0);
        (change.abs() > CHANGE && agree).then(|| {
            self.told = true;
            change.exp() - 1.0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise between −1 and 1, the same every time.
    fn noise(step: u64) -> f64 {
        let bits = (step + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((bits ^ (bits >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    #[test]
    fn noise_of_ten_percent_and_stalls_are_no_change() {
        for usual in [Some(100_000), None] {
            let mut watch = DriftWatch::new(usual, 0);
            for step in 0..100_000 {
                let stall = if step % 29 == 0 { 4.0 } else { 1.0 };
                let ns = 1e5 * (1.0 + 0.1 * noise(step)) * stall;
                assert_eq!(watch.observe(ns as u64), None, "after {step}");
            }
        }
    }

    #[test]
    fn a_lasting_change_is_told_once_either_way() {
        for factor in [1.5, 0.6] {
            let mut watch = DriftWatch::new(Some(100_000), 0);
            let mut told = Vec::new();
            for step in 0..400u64 {
                let now = if step < 200 { 1.0 } else { factor };
                if let Some(change) = watch.observe((1e5 * now * (1.0 + 0.1 * noise(step))) as u64) {
                    told.push((step, change));
                }
            }
            let [(when, change)] = told[..] else { panic!("{told:?}") };
            assert!((210..232).contains(&when), "after {when}");
            assert!((change - (factor - 1.0)).abs() < 0.1, "{change}");
        }
    }

    #[test]
    fn what_was_measured_again_often_is_asked_about_less() {
        let told = |again: u32| {
            let mut watch = DriftWatch::new(Some(1_000), again);
            (1..10_000).find(|_| watch.observe(2_000).is_some())
        };
        assert_eq!((told(0), told(3), told(40)), (Some(16), Some(128), Some(1024)));
    }
}
