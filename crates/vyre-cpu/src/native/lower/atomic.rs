//! Atomics, one lane after another. A workgroup runs on one thread, so that on its memory they are plain operations.

use vyre_foundation::ir::AtomicOp;
use vyre_foundation::kernel::{Address, Element, Memory, Scalar, Value};

use super::super::asm::{Alu, Cond};
use super::super::context::{self, COLUMN};
use super::super::mir::{At, GSrc, M, R, Src};
use super::super::shape::Lane;
use super::Lower;
use super::memory::Place;
use super::value::Rep;

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

impl<'k> Lower<'k> {
    /// An atomic on workgroup memory as instructions; false where it is none.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn workgroup_atomic(
        &mut self,
        op: AtomicOp,
        address: &'k Address,
        element: Element,
        value: Option<Value>,
        compare: Option<Value>,
        result: Option<Value>,
        mask: Option<R>,
        c: usize,
    ) -> bool {
        let Memory::Shared(index) = address.memory else { return false };
        if !matches!(element, Element::U32 | Element::I32) {
            return false;
        }
        let first = self.shared_at[index as usize];
        let scratch = self.scratch();
        let mut offsets = self.offsets(address, c);
        if let Some(mask) = mask {
            // Lanes that are not here work on a word of their own.
            let nowhere = self.constant(self.shared_bytes - first);
            offsets = self.blend(Scalar::U32, mask, Src::R(offsets), false, nowhere);
        }
        self.put_scratch(scratch, 0, offsets);
        let value = value.map(|value| self.atomic_operand(scratch, 1, value, c));
        let compare = compare.map(|compare| self.atomic_operand(scratch, 2, compare, c));
        for lane in 0..self.lanes() {
            let place = self.general();
            let lane_at = |column: i32| At::new(scratch, column * COLUMN + 4 * lane as i32);
            self.push(M::Load { bytes: 4, signed: false, dst: place, at: lane_at(0) });
            let at = At { base: self.shared_base, index: place, scale: 1, disp: first as i32 };
            let value = value.map(|operand| self.of_lane(operand, lane_at(1)));
            let compare = compare.map(|operand| self.of_lane(operand, lane_at(2)));
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
                    let takes = match (op, element) {
                        (AtomicOp::Min, Element::I32) => Cond::Less,
                        (AtomicOp::Min, _) => Cond::Below,
                        (_, Element::I32) => Cond::Greater,
                        _ => Cond::Above,
                    };
                    let value = self.in_register(value);
                    Some(self.either(M::Cmp { wide: false, a: value, b: GSrc::R(old) }, takes, value, old))
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
        true
    }

    /// An atomic on words of a buffer that lie apart, where nobody needs the old values; false where it is none.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn buffer_atomic(
        &mut self,
        op: AtomicOp,
        address: &'k Address,
        element: Element,
        value: Option<Value>,
        result: Option<Value>,
        mask: Option<R>,
        c: usize,
    ) -> bool {
        let here = matches!(address.memory, Memory::Buffer(_)) && matches!(element, Element::U32 | Element::I32);
        let (true, None, Some(op), Some(value)) = (here, result, plain(op), value) else { return false };
        // Where all lanes meet at one word, their values are put together first.
        if address.terms.iter().all(|&(index, _)| self.shape_of(index).lane == Lane::Same) {
            return false;
        }
        let Some(place) = self.place(address, c) else { return false };
        let scratch = self.scratch();
        if let Place::Vary(_, index) = place {
            self.put_scratch(scratch, 0, index);
        }
        let value = self.atomic_operand(scratch, 1, value, c);
        let bits = mask.map(|mask| self.mask_bits(mask));
        for lane in 0..self.lanes() as i32 {
            let next = self.label();
            if let Some(bits) = bits {
                let here = self.general();
                self.push(M::Alu { op: Alu::And, wide: false, dst: here, a: bits, b: GSrc::Imm(1 << lane) });
                self.push(M::JumpIf(Cond::Equal, next));
            }
            let at = match place {
                Place::Same(at) => at,
                Place::Affine(at, step) => At { disp: at.disp + lane * step, ..at },
                Place::Vary(at, _) => {
                    let (offset, index) = (self.general(), self.general());
                    self.push(M::Load { bytes: 4, signed: false, dst: offset, at: At::new(scratch, 4 * lane) });
                    self.push(M::Extend { dst: index, src: offset });
                    At { index, ..at }
                }
            };
            let b = self.of_lane(value, At::new(scratch, COLUMN + 4 * lane));
            self.push(M::Update { op, at, b, whole: true });
            if bits.is_some() {
                self.push(M::Label(next));
            }
        }
        true
    }

    /// An operand that is the same for all lanes, or `None` when each has its own in a column of the scratch memory.
    fn atomic_operand(&mut self, scratch: R, column: i32, operand: Value, c: usize) -> Option<GSrc> {
        if let Some(bits) = self.constant_of(operand, c) {
            return Some(GSrc::Imm(bits as u32 as i32));
        }
        if self.is_scalar(operand) && self.shape_of(operand).lane == Lane::Same {
            return Some(GSrc::R(self.scalar_reg(operand, c)));
        }
        self.operand_to_scratch(scratch, column, operand, 0, c);
        None
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
