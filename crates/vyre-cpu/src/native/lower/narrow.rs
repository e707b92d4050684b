//! Elements of less than a word that don't lie side by side, such as the halves of a `vec2<f16>`: words are moved, and elements
//! taken out of them or put together.
//!
//! A word that holds an element may end behind the last element of a buffer. It never reaches into another page, and what is behind
//! is not looked at.

use vyre_foundation::kernel::{Address, Element, Memory, Scalar, Value};

use super::super::asm::{Alu, Cond, Shift};
use super::super::context::{self, COLUMN};
use super::super::isa::Isa;
use super::super::mir::{At, GSrc, M, R, Src};
use super::super::ops;
use super::memory::Place;
use super::value::Rep;
use super::{Lower, Made};

/// Bits of its word that are before an element, where that is the same in all lanes.
fn bits_before(address: &Address) -> Option<u32> {
    address.terms.iter().all(|&(_, stride)| stride.is_multiple_of(4)).then_some(address.offset % 4 * 8)
}

impl<'k> Lower<'k> {
    /// The words that narrow elements lie in, with the bits before each; `None` where they lie otherwise.
    pub(super) fn load_words(&mut self, address: &Address, place: &Place, mask: Option<R>) -> Option<(R, u32)> {
        let before = bits_before(address)?;
        let word = |at: At| At { disp: at.disp - before as i32 / 8, ..at };
        let (at, index) = match *place {
            Place::Affine(at, 4) => return Some((self.load_contiguous(Scalar::U32, word(at), mask), before)),
            Place::Affine(at, step) if step % 4 == 0 => {
                let beside = !matches!(address.memory, Memory::Local(_));
                if let Some(words) = beside.then(|| self.load_apart(word(at), step, mask)).flatten() {
                    return Some((words, before));
                }
                self.as_gather(word(at), step)
            }
            Place::Vary(at, index) => (word(at), index),
            _ => return None,
        };
        let Rep::Vector(words, _) = self.gather(Scalar::U32, at, index, mask) else { return None };
        Some((words, before))
    }

    /// Narrow elements at places of their own: the words that they lie in are gathered, and each is moved to the end of its word. `None`
    /// where places may be beyond what a word counts.
    pub(super) fn gather_narrow(
        &mut self,
        address: &Address,
        place: &Place,
        element: Element,
        mask: Option<R>,
    ) -> Option<R> {
        let varying = address.terms.iter().filter(|&&(index, _)| !self.is_scalar(index)).count();
        if matches!(address.memory, Memory::Local(_)) || varying > 1 {
            return None;
        }
        let (at, index, down) = match *place {
            Place::Affine(at, 4) => {
                let first = self.general();
                self.push(M::Lea { wide: true, dst: first, at });
                let base = self.alu(Alu::And, true, first, GSrc::Imm(-4));
                let ahead = self.alu(Alu::And, false, first, GSrc::Imm(3));
                let bits = self.shifted(false, ahead, 3);
                let words = self.load_contiguous(Scalar::U32, At::new(base, 0), mask);
                let bits = self.spread(bits, false);
                let moved = self.vec(ops::VPSRLVD, words, Src::R(bits));
                return Some(self.taken_out(element, moved, 0));
            }
            Place::Affine(at, step) => {
                let (at, index) = self.as_gather(at, step);
                (at, index, ops::VPSRAD)
            }
            Place::Vary(at, index) => (at, index, ops::VPSRLD),
            Place::Same(_) => return None,
        };
        // Where the first element is in its word.
        let first = self.general();
        self.push(M::Lea { wide: true, dst: first, at: At::new(at.base, at.disp) });
        let base = self.alu(Alu::And, true, first, GSrc::Imm(-4));
        let ahead = self.alu(Alu::And, false, first, GSrc::Imm(3));
        let (index, bits) = if at.scale >= 4 {
            // Words apart: each is as far in its word as the first.
            let bits = self.shifted(false, ahead, 3);
            let by = at.scale.trailing_zeros() as u8 - 2;
            let words = if by == 0 { index } else { self.vec_imm(ops::VPSLLD, R::NONE, Src::R(index), by) };
            (words, self.spread(bits, false))
        } else {
            let unit = at.scale.trailing_zeros() as u8;
            let ahead = match unit {
                0 => ahead,
                _ => {
                    let halves = self.general();
                    self.push(M::Shift { op: Shift::Right, wide: false, dst: halves, a: ahead, count: GSrc::Imm(1) });
                    halves
                }
            };
            let ahead = self.spread(ahead, false);
            let elements = self.vec(ops::VPADDD, index, Src::R(ahead));
            let words = self.vec_imm(down, R::NONE, Src::R(elements), 2 - unit);
            let within = self.constant(if unit == 0 { 3 } else { 1 });
            let within = self.vec(ops::VPANDD, elements, Src::R(within));
            (words, self.vec_imm(ops::VPSLLD, R::NONE, Src::R(within), 3 + unit))
        };
        let Rep::Vector(words, _) = self.gather(Scalar::U32, At { scale: 4, ..At::new(base, 0) }, index, mask) else {
            return None;
        };
        let moved = self.vec(ops::VPSRLVD, words, Src::R(bits));
        Some(self.taken_out(element, moved, 0))
    }

