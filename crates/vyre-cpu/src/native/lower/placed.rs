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
use super::cells::Kept;
use super::value::{Lin, Rep};

/// Most registers whose words are put in order; more take as long as a gather or a scatter.
const MOST_REGISTERS: usize = 2;

/// Most words that are spread over the lanes that have them.
const MOST_SPREAD: usize = 4;

/// Most rows that a vector is loaded of.
const MOST_ROWS: usize = 2;
/// The largest number that stays apart from the register that it is added to.
const FAR: u32 = 1 << 20;
/// Operations that an index may be made by.
pub(super) const DEEP: u32 = 8;

/// Registers of words in a row that have all of some lanes.
struct Registers {
    memory: u32,
    firsts: Vec<u32>,
    /// Lanes with their words.
    words: Vec<(u32, u32)>,
}

impl<'k> Lower<'k> {
    /// Which lanes a mask has, where that is known.
    pub(super) fn known_lanes_of(&self, mask: Option<R>) -> Option<u32> {
        let Some(mask) = mask else { return Some(self.all_lanes()) };
        let first = self.made.prefixes.get(&mask).map(|count| (1 << count) - 1);
        self.made.known.get(&mask).copied().or(first)
    }

    /// Words at known places, in the lanes of some bits, where all of them are in registers.
    pub(super) fn placed_cell(&mut self, address: &Address, element: Element, lanes: u32, c: usize) -> Option<R> {
        let (memory, places) = self.known_places(address, element, lanes, c)?;
        let mut words = vec![None; self.lanes() as usize];
        for (lane, word) in places {
            words[lane as usize] = Some(self.word_at(memory, word, R::NONE).disp);
        }
        self.words_of_cells(&words)
    }

    /// Words of the lanes of a mask are read where they lie.
    pub(super) fn note_read_placed(&mut self, address: &Address, element: Element, mask: Option<R>, c: usize) {
        let lanes = self.known_lanes_of(mask).unwrap_or(self.all_lanes());
        match self.known_places(address, element, lanes, c) {
            Some((memory, places)) => {
                let words: Vec<i32> =
                    places.iter().map(|&(_, word)| self.word_at(memory, word, R::NONE).disp).collect();
                self.note_read_words(memory, words.into_iter());
            }
            None => self.note_read(address.memory),
        }
    }

