use super::natural::identity_fisher_q16_into;
use super::surface::{Expected, NOISE, Surface, Timed};
use super::{NaturalGradientPolicy, Outcome, Q16_ONE, Timing, TuningMeasurement, Verdict};

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
/// It has no clock, no threads and runs nothing; candidate 0 is the default. The first dispatches run on the default. Then those
/// candidates are tried that are worth it: what is expected of them, from the times of their neighbours, times the dispatches to
/// come, has to pay for the try, and the more was spent already, the more it has to promise. A stop is not made before each direction
/// from the fastest was tried twice and its neighbours once, where that is not dear. Then dispatches are drawn from the weights that a
/// [`NaturalGradientPolicy`] gives to those that may still be the fastest, until one is, or the time is over: for up to 16
/// candidates that is at most 60 dispatches.
#[derive(Clone, Debug)]
pub struct OnlineTuner {
    places: Vec<Vec<u32>>,
    surface: Surface,
    /// Log times of every candidate without the drift of the device.
    times: Vec<Vec<f64>>,
    samples: usize,
    /// How much slower the device is now than at first, as a logarithm.
    drift: f64,
    expected: Vec<Expected>,
    /// The fastest when the search ended.
    searched: Option<usize>,
    /// What the dispatches so far have cost more than the fastest would have, in dispatches of the fastest.
    spent: f64,
    hint: Option<usize>,
    /// What is believed to be the fastest before anything was timed.
    preferred: Option<usize>,
    /// How often there was a second look.
    looks: u32,
    /// How often each was drawn last, of [`Q16_ONE`].
    weights: Vec<u32>,
    /// The identity, kept so that it is not made for every dispatch.
    preconditioner: Vec<u32>,
    rejected: Vec<Option<String>>,
    checked: Vec<bool>,
    random: u64,
    decided: Option<(usize, Verdict)>,
}

/// Dispatches of a preferred candidate before the default is tried, which may be slower by far.
const TRUSTED: usize = 32;
/// A default that is slower than the preferred one by this, as a logarithm, is not timed again.
const FAR_SLOWER: f64 = 0.7;
/// What is learnt has to pay for itself within so many dispatches.
const HORIZON: f64 = 1_000.0;
/// Until the dispatches so far have cost so many dispatches of the fastest, whoever may be the fastest at all is worth a try, ...
const LEAST_SPENT: f64 = 3.0;
/// ... from so many on a try has to promise as much again, ...
const MUCH_SPENT: f64 = 20.0;
/// ... and none is made only to be sure of a direction.
const MOST_SPENT: f64 = 28.0;
/// A try has to promise so many dispatches.
const LEAST_GAIN: f64 = 1.0;
/// A try costs at least so much in the comparison of tries, because it is also compiled.
const TRY: f64 = 0.6;
/// No try that is expected to cost so many dispatches is made only to be sure of a direction.
const DEAR: f64 = 4.0;
/// After so many dispatches, and so many for each candidate, what is known has to be enough.
const PATIENCE: usize = 26;
const PATIENCE_EACH: usize = 2;
/// The same for each beyond so many candidates: a plain of launches that are alike takes time to tell apart, and costs little meanwhile.
const PATIENCE_MORE: usize = 6;
const FEW: usize = 16;
/// Timings of one candidate that are slower than its fastest by more than this are stalls.
const STALL: f64 = 0.12;
/// Second looks before the search ends, while tries have cost no more than so many dispatches.
const MOST_LOOKS: u32 = 3;
const LOOK_SPENT: f64 = 5.0;
/// The same for those that may have stalled, as stalls count too.
const STALL_SPENT: f64 = 14.0;
/// So many timings of one candidate may all be stalls.
const MOST_STALLS: usize = 2;
/// A timing that is slower than the fastest by this may be a stall, where something no more than so many steps away is almost as fast.
const SURPRISE: f64 = 0.3;
const PROMISING: f64 = 0.15;
const BESIDE: u32 = 1;
/// Neighbours of the fastest are no more than so many steps away. They are tried before the search ends, until the dispatches have
/// cost so many, and again where a single timing was a surprise, until they have cost so few; whatever is cheap is tried.
const NEIGHBOUR: u32 = 2;
const NEIGHBOURS_SPENT: f64 = 10.0;
const AGAIN_SPENT: f64 = 3.0;
const CHEAP: f64 = 1.0;
/// A candidate is far away that is so many steps from all that were tried.
const LONELY: u32 = 2;
/// A single timing tells the drift of the device to this share.
const WANDER: f64 = 0.012;
/// A single timing compared with others is off by this, and intervals are so many times as wide.
const SPREAD: f64 = 0.025;
const Z: f64 = 2.2;
/// A launch other than the default has to be faster by this, and those whose difference is known better are told apart.
const MARGIN: f64 = 0.01;
const TOLD_APART: f64 = 0.02;
/// A difference of this much is believed whatever the doubt.
const CLEAR: f64 = 0.1;
/// Candidates that are slower than the fastest by this share of its time are drawn e times less often.
const TEMPERATURE: f64 = 0.02;