    /// Narrow elements out of their words, as lanes.
    pub(super) fn taken_out(&mut self, element: Element, words: R, before: u32) -> R {
        let bits = element.bits();
        match element {
            Element::F16 if self.facts.isa == Isa::Avx2 => {
                let apart = self.halves_apart(words);
                self.floats_of(apart, before == 16)
            }
            Element::F16 => {
                let halves = match before {
                    0 => words,
                    _ => self.vec_imm(ops::VPSRLD, R::NONE, Src::R(words), before as u8),
                };
                self.halves_as_floats(halves)
            }
            Element::BF16 if before == 16 => {
                let upper = self.constant(0xffff_0000);
                self.vec(ops::VPANDD, words, Src::R(upper))
            }
            Element::BF16 => self.vec_imm(ops::VPSLLD, R::NONE, Src::R(words), 16),
            _ => {
                let signed = matches!(element, Element::I8 | Element::I16);
                let down = if signed { ops::VPSRAD } else { ops::VPSRLD };
                let up = 32 - bits - before;
                let v = if up == 0 { words } else { self.vec_imm(ops::VPSLLD, R::NONE, Src::R(words), up as u8) };
                self.vec_imm(down, R::NONE, Src::R(v), (32 - bits) as u8)
            }
        }
    }

    /// Halves in the lower parts of words, as floats.
    pub(super) fn halves_as_floats(&mut self, words: R) -> R {
        if self.facts.isa == Isa::Avx2 {
            let apart = self.halves_apart(words);
            return self.floats_of(apart, false);
        }
        let packed = self.vector();
        self.push(M::Reverse { op: ops::VPMOVDW, len: self.len(), dst: packed, src: words, imm: None });
        self.vec(ops::VCVTPH2PS, R::NONE, Src::R(packed))
    }

    /// The lower halves of the words of a register of AVX2 in its lower half, and the upper ones in its upper half.
    fn halves_apart(&mut self, words: R) -> R {
        let made = Made::HalvesApart(words);
        let kept = !self.made.changing.contains(&words);
        if let Some(apart) = self.made.get(made).filter(|_| kept) {
            return apart;
        }
        let sorted = self.sorted_in_fours(words, [0, 2, 4, 6, 1, 3, 5, 7]);
        let apart = self.vec_imm(ops::VPERMQ, R::NONE, Src::R(sorted), 0b11_01_10_00);
        if kept {
            self.remember(made, apart);
        }
        apart
    }

