//! Numbers that are taken apart and put together again: of `c = i % 8u`, `x = (i / 8u) % 64u` and `y = i / 512u` the place `(y * 64u + x) * 8u + c` is `i`
//! again, and the place of a neighbour is `i` and a constant. What differs evenly from one invocation to the next is seen to do so then.
//!
//! Sums are written as quotients times constants, where a remainder is a number less a multiple of its quotient: what is taken away by one part is added
//! by another. All of it is arithmetic modulo 2³², so it holds for numbers that wrap, and for those with signs.

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::values::Values;
use crate::kernel::walk::blocks_mut;
use crate::kernel::{Binary, Inst, Kernel, Op, Scalar, Value};

/// Terms of a sum that is looked at.
const MOST_TERMS: usize = 6;

/// Puts numbers together again.
pub(super) fn run(kernel: &mut Kernel) {
    let mut sums = Sums { values: Values::with_definitions(kernel), known: [HashMap::new(), HashMap::new()] };
    sums.in_insts(&mut kernel.body.insts);
    sums.values.give_back(kernel);
}

/// A number without a sign, divided by a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Quotient {
    of: Value,
    by: u32,
}

/// Quotients times constants, and a constant.
#[derive(Clone, Default, Debug)]
struct Sum {
    terms: SmallVec<[(Quotient, u32); 3]>,
    constant: u32,
}

impl Sum {
    fn of(quotient: Quotient) -> Sum {
        Sum { terms: SmallVec::from_slice(&[(quotient, 1)]), constant: 0 }
    }

    fn alone(value: Value) -> Sum {
        Sum::of(Quotient { of: value, by: 1 })
    }

    fn add(&mut self, other: &Sum, times: u32) {
        self.constant = self.constant.wrapping_add(other.constant.wrapping_mul(times));
        for &(quotient, factor) in &other.terms {
            let factor = factor.wrapping_mul(times);
            match self.terms.iter_mut().find(|(own, _)| *own == quotient) {
                Some((_, own)) => *own = own.wrapping_add(factor),
                None => self.terms.push((quotient, factor)),
            }
        }
        self.terms.retain(|(_, factor)| *factor != 0);
    }
}

struct Sums {
    values: Values,
    /// Sums by value: with remainders as they stand, and taken apart.
    known: [HashMap<Value, Sum>; 2],
}

impl Sums {
    fn in_insts(&mut self, insts: &mut Vec<Inst>) {
        let mut out = Vec::with_capacity(insts.len());
        for mut inst in std::mem::take(insts) {
            if let Inst::Let(value, op @ Op::Binary(Binary::Add | Binary::Sub, ..)) = &mut inst
                && self.is_word(*value)
                && let [standing, apart] = [false, true].map(|apart| self.sum(*value, apart))
                && apart.terms.len() < standing.terms.len()
                && apart.terms.iter().all(|(quotient, _)| quotient.of != *value)
            {
                *op = self.joined(*value, &apart, &mut out);
                self.values.set(*value, op);
                for known in &mut self.known {
                    known.insert(*value, apart.clone());
                }
            }
            blocks_mut(&mut inst).for_each(|block| self.in_insts(&mut block.insts));
            out.push(inst);
        }
        *insts = out;
    }

    fn is_word(&self, value: Value) -> bool {
        self.values.ty(value).width == 1 && matches!(self.values.scalar(value), Scalar::U32 | Scalar::I32)
    }

    fn sum(&mut self, value: Value, apart: bool) -> Sum {
        if let Some(sum) = self.known[usize::from(apart)].get(&value) {
            return sum.clone();
        }
        let mut sum = self.made_of(value, apart);
        if sum.terms.len() > MOST_TERMS {
            sum = Sum::alone(value);
        }
        self.known[usize::from(apart)].insert(value, sum.clone());
        sum
    }

