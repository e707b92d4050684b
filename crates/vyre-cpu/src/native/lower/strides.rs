//! Words of neighbouring lanes that are a few words apart, and vectors of four that are further apart than they are long: what is
//! between them is loaded with them, and sorted out in registers; a gather or a scatter would move each word alone.

use vyre_foundation::kernel::{Address, Element, Memory, Value};

use super::super::asm::{Len, Shift};
use super::super::isa::Isa;
use super::super::mir::{At, GSrc, LaneOp, M, R, Src};
use super::super::ops;
use super::cells::Kept;
use super::memory::Place;
use super::value::{Lin, Rep};
use super::{Lower, Made};

/// Lanes of a register.
const LANES: u32 = 16;

/// Most words from one lane to the next for which whole registers are moved.
const MOST_APART: u32 = 6;

/// Bytes from one vector of four to the next that a displacement reaches for all lanes.
const FURTHEST: i32 = 1 << 16;

/// Most words from one lane to the next for which the words of lanes that are in a mask have bits in a register.
const MOST_APART_IN_MASK: u32 = 4;

/// The first words of the registers that together have every so many-th word, and no word behind the last of these, not even where a
/// mask is in the way: a processor that loads what is behind would wait until the store is done.
fn starts(apart: u32) -> Vec<u32> {
    let last = (LANES - 1) * apart;
    (0..=last / LANES).map(|part| (part * LANES).min(last + 1 - LANES)).collect()
}

/// Where the words of all lanes are that the registers up to one have, in the last result and in that register.
fn found(apart: u32, part: usize) -> [u32; LANES as usize] {
    let starts = starts(apart);
    std::array::from_fn(|lane| {
        let (lane, word) = (lane as u32, apart * lane as u32);
        let is_in = |part: usize| (starts[part]..starts[part] + LANES).contains(&word);
        match (0..=part).find(|&part| is_in(part)) {
            Some(at) if at == part => LANES + word - starts[part],
            // The first result is a register as it was loaded.
            Some(0) if part == 1 => word,
            _ => lane,
        }
    })
}

impl<'k> Lower<'k> {
    /// The words of lanes that are a few words apart, of all of them or those of a mask and else zero; nothing where a gather is better.
    pub(super) fn load_apart(&mut self, at: At, step: i32, mask: Option<R>) -> Option<R> {
        let lanes = self.lanes();
        if let Some(mask) = mask {
            let apart = self.apart_in_mask(step)?;
            let masks = self.masks_of_words_apart(mask, apart);
            let mut all = R::NONE;
            for (part, (start, words)) in starts(apart).into_iter().zip(masks).enumerate() {
                let at = At { disp: at.disp + 4 * start as i32, ..at };
                let more = self.load_contiguous(Element::U32.scalar(), at, Some(words));
                all = if part == 0 { more } else { self.taken(all, more, found(apart, part)) };
            }
            return Some(all);
        }
        if step == -4 && self.facts.isa != Isa::Simd128 {
            // Backwards.
            let first = At { disp: at.disp - 4 * (lanes as i32 - 1), ..at };
            let words = self.load_contiguous(Element::U32.scalar(), first, None);
            let order = self.lanes_constant(&(0..lanes).rev().collect::<Vec<u32>>());
            return Some(self.vec(ops::VPERMD, order, Src::R(words)));
        }
        let apart = u32::try_from(step).ok().filter(|step| step % 4 == 0)? / 4;
        let load = |lower: &mut Self, start: u32| {
            lower.load_contiguous(Element::U32.scalar(), At { disp: at.disp + 4 * start as i32, ..at }, None)
        };
        if self.facts.isa == Isa::Avx2 && apart == 2 {
            // The second begins with the last word of the first, so that it ends with the last that is wanted.
            let (first, second) = (load(self, 0), load(self, 7));
            let mixed = self.vec_imm(ops::VSHUFPS, first, Src::R(second), 0xd8);
            return Some(self.vec_imm(ops::VPERMQ, R::NONE, Src::R(mixed), 0xd8));
        }
        if self.facts.isa == Isa::Avx2 && apart == 3 {
            let [first, second, third] = [0, 8, 14].map(|start| load(self, start));
            // The words of six lanes are at different places in two registers, those of two in the third.
            let six = self.vec_imm(ops::VPBLENDD, first, Src::R(second), 0b1001_0010);
            let (six_at, two_at) =
                (self.lanes_constant(&[0, 3, 6, 1, 4, 7, 0, 0]), self.lanes_constant(&[0, 0, 0, 0, 0, 0, 4, 7]));
            let six = self.vec(ops::VPERMD, six_at, Src::R(six));
            let two = self.vec(ops::VPERMD, two_at, Src::R(third));
            return Some(self.vec_imm(ops::VPBLENDD, six, Src::R(two), 0b1100_0000));
        }
        if self.facts.isa != Isa::Avx512 || !(2..=MOST_APART).contains(&apart) {
            return None;
        }
        let mut all = load(self, 0);
        for (part, &start) in starts(apart).iter().enumerate().skip(1) {
            let more = load(self, start);
            all = self.taken(all, more, found(apart, part));
        }
        Some(all)
    }

