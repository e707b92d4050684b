//! What compiled code, a tuning decision and a route are about, and the keys made of it.

use std::hash::{Hash, Hasher};

use vyre_foundation::ir::{Count, Program, Specialization};
use vyre_foundation::{ValidProgram, launch};
use vyre_spec::{BackendId, Diagnostic};

use super::key::text;
use super::{PipelineCacheKey, PipelineDeviceFingerprint, PipelineFeatureFlags, normalized_program_cache_digest};
use crate::backend::{CompileOptions, VyreBackend};
use crate::specialization::SpecCacheKey;
use crate::variant::Variant;

/// What runs where: everything that changes the answer of a launch, its code or its time, but for sizes and the shape of the launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Identity {
    /// [`Program::fingerprint`].
    pub program: [u8; 32],
    /// 256-bit digest of the values that its specialization constants are set to.
    pub constants: [u8; 32],
    /// See [`CompileOptions::profile`].
    pub profile: Option<String>,
    /// See [`CompileOptions::ulp_budget`].
    pub ulp_budget: Option<u8>,
    /// What runs instead of the program: [`Variant::digest`](crate::variant::Variant::digest).
    pub variant: Option<[u8; 32]>,
    /// Loops look at a stop word.
    pub interruptible: bool,
    /// What the program uses of the device.
    pub features: PipelineFeatureFlags,
    /// Who runs it.
    pub backend: BackendId,
    /// The device. Its `driver_digest` tells builds of driver and compiler apart: stored code depends on them, while to a decision they
    /// are circumstances.
    pub device: PipelineDeviceFingerprint,
}

impl Identity {
    /// The identity of a program compiled so on a backend's device.
    pub fn of(backend: &(impl VyreBackend + ?Sized), program: &Program, options: &CompileOptions) -> Identity {
        let able = backend.capabilities();
        Identity {
            program: program.fingerprint(),
            constants: constants_digest(&options.specialization),
            profile: options.profile.clone(),
            ulp_budget: options.ulp_budget,
            variant: options.variant.as_ref().map(Variant::digest),
            interruptible: options.interruptible,
            features: PipelineFeatureFlags::of(program, able),
            backend: backend.id().into(),
            device: able.fingerprint,
        }
    }
}

/// The key of a compiled pipeline, in memory as it is and on disk as its [`digest`](PipelineKey::digest).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PipelineKey {
    /// Code, bindings, workgroup, features and backend.
    pub pipeline: PipelineCacheKey,
    /// The same with the specialization, in 64 bits each; the whole of it stands in `constants`.
    pub specialization: SpecCacheKey,
    /// [`Identity::constants`].
    pub constants: [u8; 32],
    /// Device and driver.
    pub device: PipelineDeviceFingerprint,
}

/// Equal keys have equal specializations; what they are looked up by need not be more.
impl Hash for PipelineKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.specialization.hash(state);
    }
}

impl PipelineKey {
    /// The key of a program compiled so on a backend's device.
    pub fn of(
        backend: &(impl VyreBackend + ?Sized),
        program: &ValidProgram,
        options: &CompileOptions,
    ) -> Result<PipelineKey, Diagnostic> {
        let identity = Identity::of(backend, program, options);
        let workgroup_size = match options.workgroup_size {
            Some(size) => size,
            None => launch::workgroup_size(program, Some(&options.specialization))?,
        };
        let mut code = blake3::Hasher::new_derive_key("vyre code of a program 2");
        code.update(&normalized_program_cache_digest(program));
        code.update(&[u8::from(identity.interruptible), u8::from(identity.profile.is_some())]);
        code.update(&identity.ulp_budget.map_or(u16::MAX, u16::from).to_le_bytes());
        text(&mut code, identity.profile.as_deref().unwrap_or_default());
        code.update(&options.knobs.bytes());
        if let Some(variant) = &identity.variant {
            code.update(variant);
        }
        let layout = layout_digest(program);
        let specialization = SpecCacheKey {
            shader_hash: low(&identity.program),
            binding_sig: low(&layout),
            workgroup_size,
            spec_hash: low(&identity.constants),
        };
        let Identity { features, backend, constants, device, .. } = identity;
        // How lengths reach a kernel is the backend's own matter, and part of its fingerprint.
        let pushed = 0;
        let pipeline =
            PipelineCacheKey::new(*code.finalize().as_bytes(), layout, pushed, workgroup_size, features, backend);
        Ok(PipelineKey { pipeline, specialization, constants, device })
    }

    /// 256-bit digest of everything but the device, for stores that can't hold the key itself.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("vyre specialized pipeline 1");
        hasher.update(&self.pipeline.digest());
        hasher.update(&self.constants);
        *hasher.finalize().as_bytes()
    }
}

/// Digest of resolved constants: equal values give equal digests, however they were given.
fn constants_digest(constants: &Specialization) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("vyre resolved specialization 1");
    for (name, value) in constants {
        text(&mut hasher, name.as_str());
        hasher.update(&value.data_type().key());
        hasher.update(&value.bits().to_le_bytes());
    }
    *hasher.finalize().as_bytes()
}

/// Digest of what a program binds, in binding order.
fn layout_digest(program: &Program) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("vyre binding layout 1");
    for index in program.binding_order() {
        let buffer = &program.buffers()[index];
        text(&mut hasher, buffer.kind.name());
        hasher.update(&buffer.group.to_le_bytes());
        hasher.update(&buffer.binding.to_le_bytes());
        let ty = buffer.ty.key();
        hasher.update(&(ty.len() as u64).to_le_bytes());
        hasher.update(&ty);
        // A count that depends on constants is known by them and by the program.
        let count = match buffer.count {
            Count::Runtime => [0, 0],
            Count::Fixed(count) => [1, count],
            Count::Constant(_) => [2, 0],
        };
        for word in count {
            hasher.update(&word.to_le_bytes());
        }
    }
    *hasher.finalize().as_bytes()
}

fn low(digest: &[u8; 32]) -> u64 {
    let mut low = [0; 8];
    low.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(low)
}
