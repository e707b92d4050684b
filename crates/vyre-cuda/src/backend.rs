//! The backend trait over a CUDA device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use vyre_driver::backend::{
    Buffer, Capabilities, CompileOptions, Completion, DeviceKind, HostDispatch, KeptPipelines, Launch, Limits, Pending,
    Pipeline, TypeSet, borrowed, dispatch_through,
};
use vyre_driver::pipeline::{PipelineDeviceFingerprint, PipelineFeatureFlags};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::{self, Features, Kernel, Options, Passes};
use vyre_spec::{Diagnostic, codes};

use crate::api::{Api, Attribute, CudaError, KernelLaunch};
use crate::context::{Context, CudaBuffer, Device, Failure, Timed, describe};
use crate::pipeline::{CudaPipeline, Functions};
use crate::ptx::{self, TENSOR_CORES, TOGETHER, Target};
use crate::staging;

/// Oldest compute capability whose instructions the emitter uses.
const OLDEST: u32 = 70;

/// Workgroups that one launch can have along each axis; larger grids are split.
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// How long a launch that was told to end may take to do so.
const GRACE: Duration = Duration::from_secs(5);

/// By device; more than these are not opened.
const IDS: [&str; 16] = [
    "cuda", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6", "cuda:7", "cuda:8", "cuda:9", "cuda:10",
    "cuda:11", "cuda:12", "cuda:13", "cuda:14", "cuda:15",
];

/// Runs programs on an NVIDIA GPU.
///
/// Launches run in the order of submission. A launch that was compiled as interruptible ends when a wait for it times out; one
/// that was not keeps the device busy until it ends by itself. After a fault the backend asks for a fresh context, in which
/// pipelines stay and buffers are lost; a driver that gives a process no other context after a fault (580 is one) leaves the
/// backend answering every call with that reason.
pub struct CudaBackend {
    id: &'static str,
    device: Arc<Device>,
    target: u32,
    capabilities: Capabilities,
    kept: KeptPipelines<dyn Pipeline>,
}

fn probe_failed(error: &CudaError) -> Diagnostic {
    describe(error).into_diagnostic()
}

impl CudaBackend {
    /// The first device, or why there is none.
    pub fn probe() -> Result<Arc<dyn VyreBackend>, Diagnostic> {
        CudaBackend::probe_device(0)
    }

    /// A device by its number, or why it is not there.
    pub fn probe_device(ordinal: usize) -> Result<Arc<dyn VyreBackend>, Diagnostic> {
        Ok(Arc::new(CudaBackend::open(ordinal)?))
    }

    /// How many devices the driver shows.
    pub fn device_count() -> Result<usize, Diagnostic> {
        let count = Api::get()?.device_count().map_err(|error| probe_failed(&error))?;
        Ok(usize::try_from(count).unwrap_or(0).min(IDS.len()))
    }

    /// Opens a device by its number. The first is `cuda`, the others `cuda:1`, `cuda:2`, ….
    pub fn open(ordinal: usize) -> Result<CudaBackend, Diagnostic> {
        let api = Api::get()?;
        let count = CudaBackend::device_count()?;
        let Some(id) = IDS.get(ordinal).copied().filter(|_| ordinal < count) else {
            return Err(Diagnostic::new(
                &codes::cuda::NO_DRIVER,
                format!("there is no CUDA device {ordinal}; the driver shows {count}"),
            )
            .with_fix("Use one of those that `vyre devices` lists, or let CUDA_VISIBLE_DEVICES show more."));
        };
        let opened = || -> Result<(i32, u32, Capabilities), CudaError> {
            let number = api.device(ordinal as i32)?;
            let sm = api.attribute(number, Attribute::CapabilityMajor)? * 10
                + api.attribute(number, Attribute::CapabilityMinor)?;
            Ok((number, sm, capabilities(api, number, sm)?))
        };
        let (number, sm, capabilities) = opened().map_err(|error| probe_failed(&error))?;
        let too_old = |what: String| Diagnostic::new(&codes::cuda::UNSUPPORTED, what);
        if sm < OLDEST {
            return Err(too_old(format!(
                "{} has compute capability {}.{}; 7.0 is the oldest that is supported",
                capabilities.name,
                sm / 10,
                sm % 10
            )));
        }
        if api.attribute(number, Attribute::MemoryPools).map_err(|error| probe_failed(&error))? == 0 {
            return Err(too_old(format!("{} has no stream-ordered memory pools", capabilities.name)));
        }
        // A sixteenth of the memory may stay with this process when it is freed; the rest is for others.
        let keep = capabilities.limits.memory_bytes.unwrap_or(0) / 16;
        let device = Device::open(api, number, keep).map_err(|error| probe_failed(&error))?;
        Ok(CudaBackend { id, device, target: sm, capabilities, kept: KeptPipelines::default() })
    }

