//! Exponentials of what is known not to be large: their powers of two in fewer steps.
//!
//! `y · 2ⁿ` is computed as `y · 2ᵃ · 2ᵇ` with a = min(n, 103) + 24 and b = n − a, so that neither power overflows and the product is
//! rounded once. Where n is at most 103, that is `y · 2ⁿ⁺²⁴ · 2⁻²⁴`. A limit that a float keeps to anyway is no step either.

use hashbrown::HashMap;

use super::floats::Interval;
use super::values::{Values, named};
use crate::ir::Literal;
use crate::kernel::math::{MOST_AT_ONCE, NO_FRACTION, ONE_AHEAD, ONE_BEHIND};
use crate::kernel::walk::{each_operand_mut, each_value_mut, replace_insts};
use crate::kernel::{Binary, Block, Inst, Op, Scalar, Value};

const MANTISSA: u32 = 23;

pub(super) fn run(body: &mut Block, values: &mut Values, floats: &[Interval]) {
    let is_candidate = |(value, op): (Value, &Op)| {
        values.scalar(value) == Scalar::F32 && matches!(op, Op::BitCast(_) | Op::Binary(Binary::Min | Binary::Max, ..))
    };
    if !values.made().any(is_candidate) {
        return;
    }
    let mut powers = Powers { values, floats };
    let mut names = HashMap::new();
    replace_insts(body, &mut |mut inst, insts| {
        if let Inst::Let(value, op) = &mut inst {
            each_operand_mut(op, &mut |operand| *operand = named(*operand, &names));
            if let Some(same) = powers.unlimited(op) {
                names.insert(*value, same);
                return;
            }
            if let Some((factor, word)) = powers.scaled(op) {
                *op = powers.scale(factor, word, insts);
            }
        }
        insts.push(inst);
    });
    if !names.is_empty() {
        each_value_mut(body, &mut |value| *value = named(*value, &names));
    }
}

struct Powers<'a> {
    values: &'a mut Values,
    floats: &'a [Interval],
}

impl Powers<'_> {
    fn interval(&self, value: Value) -> Interval {
        self.floats.get(value.index()).copied().unwrap_or(Interval::ANY)
    }

    /// The operand that a least or greatest of it and a constant always is. NaN as the first operand stays.
    fn unlimited(&self, op: &Op) -> Option<Value> {
        let Op::Binary(op @ (Binary::Min | Binary::Max), a, b) = *op else { return None };
        let Some(Literal::F32(limit)) = self.values.literal(b) else { return None };
        let (bounds, limit) = (self.interval(a), f64::from(limit));
        let kept = if op == Binary::Min { bounds.high < limit } else { bounds.low > limit };
        kept.then_some(a)
    }

    /// `y` and the word of n, of `y · 2ᵃ · 2ᵇ` with n of at most 103.
    fn scaled(&self, op: &Op) -> Option<(Value, Value)> {
        let Op::Binary(Binary::Mul, once, second) = *op else { return None };
        let Some(&Op::Binary(Binary::Mul, factor, first)) = self.values.def(once) else { return None };
        let (first, second) = (self.exponent(first, ONE_AHEAD)?, self.exponent(second, ONE_BEHIND)?);
        let Some(&Op::Binary(Binary::Sub, word, least)) = self.values.def(second) else { return None };
        let Some(&Op::Binary(Binary::Min, whole, most)) = self.values.def(least) else { return None };
        if least != first || whole != word || !matches!(self.values.literal(most), Some(Literal::I32(MOST_AT_ONCE))) {
            return None;
        }
        let Some(&Op::BitCast(shifted)) = self.values.def(word) else { return None };
        let (bounds, factors) = (self.interval(shifted), self.interval(factor));
        let known = bounds.low > 0.0 && bounds.high <= NO_FRACTION + 103.0;
        // NaN gives NaN whatever it is multiplied by; it comes from where the factor does.
        let nan = bounds.nan && !factors.nan;
        (known && !nan && self.values.ty(word) == Scalar::I32.into()).then_some((factor, word))
    }

    /// Of which word a float's exponent was made: `bitcast<f32>((word << 23) + one)`.
    fn exponent(&self, power: Value, one: i32) -> Option<Value> {
        let Some(&Op::BitCast(bits)) = self.values.def(power) else { return None };
        let Some(&Op::Binary(Binary::Add, shifted, added)) = self.values.def(bits) else { return None };
        let Some(&Op::Binary(Binary::Shl, word, count)) = self.values.def(shifted) else { return None };
        let right = matches!(self.values.literal(added), Some(Literal::I32(added)) if added == one)
            && matches!(self.values.literal(count), Some(Literal::U32(MANTISSA)))
            && self.values.ty(power) == Scalar::F32.into();
        right.then_some(word)
    }

    fn scale(&mut self, factor: Value, word: Value, insts: &mut Vec<Inst>) -> Op {
        let count = self.values.constant(Scalar::U32, MANTISSA, insts);
        let shifted = self.values.binary(Binary::Shl, word, count, insts);
        let ahead = self.values.constant(Scalar::I32, ONE_AHEAD, insts);
        let bits = self.values.binary(Binary::Add, shifted, ahead, insts);
        let power = self.values.define(Scalar::F32, Op::BitCast(bits), insts);
        let once = self.values.binary(Binary::Mul, factor, power, insts);
        let back = Literal::F32(f32::from_bits(ONE_BEHIND as u32));
        let back = self.values.define(Scalar::F32, Op::Const(back), insts);
        Op::Binary(Binary::Mul, once, back)
    }
}
