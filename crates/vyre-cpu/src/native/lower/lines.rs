//! Words of workgroup memory at places that each lane computes, and that often turn out to lie side by side: the two sides of a
//! butterfly, partners in a sorting network. That is tested where they are needed, and then whole registers are moved; a gather or a
//! scatter takes many times as long as the test.

use vyre_foundation::kernel::{Address, Binary, Element, Memory, Op, Value};

use super::super::asm::{Cond, Label};
use super::super::isa::Isa;
use super::super::mir::{At, LaneOp, M, R, Src};
use super::super::ops;
use super::memory::Place;
use super::value::Rep;
use super::{Lower, Made};

/// Digits and bins are numbers below this.
const MOST_BINS: u32 = 256;

/// How far back it is looked for one in what a place is made of.
const FAR_BACK: u32 = 8;

/// Where lanes find their words.
struct Line {
    /// Each by its own index.
    apart: (At, R),
    /// The first of them, with the others behind it.
    together: At,
    /// Where the code goes on when they don't lie like that.
    otherwise: Label,
}

impl<'k> Lower<'k> {
    /// It is worth a test.
    fn may_be_line(&self, address: &Address, element: Element, width: u8, c: usize) -> bool {
        let words = matches!(element, Element::U32 | Element::I32 | Element::F32) && matches!(width, 1 | 2 | 4);
        let by_lanes = address.terms.iter().any(|&(index, _)| !self.is_scalar(index));
        // What is known to be in registers would be forgotten where two ways meet.
        let here = matches!(address.memory, Memory::Shared(_))
            && self.facts.isa != Isa::Simd128
            && self.workgroup.cells.is_empty();
        // What is known needs no test.
        let known = |&(index, _): &(Value, u32)| self.known_lane(index, 0, c).is_some();
        let in_bins = |&(index, _): &(Value, u32)| self.is_in_bins(index, FAR_BACK);
        words && by_lanes && here && !address.terms.iter().all(known) && !address.terms.iter().any(in_bins)
    }

    /// A place is in one of a few bins that loaded words choose, or was found there: what neighbours load there hardly ever lies side by side.
    fn is_in_bins(&self, place: Value, far_back: u32) -> bool {
        let Some(rest) = far_back.checked_sub(1) else { return false };
        let again = |value: Value| self.is_in_bins(value, rest);
        match self.facts.makers.ops[place.index()] {
            Some(&Op::Binary(Binary::And, word, bins)) => {
                let few = self.facts.makers.constant(bins).is_some_and(|bins| bins < MOST_BINS);
                few && self.is_of_loaded(word, rest)
            }
            Some(&Op::Binary(Binary::Shr, word, _)) if self.shape_of(place).max < MOST_BINS => {
                self.is_of_loaded(word, rest)
            }
            Some(&Op::Binary(Binary::Shl | Binary::Mul, word, _)) => again(word),
            Some(&Op::Binary(Binary::Add | Binary::Sub | Binary::Or, a, b)) => again(a) || again(b),
            Some(Op::Load { address, .. }) => address.terms.iter().any(|&(index, _)| again(index)),
            _ => false,
        }
    }

    /// A word that is loaded and differs by lane, some bits of it, or what it is mixed with.
    fn is_of_loaded(&self, word: Value, far_back: u32) -> bool {
        let Some(rest) = far_back.checked_sub(1) else { return false };
        match self.facts.makers.ops[word.index()] {
            Some(Op::Load { .. }) => !self.shape_of(word).is_uniform(),
            Some(&Op::Binary(Binary::Xor, a, b)) => self.is_of_loaded(a, rest) || self.is_of_loaded(b, rest),
            None => self.facts.makers.begin(word).is_some_and(|begin| self.is_of_loaded(begin, rest)),
            Some(&(Op::Binary(Binary::Shr, word, _) | Op::BitCast(word) | Op::Cast(word) | Op::Extract(word, _))) => {
                self.is_of_loaded(word, rest)
            }
            _ => false,
        }
    }

    /// Tests whether lanes find vectors of so many words side by side.
    fn line(&mut self, address: &Address, width: u8, c: usize) -> Option<Line> {
        let Place::Vary(at, index) = self.place(address, c)? else { return None };
        let is_line = |(lane, &distance): (i64, &i64)| distance == 4 * i64::from(width) * lane;
        let known = |distances: Vec<i64>| !(0..).zip(&distances).all(is_line);
        if matches!(address.memory, Memory::Shared(_)) && self.distances(address, c).is_some_and(known) {
            return None;
        }
        let step = 4 * i32::from(width) / i32::from(at.scale);
        if step * i32::from(at.scale) != 4 * i32::from(width) {
            return None;
        }
        let otherwise = self.label();
        let (first, bits) = self.line_from(index, step);
        // Gathers take indices with their signs.
        let together = At { index: self.extended(first), ..at };
        self.push(M::Test { wide: false, a: bits, b: bits });
        self.push(M::JumpIf(Cond::NotEqual, otherwise));
        Some(Line { apart: (at, index), together, otherwise })
    }

