//! Learning a launch from real dispatches, without stalling one.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use vyre_driver::backend::{Binding, Launch, Pipeline};
use vyre_driver::metrics::Counter;
use vyre_driver::routing::difference;
use vyre_driver::tuner::{Candidates, Decision, OnlineTuner, Turn};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::launch::LaunchPlan;

use super::Inner;
use super::tuning::{now, with_launch};

/// A launch: pipeline and grid.
pub(super) type Prepared = (Arc<dyn Pipeline>, [u32; 3]);
/// A candidate's launch, or why there is none.
type Compiled = (usize, Result<Prepared, String>);

/// What is being learnt about one prepared program.
pub(super) struct Learning {
    tuner: OnlineTuner,
    candidates: Candidates,
    launches: Vec<Slot>,
    plan: LaunchPlan,
    inputs: Vec<u64>,
    arrived: mpsc::Receiver<Compiled>,
    arrivals: mpsc::Sender<Compiled>,
}

#[derive(Clone)]
enum Slot {
    Unknown,
    Compiling,
    Ready(Prepared),
    Failed,
}

/// Everything around a dispatch that learning needs.
pub(super) struct Context<'a> {
    pub(super) engine: &'a Arc<Inner>,
    pub(super) backend: &'a Arc<dyn VyreBackend>,
    pub(super) program: &'a ValidProgram,
    pub(super) config: &'a DispatchConfig,
    pub(super) bindings: &'a [Binding],
}

/// What came of a dispatch.
pub(super) enum Learnt {
    /// It took so long; more is to be learnt.
    Ran(u64),
    /// It is decided: from now on this launch is used.
    Decided(u64, Prepared, Box<Decision>),
}

impl Learning {
    /// `default` is the launch that runs while others are compiled, `guess` what was decided in other circumstances. Equal programs explore in the same order.
    pub(super) fn new(
        program: &ValidProgram,
        candidates: Candidates,
        plan: LaunchPlan,
        inputs: Vec<u64>,
        default: Prepared,
        guess: Option<usize>,
    ) -> Learning {
        let fingerprint = program.fingerprint();
        let seed = fingerprint.iter().take(8).fold(0, |seed, &byte| seed << 8 | u64::from(byte));
        let mut launches = vec![Slot::Unknown; candidates.list.len()];
        launches[0] = Slot::Ready(default);
        let (arrivals, arrived) = mpsc::channel();
        let tuner = match guess {
            Some(guess) => OnlineTuner::warm(&candidates.places, seed, guess),
            None => OnlineTuner::new(&candidates.places, seed),
        };
        Learning { tuner, candidates, launches, plan, inputs, arrived, arrivals }
    }

    /// Timings so far.
    pub(super) fn samples(&self) -> u64 {
        self.tuner.samples()
    }

    /// One dispatch with whatever the policy draws.
    pub(super) fn dispatch(&mut self, context: &Context<'_>) -> Result<Learnt, BackendError> {
        while let Ok((candidate, compiled)) = self.arrived.try_recv() {
            self.launches[candidate] = match compiled {
                Ok(launch) => Slot::Ready(launch),
                Err(reason) => {
                    self.tuner.reject(candidate, reason);
                    Slot::Failed
                }
            };
        }
        match self.tuner.turn() {
            Turn::Run(candidate) => {
                let ready = self.launch(candidate, context);
                let (candidate, launch) = match ready {
                    Some(launch) => (candidate, launch),
                    None => (0, self.default()?),
                };
                let ns = run(context, &launch, context.bindings)?;
                self.observe(candidate, ns, context);
                Ok(Learnt::Ran(ns))
            }
            Turn::Check(candidate) => self.check(candidate, context),
            Turn::Use(candidate) => {
                let Some(outcome) = self.tuner.outcome() else {
                    let launch = self.default()?;
                    return Ok(Learnt::Ran(run(context, &launch, context.bindings)?));
                };
                let launch = match self.launch(candidate, context) {
                    Some(launch) => launch,
                    None => self.default()?,
                };
                let ns = run(context, &launch, context.bindings)?;
                let able = context.backend.capabilities();
                let decision = Decision::new(&self.candidates, &outcome, &able.name, &able.driver, now());
                context.engine.metrics.add(Counter::TuningDecisions, 1);
                let tuning = &context.engine.tuning;
                tuning.decided(context.backend, context.program, &self.plan, context.config, decision.clone());
                Ok(Learnt::Decided(ns, launch, Box::new(decision)))
            }
        }
    }

