//! Words of workgroup memory at places that are known for each lane, though they don't lie in a row, as in a tile whose rows are shorter
//! than a vector: the few registers that have all of them are moved, and words are put in order there.
//!
//! And words of buffers that lie in a few rows, as those that such a tile is filled with: each row is loaded for its lanes.

use vyre_foundation::kernel::{Address, Binary, Element, Memory, Op, Scalar, Value};

use super::super::asm::Alu;
use super::super::isa::Isa;
use super::super::mir::{At, GSrc, M, R, Src};
use super::super::ops;
use super::super::shape::Lane;
use super::Lower;
use super::value::{Lin, Rep};

/// Most registers whose words are put in order; more take as long as a gather or a scatter.
const MOST_REGISTERS: usize = 2;

/// Most rows that a vector is loaded of.
const MOST_ROWS: usize = 2;
/// The largest number that stays apart from the register that it is added to.
const FAR: u32 = 1 << 20;
/// Operations that an index may be made by.
const DEEP: u32 = 8;

/// Registers of words in a row that have all of some lanes.
struct Registers {
    memory: u32,
    firsts: Vec<u32>,
    /// Lanes with their words.
    words: Vec<(u32, u32)>,
}

impl<'k> Lower<'k> {
    /// Loads words at known places, of the lanes of a mask and else zero; nothing where they are not known or lie too far apart.
    pub(super) fn load_placed(&mut self, address: &Address, element: Element, mask: Option<R>, c: usize) -> Option<R> {
        let lanes = mask.and_then(|mask| self.made.known.get(&mask).copied()).unwrap_or(self.all_lanes());
        let found = self.registers_of(address, element, lanes, c)?;
        self.note_read(address.memory);
        let &(_, one) = found.words.first()?;
        let words = if found.words.iter().all(|&(_, word)| word == one) {
            let at = self.word_at(found.memory, one, R::NONE);
            self.vec(ops::VBROADCASTSS, R::NONE, Src::At(at))
        } else {
            let first = self.load_ordered(&found, 0);
            match found.firsts.len() {
                1 => first,
                _ => {
                    let second = self.load_ordered(&found, 1);
                    let bits = found.words.iter().filter(|&&(_, word)| !found.has(0, word, self.lanes()));
                    let bits = bits.fold(0, |bits, (lane, _)| bits | 1 << lane);
                    self.with_lanes(first, second, bits)
                }
            }
        };
        Some(match mask {
            Some(mask) => self.masked_zero(words, mask),
            None => words,
        })
    }

    /// A register's words, each in the lane that it is for.
    fn load_ordered(&mut self, found: &Registers, which: usize) -> R {
        let first = found.firsts[which];
        let at = self.word_at(found.memory, first, R::NONE);
        let words = found.words.iter().filter(|&&(_, word)| found.has(which, word, self.lanes()));
        let (to, from): (Vec<u32>, Vec<u32>) = words.map(|&(lane, word)| (lane, word - first)).unzip();
        let loaded = self.load_contiguous(Element::U32.scalar(), at, None);
        self.brought(loaded, &to, &from)
    }

    /// Stores words at known places; false where they are not known or lie too far apart.
    pub(super) fn store_placed(
        &mut self,
        address: &Address,
        element: Element,
        src: R,
        mask: Option<R>,
        c: usize,
    ) -> bool {
        let lanes = match mask {
            Some(mask) => self.made.known.get(&mask).copied(),
            None => Some(self.all_lanes()),
        };
        let found = lanes.and_then(|lanes| self.registers_of(address, element, lanes, c));
        let Some(found) = found.filter(|_| self.facts.isa == Isa::Avx512) else { return false };
        for which in 0..found.firsts.len() {
            let first = found.firsts[which];
            let earlier = |word: u32| (0..which).any(|which| found.has(which, word, self.lanes()));
            // Of several at one place the last counts.
            let mut at_words: Vec<(u32, u32)> = Vec::new();
            for &(lane, word) in found.words.iter().filter(|&&(_, word)| found.has(which, word, self.lanes())) {
                if !earlier(word) {
                    at_words.retain(|&(other, _)| other != word - first);
                    at_words.push((word - first, lane));
                }
            }
            let (to, from): (Vec<u32>, Vec<u32>) = at_words.into_iter().unzip();
            let words = self.brought(src, &to, &from);
            let at = self.word_at(found.memory, first, R::NONE);
            let bits = to.iter().fold(0, |bits, word| bits | 1 << word);
            if bits == self.all_lanes() {
                self.push(M::VStore { op: ops::VMOVUPS_STORE, len: self.len(), src: words, at, mask: R::NONE });
                self.keep_cell(address.memory, at, self.lanes(), words);
            } else {
                self.store_bits(address.memory, words, at, bits);
            }
        }
        true
    }

