use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::stats::{self, Interval, Timed, Typical};

/// How much a campaign may measure and what it demands of a winner.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Rounds before the first halving.
    pub first_rounds: usize,
    /// How many candidates, besides the default, are compared to the end.
    pub finalists: usize,
    /// Most timed samples per candidate, on average over all of them; a campaign over few takes up to 112 samples.
    pub samples_per_candidate: usize,
    /// A winner is faster than the default by more than this (0.005 is half a percent).
    pub margin: f64,
    /// What is not faster than the default by this much more than its margin, or by more than is in doubt, is hardly ever certified: it is
    /// not worth a try, nor worth leaving a faster one for that would be.
    pub clearly: f64,
    /// Candidates that are no further than this from the fastest are as good as it; the earliest of them is taken, so that fresh
    /// processes agree.
    pub near: f64,
    /// Neighbouring runs of the chosen candidate and the default that decide in the end.
    pub pairs: usize,
    /// As long as they leave it open they are doubled, up to so many times as many.
    pub most_pairs: usize,
    /// What is off by four times this or less is no stall, however quiet the device seems.
    pub steadiest: f64,
    /// They are run in so many sittings, a while apart, ...
    pub sittings: usize,
    /// ... over which a winner is faster than the default by its margin and this much more, on average.
    pub typically: f64,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            first_rounds: 2,
            finalists: 4,
            samples_per_candidate: 7,
            margin: 0.005,
            clearly: 0.007,
            near: 0.02,
            pairs: 12,
            most_pairs: 2,
            steadiest: 0.0,
            sittings: 1,
            typically: 0.0,
        }
    }
}

impl Plan {
    /// For processors. What else a machine is doing changes how much launches differ there, by percents and for seconds, however well each
    /// of them is measured: what differs by less is no reason to choose, and what decides is the mean over a while, in many short sittings
    /// rather than in a few long ones.
    pub fn for_processors() -> Self {
        Plan {
            margin: 0.018,
            clearly: 0.012,
            near: 0.03,
            pairs: 3,
            most_pairs: 1,
            steadiest: 0.01,
            sittings: 10,
            typically: 0.017,
            ..Plan::default()
        }
    }

    /// Most timed samples of a campaign over so many candidates, but for more pairs of two where the machine is noisy.
    pub fn most_samples(&self, candidates: usize) -> usize {
        (self.samples_per_candidate * candidates).max(112)
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

/// How sure a choice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Faster than the default, beyond the interval and the margin, in runs that had no part in choosing it.
    Winner,
    /// Nothing is: the default is used.
    Tie,
    /// The device is too noisy to tell: nothing is decided.
    Noisy,
}

/// One candidate's times in a campaign.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The candidate.
    pub candidate: usize,
    /// Typical time.
    pub ns: u64,
    /// Timed samples.
    pub samples: usize,
    /// Interval of its time relative to the default's, less one, at 95%; `None` where it was dropped early.
    pub interval: Option<[f64; 2]>,
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
    /// Neighbouring runs of the chosen candidate and the default that the difference rests on.
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
    /// Every candidate that was timed.
    pub timings: Vec<Timing>,
    /// Candidates that failed or gave other results, with the reason.
    pub rejected: Vec<(usize, String)>,
}

