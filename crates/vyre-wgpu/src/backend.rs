//! The backend trait over an adapter.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use vyre_driver::backend::{
    Binding, BoundShape, Buffer, Capabilities, CompileOptions, Completion, HostDispatch, INDIRECT_BYTES, KeptPipelines,
    Launch, Order, Pipeline, Recording, Step, Ticket, borrowed, dispatch_through, foreign, indirect_grid,
};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::{Math, Program};
use vyre_foundation::kernel::{self, Approximations, Features, Kernel, Narrow, Options, Passes};
use vyre_spec::{Diagnostic, codes};

use crate::adapter::{Adapter, adapters};
use crate::arithmetic;
use crate::context::Context;
use crate::device::{Device, WgpuBuffer};
use crate::emit::{self, Arithmetic, Facts, FloatControls, Spirv, Target};
use crate::loops::Loops;
use crate::pipeline::{Made, Traits, WgpuPipeline};
use crate::raw::Code;
use crate::transfer::{self, are_words};
use crate::work::{Bindings, Prepared, Words};

/// Room behind the last element: bindings are never empty, and narrow elements are changed by whole words.
const ROOM: u64 = 16;

const USAGE: wgpu::BufferUsages =
    wgpu::BufferUsages::STORAGE.union(wgpu::BufferUsages::COPY_SRC).union(wgpu::BufferUsages::COPY_DST);

/// Buffers of our own may also hold the grid of a launch.
const OWN_USAGE: wgpu::BufferUsages = USAGE.union(wgpu::BufferUsages::INDIRECT);

/// Runs programs on an adapter that wgpu finds, or on a device of the caller's own.
///
/// There is one queue. Small launches are gathered while it is busy; waiting, polling, reading and writing send them off, as does
/// [`flush`](Self::flush). A launch whose end nobody can foresee is submitted alone, so that no other waits for it that is before it. A
/// launch that was compiled as interruptible ends when it is cancelled, on Vulkan, and does nothing if it had not begun; elsewhere, and when
/// it was not, it can't be told. When the device is lost everything on it fails, and the next call opens it anew: pipelines stay, buffers
/// are lost.
pub struct WgpuBackend {
    pub(crate) device: Arc<Device>,
    capabilities: Capabilities,
    arithmetic: OnceLock<Arithmetic>,
    /// Quotients of 64-bit integers are right.
    wide_quotients: OnceLock<bool>,
    byte_copy: Mutex<Option<Arc<dyn Pipeline>>>,
    kept: KeptPipelines<dyn Pipeline>,
}

