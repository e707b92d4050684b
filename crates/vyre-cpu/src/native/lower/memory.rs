//! Loads, stores and atomics: scalar, broadcast, contiguous, strided and gathered accesses told apart by the address's shape.

use vyre_foundation::ir::AtomicOp;
use vyre_foundation::kernel::{Address, Element, Memory, Scalar, Value};

use super::super::asm::{Alu, Cond, Len, Shift, VOp};
use super::super::context;
use super::super::isa::Isa;
use super::super::mir::{At, GSrc, LaneOp, M, R, Src};
use super::super::ops;
use super::super::shape::{Lane, Layout};
use super::cells::Kept;
use super::frame::lies_lane_beside_lane;
use super::rare::{self, Access};
use super::value::{Lin, Rep};
use super::{Lower, Made};

/// Where the lanes of a vector find their elements.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// All at one place.
    Same(At),
    /// Each so many bytes after the one before.
    Affine(At, i32),
    /// At the lane's index times the scale of the address.
    Vary(At, R),
}

/// Where lanes store, taken out of vectors one after the other.
struct ByLane {
    at: At,
    /// The indices: of 32 bits in the first, or of 64 in both.
    indices: [R; 2],
    wide: bool,
    /// What indices are taken out of at present: 128 bits of the vector, and two indices of 32 bits.
    half: R,
    pair: R,
}

impl ByLane {
    fn new(at: At, indices: [R; 2]) -> ByLane {
        ByLane { at, indices, wide: !indices[1].is_none(), half: R::NONE, pair: R::NONE }
    }

    /// Where the next lane stores.
    fn next(&mut self, lower: &mut Lower<'_>, lane: u32) -> At {
        let (vector, quad) = if self.wide { (lane / 4, lane % 4) } else { (0, lane / 2) };
        if self.wide || lane.is_multiple_of(2) {
            let vector = self.indices[vector as usize];
            if quad.is_multiple_of(2) {
                self.half = if quad == 0 { vector } else { lower.upper_half(vector) };
            }
            self.pair = lower.general();
            lower.push(match quad % 2 {
                0 => M::First { wide: true, dst: self.pair, src: self.half },
                _ => M::Reverse { op: ops::VPEXTRQ, len: Len::L128, dst: self.pair, src: self.half, imm: Some(1) },
            });
        }
        let index = match (self.wide, lane % 2) {
            (true, _) => self.pair,
            // Part of a place may be in its base, and the rest be less than nothing.
            (_, 0) => lower.extended(self.pair),
            _ => {
                let (index, count) = (lower.general(), GSrc::Imm(32));
                lower.push(M::Shift { op: Shift::Arithmetic, wide: true, dst: index, a: self.pair, count });
                index
            }
        };
        At { index, ..self.at }
    }
}

/// What an address is made of.
struct Sum {
    /// What is known of it.
    disp: i64,
    /// How many bytes each lane is behind the one before, but for the vectors.
    step: i64,
    /// Registers and vectors with their strides.
    scalars: Vec<(R, i64)>,
    vectors: Vec<(Value, i64)>,
}

/// Bytes of rows of a block that are worth being asked for early: more than a few lines, and no more than the first cache has room for
/// beside those of this block.
const ROW: i64 = 1 << 10;
const ROWS: i64 = 1 << 14;

/// The largest displacement that is put into an address.
const REACH: i64 = 1 << 28;

fn is_plain(element: Element) -> bool {
    matches!(element, Element::U32 | Element::I32 | Element::F32 | Element::U64 | Element::I64 | Element::F64)
}

impl<'k> Lower<'k> {
    /// Zeroes workgroup memory and the arrays of the invocations.
    pub(super) fn clear_private(&mut self) {
        let lanes: u32 = self.facts.kernel.workgroup_size.iter().product::<u32>().next_multiple_of(self.lanes());
        for index in 0..self.frame.shared.len() {
            if !self.facts.kernel.shared[index].cleared {
                continue;
            }
            let from = self.emission.code.len();
            let bytes = self.facts.kernel.shared[index].size.next_multiple_of(64);
            self.clear(context::SHARED, self.frame.shared[index] as i32, bytes);
            self.note_clear(index as u32, from);
        }
        self.clear(context::LOCALS, 0, self.frame.lane_bytes * lanes);
    }

    /// Zeroes the arrays of the invocations of one block of rows.
    pub(super) fn clear_locals(&mut self) {
        let invocations = self.lanes_of_locals() * self.active.components.len() as u32;
        self.clear(context::LOCALS, 0, self.frame.lane_bytes * invocations);
    }

    pub(super) fn clear(&mut self, pointer: i32, first: i32, bytes: u32) {
        if bytes == 0 {
            return;
        }
        let mark = self.enter_scope();
        let base = self.general();
        self.push(M::Load { bytes: 8, signed: false, dst: base, at: At::new(R::CONTEXT, pointer) });
        let zero = self.constant(0);
        // The instructions may be left out, so nothing else can use what they make.
        self.leave_scope(mark);
        // Code in scalars would run at the lower clock that some processors take for long vectors.
        let len = if self.facts.tiling.layout == Layout::Single { Len::L128 } else { self.len() };
        let step = len.bytes();
        if bytes as i32 <= 32 * step {
            for at in (first..first + bytes as i32).step_by(step as usize) {
                self.push(M::VStore { op: ops::VMOVUPS_STORE, len, src: zero, at: At::new(base, at), mask: R::NONE });
            }
            return;
        }
        let left = self.general();
        let bytes = bytes.next_multiple_of(64);
        let round = if bytes.is_multiple_of(256) { 256 } else { 64 };
        self.push(M::Imm { dst: left, value: u64::from(bytes) });
        let again = self.label();
        self.bind(again);
        for at in (first..first + round).step_by(step as usize) {
            self.push(M::VStore { op: ops::VMOVUPS_STORE, len, src: zero, at: At::new(base, at), mask: R::NONE });
        }
        self.push(M::Alu { op: Alu::Add, wide: true, dst: base, a: base, b: GSrc::Imm(round) });
        self.push(M::Alu { op: Alu::Sub, wide: true, dst: left, a: left, b: GSrc::Imm(round) });
        self.push(M::JumpIf(Cond::NotEqual, again));
    }

    /// The invocations of a vector, each with memory of its own.
    fn lanes_of_locals(&self) -> u32 {
        if self.facts.tiling.layout == Layout::Single { 1 } else { self.lanes() }
    }

    /// The start of a memory for a component.
    pub(super) fn base(&self, memory: Memory, c: usize) -> At {
        match memory {
            Memory::Buffer(index) => At::new(self.bases.buffers[index as usize].unwrap_or(self.bases.zeros), 0),
            Memory::Shared(index) => At::new(self.bases.shared, self.frame.shared[index as usize] as i32),
            Memory::Local(index) => {
                if let Some(table) = self.table_at(memory) {
                    return At::new(self.bases.shared, table as i32);
                }
                // Each memory has its part of the component's share, all lanes together.
                let lanes = self.lanes_of_locals();
                let first = c as u32 * self.frame.lane_bytes * lanes + self.frame.locals[index as usize] * lanes;
                At::new(self.bases.locals, first as i32)
            }
        }
    }

