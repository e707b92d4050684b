//! Atomics, one lane after another, or put together where lanes meet at one word. A workgroup runs on one thread, so that on its memory
//! they are plain operations.

use vyre_foundation::ir::AtomicOp;
use vyre_foundation::kernel::{Address, Element, Inst, Memory, Scalar, Value};

use super::super::asm::{Alu, Cond, Len, VOp};
use super::super::context::{self, COLUMN};
use super::super::isa::Isa;
use super::super::mir::{At, GSrc, M, R, Src};
use super::super::ops;
use super::super::shape::Lane;
use super::Lower;
use super::few_words::has_same_places;
use super::memory::Place;
use super::value::Rep;

/// Workgroup memory in which lanes often meet.
const FEW_BYTES: u32 = 128;

/// An atomic on memory of the thread, for one vector.
#[derive(Clone, Copy)]
struct Placed {
    scratch: R,
    /// Column of the scratch memory.
    at: i32,
    mask: Option<R>,
    /// The same for all lanes, or none where each lane's is in the column.
    value: Option<Option<GSrc>>,
}

/// Bytes behind the workgroup memory that lanes write which have nothing to write.
pub(in super::super) const SPILL: usize = 64;

/// The instruction that does it to a word of memory.
fn plain(op: AtomicOp) -> Option<Alu> {
    match op {
        AtomicOp::Add => Some(Alu::Add),
        AtomicOp::Sub => Some(Alu::Sub),
        AtomicOp::And => Some(Alu::And),
        AtomicOp::Or => Some(Alu::Or),
        AtomicOp::Xor => Some(Alu::Xor),
        _ => None,
    }
}

/// The instruction that puts the values of two lanes together, and the value that changes nothing.
fn united(op: AtomicOp, element: Element) -> Option<(VOp, u32)> {
    match (op, element) {
        // What is taken away is the sum.
        (AtomicOp::Add | AtomicOp::Sub, Element::U32 | Element::I32) => Some((ops::VPADDD, 0)),
        (AtomicOp::And, Element::U32 | Element::I32) => Some((ops::VPANDD, u32::MAX)),
        (AtomicOp::Or, Element::U32 | Element::I32) => Some((ops::VPORD, 0)),
        (AtomicOp::Xor, Element::U32 | Element::I32) => Some((ops::VPXORD, 0)),
        (AtomicOp::Min, Element::U32) => Some((ops::VPMINUD, u32::MAX)),
        (AtomicOp::Min, Element::I32) => Some((ops::VPMINSD, i32::MAX as u32)),
        (AtomicOp::Max, Element::U32) => Some((ops::VPMAXUD, 0)),
        (AtomicOp::Max, Element::I32) => Some((ops::VPMAXSD, i32::MIN as u32)),
        _ => None,
    }
}

/// A value takes the place of the old one if this holds between them.
fn takes(op: AtomicOp, element: Element) -> Cond {
    match (op, element) {
        (AtomicOp::Min, Element::I32) => Cond::Less,
        (AtomicOp::Min, _) => Cond::Below,
        (_, Element::I32) => Cond::Greater,
        _ => Cond::Above,
    }
}

fn is_word_of_buffer(address: &Address, element: Element) -> bool {
    matches!(address.memory, Memory::Buffer(_)) && matches!(element, Element::U32 | Element::I32)
}

impl<'k> Lower<'k> {
    /// It can be done with instructions, in the order of the lanes.
    fn is_own_atomic(&self, op: AtomicOp, address: &Address, element: Element) -> bool {
        let apart = !self.is_one_place(address);
        let moves = apart && matches!(op, AtomicOp::Store | AtomicOp::Load);
        let here = self.own_words(address).is_some() && (apart || matches!(address.memory, Memory::Shared(_)));
        here && matches!(element, Element::U32 | Element::I32) && !moves
    }

    /// Lanes change one word, so that what they bring can be put together.
    fn meets(&self, op: AtomicOp, address: &Address, element: Element) -> bool {
        self.facts.isa != Isa::Simd128 && united(op, element).is_some() && self.is_one_place(address)
    }

    /// An atomic that is done for several vectors at once.
    pub(super) fn is_together(&self, inst: &Inst) -> bool {
        let Inst::Atomic { op, address, element, result, .. } = inst else { return false };
        self.is_own_atomic(*op, address, *element) || result.is_none() && self.meets(*op, address, *element)
    }