    /// The half words of each four words of a register in another order.
    fn sorted_in_fours(&mut self, words: R, order: [u32; 8]) -> R {
        let bytes = |half: u32| (2 * half) | ((2 * half + 1) << 8);
        let words_of = |pair: &[u32]| bytes(pair[0]) | bytes(pair[1]) << 16;
        let four: Vec<u32> = order.chunks(2).map(words_of).collect();
        let order: Vec<u32> = (0..self.lanes() as usize).map(|lane| four[lane % 4]).collect();
        let order = self.lanes_constant(&order);
        self.vec(ops::VPSHUFB, words, Src::R(order))
    }

    /// The floats of half words of a register of AVX2: those in its lower half, or those in its upper half.
    fn floats_of(&mut self, apart: R, upper: bool) -> R {
        let halves = if upper { self.upper_half(apart) } else { apart };
        self.vec(ops::VCVTPH2PS, R::NONE, Src::R(halves))
    }

    /// The floats of vectors of four half words that lie side by side in two registers of AVX2.
    fn floats_of_fours(&mut self, loaded: [R; 2]) -> [R; 4] {
        // Of each two vectors their first elements come to lie in one word, then their second, and so on.
        let [a, b] = loaded.map(|r| self.sorted_in_fours(r, [0, 4, 1, 5, 2, 6, 3, 7]));
        let order = self.lanes_constant(&[0, 4, 1, 5, 2, 6, 3, 7]);
        let pairs = [ops::VUNPCKLPS, ops::VUNPCKHPS].map(|op| {
            let mixed = self.vec(op, a, Src::R(b));
            self.vec(ops::VPERMD, order, Src::R(mixed))
        });
        [0, 1, 2, 3].map(|component| self.floats_of(pairs[component / 2], component % 2 == 1))
    }

    /// Stores narrow elements one after the other.
    pub(super) fn scatter_narrow(
        &mut self,
        address: &Address,
        element: Element,
        (value, component): (Value, u8),
        place: Place,
        mask: Option<R>,
        c: usize,
    ) {
        let (words, scratch) = (self.bits_of(element, value, component, c), self.scratch());
        if let Place::Vary(_, index) = place {
            self.put_scratch(scratch, 0, index);
        }
        self.put_scratch(scratch, COLUMN, words);
        // Which lanes store is often a matter of the data, and a branch for each that goes the other way takes longer than all the
        // stores: lanes that don't store put their value where nobody looks.
        let aside = mask.map(|mask| {
            let (bits, nowhere) = (self.mask_bits(mask), self.general());
            self.push(M::Lea { wide: true, dst: nowhere, at: At::new(scratch, context::RESULT) });
            (bits, nowhere)
        });
        for lane in 0..self.lanes() as i32 {
            let src = self.general();
            let mut to = match place {
                Place::Same(at) => at,
                Place::Affine(at, step) => At { disp: at.disp + step * lane, ..at },
                Place::Vary(at, _) => {
                    let mut index = self.general();
                    self.push(M::Load { bytes: 4, signed: false, dst: index, at: At::new(scratch, 4 * lane) });
                    if at.base != self.bases.shared {
                        // Part of the index may be in the base, and the rest be less than nothing.
                        index = self.extended(index);
                    }
                    At { index, ..at }
                }
            };
            self.push(M::Load { bytes: 4, signed: false, dst: src, at: At::new(scratch, COLUMN + 4 * lane) });
            if let Some((bits, nowhere)) = aside {
                let (there, here) = (self.general(), self.general());
                self.push(M::Lea { wide: true, dst: there, at: to });
                self.push(M::Alu { op: Alu::And, wide: false, dst: here, a: bits, b: GSrc::Imm(1 << lane) });
                self.push(M::Cmov { cond: Cond::Equal, dst: there, src: nowhere });
                to = At::new(there, 0);
            }
            self.push(M::Store { bytes: element.bits() / 8, src, at: to });
        }
        self.forget_cells(address.memory);
    }

