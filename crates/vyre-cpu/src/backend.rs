//! The backend trait over compiled kernels.

use std::cell::RefCell;
use std::num::NonZero;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vyre_driver::backend::{
    Binding, Buffer, Capabilities, CompileOptions, Completion, DeviceKind, HostDispatch, HostMemory, KeptPipelines,
    Launch, Limits, Order, Pipeline, Recording, Step, Ticket, TypeSet, borrowed,
};
use vyre_driver::pipeline::{PipelineDeviceFingerprint, PipelineFeatureFlags};
use vyre_driver::variant::{Code, Variant};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::{DataType, Program};
use vyre_foundation::kernel::{Features, Kernel};
use vyre_foundation::launch::MAX_WORKGROUP_INVOCATIONS;
use vyre_spec::codes;

use crate::launch::SUBGROUP_SIZE;
use crate::memory::to_read;
use crate::path::CpuPath;
use crate::pipeline::{self, CpuPipeline};
use crate::pool::Pool;
use crate::record::CpuRecording;
use crate::work::{BoundLaunch, CpuWork, GridPlace, HostBuffer, Move, Places, Recorded};
use crate::{caches, dispatch, native, threads};

/// Queues of the backend.
const QUEUES: u32 = 4;

/// Offsets of bindings are multiples of this.
const ALIGNMENT: u32 = 8;

/// Bytes of an upload that are copied aside when work is before it; the caller of a larger one waits.
const STAGED: usize = 1 << 20;

/// How a backend is made. Everything is optional.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct CpuOptions {
    /// The path that kernels take; else the one that `VYRE_CPU` names, else the fastest.
    pub path: Option<CpuPath>,
    /// Threads at work at once; else as many as `VYRE_THREADS` says, else one for each processor that the process may use.
    pub threads: Option<NonZero<usize>>,
    /// Bytes that a launch writes, from which on its results go to memory past the caches where its code can do that; else so many that the
    /// caches of the threads could not keep them.
    pub streams_from: Option<u64>,
}

/// Runs programs on the processor.
pub struct CpuBackend {
    path: CpuPath,
    capabilities: Capabilities,
    kept: KeptPipelines<CpuPipeline>,
    pool: Pool<CpuWork>,
    streams_from: u64,
}

impl CpuBackend {
    /// The fastest path of this machine, or the one that the environment variable `VYRE_CPU` names.
    pub fn new() -> Result<CpuBackend, BackendError> {
        CpuBackend::with_options(&CpuOptions::default())
    }

    /// One path, when this machine has it.
    pub fn with_path(path: CpuPath) -> Result<CpuBackend, BackendError> {
        CpuBackend::with_options(&CpuOptions { path: Some(path), ..CpuOptions::default() })
    }

    /// A backend made to order. No thread is started before there is work for one.
    pub fn with_options(options: &CpuOptions) -> Result<CpuBackend, BackendError> {
        use DataType::{BF16, Bool, F8E4M3, F8E5M2, F16, F32, F64, FP4, I4, I8, I16, I32, I64, NF4, U8, U16, U32, U64};
        let path = options.path.map_or_else(CpuPath::from_env, CpuPath::here)?;
        let threads = options.threads.map_or_else(threads::from_env, Ok)?;
        let types = [Bool, U32, I32, U64, I64, F16, F32, F64, U8, I8, U16, I16, BF16, F8E4M3, F8E5M2, I4, FP4, NF4];
        let mut limits = Limits::default();
        limits.max_workgroup_size = [MAX_WORKGROUP_INVOCATIONS; 3];
        limits.max_workgroup_invocations = MAX_WORKGROUP_INVOCATIONS;
        limits.max_grid = [u32::MAX; 3];
        limits.max_workgroup_memory = 1 << 20;
        limits.max_buffer_bytes = isize::MAX as u64;
        limits.max_bindings = 1024;
        limits.binding_alignment = ALIGNMENT;
        let mut capabilities = Capabilities::default();
        capabilities.name = format!("cpu ({path})");
        capabilities.driver = concat!("vyre-cpu ", env!("CARGO_PKG_VERSION")).to_owned();
        capabilities.kind = DeviceKind::Cpu;
        capabilities.types = TypeSet::of(&types);
        capabilities.features = Features::F16
            .union(Features::F64)
            .union(Features::INT64)
            .union(Features::SUBGROUP)
            .union(Features::ATOMIC64)
            .union(Features::NARROW)
            .union(Features::MATRIX);
        capabilities.pipeline_features = PipelineFeatureFlags::SUBGROUP_OPS.union(PipelineFeatureFlags::F16);
        capabilities.subgroup_sizes = Some([SUBGROUP_SIZE; 2]);
        capabilities.limits = limits;
        capabilities.resident = true;
        capabilities.queues = QUEUES;
        capabilities.threads = u32::try_from(threads.get()).unwrap_or(u32::MAX);
        capabilities.shares_buffers = true;
        capabilities.recordings = true;
        capabilities.timestamps = true;
        capabilities.unified_memory = true;
        let processor = format!("{path} {}", path.isa().map_or_else(String::new, native::features));
        let sources = format!("{} {}", vyre_foundation::SOURCE_DIGEST, pipeline::SOURCE_DIGEST);
        capabilities.fingerprint = PipelineDeviceFingerprint::from_parts(0, 0, &processor, &sources);
        let pool = Pool::new(QUEUES as usize, threads.get());
        let streams_from = options.streams_from.unwrap_or_else(|| caches::streams_from(threads));
        Ok(CpuBackend { path, capabilities, kept: KeptPipelines::default(), pool, streams_from })
    }

