//! Visits the parts of a kernel.

use hashbrown::HashSet;

use super::facts::atomic_effect;
use super::{Address, Block, End, Inst, Loop, MatrixMultiplyAdd, Memory, Op, Value};

/// What an access does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Read,
    Write,
    Both,
}

/// The blocks inside of a step.
pub(crate) fn blocks(inst: &Inst) -> impl Iterator<Item = &Block> {
    let (first, second) = match inst {
        Inst::If { then, otherwise, .. } => (Some(&**then), Some(&**otherwise)),
        Inst::Loop(inner) => (Some(&inner.body), None),
        _ => (None, None),
    };
    first.into_iter().chain(second)
}

/// The blocks inside of a step, to be changed.
pub(crate) fn blocks_mut(inst: &mut Inst) -> impl Iterator<Item = &mut Block> {
    let (first, second) = match inst {
        Inst::If { then, otherwise, .. } => (Some(&mut **then), Some(&mut **otherwise)),
        Inst::Loop(inner) => (Some(&mut inner.body), None),
        _ => (None, None),
    };
    first.into_iter().chain(second)
}

/// Every step, outer ones before inner ones.
pub fn each_inst<'a>(block: &'a Block, visit: &mut impl FnMut(&'a Inst)) {
    for inst in &block.insts {
        visit(inst);
        blocks(inst).for_each(|block| each_inst(block, visit));
    }
}

/// Every step, outer ones before inner ones, to be changed.
pub(crate) fn each_inst_mut(block: &mut Block, change: &mut impl FnMut(&mut Inst)) {
    for inst in &mut block.insts {
        change(inst);
        blocks_mut(inst).for_each(|block| each_inst_mut(block, change));
    }
}

/// Takes every step, inner ones before outer ones, and puts what comes in its place into the list.
pub(crate) fn replace_insts(block: &mut Block, replace: &mut impl FnMut(Inst, &mut Vec<Inst>)) {
    let mut insts = Vec::with_capacity(block.insts.len());
    for mut inst in std::mem::take(&mut block.insts) {
        blocks_mut(&mut inst).for_each(|block| replace_insts(block, replace));
        replace(inst, &mut insts);
    }
    block.insts = insts;
}

/// Every loop, inner ones before outer ones; what `change` puts into the list comes in front of the loop.
pub(crate) fn each_loop_mut(block: &mut Block, change: &mut impl FnMut(&mut Loop, &mut Vec<Inst>)) {
    replace_insts(block, &mut |mut inst, insts| {
        if let Inst::Loop(inner) = &mut inst {
            change(inner, insts);
        }
        insts.push(inst);
    });
}

/// There is a loop.
pub(crate) fn has_loop(block: &Block) -> bool {
    block.insts.iter().any(|inst| matches!(inst, Inst::Loop(_)) || blocks(inst).any(has_loop))
}

/// What a step defines for those after it.
pub(crate) fn results(inst: &Inst) -> &[Value] {
    match inst {
        Inst::Let(value, _) => std::slice::from_ref(value),
        Inst::Atomic { result, .. } => result.as_slice(),
        Inst::If { results, .. } => results,
        Inst::Loop(inner) => &inner.results,
        Inst::Store { .. } | Inst::Barrier(_) => &[],
    }
}

/// Everything that is defined in a loop.
pub fn defined_in(inner: &Loop) -> HashSet<Value> {
    fn note(inner: &Loop, inside: &mut HashSet<Value>) {
        inside.extend(&inner.params);
        inside.extend(inner.counter.map(|counter| counter.value));
    }
    let mut inside = HashSet::new();
    note(inner, &mut inside);
    each_inst(&inner.body, &mut |inst| {
        inside.extend(results(inst));
        if let Inst::Loop(second) = inst {
            note(second, &mut inside);
        }
    });
    inside
}

/// The memories that a block changes.
pub(crate) fn written(block: &Block) -> HashSet<Memory> {
    let mut written = HashSet::new();
    each_inst(block, &mut |inst| {
        written.extend(access(inst).filter(|(_, effect)| *effect != Effect::Read).map(|(address, _)| address.memory));
    });
    written
}

/// The ways of the branches of a block, but not of those in its loops.
pub(crate) fn ways(block: &Block) -> impl Iterator<Item = &Block> {
    block.insts.iter().filter(|inst| matches!(inst, Inst::If { .. })).flat_map(blocks)
}

/// A block ends so, or some way through its branches does.
pub(crate) fn may_end(block: &Block, so: fn(&End) -> bool) -> bool {
    so(&block.end) || ways(block).any(|way| may_end(way, so))
}

/// Some way breaks out of the loop whose body this is.
pub(crate) fn breaks(body: &Block) -> bool {
    may_end(body, |end| matches!(end, End::Break(_)))
}

/// Some way goes on to the next round of the loop whose body this is.
pub(crate) fn continues(body: &Block) -> bool {
    may_end(body, |end| matches!(end, End::Continue(_)))
}

/// Some way through a branch goes elsewhere than to its end.
pub(crate) fn leaves(way: &Block) -> bool {
    may_end(way, |end| !matches!(end, End::Yield(_)))
}

/// The ways on to the next round and out of a loop, of a body.
pub(crate) fn exits<'a>(block: &'a Block, continues: &mut Vec<&'a [Value]>, breaks: &mut Vec<&'a [Value]>) {
    ways(block).for_each(|way| exits(way, continues, breaks));
    match &block.end {
        End::Continue(values) => continues.push(values),
        End::Break(values) => breaks.push(values),
        _ => {}
    }
}

