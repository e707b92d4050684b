use super::stats::{self, Interval};

/// How much a campaign may measure and what it demands of a winner.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Rounds before the first halving.
    pub first_rounds: usize,
    /// How many candidates, besides the default, are compared to the end.
    pub finalists: usize,
    /// Most timed samples per candidate, on average over all of them; a campaign over few takes at least 64 samples.
    pub samples_per_candidate: usize,
    /// Differences below this (0.005 is half a percent) don't matter.
    pub margin: f64,
}

impl Default for Plan {
    fn default() -> Self {
        Plan { first_rounds: 2, finalists: 3, samples_per_candidate: 5, margin: 0.005 }
    }
}

/// What a campaign wants done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Run the candidate once, untimed, compare its results with the default's, and call [`Campaign::checked`].
    Check(usize),
    /// Run the candidate once, timed, and call [`Campaign::observe`].
    Measure(usize),
    /// Nothing: [`Campaign::outcome`] is there.
    Done,
}

/// Whether the choice is the fastest, or only the first of several that can't be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Faster than every other candidate, beyond the interval and the margin.
    Winner,
    /// The fastest ones can't be told apart; the earliest of them is used, so that fresh processes agree.
    Tie,
}

/// What a campaign found.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The candidate to use.
    pub chosen: usize,
    /// How sure that is.
    pub verdict: Verdict,
    /// Timed samples of all candidates.
    pub samples: usize,
    /// Timed samples of the chosen one, each paired with one of the default.
    pub pairs: usize,
    /// Time of the chosen one relative to the default's, less one: −0.3 is 30% faster.
    pub difference: f64,
    /// The interval of that difference, at 95%.
    pub interval: [f64; 2],
    /// Typical time of the chosen candidate and of the default.
    pub chosen_ns: u64,
    /// See `chosen_ns`.
    pub default_ns: u64,
    /// The runner-up and how much slower it is than the chosen one, where there is one.
    pub runner_up: Option<(usize, f64)>,
    /// Candidates that failed or gave other results, with the reason.
    pub rejected: Vec<(usize, String)>,
}

/// Normal quantiles: of the reported interval (95%), and of the much stricter one for calling something the winner, because
/// many candidates and many processes each have a chance to be wrong.
const Z: f64 = 1.96;
const Z_WINNER: f64 = 3.5;
/// Two samples of one candidate that differ by more than this can't both be typical.
const SUSPICIOUS: f64 = 0.08;
/// Times a candidate is measured until two samples agree.
const ATTEMPTS: usize = 5;

/// Finds the fastest of some candidates by measuring them in turns and dropping the slow ones early.
///
/// It has no clock and runs nothing: it says what to do next and is told what came of it. Candidates are numbered in their
/// fixed order and 0 is the default, which stays to the end. All that are still in the race are measured once per round, so
/// that drift of the device reaches all of them alike; after some rounds the best third stays.
///
/// ```
/// use vyre_driver::tuner::{Campaign, Plan, Step, Verdict};
/// let times = [2_000, 1_000, 3_000];
/// let mut campaign = Campaign::new(times.len(), Plan::default());
/// loop {
///     match campaign.step() {
///         Step::Check(candidate) => campaign.checked(candidate, Ok(())),
///         Step::Measure(candidate) => campaign.observe(candidate, times[candidate]),
///         Step::Done => break,
///     }
/// }
/// let outcome = campaign.outcome().unwrap();
/// assert_eq!((outcome.chosen, outcome.verdict), (1, Verdict::Winner));
/// ```
#[derive(Clone, Debug)]
pub struct Campaign {
    plan: Plan,
    racers: Vec<Racer>,
    /// Still in the race, in fixed order; the default is always among them.
    active: Vec<usize>,
    /// What remains to be measured in this round, last first.
    queue: Vec<usize>,
    round: usize,
    rounds_left: usize,
    stage: Stage,
}

#[derive(Clone, Debug)]
struct Racer {
    checked: bool,
    rejected: Option<String>,
    /// Round and logarithm of the time.
    samples: Vec<(usize, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Check,
    Race,
    Repeat,
    Final,
    Done,
}

impl Campaign {
    /// A campaign over so many candidates; the one with number 0 is the default.
    pub fn new(candidates: usize, plan: Plan) -> Self {
        let racer = Racer { checked: false, rejected: None, samples: Vec::new() };
        let mut campaign = Campaign {
            rounds_left: plan.first_rounds.max(2),
            plan,
            racers: vec![racer; candidates.max(1)],
            active: (0..candidates.max(1)).collect(),
            queue: Vec::new(),
            round: 0,
            stage: Stage::Check,
        };
        campaign.queue = campaign.active.iter().rev().copied().collect();
        campaign
    }

    /// A short campaign between the default and what was decided under other circumstances.
    pub fn recheck(plan: Plan) -> Self {
        Campaign::new(2, plan)
    }

