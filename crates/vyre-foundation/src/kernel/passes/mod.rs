//! The optimiser. Every pass keeps the meaning of a kernel and can be left out.

mod ahead;
mod alike;
mod arrays;
mod batch;
mod beside;
mod bools;
mod contract;
mod counted;
mod dead;
mod exits;
#[cfg(test)]
mod float_tests;
mod floats;
mod fours;
mod invariant;
mod merge;
mod own;
mod parts;
mod periods;
mod powers;
mod products;
mod quotients;
mod ranges;
mod rewrite;
mod simplify;
#[cfg(test)]
mod tests;
mod together;
mod trial;
mod versions;

use hashbrown::HashMap;

use super::{Binary, Block, Counter, End, Inst, Kernel, Op, Options, Passes, Scalar, Value, ValueInfo, fold};
use crate::ir::Math;

/// Runs the passes, in two rounds, as each makes work for the others. Loops are unrolled in the second one only: what was
/// simplified and counted in the first then grows once, and few walks see the large kernel. The error says why invocations that are
/// to be merged can't be.
pub(super) fn optimise(kernel: &mut Kernel, options: &Options) -> Result<(), &'static str> {
    let (passes, array_values) = (options.passes, options.array_values);
    kernel.has_barrier = false;
    super::walk::each_inst(&kernel.body, &mut |inst| kernel.has_barrier |= matches!(inst, Inst::Barrier(_)));
    for (last, round) in [(false, passes.without(Passes::UNROLL)), (true, passes)] {
        if last {
            merge::run(kernel, options.merged)?;
        }
        if last && passes.contains(Passes::UNROLL) && options.unrolling.any_form {
            periods::run(kernel);
            fours::run(kernel, &options.unrolling);
        }
        if last && passes.contains(Passes::VERSIONS) && options.one_test {
            versions::run(kernel, versions::MOST_STEPS);
        }
        let arrays = last && passes.contains(Passes::ARRAYS) && !kernel.locals.is_empty();
        let unrolled = if arrays { arrays::plan(kernel, array_values) } else { Vec::new() };
        rewrite::run(kernel, round, unrolled, options, false);
        // While equal places have one name: what leaves loops has one for each way.
        if !last && passes.contains(Passes::BRANCHES) {
            alike::run(kernel);
        }
        if arrays {
            if arrays::promote(kernel, array_values) {
                rewrite::run(kernel, passes.without(Passes::UNROLL), Vec::new(), options, false);
                arrays::promote(kernel, array_values);
            }
            if arrays::bits(kernel) {
                arrays::promote(kernel, array_values);
            }
            if passes.contains(Passes::VERSIONS) && options.one_test {
                versions::run(kernel, versions::MOST_STEPS_OF_VALUES);
            }
        }
        if passes.contains(Passes::COUNTED) {
            counted::run(kernel);
        }
        if passes.contains(Passes::DEAD) {
            dead::run(kernel);
        }
        // Limits that were loaded in their loops are before them then.
        let limits = passes.contains(Passes::INVARIANT) && invariant::run(kernel);
        if !last && limits && passes.contains(Passes::COUNTED) {
            counted::run(kernel);
        }
    }
    // Nothing moves after this: it would move loads whose guards are gone.
    if passes.contains(Passes::RANGES) {
        // Of a tree on an NVIDIA GPU this leaves so little in its branches that the assembler makes predicates of them, which all warps go
        // through: it takes 1.2 times as long.
        let (floats, defs) = ranges::run(kernel, options.trees_written_out);
        powers::run(kernel, &floats, &defs);
        if options.fused && kernel.math == Math::Exact {
            quotients::run(kernel, &floats, &defs);
        }
    }
    if passes.contains(Passes::ARRAYS) && options.own_words {
        own::run(kernel, array_values);
    }
    if passes.contains(Passes::TOGETHER) && options.strides_together {
        together::run(kernel);
    }
    if passes.contains(Passes::BATCH) {
        batch::run(kernel, options.rounds_together);
    }
    if passes.contains(Passes::AHEAD) && options.round_ahead {
        ahead::run(kernel);
    }
    if passes.contains(Passes::BRANCHES) && options.unrolling.any_form {
        exits::run(kernel);
    }
    if options.bools_as_words {
        bools::run(kernel);
    }
    rewrite::run(kernel, passes.without(Passes::UNROLL), Vec::new(), options, true);
    if passes.contains(Passes::CONTRACT) && (kernel.math == Math::Fast || options.fused) {
        contract::run(kernel);
    }
    if passes.contains(Passes::DEAD) {
        dead::run(kernel);
    }
    debug_assert_eq!(super::verify(kernel), Ok(()), "\n{kernel}");
    Ok(())
}

