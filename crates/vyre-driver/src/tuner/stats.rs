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

/// A sample of a candidate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timed {
    pub(crate) candidate: usize,
    pub(crate) round: usize,
    /// Logarithm of its time.
    pub(crate) time: f64,
}

/// What is known of a candidate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Typical {
    /// Logarithm of its typical time; infinite where it has no sample.
    pub(crate) log: f64,
    /// How far its samples are from that, drift aside.
    pub(crate) spread: f64,
}

/// Typical time of each of `count` candidates without the drift of the device, from the samples of all in the order in which they
/// were taken. What a sample is off its candidate's typical time is noise, but what neighbouring samples of
/// whatever candidates of its round are off together is drift. What is off by more than `noise` explains is a stall and says nothing.
pub(crate) fn without_drift(samples: &[Timed], count: usize, noise: f64) -> Vec<Typical> {
    /// Samples on each side that tell the drift at a moment.
    const NEIGHBOURS: usize = 8;
    /// Times that the fit is made better: first by medians, which no stall moves far, then by means, which use all that is known.
    const ROUGHLY: usize = 3;
    const FINELY: usize = 20;
    /// What changes less is found.
    const SETTLED: f64 = 2e-5;
    /// So many times the noise is none.
    const STALL: f64 = 4.0;
    let near = |at: usize| {
        let is_of_round = |&other: &usize| samples[other].round == samples[at].round;
        let first = (at.saturating_sub(NEIGHBOURS)..at).find(is_of_round).unwrap_or(at);
        let last = (at..(at + NEIGHBOURS + 1).min(samples.len())).rev().find(is_of_round).unwrap_or(at);
        first..last + 1
    };
    let near: Vec<_> = (0..samples.len()).map(near).collect();
    let mut drift = vec![0.0; samples.len()];
    let mut means = vec![f64::INFINITY; count];
    let mut rests = vec![0.0; samples.len()];
    let mut stalled = vec![false; samples.len()];
    for pass in 0..ROUGHLY + if noise.is_finite() { FINELY } else { 0 } {
        let fine = pass >= ROUGHLY;
        let mut change = if fine { 0.0f64 } else { f64::INFINITY };
        if fine {
            let mut sums = vec![Sum::default(); count];
            for ((sample, drift), _) in samples.iter().zip(&drift).zip(&stalled).filter(|(_, stalled)| !**stalled) {
                sums[sample.candidate].add(sample.time - drift);
            }
            for (mean, sum) in means.iter_mut().zip(&sums) {
                let better = sum.mean().unwrap_or(*mean);
                // Without a sample it stays infinite.
                if better != *mean {
                    change = change.max((better - *mean).abs());
                    *mean = better;
                }
            }
        } else {
            let mut times = vec![Vec::new(); count];
            for ((sample, drift), _) in samples.iter().zip(&drift).zip(&stalled).filter(|(_, stalled)| !**stalled) {
                times[sample.candidate].push(sample.time - drift);
            }
            for (mean, times) in means.iter_mut().zip(&mut times).filter(|(_, times)| !times.is_empty()) {
                *mean = low_mean(times);
            }
        }
        for (rest, sample) in rests.iter_mut().zip(samples) {
            *rest = sample.time - means[sample.candidate];
        }
        for (drift, near) in drift.iter_mut().zip(&near) {
            let mut sound = Sum::default();
            if fine {
                let all = rests[near.clone()].iter().zip(&stalled[near.clone()]);
                all.filter(|(_, stalled)| !**stalled).for_each(|(rest, _)| sound.add(*rest));
            }
            *drift = sound.mean().unwrap_or_else(|| median(&mut rests[near.clone()].to_vec()));
        }
        if pass + 1 >= ROUGHLY {
            let off = |at: usize| rests[at] - drift[at];
            let mut fastest = vec![None; count];
            let mut sound = vec![false; count];
            for (at, sample) in samples.iter().enumerate() {
                stalled[at] = off(at).abs() > STALL * noise;
                sound[sample.candidate] |= !stalled[at];
                let fastest = &mut fastest[sample.candidate];
                if fastest.is_none_or(|fastest| off(at) < off(fastest)) {
                    *fastest = Some(at);
                }
            }
            // Of a candidate all of whose samples are far from each other the fastest says most.
            for at in fastest.iter().zip(&sound).filter(|(_, sound)| !**sound).filter_map(|(fastest, _)| *fastest) {
                stalled[at] = false;
            }
        }
        if change < SETTLED {
            break;
        }
    }
    let mut spreads = vec![Vec::new(); count];
    for (sample, (rest, drift)) in samples.iter().zip(rests.iter().zip(&drift)) {
        spreads[sample.candidate].push((rest - drift).abs());
    }
    let typical = |(log, spread): (f64, Vec<f64>)| Typical { log, spread: deviation(spread) };
    means.into_iter().zip(spreads).map(typical).collect()
}

