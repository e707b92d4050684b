//! Finds loops that count: a test of a carried value against something fixed comes first, and every round adds a constant.

use super::definitions;
use crate::ir::Literal;
use crate::kernel::walk::{each_use_mut, end_values_mut, exits};
use crate::kernel::{Binary, Block, Counter, End, Inst, Kernel, Loop, Op, Scalar, Unary, Value, ValueInfo, fold};

pub(super) fn run(kernel: &mut Kernel) {
    if !has_uncounted(&kernel.body) {
        return;
    }
    let defs = definitions(kernel);
    let mut finder = Finder { defs, values: std::mem::take(&mut kernel.values), constants: Vec::new() };
    finder.block(&mut kernel.body);
    kernel.values = finder.values;
    kernel.body.insts.splice(0..0, finder.constants);
}

/// Some loop does not count yet.
fn has_uncounted(block: &Block) -> bool {
    block.insts.iter().any(|inst| match inst {
        Inst::If { then, otherwise, .. } => has_uncounted(then) || has_uncounted(otherwise),
        Inst::Loop(inner) => inner.counter.is_none() || has_uncounted(&inner.body),
        _ => false,
    })
}

struct Finder {
    defs: Vec<Option<Op>>,
    values: Vec<ValueInfo>,
    /// New ones, to be defined before everything else.
    constants: Vec<Inst>,
}

impl Finder {
    fn block(&mut self, block: &mut Block) {
        for inst in &mut block.insts {
            match inst {
                Inst::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
                Inst::Loop(inner) => {
                    self.block(&mut inner.body);
                    if inner.counter.is_none() {
                        self.recognise(inner);
                    }
                }
                _ => {}
            }
        }
    }

    fn literal(&self, value: Value) -> Option<Literal> {
        match self.defs[value.index()] {
            Some(Op::Const(literal)) => Some(literal),
            _ => None,
        }
    }

    fn recognise(&mut self, inner: &mut Loop) {
        let Some(position) = inner.body.insts.iter().position(|inst| !matches!(inst, Inst::Let(..))) else { return };
        let Inst::If { cond, then, otherwise, results } = &inner.body.insts[position] else { return };
        let (mut continues, mut breaks) = (Vec::new(), Vec::new());
        exits(&inner.body, &mut continues, &mut breaks);
        // What the loop gives when it ends by itself: the carried values, or what they always are.
        let carried = |i: usize, value: Value| {
            value == inner.params[i]
                || (value == inner.init[i]
                    && continues.iter().all(|values| values[i] == inner.params[i] || values[i] == inner.init[i]))
        };
        let leaves = |block: &Block| {
            block.insts.is_empty()
                && matches!(&block.end, End::Break(values)
                    if values.iter().enumerate().all(|(i, value)| carried(i, *value)))
        };
        let goes_on =
            |block: &Block| block.insts.is_empty() && matches!(&block.end, End::Yield(values) if values.is_empty());
        if !results.is_empty() {
            return;
        }
        // `holds`: what the condition is while the loop goes on.
        let mut holds = match (then, otherwise) {
            (then, otherwise) if goes_on(then) && leaves(otherwise) => true,
            (then, otherwise) if leaves(then) && goes_on(otherwise) => false,
            _ => return,
        };
        let mut cond = *cond;
        while let Some(Op::Unary(Unary::Not, x)) = self.defs[cond.index()] {
            cond = x;
            holds = !holds;
        }
        let Some(Op::Binary(op, a, b)) = self.defs[cond.index()] else { return };
        // The loop goes on while `low < high`, or `low <= high`.
        let (low, high, or_equal) = match (op, holds) {
            (Binary::Lt, true) | (Binary::Ge, false) => (a, b, false),
            (Binary::Gt, true) | (Binary::Le, false) => (b, a, false),
            (Binary::Le, true) | (Binary::Gt, false) => (a, b, true),
            (Binary::Ge, true) | (Binary::Lt, false) => (b, a, true),
            _ => return,
        };
        let Some(index) = inner.params.iter().position(|param| *param == low) else { return };
        let ty = self.values[low.index()].ty.scalar;
        if !matches!(ty, Scalar::U32 | Scalar::I32) || self.defined_in(inner, high) {
            return;
        }
        let step = continues.first().and_then(|values| self.step(low, values[index]));
        let Some(step) = step else { return };
        if !continues.iter().all(|values| self.step(low, values[index]) == Some(step)) {
            return;
        }
        let most = if ty == Scalar::U32 { i128::from(u32::MAX) } else { i128::from(i32::MAX) };
        let limit = self.literal(high).and_then(|limit| fold::integer(&limit));
        // The sum must not wrap before the test fails.
        let (to, fits) = match (limit, or_equal) {
            (Some(limit), true) if limit < most => (Some(limit + 1), limit + i128::from(step) <= most),
            (Some(limit), false) => (None, limit - 1 + i128::from(step) <= most),
            (None, false) => (None, step == 1),
            _ => return,
        };
        if !fits {
            return;
        }
        let counter = self.new_value(ty);
        let to = match to {
            Some(to) => {
                let value = self.new_value(ty);
                self.constants.push(Inst::Let(value, Op::Const(fold::of_integer(ty, to))));
                value
            }
            None => high,
        };
        inner.body.insts.remove(position);
        replace(&mut inner.body, low, counter);
        inner.counter = Some(Counter { value: counter, from: inner.init[index], to, step });
        inner.finite = true;
    }

    /// `next = low + step`.
    fn step(&self, low: Value, next: Value) -> Option<u32> {
        let Some(Op::Binary(Binary::Add, a, b)) = self.defs[next.index()] else { return None };
        let step = match (a == low, b == low) {
            (true, _) => self.literal(b)?,
            (_, true) => self.literal(a)?,
            _ => return None,
        };
        let step = fold::integer(&step)?;
        (1..=i128::from(i32::MAX)).contains(&step).then_some(step as u32)
    }

    fn new_value(&mut self, ty: Scalar) -> Value {
        let value = Value(self.values.len() as u32);
        self.values.push(ValueInfo { ty: ty.into(), uniform: false });
        self.defs.push(None);
        value
    }

    fn defined_in(&self, inner: &Loop, value: Value) -> bool {
        if inner.params.contains(&value) {
            return true;
        }
        let mut found = false;
        crate::kernel::walk::each_inst(&inner.body, &mut |inst| match inst {
            Inst::Let(v, _) => found |= *v == value,
            Inst::Atomic { result, .. } => found |= *result == Some(value),
            Inst::If { results, .. } => found |= results.contains(&value),
            Inst::Loop(inner) => found |= inner.results.contains(&value),
            _ => {}
        });
        found
    }
}

/// Replaces a value in a block.
fn replace(block: &mut Block, old: Value, new: Value) {
    let change = &mut |value: &mut Value| {
        if *value == old {
            *value = new;
        }
    };
    for inst in &mut block.insts {
        each_use_mut(inst, change);
        match inst {
            Inst::If { then, otherwise, .. } => {
                replace(then, old, new);
                replace(otherwise, old, new);
            }
            Inst::Loop(inner) => replace(&mut inner.body, old, new),
            _ => {}
        }
    }
    for value in end_values_mut(&mut block.end) {
        change(value);
    }
}
