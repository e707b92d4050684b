//! Values that are one scalar for all lanes of a vector, and the bases of affine ones.

use vyre_foundation::kernel::{Binary, Op, Scalar, Unary, Value, eval};

use super::super::asm::{Alu, Cond, Shift};
use super::super::context;
use super::super::emit::shift_of;
use super::super::isa::Isa;
use super::super::mir::{At, GSrc, M, R};
use super::super::shape::Lane;
use super::value::{Lin, Rep};
use super::{Lower, Made};

/// The condition of a comparison of integers.
pub(super) fn condition(op: Binary, signed: bool) -> Option<Cond> {
    Some(match (op, signed) {
        (Binary::Eq, _) => Cond::Equal,
        (Binary::Ne, _) => Cond::NotEqual,
        (Binary::Lt, true) => Cond::Less,
        (Binary::Le, true) => Cond::LessEqual,
        (Binary::Gt, true) => Cond::Greater,
        (Binary::Ge, true) => Cond::GreaterEqual,
        (Binary::Lt, false) => Cond::Below,
        (Binary::Le, false) => Cond::BelowEqual,
        (Binary::Gt, false) => Cond::Above,
        (Binary::Ge, false) => Cond::AboveEqual,
        _ => return None,
    })
}

impl<'k> Lower<'k> {
    /// The value lives in scalar registers: an integer that is the same in all lanes or affine, or a bool of the whole block.
    pub(super) fn is_scalar(&self, value: Value) -> bool {
        let shape = self.shape_of(value);
        match self.scalar_of(value) {
            Scalar::Bool => shape.is_uniform(),
            Scalar::U32 | Scalar::I32 => shape.lane != Lane::Vary,
            Scalar::U64 | Scalar::I64 => shape.lane == Lane::Same,
            Scalar::F16 | Scalar::F32 | Scalar::F64 => false,
        }
    }

    /// Computes a scalar with integer instructions; `None` when there are none for it.
    pub(super) fn scalar_op(&mut self, value: Value, op: &Op, c: usize) -> Option<Rep> {
        if let Some(bits) = self.folded(value, op, &|operand| self.constant_of(operand, c)) {
            return Some(Rep::General(Lin::imm(bits as u32 as i32)));
        }
        let scalar = self.scalar_of(value);
        let wide = scalar.bits() == 64;
        match op {
            Op::Const(literal) => Some(if wide {
                Rep::Wide(literal.bits())
            } else {
                Rep::General(Lin::imm(literal.bits() as u32 as i32))
            }),
            Op::Builtin(builtin) => Some(Rep::General(self.builtin(*builtin, c))),
            Op::Length(buffer) => {
                let r = self.general();
                let at = At::new(R::CONTEXT, context::BUFFERS + 16 * *buffer as i32 + 8);
                self.push(M::Load { bytes: if wide { 8 } else { 4 }, signed: false, dst: r, at });
                Some(Rep::General(Lin::reg(r)))
            }
            Op::Unary(op, a) => {
                if !self.is_scalar(*a) {
                    return None;
                }
                let dst = match (op, scalar) {
                    (Unary::Not, Scalar::Bool) => {
                        let a = self.scalar_reg(*a, c);
                        return Some(Rep::General(Lin::reg(self.alu(Alu::Xor, false, a, GSrc::Imm(1)))));
                    }
                    (Unary::Not, _) => {
                        let a = self.scalar_reg(*a, c);
                        let dst = self.general();
                        self.push(M::Not { wide, dst, a });
                        dst
                    }
                    (Unary::Neg, _) => {
                        let a = self.scalar_reg(*a, c);
                        let dst = self.general();
                        self.push(M::Neg { wide, dst, a });
                        dst
                    }
                    _ => return None,
                };
                Some(Rep::General(Lin::reg(dst)))
            }
            Op::Binary(op, a, b) => {
                if !self.is_scalar(*a) || !self.is_scalar(*b) {
                    return None;
                }
                self.scalar_binary(*op, *a, *b, c)
            }
            Op::Select(cond, yes, no) => {
                if ![cond, yes, no].into_iter().all(|value| self.is_scalar(*value)) {
                    return None;
                }
                let yes = self.scalar_reg(*yes, c);
                let no = self.scalar_reg(*no, c);
                let cond = self.scalar_reg(*cond, c);
                let dst = self.general();
                self.push(M::Mov { dst, src: no });
                self.push(M::Test { wide: false, a: cond, b: cond });
                self.push(M::Cmov { cond: Cond::NotEqual, dst, src: yes });
                Some(Rep::General(Lin::reg(dst)))
            }
            Op::Cast(a) => {
                if !self.is_scalar(*a) {
                    return None;
                }
                let from = self.scalar_of(*a);
                match (from, scalar) {
                    (from, to) if from == to => Some(self.rep(*a, 0, c)),
                    (Scalar::U32 | Scalar::I32, Scalar::U32 | Scalar::I32) => Some(self.rep(*a, 0, c)),
                    (Scalar::U64 | Scalar::I64, Scalar::U64 | Scalar::I64) => Some(self.rep(*a, 0, c)),
                    (Scalar::Bool | Scalar::U32, _) if scalar != Scalar::Bool => {
                        let r = self.scalar_reg(*a, c);
                        Some(Rep::General(Lin::reg(r)))
                    }
                    (Scalar::I32, Scalar::U64 | Scalar::I64) => {
                        let r = self.scalar_reg(*a, c);
                        Some(Rep::General(Lin::reg(self.extended(r))))
                    }
                    (Scalar::U64 | Scalar::I64, Scalar::U32 | Scalar::I32) => {
                        let r = self.scalar_reg(*a, c);
                        Some(Rep::General(Lin::reg(self.alu(Alu::And, false, r, GSrc::Imm(-1)))))
                    }
                    (_, Scalar::Bool) => {
                        let r = self.scalar_reg(*a, c);
                        let dst = self.general();
                        self.push(M::Test { wide: from.bits() == 64, a: r, b: r });
                        self.push(M::Set { cond: Cond::NotEqual, dst });
                        Some(Rep::General(Lin::reg(dst)))
                    }
                    _ => None,
                }
            }
            Op::BitCast(a) => {
                (self.is_scalar(*a) && self.scalar_of(*a).bits() == scalar.bits()).then(|| self.rep(*a, 0, c))
            }
            _ => None,
        }
    }