    /// Loads words at known places, of the lanes of a mask and else zero; nothing where they are not known or lie too far apart.
    pub(super) fn load_placed(&mut self, address: &Address, element: Element, mask: Option<R>, c: usize) -> Option<R> {
        let lanes = self.known_lanes_of(mask).unwrap_or(self.all_lanes());
        let (memory, places) = self.known_places(address, element, lanes, c)?;
        let found = self.registers_of(memory, places)?;
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

    /// Stores words at known places; false where they are not known.
    pub(super) fn store_placed(
        &mut self,
        address: &Address,
        element: Element,
        src: R,
        mask: Option<R>,
        c: usize,
    ) -> bool {
        let places = self.known_lanes_of(mask).and_then(|lanes| self.known_places(address, element, lanes, c));
        let Some((memory, places)) = places else { return false };
        self.store_at_places(memory, places, src);
        true
    }

    /// Stores words of lanes at their places; of several at one place the last counts.
    pub(super) fn store_at_places(&mut self, memory: u32, mut places: Vec<(u32, u32)>, src: R) {
        let all = places.clone();
        places.retain(|&(lane, word)| !all.iter().any(|&(other, at)| at == word && other > lane));
        if self.facts.isa == Isa::Avx2 {
            return self.store_one_by_one(memory, &places, src);
        }
        let Some(found) = self.registers_of(memory, places.clone()) else {
            return self.scatter_to_places(memory, &places, src);
        };
        for which in 0..found.firsts.len() {
            let first = found.firsts[which];
            let earlier = |word: u32| (0..which).any(|which| found.has(which, word, self.lanes()));
            let here = |&&(_, word): &&(u32, u32)| found.has(which, word, self.lanes()) && !earlier(word);
            let stored: Vec<(u32, u32)> = found.words.iter().filter(here).copied().collect();
            let (from, to): (Vec<u32>, Vec<u32>) = stored.iter().map(|&(lane, word)| (lane, word - first)).unzip();
            let words = self.brought(src, &to, &from);
            let at = self.word_at(memory, first, R::NONE);
            let mask = match to.iter().fold(0, |bits, word| bits | 1 << word) {
                bits if bits == self.all_lanes() => R::NONE,
                bits => self.mask_of_bits(bits),
            };
            self.push(M::VStore { op: ops::VMOVUPS_STORE, len: self.len(), src: words, at, mask });
            self.keep_places(memory, &stored, src);
        }
    }

    fn scatter_to_places(&mut self, memory: u32, places: &[(u32, u32)], src: R) {
        let mut indices = vec![0; self.lanes() as usize];
        places.iter().for_each(|&(lane, word)| indices[lane as usize] = word);
        let index = self.lanes_constant(&indices);
        let lanes = self.mask_of_bits(places.iter().fold(0, |bits, (lane, _)| bits | 1 << lane));
        let (at, mask) = (At { scale: 4, ..self.word_at(memory, 0, R::NONE) }, self.new_mask());
        // The instruction clears the mask that it is given.
        self.push(M::Mov { dst: mask, src: lanes });
        self.push(M::Scatter { op: ops::VPSCATTERDD, len: self.len(), src, at, index, mask });
        self.keep_places(memory, places, src);
    }

    fn store_one_by_one(&mut self, memory: u32, places: &[(u32, u32)], src: R) {
        let mut upper = R::NONE;
        for &(lane, word) in places {
            if lane >= 4 && upper.is_none() {
                upper = self.upper_half(src);
            }
            let (half, at) = (if lane < 4 { src } else { upper }, self.word_at(memory, word, R::NONE));
            self.push(M::StoreOne { bytes: 4, src: half, at, which: (lane % 4) as u8 });
            self.keep_places(memory, &[(lane, word)], src);
        }
    }

    /// The last instruction stored words of lanes at their places.
    fn keep_places(&mut self, memory: u32, places: &[(u32, u32)], src: R) {
        let at = |&(lane, word): &(u32, u32)| (self.word_at(memory, word, R::NONE).disp, Kept { r: src, lane });
        let words: Vec<(i32, Kept)> = places.iter().map(at).collect();
        self.keep_words(Memory::Shared(memory), self.word_at(memory, 0, R::NONE), &words);
    }

    /// Loads words of workgroup memory around a place that is only known when the kernel runs, from which each lane is a known distance, as in
    /// `tile[k][(t % 4u) * 4u]`: neighbours are one register, put in order, and a few words that lanes share are spread.
    pub(super) fn load_around(&mut self, address: &Address, element: Element, c: usize) -> Option<R> {
        let Memory::Shared(memory) = address.memory else { return None };
        let is_word = matches!(element, Element::U32 | Element::I32 | Element::F32);
        if !is_word || self.facts.isa == Isa::Simd128 || !address.offset.is_multiple_of(4) {
            return None;
        }
        let distances = self.distances(address, c)?;
        let (first, least) = distances.iter().copied().enumerate().min_by_key(|&(_, distance)| distance)?;
        let words: Vec<u32> = distances
            .iter()
            .map(|distance| u32::try_from(distance - least).ok().filter(|bytes| bytes % 4 == 0).map(|bytes| bytes / 4))
            .collect::<Option<_>>()?;
        let mut distinct = words.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let beside = distinct.iter().all(|&word| word < self.lanes());
        if !beside && distinct.len() > MOST_SPREAD {
            return None;
        }
        let at = self.word_of_lane(memory, address, first as u32, c)?;
        if beside {
            let bits = distinct.iter().fold(0, |bits, word| bits | 1 << word);
            let mask = (bits != self.all_lanes()).then(|| self.mask_known(bits));
            let loaded = self.load_contiguous(Element::U32.scalar(), at, mask);
            let lanes: Vec<u32> = (0..self.lanes()).collect();
            return Some(self.brought(loaded, &lanes, &words));
        }
        let mut all = R::NONE;
        for word in distinct {
            let at = At { disp: at.disp + 4 * word as i32, ..at };
            let one = self.vec(ops::VBROADCASTSS, R::NONE, Src::At(at));
            let bits =
                (0..self.lanes()).filter(|&lane| words[lane as usize] == word).fold(0, |bits, lane| bits | 1 << lane);
            all = if all.is_none() { one } else { self.with_lanes(all, one, bits) };
        }
        Some(all)
    }

    /// How many bytes each lane's place is behind that of the first, where that is known.
    pub(super) fn distances(&self, address: &Address, c: usize) -> Option<Vec<i64>> {
        let mut distances = vec![0i64];
        for lane in 1..self.lanes() {
            let further = |&(index, stride): &(Value, u32)| {
                let words = self.apart(index, lane, c, DEEP)?;
                Some(i64::from(words.cast_signed()) * i64::from(stride))
            };
            let further: i64 = address.terms.iter().map(further).sum::<Option<i64>>()?;
            distances.push(distances[lane as usize - 1] + further);
        }
        Some(distances)
    }

    /// Where a lane's word of workgroup memory lies. Places there are small numbers, whatever they were made of.
    fn word_of_lane(&mut self, memory: u32, address: &Address, lane: u32, c: usize) -> Option<At> {
        let (mut at, mut sum) = (self.word_at(memory, 0, R::NONE), R::NONE);
        let mut disp = i64::from(at.disp) + i64::from(address.offset);
        for &(index, stride) in &address.terms {
            let (mut place, stride) = (self.at_lane(index, lane, c, DEEP)?, stride.cast_signed());
            // The register alone is as small only where what is added to it is.
            if (i64::from(place.add) * i64::from(stride)).unsigned_abs() > u64::from(FAR) {
                place = Lin::reg(self.materialise(place));
            }
            disp += i64::from(place.add) * i64::from(stride);
            if !place.reg.is_none() {
                let bytes = self.product(false, place.reg, GSrc::Imm(stride));
                sum = if sum.is_none() { bytes } else { self.alu(Alu::Add, false, sum, GSrc::R(bytes)) };
            }
        }
        at.disp = i32::try_from(disp).ok()?;
        if !sum.is_none() {
            (at.index, at.scale) = (self.extended(sum), 1);
        }
        Some(at)
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
    pub(super) fn apart(&self, value: Value, lane: u32, c: usize, deep: u32) -> Option<u32> {
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
    pub(super) fn at_lane(&mut self, value: Value, lane: u32, c: usize, deep: u32) -> Option<Lin> {
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

    /// The words of a memory that some lanes are for, each with its lane, where they are known.
    pub(super) fn known_places(
        &self,
        address: &Address,
        element: Element,
        lanes: u32,
        c: usize,
    ) -> Option<(u32, Vec<(u32, u32)>)> {
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
        Some((memory, words))
    }

    /// The registers that have the words of some lanes.
    fn registers_of(&self, memory: u32, words: Vec<(u32, u32)>) -> Option<Registers> {
        let mut sorted: Vec<u32> = words.iter().map(|&(_, word)| word).collect();
        sorted.sort_unstable();
        let size = self.facts.kernel.shared[memory as usize].size;
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
