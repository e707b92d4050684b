use super::natural::identity_fisher_q16_into;
use super::{NaturalGradientPolicy, Outcome, Q16_ONE, Timing, TuningMeasurement, Verdict, stats};

/// What to do with the next dispatch of a program whose launch is being learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Dispatch with this candidate and call [`OnlineTuner::observe`].
    Run(usize),
    /// Before this candidate may be decided for: dispatch with the default, whose results are the caller's, and with the
    /// candidate; compare the results, call [`OnlineTuner::observe`] for both and then [`OnlineTuner::checked`].
    Check(usize),
    /// Decided: use this candidate; nothing needs to be observed.
    Use(usize),
}

/// Learns the fastest launch from real dispatches, without ever stalling one.
///
/// It has no clock, no threads and runs nothing; candidate 0 is the default. The first dispatches run on the default. Then every
/// candidate is tried once, from the fastest known one outwards, but for those that lie beyond one that is hopelessly slow. What was
/// suspiciously slow is tried again, because it may have been a stall. After that dispatches are drawn from the weights that a
/// [`NaturalGradientPolicy`] gives to those that may still be the fastest, until one is, or the time is over: for up to 16 candidates
/// that is at most 60 dispatches.
#[derive(Clone, Debug)]
pub struct OnlineTuner {
    places: Vec<Vec<u32>>,
    /// Candidate and log time of every dispatch, in order.
    samples: Vec<(usize, f64)>,
    counts: Vec<usize>,
    hint: Option<usize>,
    /// How often each was drawn last, of [`Q16_ONE`].
    weights: Vec<u32>,
    /// The identity, kept so that it is not made for every dispatch.
    preconditioner: Vec<u32>,
    rejected: Vec<Option<String>>,
    checked: Vec<bool>,
    random: u64,
    decided: Option<(usize, Verdict)>,
}

/// After so many dispatches, and so many for each candidate, what is known has to be enough.
const PATIENCE: usize = 26;
const PATIENCE_EACH: usize = 2;
/// Beyond a candidate that takes so many times as long as the fastest (as a logarithm), nothing is tried.
const HOPELESS: f64 = 0.8;
/// So many candidates are all tried; of more, those that are so many steps away from the fastest.
const FEW: usize = 16;
const REACH: u32 = 2;
/// Neighbours whose differences are this share of those of others say nothing about each other.
const RUGGED: f64 = 0.6;
/// Of what was timed once, what is so much slower than its neighbours say (as a logarithm) may have been a stall.
const SUSPICIOUS: f64 = 0.3;
/// Two timings of one candidate that differ by more than this can't both be typical.
const STALL: f64 = 0.08;
/// A candidate that was timed once may be off by so much, because the device drifts.
const DRIFT: f64 = 0.1;
/// Normal quantile of the intervals that candidates are told apart by.
const Z: f64 = 2.2;
/// A launch other than the default has to be faster by this.
const MARGIN: f64 = 0.01;
/// Candidates that are slower than the fastest by this share of its time are drawn e times less often.
const TEMPERATURE: f64 = 0.02;
/// However steady a device seems, timings are off by so much.
const LEAST_NOISE: f64 = 0.004;

/// What is known so far: typical log times, and the deviation of a single timing.
struct Known {
    means: Vec<f64>,
    noise: f64,
}

impl OnlineTuner {
    /// A tuner over candidates at these places of a space, as [`Candidates::places`](super::Candidates) gives them. Equal
    /// seeds and timings give equal choices.
    pub fn new(places: &[Vec<u32>], seed: u64) -> Self {
        let places = if places.is_empty() { vec![Vec::new()] } else { places.to_vec() };
        let n = places.len();
        OnlineTuner {
            places,
            samples: Vec::new(),
            counts: vec![0; n],
            hint: None,
            weights: vec![Q16_ONE / n as u32; n],
            preconditioner: Vec::new(),
            rejected: vec![None; n],
            checked: (0..n).map(|candidate| candidate == 0).collect(),
            random: seed,
            decided: None,
        }
    }

