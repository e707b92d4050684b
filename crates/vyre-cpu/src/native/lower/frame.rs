//! Where a thread's own memory lies, and the registers that say where memories begin.

use vyre_foundation::kernel::{Kernel, KernelMemory};

use super::super::mir::R;
use super::{tables, totals};

/// Where private memories lie.
pub(in crate::native) struct Frame {
    pub(in crate::native) shared: Vec<u32>,
    pub(in crate::native) shared_bytes: u32,
    /// Behind the workgroup memory: where sums begin that are added to a buffer at the end, and their bytes.
    pub(super) totals: Vec<Option<(u32, u32)>>,
    /// Buffers in whose place a thread may be given a copy to add to.
    pub(in crate::native) copied: Vec<bool>,
    /// Behind those: where arrays of constants begin, and their words.
    pub(super) tables: Vec<Option<(u32, Vec<u32>)>>,
    pub(in crate::native) locals: Vec<u32>,
    pub(in crate::native) lane_bytes: u32,
}

impl Frame {
    /// The places of workgroup memory, of the sums of a call, of arrays of constants, and of one invocation's arrays.
    pub(in crate::native) fn of(kernel: &Kernel) -> Frame {
        let place = |end: &mut u32, size: u32| {
            let at = *end;
            *end += size.next_multiple_of(64);
            at
        };
        let mut shared_bytes = 0;
        let shared = kernel.shared.iter().map(|memory| place(&mut shared_bytes, memory.size)).collect();
        let totals = totals::sizes(kernel).into_iter();
        let totals: Vec<Option<(u32, u32)>> =
            totals.map(|bytes| bytes.map(|bytes| (place(&mut shared_bytes, bytes), bytes))).collect();
        let only_added = totals::only_added(kernel).into_iter();
        let copied = only_added.zip(&totals).map(|(only, totals)| only && totals.is_none()).collect();
        let tables = tables::words(kernel).into_iter();
        let tables = tables.map(|words| words.map(|words| (place(&mut shared_bytes, 4 * words.len() as u32), words)));
        let tables: Vec<_> = tables.collect();
        let mut lane_bytes = 0;
        let own =
            kernel.locals.iter().zip(&tables).map(|(memory, table)| if table.is_some() { 0 } else { memory.size });
        let locals = own.map(|size| place(&mut lane_bytes, size)).collect();
        Frame { shared, shared_bytes, totals, copied, tables, locals, lane_bytes }
    }
}

/// Words of a private array of words, or of vectors of them, lie lane beside lane, so that what all lanes touch at one place is a register
/// in a row.
pub(in crate::native) fn lies_lane_beside_lane(array: &KernelMemory) -> bool {
    array.element.is_some_and(|(element, _)| element.bits() == 32)
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
