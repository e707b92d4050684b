//! The engine: discover, route, tune, cache, run.

mod builder;
mod certify;
mod explain;
mod learning;
mod packs;
mod prepared;
mod routes;
mod tuning;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use vyre_driver::backend::{Binding, BufferPool, Capabilities, HostDispatch, Launch, Pipeline};
use vyre_driver::metrics::{Counter, Metrics, Stage};
use vyre_driver::pipeline::{PipelineCache, PipelineSource};
use vyre_driver::registry::Registry;
use vyre_driver::routing::Timing;
use vyre_driver::tuner::{Decision, Mode, Space};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::Program;
use vyre_foundation::launch::LaunchPlan;
use vyre_spec::{BackendId, Diagnostic, Severity, codes};

pub use builder::EngineBuilder;
pub use certify::{Certified, Racer};
pub use explain::{Choice, Explanation};
pub use packs::PackReport;
pub use prepared::Prepared;
use routes::{Routes, Work};
pub use tuning::TuneSample;
use tuning::Tuning;

/// Runs programs on whatever is fastest here. Threads may share one; clones are handles of the same engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

/// What an engine and everything made by it share.
struct Inner {
    registry: Registry,
    pipelines: PipelineCache,
    metrics: Arc<Metrics>,
    routes: Routes,
    tuning: Tuning,
    /// Device buffers of one-off runs, by backend.
    pools: Mutex<Vec<(BackendId, BufferPool)>>,
    /// What the user should know but was not an error.
    notices: Mutex<Vec<Diagnostic>>,
}

/// A backend that is registered: present with what it can do, or absent and why.
#[derive(Clone, Debug)]
pub struct Device {
    /// The backend's name.
    pub id: BackendId,
    /// What it is and can do, or why it is not here.
    pub state: Result<Capabilities, Diagnostic>,
}

impl Engine {
    /// An engine with every backend of this build and the user's own caches.
    pub fn open() -> Result<Engine, BackendError> {
        EngineBuilder::new().open()
    }