    fn made_of(&mut self, value: Value, apart: bool) -> Sum {
        let number = |this: &Self, value: Value| Some(this.values.literal(value)?.bits() as u32);
        let mut sum = Sum::default();
        match self.values.def(value).cloned() {
            _ if !self.is_word(value) => return Sum::alone(value),
            Some(Op::Const(literal)) => sum.constant = literal.bits() as u32,
            Some(Op::BitCast(a)) if self.is_word(a) => return self.sum(a, apart),
            Some(Op::Binary(op @ (Binary::Add | Binary::Sub), a, b)) => {
                sum = self.sum(a, apart);
                let other = self.sum(b, apart);
                sum.add(&other, if op == Binary::Add { 1 } else { u32::MAX });
            }
            Some(Op::Binary(Binary::Mul, a, b)) if let Some(by) = number(self, b) => {
                let other = self.sum(a, apart);
                sum.add(&other, by);
            }
            Some(Op::Binary(Binary::Shl, a, b)) if let Some(by @ 0..32) = number(self, b) => {
                let other = self.sum(a, apart);
                sum.add(&other, 1 << by);
            }
            _ if apart && let Some((of, by)) = self.remainder(value) => {
                sum = Sum::of(of);
                if let Some(further) = of.by.checked_mul(by) {
                    sum.add(&Sum::of(Quotient { by: further, ..of }), by.wrapping_neg());
                }
            }
            _ => return Sum::of(self.quotient(value)),
        }
        sum
    }

    /// What a number is the remainder of, by a constant.
    fn remainder(&self, value: Value) -> Option<(Quotient, u32)> {
        let Some(&Op::Binary(op, a, b)) = self.values.def(value) else { return None };
        let number = self.values.literal(b)?.bits() as u32;
        let by = match op {
            Binary::And if number.wrapping_add(1).is_power_of_two() => number + 1,
            Binary::Rem if self.values.scalar(a) == Scalar::U32 => number,
            _ => return None,
        };
        (by > 1).then(|| (self.quotient(a), by))
    }

    /// A number as a quotient by a constant.
    fn quotient(&self, value: Value) -> Quotient {
        let alone = Quotient { of: value, by: 1 };
        let Some(&Op::Binary(op, a, b)) = self.values.def(value) else {
            return match self.values.def(value) {
                Some(&Op::BitCast(a)) if self.is_word(a) => self.quotient(a),
                _ => alone,
            };
        };
        let Some(number) = self.values.literal(b).map(|literal| literal.bits() as u32) else { return alone };
        let by = match op {
            _ if self.values.ty(a) != Scalar::U32.into() => return alone,
            Binary::Shr if number < u32::BITS => 1 << number,
            Binary::Div if number > 0 => number,
            _ => return alone,
        };
        // A quotient of a quotient is the quotient by the product.
        let before = self.quotient(a);
        before.by.checked_mul(by).map_or(alone, |by| Quotient { by, ..before })
    }

    /// The last operation of a sum; the others come before it.
    fn joined(&mut self, value: Value, sum: &Sum, insts: &mut Vec<Inst>) -> Op {
        let ty = self.values.scalar(value);
        let mut all: Option<Value> = None;
        for &(Quotient { of, by }, factor) in &sum.terms {
            let mut term = of;
            if by > 1 {
                term = self.cast(term, Scalar::U32, insts);
                let by = self.values.constant(Scalar::U32, by, insts);
                term = self.values.binary(Binary::Div, term, by, insts);
            }
            term = self.cast(term, ty, insts);
            if factor != 1 {
                let factor = self.constant(ty, factor, insts);
                term = self.values.binary(Binary::Mul, term, factor, insts);
            }
            all = Some(match all {
                Some(before) => self.values.binary(Binary::Add, before, term, insts),
                None => term,
            });
        }
        let constant = self.constant(ty, sum.constant, insts);
        match all {
            Some(all) => Op::Binary(Binary::Add, all, constant),
            None => Op::BitCast(constant),
        }
    }

    fn cast(&mut self, value: Value, ty: Scalar, insts: &mut Vec<Inst>) -> Value {
        if self.values.scalar(value) == ty { value } else { self.values.define(ty, Op::BitCast(value), insts) }
    }

    fn constant(&mut self, ty: Scalar, bits: u32, insts: &mut Vec<Inst>) -> Value {
        match ty {
            Scalar::I32 => self.values.constant(ty, bits.cast_signed(), insts),
            _ => self.values.constant(ty, bits, insts),
        }
    }
}
