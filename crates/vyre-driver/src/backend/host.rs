//! What backends share on the host-bytes path: the checks in front of it, the pipelines it keeps, and the path itself where a
//! backend has a device-resident one.

use std::sync::Arc;

use vyre_foundation::ValidProgram;
use vyre_foundation::ir::Program;
use vyre_foundation::launch::LaunchPlan;
use vyre_spec::codes;

use super::{BackendError, Binding, Buffer, CompileOptions, DispatchConfig, Launch, Pipeline, VyreBackend};
use crate::launch;
use crate::pipeline::{SingleFlight, options_policy_string};

/// Pipelines that a backend keeps for its host-bytes path.
const KEPT: usize = 256;

/// The inputs of `dispatch` as `dispatch_borrowed` takes them.
pub fn borrowed(inputs: &[Vec<u8>]) -> Vec<&[u8]> {
    inputs.iter().map(Vec::as_slice).collect()
}

/// A host-bytes dispatch that passed every check which all backends make: the program is valid, the inputs fit it, and sizes
/// and grid are within the device's limits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostDispatch {
    /// The program.
    pub program: ValidProgram,
    /// Sizes and grid.
    pub plan: LaunchPlan,
    /// What the program has to be compiled for.
    pub options: CompileOptions,
}

impl HostDispatch {
    /// Checks what was given to `dispatch_borrowed`.
    pub fn check(
        backend: &(impl VyreBackend + ?Sized),
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<HostDispatch, BackendError> {
        let program = program.validate()?;
        let plan = launch::plan(&program, inputs, config)?;
        backend.capabilities().check_launch(&program, &plan)?;
        let options = launch::compile_options(&program, config)?;
        Ok(HostDispatch { program, plan, options })
    }
}

/// The pipelines of a backend's latest host-bytes dispatches, so that the next dispatch of the same program does not compile.
pub struct KeptPipelines<P: ?Sized>(SingleFlight<([u8; 32], String), Arc<P>>);

impl<P: ?Sized> Default for KeptPipelines<P> {
    fn default() -> Self {
        KeptPipelines(SingleFlight::new(KEPT))
    }
}

impl<P: ?Sized> KeptPipelines<P> {
    /// The pipeline of an earlier dispatch, or a new one.
    pub fn get_or_make(
        &self,
        dispatch: &HostDispatch,
        make: impl FnOnce(&ValidProgram, &CompileOptions) -> Result<Arc<P>, BackendError>,
    ) -> Result<Arc<P>, BackendError> {
        let key = (dispatch.program.fingerprint(), options_policy_string(&dispatch.options));
        self.0.get_or_make(&key, || make(&dispatch.program, &dispatch.options))
    }
}

/// Runs a compiled program on host bytes through a backend's device-resident path: allocate, upload, submit, wait, download.
/// A backend's own `dispatch_borrowed` can be this, after [checking](HostDispatch::check) and compiling.
pub fn dispatch_through(
    backend: &(impl VyreBackend + ?Sized),
    dispatch: &HostDispatch,
    pipeline: &Arc<dyn Pipeline>,
    inputs: &[&[u8]],
    timeout: Option<std::time::Duration>,
) -> Result<Vec<Vec<u8>>, BackendError> {
    let HostDispatch { program, plan, .. } = dispatch;
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
