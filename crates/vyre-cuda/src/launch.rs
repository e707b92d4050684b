//! From a launch to calls of the driver: the kernel's parameters, and grids in as many parts as the device needs.

use std::sync::Arc;

use smallvec::SmallVec;
use vyre_driver::BackendError;
use vyre_driver::backend::{Binding, Pipeline};
use vyre_spec::codes;

use crate::api::{DevicePointer, KernelLaunch};
use crate::device::Device;
use crate::foreign;
use crate::memory::CudaBuffer;
use crate::pipeline::CudaPipeline;
use crate::ptx::TOGETHER;
use crate::ptx::parameters::{ADDRESS, BASE, COUNT, GRID, LENGTH, MARK, NUMBER, STOP};

/// Workgroups that one launch can have along each axis; larger grids are split.
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// Below so many invocations the device is not full when workgroups are put together.
const FULL: u64 = 1 << 20;

/// Offsets of bindings are multiples of this: the largest load of a kernel.
pub(crate) const ALIGNMENT: u32 = 16;

/// The parameters of a kernel; each takes eight bytes here.
pub(crate) type Params = SmallVec<[u64; 64]>;

/// Where a kernel marks its start, what it writes there, and where it looks whether it has to end. See [`ptx::emit`](crate::ptx::emit).
#[derive(Clone, Copy)]
pub(crate) struct Words {
    pub(crate) mark: DevicePointer,
    pub(crate) number: u64,
    pub(crate) stop: DevicePointer,
}

/// Our own pipeline, of this device.
pub(crate) fn pipeline_of<'a>(
    pipeline: &'a Arc<dyn Pipeline>,
    device: &Arc<Device>,
    backend: &str,
) -> Result<&'a CudaPipeline, BackendError> {
    let pipeline = pipeline.of::<CudaPipeline>(backend)?;
    if Arc::ptr_eq(&pipeline.device, device) {
        return Ok(pipeline);
    }
    Err(BackendError::with_code(&codes::backend::FOREIGN_HANDLE, "a pipeline of one CUDA device was passed to another"))
}

/// The parameters that stand for the bound buffers, and the count at which their memory is ready.
pub(crate) fn bind(
    pipeline: &CudaPipeline,
    bindings: &[Binding],
    device: &Arc<Device>,
    backend: &str,
) -> Result<(Params, u64), BackendError> {
    Binding::check_all(bindings, pipeline.code.shapes.len(), ALIGNMENT)?;
    if let Some(foreign) = &pipeline.code.foreign {
        return foreign::bind(foreign, pipeline, bindings, device, backend);
    }
    let (mut params, mut ready) = (Params::new(), 0);
    let taken = &pipeline.code.parameters.buffers;
    for ((binding, shape), &takes) in bindings.iter().zip(&pipeline.code.shapes).zip(taken) {
        let buffer = binding.buffer.of::<CudaBuffer>(backend)?;
        let elements = shape.elements(binding.bytes);
        let address = buffer.pointer(device)? + binding.offset;
        params.extend((takes & ADDRESS != 0).then_some(address));
        params.extend((takes & LENGTH != 0).then_some(elements));
        params.extend((takes & COUNT != 0).then_some(elements.min(u64::from(u32::MAX))));
        ready = ready.max(buffer.ready);
    }
    Ok((params, ready))
}

/// Calls `launch` for every part of a grid.
pub(crate) fn for_each_part<E>(
    pipeline: &CudaPipeline,
    params: &mut Params,
    grid: [u32; 3],
    words: Words,
    mut launch: impl FnMut(&KernelLaunch, &mut [u64]) -> Result<(), E>,
) -> Result<(), E> {
    let (code, functions) = (&pipeline.code, pipeline.functions);
    if let Some(foreign) = &code.foreign {
        let tensor_maps = foreign.tensor_maps.len() as u32;
        let (function, dynamic_shared) = (functions.single, code.dynamic_shared);
        let part = KernelLaunch { function, grid, block: code.workgroup_size, dynamic_shared, tensor_maps };
        return if grid.contains(&0) { Ok(()) } else { launch(&part, params) };
    }
    let takes = |what: u32| code.parameters.others & what != 0;
    params.extend((0..3).filter(|axis| takes(GRID << axis)).map(|axis| u64::from(grid[axis])));
    let base_at = params.len();
    let based: SmallVec<[usize; 3]> = (0..3).filter(|axis| takes(BASE << axis)).collect();
    params.extend(based.iter().map(|_| 0));
    params.extend(takes(MARK).then_some(words.mark));
    params.extend(takes(NUMBER).then_some(words.number));
    params.extend(takes(STOP).then_some(words.stop));
    let invocations: u64 = code.workgroup_size.iter().map(|&size| u64::from(size)).product();
    let workgroups = grid.iter().fold(1u64, |product, &size| product.saturating_mul(u64::from(size)));
    // Along x, first those workgroups that make whole blocks of the second entry, then the rest.
    let whole = match functions.together {
        Some(_) if workgroups.saturating_mul(invocations) >= FULL => grid[0] / TOGETHER * TOGETHER,
        _ => 0,
    };
    let parts = |axis: usize| (0..grid[axis]).step_by(MAX_GRID[axis] as usize);
    for z in parts(2) {
        for y in parts(1) {
            let mut x = 0;
            while x < grid[0] {
                let (function, in_block, end) = match functions.together {
                    Some(together) if x < whole => (together, TOGETHER, whole),
                    _ => (functions.single, 1, grid[0]),
                };
                let blocks = ((end - x) / in_block).min(MAX_GRID[0]);
                let base = [x, y, z];
                based.iter().zip(&mut params[base_at..]).for_each(|(&axis, at)| *at = base[axis].into());
                let rows = |axis: usize| (grid[axis] - base[axis]).min(MAX_GRID[axis]);
                let part = KernelLaunch {
                    function,
                    grid: [blocks, rows(1), rows(2)],
                    block: code.workgroup_size,
                    dynamic_shared: code.dynamic_shared,
                    tensor_maps: 0,
                };
                launch(&part, params)?;
                x += blocks * in_block;
            }
        }
    }
    Ok(())
}
