//! Both ways of a branch write the same place of workgroup memory last: what each would write is given as a result, and written after the branch.
//!
//! One store for all invocations is cheaper than one for each way, a branch that only computes may become a selection, and it is seen that
//! the place is written on every way. What both ways compute alike, such as that place, is computed before them. Stores to buffers stay: emitters
//! take ways apart that each load and store neighbours.

use hashbrown::HashMap;

use super::values::{Values, named};
use crate::kernel::walk::{each_operand, each_operand_mut, each_value_mut, replace_insts, results as results_of};
use crate::kernel::{Address, Block, Element, End, Inst, Kernel, Memory, Op, Value};

/// Steps of a way that is looked at.
const MOST_STEPS: usize = 48;

pub(super) fn run(kernel: &mut Kernel) {
    if kernel.shared.is_empty() {
        return;
    }
    let mut alike = Alike { values: Values::of(kernel) };
    replace_insts(&mut kernel.body, &mut |mut inst, insts| {
        let mut after = Vec::new();
        if let Inst::If { then, otherwise, results, .. } = &mut inst {
            alike.branch(then, otherwise, results, insts, &mut after);
        }
        insts.push(inst);
        // The last that was taken comes last.
        insts.extend(after.into_iter().rev());
    });
    alike.values.give_back(kernel);
}

struct Alike {
    values: Values,
}

impl Alike {
    fn branch(
        &mut self,
        then: &mut Block,
        otherwise: &mut Block,
        results: &mut Vec<Value>,
        before: &mut Vec<Inst>,
        after: &mut Vec<Inst>,
    ) {
        let mut hoisted = false;
        while let (Some(yes), Some(no)) = (last_store(then), last_store(otherwise))
            && self.may_be_alike(&then.insts[yes], &otherwise.insts[no])
        {
            if !std::mem::replace(&mut hoisted, true) {
                hoist(then, otherwise, before, &self.values);
                continue;
            }
            let (Some(a), Some(b)) = (stored(&then.insts[yes]), stored(&otherwise.insts[no])) else { return };
            let inside = |block: &Block, value: Value| block.insts.iter().any(|inst| results_of(inst).contains(&value));
            let is_before = |value: Value| !inside(then, value) && !inside(otherwise, value);
            let known = a.address.terms.iter().all(|(index, _)| is_before(*index)) && a.guard.is_none_or(is_before);
            if a.address != b.address || a.guard != b.guard || !known {
                return;
            }
            let (address, element, guard) = (a.address.clone(), a.element, a.guard);
            let (yes_value, no_value) = (a.value, b.value);
            then.insts.remove(yes);
            otherwise.insts.remove(no);
            let value = self.values.like(yes_value);
            results.push(value);
            if let (End::Yield(a), End::Yield(b)) = (&mut then.end, &mut otherwise.end) {
                a.push(yes_value);
                b.push(no_value);
            }
            after.push(Inst::Store { address, element, value, guard });
        }
    }

    /// Stores of the same kind to the same workgroup memory, of one scalar.
    fn may_be_alike(&self, yes: &Inst, no: &Inst) -> bool {
        let (Some(a), Some(b)) = (stored(yes), stored(no)) else { return false };
        let [first, second] = [a.value, b.value].map(|value| self.values.ty(value));
        first == second
            && first.width == 1
            && a.element == b.element
            && matches!(a.address.memory, Memory::Shared(_))
            && a.address.memory == b.address.memory
            && a.address.offset == b.address.offset
            && a.address.terms.len() == b.address.terms.len()
            && a.guard.is_some() == b.guard.is_some()
    }
}

struct Stored<'i> {
    address: &'i Address,
    element: Element,
    value: Value,
    guard: Option<Value>,
}

fn stored(inst: &Inst) -> Option<Stored<'_>> {
    match inst {
        Inst::Store { address, element, value, guard } => {
            Some(Stored { address, element: *element, value: *value, guard: *guard })
        }
        _ => None,
    }
}

/// Where a way that goes on after its branch stores for the last time, if nothing but computing comes after that.
fn last_store(block: &Block) -> Option<usize> {
    if block.insts.len() > MOST_STEPS || !matches!(block.end, End::Yield(_)) {
        return None;
    }
    let last = block.insts.iter().rposition(|inst| !matches!(inst, Inst::Let(_, op) if op.is_plain()))?;
    matches!(block.insts[last], Inst::Store { .. }).then_some(last)
}

/// Computes before a branch what both ways compute of what is known there. Loads only from the start of a way to its first effect.
fn hoist(then: &mut Block, otherwise: &mut Block, before: &mut Vec<Inst>, values: &Values) {
    let first_effect =
        |block: &Block| block.insts.iter().position(|inst| !matches!(inst, Inst::Let(..))).unwrap_or(block.insts.len());
    let (yes_end, no_end) = (first_effect(then), first_effect(otherwise));
    let own = |block: &Block| -> Vec<Value> {
        block.insts.iter().filter_map(|inst| if let Inst::Let(value, _) = inst { Some(*value) } else { None }).collect()
    };
    // What is not before the branch. Results of inner branches and loops are not looked for, as no operation is moved past those.
    let mut inside = own(then);
    let mut names: HashMap<Value, Value> = HashMap::new();
    let (mut yes_moved, mut no_moved) = (vec![false; then.insts.len()], vec![false; otherwise.insts.len()]);
    for (i, inst) in then.insts.iter().enumerate().take(yes_end) {
        let Inst::Let(value, op) = inst else { break };
        if op.is_across_subgroup() || matches!(op, Op::Const(_)) {
            continue;
        }
        let mut known = true;
        each_operand(op, &mut |operand| known &= !inside.contains(&operand));
        if !known {
            continue;
        }
        let ty = values.ty(*value);
        let same = otherwise.insts.iter().take(no_end).enumerate().find(|(j, other)| match other {
            Inst::Let(other, other_op)
                if !no_moved[*j]
                    && values.ty(*other) == ty
                    && std::mem::discriminant(op) == std::mem::discriminant(other_op) =>
            {
                let mut renamed = other_op.clone();
                each_operand_mut(&mut renamed, &mut |operand| *operand = named(*operand, &names));
                renamed == *op
            }
            _ => false,
        });
        if let Some((j, Inst::Let(other, _))) = same {
            names.insert(*other, *value);
            (yes_moved[i], no_moved[j]) = (true, true);
            inside.retain(|own| own != value);
        }
    }
    let mut at = 0;
    then.insts.retain_mut(|inst| {
        at += 1;
        if yes_moved[at - 1] {
            before.push(inst.clone());
        }
        !yes_moved[at - 1]
    });
    each_value_mut(otherwise, &mut |value| *value = named(*value, &names));
    let mut at = 0;
    otherwise.insts.retain(|_| {
        at += 1;
        !no_moved[at - 1]
    });
}