    /// As [`OnlineTuner::new`], with a decision from other circumstances to begin with: it is tried first, and confirmed or
    /// dropped by the same evidence as any other.
    pub fn warm(places: &[Vec<u32>], seed: u64, candidate: usize) -> Self {
        let mut tuner = OnlineTuner::new(places, seed);
        tuner.hint = Some(candidate).filter(|&candidate| candidate > 0 && candidate < tuner.places.len());
        tuner
    }

    /// What to do with the next dispatch. The first ones run on the default.
    pub fn turn(&mut self) -> Turn {
        if let Some((candidate, _)) = self.decided {
            return Turn::Use(candidate);
        }
        // One timing may be a stall of the device, and all others are compared with these.
        if !self.is_settled(0) && self.counts[0] < 5 {
            return Turn::Run(0);
        }
        let known = self.known();
        let incumbent = self.fastest(&known);
        if !self.is_over() {
            let next = self.untried(&known, incumbent).or_else(|| self.suspicious(&known, incumbent));
            if let Some(next) = next {
                return Turn::Run(next);
            }
        }
        let open = self.contenders(&known, incumbent);
        if open.len() > 1 && !self.is_over() {
            self.weigh(&known, &open);
            return Turn::Run(self.draw(incumbent));
        }
        let chosen = self.choose(&known, incumbent);
        if !self.checked[chosen] {
            return Turn::Check(chosen);
        }
        self.decided = Some((chosen, if chosen == 0 { Verdict::Tie } else { Verdict::Winner }));
        Turn::Use(chosen)
    }

    /// The candidate took so long.
    pub fn observe(&mut self, candidate: usize, ns: u64) {
        self.samples.push((candidate, (ns.max(1) as f64).ln()));
        self.counts[candidate] += 1;
    }

    /// The candidate's results agree with the default's, or the reason why not.
    pub fn checked(&mut self, candidate: usize, result: Result<(), String>) {
        match result {
            Ok(()) => self.checked[candidate] = true,
            Err(reason) => self.reject(candidate, reason),
        }
    }

    /// The candidate failed or gave wrong results; it is never used again. The default can't be rejected.
    pub fn reject(&mut self, candidate: usize, reason: String) {
        if candidate > 0 {
            self.rejected[candidate] = Some(reason);
        }
    }

    /// Timed dispatches so far.
    pub fn samples(&self) -> u64 {
        self.samples.len() as u64
    }

    /// The weights that the latest dispatches were drawn by.
    pub fn policy(&self) -> Vec<f64> {
        let sum: u32 = self.weights.iter().sum();
        self.weights.iter().map(|weight| f64::from(*weight) / f64::from(sum.max(1))).collect()
    }

    /// The decision and its evidence, when there is enough.
    pub fn outcome(&self) -> Option<Outcome> {
        let (chosen, verdict) = self.decided?;
        let known = self.known();
        let relative = |log: f64| log.exp() - 1.0;
        let interval = |candidate: usize| {
            let (gap, doubt) = (known.means[candidate] - known.means[0], self.doubt(&known, candidate, 0));
            [relative(gap - doubt), relative(gap + doubt)]
        };
        let ns = |candidate: usize| known.means[candidate].exp().round() as u64;
        let timed = |candidate: &usize| self.counts[*candidate] > 0;
        let others = (0..self.places.len()).filter(|other| *other != chosen && self.rejected[*other].is_none());
        let runner_up = others
            .filter(timed)
            .min_by(|&a, &b| known.means[a].total_cmp(&known.means[b]))
            .map(|other| (other, relative(known.means[other] - known.means[chosen])));
        Some(Outcome {
            chosen,
            verdict,
            samples: self.samples.len(),
            pairs: self.counts[chosen],
            difference: relative(known.means[chosen] - known.means[0]),
            interval: if chosen == 0 { [0.0; 2] } else { interval(chosen) },
            chosen_ns: ns(chosen),
            default_ns: ns(0),
            runner_up,
            timings: (0..self.places.len())
                .filter(timed)
                .map(|candidate| {
                    let interval = (candidate > 0).then(|| interval(candidate));
                    Timing { candidate, ns: ns(candidate), samples: self.counts[candidate], interval }
                })
                .collect(),
            rejected: self
                .rejected
                .iter()
                .enumerate()
                .filter_map(|(index, reason)| Some((index, reason.clone()?)))
                .collect(),
        })
    }

