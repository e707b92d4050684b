//! Quotients of small whole numbers by constants, such as colours of 8 bits by 255, in exact arithmetic without a division.
//!
//! A product with the reciprocal, made good by what it is off where that is needed, is the quotient for nearly all constants. Whether it is
//! for all numbers that can come is tried here, one by one.

use super::floats::Interval;
use super::values::Values;
use crate::ir::Literal;
use crate::kernel::walk::replace_insts;
use crate::kernel::{Binary, Block, Inst, Op, Scalar};

/// Numbers that are tried.
const MOST: f64 = 65_536.0;

pub(super) fn run(body: &mut Block, values: &mut Values, floats: &[Interval]) {
    let mut quotients = Quotients { values, floats, tried: Vec::new() };
    replace_insts(body, &mut |mut inst, insts| {
        if let Inst::Let(_, op) = &mut inst
            && let Some(better) = quotients.quotient(op, insts)
        {
            *op = better;
        }
        insts.push(inst);
    });
}

/// What gives the quotient.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Product,
    Corrected,
    Division,
}

struct Quotients<'a> {
    values: &'a mut Values,
    floats: &'a [Interval],
    /// Constants and the numbers up to which they were tried.
    tried: Vec<(f32, i32, Form)>,
}

impl Quotients<'_> {
    fn quotient(&mut self, op: &Op, insts: &mut Vec<Inst>) -> Option<Op> {
        let Op::Binary(Binary::Div, x, by) = *op else { return None };
        let (Some(&Op::Cast(whole)), Some(Literal::F32(divisor))) = (self.values.def(x), self.values.literal(by))
        else {
            return None;
        };
        let is_whole = matches!(self.values.scalar(whole), Scalar::U32 | Scalar::I32);
        let bounds = self.floats.get(x.index()).copied().filter(|bounds| is_whole && !bounds.nan)?;
        let most = bounds.high.max(-bounds.low);
        if !(0.0..=MOST).contains(&most) || self.values.ty(x) != Scalar::F32.into() {
            return None;
        }
        let most = most as i32;
        let found = self.tried.iter().find(|(by, end, _)| (*by, *end) == (divisor, most)).map(|(_, _, form)| *form);
        let form = found.unwrap_or_else(|| {
            let form = form_of(divisor, most);
            self.tried.push((divisor, most, form));
            form
        });
        if form == Form::Division {
            return None;
        }
        let reciprocal = self.values.define(Scalar::F32, Op::Const(Literal::F32(1.0 / divisor)), insts);
        let product = Op::Binary(Binary::Mul, x, reciprocal);
        if form == Form::Product {
            return Some(product);
        }
        let near = self.values.define(Scalar::F32, product, insts);
        let minus = self.values.define(Scalar::F32, Op::Const(Literal::F32(-divisor)), insts);
        let off = self.values.define(Scalar::F32, Op::Fma(near, minus, x), insts);
        Some(Op::Fma(off, reciprocal, near))
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
