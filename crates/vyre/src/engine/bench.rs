//! Launches timed on one set of inputs: what campaigns decide by, and what an exhaustive search is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vyre_driver::backend::{Binding, DeviceKind, Launch, Order, Pipeline, Ticket};
use vyre_driver::tuner::{Candidate, Plan, Space, low_mean};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::launch::{self, LaunchPlan};

use super::Inner;
use super::tuning::{Asked, Waits, with_launch};
use super::variants::{self, disagreement};

/// Every launch of a program with its times.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TimedLaunches {
    /// Each with its times in the order of the rounds, the kernel's own first; those that are far slower than the fastest have few.
    pub all: Vec<(Candidate, Vec<u64>)>,
    /// The one of them that is fastest by these times.
    pub fastest: Candidate,
    /// Times that had no part in choosing it: of the kernel's own launch, the one that was asked about, and the fastest, in turns.
    pub again: [Vec<u64>; 3],
}

impl Inner {
    /// Times every launch that gives the results of the kernel's own so many times, in turns; those that are far slower than the fastest
    /// a few times only. Then the kernel's own, the one that is asked about, and the fastest are timed again: whichever is fastest of many
    /// was lucky, too.
    #[allow(clippy::too_many_arguments, reason = "what the caller of the engine gives, one by one")]
    pub(super) fn time_all(
        &self,
        backend: &Arc<dyn VyreBackend>,
        program: &ValidProgram,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        space: Option<&Space>,
        asked_about: &Candidate,
        rounds: u32,
    ) -> Result<TimedLaunches, BackendError> {
        let plan = vyre_driver::launch::plan(program, inputs, config)?;
        let asked = Asked { backend, program, plan: &plan, config, variants: &[], fixed: false };
        let open: Vec<_> = variants::open(&asked, config.timeout.is_some()).cloned().collect();
        let asked = Asked { variants: &open, ..asked };
        let mut bench = Bench::new(self, backend, program, inputs, config);
        let mut all: Vec<(Candidate, Vec<u64>)> = Vec::new();
        let mut expected = None;
        for candidate in self.candidates(&asked, space, false)?.list {
            if !all.is_empty() && candidate.variant.is_none() && asked.is_proven(&candidate)? {
                // There is nothing to compare; a launch that can't be made is none to compare with.
                if bench.prepare(&candidate).is_ok() {
                    all.push((candidate, Vec::new()));
                }
                continue;
            }
            let results = match bench.results(&candidate) {
                Ok(results) => results,
                Err(error) if all.is_empty() => return Err(error),
                // A launch that fails is none to compare with.
                Err(_) => continue,
            };
            let own = expected.get_or_insert_with(|| results.clone());
            if disagreement(program, config, &candidate, own, &results).is_none() {
                all.push((candidate, Vec::new()));
            }
        }
        bench.warm_up(&all[0].0, all.len(), Waits::ForTuning(None).longest_search(Duration::ZERO))?;
        let mut hopeless = vec![false; all.len()];
        for round in 0..rounds {
            if let Some((_, hopeless_from)) = HOPELESS.iter().find(|(rounds, _)| *rounds == round) {
                let typical: Vec<f64> = all.iter().map(|(_, times)| median(times)).collect();
                let line = hopeless_from * typical.iter().copied().fold(f64::INFINITY, f64::min);
                hopeless.iter_mut().zip(&typical).skip(1).for_each(|(hopeless, ns)| *hopeless |= *ns > line);
            }
            bench.begin_round(round as usize);
            let turn: Vec<usize> = (0..all.len()).filter(|&at| !hopeless[at]).collect();
            for turn in turn.chunks(bench.most_in_turn()) {
                let candidates: Vec<Candidate> = turn.iter().map(|&at| all[at].0.clone()).collect();
                for (&at, ns) in turn.iter().zip(bench.measure(&candidates)) {
                    all[at].1.push(ns?);
                }
            }
        }
        let fastest = fastest(&all);
        let three = [&all[0].0, asked_about, &fastest].map(Candidate::clone);
        // What is the same launch is measured once.
        let mut different: Vec<Candidate> = Vec::new();
        for candidate in three.iter().filter(|candidate| all.iter().any(|(known, _)| known == *candidate)) {
            if !different.contains(candidate) {
                different.push(candidate.clone());
            }
        }
        let mut times = vec![Vec::new(); different.len()];
        for round in 0..rounds.max(LEAST_AGAIN) {
            bench.begin_round((rounds + round) as usize);
            for (times, ns) in times.iter_mut().zip(bench.measure(&different)) {
                times.push(ns?);
            }
        }
        let of = |wanted: &Candidate| different.iter().position(|known| known == wanted).map(|at| times[at].clone());
        let again = three.each_ref().map(|candidate| of(candidate).unwrap_or_else(|| times[0].clone()));
        Ok(TimedLaunches { all, fastest, again })
    }
}