    /// What one byte of an address is in a memory, and how far the next lane is.
    fn spacing(&self, memory: Memory) -> (i64, i64) {
        match memory {
            Memory::Local(_) if self.table_at(memory).is_some() || self.facts.tiling.layout == Layout::Single => (1, 0),
            Memory::Local(index) if lies_lane_beside_lane(&self.facts.kernel.locals[index as usize]) => {
                (i64::from(self.lanes()), 4)
            }
            Memory::Local(index) => (1, i64::from(self.facts.kernel.locals[index as usize].size.next_multiple_of(64))),
            _ => (1, 0),
        }
    }

    /// Resolves an address for a component; `None` when it needs the helper.
    pub(super) fn place(&mut self, address: &Address, c: usize) -> Option<Place> {
        self.place_where(address, false, c)
    }

    /// As `place`; where the code comes only to a place `inside` of its memory, more is known of the index.
    fn place_where(&mut self, address: &Address, inside: bool, c: usize) -> Option<Place> {
        let mut at = self.base(address.memory, c);
        let is_small = !matches!(address.memory, Memory::Buffer(_)) && address.terms.len() == 1;
        // Elsewhere nobody may be there.
        let inside = inside && is_small && self.facts.tiling.layout == Layout::Single;
        let sum = self.terms(address, at.disp, inside, c)?;
        if sum.disp.abs() > REACH || sum.step.abs() > 1 << 20 {
            return None;
        }
        at.disp = sum.disp as i32;
        let at = self.with_scalars(at, sum.scalars)?;
        if sum.vectors.is_empty() {
            return Some(if sum.step == 0 { Place::Same(at) } else { Place::Affine(at, sum.step as i32) });
        }
        self.varying(at, sum.step, &sum.vectors, c)
    }

    /// Adds up what is constant in an address, and what a lane is behind the one before. One that is `inside` of a small memory has an index that
    /// is less than it.
    fn terms(&mut self, address: &Address, first: i32, inside: bool, c: usize) -> Option<Sum> {
        let (spacing, lane_step) = self.spacing(address.memory);
        let disp = i64::from(first) + i64::from(address.offset) * spacing;
        let mut sum = Sum { disp, step: lane_step, scalars: Vec::new(), vectors: Vec::new() };
        for &(index, stride) in &address.terms {
            let stride = i64::from(stride) * spacing;
            let shape = self.shape_of(index);
            if !self.is_scalar(index) {
                if self.scalar_of(index).bits() == 64 {
                    return None;
                }
                sum.vectors.push((index, stride));
                continue;
            }
            if let Lane::Affine(lane) = shape.lane {
                sum.step += i64::from(lane) * stride;
            }
            let wide = self.scalar_of(index).bits() == 64;
            match self.rep(index, 0, c) {
                Rep::General(mut lin) if !wide => {
                    if let (true, Some(r)) = (inside && lin.add != 0, self.made.get(Made::Sum(lin.reg, lin.add))) {
                        lin = Lin::reg(r);
                    }
                    if lin.add.unsigned_abs() > 1 << 20 && !lin.reg.is_none() {
                        let r = self.materialise(lin);
                        let r = self.extended(r);
                        sum.scalars.push((r, stride));
                        continue;
                    }
                    sum.disp += i64::from(lin.add) * stride;
                    if !lin.reg.is_none() {
                        // A sum that may wrap is taken as signed, so that its parts can be added one by one.
                        let small = (shape.max < 1 << 31 && lin.add == 0) || (inside && lin.add <= 0);
                        let r = if small { lin.reg } else { self.extended(lin.reg) };
                        sum.scalars.push((r, stride));
                    }
                }
                _ => {
                    let r = self.scalar_reg(index, c);
                    sum.scalars.push((r, stride));
                }
            }
        }
        Some(sum)
    }

    /// One scalar goes into the address itself, the others are added up before.
    fn with_scalars(&mut self, mut at: At, mut scalars: Vec<(R, i64)>) -> Option<At> {
        scalars.sort_by_key(|&(_, stride)| !matches!(stride, 1 | 2 | 4 | 8));
        for (position, (r, stride)) in scalars.into_iter().enumerate() {
            if position == 0 && matches!(stride, 1 | 2 | 4 | 8) {
                at.index = r;
                at.scale = stride as u8;
                continue;
            }
            let part = if (stride as u64).is_power_of_two() {
                self.shifted(true, r, stride.trailing_zeros() as i32)
            } else {
                self.product(true, r, GSrc::Imm(i32::try_from(stride).ok()?))
            };
            at.base = self.alu(Alu::Add, true, at.base, GSrc::R(part));
        }
        Some(at)
    }

    /// A place that each lane finds by an index of its own.
    fn varying(&mut self, mut at: At, step: i64, vectors: &[(Value, i64)], c: usize) -> Option<Place> {
        if let Some((first, step)) = self.known_steps(step, vectors, c) {
            at.disp = i32::try_from(i64::from(at.disp) + first).ok()?;
            return Some(Place::Affine(at, step));
        }
        // Gathers have their own index, so the scalar one is added to the base.
        if !at.index.is_none() {
            let r = self.general();
            self.push(M::Lea { wide: true, dst: r, at });
            at = At::new(r, 0);
        }
        let unit = match vectors {
            [(_, stride)] if matches!(stride, 1 | 2 | 4 | 8) && step == 0 => *stride,
            all if step % 4 == 0 && all.iter().all(|(_, stride)| stride % 4 == 0) => 4,
            _ => 1,
        };
        let mut index = R::NONE;
        for &(value, stride) in vectors {
            let mut v = self.vector_of(value, c);
            let by = stride / unit;
            if by != 1 {
                v = if (by as u64).is_power_of_two() {
                    self.vec_imm(ops::VPSLLD, R::NONE, Src::R(v), by.trailing_zeros() as u8)
                } else {
                    let by = self.constant(u32::try_from(by).ok()?);
                    self.vec(ops::VPMULLD, v, Src::R(by))
                };
            }
            index = if index.is_none() { v } else { self.vec(ops::VPADDD, index, Src::R(v)) };
        }
        if step != 0 {
            let ramp = self.steps((step / unit) as i32);
            index = self.vec(ops::VPADDD, index, Src::R(ramp));
        }
        at.scale = unit as u8;
        Some(Place::Vary(at, index))
    }

    /// Bytes of the first lane, and from each lane to the next, where all are known and lie like that.
    fn known_steps(&self, step: i64, vectors: &[(Value, i64)], c: usize) -> Option<(i64, i32)> {
        let bytes = |lane: u32| {
            let of = |&(value, stride): &(Value, i64)| Some(i64::from(self.known_lane(value, lane, c)?) * stride);
            vectors.iter().map(of).sum::<Option<i64>>().map(|sum| sum + step * i64::from(lane))
        };
        let (first, second) = (bytes(0)?, bytes(1)?);
        let apart = second - first;
        let alike = apart != 0 && (2..self.lanes()).all(|lane| bytes(lane) == Some(first + apart * i64::from(lane)));
        let reached = first.abs() < REACH && apart.abs() < 1 << 20;
        (alike && reached).then_some((first, apart as i32))
    }

