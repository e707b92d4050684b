//! The backend trait over a CUDA device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vyre_driver::backend::{
    Binding, Buffer, Capabilities, CompileOptions, Completion, HostDispatch, HostMemory, KeptPipelines, Launch, Order,
    Pipeline, Recording, Step, Ticket, borrowed, dispatch_through,
};
use vyre_driver::variant::{Ptx, Variant};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::{self, Kernel, Options};
use vyre_spec::{Diagnostic, codes};

use crate::api::{Api, Attribute, CudaError};
use crate::capabilities::capabilities;
use crate::device::{Device, Failure, Leftover, Uses, describe, locked};
use crate::foreign;
use crate::launch::{self, Words};
use crate::memory::CudaBuffer;
use crate::pipeline::{Code, CudaPipeline};
use crate::ptx::{self, Target};
use crate::queue::LiveLaunch;
use crate::recording::{CudaRecording, check_copy, place};
use crate::staging;

/// Oldest compute capability whose instructions the emitter uses.
const OLDEST: u32 = 70;

/// By device; more than these are not opened.
const IDS: [&str; 16] = [
    "cuda", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6", "cuda:7", "cuda:8", "cuda:9", "cuda:10",
    "cuda:11", "cuda:12", "cuda:13", "cuda:14", "cuda:15",
];

/// Runs programs on an NVIDIA GPU.
///
/// Every queue is a stream. A launch that was compiled as interruptible ends when it is cancelled; one that was not runs to its end.
/// A fault of a kernel loses everything that the process has on the device: drivers (580 is one) give a process no other context after
/// it, and the context is the device's primary one, whose other users are not ours to end. From then on every call is answered with
/// that reason.
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

fn count(api: &Api) -> Result<usize, Diagnostic> {
    let count = api.device_count().map_err(|error| probe_failed(&error))?;
    Ok(usize::try_from(count).unwrap_or(0).min(IDS.len()))
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
        count(Api::get()?)
    }

    /// Opens a device by its number. The first is `cuda`, the others `cuda:1`, `cuda:2`, ….
    pub fn open(ordinal: usize) -> Result<CudaBackend, Diagnostic> {
        CudaBackend::open_with(Api::get()?, ordinal)
    }

    pub(crate) fn open_with(api: &'static Api, ordinal: usize) -> Result<CudaBackend, Diagnostic> {
        let count = count(api)?;
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
        if api.attribute(number, Attribute::LongStreamWords).map_err(|error| probe_failed(&error))? == 0 {
            return Err(too_old(format!("the driver of {} writes no words from streams", capabilities.name))
                .with_fix("Update the driver, or use another backend."));
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

    fn lower(&self, program: &ValidProgram, options: &CompileOptions) -> Result<Kernel, BackendError> {
        let mut lowering = ptx::lowering(Options {
            specialization: options.specialization.clone(),
            workgroup_size: options.workgroup_size,
            merged: options.knobs.merged,
            interruptible: options.interruptible,
            ..Options::default()
        });
        lowering.rounds_together = options.knobs.rounds.unwrap_or(lowering.rounds_together);
        let kernel = kernel::lower(program, &lowering)?;
        self.capabilities.check(&kernel)?;
        Ok(kernel)
    }

    /// The foreign kernel that the options ask for.
    fn kernel_of<'a>(&self, options: &'a CompileOptions) -> Result<Option<&'a Ptx>, BackendError> {
        let Some(variant) = &options.variant else { return Ok(None) };
        let unable = |why| BackendError::with_code(&codes::backend::UNSUPPORTED_FEATURE, why);
        if options.interruptible {
            return Err(unable(format!("{variant} can't be stopped")));
        }
        foreign::kernel_of(variant, self.target).map(Some).map_err(unable)
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn name(&self) -> &'static str {
        self.id
    }

    /// What went wrong while somebody looked, unless it settled the work: then the ledger says what became of it.
    fn unless_over(&self, ticket: Ticket, looked: Result<(), BackendError>) -> Result<(), BackendError> {
        // A device that is lost has lost work that was submitted at the same moment.
        if self.device.is_lost() || self.device.ledger.is_over(ticket) { Ok(()) } else { looked }
    }

    /// A number for nothing but that all before it is over.
    fn passed(&self, order: &Order<'_>) -> Result<Ticket, BackendError> {
        self.device.with(|| Ok(self.device.begin(order, 0)?.ticket()?))
    }
}

