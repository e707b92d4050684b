//! The calls that wgpu can't check: code and cached pipelines as the driver takes them, and memory that host and device see at
//! the same time.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::emit::{ENTRY, FloatControls};

/// Code as a device takes it.
pub(crate) enum Code {
    /// What Vulkan runs.
    Spirv(Vec<u32>),
    /// What wgpu translates for the others.
    Module(Box<naga::Module>),
}

/// Gives a kernel's code to the driver. It must come from [`crate::emit`].
pub(crate) fn shader(device: &wgpu::Device, code: &Code, workgroup_size: [u32; 3]) -> wgpu::ShaderModule {
    match code {
        Code::Spirv(words) => {
            let [x, y, z] = workgroup_size;
            let entry = wgpu::PassthroughShaderEntryPoint { name: Cow::Borrowed(ENTRY), workgroup_size: (x, y, z) };
            let descriptor = wgpu::ShaderModuleDescriptorPassthrough {
                entry_points: Cow::Borrowed(std::slice::from_ref(&entry)),
                spirv: Some(Cow::Borrowed(words)),
                ..Default::default()
            };
            // SAFETY: the words were written by naga from a module that it had validated, or authenticated as such; the
            // bindings are those of the layout; every access is guarded or proven to be in bounds.
            unsafe { device.create_shader_module_passthrough(descriptor) }
        }
        Code::Module(module) => {
            let descriptor = wgpu::ShaderModuleDescriptor {
                label: None,
                source: wgpu::ShaderSource::Naga(Cow::Owned(naga::Module::clone(module))),
            };
            // SAFETY: the emitter guards every access and every division that is not proven, and bounds every loop.
            unsafe { device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked()) }
        }
    }
}

/// The driver's own cache of compiled code, filled with what it gave before. The bytes must be authenticated.
pub(crate) fn pipeline_cache(device: &wgpu::Device, data: Option<&[u8]>) -> wgpu::PipelineCache {
    // SAFETY: the data was given by `get_data` for the same device and driver; whoever loads it has authenticated it.
    unsafe { device.create_pipeline_cache(&wgpu::PipelineCacheDescriptor { label: None, data, fallback: true }) }
}

/// What the driver can be told about floats.
#[cfg(not(target_vendor = "apple"))]
pub(crate) fn float_controls(adapter: &wgpu::Adapter) -> FloatControls {
    use ash::vk;
    // SAFETY: the handle is only asked for its properties.
    let Some(hal) = (unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }) else { return FloatControls::default() };
    let (shared, physical) = (hal.shared_instance(), hal.raw_physical_device());
    let instance = shared.raw_instance();
    // SAFETY: the physical device is one of this instance.
    let version = unsafe { instance.get_physical_device_properties(physical) }.api_version;
    if version.min(shared.instance_api_version()) < vk::API_VERSION_1_2 {
        return FloatControls::default();
    }
    let mut floats = vk::PhysicalDeviceFloatControlsProperties::default();
    let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut floats);
    // SAFETY: as above; instance and device are of a version that has the call and the structure.
    unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
    // Where f16 and f64, or all three, must be told the same, they are told nothing else.
    let together = |independence, [half, single, double]: [vk::Bool32; 3]| {
        let [half, single, double] = [half != 0, single != 0, double != 0];
        match independence {
            vk::ShaderFloatControlsIndependence::ALL => [half, single, double],
            vk::ShaderFloatControlsIndependence::TYPE_32_ONLY => [half && double, single, half && double],
            _ => [half && single && double; 3],
        }
    };
    FloatControls {
        subnormals: together(
            floats.denorm_behavior_independence,
            [
                floats.shader_denorm_preserve_float16,
                floats.shader_denorm_preserve_float32,
                floats.shader_denorm_preserve_float64,
            ],
        ),
        specials: [
            floats.shader_signed_zero_inf_nan_preserve_float16 != 0,
            floats.shader_signed_zero_inf_nan_preserve_float32 != 0,
            floats.shader_signed_zero_inf_nan_preserve_float64 != 0,
        ],
        nearest: together(
            floats.rounding_mode_independence,
            [
                floats.shader_rounding_mode_rte_float16,
                floats.shader_rounding_mode_rte_float32,
                floats.shader_rounding_mode_rte_float64,
            ],
        ),
    }
}