    /// `lane · step`.
    pub(super) fn steps(&mut self, step: i32) -> R {
        let lanes: Vec<u32> = (0..self.lanes()).map(|lane| (lane as i32).wrapping_mul(step) as u32).collect();
        self.lanes_constant(&lanes)
    }

    /// A place whose lanes differ, as base and index.
    pub(super) fn as_gather(&mut self, at: At, step: i32) -> (At, R) {
        let at = if at.index.is_none() {
            at
        } else {
            let r = self.general();
            self.push(M::Lea { wide: true, dst: r, at });
            At::new(r, 0)
        };
        (At { scale: 1, ..at }, self.steps(step))
    }

    pub(super) fn load(
        &mut self,
        value: Value,
        address: &'k Address,
        element: Element,
        guard: Option<Value>,
        c: usize,
    ) {
        if self.load_from_tile(value, guard, c)
            || self.load_records(value, address, element, guard, c)
            || self.load_far_records(value, address, element, guard, c)
            || self.load_lines(value, address, element, guard, c)
            || self.load_pairs(value, address, element, guard, c)
            || self.load_in_words(value, address, element, guard, c)
        {
            return;
        }
        let width = self.width_of(value);
        for component in 0..width {
            let mut address = address.clone();
            address.offset += u32::from(component) * (element.bits() / 8).max(1);
            let rep = self.load_one(value, &address, element, guard, c);
            self.set_rep(value, component, c, rep);
        }
    }

    /// Loads vectors from places that each lane computes, two words at a time; false where they lie otherwise.
    fn load_pairs(
        &mut self,
        value: Value,
        address: &Address,
        element: Element,
        guard: Option<Value>,
        c: usize,
    ) -> bool {
        let width = self.width_of(value);
        if !self.are_pairs(address, element, width) {
            return false;
        }
        let guard = self.guard_of(guard, c);
        let Some(Place::Vary(at, index)) = self.place(address, c) else { return false };
        let mask = self.lanes_inside(value, guard, c);
        self.note_read(address.memory);
        for (component, word) in self.gather_words(element, width, (at, index), mask).into_iter().enumerate() {
            self.set_rep(value, component as u8, c, Rep::Vector(word, R::NONE));
        }
        true
    }

    /// They are vectors of words at places that each lane computes.
    fn are_pairs(&self, address: &Address, element: Element, width: u8) -> bool {
        let words = matches!(element, Element::U32 | Element::I32 | Element::F32) && width > 1;
        let by_lanes = address.terms.iter().any(|&(index, _)| !self.is_scalar(index));
        words && by_lanes && !matches!(address.memory, Memory::Local(_)) && self.facts.isa != Isa::Simd128
    }

    /// The words of vectors that each lane finds by its own index: two at a time, which takes half as many accesses.
    pub(super) fn gather_words(
        &mut self,
        element: Element,
        width: u8,
        (at, index): (At, R),
        mask: Option<R>,
    ) -> Vec<R> {
        if self.facts.isa == Isa::Avx2 && width == 4 && mask.is_none() {
            // Each lane's vector is one load, and an instruction that gathers takes as long as a load for each two words of it.
            let mut places = ByLane::new(at, [index, R::NONE]);
            return self.load_fours(|lower, lane| places.next(lower, lane)).to_vec();
        }
        let mut words = Vec::with_capacity(usize::from(width));
        for first in (0..width).step_by(2) {
            let at = At { disp: at.disp + 4 * i32::from(first), ..at };
            let alone = first + 1 == width;
            let scalar = if alone { element.scalar() } else { Scalar::U64 };
            if let Rep::Vector(low, high) = self.gather(scalar, at, index, mask) {
                words.extend(if alone { vec![low] } else { self.words_of(vec![low, high]) });
            }
        }
        words
    }

    /// Stores the words of vectors where each lane's index says: two at a time.
    pub(super) fn scatter_words(
        &mut self,
        address: &Address,
        element: Element,
        words: &[R],
        (at, index): (At, R),
        mask: Option<R>,
    ) {
        for (pair, words) in words.chunks(2).enumerate() {
            let place = Place::Vary(At { disp: at.disp + 8 * pair as i32, ..at }, index);
            match self.vectors_of(words)[..] {
                [low, high] => self.store_vector(address, Scalar::U64, place, [low, high], mask),
                _ => self.store_vector(address, element.scalar(), place, [words[0], R::NONE], mask),
            }
        }
    }

    /// Stores vectors at places that each lane computes; false where they go elsewhere.
    fn store_pairs(&mut self, address: &Address, element: Element, value: Value, mask: Option<R>, c: usize) -> bool {
        let width = self.width_of(value);
        if !self.are_pairs(address, element, width) {
            return false;
        }
        let Some(Place::Vary(at, index)) = self.place(address, c) else { return false };
        let words: Vec<R> = (0..width).map(|component| self.vector_part(value, component, c, 0)).collect();
        self.scatter_words(address, element, &words, (at, index), mask);
        true
    }

    /// A guard that is constantly true is none.
    pub(super) fn guard_of(&mut self, guard: Option<Value>, c: usize) -> Option<Value> {
        guard.filter(|&guard| self.known_mask(guard, c) != Some(self.all_lanes()))
    }

