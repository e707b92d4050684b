use std::sync::LazyLock;

use vyre_foundation::ir::{DataType, Program};
use vyre_foundation::kernel::{Features, Kernel};
use vyre_foundation::launch::LaunchPlan;
use vyre_spec::{Diagnostic, codes};

use crate::pipeline::{PipelineDeviceFingerprint, PipelineFeatureFlags};

/// What kind of device it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The host's processor.
    Cpu,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A GPU with its own memory.
    Discrete,
    /// A GPU driver that runs on the processor.
    Software,
    /// Not known, or none of these.
    #[default]
    Other,
}

/// A set of element types, by tag. A vector is in the set when its component is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeSet(u64);

impl TypeSet {
    /// The set of these types.
    pub fn of(types: &[DataType]) -> Self {
        types.iter().fold(TypeSet(0), |set, ty| TypeSet(set.0 | Self::bit(ty)))
    }

    /// Every type that computes or is stored and converted; not the descriptors.
    pub fn all() -> Self {
        use DataType::{BF16, Bool, F8E4M3, F8E5M2, F16, F32, F64, FP4, I4, I8, I16, I32, I64, NF4, U8, U16, U32, U64};
        Self::of(&[Bool, U32, I32, U64, I64, F16, F32, F64, U8, I8, U16, I16, BF16, F8E4M3, F8E5M2, I4, FP4, NF4])
    }

    /// Buffers may hold elements of this type. A struct or array type of a program is for its kernel's features to say.
    pub fn contains(&self, ty: &DataType) -> bool {
        match ty {
            DataType::Handle(_) => true,
            _ => match ty.as_vector() {
                Some((element, _)) => self.contains(&element),
                None => Self::bit(ty) != 0 && self.0 & Self::bit(ty) != 0,
            },
        }
    }

    fn bit(ty: &DataType) -> u64 {
        1u64.checked_shl(u32::from(ty.tag())).unwrap_or(0)
    }
}

/// Limits of a device. The defaults are what every device has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Most invocations in a workgroup, per axis.
    pub max_workgroup_size: [u32; 3],
    /// Most invocations in a workgroup.
    pub max_workgroup_invocations: u32,
    /// Most workgroups, per axis.
    pub max_grid: [u32; 3],
    /// Most bytes of workgroup memory.
    pub max_workgroup_memory: u64,
    /// Most bytes in one buffer.
    pub max_buffer_bytes: u64,
    /// Most buffers in a program.
    pub max_bindings: u32,
    /// Offsets of bindings are multiples of this.
    pub binding_alignment: u32,
    /// Bytes of device memory, where known.
    pub memory_bytes: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_workgroup_size: [256, 256, 64],
            max_workgroup_invocations: 256,
            max_grid: [65_535; 3],
            max_workgroup_memory: 16 << 10,
            max_buffer_bytes: 128 << 20,
            max_bindings: 8,
            binding_alignment: 256,
            memory_bytes: None,
        }
    }
}

impl Limits {
    /// What a device has that takes its memory and its invocations from the host.
    pub fn unlimited() -> Self {
        let invocations = vyre_foundation::launch::MAX_WORKGROUP_INVOCATIONS;
        Limits {
            max_workgroup_size: [invocations; 3],
            max_workgroup_invocations: invocations,
            max_grid: [u32::MAX; 3],
            max_workgroup_memory: u64::MAX,
            max_buffer_bytes: u64::MAX,
            max_bindings: u32::MAX,
            binding_alignment: 1,
            memory_bytes: None,
        }
    }
}

/// What a device is and can do, as data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Name of the device, for people.
    pub name: String,
    /// Name and version of its driver, for people.
    pub driver: String,
    /// What kind of device it is.
    pub kind: DeviceKind,
    /// Element types that buffers may hold.
    pub types: TypeSet,
    /// What kernels may use.
    pub features: Features,
    /// What pipelines may use.
    pub pipeline_features: PipelineFeatureFlags,
    /// Smallest and largest subgroup, where there are subgroups.
    pub subgroup_sizes: Option<[u32; 2]>,
    /// Limits.
    pub limits: Limits,
    /// The device-resident path works.
    pub resident: bool,
    /// Queues that work can be submitted to; one where it is not said.
    pub queues: u32,
    /// Threads of this process that work at once, where the device is the processor; else 0.
    pub threads: u32,
    /// Parts of one buffer may be bound to one launch to be read and to be written, so that many arrays can share a buffer.
    pub shares_buffers: bool,
    /// Steps can be recorded and replayed as one.
    pub recordings: bool,
    /// Launches can be timed on the device.
    pub timestamps: bool,
    /// Device memory is host memory, so nothing is moved.
    pub unified_memory: bool,
    /// Device and driver as they go into cache keys. For machine code it includes the processor's features.
    pub fingerprint: PipelineDeviceFingerprint,
}

