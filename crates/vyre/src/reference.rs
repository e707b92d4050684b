use std::sync::LazyLock;

use vyre_driver::backend::{Capabilities, DeviceKind, HostDispatch, Limits, TypeSet, borrowed};
use vyre_driver::pipeline::PipelineDeviceFingerprint;
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ir::{Name, Program};
use vyre_foundation::kernel::Features;
use vyre_reference::RunOptions;

/// The name of the reference interpreter among the backends.
pub(crate) const REFERENCE: &str = "reference";

/// The reference interpreter as a backend: slow, exact, and always there. It is used when it is asked for, or when nothing else
/// can run a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReferenceBackend;

impl VyreBackend for ReferenceBackend {
    fn id(&self) -> &'static str {
        REFERENCE
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
        let checked = HostDispatch::check(self, program, inputs, config)?;
        let mut options = RunOptions {
            specialization: checked.options.specialization,
            workgroup: config.workgroup_override,
            grid: config.grid_override,
            domain: config.domain_override,
            output_elements: config.output_elements.iter().map(|(name, n)| (Name::from(name), *n)).collect(),
            ..RunOptions::default()
        };
        if let Some(timeout) = config.timeout {
            // The interpreter counts instructions, not time; it does about this many in a second.
            const INSTRUCTIONS_PER_SECOND: f64 = 2.0e7;
            options.budget = (timeout.as_secs_f64() * INSTRUCTIONS_PER_SECOND) as u64;
        }
        Ok(vyre_reference::run(&checked.program, inputs, &options)?)
    }

    fn capabilities(&self) -> &Capabilities {
        static CAPABILITIES: LazyLock<Capabilities> = LazyLock::new(|| {
            let mut capabilities = Capabilities::default();
            capabilities.name = "reference interpreter".to_owned();
            capabilities.driver = format!("vyre {}", env!("CARGO_PKG_VERSION"));
            capabilities.kind = DeviceKind::Cpu;
            capabilities.types = TypeSet::all();
            capabilities.features = Features(u32::MAX);
            capabilities.subgroup_sizes = Some([32, 32]);
            capabilities.limits = Limits::unlimited();
            capabilities.unified_memory = true;
            capabilities.fingerprint =
                PipelineDeviceFingerprint::from_parts(0, 0, "reference", env!("CARGO_PKG_VERSION"));
            capabilities
        });
        &CAPABILITIES
    }
}