/// The launch that took least, each time beside what the others took in its round.
fn fastest(all: &[(Candidate, Vec<u64>)]) -> Candidate {
    let rounds = all[0].1.len();
    let full: Vec<&(Candidate, Vec<u64>)> = all.iter().filter(|(_, times)| times.len() == rounds).collect();
    let typical: Vec<f64> =
        (0..rounds).map(|round| median(&full.iter().map(|(_, times)| times[round]).collect::<Vec<u64>>())).collect();
    let beside = |times: &[u64]| {
        let mut logs: Vec<f64> = times.iter().zip(&typical).map(|(ns, typical)| (*ns as f64 / typical).ln()).collect();
        low_mean(&mut logs)
    };
    let by_time = |a: &&&(Candidate, Vec<u64>), b: &&&(Candidate, Vec<u64>)| beside(&a.1).total_cmp(&beside(&b.1));
    full.iter().min_by(by_time).map_or_else(|| all[0].0.clone(), |(candidate, _)| candidate.clone())
}

/// Rounds of an exhaustive search after which those are left out that take so many times as long as the fastest.
const HOPELESS: [(u32, f64); 3] = [(2, 1.3), (3, 1.15), (5, 1.08)];
/// So often are the best launches timed again.
const LEAST_AGAIN: u32 = 24;

fn median(times: &[u64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).map_or(f64::INFINITY, |ns| *ns as f64)
}

/// Runs candidates on one set of inputs.
pub(super) struct Bench<'a> {
    engine: &'a Inner,
    backend: &'a Arc<dyn VyreBackend>,
    program: &'a ValidProgram,
    inputs: &'a [&'a [u8]],
    config: &'a DispatchConfig,
    /// The same buffers in several places: where they lie changes how long launches take, by more than these differ.
    places: Vec<Vec<Binding>>,
    /// The place that launches use.
    place: usize,
    /// What is measured in one round is measured at the same places.
    round: usize,
    pipelines: Vec<Prepared>,
    /// Launches that make one sample.
    batch: u32,
    /// Time of one launch of the default, in nanoseconds.
    shortest: u64,
    /// What it takes the host to hand over a launch that is timed, in nanoseconds.
    submit_ns: u64,
    /// A launch does not see what an earlier one has written, so that several can follow each other on the same buffers.
    repeatable: bool,
}

/// Which buffers get the contents that a run starts from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reset {
    All,
    /// Those that a run writes.
    Results,
    /// Those that a run reads and writes.
    Changed,
}

/// A candidate that can be launched.
struct Prepared {
    candidate: Candidate,
    pipeline: Arc<dyn Pipeline>,
    plan: LaunchPlan,
    /// The shortest time of one of its launches so far, in nanoseconds; 0 before there was one.
    shortest: u64,
}