/// The operation of each value that a `Let` defines.
fn definitions(kernel: &Kernel) -> Vec<Option<Op>> {
    let mut defs = Vec::new();
    defs.resize_with(kernel.values.len(), || None);
    super::walk::each_inst(&kernel.body, &mut |inst| {
        if let Inst::Let(value, op) = inst {
            defs[value.index()] = Some(op.clone());
        }
    });
    defs
}

/// The numbers that a value made of constants and of the counters around it can be, where it does not wrap.
fn range(
    value: Value,
    defs: &[Option<Op>],
    values: &[ValueInfo],
    around: &[Counter],
) -> Option<std::ops::RangeInclusive<i128>> {
    let number = |value: Value| match &defs[value.index()] {
        Some(Op::Const(literal)) => fold::integer(literal),
        _ => None,
    };
    let of = |value: Value| range(value, defs, values, around);
    let (least, most) = match values[value.index()].ty.scalar {
        Scalar::U32 => (0, i128::from(u32::MAX)),
        Scalar::I32 => (i128::from(i32::MIN), i128::from(i32::MAX)),
        _ => return None,
    };
    if let Some(counter) = around.iter().find(|counter| counter.value == value) {
        let (from, to) = (number(counter.from)?, number(counter.to)?);
        return (from < to).then_some(from..=to - 1);
    }
    let (first, last) = match &defs[value.index()] {
        Some(Op::Const(literal)) => fold::integer(literal).map(|number| (number, number))?,
        Some(Op::Binary(Binary::Add, a, b)) => {
            let (a, b) = (of(*a)?, of(*b)?);
            (a.start() + b.start(), a.end() + b.end())
        }
        Some(Op::Binary(Binary::Sub, a, b)) => {
            let (a, b) = (of(*a)?, of(*b)?);
            (a.start() - b.end(), a.end() - b.start())
        }
        _ => return None,
    };
    (least <= first && last <= most).then_some(first..=last)
}

/// How many steps a block has, where nobody waits in it for others.
fn steps_alone(block: &Block) -> Option<usize> {
    let (mut steps, mut alone) = (0, true);
    super::walk::each_inst(block, &mut |inst| {
        steps += 1;
        alone &= match inst {
            Inst::Barrier(_) => false,
            Inst::Let(_, op) => !op.is_across_subgroup(),
            _ => true,
        };
    });
    alone.then_some(steps)
}

/// A block with names of its own for what it defines. `fresh` makes a value like another one, which the operation defines.
fn copy_block(
    block: &Block,
    names: &mut HashMap<Value, Value>,
    fresh: &mut impl FnMut(Value, Option<&Op>) -> Value,
) -> Block {
    let insts = block.insts.iter().map(|inst| copy_inst(inst, names, fresh)).collect();
    let mut end = block.end.clone();
    for value in super::walk::end_values_mut(&mut end) {
        *value = names.get(value).copied().unwrap_or(*value);
    }
    Block { insts, end }
}

fn copy_inst(
    inst: &Inst,
    names: &mut HashMap<Value, Value>,
    fresh: &mut impl FnMut(Value, Option<&Op>) -> Value,
) -> Inst {
    let mut copy = inst.clone();
    super::walk::each_use_mut(&mut copy, &mut |value| *value = names.get(value).copied().unwrap_or(*value));
    let mut rename = |value: &mut Value, op: Option<&Op>, names: &mut HashMap<Value, Value>| {
        let new = fresh(*value, op);
        names.insert(*value, new);
        *value = new;
    };
    match &mut copy {
        Inst::Let(value, op) => rename(value, Some(op), names),
        Inst::Atomic { result: Some(result), .. } => rename(result, None, names),
        Inst::If { then, otherwise, results, .. } => {
            for result in results {
                rename(result, None, names);
            }
            **then = copy_block(then, names, fresh);
            **otherwise = copy_block(otherwise, names, fresh);
        }
        Inst::Loop(inner) => {
            let counter = inner.counter.iter_mut().map(|counter| &mut counter.value);
            for value in inner.params.iter_mut().chain(&mut inner.results).chain(counter) {
                rename(value, None, names);
            }
            inner.body = copy_block(&inner.body, names, fresh);
        }
        Inst::Atomic { .. } | Inst::Store { .. } | Inst::Barrier(_) => {}
    }
    copy
}

/// Every round of the loop whose body this is comes to its end, or ends the invocation.
fn straight(body: &Block) -> bool {
    fn leaves(block: &Block) -> bool {
        matches!(block.end, End::Continue(_) | End::Break(_)) || inner(block)
    }
    fn inner(block: &Block) -> bool {
        block.insts.iter().any(|inst| match inst {
            Inst::If { then, otherwise, .. } => leaves(then) || leaves(otherwise),
            _ => false,
        })
    }
    matches!(body.end, End::Continue(_)) && !inner(body)
}
