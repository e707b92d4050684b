use std::sync::Arc;
use std::time::Duration;

use vyre_foundation::ValidProgram;
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::Features;
use vyre_foundation::launch;
use vyre_spec::codes;

use super::host::{HostDispatch, borrowed, host_size};
use super::{
    BackendError, Binding, Buffer, Capabilities, CompileOptions, Completion, DeviceBuffer, DeviceKind, DispatchConfig,
    Launch, Ledger, Limits, Order, Pipeline, Ticket, TypeSet, VyreBackend,
};
use crate::pipeline::{PipelineDeviceFingerprint, PipelineFeatureFlags};

/// The skeleton for authors of backends: it checks everything that a backend has to check and does no work.
///
/// **Every result is zeros**, on both paths, whatever the program says. It is never chosen by itself; the registry knows it
/// only when someone registers it. The driver's benchmarks use it to time everything but the work.
///
/// A new backend starts as a copy of this file: fill in [`Capabilities`], keep the checks, and put the device's own calls
/// where this one does nothing.
#[derive(Debug)]
pub struct NullBackend {
    capabilities: Capabilities,
    ledger: Ledger,
}

/// Remembers only what a launch is checked against.
struct NullPipeline {
    workgroup_size: [u32; 3],
    bindings: usize,
}

impl Pipeline for NullPipeline {
    fn workgroup_size(&self) -> [u32; 3] {
        self.workgroup_size
    }

    fn artifact(&self) -> Option<Vec<u8>> {
        Some(self.workgroup_size.iter().flat_map(|size| size.to_le_bytes()).collect())
    }
}

/// A size without memory: reads give zeros and writes are dropped.
struct NullBuffer {
    bytes: u64,
}

impl DeviceBuffer for NullBuffer {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl NullBackend {
    /// A null backend that claims to support everything.
    pub fn new() -> Self {
        let capabilities = Capabilities {
            name: "null".to_owned(),
            driver: env!("CARGO_PKG_VERSION").to_owned(),
            kind: DeviceKind::Other,
            types: TypeSet::all(),
            features: Features(u32::MAX),
            pipeline_features: PipelineFeatureFlags(PipelineFeatureFlags::SUBGROUP_OPS.bits()),
            subgroup_sizes: Some([1, 1]),
            limits: Limits::unlimited(),
            resident: true,
            queues: 1,
            threads: 0,
            shares_buffers: true,
            recordings: false,
            timestamps: false,
            unified_memory: false,
            fingerprint: PipelineDeviceFingerprint::from_parts(0, 0, "null", env!("CARGO_PKG_VERSION")),
        };
        NullBackend { capabilities, ledger: Ledger::new(1) }
    }

    /// Everything is over at once.
    fn done(&self, order: &Order<'_>) -> Result<Ticket, BackendError> {
        for &ticket in order.after {
            self.ledger.check(ticket)?;
        }
        let ticket = self.ledger.submit(order.queue)?;
        self.ledger.complete(ticket);
        Ok(ticket)
    }
}

impl Default for NullBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl VyreBackend for NullBackend {
    fn id(&self) -> &'static str {
        "null"
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
        let plan = HostDispatch::check(self, program, inputs, config)?.plan;
        let order = program.binding_order();
        let results = order.iter().zip(&plan.buffer_bytes).filter(|(i, _)| program.buffers()[**i].kind.is_result());
        results.map(|(_, &bytes)| Ok(vec![0; host_size(bytes)?])).collect()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn compile(&self, program: &ValidProgram, options: &CompileOptions) -> Result<Arc<dyn Pipeline>, BackendError> {
        let workgroup_size = match options.workgroup_size {
            Some(size) => size,
            None => launch::workgroup_size(program, Some(&options.specialization))?,
        };
        Ok(Arc::new(NullPipeline { workgroup_size, bindings: program.binding_order().len() }))
    }

    fn load(
        &self,
        program: &ValidProgram,
        options: &CompileOptions,
        artifact: &[u8],
    ) -> Result<Arc<dyn Pipeline>, BackendError> {
        let pipeline = self.compile(program, options)?;
        if pipeline.artifact().as_deref() != Some(artifact) {
            return Err(BackendError::with_code(
                &codes::backend::BAD_ARTIFACT,
                "the stored pipeline is not one of this program and these options",
            ));
        }
        Ok(pipeline)
    }

    fn allocate(&self, bytes: u64) -> Result<Buffer, BackendError> {
        Ok(Buffer::new(NullBuffer { bytes }))
    }

    fn upload(&self, buffer: &Buffer, offset: u64, bytes: &[u8], order: &Order<'_>) -> Result<Ticket, BackendError> {
        buffer.of::<NullBuffer>(self.id())?;
        buffer.check_range(offset, bytes.len() as u64)?;
        self.done(order)
    }

    fn download(&self, buffer: &Buffer, offset: u64, bytes: &mut [u8], _order: &Order<'_>) -> Result<(), BackendError> {
        buffer.of::<NullBuffer>(self.id())?;
        buffer.check_range(offset, bytes.len() as u64)?;
        bytes.fill(0);
        Ok(())
    }

    fn copy(&self, from: &Binding, to: &Binding, order: &Order<'_>) -> Result<Ticket, BackendError> {
        for part in [from, to] {
            part.buffer.of::<NullBuffer>(self.id())?;
            part.buffer.check_range(part.offset, part.bytes)?;
        }
        self.done(order)
    }

    fn clear(&self, part: &Binding, order: &Order<'_>) -> Result<Ticket, BackendError> {
        part.buffer.of::<NullBuffer>(self.id())?;
        part.buffer.check_range(part.offset, part.bytes)?;
        self.done(order)
    }

    fn submit(&self, pipeline: &Arc<dyn Pipeline>, launch: &Launch<'_>) -> Result<Ticket, BackendError> {
        let pipeline = pipeline.of::<NullPipeline>(self.id())?;
        for Binding { buffer, .. } in launch.bindings {
            buffer.of::<NullBuffer>(self.id())?;
        }
        Binding::check_all(launch.bindings, pipeline.bindings, self.capabilities.limits.binding_alignment)?;
        self.done(&launch.order)
    }

    fn poll(&self, ticket: Ticket) -> Result<Option<Completion>, BackendError> {
        self.ledger.outcome(ticket)
    }

    fn wait(&self, ticket: Ticket, _timeout: Option<Duration>) -> Result<Option<Completion>, BackendError> {
        self.ledger.outcome(ticket)
    }

    fn cancel(&self, ticket: Ticket) -> Result<(), BackendError> {
        self.ledger.check(ticket)
    }

    fn forget(&self, ticket: Ticket) {
        self.ledger.forget(ticket);
    }
}