    fn load_one(&mut self, value: Value, address: &Address, element: Element, guard: Option<Value>, c: usize) -> Rep {
        let scalar = element.scalar();
        let guard = self.guard_of(guard, c);
        let narrow = self.narrow_load(element);
        if !is_plain(element) && narrow.is_none() {
            return self.load_by_helper(value, address, element, guard, c);
        }
        let Some(place) = self.place_where(address, guard.is_none(), c) else {
            return self.load_by_helper(value, address, element, guard, c);
        };
        if let Some(rep) = self.load_shifted_cell(value, address.memory, &place, element, guard, c) {
            return rep;
        }
        // Only active lanes are known to be inside: a guard checks what the way here does not say already.
        let by_lanes = guard.filter(|&guard| !(self.is_scalar(guard) && matches!(place, Place::Same(_))));
        let mask = self.lanes_inside(value, by_lanes, c);
        let bytes = element.bits() as i32 / 8;
        if let (None, Some(rep)) = (guard, self.load_cell(value, address, &place, element, mask, c)) {
            return rep;
        }
        match place {
            Place::Vary(..) => self.note_read_placed(address, element, mask, c),
            _ if is_plain(element) && bytes == 4 => self.note_read_at(address.memory, &place),
            _ => self.note_read(address.memory),
        }
        match place {
            Place::Same(mut at) => {
                let whole = guard.filter(|&guard| self.is_scalar(guard));
                if let Some(guard) = whole {
                    let test = self.scalar_reg(guard, c);
                    at = self.checked_address(at, test);
                }
                let apart = guard.is_some() && whole.is_none();
                if let Some(mask) = mask
                    && (apart || (self.shape_of(value).axes != 0 && !self.made.prefixes.contains_key(&mask)))
                {
                    // Another vector of the block may be the one that is active.
                    let test = self.mask_bits(mask);
                    at = self.checked_address(at, test);
                    if apart && self.shape_of(value).lane != Lane::Same {
                        // The guard differs from lane to lane, so the result does.
                        let v = self.load_same(scalar, element, at);
                        return self.mask_parts(scalar, v, mask);
                    }
                }
                if self.is_scalar(value) {
                    let r = self.general();
                    let signed = matches!(element, Element::I8 | Element::I16);
                    self.push(M::Load { bytes: element.bits() / 8, signed, dst: r, at });
                    return Rep::General(Lin::reg(r));
                }
                if self.deferrable.contains(&value) && is_plain(element) && self.shape_of(value).lane == Lane::Same {
                    return Rep::Later(at);
                }
                self.load_same(scalar, element, at)
            }
            Place::Affine(at, step) if step == bytes && bytes >= 4 => {
                let mut parts = [R::NONE; 2];
                for (part, loaded) in parts.iter_mut().enumerate().take(Self::parts(scalar)) {
                    let at = At { disp: at.disp + part as i32 * self.len().bytes(), ..at };
                    let mask = mask.map(|mask| self.part_mask(mask, scalar, part));
                    self.ask_for_next_round(address.memory, at);
                    *loaded = self.load_contiguous(scalar, at, mask);
                }
                Rep::Vector(parts[0], parts[1])
            }
            // Only AVX-512 has these with a mask.
            Place::Affine(at, step) if step == bytes && (mask.is_none() || self.facts.isa.is_rich()) => match narrow {
                Some(op) => self.load_narrow(element, op, at, mask),
                None => Rep::None,
            },
            Place::Affine(..) | Place::Vary(..) if bytes < 4 => {
                let beside = match (place, narrow, mask) {
                    (Place::Affine(at, step), Some(op), Some(mask)) if step == bytes => Some((at, op, mask)),
                    _ => None,
                };
                let Some((at, op, inside)) = beside else {
                    return self.load_from_words(value, address, &place, element, guard, mask, c);
                };
                // Nearly always all lanes are inside.
                let (dst, some, done) = (self.vector(), self.label(), self.label());
                self.made.changing.insert(dst);
                let bits = self.mask_bits(inside);
                self.push(M::Cmp { wide: false, a: bits, b: GSrc::Imm(self.all_lanes() as i32) });
                self.push(M::JumpIf(Cond::NotEqual, some));
                let whole = self.load_narrow(element, op, at, None);
                self.overwrite_by(dst, whole);
                self.push(M::Jump(done));
                self.bind(some);
                let mark = self.enter_scope();
                let rest = self.load_from_words(value, address, &place, element, guard, mask, c);
                self.leave_scope(mark);
                self.overwrite_by(dst, rest);
                self.bind(done);
                Rep::Vector(dst, R::NONE)
            }
            Place::Affine(at, step) => {
                self.ask_for_next_rows(address.memory, at, step);
                if bytes == 4
                    && !matches!(address.memory, Memory::Local(_))
                    && let Some(words) = self.load_apart(at, step, mask)
                {
                    return Rep::Vector(words, R::NONE);
                }
                let (at, index) = self.as_gather(at, step);
                self.gather(scalar, at, index, mask)
            }
            Place::Vary(at, index) => match self.word_of_table(address.memory, &place, scalar, mask) {
                Some(rep) => rep,
                None => {
                    let mut placed = self.load_placed(address, element, mask, c);
                    if placed.is_none() && mask.is_none() {
                        placed = self.load_around(address, element, c);
                    }
                    match placed.or_else(|| self.load_rows(address, element, At { scale: 1, ..at }, mask, c)) {
                        Some(words) => Rep::Vector(words, R::NONE),
                        None => self.gather(scalar, at, index, mask),
                    }
                }
            },
        }
    }

    /// Elements of less than a word out of the words that they are in.
    #[allow(clippy::too_many_arguments)]
    fn load_from_words(
        &mut self,
        value: Value,
        address: &Address,
        place: &Place,
        element: Element,
        guard: Option<Value>,
        mask: Option<R>,
        c: usize,
    ) -> Rep {
        match self.load_words(address, place, mask) {
            Some((words, before)) => Rep::Vector(self.taken_out(element, words, before), R::NONE),
            None => match self.gather_narrow(address, place, element, mask) {
                Some(elements) => Rep::Vector(elements, R::NONE),
                None => self.load_by_helper(value, address, element, guard, c),
            },
        }
    }

    fn overwrite_by(&mut self, dst: R, rep: Rep) {
        if let Rep::Vector(src, _) = rep {
            self.push(M::Mov { dst, src });
        }
    }

    /// Loads from registers what was stored before.
    fn load_cell(
        &mut self,
        value: Value,
        address: &Address,
        place: &Place,
        element: Element,
        mask: Option<R>,
        c: usize,
    ) -> Option<Rep> {
        if !is_plain(element) || !Self::is_cell(element.scalar()) || self.workgroup.cells.is_empty() {
            return None;
        }
        let (memory, lanes) = (address.memory, self.known_lanes_of(mask).unwrap_or(self.all_lanes()));
        let r = match *place {
            Place::Same(at) => {
                // An element in the middle is had more cheaply from memory, which spreads it as it loads.
                if !self.begins_cell(at) {
                    return None;
                }
                let r = self.find_cell(memory, at, 4, 1)?;
                if self.is_scalar(value) {
                    let dst = self.general();
                    self.push(M::First { wide: false, dst, src: r });
                    return Some(Rep::General(Lin::reg(dst)));
                }
                self.vec(ops::VBROADCASTSS, R::NONE, Src::R(r))
            }
            Place::Affine(at, step) if step % 4 == 0 => self.find_cell(memory, at, step, lanes)?,
            Place::Affine(..) => return None,
            Place::Vary(..) => self.placed_cell(address, element, lanes, c)?,
        };
        // The register goes by another name already.
        self.facts.uses[value.index()] += 1;
        Some(Rep::Vector(r, R::NONE))
    }

    /// What was stored, and zeros in the first lanes, for which there is nothing: as in a scan, where they have no neighbour so far before them.
    fn load_shifted_cell(
        &mut self,
        value: Value,
        memory: Memory,
        place: &Place,
        element: Element,
        guard: Option<Value>,
        c: usize,
    ) -> Option<Rep> {
        let (Place::Affine(at, step), Some(bits)) = (place, self.known_mask(guard?, c)) else { return None };
        let below = bits.trailing_zeros();
        let all_active = self.active.current.iter().all(|&c| self.active.exec[c].is_none());
        let words = is_plain(element) && Self::is_cell(element.scalar()) && step % 4 == 0;
        let first = (1..self.lanes()).contains(&below) && bits == self.all_lanes() & (u32::MAX << below);
        if !(all_active && words && first) {
            return None;
        }
        let r = self.shifted_cell(memory, *at, *step, below)?;
        self.made.zero_below.insert(r, below);
        // The register goes by another name already.
        self.facts.uses[value.index()] += 1;
        Some(Rep::Vector(r, R::NONE))
    }