    /// Compute capability, ten times the major version plus the minor.
    pub fn compute_capability(&self) -> u32 {
        self.target
    }

    /// Queues the launches of a recorded sequence once more.
    pub fn replay(&self, sequence: &Sequence) -> Result<Pending, BackendError> {
        self.device.with(|context| {
            if !Arc::ptr_eq(&sequence.device, &self.device) || sequence.generation != context.generation {
                return Err(BackendError::with_code(
                    &codes::backend::DEVICE_LOST,
                    "the sequence was recorded on another device, or lost when a kernel faulted",
                )
                .into());
            }
            let mut queue = context.queue();
            context.api.launch_graph(sequence.graph, context.stream)?;
            queue.submitted += 1;
            Ok(Pending(queue.submitted))
        })
    }

    /// Records launches, in order, as one graph that [`replay`](Self::replay) queues with a single call. The buffers stay
    /// alive with the sequence. Recorded launches can't be timed one by one, and a timeout does not end them.
    pub fn record(&self, launches: &[(&Arc<dyn Pipeline>, Launch<'_>)]) -> Result<Sequence, BackendError> {
        self.device.with(|context| {
            // Loading a kernel is not allowed while the stream is captured.
            let mut ready = Vec::with_capacity(launches.len());
            for (pipeline, launch) in launches {
                let pipeline = self.pipeline_of(pipeline)?;
                ready.push((pipeline, pipeline.functions(context)?, self.params(context, pipeline, launch)?));
            }
            let queue = context.queue();
            context.api.begin_capture(context.stream)?;
            let mut queued = Ok(());
            for ((pipeline, functions, params), (_, launch)) in ready.iter_mut().zip(launches) {
                if queued.is_ok() {
                    queued = launch_grid(context, pipeline, *functions, params, launch.grid, u64::MAX);
                }
            }
            let graph = context.api.end_capture(context.stream);
            drop(queue);
            queued?;
            Ok(Sequence {
                device: Arc::clone(&self.device),
                generation: context.generation,
                graph: graph?,
                _pipelines: launches.iter().map(|(pipeline, _)| Arc::clone(pipeline)).collect(),
                _buffers: launches
                    .iter()
                    .flat_map(|(_, launch)| launch.bindings.iter().map(|binding| binding.buffer.clone()))
                    .collect(),
            })
        })
    }

    fn lower(&self, program: &ValidProgram, options: &CompileOptions) -> Result<Kernel, BackendError> {
        let kernel = kernel::lower(
            program,
            &Options {
                specialization: options.specialization.clone(),
                workgroup_size: options.workgroup_size,
                passes: Passes::all(),
                expand_math: true,
                interruptible: options.interruptible,
                ..Options::default()
            },
        )?;
        self.capabilities.check(&kernel)?;
        Ok(kernel)
    }

    fn pipeline_of<'a>(&self, pipeline: &'a Arc<dyn Pipeline>) -> Result<&'a CudaPipeline, BackendError> {
        pipeline
            .downcast_ref::<CudaPipeline>()
            .filter(|pipeline| Arc::ptr_eq(&pipeline.device, &self.device))
            .ok_or_else(|| {
                BackendError::with_code(
                    &codes::backend::FOREIGN_HANDLE,
                    format!("a pipeline was passed to backend `{}`, which did not make it", self.id),
                )
            })
    }

    /// The parameters of the kernel, less those that differ between the parts of a split grid.
    fn params(&self, context: &Context, pipeline: &CudaPipeline, launch: &Launch<'_>) -> Result<Params, BackendError> {
        if launch.bindings.len() != pipeline.shapes.len() {
            return Err(BackendError::with_code(
                &codes::backend::BINDINGS,
                format!("{} buffers are bound; the program has {}", launch.bindings.len(), pipeline.shapes.len()),
            ));
        }
        let mut params = Params::new();
        for (binding, shape) in launch.bindings.iter().zip(&pipeline.shapes) {
            let buffer = binding.buffer.of::<CudaBuffer>(self.id)?;
            binding.buffer.check_range(binding.offset, binding.bytes)?;
            let alignment = u64::from(self.capabilities.limits.binding_alignment);
            if !binding.offset.is_multiple_of(alignment) {
                return Err(BackendError::with_code(
                    &codes::backend::BAD_RANGE,
                    format!("a binding starts at byte {}, which is not a multiple of {alignment}", binding.offset),
                ));
            }
            let elements = shape.elements(binding.bytes);
            params.push(buffer.pointer(&self.device, context)? + binding.offset);
            params.push(elements);
            params.push(elements.min(u64::from(u32::MAX)));
        }
        Ok(params)
    }
}

