use super::belief::{Belief, ROUGH, SMOOTH};
use super::natural::natural_step;
use super::{Outcome, Verdict};

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
/// It has no clock, no threads and runs nothing; candidate 0 is the default. The first dispatch runs on the default. After
/// that every dispatch is drawn from a softmax policy over the candidates. Each timing moves the policy by a natural-gradient
/// step: the gradient of the expected gain is preconditioned by the Fisher matrix of the policy's own distribution. The gain of
/// a candidate is what trying it is expected to save over the dispatches to come, less what it costs now, under a belief in
/// which neighbours in the space have similar times; so hopeless candidates are never tried.
#[derive(Clone, Debug)]
pub struct OnlineTuner {
    places: Vec<Vec<u32>>,
    /// Two beliefs about how much neighbours tell, each with the log likelihood of what was seen; the likelier one counts.
    beliefs: [(Belief, f64); 2],
    /// For each belief and candidate, the variance with which its latest timing was taken in.
    weights: [Vec<f64>; 2],
    /// Log times of each candidate without base and drift.
    samples: Vec<Vec<f64>>,
    hint: Option<usize>,
    /// The policy is the softmax of these.
    logits: Vec<f64>,
    rejected: Vec<Option<String>>,
    checked: Vec<bool>,
    random: u64,
    dispatches: u64,
    /// Log time that is zero in the belief, and how far the device has drifted from then.
    base: Option<f64>,
    drift: f64,
    noise: f64,
    decided: Option<(usize, Verdict)>,
}

/// Gains that differ by less than this (relative time) are drawn alike.
const TEMPERATURE: f64 = 0.003;
/// Keeps the Fisher matrix invertible where the policy is nearly certain.
const DAMPING: f64 = 1e-9;
/// A program is expected to be dispatched at least so often, and at least as often again as it already was.
const HORIZON: f64 = 1_000.0;
/// Without news after so many dispatches, what is known is enough.
const PATIENCE: u64 = 400;
/// Log odds that neighbours tell much about each other, before anything is measured.
const SMOOTHER: f64 = 4.0;
/// A candidate whose try is expected to save more than this share of the time from now on is worth it.
const OPEN: f64 = 0.0005;
/// Two timings of one candidate that differ by more than this can't both be typical.
const STALL: f64 = 0.08;
/// Share of dispatches in which the device stalls.
const STALLS: f64 = 0.03;
/// Normal quantile of the reported 95% interval.
const Z: f64 = 1.96;
/// Differences that don't matter.
const MARGIN: f64 = 0.005;

