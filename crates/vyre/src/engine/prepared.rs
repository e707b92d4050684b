use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use vyre_driver::backend::{Binding, Buffer, Completion, Launch, Pending, Pipeline};
use vyre_driver::metrics::{Counter, Stage, Timer};
use vyre_driver::routing::Timing;
use vyre_driver::tuner::{Decision, Mode};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::BufferDecl;
use vyre_spec::{Diagnostic, codes};

use super::learning::{Context, Learning, Learnt};
use super::routes::Work;
use super::{Blame, Explanation, Inner, blame, explain, lock};

/// A program that is ready to run many times on buffers that stay on the device. Threads may share it.
///
/// Inputs are [set](Prepared::set) by name, results are [read](Prepared::get) by name, and between two dispatches nothing moves. A
/// dispatch whose sizes did not change since the last allocates nothing and takes no lock.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let program = vyre::wgsl("
///     @group(0) @binding(0) var<storage, read_write> x: array<u32>;
///     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
///         if id.x < arrayLength(&x) { x[id.x] += 1u; }
///     }")?;
/// let engine = vyre::Engine::builder().without_disk().open()?;
/// let prepared = engine.prepare(&program)?;
/// prepared.set("x", vyre::to_bytes(&[10u32, 20]))?;
/// for _ in 0..3 {
///     prepared.run()?;
/// }
/// assert_eq!(vyre::from_bytes::<u32>(&prepared.get("x")?), [13, 23]);
/// # Ok(())
/// # }
/// ```
pub struct Prepared {
    engine: Arc<Inner>,
    program: ValidProgram,
    config: DispatchConfig,
    /// The one backend that may be used, where the caller said so.
    only: Option<Arc<dyn VyreBackend>>,
    /// What a dispatch needs; absent until everything is known and after a size has changed.
    ready: ArcSwapOption<Ready>,
    /// Guards changes of `ready` and holds the inputs' bytes while no device has them.
    setup: Mutex<Setup>,
}

/// Everything that a steady dispatch needs.
struct Ready {
    backend: Arc<dyn VyreBackend>,
    pipeline: Arc<dyn Pipeline>,
    bindings: Vec<Binding>,
    grid: [u32; 3],
    work: Work,
    /// Why this launch; absent when it is the program's own.
    decision: Option<Decision>,
    /// Runs so far, to time some of them.
    runs: AtomicU64,
    /// The other backends were measured anew, so the choice of this one should be looked at again.
    reconsider: Arc<AtomicBool>,
    /// What is still being learnt about the launch; taken by one thread at a time, the others use what there is.
    learning: Option<Mutex<Learning>>,
}

/// The first runs are timed, then one in so many.
const TIMED_AT_FIRST: u64 = 8;
const TIMED_EVERY: u64 = 64;

/// One slot for each of the program's buffers, in binding order.
struct Setup {
    /// Host bytes of inputs that no device holds yet; `None` for results and for what a device holds.
    pending: Vec<Option<Vec<u8>>>,
    /// Size of each input, once it was set.
    sizes: Vec<Option<u64>>,
    /// Results of a backend that has no device-resident path.
    host_results: Option<Vec<Vec<u8>>>,
    /// The backend of the last dispatch, for explanations.
    last: Option<Arc<dyn VyreBackend>>,
    /// What the last dispatch was for the router.
    work: Option<Work>,
    /// Backends that refused the program, with the reason.
    refused: Vec<(String, String)>,
}

impl Prepared {
    pub(super) fn new(
        engine: Arc<Inner>,
        program: ValidProgram,
        config: DispatchConfig,
        only: Option<Arc<dyn VyreBackend>>,
    ) -> Result<Prepared, BackendError> {
        // Wrong names and types of specialization values are told here, not at the first dispatch.
        config.specialization.resolve(&program)?;
        let count = program.binding_order().len();
        let setup = Setup {
            pending: vec![None; count],
            sizes: vec![None; count],
            host_results: None,
            last: None,
            work: None,
            refused: Vec::new(),
        };
        Ok(Prepared { engine, program, config, only, ready: ArcSwapOption::empty(), setup: Mutex::new(setup) })
    }

    /// The program.
    pub fn program(&self) -> &ValidProgram {
        &self.program
    }

