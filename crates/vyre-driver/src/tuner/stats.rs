//! The few robust statistics that decisions rest on. Times are compared by their logarithms, so that a difference of 0.01 is
//! one percent at every scale.

/// A difference of two times with an interval that holds the true one at the given confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) middle: f64,
    pub(crate) half: f64,
}

impl Interval {
    pub(crate) fn low(&self) -> f64 {
        self.middle - self.half
    }
    pub(crate) fn high(&self) -> f64 {
        self.middle + self.half
    }
}

/// Mean of what remains after leaving out a quarter on the slow side: a stall makes a sample slow, nothing makes it fast.
pub(crate) fn low_mean(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let kept = values.len() - values.len().div_ceil(4).min(values.len().saturating_sub(1));
    values[..kept].iter().sum::<f64>() / kept.max(1) as f64
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

/// Standard deviation from the median distance to the median, which outliers don't reach.
pub(crate) fn robust_deviation(values: &mut [f64]) -> f64 {
    let middle = median(values);
    let mut distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    1.4826 * median(&mut distances)
}

/// Trimmed mean of paired differences with an interval by Tukey and McLaughlin: a fifth of each end is left out of the mean
/// and pulled in for the deviation. `z` is the normal quantile of the wanted confidence. Without five pairs nothing is known.
pub(crate) fn paired(differences: &mut [f64], z: f64) -> Interval {
    let n = differences.len();
    if n < 5 {
        return Interval { middle: median(differences), half: f64::INFINITY };
    }
    differences.sort_by(f64::total_cmp);
    let cut = n / 5;
    let inner = &differences[cut..n - cut];
    let middle = inner.iter().sum::<f64>() / inner.len() as f64;
    let pulled: Vec<f64> = differences.iter().map(|value| value.clamp(inner[0], inner[inner.len() - 1])).collect();
    let mean = pulled.iter().sum::<f64>() / n as f64;
    let variance = pulled.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
    let error = variance.sqrt() / ((inner.len() as f64 / n as f64) * (n as f64).sqrt());
    let half = student(z, (inner.len() - 1).max(1) as f64) * error;
    Interval { middle, half }
}

/// The quantile of Student's distribution that belongs to a normal quantile, by the series of Cornish and Fisher.
fn student(z: f64, freedom: f64) -> f64 {
    let z2 = z * z;
    let first = z * (z2 + 1.0) / 4.0;
    let second = z * ((5.0 * z2 + 16.0) * z2 + 3.0) / 96.0;
    let third = z * (((3.0 * z2 + 19.0) * z2 + 17.0) * z2 - 15.0) / 384.0;
    z + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_is_near_the_tables() {
        for (freedom, exact) in [(4.0, 2.776), (9.0, 2.262), (30.0, 2.042)] {
            assert!((student(1.96, freedom) - exact).abs() < 0.01);
        }
    }

    #[test]
    fn outliers_do_not_move_the_middle() {
        let mut values: Vec<f64> = (0..20).map(|i| f64::from(i % 5) * 0.01).collect();
        let clean = paired(&mut values, 1.96);
        values[19] = 50.0;
        let dirty = paired(&mut values, 1.96);
        assert!((clean.middle - dirty.middle).abs() < 0.005 && dirty.half < 0.02);
        assert!(paired(&mut [0.0; 4], 1.96).half.is_infinite());
        assert_eq!(low_mean(&mut [2.0, 1.0]), 1.0);
        assert_eq!(low_mean(&mut [1.0]), 1.0);
        assert_eq!(robust_deviation(&mut [1.0, 1.0, 1.0, 9.0]), 0.0);
    }
}
