//! Learning a launch from real launches, without stalling one. Only launches that are proven to give the same results are tried.

use std::sync::{Arc, mpsc};

use vyre_driver::backend::Pipeline;
use vyre_driver::metrics::Counter;
use vyre_driver::tuner::{Candidates, Decision, OnlineTuner, Source, Turn};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::launch::LaunchPlan;

use super::Inner;
use super::timings::Live;
use super::tuning::{Asked, with_launch};

/// A launch: pipeline and grid.
pub(super) type Compiled = (Arc<dyn Pipeline>, [u32; 3]);

/// What is being learnt about one program at one size on one device.
pub(crate) struct Learning {
    tuner: OnlineTuner,
    candidates: Candidates,
    launches: Vec<Slot>,
    plan: LaunchPlan,
    inputs: Vec<u64>,
    arrived: mpsc::Receiver<(usize, Result<Compiled, String>)>,
    arrivals: mpsc::Sender<(usize, Result<Compiled, String>)>,
}

#[derive(Clone)]
enum Slot {
    Unknown,
    Compiling,
    Ready(Compiled),
    Failed,
}

/// Launches of one candidate whose times are still to come before others are used meanwhile.
const ENOUGH_UNDER_WAY: usize = 2;

/// Everything around a launch that learning needs.
pub(super) struct Context<'a> {
    pub(super) engine: &'a Arc<Inner>,
    pub(super) backend: &'a Arc<dyn VyreBackend>,
    pub(super) program: &'a ValidProgram,
    pub(super) config: &'a DispatchConfig,
}

/// What the next launch is to be.
pub(super) struct Pick {
    pub(super) candidate: usize,
    /// `None` for the default.
    pub(super) launch: Option<Compiled>,
    pub(super) timed: bool,
}

impl Learning {
    /// `default` is the launch that runs while others are compiled. Equal programs explore in the same order.
    pub(super) fn new(
        program: &ValidProgram,
        candidates: Candidates,
        plan: LaunchPlan,
        inputs: Vec<u64>,
        default: Compiled,
    ) -> Learning {
        let fingerprint = program.fingerprint();
        let seed = fingerprint.iter().take(8).fold(0, |seed, &byte| seed << 8 | u64::from(byte));
        let mut launches = vec![Slot::Unknown; candidates.list.len()];
        launches[0] = Slot::Ready(default);
        let (arrivals, arrived) = mpsc::channel();
        let tuner = match candidates.first {
            Some(guess) => OnlineTuner::warm(&candidates.places, seed, guess),
            None => OnlineTuner::new(&candidates.places, seed),
        };
        Learning { tuner, candidates, launches, plan, inputs, arrived, arrivals }
    }

    /// Begins with a candidate that is there already, until the default was timed, too.
    pub(super) fn prefer(&mut self, candidate: usize, compiled: Result<Compiled, String>) {
        match compiled {
            Ok(launch) => {
                self.launches[candidate] = Slot::Ready(launch);
                self.tuner.prefer(candidate);
            }
            Err(reason) => self.reject(candidate, &reason),
        }
    }

    /// Timings so far.
    pub(super) fn samples(&self) -> u64 {
        self.tuner.samples()
    }

    /// What the policy draws for the next launch, or what has been the fastest so far while that is compiled. Nor is it drawn while enough
    /// launches of it are `under_way`, by candidate: a caller who launches many before waiting would else run all of them with one that may be slow.
    pub(super) fn pick(&mut self, context: &Context<'_>, interruptible: bool, under_way: &[usize]) -> Pick {
        while let Ok((candidate, compiled)) = self.arrived.try_recv() {
            self.launches[candidate] = match compiled {
                Ok(launch) => Slot::Ready(launch),
                Err(reason) => {
                    self.tuner.reject(candidate, reason);
                    Slot::Failed
                }
            };
        }
        let (Turn::Run(candidate) | Turn::Check(candidate) | Turn::Use(candidate)) = self.turn();
        if under_way.iter().filter(|other| **other == candidate).count() < ENOUGH_UNDER_WAY
            && let Some(launch) = self.launch(candidate, context, interruptible)
        {
            return Pick { candidate, launch: Some(launch).filter(|_| candidate > 0), timed: true };
        }
        // Dispatches that only pass the time tell nothing, and don't count against those that are to be tried.
        let best = self.tuner.best_so_far();
        match &self.launches[best] {
            Slot::Ready(launch) if best > 0 => Pick { candidate: best, launch: Some(launch.clone()), timed: false },
            _ => Pick { candidate: 0, launch: None, timed: false },
        }
    }

    /// What the tuner wants next. The compiler has proven what a check would show, so that no launch is made for one.
    fn turn(&mut self) -> Turn {
        match self.tuner.turn() {
            Turn::Check(candidate) => {
                self.tuner.checked(candidate, Ok(()));
                self.tuner.turn()
            }
            turn => turn,
        }
    }

    /// A candidate failed.
    pub(super) fn reject(&mut self, candidate: usize, reason: &str) {
        self.tuner.reject(candidate, reason.to_owned());
        self.launches[candidate] = Slot::Failed;
    }

    /// Takes a timing in; the launch that is used from now on, when it decides.
    pub(super) fn observe(
        &mut self,
        engine: &Inner,
        (backend, program, config): (&Arc<dyn VyreBackend>, &ValidProgram, &DispatchConfig),
        candidate: usize,
        ns: u64,
    ) -> Option<(Compiled, Decision, Option<Live>)> {
        self.tuner.observe(candidate, ns);
        let Turn::Use(candidate) = self.turn() else { return None };
        let outcome = self.tuner.outcome()?;
        let Slot::Ready(launch) = &self.launches[candidate] else { return None };
        let asked = Asked { backend, program, plan: &self.plan, config, variants: &[], fixed: false };
        let decision = Decision::new(asked.subject(true), &self.candidates, &outcome, asked.measured(Source::Learnt));
        engine.metrics.add(Counter::TuningDecisions, 1);
        engine.tuning.decided(&asked, decision.clone());
        let live = engine.tuning.watch(&asked, &decision);
        Some((launch.clone(), decision, live))
    }

    /// The launch of a candidate, if it is compiled; else it is compiled beside the caller.
    fn launch(&mut self, candidate: usize, context: &Context<'_>, interruptible: bool) -> Option<Compiled> {
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
        let (inputs, sizes) = (self.inputs.clone(), self.plan.buffer_bytes.clone());
        let arrivals = self.arrivals.clone();
        let compile = move || {
            let compiled = compile(&engine, &*backend, &program, config, &inputs, &sizes, interruptible);
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
}

pub(super) fn compile(
    engine: &Inner,
    backend: &dyn VyreBackend,
    program: &ValidProgram,
    mut config: DispatchConfig,
    inputs: &[u64],
    sizes: &[u64],
    interruptible: bool,
) -> Result<Compiled, BackendError> {
    let order = program.binding_order();
    for (&index, &bytes) in order.iter().zip(sizes) {
        let buffer = &program.buffers()[index];
        if !buffer.kind.is_input() {
            let elements = vyre_foundation::launch::shape_of(program, index)?.elements_in(bytes);
            config.output_elements.insert(buffer.name.as_str().to_owned(), elements);
        }
    }
    let plan = vyre_driver::launch::plan_sizes(program, inputs, &config)?;
    let mut options = vyre_driver::launch::compile_options(program, &config)?;
    options.interruptible = interruptible;
    Ok((engine.pipeline(backend, program, &options)?, plan.grid))
}