    /// An engine that is put together by hand.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::new()
    }

    /// Runs a program on the bytes of its inputs and gives the bytes of its results, both in binding order.
    pub fn run(&self, program: &Program, inputs: &[&[u8]]) -> Result<Vec<Vec<u8>>, BackendError> {
        self.run_with(program, inputs, &DispatchConfig::default())
    }

    /// [`Engine::run`] with a configuration.
    pub fn run_with(
        &self,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let inner = &*self.inner;
        let _timer = inner.metrics.time_labelled(Stage::Dispatch, config.label.as_deref());
        inner.metrics.add(Counter::Dispatches, 1);
        let run = || {
            let (valid, plan) = inner.check(program, inputs, config)?;
            let work = Work::new(&valid, config, &plan);
            inner.on_some_backend(&work, |backend| inner.run_on(backend, &valid, &plan, inputs, config))
        };
        run().inspect_err(|_| inner.metrics.add(Counter::Errors, 1))
    }

    /// [`Engine::run_with`] on one backend and no other.
    pub fn run_on(
        &self,
        backend: &str,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let inner = &*self.inner;
        let _timer = inner.metrics.time_labelled(Stage::Dispatch, config.label.as_deref());
        inner.metrics.add(Counter::Dispatches, 1);
        let run = || {
            let backend = inner.registry.acquire(backend)?;
            let (valid, plan) = inner.check(program, inputs, config)?;
            Ok(inner.run_on(&backend, &valid, &plan, inputs, config)?.0)
        };
        run().inspect_err(|_| inner.metrics.add(Counter::Errors, 1))
    }

    /// Makes a handle for many dispatches of one program on buffers that stay on the device.
    pub fn prepare(&self, program: &Program) -> Result<Prepared, BackendError> {
        self.prepare_with(program, &DispatchConfig::default())
    }

    /// [`Engine::prepare`] with a configuration.
    pub fn prepare_with(&self, program: &Program, config: &DispatchConfig) -> Result<Prepared, BackendError> {
        Prepared::new(self.inner.clone(), program.validate()?, config.clone(), None)
    }

    /// [`Engine::prepare_with`] on one backend and no other.
    pub fn prepare_on(
        &self,
        backend: &str,
        program: &Program,
        config: &DispatchConfig,
    ) -> Result<Prepared, BackendError> {
        let backend = self.inner.registry.acquire(backend)?;
        Prepared::new(self.inner.clone(), program.validate()?, config.clone(), Some(backend))
    }

    /// Compares the launches of a program on one backend with these inputs, and keeps the decision for all later runs. `space` says what may be
    /// tuned; without one it is the workgroup size, where the program's result does not depend on it.
    pub fn tune(
        &self,
        backend: &str,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        space: Option<&Space>,
    ) -> Result<Decision, BackendError> {
        self.tune_watched(backend, program, inputs, config, space, &mut |_| {})
    }

    /// [`Engine::tune`] that shows every timing as it is taken.
    pub fn tune_watched(
        &self,
        backend: &str,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        space: Option<&Space>,
        watch: &mut dyn FnMut(TuneSample<'_>),
    ) -> Result<Decision, BackendError> {
        let backend = self.inner.registry.acquire(backend)?;
        self.inner.tune(&backend, &program.validate()?, inputs, config, space, watch)
    }

    /// How many launches are decided on a backend, in all processes so far.
    pub fn decisions(&self, backend: &str) -> Result<usize, BackendError> {
        let backend = self.inner.registry.acquire(backend)?;
        Ok(self.inner.tuning.count(&backend))
    }

    /// What was chosen for a prepared program, what else was possible, and on what evidence.
    pub fn explain(&self, prepared: &Prepared) -> Explanation {
        prepared.explain()
    }

    /// Every registered backend. This opens all of them, which takes a while where there are GPUs.
    pub fn devices(&self) -> Vec<Device> {
        let listing = self.inner.registry.list();
        listing
            .into_iter()
            .map(|listing| Device {
                id: listing.id,
                state: listing.state.map(|backend| backend.capabilities().clone()),
            })
            .collect()
    }

    /// The names of all registered backends, the preferred first. Nothing is opened.
    pub fn backend_ids(&self) -> Vec<BackendId> {
        self.inner.registry.ids()
    }

    /// A backend by name.
    pub fn backend(&self, id: &str) -> Result<Arc<dyn VyreBackend>, BackendError> {
        Ok(self.inner.registry.acquire(id)?)
    }

    /// Counters and latencies.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// The pipeline cache.
    pub fn pipelines(&self) -> &PipelineCache {
        &self.inner.pipelines
    }

    /// Takes what has happened that a user should know and that was no error: a cache that can't be used, a backend that was
    /// taken out.
    pub fn take_notices(&self) -> Vec<Diagnostic> {
        let mut notices = std::mem::take(&mut *lock(&self.inner.notices));
        notices.extend(self.inner.tuning.take_problems());
        if let Some(disk) = self.inner.pipelines.disk() {
            notices.extend(disk.take_diagnostics());
        }
        notices
    }

    /// Returns when everything that was compiled and decided is safe on disk.
    pub fn flush(&self) -> Result<(), BackendError> {
        self.inner.pipelines.flush().map_err(|error| {
            BackendError::from(Diagnostic::new(&codes::engine::FLUSH, format!("the cache can't be flushed: {error}")))
        })?;
        self.inner.tuning.save()?;
        Ok(self.inner.routes.save()?)
    }
}

/// What was learnt is kept even where nobody calls `flush`.
impl Drop for Inner {
    fn drop(&mut self) {
        for problem in [self.tuning.save(), self.routes.save()].into_iter().filter_map(Result::err) {
            tracing::warn!(code = problem.code.id, "what was learnt can't be kept: {}", problem.message);
        }
    }
}

