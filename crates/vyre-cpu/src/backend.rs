//! The backend trait over compiled kernels.

use std::sync::Arc;
use std::time::Duration;

use vyre_driver::backend::{
    Binding, Buffer, Capabilities, CompileOptions, Completion, DeviceBuffer, DeviceKind, HostDispatch, KeptPipelines,
    Launch, Limits, Pending, Pipeline, TypeSet, borrowed,
};
use vyre_driver::pipeline::{PipelineDeviceFingerprint, PipelineFeatureFlags};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::{DataType, Program};
use vyre_foundation::kernel::Features;
use vyre_foundation::launch::MAX_WORKGROUP_INVOCATIONS;
use vyre_spec::codes;

use crate::launch::{Grid, SUBGROUP_SIZE, Stop};
use crate::memory::{Arena, Span};
use crate::path::CpuPath;
use crate::pipeline::CpuPipeline;
use crate::queue::Queue;

/// Runs programs on the processor.
pub struct CpuBackend {
    path: CpuPath,
    capabilities: Capabilities,
    queue: Queue,
    kept: KeptPipelines<CpuPipeline>,
}

/// Memory of the host.
struct HostBuffer {
    arena: Arena,
    bytes: usize,
}

impl DeviceBuffer for HostBuffer {
    fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

impl CpuBackend {
    /// The fastest path of this machine, or the one that the environment variable `VYRE_CPU` names.
    pub fn new() -> Result<CpuBackend, BackendError> {
        Ok(CpuBackend::with_path(CpuPath::from_env()?))
    }

    /// One path. It must be [here](CpuPath::is_here).
    pub fn with_path(path: CpuPath) -> CpuBackend {
        use DataType::{BF16, Bool, F8E4M3, F8E5M2, F16, F32, F64, FP4, I4, I8, I16, I32, I64, NF4, U8, U16, U32, U64};
        let types = [Bool, U32, I32, U64, I64, F16, F32, F64, U8, I8, U16, I16, BF16, F8E4M3, F8E5M2, I4, FP4, NF4];
        let mut limits = Limits::default();
        limits.max_workgroup_size = [MAX_WORKGROUP_INVOCATIONS; 3];
        limits.max_workgroup_invocations = MAX_WORKGROUP_INVOCATIONS;
        limits.max_grid = [u32::MAX; 3];
        limits.max_workgroup_memory = 1 << 20;
        limits.max_buffer_bytes = isize::MAX as u64;
        limits.max_bindings = 1024;
        limits.binding_alignment = 8;
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
        capabilities.unified_memory = true;
        capabilities.fingerprint = PipelineDeviceFingerprint::from_parts(0, 0, path.name(), env!("CARGO_PKG_VERSION"));
        CpuBackend { path, capabilities, queue: Queue::default(), kept: KeptPipelines::default() }
    }

    /// The path that kernels take.
    pub fn path(&self) -> CpuPath {
        self.path
    }

    /// How a pipeline of this backend runs: which vectors, which blocks, or why it is interpreted.
    pub fn explain(&self, pipeline: &Arc<dyn Pipeline>) -> Result<String, BackendError> {
        Ok(self.pipeline_of(pipeline)?.describe())
    }

    /// The machine code of a pipeline of this backend; `None` when it is interpreted.
    pub fn machine_code(&self, pipeline: &Arc<dyn Pipeline>) -> Result<Option<Vec<u8>>, BackendError> {
        Ok(self.pipeline_of(pipeline)?.machine_code().map(<[u8]>::to_vec))
    }

    fn build(&self, program: &ValidProgram, options: &CompileOptions) -> Result<CpuPipeline, BackendError> {
        CpuPipeline::new(program, options, self.path, |kernel| Ok(self.capabilities.check(kernel)?))
    }