impl VyreBackend for CudaBackend {
    fn id(&self) -> &'static str {
        self.id
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

    fn takes(&self, variant: &Variant) -> Result<(), String> {
        foreign::kernel_of(variant, self.target).map(drop)
    }

    fn compile(&self, program: &ValidProgram, options: &CompileOptions) -> Result<Arc<dyn Pipeline>, BackendError> {
        let kernel = self.lower(program, options)?;
        let foreign = self.kernel_of(options)?;
        let ptx = match foreign {
            Some(_) => None,
            None => {
                let mut ptx = ptx::emit(&kernel, Target { sm: self.target, interruptible: options.interruptible })?;
                if let Some(registers) = options.knobs.registers {
                    ptx.limit_registers(registers);
                }
                Some(ptx)
            }
        };
        let link = |text: &str| match self.device.api.link(text) {
            Ok(cubin) => Ok(cubin),
            Err((error, complaints)) if !complaints.is_empty() => {
                let message = format!("{error}: {complaints}");
                Err(Failure::from(BackendError::with_code(&codes::cuda::COMPILE_FAILED, message)))
            }
            Err((error, _)) => Err(error.into()),
        };
        // The linker compiles as if there were other parts: it takes two to seven times the registers where a text by itself would keep to
        // 32, ignores `setmaxnreg`, and knows only the device's plain target. So texts are loaded, and the driver keeps what it makes of them.
        let (text, code) = match (foreign, &ptx) {
            (Some(foreign), _) => (&foreign.text, Code::of_variant(&kernel, foreign)),
            (None, Some(ptx)) => (&ptx.text, Code::new(&kernel, ptx, options.interruptible)),
            (None, None) => return Err(BackendError::new("there is nothing to compile")),
        };
        self.device.with(|| match CudaPipeline::load(&self.device, code) {
            Ok(pipeline) => Ok(Arc::new(pipeline) as Arc<dyn Pipeline>),
            // The linker says what is wrong with a text.
            Err(Failure::Cuda(error)) if !error.is_fault() && !error.is_out_of_memory() => {
                Err(link(text).err().unwrap_or(Failure::Cuda(error)))
            }
            Err(failure) => Err(failure),
        })
    }

    fn load(
        &self,
        program: &ValidProgram,
        options: &CompileOptions,
        artifact: &[u8],
    ) -> Result<Arc<dyn Pipeline>, BackendError> {
        let mut code = Code::decode(artifact, program.binding_order().len(), options.interruptible)?;
        code.foreign = self.kernel_of(options)?.cloned();
        self.device.with(|| match CudaPipeline::load(&self.device, code) {
            Ok(pipeline) => Ok(Arc::new(pipeline) as Arc<dyn Pipeline>),
            Err(Failure::Cuda(error)) if !error.is_fault() && !error.is_out_of_memory() => {
                Err(BackendError::with_code(&codes::backend::BAD_ARTIFACT, error.to_string()).into())
            }
            Err(failure) => Err(failure),
        })
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
        self.device.with(|| match CudaBuffer::new(&self.device, bytes, size) {
            Err(Failure::Cuda(error)) if error.is_out_of_memory() => Err(too_much().into()),
            other => Ok(Buffer::new(other?)),
        })
    }

    fn upload(&self, buffer: &Buffer, offset: u64, bytes: &[u8], order: &Order<'_>) -> Result<Ticket, BackendError> {
        let target = buffer.of::<CudaBuffer>(self.id)?;
        buffer.check_range(offset, bytes.len() as u64)?;
        let (device, to) = (&self.device, target.pointer(&self.device)? + offset);
        if bytes.len() > staging::SMALL {
            device.with(|| {
                device.wait_for_all_before(order, target.ready)?;
                Ok(device.lanes.upload(device.api, device.context, to, bytes)?)
            })?;
            return self.passed(order);
        }
        device.with(|| {
            loop {
                let mut turn = device.begin(order, target.ready)?;
                match turn.upload(to, bytes)? {
                    Ok(ticket) => {
                        target.uses.mark(ticket);
                        return Ok(ticket);
                    }
                    Err(first) => {
                        drop(turn);
                        device.wait_on_host(first, order.deadline)?;
                    }
                }
            }
        })
    }

