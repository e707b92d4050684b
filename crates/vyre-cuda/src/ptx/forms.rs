//! Numbers as sums, to see which lie beside each other.

use vyre_foundation::ir::Literal;
use vyre_foundation::kernel::{Binary, Block, Inst, Kernel, Op, Scalar, Value};

/// Longer sums are numbers of their own.
const MOST_TERMS: usize = 8;

/// A sum of values, each times a number, and a number, modulo 2³².
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Form {
    pub(super) terms: Vec<(Value, u32)>,
    pub(super) constant: u32,
}

impl Form {
    /// With another so many times.
    pub(super) fn plus(&self, other: &Form, times: u32) -> Form {
        let mut terms = self.terms.clone();
        for &(value, by) in &other.terms {
            let by = by.wrapping_mul(times);
            match terms.iter_mut().find(|(own, _)| *own == value) {
                Some((_, own)) => *own = own.wrapping_add(by),
                None => terms.push((value, by)),
            }
        }
        terms.retain(|(_, by)| *by != 0);
        terms.sort_unstable();
        Form { terms, constant: self.constant.wrapping_add(other.constant.wrapping_mul(times)) }
    }

    /// What an operation makes of numbers whose forms are known; anything else is a term of its own, `value`.
    pub(super) fn of(kernel: &Kernel, value: Value, op: &Op, forms: &[Form]) -> Form {
        let alone = Form { terms: vec![(value, 1)], constant: 0 };
        if !is_number(kernel, value) {
            return alone;
        }
        let of = |value: &Value| &forms[value.index()];
        let constant = |value: &Value| of(value).terms.is_empty().then_some(of(value).constant);
        let form = match op {
            Op::Const(Literal::U32(number)) => Form { terms: Vec::new(), constant: *number },
            Op::Const(Literal::I32(number)) => Form { terms: Vec::new(), constant: *number as u32 },
            Op::BitCast(a) if is_number(kernel, *a) => of(a).clone(),
            Op::Binary(Binary::Add, a, b) => of(a).plus(of(b), 1),
            Op::Binary(Binary::Sub, a, b) => of(a).plus(of(b), u32::MAX),
            Op::Binary(Binary::Mul, a, b) => match (constant(a), constant(b)) {
                (_, Some(by)) => Form::default().plus(of(a), by),
                (Some(by), _) => Form::default().plus(of(b), by),
                _ => return alone,
            },
            Op::Binary(Binary::Shl, a, b) => match constant(b) {
                Some(by) => Form::default().plus(of(a), 1 << (by % 32)),
                None => return alone,
            },
            _ => return alone,
        };
        if form.terms.len() <= MOST_TERMS { form } else { alone }
    }
}

/// A number of 32 bits.
pub(super) fn is_number(kernel: &Kernel, value: Value) -> bool {
    let ty = kernel.values[value.index()].ty;
    ty.width == 1 && matches!(ty.scalar, Scalar::U32 | Scalar::I32)
}

/// The forms of all values, which are their own terms where they come out of loops and branches.
pub(super) fn forms(kernel: &Kernel) -> Vec<Form> {
    let alone = |index| Form { terms: vec![(Value(index), 1)], constant: 0 };
    let mut forms = (0..kernel.values.len() as u32).map(alone).collect();
    note(kernel, &kernel.body, &mut forms);
    forms
}

fn note(kernel: &Kernel, block: &Block, forms: &mut Vec<Form>) {
    for inst in &block.insts {
        match inst {
            Inst::Let(value, op) => forms[value.index()] = Form::of(kernel, *value, op, forms),
            Inst::If { then, otherwise, .. } => {
                note(kernel, then, forms);
                note(kernel, otherwise, forms);
            }
            Inst::Loop(inner) => note(kernel, &inner.body, forms),
            _ => {}
        }
    }
}
