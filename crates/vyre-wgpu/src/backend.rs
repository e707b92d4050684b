//! The backend trait over an adapter.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use vyre_driver::backend::{
    Buffer, Capabilities, CompileOptions, Completion, HostDispatch, KeptPipelines, Launch, Pending, Pipeline, borrowed,
    dispatch_through,
};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::{self, Features, Kernel, Narrow, Options, Passes};
use vyre_spec::{Diagnostic, codes};

use crate::adapter::{Adapter, adapters};
use crate::arithmetic;
use crate::context::{Bindings, Context, Device, Prepared, WgpuBuffer, Words};
use crate::emit::{self, Arithmetic, Facts, Spirv, Target};
use crate::pipeline::WgpuPipeline;
use crate::raw::Code;

/// How long a launch that was told to end may take to do so, and an answer that another thread is about to give.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// Room behind the last element: bindings are never empty, and narrow elements are changed by whole words.
const ROOM: u64 = 16;

/// Runs programs on an adapter that wgpu finds.
///
/// Launches run in the order of submission; a few are gathered before the device gets them, and waiting, reading and writing
/// send them off. A launch that was compiled as interruptible ends when a wait for it times out, on Vulkan; elsewhere, and when
/// it was not, it keeps the device busy until it ends by itself or the system ends it. When the device is lost the call that
/// notices it fails, and the next one opens it anew: pipelines stay, buffers are lost.
pub struct WgpuBackend {
    device: Arc<Device>,
    capabilities: Capabilities,
    arithmetic: OnceLock<Arithmetic>,
    kept: KeptPipelines<dyn Pipeline>,
}

impl WgpuBackend {
    /// The best adapter, or the one whose number or part of whose name the environment variable `VYRE_WGPU_ADAPTER` gives; else
    /// why there is none.
    pub fn probe() -> Result<Arc<dyn VyreBackend>, Diagnostic> {
        let found = adapters()?;
        let Ok(wanted) = std::env::var("VYRE_WGPU_ADAPTER") else {
            return Ok(Arc::new(WgpuBackend::open(0)?));
        };
        let wanted = wanted.trim();
        let lower = wanted.to_lowercase();
        let position = wanted
            .parse()
            .ok()
            .filter(|&number: &usize| number < found.len())
            .or_else(|| found.iter().position(|adapter| adapter.capabilities.name.to_lowercase().contains(&lower)));
        let Some(position) = position else {
            let names: Vec<_> = found.iter().map(|adapter| adapter.capabilities.name.as_str()).collect();
            return Err(Diagnostic::new(
                &codes::wgpu::NO_ADAPTER,
                format!(
                    "VYRE_WGPU_ADAPTER is `{}`, which is neither the number nor in the name of one of: {}",
                    wanted.escape_debug(),
                    names.join(", ")
                ),
            ));
        };
        let mut adapter = found[position].clone();
        adapter.id = found[0].id;
        Ok(Arc::new(WgpuBackend::on(adapter)?))
    }

    /// How many adapters there are.
    pub fn adapter_count() -> Result<usize, Diagnostic> {
        Ok(adapters()?.len())
    }

    /// The adapter that [`probe`](Self::probe) gives as number 0, and the others by their position in [`adapters`].
    pub fn probe_adapter(position: usize) -> Result<Arc<dyn VyreBackend>, Diagnostic> {
        match position {
            0 => WgpuBackend::probe(),
            _ => Ok(Arc::new(WgpuBackend::open(position)?)),
        }
    }

    /// Opens an adapter by its position in [`adapters`].
    pub fn open(position: usize) -> Result<WgpuBackend, Diagnostic> {
        let found = adapters()?;
        match found.get(position) {
            Some(adapter) => WgpuBackend::on(adapter.clone()),
            None => Err(Diagnostic::new(
                &codes::wgpu::NO_ADAPTER,
                format!("there is no adapter {position}; wgpu finds {}", found.len()),
            )),
        }
    }

    /// Opens an adapter.
    pub fn on(adapter: Adapter) -> Result<WgpuBackend, Diagnostic> {
        let capabilities = adapter.capabilities.clone();
        let device = Device::open(adapter).map_err(BackendError::into_diagnostic)?;
        Ok(WgpuBackend { device, capabilities, arithmetic: OnceLock::new(), kept: KeptPipelines::default() })
    }

