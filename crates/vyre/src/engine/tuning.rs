//! Which launch a program gets on a backend.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use vyre_driver::backend::{Binding, Launch, Order, Pipeline};
use vyre_driver::metrics::{Counter, Stage};
use vyre_driver::pipeline::hex_encode;
use vyre_driver::routing::difference;
use vyre_driver::tuner::{
    Campaign, Candidate, Candidates, Decision, DecisionKey, DecisionTable, Known, Mode, Plan, Space, Step,
};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::launch::{self, LaunchPlan};
use vyre_spec::{Diagnostic, Severity, codes};

use super::{Inner, lock};

/// Where decisions are kept.
pub(super) enum Folder {
    /// The user's own, as the driver has it.
    User,
    At(PathBuf),
    None,
}

/// The decisions of all adapters that this engine has met.
pub(super) struct Tuning {
    mode: Mode,
    folder: Folder,
    adapters: Mutex<BTreeMap<String, Adapter>>,
    /// Tables that can't be read, for the user.
    problems: Mutex<Vec<Diagnostic>>,
}

/// One timing of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct TuneSample<'a> {
    /// The launch that ran.
    pub candidate: &'a Candidate,
    /// Its time.
    pub ns: u64,
    /// Timings so far.
    pub taken: usize,
    /// Most timings that the sweep will take.
    pub at_most: usize,
}

struct Adapter {
    table: DecisionTable,
    path: Option<PathBuf>,
    changed: bool,
}

/// A sweep over few launches takes this many timings at most, as the campaign's plan says.
const FEWEST_SAMPLES: usize = 64;
/// Most launches that are compared.
const MOST_CANDIDATES: usize = 64;

impl Tuning {
    pub(super) fn new(mode: Mode, folder: Folder) -> Tuning {
        Tuning { mode, folder, adapters: Mutex::default(), problems: Mutex::default() }
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    /// What was decided for a program of this size on this backend.
    pub(super) fn decision(
        &self,
        backend: &Arc<dyn VyreBackend>,
        program: &ValidProgram,
        plan: &LaunchPlan,
        config: &DispatchConfig,
    ) -> Option<Decision> {
        if self.mode == Mode::OffUseDefault || !leaves_launch_open(config) {
            return None;
        }
        let key = key(backend, program, plan, config);
        self.on_table(backend, |adapter| match adapter.table.find(&key) {
            Known::Same(decision) => Some(decision.clone()),
            Known::Other(_) | Known::Nothing => None,
        })
    }

    /// What was decided in other circumstances (another size, an older driver): a good first guess that is to be checked again.
    fn guess(
        &self,
        backend: &Arc<dyn VyreBackend>,
        program: &ValidProgram,
        plan: &LaunchPlan,
        config: &DispatchConfig,
    ) -> Option<Candidate> {
        let key = key(backend, program, plan, config);
        self.on_table(backend, |adapter| match adapter.table.find(&key) {
            Known::Other(decision) => Some(decision.candidate.clone()),
            Known::Same(_) | Known::Nothing => None,
        })
    }

    /// Position of the first guess among the candidates, where there is one besides the default.
    pub(super) fn warm_start(
        &self,
        backend: &Arc<dyn VyreBackend>,
        program: &ValidProgram,
        plan: &LaunchPlan,
        config: &DispatchConfig,
        candidates: &Candidates,
    ) -> Option<usize> {
        let guess = self.guess(backend, program, plan, config)?;
        candidates.list.iter().position(|candidate| *candidate == guess).filter(|&at| at > 0)
    }

    fn on_table<T>(&self, backend: &Arc<dyn VyreBackend>, work: impl FnOnce(&mut Adapter) -> T) -> T {
        let able = backend.capabilities();
        let digest = hex_encode(&able.fingerprint.cache_key([0; 32])[..8]);
        let name = format!("{}-{}-{digest}", backend.id(), able.name);
        let mut adapters = lock(&self.adapters);
        let adapter = adapters.entry(name).or_insert_with_key(|name| {
            let path = match &self.folder {
                Folder::User => Some(DecisionTable::path_for_adapter(name)),
                Folder::At(folder) => Some(folder.join(format!("{}-{digest}.toml", backend.id()))),
                Folder::None => None,
            };
            let table = path.as_ref().map(DecisionTable::load).unwrap_or_else(|| Ok(DecisionTable::default()));
            let table = table.unwrap_or_else(|mut problem| {
                problem.severity = problem.severity.min(Severity::Warning);
                lock(&self.problems).push(problem);
                DecisionTable::default()
            });
            Adapter { table, path, changed: false }
        });
        work(adapter)
    }

    /// Keeps a decision.
    pub(super) fn decided(
        &self,
        backend: &Arc<dyn VyreBackend>,
        program: &ValidProgram,
        plan: &LaunchPlan,
        config: &DispatchConfig,
        decision: Decision,
    ) {
        let key = key(backend, program, plan, config);
        self.on_table(backend, |adapter| {
            adapter.table.insert(&key, decision);
            adapter.changed = true;
        });
    }

    pub(super) fn count(&self, backend: &Arc<dyn VyreBackend>) -> usize {
        self.on_table(backend, |adapter| adapter.table.iter().count())
    }

    pub(super) fn take_problems(&self) -> Vec<Diagnostic> {
        std::mem::take(&mut *lock(&self.problems))
    }

    /// The folder of the tables, where there is one.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        match &self.folder {
            Folder::User => DecisionTable::path_for_adapter("adapter").parent().map(PathBuf::from),
            Folder::At(folder) => Some(folder.clone()),
            Folder::None => None,
        }
    }

    /// Adds new decisions to their files.
    pub(super) fn save(&self) -> Result<(), Diagnostic> {
        let mut adapters = lock(&self.adapters);
        for adapter in adapters.values_mut().filter(|adapter| adapter.changed) {
            if let Some(path) = &adapter.path {
                adapter.table.save(path)?;
            }
            adapter.changed = false;
        }
        Ok(())
    }
}