    fn upload_queued(
        &self,
        buffer: &Buffer,
        offset: u64,
        memory: &Arc<HostMemory>,
        at: u64,
        bytes: u64,
        order: &Order<'_>,
    ) -> Result<Option<Ticket>, BackendError> {
        let target = buffer.of::<CudaBuffer>(self.id)?;
        buffer.check_range(offset, bytes)?;
        let (device, to) = (&self.device, target.pointer(&self.device)? + offset);
        let (from, size) = (memory.address() as usize + at as usize, bytes as usize);
        let is_inside = at.checked_add(bytes).is_some_and(|end| end <= memory.bytes() as u64);
        // What is small is copied sooner than it is queued.
        if size <= staging::SMALL || !is_inside {
            return Ok(None);
        }
        device.with(|| {
            if !staging::is_pinned(device.api, from, size) {
                return Ok(None);
            }
            let turn = device.begin(order, target.ready)?;
            turn.mark_before(bytes)?;
            let ticket = turn.ticket()?;
            target.uses.mark(ticket);
            let uses = Uses::default();
            uses.mark(ticket);
            let copied = device.api.upload_async(to, from, size, turn.queue.stream);
            drop(turn);
            device.park(&uses, Leftover::Foreign(Box::new(Arc::clone(memory))));
            copied?;
            Ok(Some(ticket))
        })
    }

    fn download(&self, buffer: &Buffer, offset: u64, bytes: &mut [u8], order: &Order<'_>) -> Result<(), BackendError> {
        let source = buffer.of::<CudaBuffer>(self.id)?;
        buffer.check_range(offset, bytes.len() as u64)?;
        let (device, from) = (&self.device, source.pointer(&self.device)? + offset);
        device.with(|| {
            device.wait_for_all_before(order, source.ready)?;
            match bytes {
                [] => Ok(()),
                bytes => Ok(device.lanes.download(device.api, device.context, bytes, from)?),
            }
        })
    }

    fn copy(&self, from: &Binding, to: &Binding, order: &Order<'_>) -> Result<Ticket, BackendError> {
        let (device, id) = (&self.device, self.id);
        let ((source, from_ready), (target, to_ready)) = (place(from, device, id)?, place(to, device, id)?);
        check_copy(from, to)?;
        device.with(|| {
            let turn = device.begin(order, from_ready.max(to_ready))?;
            turn.mark_before(from.bytes)?;
            let ticket = turn.ticket()?;
            for part in [from, to] {
                part.buffer.of::<CudaBuffer>(id)?.uses.mark(ticket);
            }
            if from.bytes > 0 {
                device.api.copy(target, source, from.bytes as usize, turn.queue.stream)?;
            }
            Ok(ticket)
        })
    }

    fn clear(&self, part: &Binding, order: &Order<'_>) -> Result<Ticket, BackendError> {
        let device = &self.device;
        let (at, ready) = place(part, device, self.id)?;
        device.with(|| {
            let turn = device.begin(order, ready)?;
            turn.mark_before(part.bytes)?;
            let ticket = turn.ticket()?;
            part.buffer.of::<CudaBuffer>(self.id)?.uses.mark(ticket);
            if part.bytes > 0 {
                device.api.clear(at, part.bytes as usize, turn.queue.stream)?;
            }
            Ok(ticket)
        })
    }