impl OnlineTuner {
    /// A tuner over candidates at these places of a space, as [`Candidates::places`](super::Candidates) gives them. Equal
    /// seeds and timings give equal choices.
    pub fn new(places: &[Vec<u32>], seed: u64) -> Self {
        let places = if places.is_empty() { vec![Vec::new()] } else { places.to_vec() };
        let n = places.len();
        OnlineTuner {
            beliefs: [SMOOTH, ROUGH].map(|prior| (Belief::new(&places, prior), 0.0)),
            weights: [vec![0.0; n], vec![0.0; n]],
            places,
            samples: vec![Vec::new(); n],
            hint: None,
            logits: vec![0.0; n],
            rejected: vec![None; n],
            checked: (0..n).map(|candidate| candidate == 0).collect(),
            random: seed,
            dispatches: 0,
            base: None,
            drift: 0.0,
            noise: 0.03,
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
        if !self.agreed(0) {
            return Turn::Run(0);
        }
        if let Some(hint) = self.hint.take() {
            return Turn::Run(hint);
        }
        let incumbent = self.incumbent();
        self.improve(incumbent);
        if self.enough(incumbent) {
            if let Some(suspect) = self.suspect(incumbent) {
                return Turn::Run(suspect);
            }
            if !self.checked[incumbent] {
                return Turn::Check(incumbent);
            }
            // The check brought another timing of the default; if that changed things, learning goes on.
            self.decide(incumbent);
            if let Some((candidate, _)) = self.decided {
                return Turn::Use(candidate);
            }
        }
        Turn::Run(self.draw())
    }

    /// The candidate took so long.
    pub fn observe(&mut self, candidate: usize, ns: u64) {
        self.dispatches += 1;
        let time = (ns.max(1) as f64).ln();
        let time = time - *self.base.get_or_insert(time) - self.drift;
        let known = self.samples[candidate].len();
        let fastest = self.samples[candidate].iter().copied().fold(f64::INFINITY, f64::min);
        let surprise = time - self.belief().mean(candidate);
        self.samples[candidate].push(time);
        if known > 0 && time < fastest - STALL {
            // Nothing runs too fast by accident, so what was seen of it before were stalls.
            self.samples[candidate] = vec![time];
            self.rebuild();
        } else {
            self.believe(candidate, time, known == 0);
        }
        if known >= 3 {
            // What is well known tells how noisy and how fast the device is just now.
            let bounded = surprise.clamp(-3.0 * self.noise, 3.0 * self.noise);
            self.drift += 0.05 * bounded;
            self.noise = (self.noise + 0.05 * (1.25 * bounded.abs() - self.noise)).clamp(0.01, 0.2);
        }
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
        self.dispatches
    }

    /// The policy that dispatches are drawn from.
    pub fn policy(&self) -> Vec<f64> {
        softmax(&self.logits)
    }

    /// The decision and its evidence, when there is enough.
    pub fn outcome(&self) -> Option<Outcome> {
        let (chosen, verdict) = self.decided?;
        let base = self.base? + self.drift;
        let (gap, deviation) = self.belief().slower(chosen, 0);
        let relative = |log: f64| (-log).exp() - 1.0;
        let ns = |candidate: usize| (base + self.belief().mean(candidate)).exp().round() as u64;
        let runner_up = (0..self.samples.len())
            .filter(|&other| other != chosen && !self.samples[other].is_empty() && self.rejected[other].is_none())
            .min_by(|&a, &b| self.belief().mean(a).total_cmp(&self.belief().mean(b)))
            .map(|other| (other, self.belief().slower(chosen, other).0.exp() - 1.0));
        Some(Outcome {
            chosen,
            verdict,
            samples: self.dispatches as usize,
            pairs: self.samples[chosen].len(),
            difference: relative(gap),
            interval: [relative(gap + Z * deviation), relative(gap - Z * deviation)],
            chosen_ns: ns(chosen),
            default_ns: ns(0),
            runner_up,
            rejected: self
                .rejected
                .iter()
                .enumerate()
                .filter_map(|(index, reason)| Some((index, reason.clone()?)))
                .collect(),
        })
    }

    fn belief(&self) -> &Belief {
        let [smooth, rough] = &self.beliefs;
        if self.roughness() > 0.5 { &rough.0 } else { &smooth.0 }
    }

    /// Two timings of a candidate agree, so that it is known without doubt.
    fn agreed(&self, candidate: usize) -> bool {
        let mut times = self.samples[candidate].clone();
        times.sort_by(f64::total_cmp);
        (times.len() >= 2 && times[1] - times[0] < STALL) || self.dispatches >= 10
    }

    /// A candidate that must be timed before anything is decided: it was timed only once and much slower than its neighbours
    /// say, which may have been a stall, or it was never timed and is believed to be as fast as the incumbent.
    fn suspect(&self, incumbent: usize) -> Option<usize> {
        let model = usize::from(self.roughness() > 0.5);
        let belief = &self.beliefs[model].0;
        let fast = belief.mean(incumbent);
        // A belief from few candidates is a weak one, whatever it says of itself.
        let untried = |candidate: &usize| self.samples[*candidate].is_empty() && self.rejected[*candidate].is_none();
        if (0..self.samples.len()).filter(untried).count() * 4 > 3 * self.samples.len() {
            let hope = |candidate: usize| belief.mean(candidate) - belief.variance(candidate).sqrt();
            return (0..self.samples.len()).filter(untried).min_by(|&a, &b| hope(a).total_cmp(&hope(b)));
        }
        (0..self.samples.len()).filter(|&candidate| self.rejected[candidate].is_none()).find(|&candidate| {
            let [time] = self.samples[candidate][..] else {
                return self.samples[candidate].is_empty() && belief.mean(candidate) < fast + 2.0 * MARGIN;
            };
            if time < fast + STALL {
                return false;
            }
            // What is believed without its own timing: the posterior with that timing divided out.
            let (variance, noise) = (belief.variance(candidate), self.weights[model][candidate]);
            let without = 1.0 / (1.0 / variance - 1.0 / noise).max(1e-6);
            let expected = without * (belief.mean(candidate) / variance - time / noise);
            time - expected > STALL.max(3.0 * without.sqrt())
        })
    }

    /// Takes a timing into both beliefs. One that is more likely a stall than the truth counts the less.
    fn believe(&mut self, candidate: usize, time: f64, first: bool) {
        let noise = self.noise.powi(2);
        for ((belief, likelihood), weights) in self.beliefs.iter_mut().zip(&mut self.weights) {
            let surprise = time - belief.mean(candidate);
            let variance = belief.variance(candidate) + noise;
            let truth = (-0.5 * surprise * surprise / variance).exp() / (std::f64::consts::TAU * variance).sqrt();
            let stall = if surprise > 0.0 { 2.0 * STALLS * (-2.0 * surprise).exp() } else { 0.0 };
            let share = if stall > 0.0 { (truth / (truth + stall)).max(1e-6) } else { 1.0 };
            if first {
                *likelihood += (truth + stall).max(1e-300).ln();
            }
            weights[candidate] = noise + variance * (1.0 - share) / share;
            belief.observe(candidate, time, weights[candidate]);
        }
    }

    /// Forgets what was believed and takes all timings in again.
    fn rebuild(&mut self) {
        self.beliefs = [SMOOTH, ROUGH].map(|prior| (Belief::new(&self.places, prior), 0.0));
        for candidate in 0..self.samples.len() {
            for index in 0..self.samples[candidate].len() {
                self.believe(candidate, self.samples[candidate][index], index == 0);
            }
        }
    }

    /// The one that is surely fast: the least upper bound of what is believed. A single timing that may be a stall leaves its
    /// candidate in doubt, so that it can't stand here.
    fn incumbent(&self) -> usize {
        let bound = |candidate: usize| self.belief().mean(candidate) + 2.0 * self.belief().variance(candidate).sqrt();
        (0..self.samples.len())
            .filter(|&candidate| !self.samples[candidate].is_empty() && self.rejected[candidate].is_none())
            .min_by(|&a, &b| bound(a).total_cmp(&bound(b)))
            .unwrap_or(0)
    }

    /// What trying a candidate once is worth, in dispatches of the incumbent: what it may save from now on, less its cost.
    /// Each belief counts as much as it is likely.
    fn gain(&self, incumbent: usize, candidate: usize) -> f64 {
        let horizon = self.horizon();
        let rough = self.roughness();
        let value = |belief: &Belief| {
            let (slower, deviation) = belief.slower(incumbent, candidate);
            let better = expected_excess(-slower, deviation);
            horizon * better - (better + slower)
        };
        let [(smooth_belief, _), (rough_belief, _)] = &self.beliefs;
        let value = (1.0 - rough) * value(smooth_belief) + rough * value(rough_belief);
        if value > 0.0 { value / horizon } else { value }
    }

    /// How likely it is that neighbours tell little about each other.
    fn roughness(&self) -> f64 {
        let [(_, smooth), (_, rough)] = &self.beliefs;
        1.0 / (1.0 + (smooth - rough + SMOOTHER).clamp(-30.0, 30.0).exp())
    }

    fn horizon(&self) -> f64 {
        (HORIZON - self.dispatches as f64).max(self.dispatches as f64).max(1.0)
    }

    /// One natural-gradient step of the policy towards the candidates that are worth a try.
    fn improve(&mut self, incumbent: usize) {
        let gains: Vec<f64> = (0..self.logits.len())
            .map(|candidate| match &self.rejected[candidate] {
                Some(_) => -1.0,
                None if candidate == incumbent => 0.0,
                None => self.gain(incumbent, candidate),
            })
            .collect();
        let policy = softmax(&self.logits);
        // Gradient of the expected gain, with entropy so that the policy has a goal it stops at.
        let goals: Vec<f64> = gains.iter().zip(&self.logits).map(|(gain, logit)| gain / TEMPERATURE - logit).collect();
        let average: f64 = policy.iter().zip(&goals).map(|(weight, goal)| weight * goal).sum();
        let gradient: Vec<f64> = policy.iter().zip(&goals).map(|(weight, goal)| weight * (goal - average)).collect();
        let step = natural_step(&policy, &gradient, DAMPING);
        for (logit, step) in self.logits.iter_mut().zip(step) {
            *logit += step;
        }
        let most = self.logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for logit in &mut self.logits {
            *logit = (*logit - most).max(-14.0);
        }
    }

    fn draw(&mut self) -> usize {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let mut at = (bits >> 11) as f64 / (1u64 << 53) as f64;
        for (candidate, weight) in softmax(&self.logits).into_iter().enumerate() {
            at -= weight;
            if at < 0.0 && self.rejected[candidate].is_none() {
                return candidate;
            }
        }
        self.incumbent()
    }

    /// Nothing is worth a try any more, and the incumbent and the default are known well enough to compare them.
    fn enough(&self, incumbent: usize) -> bool {
        let open = (0..self.samples.len())
            .filter(|&candidate| candidate != incumbent && self.rejected[candidate].is_none())
            .any(|candidate| self.gain(incumbent, candidate) > OPEN);
        self.samples[incumbent].len() >= 5 && (!open || self.dispatches > PATIENCE)
    }

    fn decide(&mut self, incumbent: usize) {
        let (gap, deviation) = self.belief().slower(incumbent, 0);
        let apart = gap - Z * deviation > 0.0;
        if incumbent != 0 && !apart && Z * deviation > 2.0 * MARGIN && self.dispatches < PATIENCE {
            return;
        }
        let chosen = if incumbent != 0 && !apart { 0 } else { incumbent };
        let clear =
            (0..self.samples.len()).filter(|&other| other != chosen && self.rejected[other].is_none()).all(|other| {
                let (slower, deviation) = self.belief().slower(chosen, other);
                slower - 3.5 * deviation > MARGIN
            });
        self.decided = Some((chosen, if clear { Verdict::Winner } else { Verdict::Tie }));
    }
}

/// The mean of the positive part of a normal variable.
fn expected_excess(mean: f64, deviation: f64) -> f64 {
    if deviation < 1e-12 {
        return mean.max(0.0);
    }
    let z = mean / deviation;
    let density = (-0.5 * z * z).exp() / (std::f64::consts::TAU).sqrt();
    mean * below(z) + deviation * density
}

/// The normal distribution function, by Abramowitz and Stegun 26.2.17.
fn below(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let tail = t
        * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))))
        * (-0.5 * z * z).exp()
        / (std::f64::consts::TAU).sqrt();
    if z >= 0.0 { 1.0 - tail } else { tail }
}

fn softmax(logits: &[f64]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logits.iter().map(|logit| (logit - most).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}