/// A caller who names a workgroup size gets it.
fn leaves_launch_open(config: &DispatchConfig) -> bool {
    config.workgroup_override.is_none() && config.grid_override.is_none()
}

pub(super) fn with_launch(config: &DispatchConfig, candidate: &Candidate) -> DispatchConfig {
    let mut config = config.clone();
    config.workgroup_override = Some(candidate.workgroup_size);
    for (name, value) in candidate.specialization.iter() {
        config.specialization.insert(name, value.clone());
    }
    config
}

fn key(
    backend: &Arc<dyn VyreBackend>,
    program: &ValidProgram,
    plan: &LaunchPlan,
    config: &DispatchConfig,
) -> DecisionKey {
    let able = backend.capabilities();
    // Sizes within a factor of two are the same circumstance.
    let invocations: u64 = (0..3)
        .map(|axis| u64::from(plan.grid[axis]) * u64::from(plan.workgroup_size[axis]))
        .fold(1, u64::saturating_mul);
    let size = invocations.max(1).ilog2().to_string();
    let circumstances = [("driver", able.driver.as_str()), ("device", able.name.as_str()), ("size", size.as_str())];
    DecisionKey::new(program, &config.specialization, able.pipeline_features, &circumstances)
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Inner {
    /// The launches that may be compared for a program on a backend, the default first; only the default when its result may depend on
    /// the workgroup size and no constants are tuned.
    pub(super) fn candidates(
        &self,
        backend: &Arc<dyn VyreBackend>,
        program: &ValidProgram,
        plan: &LaunchPlan,
        config: &DispatchConfig,
        space: Option<&Space>,
    ) -> Result<Candidates, BackendError> {
        let default = Candidate { workgroup_size: plan.workgroup_size, specialization: Default::default() };
        let limit = backend.capabilities().limits.max_workgroup_invocations;
        if let Some(space) = space {
            return Ok(space.candidates(default, limit, MOST_CANDIDATES));
        }
        let freedom = launch::freedom(program, Some(&config.specialization.resolve(program)?))?;
        let space = match leaves_launch_open(config) && freedom.shapes != launch::Shapes::Own {
            true => Space::new().with_shapes_along(freedom.axes, plan.domain, limit),
            false => Space::new(),
        };
        let mut candidates = space.candidates(default, limit, MOST_CANDIDATES);
        // The kernel's own size stays along the axes that it does not use.
        let may = candidates.list.iter().map(|one| freedom.may_try(plan, one.workgroup_size)).collect::<Vec<_>>();
        let mut keep = may.iter().copied();
        candidates.list.retain(|_| keep.next().unwrap_or(false));
        let mut keep = may.iter().copied();
        candidates.places.retain(|_| keep.next().unwrap_or(false));
        Ok(candidates)
    }

    /// The launches that are proven to give the same results as the default, which is the first.
    pub(super) fn proven_candidates(
        &self,
        backend: &Arc<dyn VyreBackend>,
        program: &ValidProgram,
        plan: &LaunchPlan,
        config: &DispatchConfig,
    ) -> Result<Candidates, BackendError> {
        let mut candidates = self.candidates(backend, program, plan, config, None)?;
        let freedom = launch::freedom(program, Some(&config.specialization.resolve(program)?))?;
        let default = plan.workgroup_size;
        let same = |one: &Candidate| one.workgroup_size == default || freedom.allows(plan, one.workgroup_size);
        let proven: Vec<bool> = candidates.list.iter().map(same).collect();
        let mut keep = proven.iter().copied();
        candidates.list.retain(|_| keep.next().unwrap_or(false));
        let mut keep = proven.iter().copied();
        candidates.places.retain(|_| keep.next().unwrap_or(false));
        Ok(candidates)
    }

    /// Compares launches on the caller's inputs and keeps the decision.
    pub(super) fn tune(
        &self,
        backend: &Arc<dyn VyreBackend>,
        program: &ValidProgram,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        space: Option<&Space>,
        watch: &mut dyn FnMut(TuneSample<'_>),
    ) -> Result<Decision, BackendError> {
        let _timer = self.metrics.time(Stage::Tune);
        let plan = vyre_driver::launch::plan(program, inputs, config)?;
        let mut candidates = self.candidates(backend, program, &plan, config, space)?;
        if space.is_none()
            && let Some(guess) = self.tuning.warm_start(backend, program, &plan, config, &candidates)
        {
            // Only the guess and the default are compared; the guess stays unless it has become the slower one.
            candidates.list = vec![candidates.list[0].clone(), candidates.list[guess].clone()];
            candidates.places = vec![candidates.places[0].clone(), candidates.places[guess].clone()];
        }
        let mut bench = Bench::new(self, backend, program, inputs, config);
        let plan_of_campaign = Plan::default();
        let at_most = (candidates.list.len() * plan_of_campaign.samples_per_candidate).max(FEWEST_SAMPLES);
        let mut campaign = Campaign::new(candidates.list.len(), plan_of_campaign);
        let mut expected: Option<Vec<Vec<u8>>> = None;
        loop {
            match campaign.step() {
                Step::Check(candidate) => {
                    let checked =
                        bench.results(&candidates.list[candidate]).map_err(|error| error.message().to_owned());
                    campaign.checked(
                        candidate,
                        checked.and_then(|results| match &expected {
                            None => {
                                expected = Some(results);
                                Ok(())
                            }
                            Some(expected) => {
                                difference(program, config.ulp_budget, expected, &results).map_or(Ok(()), Err)
                            }
                        }),
                    );
                }
                Step::Measure(candidate) => match bench.measure(&candidates.list[candidate]) {
                    Ok(ns) => {
                        self.metrics.add(Counter::TuningSamples, 1);
                        campaign.observe(candidate, ns);
                        let taken = campaign.samples();
                        watch(TuneSample { candidate: &candidates.list[candidate], ns, taken, at_most });
                    }
                    Err(error) => campaign.reject(candidate, error.message().to_owned()),
                },
                Step::Done => break,
            }
        }
        let Some(outcome) = campaign.outcome() else {
            let why = campaign.default_failure().unwrap_or("nothing could be measured");
            return Err(Diagnostic::new(
                &codes::engine::NOT_TUNED,
                format!("`{}` can't be tuned: {why}", program.name()),
            )
            .into());
        };
        let able = backend.capabilities();
        let decision = Decision::new(&candidates, &outcome, &able.name, &able.driver, now());
        self.metrics.add(Counter::TuningDecisions, 1);
        self.tuning.decided(backend, program, &plan, config, decision.clone());
        Ok(decision)
    }
}

/// Runs candidates on one set of inputs.
struct Bench<'a> {
    engine: &'a Inner,
    backend: &'a Arc<dyn VyreBackend>,
    program: &'a ValidProgram,
    inputs: &'a [&'a [u8]],
    config: &'a DispatchConfig,
    bindings: Vec<Binding>,
    pipelines: Vec<(Candidate, Arc<dyn Pipeline>, LaunchPlan)>,
}