    fn pipeline_of<'a>(&self, pipeline: &'a Arc<dyn Pipeline>) -> Result<&'a CpuPipeline, BackendError> {
        pipeline.downcast_ref::<CpuPipeline>().ok_or_else(|| {
            BackendError::with_code(
                &codes::backend::FOREIGN_HANDLE,
                "a pipeline was passed to backend `cpu`, which did not make it",
            )
        })
    }
}

fn out_of_memory(bytes: u64) -> BackendError {
    BackendError::with_code(&codes::backend::OUT_OF_MEMORY, format!("there is no memory for {bytes} bytes"))
}

fn mismatch(what: String) -> BackendError {
    BackendError::with_code(&codes::backend::BINDINGS, format!("{what}, which is not what the launch was planned for"))
}

fn timed_out() -> BackendError {
    BackendError::with_code(&codes::backend::TIMEOUT, "the dispatch was stopped at its timeout")
}

/// Host bytes that a launch works on: the caller's where they can be used in place, else a copy.
enum Bytes<'a> {
    Given(&'a [u8]),
    Copy(Arena, usize),
}

impl Bytes<'_> {
    fn span(&self) -> Span {
        match self {
            // SAFETY: the caller's bytes are borrowed for the whole dispatch and kernels only read them.
            Bytes::Given(bytes) => unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) },
            Bytes::Copy(arena, bytes) => arena.span(0, *bytes),
        }
    }
}

