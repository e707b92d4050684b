//! The engine: discover, route, tune, cache, run.

mod arrays;
mod bench;
mod borrowed;
mod builder;
mod certify;
mod core;
mod decisions;
mod dispatch;
mod explain;
mod gather;
mod indirect;
mod knobs;
mod learning;
mod packs;
pub(crate) mod places;
mod prepared;
mod routes;
mod sweep;
mod timings;
mod tuning;
mod unfinished;
mod variants;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;
use vyre_driver::backend::{Capabilities, Pipeline};
use vyre_driver::metrics::{Counter, Metrics, Stage};
use vyre_driver::pipeline::{PipelineCache, PipelineSource, dispatch_policy_cache_string};
use vyre_driver::registry::Registry;
use vyre_driver::tuner::{Candidate, Decision, Space};
use vyre_driver::variant::{Code, Variant};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::Program;
use vyre_spec::{BackendId, Diagnostic, Severity, codes};

use self::arrays::Arrays;
pub(crate) use self::core::{Arg, Core, Ready, Request, ValueBytes, key_of, scalar_of};
pub(crate) use self::dispatch::not_bound;
pub(crate) use self::gather::GatherView;
pub(crate) use self::indirect::SizeFrom;
pub use bench::TimedLaunches;
pub use builder::EngineBuilder;
pub use certify::{Certified, Racer};
pub use decisions::{Decided, Decisions};
pub use explain::{Choice, Explanation};
pub use packs::PackReport;
pub use prepared::Prepared;
use routes::Routes;
pub use tuning::{Go, TuneSample};
use tuning::{Tuning, Waits};

use crate::Error;
use crate::runtime::{Device, HostPool, Jobs, MemoryUse, Watcher};

/// Runs programs on whatever is fastest here. Threads may share one; clones are handles of the same engine. Arrays, kernels and launches
/// keep it alive: work that is under way when the last handle goes is finished.
#[derive(Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
}

/// What an engine and everything made by it share.
pub(crate) struct Inner {
    registry: Registry,
    pipelines: PipelineCache,
    pub(crate) metrics: Arc<Metrics>,
    routes: Routes,
    tuning: Tuning,
    /// Which knobs are worth a try, by program.
    models: Mutex<knobs::Models>,
    gate: variants::Gate,
    /// Backends that are open, in the order of opening.
    devices: Mutex<Vec<Arc<Device>>>,
    budget: Option<u64>,
    pub(crate) host: HostPool,
    pub(crate) arrays: Arrays,
    jobs: Jobs,
    pub(crate) watcher: Arc<Watcher>,
    /// Programs that `run` has met, by fingerprint and configuration.
    cores: Mutex<HashMap<CoreKey, Arc<Core>>>,
    /// Kernels that are found by a key of their maker's.
    pub(crate) keyed: Mutex<HashMap<String, Vec<Arc<Core>>>>,
    /// Where work of several launches goes.
    places: places::Places,
    /// What makes the grids of launches whose size stands in an array.
    grid_core: OnceLock<Arc<Core>>,
    /// What copies strided views.
    gather_core: OnceLock<Arc<Core>>,
    clock: AtomicU64,
    /// What the user should know but was not an error.
    notices: Mutex<Vec<Diagnostic>>,
    process: u32,
}

type CoreKey = ([u8; 32], String, Option<BackendId>);

/// Programs that an engine remembers.
const MOST_CORES: usize = 256;

/// A backend that is registered: present with what it can do, or absent and why.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// The backend's name.
    pub id: BackendId,
    /// What it is and can do, or why it is not here.
    pub state: Result<Capabilities, Diagnostic>,
}

impl Engine {
    /// An engine with every backend of this build and the user's own caches.
    pub fn open() -> Result<Engine, Error> {
        EngineBuilder::new().open()
    }

