//! The host-bytes path on top of the device-resident one.

use std::sync::Arc;

use vyre_foundation::ir::Program;
use vyre_foundation::launch::LaunchPlan;
use vyre_spec::codes;

use super::{BackendError, Binding, Buffer, Launch, Pipeline, VyreBackend};

/// Runs a compiled program on host bytes through a backend's device-resident path: allocate, upload, submit, wait, download.
/// A backend's own `dispatch_borrowed` can be this, after planning and compiling.
pub fn dispatch_through(
    backend: &(impl VyreBackend + ?Sized),
    program: &Program,
    pipeline: &Arc<dyn Pipeline>,
    plan: &LaunchPlan,
    inputs: &[&[u8]],
    timeout: Option<std::time::Duration>,
) -> Result<Vec<Vec<u8>>, BackendError> {
    let order = program.binding_order();
    let mut given = inputs.iter();
    let mut bindings = Vec::with_capacity(order.len());
    for (&index, &bytes) in order.iter().zip(&plan.buffer_bytes) {
        let buffer: Buffer = backend.allocate(bytes)?;
        if program.buffers()[index].kind.is_input() {
            let input = given.next().ok_or_else(|| {
                BackendError::with_code(&codes::backend::BINDINGS, "there are fewer inputs than input buffers")
            })?;
            backend.upload(&buffer, 0, input)?;
        }
        bindings.push(Binding::new(buffer, bytes));
    }
    let pending = backend.submit(pipeline, &Launch { bindings: &bindings, grid: plan.grid, timed: false })?;
    backend.wait(pending, timeout)?;
    let mut results = Vec::new();
    for (&index, binding) in order.iter().zip(&bindings) {
        if program.buffers()[index].kind.is_result() {
            let mut bytes = vec![0; host_size(binding.bytes)?];
            backend.download(&binding.buffer, binding.offset, &mut bytes)?;
            results.push(bytes);
        }
    }
    Ok(results)
}

/// A size as the host counts, or an error where the host can't hold it.
pub(super) fn host_size(bytes: u64) -> Result<usize, BackendError> {
    match usize::try_from(bytes) {
        Ok(size) if size <= isize::MAX as usize => Ok(size),
        _ => Err(BackendError::with_code(&codes::backend::OUT_OF_MEMORY, format!("{bytes} bytes don't fit in memory"))),
    }
}