    /// Stores pairs of narrow elements as words; false, and nothing done, where they don't lie like that.
    pub(super) fn store_in_words(
        &mut self,
        address: &Address,
        element: Element,
        value: Value,
        mask: Option<R>,
        c: usize,
    ) -> bool {
        let width = self.width_of(value);
        let fits = matches!(element, Element::F16 | Element::U16 | Element::I16)
            && width.is_multiple_of(2)
            && bits_before(address) == Some(0);
        let Some(first) = fits.then(|| self.place(address, c)).flatten() else { return false };
        if matches!(first, Place::Same(_)) {
            return false;
        }
        let words: Vec<R> = (0..width / 2)
            .map(|pair| {
                let low = self.bits_of(element, value, 2 * pair, c);
                let high = self.bits_of(element, value, 2 * pair + 1, c);
                let high = self.vec_imm(ops::VPSLLD, R::NONE, Src::R(high), 16);
                self.vec(ops::VPORD, low, Src::R(high))
            })
            .collect();
        if words.len() == 2
            && let Some(at) = self.side_by_side(&first, 2)
        {
            self.store_words_of(address.memory, &words, at, mask);
            return true;
        }
        for (pair, words) in words.into_iter().enumerate() {
            let moved = |at: At| At { disp: at.disp + 4 * pair as i32, ..at };
            let place = match first {
                Place::Same(at) => Place::Same(moved(at)),
                Place::Affine(at, step) => Place::Affine(moved(at), step),
                Place::Vary(at, index) => Place::Vary(moved(at), index),
            };
            self.store_vector(address, Scalar::U32, place, [words, R::NONE], mask);
        }
        true
    }

    /// Loads vectors of narrow elements that fill pairs of words and lie side by side; false where they don't.
    pub(super) fn load_in_words(
        &mut self,
        value: Value,
        address: &Address,
        element: Element,
        guard: Option<Value>,
        c: usize,
    ) -> bool {
        let width = self.width_of(value);
        let fits = matches!(element, Element::F16 | Element::U16 | Element::I16)
            && matches!(width, 2 | 4)
            && bits_before(address) == Some(0);
        let Some(first) = fits.then(|| self.place(address, c)).flatten() else { return false };
        let Some(at) = self.side_by_side(&first, usize::from(width / 2)) else { return false };
        let guard = self.guard_of(guard, c);
        let mask = self.lanes_inside(value, guard, c);
        self.note_read(address.memory);
        let loaded = self.load_registers_of(Element::U32, width / 2, at, mask);
        let elements: Vec<R> = match (self.facts.isa, element, &loaded[..]) {
            (Isa::Avx2, Element::F16, &[a, b]) => self.floats_of_fours([a, b]).to_vec(),
            _ => {
                let words = self.words_of(loaded);
                let half = |at: u8| (words[usize::from(at / 2)], u32::from(at % 2) * 16);
                (0..width).map(half).map(|(words, before)| self.taken_out(element, words, before)).collect()
            }
        };
        for (component, element) in (0..).zip(elements) {
            self.set_rep(value, component, c, Rep::Vector(element, R::NONE));
        }
        true
    }

    /// The place of the first of vectors of one or two words that lie side by side.
    fn side_by_side(&self, first: &Place, words: usize) -> Option<At> {
        match *first {
            Place::Affine(at, 4) if words == 1 => Some(at),
            Place::Affine(at, 8) if words == 2 && self.facts.isa != Isa::Simd128 => Some(at),
            _ => None,
        }
    }

    /// A narrow element of each lane in the lower part of a word, zeros above.
    fn bits_of(&mut self, element: Element, value: Value, component: u8, c: usize) -> R {
        let v = self.vector_part(value, component, c, 0);
        if element == Element::F16 {
            let packed = self.packed_halves(v);
            return self.vec(ops::VPMOVZXWD, R::NONE, Src::R(packed));
        }
        let lower = self.constant(0xffff);
        self.vec(ops::VPANDD, v, Src::R(lower))
    }
}
