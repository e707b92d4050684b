//! One comparison of launches on the caller's inputs: a campaign says what is to be measured, a bench measures it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use vyre_driver::BackendError;
use vyre_driver::backend::Knobs;
use vyre_driver::metrics::Counter;
use vyre_driver::tuner::{Campaign, Candidate, Candidates, Outcome, Plan, Step, Verdict};
use vyre_spec::{Diagnostic, codes};

use super::Inner;
use super::bench::Bench;
use super::tuning::{Asked, Go, TuneSample, Waits};
use super::unfinished::Unfinished;
use super::variants::{self, disagreement};

/// What is measured this often may be chosen: it runs more often than that beside the kernel's own launch in the end.
const COMPARED_AT: usize = 4;

/// What runs the same code as the kernel's own launch in other pieces is faster on a processor by as much as others keep its cores busy
/// unevenly, so that more is asked of it: in 60 processes on pairs of cores such launches gained 1 to 5% in some and nothing in others.
const MARGIN_OF_CUT: f64 = 0.03;

/// So long after one sitting the next begins: what others do on a machine changes within seconds.
const APART: Duration = Duration::from_millis(300);

/// Where sittings follow a search, so much of its time is worth spending on it.
const SEARCH_BEFORE_SITTINGS: f64 = 0.75;

/// One who waits for the first run has no time for sittings: so many pairs in one.
const PAIRS_AT_ONCE: usize = 8;

/// Two candidates differ only by how the work is cut.
fn is_other_cut(one: &Candidate, other: &Candidate) -> bool {
    let code = |mut knobs: Knobs| {
        knobs.parts = None;
        knobs
    };
    one.variant == other.variant && one.specialization == other.specialization && code(one.knobs) == code(other.knobs)
}

pub(super) struct Sweep<'a> {
    engine: &'a Inner,
    asked: &'a Asked<'a>,
    candidates: &'a Candidates,
    bench: Bench<'a>,
    campaign: Campaign,
    at_most: usize,
    /// Results of the kernel's own launch.
    expected: Option<Vec<Vec<u8>>>,
    /// Samples of each candidate, and whether its results were compared.
    samples: Vec<(usize, bool)>,
    journal: Unfinished,
    /// Where the journal is kept, if anywhere.
    path: Option<PathBuf>,
    /// What an interrupted sweep has measured, which needs not be measured again.
    known: VecDeque<(usize, u64)>,
    /// Samples of this round that the campaign has not asked for yet.
    taken: VecDeque<(usize, Result<u64, BackendError>)>,
    started: Instant,
    warm: bool,
    waits: Waits,
    /// Sittings of the campaign that were over when the latest samples were taken.
    sittings: usize,
}

