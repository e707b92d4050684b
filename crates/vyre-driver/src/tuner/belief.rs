//! What is believed about the times of all candidates after some were measured: a normal distribution over log times in
//! which neighbours in the space have similar times.

/// Prior deviations: of what all candidates share, of what one axis does, of what axes do together, and of a candidate's quirk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prior {
    pub(super) level: f64,
    pub(super) axis: f64,
    pub(super) together: f64,
    pub(super) quirk: f64,
}

/// Neighbours tell much about each other, or little.
pub(super) const SMOOTH: Prior = Prior { level: 0.5, axis: 0.25, together: 0.05, quirk: 0.03 };
pub(super) const ROUGH: Prior = Prior { level: 0.3, axis: 0.1, together: 0.1, quirk: 0.25 };
/// Steps along an axis over which similarity fades.
const REACH: f64 = 3.0;

#[derive(Clone, Debug)]
pub(super) struct Belief {
    n: usize,
    mean: Vec<f64>,
    /// Row by row.
    covariance: Vec<f64>,
}

impl Belief {
    /// Nothing measured: every log time is 0 give or take.
    pub(super) fn new(places: &[Vec<u32>], prior: Prior) -> Self {
        let n = places.len();
        let mut covariance = Vec::with_capacity(n * n);
        for (i, a) in places.iter().enumerate() {
            for (j, b) in places.iter().enumerate() {
                let alike: Vec<f64> = a
                    .iter()
                    .zip(b)
                    .map(|(&a, &b)| (-f64::from(a.abs_diff(b)).powi(2) / (REACH * REACH)).exp())
                    .collect();
                let axes: f64 = alike.iter().sum::<f64>() * prior.axis.powi(2);
                let together: f64 = alike.iter().product::<f64>() * prior.together.powi(2);
                let quirk = if i == j { prior.quirk.powi(2) } else { 0.0 };
                covariance.push(prior.level.powi(2) + axes + together + quirk);
            }
        }
        Belief { n, mean: vec![0.0; n], covariance }
    }

    pub(super) fn mean(&self, i: usize) -> f64 {
        self.mean[i]
    }

    pub(super) fn variance(&self, i: usize) -> f64 {
        self.covariance[i * self.n + i].max(0.0)
    }

    /// Mean and deviation of how much slower `other` is than `i`.
    pub(super) fn slower(&self, i: usize, other: usize) -> (f64, f64) {
        let variance = self.variance(i) + self.variance(other) - 2.0 * self.covariance[i * self.n + other];
        (self.mean[other] - self.mean[i], variance.max(0.0).sqrt())
    }

    /// Takes in a log time with so much variance.
    pub(super) fn observe(&mut self, i: usize, time: f64, variance: f64) {
        let surprise = time - self.mean[i];
        let column: Vec<f64> = (0..self.n).map(|j| self.covariance[i * self.n + j]).collect();
        let total = variance + column[i].max(0.0);
        for (mean, part) in self.mean.iter_mut().zip(&column) {
            *mean += part / total * surprise;
        }
        for (row, a) in self.covariance.chunks_exact_mut(self.n).zip(&column) {
            for (cell, b) in row.iter_mut().zip(&column) {
                *cell -= a * b / total;
            }
        }
    }
}