    /// The path that kernels take.
    pub fn path(&self) -> CpuPath {
        self.path
    }

    /// Threads that work at once.
    pub fn threads(&self) -> usize {
        self.pool.width()
    }

    /// How a pipeline of this backend runs: which vectors, which blocks, or why it is interpreted.
    pub fn explain(&self, pipeline: &Arc<dyn Pipeline>) -> Result<String, BackendError> {
        Ok(pipeline.of::<CpuPipeline>(self.id())?.describe())
    }

    /// The machine code of a pipeline of this backend; `None` when it is interpreted.
    pub fn machine_code(&self, pipeline: &Arc<dyn Pipeline>) -> Result<Option<Vec<u8>>, BackendError> {
        Ok(pipeline.of::<CpuPipeline>(self.id())?.machine_code().map(<[u8]>::to_vec))
    }

    fn build(&self, program: &ValidProgram, options: &CompileOptions) -> Result<CpuPipeline, BackendError> {
        if let Some(variant) = &options.variant {
            return CpuPipeline::of_variant(program, options, variant, self.pool.crew());
        }
        let check = |kernel: &Kernel| Ok(self.capabilities.check(kernel)?);
        let pipeline = CpuPipeline::new(program, options, self.path, check)?;
        Ok(pipeline.streaming_from(self.streams_from))
    }

    /// A move between two parts, or of zeros to one.
    fn a_move(&self, from: Option<&Binding>, to: &Binding) -> Result<Move, BackendError> {
        let place = |part: &Binding| -> Result<(Arc<HostMemory>, usize), BackendError> {
            part.buffer.check_range(part.offset, part.bytes)?;
            Ok((Arc::clone(&part.buffer.of::<HostBuffer>(self.id())?.memory), part.offset as usize))
        };
        let bytes = Move { from: from.map(place).transpose()?, to: place(to)?, bytes: to.bytes as usize };
        if let Some(from) = from {
            let apart = !from.buffer.is_same(&to.buffer) || from.offset.abs_diff(to.offset) >= to.bytes;
            if from.bytes != to.bytes || !apart {
                return Err(BackendError::with_code(
                    &codes::backend::BAD_RANGE,
                    format!("{} bytes are copied to {}, or to a part that overlaps them", from.bytes, to.bytes),
                ));
            }
        }
        Ok(bytes)
    }

    /// Moves at once what is little and has nothing before it, and queues all else.
    fn submit_move(&self, bytes: Move, order: &Order<'_>) -> Result<Ticket, BackendError> {
        self.pool.check(order)?;
        self.pool.reserve(1)?;
        if bytes.bytes <= Move::PART
            && let Some(inline) = self.pool.inline(order)?
        {
            return Ok(inline.run(|_| {
                (0..bytes.parts()).for_each(|part| bytes.run(part));
                None
            }));
        }
        self.pool.submit(order, false, false, |work| work.move_bytes(bytes))
    }

    /// A step with everything that it uses.
    fn recorded(&self, step: &Step) -> Result<Recorded, BackendError> {
        Ok(match step {
            Step::Launch { pipeline, bindings, grid } => {
                let cpu = pipeline.of::<CpuPipeline>(self.id())?;
                Binding::check_all(bindings, cpu.bindings(), ALIGNMENT)?;
                let mut places = Places::default();
                places.fill(cpu, bindings, self.id())?;
                let plan = places.plan(cpu, *grid, self.pool.width())?;
                self.pool.reserve(plan.scratch_bytes)?;
                Recorded::Launch(Box::new(BoundLaunch::new(pipeline, bindings, places, plan)))
            }
            Step::Copy { from, to } => Recorded::Move(self.a_move(Some(from), to)?),
            Step::Clear(part) => Recorded::Move(self.a_move(None, part)?),
        })
    }
}