    /// The lanes that may load a value: those that are active and for which its guard holds.
    pub(super) fn lanes_inside(&mut self, value: Value, guard: Option<Value>, c: usize) -> Option<R> {
        let exec = self.exec_of_sharers(value, c);
        let Some(guard) = guard else { return exec };
        let guard = self.mask_of(guard, c);
        Some(exec.map_or(guard, |exec| self.mask_and(guard, exec)))
    }

    /// The lanes that are active in any of the components that share a value.
    pub(super) fn exec_of_sharers(&mut self, value: Value, c: usize) -> Option<R> {
        let axes = usize::from(self.shape_of(value).axes);
        let mut masks: Vec<R> = Vec::new();
        for at in 0..self.active.current.len() {
            let other = self.active.current[at];
            if self.active.shared[axes][other] == self.active.shared[axes][c] {
                masks.push(self.active.exec[other]?);
            }
        }
        masks.dedup();
        let mut masks = masks.into_iter();
        let first = masks.next()?;
        Some(masks.fold(first, |all, mask| self.mask_or(all, mask)))
    }

    /// Asks for what a loop whose rounds lie far apart reads in its next round, at the place of this one.
    pub(super) fn ask_for_next_round(&mut self, memory: Memory, at: At) {
        let Some(ahead) = self.loops.last().and_then(|frame| frame.ahead) else { return };
        let next = if ahead.now.contains(&at.index) {
            ahead.next
        } else if self.regions.is_some() && matches!(memory, Memory::Buffer(_)) && !at.index.is_none() {
            // The index is that of the loop and of the piece.
            let next = self.general();
            self.push(M::Lea {
                wide: true,
                dst: next,
                at: At { base: at.index, index: ahead.step, scale: 1, disp: 0 },
            });
            next
        } else {
            return;
        };
        self.push(M::Prefetch { at: At { index: next, ..at }, writes: false });
    }

    /// Lanes of a loop that each go over a row of their own, one behind the other, touch as many lines as there are lanes in a round, in an
    /// order that no processor foresees. Asks for the rows of the next block, as much of them in each round as this block's rows have.
    pub(super) fn ask_for_next_rows(&mut self, memory: Memory, at: At, step: i32) -> bool {
        let Some((counter, to)) = self.loops.last().and_then(|frame| frame.counted) else { return false };
        let lanes = self.lanes() as i32;
        let block = i64::from(step) * i64::from(lanes) * self.active.components.len() as i64;
        let rows = i64::from(step) == 4 * i64::from(to) && (ROW..=ROWS).contains(&block);
        // Blocks of several rows of a grid read the same memory again.
        let again = self.facts.tiling.rows != 1;
        if !rows || again || !matches!(memory, Memory::Buffer(_)) || self.facts.isa == Isa::Simd128 {
            return false;
        }
        let first = self.general();
        self.push(M::Lea { wide: true, dst: first, at });
        // The place goes on by a word in each round, and the rows of all lanes by a word for each.
        let index = self.product(true, counter, GSrc::Imm(4 * (lanes - 1)));
        self.push(M::Prefetch { at: At { base: first, index, scale: 1, disp: block as i32 }, writes: false });
        true
    }

    /// The instruction that widens a stored type.
    fn narrow_load(&self, element: Element) -> Option<VOp> {
        Some(match element {
            Element::U8 => ops::VPMOVZXBD,
            Element::I8 => ops::VPMOVSXBD,
            Element::U16 | Element::BF16 => ops::VPMOVZXWD,
            Element::I16 => ops::VPMOVSXWD,
            Element::F16 => ops::VCVTPH2PS,
            _ => return None,
        })
    }

    fn load_narrow(&mut self, element: Element, op: VOp, at: At, mask: Option<R>) -> Rep {
        let dst = self.vector();
        let v = LaneOp {
            mask: mask.unwrap_or(R::NONE),
            zeroing: mask.is_some(),
            ..self.lane_op(op, dst, R::NONE, Src::At(at))
        };
        self.push(M::Vec(v));
        self.widened(element, dst)
    }

    fn widened(&mut self, element: Element, v: R) -> Rep {
        match element {
            Element::BF16 => Rep::Vector(self.vec_imm(ops::VPSLLD, R::NONE, Src::R(v), 16), R::NONE),
            _ => Rep::Vector(v, R::NONE),
        }
    }

    /// The address, or that of zeros when `test` is zero.
    fn checked_address(&mut self, at: At, test: R) -> At {
        let r = self.general();
        self.push(M::Lea { wide: true, dst: r, at });
        self.push(M::Test { wide: false, a: test, b: test });
        self.push(M::Cmov { cond: Cond::Equal, dst: r, src: self.bases.zeros });
        At::new(r, 0)
    }

    pub(super) fn mask_parts(&mut self, scalar: Scalar, rep: Rep, mask: R) -> Rep {
        let Rep::Vector(low, high) = rep else { return rep };
        let low_mask = self.part_mask(mask, scalar, 0);
        let low = self.masked_zero(low, low_mask);
        if high.is_none() {
            return Rep::Vector(low, R::NONE);
        }
        // Zeroing by words needs a mask by words; a blend with zero knows quadwords.
        let zero = self.constant(0);
        let Rep::Vector(first, second) = rep else { return rep };
        let low = self.blend(scalar, low_mask, Src::R(first), false, zero);
        let high_mask = self.part_mask(mask, scalar, 1);
        let high = self.blend(scalar, high_mask, Src::R(second), false, zero);
        Rep::Vector(low, high)
    }

    /// One element in all lanes.
    fn load_same(&mut self, scalar: Scalar, element: Element, at: At) -> Rep {
        if element.bits() < 32 {
            let r = self.general();
            let signed = matches!(element, Element::I8 | Element::I16);
            self.push(M::Load { bytes: element.bits() / 8, signed, dst: r, at });
            let v = self.spread(r, false);
            return match element {
                Element::F16 => Rep::Vector(self.halves_as_floats(v), R::NONE),
                _ => self.widened(element, v),
            };
        }
        let v = self.load_later(scalar, at);
        Rep::Vector(v, if scalar.bits() == 64 { v } else { R::NONE })
    }

    pub(super) fn load_later(&mut self, scalar: Scalar, at: At) -> R {
        match scalar.bits() {
            64 => {
                let op = VOp { w: u8::from(self.facts.isa == Isa::Avx512), ..ops::VPBROADCASTQ };
                self.vec(op, R::NONE, Src::At(at))
            }
            _ => self.vec(ops::VBROADCASTSS, R::NONE, Src::At(at)),
        }
    }