impl<'a> Bench<'a> {
    fn new(
        engine: &'a Inner,
        backend: &'a Arc<dyn VyreBackend>,
        program: &'a ValidProgram,
        inputs: &'a [&'a [u8]],
        config: &'a DispatchConfig,
    ) -> Bench<'a> {
        Bench { engine, backend, program, inputs, config, bindings: Vec::new(), pipelines: Vec::new() }
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
        if self.bindings.is_empty() {
            for &bytes in &plan.buffer_bytes {
                self.bindings.push(Binding::new(self.backend.allocate(bytes)?, bytes));
            }
        }
        self.pipelines.push((candidate.clone(), pipeline, plan));
        Ok(Some(self.pipelines.len() - 1))
    }

    /// Every run starts from the same contents: `all` buffers, or only those that a run changes.
    fn reset(&self, all: bool) -> Result<(), BackendError> {
        let mut given = self.inputs.iter();
        for (&index, binding) in self.program.binding_order().iter().zip(&self.bindings) {
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

    fn results(&mut self, candidate: &Candidate) -> Result<Vec<Vec<u8>>, BackendError> {
        let Some(at) = self.prepare(candidate)? else {
            return self.backend.dispatch_borrowed(self.program, self.inputs, &with_launch(self.config, candidate));
        };
        self.reset(true)?;
        self.launch(at)?;
        let mut results = Vec::new();
        for (&index, binding) in self.program.binding_order().iter().zip(&self.bindings) {
            if self.program.buffers()[index].kind.is_result() {
                let mut bytes = vec![0; binding.bytes as usize];
                self.backend.download(&binding.buffer, 0, &mut bytes, &Order::default())?;
                results.push(bytes);
            }
        }
        Ok(results)
    }

    fn measure(&mut self, candidate: &Candidate) -> Result<u64, BackendError> {
        let Some(at) = self.prepare(candidate)? else {
            let config = with_launch(self.config, candidate);
            let started = Instant::now();
            self.backend.dispatch_borrowed(self.program, self.inputs, &config)?;
            return Ok(started.elapsed().as_nanos() as u64);
        };
        self.reset(false)?;
        self.launch(at)
    }

    fn launch(&self, at: usize) -> Result<u64, BackendError> {
        let (_, pipeline, plan) = &self.pipelines[at];
        let started = Instant::now();
        let ticket = self.backend.submit(pipeline, &Launch::new(&self.bindings, plan.grid).timed())?;
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