    /// How many words apart lanes are, where those of a mask can be moved with what is between them.
    fn apart_in_mask(&self, step: i32) -> Option<u32> {
        let apart = u32::try_from(step).ok().filter(|step| step % 4 == 0)? / 4;
        (self.facts.isa == Isa::Avx512 && (2..=MOST_APART_IN_MASK).contains(&apart)).then_some(apart)
    }

    /// The masks of the words, in each of the registers that these are in, of the lanes in a mask, so many words apart.
    fn masks_of_words_apart(&mut self, mask: R, apart: u32) -> Vec<R> {
        let starts = starts(apart);
        let made = |start: u32| Made::LanesApart(mask, apart, start);
        if let Some(words) = starts.iter().map(|&start| self.made.get(made(start))).collect() {
            return words;
        }
        let (lanes, places, bits) = (self.mask_bits(mask), self.general(), self.general());
        let every = (0..LANES).fold(0, |all, lane| all | 1 << (lane * apart));
        self.push(M::Imm { dst: places, value: every });
        self.push(M::Deposit { dst: bits, a: lanes, b: places });
        // The mask of active lanes changes where some of them leave a loop.
        let stays = !self.active.exec.contains(&Some(mask));
        starts
            .into_iter()
            .map(|start| {
                let (mut src, words) = (bits, self.new_mask());
                if start > 0 {
                    src = self.general();
                    let count = GSrc::Imm(start as i32);
                    self.push(M::Shift { op: Shift::Right, wide: true, dst: src, a: bits, count });
                }
                self.push(M::MaskFrom { dst: words, src });
                if stays {
                    self.remember(made(start), words);
                }
                words
            })
            .collect()
    }

    /// Stores the words of all lanes, or those of a mask, a few words apart, and nothing between them; false where a scatter is better.
    pub(super) fn store_apart(&mut self, memory: Memory, at: At, step: i32, src: R, mask: Option<R>) -> bool {
        let Some(apart) = u32::try_from(step).ok().filter(|step| step % 4 == 0).map(|step| step / 4) else {
            return false;
        };
        let some = mask.is_some() && self.apart_in_mask(step).is_none();
        if some || !self.is_apart(step) {
            return false;
        }
        let stored = self.known_lanes_of(mask);
        let masks = mask.map(|mask| self.masks_of_words_apart(mask, apart));
        for (part, start) in starts(apart).into_iter().enumerate() {
            let lanes = (start..start + LANES).map(|word| word.is_multiple_of(apart).then_some(word / apart));
            let words: Vec<(i32, Kept)> = (start..start + LANES)
                .zip(lanes.clone())
                .filter_map(|(word, lane)| Some((at.disp + 4 * word as i32, Kept { r: src, lane: lane? })))
                .filter(|(_, kept)| stored.is_some_and(|stored| stored >> kept.lane & 1 != 0))
                .collect();
            let bits = lanes.clone().enumerate().fold(0, |bits, (at, lane)| bits | u32::from(lane.is_some()) << at);
            // With an odd step the same order is good for all registers that begin at a multiple of their length.
            let same = |word: u32| (0..LANES).find(|&lane| lane * apart % LANES == word % LANES).unwrap_or(0);
            let order: Vec<u32> = match apart % 2 == 1 && start.is_multiple_of(LANES) {
                true => (0..LANES).map(same).collect(),
                false => lanes.map(|lane| lane.unwrap_or(0)).collect(),
            };
            let order = self.lanes_constant(&order);
            let sorted = self.vec(ops::VPERMD, order, Src::R(src));
            let mask = match &masks {
                Some(masks) => masks[part],
                None => self.mask_of_bits(bits),
            };
            let at = At { disp: at.disp + 4 * start as i32, ..at };
            self.push(M::VStore { op: ops::VMOVUPS_STORE, len: self.len(), src: sorted, at, mask });
            match stored {
                Some(_) => self.keep_words(memory, at, &words),
                None => self.note_write(memory),
            }
        }
        true
    }

    /// Lanes are so few words apart that whole registers are moved.
    pub(super) fn is_apart(&self, step: i32) -> bool {
        self.facts.isa == Isa::Avx512 && step % 4 == 0 && (2..=MOST_APART as i32).contains(&(step / 4))
    }

