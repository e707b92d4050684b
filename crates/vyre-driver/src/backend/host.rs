//! What backends share on the host-bytes path: the checks in front of it, the pipelines it keeps, and the path itself where a
//! backend has a device-resident one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vyre_foundation::ValidProgram;
use vyre_foundation::ir::Program;
use vyre_foundation::launch::LaunchPlan;
use vyre_spec::codes;

use super::{
    BackendError, Binding, Buffer, CompileOptions, DispatchConfig, Launch, Order, Pipeline, Ticket, VyreBackend,
};
use crate::launch;
use crate::pipeline::{PipelineKey, SingleFlight};

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
    /// What tells its pipeline from others.
    pub key: PipelineKey,
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
        let key = PipelineKey::of(backend, &program, &options)?;
        Ok(HostDispatch { program, plan, options, key })
    }
}

/// The pipelines of a backend's latest host-bytes dispatches, so that the next dispatch of the same program does not compile.
pub struct KeptPipelines<P: ?Sized>(SingleFlight<PipelineKey, Arc<P>>);

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
        self.0.get_or_make(&dispatch.key, || make(&dispatch.program, &dispatch.options))
    }
}

/// Runs a compiled program on host bytes through a backend's device-resident path: allocate, upload, submit, wait, download.
/// A backend's own `dispatch_borrowed` can be this, after [checking](HostDispatch::check) and compiling. At the deadline the launch is
/// cancelled, and nobody else's.
pub fn dispatch_through(
    backend: &(impl VyreBackend + ?Sized),
    dispatch: &HostDispatch,
    pipeline: &Arc<dyn Pipeline>,
    inputs: &[&[u8]],
    deadline: Option<Instant>,
) -> Result<Vec<Vec<u8>>, BackendError> {
    let HostDispatch { program, plan, .. } = dispatch;
    let order = Order { deadline, ..Order::default() };
    let binding_order = program.binding_order();
    let mut given = inputs.iter();
    let mut bindings = Vec::with_capacity(binding_order.len());
    for (&index, &bytes) in binding_order.iter().zip(&plan.buffer_bytes) {
        let buffer: Buffer = backend.allocate(bytes)?;
        if program.buffers()[index].kind.is_input() {
            let input = given.next().ok_or_else(|| {
                BackendError::with_code(&codes::backend::BINDINGS, "there are fewer inputs than input buffers")
            })?;
            let uploaded = backend.upload(&buffer, 0, input, &order)?;
            backend.forget(uploaded);
        }
        bindings.push(Binding::new(buffer, bytes));
    }
    let ticket = backend.submit(pipeline, &Launch { order, ..Launch::new(&bindings, plan.grid) })?;
    let outcome = wait_until(backend, ticket, deadline);
    backend.forget(ticket);
    outcome?;
    let mut results = Vec::new();
    for (&index, binding) in binding_order.iter().zip(&bindings) {
        if program.buffers()[index].kind.is_result() {
            let mut bytes = vec![0; host_size(binding.bytes)?];
            backend.download(&binding.buffer, binding.offset, &mut bytes, &order)?;
            results.push(bytes);
        }
    }
    Ok(results)
}

/// Waits for a launch, cancels it when the time is over, and waits for its end. A launch that can't be told to end is left behind.
fn wait_until(
    backend: &(impl VyreBackend + ?Sized),
    ticket: Ticket,
    deadline: Option<Instant>,
) -> Result<(), BackendError> {
    /// How long a launch that was told to end may take to do so.
    const GRACE: Duration = Duration::from_secs(5);
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    if backend.wait(ticket, left)?.is_some() {
        return Ok(());
    }
    let late = || BackendError::with_code(&codes::backend::TIMEOUT, "the dispatch was stopped at its timeout");
    backend.cancel(ticket)?;
    match backend.wait(ticket, Some(GRACE)) {
        // It was done before it noticed.
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(late()),
        Err(error) if error.code() == codes::backend::STOPPED.id => Err(late()),
        Err(error) => Err(error),
    }
}

/// A size as the host counts, or an error where the host can't hold it.
pub(super) fn host_size(bytes: u64) -> Result<usize, BackendError> {
    match usize::try_from(bytes) {
        Ok(size) if size <= isize::MAX as usize => Ok(size),
        _ => Err(BackendError::with_code(&codes::backend::OUT_OF_MEMORY, format!("{bytes} bytes don't fit in memory"))),
    }
}
