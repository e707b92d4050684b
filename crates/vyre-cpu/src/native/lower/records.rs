//! Vectors of two or four words that lie side by side for neighbouring lanes. Whole registers are moved, and their words sorted in
//! registers, where a gather or a scatter would move each word alone. AVX-512 sorts any words of two registers, AVX2 those of halves.

use vyre_foundation::kernel::{Address, Element, Memory, Scalar, Value};

use super::super::asm::Len;
use super::super::isa::Isa;
use super::super::mir::{At, LaneOp, M, R, Src};
use super::super::ops;
use super::super::shape::Lane;
use super::Lower;
use super::memory::Place;
use super::placed::DEEP;
use super::value::Rep;

/// Lanes of a register.
const LANES: u32 = 16;

/// The words of two registers that make one, by their places in both.
type Words = [u32; LANES as usize];

/// Every second word from the first or the second on, or every fourth with its neighbours in the second half.
fn sorted(width: u32, first: u32) -> Words {
    std::array::from_fn(|lane| match width {
        2 => 2 * lane as u32 + first,
        _ => 4 * (lane as u32 % 8) + first + lane as u32 / 8,
    })
}

/// Groups of so many words from one register and the other by turns, from a word on.
fn by_turns(group: u32, first: u32) -> Words {
    std::array::from_fn(|lane| {
        let (turn, within) = (lane as u32 / group, lane as u32 % group);
        first + turn / 2 * group + within + turn % 2 * LANES
    })
}

/// The first or second halves of both.
fn halves(second: u32) -> Words {
    std::array::from_fn(|lane| lane as u32 % 8 + 8 * second + LANES * (lane as u32 / 8))
}

impl<'k> Lower<'k> {
    /// The vectors of neighbouring lanes lie side by side.
    fn are_records(&self, address: &Address, element: Element, width: u8) -> bool {
        let (sizes, words) = (matches!(width, 2 | 4), matches!(element, Element::U32 | Element::I32 | Element::F32));
        let here = self.facts.isa != Isa::Simd128 && sizes && words && !matches!(address.memory, Memory::Local(_));
        here && self.is_side_by_side(address, i64::from(width) * 4)
    }

    /// What neighbouring lanes find is so many bytes apart.
    pub(super) fn is_side_by_side(&self, address: &Address, bytes: i64) -> bool {
        let mut step = 0;
        for &(index, stride) in &address.terms {
            if !self.is_scalar(index) {
                return false;
            }
            if let Lane::Affine(lane) = self.shape_of(index).lane {
                step += i64::from(lane) * i64::from(stride);
            }
        }
        step == bytes
    }

    /// Where the first of the vectors lies, which lie side by side.
    fn place_of_records(&mut self, address: &Address, element: Element, width: u8, c: usize) -> Option<At> {
        if !self.are_records(address, element, width) {
            return None;
        }
        match self.place(address, c)? {
            Place::Affine(at, _) => Some(at),
            _ => None,
        }
    }

    /// Loads the vectors of all lanes; false where they don't lie side by side.
    pub(super) fn load_records(
        &mut self,
        value: Value,
        address: &Address,
        element: Element,
        guard: Option<Value>,
        c: usize,
    ) -> bool {
        let width = self.width_of(value);
        let beside = self.place_of_records(address, element, width, c).map(|at| self.places_beside(at, width));
        let Some(places) = beside.or_else(|| self.places_of_rows(address, element, width, c)) else { return false };
        let guard = self.guard_of(guard, c);
        let mask = self.lanes_inside(value, guard, c);
        self.note_read(address.memory);
        places.iter().for_each(|&at| self.ask_for_next_round(address.memory, at));
        for (component, word) in self.load_words_at(element, &places, mask).into_iter().enumerate() {
            self.set_rep(value, component as u8, c, Rep::Vector(word, R::NONE));
        }
        true
    }