    /// What to do next; the same answer until it is done.
    pub fn step(&self) -> Step {
        match (self.stage, self.queue.last()) {
            (Stage::Check, Some(&next)) => Step::Check(next),
            (Stage::Done, _) | (_, None) => Step::Done,
            (_, Some(&next)) => Step::Measure(next),
        }
    }

    /// The candidate ran, and its results agree with the default's, or the reason why not. A default that fails ends it all.
    pub fn checked(&mut self, candidate: usize, result: Result<(), String>) {
        match result {
            Ok(()) => self.racers[candidate].checked = true,
            Err(reason) => return self.reject(candidate, reason),
        }
        self.finish(candidate);
    }

    /// The candidate took so long.
    pub fn observe(&mut self, candidate: usize, ns: u64) {
        let round = self.round;
        self.racers[candidate].samples.push((round, (ns.max(1) as f64).ln()));
        self.finish(candidate);
    }

    /// The candidate failed, or gave wrong results, at any time.
    pub fn reject(&mut self, candidate: usize, reason: String) {
        self.racers[candidate].rejected.get_or_insert(reason);
        self.active.retain(|&active| active != candidate);
        if candidate == 0 {
            self.active.clear();
            self.queue.clear();
            self.stage = Stage::Done;
            return;
        }
        self.finish(candidate);
    }

    /// Timed samples so far.
    pub fn samples(&self) -> usize {
        self.racers.iter().map(|racer| racer.samples.len()).sum()
    }

    /// The decision, when it is made; `None` before, and when the default itself failed.
    pub fn outcome(&self) -> Option<Outcome> {
        (self.stage == Stage::Done && !self.active.is_empty()).then(|| self.judge())
    }

    /// Why the default failed, if so.
    pub fn default_failure(&self) -> Option<&str> {
        self.racers[0].rejected.as_deref()
    }

    fn budget(&self) -> usize {
        (self.plan.samples_per_candidate * self.racers.len()).max(64)
    }

    fn finish(&mut self, candidate: usize) {
        self.queue.retain(|&queued| queued != candidate);
        if self.queue.is_empty() && self.stage != Stage::Done {
            self.advance();
        }
    }

    /// The queue is empty: another round, another stage, or the end.
    fn advance(&mut self) {
        match self.stage {
            Stage::Check => self.stage = Stage::Race,
            Stage::Race | Stage::Final => {
                self.round += 1;
                self.rounds_left = self.rounds_left.saturating_sub(1);
            }
            Stage::Repeat => self.round += 1,
            Stage::Done => return,
        }
        if self.active.len() == 1 {
            // Only the default is left; one more sample gives it a time, if it has none.
            if self.racers[0].samples.is_empty() {
                self.stage = Stage::Final;
                self.queue = vec![0];
            } else {
                self.stage = Stage::Done;
            }
            return;
        }
        if self.stage == Stage::Final {
            if self.samples() + self.active.len() > self.budget() || self.settled() {
                self.stage = Stage::Done;
                return;
            }
        } else if self.rounds_left == 0 {
            self.stage = Stage::Repeat;
            let doubtful: Vec<usize> = self.active.iter().rev().copied().filter(|&c| self.doubtful(c)).collect();
            if !doubtful.is_empty() {
                self.queue = doubtful;
                return;
            }
            self.shrink();
        }
        self.queue = self.active.clone();
        // Every other round runs backwards, so that a slow drift favours nobody.
        if self.round.is_multiple_of(2) {
            self.queue.reverse();
        }
    }

    /// No two of its samples agree, so that all that is known of it may be stalls of the device.
    fn doubtful(&self, candidate: usize) -> bool {
        let samples = &self.racers[candidate].samples;
        let agree = |a: f64, b: f64| (a - b).abs() < SUSPICIOUS;
        let mut times: Vec<f64> = samples.iter().map(|(_, time)| *time).collect();
        times.sort_by(f64::total_cmp);
        samples.len() < ATTEMPTS && times.len() > 1 && !agree(times[0], times[1])
    }

    fn shrink(&mut self) {
        let means = self.means();
        let mut order: Vec<usize> = self.active.iter().copied().filter(|&c| c != 0).collect();
        order.sort_by(|&a, &b| means[a].total_cmp(&means[b]));
        let last = self.active.len() <= self.plan.finalists + 1;
        let keep = if last { order.len() } else { order.len().div_ceil(3).max(self.plan.finalists) };
        order.truncate(keep);
        order.push(0);
        order.sort_unstable();
        self.active = order;
        if self.active.len() <= self.plan.finalists + 1 {
            self.stage = Stage::Final;
        } else {
            self.stage = Stage::Race;
            // The fewer are left, the closer they are, and the cheaper a round is.
            self.rounds_left = if self.active.len() > self.racers.len() / 4 { 2 } else { 4 };
        }
    }

