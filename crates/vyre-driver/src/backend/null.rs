use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use vyre_foundation::ValidProgram;
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::Features;
use vyre_foundation::launch;
use vyre_spec::codes;

use super::host::{HostDispatch, borrowed, host_size};
use super::{
    BackendError, Binding, Buffer, Capabilities, CompileOptions, Completion, DeviceBuffer, DeviceKind, DispatchConfig,
    Launch, Limits, Pending, Pipeline, TypeSet, VyreBackend,
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
    submitted: AtomicU64,
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
            timestamps: false,
            unified_memory: true,
            fingerprint: PipelineDeviceFingerprint::from_parts(0, 0, "null", env!("CARGO_PKG_VERSION")),
        };
        NullBackend { capabilities, submitted: AtomicU64::new(0) }
    }

    fn pipeline_of<'a>(&self, pipeline: &'a Arc<dyn Pipeline>) -> Result<&'a NullPipeline, BackendError> {
        pipeline.downcast_ref::<NullPipeline>().ok_or_else(|| {
            BackendError::with_code(
                &codes::backend::FOREIGN_HANDLE,
                "a pipeline was passed to backend `null`, which did not make it",
            )
        })
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

    fn upload(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        buffer.of::<NullBuffer>(self.id())?;
        buffer.check_range(offset, bytes.len() as u64)
    }

    fn download(&self, buffer: &Buffer, offset: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        buffer.of::<NullBuffer>(self.id())?;
        buffer.check_range(offset, bytes.len() as u64)?;
        bytes.fill(0);
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
        from.of::<NullBuffer>(self.id())?;
        to.of::<NullBuffer>(self.id())?;
        from.check_range(from_offset, bytes)?;
        to.check_range(to_offset, bytes)
    }

    fn submit(&self, pipeline: &Arc<dyn Pipeline>, launch: &Launch<'_>) -> Result<Pending, BackendError> {
        let pipeline = self.pipeline_of(pipeline)?;
        if launch.bindings.len() != pipeline.bindings {
            return Err(BackendError::with_code(
                &codes::backend::BINDINGS,
                format!("{} buffers are bound; the program has {}", launch.bindings.len(), pipeline.bindings),
            ));
        }
        for Binding { buffer, offset, bytes } in launch.bindings {
            buffer.of::<NullBuffer>(self.id())?;
            buffer.check_range(*offset, *bytes)?;
        }
        Ok(Pending(self.submitted.fetch_add(1, Ordering::Relaxed) + 1))
    }

    fn wait(&self, pending: Pending, _timeout: Option<Duration>) -> Result<Completion, BackendError> {
        if pending.0 > self.submitted.load(Ordering::Relaxed) {
            return Err(BackendError::new(format!("launch {} was never submitted", pending.0)));
        }
        Ok(Completion::default())
    }
}
