//! Kernels in PTX that somebody else wrote, in the place of a program.

use std::sync::Arc;

use vyre_driver::BackendError;
use vyre_driver::backend::Binding;
use vyre_driver::variant::{Code, Param, Ptx, Variant};
use vyre_spec::codes;

use crate::device::Device;
use crate::launch::Params;
use crate::memory::CudaBuffer;
use crate::pipeline::CudaPipeline;

/// The kernel of a variant that runs on a device of this compute capability, or why it does not.
pub(crate) fn kernel_of(variant: &Variant, capability: u32) -> Result<&Ptx, String> {
    let Code::Ptx(ptx) = variant.code() else { return Err(format!("a GPU can't run {variant}")) };
    let name = ptx.target.strip_prefix("sm_").unwrap_or_default();
    let digits = name.trim_end_matches(|last: char| last.is_ascii_lowercase());
    let wanted: u32 = digits.parse().map_err(|_| format!("`{}` is no target of PTX", ptx.target))?;
    let runs = if name.len() > digits.len() { capability == wanted } else { capability >= wanted };
    if !runs {
        return Err(format!("{variant} does not run on a device of sm_{capability}"));
    }
    if ptx.entry.contains('\0') || ptx.text.contains('\0') {
        return Err(format!("{variant} has a zero byte in its text"));
    }
    Ok(ptx)
}

/// The parameters of such a kernel, and the count at which the memory of its buffers is ready.
pub(crate) fn bind(
    ptx: &Ptx,
    pipeline: &CudaPipeline,
    bindings: &[Binding],
    device: &Arc<Device>,
    backend: &str,
) -> Result<(Params, u64), BackendError> {
    let wrong = |why: String| BackendError::with_code(&codes::cuda::COMPILE_FAILED, why);
    let mut places = Vec::with_capacity(bindings.len());
    let mut ready = 0;
    for (binding, shape) in bindings.iter().zip(&pipeline.code.shapes) {
        let buffer = binding.buffer.of::<CudaBuffer>(backend)?;
        places.push((buffer.pointer(device)? + binding.offset, shape.elements(binding.bytes)));
        ready = ready.max(buffer.ready);
    }
    let place = |at: usize| {
        places.get(at).copied().ok_or_else(|| wrong(format!("the kernel asks for buffer {at} of {}", places.len())))
    };
    let mut params = Params::new();
    for map in &ptx.tensor_maps {
        let (at, _) = place(map.buffer)?;
        params.extend(device.api.encode(map, at).map_err(wrong)?);
    }
    for param in &ptx.params {
        params.push(match *param {
            Param::Buffer(at) => place(at)?.0,
            Param::Elements(at) => place(at)?.1,
            Param::U32(word) => u64::from(word),
            Param::U64(word) => word,
        });
    }
    Ok((params, ready))
}

#[cfg(test)]
mod tests {
    use vyre_driver::variant::{Blocks, HostSlice};

    use super::*;

    #[test]
    fn a_target_with_a_letter_is_exactly_that_device() {
        let of = |target: &str| {
            let ptx = Ptx {
                target: target.to_owned(),
                entry: "main".to_owned(),
                text: String::new(),
                block: [32, 1, 1],
                blocks: Blocks::AsPlanned,
                shared: 0,
                tensor_maps: Vec::new(),
                params: Vec::new(),
            };
            #[allow(unsafe_code, reason = "nothing runs")]
            // SAFETY: it is never launched.
            unsafe {
                Variant::ptx("a", ptx)
            }
        };
        assert!(kernel_of(&of("sm_90a"), 90).is_ok());
        assert!(kernel_of(&of("sm_90a"), 100).is_err_and(|why| why.contains("sm_100")));
        assert!(kernel_of(&of("sm_80"), 90).is_ok());
        assert!(kernel_of(&of("sm_100"), 90).is_err());
        assert!(kernel_of(&of("compute"), 90).is_err());
        assert!(kernel_of(&Variant::host("h", 0, |_: &mut [HostSlice<'_>]| {}), 90).is_err());
    }
}
