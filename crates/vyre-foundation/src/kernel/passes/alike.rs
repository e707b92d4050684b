//! Both ways of a branch write the same place of workgroup memory last: what each would write is given as a result, and written after the branch.
//!
//! One store for all invocations is cheaper than one for each way, a branch that only computes may become a selection, and it is seen that
//! the place is written on every way. What both ways compute alike, such as that place, is computed before them. Stores to buffers stay: emitters
//! take ways apart that each load and store neighbours.

use hashbrown::HashMap;

use crate::kernel::walk::{each_operand, each_operand_mut, each_use_mut, end_values_mut};
use crate::kernel::{Address, Block, Element, End, Inst, Kernel, Memory, Op, Value, ValueInfo};

/// Steps of a way that is looked at.
const MOST_STEPS: usize = 48;

pub(super) fn run(kernel: &mut Kernel) {
    if kernel.shared.is_empty() {
        return;
    }
    let mut alike = Alike { values: std::mem::take(&mut kernel.values) };
    alike.block(&mut kernel.body);
    kernel.values = alike.values;
}

struct Alike {
    values: Vec<ValueInfo>,
}

impl Alike {
    fn block(&mut self, block: &mut Block) {
        let candidates = |inst: &Inst| matches!(inst, Inst::If { .. } | Inst::Loop(_));
        if !block.insts.iter().any(candidates) {
            return;
        }
        let mut insts = Vec::with_capacity(block.insts.len());
        for mut inst in std::mem::take(&mut block.insts) {
            let mut after = Vec::new();
            match &mut inst {
                Inst::If { then, otherwise, results, .. } => {
                    self.block(then);
                    self.block(otherwise);
                    self.branch(then, otherwise, results, &mut insts, &mut after);
                }
                Inst::Loop(inner) => self.block(&mut inner.body),
                _ => {}
            }
            insts.push(inst);
            // The last that was taken comes last.
            insts.extend(after.into_iter().rev());
        }
        block.insts = insts;
    }

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
            let inside = |block: &Block, value: Value| {
                block.insts.iter().any(|inst| matches!(inst, Inst::Let(own, _) if *own == value) || gives(inst, value))
            };
            let is_before = |value: Value| !inside(then, value) && !inside(otherwise, value);
            let known = a.address.terms.iter().all(|(index, _)| is_before(*index)) && a.guard.is_none_or(is_before);
            if a.address != b.address || a.guard != b.guard || !known {
                return;
            }
            let (address, element, guard) = (a.address.clone(), a.element, a.guard);
            let (yes_value, no_value) = (a.value, b.value);
            then.insts.remove(yes);
            otherwise.insts.remove(no);
            let value = Value(self.values.len() as u32);
            self.values.push(ValueInfo { uniform: false, ..self.values[yes_value.index()] });
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
        let [first, second] = [a.value, b.value].map(|value| self.values[value.index()].ty);
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

/// A branch or a loop that gives a value.
fn gives(inst: &Inst, value: Value) -> bool {
    match inst {
        Inst::If { results, .. } => results.contains(&value),
        Inst::Loop(inner) => inner.results.contains(&value),
        Inst::Atomic { result, .. } => *result == Some(value),
        _ => false,
    }
}

fn computes(inst: &Inst) -> bool {
    matches!(inst, Inst::Let(_, op) if !op.is_across_subgroup() && !matches!(op, Op::Load { .. }))
}

/// Where a way that goes on after its branch stores for the last time, if nothing but computing comes after that.
fn last_store(block: &Block) -> Option<usize> {
    if block.insts.len() > MOST_STEPS || !matches!(block.end, End::Yield(_)) {
        return None;
    }
    let last = block.insts.iter().rposition(|inst| !computes(inst))?;
    matches!(block.insts[last], Inst::Store { .. }).then_some(last)
}

/// Computes before a branch what both ways compute of what is known there. Loads only from the start of a way to its first effect.
fn hoist(then: &mut Block, otherwise: &mut Block, before: &mut Vec<Inst>, values: &[ValueInfo]) {
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
        let ty = values[value.index()].ty;
        let same = otherwise.insts.iter().take(no_end).enumerate().find(|(j, other)| match other {
            Inst::Let(other, other_op)
                if !no_moved[*j]
                    && values[other.index()].ty == ty
                    && std::mem::discriminant(op) == std::mem::discriminant(other_op) =>
            {
                let mut renamed = other_op.clone();
                each_operand_mut(&mut renamed, &mut |operand| {
                    *operand = names.get(operand).copied().unwrap_or(*operand);
                });
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
    rename(otherwise, &names);
    let mut at = 0;
    otherwise.insts.retain(|_| {
        at += 1;
        !no_moved[at - 1]
    });
}

fn rename(block: &mut Block, names: &HashMap<Value, Value>) {
    let new = |value: &mut Value| *value = names.get(value).copied().unwrap_or(*value);
    for inst in &mut block.insts {
        each_use_mut(inst, &mut { new });
        match inst {
            Inst::If { then, otherwise, .. } => {
                rename(then, names);
                rename(otherwise, names);
            }
            Inst::Loop(inner) => rename(&mut inner.body, names),
            _ => {}
        }
    }
    end_values_mut(&mut block.end).iter_mut().for_each(new);
}