    fn known(&self) -> Known {
        let (means, noise) = stats::without_drift(&self.samples, self.places.len());
        Known { means, noise: noise.max(LEAST_NOISE) }
    }

    /// Two timings of a candidate agree, so that it is known without doubt.
    fn is_settled(&self, candidate: usize) -> bool {
        let own = self.samples.iter().filter(|(which, _)| *which == candidate);
        let mut times: Vec<f64> = own.map(|(_, time)| *time).collect();
        times.sort_by(f64::total_cmp);
        times.len() >= 2 && times[1] - times[0] < STALL
    }

    fn is_over(&self) -> bool {
        self.samples.len() >= PATIENCE + PATIENCE_EACH * self.places.len()
    }

    fn fastest(&self, known: &Known) -> usize {
        let able = (0..self.places.len()).filter(|&candidate| self.rejected[candidate].is_none());
        able.min_by(|&a, &b| known.means[a].total_cmp(&known.means[b])).unwrap_or(0)
    }

    /// The next candidate to try for the first time: the hint, then whoever is nearest to the fastest, unless one that is hopelessly slow
    /// lies between them.
    fn untried(&mut self, known: &Known, incumbent: usize) -> Option<usize> {
        let open =
            |tuner: &OnlineTuner, candidate: usize| tuner.counts[candidate] == 0 && tuner.rejected[candidate].is_none();
        if let Some(hint) = self.hint.take().filter(|&hint| open(self, hint)) {
            return Some(hint);
        }
        let slow: Vec<usize> = (0..self.places.len())
            .filter(|&other| known.means[other].is_finite() && known.means[other] > known.means[incumbent] + HOPELESS)
            .collect();
        let is_beyond = |candidate: usize| {
            let between = |other: &usize| {
                let axes = self.places[*other].iter().zip(&self.places[incumbent]).zip(&self.places[candidate]);
                let mut axes = axes.map(|((at, from), to)| (*from.min(to)..=*from.max(to)).contains(at));
                axes.all(|between| between)
            };
            slow.iter().any(between)
        };
        // Of many, only those around the fastest are worth a try: who finds a faster one there looks around that.
        let reach = if self.places.len() > FEW && !self.is_rugged(known) { REACH } else { u32::MAX };
        (0..self.places.len())
            .filter(|&candidate| open(self, candidate) && !is_beyond(candidate))
            .map(|candidate| (self.distance(incumbent, candidate), candidate))
            .filter(|(distance, _)| *distance <= reach)
            .min()
            .map(|(_, candidate)| candidate)
    }

    /// Neighbours differ about as much as those that are far apart, so that where one is says nothing.
    fn is_rugged(&self, known: &Known) -> bool {
        const ENOUGH: usize = 6;
        let tried: Vec<usize> = (0..self.places.len()).filter(|&candidate| self.counts[candidate] > 0).collect();
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for (at, &a) in tried.iter().enumerate() {
            for &b in &tried[at + 1..] {
                let apart = (known.means[a] - known.means[b]).abs();
                if self.distance(a, b) == 1 { near.push(apart) } else { far.push(apart) }
            }
        }
        near.len().min(far.len()) >= ENOUGH && {
            let near = stats::median(&mut near);
            near > RUGGED * stats::median(&mut far) && near > DRIFT
        }
    }

    fn distance(&self, a: usize, b: usize) -> u32 {
        self.places[a].iter().zip(&self.places[b]).map(|(a, b)| a.abs_diff(*b)).sum()
    }