/// A launch that moves bytes.
pub(crate) struct ByteCopy {
    pub(crate) pipeline: Arc<dyn Pipeline>,
    pub(crate) bindings: [Binding; 3],
    pub(crate) grid: [u32; 3],
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
        Ok(WgpuBackend::of(Device::open(adapter).map_err(BackendError::into_diagnostic)?))
    }

    /// Runs on a device of the caller's own, made from this adapter, and on its queue. What the device was made without is missing to
    /// programs; immediate data it must have.
    ///
    /// The device's handlers for errors and for its loss stay the caller's. Callbacks that wgpu calls for the caller's own work must not
    /// call this backend: it may be the one that polls. When the device is lost, so is the backend.
    pub fn from_device(
        adapter: &wgpu::Adapter,
        device: wgpu::Device,
        queue: wgpu::Queue,
    ) -> Result<WgpuBackend, Diagnostic> {
        let adapter = Adapter::with_device(adapter, &device)?;
        Ok(WgpuBackend::of(Device::adopt(adapter, device, queue)))
    }

    fn of(device: Arc<Device>) -> WgpuBackend {
        WgpuBackend {
            capabilities: device.adapter.capabilities.clone(),
            device,
            arithmetic: OnceLock::new(),
            wide_quotients: OnceLock::new(),
            byte_copy: Mutex::default(),
            kept: KeptPipelines::default(),
        }
    }

    /// A buffer of the device as one of this backend. It needs the usages `STORAGE`, `COPY_SRC` and `COPY_DST`, and must not be mapped
    /// while work uses it. Work that the caller submits to the queue later sees what was launched here before a
    /// [`flush`](Self::flush), and the other way round.
    pub fn wrap(&self, buffer: wgpu::Buffer) -> Result<Buffer, BackendError> {
        let lacking = USAGE.difference(buffer.usage());
        let size = 4..=self.capabilities.limits.max_buffer_bytes;
        if !lacking.is_empty() || !buffer.size().is_multiple_of(4) || !size.contains(&buffer.size()) {
            return Err(BackendError::with_code(
                &codes::backend::BAD_RANGE,
                format!(
                    "a wgpu buffer of {} bytes that lacks {lacking:?} can't be bound Fix: Make it with the usages STORAGE, COPY_SRC \
                     and COPY_DST and a size that is a multiple of 4 and at most {}.",
                    buffer.size(),
                    size.end()
                ),
            ));
        }
        self.device.with(|context| Ok(self.buffer(context, buffer.size(), buffer.clone(), true)))
    }

    /// The wgpu buffer behind one of this backend's, which has at least as many bytes. What was launched before is given to the queue, so
    /// that what the caller submits from now on comes after it.
    pub fn raw_buffer<'b>(&self, buffer: &'b Buffer) -> Result<&'b wgpu::Buffer, BackendError> {
        let own = buffer.of::<WgpuBuffer>(self.id())?;
        self.flush()?;
        self.device.with(|context| own.check(&self.device, context))
    }

    /// Gives to the queue what was gathered. With Mesa's llvmpipe that can take until what is before it is over.
    pub fn flush(&self) -> Result<(), BackendError> {
        self.device.with(|context| {
            context.flush_all(&mut context.work());
            Ok(())
        })
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

    pub(crate) fn lower(&self, program: &ValidProgram, options: &CompileOptions) -> Result<Kernel, BackendError> {
        // The expansions of functions compute in f64 and in 64-bit integers.
        let wide = self.capabilities.features.contains(Features::F64.union(Features::INT64));
        let kernel = kernel::lower(
            program,
            &Options {
                specialization: options.specialization.clone(),
                workgroup_size: options.workgroup_size,
                merged: options.knobs.merged,
                rounds_together: options.knobs.rounds.unwrap_or(1),
                // What is contracted in fast arithmetic is the driver's to say.
                passes: Passes::all().without(Passes::CONTRACT),
                expand_math: wide,
                approximations: Approximations::Functions,
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
        // What can't be tried counts as wrong.
        if arithmetic::divides_wide(&kernel)
            && !*self.wide_quotients.get_or_init(|| arithmetic::wide_quotients(self).unwrap_or(false))
        {
            let message = format!("the driver of {} gets quotients of 64-bit integers wrong", self.capabilities.name);
            return Err(BackendError::with_code(&codes::backend::UNSUPPORTED_FEATURE, message));
        }
        self.compile_lowered(&kernel, options, arithmetic)
    }

    /// The same whatever the driver gets wrong.
    pub(crate) fn compile_lowered(
        &self,
        kernel: &Kernel,
        options: &CompileOptions,
        arithmetic: impl FnOnce() -> Arithmetic,
    ) -> Result<Arc<dyn Pipeline>, BackendError> {
        let words = kernel.locals.iter().fold(0u32, |sum, memory| sum.saturating_add(memory.size.div_ceil(4)));
        let most = self.device.adapter.array_words;
        if words > most {
            let name = &self.capabilities.name;
            let message = format!("the private arrays of the kernel are {words} words; {name} takes at most {most}");
            return Err(BackendError::with_code(&codes::wgpu::ARRAY_LIMIT, message));
        }
        let exact = kernel.math == Math::Exact;
        let loops = Loops::of(kernel);
        let can_stop = self.device.with(|context| Ok(context.can_stop))?;
        let target = Target {
            interruptible: options.interruptible && can_stop,
            rounds: self.device.adapter.rounds.filter(|_| can_stop).and_then(|limit| limit.of(loops)),
            arithmetic: if exact && arithmetic::matters(kernel) { arithmetic() } else { Arithmetic::exact() },
        };
        let module = emit::emit(kernel, target)?;
        let code = if self.device.adapter.spirv {
            let modern = self.device.adapter.features.contains(wgpu::Features::SUBGROUP);
            let version = if modern { (1, 3) } else { (1, 0) };
            // Fast arithmetic is whatever the driver does unasked.
            let controls = if exact { self.device.adapter.controls } else { FloatControls::default() };
            Code::Spirv(emit::spirv(&module, Spirv { version, controls, contraction: !exact })?)
        } else {
            Code::Module(Box::new(module))
        };
        let pipeline = WgpuPipeline::new(Arc::clone(&self.device), kernel, Traits::new(kernel, loops, target), code);
        self.device.with(|context| pipeline.made(context))?;
        Ok(Arc::new(pipeline))
    }

    pub(crate) fn pipeline_of<'a>(&self, pipeline: &'a Arc<dyn Pipeline>) -> Result<&'a WgpuPipeline, BackendError> {
        let own = pipeline.of::<WgpuPipeline>(self.id())?;
        if Arc::ptr_eq(&own.device, &self.device) { Ok(own) } else { Err(foreign("pipeline", self.id())) }
    }

    /// Refuses a place in the order that is not there. On one queue everything comes after what was submitted before.
    pub(crate) fn check_order(&self, order: &Order<'_>) -> Result<(), BackendError> {
        self.device.ledger.submitted(order.queue)?;
        order.after.iter().try_for_each(|&ticket| self.device.ledger.check(ticket))
    }

    /// Checks the bindings of a launch and gathers what the kernel is told about them.
    pub(crate) fn prepare<'a>(
        &self,
        context: &Context,
        pipeline: &'a WgpuPipeline,
        made: &'a Made,
        bound: &'a [Binding],
        grid: [u32; 3],
    ) -> Result<Prepared<'a>, BackendError> {
        Binding::check_all(bound, pipeline.shapes.len(), self.capabilities.limits.binding_alignment)?;
        let mut facts = Words::new();
        facts.extend(grid);
        facts.extend([0; Facts::LENGTHS as usize - 3]);
        let mut bindings = Bindings::new();
        for (binding, shape) in bound.iter().zip(&pipeline.shapes) {
            let buffer = binding.buffer.of::<WgpuBuffer>(self.id())?;
            buffer.check(&self.device, context)?;
            let Ok(elements) = u32::try_from(shape.elements(binding.bytes)) else {
                return Err(BackendError::with_code(
                    &codes::backend::LIMIT,
                    format!("{} can't count the elements of {} bytes", self.capabilities.name, binding.bytes),
                ));
            };
            facts.push(elements);
            // Bindings are never empty, and end with a whole word. Buffers of others have no room behind their end.
            let size = binding.bytes.next_multiple_of(ROOM).max(ROOM).min(buffer.buffer.size() - binding.offset);
            bindings.push((buffer, binding.offset, size));
        }
        for ((buffer, ..), shape) in bindings.iter().zip(&pipeline.shapes) {
            let read = |(other, shape): (&(&WgpuBuffer, u64, u64), &BoundShape)| {
                other.0.buffer == buffer.buffer && !shape.is_written()
            };
            if shape.is_written() && bindings.iter().zip(&pipeline.shapes).any(read) {
                return Err(BackendError::with_code(
                    &codes::backend::BINDINGS,
                    "one buffer is bound to be read and to be written in the same launch, which wgpu does not allow \
                     Fix: Bind two buffers.",
                ));
            }
        }
        let alone = pipeline.may_be_long() || bindings.iter().any(|(buffer, ..)| buffer.is_wrapped);
        Ok(Prepared { pipeline, made, bindings, facts, grid, indirect: None, timed: false, alone })
    }

    fn buffer(&self, context: &Context, bytes: u64, buffer: wgpu::Buffer, is_wrapped: bool) -> Buffer {
        Buffer::new(WgpuBuffer {
            device: Arc::clone(&self.device),
            generation: context.generation,
            number: self.device.next_number(),
            buffer,
            bytes,
            is_wrapped,
        })
    }

    /// A part of a buffer, checked.
    pub(crate) fn part<'b>(&self, part: &'b Binding) -> Result<&'b WgpuBuffer, BackendError> {
        part.buffer.check_range(part.offset, part.bytes)?;
        part.buffer.of::<WgpuBuffer>(self.id())
    }

    /// The buffers of a copy, checked.
    pub(crate) fn copied<'b>(
        &self,
        from: &'b Binding,
        to: &'b Binding,
    ) -> Result<(&'b WgpuBuffer, &'b WgpuBuffer), BackendError> {
        if from.bytes != to.bytes {
            return Err(BackendError::with_code(
                &codes::backend::BAD_RANGE,
                format!("{} bytes can't be copied to {}", from.bytes, to.bytes),
            ));
        }
        Ok((self.part(from)?, self.part(to)?))
    }

    /// A launch that copies bytes which share words with others.
    pub(crate) fn byte_copy(&self, from: &Binding, to: &Binding) -> Result<ByteCopy, BackendError> {
        let pipeline = {
            let mut made = self.byte_copy.lock().unwrap_or_else(PoisonError::into_inner);
            match &*made {
                Some(pipeline) => Arc::clone(pipeline),
                None => {
                    let program = transfer::byte_copy_program().validate()?;
                    let new = self.compile_with(&program, &CompileOptions::default(), Arithmetic::exact)?;
                    Arc::clone(made.insert(new))
                }
            }
        };
        let span = self.allocate(12)?;
        let numbers = [from.offset, to.offset, to.bytes].map(|number| number as u32);
        let uploaded = self.upload(&span, 0, bytemuck::cast_slice(&numbers), &Order::default())?;
        self.forget(uploaded);
        let bindings = [span, from.buffer.clone(), to.buffer.clone()].map(Binding::from);
        let words = (to.offset % 4 + to.bytes).div_ceil(4);
        Ok(ByteCopy { pipeline, bindings, grid: [words.div_ceil(64) as u32, 1, 1] })
    }

    fn copy_bytes(&self, from: &Binding, to: &Binding) -> Result<Ticket, BackendError> {
        let copy = self.byte_copy(from, to)?;
        let pipeline = self.pipeline_of(&copy.pipeline)?;
        self.device.with(|context| {
            let made = pipeline.made(context)?;
            let mut prepared = self.prepare(context, pipeline, &made, &copy.bindings, copy.grid)?;
            prepared.count_last_words();
            context.submit(prepared)
        })
    }

    /// Writes zeros, or these bytes, that share words with others.
    fn write_bytes(&self, to: &Binding, bytes: Option<&[u8]>) -> Result<Ticket, BackendError> {
        let scratch = self.allocate(to.bytes)?;
        if let Some(bytes) = bytes {
            let uploaded = self.upload(&scratch, 0, bytes, &Order::default())?;
            self.forget(uploaded);
        }
        self.copy_bytes(&Binding::new(scratch, to.bytes), to)
    }
}