    /// Typical log time of every candidate without the drift of the rounds; infinite where there is none.
    fn means(&self) -> Vec<f64> {
        let rounds = self.round + 1;
        let mut drift = vec![0.0; rounds];
        let mut means = vec![f64::INFINITY; self.racers.len()];
        for _ in 0..3 {
            for (mean, racer) in means.iter_mut().zip(&self.racers) {
                let mut times: Vec<f64> = racer.samples.iter().map(|(round, time)| time - drift[*round]).collect();
                if !times.is_empty() {
                    *mean = stats::low_mean(&mut times);
                }
            }
            let mut rests = vec![Vec::new(); rounds];
            for (mean, racer) in means.iter().zip(&self.racers) {
                for (round, time) in &racer.samples {
                    rests[*round].push(time - mean);
                }
            }
            for round in 0..rounds {
                // A round of few says more about their noise than about the device.
                drift[round] = match rests[round].len() {
                    0..=2 if round > 0 => drift[round - 1],
                    0..=2 => 0.0,
                    _ => stats::median(&mut rests[round]),
                };
            }
        }
        means
    }

    /// How much slower `other` is than `best`, from the rounds that both ran in.
    fn slower(&self, best: usize, other: usize, z: f64) -> Interval {
        let theirs = &self.racers[other].samples;
        let mut pairs: Vec<f64> = Vec::new();
        for (round, time) in &self.racers[best].samples {
            if let Some((_, theirs)) = theirs.iter().find(|(other, _)| other == round) {
                pairs.push(theirs - time);
            }
        }
        stats::paired(&mut pairs, z)
    }

    fn best(&self, means: &[f64]) -> usize {
        // `min_by` keeps the first of equals.
        self.active.iter().copied().min_by(|&a, &b| means[a].total_cmp(&means[b])).unwrap_or(0)
    }

    /// More rounds would change nothing: every finalist is clearly slower than the best, or clearly as fast.
    fn settled(&self) -> bool {
        let best = self.best(&self.means());
        self.active.iter().filter(|&&other| other != best).all(|&other| {
            let strict = self.slower(best, other, Z_WINNER);
            strict.low() > self.plan.margin || strict.half < 2.0 * self.plan.margin
        })
    }

    fn judge(&self) -> Outcome {
        let means = self.means();
        let best = self.best(&means);
        // Indistinguishable from the best, in fixed order.
        let tied: Vec<usize> = self
            .active
            .iter()
            .copied()
            .filter(|&other| other == best || self.slower(best, other, Z).low() <= 0.0)
            .collect();
        let slower_than_default = |candidate: usize| candidate != 0 && self.slower(0, candidate, Z).low() > 0.0;
        let chosen = tied.iter().copied().find(|&candidate| !slower_than_default(candidate)).unwrap_or(0);
        let verdict = if chosen == best && tied.len() == 1 && self.clearly_fastest(best, &means) {
            Verdict::Winner
        } else {
            Verdict::Tie
        };
        let gap = self.slower(chosen, 0, Z);
        let relative = |log: f64| (-log).exp() - 1.0;
        let (difference, interval) = if chosen == 0 {
            (0.0, [0.0, 0.0])
        } else {
            (relative(gap.middle), [relative(gap.high()), relative(gap.low())])
        };
        let runner_up = self
            .active
            .iter()
            .copied()
            .filter(|&other| other != chosen)
            .min_by(|&a, &b| means[a].total_cmp(&means[b]))
            .map(|other| (other, (means[other] - means[chosen]).exp() - 1.0));
        Outcome {
            chosen,
            verdict,
            samples: self.samples(),
            pairs: self.racers[chosen].samples.len(),
            difference,
            interval,
            chosen_ns: means[chosen].exp().round() as u64,
            default_ns: means[0].exp().round() as u64,
            runner_up,
            rejected: self
                .racers
                .iter()
                .enumerate()
                .filter_map(|(index, racer)| racer.rejected.clone().map(|reason| (index, reason)))
                .collect(),
        }
    }

    /// Beyond all doubt that noise can cause, also against those that were dropped after few samples.
    fn clearly_fastest(&self, best: usize, means: &[f64]) -> bool {
        let finalists = self.active.iter().filter(|&&other| other != best);
        if finalists.into_iter().any(|&other| self.slower(best, other, Z_WINNER).low() < self.plan.margin) {
            return false;
        }
        let mut rests: Vec<f64> = Vec::new();
        for (mean, racer) in means.iter().zip(&self.racers) {
            rests.extend(racer.samples.iter().map(|(_, time)| time - mean));
        }
        let deviation = stats::robust_deviation(&mut rests);
        let dropped = (0..self.racers.len())
            .filter(|other| !self.active.contains(other) && self.racers[*other].rejected.is_none());
        dropped.into_iter().all(|other| {
            let doubt = Z_WINNER * deviation / (self.racers[other].samples.len() as f64).sqrt();
            means[other] - means[best] > doubt + self.plan.margin
        })
    }
}