    /// The adapter as wgpu describes it.
    pub fn adapter(&self) -> &Adapter {
        &self.device.adapter
    }

    /// What the adapter was seen to round as IEEE 754 says; the rest is computed from it where it can be.
    pub fn arithmetic(&self) -> Arithmetic {
        *self.arithmetic.get_or_init(|| arithmetic::measure(self))
    }

    /// Gives the device back with everything on it: buffers are lost, and the next call opens it anew.
    pub fn reset(&self) -> Result<(), BackendError> {
        match self.device.with(|context| {
            context.destroy();
            Ok(())
        }) {
            Err(error) if error.code() != codes::backend::DEVICE_LOST.id => Err(error),
            _ => Ok(()),
        }
    }

    fn lower(&self, program: &ValidProgram, options: &CompileOptions) -> Result<Kernel, BackendError> {
        // The expansions of functions compute in f64 and in 64-bit integers.
        let wide = self.capabilities.features.contains(Features::F64.union(Features::INT64));
        let kernel = kernel::lower(
            program,
            &Options {
                specialization: options.specialization.clone(),
                workgroup_size: options.workgroup_size,
                passes: Passes::all(),
                expand_math: wide,
                narrow: Narrow::Words,
                interruptible: options.interruptible,
                ..Options::default()
            },
        )?;
        self.capabilities.check(&kernel)?;
        Ok(kernel)
    }

    /// Compiles for an adapter that rounds like this.
    pub(crate) fn compile_with(
        &self,
        program: &ValidProgram,
        options: &CompileOptions,
        arithmetic: impl FnOnce() -> Arithmetic,
    ) -> Result<Arc<dyn Pipeline>, BackendError> {
        let kernel = self.lower(program, options)?;
        let can_stop = self.device.with(|context| Ok(context.stop.is_some()))?;
        let arithmetic = if arithmetic::matters(&kernel) { arithmetic() } else { Arithmetic::exact() };
        let target = Target { interruptible: options.interruptible && can_stop, arithmetic };
        let module = emit::emit(&kernel, target)?;
        let code = if self.device.adapter.spirv {
            let modern = self.device.adapter.features.contains(wgpu::Features::SUBGROUP);
            let version = if modern { (1, 3) } else { (1, 0) };
            let controls = self.device.adapter.controls;
            Code::Spirv(emit::spirv(&module, Spirv { version, controls })?)
        } else {
            Code::Module(Box::new(module))
        };
        let pipeline = WgpuPipeline::new(Arc::clone(&self.device), &kernel, target.interruptible, code);
        self.device.with(|context| pipeline.made(context))?;
        Ok(Arc::new(pipeline))
    }

