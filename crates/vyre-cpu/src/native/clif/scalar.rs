//! Integer instructions.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AtomicRmwOp, InstBuilder, Type, Value, types};

use super::super::asm::{Alu, Shift};
use super::super::context;
use super::super::emit::{ARG_X, ARG_X_END, ARG_Y, ARG_Z};
use super::super::mir::{At, GSrc, M, R};
use super::{Emitter, Flags, access, constant};

fn width(wide: bool) -> Type {
    if wide { types::I64 } else { types::I32 }
}

impl Emitter<'_> {
    /// A scalar register with 32 or 64 bits.
    pub(super) fn scalar_of(&mut self, r: R, wide: bool) -> Option<Value> {
        let value = self.get(r)?;
        Some(if wide { value } else { self.builder.ins().ireduce(types::I32, value) })
    }

    fn operand(&mut self, src: GSrc, wide: bool) -> Option<Value> {
        match src {
            GSrc::R(r) => self.scalar_of(r, wide),
            GSrc::Imm(imm) => {
                let imm = if wide { i64::from(imm) } else { i64::from(imm as u32) };
                Some(self.builder.ins().iconst(width(wide), imm))
            }
        }
    }

    /// An address without its displacement.
    pub(super) fn address(&mut self, at: At) -> Option<Value> {
        let base = self.get(at.base)?;
        if at.index.is_none() {
            return Some(base);
        }
        let index = self.get(at.index)?;
        let index = self.scaled(index, at.scale);
        Some(self.builder.ins().iadd(base, index))
    }

    pub(super) fn scaled(&mut self, index: Value, scale: u8) -> Value {
        match scale {
            1 => index,
            _ => {
                let count = self.builder.ins().iconst(types::I64, i64::from(scale.trailing_zeros()));
                self.builder.ins().ishl(index, count)
            }
        }
    }

    fn load(&mut self, bytes: u32, signed: bool, dst: R, at: At) -> Option<()> {
        if at.base == R::STACK {
            let arg = match at.disp {
                ARG_X => 0,
                ARG_X_END => 1,
                ARG_Y => 2,
                ARG_Z => 3,
                _ => return None,
            };
            return self.set(dst, self.args[arg]);
        }
        let address = self.address(at)?;
        if Some(at.base) == self.stop {
            // Another thread writes this word, so it must be read anew each time.
            let value = self.builder.ins().atomic_load(types::I32, access(), address);
            return self.set(dst, value);
        }
        if at.base == R::CONTEXT {
            match at.disp {
                // One address for all uses, so that what is written there is seen to be what is read.
                context::SCRATCH => return self.set(dst, self.scratch),
                context::STOP => self.stop = Some(dst),
                _ => {}
            }
            let ty = if bytes == 8 { types::I64 } else { types::I32 };
            let value = self.builder.ins().load(ty, constant(), address, at.disp);
            return self.set(dst, value);
        }
        let ins = self.builder.ins();
        let value = match (bytes, signed) {
            (1, false) => ins.uload8(types::I32, access(), address, at.disp),
            (1, true) => ins.sload8(types::I32, access(), address, at.disp),
            (2, false) => ins.uload16(types::I32, access(), address, at.disp),
            (2, true) => ins.sload16(types::I32, access(), address, at.disp),
            (4, _) => ins.load(types::I32, access(), address, at.disp),
            _ => ins.load(types::I64, access(), address, at.disp),
        };
        self.set(dst, value)
    }

    fn store(&mut self, bytes: u32, src: R, at: At) -> Option<()> {
        let address = self.address(at)?;
        let value = self.get(src)?;
        let ins = self.builder.ins();
        match bytes {
            1 => ins.istore8(access(), value, address, at.disp),
            2 => ins.istore16(access(), value, address, at.disp),
            4 => ins.istore32(access(), value, address, at.disp),
            _ => ins.store(access(), value, address, at.disp),
        };
        Some(())
    }

    fn combined(&mut self, op: Alu, a: Value, b: Value) -> Value {
        let ins = self.builder.ins();
        match op {
            Alu::Add => ins.iadd(a, b),
            Alu::Sub | Alu::Cmp => ins.isub(a, b),
            Alu::And => ins.band(a, b),
            Alu::Or => ins.bor(a, b),
            Alu::Xor => ins.bxor(a, b),
        }
    }

    /// Emits an integer instruction; `Some(false)` when it is not one.
    pub(super) fn scalar(&mut self, m: &M) -> Option<bool> {
        match *m {
            M::Mov { dst, src } if dst.class() == super::Class::General => {
                let value = self.get(src)?;
                self.set(dst, value)?;
            }
            M::Imm { dst, value } => {
                let value = self.builder.ins().iconst(types::I64, value as i64);
                self.set(dst, value)?;
            }
            M::Load { bytes, signed, dst, at } => self.load(bytes, signed, dst, at)?,
            M::Store { bytes, src, at } => self.store(bytes, src, at)?,
            M::Update { op, at, b, whole: true } => {
                let address = self.address(at)?;
                let address = self.builder.ins().iadd_imm_s(address, i64::from(at.disp));
                let b = self.operand(b, false)?;
                let op = match op {
                    Alu::Add => AtomicRmwOp::Add,
                    Alu::Sub | Alu::Cmp => AtomicRmwOp::Sub,
                    Alu::And => AtomicRmwOp::And,
                    Alu::Or => AtomicRmwOp::Or,
                    Alu::Xor => AtomicRmwOp::Xor,
                };
                self.builder.ins().atomic_rmw(types::I32, access(), op, address, b);
            }
            M::Update { op, at, b, whole: false } => {
                let address = self.address(at)?;
                let old = self.builder.ins().load(types::I32, access(), address, at.disp);
                let b = self.operand(b, false)?;
                let new = self.combined(op, old, b);
                self.builder.ins().store(access(), new, address, at.disp);
            }
            M::Fetch { adds, dst, at, b } => {
                let address = self.address(at)?;
                let address = self.builder.ins().iadd_imm_s(address, i64::from(at.disp));
                let b = self.scalar_of(b, false)?;
                let op = if adds { AtomicRmwOp::Add } else { AtomicRmwOp::Xchg };
                let old = self.builder.ins().atomic_rmw(types::I32, access(), op, address, b);
                self.set(dst, old)?;
            }
            M::CompareExchange { dst, at, compare, b } => {
                let address = self.address(at)?;
                let address = self.builder.ins().iadd_imm_s(address, i64::from(at.disp));
                let (compare, b) = (self.scalar_of(compare, false)?, self.scalar_of(b, false)?);
                let old = self.builder.ins().atomic_cas(access(), address, compare, b);
                self.set(dst, old)?;
            }
            // Cranelift has no such instruction, and nothing depends on it.
            M::Prefetch { .. } => {}
            M::Lea { wide, dst, at } => {
                let address = self.address(at)?;
                let disp = self.builder.ins().iconst(types::I64, i64::from(at.disp));
                let sum = self.builder.ins().iadd(address, disp);
                let sum = if wide { sum } else { self.builder.ins().ireduce(types::I32, sum) };
                self.set(dst, sum)?;
            }
            M::Alu { op, wide, dst, a, b } => {
                let (a, b) = (self.scalar_of(a, wide)?, self.operand(b, wide)?);
                let value = self.combined(op, a, b);
                self.flags = match op {
                    Alu::Sub | Alu::Cmp => Flags::Compared(a, b),
                    // Carries are not kept: nothing asks for those of an addition.
                    Alu::Add => Flags::None,
                    Alu::And | Alu::Or | Alu::Xor => {
                        let zero = self.builder.ins().iconst(width(wide), 0);
                        Flags::Compared(value, zero)
                    }
                };
                self.set(dst, value)?;
            }
            M::Cmp { wide, a, b } => {
                let (a, b) = (self.scalar_of(a, wide)?, self.operand(b, wide)?);
                self.flags = Flags::Compared(a, b);
            }
            M::Test { wide, a, b } => {
                if a == b
                    && let Some(&(_, mask)) = self.signs.iter().find(|(sign, _)| *sign == a)
                {
                    self.flags = Flags::Any(mask);
                    return Some(true);
                }
                let (x, y) = (self.scalar_of(a, wide)?, self.scalar_of(b, wide)?);
                let both = if a == b { x } else { self.builder.ins().band(x, y) };
                let zero = self.builder.ins().iconst(width(wide), 0);
                self.flags = Flags::Compared(both, zero);
            }
            M::Mul { wide, dst, a, b } => {
                let (a, b) = (self.scalar_of(a, wide)?, self.operand(b, wide)?);
                let value = self.builder.ins().imul(a, b);
                self.set(dst, value)?;
            }
            M::Shift { op, wide, dst, a, count } => {
                let (a, count) = (self.scalar_of(a, wide)?, self.operand(count, wide)?);
                let ins = self.builder.ins();
                let value = match op {
                    Shift::Left => ins.ishl(a, count),
                    Shift::Right => ins.ushr(a, count),
                    Shift::Arithmetic => ins.sshr(a, count),
                };
                self.set(dst, value)?;
            }
            M::Neg { wide, dst, a } => {
                let a = self.scalar_of(a, wide)?;
                let value = self.builder.ins().ineg(a);
                self.set(dst, value)?;
            }
            M::Not { wide, dst, a } => {
                let a = self.scalar_of(a, wide)?;
                let value = self.builder.ins().bnot(a);
                self.set(dst, value)?;
            }
            M::Extend { dst, src } => {
                let src = self.scalar_of(src, false)?;
                let value = self.builder.ins().sextend(types::I64, src);
                self.set(dst, value)?;
            }
            M::Div { wide, signed, rem, dst, a, b } => {
                let (a, b) = (self.scalar_of(a, wide)?, self.scalar_of(b, wide)?);
                let value = self.divide(signed, rem, a, b);
                self.set(dst, value)?;
            }
            M::Set { cond, dst } => {
                let test = self.condition(cond)?;
                self.set(dst, test)?;
            }
            M::Cmov { cond, dst, src } => {
                let test = self.condition(cond)?;
                let (yes, no) = (self.get(src)?, self.get(dst)?);
                let value = self.builder.ins().select(test, yes, no);
                self.set(dst, value)?;
            }
            _ => return Some(false),
        }
        Some(true)
    }

    /// Division that never traps: where it would, the divisor is 1, which gives what the language wants.
    pub(super) fn divide(&mut self, signed: bool, rem: bool, a: Value, b: Value) -> Value {
        let ty = self.builder.func.dfg.value_type(a);
        let zero = self.builder.ins().iconst(ty, 0);
        let one = self.builder.ins().iconst(ty, 1);
        let mut bad = self.builder.ins().icmp(IntCC::Equal, b, zero);
        if signed {
            let least = self.builder.ins().iconst(ty, if ty == types::I64 { i64::MIN } else { 1 << 31 });
            let minus = self.builder.ins().iconst(ty, if ty == types::I64 { -1 } else { 0xffff_ffff });
            let least = self.builder.ins().icmp(IntCC::Equal, a, least);
            let minus = self.builder.ins().icmp(IntCC::Equal, b, minus);
            let over = self.builder.ins().band(least, minus);
            bad = self.builder.ins().bor(bad, over);
        }
        let by = self.builder.ins().select(bad, one, b);
        let ins = self.builder.ins();
        match (signed, rem) {
            (true, false) => ins.sdiv(a, by),
            (true, true) => ins.srem(a, by),
            (false, false) => ins.udiv(a, by),
            (false, true) => ins.urem(a, by),
        }
    }
}