    /// Where the rows begin that vectors lie in, each of as many as there are in a register.
    fn places_of_rows(&mut self, address: &Address, element: Element, width: u8, c: usize) -> Option<Vec<At>> {
        let words = matches!(element, Element::U32 | Element::I32 | Element::F32);
        let &[(index, stride)] = &address.terms[..] else { return None };
        let bytes = 4 * u32::from(width);
        let here = self.facts.isa != Isa::Simd128 && matches!(address.memory, Memory::Buffer(_));
        let varies = self.shape_of(index).lane == Lane::Vary && matches!(self.scalar_of(index), Scalar::U32);
        if !here || !words || !matches!(width, 2 | 4) || stride != bytes || !varies {
            return None;
        }
        let each = self.lanes() / u32::from(width);
        let is_row = |lane: u32| lane.is_multiple_of(each) || self.apart(index, lane, c, DEEP) == Some(1);
        if !(1..self.lanes()).all(is_row) {
            return None;
        }
        let Place::Vary(at, _) = self.place(address, c)? else { return None };
        if !at.index.is_none() {
            return None;
        }
        let mut places = Vec::new();
        for first in (0..self.lanes()).step_by(each as usize) {
            let place = self.at_lane(index, first, c, DEEP)?;
            places.push(match place.constant() {
                Some(number) => {
                    let disp = number.checked_mul(bytes as i32)?.checked_add(at.disp)?;
                    At { scale: 1, disp, ..at }
                }
                None => {
                    let place = self.materialise(place);
                    let place = self.extended(place);
                    let index = self.shifted(true, place, bytes.trailing_zeros() as i32);
                    At { index, scale: 1, ..at }
                }
            });
        }
        Some(places)
    }

    /// The places of registers in a row.
    fn places_beside(&self, at: At, width: u8) -> Vec<At> {
        (0..i32::from(width)).map(|part| At { disp: at.disp + part * self.len().bytes(), ..at }).collect()
    }

    /// The first words of the vectors of all lanes, their second, and so on.
    pub(super) fn load_words_of(&mut self, element: Element, width: u8, at: At, mask: Option<R>) -> Vec<R> {
        self.load_words_at(element, &self.places_beside(at, width), mask)
    }

    /// The same of vectors that fill registers at some places.
    fn load_words_at(&mut self, element: Element, places: &[At], mask: Option<R>) -> Vec<R> {
        if self.facts.isa == Isa::Avx2
            && mask.is_none()
            && let &[_, _, _, _] = places
        {
            let of_lane = |_: &mut Self, lane: u32| {
                let at = places[lane as usize / 2];
                At { disp: at.disp + 16 * (lane as i32 % 2), ..at }
            };
            return self.load_fours(of_lane).to_vec();
        }
        let loaded = self.load_registers_at(element, places, mask);
        self.words_of(loaded)
    }

    /// The words of vectors of four where each lane has its own with AVX2; places are asked for in the order of the lanes. Each is loaded into
    /// the half of a register where its lane is, so that the words need not be exchanged between halves.
    pub(super) fn load_fours(&mut self, mut of_lane: impl FnMut(&mut Self, u32) -> At) -> [R; 4] {
        let halves = [0, 1, 2, 3].map(|lane| {
            let (at, dst) = (of_lane(self, lane), self.vector());
            let load = LaneOp { len: Len::L128, ..self.lane_op(ops::VMOVUPS, dst, R::NONE, Src::At(at)) };
            self.push(M::Vec(load));
            dst
        });
        let mut lane = 4;
        let [a, b, c, d] = halves.map(|half| {
            let at = of_lane(self, lane);
            lane += 1;
            self.with_vector_of_four(half, at, 1)
        });
        self.words_of_fours([a, b, c, d])
    }

    /// The words of vectors of four, of which each register has one in each half.
    fn words_of_fours(&mut self, [first, second, third, fourth]: [R; 4]) -> [R; 4] {
        let [[x, y], [z, w]] = [ops::VUNPCKLPS, ops::VUNPCKHPS].map(|op| {
            let (left, right) = (self.vec(op, first, Src::R(second)), self.vec(op, third, Src::R(fourth)));
            [0x44, 0xee].map(|order| self.vec_imm(ops::VSHUFPS, left, Src::R(right), order))
        });
        [x, y, z, w]
    }

    /// The registers that vectors of all lanes fill, side by side.
    pub(super) fn load_registers_of(&mut self, element: Element, width: u8, at: At, mask: Option<R>) -> Vec<R> {
        self.load_registers_at(element, &self.places_beside(at, width), mask)
    }

