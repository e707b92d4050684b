//! What a CUDA device is and can do, and by what its stored code is told from that of others.

use std::fs;

use vyre_driver::backend::{Capabilities, DeviceKind, Limits, TypeSet};
use vyre_driver::pipeline::{PipelineDeviceFingerprint, PipelineFeatureFlags};
use vyre_foundation::kernel::Features;

use crate::api::{Api, Attribute, CudaError};
use crate::launch::ALIGNMENT;
use crate::ptx::TENSOR_CORES;
use crate::queue::QUEUES;

/// A digest of the sources that make PTX of a kernel, so that a change of them makes stored code of earlier ones unknown.
const SOURCE_DIGEST: &str = env!("VYRE_CUDA_SOURCES");

pub(crate) fn capabilities(api: &Api, device: i32, sm: u32) -> Result<Capabilities, CudaError> {
    let attribute = |attribute| api.attribute(device, attribute);
    let memory = api.total_memory(device)?;
    let version = api.driver_version()?;
    let mut limits = Limits::default();
    limits.max_workgroup_size =
        [attribute(Attribute::MaxBlockX)?, attribute(Attribute::MaxBlockY)?, attribute(Attribute::MaxBlockZ)?];
    limits.max_workgroup_invocations = attribute(Attribute::MaxThreadsPerBlock)?;
    limits.max_grid = [u32::MAX; 3];
    limits.max_workgroup_memory = attribute(Attribute::SharedMemoryOptIn)?.into();
    limits.max_buffer_bytes = memory;
    // Parameters have 4096 bytes together.
    limits.max_bindings = 160;
    limits.binding_alignment = ALIGNMENT;
    limits.memory_bytes = Some(memory);
    let mut capabilities = Capabilities::default();
    capabilities.name = api.device_name(device)?;
    let build = driver_build();
    capabilities.driver = format!("CUDA {}.{} {build}", version / 1000, version % 1000 / 10).trim_end().to_owned();
    capabilities.kind =
        if attribute(Attribute::Integrated)? != 0 { DeviceKind::Integrated } else { DeviceKind::Discrete };
    capabilities.types = TypeSet::all();
    capabilities.features = Features::F16
        .union(Features::F64)
        .union(Features::INT64)
        .union(Features::SUBGROUP)
        .union(Features::ATOMIC64)
        .union(Features::NARROW);
    capabilities.pipeline_features = PipelineFeatureFlags::SUBGROUP_OPS.union(PipelineFeatureFlags::F16);
    if sm >= TENSOR_CORES {
        capabilities.features = capabilities.features.union(Features::MATRIX);
        capabilities.pipeline_features = capabilities.pipeline_features.union(PipelineFeatureFlags::TENSOR_CORES);
    }
    capabilities.subgroup_sizes = Some([32, 32]);
    capabilities.limits = limits;
    capabilities.resident = true;
    capabilities.queues = QUEUES;
    capabilities.shares_buffers = true;
    capabilities.recordings = true;
    capabilities.timestamps = true;
    const NVIDIA: u32 = 0x10de;
    // What the driver makes of a kernel depends on its build and on the compute capability; what we give it, on our sources.
    let extra = format!("{version} {build} sm_{sm} {} {SOURCE_DIGEST}", vyre_foundation::SOURCE_DIGEST);
    capabilities.fingerprint = PipelineDeviceFingerprint::from_parts(NVIDIA, sm, &capabilities.name, &extra);
    Ok(capabilities)
}

/// Which build of the driver this is, as far as the system tells: the version of the kernel's part, and the library that this process
/// has loaded, which a container may have brought along.
fn driver_build() -> String {
    let kernel = fs::read_to_string("/proc/driver/nvidia/version").ok().and_then(|text| kernel_version(&text));
    let library = fs::read_to_string("/proc/self/maps").ok().and_then(|maps| library_version(&maps));
    match (kernel, library) {
        (Some(kernel), Some(library)) if kernel != library => format!("{kernel} (library {library})"),
        (kernel, library) => kernel.or(library).unwrap_or_default(),
    }
}

/// The first word of the first line that is digits and dots.
fn kernel_version(text: &str) -> Option<String> {
    let version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.lines().next()?.split_whitespace().find(version).map(str::to_owned)
}

/// What stands behind `libcuda.so.` in the name of the file that is mapped.
fn library_version(maps: &str) -> Option<String> {
    maps.lines().find_map(|line| Some(line.rsplit_once("/libcuda.so.")?.1.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_of_the_driver_is_found() {
        let text =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (dvs-builder@U22)\nGCC";
        assert_eq!(kernel_version(text).as_deref(), Some("580.82.07"));
        assert_eq!(kernel_version(""), None);
        let maps =
            "7f00-7f01 r--p 0 08:01 1 /usr/lib/libc.so.6\n7f02-7f03 r-xp 0 08:01 2 /usr/lib/libcuda.so.580.82.07\n";
        assert_eq!(library_version(maps).as_deref(), Some("580.82.07"));
    }

    #[test]
    fn the_sources_have_a_digest() {
        assert!(SOURCE_DIGEST.len() == 32 && SOURCE_DIGEST.chars().all(|c| c.is_ascii_hexdigit()), "{SOURCE_DIGEST}");
    }
}
