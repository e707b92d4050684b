//! The host-bytes path: a launch on the caller's own bytes, which are copied only where the kernel changes them.

use std::sync::Arc;
use std::time::Instant;

use vyre_driver::BackendError;
use vyre_driver::backend::{HostDispatch, HostMemory, Pipeline};
use vyre_spec::codes;

use crate::memory::{to_read, to_write, zeroed};
use crate::pipeline::CpuPipeline;
use crate::pool::{Failure, Pool};
use crate::work::{CpuWork, Places};

/// Bytes that a launch works on.
enum Bytes<'a> {
    /// The caller's, in place.
    Given(&'a [u8]),
    /// A result as it is given to the caller.
    Result(Vec<u8>),
    /// A copy of an input that starts where kernels can't read it, or a result in memory where they can't write it.
    Copy(HostMemory, bool),
}

fn late() -> BackendError {
    BackendError::with_code(&codes::backend::TIMEOUT, "the dispatch was stopped at its timeout")
}

fn out_of_memory(bytes: u64) -> BackendError {
    BackendError::with_code(&codes::backend::OUT_OF_MEMORY, format!("there is no memory for {bytes} bytes"))
}

fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(8)
}

/// Memory for a buffer of a dispatch.
fn memory<'a>(input: Option<&'a [u8]>, is_result: bool, bytes: u64) -> Result<Bytes<'a>, BackendError> {
    let size = usize::try_from(bytes).map_err(|_| out_of_memory(bytes))?;
    match input {
        Some(input) if input.len() != size => {
            return Err(BackendError::with_code(
                &codes::backend::BINDINGS,
                format!("an input has {} bytes, which is not what the launch was planned for", input.len()),
            ));
        }
        Some(input) if !is_result && is_aligned(input) => return Ok(Bytes::Given(input)),
        _ => {}
    }
    if is_result {
        let mut result = zeroed(size).ok_or_else(|| out_of_memory(bytes))?;
        if is_aligned(&result) {
            if let Some(input) = input {
                result.copy_from_slice(input);
            }
            return Ok(Bytes::Result(result));
        }
    }
    let copy = HostMemory::new(size).ok_or_else(|| out_of_memory(bytes))?;
    if let Some(input) = input {
        copy.fill(0, input);
    }
    Ok(Bytes::Copy(copy, is_result))
}

/// Runs a launch to its end, or until the deadline.
pub(crate) fn run(
    pool: &Pool<CpuWork>,
    pipeline: &Arc<CpuPipeline>,
    dispatch: &HostDispatch,
    inputs: &[&[u8]],
    deadline: Option<Instant>,
) -> Result<Vec<Vec<u8>>, BackendError> {
    let (program, plan) = (&dispatch.program, &dispatch.plan);
    let mut given = inputs.iter().copied();
    let mut all = Vec::with_capacity(plan.buffer_bytes.len());
    for (&index, &bytes) in program.binding_order().iter().zip(&plan.buffer_bytes) {
        let kind = program.buffers()[index].kind;
        let input = if kind.is_input() { given.next() } else { None };
        all.push(memory(input, kind.is_result(), bytes)?);
    }
    let mut places = Places::default();
    let bound: Vec<HostMemory> = all
        .iter_mut()
        .map(|bytes| match bytes {
            // SAFETY: the inputs are borrowed until this returns, which is after the launch; kernels don't write to inputs
            // that are not results.
            Bytes::Given(bytes) => unsafe { to_read(bytes) },
            // SAFETY: nobody touches the results before the launch is over.
            Bytes::Result(bytes) => unsafe { to_write(bytes) },
            // SAFETY: the copy lives until this returns.
            Bytes::Copy(memory, _) => unsafe { HostMemory::foreign(memory.address(), memory.bytes()) },
        })
        .collect();
    places.fill_whole(pipeline, &bound);
    let plan = places.plan(pipeline, plan.grid, pool.width())?;
    pool.reserve(plan.scratch_bytes.max(1))?;
    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
        return Err(late());
    }
    let guest = if plan.small.is_some() { pool.guest() } else { None };
    match guest {
        Some(mut guest) => guest.run(|scratch| places.run_all(pipeline, &plan, scratch))?,
        None => {
            let shared: Arc<dyn Pipeline> = Arc::clone(pipeline) as _;
            match pool.run(deadline, |work| work.launch(&shared, &[], &mut places, plan))? {
                Ok(_) => {}
                Err(Failure::Stopped) => return Err(late()),
                Err(Failure::Broke(error)) => return Err(error),
            }
        }
    }
    let result = |bytes| match bytes {
        Bytes::Given(_) | Bytes::Copy(_, false) => None,
        Bytes::Result(bytes) => Some(Ok(bytes)),
        Bytes::Copy(memory, true) => Some(match zeroed(memory.bytes()) {
            Some(mut bytes) => {
                memory.copy_to(0, &mut bytes);
                Ok(bytes)
            }
            None => Err(out_of_memory(memory.bytes() as u64)),
        }),
    };
    all.into_iter().filter_map(result).collect()
}