    /// Sets the contents of an input. While its size stays the same, the bytes go straight to the device's buffer.
    pub fn set(&self, name: &str, bytes: &[u8]) -> Result<(), BackendError> {
        let slot = self.slot(name, |buffer| buffer.kind.is_input(), "an input")?;
        let mut setup = lock(&self.setup);
        if let Some(ready) = &*self.ready.load()
            && setup.sizes[slot] == Some(bytes.len() as u64)
        {
            let _timer = self.engine.metrics.time(Stage::Upload);
            ready.backend.upload(&ready.bindings[slot].buffer, ready.bindings[slot].offset, bytes)?;
            self.engine.metrics.add(Counter::BytesUploaded, bytes.len() as u64);
            return Ok(());
        }
        if setup.sizes[slot] != Some(bytes.len() as u64) {
            self.bring_home(&mut setup)?;
        }
        setup.sizes[slot] = Some(bytes.len() as u64);
        setup.pending[slot] = Some(bytes.to_vec());
        Ok(())
    }

    /// The contents of a result, after all dispatches so far.
    pub fn get(&self, name: &str) -> Result<Vec<u8>, BackendError> {
        let slot = self.slot(name, |buffer| buffer.kind.is_result(), "a result")?;
        let setup = lock(&self.setup);
        if let Some(ready) = &*self.ready.load() {
            let binding = &ready.bindings[slot];
            let mut bytes = vec![0; binding.bytes as usize];
            let _timer = self.engine.metrics.time(Stage::Download);
            ready.backend.download(&binding.buffer, binding.offset, &mut bytes)?;
            self.engine.metrics.add(Counter::BytesDownloaded, binding.bytes);
            return Ok(bytes);
        }
        let results = self.result_slots();
        let position = results.iter().position(|&result| result == slot);
        match (&setup.host_results, position) {
            (Some(results), Some(position)) => Ok(results[position].clone()),
            _ => setup.pending[slot].clone().ok_or_else(|| {
                Diagnostic::new(&codes::engine::NOT_RUN, format!("result `{name}` has no contents before a dispatch"))
                    .into()
            }),
        }
    }

    /// Queues one dispatch and returns at once; [`Prepared::wait`] waits for it. Dispatches run in order.
    pub fn dispatch(&self) -> Result<Pending, BackendError> {
        if let Some(ready) = &*self.ready.load() {
            self.engine.metrics.add(Counter::Dispatches, 1);
            let launch = Launch { bindings: &ready.bindings, grid: ready.grid, timed: false };
            return ready.backend.submit(&ready.pipeline, &launch).map_err(|error| self.failed(ready, error));
        }
        self.first_dispatch()
    }

    /// Waits until a dispatch and all before it are done.
    pub fn wait(&self, pending: Pending) -> Result<Completion, BackendError> {
        let _span = self.traced(Stage::Wait);
        match &*self.ready.load() {
            Some(ready) => {
                let done = ready.backend.wait(pending, self.config.timeout);
                done.map_err(|error| self.failed(ready, error))
            }
            // A backend without a device-resident path is done when the dispatch returns.
            None => Ok(Completion::default()),
        }
    }

