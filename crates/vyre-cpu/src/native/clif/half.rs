//! Conversions of half floats, which have no instruction that is the same everywhere.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F32X4, I32, I32X4};
use cranelift_codegen::ir::{InstBuilder, Value};

use super::Emitter;

impl Emitter<'_> {
    /// Words whose upper halves are zero, packed into the lower half of a vector.
    pub(super) fn pack_halves(&mut self, v: Value) -> Value {
        self.shuffle(v, v, [0, 1, 4, 5, 8, 9, 12, 13, 0, 1, 4, 5, 8, 9, 12, 13])
    }

    fn and(&mut self, v: Value, bits: u32) -> Value {
        let bits = self.splat(bits);
        self.builder.ins().band(v, bits)
    }

    fn left(&mut self, v: Value, count: i64) -> Value {
        let count = self.builder.ins().iconst(I32, count);
        self.builder.ins().ishl(v, count)
    }

    fn right(&mut self, v: Value, count: i64) -> Value {
        let count = self.builder.ins().iconst(I32, count);
        self.builder.ins().ushr(v, count)
    }

    /// Halves in the lower halves of words, as floats. Exact.
    pub(super) fn widen_halves(&mut self, halves: Value) -> Value {
        let sign = self.and(halves, 0x8000);
        let sign = self.left(sign, 16);
        let rest = self.and(halves, 0x7fff);
        let rest = self.left(rest, 13);
        // The exponent's bias changes by a product, which gets subnormal numbers right too.
        let scale = self.splat(0x7780_0000);
        let (small, scale) = (self.cast(F32X4, rest), self.cast(F32X4, scale));
        let finite = self.builder.ins().fmul(small, scale);
        let finite = self.cast(I32X4, finite);
        let top = self.splat(0x7f80_0000);
        let endless = self.builder.ins().bor(rest, top);
        let limit = self.splat(0x0f80_0000 - 1);
        let is_endless = self.builder.ins().icmp(IntCC::SignedGreaterThan, rest, limit);
        let value = self.builder.ins().bitselect(is_endless, endless, finite);
        self.builder.ins().bor(value, sign)
    }

    /// Floats rounded to nearest even as halves, in the lower halves of words.
    pub(super) fn round_to_halves(&mut self, v: Value) -> Value {
        let sign = self.right(v, 16);
        let sign = self.and(sign, 0x8000);
        let size = self.and(v, 0x7fff_ffff);
        // Normal: move the bias, add just under half of what is cut off and the last bit that stays.
        let odd = self.right(size, 13);
        let odd = self.and(odd, 1);
        let bias = self.splat(0xc800_0fff);
        let normal = self.builder.ins().iadd(size, bias);
        let normal = self.builder.ins().iadd(normal, odd);
        let normal = self.right(normal, 13);
        // Subnormal: a sum with 0.5 rounds at the right place.
        let half = self.splat(0x3f00_0000);
        let (a, b) = (self.cast(F32X4, size), self.cast(F32X4, half));
        let sum = self.builder.ins().fadd(a, b);
        let sum = self.cast(I32X4, sum);
        let small = self.builder.ins().isub(sum, half);
        let limit = self.splat(0x3880_0000);
        let is_small = self.builder.ins().icmp(IntCC::SignedLessThan, size, limit);
        let value = self.builder.ins().bitselect(is_small, small, normal);
        // Too large, infinite or not a number.
        let (infinite, quiet) = (self.splat(0x7c00), self.splat(0x7e00));
        let top = self.splat(0x7f80_0000);
        let is_nan = self.builder.ins().icmp(IntCC::SignedGreaterThan, size, top);
        let large = self.builder.ins().bitselect(is_nan, quiet, infinite);
        let limit = self.splat(0x4780_0000 - 1);
        let is_large = self.builder.ins().icmp(IntCC::SignedGreaterThan, size, limit);
        let value = self.builder.ins().bitselect(is_large, large, value);
        self.builder.ins().bor(value, sign)
    }
}
