//! The adapters that wgpu finds, and what they can do.

use std::future::Future;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use vyre_driver::backend::{Capabilities, DeviceKind, Limits, TypeSet};
use vyre_driver::pipeline::{PipelineDeviceFingerprint, PipelineFeatureFlags};
use vyre_foundation::ir::DataType;
use vyre_foundation::kernel::Features;
use vyre_spec::{Diagnostic, codes};
use wgpu::{Backends, DeviceType, Features as Wanted, InstanceDescriptor, InstanceFlags};

use crate::emit::{Facts, FloatControls};
use crate::loops::RoundLimit;
use crate::raw;

/// By position among the adapters; more than these are not opened.
const IDS: [&str; 8] = ["wgpu", "wgpu:1", "wgpu:2", "wgpu:3", "wgpu:4", "wgpu:5", "wgpu:6", "wgpu:7"];

/// What is used of an adapter where it has it.
const USED: Wanted = Wanted::IMMEDIATES
    .union(Wanted::PASSTHROUGH_SHADERS)
    .union(Wanted::PIPELINE_CACHE)
    .union(Wanted::TIMESTAMP_QUERY)
    .union(Wanted::SHADER_F16)
    .union(Wanted::SHADER_F64)
    .union(Wanted::SHADER_INT64)
    .union(Wanted::SHADER_INT64_ATOMIC_ALL_OPS)
    .union(Wanted::SHADER_INT64_ATOMIC_MIN_MAX)
    .union(Wanted::SUBGROUP);

/// An adapter as wgpu describes it.
#[derive(Clone, Debug)]
pub struct Adapter {
    /// The name of the backend that runs on it: `wgpu` for the first, then `wgpu:1`, `wgpu:2`, ….
    pub id: &'static str,
    /// `Vulkan`, `Metal` or `Dx12`.
    pub api: String,
    /// What it is and can do.
    pub capabilities: Capabilities,
    pub(crate) adapter: wgpu::Adapter,
    pub(crate) features: Wanted,
    pub(crate) limits: wgpu::Limits,
    /// Kernels reach the driver as SPIR-V of ours.
    pub(crate) spirv: bool,
    /// What the driver can be told about floats.
    pub(crate) controls: FloatControls,
    /// Rounds of loops after which the driver ends them without a word.
    pub(crate) rounds: Option<RoundLimit>,
    /// Words of an invocation's arrays up to which the driver compiles kernels as it should.
    pub(crate) array_words: u32,
    /// A submission makes the host wait until the one before it is over.
    pub(crate) one_at_a_time: bool,
}

impl Adapter {
    /// The same adapter with no more than every adapter has: no f16, f64, 64-bit integers or subgroups. Shows how a program fares
    /// elsewhere.
    #[must_use]
    pub fn without_optional_types(&self) -> Adapter {
        let optional = Wanted::SHADER_F16
            | Wanted::SHADER_F64
            | Wanted::SHADER_INT64
            | Wanted::SHADER_INT64_ATOMIC_ALL_OPS
            | Wanted::SHADER_INT64_ATOMIC_MIN_MAX
            | Wanted::SUBGROUP;
        let mut adapter = self.clone();
        adapter.features = adapter.features.difference(optional);
        set_types(&mut adapter.capabilities, adapter.features);
        adapter.capabilities.fingerprint = fingerprint(&adapter.adapter.get_info(), adapter.features);
        adapter
    }

    /// The adapter as a device sees it that was made with less than it has.
    pub(crate) fn with_device(adapter: &wgpu::Adapter, device: &wgpu::Device) -> Result<Adapter, Diagnostic> {
        describe(adapter.clone(), device.features(), device.limits())
            .map_err(|why| Diagnostic::new(&codes::wgpu::NO_ADAPTER, format!("the device can't run kernels: {why}")))
    }
}

/// Device and driver as they go into cache keys: what the driver makes of a kernel depends on itself; what we give it, on wgpu, on us and on
/// what the device was opened with.
fn fingerprint(info: &wgpu::AdapterInfo, features: Wanted) -> PipelineDeviceFingerprint {
    PipelineDeviceFingerprint::from_parts(info.vendor, info.device, &info.driver, &build(info, features))
}

fn build(info: &wgpu::AdapterInfo, features: Wanted) -> String {
    let sources = format!("{} {}", vyre_foundation::SOURCE_DIGEST, env!("VYRE_WGPU_SOURCES"));
    format!("{} {} {:?} {sources} {features:?}", info.name, info.driver_info, info.backend)
}