    /// A 32-bit scalar, sign-extended.
    pub(super) fn extended(&mut self, r: R) -> R {
        let made = Made::Extended(r);
        if let Some(r) = self.made.get(made) {
            return r;
        }
        let dst = self.general();
        self.push(M::Extend { dst, src: r });
        self.remember(made, dst);
        dst
    }

    /// An operand of an integer instruction: a small constant or a register.
    fn operand(&mut self, value: Value, c: usize) -> GSrc {
        match self.rep(value, 0, c) {
            Rep::General(lin) if lin.reg.is_none() && self.scalar_of(value).bits() != 64 => GSrc::Imm(lin.add),
            Rep::Wide(bits) if i32::try_from(bits as i64).is_ok() => GSrc::Imm(bits as i32),
            _ => GSrc::R(self.scalar_reg(value, c)),
        }
    }

    fn scalar_binary(&mut self, op: Binary, a: Value, b: Value, c: usize) -> Option<Rep> {
        let scalar = self.scalar_of(a);
        let wide = scalar.bits() == 64;
        let signed = scalar.is_signed();
        let general = |r: R| Some(Rep::General(Lin::reg(r)));
        // Where vectors are in their workgroup is known.
        if let (false, Rep::General(x), Rep::General(y)) = (wide, self.rep(a, 0, c), self.rep(b, 0, c))
            && let (Some(x), Some(y)) = (x.constant(), y.constant())
        {
            let bits = eval::binary(op, scalar, u64::from(x as u32), u64::from(y as u32));
            return Some(Rep::General(Lin::imm(bits as u32 as i32)));
        }
        if let Some(cond) = condition(op, signed) {
            let b = self.operand(b, c);
            let a = self.scalar_reg(a, c);
            let dst = self.general();
            self.push(M::Cmp { wide, a, b });
            self.push(M::Set { cond, dst });
            return general(dst);
        }
        // Constants are carried along, so that they end up in displacements.
        if !wide && matches!(op, Binary::Add | Binary::Sub | Binary::Mul | Binary::Shl) {
            let (x, y) = (self.lin(a, c), self.lin(b, c));
            match (op, x.constant(), y.constant()) {
                (Binary::Add, _, Some(add)) => return Some(Rep::General(x.plus(add))),
                (Binary::Add, Some(add), _) => return Some(Rep::General(y.plus(add))),
                (Binary::Sub, _, Some(sub)) => return Some(Rep::General(x.plus(sub.wrapping_neg()))),
                (Binary::Sub, Some(0), None) if y.add == 0 => {
                    let dst = self.general();
                    self.push(M::Neg { wide: false, dst, a: y.reg });
                    return general(dst);
                }
                (Binary::Mul, _, Some(by)) => return Some(self.scaled_lin(x, by)),
                (Binary::Mul, Some(by), _) => return Some(self.scaled_lin(y, by)),
                (Binary::Shl, _, Some(count)) => return Some(self.scaled_lin(x, 1i32.wrapping_shl(count as u32 & 31))),
                (Binary::Add, None, None) => {
                    let r = self.alu(Alu::Add, false, x.reg, GSrc::R(y.reg));
                    return Some(Rep::General(Lin::reg(r).plus(x.add).plus(y.add)));
                }
                (Binary::Sub, None, None) => {
                    let r = self.alu(Alu::Sub, false, x.reg, GSrc::R(y.reg));
                    return Some(Rep::General(Lin::reg(r).plus(x.add).plus(y.add.wrapping_neg())));
                }
                _ => {}
            }
        }
        if let Some((others, of)) = self.lowest_bit(op, a, b) {
            let src = self.scalar_reg(of, c);
            let dst = self.general();
            self.push(M::LowestBit { others, dst, src });
            return general(dst);
        }
        let alu = match op {
            Binary::Add => Some(Alu::Add),
            Binary::Sub => Some(Alu::Sub),
            Binary::And => Some(Alu::And),
            Binary::Or => Some(Alu::Or),
            Binary::Xor => Some(Alu::Xor),
            _ => None,
        };
        if let Some(alu) = alu {
            let b = self.operand(b, c);
            let a = self.scalar_reg(a, c);
            return general(self.alu(alu, wide, a, b));
        }
        match op {
            Binary::Mul => {
                let b = self.operand(b, c);
                let a = self.scalar_reg(a, c);
                general(self.product(wide, a, b))
            }
            Binary::Div | Binary::Rem => {
                let (a, b) = (self.scalar_reg(a, c), self.scalar_reg(b, c));
                let dst = self.general();
                self.push(M::Div { wide, signed, rem: op == Binary::Rem, dst, a, b });
                general(dst)
            }
            Binary::Shl | Binary::Shr => {
                let mask = scalar.bits() as i32 - 1;
                let count = match self.operand(b, c) {
                    GSrc::Imm(count) => GSrc::Imm(count & mask),
                    r => r,
                };
                let a = self.scalar_reg(a, c);
                let dst = self.general();
                let shift = if op == Binary::Shl { Shift::Left } else { shift_of(signed) };
                self.push(M::Shift { op: shift, wide, dst, a, count });
                general(dst)
            }
            Binary::Min | Binary::Max => {
                let (a, b) = (self.scalar_reg(a, c), self.scalar_reg(b, c));
                let dst = self.general();
                self.push(M::Mov { dst, src: a });
                self.push(M::Cmp { wide, a: b, b: GSrc::R(a) });
                let cond = match (op == Binary::Min, signed) {
                    (true, true) => Cond::Less,
                    (true, false) => Cond::Below,
                    (false, true) => Cond::Greater,
                    (false, false) => Cond::Above,
                };
                self.push(M::Cmov { cond, dst, src: b });
                general(dst)
            }
            Binary::MulHigh if !wide => {
                let (mut a, mut b) = (self.scalar_reg(a, c), self.scalar_reg(b, c));
                if signed {
                    a = self.extended(a);
                    b = self.extended(b);
                }
                let product = self.product(true, a, GSrc::R(b));
                let dst = self.general();
                self.push(M::Shift { op: Shift::Right, wide: true, dst, a: product, count: GSrc::Imm(32) });
                general(dst)
            }
            _ => None,
        }
    }

