//! Exponentials of what is known not to be large: their powers of two in fewer steps.
//!
//! `y · 2ⁿ` is computed as `y · 2ᵃ · 2ᵇ` with a = min(n, 103) + 24 and b = n − a, so that neither power overflows and the product is
//! rounded once. Where n is at most 103, that is `y · 2ⁿ⁺²⁴ · 2⁻²⁴`. A limit that a float keeps to anyway is no step either.

use super::floats::Interval;
use crate::ir::Literal;
use crate::kernel::math::{MOST_AT_ONCE, NO_FRACTION, ONE_AHEAD, ONE_BEHIND};
use crate::kernel::walk::{each_use_mut, end_values_mut};
use crate::kernel::{Binary, Block, Inst, Kernel, Op, Scalar, Value, ValueInfo};

const MANTISSA: u32 = 23;

/// `defs`: how values are made.
pub(super) fn run(kernel: &mut Kernel, floats: &[Interval], defs: &[Option<Op>]) {
    let is_candidate = |(info, op): (&ValueInfo, &Option<Op>)| {
        info.ty.scalar == Scalar::F32 && matches!(op, Some(Op::BitCast(_) | Op::Binary(Binary::Min | Binary::Max, ..)))
    };
    if !kernel.values.iter().zip(defs).any(is_candidate) {
        return;
    }
    let mut powers = Powers {
        defs,
        floats,
        subst: (0..kernel.values.len() as u32).map(Value).collect(),
        values: std::mem::take(&mut kernel.values),
    };
    powers.block(&mut kernel.body);
    kernel.values = powers.values;
}

struct Powers<'a> {
    defs: &'a [Option<Op>],
    floats: &'a [Interval],
    subst: Vec<Value>,
    values: Vec<ValueInfo>,
}

impl Powers<'_> {
    fn block(&mut self, block: &mut Block) {
        let mut insts = Vec::with_capacity(block.insts.len());
        for mut inst in std::mem::take(&mut block.insts) {
            each_use_mut(&mut inst, &mut |value| *value = self.subst[value.index()]);
            match &mut inst {
                Inst::Let(value, op) => {
                    if let Some(same) = self.unlimited(op) {
                        self.subst[value.index()] = same;
                        continue;
                    }
                    if let Some((factor, word)) = self.scaled(op) {
                        *op = self.scale(factor, word, &mut insts);
                    }
                }
                Inst::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
                Inst::Loop(inner) => self.block(&mut inner.body),
                _ => {}
            }
            insts.push(inst);
        }
        for value in end_values_mut(&mut block.end) {
            *value = self.subst[value.index()];
        }
        block.insts = insts;
    }

    fn def(&self, value: Value) -> Option<&Op> {
        self.defs.get(value.index())?.as_ref()
    }

    fn literal(&self, value: Value) -> Option<Literal> {
        match self.def(value) {
            Some(Op::Const(literal)) => Some(*literal),
            _ => None,
        }
    }

    fn interval(&self, value: Value) -> Interval {
        self.floats.get(value.index()).copied().unwrap_or(Interval::ANY)
    }

    /// The operand that a least or greatest of it and a constant always is. NaN as the first operand stays.
    fn unlimited(&self, op: &Op) -> Option<Value> {
        let Op::Binary(op @ (Binary::Min | Binary::Max), a, b) = *op else { return None };
        let Some(Literal::F32(limit)) = self.literal(b) else { return None };
        let (bounds, limit) = (self.interval(a), f64::from(limit));
        let kept = if op == Binary::Min { bounds.high < limit } else { bounds.low > limit };
        kept.then_some(a)
    }

    /// `y` and the word of n, of `y · 2ᵃ · 2ᵇ` with n of at most 103.
    fn scaled(&self, op: &Op) -> Option<(Value, Value)> {
        let Op::Binary(Binary::Mul, once, second) = *op else { return None };
        let Some(&Op::Binary(Binary::Mul, factor, first)) = self.def(once) else { return None };
        let (first, second) = (self.exponent(first, ONE_AHEAD)?, self.exponent(second, ONE_BEHIND)?);
        let Some(&Op::Binary(Binary::Sub, word, least)) = self.def(second) else { return None };
        let Some(&Op::Binary(Binary::Min, whole, most)) = self.def(least) else { return None };
        if least != first || whole != word || !matches!(self.literal(most), Some(Literal::I32(MOST_AT_ONCE))) {
            return None;
        }
        let Some(&Op::BitCast(shifted)) = self.def(word) else { return None };
        let (bounds, factors) = (self.interval(shifted), self.interval(factor));
        let known = bounds.low > 0.0 && bounds.high <= NO_FRACTION + 103.0;
        // NaN gives NaN whatever it is multiplied by; it comes from where the factor does.
        let nan = bounds.nan && !factors.nan;
        (known && !nan && self.values[word.index()].ty == Scalar::I32.into()).then_some((factor, word))
    }

    /// Of which word a float's exponent was made: `bitcast<f32>((word << 23) + one)`.
    fn exponent(&self, power: Value, one: i32) -> Option<Value> {
        let Some(&Op::BitCast(bits)) = self.def(power) else { return None };
        let Some(&Op::Binary(Binary::Add, shifted, added)) = self.def(bits) else { return None };
        let Some(&Op::Binary(Binary::Shl, word, count)) = self.def(shifted) else { return None };
        let right = matches!(self.literal(added), Some(Literal::I32(added)) if added == one)
            && matches!(self.literal(count), Some(Literal::U32(MANTISSA)))
            && self.values[power.index()].ty == Scalar::F32.into();
        right.then_some(word)
    }

    fn scale(&mut self, factor: Value, word: Value, insts: &mut Vec<Inst>) -> Op {
        let count = self.define(Scalar::U32, Op::Const(Literal::U32(MANTISSA)), insts);
        let shifted = self.define(Scalar::I32, Op::Binary(Binary::Shl, word, count), insts);
        let ahead = self.define(Scalar::I32, Op::Const(Literal::I32(ONE_AHEAD)), insts);
        let bits = self.define(Scalar::I32, Op::Binary(Binary::Add, shifted, ahead), insts);
        let power = self.define(Scalar::F32, Op::BitCast(bits), insts);
        let once = self.define(Scalar::F32, Op::Binary(Binary::Mul, factor, power), insts);
        let back = self.define(Scalar::F32, Op::Const(Literal::F32(f32::from_bits(ONE_BEHIND as u32))), insts);
        Op::Binary(Binary::Mul, once, back)
    }

    fn define(&mut self, ty: Scalar, op: Op, insts: &mut Vec<Inst>) -> Value {
        let value = Value(self.values.len() as u32);
        self.values.push(ValueInfo { ty: ty.into(), uniform: false });
        self.subst.push(value);
        insts.push(Inst::Let(value, op));
        value
    }
}