impl OnlineTuner {
    /// A tuner over candidates at these places of a space, as [`Candidates::places`](super::Candidates) gives them. Equal
    /// seeds and timings give equal choices.
    pub fn new(places: &[Vec<u32>], seed: u64) -> Self {
        let places = if places.is_empty() { vec![Vec::new()] } else { places.to_vec() };
        let n = places.len();
        let surface = Surface::new(&places);
        OnlineTuner {
            places,
            expected: surface.expect(&[]),
            surface,
            times: vec![Vec::new(); n],
            samples: 0,
            drift: 0.0,
            searched: None,
            spent: 0.0,
            hint: None,
            preferred: None,
            looks: 0,
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

    /// The first dispatches run with this candidate instead of the default, which is tried after them: once where it is slower by far,
    /// else as often as any other. Its author knows that it is fast, so that nobody waits for a slow default to find that out.
    pub fn prefer(&mut self, candidate: usize) {
        self.preferred = Some(candidate).filter(|&candidate| candidate > 0 && candidate < self.places.len());
    }

    /// The preferred candidate, while it may be used.
    fn trusted(&self) -> Option<usize> {
        self.preferred.filter(|&preferred| self.rejected[preferred].is_none())
    }

    /// What to do with the next dispatch. The first ones run on the default.
    pub fn turn(&mut self) -> Turn {
        if let Some((candidate, _)) = self.decided {
            return Turn::Use(candidate);
        }
        let trusted = self.trusted();
        if let Some(trusted) = trusted.filter(|&trusted| self.times[trusted].len() < TRUSTED) {
            return Turn::Run(trusted);
        }
        // One timing may be a stall of the device, and all others are compared with these.
        let is_far_slower = |trusted: usize| match (self.typical(0), self.typical(trusted)) {
            (Some(own), Some(known)) => own.time - known.time > FAR_SLOWER,
            _ => false,
        };
        if self.times[0].len() < 5
            && self.typical(0).is_none_or(|own| own.count < 2)
            && !trusted.is_some_and(is_far_slower)
        {
            return Turn::Run(0);
        }
        let fastest = self.fastest();
        if !self.is_over() {
            if let Some(next) = self.search(fastest) {
                return Turn::Run(next);
            }
            if self.times[fastest].len() < 4 && self.typical(fastest).is_none_or(|known| known.count < 2) {
                return Turn::Run(fastest);
            }
            let open = self.contenders(fastest);
            if open.len() > 1 {
                self.weigh(&open);
                return Turn::Run(self.draw(fastest));
            }
        }
        let chosen = self.choose(fastest);
        if !self.checked[chosen] {
            return Turn::Check(chosen);
        }
        self.decided = Some((chosen, if chosen == 0 { Verdict::Tie } else { Verdict::Winner }));
        Turn::Use(chosen)
    }

    /// The candidate took so long.
    pub fn observe(&mut self, candidate: usize, ns: u64) {
        let time = (ns.max(1) as f64).ln();
        let Expected { time: expected, doubt, .. } = self.expected[candidate];
        if self.samples > 0 && doubt < CLEAR {
            let off = (time - expected - self.drift).clamp(-CLEAR, CLEAR);
            let wander = WANDER * WANDER;
            self.drift += off * wander / (wander + doubt * doubt + NOISE * NOISE);
        }
        let time = time - self.drift;
        self.samples += 1;
        self.times[candidate].push(time);
        if self.searched.is_some() {
            // Nobody asks any more what is expected of those that were not tried.
            if let Some(known) = self.typical(candidate) {
                let doubt = NOISE / (known.count as f64).sqrt();
                self.expected[candidate] = Expected { time: known.time, doubt, ..self.expected[candidate] };
            }
        } else {
            self.expect();
        }
        self.spent = self.cost_so_far();
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

    /// What has been the fastest so far, for dispatches that nothing is to be learnt from.
    pub fn best_so_far(&self) -> usize {
        self.decided.as_ref().map_or_else(|| self.fastest(), |(candidate, _)| *candidate)
    }

    /// Timed dispatches so far.
    pub fn samples(&self) -> u64 {
        self.samples as u64
    }

    /// The weights that the latest dispatches were drawn by.
    pub fn policy(&self) -> Vec<f64> {
        let sum: u32 = self.weights.iter().sum();
        self.weights.iter().map(|weight| f64::from(*weight) / f64::from(sum.max(1))).collect()
    }

    /// The decision and its evidence, when there is enough.
    pub fn outcome(&self) -> Option<Outcome> {
        let (chosen, verdict) = self.decided?;
        let relative = |log: f64| log.exp() - 1.0;
        let gap = |a: usize, b: usize| self.expected[a].time - self.expected[b].time;
        let interval = |candidate: usize| {
            let (gap, doubt) = (gap(candidate, 0), self.doubt(candidate, 0));
            [relative(gap - doubt), relative(gap + doubt)]
        };
        let ns = |candidate: usize| self.expected[candidate].time.exp().round() as u64;
        let timed = |candidate: &usize| !self.times[*candidate].is_empty();
        let runner_up = self.able().filter(|other| *other != chosen && timed(other));
        let runner_up = runner_up
            .min_by(|&a, &b| self.expected[a].time.total_cmp(&self.expected[b].time))
            .map(|other| (other, relative(gap(other, chosen))));
        Some(Outcome {
            chosen,
            verdict,
            samples: self.samples,
            pairs: self.times[chosen].len(),
            difference: relative(gap(chosen, 0)),
            interval: if chosen == 0 { [0.0; 2] } else { interval(chosen) },
            chosen_ns: ns(chosen),
            default_ns: ns(0),
            runner_up,
            timings: (0..self.places.len())
                .filter(timed)
                .map(|candidate| {
                    let interval = (candidate > 0).then(|| interval(candidate));
                    Timing { candidate, ns: ns(candidate), samples: self.times[candidate].len(), interval }
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

    /// What was timed of a candidate, without the stalls: nothing makes a dispatch fast by chance.
    fn typical(&self, candidate: usize) -> Option<Timed> {
        let times = &self.times[candidate];
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        let typical = times.iter().filter(|time| **time < least + STALL);
        let (sum, count) = typical.fold((0.0, 0), |(sum, count), time| (sum + time, count + 1));
        (count > 0).then(|| Timed { candidate, time: sum / count as f64, count })
    }

    fn expect(&mut self) {
        let timed: Vec<Timed> = (0..self.times.len()).filter_map(|candidate| self.typical(candidate)).collect();
        self.expected = self.surface.expect(&timed);
    }

    /// What the dispatches so far have cost more than the fastest would have.
    fn cost_so_far(&self) -> f64 {
        let now = self.expected[self.fastest()].time;
        let more = |candidate: usize| {
            let typical = self.typical(candidate).filter(|_| !self.expected[candidate].open);
            let off = typical.map_or(0.0, |known| (known.time - now).clamp(0.0, 3.0).exp() - 1.0);
            off * self.times[candidate].len() as f64
        };
        (0..self.times.len()).map(more).sum()
    }

    fn is_over(&self) -> bool {
        let n = self.places.len();
        self.samples >= PATIENCE + PATIENCE_EACH * n.min(FEW) + PATIENCE_MORE * n.saturating_sub(FEW)
    }

    /// Those that may be used.
    fn able(&self) -> impl Iterator<Item = usize> {
        (0..self.places.len()).filter(|&candidate| self.rejected[candidate].is_none())
    }

    fn fastest(&self) -> usize {
        let timed = self.able().filter(|&candidate| !self.times[candidate].is_empty());
        let fastest = timed.min_by(|&a, &b| self.expected[a].time.total_cmp(&self.expected[b].time));
        fastest.or(self.trusted()).unwrap_or(0)
    }

    /// The next candidate that is worth a try, until none is.
    fn search(&mut self, fastest: usize) -> Option<usize> {
        if self.searched == Some(fastest) {
            return None;
        }
        if self.searched.take().is_some() {
            // Another one has become the fastest, so that its surroundings matter.
            self.expect();
        }
        // Wanted until it has run: whoever asks may have to compile it first.
        let hint = self.hint.filter(|&hint| self.times[hint].is_empty() && self.rejected[hint].is_none());
        let next = hint.or_else(|| self.worth_a_try(fastest));
        let next = next.or_else(|| self.unsure_direction(fastest).filter(|_| self.spent < MOST_SPENT));
        let next = next.or_else(|| self.unknown_neighbour(fastest));
        let next = next.or_else(|| self.second_look(fastest));
        if next.is_none() {
            self.searched = Some(fastest);
        }
        next
    }

    /// What a try promises and what it costs, in dispatches of the fastest.
    fn promise(&self, candidate: usize, fastest: usize) -> (f64, f64) {
        let Expected { time, doubt, .. } = self.expected[candidate];
        let now = self.expected[fastest].time;
        let left = HORIZON - (self.samples as f64).min(0.9 * HORIZON);
        let gain = left * doubt * expected_gain((now - time) / doubt);
        let cost = ((time - now + 0.5 * doubt * doubt).min(2.5).exp() - 1.0).max(0.0);
        (gain, cost)
    }

    fn worth_a_try(&self, fastest: usize) -> Option<usize> {
        let open = self.able().filter(|&candidate| candidate != fastest && self.expected[candidate].open);
        let worth = open.filter_map(|candidate| {
            let (gain, cost) = self.promise(candidate, fastest);
            let is_cheap = self.spent + cost < LEAST_SPENT;
            let pays = gain > LEAST_GAIN + cost && (self.spent < MUCH_SPENT || gain > self.spent);
            (pays || is_cheap).then_some((gain / (cost + TRY), candidate))
        });
        best_of(worth)
    }

    /// A candidate in a direction from the fastest in which fewer than two dispatches were seen, so that a single stall may hide what is
    /// there.
    fn unsure_direction(&self, fastest: usize) -> Option<usize> {
        let own = &self.places[fastest];
        let mut worth = Vec::new();
        for axis in 0..own.len() {
            for further in [false, true] {
                let is_there = |candidate: &usize| {
                    let place = &self.places[*candidate];
                    let beside = |other: usize| other == axis || place[other].abs_diff(own[other]) <= 1;
                    let ahead = if further { place[axis] > own[axis] } else { place[axis] < own[axis] };
                    ahead && (0..own.len()).all(beside)
                };
                let seen: usize = self.able().filter(is_there).map(|candidate| self.times[candidate].len()).sum();
                if seen >= 2 {
                    continue;
                }
                for candidate in self.able().filter(is_there) {
                    let (gain, cost) = self.promise(candidate, fastest);
                    if self.times[candidate].len() < 2 && cost < DEAR {
                        worth.push(((gain + 1.0) / (cost + TRY), candidate));
                    }
                }
            }
        }
        best_of(worth.into_iter())
    }

    /// Before the search ends: a neighbour of the fastest that was never timed, or only once and so slow that it may have been a stall.
    fn unknown_neighbour(&self, fastest: usize) -> Option<usize> {
        let now = self.expected[fastest].time;
        let is_known = |candidate: usize| match self.times[candidate][..] {
            [] => false,
            [only] => only - now < SURPRISE || self.spent > AGAIN_SPENT,
            _ => true,
        };
        let near = self.able().filter(|&other| other != fastest && self.steps(other, fastest) <= NEIGHBOUR);
        best_of(near.filter(|&other| !is_known(other)).filter_map(|candidate| {
            let (_, cost) = self.promise(candidate, fastest);
            (self.spent + cost < NEIGHBOURS_SPENT || cost < CHEAP).then_some((-cost, candidate))
        }))
    }

    /// Before the search ends, where tries have cost little so far: a candidate beside fast ones whose one or two timings were far
    /// slower, which may be stalls, or else one that is far from everything that was tried, where what is expected is a guess.
    fn second_look(&mut self, fastest: usize) -> Option<usize> {
        if self.looks >= MOST_LOOKS {
            return None;
        }
        let now = self.expected[fastest].time;
        let timed: Vec<usize> = self.able().filter(|&other| !self.times[other].is_empty()).collect();
        let affordable = |cost: f64| self.spent + cost < LOOK_SPENT;
        let doubtful = timed.iter().copied().filter_map(|candidate| {
            let times = &self.times[candidate];
            let least = times.iter().copied().fold(f64::INFINITY, f64::min);
            if times.len() > MOST_STALLS {
                return None;
            }
            let beside = timed.iter().filter(|&&other| other != candidate && self.steps(candidate, other) <= BESIDE);
            let promised = beside.map(|&other| self.expected[other].time - now).fold(f64::INFINITY, f64::min);
            let off = least - now;
            (off > SURPRISE && promised < PROMISING && self.spent < STALL_SPENT).then_some((-promised, candidate))
        });
        let found = best_of(doubtful).or_else(|| {
            let untried = self.able().filter(|&candidate| self.times[candidate].is_empty());
            best_of(untried.filter_map(|candidate| {
                let far = timed.iter().map(|&other| self.steps(candidate, other)).min()?;
                let (_, cost) = self.promise(candidate, fastest);
                (far >= LONELY && affordable(cost)).then_some((f64::from(far) - cost, candidate))
            }))
        });
        self.looks += u32::from(found.is_some());
        found
    }

    /// How far two candidates are from each other.
    fn steps(&self, a: usize, b: usize) -> u32 {
        self.places[a].iter().zip(&self.places[b]).map(|(a, b)| a.abs_diff(*b)).sum()
    }

    /// How far the difference of two may be from what it seems.
    fn doubt(&self, a: usize, b: usize) -> f64 {
        if a == b {
            return 0.0;
        }
        let variance = |candidate: usize| 1.0 / self.times[candidate].len().max(1) as f64;
        Z * SPREAD * (variance(a) + variance(b)).sqrt()
    }

    /// Those that may be the fastest, and the default while it may be as good.
    fn contenders(&self, fastest: usize) -> Vec<usize> {
        let is_open = |candidate: usize| {
            if candidate == fastest {
                return true;
            }
            let gap = self.expected[candidate].time - self.expected[fastest].time;
            let doubt = self.doubt(candidate, fastest);
            // The default is preferred within the margin; others only matter if they may be faster, and not if they are alike.
            let line = if candidate == 0 { MARGIN } else { 0.0 };
            gap < line + doubt && (gap > line - doubt || candidate != 0) && doubt > TOLD_APART
        };
        let timed = self.able().filter(|&candidate| !self.times[candidate].is_empty());
        timed.filter(|&candidate| !self.expected[candidate].open && is_open(candidate)).collect()
    }

    /// The fastest, unless it can't be told from the default. What is wrong by chance costs as much either way, so that no more than
    /// likely is asked for.
    fn choose(&self, fastest: usize) -> usize {
        let gap = self.expected[0].time - self.expected[fastest].time;
        if gap < MARGIN || gap < (0.5 * self.doubt(fastest, 0)).min(CLEAR) { 0 } else { fastest }
    }

    /// Weighs the candidates that are open by their times.
    fn weigh(&mut self, open: &[usize]) {
        let measurement = |&candidate: &usize| {
            // What is known less well is given the benefit of the doubt.
            let benefit = SPREAD / (self.times[candidate].len() as f64).sqrt();
            let elapsed_ns = (self.expected[candidate].time - benefit).exp() as u64;
            TuningMeasurement { workgroup_size: [candidate as u32 + 1, 1, 1], elapsed_ns }
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

/// The one with the highest score, the first of equals.
fn best_of(scored: impl Iterator<Item = (f64, usize)>) -> Option<usize> {
    scored.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, candidate)| candidate)
}

/// By how much a standard normal value is expected to be below `z`, where only what is below counts.
fn expected_gain(z: f64) -> f64 {
    let density = (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
    // The normal distribution, to three digits.
    let share = 1.0 / (1.0 + (-1.5976 * z - 0.070_566 * z.powi(3)).exp());
    (density + z * share).max(0.0)
}
