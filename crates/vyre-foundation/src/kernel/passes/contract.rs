//! `a·b + c` becomes one operation, which rounds once. Fast arithmetic allows it; in exact arithmetic it is done where it changes
//! nothing: a product with a power of two that is not less than one is exact, or infinite.
//!
//! A product is taken into the sums that use it when nothing else does, so that it is not computed twice.

use super::values::Values;
use crate::ir::{Literal, Math};
use crate::kernel::walk::{each_inst, each_value, replace_insts};
use crate::kernel::{Binary, Inst, Kernel, Op, Scalar, Type, Unary, Value};

pub(super) fn run(kernel: &mut Kernel) {
    let uses = Uses::of(kernel);
    let is_exact = kernel.math != Math::Fast;
    let products = vec![None; kernel.values.len()];
    let values = if is_exact { Values::with_definitions(kernel) } else { Values::of(kernel) };
    let mut contract = Contract { uses, products, is_exact, values };
    replace_insts(&mut kernel.body, &mut |mut inst, insts| {
        if let Inst::Let(value, op) = &mut inst
            && is_float(contract.values.ty(*value))
        {
            contract.step(*value, op, insts);
        }
        insts.push(inst);
    });
    contract.values.give_back(kernel);
}

/// How often each value is used, and how often as an operand of a float sum.
struct Uses {
    all: Vec<u32>,
    sums: Vec<u32>,
}

impl Uses {
    fn of(kernel: &Kernel) -> Uses {
        let [mut all, mut sums] = [(); 2].map(|()| vec![0; kernel.values.len()]);
        each_value(&kernel.body, &mut |value| all[value.index()] += 1);
        each_inst(&kernel.body, &mut |inst| {
            if let Inst::Let(value, Op::Binary(Binary::Add | Binary::Sub, a, b)) = inst
                && is_float(kernel.values[value.index()].ty)
            {
                // One product of two goes in; the other is what it is added to.
                sums[a.index()] += 1;
                sums[b.index()] += 1;
            }
        });
        Uses { all, sums }
    }
}

fn is_float(ty: Type) -> bool {
    matches!(ty, Type { scalar: Scalar::F32 | Scalar::F64, width: 1 })
}

struct Contract {
    uses: Uses,
    /// The factors of each product that can be taken into sums.
    products: Vec<Option<(Value, Value)>>,
    /// Only what changes no bit.
    is_exact: bool,
    values: Values,
}

impl Contract {
    fn step(&mut self, value: Value, op: &mut Op, insts: &mut Vec<Inst>) {
        if let Op::Binary(sum @ (Binary::Add | Binary::Sub), a, b) = *op
            && let Some(new) = self.contracted(sum, a, b, insts)
        {
            *op = new;
        }
        if let Op::Binary(Binary::Mul, a, b) = op
            && self.uses.sums[value.index()] == self.uses.all[value.index()]
        {
            self.products[value.index()] = Some((*a, *b));
        }
    }

    fn contracted(&mut self, op: Binary, a: Value, b: Value, insts: &mut Vec<Inst>) -> Option<Op> {
        match (op, self.product(a, b), self.product(b, a)) {
            // Of two products the second goes in: the first is often the longer chain.
            (Binary::Add, _, Some((x, y))) if a != b => Some(Op::Fma(x, y, a)),
            (Binary::Add, Some((x, y)), _) if a != b => Some(Op::Fma(x, y, b)),
            (Binary::Sub, _, Some((x, y))) => {
                let minus = self.negated(x, insts);
                Some(Op::Fma(minus, y, a))
            }
            (Binary::Sub, Some((x, y)), None) => {
                let minus = self.negated(b, insts);
                Some(Op::Fma(x, y, minus))
            }
            _ => None,
        }
    }

    /// The factors of `product` if they may be taken into its sum with `other`.
    fn product(&self, product: Value, other: Value) -> Option<(Value, Value)> {
        let factors = self.products[product.index()]?;
        if !self.is_exact {
            return Some(factors);
        }
        let number = |value: Value| match self.values.literal(value)? {
            Literal::F32(known) => Some((f64::from(known), 2f64.powi(100))),
            Literal::F64(known) => Some((known, 2f64.powi(900))),
            _ => None,
        };
        let (factor, _) = number(factors.0).or_else(|| number(factors.1))?;
        let (added, most) = number(other)?;
        let power = factor.is_finite() && factor.abs() >= 1.0 && factor.to_bits() << 12 == 0;
        // Beside a product that overflows, what is added must not bring it back.
        (power && added.abs() <= most).then_some(factors)
    }

    fn negated(&mut self, value: Value, insts: &mut Vec<Inst>) -> Value {
        self.values.define(self.values.ty(value), Op::Unary(Unary::Neg, value), insts)
    }
}