    fn submit(&self, pipeline: &Arc<dyn Pipeline>, launch: &Launch<'_>) -> Result<Ticket, BackendError> {
        let (device, api) = (&self.device, self.device.api);
        let pipeline = launch::pipeline_of(pipeline, device, self.id)?;
        let (mut params, ready) = launch::bind(pipeline, launch.bindings, device, self.id)?;
        device.with(|| {
            let mut turn = device.begin_launch(&launch.order, ready)?;
            let is_foreign = pipeline.code.foreign.is_some();
            let keeps = turn.keeps(device, !launch.timed && !pipeline.code.interruptible && !is_foreign)?;
            if is_foreign {
                // It does not say at its start that what is before it is over.
                turn.mark()?;
            }
            let stream = turn.queue.stream;
            let (mut events, mut stop) = (None, None);
            if launch.timed {
                let idle = locked(&turn.queue.live).take_events();
                events = match idle {
                    Some(events) => Some(events),
                    None => Some([api.create_event(true)?, api.create_event(true)?]),
                };
            }
            if pipeline.code.interruptible {
                stop = Some(device.stops.take(api)?);
            }
            let ticket = turn.ticket()?;
            pipeline.uses.mark(ticket);
            for binding in launch.bindings {
                binding.buffer.of::<CudaBuffer>(self.id)?.uses.mark(ticket);
            }
            if let Some(stop) = stop {
                device.stops.watch(ticket, stop);
            }
            if events.is_some() || stop.is_some() {
                let live = LiveLaunch { number: ticket.number, events, stop, is_cancelled: false, is_forgotten: false };
                locked(&turn.queue.live).push(live);
            }
            if let Some([start, _]) = events {
                api.record(start, stream)?;
            }
            let words =
                Words { mark: turn.word(), number: ticket.number - 1, stop: stop.unwrap_or(device.stops.never) };
            launch::for_each_part(pipeline, &mut params, launch.grid, words, |part, params| {
                if keeps {
                    turn.keep(ticket, part, params);
                } else {
                    api.launch(part, params, stream)?;
                    if !is_foreign {
                        turn.is_marked_by(ticket);
                    }
                }
                Ok::<_, CudaError>(())
            })?;
            turn.send_if_full()?;
            if let Some([_, end]) = events {
                api.record(end, stream)?;
            }
            Ok(ticket)
        })
    }

    fn poll(&self, ticket: Ticket) -> Result<Option<Completion>, BackendError> {
        let device = &self.device;
        device.ledger.check(ticket)?;
        if !device.ledger.is_over(ticket) {
            // What went wrong is in the ledger, for this work and for all that is lost with it.
            let looked = device.with(|| device.poll(ticket));
            self.unless_over(ticket, looked)?;
        }
        device.ledger.outcome(ticket)
    }

    fn is_over(&self, ticket: Ticket) -> bool {
        self.device.ledger.is_over(ticket) || self.device.is_seen_over(ticket)
    }

    fn wait(&self, ticket: Ticket, timeout: Option<Duration>) -> Result<Option<Completion>, BackendError> {
        let device = &self.device;
        device.ledger.check(ticket)?;
        if !device.ledger.is_over(ticket) {
            let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
            let waited = device.with(|| device.wait_over(ticket, deadline).map(|_| ()));
            self.unless_over(ticket, waited)?;
        }
        device.ledger.outcome(ticket)
    }

    fn cancel(&self, ticket: Ticket) -> Result<(), BackendError> {
        let device = &self.device;
        device.ledger.check(ticket)?;
        if device.ledger.is_over(ticket) || device.stops.tell(device.api, ticket) {
            return Ok(());
        }
        let cancelled = device.with(|| {
            // Held until it is told, so that the slot is still this launch's.
            let mut live = locked(&device.queue(ticket)?.live);
            if let Some(LiveLaunch { stop: Some(stop), is_cancelled, .. }) = live.find(ticket.number)
                && !*is_cancelled
            {
                device.stops.stop(device.api, *stop)?;
                *is_cancelled = true;
            }
            Ok(())
        });
        self.unless_over(ticket, cancelled)
    }

    fn forget(&self, ticket: Ticket) {
        self.device.forget(ticket);
    }

    fn is_idle(&self, queue: u32) -> bool {
        self.device.ledger.is_idle(queue)
    }

    fn record(&self, steps: &[Step]) -> Result<Arc<dyn Recording>, BackendError> {
        Ok(Arc::new(CudaRecording::new(&self.device, steps, self.id)?))
    }

    fn revise(&self, recording: &Arc<dyn Recording>, steps: &[(usize, Step)]) -> Result<(), BackendError> {
        recording.of::<CudaRecording>(self.id)?.revise(&self.device, steps, self.id)
    }

    fn replay(&self, recording: &Arc<dyn Recording>, order: &Order<'_>) -> Result<Ticket, BackendError> {
        recording.of::<CudaRecording>(self.id)?.replay(&self.device, order, self.id)
    }
}