type Params = SmallVec<[u64; 64]>;

/// Below so many invocations the device is not full when workgroups are put together.
const FULL: u64 = 1 << 20;

/// Queues a grid in as many launches as the device needs for it.
fn launch_grid(
    context: &Context,
    pipeline: &CudaPipeline,
    functions: Functions,
    params: &mut Params,
    grid: [u32; 3],
    number: u64,
) -> Result<(), CudaError> {
    let fixed = params.len();
    params.extend(grid.map(u64::from));
    params.extend([0; 3]);
    params.extend([number, context.stop_word]);
    let invocations: u64 = pipeline.workgroup_size.iter().map(|&size| u64::from(size)).product();
    // Along x, first those workgroups that make whole blocks of the second entry, then the rest.
    let whole = match functions.together {
        Some(_) if u64::from(grid[0]) * invocations >= FULL => grid[0] / TOGETHER * TOGETHER,
        _ => 0,
    };
    let parts = |axis: usize| (0..grid[axis]).step_by(MAX_GRID[axis] as usize);
    for z in parts(2) {
        for y in parts(1) {
            let mut x = 0;
            while x < grid[0] {
                let (function, in_block, end) = match functions.together {
                    Some(together) if x < whole => (together, TOGETHER, whole),
                    _ => (functions.single, 1, grid[0]),
                };
                let blocks = ((end - x) / in_block).min(MAX_GRID[0]);
                let base = [x, y, z];
                params[fixed + 3..fixed + 6].copy_from_slice(&base.map(u64::from));
                let rows = |axis: usize| (grid[axis] - base[axis]).min(MAX_GRID[axis]);
                let launch = KernelLaunch {
                    function,
                    grid: [blocks, rows(1), rows(2)],
                    block: pipeline.workgroup_size,
                    dynamic_shared: pipeline.dynamic_shared,
                };
                context.api.launch(&launch, params, context.stream)?;
                x += blocks * in_block;
            }
        }
    }
    Ok(())
}

fn capabilities(api: &Api, device: i32, sm: u32) -> Result<Capabilities, CudaError> {
    let attribute = |attribute| api.attribute(device, attribute);
    let memory = api.total_memory(device)?;
    let version = api.driver_version()?;
    let mut limits = Limits::default();
    limits.max_workgroup_size =
        [attribute(Attribute::MaxBlockX)?, attribute(Attribute::MaxBlockY)?, attribute(Attribute::MaxBlockZ)?];
    limits.max_workgroup_invocations = attribute(Attribute::MaxThreadsPerBlock)?;
    limits.max_grid = [u32::MAX; 3];
    limits.max_workgroup_memory = attribute(Attribute::SharedMemoryOptIn)?.into();
    limits.max_buffer_bytes = memory;
    // Parameters have 4096 bytes together.
    limits.max_bindings = 160;
    limits.binding_alignment = 16;
    limits.memory_bytes = Some(memory);
    let mut capabilities = Capabilities::default();
    capabilities.name = api.device_name(device)?;
    capabilities.driver = format!("CUDA {}.{}", version / 1000, version % 1000 / 10);
    capabilities.kind =
        if attribute(Attribute::Integrated)? != 0 { DeviceKind::Integrated } else { DeviceKind::Discrete };
    capabilities.types = TypeSet::all();
    capabilities.features = Features::F16
        .union(Features::F64)
        .union(Features::INT64)
        .union(Features::SUBGROUP)
        .union(Features::ATOMIC64)
        .union(Features::NARROW);
    capabilities.pipeline_features = PipelineFeatureFlags::SUBGROUP_OPS.union(PipelineFeatureFlags::F16);
    if sm >= TENSOR_CORES {
        capabilities.features = capabilities.features.union(Features::MATRIX);
        capabilities.pipeline_features = capabilities.pipeline_features.union(PipelineFeatureFlags::TENSOR_CORES);
    }
    capabilities.subgroup_sizes = Some([32, 32]);
    capabilities.limits = limits;
    capabilities.resident = true;
    capabilities.timestamps = true;
    const NVIDIA: u32 = 0x10de;
    // What the driver makes of a kernel depends on its version and on the compute capability; what we give it, on ours.
    let extra = format!("{version} sm_{sm} {}", env!("CARGO_PKG_VERSION"));
    capabilities.fingerprint = PipelineDeviceFingerprint::from_parts(NVIDIA, sm, &capabilities.name, &extra);
    Ok(capabilities)
}