/// Runs a launch on the caller's bytes, copying only what the kernel changes.
fn run_in_place(
    pipeline: &CpuPipeline,
    dispatch: &HostDispatch,
    inputs: &[&[u8]],
    timeout: Option<Duration>,
) -> Result<Vec<Vec<u8>>, BackendError> {
    // What a kernel writes is known of the program that it was made from, so that one is asked.
    let (program, sizes) = (pipeline.program(), &dispatch.plan);
    let fits = |input: &[u8], bytes: usize| {
        (input.len() == bytes).then_some(()).ok_or_else(|| mismatch(format!("an input has {} bytes", input.len())))
    };
    if sizes.buffer_bytes.len() != pipeline.bindings() {
        return Err(mismatch(format!("{} buffers are planned", sizes.buffer_bytes.len())));
    }
    let mut given = inputs.iter();
    let mut memory = Vec::with_capacity(sizes.buffer_bytes.len());
    for (&index, &bytes) in program.binding_order().iter().zip(&sizes.buffer_bytes) {
        let kind = program.buffers()[index].kind;
        let input = if kind.is_input() { given.next().copied() } else { None };
        let size = usize::try_from(bytes).map_err(|_| out_of_memory(bytes))?;
        input.map_or(Ok(()), |input| fits(input, size))?;
        memory.push(match input {
            Some(input) if !kind.is_result() && input.as_ptr().addr().is_multiple_of(8) => Bytes::Given(input),
            _ => {
                let arena = Arena::new(size).ok_or_else(|| out_of_memory(bytes))?;
                if let Some(input) = input {
                    arena.fill(0, input);
                }
                Bytes::Copy(arena, size)
            }
        });
    }
    let spans: Vec<Span> = memory.iter().map(Bytes::span).collect();
    let lengths = pipeline.lengths(sizes.buffer_bytes.iter().copied());
    let grid = Grid { workgroups: sizes.grid, lengths };
    let stop = Stop::after(timeout);
    pipeline.run(&spans, &grid, &stop)?;
    if stop.is_set() {
        return Err(timed_out());
    }
    let mut results = Vec::new();
    for (&index, memory) in program.binding_order().iter().zip(memory) {
        if program.buffers()[index].kind.is_result()
            && let Bytes::Copy(arena, bytes) = memory
        {
            let mut out = vec![0; bytes];
            arena.copy_to(0, &mut out);
            results.push(out);
        }
    }
    Ok(results)
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
        let dispatch = HostDispatch::check(self, program, inputs, config)?;
        let pipeline =
            self.kept.get_or_make(&dispatch, |program, options| Ok(Arc::new(self.build(program, options)?)))?;
        run_in_place(&pipeline, &dispatch, inputs, config.timeout)
    }

    fn dispatch_compiled(
        &self,
        pipeline: &Arc<dyn Pipeline>,
        dispatch: &HostDispatch,
        inputs: &[&[u8]],
        timeout: Option<Duration>,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        run_in_place(self.pipeline_of(pipeline)?, dispatch, inputs, timeout)
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
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
            Some(pipeline) => Ok(Arc::new(pipeline)),
            None => Err(BackendError::with_code(
                &codes::backend::BAD_ARTIFACT,
                "the stored code is not code of this program for this processor",
            )),
        }
    }

    fn allocate(&self, bytes: u64) -> Result<Buffer, BackendError> {
        let size = usize::try_from(bytes).map_err(|_| out_of_memory(bytes))?;
        let arena = Arena::new(size).ok_or_else(|| out_of_memory(bytes))?;
        Ok(Buffer::new(HostBuffer { arena, bytes: size }))
    }

    fn upload(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        let host = buffer.of::<HostBuffer>(self.id())?;
        buffer.check_range(offset, bytes.len() as u64)?;
        self.queue.drain();
        host.arena.fill(offset as usize, bytes);
        Ok(())
    }

    fn download(&self, buffer: &Buffer, offset: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        let host = buffer.of::<HostBuffer>(self.id())?;
        buffer.check_range(offset, bytes.len() as u64)?;
        self.queue.drain();
        host.arena.copy_to(offset as usize, bytes);
        Ok(())
    }

    fn copy(
        &self,
        from: &Buffer,
        from_offset: u64,
        to: &Buffer,
        to_offset: u64,
        bytes: u64,
    ) -> Result<(), BackendError> {
        let source = from.of::<HostBuffer>(self.id())?;
        let target = to.of::<HostBuffer>(self.id())?;
        from.check_range(from_offset, bytes)?;
        to.check_range(to_offset, bytes)?;
        self.queue.drain();
        target.arena.copy_from(to_offset as usize, &source.arena, from_offset as usize, bytes as usize);
        Ok(())
    }

    fn submit(&self, pipeline: &Arc<dyn Pipeline>, launch: &Launch<'_>) -> Result<Pending, BackendError> {
        let cpu = self.pipeline_of(pipeline)?;
        if launch.bindings.len() != cpu.bindings() {
            return Err(BackendError::with_code(
                &codes::backend::BINDINGS,
                format!("{} buffers are bound; the program has {}", launch.bindings.len(), cpu.bindings()),
            ));
        }
        let mut spans = Vec::with_capacity(launch.bindings.len());
        for Binding { buffer, offset, bytes } in launch.bindings {
            let host = buffer.of::<HostBuffer>(self.id())?;
            buffer.check_range(*offset, *bytes)?;
            if !offset.is_multiple_of(8) {
                return Err(BackendError::with_code(
                    &codes::backend::BAD_RANGE,
                    format!("a binding starts at byte {offset}, which is not a multiple of 8"),
                ));
            }
            spans.push(host.arena.span(*offset as usize, *bytes as usize));
        }
        let lengths = cpu.lengths(launch.bindings.iter().map(|binding| binding.bytes));
        let grid = Grid { workgroups: launch.grid, lengths };
        let inline = cpu.is_small(launch.grid);
        let pipeline = Arc::clone(pipeline);
        // The buffers live until the launch is over.
        let buffers: Vec<Buffer> = launch.bindings.iter().map(|binding| binding.buffer.clone()).collect();
        let work = move |stop: &Stop| {
            let outcome = match pipeline.downcast_ref::<CpuPipeline>() {
                Some(pipeline) => pipeline.run(&spans, &grid, stop),
                None => Ok(()),
            };
            drop(buffers);
            outcome
        };
        Ok(Pending(self.queue.submit(inline, Box::new(work))?))
    }

    fn wait(&self, pending: Pending, timeout: Option<Duration>) -> Result<Completion, BackendError> {
        self.queue.wait(pending.0, timeout)?;
        Ok(Completion::default())
    }
}