    /// The same at some places.
    fn load_registers_at(&mut self, element: Element, places: &[At], mask: Option<R>) -> Vec<R> {
        let masks = self.masks_of_words(mask, places.len() as u8);
        let mut loaded: Vec<R> = Vec::with_capacity(places.len());
        for (part, (&at, &mask)) in places.iter().zip(&masks).enumerate() {
            let same = (0..part).find(|&other| places[other] == at && masks[other] == mask);
            let register = match same {
                Some(other) => loaded[other],
                None => self.load_contiguous(element.scalar(), at, mask),
            };
            loaded.push(register);
        }
        loaded
    }

    /// The words of vectors that lie side by side in registers: the first of all lanes, their second, and so on.
    pub(super) fn words_of(&mut self, loaded: Vec<R>) -> Vec<R> {
        let avx2 = self.facts.isa == Isa::Avx2;
        match loaded[..] {
            [a, b] if avx2 => [0x88, 0xdd]
                .map(|order| {
                    let mixed = self.vec_imm(ops::VSHUFPS, a, Src::R(b), order);
                    self.vec_imm(ops::VPERMQ, R::NONE, Src::R(mixed), 0xd8)
                })
                .to_vec(),
            [a, b] => vec![self.taken(a, b, sorted(2, 0)), self.taken(a, b, sorted(2, 1))],
            [a, b, c, d] if avx2 => {
                let [first, second] = [0x20, 0x31].map(|half| self.vec_imm(ops::VPERM2F128, a, Src::R(c), half));
                let [third, fourth] = [0x20, 0x31].map(|half| self.vec_imm(ops::VPERM2F128, b, Src::R(d), half));
                self.words_of_fours([first, second, third, fourth]).to_vec()
            }
            [a, b, c, d] => {
                let mut words = Vec::with_capacity(4);
                for first in [0, 2] {
                    let (left, right) = (self.taken(a, b, sorted(4, first)), self.taken(c, d, sorted(4, first)));
                    words.extend([self.taken(left, right, halves(0)), self.taken(left, right, halves(1))]);
                }
                words
            }
            _ => loaded,
        }
    }

    /// Stores the vectors of all lanes; false where they don't go side by side.
    pub(super) fn store_records(
        &mut self,
        address: &Address,
        element: Element,
        value: Value,
        mask: Option<R>,
        c: usize,
    ) -> bool {
        let width = self.width_of(value);
        let Some(at) = self.place_of_records(address, element, width, c) else { return false };
        let words: Vec<R> = (0..width).map(|component| self.vector_part(value, component, c, 0)).collect();
        self.store_words_of(address.memory, &words, at, mask);
        true
    }

    /// Stores vectors of which the words are given by their place in a vector.
    pub(super) fn store_words_of(&mut self, memory: Memory, words: &[R], at: At, mask: Option<R>) {
        let avx2 = self.facts.isa == Isa::Avx2;
        let parts = self.vectors_of(words);
        let masks = self.masks_of_words(mask, words.len() as u8);
        for (part, (src, mask)) in parts.into_iter().zip(masks).enumerate() {
            let at = At { disp: at.disp + part as i32 * self.len().bytes(), ..at };
            let op = if avx2 && mask.is_some() { ops::VMASKMOVPS_STORE } else { ops::VMOVUPS_STORE };
            let op = self.store_op(op, at, mask);
            self.push(M::VStore { op, len: self.len(), src, at, mask: mask.unwrap_or(R::NONE) });
            self.note_write(memory);
        }
    }