impl VyreBackend for WgpuBackend {
    fn id(&self) -> &'static str {
        self.device.adapter.id
    }

    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
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
        let pipeline = self.kept.get_or_make(&dispatch, |program, options| self.compile(program, options))?;
        dispatch_through(self, &dispatch, &pipeline, inputs, deadline)
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn gives_exact(&self, program: &ValidProgram) -> bool {
        program.math() == Math::Fast
            || self.arithmetic().subnormals
            || self.lower(program, &CompileOptions::default()).is_ok_and(|kernel| !arithmetic::computes_floats(&kernel))
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
        let pipeline = WgpuPipeline::decode(Arc::clone(&self.device), artifact, program.binding_order().len())
            .ok_or_else(|| bad("the bytes are not a wgpu pipeline of this program"))?;
        self.device.with(|context| {
            if pipeline.is_interruptible() != (options.interruptible && context.can_stop) {
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
        self.device.with(|context| Ok(self.buffer(context, bytes, context.create_buffer(size, OWN_USAGE)?, false)))
    }

    fn upload(&self, buffer: &Buffer, offset: u64, bytes: &[u8], order: &Order<'_>) -> Result<Ticket, BackendError> {
        let to = Binding { buffer: buffer.clone(), offset, bytes: bytes.len() as u64 };
        let target = self.part(&to)?;
        self.check_order(order)?;
        let whole = bytes.len() / 4 * 4;
        // Behind the last element there is nobody's memory.
        let to_the_end =
            offset + to.bytes == target.bytes && target.buffer.size() >= (offset + to.bytes).next_multiple_of(4);
        if !offset.is_multiple_of(4) || (whole < bytes.len() && !to_the_end) {
            return self.write_bytes(&to, Some(bytes));
        }
        self.device.with(|context| {
            let raw = target.check(&self.device, context)?;
            if bytes.is_empty() {
                return context.nothing();
            }
            let mut last = None;
            if whole > 0 {
                last = Some(context.upload(raw, offset, &bytes[..whole])?);
            }
            if let Some(rest) = bytes.get(whole..).filter(|rest| !rest.is_empty()) {
                let mut word = [0; 4];
                word[..rest.len()].copy_from_slice(rest);
                last = Some(context.upload(raw, offset + whole as u64, &word)?);
            }
            last.map_or_else(|| context.nothing(), Ok)
        })
    }

    fn download(&self, buffer: &Buffer, offset: u64, bytes: &mut [u8], order: &Order<'_>) -> Result<(), BackendError> {
        let source = buffer.of::<WgpuBuffer>(self.id())?;
        buffer.check_range(offset, bytes.len() as u64)?;
        self.check_order(order)?;
        self.device.with(|context| {
            let from = source.check(&self.device, context)?;
            if bytes.is_empty() {
                return Ok(());
            }
            let skip = (offset % 4) as usize;
            if skip == 0 {
                return context.download(from, offset, bytes, order.deadline);
            }
            let mut whole = vec![0; skip + bytes.len()];
            context.download(from, offset - skip as u64, &mut whole, order.deadline)?;
            bytes.copy_from_slice(&whole[skip..]);
            Ok(())
        })
    }

    fn copy(&self, from: &Binding, to: &Binding, order: &Order<'_>) -> Result<Ticket, BackendError> {
        let (source, target) = self.copied(from, to)?;
        self.check_order(order)?;
        if source.buffer == target.buffer && to.bytes > 0 {
            // wgpu does not copy within a buffer.
            let scratch = Binding::from(self.allocate(to.bytes)?);
            let copied = self.copy(from, &scratch, order)?;
            self.forget(copied);
            return self.copy(&scratch, to, order);
        }
        if !are_words(&[from.offset, to.offset, to.bytes]) {
            return self.copy_bytes(from, to);
        }
        self.device.with(|context| {
            let (raw, to_raw) = (source.check(&self.device, context)?, target.check(&self.device, context)?);
            match to.bytes {
                0 => context.nothing(),
                bytes => context.command(source.is_wrapped || target.is_wrapped, |encoder| {
                    encoder.copy_buffer_to_buffer(raw, from.offset, to_raw, to.offset, bytes);
                }),
            }
        })
    }

    fn clear(&self, part: &Binding, order: &Order<'_>) -> Result<Ticket, BackendError> {
        let target = self.part(part)?;
        self.check_order(order)?;
        let (offset, bytes, end) = (part.offset, part.bytes, target.end_of(part));
        if bytes > 0 && !are_words(&[offset, end]) {
            return self.write_bytes(part, None);
        }
        self.device.with(|context| {
            let raw = target.check(&self.device, context)?;
            match bytes {
                0 => context.nothing(),
                _ => {
                    context.command(target.is_wrapped, |encoder| encoder.clear_buffer(raw, offset, Some(end - offset)))
                }
            }
        })
    }

    fn submit(&self, pipeline: &Arc<dyn Pipeline>, launch: &Launch<'_>) -> Result<Ticket, BackendError> {
        let pipeline = self.pipeline_of(pipeline)?;
        self.check_order(&launch.order)?;
        self.device.with(|context| {
            let made = pipeline.made(context)?;
            let mut prepared = self.prepare(context, pipeline, &made, launch.bindings, launch.grid)?;
            prepared.timed = launch.timed && self.capabilities.timestamps;
            context.submit(prepared)
        })
    }

    fn submit_indirect(
        &self,
        pipeline: &Arc<dyn Pipeline>,
        launch: &Launch<'_>,
        grid: &Binding,
    ) -> Result<Ticket, BackendError> {
        let own = self.pipeline_of(pipeline)?;
        self.check_order(&launch.order)?;
        grid.check_indirect()?;
        let source = grid.buffer.of::<WgpuBuffer>(self.id())?;
        let is_bound = launch.bindings.iter().any(|binding| binding.buffer.is_same(&grid.buffer));
        let submitted = self.device.with(|context| {
            // What a kernel has to be told, or has to be split, must be known now; and a buffer of somebody else's may not be meant for it.
            let fits = launch.grid.iter().all(|&most| most <= context.max_grid);
            let usable = source.buffer.usage().contains(wgpu::BufferUsages::INDIRECT) && context.can_indirect;
            if own.asks_grid() || !fits || !usable || is_bound || launch.grid.contains(&0) {
                return Ok(None);
            }
            let made = own.made(context)?;
            let mut prepared = self.prepare(context, own, &made, launch.bindings, launch.grid)?;
            prepared.timed = launch.timed && self.capabilities.timestamps;
            prepared.indirect = Some((source.check(&self.device, context)?, grid.offset));
            context.submit(prepared).map(Some)
        })?;
        if let Some(ticket) = submitted {
            return Ok(ticket);
        }
        let mut bytes = [0; INDIRECT_BYTES];
        self.download(&grid.buffer, grid.offset, &mut bytes, &launch.order)?;
        self.submit(pipeline, &Launch { grid: indirect_grid(&bytes, launch.grid), ..*launch })
    }

    fn poll(&self, ticket: Ticket) -> Result<Option<Completion>, BackendError> {
        self.wait(ticket, Some(Duration::ZERO))
    }

    fn wait(&self, ticket: Ticket, timeout: Option<Duration>) -> Result<Option<Completion>, BackendError> {
        self.device.ledger.check(ticket)?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        match self.device.latest() {
            Some(context) => context.wait(ticket, deadline),
            None => self.device.ledger.outcome(ticket),
        }
    }

    fn cancel(&self, ticket: Ticket) -> Result<(), BackendError> {
        self.device.ledger.check(ticket)?;
        if !self.device.ledger.is_over(ticket)
            && let Some(context) = self.device.latest()
        {
            context.stop(ticket.number);
        }
        Ok(())
    }

    fn forget(&self, ticket: Ticket) {
        self.device.ledger.forget(ticket);
    }

    fn record(&self, steps: &[Step]) -> Result<Arc<dyn Recording>, BackendError> {
        Ok(Arc::new(self.make_recording(steps)?))
    }

    fn revise(&self, recording: &Arc<dyn Recording>, steps: &[(usize, Step)]) -> Result<(), BackendError> {
        self.revise_recording(recording, steps)
    }

    fn replay(&self, recording: &Arc<dyn Recording>, order: &Order<'_>) -> Result<Ticket, BackendError> {
        self.replay_recording(recording, order)
    }
}
