use std::fmt::Write;
use std::sync::LazyLock;

use vyre_foundation::ir::Program;
use vyre_spec::BackendId;

use super::PipelineFeatureFlags;
use crate::backend::DispatchConfig;

/// Version of everything that goes into a pipeline key; raised when stored pipelines must not be used any more.
pub const CURRENT_PIPELINE_CACHE_KEY_VERSION: u32 = 1;

/// What tells pipelines apart: two that must not be exchanged differ in some field.
///
/// Only [`PipelineCacheKey::new`] makes one, so that the version is always set:
///
/// ```compile_fail,E0639
/// use vyre_driver::pipeline::{PipelineCacheKey, PipelineFeatureFlags};
/// let key = PipelineCacheKey {
///     shader_hash: [0; 32],
///     bind_group_layout_hash: [0; 32],
///     push_constant_size: 0,
///     workgroup_size: [64, 1, 1],
///     feature_flags: PipelineFeatureFlags::empty(),
///     backend_id: "cpu".into(),
///     version: 1,
/// };
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PipelineCacheKey {
    /// Digest of the code.
    pub shader_hash: [u8; 32],
    /// Digest of the binding layout.
    pub bind_group_layout_hash: [u8; 32],
    /// Bytes of push constants.
    pub push_constant_size: u32,
    /// Workgroup size.
    pub workgroup_size: [u32; 3],
    /// What it uses of the device.
    pub feature_flags: PipelineFeatureFlags,
    /// The backend it is for.
    pub backend_id: BackendId,
    /// [`CURRENT_PIPELINE_CACHE_KEY_VERSION`] when it was made.
    pub version: u32,
}

impl PipelineCacheKey {
    /// A key of the current version.
    pub fn new(
        shader_hash: [u8; 32],
        bind_group_layout_hash: [u8; 32],
        push_constant_size: u32,
        workgroup_size: [u32; 3],
        feature_flags: PipelineFeatureFlags,
        backend_id: impl Into<BackendId>,
    ) -> Self {
        PipelineCacheKey {
            shader_hash,
            bind_group_layout_hash,
            push_constant_size,
            workgroup_size,
            feature_flags,
            backend_id: backend_id.into(),
            version: CURRENT_PIPELINE_CACHE_KEY_VERSION,
        }
    }

    /// 256-bit digest of all fields, for stores that can't hold the key itself.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("vyre pipeline key 1");
        hasher.update(&self.version.to_le_bytes());
        hasher.update(&self.shader_hash);
        hasher.update(&self.bind_group_layout_hash);
        hasher.update(&self.push_constant_size.to_le_bytes());
        self.workgroup_size.iter().for_each(|size| {
            hasher.update(&size.to_le_bytes());
        });
        hasher.update(&self.feature_flags.bits().to_le_bytes());
        text(&mut hasher, self.backend_id.as_str());
        *hasher.finalize().as_bytes()
    }
}

/// A device and its driver, as far as they decide whether a stored pipeline may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PipelineDeviceFingerprint {
    /// Vendor, as its bus numbers it; 0 when there is none.
    pub vendor: u32,
    /// Device, as its vendor numbers it; 0 when there is none.
    pub device: u32,
    /// Digest of the driver's and runtime's revision.
    pub driver_digest: [u8; 32],
}

impl PipelineDeviceFingerprint {
    /// From the numbers and two texts that say everything else a stored pipeline depends on, such as driver version and
    /// processor features. Each text is length-prefixed, so no two pairs of texts meet.
    pub fn from_parts(vendor: u32, device: u32, revision: &str, revision_extra: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("vyre driver revision 1");
        text(&mut hasher, revision);
        text(&mut hasher, revision_extra);
        PipelineDeviceFingerprint { vendor, device, driver_digest: *hasher.finalize().as_bytes() }
    }

    /// The key of a program's pipeline on this device.
    pub fn cache_key(&self, program_digest: [u8; 32]) -> [u8; 32] {
        static KEY: LazyLock<[u8; 32]> = LazyLock::new(|| blake3::derive_key("vyre pipeline cache entry 1", &[]));
        let mut parts = [0; 76];
        parts[..4].copy_from_slice(&CURRENT_PIPELINE_CACHE_KEY_VERSION.to_le_bytes());
        parts[4..8].copy_from_slice(&self.vendor.to_le_bytes());
        parts[8..12].copy_from_slice(&self.device.to_le_bytes());
        parts[12..44].copy_from_slice(&self.driver_digest);
        parts[44..].copy_from_slice(&program_digest);
        *blake3::keyed_hash(&KEY, &parts).as_bytes()
    }
}

/// Digest of a program for pipeline keys: its fingerprint under the version of the compiler's output, so that neither a
/// changed program nor a changed key version finds an old pipeline.
pub fn normalized_program_cache_digest(program: &Program) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("vyre normalized program 1");
    hasher.update(&CURRENT_PIPELINE_CACHE_KEY_VERSION.to_le_bytes());
    hasher.update(&program.fingerprint());
    *hasher.finalize().as_bytes()
}

/// What of a configuration changes the compiled code, as text: two configurations with the same text may share a pipeline.
/// Label, limits and grid don't appear, because code doesn't depend on them; of the timeout only that there is one.
pub fn dispatch_policy_cache_string(config: &DispatchConfig) -> String {
    let mut text = format!("ulp={:?}:wg={:?}", config.ulp_budget, config.workgroup_override);
    if let Some(profile) = config.profile.as_deref() {
        // Quoted and escaped, so a profile can't imitate the parts that follow it.
        let _ = write!(text, ":profile={profile:?}");
    }
    if !config.knobs.is_default() {
        let _ = write!(text, ":knobs={}", hex_encode(&config.knobs.bytes()));
    }
    if config.timeout.is_some() {
        text.push_str(":interruptible");
    }
    if !config.specialization.is_empty() {
        let _ = write!(text, ":spec={}", hex_encode(&config.specialization.digest()));
    }
    for variant in config.variants.iter().chain(&config.variant) {
        let _ = write!(text, ":variant={}", hex_encode(&variant.digest()));
    }
    text
}

/// Lower-case hexadecimal.
pub fn hex_encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

pub(super) fn text(hasher: &mut blake3::Hasher, text: &str) {
    hasher.update(&(text.len() as u64).to_le_bytes());
    hasher.update(text.as_bytes());
}
