//! `a·b + c` becomes one operation, which rounds once. Fast arithmetic allows it; in exact arithmetic it is done where it changes
//! nothing: a product with a power of two that is not less than one is exact, or infinite.
//!
//! A product is taken into the sums that use it when nothing else does, so that it is not computed twice.

use super::definitions;
use crate::ir::{Literal, Math};
use crate::kernel::walk::{each_use, end_values};
use crate::kernel::{Binary, Block, Inst, Kernel, Op, Scalar, Type, Unary, Value, ValueInfo};

pub(super) fn run(kernel: &mut Kernel) {
    let mut uses = Uses { all: vec![0; kernel.values.len()], sums: vec![0; kernel.values.len()] };
    uses.block(&kernel.body, &kernel.values);
    let mut contract = Contract {
        uses,
        products: vec![None; kernel.values.len()],
        defs: if kernel.math == Math::Fast { None } else { Some(definitions(kernel)) },
        values: std::mem::take(&mut kernel.values),
    };
    contract.block(&mut kernel.body);
    kernel.values = contract.values;
}

/// How often each value is used, and how often as an operand of a float sum.
struct Uses {
    all: Vec<u32>,
    sums: Vec<u32>,
}

impl Uses {
    fn block(&mut self, block: &Block, values: &[ValueInfo]) {
        for inst in &block.insts {
            each_use(inst, &mut |value| self.all[value.index()] += 1);
            match inst {
                Inst::Let(value, Op::Binary(Binary::Add | Binary::Sub, a, b)) if is_float(values, *value) => {
                    // One product of two goes in; the other is what it is added to.
                    self.sums[a.index()] += 1;
                    self.sums[b.index()] += 1;
                }
                Inst::If { then, otherwise, .. } => {
                    self.block(then, values);
                    self.block(otherwise, values);
                }
                Inst::Loop(inner) => self.block(&inner.body, values),
                _ => {}
            }
        }
        end_values(&block.end).iter().for_each(|value| self.all[value.index()] += 1);
    }
}

fn is_float(values: &[ValueInfo], value: Value) -> bool {
    matches!(values[value.index()].ty, Type { scalar: Scalar::F32 | Scalar::F64, width: 1 })
}

struct Contract {
    uses: Uses,
    /// The factors of each product that can be taken into sums.
    products: Vec<Option<(Value, Value)>>,
    /// In exact arithmetic, how each value is made.
    defs: Option<Vec<Option<Op>>>,
    values: Vec<ValueInfo>,
}

impl Contract {
    fn block(&mut self, block: &mut Block) {
        let mut insts = Vec::with_capacity(block.insts.len());
        for mut inst in std::mem::take(&mut block.insts) {
            match &mut inst {
                Inst::Let(value, op) => {
                    if let Some(new) = self.contracted(*value, op, &mut insts) {
                        *op = new;
                    }
                    if let Op::Binary(Binary::Mul, a, b) = op
                        && is_float(&self.values, *value)
                        && self.uses.sums[value.index()] == self.uses.all[value.index()]
                    {
                        self.products[value.index()] = Some((*a, *b));
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
        block.insts = insts;
    }

    fn contracted(&mut self, value: Value, op: &Op, insts: &mut Vec<Inst>) -> Option<Op> {
        let (op, a, b) = match *op {
            Op::Binary(op @ (Binary::Add | Binary::Sub), a, b) if is_float(&self.values, value) => (op, a, b),
            _ => return None,
        };
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
        let Some(defs) = &self.defs else { return Some(factors) };
        let number = |value: Value| match defs.get(value.index())? {
            Some(Op::Const(Literal::F32(known))) => Some((f64::from(*known), 2f64.powi(100))),
            Some(Op::Const(Literal::F64(known))) => Some((*known, 2f64.powi(900))),
            _ => None,
        };
        let (factor, _) = number(factors.0).or_else(|| number(factors.1))?;
        let (added, most) = number(other)?;
        let power = factor.is_finite() && factor.abs() >= 1.0 && factor.to_bits() << 12 == 0;
        // Beside a product that overflows, what is added must not bring it back.
        (power && added.abs() <= most).then_some(factors)
    }

    fn negated(&mut self, value: Value, insts: &mut Vec<Inst>) -> Value {
        let minus = Value(self.values.len() as u32);
        self.values.push(self.values[value.index()]);
        self.products.push(None);
        insts.push(Inst::Let(minus, Op::Unary(Unary::Neg, value)));
        minus
    }
}