    /// An atomic on memory of the thread, or on one word, for several vectors; false where it is none. All places are put down before the first is
    /// needed, because the processor waits for a word of a vector that was just written.
    pub(super) fn atomics_together(&mut self, inst: &'k Inst, comps: &[usize]) -> bool {
        let Inst::Atomic { op, address, element, value, compare, result, guard } = inst else { return false };
        if self.meeting_atomic(inst, comps) {
            return true;
        }
        if !self.is_own_atomic(*op, address, *element) {
            return false;
        }
        if let (AtomicOp::Add | AtomicOp::Sub, Some(value), Some(result)) = (op, value, result)
            && self.is_one_place(address)
        {
            let Some(places) = self.same_places(address, true, comps.iter().copied()) else { return false };
            for (&c, at) in comps.iter().zip(places) {
                let guard = self.guard_of(*guard, c);
                let mask = self.active(guard, c);
                let rep = self.count_on(*op, at, *value, mask, false, c);
                self.set_rep(*result, 0, c, rep);
            }
            self.note_read(address.memory);
            self.forget_cells(address.memory);
            return true;
        }
        if self.is_free(inst).is_some() && self.atomics_by_word(&[inst], comps) {
            return true;
        }
        let apart: Vec<usize> = comps.iter().copied().filter(|&c| !self.line_atomic(inst, c)).collect();
        for together in apart.chunks(context::PLACED_VECTORS) {
            let place = |this: &mut Self, number, c| this.place_atomic(address, *value, *guard, number, c);
            let placed: Vec<Placed> = together.iter().enumerate().map(|(number, &c)| place(self, number, c)).collect();
            for (placed, &c) in placed.into_iter().zip(together) {
                self.own_atomic(*op, address, *element, *compare, *result, placed, c);
            }
        }
        true
    }

    /// An atomic without an old value on words of the thread's memory that lanes find by themselves: it doesn't matter when it is done among
    /// others with the same instruction.
    fn is_free(&self, inst: &Inst) -> Option<(Memory, AtomicOp)> {
        match inst {
            Inst::Atomic { op, address, element, value: Some(_), result: None, .. }
                if plain(*op).is_some()
                    && self.is_own_atomic(*op, address, *element)
                    && !self.is_one_place(address)
                    && !self.is_side_by_side(address, 4) =>
            {
                // What is taken away is added, too.
                Some((address.memory, if *op == AtomicOp::Sub { AtomicOp::Add } else { *op }))
            }
            _ => None,
        }
    }

    /// An atomic may be done together with another one, lane by lane or all of one first.
    fn may_mix(&self, inst: &Inst, other: &Inst) -> bool {
        match (self.is_free(inst), self.is_free(other)) {
            (Some((memory, op)), Some((other, others_op))) => memory != other || op == others_op,
            _ => false,
        }
    }

