//! Additions to few words of workgroup memory at places that lanes find by themselves, as to the sums and the count of the nearest of sixteen
//! centres. One lane after the other, each would wait for the word that one before it changed; instead, each word takes what the lanes of
//! several vectors bring to it, all of its additions at once, and the sums of all words are put side by side.

use vyre_foundation::ir::AtomicOp;
use vyre_foundation::kernel::{Address, Inst, Memory, Scalar, Value};

use super::super::asm::Alu;
use super::super::context;
use super::super::isa::Isa;
use super::super::mir::{At, GSrc, LaneOp, M, R, Src};
use super::super::ops;
use super::Lower;
use super::memory::Place;

/// Vectors whose lanes are asked together, so that there are registers for them, their places, and sums.
const VECTORS: usize = 4;

/// Additions at the same places that are made of one question.
const ADDITIONS: usize = 3;

/// An addition to words of the workgroup, and the vectors that its lanes add.
struct Addition<'k> {
    op: AtomicOp,
    address: &'k Address,
    /// Where the first word lies that a lane may add to, and how many there are.
    first: u32,
    count: u32,
    lanes: Vec<R>,
}

/// What the atomics of a run have in common: how lanes find their words, and how many there are.
struct Words {
    /// Where lanes work, from where each addition's words begin.
    place: Address,
    guard: Option<Value>,
    /// Bytes from one word to the next.
    apart: u32,
    count: u32,
}

/// Lanes find the words of two atomics by the same numbers.
pub(super) fn has_same_places(a: &Inst, b: &Inst) -> bool {
    match (a, b) {
        (Inst::Atomic { address, guard, .. }, Inst::Atomic { address: other, guard: others, .. }) => {
            address.terms == other.terms && guard == others
        }
        _ => false,
    }
}

