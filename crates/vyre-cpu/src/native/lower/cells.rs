//! Workgroup memory in registers: what was stored at a known place is known to be there until something else is stored.
//!
//! A load of it takes the register. Where every load of a memory did, its stores and its clearing are left out, and so is a store to a
//! known place that is overwritten, or whose workgroup is over, before anybody reads it there.

use vyre_foundation::kernel::{Kernel, Memory, Scalar};

use super::super::asm::Label;
use super::super::hash::{Map, Set};
use super::super::isa::Isa;
use super::super::mir::{At, M, R, Src};
use super::super::ops;
use super::Lower;
use super::memory::Place;

/// A register whose first lanes are what lies at a place of workgroup memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    first: i32,
    end: i32,
    r: R,
}

/// An instruction that only writes a workgroup memory, by its place in the code.
#[derive(Clone, Copy, Debug)]
struct SharedWrite {
    at: usize,
    memory: u32,
}

/// Bytes of all workgroup memories together, from one on to before another.
type Bytes = (i32, i32);

/// What happens to workgroup memory before the instruction at a place in the code.
#[derive(Clone, Copy, Debug)]
enum Touch {
    /// These bytes may be read.
    Read(Bytes),
    /// The instruction before wrote all of these and nothing else.
    Wrote(Bytes),
    /// Nothing that lies there is read any more.
    Over,
}

const EVERYTHING: Bytes = (i32::MIN, i32::MAX);

/// Bytes that are written before they are read.
#[derive(Clone, Debug, Default)]
struct Unread(Vec<Bytes>);

impl Unread {
    fn contains(&self, (first, end): Bytes) -> bool {
        self.0.iter().any(|&(from, to)| from <= first && end <= to)
    }

    fn add(&mut self, (mut first, mut end): Bytes) {
        self.0.retain(|&(from, to)| {
            let meets = from <= end && first <= to;
            if meets {
                (first, end) = (first.min(from), end.max(to));
            }
            !meets
        });
        self.0.push((first, end));
    }

    fn remove(&mut self, (first, end): Bytes) {
        let parts = |(from, to): Bytes| [(from, to.min(first)), (from.max(end), to)];
        self.0 = self.0.iter().flat_map(|&bytes| parts(bytes)).filter(|(from, to)| from < to).collect();
    }

    /// Those that are in another, too.
    fn meet(&mut self, other: &Unread) {
        let common = |&(a, b): &Bytes, &(c, d): &Bytes| (a.max(c), b.min(d));
        let all = self.0.iter().flat_map(|one| other.0.iter().map(move |two| common(one, two)));
        self.0 = all.filter(|(from, to)| from < to).collect();
    }
}

/// What is known of workgroup memory, and what was done to it.
pub(super) struct Workgroup {
    /// What is known to lie there at this place of the code.
    pub(super) cells: Vec<Cell>,
    writes: Vec<SharedWrite>,
    /// What happens to it, in the order of the code.
    touches: Vec<(usize, Touch)>,
    /// Workgroup memories that are read where they lie.
    read_in_place: Vec<bool>,
}

impl Workgroup {
    pub(super) fn new(kernel: &Kernel) -> Workgroup {
        let read_in_place = vec![false; kernel.shared.len()];
        Workgroup { cells: Vec::new(), writes: Vec::new(), touches: Vec::new(), read_in_place }
    }
}

impl<'k> Lower<'k> {
    /// The place is in workgroup memory and known.
    fn is_known(&self, at: At) -> bool {
        at.index.is_none() && at.base == self.bases.shared && !self.bases.shared.is_none()
    }

    /// A value was stored, in the first `lanes` lanes and nowhere else.
    pub(super) fn keep_cell(&mut self, memory: Memory, at: At, lanes: u32, r: R) {
        let Memory::Shared(index) = memory else { return };
        self.workgroup.writes.push(SharedWrite { at: self.emission.code.len() - 1, memory: index });
        if !self.is_known(at) {
            return self.workgroup.cells.clear();
        }
        let end = at.disp + lanes as i32 * 4;
        self.workgroup.touches.push((self.emission.code.len(), Touch::Wrote((at.disp, end))));
        self.workgroup.cells.retain(|cell| cell.end <= at.disp || cell.first >= end);
        if !self.made.changing.contains(&r) {
            self.workgroup.cells.push(Cell { first: at.disp, end, r });
        }
    }