    /// Loads words of a buffer, of the lanes of a mask and else zero, where lanes are known to lie in few rows: neighbours with neighbouring words.
    /// Buffers have fewer than 2³¹ words, so an index whose lane is not active may be less than nothing, but no other one wraps.
    pub(super) fn load_rows(
        &mut self,
        address: &Address,
        element: Element,
        at: At,
        mask: Option<R>,
        c: usize,
    ) -> Option<R> {
        let is_word = matches!(element, Element::U32 | Element::I32 | Element::F32);
        let &[(index, 4)] = &address.terms[..] else { return None };
        if !is_word
            || !matches!(address.memory, Memory::Buffer(_))
            || self.facts.isa == Isa::Simd128
            || !at.index.is_none()
        {
            return None;
        }
        let ends = |lane: &u32| self.apart(index, *lane, c, DEEP) != Some(1);
        let mut firsts: Vec<u32> = std::iter::once(0).chain((1..self.lanes()).filter(ends)).collect();
        if firsts.len() > MOST_ROWS {
            return None;
        }
        firsts.push(self.lanes());
        let mut all = R::NONE;
        for row in firsts.windows(2) {
            let mut place = self.at_lane(index, row[0], c, DEEP)?;
            if place.add.unsigned_abs() > FAR {
                place = Lin::reg(self.materialise(place));
            }
            let lanes = match (1 << row[1]) - (1 << row[0]) {
                lanes if lanes == self.all_lanes() => mask,
                lanes => {
                    let lanes = self.mask_known(lanes);
                    Some(mask.map_or(lanes, |mask| self.mask_and(lanes, mask)))
                }
            };
            let disp = at.disp.checked_add(place.add.checked_sub(row[0] as i32)?.checked_mul(4)?)?;
            let at = match place.reg {
                R::NONE => At { disp, ..at },
                reg => At { disp, index: self.extended(reg), scale: 4, ..at },
            };
            let words = self.load_contiguous(Element::U32.scalar(), at, lanes);
            all = if all.is_none() { words } else { self.vec(ops::VPORD, all, Src::R(words)) };
        }
        Some(all)
    }

    /// How far a lane's word is from that of the lane before, where that is known.
    fn apart(&self, value: Value, lane: u32, c: usize, deep: u32) -> Option<u32> {
        match self.shape_of(value).lane {
            Lane::Same => return Some(0),
            Lane::Affine(stride) => return Some(stride as u32),
            Lane::Vary => {}
        }
        if let (Some(own), Some(before)) = (self.known_lane(value, lane, c), self.known_lane(value, lane - 1, c)) {
            return Some(own.wrapping_sub(before));
        }
        let of = |value: &Value| self.apart(*value, lane, c, deep - 1);
        match self.facts.makers.ops[value.index()].filter(|_| deep > 0 && self.is_plain_word(value))? {
            Op::Binary(Binary::Add, a, b) => Some(of(a)?.wrapping_add(of(b)?)),
            Op::Binary(Binary::Sub, a, b) => Some(of(a)?.wrapping_sub(of(b)?)),
            Op::Binary(Binary::Mul, a, b) => match (of(a)?, of(b)?) {
                (0, 0) => Some(0),
                (apart, 0) => Some(apart.wrapping_mul(self.constant_of(*b, c)? as u32)),
                _ => None,
            },
            Op::Binary(Binary::Shl, a, by) => Some(of(a)?.wrapping_shl(self.constant_of(*by, c)? as u32)),
            Op::BitCast(a) if self.is_plain_word(*a) => of(a),
            _ => None,
        }
    }