    pub(super) fn mask_of_bits(&mut self, bits: u32) -> R {
        if let Some(mask) = self.made.get(Made::Lanes(bits)) {
            return mask;
        }
        let (mask, r) = (self.new_mask(), self.materialise(Lin::imm(bits as i32)));
        self.push(M::MaskFrom { dst: mask, src: r });
        self.remember(Made::Lanes(bits), mask);
        mask
    }

    /// Where the first of vectors of four words lies that are a fixed distance apart.
    fn place_of_far_records(&mut self, address: &Address, element: Element, width: u8, c: usize) -> Option<(At, i32)> {
        let words = matches!(element, Element::U32 | Element::I32 | Element::F32);
        let here = self.facts.isa != Isa::Simd128 && width == 4 && words && !matches!(address.memory, Memory::Local(_));
        if !here || address.terms.iter().any(|&(index, _)| !self.is_scalar(index)) {
            return None;
        }
        match self.place(address, c)? {
            Place::Affine(at, step) if step > 16 && step <= FURTHEST => Some((at, step)),
            _ => None,
        }
    }

    /// Loads vectors of four words of all lanes that are a fixed distance apart; false where they are not, or not all lanes load.
    pub(super) fn load_far_records(
        &mut self,
        value: Value,
        address: &Address,
        element: Element,
        guard: Option<Value>,
        c: usize,
    ) -> bool {
        if self.guard_of(guard, c).is_some() || self.exec_of_sharers(value, c).is_some() {
            return false;
        }
        let Some((at, step)) = self.place_of_far_records(address, element, self.width_of(value), c) else {
            return false;
        };
        self.note_read(address.memory);
        if self.facts.isa == Isa::Avx2 {
            let words = self.load_fours(|_, lane| At { disp: at.disp + step * lane as i32, ..at });
            for (component, word) in (0..).zip(words) {
                self.set_rep(value, component, c, Rep::Vector(word, R::NONE));
            }
            return true;
        }
        let each = self.lanes() / 4;
        let loaded: Vec<R> = (0..4)
            .map(|part| {
                let of = |within: u32| At { disp: at.disp + step * (part * each + within) as i32, ..at };
                let dst = self.vector();
                self.push(M::Vec(LaneOp {
                    len: Len::L128,
                    ..self.lane_op(ops::VMOVUPS, dst, R::NONE, Src::At(of(0)))
                }));
                (1..each).fold(dst, |before, within| self.with_vector_of_four(before, of(within), within))
            })
            .collect();
        for (component, word) in self.words_of(loaded).into_iter().enumerate() {
            self.set_rep(value, component as u8, c, Rep::Vector(word, R::NONE));
        }
        true
    }

    /// A register with four words of memory as one of its vectors of four.
    pub(super) fn with_vector_of_four(&mut self, before: R, at: At, which: u32) -> R {
        let op = if self.facts.isa == Isa::Avx2 { ops::VINSERTI128 } else { ops::VINSERTF32X4 };
        self.vec_imm(op, before, Src::At(at), which as u8)
    }

    /// Stores vectors of four words of all lanes a fixed distance apart; false where they are not, or not all lanes store.
    pub(super) fn store_far_records(
        &mut self,
        address: &Address,
        element: Element,
        value: Value,
        mask: Option<R>,
        c: usize,
    ) -> bool {
        if mask.is_some() {
            return false;
        }
        let Some((at, step)) = self.place_of_far_records(address, element, self.width_of(value), c) else {
            return false;
        };
        let words: Vec<R> = (0..4).map(|component| self.vector_part(value, component, c, 0)).collect();
        let each = self.lanes() / 4;
        for (part, src) in self.vectors_of(&words).into_iter().enumerate() {
            for within in 0..each {
                let at = At { disp: at.disp + step * (part as u32 * each + within) as i32, ..at };
                match within {
                    0 => self.push(M::VStore { op: ops::VMOVUPS_STORE, len: Len::L128, src, at, mask: R::NONE }),
                    _ => self.push(M::StoreFour { src, at, which: within as u8 }),
                }
            }
        }
        self.note_write(address.memory);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_apart_are_found_and_nothing_behind_them_is_read() {
        for apart in 2..=MOST_APART {
            let starts = starts(apart);
            assert!(starts.iter().all(|start| start + LANES <= (LANES - 1) * apart + 1), "{apart}: {starts:?}");
            let register = |part: usize| (0..LANES).map(|lane| starts[part] + lane).collect::<Vec<_>>();
            let mut all = register(0);
            for part in 1..starts.len() {
                let both: Vec<u32> = all.iter().copied().chain(register(part)).collect();
                all = found(apart, part).iter().map(|&at| both[at as usize]).collect();
            }
            assert_eq!(all, (0..LANES).map(|lane| lane * apart).collect::<Vec<_>>(), "{apart}");
        }
    }
}