/// Metal is told nothing.
#[cfg(target_vendor = "apple")]
pub(crate) fn float_controls(_: &wgpu::Adapter) -> FloatControls {
    FloatControls::default()
}

/// Words that host and kernels change while the other reads them: two for each launch. The first tells the launch to end, in the second
/// it reports why it ended early.
pub(crate) struct StopPage {
    pub(crate) buffer: wgpu::Buffer,
    mapped: *const AtomicU32,
}

// SAFETY: the pointer is only used for atomic accesses, and the memory lives as long as the buffer beside it.
unsafe impl Send for StopPage {}
// SAFETY: as above.
unsafe impl Sync for StopPage {}

impl StopPage {
    /// Launches that a page is for.
    pub(crate) const SLOTS: u32 = 512;

    #[cfg(not(target_vendor = "apple"))]
    const BYTES: u64 = Self::SLOTS as u64 * 8;

    /// A page of zeros where the device can share memory with the host; Vulkan devices can.
    #[cfg(not(target_vendor = "apple"))]
    pub(crate) fn new(device: &wgpu::Device) -> Option<StopPage> {
        use wgpu::hal::{BufferDescriptor, Device as _, MemoryFlags, api::Vulkan};
        // SAFETY: the handle is only used to make one buffer below, and not destroyed.
        let hal = unsafe { device.as_hal::<Vulkan>() }?;
        let descriptor = BufferDescriptor {
            label: None,
            size: Self::BYTES,
            usage: wgpu::BufferUses::MAP_READ | wgpu::BufferUses::MAP_WRITE | wgpu::BufferUses::STORAGE_READ_WRITE,
            memory_flags: MemoryFlags::PREFER_COHERENT,
        };
        // SAFETY: the descriptor is a valid one, and the buffer is used only with this device.
        let buffer = unsafe { hal.create_buffer(&descriptor) }.ok()?;
        // SAFETY: the buffer was made for mapping and is not mapped elsewhere; the mapping stays as long as the buffer.
        let mapping = unsafe { hal.map_buffer(&buffer, 0..Self::BYTES) }.ok()?;
        if !mapping.is_coherent {
            // SAFETY: nobody else knows the buffer.
            unsafe { hal.destroy_buffer(buffer) };
            return None;
        }
        // SAFETY: the mapping has this size, and no kernel runs on it yet.
        unsafe { mapping.ptr.write_bytes(0, Self::BYTES as usize) };
        let mapped = mapping.ptr.as_ptr().cast_const().cast::<AtomicU32>();
        drop(hal);
        let descriptor = wgpu::BufferDescriptor {
            label: None,
            size: Self::BYTES,
            usage: wgpu::BufferUsages::STORAGE,
            mapped_at_creation: false,
        };
        // SAFETY: the buffer comes from this device, fits the descriptor, and is filled with zeros.
        let buffer = unsafe { device.create_buffer_from_hal::<Vulkan>(buffer, &descriptor) };
        Some(StopPage { buffer, mapped })
    }

    /// Metal has none.
    #[cfg(target_vendor = "apple")]
    pub(crate) fn new(_: &wgpu::Device) -> Option<StopPage> {
        None
    }

    fn word(&self, slot: u32, word: u32) -> &AtomicU32 {
        assert!(slot < Self::SLOTS && word < 2, "word {word} of slot {slot}");
        // SAFETY: inside the mapping, which is aligned to more than a word and lives as long as the buffer.
        unsafe { &*self.mapped.add((slot * 2 + word) as usize) }
    }

    /// Tells the launch of a slot to end.
    pub(crate) fn stop(&self, slot: u32) {
        self.word(slot, 0).store(1, Ordering::SeqCst);
    }

    /// Whether the launch of a slot, which is over, was told to end, and what it has reported; the slot is free again.
    pub(crate) fn take(&self, slot: u32) -> (bool, u32) {
        (self.word(slot, 0).swap(0, Ordering::SeqCst) != 0, self.word(slot, 1).swap(0, Ordering::SeqCst))
    }
}