    /// An atomic may be done together with all that a run does to memory.
    pub(super) fn joins_atomics(&self, run: &[&'k Inst], inst: &Inst) -> bool {
        let free = self.is_free(inst).is_some();
        free && run.iter().all(|other| matches!(other, Inst::Let(..)) || self.may_mix(inst, other))
    }

    /// Puts an atomic behind those of a run that it may be done together with, with nothing between them.
    pub(super) fn join_atomics(&self, run: &mut Vec<&'k Inst>, inst: &'k Inst) {
        if self.joins_atomics(run, inst) {
            // None of them makes a value.
            run.sort_by_key(|other| !matches!(other, Inst::Let(..)));
        }
        run.push(inst);
    }

    /// How many steps of a run, from one on, are done together.
    pub(super) fn atomics_in_a_row(&self, run: &[&'k Inst]) -> usize {
        let mixes =
            |at: usize| self.is_free(run[at]).is_some() && (0..at).all(|before| self.may_mix(run[at], run[before]));
        (0..run.len()).take_while(|&at| mixes(at)).count()
    }

    /// Several atomics that may be done in any order.
    pub(super) fn atomics_in_any_order(&mut self, atomics: &[&'k Inst], comps: &[usize]) {
        let mut by_lane = Vec::new();
        for alike in atomics.chunk_by(|a, b| has_same_places(a, b)) {
            if !self.atomics_by_word(alike, comps) {
                by_lane.extend(alike);
            }
        }
        self.atomics_by_lane(&by_lane, comps);
    }

    /// Several atomics, all of one lane before those of the next. One after the other for all lanes, each would often wait for a
    /// lane just before it that changed the same word.
    fn atomics_by_lane(&mut self, atomics: &[&'k Inst], comps: &[usize]) {
        let few = atomics.iter().any(|inst| match inst {
            Inst::Atomic { address: Address { memory: Memory::Shared(index), .. }, .. } => {
                self.facts.kernel.shared[*index as usize].size <= FEW_BYTES
            }
            _ => false,
        });
        for atomics in atomics.chunks(context::PLACED_VECTORS) {
            for together in comps.chunks(context::PLACED_VECTORS / atomics.len()) {
                let mut placed = Vec::with_capacity(together.len() * atomics.len());
                for &c in together {
                    for inst in atomics {
                        let Inst::Atomic { op, address, value, guard, .. } = inst else { continue };
                        let (Some(op), Some(first)) = (plain(*op), self.own_words(address)) else { continue };
                        placed.push((op, first, self.place_atomic(address, *value, *guard, placed.len(), c)));
                    }
                }
                for placed in placed.chunks(atomics.len()) {
                    if few {
                        self.loop_over_lanes(placed);
                        continue;
                    }
                    for lane in 0..self.lanes() as i32 {
                        self.update_by_lane(placed, |scratch, at| At::new(scratch, at + 4 * lane));
                    }
                }
            }
        }
        for inst in atomics {
            if let Inst::Atomic { address, .. } = inst {
                self.note_read(address.memory);
                self.forget_cells(address.memory);
            }
        }
    }

    /// The same in a loop. Among few words a lane often needs what one just before it stored, which processors foresee by where a load is in the
    /// code: written out for every lane, they learn nothing.
    fn loop_over_lanes(&mut self, placed: &[(Alu, u32, Placed)]) {
        let (lane, again) = (self.general(), self.label());
        self.push(M::Imm { dst: lane, value: 0 });
        self.bind(again);
        let mark = self.enter_scope();
        self.update_by_lane(placed, |scratch, at| At { index: lane, ..At::new(scratch, at) });
        self.leave_scope(mark);
        self.push(M::Alu { op: Alu::Add, wide: false, dst: lane, a: lane, b: GSrc::Imm(4) });
        self.push(M::Cmp { wide: false, a: lane, b: GSrc::Imm(4 * self.lanes() as i32) });
        self.push(M::JumpIf(Cond::Below, again));
    }

    /// Several atomics of one lane, whose words lie where `lane_at` says in a column of the scratch memory.
    fn update_by_lane(&mut self, placed: &[(Alu, u32, Placed)], lane_at: impl Fn(R, i32) -> At) {
        for &(op, first, Placed { scratch, at: column, value, .. }) in placed {
            let place = self.general();
            self.push(M::Load { bytes: 4, signed: false, dst: place, at: lane_at(scratch, column) });
            let at = At { base: self.bases.shared, index: place, scale: 1, disp: first as i32 };
            let b = self.of_lane(value.flatten(), lane_at(scratch, column + COLUMN / 2));
            self.push(M::Update { op, at, b, whole: false });
        }
    }

    /// An addition to words of the thread's memory that lie side by side, as one of vectors; false where it is none.
    fn line_atomic(&mut self, inst: &'k Inst, c: usize) -> bool {
        let Inst::Atomic { op, address, element, value: Some(value), result: None, guard, .. } = inst else {
            return false;
        };
        let code = match op {
            AtomicOp::Add => ops::VPADDD,
            AtomicOp::Sub => ops::VPSUBD,
            _ => return false,
        };
        if !self.is_side_by_side(address, 4) || self.own_words(address).is_none() {
            return false;
        }
        let place = self.own_place(address, c);
        let Some(Place::Affine(at, 4)) = place else { return false };
        let guard = self.guard_of(*guard, c);
        let mask = self.active(guard, c);
        self.note_read(address.memory);
        let old = self.load_contiguous(element.scalar(), at, mask);
        let by = self.vector_of(*value, c);
        let new = self.vec(code, old, Src::R(by));
        self.store_vector(address, element.scalar(), Place::Affine(at, 4), [new, R::NONE], mask);
        true
    }

    /// All lanes of a vector work on one word.
    fn is_one_place(&self, address: &Address) -> bool {
        address.terms.iter().all(|&(index, _)| self.shape_of(index).lane == Lane::Same)
    }

    /// Where an address lies in memory of the thread, if it does.
    fn own_place(&mut self, address: &Address, c: usize) -> Option<Place> {
        let first = self.own_words(address)?;
        let Memory::Buffer(index) = address.memory else { return self.place(address, c) };
        // The words of a buffer's sums are found like those of the buffer.
        let own = self.alu(Alu::Add, true, self.bases.shared, GSrc::Imm(first as i32));
        let base = self.bases.buffers[index as usize].replace(own);
        let place = self.place(address, c);
        self.bases.buffers[index as usize] = base;
        place
    }

    /// The words at which the lanes of some vectors meet; none where one is out of an instruction's reach.
    fn same_places(&mut self, address: &Address, is_own: bool, comps: impl Iterator<Item = usize>) -> Option<Vec<At>> {
        comps
            .map(|c| match if is_own { self.own_place(address, c) } else { self.place(address, c) } {
                Some(Place::Same(at)) => Some(at),
                _ => None,
            })
            .collect()
    }

    /// An atomic whose lanes meet at one word and need no old value: what they bring is put together, and the word is changed once. False
    /// where it is none.
    fn meeting_atomic(&mut self, inst: &'k Inst, comps: &[usize]) -> bool {
        let Inst::Atomic { op, address, element, value: Some(value), result: None, guard, .. } = inst else {
            return false;
        };
        let Some((code, nothing)) = united(*op, *element) else { return false };
        if !self.meets(*op, address, *element) {
            return false;
        }
        // The same from all lanes is no more than from one.
        let is_one = matches!(op, AtomicOp::And | AtomicOp::Or | AtomicOp::Min | AtomicOp::Max)
            && self.shape_of(*value).is_uniform();
        // The same for each lane is as often as there are lanes.
        let is_count = matches!(op, AtomicOp::Add | AtomicOp::Sub)
            && matches!(element, Element::U32 | Element::I32)
            && self.shape_of(*value).is_uniform()
            && self.facts.isa != Isa::Simd128;
        let is_own = self.own_words(address).is_some();
        let is_whole = address.terms.iter().all(|&(index, _)| self.shape_of(index).is_uniform());
        let together: Vec<&[usize]> = if is_whole { vec![comps] } else { comps.chunks(1).collect() };
        let firsts = together.iter().map(|comps| comps[0]);
        let Some(places) = self.same_places(address, is_own, firsts) else { return false };
        for (comps, at) in together.into_iter().zip(places) {
            let masks: Vec<Option<R>> = (comps.iter())
                .map(|&c| {
                    let guard = self.guard_of(*guard, c);
                    self.active(guard, c)
                })
                .collect();
            let done = self.label();
            if let Some(masks) = masks.iter().copied().collect::<Option<Vec<R>>>() {
                self.jump_if_none(&masks, done);
            }
            let (mark, cells) = (self.enter_scope(), self.workgroup.cells.clone());
            let value = match self.one_operand(*value, comps[0]).filter(|_| is_one) {
                Some(one) => self.in_register(one),
                None if is_count && masks.iter().all(Option::is_some) => {
                    let masks: Vec<R> = masks.into_iter().flatten().collect();
                    self.times_lanes(*value, &masks, comps[0])
                }
                None => {
                    let lanes: Vec<R> = (comps.iter().zip(masks))
                        .map(|(&c, mask)| {
                            let lanes = self.vector_of(*value, c);
                            mask.map_or(lanes, |mask| self.or_nothing(lanes, mask, nothing))
                        })
                        .collect();
                    let all = lanes.into_iter().reduce(|all, lanes| self.vec(code, all, Src::R(lanes)));
                    self.lanes_together(code, all.unwrap_or(R::NONE))
                }
            };
            self.change_word(*op, *element, at, value, is_own);
            self.leave_scope(mark);
            self.bind(done);
            self.workgroup.cells = cells;
        }
        self.note_read(address.memory);
        self.forget_cells(address.memory);
        true
    }

    /// A number as often as there are lanes in some masks.
    fn times_lanes(&mut self, value: Value, masks: &[R], c: usize) -> R {
        let mut count = R::NONE;
        for &mask in masks {
            let (bits, lanes) = (self.mask_bits(mask), self.general());
            self.push(M::CountOnes { dst: lanes, src: bits });
            count = if count.is_none() { lanes } else { self.alu(Alu::Add, false, count, GSrc::R(lanes)) };
        }
        match self.one_operand(value, c) {
            Some(GSrc::Imm(1)) => count,
            Some(by) => self.product(false, count, by),
            None => {
                let by = self.scalar_reg(value, c);
                self.product(false, count, GSrc::R(by))
            }
        }
    }

    /// The lanes of a mask, and what changes nothing elsewhere.
    fn or_nothing(&mut self, lanes: R, mask: R, nothing: u32) -> R {
        if nothing == 0 {
            return self.masked_zero(lanes, mask);
        }
        let nothing = self.constant(nothing);
        self.blend(Scalar::U32, mask, Src::R(lanes), false, nothing)
    }

    /// All lanes of a vector put together.
    fn lanes_together(&mut self, code: VOp, lanes: R) -> R {
        let mut all = lanes;
        match self.facts.isa {
            Isa::Avx512 => {
                for by in [8, 4, 2, 1] {
                    let turned = self.vec_imm(ops::VALIGND, all, Src::R(all), by);
                    all = self.vec(code, all, Src::R(turned));
                }
            }
            _ => {
                for (turn, by) in [(ops::VPERM2F128, 0x01), (ops::VSHUFPS, 0x4e), (ops::VSHUFPS, 0xb1)] {
                    let turned = self.vec_imm(turn, all, Src::R(all), by);
                    all = self.vec(code, all, Src::R(turned));
                }
            }
        }
        let value = self.general();
        self.push(M::First { wide: false, dst: value, src: all });
        value
    }

    /// One change of a word that is the thread's own, or that others change too.
    fn change_word(&mut self, op: AtomicOp, element: Element, at: At, value: R, is_own: bool) {
        if let Some(op) = plain(op) {
            self.push(M::Update { op, at, b: GSrc::R(value), whole: !is_own });
            return;
        }
        let (old, done) = (self.general(), self.label());
        self.push(M::Load { bytes: 4, signed: false, dst: old, at });
        let again = self.label();
        if !is_own {
            self.bind(again);
        }
        self.push(M::Cmp { wide: false, a: value, b: GSrc::R(old) });
        self.push(M::JumpIf(takes(op, element).inverse(), done));
        if is_own {
            self.push(M::Store { bytes: 4, src: value, at });
        } else {
            // Until nobody else was there between the look and the change.
            let found = self.general();
            self.push(M::CompareExchange { dst: found, at, compare: old, b: value });
            self.push(M::Cmp { wide: false, a: found, b: GSrc::R(old) });
            self.push(M::Mov { dst: old, src: found });
            self.push(M::JumpIf(Cond::NotEqual, again));
        }
        self.bind(done);
    }

    /// Puts down where the lanes of a vector work, and with what.
    fn place_atomic(
        &mut self,
        address: &'k Address,
        value: Option<Value>,
        guard: Option<Value>,
        number: usize,
        c: usize,
    ) -> Placed {
        let guard = self.guard_of(guard, c);
        let mask = self.active(guard, c);
        let (scratch, at) = (self.scratch(), context::PLACES + number as i32 * COLUMN);
        let mut offsets = self.offsets(address, c);
        if let (Some(mask), Some(first)) = (mask, self.own_words(address)) {
            // Lanes that are not here work on a word of their own.
            let nowhere = self.constant(self.frame.shared_bytes - first);
            offsets = self.blend(Scalar::U32, mask, Src::R(offsets), false, nowhere);
        }
        self.put_scratch(scratch, at, offsets);
        let value = value.map(|value| {
            let one = self.one_operand(value, c);
            if one.is_none() {
                let lanes = self.vector_of(value, c);
                self.put_scratch(scratch, at + COLUMN / 2, lanes);
            }
            one
        });
        Placed { scratch, at, mask, value }
    }

    /// An atomic on memory of the thread as instructions.
    #[allow(clippy::too_many_arguments)]
    fn own_atomic(
        &mut self,
        op: AtomicOp,
        address: &'k Address,
        element: Element,
        compare: Option<Value>,
        result: Option<Value>,
        placed: Placed,
        c: usize,
    ) {
        let Some(first) = self.own_words(address) else { return };
        let Placed { scratch, at: column, mask, value } = placed;
        let compare = compare.map(|compare| self.atomic_operand(scratch, 2, compare, c));
        for lane in 0..self.lanes() {
            let place = self.general();
            let lane_at = |at: i32| At::new(scratch, at + 4 * lane as i32);
            self.push(M::Load { bytes: 4, signed: false, dst: place, at: lane_at(column) });
            let at = At { base: self.bases.shared, index: place, scale: 1, disp: first as i32 };
            let value = value.map(|operand| self.of_lane(operand, lane_at(column + COLUMN / 2)));
            let compare = compare.map(|operand| self.of_lane(operand, lane_at(2 * COLUMN)));
            if let (None, Some(op), Some(value)) = (result, plain(op), value) {
                self.push(M::Update { op, at, b: value, whole: false });
                continue;
            }
            let old = self.general();
            if op != AtomicOp::Store && (op != AtomicOp::Exchange || result.is_some()) {
                self.push(M::Load { bytes: 4, signed: false, dst: old, at });
            }
            let new = match (op, value) {
                (AtomicOp::Load, _) | (_, None) => None,
                (AtomicOp::Store | AtomicOp::Exchange, Some(value)) => Some(value),
                (AtomicOp::Add, Some(value)) => Some(self.combined(Alu::Add, old, value)),
                (AtomicOp::Sub, Some(value)) => Some(self.combined(Alu::Sub, old, value)),
                (AtomicOp::And, Some(value)) => Some(self.combined(Alu::And, old, value)),
                (AtomicOp::Or, Some(value)) => Some(self.combined(Alu::Or, old, value)),
                (AtomicOp::Xor, Some(value)) => Some(self.combined(Alu::Xor, old, value)),
                (AtomicOp::Min | AtomicOp::Max, Some(value)) => {
                    let value = self.in_register(value);
                    let compare = M::Cmp { wide: false, a: value, b: GSrc::R(old) };
                    Some(self.either(compare, takes(op, element), value, old))
                }
                (AtomicOp::CompareExchange, Some(value)) => {
                    let value = self.in_register(value);
                    let compare = compare.unwrap_or(GSrc::Imm(0));
                    Some(self.either(M::Cmp { wide: false, a: old, b: compare }, Cond::Equal, value, old))
                }
            };
            if let Some(new) = new {
                let src = self.in_register(new);
                self.push(M::Store { bytes: 4, src, at });
            }
            if result.is_some() {
                let at = At::new(scratch, context::RESULT + 4 * lane as i32);
                self.push(M::Store { bytes: 4, src: old, at });
            }
        }
        self.note_read(address.memory);
        self.forget_cells(address.memory);
        if let Some(result) = result {
            let mut rep = self.take_scratch(scratch, element.scalar());
            if let (Some(mask), Rep::Vector(v, high)) = (mask, rep) {
                rep = Rep::Vector(self.masked_zero(v, mask), high);
            }
            self.set_rep(result, 0, c, rep);
        }
    }

    /// The lanes whose minimum, maximum or bits change words of a buffer that lie apart, by a look at what is there; `None` where there
    /// is no such look. An atomic that changes nothing is as good as a load, and most of these change nothing.
    pub(super) fn lanes_that_change(
        &mut self,
        op: AtomicOp,
        address: &'k Address,
        element: Element,
        value: Value,
        mask: Option<R>,
        c: usize,
    ) -> Option<R> {
        let code = match (op, element) {
            (AtomicOp::Min, Element::U32) => ops::VPMINUD,
            (AtomicOp::Min, Element::I32) => ops::VPMINSD,
            (AtomicOp::Max, Element::U32) => ops::VPMAXUD,
            (AtomicOp::Max, Element::I32) => ops::VPMAXSD,
            (AtomicOp::And, Element::U32 | Element::I32) => ops::VPANDD,
            (AtomicOp::Or, Element::U32 | Element::I32) => ops::VPORD,
            _ => return None,
        };
        if self.is_one_place(address) || !matches!(address.memory, Memory::Buffer(_)) {
            return None;
        }
        let old = match self.place(address, c)? {
            Place::Affine(at, 4) => self.load_contiguous(element.scalar(), at, mask),
            Place::Vary(at, index) => match self.gather(element.scalar(), at, index, mask) {
                Rep::Vector(old, _) => old,
                _ => return None,
            },
            _ => return None,
        };
        let by = self.vector_of(value, c);
        let new = self.vec(code, old, Src::R(by));
        let differs = self.vec(ops::VPXORD, old, Src::R(new));
        let changing = self.mask_not_zero(differs);
        Some(mask.map_or(changing, |mask| self.mask_and(mask, changing)))
    }

    /// An atomic on words of a buffer that lie apart, where nobody needs the old values; false where it is none.
    pub(super) fn buffer_atomic(
        &mut self,
        op: AtomicOp,
        address: &'k Address,
        element: Element,
        value: Option<Value>,
        mask: Option<R>,
        c: usize,
    ) -> bool {
        let (true, Some(value)) = (is_word_of_buffer(address, element), value) else { return false };
        // Where all lanes meet at one word, their values are put together first.
        if self.is_one_place(address) {
            return false;
        }
        if op == AtomicOp::Store {
            // Each word is written in one step by these, too.
            let Some(place @ (Place::Affine(..) | Place::Vary(..))) = self.place(address, c) else { return false };
            let src = self.vector_of(value, c);
            self.store_vector(address, element.scalar(), place, [src, R::NONE], mask);
            return true;
        }
        let Some(op) = plain(op) else { return false };
        let Some(place) = self.place(address, c) else { return false };
        let scratch = self.scratch();
        if let Place::Vary(_, index) = place {
            self.put_scratch(scratch, 0, index);
        }
        let value = self.atomic_operand(scratch, 1, value, c);
        let lanes = |this: &mut Self, whole: bool| {
            let mark = this.enter_scope();
            if whole {
                this.ask_for_lanes(scratch, place);
            }
            this.each_lane(mask, |this, lane| {
                let at = this.place_of_lane(scratch, place, lane);
                let b = this.of_lane(value, At::new(scratch, COLUMN + 4 * lane));
                this.push(M::Update { op, at, b, whole });
            });
            this.leave_scope(mark);
        };
        let Memory::Buffer(index) = address.memory else { return false };
        if !self.frame.copied[index as usize] {
            lanes(self, true);
            return true;
        }
        let (copies, alone, done) = (self.general(), self.label(), self.label());
        self.push(M::Load { bytes: 4, signed: false, dst: copies, at: At::new(R::CONTEXT, context::COPIES) });
        self.push(M::Test { wide: false, a: copies, b: copies });
        self.push(M::JumpIf(Cond::NotEqual, alone));
        lanes(self, true);
        self.push(M::Jump(done));
        self.push(M::Label(alone));
        lanes(self, false);
        self.push(M::Label(done));
        true
    }

    /// An atomic on words of a buffer whose old values somebody needs; false where it is none.
    pub(super) fn fetching_atomic(
        &mut self,
        op: AtomicOp,
        address: &'k Address,
        element: Element,
        (value, compare, result): (Option<Value>, Option<Value>, Value),
        mask: Option<R>,
        c: usize,
    ) -> bool {
        use AtomicOp::{Add, Load, Store, Sub};
        if !is_word_of_buffer(address, element) || op == Store {
            return false;
        }
        let Some(place) = self.place(address, c) else { return false };
        let rep = match (op, value, place) {
            // Only this form of a load stays where it is among others.
            (Load, _, Place::Vary(at, index)) => self.gather(element.scalar(), at, index, mask),
            (Add | Sub, Some(value), Place::Same(at)) => self.count_on(op, at, value, mask, true, c),
            (Load, ..) | (_, None, _) => return false,
            (_, Some(value), _) => self.fetch_lanes(op, element, place, (value, compare), mask, c),
        };
        self.set_rep(result, 0, c, rep);
        true
    }

    /// The lanes of a mask add to the same word, in one step; each has what was there and what those before it have added. Others may
    /// work on a word that is `shared`.
    fn count_on(&mut self, op: AtomicOp, at: At, value: Value, mask: Option<R>, shared: bool, c: usize) -> Rep {
        let scratch = self.scratch();
        let mut by = self.vector_of(value, c);
        let zero = self.constant(0);
        if op == AtomicOp::Sub {
            by = self.vec(ops::VPSUBD, zero, Src::R(by));
        }
        if let Some(mask) = mask {
            by = self.masked_zero(by, mask);
            self.put_scratch(scratch, context::RESULT, zero);
        }
        let done = self.label();
        if let Some(mask) = mask {
            self.jump_if_none(&[mask], done);
        }
        let (mark, cells) = (self.enter_scope(), self.workgroup.cells.clone());
        let (before, sum) = self.sums_before(scratch, by);
        let (old, first) = (self.general(), self.vector());
        if shared {
            self.push(M::Fetch { adds: true, dst: old, at, b: sum });
        } else {
            self.push(M::Load { bytes: 4, signed: false, dst: old, at });
            self.push(M::Update { op: Alu::Add, at, b: GSrc::R(sum), whole: false });
        }
        self.push(M::Broadcast { len: self.len(), wide: false, dst: first, src: old });
        let old = self.vec(ops::VPADDD, first, Src::R(before));
        let Some(mask) = mask else { return Rep::Vector(old, R::NONE) };
        let old = self.masked_zero(old, mask);
        self.put_scratch(scratch, context::RESULT, old);
        self.leave_scope(mark);
        self.bind(done);
        self.workgroup.cells = cells;
        self.take_scratch(scratch, Scalar::U32)
    }

    /// For each lane the sum of the lanes before it, and the sum of all.
    fn sums_before(&mut self, scratch: R, by: R) -> (R, R) {
        let sum = self.general();
        if self.facts.isa == Isa::Avx512 {
            let all = self.sums_so_far(by);
            let last = self.vec_imm(ops::VALIGND, all, Src::R(all), 15);
            self.push(M::First { wide: false, dst: sum, src: last });
            return (self.vec(ops::VPSUBD, all, Src::R(by)), sum);
        }
        if self.facts.isa == Isa::Avx2 {
            let all = self.sums_so_far(by);
            let src = self.upper_half(all);
            self.push(M::Reverse { op: ops::VPEXTRD, len: Len::L128, dst: sum, src, imm: Some(3) });
            return (self.vec(ops::VPSUBD, all, Src::R(by)), sum);
        }
        self.put_scratch(scratch, COLUMN, by);
        let mut all = self.general();
        self.push(M::Imm { dst: all, value: 0 });
        for lane in 0..self.lanes() as i32 {
            self.push(M::Store { bytes: 4, src: all, at: At::new(scratch, 2 * COLUMN + 4 * lane) });
            let (own, more) = (self.general(), self.general());
            self.push(M::Load { bytes: 4, signed: false, dst: own, at: At::new(scratch, COLUMN + 4 * lane) });
            self.push(M::Alu { op: Alu::Add, wide: false, dst: more, a: all, b: GSrc::R(own) });
            all = more;
        }
        self.push(M::Mov { dst: sum, src: all });
        let before = self.vec(ops::VMOVUPS, R::NONE, Src::At(At::new(scratch, 2 * COLUMN)));
        (before, sum)
    }

    /// For each lane the sum of it and all lanes before it, in registers of more than four lanes.
    pub(super) fn sums_so_far(&mut self, by: R) -> R {
        let (zero, mut all) = (self.constant(0), by);
        if self.facts.isa == Isa::Avx512 {
            for lanes in [1, 2, 4, 8] {
                let further = self.vec_imm(ops::VALIGND, all, Src::R(zero), 16 - lanes);
                all = self.vec(ops::VPADDD, all, Src::R(further));
            }
            return all;
        }
        // In each half, and then the sum of the first half in all of the second.
        for bytes in [4, 8] {
            let further = self.vec_imm(ops::VPALIGNR, all, Src::R(zero), 16 - bytes);
            all = self.vec(ops::VPADDD, all, Src::R(further));
        }
        let moved = self.vec_imm(ops::VPERM2F128, all, Src::R(all), 0x08);
        let first = self.vec_imm(ops::VSHUFPS, moved, Src::R(moved), 0xff);
        self.vec(ops::VPADDD, all, Src::R(first))
    }

    /// One step for each lane of a mask.
    fn fetch_lanes(
        &mut self,
        op: AtomicOp,
        element: Element,
        place: Place,
        (value, compare): (Value, Option<Value>),
        mask: Option<R>,
        c: usize,
    ) -> Rep {
        let scratch = self.scratch();
        if let Place::Vary(_, index) = place {
            self.put_scratch(scratch, 0, index);
        }
        let value = self.atomic_operand(scratch, 1, value, c);
        let compare = compare.map(|compare| self.atomic_operand(scratch, 2, compare, c));
        let done = self.label();
        if let Some(mask) = mask {
            let zero = self.constant(0);
            self.put_scratch(scratch, context::RESULT, zero);
            self.jump_if_none(&[mask], done);
        }
        let (mark, cells) = (self.enter_scope(), self.workgroup.cells.clone());
        self.ask_for_lanes(scratch, place);
        self.each_lane(mask, |this, lane| {
            let at = this.place_of_lane(scratch, place, lane);
            let value = this.of_lane(value, At::new(scratch, COLUMN + 4 * lane));
            let mut b = this.in_register(value);
            let dst = this.general();
            match (op, compare) {
                (AtomicOp::CompareExchange, Some(compare)) => {
                    let compare = this.of_lane(compare, At::new(scratch, 2 * COLUMN + 4 * lane));
                    let compare = this.in_register(compare);
                    this.push(M::CompareExchange { dst, at, compare, b });
                }
                (AtomicOp::And | AtomicOp::Or | AtomicOp::Xor | AtomicOp::Min | AtomicOp::Max, _) => {
                    this.fetch_by_exchange(op, element, at, dst, b);
                }
                _ => {
                    if op == AtomicOp::Sub {
                        let negative = this.general();
                        this.push(M::Neg { wide: false, dst: negative, a: b });
                        b = negative;
                    }
                    this.push(M::Fetch { adds: op != AtomicOp::Exchange, dst, at, b });
                }
            }
            this.push(M::Store { bytes: 4, src: dst, at: At::new(scratch, context::RESULT + 4 * lane) });
        });
        self.leave_scope(mark);
        self.bind(done);
        self.workgroup.cells = cells;
        self.take_scratch(scratch, Scalar::U32)
    }

    /// `old = memory`, and in the same step `memory = op(memory, value)`, on a word that others change too, for operations that have no
    /// instruction with an old value.
    fn fetch_by_exchange(&mut self, op: AtomicOp, element: Element, at: At, old: R, value: R) {
        let (again, done) = (self.label(), self.label());
        self.push(M::Load { bytes: 4, signed: false, dst: old, at });
        self.bind(again);
        let new = match plain(op) {
            Some(op) => self.combined(op, old, GSrc::R(value)),
            None => {
                let compare = M::Cmp { wide: false, a: value, b: GSrc::R(old) };
                self.either(compare, takes(op, element), value, old)
            }
        };
        let new = self.in_register(new);
        // What changes nothing is as good as a load.
        self.push(M::Cmp { wide: false, a: new, b: GSrc::R(old) });
        self.push(M::JumpIf(Cond::Equal, done));
        let found = self.general();
        self.push(M::CompareExchange { dst: found, at, compare: old, b: new });
        // Until nobody else was there between the look and the change.
        self.push(M::Cmp { wide: false, a: found, b: GSrc::R(old) });
        self.push(M::Mov { dst: old, src: found });
        self.push(M::JumpIf(Cond::NotEqual, again));
        self.bind(done);
    }

    /// Asks for the cache lines that lanes are going to change: a locked instruction waits for its line, and nothing behind it begins.
    fn ask_for_lanes(&mut self, scratch: R, place: Place) {
        if !matches!(place, Place::Vary(..)) || self.facts.isa == Isa::Simd128 {
            return;
        }
        for lane in 0..self.lanes() as i32 {
            let at = self.place_of_lane(scratch, place, lane);
            self.push(M::Prefetch { at, writes: true });
        }
    }

    /// Code for every lane of a mask, one after another.
    fn each_lane(&mut self, mask: Option<R>, mut make: impl FnMut(&mut Self, i32)) {
        let bits = mask.map(|mask| self.mask_bits(mask));
        for lane in 0..self.lanes() as i32 {
            let next = self.label();
            if let Some(bits) = bits {
                let here = self.general();
                self.push(M::Alu { op: Alu::And, wide: false, dst: here, a: bits, b: GSrc::Imm(1 << lane) });
                self.push(M::JumpIf(Cond::Equal, next));
            }
            make(self, lane);
            if bits.is_some() {
                self.push(M::Label(next));
            }
        }
    }

    /// Where a lane works; what varies is in the first column of the scratch memory.
    fn place_of_lane(&mut self, scratch: R, place: Place, lane: i32) -> At {
        match place {
            Place::Same(at) => at,
            Place::Affine(at, step) => At { disp: at.disp + lane * step, ..at },
            Place::Vary(at, _) => {
                let (offset, index) = (self.general(), self.general());
                self.push(M::Load { bytes: 4, signed: false, dst: offset, at: At::new(scratch, 4 * lane) });
                self.push(M::Extend { dst: index, src: offset });
                At { index, ..at }
            }
        }
    }

    /// An operand that is the same for all lanes, or `None` when each has its own in a column of the scratch memory.
    fn atomic_operand(&mut self, scratch: R, column: i32, operand: Value, c: usize) -> Option<GSrc> {
        let one = self.one_operand(operand, c);
        if one.is_none() {
            self.operand_to_scratch(scratch, column, operand, 0, c);
        }
        one
    }

    /// An operand that is the same for all lanes.
    fn one_operand(&mut self, operand: Value, c: usize) -> Option<GSrc> {
        if let Some(bits) = self.constant_of(operand, c) {
            return Some(GSrc::Imm(bits as u32 as i32));
        }
        let is_one = self.is_scalar(operand) && self.shape_of(operand).lane == Lane::Same;
        is_one.then(|| GSrc::R(self.scalar_reg(operand, c)))
    }

    fn of_lane(&mut self, operand: Option<GSrc>, at: At) -> GSrc {
        operand.unwrap_or_else(|| {
            let r = self.general();
            self.push(M::Load { bytes: 4, signed: false, dst: r, at });
            GSrc::R(r)
        })
    }

    fn in_register(&mut self, operand: GSrc) -> R {
        match operand {
            GSrc::R(r) => r,
            GSrc::Imm(value) => {
                let r = self.general();
                self.push(M::Imm { dst: r, value: u64::from(value as u32) });
                r
            }
        }
    }

    fn combined(&mut self, op: Alu, old: R, value: GSrc) -> GSrc {
        let r = self.general();
        self.push(M::Alu { op, wide: false, dst: r, a: old, b: value });
        GSrc::R(r)
    }

    /// `value` where the comparison says so, else `old`.
    fn either(&mut self, compare: M, cond: Cond, value: R, old: R) -> GSrc {
        let r = self.general();
        self.push(M::Mov { dst: r, src: old });
        self.push(compare);
        self.push(M::Cmov { cond, dst: r, src: value });
        GSrc::R(r)
    }
}
