//! Which kernels are done one invocation after the other, in scalars.

use vyre_foundation::kernel::{Binary, End, Inst, Kernel, Loop, Memory, Op, Value};

use super::shape::{Lane, Shapes, collect_ends};
use super::visit;

/// Steps for each word of a private array at a place of the lane's own, up to which one invocation after the other is faster.
const OTHERS: usize = 6;

/// Lanes spend their time in loops that they leave one by one, each with a stack of its own: some are done long before others, and each word of
/// their stacks is an access of its own in a vector too. Where there are many of these one invocation after the other is faster.
pub(super) fn goes_apart(kernel: &Kernel, shapes: &Shapes) -> bool {
    let (mut apart, mut others, mut fits) = (0, 0, true);
    visit(&kernel.body, &mut |inst| {
        let (Inst::Let(_, Op::Load { element, .. }) | Inst::Store { element, .. }) = inst else {
            fits &= !matches!(inst, Inst::Atomic { .. });
            return;
        };
        fits &= element.bits() == 32;
    });
    visit(&kernel.body, &mut |inst| {
        let Inst::Loop(inner) = inst else { return };
        if !shapes.parts(inner) || !has_stack(kernel, inner) {
            return;
        }
        visit(&inner.body, &mut |inst| {
            let is_apart = match inst {
                Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } => {
                    let varies = |&(index, _): &(Value, u32)| shapes.of(index).lane == Lane::Vary;
                    matches!(address.memory, Memory::Local(_)) && address.terms.iter().any(varies)
                }
                _ => false,
            };
            apart += usize::from(is_apart);
            others += usize::from(!is_apart);
        });
    });
    fits && apart > 0 && OTHERS * apart >= others
}

/// A loop goes up and down in a private array by a number that it carries.
fn has_stack(kernel: &Kernel, inner: &Loop) -> bool {
    let mut constants = vec![None; kernel.values.len()];
    visit(&kernel.body, &mut |inst| {
        if let Inst::Let(value, Op::Const(literal)) = inst {
            constants[value.index()] = u32::try_from(literal.bits()).ok().map(u32::cast_signed);
        }
    });
    inner.params.iter().any(|&param| {
        // What is made of the number by steps.
        let mut tops = vec![false; kernel.values.len()];
        tops[param.index()] = true;
        let (mut up, mut down, mut place) = (false, false, false);
        // What a branch gives is known after it, and is seen the second time.
        for _ in 0..2 {
            visit(&inner.body, &mut |inst| match inst {
                Inst::Let(value, Op::Binary(op @ (Binary::Add | Binary::Sub), a, b)) if tops[a.index()] => {
                    let Some(by) = constants[b.index()].filter(|by: &i32| *by != 0) else { return };
                    tops[value.index()] = true;
                    let rises = (*op == Binary::Add) == (by > 0);
                    up |= rises;
                    down |= !rises;
                }
                Inst::Let(value, Op::Cast(a) | Op::BitCast(a)) => tops[value.index()] |= tops[a.index()],
                Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } => {
                    let is_local = matches!(address.memory, Memory::Local(_));
                    place |= is_local && address.terms.iter().any(|(index, _)| tops[index.index()]);
                }
                Inst::If { then, otherwise, results, .. } => {
                    for way in [then, otherwise] {
                        let End::Yield(given) = &way.end else { continue };
                        for (result, given) in results.iter().zip(given) {
                            tops[result.index()] |= tops[given.index()];
                        }
                    }
                }
                Inst::Loop(within) => {
                    for (param, init) in within.params.iter().zip(&within.init) {
                        tops[param.index()] |= tops[init.index()];
                    }
                    let mut ends = Vec::new();
                    collect_ends(&within.body, &mut ends);
                    for (_, given) in ends.into_iter().filter(|(leaves, _)| *leaves) {
                        for (result, given) in within.results.iter().zip(given) {
                            tops[result.index()] |= tops[given.index()];
                        }
                    }
                }
                _ => {}
            });
        }
        up && down && place
    })
}
