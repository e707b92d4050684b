//! What was made already and need not be made again, and what is known of registers.

use super::super::asm::Alu;
use super::super::hash::{Map, Set};
use super::super::mir::{GSrc, R};
use super::Lower;

/// What makes a scalar, for finding it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Made {
    Sum(R, i32),
    Extended(R),
    Distance(R, R),
    Alu(Alu, bool, R, GSrc),
    Mul(bool, R, GSrc),
    Shl(bool, R, i32),
    /// A scalar in all lanes of a vector.
    Spread(R, bool),
    /// `spread + lane·stride + add`.
    Ramp(R, i32, i32),
    /// Bytes of each half word, those in even or odd places, as numbers with or without sign.
    Bytes(R, bool, bool),
    /// The lower halves of words, and then the upper ones.
    HalvesApart(R),
    /// The half precision numbers that a vector of floats is of, packed.
    Halves(R),
    /// What divides all lanes, its reciprocal as doubles, with or without a sign, and 2³¹ times that.
    Divisor(R),
    Reciprocal(R, bool),
    ShiftedBack(R),
    /// The quotient of a vector and a number in all lanes, with or without a sign.
    Quotient(R, R, bool),
    /// The first lane of a vector, and whether the others don't go on from there by a step.
    First(R),
    Apart(R, i32),
    Constant(u32),
    Constant64(u64),
    Pool(u32),
    /// A mask of known lanes.
    Lanes(u32),
    /// A mask of lanes so many words apart, as that of the words of one of the registers that these are in.
    LanesApart(R, u32, u32),
}

#[derive(Default)]
pub(super) struct MadeBefore {
    found: Map<Made, R>,
    /// What was made, in order, to forget it at the end of its scope.
    log: Vec<Made>,
    /// Registers that are written more than once.
    pub(super) changing: Set<R>,
    /// Registers with zeros in the first so many lanes.
    pub(super) zero_below: Map<R, u32>,
    /// Masks of which the lanes are known, one bit each.
    pub(super) known: Map<R, u32>,
    /// Vectors of known words.
    pub(super) words: Map<R, Box<[u32]>>,
    /// Masks of the first so many lanes.
    pub(super) prefixes: Map<R, u32>,
    /// Masks of all lanes but those of another, which is never written again.
    pub(super) opposites: Map<R, R>,
    /// Numbers by which whole numbers up to some greatest one were to be divided, and whether a product can take the place of that.
    pub(super) exact_quotients: Map<(u32, u32), bool>,
}

impl MadeBefore {
    pub(super) fn get(&self, made: Made) -> Option<R> {
        self.found.get(&made).copied()
    }

    /// Something that may be taken again is in this register.
    pub(super) fn holds(&self, r: R) -> bool {
        self.found.values().any(|&found| found == r)
    }

    fn remember(&mut self, made: Made, r: R) {
        if self.found.insert(made, r).is_none() {
            self.log.push(made);
        }
    }

    fn forget(&mut self, from: usize) {
        for made in self.log.drain(from..) {
            self.found.remove(&made);
        }
    }
}

impl Lower<'_> {
    /// Remembers what is made from here on, to forget it with [`Lower::leave_scope`].
    pub(super) fn enter_scope(&self) -> usize {
        self.made.log.len()
    }

    pub(super) fn leave_scope(&mut self, mark: usize) {
        self.made.forget(mark);
    }

    pub(super) fn remember(&mut self, made: Made, r: R) {
        self.made.remember(made, r);
    }
}
