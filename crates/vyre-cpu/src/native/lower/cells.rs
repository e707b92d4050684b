//! Workgroup memory in registers: what was stored at a known place is known to be there until something else is stored.
//!
//! A load of it takes the register. Where every load of a memory did, its stores and its clearing are left out.

use vyre_foundation::kernel::{Memory, Scalar};

use super::super::isa::Isa;
use super::super::mir::{At, R, Src};
use super::super::ops;
use super::Lower;

/// A register whose first lanes are what lies at a place of workgroup memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    first: i32,
    end: i32,
    r: R,
}

/// An instruction that only writes a workgroup memory, by its place in the code.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedWrite {
    at: usize,
    memory: u32,
}

impl<'k> Lower<'k> {
    /// The place is in workgroup memory and known.
    fn is_known(&self, at: At) -> bool {
        at.index.is_none() && at.base == self.shared_base && !self.shared_base.is_none()
    }

    /// A value was stored, in the first `lanes` lanes and nowhere else.
    pub(super) fn keep_cell(&mut self, memory: Memory, at: At, lanes: u32, r: R) {
        let Memory::Shared(index) = memory else { return };
        self.shared_writes.push(SharedWrite { at: self.code.len() - 1, memory: index });
        if !self.is_known(at) {
            return self.cells.clear();
        }
        let end = at.disp + lanes as i32 * 4;
        self.cells.retain(|cell| cell.end <= at.disp || cell.first >= end);
        if !self.changing.contains(&r) {
            self.cells.push(Cell { first: at.disp, end, r });
        }
    }

    /// Something was stored in a memory, who knows where.
    pub(super) fn forget_cells(&mut self, memory: Memory) {
        if matches!(memory, Memory::Shared(_)) {
            self.cells.clear();
        }
    }

    /// The last instruction writes a memory and does nothing else.
    pub(super) fn note_write(&mut self, memory: Memory) {
        if let Memory::Shared(index) = memory {
            self.shared_writes.push(SharedWrite { at: self.code.len() - 1, memory: index });
            self.cells.clear();
        }
    }

    /// The instructions from `from` on only clear a workgroup memory.
    pub(super) fn note_clear(&mut self, memory: u32, from: usize) {
        self.shared_writes.extend((from..self.code.len()).map(|at| SharedWrite { at, memory }));
    }

    /// A memory is read where it lies.
    pub(super) fn note_read(&mut self, memory: Memory) {
        if let Memory::Shared(index) = memory {
            self.shared_read[index as usize] = true;
        }
    }

    /// What lies at a place is the first lane of a register.
    pub(super) fn begins_cell(&self, at: At) -> bool {
        self.is_known(at) && self.cells.iter().any(|cell| cell.first == at.disp)
    }

    /// A register whose first lanes are what lies at a place, when that is known.
    pub(super) fn find_cell(&mut self, memory: Memory, at: At, lanes: u32) -> Option<R> {
        if !matches!(memory, Memory::Shared(_)) || !self.is_known(at) {
            return None;
        }
        let end = at.disp + lanes as i32 * 4;
        let Some(&cell) = self.cells.iter().find(|cell| cell.first <= at.disp && end <= cell.end) else {
            return self.across_cells(memory, at.disp, end);
        };
        let by = (at.disp - cell.first) / 4;
        if by == 0 {
            return Some(cell.r);
        }
        if self.isa == Isa::Avx512 {
            return Some(self.vec_imm(ops::VALIGND, cell.r, Src::R(cell.r), by as u8));
        }
        // Quarters of a vector, then words within one.
        let (half, word) = (by / 4, by % 4);
        if (word != 0 && (word + lanes as i32 > 4 || self.isa == Isa::Simd128)) || half > 1 {
            return None;
        }
        let r = if half == 1 { self.upper_half(cell.r) } else { cell.r };
        if word == 0 {
            return Some(r);
        }
        let order = (0..4).fold(0, |order, lane| order | ((word + lane) & 3) << (2 * lane));
        Some(self.vec_imm(ops::VSHUFPS, r, Src::R(r), order as u8))
    }

    /// What lies partly in one register and partly in the next.
    fn across_cells(&mut self, memory: Memory, first: i32, end: i32) -> Option<R> {
        let Memory::Shared(index) = memory else { return None };
        let whole = self.len().bytes();
        if self.isa != Isa::Avx512 {
            return None;
        }
        let behind = *self.cells.iter().find(|cell| cell.first < end && end <= cell.end)?;
        let by = (behind.first - first) / 4;
        let start = self.shared_at[index as usize] as i32;
        let before = match self.cells.iter().find(|cell| cell.end == behind.first && cell.end - cell.first == whole) {
            Some(cell) if first < behind.first => cell.r,
            // Lanes for which there is nothing before the memory's start are not here.
            None if behind.first == start && first < start => behind.r,
            _ => return None,
        };
        let lanes = self.lanes() as i32;
        (by < lanes).then(|| self.vec_imm(ops::VALIGND, behind.r, Src::R(before), (lanes - by) as u8))
    }

    /// Takes out what only writes memories that nobody reads, and begins anew.
    pub(super) fn drop_writes(&mut self) {
        let writes = std::mem::take(&mut self.shared_writes);
        let read = std::mem::replace(&mut self.shared_read, vec![false; self.kernel.shared.len()]);
        let dead: Vec<usize> =
            writes.iter().filter(|write| !read[write.memory as usize]).map(|write| write.at).collect();
        if dead.is_empty() {
            return;
        }
        let mut at = 0;
        let mut next = dead.iter().peekable();
        self.code.retain(|_| {
            let drop = next.next_if(|&&dead| dead == at).is_some();
            at += 1;
            !drop
        });
    }

    /// Elements that are kept in registers.
    pub(super) fn is_cell(scalar: Scalar) -> bool {
        matches!(scalar, Scalar::U32 | Scalar::I32 | Scalar::F32)
    }
}
