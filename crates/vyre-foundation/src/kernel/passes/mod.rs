//! The optimiser. Every pass keeps the meaning of a kernel and can be left out.

mod ahead;
mod alike;
mod arrays;
mod batch;
mod beside;
mod bools;
mod components;
mod contract;
mod counted;
mod dead;
mod deal;
mod evenly;
mod exits;
mod filled;
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
mod rejoin;
mod rewrite;
mod searches;
mod simplify;
mod tables;
#[cfg(test)]
mod tests;
mod tiles;
mod together;
mod trial;
mod values;
mod versions;

use self::values::Values;
use super::walk::{breaks, continues, each_inst, ways};
use super::{Block, End, Inst, Kernel, Options, Passes};
use crate::ir::Math;

/// Runs the passes, in two rounds, as each makes work for the others. Loops are unrolled in the second one only: what was
/// simplified and counted in the first then grows once, and few walks see the large kernel. The error says why invocations that are
/// to be merged can't be.
pub(super) fn optimise(kernel: &mut Kernel, options: &Options) -> Result<(), &'static str> {
    let (passes, mut array_values) = (options.passes, options.array_values);
    kernel.has_barrier = false;
    each_inst(&kernel.body, &mut |inst| kernel.has_barrier |= matches!(inst, Inst::Barrier(_)));
    for (last, round) in [(false, passes.without(Passes::UNROLL)), (true, passes)] {
        if last {
            merge::run(kernel, options.merged)?;
        }
        if let Some(lanes) = options.rows_of_tiles.filter(|_| last && passes.contains(Passes::TILES)) {
            tiles::run(kernel, lanes);
        }
        let around = match last && passes.contains(Passes::SEARCHES) && options.searches_written_out {
            true => searches::run(kernel),
            false => Vec::new(),
        };
        if last && passes.contains(Passes::UNROLL) && options.unrolling.any_form {
            periods::run(kernel);
            fours::run(kernel, &options.unrolling);
        }
        if last && passes.contains(Passes::VERSIONS) && options.one_test {
            versions::run(kernel, versions::MOST_STEPS);
        }
        let arrays = last && passes.contains(Passes::ARRAYS) && !kernel.locals.is_empty();
        let mut unrolled = Vec::new();
        if arrays {
            let unrolling = &options.unrolling;
            let straight = arrays::plan_straight(kernel, array_values, options.straight_array_values, unrolling);
            array_values = if straight.is_some() { options.straight_array_values } else { array_values };
            unrolled = straight.unwrap_or_else(|| arrays::plan(kernel, array_values, unrolling));
        }
        for counter in around.into_iter().filter(|_| passes.contains(Passes::UNROLL)) {
            unrolled.resize(unrolled.len().max(kernel.values.len()), false);
            unrolled[counter.index()] = true;
        }
        rewrite::run(kernel, round, unrolled, options, false);
        // While equal places have one name: what leaves loops has one for each way.
        if !last && passes.contains(Passes::BRANCHES) {
            alike::run(kernel);
        }
        if arrays {
            arrays::chosen(kernel, array_values);
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
        if !last && passes.contains(Passes::EVENLY) && options.made_of_counters {
            evenly::run(kernel);
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
    if let Some(lanes) = options.components_apart.filter(|_| passes.contains(Passes::COMPONENTS))
        && components::run(kernel, lanes)
    {
        if let Some(lanes) = options.rows_of_tiles.filter(|_| passes.contains(Passes::TILES)) {
            tiles::run(kernel, lanes);
        }
        rewrite::run(kernel, passes.without(Passes::UNROLL), Vec::new(), options, false);
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
        let mut values = Values::with_definitions(kernel);
        let floats = ranges::run(kernel, &mut values, options.small_grids, options.trees_written_out);
        powers::run(&mut kernel.body, &mut values, &floats);
        if options.fused && kernel.math == Math::Exact {
            quotients::run(&mut kernel.body, &mut values, &floats);
        }
        values.give_back(kernel);
    }
    if let Some(lanes) = options.words_dealt.filter(|_| passes.contains(Passes::DEAL)) {
        deal::run(kernel, lanes);
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
    if passes.contains(Passes::REJOIN) && options.rejoined {
        rejoin::run(kernel);
    }
    if passes.contains(Passes::FILLED) && options.places_compared {
        filled::run(kernel);
    }
    rewrite::run(kernel, passes.without(Passes::UNROLL), Vec::new(), options, true);
    if passes.contains(Passes::CONTRACT) && (kernel.math == Math::Fast || options.fused) {
        contract::run(kernel);
    }
    if passes.contains(Passes::TABLES) && options.places_tabled {
        tables::run(kernel);
    }
    if passes.contains(Passes::DEAD) {
        dead::run(kernel);
    }
    debug_assert_eq!(super::verify(kernel), Ok(()), "\n{kernel}");
    Ok(())
}

/// How many steps a block has, where nobody waits in it for others.
fn steps_alone(block: &Block) -> Option<usize> {
    let (mut steps, mut alone) = (0, true);
    each_inst(block, &mut |inst| {
        steps += 1;
        alone &= match inst {
            Inst::Barrier(_) => false,
            Inst::Let(_, op) => !op.is_across_subgroup(),
            _ => true,
        };
    });
    alone.then_some(steps)
}

/// Every round of the loop whose body this is comes to its end, or ends the invocation.
fn straight(body: &Block) -> bool {
    matches!(body.end, End::Continue(_)) && !ways(body).any(|way| breaks(way) || continues(way))
}
