//! Words of workgroup memory at places that are known for each lane, though they don't lie in a row, as in a tile whose rows are shorter
//! than a vector: the few registers that have all of them are moved, and words are put in order there.

use vyre_foundation::kernel::{Address, Element, Memory};

use super::super::isa::Isa;
use super::super::mir::{M, R, Src};
use super::super::ops;
use super::Lower;

/// Most registers whose words are put in order; more take as long as a gather or a scatter.
const MOST_REGISTERS: usize = 2;

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