/// A sample that is shorter says more about the clock and the queue than about the kernel.
const SHORTEST_SAMPLE: Duration = Duration::from_micros(1_500);
/// Threads of a processor are disturbed by whatever else runs there, so that more launches make a sample.
const SHORTEST_ON_CPU: Duration = Duration::from_millis(4);
const FEWEST_ON_CPU: u32 = 2;
/// Clocks and caches are given so long to settle.
const WARM_UP: Duration = Duration::from_millis(60);
const MOST_BATCHED: u32 = 1024;
/// Where every launch needs its buffers as they were, which may take longer than the launch, so many make a sample.
const MOST_RESET: u32 = 16;
/// Samples of fewer candidates than these are longer, up to so many times.
const MANY: usize = 48;
const LONGEST: usize = 4;
/// Two samples of one launch that differ by this much, typically, tell launches apart that differ by one or two percent.
const QUIET: f64 = 0.006;
/// So often are two samples of one launch compared to see how much they differ.
const NOISE_ROUNDS: usize = 9;
/// Samples are made longer up to so many times.
const MOST_LENGTHENED: f64 = 16.0;
/// Launches that are faster than the default by this much or more get so many times as many launches.
const MOST_FASTER: u64 = 4;
/// Rounds take turns with so many sets of buffers, unless these would take more memory, ...
const PLACES: usize = 16;
/// ... and the launches of one sample, in so many parts, with as many of them, where each gets enough.
const MOST_PARTS: u32 = 16;
const LEAST_AT_PLACE: u32 = 12;
const LEAST_ON_CPU: u32 = 1;
/// Handing a timed launch to a GPU may take longer than the launch; others before it keep the device busy for so long.
const LEAD: Duration = Duration::from_micros(200);
/// What handing over a timed launch is taken to last before it was seen, what is slow, and what one that was disturbed counts at most.
const SUBMIT_NS: u64 = 8_000;
const SLOW_SUBMIT: u64 = 15_000;
const LONGEST_SUBMIT: u64 = 30_000;
const LONGEST_TURN: Duration = Duration::from_millis(500);
const LEAST_IN_TURN: u64 = 10;
const MOST_BYTES: u64 = 256 << 20;

