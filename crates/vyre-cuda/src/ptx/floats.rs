//! What is known of the sizes of f32 values, so that instructions that take subnormal numbers for zero can be used where there are none.

use std::collections::HashMap;

use vyre_foundation::ir::Literal;
use vyre_foundation::kernel::{Binary, Block, Inst, Kernel, Op, Unary, Value};

/// Values that are at least so large that they are no subnormal numbers and not zero, or NaN: a sum of what is not negative and a
/// constant, such as `dot(d, d) + 1e-3`.
pub(super) fn never_small(kernel: &Kernel) -> Vec<bool> {
    let count = kernel.values.len();
    let mut sizes = Sizes { positive: vec![false; count], normal: vec![false; count], constants: HashMap::new() };
    sizes.block(&kernel.body);
    sizes.normal
}

struct Sizes {
    /// Not less than zero, or NaN.
    positive: Vec<bool>,
    normal: Vec<bool>,
    constants: HashMap<Value, f32>,
}

impl Sizes {
    fn block(&mut self, block: &Block) {
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op) => {
                    if let Op::Const(Literal::F32(known)) = op {
                        self.constants.insert(*value, *known);
                    }
                    self.normal[value.index()] = self.is_normal(op);
                    self.positive[value.index()] = self.is_positive(op);
                }
                Inst::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
                Inst::Loop(inner) => self.block(&inner.body),
                _ => {}
            }
        }
    }

    fn is_positive(&self, op: &Op) -> bool {
        let of = |value: &Value| self.positive[value.index()];
        match op {
            Op::Const(Literal::F32(known)) => *known >= 0.0,
            Op::Unary(Unary::Abs | Unary::Sqrt | Unary::RoughSqrt | Unary::RoughExp2, _) => true,
            Op::Binary(Binary::Mul, a, b) => a == b || (of(a) && of(b)),
            Op::Binary(Binary::Add | Binary::Div | Binary::Min, a, b) => of(a) && of(b),
            // Where the second is NaN the first stays.
            Op::Binary(Binary::Max, a, b) => of(a) || (of(b) && self.constants.contains_key(b)),
            Op::Fma(a, b, c) => (a == b || (of(a) && of(b))) && of(c),
            Op::Select(_, a, b) => of(a) && of(b),
            _ => false,
        }
    }

    /// Rounding keeps order, so a sum with nothing negative is not less than the constant.
    fn is_normal(&self, op: &Op) -> bool {
        let large = |value: &Value| self.constants.get(value).is_some_and(|c| c.is_normal() && *c > 0.0);
        let positive = |value: &Value| self.positive[value.index()];
        match op {
            Op::Binary(Binary::Add, a, b) => (large(a) && positive(b)) || (large(b) && positive(a)),
            Op::Binary(Binary::Max, a, b) => large(a) || large(b),
            Op::Fma(a, b, c) => (a == b || (positive(a) && positive(b))) && large(c),
            _ => false,
        }
    }
}