/// Normal quantiles: of the reported interval (95%, and a little wider because neighbouring runs are not quite independent), and of the stricter one for calling something the winner, which may be wrong in
/// fewer than one of a hundred campaigns.
const Z: f64 = 2.3;
const Z_WINNER: f64 = 2.8;
/// An interval that is wider than this on each side, and holds zero, tells nothing.
const NOISY: f64 = 0.04;
/// Launches of the same code are as good as each other that differ by so many times as much as others: what they differ by comes and goes
/// with the state of the machine.
const SAME_CODE: f64 = 2.0;
/// The line between as good and slower is drawn between these multiples of `near`, where it changes least.
const NARROW: f64 = 0.7;
const WIDE: f64 = 1.0;
/// Where many are alike, so many times the finalists of the plan are compared to the end.
const MOST_FINALISTS: usize = 3;
/// A choice that looks faster by this much more than its margin may be certified by more pairs.
const OPEN: f64 = 0.005;
/// What is called faster is faster by more than this beyond doubt, whatever its margin.
const SURELY: f64 = 0.005;
/// So many deviations are beyond doubt while the search is on; what is chosen is certified in runs of its own.
const SURE: f64 = 3.0;
/// No device is steadier than this from one sample to the next.
const STEADIEST: f64 = 0.0005;
/// By so much a typical time that stalls don't move varies more than a mean would.
const TYPICAL: f64 = 1.05;
/// No launch is taken or left, unless it is slower by more than `FAR`, before it was measured in so many rounds.
const LEAST_ROUNDS: usize = 4;
const FAR: f64 = 0.05;
/// What is faster by so much more than it has to be, in so many sittings, is so in others. In spells that last for seconds, launches that
/// are alike differ by up to 25%.
const PLAIN: [(usize, f64); 2] = [(2, 0.3), (6, 0.1)];
/// What is slower than it has to be by `FAR` in so many sittings is so in others.
const LEAST_SITTINGS: usize = 5;
/// What is so near to what decides is looked at in twice as many sittings.
const CLOSE: f64 = 0.015;
/// A sitting in which launches take twice as long counts an eighth: what slows them down for a while is seldom there.
const SLOWER_COUNTS_LESS: f64 = 3.0;
/// Two samples of one candidate that differ by more than this can't both be typical.
const SUSPICIOUS: f64 = 0.08;
/// So many others are measured besides those that are measured again.
const REFERENCES: usize = 3;
/// Times a candidate is measured until two samples agree.
const ATTEMPTS: usize = 5;

/// Finds the fastest of some candidates by measuring them in turns and dropping the slow ones early.
///
/// It has no clock and runs nothing: it says what to do next and is told what came of it. Candidates are numbered in their
/// fixed order and 0 is the default, which stays to the end. All that are still in the race are measured once per round, so
/// that drift of the device reaches all of them alike; after some rounds the best third stays. Whoever is fastest of many was
/// lucky, too, so that what chose it can't say how fast it is: in the end it runs a fixed number of times beside the default, and
/// only those runs count for the verdict and the interval.
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
    /// How the choice is certified, once it is made.
    certify: Option<Certify>,
}

#[derive(Clone, Debug)]
struct Racer {
    checked: bool,
    rejected: Option<String>,
    samples: Vec<Sample>,
    /// By so much it has to be faster than the default.
    margin: f64,
    /// The same number for all that run the same code.
    code: usize,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    round: usize,
    /// How many were taken before it.
    number: usize,
    /// Logarithm of the time.
    time: f64,
}

/// How much slower a candidate is than the fastest.
#[derive(Clone, Copy, Debug)]
struct Gap {
    candidate: usize,
    /// Difference of the logarithms of their times.
    log: f64,
    /// How far that is typically off.
    doubt: f64,
}

/// The runs that certify a choice.
#[derive(Clone, Debug)]
struct Certify {
    /// The round in which the first sitting began.
    first: usize,
    /// The round in which this sitting began, and how many pairs it takes.
    began: usize,
    pairs: usize,
    /// The sittings that are over.
    sittings: Vec<Sitting>,
}

/// What came of a sitting.
#[derive(Clone, Copy, Debug)]
struct Sitting {
    /// How much slower the default was than the choice.
    gap: f64,
    /// Logarithm of the time of both.
    level: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Check,
    Race,
    Repeat,
    Final,
    /// Pairs of the chosen candidate and the default.
    Certify,
    Done,
}

impl Campaign {
    /// A campaign over so many candidates; the one with number 0 is the default.
    pub fn new(candidates: usize, plan: Plan) -> Self {
        let racer = |code| Racer { checked: false, rejected: None, samples: Vec::new(), margin: plan.margin, code };
        let racers = (0..candidates.max(1)).map(racer).collect();
        let mut campaign = Campaign {
            rounds_left: plan.first_rounds.max(2),
            plan,
            racers,
            active: (0..candidates.max(1)).collect(),
            queue: Vec::new(),
            round: 0,
            stage: Stage::Check,
            certify: None,
        };
        campaign.queue = campaign.active.iter().rev().copied().collect();
        campaign
    }