/// wgpu's futures are ready at once everywhere but in browsers.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// All adapters of this machine that can run kernels: GPUs with their own memory first, then those that share the host's, then
/// the rest, and drivers in software last. The error says why there is none.
pub fn adapters() -> Result<Vec<Adapter>, Diagnostic> {
    // Drivers are loaded once; asking again costs time and may give other handles.
    static FOUND: OnceLock<Result<Vec<Adapter>, Diagnostic>> = OnceLock::new();
    FOUND.get_or_init(enumerate).clone()
}

fn enumerate() -> Result<Vec<Adapter>, Diagnostic> {
    let backends = Backends::VULKAN | Backends::METAL | Backends::DX12;
    let instance = wgpu::Instance::new(InstanceDescriptor {
        backends,
        // No validation layers and no debug names, whatever the profile.
        flags: InstanceFlags::empty(),
        ..InstanceDescriptor::new_without_display_handle()
    });
    let found = ready(instance.enumerate_adapters(backends)).unwrap_or_default();
    let mut reasons = Vec::new();
    let mut usable: Vec<_> = Vec::new();
    for adapter in found {
        let (features, limits) = (adapter.features(), adapter.limits());
        match describe(adapter, features, limits) {
            Ok(adapter) => usable.push(adapter),
            Err(reason) => reasons.push(reason),
        }
    }
    let rank = |kind| match kind {
        DeviceKind::Discrete => 0,
        DeviceKind::Integrated => 1,
        DeviceKind::Software => 3,
        _ => 2,
    };
    usable.sort_by_key(|adapter| rank(adapter.capabilities.kind));
    usable.truncate(IDS.len());
    for (adapter, id) in usable.iter_mut().zip(IDS) {
        adapter.id = id;
    }
    if usable.is_empty() {
        let why = match &reasons[..] {
            [] => "wgpu finds no adapter for Vulkan, Metal or DX12".to_owned(),
            reasons => format!("no adapter can run kernels: {}", reasons.join("; ")),
        };
        return Err(Diagnostic::new(&codes::wgpu::NO_ADAPTER, why));
    }
    Ok(usable)
}

fn describe(adapter: wgpu::Adapter, features: Wanted, mut limits: wgpu::Limits) -> Result<Adapter, String> {
    let info = adapter.get_info();
    let features = features & USED;
    if !features.contains(Wanted::IMMEDIATES) {
        return Err(format!("{} takes no immediate data", info.name));
    }
    // Facts are words; a launch needs at least those that don't belong to a buffer.
    let words = (limits.max_immediate_size / 4).min(64);
    let Some(buffers) = words.checked_sub(Facts::words(0) as u32).filter(|&buffers| buffers > 0) else {
        return Err(format!("{} takes only {} bytes of immediate data", info.name, limits.max_immediate_size));
    };
    limits.max_immediate_size = words * 4;
    let spirv = info.backend == wgpu::Backend::Vulkan && features.contains(Wanted::PASSTHROUGH_SHADERS);
    let mut capabilities = Capabilities::default();
    capabilities.name = info.name.clone();
    capabilities.driver = format!("{:?}, {} {}", info.backend, info.driver, info.driver_info);
    capabilities.kind = match info.device_type {
        DeviceType::DiscreteGpu => DeviceKind::Discrete,
        DeviceType::IntegratedGpu => DeviceKind::Integrated,
        DeviceType::Cpu => DeviceKind::Software,
        DeviceType::VirtualGpu | DeviceType::Other => DeviceKind::Other,
    };
    set_types(&mut capabilities, features);
    if features.contains(Wanted::SUBGROUP) {
        capabilities.subgroup_sizes = Some([info.subgroup_min_size, info.subgroup_max_size]);
    }
    capabilities.limits = launch_limits(&limits, buffers);
    capabilities.resident = true;
    capabilities.timestamps = features.contains(Wanted::TIMESTAMP_QUERY);

    capabilities.queues = 1;
    capabilities.recordings = true;
    capabilities.fingerprint = fingerprint(&info, features);
    // Mesa's llvmpipe ends every loop when all of them together have made 65,535 rounds for the invocations of a vector. Some are left for
    // loops that are not the kernel's own.
    let is_llvmpipe = info.name.contains("llvmpipe") || info.driver.contains("llvmpipe");
    let lanes = if info.subgroup_max_size > 0 { info.subgroup_max_size } else { 16 };
    let rounds = is_llvmpipe.then_some(RoundLimit { together: 56_000, lanes });
    // llvmpipe writes out every element for every access: 256 words take it two seconds, 512 a quarter of a minute and 2,048 more than two.
    // NVIDIA's driver loses the device with 4,096.
    let is_nvidia = info.vendor == 0x10de && info.backend == wgpu::Backend::Vulkan;
    let array_words = match (is_llvmpipe, is_nvidia) {
        (true, _) => 256,
        (_, true) => 2048,
        _ => u32::MAX,
    };
    let api = format!("{:?}", info.backend);
    Ok(Adapter {
        id: IDS[0],
        api,
        capabilities,
        controls: raw::float_controls(&adapter),
        adapter,
        features,
        limits,
        spirv,
        rounds,
        array_words,
        // Its queue waits for wgpu's semaphore between two submissions before it takes the second.
        one_at_a_time: is_llvmpipe,
    })
}