    /// Of which number this is the lowest bit, `x & -x`, or all others, `x ^ (x & -x)`, and which of the two.
    fn lowest_bit(&self, op: Binary, a: Value, b: Value) -> Option<(bool, Value)> {
        if self.facts.isa == Isa::Simd128 || self.scalar_of(a).bits() != 32 {
            return None;
        }
        let op_of = |value: Value| self.facts.makers.ops[value.index()];
        let is_zero = |value: Value| matches!(op_of(value), Some(Op::Const(literal)) if literal.bits() as u32 == 0);
        let negates = |minus: Value, of: Value| match op_of(minus) {
            Some(Op::Unary(Unary::Neg, value)) => *value == of,
            Some(Op::Binary(Binary::Sub, zero, value)) => *value == of && is_zero(*zero),
            _ => false,
        };
        let is_lowest = |bit: Value, of: Value| match op_of(bit) {
            Some(Op::Binary(Binary::And, x, y)) => *x == of && negates(*y, of) || *y == of && negates(*x, of),
            _ => false,
        };
        match op {
            Binary::And if negates(b, a) => Some((false, a)),
            Binary::And if negates(a, b) => Some((false, b)),
            Binary::Xor if is_lowest(b, a) => Some((true, a)),
            Binary::Xor if is_lowest(a, b) => Some((true, b)),
            _ => None,
        }
    }

    pub(super) fn product(&mut self, wide: bool, a: R, b: GSrc) -> R {
        let made = Made::Mul(wide, a, b);
        if let Some(r) = self.made.get(made) {
            return r;
        }
        let dst = self.general();
        self.push(M::Mul { wide, dst, a, b });
        self.remember(made, dst);
        dst
    }

    pub(super) fn shifted(&mut self, wide: bool, a: R, count: i32) -> R {
        let made = Made::Shl(wide, a, count);
        if let Some(r) = self.made.get(made) {
            return r;
        }
        let dst = self.general();
        self.push(M::Shift { op: Shift::Left, wide, dst, a, count: GSrc::Imm(count) });
        self.remember(made, dst);
        dst
    }

    fn scaled_lin(&mut self, lin: Lin, by: i32) -> Rep {
        if let Some(constant) = lin.constant() {
            return Rep::General(Lin::imm(constant.wrapping_mul(by)));
        }
        let reg = if by == 1 {
            lin.reg
        } else if (by as u32).is_power_of_two() {
            self.shifted(false, lin.reg, by.trailing_zeros() as i32)
        } else {
            self.product(false, lin.reg, GSrc::Imm(by))
        };
        Rep::General(Lin { reg, add: lin.add.wrapping_mul(by) })
    }
}
