//! Arrays of constants. What a program declares as one (a matrix of thresholds, directions, a permutation) is a private array that is
//! filled with constants before anything is read of it: the same for all lanes, blocks and workgroups. So are the tables that the optimiser
//! makes. Each is written once for all of a call, and lanes find their words there, or in registers where there are few.

use vyre_foundation::kernel::{Block, Element, Inst, Kernel, Memory, Op, Scalar, Value};

use super::super::isa::Isa;
use super::super::mir::{At, LaneOp, M, R, Src};
use super::super::ops;
use super::Lower;
use super::memory::Place;
use super::value::Rep;

/// Words of the largest array that is worth code that writes them all.
const MOST_WORDS: u32 = 1 << 10;

/// The words of each private array that is one of constants.
pub(super) fn words(kernel: &Kernel) -> Vec<Option<Vec<u32>>> {
    let empty = |size: u32| vec![0; size.div_ceil(4) as usize];
    let mut arrays: Vec<Option<Vec<u32>>> = (kernel.locals.iter())
        .map(|memory| {
            let words = memory.element.is_some_and(|(element, _)| is_word(element));
            (words && memory.words.is_none() && memory.size <= 4 * MOST_WORDS).then(|| empty(memory.size))
        })
        .collect();
    if arrays.iter().any(Option::is_some) {
        let mut search = Search { kernel, constants: vec![None; kernel.values.len()], read: vec![false; arrays.len()] };
        search.block(&kernel.body, true, &mut arrays);
        // Where nothing is read, there is nothing to gain.
        for (array, read) in arrays.iter_mut().zip(search.read) {
            array.take_if(|_| !read);
        }
    }
    for (array, memory) in arrays.iter_mut().zip(&kernel.locals) {
        if let Some(words) = &memory.words {
            *array = Some(words.to_vec());
        }
    }
    arrays
}

fn is_word(element: Element) -> bool {
    matches!(element, Element::U32 | Element::I32 | Element::F32)
}

struct Search<'k> {
    kernel: &'k Kernel,
    /// The words of constants.
    constants: Vec<Option<Vec<u32>>>,
    /// Arrays of which something was read.
    read: Vec<bool>,
}

impl Search<'_> {
    /// Takes out the arrays that are written otherwise than with constants, or after something was read.
    fn block(&mut self, block: &Block, first: bool, arrays: &mut [Option<Vec<u32>>]) {
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op) => self.operation(*value, op, arrays),
                Inst::Store { address, element, value, guard } => {
                    let Memory::Local(index) = address.memory else { continue };
                    let index = index as usize;
                    let plain = first && guard.is_none() && address.terms.is_empty() && !self.read[index];
                    let words = self.constants[value.index()].as_ref().filter(|_| plain && is_word(*element));
                    let from = address.offset as usize / 4;
                    let to = arrays[index].as_mut().filter(|_| address.offset.is_multiple_of(4));
                    match (words, to) {
                        (Some(words), Some(to)) if from + words.len() <= to.len() => {
                            to[from..from + words.len()].copy_from_slice(words);
                        }
                        _ => arrays[index] = None,
                    }
                }
                Inst::Atomic { address, .. } => {
                    if let Memory::Local(index) = address.memory {
                        arrays[index as usize] = None;
                    }
                }
                Inst::If { then, otherwise, .. } => {
                    self.block(then, false, arrays);
                    self.block(otherwise, false, arrays);
                }
                Inst::Loop(inner) => self.block(&inner.body, false, arrays),
                Inst::Barrier(_) => {}
            }
        }
    }

    fn operation(&mut self, value: Value, op: &Op, arrays: &mut [Option<Vec<u32>>]) {
        match op {
            Op::Const(literal) if self.kernel.values[value.index()].ty.scalar.bits() == 32 => {
                self.constants[value.index()] = u32::try_from(literal.bits()).ok().map(|bits| vec![bits]);
            }
            Op::Construct(parts) => {
                let parts = parts.iter().map(|part| self.constants[part.index()].clone());
                self.constants[value.index()] = parts.collect::<Option<Vec<_>>>().map(|parts| parts.concat());
            }
            Op::Load { address, element, .. } => {
                if let Memory::Local(index) = address.memory {
                    self.read[index as usize] = true;
                    if !is_word(*element) {
                        arrays[index as usize] = None;
                    }
                }
            }
            Op::Matrix(_) => arrays.fill(None),
            _ => {}
        }
    }
}

impl<'k> Lower<'k> {
    /// Where an array of constants lies behind the workgroup memory.
    pub(super) fn table_at(&self, memory: Memory) -> Option<u32> {
        match memory {
            Memory::Local(index) => self.frame.tables[index as usize].as_ref().map(|(at, _)| *at),
            _ => None,
        }
    }

    /// Writes the arrays of constants, once for all blocks.
    pub(super) fn fill_tables(&mut self) {
        let (lanes, len) = (self.lanes() as usize, self.len());
        for (first, words) in self.frame.tables.clone().into_iter().flatten() {
            for (part, words) in words.chunks(lanes).enumerate() {
                let mark = self.enter_scope();
                let mut words = words.to_vec();
                words.resize(lanes, 0);
                let src = self.lanes_constant(&words);
                let at = At::new(self.bases.shared, first as i32 + part as i32 * len.bytes());
                self.push(M::VStore { op: ops::VMOVUPS_STORE, len, src, at, mask: R::NONE });
                self.leave_scope(mark);
            }
        }
    }

    /// The words that lanes find in an array of constants by their own indices, out of registers that have all of it.
    pub(super) fn word_of_table(
        &mut self,
        memory: Memory,
        place: &Place,
        scalar: Scalar,
        mask: Option<R>,
    ) -> Option<Rep> {
        let (Memory::Local(local), &Place::Vary(at, index)) = (memory, place) else { return None };
        let (first, words) = self.frame.tables[local as usize].clone()?;
        let (lanes, offset) = (self.lanes() as usize, at.disp - first as i32);
        let here = at.base == self.bases.shared && at.index.is_none() && at.scale == 4 && offset % 4 == 0;
        if !here || words.len() > 2 * lanes || self.facts.isa == Isa::Simd128 {
            return None;
        }
        let index = match offset / 4 {
            0 => index,
            more => {
                let more = self.constant(more as u32);
                self.vec(ops::VPADDD, index, Src::R(more))
            }
        };
        let mut padded = words.clone();
        padded.resize(2 * lanes, 0);
        let low = self.lanes_constant(&padded[..lanes]);
        let found = if words.len() <= lanes {
            self.vec(ops::VPERMD, index, Src::R(low))
        } else {
            let high = self.lanes_constant(&padded[lanes..]);
            self.word_of_two(low, high, index)
        };
        Some(match mask {
            Some(mask) => self.mask_parts(scalar, Rep::Vector(found, R::NONE), mask),
            None => Rep::Vector(found, R::NONE),
        })
    }

    /// Words of two registers, by their places in both.
    fn word_of_two(&mut self, low: R, high: R, index: R) -> R {
        if self.facts.isa == Isa::Avx512 {
            let dst = self.vector();
            self.push(M::Mov { dst, src: low });
            let v = LaneOp { acc: true, ..self.lane_op(ops::VPERMT2D, dst, index, Src::R(high)) };
            self.push(M::Vec(v));
            return dst;
        }
        let [low, high] = [low, high].map(|words| self.vec(ops::VPERMD, index, Src::R(words)));
        let last = self.constant(self.lanes() - 1);
        let second = self.vec(ops::VPCMPGTD, index, Src::R(last));
        self.blend(Scalar::U32, second, Src::R(high), false, low)
    }
}