impl<'k> Lower<'k> {
    /// Does atomics at the same places, in any order, by the words that they change; false where there are too many words for that.
    pub(super) fn atomics_by_word(&mut self, atomics: &[&'k Inst], comps: &[usize]) -> bool {
        let Some(words) = self.few_words(atomics, comps) else { return false };
        for atomics in atomics.chunks(ADDITIONS) {
            for comps in comps.chunks(VECTORS) {
                self.add_by_word(&words, atomics, comps);
            }
        }
        true
    }

    fn few_words(&self, atomics: &[&'k Inst], comps: &[usize]) -> Option<Words> {
        let Inst::Atomic { address: first, guard, .. } = atomics.first()? else { return None };
        let apart = first.terms.iter().map(|&(_, stride)| stride).min()?;
        if apart == 0
            || !apart.is_multiple_of(4)
            || !first.terms.iter().all(|&(_, stride)| stride.is_multiple_of(apart))
        {
            return None;
        }
        let mut count = 0;
        for inst in atomics {
            let Inst::Atomic { op: AtomicOp::Add | AtomicOp::Sub, address, .. } = inst else { return None };
            count = count.max(self.words_within(address, apart)?);
        }
        // One by one each addition of a lane takes two to three steps of the processor. A word takes one to ask a vector, half a one for what
        // each addition brings, and three halves for each to put the sums of a few vectors together.
        let most = match (self.facts.isa, atomics.len(), comps.len()) {
            (Isa::Avx512, 1, 1) | (Isa::Simd128, ..) => 0,
            (Isa::Avx512, ..) => 16,
            (Isa::Avx2, 1, _) => 0,
            (Isa::Avx2, ..) => 8,
        };
        let place = Address { offset: 0, ..first.clone() };
        (count <= most).then_some(Words { place, guard: *guard, apart, count })
    }

    /// How many words that are so far apart an access to workgroup memory reaches.
    fn words_within(&self, address: &Address, apart: u32) -> Option<u32> {
        let Memory::Shared(index) = address.memory else { return None };
        let bytes = self.facts.kernel.shared[index as usize].size.checked_sub(address.offset)?;
        Some(bytes.div_ceil(apart))
    }

    fn add_by_word(&mut self, words: &Words, atomics: &[&'k Inst], comps: &[usize]) {
        let mark = self.enter_scope();
        let mut masks = Vec::new();
        let mut places = Vec::new();
        for &c in comps {
            let guard = self.guard_of(words.guard, c);
            masks.push(self.active(guard, c));
            places.push(self.offsets(&words.place, c));
        }
        let mut additions: Vec<Addition> = Vec::new();
        for inst in atomics {
            let Inst::Atomic { op, address, value: Some(value), .. } = inst else { continue };
            let (Some(first), Some(count)) = (self.own_words(address), self.words_within(address, words.apart)) else {
                continue;
            };
            let lanes = comps.iter().map(|&c| self.vector_of(*value, c)).collect();
            additions.push(Addition { op: *op, address, first: first + address.offset, count, lanes });
        }
        for begin in (0..words.count).step_by(self.lanes() as usize) {
            let here = begin..words.count.min(begin + self.lanes());
            let sums = self.sums_brought(words, here.clone(), &additions, &places, &masks);
            for (addition, sums) in additions.iter().zip(sums) {
                let own = addition.count.min(here.end).saturating_sub(begin);
                let first = (addition.first + begin * words.apart) as i32;
                match words.apart {
                    4 => self.add_side_by_side(addition, At::new(self.bases.shared, first), sums, own),
                    apart => self.add_apart(addition.op, first, apart, sums, own),
                }
            }
        }
        self.leave_scope(mark);
        for inst in atomics {
            if let Inst::Atomic { address, .. } = inst {
                self.note_read(address.memory);
                self.forget_cells(address.memory);
            }
        }
    }

    fn add_side_by_side(&mut self, addition: &Addition<'k>, at: At, sums: R, count: u32) {
        let mask = (count < self.lanes()).then(|| self.mask_known((1 << count) - 1));
        self.note_read(addition.address.memory);
        let old = self.load_contiguous(Scalar::U32, at, mask);
        let op = if addition.op == AtomicOp::Sub { ops::VPSUBD } else { ops::VPADDD };
        let new = self.vec(op, old, Src::R(sums));
        self.store_vector(addition.address, Scalar::U32, Place::Affine(at, 4), [new, R::NONE], mask);
    }

    fn add_apart(&mut self, op: AtomicOp, first: i32, apart: u32, sums: R, count: u32) {
        let scratch = self.scratch();
        self.put_scratch(scratch, context::PLACES, sums);
        let op = if op == AtomicOp::Sub { Alu::Sub } else { Alu::Add };
        for word in 0..count as i32 {
            let sum = self.general();
            self.push(M::Load { bytes: 4, signed: false, dst: sum, at: At::new(scratch, context::PLACES + 4 * word) });
            let at = At::new(self.bases.shared, first + word * apart as i32);
            self.push(M::Update { op, at, b: GSrc::R(sum), whole: false });
        }
    }

    /// For each addition a vector with the sum of what lanes bring to each of some words, of no more than a vector has.
    fn sums_brought(
        &mut self,
        words: &Words,
        here: std::ops::Range<u32>,
        additions: &[Addition<'k>],
        places: &[R],
        masks: &[Option<R>],
    ) -> Vec<R> {
        // Two vectors are put together as soon as both are there, as one adds to a binary number, so that few wait.
        let mut waiting: Vec<(u32, Option<Vec<R>>)> = Vec::new();
        for word in here.start..here.start + self.lanes() {
            let mut sums = (word < here.end).then(|| self.brought_to(word * words.apart, additions, places, masks));
            let mut level = 0;
            while let Some((_, before)) = waiting.pop_if(|(other, _)| *other == level) {
                // Behind the last word there is nothing to add.
                sums = before.map(|before| {
                    let after = sums.unwrap_or_else(|| vec![self.constant(0); additions.len()]);
                    before.into_iter().zip(after).map(|(a, b)| self.side_by_side_sums(a, b, level)).collect()
                });
                level += 1;
            }
            waiting.push((level, sums));
        }
        waiting.pop().and_then(|(_, sums)| sums).unwrap_or_default()
    }

    /// What lanes bring to the word at an offset, lane by lane over several vectors, for each addition.
    fn brought_to(&mut self, offset: u32, additions: &[Addition<'k>], places: &[R], masks: &[Option<R>]) -> Vec<R> {
        let mut sums = vec![R::NONE; additions.len()];
        let here = self.constant(offset);
        for (vector, (&place, mask)) in places.iter().zip(masks).enumerate() {
            let own = match mask {
                Some(mask) if self.facts.isa == Isa::Avx512 => {
                    let own = self.new_mask();
                    let compare =
                        LaneOp { imm: Some(0), mask: *mask, ..self.lane_op(ops::VPCMPD, own, place, Src::R(here)) };
                    self.push(M::Vec(compare));
                    own
                }
                Some(mask) => {
                    let equal = self.mask_of_equal(place, here);
                    self.mask_and(equal, *mask)
                }
                None => self.mask_of_equal(place, here),
            };
            for (sum, addition) in sums.iter_mut().zip(additions) {
                let brought = addition.lanes[vector];
                *sum = match (self.facts.isa, sum.is_none()) {
                    (_, true) => self.masked_zero(brought, own),
                    (Isa::Avx512, _) => {
                        let keeps = LaneOp { mask: own, ..self.lane_op(ops::VPADDD, *sum, *sum, Src::R(brought)) };
                        self.push(M::Vec(keeps));
                        *sum
                    }
                    _ => {
                        let brought = self.masked_zero(brought, own);
                        self.vec(ops::VPADDD, *sum, Src::R(brought))
                    }
                };
            }
        }
        sums
    }

    /// Half of the work of adding all lanes of two vectors, whose sums come to lie side by side: neighbours first, then fours, and so on.
    fn side_by_side_sums(&mut self, a: R, b: R, level: u32) -> R {
        let [left, right] = match level {
            0 => [ops::VUNPCKLPS, ops::VUNPCKHPS].map(|op| self.vec(op, a, Src::R(b))),
            1 => [0x44, 0xee].map(|order| self.vec_imm(ops::VSHUFPS, a, Src::R(b), order)),
            _ if self.facts.isa == Isa::Avx2 => {
                [0x20, 0x31].map(|order| self.vec_imm(ops::VPERM2F128, a, Src::R(b), order))
            }
            _ => [0x88, 0xdd].map(|order| self.vec_imm(ops::VSHUFF32X4, a, Src::R(b), order)),
        };
        self.vec(ops::VPADDD, left, Src::R(right))
    }
}
