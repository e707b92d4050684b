//! Places in private arrays that are chosen among constants, as by `if (v[i] > v[best]) { best = i; }` once its loop is written out.
//!
//! What lies at such a place is chosen among what lies at each, so that all places are constants and the array can become values. A choice
//! that was made before is found again by whoever shares common values: of a search for the greatest, each round chooses once more.

use std::collections::HashSet;

use super::{candidates, is_plain};
use crate::kernel::passes::values::Values;
use crate::kernel::walk::{access, each_inst, replace_insts};
use crate::kernel::{Address, Element, Inst, Kernel, Memory, Op, Value, fold};

/// Constants that one place is chosen among.
const MOST_CHOICES: usize = 64;
/// The same for all places of a kernel.
const MOST_CHOICES_IN_ALL: usize = 4096;

/// Does so for arrays of `most` scalars in all whose other places are constants.
pub(in crate::kernel::passes) fn chosen(kernel: &mut Kernel, most: u32) {
    let values = Values::with_definitions(kernel);
    let mut left = MOST_CHOICES_IN_ALL;
    let mut ready = candidates(kernel, most, |local| is_plain(&kernel.locals[local]));
    let mut loads = HashSet::new();
    each_inst(&kernel.body, &mut |inst| {
        let Some((address @ Address { memory: Memory::Local(local), .. }, _)) = access(inst) else { return };
        let local = *local as usize;
        if address.terms.iter().all(|(value, _)| values.literal(*value).is_some()) {
            return;
        }
        let choices = choices(&values, address, kernel.locals[local].size).filter(|choices| *choices <= left);
        match (inst, choices) {
            (Inst::Let(value, Op::Load { .. }), Some(choices)) if values.ty(*value).width == 1 => {
                left -= choices;
                loads.insert(*value);
            }
            _ => ready[local] = false,
        }
    });
    let mut chooser = Chooser { values };
    replace_insts(&mut kernel.body, &mut |inst, insts| match inst {
        Inst::Let(value, Op::Load { address, element, guard })
            if loads.contains(&value) && matches!(address.memory, Memory::Local(local) if ready[local as usize]) =>
        {
            let (index, stride) = address.terms[0];
            let mut found = chooser.choose(index, stride, &address, element, value, insts);
            if let Some(guard) = guard {
                let zero = chooser.values.constant_at_start(fold::literal(element.scalar(), 0));
                found = Op::Select(guard, chooser.defined(found, value, insts), zero);
            }
            insts.push(Inst::Let(value, found));
        }
        inst => insts.push(inst),
    });
    chooser.values.give_back(kernel);
}

/// How many constants the one term of an address is chosen among, all of them inside of so many bytes.
fn choices(values: &Values, address: &Address, bytes: u32) -> Option<usize> {
    let [(index, stride)] = address.terms[..] else { return None };
    let is_inside = |place: u64| {
        let at = place.checked_mul(u64::from(stride)).and_then(|at| at.checked_add(u64::from(address.offset)));
        at.is_some_and(|at| at < u64::from(bytes))
    };
    let (mut open, mut found) = (vec![index], 0);
    while let Some(value) = open.pop() {
        match values.def(value)? {
            Op::Select(_, yes, no) => open.extend([no, yes]),
            Op::BitCast(of) => open.push(*of),
            Op::Const(_) => {
                found += 1;
                let place = u64::try_from(values.number(value)?).ok()?;
                if found > MOST_CHOICES || !is_inside(place) {
                    return None;
                }
            }
            _ => return None,
        }
    }
    (found > 1).then_some(found)
}

struct Chooser {
    values: Values,
}

impl Chooser {
    /// What gives the word at an index, which is `like` another value.
    fn choose(
        &mut self,
        index: Value,
        stride: u32,
        address: &Address,
        element: Element,
        like: Value,
        insts: &mut Vec<Inst>,
    ) -> Op {
        match self.values.def(index).cloned() {
            Some(Op::Select(condition, yes, no)) => {
                let [yes, no] = [yes, no].map(|way| {
                    let op = self.choose(way, stride, address, element, like, insts);
                    self.defined(op, like, insts)
                });
                Op::Select(condition, yes, no)
            }
            Some(Op::BitCast(of)) => self.choose(of, stride, address, element, like, insts),
            _ => {
                let place = self.values.number(index).and_then(|place| u32::try_from(place).ok()).unwrap_or(0);
                let at = Address {
                    memory: address.memory,
                    terms: Default::default(),
                    offset: address.offset + place * stride,
                };
                Op::Load { address: at, element, guard: None }
            }
        }
    }

    fn defined(&mut self, op: Op, like: Value, insts: &mut Vec<Inst>) -> Value {
        let ty = self.values.ty(like);
        self.values.define(ty, op, insts)
    }
}