/// The memory access of a step.
pub(crate) fn access(inst: &Inst) -> Option<(&Address, Effect)> {
    match inst {
        Inst::Let(_, Op::Load { address, .. }) => Some((address, Effect::Read)),
        Inst::Store { address, .. } => Some((address, Effect::Write)),
        Inst::Atomic { op, address, .. } => Some((address, atomic_effect(*op))),
        _ => None,
    }
}

/// Every operand of an operation.
pub(crate) fn each_operand(op: &Op, visit: &mut impl FnMut(Value)) {
    match op {
        Op::Const(_) | Op::Builtin(_) | Op::Length(_) => {}
        Op::Unary(_, a) | Op::Cast(a) | Op::BitCast(a) | Op::Extract(a, _) => visit(*a),
        Op::Binary(_, a, b) => {
            visit(*a);
            visit(*b);
        }
        Op::Fma(a, b, c) | Op::Select(a, b, c) => {
            visit(*a);
            visit(*b);
            visit(*c);
        }
        Op::Load { address, guard, .. } => {
            address.terms.iter().for_each(|(value, _)| visit(*value));
            guard.iter().for_each(|guard| visit(*guard));
        }
        Op::Construct(parts) => parts.iter().for_each(|part| visit(*part)),
        Op::Subgroup(_, a, b) => {
            visit(*a);
            b.iter().for_each(|b| visit(*b));
        }
        Op::Matrix(matrix) => matrix.operands().for_each(visit),
    }
}

/// Every operand of a step itself, not of the steps inside it.
pub fn each_use(inst: &Inst, visit: &mut impl FnMut(Value)) {
    match inst {
        Inst::Let(_, op) => each_operand(op, visit),
        Inst::Store { address, value, guard, .. } => {
            address.terms.iter().for_each(|(value, _)| visit(*value));
            visit(*value);
            guard.iter().for_each(|guard| visit(*guard));
        }
        Inst::Atomic { address, value, compare, guard, .. } => {
            address.terms.iter().for_each(|(value, _)| visit(*value));
            [value, compare, guard].into_iter().flatten().for_each(|value| visit(*value));
        }
        Inst::Barrier(_) => {}
        Inst::If { cond, .. } => visit(*cond),
        Inst::Loop(inner) => {
            if let Some(counter) = &inner.counter {
                visit(counter.from);
                visit(counter.to);
            }
            inner.init.iter().for_each(|value| visit(*value));
        }
    }
}

/// Every operand of the steps of a block and of those inside them, and what ends give.
pub(crate) fn each_value(block: &Block, visit: &mut impl FnMut(Value)) {
    for inst in &block.insts {
        each_use(inst, visit);
        blocks(inst).for_each(|block| each_value(block, visit));
    }
    end_values(&block.end).iter().for_each(|value| visit(*value));
}

/// The values that a block's end gives.
pub fn end_values(end: &End) -> &[Value] {
    match end {
        End::Yield(values) | End::Continue(values) | End::Break(values) => values,
        End::Return | End::Unreachable => &[],
    }
}

/// Every operand of an operation, to be changed.
pub(super) fn each_operand_mut(op: &mut Op, visit: &mut impl FnMut(&mut Value)) {
    match op {
        Op::Const(_) | Op::Builtin(_) | Op::Length(_) => {}
        Op::Unary(_, a) | Op::Cast(a) | Op::BitCast(a) | Op::Extract(a, _) => visit(a),
        Op::Binary(_, a, b) => {
            visit(a);
            visit(b);
        }
        Op::Fma(a, b, c) | Op::Select(a, b, c) => {
            visit(a);
            visit(b);
            visit(c);
        }
        Op::Load { address, guard, .. } => {
            address.terms.iter_mut().for_each(|(value, _)| visit(value));
            guard.iter_mut().for_each(visit);
        }
        Op::Construct(parts) => parts.iter_mut().for_each(visit),
        Op::Subgroup(_, a, b) => {
            visit(a);
            b.iter_mut().for_each(visit);
        }
        Op::Matrix(matrix) => {
            let MatrixMultiplyAdd { a, b, c, .. } = &mut **matrix;
            a.iter_mut().chain(b).chain(c).for_each(visit);
        }
    }
}

/// Every operand of a step itself, to be changed.
pub fn each_use_mut(inst: &mut Inst, visit: &mut impl FnMut(&mut Value)) {
    match inst {
        Inst::Let(_, op) => each_operand_mut(op, visit),
        Inst::Store { address, value, guard, .. } => {
            address.terms.iter_mut().for_each(|(value, _)| visit(value));
            visit(value);
            guard.iter_mut().for_each(visit);
        }
        Inst::Atomic { address, value, compare, guard, .. } => {
            address.terms.iter_mut().for_each(|(value, _)| visit(value));
            [value, compare, guard].into_iter().flatten().for_each(visit);
        }
        Inst::Barrier(_) => {}
        Inst::If { cond, .. } => visit(cond),
        Inst::Loop(inner) => {
            if let Some(counter) = &mut inner.counter {
                visit(&mut counter.from);
                visit(&mut counter.to);
            }
            inner.init.iter_mut().for_each(visit);
        }
    }
}

/// Every operand of the steps of a block and of those inside them, and what ends give, to be changed.
pub(crate) fn each_value_mut(block: &mut Block, visit: &mut impl FnMut(&mut Value)) {
    for inst in &mut block.insts {
        each_use_mut(inst, visit);
        blocks_mut(inst).for_each(|block| each_value_mut(block, visit));
    }
    end_values_mut(&mut block.end).iter_mut().for_each(visit);
}

/// The values that a block's end gives, to be changed.
pub(super) fn end_values_mut(end: &mut End) -> &mut [Value] {
    match end {
        End::Yield(values) | End::Continue(values) | End::Break(values) => values,
        End::Return | End::Unreachable => &mut [],
    }
}