    fn pipeline_of<'a>(&self, pipeline: &'a Arc<dyn Pipeline>) -> Result<&'a WgpuPipeline, BackendError> {
        pipeline
            .downcast_ref::<WgpuPipeline>()
            .filter(|pipeline| Arc::ptr_eq(&pipeline.device, &self.device))
            .ok_or_else(|| {
                BackendError::with_code(
                    &codes::backend::FOREIGN_HANDLE,
                    format!("a pipeline was passed to backend `{}`, which did not make it", self.id()),
                )
            })
    }

    /// Checks the bindings of a launch and gathers what the kernel is told about them.
    fn bindings<'a>(
        &self,
        context: &Context,
        pipeline: &WgpuPipeline,
        launch: &'a Launch<'_>,
    ) -> Result<(Bindings<'a>, Words), BackendError> {
        let refused = |code, what: String| Err(BackendError::with_code(code, what));
        if launch.bindings.len() != pipeline.shapes.len() {
            return refused(
                &codes::backend::BINDINGS,
                format!("{} buffers are bound; the program has {}", launch.bindings.len(), pipeline.shapes.len()),
            );
        }
        let mut facts = Words::new();
        facts.extend(launch.grid);
        facts.extend([0; Facts::LENGTHS as usize - 3]);
        let mut bindings = Bindings::new();
        for (binding, shape) in launch.bindings.iter().zip(&pipeline.shapes) {
            let buffer = binding.buffer.of::<WgpuBuffer>(self.id())?;
            buffer.check(&self.device, context)?;
            binding.buffer.check_range(binding.offset, binding.bytes)?;
            let alignment = u64::from(self.capabilities.limits.binding_alignment);
            if !binding.offset.is_multiple_of(alignment) {
                return refused(
                    &codes::backend::BAD_RANGE,
                    format!("a binding starts at byte {}, which is not a multiple of {alignment}", binding.offset),
                );
            }
            let Ok(elements) = u32::try_from(shape.elements(binding.bytes)) else {
                return refused(
                    &codes::backend::LIMIT,
                    format!("{} can't count the elements of {} bytes", self.capabilities.name, binding.bytes),
                );
            };
            facts.push(elements);
            // Bindings are never empty, and end with a whole word.
            let size = binding.bytes.next_multiple_of(ROOM).max(ROOM);
            bindings.push((buffer, binding.offset, size));
        }
        for ((buffer, ..), shape) in bindings.iter().zip(&pipeline.shapes) {
            let read = |(other, kind): (&(&WgpuBuffer, u64, u64), &crate::pipeline::Shape)| {
                other.0.number == buffer.number && !kind.written
            };
            if shape.written && bindings.iter().zip(&pipeline.shapes).any(read) {
                return refused(
                    &codes::backend::BINDINGS,
                    "one buffer is bound to be read and to be written in the same launch, which wgpu does not allow \
                     Fix: Bind two buffers."
                        .to_owned(),
                );
            }
        }
        Ok((bindings, facts))
    }

    /// A range that wgpu can move: whole words around the bytes, and how far into them the bytes start.
    fn words_around(buffer: &WgpuBuffer, offset: u64, bytes: u64) -> (u64, u64, usize) {
        let start = offset & !3;
        let end = (offset + bytes).next_multiple_of(4).min(buffer.buffer.size());
        (start, end - start, (offset - start) as usize)
    }
}