impl<'a> Sweep<'a> {
    pub(super) fn new(
        engine: &'a Inner,
        asked: &'a Asked<'a>,
        candidates: &'a Candidates,
        inputs: &'a [&'a [u8]],
        waits: Waits,
    ) -> Sweep<'a> {
        let bench = Bench::new(engine, asked.backend, asked.program, inputs, asked.config);
        let is_processor = bench.is_processor();
        let mut rules = if is_processor { Plan::for_processors() } else { Plan::default() };
        if matches!(waits, Waits::ForFirstRun) {
            rules.sittings = 1;
            rules.pairs = rules.pairs.max(PAIRS_AT_ONCE);
        }
        let list = &candidates.list;
        let at_most = rules.most_samples(list.len());
        let mut campaign = Campaign::new(list.len(), rules);
        // In several dimensions the shape of workgroups decides on a GPU what is loaded together.
        let in_rows = list.iter().all(|candidate| candidate.workgroup_size[1..] == [1, 1]);
        for at in 1..list.len() {
            match (0..at).find(|&other| is_other_cut(&list[other], &list[at])) {
                Some(0) if is_processor => campaign.demand(at, MARGIN_OF_CUT),
                Some(first) if first > 0 && (is_processor || in_rows) => campaign.same_code(at, first),
                _ => {}
            }
        }
        let journal = Unfinished::new(asked.build(), candidates);
        let path = engine.tuning.folder().map(|folder| Unfinished::path(&folder, &asked.key()));
        Sweep {
            engine,
            asked,
            candidates,
            bench,
            at_most,
            campaign,
            expected: None,
            samples: vec![(0, false); candidates.list.len()],
            taken: VecDeque::new(),
            known: path.as_deref().map(|path| journal.samples(path)).unwrap_or_default(),
            journal,
            path,
            started: Instant::now(),
            warm: false,
            waits,
            sittings: 0,
        }
    }

    /// Measures until something is decided, which is told to `watch` after every timing.
    pub(super) fn run(mut self, watch: &mut dyn FnMut(TuneSample<'_>) -> Go) -> Result<Outcome, BackendError> {
        loop {
            match self.campaign.step() {
                Step::Check(candidate) => self.check(candidate),
                Step::Measure(candidate) => self.measure(candidate, watch)?,
                Step::Done => break,
            }
        }
        if let Some(path) = &self.path {
            // It is over, whatever came of it.
            let _ = std::fs::remove_file(path);
        }
        let name = self.asked.program.name();
        let Some(outcome) = self.campaign.outcome() else {
            let why = self.campaign.default_failure().unwrap_or("nothing could be measured");
            return Err(Diagnostic::new(&codes::engine::NOT_TUNED, format!("`{name}` can't be tuned: {why}")).into());
        };
        if outcome.verdict == Verdict::Noisy {
            let message = format!("`{name}` has no clear launch after {} timings", outcome.samples);
            return Err(Diagnostic::new(&codes::tuner::TOO_NOISY, message).into());
        }
        Ok(outcome)
    }

    /// A candidate is there to be measured. What is not proven to give the results of the kernel's own launch is compared with them
    /// first; the rest only where it may be chosen, since that takes longer than measuring.
    fn check(&mut self, at: usize) {
        let candidate = &self.candidates.list[at];
        let is_proven = candidate.variant.is_none() && self.asked.is_proven(candidate).unwrap_or(false);
        let verdict = match self.bench.prepare(candidate).map_err(|error| error.message().to_owned()) {
            Ok(Some(_)) if is_proven => Ok(()),
            Ok(_) => self.compare(at),
            Err(why) => Err(why),
        };
        self.campaign.checked(at, verdict);
    }

    /// Compares a candidate's results with those of the kernel's own launch.
    fn compare(&mut self, at: usize) -> Result<(), String> {
        let Asked { program, config, .. } = *self.asked;
        let own = &self.candidates.list[0];
        if self.expected.is_none() {
            self.expected = Some(self.bench.results(own).map_err(|error| error.message().to_owned())?);
        }
        self.samples[at].1 = true;
        let candidate = &self.candidates.list[at];
        if at == 0 {
            return Ok(());
        }
        let results = self.bench.results(candidate).map_err(|error| error.message().to_owned());
        let expected = self.expected.as_deref().unwrap_or_default();
        let agrees = |results: Vec<Vec<u8>>| disagreement(program, config, candidate, expected, &results);
        let verdict = results.and_then(|results| agrees(results).map_or(Ok(()), Err));
        if let Some(variant) = variants::find(config, candidate) {
            self.engine.judged(self.asked, variant, &verdict);
        }
        verdict
    }

    fn measure(&mut self, at: usize, watch: &mut dyn FnMut(TuneSample<'_>) -> Go) -> Result<(), BackendError> {
        let before = self.known.pop_front().filter(|(which, _)| *which == at).map(|(_, ns)| ns);
        if before.is_none() && !self.warm {
            self.known.clear();
            let (own, candidates) = (&self.candidates.list[0], self.candidates.list.len());
            let mut longest = self.waits.longest_search(self.started.elapsed());
            if self.bench.is_processor() {
                longest = longest.mul_f64(SEARCH_BEFORE_SITTINGS);
            }
            self.bench.warm_up(own, candidates, longest)?;
            self.warm = true;
        }
        let (samples, compared) = &mut self.samples[at];
        *samples += 1;
        if *samples == COMPARED_AT
            && !*compared
            && let Err(why) = self.compare(at)
        {
            self.taken.retain(|(taken, _)| *taken != at);
            self.campaign.reject(at, why);
            return Ok(());
        }
        let candidate = &self.candidates.list[at];
        let ns = match before.map_or_else(|| self.sample(at), Ok) {
            Ok(ns) => ns,
            Err(error) => {
                self.campaign.reject(at, error.message().to_owned());
                return Ok(());
            }
        };
        self.engine.metrics.add(Counter::TuningSamples, u64::from(before.is_none()));
        tracing::trace!(sitting = self.campaign.sittings(), round = self.campaign.round(), candidate = at, ns, "timed");
        self.campaign.observe(at, ns);
        self.journal.push(at, ns);
        let (taken, at_most, elapsed) = (self.campaign.samples(), self.at_most, self.started.elapsed());
        match watch(TuneSample { candidate, ns, taken, at_most, elapsed }) {
            // What was measured together is told together.
            Go::On if !self.taken.is_empty() || !self.waits.is_over(elapsed) => Ok(()),
            Go::On | Go::Finish => {
                self.campaign.hurry();
                self.taken.clear();
                Ok(())
            }
            Go::Stop => Err(self.stopped(taken)),
        }
    }

    /// The candidate's time in this round, in which all that are still to be measured take turns.
    fn sample(&mut self, at: usize) -> Result<u64, BackendError> {
        if self.taken.front().is_none_or(|(candidate, _)| *candidate != at) {
            let mut turn = self.campaign.turn();
            turn.truncate(self.bench.most_in_turn());
            let candidates: Vec<_> = turn.iter().map(|&at| self.candidates.list[at].clone()).collect();
            let before = std::mem::replace(&mut self.sittings, self.campaign.sittings());
            if before < self.sittings && !self.waits.is_over(self.started.elapsed()) {
                std::thread::sleep(APART);
            }
            self.bench.begin_round(self.campaign.round());
            self.taken = turn.into_iter().zip(self.bench.measure(&candidates)).collect();
        }
        match self.taken.pop_front() {
            Some((_, sample)) => sample,
            None => Err(Diagnostic::new(&codes::engine::NOT_TUNED, "nothing is left to be measured").into()),
        }
    }

    /// Keeps the timings for another time.
    fn stopped(&self, taken: usize) -> BackendError {
        let mut message = format!("tuning `{}` was stopped", self.asked.program.name());
        if self.path.as_deref().is_some_and(|path| self.journal.save(path).is_ok()) {
            message += &format!("; its {taken} timings are kept, and the next time goes on from there");
        }
        Diagnostic::new(&codes::engine::NOT_TUNED, message).into()
    }
}