/// A panic elsewhere does not make the data wrong: every change under these locks is a single step.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn check(
        &self,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<(ValidProgram, LaunchPlan), BackendError> {
        let valid = {
            let _timer = self.metrics.time(Stage::Validate);
            program.validate()?
        };
        let _timer = self.metrics.time(Stage::Plan);
        let plan = vyre_driver::launch::plan(&valid, inputs, config)?;
        Ok((valid, plan))
    }

    /// Does the work on the backend that the router chooses. One that is absent or refuses the program is passed over; one that fails
    /// at the work is taken out, the work goes to the next, and the caller gets a notice. The caller's own mistakes end it at once. When no
    /// backend is left, the reference interpreter does it.
    fn on_some_backend<T>(
        &self,
        work: &Work,
        mut attempt: impl FnMut(&Arc<dyn VyreBackend>) -> Result<(T, Option<Timing>), BackendError>,
    ) -> Result<T, BackendError> {
        let mut first_error: Option<BackendError> = None;
        loop {
            let route = {
                let _timer = self.metrics.time(Stage::Route);
                self.routes.choose(work)
            };
            let (id, timed) = match route {
                Ok(route) => (route.backend, route.timed),
                Err(none_left) => match self.registry.acquire(crate::reference::REFERENCE) {
                    Ok(reference) => {
                        let done = attempt(&reference)?.0;
                        self.fell_back(&*reference, first_error.as_ref());
                        return Ok(done);
                    }
                    Err(_) => return Err(first_error.unwrap_or_else(|| none_left.into())),
                },
            };
            self.metrics.add(Counter::Routes, 1);
            let backend = match self.registry.acquire(&id) {
                Ok(backend) => backend,
                Err(absent) => {
                    self.routes.lost(&id, &absent.message);
                    continue;
                }
            };
            if self.routes.met(&id, backend.capabilities().kind) {
                continue;
            }
            let error = match attempt(&backend) {
                Ok((done, timing)) => {
                    if let Some(timing) = timing.filter(|_| timed) {
                        self.routes.observe(work, &id, timing);
                    }
                    self.fell_back(&*backend, first_error.as_ref());
                    return Ok(done);
                }
                Err(error) => error,
            };
            match blame(&error) {
                Blame::Caller => return Err(error),
                Blame::Program => self.routes.unable(work, &id, error.message()),
                Blame::Backend => self.notice(self.routes.lost(&id, error.message())),
            }
            first_error.get_or_insert(error);
        }
    }

    /// Tells the user that the work was done elsewhere than it should have been.
    fn fell_back(&self, backend: &dyn VyreBackend, error: Option<&BackendError>) {
        if let Some(error) = error {
            self.metrics.add(Counter::Fallbacks, 1);
            self.notice(Diagnostic::new(
                &codes::engine::FELL_BACK,
                format!("the work was done by `{}` instead: {}", backend.id(), error.message()),
            ));
        }
    }

    fn notice(&self, mut diagnostic: Diagnostic) {
        diagnostic.severity = diagnostic.severity.min(Severity::Warning);
        lock(&self.notices).push(diagnostic);
    }

    /// One run on host bytes, with the tuned launch, and how long the work took.
    fn run_on(
        &self,
        backend: &Arc<dyn VyreBackend>,
        program: &ValidProgram,
        plan: &LaunchPlan,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<(Vec<Vec<u8>>, Option<Timing>), BackendError> {
        if self.tuning.mode() == Mode::On && self.tuning.decision(backend, program, plan, config).is_none() {
            self.tune(backend, program, inputs, config, None, &mut |_| {})?;
        }
        let config = &self.tuning.config_for(backend, program, plan, config);
        let able = backend.capabilities();
        let timed = |work: &dyn Fn() -> Result<Vec<Vec<u8>>, BackendError>| {
            let _span = self.metrics.time(Stage::Wait);
            let started = Instant::now();
            let results = work()?;
            Ok((results, Some(Timing { compute_ns: started.elapsed().as_nanos() as u64, ..Timing::default() })))
        };
        if !able.resident {
            return timed(&|| backend.dispatch_borrowed(program, inputs, config));
        }
        let dispatch = HostDispatch::check(&**backend, program, inputs, config)?;
        let pipeline = self.pipeline(&**backend, program, &dispatch.options)?;
        // Where host and device share memory, the backend works on the caller's bytes and nothing is copied.
        if able.unified_memory {
            return timed(&|| backend.dispatch_compiled(&pipeline, &dispatch, inputs, config.timeout));
        }
        let plan = &dispatch.plan;
        let pool = self.pool(backend);
        let order = program.binding_order();
        let mut given = inputs.iter();
        let (mut pooled, mut moved_bytes) = (Vec::with_capacity(order.len()), 0);
        let started = Instant::now();
        for (&index, &bytes) in order.iter().zip(&plan.buffer_bytes) {
            let buffer = pool.take(bytes)?;
            let input = if program.buffers()[index].kind.is_input() { given.next() } else { None };
            match input {
                Some(input) => {
                    backend.upload(&buffer, 0, input)?;
                    moved_bytes += bytes;
                }
                None => backend.clear(&buffer, 0, bytes)?,
            }
            pooled.push((buffer, bytes));
        }
        let mut move_ns = started.elapsed().as_nanos() as u64;
        let bindings: Vec<Binding> =
            pooled.iter().map(|(buffer, bytes)| Binding::new((**buffer).clone(), *bytes)).collect();
        let started = Instant::now();
        let launch = Launch { bindings: &bindings, grid: plan.grid, timed: able.timestamps };
        let pending = backend.submit(&pipeline, &launch)?;
        let completion = backend.wait(pending, config.timeout)?;
        let waited_ns = started.elapsed().as_nanos() as u64;
        self.metrics.record(Stage::Wait, waited_ns);
        let started = Instant::now();
        let mut results = Vec::new();
        for (&index, binding) in order.iter().zip(&bindings) {
            if program.buffers()[index].kind.is_result() {
                let mut bytes = vec![0; binding.bytes as usize];
                backend.download(&binding.buffer, binding.offset, &mut bytes)?;
                moved_bytes += binding.bytes;
                results.push(bytes);
            }
        }
        move_ns += started.elapsed().as_nanos() as u64;
        self.metrics.add(Counter::BytesUploaded, inputs.iter().map(|input| input.len() as u64).sum());
        self.metrics.add(Counter::BytesDownloaded, results.iter().map(|result| result.len() as u64).sum());
        let compute_ns = completion.device_ns.unwrap_or(waited_ns).max(1);
        Ok((results, Some(Timing { compute_ns, moved_bytes, move_ns })))
    }

    fn pool(&self, backend: &Arc<dyn VyreBackend>) -> BufferPool {
        /// Idle device memory that an engine keeps for the next run.
        const MAX_IDLE_BYTES: u64 = 256 << 20;
        let mut pools = lock(&self.pools);
        if let Some((_, pool)) = pools.iter().find(|(id, _)| id.as_str() == backend.id()) {
            return pool.clone();
        }
        let pool = BufferPool::new(backend.clone(), MAX_IDLE_BYTES);
        pools.push((backend.id().into(), pool.clone()));
        pool
    }

    /// A pipeline from the cache, counted.
    fn pipeline(
        &self,
        backend: &dyn VyreBackend,
        program: &ValidProgram,
        options: &vyre_driver::backend::CompileOptions,
    ) -> Result<Arc<dyn Pipeline>, BackendError> {
        let found = self.pipelines.get(backend, program, options)?;
        match found.source {
            PipelineSource::Memory => self.metrics.add(Counter::MemoryHits, 1),
            PipelineSource::Disk => self.metrics.add(Counter::DiskHits, 1),
            PipelineSource::Compiled(reason) => {
                self.metrics.add(Counter::of_miss(reason), 1);
                self.metrics.add(Counter::Compiles, 1);
            }
        }
        Ok(found.pipeline)
    }
}

/// Whose fault an error is.
enum Blame {
    /// The inputs, the configuration or the program itself: no other backend would do better.
    Caller,
    /// This program on this device: another device may have what it needs.
    Program,
    /// The backend: it is not to be trusted with more work.
    Backend,
}

fn blame(error: &BackendError) -> Blame {
    let code = error.diagnostic().code;
    let unsupported = [
        &codes::backend::UNSUPPORTED_FEATURE,
        &codes::backend::LIMIT,
        &codes::backend::NOT_RESIDENT,
        &codes::backend::OUT_OF_MEMORY,
        &codes::cuda::UNSUPPORTED,
    ];
    if unsupported.contains(&code) {
        return Blame::Program;
    }
    let own = [&codes::backend::TIMEOUT, &codes::backend::OUTPUT_LIMIT, &codes::backend::INVALID_PROGRAM];
    // V01xx to V06xx are about the program and its launch, V09xx about specialization values.
    let about_program = matches!(code.id.as_bytes(), [b'V', b'0', b'1'..=b'6' | b'9', ..]);
    if about_program || own.contains(&code) { Blame::Caller } else { Blame::Backend }
}