impl VyreBackend for WgpuBackend {
    fn id(&self) -> &'static str {
        self.device.adapter.id
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
        self.compile_with(program, options, || self.arithmetic())
    }

    fn load(
        &self,
        program: &ValidProgram,
        options: &CompileOptions,
        artifact: &[u8],
    ) -> Result<Arc<dyn Pipeline>, BackendError> {
        let bad = |what: &str| BackendError::with_code(&codes::backend::BAD_ARTIFACT, what);
        if !self.device.adapter.spirv {
            return Err(bad("the adapter does not take stored kernels"));
        }
        let pipeline = WgpuPipeline::decode(Arc::clone(&self.device), artifact, program.binding_order().len())?;
        self.device.with(|context| {
            if pipeline.interruptible != (options.interruptible && context.stop.is_some()) {
                return Err(bad("the stored wgpu pipeline was made for other options"));
            }
            pipeline.made(context)
        })?;
        Ok(Arc::new(pipeline))
    }

    fn allocate(&self, bytes: u64) -> Result<Buffer, BackendError> {
        let most = self.capabilities.limits.max_buffer_bytes;
        if bytes > most {
            return Err(BackendError::with_code(
                &codes::backend::OUT_OF_MEMORY,
                format!("{} has no buffers of {bytes} bytes, only up to {most}", self.capabilities.name),
            ));
        }
        let size = bytes.next_multiple_of(ROOM).max(ROOM);
        self.device.with(|context| {
            use wgpu::BufferUsages as Usage;
            let buffer = context.create_buffer(size, Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST)?;
            Ok(Buffer::new(WgpuBuffer {
                device: Arc::clone(&self.device),
                generation: context.generation,
                number: self.device.next_number(),
                buffer,
                bytes,
            }))
        })
    }

    fn upload(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        let target = buffer.of::<WgpuBuffer>(self.id())?;
        buffer.check_range(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.device.with(|context| {
            let to = target.check(&self.device, context)?;
            let (start, size, skip) = Self::words_around(target, offset, bytes.len() as u64);
            let end = offset + bytes.len() as u64;
            if size == bytes.len() as u64 {
                return context.upload(to, start, bytes);
            }
            if skip == 0 && end == target.bytes {
                // Behind the last element there is nobody's memory.
                let whole = bytes.len() / 4 * 4;
                if whole > 0 {
                    context.upload(to, start, &bytes[..whole])?;
                }
                let mut last = [0; 4];
                last[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
                return context.upload(to, start + whole as u64, &last);
            }
            // The words at the ends hold others' bytes too.
            let mut whole = vec![0; size as usize];
            context.download(to, start, &mut whole)?;
            whole[skip..skip + bytes.len()].copy_from_slice(bytes);
            context.upload(to, start, &whole)
        })
    }

    fn download(&self, buffer: &Buffer, offset: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        let source = buffer.of::<WgpuBuffer>(self.id())?;
        buffer.check_range(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.device.with(|context| {
            let from = source.check(&self.device, context)?;
            let (start, size, skip) = Self::words_around(source, offset, bytes.len() as u64);
            if skip == 0 {
                return context.download(from, start, bytes);
            }
            let mut whole = vec![0; size as usize];
            context.download(from, start, &mut whole)?;
            bytes.copy_from_slice(&whole[skip..skip + bytes.len()]);
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
        let (source, target) = (from.of::<WgpuBuffer>(self.id())?, to.of::<WgpuBuffer>(self.id())?);
        from.check_range(from_offset, bytes)?;
        to.check_range(to_offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        let words = |offset: u64| offset.is_multiple_of(4);
        let same = source.number == target.number;
        if same || !(words(from_offset) && words(to_offset) && words(bytes)) {
            let mut moved = vec![0; bytes as usize];
            self.download(from, from_offset, &mut moved)?;
            return self.upload(to, to_offset, &moved);
        }
        self.device.with(|context| {
            let (source, target) = (source.check(&self.device, context)?, target.check(&self.device, context)?);
            context.copy((source, from_offset), (target, to_offset), bytes)
        })
    }

    fn clear(&self, buffer: &Buffer, offset: u64, bytes: u64) -> Result<(), BackendError> {
        let target = buffer.of::<WgpuBuffer>(self.id())?;
        buffer.check_range(offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        // To the end means to the end of the room behind it.
        let end = if offset + bytes == target.bytes { target.buffer.size() } else { offset + bytes };
        if !offset.is_multiple_of(4) || !end.is_multiple_of(4) {
            return self.upload(buffer, offset, &vec![0; bytes as usize]);
        }
        self.device.with(|context| {
            let at = target.check(&self.device, context)?;
            context.clear(at, offset, end - offset)
        })
    }

    fn submit(&self, pipeline: &Arc<dyn Pipeline>, launch: &Launch<'_>) -> Result<Pending, BackendError> {
        let pipeline = self.pipeline_of(pipeline)?;
        self.device.with(|context| {
            let made = pipeline.made(context)?;
            let (bindings, facts) = self.bindings(context, pipeline, launch)?;
            debug_assert_eq!(facts.len(), Facts::words(bindings.len()));
            let number = context.submit(Prepared {
                pipeline: pipeline.number,
                made: &made,
                interruptible: pipeline.interruptible,
                bindings,
                facts,
                grid: launch.grid,
                timed: launch.timed && self.capabilities.timestamps,
            })?;
            Ok(Pending(number))
        })
    }

    fn wait(&self, pending: Pending, timeout: Option<Duration>) -> Result<Completion, BackendError> {
        let number = pending.0;
        self.device.with(|context| {
            {
                let work = context.work();
                if number > work.submitted {
                    return Err(BackendError::new(format!("launch {number} was never submitted")));
                }
                if number > work.completed && number <= work.lost {
                    return Err(BackendError::with_code(
                        &codes::backend::DEVICE_LOST,
                        format!("launch {number} was lost with the device it ran on"),
                    ));
                }
                if number > work.completed && number <= work.stopped {
                    return Err(timed_out());
                }
            }
            if !context.wait_for(number, timeout)? {
                let mut work = context.work();
                work.stopped = work.stopped.max(number);
                drop(work);
                if let Some(stop) = &context.stop {
                    stop.stop(number as u32);
                    // A launch that can't be told to end stays; what comes after it waits for it.
                    context.wait_for(number, Some(GRACE))?;
                }
                return Err(timed_out());
            }
            Ok(Completion { device_ns: context.time_of(number)? })
        })
    }
}

fn timed_out() -> BackendError {
    BackendError::with_code(&codes::backend::TIMEOUT, "the launch was not done at its timeout and was told to end")
}