    fn observe(&mut self, candidate: usize, ns: u64, context: &Context<'_>) {
        context.engine.metrics.add(Counter::TuningSamples, 1);
        self.tuner.observe(candidate, ns);
    }

    fn default(&self) -> Result<Prepared, BackendError> {
        match &self.launches[0] {
            Slot::Ready(launch) => Ok(launch.clone()),
            _ => Err(BackendError::new("the default launch is missing")),
        }
    }

    /// The launch of a candidate, if it is compiled; else it is compiled beside the caller.
    fn launch(&mut self, candidate: usize, context: &Context<'_>) -> Option<Prepared> {
        match &self.launches[candidate] {
            Slot::Ready(launch) => return Some(launch.clone()),
            Slot::Compiling | Slot::Failed => return None,
            Slot::Unknown => {}
        }
        let engine = context.engine.clone();
        let backend = context.backend.clone();
        let program = context.program.clone();
        let mut config = with_launch(context.config, &self.candidates.list[candidate]);
        config.domain_override = Some(self.plan.domain);
        let inputs = self.inputs.clone();
        let arrivals = self.arrivals.clone();
        let compile = move || {
            let compiled = vyre_driver::launch::plan_sizes(&program, &inputs, &config)
                .map_err(BackendError::from)
                .and_then(|plan| {
                    let options = vyre_driver::launch::compile_options(&program, &config)?;
                    Ok((engine.pipeline(&*backend, &program, &options)?, plan.grid))
                });
            // Nobody waits any more when the program was dropped or decided meanwhile.
            let _ = arrivals.send((candidate, compiled.map_err(|error| error.message().to_owned())));
        };
        self.launches[candidate] = match std::thread::Builder::new().name("vyre-tuner".to_owned()).spawn(compile) {
            Ok(_) => Slot::Compiling,
            Err(error) => {
                self.tuner.reject(candidate, format!("no thread to compile it: {error}"));
                Slot::Failed
            }
        };
        None
    }

    /// Runs the default on the caller's buffers and the candidate on copies, and compares the results.
    fn check(&mut self, candidate: usize, context: &Context<'_>) -> Result<Learnt, BackendError> {
        let default = self.default()?;
        if candidate == 0 {
            let ns = run(context, &default, context.bindings)?;
            self.observe(0, ns, context);
            self.tuner.checked(0, Ok(()));
            return Ok(Learnt::Ran(ns));
        }
        let Some(launch) = self.launch(candidate, context) else {
            let ns = run(context, &default, context.bindings)?;
            self.observe(0, ns, context);
            return Ok(Learnt::Ran(ns));
        };
        let order = context.program.binding_order();
        let is_result = |slot: usize| context.program.buffers()[order[slot]].kind.is_result();
        let mut copies = context.bindings.to_vec();
        for (slot, copy) in copies.iter_mut().enumerate().filter(|(slot, _)| is_result(*slot)) {
            let buffer = context.backend.allocate(copy.bytes)?;
            context.backend.copy(&copy.buffer, copy.offset, &buffer, 0, copy.bytes)?;
            *copy = Binding::new(buffer, context.bindings[slot].bytes);
        }
        let ns = run(context, &default, context.bindings)?;
        self.observe(0, ns, context);
        let download = |bindings: &[Binding]| {
            let results = bindings.iter().enumerate().filter(|(slot, _)| is_result(*slot));
            results
                .map(|(_, binding)| {
                    let mut bytes = vec![0; binding.bytes as usize];
                    context.backend.download(&binding.buffer, binding.offset, &mut bytes)?;
                    Ok(bytes)
                })
                .collect::<Result<Vec<_>, BackendError>>()
        };
        match run(context, &launch, &copies) {
            Ok(other) => {
                self.observe(candidate, other, context);
                let (expected, actual) = (download(context.bindings)?, download(&copies)?);
                let differs = difference(context.program, context.config.ulp_budget, &expected, &actual);
                self.tuner.checked(candidate, differs.map_or(Ok(()), Err));
            }
            Err(error) => self.tuner.reject(candidate, error.message().to_owned()),
        }
        Ok(Learnt::Ran(ns))
    }
}

fn run(context: &Context<'_>, launch: &Prepared, bindings: &[Binding]) -> Result<u64, BackendError> {
    let started = Instant::now();
    let pending = context.backend.submit(&launch.0, &Launch { bindings, grid: launch.1, timed: true })?;
    let completion = context.backend.wait(pending, context.config.timeout)?;
    Ok(completion.device_ns.unwrap_or(started.elapsed().as_nanos() as u64))
}
