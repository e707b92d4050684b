//! Launches timed on one set of inputs: what campaigns decide by, and what an exhaustive search is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vyre_driver::backend::{Binding, DeviceKind, Launch, Order, Pipeline, Ticket};
use vyre_driver::tuner::{Candidate, Space};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::launch::{self, LaunchPlan};

use super::Inner;
use super::tuning::{Asked, with_launch};
use super::variants::{self, disagreement};

impl Inner {
    /// Times every launch that gives the results of the kernel's own so many times, in turns. The kernel's own is the first.
    pub(super) fn time_all(
        &self,
        backend: &Arc<dyn VyreBackend>,
        program: &ValidProgram,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        space: Option<&Space>,
        rounds: u32,
    ) -> Result<Vec<(Candidate, Vec<u64>)>, BackendError> {
        let plan = vyre_driver::launch::plan(program, inputs, config)?;
        let asked = Asked { backend, program, plan: &plan, config, variants: &[], fixed: false };
        let open: Vec<_> = variants::open(&asked, config.timeout.is_some()).cloned().collect();
        let asked = Asked { variants: &open, ..asked };
        let mut bench = Bench::new(self, backend, program, inputs, config);
        let mut all: Vec<(Candidate, Vec<u64>)> = Vec::new();
        let mut expected = None;
        for candidate in self.candidates(&asked, space, false)?.list {
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
        bench.warm_up(&all[0].0)?;
        for round in 0..rounds {
            bench.round = round as usize;
            // Every other round runs backwards, so that a slow drift favours nobody.
            for at in 0..all.len() {
                let at = if round % 2 == 0 { at } else { all.len() - 1 - at };
                let ns = bench.measure(&all[at].0)?;
                all[at].1.push(ns);
            }
        }
        Ok(all)
    }
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
    pipelines: Vec<(Candidate, Arc<dyn Pipeline>, LaunchPlan)>,
    /// Launches that make one sample.
    batch: u32,
    /// A launch does not see what an earlier one has written, so that several can follow each other on the same buffers.
    repeatable: bool,
}

/// A sample that is shorter says more about the clock and the queue than about the kernel.
const SHORTEST_SAMPLE: Duration = Duration::from_micros(1_500);
/// Threads of a processor are disturbed by whatever else runs there, so that more launches make a sample.
const SHORTEST_ON_CPU: Duration = Duration::from_millis(4);
const FEWEST_ON_CPU: u32 = 2;
/// Clocks and caches are given so long to settle.
const WARM_UP: Duration = Duration::from_millis(60);
const MOST_BATCHED: u32 = 256;
/// Rounds take turns with so many sets of buffers, unless these would take more memory, ...
const PLACES: usize = 16;
/// ... and the launches of one sample with so many of them, where each gets enough.
const PLACES_IN_SAMPLE: u32 = 8;
const LEAST_AT_PLACE: u32 = 6;
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
            repeatable,
        }
    }

    /// Launches are compared with those of the same round, which use the same buffers. Other rounds use others, so that no decision rests
    /// on where one set of them happens to lie.
    pub(super) fn begin_round(&mut self, round: usize) {
        self.round = round;
    }

    /// Runs the default until its times have settled, and finds how many launches make a sample that is long enough.
    pub(super) fn warm_up(&mut self, default: &Candidate) -> Result<(), BackendError> {
        let started = Instant::now();
        let (mut last, mut shortest) = (0u64, u64::MAX);
        for run in 0..64 {
            let ns = self.measure(default)?.max(1);
            shortest = shortest.min(ns);
            let settled = ns.abs_diff(last).saturating_mul(50) < ns;
            last = ns;
            if (run >= 3 && settled) || started.elapsed() > WARM_UP {
                break;
            }
        }
        if self.repeatable {
            let (shortest_sample, least) = match self.backend.capabilities().kind {
                DeviceKind::Cpu | DeviceKind::Software => (SHORTEST_ON_CPU, FEWEST_ON_CPU),
                _ => (SHORTEST_SAMPLE, 1),
            };
            let wanted = (shortest_sample.as_nanos() as u64).div_ceil(shortest.max(1));
            self.batch = u32::try_from(wanted).unwrap_or(MOST_BATCHED).clamp(least, MOST_BATCHED);
        }
        Ok(())
    }

    /// Buffers and a pipeline for a candidate, where the backend keeps them.
    fn prepare(&mut self, candidate: &Candidate) -> Result<Option<usize>, BackendError> {
        if !self.backend.capabilities().resident {
            return Ok(None);
        }
        if let Some(at) = self.pipelines.iter().position(|(known, _, _)| known == candidate) {
            return Ok(Some(at));
        }
        let config = with_launch(self.config, candidate);
        let plan = vyre_driver::launch::plan(self.program, self.inputs, &config)?;
        let options = vyre_driver::launch::compile_options(self.program, &config)?;
        let pipeline = self.engine.pipeline(&**self.backend, self.program, &options)?;
        if self.places.is_empty() {
            self.allocate(&plan.buffer_bytes)?;
        }
        self.pipelines.push((candidate.clone(), pipeline, plan));
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
            self.reset(true)?;
        }
        Ok(())
    }

    /// Every run starts from the same contents: `all` buffers, or only those that a run changes.
    fn reset(&self, all: bool) -> Result<(), BackendError> {
        let mut given = self.inputs.iter();
        for (&index, binding) in self.program.binding_order().iter().zip(&self.places[self.place]) {
            let kind = self.program.buffers()[index].kind;
            match if kind.is_input() { given.next() } else { None } {
                Some(input) if all || kind.is_result() => {
                    let uploaded = self.backend.upload(&binding.buffer, 0, input, &Order::default())?;
                    self.backend.forget(uploaded);
                }
                None if all => {
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
        self.reset(true)?;
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

    pub(super) fn measure(&mut self, candidate: &Candidate) -> Result<u64, BackendError> {
        let Some(at) = self.prepare(candidate)? else {
            let config = with_launch(self.config, candidate);
            let started = Instant::now();
            for _ in 0..self.batch {
                self.backend.dispatch_borrowed(self.program, self.inputs, &config)?;
            }
            return Ok(started.elapsed().as_nanos() as u64 / u64::from(self.batch));
        };
        let parts = (self.batch / LEAST_AT_PLACE).clamp(1, PLACES_IN_SAMPLE);
        let mut sum = 0;
        for part in 0..parts as usize {
            let place = (self.round * parts as usize + part) % self.places.len();
            if std::mem::replace(&mut self.place, place) != place {
                // Whoever is first at a place would pay for bringing it into the caches.
                self.reset(false)?;
                self.launch(at)?;
            }
            self.reset(false)?;
            sum += middle_mean(&mut self.times(at, self.batch.div_ceil(parts))?);
        }
        Ok(sum / u64::from(parts))
    }

    /// Launches so often, one after the other. A device with a clock of its own gets the next before the last is over: what it waits for
    /// the host, which others keep busy, would be taken for the kernel's time.
    fn times(&self, at: usize, count: u32) -> Result<Vec<u64>, BackendError> {
        let able = self.backend.capabilities();
        if !able.timestamps || matches!(able.kind, DeviceKind::Cpu | DeviceKind::Software) {
            return (0..count).map(|_| self.launch(at)).collect();
        }
        let submitted: Vec<_> = (0..count).map(|_| (self.submit(at), Instant::now())).collect();
        // Whatever failed, all that was submitted has to end.
        let ended: Vec<_> = submitted.into_iter().map(|(ticket, began)| self.finish(ticket?, began)).collect();
        ended.into_iter().collect()
    }

    fn launch(&self, at: usize) -> Result<u64, BackendError> {
        let started = Instant::now();
        self.finish(self.submit(at)?, started)
    }

    fn submit(&self, at: usize) -> Result<Ticket, BackendError> {
        let (_, pipeline, plan) = &self.pipelines[at];
        self.backend.submit(pipeline, &Launch::new(&self.places[self.place], plan.grid).timed())
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