    /// Registers with the vectors of all lanes side by side, of which the words are given by their place in a vector.
    pub(super) fn vectors_of(&mut self, words: &[R]) -> Vec<R> {
        let avx2 = self.facts.isa == Isa::Avx2;
        match *words {
            [x, y] if avx2 => {
                let (low, high) = (self.vec(ops::VUNPCKLPS, x, Src::R(y)), self.vec(ops::VUNPCKHPS, x, Src::R(y)));
                [0x20, 0x31].map(|half| self.vec_imm(ops::VPERM2F128, low, Src::R(high), half)).to_vec()
            }
            [x, y] => vec![self.taken(x, y, by_turns(1, 0)), self.taken(x, y, by_turns(1, 8))],
            [x, y, z, w] if avx2 => {
                let [(first, second), (third, fourth)] = [ops::VUNPCKLPS, ops::VUNPCKHPS].map(|op| {
                    let (left, right) = (self.vec(op, x, Src::R(y)), self.vec(op, z, Src::R(w)));
                    let [even, odd] = [0x44, 0xee].map(|order| self.vec_imm(ops::VSHUFPS, left, Src::R(right), order));
                    (even, odd)
                });
                let mut parts = Vec::with_capacity(4);
                for half in [0x20, 0x31] {
                    parts.push(self.vec_imm(ops::VPERM2F128, first, Src::R(second), half));
                    parts.push(self.vec_imm(ops::VPERM2F128, third, Src::R(fourth), half));
                }
                parts
            }
            [x, y, z, w] => {
                let mut parts = Vec::with_capacity(4);
                for first in [0, 8] {
                    let (left, right) = (self.taken(x, y, by_turns(1, first)), self.taken(z, w, by_turns(1, first)));
                    parts.extend([self.taken(left, right, by_turns(2, 0)), self.taken(left, right, by_turns(2, 8))]);
                }
                parts
            }
            _ => words.to_vec(),
        }
    }

    /// Words of two registers.
    pub(super) fn taken(&mut self, first: R, second: R, words: Words) -> R {
        let places = self.lanes_constant(&words);
        let dst = self.vector();
        self.push(M::Mov { dst, src: first });
        let v = LaneOp { acc: true, ..self.lane_op(ops::VPERMT2D, dst, places, Src::R(second)) };
        self.push(M::Vec(v));
        dst
    }

    /// A mask of lanes as masks of the words of their vectors, one for each register.
    fn masks_of_words(&mut self, mask: Option<R>, width: u8) -> Vec<Option<R>> {
        let Some(mask) = mask else { return vec![None; usize::from(width)] };
        if width == 1 {
            return vec![Some(mask)];
        }
        let (count, avx2) = (self.lanes(), self.facts.isa == Isa::Avx2);
        let (ones, zero) = (self.constant(u32::MAX), self.constant(0));
        let lanes = if avx2 { mask } else { self.masked_zero(ones, mask) };
        let mut masks = Vec::with_capacity(usize::from(width));
        for part in 0..u32::from(width) {
            let owners: Vec<u32> = (0..count).map(|word| (part * count + word) / u32::from(width)).collect();
            let owners = self.lanes_constant(&owners);
            let words = self.vec(ops::VPERMD, owners, Src::R(lanes));
            if avx2 {
                masks.push(Some(words));
                continue;
            }
            let mask = self.new_mask();
            self.push(M::Vec(LaneOp { imm: Some(4), ..self.lane_op(ops::VPCMPD, mask, words, Src::R(zero)) }));
            masks.push(Some(mask));
        }
        masks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(first: &[u32], second: &[u32], words: Words) -> Vec<u32> {
        let both: Vec<u32> = first.iter().chain(second).copied().collect();
        words.iter().map(|&word| both[word as usize]).collect()
    }

    #[test]
    fn words_come_to_their_places_and_back() {
        let memory: Vec<Vec<u32>> = (0..4).map(|part| (16 * part..16 * part + 16).collect()).collect();
        let every = |width: u32, first: u32| (0..16).map(|lane| width * lane + first).collect::<Vec<_>>();
        let pairs: Vec<_> = (0..2).map(|first| taken(&memory[0], &memory[1], sorted(2, first))).collect();
        assert_eq!(pairs, [every(2, 0), every(2, 1)]);
        let back: Vec<_> = [0, 8].map(|first| taken(&pairs[0], &pairs[1], by_turns(1, first))).to_vec();
        assert_eq!(back, memory[..2]);
        let mut fours = Vec::new();
        for first in [0, 2] {
            let left = taken(&memory[0], &memory[1], sorted(4, first));
            let right = taken(&memory[2], &memory[3], sorted(4, first));
            fours.extend([0, 1].map(|second| taken(&left, &right, halves(second))));
        }
        assert_eq!(fours, [every(4, 0), every(4, 1), every(4, 2), every(4, 3)]);
        let mut back = Vec::new();
        for first in [0, 8] {
            let left = taken(&fours[0], &fours[1], by_turns(1, first));
            let right = taken(&fours[2], &fours[3], by_turns(1, first));
            back.extend([0, 8].map(|first| taken(&left, &right, by_turns(2, first))));
        }
        assert_eq!(back, memory);
    }
}