    /// Something was stored in a memory, who knows where.
    pub(super) fn forget_cells(&mut self, memory: Memory) {
        if matches!(memory, Memory::Shared(_)) {
            self.workgroup.cells.clear();
        }
    }

    /// The last instruction writes a memory and does nothing else.
    pub(super) fn note_write(&mut self, memory: Memory) {
        if let Memory::Shared(index) = memory {
            self.workgroup.writes.push(SharedWrite { at: self.emission.code.len() - 1, memory: index });
            self.workgroup.cells.clear();
        }
    }

    /// The instructions from `from` on only clear a workgroup memory.
    pub(super) fn note_clear(&mut self, memory: u32, from: usize) {
        self.workgroup.writes.extend((from..self.emission.code.len()).map(|at| SharedWrite { at, memory }));
    }

    /// A memory is read where it lies, who knows where.
    pub(super) fn note_read(&mut self, memory: Memory) {
        self.note_read_of(memory, EVERYTHING);
    }

    /// Words of a memory are read where they lie.
    pub(super) fn note_read_at(&mut self, memory: Memory, place: &Place) {
        let whole = 4 * (self.lanes() as i32 - 1);
        let bytes = match *place {
            Place::Same(at) if self.is_known(at) => (at.disp, at.disp + 4),
            Place::Affine(at, 4) if self.is_known(at) => (at.disp, at.disp + whole + 4),
            _ => EVERYTHING,
        };
        self.note_read_of(memory, bytes);
    }

    fn note_read_of(&mut self, memory: Memory, bytes: Bytes) {
        if let Memory::Shared(index) = memory {
            self.workgroup.read_in_place[index as usize] = true;
            self.workgroup.touches.push((self.emission.code.len(), Touch::Read(bytes)));
        }
    }

    /// A workgroup is over: nobody reads its memory after this.
    pub(super) fn note_over(&mut self) {
        self.workgroup.touches.push((self.emission.code.len(), Touch::Over));
    }

    /// The instructions that write what nobody reads before it is written again.
    fn overwritten(&mut self) -> Set<usize> {
        let touches = std::mem::take(&mut self.workgroup.touches);
        let mut dead = Set::default();
        if !touches.iter().any(|(_, touch)| matches!(touch, Touch::Wrote(_))) {
            return dead;
        }
        let (mut touches, mut unread) = (touches.into_iter().rev().peekable(), Unread::default());
        let mut at_labels: Map<Label, Unread> = Map::default();
        for at in (0..=self.emission.code.len()).rev() {
            // Where the code goes on is known only where that was seen, which is after this.
            match self.emission.code.get(at) {
                Some(M::Label(label)) => _ = at_labels.insert(*label, unread.clone()),
                Some(M::Jump(label)) => unread = at_labels.get(label).cloned().unwrap_or_default(),
                // A launch that ends early reads nothing more.
                Some(M::JumpIf(_, label)) if *label == self.stop_label => {}
                Some(M::JumpIf(_, label)) => match at_labels.get(label) {
                    Some(there) => unread.meet(there),
                    None => unread = Unread::default(),
                },
                _ => {}
            }
            while let Some((_, touch)) = touches.next_if(|&(place, _)| place >= at) {
                match touch {
                    Touch::Over => unread.add(EVERYTHING),
                    Touch::Read(bytes) => unread.remove(bytes),
                    Touch::Wrote(bytes) if unread.contains(bytes) => _ = dead.insert(at - 1),
                    Touch::Wrote(bytes) => unread.add(bytes),
                }
            }
        }
        dead
    }