impl Capabilities {
    /// The host-bytes path and nothing else is known.
    pub fn unknown() -> &'static Capabilities {
        static UNKNOWN: LazyLock<Capabilities> = LazyLock::new(Capabilities::default);
        &UNKNOWN
    }

    /// Says what the device lacks to run a kernel; checked once, above the backends.
    pub fn check(&self, kernel: &Kernel) -> Result<(), Diagnostic> {
        const NAMES: [(Features, &str); 7] = [
            (Features::F16, "f16"),
            (Features::F64, "f64"),
            (Features::INT64, "64-bit integers"),
            (Features::SUBGROUP, "subgroup operations"),
            (Features::ATOMIC64, "64-bit atomics"),
            (Features::NARROW, "stored types that are converted on load and store"),
            (Features::MATRIX, "matrix fragments"),
        ];
        if !self.features.contains(kernel.features) {
            let lacking: Vec<_> = NAMES
                .iter()
                .filter(|(feature, _)| kernel.features.contains(*feature) && !self.features.contains(*feature))
                .map(|(_, name)| *name)
                .collect();
            return Err(Diagnostic::new(
                &codes::backend::UNSUPPORTED_FEATURE,
                format!("{} has no {}", self.device(), lacking.join(", no ")),
            ));
        }
        // Another launch may have smaller workgroups; what is the program's own is so at every launch.
        let limit = |what: String| Err(Diagnostic::new(&codes::backend::LIMIT, what));
        let lasting = |what: String| Err(Diagnostic::new(&codes::backend::PROGRAM_LIMIT, what));
        let limits = &self.limits;
        let size = kernel.workgroup_size;
        let invocations = size.iter().fold(1u64, |product, &n| product.saturating_mul(u64::from(n)));
        if (0..3).any(|axis| size[axis] > limits.max_workgroup_size[axis])
            || invocations > u64::from(limits.max_workgroup_invocations)
        {
            return limit(format!(
                "a workgroup of {} x {} x {} invocations is over the limit of {}",
                size[0],
                size[1],
                size[2],
                self.device()
            ));
        }
        let shared: u64 = kernel.shared.iter().map(|memory| u64::from(memory.size)).sum();
        if shared > limits.max_workgroup_memory {
            return lasting(format!(
                "{shared} bytes of workgroup memory are over the {} of {}",
                limits.max_workgroup_memory,
                self.device()
            ));
        }
        if kernel.buffers.len() as u64 > u64::from(limits.max_bindings) {
            return lasting(format!(
                "{} buffers are over the {} of {}",
                kernel.buffers.len(),
                limits.max_bindings,
                self.device()
            ));
        }
        Ok(())
    }

    /// Says what of a launch is over the device: element types it can't hold, buffers or grids over its limits.
    pub fn check_launch(&self, program: &Program, plan: &LaunchPlan) -> Result<(), Diagnostic> {
        for (&index, &bytes) in program.binding_order().iter().zip(&plan.buffer_bytes) {
            let buffer = &program.buffers()[index];
            if !self.types.contains(&buffer.ty) {
                return Err(Diagnostic::new(
                    &codes::backend::UNSUPPORTED_FEATURE,
                    format!("buffer `{}` holds {}, which {} can't", buffer.name, buffer.ty, self.device()),
                ));
            }
            if bytes > self.limits.max_buffer_bytes {
                return Err(Diagnostic::new(
                    &codes::backend::LIMIT,
                    format!(
                        "buffer `{}` takes {bytes} bytes; {} has no buffers that large",
                        buffer.name,
                        self.device()
                    ),
                ));
            }
        }
        if (0..3).any(|axis| plan.grid[axis] > self.limits.max_grid[axis]) {
            let [x, y, z] = plan.grid;
            return Err(Diagnostic::new(
                &codes::backend::LIMIT,
                format!("a grid of {x} x {y} x {z} workgroups is over the limit of {}", self.device()),
            ));
        }
        Ok(())
    }

    fn device(&self) -> &str {
        if self.name.is_empty() { "the device" } else { &self.name }
    }
}