    pub(super) fn load_contiguous(&mut self, scalar: Scalar, at: At, mask: Option<R>) -> R {
        let wide = scalar.bits() == 64;
        let dst = self.vector();
        let Some(mask) = mask else {
            let v = self.lane_op(ops::VMOVUPS, dst, R::NONE, Src::At(at));
            self.push(M::Vec(v));
            return dst;
        };
        if let Some((op, len)) = self.narrow_move(scalar, mask, false) {
            let v = LaneOp { len, ..self.lane_op(op, dst, R::NONE, Src::At(at)) };
            self.push(M::Vec(v));
            return dst;
        }
        match self.facts.isa {
            Isa::Avx512 => {
                let op = if wide { ops::VMOVUPD } else { ops::VMOVUPS };
                let v = LaneOp { mask, zeroing: true, ..self.lane_op(op, dst, R::NONE, Src::At(at)) };
                self.push(M::Vec(v));
            }
            _ => {
                let op = if wide { ops::VMASKMOVPD } else { ops::VMASKMOVPS };
                let v = self.lane_op(op, dst, mask, Src::At(at));
                self.push(M::Vec(v));
            }
        }
        dst
    }

    /// The instruction that moves exactly the first lanes that a mask has, and nothing of what is behind them: a store and a
    /// load of the same bytes then meet in the processor without going through the cache.
    fn narrow_move(&self, scalar: Scalar, mask: R, store: bool) -> Option<(VOp, Len)> {
        if scalar.bits() != 32 || self.facts.isa == Isa::Simd128 {
            return None;
        }
        let pick = |load: VOp, save: VOp| if store { save } else { load };
        Some(match self.made.prefixes.get(&mask)? {
            1 => (pick(ops::VMOVSS, ops::VMOVSS_STORE), Len::L128),
            2 => (pick(ops::VMOVSD, ops::VMOVSD_STORE), Len::L128),
            4 => (pick(ops::VMOVUPS, ops::VMOVUPS_STORE), Len::L128),
            _ => (pick(ops::VMOVUPS, ops::VMOVUPS_STORE), Len::L256),
        })
    }

    pub(super) fn gather(&mut self, scalar: Scalar, at: At, index: R, mask: Option<R>) -> Rep {
        let wide = scalar.bits() == 64;
        let mut parts = [R::NONE; 2];
        for (part, gathered) in parts.iter_mut().enumerate().take(Self::parts(scalar)) {
            let index = if part == 0 { index } else { self.upper_half(index) };
            let dst = self.vector();
            let zero = self.constant(0);
            self.push(M::Mov { dst, src: zero });
            // The instruction clears the mask that it is given.
            let once = self.new_mask();
            match mask {
                Some(mask) => {
                    let mask = self.part_mask(mask, scalar, part);
                    self.push(M::Mov { dst: once, src: mask });
                }
                None => self.mask_fill(once, true),
            }
            let op = if wide { ops::VPGATHERDQ } else { ops::VPGATHERDD };
            self.push(M::Gather { op, len: self.len(), dst, at, index, mask: once });
            *gathered = dst;
        }
        Rep::Vector(parts[0], parts[1])
    }

    pub(super) fn store(
        &mut self,
        address: &'k Address,
        element: Element,
        value: Value,
        guard: Option<Value>,
        c: usize,
    ) {
        if self.table_at(address.memory).is_some() {
            // It was written before.
            return;
        }
        if self.store_to_tile(address, value, c) {
            return;
        }
        let guard = self.guard_of(guard, c);
        if let Some(guard) = guard.filter(|&guard| self.is_scalar(guard)) {
            // All lanes are inside or none is.
            let outside = self.label();
            let test = self.scalar_reg(guard, c);
            self.push(M::Test { wide: false, a: test, b: test });
            self.push(M::JumpIf(Cond::Equal, outside));
            let mark = self.enter_scope();
            let cells = self.workgroup.cells.clone();
            self.store(address, element, value, None, c);
            self.leave_scope(mark);
            self.bind(outside);
            if !matches!(address.memory, Memory::Shared(_)) {
                self.workgroup.cells = cells;
            }
            return;
        }
        let mask = self.active(guard, c);
        if self.store_in_words(address, element, value, mask, c)
            || self.store_records(address, element, value, mask, c)
            || self.store_far_records(address, element, value, mask, c)
            || self.store_lines(address, element, value, mask, c)
            || self.store_pairs(address, element, value, mask, c)
        {
            return;
        }
        for component in 0..self.width_of(value) {
            let mut address = address.clone();
            address.offset += u32::from(component) * (element.bits() / 8).max(1);
            self.store_one(&address, element, (value, component), mask, c);
        }
    }

    /// Lanes that are active and inside.
    pub(super) fn active(&mut self, guard: Option<Value>, c: usize) -> Option<R> {
        match (guard, self.active.exec[c]) {
            (None, exec) => exec,
            (Some(guard), None) => Some(self.mask_of(guard, c)),
            (Some(guard), Some(exec)) => {
                let guard = self.mask_of(guard, c);
                Some(self.mask_and(exec, guard))
            }
        }
    }

    fn store_one(
        &mut self,
        address: &Address,
        element: Element,
        (value, component): (Value, u8),
        mask: Option<R>,
        c: usize,
    ) {
        let scalar = element.scalar();
        let narrow = matches!(element, Element::F16 | Element::U8 | Element::I8 | Element::U16 | Element::I16);
        // Only AVX-512 has these with a mask, and AVX2 of all narrow stores that of halves.
        let in_a_row = self.facts.isa.is_rich() || (element == Element::F16 && mask.is_none());
        if !is_plain(element) && !narrow {
            return self.store_by_helper(address, element, (value, component), mask, c);
        }
        // What a guard keeps out does not come here.
        let Some(place) = self.place_where(address, mask.is_none(), c) else {
            return self.store_by_helper(address, element, (value, component), mask, c);
        };
        let bytes = element.bits() as i32 / 8;
        let len = self.len();
        match place {
            Place::Affine(at, step) if step == bytes && bytes < 4 && in_a_row => {
                let src = self.vector_part(value, component, c, 0);
                let op = match element {
                    Element::U8 | Element::I8 => ops::VPMOVDB,
                    Element::F16 => ops::VCVTPS2PH,
                    _ => ops::VPMOVDW,
                };
                self.push(M::VStore { op, len, src, at, mask: mask.unwrap_or(R::NONE) });
                self.note_write(address.memory);
            }
            Place::Same(at) if is_plain(element) && mask.is_none_or(|mask| self.made.prefixes.contains_key(&mask)) => {
                // Any lane's value will do, and the first has one.
                let wide = scalar.bits() == 64;
                let src = if self.is_scalar(value) && component == 0 && self.shape_of(value).lane == Lane::Same {
                    self.scalar_reg(value, c)
                } else {
                    let v = self.vector_part(value, component, c, 0);
                    let r = self.general();
                    self.push(M::First { wide, dst: r, src: v });
                    r
                };
                let word = match bytes == 4 && !self.workgroup.cells.is_empty() {
                    true => self.vector_part(value, component, c, 0),
                    false => R::NONE,
                };
                self.push(M::Store { bytes: bytes as u32, src, at });
                if bytes == 4 {
                    self.keep_words(address.memory, at, &[(at.disp, Kept { r: word, lane: 0 })]);
                } else {
                    self.note_write(address.memory);
                }
            }
            place => {
                if bytes < 4 && (matches!(address.memory, Memory::Local(_)) || self.facts.isa == Isa::Simd128) {
                    return self.store_by_helper(address, element, (value, component), mask, c);
                }
                if bytes < 4 {
                    return self.scatter_narrow(address, element, (value, component), place, mask, c);
                }
                if let Place::Affine(at, step) = place {
                    self.ask_for_next_rows(address.memory, at, step);
                }
                let mut parts = [R::NONE; 2];
                for (part, src) in parts.iter_mut().enumerate().take(Self::parts(scalar)) {
                    *src = self.vector_part(value, component, c, part);
                }
                if self.is_far(&place) && self.store_placed(address, element, parts[0], mask, c) {
                    return;
                }
                self.store_vector(address, scalar, place, parts, mask);
            }
        }
    }