/// Launches that were recorded once to be replayed as a whole.
pub struct Sequence {
    device: Arc<Device>,
    generation: u64,
    graph: usize,
    _pipelines: Vec<Arc<dyn Pipeline>>,
    _buffers: Vec<Buffer>,
}

impl Drop for Sequence {
    fn drop(&mut self) {
        let destroyed = self.device.with(|context| {
            if context.generation == self.generation {
                context.api.synchronize(context.stream)?;
                context.api.destroy_graph(self.graph)?;
            }
            Ok(())
        });
        // A fault of earlier work is for the next call to report.
        drop(destroyed);
    }
}

impl VyreBackend for CudaBackend {
    fn id(&self) -> &'static str {
        self.id
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        self.dispatch_borrowed(program, &borrowed(inputs), config)
    }

    fn dispatch_borrowed(
        &self,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let dispatch = HostDispatch::check(self, program, inputs, config)?;
        let pipeline = self.kept.get_or_make(&dispatch, |program, options| self.compile(program, options))?;
        dispatch_through(self, &dispatch, &pipeline, inputs, config.timeout)
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn compile(&self, program: &ValidProgram, options: &CompileOptions) -> Result<Arc<dyn Pipeline>, BackendError> {
        let kernel = self.lower(program, options)?;
        let ptx = ptx::emit(&kernel, Target { sm: self.target, interruptible: options.interruptible })?;
        self.device.with(|context| {
            let cubin = match context.api.link(&ptx.text) {
                Ok(cubin) => cubin,
                Err((error, complaints)) if !complaints.is_empty() => {
                    let message = format!("{error}: {complaints}");
                    return Err(BackendError::with_code(&codes::cuda::COMPILE_FAILED, message).into());
                }
                Err((error, _)) => return Err(error.into()),
            };
            let pipeline = CudaPipeline::new(Arc::clone(&self.device), &kernel, &ptx, cubin);
            pipeline.functions(context)?;
            Ok(Arc::new(pipeline) as Arc<dyn Pipeline>)
        })
    }

    fn load(
        &self,
        program: &ValidProgram,
        _options: &CompileOptions,
        artifact: &[u8],
    ) -> Result<Arc<dyn Pipeline>, BackendError> {
        let pipeline = CudaPipeline::decode(Arc::clone(&self.device), artifact, program.binding_order().len())?;
        self.device.with(|context| match pipeline.functions(context) {
            Ok(_) => Ok(()),
            Err(error) if error.is_fault() || error.is_out_of_memory() => Err(Failure::Cuda(error)),
            Err(error) => Err(BackendError::with_code(&codes::backend::BAD_ARTIFACT, error.to_string()).into()),
        })?;
        Ok(Arc::new(pipeline))
    }

    fn allocate(&self, bytes: u64) -> Result<Buffer, BackendError> {
        let too_much = || {
            BackendError::with_code(
                &codes::backend::OUT_OF_MEMORY,
                format!("{} has no room for {bytes} bytes", self.capabilities.name),
            )
        };
        if bytes > self.capabilities.limits.max_buffer_bytes {
            return Err(too_much());
        }
        // Some room behind the last element: narrow elements are changed by whole words.
        let size = usize::try_from(bytes.max(1).next_multiple_of(16)).map_err(|_| too_much())?;
        self.device.with(|context| {
            let pointer = match context.allocate(size) {
                Err(error) if error.is_out_of_memory() => return Err(too_much().into()),
                other => other?,
            };
            Ok(Buffer::new(CudaBuffer {
                device: Arc::clone(&self.device),
                generation: context.generation,
                pointer,
                bytes,
            }))
        })
    }

    fn upload(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        let target = buffer.of::<CudaBuffer>(self.id)?;
        buffer.check_range(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.device.with(|context| {
            let to = target.pointer(&self.device, context)? + offset;
            if bytes.len() <= staging::DIRECT {
                context.api.upload(to, bytes, context.stream)?;
            } else {
                context.staging().upload(context.api, to, bytes, context.stream)?;
            }
            Ok(())
        })
    }

    fn download(&self, buffer: &Buffer, offset: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        let source = buffer.of::<CudaBuffer>(self.id)?;
        buffer.check_range(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.device.with(|context| {
            let from = source.pointer(&self.device, context)? + offset;
            if bytes.len() <= staging::DIRECT {
                context.api.download(bytes, from, context.stream)?;
            } else {
                context.staging().download(context.api, bytes, from, context.stream)?;
            }
            Ok(())
        })
    }

    fn copy(
        &self,
        from: &Buffer,
        from_offset: u64,
        to: &Buffer,
        to_offset: u64,
        bytes: u64,
    ) -> Result<(), BackendError> {
        let (source, target) = (from.of::<CudaBuffer>(self.id)?, to.of::<CudaBuffer>(self.id)?);
        from.check_range(from_offset, bytes)?;
        to.check_range(to_offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        self.device.with(|context| {
            let from = source.pointer(&self.device, context)? + from_offset;
            let to = target.pointer(&self.device, context)? + to_offset;
            Ok(context.api.copy(to, from, bytes as usize, context.stream)?)
        })
    }

    fn clear(&self, buffer: &Buffer, offset: u64, bytes: u64) -> Result<(), BackendError> {
        let target = buffer.of::<CudaBuffer>(self.id)?;
        buffer.check_range(offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        self.device.with(|context| {
            let at = target.pointer(&self.device, context)? + offset;
            Ok(context.api.clear(at, bytes as usize, context.stream)?)
        })
    }

    fn submit(&self, pipeline: &Arc<dyn Pipeline>, launch: &Launch<'_>) -> Result<Pending, BackendError> {
        let pipeline = self.pipeline_of(pipeline)?;
        self.device.with(|context| {
            let mut params = self.params(context, pipeline, launch)?;
            let functions = pipeline.functions(context)?;
            let mut queue = context.queue();
            let number = queue.submitted + 1;
            let events = match launch.timed {
                true => Some(queue.take_events(context.api)?),
                false => None,
            };
            if let Some([start, _]) = events {
                context.api.record(start, context.stream)?;
            }
            launch_grid(context, pipeline, functions, &mut params, launch.grid, number)?;
            if let Some(events) = events {
                context.api.record(events[1], context.stream)?;
                queue.timed.push_back(Timed { number, events });
            }
            queue.submitted = number;
            Ok(Pending(number))
        })
    }

    fn wait(&self, pending: Pending, timeout: Option<Duration>) -> Result<Completion, BackendError> {
        let number = pending.0;
        self.device.with(|context| {
            let (submitted, events) = {
                let mut queue = context.queue();
                if number > queue.submitted {
                    return Err(BackendError::new(format!("launch {number} was never submitted")).into());
                }
                if number > queue.completed && number <= queue.lost {
                    return Err(BackendError::with_code(
                        &codes::cuda::FAULT,
                        format!("launch {number} or one before it faulted"),
                    )
                    .into());
                }
                if number > queue.completed && number <= queue.stopped {
                    return Err(timed_out().into());
                }
                let events = match timeout {
                    Some(_) => Some(queue.take_events(context.api)?),
                    None => None,
                };
                if let Some([_, here]) = events {
                    context.api.record(here, context.stream)?;
                }
                (queue.submitted, events)
            };
            let done = match (timeout, events) {
                (Some(timeout), Some([_, here])) => done_within(context, here, timeout)?,
                _ => {
                    context.api.synchronize(context.stream)?;
                    true
                }
            };
            if !done {
                let mut queue = context.queue();
                queue.stopped = queue.stopped.max(number);
                drop(queue);
                context.stop(number)?;
                // A launch that can't be told to end stays; what comes after it waits for it.
                if let Some([_, here]) = events {
                    done_within(context, here, GRACE)?;
                }
            }
            let mut queue = context.queue();
            if let Some(events) = events {
                queue.give_events_back(events);
            }
            if !done {
                return Err(timed_out().into());
            }
            queue.completed = queue.completed.max(submitted);
            let timed = queue.timed.iter().position(|timed| timed.number == number);
            let Some(timed) = timed.and_then(|position| queue.timed.remove(position)) else {
                return Ok(Completion::default());
            };
            let [start, end] = timed.events;
            let device_ns = context.api.elapsed_ns(start, end)?;
            queue.give_events_back(timed.events);
            Ok(Completion { device_ns: Some(device_ns) })
        })
    }
}

fn timed_out() -> BackendError {
    BackendError::with_code(&codes::backend::TIMEOUT, "the launch was not done at its timeout and was told to end")
}

/// Waits for what lies before an event; false when that takes longer.
fn done_within(context: &Context, event: usize, limit: Duration) -> Result<bool, CudaError> {
    let start = Instant::now();
    loop {
        if context.api.is_done(event)? {
            return Ok(true);
        }
        let waited = start.elapsed();
        if waited >= limit {
            return Ok(false);
        }
        // Short launches are noticed at once, long ones don't keep a core busy.
        if waited > Duration::from_millis(1) {
            std::thread::sleep((waited / 16).min(Duration::from_millis(1)).min(limit - waited));
        } else {
            std::hint::spin_loop();
        }
    }
}