/// The deviation of what is so far from its middle, were it normal: a few stalls don't change it.
fn deviation(mut distances: Vec<f64>) -> f64 {
    1.48 * median(&mut distances)
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    sum: f64,
    count: u32,
}

impl Sum {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
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

/// The time of one launch relative to another's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Relative {
    /// Less one: −0.3 is 30% faster.
    pub middle: f64,
    /// Where it lies, 19 times of 20; infinite where there are too few timings to say.
    pub interval: [f64; 2],
}

/// Compares the times of two launches that were taken in neighbouring runs, one by one.
pub fn relative(times: &[u64], to: &[u64]) -> Relative {
    let log = |ns: &u64| ((*ns).max(1) as f64).ln();
    let differences: Vec<f64> = times.iter().zip(to).map(|(a, b)| log(a) - log(b)).collect();
    let found = paired(&differences, 1.96);
    Relative { middle: found.middle.exp() - 1.0, interval: [found.low.exp() - 1.0, found.high.exp() - 1.0] }
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

    /// Samples of candidates whose times are known, in rounds that drift, with a stall in every round.
    fn rounds(times: &[f64], rounds: usize) -> Vec<Timed> {
        let mut samples = Vec::new();
        for round in 0..rounds {
            let drift = [0.0, 0.2, -0.1, 0.05][round % 4];
            // After two rounds only every other one runs.
            for (candidate, time) in times.iter().enumerate().filter(|(at, _)| round < 2 || at % 2 == 0) {
                let stall = if candidate == round { 0.7 } else { 0.0 };
                samples.push(Timed { candidate, round, time: time + drift + stall });
            }
        }
        samples
    }

    #[test]
    fn neither_drift_nor_stalls_change_who_is_faster() {
        let times = [0.0, 0.01, 0.02, -0.01, 0.4, 0.03, 0.05, 0.07];
        let typical = without_drift(&rounds(&times, 6), times.len() + 1, 0.001);
        for (candidate, time) in times.iter().enumerate() {
            let found = typical[candidate].log - typical[0].log;
            assert!((found - time).abs() < 0.002, "{candidate}: {found}");
        }
        assert!(typical[times.len()].log.is_infinite(), "it has no sample");
        // What the noise is like is not known yet: stalls are left out all the same.
        let rough = without_drift(&rounds(&times, 6), times.len(), f64::INFINITY);
        assert!((rough[3].log - rough[0].log + 0.01).abs() < 0.02);
    }

    #[test]
    fn of_nothing_but_stalls_the_shortest_counts() {
        let sample = |candidate, round, time| Timed { candidate, round, time };
        let quiet = (0..3).flat_map(|round| (0..4).map(move |candidate| sample(candidate, round, 0.0)));
        let mut samples: Vec<Timed> = quiet.collect();
        samples.splice(4..4, [sample(4, 0, 2.0)]);
        samples.splice(9..9, [sample(4, 1, 0.5)]);
        samples.push(sample(4, 2, 1.0));
        let typical = without_drift(&samples, 5, 0.001);
        assert!((typical[4].log - typical[0].log - 0.5).abs() < 0.01, "{}", typical[4].log);
    }

    #[test]
    fn times_are_compared_run_by_run() {
        // The device becomes slower while both run, and one run stalls.
        let to: Vec<u64> = (0..24).map(|run| 1_000 + 100 * run).collect();
        let mut times: Vec<u64> = to.iter().map(|ns| ns * 11 / 10).collect();
        times[7] *= 9;
        let found = relative(&times, &to);
        assert!((found.middle - 0.1).abs() < 1e-3, "{found:?}");
        assert!(found.interval[0] > 0.098 && found.interval[1] < 0.102, "{found:?}");
        assert!(relative(&times[..3], &to).interval[1].is_infinite());
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