    /// The candidate has to be faster than the default by more than this, whatever the plan says.
    pub fn demand(&mut self, candidate: usize, margin: f64) {
        self.racers[candidate].margin = margin;
    }

    /// The candidate runs the same code as another one, which is not the default's, in other pieces.
    pub fn same_code(&mut self, candidate: usize, other: usize) {
        self.racers[candidate].code = self.racers[other].code;
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
        let sample = Sample { round: self.round, number: self.samples(), time: (ns.max(1) as f64).ln() };
        self.racers[candidate].samples.push(sample);
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

    /// The round of the next step. What is measured in one round is compared with each other.
    pub fn round(&self) -> usize {
        self.round
    }

    /// Sittings that are over. Before another begins a while should pass, so that what else the machine did in one is not there in the next.
    pub fn sittings(&self) -> usize {
        self.certify.as_ref().map_or(0, |certify| certify.sittings.len())
    }

    /// What is still to be measured in this round, in its order; all of it can be measured in turns.
    pub fn turn(&self) -> Vec<usize> {
        self.queue.iter().rev().copied().collect()
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

    /// Most samples before certifying begins.
    fn budget(&self) -> usize {
        self.plan.most_samples(self.racers.len()) - 2 * self.plan.pairs * self.plan.sittings.min(LEAST_SITTINGS)
    }

    /// Ends the search with what is known, because the time is over: the fastest so far is certified if it has been compared at all.
    pub fn hurry(&mut self) {
        if matches!(self.stage, Stage::Race | Stage::Repeat | Stage::Final) {
            self.queue.clear();
            self.begin_to_certify();
        }
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
            Stage::Race | Stage::Final | Stage::Certify => {
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
        if self.stage == Stage::Certify {
            self.go_on_certifying();
            return;
        }
        if self.stage == Stage::Final {
            self.queue = self.contenders();
            if self.samples() + self.queue.len() > self.budget() || self.queue.len() < 2 {
                self.begin_to_certify();
            } else if self.round.is_multiple_of(2) {
                self.queue.reverse();
            }
            return;
        }
        if self.rounds_left == 0 {
            self.stage = Stage::Repeat;
            let (mut doubtful, others): (Vec<usize>, Vec<usize>) =
                self.active.iter().rev().copied().partition(|&candidate| self.doubtful(candidate));
            if !doubtful.is_empty() {
                // What the device is like in this round only others can tell.
                doubtful.extend(others.iter().rev().take(REFERENCES));
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
        let mut times: Vec<f64> = samples.iter().map(|sample| sample.time).collect();
        times.sort_by(f64::total_cmp);
        samples.len() < ATTEMPTS && times.len() > 1 && !agree(times[0], times[1])
    }

    /// The search is over: the choice runs beside the default.
    fn begin_to_certify(&mut self) {
        let mut chosen = self.choose();
        if chosen == 0 {
            // Where the default only seems to be the fastest, the next one has its chance, too.
            let gaps = self.gaps();
            let next = gaps.iter().filter(|gap| gap.candidate != 0).min_by(|a, b| a.log.total_cmp(&b.log));
            let doubt = gaps.iter().map(|gap| gap.doubt).fold(0.0, f64::max);
            let next = next.filter(|gap| gap.log.is_finite() && SURE * doubt > NOISY).map(|gap| gap.candidate);
            match self.hopeful(&gaps).or(next) {
                Some(next) => chosen = next,
                None => {
                    self.stage = Stage::Done;
                    return;
                }
            }
        }
        self.stage = Stage::Certify;
        self.active = vec![0, chosen];
        self.certify =
            Some(Certify { first: self.round, began: self.round, pairs: self.plan.pairs, sittings: Vec::new() });
        self.pair_up();
    }

    /// What is faster than the default by its margin for now, where sittings will tell what it is typically.
    fn hopeful(&self, gaps: &[Gap]) -> Option<usize> {
        let own = gaps.iter().find(|gap| gap.candidate == 0)?.log;
        let is_faster = |gap: &&Gap| gap.candidate != 0 && own - gap.log > self.racers[gap.candidate].margin;
        let faster: Vec<Gap> = gaps.iter().filter(is_faster).copied().collect();
        if self.plan.sittings > 1 { self.lasting(&faster) } else { None }
    }

    /// A pair is over: another one, another sitting, or the end.
    fn go_on_certifying(&mut self) {
        let is_open = self.is_open();
        let sitting = self.sitting();
        let Some(certify) = &mut self.certify else { return };
        if self.round - certify.began >= certify.pairs {
            if certify.pairs < self.plan.most_pairs * self.plan.pairs && is_open {
                // As many again; looking after each of them would find a winner in anything.
                certify.pairs *= 2;
            } else {
                certify.sittings.push(sitting);
                certify.began = self.round;
                let over = certify.sittings.len();
                if self.is_plain() || (over == self.plan.sittings && !self.is_close()) || over == 2 * self.plan.sittings
                {
                    self.stage = Stage::Done;
                    return;
                }
            }
        }
        self.pair_up();
    }

    /// What the runs since this sitting began say.
    fn sitting(&self) -> Sitting {
        let gap = self.certified(Z).map_or(0.0, |(_, gap)| gap.middle);
        let began = self.certify.as_ref().map_or(0, |certify| certify.began);
        let samples = self.active.iter().flat_map(|&racer| &self.racers[racer].samples);
        let mut times: Vec<f64> = samples.filter(|sample| sample.round >= began).map(|sample| sample.time).collect();
        Sitting { gap, level: stats::median(&mut times) }
    }

    /// The sittings so far are so far from what would change the verdict that others won't.
    fn is_plain(&self) -> bool {
        let (Some(certify), Some(&chosen), Some((gap, least))) =
            (&self.certify, self.active.last(), self.typical_gap())
        else {
            return false;
        };
        let count = certify.sittings.len();
        if gap > least {
            let is_far = PLAIN.iter().any(|(sittings, far)| count >= *sittings && gap - least > *far);
            is_far && self.is_surely_faster(chosen, certify.first)
        } else {
            count >= LEAST_SITTINGS && least - gap > FAR && !self.is_unclear(chosen, certify.first)
        }
    }

    /// As many sittings again may change the verdict.
    fn is_close(&self) -> bool {
        let (Some(certify), Some(&chosen), Some((gap, least))) =
            (&self.certify, self.active.last(), self.typical_gap())
        else {
            return false;
        };
        self.plan.sittings > 1 && ((gap - least).abs() < CLOSE || self.is_unclear(chosen, certify.first))
    }

    /// How much slower the default was than the choice on average over the sittings that are over, and how much it has to be.
    fn typical_gap(&self) -> Option<(f64, f64)> {
        let sittings = &self.certify.as_ref()?.sittings;
        let margin = self.racers[*self.active.last()?].margin;
        let fastest = sittings.iter().map(|sitting| sitting.level).fold(f64::INFINITY, f64::min);
        let weight = |sitting: &Sitting| (SLOWER_COUNTS_LESS * (fastest - sitting.level)).exp();
        let all: f64 = sittings.iter().map(weight).sum();
        let gap = sittings.iter().map(|sitting| weight(sitting) * sitting.gap).sum::<f64>() / all;
        Some((gap, margin + self.plan.typically))
    }

    /// The next pair, in turned order each time, so that a drift favours nobody.
    fn pair_up(&mut self) {
        self.queue = self.active.clone();
        if self.round.is_multiple_of(2) {
            self.queue.reverse();
        }
    }

    /// The earliest of those that are as good as the fastest.
    fn choose(&self) -> usize {
        let gaps = self.gaps();
        let fastest = || gaps.iter().min_by(|a, b| a.log.total_cmp(&b.log)).map(|gap| gap.candidate);
        self.lasting(&gaps).or_else(fastest).unwrap_or(0)
    }

    /// How much slower each that is still in the race is than the fastest of them.
    fn gaps(&self) -> Vec<Gap> {
        let noise = self.noise();
        let typical = self.typical(noise);
        let best = self.active.iter().copied().min_by(|&a, &b| typical[a].log.total_cmp(&typical[b].log)).unwrap_or(0);
        let doubt = |candidate: usize| self.doubt(candidate, typical[candidate].spread, noise);
        let gap = |&candidate: &usize| Gap {
            candidate,
            log: typical[candidate].log - typical[best].log,
            doubt: if candidate == best { 0.0 } else { doubt(candidate).hypot(doubt(best)) },
        };
        let mut gaps: Vec<Gap> = self.active.iter().map(gap).collect();
        // Whoever looks fastest of several that are alike was lucky, too: all are compared with those that can't be told from it, each of
        // which counts by how well it can't.
        let weight = |gap: &Gap| (-0.5 * (gap.log / gap.doubt.max(1e-6)).powi(2)).exp();
        let known = || gaps.iter().filter(|gap| gap.log.is_finite() && gap.doubt.is_finite());
        let weights: f64 = known().map(weight).sum();
        let luck = known().map(|gap| weight(gap) * gap.log).sum::<f64>() / weights.max(1.0);
        gaps.iter_mut().for_each(|gap| gap.log -= luck);
        gaps
    }

    /// How far the candidate's typical time is likely to be off.
    fn doubt(&self, candidate: usize, spread: f64, noise: f64) -> f64 {
        let count = self.racers[candidate].samples.len() as f64;
        // A launch may be less steady than the others, but few samples don't say that it is steadier.
        let each = ((4.0 * noise * noise + count * spread * spread) / (4.0 + count)).sqrt().max(noise);
        TYPICAL * each / count.max(1.0).sqrt()
    }

    /// How much one sample of a launch differs from the next, drift aside, by what all launches of the campaign say together: by how much
    /// more or less one's time changed from one round to another than its neighbour's did. What few rounds say may be small by
    /// chance, so that the fewer there are the more is added.
    fn noise(&self) -> f64 {
        let mut changes: BTreeMap<[usize; 2], Vec<f64>> = BTreeMap::new();
        for racer in &self.racers {
            for pair in racer.samples.windows(2) {
                let rounds = [pair[0].round, pair[1].round];
                changes.entry(rounds).or_default().push(pair[1].time - pair[0].time);
            }
        }
        let mut rests: Vec<f64> =
            changes.values().flat_map(|changes| changes.windows(2)).map(|two| (two[1] - two[0]).abs()).collect();
        let count = rests.len() as f64;
        if rests.is_empty() {
            return f64::INFINITY;
        }
        // Four samples differ in each.
        let noise = stats::median(&mut rests) * 1.48 / 2.0;
        noise.max(STEADIEST) * (1.0 + 2.0 / count.sqrt())
    }

    /// Wherever between `NARROW` and `WIDE` times `near` the line is drawn that says who is as good as the fastest, the earliest of those
    /// is taken: the one that is it over the widest range of lines, so that noise seldom changes who that is.
    fn lasting(&self, gaps: &[Gap]) -> Option<usize> {
        let (low, high) = (NARROW * self.plan.near, WIDE * self.plan.near);
        let mut found: Option<(usize, f64)> = None;
        let mut reach = high;
        let own = gaps.iter().find(|gap| gap.candidate == 0).map_or(f64::INFINITY, |gap| gap.log);
        let fastest = gaps.iter().min_by(|a, b| a.log.total_cmp(&b.log));
        for gap in gaps {
            let &Gap { candidate, log, doubt } = gap;
            let same = fastest.filter(|fastest| {
                let code = |gap: &Gap| self.racers[gap.candidate].code;
                fastest.candidate != candidate && code(fastest) == code(gap)
            });
            // What code gains is told by the fastest launch of it.
            let best = same.unwrap_or(gap);
            let clearly = self.plan.clearly.max(2.0 * best.doubt);
            if candidate != 0 && own - best.log < self.racers[candidate].margin + clearly {
                continue;
            }
            // The less is known of it, the faster it has to look.
            let from = ((log + 0.5 * doubt) / if same.is_some() { SAME_CODE } else { 1.0 }).max(low);
            if from < reach {
                if found.is_none_or(|(_, widest)| widest < reach - from) {
                    found = Some((candidate, reach - from));
                }
                reach = from;
            }
        }
        found.map(|(candidate, _)| candidate)
    }

    /// How much slower the default is than the choice, from the runs of this sitting.
    fn certified(&self, z: f64) -> Option<(usize, Interval)> {
        let chosen = *self.active.last()?;
        Some((chosen, self.slower(chosen, 0, z, self.certify.as_ref()?.began)))
    }

    /// The choice is faster than the default beyond doubt: by the ranks of the differences, or by their signs alone, which stalls
    /// hardly change.
    fn is_surely_faster(&self, chosen: usize, since: usize) -> bool {
        self.slower(chosen, 0, Z_WINNER, since).low > SURELY
            || stats::surely_above(&self.pairs(chosen, 0, since), SURELY)
    }

    /// The choice is faster than the default beyond doubt, and by enough.
    fn is_winner(&self) -> bool {
        let (Some(certify), Some(&chosen)) = (&self.certify, self.active.last()) else { return false };
        self.is_surely_faster(chosen, certify.first) && self.typical_gap().is_some_and(|(gap, least)| gap > least)
    }

    /// More pairs may change the verdict: the choice looks faster, but not beyond doubt, or anything is possible.
    fn is_open(&self) -> bool {
        let (Some(certify), Some((chosen, gap))) = (&self.certify, self.certified(Z)) else { return false };
        let looks_faster = gap.middle > self.racers[chosen].margin + OPEN;
        !self.is_surely_faster(chosen, certify.began) && (looks_faster || self.is_unclear(chosen, certify.began))
    }

    /// The interval is too wide to say anything.
    fn is_unclear(&self, chosen: usize, since: usize) -> bool {
        let gap = self.slower(chosen, 0, Z, since);
        gap.half() > NOISY && gap.high > self.racers[chosen].margin
    }

    fn shrink(&mut self) {
        let mut gaps = self.gaps();
        gaps.retain(|gap| gap.candidate != 0);
        gaps.sort_by(|a, b| a.log.total_cmp(&b.log));
        let last = self.active.len() <= MOST_FINALISTS * self.plan.finalists + 1;
        let mut keep = if last { gaps.len() } else { gaps.len().div_ceil(3).max(self.plan.finalists) };
        // Of those that are as good as the fastest, so far as is known yet, the earliest go on: fresh processes are to agree. A plain of
        // launches that are alike is not cut at random.
        let alike = gaps.iter().filter(|gap| gap.log - SURE * gap.doubt <= self.plan.near).count();
        keep = keep.max(alike.min(MOST_FINALISTS * self.plan.finalists)).min(gaps.len());
        let mut order: Vec<usize> = gaps.iter().map(|gap| gap.candidate).collect();
        // Where it is known which of them run the same code, the earliest of each code do, the fastest code first.
        let mut codes: Vec<usize> = Vec::new();
        if self.racers.iter().enumerate().any(|(at, racer)| racer.code != at) {
            codes.extend(order.iter().map(|&candidate| self.racers[candidate].code));
        }
        let place = |candidate: usize| codes.iter().position(|&code| code == self.racers[candidate].code);
        order[self.plan.finalists.min(alike)..alike].sort_by_key(|&candidate| (place(candidate), candidate));
        order.truncate(keep);
        order.push(0);
        order.sort_unstable();
        self.active = order;
        if last || self.active.len() <= self.plan.finalists + 1 {
            self.stage = Stage::Final;
        } else {
            self.stage = Stage::Race;
            // The fewer are left, the closer they are, and the cheaper a round is.
            self.rounds_left = if self.active.len() > self.racers.len() / 4 { 2 } else { 4 };
        }
    }

    /// What is known of every candidate.
    fn typical(&self, noise: f64) -> Vec<Typical> {
        let mut samples = vec![Timed::default(); self.samples()];
        for (candidate, racer) in self.racers.iter().enumerate() {
            for sample in &racer.samples {
                samples[sample.number] = Timed { candidate, round: sample.round, time: sample.time };
            }
        }
        stats::without_drift(&samples, self.racers.len(), noise.max(self.plan.steadiest))
    }

    /// How much slower `other` is than `best`, from the rounds from `since` on that both ran in.
    fn slower(&self, best: usize, other: usize, z: f64, since: usize) -> Interval {
        stats::paired(&self.pairs(best, other, since), z)
    }

    /// How much slower `other` was than `best` in each round from `since` on that both ran in.
    fn pairs(&self, best: usize, other: usize, since: usize) -> Vec<f64> {
        let theirs = &self.racers[other].samples;
        let mut pairs: Vec<f64> = Vec::new();
        for ours in self.racers[best].samples.iter().filter(|sample| sample.round >= since) {
            if let Some(theirs) = theirs.iter().find(|theirs| theirs.round == ours.round) {
                pairs.push(theirs.time - ours.time);
            }
        }
        pairs
    }

    /// The finalists that more rounds may tell apart: those before the choice that may be as good, those that may be so fast that it is
    /// not, the choice itself and the fastest.
    fn contenders(&self) -> Vec<usize> {
        let gaps = self.gaps();
        let few =
            |gap: &&Gap| self.racers[gap.candidate].samples.len() < LEAST_ROUNDS && gap.log - SURE * gap.doubt < FAR;
        let mut open: Vec<usize> = gaps.iter().filter(few).map(|gap| gap.candidate).collect();
        let fastest = gaps.iter().min_by(|a, b| a.log.total_cmp(&b.log)).map(|best| best.candidate);
        let choice = self.lasting(&gaps);
        if let Some(of_choice) = gaps.iter().find(|gap| Some(gap.candidate) == choice) {
            let line = (NARROW + WIDE) / 2.0 * self.plan.near;
            let is_open = |gap: &&Gap| match gap.candidate.cmp(&of_choice.candidate) {
                Ordering::Less => gap.log - SURE * gap.doubt < line,
                Ordering::Equal => false,
                Ordering::Greater => of_choice.log - gap.log + SURE * gap.doubt.hypot(of_choice.doubt) > line,
            };
            open.extend(gaps.iter().filter(is_open).map(|gap| gap.candidate));
        }
        if !open.is_empty() {
            open.extend(choice);
            open.extend(fastest);
            // Besides only one nothing would tell what the device was like.
            open.push(0);
            open.sort_unstable();
            open.dedup();
        }
        open
    }

    fn judge(&self) -> Outcome {
        let means: Vec<f64> = self.typical(self.noise()).iter().map(|typical| typical.log).collect();
        let relative = |log: f64| (-log).exp() - 1.0;
        let (mut chosen, mut verdict, mut difference, mut interval, mut pairs) = (0, Verdict::Tie, 0.0, [0.0; 2], 0);
        if let (Some(certify), Some(&candidate)) = (&self.certify, self.active.last()) {
            pairs = self.round - certify.first;
            if self.is_winner() {
                let gap = self.slower(candidate, 0, Z, certify.first);
                (chosen, verdict) = (candidate, Verdict::Winner);
                (difference, interval) = (relative(gap.middle), [relative(gap.high), relative(gap.low)]);
            } else if self.is_unclear(candidate, certify.first) {
                verdict = Verdict::Noisy;
            }
        }
        let other = |candidate: usize| candidate != chosen && self.racers[candidate].rejected.is_none();
        let runner_up = (0..self.racers.len())
            .filter(|&candidate| other(candidate) && means[candidate].is_finite())
            .min_by(|&a, &b| means[a].total_cmp(&means[b]))
            .map(|other| (other, (means[other] - means[chosen]).exp() - 1.0));
        let timing = |candidate: usize| {
            let gap = self.slower(candidate, 0, Z, 0);
            let known = candidate != 0 && gap.is_known();
            Timing {
                candidate,
                ns: means[candidate].exp().round() as u64,
                samples: self.racers[candidate].samples.len(),
                interval: known.then(|| [relative(gap.high), relative(gap.low)]),
            }
        };
        Outcome {
            chosen,
            verdict,
            samples: self.samples(),
            pairs,
            difference,
            interval,
            chosen_ns: means[chosen].exp().round() as u64,
            default_ns: means[0].exp().round() as u64,
            runner_up,
            timings: (0..self.racers.len()).filter(|&c| means[c].is_finite()).map(timing).collect(),
            rejected: self
                .racers
                .iter()
                .enumerate()
                .filter_map(|(index, racer)| racer.rejected.clone().map(|reason| (index, reason)))
                .collect(),
        }
    }
}