    /// What lies at a place is the first lane of a register.
    pub(super) fn begins_cell(&self, at: At) -> bool {
        self.is_known(at) && self.workgroup.cells.iter().any(|cell| cell.first == at.disp)
    }

    /// A register whose first lanes are what lies at a place, when that is known.
    pub(super) fn find_cell(&mut self, memory: Memory, at: At, lanes: u32) -> Option<R> {
        if !matches!(memory, Memory::Shared(_)) || !self.is_known(at) {
            return None;
        }
        let end = at.disp + lanes as i32 * 4;
        let Some(&cell) = self.workgroup.cells.iter().find(|cell| cell.first <= at.disp && end <= cell.end) else {
            return self.across_cells(memory, at.disp, end);
        };
        let by = (at.disp - cell.first) / 4;
        if by == 0 {
            return Some(cell.r);
        }
        if self.facts.isa == Isa::Avx512 {
            return Some(self.vec_imm(ops::VALIGND, cell.r, Src::R(cell.r), by as u8));
        }
        // Quarters of a vector, then words within one.
        let (half, word) = (by / 4, by % 4);
        if (word != 0 && (word + lanes as i32 > 4 || self.facts.isa == Isa::Simd128)) || half > 1 {
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
        if self.facts.isa == Isa::Simd128 {
            return None;
        }
        let behind = *self.workgroup.cells.iter().find(|cell| cell.first < end && end <= cell.end)?;
        let by = (behind.first - first) / 4;
        let start = self.frame.shared[index as usize] as i32;
        let before =
            match self.workgroup.cells.iter().find(|cell| cell.end == behind.first && cell.end - cell.first == whole) {
                Some(cell) if first < behind.first => cell.r,
                // Lanes for which there is nothing before the memory's start are not here.
                None if behind.first == start && first < start => behind.r,
                _ => return None,
            };
        let lanes = self.lanes() as i32;
        (by < lanes).then(|| self.last_and_first(before, behind.r, by as u8))
    }

    /// What lies at a place but for its first words, which are zero; `None` where it is not in a register from the next one on.
    pub(super) fn shifted_cell(&mut self, memory: Memory, at: At, words: u32) -> Option<R> {
        if !matches!(memory, Memory::Shared(_)) || !self.is_known(at) || self.facts.isa == Isa::Simd128 {
            return None;
        }
        let (first, end) = (at.disp + 4 * words as i32, at.disp + self.len().bytes());
        let cell = *self.workgroup.cells.iter().find(|cell| cell.first == first && end <= cell.end)?;
        let zero = self.constant(0);
        Some(self.last_and_first(zero, cell.r, words as u8))
    }

    /// So many of the last words of one register, and the first of another.
    fn last_and_first(&mut self, before: R, behind: R, words: u8) -> R {
        if self.facts.isa == Isa::Avx512 {
            return self.vec_imm(ops::VALIGND, behind, Src::R(before), 16 - words);
        }
        // The second half of one and the first of the other, and from there on the words of each half.
        let middle = self.vec_imm(ops::VPERM2F128, before, Src::R(behind), 0x21);
        match words {
            4 => middle,
            0..4 => self.vec_imm(ops::VPALIGNR, behind, Src::R(middle), 16 - 4 * words),
            _ => self.vec_imm(ops::VPALIGNR, middle, Src::R(before), 4 * (8 - words)),
        }
    }

    /// Takes out what only writes memories that nobody reads, and begins anew.
    pub(super) fn drop_writes(&mut self) {
        let writes = std::mem::take(&mut self.workgroup.writes);
        let read = std::mem::replace(&mut self.workgroup.read_in_place, vec![false; self.facts.kernel.shared.len()]);
        let overwritten = self.overwritten();
        let is_dead = |write: &&SharedWrite| !read[write.memory as usize] || overwritten.contains(&write.at);
        let dead: Vec<usize> = writes.iter().filter(is_dead).map(|write| write.at).collect();
        if dead.is_empty() {
            return;
        }
        let mut at = 0;
        let mut next = dead.iter().peekable();
        self.emission.code.retain(|_| {
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