    /// A span of the hot path, only while somebody looks.
    fn traced(&self, stage: Stage) -> Option<Timer<'_>> {
        self.engine.metrics.is_tracing().then(|| self.engine.metrics.time(stage))
    }

    /// Dispatches and waits. While the launch is being learnt every run teaches something; afterwards some runs are timed, so that
    /// the router notices when the device changes.
    pub fn run(&self) -> Result<Completion, BackendError> {
        let guard = self.ready.load();
        let Some(ready) = &*guard else {
            let pending = self.dispatch()?;
            return self.wait(pending);
        };
        let run = ready.runs.fetch_add(1, Ordering::Relaxed);
        if ready.reconsider.load(Ordering::Relaxed) && self.should_move(ready) {
            self.bring_home(&mut lock(&self.setup))?;
            let pending = self.dispatch()?;
            return self.wait(pending);
        }
        if let Some(learning) = &ready.learning
            && let Ok(mut learning) = learning.try_lock()
        {
            self.engine.metrics.add(Counter::Dispatches, 1);
            return self.learn(ready, &mut learning).map_err(|error| self.failed(ready, error));
        }
        let timed = run < TIMED_AT_FIRST || run.is_multiple_of(TIMED_EVERY);
        let started = timed.then(Instant::now);
        self.engine.metrics.add(Counter::Dispatches, 1);
        let launch = Launch { bindings: &ready.bindings, grid: ready.grid, timed };
        let _span = self.traced(Stage::Wait);
        let submitted = ready.backend.submit(&ready.pipeline, &launch);
        let done = submitted.and_then(|pending| ready.backend.wait(pending, self.config.timeout));
        let completion = done.map_err(|error| self.failed(ready, error))?;
        if let Some(started) = started {
            self.timed(ready, completion.device_ns.unwrap_or(started.elapsed().as_nanos() as u64));
        }
        Ok(completion)
    }

    fn timed(&self, ready: &Ready, compute_ns: u64) {
        self.engine.metrics.record(Stage::Wait, compute_ns);
        let timing = Timing { compute_ns, ..Timing::default() };
        if self.engine.routes.observe(&ready.work, ready.backend.id(), timing) && self.only.is_none() {
            self.certify_others(ready);
        }
    }

    /// Measures the other backends beside the caller, on copies of what the buffers hold now.
    fn certify_others(&self, ready: &Ready) {
        let (engine, program, config) = (self.engine.clone(), self.program.clone(), self.config.clone());
        let (backend, bindings, work) = (ready.backend.clone(), ready.bindings.clone(), ready.work.clone());
        let reconsider = ready.reconsider.clone();
        let certify = move || {
            let order = program.binding_order();
            let mut inputs = Vec::new();
            for (&index, binding) in order.iter().zip(&bindings) {
                if program.buffers()[index].kind.is_input() {
                    let mut bytes = vec![0; binding.bytes as usize];
                    if backend.download(&binding.buffer, binding.offset, &mut bytes).is_err() {
                        return;
                    }
                    inputs.push(bytes);
                }
            }
            let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            let Ok(plan) = vyre_driver::launch::plan(&program, &inputs, &config) else { return };
            for id in engine.routes.others(&work, backend.id()) {
                let Ok(other) = engine.registry.acquire(&id) else { continue };
                match engine.run_on(&other, &program, &plan, &inputs, &config) {
                    Ok((_, Some(timing))) => drop(engine.routes.observe(&work, &id, timing)),
                    Ok((_, None)) => {}
                    Err(error) => engine.routes.unable(&work, &id, error.message()),
                }
            }
            reconsider.store(true, Ordering::Relaxed);
        };
        if let Err(error) = std::thread::Builder::new().name("vyre-router".to_owned()).spawn(certify) {
            tracing::warn!("no thread to measure other backends: {error}");
        }
    }

    /// Another backend is now known to be faster.
    fn should_move(&self, ready: &Ready) -> bool {
        ready.reconsider.store(false, Ordering::Relaxed);
        let best = self.engine.routes.explain(&ready.work).chosen;
        best.is_some_and(|best| best != ready.backend.id())
    }

    fn learn(&self, ready: &Ready, learning: &mut Learning) -> Result<Completion, BackendError> {
        let context = Context {
            engine: &self.engine,
            backend: &ready.backend,
            program: &self.program,
            config: &self.config,
            bindings: &ready.bindings,
        };
        let ns = match learning.dispatch(&context)? {
            Learnt::Ran(ns) => ns,
            Learnt::Decided(ns, (pipeline, grid), decision) => {
                let settled = Ready {
                    backend: ready.backend.clone(),
                    pipeline,
                    bindings: ready.bindings.clone(),
                    grid,
                    work: ready.work.clone(),
                    decision: Some(*decision),
                    runs: AtomicU64::new(ready.runs.load(Ordering::Relaxed)),
                    reconsider: ready.reconsider.clone(),
                    learning: None,
                };
                let _setup = lock(&self.setup);
                // A change of sizes meanwhile has made the buffers anew; then there is nothing to settle.
                if self.ready.load().as_ref().is_some_and(|now| std::ptr::eq(&raw const **now, ready)) {
                    self.ready.store(Some(Arc::new(settled)));
                }
                ns
            }
        };
        self.timed(ready, ns);
        Ok(Completion { device_ns: ready.backend.capabilities().timestamps.then_some(ns) })
    }

    /// A backend that fails is not used again. What was in its buffers is gone, so the caller sets the inputs anew and the next
    /// dispatch goes elsewhere.
    fn failed(&self, ready: &Ready, error: BackendError) -> BackendError {
        self.engine.metrics.add(Counter::Errors, 1);
        if matches!(blame(&error), Blame::Backend) {
            self.engine.notice(self.engine.routes.lost(ready.backend.id(), error.message()));
            self.ready.store(None);
        }
        error
    }

    /// What was chosen, what else was possible, and on what evidence.
    pub fn explain(&self) -> Explanation {
        let setup = lock(&self.setup);
        let ready = self.ready.load();
        let backend = setup.last.as_ref();
        let mut explanation = Explanation {
            program: self.program.name().to_owned(),
            backend: backend.map(|backend| backend.id().to_owned()),
            device: backend.map(|backend| backend.capabilities().name.clone()).filter(|name| !name.is_empty()),
            workgroup_size: ready.as_ref().map(|ready| ready.pipeline.workgroup_size()),
            grid: ready.as_ref().map(|ready| ready.grid),
            launch: match (&self.config.workgroup_override, ready.as_ref().and_then(|ready| ready.decision.as_ref())) {
                (Some(_), _) => "asked for by the configuration".to_owned(),
                (None, Some(decision)) => explain::launch(decision),
                (None, None) => match ready.as_ref().and_then(|ready| ready.learning.as_ref()) {
                    Some(learning) => {
                        let samples = learning.try_lock().map_or(0, |learning| learning.samples());
                        format!("the program's own workgroup size; others are being tried, {samples} timings so far")
                    }
                    None => "the program's own workgroup size; no other was measured".to_owned(),
                },
            },
            routing: match &self.only {
                Some(_) => "asked for by name".to_owned(),
                None => "the fastest that is known for this program at this size".to_owned(),
            },
            others: Vec::new(),
            crossovers: Vec::new(),
        };
        if let Some(work) = &setup.work {
            let routes = self.engine.routes.explain(work);
            let unopened = routes.chosen.as_deref().filter(|id| self.engine.routes.is_slow_to_open(id));
            if let (None, Some(fastest)) = (&self.only, unopened) {
                explanation.routing =
                    format!("the fastest that is open; opening {fastest} takes longer than it would have saved so far");
            }
            explanation.add_routes(&routes);
        }
        for (id, reason) in &setup.refused {
            explanation.exclude(id, reason);
        }
        explanation
    }

    /// Position of a named buffer in binding order.
    fn slot(&self, name: &str, fits: impl Fn(&BufferDecl) -> bool, what: &str) -> Result<usize, BackendError> {
        let buffers = self.program.buffers();
        let order = self.program.binding_order();
        let found = order.iter().position(|&index| buffers[index].name == name);
        match found {
            Some(slot) if fits(&buffers[order[slot]]) => Ok(slot),
            _ => {
                let names: Vec<&str> =
                    order.iter().filter(|&&i| fits(&buffers[i])).map(|&i| buffers[i].name.as_str()).collect();
                let known = if names.is_empty() { "there is none".to_owned() } else { names.join(", ") };
                let message = format!("`{name}` is not {what} of the program; known: {known}");
                Err(Diagnostic::new(&codes::engine::UNKNOWN_BUFFER, message).into())
            }
        }
    }

    fn result_slots(&self) -> Vec<usize> {
        let order = self.program.binding_order();
        (0..order.len()).filter(|&slot| self.program.buffers()[order[slot]].kind.is_result()).collect()
    }

    /// Takes the contents of inputs back from the device, because sizes change and buffers must be made anew.
    fn bring_home(&self, setup: &mut Setup) -> Result<(), BackendError> {
        let Some(ready) = self.ready.swap(None) else { return Ok(()) };
        let order = self.program.binding_order();
        for (slot, binding) in ready.bindings.iter().enumerate() {
            if self.program.buffers()[order[slot]].kind.is_input() && setup.pending[slot].is_none() {
                let mut bytes = vec![0; binding.bytes as usize];
                ready.backend.download(&binding.buffer, binding.offset, &mut bytes)?;
                setup.pending[slot] = Some(bytes);
            }
        }
        Ok(())
    }

    /// Plans, compiles and uploads, on the first backend that can, and dispatches there.
    fn first_dispatch(&self) -> Result<Pending, BackendError> {
        let mut setup = lock(&self.setup);
        if self.ready.load().is_some() {
            // Another thread was first.
            drop(setup);
            return self.dispatch();
        }
        self.engine.metrics.add(Counter::Dispatches, 1);
        let inputs = self.inputs(&setup)?;
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let plan = vyre_driver::launch::plan(&self.program, &inputs, &self.config)?;
        let mut refused = Vec::new();
        let work = Work::new(&self.program, &self.config, &plan);
        let mut attempt = |backend: &Arc<dyn VyreBackend>| -> Result<(Attempt, Option<Timing>), BackendError> {
            let tried = || -> Result<Attempt, BackendError> {
                if !backend.capabilities().resident {
                    let started = Instant::now();
                    let results = backend.dispatch_borrowed(&self.program, &inputs, &self.config)?;
                    self.engine.metrics.record(Stage::Wait, started.elapsed().as_nanos() as u64);
                    return Ok(Attempt::Host(backend.clone(), results));
                }
                let tuning = &self.engine.tuning;
                let mut decision = tuning.decision(backend, &self.program, &plan, &self.config);
                if decision.is_none() && tuning.mode() == Mode::On {
                    decision =
                        Some(self.engine.tune(backend, &self.program, &inputs, &self.config, None, &mut |_| {})?);
                }
                let config = tuning.config_for(backend, &self.program, &plan, &self.config);
                let plan = vyre_driver::launch::plan(&self.program, &inputs, &config)?;
                let options = vyre_driver::launch::compile_options(&self.program, &config)?;
                let pipeline = self.engine.pipeline(&**backend, &self.program, &options)?;
                let bindings = self.bindings(&**backend, &plan.buffer_bytes, &inputs)?;
                let mut learning = None;
                if decision.is_none() && tuning.mode() == Mode::NaturalGradient {
                    let candidates = self.engine.candidates(backend, &self.program, &plan, &self.config, None)?;
                    if candidates.list.len() > 1 {
                        let sizes = inputs.iter().map(|input| input.len() as u64).collect();
                        let default = (pipeline.clone(), plan.grid);
                        let guess = tuning.warm_start(backend, &self.program, &plan, &self.config, &candidates);
                        learning = Some(Mutex::new(Learning::new(
                            &self.program,
                            candidates,
                            plan.clone(),
                            sizes,
                            default,
                            guess,
                        )));
                    }
                }
                let ready = Ready {
                    backend: backend.clone(),
                    pipeline,
                    bindings,
                    grid: plan.grid,
                    work: work.clone(),
                    decision,
                    runs: AtomicU64::new(0),
                    reconsider: Arc::default(),
                    learning,
                };
                let launch = Launch { bindings: &ready.bindings, grid: ready.grid, timed: false };
                let pending = ready.backend.submit(&ready.pipeline, &launch)?;
                Ok(Attempt::Device(Box::new(ready), pending))
            };
            let done = tried().inspect_err(|error| {
                if !matches!(blame(error), Blame::Caller) {
                    refused.push((backend.id().to_owned(), error.message().to_owned()));
                }
            })?;
            Ok((done, None))
        };
        let done = match &self.only {
            Some(backend) => attempt(backend)?.0,
            None => self.engine.on_some_backend(&work, attempt)?,
        };
        setup.refused = refused;
        setup.work = Some(work);
        match done {
            Attempt::Host(backend, results) => {
                // What a dispatch wrote is the next one's input.
                let result_slots = self.result_slots();
                let order = self.program.binding_order();
                for (&slot, result) in result_slots.iter().zip(&results) {
                    if self.program.buffers()[order[slot]].kind.is_input() {
                        setup.pending[slot] = Some(result.clone());
                    }
                }
                setup.host_results = Some(results);
                setup.last = Some(backend);
                Ok(Pending(0))
            }
            Attempt::Device(ready, pending) => {
                setup.pending.fill(None);
                setup.host_results = None;
                setup.last = Some(ready.backend.clone());
                self.ready.store(Some(Arc::from(ready)));
                Ok(pending)
            }
        }
    }

    /// The bytes of every input in binding order; all must have been set.
    fn inputs(&self, setup: &Setup) -> Result<Vec<Vec<u8>>, BackendError> {
        let order = self.program.binding_order();
        let mut inputs = Vec::new();
        for (slot, &index) in order.iter().enumerate() {
            let buffer = &self.program.buffers()[index];
            if buffer.kind.is_input() {
                inputs.push(setup.pending[slot].clone().ok_or_else(|| {
                    Diagnostic::new(&codes::engine::NOT_SET, format!("input `{}` has no contents", buffer.name))
                })?);
            }
        }
        Ok(inputs)
    }

    fn bindings(
        &self,
        backend: &dyn VyreBackend,
        sizes: &[u64],
        inputs: &[&[u8]],
    ) -> Result<Vec<Binding>, BackendError> {
        let _timer = self.engine.metrics.time(Stage::Upload);
        let order = self.program.binding_order();
        let mut given = inputs.iter();
        let mut bindings = Vec::with_capacity(order.len());
        for (&index, &bytes) in order.iter().zip(sizes) {
            let buffer: Buffer = backend.allocate(bytes)?;
            if self.program.buffers()[index].kind.is_input()
                && let Some(input) = given.next()
            {
                backend.upload(&buffer, 0, input)?;
                self.engine.metrics.add(Counter::BytesUploaded, bytes);
            }
            bindings.push(Binding::new(buffer, bytes));
        }
        Ok(bindings)
    }
}

enum Attempt {
    Host(Arc<dyn VyreBackend>, Vec<Vec<u8>>),
    Device(Box<Ready>, Pending),
}