fn out_of_memory(bytes: u64) -> BackendError {
    BackendError::with_code(&codes::backend::OUT_OF_MEMORY, format!("there is no memory for {bytes} bytes"))
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
}

impl VyreBackend for CpuBackend {
    fn id(&self) -> &'static str {
        "cpu"
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
        let deadline = config.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let dispatch = HostDispatch::check(self, program, inputs, config)?;
        let pipeline =
            self.kept.get_or_make(&dispatch, |program, options| Ok(Arc::new(self.build(program, options)?)))?;
        dispatch::run(&self.pool, &pipeline, &dispatch, inputs, deadline)
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn takes(&self, variant: &Variant) -> Result<(), String> {
        match variant.code() {
            Code::Host(_) => Ok(()),
            _ => Err(format!("the processor can't run {variant}")),
        }
    }

    fn compile(&self, program: &ValidProgram, options: &CompileOptions) -> Result<Arc<dyn Pipeline>, BackendError> {
        Ok(Arc::new(self.build(program, options)?))
    }

    fn load(
        &self,
        program: &ValidProgram,
        options: &CompileOptions,
        artifact: &[u8],
    ) -> Result<Arc<dyn Pipeline>, BackendError> {
        match CpuPipeline::read(program, options, self.path, artifact) {
            Some(pipeline) => Ok(Arc::new(pipeline.streaming_from(self.streams_from))),
            None => Err(BackendError::with_code(
                &codes::backend::BAD_ARTIFACT,
                "the stored code is not code of this program for this processor",
            )),
        }
    }

    fn allocate(&self, bytes: u64) -> Result<Buffer, BackendError> {
        let memory = usize::try_from(bytes).ok().and_then(HostMemory::new).ok_or_else(|| out_of_memory(bytes))?;
        Ok(Buffer::new(HostBuffer { memory: Arc::new(memory) }))
    }

    fn adopt(&self, memory: &Arc<HostMemory>) -> Result<Buffer, BackendError> {
        if !memory.address_to_read().addr().is_multiple_of(ALIGNMENT as usize) {
            return Err(BackendError::with_code(
                &codes::backend::BAD_RANGE,
                format!("memory starts at an address that is not a multiple of {ALIGNMENT}"),
            ));
        }
        Ok(Buffer::new(HostBuffer { memory: Arc::clone(memory) }))
    }

    fn upload(&self, buffer: &Buffer, offset: u64, bytes: &[u8], order: &Order<'_>) -> Result<Ticket, BackendError> {
        let memory = &buffer.of::<HostBuffer>(self.id())?.memory;
        buffer.check_range(offset, bytes.len() as u64)?;
        self.pool.check(order)?;
        self.pool.reserve(1)?;
        if let Some(inline) = self.pool.inline(order)? {
            return Ok(inline.run(|_| {
                memory.fill(offset as usize, bytes);
                None
            }));
        }
        let to = (Arc::clone(memory), offset as usize);
        let queue = |from: HostMemory| {
            let bytes = Move { from: Some((Arc::new(from), 0)), to, bytes: bytes.len() };
            self.pool.submit(order, false, false, |work| work.move_bytes(bytes))
        };
        if bytes.len() <= STAGED {
            let staging = HostMemory::new(bytes.len()).ok_or_else(|| out_of_memory(bytes.len() as u64))?;
            staging.fill(0, bytes);
            return queue(staging);
        }
        // SAFETY: the bytes are borrowed until the move is over, which is waited for, and it only reads them.
        let ticket = queue(unsafe { to_read(bytes) })?;
        self.pool.done_by(ticket, order.deadline, "the bytes could be written")?;
        Ok(ticket)
    }

    fn download(&self, buffer: &Buffer, offset: u64, bytes: &mut [u8], order: &Order<'_>) -> Result<(), BackendError> {
        let memory = &buffer.of::<HostBuffer>(self.id())?.memory;
        buffer.check_range(offset, bytes.len() as u64)?;
        self.pool.wait_before(order, "the bytes could be read")?;
        memory.copy_to(offset as usize, bytes);
        Ok(())
    }

    fn copy(&self, from: &Binding, to: &Binding, order: &Order<'_>) -> Result<Ticket, BackendError> {
        self.submit_move(self.a_move(Some(from), to)?, order)
    }