/// What follows from the features: types, kernel and pipeline features.
fn set_types(capabilities: &mut Capabilities, features: Wanted) {
    let has = |feature| features.contains(feature);
    let mut kernel_features = Features::NARROW;
    let mut types = vec![
        DataType::Bool,
        DataType::U32,
        DataType::I32,
        DataType::F32,
        DataType::U8,
        DataType::I8,
        DataType::U16,
        DataType::I16,
        DataType::BF16,
        DataType::F8E4M3,
        DataType::F8E5M2,
        DataType::I4,
        DataType::FP4,
        DataType::NF4,
    ];
    if has(Wanted::SHADER_F16) {
        kernel_features = kernel_features.union(Features::F16);
        types.push(DataType::F16);
    }
    if has(Wanted::SHADER_F64) {
        kernel_features = kernel_features.union(Features::F64);
        types.push(DataType::F64);
    }
    if has(Wanted::SHADER_INT64) {
        kernel_features = kernel_features.union(Features::INT64);
        types.extend([DataType::U64, DataType::I64]);
        if has(Wanted::SHADER_INT64_ATOMIC_ALL_OPS) {
            kernel_features = kernel_features.union(Features::ATOMIC64);
        }
    }
    if has(Wanted::SUBGROUP) {
        kernel_features = kernel_features.union(Features::SUBGROUP);
    }
    capabilities.types = TypeSet::of(&types);
    capabilities.features = kernel_features;
    capabilities.pipeline_features = PipelineFeatureFlags::PUSH_CONSTANTS;
    if has(Wanted::SHADER_F16) {
        capabilities.pipeline_features = capabilities.pipeline_features.union(PipelineFeatureFlags::F16);
    }
    if has(Wanted::SUBGROUP) {
        capabilities.pipeline_features = capabilities.pipeline_features.union(PipelineFeatureFlags::SUBGROUP_OPS);
    } else {
        capabilities.subgroup_sizes = None;
    }
}

fn launch_limits(limits: &wgpu::Limits, buffers: u32) -> Limits {
    let mut own = Limits::default();
    own.max_workgroup_size =
        [limits.max_compute_workgroup_size_x, limits.max_compute_workgroup_size_y, limits.max_compute_workgroup_size_z];
    own.max_workgroup_invocations = limits.max_compute_invocations_per_workgroup;
    // Larger grids are split.
    own.max_grid = [u32::MAX; 3];
    own.max_workgroup_memory = limits.max_compute_workgroup_storage_size.into();
    // Indices in a kernel have 32 bits, and some room is needed behind the last element.
    let largest = limits.max_buffer_size.min(limits.max_storage_buffer_binding_size).min(u32::MAX.into());
    own.max_buffer_bytes = largest - largest % 256;
    // One is for the stop word.
    own.max_bindings = buffers.min(limits.max_storage_buffers_per_shader_stage.saturating_sub(1));
    own.binding_alignment = limits.min_storage_buffer_offset_alignment.max(32);
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_code_is_known_by_all_sources_that_made_it() {
        let info = wgpu::AdapterInfo::new(wgpu::DeviceType::Other, wgpu::Backend::Vulkan);
        let build = build(&info, Wanted::empty());
        for digest in [vyre_foundation::SOURCE_DIGEST, env!("VYRE_WGPU_SOURCES")] {
            assert!(digest.len() == 32 && build.contains(digest), "{build}");
        }
    }
}