    /// Lanes neither lie in a row nor so close together that whole registers are moved.
    fn is_far(&self, place: &Place) -> bool {
        match *place {
            Place::Same(_) => false,
            Place::Affine(_, step) => step != 4 && !self.is_apart(step),
            Place::Vary(..) => true,
        }
    }

    /// Stores the lanes of whole elements side by side, or wherever each goes.
    pub(super) fn store_vector(
        &mut self,
        address: &Address,
        scalar: Scalar,
        place: Place,
        parts: [R; 2],
        mask: Option<R>,
    ) {
        let (bytes, len) = (scalar.bits() as i32 / 8, self.len());
        let (at, index) = match place {
            Place::Affine(at, step) if step == bytes => {
                for (part, src) in parts.into_iter().enumerate().take(Self::parts(scalar)) {
                    let at = At { disp: at.disp + part as i32 * len.bytes(), ..at };
                    if let Some((op, len)) = mask.and_then(|mask| self.narrow_move(scalar, mask, true)) {
                        self.push(M::VStore { op, len, src, at, mask: R::NONE });
                        let lanes = mask.and_then(|mask| self.made.prefixes.get(&mask).copied()).unwrap_or(0);
                        self.keep_cell(address.memory, at, lanes, src);
                        continue;
                    }
                    let mask = mask.map(|mask| self.part_mask(mask, scalar, part));
                    let op = match (self.facts.isa, mask.is_some(), scalar.bits() == 64) {
                        (Isa::Avx2 | Isa::Simd128, true, false) => ops::VMASKMOVPS_STORE,
                        (Isa::Avx2 | Isa::Simd128, true, true) => ops::VMASKMOVPD_STORE,
                        (_, _, false) => ops::VMOVUPS_STORE,
                        (_, _, true) => ops::VMOVUPD_STORE,
                    };
                    let op = self.store_op(op, at, mask);
                    self.push(M::VStore { op, len, src, at, mask: mask.unwrap_or(R::NONE) });
                    if let Some(lanes) = self.known_lanes_of(mask).filter(|_| Self::is_cell(scalar)) {
                        let stored = (0..self.lanes()).filter(|lane| lanes >> lane & 1 != 0);
                        let word = |lane: u32| (at.disp + 4 * lane as i32, Kept { r: src, lane });
                        self.keep_words(address.memory, at, &stored.map(word).collect::<Vec<_>>());
                    } else {
                        self.note_write(address.memory);
                    }
                }
                return;
            }
            Place::Affine(at, step)
                if bytes == 4
                    && !matches!(address.memory, Memory::Local(_))
                    && self.store_apart(address.memory, at, step, parts[0], mask) =>
            {
                return;
            }
            place if self.facts.isa == Isa::Avx2 => {
                return self.scatter_by_lanes(address, scalar, place, parts, mask);
            }
            Place::Vary(at, index) => (at, index),
            Place::Affine(at, step) => self.as_gather(at, step),
            Place::Same(at) => self.as_gather(at, 0),
        };
        for (part, src) in parts.into_iter().enumerate().take(Self::parts(scalar)) {
            let index = if part == 0 { index } else { self.upper_half(index) };
            let once = self.new_mask();
            match mask {
                Some(mask) => {
                    let mask = self.part_mask(mask, scalar, part);
                    self.push(M::Mov { dst: once, src: mask });
                }
                None => self.mask_fill(once, true),
            }
            let op = if scalar.bits() == 64 { ops::VPSCATTERDQ } else { ops::VPSCATTERDD };
            self.push(M::Scatter { op, len, src, at, index, mask: once });
            self.note_write(address.memory);
        }
    }

    /// Stores one lane after the other, for processors without an instruction for it. Neither values nor places go through memory: what
    /// is stored in several parts and then loaded as a whole waits for all of them.
    fn scatter_by_lanes(&mut self, address: &Address, scalar: Scalar, place: Place, parts: [R; 2], mask: Option<R>) {
        let first = mask.and_then(|mask| self.made.prefixes.get(&mask).copied());
        let (count, mask) = (first.unwrap_or(self.lanes()), mask.filter(|_| first.is_none()));
        let mut by_lane = self.places_of_lanes(place, mask);
        // Lanes of 128 bits.
        let (bytes, each) = (scalar.bits() / 8, 128 / scalar.bits());
        let mut half = R::NONE;
        for lane in 0..count {
            if lane % each == 0 {
                let (number, whole) = (lane / each, parts[(lane / (2 * each)) as usize]);
                half = if number % 2 == 0 { whole } else { self.upper_half(whole) };
            }
            let at = match (&mut by_lane, place) {
                (Some(by_lane), _) => by_lane.next(self, lane),
                (None, Place::Affine(at, step)) => At { disp: at.disp + step * lane as i32, ..at },
                (None, Place::Same(at) | Place::Vary(at, _)) => at,
            };
            self.push(M::StoreOne { bytes, src: half, at, which: (lane % each) as u8 });
        }
        self.forget_cells(address.memory);
    }

    /// Where lanes store, if that is not the same or a known step apart. Which lanes store is often a matter of the data, and a branch for
    /// each that goes the other way takes longer than all the stores: lanes that don't store put their value where nobody looks.
    fn places_of_lanes(&mut self, place: Place, mask: Option<R>) -> Option<ByLane> {
        let (at, index) = match (place, mask) {
            (Place::Vary(at, index), _) => (at, index),
            (_, None) => return None,
            (Place::Affine(at, step), Some(_)) => self.as_gather(at, step),
            (Place::Same(at), Some(_)) => self.as_gather(at, 0),
        };
        let is_shared = at.base == self.bases.shared && !self.bases.shared.is_none();
        let Some(mask) = mask else { return Some(ByLane::new(at, [index, R::NONE])) };
        let behind = self.frame.shared_bytes as i32 - at.disp;
        if is_shared && behind >= 0 {
            // There is room behind this memory.
            let nowhere = self.constant((behind as u32).div_ceil(u32::from(at.scale)));
            let index = self.blend(Scalar::U32, mask, Src::R(index), false, nowhere);
            return Some(ByLane::new(at, [index, R::NONE]));
        }
        // A place aside, as an index that takes all 64 bits.
        let (there, scratch, aside) = (self.general(), self.scratch(), self.general());
        self.push(M::Lea { wide: true, dst: there, at: At::new(at.base, at.disp) });
        self.push(M::Lea { wide: true, dst: aside, at: At::new(scratch, context::RESULT + 16) });
        let mut far = self.alu(Alu::Sub, true, aside, GSrc::R(there));
        if at.scale > 1 {
            let (bytes, count) = (far, GSrc::Imm(at.scale.trailing_zeros() as i32));
            far = self.general();
            self.push(M::Shift { op: Shift::Arithmetic, wide: true, dst: far, a: bytes, count });
        }
        let nowhere = self.spread(far, true);
        let indices = [0, 1].map(|part| {
            let (index, mask) = (self.widen(index, part, true), self.part_mask(mask, Scalar::U64, part));
            self.blend(Scalar::U64, mask, Src::R(index), false, nowhere)
        });
        Some(ByLane::new(at, indices))
    }