    fn is_plain_word(&self, value: Value) -> bool {
        matches!(self.scalar_of(value), Scalar::U32 | Scalar::I32)
    }

    /// A lane's word as a scalar: a register that is the whole sum but for a small number.
    fn at_lane(&mut self, value: Value, lane: u32, c: usize, deep: u32) -> Option<Lin> {
        if let Some(word) = self.known_lane(value, lane, c) {
            return Some(Lin::imm(word as i32));
        }
        match self.shape_of(value).lane {
            Lane::Vary => {}
            shape => {
                let Rep::General(lin) = self.rep(value, 0, c) else { return None };
                let more = if let Lane::Affine(stride) = shape { stride.wrapping_mul(lane as i32) } else { 0 };
                return Some(lin.plus(more));
            }
        }
        match self.facts.makers.ops[value.index()].filter(|_| deep > 0 && self.is_plain_word(value))? {
            Op::Binary(op @ (Binary::Add | Binary::Sub | Binary::Mul), a, b) => {
                let (a, b) = (self.at_lane(*a, lane, c, deep - 1)?, self.at_lane(*b, lane, c, deep - 1)?);
                let other = match b.constant() {
                    Some(number) if *op == Binary::Add => return Some(a.plus(number)),
                    Some(number) => GSrc::Imm(number),
                    None => GSrc::R(self.materialise(b)),
                };
                let own = self.materialise(a);
                Some(Lin::reg(match op {
                    Binary::Add => self.alu(Alu::Add, false, own, other),
                    Binary::Sub => self.alu(Alu::Sub, false, own, other),
                    _ => self.product(false, own, other),
                }))
            }
            Op::Binary(Binary::Shl, a, by) => {
                let by = self.constant_of(*by, c)? as i32 & 31;
                let own = self.at_lane(*a, lane, c, deep - 1)?;
                let own = self.materialise(own);
                Some(Lin::reg(self.shifted(false, own, by)))
            }
            Op::BitCast(a) if self.is_plain_word(*a) => self.at_lane(*a, lane, c, deep - 1),
            _ => None,
        }
    }

    /// The registers that have the words of some lanes.
    fn registers_of(&self, address: &Address, element: Element, lanes: u32, c: usize) -> Option<Registers> {
        let Memory::Shared(memory) = address.memory else { return None };
        let is_word = matches!(element, Element::U32 | Element::I32 | Element::F32);
        if !is_word || self.facts.isa == Isa::Simd128 || self.regions.is_some() {
            return None;
        }
        let size = self.facts.kernel.shared[memory as usize].size;
        let mut words = Vec::new();
        for lane in (0..self.lanes()).filter(|lane| lanes >> lane & 1 != 0) {
            let mut bytes = u64::from(address.offset);
            for &(index, stride) in &address.terms {
                bytes += u64::from(self.known_lane(index, lane, c)?) * u64::from(stride);
            }
            // Who is outside does nothing, and is not known here.
            if bytes + 4 > u64::from(size) || bytes % 4 != 0 {
                return None;
            }
            words.push((lane, (bytes / 4) as u32));
        }
        let mut sorted: Vec<u32> = words.iter().map(|&(_, word)| word).collect();
        sorted.sort_unstable();
        let room = (size.next_multiple_of(64) / 4).saturating_sub(self.lanes());
        let mut firsts: Vec<u32> = Vec::new();
        for word in sorted {
            if firsts.last().is_none_or(|&first| word >= first + self.lanes()) {
                firsts.push(word.min(room));
            }
        }
        (!firsts.is_empty() && firsts.len() <= MOST_REGISTERS).then_some(Registers { memory, firsts, words })
    }
}

impl Registers {
    fn has(&self, which: usize, word: u32, lanes: u32) -> bool {
        let first = self.firsts[which];
        (first..first + lanes).contains(&word)
    }
}