    /// A candidate that was timed once and is so slow that it may have been a stall: compared with its neighbours, or while
    /// no neighbour is known to be slow itself.
    fn suspicious(&self, known: &Known, incumbent: usize) -> Option<usize> {
        let timed = |candidate: usize| known.means[candidate].is_finite();
        (0..self.places.len()).find(|&candidate| {
            if self.counts[candidate] != 1 || self.rejected[candidate].is_some() {
                return false;
            }
            let near = (0..self.places.len()).filter(|&other| other != candidate && timed(other));
            let least = near.clone().map(|other| self.distance(candidate, other)).min().unwrap_or(0);
            let near = near.filter(|&other| self.distance(candidate, other) == least);
            let mut times: Vec<f64> = near.map(|other| known.means[other]).collect();
            let expected = stats::median(&mut times).max(known.means[incumbent]);
            known.means[candidate] > expected + SUSPICIOUS
        })
    }

    /// How far the difference of two may be from what it seems.
    fn doubt(&self, known: &Known, a: usize, b: usize) -> f64 {
        if a == b {
            return 0.0;
        }
        let variance = |candidate: usize| 1.0 / self.counts[candidate].max(1) as f64;
        let drift = if self.counts[a].min(self.counts[b]) < 3 { DRIFT / 2.0 } else { 0.0 };
        Z * known.noise * (variance(a) + variance(b)).sqrt() + drift
    }

    /// Those that may be the fastest, and the default while it may be as good.
    fn contenders(&self, known: &Known, incumbent: usize) -> Vec<usize> {
        let is_open = |candidate: usize| {
            if candidate == incumbent {
                return true;
            }
            let gap = known.means[candidate] - known.means[incumbent];
            let doubt = self.doubt(known, candidate, incumbent);
            // The default is preferred within the margin; others only matter if they may be faster, and not if they are alike.
            let line = if candidate == 0 { MARGIN } else { 0.0 };
            gap < line + doubt && (gap > line - doubt || candidate != 0) && doubt > MARGIN / 2.0
        };
        let timed = (0..self.places.len()).filter(|&candidate| self.counts[candidate] > 0);
        timed.filter(|&candidate| self.rejected[candidate].is_none() && is_open(candidate)).collect()
    }

    /// The fastest, unless it can't be told from the default.
    fn choose(&self, known: &Known, incumbent: usize) -> usize {
        let gap = known.means[0] - known.means[incumbent];
        let doubt = self.doubt(known, incumbent, 0).min(DRIFT);
        if gap < MARGIN || gap < doubt { 0 } else { incumbent }
    }

    /// Weighs the candidates that are open by their times.
    fn weigh(&mut self, known: &Known, open: &[usize]) {
        let measurement = |&candidate: &usize| TuningMeasurement {
            workgroup_size: [candidate as u32 + 1, 1, 1],
            // What is known less well is given the benefit of the doubt.
            elapsed_ns: (known.means[candidate] - 0.5 * known.noise / (self.counts[candidate] as f64).sqrt()).exp()
                as u64,
        };
        let measurements: Vec<TuningMeasurement> = open.iter().map(measurement).collect();
        let best = measurements.iter().map(|measurement| measurement.elapsed_ns).min().unwrap_or(1);
        let policy = NaturalGradientPolicy { temperature_ns: ((TEMPERATURE * best as f64) as u64).max(1) };
        identity_fisher_q16_into(open.len(), &mut self.preconditioner);
        if let Ok(step) = policy.suggest(&measurements, &self.preconditioner) {
            self.weights.fill(0);
            for (&candidate, weight) in open.iter().zip(step.policy_weights_q16) {
                self.weights[candidate] = weight;
            }
        }
    }

    fn draw(&mut self, otherwise: usize) -> usize {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let sum: u64 = self.weights.iter().map(|weight| u64::from(*weight)).sum();
        let mut at = bits % sum.max(1);
        for (candidate, weight) in self.weights.iter().enumerate() {
            match at.checked_sub(u64::from(*weight)) {
                Some(rest) => at = rest,
                None => return candidate,
            }
        }
        otherwise
    }
}
