//! The optimiser. Every pass keeps the meaning of a kernel and can be left out.

mod counted;
mod dead;
mod invariant;
mod ranges;
mod rewrite;
mod simplify;
#[cfg(test)]
mod tests;

use super::{Block, Inst, Kernel, Op, Passes, Value};

/// Runs the passes, in two rounds, as each makes work for the others. Loops are unrolled in the second one only: what was
/// simplified and counted in the first then grows once, and few walks see the large kernel.
pub(super) fn optimise(kernel: &mut Kernel, passes: Passes) {
    for round in [passes.without(Passes::UNROLL), passes] {
        rewrite::run(kernel, round, false);
        if passes.contains(Passes::COUNTED) {
            counted::run(kernel);
        }
        if passes.contains(Passes::DEAD) {
            dead::run(kernel);
        }
        if passes.contains(Passes::INVARIANT) {
            invariant::run(kernel);
        }
    }
    // Nothing moves after this: it would move loads whose guards are gone.
    if passes.contains(Passes::RANGES) {
        ranges::run(kernel);
    }
    rewrite::run(kernel, passes.without(Passes::UNROLL), true);
    if passes.contains(Passes::DEAD) {
        dead::run(kernel);
    }
    debug_assert_eq!(super::verify(kernel), Ok(()), "\n{kernel}");
}

/// The operation of each value that a `Let` defines.
fn definitions(kernel: &Kernel) -> Vec<Option<Op>> {
    let mut defs = vec![None; kernel.values.len()];
    super::walk::each_inst(&kernel.body, &mut |inst| {
        if let Inst::Let(value, op) = inst {
            defs[value.index()] = Some(op.clone());
        }
    });
    defs
}

/// The ways on to the next round and out of a loop, of a body.
fn exits<'a>(block: &'a Block, continues: &mut Vec<&'a [Value]>, breaks: &mut Vec<&'a [Value]>) {
    use super::End;
    for inst in &block.insts {
        if let Inst::If { then, otherwise, .. } = inst {
            exits(then, continues, breaks);
            exits(otherwise, continues, breaks);
        }
    }
    match &block.end {
        End::Continue(values) => continues.push(values),
        End::Break(values) => breaks.push(values),
        _ => {}
    }
}
