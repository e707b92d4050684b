//! The few robust statistics that decisions rest on. Times are compared by their logarithms, so that a difference of 0.01 is
//! one percent at every scale.

/// A difference of two times with an interval that holds the true one at the given confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) middle: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// Half its width.
    pub(crate) fn half(&self) -> f64 {
        (self.high - self.low) / 2.0
    }

    pub(crate) fn is_known(&self) -> bool {
        self.half().is_finite()
    }
}

/// Mean of what remains after leaving out a quarter on the slow side: a stall makes a sample slow, nothing makes it fast.
pub fn low_mean(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let kept = values.len() - values.len().div_ceil(4).min(values.len().saturating_sub(1));
    values[..kept].iter().sum::<f64>() / kept.max(1) as f64
}

/// Typical log time of each of `count` candidates without the drift of the device, from the samples of all in the order in which they
/// were taken; infinite where there is none. What a sample is off its candidate's typical time is noise, but what neighbouring samples of
/// whatever candidates are off together is drift.
pub(crate) fn without_drift(samples: &[(usize, f64)], count: usize) -> Vec<f64> {
    /// Samples on each side that tell the drift at a moment.
    const NEIGHBOURS: usize = 8;
    let mut drift = vec![0.0; samples.len()];
    let mut means = vec![f64::INFINITY; count];
    let mut rests = vec![0.0; samples.len()];
    for _ in 0..4 {
        let mut times = vec![Vec::new(); count];
        for ((candidate, time), drift) in samples.iter().zip(&drift) {
            times[*candidate].push(time - drift);
        }
        for (mean, times) in means.iter_mut().zip(&mut times) {
            if !times.is_empty() {
                *mean = low_mean(times);
            }
        }
        for (rest, (candidate, time)) in rests.iter_mut().zip(samples) {
            *rest = time - means[*candidate];
        }
        for (at, drift) in drift.iter_mut().enumerate() {
            let near = at.saturating_sub(NEIGHBOURS)..(at + NEIGHBOURS + 1).min(samples.len());
            *drift = median(&mut rests[near].to_vec());
        }
    }
    means
}

/// The middle value; 0 for none.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => 0.0,
        _ if n % 2 == 1 => values[n / 2],
        _ => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// The middle of paired differences with an interval, by Hodges and Lehmann: the median of the means of all pairs of differences, and
/// those of the means between which Wilcoxon's signed ranks let the middle lie. It asks of the noise only that it hurts both alike,
/// not that it is normal or has a variance at all. `z` is the normal quantile of the wanted confidence. Without enough pairs for that
/// confidence nothing is known.
pub(crate) fn paired(differences: &[f64], z: f64) -> Interval {
    let n = differences.len();
    let mut means = Vec::with_capacity(n * (n + 1) / 2);
    for (at, a) in differences.iter().enumerate() {
        means.extend(differences[at..].iter().map(|b| (a + b) / 2.0));
    }
    let middle = median(&mut means);
    let ranks = (n * (n + 1)) as f64;
    let deviation = (ranks * (2 * n + 1) as f64 / 24.0).sqrt();
    let cut = ranks / 4.0 - z * deviation;
    if cut < 1.0 {
        return Interval { middle, low: f64::NEG_INFINITY, high: f64::INFINITY };
    }
    // `median` has sorted them.
    let cut = cut as usize;
    Interval { middle, low: means[cut - 1], high: means[means.len() - cut] }
}

/// So many of the values are above a limit that, if their median were not, it would happen in fewer than one of 200 cases. Stalls,
/// however long, count as single values here.
pub(crate) fn surely_above(values: &[f64], limit: f64) -> bool {
    let n = values.len();
    let below = values.iter().filter(|value| **value <= limit).count();
    // The lower tail of the binomial distribution with a half.
    let (mut term, mut tail) = (0.5f64.powi(n as i32), 0.0);
    for k in 0..=below {
        tail += term;
        term *= (n - k) as f64 / (k + 1) as f64;
    }
    n > 0 && tail < 0.005
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_tables() {
        // For 12 pairs Wilcoxon's table has 13 as the greatest rank sum in the lower 2.5%.
        let differences: Vec<f64> = (0..12).map(|i| f64::from(1 << i)).collect();
        let mut means: Vec<f64> = Vec::new();
        for (at, a) in differences.iter().enumerate() {
            means.extend(differences[at..].iter().map(|b| (a + b) / 2.0));
        }
        means.sort_by(f64::total_cmp);
        let found = paired(&differences, 1.96);
        assert_eq!((found.low, found.high), (means[13], means[78 - 14]));
    }

    #[test]
    fn a_few_stalls_do_not_hide_what_is_above() {
        let mut values = [0.1; 12];
        values[3] = -5.0;
        assert!(surely_above(&values, 0.005));
        values[4] = -5.0;
        assert!(!surely_above(&values, 0.005), "two of twelve may be chance");
        assert!(!surely_above(&[0.1; 7], 0.005) && surely_above(&[0.1; 8], 0.005) && !surely_above(&[], 0.0));
    }

    #[test]
    fn outliers_do_not_move_the_middle() {
        let mut values: Vec<f64> = (0..20).map(|i| f64::from(i % 5) * 0.01).collect();
        let clean = paired(&values, 1.96);
        values[19] = 50.0;
        let dirty = paired(&values, 1.96);
        assert!((clean.middle - dirty.middle).abs() < 0.005 && dirty.half() < 0.02);
        assert!(!paired(&[0.0; 4], 1.96).is_known() && !paired(&[], 1.96).is_known());
        assert_eq!(low_mean(&mut [2.0, 1.0]), 1.0);
        assert_eq!(low_mean(&mut [1.0]), 1.0);
    }
}
