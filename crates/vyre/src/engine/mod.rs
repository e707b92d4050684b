//! The engine: discover, route, tune, cache, run.

mod builder;
mod explain;
mod prepared;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use vyre_driver::backend::{Capabilities, dispatch_through};
use vyre_driver::metrics::{Counter, Metrics, Stage};
use vyre_driver::pipeline::{PipelineCache, PipelineSource};
use vyre_driver::registry::Registry;
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::Program;
use vyre_foundation::launch::LaunchPlan;
use vyre_spec::{BackendId, Diagnostic, Severity, codes};

pub use builder::EngineBuilder;
pub use explain::{Choice, Explanation};
pub use prepared::Prepared;

/// Runs programs on whatever is fastest here. Threads may share one; clones are handles of the same engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

/// What an engine and everything made by it share.
struct Inner {
    registry: Registry,
    pipelines: PipelineCache,
    metrics: Metrics,
    /// Backends that failed while running, with the reason; they are not used again by this engine.
    taken_out: Mutex<Vec<(BackendId, Diagnostic)>>,
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
        let (valid, plan) =
            inner.check(program, inputs, config).inspect_err(|_| inner.metrics.add(Counter::Errors, 1))?;
        inner.on_some_backend(|backend| inner.run_on(backend, &valid, &plan, inputs, config))
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
            inner.run_on(&backend, &valid, &plan, inputs, config)
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
        if let Some(disk) = self.inner.pipelines.disk() {
            notices.extend(disk.take_diagnostics());
        }
        notices
    }

    /// Returns when everything that was compiled and decided is safe on disk.
    pub fn flush(&self) -> Result<(), BackendError> {
        let flushed = self.inner.pipelines.flush();
        flushed.map_err(|error| {
            Diagnostic::new(&codes::engine::FLUSH, format!("the cache can't be flushed: {error}")).into()
        })
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

    /// Present backends that have not failed, the preferred first. Each is opened only when the caller gets to it.
    fn backends(&self) -> impl Iterator<Item = Result<Arc<dyn VyreBackend>, Diagnostic>> + '_ {
        let ids = self.registry.ids();
        ids.into_iter().filter(|id| !self.is_out(id.as_str())).map(|id| self.registry.acquire(id.as_str()))
    }

    fn is_out(&self, id: &str) -> bool {
        lock(&self.taken_out).iter().any(|(out, _)| out.as_str() == id)
    }

    /// Does the work on the first backend that can. A backend that refuses the program is passed over; one that fails at the work is
    /// taken out, and the work goes to the next. The caller's own mistakes end it at once.
    fn on_some_backend<T>(
        &self,
        mut work: impl FnMut(&Arc<dyn VyreBackend>) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let mut first_error: Option<BackendError> = None;
        for backend in self.backends() {
            let Ok(backend) = backend else { continue };
            self.metrics.add(Counter::Routes, 1);
            let error = match work(&backend) {
                Ok(done) => {
                    if let Some(error) = first_error {
                        self.metrics.add(Counter::Fallbacks, 1);
                        self.notice(Diagnostic::new(
                            &codes::engine::FELL_BACK,
                            format!("the work was done by `{}` instead: {}", backend.id(), error.message()),
                        ));
                    }
                    return Ok(done);
                }
                Err(error) => error,
            };
            match blame(&error) {
                Blame::Caller => {
                    self.metrics.add(Counter::Errors, 1);
                    return Err(error);
                }
                Blame::Program => {}
                Blame::Backend => {
                    tracing::warn!(
                        backend = backend.id(),
                        code = error.code(),
                        "a backend failed and is not used again"
                    );
                    lock(&self.taken_out).push((backend.id().into(), error.diagnostic().clone()));
                }
            }
            first_error.get_or_insert(error);
        }
        self.metrics.add(Counter::Errors, 1);
        Err(first_error.unwrap_or_else(|| {
            Diagnostic::new(&codes::engine::NO_BACKEND, "no backend is left to run the program").into()
        }))
    }

    fn notice(&self, mut diagnostic: Diagnostic) {
        diagnostic.severity = diagnostic.severity.min(Severity::Warning);
        lock(&self.notices).push(diagnostic);
    }

    fn run_on(
        &self,
        backend: &Arc<dyn VyreBackend>,
        program: &ValidProgram,
        plan: &LaunchPlan,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        if !backend.capabilities().resident {
            return backend.dispatch_borrowed(program, inputs, config);
        }
        let options = vyre_driver::launch::compile_options(program, config)?;
        let pipeline = self.pipeline(&**backend, program, &options)?;
        let started = Instant::now();
        let results = dispatch_through(&**backend, program, &pipeline, plan, inputs, config.timeout)?;
        self.metrics.record(Stage::Wait, started.elapsed().as_nanos() as u64);
        self.metrics.add(Counter::BytesUploaded, inputs.iter().map(|input| input.len() as u64).sum());
        self.metrics.add(Counter::BytesDownloaded, results.iter().map(|result| result.len() as u64).sum());
        Ok(results)
    }

    /// A pipeline from the cache, counted.
    fn pipeline(
        &self,
        backend: &dyn VyreBackend,
        program: &ValidProgram,
        options: &vyre_driver::backend::CompileOptions,
    ) -> Result<Arc<dyn vyre_driver::backend::Pipeline>, BackendError> {
        let started = Instant::now();
        let found = self.pipelines.get(backend, program, options)?;
        let elapsed = started.elapsed().as_nanos() as u64;
        match found.source {
            PipelineSource::Memory => self.metrics.add(Counter::MemoryHits, 1),
            PipelineSource::Disk => {
                self.metrics.add(Counter::DiskHits, 1);
                self.metrics.record(Stage::Load, elapsed);
            }
            PipelineSource::Compiled(reason) => {
                self.metrics.add(Counter::of_miss(reason), 1);
                self.metrics.add(Counter::Compiles, 1);
                self.metrics.record(Stage::Compile, elapsed);
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
    ];
    if unsupported.contains(&code) {
        return Blame::Program;
    }
    let own = [&codes::backend::TIMEOUT, &codes::backend::OUTPUT_LIMIT, &codes::backend::INVALID_PROGRAM];
    // V01xx to V06xx are about the program and its launch, V09xx about specialization values.
    let about_program = matches!(code.id.as_bytes(), [b'V', b'0', b'1'..=b'6' | b'9', ..]);
    if about_program || own.contains(&code) { Blame::Caller } else { Blame::Backend }
}