impl<'a> Bench<'a> {
    pub(super) fn new(
        engine: &'a Inner,
        backend: &'a Arc<dyn VyreBackend>,
        program: &'a ValidProgram,
        inputs: &'a [&'a [u8]],
        config: &'a DispatchConfig,
    ) -> Bench<'a> {
        let access =
            config.specialization.resolve(program).and_then(|constants| launch::access(program, Some(&constants)));
        let in_place = |access: &launch::Access| access.reads && access.writes != launch::Writes::None;
        let repeatable = access.is_ok_and(|access| !access.iter().any(in_place));
        Bench {
            engine,
            backend,
            program,
            inputs,
            config,
            places: Vec::new(),
            place: 0,
            round: 0,
            pipelines: Vec::new(),
            batch: 1,
            shortest: 1,
            submit_ns: SUBMIT_NS,
            repeatable,
        }
    }

    /// Launches are compared with those of the same round, which use the same buffers. Other rounds use others, so that no decision rests
    /// on where one set of them happens to lie.
    pub(super) fn begin_round(&mut self, round: usize) {
        self.round = round;
    }

    /// Runs the default until its times have settled, and finds how many launches make a sample that is long enough.
    /// The fewer candidates, the longer: they have fewer samples to be told apart by.
    pub(super) fn warm_up(
        &mut self,
        default: &Candidate,
        candidates: usize,
        longest_search: Duration,
    ) -> Result<(), BackendError> {
        let started = Instant::now();
        let mut last = 0u64;
        self.shortest = u64::MAX;
        for run in 0..64 {
            let ns = self.measure_at(self.round, default, 1)?.max(1);
            self.shortest = self.shortest.min(ns);
            let settled = ns.abs_diff(last).saturating_mul(50) < ns;
            last = ns;
            if (run >= 3 && settled) || started.elapsed() > WARM_UP {
                break;
            }
        }
        let (shortest_sample, least) = match self.is_processor() {
            true => (SHORTEST_ON_CPU, FEWEST_ON_CPU),
            false => (SHORTEST_SAMPLE, 1),
        };
        let longer = (MANY / candidates.max(1)).clamp(1, LONGEST) as u64;
        let wanted = (longer * shortest_sample.as_nanos() as u64).div_ceil(self.shortest);
        let most = if self.repeatable { MOST_BATCHED } else { MOST_RESET };
        self.batch = u32::try_from(wanted).unwrap_or(most).clamp(least, most);
        if longest_search.is_zero() { Ok(()) } else { self.lengthen(default, candidates, longest_search) }
    }

    /// Makes samples longer until two of one launch differ by little enough to tell launches apart that do, as far as there is time.
    fn lengthen(&mut self, default: &Candidate, candidates: usize, longest: Duration) -> Result<(), BackendError> {
        let started = Instant::now();
        let mut differences = Vec::new();
        for round in 0..NOISE_ROUNDS {
            self.begin_round(round);
            let two = self.measure(&[default.clone(), default.clone()]).into_iter();
            let logs = two.map(|ns| Ok((ns?.max(1) as f64).ln())).collect::<Result<Vec<f64>, BackendError>>()?;
            differences.push((logs[0] - logs[1]).abs());
        }
        let took = started.elapsed().as_secs_f64() / (2 * NOISE_ROUNDS) as f64;
        differences.sort_by(f64::total_cmp);
        // Two samples differ in each.
        let noise = differences[NOISE_ROUNDS / 2] * 1.48 / f64::sqrt(2.0);
        let search = Plan::default().most_samples(candidates) as f64 * took;
        let longer = (noise / QUIET).powi(2).min(longest.as_secs_f64() / search.max(1e-9)).min(MOST_LENGTHENED);
        self.batch = (f64::from(self.batch) * longer.max(1.0)).min(f64::from(MOST_BATCHED)) as u32;
        tracing::debug!(batch = self.batch, noise, seconds = took, ns = self.shortest, "samples are long enough");
        Ok(())
    }

    /// Buffers and a pipeline for a candidate, where the backend keeps them.
    pub(super) fn prepare(&mut self, candidate: &Candidate) -> Result<Option<usize>, BackendError> {
        if !self.backend.capabilities().resident {
            return Ok(None);
        }
        if let Some(at) = self.pipelines.iter().position(|known| known.candidate == *candidate) {
            return Ok(Some(at));
        }
        let config = with_launch(self.config, candidate);
        let plan = vyre_driver::launch::plan(self.program, self.inputs, &config)?;
        let options = vyre_driver::launch::compile_options(self.program, &config)?;
        let pipeline = self.engine.pipeline(&**self.backend, self.program, &options)?;
        if self.places.is_empty() {
            self.allocate(&plan.buffer_bytes)?;
        }
        self.pipelines.push(Prepared { candidate: candidate.clone(), pipeline, plan, shortest: 0 });
        Ok(Some(self.pipelines.len() - 1))
    }

    fn allocate(&mut self, sizes: &[u64]) -> Result<(), BackendError> {
        let bytes: u64 = sizes.iter().sum();
        let most = MOST_BYTES.checked_div(bytes).map_or(PLACES, |most| most.clamp(1, PLACES as u64) as usize);
        for place in 0..most {
            let buffers = sizes.iter().map(|&bytes| Ok(Binding::new(self.backend.allocate(bytes)?, bytes)));
            match buffers.collect::<Result<Vec<Binding>, BackendError>>() {
                Ok(buffers) => self.places.push(buffers),
                Err(error) if place == 0 => return Err(error),
                // A device that is full has room for fewer places.
                Err(_) => break,
            }
        }
        for place in (0..self.places.len()).rev() {
            self.place = place;
            self.reset(Reset::All)?;
        }
        Ok(())
    }

    /// Every run starts from the same contents.
    fn reset(&self, what: Reset) -> Result<(), BackendError> {
        let mut given = self.inputs.iter();
        for (&index, binding) in self.program.binding_order().iter().zip(&self.places[self.place]) {
            let kind = self.program.buffers()[index].kind;
            match if kind.is_input() { given.next() } else { None } {
                Some(input) if what == Reset::All || kind.is_result() => {
                    let uploaded = self.backend.upload(&binding.buffer, 0, input, &Order::default())?;
                    self.backend.forget(uploaded);
                }
                None if what != Reset::Changed => {
                    let cleared = self.backend.clear(binding, &Order::default())?;
                    self.backend.forget(cleared);
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    pub(super) fn results(&mut self, candidate: &Candidate) -> Result<Vec<Vec<u8>>, BackendError> {
        let Some(at) = self.prepare(candidate)? else {
            return self.backend.dispatch_borrowed(self.program, self.inputs, &with_launch(self.config, candidate));
        };
        // What no launch may write is as it was.
        self.reset(Reset::Results)?;
        self.launch(at)?;
        let mut results = Vec::new();
        for (&index, binding) in self.program.binding_order().iter().zip(&self.places[self.place]) {
            if self.program.buffers()[index].kind.is_result() {
                let mut bytes = vec![0; binding.bytes as usize];
                self.backend.download(&binding.buffer, 0, &mut bytes, &Order::default())?;
                results.push(bytes);
            }
        }
        Ok(results)
    }

    /// A sample of each candidate, or why there is none. They take turns launch by launch, or nearly so: machines change how fast they
    /// are from one millisecond to the next, and what changes within a sample reaches all alike.
    pub(super) fn measure(&mut self, turn: &[Candidate]) -> Vec<Result<u64, BackendError>> {
        let batch = self.batch_for(turn);
        let parts = self.parts(batch);
        let mut samples: Vec<Result<Vec<f64>, BackendError>> = turn.iter().map(|_| Ok(Vec::new())).collect();
        for part in 0..parts as usize {
            let place = self.round * parts as usize + part;
            for at in 0..turn.len() {
                // Every other part runs backwards, so that a slow drift favours nobody.
                let at = if (self.round + part).is_multiple_of(2) { at } else { turn.len() - 1 - at };
                if let Ok(times) = &mut samples[at] {
                    match self.measure_at(place, &turn[at], batch.div_ceil(parts)) {
                        Ok(ns) => times.push((ns.max(1) as f64).ln()),
                        Err(error) => samples[at] = Err(error),
                    }
                }
            }
        }
        samples.into_iter().map(|times| Ok(low_mean(&mut times?).exp().round() as u64)).collect()
    }

    /// So many may take turns; whoever waits for the tuning is told something before long.
    pub(super) fn most_in_turn(&self) -> usize {
        let sample = self.shortest.saturating_mul(u64::from(self.batch)).max(1);
        (LONGEST_TURN.as_nanos() as u64 / sample).max(LEAST_IN_TURN) as usize
    }

    /// Launches that make one sample of each that takes turns: more where all that is known of them is faster than the default.
    fn batch_for(&self, turn: &[Candidate]) -> u32 {
        let known = |candidate: &Candidate| self.pipelines.iter().find(|known| known.candidate == *candidate);
        let shortest = turn.iter().filter_map(known).map(|known| known.shortest).filter(|ns| *ns > 0).min();
        let faster = self.shortest.checked_div(shortest.unwrap_or(self.shortest)).unwrap_or(1).clamp(1, MOST_FASTER);
        let most = if self.repeatable { MOST_BATCHED } else { self.batch };
        self.batch.saturating_mul(faster as u32).min(most.max(self.batch))
    }

    /// In how many parts a sample is taken.
    fn parts(&self, batch: u32) -> u32 {
        let least = if self.is_processor() { LEAST_ON_CPU } else { LEAST_AT_PLACE };
        (batch / least).clamp(1, MOST_PARTS)
    }

    pub(super) fn is_processor(&self) -> bool {
        matches!(self.backend.capabilities().kind, DeviceKind::Cpu | DeviceKind::Software)
    }

    /// Time of one of so many launches at a place.
    fn measure_at(&mut self, place: usize, candidate: &Candidate, count: u32) -> Result<u64, BackendError> {
        let Some(at) = self.prepare(candidate)? else {
            let config = with_launch(self.config, candidate);
            let started = Instant::now();
            for _ in 0..count {
                self.backend.dispatch_borrowed(self.program, self.inputs, &config)?;
            }
            return Ok(started.elapsed().as_nanos() as u64 / u64::from(count));
        };
        let place = place % self.places.len();
        if std::mem::replace(&mut self.place, place) != place || self.pipelines[at].shortest == 0 {
            // Whoever is first at a place would pay for bringing it into the caches.
            self.reset(Reset::Changed)?;
            let ns = self.launch(at)?;
            self.took(at, &[ns]);
        }
        self.reset(Reset::Changed)?;
        let mut times = self.times(at, count)?;
        self.took(at, &times);
        Ok(middle_mean(&mut times))
    }

    fn took(&mut self, at: usize, times: &[u64]) {
        let shortest = &mut self.pipelines[at].shortest;
        for ns in times.iter().map(|ns| (*ns).max(1)) {
            *shortest = if *shortest == 0 { ns } else { ns.min(*shortest) };
        }
    }

    /// Launches so often, one after the other. A device with a clock of its own is kept busy by others first, so that each of these is
    /// there before the last is over: what the device waits for the host would be taken for the kernel's time.
    fn times(&mut self, at: usize, count: u32) -> Result<Vec<u64>, BackendError> {
        if !self.repeatable {
            let next = |launch| {
                if launch > 0 {
                    self.reset(Reset::Changed)?;
                }
                self.launch(at)
            };
            return (0..count).map(next).collect();
        }
        if !self.backend.capabilities().timestamps || self.is_processor() {
            return (0..count).map(|_| self.launch(at)).collect();
        }
        // All that are timed are there before the first of them begins, how much faster than others they may be. What is handed over slowly
        // goes through layers that time it on the device alone, where waiting does not count.
        let submit_ns = if self.submit_ns < SLOW_SUBMIT { self.submit_ns } else { 0 };
        let lead = LEAD.as_nanos() as u64 + u64::from(count) * submit_ns;
        let ahead = lead.div_ceil(self.pipelines[at].shortest.max(1)).clamp(1, u64::from(MOST_BATCHED)) as u32;
        let submit = |timed| (self.submit(at, timed), Instant::now());
        let submitted: Vec<_> = (0..ahead + count).map(|launch| submit(launch >= ahead)).collect();
        if let [.., (_, before), (_, last)] = &submitted[ahead as usize..] {
            // One is as good as many, but for those that were disturbed.
            let took = last.duration_since(*before).as_nanos() as u64;
            self.submit_ns = (3 * self.submit_ns + took.min(LONGEST_SUBMIT)) / 4;
        }
        // Whatever failed, all that was submitted has to end.
        let ended: Vec<_> = submitted.into_iter().map(|(ticket, began)| self.finish(ticket?, began)).collect();
        ended.into_iter().collect::<Result<Vec<u64>, BackendError>>().map(|mut times| times.split_off(ahead as usize))
    }

    fn launch(&self, at: usize) -> Result<u64, BackendError> {
        let started = Instant::now();
        self.finish(self.submit(at, true)?, started)
    }

    fn submit(&self, at: usize, timed: bool) -> Result<Ticket, BackendError> {
        let Prepared { pipeline, plan, .. } = &self.pipelines[at];
        let launch = Launch::new(&self.places[self.place], plan.grid);
        self.backend.submit(pipeline, &if timed { launch.timed() } else { launch })
    }

    fn finish(&self, ticket: Ticket, started: Instant) -> Result<u64, BackendError> {
        let mut done = self.backend.wait(ticket, self.config.timeout);
        if matches!(done, Ok(None)) {
            self.backend.cancel(ticket)?;
            done = self.backend.wait(ticket, None);
        }
        self.backend.forget(ticket);
        let device_ns = done?.and_then(|completion| completion.device_ns);
        Ok(device_ns.unwrap_or(started.elapsed().as_nanos() as u64))
    }
}

/// The mean of the middle half: what disturbs a few of many launches says nothing about the kernel, and clocks that tick coarsely are
/// averaged. Of a few launches it is the fastest, since what disturbs one makes it slower.
fn middle_mean(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    let (from, to) = match times.len() {
        0..4 => (0, times.len().min(1)),
        n => (n / 4, n - n / 4),
    };
    let middle = &times[from..to];
    middle.iter().sum::<u64>() / middle.len().max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_is_the_one_that_beats_others_in_its_rounds() {
        // The device becomes faster from round to round, and a launch that was left out had one lucky time.
        let drift = [8, 7, 6, 5, 4, 3, 2, 1];
        let launch = |size, ns: u64, rounds: usize| {
            (Candidate::of_shape([size, 1, 1]), drift[..rounds].iter().map(|drift| drift * ns).collect::<Vec<u64>>())
        };
        let mut all = vec![launch(32, 1_000, 8), launch(64, 980, 8), launch(128, 1_100, 5), launch(256, 1_020, 8)];
        all[1].1[3] *= 5;
        all[2].1[4] = 1;
        assert_eq!(fastest(&all).workgroup_size, [64, 1, 1]);
        assert_eq!(fastest(&all[..1]).workgroup_size, [32, 1, 1]);
    }
}