    /// Byte offsets of the lanes within their memory (element numbers for 4-bit elements), in the first scratch column.
    fn offsets_to_scratch(&mut self, scratch: R, address: &Address, c: usize) {
        let offsets = self.offsets(address, c);
        self.put_scratch(scratch, 0, offsets);
    }

    /// Byte offsets of the lanes within their memory (element numbers for 4-bit elements).
    pub(super) fn offsets(&mut self, address: &Address, c: usize) -> R {
        let mut sum = R::NONE;
        for &(index, stride) in &address.terms {
            let wide = self.scalar_of(index).bits() == 64;
            let mut v = if wide {
                // Offsets are below 2³² wherever the guard holds.
                let low = self.vector_part(index, 0, c, 0);
                let high = self.vector_part(index, 0, c, 1);
                self.truncate(low, high)
            } else {
                self.vector_of(index, c)
            };
            if stride.is_power_of_two() && stride != 1 {
                v = self.vec_imm(ops::VPSLLD, R::NONE, Src::R(v), stride.trailing_zeros() as u8);
            } else if stride != 1 {
                let by = self.constant(stride);
                v = self.vec(ops::VPMULLD, v, Src::R(by));
            }
            sum = if sum.is_none() { v } else { self.vec(ops::VPADDD, sum, Src::R(v)) };
        }
        match (sum.is_none(), address.offset) {
            (true, offset) => self.constant(offset),
            (false, 0) => sum,
            (false, offset) => {
                let offset = self.constant(offset);
                self.vec(ops::VPADDD, sum, Src::R(offset))
            }
        }
    }

    fn access_code(&self, access: Access, address: &Address, element: Element, c: usize) -> u64 {
        rare::memory_code(access, address.memory, element, c as u32)
    }

    fn load_by_helper(
        &mut self,
        value: Value,
        address: &Address,
        element: Element,
        guard: Option<Value>,
        c: usize,
    ) -> Rep {
        // It knows nothing of arrays of constants.
        self.failed |= self.table_at(address.memory).is_some();
        // The helper checks bounds by itself, so a value that is the same for all lanes is simply read for all.
        let same = self.shape_of(value).lane == Lane::Same;
        let mask = match (guard, same) {
            (Some(guard), _) => Some(self.mask_of(guard, c)),
            (None, true) => None,
            (None, false) => self.exec_of_sharers(value, c),
        };
        self.note_read(address.memory);
        let scratch = self.scratch();
        self.offsets_to_scratch(scratch, address, c);
        self.mask_to_scratch(scratch, mask);
        self.push(M::Call { code: self.access_code(Access::Load, address, element, c) });
        let rep = self.take_scratch(scratch, element.scalar());
        if !self.is_scalar(value) {
            return rep;
        }
        match rep {
            Rep::Mask(mask) => {
                let bits = self.mask_bits(mask);
                Rep::General(Lin::reg(self.alu(Alu::And, false, bits, GSrc::Imm(1))))
            }
            Rep::Vector(v, _) => {
                let r = self.general();
                self.push(M::First { wide: element.scalar().bits() == 64, dst: r, src: v });
                Rep::General(Lin::reg(r))
            }
            other => other,
        }
    }

    fn store_by_helper(
        &mut self,
        address: &Address,
        element: Element,
        (value, component): (Value, u8),
        mask: Option<R>,
        c: usize,
    ) {
        let scratch = self.scratch();
        self.offsets_to_scratch(scratch, address, c);
        self.mask_to_scratch(scratch, mask);
        self.operand_to_scratch(scratch, 1, value, component, c);
        self.push(M::Call { code: self.access_code(Access::Store, address, element, c) });
        self.forget_cells(address.memory);
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn atomic(
        &mut self,
        op: AtomicOp,
        address: &'k Address,
        element: Element,
        value: Option<Value>,
        compare: Option<Value>,
        result: Option<Value>,
        guard: Option<Value>,
        c: usize,
    ) {
        // One thread runs a workgroup, so that on its memory these are like any others; of several at one place the last counts.
        let apart = address.terms.iter().any(|&(index, _)| self.shape_of(index).lane != Lane::Same);
        if apart && matches!(address.memory, Memory::Shared(_)) {
            match (op, value, result) {
                (AtomicOp::Store, Some(value), _) => return self.store(address, element, value, guard, c),
                (AtomicOp::Load, _, Some(result)) => return self.load(result, address, element, guard, c),
                _ => {}
            }
        }
        let guard = self.guard_of(guard, c);
        let mask = self.active(guard, c);
        if let (Some(value), None) = (value, result)
            && let Some(changing) = self.lanes_that_change(op, address, element, value, mask, c)
        {
            let done = self.label();
            self.jump_if_none(&[changing], done);
            let (mark, cells) = (self.enter_scope(), self.workgroup.cells.clone());
            self.atomic_of(op, address, element, (Some(value), compare, result), Some(changing), c);
            self.leave_scope(mark);
            self.bind(done);
            self.workgroup.cells = cells;
            return;
        }
        self.atomic_of(op, address, element, (value, compare, result), mask, c);
    }

    /// An atomic of the lanes of a mask, with its value, what it compares with, and where the old value goes.
    fn atomic_of(
        &mut self,
        op: AtomicOp,
        address: &'k Address,
        element: Element,
        (value, compare, result): (Option<Value>, Option<Value>, Option<Value>),
        mask: Option<R>,
        c: usize,
    ) {
        if let Some(result) = result {
            if self.fetching_atomic(op, address, element, (value, compare, result), mask, c) {
                return;
            }
        } else if self.buffer_atomic(op, address, element, value, mask, c) {
            return;
        }
        let scratch = self.scratch();
        self.offsets_to_scratch(scratch, address, c);
        self.mask_to_scratch(scratch, mask);
        for (column, operand) in [(1, value), (2, compare)] {
            if let Some(operand) = operand {
                self.operand_to_scratch(scratch, column, operand, 0, c);
            }
        }
        let unused = if result.is_none() { rare::OLD_UNUSED } else { 0 };
        self.push(M::Call { code: self.access_code(Access::Atomic(op), address, element, c) | unused });
        self.note_read(address.memory);
        self.forget_cells(address.memory);
        if let Some(result) = result {
            let rep = self.take_scratch(scratch, element.scalar());
            self.set_rep(result, 0, c, rep);
        }
    }
}