    fn clear(&self, part: &Binding, order: &Order<'_>) -> Result<Ticket, BackendError> {
        self.submit_move(self.a_move(None, part)?, order)
    }

    fn submit(&self, pipeline: &Arc<dyn Pipeline>, launch: &Launch<'_>) -> Result<Ticket, BackendError> {
        thread_local! {
            /// Kept, so that a launch needs no memory of its own.
            static PLACES: RefCell<Places> = RefCell::default();
        }
        let cpu = pipeline.of::<CpuPipeline>(self.id())?;
        let Launch { bindings, grid, timed, order } = *launch;
        Binding::check_all(bindings, cpu.bindings(), ALIGNMENT)?;
        self.pool.check(&order)?;
        PLACES.with_borrow_mut(|places| {
            places.fill(cpu, bindings, self.id())?;
            let plan = places.plan(cpu, grid, self.pool.width())?;
            self.pool.reserve(plan.scratch_bytes)?;
            if plan.small.is_some()
                && let Some(inline) = self.pool.inline(&order)?
            {
                return Ok(inline.run(|scratch| {
                    let start = timed.then(Instant::now);
                    places.run_all(cpu, &plan, scratch);
                    start.map(nanoseconds)
                }));
            }
            self.pool.submit(&order, timed, true, |work| work.launch(pipeline, bindings, places, plan))
        })
    }

    fn submit_indirect(
        &self,
        pipeline: &Arc<dyn Pipeline>,
        launch: &Launch<'_>,
        grid: &Binding,
    ) -> Result<Ticket, BackendError> {
        let cpu = pipeline.of::<CpuPipeline>(self.id())?;
        let Launch { bindings, grid: most, timed, order } = *launch;
        Binding::check_all(bindings, cpu.bindings(), ALIGNMENT)?;
        grid.check_indirect()?;
        let memory = Arc::clone(&grid.buffer.of::<HostBuffer>(self.id())?.memory);
        self.pool.check(&order)?;
        let mut places = Places::default();
        places.fill(cpu, bindings, self.id())?;
        // What the largest grid needs suffices for every other.
        let plan = places.plan(cpu, most, self.pool.width())?;
        self.pool.reserve(plan.scratch_bytes.max(1))?;
        let grid = GridPlace { memory, at: grid.offset as usize, threads: self.pool.width() };
        self.pool.submit(&order, timed, true, |work| {
            work.launch_indirect(pipeline, bindings, &mut places, plan, grid);
        })
    }

    fn poll(&self, ticket: Ticket) -> Result<Option<Completion>, BackendError> {
        self.pool.ledger().outcome(ticket)
    }

    fn wait(&self, ticket: Ticket, timeout: Option<Duration>) -> Result<Option<Completion>, BackendError> {
        self.pool.wait(ticket, timeout)
    }

    fn cancel(&self, ticket: Ticket) -> Result<(), BackendError> {
        self.pool.cancel(ticket)
    }

    fn forget(&self, ticket: Ticket) {
        self.pool.forget(ticket);
    }

    fn is_idle(&self, queue: u32) -> bool {
        self.pool.ledger().is_idle(queue)
    }

    fn forget_done(&self, ticket: Ticket) -> bool {
        if self.pool.ledger().is_plainly_done(ticket) {
            return true;
        }
        let is_done = matches!(self.poll(ticket), Ok(Some(_)));
        if is_done {
            self.forget(ticket);
        }
        is_done
    }

    fn record(&self, steps: &[Step]) -> Result<Arc<dyn Recording>, BackendError> {
        let steps = steps.iter().map(|step| self.recorded(step)).collect::<Result<_, _>>()?;
        Ok(Arc::new(CpuRecording::new(steps)))
    }

    fn revise(&self, recording: &Arc<dyn Recording>, steps: &[(usize, Step)]) -> Result<(), BackendError> {
        let recording = recording.of::<CpuRecording>(self.id())?;
        let steps =
            steps.iter().map(|(at, step)| Ok((*at, self.recorded(step)?))).collect::<Result<_, BackendError>>()?;
        recording.revise(steps)
    }

    fn replay(&self, recording: &Arc<dyn Recording>, order: &Order<'_>) -> Result<Ticket, BackendError> {
        let steps = recording.of::<CpuRecording>(self.id())?.now();
        self.pool.check(order)?;
        self.pool.reserve(1)?;
        if steps.is_small
            && let Some(inline) = self.pool.inline(order)?
        {
            return Ok(inline.run(|scratch| {
                steps.run_all(scratch);
                None
            }));
        }
        self.pool.submit(order, false, false, |work| work.replay(steps))
    }
}