    /// An engine that is put together by hand.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::new()
    }

    /// Runs a program on the bytes of its inputs and gives the bytes of its results, both in binding order.
    pub fn run(&self, program: &Program, inputs: &[&[u8]]) -> Result<Vec<Vec<u8>>, Error> {
        self.run_with(program, inputs, &DispatchConfig::default())
    }

    /// [`Engine::run`] with a configuration.
    pub fn run_with(
        &self,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, Error> {
        self.inner.run(program, inputs, config, None)
    }

    /// [`Engine::run_with`] on one backend and no other.
    pub fn run_on(
        &self,
        backend: &str,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, Error> {
        self.inner.device(backend)?;
        self.inner.run(program, inputs, config, Some(&backend.into()))
    }

    /// [`Engine::run_with`] with results in the caller's memory, in binding order. Those of `read_write` buffers hold their inputs, which
    /// are not among `inputs` then. Where the processor does the work, nothing is copied.
    pub fn run_into(
        &self,
        program: &Program,
        inputs: &[&[u8]],
        results: &mut [&mut [u8]],
        config: &DispatchConfig,
    ) -> Result<(), Error> {
        let inner = &self.inner;
        let _timer = inner.metrics.time_labelled(Stage::Dispatch, config.label.as_deref());
        let core = inner.core(program, config, None)?;
        let (mut given, mut wanted) = (inputs.iter(), results.iter_mut());
        let mut args = Vec::with_capacity(core.slots.len());
        for slot in &core.slots {
            let arg = match slot.kind.is_result() {
                true => wanted.next().map(|bytes| Arg::Into(bytes)),
                false => given.next().map(|bytes| Arg::Bytes(bytes)),
            };
            args.push(arg.ok_or_else(|| {
                let message = format!("no memory was given for buffer `{}`", slot.name);
                Diagnostic::new(&codes::ir::LAUNCH_INPUT_COUNT, message)
            })?);
        }
        if given.next().is_some() || wanted.next().is_some() {
            let message = "more memory was given than the program has buffers";
            return Err(Diagnostic::new(&codes::ir::LAUNCH_INPUT_COUNT, message).into());
        }
        inner.launch(&core, &mut args, &request_of(config)).map(drop)
    }

    /// Makes a handle for many dispatches of one program on buffers that stay on the device.
    pub fn prepare(&self, program: &Program) -> Result<Prepared, Error> {
        self.prepare_with(program, &DispatchConfig::default())
    }

    /// [`Engine::prepare`] with a configuration.
    pub fn prepare_with(&self, program: &Program, config: &DispatchConfig) -> Result<Prepared, Error> {
        Ok(Prepared::new(self, self.inner.core(program, config, None)?))
    }

    /// [`Engine::prepare_with`] on one backend and no other.
    pub fn prepare_on(&self, backend: &str, program: &Program, config: &DispatchConfig) -> Result<Prepared, Error> {
        self.inner.device(backend)?;
        Ok(Prepared::new(self, self.inner.core(program, config, Some(&backend.into()))?))
    }

    /// Waits until everything is over that is under way. Errors that nobody was told of become notices.
    pub fn synchronize(&self) {
        for error in self.inner.jobs.finish() {
            self.inner.notice(error.diagnostic().clone());
        }
    }

    /// Memory of the host and of every open device that has its own, with the largest arrays in it.
    pub fn memory(&self) -> Vec<MemoryUse> {
        self.inner.memory()
    }

    /// Gives memory back that is kept for later; the bytes.
    pub fn trim(&self) -> u64 {
        let devices = lock(&self.inner.devices).clone();
        devices.iter().map(|device| device.memory.trim()).sum::<u64>() + self.inner.host.trim()
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
    ) -> Result<Decision, Error> {
        self.tune_watched(backend, program, inputs, config, space, None, &mut |_| Go::On)
    }

    /// [`Engine::tune`] that shows every timing as it is taken and asks whether to go on. `budget` is how long it may take, about: noisy machines
    /// need long timings to tell launches apart, which are as long as it allows.
    #[allow(clippy::too_many_arguments, reason = "what is launched, one by one")]
    pub fn tune_watched(
        &self,
        backend: &str,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        space: Option<&Space>,
        budget: Option<Duration>,
        watch: &mut dyn FnMut(TuneSample<'_>) -> Go,
    ) -> Result<Decision, Error> {
        let backend = self.inner.registry.acquire(backend)?;
        let waits = Waits::ForTuning(budget);
        Ok(self.inner.tune(&backend, &valid(program)?, inputs, config, space, waits, watch)?)
    }

    /// Times every launch of a program that gives the results of its own so many times, in turns, and then the fastest of them again, beside
    /// the kernel's own and one that is asked about. This is what [`Engine::tune`] is measured by: it finds nearly the same with far fewer
    /// timings. Nothing is kept.
    #[allow(clippy::too_many_arguments, reason = "what is launched, one by one")]
    pub fn time_launches(
        &self,
        backend: &str,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        space: Option<&Space>,
        asked_about: &Candidate,
        rounds: u32,
    ) -> Result<TimedLaunches, Error> {
        let backend = self.inner.registry.acquire(backend)?;
        Ok(self.inner.time_all(&backend, &valid(program)?, inputs, config, space, asked_about, rounds)?)
    }

    /// What was decided so far, in all processes.
    pub fn decisions(&self) -> Decisions<'_> {
        Decisions::new(self)
    }

    /// What was chosen for a prepared program, what else was possible, and on what evidence.
    pub fn explain(&self, prepared: &Prepared) -> Explanation {
        prepared.explain()
    }

    /// Every registered backend. This opens all of them, which takes a while where there are GPUs.
    pub fn devices(&self) -> Vec<DeviceInfo> {
        let listing = self.inner.registry.list();
        listing
            .into_iter()
            .map(|listing| DeviceInfo {
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
    pub fn backend(&self, id: &str) -> Result<Arc<dyn VyreBackend>, Error> {
        let backend = self.inner.registry.acquire(id)?;
        self.inner.routes.opened(id, backend.capabilities());
        Ok(backend)
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
    /// taken out, a launch that failed and that nobody asked about.
    pub fn take_notices(&self) -> Vec<Diagnostic> {
        for error in self.inner.jobs.untold() {
            self.inner.notice(error.diagnostic().clone());
        }
        let mut notices = std::mem::take(&mut *lock(&self.inner.notices));
        notices.extend(self.inner.tuning.take_problems());
        notices.extend(self.inner.routes.take_problems());
        if let Some(disk) = self.inner.pipelines.disk() {
            notices.extend(disk.take_diagnostics());
        }
        notices
    }

    /// Returns when everything that was compiled and decided is safe on disk.
    pub fn flush(&self) -> Result<(), Error> {
        self.inner
            .pipelines
            .flush()
            .map_err(|error| Diagnostic::new(&codes::engine::FLUSH, format!("the cache can't be flushed: {error}")))?;
        self.inner.tuning.save()?;
        Ok(self.inner.routes.save()?)
    }
}

/// What was learnt is kept even where nobody calls `flush`.
impl Drop for Inner {
    fn drop(&mut self) {
        self.watcher.close();
        for problem in [self.tuning.save(), self.routes.save()].into_iter().filter_map(Result::err) {
            tracing::warn!(code = problem.code.id, "what was learnt can't be kept: {}", problem.message);
        }
    }
}

/// A panic elsewhere does not make the data wrong: every change under these locks is a single step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn valid(program: &Program) -> Result<ValidProgram, Error> {
    program.validate().map_err(|problems| Error::from(problems.to_vec()))
}

fn request_of(config: &DispatchConfig) -> Request {
    Request {
        timeout: config.timeout,
        interruptible: config.timeout.is_some(),
        label: config.label.as_deref().map(Into::into),
        ..Request::default()
    }
}

impl Inner {
    /// The device that the router chose. None where it has to be asked again: the device is not there and is passed over from now on, or
    /// opening it told something that was not expected.
    fn chosen(&self, id: &BackendId, passed_over: &mut Vec<BackendId>) -> Option<Arc<Device>> {
        match self.device(id.as_str()) {
            Ok(device) => (!self.routes.take_surprise(id.as_str())).then_some(device),
            Err(absent) => {
                self.routes.absent(id.as_str(), absent.message());
                passed_over.push(id.clone());
                None
            }
        }
    }

    /// A device by the name of its backend, opened where it is not.
    pub(crate) fn device(&self, id: &str) -> Result<Arc<Device>, Error> {
        if self.process != std::process::id() {
            let message =
                "the engine was opened before this process was forked, and its threads and devices stayed behind";
            return Err(Diagnostic::new(&codes::engine::FORKED, message).into());
        }
        if let Some(device) = lock(&self.devices).iter().find(|device| device.id.as_str() == id) {
            return Ok(device.clone());
        }
        // Opening takes a while; who asks for another meanwhile need not wait.
        let backend = self.registry.acquire(id)?;
        self.routes.opened(id, backend.capabilities());
        let mut devices = lock(&self.devices);
        if let Some(device) = devices.iter().find(|device| device.id.as_str() == id) {
            return Ok(device.clone());
        }
        let device = Arc::new(Device::new(backend, devices.len() + 1, self.budget, &self.watcher));
        devices.push(device.clone());
        Ok(device)
    }

    /// The devices that are open. Asked by launches now and then, so it takes no memory of the heap.
    fn open_devices(&self) -> SmallVec<[Arc<Device>; 8]> {
        SmallVec::from_iter(lock(&self.devices).iter().cloned())
    }

    /// What launches of a program under a configuration share, made where it is not known.
    pub(crate) fn core(
        &self,
        program: &Program,
        config: &DispatchConfig,
        only: Option<&BackendId>,
    ) -> Result<Arc<Core>, Error> {
        // Time and name are the launch's; what it computes does not depend on them.
        let policy = format!(
            "{}|{:?}|{:?}|{:?}|{:?}|{:?}|{:?}",
            dispatch_policy_cache_string(config),
            config.grid_override,
            config.domain_override,
            config.output_elements,
            config.max_output_bytes,
            config.timeout,
            config.label
        );
        let key = (program.fingerprint(), policy, only.cloned());
        if let Some(core) = lock(&self.cores).get(&key) {
            return Ok(core.clone());
        }
        let program = {
            let _timer = self.metrics.time(Stage::Validate);
            valid(program)?
        };
        let core = Arc::new(Core::new(&program, config, only)?);
        let mut cores = lock(&self.cores);
        if cores.len() >= MOST_CORES {
            cores.clear();
        }
        Ok(cores.entry(key).or_insert(core).clone())
    }

    /// One launch on host bytes.
    pub(super) fn run(
        self: &Arc<Inner>,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        only: Option<&BackendId>,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let _timer = self.metrics.time_labelled(Stage::Dispatch, config.label.as_deref());
        let core = self.core(program, config, only)?;
        let plan = vyre_driver::launch::plan(&core.program, inputs, config)?;
        let mut given = inputs.iter();
        let mut results: Vec<Vec<u8>> = Vec::new();
        for (slot, &bytes) in core.slots.iter().zip(&plan.buffer_bytes) {
            let input = if slot.kind.is_input() { given.next() } else { None };
            match input {
                Some(input) if slot.kind.is_result() => results.push(input.to_vec()),
                Some(_) => {}
                None => results.push(zeros(bytes)?),
            }
        }
        let (mut given, mut wanted) = (inputs.iter(), results.iter_mut());
        let mut args = Vec::with_capacity(core.slots.len());
        for slot in &core.slots {
            let input = if slot.kind.is_input() { given.next() } else { None };
            args.extend(match slot.kind.is_result() {
                true => wanted.next().map(|bytes| Arg::Into(bytes)),
                false => input.map(|bytes| Arg::Bytes(bytes)),
            });
        }
        self.launch(&core, &mut args, &request_of(config))?;
        drop(args);
        Ok(results)
    }

    fn notice(&self, mut diagnostic: Diagnostic) {
        diagnostic.severity = diagnostic.severity.min(Severity::Warning);
        lock(&self.notices).push(diagnostic);
    }

    /// Counts uses of arrays, so that those that were not used for long can make room. Two threads may be given the same number, which
    /// nothing depends on; counting exactly would cost every launch.
    pub(crate) fn tick(&self) -> u64 {
        let now = self.clock.load(Ordering::Relaxed);
        self.clock.store(now.wrapping_add(1), Ordering::Relaxed);
        now
    }

    /// A pipeline from the cache, counted.
    fn pipeline(
        &self,
        backend: &dyn VyreBackend,
        program: &ValidProgram,
        options: &vyre_driver::backend::CompileOptions,
    ) -> Result<Arc<dyn Pipeline>, BackendError> {
        if let Some(Code::Program(other, _)) = options.variant.as_ref().map(Variant::code) {
            let mut options = options.clone();
            (options.variant, options.workgroup_size) = (None, None);
            options.specialization = Default::default();
            return self.pipeline(backend, other, &options);
        }
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

/// Result memory of the host. Fresh pages are touched by the work itself, on all its threads.
fn zeros(bytes: u64) -> Result<Vec<u8>, Error> {
    let out_of_memory = || {
        Diagnostic::new(&codes::backend::OUT_OF_MEMORY, format!("the host has no memory for a result of {bytes} bytes"))
    };
    let size = usize::try_from(bytes).map_err(|_| out_of_memory())?;
    // A reservation that fails is told; `vec!` would end the process. Zeros of the allocator are not touched.
    let mut probe: Vec<u8> = Vec::new();
    probe.try_reserve_exact(size).map_err(|_| out_of_memory())?;
    drop(probe);
    Ok(vec![0; size])
}
