//! The optimiser. Every pass keeps the meaning of a kernel and can be left out.

mod ahead;
mod arrays;
mod batch;
mod beside;
mod contract;
mod counted;
mod dead;
mod exits;
#[cfg(test)]
mod float_tests;
mod floats;
mod invariant;
mod merge;
mod parts;
mod powers;
mod ranges;
mod rewrite;
mod simplify;
#[cfg(test)]
mod tests;
mod together;
mod trial;
mod versions;

use super::{Block, End, Inst, Kernel, Op, Options, Passes};
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
        if last && passes.contains(Passes::VERSIONS) && options.one_test {
            versions::run(kernel);
        }
        let arrays = last && passes.contains(Passes::ARRAYS) && !kernel.locals.is_empty();
        let unrolled = if arrays { arrays::plan(kernel, array_values) } else { Vec::new() };
        rewrite::run(kernel, round, unrolled, options, false);
        if arrays {
            arrays::promote(kernel, array_values);
        }
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
        // Of a tree on an NVIDIA GPU this leaves so little in its branches that the assembler makes predicates of them, which all warps go
        // through: it takes 1.2 times as long.
        let (floats, defs) = ranges::run(kernel, options.trees_written_out);
        powers::run(kernel, &floats, &defs);
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