    /// The index of the first lane, and whether the others don't go on from there by a step; what is loaded is often stored again there.
    fn line_from(&mut self, index: R, step: i32) -> (R, R) {
        let made = [Made::First(index), Made::Apart(index, step)];
        if let [Some(first), Some(bits)] = made.map(|made| self.made.get(made)) {
            return (first, bits);
        }
        let first = self.general();
        self.push(M::First { wide: false, dst: first, src: index });
        let spread = self.vec(ops::VBROADCASTSS, R::NONE, Src::R(index));
        let steps = self.steps(step);
        let line = self.vec(ops::VPADDD, spread, Src::R(steps));
        let differs = self.mask_of_differences(index, line);
        let bits = self.mask_bits(differs);
        if !self.made.changing.contains(&index) {
            self.remember(made[0], first);
            self.remember(made[1], bits);
        }
        (first, bits)
    }

    fn mask_of_differences(&mut self, a: R, b: R) -> R {
        if self.facts.isa == Isa::Avx512 {
            let mask = self.new_mask();
            self.push(M::Vec(LaneOp { imm: Some(4), ..self.lane_op(ops::VPCMPD, mask, a, Src::R(b)) }));
            return mask;
        }
        let same = self.vec(ops::VPCMPEQD, a, Src::R(b));
        self.mask_other_than(same)
    }

    /// Loads at places that may turn out to lie side by side; false where that is not tested.
    pub(super) fn load_lines(
        &mut self,
        value: Value,
        address: &Address,
        element: Element,
        guard: Option<Value>,
        c: usize,
    ) -> bool {
        let width = self.width_of(value);
        let guard = self.guard_of(guard, c);
        // A guard that is the same for all lanes is a branch, not a mask.
        let whole = guard.is_some_and(|guard| self.is_scalar(guard));
        if !self.may_be_line(address, element, width, c) || self.is_scalar(value) || whole {
            return false;
        }
        let mask = self.lanes_inside(value, guard, c);
        let Some(Line { apart, together, otherwise }) = self.line(address, width, c) else {
            return false;
        };
        let mark = self.enter_scope();
        self.note_read(address.memory);
        let words: Vec<R> = (0..width).map(|_| self.vector()).collect();
        self.made.changing.extend(&words);
        let done = self.label();
        let inner = self.enter_scope();
        let loaded = self.load_words_of(element, width, together, mask);
        for (&dst, src) in words.iter().zip(loaded) {
            self.push(M::Mov { dst, src });
        }
        self.leave_scope(inner);
        self.push(M::Jump(done));
        self.bind(otherwise);
        let inner = self.enter_scope();
        let gathered = self.gather_words(element, width, apart, mask);
        for (&dst, src) in words.iter().zip(gathered) {
            self.push(M::Mov { dst, src });
        }
        self.leave_scope(inner);
        self.bind(done);
        self.leave_scope(mark);
        for (component, word) in words.into_iter().enumerate() {
            self.set_rep(value, component as u8, c, Rep::Vector(word, R::NONE));
        }
        true
    }

    /// Stores at places that may turn out to lie side by side; false where that is not tested.
    pub(super) fn store_lines(
        &mut self,
        address: &Address,
        element: Element,
        value: Value,
        mask: Option<R>,
        c: usize,
    ) -> bool {
        let width = self.width_of(value);
        if !self.may_be_line(address, element, width, c) {
            return false;
        }
        let words: Vec<R> = (0..width).map(|component| self.vector_part(value, component, c, 0)).collect();
        let Some(Line { apart, together, otherwise }) = self.line(address, width, c) else {
            return false;
        };
        let mark = self.enter_scope();
        let done = self.label();
        let inner = self.enter_scope();
        self.store_words_of(address.memory, &words, together, mask);
        self.leave_scope(inner);
        self.push(M::Jump(done));
        self.bind(otherwise);
        let inner = self.enter_scope();
        self.scatter_words(address, element, &words, apart, mask);
        self.leave_scope(inner);
        self.bind(done);
        self.leave_scope(mark);
        true
    }
}
