//! Where a thread's own memory lies, and the registers that say where memories begin.

use vyre_foundation::kernel::Kernel;

use super::super::mir::R;
use super::totals;

/// Where private memories lie.
pub(in crate::native) struct Frame {
    pub(in crate::native) shared: Vec<u32>,
    pub(in crate::native) shared_bytes: u32,
    /// Behind the workgroup memory: where sums begin that are added to a buffer at the end, and their bytes.
    pub(super) totals: Vec<Option<(u32, u32)>>,
    pub(in crate::native) locals: Vec<u32>,
    pub(in crate::native) lane_bytes: u32,
}

impl Frame {
    /// The places of workgroup memory, of the sums of a call, and of one invocation's arrays.
    pub(in crate::native) fn of(kernel: &Kernel) -> Frame {
        let place = |end: &mut u32, size: u32| {
            let at = *end;
            *end += size.next_multiple_of(64);
            at
        };
        let mut shared_bytes = 0;
        let shared = kernel.shared.iter().map(|memory| place(&mut shared_bytes, memory.size)).collect();
        let totals = totals::sizes(kernel).into_iter();
        let totals = totals.map(|bytes| bytes.map(|bytes| (place(&mut shared_bytes, bytes), bytes))).collect();
        let mut lane_bytes = 0;
        let locals = kernel.locals.iter().map(|memory| place(&mut lane_bytes, memory.size)).collect();
        Frame { shared, shared_bytes, totals, locals, lane_bytes }
    }
}

/// Where memories begin.
pub(super) struct Bases {
    pub(super) buffers: Vec<Option<R>>,
    /// A place with nothing but zeros.
    pub(super) zeros: R,
    pub(super) shared: R,
    pub(super) locals: R,
    /// The word that says whether the launch has to end.
    pub(super) stop: R,
}

impl Bases {
    pub(super) fn new(kernel: &Kernel) -> Bases {
        let none = R::NONE;
        Bases { buffers: vec![None; kernel.buffers.len()], zeros: none, shared: none, locals: none, stop: none }
    }
}
