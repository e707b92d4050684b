//! Quotients of small whole numbers by constants, such as colours of 8 bits by 255, in exact arithmetic without a division.
//!
//! A product with the reciprocal, made good by what it is off where that is needed, is the quotient for nearly all constants. Whether it is
//! for all numbers that can come is tried here, one by one.

use super::floats::Interval;
use crate::ir::Literal;
use crate::kernel::{Binary, Block, Inst, Kernel, Op, Scalar, Value, ValueInfo};

/// Numbers that are tried.
const MOST: f64 = 65_536.0;

/// `defs`: how values are made.
pub(super) fn run(kernel: &mut Kernel, floats: &[Interval], defs: &[Option<Op>]) {
    let mut quotients = Quotients { defs, floats, values: std::mem::take(&mut kernel.values), tried: Vec::new() };
    quotients.block(&mut kernel.body);
    kernel.values = quotients.values;
}

/// What gives the quotient.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Product,
    Corrected,
    Division,
}

struct Quotients<'a> {
    defs: &'a [Option<Op>],
    floats: &'a [Interval],
    values: Vec<ValueInfo>,
    /// Constants and the numbers up to which they were tried.
    tried: Vec<(f32, i32, Form)>,
}

impl Quotients<'_> {
    fn block(&mut self, block: &mut Block) {
        let mut insts = Vec::with_capacity(block.insts.len());
        for mut inst in std::mem::take(&mut block.insts) {
            match &mut inst {
                Inst::Let(_, op) => {
                    if let Some(better) = self.quotient(op, &mut insts) {
                        *op = better;
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

    fn quotient(&mut self, op: &Op, insts: &mut Vec<Inst>) -> Option<Op> {
        let Op::Binary(Binary::Div, x, by) = *op else { return None };
        let def = |value: Value| self.defs.get(value.index()).and_then(Option::as_ref);
        let (Some(Op::Cast(whole)), Some(Op::Const(Literal::F32(divisor)))) = (def(x), def(by)) else { return None };
        let is_whole = matches!(self.values[whole.index()].ty.scalar, Scalar::U32 | Scalar::I32);
        let bounds = self.floats.get(x.index()).copied().filter(|bounds| is_whole && !bounds.nan)?;
        let most = bounds.high.max(-bounds.low);
        if !(0.0..=MOST).contains(&most) || self.values[x.index()].ty != Scalar::F32.into() {
            return None;
        }
        let (divisor, most) = (*divisor, most as i32);
        let found = self.tried.iter().find(|(by, end, _)| (*by, *end) == (divisor, most)).map(|(_, _, form)| *form);
        let form = found.unwrap_or_else(|| {
            let form = form_of(divisor, most);
            self.tried.push((divisor, most, form));
            form
        });
        if form == Form::Division {
            return None;
        }
        let reciprocal = self.define(Op::Const(Literal::F32(1.0 / divisor)), insts);
        let product = Op::Binary(Binary::Mul, x, reciprocal);
        if form == Form::Product {
            return Some(product);
        }
        let near = self.define(product, insts);
        let minus = self.define(Op::Const(Literal::F32(-divisor)), insts);
        let off = self.define(Op::Fma(near, minus, x), insts);
        Some(Op::Fma(off, reciprocal, near))
    }

    fn define(&mut self, op: Op, insts: &mut Vec<Inst>) -> Value {
        let value = Value(self.values.len() as u32);
        self.values.push(ValueInfo { ty: Scalar::F32.into(), uniform: false });
        insts.push(Inst::Let(value, op));
        value
    }
}

/// What gives the quotients of all whole numbers up to some, and of those less than nothing, which differ by their signs only.
fn form_of(by: f32, most: i32) -> Form {
    let reciprocal = 1.0 / by;
    let usual = (1e-9..1e9).contains(&by.abs());
    let all = |quotient: &dyn Fn(f32) -> f32| {
        (0..=most).all(|whole| quotient(whole as f32).to_bits() == (whole as f32 / by).to_bits())
    };
    let corrected = |x: f32| {
        let near = x * reciprocal;
        near.mul_add(-by, x).mul_add(reciprocal, near)
    };
    match usual {
        true if all(&|x| x * reciprocal) => Form::Product,
        true if all(&corrected) => Form::Corrected,
        _ => Form::Division,
    }
}
